"""A plan that is saved, read back and saved again is the same plan.

    saved.py            a slice of CASES
    saved.py --all      all of them

For every row, --emit plan -o FILE.lua writes the plan as a program.  Given to --plan, it makes a step of the same ops
(plan_hash), and saved again it is the same file.  The same input makes the same file, to the byte.  Then files are
edited as one would by hand: a weight is cut otherwise, a row is deleted; and mistakes in them are errors at their lines.
"""

import json
import pathlib
import re
import sys

from common import NNAOT, SAMPLE, SAMPLES, run, scratch

# Plan, ranks, sample, more flags.  The first of each plan is in the slice.
CASES = [
    ("dp", 2, "mlp", []),
    ("dp", 4, "gpt2", ["--micro-batches", 2]),
    ("dp", 4, "resnet", ["--optimizer", "sgd:momentum=0.9"]),
    ("zero3", 4, "mlp", ["--clip-norm", 1]),
    ("zero3", 4, "resnet", ["--target", "cuda"]),
    ("dp=2,sp=2", 4, "gpt2", ["--accumulate", 2]),
    ("dp=2,sp=2", 4, "mlp", ["--freeze", "layers.0.*"]),
    ("vp", 4, "gpt2", ["--dtype", "bf16"]),
    ("pp", 4, "gpt2", ["--clip-norm", 1]),
    ("pp", 4, "mlp", []),
    ("pp", 2, "resnet", []),
    ("pp=2,zero2=2,tp=2", 8, "gpt2", ["--clip-norm", 1, "--micro-batches", 2]),
    ("coshard", 2, "gpt2", []),
    ("search", 4, "mlp", ["--cluster", "cpu"]),
    ("search", 4, "gpt2", []),
    ("search", 4, "resnet", []),
    ("auto", 4, "mlp", []),
    ("auto", 4, "gpt2", []),
    ("auto", 4, "resnet", []),
]


def flags(sample, ranks, extra):
    s = SAMPLE[sample]
    given = ["--optimizer", "adamw"] if "--optimizer" not in extra else []
    return [NNAOT, SAMPLES / sample / f"{sample}.onnx", "-g", ranks, "--batch", 16, "--loss", s["loss"], *given,
            *extra]


def save(command, plan, path):
    run(*command, "--plan", plan, "--emit", "plan", "-o", path)
    return path.read_text()


def plan_hash(command, plan, path):
    run(*command, "--plan", plan, "--emit", "plan", "-o", path)
    return json.loads(path.read_text())["plan_hash"]


def check_round(folder, plan, ranks, sample, extra):
    command = flags(sample, ranks, extra)
    # What is in the file need not be said again.
    again = [c for c, before in zip(command, [None, *command]) if "--micro-batches" not in (c, before)]
    first = save(command, plan, folder / "saved.lua")
    wrong = []
    if first != save(command, plan, folder / "other.lua"):
        wrong.append("two files of one input")
    if first != save(again, folder / "saved.lua", folder / "other.lua"):
        wrong.append("another file")
    want = plan_hash(command, plan, folder / "plan.json")
    if want != plan_hash(again, folder / "saved.lua", folder / "plan.json"):
        wrong.append("another plan")
    print(f"{plan} {ranks} {sample} {' '.join(map(str, extra))}: {', '.join(wrong) or 'the same'}")
    return len(wrong)


def edit(text, old, new):
    if text.count(old) != 1:
        sys.exit(f"{text.count(old)} of {old}")
    return text.replace(old, new)


def check_edits(folder):
    command = flags("mlp", 2, [])
    text = re.sub(r"(?<=\S) +", " ", save(command, "dp", folder / "saved.lua"))  # its columns are aligned
    mine = folder / "mine.lua"
    emit = [*command, "--plan", mine, "--emit", "nn", "--stop-after", "shard", "-o", folder / "out"]
    row = '{ "/layers/layers.2/Gemm", "linear", "forward", 1, "0" }'

    # A row that says otherwise: this product is cut by columns, and nothing else is.
    mine.write_text(edit(edit(text, row, row.replace('"0"', '"n"')), '{ "layers.2.weight", "weight", "-" }',
                         '{ "layers.2.weight", "weight", 0 }'))
    run(*emit)
    out = (folder / "out").read_text()
    if "%layers.2.weight: f32[48,96] {S(0)}" not in out or len(re.findall(r"= linear .*split=\[n\]", out)) != 2:
        sys.exit("the edited row does not show in @train and @eval")

    # A row less is left to propagation, which does the same here.
    mine.write_text(re.sub(re.escape(row) + ".*\n", "\n", text))
    run(*emit)
    if re.search(r"= linear .*split=\[n\]", (folder / "out").read_text()):
        sys.exit("an op without a row is split as it was said of it elsewhere")

    # What cannot be says where it is asked for.
    for old, new, message in [
        (row, row.replace('"0"', '"q"'), "error: linear has no letter 'q'"),
        (row, row.replace("layers.2", "layers.9"), "error: no linear of forward comes from the node"),
        ('{ "layers.2.weight", "weight", "-" }', '{ "layers.9.weight", "weight", "-" }',
         "error: there is no weight 'layers.9.weight'"),
        ("{ 2 }", "{ 3 }", "error: 'factors' returned a size of 3"),
        ("function factors", "micro_batches = 0\nfunction factors", "error: 'micro_batches' must be a number of them, not 0"),
        ('{ "dp" }', '{ "d p" }', "error: what 'factors' returned as name 1 is not of letters, digits and _"),
    ]:
        mine.write_text(edit(text, old, new))
        said = run(*emit, ok=1)
        if message not in said or f"{mine}:" not in said:
            sys.exit(f"not '{message}':\n{said}")


def main():
    seen, wrong = set(), 0
    with scratch() as folder:
        folder = pathlib.Path(folder)
        check_edits(folder)
        for plan, ranks, sample, extra in CASES:
            if plan not in seen or "--all" in sys.argv:
                wrong += check_round(folder, plan, ranks, sample, extra)
            seen.add(plan)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
