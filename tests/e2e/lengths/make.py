"""Exports modules that select by masks with the exporters of PyTorch, and records their training:  python3 tests/e2e/lengths/make.py

Needs torch, onnx and onnxscript.  Writes MODULE.EXPORTER.onnx, DATA.IN.npy, and into expected.json PyTorch's losses of STEPS
steps in f64, and the norm of all weights after them.  The files are committed: lengths.py needs no PyTorch.
"""

import json
import pathlib
import sys
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import stack_traces  # noqa: E402

BATCH, TIME, WORDS, STEPS = 8, 6, 11, 6


class Words(nn.Module):
    """A masked language model: the cross entropy of the positions that have a label."""

    data, inputs, exporters = "words", ["ids", "labels"], ["torchscript"]

    def __init__(self):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Linear(8, WORDS)

    def forward(self, ids, labels):
        logits = self.head(torch.tanh(self.body(self.embed(ids))))
        kept = labels != -100
        return F.cross_entropy(logits[kept], labels[kept])


class Selected(Words):
    """The same, with the head after the selection, and labels that are ignored besides."""

    def forward(self, ids, labels):
        kept = labels != -100
        x = torch.tanh(self.body(self.embed(ids)))[kept]
        return F.cross_entropy(self.head(F.layer_norm(x, (8,))), labels[kept], ignore_index=3)


class Mean(nn.Module):
    """The mean of squared errors where a mask is true, and the largest of them."""

    data, inputs, exporters = "rows", ["x", "y", "mask"], ["torchscript", "dynamo"]

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x, y, mask):
        p = self.b(torch.tanh(self.a(x)))
        error = (p[mask] - y[mask]) ** 2
        return error.mean() + 0.1 * error.amax((0, 1))


class Chosen(Mean):
    """Elements by masked_select: their logarithm, which is infinite elsewhere."""

    inputs, exporters = ["x", "y"], ["torchscript"]

    def forward(self, x, y):
        p = F.relu(self.b(torch.tanh(self.a(x))))
        return ((p - y) ** 2).mean() - 0.1 * torch.log(torch.masked_select(p, p > 0.05)).mean()


class Put(Mean):
    """Rows computed where a mask is true, and put back: x[mask] = f(x[mask])."""

    exporters = ["torchscript", "dynamo"]

    def forward(self, x, y, mask):
        h = torch.tanh(self.a(x)).clone()
        h[mask] = torch.sin(2 * h[mask])
        return ((self.b(h) - y) ** 2).mean()


MODULES = {"words": Words, "selected": Selected, "mean": Mean, "chosen": Chosen, "put": Put}


def made_data():
    ids = torch.randint(0, WORDS, (BATCH, TIME))
    labels = torch.where(torch.rand(BATCH, TIME) < 0.4, torch.randint(0, WORDS, (BATCH, TIME)), torch.tensor(-100))
    labels[:2] = -100  # a rank of four has none
    mask = torch.rand(BATCH, TIME) < 0.5
    return {"words": [ids, labels], "rows": [torch.randn(BATCH, TIME, 4), torch.randn(BATCH, TIME, 3), mask]}


def export(module, operands, path, exporter):
    names = {"input_names": module.inputs, "output_names": ["loss"]}
    if exporter == "dynamo":
        batch = torch.export.Dim("batch")
        torch.onnx.export(module, tuple(operands), path, dynamo=True, optimize=False, external_data=False,
                          dynamic_shapes=tuple({0: batch} for _ in operands), **names)
    else:
        torch.onnx.export(module, tuple(operands), path, dynamo=False, opset_version=17, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, dynamic_axes={n: {0: "batch"} for n in module.inputs}, **names)


def train(module, operands):
    """The losses of sgd with momentum in f64, and the norm of all weights afterwards."""
    module.double()
    operands = [x.double() if x.is_floating_point() else x for x in operands]
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = module(*operands)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, float(torch.cat([p.detach().flatten() for p in module.parameters()]).norm())


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(5)
    data, expected = made_data(), {}
    for name, operands in data.items():
        inputs = {"words": Words, "rows": Mean}[name].inputs
        for key, value in zip(inputs, operands):
            array = value.numpy()
            np.save(HERE / f"{name}.{key}.npy", array)
    for name, make in MODULES.items():
        torch.manual_seed(7)
        module, operands = make(), data[make.data][:len(make.inputs)]
        for exporter in make.exporters:
            path = str(HERE / f"{name}.{exporter}.onnx")
            export(module, operands, path, exporter)
            if exporter == "dynamo":
                stack_traces.remove(path)
        losses, norm = train(module, operands)
        expected[name] = {"data": make.data, "inputs": make.inputs, "loss": losses, "norm": norm}
        print(name, losses, norm)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
