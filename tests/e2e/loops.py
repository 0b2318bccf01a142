"""Models whose Scan or Loop stays a loop, or with an If on data, train like PyTorch's, on one rank and on several.

loops/make.py made the models, their data, and PyTorch's numbers in f64: the losses of 5 steps of sgd with momentum, and the
norm of all weights afterwards.  They may differ by 1e-6, in 16 bits by more.  The program does not grow with the number of
iterations.
"""

import json
import pathlib

from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference
from plans import norm, read_weights

HERE = pathlib.Path(__file__).resolve().parent / "loops"
ONE = ["--batch", 8]
CUTS = [["--batch", 8, "--micro-batches", 4], ["--batch", 4, "--accumulate", 2], [*ONE, "-g", 2, "--plan", "dp=2"],
        [*ONE, "-g", 4, "--plan", "dp=4"], [*ONE, "-g", 2, "--plan", "pp=2", "--micro-batches", 2],
        [*ONE, "-g", 4, "--plan", "dp=2,pp=2", "--micro-batches", 4], [*ONE, "-g", 2, "--plan", "zero3=2"],
        [*ONE, "-g", 2, "--plan", "auto"], [*ONE, "--plan", "recompute"]]
DATA = {"branch": ("rows", "goals"), "until": ("rows", "goals")}
RATE = {"until": 0.05}
LIMIT = {"f32": 1e-6, "bf16": 2e-2, "f16": 2e-3}


def trains(folder, model, cut, dtype="f32"):
    want = json.loads((HERE / "expected.json").read_text())[model if model in DATA else "scan"]
    x, target = DATA.get(model, ("x", "target"))
    exe, log, weights = folder / "train", folder / "log.jsonl", folder / "weights.safetensors"
    log.unlink(missing_ok=True)
    run(NNAOT, HERE / f"{model}.onnx", "--loss", "mse(out)", "--optimizer", "sgd:momentum=0.9", "--lr", RATE.get(model, 0.5),
        "--dtype", dtype, *cut, "-o", exe)
    run(exe, "--input", f"x={HERE / x}.npy", "--input", f"target={HERE / target}.npy", "--steps", len(want["loss"]),
        "--log", log, "--save", weights)
    losses = worst_difference([line["loss"] for line in read_log(log)], want["loss"])
    saved = norm([v for _, values in read_weights(weights).values() for v in values])
    print(f"{model} {dtype} {' '.join(map(str, cut))}: losses {losses:.1e}, norm {abs(saved / want['norm'] - 1):.1e}",
          flush=True)
    check(f"{model} {dtype} {cut}", losses < LIMIT[dtype] and abs(saved / want["norm"] - 1) < LIMIT[dtype])


def refused(folder):
    text = run(NNAOT, HERE / "branch.onnx", "--loss", "mse(out)", "--batch", 4, "--accumulate", 2, "-o", folder / "no", ok=1)
    check("micro-batches cannot select by the whole batch", "branch.onnx:ReduceSum(sum): error: reduce_sum reduces over the "
          "batch, and every micro-batch reads the result" in text, text)


def does_not_grow(folder):
    sizes = []
    for model in ("scan", "long"):
        run(NNAOT, HERE / f"{model}.onnx", "--loss", "mse(out)", *ONE, "--emit", "c", "-o", folder / model)
        sizes.append((folder / model / "program.c").stat().st_size)
    print(f"program.c of 40 and of 400 steps: {sizes[0]} and {sizes[1]} bytes")
    check("the size does not depend on the number of iterations", abs(sizes[1] / sizes[0] - 1) < 0.02)


def gpu(folder):
    text = run(NNAOT, HERE / "scan.onnx", "--loss", "mse(out)", *ONE, "--target", "cuda", "--emit", "c", "-o", folder / "gpu",
               ok=1)
    check("cuda refuses a loop at its node", "scan.onnx:/scan: error: loop: the cuda target does not support it yet" in text,
          text)
    check("nothing is written", not (folder / "gpu" / "program.c").exists())


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for model in ("scan", "numbered"):
            trains(folder, model, ONE)
        for cut in CUTS:
            trains(folder, "scan", cut)
        for dtype in ("bf16", "f16"):
            trains(folder, "scan", ONE, dtype)
            trains(folder, "scan", [*ONE, "-g", 2, "--plan", "dp=2"], dtype)
        for cut in (ONE, [*ONE, "-g", 2, "--plan", "dp=2"], [*ONE, "-g", 4, "--plan", "dp=4"], [*ONE, "-g", 2, "--plan", "pp=2"],
                    [*ONE, "-g", 2, "--plan", "auto"]):
            trains(folder, "branch", cut)
        for cut in (ONE, [*ONE, "-g", 2, "--plan", "dp=2"], [*ONE, "-g", 4, "--plan", "auto"]):
            trains(folder, "until", cut)
        for dtype in ("bf16", "f16"):
            trains(folder, "branch", [*ONE, "-g", 2, "--plan", "dp=2"], dtype)
        refused(folder)
        does_not_grow(folder)
        gpu(folder)
    finish()


if __name__ == "__main__":
    main()
