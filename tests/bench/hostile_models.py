#!/usr/bin/env python3
"""Hostile model files: each is refused with an error, fast, in little memory, and none crashes the compiler.

    hostile_models.py [--only REGEX] [--keep FOLDER] [--table]

Each of the files below is made without the onnx package, and imported by nnaot-opt, whose address space is limited.  It must
end with status 1 and an error, without a signal, within CPU seconds and resident memory of the limits; --table prints both for
each file.  --keep writes the files into a folder.

    truncated   a model that ends at any byte            lengths     prefixes of 1 GB and more, numbers that are too long
    wire        fields of another wire type               sizes       absurd, negative and overflowing dimensions
    graphs      cycles, names that are twice or nowhere   nested      subgraphs and functions in one another, 2^60 calls
    counts      very many inputs, nodes, attributes       external    weights in FIFOs, folders, devices, outside files
    utf8        names that are no UTF-8                   attributes  of wrong types and values

A time over the limit is measured twice more, and the least counts: other processes disturb it.
"""

import argparse
import os
import pathlib
import re
import resource
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

import onnx_bytes
from onnx_bytes import field, node, tensor, value_info, varint

OPT = pathlib.Path(os.environ.get("BUILD", ROOT / "build"), "bin", "nnaot-opt")
SECONDS, MEGABYTES = 0.1, 256  # CPU time, resident
ADDRESS_SPACE = 4 << 30
INT64, BAD = 7, "n\udcff\udcfe"  # a name with the bytes ff fe
HUGE = [1 << 31, 1 << 40, (1 << 62) + 1, (1 << 63) - 1]
NEGATIVE = [(1 << 64) - 1, 1 << 63]  # -1 and the least integer, as varints


def graph(nodes, inputs=None, outputs=None, constants=(), name="g"):
    inputs = [value_info("x", ["n", 4])] if inputs is None else inputs
    outputs = [value_info("y", ["n", 4])] if outputs is None else outputs
    return (b"".join(field(1, n) for n in nodes) + field(2, name) + b"".join(field(5, c) for c in constants) +
            b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))


def model(nodes, inputs=None, outputs=None, constants=(), functions=(), opset=17, domains=()):
    return (onnx_bytes.model(graph(nodes, inputs, outputs, constants), opset) +
            b"".join(field(8, field(1, d) + field(2, 1)) for d in domains) + b"".join(field(25, f) for f in functions))


def ints(name, numbers):
    return tensor(name, [len(numbers)], numbers, INT64)


def one(op, ins="x", outs="y", *more, **attributes):
    return node(op, ins.split(), outs.split(), f"/{op}", **attributes) + b"".join(more)


def subgraph(key, body):
    return field(5, field(1, key) + field(6, body) + field(20, 5))


def function(name, nodes, ins=("x",), outs=("y",), domain="f"):
    return (field(1, name) + b"".join(field(4, i) for i in ins) + b"".join(field(5, o) for o in outs) +
            b"".join(field(7, n) for n in nodes) + field(9, field(1, "") + field(2, 17)) +
            field(9, field(1, domain) + field(2, 1)) + field(10, domain))


def call(name, ins="x", outs="y", domain="f"):
    return one(name, ins, outs, field(7, domain))


def linear(extra=b""):
    """y = x w."""
    return model([one("MatMul", "x w")], constants=[tensor("w", [4, 4], [0.5] * 16) + extra])


# -- The files ---------------------------------------------------------------------------------------------------------

