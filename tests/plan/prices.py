"""The search's estimate of the step time equals the final prediction:  prices.py [CASE …]

Each case is a plan in which one term of the cost is large: the search has no choice, and its sum must equal the step time
predicted after all passes (cost_step.h).  It leaves out constants independent of all choices, such as scalar kernels.  With
free choices the result takes no more than dp.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

NNAOT = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot")
WORST = 0.03
CLUSTER = """return {{ nodes = 1, per_node = 4, nics = 1, start = {start},
  inside = {{ alpha = 1e-9, beta = {beta} }}, across = {{ alpha = 1e-9, beta = {beta} }},
  memory = 1e12, memory_speed = 1e12, f32 = 1e13, half = 1e13, launch = 1e-6 {more} }}
"""
STEP = """function step(axis)
  for _, op in ipairs(ops(nil, "forward")) do
    for _, letter in ipairs{{{letters}}} do if can(op, letter, axis) then op_trans(op, letter, axis); break end end
  end
  for _, p in ipairs(params("weight")) do {weights} end
  search(axis)
end
"""


def linears(n, rows, width):
    """Returns consecutive products."""
    params = [f'%x0: f32[{rows},{width}] input "x"']
    params += [f'%w{i}: f32[{width},{width}] weight "w{i}" train = normal(0,0.1)' for i in range(n)]
    ops = [f"%x{i + 1} = linear %x{i}, %w{i} : f32[{rows},{width}]" for i in range(n)]
    return params, ops, f"x{n}"


def relus(n, rows, width):
    """Returns products and relus: the gradient of a relu reads its result, not its operand."""
    params, ops, y = linears(n, rows, width)
    for i in range(n - 1):
        ops[2 * i + 1:2 * i + 1] = [f"%r{i + 1} = relu %x{i + 1} : f32[{rows},{width}]"]
        ops[2 * i + 2] = ops[2 * i + 2].replace(f"linear %x{i + 1},", f"linear %r{i + 1},")
    return params, ops, y


def turned(n, rows, heads, width):
    """Returns rotated halves of heads, as in rotary embeddings: the gradients are transposed after their computation."""
    params, ops, y = linears(1, rows, heads * width)
    for i in range(n):
        apart, half = (f"[{rows // 64},64,{heads},{w}]" for w in (width, width // 2))
        round_, turned_half = (f"f32[{rows // 64},{heads},64,{w}]" for w in (width, width // 2))
        ops += [f"%a{i} = reshape %{y} shape={apart} : f32{apart}"]
        for k in range(2):
            at = f"starts=[0,0,0,{k * width // 2}] steps=[1,1,1,1]"
            ops += [f"%h{i}_{k} = slice %a{i} {at} shape={half} : f32{half}",
                    f"%t{i}_{k} = transpose %h{i}_{k} perm=[0,2,1,3] : {turned_half}"]
        ops += [f"%n{i} = neg %t{i}_1 : {turned_half}", f"%c{i} = concat %n{i}, %t{i}_0 axis=3 : {round_}",
                f"%s{i} = softmax %c{i} axis=3 : {round_}", f"%b{i} = transpose %s{i} perm=[0,2,1,3] : f32{apart}",
                f"%y{i} = reshape %b{i} shape=[{rows},{heads * width}] : f32[{rows},{heads * width}]"]
        y = f"y{i}"
    return params, ops, y


def forked(n, rows, width):
    """Returns a value with several products as readers: its gradient is a sum."""
    params, ops, y = linears(1, rows, width)
    params += [f'%b{i}: f32[{width},8] weight "b{i}" train = normal(0,0.1)' for i in range(n)]
    ops += [f"%p{i} = linear %{y}, %b{i} : f32[{rows},8]" for i in range(n)]
    ops += [f"%q{i} = add %{f'q{i - 1}' if i > 1 else 'p0'}, %p{i} : f32[{rows},8]" for i in range(1, n)]
    return params, ops, f"q{n - 1}"


def tied(rows, words, width):
    """Returns a table used for lookup and in a product: one of its gradients is sharded, the other is a partial sum, and
    they are added up in each micro-batch."""
    params = [f'%ids: i64[32,{rows}] input "ids"', f'%t: f32[{words},{width}] weight "t" train = normal(0,0.1)']
    ops = [f"%x = gather %t, %ids : f32[32,{rows},{width}]", f"%r = relu %x : f32[32,{rows},{width}]",
           f"%y = linear %r, %t trans=true : f32[32,{rows},{words}]"]
    return params, ops, "y"


def windows(n, images, side, window, width):
    """Returns rows in windows: the letter of windows is the first of a dimension of the products, the second of one
    with a single letter in softmax, and the first again in their gradients."""
    parts, flat = images * side // window, f"[{images},{side},{width}]"
    apart = f"[{parts},{window},{width // 64},64]"
    params = [f'%x0: f32{flat} input "x"']
    params += [f'%{w}{i}: f32[{width},{width}] weight "{w}{i}" train = normal(0,0.1)' for i in range(n) for w in "ab"]
    ops = []
    for i in range(n):
        ops += [f"%y{i} = linear %x{i}, %a{i} : f32{flat}", f"%c{i} = reshape %y{i} shape={apart} : f32{apart}",
                f"%s{i} = softmax %c{i} axis=1 : f32{apart}", f"%d{i} = reshape %s{i} shape={flat} : f32{flat}",
                f"%z{i} = linear %d{i}, %b{i} : f32{flat}", f"%x{i + 1} = relu %z{i} : f32{flat}"]
    return params, ops, f"x{n}"


WHOLE, STORED = 'split(p, "-", axis)', "store(p, 0, axis)"
EAGER = ", dispatch = 1e-5, half_efficiency = 0.4"
# name: model, letters to split, layout of weights, latency of a collective in s, s per byte, further flags, fields of the cluster
CASES = {
    "gradients": (relus(8, 16384, 64), "-", WHOLE, 1e-6, 1e-11, []),
    "updates": (linears(40, 256, 256), "-", WHOLE, 1e-6, 1e-11, []),
    "hidden": (linears(4, 4096, 2048), "0", WHOLE, 1e-6, 5e-11, []),
    "exposed": (linears(8, 8192, 1024), "0", WHOLE, 1e-6, 5e-11, ["--micro-batches", "2"]),
    "starts": (linears(4, 4096, 2048), "0", WHOLE, 1e-3, 1e-12, ["--micro-batches", "2"]),
    "norm": (linears(1, 4096, 2048), "0", STORED, 1e-3, 1e-12, []),
    "sums": (linears(4, 4096, 2048), "k", 'split(p, 0, axis)', 1e-6, 1e-11, ["--dtype", "bf16", "--target", "cuda"]),
    "widened": (relus(8, 4096, 1024), "0", WHOLE, 1e-6, 1e-12, ["--dtype", "bf16"]),
    "turned": (turned(4, 4096, 16, 64), "0a", WHOLE, 1e-6, 1e-12, []),
    "forked": (forked(2, 16384, 512), "0", WHOLE, 1e-6, 1e-12, ["--dtype", "bf16", "--target", "cuda"]),
    "windows": (windows(4, 4, 1024, 16, 256), "1ch", WHOLE, 1e-6, 2e-11, []),
    "tied": (tied(16, 4096, 256), "b1", WHOLE, 1e-6, 1e-11,
             ["--micro-batches", "8", "--dtype", "bf16", "--target", "cuda"]),
    "dispatched": (linears(40, 256, 256), "-", WHOLE, 1e-6, 1e-11, [], EAGER),
    "eager": (linears(4, 4096, 2048), "0", STORED, 1e-6, 5e-11, ["--dtype", "bf16", "--target", "cuda"], EAGER),
    "casts": (linears(4, 4096, 2048), "0", STORED, 1e-6, 5e-11, ["--dtype", "bf16", "--target", "cuda"]),
}


def text(params, ops, y):
    return (f"module phase=typed\n\ngraph @main entry ({', '.join(params)}) {{\n  " + "\n  ".join(ops) +
            f'\n  return output "y" %{y}\n}}\n')


def compile_plan(folder, plan, case):
    (params, ops, y), letters, weights, start, beta, more, *fields = case
    model, cluster = pathlib.Path(folder, "model.nn"), pathlib.Path(folder, "cluster.lua")
    pathlib.Path(folder, "plan.lua").write_text(STEP.format(letters=str([*letters])[1:-1], weights=weights))
    model.write_text(text(params, ops, y))
    cluster.write_text(CLUSTER.format(start=start, beta=beta, more="".join(fields)))
    run = subprocess.run([NNAOT, model, "-g", "4", "--plan", plan or f"{folder}/plan.lua", "--loss", "mse(y)",
                          "--optimizer", "sgd", "--cluster", cluster, "--emit", "plan", *more], capture_output=True,
                         text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    return json.loads(run.stdout)


def check(name, case):
    with tempfile.TemporaryDirectory() as folder:
        made, searched, dp = (compile_plan(folder, plan, case) for plan in ("", "search", "dp"))
    said, took = made["solver"]["step_ms"], made["predicted_step_ms"]
    best, named = searched["predicted_step_ms"], dp["predicted_step_ms"]
    print(f"{name:10} the search says {said:.6f} ms, the step takes {took:.6f} ms: {said / took:.4f}; "
          f"the best is {best:.6f} ms, dp is {named:.6f} ms")
    return max(abs(said / took - 1), best / named - 1)


def main():
    names = sys.argv[1:] or list(CASES)
    sys.exit(max([check(name, CASES[name]) for name in names]) > WORST)


main()
