#!/usr/bin/env python3
"""Seconds of a compilation of whole models for CPUs:  tests/bench/compile_seconds.py NNAOT [NAME|FILE.onnx …] [--times 3] [--flags='-j 1']

Prints for each model its lines of C, the seconds of nnaot (median of several runs) by the clock and of all its processes (user
and system), those without the C compiler, and the largest process of each run by memory.  `large_models.py` has the Graph
that the models are written with; weights are random.  A FILE.onnx, such as an export of Falcon, has its options in --flags.
"""

import argparse
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from onnx import TensorProto

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from large_models import Graph, gpt, llama  # noqa: E402


def norm_relu(g, x, name, n):
    parts = [g.weight(f"{name}.{p}", n) for p in ("weight", "bias", "running_mean", "running_var")]
    return g.op("Relu", g.op("BatchNormalization", x, *parts, name=f"/{name}", n_out=3, training_mode=1)[0], name=f"/{name}/relu")


def conv(g, x, name, n_in, n_out, size, stride=1, groups=1):
    return g.op("Conv", x, g.weight(f"{name}.weight", n_out, n_in // groups, size, size), name=f"/{name}", group=groups,
                kernel_shape=[size] * 2, strides=[stride] * 2, pads=[size // 2] * 4)


def densenet(name, folder, blocks=(6, 12, 24, 16), growth=32, width=64):
    """DenseNet: each layer reads all earlier ones of its block, so that almost no two layers have one shape."""
    g = Graph(name)
    x = g.input("x", TensorProto.FLOAT, ["batch", 3, 224, 224])
    x = norm_relu(g, conv(g, x, "conv0", 3, width, 7, 2), "norm0", width)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for b, n in enumerate(blocks):
        for i in range(n):
            at = f"block{b}.layer{i}"
            y = conv(g, norm_relu(g, x, f"{at}.norm1", width), f"{at}.conv1", width, 4 * growth, 1)
            y = conv(g, norm_relu(g, y, f"{at}.norm2", 4 * growth), f"{at}.conv2", 4 * growth, growth, 3)
            x, width = g.op("Concat", x, y, name=f"/{at}/Concat", axis=1), width + growth
        if b < len(blocks) - 1:
            y = norm_relu(g, x, f"transition{b}.norm", width)
            width //= 2
            x = conv(g, y, f"transition{b}.conv", 2 * width, width, 1)
            x = g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = norm_relu(g, x, "norm5", width)
    g.linear(g.op("Flatten", g.op("GlobalAveragePool", x), axis=1), "classifier", width, 1000, bias=True)
    return g.save(folder, ["batch", 1000])


def xcit(name, folder, layers=24, width=192, heads=4, patches=14):
    """XCiT: attention between channels, written out, and convolutions among patches."""
    g, n, size = Graph(name), patches * patches, width // heads
    x = g.input("x", TensorProto.FLOAT, ["batch", 3, 16 * patches, 16 * patches])
    for i in range(4):
        x = conv(g, x, f"patch.{i}", 3 if i == 0 else width >> (4 - i), width >> (3 - i), 3, 2)
        x = norm_relu(g, x, f"patch.{i}.norm", width >> (3 - i))
    x = g.op("Reshape", x, g.constant([0, width, n]))
    x = g.op("Add", g.op("Transpose", x, perm=[0, 2, 1]), g.weight("pos", n, width))

    def unit(t, at):
        square = g.op("ReduceSum", g.op("Mul", t, t), g.constant([-1]), name=f"/{at}/ReduceSum", keepdims=1)
        return g.op("Div", t, g.op("Sqrt", g.op("Add", square, g.constant(1e-6))), name=f"/{at}/Div")

    for i in range(layers):
        at = f"blocks.{i}"
        y = g.linear(g.layer_norm(x, f"{at}.norm1", width), f"{at}.qkv", width, 3 * width, bias=True)
        parts = g.op("Split", y, n_out=3, axis=-1, num_outputs=3)
        q, k, v = (g.op("Transpose", g.op("Reshape", p, g.constant([0, n, heads, size])), perm=[0, 2, 3, 1]) for p in parts)
        a = g.op("MatMul", unit(q, f"{at}.q"), g.op("Transpose", unit(k, f"{at}.k"), perm=[0, 1, 3, 2]))
        a = g.op("Mul", a, g.weight(f"{at}.temperature", heads, 1, 1))
        y = g.op("MatMul", g.op("Softmax", a, axis=-1), v)
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 3, 1, 2]), g.constant([0, n, width]))
        y = g.linear(y, f"{at}.proj", width, width, bias=True)
        x = g.op("Add", x, g.op("Mul", y, g.weight(f"{at}.gamma1", width)))
        y = g.op("Transpose", g.layer_norm(x, f"{at}.norm3", width), perm=[0, 2, 1])
        y = conv(g, g.op("Reshape", y, g.constant([0, width, patches, patches])), f"{at}.conv1", width, width, 3, 1, width)
        parts = [g.weight(f"{at}.bn.{p}", width) for p in ("weight", "bias", "running_mean", "running_var")]
        y = g.op("BatchNormalization", g.op("Gelu", y), *parts, n_out=3, training_mode=1)[0]
        y = conv(g, y, f"{at}.conv2", width, width, 3, 1, width)
        y = g.op("Transpose", g.op("Reshape", y, g.constant([0, width, n])), perm=[0, 2, 1])
        x = g.op("Add", x, g.op("Mul", y, g.weight(f"{at}.gamma3", width)))
        y = g.linear(g.layer_norm(x, f"{at}.norm2", width), f"{at}.fc1", width, 4 * width, bias=True)
        y = g.linear(g.op("Gelu", y), f"{at}.fc2", 4 * width, width, bias=True)
        x = g.op("Add", x, g.op("Mul", y, g.weight(f"{at}.gamma2", width)))
    y = g.op("ReduceMean", g.layer_norm(x, "norm", width), g.constant([1]), keepdims=0)
    g.linear(y, "head", width, 1000, bias=True)
    return g.save(folder, ["batch", 1000])


