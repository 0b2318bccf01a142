#!/usr/bin/env python3
"""Training speed on a GPU beside PyTorch:  python3 bench.py BUNDLE [NAME...] [--only WHO,...] [--rounds N] [--steps N]

BUNDLE is a folder from bundle.py; this needs a GPU, python3, and torch for its contestants (for models of images numpy
and torchvision, too).  Every contestant runs in a process of its own, in turn (A B C A B C …), for at most --limit
seconds, in bf16 with f32 master weights and AdamW, on the same shapes and on data that begin in host memory every step.
PyTorch's best settings: autocast, fused AdamW, flash attention, channels_last for convolutions, pinned memory, TF32 for
the remaining f32 products.

    nnaot                   with cuBLASLt's first proposals
    nnaot tuned             with --tune; the file is kept
    torch eager
    torch compile
    torch max-autotune      takes minutes to start, so only if requested

For each: median ms of a step (without the first ones), tokens or images per second, the peak GPU memory of the process,
seconds from its start to the end of its first step, the share of samples with an idle GPU during training, and the
share of the roofline (the GPU's matrix rate over the FLOP that the model needs).
"""

import argparse
import array
import importlib.util
import json
import os
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

import bench_models as models

HERE = pathlib.Path(__file__).resolve().parent
WARM = 5  # steps left out: first runs, capture
ADAMW = dict(lr=3e-4, weight_decay=0.1, betas=(0.9, 0.95))
TORCH = {"torch eager": None, "torch compile": "default", "torch max-autotune": "max-autotune"}
NNAOT = ["nnaot", "nnaot tuned"]
# TFLOP/s in bf16 from data sheets, without sparsity, for a GPU that was not measured.
PEAK = {"H200": 989, "H100 PCIe": 756, "H100": 989, "GH200": 989, "A100": 312, "B200": 2250, "B100": 1750}


def libraries():
    """The folders of NVIDIA's wheels, which PyTorch loads."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations) if spec else []
    return [str(p) for r in roots for p in sorted(pathlib.Path(r).glob("*/lib"))]


def environment(bundle):
    """Libraries: those of the bundle, then NVIDIA's wheels beside PyTorch, then the machine's."""
    folders = [str(bundle / "lib"), *libraries(), os.environ.get("LD_LIBRARY_PATH", "")]
    return dict(os.environ, LD_LIBRARY_PATH=":".join(f for f in folders if f))


class Watch(threading.Thread):
    """Samples NVML's figures of the GPU while a process runs; nothing without NVML."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.busy, self.on = float("nan"), [], True

    def run(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.most = 0
            while self.on:
                self.most = max(self.most, pynvml.nvmlDeviceGetMemoryInfo(gpu).used)
                self.busy.append((time.time(), pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu))
                time.sleep(0.05)
        except Exception as e:  # the module or the library is missing, or the driver refuses
            print(f"NVML: {e}", file=sys.stderr)


def make_data(name, folder):
    """Two batches of random rows for each input; their files by the name of the input.  Tokens need no numpy."""
    model, batch = models.BENCH[name]
    if model in models.GPT2:
        *_, tokens, words = models.GPT2[model]
        rng, path = random.Random(5), folder / "input_ids.npy"
        header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({2 * batch}, {tokens}), }}".encode()
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        ids = array.array("q", (rng.randrange(min(words, 50257)) for _ in range(2 * batch * tokens)))
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + ids.tobytes())
        return {"input_ids": path}
    import numpy as np
    rng = np.random.default_rng(5)
    np.save(folder / "x.npy", rng.standard_normal((2 * batch, 3, 224, 224), dtype=np.float32))
    np.save(folder / "labels.npy", rng.integers(0, models.CLASSES, 2 * batch))
    return {"x": folder / "x.npy", "labels": folder / "labels.npy"}


