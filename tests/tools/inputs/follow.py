"""Follows the advice of an error:  follow.py FOLDER MEMORY nnaot …

The devices of the cluster have MEMORY bytes, too little for every plan.  The alternatives of the error are then tried, and
must fit: the plan with the least memory on devices with as much more memory as it needs, and the plan on more ranks, if the
error names one.
"""

import json
import pathlib
import re
import subprocess
import sys

folder, memory, command = pathlib.Path(sys.argv[1]), int(float(sys.argv[2])), sys.argv[3:]
folder.mkdir(exist_ok=True)


def compile_for(memory, *flags):
    """Runs on devices with so much memory: the messages, and the peak bytes of the largest rank, or None if it fails."""
    cluster = folder / "cluster.lua"
    cluster.write_text("return {per_node = 8, inside = {alpha = 1e-6, beta = 1e-10}, memory_speed = 2e10, f32 = 1e11, "
                       f"memory = {memory}}}")
    run = subprocess.run([*command, "--cluster", cluster, "--emit", "plan", *flags], capture_output=True, text=True)
    return run.stderr, max(r["peak_bytes"] for r in json.loads(run.stdout)["per_rank"]) if run.returncode == 0 else None


def must_fit(what, memory, *flags):
    said, peak = compile_for(memory, *flags)
    print(what, "fits" if peak and peak <= memory else f"does not fit: {said}")


said, _ = compile_for(memory)
plan, slices, needs = re.search(r"needs least, (\S+) in (\d+) micro-batch\S*, rank \d+ needs (\d+) bytes", said).groups()
print("it needs", needs, "bytes with", plan, "in", slices)
must_fit("with as much memory it", int(needs), "--plan", plan, "--micro-batches", slices)
wider = re.search(r"it fits on \d+ ranks: (-g .*)", said)
if wider:
    must_fit("on more ranks it", memory, *wider[1].split())
more = re.search(r"would need (\d+) bytes more$", said, re.M)
if more:
    must_fit("with what auto then takes it", memory + int(more[1]))
