#!/usr/bin/env python3
"""Times training steps of nnaot and PyTorch; see tests/bench/run.

Every contestant runs in its own process, in turn (A B C A B C …), on the same weights and data, with
the same number of threads; a row is the median of all steps except the first few.  Peak memory is the
process's largest resident set.  PyTorch's best settings: fused AdamW if available, channels_last
for convolutions, set_to_none, no data loader.
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

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "samples"))

MODEL = {
    "mlp": dict(what="MLP 784-512-512-10, batch 128", batch=128, loss="cross_entropy(logits)", classes=10),
    "resnet18": dict(what="ResNet-18, 64x64, batch 16", batch=16, loss="cross_entropy(logits)", classes=1000),
    "gpt2": dict(what="GPT-2 6 x 384, batch 8 x 128", batch=8, loss="next_token(logits,input_ids)", classes=0),
}
# The mode of torch.compile; None: eager.
TORCH = {"torch eager": None, "torch.compile": "default", "compile, tuned": "max-autotune-no-cudagraphs"}
ADAMW = dict(lr=1e-3, weight_decay=0.1, betas=(0.9, 0.95))


def peak_mib(who):
    return resource.getrusage(who).ru_maxrss / 1024


def make_data(name, folder):
    import numpy as np
    import models
    rng = np.random.default_rng(3)
    _, (input_name, x) = models.bench(name)
    b, rows = MODEL[name]["batch"], 4 * MODEL[name]["batch"]
    if name == "gpt2":
        np.save(folder / f"{input_name}.npy", rng.integers(0, 50257, (rows, x.shape[1])))
    else:
        np.save(folder / f"{input_name}.npy", rng.standard_normal((rows, *x.shape[1:]), dtype=np.float32))
        np.save(folder / "labels.npy", rng.integers(0, MODEL[name]["classes"], rows))
    return input_name, b


def prepare(name, folder, nnaot, flags):
    """Writes the .onnx, the data and nnaot's executable; returns compile seconds and size."""
    import export
    import models
    model, example = models.bench(name)
    export.export(name, model, example, folder / "model.onnx", opset=17)
    input_name, b = make_data(name, folder)
    start = time.perf_counter()
    subprocess.run([nnaot, folder / "model.onnx", "--batch", str(b), "--loss", MODEL[name]["loss"], "--optimizer",
                    "adamw:weight_decay=0.1,betas=0.9/0.95", "--lr", "0.001", "-o", folder / "exe", *flags],
                   check=True)
    return time.perf_counter() - start, (folder / "exe").stat().st_size


def run_nnaot(name, folder, steps, threads):
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    inputs = [f for p in sorted(folder.glob("*.npy")) for f in ("--input", f"{p.stem}={p}")]
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    subprocess.run([folder / "exe", *inputs, "--steps", str(steps), "--log", log], check=True, env=env,
                   stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return dict(ms=[x["step_ms"] for x in lines], loss=[x["loss"] for x in lines],
                mib=peak_mib(resource.RUSAGE_CHILDREN))


def run_torch(name, folder, steps, threads, mode):
    import numpy as np
    import torch
    from torch.nn import functional as F
    import models

    torch.set_num_threads(threads)
    model, (input_name, _) = models.bench(name)
    model.train()
    x = torch.from_numpy(np.load(folder / f"{input_name}.npy"))
    y = torch.from_numpy(np.load(folder / "labels.npy")) if name != "gpt2" else None
    if name == "resnet18":
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), fused=True, **ADAMW)
    b = MODEL[name]["batch"]

    def loss_of(x, y):
        logits = model(x)
        if y is None:
            return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), x[:, 1:].reshape(-1))
        return F.cross_entropy(logits, y)

    if mode:
        loss_of = torch.compile(loss_of, mode=mode)
    ms, losses = [], []
    for s in range(steps):
        rows = slice(s % 4 * b, s % 4 * b + b)
        start = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        loss = loss_of(x[rows], None if y is None else y[rows])
        loss.backward()
        opt.step()
        losses.append(loss.item())
        ms.append((time.perf_counter() - start) * 1e3)
    return dict(ms=ms, loss=losses, mib=peak_mib(resource.RUSAGE_SELF))


def in_process(kind, name, folder, steps, threads):
    out = subprocess.run([sys.executable, HERE, "--one", kind, name, str(folder), "--steps", str(steps),
                          "--threads", str(threads)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", default=list(MODEL))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--nnaot", default=ROOT / "build/bin/nnaot")
    p.add_argument("--flags", default="", help="more flags for nnaot")
    p.add_argument("--one", metavar="KIND", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one:
        name, folder = a.models
        folder = pathlib.Path(folder)
        if a.one == "nnaot":
            got = run_nnaot(name, folder, a.steps, a.threads)
        else:
            got = run_torch(name, folder, a.steps, a.threads, TORCH[a.one])
        print(json.dumps(got))
        return
    kinds = ["nnaot", *TORCH]
    for name in a.models:
        with tempfile.TemporaryDirectory(prefix="nnaot-bench-") as folder:
            seconds, size = prepare(name, pathlib.Path(folder), a.nnaot, a.flags.split())
            runs = {k: [] for k in kinds}
            for _ in range(a.rounds):
                for k in kinds:
                    runs[k].append(in_process(k, name, folder, a.steps, a.threads))
        print(f"\n{MODEL[name]['what']}, AdamW, f32, {a.threads} threads;"
              f" compiled in {seconds:.1f} s, executable {size / 2**20:.1f} MiB")
        print(f"{'':16}{'ms a step':>10}{'min':>9}{'max':>9}{'x nnaot':>9}{'peak MiB':>10}{'last loss':>11}")
        base = None
        for k in kinds:
            ms = [x for r in runs[k] for x in r["ms"][3:]]
            median = statistics.median(ms)
            base = base or median
            print(f"{k:16}{median:10.2f}{min(ms):9.2f}{max(ms):9.2f}{median / base:9.2f}"
                  f"{max(r['mib'] for r in runs[k]):10.0f}{runs[k][0]['loss'][-1]:11.5f}", flush=True)


if __name__ == "__main__":
    main()
