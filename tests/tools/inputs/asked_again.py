"""Candidates of --plan auto differ by their plans, and one that auto factored has the same axes if it is requested.

    asked_again.py FOLDER nnaot MODEL OPTIONS …
"""

import json
import pathlib
import re
import subprocess
import sys

folder = pathlib.Path(sys.argv[1])
command = sys.argv[2:]


def compiled(plan, emit, *more):
    out = folder / emit
    subprocess.run([*command, "--plan", plan, "--emit", emit, "-o", out, *more], check=True)
    return out.read_text()


folder.mkdir(exist_ok=True)
compiled("auto", "plan", "--summary", folder / "summary.json")
candidates = json.loads((folder / "summary.json").read_text())["candidates"]
names = [(c["plan"], c["micro_batches"]) for c in candidates]
assert len(names) == len(set(names)), names
factored = [plan for plan, _ in names if re.search(r"=\d+x", plan)]
for plan in factored:
    want = [size for size in re.search(r"=([\dx]+)$", plan)[1].split("x") if size != "1"]
    axes = re.search(r"^mesh .*\((.*)\)", compiled(plan, "nn"), re.M)[1]
    assert re.findall(r"=(\d+)", axes) == want, (plan, axes)
print(f"{len(factored)} asked again")
