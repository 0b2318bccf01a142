"""The plan found by a search compared with the true optimum:  true_best.py [MODEL...] [--all] [--memory] [--every N]

Every combination of splits of the ops of a tiny model and layouts of its inputs and weights, over one axis or two, is
written as a plan, and its step time is predicted after all passes, as for any plan.  The splits of the loss follow by
propagation.  The search only sees its own estimates; the prediction for its plan must not be much above the optimum.
Some terms cannot be estimated op by op: the overlap with backward depends on the length of backward under all other
choices.  For these the planner compiles the next best answers, too.

The same holds for `auto`, among the plans with communication: `auto` does not count a plan in which all ranks do the same.
--all: also models that take minutes.  --memory: also on devices with less memory, down to slightly more than the smallest
plan needs; the optimum is that of all plans that fit, including those found with less or more memory, so that less memory
never makes a step faster.  Cases named anew-… are in 16 bits, and backward recomputes the whole model, so that it reads
values that forward never reads; they test only searches.  --every: only each N-th of the plans.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
WORST = {"search": 1.03, "auto": 1.01}  # allowed ratio to the optimum
CLUSTER = """return {{ nodes = {nodes}, per_node = {per_node}, nics = 1, start = 2e-6,
  inside = {{ alpha = 1e-6, beta = {inside} }}, across = {{ alpha = 5e-6, beta = {across} }},
  memory = {memory}, memory_speed = 1e12, f32 = 1e13, half = 1e13, launch = 1e-6 }}
"""


def linears(rows, widths, between="relu"):
    """Returns products with `between` between them."""
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
    """Returns two products of the same rows, multiplied."""
    params = [f'%x: f32[{rows},{width}] input "x"'] + [
        f'%{w}: f32[{width},{width}] weight "{w}" train = normal(0,0.1)' for w in "ab"]
    return params, [f"%{y} = linear %x, %{w} : f32[{rows},{width}]" for y, w in ("pa", "qb")] + [
        f"%z = mul %p, %q : f32[{rows},{width}]"], "z"


# name -> model, sizes of the axes, cluster, whether layouts of parameters may differ from their readers' layouts
FAST, SLOW = dict(inside=1e-11, across=1e-10), dict(inside=1e-10, across=1e-9)
CASES = {
    "one": (linears(512, [512, 512], None), [4], FAST, True), "tall": (linears(4096, [64, 64], None), [2], SLOW, True),
    "flat": (linears(16, [512, 2048], None), [4], SLOW, True), "deep": (linears(16, [4096, 64], None), [4], FAST, True),
    "large2x2": (linears(2048, [2048, 2048], None), [2, 2], FAST, False),
    "tall2x2": (linears(16384, [512, 512], None), [2, 2], FAST, False),
    "two2x2": (linears(512, [1024, 512, 2048], None), [2, 2], FAST, False),
    "anew-rows": (linears(4096, [64, 64, 64]), [4], SLOW, False),
    "anew-wide": (linears(256, [512, 2048, 512]), [2], FAST, False),
}
LONG = {
    "wide": (linears(64, [256, 1024, 256]), [2], SLOW, True), "wide4": (linears(64, [256, 1024, 256]), [4], FAST, True),
    "rows": (linears(4096, [64, 64, 64]), [2], SLOW, True), "rows4": (linears(4096, [64, 128, 64]), [4], FAST, True),
    "plain": (linears(256, [256, 256, 512], None), [4], SLOW, True),
    "even": (linears(512, [512, 512, 512]), [2], SLOW, True),
    "residual": (residual(256, 256, 1024), [2], SLOW, True), "forked": (forked(256, 512), [4], SLOW, True),
    "three": (linears(256, [256, 512, 256, 512]), [2], SLOW, True),
    "three4": (linears(512, [512, 128, 512, 64]), [4], FAST, True),
    "residual4": (residual(512, 256, 512), [4], FAST, True),
    "one2x2": (linears(512, [512, 512], None), [2, 2], SLOW, True),
    "plain2x2": (linears(512, [256, 512], None), [2, 2], FAST, True),
    "plain4x2": (linears(4096, [1024, 2048], None), [4, 2], FAST, True),
    "even2x2": (linears(2048, [2048, 2048, 2048]), [2, 2], FAST, False),
    "wide2x2": (linears(256, [1024, 4096, 1024]), [2, 2], FAST, False),
    "wide4x2": (linears(256, [1024, 4096, 1024]), [4, 2], FAST, False),
    "residual2x2": (residual(1024, 1024, 2048), [2, 2], FAST, False),
    "forked2x2": (forked(1024, 2048), [2, 2], FAST, False),
}


def text(params, ops, y):
    return (f"module phase=typed\n\ngraph @main entry ({', '.join(params)}) {{\n  " + "\n  ".join(ops) +
            f'\n  return output "y" %{y}\n}}\n')


def letters(op):
    return {"linear": "-0nk", "relu": "-01+", "add": "-01+", "mul": "-01"}[op.split()[2]]


def ways(params, ops, axes, lays_too):
    """Yields all plans, as lines of a program."""
    per_op = [[f'op_trans(f[{i + 1}], "{letter}", axes[{a + 1}])' for letter in letters(op)]
              for a in range(axes) for i, op in enumerate(ops)]
    for a in range(axes):
        for i, param in enumerate(params if lays_too else []):
            name = param.split(":")[0][1:]
            of = f'param("{name}")'
            lays = [""] + [f"{how}({of}, {dim}, axes[{a + 1}])" for dim in (0, 1) for how in ("split", "store")]
            per_op.append(lays if i else lays[:2] + lays[3:4])
    return itertools.product(*per_op)


LUA = """local function param(name)
  for _, p in ipairs(params()) do if p.name == name then return p end end
