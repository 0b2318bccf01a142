#!/usr/bin/env python3
"""Training speed on a GPU beside PyTorch:  python3 bench.py BUNDLE [NAME...] [--rounds N] [--steps N] [--json FILE]

BUNDLE is a folder that bundle.py made; this needs a GPU and python3 with torch, torchvision and numpy.  Every
contestant runs in a process of its own, in turn (A B C A B C …), in bf16 with f32 master weights and AdamW, on the same
shapes and on data that begin in host memory every step.  PyTorch's best settings: autocast, fused AdamW, flash
attention, channels_last for convolutions, pinned memory, TF32 for what is left in f32; eager, torch.compile, and
torch.compile(mode="max-autotune").

For each: median ms of a step (without the first ones), tokens or images per second, the most GPU memory the process
held, seconds from its start to the end of its first step, the share of samples in which the GPU was idle while it
trained, and the share of the roofline (the GPU's matrix rate over the FLOP that the model needs).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
WARM = 5  # steps left out: first runs, recording
ADAMW = dict(lr=3e-4, weight_decay=0.1, betas=(0.9, 0.95))
TORCH = {"torch eager": None, "torch.compile": "default", "compile, max-autotune": "max-autotune"}


def libraries():
    """The folders of NVIDIA's wheels, where PyTorch found its libraries."""
    import importlib.util
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations) if spec else []
    return [str(p) for r in roots for p in sorted(pathlib.Path(r).glob("*/lib"))]


