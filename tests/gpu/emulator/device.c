// The GPUs with their properties, and error codes.
//
//     EMULATED_GPUS=1        number of GPUs; 0: cudaErrorNoDevice
//     EMULATED_MEMORY=8g     bytes of each; k, m and g are understood
//     EMULATED_SM=90         their architecture
//     EMULATED_DRIVER=13000  less than the toolkit needs, or 0: cudaErrorInsufficientDriver
//     EMULATED_GRAPHS=1      0: captured work cannot be instantiated as a graph
//     EMULATED_CUBLASLT, EMULATED_CUDNN, EMULATED_NCCL   the versions that the libraries report

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { PROCESSORS = 4, OLDEST_DRIVER = 13000 };

static __thread int device;
static __thread cudaError_t last_error;

__attribute__((noreturn)) void emulated_abort(const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  fprintf(stderr, "emulated gpu: ");
  vfprintf(stderr, fmt, args);
  fprintf(stderr, "\n");
  va_end(args);
  abort();
}

void *emulated_alloc(size_t bytes) {
  void *p = calloc(1, bytes);
  if (!p) emulated_abort("no memory");
  return p;
}

void emulated_free(EmulatedWork *w) {
  free(w);
}

int64_t emulated_setting(const char *name, int64_t otherwise) {
  const char *s = getenv(name);
  if (!s) return otherwise;
  char *end;
  int64_t x = strtoll(s, &end, 10);
  switch (*end) {
  case 'g': return x << 30;
  case 'm': return x << 20;
  case 'k': return x << 10;
  case 0: return x;
  }
  emulated_abort("'%s' of the environment is no number: '%s'", name, s);
}

int emulated_gpus(void) {
  return (int)emulated_setting("EMULATED_GPUS", 1);
}

size_t emulated_memory(void) {
  return (size_t)emulated_setting("EMULATED_MEMORY", (int64_t)8 << 30);
}

int emulated_device(void) {
  return device;
}

cudaError_t emulated_error(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
  return e;
}

cudaError_t emulated_ready(void) {
  if (emulated_setting("EMULATED_DRIVER", OLDEST_DRIVER) < OLDEST_DRIVER)
    return cudaErrorInsufficientDriver;
  return emulated_gpus() == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}

cudaError_t cudaPeekAtLastError(void) {
  return last_error;
}

