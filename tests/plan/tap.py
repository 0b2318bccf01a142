"""TAP's 729 plans of a transformer block, with predicted step times, and the positions of the named ones among them.

TAP (section 6.3.1) reduces a model to its block, of which six weights may be split: of q, k, v, the product after
attention, and the two of the feed-forward layer.  Each of these products is split in one of three ways over the ranks: by
rows of the batch, with a replicated weight; by columns of the weight; by its rows.  The rest is searched.
Data parallelism and Megatron-LM are among the 3^6.

There are two predictions: the search's estimate, by which a search without these constraints must be no worse than the
best plan; and that of the executed program, whose collectives may be joined and overlap computation, by which `auto`
must be no worse.
"""

import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
ROWS, TOKENS, HEADS, SIZE, WIDE = 16, 512, 16, 64, 4096  # those of T5-large, and TAP's batch
WIDTH = HEADS * SIZE
CLUSTER, RANKS = "v100-dgx1:1x8", 8
WEIGHTS = ["q", "k", "v", "o", "up", "down"]
NAMED = {"0" * 6: "dp", "nnnknk": "Megatron-LM"}


def block():
    x, h = f"f32[{ROWS},{TOKENS},{WIDTH}]", f"f32[{ROWS},{TOKENS},{HEADS},{SIZE}]"
    wide, rows = f"f32[{ROWS},{TOKENS},{WIDE}]", f"f32[{ROWS},{TOKENS}]"
    sizes = {"up": (WIDTH, WIDE), "down": (WIDE, WIDTH)}
    params = [f'%tokens: i64[{ROWS},{TOKENS}] input "tokens"',
              f'%table: f32[512,{WIDTH}] weight "table" train = normal(0,1)']
    params += [f'%w_{w}: f32[{n},{m}] weight "{w}" train = normal(0,0.1)'
               for w in WEIGHTS for n, m in [sizes.get(w, (WIDTH, WIDTH))]]
    for norm in "ab":
        params += [f'%{p}_{norm}: f32[{WIDTH}] weight "{p}_{norm}" train = {init}' for p, init in (("g", 1), ("b", 0))]
    ops = [f"%x = gather %table, %tokens : {x}", f"%n1, %m1, %r1 = layer_norm %x, %g_a, %b_a : {x}, {rows}, {rows}"]
    for w in "qkv":
        ops += [f"%{w}0 = linear %n1, %w_{w} : {x}", f"%{w} = reshape %{w}0 shape=[{h[4:-1]}] : {h}"]
    ops += [f"%a0, %s = attention %q, %k, %v scale=0.125 seq_major=true : {h}, f32[{ROWS},{HEADS},{TOKENS}]",
            f"%a = reshape %a0 shape=[{x[4:-1]}] : {x}", f"%o = linear %a, %w_o : {x}", f"%y = add %x, %o : {x}",
            f"%n2, %m2, %r2 = layer_norm %y, %g_b, %b_b : {x}, {rows}, {rows}", f"%u = linear %n2, %w_up : {wide}",
            f"%t = relu %u : {wide}", f"%d = linear %t, %w_down : {x}", f"%z = add %y, %d : {x}"]
    return ('module "block" phase=typed\n\ngraph @main entry (' + ",\n  ".join(params) + ") {\n  " + "\n  ".join(ops) +
            '\n  return output "z" %z\n}\n')


def program(letters):
    said = ", ".join(f'"{letter}"' for letter in letters)
    return f"""function step(axis)
  local said = {{ {said} }}
  for i, op in ipairs(ops("linear", "forward")) do op_trans(op, said[i], axis) end
  search(axis)
end
"""


def price(folder, plan):
    """Returns the milliseconds of a step, as executed and as estimated by the search."""
    model, text, summary = (pathlib.Path(folder, n) for n in ("block.nn", "plan.lua", "summary.json"))
    model.write_text(block())
    if plan not in ("auto", "search"):
        text.write_text(program(plan))
        plan = text
    run = subprocess.run([BUILD / "bin" / "nnaot", model, "-g", str(RANKS), "--plan", plan, "--loss", "mse(z)",
                          "--optimizer", "adamw", "--cluster", CLUSTER, "--emit", "nn", "-o", "/dev/null", "--summary", summary],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{plan}: {run.stderr}")
    said = json.loads(summary.read_text())
    return said["predicted_step_ms"], said["solver"].get("step_ms")


def show(what, prices, least):
    order = sorted(prices.values())
    print(f"{what:9} {len(order)} plans, ms: " +
          " ".join(f"{x:.2f}" for x in (order[0], *statistics.quantiles(order, n=10), order[-1])) + " (least, tenths, most)")
    for letters, name in NAMED.items():
        print(f"{'':9} {name:12} {letters} {prices[letters]:8.3f}, number {order.index(prices[letters]) + 1}")
    print(f"{'':9} {'best':12} {min(prices, key=prices.get)} {order[0]:8.3f}")
    for name, x in least.items():
        print(f"{'':9} {name:12} {'':6} {x:8.3f}, {sum(y < x for y in order)} of them are cheaper")


def main():
    with tempfile.TemporaryDirectory() as folder:
        plans = {letters: price(folder, letters) for letters in map("".join, itertools.product("0nk", repeat=len(WEIGHTS)))}
        searched, auto = price(folder, "search"), price(folder, "auto")
    executed, seen = ({letters: p[i] for letters, p in plans.items()} for i in (0, 1))
    show("searched", seen, {"search": searched[1]})
    show("executed", executed, {"search": searched[0], "auto": auto[0]})
    # The optimality gap of a search is 1e-4.
    return searched[1] > min(seen.values()) * 1.0001 or auto[0] > min(executed.values()) * 1.000001


if __name__ == "__main__":
    sys.exit(main())
