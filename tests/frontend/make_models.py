"""Writes inputs/*.onnx, the small models of these tests.

    python3 tests/frontend/make_models.py        needs the onnx and numpy packages

The files are committed, so that running the tests needs neither.  Each function below, and in the
modules that it imports, is one model, named like its file; its docstring gives its error or peculiarity.
"""

import os

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import make_attention
import make_control_flow
import make_lengths
import make_sequences
from model_parts import BOOL, F32, HERE, I64, body, ints, model, node, numbers, produced_by, save, value, weight, words


def mlp(shape=("N", 4)):
    return model(
        [node("Gemm", "x w b", "h", "/fc", transB=1), node("Relu", "h", "y", "/act")],
        [value("x", shape)], "y", [weight("w", 3, 4), weight("b", 3)])


# -- Untidy -----------------------------------------------------------------------------------

def unsorted():
    """Nodes stand in the opposite order."""
    return model([node("Exp", "c", "y", "/3"), node("Neg", "b", "c", "/2"), node("Abs", "a", "b", "/1")],
                 [value("a", [2])], "y")


def no_opset():
    """No opset_import: opset 1 by rule, with a Softmax that flattens from axis 1 on."""
    return model([node("Softmax", "x", "y", "/s")], [value("x", [2, 3, 4])], "y", opset=0)


def domains():
    """Imports domains of vendors and never uses them."""
    return model([node("Abs", "x", "y")], [value("x", [2])], "y",
                 domains=["com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml", "org.pytorch.aten"])


def initializer_inputs():
    """As in IR version 3, initializers stand among the inputs as well."""
    m = mlp()
    m.graph.input.extend([value("w", [3, 4]), value("b", [3])])
    return m


def dead():
    """A branch that no output needs, with an operator that is not supported."""
    return model([node("Abs", "x", "y"), node("Nonsense", "x", "z"), node("Mul", "z w", "u")],
                 [value("x", [2])], "y", [weight("w", 2)])


def function():
    """A function of the model's own, with a default of an attribute, and called with another."""
    f = helper.make_function(
        "my", "Leaky", ["x"], ["y"],
        [helper.make_node("LeakyRelu", ["x"], ["t"], name="relu"),
         helper.make_node("Identity", ["t"], ["y"])],
        [helper.make_opsetid("", 17)], [], [helper.make_attribute("slope", 0.25)])
    reference = f.node[0].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", 1
    return model([helper.make_node("Leaky", ["x"], ["a"], domain="my", name="/one"),
                  helper.make_node("Leaky", ["a"], ["y"], domain="my", name="/two", slope=0.5)],
                 [value("x", [2])], "y", functions=[f], domains=["my"])


def shape_chain():
    """The nodes that exporters write for x.view(x.shape[0], -1, 2 * 2)."""
    return model(
        [node("Shape", "x", "s", "/shape"), node("Gather", "s zero", "n", "/gather"),
         node("Unsqueeze", "n axes", "n1", "/unsqueeze"), node("Mul", "two two", "four", "/mul"),
         node("Concat", "n1 rest four", "shape", "/concat", axis=0), node("Reshape", "x shape", "y", "/view")],
        [value("x", ["N", 8])], "y",
        [numpy_helper.from_array(np.array(0), "zero"), ints("axes", 0), ints("two", 2), ints("rest", -1)])


def positions():
    """Range, ConstantOfShape, Where, Equal and Expand, as for positions and expanded masks."""
    return model(
        [node("Shape", "x", "s"), node("Gather", "s one", "t"), node("Range", "zero t one", "p"),
         node("ConstantOfShape", "two", "ones", value=numpy_helper.from_array(np.array([1], np.int64))),
         node("Equal", "want minus", "is"), node("Where", "is ones want", "shape"),
         node("Expand", "p shape", "e", "/expand"), node("Add", "x e", "y", "/add")],
        [value("x", ["N", "T"], I64)], "y",
        [numpy_helper.from_array(np.array(v), n) for n, v in (("zero", 0), ("one", 1))] +
        [ints("two", 2), ints("want", -1, -1), ints("minus", -1, -1)])


def forms():
    """The same operator with its settings as attributes (opset 11) …"""
    return model([node("Squeeze", "x", "a", axes=[1]), node("Unsqueeze", "a", "b", axes=[0, 3]),
                  node("ReduceSum", "b", "c", axes=[-1], keepdims=0),
                  node("Split", "c", "d e", axis=2, split=[1, 3]),
                  node("Clip", "e", "y", min=0.0, max=6.0)],
                 [value("x", [2, 1, 4])], "d y", opset=11)


def forms_13():
    """… and as operands (opset 13)."""
    return model([node("Squeeze", "x one", "a"), node("Unsqueeze", "a ends", "b"),
                  node("ReduceSum", "b last", "c", keepdims=0),
                  node("Split", "c parts", "d e", axis=2),
                  node("Constant", "", "low", value_float=0.0), node("Constant", "", "high", value_float=6.0),
                  node("Clip", "e low high", "y")],
                 [value("x", [2, 1, 4])], "d y",
                 [ints("one", 1), ints("ends", 0, 3), ints("last", -1), ints("parts", 1, 3)], opset=13)


def types():
    """f16 raw, f64 as a list of numbers, bf16 in int32_data: all are f32 here."""
    h = numpy_helper.from_array(np.array([1, 2], np.float16), "h")
    d = helper.make_tensor("d", TensorProto.DOUBLE, [2], [0.5, 0.25])
    b = TensorProto(name="b", data_type=TensorProto.BFLOAT16, dims=[2], int32_data=[0x3f80, 0x4000])
    cast = [node("Cast", "x", "xh", to=TensorProto.FLOAT16), node("Add", "xh h", "p"),
            node("Cast", "p", "pd", to=TensorProto.DOUBLE), node("Add", "pd d", "q"),
            node("Cast", "q", "qb", to=TensorProto.BFLOAT16), node("Add", "qb b", "y")]
    return model(cast, [value("x", [2])], "y", [h, d, b])


def initializer_output():
    """An initializer that no node reads is an output, as it is; so is one that a node reads."""
    return model([node("Mul", "x w", "y", "/mul")], [value("x", [2])], "y unread w", [weight("w", 2), weight("unread", 3)])


def wide_windows():
    """Windows whose last element is beyond the largest size, and those that the padding alone fills."""
    return model([node("MaxPool", "x", "a", "/dilated", kernel_shape=[3], dilations=[2 ** 31 - 1]),
                  node("AveragePool", "x", "b", "/kernel", kernel_shape=[2 ** 31 - 1], pads=[2 ** 31 - 1, 2 ** 31 - 1]),
                  node("MaxPool", "x", "c", "/beyond", kernel_shape=[2 ** 40])], [value("x", [1, 1, 8])], "a b c")


