"""Writes torch.nn: instances of ops with PyTorch's results, which torch.c compares with our references.

    python3 tests/ops/torch_ops.py > tests/ops/torch.nn

All in double. A gradient is the result of the row's adjoint op on its operands, compared with
PyTorch's autograd for a random adjoint of the forward op. Parameters %want0, %want1 ... are
the results in order; results without an equivalent in PyTorch are left out.
"""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
TYPES = {torch.float64: "f64", torch.int64: "i64", torch.int32: "i32"}


def rand(*shape):
    return torch.randn(*shape).mul(100).round().div(100)  # short text


def param(name, t):
    t = torch.as_tensor(t)
    shape = ",".join(map(str, t.shape))
    numbers = ",".join(repr(x) for x in t.flatten().tolist())
    return f"%{name}: {TYPES[t.dtype]}[{shape}] = [{numbers}]"


def text(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)


def emit(name, op, operands, wants, n_results=None, **attrs):
    """Prints one graph; `wants` are the results, None for those that are not compared."""
    names = [f"x{i}" for i in range(len(operands))]
    params = [param(n, t) for n, t in zip(names, operands)]
    params += [param(f"want{i}", t) for i, t in enumerate(wants) if t is not None]
    results = ", ".join(f"%y{i}" for i in range(n_results or len(wants)))
    values = "".join(f" {k}={text(v)}" for k, v in attrs.items())
    print(f"graph @{name}(\n  " + ",\n  ".join(params) + "\n) {")
    print(f"  {results} = {op} " + ", ".join("%" + n for n in names) + f"{values}\n}}\n")


def forward(f, *operands):
    """Returns the result of f, a random adjoint of it, and the adjoints of the floating operands."""
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in operands]
    y = f(*leaves)
    dy = rand(*y.shape)
    grads = torch.autograd.grad(y, [x for x in leaves if x.requires_grad], dy)
    return y.detach(), dy, grads


print("# PyTorch's results for these ops.  Written by torch_ops.py; compared by torch.c.\n")
print("module phase=typed\n")

# Elementwise: name, function, attributes, whether the adjoint reads y instead of x.
x = torch.tensor([-4.5, -3.25, -1.5, -0.6, -0.01, 0.02, 0.4, 0.9, 1.7, 2.9, 3.5, 7.25])
for name, f, attrs, reads_y in [
    ("relu", F.relu, {}, False),
    ("gelu", F.gelu, {}, False),
    ("gelu_tanh", lambda t: F.gelu(t, approximate="tanh"), {}, False),
    ("sigmoid", torch.sigmoid, {}, True),
    ("tanh", torch.tanh, {}, True),
    ("softplus", lambda t: F.softplus(t, threshold=1000), {}, None),
    ("erf", torch.erf, {}, None),
    ("elu", lambda t: F.elu(t, alpha=0.7), {"alpha": 0.7}, False),
    ("leaky_relu", lambda t: F.leaky_relu(t, 0.1), {"slope": 0.1}, False),
    ("hard_swish", F.hardswish, {}, False),
    # F.hardsigmoid's own adjoint rounds 1/6 to single precision.
    ("hard_sigmoid", lambda t: (t / 6 + 0.5).clamp(0, 1), {"alpha": 1 / 6, "beta": 0.5}, False),
    ("swish", F.silu, {"beta": 1.0}, False),
    ("clip", lambda t: t.clamp(-1, 2), {"low": -1.0, "high": 2.0}, False),
]:
    y, dy, (dx,) = forward(f, x)
    emit(name, name, [x], [y], **attrs)
    if reads_y is not None:
        emit(name + "_back", name + "_back", [y if reads_y else x, dy], [dx], **attrs)


