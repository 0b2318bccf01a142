"""The parts of the checks and benchmarks on a GPU: a table, and a function each.

A function gets the Report of `run`, in a process of its own that is killed when its time is over; so it reports its
findings at once.  It needs nothing but Python, torch for the part of that name, and numpy for models of images.
"""

import collections
import concurrent.futures
import contextlib
import gzip
import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import bench
import bench_models as models

HERE = pathlib.Path(__file__).resolve().parent
NO_NCCL = "NCCL, its collectives in graphs and the watch over them (two GPUs are needed)"
# The maximal distance of losses from PyTorch's in f32 on a CPU, for the steps from 1 to 3, and for all.  AdamW makes
# steps of the size of the learning rate for gradients near zero, which magnifies differences in the rounding of
# convolutions.
LIMIT = {"f32": (1e-5, 1e-3), "bf16": (2e-2, 2e-2)}

Done = collections.namedtuple("Done", "code out err seconds")


def command(what, seconds, env=None, cwd=None):
    """Runs it for at most `seconds`.  Its output goes to files, which need no reader meanwhile."""
    env = {**bench.environment(HERE), **(env or {})}
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen([str(c) for c in what], stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=env, cwd=cwd,
                                       start_new_session=True)
        except OSError as e:
            return Done(127, "", str(e), 0.0)
        more = ""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code, more = 124, f"\nerror: it did not end in {seconds:.0f} s"
        texts = []
        for file in out, err:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Done(code, texts[0], texts[1] + more, time.monotonic() - began)


def both(done):
    return done.out + done.err


def say_notes(r, text):
    """The output of a program without its progress lines."""
    for line in text.splitlines():
        if line.strip() and not re.match(r"step \d+/\d+ ", line):
            r.say("    says:", line.strip()[:300])


def side_by_side(work, jobs):
    """Runs several at a time: they wait for files, libraries and each other more than for the GPU."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda job: work(*job), jobs))


def sample_inputs(folder):
    flags = []
    for file in sorted(folder.glob("*.npy")):
        flags += ["--tokens", f"input_ids={file}"] if file.stem == "tokens" else ["--input", f"{file.stem}={file}"]
    return flags


def train(exe, steps, seconds, *flags, launcher=(), env=None):
    """The lines of its log, and its output; no lines if it failed."""
    with tempfile.TemporaryDirectory() as tmp:
        log = pathlib.Path(tmp) / "log.jsonl"
        done = command([*launcher, exe, *sample_inputs(exe.parent), "--steps", steps, "--log", log, *flags], seconds, env)
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() and done.code == 0 else []
    return lines, done


def bits(lines):
    return [(x["loss"], x.get("grad_norm")) for x in lines]


def differences(lines, want):
    """The relative difference of each step; NaN counts as infinite."""
    d = [abs(x["loss"] - w) / max(abs(w), 1e-30) for x, w in zip(lines, want)]
    return [x if x == x else math.inf for x in d]


# ---- the card

LIBRARIES = [("cublasLt", "libcublasLt.so.13", "cublasLtGetVersion"), ("cudnn", "libcudnn.so.9", "cudnnGetVersion"),
             ("nccl", "libnccl.so.2", "ncclGetVersion")]

# In a process of its own, with the environment of the programs: a library may crash the process.
LOAD = """
import ctypes, sys
name, function = sys.argv[1:]
library = ctypes.CDLL(name)
out = ctypes.c_int()
if name.startswith("libnccl"):
    library[function](ctypes.byref(out))
    version = out.value
else:
    library[function].restype = ctypes.c_size_t
    version = library[function]()
