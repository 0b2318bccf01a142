"""Compares an exported file with its module: what it computes of the example, of another number of rows and of other values.

An exporter that runs the module once records a branch, len(x) or a size as they were of the example; others lose arguments of
a function.  Such a file would train another model.  It is computed here by onnx's reference evaluator, in numpy, and by
PyTorch where numpy would take minutes.  What is drawn at random, as for dropout, is the same on both sides: a number follows
from its place alone.
"""

import contextlib
import warnings

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

PIXELWISE = {"DeformConv", "GridSample", "RoiAlign"}  # a loop in Python over every element
TOLERANCE = 1e-5  # of a result's norm, beside what rounding does to the module itself
ROUNDING = 16  # times that


class NotCompared(Exception):
    """Why a file cannot be compared: it may be right."""


def difference(module, path, args, axes, run, notes):
    """The first result that differs, as text, or None.  args: the example by name; axes: the batch's dimension by name;
    run(args): the module's results in the order of the file's outputs."""
    model = onnx.load(path)
    ops = {node.op_type for node in nodes_of(model)}
    if ops & PIXELWISE:
        raise NotCompared(f"onnx's evaluator takes minutes for {', '.join(sorted(ops & PIXELWISE))}")
    for node in nodes_of(model):
        if node.op_type == "BatchNormalization" and is_training(node):
            set_attribute(node, "training_mode", 1)
    try:
        file = ReferenceEvaluator(model, new_ops=list(REPLACED))
    except Exception as e:
        raise NotCompared(f"onnx's evaluator does not take it: {type(e).__name__}: {e}") from e
    try:
        once, again = of_run(run, args), of_run(run, args)
    except Exception as e:
        raise NotCompared(f"the module, with random numbers of its own: {type(e).__name__}: {first_line(e)}") from e
    if not all(map(same, once, again)):
        raise NotCompared("the module gives other results each time: it has a state, or random numbers of its own")
    tolerance = max([TOLERANCE, *(2 * eps for eps in map(precision, nodes_of(model)) if eps)])
    read = [v.name for v in model.graph.input]
    names = [v.name for v in model.graph.output]
    for data, inputs in examples(module, file, args, axes, run, notes):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = file.run(None, {k: array(v) for k, v in inputs.items() if k in read})
        except Exception as e:
            text = f"{type(e).__name__}: {first_line(e)}"
            if inputs is args:
                raise NotCompared(f"onnx's evaluator: {text}") from e
            return f"the file cannot compute {data}: {text}"
        right, rounding = of_run(run, inputs), None
        for i, (name, a, b) in enumerate(zip(names, made, right)):
            a, text = np.asarray(a), differs(np.asarray(a), b, tolerance, 0, inputs is args)
            if text and rounding is None:
                rounding = of_rounding(module, run, inputs, right)
            if text and differs(a, b, tolerance, rounding[i], inputs is args):
                return f"'{name}' of {data} differs from the module's {text}"
    return None


def differs(a, b, tolerance, noise, example):
    """How much, or None.  Of other data than the example, only what the module computes as finite numbers counts."""
    if a.shape != b.shape:
        return f"in shape: {list(a.shape)}, not {list(b.shape)}"
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(b)
    if example and not np.array_equal(np.isfinite(a), finite):
        return "in which values are finite"
    apart, norm = np.linalg.norm((a - b)[finite]), np.linalg.norm(b[finite])
    if apart <= tolerance * norm + ROUNDING * noise:
        return None
    return f"by {apart / norm:.1e}, relative" if norm else f"by {apart:.1e}"


def first_line(e):
    return (str(e).strip().splitlines() or [""])[0]


# -- Data ------------------------------------------------------------------------------------