end
function step(...)
  local axes, f = {...}, {}
  for _, o in ipairs(ops(nil, "forward")) do
    if o.kind ~= "cast" then f[#f + 1] = o end
  end
  %s
end
"""


ANEW = "function model() recompute(ops(nil, 'forward')) end\nfunction step() end\n"


class Bench:
    """A case in a folder."""

    def __init__(self, folder, case, anew):
        (self.params, self.ops, y), self.axes, self.links, self.lays_too = case
        self.folder, self.ranks = pathlib.Path(folder), 1
        for n in self.axes:
            self.ranks *= n
        (self.folder / "model.nn").write_text(text(self.params, self.ops, y))
        (self.folder / "anew.lua").write_text(ANEW)
        self.inside, self.flags = (f",{self.folder}/anew.lua=1", ["--dtype", "f16"]) if anew else ("", [])
        self.limit(1e12)

    def limit(self, memory):
        self.memory = memory
        cluster = CLUSTER.format(nodes=len(self.axes), per_node=self.ranks // len(self.axes), memory=memory, **self.links)
        (self.folder / "cluster.lua").write_text(cluster)

    def price(self, plan):
        """Returns the predicted milliseconds, bytes, and whether anything is sent; None if the plan is refused, or
        does not fit."""
        run = subprocess.run([NNAOT, self.folder / "model.nn", "-g", str(self.ranks), "--plan", f"{plan}{self.inside}",
                              "--loss", "mse(y)", *self.flags, "--optimizer", "sgd", "--cluster", self.folder / "cluster.lua", "--micro-batches", "1",
                              "--emit", "plan"], capture_output=True, text=True)
        if run.returncode:
            return None
        said = json.loads(run.stdout)
        bytes_ = max(rank["peak_bytes"] for rank in said["per_rank"])
        return (said["predicted_step_ms"], bytes_, any(said["comm_bytes"].values())) if bytes_ <= self.memory else None

    def price_way(self, i, way):
        plan, factors = self.folder / f"way{i}.lua", ",".join(map(str, self.axes))
        lines = "\n  ".join(filter(None, way))
        plan.write_text(f"function factors(n) return {{{factors}}} end\n" + LUA % lines)
        price = self.price(plan)
        plan.unlink()
        return price and (*price, "; ".join(filter(None, way)))

    def price_all(self, every):
        """Returns the predictions of all valid combinations."""
        all_ways = itertools.islice(ways(self.params, self.ops, len(self.axes), self.lays_too), 0, None, every)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return [p for p in pool.map(self.price_way, itertools.count(), all_ways) if p]


SLACK = 1.02  # of memory: the search's estimate ignores alignment at the ends of blocks


def limits(prices):
    """Returns bytes: enough, less than the best plan needs, half way to the minimum, and the smallest plan's need."""
    peaks, best = [p[1] for p in prices], min(prices)
    least = int(SLACK * min(peaks)) + 1
    return sorted({int(1e12), max(least, best[1] - 1), max(least, (least + best[1]) // 2), least}, reverse=True)


def check(name, case, every, less):
    with tempfile.TemporaryDirectory() as folder:
        anew = name.startswith("anew")
        bench, found, good = Bench(folder, case, anew), {}, True
        prices = bench.price_all(every)
        for memory in limits(prices)[:None if less else 1]:
            bench.limit(memory)
            for plan in ["search"] if anew else ["search", "auto"]:
                price = found[memory, plan] = bench.price(plan)
                prices += [(*price, f"what {plan} finds in {memory} bytes")] if price else []
        for (memory, plan), price in found.items():
            best = min(p for p in prices if SLACK * p[1] <= memory and (p[2] or plan != "auto"))
            ms = price[0] if price else float("inf")
            good &= ms <= WORST[plan] * best[0]
            print(f"{name:11} {len(prices):6} plans, {memory:13} bytes: best {best[0]:.6f} ms, {plan} {ms:.6f} ms, "
                  f"{ms / best[0]:.4f}   {best[3] if ms > best[0] else ''}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    o = parser.parse_args()
    cases = {**CASES, **(LONG if o.models or o.all else {})}
    sys.exit(not all([check(name, cases[name], o.every, o.memory) for name in o.models or cases]))


main()
