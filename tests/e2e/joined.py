"""Collectives over two axes together: eight ranks train as one does.

    joined.py            for processors: threads, MPI and TCP
    joined.py cuda       on the emulator: threads, and NCCL under both launchers

The program is ../eval/joined.nn.  What a step sends is what nnaot predicts.
"""

import json
import os
import random
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
    """As torchrun starts them."""
    port = random.SystemRandom().randrange(10000, 32768)  # none that the kernel gives to other tests
    common = {**os.environ, "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    all_ranks = [subprocess.Popen(command, env={**common, "RANK": str(i), "LOCAL_RANK": str(i)},
                                  stdout=subprocess.DEVNULL) for i in range(RANKS)]
    if any([process.wait(timeout=100) for process in all_ranks]):
        sys.exit("a process failed")


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
