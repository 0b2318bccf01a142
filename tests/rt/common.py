"""Helpers of the runtime's tests: small arrays as .npy, runs, and checks that name their invariant.

Standard library only.  PROGRAMS names the folder of the programs.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

if "PROGRAMS" not in os.environ:
    sys.exit("PROGRAMS is not set: it names the folder of the programs, as in PROGRAMS=build/tests/rt")
PROGRAMS = pathlib.Path(os.environ["PROGRAMS"]).absolute()
CODES = {"<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "<u2": "H", "<u4": "I", "|u1": "B"}
failures = 0


def needs(*paths):
    """Ends the script if a program is missing."""
    for path in paths:
        if not os.path.exists(path):
            sys.exit(f"{path} is missing: build it, or name its folder by PROGRAMS or BUILD")


def check(what, ok, *shown):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {what}", *shown, sep="\n  ")


def finish():
    print(f"{failures} checks failed" if failures else "all checks passed")
    sys.exit(failures > 0)


def npy(path, values, shape, descr="<f4", fortran=False, version=1, header=None, body=None):
    """Writes an array as numpy.save does, or an invalid variant of that."""
    text = header or "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" % (
        descr, fortran, "".join(f"{n}, " for n in shape))
    start = 10 if version == 1 else 12
    text += " " * (-(start + len(text) + 1) % 64) + "\n"
    order = descr[0] if descr[0] in "<>" else "<"
    code = CODES.get("<" + descr[1:], CODES.get(descr, "B"))
    data = struct.pack(f"{order}{len(values)}{code}", *values) if body is None else body
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    pathlib.Path(path).write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + text.encode("latin1") + data)


@contextlib.contextmanager
def folder_with_data(rows=100):
    """Changes to a scratch folder with x.npy and y.npy: a linear function and some noise."""
    rng = random.Random(3)
    here = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="nnaot-rt-") as folder:
        os.chdir(folder)
        x = [rng.gauss(0, 1) for _ in range(rows * 5)]
        y = [round(sum(a * b for a, b in zip(x[5 * i:], (1, -2, 3, 0.5, 2)))) for i in range(rows)]
        npy("x.npy", x, (rows, 5))
        npy("y.npy", y, (rows,), "<i8")
        try:
            yield pathlib.Path(folder)
        finally:
            os.chdir(here)


DATA = ["--input", "x=x.npy", "--input", "labels=y.npy"]


def run(program, *flags, launcher=(), env=None, timeout=60, **kw):
    """Runs a program to its end; returns the result of subprocess.run.  A hang is a failure."""
    command = [*launcher, str(PROGRAMS / program), *map(str, flags)]
    # mpirun does not end on SIGTERM while it waits for a lost process: kill the whole group.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **(env or {})}, start_new_session=True, **kw)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        check(f"{' '.join(command)} ends", False, out, err)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def train(program, *flags, data=DATA, **kw):
    """Runs a program that must succeed."""
    done = run(program, *data, *flags, **kw)
    check(f"{program} {flags} succeeds", done.returncode == 0, done.returncode, done.stdout, done.stderr)
    return done


def refused(what, said, program, *flags, status=1, launcher=(), **kw):
    """Runs a program that must fail with this status and message.  A launcher has a status of its own: of a rank that
    failed, or of a rank that it killed because another one failed."""
    done = run(program, *flags, launcher=launcher, **kw)
    failed = done.returncode != 0 if launcher else done.returncode == status
    check(f"{what}: exit status {status}", failed, done.returncode, done.stdout, done.stderr)
    check(f"{what}: says '{said}'", said in done.stderr, done.stderr)
    return done


def mpirun(n):
    return ["mpirun", "-n", str(n)]


def free_port():
    """Returns a random port below those that the kernel assigns: other tests run at the same time."""
    while True:
        port = random.SystemRandom().randrange(10000, 32768)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def start(program, rank, world, port, *flags, data=DATA, **more):
    """Starts one process as torchrun would."""
    env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}
    return subprocess.Popen([PROGRAMS / program, *data, *map(str, flags)], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(jobs):
    """Returns the exit status and errors of processes that must end."""
    result = []
    for job in jobs:
        try:
            out, err = job.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            job.kill()
            out, err = job.communicate()
            check("a job of processes ends", False, out, err)
        result.append((job.returncode, err))
    return result


def ranks_of(job, n):
    """Returns the processes of an mpirun by rank."""
    found = {}
    begin = time.monotonic()
    while len(found) < n and job.poll() is None and time.monotonic() < begin + 30:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = open(f"/proc/{pid}/environ", "rb").read()
                program = os.readlink(f"/proc/{pid}/exe").startswith(str(PROGRAMS))
                if program and os.readlink(f"/proc/{pid}/cwd") == os.getcwd():
                    found[int(re.search(rb"PMI_RANK=(\d+)|OMPI_COMM_WORLD_RANK=(\d+)", environ)[1])] = int(pid)
            except (OSError, TypeError):
                pass
        time.sleep(0.05)
    return found


def all_end(pids):
    """Whether these processes end within some seconds."""
    def runs(pid):
        try:
            return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    begin = time.monotonic()
    while any(map(runs, pids)) and time.monotonic() < begin + 10: time.sleep(0.05)
    return not any(map(runs, pids))


def trains(path, lines=5):
    """Waits until a log has so many lines more."""
    begin = time.monotonic()
    lines += open(path).read().count("\n") if os.path.exists(path) else 0
    while not (os.path.exists(path) and open(path).read().count("\n") >= lines):
        if time.monotonic() - begin > 30: return False
        time.sleep(0.02)
    return True


HAS_MPI = shutil.which("mpirun") is not None


def log(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def losses(path):
    return [(line["step"], line["loss"], line["grad_norm"]) for line in log(path)]


def losses_of(path):
    """Returns the loss of each step, with that of evaluation if present, of a program without a gradient norm."""
    return tuple((line["loss"], line.get("eval_loss")) for line in log(path))


def safetensors(path):
    """Returns {name: (dtype, shape, bytes)} and the metadata."""
    raw = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    meta = header.pop("__metadata__", {})
    at = lambda t: raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
    return {k: (t["dtype"], t["shape"], at(t)) for k, t in header.items()}, meta
