"""The part of torch that nnaot-export calls without comparing: tests need no framework."""

import contextlib
import types


class Tensor:
    requires_grad, grad_fn, _version = True, None, 0
    _backward_hooks = _post_accumulate_grad_hooks = None

    def __init__(self, *shape):
        self.shape = shape

    def dim(self):
        return len(self.shape)

    def numel(self):
        return 1

    element_size = numel

    def detach(self):
        return self

    clone = cpu = detach

    def copy_(self, other):
        pass

    def numpy(self):
        import numpy
        return numpy.ones(self.shape, numpy.float32)


def is_tensor(v):
    return isinstance(v, Tensor)


from . import autograd, nn, onnx, utils  # noqa: E402, F401

export = types.SimpleNamespace(Dim=str)
jit = types.SimpleNamespace(TracerWarning=RuntimeWarning)
no_grad = enable_grad = contextlib.nullcontext
