"""Files of one program that are compiled in parallel (--jobs)."""

import os
import pathlib
import signal
import subprocess
import time

from common import NNAOT, SAMPLES, check, finish, scratch

GPT2 = [SAMPLES / "gpt2/gpt2.onnx", "--loss", "next_token(logits,input_ids)", "--batch", "4"]


def start(*command, **kw):
    return subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600, **kw)


def script(path, text):
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)
    return path


def alive(pids):
    found = []
    for pid in pids:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        found += [pid] if state != "Z" else []
    return found


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def jobs(folder):
    """The C compiler runs so many times at once, and a program has the same text for every number."""
    counts = {}
    # Each compiler writes how many there are, itself included; then it compiles.
    cc = script(folder / "cc", ': > "$NOW"/$$\nls "$NOW" | wc -l >> "$NOW.count"\nsleep 1\n'
                'cc "$@"\nc=$?\nrm "$NOW"/$$\nexit $c\n')
    for n in 1, 3:
        now = folder / f"now{n}"
        now.mkdir()
        done = start(NNAOT, *GPT2, "-j", n, "-o", folder / f"jobs{n}", env={**os.environ, "CC": str(cc), "NOW": str(now)})
        check(f"--jobs {n}", done.returncode == 0, done.stderr)
        counts[n] = max(map(int, pathlib.Path(f"{now}.count").read_text().split()))
    check("--jobs is the number of compilers at a time", counts == {1: 1, 3: 3}, counts)
    one, three = (start(folder / f"jobs{n}", "--describe").stdout for n in (1, 3))
    check("--jobs changes no text", one and one == three, one, three)


def failures(folder):
    tmp = folder / "tmp"
    tmp.mkdir()
    # The first kernels fail while others compile: one message, and no compiler is left.
    slow = f': > {folder}/pids/$$\nsleep 300 & echo > {folder}/pids/$!\nwait\n'
    for kind, fails, said in [
            ("code", "echo 'kernels_0.c:3:1: error: planted'", "the generated code does not compile; this is a mistake of nnaot"),
            ("memory", "echo 'cc: fatal error: Killed signal terminated program cc1'", "--jobs 1 compiles one file at a time"),
            ("tool", "echo no licence", "note: no licence")]:
        pids = folder / "pids"
        pids.mkdir()
        cc = script(folder / "cc", 'case "$*" in\n'
                    f"*kernels_0*) until ls {pids} | grep -q .; do sleep 0.05; done\n{fails}; exit 1;;\n*) {slow};;\nesac\n")
        done = start(NNAOT, *GPT2, "-j", 3, "-o", folder / "none", env={**os.environ, "CC": str(cc), "TMPDIR": str(tmp)})
        names = [p.name for p in pids.iterdir()]
        check(f"{kind}: one message", done.returncode == 1 and done.stderr.count("error: ") == (2 if kind == "memory" else 1) and
              said in done.stderr, done.stderr)
        check(f"{kind}: no compiler is left", len(names) > 1 and until(lambda names=names: not alive(names)), names)
        kept = list(tmp.iterdir())
        check(f"{kind}: the folder", len(kept) == (kind == "code") and not (folder / "none").exists(), kept)
        for path in kept:
            files = {p.name for p in path.iterdir()}
            check("a kept folder has the code and one log", {"program.c", "program.h", "kernels_0.c", "log"} <= files and
                  not [f for f in files if f.startswith("log_")] and "planted" in (path / "log").read_text(), files)
            subprocess.run(["rm", "-r", path])
        subprocess.run(["rm", "-r", pids])
    # A signal while compilers run.
    for number in signal.SIGTERM, signal.SIGINT:
        pids = folder / "pids"
        pids.mkdir()
        cc = script(folder / "cc", slow)
        job = subprocess.Popen([str(x) for x in (NNAOT, *GPT2, "-j", 3, "-o", folder / "none")], stderr=subprocess.DEVNULL,
                               env={**os.environ, "CC": str(cc), "TMPDIR": str(tmp)})
        check("compilers start", until(lambda pids=pids: len(list(pids.iterdir())) == 6), list(pids.iterdir()))
        job.send_signal(number)
        job.wait()
        names = [p.name for p in pids.iterdir()]
        check(f"{number.name} ends all compilers and their children", until(lambda names=names: not alive(names)), names)
        check(f"{number.name} leaves nothing", job.returncode == -number and not list(tmp.iterdir()) and
              not (folder / "none").exists(), job.returncode, list(tmp.iterdir()))
        subprocess.run(["rm", "-r", pids])


with scratch() as folder:
    folder = pathlib.Path(folder)
    for test in jobs, failures:
        (folder / test.__name__).mkdir()
        test(folder / test.__name__)
finish()
