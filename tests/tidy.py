#!/usr/bin/env python3
"""clang-tidy over the C sources, by .clang-tidy:  tidy.py [--changed] [FILE ...]

Without files: all sources in the build's compile_commands.json, all checks except clang-analyzer's, which take 25 times as long.
--changed takes the files that differ from the commit at which the branch left main, with clang-analyzer's checks.  A finding is a
failure.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
FOLDERS = re.compile(r"(tools|frontend|passes|backend|rt)/.*\.c$")
BATCH = 8


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.split()


def sources(changed):
    """Product sources in the build, as relative names; only those that changed since the branch left main if asked for."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    names = {os.path.relpath(c["file"], ROOT) for c in commands}
    if changed:
        base = git("merge-base", "HEAD", "main") or ["HEAD"]
        names &= set(git("diff", "--name-only", base[0]))
    return sorted(n for n in names if FOLDERS.match(n) and (ROOT / n).exists())


def tidy(files, analyze):
    command = ["clang-tidy-14", "-p", str(BUILD), "--quiet"] + ([] if analyze else ["--checks=-clang-analyzer-*"])
    done = subprocess.run(command + files, cwd=ROOT, capture_output=True, text=True)
    return re.findall(r"^.*?: (?:warning|error): .*$", done.stdout, re.M)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    files = args.files or sources(args.changed)
    batches = [files[i : i + BATCH] for i in range(0, len(files), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        findings = [f for found in pool.map(lambda b: tidy(b, args.changed), batches) for f in found]
    print("\n".join(sorted({f.replace(f"{ROOT}/", "") for f in findings})) or f"{len(files)} files, no findings")
    sys.exit(bool(findings) or not (files or args.changed))


if __name__ == "__main__":
    main()
