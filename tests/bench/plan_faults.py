#!/usr/bin/env python3
"""Attacks the verifier and the proof of plans with single faults in distributed programs:

    plan_faults.py --results FILE.jsonl [--seed N] [--rounds 1]

A fault is one change of the text of a program: a collective of another group, another operand, a constant, a flag, an
action of a schedule, a place in memory (plan_fault_kinds.py has the kinds).  Faults are drawn into the dumps after several
passes of many plans (CASES).  `nnaot-opt MUTANT --passes= --prove=MODEL` must refuse each: its reader and verifier, or its
proof.  If it accepts a mutant, numbers decide:

    equal       nnaot-eval computes the same results, twice: with the initial contents of states, and with others
    missed      a result differs by more than 1e-5 of its norm; or the kind shows in no number of one step, such as which
                weights are trained, so that every accepted fault is a miss
    unseen      the same results, of a kind that nnaot-eval does not follow: orders, schedules, memory.  With --execute the
                executables of planned programs for the CPU are run, and decide between equal and missed

    --execute              run executables of accepted faults of order, memory and schedule
    --cases, --phases, --kinds REGEX     only some of them
    --misses DIR           where to write missed programs, beside the models and the unchanged programs (default: FILE.misses)
    --work DIR             the dumps, which are made if missing (default: FILE.work)
    --again OUTCOME        repeat the faults with this outcome, such as missed: for another build
    --without-proof        the reader and the verifier alone
    --summary              only print the table of all results
    --check                a test of CI: few programs; and without the proof faults must be missed

A round draws one fault of each kind into each program.  The fault of a seed, round, program and kind is always the same, and
the results file has a line for each, so that a campaign resumes at its end.  The exit status is 1 if something is missed or
crashes, or an unchanged program is refused.
"""

import argparse
import array
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/plan")]

import common
import plan_cases
from plan_fault_kinds import KINDS
from plan_text import Program

BIN = pathlib.Path(os.environ.get("BUILD", ROOT / "build"), "bin")
ADAMW = "adamw:weight_decay=0.1,betas=0.9/0.95,eps=1e-5"
SCALARS = "--lr", 0.7, "--seed", 3, "--step", 2  # different ones, and none is 1
LIMIT = 60  # seconds of any command: an executable that waits for itself takes longer
OURS = re.compile(r"Sanitizer|runtime error|BUG|[Aa]ssert(ion)? .*failed")
TOLERANCE = {"f32": 1e-5, "bf16": 2e-2, "f16": 2e-2}
# The dumps that get faults; later passes change other properties.
PHASES = {"cpu": ["comm", "bucket_grads", "fuse", "plan_memory"], "cuda": ["multi_tensor", "plan_memory"]}
# Outcomes, and the columns of the table.
OUTCOMES = {"verifier": "reader, verifier", "proof": "proof", "equal": "equal", "unseen": "unseen", "missed": "missed",
            "crash": "crash"}


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    plan: str
    ranks: int
    flags: tuple = ()
    optimizer: str = ADAMW
    dtype: str = "f32"
    target: str = "cpu"

    @property
    def name(self):
        words = [self.model, self.plan, *map(str, self.flags), self.optimizer.split(":")[0],
                 *(x for x in (self.dtype, self.target) if x not in ("f32", "cpu"))]
        return re.sub(r"[^\w=.,-]", "_", "-".join(words))


def micro(n):
    return "--micro-batches", n


