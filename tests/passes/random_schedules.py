"""Schedules of random stages:  random_schedules.py [FIRST [N]]

Each case is a graph of stages on random devices, with values that skip stages, sometimes with ops on all devices
before and after the stages, and a kind of schedule. Then

  * the runs terminate: they are simulated here, with sends that end only after the receive;
  * memory is consistent: every device's run is simulated with the offsets of plan_memory; each 64 bytes record their
    last writer and its slice, and every reader must find its operand;
  * deadlocks are detected exactly: gets and segments are permuted in the runs, and the verifier must agree with the
    simulation.
"""

import os
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
OPT = BUILD / "bin" / "nnaot-opt"
KINDS = ["1f1b", "gpipe", "zb-h1", "zb-h2", "search"]
KINDS_OF_ALL = ["interlaced", "interlaced", "1f1b", "search"]  # for cases with ops on all devices
CELL = 64


# -- Cases ---------------------------------------------------------------------------------------------------------------


class Case:
    """The text of a step on stages: a list of lines, in the order of the parts of a step."""

    def __init__(self, rng):
        self.rng = rng
        self.slices = rng.choice([2, 3, 4, 6])
        self.dp = [rng.choice([1, 1, 2]) for _ in range(rng.randint(2, 5))]
        self.n_devices = sum(self.dp)
        self.on_all = 8 % self.n_devices == 0 and rng.random() < 0.8
        if self.on_all: self.dp.append(self.n_devices)
        self.params, self.ops, self.results, self.n = [], [], [], 0

    def type(self, place):
        return f"f32[{8 // self.dp[place]},16] @s{place} {{S(0), S(0)}}"

    def op(self, text, place, part):
        self.n += 1
        self.ops.append(f"%v{self.n} = {text} : {self.type(place)}{part}")
        return f"%v{self.n}"

    def move(self, value, place, part):
        return self.op(f"move {value} shape=[{8 // self.dp[place]},16]", place, part)

    def some_ops(self, values, place, part):
        for _ in range(self.rng.randint(1, 4)):
            x, y = self.rng.choice(values[-3:]), self.rng.choice(values)
            text = self.rng.choice([f"tanh {x}", f"add {x}, {y}", f"mul {x}, {y}",
                                    f"fill value=2 shape=[{8 // self.dp[place]},16] to=f32"])
            split = "[a,a]" if text.startswith("fill") else "[0,0]"
            values.append(self.op(f"{text}", place, part).strip())
            self.ops[-1] = self.ops[-1].replace(part, f" split={split}{part}") if part else self.ops[-1] + f" split={split}"

    def sum(self, value, place):
        self.n += 1
        on = f"@s{place}"
        self.ops.append(f"%q{self.n} = sum_squares {value} : f32[] {on} {{P, P}} split=[0,0] backward of=1")
        self.ops.append(f'%a{self.n} = accumulate %q{self.n} axis="mb" : f32[] {on} {{B, P}} backward of=1')
        self.results.append((self.n, on))

    def text(self):
        rng, stages = self.rng, []
        for place in range(len(self.dp)):
            self.params.append(f"%x{place}: {self.type(place)} input \"x{place}\"")
        wide = [len(self.dp) - 1] if self.on_all else []
        places = list(range(len(self.dp) - len(wide)))
        places = wide + places * (1 if wide else rng.choice([1, 1, 2])) + wide * rng.choice([0, 1])
        made = []
        for i, place in enumerate(places):
            values = [f"%x{place}"] if i == 0 or rng.random() < 0.3 else []
            if i and places[i - 1] != place:
                values.append(self.move(made[-1][0], place, " of=1"))
            for value, other in made[:-1]:
                if other != place and rng.random() < 0.2:
                    values.append(self.move(value, place, " of=1"))
            self.some_ops(values, place, " of=1")
            made.append((values[-1], place))
            stages.append(values)
        gradient = None
        for i in reversed(range(len(places))):
            place, values = places[i], stages[i]
            if gradient and places[i + 1] != place:
                values.append(self.move(gradient, place, " backward of=1"))
            self.some_ops(values, place, " backward of=1")
            gradient = values[-1]
            for _ in range(rng.randint(1, 2)):
                self.sum(rng.choice(values[-3:]), place)
        for n, on in self.results:
            self.ops.append(f'%r{n} = all_reduce %a{n} axis="dp" : f32[] {on} {{B, B}} update')
        meshes, device = [], 0
        for place, dp in enumerate(self.dp):
            if self.on_all and place == len(self.dp) - 1: device = 0
            meshes.append(f"mesh @s{place} devices={device}{f'-{device + dp - 1}' if dp > 1 else ''} "
                          f"(mb={self.slices}:time, dp={dp})")
            device += dp
        results = ", ".join(f'output "r{n}" %r{n}' for n, _ in self.results)
        return "\n".join(["module phase=local", *meshes, "", f"graph @train entry ({', '.join(self.params)}) {{",
                          *self.ops, f"return {results}", "}", ""])


# -- Parsing
# -------------------------------------------------------------------------------------------------------------


