"""Tables of units compared with built plans:  tables.py [--all] [MODEL …]

`nnaot-plan blocks` reads the costs of a model's units from cut-outs with two or three layers. Here the same plan is built by
nnaot for the whole model, of several depths. Without stages a step is all micro-batches of all units, then their sums and
updates; a rank holds what lasts, what is kept up to some unit, and what that unit works with. Both are within BOUND of what is
built, as is the line through the cut-outs, `seconds` and `bytes`.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "bench"))
import paper_models  # noqa: E402

BIN = pathlib.Path(os.environ.get("BUILD", "build"), "bin")
BOUND = 0.02
GPU, CPU = ("cuda", "h200:4x8", "bf16"), ("cpu", "cpu:4x8", "f32")


def gpt(layers, rows=64):
    return paper_models.gpt(layers, 256, 8, rows, tokens=128)


def llama(layers):
    return paper_models.llama(layers, 256, 8, 64, inner=512, words=1024, tokens=128)


def t5(layers):
    return paper_models.t5(layers, 256, 8, 64, words=1024, source=64, target=64)


def t5_words(layers):
    return paper_models.t5(layers, 256, 8, 64, words=100_000, source=64, target=64)


def swin(layers):
    return paper_models.swin(layers, 64, 4, 32)


def evoformer(layers):
    return paper_models.evoformer(layers, 64, 4, 64)


def moe(layers):
    return paper_models.m6(layers, 256, 8, 64, 4, 512)


# Model, depths, plan for 8 ranks, micro-batches, machine; the last: `--all` only.
CASES = [
    (gpt, (4, 8, 12), "zero1=4,sp=2", 4, GPU, False),
    (t5, (8, 16), "zero1=4,tp=2", 4, GPU, False),
    (swin, (8, 12), "dp=8", 4, GPU, False),
    (llama, (8,), "zero3=4,tp=2", 4, GPU, False),
    (moe, (6,), "dp=4,ep=2", 4, GPU, False),
    # Layers are left out of all forwards.
    (evoformer, (6, 12), "dp=8", 2, GPU, False),
    # With two layers of each kind other blocks repeat, but the layers are those of the model.
    (t5_words, (48,), "zero1=8,recompute=1", 4, GPU, False),
    (gpt, (12,), "dp=2,tp=4", 2, CPU, False),
    (gpt, (4, 12), "dp=8", 8, CPU, True),
    (gpt, (4, 12), "zero1=4,vp=2", 4, GPU, True),
    (gpt, (8,), "zero2=8", 4, GPU, True),
    (t5, (12, 24), "zero1=8", 4, CPU, True),
    (llama, (4, 12), "dp=4,sp=2", 2, GPU, True),
    (moe, (8,), "zero1=4,ep=2", 2, CPU, True),
    (gpt, (8,), "dp=4,cp=2", 4, GPU, True),
    (gpt, (8,), "dp=2,search=4", 4, GPU, True),
    (gpt, (12,), "zero1=4,sp=2,recompute=1", 4, GPU, True),
]


def units_of(model, flags):
    run = subprocess.run([BIN / "nnaot-plan", "blocks", model, *flags, "--json"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{model.name}: {run.stderr}")
    return json.loads(run.stdout)


def built(model, flags, folder):
    summary = folder / "summary.json"
    run = subprocess.run([BIN / "nnaot", model, *flags, "--emit", "plan", "-o", folder / "plan.json", "--summary", summary],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{model.name}: {run.stderr}")
    s = json.loads(summary.read_text())
    return s["predicted_step_ms"] / 1e3, max(r["peak_bytes"] for r in s["per_rank"])


def summed(units, micro_batches):
    """Seconds and bytes of a step without stages."""
    loop = sum(u["forward"] + u["backward"] + u["weight_grad"] for u in units)
    kept, most = 0, 0
    for u in units:
        kept += u["kept"][0]
        most = max(most, kept + max(u["working"]))
    return micro_batches * loop + sum(u["sums"] + u["update"] for u in units), \
        max(most, sum(u["updating"] for u in units)) + sum(u["lasting"] for u in units)


def main():
    every = "--all" in sys.argv
    chosen = [a for a in sys.argv[1:] if a != "--all"]
    failed = n = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for make, depths, plan, micro_batches, (target, cluster, dtype), late in CASES:
            if (late and not every) or (chosen and make.__name__ not in chosen):
                continue
            for depth in depths:
                text, loss = make(depth)
                model = folder / f"{make.__name__}{depth}.nn"
                model.write_text(text)
                flags = ["-g", "8", "--plan", plan, "--micro-batches", str(micro_batches), "--loss", loss, "--target", target,
                         "--cluster", cluster, "--dtype", dtype, "--optimizer", "adamw"]
                table = units_of(model, flags)
                of_units, of_step = summed(table["units"], micro_batches), built(model, flags, folder)
                found = {"seconds by units": of_units[0] / of_step[0], "seconds": table["seconds"] / of_step[0],
                         "bytes by units": of_units[1] / of_step[1], "bytes": table["bytes"] / of_step[1]}
                wrong = [k for k, x in found.items() if not abs(x - 1) <= BOUND]  # nan is wrong
                n += 1
                failed += bool(wrong)
                print(f"{'FAIL' if wrong else 'ok  '} {make.__name__:8}{depth:3} layers  {plan:14} {dtype}  " +
                      "  ".join(f"{k} {100 * (x - 1):+.2f} %" for k, x in found.items()))
    print(f"{n - failed} of {n} tables are within {100 * BOUND:g} % of what is built")
    sys.exit(failed > 0 or n == 0)


if __name__ == "__main__":
    main()
