"""Context parallelism with files: checkpoints, saved and exported weights, saved plans; and its error in 16 bits.

A run that is interrupted and resumed ends with the bits of one that is not, and a checkpoint resumes on one rank.  An exported
model evaluates to the loss of the checkpoint.  A plan that --emit plan wrote is the same plan, and the dumps are proved.  In
bf16 and f16 weights differ from one rank's, because another plan keeps other values in 16 bits between its kernels; their
distance from those in f32 is that of one rank.
"""

import json
import pathlib
import shutil
import sys

from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference
from padded import apart, tensors
from plan_cases import BATCH, MODELS, compile_flags, data_flags

STEPS = 4
LIMIT = {"f32": 1e-5, "bf16": 2e-2, "f16": 5e-3}
# Model, plan, ranks, flags, types.
CASES = [
    ("bert", "cp", 4, [], ["f32", "bf16", "f16"]),
    ("gpt_tied", "cp_zero3", 4, ["--micro-batches", 2], ["f32", "bf16"]),
    ("bert", "cp_a2a", 4, [], ["f32", "bf16"]),
    ("gpt", "cp_zero1", 2, ["--batch", BATCH // 2, "--accumulate", 2], ["f32"]),
    ("gpt", "pp=2,cp=2", 4, ["--micro-batches", 2], ["f32"]),
    ("bert", "cp=2,recompute=1", 2, [], ["bf16"]),
]


def build(folder, model, ranks, plan, dtype, flags=()):
    exe = folder / f"{model}.{ranks}.{plan}.{dtype}"
    if not exe.exists():
        run(NNAOT, *compile_flags(model, folder), "-g", ranks, "--plan", plan, "--dtype", dtype, *flags, "-o", exe)
    return exe


def train(folder, exe, model, steps, *extra):
    """Returns losses and gradient norms, a pair for each step."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    run(exe, *data_flags(model, folder), "--steps", steps, "--log", log, *extra)
    return [(line["loss"], line["grad_norm"]) for line in read_log(log)]


def evaluate(folder, exe, model, *extra):
    """The loss of the weights in the executable, or with --resume of those in a checkpoint."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    data = ["--eval-input" if word == "--input" else word for word in data_flags(model, folder)]
    run(exe, *data, "--eval-only", "--log", log, *extra)
    return read_log(log)[-1]["eval_loss"]


def apart_logs(got, want):
    return worst_difference([x for pair in got for x in pair], [x for pair in want for x in pair])


def check_files(folder, model, plan, ranks, flags, dtype):
    what = f"{model}, {ranks} ranks, {plan}, {dtype}"
    one, exe = build(folder, model, 1, "dp", dtype), build(folder, model, ranks, plan, dtype, flags)
    kept, resumed, exported = folder / "kept.safetensors", folder / "resumed.safetensors", folder / "exported.onnx"
    whole = train(folder, exe, model, STEPS, "--save", kept, "--export", exported)
    d = apart_logs(whole, train(folder, one, model, STEPS))
    check(f"{what}: losses differ by {d}", d < LIMIT[dtype])
    # On as many ranks to the bit, and on one rank.
    checkpoints = ["--checkpoint-dir", folder / "checkpoints", "--checkpoint-every", STEPS // 2]
    for then in exe, one:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        train(folder, exe, model, STEPS // 2, *checkpoints)
        got = train(folder, then, model, STEPS, *checkpoints, "--resume", "--save", resumed)
        d = apart_logs(got, whole[STEPS // 2:])
        check(f"{what}: resumed on {'one rank' if then == one else 'as many'}, losses differ by {d}",
              len(got) == STEPS // 2 and (d < LIMIT[dtype] if then == one else got == whole[STEPS // 2:]))
        if then == exe:
            check(f"{what}: weights of a resumed run differ", resumed.read_bytes() == kept.read_bytes())
    # The exported model has the loss of the weights that it was exported with.
    again = folder / "again"
    run(NNAOT, exported, *compile_flags(model, folder)[1:], "--dtype", dtype, "-o", again)
    got, want = evaluate(folder, again, model), evaluate(folder, exe, model, *checkpoints[:2], "--resume")
    d = worst_difference([got], [want])
    check(f"{what}: the exported model's loss differs by {d}", d < LIMIT[dtype] and abs(got - whole[0][0]) > 1e-3)


def check_precision(folder, model, ranks, dtype):
    """After one step of sgd weights differ by the errors of gradients."""
    flags = compile_flags(model, folder)
    at = flags.index("--optimizer")
    flags[at:] = ["--optimizer", "sgd", *MODELS[model].get("flags", [])]
    after = {}
    for plan, n, t in ("dp", 1, "f32"), ("dp", 1, dtype), ("cp", ranks, dtype), ("cp_a2a", ranks, dtype):
        run(NNAOT, *flags, "--plan", plan, "-g", n, "--dtype", t, "-o", folder / "step")
        train(folder, folder / "step", model, 1, "--save", folder / "after.safetensors")
        after[plan, t] = tensors(folder / "after.safetensors")
    exact = after["dp", "f32"]

    def error(got):
        """Of all weights together."""
        pairs = [(g, w) for name, (_, values) in exact.items() for g, w in zip(got[name][1], values)]
        return (sum((g - w)**2 for g, w in pairs) / sum(w * w for _, w in pairs))**0.5

    one = error(after["dp", dtype])
    check(f"{model} in {dtype}: one rank has no error", one > 0)
    for plan in "cp", "cp_a2a":
        is_ = error(after[plan, dtype])
        check(f"{model}, {plan} on {ranks} ranks: error {is_:.2e}, one rank's {one:.2e}", is_ <= 1.15 * one)


def check_saved_plan(folder, model, plan, ranks, flags):
    command = [NNAOT, *compile_flags(model, folder), "-g", ranks, *flags]
    text, dump = folder / "mine.lua", folder / "dump"
    run(*command, "--plan", plan, "--emit", "plan", "-o", text, "--dump-dir", dump)
    hashes = []
    for p in plan, text:
        run(*command, "--plan", p, "--emit", "plan", "-o", folder / "plan.json")
        hashes.append(json.loads((folder / "plan.json").read_text())["plan_hash"])
    check(f"{model}, {plan}: the saved plan is another", hashes[0] == hashes[1])
    # The program before shard proves the last one.
    files = sorted(dump.glob("*.nn"))
    before = files[[f.stem.split("-", 1)[1] for f in files].index("shard") - 1]
    run(NNAOT, files[-1], "--passes=", "--prove", before, "--emit", "nn", "-o", folder / "proved.nn")
    shutil.rmtree(dump)


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for model, plan, ranks, flags, dtypes in CASES:
            for dtype in dtypes:
                check_files(folder, model, plan, ranks, flags, dtype)
        for model, ranks, dtype in ("bert", 4, "bf16"), ("mixtral", 8, "bf16"), ("bert", 8, "f16"):
            check_precision(folder, model, ranks, dtype)
        for model, plan, ranks, flags in (("gpt", "cp", 4, []), ("bert", "cp_zero3", 2, ["--dtype", "bf16"]),
                                          ("gpt", "pp=2,cp=2", 4, ["--micro-batches", 2]), ("bert", "cp_a2a", 4, []),
                                          ("gpt", "cp=2,cp_a2a=2", 4, [])):
            check_saved_plan(folder, model, plan, ranks, flags)
    finish()


if __name__ == "__main__":
    sys.exit(main())
