"""The plan that a search finds beside the best there is:  true_best.py [MODEL...] [--all]

Every way to split the ops of a tiny model and to lay its inputs and weights is written as a plan, and what comes of it
is priced as nnaot prices any plan: its step, after all passes.  What is done to the loss follows by propagation.  The
search sees its own prices only; what its plan really takes must not be much more than the least.  What it cannot say:
whether the sum of the loss is hidden beside backward, or goes with that of the norm, depends on how long backward is
under all other choices; that is worth 3 % of a step of 25 microseconds (flat).
--all: also models that take minutes.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
WORST = 1.04  # of the least
CLUSTER = """return {{ nodes = {nodes}, per_node = {per_node}, nics = 1, start = 2e-6,
  inside = {{ alpha = 1e-6, beta = {inside} }}, across = {{ alpha = 5e-6, beta = {across} }},
  memory = {memory}, memory_speed = 1e12, f32 = 1e13, half = 1e13, launch = 1e-6 }}
"""


def linears(rows, widths, between="relu"):
    """Products with `between` between them."""
    params = [f'%x: f32[{rows},{widths[0]}] input "x"']
    ops, x = [], "x"
    for i, (n, m) in enumerate(zip(widths, widths[1:])):
        params.append(f'%w{i}: f32[{n},{m}] weight "w{i}" train = normal(0,0.1)')
        ops.append(f"%h{i} = linear %{x}, %w{i} : f32[{rows},{m}]")
        x = f"h{i}"
        if between and i + 2 < len(widths):
            ops.append(f"%r{i} = {between} %{x} : f32[{rows},{m}]")
            x = f"r{i}"
    return params, ops, x


def residual(rows, width, wide):
    params, ops, y = linears(rows, [width, wide, width])
    return params, ops + [f"%z = add %x, %{y} : f32[{rows},{width}]"], "z"


def forked(rows, width):
    """Two products of the same rows, added."""
    params = [f'%x: f32[{rows},{width}] input "x"'] + [
        f'%{w}: f32[{width},{width}] weight "{w}" train = normal(0,0.1)' for w in "ab"]
    return params, [f"%{y} = linear %x, %{w} : f32[{rows},{width}]" for y, w in ("pa", "qb")] + [
        f"%z = mul %p, %q : f32[{rows},{width}]"], "z"


# name -> model, sizes of the axes, cluster
FAST, SLOW = dict(inside=1e-11, across=1e-10), dict(inside=1e-10, across=1e-9)
CASES = {
    "one": (linears(512, [512, 512], None), [4], FAST), "tall": (linears(4096, [64, 64], None), [2], SLOW),
    "flat": (linears(16, [512, 2048], None), [4], SLOW), "deep": (linears(16, [4096, 64], None), [4], FAST),
}
LONG = {
    "wide": (linears(64, [256, 1024, 256]), [2], SLOW), "wide4": (linears(64, [256, 1024, 256]), [4], FAST),
    "rows": (linears(4096, [64, 64, 64]), [2], SLOW), "rows4": (linears(4096, [64, 128, 64]), [4], FAST),
    "plain": (linears(256, [256, 256, 512], None), [4], SLOW), "even": (linears(512, [512, 512, 512]), [2], SLOW),
    "residual": (residual(256, 256, 1024), [2], SLOW), "forked": (forked(256, 512), [4], SLOW),
    "three": (linears(256, [256, 512, 256, 512]), [2], SLOW), "three4": (linears(512, [512, 128, 512, 64]), [4], FAST),
    "residual4": (residual(512, 256, 512), [4], FAST), "one2x2": (linears(512, [512, 512], None), [2, 2], SLOW),
    "plain2x2": (linears(512, [256, 512], None), [2, 2], FAST),
}


def text(params, ops, y):
    return (f"module phase=typed\n\ngraph @main entry ({', '.join(params)}) {{\n  " + "\n  ".join(ops) +
            f'\n  return output "y" %{y}\n}}\n')


def letters(op):
    return {"linear": "-0nk", "relu": "-01+", "add": "-01+", "mul": "-01"}[op.split()[2]]


def ways(params, ops, axes):
    """All plans, as lines of a program."""
    per_op = [[f'op_trans(f[{i + 1}], "{letter}", axes[{a + 1}])' for letter in letters(op)]
              for a in range(axes) for i, op in enumerate(ops)]
    for a in range(axes):
        for i, param in enumerate(params):
            name = param.split(":")[0][1:]
            of = f'param("{name}")'
            lays = [""] + [f"{how}({of}, {dim}, axes[{a + 1}])" for dim in (0, 1) for how in ("split", "store")]
            per_op.append(lays if i else lays[:2] + lays[3:4])
    return itertools.product(*per_op)


LUA = """local function param(name)
  for _, p in ipairs(params()) do if p.name == name then return p end end
end
function step(...)
  local axes, f = {...}, ops(nil, "forward")
  %s
end
"""


def seconds(folder, model, mesh, plan):
    """What nnaot predicts; None where there is no such plan."""
    run = subprocess.run([NNAOT, model, "-g", str(mesh), "--plan", plan, "--loss", "mse(y)", "--optimizer", "sgd",
                          "--cluster", f"{folder}/cluster.lua", "--emit", "plan"], capture_output=True, text=True)
    if run.returncode:
        return None
    return json.loads(run.stdout)["predicted_step_ms"], run.stdout


def check(name, case):
    (params, ops, y), axes, links = case
    ranks = 1
    for n in axes:
        ranks *= n
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, "model.nn")
        model.write_text(text(params, ops, y))
        pathlib.Path(folder, "cluster.lua").write_text(
            CLUSTER.format(nodes=len(axes), per_node=ranks // len(axes), memory=1e12, **links))
        found = seconds(folder, model, ranks, "search")[0]
        best, how, n = found, "the search's", 0
        factors = f"function factors(n) return {{{','.join(map(str, axes))}}} end\n"
        for way in ways(params, ops, len(axes)):
            plan = pathlib.Path(folder, "way.lua")
            plan.write_text(factors + LUA % "\n  ".join(filter(None, way)))
            took = seconds(folder, model, ranks, str(plan))
            n += took is not None
            if took and took[0] < best:
                best, how = took[0], "; ".join(filter(None, way))
    print(f"{name:10} {n:6} plans: best {best:.6f} ms, the search's {found:.6f} ms, {found / best:.4f}   {how}",
          flush=True)
    return found / best


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    cases = {**CASES, **(LONG if names or "--all" in sys.argv else {})}
    sys.exit(max([check(name, cases[name]) for name in names or cases]) > WORST)


main()
