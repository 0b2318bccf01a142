// The least time of an operation, by the limits of the machine: the roofline of S. Williams,
// A. Waterman, D. Patterson, Roofline: An Insightful Visual Performance Model.
//
//     least time = max(flops / flops a second of the best product of its type,
//                      bytes / bytes a second of the best copy of as many bytes)
//
// A copy of few bytes is one in the caches, which is faster than one in memory: an operation whose
// operands fit into the caches is compared with that, wherever they are when it begins.  So a
// share of the limits is not above 100 %, but for operations that read more than they write.
//
// Limits are measured when the run ends, by all ranks at the same time, as ranks of one machine
// share its memory in a step, too.

#include <stdlib.h>

#include "device.h"

struct NnrtRoofline {
  NnrtPeak product[LIMIT_cache]; // by type, as the limits
  NnrtPeak copy[NNRT_COPIES];    // no larger copy is faster
  int copies;
};

const char *const nnrt_limit_name[N_LIMITS] = {[LIMIT_f32] = "f32",
                                               [LIMIT_bf16] = "bf16",
                                               [LIMIT_f16] = "f16",
                                               [LIMIT_cache] = "cache",
                                               [LIMIT_memory] = "memory"};

static const NnrtDtype type_of[LIMIT_cache] = {
    [LIMIT_f32] = NNRT_f32, [LIMIT_bf16] = NNRT_bf16, [LIMIT_f16] = NNRT_f16};

static int product_limit(NnrtDtype type) {
  int limit = LIMIT_f16;
  while (limit > LIMIT_f32 && type_of[limit] != type)
    limit--;
  return limit;
}

static void meet(NnrtRank *r) {
  nnrt_comm_sum(r, &(int64_t){0}, 1);
}

NnrtRoofline *nnrt_roofline_measure(NnrtRank *r) {
  NnrtRoofline *f = nnrt_must_alloc(sizeof *f);
  const NnrtGraph *g = &r->program->train;
  bool has[LIMIT_cache] = {[LIMIT_f32] = true};
  for (int i = 0; g->work && i < g->n_ops; i++)
    has[product_limit(g->work[i].type)] |= g->work[i].flops > 0;
  // All ranks have the same table, so they measure the same.
  for (int i = 0; i < LIMIT_cache; i++) {
    if (!has[i]) continue;
    meet(r);
    f->product[i] = nnrt_device_peak(r, type_of[i]);
  }
  meet(r);
  f->copies = nnrt_device_copies(r, f->copy);
  // Noise of a short run does not make a smaller copy the slower one.
  for (int i = f->copies - 2; i >= 0; i--)
    if (f->copy[i].rate < f->copy[i + 1].rate) f->copy[i].rate = f->copy[i + 1].rate;
  return f;
}

void nnrt_roofline_free(NnrtRoofline *f) {
  free(f);
}

static void print_limit(double rate, const char *unit, int limit, const char *how) {
  printf("%10.1f %-7s  %-6s  %s\n", rate / 1e9, unit, nnrt_limit_name[limit], how);
}

void nnrt_roofline_print(const NnrtRoofline *f, const NnrtRank *r) {
  if (!f->product[LIMIT_f32].rate && !f->copies) {
    printf("limits of this machine: not measured\n");
    return;
  }
  printf("limits of this machine, measured at the end%s\n",
         r->ranks > 1 ? ", by all ranks at once" : "");
  for (int i = 0; i < LIMIT_cache; i++) {
    const NnrtPeak *p = &f->product[i];
    if (!p->rate) continue;
    char *how = p->size ? nnrt_must_format("products of matrices of %lld x %lld",
                                           (long long)p->size, (long long)p->size)
                        : nnrt_must_format("sums in registers, operands in the L1 cache");
    print_limit(p->rate, "GFLOP/s", i, how);
    free(how);
  }
  for (int i = 0; i<f->copies; i += f->copies> 1 ? f->copies - 1 : 1) {
    char *how = nnrt_must_format("a copy, of %s read and written",
                                 nnrt_amount((double)f->copy[i].size).text);
    print_limit(f->copy[i].rate, "GB/s", i < f->copies - 1 ? LIMIT_cache : LIMIT_memory, how);
    free(how);
  }
}

double nnrt_roofline_us(const NnrtRoofline *f, const NnrtWork *w, int *out_limit) {
  const double near = 1.25; // so much faster than the largest copy, one is in the caches
  int product = product_limit(w->type), i = 0;
  double us = 0;
  // Of copies of about as many bytes the smaller one, which is not slower.
  while (i + 1 < f->copies && f->copy[i + 1].size <= w->bytes)
    i++;
  if (f->copies) {
    us = (double)w->bytes / f->copy[i].rate * 1e6;
    bool cached = f->copy[i].rate > near * f->copy[f->copies - 1].rate;
    *out_limit = cached ? LIMIT_cache : LIMIT_memory;
  }
  double rate = f->product[product].rate;
  if (rate && (double)w->flops / rate * 1e6 > us) {
    us = (double)w->flops / rate * 1e6;
    *out_limit = product;
  }
  return us;
}