TWICE = "--accumulate", 2
CLIP = "--clip-norm", 0.5
SGD, MOMENTUM, ADAM, ADAGRAD, LAMB = "sgd", "sgd:momentum=0.9", "adam:eps=1e-5", "adagrad", "lamb:weight_decay=0.01"
CASES = [
    Case("wide", "dp", 4, CLIP),
    Case("gpt", "dp", 2, (*CLIP, *micro(2))),
    Case("vit", "zero1", 2, CLIP, MOMENTUM),
    Case("gpt", "zero2", 4, CLIP, SGD),
    Case("wide", "zero2", 2, (*CLIP, *micro(2)), ADAM),
    Case("gpt_tied", "zero3", 4, CLIP),
    Case("wide", "zero3", 2, micro(2), ADAGRAD),
    Case("gpt", "tp", 4, CLIP, LAMB),
    Case("bert", "tp", 2, (*CLIP, *micro(2)), SGD),
    Case("gpt", "sp", 4, CLIP),
    Case("bert", "vp", 4, CLIP, MOMENTUM),
    Case("gpt_tied", "vp", 2, (*CLIP, *micro(2)), SGD),
    Case("gpt_tied", "dp=2,sp=2", 4, CLIP),
    Case("gpt", "dp=2,tp=2", 4, (*CLIP, *TWICE), SGD),
    Case("bert", "dp=2,tp=2", 4, (*CLIP, *micro(2))),
    Case("moe", "ep", 4, CLIP),
    Case("moe", "dp=2,ep=2", 4, CLIP, SGD),
    Case("gpt", "tp2d", 4, CLIP, SGD),
    Case("wide", "tp3d", 8, CLIP, ADAM),
    Case("axial", "dap", 4, CLIP),
    Case("vit", "search", 4, CLIP),
    Case("gpt", "search", 4, (*CLIP, *micro(2)), SGD),
    Case("gpt", "recompute", 2, CLIP, SGD),
    Case("vit", "recompute_attention", 2, CLIP),
    Case("vit", "swap", 2, CLIP, SGD),
    Case("gpt", "offload", 2, (), MOMENTUM),
    Case("vit", "coshard", 2, CLIP, SGD),
    Case("bert", "pp", 4, (*CLIP, *micro(4))),
    Case("wide", "pp", 2, (*CLIP, *micro(2)), SGD),
    Case("wide", "pp=2,dp=2", 4, (*CLIP, *micro(2)), ADAM),
    Case("gpt", "pp_zb_h1", 2, (*CLIP, *micro(4)), SGD),
    Case("gpt", "pp_interleaved", 2, (*CLIP, *micro(4)), SGD),
    Case("gpt_tied", "pp", 2, (*CLIP, *micro(2))),
    Case("vit", "pp_dualpipe", 2, (*CLIP, *micro(2)), SGD),
    Case("gpt_tied", "pp_terapipe", 2, (*CLIP, *micro(2)), SGD),
    Case("recycle", "pp_3f1b", 2, (*CLIP, *micro(4)), SGD),
    Case("vit", "cross_barrier", 2, (), SGD),
    Case("wide", "optimizer_in_backward", 2, (), ADAM),
    Case("gpt", "dp=2,tp=2", 4, CLIP, dtype="bf16"),
    Case("wide", "zero2", 2, micro(2), SGD, dtype="bf16"),
    Case("gpt", "dp=2,tp=2", 4, (*CLIP, *micro(2)), target="cuda"),
    Case("gpt", "sp", 2, CLIP, SGD, target="cuda"),
    Case("bert", "zero3", 2, CLIP, target="cuda"),
    Case("vit", "pp", 2, (*CLIP, *micro(2)), MOMENTUM, target="cuda"),
    Case("moe", "ep", 2, (*CLIP, *micro(2)), target="cuda"),
    Case("gpt_tied", "zero1", 2, CLIP, ADAMW, dtype="bf16", target="cuda"),
    Case("wide", "dp", 2, micro(2), SGD, dtype="f16", target="cuda"),
    Case("gpt", "recompute", 2, CLIP, LAMB, target="cuda"),
    Case("gpt", "tp", 2, (*CLIP, *micro(2)), SGD, dtype="bf16", target="cuda"),
    Case("bert", "dp", 2, CLIP, dtype="bf16", target="cuda"),
    Case("gpt", "pp", 2, micro(2), SGD, dtype="f16", target="cuda"),
    Case("vit", "zero3", 2, CLIP, MOMENTUM, dtype="bf16"),
    Case("moe", "ep", 2, (), SGD, dtype="bf16"),
    Case("bert", "vp", 2, CLIP, SGD, dtype="f16"),
    Case("unet_resize", "dp=2,tp=2", 4, CLIP, SGD),
    Case("unet", "tp", 2, CLIP, SGD),
    Case("tagger", "dp", 4, (*CLIP, *micro(2)), SGD),
    Case("tagger", "zero3", 2, CLIP),
    Case("tagger", "pp", 2, (*CLIP, *micro(2)), SGD),
    Case("gnn", "dp=2,tp=2", 4, CLIP, SGD),
    Case("gnn", "dp", 2, (*CLIP, *micro(2)), ADAM),
    Case("mixtral", "ep", 4, CLIP, SGD),
    Case("routed", "ep", 4, CLIP, SGD),
    Case("routed", "dp=2,ep=2", 4, (*CLIP, *micro(2)), dtype="bf16"),
    Case("mixtral", "dp=2,tp=2", 4, (*CLIP, *micro(2))),
    Case("swin", "tp", 4, CLIP, SGD),
    Case("swin", "search", 4, CLIP),
    Case("warp", "dp", 2, CLIP, SGD),
    Case("gnn", "zero1", 2, CLIP, SGD, dtype="bf16"),
    Case("tagger", "dp", 2, CLIP, SGD, dtype="f16"),
]
# Of --check: model, plan, target, and passes.
CHECKED = [("wide", "pp=2,dp=2", "cpu", "plan_memory"), ("gpt", "dp=2,tp=2", "cpu", "bucket_grads|fuse"),
           ("moe", "ep", "cpu", "plan_memory"), ("wide", "dp", "cuda", "plan_memory")]


