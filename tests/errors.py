"""Compares docs/errors.md with the table of problems:  errors.py

Each row of passes/base/problems.def has a section with its sentence, an example that ends with its code, and its way out; no
other section has a code.  Some test expects each code.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROW = re.compile(r'^PROBLEM\((\d+),\s*(\w+),\s*"([^"]*)",\s*"([^"]*)"\)$', re.M)


def plain(text):
    return " ".join(text.split())


def main():
    table = (ROOT / "passes/base/problems.def").read_text()
    rows = ROW.findall(table)
    bad = []
    if len(rows) != len(re.findall(r"^PROBLEM\(", table, re.M)):
        bad.append("problems.def: a row is not of the form PROBLEM(code, name, \"sentence\", \"way out\")")
    numbers = [int(row[0]) for row in rows]
    if numbers != sorted(set(numbers)): bad.append("problems.def: the codes do not ascend")
    sections = dict(re.findall(r"^## (NN\d+ \w+)\n(.*?)(?=^## |\Z)", (ROOT / "docs/errors.md").read_text(), re.M | re.S))
    expected = {f"NN{code} {name}": (code, sentence, way_out) for code, name, sentence, way_out in rows}
    bad += [f"docs/errors.md: there is no section '{title}'" for title in expected.keys() - sections.keys()]
    bad += [f"docs/errors.md: no row of problems.def is '{title}'" for title in sections.keys() - expected.keys()]
    for title in expected.keys() & sections.keys():
        code, sentence, way_out = expected[title]
        text = plain(sections[title])
        for part in sentence, f"Way out: {way_out}.":
            if plain(part) not in text: bad.append(f"docs/errors.md: {title}: it lacks '{part}'")
        if not re.search(rf"^    .* \[NN{code}\]$", sections[title], re.M):
            bad.append(f"docs/errors.md: {title}: no example ends with it")
    # Only lines that a test expects count.
    tests = [p for p in (ROOT / "tests").rglob("*.*") if p.suffix in (".test", ".nn", ".py") and p.name != "errors.py"]
    found = set()
    for p in tests:
        found |= set(re.findall(r"\[NN(\d+)\]", p.read_text(errors="ignore")))
    bad += [f"no test expects NN{row[0]}" for row in rows if row[0] not in found]
    bad += [f"a test expects NN{code}, which is no code" for code in found - {row[0] for row in rows}]
    print("\n".join(bad) or f"{len(rows)} codes, each with a section and a test")
    sys.exit(bool(bad) or len(rows) < 20)


if __name__ == "__main__":
    main()
