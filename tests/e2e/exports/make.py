"""Exports modules as users do, and records their training in PyTorch:  python3 tests/e2e/exports/make.py [MODULE ...]

Needs torch, onnx and onnxscript.  Writes MODULE.EXPORTER.onnx for each exporter, MODULE.IN.npy, and into expected.json
the losses of STEPS steps of each optimizer and every weight and buffer after them, as norm and product with cos(1),
cos(2), ….  The files are committed: exports.py needs no PyTorch.
"""

import json
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "tools"), str(HERE.parent)]
import nnaot_export  # noqa: E402
import stack_traces  # noqa: E402

BATCH, STEPS = 8, 6
OPTIMIZERS = {"sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
              "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)}


class Norms(nn.Module):
    """BatchNorm2d, one BatchNorm1d for both halves of chunk(), and a buffer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4, momentum=0.3)
        self.shared = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 5)
        self.register_buffer("shift", torch.tensor([0.1, -0.2, 0.3]).reshape(1, 3, 1, 1))

    def forward(self, x):
        h = F.relu(self.bn(self.conv(x - self.shift))).mean(3).flatten(1)
        a, b = h.chunk(2, dim=1)
        return self.head(self.shared(a) * torch.tanh(self.shared(b)))


class Padded(nn.Module):
    """An embedding with padding_idx, tied to the head, and attention with q, k and v from one split()."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6, padding_idx=1)
        nn.init.normal_(self.embed.weight)
        self.qkv = nn.Linear(6, 18, bias=False)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        h = self.embed(ids)
        q, k, v = self.qkv(h).split(6, dim=2)
        return self.head(h + F.scaled_dot_product_attention(*(t[:, None] for t in (q, k, v)), is_causal=True)[:, 0])


class Ties(nn.Module):
    """Values at a bound, equal values and norms of zeros, for which PyTorch chooses a gradient: half of the rows are zero,
    and initially the bias, too.  torchscript's exporter writes max(dim) and amax alike."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(36, 5)
        nn.init.zeros_(self.inner.bias)
        self.register_buffer("zeros", torch.zeros(6))

    def forward(self, x):
        h = self.inner(x)
        of_elements = [h.clamp(0.0, 1.5), F.relu6(h), F.hardtanh(h, 0.0, 1.0), torch.maximum(h, self.zeros), h.abs()]
        of_rows = [h.max(1, keepdim=True).values, h.amin(1, keepdim=True), h.norm(dim=1, keepdim=True),
                   h.norm(p=3, dim=1, keepdim=True), h.std(1, keepdim=True),
                   F.normalize(h, dim=1, eps=0.5)[:, :1]]
        return self.head(torch.cat(of_elements + of_rows, dim=1))


class Picked(nn.Module):
    """Rows that index their own positions: one, and two of them."""

    def __init__(self):
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11)

    def forward(self, ids):
        h, row = torch.tanh(self.inner(self.embed(ids))), torch.arange(ids.shape[0])
        return self.head(h[row, ids[:, 0] % 5] + h[row[:, None], ids[:, 1:3] % 5].sum(1))


class Rolled(nn.Module):
    """The position before one of each row, in the flattened tensor: position -1 of a row is the last of the previous row."""

    def __init__(self):
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11)

    def forward(self, ids):
        h = torch.tanh(self.inner(self.embed(ids)))
        return self.head(h.reshape(-1, 6)[ids[:, 0] % 5 - 1 + torch.arange(ids.shape[0]) * 5])


class Second(nn.Module):
    """Attention in PyTorch's default layout, [T,n,C], and a table read by all rows: the batch is dimension 1 of x and y."""

    def __init__(self):
        super().__init__()
        self.inner, self.attention = nn.Linear(3, 8), nn.MultiheadAttention(8, 2, bias=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x, table):
        h = torch.tanh(self.inner(x) + table)
        return self.head(h + self.attention(h, h, h, need_weights=False)[0])


class Flat(Second):
    """Logits that the module flattens with the batch second, [T*n,C]."""

    def forward(self, x, table):
        return super().forward(x, table).flatten(0, 1)


class Frozen(nn.Module):
    """Frozen statistics of one normalization, as by norm.eval(), and a dict with a tuple as outputs."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(3, 8, bias=False), nn.Linear(8, 5)
        self.norm, self.other = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
        nn.init.uniform_(self.norm.running_mean)

    def forward(self, x):
        h = self.norm(self.other(self.inner(x)))
        y = self.head(torch.relu(h))
        return {"features": (h, 2 * y), "y": y}


class Stops(nn.Module):
    """Gradient stops: x.detach() of straight-through rounding, torch.no_grad(), also around in-place changes, and a
    weight's data.  Recomputed activations do not stop it."""

    def __init__(self):
        super().__init__()
        self.inner, self.gate, self.head = nn.Linear(3, 8), nn.Linear(3, 8), nn.Linear(8, 5)

    def forward(self, x):
        h = 4 * self.inner(x)
        h = h + checkpoint(torch.tanh, h, use_reentrant=True)
        with torch.no_grad():
            mask = torch.sigmoid(self.gate(x) + h)
            h.clamp_(-3, 3)
        h.data.mul_(0.7)
        q = h + (torch.round(h) - h).detach()
        return self.head(q * mask) + F.linear(h, self.head.weight.data)


class Hidden(nn.Module):
    """Attention with a mask that hides all keys of some rows: PyTorch gives zeros for these."""

    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(3, 18, bias=False), nn.Linear(6, 5)

    def forward(self, x, mask):
        q, k, v = self.qkv(x)[:, None].chunk(3, 3)
        return self.head(F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])[:, 0])


