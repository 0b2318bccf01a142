#!/usr/bin/env python3
"""Losses in bf16 beside f32, of nnaot and of PyTorch:  loss_curves.py [MODEL ...] --results FILE [--svg FILE]

    --steps N         steps, each with rows of its own (200)
    --threads N       threads of each (2)
    --nnaot FILE      the compiler (build/bin/nnaot)
    --results FILE    a line of JSON for each model; those that it has, with the same settings, are not run again
    --svg FILE        draws the curves of all models in the results

Trains models of bench_models.py on the data of learnable.py with bench.py's processes: nnaot in f32 and with --dtype bf16, eager
PyTorch in f32 and under autocast, from the same weights, on the same rows, with the same AdamW, whose learning rate grows for a
tenth of the steps and then falls to 0 by a cosine.  Prints the mean loss of the last 10 steps, and by how many per cent nnaot's in
bf16 differs from the others.  Exit status 1 if it differs from PyTorch's in f32 or from autocast's by more than 1 %, or is NaN.
Needs what tests/bench/run needs.
"""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "samples"), str(HERE.parent)]
import bench  # noqa: E402
import bench_tables  # noqa: E402

MODELS = ["mlp", "resnet18", "vit", "bert", "gpt2", "llama", "lstm", "dlrm", "mamba"]
LIMIT = 0.01
KINDS = [("nnaot", "f32"), ("torch eager", "f32"), ("nnaot", "bf16"), ("torch eager", "bf16")]


def final(result, kind, dtype):
    """The mean loss of the last steps; NaN if it did not run."""
    row = bench_tables.row_of(result, kind, dtype)
    losses = row["losses"][-bench_tables.LAST:] if row else []
    return sum(losses) / len(losses) if losses else float("nan")


def show(result):
    """Prints the row of a model; returns whether bf16 is near both."""
    f32, torch_f32, bf16, autocast = (final(result, *key) for key in KINDS)
    first = bench_tables.row_of(result, "nnaot", "f32")["losses"][0]
    apart = [bf16 / other - 1 for other in (f32, torch_f32, autocast)]
    print(f"| {result['model']} | {first:.3f} | {f32:.4f} | {torch_f32:.4f} | {bf16:.4f} | {autocast:.4f} |"
          f" {' | '.join(f'{100 * x:+.2f} %' for x in apart)} | {100 * (f32 / torch_f32 - 1):+.2f} % |", flush=True)
    return all(abs(x) <= LIMIT for x in apart[1:])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    p.add_argument("models", nargs="*")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--nnaot", default=ROOT / "build/bin/nnaot")
    p.add_argument("--results", type=pathlib.Path, required=True)
    p.add_argument("--svg", type=pathlib.Path)
    a = p.parse_args()
    a.rounds, a.batches, a.dtypes, a.data = 1, a.steps, ["f32", "bf16"], "learnable"
    a.warmup = a.steps // 10
    a.only, a.flags, a.torch_preload = "nnaot,torch eager", "", ""
    results = bench.read_results(a)
    print("| model | first loss | nnaot f32 | PyTorch f32 | nnaot bf16 | autocast | bf16 to nnaot f32 | to PyTorch f32 |"
          f" to autocast | nnaot f32 to PyTorch's |\n|{'---|' * 10}")
    near = True
    for name in a.models or MODELS:
        if name not in results:
            results[name] = bench.measure(name, a)
            with a.results.open("a") as f:
                f.write(json.dumps(results[name]) + "\n")
        near &= show(results[name])
    if a.svg:
        a.svg.write_text(bench_tables.losses(list(results.values())))
    return not near


if __name__ == "__main__":
    sys.exit(main())
