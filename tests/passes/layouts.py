"""comm converts between all layouts of a matrix correctly, and sends no more than the path through replicated tensors.

A value of every layout on 3x2 devices, partial sums included, has two readers with every pair of layouts; some
of these cases also on 2x2x2.  nnaot-eval runs it as one device and as many; the traffic is counted from nnaot-opt's output.
"""

import itertools
import math
import os
import random
import re
import subprocess
import sys
import tempfile

BIN = os.path.join(os.environ.get("BUILD", "build"), "bin")
LENGTH = 24  # of both dimensions


def listed(brackets, entries):
    return brackets[0] + ",".join(entries) + brackets[1]


def layout(axes):
    return listed("{}", [f"S({a})" if a in "01" else a for a in axes])


def split(axes):
    return f" split={listed('[]', axes)}" if set(axes) != {"-"} else ""


def mapped(axes, of):
    return [of.get(a, "B") for a in axes]


def value(name, have):
    """Returns the parameters and ops of a value with this layout: a parameter, or a product that sums over the P axes."""
    shape = f"f32[{LENGTH},{LENGTH}]"
    if "P" not in have:
        return [f'%{name}: {shape} {layout(have)} input "{name}"'], []
    x, w = mapped(have, {"P": "1", "0": "0"}), mapped(have, {"P": "0", "1": "1"})
    letters = [{"P": "k", "0": "0", "1": "n", "B": "-"}[a] for a in have]
    return ([f'%x{name}: {shape} {layout(x)} input "x{name}"', f'%w{name}: {shape} {layout(w)} input "w{name}"'],
            [f"%{name} = linear %x{name}, %w{name} : {shape} {layout(have)}{split(letters)}"])


def module(sizes, have, wants):
    params, ops, results = [], [], []
    for i, pair in enumerate(wants):
        more_params, more_ops = value(f"v{i}", have)
        params += more_params
        ops += more_ops
        for k, want in enumerate(pair):
            letters = ["-" if a == "B" else a for a in want]
            ops.append(f"%r{i}_{k} = {['tanh', 'exp'][k]} %v{i} : f32[{LENGTH},{LENGTH}] {layout(want)}{split(letters)}")
            results.append(f'output "r{i}_{k}" %r{i}_{k}')
    axes = ", ".join(f"{name}={n}" for name, n in zip("abc", sizes))
    return "\n".join(["module phase=sharded", f"mesh @m devices=0-{math.prod(sizes) - 1} ({axes})", "",
                      f"graph @main entry ({', '.join(params)}) {{", *("  " + op for op in ops),
                      f"  return {', '.join(results)}", "}", ""])


def through_whole(sizes, have, wants):
    """Returns the elements that a rank sends for both readers by way of B on every changing axis; common steps are shared."""
    def gathers(now, want, a):
        return now[a] in "01" and any((now[b] == now[a]) != (want[b] == now[a]) for b in range(a + 1))

    sent, made = 0, set()
    for want in wants:
        now = tuple(have)
        while now != want:
            sums = [a for a, s in enumerate(now) if s == "P"]
            slices = [a for a in reversed(range(len(now))) if gathers(now, want, a)]
            a = (sums + slices + [b for b, s in enumerate(now) if s != want[b]])[0]
            elements = LENGTH**2 / math.prod(n for n, s in zip(sizes, now) if s in "01")
            price = 2 * (sizes[a] - 1) * elements / sizes[a] if sums else (sizes[a] - 1) * elements if slices else 0
            now = (*now[:a], "B" if sums or slices else want[a], *now[a + 1:])
            sent += 0 if now in made else price
            made.add(now)
    return sent


def sent_for(text, sizes):
    """Returns the elements that a rank sends, by the value that collectives move."""
    n_of, count, first, sent = dict(zip("abc", sizes)), {}, {}, {}
    for v, dims in re.findall(r"(%\w+): f32\[([\d,]+)\]", text):
        count[v] = math.prod(map(int, dims.split(",")))
    for v, op, x, rest, dims in re.findall(r"(%\w+) = (\w+) (%\w+)(.*?): f32\[([\d,]+)\]", text):
        count[v] = math.prod(map(int, dims.split(",")))
        axis = re.search(r'axis="(\w)"', rest)
        if axis:
            n, first[v] = n_of[axis[1]], first.get(x, x)
            price = {"all_reduce": 2 * (n - 1) / n, "all_gather": n - 1, "local_slice": 0, "reduce_scatter": (n - 1) / n,
                     "all_to_all": (n - 1) / n}[op]
            sent[first[v]] = sent.get(first[v], 0) + price * count[x]
    return sent


def run(tool, path, *flags):
    done = subprocess.run([os.path.join(BIN, tool), "--passes=comm", path, *flags], capture_output=True, text=True, timeout=120)
    return done.stdout if done.returncode == 0 else sys.exit(f"{tool}: {done.stdout}{done.stderr}{open(path).read()}")


def main():
    less = pairs = 0
    for sizes, share in ((3, 2), 1), ((2, 2, 2), 0.1):
        ways = list(itertools.product("B01", repeat=len(sizes)))
        for have in itertools.product("PB01", repeat=len(sizes)):
            draw = random.Random("".join(have))
            wants = [pair for pair in itertools.product(ways, ways) if share == 1 or draw.random() < share]
            with tempfile.NamedTemporaryFile("w", suffix=".nn") as file:
                file.write(module(sizes, have, wants))
                file.flush()
                run("nnaot-eval", file.name, "--same-as=")
                sent = sent_for(run("nnaot-opt", file.name), sizes)
            for i, want in enumerate(wants):
                most, now = through_whole(sizes, have, want), sent.get(f"%v{i}", 0)
                if now > most * (1 + 1e-9):
                    sys.exit(f"{layout(have)} to {layout(want[0])} and {layout(want[1])} on {sizes}: {now} elements, not {most}")
                less += now < most * (1 - 1e-9)
                pairs += 1
    print(f"{pairs} pairs of readers get what they want, {less} by sending less than whole tensors")
    sys.exit(less < pairs / 4)  # fails if the pass had no intermediate steps, or this test did not count them


main()
