"""Models that read and write by index, select, and draw random numbers train to the same losses on one rank, on two, and in
micro-batches; and integers of every type are compared, summed and moved as numbers of 64 bits are.

    graph     messages along the edges of graphs of N nodes: gathered at their sources, summed at their targets
    tuples    rows put into places by ScatterND
    reduced   the largest, the least and the product of messages at each target
    router    each row goes to the best K of E experts, weighted by a softmax of their scores
    draws     the code of a variational autoencoder, with a random mask, and products along its rows
    sampled   classes drawn from the softmax of scores
"""

import pathlib

import onnx_bytes
from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, worst_difference, write_npy
from onnx_bytes import field, node, tensor, value_info

ROWS, N, E, F, K, EXPERTS, INT64 = 16, 6, 10, 4, 2, 4, 7
CUTS = [["-g", 2, "--plan", "dp"], ["--micro-batches", 2], ["-g", 2, "--plan", "dp", "--micro-batches", 2],
        ["-g", 2, "--plan", "tp"], ["-g", 2, "--plan", "zero3"], ["-g", 2, "--plan", "auto"]]
TYPES = {"u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "u32": 12, "u64": 13}


def spread(n, by, of):
    return [0.1 * (i * by % of - of // 2) for i in range(n)]


def graph_of(nodes, constants, inputs, outputs, opset=17):
    return onnx_bytes.model(
        b"".join(field(1, node(op, ins.split(), outs.split(), f"/{i}/{op}", **attributes))
                 for i, (op, ins, outs, attributes) in enumerate(nodes))
        + field(2, "g") + b"".join(field(5, tensor(*c)) for c in constants)
        + b"".join(field(11, value_info(*i)) for i in inputs) + b"".join(field(12, value_info(*o)) for o in outputs), opset)


def weights():
    return [("w", [F, F], spread(F * F, 7, 31)), ("v", [F, 2], spread(F * 2, 5, 9))]


def message_passing(reductions):
    """Edge e of a graph takes a message from node src[e] to node dst[e]."""
    nodes = [("Expand", "src wide", "from", {}), ("Expand", "dst wide", "to", {}), ("MatMul", "x w", "h", {}),
             ("GatherElements", "h from", "messages", dict(axis=1))]
    last = "h"
    for i, reduction in enumerate(reductions):
        nodes += [("ScatterElements", f"{last} to messages", f"s{i}", dict(axis=1, reduction=reduction)),
                  ("Tanh", f"s{i}", f"t{i}", {})]
        last = f"t{i}"
    nodes += [("ReduceMean", last, "mean", dict(axes=[1], keepdims=0)), ("MatMul", "mean v", "y", {})]
    return graph_of(nodes, weights() + [("wide", [3], [1, 1, F], INT64)],
                    [("x", ["n", N, F]), ("src", ["n", E, 1], INT64), ("dst", ["n", E, 1], INT64)], [("y", ["n", 2])], 16)


def tuples():
    """Rows of x into places of a table for each sample, as y[arange(n), place] = x."""
    places = [i for r in range(4) for p in (3, 1) for i in (r, p)]
    nodes = [("MatMul", "x w", "h", {}), ("ScatterND", "table at h", "filled", {}),
             ("MatMul", "filled v", "z", {}), ("ReduceSum", "z one", "y", dict(keepdims=0))]
    return graph_of(nodes, weights() + [("table", [4, N, F], spread(4 * N * F, 3, 17)), ("at", [4, 2, 2], places, INT64),
                                        ("one", [1], [1], INT64)],
                    [("x", [4, 2, F])], [("y", [4, 2])])


def router():
    nodes = [("MatMul", "x w", "scores", {}), ("TopK", "scores k", "best index", dict(axis=1)),
             ("Softmax", "best", "share", dict(axis=1)), ("Mul", "scores zero", "none", {}),
             ("ScatterElements", "none index share", "gate", dict(axis=1)),
             ("Unsqueeze", "x ones", "row", {}), ("MatMul", "row experts", "made", {}), ("Squeeze", "made two", "each", {}),
             ("Unsqueeze", "gate last", "by", {}), ("Mul", "each by", "parts", {}),
             ("ReduceSum", "parts one", "y", dict(keepdims=0))]
    constants = weights()[:1] + [("experts", [EXPERTS, F, 2], spread(EXPERTS * F * 2, 11, 23)), ("k", [1], [K], INT64),
                                 ("ones", [2], [1, 2], INT64), ("two", [1], [2], INT64), ("last", [1], [2], INT64),
                                 ("one", [1], [1], INT64), ("zero", [1, 1], [0.0])]
    return graph_of(nodes, constants, [("x", ["n", F])], [("y", ["n", 2])])


def draws():
    nodes = [("MatMul", "x w", "mean", {}), ("RandomNormalLike", "mean", "normal", {}),
             ("RandomUniformLike", "mean", "uniform", {}), ("Mul", "normal uniform", "noise", {}),
             ("Add", "mean noise", "code", {}), ("Sigmoid", "code", "p", {}), ("Bernoulli", "p", "mask", {}),
             ("Mul", "code mask", "kept", {}), ("CumProd", "p one", "products", {}), ("Add", "kept products", "sum", {}),
             ("MatMul", "sum v", "y", {})]
    return graph_of(nodes, weights() + [("one", [1], [1], INT64)], [("x", ["n", F])], [("y", ["n", 2])], 26)


def sampled():
    nodes = [("MatMul", "x w", "scores", {}), ("Multinomial", "scores", "classes", dict(sample_size=3, dtype=7)),
             ("GatherElements", "scores classes", "drawn", dict(axis=1)), ("Concat", "drawn scores", "all", dict(axis=1)),
             ("Slice", "all from to one", "some", {}), ("MatMul", "some v", "y", {})]
    return graph_of(nodes, weights() + [("from", [1], [0], INT64), ("to", [1], [F], INT64), ("one", [1], [1], INT64)],
                    [("x", ["n", F])], [("y", ["n", 2])])


def integers(onnx_type):
    """Ops on integers: their results, as floats, are the features of a linear model."""
    ops = [("Cast", "i", "a", dict(to=onnx_type)), ("Cast", "three", "b", dict(to=onnx_type))]
    made = []

    def add(op, ins, shape_of=None, **attributes):
        out = f"r{len(made)}"
        ops.append((op, ins, out, attributes))
        made.append(out)
        return out

    for op in ("ReduceMax", "ReduceMin", "ReduceProd"):
        add(op, "a", axes=[1], keepdims=1)
    add("ReduceSum", "a one", keepdims=1)
    add("ArgMax", "a", axis=1, keepdims=1)
    add("ArgMin", "a", axis=1, keepdims=1)
    for op in ("Min", "Max", "Less", "Equal", "Greater", "Add", "Mul"):
        add(op, "a b")
    add("Sub", f"a {made[6]}")  # not below 0
    add("CumSum", "a axis")
    add("Trilu", "a")
    add("Where", f"{made[8]} a b")
    add("Pad", "a pads b0", mode="constant")
    add("Transpose", "a", perm=[0, 1])
    add("Slice", "a from to one")
    add("Gather", "a picks", axis=1)
    add("GatherElements", "a index", axis=1)
    add("ScatterElements", "a index a", axis=1)
    for reduction in ("add", "mul", "min", "max"):
        add("ScatterElements", "a index a", axis=1, reduction=reduction)
    ops.append(("TopK", "a two", "top where", dict(axis=1)))
    made += ["top", "where"]
    ops.append(("Cast", "zero", "b0", dict(to=onnx_type)))
    ops += [("Cast", r, f"{r}_f", dict(to=1)) for r in made]
    ops += [("ReduceSum", f"{r}_f one", f"{r}_s", dict(keepdims=1)) for r in made]
    ops += [("Concat", " ".join(f"{r}_s" for r in made), "features", dict(axis=1)), ("MatMul", "features u", "y", {})]
    # A node reads what earlier ones made.
    constants = [("u", [len(made), 2], spread(len(made) * 2, 5, 9)), ("three", [1, 1], [3], INT64), ("one", [1], [1], INT64),
                 ("axis", [], [1], INT64), ("pads", [4], [0, 1, 0, 2], INT64), ("from", [1], [1], INT64), ("to", [1], [3], INT64),
                 ("picks", [2], [2, 0], INT64), ("two", [1], [2], INT64), ("zero", [], [0], INT64)]
    return graph_of(ops, constants, [("i", ["n", 4], INT64), ("index", ["n", 4], INT64)], [("y", ["n", 2])], 16)


def high_bits():
    """u64 beyond the numbers of i64: -1 is the largest."""
    ops = [("Cast", "i", "a", dict(to=13)), ("ArgMax", "a", "most", dict(axis=1, keepdims=1)),
           ("ReduceMax", "a", "max", dict(axes=[1], keepdims=1)), ("ReduceMin", "a", "min", dict(axes=[1], keepdims=1)),
           ("TopK", "a two", "top where", dict(axis=1)), ("Cast", "top", "top_i", dict(to=7)),
           ("Mul", "most zero", "none", {}), ("Concat", "none none none none", "places", dict(axis=1)),
           ("ScatterElements", "a places a", "largest", dict(axis=1, reduction="max")),
           ("Slice", "largest zero one one", "first", {}), ("Cast", "first", "first_i", dict(to=7)),
           ("Cast", "max", "max_i", dict(to=7)), ("Cast", "min", "min_i", dict(to=7)),
           ("Concat", "most max_i min_i top_i where first_i", "all", dict(axis=1)), ("Cast", "all", "f", dict(to=1)),
           ("MatMul", "f u", "y", {})]
    same = [float(i == j) for i in range(8) for j in range(8)]
    return graph_of(ops, [("u", [8, 8], same), ("two", [1], [2], INT64), ("zero", [1], [0], INT64), ("one", [1], [1], INT64)],
                    [("i", ["n", 4], INT64)], [("y", ["n", 8])], 16)


def divided(onnx_type):
    """Integers divided by zeros of the data: 0, with remainder 0, where the processor's instruction ends a program."""
    ops = [("Cast", "i", "a", dict(to=onnx_type)), ("Cast", "three", "b", dict(to=onnx_type)), ("Div", "b a", "q", {}),
           ("Mod", "b a", "r", {}), ("Concat", "q r", "all", dict(axis=1)), ("Cast", "all", "f", dict(to=1)),
           ("MatMul", "f u", "y", {})]
    same = [float(i == j) for i in range(8) for j in range(8)]
    return graph_of(ops, [("u", [8, 8], same), ("three", [1, 1], [3], INT64)], [("i", ["n", 4], INT64)], [("y", ["n", 8])], 16)


def losses(folder, name, made, inputs, cut=(), batch=4, lr="0.05", steps=5):
    path, exe, log = folder / f"{name}.onnx", folder / name, folder / f"{name}.jsonl"
    path.write_bytes(made)
    log.unlink(missing_ok=True)
    run(NNAOT, path, *(["--batch", batch] if batch else []), "--loss", "mse(y)", "--optimizer", "sgd", "--lr", lr, *cut, "-o", exe)
    files = [f"{i}={folder}/{file}.npy" for i, file in inputs.items()]
    run(exe, *(f for file in files for f in ("--input", file)), "--steps", steps, "--seed", 3, "--log", log)
    return [line["loss"] for line in read_log(log)]


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        write_npy(folder / "x.npy", spread(ROWS * N * F, 7, 31), (ROWS, N, F))
        write_npy(folder / "rows.npy", spread(ROWS * F, 7, 31), (ROWS, F))
        write_npy(folder / "pairs.npy", spread(4 * 2 * F, 7, 31), (4, 2, F))
        write_npy(folder / "t.npy", spread(ROWS * 2, 5, 19), (ROWS, 2))
        write_npy(folder / "t4.npy", spread(4 * 2, 5, 19), (4, 2))
        write_npy(folder / "src.npy", [i * 5 % N for i in range(ROWS * E)], (ROWS, E, 1), "<i8")
        write_npy(folder / "dst.npy", [(i * 7 + i // 3) % N - (N if i % 4 == 0 else 0) for i in range(ROWS * E)], (ROWS, E, 1),
                  "<i8")
        graphs = dict(x="x", src="src", dst="dst", target="t")
        rows = dict(x="rows", target="t")
        cases = [("graph", message_passing(["add"]), graphs), ("reduced", message_passing(["max", "min", "mul"]), graphs),
                 ("router", router(), rows), ("draws", draws(), rows), ("sampled", sampled(), rows)]
        for name, made, inputs in cases:
            want = losses(folder, name, made, inputs)
            check(f"{name} trains", len(want) == 5 and want[0] != want[4] and all(x == x for x in want), want)
            for cut in CUTS:
                got = losses(folder, name, made, inputs, cut)
                check(f"{name} {cut}", worst_difference(got, want) < 2e-6, got, want)
        want = losses(folder, "tuples", tuples(), dict(x="pairs", target="t4"), batch=0)
        got = losses(folder, "tuples", tuples(), dict(x="pairs", target="t4"), ["-g", 2, "--plan", "dp"], batch=0)
        check("tuples", worst_difference(got, want) < 2e-6 and want[0] > want[4], got, want)
        # All products are below 2^7.
        write_npy(folder / "i.npy", [i * 3 % 5 % 4 for i in range(ROWS * 4)], (ROWS, 4), "<i8")
        write_npy(folder / "index.npy", [(i + i // 4) % 4 for i in range(ROWS * 4)], (ROWS, 4), "<i8")
        numbers = dict(i="i", index="index", target="t")
        want = losses(folder, "i64", integers(INT64), numbers, lr="0.0001")
        for name, onnx_type in TYPES.items():
            got = losses(folder, name, integers(onnx_type), numbers, lr="0.0001")
            check(f"integers of {name}", got == want, got, want)
        got = losses(folder, "u16", integers(4), numbers, ["-g", 2, "--plan", "dp"], lr="0.0001")
        check("integers on two ranks", worst_difference(got, want) < 2e-6, got, want)
        write_npy(folder / "high.npy", [3, -1, 2, 5] * ROWS, (ROWS, 4), "<i8")
        write_npy(folder / "high_t.npy", [1.0, -1, 2, -1, 5, 1, 3, -1] * ROWS, (ROWS, 8))
        got = losses(folder, "high", high_bits(), dict(i="high", target="high_t"), lr="0", steps=1)
        check("u64 of 64 bits", got == [0.0], got)
        write_npy(folder / "by.npy", [0, 2, 0, 5] * ROWS, (ROWS, 4), "<i8")
        write_npy(folder / "quotients.npy", [0.0, 1, 0, 0, 0, 1, 0, 3] * ROWS, (ROWS, 8))
        for name, onnx_type in TYPES.items():
            got = losses(folder, f"{name}_divided", divided(onnx_type), dict(i="by", target="quotients"), lr="0", steps=1)
            check(f"{name} divided by zero", got == [0.0], got)
        # An op without a kernel for its type is reported at its node, with all others, before any pass.
        bad = graph_of([("MatMul", "i j", "a", {}), ("MatMul", "a j", "b", {}), ("Cast", "b", "f", dict(to=1)),
                        ("MatMul", "f u", "y", {})],
                       [("j", [4, 4], list(range(16)), INT64), ("u", [4, 2], spread(8, 5, 9))], [("i", ["n", 4], INT64)],
                       [("y", ["n", 2])])
        (folder / "bad.onnx").write_bytes(bad)
        said = run(NNAOT, folder / "bad.onnx", "--batch", 4, "--loss", "mse(y)", "-o", folder / "bad", ok=1)
        check("no kernel", "bad.onnx:/0/MatMul: error: linear: there is no cpu kernel for i64, only for f32 bf16 f16 (2 nodes)" in said
              and "bad.onnx:/1/MatMul: note: linear of i64[4,4], i64[4,4]" in said and "hint: cast the operands" in said
              and not (folder / "bad").exists(), said)
    finish()


main()
