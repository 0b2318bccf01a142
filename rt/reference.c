// The reference of --check-against: a process that trains on a single device, and writes each value
// of the model's program to a file that its parent has mapped (against.h).
//
// A value is written by the first operation of a step that reads or computes it.  The step then
// runs again, each operation on operands that are changed by 2u at random, u being the unit
// roundoff of their type: the changes of results are their noise, the scale on which rounding
// counts.  A third run begins with the results of the second, changed by 2u again: ranks may
// recompute an operand inside of a kernel, or as a sum of partial sums, and in another type. The
// weights of the first run remain.

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "against.h"
#include "device.h"

enum { PAGE = 4096, ALIGN = 64 };

static struct {
  Reference map;
  int from, to;
} self;

static void set_text(char *to, size_t size, const char *text) {
  snprintf(to, size, "%s", text ? text : "");
}

static bool reply(int64_t word) {
  return write(self.to, &word, sizeof word) == (ssize_t)sizeof word;
}

bool nnrt_reference_open(NnrtRun *run, Why *w) {
  const NnrtProgram *p = run->program;
  const NnrtModelProgram *m = p->model_program;
  int fd;
  if (sscanf(run->flags.check_write.s, "%d,%d,%d", &self.from, &self.to, &fd) != 3)
    return why(w, "--check-write is for --check-against, which starts this program with it");
  // The table and the regions.
  int64_t n = m ? m->n_numbers : 0, at = 0;
  int64_t table = (int64_t)sizeof(ReferenceHead), head = table + n * (int64_t)sizeof(Kept);
  Kept *kept = nnrt_must_alloc((size_t)(n + 1) * sizeof *kept);
  for (int64_t i = 0; i < n; i++)
    kept[i].at = -1;
  for (int i = 0; m && i < m->n_values; i++) {
    const NnrtModelValue *v = &m->value[i];
    Kept *k = &kept[v->number];
    if (k->at >= 0) continue;
    *k = (Kept){.at = at,
                .bytes = nnrt_value_count(v) * nnrt_dtype_size(v->dtype),
                .ndim = v->ndim,
                .dtype = v->dtype};
    memcpy(k->dim, v->dim, sizeof k->dim);
    at += (k->bytes + ALIGN - 1) / ALIGN * ALIGN;
  }
  int64_t region = (at + PAGE - 1) / PAGE * PAGE, region_at = (head + PAGE - 1) / PAGE * PAGE;
  int64_t bytes = region_at + 2 * region;
  int code = posix_fallocate(fd, 0, bytes);
  if (code)
    return why(w, "no room for the values of two steps, %s: %s\nhint: TMPDIR names another folder",
               nnrt_amount((double)bytes).text, strerror(code));
  char *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return why(w, "cannot map the values: %s", strerror(errno));
  close(fd);
  ReferenceHead *h = (ReferenceHead *)(void *)base;
  *h = (ReferenceHead){.n = n,
                       .fingerprint = m ? m->fingerprint : 0,
                       .region_at = region_at,
                       .region_bytes = region,
                       .batch = p->batch,
                       .ranks = p->ranks,
                       .micro_batches = p->micro_batches,
                       .n_deferred = p->n_deferred,
                       .has_values = m != NULL};
  memcpy(h->magic, NNRT_REFERENCE_MAGIC, sizeof h->magic);
  set_text(h->version, sizeof h->version, p->version);
  set_text(h->model, sizeof h->model, p->model);
  set_text(h->plan, sizeof h->plan, p->plan);
  set_text(h->lr_schedule, sizeof h->lr_schedule, p->lr_schedule);
  set_text(h->describe, sizeof h->describe, p->describe);
  memcpy(base + table, kept, (size_t)n * sizeof *kept);
  free(kept);
  self.map = (Reference){.head = h, .kept = (Kept *)(void *)(base + table), .base = base};
  // The parent decides now whether this program can serve; if not, it closes its end.
  int64_t word;
  if (!reply(bytes) || read(self.from, &word, sizeof word) != (ssize_t)sizeof word) _exit(0);
  return true;
}

