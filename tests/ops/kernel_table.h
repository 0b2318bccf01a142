// All kernels that the op table promises, by name.  kernel_table.c writes the table as C: a missing
// kernel is a linker error.

#ifndef TESTS_OPS_KERNEL_TABLE_H
#define TESTS_OPS_KERNEL_TABLE_H

typedef struct KernelEntry {
  const char *name; // "nnrt_linear_f32"
  void (*function)(void);
} KernelEntry;

extern const KernelEntry kernel_table[];
extern const int n_kernels;
extern const KernelEntry batch_kernel_table[]; // of rows with trait MULTI_TENSOR; only linked

#endif
