// Every formula of ops.def compiles as CUDA C: generated kernels on GPUs use the same text as on
// the CPU.  Compiling is the test; running needs a GPU.

#include "nnrt_math.h"

#define FORMULA(name, formula)                                                                     \
  __global__ void formula_##name(int n, float *out, const float *in0, const float *in1,            \
                                 const float *in2, float a, float b) {                             \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                                 \
    if (i >= n) return;                                                                            \
    const float x = in0[i], y = in1[i], z = in2[i];                                                \
    (void)x, (void)y, (void)z, (void)a, (void)b;                                                   \
    out[i] = (float)(formula);                                                                     \
  }

#define OP(...)
#define E1(name, types, attrs, grad, traits, formula) FORMULA(name, formula)
#define E2(name, types, attrs, grad, traits, formula) FORMULA(name, formula)
#define E3(name, types, attrs, grad, traits, formula) FORMULA(name, formula)
#include "ir/ops.def"
