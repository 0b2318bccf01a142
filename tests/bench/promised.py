#!/usr/bin/env python3
"""The prices of auto's tables beside built plans:  tests/bench/promised.py [MODEL …] [--list] [--verbose] [--check]

For each model, plans of its layers in stages and without: seconds of a step and bytes of the fullest rank by tables (price_points),
and as the passes build the plan whose text the price has. Models have few layers, so a plan takes a second.

    ms, GB    built
    error     of the price, by the built figure: below 0, the plan takes more than its price

A point is PLAN@MICRO-BATCHES, or PLAN@MICRO-BATCHES@GB: with as few layers recomputed as fit into so many GB; with @swap after it,
or with their saved activations in host memory.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from auto_rows import onnx, text

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD", HERE.parents[1] / "build"))
MOST = 0.02  # error


@dataclass
class Case:
    name: str
    make: tuple  # of auto_rows.onnx
    batch: int
    ranks: int
    cluster: str
    points: list


CASES = [
    Case("gpt", onnx("gpt", layers=16, width=12288, heads=96), 64, 64, "h200",
         ["zero1=8,sp=8@4", "zero3=8,sp=8@2", "dp=8,sp=8@4", "pp=4,dp=2,sp=8@16", "pp_zb_h1=4,dp=4,sp=4@16",
          "pp_zb_h2=4,zero1=2,sp=8@16", "pp_zb_h1=8,sp=8@32", "pp_zb_h2=8,zero1=8@8", "pp_interleaved:2=4,zero1=4,sp=4@16",
          "pp_interleaved:4=4,dp=2,sp=8@16", "pp=8,zero1=4,sp=2,recompute=1@16", "pp=4,zero1=4,sp=4,recompute_attention=1@16",
          "pp=4,zero1=2,sp=8,recompute=1@16@60", "pp=4,zero1=2,sp=8@16@21@swap", "pp=4,zero1=2,sp=8,recompute=1@16@18@swap",
          "zero3=8,sp=8@2@24@swap"]),
    Case("llama-8b", onnx("llama", layers=16, width=4096, heads=32, inner=14336, tokens=8192), 128, 64, "h100",
         ["zero1=64@2", "zero3=64,recompute=1@2", "zero1=32,sp=2@4", "zero1=16,cp=4@8", "zero1=32,sp=2,recompute_attention=1@4",
          "pp=2,zero1=32@4", "pp=2,zero1=32,recompute=1@4", "pp=2,zero1=32,recompute=1@4@60", "pp_zb_h1=2,zero1=32,recompute=1@4",
          "pp_zb_h1=2,zero1=32,recompute=1@4@70", "pp_zb_h1=4,zero1=16@8", "pp_zb_h2=4,zero1=16@8", "pp_interleaved=4,zero1=16@8",
          "pp_interleaved=4,zero1=8,cp=2@16", "pp=4,zero2=16@8", "pp_zb_h1=4,zero1=8,sp=2@16",
          "pp=2,zero1=32,recompute=1@4@34@swap", "pp=2,zero1=32@4@38@swap",
          "zero1=64,recompute=1@2@36@swap", "zero1=64@2@45@swap"]),
    Case("llama-70b", onnx("llama", layers=16, width=8192, heads=64, inner=28672, tokens=8192), 64, 64, "h100",
         ["zero3=8,sp=8,recompute=1@2", "pp=4,zero1=4,sp=4,recompute=1@16", "pp=4,zero1=2,sp=8@32", "pp_zb_h1=4,zero1=2,sp=8@32",
          "pp_zb_h2=8,dp=2,sp=4@32", "pp_interleaved=4,zero1=2,sp=8@32", "pp_interleaved:4=4,zero1=2,sp=8@32",
          "pp_zb_h1=4,zero1=2,sp=8,recompute=1@32@60", "pp=4,zero1=4,sp=4,recompute_attention=1@16",
          "pp=4,zero1=2,sp=8,recompute=1@32@23@swap", "zero3=8,sp=8,recompute=1@2@35@swap"]),
    Case("t5", onnx("t5", "next_token(logits,decoder_input_ids)", layers=8), 256, 64, "h200",
         ["dp=64@1", "zero1=64@1", "dp=32,sp=2@1", "dp=16,sp=4@2", "pp=8,dp=8@8", "pp=4,dp=2,sp=8@8", "pp_zb_h1=4,dp=2,sp=8@8",
          "pp_zb_h2=8,sp=8@16", "pp_interleaved=4,dp=2,sp=8@8", "pp=2,zero1=4,sp=8,recompute=1@8",
          "zero1=64,recompute=1@1@60@swap"]),
    Case("mixtral", onnx("mixtral", module="auto_models", layers=8), 64, 64, "h100",
         ["zero3=8,ep:150=8,recompute=1@1", "pp=4,zero1=2,ep:150=8@4", "pp=4,zero1=2,ep:150=8,recompute=1@4",
          "pp_interleaved=4,zero1=2,ep:150=8@4", "pp_zb_h1=4,zero1=2,ep:150=8@4", "pp=4,zero1=2,sp=8@16"]),
    # For tests: without the package onnx, in seconds.
    Case("small-gpt", text("gpt", (12, 1024, 16), 64, tokens=1024), 64, 8, "h200",
         ["pp=4,sp=2@16", "pp_zb_h1=4,zero1=2@8", "pp_zb_h2=4,sp=2@16", "pp_interleaved=4,sp=2@16"]),
    Case("small-llama", text("llama", (12, 512, 8), 64, inner=1024, words=4096, tokens=512), 64, 8, "h200",
         ["pp_zb_h1=4,sp=2@16", "pp_zb_h2=2,zero1=4,recompute=1@8"]),
    # Every stage of the decoder gathers the encoder's result, and makes the bias of positions.
    Case("small-t5", text("t5", (16, 512, 8), 64, words=4096, source=512, target=512), 64, 8, "h200",
         ["pp=4,sp=2@16", "pp_zb_h1=4,sp=2@16", "pp=2,zero1=2,sp=2@8", "pp_zb_h1=2,dp=4@8", "pp=2,sp=4@8"]),
    # All layers read the rotations, which are in memory of each stage; tables know them once.
    Case("rotations", text("llama", (12, 512, 8), 64, inner=1024, words=4096, tokens=512), 64, 8, "h200",
         ["pp=2,sp=4@8", "pp_interleaved:3=4,zero1=2@8"]),
]


class Bench:
    def __init__(self, o, folder):
        self.o, self.folder = o, folder

    def run(self, *command):
        command = list(map(str, command))
        if self.o.verbose:
            print("+", *command, flush=True)
        return subprocess.run(command, capture_output=True, text=True)

    def step(self, case):
        """The options that price_points and nnaot share, on devices with memory for any plan."""
        model, loss, open_batch = case.make[1](self.folder)
        cluster = self.folder / f"{case.cluster}-{case.ranks}.lua"
        cluster.write_text(f'return {{like = "{case.cluster}:{case.ranks // 8}x8", memory = 1e15}}\n')
        return [model, "-g", case.ranks, "--cluster", cluster, "--loss", loss, "--optimizer", "adamw", "--dtype", "bf16",
                "--target", "cuda", *(["--batch", case.batch] if open_batch else [])]

    def built(self, step, plan, micro_batches):
        """Returns ms and bytes of the built plan, or the error."""
        summary = self.folder / "summary.json"
        done = self.run(BUILD / "bin" / "nnaot", *step, "--plan", plan, "--micro-batches", micro_batches, "--emit", "plan",
                        "-o", "/dev/null", "--summary", summary)
        if done.returncode:
            return None, done.stderr.strip().splitlines()[:1]
        s = json.loads(summary.read_text())
        return s["predicted_step_ms"], max(r["peak_bytes"] for r in s["per_rank"])

    def show(self, case):
        """Prints the case; returns the errors of its prices, of ms and of bytes; None: there is no price, or no plan."""
        step = self.step(case)
        points = [p for p in case.points if not self.o.points or any(q in p for q in self.o.points.split(","))]
        done = self.run(BUILD / "bin" / "price_points", *step, *points)
        lines = done.stdout.splitlines()
        if len(lines) != len(points):
            sys.exit(done.stderr)
        print(f"{case.name}: {case.ranks} x {case.cluster}, {case.batch} rows\n"
              f"  {'plan':58}{'m':>4}{'ms':>10}{'error':>9}{'GB':>9}{'error':>9}", flush=True)
        errors = []
        for point, line in zip(points, lines):
            plan, micro_batches = point.split("@")[:2]
            words = line.split()
            if len(words) != 3 or "." not in words[1]:
                print(f"  {point:58} {line}")
                errors.append(None)
                continue
            ms, size = self.built(step, words[0], micro_batches)
            if ms is None:
                print(f"  {words[0]:58}{micro_batches:>4} {size}", flush=True)
                errors.append(None)
                continue
            errors.append((1e3 * float(words[1]) / ms - 1, float(words[2]) / size - 1))
            off = errors[-1]
            print(f"  {words[0]:58}{micro_batches:>4}{ms:10.2f}{off[0]:+9.2%}{size / 1e9:9.2f}{off[1]:+9.2%}", flush=True)
        return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models, or how their names begin; all of them")
    parser.add_argument("--points", help="only points that have one of these texts, between commas")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="prints each command that is run")
    parser.add_argument("--models", type=pathlib.Path, metavar="DIR", help="keeps the models; they have shapes, and no weights")
    parser.add_argument("--check", action="store_true", help=f"fails if a price misses by more than {MOST:.0%}%")
    o = parser.parse_args()
    cases = [c for c in CASES if not o.names or any(c.name.startswith(n) for n in o.names)]
    if o.list:
        for c in cases:
            print(f"{c.name:12}{len(c.points):3} points")
        return
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        if o.models:
            o.models.mkdir(parents=True, exist_ok=True)
        bench = Bench(o, o.models or pathlib.Path(folder))
        for case in cases:
            errors += bench.show(case)
    known = [e for e in errors if e]
    for k, name in enumerate(("ms", "bytes")):
        sizes = [abs(e[k]) for e in known]
        if sizes:
            print(f"{name}: mean error {sum(sizes) / len(sizes):.2%}, most {max(e[k] for e in known):+.2%} and "
                  f"{min(e[k] for e in known):+.2%}, of {len(sizes)} plans {sum(s > MOST for s in sizes)} above {MOST:.0%}")
    if o.check and (not known or len(known) < len(errors) or any(abs(x) > MOST for e in known for x in e)):
        sys.exit(1)


if __name__ == "__main__":
    main()
