"""Random programs of ops that move, repeat, or read positions of elements, rewritten at random, rightly and wrongly: the proof
accepts only those that compute the same numbers.

    random_views.py [FIRST [COUNT]]      seeds FIRST .. FIRST+COUNT-1; the programs of a failure are printed

A program is a chain of small ops on one input: fills, broadcasts, reshapes, slices, concats, transposes, pads, casts, sums along
an axis, and elementwise ops.  A rewrite cuts an op into pieces and joins them in some order, puts a reshape or a cast before an
op, lets it read another value of the same type, or repeats a smaller value.  Half of the rewrites keep the meaning by
construction, as long as no other follows; numbers decide.  FOUND has programs that were once proved and are wrong.
"""

import copy
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ.get("BUILD", "build"), "bin")
TRIES = 24  # rewritten programs of each model
# Model and program.
FOUND = [
    ("""module "reshape" phase=typed
graph @main entry (%x: f32[4,6] input "x") {
  %s = slice %x starts=[0,0] steps=[1,1] shape=[2,4]
  %y = relu %s
  return output "y" %y
}
""", """module "reshape" phase=typed
graph @main entry (%x: f32[4,6] input "x") {
  %r = reshape %x shape=[6,4]
  %s = slice %r starts=[0,0] steps=[1,1] shape=[2,4]
  %y = relu %s
  return output "y" %y
}
"""),
    ("""module "cumsum" phase=typed
graph @main entry (%x: f32[2,4] input "x") {
  %f = fill value=1 shape=[2,4] to=f32
  %c = cumsum %f axis=1
  %y = mul %x, %c
  return output "y" %y
}
""", """module "cumsum" phase=typed
graph @main entry (%x: f32[2,4] input "x") {
  %f = fill value=1 shape=[1,2] to=f32
  %g = concat %f, %f axis=1
  %c = cumsum %g axis=1
  %l = slice %c starts=[0,0] steps=[1,1] shape=[1,2]
  %h = slice %c starts=[0,2] steps=[1,1] shape=[1,2]
  %e = concat %h, %l axis=1
  %d = concat %e, %e axis=0
  %y = mul %x, %d
  return output "y" %y
}
"""),
    ("""module "period" phase=typed
graph @main entry (%x: f32[1,3] input "x") {
  %b = broadcast %x shape=[4,3]
  %r = reshape %b shape=[12]
  %y = relu %r
  return output "y" %y
}
""", """module "period" phase=typed
graph @main entry (%x: f32[1,3] input "x") {
  %b = broadcast %x shape=[2,3]
  %r = reshape %b shape=[6]
  %s = slice %r starts=[1] steps=[1] shape=[3]
  %c = concat %s, %s, %s, %s axis=0
  %y = relu %c
  return output "y" %y
}
"""),
    ("""module "pad" phase=typed
graph @main entry (%x: i64[4] input "x") {
  %p = pad %x low=[1] shape=[6] mode="constant" value=0.5
  %c = cast %p to=f32
  return output "y" %c
}
""", """module "pad" phase=typed
graph @main entry (%x: i64[4] input "x") {
  %c = cast %x to=f32
  %p = pad %c low=[1] shape=[6] mode="constant" value=0.5
  return output "y" %p
}
"""),
    ("""module "bucket" phase=typed
graph @main entry (%x: f32[4,16] input "x", %w: f32[16,16] input "w") {
  %y = linear %x, %w
  %z = neg %y
  return output "y" %z
}
""", """module "bucket" phase=local
mesh @m devices=0-1 (tp=2)
graph @main entry (%x: f32[4,8] {S(1)} input "x", %w: f32[8,16] {S(0)} input "w") {
  %y = linear %x, %w : f32[4,16] {P} split=[k]
  %b = pack %y : f32[64] {P}
  %r0 = all_reduce %b axis="tp" : f32[64] {B}
  %r = cast %r0 to=i64 : i64[64] {B}
  %d = cast %r to=f32 : f32[64] {B}
  %u = unpack %d offset=0 shape=[4,16] : f32[4,16] {B}
  %z = neg %u : f32[4,16] {B}
  return output "y" %z
}
"""),
]


def run(program, *args):
    return subprocess.run([BIN / program, *map(str, args)], capture_output=True, text=True, errors="replace", timeout=120)


# -- Programs ----------------------------------------------------------------------------------------------------------


class Op:
    def __init__(self, kind, operands, attrs, dtype, shape):
        self.kind, self.operands, self.attrs, self.dtype, self.shape = kind, operands, attrs, dtype, tuple(shape)