def conv(name, x, w, strides, pads, dilations, group=1):
    n = x.dim() - 2
    widths = [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])]
    f = [F.conv1d, F.conv2d, F.conv3d][n - 1]
    y, dy, (dx, dw) = forward(
        lambda a, b: f(F.pad(a, widths), b, None, strides, 0, dilations, group), x, w)
    attrs = dict(strides=strides, pads=pads, dilations=dilations, group=group)
    emit(name, "conv", [x, w], [y], **attrs)
    emit(name + "_back_x", "conv_back_x", [w, dy], [dx], shape=list(x.shape), **attrs)
    emit(name + "_back_w", "conv_back_w", [x, dy], [dw], shape=list(w.shape), **attrs)


def last(t):
    return t.movedim(1, -1).contiguous()


conv("conv_1d", rand(2, 3, 9), rand(4, 3, 3), [2], [1, 0], [1])
conv("conv_2d", rand(2, 2, 5, 6), rand(3, 2, 3, 2), [1, 2], [1, 0, 2, 1], [1, 2])
conv("conv_groups", rand(1, 4, 5, 4), rand(6, 2, 3, 3), [2, 1], [1, 1, 1, 1], [1, 1], 2)
conv("conv_depthwise", rand(1, 3, 5, 5), rand(6, 1, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], 3)
conv("conv_3d", rand(1, 2, 3, 4, 3), rand(2, 2, 2, 3, 2), [1, 2, 1], [0, 1, 0, 1, 1, 1], [2, 1, 1])
x, w = rand(1, 3, 4, 5), rand(2, 3, 3, 3)
y, dy, (dx, dw) = forward(lambda a, b: F.conv2d(a, b, padding=1), x, w)
attrs = dict(strides=[1, 1], pads=[1] * 4, dilations=[1, 1], group=1, channels_last=True)
emit("conv_last", "conv", [last(x), w], [last(y)], **attrs)
emit("conv_last_back_x", "conv_back_x", [w, last(dy)], [last(dx)], shape=[1, 4, 5, 3], **attrs)
emit("conv_last_back_w", "conv_back_w", [last(x), last(dy)], [dw], shape=[2, 3, 3, 3], **attrs)

for name, shape, kernel, stride, pad, dilation, ceil in [
    ("max_pool", (1, 2, 6, 7), [3, 2], [2, 2], [1, 0], [1, 1], False),
    ("max_pool_ceil", (1, 2, 6, 6), [3, 3], [2, 2], [0, 0], [1, 1], True),
    ("max_pool_dilated", (1, 1, 7, 7), [2, 2], [1, 2], [1, 1], [3, 2], False),
    ("max_pool_1d", (2, 2, 8), [3], [3], [1], [1], True),
]:
    n, x = len(kernel), rand(*shape)
    pool = [F.max_pool1d, F.max_pool2d][n - 1]
    y, dy, (dx,) = forward(lambda a: pool(a, kernel, stride, pad, dilation, ceil), x)
    _, at = pool(x, kernel, stride, pad, dilation, ceil, return_indices=True)
    emit(name, "max_pool", [x], [y, at.int()], kernel=kernel, strides=stride, pads=pad + pad,
         dilations=dilation, shape=list(y.shape))
    emit(name + "_back", "max_pool_back", [at.int(), dy], [dx], kernel=kernel,
         strides=stride, pads=pad + pad, dilations=dilation, shape=list(x.shape))

for name, shape, kernel, stride, pad, ceil, include in [
    ("avg_pool", (1, 2, 6, 7), [3, 2], [2, 2], [1, 0], False, False),
    ("avg_pool_padded", (1, 2, 5, 5), [3, 3], [2, 2], [1, 1], False, True),
    ("avg_pool_ceil", (1, 2, 6, 6), [3, 3], [2, 2], [1, 1], True, True),
    ("avg_pool_ceil_unpadded", (1, 2, 6, 6), [3, 3], [2, 2], [1, 1], True, False),
]:
    x = rand(*shape)
    y, dy, (dx,) = forward(lambda a: F.avg_pool2d(a, kernel, stride, pad, ceil, include), x)
    attrs = dict(kernel=kernel, strides=stride, pads=pad + pad, dilations=[1, 1],
                 include_pad=include)
    emit(name, "avg_pool", [x], [y], shape=list(y.shape), **attrs)
    emit(name + "_back", "avg_pool_back", [dy], [dx], shape=list(x.shape), **attrs)

