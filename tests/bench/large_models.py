#!/usr/bin/env python3
"""Large models as .onnx, without their weights: these are in a file of external data that does not exist, which suffices
for `nnaot --emit plan`.

    tests/bench/large_models.py FOLDER [NAME …]        writes FOLDER/NAME.onnx of these, or of all

They consist of the nodes that exporters write: norms, rotations, biases and attention are decomposed as exporters
decompose them.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20


class Graph:
    def __init__(self, name):
        self.name, self.nodes, self.weights, self.inputs, self.bytes = name, [], [], [], 0
        self.constants = {}

    def input(self, name, type, shape):
        self.inputs.append(helper.make_tensor_value_info(name, type, shape))
        return name

    def weight(self, name, *shape):
        size = 4 * int(np.prod(shape))
        t = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in [("location", f"{self.name}.bin"), ("offset", self.bytes), ("length", size)]:
            t.external_data.add(key=key, value=str(value))
        self.bytes += size
        self.weights.append(t)
        return name

    def constant(self, value):
        """Returns a constant; equal ones are shared."""
        array = np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.op("Constant", value=numpy_helper.from_array(array))
        return self.constants[key]

    def op(self, kind, *operands, name=None, n_out=1, **attributes):
        name = name or f"{kind}.{len(self.nodes)}"
        results = [f"{name}:{i}" for i in range(n_out)]
        self.nodes.append(helper.make_node(kind, operands, results, name=name, **attributes))
        return results[0] if n_out == 1 else results

    def save(self, folder, shape):
        """Writes the model; the result of the last node is the logits."""
        self.nodes[-1].output[0] = "logits"
        out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, self.name, self.inputs, [out], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        path = pathlib.Path(folder) / f"{self.name}.onnx"
        onnx.save(model, path)
        return path

    # -- Parts of transformers -----------------------------------------------------------------------------------------

    def linear(self, x, name, n_in, n_out, bias=False):
        y = self.op("MatMul", x, self.weight(f"{name}.weight", n_in, n_out), name=f"/{name}/MatMul")
        return self.op("Add", y, self.weight(f"{name}.bias", n_out), name=f"/{name}/Add") if bias else y

    def layer_norm(self, x, name, width):
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width),
                       name=f"/{name}/LayerNormalization", axis=-1, epsilon=1e-5)

    def rms_norm(self, x, name, width):
        square = self.op("Pow", x, self.constant(2.0), name=f"/{name}/Pow")
        mean = self.op("ReduceMean", square, self.constant([-1]), name=f"/{name}/ReduceMean", keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.constant(1e-6), name=f"/{name}/Add"), name=f"/{name}/Sqrt")
        y = self.op("Div", x, root, name=f"/{name}/Div")
        return self.op("Mul", self.weight(f"{name}.weight", width), y, name=f"/{name}/Mul")

    def heads(self, x, name, tokens, n, size):
        y = self.op("Reshape", x, self.constant([-1, tokens, n, size]), name=f"/{name}/Reshape")
        return self.op("Transpose", y, name=f"/{name}/Transpose", perm=[0, 2, 1, 3])

    def attention(self, q, k, v, name, tokens, n, size, scale, mask=None):
        scores = self.op("MatMul", q, self.op("Transpose", k, name=f"/{name}/Transpose", perm=[0, 1, 3, 2]),
                         name=f"/{name}/MatMul")
        if scale != 1:
            scores = self.op("Mul", scores, self.constant(float(scale)), name=f"/{name}/Mul")
        if mask:
            scores = self.op("Add", scores, mask, name=f"/{name}/Add")
        y = self.op("MatMul", self.op("Softmax", scores, name=f"/{name}/Softmax", axis=-1), v, name=f"/{name}/MatMul_1")
        y = self.op("Transpose", y, name=f"/{name}/Transpose_1", perm=[0, 2, 1, 3])
        return self.op("Reshape", y, self.constant([-1, tokens, n * size]), name=f"/{name}/Reshape")

    def causal(self, tokens):
        low = numpy_helper.from_array(np.array([-np.inf], np.float32))
        square = self.op("ConstantOfShape", self.constant([1, 1, tokens, tokens]), value=low)
        return self.op("Trilu", square, self.constant(1), upper=1)


def gpt(name, folder, layers, width, heads, tokens=2048, words=51200, tied=False):
    g, size = Graph(name), width // heads
    ids = g.input("input_ids", TensorProto.INT64, ["batch", tokens])
    mask = g.causal(tokens)
    wte = g.weight("wte.weight", words, width)
    x = g.op("Add", g.op("Gather", wte, ids), g.weight("wpe.weight", tokens, width))
    for i in range(layers):
        at, y = f"h.{i}.attn", g.layer_norm(x, f"h.{i}.ln_1", width)
        qkv = g.op("Split", g.linear(y, f"{at}.c_attn", width, 3 * width, bias=True), n_out=3, axis=-1, num_outputs=3)
        q, k, v = (g.heads(p, f"{at}.{name}", tokens, heads, size) for p, name in zip(qkv, "qkv"))
        y = g.attention(q, k, v, at, tokens, heads, size, size ** -0.5, mask)
        x = g.op("Add", x, g.linear(y, f"{at}.c_proj", width, width, bias=True), name=f"/h.{i}/Add")
        y = g.linear(g.layer_norm(x, f"h.{i}.ln_2", width), f"h.{i}.mlp.c_fc", width, 4 * width, bias=True)
        y = g.op("Gelu", y, name=f"/h.{i}/mlp/Gelu", approximate="tanh")
        x = g.op("Add", x, g.linear(y, f"h.{i}.mlp.c_proj", 4 * width, width, bias=True), name=f"/h.{i}/Add_1")
    y = g.layer_norm(x, "ln_f", width)
    if tied:
        g.op("MatMul", y, g.op("Transpose", wte, perm=[1, 0]), name="/lm_head/MatMul")
    else:
        g.linear(y, "lm_head", width, words)
    return g.save(folder, ["batch", tokens, words])


def llama(name, folder, layers=32, width=4096, heads=32, groups=8, inner=14336, tokens=2048, words=128256):
    g, size = Graph(name), width // heads
    ids = g.input("input_ids", TensorProto.INT64, ["batch", tokens])
    mask = g.causal(tokens)
    angle = np.outer(np.arange(tokens), 500000.0 ** (-np.arange(0, size, 2) / size))
    cos, sin = (g.constant(np.tile(f(angle), 2).astype(np.float32)) for f in (np.cos, np.sin))

    def turned(x, name):
        first, second = g.op("Split", x, name=f"/{name}/Split", n_out=2, axis=-1, num_outputs=2)
        other = g.op("Concat", g.op("Neg", second, name=f"/{name}/Neg"), first, name=f"/{name}/Concat", axis=-1)
        return g.op("Add", g.op("Mul", x, cos, name=f"/{name}/Mul"), g.op("Mul", other, sin, name=f"/{name}/Mul_1"),
                    name=f"/{name}/Add")

    def repeated(x, name):
        """Grouped-query attention: each head of keys and values serves several heads of queries."""
        y = g.op("Unsqueeze", x, g.constant([2]), name=f"/{name}/Unsqueeze")
        y = g.op("Expand", y, g.constant([1, 1, heads // groups, 1, 1]), name=f"/{name}/Expand")
        return g.op("Reshape", y, g.constant([-1, heads, tokens, size]), name=f"/{name}/Reshape_1")

    x = g.op("Gather", g.weight("embed_tokens.weight", words, width), ids)
    for i in range(layers):
        at, mlp, y = f"layers.{i}.self_attn", f"layers.{i}.mlp", g.rms_norm(x, f"layers.{i}.input_layernorm", width)
        q = turned(g.heads(g.linear(y, f"{at}.q_proj", width, width), f"{at}.q", tokens, heads, size), f"{at}.q")
        k, v = (g.heads(g.linear(y, f"{at}.{p}_proj", width, groups * size), f"{at}.{p}", tokens, groups, size)
                for p in "kv")
        k = turned(k, f"{at}.k")
        y = g.attention(q, repeated(k, f"{at}.k"), repeated(v, f"{at}.v"), at, tokens, heads, size, size ** -0.5, mask)
        x = g.op("Add", x, g.linear(y, f"{at}.o_proj", width, width), name=f"/layers.{i}/Add")
        y = g.rms_norm(x, f"layers.{i}.post_attention_layernorm", width)
        gate = g.linear(y, f"{mlp}.gate_proj", width, inner)
        gate = g.op("Mul", gate, g.op("Sigmoid", gate, name=f"/{mlp}/Sigmoid"), name=f"/{mlp}/Mul")
        y = g.op("Mul", gate, g.linear(y, f"{mlp}.up_proj", width, inner), name=f"/{mlp}/Mul_1")
        x = g.op("Add", x, g.linear(y, f"{mlp}.down_proj", inner, width), name=f"/layers.{i}/Add_1")
    g.linear(g.rms_norm(x, "norm", width), "lm_head", width, words)
    return g.save(folder, ["batch", tokens, words])


def t5(name, folder, layers=24, width=1024, heads=16, size=64, inner=4096, tokens=512, words=32128, buckets=32):
    g, n = Graph(name), heads * size
    source = g.input("input_ids", TensorProto.INT64, ["batch", tokens])
    target = g.input("decoder_input_ids", TensorProto.INT64, ["batch", tokens])
    shared = g.weight("shared.weight", words, width)
    distance = np.arange(tokens)[None, :] - np.arange(tokens)[:, None]

    def bias(name, bucket, mask=None):
        """The position bias of the whole stack: from the first layer's table, looked up by distance."""
        y = g.op("Gather", g.weight(f"{name}.relative_attention_bias.weight", buckets, heads), g.constant(bucket))
        y = g.op("Unsqueeze", g.op("Transpose", y, perm=[2, 0, 1]), g.constant([0]))
        return g.op("Add", y, mask) if mask else y

    def attend(x, other, name, mask):
        q = g.heads(g.linear(x, f"{name}.q", width, n), f"{name}.q", tokens, heads, size)
        k, v = (g.heads(g.linear(other, f"{name}.{p}", width, n), f"{name}.{p}", tokens, heads, size) for p in "kv")
        return g.linear(g.attention(q, k, v, name, tokens, heads, size, 1, mask), f"{name}.o", n, width)

    def block(x, name, memory, mask):
        y = g.rms_norm(x, f"{name}.0.layer_norm", width)
        x = g.op("Add", x, attend(y, y, f"{name}.0.SelfAttention", mask), name=f"/{name}.0/Add")
        if memory:
            y = g.rms_norm(x, f"{name}.1.layer_norm", width)
            x = g.op("Add", x, attend(y, memory, f"{name}.1.EncDecAttention", None), name=f"/{name}.1/Add")
        y = g.linear(g.rms_norm(x, f"{name}.2.layer_norm", width), f"{name}.2.wi", width, inner)
        y = g.linear(g.op("Relu", y, name=f"/{name}.2/Relu"), f"{name}.2.wo", inner, width)
        return g.op("Add", x, y, name=f"/{name}.2/Add")

    both_ways = np.clip(distance, -buckets // 2, buckets // 2 - 1) + buckets // 2
    x, mask = g.op("Gather", shared, source), bias("encoder.block.0", both_ways)
    for i in range(layers):
        x = block(x, f"encoder.block.{i}.layer", None, mask)
    memory = g.rms_norm(x, "encoder.final_layer_norm", width)
    x, mask = g.op("Gather", shared, target), bias("decoder.block.0", np.clip(-distance, 0, buckets - 1),
                                                   g.causal(tokens))
    for i in range(layers):
        x = block(x, f"decoder.block.{i}.layer", memory, mask)
    y = g.op("Mul", g.rms_norm(x, "decoder.final_layer_norm", width), g.constant(width ** -0.5))
    g.op("MatMul", y, g.op("Transpose", shared, perm=[1, 0]))
    return g.save(folder, ["batch", tokens, words])


def resnet(name, folder, classes, blocks=(3, 4, 6, 3)):
    g = Graph(name)

    def conv(x, name, n_in, n_out, size, stride=1, relu=True):
        w = g.weight(f"{name}.weight", n_out, n_in, size, size)
        x = g.op("Conv", x, w, name=f"/{name}/Conv", kernel_shape=[size] * 2, strides=[stride] * 2,
                 pads=[size // 2] * 4)
        parts = [g.weight(f"{name}.bn.{p}", n_out) for p in ("weight", "bias", "running_mean", "running_var")]
        x = g.op("BatchNormalization", x, *parts, name=f"/{name}/BatchNormalization", n_out=3, training_mode=1)[0]
        return g.op("Relu", x, name=f"/{name}/Relu") if relu else x

    x = conv(g.input("x", TensorProto.FLOAT, ["batch", 3, 224, 224]), "conv1", 3, 64, 7, 2)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 64
    for stage, n in enumerate(blocks):
        inner = 64 << stage
        for i in range(n):
            at, stride = f"layer{stage + 1}.{i}", 2 if stage and not i else 1
            y = conv(conv(x, f"{at}.conv1", width, inner, 1), f"{at}.conv2", inner, inner, 3, stride)
            y = conv(y, f"{at}.conv3", inner, 4 * inner, 1, relu=False)
            short = conv(x, f"{at}.downsample", width, 4 * inner, 1, stride, relu=False) if not i else x
            x, width = g.op("Relu", g.op("Add", y, short, name=f"/{at}/Add"), name=f"/{at}/Relu"), 4 * inner
    y = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.linear(y, "fc", width, classes, bias=True)
    return g.save(folder, ["batch", classes])


# Name: constructor and loss.
MODELS = {
    "t5-large": (lambda f: t5("t5-large", f), "next_token(logits,decoder_input_ids)"),
    "llama3-8b": (lambda f: llama("llama3-8b", f), "next_token(logits,input_ids)"),
    "gpt3-175b": (lambda f: gpt("gpt3-175b", f, 96, 12288, 96), "next_token(logits,input_ids)"),
    "gpt-8": (lambda f: gpt("gpt-8", f, 8, 1024, 16, 512), "next_token(logits,input_ids)"),
    "gpt-64": (lambda f: gpt("gpt-64", f, 64, 1024, 16, 512), "next_token(logits,input_ids)"),
    "gpt-1024": (lambda f: gpt("gpt-1024", f, 1024, 1024, 16, 512), "next_token(logits,input_ids)"),
    "resnet50-100k": (lambda f: resnet("resnet50-100k", f, 100_000), "cross_entropy(logits)"),
    "resnet50-1m": (lambda f: resnet("resnet50-1m", f, 1_000_000), "cross_entropy(logits)"),
}


def write(folder, name):
    """Writes the model; returns its path and the loss to train it with."""
    make, loss = MODELS[name]
    return make(folder), loss


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        print(*write(folder, name))


if __name__ == "__main__":
    main()
