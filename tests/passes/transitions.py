"""comm reshards correctly between all layouts of a tensor on two groups of devices.

    transitions.py [N]       a sample: N (5) random transitions for each pair of factorings of the groups
    transitions.py --all     all: 1-D to 3-D tensors, 4 and 8 devices, within a group and to another

A value of one layout, partial sums included, is read by an op in another layout, on the same devices, on others of
the same number, or of twice or half the number; both groups factored in every way. nnaot-eval runs the module as
one device and as many, and the plan proof must accept comm's result. Every second module is also resharded by send/recv
alone, or by send/recv between meshes. Layouts that are the same on differently
factored meshes are adjacent, so that comm searches once for all of them.
"""

import concurrent.futures
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


def mesh_text(name, devices, sizes):
    return f"mesh @{name} devices={devices} ({', '.join(f'{axis}={n}' for axis, n in zip('abc', sizes))})"


def value(name, shape, mesh, have):
    """Returns a parameter, or a sum over the last dimension of one, which all P axes split."""
    if "P" not in have:
        return f'%{name}: {type_text(shape)} @{mesh} {layout_text(have)} input "{name}"', []
    longer = (*shape, 8)
    x = [str(len(shape)) if a == "P" else a for a in have]
    letters = ["-" if a == "B" else chr(ord("a") + int(a)) for a in x]
    return (f'%x{name}: {type_text(longer)} @{mesh} {layout_text(x)} input "x{name}"',
            [f"%{name} = reduce_sum %x{name} axes=[{len(shape)}] : {type_text(shape)} @{mesh} {layout_text(have)}"
             f"{split_text(letters)}"])


def module(shape, group, transitions):
    params, ops, results = [], [], []
    meshes = [mesh_text(f"f{i}", group[0], sizes) for i, sizes in enumerate(FACTORS[group[1]])]
    meshes += [mesh_text(f"t{i}", group[2], sizes) for i, sizes in enumerate(FACTORS[group[3]])]
    for i, (f, have, t, want) in enumerate(transitions):
        param, more = value(f"v{i}", shape, f"f{f}", have)
        params.append(param)
        letters = ["-" if a == "B" else a for a in want]
        ops += [*more, f"%r{i} = tanh %v{i} : {type_text(shape)} @t{t} {layout_text(want)}{split_text(letters)}"]
        results.append(f'output "r{i}" %r{i}')
    return "\n".join(["module phase=sharded", *meshes, "", f"graph @main entry ({', '.join(params)}) {{",
                      *("  " + op for op in ops), f"  return {', '.join(results)}", "}", ""])


def check(shape, group, transitions, means):
    text, n = module(shape, group, transitions), len(transitions)
    with tempfile.NamedTemporaryFile("w", suffix=".nn") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([os.path.join(BIN, "nnaot-eval"), f"--passes=comm(cluster=h100:2x8 reshard={means})", "--same-as=",
                               file.name],
                              capture_output=True, text=True, timeout=3600)
    if done.returncode or f"{n} results are equal" not in done.stdout:
        sys.exit(f"{done.stdout}{done.stderr}{text}")
    return n


def by_two(sizes, layout):
    """Returns the same layout on axes of two devices each: 2x4 {B, S(0)} is 2x2x2 {B, S(0), S(0)}."""
    return "".join(a * (n.bit_length() - 1) for n, a in zip(sizes, layout))


def transitions_of(shape, group, of_each):
    """Returns the transitions between two groups as (mesh, layout, mesh, layout), equal ones adjacent."""
    found = []
    for (f, have_sizes), (t, want_sizes) in itertools.product(enumerate(FACTORS[group[1]]), enumerate(FACTORS[group[3]])):
        pairs = [*itertools.product(layouts(shape, have_sizes, "BP"), layouts(shape, want_sizes, "B"))]
        if of_each:
            draw = random.Random(f"{shape}{group}{(have_sizes, want_sizes)}")
            pairs = draw.sample(pairs, min(len(pairs), of_each))
        found += [((by_two(have_sizes, have), by_two(want_sizes, want)), (f, have, t, want)) for have, want in pairs]
    return [transition for _, transition in sorted(found)]


def main():
    of_each = None if sys.argv[1:] == ["--all"] else int(sys.argv[1]) if sys.argv[1:] else 5
    work = []
    for shape, group in itertools.product(SHAPES, GROUPS):
        transitions = transitions_of(shape, group, of_each)
        work += [(shape, group, transitions[i:i + AT_ONCE]) for i in range(0, len(transitions), AT_ONCE)]
    work = [(*w, "rvd") for w in work] + [(*w, ("p2p", "intra")[i // 2 % 2]) for i, w in enumerate(work) if i % 2 == 0]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        n = sum(pool.map(lambda w: check(*w), work))
    print(f"{n} transitions are right")


if __name__ == "__main__":
    main()