def run(command):
    """Returns the exit status and standard error; a status of its own if the command takes too long."""
    try:
        done = subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None, f"longer than {LIMIT} s", ""
    return done.returncode, done.stderr, done.stdout


# -- Programs ----------------------------------------------------------------------------------------------------------

class Dumps:
    """The programs of a case: the model before the first pass of the plan, and dumps by pass."""

    def __init__(self, case, work):
        self.case, self.folder = case, pathlib.Path(work, case.name)
        if not self.folder.exists():
            part, model = pathlib.Path(work, f"{case.name}.part"), plan_cases.MODELS[case.model]
            part.parent.mkdir(parents=True, exist_ok=True)
            status, said, _ = run([
                BIN / "nnaot", (plan_cases.HERE / f"{case.model}.onnx").relative_to(ROOT), "-g", case.ranks,
                "--batch", plan_cases.BATCH, "--loss", model["loss"], *model.get("flags", []), "--plan", case.plan, *case.flags,
                "--optimizer", case.optimizer, "--dtype", case.dtype, "--target", case.target, "--dump-dir", part,
                "--emit", "plan", "-o", "/dev/null"])
            if status:
                sys.exit(f"{case.name}: {said}")
            part.rename(self.folder)
        ordered = sorted(self.folder.glob("*-*.nn"))
        first = next(i for i, path in enumerate(ordered) if path.stem.endswith(("-recompute", "-shard")))
        passes = {path.stem.split("-", 1)[1]: path for path in ordered}
        self.model = ordered[first - 1]
        self.phases = {phase: passes[phase] for phase in PHASES[case.target] if phase in passes}


class Inputs:
    """Files of values for nnaot-eval: of the model's inputs, and of its optimizer's states."""

    def __init__(self, dumps, folder):
        self.inputs, self.states = [], []
        p, r = Program(dumps.model.read_text()), random.Random(dumps.case.name)
        kinds = {name: kind for name, kind in plan_cases.MODELS[dumps.case.model]["inputs"].items()}
        for i, param in enumerate(p.entries()[0].params):
            # A weight's or state's shape for users may be another.
            stored = re.match(r" as \w+\[([\d,]+)\]", param.rest)
            dims = [int(x) for x in stored[1].split(",")] if stored else param.type.dims
            label, n = (param.label or "").strip('"'), plan_cases.count(dims)
            path = pathlib.Path(folder, f"{i}.npy")
            if param.role == "input":
                kind, _, *limit = kinds[label]
                if param.type.dtype == "i64":
                    numbers = [-100 if kind == "masked" and r.random() < 0.3 else r.randrange(limit[0]) for _ in range(n)]
                    common.write_npy(path, numbers, tuple(dims), "<i8")
                else:
                    common.write_npy(path, [r.uniform(-1, 1) for _ in range(n)], tuple(dims))
                self.inputs += ["--input", f"{label}={path}"]
            elif param.role == "state" and param.type.dtype == "f32" and dims and param.rest.endswith("= 0"):
                common.write_npy(path, [r.uniform(0.1, 1) for _ in range(n)], tuple(dims))
                self.states += ["--input", f"{label}={path}"]


def read_npy(path):
    data = path.read_bytes()
    size = struct.unpack("<H", data[8:10])[0]
    letter = re.search(rb"'descr': '.(\w\d)'", data[:10 + size])[1].decode()
    if letter not in ("f4", "f8", "i8", "i4"):
        return list(data[10 + size:])
    numbers = array.array({"f4": "f", "f8": "d", "i8": "q", "i4": "i"}[letter])
    numbers.frombytes(data[10 + size:])
    return list(numbers)


