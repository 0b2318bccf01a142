// The machine of generated kernels: this one (machine_cpu.c), or an emulated gpu (machine_cuda.c).

#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stdint.h>

typedef int Kernel(void **buffers); // results, then operands

bool machine_open(const char *code); // code in C; for a gpu it is compiled already
Kernel *machine_kernel(const char *name);
// Memory that kernels can use, and its contents after they have run.
void *machine_new(const void *from, int64_t bytes);
void machine_read(void *to, const void *at, int64_t bytes);
void machine_free_all(void);

#endif
