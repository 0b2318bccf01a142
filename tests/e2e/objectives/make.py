"""Writes a small model with two outputs, its data, and PyTorch's results for each objective:

    python3 tests/e2e/objectives/make.py

Needs torch and onnx.  expected.json has, by the text of --loss, the losses and gradient norms of STEPS steps of sgd, and the
loss and accuracy over the first EVAL_ROWS rows afterwards.  The files are committed: objectives.py needs no PyTorch.
"""

import json
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
BATCH, LENGTH, CLASSES, WIDTH, STEPS = 8, 5, 7, 6, 4
ROWS, EVAL_ROWS = STEPS * BATCH, STEPS * BATCH - 3
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


EMBED, HEAD, AUX = normal(CLASSES, WIDTH), normal(WIDTH, CLASSES), normal(WIDTH, CLASSES)


def inputs():
    """Some labels and tokens are -100; no row begins with one."""
    ids, labels = (rng.integers(0, CLASSES, (ROWS, LENGTH)) for _ in range(2))
    padded = ids.copy()
    labels[rng.random(labels.shape) < 0.3] = -100
    padded[:, 3:][rng.random((ROWS, 2)) < 0.5] = -100
    return {"ids": ids, "padded": padded, "labels": labels, "words": labels.clip(min=0),
            "target": normal(ROWS, LENGTH, CLASSES)}


def model():
    def value(name, dtype, *tail):
        return helper.make_tensor_value_info(name, dtype, ["batch", LENGTH, *tail])

    nodes = [helper.make_node("Gather", ["embed", "ids"], ["e"], "embed"), helper.make_node("Tanh", ["e"], ["t"], "tanh"),
             helper.make_node("MatMul", ["t", "head"], ["y"], "head"),
             helper.make_node("MatMul", ["e", "aux"], ["aux, 2"], "aux")]
    weights = [numpy_helper.from_array(x, n) for n, x in (("embed", EMBED), ("head", HEAD), ("aux", AUX))]
    graph = helper.make_graph(nodes, "two_heads", [value("ids", TensorProto.INT64)],
                              [value(n, TensorProto.FLOAT, CLASSES) for n in ("y", "aux, 2")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cross_entropy(y, labels, **options):
    return F.cross_entropy(y.flatten(0, 1), labels.flatten(), **options)


def next_token(y, ids, **options):
    return cross_entropy(y[:, :-1], ids[:, 1:], **options)


WEIGHT = torch.linspace(0.5, 2, CLASSES)
# By the text of --loss: a function of y, aux, ids, labels and target; and its inputs besides ids.
OBJECTIVES = {
    "cross_entropy(y,ignore_index=-100)": (lambda y, a, i, l, t: cross_entropy(y, l), "ids labels"),
    "cross_entropy(y,ignore_index=-100,label_smoothing=0.1)":
        (lambda y, a, i, l, t: cross_entropy(y, l, label_smoothing=0.1), "ids labels"),
    "cross_entropy(y,ignore_index=-100,weight=weight.npy)":
        (lambda y, a, i, l, t: cross_entropy(y, l, weight=WEIGHT), "ids labels"),
    'cross_entropy(y, ignore_index=-100, weight="weight.txt", label_smoothing=0.2)':
        (lambda y, a, i, l, t: cross_entropy(y, l, weight=WEIGHT, label_smoothing=0.2), "ids labels"),
    'cross_entropy(y,ignore_index=-100) + 0.3*mse("aux, 2")':
        (lambda y, a, i, l, t: cross_entropy(y, l) + 0.3 * F.mse_loss(a, t), "ids labels target"),
    'cross_entropy(y,ignore_index=-100)+0.4*cross_entropy("aux, 2",labels=words,ignore_index=0)+next_token(y,ids,ignore_index=3)':
        (lambda y, a, i, l, t: cross_entropy(y, l) + 0.4 * cross_entropy(a, l.clamp(min=0), ignore_index=0)
         + next_token(y, i, ignore_index=3), "ids labels words"),
    "next_token(y,ids,label_smoothing=0.1)": (lambda y, a, i, l, t: next_token(y, i, label_smoothing=0.1), "ids"),
    "next_token(y,ids,ignore_index=-100)": (lambda y, a, i, l, t: next_token(y, i), "padded"),
}


def train(objective, data):
    f, names = OBJECTIVES[objective]
    weights = [torch.tensor(x, requires_grad=True) for x in (EMBED, HEAD, AUX)]
    optimizer = torch.optim.SGD(weights, lr=0.5)
    tokens = torch.from_numpy(data[names.split()[0]])

    def loss_of(rows):
        ids = tokens[rows]
        e = weights[0][ids.clamp(min=0)]
        labels, target = (torch.from_numpy(data[n])[rows] for n in ("labels", "target"))
        return f(torch.tanh(e) @ weights[1], e @ weights[2], ids, labels, target)

    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(slice(step * BATCH, step * BATCH + BATCH))
        loss.backward()
        losses.append(loss.item())
        norms.append(sum(w.grad.double().square().sum() for w in weights if w.grad is not None).sqrt().item())
        optimizer.step()
    return {"inputs": names, "loss": losses, "grad_norm": norms, "eval_loss": loss_of(slice(EVAL_ROWS)).item(),
            "accuracy": accuracy(objective, weights, tokens[:EVAL_ROWS], torch.from_numpy(data["labels"][:EVAL_ROWS]))}


def accuracy(objective, weights, ids, labels):
    """Returns the accuracy of y for the labels of the first loss, without its ignored labels."""
    best = (torch.tanh(weights[0][ids.clamp(min=0)]) @ weights[1]).argmax(-1)
    if objective.startswith("next_token"):
        best, labels = best[:, :-1], ids[:, 1:]
    counts = labels != -100
    return ((best == labels) & counts).sum().item() / counts.sum().item()


if __name__ == "__main__":
    data = inputs()
    for name, value in data.items():
        np.save(HERE / f"{name}.npy", value)
        np.save(HERE / f"{name}.eval.npy", value[:EVAL_ROWS])
    np.save(HERE / "weight.npy", WEIGHT.numpy())
    (HERE / "weight.txt").write_text("\n".join(map(repr, WEIGHT.tolist())) + "\n")
    onnx.save(model(), HERE / "two_heads.onnx")
    (HERE / "expected.json").write_text(json.dumps({o: train(o, data) for o in OBJECTIVES}, indent=1) + "\n")
