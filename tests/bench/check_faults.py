#!/usr/bin/env python3
"""Plants faults in executables, and counts those that --check-against finds by name:  check_faults.py [--results FILE.jsonl]

Faults are in three places, and each is one changed place of one C file:

    code          program.c of a plan: a call left out, an operand in place of another of its shape, a constant, the box of a
                  rank, a group, a buffer at the address of another, a sign in a fused kernel
    kernel        a file of rt/cpu (fault_places.py: a sign, a bound, an index, a missing call), compiled and linked
                  before the archive of the runtime
    collective    the same for the files that communicate

Faults are drawn at random for a seed, in turn for the rows of PLANS.  A fault is run without --check-against first: if it
crashes, hangs, ends with an error, or the weights after three steps differ from those without it by less than EFFECT, another
is drawn.  The others must be found: `by name`, if the operation that the error names is the changed one, or calls
the changed function, or an operand that cannot be compared, as a partial sum, and whose operation a note
names; `elsewhere`, if it is another.  A row without a fault must pass.

    --seed N --count N       the number of faults (40), of a seed (1)
    --results FILE.jsonl     a line for each fault; a campaign resumes at its end
    --keep DIR               the folder of sources and executables, kept
    --floor F                exit status 1 if less than this share is found by name, or any fault not at all, or a
                             program without a fault is refused (0.9)
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]

import fault_places
import plan_cases
from common import NNAOT, SAMPLE, SAMPLES, compile_in_a_hurry, counted_plan, data_flags, one_file

# Model, plan, ranks, flags: ten models, with every kind of parallelism.
PLANS = [
    ("wide", "tp2d", 4, []),
    ("gpt", "dp=2,tp=2", 4, []),
    ("gpt_tied", "vp", 4, ["--micro-batches", 2]),
    ("bert", "zero3", 4, ["--dtype", "bf16"]),
    ("vit", "coshard", 4, []),
    ("axial", "dap", 4, []),
    ("recycle", "pp_3f1b", 2, ["--micro-batches", 4]),
    ("moe", "ep", 4, []),
    ("mlp", "zero1", 2, ["--accumulate", 2]),
    ("resnet", "dp", 2, []),
]
STEPS, EFFECT, LIMIT = 3, 1e-4, 20 # steps; least effect; seconds
DIFFERS = "differs from that of the single-device program"
KERNELS = ["norm", "softmax", "attention", "attention_back", "loss", "lookup", "optimizers", "reduce", "shape", "copy", "dropout",
           "conv", "pool", "pad", "batch_norm", "linear", "scan", "tile"]
COLLECTIVES = ["rt/cpu/comm.c", "rt/comm_threads.c", "rt/route.c", "rt/cpu/boxes.c", "rt/meshes.c"]
COLLECTIVE_NAMES = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "local_slice", "move", "wait", "accumulate"}
KINDS = ["code", "kernel", "code", "collective"]


def sh(command, folder, limit=LIMIT):
    """Returns the exit status and the output; a status of None: it hung."""
    process = subprocess.Popen([str(c) for c in command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True)
    try:
        said = process.communicate(timeout=limit)[0]
        return process.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return None, process.communicate()[0]


def read_weights(path):
    raw = pathlib.Path(path).read_bytes()
    n = int.from_bytes(raw[:8], "little")
    return {name: memoryview(raw[8 + n:])[t["data_offsets"][0]:t["data_offsets"][1]].cast("f")
            for name, t in json.loads(raw[8:8 + n]).items() if name != "__metadata__"}


def effect(one, other):
    """Returns the largest relative difference of a tensor's norm."""
    most = 0.0
    for name, x in one.items():
        y = other[name]
        if x == y:
            continue
        norm = sum(b * b for b in y) ** 0.5
        d = sum((a - b) * (a - b) for a, b in zip(x, y)) ** 0.5 / max(norm, 1e-30)
        most = max(most, d if d == d else float("inf"))
    return most


