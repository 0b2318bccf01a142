# The cuda target: sources relative to rt/.  tests/gpu/emulator compiles the same ones as C++.

# C over the CUDA runtime and its libraries.
set(CUDA_C_FILES cuda/gpu.c
    cuda/linear.c cuda/products.c cuda/tune.c)

# CUDA C: kernels, and what launches them.
set(CUDA_FILES cuda/copy.cu
    cuda/epilogue.cu)
