"""The bundle for a GPU is small, terminates by itself, and closes with ten lines of results.

    bounded.py BUILD       a bundle for the emulator, built, packed, and its `first` run; then parts that hang and fail
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "e2e"))
from common import check, finish  # noqa: E402

PARTS = ["card", "start", "speed", "tuned", "trace", "torch"]


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / (name if name == "run" else f"{name}.py")))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def last_ten(text):
    return text.rstrip("\n").splitlines()[-10:]


def the_bundle(build, folder):
    """Built, packed, unpacked and run, as on a GPU."""
    out = folder / "bundle"
    made = subprocess.run([sys.executable, HERE / "bundle.py", build, out, "--emulator", "--bench", "--parts", ",".join(PARTS)],
                          capture_output=True, text=True)
    check("a bundle is made", made.returncode == 0, made.stdout, made.stderr)
    check("and says its size and how it is unpacked", "MiB unpacked" in made.stdout and "tar xJf bundle.tar.xz" in made.stdout,
          made.stdout)
    packed = folder / "bundle.tar.xz"
    there = folder / "there"
    with tarfile.open(packed) as tar:
        tar.extractall(there)
    for a in (a for a in out.rglob("*") if a.is_file()):
        b = there / "bundle" / a.relative_to(out)
        check(f"{a.name} is there", b.is_symlink() == a.is_symlink() and b.read_bytes() == a.read_bytes()
              and os.access(a, os.X_OK) == os.access(b, os.X_OK))

    began = time.monotonic()
    done = subprocess.run([there / "bundle" / "first", "--seconds", "600", "--patience", "10"], capture_output=True, text=True,
                          env={**os.environ, "OUT": str(folder / "results")})
    lines = last_ten(done.stdout)
    check("first ends well, in its time", done.returncode == 0 and time.monotonic() - began < 610, done.stdout, done.stderr)
    check("its lines stand alone", "ON THE EMULATOR" in lines[0] and "5 ok, 1 skipped" in lines[0] and
          "bad: none" in lines[-1] and "NOT TESTED: anything on a GPU" in lines[-1], *lines)
    check("one line for each part", [line.split(":")[0] for line in lines[1:7]] == PARTS, *lines)
    check("with numbers", all("tokens/s" in line for line in lines[3:5]) and "linear" in lines[5], *lines)
    found = json.loads((folder / "results" / "first.json").read_text())
    check("the same are in a file, with those of each step", found["lines"] == lines and
          len(found["parts"]["speed"]["values"]["steps"]) > 0, found)
    table = found["parts"]["trace"]["values"]["table"]
    products = {k: row[2] for k, row in table.items() if k.startswith(("linear", "classifier"))}
    # 6 FLOP for each of the 12 * 64^2 weights of 2 layers and each of 256 * 64 of the classifier, and token.
    want = 6 * 4 * 64 * (2 * 12 * 64**2 + 256 * 64)
    check("a trace knows the FLOP of products", abs(sum(products.values()) / want - 1) < 0.01, products, want)
    check("the tune file is kept", (folder / "results" / "gpt2-tiny-b4.tune").read_text().startswith("nnaot tune 1"))
    return out


def the_limit(out):
    """A bundle that is too large is refused, with its largest contents."""
    bundle, said, why = load("bundle"), io.StringIO(), ""
    with contextlib.redirect_stdout(said):
        try:
            bundle.pack(out, 0.01)
        except SystemExit as e:
            why = str(e)
    check("a large one is an error", "and 0.01 are allowed" in why, why)
    check("and what is large is said", "samples/mlp/f32-g1" in said.getvalue() or "samples/gpt2/bf16-g1" in said.getvalue(),
          said.getvalue())


def hangs(r):
    """With children in sessions of their own, which ignore all signals that can be ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
    left = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
    # An orphan: its parent has exited.
    orphan = subprocess.run([sys.executable, "-c", "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', "
                             f"{deaf!r}], start_new_session=True, stdout=subprocess.DEVNULL).pid)"],
                            stdout=subprocess.PIPE, text=True)
    r.summary("half of it was good", pids=[os.getpid(), left.pid, int(orphan.stdout)])
    while True:
        time.sleep(1)


def leaves(r):
    """Succeeds, but leaves a process running."""
    r.summary("left one", pids=[subprocess.Popen(["sleep", "300"], start_new_session=True).pid])


