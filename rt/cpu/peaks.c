// The limits of this machine for the threads of a rank, measured for --timings (device.h):
//
//     f32             tiles of sums in registers, with operands in the L1 cache (tile.h)
//     f32 bf16 f16    products of n x n matrices by the kernel of linear (linear.c), for the best n
//     bytes           copies of arrays of powers of two bytes, from the L1 cache to memory
//
// All threads work at the same time, each by itself, and a thread's time is that of its processor:
// it is not waiting for others, nor for other programs on its core.  So threads that share a
// processor, such as those of four ranks on two cores, count as the part of it that each has.  Each
// limit is the best of many short trials.

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "device.h"
#include "tile.h"

enum { LINE = 64 }; // bytes, of a cache

static int ranks_here(const NnrtRank *r) {
  const Launch *l = &r->run->launch;
  return l->kind != LAUNCH_none && l->local_world > 0 ? l->local_world : r->ranks;
}

// Returns the part of a processor that each thread of the rank has: 1, or less if threads of this
// machine's ranks are more than their processors.
static double share_of_thread(const NnrtRank *r) {
  int threads = omp_get_max_threads(), online = (int)sysconf(_SC_NPROCESSORS_ONLN);
  double processors = nnrt_launch_processors(&r->run->launch, ranks_here(r), omp_get_num_procs(),
                                             online, nnrt_cgroup_cpus(""));
  return processors < threads ? processors / threads : 1;
}

// -- Trials ------------------------------------------------------------------------------------

// Timed trials of something that each repeats, so often that a trial takes 0.2 ms.
typedef struct Trials {
  int64_t times;    // repetitions in the next trial
  double best, all; // us of one repetition, and of all trials
  int close;        // trials that were about as fast as the best
} Trials;

// Adds a trial of threads whose times have this sum of reciprocals; false: it was the last.
static bool add_trial(Trials *t, int threads, double speed) {
  enum { ENOUGH_CLOSE = 4, MOST_TIMES = 1 << 16 };
  const double close = 1.03, one = 200, enough = 5e3, most = 5e4; // in us
  double us = threads / speed, once = us / (double)t->times;
  if (t->all == 0 || once * close < t->best) t->close = 0;
  if (t->all == 0 || once < t->best) t->best = once;
  t->close += once < close * t->best;
  t->all += us;
  if (us < one && t->times < MOST_TIMES) {
    t->times *= 2;
    t->close = 0;
  }
  return t->all < most && (t->all < enough || t->close < ENOUGH_CLOSE);
}

static double thread_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

// The reciprocal of the time of this thread since then.
static double speed_since(double us) {
  const double least = 0.01; // the clock may be coarse
  double taken = thread_us() - us;
  return 1 / (taken > least ? taken : least);
}

// -- Products ----------------------------------------------------------------------------------

// Returns the number of floats, rounded up to lines.
static int64_t whole_lines(int64_t n) {
  const int64_t of_line = LINE / sizeof(float);
  return (n + of_line - 1) / of_line * of_line;
}

// Returns the flops a second of all threads, each with panels of its own.
static double tile_flops(void) {
  const TileKind *v = tile_kind();
  int64_t k = v->depth, of_a = k * v->rows, of_b = k * v->lanes, of_y = (int64_t)v->rows * v->lanes;
  int threads = omp_get_max_threads();
  // Panels of threads have no cache line in common.
  int64_t each = whole_lines(of_a) + whole_lines(of_b) + whole_lines(of_y);
  float *memory = aligned_alloc(LINE, (size_t)(each * threads) * sizeof(float));
  if (!memory) return 0;
  Trials trials = {.times = 1};
  for (bool more = true; more;) {
    double speed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : speed)
    {
      float *a = memory + each * omp_get_thread_num();
      float *b = a + whole_lines(of_a), *y = b + whole_lines(of_b);
      for (int64_t i = 0; i < of_a; i++)
        a[i] = (float)(i % 7) / 8;
      for (int64_t i = 0; i < of_b; i++)
        b[i] = (float)(i % 5) / 8;
      double from = thread_us();
      for (int64_t i = 0; i < trials.times; i++)
        v->panels(v->rows, k, a, b, y, v->lanes, false);
      speed += speed_since(from);
    }
    more = add_trial(&trials, threads, speed);
  }
  free(memory);
  return 2.0 * (double)(of_y * k * threads) / trials.best * 1e6;
}

