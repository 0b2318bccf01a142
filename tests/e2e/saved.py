"""A plan that is saved, read back and saved again is the same plan.

    saved.py            a slice of CASES
    saved.py --all      all of them

For every row, --emit plan -o FILE.lua writes the plan as a program.  With --plan, it gives a step of the same ops
(plan_hash), and saved again it is the same file.  The same input gives the same file, to the byte.  Then files are
edited by hand: a weight is split differently, a row is deleted; and mistakes in them are errors at their lines.
"""

import json
import pathlib
import re
import sys

from common import NNAOT, SAMPLE, SAMPLES, run, scratch
from plan_cases import CARVED, ORDERED, OWN

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
    ("pp_interlaced", 4, "gpt2", ["--batch", 16, "--micro-batches", 4]),
    ("pp_dualpipe", 2, "gpt2", ["--batch", 16, "--micro-batches", 4]),
    ("pp_terapipe", 2, "gpt2", ["--micro-batches", 2]),
    ("pp", 3, "mlp", []),
    ("pp", 2, "resnet", []),
    ("pp=2,zero2=2,tp=2", 8, "gpt2", ["--clip-norm", 1, "--micro-batches", 2]),
    ("coshard", 2, "gpt2", []),
    ("recompute", 2, "gpt2", []),
    ("recompute_attention=2,coshard=2", 4, "gpt2", ["--dtype", "bf16"]),
    ("coshard=2,recompute_pieces=1", 2, "gpt2", ["--dtype", "bf16"]),
    ("coshard:4@1:2@2=2,recompute_pieces=1", 2, "gpt2", ["--dtype", "f16"]),
    ("recompute", 4, "resnet", []),
    ("zero3=2,offload=1", 2, "gpt2", []),
    ("dp=2,cross_barrier=1", 2, "gpt2", []),
    ("dp=2,optimizer_in_backward=1", 2, "gpt2", []),
    (ORDERED, 2, "mlp", []),
    (OWN, 2, "gpt2", ["--dtype", "bf16"]),
    (CARVED, 4, "gpt2", ["--dtype", "f16"]),
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
    # Options in the file need not be repeated.
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
    print(f"{pathlib.Path(plan).name} {ranks} {sample} {' '.join(map(str, extra))}: {', '.join(wrong) or 'the same'}")
    return len(wrong)


def edit(text, old, new):
    if text.count(old) != 1:
        sys.exit(f"{text.count(old)} of {old}")
    return text.replace(old, new)


def apart(text, row, numbers):
    """Replaces a row for several layers by a row for each."""
    line = next(line for line in text.splitlines() if line.strip().startswith(row))
    each = (re.sub(r"\{ (\S+), .*? \}", rf"\1", line).replace("#", str(n), 1) for n in numbers)
    return edit(text, line, "\n".join(each))


