#!/usr/bin/env python3
"""Planning time of large models:  tests/bench/plans.py NNAOT [--only NAME …] [--times 3] [--limit 600]

Each row is a model of large_models.py, which has no weights, compiled with --emit plan for devices of a cluster: with the
plan of a search (`search`), with a named plan, with stages of any size (`pp_uneven`), or with the best of
all candidates (`auto`).
Medians of several runs, in seconds:

    user        processor time of the whole run
    front …     time of passes: `front` are all before shard, `choose` is --plan auto with all its plans
    fold        the pass that finds repeated subgraphs, and `blocks` the number of different ones
    peak        memory, in MB
    plans       the number of candidates
    solver      the solver's status for the chosen plan, and the gap
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

from large_models import write


# Name: model, devices, cluster, plan, rows of a batch, more options.
CASES = {
    "t5-16": ("t5-large", 16, "a100:2x8", "search=16", 32, []),
    "t5-32": ("t5-large", 32, "a100:4x8", "search=32", 64, []),
    "t5-32-2d": ("t5-large", 32, "a100:4x8", "search", 64, []),
    "llama-64": ("llama3-8b", 64, "h100:8x8", "search", 64, []),
    "gpt3-1024-named": ("gpt3-175b", 1024, "a100:128x8", "zero3=128,sp=8", 128, ["--dtype", "bf16", "--target", "cuda"]),
    "gpt3-1024": ("gpt3-175b", 1024, "a100:128x8", "search", 128, ["--dtype", "bf16", "--target", "cuda"]),
    "gpt3-16384": ("gpt3-175b", 16384, "a100:2048x8", "search", 2048, ["--dtype", "bf16", "--target", "cuda"]),
    "gpt-8": ("gpt-8", 16, "a100:2x8", "search=16", 16, []),
    "gpt-64": ("gpt-64", 16, "a100:2x8", "search=16", 16, []),
    "gpt-1024": ("gpt-1024", 16, "a100:2x8", "search=16", 16, []),
    "resnet-100k": ("resnet50-100k", 16, "a100:2x8", "search=16", 512, []),
    "resnet-1m": ("resnet50-1m", 16, "a100:2x8", "search=16", 512, []),
    "t5-16-stages": ("t5-large", 16, "a100:2x8", "pp_uneven", 32, ["--dtype", "bf16", "--target", "cuda"]),
    "t5-64-stages": ("t5-large", 64, "a100:8x8", "pp_uneven", 64, ["--dtype", "bf16", "--target", "cuda"]),
    "t5-16-auto": ("t5-large", 16, "a100:2x8", "auto", 32, []),
    "llama-64-auto": ("llama3-8b", 64, "h100:8x8", "auto", 64, []),
    "gpt3-1024-auto": ("gpt3-175b", 1024, "a100:128x8", "auto", 128, ["--dtype", "bf16", "--target", "cuda"]),
}
PASSES = ["choose", "shard", "comm", "fuse", "plan_memory", "prove"]
FRONT = ["simplify", "raise", "loss", "transform", "eval_graph", "autodiff", "optimizer", "lower_batch_norm",
         "channels_last", "mixed_precision"]


def run(command, limit):
    """Returns processor seconds, peak MB, status and messages.  Measured in a grandchild, whose usage is counted alone."""
    code = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]); "
            "u = resource.getrusage(resource.RUSAGE_CHILDREN); "
            "print('used', u.ru_utime, u.ru_maxrss / 1024); sys.exit(done.returncode)")
    try:
        done = subprocess.run(["python3", "-c", code, *map(str, command)], capture_output=True, text=True,
                              timeout=limit)
    except subprocess.TimeoutExpired:
        return limit, 0, 124, "took too long"
    user, peak = re.search(r"^used (\S+) (\S+)$", done.stdout, re.M).groups()
    return float(user), float(peak), done.returncode, done.stderr


def plan(nnaot, folder, model, loss, case, limit):
    _, ranks, cluster, name, batch, more = case
    out = folder / "plan.json"
    out.unlink(missing_ok=True)
    used = run([nnaot, model, "-g", ranks, "--cluster", cluster, "--plan", name, "--batch", batch, "--loss", loss,
                "--optimizer", "adamw", "--emit", "plan", "-o", out, *more], limit)
    return *used, json.loads(out.read_text()) if used[2] == 0 else None


def fold_seconds(nnaot, model, batch):
    done = subprocess.run([nnaot, model, "--batch", str(batch), "--passes", "simplify,raise,simplify,outline_repeats", "--emit",
                           "plan", "--time-passes", "-o", "/dev/null"], capture_output=True, text=True)
    found = re.findall(r"^ +([\d.]+) +[\d.]+% +fold$", done.stderr, re.M)
    return float(found[0]) if found else float("nan")


def row(nnaot, folder, name, times, limit):
    case = CASES[name]
    model, loss = write(folder, case[0])
    runs = [plan(nnaot, folder, model, loss, case, limit) for _ in range(times)]
    line = f"{name:16}{statistics.median(r[0] for r in runs):8.2f}"
    if any(r[4] is None for r in runs):
        return f"{line}  {runs[0][3].splitlines()[0]}"
    plans = [r[4] for r in runs]

    def seconds(*passes):
        return statistics.median(sum(p["seconds"].get(n, 0) for n in passes) for p in plans)

    line += f"{seconds(*FRONT):8.2f}" + "".join(f"{seconds(n):8.2f}" for n in PASSES)
    s = plans[0]
    fold = statistics.median(fold_seconds(nnaot, model, case[4]) for _ in range(times))
    solver = s["solver"]
    gap = "" if solver["gap"] is None else f" {solver['gap']:.1g}"
    return (f"{line}{fold:8.3f}{s['fold']['unique_blocks']:7}{statistics.median(r[1] for r in runs):8.0f}"
            f"{len(s.get('candidates', [])):7}{s['predicted_step_ms']:11.1f}  {solver['status']}{gap}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nnaot")
    parser.add_argument("--only", nargs="*", choices=CASES)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--limit", type=int, default=600, help="seconds of one run")
    o = parser.parse_args()
    heads = ["user", "front", *PASSES, "fold", "blocks", "peak", "plans", "step ms"]
    widths = [8] * (2 + len(PASSES)) + [8, 7, 8, 7, 11]
    print(f"{'':16}" + "".join(f"{h[:w - 1]:>{w}}" for h, w in zip(heads, widths)) + "  solver")
    with tempfile.TemporaryDirectory() as folder:
        for name in o.only or CASES:
            print(row(o.nnaot, pathlib.Path(folder), name, o.times, o.limit), flush=True)


if __name__ == "__main__":
    main()
