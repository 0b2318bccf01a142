#!/usr/bin/env python3
"""Seconds to plan AlphaFold2 with its recycling: three unrolled forwards that share their blocks.

    tests/bench/recycling.py [--limit SECONDS] [LAYERS ...]        48 and 96, if none are given

nnScaler's sizes (OSDI 2024, table 2 and section 8.3.5): 48 layers, 256 wide, 8 heads, on 16 ranks; 96 layers, 1024 wide, 32
heads, on 32.  128 aligned sequences of 256 residues; the pairs are half as wide.  The recycled values are detached, and
normalized by trained weights in the second and third forward.  Plans are those of figure 10, 3F1B and its rivals; the
cluster has the memory that each of them needs.  Printed are CPU and wall seconds, the memory of nnaot, and the predicted
step.  The weights do not exist: a plan needs none of their bytes.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

from large_models import Graph
from onnx import TensorProto

NNAOT = pathlib.Path(os.environ.get("BUILD", "build")) / "bin" / "nnaot"
ALIGNED, RESIDUES, FEATURES, CLASSES, FORWARDS = 128, 256, 49, 23, 3
SIZES = {48: (256, 8, 16), 96: (1024, 32, 32)}  # layers -> width, heads, ranks
CLUSTER = """return { nodes = 4, per_node = 8, nics = 1, inside = { alpha = 0.6e-6, beta = 1 / 150e9 },
  across = { alpha = 2.7e-6, beta = 1 / 12.5e9 }, start = 6.6e-6, memory = 8e12, memory_speed = 900e9, f32 = 15.7e12,
  half = 60e12, launch = 2e-6 }
