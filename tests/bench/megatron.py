#!/usr/bin/env python3
"""Predicted seconds of a step compared with published ones:  tests/bench/megatron.py NNAOT [--models 22b 175b …]

Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 6: four models on A100s of
80 GB in f16, rows of 2,048 words out of 51,200, each under two plans:

    full          tensor parallelism in a node, and full recomputation of every layer
    selective     the same, and norms and dropouts split along the sequence; of layers only the inside of attentions is
                  recomputed

Printed are published and predicted seconds, their ratio (predicted by published), and for both the speed-up of the second
plan over the first, the paper's subject.  Models are those of large_models.py, without weights.  The mapping is the
paper's (its table 3): 8 ranks of tensor parallelism, and stages, three chunks of the model on each rank for 175b and 530b;
a micro-batch of 22b is four rows, else one.  Only the boundaries of stages are nnaot's.

There are two descriptions of the cluster.  `stated` has the vendors' numbers (passes/cluster/clusters.def), which no program
reaches: a bound.  `reached` has published achievable rates of an A100, and is otherwise the same:

    products    267.9 TFLOP/s of 312 (Bekman, "Machine Learning Engineering", the table of maximum achievable matmul FLOPS)
    NVLink      240 GB/s of 300: 20 of each link's 25, NCCL's own assumption (src/graph/topo.h, SM80_NVLINK_BW)

Unlike the paper's system, nnaot overlaps recomputation with all_reduces (the pass overlap),
so that `full` is faster here; 8.3 % was the mean error as reached without it.

`of peak` is the published times' share of 312 TFLOP/s, for the model's own operations.  Compute, comm and idle are
of `reached`, a rank's mean.  Devices have eight times the memory; GB is the need of a rank.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

from large_models import gpt

TOKENS, WORDS, PEAK = 2048, 51200, 312e12
# a100 of clusters.def, with more memory: the test prints nnaot's need, even if it exceeds a real device.
CLUSTER = """return {{
  nodes = {nodes}, per_node = 8, inside = {{ alpha = 0.6e-6, beta = 1 / {nvlink} }},
  across = {{ alpha = 2.7e-6, beta = 1 / 25e9 }}, nics = 8, start = 6.6e-6,
  memory = 640e9, memory_speed = 2039e9, f32 = 19.5e12, half = {half}, launch = 2e-6,
}}
"""
RATES = {"stated": {"nvlink": 300e9, "half": PEAK}, "reached": {"nvlink": 240e9, "half": 267.9e12}}
# Name: layers, width, heads, stages, rows, rows of a micro-batch, chunks of a rank, seconds of full and of selective.
MODELS = {
    "22b": (48, 6144, 64, 1, 4, 4, 1, 1.42, 1.10),
    "175b": (96, 12288, 96, 8, 64, 1, 3, 18.13, 13.75),
    "530b": (105, 20480, 128, 35, 280, 1, 3, 49.05, 37.83),
    "1t": (128, 25600, 160, 64, 512, 1, 1, 94.42, 71.49),
}
HERE = pathlib.Path(__file__).resolve().parent
PLANS = {"full": ("vp=8", "recompute=1"), "selective": (f"{HERE / 'megatron.lua'}=8", "recompute_attention=1")}


def plan_of(kind, stages, chunks):
    inner, recompute = PLANS[kind]
    pipeline = "pp" if chunks == 1 else HERE / "interleaved.lua"
    return ",".join([*([f"{pipeline}={stages}"] if stages > 1 else []), inner, recompute])


def operations(layers, width, rows):
    """Returns the operations of a step, forward and backward, without recomputation (the paper's equation 8)."""
    return 72 * rows * TOKENS * layers * width**2 * (1 + TOKENS / (6 * width) + WORDS / (12 * width * layers))


def cluster_of(folder, nodes, rates):
    path = folder / "a100.lua"
    path.write_text(CLUSTER.format(nodes=nodes, **RATES[rates]))
    return path


def predicted(o, folder, model, plan, ranks, rows, micro_batches, rates):
    out = folder / "plan.json"
    began = time.monotonic()
    done = subprocess.run([o.nnaot, model, "-g", str(ranks), "--cluster", cluster_of(folder, ranks // 8, rates), "--plan", plan,
                           "--batch", str(rows), "--micro-batches", str(micro_batches), "--loss",
                           "next_token(logits,input_ids)", "--optimizer", "adamw", "--dtype", "f16", "--target", "cuda:sm_80",
                           "--emit", "plan", "-o", out], capture_output=True, text=True)
    if done.returncode:
        print(f"{'':8}{plan}: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else done.returncode}", flush=True)
        return None
    said = json.loads(out.read_text())
    said["took"] = time.monotonic() - began
    return said


def one_model(o, folder, name, errors):
    layers, width, heads, stages, rows, of_one, chunks, *published = MODELS[name]
    model, ranks = gpt(f"gpt-{name}", folder, layers, width, heads, TOKENS, WORDS), 8 * stages
    seconds = {rates: [] for rates in RATES}
    for kind, took in zip(PLANS, published):
        plan = plan_of(kind, stages, chunks)
        for rates in RATES:
            said = predicted(o, folder, model, plan, ranks, rows, rows // of_one, rates)
            if not said:
                return
            seconds[rates].append(said["predicted_step_ms"] / 1e3)
            errors[rates].append(abs(seconds[rates][-1] / took - 1))
        mean = {k: sum(r[k] for r in said["per_rank"]) / ranks / 1e3 for k in ("compute_ms", "comm_ms", "idle_ms")}
        peak = max(r["peak_bytes"] for r in said["per_rank"]) / 1e9
        of_peak = operations(layers, width, rows) / (ranks * PEAK * took)
        both = "".join(f"{s[-1]:10.2f}{s[-1] / took:6.2f}" for s in seconds.values())
        print(f"{name:6}{plan.replace(f'{HERE}/', ''):57}{took:10.2f}{both}{of_peak:9.0%}"
              f"{mean['compute_ms']:9.2f}{mean['comm_ms']:8.2f}{mean['idle_ms']:8.2f}{peak:8.1f}{said['took']:7.0f}", flush=True)
    times = "".join(f"{s[0] / s[1]:10.2f}{'':6}" for s in seconds.values())
    print(f"{'':6}{'full / selective':57}{published[0] / published[1]:10.2f}{times}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nnaot")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    o = parser.parse_args()
    heads = "".join(f"{rates:>10}{'':6}" for rates in RATES)
    print(f"{'':63}{'published':>10}{heads}{'of peak':>9}{'compute':>9}{'comm':>8}{'idle':>8}{'GB':>8}{'took':>7}")
    errors = {rates: [] for rates in RATES}
    for name in o.models:
        with tempfile.TemporaryDirectory() as folder:
            one_model(o, pathlib.Path(folder), name, errors)
    means = "".join(f"{sum(e) / max(len(e), 1):16.1%}" for e in errors.values())
    print(f"{'mean error':73}{means}")


if __name__ == "__main__":
    main()
