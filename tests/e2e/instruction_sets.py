"""Ranks with different instruction sets or numbers of threads use the lowest, and give the bits of ranks that all have it.

NNRT_MAX_ISA, oneDNN's ONEDNN_MAX_CPU_ISA and OMP_NUM_THREADS make ranks of one machine different.
"""

import os
import pathlib
import shutil
import socket
import subprocess

from common import check, compile_in_a_hurry, compile_sample, data_flags, finish, free_port, scratch

# In the order of their names in the message; none is above the processor's own.
CPU = pathlib.Path("/proc/cpuinfo").read_text().split()
LEVELS = ["sse41"] + ["avx2"] * ("avx2" in CPU) + ["avx512"] * ("avx512f" in CPU)


class Job:
    """Two ranks, which compute the updates of biases twice: tensor parallelism."""

    def __init__(self, folder):
        self.exe, self.saved = folder / "train", folder / "saved"
        compile_sample("mlp", self.exe, ranks=2, extra=["--plan", "tp"])
        self.flags = [str(x) for x in (*data_flags("mlp"), "--steps", 20, "--save", self.saved)]

    def start(self, env, command=()):
        env = {**os.environ, "OMP_NUM_THREADS": "1", **env}
        return subprocess.Popen([*command, str(self.exe), *self.flags], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True)

    def ended(self, jobs):
        try:
            errs = [job.communicate(timeout=120)[1] for job in jobs]
        finally:
            for job in jobs:
                job.kill()
        bits = self.saved.read_bytes() if self.saved.exists() else None
        self.saved.unlink(missing_ok=True)
        return [job.returncode for job in jobs], "".join(errs), bits

    def threads(self, **env):
        return self.ended([self.start(env)])

    def sockets(self, *envs):
        world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        return self.ended([self.start({"RANK": str(rank), **world, **env}) for rank, env in enumerate(envs)])

    def mpi(self, *envs):
        first, second = (["-n", "1", "env", *(f"{k}={v}" for k, v in env.items())] for env in envs)
        return self.ended([self.start({}, ["mpirun", *first, str(self.exe), *self.flags, ":", *second])])


with scratch() as folder:
    folder = pathlib.Path(folder)
    compile_in_a_hurry(folder)
    job = Job(folder)
    alone = {level: job.threads(NNRT_MAX_ISA=level) for level in LEVELS}
    for level, (codes, err, bits) in alone.items():
        check(f"{level} trains", codes == [0] and bits, err)
    check("the sets give different bits", len({bits for _, _, bits in alone.values()}) == len(LEVELS))
    check("a set above the processor's own changes nothing", job.threads(NNRT_MAX_ISA="amx_fp16")[2] == job.threads()[2])

    for way in [job.sockets] + [job.mpi] * bool(shutil.which("mpirun")):
        for low in LEVELS[:-1]:
            for envs in ({"NNRT_MAX_ISA": low}, {}), ({}, {"NNRT_MAX_ISA": low}):
                codes, err, bits = way(*envs)
                rank = 0 if envs[0] else 1
                what = f"{way.__name__}: {low} at rank {rank}"
                check(f"{what}: the bits of {low} everywhere", set(codes) == {0} and bits == alone[low][2], err)
                check(f"{what}: named, once", err.count(f"note: all ranks use the instruction set '{low}': rank {rank} on "
                                                        f"{socket.gethostname()} has no higher one") == 1, err)
        # oneDNN's own variable of one rank is a limit of all.
        for name, value in ("ONEDNN_MAX_CPU_ISA", "SSE41"), ("DNNL_MAX_CPU_ISA", "sse41"):
            lower = {name: value}
            want = job.threads(**lower)[2]
            for envs in (lower, {}), ({}, lower):
                codes, err, bits = way(*envs)
                rank = envs.index(lower)
                check(f"{way.__name__}: {name} at rank {rank}", set(codes) == {0} and bits == want and "round" not in err and
                      f"note: all ranks use the instruction set 'sse41': rank {rank} on " in err, err)
            # The variable is no limit of kernels that are not oneDNN's, so neither rank is the lowest.
            if len(LEVELS) == 3:
                codes, err, _ = way(lower, {"NNRT_MAX_ISA": "avx2"})
                check(f"{way.__name__}: {name} beside NNRT_MAX_ISA", set(codes) == {0} and "round" not in err and
                      "note: all ranks use the instruction set 'sse41': no rank has all of another's" in err, err)
            codes, err, bits = way(lower, lower)
            check(f"{way.__name__}: {name} at all ranks", set(codes) == {0} and bits == want and "instruction set" not in err, err)
        codes, err, bits = way({}, {})
        silent = "instruction set" not in err and "thread" not in err
        check(f"{way.__name__}: equal ranks say nothing", set(codes) == {0} and silent, err)
        codes, err, _ = way({"OMP_NUM_THREADS": "2"}, {})
        check(f"{way.__name__}: the smaller number of threads",
              set(codes) == {0} and f"note: all ranks use 1 thread, as rank 1 on {socket.gethostname()}; rank 0 on " in err, err)

    codes, err, bits = job.threads(NNRT_MAX_ISA="avx3")
    check("a wrong name is refused", codes == [2] and bits is None and
          "error: NNRT_MAX_ISA is 'avx3', and no instruction set has this name\nhint: sse4.2, sse41, avx, avx2, " in err, codes, err)
finish()
