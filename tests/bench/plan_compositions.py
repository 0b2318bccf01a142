#!/usr/bin/env python3
"""Compiles random compositions of named plans, to find plans that nnaot's own checks refuse:

    plan_compositions.py --results FILE.jsonl [--seed N] [--count 300]

A composition is one to three named plans, whose sizes multiply to the number of ranks, such as `pp_zb_h1=2,zero2=2`, on a
model of tests/e2e/models, with an optimizer, a type, micro-batches and a target; all are random, and the k-th of a seed
is always the same.  nnaot compiles it, and so verifies and proves it; no C compiler runs.  An outcome is one of

    compiled    every pass was verified, and the plan was proved
    refused     an error that names a cause: such a composition does not exist
    bug         nnaot reports a bug of its own, crashes, or takes longer than LIMIT seconds

The results file has a line for each composition, so that a campaign resumes at its end.  The exit status is 1 if there
are bugs; each is printed with its command.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

import plan_cases

NNAOT = os.path.join(os.environ.get("BUILD", ROOT / "build"), "bin", "nnaot")
LIMIT = 300  # seconds of one compilation: searches over three axes take a minute
OURS = re.compile(r"bug of nnaot|mistake of nnaot|Sanitizer|runtime error|BUG|[Aa]ssert(ion)? .*failed")
# The plans that a composition may begin with, those of any position, and those that split the batch, too.
PIPELINES = ["pp", "pp_gpipe", "pp_zb_h1", "pp_zb_h2", "pp_zb_v", "pp_interleaved", "pp_interlaced", "pp_chimera", "pp_dualpipe",
             "pp_terapipe", "pp_search", "pp_uneven", "pp_3f1b", "pp_pipedream"]
SHARDINGS = ["dp", "dp", "tp", "tp", "sp", "vp", "ep", "dap", "zero1", "zero2", "zero3", "tp2d", "tp3d", "words", "search",
             "search_qkv", "search_added", "search3"]
WITH_DATA = ["recompute", "recompute_attention", "recompute_pieces", "coshard", "offload", "swap", "cross_barrier",
             "optimizer_in_backward"]
OPTIMIZERS = ["sgd", "sgd:momentum=0.9", "sgd:momentum=0.9,nesterov=true,weight_decay=0.1", "adam", "adamw:weight_decay=0.1",
              "adagrad", "lamb:weight_decay=0.01"]


def composition(r):
    """Returns a value of --plan and the number of ranks."""
    sizes = r.choice([[2], [4], [8], [2, 2], [2, 2], [2, 4], [4, 2], [2, 2, 2]])
    names = []
    for i in range(len(sizes)):
        rows = PIPELINES + SHARDINGS * 2 if i == 0 else SHARDINGS
        names.append(r.choice([name for name in rows if name not in names]))
    if r.random() < 0.3:
        names[r.randrange(len(names))] = r.choice(WITH_DATA)
    if r.random() < 0.2:  # on one rank of its axis: the memory and the order of the plan, without its sharding
        names, sizes = [*names, r.choice([name for name in WITH_DATA if name not in names])], [*sizes, 1]
    return ",".join(f"{name}={size}" for name, size in zip(names, sizes)), math.prod(sizes)


def command(seed, k):
    """Returns the k-th command of a seed, without its output."""
    r = random.Random(f"{seed}/{k}")
    plan, ranks = composition(r)
    model = r.choice(list(plan_cases.MODELS))
    target = r.choice(["cpu", "cpu", "cuda"])
    words = [str(plan_cases.HERE.relative_to(ROOT) / f"{model}.onnx"), "-g", ranks, "--batch", r.choice([8, 16]), "--loss",
             plan_cases.MODELS[model]["loss"], *plan_cases.MODELS[model].get("flags", []), "--plan", plan, "--optimizer",
             r.choice(OPTIMIZERS), "--dtype", r.choice(["f32", "f32", "bf16", "f16"])]
    slices = r.choice([1, 1, 2, 2, 4])
    words += ["--micro-batches", slices] if slices > 1 else []
    words += ["--accumulate", 2] if r.random() < 0.2 else []
    words += ["--clip-norm", 0.5] if r.random() < 0.4 else []
    words += ["--target", target, "--emit", r.choice(["c", "plan"]) if target == "cuda" else "c"]
    return [str(word) for word in words]


def run(words):
    """Returns the outcome and nnaot's first error."""
    with tempfile.TemporaryDirectory(prefix="nnaot-compositions-") as folder:
        try:
            done = subprocess.run([NNAOT, *words, "-o", f"{folder}/out"], cwd=ROOT, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, errors="replace", timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return "bug", f"longer than {LIMIT} s"
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    ours = OURS.search(done.stderr)
    if done.returncode not in (0, 1, 2) or ours or (done.returncode and not errors):
        return "bug", f"exit status {done.returncode}: " + " | ".join(errors)[:2000]
    return ("refused", errors[0]) if done.returncode else ("compiled", "")


def summary(found):
    counts = collections.Counter(row["outcome"] for row in found)
    print(f"{len(found)} compositions: {counts['compiled']} compiled and proved, {counts['refused']} refused, "
          f"{counts['bug']} bugs of nnaot")
    for key, of in [("target", "--target"), ("type", "--dtype")]:
        rows = collections.Counter((row["words"][row["words"].index(of) + 1], row["outcome"]) for row in found)
        print(f"  by {key}: " + ", ".join(f"{name} {outcome} {n}" for (name, outcome), n in sorted(rows.items())))
    for row in found:
        if row["outcome"] == "bug":
            print(f"bug {row['k']}: nnaot {shlex.join(row['words'])}\n  {row['error']}")
    return counts["bug"] > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    found = [row for row in map(json.loads, lines) if row["seed"] == options.seed]
    known = {row["k"] for row in found}
    with options.results.open("a") as out:
        for k in range(options.count):
            if k in known:
                continue
            words = command(options.seed, k)
            outcome, error = run(words)
            found.append(dict(seed=options.seed, k=k, outcome=outcome, error=error, words=words))
            print(json.dumps(found[-1]), file=out, flush=True)
    return summary(found)


if __name__ == "__main__":
    sys.exit(main())
