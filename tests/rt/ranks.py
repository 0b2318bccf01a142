"""Ranks: threads and processes give the same bits; a rank that fails ends the job and is named.

The program itself checks the results of its collectives, element by element.
"""

import os
import pathlib
import signal
import subprocess
import time

from common import DATA, HAS_MPI, PROGRAMS, check, finish, folder_with_data, losses, mpirun, refused, run, train


# The message of MPI_Abort may be lost: the launcher ends at once.
RECORDER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>
int MPI_Abort(void *comm, int status) {
  close(open("aborted", O_CREAT | O_WRONLY, 0600));
  return ((int (*)(void *, int))dlsym(RTLD_NEXT, "MPI_Abort"))(comm, status);
}
"""


def recorder():
    """Makes an MPI library in the current folder that leaves a file when MPI_Abort is called."""
    hydra = "HYDRA" in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    pathlib.Path("recorder.c").write_text(RECORDER)
    subprocess.run(["cc", "-shared", "-fPIC", "recorder.c", "-o", "recorder.so", "-Wl,--no-as-needed",
                    "-l:libmpich.so.12" if hydra else "-l:libmpi.so.40", "-ldl"], check=True)
    return str(pathlib.Path("recorder.so").resolve())


def descendants(pid, name):
    """Returns the descendants of `pid` with this name."""
    parents, names = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat, command = (folder / "stat").read_text(), (folder / "cmdline").read_bytes()
        except OSError:
            continue
        this = int(folder.name)
        names[this] = os.path.basename(command.split(b"\0")[0].decode())
        parents[this] = int(stat[stat.rindex(")"):].split()[2])

    def below(this):
        while this in parents and this != pid:
            this = parents[this]
        return this == pid

    return sorted(this for this in names if names[this] == name and below(this))


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


with folder_with_data():
    for n in 1, 2, 4:
        train(f"line{n}", "--steps", 30, "--log", f"{n}.jsonl", "--save", f"{n}.st")
    one = losses("1.jsonl")
    for n in 2, 4:
        d = max(abs(a[1] - b[1]) / abs(b[1]) for a, b in zip(losses(f"{n}.jsonl"), one))
        check(f"{n} ranks train as one does", d < 1e-5, d)
        for turn in range(3):
            train(f"line{n}", "--steps", 30, "--save", "again.st")
            check(f"{n} ranks: the same bits again", open("again.st", "rb").read() == open(f"{n}.st", "rb").read())
    # The number of micro-batches differs, so sums are grouped differently, with little effect.
    train("line4whole", "--steps", 30, "--log", "whole.jsonl")
    d = max(abs(a[1] - b[1]) / abs(b[1]) for a, b in zip(losses("whole.jsonl"), one))
    check("one micro-batch is as good as two", d < 1e-5, d)

    done = refused("a failing rank", "rank 1, step 4: cross_entropy  line.onnx:/loss: a library call failed: made to fail",
                   "fail2", *DATA)
    done = refused("a loss that never was a number", "step 1: the loss is not a number", "nan1", *DATA)
    check("a learning rate that did nothing yet is not to blame", "in the data" in done.stderr and "--lr" not in done.stderr,
          done.stderr)
    refused("slabs that do not fit", "needs 4.0 TiB of memory for 2 ranks of 2.0 TiB, there are", "huge2", *DATA)
    refused("a loss that is not a number", "step 4: the loss is not a number", "nan2", *DATA, "--save", "nan.st",
            "--log", "nan.jsonl")
    check("nothing is saved of it", not os.path.exists("nan.st"))
    check("but it is in the log, as null", losses("nan.jsonl")[3][1] is None)

    if HAS_MPI:
        for n in 2, 4:
            train(f"line{n}", "--steps", 30, "--log", "m.jsonl", "--save", "m.st", "--traffic", "m.json", launcher=mpirun(n))
            train(f"line{n}", "--steps", 30, "--traffic", "t.json")
            check(f"{n} processes send what {n} threads do", open("m.json").read() == open("t.json").read())
            check(f"{n} processes give the bits of {n} threads", open("m.st", "rb").read() == open(f"{n}.st", "rb").read())
            check(f"{n} processes log the same", losses("m.jsonl") == losses(f"{n}.jsonl"))
        done = run("fail2", *DATA, launcher=mpirun(2), timeout=20, env={"NNRT_MPI_LIBRARY": recorder()})
        check("a failing process is named", done.returncode != 0 and "rank 1, step 4: cross_entropy" in done.stderr, done)
        check("it ends the job by MPI_Abort", pathlib.Path("aborted").exists(), done)
        done = run("nan2", *DATA, launcher=mpirun(2), timeout=20)
        check("all processes stop", done.returncode != 0 and done.stderr.count("not a number") == 1, done)

        # A process that lacks a file ends the job even if the others are already waiting.
        with open("one.sh", "w") as f:
            f.write('#!/bin/sh\nif [ "$PMI_RANK" = 1 ]; then exec "$@" --input x=no.npy; else exec "$@" --input x=x.npy; fi\n')
        os.chmod("one.sh", 0o755)
        done = run("line2", "--input", "labels=y.npy", launcher=[*mpirun(2), "./one.sh"], timeout=20)
        check("a rank without its data is named", done.returncode != 0 and "rank 1: error" in done.stderr
              and "no.npy" in done.stderr, done)

        # A process that is killed does not leave the other waiting.
        job = subprocess.Popen([*mpirun(2), PROGRAMS / "slow2", *DATA, "--steps", "100000"], start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        ranks = descendants(job.pid, "slow2")
        check("two processes run", len(ranks) == 2, ranks)
        os.kill(ranks[1], signal.SIGKILL)
        try:
            check("a killed process ends the job", job.wait(20) != 0)
        except subprocess.TimeoutExpired:
            check("a killed process ends the job", False)
        check("no process is left", not descendants(job.pid, "slow2") and not any(map(alive, ranks)))
        try:
            os.killpg(job.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

finish()
