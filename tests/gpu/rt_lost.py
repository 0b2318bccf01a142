"""A rank that is killed or stopped ends the job: the other reports it, with its rank, and the collective if it waits in one."""

import os
import re
import signal
import subprocess
import time

from rt_common import DATA, EMULATED, PROGRAMS, check, finish, folder_with_data, free_port


def start(program, *flags):
    """Two processes as torchrun starts them, each with a GPU; without a launcher, which would end one for the other."""
    port = free_port()
    both = []
    for rank in range(2):
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "EMULATED_GPUS": "2", "OMP_NUM_THREADS": "1"}
        both.append(subprocess.Popen([PROGRAMS / program, *DATA, "--steps", "100000000", "--log", "log.jsonl", *flags],
                                     env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    # After steps are replayed.
    until = time.time() + 60
    while time.time() < until and not (os.path.exists("log.jsonl") and open("log.jsonl").read().count("\n") > 20):
        time.sleep(0.05)
    return both


def end(process, seconds):
    try:
        return process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return "it did not end: " + process.communicate()[1]


with folder_with_data():
    for program in "gpu_line2", "gpu_line2whole", "gpu_stages2":
        for lost in 0, 1:
            for how in signal.SIGKILL, signal.SIGSTOP:
                # A killed rank is noticed long before the time limit.
                both = start(program, "--stall-timeout", "2" if how == signal.SIGSTOP else "100")
                os.kill(both[lost].pid, how)
                began = time.time()
                said = end(both[1 - lost], 30)
                seconds = time.time() - began
                both[lost].kill()
                both[lost].communicate()
                os.remove("log.jsonl")
                what = f"{program}, rank {lost} gets {how.name}"
                check(f"{what}: the other fails", both[1 - lost].returncode == 1, both[1 - lost].returncode, said)
                check(f"{what}: says who it is and when", re.search(rf"rank {1 - lost}, step \d+: ", said), said)
                check(f"{what}: says why", "communication failed" in said and
                      (re.search(rf"no progress for 2 seconds \(--stall-timeout\): rank {lost} on \S+ \(pid \d+\) is stopped", said)
                       if how == signal.SIGSTOP else re.search(rf"rank {lost} on \S+ \(pid \d+\) is gone", said)), said)
                check(f"{what}: in some seconds", seconds < 15, seconds)
                # If it waits in the GPU it names the collective; it may also have been between two steps.
                where = r"(all_reduce  grads of /fc|move  [a-z ]+): communication failed: " + r"collective \d+: " * EMULATED
                check(f"{what}: names the collective", "between operations" in said or re.search(where, said), said)
finish()
