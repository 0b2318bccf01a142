"""Ranks find each other over TCP: wrong settings, ranks that die and come again, and other jobs at the port."""

import os
import pathlib
import select
import signal
import socket
import time

from common import DATA, PROGRAMS, check, end, finish, folder_with_data, free_port, refused, start

KEY = {"NNRT_JOB_KEY": "3d5b" * 8}
MACHINE = socket.gethostname()


def write(path, text, mode=0o600):
    pathlib.Path(path).write_text(text)
    os.chmod(path, mode)
    return path


def wrong(what, said, rank=0, flags=(), **env):
    """A rank of two ends at once with this error and a hint."""
    env = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **env}
    begin = time.monotonic()
    done = refused(what, f"rank {rank}: error: {said}", "line2", *DATA, *flags, env=env)
    check(f"{what}: has a hint", "\nhint: " in done.stderr and done.stderr.count("error: ") == 1, done.stderr)
    check(f"{what}: at once", time.monotonic() - begin < 10)


def wait_for(text, job, seconds=20):
    """Reads the errors of a process up to this text."""
    said, until = "", time.monotonic() + seconds
    while text not in said and time.monotonic() < until:
        if select.select([job.stderr], [], [], 0.1)[0]:
            more = os.read(job.stderr.fileno(), 65536).decode()
            if not more:
                break
            said += more
    check(f"a rank says '{text}'", text in said, said)
    return said


def wait_for_port(port):
    """Waits until rank 0 listens, without a connection to it."""
    line = f":{port:04X} "
    for _ in range(500):
        if any(line in row.split(" 0A ")[0] and " 0A " in row for table in ("tcp", "tcp6")
               for row in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()):
            return
        time.sleep(0.02)
    check(f"a rank listens at {port}", False)


def trains(what, jobs):
    done = end(jobs)
    check(f"{what}: they train", [code for code, _ in done] == [0] * len(jobs), done)
    return [err for _, err in done]


