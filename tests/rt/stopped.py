"""A rank that stops, hangs or never comes is named by the others, with its machine, process and last operation.

Over threads, TCP and MPI.  Ranks of several machines are those with host names of their own, and skipped without permission
for that.
"""

import os
import re
import signal
import socket
import subprocess
import time

from common import (DATA, HAS_MPI, PROGRAMS, all_end, check, end, finish, folder_with_data, free_port, mpirun, ranks_of,
                    refused, run, start, trains)

MACHINE = socket.gethostname()
LIMIT = 25  # seconds; the ranks wait 2, and have 3 for each answer


def named(what, err, rank, host, pid, condition, op):
    who = rf"rank {rank} on {host} \(pid {pid}\)"
    check(f"{what}: the rank is named", re.search(
        rf"no progress for 2 seconds \(--stall-timeout\): {who} {condition}{op}$", err, re.M), err)


OP = r"; (its last operation is '(linear|all_reduce|cross_entropy)  [^']+' of step \d+|it has begun no operation of step \d+)"
STALL = ["--steps", 10**8, "--stall-timeout", 2]

with folder_with_data():
    # ---- a rank that computes for ever
    hang = "; its last operation is 'cross_entropy  line.onnx:/loss' of step 4"
    for n in 2, 4:
        done = refused(f"a thread of {n} that hangs", "", f"hang{n}", *DATA, "--stall-timeout", 2, timeout=LIMIT)
        named(f"threads {n}", done.stderr, n - 1, MACHINE, r"\d+", "has not come to this communication", hang)
        port = free_port()
        jobs = [start(f"hang{n}", i, n, port, "--stall-timeout", 2) for i in range(n)]
        for i, (code, err) in enumerate(end(jobs)):
            check(f"TCP: rank {i} of {n} ends", code == 1, code, err)
            named(f"TCP {n}, rank {i}", err, n - 1, MACHINE, jobs[n - 1].pid, "has not come to this communication", hang)
        if HAS_MPI:
            done = refused(f"a process of {n} that hangs", "", f"hang{n}", *DATA, "--stall-timeout", 2, launcher=mpirun(n),
                           timeout=LIMIT)
            named(f"MPI {n}", done.stderr, n - 1, MACHINE, r"\d+", "has not come to this communication", hang)

    # ---- a process that is stopped
    for n, program in (2, "slow2"), (4, "line4"):
        for victim in {0, n - 1}:
            port, log = free_port(), f"tcp{n}{victim}.jsonl"
            jobs = [start(program, i, n, port, *STALL, *(["--log", log] if i == 0 else [])) for i in range(n)]
            check("TCP: it trains", trains(log))
            jobs[victim].send_signal(signal.SIGSTOP)
            others = [job for job in jobs if job is not jobs[victim]]
            for i, (code, err) in enumerate(end(others)):
                check(f"TCP: {i} of {n} ends", code == 1, code, err)
                # Without rank 0 no rank hears the reason of another that ends first.
                by_another = rf"is gone: .*, and rank 0 on {MACHINE} \(pid {jobs[0].pid}\) is stopped by a signal$"
                if victim == 0 and re.search(by_another, err, re.M): continue
                named(f"TCP: {i} of {n}", err, victim, MACHINE, jobs[victim].pid, "is stopped by a signal", OP)
            jobs[victim].send_signal(signal.SIGCONT)
            code, err = end(jobs[victim:victim + 1])[0]
            check("TCP: the stopped rank ends once it goes on", code == 1, code, err)
            if not HAS_MPI: continue
            log = f"mpi{n}{victim}.jsonl"
            job = subprocess.Popen([*mpirun(n), PROGRAMS / program, *DATA, *map(str, STALL), "--log", log], text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
            pids = ranks_of(job, n)
            check("MPI: it trains", trains(log))
            os.kill(pids[victim], signal.SIGSTOP)
            code, err = end([job])[0]
            check(f"MPI: {n} end", code != 0, code, err)
            named(f"MPI: {n}", err, victim, MACHINE, pids[victim], "is stopped by a signal", OP)
            check("MPI: no process is left", all_end(pids.values()), pids)

    # A debugger, or a machine that sleeps, stops all of them for longer than the timeout.
    port = free_port()
    jobs = [start("slow2", i, 2, port, *STALL, *(["--log", "all.jsonl"] if i == 0 else [])) for i in range(2)]
    check("it trains", trains("all.jsonl"))
    for job in jobs: job.send_signal(signal.SIGSTOP)
    time.sleep(4)
    for job in jobs: job.send_signal(signal.SIGCONT)
    check("all were stopped: training goes on", trains("all.jsonl", 50), [job.poll() for job in jobs])
    for job in jobs: job.send_signal(signal.SIGTERM)
    check("and ends in order", [code for code, _ in end(jobs)] == [0, 0])

    # ---- ranks of several machines are asked
    own_names = ["unshare", "--uts", "sh", "-c", 'hostname "host$RANK$PMI_RANK" && exec "$@"', "sh"]
    if subprocess.run([*own_names, "true"], capture_output=True).returncode == 0:
        for victim in 0, 2:
            port, log = free_port(), f"hosts{victim}.jsonl"
            env = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            jobs = [subprocess.Popen([*own_names, PROGRAMS / "line4", *DATA, *map(str, STALL), *(["--log", log] if i == 0 else [])],
                                     env={**os.environ, **env, "RANK": str(i)}, text=True, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE) for i in range(4)]
            check("hosts: it trains", trains(log))
            jobs[victim].send_signal(signal.SIGSTOP)
            for i, (code, err) in enumerate(end([job for job in jobs if job is not jobs[victim]])):
                who = rf"rank {victim} on host{victim} \(pid {jobs[victim].pid}\) does not answer"
                check(f"hosts: {i} ends, and names rank {victim}", code == 1 and re.search(who, err), code, err)
            jobs[victim].kill()
            end(jobs[victim:victim + 1])
            if not HAS_MPI: continue
            log = f"mpihosts{victim}.jsonl"
            job = subprocess.Popen([*mpirun(4), *own_names, PROGRAMS / "line4", *DATA, *map(str, STALL), "--log", log], text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
            pids = ranks_of(job, 4)
            check("MPI hosts: it trains", trains(log))
            os.kill(pids[victim], signal.SIGSTOP)
            code, err = end([job])[0]
            named("MPI hosts", err, victim, f"host{victim}", pids[victim], "does not answer",
                  ": it, its machine or the network is stopped")
            check("MPI hosts: no process is left", code != 0 and all_end(pids.values()), code, pids)
        port = free_port()
        env["MASTER_PORT"] = str(port)
        jobs = [subprocess.Popen([*own_names, PROGRAMS / "hang4", *DATA, "--stall-timeout", "2"],
                                 env={**os.environ, **env, "RANK": str(i)}, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE) for i in range(4)]
        for i, (code, err) in enumerate(end(jobs)):
            check(f"hosts: rank {i} ends", code == 1, code, err)
            named(f"hosts: rank {i}", err, 3, "host3", jobs[3].pid, "has not come to this communication", hang)
        if HAS_MPI:
            done = refused("a process on another host that hangs", "", "hang4", *DATA, "--stall-timeout", 2,
                           launcher=[*mpirun(4), *own_names], timeout=LIMIT)
            named("MPI hosts", done.stderr, 3, "host3", r"\d+", "has not come to this communication", hang)

    # ---- ranks that do not come
    def script(text):
        with open("late.sh", "w") as f:
            f.write(f'#!/bin/sh\nif [ "$RANK$PMI_RANK" = 1 ]; then {text}; fi\nexec "$@"\n')
        os.chmod("late.sh", 0o755)

    def begin_tcp(*flags):
        port = free_port()
        env = {**os.environ, "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return [subprocess.Popen(["./late.sh", PROGRAMS / "line3", *DATA, *flags], env={**env, "RANK": str(i)}, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(3)], port

    late = ["--connect-timeout", "2"]
    for what, text, condition in [
        ("ends at once", "exit 0", "has ended, or was never started"), ("fails", "exit 3", "has ended, or was never started"),
        ("does not start", "sleep 8; exit", rf"on {MACHINE} \(pid \d+\) has not called MPI_Init"),
        ("is killed as it starts", "kill -9 $$", "has ended, or was never started"),
        ("is stopped as it starts", "kill -STOP $$", rf"on {MACHINE} \(pid \d+\) is stopped by a signal"),
    ]:
        script(text)
        jobs, port = begin_tcp(*late)
        for i, (code, err) in enumerate(end([jobs[0], jobs[2]])):
            said = f"rank 1 did not come to 127.0.0.1:{port} within 2 s (--connect-timeout)"
            check(f"TCP: rank 1 {what}: another ends", code == 1 and said in err, code, err)
        jobs[1].kill()
        end(jobs[1:2])
        if not HAS_MPI: continue
        for _ in range(5):
            done = run("line3", *DATA, *late, launcher=[*mpirun(3), "./late.sh"], timeout=LIMIT)
            # Hydra's mpiexec may fail itself when a process ends while it connects.
            if "assert (!closed) failed" not in done.stderr: break
        # Hydra notices a signal, and names the process itself.
        by_launcher = "kill -9" in text and "Killed (signal 9)" in done.stdout
        check(f"MPI: rank 1 {what}", done.returncode != 0 and (by_launcher or re.search(
            rf"error: not all ranks have come within 2 s \(--connect-timeout\): rank 1 {condition}$", done.stderr, re.M)), done)
    # A bad flag of one rank ends that one, and the others in time.
    script('exec "$@" --none')
    jobs, port = begin_tcp(*late)
    done = end(jobs)
    check("TCP: a bad flag of one rank", [code for code, _ in done] == [1, 2, 1] and "there is no option '--none'" in done[1][1] and
          all("rank 1 did not come to " in done[i][1] for i in (0, 2)), done)
    if HAS_MPI:
        done = run("line3", *DATA, *late, launcher=[*mpirun(3), "./late.sh"], timeout=LIMIT)
        check("MPI: a bad flag of one rank", done.returncode != 0 and "not understood: there is no option '--none' at rank 1" in
              done.stderr, done)

finish()