for name in "softmax", "log_softmax":
    x = rand(2, 4, 3)
    y, dy, (dx,) = forward(lambda a: getattr(F, name)(a, dim=1), x)
    emit(name, name, [x], [y], axis=1)
    emit(name + "_back", name + "_back", [y, dy], [dx], axis=1)

x, g, b = rand(2, 3, 5), rand(5), rand(5)
y, dy, grads = forward(lambda *t: F.layer_norm(t[0], (5,), t[1], t[2], 1e-3), x, g, b)
mean, rstd = x.mean(-1), (x.var(-1, correction=0) + 1e-3).rsqrt()
emit("layer_norm", "layer_norm", [x, g, b], [y, mean, rstd], eps=1e-3)
emit("layer_norm_back", "layer_norm_back", [x, g, mean, rstd, dy], grads)
y, dy, grads = forward(lambda *t: F.rms_norm(t[0], (5,), t[1], 1e-3), x, g)
rstd = (x.square().mean(-1) + 1e-3).rsqrt()
emit("rms_norm", "rms_norm", [x, g], [y, rstd], eps=1e-3)
emit("rms_norm_back", "rms_norm_back", [x, g, rstd, dy], grads)

x, g, b, mean, var = rand(2, 3, 2, 2), rand(3), rand(3), rand(3), rand(3).abs() + 0.5
y, dy, grads = forward(lambda *t: F.batch_norm(t[0], mean, var, t[1], t[2], eps=1e-3), x, g, b)
emit("batch_norm", "batch_norm", [x, g, b, mean, var], [y], axis=1, eps=1e-3)
new_mean, new_var = mean.clone(), var.clone()
F.batch_norm(x, new_mean, new_var, training=True, momentum=0.2)
y, dy, (dx, dg, db) = forward(
    lambda *t: F.batch_norm(t[0], None, None, t[1], t[2], True, 0.2, 1e-3), x, g, b)
m, v = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
emit("batch_norm_train", "batch_norm_train", [x, g, b, mean, var], [y, m, v, new_mean, new_var],
     axis=1, eps=1e-3, momentum=0.8, unbiased=True)
emit("batch_norm_mean", "batch_norm_mean", [x], [m], axis=1, count=8)
emit("batch_norm_var", "batch_norm_var", [x, m], [v], axis=1, count=8)
emit("batch_norm_sums", "batch_norm_sums", [x, m, v, dy], [dg, db], axis=1, eps=1e-3)
emit("batch_norm_back", "batch_norm_back", [x, g, m, v, dy, dg, db], [dx], axis=1, eps=1e-3,
     count=8)


def attention(name, q, k, v, scale, mask=None, causal=False, seq_major=False):
    """Operands are b h t d; `causal` is aligned to the end, as in ours."""
    t, s = q.shape[2], k.shape[2]
    bias = torch.zeros(1, 1, t, s) if mask is None else mask
    if causal:
        bias = bias.masked_fill(torch.ones(t, s).triu(s - t + 1).bool(), -torch.inf)
    y, dy, (dq, dk, dv) = forward(
        lambda a, b, c: F.scaled_dot_product_attention(a, b, c, bias, scale=scale, enable_gqa=True),
        q, k, v)
    repeated = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    lse = (q @ repeated.mT * scale + bias).logsumexp(-1)
    order = (lambda u: u.transpose(1, 2).contiguous()) if seq_major else (lambda u: u)
    q, k, v, y, dy, dq, dk, dv = map(order, (q, k, v, y, dy, dq, dk, dv))
    masks = [] if mask is None else [mask]
    attrs = dict(scale=scale, causal=causal, seq_major=seq_major)
    emit(name, "attention", [q, k, v] + masks, [y, lse], **attrs)
    emit(name + "_back", "attention_back", [q, k, v, y, lse, dy] + masks, [dq, dk, dv], **attrs)


