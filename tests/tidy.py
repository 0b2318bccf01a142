#!/usr/bin/env python3
"""clang-tidy over the C sources, by .clang-tidy:  tidy.py [--analyze] [--changed BASE] [FILE ...]

Without files: all sources in the build's compile_commands.json, all checks except clang-analyzer's, which take 25 times as long.
--analyze adds those.  --changed BASE takes the files that differ from BASE.  A finding is a failure.
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


def sources(base):
    """Product sources in the build, as relative names; of those that differ from `base` if it is given."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    names = {os.path.relpath(c["file"], ROOT) for c in commands}
    if base:
        listed = subprocess.run(["git", "diff", "--name-only", base], cwd=ROOT, capture_output=True, text=True, check=True)
        names &= set(listed.stdout.split())
    return sorted(n for n in names if FOLDERS.match(n) and (ROOT / n).exists())


def tidy(files, analyze):
    command = ["clang-tidy-14", "-p", str(BUILD), "--quiet"] + ([] if analyze else ["--checks=-clang-analyzer-*"])
    done = subprocess.run(command + files, cwd=ROOT, capture_output=True, text=True)
    return re.findall(r"^.*?: (?:warning|error): .*$", done.stdout, re.M)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--analyze", action="store_true")
    parser.add_argument("--changed")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    files = args.files or sources(args.changed)
    batches = [files[i : i + BATCH] for i in range(0, len(files), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        findings = [f for found in pool.map(lambda b: tidy(b, args.analyze), batches) for f in found]
    print("\n".join(sorted({f.replace(f"{ROOT}/", "") for f in findings})) or f"{len(files)} files, no findings")
    sys.exit(bool(findings) or not (files or args.changed))


if __name__ == "__main__":
    main()
