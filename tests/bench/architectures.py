#!/usr/bin/env python3
"""Real architectures from PyTorch through each exporter, and their losses compared with PyTorch's:  architectures.py [MODEL ...]

    --build DIR     the build folder with nnaot (build)
    --results FILE  a line of JSON for each model and exporter; those that it has are not run again
    --steps N       steps of the optimizer (10)
    --limit X       the largest accepted relative difference of a loss (1e-4)
    --exporters A,B of dynamo, torchscript, plain-dynamo and plain-torchscript (the first two)
    --keep DIR      leave models and data there
    --timeout S     seconds for a model and an exporter (240)
    -j N            models at a time (1)
    --all           both optimizers, instead of one by lot
    --list          the models

Needs torch, torchvision, timm, transformers, onnx and onnxscript.  The models are in architecture_list.py.  A row of the
table is a model and an exporter of PyTorch, called by tools/nnaot_export, with the version of ONNX's operators and the
optimizer drawn by lot: the same for each run.  If the exporter fails, a second version is drawn, and then the newest is taken.
Then follow the exporter's error, nnaot's, or the largest relative difference of a loss from PyTorch's and the change of the loss
by training, which should be larger.

The plain ones are torch.onnx.export itself, with dynamo=True and optimize=False, and with dynamo=False without folding; the
latter does not mark the padding row of an Embedding (KNOWN).

nnaot-export takes the file of dynamo, and that of TorchScript if dynamo fails: the first file that is exported counts for a
model.  The exit status is 1 if one of the models is not exported, does not compile or trains differently.
"""

import argparse
import inspect
import json
import logging
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(pathlib.Path(__file__).parent)]
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import nnaot_export  # noqa: E402
from architecture_list import BATCH, DATA, LABELS, MODELS, ROWS, build  # noqa: E402

OPSETS = {"dynamo": range(18, 24), "torchscript": range(11, 21)}
PLAIN = "plain-"
KNOWN = {("mpnet", "plain-torchscript"): "the file does not say that row 1 is padding"}
OPTIMIZERS = ["sgd", "adamw"]


def data_of(name, module):
    """Inputs by name, and labels or None."""
    rng = np.random.default_rng(1)
    inputs = {k: DATA[k](rng) for k in inspect.signature(module.forward).parameters}
    kind = LABELS[MODELS[name][2]]
    return inputs, None if kind is None else rng.integers(0, kind[1], (ROWS, *kind[0]))


def losses(name, optimizer, rate, inputs, labels, steps, double=False):
    """Returns PyTorch's losses, for rows in their order."""
    module = build(name)
    if double:
        module = module.double()
        inputs = {k: x.astype(np.float64) if x.dtype == np.float32 else x for k, x in inputs.items()}
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer]
    update = make(module.parameters(), lr=rate, **({"weight_decay": 0.1} if optimizer == "adamw" else {}))
    found = []
    for step in range(steps):
        rows = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        out = module(*(torch.from_numpy(x[rows]) for x in inputs.values()))
        loss = out if labels is None else F.cross_entropy(out.flatten(0, -2), torch.from_numpy(labels[rows]).flatten())
        update.zero_grad()
        loss.backward()
        update.step()
        found.append(loss.item())
    return found


def export(name, exporter, opset, inputs, path):
    """Returns "" or the exporter's error."""
    example = tuple(torch.from_numpy(x[:BATCH]) for x in inputs.values())
    output = "loss" if LABELS[MODELS[name][2]] is None else "logits"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if exporter.startswith(PLAIN):
                plain_export(build(name), exporter.removeprefix(PLAIN), example, path, opset, list(inputs), [output])
            else:
                nnaot_export.export(build(name), example, path, output_names=[output], opset=opset, exporters=(exporter,))
        return ""
    except Exception as e:
        return " ".join(str(e).split()) or type(e).__name__


def plain_export(module, exporter, example, path, opset, inputs, outputs):
    names = dict(input_names=inputs, output_names=outputs, opset_version=opset)
    if exporter == "dynamo":
        batch = torch.export.Dim("batch")
        torch.onnx.export(module, example, path, dynamo=True, optimize=False, external_data=False, verbose=False,
                          dynamic_shapes=tuple({0: batch} for _ in example), **names)
    else:
        torch.onnx.export(module, example, path, dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, dynamic_axes={k: {0: "batch"} for k in inputs}, **names)


