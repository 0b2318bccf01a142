#!/usr/bin/env python3
"""The largest feasible size:  tests/bench/fits.py NNAOT [--grow rows|tokens|width] [--model gpt-8] [--memory 16] [--plans P …]

For each plan the maximum for which no rank needs more than --memory GiB according to plan_memory; found by
doubling and then by bisection, each step an `nnaot --emit plan` of a model without weights.

    rows     of a batch of --model of large_models.py on 8 A100, in multiples of the ranks
    tokens   of the one row of GPT-3 with 1.3 billion parameters on one V100 of 32 GB, in multiples of 512
    width    of Swin of 32 layers, one image of 1536 x 1536, on the same, in multiples of 32: the size of the model

The last two are SuperScaler's section 6.3: there co-sharding with recomputation has 1.7 times the tokens, and 3.7 times the
parameters, of recomputation alone, and 1.2 and 3.7 times those of ZeRO-3 with weights and states offloaded to the host. On
one device ZeRO-3 is recompute,offload here, except that the 16-bit weights, which the step reads, stay resident.

In plans recompute_pieces_2 has 2 layers in a list.

    most     the maximum; `of plain` is its ratio to the first plan's; for `width` the ratio of parameters, shown in millions
    peak     GiB of a rank at the maximum
    step     predicted ms, and `each` of one row or token: the cost of the memory savings in time
    same     predicted ms, and GiB, at the first plan's maximum
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import paper_models
from large_models import write

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import counted_plan  # noqa: E402

PLANS = ["dp={n}", "dp={n},recompute=1", "dp={n},recompute_attention=1", "dp={n},swap=1", "dp={n},coshard=1",
         "dp={n},coshard=1,recompute=1", "zero3={n}", "zero3={n},recompute=1", "zero3={n},coshard=1,recompute=1",
         "zero3={n},offload=1", "zero3={n},recompute=1,offload=1", "zero3={n},coshard=1,recompute=1,offload=1"]
ALONE = ["dp", "recompute", "coshard", "coshard=1,recompute=1", "coshard=1,recompute_pieces=1",
         "coshard:4=1,recompute_pieces=1", "coshard:8=1,recompute_pieces=1", "coshard:8=1,recompute_pieces_2=1",
         "coshard:8=1,recompute_pieces_2=1,swap=1", "offload", "recompute=1,offload=1",
         "coshard:8=1,recompute_pieces_2=1,offload=1", "coshard:8=1,recompute_pieces_2=1,swap=1,offload=1"]
MOST = 1 << 16  # the largest tested number of units of a rank


def parameters(text):
    return sum(math.prod(map(int, dims.split(","))) for dims in re.findall(r"f32\[([\d,]+)\] weight", text))


class Rows:
    """A batch of n rows for each rank."""
    ranks, cluster, plans, memory, unit = 8, "a100:1x8", PLANS, 16, 1

    def __init__(self, o, folder):
        self.file, self.loss = write(folder, o.model)

    def made(self, n):
        return self.file, self.loss, ["--batch", str(n * self.ranks)]

    def size(self, n):
        return n * self.ranks


class Text:
    """A model of variable size, as text."""
    ranks, cluster, plans, memory = 1, "v100-dgx2:1x1", ALONE, 32e9 / 2**30

    def __init__(self, o, folder):
        self.file = folder / "model.nn"

    def made(self, n):
        text, loss = self.model(n)
        self.file.write_text(text)
        return self.file, loss, []


class Tokens(Text):
    unit = 512

    def model(self, n):
        return paper_models.gpt(24, 2048, 32, 1, n * self.unit)

    def size(self, n):
        return n * self.unit


class Width(Text):
    unit = 32

    def model(self, n):
        return paper_models.swin(32, n * self.unit, n, 1)

    def size(self, n):
        return parameters(self.model(n)[0]) / 1e6


GROWS = {"rows": Rows, "tokens": Tokens, "width": Width}


class Model:
    def __init__(self, o, folder):
        self.o, self.folder, self.known = o, folder, {}
        self.grows = GROWS[o.grow](o, folder)

    def plan(self, plan, n):
        """Returns bytes and ms, or None if the plan is refused, for example because of too large a tensor."""
        if (plan, n) not in self.known:
            file, loss, flags = self.grows.made(n)
            out = self.folder / "plan.json"
            done = subprocess.run([self.o.nnaot, file, "-g", str(self.grows.ranks), "--cluster", self.grows.cluster,
                                   "--plan", counted_plan(plan, self.folder), *flags, "--loss", loss, "--optimizer", "adamw",
                                   "--target", "cuda:sm_80", "--dtype", self.o.dtype, "--emit", "plan", "-o", out],
                                  capture_output=True, text=True)
            said = json.loads(out.read_text()) if done.returncode == 0 else None
            self.known[plan, n] = said and (max(r["peak_bytes"] for r in said["per_rank"]), said["predicted_step_ms"])
        return self.known[plan, n]

    def fits(self, plan, n):
        made = self.plan(plan, n)
        return made is not None and made[0] <= self.o.memory * 2**30

    def most(self, plan):
        """Returns the maximum in units; 0 if one unit does not fit."""
        low, high = 0, 1
        while high <= MOST and self.fits(plan, high):
            low, high = high, 2 * high
        while high - low > max(1, low // 32):
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(plan, middle) else (low, middle)
        return low


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nnaot")
    parser.add_argument("--grow", choices=list(GROWS), default="rows")
    parser.add_argument("--model", default="gpt-8")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--memory", type=float, help="GiB of a rank")
    parser.add_argument("--plans", nargs="*")
    o = parser.parse_args()
    grows = GROWS[o.grow]
    o.memory = o.memory or grows.memory
    print(f"{'':36}{'most':>9}{'of plain':>9}{'peak':>8}{'step':>10}{'each':>9}{'same':>11}{'':>8}")
    with tempfile.TemporaryDirectory() as folder:
        model, first = Model(o, pathlib.Path(folder)), 0
        for plan in o.plans or grows.plans:
            plan = plan.format(n=grows.ranks)
            n = model.most(plan)
            first = first or n
            line = f"{plan:36}{model.grows.size(n) if n else 0:9.0f}"
            if not n:
                print(line, flush=True)
                continue
            peak, step = model.plan(plan, n)
            size = model.grows.size(n)
            line += f"{size / model.grows.size(first):9.2f}{peak / 2**30:8.2f}{step:10.1f}{step / size:9.3f}"
            same = model.plan(plan, first)
            print(line + (f"{same[1]:11.1f}{same[0] / 2**30:8.2f}" if same else ""), flush=True)


if __name__ == "__main__":
    main()
