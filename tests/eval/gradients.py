"""Gradients of the operators of ONNX, of which the schema calls operands differentiable, and of others with one.

    BUILD=build python tests/eval/gradients.py [OPERATOR ...]
    BUILD=build python tests/eval/gradients.py --write         writes gradients.txt

Each case of gradient_cases.py becomes a model in double. onnx_gradients imports it, makes the gradient of a sum of its
outputs, and compares it with central differences; this script compares it with PyTorch's, of torch_gradients.txt. Exit
status 1 if one differs, if a case has no numbers of PyTorch although PyTorch has the operator, or if gradients.txt has a check
that is lost; 77, which ctest takes as skipped, without the package.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import onnx
    from onnx import numpy_helper
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)
from gradient_cases import CASES

HERE = pathlib.Path(__file__).parent
TABLE, STORED = HERE / "gradients.txt", HERE / "torch_gradients.txt"
LIMIT, TORCH_LIMIT = 1e-6, 1e-8
DIFFERENTIABLE = onnx.defs.OpSchema.DifferentiationCategory.Differentiable


def by_schema():
    """{operator: names of the operands that its newest schema calls differentiable}, without deprecated operators."""
    found = {}
    for schema in onnx.defs.get_all_schemas():
        names = [i.name for i in schema.inputs if i.differentiation_category == DIFFERENTIABLE]
        if names and not schema.deprecated:
            found[schema.name] = names
    return found


def run(cases, *options):
    """The lines of onnx_gradients on these cases."""
    with tempfile.TemporaryDirectory() as temporary:
        folders = [pathlib.Path(temporary) / case.name for case in cases]
        for case, folder in zip(cases, folders):
            model, values = case.model()
            folder.mkdir()
            (folder / "model.onnx").write_bytes(model.SerializeToString())
            for i, v in enumerate(values):
                (folder / f"input_{i}.pb").write_bytes(numpy_helper.from_array(v).SerializeToString())
        program = pathlib.Path(os.environ.get("BUILD", "build")) / "bin" / "onnx_gradients"
        done = subprocess.run([program, *options, *folders], capture_output=True, text=True)
    if done.stderr or done.returncode not in (0, 1):
        sys.exit(f"{done.stderr}onnx_gradients ended with {done.returncode}")
    return done.stdout.splitlines()


def stored():
    """{(case, operand): (norm, projection)} of PyTorch's gradients, and {(case, ""): (loss, loss)}."""
    found = {}
    for line in STORED.read_text().splitlines() if STORED.exists() else []:
        name, operand, *numbers = line.split()
        found[name, "" if operand == "loss" else operand] = tuple(map(float, (numbers * 2)[:2]))
    return found


def near(got, want):
    return all(abs(x - y) <= TORCH_LIMIT * max(abs(want[0]), 1e-3) for x, y in zip(got, want))


class Checks:
    """Of one operator: the operands that each case checks, and the number compared with PyTorch."""

    def __init__(self):
        self.operands, self.by_torch, self.refused, self.reasons = {}, 0, [], []


def check(cases, lines):
    """{operator: its checks}, and the faults."""
    of, torch, faults, found = {case.name: case for case in cases}, stored(), [], {}
    for line in lines:
        name, kind, *rest = line.split(" ", 2)
        case = of[name]
        checks = found.setdefault(case.op, Checks())
        if kind == "fails":
            checks.refused.append(rest[0])
            print(f"{name}: {rest[0]}")
            continue
        if kind == "loss":
            operand, got = "", (float(rest[0]),) * 2
        else:
            row = re.fullmatch(r"(\S+) norm (\S+) projection (\S+) distance (\S+)", rest[0])
            operand, got = row[1], (float(row[2]), float(row[3]))
            if not float(row[4]) < LIMIT:
                faults.append(f"{name}: the gradient of {operand} differs from central differences by {row[4]}")
                continue
            operands = checks.operands.setdefault(re.sub(r"_\d+$", "", operand), [0, 0])
            operands[0] += 1
            operands[1] += got[0] > 0
        if isinstance(case.torch, str):
            if case.torch not in checks.reasons:
                checks.reasons.append(case.torch)
        elif (name, operand) not in torch:
            faults.append(f"{name}: there are no numbers of PyTorch: run torch_gradients.py")
        elif not near(got, torch[name, operand]):
            faults.append(f"{name}: {operand or 'the loss'} has {got} and PyTorch {torch[name, operand]}")
        else:
            checks.by_torch += operand == ""
    return found, faults


