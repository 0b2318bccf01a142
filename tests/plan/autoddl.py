"""AutoDDL's volumes (sections 4.2 to 4.6) of matrix products over p = p0 p1 p2 ranks equal the traffic of nnaot's plans.

    autoddl.py              all checks
    autoddl.py --table      the same, and every number

A product O = I W has rows of I and O in p0 parts, columns of W and O in p1, columns of I and rows of W in p2.  In a
step, forward and backward, with I and O stored in p parts, a rank sends

    V = 2/p ((p0 - 1) |W| + (p1 - 1) |I| + (p2 - 1) |O|)       elements

as the gradient of W is reduced over p0 ranks, I gathered over p1, and the partial sum O scattered over p2.  Volumes are
those of --comm-manifest, for ring collectives: of n ranks each sends (n - 1) / n of the larger buffer, twice that in an
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
    """Returns all (p0, p1, p2) whose product is p."""
    sizes = [n for n in range(1, p + 1) if p % n == 0]
    return [(a, b, p // (a * b)) for a in sizes for b in sizes if p % (a * b) == 0]


def product_volume(grid, w, i, o):
    p0, p1, p2 = grid
    return fractions.Fraction(2 * ((p0 - 1) * w + (p1 - 1) * i + (p2 - 1) * o), p0 * p1 * p2)


def sent(manifest, ranks, part=lambda op: True):
    """Returns the elements of 4 bytes that a rank sends in a step, in the selected ops."""
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
    """Returns a cluster whose optimum depends on traffic alone: links have no latency, and `flops` take twice
    the time of sending `elements`, so that all work is split, but more traffic never pays for splitting the update."""
    return f"""return {{
  nodes = 4096, per_node = 1,
  inside = {{ alpha = 0, beta = 1e-9 }}, across = {{ alpha = 0, beta = 1e-9 }},
  memory_speed = 1e11, f32 = {float(flops) / (2 * 4e-9 * float(elements))},
}}
"""


def product(rows, inner, columns):
    """Returns a product between ops that store its operand and its result in parts."""
    return f"""module "product" phase=typed

graph @main entry (%i: f32[{rows},{inner}] weight "i" train = normal(0,0.1),
                   %w: f32[{inner},{columns}] weight "w" train = normal(0,0.1)) {{
  %x = relu %i       : f32[{rows},{inner}]
  %y = linear %x, %w : f32[{rows},{columns}]
  %z = relu %y       : f32[{rows},{columns}]
  return output "z" %z
}}
"""


def chain_model(rows, widths):
    """Returns dense layers; the input of the first is split by rows, like the output of convolutions (section 4.5.3)."""
    params = [f'%i: f32[{rows},{widths[0]}] input "i"', '%s: f32[1,1] weight "s" train = 1']
    ops = [f"%b = broadcast %s shape=[{rows},{widths[0]}] : f32[{rows},{widths[0]}]",
           f"%x0 = mul %i, %b : f32[{rows},{widths[0]}]"]
    for k, (n, m) in enumerate(zip(widths, widths[1:]), 1):
        params.append(f'%w{k}: f32[{n},{m}] weight "w{k}" train = normal(0,0.1)')
        ops.append(f"%y{k} = linear %x{k - 1}, %w{k} : f32[{rows},{m}]")
        ops.append(f"%x{k} = relu %y{k} : f32[{rows},{m}]")
    return ('module "chain" phase=typed\n\ngraph @main entry (' + ",\n  ".join(params) + ") {\n  " + "\n  ".join(ops) +
            f'\n  return output "y" %x{len(widths) - 1}\n}}\n')


def attention(sequences, tokens, heads, size):
    """Returns one attention layer as in AutoDDL's figure 3: q, k and v, computed from one X, and the output product."""
    width = heads * size
    x, split = f"f32[{sequences},{tokens},{width}]", f"f32[{sequences},{tokens},{heads},{size}]"
    ops = [f"%b = broadcast %s shape=[{x[4:-1]}] : {x}", f"%x = mul %i, %b : {x}"]
    for p in "qkv":
        ops += [f"%{p}0 = linear %x, %w{p} : {x}", f"%{p} = reshape %{p}0 shape=[{split[4:-1]}] : {split}"]
    ops += [f"%a, %m = attention %q, %k, %v scale=1 causal=true seq_major=true : {split}, f32[{sequences},{heads},{tokens}]",
            f"%a0 = reshape %a shape=[{x[4:-1]}] : {x}", f"%o = linear %a0, %wo : {x}", f"%z = add %o, %x : {x}"]
    params = [f'%i: {x} input "i"', '%s: f32[1,1,1] weight "s" train = 1']
    params += [f'%w{p}: f32[{width},{width}] weight "w{p}" train = normal(0,0.1)' for p in "qkvo"]
    return ('module "attention" phase=typed\n\ngraph @main entry (' + ",\n  ".join(params) + ") {\n  " +
            "\n  ".join(ops) + '\n  return output "z" %z\n}\n')


