"""A step of an executable allocates no memory, once the first steps are done: of threads and of processes, under each kind of plan.

A library that is loaded before the others counts the calls of malloc and its like, by whether the caller is the program.  Those
of oneDNN and libgomp are printed with --table: they allocate small blocks in each call of a kernel.
"""

import os
import pathlib
import subprocess
import sys

from common import check, compile_in_a_hurry, compile_sample, data_flags, finish, run, scratch

FEW, MANY = 100, 300
CASES = [("dp", 2, []), ("tp", 2, []), ("zero3", 2, []), ("sp", 2, []), ("pp=2,dp=2", 4, ["--micro-batches", 2]),
         ("cross_barrier", 2, []), ("offload", 2, [])]
COUNTER = r"""
#define _GNU_SOURCE
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static atomic_long program, libraries;
static size_t begin, end;

static int first(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  (void)data;
  begin = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_LOAD) end = begin + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
  return 1;
}
static void count(void *caller) {
  *((size_t)caller >= begin && (size_t)caller < end ? &program : &libraries) += 1;
}
#define COUNT count(__builtin_return_address(0))
void *malloc(size_t n) { COUNT; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { COUNT; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { COUNT; return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { COUNT; return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { COUNT; return (*p = __libc_memalign(a, n)) ? 0 : 12; }
__attribute__((constructor)) static void find(void) { dl_iterate_phdr(first, 0); }
__attribute__((destructor)) static void report(void) {
  FILE *f = fopen(getenv("ALLOCATIONS"), "a");
  if (f) fprintf(f, "%ld %ld\n", (long)program, (long)libraries), fclose(f);
}
"""


def counted(folder, exe, ranks, processes, steps):
    """Calls of the program and of its libraries, in all processes together."""
    path = folder / "counts"
    path.unlink(missing_ok=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(folder / "counter.so"), "ALLOCATIONS": str(path)}
    command = [str(x) for x in (exe, *data_flags("mlp"), "--steps", steps, "--log", folder / "log")]
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    jobs = [subprocess.Popen(command, env={**env, **(dict(world, RANK=str(rank)) if processes else {})}, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for rank in range(ranks if processes else 1)]
    errs = [job.communicate(timeout=120)[1] for job in jobs]
    check(f"{exe.name} trains", all(job.returncode == 0 for job in jobs), *errs)
    # A process that restarts itself with other settings reports once, at its end.
    rows = [[int(x) for x in line.split()] for line in path.read_text().splitlines()]
    check(f"{exe.name}: every process reports", len(rows) == len(jobs), rows)
    return [sum(column) for column in zip(*rows)]


with scratch() as folder:
    folder = pathlib.Path(folder)
    compile_in_a_hurry(folder)
    (folder / "counter.c").write_text(COUNTER)
    run("cc", "-O1", "-shared", "-fPIC", folder / "counter.c", "-o", folder / "counter.so")
    for plan, ranks, flags in CASES:
        exe = folder / plan.replace("=", "").replace(",", "_")
        compile_sample("mlp", exe, ranks=ranks, extra=["--plan", plan, *flags])
        for processes in False, True:
            few, many = (counted(folder, exe, ranks, processes, steps) for steps in (FEW, MANY))
            own, others = (m - f for m, f in zip(many, few))
            what = f"{plan}, {ranks} {'processes' if processes else 'threads'}"
            if "--table" in sys.argv:
                of = (MANY - FEW) * ranks
                print(f"{what:24} a step and rank: program {own / of:6.2f}  libraries {others / of:7.2f}")
            # The number of messages in flight is not the same in each step: its maximum may be reached late.
            check(f"{what}: a step does not allocate", own * 10 < MANY - FEW, f"{own} more allocations in {MANY - FEW} more steps")
finish()
