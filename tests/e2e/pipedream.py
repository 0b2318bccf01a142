"""Stages that update their weights after every micro-batch, compared with a reference in Python.

    pipedream.py            2 and 4 stages, and 2 of two ranks, each as threads and under mpirun

The reference has a list of versions for each stage.  With P stages, s of them from 0 and M micro-batches a step, and
all updates done before the next step begins:

    version k + 1 of stage s is its version k, updated by the gradient of micro-batch k
    micro-batch k reads version max(0, k - (P - 1 - s)) of stage s, forward and back

The loss is the mean over the M micro-batches, grad_norm is the root of the mean of their squared norms, and the
saved weights are those after the last update.  At most min(M, P - s) copies of weights exist at a time, and none on the
last stage, which reads the newest.  References with delays one version shorter or longer
must differ by far, or this test would be useless.

In cases marked with * a row of the first weight is frozen.

It is an MLP: float arithmetic in Python is double, so only rounding differs.
"""

import json
import math
import pathlib
import re
import struct
import sys

import plan_cases
from common import NNAOT, mpirun, run, scratch, worst_difference

MODEL, SIZES, BATCH, STEPS = plan_cases.HERE / "wide.onnx", [32, 64, 64, 32, 16], 16, 5
LIMIT, FAR = 1e-5, 100  # a wrong reference must differ by FAR times LIMIT
OPTIMIZERS = {
    "sgd": ("sgd:momentum=0.9,weight_decay=0.01", 0.05),
    "adamw": ("adamw:weight_decay=0.1,betas=0.9/0.95,eps=1e-5", 0.01),
}
FROZEN = 3  # the row of layer 0 in cases with frozen rows
# Plan, ranks, stages, micro-batches, optimizer, and whether a row is frozen.
CASES = [
    ("pp_pipedream=2", 2, 2, 4, "sgd"),
    ("pp_pipedream=2", 2, 2, 8, "adamw"),
    ("pp_pipedream=4", 4, 4, 8, "sgd"),
    ("pp_pipedream=4", 4, 4, 8, "adamw"),
    ("pp_pipedream=4", 4, 4, 2, "adamw"),  # fewer than stages: no update before all have begun
    ("pp_pipedream=2,dp=2", 4, 2, 4, "adamw"),
    ("pp_pipedream=2,tp=2", 4, 2, 4, "sgd"),
    ("pp_pipedream=2,zero1=2", 4, 2, 4, "adamw"),
    ("pp_pipedream=2,zero3=2", 4, 2, 4, "adamw"),
    ("pp_pipedream=2,recompute=1", 2, 2, 4, "sgd"),
    ("pp_pipedream=2", 2, 2, 4, "adamw", True),
]


# -- The reference -----------------------------------------------------------------------------------------------------

class Layer:
    """A linear layer with its optimizer's states: rows of the weight are outputs, the bias follows the weight."""

    def __init__(self, weight, bias, stage):
        self.stage, self.updates, self.frozen = stage, 0, ()
        self.shape = len(bias), len(weight) // len(bias)
        self.states = [[0.0] * (len(weight) + len(bias)) for _ in range(2)]
        self.versions = [weight + bias]

    def newest(self):
        return self.versions[-1]


def forward(w, shape, x):
    rows, columns = shape
    bias = rows * columns
    return [[w[bias + r] + sum(a * b for a, b in zip(w[r * columns:(r + 1) * columns], row)) for r in range(rows)]
            for row in x]


def backward(w, shape, x, dy):
    """Returns the gradients of the weight with the bias, and of x."""
    rows, columns = shape
    dw, dx = [0.0] * len(w), [[0.0] * columns for _ in x]
    for row, back, out in zip(x, dy, dx):
        for r, d in enumerate(back):
            dw[rows * columns + r] += d
            if d:
                for c in range(columns):
                    dw[r * columns + c] += d * row[c]
                    out[c] += d * w[r * columns + c]
    return dw, dx


