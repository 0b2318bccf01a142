"""AutoDDL's two searches, compared with nnaot's:  tests/bench/autoddl.py [--ranks 16 32 64] [--nodes 128 4096]

VGG13      its dense layers (section 5.2.2, figure 7): the traffic of a rank under the cheapest plan found by a search over
           all splits, and under the best of AutoDDL's plans, a grid for each layer, by exhaustive enumeration
MLP        four layers (section 4.6, figure 8), of a batch of 4,096: AutoDDL's plans as a problem for the solver, whose
           optimum is compared with that of dynamic programming, on 128 nodes also with exhaustive enumeration and with
           the traffic of a rank under the plan of a search over all splits
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "plan"))
import autoddl

PLAN = pathlib.Path(os.environ.get("BUILD", ROOT / "build")) / "bin" / "nnaot-plan"
MLP, BATCH = [32768, 16384, 4096, 2048, 512], 4096
MOST = 3_000_000  # plans for exhaustive enumeration
SEARCHED = 128  # nodes; more have too many factorings


def vgg13(folder, ranks):
    print(f"{'VGG13':6}{'ranks':>6}{'plans':>10}{'best, M':>10}{'search, M':>10}{'ratio':>7}{'search, s':>10}"
          "  grids, axes")
    for p in ranks:
        least, n = autoddl.Chain(8 * p, autoddl.VGG13, p).exhaustive()
        got, chosen, way, _, seconds = autoddl.searched_chain(folder, 8 * p, autoddl.VGG13, p)
        print(f"{'':6}{p:6}{n:10}{float(least) / 1e6:10.4f}{float(got) / 1e6:10.4f}{float(got / least):7.3f}"
              f"{seconds:10.2f}  {' '.join(map(str, chosen))}, {way}", flush=True)


def as_problem(chain):
    """Returns a problem with a node for each layer; its strategies are the grids, its costs elements sent, times the ranks."""
    n = len(chain.weights)
    scale = chain.p * chain.p
    costs = [[int(scale * chain.own(i, g)) for g in chain.all] for i in range(n)]
    edges = [[int(scale * chain.between(i, g, h)) for g in chain.all for h in chain.all] for i in range(n - 1)]
    nodes = {"intervals": [[0, 1]] * n, "costs": costs, "usages": [[0] * len(chain.all)] * n}
    joined = {"nodes": [[i, i + 1] for i in range(n - 1)], "costs": edges}
    return {"problem": {"name": "mlp", "nodes": nodes, "edges": joined}}


def dynamic(problem):
    """Returns the optimum of a chain by dynamic programming over the layers."""
    costs, edges = problem["problem"]["nodes"]["costs"], problem["problem"]["edges"]["costs"]
    best = costs[0]
    for cost, edge in zip(costs[1:], edges):
        many = len(cost)
        best = [c + min(best[i] + edge[i * many + k] for i in range(len(best))) for k, c in enumerate(cost)]
    return min(best)


def every(problem):
    """Returns the optimum by exhaustive enumeration."""
    costs, edges = problem["problem"]["nodes"]["costs"], problem["problem"]["edges"]["costs"]
    many = len(costs[0])
    return min(sum(c[k] for c, k in zip(costs, plan)) + sum(e[i * many + k] for e, i, k in zip(edges, plan, plan[1:]))
               for plan in itertools.product(range(many), repeat=len(costs)))


def mlp(folder, nodes):
    print(f"{'MLP':6}{'nodes':>6}{'plans':>10}{'optimum':>16}{'solver':>16}{'ms':>8}{'all, s':>8}{'search':>8}  grids")
    for p in nodes:
        chain = autoddl.Chain(BATCH, MLP, p)
        problem, file = as_problem(chain), pathlib.Path(folder, "mlp.json")
        file.write_text(json.dumps(problem))
        before = time.monotonic()
        run = subprocess.run([PLAN, "solve", file, "--json"], check=True, capture_output=True, text=True)
        answer = json.loads(run.stdout)
        took, plans, tried, ratio = time.monotonic() - before, len(chain.all)**len(chain.weights), "-", "-"
        optimum = dynamic(problem)
        if plans <= MOST:
            before = time.monotonic()
            assert every(problem) == optimum
            tried = f"{time.monotonic() - before:.1f}"
        if p <= SEARCHED:
            ratio = f"{float(autoddl.searched_chain(folder, BATCH, MLP, p)[0]) * p * p / optimum:.3f}"
        grids = " ".join(str(chain.all[k]) for k in answer["choices"])
        print(f"{'':6}{p:6}{plans:10}{optimum:16}{answer['cost']:16}{1e3 * took:8.1f}{tried:>8}{ratio:>8}  {grids}",
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="*", default=[16, 32, 64])
    parser.add_argument("--nodes", type=int, nargs="*", default=[128, 4096])
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vgg13(folder, o.ranks)
        mlp(folder, o.nodes)


main()
