// See estimate.h.

#include "estimate.h"

#include <limits.h>
#include <math.h>

#include "bounds.h"
#include "words_transfers.h"

#define LATER  1.4 // bytes saved until gradients of weights, by those saved until other gradients
#define LOGITS 8   // bytes of logits and their gradients, by those of logits in 16 bits

// The seconds of a collective of `n` ranks that are `stride` apart, without its bytes.
static double start_seconds(const Cluster *c, int n, int stride) {
  if (n <= 1) return 0;
  const Link *link = n * stride <= c->per_node ? &c->inside : &c->across;
  return c->start + (n - 1) * link->alpha;
}

// The seconds in which a stage of a full pipeline is idle, by the work of a micro-batch on a stage.
static double idle_seconds(const Point *p, double f, double b, double w, double hop) {
  const StagedTraits *t = &staged_traits[point_schedule(p)];
  double idle = t->idle[0] * f + t->idle[1] * b + t->idle[2] * w;
  idle = fmax(idle, t->idle_least * b) / p->chunks;
  return (p->stages - 1) * (idle + 2 * hop);
}

// Micro-batches whose activations a stage has at the same time, at most.
static double in_flight(const StepWork *w, const Point *p) {
  StagedKind kind = point_schedule(p);
  double most = staged_held(kind, p->stages, INT_MAX, 0);
  if (p->kind == POINT_interlaced) most = 2 * most - 1;
  if (p->chunks > 1) most = (double)staged_ahead(kind, p->stages, p->chunks, 0) / p->chunks;
  return fmin(most, step_slices(w, p->micro_batches));
}

// The bytes of the rank with the most, at first or at last.
//
// Values that products read stay until the gradients of weights, which zero-bubble schedules put
// off, also those of the last product, whose result is the largest of all: logits, in f32 beside 16
// bits, and their gradients.
static double bytes_of(const StepWork *w, const Point *p, double share, double *all_saved) {
  bool split = staged_traits[point_schedule(p)].split;
  double parts = (double)p->stages * p->tensor, replicas = p->zero ? p->replicas : 1;
  double low = w->narrow ? w->low_weights : 0;
  double weights = w->weights, states = p->offload ? 0 : w->states;
  if (p->offload && w->narrow) weights = 0;
  double lasting = (weights + low) / (p->zero == 3 ? replicas : 1) + states / replicas;
  if (step_slices(w, p->micro_batches) > 1 || p->stages > 1)
    lasting += w->gradients / (p->zero > 1 ? replicas : 1);
  double saved = w->saved * share / p->stages * (split ? LATER : 1);
  double last = LOGITS * w->largest * share * p->tensor;
  if (p->kind == POINT_interlaced) last /= parts;
  double slices = in_flight(w, p);
  *all_saved = saved * slices;
  return own_weights(w, p, lasting) / parts + saved * slices + last * (split ? slices : 1);
}

static double after_seconds(const StepWork *w, const Cluster *c, const Point *p, double *sums) {
  double parts = (double)p->stages * p->tensor;
  double bytes = w->gradients / p->stages * (c->half_comm ? 0.5 : 1);
  *sums = gradient_seconds(w, c, p, bytes) * (p->zero ? 1 : 2);
  if (p->zero == 1 || p->zero == 2) *sums += gradient_seconds(w, c, p, w->low_weights / p->stages);
  Device d = cluster_least(c);
  return step_work_seconds(w, &d, PHASE_OF_update, 0, parts * (p->zero ? p->replicas : 1));
}

// The seconds of all micro-batches on stages with tables of words on all of them, as interlaced.h
// says. `all`: of the kernels of a micro-batch, by their phases, on all stages. `rows`: a rank's
// part of the batch in it; `sum`: bytes of a part of a sum, by those of a value.
static double interlaced_seconds(const StepWork *w, const Cluster *c, const Point *p,
                                 const double *all, double rows, double sum) {
  Device d = cluster_least(c);
  double share = rows / p->tensor, words = 0, others = 0;
  for (int i = 0; i < PHASE_OF_update; i++) {
    others += all[i] - step_words_seconds(w, &d, (WorkPhase)i, share, p->tensor);
    words +=
        step_words_seconds(w, &d, (WorkPhase)i, share / p->stages, (double)p->tensor * p->stages);
  }
  int units = w->units - w->word_units;
  double slowest = others / p->stages;
  if (units) slowest *= 1 + (double)p->stages / units;
  if (w->products) {
    double bytes = w->reduced / w->products * rows;
    WordsTransfers t = words_transfers(c, p, bytes, bytes * sum);
    // Gradients of rows are added up beside the product of the table's gradient: one of three.
    double beside = words / 3;
    words += t.sum + 2 * t.spread + fmax(t.sum - beside, 0);
  }
  double m = step_slices(w, p->micro_batches);
  return m * words + (m + p->stages - 1) * slowest;
}

Estimate estimate_find(const StepWork *w, const Cluster *c, const Point *p) {
  Device d = cluster_least(c);
  double m = step_slices(w, p->micro_batches);
  double rows = 1 / ((double)point_row_ranks(p) * p->context * (double)p->micro_batches);
  double share = rows / p->tensor;
  // A micro-batch on all stages.
  double of[N_WORK_PHASES];
  for (int i = 0; i < PHASE_OF_update; i++)
    of[i] = step_work_seconds(w, &d, (WorkPhase)i, share, p->tensor);
  // Pairs of products gather rows in the type of products and reduce partial sums in f32: of the
  // first product's input and the second's result forward, of their gradients backward, with the
  // input again for gradients of weights.
  double sum = w->narrow && !c->half_comm ? 2 : 1; // bytes of a sum, by those of a value
  double start = w->products * start_seconds(c, p->tensor, 1);
  double end = ring_seconds(c, w->reduced * rows, p->tensor, 1) / 2; // of one product of each pair
  of[PHASE_OF_forward] += start + (1 + sum) * end;
  of[PHASE_OF_backward] += 1.5 * start + (2 + sum) * end;
  double f = of[0] / p->stages, b = of[1] / p->stages, g = of[2] / p->stages;
  double hop = 0;
  if (p->stages > 1 && w->products)
    hop = c->start + c->across.alpha + w->reduced / w->products * share * c->across.beta;
  double sums, update = after_seconds(w, c, p, &sums);
  // ZeRO-3 gathers weights in forward and in backward of each micro-batch; with ZeRO-2 and ZeRO-3
  // the sums of gradients are in the loop as well.
  double loop = m * (f + b + g);
  // The slowest stage has about a product more than the mean.
  int parts = p->stages * p->chunks;
  if (parts > 1) loop *= 1 + (double)parts / w->units;
  double traffic = 0;
  if (p->zero == 3) traffic += 2 * m * gradient_seconds(w, c, p, w->low_weights);
  if (p->zero > 1 || (p->stages == 1 && m <= 1)) {
    traffic += m * sums;
    sums = 0;
  }
  double idle = idle_seconds(p, f, b, g, hop);
  if (p->kind == POINT_interlaced) {
    loop = interlaced_seconds(w, c, p, of, rows, sum);
    idle = 0; // is in it
  }
  Estimate e = {.seconds = fmax(loop, traffic) + sums + update + idle};
  if (p->offload && !p->fewest) {
    double bytes = w->states + (w->narrow ? w->weights : 0);
    bytes =
        own_weights(w, p, bytes) / ((double)p->stages * p->tensor * (p->zero ? p->replicas : 1));
    e.seconds += host_seconds(c, p, bytes);
  }
  e.bytes = bytes_of(w, p, share, &e.saved);
  return e;
}
