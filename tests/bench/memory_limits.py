#!/usr/bin/env python3
"""Runs programs under limits of memory, from too little to enough: each ends in success or in a message.

    memory_limits.py [--step 1] [--results FILE.jsonl]     all limits of the address space, in steps of so many MiB, until 40 in
                                                           a row are enough
    memory_limits.py --stack [--results FILE.jsonl]        limits of the stack, from 64 to 8192 KiB in steps of a tenth, also of
                                                           nnaot and its tools
    memory_limits.py --check                               a test of CI: a few limits of each kind

The limits are those of `ulimit -v`, which executables have, of processes all or one, and of `ulimit -s`, once as a limit that
the program may raise.  The outcomes:

    done        trained, with exit status 0
    loader      the dynamic linker could not start the program, and says so
    message     exit status 1 after an error of the runtime about memory, threads or a lost rank; of the stack, a crash that is
                called its overflow, or a C compiler that failed
    launcher    mpirun itself could not run
    other       exit status 1 after another error
    CRASH       a signal, or no message
    HANG        not ended after two minutes
"""

import argparse
import collections
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import (BUILD, NNAOT, SAMPLES, check, compile_in_a_hurry, compile_sample, data_flags, finish, free_port,  # noqa: E402
                    scratch)

# Name, plan, ranks, the ranks that are processes and have the limit; none: all are threads.
CASES = [
    ("one rank", "dp", 1, []),
    ("two threads", "tp", 2, []),
    ("four threads, stages", "pp=2,dp=2", 4, []),
    ("two processes", "dp", 2, [0, 1]),
    ("two processes, rank 0 limited", "dp", 2, [0]),
    ("two processes, rank 1 limited", "dp", 2, [1]),
]
BAD = ("CRASH", "HANG", "other")
ABOUT = ("memory", "cannot start", "cannot connect", "Thread creation failed", "lost", "gone", "closed", "ended", "did not come",
         "tcp: rank")
MIB = 1 << 20


def start(exe, ranks, limited, limit):
    command = [str(x) for x in (exe, *data_flags("mlp"), "--steps", 3, "--connect-timeout", 10)]
    jobs, port = [], free_port()
    for rank in range(ranks if limited else 1):
        env = {**os.environ, "OMP_NUM_THREADS": "2", "LC_ALL": "C"}
        if limited:
            env.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        has_it = not limited or rank in limited
        jobs.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                     preexec_fn=limit if has_it else None))
    return jobs


def outcome(job):
    try:
        err = job.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        job.kill()
        return "HANG", job.communicate()[1]
    lines = [line for line in err.splitlines() if "error" in line or "libgomp: " in line]
    if job.returncode == 0:
        return "done", ""
    if job.returncode == 127 and "error while loading shared libraries" in err:
        return "loader", err
    if job.returncode != 1 or not lines or "terminate called" in err:
        return "CRASH", err
    return "message" if any(word in line.replace("Memory", "memory") for line in lines for word in ABOUT) else "other", err


def run_limited(exe, ranks, limited, mib):
    return worst(exe, ranks, limited, lambda: resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB)))


def worst(exe, ranks, limited, limit):
    """The worst outcome of the processes, and what they said."""
    for _ in range(3):
        found = [outcome(job) for job in start(exe, ranks, limited, limit)]
        # Another program took the port meanwhile.
        if not any("Address already in use" in err for _, err in found):
            break
    order = ["done", "loader", "message", "other", "CRASH", "HANG"]
    return max(found, key=lambda f: order.index(f[0]))[0], "".join(err for _, err in found)


def compiled(folder, plan, ranks):
    exe = folder / f"{plan.replace('=', '').replace(',', '_')}.{ranks}"
    if not exe.exists():
        compile_sample("mlp", exe, ranks=ranks, extra=["--plan", plan, "--micro-batches", 2])
    return exe


def sweep(folder, step, results):
    done = {}
    if results and results.exists():
        done = {(row["case"], row["mib"]): row for row in map(json.loads, results.read_text().splitlines())}
    for name, plan, ranks, limited in CASES:
        exe, good, counts, enough = compiled(folder, plan, ranks), 0, collections.Counter(), None
        # Where one rank alone is refused by the loader, the others wait for it.
        mib = 8 if len(limited) in (0, ranks) else 52
        while good < 40 and mib < 2048:
            row = done.get((name, mib))
            if not row:
                what, said = run_limited(exe, ranks, limited, mib)
                row = dict(case=name, mib=mib, outcome=what, said=said[-1500:])
                if results:
                    with results.open("a") as out:
                        out.write(json.dumps(row) + "\n")
            counts[row["outcome"]] += 1
            check(f"{name}, {mib} MiB: {row['outcome']}", row["outcome"] not in BAD, row["said"])
            good = good + 1 if row["outcome"] == "done" else 0
            enough = (enough or mib) if good else None
            mib += step
        print(f"{name:32} enough: {enough} MiB  " + "  ".join(f"{what} {counts[what]}" for what in counts))


