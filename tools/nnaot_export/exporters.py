"""PyTorch's exporters, with the gradient's stops in the file.  Each returns a function that makes the program that the file
was made from: it takes tensors in order, and has a backward pass."""

import torch

from .recorded import AsRecorded
from .signature import results

DETACHED = "detached"  # an attribute of an Identity, by TorchScript, until the file is finished


class ByPosition(torch.nn.Module):
    """The module as exporters need it: called with tensors in order, returning tensors in order."""

    def __init__(self, module, inputs):
        super().__init__()
        self.module, self.inputs = module, inputs
        self.training = module.training

    def forward(self, *values):
        with torch.enable_grad(), AsRecorded():
            out = self.inputs.call(self.module, dict(zip(self.inputs.tensors, values)))
            return tuple(v for _, v in results(out))


def by_dynamo(module, inputs, path, names, batch, large, opset, verbose):
    whole, batch = ByPosition(module, inputs), torch.export.Dim(batch)
    shapes = tuple({inputs.axes[k]: batch} if k in inputs.axes else None for k in inputs.tensors)
    program = torch.onnx.export(whole, inputs.copies(), str(path), dynamo=True, optimize=False, external_data=large,
                                verbose=verbose, input_names=names[0], output_names=names[1], dynamic_shapes=(shapes,), **opset)
    return lambda: differentiable(program.exported_program.module())


class Primitive(torch.nn.Module):
    """PyTorch's implementation of a primitive operator, by functions that have gradients: its own backward() is an error."""

    def __init__(self, op):
        super().__init__()
        self.implementation = op.prim_impl

    def forward(self, *args, **kwargs):
        return self.implementation(*args, **kwargs)


def differentiable(program):
    for node in [node for node in program.graph.nodes if hasattr(node.target, "prim_impl")]:
        program.add_submodule(f"nnaot_{node.name}", Primitive(node.target))
        node.op, node.target = "call_module", f"nnaot_{node.name}"
    program.recompile()
    return program


def by_torchscript(module, inputs, path, names, batch, large, opset, verbose):
    axes = {name: {inputs.axes[k]: batch} for k, name in zip(inputs.tensors, names[0]) if k in inputs.axes}
    torch.onnx.register_custom_op_symbolic("aten::detach", lambda g, x: g.op("Identity", x, **{DETACHED + "_i": 1}), 9)
    try:
        torch.onnx.export(ByPosition(module, inputs), inputs.copies(), str(path), dynamo=False,
                          do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE, input_names=names[0],
                          output_names=names[1], dynamic_axes=axes, **opset)
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::detach", 9)
    return lambda: AsTraced(torch.jit.trace(ByPosition(module, inputs), inputs.copies(), check_trace=False))


class AsTraced(torch.nn.Module):
    """A program of TorchScript without optimization: its optimizer computes constants by calls that are no tensors'."""

    def __init__(self, program):
        super().__init__()
        self.program = program

    def forward(self, *values):
        with torch.jit.optimized_execution(False):
            return self.program(*values)


EXPORTERS = {"dynamo": by_dynamo, "torchscript": by_torchscript}


def reason(e):
    """The first line of the first cause: the exception itself names a step of the exporter."""
    while e.__cause__ is not None:
        e = e.__cause__
    lines = str(e).strip().splitlines()
    return lines[0].split("  [Caused by")[0] if lines else type(e).__name__
