"""--node starts the ranks of a host: one status, signals for all, and no process is left, whatever ends first."""

import os
import pathlib
import signal
import subprocess
import time

from common import DATA, PROGRAMS, check, end, finish, folder_with_data, free_port, refused, train


def start(program, node, port, *flags, host="127.0.0.1", **more):
    more.setdefault("env", {**os.environ})
    return subprocess.Popen([PROGRAMS / program, *DATA, "--node", node, "--master", f"{host}:{port}", *map(str, flags)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def ranks_of(job, n):
    """Waits for n children of the job; returns them in the order of their start, which is that of the ranks."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = sorted(int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*") if parent_of(path.name) == job.pid)
        if len(found) == n:
            return found
        time.sleep(0.02)
    check("ranks have started", False, found)
    return found


def state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "-"


def gone(what, pids):
    until = time.monotonic() + 10
    while time.monotonic() < until and any(state(pid) not in "-Z" for pid in pids):
        time.sleep(0.02)
    check(f"{what}: no process is left", all(state(pid) in "-Z" for pid in pids), [state(pid) for pid in pids])


def trains(log, steps=3):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if os.path.exists(log) and open(log).read().count("\n") >= steps:
            return
        time.sleep(0.02)
    check("it trains", False)


def training(program, *flags, n=2):
    """Starts all ranks of a long run on one node, and waits for its first steps."""
    pathlib.Path("log").unlink(missing_ok=True)
    job = start(program, "0/1", free_port(), "--steps", 10**8, "--log", "log", *flags)
    trains("log")
    return job, ranks_of(job, n)


with folder_with_data():
    # The bits of threads, with 2 hosts of 2, 1 of 4 and 4 of 1.
    train("line4", "--steps", 20, "--save", "threads.st")
    for hosts, host in (2, "127.0.0.1"), (1, "localhost"), (4, "[::1]"):
        pathlib.Path("node.st").unlink(missing_ok=True)
        port = free_port()
        done = end([start("line4", f"{i}/{hosts}", port, "--steps", 20, "--save", "node.st", host=host)
                    for i in reversed(range(hosts))])
        check(f"{hosts} hosts, {host}: they train", [code for code, _ in done] == [0] * hosts, done)
        check(f"{hosts} hosts, {host}: the bits of threads",
              pathlib.Path("node.st").read_bytes() == pathlib.Path("threads.st").read_bytes())
    # One host needs no --master; one rank, too.
    train("line2", "--node", "0/1", "--steps", 3)
    train("line1", "--node", "0/1", "--steps", 3)

    # TERM, and INT of a terminal to all processes of its group, finish the step; ranks get it once.
    for number in signal.SIGTERM, signal.SIGINT:
        job, ranks = training("slow2", "--checkpoint-dir", f"ck{number}")
        job.send_signal(number)
        (code, said), = end([job])
        check(f"{number.name}: it stops", code == 0 and f"stopped by {number.name} after" in said, code, said)
        check(f"{number.name}: a checkpoint is written", os.listdir(f"ck{number}") != [])
        gone(number.name, ranks)
    pathlib.Path("log").unlink()
    job = start("slow2", "0/1", free_port(), "--steps", 10**8, "--log", "log", start_new_session=True)
    trains("log")
    os.killpg(job.pid, signal.SIGINT)
    (code, said), = end([job])
    check("SIGINT to the group", code == 0 and "stopped by SIGINT after" in said, code, said)
    # HUP and USR1 ask for one checkpoint, and training goes on.  QUIT ends all ranks with their stacks.
    for number in signal.SIGHUP, signal.SIGUSR1:
        job, ranks = training("slow2", "--checkpoint-dir", f"ck{number}")
        job.send_signal(number)
        until = time.monotonic() + 30
        while time.monotonic() < until and not list(pathlib.Path(f"ck{number}").glob("step-*.safetensors")):
            time.sleep(0.02)
        trains("log", open("log").read().count("\n") + 20)
        check(f"{number.name}: there is one checkpoint", len(list(pathlib.Path(f"ck{number}").glob("step-*"))) == 1,
              os.listdir(f"ck{number}"))
        job.send_signal(signal.SIGQUIT)
        (code, said), = end([job])
        check(f"{number.name}, SIGQUIT: both ranks print stacks", code == 128 + signal.SIGQUIT and
              all(f"rank {i}" in said for i in (0, 1)), code, said)
        gone(f"{number.name}, SIGQUIT", ranks)

    # The status is that of the first failure.
    (code, said), = end([start("fail2", "0/1", free_port())])
    check("a rank that fails", code == 1 and "rank 1, step 4: cross_entropy" in said, code, said)
    done = end([start("line4", f"{i}/2", port, *(["--lr", "0.5"] if i else [])) for port in [free_port()] for i in range(2)])
    check("other flags on the second host", [code for code, _ in done] == [2, 2] and
          "--lr is not given at rank 0, but 0.5 at rank 2" in done[0][1], done)
    job, ranks = training("slow2")
    os.kill(ranks[1], signal.SIGKILL)
    (code, said), = end([job])
    check("a rank that is killed", code == 128 + signal.SIGKILL and "error: rank 1 was killed by signal 9: Killed\n" in said,
          code, said)
    gone("a rank that is killed", ranks)
    # A rank that does not end by itself is killed in the end.
    job, ranks = training("slow2")
    os.kill(ranks[0], signal.SIGSTOP)
    os.kill(ranks[1], signal.SIGKILL)
    (code, said), = end([job])
    check("a rank that is stopped", code == 128 + signal.SIGKILL, code, said)
    gone("a rank that is stopped", ranks)
    # The ranks do not outlive the process that started them, also while they look for each other.
    job, ranks = training("slow2")
    job.kill()
    end([job])
    gone("the first process is killed", ranks)
    job = start("line4", "1/2", free_port())
    ranks = ranks_of(job, 2)
    job.kill()
    end([job])
    gone("ranks that wait", ranks)

    # Beside a launcher, and with other numbers.
    launcher = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for env, variable in (launcher, "WORLD_SIZE"), ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_SIZE"), (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}, "SLURM_NTASKS"):
        refused(f"a launcher with {variable}", f"a launcher has set {variable} and started this process", "line2", *DATA,
                "--node", "0/2", "--master", "h", status=2, env=env)
    refused("three hosts", "--node 0/3: this executable is for 2 ranks, which 3 hosts cannot share equally", "line2", *DATA,
            "--node", "0/3", "--master", "h", status=2)
    refused("data that is missing", "cannot read 'no.npy'", "line2", "--input", "x=no.npy", "--input", "labels=y.npy", "--node", "0/1")

finish()