def compiled(folder, model, plan, ranks, loss, cluster=None):
    """Returns the manifest, the summary, and the program after shard."""
    at = {n: pathlib.Path(folder, n) for n in ("model.nn", "manifest.json", "summary.json", "out.nn")}
    at["model.nn"].write_text(model)
    command = [BUILD / "bin" / "nnaot", at["model.nn"], "-g", ranks, "--loss", loss, "--emit", "nn", "-o", at["out.nn"]]
    for flag, text, is_text in ("--plan", plan, "function" in plan), ("--cluster", cluster or "", bool(cluster)):
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

    # Before bucket_grads: scalars take more space in a bucket.
    nnaot("--stop-after", "fuse_comm", "--comm-manifest", at["manifest.json"], "--summary", at["summary.json"])
    manifest, summary = (json.loads(at[n].read_text()) for n in ("manifest.json", "summary.json"))
    return manifest, summary, nnaot("--stop-after", "shard")


def grid_program(grid):
    """Returns a plan program with this grid, over axes of p0, p1 and p2 ranks; the neighbours of the product are in p parts."""
    sizes = [(n, letters) for n, letters in zip(grid, ("000", "n01", "k10")) if n > 1] or [(1, "000")]
    axes = [f"a{i}" for i in range(len(sizes))]
    lines = ["function factors() return {" + ", ".join(str(n) for n, _ in sizes) + "} end",
             f"function step({', '.join(axes)})",
             '  local relu, product = ops("relu", "forward"), ops("linear", "forward")[1]']
    for axis, (_, letters) in zip(axes, sizes):
        for op, letter in zip(("product", "relu[1]", "relu[2]"), letters):
            lines.append(f'  op_trans({op}, "{letter}", {axis})')
    return "\n".join(lines + ["end", ""])


def chosen_grids(text, of={"0": 0, "1": 0, "n": 1, "k": 2}):
    """Returns the grid of each product of the model, in order."""
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
    """Checks that a program that prescribes a grid gets it, and sends exactly the formula's elements."""
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
    """Checks that the search finds the grid with the least V, and that its plan sends V."""
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


FIGURE3 = (1024, 1024, 64, 128)  # sequences, tokens, heads and their size


def figure3(folder, table):
    """Checks 64 ranks, of which 4 have the same weights: the figure's plan sends 16 |X| in forward, Megatron's 30 |X|;
    a search over all plans finds one that sends less in total."""
    sequences, tokens, heads, size = FIGURE3
    x, w, p = sequences * tokens * heads * size, (heads * size)**2, 64

    def volume(grid, i, o):
        return (grid[1] - 1) * i + (grid[2] - 1) * o

    def forward(manifest):
        return p * sent(manifest, p, lambda op: " backward" not in op and " update" not in op) / x

    four = [g for g in grids(p) if g[0] == 4]
    best = [min(four, key=lambda g: volume(g, 1, o)) for o in (3, 1)]
    model = attention(*FIGURE3)
    cluster = bandwidth(6 * sequences * tokens * 4 * w / p, 46 * x / p)
    plans = {"figure 3": (HERE / "inputs" / "autoddl-figure3.lua").read_text(), "Megatron": "dp=4,tp=16", "search": "search"}
    rows = {}
    for name, plan in plans.items():
        manifest, summary, text = compiled(folder, model, plan, p, "mse(z)", cluster)
        rows[name] = forward(manifest), summary["predicted_step_ms"], sent(manifest, p)
        print(f"{name:9} forward {float(rows[name][0]):6.2f} |X|, in all {float(p * rows[name][2] / x):7.2f} |X|, "
              f"grids {chosen_grids(text)[0]} and {chosen_grids(text)[3]}")
    wrong = [best != [(4, 8, 2), (4, 4, 4)], rows["figure 3"][0] != 16, rows["Megatron"][0] != 30,
             rows["search"][1] > min(rows["figure 3"][1], rows["Megatron"][1])]
    print(f"figure 3: {sum(wrong)} of 4 wrong {wrong if any(wrong) else ''}")
    return sum(wrong)