def numbers(n):
    return "[" + ",".join(map(str, n)) + "]"


class Program:
    """Ops by name, in order; %x is the input."""

    def __init__(self, dtype, shape):
        self.ops, self.result, self.n = {"x": Op("input", [], {}, dtype, shape)}, "x", 0

    def add(self, kind, operands, attrs, dtype, shape, before=None):
        name = f"v{self.n}"
        self.n += 1
        self.ops[name] = Op(kind, list(operands), dict(attrs), dtype, shape)
        if before:
            later = list(self.ops)[list(self.ops).index(before):-1]
            for k in later:
                self.ops[k] = self.ops.pop(k)
        return name

    def slice(self, v, starts, shape, before=None):
        op = self.ops[v]
        return self.add("slice", [v], {"starts": list(starts), "steps": [1] * len(shape), "shape": list(shape)}, op.dtype, shape,
                        before)

    def text(self):
        live, work = set(), [self.result]
        while work:
            v = work.pop()
            if v not in live:
                live.add(v)
                work += self.ops[v].operands
        x = self.ops["x"]
        lines = ['module "m" phase=typed', f'graph @main entry (%x: {x.dtype}{numbers(x.shape)} input "x") {{']
        for name, op in self.ops.items():
            if name in live and name != "x":
                attrs = "".join(f" {k}={numbers(v) if isinstance(v, list) else v}" for k, v in op.attrs.items())
                lines.append(f"  %{name} = {op.kind} {', '.join('%' + v for v in op.operands)}{attrs}")
        return "\n".join(lines + [f'  return output "y" %{self.result}', "}", ""])


def factors(r, n):
    """A shape of n elements."""
    shape = []
    while n > 1 and len(shape) < 2:
        d = r.choice([k for k in range(1, n + 1) if n % k == 0])
        shape.append(d)
        n //= d
    return tuple(shape + [n]) if n > 1 or not shape else tuple(shape)


def grow(p, r):
    """Appends an op that reads a value."""
    v = r.choice(list(p.ops)[-2:])
    op = p.ops[v]
    shape, dtype, ndim = op.shape, op.dtype, len(op.shape)
    kind = r.choice(["relu", "neg", "reshape", "reshape", "slice", "slice", "broadcast", "cumsum", "trilu", "transpose", "pad",
                     "cast", "concat", "fill", "reduce_sum", "softmax", "mul"])
    axis = r.randrange(ndim)
    if kind in ("relu", "neg"):
        return p.add(kind, [v], {}, dtype, shape)
    if kind == "reshape":
        to = factors(r, math.prod(shape))
        return p.add("reshape", [v], {"shape": list(to)}, dtype, to)
    if kind == "slice":
        to = [r.randint(1, n) for n in shape]
        return p.slice(v, [r.randint(0, n - m) for n, m in zip(shape, to)], to)
    if kind == "broadcast":
        if 1 in shape:
            to = [r.randint(2, 4) if n == 1 else n for n in shape]
            return p.add("broadcast", [v], {"shape": to}, dtype, to)
        one = p.slice(v, [r.randrange(n) if i == axis else 0 for i, n in enumerate(shape)],
                      [1 if i == axis else n for i, n in enumerate(shape)])
        return p.add("broadcast", [one], {"shape": list(shape)}, dtype, shape)
    if kind == "cumsum" and dtype != "f16":
        return p.add("cumsum", [v], {"axis": axis}, dtype, shape)
    if kind == "trilu" and ndim >= 2:
        return p.add("trilu", [v], {"upper": r.choice(["true", "false"]), "k": 0}, dtype, shape)
    if kind == "transpose":
        perm = r.sample(range(ndim), ndim)
        return p.add("transpose", [v], {"perm": perm}, dtype, [shape[i] for i in perm])
    if kind == "pad" and dtype != "f16":
        low, high = [r.randrange(2) for _ in shape], [r.randrange(2) for _ in shape]
        to = [a + n + b for a, n, b in zip(low, shape, high)]
        return p.add("pad", [v], {"low": low, "shape": to, "mode": '"constant"', "value": r.choice([0, 0.5])}, dtype, to)
    if kind == "cast":
        to = r.choice([t for t in ("f32", "f16", "i64") if t != dtype])
        return p.add("cast", [v], {"to": to}, to, shape)
    if kind == "concat":
        return p.add("concat", [v, v], {"axis": axis}, dtype, [2 * n if i == axis else n for i, n in enumerate(shape)])
    if kind == "fill":
        f = p.add("fill", [], {"value": r.choice([1, 2]), "shape": list(shape), "to": dtype}, dtype, shape)
        return p.add("mul", [v, f], {}, dtype, shape)
    if kind == "reduce_sum" and dtype == "f32" and ndim > 1:
        return p.add("reduce_sum", [v], {"axes": [axis]}, dtype, [n for i, n in enumerate(shape) if i != axis])
    if kind == "softmax" and dtype == "f32":
        return p.add("softmax", [v], {}, dtype, shape)
    others = [u for u, o in p.ops.items() if o.shape == shape and o.dtype == dtype]
    return p.add("mul", [v, r.choice(others)], {}, dtype, shape)


