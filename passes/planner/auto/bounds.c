// See bounds.h.

#include "bounds.h"

#include <math.h>

double ring_seconds(const Cluster *c, double bytes, int n, int stride) {
  if (n <= 1) return 0;
  int within = c->per_node / stride; // of the ring's ranks that a node has
  if (n <= within) return bytes * (n - 1) / n * cluster_fastest_inside(c).beta;
  if (within < 1) within = 1;
  // Each node sends the other nodes' part of the sum, through the adapters of its ranks.
  int nodes = (n + within - 1) / within;
  double adapters = (double)within * c->nics / c->per_node;
  return bytes * (nodes - 1) / nodes / adapters * cluster_fastest_across(c).beta;
}

// The least time of a pipeline: of its last stage, with share x of the work, after the forwards of
// the first micro-batch through all others; or of these. Seconds as if one stage did all.
static double least_pipeline(double work, double lead, int stages) {
  double others = work / (stages - 1);
  double x = (others - lead) / (work - lead + others);
  x = fmin(fmax(x, 0), 1);
  return fmax(lead * (1 - x) + work * x, others * (1 - x));
}

double own_weights(const StepWork *w, const Point *p, double all) {
  return all * (1 - w->expert_share + w->expert_share / p->experts);
}

double gradient_seconds(const StepWork *w, const Cluster *c, const Point *p, double bytes) {
  int near = p->tensor * p->context;
  double of_experts = w->expert_share * bytes / p->tensor, others = bytes / p->tensor - of_experts;
  // Context ranks are replicas of all weights, and expert ranks of those of no expert.
  return ring_seconds(c, others, p->replicas * p->experts * p->context, p->tensor) +
         ring_seconds(c, of_experts / p->experts, p->replicas, near * p->experts);
}

// The seconds of sums of gradients over replicas, and of updates, if one stage had all weights.
static double least_after(const StepWork *w, const Cluster *c, const Point *p) {
  double update = 2 * own_weights(w, p, w->weights + w->states) / p->tensor / c->memory_speed;
  if (p->zero) update /= p->replicas;
  // Replicas that divide gradients add them up in every micro-batch, beside other work.
  if (p->zero > 1) return update;
  double sums = gradient_seconds(w, c, p, w->gradients * (c->half_comm ? 0.5 : 1));
  return update + (p->zero ? sums : 2 * sums);
}

static double lasting_bytes(const StepWork *w, const Point *p) {
  double weights = w->weights, states = w->states, gradients = w->gradients;
  // With ZeRO, weights in f32 may be divided as well, beside a whole copy in 16 bits.
  if (p->zero == 1 || p->zero == 2) weights = fmin(weights, w->low_weights + weights / p->replicas);
  if (p->zero == 3) weights /= p->replicas;
  if (p->zero) states /= p->replicas;
  if (p->zero > 1 || step_slices(w, p->micro_batches) <= 1) gradients = 0;
  return own_weights(w, p, weights + states + gradients) / (p->stages * p->tensor);
}

Bound bound_find(const StepWork *w, const Cluster *c, const Point *p) {
  double flops = 0, peak = w->narrow ? fmax(c->half, c->f32) : c->f32;
  for (int i = 0; i < N_WORK_PHASES; i++)
    flops += w->product_flops[i];
  double of_stage = peak * (double)point_inside(p);
  double work = flops * (double)w->batches / of_stage, after = least_after(w, c, p);
  double lead = w->product_flops[PHASE_OF_forward] / of_stage / (double)p->micro_batches;
  Bound b = {.compute = work / p->stages, .lasting = lasting_bytes(w, p)};
  // Chunks begin earlier, and each stage has some of them first.
  if (p->stages > 1 && p->chunks == 1)
    b.fill = fmax(least_pipeline(work, lead, p->stages) - b.compute, 0);
  b.after = after / p->stages;
  // One micro-batch without stages: sums run beside backward.
  bool beside = p->stages == 1 && step_slices(w, p->micro_batches) <= 1;
  b.seconds = b.compute + (beside ? 0 : fmax(b.fill, b.after));
  if (beside) b.seconds = fmax(b.compute, b.after);
  return b;
}

const char *bound_binds(const Bound *b) {
  if (b->compute >= b->fill && b->compute >= b->after) return "compute";
  return b->fill >= b->after ? "fill" : "after";
}
