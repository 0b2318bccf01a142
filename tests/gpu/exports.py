"""The archives of the cuda target have no function without a caller:  exports.py KERNEL_TABLE LIBNNRT ARCHIVE...

A function nnrt_* of an ARCHIVE must be a kernel of the op table, as KERNEL_TABLE writes it, be called by the common
runtime LIBNNRT or by another file of the archive, or be named in the backend's output.  The linker detects missing
functions.  nnaot reads the text nnrt_headers.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def symbols(archive):
    """(defined, used by another member) functions and data nnrt_* of an archive."""
    text = subprocess.run(["nm", archive], check=True, capture_output=True, text=True).stdout
    members = []
    for line in text.splitlines():
        if line.endswith(":"):
            members.append((set(), set()))
            continue
        found = re.match(r"[0-9a-f ]* ([A-Za-z]) (nnrt_\w+)$", line)
        if found and found[1].isupper() and found[1] not in "WV":  # nor a header's function that was not inlined
            members[-1][found[1] == "U"].add(found[2])
    return set().union(*(m[0] for m in members)), set().union(*(m[1] for m in members))


def op_table(program):
    text = subprocess.run([program, "cuda"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r'"(nnrt_\w+)"', text))


def generated(kernels):
    """The functions called by generated code besides kernels: names in the backend's string literals, names that calls.c
    composes, and calls in the headers of fused kernels."""
    names = set()
    for file in (ROOT / "backend").glob("*.c"):
        for literal in re.findall(r'"(?:[^"\\\n]|\\.)*"', file.read_text()):
            names |= set(re.findall(r"nnrt_\w+", literal))
    for header in "rt/cuda/fused.cuh", "rt/cuda/device.cuh":
        names |= set(re.findall(r"nnrt_\w+", (ROOT / header).read_text()))
    moves = {name.removeprefix("nnrt_move_") for name in kernels if name.startswith("nnrt_move_")}
    names |= {f"nnrt_move_{half}_{kind}" for half in ("start", "wait") for kind in moves}
    copies = "swap_in", "swap_out", "swap_out_accumulate"
    return names | {f"nnrt_{copy}{wait}" for copy in copies for wait in ("", "_wait")}


def main(table, common, *archives):
    kernels = op_table(table)
    known = kernels | generated(kernels) | symbols(common)[1] | {"nnrt_headers"}
    assert len(kernels) > 100
    bad = False
    for path in archives:
        defined, used = symbols(path)
        unused = sorted(defined - used - known)
        print(f"{path}: {len(defined)} functions, {len(unused)} that nothing calls", *unused, sep="\n  ")
        bad |= bool(unused) or len(defined) < 100
    sys.exit(bad)


main(*sys.argv[1:])
