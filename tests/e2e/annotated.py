"""A plan survives being written into a model and read back, and the model trains as on one rank.

    annotated.py            the samples, and a few of the models of plan_cases.py
    annotated.py --all      all of those under all plans that ONNX can express

--emit onnx writes the plan, --plan onnx reads it.  Then every op of the model's training step has the same split as
before, on the same ranks, except for those in CANNOT.
"""

import argparse
import pathlib
import re
import sys

import plan_cases
from common import NNAOT, OPTIMIZER, SAMPLE, SAMPLES, compile_in_a_hurry, compile_sample, run, scratch, train, worst_difference

LIMIT = 1e-5
SAMPLE_PLANS = ["dp", "tp", "sp", "search", "pp"]
FEW = [("gpt", "tp2d", 4), ("moe", "ep", 4), ("axial", "dap", 4), ("gpt", "pp=2,dp=2", 4), ("gpt", "dp=2,pp=2", 4),
       ("vit", "dp=2,tp=2", 4)]
PLANS = [("dp", 4), ("tp", 4), ("sp", 4), ("vp", 4), ("tp2d", 4), ("tp3d", 8), ("dap", 4), ("ep", 4), ("pp", 4),
         ("zero1", 4), ("zero3", 4), ("search", 4), ("dp=2,tp=2", 4), ("pp=2,dp=2", 4), ("dp=2,pp=2,tp=2", 8)]
# The number of ops with another split, and the reason.
NO_TENSORS = "all that the node reads and makes is computed otherwise: transposes went elsewhere"
CANNOT = {
    ("axial", "tp2d"): (6, NO_TENSORS), ("axial", "tp3d"): (6, NO_TENSORS),
}
OP = re.compile(r"= (\w+) .*? (?:@(\w+) )?\{.*?\}(?:, .*?\})? *(?:split=\[(.*?)\])? *of=\d+ *#\s*(\S+?):(\S.*)$")


def steps(nn):
    """Returns the ops of the model in @train: (node, kind, mesh's devices, split)."""
    text = pathlib.Path(nn).read_text()
    devices = dict(re.findall(r"^mesh @(\S+) devices=(\S+)", text, re.M))
    found = []
    for line in text.split("graph @eval")[0].splitlines():
        op = OP.search(line)
        if op and "backward" not in line and "<-" not in line:
            found.append((op[5], op[1], devices.get(op[2], "all"), op[3] or ""))
    return found


def named(text):
    """Returns the split, or '' if it splits nothing, for any number of axes: '-,-' is ''."""
    return text if text.strip("-,") else ""


def plan_text(model, flags, ranks, plan, out):
    run(NNAOT, model, "-g", ranks, *flags, "--plan", plan, "--emit", "nn", "--stop-after", "shard", "-o", out)
    return [(node, kind, where, named(split)) for node, kind, where, split in steps(out)]


def round_trip(folder, name, model, flags, ranks, plan):
    """Returns the number of ops with the same split, the number of all, the differences, and the annotated model."""
    annotated = pathlib.Path(folder, f"{name}-{plan}.onnx")
    run(NNAOT, model, "-g", ranks, *flags, "--plan", plan, "--emit", "onnx", "-o", annotated)
    first = plan_text(model, flags, ranks, plan, f"{annotated}.1.nn")
    again = plan_text(annotated, flags, ranks, "onnx", f"{annotated}.2.nn")
    same = sum(a == b for a, b in zip(first, again)) if len(first) == len(again) else 0
    differ = [f"    {a} is {b}" for a, b in zip(first, again) if a != b]
    check(annotated)
    return same, len(first), differ, annotated


def check(model):
    """Checks the model with the onnx package, if that is installed and knows annotations."""
    try:
        import onnx
    except ImportError:
        return
    m = onnx.load(model)
    if hasattr(m, "configuration"):
        onnx.checker.check_model(m)


def splits(folder, rows):
    failed = False
    for name, model, flags, ranks, plan in rows:
        same, n, differ, _ = round_trip(folder, name, model, flags, ranks, plan)
        print(f"{name:8} {plan:16} {ranks} ranks: {same} of {n} ops split the same", flush=True)
        other, _ = CANNOT.get((name, plan), (0, None))
        if not n or n - same != other:
            print("\n".join(differ[:5]))
            failed = True
    return failed


def losses(folder, name, plan, ranks):
    """Checks that the annotated model has the losses of one rank, under --plan onnx and under auto."""
    flags = ["--batch", SAMPLE[name]["batch"], "--loss", SAMPLE[name]["loss"], *OPTIMIZER["adamw"]]
    *_, annotated = round_trip(folder, name, SAMPLES / name / f"{name}.onnx", flags, ranks, plan)
    compile_sample(name, f"{folder}/one")
    want = [line["loss"] for line in train(f"{folder}/one", name, 6, f"{folder}/one.{plan}.jsonl")]
    failed = False
    for how in "onnx", "auto":
        exe = f"{folder}/{name}-{plan}-{how}"
        run(NNAOT, annotated, "-g", ranks, *flags, "--plan", how, "-o", exe)
        got = [line["loss"] for line in train(exe, name, 6, f"{exe}.jsonl")]
        d = worst_difference(got, want)
        print(f"{name:8} {plan:16} {ranks} ranks, --plan {how}: loss {d:.1e}", flush=True)
        failed |= not d < LIMIT
    return failed


def sample_rows():
    for name, s in SAMPLE.items():
        flags = ["--batch", s["batch"], "--loss", s["loss"], *OPTIMIZER["adamw"]]
        model = SAMPLES / name / f"{name}.onnx"
        for plan in SAMPLE_PLANS:
            yield name, model, flags, 2, plan
        yield name, model, flags, 4, "dp=2,tp=2"


def model_rows(folder, every):
    cases = [(m, p, n) for p, n in PLANS for m in plan_cases.ALL] if every else FEW
    for name, plan, ranks in cases:
        model, *flags = plan_cases.compile_flags(name, folder)
        yield name, model, flags, ranks, plan


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--all", action="store_true")
    a = p.parse_args()
    with scratch() as folder:
        compile_in_a_hurry(folder)
        failed = splits(folder, model_rows(folder, a.all))
        if not a.all:
            failed |= splits(folder, sample_rows())
            for plan, ranks in ("tp", 2), ("dp=2,tp=2", 4), ("pp", 2):
                failed |= losses(folder, "mlp", plan, ranks)
    return failed


sys.exit(main())
