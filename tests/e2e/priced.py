"""The cost of a step's communication over a cluster, with and without --cluster.

    priced.py           gpt under four plans over one cluster
    priced.py --all     every plan of plan_cases.PLANS with its first model, on 4 and 8 ranks, over three

The plan is the same, so it may cost less with --cluster, but not more.  Costs are those of the model in
passes/paths/path_cost.h, added up over all ops of a step before bucket_grads (tests/plan/price.c), not times.
"""

import pathlib
import sys

from common import BUILD, NNAOT, run, scratch
from plan_cases import PLANS, compile_flags

CLUSTERS = ["h100:1x8", "h100:4x2", "cpu:4x2"]


def price(folder, model, plan, ranks, extra, cluster, told):
    out = pathlib.Path(folder, "step.nn")
    run(NNAOT, *compile_flags(model, folder), "-g", ranks, "--plan", plan, *extra, "--emit", "nn", "--stop-after", "fuse_comm",
        "-o", out, *(["--cluster", cluster] if told else []))
    seconds, ops = run(BUILD / "bin" / "price", cluster, out).split()
    return float(seconds), int(ops)


def cases(everything):
    if not everything:
        return [("gpt", plan, 4, [], "cpu:4x2") for plan in ("tp", "sp", "zero3", "dp=2,tp=2")]
    return [(models[0], plan, ranks, extra, cluster) for plan, models, numbers, extra, _ in PLANS if "coshard" != plan
            for ranks in (4, 8) if ranks in numbers for cluster in CLUSTERS]


def main(everything):
    failed = False
    print(f"{'model':8} {'plan':14} {'ranks':5} {'cluster':9} {'seconds':>11} {'ops':>4} {'--cluster':>11} {'ops':>4}")
    with scratch() as folder:
        for model, plan, ranks, extra, cluster in cases(everything):
            plain, n = price(folder, model, plan, ranks, extra, cluster, False)
            told, k = price(folder, model, plan, ranks, extra, cluster, True)
            worse = told > plain * (1 + 1e-9)
            failed |= worse
            print(f"{model:8} {plan:14} {ranks:5} {cluster:9} {plain:11.4g} {n:4} {told:11.4g} {k:4}" +
                  ("  WORSE" if worse else ""), flush=True)
    return failed


sys.exit(main(sys.argv[1:] == ["--all"]))
