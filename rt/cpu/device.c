// The CPU as the device (device.h): the slab is ordinary memory, and every call is complete when it
// returns.

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"
#include "fpmath.h"
#include "isa.h"
#include "word_sum.h"

struct NnrtDevice {
  int64_t slab_bytes, host_bytes; // as mapped
  char *mapped, *host_mapped;
  double value[NNRT_SLOTS][NNRT_ANSWERS];
  double known_at[NNRT_SLOTS];
};

enum { HUGE_PAGE = 2 << 20 };

static double memory_free; // before any rank allocated

bool nnrt_device_special_run(const NnrtProgram *p, int *out_status) {
  (void)p;
  (void)out_status;
  return false;
}

bool nnrt_device_find(const NnrtRun *run, Why *w) {
  const Flags *f = &run->flags;
  // Read once, before any slab of this machine is mapped.
  memory_free = nnrt_memory_free();
  fpmath_set((Fpmath)f->fpmath.i);
  if (!f->tune.given && !f->tf32.given) return true;
  return why(w, "%s is for gpus, and this executable is compiled for %s%s",
             f->tune.given ? "--tune" : "--tf32", run->program->target,
             f->tune.given ? "" : "\nhint: --fpmath bf16 lets products on processors round");
}

bool nnrt_device_enough(const NnrtRun *run, int ranks_here, Why *w) {
  const Launch *l = &run->launch;
  Slabs slabs = {0};
  // The ranks of a machine are mostly consecutive; if they are unknown, count this rank's slab for
  // each.
  int first = l->kind == LAUNCH_none ? 0 : l->rank - l->local_rank;
  bool known = first >= 0 && first <= l->rank && first + ranks_here <= run->program->ranks;
  for (int i = 0; i < ranks_here; i++)
    nnrt_slabs_add(&slabs, run->program, known ? first + i : l->rank, true, true);
  return nnrt_memory_enough(&slabs, memory_free, "memory", w);
}

void nnrt_device_describe(const NnrtProgram *p, const Flags *f, FILE *out) {
  static const char *const products[] = {"none", "vectors", "tiles"};
  int64_t set;
  Why w;
  (void)p;
  // A wrong variable is an error of training only.
  if (!nnrt_device_isa(&set, &w)) return;
  fprintf(out,
          ",\n  \"instruction_set\": \"%s\",\n  \"bf16_products\": \"%s\",\n  \"fpmath\": \"%s\"",
          nnrt_device_isa_name(set), products[isa_bf16_products(set)],
          f->fpmath.given ? f->fpmath.s : "f32");
  fputs(",\n  \"kernels\": [", out);
  if (library_name()) fprintf(out, "\"%s\", ", library_name());
  fputs("\"nnaot\"]", out);
}