def exported(name, exporter, inputs, path):
    """Exports with the first version by lot that the exporter can write: the version, and "" or the error of the last."""
    opsets = list(OPSETS[exporter.removeprefix(PLAIN)])
    random.Random(f"{name} {exporter}").shuffle(opsets)
    for opset in [*opsets[:2], max(opsets)]:
        error = export(name, exporter, opset, inputs, path)
        if not error:
            break
    return opset, error


def command(arguments, folder):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, cwd=folder)
    told = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines() or ["no error"]
    return done.returncode, " | ".join(dict.fromkeys(told))[:500]


def compiled_losses(a, folder, optimizer, rate, inputs, labels):
    """Returns the executable's losses, or an error."""
    decay = ",weight_decay=0.1" if optimizer == "adamw" else ""
    loss = [] if labels is None else ["--loss", "cross_entropy(logits)"]
    code, error = command([a.build / "bin" / "nnaot", folder / "model.onnx", "--batch", BATCH, *loss, "--optimizer",
                           f"{optimizer}:lr={rate:g}{decay}", "-j", "1", "-o", "exe"], folder)
    if code:
        return None, error
    names = [*inputs, *([] if labels is None else ["labels"])]
    flags = [f for k in names for f in ("--input", f"{k}={k}.npy")]
    code, error = command(["./exe", *flags, "--steps", a.steps, "--log", "log.jsonl"], folder)
    if code:
        return None, error
    return [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()], ""


def difference(got, want):
    return max(abs(x - y) / abs(y) for x, y in zip(got, want, strict=True))


def run(a, name, exporter):
    """A row of the table."""
    row = {"model": name, "exporter": exporter}
    inputs, labels = data_of(name, build(name))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for k, x in (*inputs.items(), *([] if labels is None else [("labels", labels)])):
            np.save(folder / f"{k}.npy", x)
        begin = time.monotonic()
        row["opset"], row["export_error"] = exported(name, exporter, inputs, folder / "model.onnx")
        row["export_seconds"] = round(time.monotonic() - begin, 1)
        if a.keep and not row["export_error"]:
            kept = pathlib.Path(a.keep) / f"{name}.{exporter}"
            kept.mkdir(parents=True, exist_ok=True)
            for file in folder.iterdir():
                (kept / file.name).write_bytes(file.read_bytes())
        chosen = OPTIMIZERS if a.all else [random.Random(f"{exporter} {name}").choice(OPTIMIZERS)]
        for optimizer in chosen if not row["export_error"] else ():
            rate = MODELS[name][1][OPTIMIZERS.index(optimizer)]
            want = losses(name, optimizer, rate, inputs, labels, a.steps)
            begin = time.monotonic()
            got, error = compiled_losses(a, folder, optimizer, rate, inputs, labels)
            found = row[optimizer] = {"error": error, "seconds": round(time.monotonic() - begin, 1)}
            if got:
                last = (a.steps - 1) // 3 * 3  # of the steps with the first rows
                found |= {"difference": difference(got, want), "change": abs(want[last] - want[0]) / abs(want[0])}
                if not found["difference"] < a.limit:
                    found["rounding"] = difference(want, losses(name, optimizer, rate, inputs, labels, a.steps, double=True))
                    found["losses"], found["torch"] = got, want
    return row


def verdict(row, limit):
    """Whether the row trains right, and a text."""
    if row.get("export_error"):
        return False, f"not exported: {row['export_error'][:300]}"
    said, right = [], True
    for optimizer in OPTIMIZERS:
        found = row.get(optimizer)
        if found and found["error"]:
            said.append(f"{optimizer} {found['error'][:300]}")
        elif found:
            text = f"{optimizer} {found['difference']:.1e} of {found['change']:.1e}"
            wrong = not found["difference"] < limit
            said.append(text + (f" WRONG: PyTorch in f64 {found['rounding']:.1e}" if wrong else ""))
        right &= not found or not found["error"] and found["difference"] < limit
    if known := KNOWN.get((row["model"], row["exporter"])):
        return True, "   ".join([*said, known])
    return right, "   ".join(said)


