"""Strangers at the ports of a job that starts: it trains to the bits of the undisturbed job, and starts at once.

    hostile.py                             a few connections of each kind
    hostile.py --random 1000 --formed 300 --seed 7   a campaign

Jobs of 2 and 4 ranks, with a key and without.  Random connections send random bytes.  Formed ones speak the protocol:
parts of a HELLO, impossible numbers and lengths, other jobs, wrong keys, repeated recordings, messages in a wrong state.
The last rank of a job starts only after the strangers of the job have come.  A rank is also started against a false rank 0.
"""

import argparse
import hashlib
import hmac
import os
import random
import socket
import statistics
import struct
import sys
import threading
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("--random", type=int, default=40)
arguments.add_argument("--formed", type=int, default=80)
arguments.add_argument("--false", type=int, default=24, help="connections of a rank to a false rank 0")
arguments.add_argument("--per-job", type=int, default=20)
arguments.add_argument("--seed", type=int, default=1)
options = arguments.parse_args()

from common import check, end, finish, folder_with_data, free_port, start  # noqa: E402

KEY = "3d5b" * 8
MAGIC = b"nnrtcom5"
HELLO, CHALLENGE, PROVE, WELCOME, REFUSE, TABLE, READY, GO, ABORT, BYE = range(10)
TERMS = 12
FIELDS = ["world", "rank", "to", "channel", "port", "keyed", "run", "program", "job", "nonce", "host", "address"]
LAYOUT = "<6i2Q16s32s64s64s"
BITS = struct.calcsize(LAYOUT)


def message(kind, body=b"", length=None, magic=MAGIC):
    return struct.pack("<8sii", magic, kind, len(body) if length is None else length) + body


def hello(**fields):
    return struct.pack(LAYOUT, *(fields[name] for name in FIELDS))


def receive(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


def receive_message(s):
    magic, kind, n = struct.unpack("<8sii", receive(s, 16))
    assert magic == MAGIC and 0 <= n <= 4096, (magic, kind, n)
    return kind, receive(s, n)


def proof(key, side, greeting, nonce):
    if not key:
        return struct.unpack(LAYOUT, greeting)[9] if side == "accepts" else nonce
    return hmac.new(key.encode(), f"nnrt {side}".encode().ljust(16, b"\0") + greeting + nonce, hashlib.sha256).digest()


# ---- a recording of an undisturbed job: its rank 1 connects through this process

def record(env):
    port, proxy = free_port(), socket.create_server(("127.0.0.1", 0))
    said = [b"", b""]  # by rank 1, by rank 0
    ranks = [start("line2", 0, 2, port, "--steps", 2, **env), start("line2", 1, 2, proxy.getsockname()[1], "--steps", 2, **env)]

    def forward(source, to, which):
        try:
            while data := source.recv(65536):
                if which is not None:
                    said[which] += data
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    threads = []
    for first in True, False, False:  # the control link, then the channels
        client, _ = proxy.accept()
        for _ in range(200):
            try:
                server = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.02)
        for pair in (client, server, 0 if first else None), (server, client, 1 if first else None):
            threads.append(threading.Thread(target=forward, args=pair, daemon=True))
            threads[-1].start()
    done = end(ranks)
    check("a job through a relay trains", [code for code, _ in done] == [0, 0], done)
    return said[0], dict(zip(FIELDS, struct.unpack(LAYOUT, said[0][16:16 + BITS])))


# ---- strangers

