"""Schedules on GPUs: tests/rt/turns.c as on the CPU, slice by slice, with every transport.

`rt_turns.py 0 50` tries 50 programs.
"""

import json
import os
import sys

from rt_common import (CPU, HAS_PROCESSES, ONE_GPU, check, finish, folder_with_data, losses_of, mpirun, nccl_takes, train,
                       transport)

FIRST, COUNT = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 3)
EVERY = ["--steps", 5, "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 2]
FILES = ["--log", "log", "--traffic", "traffic"]


def result(program, way=None, **how):
    os.system("rm -f log traffic")
    done = train(program, *EVERY, *FILES, **how)
    if "launcher" in how:
        check(f"{program}: they talk by {way}", transport(done) == way.split(",")[0], done.stderr)
    return losses_of("log"), json.load(open("traffic"))


with folder_with_data():
    for i in range(FIRST, FIRST + COUNT):
        ranks = 4 if i % 2 else 2
        want = result(CPU / f"turns{ranks}", env={"PROGRAM": str(i), "ORDER": "0"})
        for order in 0, 2 * i + 1, 2 * i + 2:
            env = {"PROGRAM": str(i), "ORDER": str(order)}
            ways = [("threads on one gpu", {"env": env}), ("on two", {"env": {**env, "EMULATED_GPUS": "2"}})]
            if HAS_PROCESSES:
                ways += [("staged", {"launcher": mpirun(ranks), "env": {**env, **ONE_GPU}})]
            if nccl_takes(ranks):
                own = {**env, "EMULATED_GPUS": str(ranks)}
                ways += [("NCCL", {"launcher": mpirun(ranks), "env": own}),
                         ("NCCL, not recorded", {"launcher": mpirun(ranks), "env": {**own, "CUDA_LAUNCH_BLOCKING": "1"}})]
            for way, how in ways:
                got = result(f"gpu_turns{ranks}", way, **how)
                check(f"{env}, {way}: as on processors", got == want, got, want)
    env = {"PROGRAM": "1", "ORDER": "1"}
    train("gpu_turns4", "--steps", 2, "--trace", "t.json", env=env)
    spans = [e for e in json.load(open("t.json"))["traceEvents"] if e["ph"] == "X"]
    slices = {e["args"]["micro_batch"] for e in spans if e["cat"] == "segment"}
    check("a trace says which slice segments and moves are of", slices == set(range(6)) and
          {e["args"]["micro_batch"] for e in spans if e["cat"] == "comm" and e["name"] == "move"} == slices, spans[:3])
finish()