def examples(module, file, args, axes, run, notes):
    """Data that the module takes, with a text for it: the example; the same with other weights; its rows in reverse with more
    of them; its values in reverse, larger, and with either sign."""
    yield "the example", args
    with other_weights(module, file):
        if takes(run, args):
            yield "the example with other weights", dict(args)
    rows = {k: args[k].shape[axis] for k, axis in axes.items()}
    n = next(iter(rows.values()), 0)
    for more in dict.fromkeys((1, n)) if n else ():
        inputs = {k: with_rows(v, axes[k], more) if k in rows else v for k, v in args.items()}
        if takes(run, inputs):
            yield f"{n + more} rows", inputs
            break
    else:
        if n:
            notes.append(f"the module takes no other number of rows than {n}: compile with --batch {n}")
    for by in (-16, 16):
        changed = {k: v.flip(every(v)) * (by if v.is_floating_point() else 1) for k, v in args.items() if k in rows}
        if takes(run, {**args, **changed}):
            yield "other values", {**args, **changed}


@contextlib.contextmanager
def other_weights(module, file):
    """Of the module and of the file: one of them may hold numbers that were made of the weights."""
    held = {name: p.detach().clone() for name, p in module.named_parameters()}
    initial = dict(file.rt_inits_)
    try:
        for name, p in module.named_parameters():
            if p.requires_grad:
                p.data.mul_(1 + 0.25 * torch.from_numpy(normal(p.shape)).to(p)).add_(0.01)
            if name in initial:
                file.rt_inits_[name] = array(p).astype(initial[name].dtype)
        yield
    finally:
        file.rt_inits_.update(initial)
        for name, p in module.named_parameters():
            p.data.copy_(held[name])


def takes(run, inputs):
    try:
        of_run(run, inputs)
    except Exception:
        return False
    return True


def every(v):
    return tuple(range(v.dim()))


def with_rows(v, axis, more):
    """More rows, between others where there are values between: equal rows have no variance."""
    rows = v.narrow(axis, 0, more)
    if v.is_floating_point():
        rows = 0.75 * rows + 0.25 * v.flip(axis).narrow(axis, 0, more) if v.shape[axis] > 1 else 0.75 * rows
    return torch.cat([v.flip(axis), rows.to(v.dtype)], axis)