def watched(command, env, log, steps, limit):
    """Runs it for at most `limit` seconds; returns NVML's samples, and the time of each line of `log`.  Its output goes to a
    file: a pipe without a reader would block it once it is full."""
    log.unlink(missing_ok=True)
    start, error = time.time(), log.with_suffix(".stderr")
    with open(error, "w") as f:
        process = subprocess.Popen([str(c) for c in command], env=env, stdout=f, stderr=f, start_new_session=True)
    watch = Watch()
    watch.start()
    first = None
    while process.poll() is None and time.time() - start < limit:
        if first is None and log.exists() and log.stat().st_size:
            first = time.time()
        time.sleep(0.002)
    watch.on = False
    late = process.poll() is None
    if late:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said = error.read_text(errors="replace")
    if late:
        raise RuntimeError(f"{command[0]} did not end in {limit:.0f} s:\n{said}")
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}:\n{said}")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    if len(lines) != steps:
        raise RuntimeError(f"{command[0]} logged {len(lines)} of {steps} steps:\n{said}")
    ms = [x["step_ms"] for x in lines][min(WARM, steps - 1):]
    end, span = time.time(), sum(ms) / 1e3
    busy = [b for t, b in watch.busy if end - span < t < end - 0.2]
    return dict(ms=ms, mib=watch.most / 2**20, first=(first or end) - start, loss=lines[-1]["loss"], said=said,
                idle=1 - statistics.mean(busy) / 100 if busy else float("nan"))


def run_nnaot(name, bundle, folder, inputs, steps, limit, *flags):
    log = folder / "nnaot.jsonl"
    command = [bundle / "bench" / name, "--steps", steps, "--log", log, *flags]
    for key, file in inputs.items():
        command += ["--input", f"{key}={file}"]
    return watched(command, environment(bundle), log, steps, limit)


def run_torch(name, folder, who, steps, limit):
    log = folder / "torch.jsonl"
    command = [sys.executable, __file__, "--peer", name, folder, TORCH[who], steps, log]
    return watched(command, dict(os.environ), log, steps, limit)


