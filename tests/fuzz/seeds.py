"""Writes the seed models of fuzz_onnx: small ones, with as many kinds of nodes, attributes and
initializers as fit.

    python3 tests/fuzz/seeds.py tests/fuzz/seeds
"""

import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
rng = np.random.default_rng(0)


def weight(name, *shape):
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def write(name, nodes, inputs, outputs, initializers=(), opset=17, functions=(), domains=()):
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs], list(initializers))
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions),
                              producer_name="", ir_version=8)
    onnx.save(model, os.path.join(sys.argv[1], name + ".onnx"))


node = helper.make_node

write("mlp", [
    node("Gemm", ["x", "w0", "b0"], ["h"], transB=1, alpha=0.5, beta=2.0),
    node("Relu", ["h"], ["r"]),
    node("MatMul", ["r", "w1"], ["m"]),
    node("Add", ["m", "b1"], ["a"]),
    node("LogSoftmax", ["a"], ["y"], axis=-1),
], [("x", FLOAT, ["batch", 4])], [("y", FLOAT, ["batch", 3])],
    [weight("w0", 5, 4), weight("b0", 5), weight("w1", 5, 3), weight("b1", 3)])

write("cnn", [
    node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
    node("BatchNormalization", ["c", "g", "b", "mean", "var"], ["n"], epsilon=1e-3),
    node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    node("Conv", ["p", "w2", "g"], ["d"], group=4, dilations=[1, 1], auto_pad="SAME_UPPER"),
    node("AveragePool", ["d"], ["q"], kernel_shape=[2, 2], count_include_pad=1, pads=[1, 0, 0, 1]),
    node("GlobalAveragePool", ["q"], ["s"]),
    node("Flatten", ["s"], ["y"], axis=1),
], [("x", FLOAT, ["batch", 3, 8, 8])], [("y", FLOAT, ["batch", 4])],
    [weight("w", 4, 3, 3, 3), weight("g", 4), weight("b", 4), weight("mean", 4),
     numpy_helper.from_array(np.full(4, 0.5, np.float32), "var"), weight("w2", 4, 1, 3, 3)])

write("transformer", [
    node("Gather", ["embed", "ids"], ["e"]),
    node("LayerNormalization", ["e", "g", "b"], ["l"], axis=-1, epsilon=1e-5),
    node("MatMul", ["l", "wqkv"], ["qkv"]),
    node("Split", ["qkv", "thirds"], ["q", "k", "v"], axis=-1),
    node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
    node("MatMul", ["q", "kt"], ["scores"]),
    node("Constant", [], ["scale"], value_float=0.5),
    node("Mul", ["scores", "scale"], ["scaled"]),
    node("Softmax", ["scaled"], ["p"], axis=-1),
    node("Dropout", ["p", "ratio", "training"], ["pd", "mask"], seed=3),
    node("MatMul", ["pd", "v"], ["o"]),
    node("Erf", ["o"], ["erf"]),
    node("Add", ["e", "erf"], ["r"]),
    node("ReduceMean", ["r"], ["y"], axes=[1], keepdims=0),
], [("ids", INT64, ["batch", 6])], [("y", FLOAT, ["batch", 4])],
    [weight("embed", 9, 4), weight("g", 4), weight("b", 4), weight("wqkv", 4, 12),
     ints("thirds", 4, 4, 4), numpy_helper.from_array(np.float32(0.1), "ratio"),
     numpy_helper.from_array(np.array(True), "training")])

write("shapes", [
    node("Shape", ["x"], ["s"]),
    node("Gather", ["s", "zero"], ["n"], axis=0),
    node("Unsqueeze", ["n", "axis"], ["n1"]),
    node("Concat", ["n1", "minus"], ["to"], axis=0),
    node("Reshape", ["x", "to"], ["flat"]),
    node("Slice", ["flat", "starts", "ends", "axis1", "steps"], ["cut"]),
    node("Pad", ["cut", "pads", "fill"], ["padded"], mode="constant"),
    node("Range", ["zero", "four", "one"], ["range"]),
    node("Cast", ["range"], ["f"], to=FLOAT),
    node("Expand", ["f", "wide"], ["e"]),
    node("ConstantOfShape", ["wide"], ["c"],
         value=helper.make_tensor("v", FLOAT, [1], [2.0])),
    node("Where", ["condition", "e", "c"], ["w"]),
    node("Squeeze", ["w", "axis"], ["sq"]),
    node("Tile", ["sq", "four1"], ["t"]),
    node("CumSum", ["t", "zero"], ["cs"], exclusive=1, reverse=1),
    node("ArgMax", ["padded"], ["am"], axis=1, keepdims=0),
    node("GatherElements", ["cs", "pick"], ["y"], axis=0),
], [("x", FLOAT, [2, 3, 4])], [("y", FLOAT, [2]), ("padded", FLOAT, None), ("am", INT64, None)],
    [ints("axis", 0), ints("axis1", 1), ints("minus", -1), ints("starts", 10), ints("ends", -12),
     ints("steps", -2), ints("pads", 0, 1, 0, 2), ints("wide", 1, 4), ints("four1", 2),
     numpy_helper.from_array(np.array(0, np.int64), "zero"),
     numpy_helper.from_array(np.array(4, np.int64), "four"),
     numpy_helper.from_array(np.array(1, np.int64), "one"),
     numpy_helper.from_array(np.float32(1.5), "fill"),
     numpy_helper.from_array(np.array([True, False, True, False]), "condition"),
     ints("pick", 0, -1)])

