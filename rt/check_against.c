// --check-against: compares this program, as it runs, with the single-device one (against.h).
//
// Before an operation its operands are compared and replaced by the reference's values, so no
// operation depends on the rounding of earlier ones, and the first that differs has the fault.
// After the operation its results are compared.  A rank has the box of a value
// that its layout gives it in the current slice of time.  Left as they are, and not compared:
// partial sums, and values that stand for none of the model's program, as buckets and pieces.
//
// Integers must be equal.  Floating-point values may differ by rounding.  For a value with the
// elements y in the reference, unit roundoff u, whose operation adds up n terms in f32:
//
//     |x - y|  <=  SLACK * max(1, sqrt(n) * 2^-24 / u) * (noise + u * |y|)
//
// once with the root of the sum of squares as |.|, for faults that are everywhere, and once with
// the largest magnitude, for a single element.  `noise` is the change of y when each operand is
// changed by 2u at random: the reference measures it in further runs of the step.  It makes sums
// comparable that cancel, such as the gradient of an attention's key bias, which is zero but
// for rounding.  sqrt(n) is the growth of rounding errors in a sum (Higham, Accuracy and Stability
// of Numerical Algorithms, section 2.8); a norm of the whole is an upper bound of that of a box.
// NaN is equal to nothing, infinity to itself.  Of the plans of tests/e2e/check_against.py the
// largest difference is a third of its tolerance.  A fault below the rounding of the type is not
// found: in bf16 that is a few percent of a gradient.

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "against.h"
#include "comm.h"
#include "device.h"

#define SLACK 3.0

// ---- values

double nnrt_roundoff(NnrtDtype t) {
  switch (t) {
  case NNRT_f32: return 0x1p-24;
  case NNRT_f64: return 0x1p-53;
  case NNRT_f16: return 0x1p-11;
  case NNRT_bf16: return 0x1p-8;
  default: return 0;
  }
}

int64_t nnrt_value_count(const NnrtModelValue *v) {
  int64_t n = 1;
  for (int d = 0; d < v->ndim; d++)
    n *= v->dim[d];
  return n;
}

bool nnrt_value_here(const NnrtRank *r, const NnrtModelValue *v, Part *out) {
  if (!nnrt_on_mesh(r, v->mesh)) return false;
  const NnrtMesh *m = &r->program->mesh[v->mesh];
  *out = (Part){.whole = true};
  for (int d = 0; d < v->ndim; d++) {
    int64_t slices = 1, slice = 0;
    // The outermost axis is the first digit.
    for (int a = 0; a < m->n_axes; a++) {
      if (v->split[a] != d) continue;
      slices *= m->axis[a].size;
      slice = slice * m->axis[a].size + r->coord[v->mesh][a];
    }
    out->size[d] = v->dim[d] / slices;
    out->start[d] = out->size[d] * slice;
    out->whole &= slices == 1;
  }
  return true;
}

char *nnrt_value_at(const NnrtRank *r, const NnrtModelValue *v) {
  int64_t slot = v->slots > 1 ? r->micro % v->slots * v->stride : 0;
  return (v->host ? r->host : r->slab) + v->offset + slot;
}

int64_t nnrt_value_step(const NnrtRank *r) {
  return r->against->deferred ? r->against->deferred_step : r->step;
}

void nnrt_against_new(NnrtRank *r, Reference *ref) {
  const NnrtModelProgram *m = r->program->model_program;
  int n_ops = r->program->train.n_ops, use = 0;
  struct NnrtAgainst *a = nnrt_must_alloc(sizeof *a);
  *a = (struct NnrtAgainst){.ref = ref, .m = m, .random = 0x9e3779b97f4a7c15u, .found = {.op = -1}};
  a->first = nnrt_must_alloc((size_t)(n_ops + 1) * sizeof *a->first);
  // The uses are in the order of the operations.
  for (int op = 0; op <= n_ops; op++) {
    while (use < m->n_uses && m->use[use].op < op)
      use++;
    a->first[op] = use;
  }
  int64_t most = 0;
  for (int i = 0; i < m->n_values; i++) {
    int64_t bytes = nnrt_value_count(&m->value[i]) * nnrt_dtype_size(m->value[i].dtype);
    if (bytes > most) most = bytes;
  }
  a->buffer = nnrt_must_alloc((size_t)most);
  a->compared = nnrt_must_alloc((size_t)m->n_uses * sizeof *a->compared);
  r->against = a;
}

