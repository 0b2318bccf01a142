"""A module's files train like the module, from each exporter of PyTorch and from nnaot-export (`helper`; `script`: with
torchscript).

exports/make.py made the models, their data, and PyTorch's numbers: 6 steps of sgd with momentum and of adamw.  Losses, and
every parameter and buffer afterwards (its norm and its product with cos(1), cos(2), …), may differ by 1e-5.
"""

import json
import math
import pathlib

from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference
from plans import norm, read_weights

HERE = pathlib.Path(__file__).resolve().parent / "exports"
OPTIMIZER = {"sgd": ["--optimizer", "sgd:momentum=0.9", "--lr", "0.1"],
             "adamw": ["--optimizer", "adamw:weight_decay=0.1", "--lr", "0.01"]}
# A table with two names in PyTorch has one of them in ONNX.  torchscript's export omits padding.
MODELS = ["norms.dynamo", "norms.torchscript", "norms.helper", "padded.dynamo", "padded.helper", "ties.dynamo",
          "ties.helper", "picked.dynamo", "picked.torchscript", "picked.helper", "rolled.dynamo",
          "rolled.torchscript", "rolled.helper", "second.helper", "frozen.helper", "frozen.script", "stops.helper",
          "stops.script", "flat.helper", "flat.torchscript",
          "hidden.dynamo", "hidden.torchscript", "hidden.helper", "losses.helper"]
INPUTS = {"norms": ["x"], "padded": ["ids"], "ties": ["x"], "picked": ["ids"], "rolled": ["ids"], "second": ["x", "table"],
          "frozen": ["x"], "stops": ["x"], "flat": ["x", "table"], "hidden": ["x", "mask"],
          "losses": ["x"]}
BATCH_DIM = dict.fromkeys(["second", "flat"], ["--batch-dim", "batch"])  # the batch is not the first dimension
CUT = dict.fromkeys(["flat.helper", "picked.dynamo", "picked.helper"], ["--micro-batches", 2])  # rows are independent
LIMIT = 1e-5


def saved_difference(saved, expected):
    """Returns the largest difference, relative to the norm, over all saved tensors."""
    worst = 0.0
    for name, (_, values) in saved.items():
        length, along = expected[name]
        got = math.fsum(v * math.cos(i + 1) for i, v in enumerate(values))
        size = length or 1.0  # a buffer of zeros
        worst = max(worst, abs(norm(values) - length) / size, abs(got - along) / size)
    return worst


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for model in MODELS:
            name = model.split(".")[0]
            expected = json.loads((HERE / "expected.json").read_text())[model]
            for optimizer, want in expected.items():
                exe, log, weights = folder / "train", folder / "log.jsonl", folder / "weights.safetensors"
                run(NNAOT, HERE / f"{model}.onnx", "--batch", 8, "--loss", "cross_entropy(y)", *OPTIMIZER[optimizer],
                    *BATCH_DIM.get(name, []), *CUT.get(model, []), "-o", exe)
                files = [f"{key}={HERE / name}.{key}.npy" for key in (*INPUTS[name], "labels")]
                run(exe, *(word for file in files for word in ("--input", file)), "--steps", len(want["loss"]), "--log", log,
                    "--save", weights)
                losses = worst_difference([line["loss"] for line in read_log(log)], want["loss"])
                saved = saved_difference(read_weights(weights), want["saved"])
                print(f"{model} {optimizer}: losses {losses:.1e}, saved {saved:.1e}", flush=True)
                check(f"{model} {optimizer}", losses < LIMIT and saved < LIMIT)
                log.unlink()
    finish()


if __name__ == "__main__":
    main()
