"""Random graphs compute the same after simplification and raising, and in 16 bits, on any number of ranks.

Random ops that rearrange elements (transpose, reshape, slice, broadcast) between elementwise ones, sums
and products: they cover unforeseen interactions of the rules of simplify.

    random_graphs.py [FIRST [COUNT]]      seeds FIRST .. FIRST+COUNT-1; a failing graph is printed
"""

import math
import os
import random
import subprocess
import sys
import tempfile

EVAL = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot-eval")
# Pipelines that must agree, up to a relative norm.  In 16 bits every result is rounded, and again for the partial sums
# of ranks; a sum with cancellation keeps few digits of its terms in 32 bits too.  On four ranks each has a single row
# of the inputs.
SAME = [
    ("", "simplify,raise,simplify", 1e-5),
    ("mixed_precision(to=bf16)", "mixed_precision(to=bf16),simplify", 0.03),
    ("mixed_precision(to=bf16)", "mixed_precision(to=bf16),shard(mesh=2),comm,bucket_grads,legalize_types,fuse", 0.03),
    ("mixed_precision(to=f16)", "mixed_precision(to=f16),shard(mesh=4),comm,bucket_grads,legalize_types,fuse", 0.004),
    ("", "simplify,shard(mesh=2x2),comm,fuse_linear,fuse_norm,multi_tensor,fuse,plan_memory(target=cuda)", 1e-4),
    ("mixed_precision(to=bf16)", "mixed_precision(to=bf16),simplify,shard(mesh=2),comm,fuse_linear,fuse_norm,"
     "legalize_types(target=cuda),keep_casts,multi_tensor,fuse,plan_memory(target=cuda)", 0.03),
]
LARGEST = 4000  # elements


def listed(numbers):
    return "[" + ",".join(map(str, numbers)) + "]"


class Graph:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.values = [("x", (4, 3, 2, 6)), ("y", (4, 3, 2, 6)), ("s", (1,))]
        self.n = 0
        for _ in range(self.random.randint(6, 22)):
            self.random.choice(self.KINDS)(self, *self.random.choice(self.values[-6:]))

    def line(self, text, more_results=""):
        self.n += 1
        self.lines.append(f"  %v{self.n}{more_results} = {text}")
        return f"v{self.n}"

    def add(self, text, shape):
        several = ", %m{0}, %r{0}".format(self.n + 1) if text.startswith("layer_norm") else ""
        self.values.append((self.line(text, several), tuple(shape)))

    def transpose(self, v, shape):
        perm = list(range(len(shape)))
        self.random.shuffle(perm)
        if perm:
            self.add(f"transpose %{v} perm={listed(perm)}", [shape[i] for i in perm])

    def reshape(self, v, shape):
        left, out = math.prod(shape), []
        while left > 1 and len(out) < 4:
            divisors = [d for d in range(2, left + 1) if left % d == 0]
            out.append(self.random.choice(divisors[:4] + divisors[-1:]))
            left //= out[-1]
        out += [left] if left > 1 else []
        out += [1] if self.random.random() < 0.3 else []
        self.random.shuffle(out)
        self.add(f"reshape %{v} shape={listed(out)}", out)

    def slice(self, v, shape):
        starts, steps, out = [], [], []
        for d in shape:
            start, step = self.random.randint(0, d - 1), self.random.choice([1, 1, 1, 2])
            starts.append(start)
            steps.append(step)
            out.append(self.random.randint(1, (d - 1 - start) // step + 1))
        self.add(f"slice %{v} starts={listed(starts)} steps={listed(steps)} shape={listed(out)}", out)

    def broadcast(self, v, shape):
        out = [self.random.choice([d, d, 3]) if d == 1 else d for d in shape]
        if len(out) < 5 and self.random.random() < 0.4:
            out.insert(0, 2)
        if math.prod(out) < LARGEST:
            self.add(f"broadcast %{v} shape={listed(out)}", out)

    def unary(self, v, shape):
        kind = self.random.choice(["neg", "square", "abs", "scale", "offset", "tanh", "relu"])
        by = f" by={self.random.choice([1, -1, 2, 0.5])}" if kind in ("scale", "offset") else ""
        self.add(f"{kind} %{v}{by}", shape)

    def binary(self, v, shape):
        other = self.random.choice([w for w, t in self.values if t == shape])
        self.add(f"{self.random.choice(['add', 'sub', 'mul', 'max'])} %{v}, %{other}", shape)

    def with_fill(self, v, shape):
        fill = self.line(f"fill value={self.random.choice([0, 1, 2, -3])} shape={listed(shape)} to=f32")
        x, y = self.random.sample([v, fill], 2)
        self.add(f"{self.random.choice(['add', 'sub', 'mul'])} %{x}, %{y}", shape)

    def linear(self, v, shape):
        if not 1 <= len(shape) <= 4:
            return
        w = [shape[-1], self.random.randint(1, 6)]
        numbers = [self.random.randint(-3, 3) / 2 for _ in range(math.prod(w))]
        w_name = self.line(f"constant value={listed(numbers)} shape={listed(w)} to=f32")
        self.add(f"linear %{v}, %{w_name}", (*shape[:-1], w[1]))

    def bias(self, v, shape):
        b = self.vector(shape)
        other = self.line(f"broadcast %{b} shape={listed(shape)}") if shape else b
        x, y = self.random.sample([v, other], 2)
        self.add(f"add %{x}, %{y}", shape)

    def vector(self, shape):
        numbers = [self.random.randint(-3, 3) / 2 for _ in range(shape[-1] if shape else 1)]
        dims = [len(numbers)] if shape else []
        return self.line(f"constant value={listed(numbers)} shape={listed(dims)} to=f32")

    def norm(self, v, shape):
        if not shape or shape[-1] < 2:
            return
        g, b = self.vector(shape), self.vector(shape)
        self.add(f"layer_norm %{v}, %{g}, %{b} eps=0.1", shape)

    def reduce_sum(self, v, shape):
        axes = sorted(i for i in range(len(shape)) if self.random.random() < 0.5)
        keep = self.random.random() < 0.5
        out = [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
        if axes:
            self.add(f"reduce_sum %{v} axes={listed(axes)} keep={str(keep).lower()}", out)

    KINDS = [transpose, transpose, transpose, reshape, reshape, slice, broadcast, unary, binary, binary,
             with_fill, linear, reduce_sum, bias, norm]

    def text(self):
        results = ", ".join(f'output "{v}" %{v}' for v, _ in self.values[-3:])
        return "\n".join(["module phase=typed", "",
                          'graph @main entry (%x: f32[4,3,2,6] input "x", %y: f32[4,3,2,6] input "y",',
                          '                   %s: f32[1] weight "s" = 0.5) {', *self.lines,
                          f"  return {results}", "}", ""])


def main():
    first, count = ([int(a) for a in sys.argv[1:]] + [0, 200][len(sys.argv) - 1:])[:2]
    wrong = 0
    for seed in range(first, first + count):
        text = Graph(seed).text()
        with tempfile.NamedTemporaryFile("w", suffix=".nn") as file:
            file.write(text)
            file.flush()
            failed = False
            for passes, same_as, tolerance in SAME:
                run = subprocess.run([EVAL, file.name, f"--passes={passes}", f"--same-as={same_as}",
                                      f"--tolerance={tolerance}"], capture_output=True, text=True, timeout=60)
                if run.returncode:
                    failed = True
                    print(f"seed {seed}, {same_as}:\n{text}{run.stdout}{run.stderr}")
            wrong += failed
    print(f"{count - wrong} of {count} graphs mean the same")
    sys.exit(wrong > 0)


main()