void nnrt_check_against_begin(NnrtRank *r) {
  nnrt_against_new(r, r->run->reference);
}

void nnrt_check_against_deferred(NnrtRank *r, bool begin) {
  r->against->deferred = begin;
}

// ---- one comparison

typedef struct Comparison {
  int64_t n, n_far, first_far; // elements; those beyond the tolerance of one, and the first of them
  double norm, max;            // of the differences
  int64_t at_max;
  double norm_limit, max_limit;
  bool exact; // the bits are equal
} Comparison;

// The elements of the rank's part, contiguous, beside those of the whole value.
static Comparison compare_part(const NnrtModelValue *v, const Kept *k, const struct KeptStep *s,
                               const Part *part, const char *x, const char *whole) {
  Comparison c = {.exact = true, .first_far = -1};
  int64_t size = nnrt_dtype_size(v->dtype);
  double u = nnrt_roundoff(v->dtype), sum = 0;
  double wide = v->dtype == NNRT_f64 ? 0x1p-53 : 0x1p-24;
  double growth = u > 0 ? sqrt((double)v->terms) * wide / u : 0;
  if (growth < 1) growth = 1;
  c.norm_limit = SLACK * growth * (s->noise_norm + u * s->norm);
  c.max_limit = SLACK * growth * (s->noise_max + u * s->max);
  Runs runs = nnrt_part_runs(k->ndim, k->dim, part->start, part->size);
  for (int64_t i = 0; i < runs.n; i++) {
    const char *here = x + i * runs.length * size;
    const char *there = whole + nnrt_run_start(&runs, i) * size;
    c.n += runs.length;
    // Equal bits need no look, unless they may be NaN.
    bool same = memcmp(here, there, (size_t)(runs.length * size)) == 0;
    c.exact &= same;
    if (same && isfinite(s->norm)) continue;
    for (int64_t e = 0; e < runs.length; e++) {
      double got = nnrt_element_at(here, v->dtype, e), want = nnrt_element_at(there, v->dtype, e);
      double d = got == want ? 0 : fabs(got - want);
      // Integers of 64 bits may differ where their doubles do not.
      if (u == 0 && d == 0 && memcmp(here + e * size, there + e * size, (size_t)size) != 0) d = 1;
      if (isnan(d)) d = INFINITY;
      sum += d * d;
      if (d > c.max || (d > 0 && c.max == 0)) c.max = d, c.at_max = i * runs.length + e;
      // Without a finite limit only the finite are compared.
      if (!(d <= c.max_limit) || (isinf(d) && !isinf(want))) {
        if (!c.n_far++) c.first_far = i * runs.length + e;
      }
    }
  }
  c.norm = sqrt(sum);
  return c;
}

static bool is_far(const Comparison *c) {
  return c->n_far > 0 || c->norm > c->norm_limit;
}

// "[3,5]": the element `i` of the part, in the whole.
static void add_place(char *text, size_t size, const NnrtModelValue *v, const Part *part,
                      int64_t i) {
  int64_t at[NNRT_MAX_NDIM];
  for (int d = v->ndim - 1; d >= 0; d--) {
    at[d] = part->start[d] + i % part->size[d];
    i /= part->size[d];
  }
  size_t n = (size_t)snprintf(text, size, "[");
  for (int d = 0; d < v->ndim && n < size; d++)
    n += (size_t)snprintf(text + n, size - n, d ? ",%lld" : "%lld", (long long)at[d]);
  if (n < size) snprintf(text + n, size - n, "]");
}