class Losses(nn.Module):
    """Losses inside a module with special gradients: of a probability that is 0 or 1 in f32, and of a variance
    below its minimum."""

    def __init__(self):
        super().__init__()
        self.inner, self.head, self.scale = nn.Linear(3, 8), nn.Linear(24, 5), nn.Parameter(torch.zeros(8))
        self.register_buffer("targets", torch.tensor([1.0, 0, 0.3, 1, 0, 0.6, 1, 0]))

    def forward(self, x):
        h, targets = 20 * self.inner(x), self.targets.expand(x.shape[0], 8)
        bce = F.binary_cross_entropy(torch.sigmoid(h), targets, reduction="none")
        nll = F.gaussian_nll_loss(torch.tanh(h), targets, h[:, :1].square() / 100, eps=0.5, reduction="none")
        zero = F.binary_cross_entropy(torch.sigmoid(h) * self.scale, 0 * targets, reduction="none")
        return self.head(torch.cat([0.1 * bce, 0.1 * nll, zero], 1))


def inputs_of(name):
    rng = np.random.default_rng(3)
    if name in ("second", "flat"):
        return {"x": rng.standard_normal((4 * BATCH, 5, 3)).astype(np.float32), "labels": rng.integers(0, 5, (4 * BATCH, 5)),
                "table": rng.standard_normal((5, 1, 8)).astype(np.float32)}
    if name == "hidden":
        mask = rng.random((4 * BATCH, 5)) < 0.6
        mask[::3] = False
        mask[0] = True
        return {"x": rng.standard_normal((4 * BATCH, 5, 3)).astype(np.float32), "labels": rng.integers(0, 5, (4 * BATCH, 5)),
                "mask": mask}
    if name in ("frozen", "stops", "losses"):
        return {"x": rng.standard_normal((4 * BATCH, 3)).astype(np.float32), "labels": rng.integers(0, 5, 4 * BATCH)}
    if name in ("picked", "rolled"):
        return {"ids": rng.integers(0, 11, (4 * BATCH, 5)), "labels": rng.integers(0, 11, 4 * BATCH)}
    if name == "ties":
        x = rng.standard_normal((4 * BATCH, 6)).astype(np.float32)
        x[1::2] = 0
        return {"x": x, "labels": rng.integers(0, 5, 4 * BATCH)}
    if name == "norms":
        return {"x": rng.standard_normal((4 * BATCH, 3, 4, 4)).astype(np.float32),
                "labels": rng.integers(0, 5, 4 * BATCH)}
    ids = rng.integers(0, 11, (4 * BATCH, 5))
    ids[::2, 3:] = 1
    return {"ids": ids, "labels": rng.integers(0, 11, (4 * BATCH, 5))}


MODULES = {"norms": Norms, "padded": Padded, "ties": Ties, "picked": Picked, "rolled": Rolled, "second": Second, "flat": Flat,
           "frozen": Frozen, "stops": Stops, "hidden": Hidden, "losses": Losses}

EXPORTERS = {"ties": ("dynamo", "helper"), "second": ("helper",), "flat": ("helper", "torchscript"), "frozen": ("helper", "script"),
             "stops": ("helper", "script"), "losses": ("helper",)}


def module(name):
    torch.manual_seed(7)
    m = MODULES[name]().train()
    if name == "frozen":
        m.norm.eval()
    return m