def turned(size, p, rows, rows_after):
    """Returns the elements that a rank exchanges to change its rows and columns of a matrix, forward and backward."""
    many = max(rows, rows_after) // min(rows, rows_after)
    return fractions.Fraction(2 * size * (many - 1), many * p)


class Chain:
    """AutoDDL's plans of consecutive dense layers and their volumes (sections 4.3 and 4.4): input and output are
    split by rows alone."""

    def __init__(self, rows, widths, p):
        self.p, self.all = p, grids(p)
        self.sizes = [rows * n for n in widths]
        self.weights = [n * m for n, m in zip(widths, widths[1:])]

    def own(self, layer, grid):
        """Returns the volume of a layer's products, and of the reshards before the first and after the last layer."""
        cost = product_volume(grid, self.weights[layer], self.sizes[layer], self.sizes[layer + 1])
        if layer == 0:
            cost += turned(self.sizes[0], self.p, self.p, grid[0])
        if layer == len(self.weights) - 1:
            cost += turned(self.sizes[-1], self.p, grid[0], self.p)
        return cost

    def between(self, layer, grid, after):
        """Returns the volume of the reshard after a layer; 0 if rows stay, or columns become the summed dimension."""
        if grid[0] == after[0] or grid[1] == after[2]:
            return fractions.Fraction(0)
        return turned(self.sizes[layer + 1], self.p, grid[0], after[0])

    def exhaustive(self):
        """Returns the least volume by enumeration of all plans, and their number."""
        n = len(self.weights)
        own = [{g: self.own(i, g) for g in self.all} for i in range(n)]
        joint = [{(g, h): self.between(i, g, h) for g in self.all for h in self.all} for i in range(n - 1)]
        least = min(sum(own[i][g] for i, g in enumerate(plan)) + sum(j[pair] for j, pair in zip(joint, zip(plan, plan[1:])))
                    for plan in itertools.product(self.all, repeat=n))
        return least, len(self.all)**n


def ways(p):
    """Returns all factorings of p into at most three sizes, in order."""
    return sorted({tuple(n for n in g if n > 1) for g in grids(p)}, key=lambda w: (len(w), w))


def chain_program(way, layers):
    """Returns a program that searches over axes of these sizes, with rows before the first layer and after the last."""
    return f"""function factors() return {{ {", ".join(map(str, way))} }} end
function step(...)
  for _, axis in ipairs {{ ... }} do
    op_trans(ops("mul", "forward")[1], "0", axis)
    op_trans(ops("relu", "forward")[{layers}], "0", axis)
  end
  search(...)
end
"""


def searched_chain(folder, rows, widths, p):
    """Returns the cheapest result over all factorings of the ranks: its traffic, its grids and axes, the seconds of
    its solver, and the seconds of all searches."""
    chain = Chain(rows, widths, p)
    flops = 6 * rows * sum(chain.weights) / p
    least = sum(min(product_volume(g, w, i, o) for g in chain.all)
                for w, i, o in zip(chain.weights, chain.sizes, chain.sizes[1:]))
    found, solver, seconds = [], 0, 0
    for way in ways(p):
        manifest, summary, text = compiled(folder, chain_model(rows, widths), chain_program(way, len(widths) - 1), p,
                                           "mse(y)", bandwidth(flops, least))
        found.append((summary["predicted_step_ms"], sent(manifest, p), chosen_grids(text), way))
        solver += summary["solver"]["seconds"]
        seconds += summary["seconds"]["shard"]
    return *min(found)[1:], solver, seconds


VGG13 = [25088, 4096, 4096, 1000]


def vgg13(folder, table, ranks=(16,)):
    """Checks the dense layers of VGG13, eight rows a rank (section 5.2.2): never more than the best of AutoDDL's plans."""
    failed = 0
    for p in ranks:
        least, n = Chain(8 * p, VGG13, p).exhaustive()
        got, chosen, way, solver, seconds = searched_chain(folder, 8 * p, VGG13, p)
        failed += got > least
        print(f"VGG13 on {p} ranks: search sends {float(got) / 1e6:.4f} M elements, the best of {n} plans "
              f"{float(least) / 1e6:.4f} M; {' '.join(map(str, chosen))} over {way}; {1e3 * seconds:.0f} ms, "
              f"of which the solver {1e3 * solver:.1f}")
    return failed


def main(table):
    with tempfile.TemporaryDirectory() as folder:
        return sum(part(folder, table) for part in (every_grid, searched_products, figure3, vgg13))


if __name__ == "__main__":
    sys.exit(main("--table" in sys.argv[1:]) > 0)