def fails(r):
    noise = [f"line {i}" for i in range(1000)]
    noise[500:500] = [f"error: number {i} is wrong" for i in range(10)]
    r.check("a thing", False, output="\n".join(noise))
    r.check("another", True)


def breaks(r):
    raise ValueError("what nobody thought of")


def good(r):
    r.check("all", True)
    r.summary(f"after {list(r.other('leaves'))}", number=float("nan"))


def sleeps(r):
    time.sleep(300)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def the_runner(folder):
    """In a process of its own, which adopts orphans."""
    (folder / "made.json").write_text(json.dumps({"commit": "0123456789abcdef"}))

    def run(seconds, out, *parts):
        began = time.monotonic()
        done = subprocess.run([sys.executable, __file__, "--runner", str(folder), str(seconds), str(out), *parts],
                              capture_output=True, text=True)
        return done, time.monotonic() - began, json.loads((out / "name.json").read_text())

    done, seconds, found = run(200, folder / "a", "hangs", "leaves", "fails", "breaks", "good")
    lines, parts = last_ten(done.stdout), found["parts"]
    check("it ends soon, and not well", seconds < 150 and done.returncode == 1, seconds, done.stdout, done.stderr)
    check("a part that hangs is killed, and those after it go on", [p["how"] for p in parts.values()] ==
          ["killed", "ok", "FAILED", "FAILED", "ok"], parts)
    pids = parts["hangs"]["values"]["pids"] + parts["leaves"]["values"]["pids"]
    ends = time.monotonic() + 60  # on a busy machine killed processes take a while to disappear
    while any(map(alive, pids)) and time.monotonic() < ends:
        time.sleep(0.1)
    check("nothing of it is left", len(pids) == 4 and not any(map(alive, pids)), pids)
    check("what it knew is said", "hangs: killed after" in lines[1] and "half of it was good" in lines[1], *lines)
    shown = [line for line in done.stdout.splitlines() if line.startswith("    |")]
    of_it = shown[:15]
    check("a failure shows its worst 15 lines, errors first", sum("is wrong" in line for line in of_it) == 10
          and of_it[-1] == "    | line 999" and not any("line 3" in line for line in of_it), *shown)
    check("an exception is one, too", any("what nobody thought of" in line for line in shown), *shown)
    check("the first line counts", lines[0].startswith("name of nnaot 0123456789ab: 2 ok, 2 FAILED, 1 killed; "), *lines)
    check("the last one names what is bad", "bad: hangs, fails, breaks" in lines[-1], *lines)
    check("parts know what those before found", "good: ok: after ['pids']" in lines[5], *lines)
    check("and JSON has no NaN", parts["good"]["values"]["number"] is None)

    done, seconds, found = run(14, folder / "b", "sleeps", "sleeps2", "sleeps3", "good")
    lines = last_ten(done.stdout)
    check("all parts together have their time", found["seconds"] < 20 and seconds < 100, found["seconds"], seconds)
    check("those that have none left are named", "no time was left" in lines[3] + lines[4] and "no time" in lines[0], *lines)

    runner = subprocess.Popen([sys.executable, __file__, "--runner", str(folder), "200", str(folder / "c"), "good", "hangs"],
                              stdout=subprocess.PIPE, text=True)
    read = ""
    while "== hangs" not in read:
        read += runner.stdout.readline()
    runner.send_signal(signal.SIGTERM)
    rest, _ = runner.communicate(timeout=60)
    lines = last_ten(rest)
    check("told to stop, it says its lines", lines[0].startswith("name of nnaot") and "hangs: stopped: " in lines[2]
          and "bad: hangs" in lines[-1], *lines)


def main(build):
    with tempfile.TemporaryDirectory(prefix="nnaot-test-") as tmp:
        folder = pathlib.Path(tmp)
        (folder / "runner").mkdir()
        the_runner(folder / "runner")
        the_limit(the_bundle(build, folder))
    finish()


def runner(folder, seconds, out, *names):
    run, parts = load("run"), load("parts")
    known = {"hangs": (hangs, 12), "leaves": (leaves, 30), "fails": (fails, 30), "breaks": (breaks, 30), "good": (good, 30)}
    table = [parts.Part(n, "name", seconds, "", function, "a test")
             for n in names for function, seconds in [known.get(n, (sleeps, 3))]]
    return run.Runner("name", table, float(seconds), pathlib.Path(folder), pathlib.Path(out)).run()


if __name__ == "__main__":
    sys.exit(runner(*sys.argv[2:]) if sys.argv[1] == "--runner" else main(sys.argv[1]))
