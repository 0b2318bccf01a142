"""Random numbers of models: their statistics, and that a node, a seed or a step has numbers of its own.

    BUILD=build python tests/eval/random_numbers.py

Exit status 77, which ctest takes as skipped, without numpy and onnx.

N numbers have a mean within 5 standard errors of the right one in all but one of a million runs, and the numbers are
always the same; so are the bounds for variances, correlations and frequencies.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import TensorProto, helper
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("BUILD", ROOT / "build")) / "bin" / "nnaot-eval"
ROWS, COLUMNS = 400, 250
N = ROWS * COLUMNS
SCORES = [0.0, 1.0, -1.0, 0.5]
failures = 0


def check(what, ok, *shown):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {what}", *shown)


def near(what, got, want, error):
    check(what, abs(got - want) < 5 * error, got, want, error)


def model():
    node, value = helper.make_node, helper.make_tensor_value_info
    shape = [ROWS, COLUMNS]
    nodes = [node("RandomNormal", [], ["normal"], shape=shape, mean=2.0, scale=3.0),
             node("RandomNormal", [], ["again"], shape=shape, mean=2.0, scale=3.0),
             node("RandomNormal", [], ["seeded"], shape=shape, mean=2.0, scale=3.0, seed=1.0),
             node("RandomNormalLike", ["p"], ["like"]), node("RandomUniform", [], ["uniform"], shape=shape, low=-1.0, high=4.0),
             node("RandomUniformLike", ["p"], ["uniform_like"]), node("Bernoulli", ["p"], ["coins"]),
             node("Multinomial", ["scores"], ["classes"], sample_size=COLUMNS, dtype=TensorProto.INT64)]
    names = ["normal", "again", "seeded", "like", "uniform", "uniform_like", "coins", "classes"]
    inputs = [value("p", TensorProto.FLOAT, shape), value("scores", TensorProto.FLOAT, [ROWS, len(SCORES)])]
    outputs = [value(n, TensorProto.INT64 if n == "classes" else TensorProto.FLOAT, shape) for n in names]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return names, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=8)


def draw(folder, names, *options):
    command = [PROGRAM, folder / "m.onnx", "--input", f"p={folder}/p.npy", "--input", f"scores={folder}/scores.npy", *options]
    for name in names:
        command += ["--output", f"{name}={folder}/{name}.npy"]
    subprocess.run(command, check=True)
    return {name: numpy.load(folder / f"{name}.npy").astype(numpy.float64).flatten() for name in names}


def uncorrelated(what, x, y):
    near(f"{what}: correlation", numpy.corrcoef(x, y)[0, 1], 0, N ** -0.5)


def moments(what, x, mean, variance, fourth):
    """`fourth`: the fourth central moment over the square of the variance."""
    near(f"{what}: mean", x.mean(), mean, (variance / N) ** 0.5)
    near(f"{what}: variance", x.var(), variance, variance * ((fourth - 1) / N) ** 0.5)
    uncorrelated(f"{what}, neighbours", x, numpy.roll(x, 1))
    uncorrelated(f"{what}, rows", x, numpy.roll(x, COLUMNS))


def check_numbers(got, p):
    moments("normal", got["normal"], 2, 9, 3)
    moments("like", got["like"], 0, 1, 3)
    moments("uniform", got["uniform"], 1.5, 25 / 12, 1.8)
    moments("uniform_like", got["uniform_like"], 0.5, 1 / 12, 1.8)
    check("uniform: range", got["uniform"].min() >= -1 and got["uniform"].max() < 4)
    beyond = numpy.mean(abs(got["like"]) > 2)
    near("normal: beyond 2 deviations", beyond, 0.0455003, (0.0455 / N) ** 0.5)
    for name in ("again", "seeded"):
        uncorrelated(name, got["normal"], got[name])
    check("coins: 0 or 1", set(got["coins"]) == {0.0, 1.0})
    near("coins", numpy.mean(got["coins"] - p), 0, (numpy.mean(p * (1 - p)) / N) ** 0.5)
    check("coins with probability 0 and 1", not got["coins"][p == 0].any() and got["coins"][p == 1].all())
    shares = numpy.exp(SCORES) / numpy.exp(SCORES).sum()
    for c, share in enumerate(shares):
        near(f"class {c}", numpy.mean(got["classes"] == c), share, (share * (1 - share) / N) ** 0.5)


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        names, made = model()
        (folder / "m.onnx").write_bytes(made.SerializeToString())
        p = numpy.linspace(-0.1, 1.1, N).clip(0, 1).astype(numpy.float32)
        numpy.save(folder / "p.npy", p.reshape(ROWS, COLUMNS))
        numpy.save(folder / "scores.npy", numpy.tile(numpy.array(SCORES, numpy.float32), (ROWS, 1)))
        first = draw(folder, names)
        check_numbers(first, p.astype(numpy.float64))
        for name, value in (("step", 1), ("seed", 7)):
            numpy.save(folder / "other.npy", numpy.array(value, numpy.int64))
            other = draw(folder, names, "--input", f"{name}={folder}/other.npy")
            uncorrelated(f"another {name}", first["normal"], other["normal"])
        again = draw(folder, names)
        check("the same again", all(numpy.array_equal(first[n], again[n]) for n in names))
    print(f"{failures} failures")
    return failures > 0


sys.exit(main())
