"""Ranks on several machines (machines.py): a machine that is gone without a word ends the job, and so does a path between two.

Machines without shared folders train as threads do; other data, programs or checkpoints on one of them are said, with its
name.  Skipped without permission to make namespaces.
"""

import os
import re
import shutil
import time

from common import check, end, finish, folder_with_data, free_port, train
from machines import Machines

LIMIT = 60  # seconds in which all machines notice that one is gone


def same(what, machines, program, hosts, address, **more):
    port, n = free_port(), len(hosts)
    jobs = [machines.start(program, hosts, i, address, port, "--steps", 20, "--save", "tcp.st", **more) for i in range(n)]
    done = end(jobs)
    check(f"{what}: {n} ranks on {hosts} train", [code for code, _ in done] == [0] * n, done)
    check(f"{what}: the bits of threads", open("tcp.st", "rb").read() == open(f"{program}.st", "rb").read())
    says = [("ranks are not authenticated" in err) for _, err in done]
    check(f"{what}: it is said once that ranks are not authenticated", says == [True] + [False] * (n - 1) or
          ("NNRT_JOB_KEY" in more and not any(says)), done)


def gone(machines, cut, *programs):
    """Jobs train while `cut` happens: all ranks end, and name a machine that is gone."""
    ranks = [(program, hosts, i) for program, hosts, _ in programs for i in range(len(hosts))]
    ports = {program: free_port() for program, *_ in programs}
    missing = {program: names for program, _, names in programs}
    jobs = [machines.start(program, hosts, i, "host1", ports[program], "--steps", 10**8, "--log", f"{program}.{i}")
            for program, hosts, i in ranks]
    until = time.monotonic() + 30
    steps = lambda log: open(log).read().count("\n") if os.path.exists(log) else 0
    while min(steps(f"{program}.0") for program in ports) < 5 and time.monotonic() < until:
        time.sleep(0.05)
    cut()
    begin, ends = time.monotonic(), {}
    while len(ends) < len(jobs) and time.monotonic() < begin + LIMIT + 10:
        ends |= {k: time.monotonic() - begin for k, job in enumerate(jobs) if k not in ends and job.poll() is not None}
        time.sleep(0.1)
    for job in jobs:
        job.kill()
    done = end(jobs)
    check(f"all ranks end within {LIMIT} s", len(ends) == len(jobs) and max(ends.values()) < LIMIT, ends, done)
    for (program, hosts, i), (code, err) in zip(ranks, done):
        check(f"{program}: rank {i} names a machine that is gone", code == 1 and
              any(re.search(rf" on {name} \(pid \d+\) is gone: ", err) for name in missing[program]), err)
    print("the ranks end after", " ".join(f"{ends.get(k, -1):.0f}" for k in range(len(jobs))), "s")


def folders(**checkpoints):
    """Makes a folder for each host, with data; those of some with the checkpoints of another folder."""
    for i in range(1, 5):
        shutil.rmtree(f"folder{i}", ignore_errors=True)
        os.mkdir(f"folder{i}")
        for name in "x.npy", "y.npy":
            shutil.copy(name, f"folder{i}")
    for host, source in checkpoints.items():
        shutil.copytree(source, f"folder{host[4:]}/ck")