attention("attention", rand(1, 2, 3, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 2), 0.5)
attention("attention_causal", rand(1, 2, 4, 3), rand(1, 2, 4, 3), rand(1, 2, 4, 3), 0.6, causal=True)
attention("attention_cached", rand(1, 1, 2, 3), rand(1, 1, 5, 3), rand(1, 1, 5, 3), 0.6, causal=True)
attention("attention_mask", rand(2, 2, 3, 2), rand(2, 2, 4, 2), rand(2, 2, 4, 2), 0.7,
          torch.tensor([0, 0, 0, -torch.inf, 0, 0.5, -1, 2]).reshape(2, 1, 1, 4))
attention("attention_grouped", rand(1, 4, 3, 2), rand(1, 2, 3, 2), rand(1, 2, 3, 2), 0.7,
          rand(1, 4, 3, 3), causal=True, seq_major=True)

x, labels = rand(2, 3, 5), torch.tensor([[0, 4, -100], [2, 2, 1]])
f = lambda a: F.cross_entropy(a.movedim(-1, 1), labels, reduction="none")
y, dy, (dx,) = forward(f, x)
lse = x.logsumexp(-1)
emit("cross_entropy", "cross_entropy", [x, labels], [y, lse], ignore=-100)
emit("cross_entropy_back", "cross_entropy_back", [x, labels, lse, dy], [dx], ignore=-100)
x = F.log_softmax(x, -1)
y, dy, (dx,) = forward(
    lambda a: F.nll_loss(a.movedim(-1, 1), labels, reduction="none"), x)
emit("nll", "nll", [x, labels], [y], ignore=-100)
emit("nll_back", "nll_back", [labels, dy], [dx], ignore=-100, shape=list(x.shape))

# Discontinuities of derivatives: at bounds, at zero.
for name, at, f, attrs in [
    ("relu", [0], F.relu, {}),
    ("abs", [0], torch.abs, {}),
    ("clip", [-1, 2], lambda t: t.clamp(-1, 2), {"low": -1.0, "high": 2.0}),
    ("leaky_relu", [0], lambda t: F.leaky_relu(t, 0.1), {"slope": 0.1}),
    ("elu", [0], lambda t: F.elu(t, alpha=0.7), {"alpha": 0.7}),
    ("hard_swish", [-3, 3], F.hardswish, {}),
    ("hard_sigmoid", [-1, 1], lambda t: (t / 2 + 0.5).clamp(0, 1), {"alpha": 0.5, "beta": 0.5}),
]:
    x = torch.tensor(at, dtype=torch.float64)
    y, dy, (dx,) = forward(f, x)
    emit(name + "_back_tie", name + "_back", [x, dy], [dx], **attrs)


def taps(mode, n, m, align):
    """The taps of F.interpolate from n elements to m, as (first, weight), by its definition."""
    first, weight = [], []
    for o in range(m):
        at = o * (n - 1) / (m - 1) if align else (o + 0.5) * n / m - 0.5
        near = int(at + 0.5) if mode == "nearest-exact" else int(max(at, 0))
        ratio = 0.0 if mode == "nearest-exact" or near + 1 == n else max(at, 0) - near
        first.append(near)
        weight.append([1 - ratio, ratio])
    return torch.tensor(first, dtype=torch.int32), torch.tensor(weight)


for name, shape, m, mode, align in [
    ("resample_up", (2, 3, 5), 8, "linear", False),
    ("resample_corners", (1, 2, 4), 9, "linear", True),
    ("resample_down", (2, 2, 7), 3, "linear", False),
    ("resample_nearest", (1, 3, 4), 6, "nearest-exact", False),
]:
    x = rand(*shape)
    first, weight = taps(mode, shape[2], m, align)
    more = {} if mode == "nearest-exact" else {"align_corners": align}
    y, dy, (dx,) = forward(lambda a: F.interpolate(a, m, mode=mode, **more), x)
    emit(name, "resample", [x, first, weight], [y], axis=2)
    emit(name + "_back", "resample_back", [first, weight, dy], [dx], axis=2, length=shape[2])