def bit_casts():
    """The bits of f32 are read; those of f16 and f64, which are computed in f32, are not."""
    return model([node("BitCast", "x", "y", "/bits", to=TensorProto.INT32)], [value("x", [2])], "y", opset=26)


def bit_cast_errors():
    """Types that are computed in others, or have another size."""
    i32 = [node("BitCast", "i", f"y{k}", f"/{k}", to=to) for k, to in (
        ("double", TensorProto.DOUBLE), ("half", TensorProto.FLOAT16), ("narrow", TensorProto.UINT4), ("bytes", TensorProto.UINT8))]
    return model(i32 + [node("BitCast", "d", "z", "/from_double", to=I64), node("BitCast", "b", "w", "/bool", to=BOOL)],
                 [value("i", [2], TensorProto.INT32), value("d", [2], TensorProto.DOUBLE), value("b", [2], TensorProto.UINT8)],
                 "ydouble yhalf ynarrow ybytes z w", opset=26)


def named_twice():
    """A buffer, and the output of a node that the exporter named likewise."""
    return model([node("ReduceMean", "x", "mean", "/mean"), node("Add", "x mean", "y")], [value("x", [2, 3])], "y",
                 [weight("mean", 3)])


def too_large():
    """A mask of f64 that f32 cannot hold."""
    mask = numpy_helper.from_array(np.array([-1e300, 1e300]), "mask")
    return model([node("Cast", "x", "xd", to=TensorProto.DOUBLE), node("Add", "xd mask", "y")], [value("x", [2])], "y", [mask])


def attribute_types():
    """Attributes that hold something else than they should; one without its zero, as proto3 writes it, is right."""
    m = model([node("Concat", "x x", "a", "/zero", axis=0), node("Softmax", "a", "b", "/text", axis="last"),
               node("Flatten", "a", "c", "/list", axis=[1]), node("LeakyRelu", "a", "d", "/integer", alpha=1),
               node("Transpose", "a", "e", "/number", perm=1), node("Split", "a", "f g", "/nothing", axis=0)],
              [value("x", (3, 4))], "b c d e f g")
    m.graph.node[0].attribute[0].ClearField("i")
    for field in "i", "type":
        m.graph.node[5].attribute[0].ClearField(field)
    return m


def attribute_zero():
    """A zero that is left out."""
    m = model([node("Concat", "x x", "y", axis=0)], [value("x", (3, 4))], "y")
    m.graph.node[0].attribute[0].ClearField("i")
    return m


def function_powers():
    """Each of 40 functions calls the one before it twice."""
    def function(i):
        calls = ([node("Relu", "x", "h"), node("Relu", "h", "y")] if i == 0 else
                 [helper.make_node(f"f{i - 1}", [a], [b], domain="f") for a, b in ("xh", "hy")])
        return helper.make_function("f", f"f{i}", ["x"], ["y"], calls, [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)])
    return model([helper.make_node("f39", ["x"], ["y"], domain="f")], [value("x", (3, 4))], "y",
                 functions=[function(i) for i in range(40)], domains=["f"])


def own_names(x="step", w="seed", b="target"):
    """Tensors called as the inputs and scalars of a step are: an input `step`, weights `seed` and `target`."""
    yes = numpy_helper.from_array(np.array(True), "yes")
    half = numpy_helper.from_array(np.array(0.5, np.float32), "half")
    return model([node("MatMul", f"{x} {w}", "h"), node("Add", f"h {b}", "z"), node("Dropout", "z half yes", "y", "/drop")],
                 [value(x, [4, 2])], "y", [weight(w, 2, 3), weight(b, 3), half, yes])


KIND, SOURCES = "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.onnxscript.optimizer.folded_from"


def origins():
    """Initializers with the metadata of PyTorch's exporter: a parameter, its transpose, a buffer, a number."""
    m = model([node("MatMul", "x w", "a"), node("Add", "a freqs", "b"), node("MatMul", "b val_9", "c"),
               node("Mul", "c val_33", "y")],
              [value("x", [1, 2])], "y",
              [weight("w", 2, 2), weight("freqs", 2), weight("val_9", 2, 3),
               numpy_helper.from_array(np.array(0.5, np.float32), "val_33")])
    for name, key, text in (("w", KIND, "PARAMETER"), ("freqs", KIND, "BUFFER"), ("val_9", SOURCES, "['fc.weight']"),
                            ("val_33", SOURCES, "['val_13']")):
        v = m.graph.value_info.add(name=name)
        v.metadata_props.add(key=key, value=text)
    return m


def group_norm_of_pytorch():
    """GroupNorm as PyTorch exports it before opset 18: InstanceNormalization of the groups, with a scale of ones."""
    def constant(name, array):
        return node("Constant", "", name, value=numpy_helper.from_array(array, ""))
    m = model([constant("groups", np.array([0, 2, -1])), constant("ones", np.ones(2, np.float32)),
               constant("zeros", np.zeros(2, np.float32)), node("Reshape", "x groups", "r", "/Reshape"),
               node("InstanceNormalization", "r ones zeros", "i", "/InstanceNormalization", epsilon=1e-5),
               node("Shape", "x", "shape", "/Shape"), node("Reshape", "i shape", "q", "/Reshape_1"),
               node("Mul", "q g", "s", "/Mul"), node("Add", "s b", "y", "/Add")],
              [value("x", [2, 4, 3, 3])], "y", [weight("g", 4, 1, 1), weight("b", 4, 1, 1)])
    m.producer_name = "pytorch"
    return m


def detached():
    """Straight-through rounding, y = h + (round(h) - h).detach(), and a gate that is computed under no_grad()."""
    m = model([node("MatMul", "x w", "h", "node_h"), node("Round", "h", "r", "node_round"), node("Sub", "r h", "s", "node_sub"),
               node("Identity", "s", "d", "node_detach"), node("Add", "h d", "q", "node_add"),
               node("MatMul", "x v", "u", "node_u"), node("Identity", "u", "gate", "node_detach_1"),
               node("Identity", "q", "p", "node_alias"), node("Mul", "p gate", "y", "node_y")],
              [value("x", [1, 2])], "y", [weight("w", 2, 2), weight("v", 2, 2)])
    for n in m.graph.node:
        if n.name.startswith("node_detach"):
            n.metadata_props.add(key="pkg.torch.onnx.fx_node", value=f"%detach : [num_users=1] = call_function[target="
                                 f"torch.ops.aten.detach.default](args = (%{n.input[0]},), kwargs = {{}})")
    return m


