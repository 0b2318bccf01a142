"""Makes the models and data of ../loops.py, and PyTorch's numbers for them.

    python3 tests/e2e/loops/make.py          needs torch, onnx and numpy

scan.onnx is a Scan over an LSTM cell of 40 steps, numbered.onnx the same as a Loop that takes its slices by the number of
the iteration, and long.onnx the Scan with 400 steps.  branch.onnx has an If: the sum of the batch selects the layer.
until.onnx has a Loop that ends when the mean square of the batch exceeds 4, after at most 10 iterations.  expected.json has
for scan, branch and until the losses of 5 steps of sgd with momentum in f64, and the norm of all weights afterwards.
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


def branch():
    then = helper.make_graph([node("MatMul", ["x", "wi"], ["a"]), node("Tanh", ["a"], ["r"])], "then", [], [value("r")])
    low = [node("MatMul", ["x", "wo"], ["e"]), node("MatMul", ["e", "back"], ["f"]), node("Sigmoid", ["f"], ["s"])]
    other = helper.make_graph(low, "else", [], [value("s")])
    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["positive"]),
             node("If", ["positive"], ["h"], name="/if", then_branch=then, else_branch=other),
             node("MatMul", ["h", "last"], ["out"])]
    tensors = [numpy_helper.from_array(v, k) for k, v in branch_weights().items()]
    tensors.append(numpy_helper.from_array(np.zeros((), np.float32), "zero"))
    graph = helper.make_graph(nodes, "branch", [value("x", ["N", WIDTH])], [value("out", ["N", OUT])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), HERE / "branch.onnx")


def until():
    nodes = [node("MatMul", ["h", "w"], ["a"]), node("Add", ["a", "h"], ["h1"]), node("Mul", ["h1", "h1"], ["square"]),
             node("ReduceMean", ["square"], ["mean"], keepdims=0), node("Less", ["mean", "four"], ["on"])]
    inputs = [value("number", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("h")]
    body = helper.make_graph(nodes, "until", inputs, [value("on", [], TensorProto.BOOL), value("h1")])
    nodes = [node("Loop", ["ten", "", "x"], ["h"], name="/until", body=body), node("MatMul", ["h", "last"], ["out"])]
    tensors = [numpy_helper.from_array(v, k) for k, v in until_weights().items()]
    tensors.append(numpy_helper.from_array(np.int64(10), "ten"))
    graph = helper.make_graph(nodes, "until", [value("x", ["N", WIDTH])], [value("out", ["N", OUT])], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), HERE / "until.onnx")


def until_weights():
    r = np.random.default_rng(3)
    shapes = {"w": (WIDTH, WIDTH), "last": (WIDTH, OUT)}
    return {"four": np.array(4, np.float32), **{k: (r.standard_normal(s) * 0.2).astype(np.float32) for k, s in shapes.items()}}


def branch_weights():
    r = np.random.default_rng(2)
    shapes = {"wi": (WIDTH, HIDDEN), "wo": (WIDTH, 2), "back": (2, HIDDEN), "last": (HIDDEN, OUT)}
    return {k: (r.standard_normal(s) * 0.4).astype(np.float32) for k, s in shapes.items()}


def train(w, x, target, forward, rate=0.5):
    w = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in w.items()}
    optimizer = torch.optim.SGD(w.values(), lr=rate, momentum=0.9)
    x, target = torch.tensor(x, dtype=torch.float64), torch.tensor(target, dtype=torch.float64)
    losses = []
    for step in range(5):
        rows = slice(step % 2 * BATCH, (step % 2 + 1) * BATCH)
        # A branch that does not run has a gradient of zero, and its momentum goes on.
        optimizer.zero_grad(set_to_none=False)
        for v in w.values():
            v.grad = torch.zeros_like(v)
        loss = ((forward(w, x[rows]) - target[rows]) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": losses, "norm": sum(float((v.detach() ** 2).sum()) for v in w.values()) ** 0.5}


def cells(w, x):
    h = x.mean(1) @ w["wi"]
    c, ys = -h, []
    for t in range(STEPS):
        i, f, o, n = (x[:, t] @ w["wx"] + h @ w["wh"] + w["b"]).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * n.tanh()
        h = o.sigmoid() * c.tanh()
        ys.append(h)
    return torch.stack(ys, 1) @ w["wo"]


def either(w, x):
    h = (x @ w["wi"]).tanh() if x.sum() > 0 else (x @ w["wo"] @ w["back"]).sigmoid()
    return h @ w["last"]


def doubled(w, x):
    for _ in range(10):
        x = x @ w["w"] + x
        if (x ** 2).mean() >= w["four"]:
            break
    return x @ w["last"]


def main():
    r = np.random.default_rng(1)
    x = r.standard_normal((2 * BATCH, STEPS, WIDTH)).astype(np.float32)
    target = r.standard_normal((2 * BATCH, STEPS, OUT)).astype(np.float32)
    np.save(HERE / "x.npy", x)
    np.save(HERE / "target.npy", target)
    save("scan", scan(), STEPS)
    save("numbered", numbered(), STEPS)
    save("long", scan(), 10 * STEPS)
    branch()
    until()
    rows = r.standard_normal((2 * BATCH, WIDTH)).astype(np.float32)
    rows[:BATCH] += 1
    rows[BATCH:] -= 1
    np.save(HERE / "rows.npy", rows)
    np.save(HERE / "goals.npy", target[:, 0])
    expected = {"scan": train(weights(), x, target, cells), "branch": train(branch_weights(), rows, target[:, 0], either),
                "until": train(until_weights(), rows, target[:, 0], doubled, 0.05)}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
