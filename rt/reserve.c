// Reserves, before training, resources that libraries take without an error that could be handled.
//
//     stack      of the main thread: it grows as it is used, and the kernel kills a process in which
//                it cannot
//     threads    of OpenMP: libgomp ends the process with a message of its own
//     memory     of oneDNN while it prepares a kernel: some of its allocations are used unchecked
//
// All other memory is allocated by code that reports a failure.

#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "runtime.h"

bool nnrt_memory_left(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  munmap(at, bytes);
  return true;
}

// Bytes of stack that kernels and libraries may take in a rank, and that they take before.
enum { STACK = 512 << 10, EARLIER = 256 << 10, LIMIT = STACK + EARLIER };

// Threads have the limit of the main thread at the start of the program.
static bool reserve_threads(void) {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) != 0) return false;
  bool ok = pthread_attr_getstacksize(&attributes, &bytes) == 0;
  if (ok && bytes < LIMIT)
    ok = pthread_attr_setstacksize(&attributes, LIMIT) == 0 &&
         pthread_setattr_default_np(&attributes) == 0;
  pthread_attr_destroy(&attributes);
  return ok;
}

bool nnrt_reserve_stack(Why *w) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0) return true;
  rlim_t soft = limit.rlim_cur;
  limit.rlim_cur = LIMIT;
  // The kernel compares the limit whenever the stack grows.
  bool enough = soft >= LIMIT || setrlimit(RLIMIT_STACK, &limit) == 0;
  if (enough && reserve_threads()) return true;
  return why(w,
             "a stack of %d KiB is needed, and the limit is %lld KiB\n"
             "hint: ulimit -s 8192",
             LIMIT >> 10, (long long)soft >> 10);
}

// Touches a page at a time, so that the stack grows to this size.
__attribute__((noinline)) static void touch_stack(void) {
  volatile char stack[STACK];
  for (size_t i = sizeof stack; i > 0; i -= i < 4096 ? i : 4096)
    stack[i - 1] = 0;
}

typedef struct Gate {
  pthread_mutex_t lock;
  pthread_cond_t opened;
  bool open;
} Gate;

static void *wait_at(void *arg) {
  Gate *g = arg;
  pthread_mutex_lock(&g->lock);
  while (!g->open)
    pthread_cond_wait(&g->opened, &g->lock);
  pthread_mutex_unlock(&g->lock);
  return NULL;
}

// Starts n threads side by side, and ends them.  Returns an error number.
static int try_threads(int n) {
  Gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
  pthread_t *thread = nnrt_must_alloc((size_t)n * sizeof *thread);
  int code = 0, started = 0;
  while (started < n && !(code = pthread_create(&thread[started], NULL, wait_at, &gate)))
    started++;
  pthread_mutex_lock(&gate.lock);
  gate.open = true;
  pthread_cond_broadcast(&gate.opened);
  pthread_mutex_unlock(&gate.lock);
  for (int i = 0; i < started; i++)
    pthread_join(thread[i], NULL);
  free(thread);
  return code;
}

// Each thread's own arena would reserve 64 MiB of addresses, and steps allocate little: small
// blocks, from the cache of their thread.
void nnrt_reserve_process(void) {
  if (!getenv("MALLOC_ARENA_MAX")) mallopt(M_ARENA_MAX, 1);
}

bool nnrt_reserve(const NnrtRank *r, Why *w) {
  int threads = omp_get_max_threads();
  if (!nnrt_memory_left(STACK))
    return why(w, "out of memory: %d bytes of stack\n" NNRT_LIMIT_HINT, STACK);
  touch_stack();
  int code = try_threads(threads - 1);
  char thread[48];
  snprintf(thread, sizeof thread, "one of %d threads of OpenMP", threads);
  if (code) return nnrt_why_thread(w, thread, code);
    // libgomp keeps its threads for the next region.
#pragma omp parallel
  if (omp_get_thread_num() > 0) nnrt_crash_thread(r, "a thread of OpenMP");
  return true;
}