def of_rounding(module, run, inputs, right):
    """How far each result moves if weights and inputs change in their last bits."""
    held = {k: p.detach().clone() for k, p in module.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    try:
        for p in module.parameters():
            p.data.copy_(last_bits(p.data, generator))
        moved = of_run(run, {k: last_bits(v, generator) for k, v in inputs.items()})
    finally:
        for k, p in module.named_parameters():
            p.data.copy_(held[k])
    return [distance(a, b) for a, b in zip(moved, right)]


def of_run(run, inputs):
    with torch.enable_grad(), Drawn():
        return [array(v) for v in run({name: v.clone() for name, v in inputs.items()})]


def last_bits(v, generator):
    if not v.is_floating_point():
        return v
    sign = torch.randint(-1, 2, v.shape, generator=generator).to(v)
    return v + v * sign * torch.finfo(v.dtype).eps


def same(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def distance(a, b):
    both = np.isfinite(a) & np.isfinite(b) if a.shape == b.shape else np.zeros(b.shape, bool)
    return np.linalg.norm((a[both].astype(np.float64) - b[both])) if both.any() else 0.0


def array(v):
    v = v.detach().cpu()
    return v.float().numpy() if v.dtype == torch.bfloat16 else v.numpy()


# -- Random numbers --------------------------------------------------------------------------

def uniform(shape):
    """Of 0 to 1, spread evenly: multiples of the golden ratio."""
    count = int(np.prod(shape, dtype=np.int64))
    return (np.arange(1, count + 1) * 0.6180339887498949 % 1).reshape(tuple(shape)).astype(np.float32)


def normal(shape):
    """Mean and variance are those of a normal distribution, which is all that is wanted of it."""
    return np.asarray(12 ** 0.5 * (uniform(shape) - 0.5), np.float32)


class Drawn(TorchDispatchMode):
    """PyTorch's random numbers are uniform() and normal()."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        aten, kwargs = torch.ops.aten, kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        x, name = args[0] if args else None, func.overloadpacket
        if name is aten.native_dropout and args[2] is not False:
            keep = torch.from_numpy(uniform(x.shape) < 1 - args[1]).to(x.device)
            return x * keep / (1 - args[1]), keep
        if name in (aten.bernoulli, aten.bernoulli_):
            p = args[1] if len(args) > 1 else kwargs.get("p", 0.5 if name is aten.bernoulli_ else x)
            drawn = torch.from_numpy(uniform(x.shape)).to(x.device) < (p if torch.is_tensor(p) else float(p))
            return x.copy_(drawn) if name is aten.bernoulli_ else drawn.to(x.dtype)
        made = func(*args, **kwargs)
        if name in (aten.rand, aten.rand_like, aten.uniform_):
            low, high = (*args[1:3], 0, 1)[:2] if name is aten.uniform_ and len(args) > 2 else (0, 1)
            made.copy_(torch.from_numpy(uniform(made.shape)) * (high - low) + low)
        if name in (aten.randn, aten.randn_like):
            made.copy_(torch.from_numpy(normal(made.shape)))
        return made


# -- The file --------------------------------------------------------------------------------

def nodes_of(model):
    def inside(nodes):
        for node in nodes:
            yield node
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    yield from inside(graph.node)
    yield from inside(model.graph.node)
    for function in model.functions:
        yield from inside(function.node)


def precision(node):
    """The distance of 1 from the next number of a 16-bit type that the node casts to, or None."""
    to = next((attribute.i for attribute in node.attribute if node.op_type == "Cast" and attribute.name == "to"), None)
    return {onnx.TensorProto.BFLOAT16: 2.0 ** -7, onnx.TensorProto.FLOAT16: 2.0 ** -10}.get(to)


def is_training(node):
    """torch.export's file has the inference form also of model.train(), with the function in the node's metadata."""
    return any("_native_batch_norm_legit_functional" in p.value for p in node.metadata_props)


def set_attribute(node, name, value):
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])


# -- Operators, by PyTorch or drawn ----------------------------------------------------------

def tensor(v):
    return torch.from_numpy(np.ascontiguousarray(v))


class Dropout(OpRun):
    op_domain = ""

    def _run(self, x, ratio=None, training=None, seed=None, **_):
        ratio = 0.5 if ratio is None else float(ratio)
        keep = uniform(x.shape) < 1 - ratio if training is not None and training else np.ones(x.shape, bool)
        y = x * keep / (1 - ratio) if training is not None and training else x
        return (y.astype(x.dtype), keep)[:len(self.onnx_node.output)]


class RandomUniformLike(OpRun):
    op_domain = ""

    def _run(self, x, high=1.0, low=0.0, **_):
        return ((uniform(x.shape) * (high - low) + low).astype(x.dtype),)


class RandomNormalLike(OpRun):
    op_domain = ""

    def _run(self, x, mean=0.0, scale=1.0, **_):
        return ((normal(x.shape) * scale + mean).astype(x.dtype),)


class RandomUniform(OpRun):
    op_domain = ""

    def _run(self, high=1.0, low=0.0, shape=(), **_):
        return ((uniform(shape) * (high - low) + low).astype(np.float32),)


class RandomNormal(OpRun):
    op_domain = ""

    def _run(self, mean=0.0, scale=1.0, shape=(), **_):
        return ((normal(shape) * scale + mean).astype(np.float32),)


class Bernoulli(OpRun):
    op_domain = ""

    def _run(self, p, **_):
        return ((uniform(p.shape) < p).astype(p.dtype),)


class BatchNormalization(OpRun):
    op_domain = ""

    def _run(self, x, scale, bias, mean, var, epsilon=1e-5, momentum=0.9, training_mode=0, **_):
        held = [tensor(v).clone() for v in (mean, var)]
        y = F.batch_norm(tensor(x), *held, tensor(scale), tensor(bias), bool(training_mode), 1 - momentum, epsilon)
        return tuple(v.numpy() for v in (y, *held)[:len(self.onnx_node.output)])


class Conv(OpRun):
    op_domain = ""

    def _run(self, x, w, b=None, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
        n = x.ndim - 2
        strides, dilations = strides or [1] * n, dilations or [1] * n
        x, w = tensor(x), tensor(w)
        y = F.conv3d if n == 3 else F.conv2d if n == 2 else F.conv1d
        around = padding(auto_pad, pads, x.shape[2:], w.shape[2:], strides, dilations)
        return (y(F.pad(x, around), w, None if b is None else tensor(b), strides, 0, dilations, group).numpy(),)


class MaxPool(OpRun):
    op_domain = ""

    def _run(self, x, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape=None, pads=None, storage_order=0, strides=None):
        n = x.ndim - 2
        strides, dilations = strides or [1] * n, dilations or [1] * n
        if ceil_mode or len(self.onnx_node.output) > 1:
            raise NotImplementedError("MaxPool with ceil_mode or indices")
        x = tensor(x)
        around = padding(auto_pad, pads, x.shape[2:], kernel_shape, strides, dilations)
        y = F.max_pool3d if n == 3 else F.max_pool2d if n == 2 else F.max_pool1d
        return (y(F.pad(x, around, value=-torch.inf), kernel_shape, strides, 0, dilations).numpy(),)


class GatherElements(OpRun):
    op_domain = ""

    def _run(self, x, indices, axis=0, **_):
        axis %= x.ndim
        part = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))
        return (np.take_along_axis(x[part], np.where(indices < 0, indices + x.shape[axis], indices), axis),)


class LogSoftmax(OpRun):
    op_domain = ""

    def _run(self, x, axis=-1, **_):
        return (F.log_softmax(tensor(x), axis).numpy(),)


class SoftmaxCrossEntropyLoss(OpRun):
    op_domain = ""

    def _run(self, x, labels, weight=None, ignore_index=None, reduction="mean", **_):
        x, weight = tensor(x), None if weight is None else tensor(weight)
        reduction = reduction.decode() if isinstance(reduction, bytes) else reduction
        loss = F.cross_entropy(x, tensor(labels), weight, ignore_index=-2 ** 62 if ignore_index is None else ignore_index,
                               reduction=reduction)
        return (loss.numpy(), F.log_softmax(x, 1).numpy())[:len(self.onnx_node.output)]


class Resize(OpRun):
    op_domain = ""

    def _run(self, x, roi=None, scales=None, sizes=None, mode="nearest", coordinate_transformation_mode="half_pixel",
             nearest_mode="round_prefer_floor", cubic_coeff_a=-0.75, antialias=0, axes=None, **_):
        how = coordinate_transformation_mode
        of_torch = (mode == "nearest" and how == "asymmetric" and nearest_mode == "floor"
                    or mode != "nearest" and how in ("half_pixel", "pytorch_half_pixel", "align_corners"))
        if not of_torch or axes is not None or antialias or mode == "cubic" and (x.ndim != 4 or cubic_coeff_a != -0.75):
            raise NotImplementedError(f"Resize: {mode}, {how}")
        spatial = ["linear", "bilinear", "trilinear"][x.ndim - 3] if mode == "linear" else {"cubic": "bicubic"}.get(mode, mode)
        corners = {} if mode == "nearest" else {"align_corners": how == "align_corners"}
        if sizes is not None and len(sizes):
            return (F.interpolate(tensor(x), [int(n) for n in sizes[2:]], mode=spatial, **corners).numpy(),)
        factors = [float(f) for f in scales[2:]]
        return (F.interpolate(tensor(x), scale_factor=factors, mode=spatial, recompute_scale_factor=False, **corners).numpy(),)


def padding(auto_pad, pads, lengths, kernel, strides, dilations):
    """As F.pad takes it: last dimension first, start and end."""
    n = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0] * (2 * n)
        for i in range(n):
            more = max(0, (-(-lengths[i] // strides[i]) - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - lengths[i])
            pads[i] = more // 2 if auto_pad == "SAME_UPPER" else more - more // 2
            pads[n + i] = more - pads[i]
    pads = pads or [0] * (2 * n)
    return [side for i in reversed(range(n)) for side in (pads[i], pads[n + i])]


REPLACED = (Bernoulli, Dropout, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike, BatchNormalization, Conv,
            GatherElements, LogSoftmax, MaxPool, Resize, SoftmaxCrossEntropyLoss)
