"""Modules and their parts, without tensors' values."""

import types

from torch import Tensor

from . import functional  # noqa: F401


class Module:
    training, _backward_hooks, _backward_pre_hooks = True, None, None

    def train(self, mode):
        return self

    def children(self):
        return [(name, v) for name, v in vars(self).items() if isinstance(v, Module)]

    def named_modules(self, prefix="", **_):
        yield prefix, self
        for name, part in self.children():
            yield from part.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self):
        return [part for _, part in self.named_modules()]

    def named_parameters(self, **_):
        for prefix, part in self.named_modules():
            for name, v in vars(part).items():
                if isinstance(v, Tensor):
                    yield f"{prefix}.{name}" if prefix else name, v

    def parameters(self):
        return [v for _, v in self.named_parameters()]

    def named_buffers(self):
        return []

    def __call__(self, *values, **inputs):
        return self.forward(*values, **inputs)


class Embedding(Module):
    def __init__(self, rows, width, padding_idx=None):
        self.scale_grad_by_freq, self.weight, self.padding_idx = False, Tensor(rows, width), padding_idx

    def forward(self, ids):
        return ids


class Other:
    """A class without instances here."""


DataParallel = Other
parameter = types.SimpleNamespace(is_lazy=lambda v: False)
parallel = types.SimpleNamespace(DistributedDataParallel=Other)
modules = types.SimpleNamespace(batchnorm=types.SimpleNamespace(_BatchNorm=Other))