// Returns the first use that compared the value as a result; NULL: none did.
static const NnrtModelUse *made_by(const struct NnrtAgainst *a, int value) {
  for (int i = 0; i < a->m->n_uses; i++)
    if (a->m->use[i].value == value && a->m->use[i].number < 0 && a->compared[i])
      return &a->m->use[i];
  return NULL;
}

// Returns the operation with the partial sums of a value; NULL: there is none before `use`.
static const NnrtModelUse *partial_of(const struct NnrtAgainst *a, const NnrtModelUse *use) {
  int number = a->m->value[use->value].number;
  for (const NnrtModelUse *u = use; u >= a->m->use; u--)
    if (u->value >= 0 && u->number < 0 && a->m->value[u->value].partial &&
        a->m->value[u->value].number == number && u->of != use->of)
      return u;
  return NULL;
}

// Returns the operation that computes an operand which cannot be compared; -1: it can be.
static int uncompared(const struct NnrtAgainst *a, const NnrtModelUse *use) {
  if (use->number < 0) return -1;
  if (use->value < 0) return -1 - use->value;
  if (!a->m->value[use->value].partial) return -1;
  for (const NnrtModelUse *u = use; u >= a->m->use; u--)
    if (u->value == use->value && u->number < 0) return u->of;
  return -1;
}

// Appends the operations that compute such operands of `op`, of their operands and so on.
static char *add_uncompared(const NnrtRank *r, char *text, int op, int *room) {
  const struct NnrtAgainst *a = r->against;
  for (int i = a->first[op]; i < a->first[op + 1] && *room > 0; i++) {
    int by = uncompared(a, &a->m->use[i]);
    if (by < 0 || by >= op) continue;
    --*room;
    text = nnrt_must_append(text,
                            "\nnote: or its operand is wrong, of %s: it is no value of the "
                            "single-device program, or a partial sum, and so cannot be "
                            "compared",
                            r->graph->ops[by]);
    text = add_uncompared(r, text, by, room);
  }
  return text;
}

// "operand 2, weight 'fc.w',"
static char *subject(const NnrtRank *r, const NnrtModelUse *use, const NnrtModelValue *v) {
  static const char *const roles[] = {"input", "weight", "state", "copy", "scalar", "output"};
  const struct NnrtAgainst *a = r->against;
  bool several = false;
  for (int i = a->first[use->op]; i < a->first[use->op + 1]; i++)
    several |= a->m->use[i].number < -1;
  if (use->number < 0)
    return several ? nnrt_must_format("its result %d", -use->number)
                   : nnrt_must_format("its result");
  const NnrtTensor *t = v->param >= 0 ? &r->graph->tensors[v->param] : NULL;
  return t ? nnrt_must_format("operand %d, the %s '%s',", use->number, roles[t->role], t->name)
           : nnrt_must_format("operand %d", use->number);
}

