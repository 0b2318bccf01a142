// Kernels as threads of blocks of a grid: indices, barriers, warps, atomics, shared memory.

#include <cuda_runtime.h>

#include "test.h"

static int *memory; // in GPU memory, COUNT ints
enum { COUNT = 1 << 16 };
static int got[COUNT];

// Runs the launched work, and copies the memory to `got`.
static void fetch() {
  OK(cudaGetLastError());
  OK(cudaMemcpy(got, memory, sizeof got, cudaMemcpyDeviceToHost));
}

// ---- Indices

static __global__ void say_who(int *out) {
  dim3 b = gridDim, t = blockDim;
  unsigned block = (blockIdx.z * b.y + blockIdx.y) * b.x + blockIdx.x;
  unsigned thread = (threadIdx.z * t.y + threadIdx.y) * t.x + threadIdx.x;
  out[block * t.x * t.y * t.z + thread]++;
}

static void test_who() {
  OK(cudaMemset(memory, 0, sizeof got));
  emulated_launch(dim3(3, 4, 5), dim3(6, 7, 8), 0, NULL, say_who, memory);
  fetch();
  for (int i = 0; i < COUNT; i++)
    CHECK(got[i] == (i < 3 * 4 * 5 * 6 * 7 * 8));
}

// ---- Sums over a block with a partial last warp, and with threads that end early

template <int threads> static __global__ void sum_block(int *out, int stay) {
  __shared__ int part[threads];
  int i = (int)threadIdx.x;
  if (i >= stay) return;
  part[i] = i + (int)blockIdx.x;
  __syncthreads();
  for (int half = 512; half > 0; half /= 2) {
    if (i < half && i + half < stay) part[i] += part[i + half];
    __syncthreads();
  }
  if (i == 0) out[blockIdx.x] = part[0];
}

static void test_barriers() {
  for (int stay = 1; stay <= 1000; stay += 111) {
    emulated_launch(5, 1000, 0, NULL, sum_block<1000>, memory, stay);
    fetch();
    for (int b = 0; b < 5; b++)
      CHECK(got[b] == stay * (stay - 1) / 2 + stay * b);
  }
}

// ---- Warps

static __global__ void shuffles(int *out, int width) {
  int lane = (int)threadIdx.x % 32, *mine = out + threadIdx.x * 4;
  mine[0] = __shfl_sync(0xffffffffu, lane, 3, width);
  mine[1] = __shfl_xor_sync(0xffffffffu, lane, 5, width);
  mine[2] = __shfl_up_sync(0xffffffffu, lane, 2, width);
  mine[3] = (int)__shfl_down_sync(0xffffffffu, (double)lane, 3, width);
}

static __global__ void votes(int *out) {
  unsigned lane = threadIdx.x % 32, odd = 0xaaaaaaaau;
  int *mine = out + threadIdx.x * 5;
  mine[0] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
  mine[1] = __any_sync(0xffffffffu, lane == 7);
  mine[2] = __all_sync(0xffffffffu, lane != 7);
  // Half a warp, in another order than the threads began.
  mine[3] = mine[4] = 0;
  if (lane % 2) mine[3] = __shfl_xor_sync(odd, (int)lane, 2);
  if (lane % 2 == 0) mine[4] = (int)__ballot_sync(~odd, 1);
  __syncwarp();
}

// Values of ended lanes are undefined.
static __global__ void from_ended(int *out) {
  if (threadIdx.x >= 16) return;
  out[threadIdx.x] = __shfl_sync(0xffffffffu, (int)threadIdx.x, 20);
}

static void test_warps() {
  for (int width = 1; width <= 32; width *= 2) {
    emulated_launch(1, 64, 0, NULL, shuffles, memory, width);
    fetch();
    for (int i = 0; i < 64; i++) {
      int lane = i % 32, group = lane / width * width, end = group + width;
      CHECK(got[4 * i] == group + 3 % width);
      CHECK(got[4 * i + 1] == ((lane ^ 5) < end ? lane ^ 5 : lane));
      CHECK(got[4 * i + 2] == (lane - 2 >= group ? lane - 2 : lane));
      CHECK(got[4 * i + 3] == (lane + 3 < end ? lane + 3 : lane));
    }
  }
  emulated_launch(1, 96, 0, NULL, votes, memory);
  fetch();
  for (int i = 0; i < 96; i++) {
    CHECK(got[5 * i] == 0x49249249 && got[5 * i + 1] == 1 && got[5 * i + 2] == 0);
    CHECK(got[5 * i + 3] == (i % 2 ? i % 32 ^ 2 : 0));
    CHECK(got[5 * i + 4] == (i % 2 ? 0 : 0x55555555));
  }
  emulated_launch(1, 32, 0, NULL, from_ended, memory);
  fetch();
  for (int i = 0; i < 16; i++)
    CHECK(got[i] == -1);
}

// ---- Atomics

static __global__ void atomics(int *out, float *sum, unsigned long long *wide) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(out, i);
  atomicMax(out + 1, i);
  atomicMin(out + 2, -i);
  if (atomicCAS(out + 3, 0, i + 1) == 0) atomicExch(out + 4, i + 1);
  atomicOr((unsigned *)out + 5, 1u << i % 32);
  atomicInc((unsigned *)out + 6, 9);
  atomicAdd(sum, 0.5f);
  atomicAdd(wide, 1ull << 32);
}

