"""Machines that are network namespaces, with cables to a switch, and names and /etc/hosts of their own.

Debian's /etc/hosts gives a machine's own name a loopback address.
"""

import os
import pathlib
import shutil
import subprocess

from common import DATA, PROGRAMS, check


def ip(*arguments):
    return subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True)


class Machines:
    """host1, host2 …, with addresses 10.88.0.1 … and fd77::1 …; each is a namespace, and the switch one more.

    `works` is false without permission for that."""

    def __init__(self, count=4):
        self.hosts = range(1, count + 1)

    def __enter__(self):
        self.names = {i: f"nnaot-{os.getpid()}-{i}" for i in [0, *self.hosts]}
        steps = [("netns", "add", name) for name in self.names.values()]
        for i in self.hosts:
            # Each machine knows its own name as a loopback address.
            pathlib.Path(f"hosts{i}").write_text("127.0.0.1 localhost\n" + "".join(
                f"{'127.0.1.1' if i == k else f'10.88.0.{k}'} host{k}\n" for k in self.hosts))
        permitted = bool(shutil.which("ip") and shutil.which("unshare")) and os.geteuid() == 0
        self.works = permitted and all(ip(*step).returncode == 0 for step in steps) and self.connect() and \
            subprocess.run(self.command(1) + ["true"], capture_output=True).returncode == 0
        return self

    def __exit__(self, *error):
        if shutil.which("ip"):
            for name in self.names.values():
                ip("netns", "del", name)

    def connect(self):
        """Makes a bridge with a cable to each host."""
        switch = ("-n", self.names[0])
        steps = [(*switch, "link", "add", "name", "switch", "type", "bridge"), (*switch, "link", "set", "dev", "switch", "up")]
        for i in self.hosts:
            steps += [("-n", self.names[i], "link", "add", "name", "nncable", "type", "veth", "peer", "name", f"port{i}", "netns",
                       self.names[0]), (*switch, "link", "set", "dev", f"port{i}", "master", "switch", "up")]
        return all(ip(*step).returncode == 0 for step in steps) and self.bring_up()

    def bring_up(self):
        steps = []
        for i in self.hosts:
            at = ("-n", self.names[i])
            steps += [(*at, "link", "set", "dev", "lo", "up"), (*at, "link", "set", "dev", "nncable", "up"),
                      (*at, "addr", "add", f"10.88.0.{i}/24", "dev", "nncable"),
                      (*at, "addr", "add", f"fd77::{i}/64", "dev", "nncable", "nodad")]
        return all(ip(*step).returncode == 0 for step in steps)

    def port(self, i, *change):
        check(f"the switch sets port {i}", ip("-n", self.names[0], "link", "set", "dev", f"port{i}", *change).returncode == 0)

    def command(self, i):
        return ["ip", "netns", "exec", self.names[i], "unshare", "--mount", "--uts", "sh", "-c",
                f"hostname host{i} && mount --bind {os.getcwd()}/hosts{i} /etc/hosts && exec \"$@\"", "sh"]

    def start(self, program, hosts, rank, address, port, *flags, data=DATA, at=None, **more):
        """A rank on hosts[rank], in the folder `at`; the program is a path, or the name of one of the runtime's tests."""
        host = hosts[rank]
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(hosts)), "LOCAL_WORLD_SIZE": str(hosts.count(host)),
               "LOCAL_RANK": str(hosts[:rank].count(host)), "MASTER_ADDR": address, "MASTER_PORT": str(port), **more}
        return subprocess.Popen([*self.command(host), PROGRAMS / program, *data, *map(str, flags)], env=env, text=True, cwd=at,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def node(self, program, i, n, master, *flags):
        """The ranks of host i of n, in its own folder."""
        return subprocess.Popen([*self.command(i), PROGRAMS / program, *DATA, "--node", f"{i - 1}/{n}", "--master", master,
                                 *map(str, flags)], text=True, cwd=f"folder{i}", stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class SlowMachines(Machines):
    """Cables with a rate and a delay, by shaper.c: its devices are the hosts' network cards."""

    def connect(self):
        taps = [f"nn{os.getpid()}-{i}" for i in self.hosts]
        self.shaper = subprocess.Popen([PROGRAMS / "shaper", *taps], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       stderr=subprocess.DEVNULL)
        if self.shaper.stdout.readline() != "ready\n":
            return False
        # A card whose queue is full makes its host wait; a device of the shaper drops the frame.
        return all(ip("link", "set", "dev", tap, "txqueuelen", 4000, "netns", self.names[i], "name", "nncable").returncode == 0
                   for i, tap in zip(self.hosts, taps)) and self.bring_up()

    def __exit__(self, *error):
        if hasattr(self, "shaper"):
            self.shaper.stdin.close()
            self.shaper.wait(timeout=10)
        super().__exit__(*error)

    def tell(self, command):
        self.shaper.stdin.write(command + "\n")
        self.shaper.stdin.flush()
        return self.shaper.stdout.readline().strip()

    def rate(self, mbits, delay_ms=0):
        """Sets the rate of each cable each way, and the delay one way; 0: no limit."""
        check("the switch sets a rate", self.tell(f"rate {mbits} {delay_ms}") == "ok")

    def bytes_into(self):
        """Returns the bytes that each host has received."""
        return [int(n) for n in self.tell("bytes").split()]
