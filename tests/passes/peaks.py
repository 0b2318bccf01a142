"""Memory of a rank estimated by the search, compared with plan_memory:  peaks.py [FIRST [COUNT]] [--all] [--steps N]

Random models of linears, norms, attention and residual sums are searched over random meshes and clusters, with enough
memory, and again with less than the estimate, N times; also inside each plan of OUTER, whose effects the search can only
estimate; a third of them in bf16, for GPUs.  The estimate must not be far above the planned memory (the search would
refuse feasible plans), nor far below it (feasible plans would not fit); it ignores fragmentation between values.
--all: also the models of tests/e2e and the samples.
"""

import argparse
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot-opt")
LEAST, MOST = 0.8, 1.1  # of the slab
AFTER = {"": "legalize_types,fuse,plan_memory",
         "cuda": "fuse_classifier,fuse_linear,fuse_attention(target=cuda),fuse_norm,expand_batch_norm,legalize_types(target=cuda),"
                 "keep_casts,multi_tensor,fuse,plan_memory(target=cuda)"}
CLUSTER = """return {{ nodes = {nodes}, per_node = {per_node}, nics = {per_node}, start = {start},
  inside = {{ alpha = 1e-6, beta = {inside} }}, across = {{ alpha = 5e-6, beta = {across} }},
  memory = {memory}, memory_speed = 1e12, f32 = {f32}, half = {f32}, launch = 1e-6 }}
"""
OUTER = ["dp", "zero1", "zero2", "zero3", "tp", "vp", "sp"]  # of two ranks, with a search on two or four inside
CLASSES, WORDS = "cross_entropy(logits)", "next_token(logits,input_ids)"
MODELS = [*((f"tests/e2e/models/{name}.onnx", CLASSES) for name in ("axial", "bert", "vit", "wide")),
          *((f"tests/e2e/models/{name}.onnx", WORDS) for name in ("gpt", "gpt_tied", "moe")),
          ("samples/mlp/mlp.onnx", CLASSES), ("samples/resnet/resnet.onnx", CLASSES), ("samples/gpt2/gpt2.onnx", WORDS)]


