"""The ONNX backend test suite through nnaot-eval: no case may be wrong.

    BUILD=build python tests/eval/onnx_suite.py [OPTIONS OF nnaot-eval ...]
    BUILD=build python tests/eval/onnx_suite.py --write        writes onnx_counts.txt

Writes the cases of the onnx package (its node tests are made by code, the others are files), runs
all of them in one process, and shows the table. Exit status 1 if a case is wrong, if fewer cases of an operator pass
than onnx_counts.txt has for this version of the package, or if nnaot-eval ends without a count; 77, which ctest takes
as skipped, without the package.

The stored outputs of cases in INEXACT have rounding errors beyond the tolerance. They count as not supported, and must pass
with the outputs of the definition in double.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

COUNTS = pathlib.Path(__file__).with_name("onnx_counts.txt")
FILES = ["simple", "pytorch-operator", "pytorch-converted"]  # folders of the package


def inverse_dft(x):
    """By definition, along axis 1 of (b, n, m, 2)."""
    n = x.shape[1]
    turn = numpy.outer(numpy.arange(n), numpy.arange(n)) % n
    factors = numpy.exp(2j * numpy.pi * turn / n) / n
    y = numpy.einsum("bjmc,jk->bkmc", x.astype(numpy.float64), factors)
    y = y[..., 0] + 1j * y[..., 1]
    return numpy.stack((y.real, y.imag), -1)


# Case: the function of its first input that it expects. ONNX stores numpy's transform of complex64, which has 1.9e-7 for zeros;
# the tolerance is 1e-7.
INEXACT = {"test_dft_inverse": inverse_dft, "test_dft_inverse_opset19": inverse_dft}


def error_of_stored(case):
    """The largest error of the stored output beyond the relative tolerance."""
    (inputs, (stored,)), = case.data_sets
    return float(max((abs(stored - INEXACT[case.name](inputs[0])) - 1e-3 * abs(stored)).flat))


def as_message(value, info):
    """Returns the TensorProto, SequenceProto or OptionalProto of an input or output."""
    if not isinstance(value, (numpy.ndarray, numpy.generic, list, type(None))):
        return value
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(numpy.asarray(value), info.name)


def write_case(case, folder):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{i}"
        data.mkdir()
        graph = case.model.graph
        for kind, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
            for k, (value, info) in enumerate(zip(values, infos)):
                (data / f"{kind}_{k}.pb").write_bytes(as_message(value, info).SerializeToString())


def write_node_cases(folder, inexact):
    """Writes those in INEXACT to their own folder. Returns messages, and faults."""
    messages, faults = [], []
    for case in collect_testcases(None):
        try:
            if case.name not in INEXACT:
                write_case(case, folder / case.name)
                continue
            error = error_of_stored(case)
            (inputs, (stored,)), = case.data_sets
            case.data_sets[0] = inputs, [INEXACT[case.name](inputs[0]).astype(stored.dtype)]
            write_case(case, inexact / case.name)
            messages.append(f"{case.name}: not supported: its stored output is wrong by {error:.1e}")
            if not error > 1e-7:
                faults.append(f"{case.name}: its stored output is exact enough, and INEXACT has it")
        except (TypeError, ValueError, AttributeError) as e:
            messages.append(f"{case.name}: {e}")
    return messages, faults


def counts(lines):
    """{operator: (passed, unsupported)} of the lines of the table."""
    found = {}
    for line in lines:
        row = re.fullmatch(r"(\S+) +(\d+) +(\d+) +\d+", line)
        if row and row[1] != "all":
            found[row[1]] = int(row[2]), int(row[3])
    return found


def write_counts(found):
    lines = [f"onnx {onnx.__version__}: operator, cases that pass, cases that are not supported"]
    lines += [f"{op} {passed} {unsupported}" for op, (passed, unsupported) in sorted(found.items())]
    COUNTS.write_text("\n".join(lines) + "\n")


def lost(found):
    """The operators of which fewer cases pass than the file has."""
    first, *rows = COUNTS.read_text().splitlines()
    if not first.startswith(f"onnx {onnx.__version__}:"):
        print(f"not compared with {COUNTS.name}, which is of {first.split(':')[0]}")
        return []
    fewer = []
    for op, passed, _ in map(str.split, rows):
        now = found.get(op, (0, 0))[0]
        if now < int(passed):
            fewer.append(f"{op}: {now} cases pass, {passed} did: {COUNTS.name}")
    return fewer


def main():
    writes = sys.argv[1:] == ["--write"]
    options = [] if writes else sys.argv[1:]
    warnings.filterwarnings("ignore")
    program = pathlib.Path(os.environ.get("BUILD", "build")) / "bin" / "nnaot-eval"
    with tempfile.TemporaryDirectory() as temporary:
        node, inexact = pathlib.Path(temporary) / "node", pathlib.Path(temporary) / "inexact"
        messages, faults = write_node_cases(node, inexact)
        folders = sorted(node.iterdir())
        data = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
        for name in FILES:
            folders += sorted((data / name).glob("test_*"))
        command = [program, "--onnx-test", *options, *(f for f in folders if (f / "model.onnx").exists())]
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        for folder in sorted(inexact.glob("test_*")):
            alone = subprocess.run([program, "--onnx-test", *options, folder], capture_output=True, text=True, env=environment)
            if alone.returncode:
                faults.append(alone.stdout + alone.stderr)
    lines = done.stdout.splitlines()
    table = next((i for i, line in enumerate(lines) if line.startswith("op ")), len(lines))
    for line in [line for line in lines if ": wrong: " in line] + messages + lines[table:]:
        print(line)
    print(done.stderr, end="")
    total = re.fullmatch(r"all +(\d+) +(\d+) +(\d+)", lines[-1]) if lines else None
    if done.returncode not in (0, 1) or not total:
        print("nnaot-eval ended with", done.returncode)
        return 1
    passed, _, wrong = map(int, total.groups())
    found = counts(lines[table + 1:])
    found["DFT"] = found["DFT"][0], found["DFT"][1] + len(INEXACT)
    if writes:
        write_counts(found)
    # With passes or kernels, cases without one are another table.
    fewer = [] if options else lost(found)
    print("\n".join(fewer + faults))
    return 1 if wrong or fewer or faults or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
