#!/usr/bin/env python3
"""All tests and benchmarks for a GPU, prebuilt in one folder and one file:  bundle.py BUILD OUT [--bench]

BUILD is a build folder with the cuda target and the kernels of sm_90 (the target test_programs builds them).  OUT gets
test programs, the runtime's programs, samples compiled for sm_90, their expected results, and with --bench executables of
the benchmark.  OUT.tar.xz is the same, packed; if it is larger than --limit MiB, an error names the largest contents.

No weights are included: the benchmark's executables draw them at start.  Their models are written without weights, so
that this machine need not hold them; by default gpt2-124m and resnet50.  --models names others: gpt2-1558m-b16, which
trains in 60 GB, and vit-b16-b128, for which python3 needs torch and torchvision.

The machine with the GPU needs python3, and torch for the comparisons.  There, OUT/first runs the most informative parts
in ten minutes; OUT/second and OUT/third the rest (`run`).

--emulator builds a bundle of programs for the emulator, with a small GPT-2: `first` runs here, too.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "e2e")]

import bench_models as models  # noqa: E402
from parts import PARTS  # noqa: E402

ARCH = "cuda:sm_90"
BENCH = ["gpt2-124m-b32", "gpt2-124m-b4", "gpt2-124m-b64", "resnet50-b128"]
EMULATED_BENCH = ["gpt2-tiny-b4"]
LIMIT = 48  # MiB: an upload to the GPU machine has 64, including the source
# Executables share the runtime.  Only a dictionary that holds several of them whole detects that.
DICTIONARY = 256 << 20
# CPU programs that scripts of the runtime start.
CPU_PROGRAMS = ["line1", "line2", "line4", "stages1", "stages2", "apart4", "overlap4", "uneven4", "turns2", "turns4"]
SCRIPTS = ["run", "parts.py", "ranks.py", "bench.py", "bench_models.py"]


def say(text):
    print(text, flush=True)


def ran(command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nexit status {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class Bundle:
    def __init__(self, build, out, parts, emulator):
        self.build, self.out, self.emulator = build, out, emulator
        self.parts = [p for p in PARTS if not parts or p.name in parts]

    def needs(self, path):
        """Whether some part needs it."""
        return any(fnmatch.fnmatch(path, pattern) for p in self.parts for pattern in p.needs.split())

    def copy_libraries(self, program):
        """Libraries that a machine with a GPU may lack: neither the C library's nor NVIDIA's."""
        listing = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for name, path in re.findall(r"(lib(?:ffi|gomp)\S+) => (/\S+)", listing):
            if not (self.out / "lib" / name).exists():
                shutil.copy(path, self.out / "lib" / name)

    def copy_program(self, program, folder):
        """A link to a program of its folder stays a link, and that program is copied, too."""
        folder.mkdir(parents=True, exist_ok=True)
        to = folder / program.name
        if to.exists():
            return
        if program.is_symlink():
            target = program.with_name(os.readlink(program))
            self.copy_program(target, folder)
            to.symlink_to(target.name)
        else:
            shutil.copy(program, to)
            self.copy_libraries(to)

    def add_tests(self):
        if not self.needs("tests/"):
            return
        if self.emulator:
            programs = sorted(p for p in self.build.rglob("gpu_*_emulated") if p.is_file() and os.access(p, os.X_OK))
        else:
            programs = sorted(p for p in (self.build / "gpu").iterdir() if os.access(p, os.X_OK))
        for program in programs:
            self.copy_program(program, self.out / "tests")
        if not programs:
            raise SystemExit(f"{self.build} has no programs that test kernels")
        for file in (ROOT / "tests" / "ops").glob("*.nn"):
            shutil.copy(file, self.out / "tests")
        shutil.copytree(ROOT / "rt" / "cuda" / "devices", self.out / "devices")

    def add_runtime(self):
        if not self.needs("runtime/"):
            return
        folder = self.build / "tests" / "gpu" / "rt" if self.emulator else self.build / "gpu_rt"
        for program in sorted(p for p in folder.iterdir() if os.access(p, os.X_OK) and not p.is_dir()):
            self.copy_program(program, self.out / "runtime" / "gpu")
        for name in CPU_PROGRAMS:
            self.copy_program(self.build / "tests" / "rt" / name, self.out / "runtime" / "cpu")
        for file in [*HERE.glob("rt_*.py"), HERE / "ranks.py", ROOT / "tests" / "rt" / "common.py"]:
            shutil.copy(file, self.out / "runtime")

    def samples(self):
        """The combinations to compile: sample, type, ranks."""
        return [(name, dtype, ranks) for name in ("mlp", "gpt2", "resnet") for dtype in ("f32", "bf16") for ranks in (1, 2, 4)
                if self.needs(f"samples/{name}/{dtype}-g{ranks}")]

    def add_sample(self, name, dtype, ranks):
        """Builds the executable, with its data and the losses of PyTorch in f32."""
        from common import compile_sample
        say(f"sample {name}, {dtype}, {ranks} ranks")
        exe = self.out / "samples" / name / f"{dtype}-g{ranks}"
        compile_sample(name, exe, "adamw", ranks, ["--dtype", dtype, "--target", ARCH])
        self.copy_libraries(exe)

    def add_samples(self):
        from common import SAMPLES, data_flags
        for name in {name for name, _, _ in self.samples()}:
            folder = self.out / "samples" / name
            folder.mkdir(parents=True)
            data_flags(name)
            for file in [*(SAMPLES / name).glob("*.npy"), SAMPLES / name / "expected.json"]:
                shutil.copy(file, folder)
        at_a_time(self.add_sample, self.samples())

    def add_bench(self, names):
        (self.out / "bench").mkdir()
        with tempfile.TemporaryDirectory() as tmp:
            written = {}
            for model in dict.fromkeys(models.BENCH[n][0] for n in names):
                say(f"writing {model}")
                written[model] = pathlib.Path(tmp) / model / "model.onnx"
                written[model].parent.mkdir()
                ran([python_for(model), HERE / "bench_models.py", model, "-o", written[model]])
            at_a_time(self.add_model, [(name, written[models.BENCH[name][0]], pathlib.Path(tmp)) for name in names])

    def add_model(self, name, onnx, tmp):
        say(f"compiling {name}")
        model, batch = models.BENCH[name]
        out = self.out / "bench" / name
        command = [self.build / "bin" / "nnaot", onnx, "--batch", batch, "--loss", models.loss_spec(model), "--init", "random",
                   "--optimizer", "adamw:weight_decay=0.1,betas=0.9/0.95", "--lr", "0.0003", "--dtype", "bf16", "--target", ARCH]
        ran([*command, "-o", out])
        flop, size = (predicted(command, tmp / f"{name}.{what}", what) for what in ("flop", "bytes"))
        out.with_name(f"{name}.work.json").write_text(json.dumps({k: (flop[k], size[k]) for k in flop}))

    def add_scripts(self, bench):
        for file in SCRIPTS:
            shutil.copy(HERE / file, self.out)
        shutil.copy(ROOT / "samples" / "models.py", self.out)
        for name in sorted({p.program for p in PARTS}):
            (self.out / name).symlink_to("run")
        commit = ran(["git", "-C", ROOT, "rev-parse", "HEAD"]).strip() if (ROOT / ".git").exists() else "unknown"
        if commit != "unknown" and ran(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no"]).strip():
            commit = commit[:12] + "+changes"
        made = dict(version=ran([self.build / "bin" / "nnaot", "--version"]).strip(), commit=commit, emulator=self.emulator,
                    bench=bench, bench_steps=6 if self.emulator else 30,
                    parts=[p.name for p in self.parts if bench or "bench/" not in p.needs])
        (self.out / "made.json").write_text(json.dumps(made, indent=1) + "\n")


def at_a_time(work, jobs):
    """As many as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(lambda job: work(*job), jobs))


