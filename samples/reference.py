"""Records the samples' losses in PyTorch:  python3 samples/reference.py [--check]

Trains every sample for 20 steps, from the weights in its .onnx, on its data in file order, with the
optimizers below, in f32 on the CPU.  Computes the gradient of the first step in f64, and records for
each weight its norm and its product with cos(1), cos(2), cos(3) …  Writes SAMPLE/expected.json, which
the tests compare with; --check compares instead, and fails if PyTorch's results have changed.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F

import data
import models

HERE = pathlib.Path(__file__).parent
STEPS = 20
BATCH = {"mlp": 16, "resnet": 16, "gpt2": 4}
LR = {"sgd": 0.05, "adamw": 1e-3}
OPTIMIZER = {
    "sgd": lambda p: torch.optim.SGD(p, lr=LR["sgd"], momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=LR["adamw"], weight_decay=0.1, betas=(0.9, 0.95)),
}


def load(name):
    model, _ = models.sample(name)
    weights = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy())
               for t in onnx.load(HERE / name / f"{name}.onnx").graph.initializer}
    state = {k: weights.get(k, v) for k, v in model.state_dict().items()}
    missing = [k for k, _ in model.named_parameters() if k not in weights]
    if missing:
        raise SystemExit(f"{name}: not in the .onnx: {missing}")
    model.load_state_dict(state)
    return model.train()


def batches(name):
    b = BATCH[name]
    if name == "gpt2":
        rows = np.load(HERE / name / "tokens.npy").astype(np.int64)
        t = 64
        rows = rows[: len(rows) // t * t].reshape(-1, t)
        return [(torch.from_numpy(rows[s * b:(s + 1) * b]), None) for s in range(STEPS)]
    x, y = np.load(HERE / name / "x.npy"), np.load(HERE / name / "labels.npy")
    return [(torch.from_numpy(x[s * b:(s + 1) * b]), torch.from_numpy(y[s * b:(s + 1) * b])) for s in range(STEPS)]


def loss_of(name, model, x, y):
    logits = model(x)
    if name == "gpt2":
        return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), x[:, 1:].reshape(-1))
    return F.cross_entropy(logits, y)


def train(name, optimizer):
    model = load(name)
    opt = OPTIMIZER[optimizer](model.parameters())
    losses, norms = [], []
    for x, y in batches(name):
        opt.zero_grad()
        loss = loss_of(name, model, x, y)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e30).item())
        opt.step()
        losses.append(loss.item())
    return {"loss": losses, "grad_norm": norms}


def gradients(name):
    model = load(name).double()
    x, y = batches(name)[0]
    loss_of(name, model, x if name == "gpt2" else x.double(), y).backward()
    out = {}
    for key, p in model.named_parameters():
        g = p.grad.flatten()
        probe = torch.cos(torch.arange(1, g.numel() + 1, dtype=torch.float64))
        out[key] = [g.norm().item(), (g @ probe).item()]
    return out


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(2)
    data.text()
    bad = 0
    for name in BATCH:
        got = {o: train(name, o) for o in OPTIMIZER}
        got["gradients"] = gradients(name)
        path = HERE / name / "expected.json"
        if a.check:
            want = json.loads(path.read_text())
            worst = max(abs(g - w) / max(abs(w), 1e-9) for o in got for k in got[o] for g, w in zip(got[o][k], want[o][k]))
            print(f"{name}: largest relative difference {worst:.2e}")
            bad |= not worst < 1e-4
        else:
            path.write_text(json.dumps(got, indent=1) + "\n")
            print(name, {o: (got[o]["loss"][0], got[o]["loss"][-1]) for o in OPTIMIZER})
    sys.exit(bad)
