"""Compares an exported file with its module: results for the example, another number of rows and other values.

An exporter that runs the module once records a branch, len(x) or a size as constants of the example; others lose arguments of
a function.  Such a file would train another model.  It is evaluated here by onnx's reference evaluator, in numpy, and by
PyTorch for operators that take numpy minutes.  Random numbers, as of dropout, are the same on both sides: each is a function
of its index alone.
"""

import contextlib
import warnings

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

from .file import nodes_of
from .operators import REPLACED
from .random import Drawn, normal, uniform

PIXELWISE = {"DeformConv", "GridSample", "RoiAlign"}  # a loop in Python over every element
TOLERANCE = 1e-5  # relative to a result's norm, besides the rounding of the module itself
ROUNDING = 16  # multiple of that rounding
GRADIENT_TOLERANCE = 1e-2  # relative to a gradient's norm: it should find stops, not rounding
CHUNK = 1 << 20  # elements in f64 at a time


class NotCompared(Exception):
    """The reason why a file cannot be compared: it may be right."""


class Unrepeatable(NotCompared):
    """The results of the module are different each time."""


def difference(module, path, args, axes, run, notes, log):
    """The first result that differs, as text, or None.  args: the example by name; axes: the batch's dimension by name;
    run(args): the module's results in the order of the file's outputs; log(text): called for each step."""
    model = onnx.load(path)
    nodes = [node for graph in (model.graph, *model.functions) for node in nodes_of(graph)]
    ops = {node.op_type for node in nodes}
    if ops & PIXELWISE:
        raise NotCompared(f"onnx's evaluator takes minutes for {', '.join(sorted(ops & PIXELWISE))}")
    for node in nodes:
        if node.op_type == "BatchNormalization" and is_training(node):
            set_attribute(node, "training_mode", 1)
    try:
        file = ReferenceEvaluator(model, new_ops=list(REPLACED))
    except Exception as e:
        raise NotCompared(f"onnx's evaluator does not take it: {type(e).__name__}: {e}") from e
    try:
        once, again = results_of(run, args), results_of(run, args)
    except Exception as e:
        raise Unrepeatable(f"the module, with random numbers of its own: {type(e).__name__}: {first_line(e)}") from e
    if not all(map(same, once, again)):
        raise Unrepeatable("the module gives other results each time: it has a state, or random numbers of its own")
    tolerance = max([TOLERANCE, *(2 * eps for eps in map(precision, nodes) if eps)])
    with contextlib.closing(examples(module, file, args, once, axes, run, notes)) as data:
        for text, inputs, right in data:
            log(f"comparing with the module: {text}")
            wrong = compared(module, file, text, inputs, right, inputs is args, run, tolerance)
            if wrong:
                return wrong
    return None


