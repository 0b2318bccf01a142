"""The tables that an executable prints with --timings (rt/timings.c)."""

import re

LIMIT = re.compile(r" *([0-9.]+) (GFLOP/s|GB/s) +(\w+)  +(.*)")
ROW = re.compile(r" *([0-9.]+) +([0-9.]+)% +([0-9.e+]+) +(\S+) +(\S+) +([0-9.]+%|-)  (\S+) +(.*)")
FIELDS = "ms share calls flops bytes peak limit name".split()
STEP = "the step, "


def parse(text):
    """A dict of `limits`, lists of a rate, its unit, its name and what was measured; of rows `kinds` and `ops`, longest first; and
    of the row `step`.  A row is a dict of FIELDS: texts, as they are printed, without percent signs."""
    limits, tables = [], []
    for line in text[text.index("times on rank 0 of "):].splitlines():
        if found := LIMIT.fullmatch(line):
            limits.append(list(found.groups()))
        elif line.split()[:3] == ["ms", "share", "calls"]:
            tables.append([])
        elif found := ROW.fullmatch(line):
            tables[-1].append(dict(zip(FIELDS, (cell.removesuffix("%") for cell in found.groups()))))
    kinds, ops = tables
    return dict(limits=limits, kinds=kinds, ops=ops[:-1], step=ops[-1])