typedef struct LinearOf {
  NnrtPrep *(*prep)(int64_t m, int64_t k, int64_t n, bool trans);
  int (*run)(NnrtPrep *p, void *y, const void *x, const void *w);
} LinearOf;

#define RUN_OF(type)                                                                               \
  static int run_##type(NnrtPrep *p, void *y, const void *x, const void *w) {                      \
    return nnrt_linear_##type(p, y, x, w);                                                         \
  }
RUN_OF(f32)
RUN_OF(bf16)
RUN_OF(f16)

// Prepares the product of this thread, with operands in its part of the memory.
static NnrtPrep *own_product(const LinearOf *of, NnrtDtype type, int64_t n, char *memory) {
  int64_t row = n * (type == NNRT_f32 ? 4 : 2);
  // A row, and the others like it.
  for (int64_t i = 0; i < n; i++)
    nnrt_element_set(memory, type, i, (double)(i % 7) / 8);
  for (int64_t i = 1; i < 3 * n; i++)
    memcpy(memory + i * row, memory, (size_t)row);
  return of->prep(n, n, n, false);
}

// Returns the flops a second of threads that each multiply n x n matrices; 0: they cannot.
static double product_flops(const LinearOf *of, NnrtDtype type, int64_t n) {
  int threads = omp_get_max_threads(), failed = 0;
  size_t bytes = (size_t)(n * n) * (type == NNRT_f32 ? 4 : 2);
  char *memory = malloc(3 * bytes * (size_t)threads);
  NnrtPrep **p = calloc((size_t)threads, sizeof *p);
  if (!memory || !p) failed = 1;
#pragma omp parallel num_threads(threads) if (!failed)
  if (!failed) {
    int i = omp_get_thread_num();
#pragma omp critical
    p[i] = own_product(of, type, n, memory + 3 * bytes * (size_t)i);
  }
  for (int i = 0; !failed && i < threads; i++)
    failed = !p[i];
  Trials trials = {.times = 1};
  for (bool more = !failed; more;) {
    double speed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : speed) reduction(| : failed)
    {
      int i = omp_get_thread_num();
      char *y = memory + 3 * bytes * (size_t)i;
      double from = thread_us();
      for (int64_t k = 0; k < trials.times; k++)
        failed |= of->run(p[i], y, y + bytes, y + 2 * bytes) != NNRT_OK;
      speed += speed_since(from);
    }
    more = add_trial(&trials, threads, speed) && !failed;
  }
  for (int i = 0; p && i < threads; i++)
    nnrt_prep_free(p[i]);
  free(p);
  free(memory);
  return failed ? 0 : 2.0 * (double)(n * n * n * threads) / trials.best * 1e6;
}

NnrtPeak nnrt_device_peak(NnrtRank *r, NnrtDtype type) {
  enum { SMALLEST = 128, LARGEST_f32 = 512, LARGEST = 1024 };
  static const LinearOf linear[] = {[NNRT_f32] = {nnrt_linear_prep_f32, run_f32},
                                    [NNRT_bf16] = {nnrt_linear_prep_bf16, run_bf16},
                                    [NNRT_f16] = {nnrt_linear_prep_f16, run_f16}};
  NnrtPeak best = {0};
  for (int64_t n = SMALLEST; n <= (type == NNRT_f32 ? LARGEST_f32 : LARGEST); n *= 2) {
    double flops = product_flops(&linear[type], type, n);
    if (flops > best.rate) best = (NnrtPeak){.rate = flops, .size = n};
  }
  // Without instructions for a type it is multiplied as f32.
  double tiles = tile_flops();
  if (tiles > best.rate) best = (NnrtPeak){.rate = tiles};
  best.rate *= share_of_thread(r);
  return best;
}