void nnrt_reference_begin(NnrtRank *r) {
  nnrt_against_new(r, &self.map);
  r->against->writes = true;
  int64_t bytes = 0;
  for (int i = 0; i < r->program->train.n_tensors; i++) {
    const NnrtTensor *t = &r->program->train.tensors[i];
    if (nnrt_tensor_lasts(t)) bytes += nnrt_tensor_count(t) * nnrt_dtype_size(t->dtype);
  }
  r->against->saved = nnrt_must_alloc((size_t)bytes);
  const NnrtModelProgram *m = r->against->m;
  r->against->computed = nnrt_must_alloc((size_t)m->n_numbers * sizeof(bool));
  for (int i = 0; i < m->n_uses; i++)
    if (m->use[i].value >= 0)
      r->against->computed[m->value[m->use[i].value].number] |= m->use[i].number < 0;
  for (int i = 0; i < 2; i++) {
    Changed *c = &r->against->changed[i];
    c->at = nnrt_must_alloc((size_t)self.map.head->region_bytes);
    c->step = nnrt_must_alloc((size_t)self.map.head->n * sizeof *c->step);
  }
}

bool nnrt_reference_wait(NnrtRank *r, int64_t step) {
  int64_t word;
  (void)r;
  return read(self.from, &word, sizeof word) == (ssize_t)sizeof word && word == step;
}

void nnrt_reference_done(NnrtRank *r) {
  if (!reply(r->step)) _exit(0); // the parent has ended
}

static char *kept_at(const NnrtRank *r, const Kept *k) {
  const ReferenceHead *h = r->against->ref->head;
  return r->against->ref->base + h->region_at + (r->step & 1) * h->region_bytes + k->at;
}

// The norm and the largest magnitude of the finite elements of x, or of x - y; NaN if x has any.
static void measure(const void *x, const void *y, NnrtDtype t, int64_t n, double *out_norm,
                    double *out_max) {
  double sum = 0, max = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = nnrt_element_at(x, t, i) - (y ? nnrt_element_at(y, t, i) : 0);
    if (isnan(d) && !y) sum = NAN;
    if (!isfinite(d)) continue;
    sum += d * d;
    max = fmax(max, fabs(d));
  }
  *out_norm = sqrt(sum);
  *out_max = max;
}

// Writes a value, unless this step has.
static void keep(NnrtRank *r, const NnrtModelValue *v) {
  Kept *k = &r->against->ref->kept[v->number];
  struct KeptStep *s = &k->of[r->step & 1];
  if (s->step == r->step + 1) return;
  s->step = r->step + 1;
  memcpy(kept_at(r, k), nnrt_device_read(r, nnrt_value_at(r, v), k->bytes), (size_t)k->bytes);
  if (nnrt_roundoff(v->dtype) > 0)
    measure(kept_at(r, k), NULL, v->dtype, nnrt_value_count(v), &s->norm, &s->max);
}

// ---- noise

// Returns -1 or 1.
static double random_sign(struct NnrtAgainst *a) {
  a->random ^= a->random << 13;
  a->random ^= a->random >> 7;
  a->random ^= a->random << 17;
  return a->random >> 32 & 1 ? 1 : -1;
}

static void add_noise(struct KeptStep *s, const void *x, const void *y, NnrtDtype t, int64_t n) {
  double norm, max;
  if (nnrt_roundoff(t) == 0) return;
  measure(x, y, t, n, &norm, &max);
  // Of several operations with this value, the most.
  s->noise_norm = fmax(s->noise_norm, norm);
  s->noise_max = fmax(s->noise_max, max);
}

static void measure_noise(NnrtRank *r, const NnrtModelValue *v) {
  struct NnrtAgainst *a = r->against;
  Kept *k = &a->ref->kept[v->number];
  const void *x = nnrt_device_read(r, nnrt_value_at(r, v), k->bytes);
  Changed *c = &a->changed[a->noisy & 1];
  memcpy(c->at + k->at, x, (size_t)k->bytes);
  c->step[v->number] = r->step + 1;
  add_noise(&k->of[r->step & 1], x, kept_at(r, k), v->dtype, nnrt_value_count(v));
}

