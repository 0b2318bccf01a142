"""A crash is reported with its rank, host, operation and step, of threads and processes: also an overflow of the stack, and
SIGBUS by the file at its address.  Limits of the stack end in success or in a message."""

import os
import re
import resource
import signal
import socket
import subprocess

from common import DATA, HAS_MPI, PROGRAMS, check, end, finish, folder_with_data, free_port, mpirun, run, start, train, trains

WAYS = ["threads", "TCP"] + ["MPI"] * HAS_MPI
HOST = socket.gethostname()


def crashed(way, how):
    """Returns the exit status of rank 1, None if a launcher hides it, and the errors of both ranks."""
    os.environ["CRASH"] = how
    flags = ["--steps", "8"]
    if way == "TCP":
        port = free_port()
        done = end([start("crash2", rank, 2, port, *flags, OMP_NUM_THREADS="2") for rank in range(2)])
        check(f"{way}: {how}: both ranks end", 0 not in [code for code, _ in done], done)
        return done[1][0], "".join(said for _, said in done)
    done = run("crash2", *DATA, *flags, launcher=mpirun(2) if way == "MPI" else [], env={"OMP_NUM_THREADS": "2"})
    check(f"{way}: {how}: the job ends", done.returncode != 0, done)
    return done.returncode if way == "threads" else None, done.stderr


def reported(way, how, said, number, role="its own thread"):
    code, text = crashed(way, how)
    if "Sanitizer" in text or "runtime error: " in text:  # which reports it in its own way
        return
    check(f"{way}: {how} is reported once", text.count(f"crash2: error: {said}\n") == 1, text)
    where = rf"^note: rank 1 on {re.escape(HOST)} \(pid \d+\), {role}, in 'cross_entropy  line.onnx:/loss' of step 4\nhint: "
    check(f"{way}: {how}: the rank and its operation", re.search(where, text, re.M), text)
    check(f"{way}: {how}: the exit status", code in (None, number), code, text)


def limits():
    """A rank trains in the stack that it needs, or says how much that is."""
    def limited(program, kib, hard, launcher=()):
        size = kib << 10
        return run(program, *DATA, "--steps", 5, launcher=launcher, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_STACK, (size, size if hard else resource.RLIM_INFINITY)))
    for kib in 128, 256, 512, 767, 768, 1024:
        for program, launcher in [("line1", []), ("line2", [])] + [("line2", mpirun(2))] * HAS_MPI:
            done = limited(program, kib, True, launcher)
            want = f"{program}: error: a stack of 768 KiB is needed, and the limit is {kib} KiB\nhint: ulimit -s 8192\n"
            check(f"{program} {launcher} in {kib} KiB", done.returncode == 0 if kib >= 768 else
                  done.returncode == 1 and done.stderr.count(want) == 1, done.returncode, done.stderr)
            # A limit that may be raised is.
            done = limited(program, kib, False, launcher)
            check(f"{program} {launcher} in {kib} KiB, a limit that it may raise", done.returncode == 0, done.stderr)


def truncated(way):
    """The data is truncated while it is in use."""
    os.system("cp x.npy gone.npy; rm -f log.jsonl")
    data, flags = ["--input", "x=gone.npy", *DATA[2:]], ["--steps", "100000", "--log", "log.jsonl"]
    if way == "TCP":
        port = free_port()
        jobs = [start("slow2", rank, 2, port, *flags, data=data) for rank in range(2)]
    else:
        jobs = [subprocess.Popen([*(mpirun(2) if way == "MPI" else []), PROGRAMS / "slow2", *data, *flags], text=True,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)]
    check(f"{way}: it trains", trains("log.jsonl"))
    os.truncate("gone.npy", 0)
    done = end(jobs)
    text = "".join(said for _, said in done)
    check(f"{way}: a truncated file is named", f"slow2: error: '{os.getcwd()}/gone.npy' was truncated while it was in use, or its "
          "disk cannot be read\nnote: rank " in text and "crashed" not in text, text)
    check(f"{way}: a truncated file: the exit status", 1 in [code for code, _ in done] or way == "MPI", done)


with folder_with_data():
    open("empty", "w").close()
    crash = "this process has crashed: "
    for way in WAYS:
        kib = resource.getrlimit(resource.RLIMIT_STACK)[0] >> 10
        reported(way, "stack", f"{crash}SIGSEGV, an overflow of the stack, of {kib} KiB", -signal.SIGSEGV)
        reported(way, "null", f"{crash}SIGSEGV, an access to memory that is not there", -signal.SIGSEGV)
        reported(way, "divide", f"{crash}SIGFPE, an integer division by zero", -signal.SIGFPE)
        reported(way, "abort", f"{crash}SIGABRT, the program or a library has given up", -signal.SIGABRT)
        reported(way, "bus", f"{crash}SIGBUS, an access to memory that the system cannot provide", -signal.SIGBUS)
        reported(way, "memory", f"{crash}SIGBUS, there is no memory for the memory file '/memfd:records (deleted)'", -signal.SIGBUS)
        program = os.path.realpath(PROGRAMS / "crash2")
        reported(way, "program", f"{crash}SIGBUS, its executable '{program}' was overwritten or truncated while it ran, or its "
                 "disk cannot be read", -signal.SIGBUS)
        reported(way, "empty", f"'{os.getcwd()}/empty' was truncated while it was in use, or its disk cannot be read", 1)
        reported(way, "openmp", f"{crash}SIGSEGV, an overflow of the stack, of {kib} KiB", -signal.SIGSEGV, "a thread of OpenMP")
        truncated(way)
    limits()

finish()
