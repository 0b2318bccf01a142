"""A vocabulary that ranks do not divide is padded, and nobody but the ranks knows.

The models of plan_cases have 64 words, and 3 ranks have 22 each: 2 rows of the table, 2 columns of the logits are padding.
In f32, bf16 and f16 the losses and gradient norms are those of one rank.  The weights that --save and --export write,
and checkpoints, have 64 words and the values of one rank; a checkpoint resumes under another plan, with another padding or
none; a plan that --emit plan wrote is the same plan.  A token of the padding is refused, as on one rank.
"""

import itertools
import json
import pathlib
import re
import struct
import sys

from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference, write_npy
from plan_cases import compile_flags, data_flags

STEPS = 6
RUNS = itertools.count()
LIMIT = {"f32": 1e-5, "bf16": 2e-2, "f16": 5e-3}
# Model, plan, ranks that share the vocabulary, flags, types.  The weight that is padded.
CASES = [
    ("gpt_tied", "vp", 3, [], ["f32", "bf16", "f16"], "wte.weight"),
    ("bert", "vp", 3, ["--micro-batches", 2], ["f32", "bf16"], "wte.weight"),
    ("gpt_tied", "pp_interlaced", 3, ["--micro-batches", 4], ["f32", "bf16"], "wte.weight"),
    ("gpt_tied", "pp_interlaced=3,tp=4", 12, ["--micro-batches", 4], ["f32"], "wte.weight"),
]


def build(folder, model, ranks, plan, dtype, flags=()):
    exe = folder / f"{model}.{ranks}.{plan}.{dtype}"
    if not exe.exists():
        run(NNAOT, *compile_flags(model, folder), "-g", ranks, "--plan", plan, "--dtype", dtype, *flags, "-o", exe)
    return exe


def train(folder, exe, model, steps=STEPS, extra=()):
    log = folder / f"{next(RUNS)}.log"
    run(exe, *data_flags(model, folder), "--steps", steps, "--log", log, *extra)
    lines = read_log(log)
    return [line["loss"] for line in lines] + [line["grad_norm"] for line in lines]


def tensors(path):
    """The tensors of a .safetensors: name -> (shape, values of f32)."""
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__" and t["dtype"] == "F32":
            first, last = (8 + n + at for at in t["data_offsets"])
            found[name] = t["shape"], struct.unpack(f"<{(last - first) // 4}f", raw[first:last])
    return found


def norm(values):
    return sum(v * v for v in values) ** 0.5


def apart(got, want):
    """The largest relative difference of the norms; shapes must be equal.  NaN counts as infinite."""
    worst = 0.0
    for name, (shape, values) in want.items():
        if name not in got or got[name][0] != shape:
            return float("inf")
        d = norm(g - v for g, v in zip(got[name][1], values)) / max(norm(values), 1e-30)
        worst = max(worst, d if d == d else float("inf"))
    return worst


def apart_together(got, want):
    """The same of all weights as one vector."""
    if apart(got, want) == float("inf"):
        return float("inf")
    d = norm(g - v for name in want for g, v in zip(got[name][1], want[name][1]))
    return d / norm(v for shape, values in want.values() for v in values)