stem = name.split(".")[0]
path = next((line.split()[-1] for line in open("/proc/self/maps") if stem + "." in line), "?")
print(version, path)
"""


def card(r):
    if r.made["emulator"]:
        r.summary("the emulator: no GPU, no library of NVIDIA", name="the emulator", gpus=1, measured=False, flop=math.nan,
                  bytes=math.nan)
        r.not_tested("anything on a GPU: this is the emulator's build")
    else:
        asked = command(["nvidia-smi", "--query-gpu=name,compute_cap,driver_version,memory.total", "--format=csv,noheader"],
                        r.left(15))
        gpus = [line for line in asked.out.splitlines() if line.strip()]
        r.check("nvidia-smi lists a GPU", asked.code == 0 and gpus, "; ".join(gpus), both(asked))
        name, what = (gpus[0].split(",")[0].strip(), gpus[0]) if gpus else ("no GPU", "no GPU")
        r.summary(what, **bench.rate_by_name(name), gpus=len(gpus), card=what)
        found = []
        for library, file, function in LIBRARIES:
            done = command([sys.executable, "-c", LOAD, file, function], r.left(10))
            r.check(f"{library} loads", done.code == 0, done.out.strip(), both(done))
            found.append(f"{library} {done.out.strip() if done.code == 0 else 'MISSING'}")
        r.summary(f"{what}; {len(gpus)} GPU; {', '.join(found)}", libraries=found)
        done = command([sys.executable, HERE / "bench.py", "--rates"], r.left(35))
        if done.code == 0:
            rate = json.loads(done.out.splitlines()[-1])
            r.summary(f"{what}; {rate['flop'] / 1e12:.0f} TFLOP/s bf16, copies {rate['bytes'] / 1e12:.2f} TB/s (torch "
                      f"{rate['torch']}); {', '.join(found)}", **{**rate, "gpus": len(gpus)})
        else:
            r.say("no rates were measured with torch; those of the data sheet are taken:", *both(done).strip().splitlines()[-1:])
        if len(gpus) < 2:
            r.not_tested(NO_NCCL)
    exe = HERE / "samples" / "gpt2" / "bf16-g1"
    done = command([exe, "--describe"], r.left(10))
    if r.check("an executable says what it is", done.code == 0, output=both(done)):
        says = json.loads(done.out)
        r.say("cuda:", json.dumps(says["cuda"]))
        for file in says["libraries"]:
            r.say("   ", file)


# ---- smoke test

def start(r):
    """The smallest program in f32, and one with attention in bf16, replayed and called."""
    lines, good = [], 0
    for name, exe in ("mlp", "f32-g1"), ("gpt2", "bf16-g1"):
        exe = HERE / "samples" / name / exe
        want = json.loads((exe.parent / "expected.json").read_text())["adamw"]["loss"]
        logs = []
        for how, env in ("plain", {}), ("CUDA_LAUNCH_BLOCKING=1", {"CUDA_LAUNCH_BLOCKING": "1"}):
            log, done = train(exe, 6, r.left(25), env=env)
            ok = r.check(f"{name} {exe.name}, {how}", len(log) == 6, f"{done.seconds:.1f} s", both(done))
            if ok:
                say_notes(r, done.err)
            logs.append(log)
            good += ok
            if ok:
                limit, d = LIMIT[exe.name.split("-")[0]][0], differences(log, want)
                r.check(f"{name} {exe.name}, {how}: the losses of steps 1 to 3", max(d[:3]) < limit,
                        " ".join(f"{x:.0e}" for x in d), f"error: more than {limit:.0e} from PyTorch's: {d}")
        if all(logs):
            r.check(f"{name} {exe.name}: replayed steps have the bits of called ones", bits(logs[0]) == bits(logs[1]),
                    output=f"differs: {bits(logs[0])} and {bits(logs[1])}")
        lines.append(f"{name} {exe.name}")
        r.summary(f"{good} of 4 runs ended well ({', '.join(lines)}; plain and CUDA_LAUNCH_BLOCKING=1)")


# ---- kernels

def kernels(r):
    programs = sorted(p for p in (HERE / "tests").iterdir() if os.access(p, os.X_OK) and p.name != "device_properties")
    examples = [HERE / "tests" / f for f in ("examples.nn", "examples_a.nn", "large.nn")]
    said = {}

    def one(program):
        done = command([program, *(examples if program.name.startswith("gpu_kernels") else [])], r.left())
        last = (done.out.strip().splitlines() or [""])[-1]
        said[program.name] = last if done.code == 0 else f"FAILED ({last[:40]})"
        r.check(program.name, done.code == 0, f"{last}  {done.seconds:.1f} s", both(done))
        short = "; ".join(f"{n.removeprefix('gpu_').removesuffix('_emulated')} {t}" for n, t in sorted(said.items()))
        r.summary(short, said=said)

    side_by_side(one, [(p,) for p in programs])


# ---- losses

def losses(r):
    jobs = []
    if not r.made["emulator"] and (r.other("card").get("gpus") or 1) < 2:
        r.not_tested(NO_NCCL)
    for folder in sorted((HERE / "samples").iterdir()):
        for exe in sorted(p for p in folder.iterdir() if re.match(r"(f32|bf16)-g\d+$", p.name)):
            jobs.append((exe, "threads"))
            if exe.name == "f32-g2":
                jobs.append((exe, "processes"))
    jobs.sort(key=lambda j: (j[0].name[-1], j[0].parent.name))  # one rank first
    worst = collections.defaultdict(lambda: [0.0, 0.0])
    total = 2 * len(jobs)

    def one(exe, how):
        what, dtype, ranks = f"{exe.parent.name} {exe.name}", exe.name.split("-")[0], exe.name.split("-g")[1]
        launcher = [sys.executable, HERE / "ranks.py", ranks] if how == "processes" else []
        # Several ranks on one GPU: threads read each other's memory, processes go through the host's.  Neither is NCCL.
        way = "" if ranks == "1" else ", threads" if how == "threads" else ", processes"
        want = json.loads((exe.parent / "expected.json").read_text())["adamw"]["loss"]
        runs = [train(exe, len(want), r.left(60), launcher=launcher) for _ in range(2)]
        log, done = runs[0]
        if how == "processes":
            way += ": staged" if "share a gpu" in done.err else ": NCCL"
        d = differences(log, want)
        early, late = LIMIT[dtype]
        ok = len(log) == len(want) and max(d[:3]) < early and max(d) < late
        if d:
            w = worst[dtype]
            w[0], w[1] = max(w[0], *d[:3]), max(w[1], *d)
        r.check(f"losses {what}{way}", ok, " ".join(f"{x:.0e}" for x in d),
                        both(done) if not d else f"error: steps 1 to 3 must be within {early:.0e}, all within {late:.0e}: {d}")
        r.check(f"the same bits again {what}{way}", log and bits(log) == bits(runs[1][0]),
                        output=both(runs[1][1]) if not runs[1][0] else "differs: two runs have other losses")
        far = "; ".join(f"{t}: {a:.0e} in steps 1-3, {b:.0e} in 20" for t, (a, b) in sorted(worst.items()))
        r.summary(f"{r.passed} of {total} checks; the furthest from PyTorch's: {far}; ranks of one GPU are threads, or staged",
                  worst=dict(worst))

    side_by_side(one, jobs)


# ---- speed

def rate_of(r):
    """The results of the part `card`, or known figures without it."""
    rate = r.other("card")
    return rate or bench.rate_by_name("an unknown GPU")


def told(name, results, rate):
    x = bench.row(name, results, rate)
    share = f", {x['roofline']:.0%} of {rate['flop'] / 1e12:.0f} TFLOP/s" if x["roofline"] == x["roofline"] else ""
    what = models.units(name)[0]
    mib = f", {x['mib']:.0f} MiB" if x["mib"] == x["mib"] else ""
    return f"{x['ms']:.2f} ms, {x['rate']:.0f} {what}/s{share}{mib}, first step after {x['first']:.0f} s", x


@contextlib.contextmanager
def data_of(name):
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        yield folder, bench.make_data(name, folder)


def timed(r, who, *flags):
    """One run of the bundle's first benchmark."""
    name, rate = r.made["bench"][0], rate_of(r)
    r.summary(f"{name} did not end")
    with data_of(name) as (folder, inputs):
        try:
            result = bench.run_nnaot(name, HERE, folder, inputs, r.made["bench_steps"], r.left(), *flags)
        except RuntimeError as e:
            r.check(f"{name}, {who}", False, output=str(e))
            return r.summary(f"{name} failed on {rate['name']}")
    text, x = told(name, [result], rate)
    r.check(f"{name}, {who}", math.isfinite(result["loss"]), text, "error: the loss is no number")
    r.summary(f"{name} on {rate['name']}: {text}", ms=x["ms"], rate=x["rate"], model=name, steps=result["ms"])
    say_notes(r, result["said"])
    return None