def results(path, inputs, folder, graph):
    """Returns the results of a step by name; the message if there are none.  Of results of bf16, which .npy files cannot
    hold, these are the norm and the first elements."""
    types, labels = graph.types(), {param.name: (param.label or "").strip('"') for param in graph.params}
    copies = {param.name for param in graph.params if param.role == "copy"}
    files, short = {}, []
    for i, row in enumerate(graph.results):
        name = row.of.strip('"') if row.kind == "output" else f"update {'copy ' * (row.of in copies)}{labels.get(row.of, '')}"
        if row.value in types and types[row.value].dtype == "bf16":
            short.append(name)
        else:
            files[name] = pathlib.Path(folder, f"out{i}.npy")
            files[name].unlink(missing_ok=True)
    words = [word for name, file in files.items() for word in ("--output", f"{name}={file}")]
    status, said, printed = run([BIN / "nnaot-eval", path, "--graph", graph.name[1:], *SCALARS, *inputs, *words])
    if status:
        return said or f"exit status {status}"
    lines = dict(re.findall(r"^(.*?)  bf16\[[\d,]*\]  \|x\| (.*)$", printed, re.M))
    return {name: read_npy(file) for name, file in files.items()} | {
        name: [float(x) for x in lines[name].replace("…", "").split()] for name in short if name in lines}


def difference(got, want, tolerance):
    """Returns a description of the first difference of two results, or None."""
    if isinstance(got, str):
        return got.strip().splitlines()[0][:300] if got.strip() else "no results"
    if got.keys() != want.keys():
        return f"other results: {sorted(got.keys() ^ want.keys())}"
    for name, x in want.items():
        y = got[name]
        if len(x) != len(y):
            return f"'{name}' has {len(y)} elements, not {len(x)}"
        apart = sum((a - b) ** 2 for a, b in zip(x, y)) ** 0.5
        size = sum(a * a for a in x) ** 0.5
        if not apart <= tolerance * size and not (size != size and x == y):
            return f"'{name}' differs by {apart:.3g} of {size:.3g}"
    return None


# -- One fault ---------------------------------------------------------------------------------------------------------

class Subject:
    """One dump: its text, and its numbers."""

    def __init__(self, dumps, phase, folder):
        self.dumps, self.phase, self.folder = dumps, phase, pathlib.Path(folder)
        self.text, self.inputs, self.want, self.log = dumps.phases[phase].read_text(), None, {}, None

    def refusal(self, path, proof=True):
        """Returns who refuses a text, `verifier` or `proof`, and the message; None if nobody does."""
        prove = [f"--prove={self.dumps.model}"] if proof else []
        status, said, _ = run([BIN / "nnaot-opt", path, "--passes=", *prove, "-o", "/dev/null"])
        if status not in (0, 1) or OURS.search(said) or (status == 1 and "error:" not in said):
            return "crash", f"exit status {status}: {said}"
        if status == 0:
            return None, ""
        return "proof" if "' does not compute '" in said else "verifier", next(s for s in said.splitlines() if "error:" in s)

    def differs(self, mutant, path, graph):
        """Returns how the numbers of a step differ from those of the unchanged program."""
        if not self.inputs:
            self.inputs = Inputs(self.dumps, self.folder)
        for values in (self.inputs.inputs, [*self.inputs.inputs, *self.inputs.states]):
            key = graph, len(values)
            words = [w for w in values]
            if key not in self.want:
                original = Program(self.text)
                self.want[key] = results(self.dumps.phases[self.phase], self.mine(original.graph(graph), words), self.folder,
                                         original.graph(graph))
                if isinstance(self.want[key], str):
                    sys.exit(f"{self.dumps.case.name} after {self.phase}: {self.want[key]}")
            try:
                target = mutant.graph(graph)
            except StopIteration:
                return "the graph is lost"
            found = difference(results(path, self.mine(target, words), self.folder, target), self.want[key],
                               TOLERANCE[self.dumps.case.dtype])
            if found:
                return found
        return None

    def mine(self, graph, words):
        """Returns the files of those parameters that a graph has."""
        labels = {(param.label or "").strip('"') for param in graph.params}
        return [word for i in range(0, len(words), 2) if words[i + 1].split("=")[0] in labels for word in words[i:i + 2]]

    def runs_otherwise(self, path):
        """Returns how the executable of a planned program for the CPU trains otherwise, or None."""
        def losses(text):
            exe, log = self.folder / "exe", self.folder / "log.jsonl"
            log.unlink(missing_ok=True)
            status, said, _ = run([BIN / "nnaot", text, "--passes=", "-o", exe])
            if not status:
                status, said, _ = run([exe, *plan_cases.data_flags(self.dumps.case.model, self.folder), "--steps", 3, "--log", log])
            if status or status is None:
                return f"{said}"
            return [(row["loss"], row.get("grad_norm")) for row in common.read_log(log)]
        if self.log is None:
            self.log = losses(self.dumps.phases[self.phase])
        found = losses(path)
        return None if found == self.log else f"{found} for {self.log}"[:500]