// -- Copies ------------------------------------------------------------------------------------

// Copies lines, past the caches.
static void copy_past(char *to, const char *from, int64_t bytes) {
#if defined(__x86_64__)
  for (int64_t i = 0; i < bytes; i += LINE)
    for (int64_t k = i; k < i + LINE; k += 16)
      _mm_stream_si128((__m128i *)(void *)(to + k),
                       _mm_loadu_si128((const __m128i *)(const void *)(from + k)));
  _mm_sfence();
#else
  memcpy(to, from, (size_t)bytes);
#endif
}

// The part of this thread of an array of lines.
typedef struct Share {
  int64_t from, bytes;
} Share;

static Share own_share(int64_t bytes) {
  int64_t lines = bytes / LINE, i = omp_get_thread_num(), n = omp_get_num_threads();
  int64_t from = lines * i / n;
  return (Share){from * LINE, (lines * (i + 1) / n - from) * LINE};
}

// Returns the bytes a second, read and written, of threads that copy one half of the memory to the
// other, each its own part.
static double copy_rate(char *memory, int64_t bytes, bool past) {
  int threads = omp_get_max_threads();
  Trials trials = {.times = 1};
  for (bool more = true; more;) {
    double speed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : speed)
    {
      Share own = own_share(bytes / 2);
      const char *x = memory + own.from;
      char *y = memory + bytes / 2 + own.from;
      double from = thread_us();
      for (int64_t i = 0; i < trials.times; i++) {
        if (past)
          copy_past(y, x, own.bytes);
        else
          memcpy(y, x, (size_t)own.bytes);
        __asm__ volatile("" ::: "memory"); // each copy is one
      }
      speed += speed_since(from);
    }
    more = add_trial(&trials, threads, speed);
  }
  return (double)bytes / trials.best * 1e6;
}

// Maps memory, which the threads that copy it touch first; less if there is not as much.
static char *map_arrays(int64_t *io_bytes, int64_t least) {
  for (; *io_bytes >= least; *io_bytes /= 2) {
    char *memory = mmap(NULL, (size_t)*io_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    madvise(memory, (size_t)*io_bytes, MADV_HUGEPAGE);
    return memory;
  }
  return NULL;
}

int nnrt_device_copies(NnrtRank *r, NnrtPeak out_copy[NNRT_COPIES]) {
  enum { SMALLEST = 1 << 17, PAST = 1 << 22, LEAST = 1 << 28, OF_THREAD = 1 << 25 };
  int n = 0, threads = omp_get_max_threads(), ranks = ranks_here(r);
  // The largest copy is larger than the caches of all cores in use.  All ranks of a machine copy at
  // once, and leave most of the free memory alone.
  int64_t most =
      (int64_t)OF_THREAD * threads > LEAST / ranks ? (int64_t)OF_THREAD * threads : LEAST / ranks;
  double room = nnrt_memory_free() / 8;
  int64_t bytes = SMALLEST;
  while (bytes < most && 2 * (double)(bytes * ranks) <= room)
    bytes *= 2;
  char *memory = map_arrays(&bytes, SMALLEST);
  if (!memory) return 0;
#pragma omp parallel num_threads(threads)
  for (int half = 0; half < 2; half++) {
    Share own = own_share(bytes / 2);
    memset(memory + half * (bytes / 2) + own.from, 1, (size_t)own.bytes);
  }
  for (int64_t size = SMALLEST; size <= bytes && n < NNRT_COPIES; size *= 2) {
    double rate = copy_rate(memory, size, false);
    double past = size >= PAST ? copy_rate(memory, size, true) : 0;
    if (past > rate) rate = past;
    out_copy[n++] = (NnrtPeak){.rate = rate * share_of_thread(r), .size = size};
  }
  munmap(memory, (size_t)bytes);
  return n;
}
