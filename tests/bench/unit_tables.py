#!/usr/bin/env python3
"""Tables of units of GPT-3 175B beside built plans:  unit_tables.py build/bin [--built]

For each plan inside of stages on 1,024 H200 with batch 1,024: the processor's seconds of `nnaot-plan blocks` for the table alone
(`--time`), and the seconds of a layer. With --built, stages of whole layers are built by nnaot for all 96 layers, and their peak
memory is compared with what tables say: what lasts, what is kept of each micro-batch in flight, and what a unit works with.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import large_models  # noqa: E402

RANKS, BATCH = 1024, 1024
# Plan inside of stages, ranks of a stage, micro-batches.
SHAPES = [("zero1=16,sp=4", 64, 64), ("dp=8,sp=8", 64, 128), ("zero1=16,sp=2", 32, 64), ("zero1=32", 32, 32),
          ("dp=4,sp=4", 16, 256), ("sp=8", 8, 1024), ("zero1=64,vp=2", 128, 16), ("zero1=128,sp=8", 1024, 8),
          ("zero3=512", 512, 2)]
# Stages, plan inside of them, micro-batches: 1f1b, whose first of p stages has p micro-batches in flight.
STAGED = [(16, "zero1=16,sp=4", 64), (16, "dp=8,sp=8", 128), (32, "zero1=8,sp=4", 128)]
MOST = 0.15  # seconds


def flags(model, loss, plan, ranks, micro_batches):
    return [model, "--target", "cuda", "--dtype", "bf16", "--optimizer", "adamw", "--batch", str(BATCH), "--loss", loss,
            "-g", str(ranks), "--plan", plan, "--micro-batches", str(micro_batches), "--cluster", "h200:128x8"]


def table(folder, *args):
    run = subprocess.run([folder / "nnaot-plan", "blocks", *flags(*args), "--json", "--time"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout), float(re.search(r"table ([\d.]+) s", run.stderr).group(1))


def layer_of(name):
    found = re.search(r"\bh\.(\d+)\b", name)
    return int(found.group(1)) if found else None


def stages_of(summary, units):
    """The units of each stage, by the layers of its first and last node; None if a border is inside of a layer."""
    layers = [(layer_of(s["first_node"]), layer_of(s["last_node"])) for s in summary["stages"]]
    firsts = [a if a is not None else 0 for a, _ in layers]
    lasts = [b if b is not None else 95 for _, b in layers]
    if any(b + 1 != a for b, a in zip(lasts, firsts[1:])):
        return None
    of = [layer_of(u["name"]) for u in units]
    of[0], of[-1] = 0, 95
    return [[u for u, k in zip(units, of) if a <= k <= b] for a, b in zip(firsts, lasts)]


def peak(units, in_flight):
    loop = in_flight * sum(u["kept"][0] for u in units) + max(u["working"][1] for u in units)
    return sum(u["lasting"] for u in units) + max(loop, sum(u["updating"] for u in units))


def main():
    folder = pathlib.Path(sys.argv[1])
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        model, loss = large_models.write(temporary, "gpt3-175b")
        for plan, ranks, micro_batches in SHAPES:
            t, seconds = table(folder, model, loss, plan, ranks, micro_batches)
            layer = [u for u in t["units"] if layer_of(u["name"]) == 48]
            parts = [1e3 * sum(u[k] for u in layer) for k in ("forward", "backward", "weight_grad", "sums", "update")]
            wrong += seconds > MOST
            print(f"{plan:16} on {ranks:4}, {micro_batches:4} micro-batches: {seconds:.3f} s; a layer "
                  "F {:.2f} B {:.2f} W {:.2f} sums {:.2f} update {:.2f} ms".format(*parts))
        for n, plan, micro_batches in STAGED if "--built" in sys.argv else []:
            t, _ = table(folder, model, loss, plan, RANKS // n, micro_batches)
            args = flags(model, loss, f"pp={n},{plan}", RANKS, micro_batches)
            summary = temporary / "summary.json"
            subprocess.run([folder / "nnaot", *args, "--emit", "plan", "-o", temporary / "plan.json", "--summary", summary],
                           capture_output=True, check=True)
            s = json.loads(summary.read_text())
            stages = stages_of(s, t["units"])
            if not stages:
                print(f"pp={n},{plan}: stages end inside of layers")
                continue
            ranks = s["per_rank"][::RANKS // n]
            off = [peak(u, n - i) / r["peak_bytes"] - 1 for i, (u, r) in enumerate(zip(stages, ranks))]
            # The last stage has the head's words, and of a tied table its gradient too.
            wrong += max(map(abs, off[:-1])) > 0.02
            print(f"pp={n},{plan}: bytes of stages " + " ".join(f"{100 * x:+.2f}" for x in off) + " %")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
