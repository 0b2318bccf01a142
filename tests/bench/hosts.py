#!/usr/bin/env python3
"""Times of training steps on several hosts with slow links (tests/rt/machines.py and shaper.c), beside gloo's all_reduce.

    hosts.py [--nnaot PROGRAM] [--label TEXT] [--gloo PYTHON] [--only REGEX] [--steps 12] [--results FILE.jsonl]
    hosts.py --table FILE.jsonl     the results as a table: a row per case, a column per label
    hosts.py --check                a test of CI, without an assertion on speed but limits that are far

`big` is an MLP of 3.2 M weights, whose gradients are 12.9 MB; `mlp` the sample.  A case is a plan on hosts, "2x4" for 2 hosts of 4
ranks, at a rate in Mbit/s of each host's cable each way, and a delay in ms one way.  Results:

    ms      median of the steps but the first two, of rank 0, computation included; of gloo, of an all_reduce of 12.9 MB
    MB      received by a host in a step, headers included: the mean over hosts
    line    MB / ms / rate: share of the cable
    delays  ms / delay

PYTHON has torch.  Labels separate versions: a results file that has a case of this label skips it.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
os.environ.setdefault("PROGRAMS", str(BUILD / "tests" / "rt"))
sys.path[:0] = [str(ROOT / "tests" / "rt"), str(ROOT / "tests" / "e2e")]
import onnx_bytes  # noqa: E402
from common import PROGRAMS, check, end, finish, folder_with_data, free_port, needs, npy  # noqa: E402
from machines import SlowMachines  # noqa: E402

BIG = [64, 1024, 1024, 1024, 1024, 10]
LINKS = [(200, 0.1), (200, 5)]
FAR = [(1000, 5)]
# (model, plan and hosts of --per-node, hosts x ranks, rate and delay)
CASES = [("big", plan, hosts, link) for link in LINKS for plan, hosts in (
    ("dp", "2x1"), ("dp", "2x2"), ("dp --per-node 2", "2x2"), ("dp", "4x1"), ("zero2", "2x2"), ("zero2 --per-node 2", "2x2"),
    ("zero2", "4x1"))]
CASES += [("mlp", plan, hosts, link) for link in FAR for plan, hosts in (
    ("dp", "2x2"), ("dp", "2x4"), ("dp", "2x8"), ("zero2", "2x2"))]
CASES += [("gloo", "all_reduce", hosts, link) for link in LINKS for hosts in ("2x1", "2x2", "4x1")]
GLOO = """
import sys, time, torch, torch.distributed as d
torch.set_num_threads(1)
d.init_process_group("gloo")
x = torch.ones(3225610)
for _ in range(int(sys.argv[1])):
    d.barrier()
    t = time.time()
    d.all_reduce(x)
    if d.get_rank() == 0: print((time.time() - t) * 1e3, flush=True)
