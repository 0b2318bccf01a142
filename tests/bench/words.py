#!/usr/bin/env python3
"""Counts certain words in comments and READMEs, per 10,000 words:  words.py [--files WORD]

Words that replace a noun of the field (passes/ir/README.md has the glossary) should be rare; the field's own words should
occur.  --files WORD lists the files that have the word, most often first.
"""

import argparse
import collections
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
RARE = {"what": 25, "where": 25, "behind": 3, "lie": 2, "lies": 2, "anew": 0.5, "nobody": 1}
FIELD = ["sharding", "sharded", "layout", "replicated", "reshard", "micro-batch", "micro-batches", "live", "latency", "partial",
         "stage", "bucket", "all-reduce", "activations"]


def comments(path):
    text = path.read_text(errors="replace")
    if path.suffix == ".md":
        return re.sub(r"^    .*$", "", text, flags=re.M)
    if path.suffix == ".py":
        docs = re.findall(r'"""(.*?)"""', text, re.S)
        return "\n".join(docs + re.findall(r"(?:^|\s)#\s(.*)$", text, re.M))
    if path.suffix == ".lua":
        return "\n".join(re.findall(r"--\s(.*)$", text, re.M))
    return "\n".join(re.findall(r"//(.*)$", text, re.M) + re.findall(r"/\*(.*?)\*/", text, re.S))


def sources():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if re.search(r"\.(c|h|cu|cuh|def|md|py|lua)$", name):
            yield ROOT / name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files")
    wanted = parser.parse_args().files
    counts, files = collections.Counter(), collections.Counter()
    for path in sources():
        words = re.findall(r"[a-z][a-z\-]*", comments(path).lower())
        counts.update(words)
        files[path] = words.count(wanted) if wanted else 0
    total = sum(counts.values())
    if wanted:
        for path, n in files.most_common(40):
            print(f"{n:5} {path.relative_to(ROOT)}")
        return
    print(f"{total} words")
    for word, most in RARE.items():
        rate = 1e4 * counts[word] / total
        print(f"{word:14} {rate:7.1f}   at most {most}{'' if rate <= most else '   MORE'}")
    for word in FIELD:
        print(f"{word:14} {1e4 * counts[word] / total:7.1f}")


if __name__ == "__main__":
    main()