class Strangers:
    """Connections of one job, made by some threads; `held` stay open until the job has ended."""

    def __init__(self, rng, n, key, recording, fields, ports, plan):
        self.n, self.key, self.recording, self.fields = n, key, recording, fields
        self.ports, self.plan, self.made, self.refused = ports, plan, 0, 0
        self.held, self.lock, self.stop = [], threading.Lock(), False
        self.rngs = [random.Random(rng.random()) for _ in range(4)]
        self.threads = [threading.Thread(target=self.work, args=(r,), daemon=True) for r in self.rngs]

    def work(self, rng):
        while not self.stop:
            with self.lock:
                if not self.plan:
                    return
                kind = self.plan.pop()
            # Most strangers come to rank 0; others find the ports of the range.
            port = self.ports[0] if rng.random() < 0.7 else rng.choice(self.ports)
            try:
                s = socket.create_connection(("127.0.0.1", port), timeout=1)
            except OSError:
                with self.lock:
                    self.plan.append(kind)
                time.sleep(0.005)
                continue
            with self.lock:
                self.made += 1
            try:
                kind(self, s, rng)
            except (OSError, AssertionError):
                pass  # dropped
            if rng.random() < 0.5:
                with self.lock:
                    self.held.append(s)
            elif rng.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST
                s.close()
            else:
                s.close()

    def greeting(self, rng, **changes):
        fields = {**self.fields, "world": self.n, "rank": rng.randrange(1, self.n), "nonce": rng.randbytes(32)}
        return hello(**{**fields, **changes})

    def shake(self, s, rng, key, **changes):
        """Follows the protocol with this key; returns the kind of the last answer."""
        greeting = self.greeting(rng, **changes)
        s.sendall(message(HELLO, greeting))
        kind, body = receive_message(s)
        if kind != CHALLENGE:
            return kind
        s.sendall(message(PROVE, proof(key, "connects", greeting, body[:32])))
        return receive_message(s)[0]


def random_bytes(job, s, rng):
    s.sendall(rng.randbytes(rng.choice([0, 1, 7, 8, 15, 16, 17, 100, 231, 232, 233, 1000, 4000])))


def random_after_magic(job, s, rng):
    s.sendall(MAGIC + rng.randbytes(rng.choice([1, 8, 100, 400])))


def silent(job, s, rng):
    pass


def half_hello(job, s, rng):
    whole = message(HELLO, job.greeting(rng))
    s.sendall(whole[:rng.randrange(len(whole))])


def huge_length(job, s, rng):
    kind = rng.randrange(10)
    s.sendall(message(kind, rng.randbytes(64), length=rng.choice([2**31 - 1, 2**30, 4097, 217, 215, 0, -1, -2**31])))


def replay(job, s, rng):
    s.sendall(job.recording)


def slow_replay(job, s, rng):
    s.sendall(job.recording[:16 + BITS])
    receive_message(s)
    s.sendall(job.recording[16 + BITS:])
    kind, _ = receive_message(s)
    check("a repeated recording is refused", kind == REFUSE, kind)


def wrong_key(job, s, rng):
    kind = job.shake(s, rng, rng.choice(["x" * 32, KEY[:-1], "0" * 64]), keyed=1)
    check("a wrong key is refused", kind == REFUSE, kind)


def no_key(job, s, rng):
    if not job.key:
        return
    kind = job.shake(s, rng, "", keyed=rng.choice([0, 1]))
    check("no key is refused", kind == REFUSE, kind)


def other_world(job, s, rng):
    kind = job.shake(s, rng, job.key, world=rng.choice([0, 1, 3, 5, 1 << 20, -1]))
    check("another world is refused", kind == REFUSE, kind)


def other_run(job, s, rng):
    kind = job.shake(s, rng, job.key, run=rng.getrandbits(64))
    check("another run is refused", kind == REFUSE, kind)