// Maps zeroed memory on huge pages; the rank that uses it touches it first.
static char *map_memory(int64_t bytes, const char *what, char **out_mapped, int64_t *out_bytes) {
  size_t n = ((size_t)bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  // One huge page more than needed, to align the start.
  char *mapped = mmap(NULL, n + HUGE_PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    nnrt_say_error("out of memory: %s needs %lld bytes", what, (long long)bytes);
    nnrt_end_job(1);
  }
  // The whole mapping, for munmap.
  *out_mapped = mapped;
  *out_bytes = (int64_t)n + HUGE_PAGE;
  char *at = mapped + -(uintptr_t)mapped % HUGE_PAGE;
  madvise(at, n, MADV_HUGEPAGE); // without huge pages, ordinary pages do
  return at;
}

static atomic_int ranks_here; // of this process, with an open device

bool kernel_memory_left(const char *kernel);
bool kernel_memory_left(const char *kernel) {
  enum { ROOM = 16 << 20 };
  // All ranks may prepare kernels at the same time.
  int ranks = atomic_load(&ranks_here); // 0: kernels are called without a rank
  int64_t bytes = (int64_t)ROOM * (ranks > 0 ? ranks : 1);
  if (nnrt_memory_left((size_t)bytes)) return true;
  nnrt_error(NNRT_MEMORY, "%s: less than %s of memory is left to prepare it\n" NNRT_LIMIT_HINT,
             kernel, nnrt_amount((double)bytes).text);
  return false;
}

void nnrt_device_open(NnrtRank *r) {
  atomic_fetch_add(&ranks_here, 1);
  const NnrtProgram *p = r->program;
  NnrtDevice *d = r->device = nnrt_must_alloc(sizeof *d);
  r->slab = map_memory(r->code->slab_bytes, "the slab", &d->mapped, &d->slab_bytes);
  if (r->code->host_bytes > 0)
    r->host = map_memory(r->code->host_bytes, "what goes to host memory", &d->host_mapped,
                         &d->host_bytes);
  // Generated code sets the number of its current op here.
  r->op = nnrt_record_op(r);
  r->constant = nnrt_must_alloc((size_t)p->n_constants * sizeof *r->constant);
  // Constants are used from the executable, without a copy.
  for (int i = 0; i < p->n_constants; i++)
    r->constant[i] = p->constants[i].at;
}

// If the last step was discarded, all-reduces of its deferred updates are in flight.
void nnrt_device_finish(NnrtRank *r) {
  if (r->program->n_deferred) nnrt_comm_drain(r);
}

void nnrt_device_close(NnrtRank *r) {
  munmap(r->device->mapped, (size_t)r->device->slab_bytes);
  if (r->host) munmap(r->device->host_mapped, (size_t)r->device->host_bytes);
  free(r->constant);
  free(r->device);
}

// Several threads copy much: the first write to a page maps it, which takes longer than the copy.
void nnrt_device_put(NnrtRank *r, void *to, const void *from, int64_t bytes) {
  enum { PIECE = 256 << 10 };
  (void)r;
#pragma omp parallel for if (bytes > 4 * PIECE)
  for (int64_t at = 0; at < bytes; at += PIECE)
    memcpy((char *)to + at, (const char *)from + at,
           (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
}

void nnrt_device_flush(NnrtRank *r) {
  (void)r;
}

const void *nnrt_device_read(NnrtRank *r, const void *from, int64_t bytes) {
  (void)r;
  (void)bytes;
  return from;
}

// The sum of the words from `from` to `to`.
NNRT_CLONES static uint64_t sum_words(const char *at, int64_t from, int64_t to) {
  uint64_t sum = 0, word;
  for (int64_t i = from; i < to; i++) {
    memcpy(&word, at + i * 8, 8);
    sum += word_mix(word, (uint64_t)i);
  }
  return sum;
}

void nnrt_device_checksums(NnrtRank *r, const Range *range, int n, uint64_t *out) {
  enum { BLOCK = 1 << 14 }; // words
  (void)r;
  for (int k = 0; k < n; k++) {
    int64_t words = range[k].bytes / 8, blocks = (words + BLOCK - 1) / BLOCK;
    const char *at = range[k].at;
    uint64_t sum = word_mix_rest(at + words * 8, range[k].bytes % 8, (uint64_t)words);
#pragma omp parallel for reduction(+ : sum) if (blocks > 1)
    for (int64_t b = 0; b < blocks; b++)
      sum += sum_words(at, b * BLOCK, b + 1 < blocks ? (b + 1) * BLOCK : words);
    out[k] = sum;
  }
}

void nnrt_device_narrow(NnrtRank *r, void *to, NnrtDtype type, const void *from, int64_t n) {
  (void)r;
  const float *x = from;
#pragma omp parallel for if (n > 4096)
  for (int64_t i = 0; i < n; i++)
    nnrt_element_set(to, type, i, (double)x[i]);
}

// A step runs the deferred updates of the previous one, so that is answered later.
int nnrt_device_depth(const NnrtRank *r) {
  return r->program->n_deferred > 0;
}

bool nnrt_device_begin(NnrtRank *r) {
  (void)r;
  return false;
}

void nnrt_device_record(NnrtRank *r, int piece, void (*work)(NnrtRank *r)) {
  (void)r;
  (void)piece;
  (void)work;
}

void nnrt_device_recorded(NnrtRank *r) {
  (void)r;
}

void nnrt_device_run(NnrtRank *r, int piece, void (*work)(NnrtRank *r)) {
  (void)piece;
  work(r);
}

void nnrt_device_call(NnrtRank *r, void (*work)(NnrtRank *r)) {
  work(r);
}

void nnrt_device_ask(NnrtRank *r, int slot, const NnrtTensor *const *outputs) {
  if (!r->program->n_deferred) nnrt_comm_drain(r); // outputs depend only on finished jobs
  // The answer is read at once: the step is done.
  for (int i = 0; i < NNRT_ANSWERS; i++)
    if (outputs[i])
      r->device->value[slot][i] =
          nnrt_element_at(r->slab + outputs[i]->offset, outputs[i]->dtype, 0);
  r->device->known_at[slot] = nnrt_now_us();
}

bool nnrt_device_answer(NnrtRank *r, int slot, double *out_value, double *out_when) {
  *out_when = r->device->known_at[slot];
  memcpy(out_value, r->device->value[slot], sizeof r->device->value[slot]);
  return true; // a kernel reports bad data when it is called
}

void nnrt_device_say_found(NnrtRank *r) {
  (void)r;
}

int nnrt_device_waits_in(NnrtRank *r) {
  (void)r;
  return -1;
}

int64_t nnrt_device_mark(NnrtRank *r) {
  (void)r;
  return (int64_t)(nnrt_now_us() * 1e3);
}

double nnrt_device_time(NnrtRank *r, int64_t mark) {
  (void)r;
  return (double)mark / 1e3;
}

void nnrt_device_forget_marks(NnrtRank *r) {
  (void)r;
}