def speed(r):
    timed(r, "nnaot")


def tune_file(r):
    return r.keep / f"{r.made['bench'][0]}.tune"


def tuned(r):
    file = tune_file(r)
    file.unlink(missing_ok=True)
    timed(r, "nnaot tuned", "--tune", file)
    if not r.check("a tune file was written", file.exists() and file.read_text().startswith("nnaot tune 1\n")):
        return
    ways = [line.split(" ", 3) for line in file.read_text().splitlines()[3:-1]]
    apart = sum(w[1] == "apart" for w in ways)
    plain = r.other("speed").get("ms")
    more = f" ({plain / r.values['ms']:.3f} times as fast as plain)" if plain and "ms" in r.values else ""
    r.summary(f"{r.line}{more}; {apart} of {len(ways)} products take their epilogue apart", apart=apart, products=len(ways))


def by_kind(events, work):
    """{kind: [ms a step, calls a step, FLOP, bytes]} of a trace's operations, without the first steps."""
    ops = [e for e in events if e["ph"] == "X" and e["cat"] == "op"]
    steps = sorted({e["args"]["step"] for e in ops})
    steps = steps[min(3, len(steps) - 1):]  # the first run, capture and the first replay are left out
    table = collections.defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for e in ops:
        if e["args"]["step"] in steps:
            row, known = table[e["name"]], work.get(f"{e['name']}  {e['args']['at']}", (0, 0))
            for i, x in enumerate((e["dur"] / 1e3, 1, *known)):
                row[i] += x / len(steps)
    return table