def loss_of_gpt2(logits, x):
    """The loss of the next token.  Labels are shifted, not logits: those would be copied whole, which is not part of the work."""
    from torch.nn import functional as F
    labels = F.pad(x[:, 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def peer(name, folder, mode, steps, log, device="cuda"):
    """The PyTorch process: the same training, logged in the same form."""
    import numpy as np
    import torch
    from torch.nn import functional as F
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    on_gpu = device == "cuda"
    which, batch = models.BENCH[name]
    with torch.device(device):
        model, (input_name, _) = models.build(which)
    images = which not in models.GPT2
    if images:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **ADAMW)
    data = {p.stem: torch.from_numpy(np.load(p)) for p in sorted(folder.glob("*.npy"))}
    if on_gpu:
        data = {k: v.pin_memory() for k, v in data.items()}

    def loss_of(x, labels):
        with torch.autocast(device, torch.bfloat16):
            y = model(x)
            return F.cross_entropy(y, labels) if images else loss_of_gpt2(y, x)

    run = torch.compile(loss_of, mode=None if mode == "default" else mode) if mode != "None" else loss_of
    out = open(log, "w")
    events, losses = [], []
    for step in range(steps):
        begin = time.perf_counter()
        at = step % 2 * batch
        x = data[input_name][at:at + batch].to(device, non_blocking=True)
        if images:
            x = x.to(memory_format=torch.channels_last)
        labels = data["labels"][at:at + batch].to(device, non_blocking=True) if images else None
        loss = run(x, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step < WARM and on_gpu:  # later steps only wait for the step before, as a training loop that logs does
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


def rates():
    """The GPU's name, FLOP/s of a large bf16 product on random numbers, bytes/s read and written by a copy."""
    import torch

    def seconds(work):
        for _ in range(3):
            work()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            work()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e4

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    x, y = (torch.empty(2**30, device="cuda", dtype=torch.uint8) for _ in range(2))
    return dict(name=torch.cuda.get_device_name(), torch=torch.__version__, gpus=torch.cuda.device_count(), measured=True,
                flop=2 * 8192**3 / seconds(lambda: a @ b), bytes=2 * 2**30 / seconds(lambda: y.copy_(x)))


def rate_by_name(gpu):
    """Figures without a measurement."""
    known = next((v for k, v in PEAK.items() if k in gpu), float("nan"))
    return dict(name=gpu, measured=False, flop=known * 1e12, bytes=float("nan"))


def row(name, results, rate):
    """Summarises the runs of one contestant."""
    ms = statistics.median(x for r in results for x in r["ms"])
    return dict(ms=ms, rate=models.units(name)[1] / ms * 1e3, mib=max(r["mib"] for r in results),
                first=statistics.median(r["first"] for r in results), idle=statistics.median(r["idle"] for r in results),
                roofline=models.flop(name) / rate["flop"] / ms * 1e3, loss=results[-1]["loss"],
                spread=[statistics.median(r["ms"]) for r in results])


def print_table(name, table, rate):
    print(f"{name} on {rate['name']}\n  {'':24}{'ms a step':>10}{models.units(name)[0] + '/s':>12}{'MiB':>9}{'first, s':>10}"
          f"{'idle':>7}{'roofline':>10}")
    for who, r in table.items():
        print(f"  {who:24}{r['ms']:10.2f}{r['rate']:12.0f}{r['mib']:9.0f}{r['first']:10.1f}{r['idle']:7.1%}"
              f"{r['roofline']:10.1%}")
    ours, peers = [r for w, r in table.items() if w in NNAOT], [r for w, r in table.items() if w not in NNAOT]
    if ours and peers:
        best, peer = (min(rows, key=lambda r: r["ms"]) for rows in (ours, peers))
        print(f"  best PyTorch / nnaot: time {peer['ms'] / best['ms']:.2f}, memory {peer['mib'] / best['mib']:.2f}")
    print(flush=True)


def compare(bundle, name, only, rounds, steps, limit, rate, keep):
    """Runs the contestants in turn; returns a table of their rows, and the errors.  Files of --tune go to `keep`."""
    runs, failed = {}, {}
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        inputs = make_data(name, folder)
        for _ in range(rounds):
            for who in only:
                try:
                    if who in NNAOT:
                        tune = ["--tune", keep / f"{name}.tune"] if who == "nnaot tuned" else []
                        result = run_nnaot(name, bundle, folder, inputs, steps, limit, *tune)
                    else:
                        result = run_torch(name, folder, who, steps, limit)
                    runs.setdefault(who, []).append(result)
                except RuntimeError as e:
                    failed[who] = str(e)
    return {who: row(name, results, rate) for who, results in runs.items()}, failed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bundle", type=pathlib.Path)
    p.add_argument("names", nargs="*")
    p.add_argument("--only", default=",".join([*NNAOT, *TORCH]), help="contestants, with commas between them")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--limit", type=float, default=180, help="seconds of one run")
    p.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("."), help="the folder of tune files")
    p.add_argument("--json", type=pathlib.Path)
    a = p.parse_args()
    only = [w.strip() for w in a.only.split(",")]
    unknown = [w for w in only if w not in [*NNAOT, *TORCH]]
    names = a.names or [n for n in models.BENCH if (a.bundle / "bench" / n).exists()]
    unknown += [n for n in names if n not in models.BENCH]
    if unknown:
        p.error(f"unknown: {', '.join(unknown)}")
    rate = rates()
    print(f"{rate['name']}, {rate['flop'] / 1e12:.0f} TFLOP/s in bf16, {rate['bytes'] / 1e12:.1f} TB/s, torch {rate['torch']}\n")
    everything = {"card": rate}
    for name in names:
        table, failed = compare(a.bundle, name, only, a.rounds, a.steps, a.limit, rate, a.keep)
        for who, why in failed.items():
            print(f"{name}: {who}: {why}", file=sys.stderr)
        print_table(name, table, rate)
        everything[name] = table
        if a.json:
            a.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6])
    elif sys.argv[1:2] == ["--rates"]:
        print(json.dumps(rates()))
    else:
        main()
