"""Plans that `auto` chooses under a limit of memory train as one rank does, and need the memory that nnaot predicts.

    auto_limits.py                               a slice, in which stages, recomputation and host memory are chosen
    auto_limits.py --all                         every model, on 2, 4 and 8 ranks, in f32, bf16 and f16, at every limit
    auto_limits.py --model M --ranks N --dtype D --devices D --share S       only these

A device's memory is a share of the peak of the plan without a limit, from nine tenths down to a share into which nothing fits.
Each plan trains on ranks as threads: losses, gradient norms and trained weights are those of one rank, in the same type.  With
--memory an executable counts the pages of its slabs that are resident (memory.py): all that it ever touches are `peak_bytes` of
--summary, and the most in use at once the peak of --trace, within 2 % or two pages.  If nothing fits, the error names the rank and
the bytes that it lacks; with these it fits; and no plan of BY_HAND fits either.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import memory
import plan_cases
from common import NNAOT, SAMPLE, SAMPLES, compile_in_a_hurry, read_log, run, scratch, worst_difference
from plans import read_weights, weights_difference

STEPS, MEMORY, PAGE = 3, 0.02, 4096
SHARES = [0.9, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.06, 0.04]
# Relative differences from one rank, of losses, gradient norms and weights.
LIMIT = {"f32": [1e-4, 1e-4, 1e-4], "bf16": [0.01, 0.02, 0.05], "f16": [0.01, 0.02, 0.05]}
ADAMW = "adamw:weight_decay=0.1,betas=0.9/0.95,eps=1e-5"
# Rows of a batch, so many that activations are a large part of the peak.
BATCH = {"mlp": 512, "resnet": 128, "gpt2": 64, "moe": 256, "llama": 1024, "t5": 256}
# Devices so slow that ranks pay: a link to host memory that pays or does not, and slow links between ranks.
DEVICES = {"host": (1e-7, 1e9, 2e9), "no_host": (1e-7, 1e9, 1e7), "links": (1e-6, 2e7, 1e7)}
# Model, ranks, type, devices, share of the peak, more flags, and a pattern of the plan; None: nothing fits.  Micro-batches have so
# many rows that most values are larger than a page: those that share one are counted together (rt/memory_watch.c).
SLICE = [
    ("mlp", 4, "f32", "host", 0.05, [], None),
    ("mlp", 4, "f32", "host", 0.4, [], ""),
    ("resnet", 4, "f32", "no_host", 0.6, [], "recompute"),
    ("gpt2", 5, "f32", "links", 0.5, [], "pp"),
    ("moe", 4, "f32", "host", 0.75, ["--micro-batches", 4], "recompute|swap"),
    ("llama", 3, "bf16", "no_host", 0.3, ["--micro-batches", 16], "recompute"),
    ("t5", 2, "f32", "host", 0.04, [], "swap.*offload"),
]
BY_HAND = ["zero1={n},recompute=1", "zero3={n},recompute=1,offload=1", "zero3={n},swap=1,offload=1", "pp={n},recompute=1",
           "pp={n},offload=1", "pp={n},recompute=1,offload=1", "pp={n},swap=1,offload=1", "sp={n},recompute=1,offload=1",
           "sp={n},swap=1,offload=1", "vp={n},recompute=1,offload=1", "zero3={h},sp=2,recompute=1,offload=1",
           "pp={h},zero3=2,recompute=1,offload=1", "pp={h},sp=2,recompute=1,offload=1"]


def write_cluster(path, devices, limit):
    """A cluster of devices with so many bytes; None: no limit."""
    latency, link, host = DEVICES[devices]
    memory = f"memory = {limit}, " if limit else ""
    path.write_text(f"return {{ {memory}per_node = 8, inside = {{ alpha = {latency}, beta = {1 / link} }}, f32 = 1e10, "
                    f"half = 2e10, memory_speed = 1e10, host = {host}, launch = 1e-7 }}\n")
    return path


class Model:
    def __init__(self, folder, name, dtype):
        self.folder, self.name, self.dtype = folder, name, dtype
        if name in SAMPLE:
            file, loss = SAMPLES / name / f"{name}.onnx", SAMPLE[name]["loss"]
            self.data = [f for i in SAMPLE[name]["inputs"] for f in ("--input", f"{i}={SAMPLES / name / i}.npy")]
            if name == "gpt2":
                memory.write_tokens(folder / "tokens.npy")
                self.data = ["--tokens", f"input_ids={folder / 'tokens.npy'}"]
            flags = []
        else:
            file, loss = plan_cases.HERE / f"{name}.onnx", plan_cases.MODELS[name]["loss"]
            plan_cases.BATCH = BATCH[name]  # rows of data
            self.data, flags = plan_cases.data_flags(name, folder), plan_cases.MODELS[name].get("flags", [])
        self.flags = [file, "--batch", BATCH[name], "--loss", loss, "--optimizer", ADAMW, "--lr", "0.003", "--clip-norm", "0.5",
                      "--dtype", dtype, *flags]

    def nnaot(self, *flags):
        done = subprocess.run([str(x) for x in (NNAOT, *self.flags, *flags)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        return done.returncode, done.stdout

    def plan(self, plan, ranks, cluster, flags=()):
        """Returns the summary of a plan, or None and the error."""
        out = self.folder / "plan.json"
        code, said = self.nnaot("-g", ranks, "--plan", plan, "--cluster", cluster, *flags, "--emit", "plan", "-o", out)
        return (None, said) if code else (json.loads(out.read_text()), "")

    def train(self, exe, ranks, flags):
        at = {n: self.folder / f"{exe}.{n}" for n in ("exe", "summary", "trace", "memory", "log", "weights")}
        at["log"].unlink(missing_ok=True)
        code, said = self.nnaot("-g", ranks, *flags, "--summary", at["summary"], "--trace", at["trace"], "-o", at["exe"])
        if code:
            return None, said
        run(at["exe"], *self.data, "--steps", STEPS, "--memory", at["memory"], "--log", at["log"], "--save", at["weights"])
        return at, said

    def one_rank(self):
        self.one, _ = self.train("one", 1, ["--plan", "dp"])

    def differences(self, at):
        log, one = read_log(at["log"]), read_log(self.one["log"])
        return [worst_difference([x[k] for x in log], [x[k] for x in one]) for k in ("loss", "grad_norm")
                ] + [weights_difference(read_weights(at["weights"]), read_weights(self.one["weights"]))]


def memory_errors(at):
    """Returns the largest differences in bytes of pages in use at once, and of all pages, from those predicted, and these."""
    counted = json.loads(at["memory"].read_text())["per_rank"]
    peaks = memory.predicted(at["trace"])
    slabs = [r["peak_bytes"] for r in json.loads(at["summary"].read_text())["per_rank"]]
    in_use = [(c["peak_bytes"] - peaks[r], peaks[r]) for r, c in enumerate(counted)]
    touched = [(c["touched_bytes"] - s, s) for c, s in zip(counted, slabs)]
    return [max(errors, key=lambda e: abs(e[0])) for errors in (in_use, touched)]


def show(*cells):
    print("{:6} {:4} {:>2} {:7} {:>5} {:>8} {:42} {:>8} {:>7} {:>7} {}".format(*cells), flush=True)


def peak(s):
    return max(r["peak_bytes"] for r in s["per_rank"])


def one_limit(model, ranks, devices, share, most, flags=(), wanted=""):
    """Returns whether all is well, and whether something fits."""
    limit = int(most * share)
    cluster = write_cluster(model.folder / "cluster.lua", devices, limit)
    at, said = model.train("plan", ranks, ["--plan", "auto", "--cluster", cluster, *flags])
    row = (model.name, model.dtype, ranks, devices, share, limit)
    if not at:
        return nothing_fits(model, row, cluster, said, flags) and wanted in (None, ""), False
    s = json.loads(at["summary"].read_text())
    errors, d = memory_errors(at), model.differences(at)
    # NaN is not less.
    ok = all(x < most for x, most in zip(d, LIMIT[model.dtype])) and all(abs(e) <= max(MEMORY * n, 2 * PAGE) for e, n in errors)
    ok &= "--micro-batches" not in flags or s["micro_batches"] == flags[flags.index("--micro-batches") + 1]
    ok &= peak(s) <= limit and wanted is not None and bool(re.search(wanted, s["plan"]))
    show(*row, f"{s['plan']} x{s['micro_batches']}", peak(s), *(f"{e / n:+.2%}" for e, n in errors),
         " ".join(f"{x:.1e}" for x in d) + f" {s['seconds']['choose']:.1f} s" + ("" if ok else "  FAILED"))
    return ok, True


def nothing_fits(model, row, cluster, said, flags):
    """Whether the error says how many bytes are lacking, these are enough, and no plan by hand fits."""
    _, _, ranks, devices, _, limit = row
    nearest = r"(?:error: the model fits under none|note: of the plans tried, ).* rank \d+ needs "
    lacks = re.search(nearest + r"(\d+) bytes, and its device of '.*' has (\d+)", said)
    ok = bool(lacks) and int(lacks[2]) == limit
    show(*row, "nothing fits", lacks[1] if lacks else "", "", "", "" if ok else f"FAILED: {said[-400:]}")
    if ok and not model.plan("auto", ranks, write_cluster(cluster, devices, int(lacks[1])), flags)[0]:
        ok = print(f"    FAILED: nothing fits into {lacks[1]} bytes either")
    write_cluster(cluster, devices, limit)
    for plan in BY_HAND:
        plan = plan.format(n=ranks, h=ranks // 2)
        for m in [()] if flags else [("--micro-batches", n) for n in (4, 16, 64) if BATCH[model.name] % n == 0]:
            s, _ = model.plan(plan, ranks, cluster, [*flags, *m])
            if s:
                ok = print(f"    FAILED: {plan} {m} fits: {peak(s)} bytes", flush=True)
    return bool(ok)


def cases(a):
    """Returns the rows of SLICE, or those of the options with all limits, by model and type."""
    if not (a.all or a.model or a.ranks or a.dtype or a.devices or a.share):
        return [(m, dtype, [(ranks, devices, [share], flags, wanted)]) for m, ranks, dtype, devices, share, flags, wanted in SLICE]
    return [(m, dtype, [(ranks, devices, a.share or SHARES, a.flags, "") for ranks in a.ranks or [2, 4, 8]
                        for devices in a.devices or DEVICES])
            for m in a.model or BATCH for dtype in a.dtype or LIMIT]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--all", action="store_true")
    p.add_argument("--model", nargs="*", choices=BATCH)
    p.add_argument("--ranks", nargs="*", type=int)
    p.add_argument("--dtype", nargs="*", choices=LIMIT)
    p.add_argument("--devices", nargs="*", choices=DEVICES)
    p.add_argument("--share", nargs="*", type=float)
    p.add_argument("flags", nargs="*", help="after --: of nnaot")
    failed = 0
    show("model", "type", "n", "devices", "share", "limit", "plan", "peak", "in use", "touched", "losses, norms, weights")
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        for name, dtype, rows in cases(p.parse_args()):
            model = Model(folder, name, dtype)
            model.one_rank()
            for ranks, devices, shares, flags, wanted in rows:
                s, said = model.plan("auto", ranks, write_cluster(folder / "cluster.lua", devices, None), flags)
                if not s:
                    sys.exit(said)
                for share in shares:
                    ok, fits = one_limit(model, ranks, devices, share, peak(s), flags, wanted)
                    failed += not ok
                    if not fits:
                        break
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
