#!/usr/bin/env python3
"""Models measured in papers on parallel training, as text: shapes and operations, without weights.

    tests/bench/paper_models.py gpt 24 2048 32 512        writes a module, of so many layers, width, heads and rows

Sizes are the papers'; missing ones are documented at their definitions.  Models have the products of their blocks;
dropouts, biases of products, and masks are left out: they cost little and are split like their operands.
"""

import math
import sys

TOKENS, WORDS = 2048, 51200  # of GPT-3
MANY_WORDS = 500_000  # of T5 and mBART in many languages (SuperScaler, section 6.1)
SOURCE, TARGET = 1024, 1024  # of an encoder and a decoder (the same)
IMAGE, PATCH, WINDOW = 1536, 4, 12  # of Swin V2 (the same); windows divide all of its stages
M6_TOKENS, M6_WORDS = 272, 21128  # of 16 patches and 256 words, ours; of Chinese BERT, which M6 uses
ROWS_OF_GROUP, CAPACITY = 8, 1.25  # of routed tokens; slots of an expert, of the mean number of tokens (M6-T, section 3)
ALIGNED, RESIDUES = 128, 256  # of AlphaFold2 (the same)


class Text:
    """A module in construction; values are (name, shape)."""

    def __init__(self, dropout=False):
        """`dropout`: a clip stands for each dropout, with its traffic of memory. Its gradient reads its operand, so that a
        recomputed layer is computed as a whole, as PyTorch's checkpoints are; nnaot leaves out what no gradient reads."""
        self.params, self.ops, self.n, self.names, self.dropout = [], [], 0, set(), dropout

    def input(self, name, shape, dtype="f32", whole=False):
        self.params.append(f'%{name}: {dtype}{bracket(shape)} input "{name}"' + (" whole" if whole else ""))
        return f"%{name}", shape

    def weight(self, name, *shape, init="normal(0,0.02)"):
        """A second pass over the model has the weights of the first."""
        if name in self.names:
            return f"%{name}", shape
        self.names.add(name)
        self.params.append(f'%{name}: f32{bracket(shape)} weight "{name}" train = {init}')
        return f"%{name}", shape

    def op(self, kind, operands, shape, more=(), attributes="", dtype="f32"):
        """`more`: types of further results."""
        names = [f"%{self.n + i}" for i in range(1 + len(more))]
        self.n += len(names)
        types = [f"{dtype}{bracket(shape)}", *more]
        results, read = ", ".join(names), ", ".join(v[0] for v in operands)
        self.ops.append(f"  {results} = {kind} {read}{attributes} : {', '.join(types)}")
        return names[0], shape

    def reshape(self, x, shape, dtype="f32"):
        return self.op("reshape", [x], shape, attributes=f" shape={bracket(shape)}", dtype=dtype)

    def transpose(self, x, perm):
        return self.op("transpose", [x], [x[1][i] for i in perm], attributes=f" perm={bracket(perm)}")

    def linear(self, x, name, columns):
        return self.op("linear", [x, self.weight(name, x[1][-1], columns)], [*x[1][:-1], columns])

    def norm(self, x, name):
        width, rows = x[1][-1], f"f32{bracket(x[1][:-1])}"
        scale, shift = self.weight(f"{name}.g", width, init=1), self.weight(f"{name}.b", width, init=0)
        return self.op("layer_norm", [x, scale, shift], x[1], (rows, rows))

    def add(self, x, y):
        """Dimensions of y that are 1 are broadcast to x's."""
        if y[1] != x[1]:
            y = self.op("broadcast", [y], x[1], attributes=f" shape={bracket(x[1])}")
        return self.op("add", [x, y], x[1])

    def constant(self, name, *shape, dtype="i64"):
        if name not in self.names:
            self.names.add(name)
            self.params.append(f'%{name}: {dtype}{bracket(shape)} weight "{name}" = 0')
        return f"%{name}", shape

    def attention(self, x, y, name, heads, causal=False, scores=False, bias=None):
        """Attention from x (rows, tokens, width) to y; self-attention if y is x.  `scores`: they are in memory, as in systems
        before FlashAttention; the clip keeps nnaot from joining the products.  `bias` is added to them."""
        rows, tokens, width = x[1]
        split = [heads, width // heads]
        q, k, v = (self.reshape(self.linear(of, f"{name}.{p}", width), [rows, of[1][1], *split])
                   for p, of in zip("qkv", (x, y, y)))
        if scores:
            q, k, v = (self.transpose(t, [0, 2, 1, 3]) for t in (q, k, v))
            s = self.op("matmul", [self.op("scale", [q], q[1], attributes=f" by={split[1] ** -0.5}"), k],
                        [rows, heads, tokens, y[1][1]], attributes=" trans_b=true")
            s = self.add(s, bias) if bias else s
            s = self.op("softmax", [s], s[1], attributes=" axis=3")
            s = self.op("clip", [s], s[1], attributes=" low=-1 high=2")
            a = self.transpose(self.op("matmul", [s, v], q[1]), [0, 2, 1, 3])
            return self.linear(self.reshape(a, x[1]), f"{name}.out", width)
        a = self.op("attention", [q, k, v], q[1], (f"f32{bracket([rows, heads, tokens])}",),
                    f" scale={split[1] ** -0.5} seq_major=true" + (" causal=true" if causal else ""))
        return self.linear(self.reshape(a, x[1]), f"{name}.out", width)

    def conv(self, x, name, columns, size, stride=1):
        """Of (rows, channels, side, side), padded so that the side is divided by the stride."""
        rows, channels, side, _ = x[1]
        pads = bracket([size // 2] * 4)
        shape = [rows, columns, side // stride, side // stride]
        return self.op("conv", [x, self.weight(name, columns, channels, size, size)], shape, attributes=(
            f" strides={bracket([stride] * 2)} pads={pads} dilations=[1,1] group=1"))

    def max_pool(self, x, size, stride):
        shape, pads = [*x[1][:2], x[1][2] // stride, x[1][3] // stride], bracket([(size - 1) // 2] * 4)
        return self.op("max_pool", [x], shape, (f"i32{bracket(shape)}",), f" kernel={bracket([size] * 2)} "
                       f"strides={bracket([stride] * 2)} pads={pads} dilations=[1,1] shape={bracket(shape)}")

    def dropped(self, x):
        return self.op("clip", [x], x[1], attributes=" low=-1 high=2") if self.dropout else x

    def feed_forward(self, x, name, times=4):
        width = x[1][-1]
        up = self.linear(x, f"{name}.up", times * width)
        return self.linear(self.op("gelu", [up], up[1]), f"{name}.down", width)

    def experts(self, x, name, experts, inner):
        """Of x (rows, tokens, width) each token goes to the expert with the largest score, which scales its result."""
        rows, tokens, width = x[1]
        groups, many = rows // ROWS_OF_GROUP, ROWS_OF_GROUP * tokens
        capacity = math.ceil(CAPACITY * many / experts)
        p = self.op("softmax", [self.linear(x, f"{name}.gate", experts)], [rows, tokens, experts], attributes=" axis=2")
        best = self.op("top_k", [p], [rows, tokens, 1], attributes=" k=1", dtype="i64")
        scale = self.op("gather", [p, best], [rows, tokens, 1], attributes=" axis=2 batch=2")
        best = self.reshape(best, [groups, many], "i64")
        slots = self.op("expert_slots", [best], [groups, many], dtype="i64",
                        attributes=f" experts={experts} parts={experts} capacity={capacity} drop=true")
        put = [experts, groups, capacity]
        which = self.op("dispatch", [best, slots], put, attributes=f" shape={bracket(put)} none=true", dtype="i64")
        shape = [*put, width]
        y = self.op("dispatch", [self.reshape(x, [groups, many, width]), slots], shape, attributes=f" shape={bracket(shape)}")
        # All slots of the busiest expert are taken.
        up = self.op("grouped_linear", [self.weight(f"{name}.up", experts, width, inner), y, which], [*put, inner],
                     attributes=" parts=true")
        up = self.op("gelu", [up], up[1])
        y = self.op("grouped_linear", [self.weight(f"{name}.down", experts, inner, width), up, which], shape,
                    attributes=" parts=true")
        y = self.reshape(self.op("collect", [y, slots], [groups, many, width]), x[1])
        return self.op("mul", [y, self.op("broadcast", [scale], x[1], attributes=f" shape={bracket(x[1])}")], x[1])

    def block(self, x, name, heads, causal=False, memory=None, scores=False):
        """Attention, cross-attention to an encoder's result if there is one, feed-forward; norms before each."""
        y = self.norm(x, f"{name}.n1")
        x = self.add(x, self.dropped(self.attention(y, y, f"{name}.self", heads, causal, scores)))
        if memory:
            x = self.add(x, self.attention(self.norm(x, f"{name}.n2"), memory, f"{name}.cross", heads))
        return self.add(x, self.dropped(self.feed_forward(self.norm(x, f"{name}.n3"), name)))

    def module(self, name, result):
        params, ops = ",\n  ".join(self.params), "\n".join(self.ops)
        return (f'module "{name}" phase=typed\n\ngraph @main entry (\n  {params}\n) {{\n{ops}\n'
                f'  return output "logits" {result[0]}\n}}\n')


def bracket(shape):
    return "[" + ",".join(map(str, shape)) + "]"


def gpt(layers, width, heads, rows, tokens=TOKENS, scores=False, dropout=False):
    m = Text(dropout)
    x = m.op("gather", [m.weight("wte", WORDS, width), m.input("tokens", [rows, tokens], "i64")], [rows, tokens, width])
    for i in range(layers):
        x = m.block(x, f"h{i}", heads, causal=True, scores=scores)
    return m.module("gpt", m.linear(m.norm(x, "ln"), "head", WORDS)), "next_token(logits,tokens)"


def llama(layers, width, heads, rows, groups=8, inner=14336, words=128256, tokens=131072, dropout=False):
    """Llama 3 (Grattafiori et al. 2024, table 3), with its rotary embedding and 8 heads of keys and values."""
    m, size = Text(dropout), width // heads
    cos, sin = (m.input(name, [tokens, size // 2], whole=True) for name in ("cos", "sin"))

    def norm(x, name):
        return m.op("rms_norm", [x, m.weight(name, x[1][-1], init=1)], x[1], (f"f32{bracket(x[1][:-1])}",), " eps=1e-05")

    def half(x, i):
        shape = [*x[1][:-1], size // 2]
        return m.op("slice", [x], shape, attributes=f" starts=[0,0,0,{i * size // 2}] steps=[1,1,1,1] shape={bracket(shape)}")

    def turned(x):
        a, b = half(x, 0), half(x, 1)
        c, s = (m.op("broadcast", [m.reshape(v, [1, tokens, 1, size // 2])], a[1], attributes=f" shape={bracket(a[1])}")
                for v in (cos, sin))
        real = m.op("sub", [m.op("mul", [a, c], a[1]), m.op("mul", [b, s], a[1])], a[1])
        return m.op("concat", [real, m.add(m.op("mul", [b, c], a[1]), m.op("mul", [a, s], a[1]))], x[1], attributes=" axis=3")

    x = m.op("gather", [m.weight("embed", words, width), m.input("tokens", [rows, tokens], "i64")], [rows, tokens, width])
    for i in range(layers):
        y = norm(x, f"h{i}.n1")
        q, k, v = (m.reshape(m.linear(y, f"h{i}.{p}", n * size), [rows, tokens, n, size])
                   for p, n in (("q", heads), ("k", groups), ("v", groups)))
        a = m.op("attention", [turned(q), turned(k), v], q[1], (f"f32{bracket([rows, heads, tokens])}",),
                 f" scale={size ** -0.5} seq_major=true causal=true")
        x = m.add(x, m.linear(m.reshape(a, [rows, tokens, width]), f"h{i}.o", width))
        y = norm(x, f"h{i}.n2")
        gate = m.linear(y, f"h{i}.gate", inner)
        y = m.op("mul", [m.op("swish", [gate], gate[1], attributes=" beta=1"), m.linear(y, f"h{i}.up", inner)], gate[1])
        x = m.add(x, m.dropped(m.linear(y, f"h{i}.down", width)))
    return m.module("llama", m.linear(norm(x, "ln"), "head", words)), "next_token(logits,tokens)"


def t5(layers, width, heads, rows, words=MANY_WORDS, source=None, target=None):
    """Encoder and decoder with half of the layers each, and one table for both and for the logits."""
    m = Text()
    source, target = source or SOURCE, target or TARGET
    table = m.weight("table", words, width)
    x, y = (m.op("gather", [table, m.input(f"tokens_{n}", [rows, length], "i64")], [rows, length, width])
            for n, length in (("in", source), ("out", target)))
    for i in range(layers // 2):
        x = m.block(x, f"e{i}", heads)
    x = m.norm(x, "ln_e")
    for i in range(layers // 2):
        y = m.block(y, f"d{i}", heads, causal=True, memory=x)
    logits = m.op("linear", [m.norm(y, "ln_d"), table], [rows, target, words], attributes=" trans=true")
    return m.module("t5", logits), "next_token(logits,tokens_out)"


def swin(layers, width, heads, rows, window=WINDOW, bias=False, scores=False):
    """Four stages of 2, 2, all others and 2 layers, at half the side and twice the width each; windows are not shifted:
    shifts move rows and change no product.  `bias`: of relative positions, from a table by heads in each layer."""
    m = Text()
    side = IMAGE // PATCH
    x = m.linear(m.input("patches", [rows, side, side, 3 * PATCH * PATCH]), "embed", width)
    for stage, many in enumerate((2, 2, layers - 6, 2)):
        if stage:
            side //= 2
            x = m.reshape(x, [rows, side, 2, side, 2, x[1][-1]])
            x = m.transpose(x, [0, 1, 3, 2, 4, 5])
            x = m.reshape(x, [rows, side, side, 4 * x[1][-1]])
            x = m.linear(m.norm(x, f"merge{stage}.n"), f"merge{stage}", 2 * width << stage - 1)
        now, n, tokens = width << stage, side // window, window * window
        for i in range(many):
            name = f"s{stage}.{i}"
            y = m.reshape(m.norm(x, f"{name}.n1"), [rows, n, window, n, window, now])
            y = m.reshape(m.transpose(y, [0, 1, 3, 2, 4, 5]), [rows * n * n, tokens, now])
            add = None
            if bias:
                table = m.weight(f"{name}.table", (2 * window - 1) ** 2, heads << stage)
                add = m.op("gather", [table, m.constant("positions", tokens * tokens)], [tokens * tokens, heads << stage])
                add = m.reshape(add, [tokens, tokens, heads << stage])
                add = m.reshape(m.transpose(add, [2, 0, 1]), [1, heads << stage, tokens, tokens])
            y = m.attention(y, y, name, heads << stage, scores=scores or bias, bias=add)
            y = m.transpose(m.reshape(y, [rows, n, n, window, window, now]), [0, 1, 3, 2, 4, 5])
            x = m.add(x, m.reshape(y, [rows, side, side, now]))
            x = m.add(x, m.feed_forward(m.norm(x, f"{name}.n2"), name))
    x = m.op("reduce_sum", [m.norm(x, "ln")], [rows, 8 * width], attributes=" axes=[1,2]")
    return m.module("swin", m.linear(x, "head", 1000)), "cross_entropy(logits)"


def alphafold2(layers, width, heads, rows):
    """The stack over aligned sequences: attention along rows, along columns, feed-forward.  The stack over pairs of
    residues, left out here, works on a quarter of the width."""
    m = Text()
    table = [rows, ALIGNED, RESIDUES, width]
    x = m.linear(m.input("x", [*table[:-1], 64]), "embed", width)
    for i in range(layers):
        for along, sizes in ("row", [ALIGNED, RESIDUES]), ("column", [RESIDUES, ALIGNED]):
            name = f"h{i}.{along}"
            y = m.norm(x, f"{name}.n")
            if along == "column":
                y = m.transpose(y, [0, 2, 1, 3])
            y = m.reshape(y, [rows * sizes[0], sizes[1], width])
            y = m.reshape(m.attention(y, y, name, heads), [rows, *sizes, width])
            x = m.add(x, m.transpose(y, [0, 2, 1, 3]) if along == "column" else y)
        x = m.add(x, m.feed_forward(m.norm(x, f"h{i}.n"), f"h{i}"))
    return m.module("alphafold2", m.linear(m.norm(x, "ln"), "head", 23)), "cross_entropy(logits)"


def m6(layers, width, heads, rows, experts, inner):
    """M6 with experts in the place of all feed-forward layers, each token's best within a capacity (GShard's, by groups of
    ROWS_OF_GROUP rows).  24 1024 16 ROWS 512 4096 has the 100 G parameters of M6-MoE-100B, 24 1024 16 ROWS 960 21248 the 1 T of
    M6-MoE-1T: TAP (section 6.5) states these totals, 128 and 480 V100, and no shapes; they follow M6-T (Yang et al. 2021), and have
    not been checked against its table.  Rows, of M6_TOKENS tokens, are ours: 1024 on 128, 3840 on 480.

        nnaot m6.nn -g 128 --plan ep --target cuda --dtype f16 --cluster tests/bench/clusters/tap.lua --optimizer sgd --init random
              --loss 'next_token(logits,tokens)' --emit plan -o m6.json --summary m6.summary"""
    m = Text()
    x = m.op("gather", [m.weight("wte", M6_WORDS, width), m.input("tokens", [rows, M6_TOKENS], "i64")], [rows, M6_TOKENS, width])
    for i in range(layers):
        y = m.norm(x, f"h{i}.n1")
        x = m.add(x, m.attention(y, y, f"h{i}", heads, causal=True))
        x = m.add(x, m.experts(m.norm(x, f"h{i}.n2"), f"h{i}", experts, inner))
    return m.module("m6", m.linear(m.norm(x, "ln"), "head", M6_WORDS)), "next_token(logits,tokens)"


def evoformer(layers, width, heads, rows, passes=3):
    """AlphaFold2 with both stacks: aligned sequences, and pairs of residues at half the width.  Each pass but the first
    adds the detached and normalised results of the one before to the embedded inputs."""
    m = Text()
    half, few, shape = width // 2, heads // 2, [rows, ALIGNED, RESIDUES]
    square = [rows, RESIDUES, RESIDUES]

    def gated(x, name, columns):
        gate = m.linear(x, f"{name}.g", columns)
        value = m.linear(x, name, columns)
        return m.op("mul", [value, m.op("sigmoid", [gate], gate[1])], value[1])

    def attend(x, name, of, pairs=None):
        """Along the last but one dimension; `pairs` are a bias."""
        a, b, columns = x[1][1], x[1][2], x[1][3]
        y = m.norm(x, f"{name}.n")
        q, k, v = (m.transpose(m.reshape(m.linear(y, f"{name}.{p}", columns), [rows, a, b, of, columns // of]), [0, 1, 3, 2, 4])
                   for p in "qkv")
        s = m.op("matmul", [m.op("scale", [q], q[1], attributes=f" by={(columns // of) ** -0.5}"), k], [rows, a, of, b, b],
                 attributes=" trans_b=true")
        if pairs:
            add = m.transpose(m.linear(m.norm(pairs, f"{name}.bn"), f"{name}.bias", of), [0, 3, 1, 2])
            s = m.add(s, m.reshape(add, [rows, 1, of, b, b]))
        o = m.op("matmul", [m.op("softmax", [s], s[1], attributes=" axis=4"), v], q[1])
        o = m.reshape(m.transpose(o, [0, 1, 3, 2, 4]), [rows, a, b, columns])
        gate = m.linear(y, f"{name}.gate", columns)
        return m.linear(m.op("mul", [o, m.op("sigmoid", [gate], gate[1])], o[1]), f"{name}.out", columns)

    def turned(x):
        return m.transpose(x, [0, 2, 1, 3])

    def triangle(z, name, outgoing):
        y = m.norm(z, f"{name}.n")
        a, b = (m.transpose(gated(y, f"{name}.{p}", half), [0, 3, 1, 2] if outgoing else [0, 3, 2, 1]) for p in "ab")
        o = m.op("matmul", [a, b], [rows, half, RESIDUES, RESIDUES], attributes=" trans_b=true")
        return gated(m.norm(m.transpose(o, [0, 2, 3, 1]), f"{name}.on"), f"{name}.out", half)

    def outer(x, name):
        y = m.norm(x, f"{name}.n")
        a, b = (m.linear(y, f"{name}.{p}", 32) for p in "ab")
        a, b = (m.reshape(m.transpose(t, [0, 2, 3, 1]), [rows, RESIDUES * 32, ALIGNED]) for t in (a, b))
        o = m.op("matmul", [a, b], [rows, RESIDUES * 32, RESIDUES * 32], attributes=" trans_b=true")
        o = m.transpose(m.reshape(o, [rows, RESIDUES, 32, RESIDUES, 32]), [0, 1, 3, 2, 4])
        return m.linear(m.reshape(o, [*square, 32 * 32]), f"{name}.out", half)

    x0 = m.linear(m.input("aligned", [*shape, 64]), "embed", width)
    z0 = m.linear(m.input("pairs", [*square, 64]), "embed_pairs", half)
    x, z = x0, z0
    for i in range(passes):
        if i:
            x = m.add(x0, m.norm(m.op("detach", [x], x[1]), "recycle"))
            z = m.add(z0, m.norm(m.op("detach", [z], z[1]), "recycle_pairs"))
        for k in range(layers):
            b = f"h{k}"
            x = m.add(x, attend(x, f"{b}.row", heads, z))
            x = m.add(x, turned(attend(turned(x), f"{b}.column", heads)))
            x = m.add(x, m.feed_forward(m.norm(x, f"{b}.n"), b))
            z = m.add(z, outer(x, f"{b}.outer"))
            for name, out in ("out", True), ("in", False):
                z = m.add(z, triangle(z, f"{b}.triangle_{name}", out))
            z = m.add(z, attend(z, f"{b}.start", few, z))
            z = m.add(z, turned(attend(turned(z), f"{b}.end", few, z)))
            z = m.add(z, m.feed_forward(m.norm(z, f"{b}.zn"), f"{b}.z"))
    # The loss is one of both stacks.
    pairs = m.op("reduce_sum", [m.norm(z, "lnz")], [rows, RESIDUES, half], attributes=" axes=[1]")
    pairs = m.reshape(m.linear(pairs, "head_pairs", 23), [rows, 1, RESIDUES, 23])
    return m.module("evoformer", m.add(m.linear(m.norm(x, "ln"), "head", 23), pairs)), "cross_entropy(logits)"


def vgg13(rows):
    m = Text()
    x = m.input("x", [rows, 3, 224, 224])
    for stage, width in enumerate((64, 128, 256, 512, 512)):
        for i in range(2):
            x = m.conv(x, f"c{stage}{i}", width, 3)
            x = m.op("relu", [x], x[1])
        x = m.max_pool(x, 2, 2)
    x = m.reshape(x, [rows, math.prod(x[1][1:])])
    for i, columns in enumerate((4096, 4096, 1000)):
        x = m.linear(x, f"fc{i}", columns)
        x = m.op("relu", [x], x[1]) if i < 2 else x
    return m.module("vgg13", x), "cross_entropy(logits)"


def resnet(classes, rows, blocks=(3, 4, 6, 3)):
    """ResNet-50 with any number of classes, without batch norms; blocks of (3, 8, 36, 3) are ResNet-152's."""
    m = Text()
    x = m.conv(m.input("x", [rows, 3, 224, 224]), "stem", 64, 7, 2)
    x = m.max_pool(m.op("relu", [x], x[1]), 3, 2)
    for stage, many in enumerate(blocks):
        width = 64 << stage
        for i in range(many):
            name, stride = f"s{stage}.{i}", 2 if stage and not i else 1
            y = m.conv(x, f"{name}.a", width, 1)
            y = m.conv(m.op("relu", [y], y[1]), f"{name}.b", width, 3, stride)
            y = m.conv(m.op("relu", [y], y[1]), f"{name}.c", 4 * width, 1)
            x = m.add(y, m.conv(x, f"{name}.short", 4 * width, 1, stride) if not i else x)
            x = m.op("relu", [x], x[1])
    x = m.op("reduce_sum", [x], x[1][:2], attributes=" axes=[2,3]")
    return m.module("resnet", m.linear(x, "fc", classes)), "cross_entropy(logits)"


MODELS = {f.__name__: f for f in (gpt, llama, t5, swin, alphafold2, evoformer, m6, vgg13, resnet)}

if __name__ == "__main__":
    print(MODELS[sys.argv[1]](*map(int, sys.argv[2:]))[0], end="")