d.barrier()
"""


class Bench:
    def __init__(self, machines, nnaot, gloo, steps):
        self.machines, self.nnaot, self.gloo, self.steps = machines, nnaot, gloo, steps
        self.made = {}

    def compiled(self, model, plan, ranks):
        if (model, plan, ranks) not in self.made:
            sample = ROOT / "samples" / "mlp"
            if model == "big" and not os.path.exists("big.onnx"):
                pathlib.Path("big.onnx").write_bytes(onnx_bytes.mlp(BIG))
                npy("bx.npy", [i * 0.37 % 1 for i in range(256 * BIG[0])], (256, BIG[0]))
                npy("by.npy", [i % 10 for i in range(256)], (256,), "<i8")
            out = pathlib.Path(f"{model}-{len(self.made)}").absolute()
            subprocess.run([self.nnaot, "big.onnx" if model == "big" else sample / "mlp.onnx", "-g", str(ranks), "--batch", "32",
                            "--loss", "cross_entropy(logits)", "--plan", *plan.split(), "-o", out], check=True, capture_output=True)
            x, y = ("bx.npy", "by.npy") if model == "big" else (sample / "x.npy", sample / "labels.npy")
            self.made[model, plan, ranks] = out, ["--input", f"x={x}", "--input", f"labels={y}"]
        return self.made[model, plan, ranks]

    def run(self, model, plan, hosts, rate, delay):
        """Returns the result of a case, or None if a rank failed."""
        n, per_host = map(int, hosts.split("x"))
        on = [1 + i // per_host for i in range(n * per_host)]
        if model == "gloo":
            program, data, flags = self.gloo, ["-c", GLOO, str(self.steps)], []
        else:
            program, data = self.compiled(model, plan, len(on))
            flags = ["--steps", self.steps, "--log", "steps.jsonl"]
        if os.path.exists("steps.jsonl"):
            os.remove("steps.jsonl")
        self.machines.rate(rate, delay)
        before, port = self.machines.bytes_into(), free_port()
        jobs = [self.machines.start(program, on, rank, "10.88.0.1", port, *flags, data=data, OMP_NUM_THREADS="1",
                                    GLOO_SOCKET_IFNAME="nncable") for rank in range(len(on))]
        out = []
        for job in jobs:
            try:
                out.append(job.communicate(timeout=300))
            except subprocess.TimeoutExpired:
                job.kill()
                out.append(job.communicate())
        self.machines.rate(0)
        if any(job.returncode for job in jobs):
            print(model, plan, hosts, *[err for _, err in out], sep="\n", file=sys.stderr)
            return None
        into = [b - a for a, b in zip(before, self.machines.bytes_into())][:n]
        ms = [float(line) for line in out[0][0].split()] if model == "gloo" else \
            [json.loads(line)["step_ms"] for line in open("steps.jsonl")]
        ms, megabytes = statistics.median(ms[2:]), sum(into) / n / self.steps / 1e6
        return {"ms": round(ms, 2), "MB": round(megabytes, 3), "line": round(megabytes * 8e3 / ms / rate, 3) if rate else None,
                "delays": round(ms / delay, 2) if delay else None, "said": out[0][1]}


def table(path):
    rows, labels = {}, []
    for line in open(path):
        r = json.loads(line)
        labels += [r["label"]] * (r["label"] not in labels)
        rows.setdefault((r["model"], r["plan"], r["hosts"], r["rate"], r["delay"]), {})[r["label"]] = r
    print("| case | " + " | ".join(labels) + " |\n|---|" + "---|" * len(labels))
    for (model, plan, hosts, rate, delay), by in sorted(rows.items()):
        cells = [f"{by[k]['ms']:.0f} ms, {by[k]['MB']:.2f} MB, {by[k]['line']:.0%} of the line, {by[k]['delays']:.1f} delays"
                 if k in by else "" for k in labels]
        print(f"| {model} {plan}, {hosts}, {rate} Mbit/s, {delay} ms | " + " | ".join(cells) + " |")


def bench(o, machines):
    done = set()
    if o.results and os.path.exists(o.results):
        done = {tuple(r[k] for k in ("label", "model", "plan", "hosts", "rate", "delay")) for r in map(json.loads, open(o.results))}
    at = Bench(machines, o.nnaot, o.gloo, o.steps)
    for model, plan, hosts, (rate, delay) in CASES:
        name = f"{model} {plan} {hosts} {rate} Mbit/s {delay} ms"
        label = "gloo" if model == "gloo" else o.label
        if (label, model, plan, hosts, rate, delay) in done or not re.search(o.only, name) or (model == "gloo" and not o.gloo):
            continue
        result = at.run(model, plan, hosts, rate, delay)
        if result:
            del result["said"]
            print(f"{label}: {name}: {result}", flush=True)
        if result and o.results:
            with open(o.results, "a") as f:
                case = {"label": label, "model": model, "plan": plan, "hosts": hosts, "rate": rate, "delay": delay}
                f.write(json.dumps({**case, **result}) + "\n")


def calibrated(machines, delay):
    """Returns the latency in ms that nnaot-plan calibrate finds between two hosts."""
    machines.rate(0, delay)
    on, port = [1, 1, 2, 2], free_port()
    jobs = [machines.start(BUILD / "bin" / "nnaot-plan", on, rank, "10.88.0.1", port, "calibrate", "--steps", 3, data=[],
                           OMP_NUM_THREADS="1") for rank in range(len(on))]
    out = [job.communicate(timeout=300) for job in jobs]
    machines.rate(0)
    found = re.search(r"across = \{ alpha = ([\d.e+-]+)", out[0][0])
    check("calibrate measures", found and not any(job.returncode for job in jobs), out)
    return float(found[1]) * 1e3 if found else 0


def pending(machines, jobs, elements, delay):
    """Returns the delays of a step of that many all_reduces that are pending together, on 2 hosts of 2 ranks."""
    machines.rate(0, delay)
    port, on = free_port(), [1, 1, 2, 2]
    if os.path.exists("steps.jsonl"):
        os.remove("steps.jsonl")
    done = end([machines.start("pending4", on, rank, "10.88.0.1", port, "--steps", 8, "--log", "steps.jsonl", OMP_NUM_THREADS="1",
                               JOBS=str(jobs), SUMS=str(elements)) for rank in range(len(on))])
    machines.rate(0)
    check(f"{jobs} all_reduces of {elements} elements", [code for code, _ in done] == [0] * len(on), done)
    ms = [json.loads(line)["step_ms"] for line in open("steps.jsonl")]
    return statistics.median(ms[2:]) / delay


def check_all(machines):
    """A phase takes one delay however many ranks there are, and jobs that are pending together share it; hosts that are known
    halve the traffic between them; and calibrate finds the delay."""
    at = Bench(machines, BUILD / "bin" / "nnaot", None, 8)
    # 8 ranks: 3 phases a step, of 7 rounds each if these were one after the other.
    result = at.run("mlp", "dp", "2x4", 0, 100)
    check("8 ranks train with 100 ms between hosts", result is not None)
    if result:
        check("a phase waits for all ranks at once", result["delays"] < 12, result)
    # One after the other they take 40 delays, and 20; connections start slowly after each pause.
    for jobs, elements in (40, 1), (10, 5000):
        delays = pending(machines, jobs, elements, 100)
        check("all_reduces that are pending together share delays", delays < 12, jobs, elements, delays)
    flat, first = at.run("big", "dp", "2x2", 0, 0), at.run("big", "dp --per-node 2", "2x2", 0, 0)
    check("a big model trains on 2 hosts of 2 ranks", flat is not None and first is not None)
    if flat and first:
        check("inside hosts first half of the bytes go between hosts", first["MB"] < 0.6 * flat["MB"], flat, first)
        said = re.search(r"rank 0 receives ([\d.]+) MB of a step from other hosts", flat["said"])
        check("the note has the bytes that come to each rank", said and abs(2 * float(said[1]) / flat["MB"] - 1) < 0.15, flat)
        check("no note with --per-node", "other hosts" not in first["said"], first)
    latency = calibrated(machines, 40)
    check("calibrate finds the latency of 40 ms", 20 < latency < 80, latency)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nnaot", type=os.path.abspath, default=str(BUILD / "bin" / "nnaot"))
    p.add_argument("--label", default="here")
    p.add_argument("--gloo", type=os.path.abspath)
    p.add_argument("--only", default="")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--results", type=os.path.abspath)
    p.add_argument("--table")
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    if o.table:
        return table(o.table)
    needs(o.nnaot, PROGRAMS / "shaper", *([BUILD / "bin" / "nnaot-plan", PROGRAMS / "pending4"] if o.check else []),
          *([o.gloo] if o.gloo else []))
    with folder_with_data(), SlowMachines(4) as machines:
        if not machines.works:
            print("skipped: no permission for network namespaces and TAP devices")
        elif o.check:
            check_all(machines)
        else:
            bench(o, machines)
    finish()


main()
