#!/usr/bin/env python3
"""The quality of nnaot's plans, in simulation:  tests/bench/quality.py [CASE …] [--list]

Models and clusters of nnScaler (table 9), SuperScaler (table 2) and AutoDDL (section 5); paper_models.py describes
the models.  For each case the predicted milliseconds of a step under

    dp, zero3    data parallelism, and ZeRO-3
    Megatron     the best of tp, sp and vp of every degree, with data parallelism, ZeRO-1 or ZeRO-3 outside
    GSPMD        a search that does not pass on or keep partial sums: Alpa's space within a stage
    auto         nnaot's choice

`-`: it does not fit into memory, or is refused.  The papers recompute activations, and these plans
do not, so that devices have three times the memory of the papers' (clusters/), and GPT-3 sentences of 2,048 words and not
SuperScaler's 16,384.  Every rank has one row in a micro-batch; of images of 1536 x 1536 a micro-batch has two, and
the rows of VGG13 are not in micro-batches.  `of best`: auto's time by the best of the others, which should be 1 or less.
Last is the paper's measurement of whole systems: the speed of their best plan as a multiple of another's.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import paper_models

HERE = pathlib.Path(__file__).resolve().parent
NNAOT = pathlib.Path(os.environ.get("BUILD", HERE.parents[1] / "build")) / "bin" / "nnaot"
SIXTEEN, WHOLE = ["--dtype", "f16"], []

# Name, model, arguments, rows, ranks, cluster, flags, the paper's measurement.
CASES = [
    *((f"nnscaler-swin-{n}", "swin", size, 512, n, "nnscaler", SIXTEEN, said) for n, size, said in [
        (4, (32, 512, 16), ""), (8, (40, 768, 24), "1.2 x DeepSpeed"), (16, (48, 1024, 32), "1.5 x DeepSpeed"),
        (32, (56, 1536, 32), "1.5 x DeepSpeed")]),
    *((f"nnscaler-t5-{n}", "t5", size, 512, n, "nnscaler", SIXTEEN, said) for n, size, said in [
        (4, (48, 2048, 32), "DeepSpeed is best"), (8, (64, 3072, 48), "1.5 x DeepSpeed"),
        (16, (64, 4096, 64), "1.6 x DeepSpeed"), (32, (64, 6144, 96), "2.5 x DeepSpeed")]),
    *((f"nnscaler-alphafold2-{n}", "alphafold2", size, 128, n, "nnscaler", SIXTEEN, said) for n, size, said in [
        (4, (48, 256, 8), "all use dp"), (8, (64, 512, 16), "all use dp"), (16, (96, 1024, 32), "1.5 x DAP+DP"),
        (32, (128, 1024, 32), "1.1 x DeepSpeed")]),
    *((f"superscaler-gpt-{n}", "gpt", size, 512, n, "superscaler", SIXTEEN, said) for n, size, said in [
        (4, (24, 2048, 32), ""), (8, (32, 2560, 32), ""), (16, (32, 4096, 32), ""),
        (32, (48, 5120, 32), "up to 1.5 x DeepSpeed, 3.3 x Alpa")]),
    *((f"superscaler-mbart-{n}", "t5", size, 512, n, "superscaler", SIXTEEN, said) for n, size, said in [
        (4, (24, 3072, 16), "as Megatron-LM"), (8, (32, 4096, 32), "as Megatron-LM"), (16, (48, 5120, 32), ""),
        (32, (56, 6144, 32), "up to 2.8 x Megatron-LM, 4.9 x DeepSpeed")]),
    *((f"superscaler-swin-{n}", "swin", size, 512, n, "superscaler", SIXTEEN, said) for n, size, said in [
        (4, (32, 512, 16), "as others"), (8, (48, 768, 24), "as others"), (16, (56, 1024, 32), "up to 6.6 x Megatron-LM"),
        (32, (64, 1536, 32), "up to 3.5 x DeepSpeed")]),
    *((f"autoddl-vgg13-{n}", "vgg13", (), 8 * n, n, "piz-daint", WHOLE, said) for n, said in [
        (16, "4 x dp, 1.03 x Megatron"), (32, "4 x dp, 1.09 x Megatron"), (64, "4 x dp, 1.18 x Megatron")]),
    *((f"autoddl-gpt-{n}", "gpt", (layers, 8192, 64), 1024, n, "piz-daint", WHOLE, said) for n, layers, said in [
        (64, 8, "1.14 x the second"), (128, 20, "1.56 x the second"), (256, 44, "1.45 x the second")]),
    *((f"autoddl-cloud-{n}", model, size, rows, n, "google-a100", SIXTEEN, said) for n, model, size, rows, said in [
        (8, "vgg13", (), 128, "3.5 x the second"), (16, "vgg13", (), 256, "2.7 x the second"),
        (32, "gpt", (28, 4096, 32), 2048, "1.11 x Megatron")]),
]
TOKENS = {"autoddl-gpt": 1024, "autoddl-cloud": 1024}  # per row, if not the model's own


class Case:
    def __init__(self, folder, row):
        self.name, model, size, self.rows, self.ranks, cluster, self.flags, self.said = row
        own = [n for prefix, n in TOKENS.items() if model == "gpt" and self.name.startswith(prefix)]
        text, self.loss = paper_models.MODELS[model](*size, self.rows, *own)
        self.model, self.summary = pathlib.Path(folder, "model.nn"), pathlib.Path(folder, "summary.json")
        self.model.write_text(text)
        self.cluster = HERE / "clusters" / f"{cluster}.lua"
        at_once = {"vgg13": self.rows, "swin": 2}.get(model, self.ranks)
        self.slices = max(1, self.rows // at_once)

    def compile(self, plan):
        """Returns the summary; None if the plan is refused, or does not fit."""
        command = [NNAOT, self.model, "-g", self.ranks, "--plan", plan, "--loss", self.loss, "--optimizer", "adamw",
                   *self.flags, "--target", "cuda:sm_80", "--cluster", self.cluster, "--micro-batches", self.slices,
                   "--emit", "plan", "-o", "/dev/null", "--summary", self.summary]
        run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        return json.loads(self.summary.read_text()) if run.returncode == 0 else None

    def memory(self):
        return float(re.search(r"memory = ([\de]+)", self.cluster.read_text())[1])

    def price(self, plan):
        s = self.compile(plan)
        peak = max(r["peak_bytes"] or 0 for r in s["per_rank"]) if s else 0
        return s["predicted_step_ms"] if s and peak and peak <= self.memory() else None


def megatron_plans(case, known):
    """Yields plans of every degree that are not among the candidates of `auto`."""
    n = case.ranks
    for k in [k for k in range(2, n + 1) if n % k == 0]:
        for inner in "tp", "sp", "vp":
            for outer in ["dp", "zero3"] if k < n else [""]:
                plan = f"{outer},{inner}={k}" if outer else inner
                if plan not in known:
                    yield plan


def least(prices):
    fitting = {plan: ms for plan, ms in prices.items() if ms is not None}
    return min(fitting.items(), key=lambda item: item[1]) if fitting else (None, None)


def number(ms):
    return "-" if ms is None else f"{ms:.1f}"


def show(case):
    before = time.monotonic()
    summary = case.compile("auto")
    took = time.monotonic() - before
    candidates = (summary or {}).get("candidates", [])
    known = {c["plan"]: c["step_ms"] if c["fits"] else None for c in candidates}
    chosen = next((c["plan"] for c in candidates if c["chosen"]), None)
    auto = summary["predicted_step_ms"] if summary else None
    tensor = {p: ms for p, ms in known.items() if any(k in p for k in ("tp", "sp", "vp")) and "2d" not in p}
    tensor.update({p: case.price(p) for p in megatron_plans(case, known)})
    best, megatron = least(tensor)
    named = {p: known.get(p) if p in known else case.price(p) for p in ("dp", "zero3")}
    gspmd = case.price(HERE / "gspmd.lua")
    rest = [x for x in (*named.values(), megatron, gspmd) if x is not None]
    share = f"{auto / min(rest):.3f}" if auto is not None and rest else "-"
    print(f"{case.name:24}{case.ranks:6}{number(named['dp']):>12}{number(named['zero3']):>12}{number(megatron):>12} "
          f"{best or '':15}{number(gspmd):>12}{number(auto):>12} {chosen or '':15}{share:>8}{took:8.1f}  {case.said}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="names, or how they begin; all of them")
    parser.add_argument("--list", action="store_true")
    o = parser.parse_args()
    rows = [row for row in CASES if not o.cases or any(row[0].startswith(c) for c in o.cases)]
    if o.list:
        print("\n".join(row[0] for row in rows))
        return
    print(f"{'case':24}{'ranks':>6}{'dp':>12}{'zero3':>12}{'Megatron':>12} {'':15}{'GSPMD':>12}{'auto':>12} {'':15}"
          f"{'of best':>8}{'s':>8}  as measured")
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            show(Case(folder, row))


if __name__ == "__main__":
    main()
