"""LSTM, GRU and RNN train like PyTorch's, from each of its exporters, on one rank and on several.

recurrent/make.py made the models, their data, and PyTorch's numbers in f64: the losses of 5 steps of sgd with momentum, and
the norm of all weights afterwards.  They may differ by 1e-6.  A length beyond the time steps ends the run.
"""

import json
import pathlib
import subprocess

from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference, write_npy
from plans import norm, read_weights

HERE = pathlib.Path(__file__).resolve().parent / "recurrent"
MODELS = ["tagger.dynamo", "tagger.torchscript", "tagger.folded", "chars.dynamo", "chars.torchscript", "chars.folded",
          "states.dynamo", "states.torchscript", "states.folded", "packed.torchscript", "packed.folded"]
INPUTS = {"packed": ["ids", "lengths", "labels"]}
ONE = ["--batch", 8]
CUTS = [["--batch", 8, "--micro-batches", 4], ["--batch", 4, "--accumulate", 2], [*ONE, "-g", 2, "--plan", "dp=2"],
        [*ONE, "-g", 2, "--plan", "pp=2", "--micro-batches", 2], [*ONE, "-g", 4, "--plan", "dp=2,pp=2", "--micro-batches", 4],
        [*ONE, "-g", 2, "--plan", "zero3=2"], [*ONE, "-g", 2, "--plan", "auto"]]
CUT_MODELS = ["tagger.torchscript", "chars.dynamo", "packed.torchscript"]  # rows are independent
LIMIT = 1e-6


def compile_model(exe, model, cut):
    run(NNAOT, HERE / f"{model}.onnx", "--loss", "cross_entropy(y)", "--optimizer", "sgd:momentum=0.9", "--lr", "0.5", *cut,
        "-o", exe)


def flags(name, folder=HERE):
    return [word for key in INPUTS.get(name, ["ids", "labels"]) for word in ("--input", f"{key}={folder / name}.{key}.npy")]


def trains(folder, model, cut):
    name = model.split(".")[0]
    want = json.loads((HERE / "expected.json").read_text())[name]
    exe, log, weights = folder / "train", folder / "log.jsonl", folder / "weights.safetensors"
    log.unlink(missing_ok=True)
    compile_model(exe, model, cut)
    run(exe, *flags(name), "--steps", len(want["loss"]), "--log", log, "--save", weights)
    losses = worst_difference([line["loss"] for line in read_log(log)], want["loss"])
    saved = norm([v for _, values in read_weights(weights).values() for v in values])
    print(f"{model} {' '.join(map(str, cut))}: losses {losses:.1e}, norm {abs(saved / want['norm'] - 1):.1e}", flush=True)
    check(f"{model} {cut}", losses < LIMIT and abs(saved / want["norm"] - 1) < LIMIT)


def wrong_length(folder):
    for name in ("ids", "labels"):
        (folder / f"packed.{name}.npy").write_bytes((HERE / f"packed.{name}.npy").read_bytes())
    write_npy(folder / "packed.lengths.npy", [7, 7, 6, 8, 4, 2, 1, 1], (8,), "<i8")
    compile_model(folder / "train", "packed.torchscript", ONE)
    done = subprocess.run([folder / "train", *flags("packed", folder), "--steps", "1"], capture_output=True, text=True)
    check("a wrong length", done.returncode == 1 and "length 8 of row 3 is not in 0..7" in done.stderr and
          "packed.torchscript.onnx:" in done.stderr, done.stderr)


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for model in MODELS:
            trains(folder, model, ONE)
        for model in CUT_MODELS:
            for cut in CUTS:
                trains(folder, model, cut)
        wrong_length(folder)
    finish()


if __name__ == "__main__":
    main()
