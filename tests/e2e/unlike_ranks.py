"""Ranks that are not alike: other metrics or variables are an error, other libraries a note, after which --check-replicas looks
at the size of a difference.

A library that is loaded before oneDNN makes it another one on a single rank: of another version, and with LOWER in the
environment with another instruction set, about which ranks cannot agree.  gpt2 under tensor parallelism then really differs
by rounding; gross differences are bits that are flipped in the memory of a rank.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

from common import check, compile_in_a_hurry, data_flags, finish, free_port, run, scratch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
from flipped_weights import Program, corrupted  # noqa: E402

OTHER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

typedef struct { int major, minor, patch; const char *hash; unsigned cpu, gpu; } dnnl_version_t;
int dnnl_set_max_cpu_isa(int);

const dnnl_version_t *dnnl_version(void) {
  static dnnl_version_t other;
  const dnnl_version_t *(*own)(void) = (const dnnl_version_t *(*)(void))dlsym(RTLD_NEXT, "dnnl_version");
  other = *own();
  other.patch += 1;
  return &other;
}
__attribute__((constructor)) static void lower(void) {
  if (getenv("LOWER")) dnnl_set_max_cpu_isa(1);
}
"""
HINT = "hint: it is a variable of the environment, which changes results: set it to one value on all ranks\n"


