#!/usr/bin/env python3
"""Times training steps of nnaot and PyTorch:  bench.py [MODEL ...]     (tests/bench/run builds nnaot and calls it)

    --threads N       threads of each (2)
    --rounds N        processes of each contestant, in turn (3)
    --steps N         steps of a process (12); the first three are not timed
    --batches N       batches of data, in turn (4)
    --data KIND       random, or learnable: that of learnable.py (random)
    --warmup N        the learning rate grows for N steps, and then falls to 0 by a cosine (0: it is constant)
    --dtypes A,B      f32, bf16 (f32): bf16 is nnaot's --dtype bf16 and PyTorch's autocast
    --only A,B        contestants, by parts of their names
    --torch-preload F a library of malloc for PyTorch, such as libjemalloc.so.2
    --nnaot FILE      the compiler (build/bin/nnaot)
    --flags FLAGS     more flags of it
    --results FILE    a line of JSON for each model; those that it has, with the same settings, are not run again
    --list            the models

Every contestant runs in its own process, in turn (A B C A B C …), on the same weights and data and with the same number of
threads.  A row is the median of all timed steps, peak memory is the process's largest resident set, and `first step` are the
times from exec to the begin and to the end of the first step.  PyTorch has its best settings: fused AdamW, channels_last for
convolutions, gradients set to None, no data loader; eager and two modes of torch.compile.  The last row is a bound: ONNX
Runtime's inference of the exported model, which computes a third of a step's products.  bench_tables.py makes tables and pictures
of the results.
"""

import argparse
import functools
import json
import math
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "samples"), str(ROOT / "tools"), str(HERE.parent)]

UNTIMED = 3  # the first steps of a process
INFERENCE = "onnxruntime inference"
# Contestants of each type; the mode of torch.compile, None: eager.
TORCH = {"torch eager": None, "torch.compile": "default", "compile, tuned": "max-autotune-no-cudagraphs"}
ADAMW = dict(lr=1e-3, weight_decay=0.1, betas=(0.9, 0.95))


def contestants(dtypes):
    """Pairs of a name and a type."""
    training = [(name, dtype) for dtype in dtypes for name in ("nnaot", *TORCH)]
    return training + [(INFERENCE, "f32")] * ("f32" in dtypes)


def peak_mib():
    """Of this process. getrusage's would include the parent's at the time of the fork."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) / 1024


def load(folder, names):
    import numpy as np
    return {name: np.load(folder / f"{name}.npy") for name in names}


def prepare(name, folder, a):
    """Writes the .onnx, the data and nnaot's executables; returns compile seconds and bytes of each."""
    import learnable
    import numpy as np
    import torch
    import nnaot_export
    from bench_models import MODELS
    model = MODELS[name]
    draw = model.data if a.data == "random" else functools.partial(learnable.data, model)
    data = draw(np.random.default_rng(3), a.batches * model.batch)
    for key, array in data.items():
        np.save(folder / f"{key}.npy", array)
    (folder / "batch").write_text(str(model.batch))  # for a process without torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nnaot_export.export(model.build(), {key: torch.from_numpy(data[key][:model.batch]) for key in model.inputs},
                            folder / "model.onnx", output_names=["logits"])
    compiled = {}
    for dtype in a.dtypes:
        start = time.perf_counter()
        done = subprocess.run([a.nnaot, folder / "model.onnx", "--batch", str(model.batch), "--loss", model.loss, "--dtype", dtype,
                        "--optimizer", "adamw:weight_decay=0.1,betas=0.9/0.95", "--lr", "0.001", "-o", folder / dtype,
                        *(["--lr-schedule", f"cosine:warmup={a.warmup}"] if a.warmup else []), *a.flags.split()],
                       capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name}, {dtype}: {done.stderr.strip()}")
        compiled[dtype] = time.perf_counter() - start, (folder / dtype).stat().st_size
    return compiled


# -- A process of a contestant ---------------------------------------------------------------------

def command_of_script(kind, name, folder, dtype, steps, a):
    return [sys.executable, HERE, "--one", kind, name, str(folder), dtype, "--steps", str(steps), "--threads", str(a.threads),
            "--warmup", str(a.warmup)]


