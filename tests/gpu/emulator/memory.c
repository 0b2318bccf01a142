// The GPU's memory, pinned memory, and copies.
//
// An allocation is between two inaccessible pages, and ends directly before the second:
//
//     | none | 0xa5 … 0xa5 |     the requested bytes     | 0xa5 … | none |
//                          ^ a multiple of 256         ^ less than 256 bytes
//
// So an access far past its end dies there, and a write just past its end is found when it is
// freed. New memory is full of 0xff bytes: NaN, and no index.
//
// On a processor with protection keys, the host cannot access GPU memory, as with a real GPU: a
// thread holds the key only while it runs work of a stream.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { PAGE = 4096, ALIGN = 256, POISON = 0xff, GUARD = 0xa5 };

typedef struct Memory {
  char *at;
  size_t bytes;
  char *map; // all of it, with the inaccessible pages
  size_t map_bytes;
  int device; // -1: pinned host memory
  struct Memory *next;
} Memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Memory *all;
static size_t used[64];
static int key = -1; // of protection
static __thread int open;

void emulated_catch_faults(void);

static void make_key(void) {
  emulated_catch_faults();
  key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
}

static void set_access(bool yes) {
  if (key >= 0) pkey_set(key, yes ? 0 : PKEY_DISABLE_ACCESS);
}

void emulated_open_memory(void) {
  if (open++ == 0) set_access(true);
}

void emulated_close_memory(void) {
  if (--open == 0) set_access(false);
}

static Memory *find(const void *p) { // locked
  for (Memory *m = all; m; m = m->next)
    if ((const char *)p >= m->at && (const char *)p < m->at + m->bytes) return m;
  return NULL;
}

// The kind of memory of [p, p + bytes): the GPU's, pinned, or neither.
typedef enum { ELSEWHERE, ON_DEVICE, PINNED, ACROSS } Kind;
static Kind kind_of(const void *p, size_t bytes) {
  pthread_mutex_lock(&lock);
  const Memory *m = find(p);
  Kind k = !m                                           ? ELSEWHERE
           : (const char *)p + bytes > m->at + m->bytes ? ACROSS
           : m->device >= 0                             ? ON_DEVICE
                                                        : PINNED;
  pthread_mutex_unlock(&lock);
  return k;
}

bool emulated_on_device(const void *p, size_t bytes) {
  return kind_of(p, bytes) == ON_DEVICE;
}

bool emulated_reachable(const void *p, size_t bytes) {
  Kind k = kind_of(p, bytes);
  return k == ON_DEVICE || k == PINNED;
}

// Called in a thread that died of an access: takes no lock.
void emulated_describe(const void *p, char *out, size_t bytes) {
  const char *at = p;
  for (const Memory *m = all; m; m = m->next) {
    if (at < m->map || at >= m->map + m->map_bytes) continue;
    const char *what = m->device >= 0 ? "of the gpu's memory" : "of pinned memory";
    if (at >= m->at && at < m->at + m->bytes)
      snprintf(out, bytes, "byte %zd of %zu %s, which the host must not touch", at - m->at,
               m->bytes, what);
    else if (at < m->at)
      snprintf(out, bytes, "%zd bytes before %zu bytes %s", m->at - at, m->bytes, what);
    else
      snprintf(out, bytes, "%zd bytes after the end of %zu bytes %s", at - (m->at + m->bytes),
               m->bytes, what);
    return;
  }
  snprintf(out, bytes, "no memory of the gpu");
}