def python_for(model):
    """A Python with the packages that write the model."""
    own = ROOT / ".venv" / "bin" / "python3"
    wanted = "torch, torchvision" if models.needs_torch(model) else "onnx"
    for python in sys.executable, own:
        if pathlib.Path(python).exists() and not subprocess.run([python, "-c", f"import {wanted}"], capture_output=True).returncode:
            return python
    raise SystemExit(f"{model} is written with Python's {wanted}, which is not here")


def predicted(command, path, what):
    """FLOP or bytes of each operation: the predicted timeline on a machine with a rate of 1 T of these per second and
    unlimited other rates."""
    fast, slow = 1e18, 1e12
    flop, speed = (slow, fast) if what == "flop" else (fast, slow)
    cluster, out = path.with_suffix(".lua"), path.with_suffix(".json")
    cluster.write_text(f"return {{ per_node = 1, inside = {{ alpha = 0, beta = 0 }}, memory = 1e15, memory_speed = {speed:g}, "
                       f"f32 = {flop:g}, half = {flop:g}, launch = 0 }}\n")
    ran([*command, "--cluster", cluster, "--trace", out, "--emit", "nn", "-o", path.with_suffix(".nn")])
    work = collections.defaultdict(float)
    for e in json.loads(out.read_text())["traceEvents"]:
        if e["ph"] == "X" and e["cat"] == "op":
            key = f"{e['name']}  {e['args']['at']}"
            work[key] = max(work[key], e["dur"] * slow / 1e6)
    return work


