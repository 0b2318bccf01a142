// NCCL: ranks are threads or processes of this machine, which communicate through a file in shared
// memory, named by the unique id.
//
// Work never blocks: it returns that it is not done, and is called again (emulator.h).  So a rank
// that died makes its peers hang until they abort, as with NCCL.
//
// As with the real one, a nonblocking communicator is `in progress` after its creation, and after
// its first call, until ncclCommGetAsyncError returns otherwise, and refuses calls meanwhile; two
// ranks on one GPU are refused; the calls of a group are one piece of work.
//
// This file has communicators and their connection, and memory; nccl_internal.h lists the other
// files.

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "nccl_internal.h"

static __thread char last_error[256];

ncclResult_t nccl_fail(ncclComm_t c, ncclResult_t result, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(last_error, sizeof last_error, fmt, args);
  va_end(args);
  if (c) memcpy(c->error, last_error, sizeof c->error);
  return result;
}

// ---- Connecting

ncclResult_t ncclGetVersion(int *out) {
  if (!out) return nccl_fail(NULL, ncclInvalidArgument, "ncclGetVersion: no place for it");
  const char *other = getenv("EMULATED_NCCL");
  *out = other ? atoi(other) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

static void path_of(const ncclUniqueId *id, char *out, size_t bytes) {
  snprintf(out, bytes, "/emulated-nccl-%.64s", id->internal);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
  if (!out) return nccl_fail(NULL, ncclInvalidArgument, "ncclGetUniqueId: no place for it");
  static _Atomic int count;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  memset(out, 0, sizeof *out);
  snprintf(out->internal, sizeof out->internal, "%d-%d-%lld-%ld", (int)getpid(),
           atomic_fetch_add(&count, 1), (long long)t.tv_sec, t.tv_nsec);
  // Uses the whole id, which must be copied completely.
  memset(out->internal + 64, 0x5a, sizeof out->internal - 64);
  return ncclSuccess;
}

// Opens the file; the first rank creates it.
static ncclResult_t open_shared(ncclComm_t c) {
  char path[128];
  path_of(&c->id, path, sizeof path);
  for (size_t i = 64; i < sizeof c->id.internal; i++)
    if (c->id.internal[i] != 0x5a)
      return nccl_fail(c, ncclInvalidArgument,
                       "the unique id is not one that ncclGetUniqueId made");
  int fd = shm_open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)))
    return nccl_fail(c, ncclSystemError, "cannot open shared memory: %s", strerror(errno));
  void *at = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED)
    return nccl_fail(c, ncclSystemError, "cannot map shared memory: %s", strerror(errno));
  c->shared = at;
  if (atomic_exchange(&c->shared->gpu[c->rank], 1 + c->device))
    return nccl_fail(c, ncclInvalidUsage, "rank %d joins twice", c->rank);
  atomic_fetch_add(&c->shared->joined, 1);
  return ncclSuccess;
}

// Continues to join: once all have arrived, everybody gets the same result.
static void try_join(ncclComm_t c) {
  if (c->state != JOINING || atomic_load(&c->shared->joined) < c->n) return;
  char path[128];
  path_of(&c->id, path, sizeof path);
  shm_unlink(path);
  c->state = READY;
  for (int i = 0; i < c->n; i++)
    for (int j = 0; j < i; j++)
      if (atomic_load(&c->shared->gpu[i]) == atomic_load(&c->shared->gpu[j])) {
        c->state = FAILED;
        c->failure =
            nccl_fail(c, ncclInvalidUsage,
                      "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", i, j,
                      (unsigned)atomic_load(&c->shared->gpu[i]) << 12);
      }
}

void nccl_wait_joined(ncclComm_t c) {
  while (c->state == JOINING && !atomic_load(&c->aborted)) {
    try_join(c);
    usleep(100);
  }
}

// ---- Communicators

void nccl_release(ncclComm_t c) {
  if (atomic_fetch_sub(&c->users, 1) != 1) return;
  if (c->shared) munmap(c->shared, sizeof *c->shared);
  free(c);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (!out)
    return nccl_in_group(nccl_fail(NULL, ncclInvalidArgument, "ncclCommInitRank: no place for it"));
  *out = NULL;
  if (n < 1 || n > MAX_RANKS || rank < 0 || rank >= n)
    return nccl_in_group(
        nccl_fail(NULL, ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, n));
  if (config && config->magic != 0xcafebeef)
    return nccl_in_group(
        nccl_fail(NULL, ncclInvalidArgument,
                  "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER"));
  ncclComm_t c = emulated_alloc(sizeof *c);
  c->rank = rank;
  c->n = n;
  c->id = id;
  c->users = 1;
  c->blocking = !config || config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking != 0;
  // It allocates: not during capture, nor without a GPU.
  if (cudaFree(NULL) != cudaSuccess || cudaGetDevice(&c->device) != cudaSuccess) {
    free(c);
    return nccl_in_group(nccl_fail(NULL, ncclUnhandledCudaError, "Cuda failure '%s'",
                                   cudaGetErrorString(cudaPeekAtLastError())));
  }
  ncclResult_t r = open_shared(c);
  if (r != ncclSuccess) {
    nccl_release(c);
    return nccl_in_group(r);
  }
  *out = c;
  if (nccl_join_later(c)) return ncclSuccess;
  if (!c->blocking) return ncclInProgress;
  nccl_wait_joined(c);
  if (c->state != FAILED) return ncclSuccess;
  *out = NULL;
  r = c->failure;
  nccl_release(c);
  return r;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, n, id, rank, NULL);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out) {
  if (!c || !out) return nccl_fail(c, ncclInvalidArgument, "ncclCommGetAsyncError: NULL argument");
  try_join(c);
  *out = ncclSuccess;
  switch (c->state) {
  case JOINING: *out = ncclInProgress; break;
  case IN_PROGRESS:
    *out = ncclInProgress; // done at the next query
    c->state = READY;
    break;
  case FINALIZED: *out = atomic_load(&c->users) > 1 ? ncclInProgress : ncclSuccess; break;
  case FAILED: *out = c->failure; break;
  case READY: break;
  }
  return ncclSuccess;
}

