"""Files of one program that are compiled in parallel (--jobs), and the cache of compiled files (--cache)."""

import os
import pathlib
import signal
import subprocess
import time

from common import NNAOT, SAMPLES, check, finish, scratch

GPT2 = [SAMPLES / "gpt2/gpt2.onnx", "--loss", "next_token(logits,input_ids)", "--batch", "4"]
MLP = [SAMPLES / "mlp/mlp.onnx", "--loss", "cross_entropy(logits)", "--batch", "16"]


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
                    f"*kernels_0*) until [ $(ls {pids} | wc -l) -gt 1 ]; do sleep 0.05; done\n{fails}; exit 1;;\n*) {slow};;\nesac\n")
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


def cache(folder):
    at = folder / "cache"
    calls = folder / "calls"
    cc = script(folder / "cc", f'[ "$1" = --version ] || echo "$@" >> {calls}\nexec cc "$@"\n')

    def build(*flags, model=GPT2, env=()):
        calls.write_text("")
        done = start(NNAOT, *model, *flags, "-o", folder / "exe", env={**os.environ, "CC": str(cc), **dict(env)})
        check(f"nnaot {flags}", done.returncode == 0, done.stderr)
        lines = calls.read_text().splitlines()
        return sum(" -c " in line for line in lines), (folder / "exe").read_bytes(), done.stderr

    start(NNAOT, *GPT2, "--emit", "c", "-o", folder / "sources")
    sources = len(list((folder / "sources").glob("*.c")))
    n, without, _ = build()
    check("without the option every file is compiled", n == sources > 2 and not at.exists(), n, sources)
    first, filled, _ = build("--cache", at)
    check("an empty cache", (first, filled == without) == (n, True), first)
    again, taken, _ = build("--cache", at)
    check("all objects are in the cache, and equal", (again, taken == without) == (0, True), again)
    files = sorted(at.iterdir())
    check("one file for each object", len(files) == n and {p.stat().st_mode & 0o022 for p in files} == {0}, files)

    # Another text, other options and another compiler are other objects.
    other, _, _ = build("--cache", at, model=MLP)
    check("another model", other == 1, other)
    other, _, _ = build("--cache", at, "--batch", 8)
    check("another batch", other == n, other)
    other, _, _ = build("--cache", at, env={"CPATH": str(folder)})
    check("another search path of headers", other == n, other)
    script(cc, f'[ "$1" = --version ] && {{ echo other 1.0; exit; }}\necho "$@" >> {calls}\nexec cc "$@"\n')
    other, _, _ = build("--cache", at)
    check("another version of the compiler", other == n, other)
    script(cc, f'[ "$1" = --version ] && exit 1\necho "$@" >> {calls}\nexec cc "$@"\n')
    other, _, _ = build("--cache", at)
    check("a compiler without a version is never cached", other == n and build("--cache", at)[0] == n, other)
    script(cc, f'[ "$1" = --version ] || echo "$@" >> {calls}\nexec cc "$@"\n')

    # Damaged entries are compiled again, and replaced.
    def flip(data):
        return data[:-9] + bytes([data[-9] ^ 4]) + data[-8:]

    for name, damage in [("a flipped bit", flip), ("a key's bit", lambda b: b[:60] + bytes([b[60] ^ 1]) + b[61:]),
                         ("a short file", lambda b: b[:-1]), ("a long file", lambda b: b + b"x"), ("no file", lambda b: b""),
                         ("a short head", lambda b: b[:20]), ("large sizes", lambda b: b[:8] + b"\xff" * 16 + b[24:])]:
        for path in files:
            path.write_bytes(damage(path.read_bytes()))
        made, exe, _ = build("--cache", at)
        check(f"{name}: compiled again", (made, exe == without) == (n, True), made)
        made, exe, _ = build("--cache", at)
        check(f"{name}: replaced", (made, exe == without) == (0, True), made)
    # Entries that are no files are not followed.
    victim = folder / "victim"
    victim.write_text("precious")
    files[0].unlink()
    files[0].symlink_to(victim)
    made, exe, _ = build("--cache", at)
    check("a link is not read, and its file is untouched", (made, exe == without) == (1, True) and
          victim.read_text() == "precious", made)

    # Several at the same time.
    both = folder / "both"
    running = [subprocess.Popen([str(x) for x in (NNAOT, *GPT2, "--cache", both, "-o", folder / f"exe{i}")], env={
        **os.environ, "CC": str(cc)}, stderr=subprocess.PIPE, text=True) for i in range(3)]
    said = [job.communicate()[1] for job in running]
    exes = {(folder / f"exe{i}").read_bytes() for i in range(3)}
    check("three builds at once", exes == {without} and not [job for job in running if job.returncode], said)
    check("and no temporary file", {len(p.name) for p in both.iterdir()} == {16}, list(both.iterdir()))
    made, exe, _ = build("--cache", both)
    check("and a whole cache", (made, exe == without) == (0, True), made)

    # Folders that are refused, before the model is read.
    def refused(path, text, *flags):
        done = start(NNAOT, "none.onnx", "--loss", "y", "--cache", path, "-o", folder / "none", *flags)
        check(f"--cache {path}", done.returncode == 2 and text in done.stderr, done.stderr)

    wide = folder / "wide"
    wide.mkdir()
    wide.chmod(0o777)
    refused(wide, "other users may write to it")
    inside = wide / "inside"
    inside.mkdir(0o700)
    refused(inside, f"'{wide}': other users may write to it")
    refused(victim, "is no folder")
    refused(victim / "cache", "cannot make the folder")
    refused(folder / "none" / "cache", "cannot make the folder")
    refused(at, "--cache has no effect with --emit nn", "--emit", "nn")
    if os.geteuid():
        closed = folder / "closed"
        closed.mkdir(0o500)
        refused(closed, "cannot write to")
    # Entries that cannot be written are no error.
    full = folder / "full"
    full.mkdir()
    for path in files:
        (full / path.name).mkdir()
    made, exe, said = build("--cache", full)
    check("a cache that cannot be written", (made, exe == without) == (n, True) and "warning: --cache: cannot write" in said, said)


with scratch() as folder:
    folder = pathlib.Path(folder)
    for test in jobs, failures, cache:
        (folder / test.__name__).mkdir()
        test(folder / test.__name__)
finish()