// Remembers the difference if none before it in the program is known.
static void remember(NnrtRank *r, const NnrtModelUse *use, const NnrtModelValue *v,
                     const Part *part, const Comparison *c, const char *x, const Kept *k,
                     const struct KeptStep *s, const char *whole) {
  struct NnrtAgainst *a = r->against;
  Difference *f = &a->found;
  int64_t step = nnrt_value_step(r);
  if (f->op >= 0 && (f->step < step || (f->step == step && f->op <= use->op))) return;
  free(f->text);
  int64_t i = c->first_far >= 0 ? c->first_far : c->at_max;
  char place[128] = "", slice[64] = "";
  add_place(place, sizeof place, v, part, i);
  Runs runs = nnrt_part_runs(k->ndim, k->dim, part->start, part->size);
  int64_t there = nnrt_run_start(&runs, i / runs.length) + i % runs.length;
  if (r->program->micro_batches > 1)
    snprintf(slice, sizeof slice, ", micro-batch %d", r->micro + 1);
  char *what = subject(r, use, v);
  ShapeText shape = nnrt_shape_text(v->dtype, v->dim, v->ndim);
  double scale = s->norm > 0 ? s->norm : 1;
  // The rank's number is on the line that the report begins.
  char *text =
      nnrt_must_format("%s: %s differs from that of the single-device program%%s\n"
                       "note: rank %d%s: element %s of %s is %.9g, and there %.9g; %lld of %lld "
                       "elements of its part "
                       "differ by more than %.3g",
                       r->graph->ops[use->of], what, r->rank, slice, place, shape.at,
                       nnrt_element_at(x, v->dtype, i), nnrt_element_at(whole, v->dtype, there),
                       (long long)c->n_far, (long long)c->n, c->max_limit);
  text = nnrt_must_append(text,
                          "\nnote: relative to the whole value, the difference is %.3g, and the "
                          "tolerance %.3g: %s, sums of %lld term%s",
                          c->norm / scale, c->norm_limit / scale, nnrt_dtype_name(v->dtype),
                          (long long)v->terms, v->terms == 1 ? "" : "s");
  const NnrtModelUse *made = use->number > 0 && v->param < 0 ? made_by(a, use->value) : NULL;
  const NnrtModelUse *sums = use->number < 0 ? partial_of(a, use) : NULL;
  if (made)
    text = nnrt_must_append(text,
                            "\nnote: it was right as a result of %s: its memory has changed "
                            "since",
                            r->graph->ops[made->of]);
  if (sums)
    text = nnrt_must_append(text,
                            "\nnote: or the partial sums that it adds up, of %s, are wrong: "
                            "they cannot be compared",
                            r->graph->ops[sums->of]);
  int room = 8;
  if (use->number < 0) text = add_uncompared(r, text, sums ? sums->of : use->of, &room);
  free(what);
  *f = (Difference){step, use->op, text};
}

// Compares a value; `feed`: replaces it by that of the reference.
static void compare(NnrtRank *r, int i, bool feed) {
  struct NnrtAgainst *a = r->against;
  const NnrtModelUse *use = &a->m->use[i];
  if (use->value < 0) return;
  const NnrtModelValue *v = &a->m->value[use->value];
  const Kept *k = &a->ref->kept[v->number];
  int64_t step = nnrt_value_step(r), size = nnrt_dtype_size(v->dtype);
  const struct KeptStep *s = &k->of[step & 1];
  Part part;
  if (v->partial || k->at < 0 || s->step != step + 1 || k->dtype != v->dtype) return;
  if (use->late && r->micro + 1 < r->program->micro_batches) return;
  if (!nnrt_value_here(r, v, &part)) return;
  a->compared[i] = true;
  int64_t n = 1;
  for (int d = 0; d < v->ndim; d++)
    n *= part.size[d];
  if (n == 0) return;
  const ReferenceHead *head = a->ref->head;
  const char *whole = a->ref->base + head->region_at + (step & 1) * head->region_bytes + k->at;
  const char *x = nnrt_device_read(r, nnrt_value_at(r, v), n * size);
  Comparison c = compare_part(v, k, s, &part, x, whole);
  if (is_far(&c)) remember(r, use, v, &part, &c, x, k, s, whole);
  if (!feed || c.exact) return;
  Runs runs = nnrt_part_runs(k->ndim, k->dim, part.start, part.size);
  for (int64_t run = 0; run < runs.n; run++)
    memcpy(a->buffer + run * runs.length * size, whole + nnrt_run_start(&runs, run) * size,
           (size_t)(runs.length * size));
  nnrt_device_put(r, nnrt_value_at(r, v), a->buffer, n * size);
}

void nnrt_against_before(NnrtRank *r, int op) {
  struct NnrtAgainst *a = r->against;
  if (r->graph != &r->program->train) return;
  if (a->writes) nnrt_reference_before(r, op);
  for (int i = a->first[op]; i < a->first[op + 1] && !a->writes; i++)
    if (a->m->use[i].number > 0) compare(r, i, true);
  nnrt_device_flush(r);
}

void nnrt_against_after(NnrtRank *r, int op) {
  struct NnrtAgainst *a = r->against;
  if (r->graph != &r->program->train) return;
  if (a->writes) {
    nnrt_reference_after(r, op);
    return;
  }
  for (int i = a->first[op]; i < a->first[op + 1]; i++)
    if (a->m->use[i].number < 0) compare(r, i, false);
}

