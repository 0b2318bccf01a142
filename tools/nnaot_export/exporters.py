"""PyTorch's exporters, quiet, with the gradient's stops in the file."""

import contextlib
import io
import logging
import os
import sys
import warnings

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .signature import results

DETACHED = "detached"  # an attribute of an Identity, by TorchScript, until the file is finished


class ByPosition(torch.nn.Module):
    """The module called with tensors in order, giving tensors in order, as exporters want it."""

    def __init__(self, module, inputs):
        super().__init__()
        self.module, self.inputs = module, inputs
        self.training = module.training

    def forward(self, *values):
        with torch.enable_grad(), Detached():
            out = self.inputs.call(self.module, dict(zip(self.inputs.tensors, values)))
            return tuple(v for _, v in results(out))


class Detached(TorchFunctionMode):
    """Results of torch.no_grad() and x.data become those of x.detach(), which a file can say."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func == torch.Tensor.data.__get__:
            return args[0].detach()
        out = func(*args, **(kwargs or {}))
        if torch.is_grad_enabled() or not any(torch.is_tensor(v) and v.requires_grad for v in pytree.tree_leaves((args, kwargs))):
            return out
        return pytree.tree_map(lambda v: v.detach() if torch.is_tensor(v) and v.is_floating_point() else v, out)


def by_dynamo(module, inputs, path, names, batch, large, opset, verbose):
    whole, batch = ByPosition(module, inputs), torch.export.Dim(batch)
    shapes = tuple({inputs.axes[k]: batch} if k in inputs.axes else None for k in inputs.tensors)
    torch.onnx.export(whole, tuple(inputs.tensors.values()), str(path), dynamo=True, optimize=False, external_data=large,
                      verbose=verbose, input_names=names[0], output_names=names[1], dynamic_shapes=(shapes,), **opset)


def by_torchscript(module, inputs, path, names, batch, large, opset, verbose):
    axes = {name: {inputs.axes[k]: batch} for k, name in zip(inputs.tensors, names[0]) if k in inputs.axes}
    torch.onnx.register_custom_op_symbolic("aten::detach", lambda g, x: g.op("Identity", x, **{DETACHED + "_i": 1}), 9)
    try:
        torch.onnx.export(ByPosition(module, inputs), tuple(inputs.tensors.values()), str(path), dynamo=False,
                          do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE, input_names=names[0],
                          output_names=names[1], dynamic_axes=axes, **opset)
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::detach", 9)


EXPORTERS = {"dynamo": by_dynamo, "torchscript": by_torchscript}


@contextlib.contextmanager
def silence():
    """Nothing is printed, by Python or by C++, or logged.  Yields a list of the warnings: category, text, FILE:LINE."""
    disabled, kept, warned = logging.root.manager.disable, [], []

    def keep(message, category, *_, **__):
        warned.append((category, str(message), place()))

    logging.disable()
    try:
        with (open(os.devnull, "w") as nowhere, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()),
              contextlib.redirect_stderr(io.StringIO())):
            warnings.simplefilter("always")
            warnings.showwarning = keep
            for descriptor in (1, 2):
                with contextlib.suppress(OSError):  # it may be closed
                    kept.append((os.dup(descriptor), descriptor))
                    os.dup2(nowhere.fileno(), descriptor)
            yield warned
    finally:
        for copy, descriptor in kept:
            os.dup2(copy, descriptor)
            os.close(copy)
        logging.disable(disabled)


def place():
    """FILE:LINE of the module's own call, or None if PyTorch itself is what warns."""
    torch_folder = os.path.dirname(torch.__file__)
    of_tensors = (os.path.join(torch_folder, file) for file in ("_tensor.py", "overrides.py"))
    passed = (os.path.dirname(__file__), warnings.__file__, *of_tensors)
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(passed):
        frame = frame.f_back
    own = not frame or frame.f_code.co_filename.startswith(torch_folder)
    return None if own else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def traced_once(warned):
    """A note for each line of the module that TorchScript recorded as it ran on the example."""
    lines = {at: text.split(". ")[0].split("\n")[0] for category, text, at in warned
             if at and issubclass(category, torch.jit.TracerWarning)}
    return [f"{at}: the model is right for the example alone if other data take another way here: {text}"
            for at, text in lines.items()]


def reason(e):
    """The first line of the first cause: the exception itself names a step of the exporter."""
    while e.__cause__ is not None:
        e = e.__cause__
    lines = str(e).strip().splitlines()
    return lines[0].split("  [Caused by")[0] if lines else type(e).__name__
