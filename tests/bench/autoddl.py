#!/usr/bin/env python3
"""AutoDDL's experiments without measured times, compared with nnaot's searches:  tests/bench/autoddl.py [PART ...]

products   section 4.2, figure 6: one product of n x n matrices; the elements sent by a rank under SUMMA's and
           Megatron's best grids, the best of AutoDDL's grids, and a search over all splits
vgg13      section 5.2.2, figure 7: the dense layers of VGG13; the same under the cheapest plan found by a search over
           all splits, and under the best of AutoDDL's plans, a grid for each layer, by exhaustive enumeration
methods    section 4.6, figure 8: AutoDDL's plans of four dense layers, of a batch of 4,096, as a problem for the solver;
           the cost found by random choices, Metropolis-Hastings and coordinate descent, relative to the optimum, by
           their seconds, for ten seeds; and the seconds of exhaustive search and of nnaot's solver
mlp        the same problem solved by nnaot and by dynamic programming; on 128 nodes also by enumeration in Python, and
           the traffic of a rank under the plan of a search over all splits
steps      section 5.2.2, figure 9: predicted steps of the Transformer on Piz Daint, with recomputed layers, under the
           best grid of Megatron and of SUMMA, the best plan of GSPMD's space (partial sums are reduced at once), and of
           all plans; published are the shorter step and the saved communication beside the second best

    --ranks N ...     of vgg13 (16 32 64) and steps (64 128 256)
    --nodes N ...     of methods and mlp (128 4096)
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "plan"))
import autoddl
import paper_models

BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
PLAN = BUILD / "bin" / "nnaot-plan"
MLP, BATCH = [32768, 16384, 4096, 2048, 512], 4096
MOST = 3_000_000  # plans for exhaustive enumeration
SEARCHED = 128  # nodes; more have too many factorings

# Of `products`: the ranks, and n.
PRODUCTS, WIDTH = [16, 64, 256], 4096

# Of `methods`: limits in seconds, and seeds.
METHODS = ["random", "metropolis", "descent"]
BUDGETS, SEEDS, EXHAUSTIVE_SECONDS = [1e-4, 1e-3, 0.01, 0.1], range(1, 11), 60

# Of `steps`: layers by ranks, and the published savings of communication and of the step.
LAYERS = {64: 8, 128: 20, 256: 44}
PUBLISHED = {64: (23.9, 12.0), 128: (46.4, 36.1), 256: (35.3, 31.1)}
TRANSFORMER = dict(width=8192, heads=64, rows=1024, tokens=1024)


def summa_program(rows, columns):
    """Returns SUMMA for one product between ops that store its operand and its result in parts: tests/bench/summa.lua
    with the layouts of the neighbours."""
    return f"""function factors() return {{{rows}, {columns}}} end
function step(r, c)
  local relu, product = ops("relu", "forward"), ops("linear", "forward")[1]
  for _, op in ipairs(relu) do
    op_trans(op, "0", r)
    op_trans(op, "1", c)
  end
  op_trans(product, "0", r)
  op_trans(product, "n", c)
  store(product.inputs[2], 0, r)
