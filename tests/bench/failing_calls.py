#!/usr/bin/env python3
"""Lets each call of a training run fail, one after the other: no result, checkpoint, log line or message may be lost.

    failing_calls.py --results FILE.jsonl [--calls open,write] [--rest 1000]   all; resumes from FILE
    failing_calls.py --results FILE.jsonl --tables                             the tables of a results file
    failing_calls.py --check                                                   a test of CI: a few calls of each kind

A run of the mlp sample resumes from a checkpoint of step 2, trains to step 6, and writes everything: a checkpoint every two
steps, a log, an event file, weights, model, trace, traffic.  tests/rt/failing_calls.c lets call number n of one function fail,
for n from 1 until there is no such call, in each of these ways: an error, an error and all further calls (a disk that is full
or gone), a short write, and SIGKILL at the call.  `malloc` fails in any library.  The ranks are one process of one rank, and
rank 0 of two over TCP.  The outcomes:

    same        exit status 0, and the files of a run without a failure
    warned      exit status 0, a warning, and those files but for what it names, a checkpoint that a later one replaces
    error       exit status 1 and a message
    library     a library ended the process, or crashed, with a message
    killed      of SIGKILL
    SILENT      other files and no message, or an exit status that is not 0 without one
    DAMAGED     a checkpoint, the log or an output is not as below
    CRASH HANG  a signal, or no end

After any of them: --verify accepts the checkpoints, of which there is one of step 2 or later; the log has whole lines, and of
the steps before 2 all; an output is the whole file or absent.  The next run, with --resume, ends with 0, with the log and the
weights of a run that was never interrupted, and leaves no temporary file.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from common import check, compile_sample, data_flags, finish, free_port, run, scratch  # noqa: E402

STEPS = 6
BAD = ("SILENT", "DAMAGED", "CRASH", "HANG")
OUTCOMES = ("same", "warned", "error", "library", "killed", *BAD)
# GOMP_SPINCOUNT: the process does not start itself again, which would begin the count again.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
# The ways in which each function fails: the error, and that of all further calls.
WAYS = {
    "open": [("EIO", None), ("EMFILE", None), ("kill", None)],
    "write": [("EIO", None), ("ENOSPC", None), ("ENOSPC", "ENOSPC"), ("short", None), ("short", "ENOSPC"), ("kill", None)],
    "pwrite": [("EIO", None), ("ENOSPC", None), ("ENOSPC", "ENOSPC"), ("short", None), ("short", "ENOSPC"), ("kill", None)],
    "writev": [("EIO", None)],
    "fsync": [("EIO", None), ("ENOSPC", None), ("EIO", "EIO"), ("kill", None)],
    "rename": [("EIO", None), ("ENOSPC", "ENOSPC"), ("kill", None)],
    "close": [("EIO", None), ("kill", None)],
    "mmap": [("ENOMEM", None)],
    "malloc": [("ENOMEM", None)],
    "flock": [("ENOLCK", "ENOLCK"), ("EIO", None)],
    "fallocate": [("ENOSPC", None), ("ENOSPC", "ENOSPC"), ("EIO", None), ("kill", None)],
    "ftruncate": [("EIO", None), ("kill", None)],
}
OUTPUTS = ["w.st", "m.onnx", "t.json", "s.json"]


def way_text(how, rest):
    return f"{how}, then {rest}" if rest else how


class Job:
    """The executable, the state that each run begins with, and the results of a run without a failure."""

    def __init__(self, folder, ranks):
        self.folder, self.ranks = pathlib.Path(folder), ranks
        self.exe, self.interposer = self.folder / "train", self.folder / "failing_calls.so"
        compile_sample("mlp", self.exe, ranks=ranks)
        run(os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", self.interposer,
            ROOT / "tests/rt/failing_calls.c", "-ldl")
        self.at, self.before, self.report = self.folder / "run", self.folder / "before", self.folder / "report"
        self.before.mkdir()
        # The log is ahead of the checkpoint, with a line that was cut: --resume rewrites it.
        run(self.exe, *data_flags("mlp"), "--steps", 2, "--checkpoint-dir", "ck", "--log", "log.jsonl", cwd=self.before,
            env=ENVIRONMENT)
        log = self.before / "log.jsonl"
        self.first = log.read_bytes().splitlines(True)
        log.write_bytes(self.first[0][:30] + b"".join(self.first) + b'{"step":2,"loss":1}\n{"step":3,"lo')
        self.restore()
        status, said = self.start({})
        assert status == 0, said
        self.want = self.results()
        assert self.want["log"] and len(self.want["log"]) == STEPS, self.want

    def restore(self):
        shutil.rmtree(self.at, ignore_errors=True)
        shutil.copytree(self.before, self.at)
        self.report.unlink(missing_ok=True)

    def start(self, env, timeout=60):
        """Runs all ranks; returns the exit status of rank 0, None for a hang, and the text of all."""
        command = [str(self.exe), *map(str, data_flags("mlp")), "--steps", str(STEPS), "--checkpoint-dir", "ck",
                   "--checkpoint-every", "2",
                   "--resume", "--log", "log.jsonl", "--tensorboard", "tb", "--save", "w.st", "--export", "m.onnx", "--trace",
                   "t.json",
                   "--traffic", "s.json", "--connect-timeout", "5"]
        tcp = {}
        if self.ranks > 1:
            tcp = {"WORLD_SIZE": str(self.ranks), "LOCAL_WORLD_SIZE": str(self.ranks), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(free_port() - 17)}  # they listen 17 ports above it
        jobs = []
        for rank in range(self.ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if tcp else {}
            jobs.append(subprocess.Popen(command, env={**ENVIRONMENT, **tcp, **own, **(env if rank == 0 else {})}, cwd=self.at,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                                         start_new_session=True))
        texts, hangs = [], False
        for job in jobs:
            try:
                texts.append(job.communicate(timeout=timeout)[0])
            except subprocess.TimeoutExpired:
                hangs = True
                os.killpg(job.pid, signal.SIGKILL)
                texts.append(job.communicate()[0])
        return None if hangs else jobs[0].returncode, "".join(texts)

    def results(self):
        def read(name):
            path = self.at / name
            return path.read_bytes() if path.exists() else None
        log = [json.loads(line) for line in (read("log.jsonl") or b"").splitlines()]
        timeless = lambda text: text and re.sub(rb'"(ts|dur)":[-0-9.e+]+', b"", text)
        return {"log": [(x["step"], x["loss"]) for x in log], "checkpoints": {p.name: p.read_bytes() for p in
                sorted((self.at / "ck").glob("step-*.safetensors"))}, "events": self.events(),
                "t.json": bool(timeless(read("t.json"))),
                **{name: read(name) for name in OUTPUTS if name != "t.json"}}

    def events(self):
        """Returns the number of records of each event file, which must be whole."""
        counts = []
        for path in sorted((self.at / "tb").glob("*")):
            raw, at, n = path.read_bytes(), 0, 0
            while at < len(raw):
                at += 16 + int.from_bytes(raw[at:at + 8], "little")
                n += 1
            assert at == len(raw), f"{path.name} has a part of a record"
            counts.append(n)
        return counts

    def damage(self):
        """Returns what is wrong with the files that a failed run has left; None if nothing is."""
        raw = (self.at / "log.jsonl").read_bytes() if (self.at / "log.jsonl").exists() else b""
        # A run that ended before it resumed the log leaves it as it was.
        if raw != (self.before / "log.jsonl").read_bytes():
            if raw and not raw.endswith(b"\n"):
                return f"the log ends with {raw[-40:]}"
            try:
                steps = [json.loads(line)["step"] for line in raw.splitlines()]
            except ValueError:
                return f"a line of the log is cut: {raw[-300:]}"
            if steps != list(range(len(steps))) or len(steps) < 2:
                return f"the log has the steps {steps}"
        for name in OUTPUTS:
            path = self.at / name
            if path.exists() and (path.read_bytes() != self.want[name] if name != "t.json" else
                                  not path.read_bytes().endswith(b"]}\n")):
                return f"{name} is a part of the file"
        try:
            self.events()
        except AssertionError as error:
            # A kill in the middle of a write is a part of a record: none is written in two parts.
            return str(error)
        done = subprocess.run([self.exe, "--verify", "--checkpoint-dir", "ck"], cwd=self.at, env=ENVIRONMENT, capture_output=True,
                              text=True, timeout=60)
        if done.returncode:
            return f"--verify: {done.stdout}{done.stderr}"
        return None

    def outcome(self, call, number, how, rest):
        """Returns the outcome, a description, and the library that called; None if there is no such call."""
        for _ in range(3):
            self.restore()
            status, said = self.start({"LD_PRELOAD": str(self.interposer), "FAIL_CALL": call, "FAIL_NUMBER": str(number),
                                       "FAIL_HOW": how, "FAIL_REPORT": str(self.report), **({"FAIL_REST": rest} if rest else {})})
            # Without a failure it trains, unless somebody else has taken the port.
            if self.report.exists() or status == 0:
                break
        if not self.report.exists():
            return None
        caller = pathlib.Path(self.report.read_text().split(None, 1)[1].strip()).name
        result = self.judge(status, said, how, caller)
        if result[0] in BAD:
            return *result, caller
        # The next run completes everything, and nothing is left of this one.
        status, again = self.start({})
        got = self.results() if status == 0 else {}
        # The traffic of a run without a step is none.
        wrong = [k for k in ("log", *OUTPUTS) if status == 0 and k != "s.json" and got[k] != self.want[k]]
        # Lines that a disk was too full for until the end were reported; the others are there.
        if "log" in wrong and re.search(r"error: cannot write 'log.jsonl': .* missing in it", said):
            wrong = [k for k in wrong if k != "log" or not set(got["log"]) <= set(self.want["log"])]
        left = [p.name for p in self.at.rglob("*") if ".tmp-" in p.name or p.name == ".lock"]
        if status != 0 or wrong or left:
            return "DAMAGED", f"then: status {status}, wrong {wrong}, left {left}: {again[-600:]} ({said[-400:]})", caller
        return *result, caller

    def judge(self, status, said, how, caller):
        if status is None:
            return "HANG", said[-1000:]
        damage = self.damage()
        if damage:
            return "DAMAGED", f"status {status}: {damage}: {said[-600:]}"
        if status == -signal.SIGKILL and how == "kill":
            return "killed", ""
        if status < 0 and caller not in (self.exe.name, "libc.so.6") and "has crashed: " in said:
            return "library", f"signal {-status}: {said[-1000:]}"
        if status < 0:
            return "CRASH", f"signal {-status}: {said[-1000:]}"
        messages = [line for line in said.splitlines() if re.search(r"(error|warning|note): |out of memory|[Cc]annot|memory", line)
                    and "resuming after" not in line and "was cut" not in line]
        if status == 0:
            got = self.results()
            wrong = [k for k in self.want if got[k] != self.want[k]]
            if not wrong:
                return "same", " ".join(messages)
            named = any("warning: " in line for line in messages)
            # A checkpoint, or the event file: all else must be there.
            if named and set(wrong) <= {"checkpoints", "events"}:
                return "warned", " ".join(messages)
            return "SILENT", f"status 0, wrong: {wrong}: {said[-1000:]}"
        if any("error: " in line for line in messages):
            return "error", " ".join(m for m in messages if "error: " in m)
        if messages:
            return "library", " ".join(messages)
        return "SILENT", f"status {status}: {said[-1000:]}"


def tables(rows):
    """Prints the outcomes by transport, function and way, and those of malloc by library."""
    for title, key in (("", lambda r: (r["ranks"], r["call"], r["way"])),
                       ("malloc and mmap, by the library that called", lambda r: (r["ranks"], r["call"], r["caller"]))):
        table = collections.defaultdict(collections.Counter)
        for row in rows:
            if not title or row["call"] in ("malloc", "mmap"):
                table[key(row)][row["outcome"]] += 1
        if title:
            print(f"\n{title}")
        print(f"{'ranks':6}{'call':10}{'':28}" + "".join(f"{o:>9}" for o in OUTCOMES))
        for (ranks, call, way), row in table.items():
            print(f"{ranks:<6}{call:10}{way[:27]:28}" + "".join(f"{row[o] or '':>9}" for o in OUTCOMES))
        total = sum(table.values(), collections.Counter())
        print(f"{'all':44}" + "".join(f"{total[o] or '':>9}" for o in OUTCOMES))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", metavar="FILE.jsonl")
    parser.add_argument("--calls", default=",".join(WAYS), help="only these functions")
    parser.add_argument("--ranks", default="1,2", help="1: one process; 2: rank 0 of two over TCP")
    parser.add_argument("--every", type=int, default=1, help="only every N-th call of malloc")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    rows, done = [], {}
    if a.results and pathlib.Path(a.results).exists():
        rows = [json.loads(line) for line in pathlib.Path(a.results).read_text().splitlines()]
        done = {(r["ranks"], r["call"], r["way"], r["number"]): r for r in rows}
    if a.tables:
        return tables([r for r in rows if r["outcome"]])
    ranks_of = [1] if a.check else [int(n) for n in a.ranks.split(",")]
    for ranks in ranks_of:
        with scratch() as folder:
            job = Job(folder, ranks)
            for call in a.calls.split(","):
                for how, rest in WAYS[call]:
                    if a.check and (how == "kill" and call != "pwrite" or how == "EMFILE" or call == "mmap"):
                        continue
                    step = a.every if call == "malloc" else 1
                    if a.check:
                        step = {"malloc": 700, "open": 9, "close": 13, "write": 9, "pwrite": 21, "fsync": 7, "flock": 9}.get(call, 4)
                    number = 1
                    while True:
                        way = way_text(how, rest)
                        row = done.get((ranks, call, way, number))
                        if not row:
                            result = job.outcome(call, number, how, rest)
                            outcome, said, caller = result or (None, "", "")
                            row = {"ranks": ranks, "call": call, "way": way, "number": number, "outcome": outcome, "caller": caller,
                                   "said": said[:1500]}
                            rows.append(row)
                            if a.results:
                                with open(a.results, "a") as f:
                                    f.write(json.dumps(row) + "\n")
                        if row["outcome"] is None:
                            break
                        check(f"{call} {number} of {ranks} ranks: {way}", row["outcome"] not in BAD, row["outcome"], row["said"])
                        number += step
    tables([r for r in rows if r["outcome"]])
    finish()


if __name__ == "__main__":
    main()
