"""The order of events in executables, as --trace writes it, equals nnaot's prediction by its --trace.

    traced.py [PLAN ...]       plans of the samples' gpt2 on 4 ranks, with 4 micro-batches, or one; or of a model of models/

Both traces have the same names of threads and events, categories and arguments, so that they can be
viewed side by side.  Only events that take time are predicted; every rank must have run these in the same order.
"""

import json
import pathlib
import sys

import plan_cases
from common import NNAOT, compile_in_a_hurry, compile_sample, run, scratch, train

OTHER_MODEL = {"pp_3f1b=4": "recycle", "pp_pipedream=4": "wide"}
PLANS = ["pp=4", "pp=2,dp=2", "pp=2,tp=2", "pp_interlaced=4", "pp_3f1b=4", "pp_chimera=4", "pp_dualpipe=4", "pp_terapipe=4",
         "pp_terapipe=2,tp=2", "pp_pipedream=4", "tp=4", "tp=4,recompute=1", "pp=2,tp=2,recompute=1", "zero3", "cross_barrier",
         "dp=2,tp=2,cross_barrier=1", "zero3=4,swap=1", "pp=2,dp=2,swap=1", "dp=4,offload=1",
         "offload=4,optimizer_in_backward=1", "pp=2,dp=2,offload_gradients=1"]
RANKS = 4
THREADS = {"operations": "op", "communication": "comm", "segments": "segment", "moves": "comm", "to host memory": "copy",
           "from host memory": "copy"}


def name(event):
    return event["name"], event["args"]["at"]


def key(event):
    """Returns an event's identity: everything except its time and step."""
    return event["name"], event["cat"], *((k, v) for k, v in event["args"].items() if k != "step")


class Trace:
    def __init__(self, path):
        self.events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
        self.tids = {(e["pid"], e["args"]["name"]): e["tid"] for e in self.events if e["name"] == "thread_name"}

    def lists(self, thread, step):
        """Returns for each rank the events of the thread that began in a step, in order."""
        return [sorted((e for e in self.events if e["ph"] == "X" and e["pid"] == r and e["tid"] == self.tids.get((r, thread))
                        and e["args"]["step"] == step), key=lambda e: e["ts"]) for r in range(RANKS)]

    def planned(self, thread):
        """Returns the predicted events of a step.  Deferred ones only appear at the start of the next, identical step."""
        return [this + [e for e in before if key(e) not in map(key, this)]
                for this, before in zip(self.lists(thread, 0), self.lists(thread, -1))]


def compare(what, cat, planned, done):
    """Compares the order of events; executed events that are not predicted are ignored: their predicted time is 0."""
    for rank, (want, got) in enumerate(zip(planned, done)):
        if not {e["cat"] for e in [*want, *got]} <= {cat}:
            print(f"{what}: rank {rank} has events that are not {cat}")
            return False
        known = {name(e) for e in want}
        want, got = [key(e) for e in want], [key(e) for e in got if name(e) in known]
        if want == got: continue
        at = next((i for i, (w, g) in enumerate(zip(want, got)) if w != g), min(len(want), len(got)))
        print(f"{what}: rank {rank} does {got[at:at + 3]}, not {want[at:at + 3]}, after {at} of {len(want)}")
        return False
    return True


def last_step(plan):
    """Returns 1 with deferred updates: the first step runs none of an earlier step, the last flushes its own."""
    return 1 if "cross_barrier" in plan else 0


def wanted(plan):
    """Returns the threads that must have events."""
    if "swap" in plan or "offload" in plan: return ["to host memory", "from host memory"]
    return ["moves"] if "pp" in plan else ["communication"]


def compile_and_train(folder, at, plan):
    # With several micro-batches gradients are complete only at the end, and with clipping updates wait for the norm.
    early = "in_backward" in plan
    flags = ["--plan", plan, "--micro-batches", 1 if early else 4, "--trace", at["planned.json"]]
    if early: flags += ["--clip-norm", 0]
    model = OTHER_MODEL.get(plan)
    if not model:
        compile_sample("gpt2", at["exe"], ranks=RANKS, extra=["--batch", 16, *flags])
        train(at["exe"], "gpt2", 1 + 2 * last_step(plan), at["log"], extra=["--trace", at["done.json"]])
        return
    # If every stage updates on its own, no global norm exists for clipping.
    if "pipedream" in plan: flags += ["--clip-norm", 0]
    run(NNAOT, *plan_cases.compile_flags(model, folder), "-g", RANKS, *flags, "-o", at["exe"])
    run(at["exe"], *plan_cases.data_flags(model, folder), "--steps", 1, "--trace", at["done.json"])


def one_case(folder, plan):
    at = {n: pathlib.Path(folder, n) for n in ("exe", "log", "planned.json", "done.json")}
    compile_and_train(folder, at, plan)
    planned, done = Trace(at["planned.json"]), Trace(at["done.json"])
    n = {thread: [len(x) for x in planned.planned(thread)] for thread in THREADS}
    ok = all([compare(f"{plan}, {thread}", cat, planned.planned(thread), done.lists(thread, last_step(plan)))
              for thread, cat in THREADS.items()])
    if planned.tids != done.tids or not {name for _, name in planned.tids} <= {*THREADS}:
        ok = print(f"{plan}: threads {done.tids}, not {planned.tids}")
    print(f"{plan:20} {n['operations']} operations of ranks {'are in the planned order' if ok else 'DIFFER'};",
          ", ".join(f"{sum(n[t])} {t}" for t in THREADS if t != "operations"), flush=True)
    return ok and all(n["operations"]) and all(any(n[t]) for t in wanted(plan))


def main(plans):
    with scratch() as folder:
        compile_in_a_hurry(folder)
        sys.exit(not all([one_case(folder, plan) for plan in plans]))


main(sys.argv[1:] or PLANS)
