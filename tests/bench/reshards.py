#!/usr/bin/env python3
"""Predicted steps of GPT-3 1.3B by means of communication (SuperScaler, section 6.5, figure 16):  tests/bench/reshards.py

The same plan with values that change their layout by send/recv of parts alone (--reshard p2p), by collectives within a
mesh (intra), and by the cheapest paths within and between meshes (rvd).  Left of the figure: more and more stages of 4
ranks; right: more and more ranks per layer.  Nodes are DGX-1 with 8 V100; published are speedups over send/recv of up to 32
within a mesh, and of up to 1.6 more between meshes.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import paper_models

ROOT = pathlib.Path(__file__).resolve().parents[2]
NNAOT = pathlib.Path(os.environ.get("BUILD", ROOT / "build")) / "bin" / "nnaot"
MEANS = ["p2p", "intra", "rvd"]
BATCH, MICRO_BATCHES = 64, 16
PLANS = [(4 * stages, f"pp={stages},tp=4") for stages in (2, 4, 8)] + [(ranks, f"tp={ranks}") for ranks in (4, 8, 16, 32)]


def step(folder, model, loss, ranks, plan, means):
    """Returns the predicted milliseconds."""
    summary = pathlib.Path(folder, "summary.json")
    cluster = f"v100-dgx1:{max(1, ranks // 8)}x{min(ranks, 8)}"
    command = [NNAOT, model, "-g", ranks, "--plan", plan, "--loss", loss, "--dtype", "f16", "--target", "cuda:sm_80",
               "--cluster", cluster, "--micro-batches", MICRO_BATCHES, "--reshard", means, "--emit", "plan",
               "-o", pathlib.Path(folder, "plan.json"), "--summary", summary]
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(summary.read_text())["predicted_step_ms"]


def main():
    text, loss = paper_models.gpt(24, 2048, 32, BATCH)
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, "gpt.nn")
        model.write_text(text)
        print(f"{'plan':12}" + "".join(f"{means + ', ms':>12}" for means in MEANS) + f"{'p2p/intra':>11}{'intra/rvd':>11}")
        for ranks, plan in PLANS:
            p2p, intra, rvd = (step(folder, model, loss, ranks, plan, means) for means in MEANS)
            print(f"{plan:12}{p2p:12.0f}{intra:12.0f}{rvd:12.0f}{p2p / intra:11.1f}{intra / rvd:11.2f}", flush=True)


main()
