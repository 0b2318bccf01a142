"""Random blocks, repeated in random order under random names, are outlined and restored exactly.

A block is a random graph of ops; several in a row make a chain, in which each reads the results of the previous block,
weights of its own and a value shared by all.  Some blocks are almost equal: one attribute or one operand differs.
The ops are in a random topological order.

    random_blocks.py [FIRST [COUNT]]      seeds FIRST .. FIRST+COUNT-1; a failing graph is printed
"""

import os
import random
import re
import subprocess
import sys
import tempfile

BIN = os.path.join(os.environ.get("BUILD", "build"), "bin")
TYPE = "f32[3,3]"


class Block:
    """Ops as (kind and attributes, operands); an operand is ('in', i), ('op', i), 'weight' or 'shared'."""

    def __init__(self, rand, n_in):
        self.random, self.n_in, self.ops = rand, n_in, []
        for i in range(rand.randint(5, 12)):
            known = [("in", k) for k in range(n_in)] + [("op", k) for k in range(i)]
            kind = rand.choice(["linear", "linear", "tanh", "relu", "scale", "add", "max", "sub", "shared"])
            x, y = rand.choice(known[-4:]), rand.choice(known)
            if kind == "linear":
                self.ops.append(("linear", [x, "weight"]))
            elif kind == "shared":
                self.ops.append(("min", [x, "shared"]))
            elif kind in ("add", "max", "sub"):
                self.ops.append((kind, [x, y]))
            else:
                self.ops.append((f"{kind} by={rand.choice([0.5, 0.25])}" if kind == "scale" else kind, [x]))
        # Unread values are added up in pairs, until few enough are left for the results.
        for out in range(n_in):
            read = {x for _, operands in self.ops for x in operands}
            free = [("op", i) for i in range(len(self.ops)) if ("op", i) not in read]
            while len(free) > n_in - out:
                self.ops.append(("add", [free.pop(0), free.pop(0)]))
                free.append(("op", len(self.ops) - 1))
        self.out = (free + [("op", i) for i in range(len(self.ops))])[:n_in]

    def almost(self):
        b = Block.__new__(Block)
        b.random, b.n_in, b.out = self.random, self.n_in, self.out
        b.ops = [(text, list(operands)) for text, operands in self.ops]
        i = self.random.randrange(1, len(b.ops))
        text, operands = b.ops[i]
        if self.random.random() < 0.5:
            operands[0] = ("op", self.random.randrange(i))
        else:
            b.ops[i] = ("scale by=0.125" if len(operands) == 1 else {"add": "mul", "max": "min", "sub": "add"}.get(text, text), operands)
        return b


class Graph:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.weights, self.ops = [], []  # (text, operands)
        n_in = self.random.randint(1, 2)
        state = [self.op("neg", ["%x"]), self.op("tanh", ["%x"])][:n_in]
        self.shared = self.op("relu", ["%x"])
        self.kinds = [Block(self.random, n_in) for _ in range(self.random.randint(1, 2))]
        self.times = self.random.randint(3, 7)
        self.exact = self.random.random() < 0.5
        for _ in range(self.times):
            for block in self.kinds:
                odd = not self.exact and self.random.random() < 0.3
                state = self.add(block.almost() if odd else block, state)
        self.results = state

    def op(self, text, operands):
        self.ops.append((text, operands))
        return len(self.ops) - 1

    def weight(self):
        self.weights.append(f"%w{len(self.weights)}")
        return self.weights[-1]

    def add(self, block, state):
        made = []
        for text, operands in block.ops:
            made.append(self.op(text, [self.weight() if x == "weight" else self.shared if x == "shared"
                                       else (state if x[0] == "in" else made)[x[1]] for x in operands]))
        return [made[i] for _, i in block.out]

    def text(self):
        waits, ready, order = {}, [], []
        for i, (_, operands) in enumerate(self.ops):
            waits[i] = {x for x in operands if isinstance(x, int)}
        while len(order) < len(self.ops):
            ready = [i for i in waits if waits[i] <= set(order)]
            order.append(self.random.choice(ready))
            del waits[order[-1]]
        numbers = self.random.sample(range(1000), len(self.ops))
        names = [f"%v{n}" if self.random.random() < 0.7 else f"%{n + 1000}" for n in numbers]
        params = ['%x: ' + TYPE + ' input "x"'] + [f'{w}: {TYPE} weight "{w[1:]}" = normal(0,0.5)' for w in self.weights]
        lines = []
        for i in order:
            text, operands = self.ops[i]
            kind, *attributes = text.split(" ")
            operands = ", ".join(names[x] if isinstance(x, int) else x for x in operands)
            lines.append(f"  {names[i]} = {' '.join([kind, operands, *attributes])} : {TYPE}")
        results = ", ".join(f'output "y{i}" {names[x]}' for i, x in enumerate(self.results))
        return "\n".join(["module phase=typed", "", f"graph @main entry ({', '.join(params)}) {{", *lines,
                          f"  return {results}", "}", ""])


def opt(text, passes):
    run = subprocess.run([os.path.join(BIN, "nnaot-opt"), "-", f"--passes={passes}"], input=text, text=True,
                         capture_output=True, timeout=60)
    if run.returncode:
        raise ValueError(run.stderr)
    return run.stdout


def check(graph):
    text = opt(graph.text(), "")
    folded = opt(text, "fold")
    if opt(folded, "inline_calls") != text or opt(text, "fold,inline_calls") != text:
        raise ValueError("fold and inline_calls give another text\n" + folded)
    with tempfile.NamedTemporaryFile("w", suffix=".nn") as file:
        file.write(text)
        file.flush()
        run = subprocess.run([os.path.join(BIN, "nnaot-eval"), file.name, "--same-as=outline_repeats", "--tolerance=0"],
                             text=True, capture_output=True, timeout=60)
        if run.returncode:
            raise ValueError(run.stdout + run.stderr)
    before, after = (len(re.findall(r"^  %[^:]* = ", t, re.M)) for t in (text, folded))
    # Each block is outlined once and called each time, except for differences at the ends.  If an end resembles a
    # block, useless occurrences may be found, so some results may be worse, but not much.
    once, calls = sum(len(b.ops) for b in graph.kinds), graph.times * len(graph.kinds)
    if graph.exact and after > (before + once) // 2 + calls:
        raise ValueError(f"{before} ops of blocks of {once} become {after}\n{folded}")
    return graph.exact, graph.exact and after <= once + calls + 8


def main():
    first, count = ([int(a) for a in sys.argv[1:]] + [0, 200][len(sys.argv) - 1:])[:2]
    wrong = exact = small = 0
    for seed in range(first, first + count):
        graph = Graph(seed)
        try:
            is_exact, is_small = check(graph)
            exact, small = exact + is_exact, small + is_small
        except ValueError as error:
            wrong += 1
            print(f"seed {seed}:\n{graph.text()}{error}")
    print(f"{count - wrong} of {count} graphs are folded and put back; {small} of {exact} to their blocks and no more")
    sys.exit(wrong > 0 or small < 0.9 * exact)


main()
