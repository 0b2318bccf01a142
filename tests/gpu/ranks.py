#!/usr/bin/env python3
"""Starts N processes of one job, on a machine without mpirun:  python3 ranks.py N PROGRAM [FLAGS...]

Each finds its rank in the environment, as torchrun sets it.  The exit status is that of the first that failed; the
others are ended then, as mpirun does.
"""

import os
import random
import socket
import subprocess
import sys
import time


def free_port():
    """A port outside of the kernel's ephemeral range, and random: other jobs may start at the same time."""
    while True:
        port = random.SystemRandom().randrange(10000, 32768)
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)):
                return port


def main():
    n, command = int(sys.argv[1]), sys.argv[2:]
    port = free_port()
    job = [subprocess.Popen(command, env={**os.environ, "RANK": str(i), "LOCAL_RANK": str(i), "WORLD_SIZE": str(n),
                                          "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
           for i in range(n)]
    status, ends = 0, None
    while any(p.poll() is None for p in job):
        bad = [p.returncode for p in job if p.returncode]
        if bad and ends is None:
            status, ends = bad[0], time.monotonic() + 5  # time to report the reason themselves
        if ends is not None and time.monotonic() > ends:
            for p in job:
                p.kill()
        time.sleep(0.01)
    bad = [p.returncode for p in job if p.returncode]
    return abs(status or (bad or [0])[0])


if __name__ == "__main__":
    sys.exit(main())
