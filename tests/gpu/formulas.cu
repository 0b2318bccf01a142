// Every formula of ops.def compiles as CUDA C: generated kernels on GPUs use the same text as on
// the CPU.  Compiling is the test; running needs a GPU.

#include "nnrt_math.h"

// Rows of integers compute in one, all others in float.
template <bool Integer> struct Number { typedef float T; };
template <> struct Number<true> { typedef int32_t T; };

#define FORMULA(name, types, formula)                                                              \
  __global__ void formula_##name(int n, float *out, const float *in0, const float *in1,            \
                                 const float *in2, float a, float b) {                             \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                                 \
    if (i >= n) return;                                                                            \
    typedef Number<(types)[0] == 'Z'>::T T;                                                        \
    const T x = (T)in0[i], y = (T)in1[i], z = (T)in2[i];                                           \
    (void)x, (void)y, (void)z, (void)a, (void)b;                                                   \
    out[i] = (float)(formula);                                                                     \
  }

#define OP(...)
#define E1(name, types, attrs, grad, traits, formula) FORMULA(name, types, formula)
#define E2(name, types, attrs, grad, traits, formula) FORMULA(name, types, formula)
#define E3(name, types, attrs, grad, traits, formula) FORMULA(name, types, formula)
#include "ir/ops.def"
