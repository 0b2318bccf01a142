"""Random numbers that are a function of their index alone: the same in the module and in its file."""

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode


def uniform(shape):
    """Numbers from 0 to 1, spread evenly: multiples of the golden ratio."""
    turns = np.arange(1, np.prod(shape, dtype=np.int64) + 1) * 0.6180339887498949
    turns -= np.floor(turns)
    return turns.astype(np.float32).reshape(tuple(shape))


def normal(shape):
    """Numbers with the mean and variance of a normal distribution; no other property is needed."""
    return np.asarray(12 ** 0.5 * (uniform(shape) - 0.5), np.float32)


class Drawn(TorchDispatchMode):
    """Replaces PyTorch's random numbers by uniform() and normal()."""

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
