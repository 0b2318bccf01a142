"""Executables for aarch64, compiled on x86-64 and run by QEMU: their losses and norms of gradients are those of the x86-64
executables, within rounding, though all their kernels are our own.  They name their instruction set and kernels, and end with
an error if they are to use the instruction set of another processor.

    cnn       convolutions of 3x3, strided, depthwise, 1x1 and in groups, in one dimension of space and in two

Prints a table: the largest relative differences, and the seconds of QEMU.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import onnx_bytes
from common import NNAOT, SAMPLES, SAMPLE, OPTIMIZER, check, data_flags, finish, read_log, run, scratch, worst_difference, write_npy
from onnx_bytes import field, node, tensor, value_info

LIBRARIES = "/usr/aarch64-linux-gnu"
QEMU = ["qemu-aarch64", "-L", LIBRARIES]
# Of one program and step: sums of f32 in other orders; in 16 bits a sum near the middle of two numbers is rounded to either, which
# are 2^-8 and 2^-11 apart.  f16 has a scale of the loss, and gradients that reach its smallest numbers.
LIMIT = {"f32": 2e-6, "bf16": 1e-3, "f16": 2e-3}
NORM_LIMIT = {"f32": 1e-5, "bf16": 1e-2, "f16": 1e-2}
STEPS = {"mlp": 12, "cnn": 6, "resnet": 4, "gpt2": 2}
RUNS = [("mlp", "f32", 1), ("mlp", "f16", 2), ("cnn", "f32", 1), ("cnn", "f32", 2), ("cnn", "bf16", 1), ("resnet", "f32", 1),
        ("gpt2", "f32", 2), ("gpt2", "bf16", 1)]


def cnn(folder):
    """Returns the arguments of nnaot and of the executable: a model with one convolution of each kind."""
    draw = random.Random(3)
    weights, nodes = [], []

    def add(name, dims, size):
        n = 1
        for d in dims:
            n *= d
        weights.append((name, dims, [draw.gauss(0, size) for _ in range(n)]))

    def conv(x, y, outs, ins, kernel, group=1, norm=True, **attributes):
        fan = ins // group
        for k in kernel:
            fan *= k
        add(f"{y}_w", [outs, ins // group, *kernel], fan ** -0.5)
        nodes.append(node("Conv", [x, f"{y}_w"], [f"{y}_c"], f"/{y}/Conv", group=group, **attributes))
        if norm:
            for part, value in (("g", 1.0), ("b", 0.1), ("m", 0.0), ("v", 1.0)):
                weights.append((f"{y}_{part}", [outs], [value] * outs))
            nodes.append(node("BatchNormalization", [f"{y}_c", *(f"{y}_{p}" for p in "gbmv")], [f"{y}_n", f"{y}_m1", f"{y}_v1"],
                              f"/{y}/BatchNormalization", training_mode=1))
        nodes.append(node("Relu", [f"{y}_n" if norm else f"{y}_c"], [y], f"/{y}/Relu"))

    conv("x", "full", 16, 3, [3, 3], pads=[1, 1, 1, 1])
    conv("full", "depth", 16, 16, [3, 3], group=16, pads=[1, 1, 1, 1], strides=[2, 2])
    conv("depth", "point", 40, 16, [1, 1])
    conv("point", "groups", 40, 40, [3, 3], group=4, pads=[1, 1, 1, 1], norm=False)
    conv("groups", "strided", 24, 40, [2, 3], pads=[0, 2, 1, 1], strides=[2, 2], dilations=[1, 2])
    weights.append(("line", [3], [0, 24, -1], 7))
    nodes.append(node("Reshape", ["strided", "line"], ["row"], "/Reshape"))
    conv("row", "one", 20, 24, [5], pads=[2, 2], norm=False)
    nodes.append(node("GlobalAveragePool", ["one"], ["mean"], "/GlobalAveragePool"))
    nodes.append(node("Flatten", ["mean"], ["flat"], "/Flatten"))
    add("w", [20, 10], 0.3)
    nodes.append(node("MatMul", ["flat", "w"], ["logits"], "/MatMul"))
    graph = (b"".join(field(1, n) for n in nodes) + field(2, "cnn") + b"".join(field(5, tensor(*w)) for w in weights)
             + field(11, value_info("x", ["n", 3, 14, 12])) + field(12, value_info("logits", ["n", 10])))
    (folder / "cnn.onnx").write_bytes(onnx_bytes.model(graph))
    rows = 24
    write_npy(folder / "x.npy", [draw.gauss(0, 1) for _ in range(rows * 3 * 14 * 12)], (rows, 3, 14, 12))
    write_npy(folder / "labels.npy", [draw.randrange(10) for _ in range(rows)], (rows,), "<i8")
    return ([folder / "cnn.onnx", "--batch", 8, "--loss", "cross_entropy(logits)"],
            ["--input", f"x={folder / 'x.npy'}", "--input", f"labels={folder / 'labels.npy'}"])


def missing():
    """What is not installed, or None."""
    for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        if not shutil.which(tool):
            return tool
    libraries = pathlib.Path(LIBRARIES, "lib/ld-linux-aarch64.so.1")
    return None if libraries.exists() else libraries


def steps(folder, command, name):
    """Trains, and returns the losses and norms of gradients, and the seconds."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    begin = time.time()
    run(*command, "--steps", STEPS[name], "--log", log)
    return *([line[key] for line in read_log(log)] for key in ("loss", "grad_norm")), time.time() - begin