"""


class Evoformer(Graph):
    """Layers by name: a name used again is the same weight."""

    def __init__(self, width, heads):
        super().__init__("alphafold2")
        self.width, self.pair, self.n_heads, self.known = width, width // 2, heads, set()

    def weight(self, name, *shape):
        if name not in self.known:
            self.known.add(name)
            super().weight(name, *shape)
        return name

    def dense(self, x, name, n_in, n_out, bias=True):
        y = self.op("MatMul", x, self.weight(f"{name}.weight", n_in, n_out))
        return self.op("Add", y, self.weight(f"{name}.bias", n_out)) if bias else y

    def normed(self, x, name, width):
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width),
                       axis=-1)

    def turn(self, x, *perm):
        return self.op("Transpose", x, perm=perm)

    def gated_attention(self, x, name, rows, columns, width, heads, pair=None):
        y = self.normed(x, f"{name}.norm", width)
        split = self.constant([0, rows, columns, heads, width // heads])
        q, k, v = (self.turn(self.op("Reshape", self.dense(y, f"{name}.{part}", width, width, False), split), *perm)
                   for part, perm in (("q", (0, 1, 3, 2, 4)), ("k", (0, 1, 3, 4, 2)), ("v", (0, 1, 3, 2, 4))))
        scores = self.op("MatMul", self.op("Mul", q, self.constant((width // heads) ** -0.5)), k)
        if pair:
            bias = self.dense(self.normed(pair, f"{name}.bias_norm", self.pair), f"{name}.bias", self.pair, heads, False)
            scores = self.op("Add", scores, self.op("Unsqueeze", self.turn(bias, 0, 3, 1, 2), self.constant([1])))
        o = self.turn(self.op("MatMul", self.op("Softmax", scores, axis=-1), v), 0, 1, 3, 2, 4)
        o = self.op("Reshape", o, self.constant([0, rows, columns, width]))
        gate = self.op("Sigmoid", self.dense(y, f"{name}.gate", width, width))
        return self.dense(self.op("Mul", o, gate), f"{name}.out", width, width)

    def transition(self, x, name, width):
        y = self.op("Relu", self.dense(self.normed(x, f"{name}.norm", width), f"{name}.up", width, 4 * width))
        return self.dense(y, f"{name}.down", 4 * width, width)

    def triangle(self, z, name, a_perm, b_perm):
        w = self.pair
        y = self.normed(z, f"{name}.norm", w)
        a, b = (self.op("Mul", self.dense(y, f"{name}.{part}", w, w),
                        self.op("Sigmoid", self.dense(y, f"{name}.gate_{part}", w, w))) for part in "ab")
        o = self.turn(self.op("MatMul", self.turn(a, *a_perm), self.turn(b, *b_perm)), 0, 2, 3, 1)
        o = self.dense(self.normed(o, f"{name}.inner", w), f"{name}.out", w, w)
        return self.op("Mul", o, self.op("Sigmoid", self.dense(y, f"{name}.gate", w, w)))

    def outer(self, m, name, size=32):
        y, s, r = self.normed(m, f"{name}.norm", self.width), ALIGNED, RESIDUES
        left = self.turn(self.dense(y, f"{name}.left", self.width, size), 0, 2, 3, 1)
        right = self.dense(y, f"{name}.right", self.width, size)
        o = self.op("MatMul", self.op("Reshape", left, self.constant([0, r * size, s])),
                    self.op("Reshape", right, self.constant([0, s, r * size])))
        o = self.turn(self.op("Reshape", o, self.constant([0, r, size, r, size])), 0, 1, 3, 2, 4)
        return self.dense(self.op("Reshape", o, self.constant([0, r, r, size * size])), f"{name}.out", size * size, self.pair)

    def block(self, m, z, name):
        s, r, few = ALIGNED, RESIDUES, max(self.n_heads // 2, 1)
        flip = (0, 2, 1, 3)
        m = self.op("Add", m, self.gated_attention(m, f"{name}.row", s, r, self.width, self.n_heads, z))
        m = self.op("Add", m, self.turn(self.gated_attention(self.turn(m, *flip), f"{name}.column", r, s, self.width,
                                                             self.n_heads), *flip))
        m = self.op("Add", m, self.transition(m, f"{name}.msa", self.width))
        z = self.op("Add", z, self.outer(m, f"{name}.outer"))
        z = self.op("Add", z, self.triangle(z, f"{name}.leaving", (0, 3, 1, 2), (0, 3, 2, 1)))
        z = self.op("Add", z, self.triangle(z, f"{name}.arriving", (0, 3, 2, 1), (0, 3, 1, 2)))
        z = self.op("Add", z, self.gated_attention(z, f"{name}.start", r, r, self.pair, few, z))
        end = self.gated_attention(self.turn(z, *flip), f"{name}.end", r, r, self.pair, few, z)
        z = self.op("Add", z, self.turn(end, *flip))
        return m, self.op("Add", z, self.transition(z, f"{name}.pairs", self.pair))


def write(folder, layers, width, heads):
    """Writes the model; its Identity nodes recycled.* are to be detached."""
    g = Evoformer(width, heads)
    msa = g.input("msa", TensorProto.FLOAT, ["batch", ALIGNED, RESIDUES, FEATURES])
    target = g.op("Gather", msa, g.constant(0), axis=1)
    left, right = (g.dense(target, part, FEATURES, g.pair) for part in ("left", "right"))
    m0 = g.dense(msa, "msa_in", FEATURES, width)
    z0 = g.op("Add", g.op("Unsqueeze", left, g.constant([2])), g.op("Unsqueeze", right, g.constant([1])))
    m, z = m0, z0
    for i in range(FORWARDS):
        if i:
            m, z = (g.op("Add", first, g.normed(g.op("Identity", x, name=f"recycled.{part}{i}"), f"recycle_{part}", w))
                    for part, first, x, w in (("m", m0, m, width), ("z", z0, z, g.pair)))
        for k in range(layers):
            m, z = g.block(m, z, f"h.{k}")
    far = g.op("ReduceMean", g.dense(z, "distogram", g.pair, 64), g.constant([1, 2, 3]), keepdims=1)
    g.op("Add", g.dense(m, "masked", width, CLASSES), far)
    return g.save(folder, ["batch", ALIGNED, RESIDUES, CLASSES])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--limit", type=float, default=600)
    p.add_argument("--plan", action="append", help="only this one, as pp_3f1b=4,dp=4")
    p.add_argument("layers", nargs="*", type=int)
    a = p.parse_args()
    print(f"{'layers':>6} {'ranks':>5} {'plan':18} {'CPU s':>7} {'wall s':>7} {'MB':>6} {'predicted ms':>12}")
    for layers in a.layers or SIZES:
        width, heads, ranks = SIZES.get(layers, SIZES[48])
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            model, cluster, summary = write(folder, layers, width, heads), folder / "cluster.lua", folder / "summary.json"
            cluster.write_text(CLUSTER)
            plans = ["dp", f"zero3={ranks}", f"dp={ranks // 4},dap=4", f"pp_3f1b={ranks // 4},dp=4"]
            for plan in a.plan or plans:
                command = [NNAOT, model, "-g", ranks, "--cluster", cluster, "--batch", 8 * ranks, "--micro-batches", 8,
                           "--loss", "cross_entropy(logits)", "--optimizer", "adamw", "--dtype", "f16", "--target", "cuda:sm_80",
                           "--detach", "recycled.*", "--plan", plan, "--emit", "plan", "-o", "/dev/null", "--summary", summary]
                with open(folder / "said", "w+") as said:
                    start = time.time()
                    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=said)
                    timer = threading.Timer(a.limit, process.kill)
                    timer.start()
                    status, used = os.wait4(process.pid, 0)[1:]
                    timer.cancel()
                    process.returncode = os.waitstatus_to_exitcode(status)
                    said.seek(0)
                    result = (f"{json.loads(summary.read_text())['predicted_step_ms']:12.0f}" if not process.returncode else
                              "not ended" if process.returncode < 0 else said.readline().strip())
                print(f"{layers:6} {ranks:5} {plan:18} {used.ru_utime + used.ru_stime:7.1f} {time.time() - start:7.1f} "
                      f"{used.ru_maxrss // 1024:6} {result}", flush=True)


if __name__ == "__main__":
    main()