def model(r):
    p = Program(r.choice(["f32", "f32", "f32", "i64"]), [r.choice([1, 2, 3, 4]), r.choice([2, 3, 4, 6])])
    for _ in range(r.randint(2, 5)):
        p.result = grow(p, r)
    # A position of the result matters.
    if r.random() < 0.7:
        p.result = grow(p, r)
    return p


def sizes_of(shape):
    return [i for i, n in enumerate(shape) if n > 1]


def rewrite(p, r):
    """Changes an op; rightly or wrongly."""
    names = [v for v in p.ops if v != "x" and p.ops[v].operands]
    if not names:
        return
    v = r.choice(names)
    op = p.ops[v]
    how = r.choice(["cut", "cut", "cut", "reshape", "operand", "repeat", "cast", "join", "roundtrip"])
    read = r.randrange(len(op.operands))
    of = p.ops[op.operands[read]]
    if how == "cut" and op.kind in ("relu", "neg", "mul", "cast", "cumsum", "trilu", "softmax", "reduce_sum", "transpose", "pad"):
        # The op on two parts of its operands along one axis, joined.
        axes = sizes_of(of.shape)
        if not axes:
            return
        axis = r.choice(axes)
        n = of.shape[axis]
        at = r.randint(1, n - 1)
        parts = [(0, at), (at, n - at)]
        if r.random() < 0.25:
            parts[1] = (r.randint(0, n - 1 - (n - at) + 1), n - at)
        if r.random() < 0.25:
            parts.reverse()
        halves = []
        for start, length in parts:
            pieces = []
            for u in op.operands:
                shape = list(p.ops[u].shape)
                shape[axis] = length
                pieces.append(p.slice(u, [start if i == axis else 0 for i in range(len(shape))], shape, before=v))
            shape, to, attrs = list(p.ops[pieces[0]].shape), axis, dict(op.attrs)
            if op.kind == "reduce_sum":
                if axis in op.attrs["axes"]:
                    return
                to = axis - (op.attrs["axes"][0] < axis)
                shape = [s for i, s in enumerate(shape) if i not in op.attrs["axes"]]
            elif op.kind == "transpose":
                to = op.attrs["perm"].index(axis)
                shape = [shape[i] for i in op.attrs["perm"]]
            elif op.kind == "pad":
                shape = [a if i != axis else length for i, a in enumerate(op.shape)]
                attrs["low"] = [0 if i == axis else a for i, a in enumerate(op.attrs["low"])]
                attrs["shape"] = shape
            halves.append(p.add(op.kind, pieces, attrs, op.dtype, shape, before=v))
        if r.random() < 0.2:
            halves.reverse()
        p.ops[v] = Op("concat", halves, {"axis": to}, op.dtype, op.shape)
    elif how == "reshape":
        # The operand in another shape of as many elements: of the same shape in the end, or not.
        to = r.choice([factors(r, math.prod(of.shape)), of.shape[::-1]])
        w = p.add("reshape", [op.operands[read]], {"shape": list(to)}, of.dtype, to, before=v)
        if op.kind != "slice" or len(to) != len(of.shape) or any(
                a + b > n for a, b, n in zip(op.attrs["starts"], op.attrs["shape"], to)):
            w = p.add("reshape", [w], {"shape": list(of.shape)}, of.dtype, of.shape, before=v)
        op.operands[read] = w
    elif how == "operand":
        like = [u for u in list(p.ops)[:list(p.ops).index(v)] if p.ops[u].shape == of.shape and p.ops[u].dtype == of.dtype]
        op.operands[read] = r.choice(like)
    elif how == "repeat":
        # A value made of copies of a part of it.
        axes = [i for i in sizes_of(of.shape) if of.shape[i] % 2 == 0]
        if not axes:
            return
        axis = r.choice(axes)
        half = [n // 2 if i == axis else n for i, n in enumerate(of.shape)]
        start = r.choice([0, of.shape[axis] // 2, 1 if half[axis] + 1 <= of.shape[axis] else 0])
        w = p.slice(op.operands[read], [start if i == axis else 0 for i in range(len(half))], half, before=v)
        op.operands[read] = p.add("concat", [w, w], {"axis": axis}, of.dtype, of.shape, before=v)
    elif how == "cast" and op.kind in ("relu", "neg", "slice", "reshape", "transpose", "pad", "trilu", "concat", "broadcast"):
        # Cast, the op, cast back.
        to = r.choice([t for t in ("f32", "f16", "i64") if t != op.dtype])
        op.operands = [p.add("cast", [u], {"to": to}, to, p.ops[u].shape, before=v) for u in op.operands]
        w = p.add(op.kind, op.operands, op.attrs, to, op.shape, before=v)
        p.ops[v] = Op("cast", [w], {"to": op.dtype}, op.dtype, op.shape)
    elif how == "join" and op.kind == "concat":
        r.shuffle(op.operands)
        if sum(p.ops[u].shape[op.attrs["axis"]] for u in op.operands) != op.shape[op.attrs["axis"]]:
            return
    elif how == "roundtrip":
        # An op before a mover of elements in place of after it.
        if op.kind in ("slice", "reshape", "transpose", "broadcast") and of.kind in ("relu", "neg", "cast") and of.operands:
            inner = p.add(op.kind, of.operands, op.attrs, p.ops[of.operands[0]].dtype, op.shape, before=v)
            p.ops[v] = Op(of.kind, [inner], of.attrs, of.dtype, op.shape)


# -- The test ----------------------------------------------------------------------------------------------------------


class Test:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.counts = dict(models=0, illegal=0, refused=0, proved=0, failed=0)

    def result(self, path):
        """The bytes of the output, for random inputs; None if the program cannot be computed."""
        out = self.folder / "y.npy"
        done = run("nnaot-eval", path, "--seed=3", "--output", f"y={out}")
        return out.read_bytes() if done.returncode == 0 else None

    def fail(self, what, texts):
        self.counts["failed"] += 1
        print(what, *texts, sep="\n", flush=True)

    def proved(self, model, program):
        """Whether the proof accepts the program; None if it is not legal, or ended otherwise."""
        is_legal = run("nnaot-opt", program, "--passes=", "-o", self.folder / "out.nn")
        if is_legal.returncode:
            return None
        done = run("nnaot-opt", program, "--passes=", f"--prove={model}", "-o", self.folder / "out.nn")
        if done.returncode not in (0, 1):
            self.fail(f"exit status {done.returncode}: {done.stderr[:2000]}", [model.read_text(), program.read_text()])
            return None
        return done.returncode == 0

    def compare(self, what, model, program):
        is_proved = self.proved(model, program)
        self.counts["illegal" if is_proved is None else "proved" if is_proved else "refused"] += 1
        if not is_proved:
            return
        is_right = self.result(model)
        if is_right is not None and is_right != self.result(program):
            self.fail(f"{what}: proved, and computes something else", [model.read_text(), program.read_text()])

    def found(self):
        model, program = self.folder / "model.nn", self.folder / "program.nn"
        for is_model, is_program in FOUND:
            model.write_text(is_model)
            program.write_text(is_program)
            if self.proved(model, program) is not False:
                self.fail("not refused, or not legal", [is_model, is_program])

    def seed(self, seed):
        r = random.Random(seed)
        p = model(r)
        at, program = self.folder / "model.nn", self.folder / "program.nn"
        at.write_text(p.text())
        if self.proved(at, at) is not True:
            return self.fail(f"seed {seed}: a program is not proved to be itself", [p.text()])
        self.counts["models"] += 1
        for _ in range(TRIES):
            q = copy.deepcopy(p)
            for _ in range(r.randint(1, 4)):
                rewrite(q, r)
            program.write_text(q.text())
            self.compare(f"seed {seed}", at, program)


def main():
    first, count = (int(a) for a in (sys.argv[1:] + ["0", "40"][len(sys.argv) - 1:]))
    with tempfile.TemporaryDirectory(prefix="nnaot-test-") as folder:
        test = Test(folder)
        test.found()
        for seed in range(first, first + count):
            test.seed(seed)
        print(", ".join(f"{n} {what}" for what, n in test.counts.items()))
        # Rewrites are of both kinds, so that neither the proof nor this test is idle.
        if count >= 20 and not (test.counts["proved"] > count and test.counts["refused"] > count):
            test.fail("few programs were proved or refused", [])
        sys.exit(test.counts["failed"] > 0)


main()
