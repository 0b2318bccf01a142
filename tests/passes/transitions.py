"""Between all layouts of a tensor on two groups of devices comm finds a way, and it is right.

    transitions.py [N]       a part of all: N (5) drawn of each two ways to factor the groups
    transitions.py --all     all: 1-D to 3-D tensors, 4 and 8 devices, within a group and to another

A value of one layout, partial sums too, is read by an op that wants it in another, on the same devices, on others of
the same number, or of twice or half the number; both groups factored in every way. nnaot-eval runs the module as
one device and as many, and the plan proof holds for what comm made of it.
"""

import itertools
import os
import random
import subprocess
import sys
import tempfile

BIN = os.path.join(os.environ.get("BUILD", "build"), "bin")
SHAPES = [(16,), (8, 16), (8, 8, 8)]
FACTORS = {4: [(4,), (2, 2)], 8: [(8,), (2, 4), (4, 2), (2, 2, 2)]}
GROUPS = [("0-3", 4, "0-3", 4), ("0-3", 4, "4-7", 4), ("0-3", 4, "3,2,1,0", 4), ("0-3", 4, "8-15", 8), ("8-15", 8, "0-3", 4),
          ("0-3", 4, "2-9", 8), ("0-7", 8, "0-7", 8), ("0-7", 8, "8-15", 8)]
AT_ONCE = 40  # transitions in a module


def fits(shape, sizes, layout):
    parts = [1] * len(shape)
    for n, a in zip(sizes, layout):
        if a.isdigit():
            parts[int(a)] *= n
    return all(s % p == 0 for s, p in zip(shape, parts))


def layouts(shape, sizes, kinds):
    letters = [*kinds, *map(str, range(len(shape)))]
    return [w for w in itertools.product(letters, repeat=len(sizes)) if fits(shape, sizes, w)]


def layout_text(layout):
    return "{" + ", ".join(f"S({a})" if a.isdigit() else a for a in layout) + "}"


def split_text(letters):
    return f" split=[{','.join(letters)}]" if set(letters) != {"-"} else ""


def type_text(shape):
    return f"f32[{','.join(map(str, shape))}]"


def value(name, shape, have):
    """A parameter, or a sum of the last dimension of one that every P cuts."""
    if "P" not in have:
        return f'%{name}: {type_text(shape)} {layout_text(have)} input "{name}"', []
    longer = (*shape, 8)
    x = [str(len(shape)) if a == "P" else a for a in have]
    letters = ["-" if a == "B" else chr(ord("a") + int(a)) for a in x]
    return (f'%x{name}: {type_text(longer)} {layout_text(x)} input "x{name}"',
            [f"%{name} = reduce_sum %x{name} axes=[{len(shape)}] : {type_text(shape)} {layout_text(have)}{split_text(letters)}"])


def axes_text(sizes):
    return ", ".join(f"{name}={n}" for name, n in zip("abc", sizes))


def module(shape, group, sizes, pairs):
    params, ops, results = [], [], []
    for i, (have, want) in enumerate(pairs):
        param, more = value(f"v{i}", shape, have)
        params.append(param)
        ops += [*more, f"%r{i} = tanh %v{i} : {type_text(shape)} @t {layout_text(want)}{split_text(['-' if a == 'B' else a for a in want])}"]
        results.append(f'output "r{i}" %r{i}')
    return "\n".join(["module phase=sharded", f"mesh @f devices={group[0]} ({axes_text(sizes[0])})",
                      f"mesh @t devices={group[2]} ({axes_text(sizes[1])})", "", f"graph @main entry ({', '.join(params)}) {{",
                      *("  " + op for op in ops), f"  return {', '.join(results)}", "}", ""])


def check(text, n):
    with tempfile.NamedTemporaryFile("w", suffix=".nn") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([os.path.join(BIN, "nnaot-eval"), "--passes=comm(cluster=h100:2x8)", "--same-as=", file.name],
                              capture_output=True, text=True, timeout=3600)
    if done.returncode or f"{n} results are equal" not in done.stdout:
        sys.exit(f"{done.stdout}{done.stderr}{text}")


def main():
    of_each, n = sys.argv[1] if sys.argv[1:] else "5", 0
    for shape, group in itertools.product(SHAPES, GROUPS):
        for sizes in itertools.product(FACTORS[group[1]], FACTORS[group[3]]):
            pairs = [*itertools.product(layouts(shape, sizes[0], "BP"), layouts(shape, sizes[1], "B"))]
            if of_each != "--all":
                draw = random.Random(f"{shape}{group}{sizes}")
                pairs = draw.sample(pairs, min(len(pairs), int(of_each)))
            for i in range(0, len(pairs), AT_ONCE):
                some = pairs[i:i + AT_ONCE]
                check(module(shape, group, sizes, some), len(some))
                n += len(some)
    print(f"{n} transitions are right")


main()