static void test_atomics() {
  OK(cudaMemset(memory, 0, sizeof got));
  emulated_launch(7, 100, 0, NULL, atomics, memory, (float *)memory + 10,
                  (unsigned long long *)(memory + 12));
  fetch();
  float sum;
  memcpy(&sum, got + 10, sizeof sum);
  CHECK(got[0] == 699 * 700 / 2 && got[1] == 699 && got[2] == -699);
  CHECK(got[3] != 0 && got[3] == got[4] && got[5] == -1 && got[6] == 0);
  CHECK(sum == 350 && got[12] == 0 && got[13] == 700);
}

// ---- Shared memory

static __global__ void read_unwritten(float *out, int n) {
  __shared__ float still[64];
  EMULATED_DYNAMIC_SHARED(float, moving);
  out[threadIdx.x] = still[threadIdx.x] + moving[threadIdx.x % n];
  still[threadIdx.x] = 1; // lost before the next block
  moving[threadIdx.x % n] = 1;
}

// Warps read data that others have not yet written: one half of the blocks detects it.
static __global__ void forgets_barrier(float *out) {
  __shared__ float part[64];
  part[threadIdx.x] = 1;
  out[blockIdx.x * 64 + threadIdx.x] = part[63 - threadIdx.x];
}

static __global__ void uses_dynamic(int *out, int n) {
  EMULATED_DYNAMIC_SHARED(int, part);
  CHECK((uintptr_t)part % 16 == 0);
  for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
    part[i] = i;
  __syncthreads();
  for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
    out[i] = part[n - 1 - i];
}

static void test_shared() {
  float *x = (float *)got;
  emulated_launch(3, 64, 40 * sizeof(float), NULL, read_unwritten, (float *)memory, 40);
  fetch();
  for (int i = 0; i < 64; i++)
    CHECK(x[i] != x[i]);
  emulated_launch(2, 64, 0, NULL, forgets_barrier, (float *)memory);
  fetch();
  int nan[2] = {0, 0};
  for (int i = 0; i < 128; i++)
    nan[i / 64] += x[i] != x[i];
  CHECK(nan[0] == 32 && nan[1] == 32);
  int n = 227 * 1024 / 4;
  emulated_launch(1, 256, (size_t)n * 4, NULL, uses_dynamic, memory, n);
  fetch();
  for (int i = 0; i < n; i++)
    CHECK(got[i] == n - 1 - i);
}

// ---- Arithmetic and arguments

struct Argument {
  float4 x;
  char name[40];
};

static __global__ void arithmetic(int *out, Argument a, long long big) {
  out[0] = __popc(0xf0f0u) + __clz(1) * 100 + __ffs(8) * 10000;
  out[1] = (int)__brev(1);
  out[2] = (int)__float_as_uint(1.0f);
  out[3] = (int)rsqrtf(1.0f / 16) + (int)a.x.w + a.name[39];
  out[4] = (int)(big >> 32) + max(3, 4) + min(5u, 6u);
  out[5] = (int)__umulhi(1u << 31, 6) + (int)fminf(2.5f, 7);
}

static void test_arithmetic() {
  Argument a = {make_float4(1, 2, 3, 4), {0}};
  a.name[39] = 9;
  emulated_launch(1, 1, 0, NULL, arithmetic, memory, a, (long long)1 << 33);
  a.name[39] = 0; // too late
  fetch();
  CHECK(got[0] == 8 + 3100 + 40000 && got[1] == INT32_MIN && got[2] == 0x3f800000);
  CHECK(got[3] == 4 + 4 + 9 && got[4] == 2 + 4 + 5 && got[5] == 3 + 2);
}

// ---- Launches that CUDA refuses

static __global__ void nothing() {}

static void test_refused() {
  struct {
    dim3 grid, block;
    size_t shared;
    cudaError_t error;
  } bad[] = {
      {dim3(0), dim3(1), 0, cudaErrorInvalidConfiguration},
      {dim3(1), dim3(0), 0, cudaErrorInvalidConfiguration},
      {dim3(1), dim3(1025), 0, cudaErrorInvalidConfiguration},
      {dim3(1), dim3(1, 1, 65), 0, cudaErrorInvalidConfiguration},
      {dim3(1, 65536), dim3(1), 0, cudaErrorInvalidConfiguration},
      {dim3(1), dim3(1), 228 * 1024, cudaErrorInvalidValue},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    emulated_launch(bad[i].grid, bad[i].block, bad[i].shared, NULL, nothing);
    CHECK_IS(cudaPeekAtLastError(), bad[i].error);
    CHECK_IS(cudaGetLastError(), bad[i].error);
    OK(cudaGetLastError());
  }
}

int main() {
  OK(cudaMalloc(&memory, sizeof got));
  test_who();
  test_barriers();
  test_warps();
  test_atomics();
  test_shared();
  test_arithmetic();
  test_refused();
  OK(cudaFree(memory));
}
