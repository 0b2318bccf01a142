"""Files: nothing is lost, and nothing goes into a file that it is not for.

Closed standard descriptors, links planted at names that a run writes, temporary files of killed runs, the lock of a folder,
generations of earlier checkpoints, a full disk, the log's cut lines, pipes.
"""

import ctypes
import fcntl
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import threading
import time

from common import (DATA, PROGRAMS, check, finish, folder_with_data, free_port, log, losses, refused, run, safetensors, train)

random.seed(5)
HERE = pathlib.Path(__file__).resolve().parent
EVAL = [flag.replace("--", "--eval-") if flag == "--input" else flag for flag in DATA]


def interposer():
    """Builds failing_calls.c, once; None without a compiler that can, or under sanitizers, which have a malloc of their own."""
    library = pathlib.Path("failing_calls.so").resolve()
    if not library.exists():
        done = subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", library,
                               HERE / "failing_calls.c", "-ldl"], capture_output=True, text=True)
        if done.returncode:
            return None
        probe = run("line1", "--version", env={"LD_PRELOAD": str(library)})
        if probe.returncode:
            library.unlink()
            return None
    return library


def failing(call, number, how, **more):
    return {"LD_PRELOAD": str(interposer()), "FAIL_CALL": call, "FAIL_NUMBER": str(number), "FAIL_HOW": how,
            "GOMP_SPINCOUNT": "1000", **more}


def leftovers(folder="."):
    return [str(p) for p in pathlib.Path(folder).rglob("*") if ".tmp-" in p.name or p.name == ".lock"]


def names(folder="ck"):
    return sorted(os.listdir(folder))


