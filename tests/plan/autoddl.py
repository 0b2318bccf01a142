"""What AutoDDL (sections 4.2 to 4.6) proves of matrix products over p = p0 p1 p2 ranks is what nnaot's plans send.

    autoddl.py              all of it
    autoddl.py --table      the same, and every number

A product O = I W has rows of I and O in p0 parts, columns of W and O in p1, columns of I and rows of W in p2.  In a
step, forward and backward, a rank sends, where I and O are stored in p parts,

    V = 2/p ((p0 - 1) |W| + (p1 - 1) |I| + (p2 - 1) |O|)       elements

as the gradient of W is reduced over p0 ranks, I gathered over p1, and O, a partial sum, scattered over p2.  Volumes are
those of --comm-manifest, of ring collectives: of n ranks each sends (n - 1) / n of the larger buffer, twice that in an
all_reduce.  Scalars are left out.
"""

import fractions
import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD", HERE.parents[1] / "build"))
PER = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


def grids(p):
    """All (p0, p1, p2) that multiply to p."""
    sizes = [n for n in range(1, p + 1) if p % n == 0]
    return [(a, b, p // (a * b)) for a in sizes for b in sizes if p % (a * b) == 0]


def product_volume(grid, w, i, o):
    p0, p1, p2 = grid
    return fractions.Fraction(2 * ((p0 - 1) * w + (p1 - 1) * i + (p2 - 1) * o), p0 * p1 * p2)


def sent(manifest, ranks, part=lambda op: True):
    """Elements of 4 bytes that a rank sends in a step, in ops that are of the part."""
    total = fractions.Fraction(0)
    for c in manifest:
        if c["bytes"] <= 8 or not part(c["op"]):
            continue
        if c["kind"] == "move":
            total += fractions.Fraction(c["bytes"] * c["count"], 4 * ranks)
        else:
            n = len(c["groups"][0])
            total += fractions.Fraction(PER[c["kind"]] * (n - 1) * c["bytes"] * c["count"], 4 * n)
    return total


def bandwidth(flops, elements):
    """A cluster on which what is sent is all there is to choose: links have no latency, and so many operations take
    ten times what so many elements do, so that all work is shared."""
    return f"""return {{
  nodes = 4096, per_node = 1,
  inside = {{ alpha = 0, beta = 1e-9 }}, across = {{ alpha = 0, beta = 1e-9 }},
  memory_speed = 1e11, f32 = {float(flops) / (10 * 4e-9 * float(elements))},
}}
"""


def product(rows, inner, columns):
    """A product whose operand and result are stored in parts by ops before and behind."""
    return f"""module "product" phase=typed

graph @main entry (%i: f32[{rows},{inner}] weight "i" train = normal(0,0.1),
                   %w: f32[{inner},{columns}] weight "w" train = normal(0,0.1)) {{
  %x = relu %i       : f32[{rows},{inner}]
  %y = linear %x, %w : f32[{rows},{columns}]
  %z = relu %y       : f32[{rows},{columns}]
  return output "z" %z
}}
"""


def chain(rows, widths):
    """Dense layers; the first reads what is split by rows, as what comes out of convolutions (section 4.5.3)."""
    params = [f'%i: f32[{rows},{widths[0]}] input "i"', f'%s: f32[{widths[0]}] weight "s" train = 1']
    ops = [f"%b = broadcast %s shape=[{rows},{widths[0]}] : f32[{rows},{widths[0]}]",
           f"%x0 = mul %i, %b : f32[{rows},{widths[0]}]"]
    for k, (n, m) in enumerate(zip(widths, widths[1:]), 1):
        params.append(f'%w{k}: f32[{n},{m}] weight "w{k}" train = normal(0,0.1)')
        ops.append(f"%y{k} = linear %x{k - 1}, %w{k} : f32[{rows},{m}]")
        ops.append(f"%x{k} = relu %y{k} : f32[{rows},{m}]")
    return ('module "chain" phase=typed\n\ngraph @main entry (' + ",\n  ".join(params) + ") {\n  " + "\n  ".join(ops) +
            f'\n  return output "y" %y{len(widths) - 1}\n}}\n')


def attention(sequences, tokens, heads, size):
    """One attention layer as AutoDDL's figure 3 has it: q, k and v, which are made of one X, and the product behind."""
    width = heads * size
    x, split = f"f32[{sequences},{tokens},{width}]", f"f32[{sequences},{tokens},{heads},{size}]"
    ops = [f"%x = relu %i : {x}"]
    for p in "qkv":
        ops += [f"%{p}0 = linear %x, %w{p} : {x}", f"%{p} = reshape %{p}0 shape=[{split[4:-1]}] : {split}"]
    ops += [f"%a, %m = attention %q, %k, %v scale=1 causal=true seq_major=true : {split}, f32[{sequences},{heads},{tokens}]",
            f"%a0 = reshape %a shape=[{x[4:-1]}] : {x}", f"%o = linear %a0, %wo : {x}", f"%z = add %o, %x : {x}"]
    params = [f'%i: {x} weight "i" train = normal(0,1)']
    params += [f'%w{p}: f32[{width},{width}] weight "w{p}" train = normal(0,0.1)' for p in "qkvo"]
    return ('module "attention" phase=typed\n\ngraph @main entry (' + ",\n  ".join(params) + ") {\n  " +
            "\n  ".join(ops) + '\n  return output "z" %z\n}\n')


def compiled(folder, model, plan, ranks, loss, cluster=None):
    """Its manifest, its summary, and the program after shard."""
    at = {n: pathlib.Path(folder, n) for n in ("model.nn", "manifest.json", "summary.json", "out.nn")}
    at["model.nn"].write_text(model)
    command = [BUILD / "bin" / "nnaot", at["model.nn"], "-g", ranks, "--loss", loss, "--emit", "nn", "-o", at["out.nn"]]
    for flag, text, is_text in ("--plan", plan, "function" in plan), ("--cluster", cluster or "", "return" in (cluster or "")):
        file = pathlib.Path(folder, f"{flag[2:]}.lua")
        if is_text:
            file.write_text(text)
        if text:
            command += [flag, file if is_text else text]

    def nnaot(*flags):
        run = subprocess.run([str(a) for a in (*command, *flags)], capture_output=True, text=True)
        if run.returncode:
            sys.exit(run.stderr)
        return at["out.nn"].read_text()

    # Before gradients are put into buckets, in which scalars are larger.
    nnaot("--stop-after", "fuse_comm", "--comm-manifest", at["manifest.json"], "--summary", at["summary.json"])
    return json.loads(at["manifest.json"].read_text()), json.loads(at["summary.json"].read_text()), nnaot("--stop-after", "shard")


def grid_program(grid):
    """That grid, and what is before and behind the product in p parts: over axes of p0, p1 and p2 ranks."""
    sizes = [(n, letters) for n, letters in zip(grid, ("000", "n01", "k10")) if n > 1] or [(1, "000")]
    axes = [f"a{i}" for i in range(len(sizes))]
    lines = ["function factors() return {" + ", ".join(str(n) for n, _ in sizes) + "} end",
             f"function step({', '.join(axes)})", '  local relu, product = ops("relu", "forward"), ops("linear", "forward")[1]']
    for axis, (_, letters) in zip(axes, sizes):
        for op, letter in zip(("product", "relu[1]", "relu[2]"), letters):
            lines.append(f'  op_trans({op}, "{letter}", {axis})')
    return "\n".join(lines + ["end", ""])


def chosen_grids(text, of={"0": 0, "1": 0, "n": 1, "k": 2}):
    """Of each product of the model, in order."""
    axes = [int(n) for n in re.findall(r"=(\d+)", re.search(r"^mesh @m .*\((.*)\)", text, re.M)[1])]
    train = text[text.index("graph @train"):].split("\ngraph ")[0]
    found = []
    for line in re.findall(r"^.* = linear .*$", train, re.M):
        if " backward" in line or " of=" not in line:
            continue
        grid, split = [1, 1, 1], re.search(r"split=\[(.*?)\]", line)
        for size, letter in zip(axes, split[1].split(",") if split else []):
            if letter in of:
                grid[of[letter]] *= size
        found.append(tuple(grid))
    return found


def every_grid(folder, table):
    """A program that says a grid gets it, and sends what the formula says, to the element."""
    failed, n = 0, 0
    for p in 4, 8, 16, 64:
        rows, inner, columns = 2 * p, 3 * p, 4 * p
        for grid in grids(p):
            manifest, _, _ = compiled(folder, product(rows, inner, columns), grid_program(grid), p, "mse(z)")
            want, got = product_volume(grid, inner * columns, rows * inner, rows * columns), sent(manifest, p)
            failed += got != want
            n += 1
            if table or got != want:
                print(f"{p:4} ranks {str(grid):14} sends {got}, V = {want}" + ("" if got == want else "  DIFFERENT"))
    print(f"{n} grids: {failed} send something else than V")
    return failed


SHAPES = [(1024, 256, 256), (256, 1024, 256), (256, 256, 1024), (64, 1024, 1024), (1024, 64, 1024), (1024, 1024, 64),
          (512, 512, 512), (128, 2048, 512)]


def searched_products(folder, table):
    """The search finds the grid for which V is least, and what it makes of it sends that."""
    failed, n = 0, 0
    for p, shape in itertools.product((4, 8, 16, 64), SHAPES):
        rows, inner, columns = shape
        sizes = inner * columns, rows * inner, rows * columns
        least = min(product_volume(g, *sizes) for g in grids(p))
        cluster = bandwidth(6 * rows * inner * columns / p, least)
        manifest, _, text = compiled(folder, product(*shape), "search3", p, "mse(z)", cluster)
        grid, got = chosen_grids(text)[0], sent(manifest, p)
        good = math.prod(grid) == p and got == product_volume(grid, *sizes) == least
        failed += not good
        n += 1
        if table or not good:
            print(f"{p:4} ranks {str(shape):18} chosen {str(grid):12} sends {got}, V = {product_volume(grid, *sizes)}, "
                  f"least {least}" + ("" if good else "  DIFFERENT"))
    print(f"{n} products searched: {failed} not as cheap as the cheapest grid")
    return failed


def main(table):
    with tempfile.TemporaryDirectory() as folder:
        return every_grid(folder, table) + searched_products(folder, table)


if __name__ == "__main__":
    sys.exit(main("--table" in sys.argv[1:]) > 0)
