"""How large a batch fits:  tests/bench/fits.py NNAOT [--model gpt-8] [--ranks 8] [--memory 16] [--plans P …]

For each plan the most rows of a batch, in multiples of the ranks, so that no rank needs more than --memory GiB as
plan_memory counts it; found by doubling and then by halves, each step an `nnaot --emit plan` of a model of
large_models.py, which has no weights.

    rows     of the batch; `of plain` is how many times the first plan's
    peak     GiB of a rank at that
    step     predicted ms, and `row` of one row: what the memory costs in time
    same     predicted ms, and GiB, at the first plan's rows
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

from large_models import write

PLANS = ["dp={n}", "dp={n},recompute=1", "dp={n},recompute_attention=1", "dp={n},coshard=1",
         "dp={n},coshard=1,recompute=1", "zero3={n}", "zero3={n},recompute=1", "zero3={n},coshard=1,recompute=1"]
MOST = 1 << 16  # rows of a rank


class Model:
    def __init__(self, o, folder):
        self.o, self.folder, self.known = o, folder, {}
        self.file, self.loss = write(folder, o.model)

    def plan(self, plan, rows):
        """Bytes and ms, or None where the plan cannot be made, as when the batch makes a tensor too large."""
        if (plan, rows) not in self.known:
            out = self.folder / "plan.json"
            done = subprocess.run([self.o.nnaot, self.file, "-g", str(self.o.ranks), "--cluster", self.o.cluster,
                                   "--plan", plan, "--batch", str(rows * self.o.ranks), "--loss", self.loss,
                                   "--optimizer", "adamw", "--dtype", self.o.dtype, "--emit", "plan", "-o", out],
                                  capture_output=True, text=True)
            said = json.loads(out.read_text()) if done.returncode == 0 else None
            self.known[plan, rows] = said and (max(r["peak_bytes"] for r in said["per_rank"]),
                                               said["predicted_step_ms"])
        return self.known[plan, rows]

    def fits(self, plan, rows):
        made = self.plan(plan, rows)
        return made is not None and made[0] <= self.o.memory * 2**30

    def most(self, plan):
        """Rows of a rank; 0 where not even one fits."""
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
    parser.add_argument("--model", default="gpt-8")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--cluster", default="a100:1x8")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--memory", type=float, default=16, help="GiB of a rank")
    parser.add_argument("--plans", nargs="*", default=PLANS)
    o = parser.parse_args()
    print(f"{'':36}{'rows':>7}{'of plain':>9}{'peak':>8}{'step':>10}{'row':>9}{'same':>11}{'':>8}")
    with tempfile.TemporaryDirectory() as folder:
        model, first = Model(o, pathlib.Path(folder)), 0
        for plan in o.plans:
            plan = plan.format(n=o.ranks)
            rows = model.most(plan)
            first = first or rows
            line = f"{plan:36}{rows * o.ranks:7}"
            if not rows:
                print(line, flush=True)
                continue
            peak, step = model.plan(plan, rows)
            line += f"{rows / first:9.2f}{peak / 2**30:8.2f}{step:10.1f}{step / rows / o.ranks:9.3f}"
            same = model.plan(plan, first)
            print(line + (f"{same[1]:11.1f}{same[0] / 2**30:8.2f}" if same else ""), flush=True)


if __name__ == "__main__":
    main()
