"""Prints models of many layers, as text:  layers.py KIND [NAME=NUMBER ...]

    t5      encoder and decoder; the first layer of each computes a table of positions for the others
    gpt     a decoder
    resnet  stages of bottlenecks, the first of each with a convolution in its shortcut
    stages  stages of equal shape, of blocks and a norm
    moe     layers with experts

Weights have random initializers, so widths may be realistic.  Defaults are small.
"""

import sys


class Model:
    def __init__(self):
        self.params, self.ops, self.n = [], [], 0

    def input(self, name, type):
        self.params.append(f'%{name}: {type} input "{name}"')
        return f"%{name}"

    def weight(self, name, *dims, init="normal(0,0.02)"):
        dims = ",".join(map(str, dims))
        self.params.append(f'%{name}: f32[{dims}] weight "{name}" train = {init}')
        return f"%{name}"

    def op(self, scope, text, results=1):
        kind = text.split()[0]
        names = [f"%{scope}.{kind}_{self.n}{'' if i == 0 else f'.{i}'}" for i in range(results)]
        self.n += 1
        self.ops.append(f"  {', '.join(names)} = {text}  # model.onnx:/{scope.replace('.', '/')}/{kind}")
        return names[0]

    def linear(self, scope, x, name, n_in, n_out):
        return self.op(scope, f"linear {x}, {self.weight(f'{scope}.{name}', n_in, n_out)}")

    def biased(self, scope, x, name, n_in, n_out, shape):
        y = self.linear(scope, x, name, n_in, n_out)
        b = self.op(scope, f"broadcast {self.weight(f'{scope}.{name}.bias', n_out)} shape=[{shape},{n_out}]")
        return self.op(scope, f"add {y}, {b}")

    def rms_norm(self, scope, x, width):
        return self.op(scope, f"rms_norm {x}, {self.weight(f'{scope}.norm', width)} eps=1e-6", 2)

    def layer_norm(self, scope, x, width):
        g, b = self.weight(f"{scope}.gain", width), self.weight(f"{scope}.shift", width)
        return self.op(scope, f"layer_norm {x}, {g}, {b} eps=1e-5", 3)

    def text(self, *results):
        outputs = ", ".join(f'output "y{i}" {r}' for i, r in enumerate(results))
        return "\n".join(['module "model.onnx" phase=typed', "", "graph @main entry (",
                          ",\n".join("  " + p for p in self.params), ") {", *self.ops, f"  return {outputs}", "}", ""])


def t5(layers=24, width=16, heads=2, tokens=4, batch=2, wide=32, words=10):
    m, size = Model(), width // heads
    source, target = m.input("source", f"i64[{batch},{tokens}]"), m.input("answer", f"i64[{batch},{tokens}]")
    steps = m.input("steps", f"i64[{tokens},{tokens}]")
    table = m.weight("words", words, width)
    scores = f"{batch},{heads},{tokens},{tokens}"

    def positions(scope):
        b = m.op(scope, f"gather {m.weight(f'{scope}.positions', words, heads)}, {steps}")
        b = m.op(scope, f"transpose {b} perm=[2,0,1]")
        return m.op(scope, f"broadcast {b} shape=[{scores}]")

    def heads_of(scope, x, name):
        y = m.linear(scope, x, name, width, width)
        y = m.op(scope, f"reshape {y} shape=[{batch},{tokens},{heads},{size}]")
        return m.op(scope, f"transpose {y} perm=[0,2,1,3]")

    def attention(scope, x, memory, bias):
        y = m.rms_norm(scope, x, width)
        q, k, v = heads_of(scope, y, "q"), heads_of(scope, memory or y, "k"), heads_of(scope, memory or y, "v")
        s = m.op(scope, f"matmul {q}, {m.op(scope, f'transpose {k} perm=[0,1,3,2]')}")
        s = m.op(scope, f"add {s}, {bias}") if bias else s
        y = m.op(scope, f"matmul {m.op(scope, f'softmax {s} axis=3')}, {v}")
        y = m.op(scope, f"transpose {y} perm=[0,2,1,3]")
        y = m.op(scope, f"reshape {y} shape=[{batch},{tokens},{width}]")
        return m.op(scope, f"add {x}, {m.linear(scope, y, 'o', width, width)}")

    def feed_forward(scope, x):
        y = m.linear(scope, m.rms_norm(scope, x, width), "up", width, wide)
        y = m.linear(scope, m.op(scope, f"relu {y}"), "down", wide, width)
        return m.op(scope, f"add {x}, {y}")

    x = m.op("encoder", f"gather {table}, {source}")
    bias = positions("encoder.block.0")
    for i in range(layers):
        x = attention(f"encoder.block.{i}.layer.0", x, None, bias)
        x = feed_forward(f"encoder.block.{i}.layer.1", x)
    memory = m.rms_norm("encoder", x, width)
    x = m.op("decoder", f"gather {table}, {target}")
    bias = positions("decoder.block.0")
    for i in range(layers):
        x = attention(f"decoder.block.{i}.layer.0", x, None, bias)
        x = attention(f"decoder.block.{i}.layer.1", x, memory, None)
        x = feed_forward(f"decoder.block.{i}.layer.2", x)
    y = m.rms_norm("decoder", x, width)
    y = m.op("decoder", f"scale {y} by={width ** -0.5}")
    return m.text(m.linear("head", y, "out", width, words))


