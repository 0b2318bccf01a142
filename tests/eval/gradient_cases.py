"""Models of one operator each, for gradients.py and torch_gradients.py: operands, attributes, and the same in PyTorch.

    case("Gemm", x(3, 4), x(4, 5), alpha=0.5, torch=lambda a, b: 0.5 * a @ b)

Operands are in the order of the operator. The gradient is checked of those made by x, and the others are `fixed`
(values that the importer may need, or without a derivative), arrays of integers, which are initializers, or None.
Numbers of x are a shuffled grid over all operands of the case, so that no two are near each other, nor near 0. `torch` is a
function of all operands that are not None and returns the floating outputs, or the reason why there is none.
"""

import math
import zlib

import numpy as np
from onnx import TensorProto, defs, helper

try:  # only torch_gradients.py calls the functions in PyTorch
    import torch
    import torch.nn.functional as F
    import torchvision.ops as vision
except ImportError:
    torch = F = vision = None

NONE = "PyTorch has no such operator"
CASES = []


class Numbers:
    def __init__(self, shape, low, high, checked):
        self.shape, self.low, self.high, self.checked = shape, low, high, checked


class Fixed:
    def __init__(self, values, checked=False):
        self.values, self.checked = np.asarray(values, np.float64), checked


def x(*shape, low=-1.0, high=1.0):
    return Numbers(shape, low, high, True)


def positive(*shape):
    return x(*shape, low=0.2, high=2.0)


def noise(*shape):
    """Numbers like those of x, whose gradient is not checked."""
    return Numbers(shape, -1.0, 1.0, False)


def fixed(*values):
    return Fixed(values[0] if len(values) == 1 else values)


def given(values):
    """These numbers, and their gradient is checked."""
    return Fixed(values, True)


def ints(*values, dtype=np.int64):
    return np.array(values[0] if len(values) == 1 else values, dtype)


class Case:
    def __init__(self, op, operands, torch, opset, out, domain, attrs):
        self.op, self.torch, self.opset, self.out, self.domain, self.attrs = op, torch, opset, out, domain, attrs
        self.name = f"{op}_{sum(c.op == op for c in CASES)}"
        self.values = []
        count = sum(math.prod(o.shape) for o in operands if isinstance(o, Numbers))
        order = np.random.RandomState(zlib.crc32(self.name.encode())).permutation(count)
        grid = (2 * order + 1.3) / max(count, 1) - 1
        schema = defs.get_schema(op, min(opset, defs.onnx_opset_version()) if not domain else 1, domain)
        formal = [i.name for i in schema.inputs]
        self.names, self.checked = [], []
        for i, o in enumerate(operands):
            name = formal[min(i, len(formal) - 1)]
            if i >= len(formal) - 1 and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic:
                name = f"{name}_{i - len(formal) + 1}"
            if isinstance(o, Numbers):
                n = math.prod(o.shape)
                values, grid = grid[:n].reshape(o.shape), grid[n:]
                self.values.append(o.low + (values + 1) / 2 * (o.high - o.low))
                self.checked.append(o.checked)
            else:
                self.values.append(o.values if isinstance(o, Fixed) else o)
                self.checked.append(isinstance(o, Fixed) and o.checked)
            self.names.append(name if self.checked[-1] else "fixed_" + name)

    def model(self):
        """The model, and the values of its inputs in their order."""
        names = [n if v is not None else "" for n, v in zip(self.names, self.values)]
        inputs, values, constants = [], [], []
        for name, v in zip(self.names, self.values):
            if v is None:
                continue
            if v.dtype == np.float64:
                inputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, v.shape))
                values.append(v)
            else:
                constants.append(helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape, v.flatten()))
        out = [f"y{i}" for i in range(self.out)] if isinstance(self.out, int) else self.out
        node = helper.make_node(self.op, names, out, domain=self.domain, **self.attrs)
        outputs = [helper.make_tensor_value_info(o, TensorProto.DOUBLE, None) for o in out if o and o[0] == "y"]
        graph = helper.make_graph([node], self.name, inputs, outputs, constants)
        domains = [helper.make_opsetid("", self.opset)]
        if self.domain:
            domains.append(helper.make_opsetid(self.domain, 1))
        return helper.make_model(graph, opset_imports=domains, ir_version=10), values


def case(op, *operands, torch=NONE, opset=None, out=1, domain="", **attrs):
    """`out`: the number of outputs, or their names: "" is omitted, and only those beginning with y are in the loss."""
    CASES.append(Case(op, operands, torch, opset or 24, out, domain, attrs))


def f32(value):
    """The number that an attribute holds."""
    return float(np.float32(value))


# -- Elementwise ---------------------------------------------------------------------------------------------------------------

def unary(op, f, operand=None, **attrs):
    case(op, operand or x(3, 5, low=-3, high=3), torch=f, **attrs)


unary("Abs", lambda a: a.abs())
unary("Acos", lambda a: a.acos(), x(3, 5, low=-0.95, high=0.95))
unary("Acosh", lambda a: a.acosh(), x(3, 5, low=1.2, high=4))
unary("Asin", lambda a: a.asin(), x(3, 5, low=-0.95, high=0.95))
unary("Asinh", lambda a: a.asinh())
unary("Atan", lambda a: a.atan())
unary("Atanh", lambda a: a.atanh(), x(3, 5, low=-0.9, high=0.9))
unary("Celu", lambda a: F.celu(a, 1.0))
unary("Celu", lambda a: F.celu(a, 0.5), alpha=0.5)
unary("Cos", lambda a: a.cos())
unary("Cosh", lambda a: a.cosh())
unary("Elu", lambda a: F.elu(a))
unary("Elu", lambda a: F.elu(a, f32(0.7)), alpha=0.7)
unary("Erf", lambda a: a.erf())
unary("Exp", lambda a: a.exp())
unary("Gelu", lambda a: F.gelu(a))
unary("Gelu", lambda a: F.gelu(a, approximate="tanh"), approximate="tanh")
unary("HardSigmoid", lambda a: (a * 0.2 + 0.5).clamp(0, 1))
unary("HardSigmoid", lambda a: (a * 0.5 + f32(0.4)).clamp(0, 1), alpha=0.5, beta=0.4)
unary("HardSwish", lambda a: a * (a / 6 + 0.5).clamp(0, 1), x(3, 5, low=-5, high=5))
unary("Identity", lambda a: a * 1)
unary("LeakyRelu", lambda a: F.leaky_relu(a, f32(0.01)))
unary("LeakyRelu", lambda a: F.leaky_relu(a, f32(0.3)), alpha=0.3)
unary("Log", lambda a: a.log(), positive(3, 5))
unary("Mish", lambda a: F.mish(a))
unary("Neg", lambda a: -a)
unary("Reciprocal", lambda a: a.reciprocal(), positive(3, 5))
unary("Relu", lambda a: a.relu())
unary("Selu", lambda a: f32(1.0507009873554805) * F.elu(a, f32(1.6732632423543772)), alpha=1.6732632423543772,
      gamma=1.0507009873554805)
unary("Selu", lambda a: 2 * torch.where(a > 0, a, 0.5 * a.exp() - 0.5), alpha=0.5, gamma=2.0)
unary("Shrink", lambda a: F.hardshrink(a, 0.5))
unary("Shrink", lambda a: F.softshrink(a, 0.75), lambd=0.75, bias=0.75)
unary("Sigmoid", lambda a: a.sigmoid())
unary("Sin", lambda a: a.sin())
unary("Sinh", lambda a: a.sinh())
unary("Softplus", lambda a: F.softplus(a))
unary("Softsign", lambda a: F.softsign(a))
unary("Sqrt", lambda a: a.sqrt(), positive(3, 5))
unary("Swish", lambda a: F.silu(a))
unary("Swish", lambda a: a * (a * f32(1.7)).sigmoid(), alpha=1.7)
unary("Tan", lambda a: a.tan(), x(3, 5, low=-1.2, high=1.2))
unary("Tanh", lambda a: a.tanh())
unary("ThresholdedRelu", lambda a: F.threshold(a, 1.0, 0.0))
unary("ThresholdedRelu", lambda a: F.threshold(a, -0.5, 0.0), alpha=-0.5)
unary("Cast", lambda a: a * 1, to=TensorProto.DOUBLE)
case("CastLike", x(3, 4), fixed(1.0), torch=lambda a, b: a * 1)
case("Clip", x(3, 5), fixed(-0.4), fixed(0.6), torch=lambda a, low, high: a.clamp(-0.4, 0.6))
case("Clip", x(3, 5), None, fixed(0.3), torch=lambda a, high: a.clamp(max=0.3))
case("Clip", x(3, 5), opset=6, min=-0.25, max=0.5, torch=lambda a: a.clamp(-0.25, 0.5))


