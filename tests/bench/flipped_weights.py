#!/usr/bin/env python3
"""Flips single bits of weights and states in the memory of a rank that trains; the comparison of replicas must find each.

    flipped_weights.py [--count 5] [--seed 0] [--results FILE.jsonl]     a table: plan, ranks, K, steps until a flip was found
    flipped_weights.py --plan dp --ranks 3       only these cases
    flipped_weights.py --cost [--repeat 5]       CPU time of the comparison, as a share of a step's, by K
    flipped_weights.py --check                   a test of CI: one flip for most plans

A process is stopped, a bit is changed by /proc/PID/mem, and the process continues.  The tables of tensors and meshes are those of
--emit c; a rank's slab is found by its NnrtRank.  The script itself derives the ranks that hold the same shard.  A flip is right
if the job ends with status 1 within K steps (one more may be under way), the message names the tensor first, and, of three or
more copies, the rank; of two, both.

Only flips that last are made.  Rounding may undo that of a low bit, so bits are from 12 on.  A 16-bit copy is written again in
each step, and a running mean forgets: of states that are not 0 the highest 12 bits are flipped, and K is at most 10.

A flip after which the loss is not a number ends the job before anything is saved, but is not named: then all weights are NaN on all
ranks.

Plans that gather the weights in every step from the ranks that update them (zero1, zero2) are not here: of each weight only one
rank's part has a lasting effect, and the others' are overwritten before the step ends.
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import onnx_bytes  # noqa: E402
from common import (NNAOT, OPTIMIZER, SAMPLE, SAMPLES, check, compile_in_a_hurry, data_flags, finish, free_port, run,  # noqa: E402
                    scratch)

# Plan, ranks, sample, further flags.
CASES = [
    ("dp", 2, "mlp", []),
    ("dp", 3, "mlp", ["--batch", 15]),
    ("dp", 4, "mlp", []),
    ("dp=2,zero3=2", 4, "mlp", []),
    ("dp=4,zero3=2", 8, "mlp", []),
    ("dp=2,tp=2", 4, "mlp", []),
    ("dp=4,tp=2", 8, "mlp", []),
    ("pp=2,dp=2", 4, "mlp", ["--micro-batches", 2]),
    ("pp=2,dp=3", 6, "mlp", ["--batch", 12, "--micro-batches", 2]),
    ("pp_pipedream=2,dp=2", 4, "mlp", ["--micro-batches", 2]),
    ("cross_barrier", 4, "mlp", []),
    ("offload", 3, "mlp", ["--batch", 15]),
    ("dp", 4, "mlp", ["--dtype", "bf16"]),
    ("dp", 4, "mlp", ["--dtype", "f16"]),
    ("sp", 4, "gpt2", []),
]
QUICK = [("dp", 3), ("dp", 4), ("dp=2,tp=2", 4), ("pp=2,dp=2", 4), ("cross_barrier", 4), ("offload", 3)]
EVERY = [1, 10, 100]
WIDTH = {"f32": 4, "f64": 8, "i64": 8, "bf16": 2, "f16": 2}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "LC_ALL": "C"}


# ---- the program's tables

class Program:
    def __init__(self, folder, plan, ranks, sample, flags):
        self.plan, self.ranks, self.data = plan, ranks, data_flags(sample)
        self.exe = folder / "train"
        s = SAMPLE[sample]
        command = [NNAOT, SAMPLES / sample / f"{sample}.onnx", "-g", ranks, "--plan", plan, "--loss", s["loss"],
                   *OPTIMIZER["adamw"], *([] if "--batch" in flags else ["--batch", max(s["batch"], ranks)]), *flags]
        run(*command, "--emit", "c", "-o", folder / "c")
        run(*command, "-o", self.exe)
        text = (folder / "c" / "program.c").read_text()
        meshes = re.search(r"NnrtMesh meshes\[\] = \{\n(.*?)\n\};", text, re.S).group(1)
        self.meshes = []
        for axes, at in re.findall(r"\{\"[^\"]*\", \d+, \{(.*?)\}, \d+, \(const int\[\]\)\{([^}]*)\}\}", meshes):
            axes = [(int(size), time == "true") for _, size, time in re.findall(r"\{\"([^\"]*)\", (\d+), (\w+)\}", axes)]
            self.meshes.append((axes, [int(rank) for rank in at.split(",")]))
        self.tensors = {}
        row = r"\{\"([^\"]+)\", NNRT_(weight|state|copy), NNRT_(\w+), (\d+), \{([^}]*)\}, \{((?:\{[^}]*\}(?:, )?)*)\}(.*)\},"
        for name, role, dtype, ndim, dims, splits, rest in re.findall(row, text):
            split = [int(a) for a in re.findall(r"-?\d+", splits) if int(a) >= 0]
            field = {key: int(value) for key, value in re.findall(r"\.(mesh|offset) = (\d+)", rest)}
            dims = [int(d) for d in re.findall(r"\d+", dims)][:int(ndim)]  # of a scalar {0} is written
            on_host = ".host = true" in rest
            self.tensors.setdefault((role, name), (dtype, dims, split, field.get("mesh", 0), field["offset"], on_host))

    def copies(self, key):
        """The groups of ranks that hold the same shard of a tensor, and the elements of a shard."""
        _, dims, split, mesh, _, _ = self.tensors[key]
        axes, ranks = self.meshes[mesh]
        groups = {}
        for place, rank in enumerate(ranks):
            coord = {}
            for a in reversed(range(len(axes))):
                if not axes[a][1]:
                    coord[a] = place % axes[a][0]
                    place //= axes[a][0]
            groups.setdefault(tuple(coord[a] for a in split), []).append(rank)
        return list(groups.values()), math.prod(dims) // math.prod(axes[a][0] for a in split)


# ---- the memory of a process

def ranks_in(pid, ranks):
    """The slab and host memory of each rank in a process: NnrtRank has five addresses, micro, piece, flushed, rank, ranks."""
    found = {}
    regions = []
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, access, *_ = line.split()
        begin, end = (int(x, 16) for x in span.split("-"))
        if access.startswith("rw"):
            regions.append((begin, end))
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for begin, end in regions:
            if end - begin > 64 << 20:
                continue
            memory.seek(begin)
            try:
                data = memory.read(end - begin)
            except OSError:
                continue
            for rank in range(ranks):
                at = -1
                while (at := data.find(struct.pack("<ii", rank, ranks), at + 1)) >= 0:
                    first = at - 52
                    if first < 0 or first % 8:
                        continue
                    slab, host, *others = struct.unpack_from("<5Q", data, first)
                    micro, piece, flushed = struct.unpack_from("<3i", data, first + 40)
                    sane = slab % (2 << 20) == host % (2 << 20) == 0
                    sane &= 0 <= micro < 64 and -1 <= piece < 4096 and 0 <= flushed < 4096
                    addresses = [slab, *others, *([host] if host else [])]
                    if sane and all(any(b <= x < e for b, e in regions) for x in addresses):
                        found.setdefault(rank, set()).add((slab, host))
    return {rank: at.pop() for rank, at in found.items() if len(at) == 1}


def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    while pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        time.sleep(0.01)


def element(pid, address, width):
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        memory.seek(address)
        return memory.read(width)


def flip(pid, address, bit):
    with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
        memory.seek(address + bit // 8)
        byte = memory.read(1)[0]
        memory.seek(address + bit // 8)
        memory.write(bytes([byte ^ 1 << bit % 8]))


# ---- one flip

def start(program, folder, every, processes, flags=(), envs=None):
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    command = [str(x) for x in (program.exe, *program.data, "--steps", 10**7, "--check-replicas", every, "--log", log, *flags)]
    jobs, port = [], free_port()
    for rank in range(program.ranks if processes else 1):
        env = {**ENVIRONMENT, **(envs[rank] if envs else {})}
        if processes:
            env.update(RANK=str(rank), WORLD_SIZE=str(program.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        jobs.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    return jobs, log


def steps_done(log):
    return log.read_bytes().count(b"\n") if log.exists() else 0


def corrupted(program, folder, every, processes, rng, key, rank, bit, flags=(), least=3, envs=None, enough=None):
    """Flips a bit, or several, of an element of a rank's shard while it trains.  Returns the steps before, the messages, and
    exit statuses.

    `envs` has further variables of each process; training is ended after `enough` more steps, if given."""
    count = program.copies(key)[1]
    dtype, _, _, _, offset, on_host = program.tensors[key]
    width = WIDTH[dtype]
    jobs, log = start(program, folder, every, processes, flags, envs)
    try:
        limit = time.monotonic() + 60
        while steps_done(log) < least + rng.randrange(20) and time.monotonic() < limit and jobs[0].poll() is None:
            time.sleep(0.01)
        victim = jobs[rank if processes else 0]
        stopped(victim.pid)
        at = ranks_in(victim.pid, program.ranks).get(rank)
        # Another rank may be a step ahead of the log.
        time.sleep(0.05)
        before = steps_done(log)
        assert at, f"no rank {rank} in the memory of the process"
        begin = at[1 if on_host else 0] + offset
        places = rng.sample(range(count), count)
        place = next((i for i in places if key[0] != "state" or any(element(victim.pid, begin + i * width, width))), places[0])
        for one in bit if isinstance(bit, tuple) else [bit]:
            flip(victim.pid, begin + place * width, one)
        os.kill(victim.pid, signal.SIGCONT)
        limit = time.monotonic() + 300
        while any(job.poll() is None for job in jobs) and time.monotonic() < limit:
            time.sleep(0.02)
            if enough and steps_done(log) >= before + enough:
                break
    finally:
        for job in jobs:
            if job.poll() is None:
                job.kill()
    err = "".join(job.communicate()[1] for job in jobs)
    return before, err, {job.returncode for job in jobs}


def one_flip(program, folder, every, processes, rng):
    """Returns a row of the table."""
    roles = ["weight", "state"][:2 if every <= 10 else 1]
    keys = [key for key in program.tensors if key[0] in roles and len(program.copies(key)[0][0]) > 1]
    key = role, name = rng.choice(keys)
    group = rng.choice(program.copies(key)[0])
    rank = rng.choice(group)
    dtype = program.tensors[key][0]
    bits = WIDTH[dtype] * 8
    bit = rng.randrange(max(0, bits - 12) if role == "state" and dtype == "f32" else min(12, bits // 2), bits)
    # Of an offloaded state, a bit that is flipped between the copy to the device and the copy back is overwritten.
    for _ in range(3 if program.tensors[key][5] else 1):
        before, err, codes = corrupted(program, folder, every, processes, rng, key, rank, bit, enough=10 * every + 1000)
        said = re.search(r"error: after step (\d+): (.*)", err)
        if said or codes == {1}:
            break
    parts = said.group(2).split("; ") if said else []
    named = [part for part in parts if f"the {role} '{name}'" in part]
    ranks = [int(x) for x in re.findall(r"\d+", re.split(r" holds? ", named[0])[0])] if named else []
    steps = int(said.group(1)) - before if said else None
    # Where ranks compute the same values, each for itself, those with gradients of the corrupted rank follow it.
    redundant = program.plan.count("tp=") + program.plan.count("sp") > 0
    whom = sorted(ranks) == ([rank] if len(group) > 2 else sorted(group)) or redundant and rank in ranks
    right = bool(named) and named[0] == parts[0] and whom and steps <= every + 1 and codes == {1}
    # An exponent, or the sign of a mean of squares, may end the training at once, when all weights are NaN.
    not_finite = not said and bit >= bits - 12 and codes == {1} and re.search(r"the (loss|gradient's norm) is ", err) is not None
    right |= not_finite
    return dict(transport="tcp" if processes else "threads", every=every, tensor=f"{role} {name}", rank=rank, copies=len(group),
                bit=bit, steps=steps, not_finite=not_finite, right=right, **({} if right else {"said": err[-2000:]}))


def sound_checkpoint(folder):
    """The checkpoint that the message names is the newest, and a run that resumes from it has the bits of an undisturbed one."""
    program = Program(folder, "dp", 3, "mlp", ["--batch", 15])
    kept, rng = folder / "kept", random.Random(5)
    flags = ["--checkpoint-dir", kept, "--checkpoint-every", 7]
    key = next(key for key in program.tensors if key[0] == "weight")
    before, err, codes = corrupted(program, folder, 10, True, rng, key, 1, 20, flags, least=8)  # the checkpoint of step 7 is written
    said = re.search(rf"hint: the checkpoint after step (\d+) in '{kept}' is sound", err)
    found = re.search(r"error: after step (\d+): rank 1 holds other values", err)
    if not said or not found:
        check("the message names a checkpoint", False, err)
        return
    step = int(said.group(1))
    newest = max(int(re.search(r"\d+", path.name).group()) for path in kept.iterdir())
    check("the newest checkpoint is named", step == newest and step <= before + 2 and step <= int(found.group(1)), err)
    saved = []
    for more in [*flags, "--resume"], []:
        run(program.exe, *program.data, "--steps", step + 5, "--save", folder / "saved", *more, env=ENVIRONMENT)
        saved.append((folder / "saved").read_bytes())
    check("a run that resumes from it is undisturbed", saved[0] == saved[1])


def flips(cases, count, seed, folder, results, every=EVERY):
    done = {}
    if results and results.exists():
        for line in results.read_text().splitlines():
            row = json.loads(line)
            done[row["case"]] = row
    rows = []
    for plan, ranks, sample, flags in cases:
        label = " ".join(str(x) for x in (plan, ranks, sample, *flags))
        runs = [(f"{label} {way} K={k} #{i}", way == "tcp", k) for way in ("threads", "tcp") for k in every for i in range(count)]
        program = None
        for name, processes, k in runs:
            row = done.get(name)
            if not row:
                if not program:
                    at = folder / re.sub(r"\W+", "_", label)
                    at.mkdir()
                    program = Program(at, plan, ranks, sample, flags)
                row = dict(case=name, plan=label, **one_flip(program, at, k, processes, random.Random(f"{seed} {name}")))
                if results:
                    with results.open("a") as out:
                        out.write(json.dumps(row) + "\n")
            rows.append(row)
            check(f"{name}: {row['tensor']}, rank {row['rank']}, bit {row['bit']}", row["right"], json.dumps(row))
    return rows


def print_table(rows):
    print(f"{'plan, ranks, sample':44} {'ranks as':8} {'K':>4} {'flips':>5} {'right':>5} {'NaN':>3}  steps until found")
    for key in dict.fromkeys((row["plan"], row["transport"], row["every"]) for row in rows):
        of = [row for row in rows if (row["plan"], row["transport"], row["every"]) == key]
        steps = sorted(row["steps"] for row in of if row["steps"] is not None)
        right, not_finite = (sum(row[what] for row in of) for what in ("right", "not_finite"))
        print(f"{key[0]:44} {key[1]:8} {key[2]:4} {len(of):5} {right:5} {not_finite:3}  "
              f"{f'{steps[0]} to {steps[-1]}' if steps else 'never'}")


# ---- cost

def products_model(folder, width=1024, layers=3, rows=2):
    """A model whose weights are all of its work: products of two rows.  Returns the executable and its data."""
    names = [f"w{i}" for i in range(layers)]
    random_numbers = random.Random(0)
    weight = [random_numbers.uniform(-0.03, 0.03) for _ in range(width * width)]
    nodes, value = b"", "x"
    for name in names:
        nodes += onnx_bytes.field(1, onnx_bytes.node("MatMul", [value, name], [f"{name}.y"], f"/{name}"))
        value = f"{name}.y"
    nodes += onnx_bytes.field(1, onnx_bytes.node("ReduceMean", [value], ["loss"], "/loss", keepdims=0))
    graph = nodes + onnx_bytes.field(2, "products")
    graph += b"".join(onnx_bytes.field(5, onnx_bytes.tensor(name, [width, width], weight)) for name in names)
    graph += onnx_bytes.field(11, onnx_bytes.value_info("x", [rows, width]))
    graph += onnx_bytes.field(12, onnx_bytes.value_info("loss", []))
    (folder / "products.onnx").write_bytes(onnx_bytes.model(graph))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    data = struct.pack(f"<{rows * width}f", *(random_numbers.gauss(0, 1) for _ in range(rows * width)))
    (folder / "x.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data)
    exe = folder / "products"
    run(NNAOT, folder / "products.onnx", "-g", 2, "--plan", "dp", "--batch", rows, *OPTIMIZER["adamw"], "-o", exe)
    return exe, ["--input", f"x={folder / 'x.npy'}"]


def cpu_seconds(exe, data, steps, every):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(exe, *data, "--steps", steps, "--check-replicas", every, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def costs(folder, repeat):
    """The shares of K = 10 and 100 are parts of that of 1: differences of less than a percent are lost in the noise of a run."""
    print(f"{'model':9} {'ranks':5} {'CPU ms a step':>13} {'K=1':>8} {'K=10':>8} {'K=100':>8}   of a step's CPU time")
    models = [("mlp", 4000), ("gpt2", 200), ("products", 60)]
    for model, steps in models:
        at = folder / model
        at.mkdir()
        if model == "products":
            exe, data = products_model(at)
        else:
            program = Program(at, "dp", 2, model, [])
            exe, data = program.exe, program.data
        # Interleaved, since other programs use the machine too; the least of each.
        runs = [[cpu_seconds(exe, data, steps, every) for every in (0, 1)] + [cpu_seconds(exe, data, 1, 0)] for _ in range(repeat)]
        none, each, start_up = (min(column) for column in zip(*runs))
        share = 100 * (each - none) / (none - start_up)
        step = 1e3 * (none - start_up) / steps
        print(f"{model:9} {2:5} {step:13.3f} {share:7.2f}% {share / 10:7.3f}% {share / 100:7.4f}%", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=5)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--results", type=pathlib.Path)
    p.add_argument("--plan")
    p.add_argument("--ranks", type=int)
    p.add_argument("--check", action="store_true")
    p.add_argument("--cost", action="store_true")
    p.add_argument("--repeat", type=int, default=5)
    a = p.parse_args()
    with scratch() as folder:
        folder = pathlib.Path(folder)
        if a.cost:
            costs(folder, a.repeat)
            return
        compile_in_a_hurry(folder)
        cases = [case for case in CASES if a.plan in (None, case[0]) and a.ranks in (None, case[1])]
        if a.check:
            cases = [case for case in CASES if case[:2] in QUICK and case[3][:1] != ["--dtype"]]
            flips(cases, 1, a.seed, folder, None, every=[10])
            (folder / "sound").mkdir()
            sound_checkpoint(folder / "sound")
            finish()
        print_table(flips(cases, a.count, a.seed, folder, a.results))
        finish()


if __name__ == "__main__":
    main()
