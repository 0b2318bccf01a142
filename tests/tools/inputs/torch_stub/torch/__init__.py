"""As much of torch as nnaot-export calls without comparing: tests need no framework."""

import contextlib
import types

from . import onnx  # noqa: F401


class Tensor:
    requires_grad, grad_fn = True, None

    def __init__(self, *shape):
        self.shape = shape

    def dim(self):
        return len(self.shape)

    def numel(self):
        return 1

    element_size = numel


class Module:
    training = True

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
                if is_tensor(v):
                    yield f"{prefix}.{name}" if prefix else name, v

    def parameters(self):
        return [v for _, v in self.named_parameters()]

    def named_buffers(self):
        return []

    def __call__(self, *values, **inputs):
        return self.forward(*values, **inputs)


class Embedding(Module):
    def __init__(self, rows, width, padding_idx=None):
        self.weight, self.padding_idx = Tensor(rows, width), padding_idx

    def forward(self, ids):
        return ids


def is_tensor(v):
    return isinstance(v, Tensor)


class Other:
    """A class that no module here is of."""


nn = types.SimpleNamespace(Module=Module, Embedding=Embedding, DataParallel=Other,
                           parallel=types.SimpleNamespace(DistributedDataParallel=Other),
                           modules=types.SimpleNamespace(batchnorm=types.SimpleNamespace(_BatchNorm=Other)))
export = types.SimpleNamespace(Dim=str)
jit = types.SimpleNamespace(TracerWarning=RuntimeWarning)
no_grad = enable_grad = contextlib.nullcontext
