"""The headline experiments of nnScaler, SuperScaler and AutoDDL, priced:  tests/bench/papers.py [ROW …] [--list]

For each row: the commands, the predicted seconds of a step under the paper's baseline and the paper's plan, what the ranks
need, and the speedup, predicted and published.  Seconds of planning, and their limits, are CPU seconds of nnaot: other processes
of the machine do not count.

    tests/bench/papers.py swin-8 mbart                rows whose names begin so; all of them without
    tests/bench/papers.py --results FILE              resumes: what FILE has is not computed again
    tests/bench/papers.py --auto 300                  the plan of `auto` too, if it ends within so many seconds
    tests/bench/papers.py --only-auto 300             that alone, for a long campaign with --results
    tests/bench/papers.py --commands --keep DIR       prints the commands and runs nothing; DIR has the models and plans

Models have the papers' sizes (paper_models.py): shapes, without weights. Clusters are the papers' (clusters/eager-*.lua), with
PyTorch in eager mode; each figure has its source there. Memory is that of the devices. A plan that is refused, or does
not fit, shows the message; its price is that of the same plan on devices with more memory, in brackets.

FITTED: one parameter on one row. AutoDDL's bandwidth on Piz Daint, 4.4 GB/s in clusters/eager-daint.lua, is the one with which data
parallelism of VGG13 takes four times as long as its plan (AutoDDL, section 5.2.2); the theoretical peak of 8.5 to 10 gives 2.1.
Table 3 is judged by it. All other figures are those of the citations in the clusters' files.

A row is `within` if the predicted speedup is within 20 % of the published one.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field

import paper_models

HERE = pathlib.Path(__file__).resolve().parent
NNAOT = pathlib.Path(os.environ.get("BUILD", HERE.parents[1] / "build")) / "bin" / "nnaot"
WITHIN = 0.2
MORE_MEMORY = 10  # times
FITTED = {"autoddl-vgg13-64"}

SWIN = {4: (32, 512, 16), 8: (40, 768, 24), 16: (48, 1024, 32), 32: (56, 1536, 32)}  # nnScaler, table 9
T5 = {4: (48, 2048, 32), 8: (64, 3072, 48), 16: (64, 4096, 64), 32: (64, 6144, 96)}
T5_WORDS = {4: 530_000, 8: 830_000, 16: 1_460_000, 32: 2_100_000}  # of the totals there; 12 GB in the 21B model (8.3.3)
ALPHAFOLD = {16: (96, 1024, 32), 32: (128, 1024, 32)}
MBART = (48, 5120, 32)  # SuperScaler, table 2, 16 GPUs; 500,000 words (section 6.1)
WINDOW = 48  # of Swin on images of 1536 (nnScaler's evaluation)


@dataclass
class Plan:
    """Of several numbers of micro-batches the fastest that fits is taken: "we tune hyper-parameters for each system" (SuperScaler,
    section 6.1), micro-batch sizes among them. The first is that with the fewest rows."""
    plan: str
    micro_batches: tuple | int = 1

    def cuts(self):
        return self.micro_batches if isinstance(self.micro_batches, tuple) else (self.micro_batches,)


@dataclass
class Row:
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


def halves(most):
    return tuple(most >> i for i in range(4))


def swin_rows(bias):
    """One image in each micro-batch of a rank; both systems as in nnScaler, section 8.3.2."""
    more = {"window": WINDOW, **({"bias": True} if bias else {"scores": True})}
    ours = {4: ("pp=2,{4},tp=2", 512), 8: ("pp=4,{6},tp=2", 512), 16: ("pp=4,{4},tp=4", 512), 32: ("pp=4,{4},tp=8", 512)}
    for ranks, cluster, said in (4, "dgx2", 1.0), (8, "dgx2", 1.2), (16, "dgx2", 1.5), (32, "dgx2", 1.5), (16, "dgx1", 1.9), (
            32, "dgx1", 3.5):
        tp = 2 if ranks == 4 else 4
        zero = Plan(f"zero3={ranks // tp},tp={tp},recompute,offload=1", 512 * tp // ranks)
        source = "nnScaler fig. 7" if cluster == "dgx2" else "nnScaler fig. 10a"
        yield Row(f"swin-{ranks}-{cluster}-deepspeed", said, source, "swin", SWIN[ranks], 512, ranks, f"eager-{cluster}", zero,
                  Plan(*ours[ranks]), more=more, judged=ranks > 4)
    yield Row("swin-32-dgx1-megatron", 6.6, "SuperScaler fig. 12a", "swin", SWIN[32], 512, 32, "eager-dgx1",
              Plan("tp=32,recompute", 512), Plan(*ours[32]), more=more)


def t5_rows():
    """Sections 8.3.3: the table over all devices, other layers in four stages."""
    for ranks, said in (8, 1.5), (16, 1.6), (32, 2.5):
        yield Row(f"t5-{ranks}-dgx2-deepspeed", said, "nnScaler fig. 8", "t5", T5[ranks], 512, ranks, "eager-dgx2",
                  Plan(f"zero3={ranks // 4},vp=4,recompute,offload=1", halves(512 * 4 // ranks)),
                  Plan(f"pp_interlaced=4,tp={ranks // 4},recompute", halves(512)), more={"words": T5_WORDS[ranks]})


def mbart_rows():
    """SuperScaler, section 6.2: layers within servers, the table over all of them."""
    ours = Plan("pp_interlaced=2,tp=8,recompute", halves(512))
    for name, said, theirs in ("deepspeed", 4.9, Plan("zero3=2,vp=8,recompute,offload=1", halves(256))), (
            "megatron", 2.8, Plan("vp=16,recompute", halves(512))):
        yield Row(f"mbart-16-dgx1-{name}", said, "SuperScaler fig. 12c", "t5", MBART, 512, 16, "eager-dgx1", theirs, ours)


def alphafold_rows(layers):
    """Three forwards and one backward; nnScaler, section 8.3.4 and 8.3.5."""
    size = {n: (layers or s[0], *s[1:]) for n, s in ALPHAFOLD.items()}
    for ranks, said, theirs, ours in (
            (16, 1.1, Plan("zero3=16,recompute", 8), Plan("pp_3f1b=4,dp=4,recompute", 32)),
            (32, 1.4, Plan("zero3=16,tp=2,recompute", 8), Plan("pp_3f1b=2,dp=8,tp=2,recompute", 16))):
        yield Row(f"alphafold-{ranks}-dgx1-deepspeed", said, "nnScaler fig. 10b", "evoformer", size[ranks], 128, ranks,
                  "eager-dgx1", theirs, ours)
    yield Row("alphafold-16-dgx1-dap", 1.5, "SuperScaler 6.2", "evoformer", size[16], 128, 16, "eager-dgx1",
              Plan("dp=4,dap=4,recompute", 32), Plan("pp_3f1b=4,dp=4,recompute", 32))


def autoddl_rows():
    """GPT with one sequence in each micro-batch of a rank, for memory, and SGD: the paper names no optimizer, and Adam's states do
    not fit beside 16.5 G weights in f32 on dp=4,tp=16.  VGG13 at once, with 8 images a rank (5.2.2)."""
    yield Row("autoddl-wide-64", 1.59, "AutoDDL table 3", "gpt", (20, 8192, 64), 512, 64, "eager-daint",
              Plan("dp=4,tp=16,recompute", 128), Plan("dp=4,search=16,recompute=1", 128), "f32", {"tokens": 1024})
    for ranks in 16, 32, 64:
        yield Row(f"autoddl-vgg13-{ranks}", 4.0, "AutoDDL fig. 9", "vgg13", (), 8 * ranks, ranks, "eager-daint", Plan("dp"),
                  Plan("search"), "f32", judged=ranks == 64)


def all_rows(layers, bias):
    return [*swin_rows(bias), *t5_rows(), *alphafold_rows(layers), *mbart_rows(), *autoddl_rows()]


class Bench:
    def __init__(self, o, folder):
        self.o, self.folder = o, pathlib.Path(folder)
        self.known = {}
        if o.results and o.results.exists():
            for line in o.results.read_text().splitlines():
                r = json.loads(line)
                self.known[r["key"]] = r

    def plan_text(self, plan):
        """{N} stands for a co-shard of N pieces in the first layers."""
        pieces = re.search(r"\{(\d+)\}", plan)
        if not pieces:
            return plan
        file = self.folder / f"coshard_{pieces[1]}.lua"
        file.write_text((HERE / "coshard_first.lua").read_text().replace("PIECES\n", f"{pieces[1]}\n"))
        return plan.replace(pieces[0], f"{file}=1")

    def command(self, row, plan, micro_batches, cluster):
        file = self.folder / f"{row.model}-{hash_of(str((row.size, row.rows, row.more)))}.nn"
        text, loss = paper_models.MODELS[row.model](*row.size, row.rows, **row.more)
        file.write_text(text)
        optimizer = "sgd" if row.name.startswith("autoddl") else "adamw"
        return [NNAOT, file, "-g", row.ranks, "--cluster", cluster, "--plan", self.plan_text(plan.plan), "--micro-batches",
                micro_batches, "--loss", loss, "--optimizer", optimizer, "--dtype", row.dtype, "--target",
                "cuda:sm_80", "--emit", "plan", "-o", "/dev/null"]

    def price(self, row, plan, micro_batches, memory=1, limit=None):
        """Returns {"seconds", "peak", "took"} or {"why", "took"}, with "limit" if it is reached."""
        text = (HERE / "clusters" / f"{row.cluster}.lua").read_text()
        key = (f"{row.model} {row.size} {row.more} {row.rows} {row.dtype} -g {row.ranks} {row.cluster} {hash_of(text)} {plan.plan} "
               f"@{micro_batches} x{memory}")
        limit = limit or self.o.limit
        if key in self.known and self.known[key].get("limit", limit) >= limit:
            return self.known[key]
        cluster, summary = self.folder / f"{row.cluster}-x{memory}.lua", self.folder / "summary.json"
        cluster.write_text(re.sub(r"\bmemory = ([\d.e]+)", lambda m: f"memory = {memory * float(m[1])}", text))
        run, took = limited([*self.command(row, plan, micro_batches, cluster), "--summary", summary], limit)
        result = {"key": key, "cut": micro_batches, "took": round(took, 1)}
        if run.returncode == -signal.SIGXCPU:
            result |= {"why": f"not ended in {limit} s", "limit": limit}
        elif run.returncode:
            errors = [line for line in run.stderr.splitlines() if "error:" in line]
            result["why"] = errors[0].split("error: ", 1)[1] if errors else run.stderr[-200:]
        else:
            s = json.loads(summary.read_text())
            result["seconds"] = s["predicted_step_ms"] / 1e3
            result["peak"] = max(r["peak_bytes"] or 0 for r in s["per_rank"])
            result["plan"] = next((c["plan"] for c in s.get("candidates", []) if c["chosen"]), None)
        self.known[key] = result
        if self.o.results:
            with self.o.results.open("a") as f:
                f.write(json.dumps(result) + "\n")
        return result

    def priced(self, row, plan):
        """The plan on the paper's devices; if it does not fit, on ones with more memory."""
        tried = []
        for micro_batches in plan.cuts():
            tried.append(self.price(row, plan, micro_batches))
            if "seconds" not in tried[-1]:
                break
        best = min((r for r in tried if "seconds" in r), key=lambda r: r["seconds"], default=tried[0])
        if "seconds" in best or "fit" not in best["why"]:
            return best, best
        return best, self.price(row, plan, plan.cuts()[0], MORE_MEMORY)

    def auto(self, row, limit):
        """Returns a line: the plan found with as many micro-batches as the paper's plan has."""
        found = self.price(row, Plan("auto"), row.ours.cuts()[0], limit=limit)
        return show("auto", found, found)


