#!/usr/bin/env python3
"""The plan of `auto` beside plans of experts, at scale:  tests/bench/auto.py [ROW …] [--list]

For each row (auto_rows.py): the predicted step under each expert's plan and under auto's, both as built by nnaot, the memory of
the fullest rank, and what planning takes.

    tests/bench/auto.py gpt3-1024 llama               rows whose names begin so; all of them without
    tests/bench/auto.py --results FILE                resumes: what FILE has is not computed again; a file is for one build
    tests/bench/auto.py --only-auto                   without the experts, whose prices --results may have
    tests/bench/auto.py --only-experts
    tests/bench/auto.py --search-seconds 5            passed on
    tests/bench/auto.py --models DIR                  keeps the models; they have shapes, and no weights
    tests/bench/auto.py --check                       fails if auto is slower than an expert, or a plan is refused for what it is

    ms       predicted, of a step. A plan that does not fit into the devices shows how much memory it needs
    GB       the largest need of a rank
    CPU, s   processor seconds of the whole run, and wall seconds
    MB       peak memory of the compiler
    of best  auto's ms by the least of the experts'; 1 or less: no expert is better
    bound    the certificate of --summary: no plan of auto's space is more than so much better. `-`: none

Memory is that of the devices. Micro-batches of experts are theirs, those of auto its own choice.
"""

import hashlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

from auto_rows import ROWS
from papers_bench import plan_text
from row_options import is_asked, row_parser

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD", HERE.parents[1] / "build"))


def measured(command, limit):
    """Runs a command for at most so many CPU seconds; returns its status, messages, and {"cpu", "wall", "mb"}."""
    with tempfile.TemporaryFile("w+") as err:
        began = time.monotonic()
        child = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=err,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY)))
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        return child.returncode, err.read(), {"cpu": round(usage.ru_utime + usage.ru_stime, 2),
                                              "wall": round(time.monotonic() - began, 2), "mb": usage.ru_maxrss // 1024}


def of_summary(summary):
    """Returns the price of a summary, and the certificate if there is one."""
    chosen = next((c for c in summary.get("candidates", []) if c["chosen"]), {})
    certificate = summary.get("certificate")
    if isinstance(certificate, dict):
        certificate = certificate.get("gap")
    return {"ms": summary["predicted_step_ms"], "peak": max(r["peak_bytes"] or 0 for r in summary["per_rank"]),
            "chosen": chosen.get("plan", summary["plan"]), "cut": summary["micro_batches"], "certificate": certificate}


def failed(status, messages):
    """Returns {"why"}, with "needs" bytes if only memory is missing."""
    if status == -signal.SIGXCPU:
        return {"why": "not ended"}
    errors = [line for line in messages.splitlines() if "error:" in line]
    why = errors[0].split("error: ", 1)[1] if errors else messages[-200:] or f"ended with {status}"
    needs = re.search(r"fit.* needs (\d+) bytes", why)
    return {"why": why} | ({"needs": int(needs[1])} if needs else {})


class Bench:
    def __init__(self, o, folder):
        self.o, self.folder, self.known, self.models = o, pathlib.Path(folder), {}, {}
        if o.results and o.results.exists():
            for line in o.results.read_text().splitlines():
                r = json.loads(line)
                self.known[r["key"]] = r

    def command(self, row, plan, micro_batches):
        if row.model not in self.models:
            self.models[row.model] = row.write(self.folder)
        model, loss, batch = self.models[row.model]
        command = [BUILD / "bin" / "nnaot", model, "-g", row.ranks, "--cluster", row.cluster_text(), "--plan",
                   plan_text(plan, self.folder), "--loss", loss, "--optimizer", "adamw", "--dtype", row.dtype,
                   "--target", row.target, *(row.auto_flags if plan == "auto" else [])]
        command += ["--batch", row.batch] if batch else []
        command += ["--micro-batches", micro_batches] if micro_batches else []
        command += ["--search-seconds", self.o.search_seconds] if self.o.search_seconds else []
        return command

    def price(self, row, plan, micro_batches=None):
        """Returns {"ms", "peak", "cpu", "wall", "mb", …} or {"why", …}."""
        key = f"{row.key()} {plan} @{micro_batches} {self.o.search_seconds or ''}".strip()
        found = self.known.get(key)
        if found and not (found.get("why") == "not ended" and found["limit"] < self.o.limit):
            return found
        summary = self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
        command = self.command(row, plan, micro_batches)
        if self.o.verbose:
            print("+", *command, flush=True)
        status, messages, cost = measured([*command, "--emit", "plan", "-o", "/dev/null", "--summary", summary], self.o.limit)
        result = of_summary(json.loads(summary.read_text())) if status == 0 else failed(status, messages) | {"limit": self.o.limit}
        self.known[key] = result = {"key": key} | result | cost
        if self.o.results:
            with self.o.results.open("a") as f:
                f.write(json.dumps(result) + "\n")
        return result


def line(name, cut, r, more=""):
    cost = f"{r['cpu']:8.1f}{r['wall']:8.1f}{r['mb']:7}"
    text = f"  {name[:52]:52}{cut or '-':>6}"
    if "ms" in r:
        return f"{text}{r['ms']:12.1f}{r['peak'] / 1e9:8.1f}{cost}  {more}"
    why = f"needs {r['needs'] / 1e9:.0f} GB" if "needs" in r else r["why"][:100]
    return f"{text}{'-':>12}{'-':>8}{cost}  {why}  {more}"


def show(bench, row):
    """Prints the row; returns what is wrong with it."""
    o, wrong = bench.o, []
    print(f"{row.name}: {row.ranks} x {row.cluster}, {row.batch} rows, {row.dtype}\n"
          f"  {'plan':52}{'m':>6}{'ms':>12}{'GB':>8}{'CPU':>8}{'s':>8}{'MB':>7}  source", flush=True)
    prices = []
    for e in [] if o.only_auto else row.experts:
        r = bench.price(row, e.plan, e.micro_batches)
        print(line(e.plan, e.micro_batches, r, e.source), flush=True)
        prices += [r["ms"]] if "ms" in r else []
        if "why" in r and "needs" not in r and r["why"] != "not ended":
            wrong.append(f"{row.name}: {e.plan}: {r['why']}")
    if not o.only_experts:
        r = bench.price(row, "auto")
        best = min(prices, default=None)
        ratio = f"{r['ms'] / best:.3f} of best" if "ms" in r and best else ""
        bound = f"{r['certificate']:.1%}" if r.get("certificate") is not None else "-"
        print(line(f"auto: {r.get('chosen', '')}", r.get("cut"), r, f"{ratio}, bound {bound}"), flush=True)
        if "why" in r or best and r["ms"] > best * 1.0005:
            wrong.append(f"{row.name}: auto: {r.get('why') or ratio}")
    return wrong


def main():
    parser = row_parser(__doc__)
    parser.add_argument("--only-auto", action="store_true")
    parser.add_argument("--only-experts", action="store_true")
    parser.add_argument("--models", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--search-seconds", metavar="S")
    o = parser.parse_args()
    rows = [row for row in ROWS if is_asked(o, row.name)]
    if o.list:
        for row in rows:
            print(f"{row.name:24}{row.ranks:>6} x {row.cluster:14}{row.batch:>6} rows  {len(row.experts)} experts")
        return
    if o.models:
        o.models.mkdir(parents=True, exist_ok=True)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(o, o.models or folder)
        for row in rows:
            wrong += show(bench, row)
    if o.check and wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