// Puts the value of the run before back, changed by 2u at random.
static void feed_noise(NnrtRank *r, const NnrtModelValue *v) {
  struct NnrtAgainst *a = r->against;
  const Kept *k = &a->ref->kept[v->number];
  double u = nnrt_roundoff(v->dtype);
  // No operation computes a view of the result of one.
  if (v->param < 0 && !a->computed[v->number]) measure_noise(r, v);
  const Changed *c = &a->changed[(a->noisy - 1) & 1];
  bool changed = a->noisy > 1 && c->step[v->number] == r->step + 1;
  const char *x = changed ? c->at + k->at : kept_at(r, k);
  int64_t n = u > 0 ? nnrt_value_count(v) : 0;
  for (int64_t i = 0; i < n; i++) {
    double is = nnrt_element_at(x, v->dtype, i);
    nnrt_element_set(a->buffer, v->dtype, i, is * (1 + 2 * u * random_sign(a)));
  }
  nnrt_device_put(r, nnrt_value_at(r, v), n ? a->buffer : x, k->bytes);
}

// The noise of a new weight is that of its value in the next step.
static void measure_param(NnrtRank *r, int tensor, const void *x, const void *saved) {
  const NnrtModelProgram *m = r->against->m;
  for (int i = 0; i < m->n_values; i++) {
    const NnrtModelValue *v = &m->value[i];
    if (v->param != tensor) continue;
    struct KeptStep *s = &r->against->ref->kept[v->number].of[(r->step + 1) & 1];
    if (r->against->noisy == 1) s->noise_norm = s->noise_max = 0;
    add_noise(s, x, saved, v->dtype, nnrt_value_count(v));
  }
}

void nnrt_reference_noise(NnrtRank *r, int run) {
  struct NnrtAgainst *a = r->against;
  const NnrtModelProgram *m = a->m;
  a->noisy = run;
  for (int i = 0; run == 1 && i < m->n_values; i++) {
    struct KeptStep *s = &a->ref->kept[m->value[i].number].of[r->step & 1];
    if (m->value[i].param < 0) s->noise_norm = s->noise_max = 0;
  }
  char *saved = a->saved;
  for (int i = 0; run == 1 && i < r->program->train.n_tensors; i++) {
    const NnrtTensor *t = &r->program->train.tensors[i];
    int64_t bytes = nnrt_tensor_count(t) * nnrt_dtype_size(t->dtype);
    if (!nnrt_tensor_lasts(t)) continue;
    memcpy(saved, nnrt_device_read(r, nnrt_tensor_at(r, t), bytes), (size_t)bytes);
    saved += bytes;
  }
}

void nnrt_reference_quiet(NnrtRank *r) {
  const char *saved = r->against->saved;
  for (int i = 0; i < r->program->train.n_tensors; i++) {
    const NnrtTensor *t = &r->program->train.tensors[i];
    int64_t bytes = nnrt_tensor_count(t) * nnrt_dtype_size(t->dtype);
    if (!nnrt_tensor_lasts(t)) continue;
    measure_param(r, i, nnrt_device_read(r, nnrt_tensor_at(r, t), bytes), saved);
    nnrt_device_put(r, nnrt_tensor_at(r, t), saved, bytes);
    saved += bytes;
  }
  r->against->noisy = 0;
}

// ---- around each operation

static void each_use(NnrtRank *r, int op, bool results,
                     void (*what)(NnrtRank *r, const NnrtModelValue *v)) {
  const struct NnrtAgainst *a = r->against;
  for (int i = a->first[op]; i < a->first[op + 1]; i++)
    if ((a->m->use[i].number < 0) == results && a->m->use[i].value >= 0)
      what(r, &a->m->value[a->m->use[i].value]);
}

void nnrt_reference_before(NnrtRank *r, int op) {
  each_use(r, op, false, r->against->noisy ? feed_noise : keep);
}

void nnrt_reference_after(NnrtRank *r, int op) {
  each_use(r, op, true, r->against->noisy ? measure_noise : keep);
}
