"""Collectives over two axes together: eight ranks train like one.

    joined.py            for CPUs: threads, MPI and TCP
    joined.py cuda       on the emulator: threads, and NCCL under both launchers

The program is ../eval/joined.nn.  The traffic of a step is as predicted.
"""

import json
import os
import shutil
import subprocess
import sys

from common import BUILD, NNAOT, ROOT, SAMPLES, mpirun, read_log, run, scratch, worst_difference
from plans import counted_traffic, predicted_traffic

EVAL, RANKS = ROOT / "tests" / "eval", 8


def threads(command):
    run(*command)


def mpi(command):
    run(*mpirun(RANKS), *command)


def tcp(command):
    """Starts the ranks like torchrun."""
    run(sys.executable, ROOT / "tests/gpu/ranks.py", RANKS, *command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def train(exe, folder, launch):
    log, traffic = folder + "/log", folder + "/traffic"
    launch([exe, "--input", f"x={SAMPLES / 'mlp' / 'x.npy'}", "--steps", "3", "--log", log, "--traffic", traffic])
    with open(traffic) as f:
        return [row["loss"] for row in read_log(log)], counted_traffic(json.load(f))


cuda = sys.argv[1:] == ["cuda"]
target, flags = ("(target=cuda)", ["--target", "cuda:sm_90"]) if cuda else ("", [])
os.environ["NVCC"] = str(BUILD / "emulator" / "nvcc")
os.environ["EMULATED_GPUS"] = str(RANKS)
ways = [threads, tcp] + ([mpi] if shutil.which("mpirun") else [])
with scratch() as folder:
    one, joined = folder + "/one", folder + "/joined"
    run(NNAOT, EVAL / "inputs" / "joined.nn", "--passes=shard,comm,fuse,plan_memory", "-o", one)
    run(NNAOT, EVAL / "joined.nn", f"--passes=fuse,plan_memory{target}", *flags, "-o", joined, "--comm-manifest",
        folder + "/manifest")
    with open(folder + "/manifest") as f:
        predicted = predicted_traffic(json.load(f))
    want, _ = train(one, folder, threads)
    for way in ways:
        losses, sent = train(joined, folder, way)
        difference = worst_difference(losses, want)
        print(f"{way.__name__:8} largest relative difference {difference:.1e}, sent {sent}")
        if not difference < 1e-5 or sent != predicted:
            sys.exit(f"losses {losses}, not {want}; predicted were {predicted}")