static cudaError_t take(void **out, size_t bytes, int device) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_key);
  *out = NULL;
  if (bytes == 0) return cudaSuccess;
  size_t limit = device >= 0 ? emulated_memory() : SIZE_MAX / 4;
  pthread_mutex_lock(&lock);
  bool fits = bytes <= limit && (device < 0 || used[device] <= limit - bytes);
  if (fits && device >= 0) used[device] += bytes;
  pthread_mutex_unlock(&lock);
  if (!fits) return cudaErrorMemoryAllocation;

  size_t inner = (bytes + ALIGN - 1) / ALIGN * ALIGN, pages = (inner + PAGE - 1) / PAGE * PAGE;
  Memory *m = emulated_alloc(sizeof *m);
  m->map_bytes = pages + 2 * PAGE;
  m->map = mmap(NULL, m->map_bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m->map == MAP_FAILED) emulated_abort("no memory");
  // The stack of an ended thread may have been at this address, and stays poisoned in ASan.
  ASAN_UNPOISON_MEMORY_REGION(m->map, m->map_bytes);
  m->at = m->map + PAGE + (pages - inner);
  m->bytes = bytes;
  m->device = device;
  memset(m->map + PAGE, GUARD, pages - inner);
  memset(m->at, POISON, bytes);
  memset(m->at + bytes, GUARD, inner - bytes);
  if (mprotect(m->map, PAGE, PROT_NONE) || mprotect(m->map + PAGE + pages, PAGE, PROT_NONE))
    emulated_abort("no memory");
  if (device >= 0 && key >= 0 && pkey_mprotect(m->map + PAGE, pages, PROT_READ | PROT_WRITE, key))
    emulated_abort("no memory");
  pthread_mutex_lock(&lock);
  m->next = all;
  all = m;
  pthread_mutex_unlock(&lock);
  *out = m->at;
  return cudaSuccess;
}

static void check_guard(const Memory *m, const char *from, const char *to) {
  for (const char *at = from; at < to; at++)
    if ((unsigned char)*at != GUARD) {
      char what[200];
      emulated_describe(at, what, sizeof what);
      emulated_abort("something has written to %p: %s", (const void *)at, what);
    }
  (void)m;
}

static cudaError_t give_back(void *p, bool on_device) {
  if (!p) return cudaSuccess;
  pthread_mutex_lock(&lock);
  Memory **link = &all;
  while (*link && (*link)->at != p)
    link = &(*link)->next;
  Memory *m = *link;
  if (!m || (m->device >= 0) != on_device) {
    pthread_mutex_unlock(&lock);
    return cudaErrorInvalidValue;
  }
  pthread_mutex_unlock(&lock);
  emulated_open_memory();
  check_guard(m, m->map + PAGE, m->at);
  check_guard(m, m->at + m->bytes, m->map + m->map_bytes - PAGE);
  emulated_close_memory();
  pthread_mutex_lock(&lock);
  for (link = &all; *link != m;)
    link = &(*link)->next;
  *link = m->next;
  if (m->device >= 0) used[m->device] -= m->bytes;
  pthread_mutex_unlock(&lock);
  munmap(m->map, m->map_bytes);
  free(m);
  return cudaSuccess;
}

static void finish_all(int device) {
  pthread_mutex_lock(&emulated_lock);
  emulated_finish_device(device);
  pthread_mutex_unlock(&emulated_lock);
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
  NEED_NOT_RECORDING;
  return emulated_error(take(out, bytes, emulated_device()));
}

cudaError_t cudaFree(void *p) {
  NEED_NOT_RECORDING;
  if (p) finish_all(emulated_device());
  return emulated_error(give_back(p, true));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
  (void)flags;
  NEED_NOT_RECORDING;
  return emulated_error(take(out, bytes, -1));
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
  return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *p, unsigned flags) {
  NEED_DEVICE;
  if (flags || kind_of(p, 1) != PINNED) return emulated_error(cudaErrorInvalidValue);
  *out = p;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
  NEED_NOT_RECORDING;
  if (p) finish_all(emulated_device());
  return emulated_error(give_back(p, false));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  NEED_DEVICE;
  *total = emulated_memory();
  pthread_mutex_lock(&lock);
  *free_bytes = *total - used[emulated_device()];
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p) {
  NEED_DEVICE;
  memset(out, 0, sizeof *out);
  pthread_mutex_lock(&lock);
  const Memory *m = find(p);
  out->type = !m               ? cudaMemoryTypeUnregistered
              : m->device >= 0 ? cudaMemoryTypeDevice
                               : cudaMemoryTypeHost;
  out->device = m && m->device >= 0 ? m->device : -1;
  pthread_mutex_unlock(&lock);
  // One address serves for both; device code must not write through it here.
  memcpy(&out->devicePointer, &p, sizeof p);
  if (out->type == cudaMemoryTypeDevice) return cudaSuccess;
  if (out->type == cudaMemoryTypeUnregistered) out->devicePointer = NULL;
  memcpy(&out->hostPointer, &p, sizeof p);
  return cudaSuccess;
}

// ---- Copies and fills, as work

