"""Gradients of loops, compared with central differences in f64.

For random directions the difference of the loss over the step is the product of the direction and the gradient, to 1e-7.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

BUILD = pathlib.Path(os.environ.get("BUILD", "build"))
CELL = """graph @cell (%s: f64[2,4], %x: f64[2,5], %v: f64[5,4], %u: f64[4,4]) {
  %a = linear %x, %v
  %b = linear %s, %u
  %c = add %a, %b
  %h = tanh %c
  %g = sigmoid %a
  %y = mul %g, %h
  %z = square %y
  %k = reduce_sum %z axes=[0]
  return %h, %y, %k
}
"""
WEIGHTS = {"h": (2, 4), "x": (3, 2, 5), "v": (5, 4), "u": (4, 4)}
LOSS = """  %p = reduce_sum %s axes=[0,1]
  %q = mul %y, %y
  %r = reduce_sum %q axes=[0,1,2]
  %k = reduce_sum %n axes=[0]
  %l = add %p, %r
  %m = mul %l, %k
"""
# The weights, the ops up to the loss %m, and the bodies.
LOOPS = {
    "a state, slices and a sum": (WEIGHTS, "  %s, %y, %n = loop @cell %h, %x, %v, %u count=3 carried=1 sliced=1 summed=1\n" + LOSS,
                                  CELL),
    "backwards": (WEIGHTS, "  %s, %y, %n = loop @cell %h, %x, %v, %u count=3 carried=1 sliced=1 summed=1 reverse=true\n" + LOSS,
                  CELL),
    "only the last state is read": (WEIGHTS, "  %s, %y, %n = loop @cell %h, %x, %v, %u count=3 carried=1 sliced=1 summed=1\n"
                                    "  %m = reduce_sum %s axes=[0,1]\n", CELL),
    "states that change places": (
        {"a": (3,), "b": (3,), "c": (3,)},
        "  %s, %t, %y = loop @turn %a, %b, %c count=5 carried=2\n  %q = mul %y, %y\n  %i = reduce_sum %q axes=[0,1]\n"
        "  %j = reduce_sum %t axes=[0]\n  %m = mul %i, %j\n",
        "graph @turn (%a: f64[3], %b: f64[3], %c: f64[3]) {\n  %d = mul %a, %c\n  %e = sin %d\n  return %b, %e, %a\n}\n"),
    "a loop in a loop": (
        {"a": (2, 3), "b": (), "w": (3, 3), "k": (4,)},
        "  %s, %t = loop @outer %a, %b, %w, %k count=3 carried=2\n  %i = reduce_sum %s axes=[0,1]\n  %m = mul %i, %t\n",
        "graph @outer (%a: f64[2,3], %b: f64[], %w: f64[3,3], %k: f64[4]) {\n"
        "  %i, %y = loop @inner %a, %k, %w count=4 carried=1 sliced=1\n  %z = reduce_sum %y axes=[0,1,2]\n  %r = add %b, %z\n"
        "  return %i, %r\n}\n\n"
        "graph @inner (%a: f64[2,3], %k: f64[], %w: f64[3,3]) {\n  %b = linear %a, %w\n  %c = broadcast %k shape=[2,3]\n"
        "  %d = mul %b, %c\n  %e = tanh %d\n  return %e, %d\n}\n"),
    "fewer iterations than slices": (
        {"h": (2, 4), "x": (3, 2, 5), "v": (5, 4), "u": (4, 4)},
        "  %two = fill value=2 to=i64\n  %s, %y, %n = loop @cell %h, %x, %v, %u, %two count=3 carried=1 sliced=1 summed=1 times=5\n"
        + LOSS, CELL.replace("%u: f64[4,4])", "%u: f64[4,4], %times: i64[])")),
    "fewer iterations, backwards": (
        {"h": (2, 4), "x": (3, 2, 5), "v": (5, 4), "u": (4, 4)},
        "  %two = fill value=2 to=i64\n  %s, %y, %n = loop @cell %h, %x, %v, %u, %two count=3 carried=1 sliced=1 summed=1 times=5 "
        "reverse=true\n" + LOSS, CELL.replace("%u: f64[4,4])", "%u: f64[4,4], %times: i64[])")),
    "no iteration": (
        {"a": (3,), "b": (3,)}, "  %none = fill value=-1 to=i64\n  %s = loop @one %a, %b, %none count=1 carried=1 times=3\n"
        "  %q = mul %s, %s\n  %m = reduce_sum %q axes=[0]\n",
        "graph @one (%a: f64[3], %b: f64[3], %n: i64[]) {\n  %c = mul %a, %b\n  return %c\n}\n"),
    "a state that stays after the end": (
        {"a": (3,), "w": (3,)},
        "  %z = fill value=1 to=bool\n  %s, %b = loop @until %a, %z, %w count=6 carried=2\n  %q = mul %s, %s\n"
        "  %m = reduce_sum %q axes=[0]\n",
        "graph @until (%a: f64[3], %b: bool[], %w: f64[3]) {\n  %c = mul %a, %w\n  %d = sin %c\n  %e = add %a, %d\n"
        "  %f = mul %e, %e\n  %g = reduce_sum %f axes=[0]\n  %h = fill value=3 to=f64\n  %i = less %g, %h\n"
        "  %j = broadcast %b shape=[3]\n  %k = where %j, %e, %a\n  %l = and %b, %i\n  return %k, %l\n}\n"),
    "a state of integers": (
        {"a": (3,), "t": (6, 3)},
        "  %z = fill value=2 to=i64\n  %s, %n = loop @walk %a, %z, %t count=4 carried=2\n  %q = mul %s, %s\n"
        "  %m = reduce_sum %q axes=[0]\n",
        "graph @walk (%a: f64[3], %n: i64[], %t: f64[6,3]) {\n  %r = gather %t, %n\n  %b = mul %a, %r\n  %c = add %b, %r\n"
        "  %k = offset %n by=1\n  return %c, %k\n}\n"),
}


def text(weights, ops, bodies):
    params = "".join(f',\n  %{n}: f64[{",".join(map(str, s))}] weight "{n}" train = 0' for n, s in weights.items())
    return f'module phase=typed\n\ngraph @main entry (\n  %in: f64[1] input "in" whole{params}\n) {{\n{ops}' \
           f'  return output "loss" %m\n}}\n\n{bodies}'


class Model:
    def __init__(self, folder, source, weights):
        self.folder, self.source, self.weights = folder, source, weights

    def evaluate(self, values, outputs, passes):
        command = [BUILD / "bin" / "nnaot-eval", self.source, f"--passes={passes}"]
        for name, value in values.items():
            np.save(self.folder / f"{name}.npy", value)
            command.append(f"--input={name}={self.folder / name}.npy")
        command += [f"--output={o}={self.folder / f'out{i}'}.npy" for i, o in enumerate(outputs)]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{done.stderr}\n{self.source.read_text()}")
        return [np.load(self.folder / f"out{i}.npy") for i in range(len(outputs))]


def check(folder, name, weights, ops, bodies, random):
    source = folder / "loop.nn"
    source.write_text(text(weights, ops, bodies))
    model = Model(folder, source, weights)
    at = {n: 0.7 * random.standard_normal(s) for n, s in weights.items()}
    worst = 0
    for passes in ("autodiff", "simplify,autodiff,simplify"):
        gradients = dict(zip(weights, model.evaluate(at, [f"grad:{n}" for n in weights], passes)))
        for n, shape in weights.items():
            way = random.standard_normal(shape)
            ends = [model.evaluate({**at, n: at[n] + sign * 1e-5 * way}, ["loss"], "simplify")[0] for sign in (1, -1)]
            want = (ends[0] - ends[1]) / 2e-5
            size = np.linalg.norm(way) * np.linalg.norm(gradients[n])
            distance = abs((gradients[n] * way).sum() - want) / max(size, 1e-9)
            worst = max(worst, distance)
            if not distance < 1e-7:
                print(f"{name}: the gradient of '{n}' differs by {distance:.1e}")
    print(f"{name}: {worst:.1e}")
    return worst < 1e-7


def main():
    random = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        ok = [check(pathlib.Path(folder), name, *loop, random) for name, loop in LOOPS.items()]
    sys.exit(not all(ok))


if __name__ == "__main__":
    main()