def cross_entropy(logits, labels):
    """Returns the mean, and its gradient."""
    loss, back = 0.0, []
    for row, label in zip(logits, labels):
        top = max(row)
        powers = [math.exp(v - top) for v in row]
        loss += math.log(sum(powers)) + top - row[label]
        back.append([(p / sum(powers) - (i == label)) / len(logits) for i, p in enumerate(powers)])
    return loss / len(logits), back


def update(layer, g, optimizer, lr):
    """Updates the layer, except its frozen elements, like torch.optim."""
    w, (m, v), n = layer.newest()[:], layer.states, layer.updates + 1
    for i, d in enumerate(g):
        if i in layer.frozen:
            continue
        if optimizer == "sgd":
            d += 0.01 * w[i]
            m[i] = d if n == 1 else 0.9 * m[i] + d
            w[i] -= lr * m[i]
            continue
        m[i] = 0.9 * m[i] + 0.1 * d
        v[i] = 0.95 * v[i] + 0.05 * d * d
        w[i] -= lr * 0.1 * w[i]
        w[i] -= lr * (m[i] / (1 - 0.9**n)) / (math.sqrt(v[i] / (1 - 0.95**n)) + 1e-5)
    layer.updates = n
    layer.versions.append(w)


def one_micro_batch(layers, k, late, x, labels, optimizer, lr):
    """`late`: the number of updates by which the weights that each stage reads are older than the newest."""
    read = [layer.versions[max(0, k - late[layer.stage])] for layer in layers]
    inputs, masks = [x], []
    for layer, w in zip(layers[:-1], read):
        y = forward(w, layer.shape, inputs[-1])
        masks.append([[v > 0 for v in row] for row in y])
        inputs.append([[max(0.0, v) for v in row] for row in y])
    loss, back = cross_entropy(forward(read[-1], layers[-1].shape, inputs[-1]), labels)
    gradients = []
    for i in reversed(range(len(layers))):
        dw, back = backward(read[i], layers[i].shape, inputs[i], back)
        gradients.insert(0, dw)
        if i:
            back = [[d if on else 0.0 for d, on in zip(row, mask)] for row, mask in zip(back, masks[i - 1])]
    for layer, g in zip(layers, gradients):
        for i in layer.frozen:
            g[i] = 0.0
        update(layer, g, optimizer, lr)
    return loss, sum(d * d for g in gradients for d in g)


def reference(start, late, micro_batches, optimizer, lr, frozen):
    """Returns (loss, grad_norm) of every step, and the weights at the end."""
    x, labels = (plan_cases.rows("wide", name)[0] for name in ("x", "labels"))
    columns, n = len(x) // len(labels), len(labels)
    layers = [Layer(*layer) for layer in start]
    if frozen:
        layers[0].frozen = range(FROZEN * SIZES[0], (FROZEN + 1) * SIZES[0])
    lines, rows = [], BATCH // micro_batches
    for step in range(STEPS):
        found = []
        for k in range(micro_batches):
            at = [(step * BATCH + k * rows + i) % n for i in range(rows)]
            found.append(one_micro_batch(layers, k, late, [x[i * columns:(i + 1) * columns] for i in at],
                                         [labels[i] for i in at], optimizer, lr))
        lines.append((sum(loss for loss, _ in found) / micro_batches,
                      math.sqrt(sum(square for _, square in found) / micro_batches)))
        for layer in layers:
            layer.versions = [layer.newest()]
    return lines, [w for layer in layers for w in layer.newest()]


# -- nnaot's result ----------------------------------------------------------------------------------------------------

def read_layers(plan):
    """Returns the weights of the model and their stages, from the plan's program."""
    where = {name: (int(stage), int(offset)) for stage, name, offset in re.findall(
        r'@pp_pipedream(\d+) .* weight "(\S+)" train each_slice @ "[^"]*"\+(\d+)', plan.split("graph @eval")[0])}
    data, layers = MODEL.read_bytes(), []
    for i, (columns, rows) in enumerate(zip(SIZES, SIZES[1:])):
        stage, offset = where[f"{2 * i}.weight"]
        weight = struct.unpack_from(f"<{rows * columns}f", data, offset)
        bias = struct.unpack_from(f"<{rows}f", data, where[f"{2 * i}.bias"][1])
        layers.append((list(weight), list(bias), stage))
    return layers


