"""Schedules: in any order of segments on the ranks, a step has the results of slice by slice.

turns.c draws programs and orders; `turns.py 0 500` tries so many.
"""

import json
import os
import sys
import time

from common import HAS_MPI, check, end, finish, folder_with_data, free_port, losses_of, mpirun, start, train

FIRST, COUNT = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 12)
EVERY = ["--steps", 3, "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 2]


def result(name):
    """Returns the losses of steps and evaluations, and the traffic."""
    return losses_of(f"{name}.log"), json.load(open(f"{name}.traffic"))


def files(name):
    for kind in "log", "traffic":
        if os.path.exists(f"{name}.{kind}"):
            os.remove(f"{name}.{kind}")
    return ["--log", f"{name}.log", "--traffic", f"{name}.traffic"]


with folder_with_data():
    different = set()
    for i in range(FIRST, FIRST + COUNT):
        ranks = 4 if i % 4 else 2
        program = f"turns{ranks}"
        train(program, *EVERY, *files("plain"), env={"PROGRAM": str(i), "ORDER": "0"})
        want = result("plain")
        different.add(want[0][0])
        for order in range(1, 6):
            env = {"PROGRAM": str(i), "ORDER": str(100 * i + order)}
            how = {"launcher": mpirun(ranks)} if HAS_MPI and order == 4 and i % 3 == 0 else {}
            if order == 5 and i % 3 == 1:
                port = free_port()
                flags = files("got")
                done = end([start(program, rank, ranks, port, *EVERY, *flags, **env) for rank in range(ranks)])
                check(f"{env} on sockets", [code for code, _ in done] == [0] * ranks, done)
            else:
                train(program, *EVERY, *files("got"), env=env, **how)
            check(f"{program} {env}: the step of slice by slice", result("got") == want, result("got"), want)
    check("programs differ", len(different) == COUNT, different)

    # The trace shows the segments of each rank with their slices, in the order of its schedule.
    env = {"PROGRAM": "1", "ORDER": "1"}
    train("turns4", "--steps", 2, "--trace", "t.json", env=env)
    spans = [e for e in json.load(open("t.json"))["traceEvents"] if e["ph"] == "X"]
    for rank in range(4):
        mine = [e for e in spans if e["cat"] == "segment" and e["pid"] == rank and e["args"]["step"] == 1]
        mine.sort(key=lambda e: e["ts"])
        slices = {}
        for e in mine:
            slices.setdefault(e["name"], []).append(e["args"]["micro_batch"])
        check("a trace has every slice of every segment in order", slices
              and all(s == list(range(6)) for s in slices.values()), slices)
    turns = [e["args"]["micro_batch"] for e in spans if e["cat"] == "segment"]
    check("slices are mixed in this order", turns != sorted(turns), turns)
    moves = [e for e in spans if e["cat"] == "comm" and e["name"] == "move"]
    check("a trace says of which micro-batch a move is", {e["args"]["micro_batch"] for e in moves} == set(range(6)), moves[:3])

    # A rank that is gone is noticed while others compute.
    port = free_port()
    jobs = [start("turns4", i, 4, port, "--steps", 10**8, "--log", "lost", PROGRAM="1", ORDER="2") for i in range(4)]
    while not (os.path.exists("lost") and open("lost").read().count("\n") > 5):
        time.sleep(0.05)
    jobs[3].kill()
    done = end(jobs)
    check("ranks end when one is gone", all(code != 0 for code, _ in done), done)
finish()