def binary(op, f, a=None, b=None, **attrs):
    case(op, a or x(3, 4), b or x(3, 4), torch=f, **attrs)
    case(op, a or x(2, 3, 1), b or x(3, 4), torch=f, **attrs)
    case(op, a or x(), b or x(3, 4), torch=f, **attrs)


binary("Add", lambda a, b: a + b)
binary("Sub", lambda a, b: a - b)
binary("Mul", lambda a, b: a * b)
case("Div", x(3, 4), positive(3, 4), torch=lambda a, b: a / b)
case("Div", x(2, 3, 1), positive(3, 4), torch=lambda a, b: a / b)
case("Add", x(2, 3, 4), x(3), opset=6, axis=1, broadcast=1, torch=lambda a, b: a + b[:, None])
case("Pow", positive(3, 4), x(3, 4, low=-2, high=3), torch=lambda a, b: a ** b)
case("Pow", positive(2, 3, 1), x(4, low=-2, high=3), torch=lambda a, b: a ** b)
case("Pow", x(3, 4), fixed(3.0), torch=lambda a, b: a ** 3)
case("Mod", x(3, 4, low=-7, high=7), fixed(2.1), fmod=1, torch=lambda a, b: torch.fmod(a, b))
case("Mod", x(3, 4, low=-7, high=7), Fixed([-1.3, 1.9, 2.3, 0.7]), opset=28, torch=lambda a, b: torch.remainder(a, b))
case("PRelu", x(2, 3, 4), x(3, 1), torch=lambda a, s: torch.where(a > 0, a, a * s))
case("PRelu", x(2, 3), x(1), torch=lambda a, s: F.prelu(a, s))
case("Where", ints([[True, False, True]], dtype=bool), x(4, 3), x(3), torch=lambda c, a, b: torch.where(c, a, b))
case("Where", ints([[True], [False]], dtype=bool), x(), x(2, 3), torch=lambda c, a, b: torch.where(c, a, b))
case("SwiGLU", x(3, 4), x(3, 4), opset=28, torch=lambda a, b: F.silu(a) * b)
case("SwiGLU", x(3, 4), x(3, 4), opset=28, alpha=1.5, torch=lambda a, b: a * (1.5 * a).sigmoid() * b)
for op, f in (("Max", lambda *t: torch.stack(torch.broadcast_tensors(*t)).amax(0)),
              ("Min", lambda *t: torch.stack(torch.broadcast_tensors(*t)).amin(0)),
              ("Mean", lambda *t: torch.stack(torch.broadcast_tensors(*t)).mean(0)),
              ("Sum", lambda *t: torch.stack(torch.broadcast_tensors(*t)).sum(0))):
    case(op, x(3, 4), torch=f)
    case(op, x(3, 4), x(2, 1, 4), torch=f)
    case(op, x(3, 4), x(4), x(3, 1), torch=f)
case("Dropout", x(3, 4), torch=lambda a: a * 1)
case("Dropout", x(5, 6), fixed(0.5), ints(True, dtype=bool), torch="its random numbers differ")
case("Dropout", x(3, 4), opset=7, torch=lambda a: a * 1)

# -- Contractions --------------------------------------------------------------------------------------------------------------

for a, b in (((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4,))):
    case("MatMul", x(*a), x(*b), torch=lambda a, b: a @ b)
case("Gemm", x(3, 4), x(4, 5), x(5), torch=lambda a, b, c: a @ b + c)
case("Gemm", x(4, 3), x(5, 4), x(3, 1), transA=1, transB=1, alpha=0.5, beta=0.25,
     torch=lambda a, b, c: 0.5 * a.T @ b.T + 0.25 * c)
case("Gemm", x(3, 4), x(4, 5), torch=lambda a, b: a @ b)
for equation, *shapes in (("ij,jk->ik", (2, 3), (3, 4)), ("bij,bjk", (2, 2, 3), (2, 3, 2)), ("ii->i", (4, 4)), ("ij->", (2, 3)),
                          ("...ij,...jk->...ik", (2, 2, 3), (3, 2)), ("ab,bc,cd->ad", (2, 3), (3, 2), (2, 3)),
                          ("i,j->ij", (2,), (3,))):
    case("Einsum", *(x(*s) for s in shapes), equation=equation, torch=lambda *t, e=equation: torch.einsum(e, *t))


def conv(a, w, *b, strides=1, pads=0, dilations=1, group=1):
    n = a.dim() - 2
    pads = [pads] * (2 * n) if isinstance(pads, int) else pads
    a = F.pad(a, [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])])
    return [F.conv1d, F.conv2d, F.conv3d][n - 1](a, w, *(b or [None]), strides, 0, dilations, group)


case("Conv", x(2, 3, 7), x(4, 3, 3), torch=conv)
case("Conv", x(1, 2, 5, 6), x(3, 2, 3, 2), x(3), strides=[1, 2], pads=[1, 0, 2, 1], dilations=[1, 2],
     torch=lambda *t: conv(*t, strides=[1, 2], pads=[1, 0, 2, 1], dilations=[1, 2]))
case("Conv", x(1, 4, 5, 4), x(6, 2, 3, 3), x(6), group=2, auto_pad="SAME_UPPER", torch=lambda *t: conv(*t, pads=1, group=2))
case("Conv", x(1, 2, 3, 4, 3), x(2, 2, 2, 3, 2), torch=conv)
case("ConvTranspose", x(2, 3, 4), x(3, 2, 3), strides=[2], torch=lambda a, w: F.conv_transpose1d(a, w, stride=2))
case("ConvTranspose", x(1, 4, 3, 4), x(4, 2, 3, 2), x(4), strides=[2, 1], pads=[1, 0, 1, 0], output_padding=[1, 0], group=2,
     torch=lambda a, w, b: F.conv_transpose2d(a, w, b, (2, 1), (1, 0), (1, 0), 2))
case("ConvTranspose", x(1, 2, 3, 3), x(2, 2, 2, 2), dilations=[2, 2],
     torch=lambda a, w: F.conv_transpose2d(a, w, dilation=2))
case("CausalConvWithState", x(2, 3, 6), x(3, 1, 3), x(3), opset=27, out=["y0"],
     torch=lambda a, w, b: F.conv1d(F.pad(a, (2, 0)), w, b, groups=3))
case("CausalConvWithState", x(2, 3, 6), x(3, 1, 3), x(3), x(2, 3, 2), opset=27, out=2, activation="silu",
     torch=lambda a, w, b, s: (F.silu(F.conv1d(torch.cat([s, a], 2), w, b, groups=3)), torch.cat([s, a], 2)[:, :, -2:]))