def trace(r):
    """The time per kind of operation.  Uses the tune file, if there is one."""
    name, rate = r.made["bench"][0], rate_of(r)
    file = tune_file(r)
    flags = ["--tune", file] if file.exists() else []
    r.summary(f"{name} did not end")
    with data_of(name) as (folder, inputs):
        out = folder / "trace.json"
        try:
            result = bench.run_nnaot(name, HERE, folder, inputs, 8, r.left(), "--trace", out, *flags)
        except RuntimeError as e:
            r.check(f"{name}, traced", False, output=str(e))
            return r.summary(f"{name} failed on {rate['name']}")
        text = out.read_text()
    with gzip.open(r.keep / f"{name}.trace.json.gz", "wt") as f:
        f.write(text)
    known = HERE / "bench" / f"{name}.work.json"
    work = json.loads(known.read_text()) if known.exists() else {}
    table = by_kind(json.loads(text)["traceEvents"], work)
    total = sum(row[0] for row in table.values())
    r.check(f"{name}: a trace has operations", table and total > 0)
    rows = sorted(table.items(), key=lambda kv: -kv[1][0])
    r.say(f"on {rate['name']}, a step traced{', tuned' if flags else ''}: {total:.2f} ms in operations, "
          f"{statistics.median(result['ms']):.2f} ms in all")
    r.say(f"{'':34}{'ms':>9}{'share':>7}{'calls':>7}{'TFLOP/s':>9}{'GB/s':>8}{'roofline':>10}")
    for kind, (ms, calls, flop, size) in rows[:20]:
        best = max(flop / rate["flop"], size / rate["bytes"] if rate["bytes"] == rate["bytes"] else 0) * 1e3
        share = f"{best / ms:10.0%}" if ms and best and best == best else f"{'-':>10}"
        r.say(f"{kind[:34]:34}{ms:9.3f}{ms / total:7.1%}{calls:7.0f}{flop / ms / 1e9 if ms else 0:9.1f}"
              f"{size / ms / 1e6 if ms else 0:8.0f}{share}")
    first = ", ".join(f"{kind} {ms:.2f}" for kind, (ms, *_) in rows[:6])
    r.summary(f"{name} on {rate['name']}: {total:.1f} ms of operations: {first}",
              table={k: v for k, v in rows}, ms=statistics.median(result["ms"]), tuned=bool(flags))
    return None