def check_edits(folder):
    command = flags("mlp", 2, [])
    text = re.sub(r"(?<=\S) +", " ", save(command, "dp", folder / "saved.lua"))  # removes alignment
    text = apart(text, 'op_row({ "/layers/layers.#/Gemm", 0, 4, 2 }, "linear", "forward"', [0, 2, 4])
    text = apart(text, 'param_row({ "layers.#.weight", 0, 4, 2 }, "weight"', [0, 2, 4])
    mine = folder / "mine.lua"
    emit = [*command, "--plan", mine, "--emit", "nn", "--stop-after", "shard", "-o", folder / "out"]
    row = 'op_row("/layers/layers.2/Gemm", "linear", "forward", 1, "0")'
    weight = 'param_row("layers.2.weight", "weight", "-")'

    # An edited row: only this product is split by columns.
    mine.write_text(edit(edit(text, row, row.replace('"0"', '"n"')), weight, weight.replace('"-"', "0")))
    run(*emit)
    out = (folder / "out").read_text()
    if "%layers.2.weight: f32[48,96] {S(0)}" not in out or len(re.findall(r"= linear .*split=\[n\]", out)) != 2:
        sys.exit("the edited row does not show in @train and @eval")

    # A deleted row is left to propagation, with the same result here; and so is a row with the split false.
    for less in "", row.replace('"0"', "false"):
        mine.write_text(edit(text, row, less))
        run(*emit)
        if re.search(r"= linear .*split=\[n\]", (folder / "out").read_text()):
            sys.exit("an op without a row is split as it was said of it elsewhere")

    # A wrong row is one error, at the row; if the step differs from the saved one, the error says so.
    for old, new, more, message in [
        (row, row.replace('"0"', '"q"'), [], "error: linear has no letter 'q'"),
        (row, row.replace("layers.2", "layers.9"), [], "error: no linear of forward comes from the node"),
        (row, row.replace("1,", "{ 1, 2 },"), [], "error: the node '/layers/layers.2/Gemm' has 1 linear of forward"),
        (row, row.replace("1,", "{ 2, 1 },"), [], "error: ops of a node are numbered from 1: not from 2 to 1"),
        (row, row.replace('"0")', '"0", "-")'), [], "error: this row is about 2 axes, and the program has 1"),
        (row, row.replace('"0"', "{ 0 }"), [], "error: a letter on some ranks is written"),
        (row, row.replace('"0"', '{ "0", { 2 } }'), [], "error: there is no rank 2 of dp"),
        (row, row.replace('"/layers/layers.2/Gemm"', '{ "/layers/layers.#/Gemm", 2, 3 }'), [],
         "error: no linear of forward comes from the node '/layers/layers.3/Gemm'"),
        (row, row.replace('"/layers/layers.2/Gemm"', '{ "/layers/#.#", 2, 3 }'), [], "error: a row of several is named"),
        (row, row.replace('"/layers/layers.2/Gemm"', '{ "#", 3, 2 }'), [], "error: numbers of names go up"),
        (weight, weight.replace("2.w", "9.w"), [], "error: there is no weight 'layers.9.weight'"),
        (weight, weight.replace('"weight"', '"wait"'), [], "error: the roles are"),
        (weight, weight.replace('"-"', "2.5"), [], "error: 2.5 is no dimension of 'layers.2.weight'"),
        ("{ 2 }", "{ 3 }", [], "error: 'factors' returned axes for 3 ranks, and there are 2"),
        ("", "", ["-g", 4], "error: 'factors' returned axes for 2 ranks, and there are 4"),
        ("", "", ["--optimizer", "sgd:momentum=0.9"], "error: this plan was saved for updates by adam, and here they are"),
        ("", "", ["--batch", 15], "note: the plan was saved for a step of 16 rows, not 15"),
        ("function factors", "micro_batches = 0\nfunction factors", [],
         "error: 'micro_batches' must be a whole number from 1 to 1048576, not 0"),
        ('{ "dp" }', '{ "d p" }', [], "error: 'factors' returned a name 1 that is not of letters, digits and _"),
    ]:
        mine.write_text(edit(text, old, new) if old else text)
        said = run(*emit, *more, ok=1)
        lines = [int(n or 0) for n in re.findall(rf"^{re.escape(str(mine))}(?::(\d+)(?::\d+)?)?: error: ", said, re.M)]
        if message not in said or said.count("error: ") != 1 or len(lines) != 1:
            sys.exit(f"not '{message}':\n{said}")
        if old in (row, weight) and mine.read_text().splitlines()[lines[0] - 1].strip().split(" --")[0] != new:
            sys.exit(f"not at the row:\n{said}")


def check_layers(folder):
    """Checks that equal layers share one row, and that this row can be split by hand."""
    command = flags("gpt2", 2, [])
    text = save(command, "tp", folder / "saved.lua")
    row = re.search(r'op_row.*"/h.#/c_fc/MatMul", 0, 1 }, *"linear", *"forward"', text)[0]
    mine = folder / "mine.lua"
    mine.write_text(apart(text, row, [0, 1]))
    if save(command, mine, folder / "other.lua") != text:
        sys.exit("the same in two rows is another plan")


def main():
    seen, wrong = set(), 0
    with scratch() as folder:
        folder = pathlib.Path(folder)
        check_edits(folder)
        check_layers(folder)
        for plan, ranks, sample, extra in CASES:
            if plan not in seen or "--all" in sys.argv:
                wrong += check_round(folder, plan, ranks, sample, extra)
            seen.add(plan)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
