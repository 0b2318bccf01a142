#!/usr/bin/env python3
"""Counts certain words in comments and READMEs, per 10,000 words:  words.py [--files WORD | --lines SUFFIX]

Words that replace a noun of the field (passes/ir/README.md has the glossary) should be rare; the field's own words should
occur.  --files WORD lists the files that have the word, most often first; --lines .nn the lines of .nn files with a rare word.
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
WORD = r"[a-z][a-z\-]*"
# A line of lit or FileCheck, such as `# CHECK-NEXT: ...`: no prose.
DIRECTIVE = re.compile(r"[#\s]*([A-Z0-9][A-Z0-9_-]*:|END\.)")


def prose(path, text):
    """Returns the comment lines of a text test.  In a .test file all other lines than lit's and FileCheck's are comments."""
    is_comment = re.compile(r"\s*#" if path.suffix == ".nn" else "")
    return "\n".join(line for line in text.splitlines() if is_comment.match(line) and not DIRECTIVE.match(line))


def comments(path):
    text = path.read_text(errors="replace")
    if path.suffix == ".md":
        return re.sub(r"^    .*$", "", text, flags=re.M)
    if path.suffix == ".py":
        docs = re.findall(r'"""(.*?)"""', text, re.S)
        return "\n".join(docs + re.findall(r"(?:^|\s)#\s(.*)$", text, re.M))
    if path.suffix in (".nn", ".test"):
        return prose(path, text)
    if path.suffix == ".lua":
        return "\n".join(re.findall(r"--\s(.*)$", text, re.M))
    return "\n".join(re.findall(r"//(.*)$", text, re.M) + re.findall(r"/\*(.*?)\*/", text, re.S))


def sources():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if re.search(r"\.(c|h|cu|cuh|def|md|py|lua|nn|test)$", name):
            yield ROOT / name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files")
    parser.add_argument("--lines")
    wanted, suffix = vars(parser.parse_args()).values()
    if suffix:
        for path in sources():
            for line in comments(path).splitlines() if path.suffix == suffix else []:
                if RARE.keys() & re.findall(WORD, line.lower()): print(f"{path.relative_to(ROOT)}: {line.strip()}")
        return
    counts, files = collections.Counter(), collections.Counter()
    for path in sources():
        words = re.findall(WORD, comments(path).lower())
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
