"""The parts of the models that make_*.py write: nodes, values, weights, graphs."""

import os

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inputs")
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def node(op, inputs, outputs, name="", **attributes):
    # "_": left out, as "" in a list
    names = [["" if n == "_" else n for n in (x.split() if isinstance(x, str) else x)]
             for x in (inputs, outputs)]
    return helper.make_node(op, *names, name=name, **attributes)


def value(name, shape, dtype=F32):
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name, *shape):
    count = int(np.prod(shape))
    return numpy_helper.from_array(np.arange(count, dtype=np.float32).reshape(shape), name)


def numbers(name, *items):
    return numpy_helper.from_array(np.array(items, dtype=np.float32), name)


def ints(name, *items):
    return numpy_helper.from_array(np.array(items, dtype=np.int64), name)


def words(name, *items):
    return helper.make_tensor(name, TensorProto.STRING, [len(items)], [s.encode() for s in items])


def model(nodes, inputs, outputs, weights=(), opset=17, functions=(), domains=()):
    graph = helper.make_graph(nodes, "g", inputs, [value(o, None) for o in outputs.split()], weights)
    opsets = [helper.make_opsetid("", opset)] if opset else []
    opsets += [helper.make_opsetid(*d) if isinstance(d, tuple) else helper.make_opsetid(d, 1) for d in domains]
    m = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)
    if not opset:
        del m.opset_import[:]
    return m


def produced_by(m, producer):
    m.producer_name = producer
    return m


def body(nodes, inputs, outputs):
    return helper.make_graph(nodes, "body", [value(i, None) for i in inputs.split()], [value(o, None) for o in outputs.split()])


def save(name, m):
    with open(os.path.join(HERE, name + ".onnx"), "wb") as f:
        f.write(m if isinstance(m, bytes) else m.SerializeToString())