def limited(command, seconds):
    """Runs a command for at most so many CPU seconds, after which SIGXCPU ends it; returns the run and its CPU seconds."""
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY)))
    return run, spent() - before


def hash_of(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def show(name, here, priced):
    if "seconds" not in priced:
        return f"{name}: - ({priced['why'][:110]})"
    text = f"{priced['seconds']:.4g} s, {priced['peak'] / 1e9:.1f} GB, {priced['cut']} micro-batches"
    return f"{name}: {text if here is priced else f'[{text}] does not fit'}" + (
        f", {priced['plan']}" if priced.get("plan") else "") + f" ({priced['took']:.0f} s)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="names, or how they begin; all of them")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--auto", type=int, metavar="SECONDS")
    parser.add_argument("--only-auto", type=int, metavar="SECONDS")
    parser.add_argument("--limit", type=int, default=300, help="CPU seconds of a command")
    parser.add_argument("--layers", type=int, help="of AlphaFold2, instead of 96 and 128")
    parser.add_argument("--no-bias", action="store_true", help="Swin without biases of relative positions")
    parser.add_argument("--results", type=pathlib.Path)
    o = parser.parse_args()
    rows = [r for r in all_rows(o.layers, not o.no_bias) if not o.names or any(r.name.startswith(n) for n in o.names)]
    if o.list:
        print("\n".join(f"{r.name:32}{r.said:6}  {r.source}" for r in rows))
        return
    n_within = n_judged = 0
    if o.keep:
        o.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(o, o.keep or folder)
        for row in rows:
            if o.commands:
                for plan in row.theirs, row.ours:
                    c = bench.command(row, plan, plan.cuts()[0], HERE / "clusters" / f"{row.cluster}.lua")
                    print(f"{row.name}: {shlex.join(map(str, c))}")
                continue
            if o.only_auto:
                print(f"{row.name:30} {row.source}\n    {bench.auto(row, o.only_auto)}", flush=True)
                continue
            both = [(name, *bench.priced(row, plan)) for name, plan in (("theirs", row.theirs), ("ours", row.ours))]
            theirs, ours = (priced.get("seconds") for _, _, priced in both)
            speedup = theirs / ours if theirs and ours else None
            within = speedup is not None and abs(speedup / row.said - 1) <= WITHIN
            judged = row.judged and row.name not in FITTED
            n_judged, n_within = n_judged + row.judged, n_within + (row.judged and within)
            word = "fitted" if row.name in FITTED else "not judged" if not judged else "within" if within else "no"
            print(f"{row.name:30} {f'{speedup:.2f}' if speedup else '-':>6} of {row.said:<5}{word:11}{row.source}")
            for (name, here, priced), plan in zip(both, (row.theirs, row.ours)):
                print(f"    {plan.plan}\n    {show(name, here, priced)}")
            if o.auto:
                print(f"    {bench.auto(row, o.auto)}")
            print(end="", flush=True)
    if not o.commands and not o.only_auto:
        print(f"{n_within} of {n_judged} rows within {WITHIN:.0%} of the published speedup, fitted ones included")


if __name__ == "__main__":
    main()
