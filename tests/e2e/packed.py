"""Tensor ranks store packed weights in parts: of q, k and v, with fewer heads of keys or one, and of gates.

The layers of `packed` take one product apart as libraries do: as timm, MultiheadAttention, ChatGLM and Falcon.  In f32, bf16
and f16 losses, gradient norms and the weights that --save and --export write are those of one rank.  A rank stores its part
of each packed weight, bias and state, and gathers no weight; heads that several groups of columns hold are exchanged once
in a step, not for each micro-batch.  A checkpoint resumes with another number of ranks; a plan that --emit plan wrote is
the same plan.
"""

import json
import pathlib
import re

from common import NNAOT, check, compile_in_a_hurry, finish, run, scratch, worst_difference
from padded import LIMIT, STEPS, apart, build, check_saved, tensors, train
from plan_cases import compile_flags

MODEL = "packed"
TWO = ["--micro-batches", 2]
# Plan, ranks, flags, types; the tensor axis, and its ranks.
CASES = [
    ("sp", 2, [], ["f32", "bf16", "f16"], "sp", 2),
    ("tp", 2, TWO, ["f32", "bf16", "f16"], "tp", 2),
    ("sp", 4, TWO, ["f32", "bf16"], "sp", 4),
    ("vp", 2, [], ["f32"], "vp", 2),
    ("dp=2,sp=2", 4, TWO, ["f32"], "sp", 2),
    ("zero1=2,sp=2", 4, TWO, ["f32", "bf16"], "sp", 2),
    ("zero3=2,tp=2", 4, TWO, ["bf16"], "tp", 2),
    ("pp=2,sp=2", 4, TWO, ["f32", "bf16"], "sp", 2),
    ("pp_zb_h1=2,tp=2,recompute=1", 4, ["--micro-batches", 4], ["f32"], "tp", 2),
]


def text_of(folder, plan, ranks, flags, dtype):
    text = folder / "plan.nn"
    run(NNAOT, *compile_flags(MODEL, folder), "-g", ranks, "--plan", plan, "--dtype", dtype, *flags, "--emit", "nn",
        "--stop-after", "comm", "-o", text)
    return text.read_text().split("graph @eval")[0]


def elements(text):
    """Packed weights and biases, and their states, of a rank: label -> elements."""
    found = re.findall(r'f32\[([\d,]+)\][^"\n]* (?:weight|state) "(h\.\d\.(?:qkv|up)\.[^"]*)"', text)
    out = {}
    for shape, label in found:
        out[label] = 1
        for size in shape.split(","):
            out[label] *= int(size)
    return out


def check_plan(folder, plan, ranks, flags, dtype, axis, parts):
    what = f"{ranks} ranks, {plan}, {dtype}"
    one, exe = build(folder, MODEL, 1, "dp", dtype), build(folder, MODEL, ranks, plan, dtype, flags)
    files = {e: [folder / f"{e.name}{end}" for end in (".safetensors", ".onnx")] for e in (one, exe)}
    losses = {e: train(folder, e, MODEL, extra=["--save", files[e][0], "--export", files[e][1]]) for e in (one, exe)}
    d = worst_difference(losses[exe], losses[one])
    check(f"{what}: losses differ by {d}", d < LIMIT[dtype])
    d = apart(tensors(files[exe][0]), tensors(files[one][0]))
    check(f"{what}: saved weights differ by {d}", d < 2 * LIMIT[dtype] if dtype == "f32" else d < 0.1)
    check(f"{what}: the exported model has another size", files[exe][1].stat().st_size == files[one][1].stat().st_size)
    text = text_of(folder, plan, ranks, flags, dtype)
    whole, here = elements(text_of(folder, "dp", 1, [], dtype)), elements(text)
    check(f"{what}: other packed weights", here.keys() == whole.keys() and len(whole) == 36, len(whole), here.keys())
    # The one head of keys of layer 3 has two columns.
    bad = {k: n for k, n in here.items() if n * parts > whole[k] and not (parts > 2 and k.startswith("h.3.qkv"))}
    check(f"{what}: whole packed weights", not bad, bad)
    gathered = re.findall(rf'.* = all_gather %"?h\.\d\.(?:qkv|up).* axis="{axis}".*', text)
    check(f"{what}: gathered weights", not gathered, *gathered)


def check_exchange(folder):
    """Weights cross between ranks once in a step: bytes do not grow with the micro-batches.  With more ranks than a part has
    groups of columns, these are gathered."""
    manifest = folder / "manifest.json"
    for ranks, kind in (2, "all_to_all"), (4, "all_gather"):
        sent = []
        for n in 1, 4:
            run(NNAOT, *compile_flags(MODEL, folder), "-g", ranks, "--plan", "tp", "--micro-batches", n, "--emit", "plan", "-o",
                folder / "plan.json", "--comm-manifest", manifest)
            sent.append(sum(c["bytes"] * c["count"] for c in json.loads(manifest.read_text()) if c["kind"] == kind))
        check(f"{ranks} ranks: {kind} depends on the micro-batches", 0 < sent[0] == sent[1], *sent)


def check_resume(folder):
    want = train(folder, build(folder, MODEL, 1, "dp", "f32"), MODEL)
    half = [x for part in (want[:STEPS], want[STEPS:]) for x in part[STEPS // 2:]]
    for first, then in (("sp", 2), ("dp", 1)), (("dp", 1), ("sp", 4)), (("tp", 4), ("dp=2,sp=2", 4)):
        dir = folder / f"{first[0]}.{then[0]}"
        flags = ["--checkpoint-dir", dir, "--checkpoint-every", STEPS // 2]
        train(folder, build(folder, MODEL, first[1], first[0], "f32"), MODEL, STEPS // 2, flags)
        got = train(folder, build(folder, MODEL, then[1], then[0], "f32"), MODEL, STEPS, [*flags, "--resume"])
        d = worst_difference(got, half)
        check(f"{first} resumed as {then}: losses differ by {d}", d < LIMIT["f32"])


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for plan, ranks, flags, dtypes, axis, parts in CASES:
            for dtype in dtypes:
                check_plan(folder, plan, ranks, flags, dtype, axis, parts)
        check_exchange(folder)
        check_resume(folder)
        check_saved(folder, [NNAOT, *compile_flags(MODEL, folder), "-g", 4, *TWO], "pp=2,sp=2", "unpack")
    finish()


if __name__ == "__main__":
    main()
