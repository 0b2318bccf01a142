"""Shared by the end-to-end tests: compiling a sample, running it, reading its log.

Needs python3's standard library only.  BUILD names the build folder (default: build).
"""

import json
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
NNAOT = BUILD / "bin" / "nnaot"
SAMPLES = ROOT / "samples"

SAMPLE = {
    "mlp": dict(batch=16, loss="cross_entropy(logits)", inputs=["x", "labels"]),
    "resnet": dict(batch=16, loss="cross_entropy(logits)", inputs=["x", "labels"]),
    "gpt2": dict(batch=4, loss="next_token(logits,input_ids)", inputs=[]),
}
# As in samples/reference.py.
OPTIMIZER = {
    "sgd": ["--optimizer", "sgd:momentum=0.9", "--lr", "0.05"],
    "adamw": ["--optimizer", "adamw:weight_decay=0.1,betas=0.9/0.95", "--lr", "0.001"],
}


failures = 0


def check(what, ok, *shown):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {what}", *shown, sep="\n  ")


def finish():
    print(f"{failures} checks failed" if failures else "all checks passed")
    sys.exit(failures > 0)


def run(*command, ok=0, **kw):
    """Runs a command and returns its output; anything but exit status `ok` ends the test."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=900, **kw)
    if ok is not None and done.returncode != ok:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {done.returncode}, not {ok}:\n{done.stdout[-4000:]}")
    return done.stdout


def compile_sample(name, out, optimizer="adamw", ranks=1, extra=()):
    s = SAMPLE[name]
    run(NNAOT, SAMPLES / name / f"{name}.onnx", "-g", ranks, "--batch", s["batch"], "--loss", s["loss"],
        *OPTIMIZER[optimizer], *extra, "-o", out)


def compile_in_a_hurry(folder):
    """Makes nnaot's cc fast for the rest of the test: -Og, ccache if installed, and a faster linker.  Most of a test's time is
    cc's optimization of short-lived programs.  Tests of losses with the users' options (losses.py) do not call
    this.

    ccache identifies a command by its text, so the folder of headers has the name of a link, the same in all clones.  Several
    run in one folder, so the link stays."""
    cc = pathlib.Path(folder, "cc")
    cc.write_text(f"""#!/bin/sh
n=0
for word; do
  shift
  case "$word" in
    -I*) n=$((n + 1))
      [ "$(readlink headers$n)" = "${{word#-I}}" ] || ln -sfn "${{word#-I}}" headers$n || [ -d headers$n ] && word=-Iheaders$n ;;
  esac
  set -- "$@" "$word"
done
{shutil.which("ccache") or ""} {os.environ.get("CC", "cc")} "$@" -Og {"-fuse-ld=gold" if shutil.which("ld.gold") else ""}
""")
    cc.chmod(0o755)
    os.environ["CC"] = str(cc)


def data_flags(name):
    if name == "gpt2":
        tokens = SAMPLES / "gpt2" / "tokens.npy"
        if not tokens.exists():
            run(sys.executable, SAMPLES / "data.py", "text")
        return ["--tokens", f"input_ids={tokens}"]
    return [f for i in SAMPLE[name]["inputs"] for f in ("--input", f"{i}={SAMPLES / name / i}.npy")]


def read_log(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def train(exe, name, steps, log, extra=(), launcher=()):
    run(*launcher, exe, *data_flags(name), "--steps", steps, "--log", log, *extra)
    return read_log(log)


def write_npy(path, numbers, shape, descr="<f4"):
    """An array as numpy.save writes it; of f4 or i8."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    data = struct.pack(f"<{len(numbers)}{'f' if descr == '<f4' else 'q'}", *numbers)
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def mpirun(n):
    return ["mpirun", "-n", n]


def worst_difference(got, want):
    """Returns the largest relative difference of two lists of equal length; NaN counts as infinite."""
    if len(got) != len(want):
        sys.exit(f"{len(got)} values, not {len(want)}")
    worst = 0.0
    for g, w in zip(got, want):
        d = abs(g - w) / max(abs(w), 1e-30)
        worst = max(worst, d if d == d else float("inf"))
    return worst


def free_port():
    """Returns a random port below those that the kernel assigns: other tests run at the same time."""
    while True:
        port = random.SystemRandom().randrange(10000, 32768)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def scratch():
    return tempfile.TemporaryDirectory(prefix="nnaot-test-")


def one_file(src):
    """Makes program.c of a folder of --emit c the whole program: a large one is several files.  Returns its text, with the
    commands for it in its head: the first compiles program.c."""
    text = (src / "program.c").read_text()
    header = src / "program.h"
    if not header.exists():
        return text
    parts = "".join(re.split(r'#include "\w+\.h"\n(?:#pragma .*\n)?', path.read_text(), maxsplit=1)[1]
                    for kind in ("kernels", "calls") for path in sorted(src.glob(f"{kind}_*.c")))
    parts = re.sub(r"^(int|void) (?=\w+\()", r"static \1 ", parts, flags=re.M)
    defined = set(re.findall(r"^static (?:int|void) (\w+)\(", parts, re.M))
    lines = re.split(r"#pragma .*\n", header.read_text(), maxsplit=1)[1].splitlines()
    lines = [line for line in lines if not (found := re.match(r"(?:int|void) (\w+)\(", line)) or found[1] not in defined]
    text = text.replace('#include "program.h"\n', "\n".join(['#include "nnrt.h"', *lines]) + parts + "\n", 1)
    # Of the commands, those for the other files go.
    text = re.sub(r"^//   .* -c (?:kernels|calls)_\d+\.c .*\n", "", text, flags=re.M)
    text = re.sub(r" (?:kernels|calls)_\d+\.o\b", "", text)
    text = text.replace(" -O1 -c program.c", " -O3 -c program.c", 1)
    header.unlink()
    (src / "program.c").write_text(text)
    return text


def counted_plan(plan, folder):
    """Expands names such as recompute_pieces_2 in a plan: that program with a count of 2, in a file of its own."""
    programs = ROOT / "passes/planner/plans"

    def file(found):
        program, count = found.groups()
        text, n = re.subn(r"(?m)^local count = \d+", f"local count = {count}", (programs / f"{program}.lua").read_text())
        assert n == 1
        made = pathlib.Path(folder, f"{found[0]}.lua")
        made.write_text(text)
        return str(made)

    return re.sub(r"\b(recompute_pieces)_(\d+)", file, plan)
