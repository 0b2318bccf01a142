// Where generated kernels run: this machine (machine_cpu.c), or an emulated gpu (machine_cuda.c).

#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stdint.h>

typedef int Kernel(void **buffers); // results, then operands

bool machine_open(const char *code); // in C; for a gpu it was compiled before
Kernel *machine_kernel(const char *name);
// Memory that kernels can use, and what is in it when they are done.
void *machine_new(const void *from, int64_t bytes);
void machine_read(void *to, const void *at, int64_t bytes);
void machine_free_all(void);

#endif