def check_the_test(cases):
    """Whether both comparisons notice gradients that are wrong."""
    cases = [case for case in cases if case.op in ("Tanh", "MatMul", "LSTM", "Resize")]
    global LIMIT
    _, differences = check(cases, run(cases, "--falsify"))
    limit, LIMIT = LIMIT, 1
    _, by_torch = check(cases, run(cases, "--falsify"))
    LIMIT = limit
    wanted = sum(sum(case.checked) for case in cases)
    compared = sum(sum(case.checked) for case in cases if not isinstance(case.torch, str))
    if (len(differences), len(by_torch)) == (wanted, compared):
        return []
    return [f"of {wanted} wrong gradients {len(differences)} were noticed, and {len(by_torch)} of {compared} by PyTorch's"]


def table(found):
    """A line of each operator: by schema; operands with the number of checked gradients; PyTorch."""
    differentiable = by_schema()
    lines = [f"onnx {onnx.__version__} | differentiable by schema | gradients equal to differences | cases equal to PyTorch's"]
    for op in sorted(set(differentiable) | set(found)):
        checks = found.get(op, Checks())
        counts = [f"{name} {n}" + ("" if n_nonzero else " (zero)") for name, (n, n_nonzero) in checks.operands.items()]
        gradients = ", ".join(counts) or "none: " + (checks.refused[0] if checks.refused else "there is no case")
        torch = [str(checks.by_torch)] if checks.by_torch else []
        torch += ["; ".join(checks.reasons)] if checks.reasons else []
        lines.append(f"{op} | {', '.join(differentiable.get(op, [])) or '-'} | {gradients} | {'; '.join(torch) or 'none'}")
    return lines


def lost(now):
    """The checks of gradients.txt that these lines lack."""
    def numbers(line):
        op, _, gradients, torch = (part.strip() for part in line.split("|"))
        each = dict(re.findall(r"([\w-]+) (\d+)", gradients)) if not gradients.startswith("none") else {}
        return op, {**{k: int(n) for k, n in each.items()}, "PyTorch": int(re.match(r"\d*", torch)[0] or 0)}
    first, *rows = TABLE.read_text().splitlines()
    if first != now[0]:
        print(f"not compared with {TABLE.name}, which is of {first.split(' |')[0]}")
        return []
    have = dict(map(numbers, now[1:]))
    return [f"{op}: {have.get(op, {}).get(key, 0)} checks of {key}, there were {n}: {TABLE.name}"
            for op, row in map(numbers, rows) for key, n in row.items() if have.get(op, {}).get(key, 0) < n]


def main():
    operators = [word for word in sys.argv[1:] if word != "--write"]
    cases = [case for case in CASES if not operators or case.op in operators]
    found, faults = check(cases, run(cases))
    lines = table(found)
    if operators:
        print("\n".join(line for line in lines if line.split(" |")[0] in operators))
    elif "--write" in sys.argv[1:]:
        TABLE.write_text("\n".join(lines) + "\n")
    elif not faults:
        faults += lost(lines) + check_the_test(cases)
    schema = by_schema()
    missing = sorted(op for op, names in schema.items()
                     if (not operators or op in operators) and set(names) - set(found.get(op, Checks()).operands))
    gradients = sum(n for checks in found.values() for n, _ in checks.operands.values())
    equal = sum(checks.by_torch for checks in found.values())
    print(f"{len(cases)} cases, {gradients} gradients equal to central differences, {equal} cases equal to PyTorch's")
    if not operators:
        print(f"{len(schema) - len(missing)} of {len(schema)} differentiable operators are checked" +
              (f", not {', '.join(missing)}" if missing else ""))
    print("\n".join(faults))
    return bool(faults) or not cases


if __name__ == "__main__":
    sys.exit(main())
