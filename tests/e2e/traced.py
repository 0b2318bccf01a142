"""What executables do in which order, as --trace writes it, is what nnaot predicts with its --trace.

    traced.py [PLAN ...]       plans of the samples' gpt2 on 4 ranks, with 4 micro-batches; or of a model of models/

Threads of both pictures are called alike, and so are events and their arguments, so that they can be looked at side by
side.  Predicted are those that take time; of these every rank must have done the same in the same order.
"""

import json
import pathlib
import sys

import plan_cases
from common import NNAOT, compile_sample, run, scratch, train

OTHER_MODEL = {"pp_3f1b=4": "recycle"}
PLANS = ["pp=4", "pp=2,dp=2", "pp=2,tp=2", "pp_interlaced=4", "pp_3f1b=4", "pp_chimera=4", "pp_dualpipe=4", "pp_terapipe=4",
         "pp_terapipe=2,tp=2", "tp=4", "tp=4,recompute=1", "pp=2,tp=2,recompute=1", "zero3", "cross_barrier",
         "dp=2,tp=2,cross_barrier=1"]
RANKS, THREADS = 4, {"operations", "communication", "segments", "moves"}


def key(event):
    return event["name"], event["args"]["at"]


def lists(path, thread, step=0):
    """Of each rank, what the thread does in a step, in its order."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    tids = {(e["pid"], e["args"]["name"]): e["tid"] for e in events if e["name"] == "thread_name"}
    if not {name for _, name in tids} <= THREADS: sys.exit(f"{path} has threads {sorted(tids)}")
    return [sorted((e for e in events if e["ph"] == "X" and e["pid"] == r and e["tid"] == tids.get((r, thread)) and
                    e["args"].get("step", 0) == step), key=lambda e: e["ts"]) for r in range(RANKS)]


def compare(what, planned, done):
    """Of what was done, what was not predicted took no time in the prediction."""
    for rank, (want, got) in enumerate(zip(planned, done)):
        known = {key(e) for e in want}
        want = [e for e in want if e["name"] != "stash"]  # a copy, which no trace has
        want, got = [key(e) for e in want], [key(e) for e in got if key(e) in known]
        if want == got: continue
        at = next((i for i, (w, g) in enumerate(zip(want, got)) if w != g), min(len(want), len(got)))
        print(f"{what}: rank {rank} does {got[at:at + 3]}, not {want[at:at + 3]}, after {at} of {len(want)}")
        return False
    return True


def last_step(plan):
    """The first does nothing of what a step owes to the next one, and at the end of the last all of that is done."""
    return 1 if "cross_barrier" in plan else 0


def compile_and_train(folder, at, plan):
    flags = ["--plan", plan, "--micro-batches", 4, "--trace", at["planned.json"]]
    model = OTHER_MODEL.get(plan)
    if not model:
        compile_sample("gpt2", at["exe"], ranks=RANKS, extra=["--batch", 16, *flags])
        train(at["exe"], "gpt2", 1 + 2 * last_step(plan), at["log"], extra=["--trace", at["done.json"]])
        return
    run(NNAOT, *plan_cases.compile_flags(model, folder), "-g", RANKS, *flags, "-o", at["exe"])
    run(at["exe"], *plan_cases.data_flags(model, folder), "--steps", 1, "--trace", at["done.json"])


def one_case(folder, plan):
    at = {n: pathlib.Path(folder, n) for n in ("exe", "log", "planned.json", "done.json")}
    compile_and_train(folder, at, plan)
    ok = all(compare(f"{plan}, {thread}", lists(at["planned.json"], thread), lists(at["done.json"], thread, last_step(plan)))
             for thread in ("operations", "segments", "moves") if any(lists(at["done.json"], thread)))
    n = [len(x) for x in lists(at["planned.json"], "operations")]
    print(f"{plan:12} {n} operations of ranks {'are in the planned order' if ok else 'DIFFER'}", flush=True)
    return ok and all(n)


def main(plans):
    with scratch() as folder:
        sys.exit(not all([one_case(folder, plan) for plan in plans]))


main(sys.argv[1:] or PLANS)