#define ERRORS(E)                                                                                  \
  E(cudaSuccess, "no error")                                                                       \
  E(cudaErrorInvalidValue, "invalid argument")                                                     \
  E(cudaErrorMemoryAllocation, "out of memory")                                                    \
  E(cudaErrorInvalidConfiguration, "invalid configuration argument")                               \
  E(cudaErrorInvalidDevicePointer, "invalid device pointer")                                       \
  E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                          \
  E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")   \
  E(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device")   \
  E(cudaErrorNoDevice, "no CUDA-capable device is detected")                                       \
  E(cudaErrorInvalidDevice, "invalid device ordinal")                                              \
  E(cudaErrorInvalidResourceHandle, "invalid resource handle")                                     \
  E(cudaErrorNotReady, "device not ready")                                                         \
  E(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                           \
  E(cudaErrorNotPermitted, "operation not permitted")                                              \
  E(cudaErrorNotSupported, "operation not supported")                                              \
  E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")         \
  E(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")  \
  E(cudaErrorStreamCaptureUnmatched, "unmatched capture")                                          \
  E(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                          \
  E(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")    \
  E(cudaErrorStreamCaptureImplicit,                                                                \
    "operation would make the legacy stream depend on a capturing blocking stream")                \
  E(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing "    \
                            "stream")                                                              \
  E(cudaErrorStreamCaptureWrongThread,                                                             \
    "attempt to terminate a thread-local capture sequence from another thread")

const char *cudaGetErrorString(cudaError_t e) {
  switch ((int)e) {
#define E(code, text)                                                                              \
  case code: return text;
    ERRORS(E)
#undef E
  }
  return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t e) {
  switch ((int)e) {
#define E(code, text)                                                                              \
  case code: return #code;
    ERRORS(E)
#undef E
  }
  return "cudaErrorUnknown";
}

// ---- Devices

cudaError_t cudaDriverGetVersion(int *out) {
  *out = (int)emulated_setting("EMULATED_DRIVER", OLDEST_DRIVER);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *out) {
  *out = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *out) {
  *out = 0;
  NEED_DEVICE;
  *out = emulated_gpus();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int d) {
  NEED_DEVICE;
  if (d < 0 || d >= emulated_gpus()) return emulated_error(cudaErrorInvalidDevice);
  device = d;
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int d, unsigned device_flags, unsigned flags) {
  (void)device_flags, (void)flags;
  NEED_DEVICE;
  return d < 0 || d >= emulated_gpus() ? emulated_error(cudaErrorInvalidDevice) : cudaSuccess;
}

cudaError_t cudaGetDevice(int *out) {
  NEED_DEVICE;
  *out = device;
  return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  (void)flags;
  NEED_DEVICE;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  NEED_DEVICE;
  if (d < 0 || d >= emulated_gpus()) return emulated_error(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "emulated gpu");
  for (int i = 0; i < 16; i++)
    p->uuid.bytes[i] = (char)(0x40 + d);
  p->totalGlobalMem = emulated_memory();
  p->sharedMemPerBlock = 48 * 1024;
  p->sharedMemPerBlockOptin = 227 * 1024;
  p->sharedMemPerMultiprocessor = 228 * 1024;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = INT32_MAX;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  int sm = (int)emulated_setting("EMULATED_SM", 90);
  p->major = sm / 10;
  p->minor = sm % 10;
  p->multiProcessorCount = PROCESSORS;
  p->textureAlignment = 512;
  p->asyncEngineCount = 3;
  p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = 1;
  p->pciBusID = d + 1;
  p->memoryBusWidth = 6144;
  p->l2CacheSize = 50 << 20;
  p->streamPrioritiesSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr a, int d) {
  struct cudaDeviceProp p;
  cudaError_t e = cudaGetDeviceProperties(&p, d);
  if (e != cudaSuccess) return e;
  switch ((int)a) {
  case cudaDevAttrComputeCapabilityMajor: *out = p.major; return cudaSuccess;
  case cudaDevAttrComputeCapabilityMinor: *out = p.minor; return cudaSuccess;
  case cudaDevAttrMultiProcessorCount: *out = p.multiProcessorCount; return cudaSuccess;
  case cudaDevAttrMaxSharedMemoryPerBlock: *out = (int)p.sharedMemPerBlock; return cudaSuccess;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    *out = (int)p.sharedMemPerBlockOptin;
    return cudaSuccess;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
    *out = (int)p.sharedMemPerMultiprocessor;
    return cudaSuccess;
  case cudaDevAttrMaxThreadsPerBlock: *out = p.maxThreadsPerBlock; return cudaSuccess;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    *out = p.maxThreadsPerMultiProcessor;
    return cudaSuccess;
  case cudaDevAttrWarpSize: *out = p.warpSize; return cudaSuccess;
  case cudaDevAttrL2CacheSize: *out = p.l2CacheSize; return cudaSuccess;
  case cudaDevAttrPciBusId: *out = p.pciBusID; return cudaSuccess;
  case cudaDevAttrPciDeviceId: *out = p.pciDeviceID; return cudaSuccess;
  case cudaDevAttrPciDomainId: *out = p.pciDomainID; return cudaSuccess;
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrCanMapHostMemory:
  case cudaDevAttrConcurrentKernels: *out = 1; return cudaSuccess;
  case cudaDevAttrMemoryPoolsSupported:
  case cudaDevAttrPageableMemoryAccess:
  case cudaDevAttrIntegrated: *out = 0; return cudaSuccess;
  }
  emulated_abort("cudaDeviceGetAttribute: attribute %d is not emulated", (int)a);
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int d) {
  struct cudaDeviceProp p;
  cudaError_t e = cudaGetDeviceProperties(&p, d);
  if (e != cudaSuccess) return e;
  snprintf(out, (size_t)bytes, "%08x:%02x:%02x.0", (unsigned)p.pciDomainID, (unsigned)p.pciBusID,
           (unsigned)p.pciDeviceID);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  NEED_DEVICE;
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *out, int d, int peer) {
  NEED_DEVICE;
  int n = emulated_gpus();
  if (d < 0 || d >= n || peer < 0 || peer >= n) return emulated_error(cudaErrorInvalidDevice);
  *out = d != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  NEED_DEVICE;
  if (flags) return emulated_error(cudaErrorInvalidValue);
  return peer < 0 || peer >= emulated_gpus() || peer == device
             ? emulated_error(cudaErrorInvalidDevice)
             : cudaSuccess;
}

// Called by definitions of include/cuda_runtime.h.
cudaError_t emulated_need_code(const char *code);
cudaError_t emulated_attributes(struct cudaFuncAttributes *out, const void *kernel,
                                const char *code);

// Code for sm_86 runs on architectures with the same first digits and no smaller last one, here
// sm_86 and sm_89; PTX for compute_86 on all newer ones, too.
cudaError_t emulated_need_code(const char *code) {
  NEED_DEVICE;
  int here = (int)emulated_setting("EMULATED_SM", 90);
  for (const char *at = code; *at; at += strspn(at, " ")) {
    int made_for = 0;
    if (sscanf(at, "sm_%d", &made_for) == 1 && made_for / 10 == here / 10 && made_for <= here)
      return cudaSuccess;
    if (sscanf(at, "compute_%d", &made_for) == 1 && made_for <= here) return cudaSuccess;
    at += strcspn(at, " ");
  }
  return emulated_error(cudaErrorNoKernelImageForDevice);
}

cudaError_t emulated_attributes(struct cudaFuncAttributes *out, const void *kernel,
                                const char *code) {
  (void)kernel;
  memset(out, 0, sizeof *out);
  return emulated_need_code(code);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute a, int value) {
  (void)kernel;
  NEED_DEVICE;
  bool fits =
      a != cudaFuncAttributeMaxDynamicSharedMemorySize || (value >= 0 && value <= 227 * 1024);
  return fits ? cudaSuccess : emulated_error(cudaErrorInvalidValue);
}