ncclResult_t nccl_check_ready(ncclComm_t c, const char *what) {
  if (!c) return nccl_fail(NULL, ncclInvalidArgument, "%s : comm argument is NULL", what);
  if (c->state == JOINING || c->state == IN_PROGRESS)
    return nccl_fail(
        c, ncclInvalidArgument,
        "Attempt to use communicator before the previous operation returned ncclSuccess");
  if (c->state == FAILED) return c->failure;
  if (c->state == FINALIZED || atomic_load(&c->aborted))
    return nccl_fail(c, ncclInvalidArgument, "%s : the communicator has been finalized", what);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  ncclResult_t r = nccl_check_ready(c, "ncclCommFinalize");
  if (r != ncclSuccess) return r;
  c->state = FINALIZED;
  if (!c->blocking) return ncclInProgress;
  int device;
  cudaGetDevice(&device);
  cudaSetDevice(c->device);
  cudaDeviceSynchronize();
  cudaSetDevice(device);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  if (!c) return ncclSuccess;
  if (c->state == JOINING || c->state == IN_PROGRESS)
    return nccl_fail(
        c, ncclInvalidArgument,
        "Attempt to use communicator before the previous operation returned ncclSuccess");
  int device;
  cudaGetDevice(&device);
  cudaSetDevice(c->device);
  cudaDeviceSynchronize();
  cudaSetDevice(device);
  nccl_release(c);
  return ncclSuccess;
}

// Work that waits for other ranks ends, incomplete; the others are not informed.
ncclResult_t ncclCommAbort(ncclComm_t c) {
  if (!c) return ncclSuccess;
  atomic_store(&c->aborted, true);
  // Removes the file of an incomplete communicator, so that no later rank finds it.
  char path[128];
  path_of(&c->id, path, sizeof path);
  if (c->state == JOINING) shm_unlink(path);
  while (atomic_load(&c->running) > 0) {
    // The thread that runs the work sees the abort; if there is none, this thread runs it.
    int device;
    cudaGetDevice(&device);
    cudaSetDevice(c->device);
    cudaDeviceSynchronize();
    cudaSetDevice(device);
  }
  nccl_release(c);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *out) {
  if (!c || !out) return nccl_fail(c, ncclInvalidArgument, "ncclCommCount: NULL argument");
  *out = c->n;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *out) {
  if (!c || !out) return nccl_fail(c, ncclInvalidArgument, "ncclCommUserRank: NULL argument");
  *out = c->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t c, int *out) {
  if (!c || !out) return nccl_fail(c, ncclInvalidArgument, "ncclCommCuDevice: NULL argument");
  *out = c->device;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r) {
  switch (r) {
  case ncclSuccess: return "no error";
  case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError: return "remote process exited or there was a network error";
  case ncclInProgress: return "NCCL operation in progress";
  case ncclNumResults: break;
  }
  return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t c) {
  return c && *c->error ? c->error : last_error;
}

// ---- Memory

ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
  cudaError_t e = cudaMalloc(out, bytes);
  return e == cudaSuccess
             ? ncclSuccess
             : nccl_fail(NULL, ncclUnhandledCudaError, "Cuda failure '%s'", cudaGetErrorString(e));
}

ncclResult_t ncclMemFree(void *p) {
  return cudaFree(p) == cudaSuccess
             ? ncclSuccess
             : nccl_fail(NULL, ncclInvalidArgument, "ncclMemFree: not allocated by ncclMemAlloc");
}

// A handle is the address itself.
static ncclResult_t register_memory(ncclComm_t c, void *at, size_t bytes, void **out) {
  ncclResult_t r = nccl_check_ready(c, "ncclCommRegister");
  if (r != ncclSuccess) return r;
  if (!out || !emulated_on_device(at, bytes))
    return nccl_fail(c, ncclInvalidArgument, "ncclCommRegister: not memory of the gpu");
  *out = at;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void *at, size_t bytes, void **out) {
  return register_memory(c, at, bytes, out);
}

ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
  return c && handle ? ncclSuccess : nccl_fail(c, ncclInvalidArgument, "ncclCommDeregister: NULL");
}

ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *at, size_t bytes, ncclWindow_t *out,
                                    int flags) {
  if (flags & ~NCCL_WIN_COLL_SYMMETRIC || (uintptr_t)at % NCCL_WIN_REQUIRED_ALIGNMENT)
    return nccl_fail(c, ncclInvalidArgument, "ncclCommWindowRegister: flags or alignment");
  return register_memory(c, at, bytes, (void **)out);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t w) {
  return ncclCommDeregister(c, w);
}
