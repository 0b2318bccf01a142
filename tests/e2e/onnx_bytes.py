"""Writes ONNX models as bytes, without the onnx package: messages of protobuf, field by field."""

import random
import struct


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode(errors="surrogateescape") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def value_info(name, dims, dtype=1):
    shape = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, shape)))


def tensor(name, dims, numbers, dtype=1):
    letter = {1: "f", 7: "q"}[dtype]
    data = struct.pack(f"<{len(numbers)}{letter}", *numbers)
    return b"".join(field(1, d) for d in dims) + field(2, dtype) + field(8, name) + field(9, data)


def attribute(key, value):
    """Returns an attribute: an integer, a text, or a list of integers."""
    if isinstance(value, str):
        return field(1, key) + field(4, value) + field(20, 3)
    if isinstance(value, list):
        return field(1, key) + b"".join(field(8, i) for i in value) + field(20, 7)
    return field(1, key) + field(3, value) + field(20, 2)


def node(op, inputs, outputs, name, **attributes):
    attributes = b"".join(field(5, attribute(key, value)) for key, value in attributes.items())
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) + field(4, op)
            + attributes)


def model(graph, opset=17):
    """Returns a model with the fields of this graph."""
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, opset))


def mlp(widths, seed=1):
    """Returns a model of linear layers of these widths, with relu between, from x [batch, widths[0]] to logits."""
    rng = random.Random(seed)
    graph = field(2, "mlp")
    graph += field(11, value_info("x", ["batch", widths[0]])) + field(12, value_info("logits", ["batch", widths[-1]]))
    before, last = "x", len(widths) - 2
    for i, (n, m) in enumerate(zip(widths, widths[1:])):
        # A few thousand numbers, repeated: drawing millions takes seconds.
        drawn = [rng.gauss(0, n ** -0.5) for _ in range(4099)]
        numbers = (drawn * (n * m // len(drawn) + 1))[:n * m]
        graph += field(5, tensor(f"w{i}", [m, n], numbers)) + field(5, tensor(f"b{i}", [m], [0.0] * m))
        out = "logits" if i == last else f"h{i}"
        graph += field(1, node("Gemm", [before, f"w{i}", f"b{i}"], [out], f"layer{i}", transB=1))
        if i < last:
            graph += field(1, node("Relu", [out], [f"r{i}"], f"relu{i}"))
        before = f"r{i}"
    return model(graph)
