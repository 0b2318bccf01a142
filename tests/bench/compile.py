#!/usr/bin/env python3
"""Time of the passes and proofs of large plans:  tests/bench/compile.py NNAOT-OPT [--layers 24 96] [--times 3]

A GPT-3 of so many layers (width 12288, sequence 2048, one row of the batch per 8 ranks), written as text, is
made a training step under plans for 8 to 1024 ranks, from the loss to plan_memory, for each target.  Prints
milliseconds, the median of several runs: of the slowest passes, of all passes, and of all proofs with their share.
"""

import argparse
import collections
import pathlib
import re
import statistics
import subprocess
import tempfile

WIDTH, HEADS, TOKENS, WORDS = 12288, 96, 2048, 51200
PLANS = [("dp:8", "dp"), ("dp:8+tp:8", "dp,tp"), ("dp:128+tp:8", "dp,tp"), ("zero3:128+vp:8", "zero3,vp"),
         ("dp:64+tp2d:16", "dp,tp2d"), ("mb:16:time+pp:16+dp:8+tp:8", "pp,dp,tp"),
         ("mb:8:time+pp:8+zero1:16+sp:8", "pp,zero1,sp")]

# From shard to plan_memory, as passes/pipelines.def has them.
LOWER = {"cpu": "stash_weights,legalize_types,optimizer_in_backward,fuse",
         "cuda": "fuse_classifier,stash_weights,fuse_linear,fuse_attention(target=cuda),fuse_norm,expand_batch_norm,"
                 "legalize_types(target=cuda),keep_casts,optimizer_in_backward,multi_tensor,fuse"}
LATE = "schedule,offload,defer_updates,prioritize_comm,overlap,swap"


class Model:
    def __init__(self):
        self.params, self.ops, self.n = [], [], 0

    def param(self, name, shape, init):
        dims = ",".join(map(str, shape))
        self.params.append(f'%{name}: f32[{dims}] weight "{name}" train = {init}')
        return f"%{name}"

    def op(self, kind, operands, type, results=1, node=""):
        names = [f"%{self.n + i}" for i in range(results)]
        self.n += results
        self.ops.append(f"  {', '.join(names)} = {kind} {operands} : {type}  # gpt3:{node or kind}{self.n}")
        return names[0]

    def norm(self, x, name, batch):
        w, b = self.param(f"{name}.weight", [WIDTH], 1), self.param(f"{name}.bias", [WIDTH], 0)
        rows = f"f32[{batch},{TOKENS}]"
        return self.op("layer_norm", f"{x}, {w}, {b}", f"f32[{batch},{TOKENS},{WIDTH}], {rows}, {rows}", 3)

    def linear(self, x, name, n_in, n_out, batch):
        shape = f"{batch},{TOKENS},{n_out}"
        w, b = self.param(f"{name}.weight", [n_in, n_out], "normal(0,0.02)"), self.param(f"{name}.bias", [n_out], 0)
        y = self.op("linear", f"{x}, {w}", f"f32[{shape}]")
        bias = self.op("broadcast", f"{b} shape=[{shape}]", f"f32[{shape}]")
        return self.op("add", f"{y}, {bias}", f"f32[{shape}]")


def gpt(layers, batch):
    m = Model()
    hidden, size = f"{batch},{TOKENS},{WIDTH}", WIDTH // HEADS
    heads = f"{batch},{TOKENS},{HEADS},{size}"
    words = m.param("wte", [WORDS, WIDTH], "normal(0,0.02)")
    x = m.op("gather", f"{words}, %tokens", f"f32[{hidden}]")
    for i in range(layers):
        y = m.norm(x, f"h{i}.ln1", batch)
        qkv = [m.op("reshape", f"{m.linear(y, f'h{i}.{p}', WIDTH, WIDTH, batch)} shape=[{heads}]", f"f32[{heads}]")
               for p in "qkv"]
        a = m.op("attention", f"{', '.join(qkv)} scale={size ** -0.5} causal=true seq_major=true",
                 f"f32[{heads}], f32[{batch},{HEADS},{TOKENS}]", 2)
        a = m.op("reshape", f"{a} shape=[{hidden}]", f"f32[{hidden}]")
        x = m.op("add", f"{x}, {m.linear(a, f'h{i}.out', WIDTH, WIDTH, batch)}", f"f32[{hidden}]")
        y = m.linear(m.norm(x, f"h{i}.ln2", batch), f"h{i}.up", WIDTH, 4 * WIDTH, batch)
        y = m.op("gelu", y, f"f32[{batch},{TOKENS},{4 * WIDTH}]")
        x = m.op("add", f"{x}, {m.linear(y, f'h{i}.down', 4 * WIDTH, WIDTH, batch)}", f"f32[{hidden}]")
    y = m.norm(x, "ln_f", batch)
    head = m.param("head", [WIDTH, WORDS], "normal(0,0.02)")
    logits = m.op("linear", f"{y}, {head}", f"f32[{batch},{TOKENS},{WORDS}]")
    params = ",\n  ".join([f'%tokens: i64[{batch},{TOKENS}] input "tokens"', *m.params])
    ops = "\n".join(m.ops)
    return f'module phase=typed\n\ngraph @main entry (\n  {params}\n) {{\n{ops}\n  return output "logits" {logits}\n}}\n'


def seconds(opt, model, mesh, plan, target):
    low = "mixed_precision(to=bf16)," if target == "cuda" else ""
    passes = (f'loss(spec="next_token(logits,tokens)"),autodiff,optimizer(name=adamw,clip=1),{low}'
              f'shard(mesh={mesh} plan="{plan}" unlimited=true),comm,fuse_comm,bucket_grads,{LOWER[target]},{LATE},'
              f'plan_memory(target={target})')
    run = subprocess.run([opt, model, "--passes", passes, "--time-passes", "-o", "/dev/null"],
                         capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    took = collections.defaultdict(float)
    for s, name in re.findall(r"^ +([\d.]+) +[\d.]+% +(\w+)$", run.stderr, re.M):
        took[name] += float(s)
    took["passes"] = took["total"] - took["prove"]
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("opt")
    parser.add_argument("--layers", type=int, nargs="+", default=[24, 96])
    parser.add_argument("--times", type=int, default=3)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        columns = ["shard", "comm", "fuse", "plan_memory", "passes", "prove"]
        print(f"{'layers, plan':36}{'target':8}" + "".join(f"{c:>12}" for c in columns) + f"{'share':>8}")
        for layers in o.layers:
            model = str(pathlib.Path(folder) / "gpt3.nn")
            pathlib.Path(model).write_text(gpt(layers, 128))
            for mesh, plan in PLANS:
                for target in LOWER:
                    runs = [seconds(o.opt, model, mesh, plan, target) for _ in range(o.times)]
                    took = {c: 1000 * statistics.median(r[c] for r in runs) for c in columns}
                    print(f"{f'{layers}, {mesh}':36}{target:8}" + "".join(f"{took[c]:12.1f}" for c in columns)
                          + f"{100 * took['prove'] / took['passes']:7.0f}%", flush=True)


main()
