"""Writes tests/eval/microsoft: cases of com.microsoft's operators with onnxruntime's results, in the layout of the ONNX suite.

    python3 tests/eval/make_microsoft.py        needs the onnx, onnxruntime and numpy packages

Each case is CASE/model.onnx and CASE/test_data_set_0/{input,output}_K.pb.  The files are committed, so the test needs only
nnaot-eval.  An operator that onnxruntime has for GPUs only has numpy's result instead, by its documentation.
"""

import math
import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parent / "microsoft"
RANDOM = np.random.default_rng(0)


def numbers(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def case(name, op, inputs, n_outputs=1, want=None, domain="com.microsoft", **attributes):
    """inputs: arrays, or None for one that is left out."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    outputs = [f"y{i}" if i in (n_outputs if isinstance(n_outputs, tuple) else range(n_outputs)) else ""
               for i in range(max(n_outputs) + 1 if isinstance(n_outputs, tuple) else n_outputs)]
    given = {n: x for n, x in zip(names, inputs) if n}
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, name="/" + op, domain=domain, **attributes)], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs if n])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
                              ir_version=8)
    if want is None:
        want = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
    data = FOLDER / name / "test_data_set_0"
    data.mkdir(parents=True)
    # The suite's readers want the types of outputs.
    del graph.output[:]
    for n, y in zip([n for n in outputs if n], want):
        graph.output.append(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(y.dtype), y.shape))
    model.graph.CopyFrom(graph)
    (FOLDER / name / "model.onnx").write_bytes(model.SerializeToString())
    for kind, values, of in (("input", given.values(), list(given)), ("output", want, [n for n in outputs if n])):
        for i, (value, n) in enumerate(zip(values, of)):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(value), n).SerializeToString())


def quantized_lstm(name, x, directions, hidden, each, dtype, **attributes):
    """DynamicQuantizeLSTM, with the results of ONNX's LSTM of the same weights: inputs and states are not rounded.

    each: whether every column has a scale, or only every direction.
    """
    low, high, gates = (-128, 128, 4 * hidden) if dtype == np.int8 else (0, 256, 4 * hidden)
    inputs, floats = [x], [x]
    quantized = []
    for rows in (x.shape[2], hidden):
        w = RANDOM.integers(low, high, (directions, rows, gates)).astype(dtype)
        scale = (0.005 * (1 + RANDOM.random((directions, gates) if each else directions))).astype(np.float32)
        zero = RANDOM.integers(low // 4, high // 4, scale.shape).astype(dtype)
        real = (w.astype(np.float32) - zero.reshape(directions, 1, -1).astype(np.float32)) * scale.reshape(directions, 1, -1)
        inputs.append(w)
        floats.append(np.ascontiguousarray(real.transpose(0, 2, 1)))
        quantized += [scale, zero]
    more = [numbers(directions, 2 * gates), None, numbers(directions, x.shape[1], hidden), numbers(directions, x.shape[1], hidden),
            numbers(directions, 3 * hidden)]
    attributes["hidden_size"] = hidden
    names = ["" if v is None else f"x{i}" for i, v in enumerate(floats + more)]
    given = {n: v for n, v in zip(names, floats + more) if n}
    graph = helper.make_graph([helper.make_node("LSTM", names, ["y", "h", "c"], **attributes)], "g",
                              [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                               for n, v in given.items()], [onnx.ValueInfoProto(name=n) for n in "yhc"])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    want = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
    case(name, "DynamicQuantizeLSTM", inputs + more + quantized, 3, want, **attributes)


def gelu(x):
    return (x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    x, b = numbers(2, 3, 8), numbers(8)
    case("gelu", "Gelu", [x])
    case("bias_gelu", "BiasGelu", [x, b])
    case("fast_gelu", "FastGelu", [x])
    case("fast_gelu_bias", "FastGelu", [x, b])
    case("quick_gelu", "QuickGelu", [x], alpha=1.5)
    y = x + b
    case("bias_split_gelu", "BiasSplitGelu", [x, b], want=[y[..., :4] * gelu(y[..., 4:])])
    skip = numbers(2, 3, 8)
    case("bias_add", "BiasAdd", [x, b, skip], want=[x + b + skip])
    # The bias lacks the dimensions before the axis, or is repeated along the first one.
    rows = numbers(4, 2, 3, 5)
    mask = numbers(4, 1, 1, 5)
    case("bias_softmax_inner", "BiasSoftmax", [rows, mask], axis=3, is_inner_broadcast=1, want=[softmax(rows + mask)])
    outer = numbers(1, 1, 3, 5)
    case("bias_softmax_outer", "BiasSoftmax", [rows, outer], axis=3, is_inner_broadcast=0,
         want=[softmax(rows + outer)])
    case("fused_matmul", "FusedMatMul", [numbers(2, 4, 3), numbers(2, 5, 4)], transA=1, transB=1, alpha=0.5)
    case("fused_matmul_batch", "FusedMatMul", [numbers(3, 2, 4), numbers(4, 2, 5)], transBatchA=1, transBatchB=1)
    case("fused_matmul_batch_trans", "FusedMatMul", [numbers(4, 2, 3), numbers(4, 2, 5)], transA=1, transB=0,
         transBatchA=1, transBatchB=1)
    case("fused_gemm", "FusedGemm", [numbers(3, 4), numbers(5, 4), numbers(5)], transB=1, activation="LeakyRelu",
         activation_alpha=0.2)
    image, kernel = numbers(1, 2, 5, 5), numbers(3, 2, 3, 3)
    case("fused_conv", "FusedConv", [image, kernel, numbers(3)], activation="Relu", pads=[1, 1, 1, 1])
    case("fused_conv_add", "FusedConv", [image, kernel, numbers(3), numbers(1, 3, 5, 5)], activation="Clip",
         activation_params=[-1.0, 1.0], pads=[1, 1, 1, 1])
    scale, beta = numbers(8), numbers(8)
    case("skip_layer_norm", "SkipLayerNormalization", [x, skip, scale, beta], epsilon=1e-5)
    case("skip_layer_norm_sum", "SkipLayerNormalization", [x, skip, scale, beta, b], (0, 3), epsilon=1e-5)
    case("skip_layer_norm_broadcast", "SkipLayerNormalization", [x, numbers(1, 3, 8), scale])
    case("simplified_layer_norm", "SimplifiedLayerNormalization", [x, scale], domain="", axis=-1, epsilon=1e-6)
    case("skip_simplified_layer_norm", "SkipSimplifiedLayerNormalization", [x, skip, scale, b], (0, 3), epsilon=1e-6)
    tokens, segments = np.array([[1, 4, 2], [0, 3, 3]], np.int32), np.array([[0, 0, 1], [0, 1, 1]], np.int32)
    words, places, kinds = numbers(5, 8), numbers(4, 8), numbers(2, 8)
    valid = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    case("embed_layer_norm", "EmbedLayerNormalization", [tokens, segments, words, places, kinds, scale, beta, valid], 3,
         epsilon=1e-5)
    case("embed_layer_norm_plain", "EmbedLayerNormalization", [tokens, None, words, places, None, scale, beta], 2)
    at = np.array([[2, 0, 1], [3, 3, 0]], np.int32)
    case("embed_layer_norm_places", "EmbedLayerNormalization",
         [tokens, segments, words, places, kinds, scale, beta, None, at], 2)
    w, wb = numbers(8, 24), numbers(24)
    case("attention", "Attention", [x, w, wb], num_heads=2)
    case("attention_causal", "Attention", [x, w, wb], num_heads=2, unidirectional=1)
    case("attention_mask", "Attention", [x, w, wb, valid], num_heads=2)
    case("attention_lengths", "Attention", [x, w, wb, np.array([2, 3], np.int32)], num_heads=2)
    case("attention_mask_rows", "Attention", [x, w, wb, np.tril(np.ones((2, 3, 3), np.int32))], num_heads=2, scale=0.25)
    case("attention_sizes", "Attention", [x, numbers(8, 20), numbers(20)], num_heads=2, qkv_hidden_sizes=[8, 8, 4])
    case("attention_bias", "Attention", [x, w, wb, None, None, numbers(2, 2, 3, 3)], num_heads=2)
    q, k, v = numbers(2, 3, 8), numbers(2, 5, 8), numbers(2, 5, 8)
    case("multi_head", "MultiHeadAttention", [q, k, v], num_heads=2)
    case("multi_head_bias", "MultiHeadAttention", [q, k, v, numbers(24)], num_heads=2, scale=0.3)
    keys = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    case("multi_head_mask", "MultiHeadAttention", [q, k, v, None, keys], num_heads=2)
    case("multi_head_lengths", "MultiHeadAttention", [q, k, v, None, np.array([4, 5], np.int32)], num_heads=2)
    case("multi_head_causal", "MultiHeadAttention", [q, q, v[:, :3]], num_heads=2, unidirectional=1)
    case("multi_head_scores", "MultiHeadAttention", [q, k, v, None, None, numbers(1, 2, 3, 5)], num_heads=2)
    case("multi_head_heads", "MultiHeadAttention", [q, numbers(2, 2, 5, 4), numbers(2, 2, 5, 4)], num_heads=2)
    case("multi_head_past", "MultiHeadAttention",
         [q, q, v[:, :3], None, None, None, numbers(2, 2, 4, 4), numbers(2, 2, 4, 4)], 3, num_heads=2)
    angles = np.outer(np.arange(6), [1, 0.1]).astype(np.float32)
    for name, places, more in (("rotary", at.astype(np.int64), {}), ("rotary_first", np.array([2], np.int64), {}),
                               ("rotary_interleaved", at.astype(np.int64), {"interleaved": 1})):
        case(name, "RotaryEmbedding", [x, places, np.cos(angles), np.sin(angles)], **more)
    # All elements are zero, and the scale is 1.
    case("quantize_zeros", "DynamicQuantizeLinear", [np.zeros((2, 3), np.float32)], 3, domain="")
    quantized_lstm("quantized_lstm", numbers(5, 2, 3), 2, 4, False, np.int8, direction="bidirectional")
    quantized_lstm("quantized_lstm_columns", numbers(4, 3, 6), 1, 2, True, np.uint8, direction="reverse")


if __name__ == "__main__":
    main()
