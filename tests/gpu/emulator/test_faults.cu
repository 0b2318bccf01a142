// An error in a kernel ends the program, with the name of the kernel.

#include <cuda_runtime.h>

#include "test.h"

static float *y; // 100 floats

static void run() {
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
}

static __global__ void half_at_barrier() {
  if (threadIdx.x < 5) __syncthreads();
  __syncwarp();
}
static void divergent() {
  emulated_launch(1, 64, 0, NULL, half_at_barrier);
  run();
}

static __global__ void lonely_shuffle(float *to) {
  if (threadIdx.x == 3) to[0] = __shfl_sync(0xffffffffu, 1.0f, 0);
  __syncthreads();
}
static void shuffle_without_others() {
  emulated_launch(dim3(1, 2), 64, 0, NULL, lonely_shuffle, y);
  run();
}

static __global__ void not_in_mask(float *to) {
  to[0] = __shfl_sync(1u, 1.0f, 0);
}
static void stranger() {
  emulated_launch(1, 32, 0, NULL, not_in_mask, y);
  run();
}

static __global__ void writes_far(float *to, int at) {
  to[at] = 1;
}
static void far_after() {
  emulated_launch(1, 1, 0, NULL, writes_far, y, 100 + 64);
  run();
}
static void far_before() {
  emulated_launch(1, 1, 0, NULL, writes_far, y, -1024);
  run();
}
static void just_after() {
  emulated_launch(1, 1, 0, NULL, writes_far, y, 100);
  run();
  OK(cudaFree(y));
}
static void just_before() {
  emulated_launch(1, 1, 0, NULL, writes_far, y, -1);
  run();
  OK(cudaFree(y));
}
static void after_free() {
  emulated_launch(1, 1, 0, NULL, writes_far, y, 0);
  run();
  OK(cudaFree(y));
  emulated_launch(1, 1, 0, NULL, writes_far, y, 0);
  run();
}

static __global__ void writes_past_shared() {
  EMULATED_DYNAMIC_SHARED(int, part);
  part[10] = 1;
}
static void past_shared() {
  emulated_launch(1, 1, 10 * sizeof(int), NULL, writes_past_shared);
  run();
}

static __global__ void recurses(volatile char *up, int depth) {
  volatile char here[4096];
  here[0] = up ? up[0] : 0;
  if (depth > 0) recurses(here, depth - 1);
  here[1] = here[0];
}
static void deep() {
  emulated_launch(1, 1, 0, NULL, recurses, (volatile char *)NULL, 1 << 20);
  run();
}

static void host_reads() {
  *(volatile float *)y;
}

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 }; // ASan reports invalid accesses first
#else
enum { SANITIZED = 0 };
#endif

static const char *touches(const char *words) {
  return SANITIZED ? "AddressSanitizer" : words;
}

int main() {
  OK(cudaMalloc(&y, 100 * sizeof *y));
  check_dies(divergent, "kernel 'half_at_barrier()', block 0,0,0 of 64 threads: nobody can go on: "
                        "5 wait at __syncthreads");
  check_dies(shuffle_without_others, "in a shuffle of lanes 0xffffffff");
  check_dies(stranger, "names lanes 0x00000001, and is not one of them");
  check_dies(far_after, touches("kernel 'writes_far(float*, int)', block 0,0,0, thread 0,0,0"));
  check_dies(far_after, touches("bytes after the end of 400 bytes of the gpu's memory"));
  check_dies(far_before, touches("bytes before 400 bytes of the gpu's memory"));
  check_dies(just_after, "0 bytes after the end of 400 bytes of the gpu's memory");
  check_dies(just_before, "4 bytes before 400 bytes of the gpu's memory");
  check_dies(after_free, touches("touches"));
  check_dies(past_shared, "writes to byte 40 of 40 of its dynamic shared memory");
  check_dies(deep, touches("kernel 'recurses"));
  // Only processors with protection keys deny the host access.
  FILE *f = fopen("/proc/cpuinfo", "r");
  char line[8192];
  bool keys = false;
  while (f && fgets(line, sizeof line, f))
    keys |= strstr(line, " ospke") != NULL;
  if (f) fclose(f);
  if (keys) check_dies(host_reads, touches("which the host must not touch"));
  OK(cudaFree(y));
}