def check_plan(folder, model, plan, ranks, flags, dtype, weight):
    what = f"{model}, {ranks} ranks, {plan}, {dtype}"
    one, exe = build(folder, model, 1, "dp", dtype), build(folder, model, ranks, plan, dtype, flags)
    files = {e: [folder / f"{e.name}{end}" for end in (".safetensors", ".onnx")] for e in (one, exe)}
    losses = {e: train(folder, e, model, extra=["--save", files[e][0], "--export", files[e][1]]) for e in (one, exe)}
    d = worst_difference(losses[exe], losses[one])
    check(f"{what}: losses differ by {d}", d < LIMIT[dtype])
    got, want = tensors(files[exe][0]), tensors(files[one][0])
    if dtype == "f32":
        d = apart(got, want)
        check(f"{what}: saved weights differ by {d}", d < 2 * LIMIT[dtype])
    else:
        # The sign of a gradient near zero is rounding, and Adam makes a whole step of it: one of 16 elements of a bias
        # is 0.14 of its norm.
        d = apart_together(got, want)
        check(f"{what}: saved weights differ by {d}", d < LIMIT[dtype] / 10)
        d = apart({weight: got[weight]}, {weight: want[weight]})
        check(f"{what}: '{weight}' differs by {d}", d < LIMIT[dtype] / 20)
    # The exported model has as many bytes, and those of the saved weight.
    check(f"{what}: the exported model has another size", files[exe][1].stat().st_size == files[one][1].stat().st_size)
    shape, values = got[weight]
    check(f"{what}: '{weight}' is not in the exported model",
          struct.pack(f"<{len(values)}f", *values) in files[exe][1].read_bytes(), shape)
    # The table is split: each rank has its share of the padded rows.
    text = folder / "plan.nn"
    run(NNAOT, *compile_flags(model, folder), "-g", ranks, "--plan", plan, "--dtype", dtype, *flags, "--emit", "nn",
        "--stop-after", "comm", "-o", text)
    check(f"{what}: '{weight}' is not split",
          f'f32[{(72 if ranks == 12 else 66) // ranks},{shape[1]}] ' in text.read_text().split(f'weight "{weight}"')[0][-60:])


def check_resume(folder):
    model = "gpt_tied"
    want = train(folder, build(folder, model, 1, "dp", "f32"), model)
    for first, then in (("vp", 3), ("dp", 1)), (("dp", 1), ("vp", 3)), (("vp", 3), ("vp", 5)):
        dir = folder / f"{first}.{then}"
        flags = ["--checkpoint-dir", dir, "--checkpoint-every", STEPS // 2]
        train(folder, build(folder, model, first[1], first[0], "f32"), model, STEPS // 2, flags)
        kept = tensors(next(dir.glob("*.safetensors")))
        check(f"{first}: the checkpoint has padding", kept["weight/wte.weight"][0][0] == 64, kept["weight/wte.weight"][0])
        check(f"{first}: so have its states", kept["state/wte.weight.exp_avg"][0][0] == 64)
        got = train(folder, build(folder, model, then[1], then[0], "f32"), model, STEPS, [*flags, "--resume"])
        half = [x for part in (want[:STEPS], want[STEPS:]) for x in part[STEPS // 2:]]
        d = worst_difference(got, half)
        check(f"{first} resumed as {then}: losses differ by {d}", d < LIMIT["f32"])


def check_saved(folder, command, plan, words):
    """A plan that is written as a program has these words, and is the same plan when it is read."""
    mine = folder / "mine.lua"
    run(*command, "--plan", plan, "--emit", "plan", "-o", mine)
    check(f"the saved plan has no {words}", re.search(words, mine.read_text()), mine.read_text()[:2000])
    hashes = []
    for text in plan, mine:
        run(*command, "--plan", text, "--emit", "plan", "-o", folder / "plan.json")
        hashes.append(json.loads((folder / "plan.json").read_text())["plan_hash"])
    check("the saved plan is another", hashes[0] == hashes[1])


def check_bad_token(folder):
    path = folder / "bad.npy"
    write_npy(path, [64] * 16 * 8, (8, 16), "<i8")
    for ranks, plan in (1, "dp"), (3, "vp"):
        exe = build(folder, "gpt_tied", ranks, plan, "f32")
        said = run(exe, "--input", f"input_ids={path}", "--steps", 1, ok=None)
        check(f"{plan} takes token 64", "64" in said and "error" in said and "loss" not in said.split("error")[0], said)


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for model, plan, ranks, flags, dtypes, weight in CASES:
            for dtype in dtypes:
                check_plan(folder, model, plan, ranks, flags, dtype, weight)
        check_resume(folder)
        check_saved(folder, [NNAOT, *compile_flags("gpt_tied", folder), "-g", 3], "vp", r"pad\(o\[\d\], 3\)")
        check_bad_token(folder)
    finish()


if __name__ == "__main__":
    sys.exit(main())
