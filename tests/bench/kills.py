#!/usr/bin/env python3
"""Kills ranks at random times, and stops them: none may be lost, hang the others, or stay without a name.

    kills.py [--kills 1000] [--stops 200] [--seed 0] [--jobs 2] [--results FILE.jsonl]
    kills.py --check     a slice, as a test

A job of two to four ranks, as threads, processes of TCP or of MPI, trains for a second with many checkpoints. A kill is SIGKILL of
one rank at a random time: as ranks start and gather, in training, or while a checkpoint is written.  The others must end; then
the job resumes, and must have the weights of an uninterrupted run, bit by bit. A stop is SIGSTOP of a rank, a rank that never
comes, or a thread that computes for ever, with --stall-timeout 3 and --connect-timeout 3: the others must end, and name the rank.
Results are appended to FILE, and a second run with it continues.  The outcomes:

    resumed     a kill: all ended, and the resumed run has the bits of an uninterrupted one
    named       a stop: all others ended, and named the rank
    over        the job had ended before
    LOST        the resumed run failed, or has other bits, or left a temporary file
    HUNG        some rank did not end in time
    UNNAMED     no rank named the one that was killed, or stopped

The exit status is 1 if there is one in capitals.  PROGRAMS is the folder of the programs of tests/rt.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rt"))
from common import DATA, HAS_MPI, PROGRAMS, folder_with_data, free_port, needs  # noqa: E402

LIMIT = 60  # seconds in which all ranks must end; they wait 3, and the machine may be busy
BAD = ("LOST", "HUNG", "UNNAMED")
JOBS = {"slow2": (2, 150), "line3": (3, 60), "line4": (4, 60)}  # ranks, steps
TRANSPORTS = ["threads", "tcp"] + ["mpi"] * HAS_MPI
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
# A script of MPI's ranks tells their pids, which exec keeps; WAIT holds one of them back.
RANK = """#!/bin/sh
echo $$ > pid.$PMI_RANK.tmp && mv pid.$PMI_RANK.tmp pid.$PMI_RANK
if [ "$PMI_RANK" = "$LATE" ]; then sleep 1000; fi
exec "$@"
"""


class Job:
    """The processes of one run in a folder."""

    def __init__(self, folder, transport, program, *flags, late=None):
        self.folder, self.transport, self.n = folder, transport, int(program[-1])
        command = [PROGRAMS / program, *DATA, *map(str, flags)]
        quiet = dict(cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
        self.files, self.processes = [], []
        for name in folder.glob("pid.*"): name.unlink()

        def begin(command, **env):
            self.files.append(tempfile.TemporaryFile())
            self.processes.append(subprocess.Popen(command, env={**ENVIRONMENT, **env}, stderr=self.files[-1], **quiet))

        if transport == "threads":
            begin(command)
        elif transport == "mpi":
            (folder / "rank.sh").write_text(RANK)
            (folder / "rank.sh").chmod(0o755)
            begin(["mpirun", "-n", str(self.n), "./rank.sh", *command], LATE=str(late))
        else:
            port = str(free_port())
            for rank in range(self.n):
                env = {"RANK": str(rank), "WORLD_SIZE": str(self.n), "LOCAL_WORLD_SIZE": str(self.n), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": port}
                begin(["sleep", "1000"] if rank == late else command, **env)

    def pid(self, rank):
        """The process of a rank; None: it has none yet."""
        if self.transport != "mpi": return self.processes[rank if self.transport == "tcp" else 0].pid
        path = self.folder / f"pid.{rank}"
        return int(path.read_text()) if path.exists() else None

    def wait(self, without=None):
        """Waits for all processes but that of one rank of TCP; returns whether they ended in time."""
        until = time.monotonic() + LIMIT
        for rank, process in enumerate(self.processes):
            if self.transport == "tcp" and rank == without: continue
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
        return True

    def pids(self):
        return [pid for pid in map(self.pid, range(self.n)) if pid]

    def end(self):
        """Ends what is left."""
        pids = self.pids() if self.transport == "mpi" else []
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        for pid in pids:
            try:
                if os.readlink(f"/proc/{pid}/cwd") == str(self.folder): os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def said(self, without=None):
        texts = []
        for rank, file in enumerate(self.files):
            if self.transport == "tcp" and rank == without: continue
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return texts

    def codes(self):
        return [process.returncode for process in self.processes]


class Created:
    """Waits for the next file in a folder that begins with a dot: a checkpoint that is being written."""

    def __init__(self, folder):
        self.libc = ctypes.CDLL(None)
        self.file = self.libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self.libc.inotify_add_watch(self.file, os.fsencode(folder), 0x100)  # IN_CREATE

    def wait(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if select.select([self.file], [], [], until - time.monotonic())[0] and b"\0.step" in b"\0" + os.read(self.file, 65536):
                return True
        return False

    def close(self):
        os.close(self.file)


def lines_of(path):
    return path.read_text().count("\n") if path.exists() else 0


def reach(job, rank, phase, rng):
    """Waits until the job is in the phase, at a random time of it; returns the process of the rank."""
    log, until = job.folder / "log", time.monotonic() + 30
    if phase == "checkpoint":
        created = Created(job.folder / "ck")
        for _ in range(rng.randrange(1, 4)): created.wait(20)
        created.close()
        time.sleep(rng.random() * 0.002)
    elif phase == "training":
        goal = rng.randrange(1, 40)
        while lines_of(log) < goal and time.monotonic() < until and any(p.poll() is None for p in job.processes): time.sleep(0.003)
        time.sleep(rng.random() * 0.005)
    else:
        time.sleep(rng.random() * (0.5 if job.transport == "mpi" else 0.15))
    while job.pid(rank) is None and time.monotonic() < until: time.sleep(0.003)
    return job.pid(rank)


def temporaries(folder):
    """The files of a checkpoint that is being written, or was as its writer was killed."""
    return [name for name in os.listdir(folder / "ck") if name.startswith(".") and name != ".lock"]


def phase_of(job):
    """The phase that a job is in."""
    if temporaries(job.folder): return "checkpoint"
    return "training" if lines_of(job.folder / "log") else "start"


def kill(folder, straight, transport, program, phase, rng):
    steps, rank = JOBS[program][1], rng.randrange(JOBS[program][0])
    flags = ["--steps", steps, "--checkpoint-dir", "ck", "--checkpoint-every", rng.choice([1, 3, 7]), "--keep", 2,
             "--save", "out.st", "--connect-timeout", 3]
    (folder / "ck").mkdir()
    job = Job(folder, transport, program, *flags, "--log", "log")
    pid = reach(job, rank, phase, rng)
    phase = phase_of(job)
    try:
        if pid: os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    ended = job.wait()
    codes, said = job.codes(), job.said(rank)
    job.end()
    shown = {"phase": phase, "rank": rank, "codes": codes, "said": "".join(said)[-3000:]}
    if not ended: return {**shown, "outcome": "HUNG"}
    over = not any(codes)
    # Others of TCP name the rank that has ended; MPI's launcher ends the others, and threads are one process.
    if transport == "tcp" and not over and not any(re.search(rf"error: .*\brank {rank}\b", text) for text in said):
        return {**shown, "outcome": "UNNAMED"}
    if not over:
        (folder / "out.st").unlink(missing_ok=True)
        again = Job(folder, transport, program, *flags, "--resume")
        ended = again.wait()
        codes, said = again.codes(), again.said()
        again.end()
        if not ended: return {**shown, "outcome": "HUNG", "resumed": "".join(said)[-3000:]}
        left = temporaries(folder)
        same = (folder / "out.st").exists() and (folder / "out.st").read_bytes() == straight[program]
        if any(codes) or left or not same: return {**shown, "outcome": "LOST", "left": left, "resumed": "".join(said)[-3000:]}
    return {**shown, "outcome": "over" if over else "resumed"}


def stop(folder, straight, transport, program, phase, rng):
    n = JOBS[program][0]
    rank, limits = rng.randrange(n), ["--stall-timeout", 3, "--connect-timeout", 3, "--steps", 10**8]
    (folder / "ck").mkdir()
    if transport == "threads":
        rank, phase = (n if n != 3 else 4) - 1, "hangs"
        job, pid = Job(folder, transport, f"hang{rank + 1}", *limits), None
    else:
        job = Job(folder, transport, program, *limits, "--log", "log", "--checkpoint-dir", "ck", "--checkpoint-every", 2,
                  late=rank if phase == "missing" else None)
        pid = None if phase == "missing" else reach(job, rank, phase, rng)
    if phase not in ("missing", "hangs"): phase = phase_of(job)
    if pid: os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    ended = job.wait(without=rank)
    seconds, said = time.monotonic() - began, job.said(rank)
    went_on = True
    if ended and pid and transport == "tcp":
        # The stopped rank ends by itself once it goes on.
        os.kill(pid, signal.SIGCONT)
        went_on = job.wait()
    codes = job.codes()
    job.end()
    shown = {"phase": phase, "rank": rank, "codes": codes, "seconds": round(seconds, 1), "said": "".join(said)[-3000:]}
    if not ended or not went_on: return {**shown, "outcome": "HUNG"}
    if all(code == 0 for code in codes): return {**shown, "outcome": "over"}
    # After the ranks have met with machine and process, else by its number.
    met = phase in ("training", "checkpoint")
    who = rf"\brank {rank}\b" + (rf" on {re.escape(socket.gethostname())} \(pid \d+\)" if met else "")
    named = [text for text in said if re.search(rf"error: .*{who}", text)]
    return {**shown, "outcome": "named" if named and (transport != "tcp" or len(named) == len(said)) else "UNNAMED"}


def case_of(kind, seed, i):
    """The transport, program, phase and random numbers of case i."""
    rng = random.Random(f"{kind} {seed} {i}")
    transport = TRANSPORTS[i % len(TRANSPORTS)]
    program = rng.choice(list(JOBS))
    phases = ["start", "training", "checkpoint"] + ["missing"] * (kind == "stop")
    return transport, program, phases[i // len(TRANSPORTS) % len(phases)], rng


def run_case(kind, seed, i, data, straight):
    transport, program, phase, rng = case_of(kind, seed, i)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nnaot-kills-"))
    try:
        for name in ("x.npy", "y.npy"): shutil.copy(data / name, folder)
        result = (kill if kind == "kill" else stop)(folder, straight, transport, program, phase, rng)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if result["outcome"] not in BAD: result.pop("said")
    return {"kind": kind, "seed": seed, "i": i, "transport": transport, "program": program, "meant": phase, **result}


def table(results):
    count = collections.Counter((r["kind"], r["transport"], r["phase"], r["outcome"]) for r in results)
    print(f"{'kind':6} {'transport':10} {'phase':11} {'outcome':9} cases")
    for row, n in sorted(count.items()): print(f"{row[0]:6} {row[1]:10} {row[2]:11} {row[3]:9} {n}")
    slowest = max((r["seconds"] for r in results if "seconds" in r), default=0)
    bad = sum(r["outcome"] in BAD for r in results)
    print(f"{len(results)} cases, {bad} bad; the slowest stop was named after {slowest} s")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--stops", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    needs(*(PROGRAMS / program for program in [*JOBS, "hang2", "hang4"]))
    if options.check: options.kills, options.stops = 6, 3
    found = options.results and options.results.exists()
    results = [json.loads(line) for line in options.results.read_text().splitlines()] if found else []
    done = {(r["kind"], r["seed"], r["i"]) for r in results}
    cases = [("kill", options.seed, i) for i in range(options.kills)] + [("stop", options.seed, i) for i in range(options.stops)]
    with folder_with_data() as data, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        straight = {}
        for program, (_, steps) in JOBS.items():
            job = Job(data, "threads", program, "--steps", steps, "--save", f"{program}.st")
            if not job.wait() or any(job.codes()): sys.exit(f"{program} does not train: {job.said()}")
            straight[program] = (data / f"{program}.st").read_bytes()
        pending = [pool.submit(run_case, *case, data, straight) for case in cases if case not in done]
        for future in concurrent.futures.as_completed(pending):
            results.append(result := future.result())
            if result["outcome"] in BAD: print(json.dumps(result, indent=1), flush=True)
            if options.results:
                with options.results.open("a") as f: f.write(json.dumps(result) + "\n")
    sys.exit(table(results) > 0)


main()