def command_of(kind, name, folder, dtype, steps, a):
    """The process that trains: nnaot's executable, or this script."""
    if kind != "nnaot":
        return command_of_script(kind, name, folder, dtype, steps, a)
    inputs = [f for p in sorted(folder.glob("*.npy")) for f in ("--input", f"{p.stem}={p}")]
    return [folder / dtype, *inputs, "--steps", str(steps)]


def run_nnaot(folder, dtype, steps, a):
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    subprocess.run([*command_of("nnaot", None, folder, dtype, steps, a), "--log", log], check=True,
                   env=dict(os.environ, OMP_NUM_THREADS=str(a.threads)), stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    # This process is small, so the child's peak is its own.
    mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return dict(ms=[x["step_ms"] for x in lines], loss=[x["loss"] for x in lines], mib=mib)


def rate_factor(warmup, steps):
    """The learning rate of a step, as a part of that given, by cosine:warmup=…"""
    def factor(step):
        return (step + 1) / warmup if step < warmup else (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
    return factor if warmup else lambda step: 1.0


def run_torch(name, folder, dtype, steps, a):
    import torch
    from bench_models import MODELS
    model, mode = MODELS[name], TORCH[a.one]
    torch.set_num_threads(a.threads)
    module = model.build()
    tensors = {key: torch.from_numpy(x) for key, x in load(folder, [p.stem for p in folder.glob("*.npy")]).items()}
    if model.convolutions:
        module = module.to(memory_format=torch.channels_last)
        tensors["x"] = tensors["x"].contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(module.parameters(), fused=True, **ADAMW)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_factor(a.warmup, steps))

    def loss_of(tensors):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            logits = module(**{key: tensors[key] for key in model.inputs})
        return model.loss_of(logits, tensors)

    rows = len(next(iter(tensors.values())))
    if mode:
        loss_of = torch.compile(loss_of, mode=mode)
    ms, losses = [], []
    for s in range(steps):
        first = s * model.batch % rows
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of({key: x[first:first + model.batch] for key, x in tensors.items()})
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        ms.append((time.perf_counter() - start) * 1e3)
    return dict(ms=ms, loss=losses, mib=peak_mib())


def run_inference(folder, steps, a):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = a.threads
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    data, batch = load(folder, [i.name for i in session.get_inputs()]), int((folder / "batch").read_text())
    ms, rows = [], len(next(iter(data.values())))
    for s in range(steps):
        first = s * batch % rows
        start = time.perf_counter()
        session.run(["logits"], {key: x[first:first + batch] for key, x in data.items()})
        ms.append((time.perf_counter() - start) * 1e3)
    return dict(ms=ms, loss=[], mib=peak_mib())


def run_one(name, folder, dtype, a):
    if a.one == "nnaot":
        return run_nnaot(folder, dtype, a.steps, a)
    if a.one == INFERENCE:
        return run_inference(folder, a.steps, a)
    return run_torch(name, folder, dtype, a.steps, a)


# -- All processes ---------------------------------------------------------------------------------

def in_process(kind, name, folder, dtype, steps, a):
    """The result of a process, or None with the last line of its error."""
    env = dict(os.environ, **({"LD_PRELOAD": a.torch_preload} if a.torch_preload and kind in TORCH else {}))
    out = subprocess.run(command_of_script(kind, name, folder, dtype, steps, a), capture_output=True, text=True, env=env)
    if out.returncode:
        print(f"{name}, {kind}, {dtype}: {(out.stderr.strip().splitlines() or ['failed'])[-1][:200]}", file=sys.stderr)
        return None
    return json.loads(out.stdout.splitlines()[-1])


def first_step(kind, name, folder, dtype, a):
    """Seconds from exec to the begin and to the end of the first step: those of a process of one step."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    command = [*command_of(kind, name, folder, dtype, 1, a), *(["--log", log] if kind == "nnaot" else [])]
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    start = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        return None
    ms = json.loads(log.read_text())["step_ms"] if kind == "nnaot" else json.loads(done.stdout.splitlines()[-1])["ms"][0]
    return seconds - ms / 1e3, seconds


def settings_of(a):
    said = f"{a.threads} threads, {a.rounds} rounds of {a.steps} steps, {a.batches} batches, {','.join(a.dtypes)}"
    data = "" if a.data == "random" else f"{a.data} data"
    warmup = f"warmup of {a.warmup}" if a.warmup else ""
    return " ".join([said, *filter(None, (data, warmup, a.flags, a.only, a.torch_preload))])


def read_results(a):
    """Those of --results, by model; an error if they are of other settings."""
    known, settings = {}, settings_of(a)
    if a.results and a.results.exists():
        known = {r["model"]: r for r in map(json.loads, a.results.read_text().splitlines())}
    other = [name for name, r in known.items() if r["settings"] != settings]
    if other:
        raise SystemExit(f"{a.results} has {other[0]} with other settings: {known[other[0]]['settings']}, not {settings}")
    return known


def measure(name, a):
    with tempfile.TemporaryDirectory(prefix="nnaot-bench-") as folder:
        folder = pathlib.Path(folder)
        compiled = prepare(name, folder, a)
        wanted = [(kind, dtype) for kind, dtype in contestants(a.dtypes)
                  if not a.only or any(part in kind for part in a.only.split(","))]
        runs = {key: [] for key in wanted}
        for _ in range(a.rounds):
            for key in wanted:
                got = in_process(key[0], name, folder, key[1], a.steps, a)
                if got:
                    runs[key].append(got)
        rows = []
        for (kind, dtype), got in runs.items():
            if not got:
                continue
            ms = [x for r in got for x in r["ms"][UNTIMED:]]
            rows.append(dict(kind=kind, dtype=dtype, ms=statistics.median(ms), min=min(ms), max=max(ms),
                             mib=max(r["mib"] for r in got), losses=got[0]["loss"],
                             first=first_step(kind, name, folder, dtype, a)))
    return dict(model=name, settings=settings_of(a), rows=rows, compiled=compiled)


def show(result):
    from bench_models import MODELS
    print(f"\n{MODELS[result['model']].title}, AdamW, {result['settings']}; "
          + "; ".join(f"{dtype}: compiled in {s:.1f} s, executable {size / 2**20:.1f} MiB"
                      for dtype, (s, size) in result["compiled"].items()))
    print(f"{'':28}{'ms a step':>10}{'min':>9}{'max':>9}{'x nnaot':>9}{'peak MiB':>10}{'first step, s':>15}{'last loss':>11}")
    ours = {r["dtype"]: r["ms"] for r in result["rows"] if r["kind"] == "nnaot"}
    for r in result["rows"]:
        ratio = f"{r['ms'] / ours[r['dtype']]:.2f}" if r["dtype"] in ours else ""
        first = ", ".join(f"{seconds:.2f}" for seconds in r["first"] or [])
        loss = f"{r['losses'][-1]:.5f}" if r["losses"] else ""
        print(f"{r['kind'] + ', ' + r['dtype']:28}{r['ms']:10.2f}{r['min']:9.2f}{r['max']:9.2f}{ratio:>9}{r['mib']:10.0f}"
              f"{first:>15}{loss:>11}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    p.add_argument("models", nargs="*")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--batches", type=int, default=4)
    p.add_argument("--data", choices=["random", "learnable"], default="random")
    p.add_argument("--warmup", type=int, default=0)
    p.add_argument("--dtypes", type=lambda s: s.split(","), default=["f32"])
    p.add_argument("--only", default="")
    p.add_argument("--torch-preload", default="")
    p.add_argument("--nnaot", default=ROOT / "build/bin/nnaot")
    p.add_argument("--flags", default="")
    p.add_argument("--results", type=pathlib.Path)
    p.add_argument("--list", action="store_true")
    p.add_argument("--one", metavar="KIND", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one:
        name, folder, dtype = a.models
        print(json.dumps(run_one(name, pathlib.Path(folder), dtype, a)), flush=True)
        os._exit(0)  # first_step does not count the end of the interpreter
    from bench_models import MODELS
    unknown = set(a.models) - set(MODELS)
    if unknown:
        raise SystemExit(f"no model {', '.join(sorted(unknown))}: see --list")
    if a.steps <= UNTIMED:
        raise SystemExit(f"--steps: more than {UNTIMED}")
    if a.list:
        print("\n".join(f"{name:14}{model.title}" for name, model in MODELS.items()))
        return
    known = read_results(a)
    for name in a.models or MODELS:
        result = known.get(name) or measure(name, a)
        if a.results and name not in known:
            with a.results.open("a") as f:
                f.write(json.dumps(result) + "\n")
        show(result)


if __name__ == "__main__":
    main()
