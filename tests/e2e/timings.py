"""--timings: the work of operations, and its distance from the limits of the machine, in f32 and bf16, on one and two ranks, and with
other threads than one for each core.

Rates are rounded, and so are times: the product of both is compared with flops known from shapes, within both roundings.
"""

import os
import pathlib
import sys

from common import NNAOT, OPTIMIZER, ROOT, SAMPLES, check, compile_in_a_hurry, data_flags, finish, run, scratch

sys.path.insert(0, str(ROOT / "tests" / "bench"))
from timings_text import parse

BATCH = 512
LAYERS = [(64, 96), (96, 48), (48, 10)]  # columns and rows of the weights, as in samples/models.py


class Rounded:
    """The numbers that are printed as a text."""

    def __init__(self, text):
        half = 0.5 * 10.0 ** -len(text.partition(".")[2])
        self.least, self.most = max(0, float(text) - half), float(text) + half


def between(least, x, most):
    return least * 0.999999 <= x <= most * 1.000001


def mflop(row, most):
    """The least or the greatest 1e6 flops a step of a row."""
    ms, rate = Rounded(row["ms"]), Rounded(row["flops"])
    return ms.most * rate.most if most else ms.least * rate.least


def check_limit(what, row, limits):
    """Compares the columns of an operation with each other, and with the limits."""
    if row["peak"] == "-":
        check(f"{what}: without work there are no rates", row["flops"] == row["bytes"] == row["limit"] == "-", row)
        return
    share, rate = Rounded(row["peak"]), Rounded(row["bytes"])
    check(f"{what}: above 0", share.most > 0 and rate.most > 0, row)
    if row["limit"] in ("cache", "memory"):
        # The copy of as many bytes is as fast as that of memory at least, and as that of the cache at most.
        ok = share.most * limits["cache"].most >= 100 * rate.least and share.least * limits["memory"].least <= 100 * rate.most
    else:
        flops, limit = Rounded(row["flops"]), limits[row["limit"]]
        ok = share.most * limit.most >= 100 * flops.least and share.least * limit.least <= 100 * flops.most
    check(f"{what}: its share of the limit", ok, row)


def main(folder, dtype, ranks, micro):
    what = f"{dtype}, {ranks} ranks, {micro} micro-batches"
    exe = pathlib.Path(folder, f"{dtype}{ranks}{micro}")
    run(NNAOT, SAMPLES / "mlp" / "mlp.onnx", "-g", ranks, "--batch", BATCH, "--micro-batches", micro, "--loss",
        "cross_entropy(logits)", "--dtype", dtype, "--plan", "dp", *OPTIMIZER["adamw"], "-o", exe)
    got = parse(run(exe, *data_flags("mlp"), "--steps", 20, "--timings"))
    limits = {name: Rounded(rate) for rate, _, name, _ in got["limits"]}
    check(f"{what}: limits", limits.keys() == {"f32", dtype, "cache", "memory"} and all(x.least > 0 for x in limits.values()),
          got["limits"])
    kinds, ops, step = {row["name"]: row for row in got["kinds"]}, {row["name"]: row for row in got["ops"]}, got["step"]

    # Products of a rank: of its part of the rows, in each micro-batch.
    rows = BATCH // ranks // micro
    check(f"{what}: products are among the longest", any(title.startswith("linear") for title in ops), *ops)
    for i, (k, n) in enumerate(LAYERS):
        place = f"mlp.onnx:/layers/layers.{2 * i}/Gemm"
        known = 2 * rows * k * n * micro / 1e6
        for title in f"linear  {place}", f"linear_back_w  {place} (gradient)":
            row = ops.get(title)
            if row is None: continue  # not among the longest
            check(f"{what}: {title}: {known} MFLOP in {micro} calls", float(row["calls"]) == micro and
                  between(mflop(row, False), known, mflop(row, True)), row)
            check(f"{what}: {title}: its limit", row["limit"] in (dtype, "cache", "memory"), row)

    # Sums: forward, gradients of the two inner inputs, and of all weights.
    weights = 2 * rows * sum(k * n for k, n in LAYERS) * micro / 1e6
    inputs = 2 * rows * sum(k * n for k, n in LAYERS[1:]) * micro / 1e6
    for kind, known in ("linear", weights + inputs), ("linear_back_w", weights):
        of = [kinds[title] for title in (kind, kind + "_accumulate") if title in kinds]
        least, most = (sum(mflop(row, end) for row in of) for end in (False, True))
        check(f"{what}: {known} MFLOP of {kind}", between(least, known, most), of)
    known = 2 * weights + inputs
    check(f"{what}: {known} MFLOP of the step", between(mflop(step, False), known, mflop(step, True)), step)
    if ranks > 1:
        check(f"{what}: no work of communication", kinds["all_reduce"]["peak"] == "-", kinds["all_reduce"])
    for title, row in ops.items():
        check_limit(f"{what}: {title}", row, limits)


def product_limit(exe, **variables):
    """GFLOP/s of f32 that a rank measures."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))} | variables
    got = parse(run(exe, *data_flags("mlp"), "--steps", 1, "--timings", env=env))
    return next(float(rate) for rate, _, name, _ in got["limits"] if name == "f32")


def threads_and_cores(folder):
    """The limits are those of the cores of the process, whatever its number of threads."""
    exe, cores = pathlib.Path(folder, "f3211"), len(os.sched_getaffinity(0))
    all_cores = product_limit(exe)
    many = product_limit(exe, OMP_NUM_THREADS=str(4 * cores))
    check(f"{4 * cores} threads on {cores} cores are not faster", many < 1.6 * all_cores, many, all_cores)
    bound = product_limit(exe, OMP_PROC_BIND="true")
    check("threads that OMP_PROC_BIND binds have all cores", bound > all_cores / min(cores, 1.6), bound, all_cores)


with scratch() as name:
    compile_in_a_hurry(name)
    for case in ("f32", 1, 1), ("f32", 2, 1), ("f32", 1, 2), ("bf16", 2, 1):
        main(name, *case)
    threads_and_cores(name)
finish()