def attention(q, k, v, *mask, heads=None, kv_heads=None, **options):
    if heads:  # (b, length, heads * size)
        q, k, v = (t.unflatten(2, (h, -1)).transpose(1, 2) for t, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
    if q.shape[1] != k.shape[1]:
        options["enable_gqa"] = True
    y = F.scaled_dot_product_attention(q, k, v, *mask, **options)
    return y.transpose(1, 2).flatten(2) if heads else y


case("Attention", x(1, 2, 3, 4), x(1, 2, 5, 4), x(1, 2, 5, 3), torch=attention)
case("Attention", x(1, 2, 4, 4), x(1, 2, 4, 4), x(1, 2, 4, 4), is_causal=1, scale=0.3,
     torch=lambda *t: attention(*t, is_causal=True, scale=f32(0.3)))
case("Attention", x(2, 3, 8), x(2, 5, 4), x(2, 5, 4), q_num_heads=4, kv_num_heads=2,
     torch=lambda *t: attention(*t, heads=4, kv_heads=2))
case("Attention", x(1, 2, 3, 4), x(1, 2, 5, 4), x(1, 2, 5, 4), x(3, 5), torch=attention)
case("Attention", x(1, 2, 3, 4), x(1, 2, 2, 4), x(1, 2, 2, 4), None, x(1, 2, 3, 4), x(1, 2, 3, 4), out=3,
     torch=lambda q, k, v, pk, pv: (attention(q, torch.cat([pk, k], 2), torch.cat([pv, v], 2)), torch.cat([pk, k], 2),
                                    torch.cat([pv, v], 2)))
case("Attention", x(1, 2, 3, 4), x(1, 2, 5, 4), x(1, 2, 5, 4), softcap=1.5, out=["y0"],
     torch=lambda q, k, v: (1.5 * (q @ k.mT / 2 / 1.5).tanh()).softmax(-1) @ v)
for mode in range(4):
    case("Attention", x(1, 2, 3, 4), x(1, 2, 3, 4), x(1, 2, 3, 4), softcap=2.0, qk_matmul_output_mode=mode,
         out=["y0", "", "", "y1"],
         torch="PyTorch does not give the scores")
case("FlexAttention", x(1, 2, 3, 4), x(1, 2, 5, 4), x(1, 2, 5, 4), domain="ai.onnx.preview", opset=26, torch=attention)
case("FlexAttention", x(1, 4, 3, 4), x(1, 2, 5, 4), x(1, 2, 5, 4), domain="ai.onnx.preview", opset=26, scale=0.7,
     torch=lambda *t: attention(*t, scale=f32(0.7)))


def linear_attention(q, k, v, *rest, rule, heads, scale, decay=None, beta=None, state=None):
    """The recurrence, head by head: S = decay * S + k v, read by q; with delta rules k reads what it replaces."""
    q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    s = torch.zeros(*q.shape[:2], k.shape[3], v.shape[3], dtype=q.dtype) if state is None else state
    out = []
    for t in range(q.shape[2]):
        if decay is not None:
            g = decay[:, t].exp().unflatten(1, (heads, -1))
            s = s * g[..., None]
        write = v[:, :, t]
        if rule in ("delta", "gated_delta"):
            write = beta[:, t, :, None] * (write - torch.einsum("bhkv,bhk->bhv", s, k[:, :, t]))
        s = s + k[:, :, t, :, None] * write[:, :, None]
        out.append(scale * torch.einsum("bhkv,bhk->bhv", s, q[:, :, t]))
    return torch.stack(out, 1).flatten(2), s


case("LinearAttention", x(1, 4, 6), x(1, 4, 6), x(1, 4, 4), opset=27, out=2, q_num_heads=2, kv_num_heads=2,
     update_rule="linear", scale=0.5, torch=lambda *t: linear_attention(*t, rule="linear", heads=2, scale=0.5))
case("LinearAttention", x(1, 4, 6), x(1, 4, 6), x(1, 4, 4), x(1, 2, 3, 2), x(1, 4, 2, low=-1, high=-0.1), opset=27, out=2,
     q_num_heads=2, kv_num_heads=2, update_rule="gated", scale=0.5,
     torch=lambda q, k, v, s, g: linear_attention(q, k, v, rule="gated", heads=2, scale=0.5, decay=g, state=s))
case("LinearAttention", x(1, 4, 6), x(1, 4, 6), x(1, 4, 4), None, x(1, 4, 6, low=-1, high=-0.1), x(1, 4, 2, low=0.1, high=0.9),
     opset=27, out=2, q_num_heads=2, kv_num_heads=2, update_rule="gated_delta", scale=0.5,
     torch=lambda q, k, v, g, b: linear_attention(q, k, v, rule="gated_delta", heads=2, scale=0.5, decay=g, beta=b))
case("LinearAttention", x(1, 4, 6), x(1, 4, 6), x(1, 4, 4), None, None, x(1, 4, 2, low=0.1, high=0.9), opset=27, out=2,
     q_num_heads=2, kv_num_heads=2, update_rule="delta", scale=0.5,
     torch=lambda q, k, v, b: linear_attention(q, k, v, rule="delta", heads=2, scale=0.5, beta=b))


# -- Recurrent layers ----------------------------------------------------------------------------------------------------------

def recurrent(kind, order, hidden, a, w, r, b, *states, **options):
    """PyTorch's layer; `order`: PyTorch's gates in ONNX's."""
    def gates(t):
        return torch.cat([t.unflatten(0, (len(order), hidden))[g] for g in order])
    weights = {}
    for d in range(w.shape[0]):
        end = "_reverse" if d else ""
        weights |= {f"weight_ih_l0{end}": gates(w[d]), f"weight_hh_l0{end}": gates(r[d]),
                    f"bias_ih_l0{end}": gates(b[d, :len(order) * hidden]), f"bias_hh_l0{end}": gates(b[d, len(order) * hidden:])}
    layer = getattr(torch.nn, kind)(a.shape[2], hidden, bidirectional=w.shape[0] == 2, dtype=torch.float64, **options)
    state = (states if kind == "LSTM" else states[0]) if states else None
    y, last = torch.func.functional_call(layer, weights, (a,) if state is None else (a, tuple(state) if kind == "LSTM" else state))
    y = y.unflatten(2, (w.shape[0], hidden)).transpose(1, 2)
    return (y, *last) if kind == "LSTM" else (y, last)


def lstm(a, w, r, b, *rest):
    return recurrent("LSTM", [0, 2, 3, 1], 3, a, w, r, b, *rest)


def gru(a, w, r, b, *rest):
    return recurrent("GRU", [1, 0, 2], 3, a, w, r, b, *rest)


case("LSTM", x(4, 2, 3), x(1, 12, 3), x(1, 12, 3), x(1, 24), out=3, hidden_size=3, torch=lstm)
case("LSTM", x(3, 2, 2), x(2, 12, 2), x(2, 12, 3), x(2, 24), None, x(2, 2, 3), x(2, 2, 3), out=3, hidden_size=3,
     direction="bidirectional", torch=lstm)
case("LSTM", x(4, 2, 2), x(1, 12, 2), x(1, 12, 3), x(1, 24), ints(4, 2, dtype=np.int32), None, None, x(1, 9), out=3,
     hidden_size=3, direction="reverse", torch="PyTorch has no peepholes")
case("LSTM", x(3, 2, 2), x(1, 12, 2), x(1, 12, 3), out=["", "y0"], hidden_size=3,
     torch=lambda a, w, r: lstm(a, w, r, torch.zeros(1, 24, dtype=a.dtype))[1])
case("LSTM", x(3, 2, 2), x(1, 12, 2), x(1, 12, 3), x(1, 24), out=["", "", "y0"], hidden_size=3, torch=lambda *t: lstm(*t)[2])
case("GRU", x(4, 2, 3), x(1, 9, 3), x(1, 9, 3), x(1, 18), out=2, hidden_size=3, linear_before_reset=1, torch=gru)
case("GRU", x(3, 2, 2), x(2, 9, 2), x(2, 9, 3), x(2, 18), None, x(2, 2, 3), out=2, hidden_size=3, linear_before_reset=1,
     direction="bidirectional", torch=gru)
case("GRU", x(4, 2, 3), x(1, 9, 3), x(1, 9, 3), x(1, 18), ints(4, 2, dtype=np.int32), out=2, hidden_size=3,
     torch="PyTorch resets after the product")
case("RNN", x(4, 2, 3), x(1, 3, 3), x(1, 3, 3), x(1, 6), out=2, hidden_size=3, torch=lambda *t: recurrent("RNN", [0], 3, *t))
case("RNN", x(3, 2, 2), x(2, 3, 2), x(2, 3, 3), x(2, 6), None, x(2, 2, 3), out=2, hidden_size=3, direction="bidirectional",
     activations=["Relu", "Relu"], torch=lambda *t: recurrent("RNN", [0], 3, *t, nonlinearity="relu"))
case("RNN", x(4, 2, 3), x(1, 3, 3), x(1, 3, 3), x(1, 6), ints(3, 4, dtype=np.int32), out=["", "y0"], hidden_size=3,
     direction="reverse", clip=0.8, torch="PyTorch has no clip")

# -- Pooling -------------------------------------------------------------------------------------------------------------------

case("AveragePool", x(1, 2, 7), kernel_shape=[3], strides=[2], torch=lambda a: F.avg_pool1d(a, 3, 2))
case("AveragePool", x(1, 2, 5, 6), kernel_shape=[3, 2], pads=[1, 0, 1, 0], strides=[2, 1],
     torch=lambda a: F.avg_pool2d(a, (3, 2), (2, 1), (1, 0), count_include_pad=False))
case("AveragePool", x(1, 2, 6, 6), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=1, count_include_pad=1,
     torch=lambda a: F.avg_pool2d(a, 3, 2, 1, True, True))
case("AveragePool", x(1, 1, 6, 6), kernel_shape=[2, 2], dilations=[2, 2], torch="PyTorch has no dilations")
case("MaxPool", x(1, 2, 7), kernel_shape=[3], strides=[2], torch=lambda a: F.max_pool1d(a, 3, 2))
case("MaxPool", x(1, 2, 6, 7), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1,
     torch=lambda a: F.max_pool2d(a, (3, 2), 2, (1, 0), 1, True))
case("MaxPool", x(1, 1, 7, 7), kernel_shape=[2, 2], dilations=[3, 2], torch=lambda a: F.max_pool2d(a, 2, 1, 0, (3, 2)))
case("MaxPool", x(1, 1, 3, 4, 4), kernel_shape=[2, 2, 2], torch=lambda a: F.max_pool3d(a, 2, 1))
case("LpPool", x(1, 2, 7), kernel_shape=[3], torch=lambda a: F.lp_pool1d(a, 2.0, 3, 1))
case("LpPool", x(1, 2, 5, 6), kernel_shape=[3, 2], strides=[2, 2], p=3,
     torch=lambda a: (F.avg_pool2d(a.abs() ** 3, (3, 2), 2) * 6) ** (1 / 3))
case("LpPool", x(1, 2, 4, 4), kernel_shape=[2, 2], pads=[1, 1, 1, 1], p=1,
     torch=lambda a: F.avg_pool2d(a.abs(), 2, 1, 1) * 4)
case("GlobalAveragePool", x(2, 3, 4, 5), torch=lambda a: a.mean((2, 3), keepdim=True))
case("GlobalMaxPool", x(2, 3, 4, 5), torch=lambda a: a.amax((2, 3), keepdim=True))
case("GlobalLpPool", x(2, 3, 4), torch=lambda a: a.norm(dim=2, keepdim=True))
case("GlobalLpPool", x(2, 3, 4, 5), p=3, torch=lambda a: (a.abs() ** 3).sum((2, 3), keepdim=True) ** (1 / 3))
case("MaxUnpool", x(1, 1, 2, 2), ints([[[[5, 7], [13, 15]]]]), kernel_shape=[2, 2], strides=[2, 2],
     torch=lambda a, i: F.max_unpool2d(a, i, 2, 2))
case("MaxRoiPool", x(1, 2, 6, 7), fixed([[0, 0, 0, 4, 3], [0, 2, 1, 6, 5], [0, 1, 1, 1, 1]]), pooled_shape=[2, 3],
     torch=lambda a, r: vision.roi_pool(a, r, (2, 3)))
case("MaxRoiPool", x(2, 1, 6, 6), fixed([[1, 0, 0, 9, 9], [0, 3, 4, 11, 8]]), pooled_shape=[2, 2], spatial_scale=0.5,
     torch=lambda a, r: vision.roi_pool(a, r, 2, 0.5))
case("Col2Im", x(1, 8, 12), ints(4, 5), ints(2, 2), torch=lambda a, s, k: F.fold(a, (4, 5), 2))
case("Col2Im", x(1, 9, 4), ints(5, 5), ints(3, 3), strides=[2, 2], torch=lambda a, s, k: F.fold(a, (5, 5), 3, stride=2))
case("Col2Im", x(1, 4, 6), ints(3, 4), ints(2, 2), strides=[2, 2], dilations=[1, 1], pads=[1, 0, 0, 2],
     torch="PyTorch pads both sides alike")

# -- Resampling ----------------------------------------------------------------------------------------------------------------


def resize(a, *shape_or_scale, mode, align=False, antialias=False):
    return F.interpolate(a, size=shape_or_scale, mode=mode, align_corners=None if mode == "nearest" else align,
                         antialias=antialias)


for mode, torch_mode in (("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic")):
    more = dict(nearest_mode="floor", coordinate_transformation_mode="asymmetric") if mode == "nearest" else {}
    more |= dict(cubic_coeff_a=-0.75) if mode == "cubic" else {}
    case("Resize", x(1, 2, 4, 5), None, None, ints(1, 2, 7, 9), mode=mode, **more,
         torch=lambda a, s, m=torch_mode: resize(a, 7, 9, mode=m))
    case("Resize", x(1, 1, 6, 7), None, None, ints(1, 1, 3, 4), mode=mode, **more,
         torch=lambda a, s, m=torch_mode: resize(a, 3, 4, mode=m))
    if mode != "nearest":
        case("Resize", x(1, 1, 4, 5), None, None, ints(1, 1, 7, 9), mode=mode, **more,
             coordinate_transformation_mode="align_corners", torch=lambda a, s, m=torch_mode: resize(a, 7, 9, mode=m, align=True))
        if mode == "cubic":
            more["cubic_coeff_a"] = -0.5
        case("Resize", x(1, 1, 8, 7), None, None, ints(1, 1, 3, 4), mode=mode, antialias=1, exclude_outside=1, **more,
             torch=lambda a, s, m=torch_mode: resize(a, 3, 4, mode=m, antialias=True))
case("Resize", x(1, 1, 4, 4), fixed(0, 0, 0.2, 0.3, 1, 1, 0.8, 0.9), None, ints(1, 1, 3, 5), mode="linear",
     coordinate_transformation_mode="tf_crop_and_resize", torch="PyTorch has no crops in interpolate")
case("Resize", x(4, 3), None, Fixed([2.0]), mode="linear", axes=[0], coordinate_transformation_mode="half_pixel_symmetric",
     torch="PyTorch has no such coordinates")
case("Upsample", x(1, 2, 3, 3), fixed(1, 1, 2, 2), opset=9, torch=lambda a, s: F.interpolate(a, scale_factor=2.0))
for mode in "linear", "nearest", "cubic":
    for i, (pad, align) in enumerate((("zeros", 0), ("border", 1), ("reflection", 0), ("reflection", 1))):
        if mode != "cubic" or pad == "zeros":
            case("GridSample", x(1, 2, 4, 5), x(1, 3, 3, 2, low=-1.3, high=1.3), mode=mode, padding_mode=pad, align_corners=align,
                 torch=lambda a, g, m=mode, p=pad, al=align: F.grid_sample(
                     a, g, {"linear": "bilinear", "cubic": "bicubic"}.get(m, m), p, bool(al)))
case("GridSample", x(1, 1, 3, 4, 3), x(1, 2, 2, 2, 3, low=-1.2, high=1.2), opset=20,
     torch=lambda a, g: F.grid_sample(a, g, align_corners=False))
case("AffineGrid", x(2, 2, 3), ints(2, 3, 4, 5), torch=lambda t, s: F.affine_grid(t, s.tolist(), align_corners=False))
case("AffineGrid", x(1, 3, 4), ints(1, 1, 2, 3, 2), align_corners=1,
     torch=lambda t, s: F.affine_grid(t, s.tolist(), align_corners=True))
case("RoiAlign", x(2, 2, 6, 6), fixed([[0.6, 0.7, 4.1, 3.3], [1.2, 1.1, 5.3, 5.7]]), ints(0, 1), output_height=2, output_width=3,
     sampling_ratio=2, torch=lambda a, r, i: vision.roi_align(a, torch.cat([i[:, None], r], 1), (2, 3), sampling_ratio=2,
                                                              aligned=True))
case("DeformConv", x(1, 2, 4, 5), x(3, 2, 2, 2), x(1, 8, 3, 4, low=-0.7, high=0.7), x(3), x(1, 4, 3, 4), opset=22,
     torch=lambda a, w, o, b, m: vision.deform_conv2d(a, o, w, b, mask=m))
case("DeformConv", x(1, 4, 5, 5), x(4, 2, 3, 3), x(1, 36, 3, 3, low=-1.2, high=1.2), None, x(1, 18, 3, 3), opset=19, group=2,
     offset_group=2, strides=[2, 2], pads=[1, 1, 1, 1], torch=lambda a, w, o, m: vision.deform_conv2d(a, o, w, None, 2, 1, mask=m))

# -- Normalisation -------------------------------------------------------------------------------------------------------------

for op, f in (("Softmax", lambda a, d: a.softmax(d)), ("LogSoftmax", lambda a, d: a.log_softmax(d))):
    case(op, x(2, 3, 4), torch=lambda a, f=f: f(a, -1))
    case(op, x(2, 3, 4), axis=1, torch=lambda a, f=f: f(a, 1))
    case(op, x(2, 3, 4), axis=1, opset=11, torch=lambda a, f=f: f(a.flatten(1), 1).unflatten(1, (3, 4)))
case("Hardmax", x(2, 3, 4), torch="its gradient is zero")
case("Hardmax", x(2, 3, 4), axis=1, torch="its gradient is zero")
case("LayerNormalization", x(2, 3, 5), x(5), x(5), torch=lambda a, g, b: F.layer_norm(a, (5,), g, b, f32(1e-5)))
case("LayerNormalization", x(2, 3, 4), x(3, 4), axis=1, epsilon=0.1, out=3,
     torch=lambda a, g: (F.layer_norm(a, (3, 4), g, None, f32(0.1)), a.mean((1, 2), keepdim=True),
                         (a.var((1, 2), correction=0, keepdim=True) + f32(0.1)).rsqrt()))
case("RMSNormalization", x(2, 3, 5), x(5), torch=lambda a, g: F.rms_norm(a, (5,), g, f32(1e-5)))
case("RMSNormalization", x(2, 3, 4), x(3, 4), axis=1, epsilon=0.1, torch=lambda a, g: F.rms_norm(a, (3, 4), g, f32(0.1)))
case("InstanceNormalization", x(2, 3, 5), x(3), x(3), torch=lambda a, g, b: F.instance_norm(a, None, None, g, b, eps=f32(1e-5)))
case("InstanceNormalization", x(2, 2, 3, 4), x(2), x(2), epsilon=0.1,
     torch=lambda a, g, b: F.instance_norm(a, None, None, g, b, eps=f32(0.1)))
case("GroupNormalization", x(2, 4, 3), x(4), x(4), num_groups=2, torch=lambda a, g, b: F.group_norm(a, 2, g, b, f32(1e-5)))
case("GroupNormalization", x(2, 4, 3), x(2), x(2), num_groups=2, opset=18,
     torch=lambda a, g, b: F.group_norm(a, 2, g.repeat_interleave(2), b.repeat_interleave(2), f32(1e-5)))
case("BatchNormalization", x(3, 2, 4), x(2), x(2), x(2), positive(2),
     torch=lambda a, g, b, m, v: (a - m[:, None]) / (v[:, None] + f32(1e-5)).sqrt() * g[:, None] + b[:, None])
case("BatchNormalization", x(3, 2, 4), x(2), x(2), noise(2), fixed(0.5, 1.5), training_mode=1, epsilon=0.1, out=["y0"],
     torch=lambda a, g, b, m, v: F.batch_norm(a, None, None, g, b, True, eps=f32(0.1)))
case("LpNormalization", x(2, 3, 4), torch=lambda a: F.normalize(a, dim=-1))
case("LpNormalization", x(2, 3, 4), axis=1, p=1, torch=lambda a: F.normalize(a, 1.0, 1))
case("MeanVarianceNormalization", x(2, 2, 3, 2),
     torch=lambda a: (a - a.mean((0, 2, 3), keepdim=True)) / a.var((0, 2, 3), correction=0, keepdim=True).sqrt())
case("MeanVarianceNormalization", x(2, 3, 4), axes=[1],
     torch=lambda a: (a - a.mean(1, keepdim=True)) / a.var(1, correction=0, keepdim=True).sqrt())
case("LRN", x(1, 5, 3, 2), size=3, alpha=0.5, beta=0.75, bias=1.5,
     torch=lambda a: F.local_response_norm(a, 3, 0.5, 0.75, 1.5))
case("LRN", x(1, 5, 3), size=4, alpha=0.5, beta=0.75, torch="PyTorch has another window of even size")


def rotary(a, cos, sin, interleaved=False):
    n = 2 * cos.shape[-1]
    a, rest = a[..., :n], a[..., n:]
    p, q = (a[..., 0::2], a[..., 1::2]) if interleaved else (a[..., :n // 2], a[..., n // 2:])
    parts = [p * cos - q * sin, p * sin + q * cos]
    return torch.cat([torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1), rest], -1)


case("RotaryEmbedding", x(1, 2, 3, 4), x(5, 2), x(5, 2), ints([[0, 3, 1]]),
     torch=lambda a, c, s, p: rotary(a, c[p][:, None], s[p][:, None]))
case("RotaryEmbedding", x(1, 2, 3, 6), x(1, 3, 2), x(1, 3, 2), rotary_embedding_dim=4, interleaved=1,
     torch=lambda a, c, s: rotary(a, c[:, None], s[:, None], True))
case("RotaryEmbedding", x(2, 3, 8), x(2, 3, 2), x(2, 3, 2), num_heads=2,
     torch=lambda a, c, s: rotary(a.unflatten(2, (2, 4)), c[:, :, None], s[:, :, None]).flatten(2))

# -- Losses --------------------------------------------------------------------------------------------------------------------

for reduction in "mean", "sum", "none":
    case("SoftmaxCrossEntropyLoss", x(4, 3), ints(0, 2, 1, 2), reduction=reduction,
         torch=lambda a, t, r=reduction: F.cross_entropy(a, t, reduction=r))
    case("NegativeLogLikelihoodLoss", x(4, 3), ints(0, 2, 1, 2), reduction=reduction,
         torch=lambda a, t, r=reduction: F.nll_loss(a, t, reduction=r))
    case("SoftmaxCrossEntropyLoss", x(2, 3, 2), ints([[0, 2], [1, 1]]), fixed(0.2, 1.0, 0.5), reduction=reduction, ignore_index=2,
         torch=lambda a, t, w, r=reduction: F.cross_entropy(a, t, w, ignore_index=2, reduction=r))
    case("NegativeLogLikelihoodLoss", x(2, 3, 2), ints([[0, 2], [1, 1]]), fixed(0.2, 1.0, 0.5), reduction=reduction,
         ignore_index=2, torch=lambda a, t, w, r=reduction: F.nll_loss(a, t, w, ignore_index=2, reduction=r))
case("SoftmaxCrossEntropyLoss", x(4, 3), ints(0, 2, 1, 2), out=2,
     torch=lambda a, t: (F.cross_entropy(a, t), a.log_softmax(1)))
case("SoftmaxCrossEntropyLoss", x(4, 3), ints(0, 2, 1, 2), out=["_", "y0"], torch=lambda a, t: a.log_softmax(1))

# -- Reductions and scans ------------------------------------------------------------------------------------------------------

for op, f in (("ReduceL1", lambda a, d, k: a.abs().sum(d, k)), ("ReduceL2", lambda a, d, k: (a * a).sum(d, k).sqrt()),
              ("ReduceLogSum", lambda a, d, k: a.sum(d, k).log()), ("ReduceLogSumExp", lambda a, d, k: a.logsumexp(d, k)),
              ("ReduceMax", lambda a, d, k: a.amax(d, k)), ("ReduceMean", lambda a, d, k: a.mean(d, k)),
              ("ReduceMin", lambda a, d, k: a.amin(d, k)), ("ReduceSum", lambda a, d, k: a.sum(d, k)),
              ("ReduceSumSquare", lambda a, d, k: (a * a).sum(d, k)), ("ReduceProd", lambda a, d, k: a.exp().sum() * 0)):
    make = positive if op == "ReduceLogSum" else x
    if op == "ReduceProd":
        def f(a, d, k):
            for i in sorted(d, reverse=True):
                a = a.prod(i, k)
            return a
    case(op, make(2, 3, 4), ints([1]), torch=lambda a, d, f=f: f(a, (1,), True))
    case(op, make(2, 3, 4), keepdims=0, torch=lambda a, f=f: f(a, (0, 1, 2), False))
    case(op, make(2, 3, 4), ints(-1, 0), keepdims=0, torch=lambda a, d, f=f: f(a, (0, 2), False))
    case(op, make(2, 3, 4), opset=11, axes=[0, 2], torch=lambda a, f=f: f(a, (0, 2), True))
case("CumSum", x(2, 4), ints(1), torch=lambda a, d: a.cumsum(1))
case("CumSum", x(2, 4), ints(0), reverse=1, torch=lambda a, d: a.flip(0).cumsum(0).flip(0))
case("CumSum", x(2, 4), ints(-1), exclusive=1, torch=lambda a, d: a.cumsum(1) - a)
case("CumProd", x(2, 4), ints(1), opset=26, torch=lambda a, d: a.cumprod(1))
case("CumProd", x(2, 4), ints(0), opset=26, reverse=1, torch=lambda a, d: a.flip(0).cumprod(0).flip(0))
case("CumProd", x(2, 4), ints(-1), opset=26, exclusive=1,
     torch=lambda a, d: torch.cat([torch.ones_like(a[:, :1]), a[:, :-1].cumprod(1)], 1))
case("TopK", x(3, 5), ints([2]), out=["y0", "_"], torch=lambda a, k: a.topk(2).values)
case("TopK", x(3, 5), ints([2]), out=["y0", "_"], axis=0, largest=0, torch=lambda a, k: a.topk(2, 0, False).values)
case("TopK", x(3, 5), opset=1, k=3, axis=1, out=["y0", "_"], torch=lambda a: a.topk(3, 1).values)

# -- Lookup --------------------------------------------------------------------------------------------------------------------

case("Gather", x(4, 3), ints([[0, 2], [2, -1]]), torch=lambda a, i: a[i])
case("Gather", x(3, 4), ints(1, 1, 3), axis=1, torch=lambda a, i: a[:, i])
case("Gather", x(3, 4), ints(2), axis=-1, torch=lambda a, i: a[:, 2])
case("GatherElements", x(3, 4), ints([[0, 2, 1, 1], [2, 2, 0, 1]]), torch=lambda a, i: a.gather(0, i))
case("GatherElements", x(3, 4), ints([[0, -1], [2, 2], [1, 3]]), axis=1, torch=lambda a, i: a.gather(1, i % 4))
case("GatherND", x(3, 4, 2), ints([[0, 1], [2, 3], [0, 1]]), torch=lambda a, i: a[i[:, 0], i[:, 1]])
case("GatherND", x(2, 3, 4), ints([[1], [2]]), batch_dims=1, torch=lambda a, i: torch.stack([a[0, 1], a[1, 2]]))
for name, i in (("ScatterElements", ints([[0, 2, 1], [1, 0, 2]])), ("Scatter", ints([[0, 2, 1], [1, 0, 2]]))):
    case(name, x(3, 4), i, x(2, 3), opset=11 if name[-1] == "s" else 9, torch=lambda a, i, u: a.scatter(0, i, u))
case("ScatterElements", x(3, 4), ints([[1, 3], [0, 2], [1, 0]]), x(3, 2), axis=1, torch=lambda a, i, u: a.scatter(1, i, u))
for reduction in "add", "mul", "max", "min":
    case("ScatterElements", x(3, 4), ints([[0, 0, 1], [0, 2, 1]]), x(2, 3), reduction=reduction,
         torch=lambda a, i, u, r={"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]:
         a.scatter_reduce(0, i, u, r))
    case("ScatterND", x(4, 3), ints([[0], [2], [0]]), x(3, 3), reduction=reduction,
         torch=lambda a, i, u, r={"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]:
         a.scatter_reduce(0, i.expand(3, 3), u, r))
case("ScatterND", x(4, 3, 2), ints([[0, 1], [3, 2]]), x(2, 2), torch=lambda a, i, u: a.index_put((i[:, 0], i[:, 1]), u))
case("TensorScatter", x(2, 5, 3), x(2, 2, 3), ints(1, 3), axis=1,
     torch=lambda a, u, i: torch.stack([torch.cat([a[b, :k], u[b], a[b, k + 2:]]) for b, k in enumerate((1, 3))]))
case("TensorScatter", x(2, 1, 4, 2), x(2, 1, 2, 2), ints(3, 1), mode="circular",
     torch=lambda a, u, i: torch.stack([a[0].index_copy(1, torch.tensor([3, 0]), u[0]),
                                        a[1].index_copy(1, torch.tensor([1, 2]), u[1])]))
case("Compress", x(3, 4), ints([True, False, True], dtype=bool), axis=0, torch=lambda a, c: a[c])
case("Compress", x(2, 3), ints([False, True, True, False, True], dtype=bool), torch=lambda a, c: a.flatten()[:5][c])
case("ReverseSequence", x(4, 3), ints(1, 3, 4), torch=lambda a, n: torch.stack(
    [torch.cat([a[:k, b].flip(0), a[k:, b]]) for b, k in enumerate((1, 3, 4))], 1))

# -- Shape ---------------------------------------------------------------------------------------------------------------------

case("Reshape", x(2, 3, 4), ints(0, -1), torch=lambda a, s: a.reshape(2, 12))
case("Flatten", x(2, 3, 4), axis=2, torch=lambda a: a.flatten(0, 1))
case("Flatten", x(2, 3), axis=0, torch=lambda a: a.reshape(1, 6))
case("Squeeze", x(2, 1, 3, 1), torch=lambda a: a.squeeze())
case("Squeeze", x(2, 1, 3, 1), ints([-1]), torch=lambda a, d: a.squeeze(-1))
case("Unsqueeze", x(2, 3), ints(0, -1), torch=lambda a, d: a[None, ..., None])
case("Unsqueeze", x(2, 3), opset=11, axes=[1], torch=lambda a: a[:, None])
case("Transpose", x(2, 3, 4), torch=lambda a: a.permute(2, 1, 0))
case("Transpose", x(2, 3, 4), perm=[1, 0, 2], torch=lambda a: a.permute(1, 0, 2))
case("Concat", x(2, 3), x(2, 2), axis=1, torch=lambda *t: torch.cat(t, 1))
case("Concat", x(1, 3), x(2, 3), x(1, 3), axis=-2, torch=lambda *t: torch.cat(t, -2))
case("Split", x(4, 3), ints(1, 3), out=2, torch=lambda a, s: a.split([1, 3]))
case("Split", x(2, 7), out=3, num_outputs=3, axis=1, torch=lambda a: a.split([3, 3, 1], 1))
case("Split", x(4, 3), ints(1, 3), out=["", "y0"], torch=lambda a, s: a[1:])
case("Slice", x(4, 5), ints(1, 0), ints(4, 5), ints(0, 1), ints(2, 2), torch=lambda a, *_: a[1:4:2, ::2])
case("Slice", x(4, 5), ints([-1]), ints([-5]), ints([1]), ints([-2]), torch=lambda a, *_: a.flip(1)[:, :4:2])
case("Slice", x(4, 5), opset=9, starts=[1], ends=[3], axes=[1], torch=lambda a: a[:, 1:3])
case("Pad", x(3, 4), ints(1, 0, 2, 1), fixed(0.5), torch=lambda a, p, v: F.pad(a, (0, 1, 1, 2), value=0.5))
for mode, torch_mode in (("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")):
    case("Pad", x(1, 2, 3, 4), ints(0, 0, 1, 2, 0, 0, 2, 1), mode=mode, torch=lambda a, p, m=torch_mode: F.pad(a, (2, 1, 1, 2), m))
case("Pad", x(3, 4), ints(-1, 1, 0, -2), torch=lambda a, p: F.pad(a, (1, -2, -1, 0)))
case("CenterCropPad", x(5, 4), ints(3, 6), opset=18, torch=lambda a, s: F.pad(a[1:4], (1, 1)))
case("CenterCropPad", x(2, 5, 4), ints([8]), opset=18, axes=[1], torch=lambda a, s: F.pad(a, (0, 0, 1, 2)))
case("Expand", x(3, 1), ints(2, 1, 4), torch=lambda a, s: a.expand(2, 3, 4))
case("Expand", x(2, 3), ints(1, 1), torch=lambda a, s: a * 1)
case("Tile", x(2, 3), ints(2, 3), torch=lambda a, r: a.repeat(2, 3))
case("Trilu", x(3, 4), torch=lambda a: a.triu())
case("Trilu", x(2, 3, 3), ints(-1), upper=0, torch=lambda a, k: a.tril(-1))
case("DepthToSpace", x(1, 8, 2, 3), blocksize=2, mode="CRD", torch=lambda a: F.pixel_shuffle(a, 2))
case("DepthToSpace", x(1, 8, 2, 3), blocksize=2,
     torch=lambda a: a.reshape(1, 2, 2, 2, 2, 3).permute(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6))
case("SpaceToDepth", x(1, 2, 4, 6), blocksize=2,
     torch=lambda a: a.reshape(1, 2, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3))

# -- Signals and matrices ------------------------------------------------------------------------------------------------------

case("STFT", x(1, 16, 1), ints(4), None, ints(8), torch=lambda a, s, n: torch.view_as_real(
    torch.fft.rfft(a[..., 0].unfold(1, 8, 4))))
case("STFT", x(2, 12, 1), ints(3), x(6), onesided=0, opset=17, torch=lambda a, s, w: torch.view_as_real(
    torch.fft.fft(a[..., 0].unfold(1, 6, 3) * w)))
case("DFT", x(2, 6, 1), None, ints(1), opset=20, torch=lambda a, d: torch.view_as_real(torch.fft.fft(a[..., 0])))
case("DFT", x(2, 5, 3, 2), ints(7), ints(1), opset=20,
     torch=lambda a, n, d: torch.view_as_real(torch.fft.fft(torch.view_as_complex(a), 7, 1)))
case("DFT", x(2, 5, 3, 2), ints(4), ints(-2), opset=20, inverse=1,
     torch=lambda a, n, d: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(a), 4, 2)))
case("DFT", x(2, 7, 1), opset=20, onesided=1, torch=lambda a: torch.view_as_real(torch.fft.rfft(a[..., 0])))
case("DFT", x(2, 6, 3, 1), ints(8), opset=17, axis=1, onesided=1,
     torch=lambda a, n: torch.view_as_real(torch.fft.rfft(a[..., 0], 8, 1)))
case("DFT", x(2, 5, 2), opset=20, onesided=1, inverse=1,
     torch=lambda a: torch.fft.irfft(torch.complex(a[..., 0], a[..., 1]), 8)[..., None])
case("Det", x(3, 3), torch=lambda a: a.det())
case("Det", x(2, 2, 4, 4), torch=lambda a: a.det())
case("Det", given([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]), torch="PyTorch's gradient of singular matrices is zero")
case("Det", given([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]]), torch="PyTorch's gradient of singular matrices is zero")

# -- Forms in which gradients go wrong: zeros, masks, lengths, rare attributes ---------------------------------------------------

case("Pow", given([0.0, 0.5, 2.0]), given([2.0, 3.0, 1.5]), torch=lambda a, b: a ** b)
case("Pow", given([-1.5, 0.0, 2.0]), fixed(2.0), torch=lambda a, b: a ** 2)
case("ReduceProd", given([[2.0, 0.0, 3.0], [0.0, 0.0, 1.5], [1.0, 2.0, 3.0]]), ints([1]), keepdims=0,
     torch=lambda a, d: a.prod(1))
case("ReduceProd", given([[2.0, 0.0, 3.0], [0.0, 0.0, 1.5]]), keepdims=0, torch=lambda a: a.prod())
for more, f in (({}, lambda a, d: a.cumprod(1)), ({"reverse": 1}, lambda a, d: a.flip(1).cumprod(1).flip(1)),
                ({"exclusive": 1, "reverse": 1}, lambda a, d: F.pad(a[:, 1:], (0, 1), value=1.0).flip(1).cumprod(1).flip(1))):
    case("CumProd", given([[2.0, 0.0, 3.0, 0.5], [0.0, 1.5, 0.0, 2.0]]), ints(1), opset=26, torch=f, **more)
case("CumSum", x(3, 4), ints(1), exclusive=1, reverse=1, torch=lambda a, d: a.flip(1).cumsum(1).flip(1) - a)
case("ScatterElements", given([[2.0, 0.0, 3.0]]), ints([[1, 0, 1]]), given([[0.0, 1.5, 2.0]]), axis=1, reduction="mul",
     torch=lambda a, i, u: a.scatter_reduce(1, i, u, "prod"))
case("ScatterND", x(2, 3, 4), ints([[[0, 1], [1, 2]], [[0, 0], [1, 0]]]), x(2, 2, 4), reduction="add",
     torch=lambda a, i, u: a.index_put((i[..., 0], i[..., 1]), u, accumulate=True))
case("ScatterElements", x(3, 4), ints([[-1, 0], [1, -2]]), x(2, 2), axis=-1, torch=lambda a, i, u: a.scatter(1, i % 4, u))
case("ReduceLogSumExp", given([[-np.inf, 0.5, 1.0], [2.0, -np.inf, -1.0]]), ints([1]), torch=lambda a, d: a.logsumexp(1, True))
case("Softmax", given([[-np.inf, 0.5, 1.0], [2.0, -np.inf, -1.0]]), torch=lambda a: a.softmax(-1))
case("ReduceMax", x(2, 3, 4), noop_with_empty_axes=1, torch=lambda a: a * 1)
case("ReduceSum", x(2, 3), ints([]), noop_with_empty_axes=1, torch=lambda a, d: a * 1)
case("Softmax", x(4, 3), axis=0, torch=lambda a: a.softmax(0))
case("LogSoftmax", x(5), torch=lambda a: a.log_softmax(0))
case("Einsum", x(3, 3, 2), equation="iij->j", torch=lambda a: torch.einsum("iij->j", a))
case("Einsum", x(2, 3), x(3, 2, 4), equation="ab,bac->c", torch=lambda a, b: torch.einsum("ab,bac->c", a, b))
case("Einsum", x(2, 3, 4), x(2, 3, 4), equation="bij,bij->b", torch=lambda a, b: (a * b).sum((1, 2)))
case("Einsum", x(2, 2, 3), equation="...i->i...", torch=lambda a: a.permute(2, 0, 1))
case("MatMul", x(2, 1, 2, 3), x(3, 3, 2), torch=lambda a, b: a @ b)
case("Gemm", x(3, 4), x(4, 5), x(), beta=0.5, torch=lambda a, b, c: a @ b + 0.5 * c)
case("Conv", x(1, 2, 7), x(2, 2, 3), x(2), auto_pad="SAME_LOWER", strides=[2], torch=lambda *t: conv(*t, pads=[1, 1], strides=2))
case("Conv", x(2, 3, 5, 5), x(6, 1, 3, 3), group=3, torch=lambda *t: conv(*t, group=3))
case("ConvTranspose", x(1, 2, 3, 3), x(2, 3, 3, 3), x(3), strides=[2, 2], output_shape=[6, 6], auto_pad="SAME_UPPER",
     torch=lambda a, w, b: F.conv_transpose2d(a, w, b, 2)[:, :, :6, :6])
case("ConvTranspose", x(1, 1, 2, 2, 2), x(1, 2, 2, 2, 2), torch=lambda a, w: F.conv_transpose3d(a, w))
case("MaxPool", x(1, 1, 5, 5), kernel_shape=[2, 2], auto_pad="SAME_UPPER", out=["y0", "_"],
     torch=lambda a: F.max_pool2d(F.pad(a, (0, 1, 0, 1), value=-9.0), 2, 1))
case("AveragePool", x(1, 1, 5), kernel_shape=[3], auto_pad="SAME_LOWER", strides=[2],
     torch=lambda a: F.avg_pool1d(a, 3, 2, 1, False, False))
case("Max", x(), x(3, 4), torch=lambda a, b: torch.maximum(a, b))
case("Min", x(2, 1), x(1, 3), x(), torch=lambda *t: torch.stack(torch.broadcast_tensors(*t)).amin(0))
case("Where", ints([[True, False]], dtype=bool), x(3, 1), x(1, 2), torch=lambda c, a, b: torch.where(c, a, b))
case("PRelu", x(2, 3, 4), x(4), torch=lambda a, s: torch.where(a > 0, a, a * s))
case("LayerNormalization", x(2, 3, 4), x(3, 4), x(4), axis=-1,
     torch=lambda a, g, b: F.layer_norm(a, (4,), None, None, f32(1e-5)) * g + b)
case("LayerNormalization", x(2, 3), x(3), out=["", "y0", "y1"], torch=lambda a, g: (
    a.mean(1, keepdim=True), (a.var(1, correction=0, keepdim=True) + f32(1e-5)).rsqrt()))
case("RMSNormalization", x(2, 3, 4), x(3, 1), axis=1, torch=lambda a, g: F.rms_norm(a, (3, 4), None, f32(1e-5)) * g)
case("GroupNormalization", x(2, 6, 2, 2), x(6), x(6), num_groups=3, epsilon=0.1,
     torch=lambda a, g, b: F.group_norm(a, 3, g, b, f32(0.1)))
case("BatchNormalization", x(4, 3), x(3), x(3), noise(3), fixed(0.5, 1.5, 1.0), training_mode=1, out=["y0"],
     torch=lambda a, g, b, m, v: F.batch_norm(a, None, None, g, b, True, eps=f32(1e-5)))
case("BatchNormalization", x(2, 2, 3, 2), x(2), x(2), x(2), positive(2), opset=9, epsilon=0.1,
     torch=lambda a, g, b, m, v: torch.einsum("nchw,c->nchw", a - m[:, None, None], g / (v + f32(0.1)).sqrt()) + b[:, None, None])
case("LRN", x(2, 4, 2, 3), size=5, torch=lambda a: F.local_response_norm(a, 5, f32(1e-4), 0.75, 1.0))
case("TopK", x(2, 3, 4), ints([3]), out=["y0", "_"], axis=1, sorted=1, torch=lambda a, k: a.topk(3, 1).values)
case("GatherND", x(2, 3), ints([[-1, 0], [0, -2]]), torch=lambda a, i: torch.stack([a[1, 0], a[0, 1]]))
case("Gather", x(2, 3, 4), ints([[1], [-1]]), axis=1, torch=lambda a, i: a[:, i])
case("Expand", x(), ints(2, 3), torch=lambda a, s: a.expand(2, 3))
case("Split", x(5), ints(0, 5), out=["", "y0"], torch=lambda a, s: a * 1)
case("Concat", x(3), x(2), axis=0, torch=lambda *t: torch.cat(t))
case("Pad", x(3, 4), ints(2, 1), None, ints([1]), mode="reflect", torch=lambda a, p, d: F.pad(a[None], (2, 1), "reflect")[0])
case("Slice", x(4, 5), ints([3]), ints([-9]), ints([0]), ints([-1]), torch=lambda a, *_: a.flip(0))
case("Tile", x(2, 1), ints(1, 4), torch=lambda a, r: a.repeat(1, 4))
case("Resize", x(1, 1, 4, 4), None, fixed(1.0, 1.0, 0.5, 1.5), mode="nearest", nearest_mode="ceil",
     coordinate_transformation_mode="half_pixel", torch="PyTorch rounds down")
case("Resize", x(1, 1, 3, 5), None, None, ints(6, 8), mode="linear", axes=[2, 3], keep_aspect_ratio_policy="not_larger",
     torch="PyTorch has no such policy")
case("Resize", x(1, 1, 1, 3), None, None, ints(1, 1, 1, 5), mode="linear", coordinate_transformation_mode="pytorch_half_pixel",
     torch=lambda a, s: resize(a, 1, 5, mode="bilinear"))
case("Resize", x(1, 1, 5), None, fixed(1.0, 1.0, 1.7), mode="cubic", exclude_outside=1, torch="PyTorch has no exclude_outside")
case("RoiAlign", x(1, 2, 5, 5), fixed([[0.3, 0.6, 3.2, 4.1]]), ints([0]), output_height=2, output_width=2, sampling_ratio=2,
     mode="max", coordinate_transformation_mode="output_half_pixel", spatial_scale=0.5, torch="PyTorch has means only")
case("RoiAlign", x(1, 2, 5, 5), fixed([[0.3, 0.6, 6.2, 8.1]]), ints([0]), output_height=3, output_width=2, sampling_ratio=1,
     coordinate_transformation_mode="output_half_pixel", spatial_scale=0.5,
     torch=lambda a, r, i: vision.roi_align(a, torch.cat([i[:, None], r], 1), (3, 2), 0.5, 1, False))
case("GridSample", x(1, 1, 4, 4), x(1, 2, 3, 2, low=-1.6, high=1.6), mode="cubic", padding_mode="border", align_corners=1,
     torch="PyTorch moves taps to the border, ONNX the point")
case("GridSample", x(1, 1, 4, 4), x(1, 2, 3, 2, low=-1.6, high=1.6), mode="cubic", padding_mode="reflection",
     torch=lambda a, g: F.grid_sample(a, g, "bicubic", "reflection", False))
masked = [[True, False, True, True], [False, False, False, True], [True, True, True, False]]
case("Attention", x(1, 2, 3, 4), x(1, 2, 4, 4), x(1, 2, 4, 4), ints(masked, dtype=bool),
     torch=lambda q, k, v, m: attention(q, k, v, m))
case("Attention", x(1, 2, 3, 4), x(1, 2, 4, 4), x(1, 2, 4, 4), Fixed(np.where(masked, 0.3, -np.inf)),
     torch=lambda q, k, v, m: attention(q, k, v, m))
case("Attention", x(1, 4, 3, 4), x(1, 2, 4, 4), x(1, 2, 4, 4), x(1, 4, 3, 4), is_causal=1, softcap=2.0, out=["y0"],
     torch="PyTorch caps no scores")
case("Attention", x(2, 2, 3, 4), x(2, 2, 5, 4), x(2, 2, 5, 3), None, None, None, ints(3, 5), is_causal=1, out=["y0"],
     torch="PyTorch has no lengths")
case("Attention", x(1, 4, 2, 4), x(1, 2, 2, 4), x(1, 2, 2, 4), None, x(1, 2, 3, 4), x(1, 2, 3, 4), is_causal=1, out=["y0"],
     torch=lambda q, k, v, pk, pv: attention(q, torch.cat([pk, k], 2), torch.cat([pv, v], 2),
                                             torch.ones(2, 5, dtype=torch.bool).tril(3)))
case("LSTM", x(3, 2, 2), x(1, 8, 2), x(1, 8, 2), x(1, 16), None, x(1, 2, 2), x(1, 2, 2), x(1, 6), out=3, hidden_size=2, clip=0.7,
     input_forget=1, activations=["HardSigmoid", "Softsign", "Elu"], activation_alpha=[0.3, 0.8], activation_beta=[0.45],
     torch="PyTorch has no such activations")
case("LSTM", x(2, 3, 2), x(1, 8, 2), x(1, 8, 2), layout=1, out=["y0", "y1", "y2"], hidden_size=2,
     torch="PyTorch's layer was compared in the other layout")
case("GRU", x(3, 2, 2), x(2, 6, 2), x(2, 6, 2), x(2, 12), ints(3, 1, dtype=np.int32), x(2, 2, 2), out=["", "y0"], hidden_size=2,
     direction="bidirectional", activations=["Sigmoid", "Softplus", "LeakyRelu", "Tanh"], activation_alpha=[0.2],
     torch="PyTorch has no such activations")
case("SoftmaxCrossEntropyLoss", x(2, 3, 2, 2), ints([[[0, 1], [2, 1]], [[1, -1], [0, 0]]]), ignore_index=-1,
     torch=lambda a, t: F.cross_entropy(a, t, ignore_index=-1))
case("NegativeLogLikelihoodLoss", x(2, 3, 2, 2), ints([[[0, 1], [2, 1]], [[1, -1], [0, 0]]]), ignore_index=-1,
     torch=lambda a, t: F.nll_loss(a, t, ignore_index=-1))
case("STFT", x(1, 12, 2), ints(4), x(6), onesided=0, torch=lambda a, s, w: torch.view_as_real(
    torch.fft.fft(torch.view_as_complex(a).unfold(1, 6, 4) * w)))
case("DFT", x(3, 1, 2), ints(5), ints(0), opset=20, onesided=1, inverse=1,
     torch=lambda a, n, d: torch.fft.irfft(torch.view_as_complex(a), 5, 0)[..., None])
case("DFT", x(2, 3, 5, 1), opset=17, inverse=1, axis=-2,
     torch=lambda a: torch.view_as_real(torch.fft.ifft(a[..., 0]).resolve_conj()))
case("DeformConv", x(1, 2, 4), x(1, 2, 2), x(1, 2, 3, low=-0.6, high=0.6), opset=22, torch="torchvision has two dimensions only")
case("CausalConvWithState", x(1, 2, 3), x(2, 1, 4), None, x(1, 2, 3), opset=27, out=2,
     torch=lambda a, w, s: (F.conv1d(torch.cat([s, a], 2), w, None, groups=2), torch.cat([s, a], 2)[:, :, -3:]))
case("RotaryEmbedding", x(2, 3, 8), x(5, 2), x(5, 2), ints([[0, 1, 4], [2, 2, 3]]), num_heads=2, interleaved=1,
     torch=lambda a, c, s, p: rotary(a.unflatten(2, (2, 4)), c[p][:, :, None], s[p][:, :, None], True).flatten(2))
case("MaxUnpool", x(1, 2, 2), ints([[[1, 2], [4, 7]]]), ints(1, 2, 5), kernel_shape=[2], strides=[2],
     torch="PyTorch's indices are of a channel")
case("Col2Im", x(2, 4, 3), ints([7]), ints([2]), strides=[2], torch="PyTorch folds images only")
