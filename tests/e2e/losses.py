"""Losses and gradient norms of 20 steps equal PyTorch's, on any number of ranks.

    losses.py SAMPLE     for sgd and adamw; 1, 2 and 4 ranks in one process; 2 and 4 under mpirun

Prints a table of largest relative differences; none may reach 1e-4.
"""

import json
import pathlib
import sys

from common import OPTIMIZER, SAMPLES, compile_sample, mpirun, scratch, train, worst_difference

LIMIT = 1e-4


def main(name):
    expected = json.loads((SAMPLES / name / "expected.json").read_text())
    failed = 0
    print(f"{'sample':8} {'optimizer':9} {'ranks':5} {'launcher':8} {'loss':>9} {'grad_norm':>9}")
    with scratch() as folder:
        for optimizer in OPTIMIZER:
            want = expected[optimizer]
            for ranks in 1, 2, 4:
                exe = pathlib.Path(folder, f"{optimizer}{ranks}")
                compile_sample(name, exe, optimizer, ranks)
                for launcher in [[], mpirun(ranks)] if ranks > 1 else [[]]:
                    log = pathlib.Path(folder, "log.jsonl")
                    log.unlink(missing_ok=True)
                    got = train(exe, name, len(want["loss"]), log, launcher=launcher)
                    d = [worst_difference([line[k] for line in got], want[k]) for k in ("loss", "grad_norm")]
                    print(f"{name:8} {optimizer:9} {ranks:5} {launcher[0] if launcher else 'threads':8} "
                          f"{d[0]:9.1e} {d[1]:9.1e}", flush=True)
                    failed |= not max(d) < LIMIT
    return failed


sys.exit(main(*sys.argv[1:]))