class Plan:
    """The sources of a plan, its commands, and its results without a fault."""

    def __init__(self, folder, model, plan, ranks, flags):
        self.name, self.folder = f"{model} {plan}", folder / f"{model}"
        self.folder.mkdir(exist_ok=True)
        if model in SAMPLE:
            s = SAMPLE[model]
            batch = s["batch"] // (flags[-1] if "--accumulate" in flags else 1)
            words = [SAMPLES / model / f"{model}.onnx", "--batch", batch, "--loss", s["loss"], "--optimizer", "adamw:eps=1e-5",
                     "--lr", 0.003]
            self.data = data_flags(model)
        else:
            words, self.data = plan_cases.compile_flags(model, folder), plan_cases.data_flags(model, folder)
        words = [NNAOT, *words, "-g", ranks, "--plan", counted_plan(plan, folder), *flags]
        for more in ["--check-with", 1, "-o", self.folder / "clean"], ["--emit", "c", "-o", self.folder / "src"]:
            status, said = sh([*words, *more], folder, 600)
            if status:
                sys.exit(f"{self.name}: {said[-2000:]}")
        self.text = one_file(self.folder / "src")
        found = re.findall(r"^//   (\S.*)$", self.text, re.M)
        self.compile, self.link, *self.append = found
        if os.environ.get("CC"):
            self.compile, self.link = (re.sub(r"^\S+", os.environ["CC"], c) for c in (self.compile, self.link))
        self.objects = False
        self.without = {} # by file of the runtime, None for program.c: the weights of a program without a fault, built alike

    def weights(self, folder, path=None):
        if path not in self.without:
            replaced = self.kernel(folder, path, path.read_text()) if path else None
            if not self.build(self.text, replaced) or self.run("faulty", save=True)[0]:
                sys.exit(f"{self.name}: cannot be built without a fault")
            self.without[path] = read_weights(self.folder / "faulty.safetensors")
        return self.without[path]

    def kernel(self, folder, path, text):
        """Compiles another text of a file of the runtime; None if that fails."""
        source = folder / path.name
        source.write_text(text)
        words = f"-D_GNU_SOURCE -w -I{path.parent} -c {source} -o {folder}/fault.o"
        failed = sh(["sh", "-c", self.compile.replace("-c program.c -o program.o", words)], self.folder, 300)[0]
        return None if failed else folder / "fault.o"

    def run(self, program, save=False):
        words = [self.folder / program, *self.data, "--steps", STEPS]
        if save:
            words += ["--save", self.folder / f"{program}.safetensors"]
        else:
            words += ["--check-against", self.folder / "clean.check"]
        return sh(words, self.folder)

    def build(self, text, replaced=None):
        """Makes `program` of the text of program.c and an object in place of one of the runtime; False if that fails."""
        src = self.folder / "src"
        commands = []
        if text != self.text or not self.objects:
            (src / "program.c").write_text(text)
            commands.append(self.compile)
        self.objects = text == self.text
        link = self.link if not replaced else self.link.replace("program.o", f"program.o {replaced}", 1)
        for command in [*commands, link, *self.append]:
            if sh(["sh", "-c", command], src, 300)[0]:
                self.objects = False
                return False
        os.replace(src / "program", self.folder / "faulty")
        return True


# ---- faults in program.c

def operands(call):
    """Returns the spans of buffers among the arguments of a call: names in upper case."""
    others = re.compile(r"P\d+|C\d+|LIST|RUN|NULL|INT64_C|INT64_MIN")
    return [m for m in re.finditer(r"\b[A-Z][A-Z0-9_]*\b", call) if not others.fullmatch(m[0])]


