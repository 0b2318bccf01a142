"""Predicted beside published seconds of a step:  tests/bench/megatron.py NNAOT [--models 22b 175b …]

Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 6: four models on A100s of
80 GB in f16, micro-batches of one row of 2,048 words out of 51,200, each under two plans:

    full          tensor parallelism in a node, and every layer computed anew for its gradients
    selective     the same, and norms and dropouts cut along the sequence; of layers only the inside of attentions is
                  computed anew

Printed are seconds as published and as predicted, predicted as a part of published, and of both what the first plan takes
as a multiple of the second's: what it is for.  Models are those of large_models.py, without weights.  What the paper has and
these plans have not: three chunks of the model on a rank, of which nnaot places two.

The cluster says what vendors state (passes/cluster/clusters.def), and no product of matrices runs at that: what is predicted
for computing is a bound, and `of peak` is how much of 312 TFLOP/s the published times come to, of the model's own
operations.  It has twice the memory; GB is what a rank would need.

`idle` shows what stages wait: the pipeline's filling and draining, and where borders of stages are inside of layers that
are computed anew: what one of them computes again, the next one waits for, in every micro-batch.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

from large_models import gpt

TOKENS, WORDS, PEAK = 2048, 51200, 312e12
# a100 of clusters.def, with twice the memory: what nnaot needs of it is printed, whether or not that is there.
CLUSTER = """return {{
  nodes = {nodes}, per_node = 8, inside = {{ alpha = 0.6e-6, beta = 1 / 300e9 }},
  across = {{ alpha = 2.7e-6, beta = 1 / 25e9 }}, nics = 8, start = 6.6e-6,
  memory = 160e9, memory_speed = 2039e9, f32 = 19.5e12, half = 312e12, launch = 2e-6,
}}
"""
# Name: layers, width, heads, stages, rows, interleaved, seconds of full and of selective; tensor parallelism is of 8.
MODELS = {
    "22b": (48, 6144, 64, 1, 4, False, 1.42, 1.10),
    "175b": (96, 12288, 96, 8, 64, True, 18.13, 13.75),
    "530b": (105, 20480, 128, 35, 280, True, 49.05, 37.83),
    "1t": (128, 25600, 160, 64, 512, False, 94.42, 71.49),
}
HERE = pathlib.Path(__file__).resolve().parent
PLANS = {"full": ("vp=8", "recompute=1"), "selective": (f"{HERE / 'megatron.lua'}=8", "recompute_attention=1")}


def plan_of(kind, stages, interleaved):
    inner, recompute = PLANS[kind]
    pipeline = [f"{'pp_interleaved' if interleaved else 'pp'}={stages}"] if stages > 1 else []
    return ",".join([*pipeline, inner, recompute])


def operations(layers, width, rows):
    """Of a step, forward and back, without what is computed anew (the paper's equation 8)."""
    return 72 * rows * TOKENS * layers * width**2 * (1 + TOKENS / (6 * width) + WORDS / (12 * width * layers))


def cluster_of(folder, nodes):
    path = folder / "a100.lua"
    path.write_text(CLUSTER.format(nodes=nodes))
    return path


def predicted(o, folder, model, plan, ranks, rows):
    out = folder / "plan.json"
    began = time.monotonic()
    done = subprocess.run([o.nnaot, model, "-g", str(ranks), "--cluster", cluster_of(folder, ranks // 8), "--plan", plan,
                           "--batch", str(rows), "--micro-batches", str(rows), "--loss", "next_token(logits,input_ids)",
                           "--optimizer", "adamw", "--dtype", "f16", "--target", "cuda:sm_80", "--emit", "plan", "-o", out],
                          capture_output=True, text=True)
    if done.returncode:
        print(f"{'':8}{plan}: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else done.returncode}", flush=True)
        return None
    said = json.loads(out.read_text())
    said["took"] = time.monotonic() - began
    return said


def one_model(o, folder, name):
    layers, width, heads, stages, rows, interleaved, *published = MODELS[name]
    model, ranks, seconds = gpt(f"gpt-{name}", folder, layers, width, heads, TOKENS, WORDS), 8 * stages, []
    for kind, took in zip(PLANS, published):
        plan = plan_of(kind, stages, interleaved)
        said = predicted(o, folder, model, plan, ranks, rows)
        if not said:
            return
        seconds.append(said["predicted_step_ms"] / 1e3)
        mean = {k: sum(r[k] for r in said["per_rank"]) / ranks / 1e3 for k in ("compute_ms", "comm_ms", "idle_ms")}
        peak = max(r["peak_bytes"] for r in said["per_rank"]) / 1e9
        of_peak = operations(layers, width, rows) / (ranks * PEAK * took)
        print(f"{name:8}{plan.replace(f'{HERE}/', ''):46}{took:10.2f}{seconds[-1]:10.2f}{seconds[-1] / took:8.2f}{of_peak:9.0%}"
              f"{mean['compute_ms']:9.2f}{mean['comm_ms']:8.2f}{mean['idle_ms']:8.2f}{peak:8.1f}{said['took']:7.0f}", flush=True)
    print(f"{'':8}{'full / selective':46}{published[0] / published[1]:10.2f}{seconds[0] / seconds[1]:10.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nnaot")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    o = parser.parse_args()
    print(f"{'':54}{'published':>10}{'predicted':>10}{'part':>8}{'of peak':>9}{'compute':>9}{'comm':>8}{'idle':>8}{'GB':>8}{'took':>7}")
    for name in o.models:
        with tempfile.TemporaryDirectory() as folder:
            one_model(o, pathlib.Path(folder), name)


if __name__ == "__main__":
    main()
