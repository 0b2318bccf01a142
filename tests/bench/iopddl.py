#!/usr/bin/env python3
"""The solver on sharding problems:  tests/bench/iopddl.py DIR [--plan build/bin/nnaot-plan] [--seconds N] [NAME...]

Runs nnaot-plan solve on every NAME.json or NAME.json.xz of a folder (such as the ASPLOS 2025 contest's), recomputes the
cost of each answer, and prints a table: cost, bound, gap, status, the limit that ended it, wall-clock and processor
seconds, and peak memory.  Without --seconds each problem has the contest's time limit, or 60.  No pass or fail.
"""

import argparse
import json
import lzma
import pathlib
import resource
import subprocess
import tempfile
import time

CONTEST = {"A": 60, "B": 60, "C": 60, "G": 120, "K": 180, "L": 180, "S": 240, "V": 300}
INFINITE = 10**18


def check(problem, choices):
    """Returns the cost of a choice, and whether it fits."""
    nodes, edges = problem["nodes"], problem["edges"]
    costs = [c[i] for c, i in zip(nodes["costs"], choices)]
    costs += [c[choices[a] * len(nodes["costs"][b]) + choices[b]]
              for (a, b), c in zip(edges["nodes"], edges["costs"])]
    changes = {}
    for (lo, hi), usages, i in zip(nodes["intervals"], nodes["usages"], choices):
        if lo < hi:
            changes[lo] = changes.get(lo, 0) + usages[i]
            changes[hi] = changes.get(hi, 0) - usages[i]
    used = peak = 0
    for moment in sorted(changes):
        used += changes[moment]
        peak = max(peak, used)
    return sum(costs), max(costs) < INFINITE and peak <= problem.get("usage_limit", peak)


def run(plan, path, seconds):
    begin = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([plan, "solve", path, "--seconds", str(seconds), "--json"], capture_output=True, text=True)
    took = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The largest of all children so far: exact if this child is the largest, otherwise an upper bound.
    peak = max(before.ru_maxrss, after.ru_maxrss) // 1024
    answer = json.loads(out.stdout) if out.returncode == 0 else out.stderr.strip()
    return answer, took, after.ru_utime - before.ru_utime, peak


parser = argparse.ArgumentParser()
parser.add_argument("dir", type=pathlib.Path)
parser.add_argument("names", nargs="*")
parser.add_argument("--plan", default="build/bin/nnaot-plan")
parser.add_argument("--seconds", type=float)
args = parser.parse_args()
print(f"{'':10} {'cost':>16} {'bound':>16} {'gap':>9} {'status':>10} {'ended':>6} {'s':>6} {'user':>6} {'MB':>5}")
for path in sorted(args.dir.glob("*.json*")):
    name = path.name.split(".")[0]
    if args.names and name not in args.names:
        continue
    text = lzma.open(path, "rt").read() if path.suffix == ".xz" else path.read_text()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        answer, took, user, peak = run(args.plan, file.name, args.seconds or CONTEST.get(name, 60))
    if isinstance(answer, str):
        print(f"{name:10} {answer}")
        continue
    cost, fits = check(json.loads(text)["problem"], answer["choices"])
    wrong = "" if fits and cost == answer["cost"] else "  WRONG"
    print(f"{name:10} {answer['cost']:16} {answer['bound']:16} {answer['gap']:9.2e} {answer['status']:>10} "
          f"{answer['ended']:>6} {took:6.1f} {user:6.1f} {peak:5}{wrong}", flush=True)