def torch(r):
    """PyTorch compiled, then nnaot again beside it, with equal warm-up."""
    name, rate = r.made["bench"][0], rate_of(r)
    if r.made["emulator"]:
        r.not_tested("PyTorch beside it")
        return r.skip("the emulator is no match for anything")
    found = command([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], r.left(40))
    if found.code:
        r.not_tested("PyTorch beside it: it is not here, or sees no GPU")
        return r.skip((both(found).strip().splitlines() or ["python3 has no torch"])[-1])
    steps, rows = r.made["bench_steps"], {}
    file = tune_file(r)
    with data_of(name) as (folder, inputs):
        for who in "torch compile", "nnaot", "nnaot tuned":
            if who == "nnaot tuned" and not file.exists():
                continue
            try:
                if who in bench.TORCH:
                    result = bench.run_torch(name, folder, who, steps, r.left() - 20)
                else:
                    result = bench.run_nnaot(name, HERE, folder, inputs, steps, r.left(30),
                                             *(["--tune", file] if who == "nnaot tuned" else []))
            except RuntimeError as e:
                r.check(f"{name}, {who}", False, output=str(e))
                continue
            text, rows[who] = told(name, [result], rate)
            r.check(f"{name}, {who}", math.isfinite(result["loss"]), text)
            ours = [x["ms"] for w, x in rows.items() if w in bench.NNAOT]
            more = f"; torch / nnaot {rows['torch compile']['ms'] / min(ours):.3f}" if ours and "torch compile" in rows else ""
            r.summary(f"{name} on {rate['name']}: " + ", ".join(f"{w} {x['ms']:.2f} ms" for w, x in rows.items()) + more,
                      rows=rows)
    return None


# ---- the runtime

def script(name):
    def part(r):
        folder = HERE / "runtime"
        where = dict(PROGRAMS=str(folder / "gpu"), CPU_PROGRAMS=str(folder / "cpu"), COMMON=str(folder),
                     GPU="0" if r.made["emulator"] else "1", GPUS=str(r.other("card").get("gpus") or 1))
        r.summary("it did not end")
        done = command([sys.executable, folder / f"rt_{name}.py"], r.left(), where)
        for line in done.out.splitlines():
            if line.startswith("not tested: "):
                r.not_tested(line.removeprefix("not tested: "))
        last = (done.out.strip().splitlines() or [""])[-1]
        r.check(f"rt_{name}.py", done.code == 0, f"{last}  {done.seconds:.0f} s", both(done))
        r.summary(last)
    return part


def sanitize(kind, *samples):
    def part(r):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if r.made["emulator"]:
            return r.skip("compute-sanitizer needs a GPU")
        asked = command([tool, "--help"], r.left(20))
        if asked.code:
            r.not_tested(f"compute-sanitizer {kind}: there is none")
            return r.skip(f"{tool}: {both(asked).strip()[:100]}")
        # Races inside libraries' kernels, which synchronise by means unknown to the tool, would be false findings.
        without = "--kernel-name-exclude" if "--kernel-name-exclude" in asked.out else "--kernel-regex-exclude"
        theirs = ("nvjet", "cutlass", "cudnn", "splitK") if kind == "racecheck" else ()
        excluded = [flag for part in theirs for flag in (without, f"kns={part}")]
        said = []
        for name, exe in samples:
            exe = HERE / "samples" / name / exe
            log, done = train(exe, 2, r.left(), launcher=[tool, "--tool", kind, "--error-exitcode", 9, *excluded],
                              env={"CUDA_LAUNCH_BLOCKING": "1"})
            ok = r.check(f"{kind} {name} {exe.name}", len(log) == 2, f"{done.seconds:.0f} s", both(done))
            said.append(f"{name} {exe.name} {'clean' if ok else 'NOT clean'} in {done.seconds:.0f} s")
            r.summary("; ".join(said))
        return None
    return part


# ---- plans

def plans(r):
    if r.made["emulator"]:
        return r.skip("the emulator's cuDNN has no properties of a GPU")
    done = command([HERE / "tests" / "device_properties"], r.left(30))
    if r.check("cuDNN says what this GPU is", done.code == 0, output=both(done)):
        (r.keep / "device.json").write_text(done.out)
        real = json.loads(done.out)
        for file in sorted((HERE / "devices").glob("*.json")):
            made = json.loads(file.read_text())
            if (made["deviceVer"], made["multiProcessorCount"]) != (real["deviceVer"], real["multiProcessorCount"]):
                continue
            other = {k: (made.get(k), real[k]) for k in real if made.get(k) != real[k]}
            r.say(f"{file.name} is of this kind of GPU; what differs (file, here): {other}")
    log, done = train(HERE / "samples" / "gpt2" / "bf16-g1", 1, r.left(30))
    taken = len(log) == 1 and "built at start" not in done.err
    r.check("plans made ahead of time are taken", taken, output=both(done))
    r.summary("taken" if taken else "NOT taken")
    return None