def draw(subject, kind, seed, number):
    """Returns a program with a fault, the entry graph with it and its description; None if there is no place for one."""
    case = subject.dumps.case
    r = random.Random(f"{seed}/{number}/{case.name}/{subject.phase}/{kind.name}")
    p = Program(subject.text)
    entries = p.entries()
    g = entries[0] if len(entries) == 1 or r.random() < 0.9 else r.choice(entries[1:])
    for _ in range(2):
        candidates = kind.candidates(p, g, r)
        if not candidates:
            g = entries[0]
            continue
        for _ in range(12):
            try:
                said = r.choice(candidates)()
            except (ValueError, IndexError, ZeroDivisionError):  # nothing to change there
                said = None
            if said:
                return p, g.name, f"{g.name} {said}"
    return None


def attempt(subject, kind, seed, number, options):
    """Returns a row of the results."""
    row = dict(case=subject.dumps.case.name, phase=subject.phase, kind=kind.name, seed=seed, round=number,
               proof=not options.without_proof)
    drawn = draw(subject, kind, seed, number)
    if not drawn:
        return {**row, "outcome": "none"}
    mutant, graph, row["fault"] = drawn
    path = subject.folder / "mutant.nn"
    path.write_text(str(mutant))
    row["outcome"], row["message"] = subject.refusal(path, not options.without_proof)
    if row["outcome"] is None:
        row["message"] = subject.differs(mutant, path, graph)
        row["outcome"] = "missed" if row["message"] or kind.judge == "always" else "equal"
        if row["outcome"] == "equal" and kind.judge == "run":
            row["outcome"] = "unseen"
            if options.execute and subject.phase == "plan_memory" and subject.dumps.case.target == "cpu":
                row["message"] = subject.runs_otherwise(path)
                row["outcome"] = "missed" if row["message"] else "equal"
    if row["outcome"] in ("missed", "crash", "unseen"):
        row["text"] = keep(subject, path, row, options.misses)
    return row


