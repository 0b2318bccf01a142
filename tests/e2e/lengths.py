"""Models that select rows or elements by masks train like PyTorch's, on one rank and on several.

lengths/make.py made the models, their data, and PyTorch's numbers in f64: the losses of 6 steps of sgd with momentum, and
the norm of all weights afterwards.  They may differ by 1e-6, on several ranks as well: the count is that of all ranks, and some
of them select nothing.  A bound that just fits changes nothing; one more element than the bound ends the run, with an error
at the node.  Micro-batches train the same where a loss reads the selected rows itself, and are an error elsewhere.
"""

import json
import pathlib
import subprocess

from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference, write_npy
from plans import norm, read_weights

HERE = pathlib.Path(__file__).resolve().parent / "lengths"
MODELS = ["words.torchscript", "selected.torchscript", "mean.torchscript", "mean.dynamo", "chosen.torchscript",
          "put.torchscript", "put.dynamo"]
CUTS = [["-g", 2, "--plan", "dp"], ["-g", 4, "--plan", "dp"], ["-g", 2, "--plan", "tp"], ["-g", 4, "--plan", "dp=2,tp=2"],
        ["-g", 2, "--plan", "zero3"], ["-g", 2, "--plan", "pp"], ["-g", 2, "--plan", "auto"]]
SLICES = [["--micro-batches", 2], ["-g", 2, "--plan", "dp", "--micro-batches", 2], ["-g", 2, "--plan", "pp", "--micro-batches", 2]]
CUT_MODELS = ["words.torchscript", "selected.torchscript", "mean.dynamo", "put.dynamo"]
LIMIT, COUNT = 1e-6, 17  # 17 labels
WANT = json.loads((HERE / "expected.json").read_text())


def compiled(exe, model, *options):
    return [NNAOT, HERE / f"{model}.onnx", "--batch", 8, "--optimizer", "sgd:momentum=0.9", "--lr", "0.3", *options, "-o", exe]


def flags(want, folder=HERE):
    return [word for key in want["inputs"] for word in ("--input", f"{key}={folder / want['data']}.{key}.npy")]


def trains(folder, model, *options):
    want = WANT[model.split(".")[0]]
    exe, log, weights = folder / "train", folder / "log.jsonl", folder / "weights.safetensors"
    log.unlink(missing_ok=True)
    run(*compiled(exe, model, *options))
    run(exe, *flags(want), "--steps", len(want["loss"]), "--log", log, "--save", weights)
    losses = worst_difference([line["loss"] for line in read_log(log)], want["loss"])
    saved = norm([v for _, values in read_weights(weights).values() for v in values])
    print(f"{model} {' '.join(map(str, options))}: losses {losses:.1e}, norm {abs(saved / want['norm'] - 1):.1e}", flush=True)
    check(f"{model} {options}", losses < LIMIT and abs(saved / want["norm"] - 1) < LIMIT)


def refused(command, *texts):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    check(f"{command[0]} refuses", done.returncode == 1 and all(text in done.stderr for text in texts), done.stderr)


def too_many(folder):
    """The bound is the number of labels, or one less."""
    for options in ([], ["-g", 2, "--plan", "dp"]):
        trains(folder, "words.torchscript", "--bound", f"*NonZero*={COUNT}", *options)
        run(*compiled(folder / "train", "words.torchscript", "--bound", f"*NonZero*={COUNT - 1}", *options))
        refused([folder / "train", *flags(WANT["words"]), "--steps", 1], "words.torchscript.onnx:/NonZero",
                f"a capacity is exceeded: {COUNT} elements of row 0 are selected, and the bound is {COUNT - 1}",
                "hint: compile with a larger --bound for this operator")


def none(folder):
    """A mean of nothing is not a number, as in PyTorch."""
    for key in ("x", "y"):
        (folder / f"rows.{key}.npy").write_bytes((HERE / f"rows.{key}.npy").read_bytes())
    write_npy(folder / "rows.mask.npy", [0] * 48, (8, 6), "|b1")
    run(*compiled(folder / "train", "mean.torchscript"))
    refused([folder / "train", *flags(WANT["mean"], folder), "--steps", 1], "step 1: the loss is not a number")


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for model in MODELS:
            trains(folder, model)
        for model in CUT_MODELS:
            for cut in CUTS:
                trains(folder, model, *cut)
        for cut in SLICES:
            trains(folder, "words.torchscript", *cut)
        too_many(folder)
        none(folder)
        for cut in (["--micro-batches", 2], ["--accumulate", 2]):
            refused(compiled(folder / "train", "selected.torchscript", *cut), "/NonZero: error: nonzero couples rows of the batch",
                    "hint: compile without --accumulate and --micro-batches; ranks can split it")
    finish()


if __name__ == "__main__":
    main()