def sockets(program, flags, *envs):
    world = {"WORLD_SIZE": str(len(envs)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    command = [str(x) for x in (program.exe, *program.data, *flags)]
    jobs = [subprocess.Popen(command, env={**os.environ, **world, "RANK": str(rank), **env}, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for rank, env in enumerate(envs)]
    try:
        errs = [job.communicate(timeout=120)[1] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    return {job.returncode for job in jobs}, "".join(errs)


def mpi(program, flags, *envs):
    command = ["mpirun"]
    for env in envs:
        command += [":"] * (len(command) > 1) + ["-n", "1", "env", "OMP_NUM_THREADS=1", *(f"{k}={v}" for k, v in env.items())]
        command += [str(x) for x in (program.exe, *program.data, *flags)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120)
    return {done.returncode}, done.stderr


WAYS = [sockets] + [mpi] * bool(shutil.which("mpirun"))


def variables(program):
    """What libraries read from the environment is equal, or an error."""
    hints = {"ONEDNN_CPU_ISA_HINTS": "PREFER_YMM"}
    for way in WAYS:
        for said, *envs in [("PREFER_YMM at rank 0, but not set at rank 1", hints, {}),
                            ("not set at rank 0, but PREFER_YMM at rank 1", {}, hints)]:
            codes, err = way(program, ["--steps", 2], *envs)
            check(f"{way.__name__}: {said}", codes == {2} and err.count("error: ") == 1 and
                  f"rank 0: error: ONEDNN_CPU_ISA_HINTS is {said}\n{HINT}" in err, codes, err)
        for envs in (hints, hints), ({"ONEDNN_CPU_ISA_HINTS": ""}, {"DNNL_CPU_ISA_HINTS": "no_hints"}):
            codes, err = way(program, ["--steps", 2], *envs)
            check(f"{way.__name__}: {envs} train", codes == {0} and "round" not in err, codes, err)


def metrics(program):
    """Metrics are sums over all ranks."""
    evaluated = [flag.replace("--input", "--eval-input") for flag in data_flags("mlp")]
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    given = ["--metric", "accuracy(logits)"]
    for rank0, rank1, said in [(given, given * 2, "accuracy(logits) at rank 0, but accuracy(logits), accuracy(logits) at rank 1"),
                               (given, [], "accuracy(logits) at rank 0, but not given at rank 1"), (given, given, None)]:
        world["MASTER_PORT"] = str(free_port())
        jobs = [subprocess.Popen([str(x) for x in (program.exe, *program.data, *evaluated, "--steps", 2, *more)],
                                 env={**os.environ, **world, "RANK": str(rank)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 text=True) for rank, more in enumerate((rank0, rank1))]
        err = "".join(job.communicate(timeout=60)[1] for job in jobs)
        codes = {job.returncode for job in jobs}
        if said:
            check(f"--metric: {said}", codes == {2} and f"error: --metric is {said}\n" in err, codes, err)
        else:
            check("equal metrics", codes == {0}, codes, err)


def rounding(program, other):
    """Copies that really differ by rounding: a warning, once, and training goes on.  Without the note they would end it."""
    lower = {"LD_PRELOAD": other, "LOWER": "1"}
    for way in WAYS:
        for envs in ({}, lower), (lower, {}):
            codes, err = way(program, ["--steps", 6, "--check-replicas", 2], *envs)
            rank = envs.index(lower)
            what = f"{way.__name__}: other rounding at rank {rank}"
            check(f"{what}: trains", codes == {0}, codes, err)
            note = re.search(r"rank 0: note: ranks may round differently: (.*); so copies of a weight may differ", err)
            said = note.group(1) if note else ""
            version, instructions = (re.search(rf"{name} is (\S+).* at rank 0, but (\S+).* at rank 1(;|$)", said)
                                     for name in ("oneDNN", "oneDNN's instruction set"))
            check(f"{what}: the note has both differences, once", version and instructions and
                  version.group(1) != version.group(2) and err.count("note: ranks may round") == 1, err)
            size = re.search(r"warning: after step 2: ranks 0 and 1 hold different values of .*; the difference is (\S+) of the norm"
                             r" of the weights, (\S+) of the states': ranks round differently, so training goes on", err)
            check(f"{what}: a warning has the size", size and all(1e-9 < float(x) < 1e-4 for x in size.groups()), err)
            check(f"{what}: once", err.count("warning: ") == 1, err)
        codes, err = way(program, ["--steps", 4, "--check-replicas", 0], {}, lower)
        check(f"{way.__name__}: without comparisons nothing is said", codes == {0} and "round" not in err, codes, err)
        codes, err = way(program, ["--steps", 4, "--check-replicas", 2], lower, lower)
        check(f"{way.__name__}: ranks that are alike", codes == {0} and "round" not in err, codes, err)


def flips(program, other):
    """Of ranks of another version: the lowest bits of a mantissa are a warning, the highest of an exponent are an error."""
    key = next(key for key in program.tensors if key[0] == "weight" and program.copies(key)[1] > 100)
    unlike = [{"LD_PRELOAD": other}, {}, {}]
    # Bits 27 to 30 make an f32 from 2^-15 to 1 larger by 2^16: the loss stays a number.
    for bit, unlike_here, gross in [(12, unlike, False), ((27, 28, 29, 30), unlike, True), (30, unlike, True),
                                    (12, [{}] * 3, True)]:
        what = f"bit {bit}, {'other' if unlike_here is unlike else 'equal'} ranks"
        before, err, codes = corrupted(program, program.exe.parent, 2, True, random.Random(str(bit)), key, 1, bit, envs=unlike_here,
                                       enough=None if gross else 40)
        named = f"rank 1 holds other values of the weight '{key[1]}' than ranks 0 and 2"
        found = re.search(rf"(error|warning): after step \d+: {re.escape(named)}(.*)", err)
        check(f"{what}: named", found, err)
        if not found:
            continue
        sized = "the difference is " in found.group(2)
        if unlike_here is not unlike:
            check(f"{what}: an error without a size", found.group(1) == "error" and codes == {1} and not sized, codes, err)
        elif gross:
            check(f"{what}: an error with its size", found.group(1) == "error" and codes == {1} and
                  (sized or "only some of the copies are finite" in found.group(2)), codes, err)
            check(f"{what}: the state before",
                  "all were equal: memory, a computation or a transfer was corrupted" in found.group(2), err)
        else:
            # The processes are killed one after the other, so the last may report that the first is gone.
            check(f"{what}: a warning", found.group(1) == "warning" and err.count("warning: ") == 1 and
                  "error: after" not in err, err)
            check(f"{what}: small", sized, err)


with scratch() as folder:
    folder = pathlib.Path(folder)
    compile_in_a_hurry(folder)
    other = folder / "other.so"
    (folder / "other.c").write_text(OTHER)
    run("cc", "-shared", "-fPIC", folder / "other.c", "-o", other, "-ldl")
    programs = []
    for plan, ranks, sample, flags in ("tp", 2, "gpt2", []), ("dp", 2, "mlp", []), ("dp", 3, "mlp", ["--batch", 15]):
        at = folder / f"{sample}{ranks}"
        at.mkdir()
        programs.append(Program(at, plan, ranks, sample, flags))
    tp, dp, dp3 = programs
    variables(dp)
    metrics(dp)
    rounding(tp, other)
    flips(dp3, other)
finish()