def keep(subject, path, row, folder):
    """Stores a missed program beside the unchanged one and the model; returns its path."""
    name = re.sub(r"\W+", "_", f"{row['kind']}-{row['seed']}-{row['round']}")
    folder = pathlib.Path(folder, row["outcome"], row["case"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.nn").write_text(subject.dumps.model.read_text())
    (folder / f"{row['phase']}.nn").write_text(str(Program(subject.text)))
    at = folder / f"{row['phase']}-{name}.nn"
    at.write_text(path.read_text())
    return str(at)


# -- The campaign ------------------------------------------------------------------------------------------------------

def summary(rows):
    """Prints the table by kind, and the faults that nothing notices; returns whether there are none."""
    counts = collections.defaultdict(collections.Counter)
    for row in rows:
        if row["outcome"] in OUTCOMES:
            counts[row["kind"]][row["outcome"]] += 1
            counts["ALL"][row["outcome"]] += 1
    print("| kind | tried | " + " | ".join(OUTCOMES.values()) + " | noticed |\n|" + "---|" * (len(OUTCOMES) + 3))
    for name in [*(kind.name for kind in KINDS if kind.name in counts), "ALL"]:
        c = counts[name]
        noticed, wrong = c["verifier"] + c["proof"], c["missed"] + c["crash"]
        rate = f"{100 * noticed / (noticed + wrong):.4g} %" if noticed + wrong else ""
        print(f"| {name} | {c.total()} | " + " | ".join(str(c[outcome]) for outcome in OUTCOMES) + f" | {rate} |")
    bad = [row for row in rows if row["outcome"] in ("missed", "crash", "refused")]
    for row in bad:
        print(f"{row['outcome']}: {row['case']} after {row['phase']}: {row['kind']}: {row.get('fault')}: {row.get('message')}\n"
              f"  {row.get('text', '')}")
    return not bad


class Campaign:
    def __init__(self, options):
        self.options, self.rows = options, {}
        if options.results and options.results.exists():
            for line in options.results.read_text().splitlines():
                row = json.loads(line)
                self.rows[self.key(row)] = row

    @staticmethod
    def key(row):
        return row["case"], row["phase"], row["kind"], row["seed"], row["round"], row["proof"]

    def add(self, row):
        self.rows[self.key(row)] = row
        if self.options.results:
            with self.options.results.open("a") as out:
                print(json.dumps(row), file=out)

    def known(self, key):
        row = self.rows.get(key)
        return row and row["outcome"] != self.options.again

    def trial(self, case, number, kinds, folder, wanted=lambda phase, kind: True):
        """One round of one case."""
        o, dumps = self.options, None
        for phase in PHASES[case.target]:
            if not re.search(o.phases, phase):
                continue
            left = [kind for kind in kinds if wanted(phase, kind) and
                    not self.known((case.name, phase, kind.name, o.seed, number, not o.without_proof))]
            if not left:
                continue
            dumps = dumps or Dumps(case, o.work)
            if phase not in dumps.phases:
                continue
            subject = Subject(dumps, phase, folder)
            whole = pathlib.Path(folder, "whole.nn")
            whole.write_text(str(Program(subject.text)))
            who, said = subject.refusal(whole, not o.without_proof)
            row = dict(case=case.name, phase=phase, kind="unchanged", seed=o.seed, round=0, proof=not o.without_proof)
            self.add({**row, "outcome": "refused", "message": said} if who else {**row, "outcome": "right"})
            if who:
                continue
            for kind in left:
                self.add(attempt(subject, kind, o.seed, number, o))

    def main(self):
        o = self.options
        kinds = [kind for kind in KINDS if re.search(o.kinds, kind.name)]
        with tempfile.TemporaryDirectory(prefix="nnaot-faults-") as folder:
            common.compile_in_a_hurry(folder)
            for number in range(0 if o.summary else o.rounds):
                for case in CASES:
                    if re.search(o.cases, case.name):
                        self.trial(case, number, kinds, folder)
                print(f"round {number + 1}: {len(self.rows)} results", flush=True)
        return summary(list(self.rows.values()))


def check(options):
    """A slice of the campaign.  Without the proof it must miss faults, or it could not fail."""
    def campaign(cases, kinds):
        found = Campaign(options)
        for model, plan, target, phases in cases:
            case = next(case for case in CASES if (case.model, case.plan, case.target) == (model, plan, target))
            options.phases = f"^({phases})$"
            found.trial(case, 0, kinds, folder)
        return [row for row in found.rows.values() if row["outcome"] not in ("none", "right")]
    with tempfile.TemporaryDirectory(prefix="nnaot-faults-") as folder:
        options.work, options.misses, options.results = pathlib.Path(folder), pathlib.Path(folder), None
        rows = campaign(CHECKED, KINDS)
        ok, noticed = summary(rows), sum(row["outcome"] in ("verifier", "proof") for row in rows)
        options.without_proof = True
        blind = campaign([("wide", "zero2", "cpu", "plan_memory")], [kind for kind in KINDS if kind.judge == "eval"])
        missed = sum(row["outcome"] == "missed" for row in blind)
    print(f"{noticed} of {len(rows)} faults are noticed; without the proof {missed} of {len(blind)} are missed")
    if noticed < 150 or missed < 10:
        print("FAILED: 150 and 10 are expected at least")
        ok = False
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cases", default="")
    parser.add_argument("--phases", default="")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--misses", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--again")
    for name in ("execute", "without-proof", "summary", "check"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    if options.check:
        return not check(options)
    if not options.results:
        parser.error("--results or --check is required")
    options.misses = options.misses or options.results.with_suffix(".misses")
    options.work = options.work or options.results.with_suffix(".work")
    return not Campaign(options).main()


if __name__ == "__main__":
    sys.exit(main())