def closed_descriptors():
    """Each subset of 0 to 2 is closed: the files are those of an ordinary run."""
    def outputs(folder):
        os.makedirs(folder, exist_ok=True)
        return ["--steps", "6", "--checkpoint-dir", f"{folder}/ck", "--log", f"{folder}/log.jsonl", "--tensorboard", f"{folder}/tb",
                "--save", f"{folder}/w.st", "--export", f"{folder}/m.onnx", "--trace", f"{folder}/t.json", "--traffic",
                f"{folder}/s.json"]

    def contents(folder):
        same = {p.name: p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.suffix in (".st", ".onnx", ".safetensors")}
        events = [p.read_bytes() for p in pathlib.Path(folder, "tb").iterdir()]
        for text in (pathlib.Path(folder, n).read_bytes() for n in ("log.jsonl", "t.json", "s.json")):
            check("no text of the terminal is in a file", b"step 1/6" not in text and b"warning" not in text, folder, text[:300])
        check("event files have no other text", len(events) == 1 and b"step 1/6" not in events[0] and
              events[0][8:].count(b"loss") == 6,
              folder, events)
        json.loads(pathlib.Path(folder, "t.json").read_text())
        return same, losses(f"{folder}/log.jsonl"), json.loads(pathlib.Path(folder, "s.json").read_text())

    train("line2", *outputs("open"))
    want = contents("open")
    for n in 1, 2, 3:
        for fds in itertools.combinations((0, 1, 2), n):
            def close(fds=fds):
                for fd in fds:
                    os.close(fd)
            name = "closed" + "".join(map(str, fds))
            done = subprocess.run([PROGRAMS / "line2", *DATA, *outputs(name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  preexec_fn=close, timeout=60)
            check(f"threads, closed {fds}: trains", done.returncode == 0, done)
            check(f"threads, closed {fds}: the same files", contents(name) == want)
            port, ranks = free_port(), []
            for rank in range(2):
                env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                ranks.append(subprocess.Popen([PROGRAMS / "line2", *DATA, *outputs(f"tcp-{name}")], env=env, preexec_fn=close,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            done = [(r.communicate(timeout=60), r.returncode) for r in ranks]
            check(f"TCP, closed {fds}: trains", [code for _, code in done] == [0, 0], done)
            check(f"TCP, closed {fds}: the same files", contents(f"tcp-{name}") == want)
    # A result that cannot be printed is an error.
    for flags in ["--eval-only", *EVAL], ["--describe"], ["--version"], ["--help"], ["--verify"]:
        done = subprocess.run([PROGRAMS / "line1", *flags], stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.close(1),
                              timeout=60)
        check(f"{flags[0]} without standard output", done.returncode == 1 and "cannot write to standard output: " in done.stderr,
              done)
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAMS / "line1", *flags], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        check(f"{flags[0]} to a full disk", done.returncode == 1 and "cannot write to standard output: No space" in done.stderr,
              done)
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAMS / "line1", *DATA, "--steps", "9"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=60)
    check("progress that cannot be printed is said once, and training goes on", done.returncode == 0 and
          done.stderr.count("warning: ") == 1 and "progress" in done.stderr, done)


def planted_links():
    """A link at a name that the runtime makes is neither followed nor written; at the user's name it is followed."""
    victim = pathlib.Path("victim")
    victim.write_text("precious\n")

    def untouched(what):
        check(f"{what}: the link's file is untouched", victim.read_text() == "precious\n", victim.read_bytes()[:99])

    # The temporary name of older versions, and one of the pattern in use.
    def plant():
        for path in f".w.st.tmp-{os.getpid()}", f"ck/.step-000000000002.safetensors.tmp-{os.getpid()}":
            os.symlink(victim.resolve(), path)
    os.mkdir("ck")
    os.symlink(victim.resolve(), ".w.st.tmp-0123456789abcdef")
    os.symlink("nowhere", ".w.st.tmp-0123456789abcdee")
    done = run("line1", *DATA, "--steps", 2, "--save", "w.st", "--checkpoint-dir", "ck", preexec_fn=plant)
    check("links at temporary names", done.returncode == 0 and "w" in safetensors("w.st")[0] and not os.path.exists("nowhere"),
          done.stderr)
    untouched("links at temporary names")
    check("links of others stay", os.path.islink(".w.st.tmp-0123456789abcdef"), os.listdir())
    # A checkpoint replaces a link at its name.
    os.system("rm -rf ck .w.st.tmp-*")
    os.mkdir("ck")
    os.symlink(victim.resolve(), "ck/step-000000000002.safetensors")
    done = run("line1", *DATA, "--steps", 2, "--checkpoint-dir", "ck")
    check("a link at a checkpoint's name is set aside", done.returncode == 0 and
          not os.path.islink("ck/step-000000000002.safetensors") and os.path.islink("ck/step-000000000002.safetensors.old"),
          done.stderr, names())
    untouched("a link at a checkpoint's name")
    # The lock.
    os.system("rm -rf ck")
    os.mkdir("ck")
    os.symlink(victim.resolve(), "ck/.lock")
    refused("a link at the lock's name", "cannot write 'ck/.lock': ", "line1", *DATA, "--steps", 2, "--checkpoint-dir", "ck")
    untouched("a link at the lock's name")
    os.remove("ck/.lock")
    os.mkfifo("ck/.lock")
    refused("a FIFO at the lock's name", "cannot write 'ck/.lock': it is not a file", "line1", *DATA, "--steps", 2,
            "--checkpoint-dir", "ck")
    # Event files, whose names can be guessed.
    os.mkdir("tb")

    def plant_events():
        for at in range(30):
            name = f"tb/events.out.tfevents.{int(time.time()) + at}.{socket.gethostname()}.{os.getpid()}"
            for path in name, f"{name}.0":
                os.symlink(victim.resolve(), path)
    done = run("line1", *DATA, "--steps", 2, "--tensorboard", "tb", preexec_fn=plant_events)
    made = [p for p in pathlib.Path("tb").iterdir() if not p.is_symlink()]
    check("links at the names of event files", done.returncode == 0 and len(made) == 1 and made[0].stat().st_size > 100,
          done.stderr)
    untouched("links at the names of event files")
    # The user's own link is followed: the log it names is appended to, the weights replaced.
    os.symlink("real.jsonl", "link.jsonl")
    train("line1", "--steps", 4, "--log", "link.jsonl", "--checkpoint-dir", "ck2")
    pathlib.Path("real.jsonl").write_text("note\n{\"step\":0,\"lo" + pathlib.Path("real.jsonl").read_text())
    train("line1", "--steps", 5, "--log", "link.jsonl", "--checkpoint-dir", "ck2", "--resume")
    lines = pathlib.Path("real.jsonl").read_text().splitlines()
    check("a log under a link", os.path.islink("link.jsonl") and lines[0] == "note" and
          [json.loads(line)["step"] for line in lines[1:]] == [0, 1, 2, 3, 4], lines)
    os.system("rm -rf ck ck2 tb")


def left_files():
    """Temporary files of killed writers are removed at the next start; those of living ones and of others stay."""
    stays = [".other.st.tmp-0123456789abcdef", ".w.st.tmp-0123456789abcde", ".w.st.tmp-0123456789abcdeg", ".w.st.bak"]
    goes = [".w.st.tmp-0123456789abcdef", ".w.st.tmp-ffffffffffffffff"]
    for path in [*stays, *goes]:
        pathlib.Path(path).write_text("left")
    alive = open(".w.st.tmp-00000000000000aa", "w")
    fcntl.flock(alive, fcntl.LOCK_EX)
    train("line1", "--steps", 2, "--save", "w.st")
    there = os.listdir()
    check("leftovers of killed writers go", not [p for p in goes if p in there], there)
    check("those of others, and of a living writer, stay", [p for p in [*stays, alive.name] if p not in there] == [], there)
    alive.close()
    long = "w" * 250 + ".st"
    train("line1", "--steps", 2, "--save", long)
    check("a name of 253 bytes", "w" in safetensors(long)[0])
    os.system(f"rm -f .w.st* .other* {long}")
    # Killed at every call of its last step: the next start of the same outputs leaves nothing of it.
    if not interposer():
        return
    flags = [*DATA, "--steps", 3, "--save", "k.st", "--export", "k.onnx", "--trace", "k.json", "--checkpoint-dir", "kc"]
    for call, n in ("pwrite", 1), ("pwrite", 9), ("pwrite", 16), ("rename", 1), ("rename", 2), ("rename", 3), ("rename", 4):
        done = run("line1", *flags, env=failing(call, n, "kill"))
        check(f"killed at {call} {n}", done.returncode == -signal.SIGKILL, done)
        left = leftovers()
        done = run("line1", *flags, "--resume")
        check(f"killed at {call} {n}: the next start trains", done.returncode == 0, done.stderr)
        check(f"killed at {call} {n}: nothing is left, of {len(left)}", left and not leftovers(), left, leftovers())
        os.system("rm -rf kc k.*")


def the_lock():
    """A second run that would write to a folder of checkpoints, or to a log, ends; a run that only reads does not."""
    flags = ["--checkpoint-dir", "lk", "--checkpoint-every", "20"]
    first = subprocess.Popen([PROGRAMS / "slow1", *DATA, "--steps", "100000", *flags, "--log", "lk.jsonl"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (os.path.isdir("lk") and any(n.endswith(".safetensors") for n in names("lk"))):
        time.sleep(0.01)
    done = refused("two runs in one folder",
                   f"another run writes checkpoints to 'lk': process {first.pid} on {socket.gethostname()}, "
                   "since 20", "line1", *DATA, "--steps", 2, "--checkpoint-dir", "lk")
    check("its hint", "hint: end it, or take another --checkpoint-dir" in done.stderr, done.stderr)
    refused("also with --resume", "another run writes checkpoints to 'lk'", "line1", *DATA, "--steps", 2, "--resume",
            "--checkpoint-dir", "lk")
    refused("two runs with one log", "another run writes 'lk.jsonl'\nhint: another --log", "line1", *DATA, "--steps", 2, "--log",
            "lk.jsonl")
    train("line1", "--steps", 2, "--log", "other.jsonl", "--checkpoint-dir", "lk2")
    done = run("line1", "--eval-only", *EVAL, "--resume", "--checkpoint-dir", "lk", "--log", "other.jsonl")
    check("an evaluation reads meanwhile", done.returncode == 0 and "resuming after step" in done.stderr, done.stderr)
    done = run("line1", "--verify", "--checkpoint-dir", "lk")
    check("--verify reads meanwhile", done.returncode == 0, done)
    first.kill()
    first.wait()
    check("a killed run leaves its file", ".lock" in names("lk"), names("lk"))
    lines = log("lk.jsonl")
    done = train("line1", "--steps", lines[-1]["step"] + 3, "--resume", "--checkpoint-dir", "lk", "--log", "lk.jsonl")
    check("and no lock", ".lock" not in names("lk") and [x["step"] for x in log("lk.jsonl")] == list(range(lines[-1]["step"] + 3)),
          names("lk"), done.stderr)
    # A run that begins as another ends waits for it.
    holder = open("lk/.lock", "w")
    fcntl.flock(holder, fcntl.LOCK_EX)

    def end():
        os.remove("lk/.lock")
        holder.close()
    threading.Timer(0.3, end).start()
    train("line1", "--steps", 2, "--checkpoint-dir", "lk")
    if interposer():
        done = run("line1", *DATA, "--steps", 2, "--checkpoint-dir", "lk", env=failing("flock", 1, "ENOLCK", FAIL_REST="ENOLCK"))
        check("without locks: a note", done.returncode == 0 and "note: the file system of 'lk' has no locks (No locks available)"
              in done.stderr, done.stderr)
    # An evaluation needs no permission to write, and makes no folder.
    done = refused("a folder that is not there", "cannot read the folder 'none': No such file or directory", "line1", "--eval-only",
                   *EVAL, "--resume", "--checkpoint-dir", "none")
    check("it is not made", not os.path.exists("none"))
    os.system("rm -rf lk lk2")


def generations():
    """A further run without --resume keeps the checkpoints of all runs before it."""
    kept = {}
    for i, suffix in enumerate([None, ".old", ".old-2", ".old-3"]):
        said = train("line1", "--steps", 4, "--checkpoint-dir", "g", "--checkpoint-every", 2, "--seed", i).stderr
        if suffix:
            kept = {**{f"{n}{suffix}": raw for n, raw in new.items()}, **kept}
            check("the new names are said", f"2 checkpoints of an earlier run in 'g' are now called *{suffix}\n" in said, said)
        new = {n: pathlib.Path("g", n).read_bytes() for n in names("g") if n.endswith(".safetensors")}
        there = {n: pathlib.Path("g", n).read_bytes() for n in names("g")}
        check(f"run {i}: every checkpoint of every run is there", there == {**new, **kept}, names("g"), sorted(kept))
    os.system("rm -rf g")
    # An earlier run's checkpoint that cannot be renamed stays, and the new one is not written over it.
    if not interposer():
        return
    train("line1", "--steps", 2, "--checkpoint-dir", "g")
    old = pathlib.Path("g/step-000000000002.safetensors").read_bytes()
    done = run("line1", *DATA, "--steps", 2, "--seed", 7, "--checkpoint-dir", "g", env=failing("rename", 1, "EACCES",
    FAIL_REST="EACCES"))
    check("a checkpoint that cannot be renamed is not overwritten", done.returncode == 1 and names("g") ==
          ["step-000000000002.safetensors"] and pathlib.Path("g/step-000000000002.safetensors").read_bytes() == old and
          "cannot rename" in done.stderr and "still there" not in done.stderr, done.stderr, names("g"))
    os.system("rm -rf g")


def unreadable():
    """A checkpoint that cannot be read for a moment is not damaged: no run resumes from an older one instead."""
    train("line1", "--steps", 10, "--checkpoint-dir", "u", "--checkpoint-every", 5)
    before = {n: pathlib.Path("u", n).read_bytes() for n in names("u")}
    flags = [*DATA, "--steps", 12, "--resume", "--checkpoint-dir", "u", "--save", "u.st"]
    newest = "u/step-000000000010.safetensors"
    said = f"error: cannot resume: cannot read '{newest}': "
    # Each open of a file or map in a run fails, and one of these is of the newest checkpoint.
    for call, how in [("open", "EIO"), ("open", "EMFILE"), ("open", "EACCES"), ("mmap", "ENOMEM")] if interposer() else []:
        unread, number, reached = 0, 0, True
        while reached and number < 200:
            number += 1
            pathlib.Path("report").unlink(missing_ok=True)
            done = run("line1", *flags, env=failing(call, number, how, FAIL_REPORT="report"))
            reached = pathlib.Path("report").exists()
            text = done.stderr
            check(f"{call} {number} fails by {how}: it does not resume from an older one", "resuming after step 10\n" in text
                  or done.returncode == 1, done.returncode, text)
            unread += "error: cannot resume: cannot " in text and newest in text
            os.system("rm -f u.st u/step-000000000012*")
            after = {n: pathlib.Path("u", n).read_bytes() for n in names("u")}
            check(f"{call} {number} fails by {how}: the checkpoints stay", after == before, names("u"))
        check(f"{how} of the newest checkpoint is met", not reached and unread == 1, unread, number)
    # A link to itself cannot be opened by anybody.
    os.rename(newest, "sound")
    os.symlink("step-000000000010.safetensors", newest)
    done = refused("unreadable", said, "line1", *flags)
    check("what to do is said", "hint: this checkpoint may be sound: " in done.stderr and "damaged" not in done.stderr, done.stderr)
    check("nothing is written", sorted(names("u")) == sorted(before), names("u"))
    done = run("line1", "--verify", "--checkpoint-dir", "u")
    check("--verify of an unreadable one", done.returncode == 1 and f"{newest}  unreadable: cannot read " in done.stdout and
          "--resume fails, as the checkpoint of step 10 cannot be read\n" in done.stdout and "damaged" not in done.stdout,
          done.stdout)
    # An older one that cannot be read does not matter.
    os.rename("sound", newest)
    os.unlink("u/step-000000000005.safetensors")
    os.symlink("step-000000000005.safetensors", "u/step-000000000005.safetensors")
    done = run("line1", "--verify", "--checkpoint-dir", "u")
    check("--verify of an older unreadable one", done.returncode == 1 and "--resume continues after step 10\n" in done.stdout,
          done.stdout)
    check("an older unreadable one", "resuming after step 10\n" in train("line1", *flags[len(DATA):]).stderr)
    os.system("rm -rf u")


def full_disk():
    """On a full disk the oldest own checkpoint makes room; the only sound one stays, and those of an earlier run."""
    if ctypes.CDLL(None).unshare(0x20000) != 0:  # CLONE_NEWNS: a file system for this process only
        return print("skipped: a full disk, without permission to mount one")
    subprocess.run(["mount", "--make-rprivate", "/"], check=False)
    os.mkdir("disk")

    def disk(kib):
        os.system("umount -q disk")
        return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", "disk"], capture_output=True).returncode == 0
    if not disk(200):
        return print("skipped: a full disk, without permission to mount one")
    ck = ["--checkpoint-dir", "disk/ck", "--checkpoint-every", 2, "--keep", 9]
    train("line1", "--steps", 12, "--checkpoint-dir", "want", "--checkpoint-every", 2)

    # A checkpoint has 80 KiB: two fit.
    done = run("line1", *DATA, "--steps", 12, *ck)
    check("the oldest makes room", done.returncode == 0 and names("disk/ck") == [f"step-{n:012}.safetensors" for n in (10, 12)] and
          done.stderr.count("warning: the disk is full: 'disk/ck/step-") == 4 and "no checkpoint" not in done.stderr,
          done.stderr, names("disk/ck"))
    check("what is there is sound", run("line1", "--verify", "--checkpoint-dir", "disk/ck").returncode == 0)
    # Of space for one, the only sound one stays.
    disk(120)
    done = run("line1", *DATA, "--steps", 6, *ck)
    check("the only one is never removed", done.returncode == 1 and names("disk/ck") == ["step-000000000002.safetensors"] and
          "no checkpoint of step 4: cannot write 'disk/ck/step-000000000004.safetensors': No space left on device; "
          "that of step 2 is still there" in done.stderr and "is removed" not in done.stderr, done.stderr, names("disk/ck"))
    done = run("line1", "--verify", "--checkpoint-dir", "disk/ck")
    check("and is sound", done.returncode == 0 and "--resume continues after step 2" in done.stdout, done)
    # Those of an earlier run, without --resume.
    done = run("line1", *DATA, "--steps", 2, *ck)
    check("those of an earlier run stay, under their names", done.returncode == 1 and names("disk/ck") ==
          ["step-000000000002.safetensors"] and "earlier run" not in done.stderr and "still there" not in done.stderr,
          done.stderr, names("disk/ck"))
    # The log on a full disk has whole lines; with space again it gets those that were missing.
    disk(16)
    said = pathlib.Path("said")
    with said.open("w") as err:
        job = subprocess.Popen([PROGRAMS / "slow1", *DATA, "--steps", "3000", "--log", "disk/l.jsonl", "--tensorboard", "disk/tb"],
                               stdout=subprocess.DEVNULL, stderr=err)
    full = "'disk/l.jsonl': No space left on device; training goes on"
    while job.poll() is None and full not in said.read_text():
        time.sleep(0.01)
    job.send_signal(signal.SIGSTOP)
    whole = pathlib.Path("disk/l.jsonl").read_bytes()
    check("a full disk: the log has whole lines", job.poll() is None and whole.endswith(b"}\n") and
          len([json.loads(line) for line in whole.splitlines()]) > 5, whole[-200:])
    subprocess.run(["mount", "-o", "remount,size=4m", "disk"], check=True)
    job.send_signal(signal.SIGCONT)
    job.wait(timeout=60)
    err = said.read_text()
    check("with space again nothing is missing", job.returncode == 0 and
          [x["step"] for x in log("disk/l.jsonl")] == list(range(3000)),
          err, len(log("disk/l.jsonl")))
    check("both are said", full in err and
          "'disk/l.jsonl' is written again, and has what was missing" in err, err)
    events = next(pathlib.Path("disk/tb").iterdir()).read_bytes()
    check("nor of the event file", events.count(b"samples_per_s") == 3000, events.count(b"samples_per_s"))
    # Without: the exit status, and the number of missing lines.
    disk(8)
    done = run("line1", *DATA, "--steps", 300, "--log", "disk/l.jsonl", "--save", "full.st")
    there = [x["step"] for x in log("disk/l.jsonl")]
    check("a disk that stays full", done.returncode == 1 and 0 < len(there) < 300 and there == list(range(len(there))) and
          f"error: cannot write 'disk/l.jsonl': No space left on device; {300 - len(there)} records are missing in it"
          in done.stderr and
          os.path.exists("full.st"), done.stderr, there)
    os.system("umount disk")


def resumed_logs():
    """A resumed log loses the lines of repeated steps, and no other good line, however it was cut."""
    steps = 12
    train("line1", "--steps", steps, "--checkpoint-dir", "ck", "--log", "log.jsonl")
    want = pathlib.Path("log.jsonl").read_bytes().splitlines(True)
    evaluation = b'{"steps":12,"eval_loss":0.5,"accuracy(y \\"q\\")":0.25}\n'
    foreign = b"restarted on node 7 {\n"
    other = b'{ "step" : 3 , "by": {"step": 99, "of": [1, -2.5e3, null, true, "\\n"]} }\n'

    def resumed(text, what):
        pathlib.Path("log.jsonl").write_bytes(text)
        done = run("line1", *DATA, "--steps", steps, "--checkpoint-dir", "ck", "--resume", "--log", "log.jsonl")
        check(f"{what}: resumes", done.returncode == 0 and not leftovers(), done.stderr, leftovers())
        return pathlib.Path("log.jsonl").read_bytes(), done.stderr

    def becomes(what, text, result, said=""):
        got, err = resumed(text, what)
        check(what, got == result, text, got, result)
        check(f"{what}: says", (said in err) if said else "removed" not in err, err)

    ahead = b'{"step":12,"loss":1}\n{"step":13,"loss":null}\n'
    all_of = b"".join(want)
    cut1, cut2 = "1 line of 'log.jsonl' that was cut is removed", "2 lines of 'log.jsonl' that were cut are removed"
    becomes("the same", all_of, all_of)
    becomes("lines ahead", all_of + ahead, all_of)
    becomes("lines ahead, the last cut", all_of + ahead + b'{"step":14,"lo', all_of, cut1)
    becomes("evaluations, foreign lines, empty lines",
            evaluation + want[0] + b"\n" + foreign + other + b"".join(want[1:]) + evaluation,
            evaluation + want[0] + b"\n" + foreign + other + b"".join(want[1:]) + evaluation)
    becomes("steps ahead between others", want[0] + ahead + evaluation + ahead + foreign, want[0] + evaluation + foreign)
    becomes("a cut line in front of another", want[0] + want[1][:20] + want[2] + want[3], want[0] + want[2] + want[3], cut1)
    becomes("two, and an evaluation", b'{"step":1' + b'{"step":2,"loss":1.2' + evaluation + want[3], evaluation + want[3], cut2)
    becomes("zeros", want[0] + bytes(1000) + want[1] + bytes(3) + b"\n" + want[2], want[0] + want[1] + b"\n" + want[2])
    becomes("only the newline is missing", want[0] + want[1][:-1], want[0] + want[1])
    becomes("a foreign line without a newline", want[0] + foreign[:-1], want[0] + foreign)
    becomes("foreign text in front of a line", b"note" + want[0], b"note\n" + want[0])
    becomes("only damage", b'{"step":0,"lo', b"", cut1)
    becomes("binary data of others", bytes(range(1, 10)) + b"\xff\xfe\n" + want[0], bytes(range(1, 10)) + b"\xff\xfe\n" + want[0])
    becomes("nesting without an end", b'{"a":' * 300 + b"\n" + want[0], b'{"a":' * 300 + b"\n" + want[0])
    # Cut, glued, zeroed or repeated at any byte.
    for _ in range(int(os.environ.get("CUTS", 40))):
        lines = [random.choice([*want, evaluation, foreign, other, *ahead.splitlines(True)]) for _ in range(random.randrange(1,
        12))]
        text = b"".join(lines)
        i = random.randrange(len(lines))
        before, line, after = b"".join(lines[:i]), lines[i], b"".join(lines[i + 1:])
        at = random.randrange(len(line))
        damaged = random.choice([before + line[:at] + after, before + line[:at] + bytes(random.randrange(1, 50)) + after,
                                 text[:len(before) + at], bytes(7) + before + line[:at] + b"\n" + after])
        # A line of others directly after a part of ours, without a newline, cannot be told from it.
        rest = lines[i + 1:] if damaged != text[:len(before) + at] else []
        if rest and not rest[0].startswith(b'{"step'):
            rest = rest[1:]
        good = [x for x in lines[:i] + rest if x not in ahead.splitlines(True)]
        got = resumed(damaged, f"cut at byte {at}")[0]
        # Foreign text may end in front of another line, and is a line of its own then; all else has its own line.
        count = lambda x: got.count(x)
        check("no good line is lost", all(count(x) >= good.count(x) for x in good), damaged, got)
        check("no line of a repeated step stays", not any(x in got for x in ahead.splitlines(True)), damaged, got)
        check("ours are whole", all(x in (*want, evaluation) for x in got.splitlines(True) if x.startswith(b'{"step')), damaged,
                                    got)
        check("a second time changes nothing", resumed(got, "again")[0] == got, got)
    # Many lines, with a damaged one in the middle.
    many = [b'{"step":%d,"loss":1.5,"grad_norm":null,"lr":0.001}\n' % (i % 12) for i in range(58474)]
    middle = many[1224][:30] + many[1225]
    got = resumed(b"".join(many[:1224]) + middle + b"".join(many[1226:]), "many lines")[0]
    check("58,473 of 58,474 lines stay", got == b"".join(many[:1224] + many[1225:]), got.count(b"\n"))
    # A run from step 0 with --resume removes all steps; one without empties the log; an evaluation appends.
    pathlib.Path("log.jsonl").write_bytes(evaluation + all_of + foreign)
    train("line1", "--steps", 2, "--checkpoint-dir", "new", "--resume", "--log", "log.jsonl")
    got = pathlib.Path("log.jsonl").read_bytes().splitlines(True)
    check("from step 0", got[:2] == [evaluation, foreign] and [json.loads(x)["step"] for x in got[2:]] == [0, 1], got)
    for _ in range(2):
        train("line1", "--eval-only", *EVAL, "--log", "log.jsonl", data=[])
    check("an evaluation only appends", [sorted(json.loads(x)) for x in
          pathlib.Path("log.jsonl").read_bytes().splitlines()[4:]] == [["eval_loss", "steps"]] * 2)
    train("line1", "--steps", 2, "--log", "log.jsonl")
    check("a new run has a new log", [x["step"] for x in log("log.jsonl")] == [0, 1])
    # Permissions stay, also if the log is rewritten.
    pathlib.Path("log.jsonl").write_bytes(want[0][:9] + want[1])
    os.chmod("log.jsonl", 0o640)
    resumed(pathlib.Path("log.jsonl").read_bytes(), "permissions")
    check("permissions of a rewritten log", os.stat("log.jsonl").st_mode & 0o777 == 0o640)
    # Killed while it is rewritten.
    if interposer():
        text = want[0] + want[1][:9] + b"".join(want[2:]) + ahead
        for call, n in [("pwrite", i) for i in range(1, 4)] + [("fsync", 1), ("rename", 1), ("ftruncate", 1), ("close", 4)]:
            pathlib.Path("log.jsonl").write_bytes(text)
            run("line1", *DATA, "--steps", steps, "--checkpoint-dir", "ck", "--resume", "--log", "log.jsonl", env=failing(call, n,
            "kill"))
            got = pathlib.Path("log.jsonl").read_bytes()
            check(f"killed at {call} {n}: the old or the new log", got in (text, want[0] + b"".join(want[2:])), got)
            got = resumed(got, f"after a kill at {call} {n}")[0]
            check(f"killed at {call} {n}: the next run completes it", got == want[0] + b"".join(want[2:]), got)


def pipes():
    """Logs that are no files of their own."""
    # A FIFO waits for its reader, and has all lines.
    os.mkfifo("fifo")
    job = subprocess.Popen([PROGRAMS / "line1", *DATA, "--steps", "50", "--log", "fifo"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
    err = line = job.stderr.readline()
    while line and "waiting for a reader" not in line:
        line = job.stderr.readline()
        err += line
    with open("fifo") as f:
        lines = [json.loads(line)["step"] for line in f]
    err += job.communicate(timeout=30)[1]
    check("a FIFO", job.returncode == 0 and lines == list(range(50)) and "waiting for a reader of 'fifo'" in err, err, lines)
    # A reader that ends is a warning, and the exit status.
    job = subprocess.Popen([PROGRAMS / "slow1", *DATA, "--steps", "200", "--log", "fifo", "--save", "fifo.st"],
                           stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
    with open("fifo") as f:
        f.readline()
    err = job.communicate(timeout=30)[1]
    check("a reader that ends", job.returncode == 1 and err.count("Broken pipe; training goes on") == 1 and
          "records are missing" in err and os.path.exists("fifo.st"), err)
    # A pipe that does not block, with a slow reader.
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    fcntl.fcntl(write_end, 1031, 4096)  # F_SETPIPE_SZ
    job = subprocess.Popen([PROGRAMS / "line1", *DATA, "--steps", "200", "--log", f"/dev/fd/{write_end}"], pass_fds=[write_end],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    time.sleep(0.3)
    with open(read_end) as f:
        lines = [json.loads(line)["step"] for line in f]
    err = job.communicate(timeout=30)[1]
    check("a slow reader", job.returncode == 0 and lines == list(range(200)) and not err, err, lines)
    # Standard output, as a pipe and as a file, between the progress lines; also resumed.
    for resume in [], ["--resume"]:
        with open("out.txt", "w") as out:
            out.write("before\n")
            out.flush()
            done = subprocess.run([PROGRAMS / "line1", *DATA, "--steps", "9", "--log", "/dev/stdout", "--checkpoint-dir", "pck",
                                   *resume],
                                  stdout=out, stderr=subprocess.PIPE, text=True, timeout=30)
        lines = pathlib.Path("out.txt").read_text().splitlines()
        ours = [json.loads(x)["step"] for x in lines if x.startswith("{")]
        steps = [] if resume else list(range(9))
        check(f"/dev/stdout is a file {resume}", done.returncode == 0 and lines[0] == "before" and ours == steps and
              sum(x.startswith("step ") for x in lines) == len(steps), done.stderr, lines)
    done = train("line1", "--steps", 9, "--log", "/dev/stdout")
    check("/dev/stdout is a pipe", [json.loads(x)["step"] for x in done.stdout.splitlines() if x.startswith("{")] == list(range(9)),
          done.stdout)


def pipes_as_data():
    """A FIFO in the place of a file that is read is refused at once: nobody may ever write to it."""
    os.mkfifo("in.npy")
    refused("a FIFO as data", "cannot read 'in.npy': it is not a file", "line1", "--input", "x=in.npy", "--input", "labels=y.npy",
            "--steps", 2)
    refused("a FIFO as evaluation data", "cannot read 'in.npy': it is not a file", "line1", *DATA, "--eval-input", "x=in.npy",
            "--eval-input", "labels=y.npy", "--steps", 2)
    train("line1", "--steps", 4, "--checkpoint-dir", "fck", "--checkpoint-every", 2)
    newest = pathlib.Path("fck/step-000000000004.safetensors")
    newest.unlink()
    os.mkfifo(newest)
    done = train("line1", "--steps", 6, "--checkpoint-dir", "fck", "--resume", "--log", "fck.jsonl")
    steps = [json.loads(line)["step"] for line in pathlib.Path("fck.jsonl").read_text().splitlines()]
    check("a FIFO as the newest checkpoint", steps == [2, 3, 4, 5] and "it is not a file" in done.stderr, steps, done.stderr)


with folder_with_data():
    closed_descriptors()
    planted_links()
    left_files()
    the_lock()
    generations()
    unreadable()
    resumed_logs()
    pipes()
    pipes_as_data()
    full_disk()  # last: it has file systems of its own

finish()
