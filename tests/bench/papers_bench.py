"""The parts of papers.py's experiments: plans, rows and tables, and their prices.

A price is one run of `nnaot --emit plan` for a model without weights, limited by its CPU seconds: other processes of the machine
do not count. The file of --results has each price under its model, cluster and plan; a file is for one build of nnaot.
"""

import hashlib
import json
import math
import os
import pathlib
import re
import resource
import shlex
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Callable

import paper_models

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD", HERE.parents[1] / "build"))
MORE_MEMORY = 10  # times
PARTS = "compute", "comm", "idle"  # of a rank's step


@dataclass
class Plan:
    """Of several numbers of micro-batches the fastest that fits is taken: "we tune hyper-parameters for each system" (SuperScaler,
    section 6.1), micro-batch sizes among them. The first is that with the fewest rows."""
    plan: str
    micro_batches: tuple | int = 1

    def cuts(self):
        return self.micro_batches if isinstance(self.micro_batches, tuple) else (self.micro_batches,)


@dataclass
class Setting:
    """All but the plan of a price."""
    model: str
    size: tuple
    rows: int  # of a step
    ranks: int
    cluster: str  # clusters/NAME.lua; NAME/N: N devices of each node
    dtype: str = "f16"
    more: dict = field(default_factory=dict)  # of the model
    optimizer: str = "adamw"
    target: str = "cuda:sm_80"
    flags: tuple = ()

    def key(self):
        key = f"{self.model} {self.size} {self.more} {self.rows} {self.dtype} -g {self.ranks} {self.cluster}"
        own = [self.optimizer] * (self.optimizer != "adamw") + [self.target] * (self.target != "cuda:sm_80") + [*self.flags]
        return " ".join([key, *own])


@dataclass
class Row:
    """A baseline and the paper's plan for the same step."""
    name: str
    said: float  # the published speedup
    source: str
    model: str
    size: tuple
    rows: int  # of a step
    ranks: int
    cluster: str
    theirs: Plan
    ours: Plan
    dtype: str = "f16"
    more: dict = field(default_factory=dict)  # of the model
    judged: bool = True
    optimizer: str = "adamw"

    def setting(self):
        return Setting(self.model, self.size, self.rows, self.ranks, self.cluster, self.dtype, self.more, self.optimizer)


@dataclass
class Table:
    """An experiment that is no speedup of one plan over another."""
    name: str
    source: str
    said: str  # published, in words
    lines: Callable  # of a Bench: yields lines of text


@dataclass
class Paper:
    title: str
    rows: list
    tables: list


def plan_text(plan, folder):
    """{N} stands for a co-shard of N pieces in the first layers; programs are those of this folder."""
    for pieces in re.findall(r"\{(\d+)\}", plan):
        file = folder / f"coshard_{pieces}.lua"
        file.write_text((HERE / "coshard_first.lua").read_text().replace("PIECES\n", f"{pieces}\n"))
        plan = plan.replace(f"{{{pieces}}}", f"{file}=1")
    return re.sub(r"(?<![\w/])\w+\.lua", lambda m: str(HERE / m[0]), plan)