def copies(plan):
    """Returns the number of copies of a weight in each stage, as (stage, copies)."""
    return {(int(stage), int(slots or 1))
            for stage, slots in re.findall(r"= stash %.* @pp_pipedream(\d+) .* at \d+ (?:slots=(\d+):)?", plan)}


def read_saved(path):
    data = path.read_bytes()
    head = 8 + struct.unpack_from("<Q", data)[0]
    tensors = json.loads(data[8:head])
    values = []
    for layer in sorted({int(name.split(".")[0]) for name in tensors if name[0].isdigit()}):
        for what in ("weight", "bias"):
            begin, end = tensors[f"{layer}.{what}"]["data_offsets"]
            values += struct.unpack_from(f"<{(end - begin) // 4}f", data, head + begin)
    return values


def trained(exe, folder, launcher):
    log, saved = folder / "log.jsonl", folder / "saved.safetensors"
    log.unlink(missing_ok=True)
    run(*launcher, exe, *plan_cases.data_flags("wide", folder), "--steps", STEPS, "--log", log, "--save", saved)
    return [(line["loss"], line["grad_norm"]) for line in map(json.loads, log.read_text().splitlines())], read_saved(saved)


def apart(got, want):
    """Returns the largest relative difference of losses and norms, and the largest difference of weights."""
    lines = [worst_difference([line[i] for line in got[0]], [line[i] for line in want[0]]) for i in range(2)]
    return max(lines), max(abs(a - b) for a, b in zip(got[1], want[1], strict=True))


def one_case(folder, plan, ranks, stages, micro_batches, name, frozen=False):
    optimizer, lr = OPTIMIZERS[name]
    exe, program = folder / "exe", folder / "program.nn"
    flags = [MODEL, "-g", ranks, "--batch", BATCH, "--micro-batches", micro_batches, "--plan", plan, "--loss",
             "cross_entropy(logits)", "--optimizer", optimizer, "--lr", lr]
    flags += ["--freeze", f"0.weight[{FROZEN}]"] if frozen else []
    said = run(NNAOT, *flags, "-o", exe)
    run(NNAOT, *flags, "--emit", "nn", "-o", program)
    start, kept = read_layers(program.read_text()), copies(program.read_text())
    ok = f"up to {stages - 1} update" in said and {layer[2] for layer in start} == set(range(stages))
    # Backward reads the weights of all layers except the first, so a stage with only that layer has no copies.
    first = int(stages == len(start))
    ok = ok and kept == {(s, min(micro_batches, stages - s)) for s in range(first, stages - 1)}
    delays = [stages - 1 - s for s in range(stages)]
    want = reference(start, delays, micro_batches, name, lr, frozen)
    wrong = [reference(start, [max(0, d - 1) for d in delays], micro_batches, name, lr, frozen)]
    if micro_batches > stages:  # otherwise the last micro-batch begins before any update
        wrong.append(reference(start, [d + 1 for d in delays], micro_batches, name, lr, frozen))
    threads, processes = trained(exe, folder, []), trained(exe, folder, mpirun(ranks))
    lines, weights = apart(threads, want)
    far = min(apart(threads, other)[0] for other in wrong)
    ok = ok and lines < LIMIT and weights < LIMIT and far > FAR * LIMIT and threads == processes
    print(f"{plan:28}{micro_batches:4} {name + '*' * frozen:7}{lines:10.1e}{weights:10.1e}{far:10.1e}{'' if ok else '  FAILED'}",
          flush=True)
    return ok


def main():
    print(f"{'plan':28}{'M':>4} {'':7}{'lines':>10}{'weights':>10}{'others':>10}")
    with scratch() as folder:
        return not all([one_case(pathlib.Path(folder), *case) for case in CASES])


if __name__ == "__main__":
    sys.exit(main())
