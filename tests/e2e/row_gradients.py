"""Gradients of every differentiable row of ops.def in a compiled program, in f32, bf16 and f16, compared with f64.

    BUILD=build python tests/e2e/row_gradients.py [--table]      --table: prints the numbers of each row

gradient_model (tests/ops/gradient_model.c) writes a model that trains an instance of every row, and the gradients of all operands
in double, which equal central differences.  All operands are exact in bf16 and f16.  The model is compiled with --dtype; with a
learning rate of 0, momentum of sgd is the sum of the gradients of the steps, g (1 + 0.9 + ...): of one step, and in
f16 of those that are not skipped until the scale of the loss fits.  A number is the relative norm |g - f64| / |f64|, or |g| if the
gradient is zero, and the largest of a row counts.

The unit roundoff u is 2^-8 in bf16 and 2^-11 in f16.  Such a program rounds results of ops, so values that it saves for backward
and gradients of values; sums are f32.  A gradient of one op has up to two roundings, one of a saved value and its own: the
bound is 2 u, or that of BOUNDS.  f32 has a bound of 1e-6.  Exit status 1 if a number is larger or NaN, or if a row has
no number.
"""

import pathlib
import re
import sys

from common import BUILD, NNAOT, ROOT, check, compile_in_a_hurry, finish, read_log, run, scratch
from padded import norm, tensors

EXAMPLES = [ROOT / "tests/ops" / name for name in ("examples.nn", "examples_a.nn")]
UNIT, BOUND, BOUND_F32 = {"bf16": 2 ** -8, "f16": 2 ** -11}, 2, 1e-6
MOMENTUM, STEPS = 0.9, {"f32": 1, "bf16": 1, "f16": 12}
# In u.  Three roundings of pow: the exponent y - 1, the power times y, and the product with the gradient.  A weight of a recurrent
# layer sums products over rows and steps: their norm is 8 times that of the sum in rnn_sigmoid, where rounding the results, the
# states before each step or the gradients of sums alone makes a difference of 2.4 u each.
BOUNDS = {"pow": 3, "gru": 3, "rnn": 7}
# Gradients below the range of f16 with any scale of the loss that fits the others.
BELOW_F16 = {"reduce_prod_keep.0.0": "products of 23 numbers, near 1e-9"}
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


def lowered_rows(text, dtype):
    """The rows of the training step that read or write this type."""
    found, low = set(), set()
    for line in text.split("graph @eval")[0].splitlines():
        op = re.match(r" +(%\S+(?:, %\S+)*) += (\w+) (.*?) : ([^#]*)", line)
        if not op:
            continue
        types = re.findall(r"(\w+)\[[\d,]*\]", op[4])
        low |= {v for v, t in zip(op[1].split(", "), types) if t == dtype}
        if dtype in types or low & set(re.findall(r"%\w+", op[3])):
            found.add(op[2])
    return found


def trained(folder, model, dtype):
    """{label: gradient}, and the rows in this type."""
    exe, text, out, log = (folder / f"{dtype}.{end}" for end in ("train", "nn", "out", "jsonl"))
    command = [NNAOT, model, "--dtype", dtype, "--optimizer", f"sgd:momentum={MOMENTUM}"]
    run(*command, "--emit", "nn", "--stop-after", "legalize_types", "-o", text)
    run(*command, "-o", exe)
    run(exe, "--steps", STEPS[dtype], "--lr", 0, "--checkpoint-dir", out, "--log", log)
    n_steps = sum(not line.get("skipped") for line in read_log(log))
    check(f"{dtype}: all steps are skipped", n_steps > 0)
    sum_of_steps = sum(MOMENTUM ** i for i in range(n_steps)) or 1
    label, gradients = re.compile(r"state/(.*)\.momentum_buffer"), {}
    for name, (_, values) in tensors(next(out.glob("*.safetensors"))).items():
        if label.fullmatch(name):
            gradients[label.fullmatch(name)[1]] = [v / sum_of_steps for v in values]
    return gradients, lowered_rows(text.read_text(), dtype)


def bound_of(row, dtype):
    return BOUND_F32 if dtype == "f32" else UNIT[dtype] * BOUNDS.get(row, BOUND)


def distances(got, gradients, dtype):
    """{label: number}; a weight without a gradient has zeros."""
    return {label: distance(got.get(label, [0.0] * len(want)), want) for label, (_, want) in gradients.items()
            if dtype != "f16" or label not in BELOW_F16}


def worst_by_row(found, gradients):
    """{row: (largest number, its label, gradients)}."""
    worst = {}
    for label, d in found.items():
        row = gradients[label][0]
        last, at, n = worst.get(row, (-1.0, "", 0))
        worst[row] = (d, label, n + 1) if d > last else (last, at, n + 1)
    return worst


def too_large(found, gradients, dtype):
    """{label: number} of those beyond their bounds."""
    return {label: d for label, d in found.items() if not d <= bound_of(gradients[label][0], dtype)}


def check_the_test(got, gradients):
    """Gradients that are wrong by more than twice their bounds are all noticed, and so is a NaN."""
    wrong = {label: [x * (1 + 2.5 * bound_of(gradients[label][0], "bf16")) for x in v] for label, v in got.items()}
    noticed = too_large(distances(wrong, gradients, "bf16"), gradients, "bf16")
    missed = {label for label, (_, want) in gradients.items() if norm(want)} - set(noticed)
    check("wrong gradients are not noticed", not missed, *missed)
    none = {label: [float("nan")] * len(v) for label, v in got.items()}
    check("NaN is not noticed", set(too_large(distances(none, gradients, "bf16"), gradients, "bf16")) >= set(got))


def print_table(worst, low):
    print(f"{'row':18}{'gradients':>10} {'bf16':>5}{'f32 norm':>10}{'bf16 norm':>10}{'/ u':>6}{'f16 norm':>10}{'/ u':>6}"
          f"{'bound':>6}  largest in bf16")
    for row, (d, label, n) in worst["bf16"].items():
        f16 = worst["f16"][row][0]
        print(f"{row:18}{n:10} {'yes' if row in low else '':>5}{worst['f32'][row][0]:10.1e}{d:10.1e}{d / UNIT['bf16']:6.2f}"
              f"{f16:10.1e}{f16 / UNIT['f16']:6.2f}{BOUNDS.get(row, BOUND):6}  {label}")


def main():
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        model, numbers = folder / "model.nn", folder / "gradients.txt"
        print(run(BUILD / "bin" / "ops_gradient_model", model, numbers, *EXAMPLES), end="")
        rows, gradients = read_gradients(numbers)
        worst = {}
        for dtype in "f32", "f16", "bf16":
            got, low = trained(folder, model, dtype)
            found = distances(got, gradients, dtype)
            worst[dtype] = worst_by_row(found, gradients)
            for label, d in too_large(found, gradients, dtype).items():
                row = gradients[label][0]
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
