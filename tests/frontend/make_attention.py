"""Models with attention.  Each function is one model, named like its file: see make_models.py."""

import numpy as np
from onnx import TensorProto, numpy_helper

from model_parts import BOOL, F32, I64, model, node, numbers, value, weight


SDPA = ("%a : [num_users=1] = call_function[target=torch.ops.aten.scaled_dot_product_attention.default]"
        "(args = (%q, %k, %v, %mask, 0.25), kwargs = {})")


def attention(producer="pytorch", call=SDPA):
    """Parts of attention as PyTorch's exporter writes it: hidden scores are the lowest number, and Dropout has a ratio alone."""
    lowest = numpy_helper.from_array(np.array(np.finfo(np.float32).min), "")
    m = model([node("Constant", "", "zero", value=numpy_helper.from_array(np.array(0, np.float32))),
               node("Constant", "", "low", value=lowest), node("Where", "mask zero low", "scores", "node_where"),
               node("Softmax", "scores", "p", "node_softmax", axis=-1), node("Dropout", "p ratio", "y", "node_dropout")],
              [value("mask", [2, 3], TensorProto.BOOL)], "y", [numpy_helper.from_array(np.array(0.25, np.float32), "ratio")])
    m.producer_name = producer
    for n in m.graph.node:
        n.metadata_props.add(key="pkg.torch.onnx.fx_node", value=call)
    return m


def attention_after_norm(training_mode):
    """PyTorch's Dropout of attention, and a BatchNormalization whose mode is said."""
    channels = [numbers(n, 1, 1, 1) for n in ("g", "b", "m", "v")]
    results = "h mean var" if training_mode else "h"
    m = model([node("BatchNormalization", "x g b m v", results, "/norm/BatchNormalization", training_mode=training_mode),
               node("Softmax", "h", "p", "/Softmax", axis=-1), node("Dropout", "p ratio", "y", "/Dropout")],
              [value("x", ["N", 3])], "y", channels + [numpy_helper.from_array(np.array(0.25, np.float32), "ratio")])
    m.producer_name = "pytorch"
    return m


def halves():
    """A layer norm in f16 whose mean of squares is taken in f32, as PyTorch writes it under autocast."""
    def cast(x, y, to):
        return node("Cast", x, y, f"/{y}", to=to)
    return model([cast("x", "h", TensorProto.FLOAT16), cast("h", "f", F32), node("ReduceMean", "f", "mean", "/mean", axes=[-1]),
                  node("Sub", "f mean", "c", "/sub"), cast("c", "ch", TensorProto.FLOAT16), cast("ch", "cf", F32),
                  node("Constant", "", "two", value=numpy_helper.from_array(np.array(2, np.float32), "")),
                  node("Constant", "", "eps", value=numpy_helper.from_array(np.array(1e-5, np.float32), "")),
                  node("Pow", "cf two", "squares", "/pow"), node("ReduceMean", "squares", "v", "/variance", axes=[-1]),
                  node("Add", "v eps", "ve", "/eps"), node("Sqrt", "ve", "root", "/sqrt"), node("Div", "c root", "n", "/div"),
                  cast("n", "nh", TensorProto.FLOAT16), cast("nh", "nf", F32), node("Mul", "nf g", "s", "/mul"),
                  node("Add", "s b", "y", "/add")], [value("x", [2, 3, 8])], "y", [weight("g", 8), weight("b", 8)])


def einsum_attention():
    """MultiHeadAttention of keras, as tf2onnx writes it: queries (batch, t, heads, d) are the second operand of the scores."""
    weights = {name: np.sin(np.arange(i, i + 64, dtype=np.float32)) / 2 for i, name in enumerate(("wq", "wk", "wv", "wo"))}
    weights = [numpy_helper.from_array(w.reshape((2, 4, 8) if name == "wo" else (8, 2, 4)), name) for name, w in weights.items()]
    return model([node("Einsum", "x wq", "q", "/query", equation="abc,cde->abde"),
                  node("Einsum", "x wk", "k", "/key", equation="abc,cde->abde"),
                  node("Einsum", "x wv", "v", "/value", equation="abc,cde->abde"),
                  node("Constant", "", "half", value=numpy_helper.from_array(np.array(0.5, np.float32), "")),
                  node("Mul", "q half", "scaled", "/scale"),
                  node("Einsum", "k scaled", "scores", "/scores", equation="aecd,abcd->acbe"),
                  node("Softmax", "scores", "p", "/softmax", axis=-1),
                  node("Einsum", "p v", "heads", "/heads", equation="acbe,aecd->abcd"),
                  node("Einsum", "heads wo", "y", "/output", equation="abcd,cde->abe")],
                 [value("x", [2, 3, 8])], "y", weights)


def by_frequency():
    """An nn.Embedding with scale_grad_by_freq."""
    m = model([node("Gather", "table ids", "y", "node_embedding")], [value("ids", [3], I64)], "y", [weight("table", 5, 2)])
    m.graph.node[0].metadata_props.add(key="pkg.torch.onnx.fx_node", value="%e : [num_users=1] = call_function[target="
                                       "torch.ops.aten.embedding.default](args = (%w, %ids, -1, True), kwargs = {})")
    return m


def attention_forms():
    """What restricts the keys of a query, past keys, and the scores as a result."""
    q, k, m = value("q", (2, 3, 4, 8)), value("k", (2, 3, 5, 8)), value("m", (4, 3), BOOL)
    past, n = value("past", (2, 3, 1, 8)), value("n", (2,), I64)
    return model(
        [node("Attention", "q q q", "a", "/window", left_window_size=2, right_window_size=1),
         node("Attention", "q k k m", "b", "/masked"),
         node("Attention", "q q q _ past past", "c present", "/past", is_causal=1),
         node("Attention", "q k k _ _ _ n", "d", "/lengths", is_causal=1),
         node("Attention", "q k k m", "e _ _ scores", "/scores", qk_matmul_output_mode=3)],
        [q, k, m, past, n], "a b c present d e scores", opset=25)


def attention_errors():
    """Settings of Attention that do not exist."""
    q, past, o = value("q", (2, 3, 4, 8)), value("past", (2, 3, 1, 8)), value("o", (2, 3, 1, 4))
    return model(
        [node("Attention", "q q q", "a", "/window", left_window_size=-2),
         node("Attention", "q q q _ past", "b", "/half", is_causal=1),
         node("Attention", "q q q", "c _ _ scores", "/mode", qk_matmul_output_mode=4),
         node("Attention", "q q q", "d", "/precision", softmax_precision=TensorProto.INT32),
         node("Attention", "q q q _ o o", "e", "/width"),
         node("Attention", "q q q past", "f", "/mask"),
         node("Attention", "q q q _ past past n", "g", "/lengths")],
        [q, past, o, value("n", (2,), I64)], "a b c d e f g", opset=25)


MODELS = [attention_forms, attention_errors, halves, einsum_attention]
