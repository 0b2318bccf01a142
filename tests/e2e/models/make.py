"""Exports the models, and records PyTorch's losses:  python3 tests/e2e/models/make.py [--check] [MODEL ...]

Writes MODEL.onnx in training mode, and for models without dropout (whose random numbers are nnaot's own)
20 losses and gradient norms of AdamW with clipping into expected.json.  --check exports nothing and
compares with the stored numbers.
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

import modules

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from plan_cases import BATCH, BATCHES, MODELS, rows  # noqa: E402

STEPS = 20


def data(name):
    out = {}
    for key in MODELS[name]["inputs"]:
        values, shape, whole = rows(name, key)
        out[key] = torch.from_numpy(np.array(values, np.int64 if whole else np.float32).reshape(shape))
    return out


def batch(inputs, step):
    at = step % BATCHES * BATCH
    return {k: v[at:at + BATCH] for k, v in inputs.items()}


def export(name):
    model = modules.model(name).train()
    inputs = {key: x[:BATCH] for key, x in data(name).items() if key != "labels"}
    torch.onnx.export(model, tuple(inputs.values()), str(HERE / f"{name}.onnx"), input_names=list(inputs),
                      output_names=["logits"], opset_version=18, dynamic_axes={key: {0: "batch"} for key in inputs}, dynamo=False,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)


def loss_of(name, model, at):
    if "labels" not in at:
        (ids,) = at.values()
        return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    *inputs, labels = at.values()
    return F.cross_entropy(model(*inputs).flatten(0, -2), labels.flatten())


def train(name):
    model = modules.model(name).train()
    weights = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy())
               for t in onnx.load(HERE / f"{name}.onnx").graph.initializer}
    model.load_state_dict({k: weights[k] if k in weights else v for k, v in model.state_dict().items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.1, betas=(0.9, 0.95), eps=1e-5)
    inputs, losses, norms = data(name), [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(name, model, batch(inputs, step))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        losses.append(loss.item())
    return {"loss": losses, "grad_norm": norms}


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    p.add_argument("models", nargs="*")
    a = p.parse_args()
    torch.set_num_threads(1)
    path, bad = HERE / "expected.json", 0
    expected = json.loads(path.read_text()) if path.exists() else {}
    for name in a.models or MODELS:
        if not a.check:
            export(name)
        if MODELS[name].get("dropout"):
            continue
        got = train(name)
        if a.check:
            d = max(abs(g - w) / abs(w) for k in got for g, w in zip(got[k], expected[name][k]))
            print(f"{name}: largest relative difference {d:.1e}")
            bad |= not d < 1e-4
        else:
            expected[name] = got
            print(name, got["loss"][0], got["loss"][-1], got["grad_norm"][0])
    if not a.check:
        path.write_text(json.dumps(expected) + "\n")
    sys.exit(bad)