def copied():
    """y = (h + h) v: one h through an Identity, the other through a function that copies it."""
    f = helper.make_function("my", "Copy", ["a"], ["b"], [helper.make_node("Identity", ["a"], ["b"], name="of")],
                             [helper.make_opsetid("", 17)])
    return model([node("MatMul", "x w", "h", "/h"), node("Identity", "h", "c", "/copy"),
                  helper.make_node("Copy", ["h"], ["f"], domain="my", name="/call"), node("Add", "c f", "a", "/add"),
                  node("MatMul", "a v", "y", "/y")],
                 [value("x", ["N", 2])], "y", [weight("w", 2, 2), weight("v", 2, 2)], functions=[f], domains=["my"])


def told():
    """Initializers with the metadata of nnaot-export, which decides, whatever their names and values."""
    m = model([node("Gather", "embed ids", "e", "/embed"), node("Gather", "plain ids", "p", "/plain"),
               node("Add", "e p", "a", "/a"), node("Mul", "a onnx::Mul_7", "b", "/b"), node("Add", "b bias", "c", "/c"), node("Mul", "c table", "y", "/y")],
              [value("ids", [3], I64)], "y",
              [weight("embed", 5, 2), weight("plain", 5, 2), weight("onnx::Mul_7", 2), weight("bias", 2), weight("table", 2)])
    for name, kind in (("embed", "PARAMETER embedding padding_idx=4"), ("plain", "PARAMETER"), ("onnx::Mul_7", "CONSTANT"),
                       ("bias", "FROZEN"), ("table", "BUFFER")):
        m.metadata_props.add(key=f"nnaot.weight/{name}", value=kind)
    return m


def parameters():
    """Weights without metadata: all floating ones are trained, except by their names, values or readers."""
    f32 = lambda name, x: numpy_helper.from_array(np.array(x, np.float32), name)
    return model(
        [node("Cast", "image", "i", "/i", to=F32), node("Sub", "i mean", "centred", "/sub"),
         node("Div", "centred std", "scaled", "/div"), node("Conv", "scaled w", "c", "/conv"),
         node("Mul", "c gain", "g", "/gain"), node("Add", "g mask", "masked", "/mask"),
         node("Mul", "masked /Constant_output_0", "m1", "/m1"), node("Mul", "m1 onnx::Mul_7", "m2", "/m2"),
         node("Mul", "m2 model/half", "m3", "/m3"), node("Mul", "m3 model/gamma/ReadVariableOp:0", "m4", "/m4"),
         node("Mul", "m4 logit_scale", "m5", "/m5"), node("ReduceMean", "m5", "var", "/var", keepdims=1),
         node("Add", "var eps", "ve", "/ve"), node("Sqrt", "ve", "sd", "/sd"), node("Div", "m5 sd", "n0", "/n0"),
         node("Mul", "n0 const_fold_opt__9", "n", "/n"), node("Pow", "n p", "q", "/pow"), node("ReduceMean", "q", "y", "/y", axes=[2, 3], keepdims=0),
         node("SoftmaxCrossEntropyLoss", "y labels cw", "loss", "/loss")],
        [value("image", [2, 3, 2, 2], TensorProto.UINT8), value("labels", [2], I64)], "loss",
        [f32("mean", [[[[1]], [[2]], [[3]]]]), f32("std", [[[[4]], [[5]], [[6]]]]), weight("w", 4, 3, 1, 1),
         f32("gain", [[[[1]], [[2]], [[3]], [[4]]]]), f32("mask", [[0, -np.inf], [0, 0]]),
         f32("/Constant_output_0", 0.5), f32("onnx::Mul_7", [0.5]), f32("model/half", 0.5), f32("const_fold_opt__9", [[[1]]]),
         f32("model/gamma/ReadVariableOp:0", 2), f32("logit_scale", 2), f32("eps", 1e-6), f32("p", [3]),
         weight("cw", 4)], opset=13)


def constant_weights():
    """Weights in Constant nodes, as paddle2onnx writes them; the scale and the shape are none."""
    def held(name, array):
        return helper.make_node("Constant", [], [name], name=f"/{name}", value=numpy_helper.from_array(array, "inner"))

    numbers = np.arange(1, 25, dtype=np.float32)
    return produced_by(model(
        [held("w", numbers[:8].reshape(2, 4)), held("b", numbers[:2]), held("f", numbers[:6].reshape(2, 3)),
         held("bias", numbers[:3]), held("scale", numbers[:3]), node("Gemm", "x w b", "h", "/gemm", transB=1),
         node("MatMul", "h f", "m", "/matmul"), node("Add", "m bias", "a", "/add"), node("Mul", "a scale", "y", "/mul")],
        [value("x", ["batch", 4])], "y"), "paddle2onnx")


def diagonal():
    """Einsum with a name that stands twice in one operand."""
    return model([node("Einsum", "x w", "y", "/einsum", equation="bij,jj->bij")], [value("x", ["batch", 2, 3])], "y", [weight("w", 3, 3)])


def image_errors():
    """Operators of images with attributes and operands that they do not have."""
    return model(
        [node("ConvTranspose", "x w", "a", "/pads", pads=[4, 4, 4, 4]),
         node("ConvTranspose", "x w", "b", "/length", output_shape=[9]),
         node("ConvTranspose", "x v", "c", "/channels"),
         node("ConvTranspose", "x w", "d", "/auto", auto_pad="SAME"),
         node("Resize", ["x"], "e", "/none"),
         node("Resize", ["x", "", "two", "sizes"], "f", "/both"),
         node("Resize", ["x", "", "three"], "g", "/three"),
         node("Resize", ["x", "", "given"], "h", "/data"),
         node("Resize", ["x", "", "two"], "i", "/mode", mode="area"),
         node("Resize", ["x", "", "two"], "j", "/antialias", antialias=1),
         node("Resize", ["x", "", "two"], "k", "/transformation", coordinate_transformation_mode="half"),
         node("Resize", ["n", "", "two"], "l", "/integers", mode="linear"),
         node("Resize", ["x", "", "two"], "m", "/crop", coordinate_transformation_mode="tf_crop_and_resize"),
         node("Resize", ["x", "", "axes"], "o", "/axes", axes=[1, -3]),
         node("Resize", ["x", "", "minus"], "p", "/minus"),
         node("Resize", ["x", "", "two"], "q", "/policy", keep_aspect_ratio_policy="square")],
        [value("x", [1, 2, 5, 5]), value("n", [1, 2, 5, 5], I64), value("given", [4])], "a b c d e f g h i j k l m o p q",
        [weight("w", 2, 3, 3, 3), weight("v", 3, 3, 3, 3), ints("sizes", 1, 2, 10, 10), numbers("two", 1, 1, 2, 2),
         numbers("three", 1, 2, 2), numbers("axes", 2, 2), numbers("minus", 1, 1, -2, 2)], opset=18)


