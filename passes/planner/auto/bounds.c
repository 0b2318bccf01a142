// See bounds.h.

#include "bounds.h"

#include <math.h>

#include "least_work.h"

double ring_seconds(const Cluster *c, double bytes, int n, int stride) {
  if (n <= 1) return 0;
  int within = c->per_node / stride; // of the ring's ranks that a node has
  if (n <= within) {
    // With NVLS all bytes cross a link once, for a sum that is gathered as well; half of that here.
    double share = (n - 1.0) / n;
    if (c->nccl && c->nvls && n > 2) share = 0.5;
    return bytes * share * cluster_fastest_inside(c).beta;
  }
  if (within < 1) within = 1;
  // Each node sends the other nodes' part of the sum, through the adapters of its ranks.
  int nodes = (n + within - 1) / within;
  double adapters = (double)within * c->nics / c->per_node;
  return bytes * (nodes - 1) / nodes / adapters * cluster_fastest_across(c).beta;
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

static double ranks_in_node(const Cluster *c, const Point *p) {
  return fmin((double)p->stages * (double)point_inside(p), c->per_node);
}

double copy_seconds(const Cluster *c, const Point *p, double bytes) {
  Device d = cluster_least(c);
  double speed = d.host > 0 ? d.host : d.memory_speed;
  return bytes / (c->host_node > 0 ? fmin(speed, c->host_node / ranks_in_node(c, p)) : speed);
}

double host_seconds(const Cluster *c, const Point *p, double bytes) {
  if (c->host_update > 0) return bytes * ranks_in_node(c, p) / c->host_update;
  return copy_seconds(c, p, bytes);
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

// The seconds of collectives in the loop, if one stage had all weights: ZeRO-2 and 3 add up
// gradients in every micro-batch, and ZeRO-3 gathers weights before, once at least.
static double least_traffic(const StepWork *w, const Cluster *c, const Point *p) {
  if (p->zero < 2) return 0;
  double bytes = w->gradients * (c->half_comm ? 0.5 : 1);
  if (p->zero == 3) bytes += w->low_weights;
  bytes = own_weights(w, p, bytes) * step_slices(w, p->micro_batches) / p->tensor;
  return ring_seconds(c, bytes, p->replicas, p->tensor);
}

// The bytes of gradients that are summed up over micro-batches. ZeRO-2 and 3 divide the sums.
static double gradient_bytes(const StepWork *w, const Point *p) {
  if (step_slices(w, p->micro_batches) <= 1) return 0;
  double all = w->gradients / (p->zero > 1 ? p->replicas : 1);
  return own_weights(w, p, all) / (p->stages * p->tensor);
}

// Trained weights in f32 are offloaded with their states if products read copies of them.
static double weight_bytes(const StepWork *w, bool offloads) {
  return offloads ? w->weights - w->trained + w->low_weights : w->weights;
}

double least_bytes(const StepWork *w, int64_t ranks, double slices, bool offloads) {
  double bytes = weight_bytes(w, offloads) + (slices > 1 ? w->gradients : 0);
  return (bytes + (offloads ? 0 : w->states)) / (double)ranks;
}

double least_point_bytes(const StepWork *w, const Point *p, bool offloads) {
  double weights = weight_bytes(w, offloads), states = offloads ? 0 : w->states;
  // With ZeRO, weights in f32 may be divided as well, beside a whole copy in 16 bits.
  if (p->zero == 1 || p->zero == 2) weights = fmin(weights, w->low_weights + weights / p->replicas);
  if (p->zero == 3) weights /= p->replicas;
  if (p->zero) states /= p->replicas;
  return own_weights(w, p, weights + states) / (p->stages * p->tensor) + gradient_bytes(w, p);
}

Bound bound_find(const StepWork *w, const Cluster *c, const Point *p) {
  double after = least_after(w, c, p);
  LeastWork work = least_work(w, c, p, after);
  // States in host memory are copied there, beside sums and updates.
  double replicas = p->zero ? p->replicas : 1;
  double copies = own_weights(w, p, w->states) / (p->tensor * replicas);
  bool copied = p->offload && !p->fewest && step_slices(w, p->micro_batches) > 1;
  Bound b = {.compute = work.loop / p->stages};
  b.lasting = least_point_bytes(w, p, p->offload);
  b.gradients = p->zero > 1 ? 0 : gradient_bytes(w, p);
  b.after = fmax(after, copied ? host_seconds(c, p, copies) : 0) / p->stages;
  b.fill = fmax(work.step - b.compute - b.after, 0);
  // One micro-batch without stages: sums run beside backward.
  bool beside = p->stages == 1 && step_slices(w, p->micro_batches) <= 1;
  b.seconds = beside ? fmax(b.compute, b.after) : b.compute + b.fill + b.after;
  b.traffic = least_traffic(w, c, p) / p->stages;
  b.seconds = fmax(b.seconds, b.traffic + b.after);
  return b;
}

const char *bound_binds(const Bound *b) {
  if (b->traffic > b->compute + b->fill) return "traffic";
  if (b->compute >= b->fill && b->compute >= b->after) return "compute";
  return b->fill >= b->after ? "fill" : "after";
}