def change_code(p, rng):
    """Returns (what, changed text, index of the call or None, names of the fused functions or None), or None."""
    text = p.text
    defines = {m[1]: m for m in re.finditer(r"#define (\w+) \(\((\w+) \*\)\(r->slab \+ (\d+)\)\) // (\S+)", text)}
    calls = list(re.finditer(r"^  RUN\((\d+), (.*)\);( +// .*)?$", text, re.M))
    kind = rng.choice(["drop", "operand", "operand", "number", "box", "group", "place", "sign"])
    if kind == "sign":
        def is_fused(at):
            return ("fused" in text[text.rfind("\nstatic", 0, at):at][:80] or
                    "fused" in text[text.rfind("NNRT_CLONES", 0, at):at][:120])

        faults = [f for f in fault_places.faults_of(text, "sign") if is_fused(f.start)]
        if not faults:
            return None
        f = rng.choice(faults)
        functions = list(re.finditer(r"^(?:NNRT_CLONES static void|static int) (\w+)\((.*?)^}", text, re.M | re.S))
        inside = [m[1] for m in functions if m.start() <= f.start < m.end()]
        if not inside:
            return None
        # Several kernels may call one leaf.
        users = [m[1] for m in functions if re.search(rf"\b{inside[0]}\(", m[2])] or inside
        return f"{kind} {text[f.start - 20:f.end + 20]!r}", f.applied(text), None, "|".join(users)
    call = rng.choice(calls)
    i, body = int(call[1]), call[2]
    if "nnrt_wait" in body or "_wait_" in body:
        return None

    def changed(new, what):
        return f"{kind} {what}", text[:call.start(2)] + new + text[call.end(2):], i, None

    if kind == "drop":
        return changed("0", body[:60])
    if kind == "number":
        numbers = list(re.finditer(r"(?<![\w.])\d+\.\d+(e-?\d+)?", body))
        if not numbers:
            return None
        m = rng.choice(numbers)
        new = repr(float(m[0]) * 1.25 + (0.25 if float(m[0]) == 0 else 0))
        return changed(body[:m.start()] + new + body[m.end():], f"{m[0]} -> {new}")
    if kind == "box":
        boxes = list(re.finditer(r"r->coord\[\d+\]\[\d+\]", body))
        if not boxes:
            return None
        m = rng.choice(boxes)
        return changed(body[:m.start()] + "0" + body[m.end():], body[:60])
    if kind == "group":
        at = text.find("NnrtGroup groups")
        m, n = re.search(r"r, (\d+)(, \d+)?\)$", body), text.count("\n    {", at, text.find("};", at))
        if not m or n < 2 or "move" in body:
            return None
        other = (int(m[1]) + 1) % n
        return changed(body[:m.start(1)] + str(other) + body[m.end(1):], f"{m[1]} -> {other}")
    found = [m for m in operands(body) if m[0] in defines][1:]
    if not found:
        return None
    m = rng.choice(found)
    of = defines[m[0]]
    like = [d for d in defines.values() if d[2] == of[2] and d[4] == of[4] and d[3] != of[3]]
    if not like:
        return None
    other = rng.choice(like)
    if kind == "operand":
        return changed(body[:m.start()] + other[1] + body[m.end():], f"{m[0]} -> {other[1]}")
    return (f"{kind} of {m[0]}: {of[3]} -> {other[3]}", text[:of.start(3)] + other[3] + text[of.end(3):], None, None)


# ---- faults in the runtime

def change_runtime(p, rng, files):
    path = ROOT / rng.choice(files)
    text = path.read_text()
    faults = fault_places.faults_of(text, rng.choice(["sign", "bound", "index", "call"]))
    if not faults:
        return None
    f = rng.choice(faults)
    line = text.count("\n", 0, f.start) + 1
    return f"{path.relative_to(ROOT)}:{line}: {text[f.start:f.end][:40]!r} -> {f.new[:40]!r}", path, f.applied(text)


def is_in(path, p, operation):
    """Whether the kernel of an operation is in the file, by its name without the type, or in one that calls the file."""
    call = re.search(rf"^  RUN\({ops_of(p.text).index(operation)}, (\w+)\(", p.text, re.M)
    name = re.sub(r"_[a-z]*\d*$", "", call[1]) if call else "?"
    defined = re.findall(r"^(?!static)\w[\w *]*\b(nnrt_\w+)\(", path.read_text(), re.M)
    others = [f.read_text() for f in path.parent.glob("*.c")]
    return name in path.read_text() or any(name in text and f"{d}(" in text for text in others for d in defined)


# ---- one fault

def ops_of(text):
    table = text[text.find("train_ops[] = {"):]
    return re.findall(r'^    "((?:[^"\\]|\\.)*)",$', table[:table.find("\n};")], re.M)


def named(said):
    """Returns the operations that the error names: the first, and those with uncompared operands of it."""
    first = re.search(r"error: step \d+: (.*?): (its result|operand)", said)
    more = re.findall(r"partial sums that it adds up, of (.*?), are wrong|its operand is wrong, of (.*): it is no value", said)
    return [m for m in [first and first[1], *(one or two for one, two in more)] if m]