def sampling_errors():
    """Operators of points and windows with attributes and operands that they do not have."""
    return model(
        [node("GridSample", "x points", "a", "/points"),
         node("GridSample", "x grid", "b", "/mode", mode="area"),
         node("GridSample", "x grid", "c", "/padding", padding_mode="wrap"),
         node("AffineGrid", "theta three", "d", "/size"),
         node("AffineGrid", "theta five", "e", "/matrix"),
         node("RoiAlign", "x rois image", "f", "/adaptive"),
         node("RoiAlign", "x rois image", "g", "/sum", mode="sum", sampling_ratio=2),
         node("RoiAlign", "x rois rois", "h", "/images", sampling_ratio=2),
         node("MaxRoiPool", "x rois", "s", "/five", pooled_shape=[2, 2]),
         node("MaxRoiPool", "x boxes", "t", "/pooled"),
         node("MaxRoiPool", "x boxes", "u", "/bins", pooled_shape=[2, 0]),
         node("MaxRoiPool", "tower boxes", "ad", "/tower", pooled_shape=[2, 2]),
         node("DeformConv", "x filter offset", "v", "/offset"),
         node("DeformConv", "x filter moved", "w", "/group", group=3),
         node("DeformConv", "x filter moved", "z", "/own", offset_group=3),
         node("DeformConv", ["x", "filter", "moved", "", "moved"], "aa", "/mask"),
         node("DeformConv", ["x", "filter", "moved", "offset"], "ab", "/bias"),
         node("Det", "boxes", "ac", "/square"),
         node("LpPool", "x", "i", "/p", kernel_shape=[2, 2], p=0),
         node("MaxUnpool", "x index", "j", "/overlap", kernel_shape=[3, 3], strides=[2, 2]),
         node("MaxUnpool", "x index small", "k", "/small", kernel_shape=[2, 2], strides=[2, 2]),
         node("Col2Im", "rows image_shape block", "l", "/blocks"),
         node("CenterCropPad", "x three", "m", "/crop"),
         node("ConvTranspose", "long kernel", "o", "/long", strides=[2]),
         node("Resize", ["long", "", "twice"], "q", "/stretched"),
         node("Resize", ["none", "", "", "tall"], "r", "/empty")],
        [value("x", [1, 2, 5, 5]), value("long", [1, 1, 1 << 40]), value("none", [1, 1, 0]), value("points", [1, 3, 3, 3]), value("grid", [1, 3, 3, 2]), value("theta", [1, 2, 3]),
         value("boxes", [2, 5]), value("tower", [1, 1, 1 << 40, 2]), value("offset", [1, 4, 4, 4]), value("moved", [1, 8, 4, 4]),
         value("rois", [2, 4]), value("image", [2], I64), value("index", [1, 2, 5, 5], I64), value("rows", [1, 8, 9])],
        "a b c d e f g h i j k l m o q r s t u v w z aa ab ac ad",
        [weight("filter", 3, 2, 2, 2), ints("three", 1, 2, 3), ints("five", 1, 2, 3, 4, 5), ints("small", 1, 2, 9, 10), ints("image_shape", 4, 5),
         ints("block", 2, 2), weight("kernel", 1, 1, 3), numbers("twice", 1, 1, 2), ints("tall", 1, 1, 4)], opset=20)


def clipped(high="high"):
    """Integers with bounds in f32, cast as PyTorch's exporter writes them, or a bound that is not whole."""
    return model(
        [node("Cast", "zero", "low", "/low", to=F32), node("Cast", "seven", "high", "/high", to=F32),
         node("Constant", "", "half", "/constant", value_float=0.5),
         node("Clip", f"x low {high}", "y", "/clip")],
        [value("x", [2, 3], I64)], "y", [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in (("zero", 0), ("seven", 7))],
        opset=11)


def resized():
    """Linear interpolation of rows and columns by scales, to which no policy applies, and integers of the nearest columns, of
    which the last is outside."""
    return model(
        [node("Resize", ["x", "", "twice"], "y", "/linear", mode="linear", keep_aspect_ratio_policy="not_smaller"),
         node("Resize", ["n", "roi", "", "sizes"], "z", "/nearest", coordinate_transformation_mode="tf_crop_and_resize",
              extrapolation_value=7.0, axes=[1])],
        [value("x", [1, 2, 2, 4]), value("n", [2, 3], I64)], "y z",
        [numbers("twice", 1, 1, 2, 0.5), numbers("roi", 0, 1.5), ints("sizes", 4)], opset=18)


def signal_errors():
    """Frames, windows and mel weights that do not exist."""
    return model(
        [node("STFT", "x minus", "a", "/step"), node("STFT", "x two _ long", "b", "/length"),
         node("STFT", "z two", "c", "/onesided"), node("STFT", "x two w", "d", "/window"),
         node("HannWindow", "minus", "e", "/size"), node("HannWindow", "two", "f", "/type", output_datatype=8),
         node("HannWindow", "n", "g", "/data"),
         node("MelWeightMatrix", "two long rate low high", "h", "/edges"),
         node("MelWeightMatrix", "two long rate high low", "i", "/order")],
        [value("x", (1, 8, 1)), value("z", (1, 8, 2)), value("w", (1, 2)), value("n", (), I64)], "a b c d e f g h i",
        [numpy_helper.from_array(np.int64(v), k) for k, v in (("long", 9), ("two", 2), ("minus", -1), ("rate", 16000))] +
        [numpy_helper.from_array(np.float32(v), k) for k, v in (("low", 0), ("high", 90000))], opset=17)


def dft_errors():
    """Transforms that do not exist."""
    return model(
        [node("DFT", "x", "a", "/signal"), node("DFT", "z _ last", "b", "/last"), node("DFT", "z _ six", "c", "/axis"),
         node("DFT", "z", "d", "/onesided", onesided=1), node("DFT", "r", "e", "/real", onesided=1, inverse=1),
         node("DFT", "z minus", "f", "/length"), node("DFT", "o", "g", "/one", onesided=1, inverse=1),
         node("DFT", "z n", "h", "/data"), node("DFT", "r large", "i", "/large")],
        [value("x", (1, 8, 3)), value("z", (1, 8, 2)), value("r", (1, 8, 1)), value("o", (1, 1, 2)), value("n", (), I64)],
        "a b c d e f g h i",
        [numpy_helper.from_array(np.int64(v), k) for k, v in (("last", -1), ("six", 6), ("minus", -1), ("large", 1 << 40))],
        opset=20)


