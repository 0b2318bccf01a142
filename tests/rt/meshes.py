"""Several meshes: two stages train as one rank does, on any ranks and with any transport.

The program itself compares the results of moves with their messages.  LOTS in the environment is a number of further
random sets of messages.
"""

import json
import os
import signal
import socket
import time

from common import (DATA, HAS_MPI, check, end, finish, folder_with_data, free_port, log, losses, mpirun, refused, run,
                    safetensors, start, train)

PROGRAMS = {"stages2": 2, "apart4": 4, "overlap4": 4, "uneven4": 4, "late4": 4}
EVERY = ["--steps", 20, "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 7]


def files(folder):
    os.makedirs(folder, exist_ok=True)
    return ["--log", f"{folder}/log", "--save", f"{folder}/save", "--export", f"{folder}/export", "--traffic",
            f"{folder}/traffic", "--checkpoint-dir", f"{folder}/ck"]


def read(folder, name):
    with open(f"{folder}/{name}", "rb") as f:
        return f.read()


def near(a, b):
    return abs(a - b) <= 1e-5 * abs(b)


def same_training(what, got, want):
    for a, b in zip(log(f"{got}/log"), log(f"{want}/log"), strict=True):
        check(f"{what}: step {b['step']}", all(near(a[k], b[k]) for k in ("loss", "grad_norm")), a, b)
        check(f"{what}: evaluation", ("eval_loss" in a) == ("eval_loss" in b) and near(a.get("eval_loss", 0),
                                                                                      b.get("eval_loss", 0)), a, b)
    a, b = safetensors(f"{got}/save")[0], safetensors(f"{want}/save")[0]
    check(f"{what}: what no sum is in has the same bits", all(a[k] == b[k] for k in ("far", "near", "wide")))
    checkpoints = [safetensors(f"{f}/ck/step-000000000020.safetensors")[0] for f in (got, want)]
    check(f"{what}: nor of a state", checkpoints[0]["state/cut"] == checkpoints[1]["state/cut"])


def same_files(what, got, want):
    for name in "save", "export", "traffic":
        check(f"{what}: --{name}", read(got, name) == read(want, name))
    check(f"{what}: log", losses(f"{got}/log") == losses(f"{want}/log"))


with folder_with_data():
    train("stages1", *EVERY, *files("one"))
    for program, n in PROGRAMS.items():
        train(program, *EVERY, *files(program))
        same_training(program, program, "one")
        # Moves between ranks count as sent: 8 values of h and e a slice, and the random messages.
        kinds = {s["kind"] for s in json.load(open(f"{program}/traffic"))["sends"]}
        check(f"{program}: what is sent has moves", "move" in kinds, kinds)
        train(program, *EVERY, *files(f"{program}-again"))
        same_files(f"{program} again", f"{program}-again", program)
        port = free_port()
        done = end([start(program, i, n, port, *EVERY, *files(f"{program}-tcp")) for i in range(n)])
        check(f"{program} on sockets", [code for code, _ in done] == [0] * n, done)
        same_files(f"{program} on sockets", f"{program}-tcp", program)
        if HAS_MPI:
            train(program, *EVERY, *files(f"{program}-mpi"), launcher=mpirun(n))
            same_files(f"{program} by MPI", f"{program}-mpi", program)

    # A checkpoint of one plan can be loaded by any.
    for before, after in ("apart4", "stages1"), ("stages1", "overlap4"), ("uneven4", "apart4"), ("overlap4", "stages2"):
        os.system("rm -rf ck")
        train(before, "--steps", 9, "--checkpoint-dir", "ck")
        train(after, "--steps", 20, "--checkpoint-dir", "ck", "--resume", "--log", "resumed", "--save", "resumed.st")
        pairs = zip(log("resumed"), log("one/log")[9:], strict=True)
        check(f"{after} goes on from {before}", all(near(a[k], b[k]) for a, b in pairs for k in ("loss", "grad_norm")))
        a, b = safetensors("resumed.st")[0], safetensors("one/save")[0]
        check(f"{after} goes on from {before}: weights", all(a[k] == b[k] for k in ("far", "near", "wide")))

    # Other random messages, with each transport.
    for lots in range(2, 2 + int(os.environ.get("LOTS", 3))):
        env = {"LOTS": str(lots)}
        for program in PROGRAMS:
            train(program, "--steps", 2, env=env)
        if HAS_MPI:
            train("overlap4", "--steps", 2, env=env, launcher=mpirun(4))
        port = free_port()
        done = end([start("apart4", i, 4, port, "--steps", 2, **env) for i in range(4)])
        check(f"lots {lots} on sockets", [code for code, _ in done] == [0] * 4, done)

    said = json.loads(run("overlap4", "--describe").stdout)
    check("--describe lists the meshes", said["meshes"]["first"] == {"axes": {"dp": 2, "mb": 2}, "ranks": [3, 1]} and
          list(said["meshes"]) == ["all", "first", "second", "third"], said)

    refused("slabs that do not fit", "needs 4.0 TiB of memory for 4 ranks of up to 2.0 TiB, there are", "huge4", *DATA)
    check("--describe says what the largest has", json.loads(run("huge4", "--describe").stdout)["bytes_per_rank"] > 2**41)

    # The trace has the steps of all ranks, each its own operations.
    train("apart4", "--steps", 2, "--trace", "t.json")
    events = [e for e in json.load(open("t.json"))["traceEvents"] if e["ph"] == "X"]
    check("all ranks are traced", {e["pid"] for e in events} == {0, 1, 2, 3}, events[:3])

    # A rank that fails is named, and ends the ranks that wait for its messages.
    said = "rank 3, step 4: sub  line.onnx:/loss: a library call failed: made to fail"
    refused("a failing rank", said, "stop4", *DATA)
    if HAS_MPI:
        done = run("stop4", *DATA, launcher=mpirun(4), timeout=20)
        check("a failing process is named", done.returncode != 0 and said in done.stderr, done)
    port = free_port()
    done = end([start("stop4", i, 4, port) for i in range(4)])
    check("all end when one fails", all(code == 1 for code, _ in done) and said in done[3][1], done)

    # A stopped rank is waited for until --stall-timeout.
    port = free_port()
    jobs = [start("apart4", i, 4, port, "--steps", 10**8, "--stall-timeout", 2, "--log", "stall") for i in range(4)]
    while not (os.path.exists("stall") and open("stall").read().count("\n") > 5):
        time.sleep(0.05)
    jobs[2].send_signal(signal.SIGSTOP)
    done = end(jobs[:1])
    check("a stopped rank ends the job, and is named", done[0][0] == 1 and "no progress for 2 seconds (--stall-timeout): "
          f"rank 2 on {socket.gethostname()} (pid {jobs[2].pid}) is stopped by a signal; it" in done[0][1], done)
    jobs[2].kill()
    end(jobs[1:])

finish()