def gpt(layers=24, width=16, heads=2, tokens=4, batch=2, wide=64, words=10):
    m, size = Model(), width // heads
    ids, hidden = m.input("ids", f"i64[{batch},{tokens}]"), f"{batch},{tokens}"
    x = m.op("wte", f"gather {m.weight('words', words, width)}, {ids}")
    p = m.op("wpe", f"broadcast {m.weight('places', tokens, width)} shape=[{hidden},{width}]")
    x = m.op("wpe", f"add {x}, {p}")
    for i in range(layers):
        s = f"h.{i}"
        y = m.layer_norm(f"{s}.ln_1", x, width)
        qkv = [m.op(s, f"reshape {m.biased(s, y, n, width, width, hidden)} shape=[{hidden},{heads},{size}]") for n in "qkv"]
        y = m.op(s, f"attention {', '.join(qkv)} scale={size ** -0.5} causal=true seq_major=true", 2)
        y = m.op(s, f"reshape {y} shape=[{hidden},{width}]")
        x = m.op(s, f"add {x}, {m.biased(s, y, 'out', width, width, hidden)}")
        y = m.biased(s, m.layer_norm(f"{s}.ln_2", x, width), "up", width, wide, hidden)
        x = m.op(s, f"add {x}, {m.biased(s, m.op(s, f'gelu {y}'), 'down', wide, width, hidden)}")
    return m.text(m.linear("head", m.layer_norm("ln_f", x, width), "out", width, words))


def resnet(batch=2, side=16, width=2, stages=(3, 4, 6, 3), classes=10):
    m, blocks, channels = Model(), stages if isinstance(stages, tuple) else (stages,) * 4, width

    def conv(scope, x, name, n_in, n_out, kernel, stride):
        w = m.weight(f"{scope}.{name}", n_out, n_in, kernel, kernel)
        pad = kernel // 2
        y = m.op(scope, f"conv {x}, {w} strides=[{stride},{stride}] pads=[{pad},{pad},{pad},{pad}]"
                 " dilations=[1,1] group=1")
        g, b = m.weight(f"{scope}.{name}.gain", n_out), m.weight(f"{scope}.{name}.shift", n_out)
        mean, var = m.weight(f"{scope}.{name}.mean", n_out), m.weight(f"{scope}.{name}.var", n_out, init=1)
        return m.op(scope, f"batch_norm {y}, {g}, {b}, {mean}, {var} axis=1 eps=1e-5")

    x = m.op("stem", f"relu {conv('stem', m.input('x', f'f32[{batch},3,{side},{side}]'), 'conv', 3, width, 3, 1)}")
    for stage, n in enumerate(blocks):
        inner = width << stage
        for i in range(n):
            s, stride = f"layer{stage + 1}.{i}", 2 if i == 0 and stage else 1
            y = m.op(s, f"relu {conv(s, x, 'conv1', channels, inner, 1, 1)}")
            y = m.op(s, f"relu {conv(s, y, 'conv2', inner, inner, 3, stride)}")
            y = conv(s, y, "conv3", inner, 4 * inner, 1, 1)
            short = conv(s, x, "down", channels, 4 * inner, 1, stride) if i == 0 else x
            x, channels = m.op(s, f"relu {m.op(s, f'add {y}, {short}')}"), 4 * inner
    y = m.op("head", f"reduce_sum {x} axes=[2,3] keep=false")
    return m.text(m.linear("head", y, "fc", channels, classes))


def stages(stages=4, blocks=6, width=8, batch=4):
    m = Model()
    x = m.input("x", f"f32[{batch},{width}]")
    for i in range(stages):
        for k in range(blocks):
            s = f"stage.{i}.block.{k}"
            y = m.op(s, f"gelu {m.biased(s, x, 'up', width, 2 * width, batch)}")
            x = m.op(s, f"add {x}, {m.biased(s, y, 'down', 2 * width, width, batch)}")
        s = f"stage.{i}"
        x = m.linear(s, m.op(s, f"tanh {m.layer_norm(s, x, width)}"), "mix", width, width)
    return m.text(x)


def moe(layers=3, experts=4, width=8, batch=4):
    m = Model()
    x = m.input("x", f"f32[{batch},{width}]")
    for i in range(layers):
        s = f"layer.{i}"
        y = m.layer_norm(s, x, width)
        gates = m.op(s, f"softmax {m.linear(s, y, 'gate', width, experts)} axis=1")
        for e in range(experts):
            t = f"{s}.expert.{e}"
            z = m.linear(t, m.op(t, f"gelu {m.linear(t, y, 'up', width, 2 * width)}"), "down", 2 * width, width)
            g = m.op(t, f"slice {gates} starts=[0,{e}] steps=[1,1] shape=[{batch},1]")
            z = m.op(t, f"mul {z}, {m.op(t, f'broadcast {g} shape=[{batch},{width}]')}")
            x = m.op(s, f"add {x}, {z}")
    return m.text(x)


if __name__ == "__main__":
    sizes = dict(a.split("=") for a in sys.argv[2:])
    print(globals()[sys.argv[1]](**{k: int(v) for k, v in sizes.items()}), end="")
