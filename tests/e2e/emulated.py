"""One executable on processors without AVX and without AVX-512, which QEMU emulates: it has no later instructions, and finds
the kernels that NNRT_MAX_ISA selects natively.

The program starts itself again (rt/omp_spin.c), which would leave the emulator: GOMP_SPINCOUNT prevents it.  That the processor is
emulated shows in the note of a job with a native rank, which names the instruction set that the emulated one lacks.
"""

import json
import os
import pathlib
import shutil
import subprocess

from common import check, compile_in_a_hurry, compile_sample, data_flags, finish, free_port, scratch

# Processors of QEMU, and the instruction set that executables use there.
PROCESSORS = {"Nehalem": "sse41", "Haswell": "avx2"}
STEPS = {"mlp": 12, "resnet": 4, "gpt2": 2}
NEAREST = 1e-6  # relative: oneDNN may divide its work by the sizes of caches, which differ
CPU = pathlib.Path("/proc/cpuinfo").read_text().split()


def losses(log):
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def near(got, want):
    return len(got) == len(want) and all(abs(a - b) <= NEAREST * abs(b) for a, b in zip(got, want))


def train(sample, exe, log, emulator=(), **env):
    log.unlink(missing_ok=True)
    command = [*emulator, exe, *data_flags(sample), "--steps", STEPS[sample], "--log", log]
    done = subprocess.run(list(map(str, command)), env={**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000", **env},
                          capture_output=True, text=True, timeout=300)
    return losses(log) if done.returncode == 0 else [], done.stderr


def note_of(exe, emulator):
    """The messages of a job of a native rank and an emulated one."""
    world = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(free_port())}
    flags = [str(x) for x in (exe, *data_flags("mlp"), "--steps", 2)]
    jobs = [subprocess.Popen([*before, *flags], env={**world, "RANK": str(rank)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             text=True) for rank, before in enumerate(([], emulator))]
    try:
        errors = [job.communicate(timeout=120)[1] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    return [job.returncode for job in jobs], "".join(errors)


with scratch() as folder:
    folder = pathlib.Path(folder)
    compile_in_a_hurry(folder)
    qemu = shutil.which("qemu-x86_64")
    check("qemu-x86_64 is installed: tools/setup test", qemu is not None)
    executables = {}
    for sample in STEPS:
        for dtype in "f32", "bf16":
            executables[sample, dtype] = folder / f"{sample}_{dtype}"
            compile_sample(sample, executables[sample, dtype], extra=["--dtype", dtype])
    pair = folder / "pair"
    compile_sample("mlp", pair, ranks=2)
    for processor, level in PROCESSORS.items():
        if level != "sse41" and level not in CPU:  # nothing native to compare with
            continue
        emulator = [qemu, "-cpu", processor]
        codes, messages = note_of(pair, emulator)
        # An emulated rank is the lowest one, unless this processor is no better.
        better = {"sse41": "avx2" in CPU, "avx2": "avx512f" in CPU}[level]
        check(f"{processor} is emulated", codes == [0, 0] and
              (not better or f"all ranks use the instruction set '{level}': rank 1 on " in messages), codes, messages)
        for (sample, dtype), exe in executables.items():
            want, _ = train(sample, exe, folder / "native.jsonl", NNRT_MAX_ISA=level)
            got, messages = train(sample, exe, folder / "emulated.jsonl", emulator)
            check(f"{sample} in {dtype} on {processor}: as with NNRT_MAX_ISA={level}", want and near(got, want), got, want,
                  messages)
finish()
