"""Every plan trains as on one rank.

    plans.py                       a slice: every plan on one model and one number of ranks, every third also under mpirun
    plans.py --all                 all models and numbers of ranks
    plans.py --plan P --model M --ranks N      only the cases with these
    plans.py --samples ...         the same for samples/, with their data, and all programs of passes/planner/plans
    plans.py --model gnn --limit 0.1 -- --dtype bf16         in 16 bits, compared with one rank in 16 bits
    NVCC=build/emulator/nvcc plans.py -- --target cuda:sm_90      arguments after -- go to nnaot

Rows are PLANS of plan_cases and sample_cases.  Each is compiled once, and trained for 20 steps as threads and, on
up to 4 ranks, under mpirun.  Losses, gradient norms before clipping, and the saved weights are those of one rank, which are
PyTorch's without dropout; the traffic of a step is as predicted by nnaot and typical of the plan.  If a plan splits nothing
over an axis, nnaot reports it, and so does the table.  Printed are largest
relative differences, of weights the largest of the norms of one tensor; none may reach the limit, 1e-4.  Then checkpoints
of one plan are resumed under another.
"""

import argparse
import array
import functools
import json
import math
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys

import plan_cases
import sample_cases
from common import NNAOT, compile_in_a_hurry, mpirun, read_log, scratch, worst_difference

LIMIT, STEPS = 1e-4, 20


class Failed(Exception):
    """A program failed; the message describes the failure."""


def call(*command):
    """Runs a program to its end, and returns its output.  A program that hangs is killed with all its child processes:
    mpirun leaves its processes."""
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        said = process.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed(f"hangs: {' '.join(map(str, command))}")
    if process.returncode:
        raise Failed(next((line for line in said.splitlines() if "error:" in line), said[-300:]))
    return said


def read_weights(path):
    """Returns the tensors of a .safetensors of f32, by name."""
    raw = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    return {k: (t["shape"], array.array("f", raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]))
            for k, t in header.items()}


def norm(values):
    return sum(x * x for x in values)**0.5


def weights_difference(got, want):
    if {k: shape for k, (shape, _) in got.items()} != {k: shape for k, (shape, _) in want.items()}:
        return float("inf")
    pairs = [(norm(x - y for x, y in zip(got[k][1], want[k][1])), norm(want[k][1])) for k in want]
    return worst_difference([a + d for d, a in pairs], [a for _, a in pairs])


def predicted_traffic(manifest):
    """Returns calls and bytes of a step by kind and phase, summed over ranks, as --traffic counts them.

    The groups of a move are pairs of sender and receiver, and its bytes are those of all messages.
    """
    out = {}
    for c in manifest:
        move, at = c["kind"] == "move", (c["kind"], c["phase"])
        many = len(c["groups"]) if move else sum(map(len, c["groups"]))
        calls, size = out.get(at, (0, 0))
        out[at] = calls + c["count"] * many, size + c["bytes"] * c["count"] * (1 if move else many)
    return out


def counted_traffic(traffic):
    return {(s["kind"], s["phase"]): (s["calls"], s["bytes"]) for s in traffic["sends"]}


class Trainer:
    def __init__(self, cases, folder, flags, limit=LIMIT):
        self.cases, self.folder, self.flags, self.limit = cases, pathlib.Path(folder), flags, limit

    def at(self, name):
        return self.folder / name

    @functools.lru_cache(None)
    def data(self, model):
        return self.cases.data_flags(model, self.folder)

    def compile(self, exe, model, plan, ranks, extra=()):
        """Compiles; returns the axes over which nothing is split, with their numbers of ranks."""
        said = call(NNAOT, *self.cases.compile_flags(model, self.folder), "--plan", plan, "-g", ranks, *extra, *self.flags,
                    "-o", self.at(exe), "--summary", self.at(f"{exe}.summary"), "--comm-manifest",
                    self.at(f"{exe}.manifest.json"))
        return {a: int(n) for a, n in re.findall(r"nothing is split over '(.*)': its (\d+) ranks all do the same", said)}

    def train(self, exe, model, launcher=(), steps=STEPS, extra=()):
        """Trains; returns log and weights."""
        self.at("log.jsonl").unlink(missing_ok=True)
        call(*launcher, self.at(exe), *self.data(model), "--steps", steps, "--log", self.at("log.jsonl"), "--save",
             self.at("weights"), "--traffic", self.at(f"{exe}.traffic"), *extra)
        return read_log(self.at("log.jsonl")), read_weights(self.at("weights"))

    @functools.lru_cache(None)
    def one_rank(self, model):
        self.compile("one", model, "dp", 1)
        return self.train("one", model)

    def differences(self, model, got):
        """Returns the differences of train's result from one rank: of losses, norms and weights."""
        (log, weights), (one, want) = got, self.one_rank(model)
        one = one[log[0]["step"]:]
        return [worst_difference([line[k] for line in log], [line[k] for line in one]) for k in ("loss", "grad_norm")
                ] + [weights_difference(weights, want)]

    def sends(self, exe, kinds):
        """Returns an error about the traffic of a program's last run, or "".  `kinds`: expected collectives; None: no traffic."""
        summary, manifest, traffic = (json.loads(self.at(f"{exe}.{n}").read_text())
                                      for n in ("summary", "manifest.json", "traffic"))
        if kinds is None and any(traffic["comm_bytes"].values()):
            return "SENDS SOMETHING"
        missing = [k for k in kinds or [] if not traffic["comm_bytes"][k]]
        if missing:
            return f"NONE OF {', '.join(missing)}"
        same = (traffic["steps"] == STEPS and traffic["ranks"] == summary["ranks"] and
                {k: n for k, n in traffic["comm_bytes"].items() if n} ==
                {k: n for k, n in summary["comm_bytes"].items() if n} and
                counted_traffic(traffic) == predicted_traffic(manifest))
        return "" if same else "NOT AS PREDICTED"


