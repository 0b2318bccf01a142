"""Under zero1 a step in 16 bits stores f32 weights in parts, as their states, and gathers 16-bit weights once per step.

For every row of CASES losses, gradient norms and the weights that --save and --export write are those of one rank in the
same type.  A rank holds its part of every matrix, and gathers it once, in 16 bits, for all micro-batches and for
backward.  A checkpoint resumes with another plan and number of ranks; a plan that --emit plan wrote is the same plan.
In f32 weights stay whole.
"""

import math
import pathlib
import re

from common import NNAOT, check, compile_in_a_hurry, finish, run, scratch, worst_difference
from padded import LIMIT, STEPS, apart, check_saved, tensors, train
from plan_cases import BATCH, compile_flags

HALF = ["bf16", "f16"]
LAMB = ["--optimizer", "lamb"]
TWO = ["--micro-batches", 2]
# Model, plan, ranks, flags, types; the axis over which weights are stored in parts, and the ranks that share a layer's.
CASES = [
    ("gpt", "zero1", 2, [], HALF, "zero1", 2),
    ("gpt_tied", "zero2", 4, TWO, HALF, "zero2", 4),
    ("gpt", "zero1=2,sp=2", 4, TWO, HALF, "zero1", 4),
    ("gpt", "pp=2,zero1=2", 4, TWO, HALF, "zero1", 2),
    ("gpt_tied", "pp_zb_h1=2,zero1=2,tp=2", 8, ["--micro-batches", 4], ["bf16"], "zero1", 4),
    ("bert", "tp=2,zero1=2", 4, TWO, ["bf16"], "zero1", 4),
    ("gpt", "zero1=2,recompute=1", 2, TWO, ["bf16"], "zero1", 2),
    ("gpt", "zero1=2,offload=1", 2, TWO, ["bf16"], "zero1", 2),
    ("gpt", "zero1=2,optimizer_in_backward=1", 2, [], ["bf16"], "zero1", 2),
    ("gpt", "cp_zero1", 2, TWO, ["bf16"], "cp_zero1", 2),
    ("vit", "zero1", 2, LAMB, ["bf16"], "zero1", 2),
    ("moe", "zero1", 2, ["--batch", BATCH // 2, "--accumulate", 2], ["bf16"], "zero1", 2),
]
EARLY = ["optimizer_in_backward"]  # not with a norm over all gradients


def flags_of(model, folder, plan, flags):
    all = [*compile_flags(model, folder), *flags]
    if any(name in plan for name in EARLY):
        at = all.index("--clip-norm")
        del all[at:at + 2]
    return all


def build(folder, model, ranks, plan, dtype, flags, name):
    exe = folder / f"{model}.{ranks}.{name}.{dtype}"
    if not exe.exists():
        run(NNAOT, *flags_of(model, folder, name, flags), "-g", ranks, "--plan", plan, "--dtype", dtype, "-o", exe)
    return exe


def plan_text(folder, model, plan, ranks, flags, dtype):
    text = folder / "plan.nn"
    run(NNAOT, *flags_of(model, folder, plan, flags), "-g", ranks, "--plan", plan, "--dtype", dtype, "--emit", "nn",
        "--stop-after", "comm", "-o", text)
    return text.read_text().split("graph @eval")[0]


def matrices(text):
    """The matrices of a rank, of layers: label -> elements."""
    found = re.findall(r'f32\[([\d,]+)\][^"\n]* weight "(h\.\d[^"]*)"(?: as f32\[([\d,]+)\])? train', text)
    return {label: math.prod(map(int, shape.split(","))) for shape, label, known in found if "," in (known or shape)}


def check_plan(folder, model, plan, ranks, flags, dtype, axis, parts):
    what = f"{model}, {ranks} ranks, {plan}, {dtype}"
    same = [f for f in flags if flags == LAMB]
    kind = "lamb" if same else next((name for name in EARLY if name in plan), "dp")
    one, exe = build(folder, model, 1, "dp", dtype, same, kind), build(folder, model, ranks, plan, dtype, flags, plan)
    files = {e: [folder / f"{e.name}{end}" for end in (".safetensors", ".onnx")] for e in (one, exe)}
    losses = {e: train(folder, e, model, extra=["--save", files[e][0], "--export", files[e][1]]) for e in (one, exe)}
    d = worst_difference(losses[exe], losses[one])
    check(f"{what}: losses differ by {d}", d < LIMIT[dtype])
    d = apart(tensors(files[exe][0]), tensors(files[one][0]))
    check(f"{what}: saved weights differ by {d}", d < 0.1)
    check(f"{what}: the exported model has another size", files[exe][1].stat().st_size == files[one][1].stat().st_size)
    text = plan_text(folder, model, plan, ranks, flags, dtype)
    whole, here = matrices(plan_text(folder, model, "dp", 1, same, dtype)), matrices(text)
    check(f"{what}: other matrices", here.keys() == whole.keys() and whole, here, whole)
    check(f"{what}: whole matrices", all(n * parts == whole[k] for k, n in here.items()), here, whole)
    gathers = re.findall(rf'all_gather .*axis="{axis}".* : {dtype}\[.*', text)
    back = [line for line in gathers if " backward " in line or " update " in line]
    check(f"{what}: gathered again", len(gathers) >= len(whole) and not back, *back)


def check_f32(folder):
    text = plan_text(folder, "gpt", "zero1", 2, [], "f32")
    whole = matrices(plan_text(folder, "gpt", "dp", 1, [], "f32"))
    check("f32: weights are not whole", matrices(text) == whole, matrices(text), whole)


def check_resume(folder):
    model = "gpt"
    want = train(folder, build(folder, model, 1, "dp", "bf16", [], "dp"), model)
    half = [x for part in (want[:STEPS], want[STEPS:]) for x in part[STEPS // 2:]]
    for first, then in (("zero1", 2), ("zero1=2,sp=2", 4)), (("pp=2,zero1=2", 4), ("dp", 1)), (("dp", 1), ("zero1", 4)):
        dir = folder / f"{first[0]}.{then[0]}"
        flags = ["--checkpoint-dir", dir, "--checkpoint-every", STEPS // 2]
        train(folder, build(folder, model, first[1], first[0], "bf16", [], first[0]), model, STEPS // 2, flags)
        got = train(folder, build(folder, model, then[1], then[0], "bf16", [], then[0]), model, STEPS, [*flags, "--resume"])
        d = worst_difference(got, half)
        check(f"{first} resumed as {then}: losses differ by {d}", d < LIMIT["bf16"])


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for model, plan, ranks, flags, dtypes, axis, parts in CASES:
            for dtype in dtypes:
                check_plan(folder, model, plan, ranks, flags, dtype, axis, parts)
        check_f32(folder)
        check_resume(folder)
        command = [NNAOT, *compile_flags("gpt", folder), "-g", 4, "--dtype", "bf16", "--micro-batches", 2]
        check_saved(folder, command, "pp=2,zero1=2", r'pin\(.*, "all"\)')
    finish()


if __name__ == "__main__":
    main()