class Bench:
    def __init__(self, o, folder):
        self.o, self.folder = o, pathlib.Path(folder)
        self.known, self.used = {}, []
        if o.results and o.results.exists():
            for line in o.results.read_text().splitlines():
                r = json.loads(line)
                self.known[r["key"]] = r

    def command(self, setting, plan, micro_batches, cluster):
        file = self.folder / f"{setting.model}-{hash_of(str((setting.size, setting.rows, setting.more)))}.nn"
        text, loss = paper_models.MODELS[setting.model](*setting.size, setting.rows, **setting.more)
        file.write_text(text)
        return [BUILD / "bin" / "nnaot", file, "-g", setting.ranks, "--cluster", cluster, "--plan", plan_text(plan, self.folder),
                "--micro-batches", micro_batches, "--loss", loss, "--optimizer", setting.optimizer, "--dtype", setting.dtype,
                "--target", setting.target, "--emit", "plan", "-o", "/dev/null", *setting.flags]

    def cluster(self, name, memory):
        """Writes the cluster with so many times the memory; returns the file."""
        base, _, per_node = name.partition("/")
        text = (HERE / "clusters" / f"{base}.lua").read_text()
        text = re.sub(r"\bmemory = ([\d.e]+)", lambda m: f"memory = {memory * float(m[1])}", text)
        text = re.sub(r"\bper_node = \d+", f"per_node = {per_node}", text) if per_node else text
        file = self.folder / f"{base}{per_node}-x{memory}.lua"
        file.write_text(text)
        return file

    def run(self, command, limit):
        if self.o.verbose:
            print(f"+ {shlex.join(map(str, command))}", flush=True)
        return limited(command, limit)

    def answer(self, key, limit, ask):
        """Returns the known answer; asks if there is none, or if a smaller limit ended it."""
        result = self.known.get(key)
        if not result or result.get("limit", limit) < limit:
            self.known[key] = result = {"key": key, **ask()}
            if self.o.results:
                with self.o.results.open("a") as f:
                    f.write(json.dumps(result) + "\n")
        self.used.append(result)
        return result

    def price(self, setting, plan, micro_batches=1, memory=1, limit=None):
        """Returns {"seconds", "peak", "took", …} or {"why", "took"}, with "limit" if it is reached."""
        text = (HERE / "clusters" / f"{setting.cluster.partition('/')[0]}.lua").read_text()
        limit = limit or self.o.limit

        def ask():
            summary = self.folder / "summary.json"
            command = self.command(setting, plan, micro_batches, self.cluster(setting.cluster, memory))
            run, result = self.run([*command, "--summary", summary], limit)
            return result | {"cut": micro_batches} | (predicted(json.loads(summary.read_text())) if run.returncode == 0 else {})

        return self.answer(f"{setting.key()} {hash_of(text)} {plan} @{micro_batches} x{memory}", limit, ask)

    def priced(self, setting, plan):
        """The plan on the paper's devices; if it does not fit, on ones with more memory."""
        tried = []
        for micro_batches in plan.cuts():
            tried.append(self.price(setting, plan.plan, micro_batches))
            if "seconds" not in tried[-1]:
                break
        best = min((r for r in tried if "seconds" in r), key=lambda r: r["seconds"], default=tried[0])
        if "seconds" in best or "fit" not in best["why"]:
            return best, best
        return best, self.price(setting, plan.plan, plan.cuts()[0], MORE_MEMORY)

    def cell(self, setting, plan, micro_batches=1):
        """Returns whether the plan fits, and its seconds and memory, in brackets if it does not."""
        here, priced = self.priced(setting, Plan(plan, micro_batches))
        fits = here is priced and "seconds" in here
        return fits, brief(priced) if here is priced else f"[{brief(priced)}]"

    def auto(self, row, limit):
        """Returns a line: the fastest that is found with as many micro-batches as the paper's plan, or the baseline, has."""
        cuts = sorted({row.ours.cuts()[0], row.theirs.cuts()[0]})
        found = [self.price(row.setting(), "auto", cut, limit=limit) for cut in cuts]
        best = min(found, key=lambda r: r.get("seconds", math.inf))
        return show("auto", best, best)

    def output(self, key, command):
        """Returns {"lines", "took"} of a command that writes a table or an answer, or {"why", "lines", "took"}."""
        def ask():
            run, result = self.run(command, self.o.limit)
            return result | {"lines": run.stdout.splitlines()}

        return self.answer(key, self.o.limit, ask)

    def refused(self):
        """Returns the answers of this run that are errors other than a lack of memory or of time."""
        return [r for r in self.used if "why" in r and "limit" not in r and "fit" not in r["why"]]

    def script(self, name, *arguments):
        """Yields the lines of another benchmark of this folder."""
        found = self.output(" ".join([name, *arguments]), [sys.executable, HERE / name, *arguments])
        yield from found["lines"]
        yield f"({found.get('why') or str(found['took']) + ' s'})"


def limited(command, seconds):
    """Runs a command, each of its processes for at most so many CPU seconds, after which SIGXCPU ends it; returns the run and
    {"took"}, with "why" if it fails, and "limit" if that is the limit."""
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY)))
    result = {"took": round(spent() - before, 2)}
    if run.returncode == -signal.SIGXCPU:
        result |= {"why": f"not ended in {seconds} s", "limit": seconds}
    elif run.returncode:
        errors = [line for line in run.stderr.splitlines() if "error:" in line]
        result["why"] = errors[0].split("error: ", 1)[1] if errors else run.stderr[-200:]
    return run, result


def predicted(summary):
    ranks = summary["per_rank"]
    result = {"seconds": summary["predicted_step_ms"] / 1e3, "peak": max(r["peak_bytes"] or 0 for r in ranks),
              "plan": next((c["plan"] for c in summary.get("candidates", []) if c["chosen"]), None),
              "parts": [statistics.mean(r[f"{part}_ms"] for r in ranks) / 1e3 for part in PARTS]}
    fold = summary.get("fold")
    return result | ({"ops": fold["ops_before"], "blocks": fold["unique_blocks"]} if fold else {})


def hash_of(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def parameters(setting):
    text, _ = paper_models.MODELS[setting.model](*setting.size, setting.rows, **setting.more)
    return sum(math.prod(map(int, dims.split(","))) for dims in re.findall(r"f32\[([\d,]+)\] weight", text))


def brief(priced):
    """Seconds and memory, or the reason why there are none."""
    if "seconds" not in priced:
        return f"- ({priced['why'][:110]})"
    return f"{priced['seconds']:.4g} s, {priced['peak'] / 1e9:.1f} GB"


def show(name, here, priced):
    if "seconds" not in priced:
        return f"{name}: {brief(priced)}"
    text = f"{brief(priced)}, {priced['cut']} micro-batches"
    return f"{name}: {text if here is priced else f'[{text}] does not fit'}" + (
        f", {priced['plan']}" if priced.get("plan") else "") + f" ({priced['took']:.1f} s)"
