"""The search finds the optimum of its problem, under any memory limit:  exact.py [FIRST [COUNT]]

Random small models on two and four ranks are searched with enough memory, then with less and less.  Each problem is
also solved by exhaustive enumeration, which must give the same cost; and less memory must never give a lower cost.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from peaks import CLUSTER, OPT, Model, cluster

PLAN = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot-plan")
MOST_OPS = 12


def solve(path, method):
    run = subprocess.run([PLAN, "solve", path, "--method", method, "--seconds", "5", "--json"], capture_output=True,
                         text=True)
    return json.loads(run.stdout) if not run.returncode else None


def search(folder, model, ranks, link):
    """Returns the file of the solved problem and the estimated peak, or None if nothing fits."""
    lua, path = pathlib.Path(folder, "cluster.lua"), pathlib.Path(folder, "problem.json")
    lua.write_text(CLUSTER.format(**link))
    passes = ('loss(spec="mse(y)"),autodiff,optimizer(name=adamw),simplify,'
              f'shard(mesh={ranks} plan="{folder}/search.lua" cluster="{lua}" problem="{path}")')
    run = subprocess.run([OPT, str(model), f"--passes={passes}", "--stats", "-o", os.devnull], capture_output=True,
                         text=True)
    if run.returncode and "fits into the" not in run.stderr:
        raise SystemExit(run.stderr)
    said = [int(line.split()[1]) for line in run.stderr.split("\n") if "as the search sees it" in line]
    return (path, said[0]) if not run.returncode else None


def check(folder, seed):
    r = random.Random(seed)
    model = Model(r)
    while len(model.ops) > MOST_OPS:
        model = Model(r)
    pathlib.Path(folder, "model.nn").write_text(model.text())
    pathlib.Path(folder, "search.lua").write_text("function step(...) search(...) end\n")
    link, ranks, before, n = cluster(r, 10**12), r.choice([2, 4]), 0, 0
    while n < 5 and (found := search(folder, pathlib.Path(folder, "model.nn"), ranks, link)):
        path, peak = found
        answer, tried = solve(path, "auto"), solve(path, "exhaustive")
        if not answer or not tried or tried["status"] != "optimal":
            print(f"seed {seed}: too much to try")
            return n
        if answer["cost"] != tried["cost"] or answer["cost"] < before:
            raise SystemExit(f"seed {seed}: {answer['cost']}, the best is {tried['cost']}, with more memory {before}")
        before, n = answer["cost"], n + 1
        link["memory"] = int(0.9 * peak)
    return n


def main():
    first, count = (list(map(int, sys.argv[1:])) + [0, 15][len(sys.argv) - 1:])[:2]
    with tempfile.TemporaryDirectory() as folder:
        n = sum(check(folder, seed) for seed in range(first, first + count))
    print(f"{n} problems of {count} models are solved")
    sys.exit(n < count)


if __name__ == "__main__":
    main()