# Name: constructor, options of nnaot.
ADAMW = "--optimizer adamw:weight_decay=0.1 --init random"
MODELS = {
    "gpt2": (lambda f: gpt("gpt2", f, 12, 768, 12, 1024, 50257, tied=True),
             f"--batch 1 --loss next_token(logits,input_ids) --clip-norm 1 {ADAMW}"),
    "densenet121": (lambda f: densenet("densenet121", f), f"--batch 8 --loss cross_entropy(logits) {ADAMW}"),
    "xcit": (lambda f: xcit("xcit", f), f"--batch 8 --loss cross_entropy(logits) {ADAMW}"),
    "llama": (lambda f: llama("llama", f, 16, 512, 8, 4, 1408, 256, 4096),
              f"--batch 1 --loss next_token(logits,input_ids) {ADAMW}"),
}


def run(command, folder):
    """Returns seconds by the clock, of the processors, and MiB of the largest process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    clock = time.monotonic() - begin
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, after.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nnaot", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("models", nargs="*", metavar="NAME|FILE.onnx")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--flags", type=shlex.split, default=[], help="further options of nnaot")
    parser.add_argument("--keep", metavar="DIR", help="leave models and executables there")
    o = parser.parse_args()
    print(f"{'model':14}{'files':>6}{'lines':>8}{'clock':>9}{'cpu':>9}{'nnaot':>9}{'MiB':>7}   seconds by the clock")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(o.keep or folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in o.models or MODELS:
            if name.endswith(".onnx"):
                path, options, name = pathlib.Path(name).resolve(), "", pathlib.Path(name).stem
            else:
                make, options = MODELS[name]
                path = make(folder)
                with open(folder / f"{name}.bin", "wb") as f:
                    f.truncate(1 << 32)  # weights that no one reads
            command = [o.nnaot, str(path), *options.split(), *o.flags]
            runs = [run([*command, "-o", f"{name}.exe"], folder) for _ in range(o.times)]
            alone = run([*command, "--emit", "c", "-o", f"{name}.c"], folder)
            texts = [p.read_text() for p in sorted((folder / f"{name}.c").glob("*.c"))]
            clock, cpu = (statistics.median(r[i] for r in runs) for i in range(2))
            print(f"{name:14}{len(texts):6}{sum(t.count(chr(10)) for t in texts):8}{clock:9.2f}{cpu:9.2f}{alone[0]:9.2f}"
                  f"{max(r[2] for r in runs):7.0f}   {' '.join(f'{r[0]:.1f}' for r in runs)}", flush=True)


main()
