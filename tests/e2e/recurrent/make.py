"""Exports recurrent modules with each exporter of PyTorch, and records their training:  python3 tests/e2e/recurrent/make.py

Needs torch, onnx and onnxscript.  Writes MODULE.EXPORTER.onnx, MODULE.IN.npy, and into expected.json PyTorch's losses of
STEPS steps in f64, and the norm of every weight after them.  The files are committed: recurrent.py needs no PyTorch.
"""

import json
import pathlib
import sys
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import stack_traces  # noqa: E402

BATCH, TIME, WORDS, STEPS = 8, 7, 11, 5


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers that labels every character."""

    inputs = ["ids"]

    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(WORDS, 6), nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, WORDS)

    def forward(self, ids):
        return self.head(self.lstm(self.embed(ids))[0])


class Chars(nn.Module):
    """A character model: two layers of GRU and the next character."""

    inputs = ["ids"]

    def __init__(self):
        super().__init__()
        self.embed, self.gru, self.head = nn.Embedding(WORDS, 6), nn.GRU(6, 9, 2, batch_first=True), nn.Linear(9, WORDS)

    def forward(self, ids):
        return self.head(self.gru(self.embed(ids))[0])


class States(nn.Module):
    """Time before the batch, without biases, learnt initial states, and last states as results."""

    inputs = ["ids"]

    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(WORDS, 6), nn.LSTM(6, 5, bias=False)
        self.rnn, self.head = nn.RNN(5, 4, nonlinearity="relu"), nn.Linear(4 + 5 + 5 + 4, WORDS)
        self.h, self.c = nn.Parameter(torch.randn(1, 1, 5)), nn.Parameter(torch.randn(1, 1, 5))

    def forward(self, ids):
        x = self.embed(ids).transpose(0, 1)
        y, (h, c) = self.lstm(x, (self.h.expand(1, ids.shape[0], 5).contiguous(), self.c.expand(1, ids.shape[0], 5).contiguous()))
        z, last = self.rnn(y)
        return self.head(torch.cat([z.mean(0), h[0], c[0], last[0]], dim=1))


class Packed(nn.Module):
    """Sequences of several lengths, packed: both directions end at the length."""

    inputs = ["ids", "lengths"]

    def __init__(self):
        super().__init__()
        self.embed, self.gru = nn.Embedding(WORDS, 6), nn.GRU(6, 4, bidirectional=True, batch_first=True)
        self.lstm, self.head = nn.LSTM(8, 5, bidirectional=True, batch_first=True), nn.Linear(10 + 10, WORDS)

    def forward(self, ids, lengths):
        x = rnn.pack_padded_sequence(self.embed(ids), lengths, batch_first=True)
        y, (h, _) = self.lstm(self.gru(x)[0])
        y, _ = rnn.pad_packed_sequence(y, batch_first=True, total_length=TIME)
        return self.head(torch.cat([y.sum(1), h[0], h[1]], dim=1))


MODULES = {"tagger": Tagger, "chars": Chars, "states": States, "packed": Packed}
BY_TORCHSCRIPT_ONLY = ["packed"]


def data(name):
    generator = np.random.default_rng(5)
    ids = generator.integers(0, WORDS, (BATCH, TIME))
    labels = generator.integers(0, WORDS, (BATCH, TIME) if name in ("tagger", "chars") else (BATCH,))
    lengths = np.array([7, 7, 6, 5, 4, 2, 1, 1])
    return {"ids": ids, "labels": labels} | ({"lengths": lengths} if name == "packed" else {})


def record(model, values):
    """Trains in f64 by sgd with momentum; returns losses, and the norms of the weights afterwards."""
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        y = model(*(torch.from_numpy(values[key]) for key in model.inputs))
        loss = F.cross_entropy(y.reshape(-1, WORDS), torch.from_numpy(values["labels"]).reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": losses, "norm": float(sum(p.detach().square().sum() for p in model.parameters()) ** 0.5)}


def main():
    warnings.filterwarnings("ignore")
    expected = {}
    for name, module in MODULES.items():
        torch.manual_seed(3)
        model, values = module(), data(name)
        for key, value in values.items():
            np.save(HERE / f"{name}.{key}.npy", value)
        args = tuple(torch.from_numpy(values[key]) for key in model.inputs)
        common = dict(input_names=model.inputs, output_names=["y"])
        torch.onnx.export(model, args, HERE / f"{name}.torchscript.onnx", dynamo=False, training=torch.onnx.TrainingMode.PRESERVE,
                          do_constant_folding=False, dynamic_axes={key: {0: "N"} for key in (*model.inputs, "y")}, **common)
        torch.onnx.export(model, args, HERE / f"{name}.folded.onnx", dynamo=False, **common)
        if name not in BY_TORCHSCRIPT_ONLY:
            torch.onnx.export(model, args, HERE / f"{name}.dynamo.onnx", dynamo=True, optimize=False, external_data=False,
                              verbose=False, dynamic_shapes=({0: torch.export.Dim("batch")},), **common)
            stack_traces.remove(HERE / f"{name}.dynamo.onnx")
        expected[name] = record(model, values)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
