"""SIGTERM and SIGINT finish the step, save, and end with 0; a second one ends at once.  SIGUSR1 and SIGHUP save a checkpoint
and training goes on; SIGQUIT prints the stacks of all ranks and ends."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time

from common import (DATA, HAS_MPI, PROGRAMS, check, end, finish, folder_with_data, free_port, losses, mpirun, ranks_of, run,
                    safetensors, start, train, trains)

with folder_with_data():
    def stopped(which, program="slow2", launcher=(), second=None):
        os.system("rm -rf ck log.jsonl stop.st")
        job = subprocess.Popen([*launcher, PROGRAMS / program, *DATA, "--steps", "100000", "--checkpoint-dir", "ck",
                                "--save", "stop.st", "--log", "log.jsonl"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
        while not (os.path.exists("log.jsonl") and os.path.getsize("log.jsonl")):
            time.sleep(0.01)
        job.send_signal(which)
        if second: job.send_signal(second)
        try:
            err = job.communicate(timeout=30)[1]
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            err = "does not end: " + job.communicate()[1]
        return job.returncode, err

    for which in signal.SIGTERM, signal.SIGINT:
        for program in "slow1", "slow2":
            code, err = stopped(which, program)
            check(f"{program}: {which.name} is no failure", code == 0 and f"stopped by {which.name} after" in err, code, err)
            done = len(losses("log.jsonl"))
            check("the checkpoint is of the last step", os.listdir("ck") == [f"step-{done:012}.safetensors"], os.listdir("ck"))
            state, _ = safetensors(f"ck/step-{done:012}.safetensors")
            saved, _ = safetensors("stop.st")
            check("--save is of the last step", saved["w"] == state["weight/w"])
            train(program, "--steps", done + 3, "--resume", "--checkpoint-dir", "ck", "--log", "log.jsonl")
            check("and it goes on from there", [s for s, _, _ in losses("log.jsonl")] == list(range(done + 3)))
    # A second signal at once, as of a launcher and its scheduler, is the same request.
    code, err = stopped(signal.SIGTERM, second=signal.SIGTERM)
    check("two signals at once are one", code == 0 and "stopped by SIGTERM after" in err, code, err)
    # In a step that does not end.
    os.system("rm -f log.jsonl")
    job = subprocess.Popen([PROGRAMS / "hang2", *DATA, "--log", "log.jsonl"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           text=True)
    trains("log.jsonl", 3)
    time.sleep(2)  # the fourth step has begun
    for number in signal.SIGTERM, signal.SIGINT:
        job.send_signal(number)
    time.sleep(2.5)
    check("they do not end it at once", job.poll() is None, job.poll())
    job.send_signal(signal.SIGINT)
    (code, err), = end([job])
    check("a later one does", code == 128 + signal.SIGINT, code, err)
    if HAS_MPI:
        code, err = stopped(signal.SIGTERM, launcher=mpirun(2))
        check("SIGTERM to mpirun stops all ranks, and saves", err.count("stopped by SIGTERM") == 1 and
              len(os.listdir("ck")) == 1 and os.path.exists("stop.st"), code, err)

    # A signal that another process has sent is said, and no access to memory; it has its usual effect.
    for number in signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT:
        said = f"{number.name}, which process {os.getpid()} has sent\n"
        job = subprocess.Popen([PROGRAMS / "slow1", *DATA, "--steps", "100000", "--log", "crash.jsonl"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        while not (os.path.exists("crash.jsonl") and os.path.getsize("crash.jsonl")):
            time.sleep(0.01)
        job.send_signal(number)
        err = job.communicate(timeout=30)[1]
        # A sanitizer reports SIGSEGV itself.
        check(f"{number.name} is said", f"slow1: error: this process was ended by {said}" in err
              and "an access to memory" not in err and job.returncode == -number or number != signal.SIGABRT and "Sanitizer" in err, job.returncode, err)
        os.remove("crash.jsonl")

    # USR1 and HUP save a checkpoint, and training goes on: on any rank of any transport.
    def begin(way, *flags, n=2):
        program = f"slow{n}"
        os.system("rm -rf ck log.jsonl")
        flags = ["--steps", "100000", "--log", "log.jsonl", *flags]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        if way == "TCP":
            port = free_port()
            jobs = [start(program, i, n, port, *flags) for i in range(n)]
            pids = [job.pid for job in jobs]
        else:
            launcher = mpirun(n) if way == "MPI" else []
            jobs = [subprocess.Popen([*launcher, PROGRAMS / program, *DATA, *flags], **quiet)]
            pids = [pid for _, pid in sorted(ranks_of(jobs[0], n).items())] if launcher else [jobs[0].pid]
        check(f"{way}: it trains", trains("log.jsonl"))
        return jobs, pids

    def checkpoints():
        return sorted(name for name in os.listdir("ck") if name.startswith("step-")) if os.path.exists("ck") else []

    def wait_until(what):
        until = time.monotonic() + 30
        while not what() and time.monotonic() < until: time.sleep(0.02)
        return what()

    for way in ["threads", "TCP"] + ["MPI"] * HAS_MPI:
        jobs, pids = begin(way, "--checkpoint-dir", "ck", "--keep", "9")

        def saves(pid, which, n):
            os.kill(pid, which)
            check(f"{way}: {which.name} saves", wait_until(lambda: len(checkpoints()) == n), checkpoints())
            check(f"{way}: {which.name}: training goes on", trains("log.jsonl"))

        saves(pids[0], signal.SIGUSR1, 1)
        # The same signal reaches another rank, steps later: that is one request.
        if pids[-1] != pids[0]:
            os.kill(pids[-1], signal.SIGUSR1)
            check(f"{way}: training goes on after both", trains("log.jsonl"))
        saves(pids[-1], signal.SIGHUP, 2)
        # A signal long after it is another one.
        time.sleep(6)
        saves(pids[-1], signal.SIGUSR1, 3)
        saved = [int(name[5:17]) for name in checkpoints()]
        os.kill(pids[0], signal.SIGTERM)
        said = "".join(err for _, err in end(jobs))
        for which, step in zip(["SIGUSR1", "SIGHUP", "SIGUSR1"], saved):
            check(f"{way}: {which} is noted", f"note: {which}: saved a checkpoint after step {step}\n" in said, said)
        check(f"{way}: each is noted once", said.count(": saved a checkpoint after step ") == 3, said)
        # A checkpoint that a signal asked for is that of an uninterrupted run.
        train("slow2", "--steps", saved[1], "--save", "straight.st")
        state, _ = safetensors(f"ck/step-{saved[1]:012}.safetensors")
        check(f"{way}: the bits", safetensors("straight.st")[0]["w"] == state["weight/w"])

    # mpirun passes a signal on to all ranks, which get it in different steps.
    if HAS_MPI:
        jobs, pids = begin("MPI", "--checkpoint-dir", "ck", "--keep", "99", n=4)
        for i in range(20):
            jobs[0].send_signal(signal.SIGUSR1)
            check("MPI: a signal to mpirun saves", wait_until(lambda: len(checkpoints()) > i), checkpoints())
            check("MPI: training goes on after it", trains("log.jsonl"))
            check(f"MPI: signal {i + 1} to mpirun is one checkpoint", len(checkpoints()) == i + 1, checkpoints())
        jobs[0].send_signal(signal.SIGTERM)
        end(jobs)

    jobs, pids = begin("threads")
    os.kill(pids[0], signal.SIGUSR1)
    check("without a folder training goes on", trains("log.jsonl", 50))
    os.kill(pids[0], signal.SIGTERM)
    code, said = end(jobs)[0]
    check("without a folder there is a warning", code == 0 and said.count(
        "warning: SIGUSR1 asks for a checkpoint, but there is no --checkpoint-dir: training goes on\n") == 1, code, said)

    # A terminal that is closed sends HUP, and output fails: training goes on, also under nohup.
    for nohup in [], ["nohup"]:
        os.system("rm -rf ck log.jsonl")
        terminal, other = os.openpty()
        job = subprocess.Popen(["setsid", "--ctty", *nohup, PROGRAMS / "slow2", *DATA, "--steps", "3000", "--log", "log.jsonl",
                                "--checkpoint-dir", "ck"], stdin=other, stdout=other, stderr=other)
        os.close(other)
        check("it trains at a terminal", trains("log.jsonl"))
        os.close(terminal)
        check(f"{nohup} it goes on without its terminal", job.wait(60) == 0 and len(losses("log.jsonl")) == 3000, job.returncode)
        check(f"{nohup} it saves on HUP unless that is ignored", len(checkpoints()) == (1 if nohup else 2), checkpoints())

    # QUIT: the stacks of all ranks, and the end.
    for way in ["threads", "TCP"] + ["MPI"] * HAS_MPI:
        jobs, pids = begin(way, "--checkpoint-dir", "ck")
        os.kill(pids[-1], signal.SIGQUIT)
        done = end(jobs)
        said = "".join(err for _, err in done)
        ended = [code == 128 + signal.SIGQUIT or (way == "MPI" and code) for code, _ in done]
        check(f"{way}: SIGQUIT ends the job", all(ended), done)
        for i in range(2):
            head = rf"^slow2: rank {i} on {socket.gethostname()} \(pid \d+\), its own thread(, in '[a-z_]+  [^']+')? of step \d+$"
            check(f"{way}: rank {i} says what it does", len(re.findall(head, said, re.M)) == 1, said)
            check(f"{way}: the communicating thread of rank {i}", f"slow2: rank {i} on" in said and
                  said.count("its communicating thread") == 2, said)
            frames = re.findall(rf"^slow2: rank {i}: \S*slow2\(\S*\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]$", said, re.M)
            check(f"{way}: the stack of rank {i}", len(frames) >= 4, said)
        check(f"{way}: no file is left", set(os.listdir("ck")) <= {".lock"}, os.listdir("ck"))

    # A thread hangs in the dynamic linker, with its lock: the others still have stacks.
    libraries = [os.path.abspath(name) for name in ("loads.so", "hangs.so")]
    compiler = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-pthread", "-D_GNU_SOURCE",
                pathlib.Path(__file__).resolve().parent / "hanging_linker.c", "-ldl"]
    built = [subprocess.run([*compiler, *more, "-o", library], capture_output=True).returncode == 0
             for library, more in zip(libraries, ([], ["-DINNER"]))]
    env = {**os.environ, "LD_PRELOAD": libraries[0], "HANGING_LIBRARY": libraries[1], "HANGING_FILE": os.path.abspath("hangs"),
           "GOMP_SPINCOUNT": "1000"}
    # Sanitizers do not start under a library that is loaded before them.
    if all(built) and run("slow2", "--version", env=env).returncode == 0:
        os.system("rm -f log.jsonl hangs")
        job = subprocess.Popen([PROGRAMS / "slow2", *DATA, "--steps", "100000", "--log", "log.jsonl"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env=env)
        check("a thread hangs", trains("log.jsonl") and wait_until(lambda: os.path.exists("hangs")))
        begun = time.monotonic()
        job.send_signal(signal.SIGQUIT)
        (code, said), = end([job])
        check("the job ends in a few seconds", code == 128 + signal.SIGQUIT and time.monotonic() - begun < 20, code, said)
        for i in range(2):
            frames = re.findall(rf"^slow2: rank {i}: \S*slow2\(\S*\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]$", said, re.M)
            check(f"rank {i} has a stack meanwhile", len(frames) >= 4, said)
        check("functions of libraries have names", "(clock_nanosleep+0x" in said or "(pthread_cond_wait+0x" in said or
              "(start_thread+0x" in said or re.search(r"libc\.so\.6\([a-z_]+\+0x", said), said)

finish()
