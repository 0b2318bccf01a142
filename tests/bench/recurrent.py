#!/usr/bin/env python3
"""An LSTM character model and a bidirectional tagger: step time beside PyTorch, compile time and size:  recurrent.py [MODEL ...]

    --build DIR       the build folder with nnaot (build)
    --threads N       threads of both (1)
    --rounds N        processes of each, in turn (3)
    --steps N         steps of a process, the first five without a time (25)

Needs torch, onnx and onnxscript.  PyTorch runs eagerly and by torch.compile, with fused AdamW.  A loop over time steps is one
kernel: the second table has compile seconds and sizes of programs for 8 and for 512 time steps, which should be equal.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tools"))

BATCH, WORDS, TAGS = 32, 96, 20
# Time steps of the timed program, and its loss.
MODELS = {"characters": (64, "next_token(logits,ids)"), "tagger": (64, "cross_entropy(logits)")}
CONTESTANTS = ["nnaot", "torch eager", "torch.compile"]


def make(name):
    import torch
    from torch import nn

    class Recurrent(nn.Module):
        """characters: two layers of 256 (Karpathy's char-rnn); tagger: one layer of 128 in both directions."""

        def __init__(self):
            super().__init__()
            both = name == "tagger"
            self.embed = nn.Embedding(WORDS, 64)
            self.rnn = nn.LSTM(64, 128, bidirectional=True, batch_first=True) if both else nn.LSTM(64, 256, 2, batch_first=True)
            self.head = nn.Linear(256, TAGS if both else WORDS)

        def forward(self, ids):
            return self.head(self.rnn(self.embed(ids))[0])

    torch.manual_seed(3)
    return Recurrent()


def export(name, tokens, path):
    import nnaot_export
    import torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nnaot_export.export(make(name), torch.zeros(2, tokens, dtype=torch.long), path, output_names=["logits"])


def compiled(a, name, folder, out):
    """Seconds by the clock and of the processors, and the bytes of the executable."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([a.build / "bin/nnaot", folder / "model.onnx", "--batch", str(BATCH), "--loss", MODELS[name][1], "--optimizer",
                    "adamw:lr=0.001,weight_decay=0.01", "-o", out], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.perf_counter() - begin
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, out.stat().st_size


def make_data(name, folder):
    import numpy as np
    rng, tokens = np.random.default_rng(3), MODELS[name][0]
    np.save(folder / "ids.npy", rng.integers(0, WORDS, (4 * BATCH, tokens)))
    if name == "tagger":
        np.save(folder / "labels.npy", rng.integers(0, TAGS, (4 * BATCH, tokens)))


def run_nnaot(name, folder, steps, threads):
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    inputs = [f for p in sorted(folder.glob("*.npy")) for f in ("--input", f"{p.stem}={p}")]
    subprocess.run([folder / "exe", *inputs, "--steps", str(steps), "--log", log], check=True,
                   env=dict(os.environ, OMP_NUM_THREADS=str(threads)), stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return dict(ms=[x["step_ms"] for x in lines], loss=[x["loss"] for x in lines])


def run_torch(name, folder, steps, threads, compile):
    import numpy as np
    import torch
    from torch.nn import functional as F
    torch.set_num_threads(threads)
    model, ids = make(name), torch.from_numpy(np.load(folder / "ids.npy"))
    labels = torch.from_numpy(np.load(folder / "labels.npy")) if name == "tagger" else None
    update = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)

    def loss_of(ids, labels):
        out = model(ids)
        out, labels = (out[:, :-1], ids[:, 1:]) if labels is None else (out, labels)
        return F.cross_entropy(out.flatten(0, 1), labels.flatten())

    if compile:
        loss_of = torch.compile(loss_of)
    ms, losses = [], []
    for step in range(steps):
        rows = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
        begin = time.perf_counter()
        update.zero_grad(set_to_none=True)
        loss = loss_of(ids[rows], None if labels is None else labels[rows])
        loss.backward()
        update.step()
        losses.append(loss.item())
        ms.append((time.perf_counter() - begin) * 1e3)
    return dict(ms=ms, loss=losses)


def in_process(kind, name, folder, a):
    done = subprocess.run([sys.executable, HERE, "--one", kind, str(folder), name, "--steps", str(a.steps), "--threads",
                           str(a.threads)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        return None
    return json.loads(done.stdout.splitlines()[-1])


def timed(a, name):
    """Prints the step times of a model."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        export(name, MODELS[name][0], folder / "model.onnx")
        compiled(a, name, folder, folder / "exe")
        make_data(name, folder)
        runs = {kind: [] for kind in CONTESTANTS}
        for _ in range(a.rounds):
            for kind in CONTESTANTS:
                runs[kind].append(in_process(kind, name, folder, a))
    print(f"\n{name}: batch {BATCH}, {MODELS[name][0]} time steps, AdamW, f32, {a.threads} threads")
    print(f"{'':15}{'ms a step':>10}{'min':>9}{'max':>9}{'x nnaot':>9}{'last loss':>11}")
    base = None
    for kind in CONTESTANTS:
        if None in runs[kind]:
            print(f"{kind:15} does not run")
            continue
        ms = [x for run in runs[kind] for x in run["ms"][5:]]
        base = base or statistics.median(ms)
        print(f"{kind:15}{statistics.median(ms):10.2f}{min(ms):9.2f}{max(ms):9.2f}{statistics.median(ms) / base:9.2f}"
              f"{runs[kind][0]['loss'][-1]:11.6f}", flush=True)


def flat(a, names):
    """Prints compile seconds and sizes by time steps."""
    print(f"\n{'':13}{'time steps':>10}{'clock s':>9}{'cpu s':>9}{'bytes':>12}")
    for name in names:
        for tokens in 8, 512:
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                export(name, tokens, folder / "model.onnx")
                clock, cpu, size = compiled(a, name, folder, folder / "exe")
            print(f"{name:13}{tokens:10}{clock:9.2f}{cpu:9.2f}{size:12}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL")
    p.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "build")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=25)
    p.add_argument("--one", nargs=2, metavar=("KIND", "DIR"), help=argparse.SUPPRESS)
    a = p.parse_args()
    names = a.models or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        p.error(f"unknown: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if a.one:
        kind, folder = a.one[0], pathlib.Path(a.one[1])
        run = run_nnaot if kind == "nnaot" else run_torch
        args = () if kind == "nnaot" else (kind == "torch.compile",)
        print(json.dumps(run(names[0], folder, a.steps, a.threads, *args)))
        return
    for name in names:
        timed(a, name)
    flat(a, names)


if __name__ == "__main__":
    main()