write("elementwise", [
    node("Gelu", ["x"], ["a"], approximate="tanh"),
    node("Clip", ["a", "low", "high"], ["b"]),
    node("HardSwish", ["b"], ["c"]),
    node("Elu", ["c"], ["d"], alpha=0.3),
    node("LeakyRelu", ["d"], ["e"], alpha=0.2),
    node("Pow", ["e", "two"], ["f"]),
    node("Sqrt", ["f"], ["g"]),
    node("PRelu", ["g", "slope"], ["h"]),
    node("Max", ["h", "x", "slope"], ["i"]),
    node("Sum", ["i", "x"], ["j"]),
    node("Less", ["j", "x"], ["k"]),
    node("Not", ["k"], ["l"]),
    node("Cast", ["l"], ["m"], to=TensorProto.FLOAT16),
    node("Cast", ["m"], ["n"], to=FLOAT),
    node("ReduceL2", ["n", "axes"], ["o"], keepdims=1),
    node("Div", ["n", "o"], ["y"]),
], [("x", FLOAT, ["N", 4])], [("y", FLOAT, ["N", 4])],
    [numpy_helper.from_array(np.float32(-1), "low"), numpy_helper.from_array(np.float32(1), "high"),
     numpy_helper.from_array(np.float32(2), "two"), weight("slope", 4), ints("axes", 1)], opset=20)

write("loss", [
    node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["loss", "p"], reduction="mean",
         ignore_index=-1),
    node("NegativeLogLikelihoodLoss", ["p", "labels", "w"], ["nll"], reduction="sum"),
], [("x", FLOAT, ["N", 5, 3]), ("labels", INT64, ["N", 3])],
    [("loss", FLOAT, []), ("nll", FLOAT, [])], [weight("w", 5)])

# A function of the model, a subgraph, an unused domain, nodes in the wrong order.
body = helper.make_function(
    "local", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["s"]), node("Relu", ["s"], ["b"])],
    [helper.make_opsetid("", 17)])
write("function", [
    node("Twice", ["t"], ["y"], domain="local"),
    node("Twice", ["x"], ["t"], domain="local"),
    node("If", ["yes"], ["z"],
         then_branch=helper.make_graph([node("Identity", ["y"], ["i"])], "then", [],
                                       [helper.make_tensor_value_info("i", FLOAT, None)]),
         else_branch=helper.make_graph([node("Neg", ["y"], ["j"])], "else", [],
                                       [helper.make_tensor_value_info("j", FLOAT, None)])),
], [("x", FLOAT, ["N", 2])], [("y", FLOAT, ["N", 2]), ("z", FLOAT, None)],
    [numpy_helper.from_array(np.array(True), "yes")], functions=[body],
    domains=["local", "com.example.never"])

# Initializers as lists of numbers, of other types, external, and sparse.
external = TensorProto(name="e", data_type=FLOAT, dims=[2, 2],
                       data_location=TensorProto.EXTERNAL)
for key, value in ("location", "e.bin"), ("offset", "0"), ("length", "16"):
    entry = external.external_data.add()
    entry.key, entry.value = key, value
write("tensors", [
    node("Cast", ["d"], ["df"], to=FLOAT), node("Cast", ["h"], ["hf"], to=FLOAT),
    node("Cast", ["i"], ["if"], to=FLOAT), node("Cast", ["u"], ["uf"], to=FLOAT),
    node("Sum", ["x", "f", "df", "hf", "if", "uf"], ["s"]), node("MatMul", ["s", "e"], ["y"]),
], [("x", FLOAT, [2, 2])], [("y", FLOAT, [2, 2])],
    [helper.make_tensor("f", FLOAT, [2, 2], [1, 2, 3, 4]),
     helper.make_tensor("d", TensorProto.DOUBLE, [2], [1.5, 2.5]),
     helper.make_tensor("h", TensorProto.FLOAT16, [2], [1.5, 2.5]),
     helper.make_tensor("i", TensorProto.INT32, [2], [7, -7]),
     helper.make_tensor("u", TensorProto.UINT8, [2], [7, 255]), external])


def annotated(name, stages):
    """Annotations of four devices as two by two, or as two stages of two, with groups and factors."""
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["h"], "a"), node("Relu", ["h"], ["r"], "b"),
         node("MatMul", ["r", "v"], ["y"], "c")], name,
        [helper.make_tensor_value_info("x", FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", FLOAT, ["batch", 4])], [weight("w", 4, 8), weight("v", 8, 4)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="", ir_version=11)
    model.configuration.add(name="four", num_devices=4, device=["p", "q", "r", "s"])
    for n, stage in zip(model.graph.node, stages):
        to = n.device_configurations.add(configuration_id="four")
        if stage is not None:
            to.pipeline_stage = stage
        spec = to.sharding_spec.add(tensor_name=n.output[0])
        devices = [0, 1, 2, 3] if stage is None else [2 * stage, 2 * stage + 1]
        half = len(devices) // 2
        for i, group in enumerate([devices[:half], devices[half:]]):
            spec.device.append(-1 - i)
            spec.index_to_device_group_map.add(key=-1 - i, value=group)
        cut = spec.sharded_dim.add(axis=-1)
        cut.simple_sharding.add(dim_value=2, num_shards=2)
        cut.simple_sharding.add(num_shards=1)
    onnx.save(model, os.path.join(sys.argv[1], name + ".onnx"))


annotated("annotated", [None, None, None])
annotated("stages", [0, 1, 1])
