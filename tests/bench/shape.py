#!/usr/bin/env python3
"""The shape of functions and folders:  shape.py [--once FOLDER] [--bare]

Prints, for the product's C and CUDA sources: the share of static functions with one caller, the mean number of comment lines
inside a function, exported functions named by one bare word, and source folders of more than five files without a README.
A function that a table or another call takes the address of has no caller
in its file, and is no such function.  --once lists the static functions of a folder that are called once, with their lengths; --bare lists the bare names.
"""

import argparse
import collections
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = ("tools/", "frontend/", "passes/", "backend/", "rt/")
START = re.compile(r"^(?!typedef|struct|enum|union|extern)([A-Za-z_][\w \*]*?[ \*])(\w+)\(", re.M)
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


class Function:
    def __init__(self, path, name, static, body):
        self.path, self.name, self.static, self.body = path, name, static, body
        self.lines = body.count("\n")


def strip(text):
    """The text without comments and the contents of strings, line by line."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', '""', text)
    return re.sub(r"//.*", "", text)


def functions(path, text):
    """The function definitions of a clang-formatted file: they begin in column 0 and end with a brace there."""
    for match in START.finditer(text):
        brace = text.find("{", match.end())
        semicolon = text.find(";", match.end())
        if brace < 0 or 0 <= semicolon < brace:
            continue
        end = text.find("\n", brace) if "}" in text[brace:text.find("\n", brace)] else text.find("\n}", brace) + 1
        yield Function(path, match[2], "static" in match[1].split(), text[brace:end])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--once")
    parser.add_argument("--bare", action="store_true")
    args = parser.parse_args()
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = [n for n in names if n.startswith(PRODUCT) and re.search(r"\.(c|h|cu|cuh)$", n)]
    static, once, comments, bare = [], [], 0, []
    total = 0
    for name in files:
        text = (ROOT / name).read_text()
        found = list(functions(name, text))
        total += len(found)
        used = collections.Counter(IDENTIFIER.findall(strip(text)))
        calls = collections.Counter(re.findall(r"(\w+)(?:\(|<<<)", strip(text)))
        for f in found:
            comments += len(re.findall(r"^\s*//", f.body, re.M))
            if f.static and not name.endswith(".h"):
                static.append(f)
                declared = len(re.findall(rf"^static [^\n;{{]*\b{f.name}\([^{{;]*\);", text, re.M))
                if used[f.name] - 1 - declared == 1 and calls[f.name] - 1 - declared == 1:
                    once.append(f)
            elif not f.static and "_" not in f.name and f.name != "main" and not re.search(r"[A-Z]", f.name):
                bare.append(f)
    folders = collections.defaultdict(list)
    for name in files:
        folders[str(pathlib.PurePath(name).parent)].append(name)
    mute = [d for d, n in sorted(folders.items()) if len(n) > 5 and not (ROOT / d / "README.md").exists()]
    if args.once is not None:
        for f in once:
            if f.path.startswith(args.once):
                print(f"{f.lines:4} {f.path} {f.name}")
        return
    if args.bare:
        for f in bare:
            print(f.path, f.name)
        return
    lengths = sorted(f.lines for f in static)
    print(f"{total} functions, {len(static)} of them static; median length of these {lengths[len(lengths) // 2]} lines")
    print(f"static functions with one caller          {100 * len(once) / len(static):5.1f} %   at most 40")
    print(f"comment lines inside a function           {comments / total:5.2f}     at least 0.6")
    print(f"exported functions of one bare word       {len(bare):5}     none")
    print(f"folders of more than 5 files, no README   {len(mute):5}     none   {' '.join(mute)}")


if __name__ == "__main__":
    main()
