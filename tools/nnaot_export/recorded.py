"""Gradients that exporters lose, in a form that they record."""

import inspect
import math

import torch
import torch.utils.checkpoint
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .errors import ExportError
from .silence import place


class AsRecorded(TorchFunctionMode):
    """Records gradients' stops: results of torch.no_grad() and x.data become those of x.detach(); a change
    in place through which no gradient goes becomes a sum, x + (new - x).detach(); dropout in place becomes dropout;
    gaussian_nll_loss, with such a change of its variance, diff, unfold, index_add and attention have a form that
    exporters know."""

    def __init__(self):
        super().__init__()
        self.detached = {}  # by the id of x.detach() or x.data: that result, and x
        self.views = {}  # by id: views of these, and views under torch.no_grad()
        self.in_function = 0  # number of running forward() of torch.autograd.Function: these see no gradients
        self.hooked = {}  # by FILE:LINE of x.register_hook(): the nodes of backward() that made x
        self.changed = set()  # ids of untrained parameters

    def __enter__(self):
        mode, self.apply = self, inspect.getattr_static(torch.autograd.Function, "apply")

        def apply(cls, *args, **kwargs):
            if cls is torch.utils.checkpoint.CheckpointFunction:  # (function, whether it keeps random states, its arguments)
                out = args[0](*args[2:])
                return out if any(map(_has_gradient, args[2:])) else detached(out)
            mode.in_function += 1
            try:
                return mode.apply.__get__(None, cls)(*args, **kwargs)
            finally:
                mode.in_function -= 1

        torch.autograd.Function.apply = classmethod(apply)
        return super().__enter__()

    def __exit__(self, *raised):
        torch.autograd.Function.apply = self.apply
        return super().__exit__(*raised)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        x, kwargs = args[0] if args else None, kwargs or {}
        if self.in_function:
            return func(*args, **kwargs)
        if func is torch.Tensor.register_hook:
            self.hooked.setdefault(str(place()), []).append(x.grad_fn)
        if func == torch.Tensor.data.__set__ and _is_same(x, args[1]):
            return None  # as part.to(dtype) does, with the type that the part has
        if func == torch.Tensor.data.__set__ and isinstance(x, torch.nn.Parameter):
            raise ExportError(f"{place()}: forward() gives a parameter other data, which training with a file cannot do")
        if func in (torch.Tensor.detach_, torch.Tensor.data.__set__) and _has_gradient(x):
            raise ExportError(f"{place()}: a file cannot say that a tensor loses its history in place: write x = x.detach()")
        if func in (torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__) and isinstance(x, torch.nn.Parameter):
            if x.requires_grad != (args[1] if len(args) > 1 else kwargs.get("requires_grad", True)):
                raise ExportError(f"{place(True)}: forward() changes requires_grad of a parameter, which a file cannot say: "
                                  "write detach() of tensors without a gradient")
        if func in (torch.Tensor.detach, torch.Tensor.data.__get__):
            out = x.detach()
            self.detached[id(out)] = out, self.detached.get(id(x), (x, x))[1]
            return out
        if is_in_place(func) and id(x) in self.views:
            raise ExportError(f"{place()}: a file cannot say that a part of a tensor changes without its gradient: "
                              "write torch.where")
        if is_in_place(func) and torch.is_tensor(x):
            base = self.detached.get(id(x), (x, x))[1]
            if isinstance(base, torch.nn.Parameter) and not base.requires_grad:
                self.changed.add(id(base))
            if _has_gradient(base) and (base is not x or not torch.is_grad_enabled()):
                return self.change(base, x, func, args, kwargs)
            if not torch.is_grad_enabled():
                args = (x, *pytree.tree_map(lambda v: v.detach() if _has_gradient(v) else v, args[1:]))
                return func(*args, **kwargs)
        if func in (torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__):
            return func(x.detach(), *args[1:], **kwargs)
        if func is F.dropout:
            kwargs = {**kwargs, "inplace": False}
        if func in (torch.diff, torch.Tensor.diff):
            return difference(*args, **kwargs)
        if func in (torch.cumsum, torch.Tensor.cumsum) and x.dtype == torch.bool and not kwargs.get("dtype"):
            return func(x.long(), *args[1:], **kwargs)  # CumSum takes no truth values
        if func is F.scaled_dot_product_attention:
            return attention(*args, **kwargs)
        if func in (torch.index_add, torch.Tensor.index_add):
            return index_add(*args, **kwargs)
        if func is torch.Tensor.unfold:
            return unfold(*args, **kwargs)
        if func is F.gaussian_nll_loss:
            return gaussian_nll_loss(*args, **kwargs)
        out = func(*args, **kwargs)
        stops = not torch.is_grad_enabled()
        if self.loses_gradient(x, stops) and torch.is_tensor(out) and out is not x and out._is_view():
            out = out.detach()
            self.views[id(out)] = out
            return out
        if not stops or not any(map(_has_gradient, pytree.tree_leaves((args, kwargs)))):
            return out
        return detached(out)

    def loses_gradient(self, x, stops):
        base = self.detached.get(id(x), (x, x))[1]
        return id(x) in self.views or _has_gradient(base) and (stops or base is not x)

    def change(self, base, x, func, args, kwargs):
        if base.is_leaf:
            raise ExportError(f"{place()}: forward() changes a parameter, which training with a file cannot do")
        new = x.detach().clone()
        func(new, *args[1:], **kwargs)
        with torch.enable_grad():
            base.add_((new - base).detach())
        return x


