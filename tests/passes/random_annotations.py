"""A program with any annotations computes the same results, or is refused with an error.

    random_annotations.py [FIRST [COUNT]]      seeds FIRST .. FIRST+COUNT-1; failures are printed

Random annotations of shard/inputs/annotated.nn: axes of any size, stages, values of other nodes or of none,
dimensions that do not exist or cannot be split, nodes without ops.
"""

import os
import pathlib
import random
import subprocess
import sys

EVAL = os.path.join(os.environ.get("BUILD", "build"), "bin", "nnaot-eval")
MODEL = pathlib.Path(__file__).parent / "shard/inputs/annotated.nn"
GRAPH = MODEL.read_text().split("\n\n", 1)[1]
VALUES = ["x", "w", "b", "v", "t", "h", "r", "y", "z", "u", "gone"]
NODES = ["/fc1", "/fc2", "/neg", "/act", "/add", "/none"]


class Program:
    def __init__(self, seed):
        self.random = r = random.Random(seed)
        self.axes = [("d0", r.choice([2, 3, 4])), ("d1", r.choice([2, 4]))][:r.choice([1, 2])]
        self.stages = r.random() < 0.3
        if self.stages:
            self.axes.insert(r.randrange(len(self.axes) + 1), ("pp", 2))
        head = ["module \"m.onnx\" phase=typed",
                f"annotations \"a\" ({', '.join(f'{name}={n}' for name, n in self.axes)})"
                + (" stages=pp" if self.stages else "")]
        head += [self.node(name) for name in r.sample(NODES, r.randint(1, 5))]
        self.text = "\n".join(head) + "\n\n" + GRAPH
        mesh = "+".join(f"{name}:{n}" for name, n in self.axes)
        plan = ",".join([r.choice(["onnx", "onnx", "onnx_search"])] * len(self.axes))
        self.passes = f"shard(mesh={mesh} plan=\"{plan}\"),comm"

    def value(self, name):
        lies = ["B" if axis == "pp" or self.random.random() < 0.5 else f"S({self.random.choice([0, 1, 1, 2])})"
                for axis, _ in self.axes]
        return f"%{name} {{{', '.join(lies)}}}"

    def node(self, name):
        r, line = self.random, f"node \"{name}\""
        if self.stages and r.random() < 0.8:
            line += f" stage={r.randrange(2)}"
        for what, most in ("in", 3), ("out", 2):
            values = r.sample(VALUES, r.randint(0, most))
            line += f" {what} {', '.join(map(self.value, values))}" if values else ""
        return line


def main(first=0, count=60):
    failed, equal = 0, 0
    for seed in range(first, first + count):
        p = Program(seed)
        done = subprocess.run([EVAL, "-", f"--same-as={p.passes}"], input=p.text, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0 and "results are equal" in done.stdout:
            equal += 1
        elif done.returncode != 1 or "error: " not in done.stdout:
            print(f"seed {seed}, exit status {done.returncode}, {p.passes}\n{p.text}\n{done.stdout[-2000:]}")
            failed += 1
    print(f"{count} annotations: {equal} followed, {count - equal - failed} refused, {failed} wrong")
    # Both outcomes must occur, or the test is useless.
    return failed > 0 or not equal or (count >= 60 and equal == count)


sys.exit(main(*map(int, sys.argv[1:])))