def truncated():
    whole = onnx_bytes.mlp([4, 8, 4])
    for i in range(60):
        yield f"at-{i}", whole[:1 + (len(whole) - 12) * i // 59]


def lengths():
    tags = {"model.producer": [], "graph.name": [7], "node.op": [7, 1], "attribute.s": [7, 1, 5], "tensor.raw": [7, 5],
            "input.name": [7, 11]}
    last = {"model.producer": 2, "graph.name": 2, "node.op": 4, "attribute.s": 4, "tensor.raw": 9, "input.name": 1}
    for place, path in tags.items():
        for size in (1 << 30, (1 << 31) - 1, 1 << 32, 1 << 63):
            inner = varint(last[place] << 3 | 2) + varint(size) + b"abc"
            for number in reversed(path):
                inner = field(number, inner)
            yield f"{place}-{size}", field(1, 8) + inner
            # The outer fields are as long as they say, and no byte of them exists.
            outer = varint(last[place] << 3 | 2) + varint(size)
            for number in reversed(path):
                outer = varint(number << 3 | 2) + varint(min(size + len(outer), (1 << 64) - 1)) + outer
            yield f"{place}-{size}-all", field(1, 8) + outer
    yield "varint-11", b"\x08" + b"\xff" * 10 + b"\x01"
    yield "varint-endless", b"\x08" + b"\x80" * 100000
    yield "tag-endless", b"\x80" * 100000
    yield "tags-of-nothing", b"\x3a\x00" * 100000


def wire():
    whole = onnx_bytes.mlp([4, 8, 4])
    for number in (1, 2, 7, 8, 14, 20, 25):
        for kind, rest in ((0, b"\x05"), (1, b"12345678"), (2, b"\x03abc"), (3, b""), (5, b"1234"), (6, b""), (7, b"")):
            if kind != (0 if number == 1 else 2):
                yield f"model-{number}-{kind}", varint(number << 3 | kind) + rest + whole
    for number in (1, 2, 3, 4, 5, 7):
        kind, rest = (0, b"\x05") if number != 99 else (2, b"\x00")
        yield f"node-{number}", model([one("Relu") + varint(number << 3 | kind) + rest])
    yield "field-0", b"\x02\x01a" + whole
    yield "groups", b"\x0b" * 50000 + whole
    yield "graphs", whole + field(7, graph([one("Relu")]))
    yield "empty", b""
    yield "zeros", bytes(4096)
    yield "text", b"-- a model\n" * 100
    yield "zip", b"PK\x03\x04" + bytes(200)
    yield "pickle", b"\x80\x04\x95" + bytes(200)


def sizes():
    for d in HUGE + NEGATIVE:
        if d not in NEGATIVE:  # the batch of some exporters
            yield f"input-{d}", model([one("Relu")], [value_info("x", [d, 4])])
        yield f"input2-{d}", model([one("Relu")], [value_info("x", [1 << 30, d])])
        yield f"weight-{d}", model([one("MatMul", "x w")], constants=[tensor("w", [4, d], [0.5] * 16)])
        yield f"weight2-{d}", model([one("MatMul", "x w")], constants=[tensor("w", [1 << 33, d], [0.5] * 16)])
        signed = d - (1 << 64) if d >= 1 << 63 else d
        for op, key in (("Reshape", "s"), ("Expand", "s"), ("Tile", "s")):
            if (op, signed) != ("Reshape", -1):
                yield f"{op}-{d}", model([one(op, f"x {key}")], constants=[ints("s", [signed, signed])])
        yield f"ConstantOfShape-{d}", model([one("ConstantOfShape", "s", "c"), one("Add", "x c")], constants=[ints("s", [signed])])
        if d > 1 << 40 and signed != -1:
            yield f"Pad-{d}", model([one("Pad", "x s")], constants=[ints("s", [signed, 0, signed, 0])])
        yield f"Split-{d}", model([one("Split", "x s", "y z", axis=1)], constants=[ints("s", [signed, 4])])
        yield f"TopK-{d}", model([one("TopK", "x s", "y i")], constants=[ints("s", [signed])])
        yield f"OneHot-{d}", model([one("Cast", "x", "i", **{"to": 7}), one("OneHot", "i s v")],
                                   constants=[ints("s", [signed]), tensor("v", [2], [0.0, 1.0])])
        yield f"Range-{d}", model([one("Range", "a b c", "r"), one("Cast", "r", "f", **{"to": 1}), one("Add", "x f")],
                                  constants=[tensor("a", [], [0], 7), tensor("b", [], [signed], 7), tensor("c", [], [1], 7)])
        yield f"Conv-{d}", model([one("Conv", "x w", "y", strides=[d, 1])], [value_info("x", ["n", 1, 4, 4])],
                                 [value_info("y", ["n"])], [tensor("w", [1, 1, 2, 2], [0.5] * 4)])
        yield f"Pool-{d}", model([one("MaxPool", "x", "y", kernel_shape=[d, d])], [value_info("x", ["n", 1, 4, 4])],
                                 [value_info("y", ["n"])])
        yield f"LSTM-{d}", model([one("LSTM", "x w r", "y", hidden_size=d)], [value_info("x", [4, "n", 4])],
                                 [value_info("y", ["n"])], [tensor("w", [1, 8, 4], [0.5] * 32), tensor("r", [1, 8, 2], [0.5] * 16)])
    yield "dimensions-9", model([one("Relu")], [value_info("x", [1] * 9)])
    yield "dimensions-100000", model([one("Relu")], [value_info("x", [1] * 100000)])
    yield "weight-dimensions", model([one("MatMul", "x w")], constants=[tensor("w", [1] * 100000, [0.5])])
    yield "weight-short", model([one("MatMul", "x w")], constants=[tensor("w", [4, 4], [0.5] * 15)])
    yield "weight-long", model([one("MatMul", "x w")], constants=[tensor("w", [4, 4], [0.5] * 17)])
    for dtype in (0, 8, 14, 15, 99, 1 << 31, (1 << 64) - 1):
        yield f"weight-type-{dtype}", model([one("MatMul", "x w")], constants=[
            field(1, 4) + field(1, 4) + field(2, dtype) + field(8, "w") + field(9, bytes(64))])
        yield f"input-type-{dtype}", model([one("Relu")], [value_info("x", ["n", 4], dtype)])
    for opset in (0, 1 << 31, (1 << 64) - 1):
        yield f"opset-{opset}", model([one("Softsign" if opset else "Relu")], opset=opset)


def graphs():
    for n in (1, 2, 3, 5, 1000, 20000):
        ring = [node("Add", ["x", f"h{i}"], [f"h{(i + 1) % n}"], f"/{i}") for i in range(n)]
        yield f"cycle-{n}", model(ring + [one("Relu", "h0")])
        # In reverse, with a cycle at the end of the chain.
        chain = [node("Add", [f"c{i}", "h0"], [f"c{i + 1}"], f"/c{i}") for i in reversed(range(n))]
        yield f"chain-{n}", model(chain + ring + [one("Relu", f"c{n}"), one("Relu", "x", "c0")])
    yield "no-graph", field(1, 8) + field(8, field(1, "") + field(2, 17))
    yield "no-nodes", model([])
    yield "no-outputs", model([one("Relu")], outputs=[])
    yield "output-nowhere", model([one("Relu")], outputs=[value_info("z", ["n", 4])])
    yield "input-nowhere", model([one("Add", "x z")])
    yield "twice-input", model([one("Relu")], [value_info("x", ["n", 4])] * 2)
    yield "twice-output", model([one("Relu"), one("Tanh")])
    yield "twice-results", model([one("Split", "x", "y y", axis=1)])
    yield "twice-weight", model([one("MatMul", "x w")], constants=[tensor("w", [4, 4], [0.5] * 16)] * 2)
    yield "twice-function", model([call("a")], functions=[function("a", [one("Relu")])] * 2, domains=["f"])
    yield "shadows-input", model([one("Relu", "x", "x"), one("Tanh")])
    yield "shadows-weight", model([one("Relu", "x", "w"), one("MatMul", "x w")], constants=[tensor("w", [4, 4], [0.5] * 16)])
    yield "no-op", model([node("", ["x"], ["y"], "n")])
    yield "no-name", model([node("Relu", ["x"], [""], "n")])
    yield "empty-operands", model([node("Add", ["", ""], ["y"], "n")])
    yield "op-of-a-megabyte", model([node("R" * 1000000, ["x"], ["y"], "n")])
    yield "name-of-a-megabyte", model([node("Nope", ["x"], ["y"], "n" * 1000000)])
    yield "control", model([node("No\x1b[2Jpe", ["x"], ["y"], "\x1b]0;title\x07")])
    yield "null", model([node("Re\0lu", ["x"], ["y"], "n")])


def nested():
    for depth in (2, 20, 60, 200, 2000, 20000):
        body = graph([one("Nope", "x", "z")], [], [value_info("z", ["n", 4])])
        for i in range(depth):
            inner = one("If", "c", "z", subgraph("then_branch", body), subgraph("else_branch", graph([one("Relu", "x", "z")], [], [
                value_info("z", ["n", 4])])))
            body = graph([inner], [], [value_info("z", ["n", 4])])
            if len(body) > 4000000:
                break
        yield f"if-{depth}", model([one("If", "c", "y", subgraph("then_branch", body), subgraph("else_branch", body))],
                                   constants=[field(2, 9) + field(8, "c") + field(9, b"\1")])
    for n in (1, 2, 3, 50):
        ring = [function(f"f{i}", [call(f"f{(i + 1) % n}")]) for i in range(n)]
        yield f"functions-ring-{n}", model([call("f0")], functions=ring, domains=["f"])
    for n in (8, 16, 30, 60):
        twice = [function(f"f{i}", [call(f"f{i - 1}", "x", "h"), call(f"f{i - 1}", "h", "y")]) for i in range(1, n)]
        yield f"functions-2-to-{n}", model([call(f"f{n - 1}")], functions=[function("f0", [one("Nope")]), *twice], domains=["f"])
        if n >= 30:
            yield f"functions-2-to-{n}-sound", model([call(f"f{n - 1}")], functions=[function("f0", [one("Relu")]), *twice],
                                                     domains=["f"])
    for n in (100, 1000, 5000):
        chain = [function(f"f{i}", [call(f"f{i - 1}")]) for i in range(1, n)]
        yield f"functions-chain-{n}", model([call(f"f{n - 1}")], functions=[function("f0", [one("Nope")]), *chain], domains=["f"])
    yield "function-operands", model([call("f0", "x x x")], functions=[function("f0", [one("Relu")])], domains=["f"])
    yield "function-results", model([call("f0", "x", "y z")], functions=[function("f0", [one("Relu")])], domains=["f"])
    yield "function-nothing", model([call("f0")], functions=[function("f0", [])], domains=["f"])
    yield "function-nowhere", model([call("f9")], functions=[function("f0", [one("Relu")])], domains=["f"])
    body = graph([one("Identity", "c", "c2"), one("RandomUniformLike", "h", "h2")], [
        value_info("i", [], 7), value_info("c", [], 9), value_info("h", ["n", 4])], [
            value_info("c2", [], 9), value_info("h2", ["n", 4])])
    for n in HUGE:
        yield f"loop-{n}", model([one("Loop", "m c x", "y", subgraph("body", body))], constants=[
            tensor("m", [], [n], 7), field(2, 9) + field(8, "c") + field(9, b"\1")])
    yield "loop-of-itself", model([one("Loop", "m c x", "y", subgraph("body", graph([one("Loop", "m c y", "h2")])))])
    deep = field(1, one("Relu"))
    for i in range(100000):
        deep = field(6, deep)
        if len(deep) > 300000:
            break
    yield "messages", field(1, 8) + field(7, field(1, field(5, deep)))


def counts():
    many = " ".join(["x"] * 20000)
    yield "operands", model([one("Relu", many)])
    yield "concat", model([one("Concat", many, "y", axis=9)])
    yield "results", model([one("Split", "x", " ".join(f"y{i}" for i in range(20000)), axis=1)])
    yield "unknown-ops", model([node(f"Nope{i}", ["x"], [f"h{i}"], f"/{i}") for i in range(10000)] +
                               [one("Sum", " ".join(f"h{i}" for i in range(10000)))])
    yield "one-unknown-op", model([node("Nope", ["x"], [f"h{i}"], f"/{i}") for i in range(10000)] + [one("Relu", "h3")])
    yield "weights", model([one("Nope", "x w")], constants=[tensor(f"w{i}", [1], [0.5]) for i in range(20000)])
    yield "inputs", model([one("Nope")], [value_info(f"x{i}", ["n"]) for i in range(20000)])
    yield "outputs", model([one("Relu")], outputs=[value_info(f"y{i}", ["n"]) for i in range(20000)])
    yield "symbols", model([one("Add", "x1 x2")], [value_info(f"x{i}", [f"n{i}", f"m{i}"]) for i in range(10000)])
    yield "attributes", model([one("Relu", "x", "y", *(field(5, onnx_bytes.attribute(f"a{i}", i)) for i in range(20000)))])
    yield "axes", model([one("ReduceSum", "x a")], constants=[ints("a", [2] * 100000)], opset=13)
    yield "perm", model([one("Transpose", "x", "y", perm=[0] * 100000)])
    yield "opsets", model([one("Nope")]) + field(8, field(1, "d") + field(2, 1)) * 50000
    yield "domains", model([one("Nope")]) + b"".join(field(8, field(1, f"d{i}") + field(2, 1)) for i in range(20000))
    yield "functions", model([one("Nope")], functions=[function(f"f{i}", [one("Nope")]) for i in range(10000)])
    yield "metadata", model([one("Nope")]) + b"".join(field(14, field(1, f"k{i}") + field(2, "v")) for i in range(20000))
    yield "value-infos", field(1, 8) + field(7, graph([one("Nope")]) + b"".join(
        field(13, value_info(f"v{i}", ["n"])) for i in range(20000))) + field(8, field(1, "") + field(2, 17))
    yield "einsum", model([one("Einsum", "x x", "y", equation="ab," * 10000 + "ab")])
    yield "einsum-letters", model([one("Einsum", "x", "y", equation="a" * 100000)])
    yield "broken-chain", model([node("Relu", [f"h{i}" if i else "x"], [f"h{i + 1}"], f"/{i}") for i in range(10000)] +
                                [one("Nope", "h10000")])


def external():
    def at(location, *more):
        entries = b"".join(field(13, field(1, k) + field(2, v)) for k, v in [("location", location), *more])
        return model([one("MatMul", "x w")], constants=[field(1, 4) + field(1, 4) + field(2, 1) + field(8, "w") + entries +
                                                        field(14, 1)])
    for name in ("fifo", "folder", "link", "socket", "absent", "short", "loop", "folder/", "", ".", "..", "/dev/zero", "/dev/tty",
                 "/proc/self/mem", "/etc/passwd", "../outside", "folder/../../outside", "a" * 5000, BAD, "linked/outside"):
        yield f"location-{re.sub(r'[^a-z]', '_', name)[:30]}", at(name)
    for key, value in [("offset", "-1"), ("offset", "9999999"), ("offset", "9223372036854775807"),
                       ("offset", "99999999999999999999"),
                       ("offset", "x"), ("length", "-1"), ("length", "63"), ("length", "65"), ("length", "9223372036854775807"),
                       ("length", "0x40"), ("location", "none"), ("nope", "1"), ("offset", ""), ("length", "1e3"),
                       ("length", "9" * 100000)]:
        yield f"{key}-{value[:12]}", at("w.bin", (key, value))
    yield "no-location", model([one("MatMul", "x w")], constants=[field(1, 4) * 2 + field(2, 1) + field(8, "w") + field(14, 1)])
    yield "entries", at("w.bin", *[(f"k{i}", "v") for i in range(20000)])


def utf8():
    # Names may have any bytes; messages must not.
    yield "input", model([one("Nope", BAD)], [value_info(BAD, ["n", 4])])
    yield "output", model([one("Nope", "x", BAD)], outputs=[value_info(BAD, ["n", 4])])
    yield "weight", model([one("MatMul", f"x {BAD}")], constants=[tensor(BAD, [5, 4], [0.5] * 20)])
    yield "op", model([one(BAD)])
    yield "value", model([one("Relu", "x", BAD), one("Nope", BAD)])
    yield "name", model([node("Nope", ["x"], ["y"], BAD)])
    yield "symbol", model([one("Add", "x z")], [value_info("x", [BAD, 4]), value_info("z", [BAD + "z", 5])])
    yield "domain", model([call("f0", domain=BAD)], functions=[function("f0", [one("Nope")], domain=BAD)], domains=[BAD])
    yield "function", model([call(BAD)], functions=[function(BAD, [one("Nope")])], domains=["f"])
    yield "attribute", model([one("Relu", "x", "y", field(5, onnx_bytes.attribute(BAD, 1)))])
    yield "text", model([one("Pad", "x", "y", mode=BAD)])


def attributes():
    for op, key in (("Softmax", "axis"), ("Concat", "axis"), ("Gather", "axis"), ("Flatten", "axis"), ("Transpose", "perm"),
                    ("LayerNormalization", "axis"), ("Cast", "to"), ("Split", "axis"), ("ArgMax", "axis"), ("CumSum", "axis"),
                    ("Conv", "group"), ("LSTM", "hidden_size"), ("Resize", "mode"), ("TopK", "axis"), ("GridSample", "mode")):
        for what, value in (("text", "nonsense"), ("large", 1 << 62), ("low", (1 << 64) - 9), ("list", [5, 5, 5])):
            if (op, what) not in [("CumSum", "large"), ("CumSum", "low")]:
                yield f"{op}-{key}-{what}", model([one(op, "x x" if op in ("Gather", "Conv", "TopK", "GridSample") else "x", "y",
                                                       **{key: value})])
        yield f"{op}-{key}-nothing", model([one(op, "x", "y", field(5, field(1, key)))])
        yield f"{op}-{key}-tensor", model([one(op, "x", "y", field(5, field(1, key) + field(5, b"") + field(20, 4)))])


KINDS = [truncated, lengths, wire, sizes, graphs, nested, counts, external, utf8, attributes]


# -- The run -----------------------------------------------------------------------------------------------------------

def limited():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def imports(path):
    """Returns the exit status, the messages, seconds of CPU time and megabytes of a run of nnaot-opt."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([OPT, path, "--batch", "4", "-o", "/dev/null"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=said, preexec_fn=limited)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return process.returncode, said.read(), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def wrong(path):
    """Returns what is wrong with the refusal of a file, or "", and its numbers."""
    status, said, seconds, megabytes = imports(path)
    for _ in range(2):
        if status == 1 and seconds > SECONDS:
            seconds = min(seconds, imports(path)[2])
    numbers = f"{1000 * seconds:6.0f} ms {megabytes:6.0f} MB"
    if status != 1:
        return f"exit status {status}: {said[:200]}", numbers
    if b"error: " not in said or b"crashed" in said or b"bug" in said:
        return f"no error of its own: {said[:200]}", numbers
    try:
        said.decode()
    except UnicodeDecodeError:
        return f"a message is no UTF-8: {said[:200]}", numbers
    if re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", said):
        return f"control characters in the message: {said[:200]}", numbers
    if len(said) > 100000:
        return f"{len(said)} bytes of messages", numbers
    if seconds > SECONDS or megabytes > MEGABYTES:
        return "too slow or too large", numbers
    return "", numbers


def surroundings(folder):
    """Makes the files that external data names."""
    inside = folder / "models"
    for name in (inside, inside / "folder", folder / "away"):
        name.mkdir()
    (folder / "outside").write_bytes(bytes(64))
    (folder / "away/outside").write_bytes(bytes(64))
    (inside / "w.bin").write_bytes(bytes(64))
    (inside / "short").write_bytes(bytes(63))
    (inside / "link").symlink_to("../outside")
    (inside / "loop").symlink_to("loop")
    (inside / "linked").symlink_to("../away")
    os.mkfifo(inside / "fifo")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(inside / "socket"))
    return inside


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="")
    p.add_argument("--keep")
    p.add_argument("--table", action="store_true")
    a = p.parse_args()
    n, failed, slowest = 0, 0, ("", "")
    with tempfile.TemporaryDirectory() as folder:
        inside = surroundings(pathlib.Path(folder))
        for kind in KINDS:
            for name, made in kind():
                name = f"{kind.__name__}-{name}"
                if not re.search(a.only, name):
                    continue
                path = inside / "m.onnx"
                path.write_bytes(made)
                if a.keep:
                    pathlib.Path(a.keep, f"{name}.onnx").write_bytes(made)
                error, numbers = wrong(path)
                n, failed, slowest = n + 1, failed + bool(error), max(slowest, (numbers, name))
                if error or a.table:
                    print(f"{name:40} {numbers}  {error}", flush=True)
    print(f"{n} hostile files, {failed} failed; slowest: {slowest[1]}, {slowest[0]}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