def quantized():
    """Weights and activations quantized and dequantized at once, as for training; a packed weight of 4 bits; blocks."""
    packed = helper.make_tensor("packed", TensorProto.INT4, (3, 3), np.arange(-4, 5))
    zeros = numpy_helper.from_array(np.array([0, 3, -2], dtype=np.int8), "zeros")
    scales = numpy_helper.from_array(np.array([0.5, 0.25, 1], dtype=np.float32), "scales")
    blocks = numpy_helper.from_array(np.array([[0.5, 2], [1, 4]], dtype=np.float32), "blocks")
    return model(
        [node("QuantizeLinear", "w scales zeros", "q", "/quantize", axis=0),
         node("DequantizeLinear", "q scales zeros", "a", "/dequantize", axis=0),
         node("MatMul", "x a", "h", "/matmul"),
         node("DequantizeLinear", "packed s", "p", "/unpack"), node("MatMul", "h p", "y", "/packed"),
         node("QuantizeLinear", "x blocks", "z", "/blocks", axis=1, block_size=2, output_dtype=TensorProto.FLOAT8E4M3FN),
         node("Cast", "x", "i", "/int2", to=TensorProto.INT2)],
        [value("x", (2, 3))], "y z i",
        [weight("w", 3, 3), packed, zeros, scales, blocks, numpy_helper.from_array(np.float32(0.5), "s")], opset=25)


def quantized_between():
    """Operators that move and select elements, between QuantizeLinear and DequantizeLinear."""
    return model(
        [node("Conv", "x w", "h", "/conv"), node("QuantizeLinear", "h s zero", "q", "/quantize"),
         node("MaxPool", "q", "m", "/pool", kernel_shape=[2, 2]), node("Transpose", "m", "t", "/transpose", perm=[0, 2, 3, 1]),
         node("Concat", "t t", "c", "/concat", axis=3), node("DequantizeLinear", "c s zero", "y", "/dequantize")],
        [value("x", (1, 2, 4, 4))], "y",
        [weight("w", 3, 2, 1, 1), numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.uint8(3), "zero")],
        opset=21)


def hostile():
    """Operands and attributes that contradict each other, are empty or overflow."""
    ms, big = "com.microsoft", 2 ** 62
    one = body([node("Identity", "go", "on"), node("Exp", "c", "d")], "i go c", "on d")
    scan = body([node("Add", "s a", "t")], "s a", "t")
    return model(
        [node("Attention", "x w6 b", "a1", "/rows", domain=ms, num_heads=2),
         node("Attention", "x w8 b", "a2", "/sizes", domain=ms, num_heads=2, qkv_hidden_sizes=[2 ** 63 - 1, 2 ** 63 - 1, 26]),
         node("MultiHeadAttention", "x kv _ none", "a3", "/bias", domain=ms, num_heads=2),
         node("DequantizeLinear", "q scales zeros", "a4", "/blocks", axis=1, block_size=big),
         node("QuantizeLinear", "x s zero32", "a5", "/zero"),
         node("GRU", "x w3 r3", "a6", "/hidden", hidden_size=big), node("LSTM", "x w4 r4 _ seq", "a7", "/lengths", hidden_size=2),
         node("OneHot", "eight depth values", "a8", "/dimensions"),
         node("Scan", "s x", "a9", "/scan", body=scan, num_scan_inputs=-2 ** 31),
         node("Loop", "seq _ s", "a10", "/loop", body=one)],
        [value("x", (2, 3, 8)), value("kv", (2, 3, 2, 2, 4)), value("q", (2, 4), TensorProto.UINT8),
         value("eight", (1,) * 8, I64)], " ".join(f"a{i}" for i in range(1, 11)),
        [weight("w6", 6, 24), weight("w8", 8, 24), weight("b", 24), weight("none", 0), weight("scales", 2, 3),
         numpy_helper.from_array(np.ones((2, 1), np.uint8), "zeros"), numpy_helper.from_array(np.float32(0.5), "s"),
         numpy_helper.from_array(np.int32(0), "zero32"), weight("w3", 1, 6, 8), weight("r3", 1, 6, 2), weight("w4", 1, 8, 8),
         weight("r4", 1, 8, 2), ints("seq", 2, 2, 2), ints("depth", 3),
         weight("values", 2)], opset=21, domains=[ms])


def quantized_errors():
    three = numpy_helper.from_array(np.ones(3, np.float32), "three")
    return model(
        [node("QuantizeLinear", "x three", "a", "/axis", axis=1), node("QuantizeLinear", "x three", "b", "/range", axis=2),
         node("QuantizeLinear", "x s", "c", "/string", output_dtype=TensorProto.STRING),
         node("QuantizeLinear", "x x", "d", "/blocks", block_size=3),
         node("QuantizeLinear", "x s", "e", "/float", output_dtype=TensorProto.DOUBLE),
         node("Cast", "x", "f", "/mode", to=24, round_mode="away")],
        [value("x", (3, 4))], "a b c d e f", [three, numpy_helper.from_array(np.float32(0.5), "s")], opset=25)


TRAINING = "ai.onnx.preview.training"


def gradient():
    """The gradient of a value that a later node computes, at weights and at values in between; and of others."""
    return model(
        [node("Gradient", "x w", "dx dw", "/gradient", domain=TRAINING, xs=["x", "w"], y="loss"),
         node("Mul", "x w", "h", "/mul"), node("Relu", "h", "r", "/relu"), node("ReduceSum", "r", "loss", "/sum", keepdims=0),
         node("Gradient", "h x", "dh", "/inner", domain=TRAINING, xs=["h"], zs=["x"], y="loss"),
         node("ArgMax", "x", "i", "/arg"), node("Gradient", "x", "none", "/none", domain=TRAINING, xs=["x"], y="i")],
        [value("x", (2, 3))], "dx dw dh none", [weight("w", 2, 3)], domains=[TRAINING])


def gradient_errors():
    return model(
        [node("Relu", "x", "y", "/relu"),
         node("Gradient", "z", "a", "/other", domain=TRAINING, xs=["x"], y="y"),
         node("Gradient", "x", "b", "/no_y", domain=TRAINING, xs=["x"], y="never"),
         node("Momentum", "x x x x", "c", "/operands", domain=TRAINING, alpha=0.9, beta=1.0, norm_coefficient=0.0, mode="standard"),
         node("Momentum", "r t x x x", "d", "/mode", domain=TRAINING, alpha=0.9, beta=1.0, norm_coefficient=0.0, mode="fast"),
         node("Gelu", "x", "e", "/unknown", domain="com.else")],
        [value("x", (2, 3)), value("z", (2, 3)), value("r", ()), value("t", (), I64)], "a b c d e",
        domains=[TRAINING, "com.else"])


