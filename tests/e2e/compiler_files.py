"""nnaot's own files: temporary names, links planted there, what a killed nnaot leaves, closed standard descriptors."""

import fcntl
import itertools
import os
import pathlib
import re
import signal
import subprocess
import time

from common import BUILD, NNAOT, ROOT, SAMPLES, check, finish, scratch

MLP = SAMPLES / "mlp" / "mlp.onnx"
STEP = [MLP, "--batch", "16", "--loss", "cross_entropy(logits)", "-g", "2"]


def start(*command, **kw):
    return subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, **kw)


def outputs(folder):
    """Flags for every kind of file that nnaot writes, with the text of the program."""
    os.makedirs(folder, exist_ok=True)
    return ["--emit", "c", "-o", f"{folder}/c", "--summary", f"{folder}/summary.json", "--comm-manifest", f"{folder}/manifest.json",
            "--trace", f"{folder}/trace.json", "--report", f"{folder}/report.html", "--dump-dir", f"{folder}/dump"]


def contents(folder):
    # The command is in some of them, and the time of each pass in the summary.
    return {str(p.relative_to(folder)): re.sub(rb'"seconds": *(\{[^}]*\}|[-0-9.e]+)', b"", p.read_bytes().replace(
            str(folder).encode(), b"@")) for p in pathlib.Path(folder).rglob("*") if p.is_file()}


def planted(folder):
    victim = folder / "victim"
    victim.write_text("precious\n")
    at = folder / "planted"

    def plant():
        pid = os.getpid()
        os.makedirs(at / "c")
        os.makedirs(at / "dump")
        for name in "summary.json", "manifest.json", "trace.json", "report.html":
            os.symlink(victim, at / f"{name}.{pid}.tmp")
            os.symlink(victim, at / f".{name}.tmp-0123456789abcdef")
        for name in "program.c", "payload.bin":
            os.symlink(victim, at / "c" / f"{name}.part")
        os.symlink(victim, at / "dump/00-input.nn")
        os.symlink(victim, at / "report.html")
    done = start(NNAOT, *STEP, *outputs(at)[:-2], "--dump-dir", at / "dump", preexec_fn=plant)
    check("links at temporary names: nnaot writes", done.returncode == 0, done.stderr)
    check("links at temporary names: their file is untouched", victim.read_text() == "precious\n", victim.read_text()[:200])
    check("a link at an output's own name is replaced", not (at / "report.html").is_symlink() and
          (at / "report.html").stat().st_size > 1000)


def left(folder):
    at = folder / "left"
    at.mkdir()
    gone, stays = at / ".summary.json.tmp-0123456789abcdef", at / ".other.json.tmp-0123456789abcdef"
    alive = at / ".summary.json.tmp-00000000000000aa"
    for path in gone, stays, alive:
        path.write_text("left")
    with open(alive, "r+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        done = start(NNAOT, *STEP, *outputs(at))
    check("temporary files of killed writers go, others stay", done.returncode == 0 and not gone.exists() and stays.exists()
          and alive.exists(), done.stderr, os.listdir(at))

    # Killed while a compiler runs: the next build removes the folder, and none of a living one or of the user.
    tmp = folder / "tmp"
    tmp.mkdir()
    slow = folder / "slow-cc"
    slow.write_text('#!/bin/sh\n: > "$PIDS"/$$\nexec sleep 100\n')
    slow.chmod(0o755)
    pids = folder / "pids"
    pids.mkdir()
    env = {**os.environ, "TMPDIR": str(tmp), "CC": str(slow), "PIDS": str(pids)}
    jobs = []
    for i in range(2):
        jobs.append(subprocess.Popen([str(x) for x in (NNAOT, *STEP, "-o", folder / f"exe{i}")], env=env,
                                     stderr=subprocess.DEVNULL))
        while len(list(pids.iterdir())) <= i:
            time.sleep(0.02)
    killed, living = jobs
    (tmp / "nnaot-mine").mkdir()
    (tmp / "nnaot-mine" / "notes").write_text("keep")
    before = {p.name for p in tmp.iterdir()}
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    done = start(NNAOT, *STEP, "-o", folder / "exe", env={**env, "CC": "false"})
    after = {p.name for p in tmp.iterdir()}
    check("the folder of a killed nnaot goes, that of a living one stays", len(before) == 3 and len(after) == 2 and
          "nnaot-mine" in after and (tmp / "nnaot-mine" / "notes").exists(), before, after, done.stderr)
    living.send_signal(signal.SIGTERM)
    living.wait()
    check("a stopped nnaot removes its own", {p.name for p in tmp.iterdir()} == {"nnaot-mine"}, os.listdir(tmp))
    for path in pids.iterdir():
        try:
            os.kill(int(path.name), signal.SIGKILL)
        except ProcessLookupError:
            pass
    # A folder with code that does not compile is the user's.
    bad = folder / "bad-cc"
    bad.write_text('#!/bin/sh\necho "program.c:1:1: error: no"; exit 1\n')
    bad.chmod(0o755)
    for i in range(2):
        done = start(NNAOT, *STEP, "-o", folder / "exe", env={**env, "CC": str(bad)})
    kept = [p for p in tmp.iterdir() if p.name != "nnaot-mine"]
    check("folders that are kept stay", len(kept) == 2 and all((p / "program.c").exists() for p in kept), done.stderr, kept)


def closed(folder):
    done = start(NNAOT, *STEP, *outputs(folder / "open"))
    check("nnaot writes", done.returncode == 0, done.stderr)
    want = contents(folder / "open")
    nn = ROOT / "tests/ir/origin.nn"
    for n in 1, 2, 3:
        for fds in itertools.combinations((0, 1, 2), n):
            def close(fds=fds):
                for fd in fds:
                    os.close(fd)
            at = folder / ("closed" + "".join(map(str, fds)))
            done = start(NNAOT, *STEP, *outputs(at), preexec_fn=close)
            got = contents(at)
            check(f"nnaot, closed {fds}: the same files", done.returncode == 0 and got.keys() == want.keys() and not
                  [k for k in want if got[k] != want[k]], done, [k for k in want if got.get(k) != want[k]])
            # Text for standard output, or from standard input, that is closed is an error.
            done = start(BUILD / "bin/nnaot-opt", nn, preexec_fn=close)
            check(f"nnaot-opt, closed {fds}", done.returncode == (1 in fds), done)
            done = start(BUILD / "bin/nnaot-opt", "-", "-o", at / "opt.nn", preexec_fn=close, stdin=open(nn))
            check(f"nnaot-opt of standard input, closed {fds}", (done.returncode == 0) == (0 not in fds), done)
            for tool, *flags in [("nnaot-eval", nn), ("nnaot-plan", "--help"), ("nnaot", "--help")]:
                done = start(BUILD / "bin" / tool, *flags, preexec_fn=close)
                check(f"{tool}, closed {fds}: no signal", done.returncode >= 0 and (1 not in fds or done.returncode != 0), done)
    exe = folder / "exe"
    done = start(NNAOT, *STEP, "-o", exe, preexec_fn=lambda: [os.close(fd) for fd in (0, 1, 2)])
    check("an executable with all closed", done.returncode == 0 and start(exe, "--verify").returncode == 0, done)


with scratch() as folder:
    folder = pathlib.Path(folder)
    planted(folder)
    left(folder)
    closed(folder)
finish()
