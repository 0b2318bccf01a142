"""Ranks on two machines: network namespaces, with a cable between them, and names and /etc/hosts of their own.

Debian's /etc/hosts gives a machine's own name a loopback address; a machine that is gone without a word ends the job.
Skipped where namespaces are not permitted.
"""

import os
import pathlib
import shutil
import subprocess
import time

from common import DATA, PROGRAMS, check, end, finish, folder_with_data, free_port, train

LIMIT = 60  # seconds in which all machines notice that one is gone


def ip(*arguments):
    return subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True)


class Machines:
    """Two machines with the addresses 10.88.0.1 and .2, fd77::1 and ::2, named host1 and host2."""

    def __enter__(self):
        self.names = [f"nnaot-{os.getpid()}-{i}" for i in range(2)]
        self.ends = [f"nn{os.getpid() % 10**6}v{i}" for i in range(2)]
        steps = [("netns", "add", name) for name in self.names]
        steps.append(("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1]))
        for i, (name, cable) in enumerate(zip(self.names, self.ends)):
            at = ("-n", name)
            steps += [("link", "set", cable, "netns", name), (*at, "link", "set", "lo", "up"), (*at, "link", "set", cable, "up"),
                      (*at, "addr", "add", f"10.88.0.{i + 1}/24", "dev", cable),
                      (*at, "addr", "add", f"fd77::{i + 1}/64", "dev", cable, "nodad")]
            # Each machine knows its own name as a loopback address.
            own, other = f"127.0.1.1 host{i + 1}", f"10.88.0.{2 - i} host{2 - i}"
            pathlib.Path(f"hosts{i}").write_text(f"127.0.0.1 localhost\n{own}\n{other}\n")
        self.works = all(ip(*step).returncode == 0 for step in steps) and \
            subprocess.run(self.command(0) + ["true"], capture_output=True).returncode == 0
        return self

    def __exit__(self, *error):
        for name in self.names:
            ip("netns", "del", name)
        ip("link", "del", self.ends[0])

    def command(self, i):
        return ["ip", "netns", "exec", self.names[i], "unshare", "--mount", "--uts", "sh", "-c",
                f"hostname host{i + 1} && mount --bind {os.getcwd()}/hosts{i} /etc/hosts && exec \"$@\"", "sh"]

    def cut(self):
        for name, cable in zip(self.names, self.ends):
            ip("-n", name, "link", "set", cable, "down")

    def start(self, program, rank, world, address, port, *flags, **more):
        """The first half of the ranks is on host1."""
        here = world // 2
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(here),
               "LOCAL_RANK": str(rank % here), "MASTER_ADDR": address, "MASTER_PORT": str(port), **more}
        return subprocess.Popen([*self.command(rank // here), PROGRAMS / program, *DATA, *map(str, flags)], env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def same(what, machines, program, world, address, **more):
    port = free_port()
    jobs = [machines.start(program, i, world, address, port, "--steps", 20, "--save", "tcp.st", **more) for i in range(world)]
    done = end(jobs)
    check(f"{what}: {world} ranks of two machines train", [code for code, _ in done] == [0] * world, done)
    check(f"{what}: the bits of threads", open("tcp.st", "rb").read() == open(f"{program}.st", "rb").read())
    says = [("ranks are not authenticated" in err) for _, err in done]
    check(f"{what}: it is said once that ranks are not authenticated", says == [True] + [False] * (world - 1) or
          (more.get("NNRT_JOB_KEY") and not any(says)), done)


def gone(machines, *programs):
    """The cable is cut while jobs train: all ranks end, and name a rank of the other machine."""
    ranks = [(program, world, i) for program, world in programs for i in range(world)]
    ports = {program: free_port() for program, _ in programs}
    jobs = [machines.start(program, i, world, "host1", ports[program], "--steps", 10**8, "--log", f"{program}.{i}")
            for program, world, i in ranks]
    until = time.monotonic() + 30
    steps = lambda log: open(log).read().count("\n") if os.path.exists(log) else 0
    while min(steps(f"{program}.0") for program, _ in programs) < 5 and time.monotonic() < until:
        time.sleep(0.05)
    machines.cut()
    begin, ends = time.monotonic(), {}
    while len(ends) < len(jobs) and time.monotonic() < begin + LIMIT + 10:
        ends |= {k: time.monotonic() - begin for k, job in enumerate(jobs) if k not in ends and job.poll() is not None}
        time.sleep(0.1)
    for job in jobs:
        job.kill()
    done = end(jobs)
    check(f"all ranks end within {LIMIT} s", len(ends) == len(jobs) and max(ends.values()) < LIMIT, ends, done)
    for (program, world, i), (code, err) in zip(ranks, done):
        others = [k for k in range(world) if k // (world // 2) != i // (world // 2)]
        check(f"{program}: rank {i} names a rank of the other machine", code == 1 and
              any(f"rank {k} on host{k // (world // 2) + 1} is gone: " in err for k in others), err)
    print("the ranks end after", " ".join(f"{ends.get(k, -1):.0f}" for k in range(len(jobs))), "s")


with folder_with_data():
    permitted = shutil.which("ip") and shutil.which("unshare") and os.geteuid() == 0
    if permitted:
        with Machines() as machines:
            permitted = machines.works
            if permitted:
                for program in "line2", "line4", "apart4":
                    train(program, "--steps", 20, "--save", f"{program}.st")
                for program, world in ("line2", 2), ("line4", 4), ("apart4", 4):
                    same("a name", machines, program, world, "host1")
                same("a number", machines, "line4", 4, "10.88.0.1")
                same("IPv6", machines, "line4", 4, "[fd77::1]")
                same("a key", machines, "line4", 4, "host1", NNRT_JOB_KEY="3d5b" * 8)
                for names in "nn", "^docker,tun":
                    same("an interface", machines, "line4", 4, "host1", NCCL_SOCKET_IFNAME=names)
                gone(machines, ("slow2", 2), ("apart4", 4))
    if not permitted:
        print("skipped: no permission for network namespaces")

finish()