typedef struct Copy {
  EmulatedWork work;
  char *to;
  const char *from; // NULL: fill
  size_t bytes;
  int fill;
  char *staged; // a copy of pageable memory, from the time of the call
} Copy;

static bool run_copy(EmulatedWork *w, bool again) {
  (void)again;
  Copy *c = (Copy *)w;
  if (c->from)
    memmove(c->to, c->from, c->bytes);
  else
    memset(c->to, c->fill, c->bytes);
  return true;
}

static void free_copy(EmulatedWork *w) {
  Copy *c = (Copy *)w;
  free(c->staged);
  free(c);
}

static bool direction_fits(enum cudaMemcpyKind kind, Kind to, Kind from) {
  bool to_device = to == ON_DEVICE, from_device = from == ON_DEVICE;
  switch (kind) {
  case cudaMemcpyHostToHost: return !to_device && !from_device;
  case cudaMemcpyHostToDevice: return to_device && !from_device;
  case cudaMemcpyDeviceToHost: return !to_device && from_device;
  case cudaMemcpyDeviceToDevice:
    return (to_device || to == PINNED) && (from_device || from == PINNED);
  case cudaMemcpyDefault: return true;
  }
  return false;
}

// Whether the stream is in capture; then a copy reads its source when it is replayed.
static bool is_recording(cudaStream_t s) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(s, &status);
  return status != cudaStreamCaptureStatusNone;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t s, bool wait) {
  if (bytes == 0) return cudaSuccess;
  Kind into = kind_of(to, bytes), out_of = kind_of(from, bytes);
  if (into == ACROSS || out_of == ACROSS) return emulated_error(cudaErrorInvalidValue);
  if (!direction_fits(kind, into, out_of)) return emulated_error(cudaErrorInvalidMemcpyDirection);
  Copy *c = emulated_alloc(sizeof *c);
  *c = (Copy){.work = {"a copy", run_copy, free_copy}, .to = to, .from = from, .bytes = bytes};
  bool recording = is_recording(s);
  if (out_of == ELSEWHERE && !recording) {
    c->staged = malloc(bytes);
    if (!c->staged) emulated_abort("no memory");
    memcpy(c->staged, from, bytes);
    c->from = c->staged;
  }
  cudaError_t e = emulated_enqueue(s, &c->work, NULL);
  // Pageable memory is written before the return.
  if (e == cudaSuccess && (wait || (into == ELSEWHERE && !recording))) {
    pthread_mutex_lock(&emulated_lock);
    Stream *stream = emulated_stream(s);
    emulated_finish(stream, stream->put);
    pthread_mutex_unlock(&emulated_lock);
  }
  return e;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
  NEED_DEVICE;
  return copy(to, from, bytes, kind, s, false);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  NEED_NOT_RECORDING;
  // Copies within GPU memory do not wait.
  bool wait = !(emulated_on_device(to, bytes) && emulated_on_device(from, bytes));
  return copy(to, from, bytes, kind, NULL, wait);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t s) {
  NEED_DEVICE;
  struct cudaPointerAttributes a, b;
  cudaPointerGetAttributes(&a, to);
  cudaPointerGetAttributes(&b, from);
  if (a.device != to_device || b.device != from_device)
    return emulated_error(cudaErrorInvalidValue);
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice, s, false);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s) {
  NEED_DEVICE;
  if (bytes == 0) return cudaSuccess;
  if (!emulated_reachable(to, bytes)) return emulated_error(cudaErrorInvalidValue);
  Copy *c = emulated_alloc(sizeof *c);
  *c = (Copy){.work = {"a fill", run_copy, free_copy}, .to = to, .bytes = bytes, .fill = value};
  return emulated_enqueue(s, &c->work, NULL);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  NEED_NOT_RECORDING;
  return cudaMemsetAsync(to, value, bytes, NULL);
}

// Rows of `width` bytes, `pitch` bytes apart.
cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t s) {
  NEED_DEVICE;
  if (pitch < width) return emulated_error(cudaErrorInvalidValue);
  for (size_t i = 0; i < height; i++) {
    cudaError_t e = cudaMemsetAsync((char *)to + i * pitch, value, width, s);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t s) {
  NEED_DEVICE;
  if (to_pitch < width || from_pitch < width) return emulated_error(cudaErrorInvalidValue);
  for (size_t i = 0; i < height; i++) {
    cudaError_t e =
        copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width, kind, s, false);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}
