"""Plans without equivalent among the named ones, compared with one rank.

Seven rows on four ranks: the model in chunks of 2, 2, 2 and 1 rows, each on its rank; as threads and under mpirun.
Another case has fresh weights of a model whose packed weights tp unpacks.  Losses, gradient norms and saved weights may
differ by less than 1e-4.
"""

import pathlib
import sys

from common import NNAOT, ROOT, mpirun, read_log, run, scratch, worst_difference
from plan_cases import compile_flags, data_flags
from plans import read_weights, weights_difference

LIMIT, STEPS = 1e-4, 10
ROWS = ROOT / "tests" / "passes" / "shard" / "inputs" / "rows.lua"


def train(folder, model, plan, ranks, flags, launcher=()):
    exe, log, weights = folder / f"{model}{ranks}", folder / "log.jsonl", folder / "weights"
    if not exe.exists():
        run(NNAOT, *compile_flags(model, folder), "--plan", plan, "-g", ranks, *flags, "-o", exe)
    log.unlink(missing_ok=True)
    run(*launcher, exe, *data_flags(model, folder), "--steps", STEPS, "--log", log, "--save", weights)
    return read_log(log), read_weights(weights)


def check(what, got, want):
    d = [worst_difference([line[k] for line in got[0]], [line[k] for line in want[0]]) for k in ("loss", "grad_norm")]
    d.append(weights_difference(got[1], want[1]))
    print(f"{what:40}", *[f"{x:9.1e}" for x in d])
    return max(d) < LIMIT


def main():
    with scratch() as name:
        folder, rows = pathlib.Path(name), ["--batch", 7]
        want = train(folder, "wide", "dp", 1, rows)
        good = check("7 rows on 4 threads", train(folder, "wide", ROWS, 4, rows), want)
        good &= check("7 rows on 4 processes", train(folder, "wide", ROWS, 4, rows, mpirun(4)), want)
        fresh = ["--init", "random:3"]
        want = train(folder, "gpt_tied", "dp", 1, fresh)
        good &= check("fresh weights, tp on 2 threads", train(folder, "gpt_tied", "tp", 2, fresh), want)
    return not good


sys.exit(main())