def plant(p, kind, rng, folder):
    """Returns the record of one fault, or None if it is none."""
    if kind == "code":
        made = change_code(p, rng)
        if not made:
            return None
        what, text, call, fused = made
        clean = p.weights(folder)
        if not p.build(text):
            return None
    else:
        files = [f"rt/cpu/{k}.c" for k in KERNELS] if kind == "kernel" else COLLECTIVES
        made = change_runtime(p, rng, files)
        if not made:
            return None
        what, path, changed = made
        clean = p.weights(folder, path)
        replaced = p.kernel(folder, path, changed)
        if not replaced or not p.build(p.text, replaced):
            return None
    status, said = p.run("faulty", save=True)
    if status != 0:
        return None
    size = effect(read_weights(p.folder / "faulty.safetensors"), clean)
    if size < EFFECT:
        return None
    status, said = p.run("faulty")
    record = dict(plan=p.name, kind=kind, what=what, effect=size, found=status == 1 and DIFFERS in said, named=False,
                  said=said[-1500:])
    found = named(said) if record["found"] else []
    ops = ops_of(p.text)
    for operation in found:
        title = operation.split("  ")[0]
        if kind == "kernel":
            record["named"] |= bool(is_in(path, p, operation)) or title.startswith(f"{path.stem}_")
        elif kind == "collective":
            # Wrong coordinates of a rank also give it the wrong part of a parameter.
            record["named"] |= title in COLLECTIVE_NAMES or bool(re.search(r": operand \d+, the (input|weight|state) '", said))
        elif fused:
            record["named"] |= bool(re.search(rf"^  RUN\({ops.index(operation)}, (?:{fused})\(", p.text, re.M))
        elif call is not None:
            record["named"] |= ops[call] == operation
        else:
            record["named"] = True # a buffer belongs to several operations
    record["op"] = found[0] if found else None
    return record


def table(records):
    print(f"{'plan':22}{'place':12}{'effect':>9}  {'found':10}{'operation named; change'}")
    for r in records:
        print(f"{r['plan']:22}{r['kind']:12}{r['effect']:9.1e}  "
              f"{'by name' if r['named'] else 'elsewhere' if r['found'] else 'NOT FOUND':10}{r['op'] or ''}; {r['what'][:90]}")
    n = collections.Counter("by name" if r["named"] else "elsewhere" if r["found"] else "not found" for r in records)
    print(f"{len(records)} faults: {n['by name']} found by name, {n['elsewhere']} elsewhere, {n['not found']} not found")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--plans", type=int, default=len(PLANS), help="only the first rows of PLANS")
    parser.add_argument("--floor", type=float, default=0.9)
    parser.add_argument("--keep")
    o = parser.parse_args()
    results = pathlib.Path(o.results) if o.results else None
    records = [json.loads(line) for line in results.read_text().splitlines()] if results and results.exists() else []
    refused = 0
    with tempfile.TemporaryDirectory(prefix="nnaot-faults-") as folder:
        folder = pathlib.Path(o.keep or folder).resolve()
        folder.mkdir(exist_ok=True)
        compile_in_a_hurry(folder)
        plans = {}
        for k in range(len(records), o.count):
            row = PLANS[k % o.plans]
            if row not in [plan.row for plan in plans.values()]:
                p = plans[k % o.plans] = Plan(folder, *row)
                p.row = row
                status, said = p.run("clean")
                if status or "equal to" not in said:
                    refused += 1
                    print(f"{p.name} is refused without a fault: {said[-1500:]}")
            rng = random.Random(f"{o.seed} {k}")
            record = None
            while record is None:
                record = plant(plans[k % o.plans], KINDS[k // o.plans % len(KINDS)], rng, folder)
            record["k"] = k
            records.append(record)
            if results:
                with results.open("a") as out:
                    out.write(json.dumps(record) + "\n")
            print(f"{k + 1}/{o.count}", flush=True, file=sys.stderr)
    table(records)
    share = sum(r["named"] for r in records) / max(len(records), 1)
    sys.exit(refused > 0 or share < o.floor or not all(r["found"] for r in records))


main()