class Watch(threading.Thread):
    """Samples what NVML knows of the GPU while a process runs."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most, self.busy, self.on = pid, 0, [], True

    def run(self):
        import pynvml
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        while self.on:
            self.most = max(self.most, pynvml.nvmlDeviceGetMemoryInfo(gpu).used)
            self.busy.append((time.time(), pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu))
            time.sleep(0.05)


def make_data(name, folder):
    """Two batches of random rows for each input."""
    import numpy as np
    import bench_models as models
    model, batch = models.BENCH[name]
    rng = np.random.default_rng(5)
    if model in models.GPT2:
        np.save(folder / "input_ids.npy", rng.integers(0, 50257, (2 * batch, models.TOKENS)))
        return {"input_ids": "input_ids.npy"}
    np.save(folder / "x.npy", rng.standard_normal((2 * batch, 3, 224, 224), dtype=np.float32))
    np.save(folder / "labels.npy", rng.integers(0, models.CLASSES, 2 * batch))
    return {"x": "x.npy", "labels": "labels.npy"}


def watched(command, env, log, steps):
    """Runs it; what NVML saw, and when each line of `log` appeared."""
    log.unlink(missing_ok=True)
    start = time.time()
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    watch = Watch(process.pid)
    watch.start()
    first = None
    while process.poll() is None:
        if first is None and log.exists() and log.stat().st_size:
            first = time.time()
        time.sleep(0.002)
    watch.on = False
    error = process.stderr.read()
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}:\n{error}")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    if len(lines) != steps:
        raise RuntimeError(f"{command[0]} logged {len(lines)} of {steps} steps")
    ms = [x["step_ms"] for x in lines][WARM:]
    end, span = time.time(), sum(ms) / 1e3
    busy = [b for t, b in watch.busy if end - span < t < end - 0.2]
    return dict(ms=ms, mib=watch.most / 2**20, first=(first or end) - start, loss=lines[-1]["loss"],
                idle=1 - statistics.mean(busy) / 100 if busy else float("nan"))


def run_nnaot(name, bundle, folder, inputs, steps):
    log = folder / "nnaot.jsonl"
    env = dict(os.environ, LD_LIBRARY_PATH=":".join(libraries() + [os.environ.get("LD_LIBRARY_PATH", "")]))
    command = [str(bundle / "bench" / name), "--steps", str(steps), "--log", str(log)]
    for key, file in inputs.items():
        command += ["--input", f"{key}={folder / file}"]
    return watched(command, env, log, steps)


def run_torch(name, folder, mode, steps):
    log = folder / "torch.jsonl"
    command = [sys.executable, __file__, "--peer", name, str(folder), str(mode), str(steps), str(log)]
    return watched(command, dict(os.environ), log, steps)


def peer(name, folder, mode, steps, log):
    """The PyTorch process: the same training, logged in the same form."""
    import numpy as np
    import torch
    from torch.nn import functional as F
    import bench_models as models
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    which, batch = models.BENCH[name]
    with torch.device("cuda"):
        model, (input_name, _) = models.build(which)
    images = which not in models.GPT2
    if images:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **ADAMW)
    data = {p.stem: torch.from_numpy(np.load(p)).pin_memory() for p in sorted(folder.glob("*.npy"))}

    def loss_of(x, labels):
        with torch.autocast("cuda", torch.bfloat16):
            y = model(x)
            if images:
                return F.cross_entropy(y, labels)
            return F.cross_entropy(y[:, :-1].flatten(0, 1), x[:, 1:].flatten())

    run = torch.compile(loss_of, mode=None if mode == "default" else mode) if mode != "None" else loss_of
    out = open(log, "w")
    events, losses = [], []
    for step in range(steps):
        begin = time.perf_counter()
        at = step % 2 * batch
        x = data[input_name][at:at + batch].cuda(non_blocking=True)
        if images:
            x = x.to(memory_format=torch.channels_last)
        labels = data["labels"][at:at + batch].cuda(non_blocking=True) if images else None
        loss = run(x, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step < WARM:  # afterwards nobody waits but for the step before, as a training loop that logs does
            torch.cuda.synchronize()
        losses.append(loss.detach())
        if step > 0:
            losses[step - 1].item()
        events.append(time.perf_counter() - begin)
        if step == 0:
            print(json.dumps(dict(step=0, loss=loss.item(), step_ms=events[0] * 1e3)), file=out, flush=True)
    for step in range(1, steps):
        print(json.dumps(dict(step=step, loss=losses[step].item(), step_ms=events[step] * 1e3)), file=out)
    out.close()


def flop(name):
    """Of the matrix products of one step, causal attention counted by half; forward, and backward twice that."""
    import bench_models as models
    which, batch = models.BENCH[name]
    if which in models.GPT2:
        layers, _, width = models.GPT2[which]
        weights = layers * 12 * width**2 + models.VOCABULARY * width
        return 6 * weights * batch * models.TOKENS + 6 * layers * models.TOKENS**2 * width * batch
    return 3 * batch * {"resnet50": 2 * 4.09e9, "vit-b16": 2 * 17.58e9}[which]


def matrix_rate():
    """FLOP/s of a large bf16 product on random numbers."""
    import torch
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(10):
        a @ b
    end.record()
    torch.cuda.synchronize()
    return 10 * 2 * 8192**3 / (begin.elapsed_time(end) / 1e3)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bundle", type=pathlib.Path)
    p.add_argument("names", nargs="*")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--json", type=pathlib.Path)
    a = p.parse_args()
    import torch
    import bench_models as models
    rate = matrix_rate()
    print(f"{torch.cuda.get_device_name()}, {rate / 1e12:.0f} TFLOP/s in bf16, torch {torch.__version__}\n")
    names = a.names or [n for n in models.BENCH if (a.bundle / "bench" / n).exists()]
    everything = {}
    for name in names:
        which, batch = models.BENCH[name]
        units = batch * (models.TOKENS if which in models.GPT2 else 1)
        runs = {}
        with tempfile.TemporaryDirectory() as tmp:
            folder = pathlib.Path(tmp)
            inputs = make_data(name, folder)
            for _ in range(a.rounds):
                contestants = [("nnaot", lambda: run_nnaot(name, a.bundle, folder, inputs, a.steps))]
                contestants += [(k, lambda m=m: run_torch(name, folder, m, a.steps)) for k, m in TORCH.items()]
                for who, run in contestants:
                    try:
                        runs.setdefault(who, []).append(run())
                    except RuntimeError as e:
                        print(f"{name}: {who}: {e}", file=sys.stderr)
        what = "tokens/s" if which in models.GPT2 else "images/s"
        print(f"{name}\n  {'':24}{'ms a step':>10}{what:>12}{'MiB':>9}{'first, s':>10}{'idle':>7}{'roofline':>10}")
        table = {}
        for who, results in runs.items():
            ms = statistics.median(x for r in results for x in r["ms"])
            row = dict(ms=ms, rate=units / ms * 1e3, mib=max(r["mib"] for r in results),
                       first=statistics.median(r["first"] for r in results),
                       idle=statistics.median(r["idle"] for r in results), roofline=flop(name) / rate / ms * 1e3,
                       spread=[statistics.median(r["ms"]) for r in results])
            table[who] = row
            print(f"  {who:24}{ms:10.2f}{row['rate']:12.0f}{row['mib']:9.0f}{row['first']:10.1f}{row['idle']:7.1%}"
                  f"{row['roofline']:10.1%}")
        peers = [r for w, r in table.items() if w != "nnaot"]
        if "nnaot" in table and peers:
            best = min(peers, key=lambda r: r["ms"])
            print(f"  best PyTorch / nnaot: time {best['ms'] / table['nnaot']['ms']:.2f}, "
                  f"memory {best['mib'] / table['nnaot']['mib']:.2f}")
        print(flush=True)
        everything[name] = table
    if a.json:
        a.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6])
    else:
        main()
