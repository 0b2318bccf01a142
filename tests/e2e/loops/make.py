"""Makes the models and data of ../loops.py, and PyTorch's numbers for them.

    python3 tests/e2e/loops/make.py          needs torch, onnx and numpy

scan.onnx is a Scan over an LSTM cell of 40 steps, numbered.onnx the same as a Loop that takes its slices by the number of
the iteration, and long.onnx the Scan with 400 steps.  expected.json has the losses of 5 steps of sgd with momentum in f64,
and the norm of all weights afterwards.
"""

import json
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
BATCH, STEPS, WIDTH, HIDDEN, OUT = 8, 40, 6, 8, 3
node = helper.make_node


def value(name, shape=None, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def weights():
    r = np.random.default_rng(0)
    shapes = {"wx": (WIDTH, 4 * HIDDEN), "wh": (HIDDEN, 4 * HIDDEN), "b": (4 * HIDDEN,), "wi": (WIDTH, HIDDEN),
              "wo": (HIDDEN, OUT)}
    return {k: (r.standard_normal(s) * 0.4).astype(np.float32) for k, s in shapes.items()}


CELL = [node("MatMul", ["xt", "wx"], ["gx"]), node("MatMul", ["h", "wh"], ["gh"]), node("Add", ["gx", "gh"], ["g0"]),
        node("Add", ["g0", "b"], ["g"]), node("Split", ["g"], ["i", "f", "o", "n"], axis=1), node("Sigmoid", ["i"], ["si"]),
        node("Sigmoid", ["f"], ["sf"]), node("Sigmoid", ["o"], ["so"]), node("Tanh", ["n"], ["tn"]),
        node("Mul", ["sf", "c"], ["kept"]), node("Mul", ["si", "tn"], ["new"]), node("Add", ["kept", "new"], ["c1"]),
        node("Tanh", ["c1"], ["tc"]), node("Mul", ["so", "tc"], ["h1"]), node("Identity", ["h1"], ["y"])]


def scan():
    body = helper.make_graph(CELL, "cell", [value(n) for n in ("h", "c", "xt")], [value(n) for n in ("h1", "c1", "y")])
    return [node("Scan", ["h0", "c0", "x"], ["hn", "cn", "ys"], name="/scan", body=body, num_scan_inputs=1,
                 scan_input_axes=[1], scan_output_axes=[1])]


def numbered():
    first = [node("Gather", ["x", "number"], ["xt"], axis=1)]
    inputs = [value("number", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("h"), value("c")]
    outputs = [value("on", [], TensorProto.BOOL)] + [value(n) for n in ("h1", "c1", "y")]
    body = helper.make_graph(first + CELL + [node("Identity", ["go"], ["on"])], "cell", inputs, outputs)
    return [node("Loop", ["steps", "", "h0", "c0"], ["hn", "cn", "all"], name="/loop", body=body),
            node("Transpose", ["all"], ["ys"], perm=[1, 0, 2])]


def save(name, loop, steps):
    nodes = [node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0), node("MatMul", ["mean", "wi"], ["h0"]),
             node("Neg", ["h0"], ["c0"]), *loop, node("MatMul", ["ys", "wo"], ["out"])]
    tensors = [numpy_helper.from_array(v, k) for k, v in weights().items()] + [numpy_helper.from_array(np.int64(steps), "steps")]
    graph = helper.make_graph(nodes, name, [value("x", ["N", steps, WIDTH])], [value("out", ["N", steps, OUT])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), HERE / f"{name}.onnx")


def expected(x, target):
    w = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in weights().items()}
    optimizer = torch.optim.SGD(w.values(), lr=0.5, momentum=0.9)
    x, target = torch.tensor(x, dtype=torch.float64), torch.tensor(target, dtype=torch.float64)
    losses = []
    for step in range(5):
        rows = slice(step % 2 * BATCH, (step % 2 + 1) * BATCH)
        h = x[rows].mean(1) @ w["wi"]
        c, ys = -h, []
        for t in range(STEPS):
            i, f, o, n = (x[rows, t] @ w["wx"] + h @ w["wh"] + w["b"]).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * n.tanh()
            h = o.sigmoid() * c.tanh()
            ys.append(h)
        loss = ((torch.stack(ys, 1) @ w["wo"] - target[rows]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": losses, "norm": sum(float((v.detach() ** 2).sum()) for v in w.values()) ** 0.5}


def main():
    r = np.random.default_rng(1)
    x = r.standard_normal((2 * BATCH, STEPS, WIDTH)).astype(np.float32)
    target = r.standard_normal((2 * BATCH, STEPS, OUT)).astype(np.float32)
    np.save(HERE / "x.npy", x)
    np.save(HERE / "target.npy", target)
    save("scan", scan(), STEPS)
    save("numbered", numbered(), STEPS)
    save("long", scan(), 10 * STEPS)
    (HERE / "expected.json").write_text(json.dumps(expected(x, target), indent=1) + "\n")


if __name__ == "__main__":
    main()