def batch_norm(call=None, producer="pytorch", twice=False, **attributes):
    """One or two nodes with the same statistics; PyTorch's exporter records the call that made them."""
    outputs = "{} {}_m {}_v" if attributes.get("training_mode") else "{}"
    nodes = [node("BatchNormalization", f"{x} g b mean var", outputs.format(y, y, y), "/" + y, **attributes)
             for x, y in ([("x", "h"), ("h", "y")] if twice else [("x", "y")])]
    for n in nodes if call else ():
        n.metadata_props.add(key="pkg.torch.onnx.fx_node", value="%bn : [num_users=3] = call_function[target="
                             f"torch.ops.aten.{call}), kwargs = {{}})")
    m = model(nodes, [value("x", ["N", 3])], "y", [weight(w, 3) for w in ("g", "b", "mean", "var")])
    return produced_by(m, producer)


def untied(copy, tables=1, **metadata):
    """An embedding, and a product with its transpose: one parameter until an exporter folded the Transpose."""
    w = np.arange(20, dtype=np.float32).reshape(5, 4) / 7
    m = model([node("Gather", "e.weight i", "h"), node("MatMul", f"h {copy}", "y0")]
              + [node("Gather", f"again{k} i", f"h{k}") for k in range(1, tables)]
              + [node("Sum" if tables > 1 else "Identity", " ".join(["y0"] + [f"h{k}p" for k in range(1, tables)]), "y")]
              + [node("MatMul", f"h{k} {copy}", f"h{k}p") for k in range(1, tables)],
              [value("i", [3], I64)], "y",
              [numpy_helper.from_array(w, "e.weight"), numpy_helper.from_array(np.ascontiguousarray(w.T), copy)]
              + [numpy_helper.from_array(w, f"again{k}") for k in range(1, tables)])
    for name, (key, text) in metadata.items():
        m.graph.value_info.add(name=name.replace("_weight", ".weight")).metadata_props.add(key=key, value=text)
    return m


def made_one(reading, scopes=False):
    """Two norms that read one gain, by nodes of these modules; or a gain that an Identity gives a second name."""
    one = numpy_helper.from_array(np.ones(4, np.float32), "n1.weight")
    first, second = reading
    identity = second.endswith(".weight")
    nodes = [node("Identity", "n1.weight", second, "Identity_1")] if identity else []
    nodes += [node("LayerNormalization", "x n1.weight", "h",
                   "ln1" if scopes else f"/{first.replace('.', '/')}/LayerNormalization"),
              node("LayerNormalization", f"h {second if identity else 'n1.weight'}", "y",
                   "ln2" if scopes else f"/{second.removesuffix('.weight').replace('.', '/')}/LayerNormalization")]
    for n, module in zip(nodes, reading) if scopes else ():
        n.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'stack', '{module}', 'layer_norm']")
    return model(nodes, [value("x", [2, 4])], "y", [one])


def inference_forms():
    """Forms that --export changes: BatchNormalization and Dropout in training, also in a branch and a function."""
    yes = numpy_helper.from_array(np.array(True), "yes")
    branch_nodes = [node("BatchNormalization", "h g b mean var", "k k_m k_v", "/then/bn", training_mode=1)]
    then = helper.make_graph(branch_nodes, "then", [], [value("k", None)])
    other = helper.make_graph([node("Identity", "h", "k2")], "else", [], [value("k2", None)])
    f = helper.make_function(
        "my", "Drop", ["x", "r", "t"], ["y"],
        [helper.make_node("Dropout", ["x", "r", "t"], ["y", "mask"], name="drop")], [helper.make_opsetid("", 17)])
    return model(
        [node("BatchNormalization", "x g b mean var", "h h_m h_v", "/bn", training_mode=1, epsilon=0.5),
         node("If", "yes", "z", "/if", then_branch=then, else_branch=other),
         node("Dropout", "z r yes", "d mask", "/drop"),
         helper.make_node("Drop", ["d", "r", "yes"], ["y"], name="/call", domain="my"),
         node("Mul", "h_v h_m", "s", "/s")],
        [value("x", [4, 3])], "y s mask",
        [*(weight(w, 3) for w in ("g", "b", "mean", "var")), numpy_helper.from_array(np.array(0.5, np.float32), "r"), yes],
        functions=[f], domains=["my"])


def external(location="w.bin", offset="4", length="24", columns=3, **more):
    """The weight is in another file."""
    w = TensorProto(name="w", data_type=F32, dims=[2, columns], data_location=TensorProto.EXTERNAL)
    for key, text in dict(location=location, offset=offset, length=length, **more).items():
        if text is not None:
            w.external_data.add(key=key, value=text)
    return model([node("MatMul", "x w", "y", "/fc")], [value("x", [1, 2])], "y", [w])


def two_external():
    """Two weights in a file that is not there."""
    m = external("none.bin")
    v = m.graph.initializer.add()
    v.CopyFrom(m.graph.initializer[0])
    v.name, m.graph.output[0].name = "v", "z"
    m.graph.node.append(node("Add", "y row", "z", "/add"))
    m.graph.node.insert(1, node("ReduceSum", "v", "row", "/sum", keepdims=0))
    return m


# -- Wrong ------------------------------------------------------------------------------------

def cycle():
    """a reads c, c reads b, b reads a."""
    return model([node("Add", "x c", "a", "/a"), node("Neg", "a", "b", "/b"), node("Abs", "b", "c", "/c")],
                 [value("x", [2])], "c")


def missing():
    """The weight has been lost, and so has an output."""
    return model([node("MatMul", "x w", "y", "/fc")], [value("x", [1, 2])], "y z")


def twice():
    """Two nodes give the same name."""
    return model([node("Neg", "x", "y", "/a"), node("Abs", "x", "y", "/b")], [value("x", [2])], "y")


def unknown():
    """Unknown operators of two domains, their consumers, and an error of its own."""
    return model([node("Nonsense", "x", "a", "/n0"), node("Nonsense", "a w", "b", "/n1"),
                  helper.make_node("NhwcConv", ["x", "w"], ["c"], domain="com.microsoft", name="/gelu"),
                  node("Add", "b c", "d", "/hangs"), node("Reshape", "x shape", "e", "/view"),
                  node("Mul", "d e", "y", "/hangs_too")],
                 [value("x", [2, 3])], "y", [weight("w", 3), ints("shape", 4, 4)], domains=["com.microsoft"])


