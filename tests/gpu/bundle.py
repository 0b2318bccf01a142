#!/usr/bin/env python3
"""Everything that is checked and timed on a GPU, prebuilt in one folder:  python3 bundle.py BUILD OUT [--bench]

BUILD is a build folder with the cuda target.  OUT gets test programs, samples compiled for sm_90, what they must
compute, and with --bench the executables of the benchmark, for which models are exported with PyTorch (python3 must have
torch and torchvision).  The machine with the GPU needs nothing else but python3 with numpy and, for the benchmark, torch:
there, OUT/run does the rest.  No weights are carried: the benchmark's executables draw them at start.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "e2e")]

STEPS = 20
ARCH = "cuda:sm_90"


def say(text):
    print(text, flush=True)


def bundle_samples(out):
    """Their executables, data, and the losses of PyTorch in f32."""
    from common import SAMPLES, compile_sample, data_flags
    for name in "mlp", "resnet", "gpt2":
        folder = out / "samples" / name
        folder.mkdir(parents=True)
        data_flags(name)
        for file in [*(SAMPLES / name).glob("*.npy"), SAMPLES / name / "expected.json"]:
            shutil.copy(file, folder)
        for dtype in "f32", "bf16":
            for ranks in 1, 2, 4:
                say(f"sample {name}, {dtype}, {ranks} ranks")
                compile_sample(name, folder / f"{dtype}-g{ranks}", "adamw", ranks,
                               ["--dtype", dtype, "--target", ARCH])


def bundle_bench(build, out):
    import bench_models as models
    (out / "bench").mkdir()
    with tempfile.TemporaryDirectory() as tmp:
        exported = {}
        for name, (model, batch) in models.BENCH.items():
            if model not in exported:
                say(f"exporting {model}")
                exported[model] = pathlib.Path(tmp) / model / "model.onnx"
                exported[model].parent.mkdir()
                subprocess.run([sys.executable, HERE / "bench_models.py", model, "-o", exported[model]], check=True)
            say(f"compiling {name}")
            subprocess.run([build / "bin" / "nnaot", exported[model], "--batch", str(batch), "--loss", models.loss_spec(model),
                            "--init", "random", "--optimizer", "adamw:weight_decay=0.1,betas=0.9/0.95", "--lr", "0.0003",
                            "--dtype", "bf16", "--target", ARCH, "-o", out / "bench" / name], check=True)


def bundle_tests(build, out):
    """The programs that CMake puts into BUILD/gpu, with their arguments, and the libraries they need but CUDA's."""
    shutil.copytree(build / "gpu", out / "tests")
    (out / "lib").mkdir()
    for program in (out / "tests").iterdir():
        listing = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for name, path in re.findall(r"(libffi\S+|libgomp\S+) => (\S+)", listing):
            shutil.copy(path, out / "lib" / name)
    for file in [*(ROOT / "tests" / "ops").glob("*.nn")]:
        shutil.copy(file, out / "tests")
    shutil.copytree(ROOT / "rt" / "cuda" / "devices", out / "devices")


def bundle_runtime(build, out):
    """The runtime's programs, for a GPU and for processors, and the scripts that run them."""
    # One executable each, and links to it.
    shutil.copytree(build / "gpu_rt", out / "runtime" / "gpu", symlinks=True)
    (out / "runtime" / "cpu").mkdir()
    for program in "rt_line", "line1", "line2", "line4":
        shutil.copy(build / "tests" / "rt" / program, out / "runtime" / "cpu", follow_symlinks=False)
    for file in [*HERE.glob("rt_*.py"), ROOT / "tests" / "rt" / "common.py"]:
        shutil.copy(file, out / "runtime")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--bench", action="store_true")
    a = p.parse_args()
    a.build = a.build.resolve()
    os.environ["BUILD"] = str(a.build)
    a.out.mkdir(parents=True)
    bundle_tests(a.build, a.out)
    bundle_runtime(a.build, a.out)
    bundle_samples(a.out)
    if a.bench:
        bundle_bench(a.build, a.out)
    for file in "run", "bench.py", "bench_models.py":
        shutil.copy(HERE / file, a.out)
    shutil.copy(ROOT / "samples" / "models.py", a.out)
    version = subprocess.run([a.build / "bin" / "nnaot", "--version"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    (a.out / "made.json").write_text(json.dumps(dict(version=version, commit=commit, steps=STEPS)) + "\n")
    size = sum(f.stat().st_size for f in a.out.rglob("*") if f.is_file())
    say(f"{a.out}: {size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