def difference(input, n=1, dim=-1, prepend=None, append=None):
    """torch.diff, which TorchScript's exporter does not know."""
    x = torch.cat([v for v in (prepend, input, append) if v is not None], dim)
    for _ in range(n):
        rest = x.narrow(dim, 1, x.shape[dim] - 1)
        before = x.narrow(dim, 0, x.shape[dim] - 1)
        x = rest ^ before if x.dtype == torch.bool else rest - before
    return x


def attention(query, key, value, attn_mask=None, *args, **kwargs):
    """Four dimensions, as torch.export's writer of ONNX wants them.  A mask with a gradient chooses another implementation,
    with a result of other strides, than that of the written program: contiguous, it has a reshape instead of a view."""
    shape, fits = query.shape, not torch.jit.is_tracing() and (attn_mask is None or attn_mask.dim() <= 2)
    if query.dim() != 4 and fits and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        query, key, value = (v[:, None] if v.dim() == 3 else v.flatten(0, -4) for v in (query, key, value))
    out = F.scaled_dot_product_attention(query, key, value, attn_mask, *args, **kwargs)
    if _has_gradient(attn_mask):
        out = out.clone(memory_format=torch.contiguous_format)
    return out if out.dim() == len(shape) else out.reshape(*shape[:-1], value.shape[-1])


def index_add(input, dim, index, source, *, alpha=1):
    """By scatter_add: TorchScript's exporter refuses an index_add whose index may have a row twice."""
    source = source if alpha == 1 else alpha * source
    shape = [1] * source.dim()
    shape[dim] = -1
    return input.scatter_add(dim, index.view(shape).expand_as(source), source)


def unfold(x, dimension, size, step):
    """Without a negative dimension, which TorchScript's exporter counts among those of the result."""
    return x.unfold(dimension % x.dim(), size, step)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    var = torch.as_tensor(var)
    if var.dim() and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (var.log() + (input - target) ** 2 / var) + (0.5 * math.log(2 * math.pi) if full else 0)
    return {"mean": torch.mean, "sum": torch.sum}.get(reduction, lambda v: v)(loss)


def detached(out):
    return pytree.tree_map(lambda v: v.detach() if torch.is_tensor(v) and v.is_floating_point() else v, out)


def _has_gradient(v):
    return torch.is_tensor(v) and v.requires_grad


def _is_same(a, b):
    return (a.dtype, a.shape, a.stride(), a.storage_offset()) == (b.dtype, b.shape, b.stride(), b.storage_offset()) and \
        torch._C._is_alias_of(a, b)


def is_in_place(func):
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
            or name in ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__"))