// ---- reports

// " on rank 1", " on ranks 0, 2 and 3"
static char *ranks_text(const int64_t *key, int n, int64_t first) {
  int found = 0, said = 0;
  char *text = NULL;
  for (int i = 0; i < n; i++)
    found += key[i] == first;
  for (int i = 0; i < n; i++) {
    if (key[i] != first) continue;
    const char *between = !said               ? (found > 1 ? " on ranks " : " on rank ")
                          : said + 1 == found ? " and "
                                              : ", ";
    text = nnrt_must_append(text, "%s%d", between, i);
    said++;
  }
  return text;
}

void nnrt_check_against_report(NnrtRank *r) {
  struct NnrtAgainst *a = r->against;
  const Difference *f = &a->found;
  // The first in the order of the program, of the oldest step.
  int64_t *key = nnrt_must_alloc((size_t)r->ranks * sizeof *key), first = 0;
  if (f->op >= 0) key[r->rank] = (f->step << 24) + f->op + 1;
  nnrt_comm_sum(r, key, r->ranks);
  int says = -1;
  for (int i = 0; i < r->ranks; i++) {
    if (!key[i] || (first && key[i] >= first)) continue;
    first = key[i];
    says = i;
  }
  if (!first) {
    free(key);
    return;
  }
  if (says == r->rank) {
    char *ranks = r->ranks > 1 ? ranks_text(key, r->ranks, first) : nnrt_must_format("%s", "");
    const char *gap = strstr(f->text, "%s");
    nnrt_say_error("step %lld: %.*s%s%s", (long long)f->step + 1, (int)(gap - f->text), f->text,
                   ranks, gap + 2);
    free(ranks);
  }
  free(key);
  // The report is out before any rank ends.
  nnrt_comm_sum(r, &(int64_t){0}, 1);
  nnrt_end_job(1);
}

void nnrt_check_against_summary(NnrtRank *r) {
  struct NnrtAgainst *a = r->against;
  const NnrtModelProgram *m = a->m;
  int n_ops = r->program->train.n_ops;
  enum { COMPARED, PARTIAL, ABSENT, PARAM, KINDS };
  // By number of the model's program: the ways in which it was met.  Then the operations.
  int64_t *met = nnrt_must_alloc((size_t)(KINDS * m->n_numbers + n_ops) * sizeof *met);
  int64_t *op = met + KINDS * m->n_numbers;
  for (int i = 0; i < m->n_uses; i++) {
    if (m->use[i].value < 0) continue;
    const NnrtModelValue *v = &m->value[m->use[i].value];
    int64_t *of = met + KINDS * v->number;
    of[COMPARED] |= a->compared[i];
    of[PARTIAL] |= v->partial;
    of[ABSENT] |= a->ref->kept[v->number].at < 0;
    of[PARAM] |= v->param >= 0;
    op[m->use[i].of] |= a->compared[i] && m->use[i].number < 0;
  }
  nnrt_comm_sum(r, met, KINDS * m->n_numbers + n_ops);
  int compared = 0, partial = 0, absent = 0, ops = 0;
  for (int i = 0; i < m->n_numbers; i++) {
    const int64_t *of = met + KINDS * i;
    if (of[PARAM]) continue;
    compared += of[COMPARED] > 0;
    absent += !of[COMPARED] && of[ABSENT];
    partial += !of[COMPARED] && !of[ABSENT] && of[PARTIAL];
  }
  for (int i = 0; i < n_ops; i++)
    ops += op[i] > 0;
  free(met);
  if (r->rank != 0) return;
  nnrt_say_note("equal to '%s' in %lld step%s: %d of %d values, results of %d operations; of the "
                "others, %d are partial sums only, %d are not in the memory of the reference, and "
                "%d are inside of kernels or in pieces",
                r->run->flags.check_against.s, (long long)a->steps, a->steps == 1 ? "" : "s",
                compared, m->n_computed, ops, partial, absent,
                m->n_computed - compared - partial - absent);
}
