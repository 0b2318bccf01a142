"""Programs for gpus, run on the emulator: losses of 20 steps equal those of the same program for processors, also
when the batch is cut into micro-batches.  A run that is resumed goes on with the same bits, and what is in host memory
until backward, or from step to step, changes none, nor do updates in backward.

    emulated.py SAMPLE     in f32 against --target cpu, in bf16 against PyTorch in f32; 1, 2 and 4 ranks

Prints a table of largest relative differences of the loss.
"""

import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import BUILD, SAMPLE, SAMPLES, compile_sample, scratch, train, worst_difference  # noqa: E402

LIMIT = {"f32": 1e-5, "bf16": 2e-2}


def losses(folder, name, ranks, steps, extra):
    exe, log = pathlib.Path(folder, "train"), pathlib.Path(folder, "log.jsonl")
    compile_sample(name, exe, "adamw", ranks, extra)
    log.unlink(missing_ok=True)
    return [line["loss"] for line in train(exe, name, steps, log)]


def cut_differs(folder, name):
    """Weight gradients are added up over micro-batches by their products, and over ranks after that."""
    if name == "resnet":
        return False  # its BatchNormalization couples the rows of a batch
    half, failed = SAMPLE[name]["batch"] // 2, False
    for ranks, cut in (1, ["--micro-batches", 2]), (2, ["--batch", half, "--accumulate", 2]):
        want = losses(folder, name, ranks, 8, cut)
        got = losses(folder, name, ranks, 8, ["--target", "cuda:sm_90", *cut])
        d = worst_difference(got, want)
        print(f"{name:8} f32   {ranks:5} cpu      {d:9.1e}   {' '.join(map(str, cut))}", flush=True)
        failed |= not d < LIMIT["f32"]
    return failed


def resumed_differs(folder, name, plan):
    """A checkpoint holds no weights in 16 bits: they are made again, and the run goes on as it would have."""
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


def away_differs(folder, name):
    cut = [] if name == "resnet" else ["--micro-batches", 4]  # its BatchNormalization couples the rows of a batch
    failed = False
    for ranks, without, plan, more in ((1, "dp", "swap", []), (2, "pp=2", "pp=2,swap=1", cut),
                                       (4, "zero3=4", "zero3=4,swap=1", []), (1, "dp", "offload", []),
                                       (1, "dp", "optimizer_in_backward", ["--dtype", "bf16"]),
                                       (2, "dp", "offload=2,optimizer_in_backward=1", []),
                                       (2, "zero3=2", "zero3=2,offload=1", ["--dtype", "bf16"])):
        cuda = ["--target", "cuda:sm_90", *more, "--plan"]
        same = losses(folder, name, ranks, 5, [*cuda, plan]) == losses(folder, name, ranks, 5, [*cuda, without])
        print(f"{name:8} {ranks:11} {without:8} {'the same bits' if same else 'other bits'}   {plan} {' '.join(map(str, more))}",
              flush=True)
        failed |= not same
    return failed


def main(name):
    os.environ["NVCC"] = str(BUILD / "emulator" / "nvcc")
    torch = json.loads((SAMPLES / name / "expected.json").read_text())["adamw"]["loss"]
    failed = 0
    print(f"{'sample':8} {'dtype':5} {'ranks':5} {'against':8} {'loss':>9}")
    with scratch() as folder:
        for ranks in 1, 2, 4:
            cpu = losses(folder, name, ranks, len(torch), [])
            for dtype, against, want in ("f32", "cpu", cpu), ("bf16", "PyTorch", torch):
                got = losses(folder, name, ranks, len(torch), ["--target", "cuda:sm_90", "--dtype", dtype])
                d = worst_difference(got, want)
                print(f"{name:8} {dtype:5} {ranks:5} {against:8} {d:9.1e}", flush=True)
                failed |= not d < LIMIT[dtype]
        failed |= cut_differs(folder, name)
        failed |= resumed_differs(folder, name, "dp") | resumed_differs(folder, name, "offload")
        failed |= away_differs(folder, name)
    return failed


sys.exit(main(*sys.argv[1:]))