def export(name, exporter, x, tables):
    key, path = ("ids" if name in ("padded", "picked", "rolled") else "x"), str(HERE / f"{name}.{exporter}.onnx")
    if name == "hidden" and exporter == "helper":
        nnaot_export.export(module(name), (x, *tables), path, output_names=["y"])
    elif name == "hidden" and exporter == "dynamo":
        batch = torch.export.Dim("batch")
        torch.onnx.export(module(name), (x, *tables), path, dynamo=True, optimize=False, external_data=False,
                          input_names=["x", "mask"], output_names=["y"], dynamic_shapes=({0: batch}, {0: batch}))
    elif name == "hidden":
        torch.onnx.export(module(name), (x, *tables), path, dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, dynamic_axes={"x": {0: "batch"}, "mask": {0: "batch"}},
                          input_names=["x", "mask"], output_names=["y"])
    elif name in ("second", "flat") and exporter == "helper":
        nnaot_export.export(module(name), (x.transpose(0, 1), *tables), path, batch_dims={"x": 1, "table": None},
                            output_names=["y"])
    elif exporter in ("helper", "script") and name in ("frozen", "stops"):
        m = module(name)
        nnaot_export.export(m, x, path, exporters=("dynamo" if exporter == "helper" else "torchscript",),
                            output_names=["y"] if name == "stops" else None)
        assert name == "stops" or not m.norm.training and m.other.training
    elif exporter == "helper":
        nnaot_export.export(module(name), x, path, output_names=["y"])
    elif exporter == "dynamo":
        torch.onnx.export(module(name), (x,), path, dynamo=True, optimize=False, external_data=False,
                          input_names=[key], output_names=["y"], dynamic_shapes=({0: torch.export.Dim("batch")},))
    elif name == "flat":
        torch.onnx.export(module(name), (x.transpose(0, 1), *tables), path, dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, dynamic_axes={"x": {1: "batch"}},
                          input_names=["x", "table"], output_names=["y"])
    else:
        torch.onnx.export(module(name), (x,), path, dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, dynamic_axes={key: {0: "batch"}},
                          input_names=[key], output_names=["y"])


def product(t):
    t = t.detach().double().flatten()
    return [t.norm().item(), (t * torch.cos(torch.arange(1, len(t) + 1, dtype=torch.float64))).sum().item()]


def logits(name, m, x, tables):
    """Returns logits [n,..,C] for rows of data."""
    if name == "second":
        return m(x.transpose(0, 1), *tables).transpose(0, 1)
    if name == "flat":
        return m(x.transpose(0, 1), *tables).unflatten(0, (x.shape[1], -1)).transpose(0, 1)
    if name == "hidden":
        return m(x, *tables)
    return m(x)["y"] if name == "frozen" else m(x)


def train(name, exporter, optimizer, x, labels, tables):
    """Trains from the exported values: torchscript's exporter runs the module, which updates running statistics."""
    m = module(name)
    held = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy())
            for t in onnx.load(HERE / f"{name}.{exporter}.onnx").graph.initializer}
    m.load_state_dict({k: held.get(k, v) for k, v in m.state_dict().items()})
    step, losses = OPTIMIZERS[optimizer](m.parameters()), []
    for i in range(STEPS):
        at = slice(i % 4 * BATCH, i % 4 * BATCH + BATCH)
        step.zero_grad()
        now = [t[at] for t in tables] if name == "hidden" else tables
        loss = F.cross_entropy(logits(name, m, x[at], now).flatten(0, -2), labels[at].flatten())
        loss.backward()
        step.step()
        losses.append(loss.item())
    return {"loss": losses, "saved": {k: product(v) for k, v in m.state_dict().items() if v.is_floating_point()}}


if __name__ == "__main__":
    torch.set_num_threads(1)
    path = HERE / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    for name in sys.argv[1:] or MODULES:
        inputs = inputs_of(name)
        for key, value in inputs.items():
            np.save(HERE / f"{name}.{key}.npy", value)
        x, labels, *tables = (torch.from_numpy(v) for v in inputs.values())
        for exporter in EXPORTERS.get(name, ("dynamo", "torchscript", "helper")):
            export(name, exporter, x[:BATCH], [t[:BATCH] for t in tables] if name == "hidden" else tables)
            stack_traces.remove(HERE / f"{name}.{exporter}.onnx")
            expected[f"{name}.{exporter}"] = {o: train(name, exporter, o, x, labels, tables) for o in OPTIMIZERS}
    path.write_text(json.dumps(expected, indent=1) + "\n")