end
"""


def products(folder):
    print(f"products: elements sent by a rank in a step, thousands, of {WIDTH} x {WIDTH} matrices")
    print(f"{'ranks':>6}{'SUMMA':>10}{'Megatron':>10}{'AutoDDL':>10}{'search':>10}  grids")
    for p in PRODUCTS:
        w = WIDTH * WIDTH
        volumes = {g: autoddl.product_volume(g, w, w, w) for g in autoddl.grids(p)}
        best = min(volumes, key=volumes.get)
        # Rows of the batch and columns alone: a Megatron grid for a single product.
        flat = min((g for g in volumes if g[2] == 1), key=volumes.get)
        side = int(p**0.5)
        manifest, _, _ = autoddl.compiled(folder, autoddl.product(WIDTH, WIDTH, WIDTH), summa_program(side, p // side), p,
                                          "mse(z)")
        summa = autoddl.sent(manifest, p)
        cluster = autoddl.bandwidth(6 * WIDTH**3 / p, volumes[best])
        manifest, _, text = autoddl.compiled(folder, autoddl.product(WIDTH, WIDTH, WIDTH), "search3", p, "mse(z)", cluster)
        numbers = summa, volumes[flat], volumes[best], autoddl.sent(manifest, p)
        print(f"{p:6}" + "".join(f"{float(x) / 1e3:10.1f}" for x in numbers) + f"  {side}x{p // side} {flat} {best} "
              f"{autoddl.chosen_grids(text)[0]}", flush=True)


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


def solved(file, *flags):
    """Returns the answer, {} if no plan is found in the seconds of a method."""
    run = subprocess.run([PLAN, "solve", file, "--json", *map(str, flags)], capture_output=True, text=True)
    if run.returncode and "nothing that fits was found" not in run.stderr:
        sys.exit(run.stderr)
    return json.loads(run.stdout or "{}")


def methods(folder, nodes):
    print("methods: cost over the optimum by seconds of the search: mean, and the worst of ten seeds")
    print(f"{'nodes':>6} {'method':12}" + "".join(f"{f'{t:g} s':>18}" for t in BUDGETS))
    for p in nodes:
        problem, file = as_problem(autoddl.Chain(BATCH, MLP, p)), pathlib.Path(folder, "methods.json")
        file.write_text(json.dumps(problem))
        optimum = dynamic(problem)
        for method in METHODS:
            cells = []
            for budget in BUDGETS:
                costs = [solved(file, "--method", method, "--seconds", budget, "--seed", seed).get("cost") for seed in SEEDS]
                ratios = [cost / optimum for cost in costs if cost is not None]
                cells.append(f"{statistics.mean(ratios):9.3f} {max(ratios):7.3f}" if len(ratios) == len(costs) else "-")
            print(f"{p:6} {method:12}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
        for method in "exhaustive", "auto":
            before = time.monotonic()
            answer = solved(file, "--method", method, "--seconds", EXHAUSTIVE_SECONDS)
            print(f"{p:6} {method:12}{answer['cost'] / optimum:9.3f}, {answer['status']} after "
                  f"{time.monotonic() - before:.2f} s", flush=True)


def step_of(model, ranks, plan, loss, folder):
    """Returns the predicted milliseconds of a step and those of communication, or None if the plan does not fit."""
    summary = pathlib.Path(folder, "step.json")
    summary.unlink(missing_ok=True)
    command = [BUILD / "bin" / "nnaot", model, "-g", ranks, "--plan", plan, "--loss", loss, "--target", "cuda:sm_80",
               "--cluster", ROOT / "tests/bench/clusters/piz-daint.lua", "--emit", "plan", "-o", pathlib.Path(folder, "o.json"),
               "--summary", summary]
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if run.returncode:
        if "does not fit" not in run.stderr:
            sys.exit(run.stderr)
        return None
    answer = json.loads(summary.read_text())
    return answer["predicted_step_ms"], max(rank["comm_ms"] for rank in answer["per_rank"])


def steps(folder, ranks):
    print("steps: predicted seconds of the Transformer on Piz Daint: of the step, and of communication")
    names = "Megatron", "SUMMA", "GSPMD", "AutoDDL"
    print(f"{'ranks':>6}" + "".join(f"{name:>30}" for name in names) + f"{'step less, %':>22}{'comm less, %':>22}")
    for p in ranks:
        text, loss = paper_models.gpt(LAYERS[p], TRANSFORMER["width"], TRANSFORMER["heads"], TRANSFORMER["rows"],
                                      TRANSFORMER["tokens"])
        model = pathlib.Path(folder, "transformer.nn")
        model.write_text(text)
        grids = [(r, p // r) for r in (2, 4, 8, 16, 32, 64) if 2 <= p // r <= TRANSFORMER["heads"]]
        summa = ROOT / "tests/bench/summa.lua"
        tried = {"Megatron": [f"dp={r},tp={c},recompute=1" for r, c in grids],
                 "SUMMA": [f"{summa}={r}x{c},recompute=1" for r, c in grids],
                 "GSPMD": [f"search_added={p},recompute=1"],
                 "AutoDDL": [f"search={p},recompute=1"] + [f"dp={r},search={c},recompute=1" for r, c in grids]}
        best = {}
        for name in names:
            found = [(step, plan) for plan in tried[name] if (step := step_of(model, p, plan, loss, folder))]
            best[name] = min(found, default=None)
        cells = [f"{best[n][0][0] / 1e3:.1f} {best[n][0][1] / 1e3:.1f} {best[n][1].split('/')[-1].split(',rec')[0]}"
                 if best[n] else "does not fit" for n in names]
        second = min(best[n][0] for n in ("Megatron", "SUMMA") if best[n])
        ours = best["AutoDDL"][0]
        less = [100 * (1 - mine / other) for mine, other in zip(ours, second)]
        print(f"{p:6}" + "".join(f"{cell:>30}" for cell in cells) + f"{less[0]:10.1f} ({PUBLISHED[p][1]})"
              f"{less[1]:14.1f} ({PUBLISHED[p][0]})", flush=True)


def main():
    parts = {"products": lambda f, o: products(f), "vgg13": lambda f, o: vgg13(f, o.ranks or [16, 32, 64]),
             "methods": lambda f, o: methods(f, o.nodes), "mlp": lambda f, o: mlp(f, o.nodes),
             "steps": lambda f, o: steps(f, o.ranks or list(LAYERS))}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--ranks", type=int, nargs="*")
    parser.add_argument("--nodes", type=int, nargs="*", default=[128, 4096])
    o = parser.parse_args()
    if unknown := set(o.parts) - set(parts):
        parser.error(f"there is no part '{unknown.pop()}': there are {', '.join(parts)}")
    with tempfile.TemporaryDirectory() as folder:
        for part in o.parts or parts:
            parts[part](folder, o)


main()
