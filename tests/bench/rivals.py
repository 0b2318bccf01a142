#!/usr/bin/env python3
"""The methods of AutoDDL's section 4.6 on the problems of a search:  tests/bench/rivals.py [--build build] [--seconds N]

The problems are those of the samples, an MLP of four layers (as in AutoDDL's figure 8) and a transformer, on 8 H100s,
with enough memory and with 70 % of that peak.  Prints for each method the cost, as a multiple of the bound or,
without one, of the best, and the seconds.  Exhaustive search is left out if it is refused.  No pass or fail.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
METHODS = ["auto", "descent", "metropolis", "exhaustive"]
CLUSTER = """return {{ nodes = 2, per_node = 4, nics = 4, start = 1e-6, inside = {{ alpha = 1e-6, beta = 1 / 450e9 }},
  across = {{ alpha = 5e-6, beta = 1 / 50e9 }}, memory = {memory}, memory_speed = 3350e9, f32 = 67e12, half = 990e12,
  launch = 2e-6 }}
"""


def mlp(widths, rows):
    params, ops, x = [f'%x: f32[{rows},{widths[0]}] input "x"'], [], "x"
    for i, (n, m) in enumerate(zip(widths, widths[1:])):
        params.append(f'%w{i}: f32[{n},{m}] weight "w{i}" train = normal(0,0.1)')
        ops += [f"%h{i} = linear %{x}, %w{i} : f32[{rows},{m}]", f"%r{i} = relu %h{i} : f32[{rows},{m}]"]
        x = f"r{i}"
    return params, ops, x, rows


def block(rows, tokens, width, heads):
    shape, cut = f"{rows},{tokens},{width}", f"{rows},{tokens},{heads},{width // heads}"
    sizes = {"q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width), "u": (width, 4 * width),
             "d": (4 * width, width)}
    params = [f'%x: f32[{shape}] input "x"'] + [
        f'%w{n}: f32[{a},{b}] weight "w{n}" train = normal(0,0.1)' for n, (a, b) in sizes.items()]
    ops = [line for n in "qkv" for line in (f"%l{n} = linear %x, %w{n} : f32[{shape}]",
                                            f"%{n} = reshape %l{n} shape=[{cut}] : f32[{cut}]")]
    ops += [f"%a, %s = attention %q, %k, %v scale=0.1 causal=true seq_major=true : f32[{cut}], "
            f"f32[{rows},{heads},{tokens}]", f"%b = reshape %a shape=[{shape}] : f32[{shape}]",
            f"%c = linear %b, %wo : f32[{shape}]", f"%e = add %x, %c : f32[{shape}]",
            f"%f = linear %e, %wu : f32[{rows},{tokens},{4 * width}]", f"%g = gelu %f : f32[{rows},{tokens},{4 * width}]",
            f"%h = linear %g, %wd : f32[{shape}]", f"%i = add %e, %h : f32[{shape}]"]
    return params, ops, "i", rows


def text(params, ops, y, _):
    return (f"module phase=typed\n\ngraph @main entry ({', '.join(params)}) {{\n  " + "\n  ".join(ops) +
            f'\n  return output "y" %{y}\n}}\n')


TEXTS = {"mlp4": mlp([32768, 16384, 4096, 2048, 512], 1024), "block": block(32, 512, 1024, 16)}
SAMPLES = {"mlp": "cross_entropy(logits)", "gpt2": "next_token(logits,input_ids)", "resnet": "cross_entropy(logits)"}


def problem(o, folder, model, loss, memory):
    """Writes the problem; returns the peak, or None if nothing fits."""
    cluster = pathlib.Path(folder, "cluster.lua")
    cluster.write_text(CLUSTER.format(memory=memory))
    batch = ["--batch", "64"] if model.suffix == ".onnx" else []
    run = subprocess.run([f"{o.build}/bin/nnaot-opt", model, *batch, "--stats", "-o", os.devnull, "--passes=simplify,raise,"
                          f'simplify,loss(spec="{loss}"),autodiff,optimizer(name=adamw),lower_batch_norm,simplify,'
                          f'shard(mesh=2x4 plan="{folder}/both.lua" cluster="{cluster}" problem="{folder}/p.json")'],
                         capture_output=True, text=True)
    said = re.search(r"shard: (\d+) bytes at the peak", run.stderr)
    if run.returncode and "fits into" not in run.stderr:
        raise SystemExit(run.stderr)
    return None if run.returncode else int(said[1])


def ask(o, folder, method):
    begin = time.monotonic()
    run = subprocess.run([f"{o.build}/bin/nnaot-plan", "solve", f"{folder}/p.json", "--method", method, "--json",
                          "--seconds", str(o.seconds), "--seed", str(o.seed)], capture_output=True, text=True)
    return (json.loads(run.stdout) if not run.returncode else None), time.monotonic() - begin


def row(o, folder, name):
    found = {m: ask(o, folder, m) for m in METHODS}
    costs = [a["cost"] for a, _ in found.values() if a]
    if not costs:
        print(f"{name:16} nothing was found")
        return
    auto = found["auto"][0]
    best = auto["bound"] if auto and auto["bound"] else min(costs)
    cells = [f"{a['cost'] / best:10.4f} {s:6.2f}" if a else f"{'-':>10} {s:6.2f}" for a, s in found.values()]
    print(f"{name:16}" + "".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    print(f"{'':16}" + "".join(f"{m:>11} {'s':>5}" for m in METHODS))
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "both.lua").write_text("function step(...) search(...) end\n")
        models = [(n, ROOT / f"samples/{n}/{n}.onnx", loss) for n, loss in SAMPLES.items()]
        for name, model in TEXTS.items():
            path = pathlib.Path(folder, f"{name}.nn")
            path.write_text(text(*model))
            models.append((name, path, "mse(y)"))
        for name, model, loss in models:
            peak = problem(o, folder, model, loss, 1e15)
            row(o, folder, name)
            if problem(o, folder, model, loss, int(0.7 * peak)):
                row(o, folder, f"{name}, 70 %")


main()
