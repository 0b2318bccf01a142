"""Predicted against measured step times:  tests/bench/predict.py NNAOT [--cluster NAME|FILE.lua] [--steps 60]

Compiles the gpt2 sample under several plans, asks --summary how long a step is to take, and trains on random tokens to
see how long it does, the plans in turn.  A row is the median of its steps but the first few.  The last line is
Spearman's rank correlation of the two columns: whether the prediction knows which plan is the faster one.  Ranks are
threads of one process, so there should be a core for each of them.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH, WORDS, WARM = 8, 256, 10
# Ranks, plan, micro-batches.
PLANS = [(1, "dp", 1), (1, "dp", 4), (2, "dp=2", 1), (2, "dp=2", 4), (2, "tp=2", 1), (2, "tp=2", 4), (2, "zero1=2", 1),
         (2, "zero3=2", 1), (2, "zero3=2", 4), (2, "pp=2", 1), (2, "pp=2", 4), (2, "sp=2", 1)]


def compiled(nnaot, folder, ranks, plan, micro, cluster):
    name = f"{plan}.{micro}.{ranks}"
    run = subprocess.run([nnaot, ROOT / "samples/gpt2/gpt2.onnx", "-g", str(ranks), "--batch", str(BATCH), "--plan", plan,
                          "--micro-batches", str(micro), "--loss", "next_token(logits,input_ids)", "--optimizer", "adamw",
                          *cluster, "--summary", folder / f"{name}.json", "-o", folder / name],
                         capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    return folder / name, json.loads((folder / f"{name}.json").read_text())


def measured(exe, tokens, steps):
    log = exe.with_suffix(".jsonl")
    log.unlink(missing_ok=True)
    subprocess.run([exe, "--tokens", f"input_ids={tokens}", "--steps", str(steps), "--log", log], check=True,
                   stdout=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
    return [json.loads(line)["step_ms"] for line in log.read_text().splitlines()][WARM:]


def ranks_of(x):
    """From 0; equals share the mean of theirs."""
    return [sum(y < v for y in x) + (sum(y == v for y in x) - 1) / 2 for v in x]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nnaot")
    parser.add_argument("--cluster")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--times", type=int, default=3)
    o = parser.parse_args()
    cluster = ["--cluster", o.cluster] if o.cluster else []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokens = folder / "tokens.npy"
        np.save(tokens, np.random.default_rng(3).integers(0, WORDS, 1 << 18, dtype=np.int64))
        plans = [compiled(o.nnaot, folder, *plan, cluster) for plan in PLANS]
        ms = [[] for _ in plans]
        for _ in range(o.times):
            for i, (exe, _) in enumerate(plans):
                ms[i] += measured(exe, tokens, o.steps)
    print(f"{'plan':12}{'micro-batches':>14}{'predicted ms':>14}{'measured ms':>13}{'ratio':>8}"
          f"{'compute':>10}{'comm':>8}{'idle':>8}")
    predicted, real = [s["predicted_step_ms"] for _, s in plans], [statistics.median(x) for x in ms]
    for (ranks, plan, micro), (_, s), p, r in zip(PLANS, plans, predicted, real):
        rank = s["per_rank"][0]
        print(f"{plan:12}{micro:14}{p:14.3f}{r:13.3f}{r / p:8.2f}{rank['compute_ms']:10.3f}{rank['comm_ms']:8.3f}"
              f"{rank['idle_ms']:8.3f}")
    print(f"rank correlation {np.corrcoef(ranks_of(predicted), ranks_of(real))[0, 1]:.2f}")


main()
