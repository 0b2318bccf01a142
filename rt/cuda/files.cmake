# The cuda target: sources relative to rt/.  tests/gpu/emulator compiles the same ones as C++.

# C over the CUDA runtime and its libraries.
set(CUDA_C_FILES cuda/gpu.c)

# CUDA C: kernels, and what launches them.
set(CUDA_FILES cuda/copy.cu)