def sequence_first():
    """The batch is dimension 1, and nothing but its position says which dimension is it."""
    return model([node("Relu", "x", "y")], [value("x", ["time", "rows", 4])], "y")


def untrained():
    """Weights that the loss does not depend on, or only by an operator that stops the gradient."""
    return model([node("Floor", "w", "f", "/floor"), node("Mul", "x f", "a", "/mul"), node("Mul", "a v", "b", "/scale"),
                  node("ReduceSum", "b", "y", "/sum", keepdims=0), node("Relu", "u", "z", "/beside")],
                 [value("x", [2, 3])], "y z", [weight("w", 3), weight("v", 3), weight("u", 3)])


def newer_opset():
    """An opset that does not exist yet."""
    return model([node("Relu", "x", "y")], [value("x", [2])], "y", opset=99)


def odd_inputs():
    """Inputs without a shape, of strings, and of a sequence of tensors."""
    sequence = helper.make_tensor_sequence_value_info("s", F32, [2])
    return model([node("Relu", "x", "y")], [value("x", None), value("t", [2], TensorProto.STRING), sequence], "y")


def many_unknown():
    """One unknown operator, 17 times."""
    nodes = [node("Nonsense", "x" if i == 0 else f"a{i - 1}", f"a{i}", f"/n{i}") for i in range(17)]
    return model(nodes, [value("x", [2, 3])], "a16")


def one_round():
    """Problems of every kind after a failed node, whose result has a declared type, and their consequences."""
    m = model(
        [node("Nonsense", "x w", "a", "/missing"), node("Relu", "a", "r", "/relu"),
         node("ReduceSum", "r", "s", "/sum", keepdims=0),
         node("Gradient", "a", "da", "/gradient", domain=TRAINING, xs=["a"], y="s"),
         node("Mul", "da a", "p", "/again"), node("ReduceSum", "p", "loss", "/loss", keepdims=0),
         node("Concat", "a x", "b", "/form", axis=5), node("Nonsense", "x", "n", "/shape"), node("Reshape", "a n", "v", "/view"),
         node("Cast", "a", "t", "/cast", to=I64), node("Reshape", "x t", "u", "/settings"),
         node("BatchNormalization", "a g g g g", "bn", "/bn"), node("MatMul", "k k", "kk", "/matmul")],
        [value("x", ["N", 3]), value("k", [3, 3], TensorProto.UINT64)], "loss b v u bn kk",
        [weight("w", 3), weight("g", 3)], domains=[TRAINING])
    m.graph.value_info.append(value("a", ["N", 3]))
    return m


def recursion():
    """A function that calls itself."""
    f = helper.make_function("my", "F", ["x"], ["y"], [helper.make_node("F", ["x"], ["y"], domain="my", name="f")],
                             [helper.make_opsetid("my", 1)])
    return model([helper.make_node("F", ["x"], ["y"], domain="my", name="/f")], [value("x", [2])], "y",
                 functions=[f], domains=["my"])


def dims():
    """Free dimensions with and without a name."""
    m = model([node("Add", "x z", "y")], [value("x", ["N", "T", 4]), value("z", ["N", None, 4])], "y")
    m.graph.input[1].type.tensor_type.shape.dim[1].dim_value = -1
    return m


def second():
    """The batch is dimension 1, and dimension 0 is fixed."""
    return model([node("Relu", "x", "y")], [value("x", [6, "batch", 4])], "y")


def huge_weight():
    """Its size overflows 64 bits."""
    w = TensorProto(name="w", data_type=F32, dims=[1 << 40, 1 << 40], raw_data=b"1234")
    return model([node("MatMul", "x w", "y", "/fc")], [value("x", [1, 1 << 40])], "y", [w])


def huge_result():
    """So does the size of a result."""
    return model([node("Expand", "x shape", "y", "/expand")], [value("x", [1])], "y",
                 [ints("shape", 1 << 40, 1 << 40)])


def short_weight():
    """It has fewer bytes than its shape."""
    w = TensorProto(name="w", data_type=F32, dims=[2, 3], raw_data=b"1234")
    return model([node("MatMul", "x w", "y", "/fc")], [value("x", [1, 2])], "y", [w])


def negative_dim():
    w = TensorProto(name="w", data_type=F32, dims=[-2, 3], raw_data=b"1234")
    return model([node("MatMul", "x w", "y", "/fc")], [value("x", [1, 2])], "y", [w])


def zero_byte():
    """A name that C would cut short."""
    return model([node("Neg", "x", "y", "/a")], [value("x", [2])], "y").SerializeToString().replace(b"/a", b"/\0")


def deep():
    """Branches in branches, 200 messages deep."""
    def field(number, data):
        return bytes([number << 3 | 2]) + varint(len(data)) + data

    def varint(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)

    graph = b""
    for _ in range(66):  # graph { node { attribute { g } } }
        graph = field(1, field(5, field(6, graph)))
    return field(7, graph)


def merged():
    """Its graph stands twice; protobuf would merge them."""
    return mlp().SerializeToString() * 2


def attribute():
    """An attribute that no version of the operator has had so far, and those of other operators."""
    return model([node("Relu", "x", "y", "/act", leak=0.5), node("Add", "x x", "z", "/add", fmod=1),
                  node("Exp", "x", "w", "/exp", momentum=0.5), node("Cast", "x", "c", "/cast", to=I64, saturate=0)],
                 [value("x", [2])], "y z w c")


def recurrent(op, inputs, outputs="y", gates=4, directions=1, x=(5, 2, 3), h=4, **attributes):
    """One node of a recurrent layer; weights are named by their operands."""
    shapes = {"w": (directions, gates * h, 3), "r": (directions, gates * h, h), "b": (directions, 2 * gates * h),
              "h": (directions, 2, h), "c": (directions, 2, h), "p": (directions, 3 * h), "h1": (2, directions, h),
              "short": (directions, gates * h - 1, h)}
    words = inputs.split(",")
    proto = helper.make_node(op, words, outputs.split(), name=f"/{op.lower()}", **attributes)
    inits = [weight(word, *shapes[word]) for word in dict.fromkeys(words) if word in shapes]
    given = [value("x", x)] + ([value("n", (2,), TensorProto.INT32)] if "n" in words else [])
    return model([proto], given, outputs, inits, opset=22 if "layout" in attributes else 11)


