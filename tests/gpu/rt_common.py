"""tests/rt/common.py for programs on the emulator, or on GPUs with GPU=1: rt_line.c in several kinds, and the same for
the CPU."""

import os
import pathlib
import sys

sys.path.insert(0, os.environ["COMMON"])
import common  # noqa: E402
from common import *  # noqa: E402,F401,F403

EMULATED = os.environ.get("GPU") != "1"  # the environment determines the GPUs
GPUS = 1000 if EMULATED else int(os.environ.get("GPUS", 1))
ONE_GPU = {} if EMULATED else {"CUDA_VISIBLE_DEVICES": "0"}
CPU = pathlib.Path(os.environ["CPU_PROGRAMS"])

if not EMULATED:  # a machine with a GPU may have no mpirun, or one that refuses to run as root
    def mpirun(n):
        return [sys.executable, str(pathlib.Path(__file__).with_name("ranks.py")), str(n)]

HAS_PROCESSES = common.HAS_MPI or not EMULATED


def transport(done):
    """The transport of processes of a job, by their messages: NCCL has none."""
    return "staged" if "some ranks share a gpu" in done.stderr else "NCCL"


def nccl_takes(n):
    """Whether `n` processes have a GPU each, which NCCL requires.  With too few GPUs this prints a message: the processes would
    use host memory, and passing would not test NCCL."""
    if HAS_PROCESSES and GPUS >= n:
        return True
    print(f"not tested: NCCL on {n} gpus ({GPUS if HAS_PROCESSES else 'no mpirun'} here)")
    return False


def nccl_train(n, program, *flags, env=None):
    """A run of `n` processes that must succeed, with NCCL."""
    done = train(program, *flags, launcher=mpirun(n), env={"EMULATED_GPUS": str(n), **(env or {})})
    check(f"{program} {flags} talks by NCCL", transport(done) == "NCCL", done.stderr)
    return done


def distance(a, b):
    """The largest relative difference of two logs' losses and norms; infinite if anything is NaN or infinite."""
    worst = 0.0
    for x, y in zip(common.losses(a), common.losses(b), strict=True):
        for p, q in zip(x[1:], y[1:]):
            d = abs(p - q) / abs(q) if p is not None and q is not None else float("inf")
            worst = max(worst, d if d == d else float("inf"))
    return worst
