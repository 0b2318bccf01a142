#!/usr/bin/env python3
"""The operators that nnaot supports, and their checked gradients, from its tables, as docs/operators.md and docs/gradients.md:

    operators.py [--write]

Without --write it fails if a page differs from the tables.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, GRADIENTS = ROOT / "docs/operators.md", ROOT / "docs/gradients.md"
ROW = re.compile(r"^(UNARY|BINARY|SEQUENCE|ONNX|TRAINING|MICROSOFT|ML)\((\w+),\s*(\w+)", re.M)


def operators():
    """(section, [(operator, least opset)]) of frontend/onnx_ops.def, in its order."""
    sections = []
    for line in (ROOT / "frontend/onnx_ops.def").read_text().splitlines():
        title = re.fullmatch(r"// ([A-Z][a-z ,-]+)", line)
        row = ROW.match(line)
        if title:
            sections.append((title[1], {}))
        elif row:
            since = int(row[3]) if row[1] in ("SEQUENCE", "ONNX") else 1
            rows = sections[-1][1]
            rows[row[2]] = min(rows.get(row[2], since), since)
    return sections


def losses():
    return re.findall(r"^LOSS\((\w+)", (ROOT / "passes/train/losses.def").read_text(), re.M)


def optimizers():
    return re.findall(r'\{\.name = "(\w+)"', (ROOT / "passes/train/optimizers.c").read_text())


def page():
    count = sum(len(rows) for _, rows in operators())
    out = [f"""# Operators

{count} operators of ONNX are imported. Any other operator, or an attribute or type outside the supported forms, is an error that names
its node. Operators without a derivative (comparisons, indices) stop the gradient; all others pass it, and
[gradients.md](gradients.md) lists the checks. Results whose length depends on data have a bound and a count
([lengths](lengths.md)). Of an `If` on data one branch runs; the iterations of Loop and Scan have a bound that is known on
import; sequences are resolved on import.

| kind | operators |
|---|---|"""]
    for title, rows in operators():
        if not rows:  # of operators that are refused
            continue
        names = ", ".join(f"{name} ({since})" if since > 1 else name for name, since in sorted(rows.items()))
        out.append(f"| {title.lower()} | {names} |")
    if any(since > 1 for _, rows in operators() for since in rows.values()):
        out.append("\nA number in parentheses is the first opset with a supported form.")
    out.append(f"""
Losses of `--loss`: {", ".join(losses())}. Optimizers of `--optimizer`: {", ".join(optimizers())}. `nnaot --help` lists their options.

`tests/operators.py --write` makes this page from [onnx_ops.def](../frontend/onnx_ops.def), [losses.def](../passes/train/losses.def) and
[optimizers.c](../passes/train/optimizers.c).
""")
    return "\n".join(out)


def gradients_page():
    title, *rows = (ROOT / "tests/eval/gradients.txt").read_text().splitlines()
    rows = [row.split(" | ") for row in rows]
    by_schema = [row for row in rows if row[1] != "-"]
    checked = sum(not row[2].startswith("none") for row in by_schema)
    by_torch = sum(row[3][0].isdigit() for row in by_schema)
    out = [f"""# Gradients

The schemas of {title.split(" | ")[0]} call operands of {len(by_schema)} operators differentiable. The gradients of {checked} of these are compared
with central differences in double, of {by_torch} also with PyTorch's, and those of {len(rows) - len(by_schema)} other operators. Each case is a model,
which is imported and differentiated with and without simplification. A number is that of the cases, which differ in attributes,
shapes, broadcasts or opset; the relative norm of a difference is below 1e-6, from PyTorch's gradient 1e-8.

| operator | differentiable by schema | gradients equal to differences | cases equal to PyTorch's |
|---|---|---|---|"""]
    out += [f"| {' | '.join(row)} |" for row in rows]
    out.append("""
`tests/eval/gradients.py` checks these, with the cases of `tests/eval/gradient_cases.py`; `tests/operators.py --write` makes this
page.
""")
    return "\n".join(out)


def main():
    for path, text in ((PAGE, page()), (GRADIENTS, gradients_page())):
        if "--write" in sys.argv[1:]:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"docs/{path.name} is not what the tables say; run tests/operators.py --write")
    found = sum(len(rows) for _, rows in operators())
    print(f"{found} operators, {len(losses())} losses, {len(optimizers())} optimizers")
    sys.exit(not (found > 100 and losses() and optimizers()))


if __name__ == "__main__":
    main()