def other_program(job, s, rng):
    kind = job.shake(s, rng, job.key, program=rng.getrandbits(64))
    check("another program is refused", kind == REFUSE, kind)
    # The answer to that: texts without ends, escapes of a terminal, too many bytes, or none at all.
    n = rng.choice([0, 1, 7, 100, 2048, 2049])
    s.sendall(message(TERMS, rng.choice([rng.randbytes(n), b"\x1b[2J\0" * (n // 5), b"the plan\0'dp\x1b'\0\0"])))


def other_job(job, s, rng):
    job.shake(s, rng, job.key, channel=0, to=rng.randrange(job.n), job=rng.randbytes(16))


def impossible(job, s, rng):
    job.shake(s, rng, job.key, **{rng.choice(["rank", "channel", "to"]): rng.choice([-2, -2**31, 2**31 - 1, 4, 1000, 7])})


def rank_0(job, s, rng):
    job.shake(s, rng, job.key, rank=0)


def wrong_state(job, s, rng):
    kind = rng.choice([CHALLENGE, PROVE, WELCOME, REFUSE, TABLE, READY, GO, ABORT, BYE])
    size = {CHALLENGE: 64, PROVE: 32, REFUSE: 12, TABLE: 300, ABORT: 1028}.get(kind, 0)
    if rng.random() < 0.5:
        s.sendall(message(HELLO, job.greeting(rng)))
    s.sendall(message(kind, rng.randbytes(size)))


def hello_twice(job, s, rng):
    s.sendall(2 * message(HELLO, job.greeting(rng)))


def no_proof(job, s, rng):
    """The place of a rank is free until it has proved that it comes."""
    s.sendall(message(HELLO, job.greeting(rng)))


RANDOM = [random_bytes, random_after_magic]
FORMED = [silent, half_hello, huge_length, replay, slow_replay, wrong_key, no_key, other_world, other_run, other_program,
          other_job, impossible, rank_0, wrong_state, hello_twice, no_proof]


# ---- jobs

def job(n, key, recording, fields, plan, rng):
    """Returns the weights, the seconds from the start of the last rank to the end, and the connections."""
    port = free_port()
    env = {"NNRT_PORT_RANGE": f"{port + 1}-{port + 8}"} | ({"NNRT_JOB_KEY": key} if key else {})
    strangers = Strangers(rng, n, key, recording, fields, range(port, port + 9), list(plan))
    file = f"job{port}.st"
    # The last rank comes after the strangers.
    ranks = [start(f"line{n}", i, n, port, "--steps", 20, "--save", file, **env) for i in range(n - 1)]
    for thread in strangers.threads:
        thread.start()
    until = time.monotonic() + 20
    while strangers.plan and time.monotonic() < until:
        time.sleep(0.01)
    began = time.monotonic()
    ranks.append(start(f"line{n}", n - 1, n, port, "--steps", 20, "--save", file, **env))
    done = end(ranks)
    seconds = time.monotonic() - began
    strangers.stop = True
    for thread in strangers.threads:
        thread.join()
    for s in strangers.held:
        s.close()
    check(f"{n} ranks{' with a key' * bool(key)} train beside strangers", [code for code, _ in done] == [0] * n, done)
    check("strangers are noted once", sum("which is no rank of this job" in err for _, err in done) <= n and
          all(err.count("which is no rank of this job") <= 1 for _, err in done), done)
    bits = open(file, "rb").read() if os.path.exists(file) else b""
    return bits, seconds, strangers.made


def false_rank_0(kind, key, rng, fields):
    """Rank 1 connects to a program that is not rank 0; the rank ends with an error, and soon."""
    server = socket.create_server(("127.0.0.1", 0))
    rank = start("line2", 1, 2, server.getsockname()[1], "--connect-timeout", 1, **({"NNRT_JOB_KEY": key} if key else {}))
    server.settimeout(0.1)
    held, calls = [], 0
    while rank.poll() is None:
        try:
            s, _ = server.accept()
        except OSError:
            continue
        calls += 1
        s.settimeout(0.5)
        held.append(s)
        try:
            if kind == "random":
                s.sendall(rng.randbytes(rng.choice([0, 3, 16, 80, 1000])))
                s.close()
            elif kind == "challenge":
                receive_message(s)
                s.sendall(message(CHALLENGE, rng.randbytes(64)))
            elif kind == "refuse":
                receive_message(s)
                s.sendall(message(REFUSE, struct.pack("<ii", rng.choice([0, 1, 2, 3, 4, 5, 6, 99, -1]), 3)
                                  + rng.randbytes(rng.choice([4, 5, 100, 2048]))))
            elif kind == "early":
                receive_message(s)
                s.sendall(message(WELCOME) + message(TABLE, rng.randbytes(300)))
            elif kind == "table":  # of a rank 0 without a key, which sends nonsense then
                _, greeting = receive_message(s)
                s.sendall(message(CHALLENGE, 32 * b"n" + greeting[56:88]))
                receive_message(s)
                kind_then = rng.choice([TABLE, GO, ABORT, BYE])
                s.sendall(message(WELCOME) + message(kind_then, rng.randbytes(rng.choice([0, 16, 288, 1028]))))
        except (OSError, AssertionError):
            pass
    out, err = rank.communicate()
    for s in held:
        s.close()
    server.close()
    check(f"a false rank 0 ({kind}): rank 1 ends with an error", rank.returncode == 1 and "rank 1: error: " in err,
          rank.returncode, out, err)
    return calls


def several(kinds, n, rng):
    """n of these kinds, each as often as the others."""
    many = (kinds * (n // len(kinds) + 1))[:n]
    rng.shuffle(many)
    return many


with folder_with_data():
    rng = random.Random(options.seed)
    recordings = {key: record({"NNRT_JOB_KEY": key} if key else {}) for key in ("", KEY)}
    ways = [(n, key) for key in ("", KEY) for n in (2, 4)]
    quiet = {way: [job(*way, *recordings[way[1]], [], rng) for _ in range(3)] for way in ways}
    for way, runs in quiet.items():
        check(f"{way}: undisturbed jobs are alike", len({bits for bits, *_ in runs}) == 1 and runs[0][0], way)
    plan = several(RANDOM, options.random, rng) + several(FORMED, options.formed, rng)
    rng.shuffle(plan)
    delays, made, jobs = [], 0, 0
    for at in range(0, len(plan), options.per_job):
        way = ways[jobs % len(ways)]
        bits, seconds, n = job(*way, *recordings[way[1]], plan[at:at + options.per_job], rng)
        delays.append(seconds - statistics.median(s for _, s, _ in quiet[way]))
        made += n
        jobs += 1
        check(f"{way}: the bits of the undisturbed job", bits == quiet[way][0][0], way)
    check("all strangers have come", made == len(plan), made)
    # A machine with other work delays single jobs.
    check("jobs start at once", statistics.median(delays) < 1, delays)
    # More silent connections than a rank keeps: the oldest make room.
    for n, key in (2, ""), (4, KEY):
        port, crowd = free_port(), []
        env = {"NNRT_JOB_KEY": key} if key else {}
        ranks = [start(f"line{n}", 0, n, port, "--steps", 20, "--save", "crowd.st", **env)]
        until = time.monotonic() + 20
        while len(crowd) < 600 and time.monotonic() < until:
            try:
                crowd.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            except OSError:
                time.sleep(0.01)
        began = time.monotonic()
        ranks += [start(f"line{n}", i, n, port, "--steps", 20, "--save", "crowd.st", **env) for i in range(1, n)]
        done = end(ranks)
        seconds = time.monotonic() - began
        check(f"a crowd of {len(crowd)} does not matter", len(crowd) == 600 and [code for code, _ in done] == [0] * n and
              seconds < 10, seconds, done)
        check("the bits beside a crowd", open("crowd.st", "rb").read() == quiet[n, key][0][0])
        print(f"{n} ranks beside a crowd of {len(crowd)} end after {seconds:.2f} s", file=sys.stderr)
        for s in crowd:
            s.close()
    kinds = several(["silent", "random", "challenge", "refuse", "early", "table"], options.false, rng)
    calls = sum(false_rank_0(kind, rng.choice(["", KEY]) if kind != "table" else "", rng, recordings[""][1]) for kind in kinds)
    print(f"{made} hostile connections to {jobs} jobs: delay {statistics.median(delays):.2f} s in the median, {max(delays):.2f} s "
          f"at most; {calls} connections to a false rank 0 by {len(kinds)} ranks", file=sys.stderr)

finish()