class Op:
    def __init__(self, line):
        self.out, rest = re.match(r"  (%\w+) = (.*?)  #", line + "  #").groups()
        what, right = re.split(r" +: ", rest, maxsplit=1)
        self.kind = what.split()[0]
        self.operands = re.findall(r"%\w+", what)
        self.mesh = mesh_in(right)
        self.segment = (re.search(r"segment=(\S+)", right) or [None, None])[1]
        self.place = place_of(right)


def mesh_in(text):
    """Returns the name of the mesh; uses of the module's first mesh have no name."""
    name = re.search(r" @(\w+) \{", text)
    return name.group(1) if name else "s0"


def place_of(text):
    """Returns offset, bytes, slots and stride."""
    shape = re.search(r"f32\[([\d,]*)\]", text).group(1)
    n = 4
    for length in filter(None, shape.split(",")):
        n *= int(length)
    at = re.search(r" at (\d+)(?: slots=(\d+):(\d+))?", text)
    return at and (int(at.group(1)), n, int(at.group(2) or 1), int(at.group(3) or 0))


class Program:
    def __init__(self, text):
        self.text = text
        self.meshes = {m: expand(d) for m, d in re.findall(r"^mesh @(\w+) devices=(\S+)", text, re.M)}
        self.params = {v: (mesh_in(line), place_of(line)) for line, v in
                       re.findall(r"^(  (%\w+): f32.*)$", text, re.M)}
        self.ops = [Op(line) for line in text.splitlines() if re.match(r"  %\w+ = ", line)]
        self.by_name = {op.out: op for op in self.ops}
        self.runs = [(expand(d), actions(words)) for d, words in re.findall(r"^  run devices=(\S+) (.*)$", text, re.M)]
        self.ahead = [op for op in self.ops if op.kind == "move" and op.segment and self.sends(op)]

    def mesh_of(self, value):
        return self.by_name[value].mesh if value in self.by_name else self.params[value][0]

    def sends(self, op):
        made = self.by_name.get(op.operands[0])
        return self.mesh_of(op.operands[0]) != op.mesh and not (made and made.segment == op.segment)

    def start_of(self, move, run):
        made = self.by_name.get(move.operands[0])
        return made.segment if made else next(a for a in run if a[0] != "%")


def expand(devices):
    out = []
    for part in devices.split(","):
        lo, _, hi = part.partition("-")
        out += range(int(lo), int(hi or lo) + 1)
    return out


def actions(words):
    """Expands `F0*2 (get %g B0)*3` to a list; a get is the name of the value."""
    tokens = re.findall(r"\*\d+|[()]|[^\s()*]+", words)

    def read(at):
        out = []
        while at < len(tokens) and tokens[at] != ")":
            if tokens[at] == "(":
                part, at = read(at + 1)
            elif tokens[at] == "get":
                part, at = [tokens[at + 1]], at + 1
            else:
                part = [tokens[at]]
            at += 1
            if at < len(tokens) and tokens[at].startswith("*"):
                part, at = part * int(tokens[at][1:]), at + 1
            out += part
        return out, at

    return read(0)[0]


# -- Simulation
# ----------------------------------------------------------------------------------------------------------


def comes_to_an_end(p, runs):
    """Simulates the runs: each performs its actions in order; sends and gets enter its queue, and a move is done
    when it is at the head of the queues of both ends.  Returns whether all runs terminate."""
    at = [0] * len(runs)
    queue = [[] for _ in runs]
    count, done = [{} for _ in runs], set()
    ends = {op.out: [r for r, (d, _) in enumerate(runs)
                     if d[0] in p.meshes[op.mesh] or d[0] in p.meshes[p.mesh_of(op.operands[0])]] for op in p.ahead}

    def go_on(r):
        devices, run = runs[r]
        action = run[at[r]]
        m = count[r].get(action, 0)
        if not action.startswith("%"):
            for op in p.ahead:
                if op.segment == action and devices[0] in p.meshes[op.mesh] and (op.out, m) not in done:
                    return False
        count[r][action] = m + 1
        at[r] += 1
        if action.startswith("%"):
            queue[r].append((action, m))
        for op in p.ahead:
            if devices[0] in p.meshes[p.mesh_of(op.operands[0])] and p.start_of(op, run) == action:
                queue[r].append((op.out, m))
        return True

    moved = True
    while moved:
        moved = False
        for r, (_, run) in enumerate(runs):
            while at[r] < len(run) and go_on(r):
                moved = True
            head = queue[r][0] if queue[r] else None
            if head and all(queue[e] and queue[e][0] == head for e in ends[head[0]]):
                for e in ends[head[0]]:
                    queue[e].pop(0)
                done.add(head)
                moved = True
    return all(at[r] == len(run) for r, (_, run) in enumerate(runs))


