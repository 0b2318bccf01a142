#!/usr/bin/env python3
"""Predicted step times compared with measured ones:  tests/bench/predict.py NNAOT [--cluster NAME|FILE.lua] [--steps 40] [--times 7]

Calibrates the machine for two ranks, unless --cluster describes it; compiles the gpt2 sample under several plans,
reads the predicted step time from --summary, and measures it on random tokens.  Plans run in turn, many times:
other load on the machine affects all of them, and each has some turn with little of it.

    step    milliseconds: predicted, and the least of all turns' medians of the steps except the first few
    work    the same for the work of all ranks, computing and communicating: predicted, and processor time.  Ranks are
            threads of one process; without a core for each, or with other load, this is the number to compare

Below is Spearman's rank correlation of each pair: whether the prediction orders the plans by speed.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS, WARM = 256, 10
# Ranks, plan, micro-batches.
PLANS = [(1, "dp", 1), (1, "dp", 4), (2, "dp=2", 1), (2, "dp=2", 4), (2, "tp=2", 1), (2, "tp=2", 4), (2, "zero1=2", 1),
         (2, "zero3=2", 1), (2, "zero3=2", 4), (2, "pp=2", 1), (2, "pp=2", 4), (2, "sp=2", 1)]


def compiled(nnaot, folder, batch, ranks, plan, micro, cluster):
    name = f"{plan}.{micro}.{ranks}"
    done = subprocess.run([nnaot, ROOT / "samples/gpt2/gpt2.onnx", "-g", str(ranks), "--batch", str(batch), "--plan",
                           plan, "--micro-batches", str(micro), "--loss", "next_token(logits,input_ids)", "--optimizer",
                           "adamw", *cluster, "--summary", folder / f"{name}.json", "-o", folder / name],
                          capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return folder / name, json.loads((folder / f"{name}.json").read_text())


def calibrated(nnaot, folder):
    out = folder / "cluster.lua"
    subprocess.run([pathlib.Path(nnaot).with_name("nnaot-plan"), "calibrate", "--ranks", "2", "-o", out], check=True,
                   stdout=subprocess.DEVNULL)
    return out


def processor_ms():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (used.ru_utime + used.ru_stime)


def run(exe, tokens, steps):
    """Returns milliseconds of each step, and processor time of the run."""
    log, before = exe.with_suffix(".jsonl"), processor_ms()
    log.unlink(missing_ok=True)
    subprocess.run([exe, "--tokens", f"input_ids={tokens}", "--steps", str(steps), "--log", log], check=True,
                   stdout=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
    return [json.loads(line)["step_ms"] for line in log.read_text().splitlines()], processor_ms() - before


def measured(exe, tokens, steps):
    """Returns milliseconds and processor time of a step, without warm-up steps and the start of the program."""
    ms, work = run(exe, tokens, WARM + steps)
    return ms[WARM:], (work - run(exe, tokens, WARM)[1]) / steps


def ranks_of(x):
    """Returns ranks from 0; ties share the mean of theirs."""
    return [sum(y < v for y in x) + (sum(y == v for y in x) - 1) / 2 for v in x]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nnaot")
    parser.add_argument("--cluster")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--times", type=int, default=7)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokens = folder / "tokens.npy"
        np.save(tokens, np.random.default_rng(3).integers(0, WORDS, 1 << 18, dtype=np.int64))
        cluster = ["--cluster", o.cluster or calibrated(o.nnaot, folder)]
        plans = [compiled(o.nnaot, folder, o.batch, *plan, cluster) for plan in PLANS]
        runs = [[measured(exe, tokens, o.steps) for exe, _ in plans] for _ in range(o.times)]
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'ranks':>5} {'plan':8}{'micro-batches':>14}{'compute':>9}{'comm':>8}{'idle':>8}"
          f"{'step':>9}{'measured':>9}{'ratio':>7}{'work':>9}{'measured':>9}{'ratio':>7}")
    pairs = []
    for i, ((ranks, plan, micro), (_, s)) in enumerate(zip(PLANS, plans)):
        first, step = s["per_rank"][0], min(statistics.median(r[i][0]) for r in runs)
        all_work = sum(rank["compute_ms"] + rank["comm_ms"] for rank in s["per_rank"])
        work = min(r[i][1] for r in runs)
        predicted = s["predicted_step_ms"]
        pairs.append((predicted, step, all_work, work))
        print(f"{ranks:5} {plan:8}{micro:14}{first['compute_ms']:9.3f}{first['comm_ms']:8.3f}{first['idle_ms']:8.3f}"
              f"{predicted:9.3f}{step:9.3f}{step / predicted:7.2f}{all_work:9.3f}{work:9.3f}{work / all_work:7.2f}")
    p, step, all_work, work = (ranks_of(x) for x in zip(*pairs))
    print(f"{'rank correlation':70}{np.corrcoef(p, step)[0, 1]:7.2f}{np.corrcoef(all_work, work)[0, 1]:25.2f}")


main()
