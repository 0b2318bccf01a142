"""Compares an exported file with its module: what it computes of the example, of another number of rows and of other values.

An exporter that runs the module once records a branch, len(x) or a size as they were of the example; others lose arguments of
a function.  Such a file would train another model.  It is computed here by onnx's reference evaluator, in numpy, and by
PyTorch where numpy would take minutes.  Neither side drops out.
"""

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
PIXELWISE = {"DeformConv", "GridSample", "Resize", "RoiAlign"}  # a loop in Python over every element
TOLERANCE = 1e-5  # of a result's norm, beside what rounding does to the module itself
ROUNDING = 16  # times that


class NotCompared(Exception):
    """Why a file cannot be compared: it may be right."""


def difference(module, path, args, axes, run, notes):
    """The first result that differs, as text, or None.  args: the example by name; axes: the batch's dimension by name;
    run(args): the module's results in the order of the file's outputs."""
    model = onnx.load(path)
    ops = {node.op_type for node in nodes_of(model)}
    if ops & RANDOM:
        raise NotCompared(f"it draws random numbers ({', '.join(sorted(ops & RANDOM))})")
    if ops & PIXELWISE:
        raise NotCompared(f"onnx's evaluator takes minutes for {', '.join(sorted(ops & PIXELWISE))}")
    for node in nodes_of(model):
        if node.op_type == "BatchNormalization" and is_training(node):
            set_attribute(node, "training_mode", 1)
    try:
        file = ReferenceEvaluator(model, new_ops=list(BY_TORCH))
    except Exception as e:
        raise NotCompared(f"onnx's evaluator does not take it: {type(e).__name__}: {e}") from e
    read = [v.name for v in model.graph.input]
    names = [v.name for v in model.graph.output]
    for data, inputs in examples(args, axes, run, notes):
        try:
            made = file.run(None, {k: array(v) for k, v in inputs.items() if k in read})
        except Exception as e:
            text = f"{type(e).__name__}: {first_line(e)}"
            if inputs is args:
                raise NotCompared(f"onnx's evaluator: {text}") from e
            return f"the file cannot compute {data}: {text}"
        right, rounding = of_run(run, inputs), None
        for i, (name, a, b) in enumerate(zip(names, made, right)):
            a, text = np.asarray(a), differs(np.asarray(a), b, 0, inputs is args)
            if text and rounding is None:
                rounding = of_rounding(module, run, inputs, right)
            if text and differs(a, b, rounding[i], inputs is args):
                return f"'{name}' of {data} differs from the module's {text}"
    return None


def differs(a, b, noise, example):
    """How much, or None.  Of other data than the example, only what the module computes as finite numbers counts."""
    if a.shape != b.shape:
        return f"in shape: {list(a.shape)}, not {list(b.shape)}"
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(b)
    if example and not np.array_equal(np.isfinite(a), finite):
        return "in which values are finite"
    apart, norm = np.linalg.norm((a - b)[finite]), np.linalg.norm(b[finite])
    if apart <= TOLERANCE * norm + ROUNDING * noise:
        return None
    return f"by {apart / norm:.1e}, relative" if norm else f"by {apart:.1e}"


def first_line(e):
    return (str(e).strip().splitlines() or [""])[0]


# -- Data ------------------------------------------------------------------------------------

def examples(args, axes, run, notes):
    """Data that the module takes, with a text for it: the example; its rows in reverse with more of them; its values in
    reverse, larger, and with either sign."""
    yield "the example", args
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
    with torch.no_grad(), NoDropout():
        return [array(v) for v in run(inputs)]


def last_bits(v, generator):
    if not v.is_floating_point():
        return v
    sign = torch.randint(-1, 2, v.shape, generator=generator).to(v)
    return v + v * sign * torch.finfo(v.dtype).eps


def distance(a, b):
    both = np.isfinite(a) & np.isfinite(b) if a.shape == b.shape else np.zeros(b.shape, bool)
    return np.linalg.norm((a[both].astype(np.float64) - b[both])) if both.any() else 0.0


def array(v):
    v = v.detach().cpu()
    return v.float().numpy() if v.dtype == torch.bfloat16 else v.numpy()


class NoDropout(TorchDispatchMode):
    """All is kept: what is drawn for dropout is its probability, and dividing by that gives one."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.native_dropout.default:
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if func is torch.ops.aten.bernoulli_.float:
            return args[0].fill_(args[1] if len(args) > 1 else 0.5)
        return func(*args, **(kwargs or {}))


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


def is_training(node):
    """torch.export's file has the inference form also of model.train(), with the function in the node's metadata."""
    return any("_native_batch_norm_legit_functional" in p.value for p in node.metadata_props)


def set_attribute(node, name, value):
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])


# -- Operators by PyTorch --------------------------------------------------------------------

def tensor(v):
    return torch.from_numpy(np.ascontiguousarray(v))


class Dropout(OpRun):
    op_domain = ""

    def _run(self, x, *_, **__):
        return (x, np.ones(x.shape, bool))[:len(self.onnx_node.output)]


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


BY_TORCH = (Dropout, BatchNormalization, Conv, MaxPool)
