"""Hosts that nnaot knows of (--per-node), and the note of an executable whose collectives do not go inside hosts first.

Ranks are processes here, which are told by LOCAL_WORLD_SIZE that they are on several hosts.
"""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess

import onnx_bytes
from common import NNAOT, check, compile_in_a_hurry, finish, free_port, mpirun, run, scratch, write_npy

WIDTHS = [32, 700, 700, 10]  # 2.1 MB of gradients
NOTE = (r"rank 0: note: rank 0 receives ([\d.]+) MB of a step from other hosts in collectives; "
        r"inside hosts first it would be ([\d.]+) MB\n")


def processes(exe, flags, ranks, per_host):
    """Trains a few steps as processes; returns their error output, which is checked."""
    port, jobs = free_port(), []
    for rank in range(ranks):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(per_host), "OMP_NUM_THREADS": "1",
               "LOCAL_RANK": str(rank % per_host), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        jobs.append(subprocess.Popen([exe, *flags], env=env, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    said = [job.communicate(timeout=120)[1] for job in jobs]
    check(f"{exe.name} trains as {ranks} ranks, {per_host} per host", not any(job.returncode for job in jobs), *said)
    return "".join(said)


def losses(log):
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


with scratch() as folder:
    folder = pathlib.Path(folder)
    compile_in_a_hurry(folder)
    (folder / "wide.onnx").write_bytes(onnx_bytes.mlp(WIDTHS))
    (folder / "narrow.onnx").write_bytes(onnx_bytes.mlp([32, 64, 10]))
    rng, rows = random.Random(2), 256
    write_npy(folder / "x.npy", [rng.gauss(0, 1) for _ in range(rows * WIDTHS[0])], (rows, WIDTHS[0]))
    write_npy(folder / "labels.npy", [rng.randrange(10) for _ in range(rows)], (rows,), "<i8")
    data = ["--input", f"x={folder}/x.npy", "--input", f"labels={folder}/labels.npy"]
    gradients = 4 * sum((n + 1) * m for n, m in zip(WIDTHS, WIDTHS[1:]))

    def compiled(model, ranks, *flags):
        exe = folder / "-".join([model, str(ranks), *(flag.strip("-").replace(":", "_") for flag in flags)])
        run(NNAOT, folder / f"{model}.onnx", "-g", ranks, "--batch", 32, "--loss", "cross_entropy(logits)", *flags, "-o", exe)
        return exe

    for plan, other in ("dp", "cpu:4x1"), ("zero2", "cpu:1x4"):
        logs = {}
        for hosts in [], ["--per-node", "2"], ["--cluster", "cpu:2x2"], ["--cluster", other]:
            exe = compiled("wide", 4, "--plan", plan, *hosts)
            log = folder / f"{exe.name}.jsonl"
            said = processes(exe, [*data, "--steps", "3", "--log", log], 4, 2)
            notes = re.findall(NOTE, said)
            knows = hosts and hosts[1] != other
            check(f"{exe.name}: {'no' if knows else 'one'} note on 2 hosts", len(notes) == (0 if knows else 1), said)
            if notes:
                # Of 2 hosts, each of whose ranks receives half of the sum, and half of it again.
                flat, first = map(float, notes[0])
                check(f"{exe.name}: bytes", abs(flat - gradients / 1e6) < 0.06 and abs(first - flat / 2) < 0.06, notes, gradients)
                check(f"{exe.name}: the hint", said.endswith("hint: compile with --per-node 2\n"), said)
            logs[tuple(hosts)] = losses(log)
            # Tensors of a megabyte, in one phase of all ranks or two levels, give the bits of threads.
            for launcher in [], *([mpirun(4)] if shutil.which("mpirun") else []):
                run(*launcher, exe, *data, "--steps", 3, "--log", log, env={**os.environ, "OMP_NUM_THREADS": "1"})
                check(f"{exe.name} {launcher}: the same losses", losses(log) == logs[tuple(hosts)], losses(log), logs)
        check(f"{plan}: --per-node is a cluster", logs["--per-node", "2"] == logs["--cluster", "cpu:2x2"], logs)
        worst = max(abs(a - b) for a, b in zip(logs[()], logs["--per-node", "2"]))
        check(f"{plan}: with hosts the same losses but for rounding", worst < 1e-5, logs)
        flat = compiled("wide", 4, "--plan", plan)
        check(f"{plan}: no note on one host", "MB of a step" not in processes(flat, [*data, "--steps", "1"], 4, 4))
        check(f"{plan}: no note on 4 hosts", "MB of a step" not in processes(flat, [*data, "--steps", "1"], 4, 1))

    # The ranks of a host do the same collectives in tensor parallelism, and its data parallelism has one rank on each host.
    inside = compiled("wide", 4, "--plan", "dp=2,tp=2")
    check("collectives of one rank per host: no note", "MB of a step" not in processes(inside, [*data, "--steps", "1"], 4, 2))
    small = compiled("narrow", 4, "--plan", "dp")
    check("small tensors: no note", "MB of a step" not in processes(small, [*data, "--steps", "1"], 4, 2))

finish()
