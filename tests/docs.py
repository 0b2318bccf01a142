#!/usr/bin/env python3
"""Runs the commands of README.md, CONTRIBUTING.md, docs/ and passes/README.md as they stand:  docs.py [--list]

In a command, `…` stands for `--batch 32 --loss 'cross_entropy(logits)'`, and `-o train_rank` unless the command has an -o.
model.onnx is samples/resnet, gpt.onnx samples/gpt2, masked.onnx of tests/e2e/lengths, experts.onnx and recycle.onnx of
tests/e2e/models.  A command that needs something else than this repository is in `elsewhere`,
with the script that runs it.
The JSON that commands write has the keys that docs/formats.md lists.  --list prints the commands.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
PAGES = ["README.md", "CONTRIBUTING.md", "passes/README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
REST = "--batch 32 --loss 'cross_entropy(logits)' -o train_rank"
PROGRAMS = re.compile(r"(?:[A-Z]+='|nnaot|mpirun|\./train_|tools/|samples/|bash |cmake |cp )")

# Commands that are run by other tests or by a committed script.
elsewhere = {
    "tools/nnaot-export": "torch: tests/bench/exporting.py",
    "tools/setup": "installs packages: tests/run",
    "samples/run": "tests/e2e/losses.py trains the samples",
    "bash tests/run": "this test's own caller",
    "cmake": "tests/run",
    "# hosts": "several hosts",
    "./train_rank --node": "several hosts: tests/rt/hosts.py",
    "mpirun -hosts": "several hosts",
    "mpirun --host ": "several hosts",
    "# GPU": "a GPU: tests/gpu",
}


def commands(page):
    """The commands of the code blocks of a page, with continued lines joined and comments kept."""
    text = re.sub(r"\\\n\s*", "", (ROOT / page).read_text())
    for line in re.findall(r"^    (\S.*)$", text, re.M):
        if PROGRAMS.match(line):
            yield line


def reason(command):
    """Why a command is not run here, or None."""
    return next((why for mark, why in elsewhere.items() if command.startswith(mark) or (mark[0] == "#" and mark in command)), None)


def prepare(folder):
    """The files that the commands name."""
    for name, source in (("model.onnx", "resnet.onnx"), ("x.npy", "x.npy"), ("y.npy", "labels.npy")):
        shutil.copy(ROOT / "samples/resnet" / source, folder / name)
    shutil.copy(ROOT / "samples/gpt2/gpt2.onnx", folder / "gpt.onnx")
    shutil.copy(ROOT / "tests/e2e/lengths/selected.torchscript.onnx", folder / "masked.onnx")
    for name, source in (("experts.onnx", "routed.onnx"), ("recycle.onnx", "recycle.onnx")):
        shutil.copy(ROOT / "tests/e2e/models" / source, folder / name)
    shutil.copy(ROOT / "tests/solver/inputs/five.json", folder / "problem.json")
    tokens = (ROOT / "samples/gpt2/tokens.npy").read_bytes()
    for name in ("train_0.npy", "train_1.npy", "val.npy"):
        (folder / name).write_bytes(tokens)


def run(command, folder, environment):
    rest = REST.replace(" -o train_rank", "") if " -o " in command else REST
    short = re.sub(r"--steps \d+", "--steps 4", command.replace("…", rest))
    short = re.sub(r"--eval-every \d+|--checkpoint-every \d+", lambda m: m[0].split()[0] + " 2", short)
    if "--target cuda" in short:
        short = short.replace("-o train_rank", "--emit c -o cuda")  # nvcc has tests of its own
        shutil.rmtree(folder / "cuda", ignore_errors=True)
    return subprocess.run(["bash", "-c", short], cwd=folder, env=environment, capture_output=True, text=True)


def documented():
    """Keys of the table about --summary in docs/formats.md."""
    table = (ROOT / "docs/formats.md").read_text().split("## The summary")[1].split("##")[0]
    return set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| ([^|]*) \|", table, re.M))))


def main():
    ran, failed = 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder)
        path = f"{BUILD}/bin:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
        for page in PAGES:
            shell = ""  # assignments of the page so far
            for command in commands(page):
                if re.match("[A-Z]+=", command):
                    shell += command + "\n"
                why = reason(command)
                if "--list" in sys.argv[1:]:
                    print(f"{page}: {command}" + (f"   [{why}]" if why else ""))
                    continue
                if why:
                    continue
                done = run(shell + command, folder, environment)
                ran += 1
                if done.returncode:
                    failed.append(f"{page}: {command}\n    exit status {done.returncode}: {done.stderr.strip()[-600:]}")
        if "--list" in sys.argv[1:]:
            return
        subprocess.run(["bash", "-c", f"nnaot model.onnx -g 2 --summary s.json {REST}"], cwd=folder, env=environment, check=True,
                       capture_output=True)
        keys = set(json.loads((folder / "s.json").read_text()))
        if keys != documented():
            failed.append(f"docs/formats.md: keys of a summary that differ: {sorted(keys ^ documented())}")
    print("\n".join(failed) or f"{ran} commands ran")
    sys.exit(bool(failed) or ran < 30)


if __name__ == "__main__":
    main()
