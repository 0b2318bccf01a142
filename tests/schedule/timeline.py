"""Asks nnaot-plan for a schedule, and checks it from its list of blocks alone.

Independent of the compiler: dependencies, devices of stages and live ranges of activations are defined again here.
"""

import json
import os
import subprocess

BUILD = os.environ.get("BUILD", "build")
PROGRAM = os.path.join(BUILD, "bin", "nnaot-plan")


def ask(kind, p, m, times=(1, 1, 1), comm=0, memory=None, embed=0, constraints=None):
    """Returns the answer, or None if nnaot-plan reports that no schedule fits."""
    words = [PROGRAM, "schedule", "--json", "--kind", kind, "--stages", p, "--micro-batches", m, "--comm", comm]
    words += ["--f", times[0], "--b", times[1], "--w", times[2]]
    if memory is not None:
        words += ["--memory", memory]
    if embed:
        words += ["--embed", embed]
    if constraints:
        words += ["--constraints", constraints]
    run = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if run.returncode == 1 and "fit" in run.stderr:
        return None
    assert run.returncode == 0, (words, run.stderr)
    return json.loads(run.stdout)


def close(x, y):
    return abs(x - y) <= 1e-6 * max(1, abs(x), abs(y))


def key(op):
    return op["kind"], op["stage"] if op["kind"] != "E" else 0, op["micro_batch"], op.get("pass", 1)


def count_pieces(ops):
    """Returns the pieces per micro-batch, and renumbers them: each piece becomes a micro-batch of its own."""
    pieces = 1 + max(op.get("piece", 0) for op in ops)
    for op in ops:
        op["micro_batch"] = op["micro_batch"] * pieces + op.get("piece", 0)
    return pieces


def of_other_pieces(op, pieces):
    """Returns the dependencies among pieces: forward after the previous piece, backward after the next one."""
    kind, i, m = op["kind"], op["stage"], op["micro_batch"]
    if kind == "F" and m % pieces > 0:
        return [("F", i, m - 1, 1)]
    if kind == "B" and m % pieces < pieces - 1:
        return [("B", i, m + 1, 1)]
    return []


def needs(op, stages, forwards, embed):
    """Returns the dependencies of a block."""
    kind, i, m = op["kind"], op["stage"], op["micro_batch"]
    turn = op.get("pass", 1)
    if kind == "F":
        if i > 0:
            return [("F", i - 1, m, turn)]
        if turn > 1:
            return [("F", stages - 1, m, turn - 1)]
        return [("E", 0, m, 1)] if embed else []
    if kind == "B":
        list_ = [("F", i, m, forwards)]
        if i < stages - 1:
            return list_ + [("B", i + 1, m, 1)]
        return list_ + ([("E", 0, m, 3)] if embed else [])
    if kind == "W":
        return [("B", i, m, 1)]
    return {1: [], 2: [("F", stages - 1, m, forwards)], 3: [("E", 0, m, 2)], 4: [("B", 0, m, 1)]}[turn]


def check(x, p, m, times, comm=0, embed=0):
    """Checks that the blocks are executable and complete, and that the reported measures are right."""
    ops = x["ops"]
    pieces = count_pieces(ops)
    m *= pieces
    times = [t / pieces for t in times]
    stages = 1 + max(op["stage"] for op in ops)
    forwards = max(op.get("pass", 1) for op in ops if op["kind"] == "F")
    split = any(op["kind"] == "W" for op in ops)
    where, end, device = {}, {}, [[] for _ in range(p)]
    for op in ops:
        where.setdefault(key(op), set()).add(op["device"])
        end[key(op)] = op["end"]
        device[op["device"]].append(op)
    kinds = ["F"] * forwards + ["B"] + ["W"] * split
    assert len(end) == stages * m * len(kinds) + (4 * m if embed else 0), "blocks are missing"
    f, b, w = times
    for d in range(p):
        ours = sorted(device[d], key=lambda op: (op["start"], op["end"]))
        assert ours == device[d], "not in order"
        held, most = 0, 0
        for i, op in enumerate(ours):
            if i:
                assert op["start"] >= ours[i - 1]["end"] - 1e-9, "two at a time"
            share = {s for (k, s, mb, _), at in where.items() if k == "B" and mb == op["micro_batch"] and d in at}
            time = {"F": f, "B": b if split else b + w, "W": w, "E": embed}[op["kind"]]
            assert close(op["end"] - op["start"], time / (1 if op["kind"] == "E" else len(share))), "another time"
            for need in needs(op, stages, forwards, embed) + of_other_pieces(op, pieces):
                assert (need[3] if need[0] == "F" else 1) <= forwards
                late = comm if where[need] != where[key(op)] else 0
                assert op["start"] >= end[need] + late - 1e-9, f"{op} begins before {need} is there"
            if op["kind"] == "F" and op.get("pass", 1) == forwards:
                held += 1 / len(share) / pieces
                most = max(most, held)
            if op["kind"] == ("W" if split else "B"):
                held -= 1 / len(share) / pieces
        assert close(held, 0) and close(most, x["peak"][d]), "another peak"
    makespan = max(op["end"] for op in ops)
    spans = [max(op["end"] for op in at) - min(op["start"] for op in at) for at in device if at]
    busy = sum(op["end"] - op["start"] for op in ops)
    assert close(makespan, x["makespan"]) and close(max(spans), x["span"])
    assert close(x["bubble"], 1 - busy / (p * makespan))
    assert x["bound"] <= makespan + 1e-9
