"""Gradients of every differentiable row of ops.def in a compiled program, in f32 and bf16, compared with f64.

    BUILD=build python tests/e2e/row_gradients.py [--table]      --table: prints the numbers of each row

gradient_model (tests/ops/gradient_model.c) writes a model that trains an instance of every row, and the gradients of all operands
in double, which equal central differences.  All operands are exact in bf16.  The model is compiled with --dtype; after one step the
momentum of sgd is the gradient.  A number is the relative norm |g - f64| / |f64|, or |g| if the gradient is zero, and
the largest of a row counts.

The unit roundoff u of bf16 is 2^-8.  Such a program rounds results of ops, so values that it saves for backward and gradients of
values; sums are f32.  A gradient of one op has up to two roundings, one of a saved value and its own: the bound is 2 u, or
that of BOUNDS.  f32 has a bound of 1e-6.  Exit status 1 if a number is larger or NaN, or if a row has no number.
"""

import pathlib
import re
import sys

from common import BUILD, NNAOT, ROOT, check, compile_in_a_hurry, finish, run, scratch
from padded import norm, tensors

EXAMPLES = [ROOT / "tests/ops" / name for name in ("examples.nn", "examples_a.nn")]
UNIT, BOUND, BOUND_F32 = 2 ** -8, 2, 1e-6
# In u.  Three roundings of pow: the exponent y - 1, the power times y, and the product with the gradient.  A weight of a recurrent
# layer sums products over rows and steps: their norm is 8 times that of the sum in rnn_sigmoid, and states, the
# sums of gates and their gradients are rounded.
BOUNDS = {"pow": 3, "gru": 3, "rnn": 5}
# Rows without a number.
NO_GRADIENT = {"permute_blocks": "a plan's, over several ranks: ring.py"}
# Rows with a kernel in bf16 that --dtype bf16 does not run here.
NO_KERNEL = {
    "log_softmax": "mixed_precision keeps it in f32",
    "log_softmax_back": "mixed_precision keeps it in f32",
    "lse_parts": "a plan's, of a vocabulary over several ranks: padded.py",
}


def read_gradients(path):
    """{row: its words} and {label: (row, f64 gradient)}."""
    rows, gradients = {}, {}
    for line in path.read_text().splitlines():
        kind, name, *words = line.split()
        if kind == "row":
            rows[name] = words
        else:
            gradients[name] = words[0], [float(x) for x in words[1:]]
    return rows, gradients


def distance(got, want):
    """The relative norm of the difference, absolute if the gradient is zero; NaN counts as infinite."""
    d = norm(g - w for g, w in zip(got, want)) / (norm(want) or 1)
    return d if d == d and len(got) == len(want) else float("inf")


def lowered_rows(text):
    """The rows of the training step that read or write bf16."""
    found, low = set(), set()
    for line in text.split("graph @eval")[0].splitlines():
        op = re.match(r" +(%\S+(?:, %\S+)*) += (\w+) (.*?) : ([^#]*)", line)
        if not op:
            continue
        types = re.findall(r"(\w+)\[[\d,]*\]", op[4])
        low |= {v for v, t in zip(op[1].split(", "), types) if t == "bf16"}
        if "bf16" in types or low & set(re.findall(r"%\w+", op[3])):
            found.add(op[2])
    return found


def trained(folder, model, dtype):
    """{label: gradient} of a step, and the rows in bf16."""
    exe, text, out = folder / f"train.{dtype}", folder / f"{dtype}.nn", folder / f"{dtype}.out"
    command = [NNAOT, model, "--dtype", dtype, "--optimizer", "sgd:momentum=0.9"]
    run(*command, "--emit", "nn", "--stop-after", "legalize_types", "-o", text)
    run(*command, "-o", exe)
    run(exe, "--steps", 1, "--checkpoint-dir", out)
    label = re.compile(r"state/(.*)\.momentum_buffer")
    saved = tensors(next(out.glob("*.safetensors"))).items()
    return {label.fullmatch(name)[1]: v for name, (_, v) in saved if label.fullmatch(name)}, lowered_rows(text.read_text())


def bound_of(row, dtype):
    return BOUND_F32 if dtype == "f32" else UNIT * BOUNDS.get(row, BOUND)


def worst_by_row(got, gradients):
    """{row: (largest number, its label, gradients)}; a weight without a gradient has zeros."""
    worst = {}
    for label, (row, want) in gradients.items():
        d = distance(got.get(label, [0.0] * len(want)), want)
        last, at, n = worst.get(row, (-1.0, "", 0))
        worst[row] = (d, label, n + 1) if d > last else (last, at, n + 1)
    return worst


def too_large(got, gradients, dtype):
    """The labels of gradients beyond their bounds."""
    return [label for label, (row, want) in gradients.items()
            if not distance(got.get(label, [0.0] * len(want)), want) <= bound_of(row, dtype)]


def check_the_test(got, gradients):
    """Gradients that are wrong by more than twice their bounds are all noticed, and so is a NaN."""
    wrong = {label: [x * (1 + 2.5 * bound_of(gradients[label][0], "bf16")) for x in v] for label, v in got.items()}
    missed = {label for label, (_, want) in gradients.items() if norm(want)} - set(too_large(wrong, gradients, "bf16"))
    check("wrong gradients are not noticed", not missed, *missed)
    none = {label: [float("nan")] * len(v) for label, v in got.items()}
    check("NaN is not noticed", set(too_large(none, gradients, "bf16")) >= set(got))


def print_table(worst, low):
    print(f"{'row':18}{'gradients':>10} {'bf16':>5}{'f32 norm':>10}{'bf16 norm':>10}{'/ u':>6}{'bound':>6}  largest in bf16")
    for row, (d, label, n) in worst["bf16"].items():
        print(f"{row:18}{n:10} {'yes' if row in low else '':>5}{worst['f32'][row][0]:10.1e}{d:10.1e}{d / UNIT:6.2f}"
              f"{BOUNDS.get(row, BOUND):6}  {label}")


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        model, numbers = folder / "model.nn", folder / "gradients.txt"
        print(run(BUILD / "bin" / "ops_gradient_model", model, numbers, *EXAMPLES), end="")
        rows, gradients = read_gradients(numbers)
        worst = {}
        for dtype in "f32", "bf16":
            got, low = trained(folder, model, dtype)
            worst[dtype] = worst_by_row(got, gradients)
            for label in too_large(got, gradients, dtype):
                row, want = gradients[label]
                d = distance(got.get(label, [0.0] * len(want)), want)
                check(f"{dtype}: the gradient {label} of {row} differs by {d:.2g}, more than {bound_of(row, dtype):.2g}", False)
        check_the_test(got, gradients)
        without = {row for row, words in rows.items() if "differentiable" in words} - set(worst["bf16"])
        check("rows without a gradient, or with one although named in NO_GRADIENT", without == set(NO_GRADIENT),
              *(without ^ set(NO_GRADIENT)))
        without = {row for row, words in rows.items() if "kernel16" in words} - low
        check("kernels in bf16 that do not run, or run although named in NO_KERNEL", without == set(NO_KERNEL),
              *(without ^ set(NO_KERNEL)))
        if "--table" in sys.argv:
            print_table(worst, low)
        print(f"{len(gradients)} gradients of {len(worst['bf16'])} rows, {len(low & set(rows))} rows in bf16")
    finish()


main()
