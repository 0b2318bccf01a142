"""Resuming without a shared folder: each rank is a process in a folder of its own, and only rank 0's has checkpoints.

Every row trains the mlp in threads to the end, and to a checkpoint in the middle; its ranks go on from that as processes over
sockets, and end with the same weights, bit by bit: replicas, shards of weights and states, stages, states in host memory,
deferred updates, a loss scale; after another plan or number of ranks, with losses that are equal up to rounding.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys

import common
from common import check, compile_in_a_hurry, compile_sample, data_flags, read_log, run, scratch, worst_difference

STEPS, BEFORE = 6, 3
# Ranks and plan before, ranks and plan after, flags of both.
CASES = [
    ((2, "dp"), (2, "dp"), []),
    ((2, "tp"), (2, "tp"), []),
    ((2, "zero1"), (2, "zero1"), []),
    ((2, "zero3"), (2, "zero3"), ["--micro-batches", 2]),
    ((4, "pp=2,dp=2"), (4, "pp=2,dp=2"), ["--micro-batches", 2]),
    ((2, "zero1=2,offload=1"), (2, "zero1=2,offload=1"), []),
    ((2, "cross_barrier"), (2, "cross_barrier"), []),
    ((2, "dp"), (2, "dp"), ["--dtype", "f16"]),
    ((1, "dp"), (4, "pp=2,tp=2"), ["--micro-batches", 2]),
    ((4, "zero3"), (2, "tp"), []),
]


def processes(exe, ranks, flags):
    """Runs the ranks of an executable; returns what they say.  Rank 0 runs in `host0`, the others in empty folders."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    jobs = []
    for rank in range(ranks):
        folder = pathlib.Path(f"host{rank}")
        if rank:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        jobs.append(subprocess.Popen([str(word) for word in (exe, *flags)], env=env, cwd=folder, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    said = [job.communicate(timeout=120)[0] for job in jobs]
    check(f"{exe}: {ranks} processes end", [job.returncode for job in jobs] == [0] * ranks, said)
    check("ranks other than 0 write nothing", not any(os.listdir(f"host{rank}") for rank in range(1, ranks)))
    return said


def one_case(before, after, flags):
    names = []
    for which, (ranks, plan) in ("before", before), ("after", after):
        compile_sample("mlp", pathlib.Path(which), ranks=ranks, extra=["--plan", plan, *flags])
        names.append(pathlib.Path(which).resolve())
    shutil.rmtree("host0", ignore_errors=True)
    os.mkdir("host0")
    checkpoints = ["--checkpoint-dir", "checkpoints"]
    data = data_flags("mlp")
    run(names[0], *data, "--steps", STEPS, "--log", "whole.jsonl", "--save", "whole.st", cwd="host0")
    run(names[0], *data, "--steps", BEFORE, *checkpoints, cwd="host0")
    evaluated = [flag.replace("--input", "--eval-input") for flag in data]
    want = run(names[1], *evaluated, "--eval-only", *checkpoints, "--resume", cwd="host0")
    got = processes(names[1], after[0], [*evaluated, "--eval-only", *checkpoints, "--resume"])
    line = [text for text in want.splitlines() if "eval_loss" in text]
    check(f"{before} to {after} {flags}: evaluation", line and line[0] in got[0], want, got)
    said = processes(names[1], after[0],
                     [*data, "--steps", STEPS, *checkpoints, "--resume", "--log", "rest.jsonl", "--save", "rest.st"])
    check("it resumes", f"resuming after step {BEFORE}" in said[0], said)
    whole, rest = (read_log(f"host0/{name}.jsonl") for name in ("whole", "rest"))
    d = worst_difference([line["loss"] for line in rest], [line["loss"] for line in whole[BEFORE:]])
    same = pathlib.Path("host0/whole.st").read_bytes() == pathlib.Path("host0/rest.st").read_bytes()
    if before == after:
        check(f"{before} {flags}: the same losses and weights", d == 0 and same, d)
    else:
        check(f"{before} to {after} {flags}: the same losses", d < 1e-4, d)
    print(f"{before} to {after} {' '.join(map(str, flags))}: {d:.1e}", flush=True)


def main():
    with scratch() as folder:
        os.chdir(folder)
        compile_in_a_hurry(folder)
        for case in CASES:
            one_case(*case)
    common.finish()


sys.exit(main())
