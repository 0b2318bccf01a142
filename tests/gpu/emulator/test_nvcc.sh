#!/bin/bash
# test_nvcc.sh NVCC FOLDER: the wrapper accepts nvcc's command line, and links the emulator's libraries.
set -euo pipefail
nvcc=$1 here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$2" && mkdir -p "$2" && cd "$2"

fail() {
  echo "$1" >&2
  exit 1
}

"$nvcc" --list-gpu-code | grep -qx sm_90 || fail "no sm_90"
"$nvcc" --version | grep -q release || fail "no version"

# The command lines of backends.
"$nvcc" -v -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -arch=sm_90 --threads 0 -lineinfo \
  -Xcompiler -Wall,-fno-math-errno -Xptxas -v -I"$here" -c "$here/test_kernels.cu" -o kernels.o 2>log
grep -q -- "'-fno-math-errno'" log || fail "the compiler's flag is lost"
! grep -q gencode log || fail "the gpu's flag is not"
echo 'int main(void) { return 0; }' | cc -x c -c - -o empty.o
"$nvcc" -v -cudart static kernels.o -Xcompiler -fopenmp -L/nowhere -lcublasLt -lcudnn -lnccl \
  -Xlinker -rpath -Xlinker '$ORIGIN/lib' -lm -lpthread -o kernels 2>log
! grep -q "'-lcudnn'" log || fail "it links the real cudnn"
readelf -d kernels | grep -q 'ORIGIN/lib' || fail "the search path is lost"
! ldd kernels | grep -q 'libcu\|libnccl' || fail "the program needs the real libraries"
./kernels

# Archives by path, also with --whole-archive.
"$nvcc" -cudart static empty.o -Xlinker --whole-archive,/nowhere/libcudnn_graph_static.a,--no-whole-archive \
  /nowhere/libcublasLt_static.a /nowhere/libculibos.a -o empty
./empty

# Kernels run if there is code for the GPU, or PTX of an older one.
cat >code.cu <<'END'
#include <cuda_runtime.h>
static __global__ void nothing() {
}
int main() {
  cudaFuncAttributes attributes;
  bool known = cudaFuncGetAttributes(&attributes, (const void *)nothing) == cudaSuccess;
  cudaGetLastError();
  emulated_launch(1, 1, 0, NULL, nothing);
  cudaError_t e = cudaGetLastError();
  if (known != (e == cudaSuccess)) return 2;
  return e == cudaErrorNoKernelImageForDevice;
}
END
runs() { # FLAGS, then GPUs that run it and, after --, GPUs that do not
  "$nvcc" $1 -c code.cu -o code.o && "$nvcc" -cudart static code.o -o code
  local want=0 got sm
  for sm in "${@:2}"; do
    if [[ $sm == -- ]]; then
      want=1
      continue
    fi
    got=0
    EMULATED_SM=$sm ./code || got=$?
    ((got == want)) || fail "$1 on sm_$sm: $got"
  done
}
runs "-gencode arch=compute_80,code=sm_80" 80 86 -- 75 90 100
runs "-gencode arch=compute_86,code=sm_86" 86 89 -- 80 90
runs "-gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90" 90 100 120 -- 80 89
runs "-gencode=arch=compute_80,code=[sm_80,compute_80]" 80 90 -- 75
runs "-arch=sm_90" 90 100 -- 86

# A compile error fails.
echo 'nonsense' >bad.cu
! "$nvcc" -c bad.cu -o bad.o 2>/dev/null || fail "nonsense compiles"