with folder_with_data():
    # ---- settings

    for text in "", "x", "29500", "29500-", "29600-29500", "0-10", "1-70000", "10-20-30", "10-20 ":
        wrong(f"ports {text!r}", f"NNRT_PORT_RANGE is '{text}', which is no range of ports", NNRT_PORT_RANGE=text)
    taken = socket.create_server(("127.0.0.1", 0))
    busy = taken.getsockname()[1]
    # The range is of the other ranks: rank 0 has MASTER_PORT.
    first = start("line2", 0, 2, port := free_port(), "--connect-timeout", 2)
    wait_for_port(port)
    wrong("no free port", f"no port of NNRT_PORT_RANGE {busy}-{busy} is free here", rank=1, MASTER_PORT=str(port),
          LOCAL_WORLD_SIZE="2", NNRT_PORT_RANGE=f"{busy}-{busy}")
    done = end([first])
    check("rank 0 ends after --connect-timeout", done[0][0] == 1 and
          f"error: rank 1 did not come to 127.0.0.1:{port} within 2 s (--connect-timeout)" in done[0][1], done)
    wrong("a busy port", f"cannot listen at 127.0.0.1:{busy}: Address already in use", MASTER_PORT=str(busy), LOCAL_WORLD_SIZE="2")
    taken.close()
    for name in "NNRT_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME":
        wrong(name, f"{name} is 'none9', but no such interface has an address", **{name: "none9"})
    wrong("an unknown machine", "rank 0's machine 'no.such.machine.invalid' is not found: ", MASTER_ADDR="no.such.machine.invalid")

    def wrong_file(what, said, path):
        wrong(what, said, NNRT_JOB_KEY_FILE=path)

    write("long", "k" * 5000), write("zero", "k" * 20 + "\0" + "k" * 20)
    wrong("no key", "--require-key, but this rank has no key", flags=["--require-key"])
    wrong("an empty key", "the key in NNRT_JOB_KEY is empty", NNRT_JOB_KEY="")
    wrong("a blank key", "the key in NNRT_JOB_KEY is empty", NNRT_JOB_KEY=" \n")
    wrong("a short key", "the key in NNRT_JOB_KEY has 5 characters, fewer than 16", NNRT_JOB_KEY="short")
    wrong("a long key", "the key in NNRT_JOB_KEY has more than 4096 characters", NNRT_JOB_KEY="k" * 5000)
    wrong("two keys", "NNRT_JOB_KEY and NNRT_JOB_KEY_FILE are both set", NNRT_JOB_KEY_FILE="a", **KEY)
    wrong_file("no file", "cannot read the job's key from NNRT_JOB_KEY_FILE 'nofile': No such file", "nofile")
    wrong_file("a folder", "NNRT_JOB_KEY_FILE '/tmp' is no file", "/tmp")
    os.mkfifo("fifo", 0o600)
    wrong_file("a FIFO", "NNRT_JOB_KEY_FILE 'fifo' is no file", "fifo")
    wrong_file("an empty file", "the key in NNRT_JOB_KEY_FILE is empty", write("empty", "\n"))
    wrong_file("a long file", "NNRT_JOB_KEY_FILE 'long' has more than 4096 bytes", "long")
    wrong_file("a binary file", "NNRT_JOB_KEY_FILE 'zero' is no text", "zero")
    for mode in 0o644, 0o640, 0o602, 0o610:
        wrong_file(f"mode {mode:o}", f"NNRT_JOB_KEY_FILE 'open' has mode {mode:o}: others can read",
                   write("open", KEY["NNRT_JOB_KEY"], mode))
        os.chmod("open", 0o600)
    if os.geteuid() != 0:
        wrong_file("a file without permission", "cannot read the job's key from NNRT_JOB_KEY_FILE 'shut': Permission denied",
                   write("shut", KEY["NNRT_JOB_KEY"], 0))
    wrong("no libcrypto", "a job's key needs OpenSSL's libcrypto, which is not found: ", NNRT_CRYPTO_LIBRARY="none.so", **KEY)
    wrong("another library", "'libm.so.6' is not OpenSSL's libcrypto", NNRT_CRYPTO_LIBRARY="libm.so.6", **KEY)

    # Descriptors: a smaller limit is raised as far as it goes.
    for hard in 64, 400:
        pathlib.Path(f"limit{hard}.sh").write_text(f'#!/bin/sh\nulimit -Sn 64 && ulimit -Hn {hard} && exec {PROGRAMS}/line2 "$@"\n')
        os.chmod(f"limit{hard}.sh", 0o755)
    done = end([start(os.path.abspath("limit64.sh"), 0, 2, free_port())])
    check("too few files", done[0][0] == 1 and
          "error: 2 ranks need 326 open files, and this process may open 64\nhint: ulimit -Hn 326" in done[0][1], done)
    port = free_port()
    trains("a soft limit", [start(os.path.abspath("limit400.sh"), i, 2, port, "--steps", 2) for i in range(2)])

    # Slurm's list of hosts: rank 0 is on the first.
    for hosts, host in [("gpu[03-05,9].invalid,login", "gpu03.invalid"), ("rack[1-2]n[1-4].invalid", "rack1n1.invalid"),
                        ("node[2-3]-ib.invalid", "node2-ib.invalid"), ("a7.invalid", "a7.invalid"),
                        ("a7.invalid,b[1-2]", "a7.invalid"),
                        ("x.invalid[1-2", "x.invalid1"), ("x.invalid[", "x.invalid"), ("r[1,3]x[2-4].invalid,q", "r1x2.invalid")]:
        refused(hosts, f"rank 0's machine '{host}' is not found: ", "line2", *DATA,
                env={"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": hosts})
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    done = refused("RANK beside SLURM_PROCID", "RANK is 0, but SLURM_PROCID is 1: ", "line2", *DATA, env={"RANK": "0", **slurm})
    check("RANK beside SLURM_PROCID has a hint", "\nhint: unset RANK" in done.stderr, done.stderr)

    # ---- keys

    write("key", f"  {KEY['NNRT_JOB_KEY']}\n")
    port = free_port()
    trains("a key, and its file", [start("line2", 0, 2, port, "--steps", 2, "--require-key", **KEY),
                                   start("line2", 1, 2, port, "--steps", 2, "--require-key", NNRT_JOB_KEY_FILE="key")])
    for what, env, said in [
        ("another key", {"NNRT_JOB_KEY": "other" * 8}, "has another key"), ("no key", {}, "has a key, and this rank has none"),
    ]:
        port = free_port()
        first = start("line2", 0, 2, port, "--steps", 2, **KEY)
        other = end([start("line2", 1, 2, port, "--steps", 2, **env)])
        check(f"{what}: rank 1 is refused", other[0][0] == 1 and
              f"error: rank 0 at 127.0.0.1:{port} {said}\nhint: the same NNRT_JOB_KEY" in other[0][1], other)
        trains(f"after {what}", [first, start("line2", 1, 2, port, "--steps", 2, **KEY)])
    port = free_port()
    first = start("line2", 0, 2, port, "--steps", 2)
    other = end([start("line2", 1, 2, port, "--steps", 2, **KEY)])
    check("rank 0 without a key", other[0][0] == 1 and
          f"error: rank 0 at 127.0.0.1:{port} has no key\nhint: " in other[0][1], other)
    trains("after that", [first, start("line2", 1, 2, port, "--steps", 2)])

    # ---- addresses

    has_six = os.path.exists("/proc/net/if_inet6") and "00000000000000000000000000000001" in open("/proc/net/if_inet6").read()
    ports = {address: free_port() for address in ["localhost", MACHINE] + ["::1", "[::1]"] * has_six}
    firsts = {address: start("line2", 0, 2, port, "--steps", 2, MASTER_ADDR=address) for address, port in ports.items()}
    for address, port in ports.items():
        said = wait_for("waiting for rank 1 at ", firsts[address])
        place = "[::1]" if "::1" in address else address
        check(f"{address} is named", f"waiting for rank 1 at {place}:{port}\n" in said, said)
        trains(address, [firsts[address], start("line2", 1, 2, port, "--steps", 2, MASTER_ADDR=address)])
    port = free_port()
    ranks = [start("line4", i, 4, port, "--steps", 2, NNRT_SOCKET_IFNAME="lo", NNRT_PORT_RANGE=f"{port + 1}-{port + 3}")
             for i in range(4)]
    trains("ports of a range, at an interface", ranks)

    # ---- ranks that die and come again

    port = free_port()
    ranks = [start("line4", i, 4, port, "--steps", 2) for i in range(3)]
    wait_for("waiting for rank 3", ranks[0])
    ranks[1].kill()
    wait_for(f"rank 1 on {MACHINE} is gone, and waited for again: it closed the connection", ranks[0])
    end(ranks[1:2])
    again, last = (start("line4", i, 4, port, "--steps", 2) for i in (1, 3))
    trains("a rank that comes again", [ranks[0], again, ranks[2], last])

    port = free_port()
    ranks = [start("line4", i, 4, port, "--steps", 2) for i in range(3)]
    wait_for("waiting for rank 3", ranks[0])
    ranks[0].kill()
    begin = time.monotonic()
    done = end(ranks)
    check("rank 0 dies: the others end at once", time.monotonic() - begin < 5 and [code for code, _ in done] == [-9, 1, 1] and
          all(f"error: rank 0 at 127.0.0.1:{port} is gone: it closed the connection" in err for _, err in done[1:]), done)

    # A second process of a rank waits for the end of the first.
    port = free_port()
    ranks = [start("line4", i, 4, port, "--steps", 2) for i in range(2)]
    wait_for("waiting for rank 2", ranks[0])
    twin = start("line4", 1, 4, port, "--steps", 2)
    wait_for("says that rank 1 has come already; trying again", twin)
    ranks[1].kill()
    end(ranks[1:])
    trains("a second process", [ranks[0], twin, *(start("line4", i, 4, port, "--steps", 2) for i in (2, 3))])

    # ---- two jobs at one port

    port = free_port()
    one, two = ({"TORCHELASTIC_RUN_ID": name} for name in ("one", "two"))
    first = start("line2", 0, 2, port, "--steps", 3, "--save", "one.st", **one)
    wait_for_port(port)
    other = start("line2", 1, 2, port, "--steps", 5, "--save", "two.st", **two)
    wait_for(f"another job is at rank 0 at 127.0.0.1:{port}; trying again", other)
    trains("the first job", [first, start("line2", 1, 2, port, "--steps", 3, "--save", "one.st", **one)])
    trains("the second job", [start("line2", 0, 2, port, "--steps", 5, "--save", "two.st", **two), other])
    port = free_port()
    first = start("line2", 0, 2, port, "--steps", 2)
    wait_for_port(port)
    done = end([start("line4", 1, 4, port, "--steps", 2)])
    said = f"error: rank 0 at 127.0.0.1:{port} is of a job of 2 ranks, and this process of one of 4\nhint: another MASTER_PORT"
    check("a job of another size", done[0][0] == 1 and said in done[0][1], done)
    trains("beside a job of another size", [first, start("line2", 1, 2, port, "--steps", 2)])

    # Ports close once all ranks are there, and a killed rank's machine is named.
    port = free_port()
    ranks = [start("slow2", i, 2, port, "--steps", 10**8, "--log", f"log{i}", NNRT_PORT_RANGE=f"{port + 1}-{port + 1}")
             for i in range(2)]
    while not (os.path.exists("log0") and open("log0").read().count("\n") > 5):
        time.sleep(0.05)
    for i in range(2):
        with socket.socket() as s:
            check(f"port {i} is closed", s.connect_ex(("127.0.0.1", port + i)) != 0)
    ranks[1].send_signal(signal.SIGKILL)
    done = end(ranks)
    said = f"tcp: rank 1 on {MACHINE} (pid {ranks[1].pid}) is gone: it closed the connection; it"
    check("a killed rank", done[0][0] == 1 and said in done[0][1], done)

finish()