def recurrent(module, gates, t, b, h, order, r, bias=None):
    """Returns gx, h0, PyTorch's y, last h (and c), adjoints of these and the gradients of gx, h0 (and c0).  W is the identity:
    gx are the sums of the inputs.  `order`: the blocks of PyTorch's weights, by their numbers in ONNX."""
    rows = torch.cat([torch.arange(k * h, k * h + h) for k in order])
    layer, n_states, zeros = module(gates * h, h), 2 if module is torch.nn.LSTM else 1, torch.zeros(gates * h)
    weights = {"weight_ih_l0": torch.eye(gates * h)[rows], "weight_hh_l0": r[rows], "bias_ih_l0": zeros}
    for name, value in (weights | {"bias_hh_l0": zeros if bias is None else bias}).items():
        getattr(layer, name).data = value
    leaves = [rand(*shape).requires_grad_() for shape in [(t, b, gates * h)] + n_states * [(1, b, h)]]
    y, last = layer(leaves[0], tuple(leaves[1:]) if module is torch.nn.LSTM else leaves[1])
    results = [y, *(last if module is torch.nn.LSTM else [last])]
    adjoints = [rand(*v.shape) for v in results]
    grads = torch.autograd.grad(results, leaves, adjoints)
    squeezed = lambda tensors: [tensors[0].detach(), *(v.detach()[0] for v in tensors[1:])]
    return squeezed(leaves), squeezed(results), squeezed(adjoints), squeezed(grads)


def states_before(y, h0):
    return torch.cat([h0[None], y[:-1]])


t, b, h = 4, 2, 3
lengths = torch.full((b,), t, dtype=torch.int32)
r = rand(4 * h, h)
(gx, h0, c0), (y, last, last_c), (dy, dlast, dlast_c), grads = recurrent(torch.nn.LSTM, 4, t, b, h, [0, 2, 3, 1], r)
before = states_before(y, h0)
sums, cells = gx + before @ r.T, []
for k in range(t):
    i, o, f, g = sums[k].chunk(4, -1)
    cells.append(f.sigmoid() * (cells[-1] if cells else c0) + i.sigmoid() * g.tanh())
cells, acts = torch.stack(cells), dict(f='"sigmoid"', g='"tanh"', h='"tanh"')
emit("lstm", "lstm", [gx, r, h0, c0, lengths], [y, last, last_c, sums, cells], **acts)
emit("lstm_back", "lstm_back", [sums, cells, y, r, h0, c0, lengths, dy, dlast, dlast_c], [*grads, before], **acts)

# PyTorch's reset applies to the product and its bias.
r, bias = rand(3 * h, h), rand(h)
order, zeros = [1, 0, 2], torch.zeros(2 * h)
(gx, h0), (y, last), (dy, dlast), grads = recurrent(torch.nn.GRU, 3, t, b, h, order, r, torch.cat([zeros, bias]))
before, acts = states_before(y, h0), dict(f='"sigmoid"', g='"tanh"', linear_before_reset=True)
product = before @ r.T
inner = product[..., 2 * h:] + bias
gates = gx[..., :2 * h] + product[..., :2 * h]
sums = torch.cat([gates, gx[..., 2 * h:] + gates[..., h:].sigmoid() * inner, inner], -1)
emit("gru", "gru", [gx, r, bias, h0, lengths], [y, last, sums], **acts)
emit("gru_back", "gru_back", [sums, y, r, h0, lengths, dy, dlast], [*grads, before], n_results=4, **acts)

for f in ("tanh", "relu"):
    r = rand(h, h)
    (gx, h0), (y, last), (dy, dlast), grads = recurrent(lambda n, m: torch.nn.RNN(n, m, nonlinearity=f), 1, t, b, h, [0], r)
    before = states_before(y, h0)
    sums = gx + before @ r.T
    emit(f"rnn_{f}", "rnn", [gx, r, h0, lengths], [y, last, sums], f=f'"{f}"')
    emit(f"rnn_{f}_back", "rnn_back", [sums, y, r, h0, lengths, dy, dlast], [*grads, before], f=f'"{f}"')