def compared(module, file, data, inputs, right, example, run, tolerance):
    """The first result of the file that differs from `right`, the module's for these inputs, as text, or None."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = file.run(None, {k: array(v) for k, v in inputs.items() if k in file.input_names})
    except Exception as e:
        text = f"{type(e).__name__}: {first_line(e)}"
        if example:
            raise NotCompared(f"onnx's evaluator: {text}") from e
        return f"the file cannot compute {data}: {text}"
    rounding = None
    for i, (name, a, b) in enumerate(zip(file.output_names, map(np.asarray, made), right)):
        text = differs(a, b, tolerance, 0, example)
        if text and rounding is None:
            rounding = rounding_of(module, run, inputs, right)
        if text and differs(a, b, tolerance, rounding[i], example):
            return f"'{name}' of {data} differs from the module's {text}"
    return None


def gradient_difference(module, program, args, run, own, log):
    """The first weight with different gradients in the module and in the exporter's program, which program() makes: one
    stops a gradient and the other does not.  own: ids of the weights that are left out."""
    log("comparing with the module: gradients")
    weights = {name: p for name, p in module.named_parameters() if p.requires_grad and id(p) not in own}
    try:
        program = program()
    except Exception as e:
        raise NotCompared(f"{type(e).__name__}: {first_line(e)}") from e
    if not {id(p) for p in program.parameters()} <= {id(p) for p in module.parameters()}:
        raise NotCompared("the exporter's program has copies of the weights")
    right, made = (gradients(weights.values(), of, args, run) for of in (None, program))
    largest = max(map(np.linalg.norm, right), default=0)
    for name, a, b in zip(weights, made, right):
        apart, norm = np.linalg.norm(a - b), np.linalg.norm(b)
        if apart > GRADIENT_TOLERANCE * norm + TOLERANCE * largest:
            return f"the gradient of '{name}' differs from the module's by {apart / norm if norm else apart:.1e}"
    return None


def gradients(weights, of, args, run):
    """Gradients of a sum of all results with factors.  The weights keep their own .grad."""
    weights = list(weights)

    def differentiate(results):
        made, held = [v for v in results if v.requires_grad], [p.grad for p in weights]
        try:
            for p in weights:
                p.grad = None
            if made:
                sum((v.double() * torch.from_numpy(uniform(v.shape)).to(v.device)).sum() for v in made).backward()
            return [p.grad for p in weights]
        finally:
            for p, grad in zip(weights, held):
                p.grad = grad

    # A program updates its buffers before the backward pass, which may read them.
    saved = torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda v: v)
    try:
        with torch.enable_grad(), Drawn(), saved:
            grads = run({name: v.clone() for name, v in args.items()}, of, differentiate)
    except Exception as e:
        raise NotCompared(f"{type(e).__name__}: {first_line(e)}") from e
    return [np.zeros(p.shape) if g is None else g.detach().to_dense().double().cpu().numpy() for p, g in zip(weights, grads)]


def differs(a, b, tolerance, noise, example):
    """The size of the difference as text, or None.  For data other than the example, only the module's finite values count."""
    if a.shape != b.shape:
        return f"in shape: {list(a.shape)}, not {list(b.shape)}"
    if example and not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "in which values are finite"
    apart, norm = distances(a, b)
    if apart <= tolerance * norm + ROUNDING * noise:
        return None
    return f"by {apart / norm:.1e}, relative" if norm else f"by {apart:.1e}"


def distances(a, b):
    """The norm of a - b, and that of b, over the elements that are finite in b."""
    apart = norm = 0.0
    for i in range(0, a.size, CHUNK):
        x, y = (v.reshape(-1)[i:i + CHUNK].astype(np.float64) for v in (a, b))
        if not np.isfinite(y).all():
            x, y = x[np.isfinite(y)], y[np.isfinite(y)]
        apart, norm = apart + np.dot(x - y, x - y), norm + np.dot(y, y)
    return apart ** 0.5, norm ** 0.5


def first_line(e):
    return (str(e).strip().splitlines() or [""])[0]


# -- Data ------------------------------------------------------------------------------------

def examples(module, file, args, once, axes, run, notes):
    """Data that the module takes, with a text for it and the module's results: the example; the same with other weights; its
    rows in reverse order, and more of them; its values in reverse order, larger, and with either sign."""
    yield "the example", args, once
    with other_weights(module, file):
        right = accepted(run, args)
        if right:
            yield "the example with other weights", dict(args), right
    rows = {k: args[k].shape[axis] for k, axis in axes.items()}
    n = next(iter(rows.values()), 0)
    for more in dict.fromkeys((1, n)) if n else ():
        inputs = {k: with_rows(v, axes[k], more) if k in rows else v for k, v in args.items()}
        right = accepted(run, inputs)
        if right:
            yield f"{n + more} rows", inputs, right
            break
    else:
        if n:
            notes.append(f"the module takes no other number of rows than {n}: compile with --batch {n}")
    for by in (-16, 16):
        for names in args, rows:  # a table of positions may be taken in its order alone
            inputs = args | {k: args[k].flip(all_dims(args[k])) * (by if args[k].is_floating_point() else 1) for k in names}
            right = accepted(run, inputs)
            if right:
                yield "other values", inputs, right
                break