def show(*cells):
    print("{:28} {:9} {:>8} {:8} {}".format(*cells), flush=True)


def chosen_rows(rows, every, plan, model, ranks):
    for i, (p, models, numbers, extra, kinds) in enumerate(rows):
        chosen = [(m, n) for m in dict.fromkeys(models) for n in numbers]
        if not every:
            chosen = [(models[0], numbers[i % len(numbers)])]
        for m, n in chosen:
            if plan in (None, p) and model in (None, m) and ranks in (None, n):
                yield p, m, n, extra, kinds, n <= 4 and (every or i % 3 == 0)


def reference(trainer, model):
    """Whether one rank has PyTorch's losses, and others than the same model without dropout."""
    log, _ = trainer.one_rank(model)
    plain = trainer.cases.WITHOUT_DROPOUT.get(model)
    if plain and log[0]["loss"] == trainer.one_rank(plain)[0][0]["loss"]:
        show("no plan", model, 1, "threads", f"FAILED: the losses are those of {plain}")
        return False
    want = trainer.cases.pytorch(model)
    if not want:
        return True
    d = [worst_difference([line[k] for line in log], want[k]) for k in ("loss", "grad_norm")]
    show("PyTorch", model, 1, "threads", " ".join(f"{x:9.1e}" for x in d))
    return max(d) < trainer.limit


def one_case(trainer, plan, model, ranks, extra, kinds, processes):
    name = " ".join([pathlib.Path(plan).stem, *map(str, extra)])
    try:
        idle = trainer.compile("plan", model, plan, ranks, extra)
    except Failed as e:
        show(name, model, ranks, "", f"FAILED to compile: {e}")
        return False
    good = (math.prod(idle.values()) == ranks) == (kinds is None)
    note = f"; splits nothing over {', '.join(idle)}" if idle else ""
    if not good:
        show(name, model, ranks, "", f"FAILED: it should split {'something' if idle else 'nothing'}{note}")
    for launcher in [(), mpirun(ranks)] if processes else [()]:
        try:
            d = trainer.differences(model, trainer.train("plan", model, launcher))
            wrong = trainer.sends("plan", kinds)
            ok = max(d) < trainer.limit and not wrong
            said = " ".join(f"{x:9.1e}" for x in d) + f"  {wrong or 'as predicted'}{note}{'' if ok else '  FAILED'}"
        except Failed as e:
            ok, said = False, f"FAILED: {e}"
        show(name, model, ranks, launcher[0] if launcher else "threads", said)
        good &= ok
    return good


def resume(trainer, model, before, after):
    folder = trainer.at("checkpoints")
    extra = ["--checkpoint-dir", folder]
    try:
        for plan, ranks in before, after:
            trainer.compile(f"at{ranks}", model, plan, ranks)
        trainer.train(f"at{before[1]}", model, steps=STEPS // 2, extra=extra)
        got = trainer.train(f"at{after[1]}", model, extra=[*extra, "--resume"])
        assert got[0][0]["step"] == STEPS // 2
        d = trainer.differences(model, got)
        ok, said = max(d) < trainer.limit, " ".join(f"{x:9.1e}" for x in d)
    except Failed as e:
        ok, said = False, f"FAILED: {e}"
    for file in folder.iterdir():
        file.unlink()
    show(f"{before[0]}, gone on from as {after[0]}", model, f"{before[1]}, {after[1]}", "threads", said)
    return ok


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--all", action="store_true")
    p.add_argument("--samples", action="store_true")
    p.add_argument("--plan")
    p.add_argument("--model")
    p.add_argument("--ranks", type=int)
    p.add_argument("--limit", type=float, default=LIMIT)
    p.add_argument("flags", nargs="*")
    a = p.parse_args()
    some = a.plan or a.model or a.ranks
    cases = sample_cases if a.samples else plan_cases
    if a.samples and sample_cases.without_row():
        sys.exit(f"no row for {', '.join(sample_cases.without_row())}")
    rows = list(chosen_rows(cases.PLANS, a.all or some, a.plan, a.model, a.ranks))
    if not rows:
        sys.exit("no row is of that plan, model and number of ranks")
    failed, n, seen = 0, 0, set()
    show("plan", "model", "ranks", "launcher", f"{'loss':>9} {'grad_norm':>9} {'weights':>9}  sends")
    with scratch() as folder:
        compile_in_a_hurry(folder)
        trainer = Trainer(cases, folder, a.flags, a.limit)
        for plan, model, *how in rows:
            if model not in seen:
                failed += not reference(trainer, model)
            seen.add(model)
            failed += not one_case(trainer, plan, model, *how)
            n += 1
        for row in cases.RESUMES if a.all else cases.RESUMES[:1] if not some else []:
            failed += not resume(trainer, *row)
    print(f"{n} plans, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
