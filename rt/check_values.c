// --check-values: reads the results of every operation, and ends the job at the first NaN with the
// statistics of its operands.
//
//     error: step 3: sqrt  m.onnx:/Sqrt: not a number: 2 of 8 values of its result
//     note: operand 1: 8 values from -0.25 to 3.5, 0.8 on average without their signs
//
// Infinite values may be intended, as in a mask.  The first operation of a step that makes an
// infinite value from finite operands is remembered, and reported if a NaN follows.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

struct NnrtChecks {
  int64_t step;
  char infinite[512]; // the operation; empty: none in this step
};

void nnrt_checks_start(NnrtRank *r) {
  r->checks = nnrt_must_alloc(sizeof *r->checks);
}

const char *nnrt_checks_infinite(const NnrtRank *r) {
  return r->checks && r->checks->infinite[0] ? r->checks->infinite : NULL;
}

typedef struct Statistics {
  int64_t n, nan, infinite;
  double least, most, sum; // of the finite values; sum of absolute values
} Statistics;

static Statistics look_at(NnrtRank *r, const NnrtValue *v) {
  // A value of a micro-batch in flight has one slot of several.
  int64_t slot = v->slots > 1 ? r->micro % v->slots * v->stride : 0;
  const char *at = (v->host ? r->host : r->slab) + v->offset + slot;
  const void *x = nnrt_device_read(r, at, v->count * nnrt_dtype_size(v->dtype));
  Statistics s = {.n = v->count, .least = INFINITY, .most = -INFINITY};
  for (int64_t i = 0; i < v->count; i++) {
    double value = nnrt_element_at(x, v->dtype, i);
    s.nan += isnan(value) != 0;
    s.infinite += isinf(value) != 0;
    // One infinite value would hide the range of all others.
    if (!isfinite(value)) continue;
    s.least = fmin(s.least, value);
    s.most = fmax(s.most, value);
    s.sum += fabs(value);
  }
  return s;
}

// Describes the operands after the operation ran: a result may have overwritten one.
static void describe_operands(NnrtRank *r, const NnrtValue *v, int n, char *text, size_t size) {
  for (int i = 0; i < n; i++) {
    char name[64];
    if (v[i].number < 0) continue;
    // An operand is kept unless its bytes overlap those of a result.
    bool kept = true;
    int64_t end = v[i].offset + v[i].count * nnrt_dtype_size(v[i].dtype);
    for (int k = 0; k < n; k++) {
      int64_t k_end = v[k].offset + v[k].count * nnrt_dtype_size(v[k].dtype);
      bool overlaps = v[i].host == v[k].host && v[i].offset < k_end && v[k].offset < end;
      kept &= v[k].number > 0 || !overlaps;
    }
    // A result that overwrote the operand is read in its place; the note says so.
    Statistics s = look_at(r, &v[i]);
    snprintf(name, sizeof name, "operand %d%s", v[i].number,
             kept ? "" : ", the present offset of the result");
    // The counts come first; the range is that of the finite values.
    size_t at = strlen(text);
    int64_t finite = s.n - s.nan - s.infinite;
    at += (size_t)snprintf(text + at, size - at, "\nnote: %s: %lld value%s", name, (long long)s.n,
                           s.n == 1 ? "" : "s");
    if (at < size && s.nan)
      at += (size_t)snprintf(text + at, size - at, ", %lld not a number", (long long)s.nan);
    if (at < size && s.infinite)
      at += (size_t)snprintf(text + at, size - at, ", %lld infinite", (long long)s.infinite);
    if (at < size && finite)
      snprintf(text + at, size - at, ", from %.6g to %.6g, %.6g on average without their signs",
               s.least, s.most, s.sum / (double)finite);
  }
}

void nnrt_check_values(NnrtRank *r, int op) {
  struct NnrtChecks *c = r->checks;
  // The table of values is sorted by operation: search the first row of this one, and count its
  // rows.
  const NnrtGraph *g = r->graph;
  int low = 0, high = g->n_values;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (g->values[middle].op < op)
      low = middle + 1;
    else
      high = middle;
  }
  int n = 0;
  while (low + n < g->n_values && g->values[low + n].op == op)
    n++;
  const NnrtValue *v = g->values + low;
  // Infinite values are remembered within a step only.
  if (c->step != r->step) c->infinite[0] = 0;
  c->step = r->step;
  // Results have negative numbers; operands are only read to explain them.
  for (int i = 0; i < n; i++) {
    if (v[i].number > 0) continue;
    Statistics s = look_at(r, &v[i]);
    // Infinite operands explain an infinite result: only an op that makes it is remembered.
    if (s.infinite && !c->infinite[0]) {
      bool before = false;
      for (int k = 0; k < n; k++)
        before |= v[k].number > 0 && look_at(r, &v[k]).infinite > 0;
      if (!before) snprintf(c->infinite, sizeof c->infinite, "%s", r->graph->ops[op]);
    }
    // The first NaN ends the job.
    if (!s.nan) continue;
    char text[1024];
    snprintf(text, sizeof text, "%lld of %lld values of its result%s", (long long)s.nan,
             (long long)s.n, r->program->micro_batches > 1 ? ", in one of the micro-batches" : "");
    describe_operands(r, v, n, text, sizeof text);
    if (c->infinite[0]) {
      size_t at = strlen(text);
      snprintf(text + at, sizeof text - at, "\nnote: infinite values arose first in %s",
               c->infinite);
    }
    nnrt_fail(r, op, nnrt_error(NNRT_VALUE, "%s", text));
  }
}