# ---- the other benchmarks

def others(r):
    """Every model but the first: nnaot, tuned, and PyTorch compiled, one round."""
    rate, said = rate_of(r), []
    only = ["nnaot", "nnaot tuned"] + ([] if r.made["emulator"] else ["torch compile"])
    for i, name in enumerate(r.made["bench"][1:]):
        share = r.left() / (len(r.made["bench"]) - 1 - i)
        if share < 10:
            r.not_tested(f"{name}: no time was left")
            continue
        with tempfile.TemporaryDirectory() as tmp:
            table, failed = bench.compare(HERE, name, only, 1, r.made["bench_steps"], share / len(only), rate, pathlib.Path(tmp))
        bench.print_table(name, table, rate)
        for who in only:
            r.check(f"{name}, {who}", who in table, output=failed.get(who, ""))
        said.append(f"{name} " + ", ".join(f"{w} {x['ms']:.1f}" for w, x in table.items()))
        r.summary(f"ms a step on {rate['name']}: {'; '.join(said)}", **{name: table})
    if not said:
        r.skip("the bundle has no more models")


SAMPLES, MLP, GPT2 = "samples/*/*", "samples/mlp/f32-g1", "samples/gpt2/bf16-g1"

Part = collections.namedtuple("Part", "name program seconds needs function what")

# In order of execution: the most informative first.  The seconds of a program may add up to more than its limit: parts
# mostly take less.  `needs` are patterns of bundle.py's files.
PARTS = [Part(*row) for row in [
    ("card", "first", 60, GPT2, card, "card, driver, memory; which libraries load; what the card can do"),
    ("start", "first", 60, f"{MLP} {GPT2}", start, "mlp in f32 and gpt2 in bf16, plainly and with CUDA_LAUNCH_BLOCKING=1"),
    ("kernels", "first", 100, "tests/", kernels, "rows of the op table, rows, moves, products, convolution, attention"),
    ("losses", "first", 120, SAMPLES, losses, "samples on 1, 2 and 4 ranks of one GPU beside PyTorch; the same bits again"),
    ("speed", "first", 45, "bench/", speed, "the first benchmark, as cuBLASLt proposes"),
    ("tuned", "first", 80, "bench/", tuned, "the first benchmark with --tune"),
    ("trace", "first", 45, "bench/", trace, "the first benchmark with --trace: where the time goes"),
    ("torch", "first", 150, "bench/", torch, "the first benchmark in PyTorch, compiled, and in nnaot beside it"),
    ("steps", "second", 90, "runtime/", script("steps"), "rt_steps.py: replayed steps, checkpoints"),
    ("meshes", "second", 90, "runtime/", script("meshes"), "rt_meshes.py: several meshes, moves"),
    ("turns", "second", 90, "runtime/", script("turns"), "rt_turns.py: schedules"),
    ("ranks", "second", 130, "runtime/", script("ranks"), "rt_ranks.py: ranks as threads and processes"),
    ("memcheck", "second", 100, f"{MLP} {GPT2}", sanitize("memcheck", ("mlp", "f32-g1"), ("gpt2", "bf16-g1")),
     "compute-sanitizer memcheck"),
    ("lost", "second", 80, "runtime/", script("lost"), "rt_lost.py: ranks that die"),
    ("plans", "third", 60, f"tests/ {GPT2}", plans, "cuDNN's view of this GPU; whether plans made ahead of time are taken"),
    ("others", "third", 380, "bench/", others, "the other models beside PyTorch"),
    ("racecheck", "third", 120, f"{MLP} samples/resnet/f32-g1", sanitize("racecheck", ("mlp", "f32-g1"), ("resnet", "f32-g1")),
     "compute-sanitizer racecheck"),
    ("initcheck", "third", 60, MLP, sanitize("initcheck", ("mlp", "f32-g1")), "compute-sanitizer initcheck"),
]]
