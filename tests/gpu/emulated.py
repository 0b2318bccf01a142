"""GPU programs, run on the emulator: losses equal those of the same program on the CPU, also with micro-batches.  A resumed
run continues with the same bits; offloaded activations, weights and states in host memory change none, nor do updates in
backward.

    emulated.py SAMPLE [--all]   in f32 against --target cpu, in bf16 against PyTorch in f32

The smallest sample is run in every way, on 1, 2 and 4 ranks; of the others, which take long to compile, each way that
may differ for its operators: attention and stages in gpt2, convolutions and BatchNormalization in resnet.
--all runs everything of any sample.  Prints a table of largest relative differences of the loss.
"""

import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import BUILD, SAMPLE, SAMPLES, compile_in_a_hurry, compile_sample, scratch, train, worst_difference  # noqa: E402

LIMIT = {"f32": 1e-5, "bf16": 2e-2}
COUPLES = ["resnet"]  # BatchNormalization couples the rows of a batch: no micro-batches

# Compared combinations of ranks and types, and the number of steps.
RUNS = [(ranks, dtype) for ranks in (1, 2, 4) for dtype in ("f32", "bf16")]
SOME_RUNS = {"gpt2": [(1, "f32"), (2, "bf16"), (4, "f32")], "resnet": [(1, "bf16"), (4, "f32")]}
STEPS = {"mlp": 20, "gpt2": 8, "resnet": 8}

# Ranks, a plan, one that has the same bits, and more flags.
SAME = [(1, "dp", "swap", []), (2, "pp=2", "pp=2,swap=1", ["--micro-batches", 4]), (4, "zero3=4", "zero3=4,swap=1", []),
        (1, "dp", "offload", []), (1, "dp", "optimizer_in_backward", ["--dtype", "bf16"]),
        (2, "dp", "offload=2,optimizer_in_backward=1", []), (2, "zero3=2", "zero3=2,offload=1", ["--dtype", "bf16"])]
SOME_SAME = {"gpt2": [SAME[1], SAME[6]], "resnet": [SAME[0], SAME[4]]}


def losses(folder, name, ranks, steps, extra):
    exe, log = pathlib.Path(folder, "train"), pathlib.Path(folder, "log.jsonl")
    compile_sample(name, exe, "adamw", ranks, extra)
    log.unlink(missing_ok=True)
    return [line["loss"] for line in train(exe, name, steps, log)]


def cut_differs(folder, name, every):
    """Weight gradients are accumulated over micro-batches by their products, or in host memory, and then reduced over ranks."""
    half, failed = SAMPLE[name]["batch"] // 2, False
    cuts = [(1, ["--micro-batches", 2]), (2, ["--micro-batches", 2, "--plan", "zero1=2,offload_gradients=1"]),
            (2, ["--batch", half, "--accumulate", 2])]
    for ranks, cut in cuts if every else cuts[:2]:
        want = losses(folder, name, ranks, 8, cut)
        got = losses(folder, name, ranks, 8, ["--target", "cuda:sm_90", *cut])
        d = worst_difference(got, want)
        print(f"{name:8} f32   {ranks:5} cpu      {d:9.1e}   {' '.join(map(str, cut))}", flush=True)
        failed |= not d < LIMIT["f32"]
    return failed


def resumed_differs(folder, name, plan):
    """A checkpoint holds no 16-bit weights: they are recomputed, and the run continues as if uninterrupted."""
    exe, log, checkpoints = (pathlib.Path(folder, part) for part in ("train", "log.jsonl", "checkpoints"))
    compile_sample(name, exe, "adamw", 2, ["--target", "cuda:sm_90", "--dtype", "bf16", "--plan", plan])
    keep = ["--checkpoint-dir", checkpoints, "--checkpoint-every", 2]
    log.unlink(missing_ok=True)
    want = [line["loss"] for line in train(exe, name, 5, log, keep)]
    for later in 4, 5:
        (checkpoints / f"step-{later:012}.safetensors").unlink()
    log.unlink()
    got = [line["loss"] for line in train(exe, name, 5, log, [*keep, "--resume"])]
    same = len(got) == 3 and got == want[2:]
    shutil.rmtree(checkpoints)
    print(f"{name:8} bf16  {plan}, resumed after step 2: {'the same bits' if same else f'{got}, not {want[2:]}'}")
    return not same


def same_differs(folder, name, every):
    failed = False
    for ranks, without, plan, more in SAME if every else SOME_SAME[name]:
        cuda = ["--target", "cuda:sm_90", *([] if name in COUPLES and "--micro-batches" in more else more), "--plan"]
        same = losses(folder, name, ranks, 5, [*cuda, plan]) == losses(folder, name, ranks, 5, [*cuda, without])
        print(f"{name:8} {ranks:11} {without:8} {'the same bits' if same else 'other bits'}   {plan} {' '.join(map(str, more))}",
              flush=True)
        failed |= not same
    return failed


def main(name, every):
    os.environ["NVCC"] = str(BUILD / "emulator" / "nvcc")
    steps = None if every else STEPS[name]
    every |= name not in SOME_RUNS
    torch = json.loads((SAMPLES / name / "expected.json").read_text())["adamw"]["loss"][:steps]
    failed = 0
    print(f"{'sample':8} {'dtype':5} {'ranks':5} {'against':8} {'loss':>9}")
    with scratch() as folder:
        compile_in_a_hurry(folder)
        for ranks, dtype in RUNS if every else SOME_RUNS[name]:
            against = "cpu" if dtype == "f32" else "PyTorch"
            want = losses(folder, name, ranks, len(torch), []) if dtype == "f32" else torch
            got = losses(folder, name, ranks, len(torch), ["--target", "cuda:sm_90", "--dtype", dtype])
            d = worst_difference(got, want)
            print(f"{name:8} {dtype:5} {ranks:5} {against:8} {d:9.1e}", flush=True)
            failed |= not d < LIMIT[dtype]
        if name not in COUPLES:
            failed |= cut_differs(folder, name, every)
        for plan in ("dp", "offload") if every else ("dp",):
            failed |= resumed_differs(folder, name, plan)
        failed |= same_differs(folder, name, every)
    return failed


sys.exit(main(sys.argv[1], "--all" in sys.argv[2:]))
