"""Lengths that depend on data, and random operators after them, compared with ONNX's reference evaluator.

    BUILD=build python tests/eval/lengths.py [--count N] [--seed S] [OPTIONS OF nnaot-eval ...]

Rows of a tensor are selected by a random mask: none, some or all of them.  Random operators follow, along the selected rows
and across them, so that padding in place of a row shows in the result.  nnaot-eval runs each model as a case of the backend
suite.  Gradients are compared with central differences in f64.  Exit status 1 if a case is not passed; 77, which ctest takes
as skipped, without the onnx package.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

from random_cases import PROGRAM, arguments, run


class Model:
    """Nodes in order.  `at`: the value that the next operator reads; `dims`: its dimensions, None for the selected rows."""

    def __init__(self, r):
        self.r, self.nodes, self.inputs, self.constants = r, [], {}, []
        self.at, self.dims, self.outputs = "", [], []
        self.expected = None

    def input(self, name, array):
        self.inputs[name] = array
        return name

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(numpy.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op, *operands, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, operands, names, name=f"/{len(self.nodes)}/{op}", **attributes))
        return names[0] if outputs == 1 else names

    def step(self, op, *operands, dims=None, **attributes):
        self.at = self.node(op, self.at, *operands, **attributes)
        self.dims = self.dims if dims is None else dims

    def proto(self):
        inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                  for k, v in self.inputs.items()]
        outputs = [onnx.ValueInfoProto(name=o) for o in self.outputs]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def numbers(r, *shape):
    return numpy.array([r.uniform(-1, 1) for _ in range(int(numpy.prod(shape)))], numpy.float32).reshape(shape)


def int64(*items):
    return numpy.array(items, numpy.int64)


def mask(r, *shape, least=0):
    """Of a random density; at least one element is selected if `least` is 1."""
    density = r.choice([0, 0.2, 0.5, 1]) if least == 0 else r.choice([0.3, 0.6, 1])
    m = numpy.array([r.random() < density for _ in range(int(numpy.prod(shape)))]).reshape(shape)
    if least and not m.any():
        m.flat[r.randrange(m.size)] = True
    return m


def selected(r, least=0):
    """m.at is [rows, 6], of x [4, 5, 6] by a mask [4, 5]; as one of the exporters writes it."""
    m = Model(r)
    m.input("x", numbers(r, 4, 5, 6))
    m.input("mask", mask(r, 4, 5, least=least))
    how = r.randrange(3)
    m.select = lambda: m.node("Transpose", m.node("NonZero", "mask"), perm=[1, 0])
    if how == 0:
        m.at = m.node("GatherND", "x", m.select())
    elif how == 1:  # rows and columns apart, as of nonzero(as_tuple=True)
        parts = m.node("Split", m.node("NonZero", "mask"), axis=0, num_outputs=2, outputs=2)
        index = m.node("Add", m.node("Mul", m.node("Squeeze", parts[0], m.constant(int64(0))), m.constant(int64(5))),
                       m.node("Squeeze", parts[1], m.constant(int64(0))))
        m.at = m.node("Gather", m.node("Reshape", "x", m.constant(int64(20, 6))), index, axis=0)
    else:
        flags = m.node("Reshape", "mask", m.constant(int64(20)))
        m.at = m.node("Compress", m.node("Reshape", "x", m.constant(int64(20, 6))), flags, axis=0)
        m.select = None
    m.dims = [None, 6]
    return m


def rows_axis(m):
    return m.dims.index(None)


def elementwise(m):
    op = m.r.choice(["Tanh", "Abs", "Neg", "Sigmoid", "Relu", "add", "mul", "where", "clip"])
    width = m.dims[-1]
    if op == "add":
        m.step("Add", m.constant(numbers(m.r, *([width] if width else [1]))))
    elif op == "mul":
        m.step("Mul", m.at)
    elif op == "where":
        m.at = m.node("Where", m.node("Greater", m.at, m.constant(numpy.float32(0.1))), m.at, m.constant(numpy.float32(0.5)))
    elif op == "clip":
        m.step("Clip", m.constant(numpy.float32(-0.5)), m.constant(numpy.float32(0.6)))
    else:
        m.step(op)


def reshaping(m):
    ndim, axis = len(m.dims), rows_axis(m)
    op = m.r.choice(["Transpose", "Unsqueeze", "Slice", "Concat", "Softmax", "MatMul", "CumSum", "Reshape", "Split", "Gather"])
    other = m.r.choice([i for i in range(ndim) if i != axis] or [None])
    if op == "Transpose":
        perm = m.r.sample(range(ndim), ndim)
        m.step(op, perm=perm, dims=[m.dims[i] for i in perm])
    elif op == "Unsqueeze" and ndim < 5:
        at = m.r.randint(0, ndim)
        m.step(op, m.constant(int64(at)), dims=m.dims[:at] + [1] + m.dims[at:])
    elif op == "Reshape" and axis == 0:
        width = int(numpy.prod(m.dims[1:]))
        if m.r.random() < 0.5:
            m.step(op, m.constant(int64(-1, width)), dims=[None, width])
        else:
            m.step(op, m.constant(int64(-1)), dims=[None])
    elif op == "CumSum":
        m.step(op, m.constant(numpy.int64(axis)), exclusive=m.r.randrange(2))
    elif other is None:
        return
    elif op == "Slice" and m.dims[other] > 1:
        m.step(op, m.constant(int64(1)), m.constant(int64(99)), m.constant(int64(other)),
               dims=[d - 1 if i == other else d for i, d in enumerate(m.dims)])
    elif op == "Concat":
        m.step(op, m.at, axis=other, dims=[2 * d if i == other else d for i, d in enumerate(m.dims)])
    elif op == "Softmax":
        m.step(op, axis=other)
    elif op == "Split" and m.dims[other] > 1:
        m.at = m.node(op, m.at, m.constant(int64(1, m.dims[other] - 1)), axis=other, outputs=2)[1]
        m.dims = [d - 1 if i == other else d for i, d in enumerate(m.dims)]
    elif op == "Gather":
        m.step(op, m.constant(int64(0, 0, -1)), axis=other, dims=[3 if i == other else d for i, d in enumerate(m.dims)])
    elif op == "MatMul" and axis != ndim - 1:
        m.step(op, m.constant(numbers(m.r, m.dims[-1], 3)), dims=m.dims[:-1] + [3])


def chain(r):
    """Operators that keep the selected rows, and at the end all of them."""
    m = selected(r)
    for _ in range(r.randint(1, 5)):
        r.choice([elementwise, reshaping])(m)
    m.outputs = [m.at]
    return m


def reduced(r):
    """Reductions over the selected rows, and over other dimensions."""
    m = selected(r, least=1)
    for _ in range(r.randint(0, 3)):
        r.choice([elementwise, reshaping])(m)
    op = r.choice(["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare"])
    axes = r.sample(range(len(m.dims)), r.randint(1, len(m.dims)))
    m.outputs = [m.node("Reduce" + op, m.at, m.constant(int64(*axes)), keepdims=r.randrange(2))]
    return m


def empty(r):
    """Sums and means of few rows, often of none."""
    m = selected(r)
    m.inputs["mask"] &= numpy.array([r.random() < 0.1 for _ in range(20)]).reshape(4, 5)
    m.outputs = [m.node("ReduceSum", m.at), m.node("ReduceMean", m.at), m.node("Size", m.at)]
    return m


def loss(r):
    """The cross entropy of selected logits; of the mask written twice."""
    m = selected(r, least=1)
    while m.select is None:
        m = selected(r, least=1)
    labels = numpy.array([r.randrange(6) for _ in range(20)], numpy.int64).reshape(4, 5)
    m.input("labels", labels)
    m.at = m.node("GatherND", "x", m.select())
    wanted = m.node("GatherND", "labels", m.select())
    attributes = dict(reduction=r.choice(["mean", "sum", "none"]))
    if r.random() < 0.5:
        attributes["ignore_index"] = 2
    m.outputs = [m.node("SoftmaxCrossEntropyLoss", m.at, wanted, **attributes)]
    return m


def shapes(r):
    m = selected(r)
    positive = m.node("Greater", m.at, m.constant(numpy.float32(0)))
    m.outputs = [m.node("Shape", m.at), m.node("Size", m.at), m.node("NonZero", positive)]
    return m


def sized(r):
    """Shapes computed from the number of selected rows."""
    m = selected(r)
    zero, one = m.constant(int64(0)), m.constant(int64(1))
    shape = m.node("Shape", m.at)
    rows = m.node("Gather", shape, zero, axis=0)  # [1]
    number = m.node("Squeeze", rows, zero)
    width = m.node("Slice", shape, one, m.constant(int64(2)))
    places = m.node("Range", m.constant(numpy.int64(0)), number, m.constant(numpy.int64(1)))
    column = m.node("Unsqueeze", m.node("Cast", places, to=onnx.TensorProto.FLOAT), one)
    halves = m.node("Reshape", m.at, m.node("Concat", rows, m.constant(int64(2, 3)), axis=0))
    flat = m.node("Reshape", halves, m.node("Concat", rows, width, axis=0))
    zeros = m.node("ConstantOfShape", shape, value=numpy_helper.from_array(numpy.zeros(1, numpy.float32)))
    ones = m.node("Expand", m.constant(numpy.float32(1)), shape)
    part = m.node("Slice", m.node("Reshape", "x", m.constant(int64(20, 6))), zero, rows, zero)
    again = m.node("Slice", flat, zero, rows, zero)
    m.at = m.node("Sum", column, flat, zeros, ones, part, again)
    m.outputs = [m.at, m.node("ReduceSum", m.node("Mul", m.at, m.at), zero), halves]
    return m


def scattered(r):
    """Rows written where the mask is true, as x[mask] = f(x[mask])."""
    m = selected(r)
    while m.select is None:
        m = selected(r)
    m.at = m.node("GatherND", "x", m.select())
    elementwise(m)
    if r.random() < 0.3:  # as PyTorch writes x[mask] = y: element by element
        whole = m.node("Expand", m.node("Unsqueeze", "mask", m.constant(int64(-1))), m.node("Shape", "x"))
        at = m.node("Transpose", m.node("NonZero", whole), perm=[1, 0])
        number = m.node("Slice", m.node("Shape", at), m.constant(int64(0)), m.constant(int64(1)))
        flat = m.node("Reshape", m.at, m.constant(int64(-1)))
        some = m.node("Slice", flat, m.constant(int64(0)), number, m.constant(int64(0)))
        m.outputs = [m.node("ScatterND", "x", at, some)]
        return m
    if r.random() < 0.5:  # a sum of rows differs in every row, the padding too
        m.step("CumSum", m.constant(numpy.int64(0)))
    m.outputs = [m.node("ScatterND", "x", m.select(), m.at, reduction=r.choice(["none", "add", "max", "min"]))]
    return m


def compress(r):
    m = Model(r)
    shape = [r.randint(1, 5) for _ in range(r.randint(1, 3))]
    m.input("x", numbers(r, *shape))
    if r.random() < 0.3:
        m.outputs = [m.node("Compress", "x", m.input("c", mask(r, r.randint(1, int(numpy.prod(shape))))))]
    else:
        axis = r.randrange(len(shape))
        condition = m.input("c", mask(r, r.randint(1, shape[axis])))
        m.outputs = [m.node("Compress", "x", condition, axis=axis - r.choice([0, len(shape)]))]
    return m


def unique(r):
    """Numbers from few, so that many are equal; compared with the first occurrence of each in Python."""
    m = Model(r)
    shape = [r.randint(1, 5) for _ in range(r.randint(1, 3))]
    kind = r.choice([numpy.float32, numpy.int64, numpy.int32])
    x = numpy.array([r.randrange(-2, 3) for _ in range(int(numpy.prod(shape)))], kind).reshape(shape)
    attributes = dict(sorted=r.randrange(2))
    if r.random() < 0.6:
        attributes["axis"] = r.randrange(len(shape))
    slices = [s.ravel().tolist() for s in (numpy.moveaxis(x, attributes["axis"], 0) if "axis" in attributes else x.ravel())]
    distinct = []
    for s in slices:
        if s not in distinct:
            distinct.append(s)
    if attributes["sorted"]:
        distinct.sort()
    first = [slices.index(s) for s in distinct]
    y = numpy.take(x, first, axis=attributes["axis"]) if "axis" in attributes else x.ravel()[first]
    m.input("x", x)
    m.outputs = list(m.node("Unique", "x", outputs=4, **attributes))
    m.expected = [y, int64(*first), int64(*[distinct.index(s) for s in slices]), int64(*[slices.count(s) for s in distinct])]
    return m


def nms(r):
    m = Model(r)
    batch, classes, boxes = r.randint(1, 2), r.randint(1, 3), r.randint(1, 12)
    corners = numbers(r, batch, boxes, 4)
    scores = numpy.round(numbers(r, batch, classes, boxes), 1)  # some are equal
    settings = [m.constant(int64(r.choice([0, 1, 3, 20]))), m.constant(numpy.array([r.choice([0, 0.1, 0.5])], numpy.float32))]
    threshold = r.choice([None, -0.3, 0.2])
    if threshold is not None:
        settings.append(m.constant(numpy.array([threshold], numpy.float32)))
    most = int(numpy_helper.to_array(m.constants[0])[0])
    iou = float(numpy_helper.to_array(m.constants[1])[0])
    center = r.randrange(2)
    m.input("boxes", corners)
    m.input("scores", scores)
    m.outputs = [m.node("NonMaxSuppression", "boxes", "scores", *settings, center_point_box=center)]
    chosen = []
    for b in range(batch):
        sides = corners[b].astype(numpy.float64)
        low, high = numpy.minimum(sides[:, :2], sides[:, 2:]), numpy.maximum(sides[:, :2], sides[:, 2:])
        if center:
            low, high = sides[:, :2] - sides[:, 2:] / 2, sides[:, :2] + sides[:, 2:] / 2
        area = numpy.where((high > low).all(1), (high - low).prod(1), 0)
        for c in range(classes):
            kept = []
            for i in sorted(range(boxes), key=lambda i: (-scores[b, c, i], i)):
                if len(kept) == most or (threshold is not None and scores[b, c, i] <= numpy.float32(threshold)):
                    break
                for j in kept:
                    both = numpy.clip(numpy.minimum(high[i], high[j]) - numpy.maximum(low[i], low[j]), 0, None).prod()
                    if area[i] > 0 and area[j] > 0 and both > iou * (area[i] + area[j] - both):
                        break
                else:
                    kept.append(i)
            chosen += [[b, c, i] for i in kept]
    m.expected = [numpy.array(chosen, numpy.int64).reshape(-1, 3)]
    return m


def differentiated(r):
    """A number of the results of one of the others."""
    m = r.choice([chain, reduced, loss, sized, scattered, compress])(r)
    m.outputs = [m.node("ReduceSum", m.node("Sin", m.outputs[0]), keepdims=0)]
    return m


def in_f64(m):
    """Makes numbers of the model doubles, and x a weight."""
    wide = [numpy_helper.to_array(c) for c in m.constants]
    m.constants = [numpy_helper.from_array(c.astype(numpy.float64) if c.dtype == numpy.float32 else c, f"c{i}")
                   for i, c in enumerate(wide)]
    for attribute in [a for n in m.nodes for a in n.attribute]:
        if attribute.name == "to" and attribute.i == onnx.TensorProto.FLOAT:
            attribute.i = onnx.TensorProto.DOUBLE
        if attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(numpy.float64)))
    return m.inputs.pop("x").astype(numpy.float64)


def check_gradient(program, m, folder):
    """Compares the derivative along a random direction with central differences.  Returns an error, or None."""
    x, label = in_f64(m), m.outputs[0]
    given = []
    for name, value in m.inputs.items():
        numpy.save(folder / f"{name}.npy", value)
        given += ["--input", f"{name}={folder / name}.npy"]

    def run(at, result, *more):
        m.constants.append(numpy_helper.from_array(at, "x"))
        (folder / "model.onnx").write_bytes(m.proto().SerializeToString())
        m.constants.pop()
        done = subprocess.run([program, folder / "model.onnx", "--keep-types", *given, *more,
                               "--output", f"{result}={folder}/y.npy"], capture_output=True, text=True,
                              env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))
        return (numpy.load(folder / "y.npy"), "") if done.returncode == 0 else (None, done.stderr)

    direction, h = numbers(m.r, *x.shape).astype(numpy.float64), 1e-6
    up, error_up = run(x + h * direction, label)
    down, error_down = run(x - h * direction, label)
    slope, error = run(x, "grad:x", f"--passes=loss(spec={label}),autodiff")
    if error or error_up or error_down:
        return error or error_up or error_down
    is_, want = float((slope * direction).sum()), float(up - down) / (2 * h)
    return None if abs(is_ - want) <= 1e-6 * max(1, abs(want)) else f"the derivative is {is_}, and by differences {want}"


KINDS = [chain, reduced, empty, loss, shapes, sized, scattered, compress, unique, nms]


def write(m, folder):
    model = m.proto()
    expected = m.expected or ReferenceEvaluator(model).run(None, m.inputs)
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for i, (name, value) in enumerate(m.inputs.items()):
        (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString())
    for i, value in enumerate(expected):
        (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(numpy.asarray(value), f"y{i}").SerializeToString())


def main():
    a, options = arguments(__doc__)
    failed = run(KINDS, write, a, options)
    with tempfile.TemporaryDirectory() as temporary:
        gradients = range(a.seed, a.seed + a.count) if a.only in "gradient" and not options else []
        errors = [check_gradient(PROGRAM, differentiated(random.Random(i)), pathlib.Path(temporary)) for i in gradients]
        for i, error in zip(gradients, errors):
            if error:
                print(f"gradient {i}: {error}")
        if errors:
            print(f"gradient: {len(errors)} cases, {'failed' if any(errors) else 'passed'}")
        failed |= any(errors)
    return failed


if __name__ == "__main__":
    sys.exit(main())