def failed(name, exporter, reason):
    return {"model": name, "exporter": exporter, "opset": 0, "export_error": reason}


def forked(a, name, exporter, path):
    """Starts a process that appends the row to a file."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in 1, 2:
        os.dup2(null, fd)
    try:
        row = run(a, name, exporter)
    except Exception as e:
        row = failed(name, exporter, f"{type(e).__name__}: {e}")
    path.write_text(json.dumps(row))
    os._exit(0)


def rows(a, wanted):
    """Runs the wanted (model, exporter), several at a time, each for a limited time; yields their rows."""
    wanted, running = list(wanted)[::-1], {}
    with tempfile.TemporaryDirectory() as folder:
        while wanted or running:
            while wanted and len(running) < a.j:
                name, exporter = wanted.pop()
                path = pathlib.Path(folder) / f"{name}.{exporter}"
                running[forked(a, name, exporter, path)] = name, exporter, path, time.monotonic() + a.timeout
            time.sleep(0.1)
            for pid, (name, exporter, path, end) in list(running.items()):
                late = time.monotonic() > end
                if late:
                    os.killpg(pid, signal.SIGKILL)
                if os.waitpid(pid, 0 if late else os.WNOHANG)[0]:
                    del running[pid]
                    reason = f"more than {a.timeout:g} s" if late else "the process ended"
                    yield json.loads(path.read_text()) if path.exists() else failed(name, exporter, reason)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL")
    p.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "build")
    p.add_argument("--results", type=pathlib.Path)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--limit", type=float, default=1e-4)
    p.add_argument("--timeout", type=float, default=240)
    p.add_argument("--exporters", type=lambda text: text.split(","), default=list(OPSETS))
    p.add_argument("--keep")
    p.add_argument("-j", type=int, default=1)
    p.add_argument("--all", action="store_true")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    if a.list:
        print("\n".join(MODELS))
        return 0
    unknown = [m for m in a.models if m not in MODELS]
    unknown += [e for e in a.exporters if e.removeprefix(PLAIN) not in OPSETS]
    if unknown:
        p.error(f"unknown: {', '.join(unknown)}")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    import timm, torchvision, transformers, onnxscript  # noqa: E401, F401: once, for all processes
    known = {}
    if a.results and a.results.exists():
        for line in a.results.read_text().splitlines():
            row = json.loads(line)
            known[row["model"], row["exporter"]] = row
    pairs = [(name, exporter) for name in a.models or MODELS for exporter in a.exporters]
    for row in rows(a, [pair for pair in pairs if pair not in known]):
        known[row["model"], row["exporter"]] = row
        if a.results:
            with open(a.results, "a") as f:
                f.write(json.dumps(row) + "\n")
        print(f"{row['model']:22}{row['exporter']:18}{row['opset']:3}  {verdict(row, a.limit)[1]}", flush=True)
    return summary(a, known, pairs)


def summary(a, known, pairs):
    """Prints counts by exporter, and of the files that nnaot-export takes.  Returns whether one of the latter is wrong, or any
    of a plain exporter that compiles."""
    counts = {exporter: [0, 0] for exporter in (*a.exporters, "nnaot-export")}
    wrong = []

    def count(name, exporter, row):
        right, text = verdict(row, a.limit)
        counts[exporter][0] += right
        counts[exporter][1] += 1
        return [] if right else [f"{name}: {text}"]

    for name in dict.fromkeys(name for name, _ in pairs):
        of = [known[name, exporter] for exporter in a.exporters]
        for row in of:
            said = count(name, row["exporter"], row)
            wrong += said if row["exporter"].startswith(PLAIN) and not row["export_error"] else []
        own = [row for row in of if not row["exporter"].startswith(PLAIN)]
        if own:
            wrong += count(name, "nnaot-export", next((row for row in own if not row["export_error"]), own[-1]))
    for exporter, (right, of) in counts.items():
        if of:
            print(f"{exporter:18}{right:4} of {of} models train as in PyTorch")
    print("\n".join(wrong))
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
