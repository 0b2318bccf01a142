"""The traffic of a step of the samples' gpt2 under every plan: predicted by nnaot, counted by the executable, equal.

    traffic.py [PLAN ...]       all of plan_cases.PLANS that a gpt trains under, on 2 and 4 ranks

Bytes are those of --summary, of one step, summed over ranks; calls and bytes are compared by kind and phase with
--comm-manifest, too.  If a paper gives its plan's traffic, the numbers must agree with it, except for scalars.
"""

import json
import pathlib
import sys

from common import compile_in_a_hurry, compile_sample, scratch, train
from plan_cases import BATCH, PLANS
from plans import counted_traffic, predicted_traffic, read_weights

# Of one rank, in weights, and in activations between blocks (batch x length x width): tensor parallelism has two
# collectives forward and two backward in each of the two layers.
PAPER = {
    "dp": {"all_reduce": (1, 0)},
    "tp": {"all_reduce": (0, 8)},
    "sp": {"reduce_scatter": (0, 8)},
    "zero1": {"reduce_scatter": (1, 0), "all_gather": (1, 0)},
}
ACTIVATIONS = BATCH * 64 * 64 * 4
STEPS, KINDS = 3, ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "move"]


def as_in_paper(plan, ranks, sent, weights):
    size = sum(4 * len(values) for _, values in read_weights(weights).values())
    for kind, (w, a) in PAPER.get(plan, {}).items():
        want = ranks * (w * size + a * ACTIVATIONS)
        # In addition, sums of squares for the norm: 64 bytes each in a bucket.
        if not want <= sent[kind] <= want + 1024 * ranks:
            print(f"{plan} should send {want} bytes in {kind}, not {sent[kind]}")
            return False
    return True


def one_case(folder, plan, ranks, extra):
    at = {n: pathlib.Path(folder, n) for n in ("exe", "log", "summary", "manifest", "traffic", "weights")}
    compile_sample("gpt2", at["exe"], ranks=ranks, extra=["--plan", plan, "--batch", BATCH, *extra, "--summary",
                                                          at["summary"], "--comm-manifest", at["manifest"]])
    train(at["exe"], "gpt2", STEPS, at["log"], extra=["--traffic", at["traffic"], "--save", at["weights"]])
    summary, manifest, traffic = (json.loads(at[n].read_text()) for n in ("summary", "manifest", "traffic"))
    said, sent = summary["comm_bytes"], traffic["comm_bytes"]
    equal = (traffic["steps"] == STEPS and all(said.get(k, 0) == sent.get(k, 0) for k in {*said, *sent}) and
             predicted_traffic(manifest) == counted_traffic(traffic))
    name = " ".join([pathlib.Path(plan).stem, *map(str, extra)])
    for what, numbers in ("predicted", said), ("counted", sent):
        print(f"{name:28} {ranks:5} {what:9} " + " ".join(f"{numbers[k]:14}" for k in KINDS) +
              ("" if equal else "  DIFFERENT"), flush=True)
    # With a cluster, reductions may differ from the paper's.
    return equal and ("--cluster" in extra or as_in_paper(plan, ranks, sent, at["weights"]))


def main(plans):
    failed = False
    print(f"{'plan':28} {'ranks':5} {'bytes':9} " + " ".join(f"{k:>14}" for k in KINDS))
    with scratch() as folder:
        compile_in_a_hurry(folder)
        for plan, models, numbers, extra, _ in PLANS:
            for ranks in 2, 4:
                if "gpt" in models and ranks in numbers and plan in (plans or [plan]):
                    failed |= not one_case(folder, plan, ranks, extra)
    return failed


sys.exit(main(sys.argv[1:]))
