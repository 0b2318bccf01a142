"""Sums of losses, ignored labels, weights of classes and label smoothing train as in PyTorch, and evaluate over all rows, for
every split of the batch.

objectives/make.py made the model, its data and PyTorch's numbers.  In 16 bits a split batch is compared with a whole one.
"""

import json
import os
import pathlib
import struct
import subprocess

from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference, write_npy

HERE = pathlib.Path(__file__).resolve().parent / "objectives"
CUTS = [[], ["--micro-batches", 4], ["--accumulate", 2], ["-g", 2, "--plan", "tp"],
        ["-g", 2, "--plan", "pp", "--micro-batches", 4], ["-g", 4, "--plan", "zero2", "--micro-batches", 2]]
LIMIT = {"f32": 1e-5, "bf16": 2e-2, "f16": 2e-2}
STEPS = 4


def compile_objective(exe, objective, cut, dtype):
    batch = 4 if "--accumulate" in cut else 8
    run(NNAOT, "two_heads.onnx", "--batch", batch, "--loss", objective, "--lr", 0.5, "--dtype", dtype, *cut, "-o", exe)


def train(exe, inputs):
    flags = []
    for name in inputs.split():
        to = "ids" if name == "padded" else name
        flags += ["--input", f"{to}={name}.npy", "--eval-input", f"{to}={name}.eval.npy"]
    log = pathlib.Path(f"{exe}.jsonl")
    log.unlink(missing_ok=True)
    run(exe, *flags, "--metric", "accuracy(y)", "--steps", STEPS, "--log", log)
    return read_log(log)


def values(log):
    """Returns losses, norms, and the loss of the evaluation; a norm is null if it overflows 16 bits."""
    return [line["loss"] for line in log] + [line["grad_norm"] or 0.0 for line in log] + [log[-1]["eval_loss"]]


def no_labels(folder):
    """Checks that an evaluation in which no label counts is an error, and neither a number nor a crash."""
    write_npy(folder / "ids.npy", [1] * 40, (8, 5), "<i8")
    write_npy(folder / "none.npy", [-100] * 40, (8, 5), "<i8")
    exe = folder / "none"
    compile_objective(exe, "cross_entropy(y,ignore_index=-100)", [], "f32")
    done = subprocess.run([exe, "--input", "ids=ids.npy", "--input", "labels=labels.npy", "--eval-input",
                           f"ids={folder}/ids.npy", "--eval-input", f"labels={folder}/none.npy", "--steps", "1"],
                          capture_output=True, text=True)
    check("no labels", done.returncode == 1 and "evaluation: no label counts" in done.stderr, done.stderr)


def long_name(folder):
    """Checks that a metric's name may be as long as the output's, in the log and in the event files, too."""
    name = "y" * 120
    (folder / "long.nn").write_text(f'''module phase=typed
graph @main entry (%x: f32[4,3] input "x", %w: f32[3,3] weight "w" train = normal(0,1)) {{
  %y = linear %x, %w
  return output "{name}" %y
}}
''')
    write_npy(folder / "x.npy", [0.3 * (i % 7 - 3) for i in range(24)], (8, 3))
    write_npy(folder / "c.npy", [i % 3 for i in range(8)], (8,), "<i8")
    run(NNAOT, folder / "long.nn", "--loss", f"cross_entropy({name})", "-o", folder / "long")
    said = run(folder / "long", *(w for of in ("--input", "--eval-input") for n, file in (("x", "x"), ("labels", "c"))
                                  for w in (of, f"{n}={folder}/{file}.npy")),
               "--metric", f"accuracy({name})", "--steps", 2, "--log", folder / "long.jsonl", "--tensorboard", folder / "events")
    value = read_log(folder / "long.jsonl")[-1][f"accuracy({name})"]
    events = b"".join(path.read_bytes() for path in (folder / "events").iterdir())
    tag = f"accuracy({name})".encode() + b"\x15" + struct.pack("<f", value)
    check("a long name", tag in events and f"accuracy({name}) {value:.6g}" in said, said, events)


def main():
    expected = json.loads((HERE / "expected.json").read_text())
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        os.chdir(HERE)
        for objective, want in expected.items():
            wanted = want["loss"] + want["grad_norm"] + [want["eval_loss"]]
            for cut in CUTS:
                exe = folder / "train"
                compile_objective(exe, objective, cut, "f32")
                log = train(exe, want["inputs"])
                d = worst_difference(values(log), wanted)
                print(f"{objective} {' '.join(map(str, cut))}: {d:.1e}", flush=True)
                check(f"{objective} {cut}", d < LIMIT["f32"])
                got = log[-1]["accuracy(y)"]
                check(f"accuracy, {objective} {cut}", abs(got - want["accuracy"]) < 1e-6, got, want["accuracy"])
        both = next(o for o in expected if "mse" in o)
        for dtype in "bf16", "f16":
            whole = None
            for cut in CUTS[0], CUTS[1], CUTS[4], CUTS[5]:
                compile_objective(folder / "train", both, cut, dtype)
                got = values(train(folder / "train", expected[both]["inputs"]))
                whole = whole or got
                d = worst_difference(got, whole)
                print(f"{dtype} {' '.join(map(str, cut))}: {d:.1e}", flush=True)
                check(f"{dtype} {cut}", d < LIMIT[dtype])
        no_labels(folder)
        long_name(folder)
    finish()


main()