@contextlib.contextmanager
def other_weights(module, file):
    """A context with other weights in the module and in the file: one of them may hold constants computed from the weights."""
    held = {name: p.detach().clone() for name, p in module.named_parameters()}
    initial = dict(file.rt_inits_)
    try:
        for name, p in module.named_parameters():
            if p.requires_grad:
                p.data.mul_(1 + 0.25 * torch.from_numpy(normal(p.shape)).to(p)).add_(0.01)
            held_as = name if name in initial else f"module.{name}"  # if an input or output has its name
            if held_as in initial:
                file.rt_inits_[held_as] = array(p).astype(initial[held_as].dtype)
        yield
    finally:
        file.rt_inits_.update(initial)
        for name, p in module.named_parameters():
            p.data.copy_(held[name])


def accepted(run, inputs):
    """The module's results, or None if it does not take these inputs."""
    try:
        return results_of(run, inputs)
    except Exception:
        return None


def all_dims(v):
    return tuple(range(v.dim()))


def with_rows(v, axis, more):
    """Reverses the rows and adds more.  Those of floats are between existing values, if there are several: equal rows have no variance."""
    rows = v.narrow(axis, 0, more)
    if v.is_floating_point():
        rows = 0.75 * rows + 0.25 * v.flip(axis).narrow(axis, 0, more) if v.shape[axis] > 1 else 0.75 * rows
    return torch.cat([v.flip(axis), rows.to(v.dtype)], axis)


def rounding_of(module, run, inputs, right):
    """The change of each result if weights and inputs change in their last bits; 0 if the module refuses them."""
    held = {k: p.detach().clone() for k, p in module.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    try:
        for p in module.parameters():
            p.data.copy_(last_bits(p.data, generator))
        moved = results_of(run, {k: last_bits(v, generator) for k, v in inputs.items()})
    except Exception:
        return [0.0] * len(right)
    finally:
        for k, p in module.named_parameters():
            p.data.copy_(held[k])
    return [distance(a, b) for a, b in zip(moved, right)]


def results_of(run, inputs):
    with torch.enable_grad(), Drawn():
        return [array(v) for v in run({name: v.clone() for name, v in inputs.items()})]


def last_bits(v, generator):
    if not v.is_floating_point():
        return v
    toward_zero = torch.randint(0, 2, v.shape, generator=generator).to(v)  # values of at most 1 stay so
    return v - v * toward_zero * torch.finfo(v.dtype).eps


def same(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def distance(a, b):
    both = np.isfinite(a) & np.isfinite(b) if a.shape == b.shape else np.zeros(b.shape, bool)
    return np.linalg.norm((a[both].astype(np.float64) - b[both])) if both.any() else 0.0


def array(v):
    v = v.detach().cpu()
    return v.float().numpy() if v.dtype == torch.bfloat16 else v.numpy()


# -- The file --------------------------------------------------------------------------------

def precision(node):
    """The distance of 1 from the next number of a 16-bit type that the node casts to, or None."""
    to = next((attribute.i for attribute in node.attribute if node.op_type == "Cast" and attribute.name == "to"), None)
    return {onnx.TensorProto.BFLOAT16: 2.0 ** -7, onnx.TensorProto.FLOAT16: 2.0 ** -10}.get(to)


def is_training(node):
    """Whether the node is in training mode: torch.export's file has the inference form even for model.train(), with the call
    in the node's metadata; see frontend/onnx_ops_norm.c."""
    calls = [p.value for p in node.metadata_props if "aten." in p.value and "batch_norm" in p.value]
    return any("_legit_functional" in call or "batch_norm.default" in call and ", True, " in call for call in calls)


def set_attribute(node, name, value):
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])