class Memory:
    """The memory of one device: the last (value, slice) written to each cell."""

    def __init__(self, program, device):
        self.p, self.device, self.cell = program, device, {}

    def cells(self, value, m):
        p = self.p
        offset, n, slots, stride = p.by_name[value].place if value in p.by_name else p.params[value][1]
        first = offset + m % slots * stride
        return range(first // CELL, (first + n + CELL - 1) // CELL)

    def write(self, value, m, what=None):
        for c in self.cells(value, m):
            self.cell[c] = (what or value, m)

    def read(self, value, m, why):
        for c in self.cells(value, m):
            if self.cell.get(c) != (value, m):
                raise AssertionError(f"device {self.device}, {why}: {value} of slice {m} is overwritten by "
                                     f"{self.cell.get(c)}")


def walk_memory(p, devices, run):
    memory, count, fed = Memory(p, devices[0]), {}, set()

    def has(value):
        return devices[0] in p.meshes[p.mesh_of(value)]

    for op in p.ops:
        if op.kind == "accumulate" and has(op.out):
            memory.write(op.out, 0)
    for action in run:
        m = count[action] = count.get(action, -1) + 1
        if action.startswith("%"):
            memory.write(action, m, "what comes")
            continue
        if m not in fed:
            fed.add(m)
            for value in p.params:
                if has(value):
                    memory.write(value, m)
        for op in p.ops:
            if op.segment != action:
                continue
            if op in p.ahead:
                memory.write(op.out, m)
                continue
            for value in op.operands:
                memory.read(value, m, op.out)
            if op.kind == "accumulate":
                memory.read(op.out, 0, "sum")
            if op.place:
                memory.write(op.out, 0 if op.kind == "accumulate" else m)
        for op in p.ahead:
            if p.start_of(op, run) == action and has(op.operands[0]):
                memory.read(op.operands[0], m, f"start of {op.out}")
    for op in p.ops:
        if op.kind == "accumulate" and has(op.out):
            memory.read(op.out, 0, "after the loop")


# -- Checks --------------------------------------------------------------------------------------------------------------


def opt(text, *passes):
    done = subprocess.run([OPT, "-", *([f"--passes={','.join(passes)}"] if passes else [])], input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if done.returncode not in (0, 1):
        sys.exit(f"exit status {done.returncode}: {done.stderr[-2000:]}\n{text}")
    return done.returncode == 0, done.stdout, done.stderr


def shuffled(rng, run):
    """Returns the run with some actions moved by a few positions."""
    run = list(run)
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(len(run))
        k = max(0, min(len(run) - 1, i + rng.randint(-4, 4)))
        run.insert(k, run.pop(i))
    return run


def with_runs(p, runs):
    lines = [line for line in p.text.splitlines() if not line.startswith("  run ")]
    text = [f"  run devices={','.join(map(str, d))} {' '.join('get ' + a if a[0] == '%' else a for a in run)}"
            for d, run in runs]
    end = lines.index("}")
    return "\n".join(lines[:end] + text + lines[end:]) + "\n"


def check(seed, counts):
    rng = random.Random(seed)
    case = Case(rng)
    kind, text = rng.choice(KINDS_OF_ALL if case.on_all else KINDS), case.text()
    ok, out, err = opt(text, f"schedule(kind={kind})", "plan_memory")
    counts[kind] = counts.get(kind, 0) + ok
    if not ok and "does not fit the plan" in err:
        kind = "search"
        ok, out, err = opt(text, f"schedule(kind={kind})", "plan_memory")
    if not ok:
        sys.exit(f"seed {seed}, {kind}: {err}\n{text}")
    p = Program(out)
    if not p.runs:
        sys.exit(f"seed {seed}, {kind}: no schedule\n{text}")
    if not comes_to_an_end(p, p.runs):
        sys.exit(f"seed {seed}, {kind}: the schedule does not come to an end\n{out}")
    try:
        for devices, run in p.runs:
            walk_memory(p, devices, run)
    except AssertionError as error:
        sys.exit(f"seed {seed}, {kind}: {error}\n{out}")
    plain = Program(opt(text, f"schedule(kind={kind})")[1])
    for _ in range(4):
        runs = [(d, shuffled(rng, run)) for d, run in plain.runs]
        ok, _, err = opt(with_runs(plain, runs))
        stuck = "waits for itself" in err
        if not ok and not stuck:
            counts["wrong"] += 1  # a value is read before it is computed or received
            continue
        if stuck == comes_to_an_end(plain, runs):
            sys.exit(f"seed {seed}, {kind}: the verifier says {err or 'nothing'}\n{with_runs(plain, runs)}")
        counts["circles" if stuck else "right"] += 1


def main():
    first, n = (int(a) for a in (sys.argv[1:] + ["0", "40"][len(sys.argv) - 1:]))
    counts = {"wrong": 0, "circles": 0, "right": 0}
    for seed in range(first, first + n):
        check(seed, counts)
    print(f"{n} schedules; moved about: {counts['right']} come to an end, {counts['circles']} wait for themselves, "
          f"{counts['wrong']} are wrong otherwise")
    if not counts["circles"] or not counts["right"] or not counts.get("interlaced"):
        sys.exit("too few cases: nothing was compared")


if __name__ == "__main__":
    main()