class Model:
    """A stack of random blocks, as text."""

    def __init__(self, r):
        self.random, self.params, self.ops = r, [], []
        self.batch = r.choice([8, 16, 64])
        self.rows, self.width, self.heads = r.choice([8, 32]), r.choice([32, 64, 128]), 4
        self.hidden = (self.batch, self.rows, self.width)
        x = "x"
        for _ in range(r.randint(1, 4)):
            x = r.choice([self.mlp, self.mlp, self.attention, self.plain])(x)
        self.linear(x, self.width, r.choice([16, 256, 1024]), "y")

    def type(self, shape):
        return f"f32[{','.join(map(str, shape))}]"

    def weight(self, shape):
        name = f"w{len(self.params)}"
        self.params.append(f'%{name}: {self.type(shape)} weight "{name}" train = normal(0,0.1)')
        return name

    def op(self, text, shape, name=None, more=""):
        name = name or f"v{len(self.ops)}"
        several = f", %{name}m, %{name}r" if more else ""
        self.ops.append(f"  %{name}{several} = {text} : {self.type(shape)}{more}")
        return name

    def linear(self, x, n_in, n_out, name=None):
        shape = (self.batch, self.rows, n_out)
        y = f"linear %{x}, %{self.weight((n_in, n_out))}"
        if self.random.random() < 0.5:
            return self.op(y, shape, name)
        y = self.op(y, shape)
        bias = self.op(f"broadcast %{self.weight((n_out,))} shape=[{','.join(map(str, shape))}]", shape)
        return self.op(f"add %{y}, %{bias}", shape, name)

    def norm(self, x):
        if self.random.random() < 0.3:
            return x
        rows = self.type(self.hidden[:2])
        return self.op(f"layer_norm %{x}, %{self.weight((self.width,))}, %{self.weight((self.width,))} eps=1e-05",
                       self.hidden, more=f", {rows}, {rows}")

    def add(self, x, y):
        return self.op(f"add %{x}, %{y}", self.hidden) if self.random.random() < 0.8 else y

    def mlp(self, x):
        wide = self.width * self.random.choice([1, 2, 4, 8])
        y = self.linear(self.norm(x), self.width, wide)
        y = self.op(f"{self.random.choice(['relu', 'gelu', 'tanh'])} %{y}", (self.batch, self.rows, wide))
        return self.add(x, self.linear(y, wide, self.width))

    def plain(self, x):
        y = self.linear(x, self.width, self.width)
        return self.op(f"mul %{y}, %{self.random.choice([x, y])}", self.hidden)

    def attention(self, x):
        y = self.norm(x)
        heads = (self.batch, self.rows, self.heads, self.width // self.heads)
        qkv = [self.op(f"reshape %{self.linear(y, self.width, self.width)} shape=[{','.join(map(str, heads))}]", heads)
               for _ in "qkv"]
        name = f"v{len(self.ops)}"
        self.ops.append(f"  %{name}, %{name}l = attention {', '.join('%' + v for v in qkv)} scale=0.25 causal=true "
                        f"seq_major=true : {self.type(heads)}, {self.type((self.batch, self.heads, self.rows))}")
        a = self.op(f"reshape %{name} shape=[{','.join(map(str, self.hidden))}]", self.hidden)
        return self.add(x, self.linear(a, self.width, self.width))

    def text(self):
        params = ",\n  ".join([f'%x: {self.type(self.hidden)} input "x"', *self.params])
        return (f"module phase=typed\n\ngraph @main entry (\n  {params}\n) {{\n" + "\n".join(self.ops) +
                '\n  return output "y" %y\n}\n')


def cluster(r, memory):
    return {"nodes": 4, "per_node": r.choice([2, 4]), "start": r.choice([1e-6, 1e-5]), "memory": memory,
            "inside": r.choice([1e-11, 1e-10]), "across": r.choice([1e-10, 1e-9]), "f32": r.choice([1e12, 1e13])}


def peaks(folder, model, loss, mesh, plan, optimizer, link, narrow):
    """Returns the search's estimate and the size of the slab; None if nothing fits."""
    lua = pathlib.Path(folder, "cluster.lua")
    lua.write_text(CLUSTER.format(**link))
    is_onnx = str(model).endswith(".onnx")
    passes = (f'{"simplify,raise,simplify," if is_onnx else ""}loss(spec="{loss}"),autodiff,optimizer({optimizer}),'
              f'lower_batch_norm,simplify,channels_last,simplify,{"mixed_precision(to=bf16)," if narrow else ""}'
              f'shard(mesh={mesh} plan="{plan}" cluster="{lua}" target={narrow or "cpu"}),comm,fuse_comm,bucket_grads,'
              f"{AFTER[narrow]}")
    run = subprocess.run([OPT, str(model), *(["--batch", "64"] if is_onnx else []), f"--passes={passes}", "--stats",
                          "-o", os.devnull], capture_output=True, text=True)
    if run.returncode:
        if "fits into the" in run.stderr:
            return None
        raise SystemExit(f"{model} {mesh}:\n{run.stderr}")
    said = re.search(r"shard: (\d+) bytes at the peak", run.stderr)
    slab = re.search(r"plan_memory: (\d+) bytes at the peak", run.stderr)
    return int(said[1]), int(slab[1])


def check(folder, name, model, loss, r, steps, outer=None, narrow=""):
    """Searches with enough memory, then with less and less; returns (estimate / slab, near) of each."""
    sizes = ["2", "4"] if outer else ["2", "4", "8"]
    mesh, ratios = r.choice([*sizes, *(["acc:2:time+4", "acc:4:time+2"] if name != "resnet" else [])]), []
    plan = f"{outer},search" if outer else "search"
    if outer:
        *time, inner = mesh.rsplit("+", 1)
        mesh = "+".join([*time, "2", inner])
    optimizer = r.choice(["name=sgd", "name=adamw", "name=adamw clip=1"])
    link = cluster(r, 10**12)
    for _ in range(steps):
        found = peaks(folder, model, loss, mesh, plan, optimizer, link, narrow)
        if not found:
            break
        said, slab = found
        near = LEAST <= said / slab <= MOST
        ratios.append((said / slab, near))
        memory = "" if link["memory"] == 10**12 else link["memory"]
        wrong = "" if near else "  too far"
        print(f"{name:10} {narrow:5} {mesh:14} {plan:14} {optimizer:18} {memory:10} {said:10} {slab:10} {said / slab:6.3f}{wrong}", flush=True)
        link["memory"] = int(0.85 * said)
    return ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("count", type=int, nargs="?", default=20)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--steps", type=int, default=2)
    o = parser.parse_args()
    ratios = []
    print(f"{'':10} {'bf16':5} {'mesh':14} {'plan':14} {'optimizer':18} {'limit':>10} {'said':>10} {'slab':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(o.first, o.first + o.count):
            r = random.Random(seed)
            path = pathlib.Path(folder, "model.nn")
            path.write_text(Model(r).text())
            ratios += check(folder, f"random {seed}", path, "mse(y)", r, o.steps, narrow="" if seed % 3 else "cuda")
            ratios += check(folder, f"random {seed}", path, "mse(y)", r, o.steps, OUTER[seed % len(OUTER)])
        for model, loss in MODELS if o.all else []:
            name = pathlib.Path(model).stem
            for outer in [None, *OUTER]:
                ratios += check(folder, name, ROOT / model, loss, random.Random(o.first), o.steps, outer)
    said = [ratio for ratio, _ in ratios]
    print(f"{len(said)} programs, the search says {min(said):.3f} to {max(said):.3f} of the slab, "
          f"{statistics.mean(said):.3f} on average")
    sys.exit(not all(near for _, near in ratios))


if __name__ == "__main__":
    main()