def some(folder):
    """A few limits around the one that is enough, found by bisection."""
    for name, plan, ranks, limited in CASES[:4]:
        exe, least, most = compiled(folder, plan, ranks), 32, 1024
        seen = set()
        while most - least > 4:
            mib = (least + most) // 2
            what, said = run_limited(exe, ranks, limited, mib)
            seen.add(what)
            check(f"{name}, {mib} MiB: {what}", what not in BAD, said)
            least, most = (least, mib) if what == "done" else (mib, most)
        for mib in range(max(8, most - 40), most, 4):
            what, said = run_limited(exe, ranks, limited, mib)
            seen.add(what)
            check(f"{name}, {mib} MiB: {what}", what not in BAD, said)
        check(f"{name}: the limits are below and above what is enough", {"done", "message"} <= seen, seen)


# ---- limits of the stack


def stack_cases(folder):
    """Names and functions of a limit: each returns the outcome and the errors."""
    model, solve = SAMPLES / "mlp/mlp.onnx", pathlib.Path(__file__).resolve().parents[1] / "solver/inputs/five.json"
    ir = folder / "mlp.nn"
    train = ["--batch", 16, "--loss", "cross_entropy(logits)", "-g", 2]

    def program(*command):
        def limited(limit):
            env = {**os.environ, "OMP_NUM_THREADS": "2", "LC_ALL": "C"}
            return stack_outcome(subprocess.Popen([str(x) for x in command], env=env, cwd=folder, stdout=subprocess.DEVNULL,
                                                  stderr=subprocess.PIPE, text=True, preexec_fn=limit, start_new_session=True))
        return limited

    def over_tcp(limit):
        jobs = [stack_outcome(job) for job in start(compiled(folder, "dp", 2), 2, [0, 1], limit)]
        return max(jobs, key=lambda f: STACK_ORDER.index(f[0]))[0], "".join(err for _, err in jobs)

    assert program(NNAOT, model, *train, "--emit", "nn", "-o", ir)(lambda: None)[0] == "done"
    steps = [*data_flags("mlp"), "--steps", 3]
    cases = {
        "nnaot, an executable": program(NNAOT, model, *train, "--plan", "auto", "-o", folder / "made"),
        "nnaot, its program": program(NNAOT, model, *train, "--plan", "auto", "--emit", "nn", "-o", folder / "made.nn"),
        "nnaot-opt": program(BUILD / "bin/nnaot-opt", ir, "-o", folder / "again.nn"),
        "nnaot-eval": program(BUILD / "bin/nnaot-eval", ir, "--kernels", "cpu"),
        "nnaot-plan": program(BUILD / "bin/nnaot-plan", "solve", solve),
        "one rank": program(compiled(folder, "dp", 1), *steps),
        "two threads": program(compiled(folder, "tp", 2), *steps),
        "two processes": over_tcp,
    }
    if shutil.which("mpirun"):
        cases["two processes of MPI"] = program("mpirun", "-n", 2, compiled(folder, "dp", 2), *steps)
    return cases


STACK_ORDER = ["done", "message", "launcher", "CRASH", "HANG"]


def stack_outcome(job):
    try:
        err = job.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        job.kill()
        return "HANG", job.communicate()[1]
    if job.returncode == 0:
        return "done", err
    said = ("a stack of ", "an overflow of the stack", "the C compiler ")
    if "error: " in err and any(text in err for text in said):
        return "message", err
    if job.args[0] == "mpirun" and "[mpiexec@" in err:
        return "launcher", err
    # A rank is told that another has ended.
    return ("message" if job.returncode == 1 and "error: " in err and any(word in err for word in ABOUT) else "CRASH"), err


def stacks(folder, limits, results=None):
    done = {}
    if results and results.exists():
        done = {(row["case"], row["kib"], row["hard"]): row for row in map(json.loads, results.read_text().splitlines())}
    for name, limited in stack_cases(folder).items():
        counts = collections.Counter()
        for hard in True, False:
            for kib in limits:
                row = done.get((name, kib, hard))
                if not row:
                    bytes_of = (kib << 10, kib << 10 if hard else resource.RLIM_INFINITY)
                    what, said = limited(lambda: resource.setrlimit(resource.RLIMIT_STACK, bytes_of))
                    row = dict(case=name, kib=kib, hard=hard, outcome=what, said=said[-1500:])
                    if results:
                        with results.open("a") as out:
                            out.write(json.dumps(row) + "\n")
                counts[row["outcome"]] += 1
                check(f"{name}, a stack of {kib} KiB, {'hard' if hard else 'soft'}: {row['outcome']}", row["outcome"] not in BAD,
                      row["said"])
                # The default limit, and one that is raised to what is needed, are enough.
                enough = kib >= 8192 or (not hard and kib >= 128)
                check(f"{name}, a stack of {kib} KiB is enough", not enough or row["outcome"] == "done", row["said"])
        print(f"{name:32} " + "  ".join(f"{what} {counts[what]}" for what in counts))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--step", type=int, default=1)
    p.add_argument("--results", type=pathlib.Path)
    p.add_argument("--stack", action="store_true")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        if a.check:
            some(folder)
            stacks(folder, [64, 128, 256, 768, 8192])
        elif a.stack:
            stacks(folder, sorted({64, 8192, 768, *(int(64 * 1.1 ** i) for i in range(51))}), a.results)
        else:
            sweep(folder, a.step, a.results)
        finish()


main()
