"""PyTorch's exporters, with the gradient's stops in the file."""

import torch

from .recorded import AsRecorded
from .signature import results

DETACHED = "detached"  # an attribute of an Identity, by TorchScript, until the file is finished


class ByPosition(torch.nn.Module):
    """The module called with tensors in order, giving tensors in order, as exporters want it."""

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
    return program.exported_program.module()


def by_torchscript(module, inputs, path, names, batch, large, opset, verbose):
    axes = {name: {inputs.axes[k]: batch} for k, name in zip(inputs.tensors, names[0]) if k in inputs.axes}
    torch.onnx.register_custom_op_symbolic("aten::detach", lambda g, x: g.op("Identity", x, **{DETACHED + "_i": 1}), 9)
    try:
        torch.onnx.export(ByPosition(module, inputs), inputs.copies(), str(path), dynamo=False,
                          do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE, input_names=names[0],
                          output_names=names[1], dynamic_axes=axes, **opset)
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::detach", 9)


EXPORTERS = {"dynamo": by_dynamo, "torchscript": by_torchscript}


def reason(e):
    """The first line of the first cause: the exception itself names a step of the exporter."""
    while e.__cause__ is not None:
        e = e.__cause__
    lines = str(e).strip().splitlines()
    return lines[0].split("  [Caused by")[0] if lines else type(e).__name__