def nothing_shared(machines):
    """Jobs of --node, whose machines share no folder."""
    def job(hosts, *flags):
        port = free_port()
        return end([machines.node("line4", i, len(hosts), f"host1:{port}", "--steps", 20, "--save", "got.st", *flags)
                    for i in hosts])

    def trains(what, hosts, *flags):
        done = job(hosts, *flags)
        check(f"{what}: {len(hosts)} hosts train", [code for code, _ in done] == [0] * len(hosts), done)
        check(f"{what}: the bits of threads", open("folder1/got.st", "rb").read() == open("line4.st", "rb").read())
        check(f"{what}: only host1 has outputs",
              not any(os.path.exists(f"folder{i}/{name}") for i in (2, 3, 4) for name in ("got.st", "made")))
        return done

    def refused(what, said, *flags):
        done = job([1, 2], *flags)
        check(f"{what} is refused", 0 not in [code for code, _ in done] and any(f"error: {said}" in err for _, err in done), done)

    for n in 2, 4:
        folders()
        trains("--node", list(range(1, n + 1)), "--checkpoint-dir", "made")
    # A checkpoint is on the machine of rank 0 alone, or the others have one of another run.
    train("line4", "--steps", 10, "--checkpoint-dir", "mine")
    train("line4", "--steps", 10, "--seed", 7, "--checkpoint-dir", "other")
    train("line4", "--steps", 12, "--seed", 7, "--checkpoint-dir", "newer")
    resume = ["--resume", "--checkpoint-dir", "ck"]
    for more in {}, {"host2": "other"}:
        folders(host1="mine", **more)
        done = trains(f"resumed, and {more}", [1, 2], *resume)
        check("it resumes", "rank 0: note: resuming after step 10\n" in done[0][1], done)
    folders(host2="mine")
    refused("the checkpoint of another host",
            "'ck' of rank 2 on host2 has a checkpoint of step 10, and that of rank 0 on host1 has none", *resume)
    folders(host1="mine", host2="newer")
    refused("a newer one",
            "'ck' of rank 2 on host2 has a checkpoint of step 12, and that of rank 0 on host1 has that of step 10", *resume)

    # Rows in the other order, and another program.
    folders()
    rows = open("x.npy", "rb").read()
    start = len(rows) - 100 * 5 * 4
    pieces = [rows[at:at + 20] for at in range(start, len(rows), 20)]
    open("folder2/x.npy", "wb").write(rows[:start] + b"".join(reversed(pieces)))
    done = job([1, 2])
    said = done[0][1].partition("error: ")[2].partition("\n")[0]
    check("other data is said", 0 not in [code for code, _ in done] and
          said.startswith("the data of --input x is 100 rows, 2128 bytes, checksum ") and
          " in 'x.npy' at rank 0 on host1, but 100 rows, 2128 bytes, checksum " in said and
          said.endswith(" in 'x.npy' at rank 2 on host2"), done)
    port = free_port()
    done = end([machines.start(program, [1, 2], i, "host1", port, "--connect-timeout", 3)
                for i, program in enumerate(["line2", "weights2"])])
    check("other weights are said", done[1][0] == 1 and "error: the checksum of the compiled weights is 5ee1 at rank 0 on host1, "
          "but 7a90 at rank 1 on host2\n" in done[1][1], done)


with folder_with_data():
    with Machines() as machines:
        if machines.works:
            for program in "line2", "line4", "apart4":
                train(program, "--steps", 20, "--save", f"{program}.st")
            for program, hosts in ("line2", [1, 2]), ("line4", [1, 1, 2, 2]), ("line4", [1, 2, 3, 4]), ("apart4", [1, 1, 2, 3]):
                same("a name", machines, program, hosts, "host1")
            for address in "10.88.0.1", "[fd77::1]":
                same(address, machines, "line4", [1, 1, 2, 3], address)
            nothing_shared(machines)
            same("a key", machines, "line4", [1, 1, 2, 2], "host1", NNRT_JOB_KEY="3d5b" * 8)
            same("an interface", machines, "line4", [1, 1, 2, 2], "host1", NNRT_SOCKET_IFNAME="nncable")
            for names in "nn", "^docker,tun":
                same(f"interfaces {names}", machines, "line4", [1, 1, 2, 2], "host1", NCCL_SOCKET_IFNAME=names)

            # The machine of another rank, that of rank 0 seen from there, and the path between two others.
            def cut():
                machines.port(4, "down")
                for i in 2, 3:
                    machines.port(i, "type", "bridge_slave", "isolated", "on")

            gone(machines, cut, ("slow2", [1, 4], ["host1", "host4"]), ("apart4", [1, 1, 4, 1], ["host1", "host4"]),
                 ("line4", [1, 1, 2, 3], ["host2", "host3"]))
        else:
            print("skipped: no permission for network namespaces")

finish()