if absent := missing():
    print(f"skipped: there is no '{absent}': tools/setup test installs it")
    sys.exit(77)
# Executables start themselves again (rt/omp_spin.c), which would leave QEMU; OpenMP's threads spin, and QEMU's are slow.
os.environ.update(GOMP_SPINCOUNT="1000", OMP_NUM_THREADS="1")
print(f"{'model':8}{'dtype':6}{'ranks':6}{'loss':>9}{'norm':>9}{'seconds':>9}")
with scratch() as folder:
    folder = pathlib.Path(folder)
    inputs = {name: ([SAMPLES / name / f"{name}.onnx", "--batch", s["batch"], "--loss", s["loss"]], data_flags(name))
              for name, s in SAMPLE.items()}
    inputs["cnn"] = cnn(folder)
    for name, dtype, ranks in RUNS:
        model, data = inputs[name]
        results = []
        for target, emulator in (("cpu", []), ("cpu:aarch64", QEMU)):
            exe = folder / "train"
            run(NNAOT, *model, "-g", ranks, "--dtype", dtype, *OPTIMIZER["adamw"], "--clip-norm", 1, "--target", target, "-o", exe)
            results.append(steps(folder, [*emulator, exe, *data], name))
        (loss, norm, _), (got, got_norm, seconds) = results
        off, off_norm = worst_difference(got, loss), worst_difference(got_norm, norm)
        print(f"{name:8}{dtype:6}{ranks:<6}{off:9.1e}{off_norm:9.1e}{seconds:9.2f}", flush=True)
        check(f"{name} in {dtype} on {ranks} ranks: losses of aarch64 and x86-64", off < LIMIT[dtype], got, loss)
        check(f"{name} in {dtype} on {ranks} ranks: norms of gradients", off_norm < NORM_LIMIT[dtype], got_norm, norm)
    # The last one is of aarch64.
    head = run("readelf", "-h", exe)
    check("the executable is of aarch64", "AArch64" in head, head)
    says = json.loads(run(*QEMU, exe, "--describe"))
    check("--describe names target, instruction set and kernels",
          (says["target"], says["instruction_set"], says["kernels"]) == ("cpu:aarch64", "neon", ["nnaot"]), says)
    check("it is linked without oneDNN", not any("dnnl" in library for library in says["libraries"]), says["libraries"])
    done = subprocess.run([*QEMU, str(exe), *map(str, data), "--steps", "1"], env={**os.environ, "NNRT_MAX_ISA": "avx2"},
                          capture_output=True, text=True)
    check("there is no avx2", done.returncode != 0 and "no instruction set has this name\nhint: neon" in done.stderr, done.stderr)
finish()
