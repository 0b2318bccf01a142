// The cost of an op on one device: see cost.h.

#include "cost.h"

#include <math.h>

bool cost_known(const Cluster *c) {
  return c->memory_speed > 0 && c->f32 > 0;
}

const Cluster *cost_cluster(const char *name, const Module *m, Arena *a, Diag *d, bool *ok) {
  const Cluster *c = cluster_read(a, cluster_or_default(name), "cluster", d);
  int n;
  const int *device = module_devices(m, a, &n);
  *ok = c != NULL;
  if (!c || !cost_known(c)) return NULL;
  // A plan for more devices than the cluster has is compiled, too, without costs.
  for (int i = 0; i < n; i++)
    if (device[i] >= cluster_devices(c)) return NULL;
  return c;
}

double arithmetic_seconds(const Device *d, const WorkSum *sum, bool narrow, double runs) {
  double speed = device_speed(d, narrow, sum->flops / runs), attention = speed;
  if (narrow && d->attention_efficiency > 0)
    attention = (d->half > 0 ? d->half : d->f32) * d->attention_efficiency;
  return (sum->flops - sum->attended) / speed + sum->attended / attention;
}

double work_seconds_in(const Device *d, const OpWork *w, const Cut *cut, double runs) {
  WorkSum sum = work_sum(w, cut);
  double compute = arithmetic_seconds(d, &sum, w->narrow, runs);
  double memory = (sum.read + sum.written) / d->memory_speed;
  double kernels = runs * w->launches;
  return fmax(fmax(compute, memory), kernels * d->dispatch) + kernels * d->launch;
}

double work_seconds_on(const Device *d, const OpWork *w, const Cut *cut) {
  return work_seconds_in(d, w, cut, 1);
}

double work_seconds(const Cluster *c, const OpWork *w, const Cut *cut) {
  Device least = cluster_least(c);
  return work_seconds_on(&least, w, cut);
}

int64_t op_copy_bytes(const Op *op) {
  return type_bytes(op->out[0]->type) * (op->kind == OP_swap_out_accumulate ? 2 : 1);
}

double op_seconds_on(const Device *d, const Op *op) {
  OpWork w = op_work_alone(op);
  return work_seconds_on(d, &w, NULL);
}

double op_seconds(const Cluster *c, const Op *op) {
  Device least = cluster_least(c);
  return op_seconds_on(&least, op);
}
