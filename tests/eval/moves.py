"""Moves between all layouts of small tensors, on the same and on other devices, compared with the definition.

    BUILD=build python tests/eval/moves.py          every 23rd move
    BUILD=build python tests/eval/moves.py --all    all moves: some minutes

Exit status 77, which ctest takes as skipped, without numpy.

For every pair of meshes the test writes modules with one chain of ops per result:

    %s = reduce_sum %x axes=[0] : ...            a tensor in the first layout; P if dimension 0 of x is split
    %m = move %s shape=[...]    : ... @to {...}  in the second
    %r = all_reduce %m axis="a" : ...            for each P of the second; accumulate along time

The result must equal the sum of x over its first dimension.  The numbers are small integers, so sums are exact.
"""
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("BUILD", ROOT / "build")) / "bin" / "nnaot-eval"
STRIDE, PER_MODULE = 23, 300

# Devices and axes of the source meshes (FROM) and of the target meshes of moves.
FROM = [
    ("0-1", {"a": 2}),
    ("2,0,1", {"a": 3}),
    ("0-3", {"a": 4}),
    ("0-3", {"a": 2, "b": 2}),
    ("3,1,0,2", {"a": 2, "b": 2}),
    ("0-3", {"t": 2, "a": 4}),
]
TO = [
    ("0-1", {"a": 2}),
    ("4-5", {"a": 2}),
    ("1-3", {"a": 3}),
    ("2-5", {"a": 4}),
    ("0-3", {"a": 2, "b": 2}),
    ("0-5", {"a": 3, "b": 2}),
    ("8-15", {"a": 8}),
    ("0-7", {"a": 2, "b": 4}),
    ("7,6,5,4,3,2,1,0", {"a": 2, "b": 2, "c": 2}),
    ("1-4", {"t": 2, "a": 2, "b": 2}),
]
SHAPES = [(24,), (8, 12), (4, 6, 8)]


def layouts(mesh, shape):
    """Returns all layouts that divide the shape, as lists of "B", "P" and dimensions."""
    for l in itertools.product(["B", "P", *range(len(shape))], repeat=len(mesh)):
        if local(mesh, l, shape):
            yield l


def local(mesh, layout, shape):
    """Returns the shape of a shard, or None."""
    part = list(shape)
    for size, how in zip(mesh.values(), layout):
        if isinstance(how, int):
            if part[how] % size:
                return None
            part[how] //= size
    return part


def along_time(mesh, layout):
    return dict(zip(mesh, layout)).get("t", "B")


def type_text(mesh, name, layout, shape):
    words = [f"S({how})" if isinstance(how, int) else how for how in layout]
    return "f32[%s] %s{%s}" % (",".join(map(str, local(mesh, layout, shape))), name, ", ".join(words))


class Module:
    def __init__(self, begins, ends):
        self.begins, self.ends = begins, ends
        self.params, self.ops, self.inputs, self.expected = {}, [], {}, {}

    def source(self, layout, shape):
        """Returns a value on the first mesh with this layout."""
        key = (layout, shape)
        if key in self.params:
            return self.params[key][0]
        mesh = self.begins[1]
        shares = int(numpy.prod([size for size, how in zip(mesh.values(), layout) if how == "P"], dtype=int))
        x_shape = (2 * shares, *shape)
        x_layout = [0 if how == "P" else how + 1 if isinstance(how, int) else how for how in layout]
        i = len(self.params)
        self.params[key] = f"s{i}", f'%x{i}: {type_text(mesh, "", x_layout, x_shape)} input "x{i}"'
        split = ",".join("-" if how == "B" else "abcd"[how] for how in x_layout)
        self.ops.append(f'%s{i} = reduce_sum %x{i} axes=[0] : {type_text(mesh, "", layout, shape)} split=[{split}]')
        self.inputs[f"x{i}"] = x_shape
        return f"s{i}"

    def move(self, before, after, shape):
        mesh, k = self.ends[1], len(self.expected)
        shape_text = ",".join(map(str, local(mesh, after, shape)))
        value, layout = f"m{k}", list(after)
        self.ops.append(f"%{value} = move %{self.source(before, shape)} shape=[{shape_text}]"
                        f' : {type_text(mesh, "@to ", layout, shape)}')
        for i, axis in enumerate(mesh):
            if layout[i] != "P":
                continue
            layout[i] = "B"
            kind = "accumulate" if axis == "t" else "all_reduce"
            self.ops.append(f'%{value}{axis} = {kind} %{value} axis="{axis}"'
                            f' : {type_text(mesh, "@to ", layout, shape)}')
            value += axis
        self.expected[value] = (before, after, shape, self.inputs["x" + self.source(before, shape)[1:]])

    def text(self):
        def mesh(name, devices, axes):
            return "mesh @%s devices=%s (%s)\n" % (
                name, devices, ", ".join(f"{a}={n}{':time' if a == 't' else ''}" for a, n in axes.items()))

        returned = ", ".join(f'output "{v}" %{v}' for v in self.expected)
        return ("module phase=local\n" + mesh("from", *self.begins) + mesh("to", *self.ends) +
                "graph @main entry (\n  " + ",\n  ".join(p for _, p in self.params.values()) + "\n) {\n  " +
                "\n  ".join(self.ops) + f"\n  return {returned}\n}}\n")

    def run(self, folder):
        """Returns the number of wrong results."""
        (folder / "moves.nn").write_text(self.text())
        arguments = [PROGRAM, folder / "moves.nn"]
        files = {}
        for name, shape in self.inputs.items():
            if shape not in files:
                files[shape] = folder / f"x{len(files)}.npy"
                numbers = numpy.random.default_rng(len(files)).integers(-99, 100, shape)
                numpy.save(files[shape], numbers.astype(numpy.float32))
            arguments += ["--input", f"{name}={files[shape]}"]
        for name in self.expected:
            arguments += ["--output", f"{name}={folder / name}.npy"]
        done = subprocess.run(arguments, capture_output=True, text=True)
        if done.returncode:
            print(self.text() + done.stderr)
            return len(self.expected)
        wrong = 0
        for name, (before, after, shape, x_shape) in self.expected.items():
            want = numpy.load(files[x_shape]).sum(0)
            if not numpy.array_equal(numpy.load(folder / f"{name}.npy"), want):
                print(f"wrong: {shape} {self.begins} {before} -> {self.ends} {after}")
                wrong += 1
        return wrong


def moves(begins, ends):
    for shape in SHAPES:
        for before in layouts(begins[1], shape):
            for after in layouts(ends[1], shape):
                if along_time(begins[1], before) == along_time(ends[1], after):
                    yield before, after, shape


def main():
    stride = 1 if sys.argv[1:] == ["--all"] else STRIDE
    seen = moved = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for begins, ends in itertools.product(FROM, TO):
            module = Module(begins, ends)
            for move in moves(begins, ends):
                seen += 1
                if seen % stride:
                    continue
                module.move(*move)
                moved += 1
                if len(module.expected) == PER_MODULE:
                    wrong += module.run(pathlib.Path(folder))
                    module = Module(begins, ends)
            if module.expected:
                wrong += module.run(pathlib.Path(folder))
    print(f"{moved} of {seen} moves, {wrong} wrong")
    return wrong != 0 or moved == 0


sys.exit(main())
