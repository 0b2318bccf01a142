"""Many jobs pending together, of all kinds, sizes and groups: every rank gets the bits of jobs one after another.

pending.c draws the jobs and compares every result; `pending.py 0 500` tries so many sequences.
"""

import json
import os
import random
import re
import signal
import sys
import time

from common import HAS_MPI, check, end, finish, folder_with_data, free_port, mpirun, start, train

FIRST, COUNT = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 3)
PROGRAMS = {"pending2": 2, "pending3": 3, "pending4": 4, "pending6": 6}
STEPS = ["--steps", 3]


def by_sockets(program, n, *flags, **env):
    port = free_port()
    return [start(program, rank, n, port, *flags, **env) for rank in range(n)]


def lines_of(path):
    return open(path).read().count("\n") if os.path.exists(path) else 0


def interrupted(program, number, rank, *flags):
    """Sends a signal to a rank amid steps of many jobs; returns the status and errors of the others."""
    if os.path.exists("log"):
        os.remove("log")
    jobs = by_sockets(program, PROGRAMS[program], "--steps", 10**8, "--log", "log", *flags, JOBS="300")
    until = time.monotonic() + 30
    while lines_of("log") < 3 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(random.random() * 0.1)
    jobs[rank].send_signal(number)
    others = end([job for i, job in enumerate(jobs) if i != rank])
    jobs[rank].kill()
    jobs[rank].communicate()
    return others


with folder_with_data():
    for i in range(FIRST, FIRST + COUNT):
        for program, n in PROGRAMS.items():
            # Fewer jobs than a window has, and more; those of pending2 fill the queue.
            env = {"SEED": str(i), "JOBS": str([60, 5, 1500 if n == 2 else 300][i % 3])}
            train(program, *STEPS, env=env)
            done = end(by_sockets(program, n, *STEPS, **env))
            check(f"{program} {env} on sockets", [code for code, _ in done] == [0] * n, done)
            if HAS_MPI:
                train(program, *STEPS, env=env, launcher=mpirun(n))

    # The trace has every job, one after the other.
    train("pending3", "--steps", 2, "--trace", "threads.json", env={"JOBS": "30"})
    check("3 ranks write a trace", all(code == 0 for code, _ in
                                       end(by_sockets("pending3", 3, "--steps", 2, "--trace", "tcp.json", JOBS="30"))))
    events = [[e for e in json.load(open(f))["traceEvents"] if e["ph"] == "X" and e["cat"] == "comm"]
              for f in ("threads.json", "tcp.json")]
    names = [sorted((e["pid"], e["tid"], e["name"]) for e in each) for each in events]
    check("processes trace the jobs of threads", names[0] == names[1], len(names[0]), len(names[1]))
    for track in {(e["pid"], e["tid"]) for e in events[1]}:
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events[1] if (e["pid"], e["tid"]) == track)
        # Times are written in microseconds with three digits.
        check(f"events of thread {track} do not overlap", all(a[1] <= b[0] + 0.01 for a, b in zip(spans, spans[1:])), spans)

    # A rank that dies, or stops, among many jobs is named by all others.
    for program in "pending4", "pending3":
        rank = random.randrange(PROGRAMS[program])
        others = interrupted(program, signal.SIGKILL, rank)
        check(f"{program}: rank {rank} is killed", all(code == 1 and re.search(rf"error: .*\brank {rank}\b.* is gone", err)
                                                      for code, err in others), others)
    rank = random.randrange(4)
    others = interrupted("pending4", signal.SIGSTOP, rank, "--stall-timeout", 2)
    check(f"rank {rank} is stopped", all(code == 1 and re.search(rf"error: .*\brank {rank}\b.* is stopped by a signal", err)
                                        for code, err in others), others)

finish()