def pack(out, limit):
    """Writes OUT.tar.xz.  The size of each folder and file in it is measured as it is written, approximately."""
    path = out.with_name(f"{out.name}.tar.xz")
    grown, at = collections.Counter(), 0
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": DICTIONARY}]
    with open(path, "wb") as raw:
        with lzma.open(raw, "wb", format=lzma.FORMAT_XZ, filters=filters) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for file in [out, *sorted(out.rglob("*"))]:
                tar.add(file, pathlib.Path(out.name) / file.relative_to(out), recursive=False)
                grown[str(file.relative_to(out))] += raw.tell() - at
                at = raw.tell()
    size = path.stat().st_size
    whole = sum(f.lstat().st_size for f in out.rglob("*") if not f.is_dir())
    say(f"{path}: {size / 2**20:.1f} MiB ({whole / 2**20:.0f} MiB unpacked)")
    if size > limit * 2**20:
        say("what it is full of:")
        for name, n in grown.most_common(15):
            say(f"  {n / 2**20:8.2f} MiB  {name}")
        raise SystemExit(f"{path.name} has {size / 2**20:.1f} MiB, and {limit:g} are allowed")
    say(f"there: tar xJf {path.name} && {out.name}/first")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--bench", action="store_true", help=f"the benchmark's models: {', '.join(BENCH)}")
    p.add_argument("--models", help=f"instead of these, of: {', '.join(models.BENCH)}")
    p.add_argument("--parts", help="only what these parts need (run --list)")
    p.add_argument("--emulator", action="store_true")
    p.add_argument("--limit", type=float, default=LIMIT, metavar="MIB")
    a = p.parse_args()
    parts = a.parts.split(",") if a.parts else []
    bench = a.models.split(",") if a.models else (EMULATED_BENCH if a.emulator else BENCH) if a.bench else []
    unknown = [x for x in parts if x not in {part.name for part in PARTS}] + [x for x in bench if x not in models.BENCH]
    if unknown:
        p.error(f"unknown: {', '.join(unknown)}")
    out = a.out.resolve()
    os.environ["BUILD"] = str(a.build.resolve())
    if a.emulator:
        os.environ["NVCC"] = str(a.build.resolve() / "emulator" / "nvcc")
    (out / "lib").mkdir(parents=True)
    b = Bundle(a.build.resolve(), out, parts, a.emulator)
    b.add_tests()
    b.add_runtime()
    b.add_samples()
    if bench:
        b.add_bench(bench)
    b.add_scripts(bench)
    pack(out, a.limit)


if __name__ == "__main__":
    main()