def quantized_lstm(scales=(1,), zero="rz"):
    """A node of com.microsoft.DynamicQuantizeLSTM with weights of 8 bits; `zero`: the zero point of R, or _."""
    def eights(name, *shape):
        return numpy_helper.from_array(np.arange(np.prod(shape)).reshape(shape).astype(np.int8), name)
    inits = [eights("w", 1, 3, 16), eights("r", 1, 4, 16), weight("b", 1, 32), eights("wz", *scales), eights("rz", 1),
             numpy_helper.from_array(np.full(scales, 0.01, np.float32), "ws"), numbers("rs", 0.01)]
    nodes = [node("DynamicQuantizeLSTM", f"x w r b _ _ _ _ ws wz rs {zero}", "y", "/lstm", domain="com.microsoft", hidden_size=4)]
    return model(nodes, [value("x", [5, 2, 3])], "y", inits, domains=["com.microsoft"])


def main():
    os.makedirs(HERE, exist_ok=True)
    for f in (*make_attention.MODELS, *make_control_flow.MODELS, *make_lengths.MODELS, *make_sequences.MODELS,
              mlp, unsorted, no_opset, domains, initializer_inputs, dead, function, shape_chain, positions, forms, forms_13,
              gradient, gradient_errors, quantized, quantized_errors, quantized_between, group_norm_of_pytorch, hostile,
              signal_errors, dft_errors, types, too_large, named_twice, own_names, told, detached, copied, origins, parameters,
              constant_weights, diagonal, inference_forms, external, cycle, missing, twice, unknown, many_unknown, one_round,
              sequence_first, untrained, newer_opset, odd_inputs, recursion, dims, second, huge_weight, huge_result,
              short_weight, negative_dim, zero_byte, deep, merged, attribute, attribute_types, attribute_zero,
              function_powers, image_errors, sampling_errors, bit_casts, bit_cast_errors, initializer_output, wide_windows,
              resized, clipped):
        save(f.__name__, f())
    save("clipped_half", clipped("half"))
    lists = ["HardSigmoid", "tanh", "LeakyRelu", "Sigmoid", "ScaledTanh", "Elu"]
    save("lstm", recurrent("LSTM", "x,w,r,b,n,h,c,p", "y yh yc", directions=2, direction="bidirectional", hidden_size=4,
                           activations=lists, activation_alpha=[0.25, 0.5, 1.5], activation_beta=[0.375, 2.0], input_forget=1, clip=3.0))
    save("lstm_layout", recurrent("LSTM", "x,w,r,,,h1", "y yh", x=(2, 5, 3), layout=1))
    save("gru", recurrent("GRU", "x,w,r,b", gates=3, direction="reverse", linear_before_reset=1))
    save("rnn", recurrent("RNN", "x,w,r", gates=1, activations=["Affine"]))
    save("lstm_shape", recurrent("LSTM", "x,w,short"))
    save("lstm_direction", recurrent("LSTM", "x,w,r", direction="both"))
    save("lstm_clip", recurrent("LSTM", "x,w,r", clip=-1.0))
    save("lstm_activation", recurrent("LSTM", "x,w,r", activations=["Sigmoid", "Tanh", "Swish"]))
    save("lstm_count", recurrent("LSTM", "x,w,r", activations=["Sigmoid", "Tanh"]))
    save("lstm_scaled", recurrent("LSTM", "x,w,r", activations=["Sigmoid", "ScaledTanh", "Tanh"], activation_alpha=[1.0]))
    save("lstm_state", recurrent("LSTM", "x,w,r,,,h,c", x=(5, "batch", 3)))
    save("lstm_numbers", recurrent("LSTM", "x,w,r", activation_alpha=[1.0]))
    save("lstm_length", recurrent("LSTM", "x,w,r,,w"))
    save("quantized_lstm", quantized_lstm())
    save("quantized_lstm_scales", quantized_lstm(scales=(3,)))
    save("quantized_lstm_zero", quantized_lstm(zero="_"))
    save("lstm_flat", recurrent("LSTM", "x,w,r", x=(5, 6)))
    legit = "_native_batch_norm_legit_functional.default](args = (%x, %g, [%b, (%c)], %mean, %var, True, 0.1, 1e-05"
    save("constant_nodes_of_pytorch", produced_by(constant_weights(), "pytorch"))
    save("untied", untied("onnx::MatMul_6"))
    save("untied_twice", untied("onnx::MatMul_6", 2))
    save("untied_folded", untied("val_0", e_weight=(KIND, "PARAMETER"), val_0=(SOURCES, "['e.weight']")))
    save("made_one", made_one(("n1", "n2")))
    save("made_one_scopes", made_one(("n1", "n2"), scopes=True))
    save("made_one_identity", made_one(("n1", "n2.weight")))
    save("called_twice", made_one(("block.n1", "block.n1_1")))
    save("batch_norm_legit", batch_norm(legit))
    save("batch_norm_call", batch_norm("batch_norm.default](args = (%x, %g, %b, %mean, %var, True, 0.1, 1e-05, True"))
    save("batch_norm_eval", batch_norm(legit.replace("functional", "no_training").replace("True, ", "")))
    save("batch_norm_call_eval", batch_norm("batch_norm.default](args = (%x, %g, %b, %mean, %var, False, 0.1, 1e-05"))
    save("batch_norm_unsaid", batch_norm(twice=True))
    save("batch_norm_twice", batch_norm(twice=True, training_mode=1))
    save("attention_sdpa", make_attention.attention())
    save("attention_other", make_attention.attention("other", ""))
    save("attention_in_inference", make_attention.attention_after_norm(0))
    save("attention_in_training", make_attention.attention_after_norm(1))
    save("by_frequency", make_attention.by_frequency())
    np.save(os.path.join(HERE, "ends_early.npy"), np.array([0.3, -1], dtype=np.float32))
    np.save(os.path.join(HERE, "ends_at_once.npy"), np.array([4, 1], dtype=np.float32))
    save("long_loops", make_control_flow.long_loops(50))
    save("long_loops_in_place", make_control_flow.long_loops(0))
    save("other_names", own_names("x", "w", "b"))
    save("batch_norm_onnx", batch_norm(producer="other", training_mode=1))
    save("external_dotdot", external("sub/../../w.bin"))
    save("two_external", two_external())
    save("external_absolute", external("/etc/passwd"))
    save("external_link", external("link.bin"))
    save("external_key", external(basepath="/"))
    save("external_length", external(length="23"))
    save("external_offset", external(offset="9223372036854775800", length=None))
    save("external_negative", external(offset="-4"))
    save("external_folder", external("sub"))
    save("external_large", external("large.bin", "0", "2400000000", 300000000))
    save("truncated", mlp().SerializeToString()[:-40])
    save("empty", b"")
    save("text", b"import torch\n")
    with open(os.path.join(HERE, "w.bin"), "wb") as f:
        f.write(np.arange(8, dtype=np.float32).tobytes())


if __name__ == "__main__":
    main()
