"""Models with lengths that depend on data, and refused selections.  Each function is one model, named like its file: see
make_models.py."""

import numpy as np
from onnx import numpy_helper

from model_parts import BOOL, I64, ints, model, node, numbers, value, weight


def refused():
    """Settings that are not possible."""
    return model([node("Unique", "x none", "a", "/unique"), node("NonMaxSuppression", "x scores", "b", "/nms"),
                  node("Compress", "x mask", "c", "/compress", axis=1), node("TopK", "x k", "d e", "/top"),
                  node("ScatterElements", "x i x", "f", "/scatter", reduction="mean"),
                  node("ScatterND", "x i x", "g", "/scatter_nd"), node("BitShift", "i i", "h", "/shift", direction="UP"),
                  node("Bernoulli", "x", "j", "/bernoulli", dtype=16 + 100), node("Unique", "long", "l", "/wide", axis=0)],
                 [value("x", [4, 6]), value("mask", [7], BOOL), value("i", [4, 6], I64), value("none", [1]),
                  value("scores", [1, 2, 5]), value("long", [3, 300])], "a b c d e f g h j l", [ints("k", 7)])


SELECTED = [node("NonZero", "mask", "at", "/at"), node("Transpose", "at", "rows", "/rows"),
            node("GatherND", "x rows", "s", "/s")]  # [at most 4, 6]


SELECTED_INPUTS = [value("x", [4, 6]), value("mask", [4], BOOL), value("other", [4], BOOL)]


def selected():
    """Rows where a mask is true, and their mean; rows of a matrix where another one is."""
    return model([*SELECTED, node("ReduceMean", "s", "mean", "/mean"), node("Compress", "x other", "c", "/compress", axis=0)],
                 SELECTED_INPUTS, "s mean c")


def constant_lengths():
    """Lengths that depend on constants are known."""
    return model([node("NonZero", "flags", "at", "/at"), node("Compress", "x flags", "c", "/compress", axis=0),
                  node("Unique", "numbers", "u f i n", "/unique"), node("Cast", "flags_i", "flags", "/flags", to=BOOL),
                  node("NonMaxSuppression", "boxes scores most iou", "b", "/nms")],
                 [value("x", [4, 6])], "at c u f i n b",
                 [ints("flags_i", 1, 0, 1, 1), ints("numbers", 3, 1, 3, 2, 1, 3), ints("most", 2), numbers("iou", 0.5),
                  numpy_helper.from_array(np.array([[[0, 0, 1, 1], [0, 0, 1, .9], [2, 2, 3, 3]]], np.float32), "boxes"),
                  numpy_helper.from_array(np.array([[[.8, .9, .7]]], np.float32), "scores")])


def lengths():
    """Operators that cannot read, or join, values of a length that depends on data."""
    return model([*SELECTED, node("Compress", "x other", "c", "/compress", axis=0),
                  node("Add", "s c", "a", "/two_masks"), node("Add", "s x", "b", "/fixed"),
                  node("Concat", "s x", "d", "/concat", axis=0), node("Slice", "s zero one zero", "e", "/slice"),
                  node("Reshape", "s four", "f", "/literal"), node("Reshape", "s pairs", "g", "/joined"),
                  node("Shape", "s", "shape", "/shape"), node("Reshape", "x shape", "h", "/of_shape"),
                  node("Expand", "x shape", "u", "/grown"), node("Slice", "x one count", "v", "/from_one"),
                  node("Slice", "shape zero one", "count"), node("Add", "shape one", "more"),
                  node("ConstantOfShape", "more", "w", "/more"),
                  node("Softmax", "s", "i", "/softmax", axis=0), node("MatMul", "t s", "j", "/product"),
                  node("Transpose", "s", "t", "/t"), node("TopK", "s one", "k l", "/top", axis=0),
                  node("InstanceNormalization", "s3 six six", "m", "/norm"), node("Unsqueeze", "s two", "s3", "/s3"),
                  node("ReduceLogSumExp", "s", "n", "/lse"), node("Gather", "s first", "o", "/row", axis=0),
                  node("CumSum", "s zero", "p", "/sums", reverse=1), node("Expand", "s wide", "q", "/expand"),
                  node("ScatterND", "x rows x", "r", "/scatter")],
                 SELECTED_INPUTS, "a b d e f g h i j k l m n o p q r u v w",
                 [ints("zero", 0), ints("one", 1), ints("two", 2), ints("four", 4, 6), ints("pairs", -1, 12), ints("first", 0),
                  ints("wide", 4, 6), weight("six", 6)])


def data_dependent():
    """The shape is data, twice."""
    return model([node("Reshape", "x s", "a", "/view"), node("Expand", "x s", "b", "/expand"),
                  node("Add", "a b", "y")],
                 [value("x", [2, 3]), value("s", [2], I64)], "y")


MODELS = [refused, data_dependent, selected, constant_lengths, lengths]
