// See cost.h.

#include "cost.h"

bool cost_known(const Cluster *c) {
  return c->memory_speed > 0 && c->f32 > 0;
}

double work_seconds(const Cluster *c, const OpWork *w, const Cut *cut) {
  WorkSum sum = work_sum(w, cut);
  // A cluster whose speed in 16 bits is not known is no slower in them.
  double peak = w->narrow && c->half > 0 ? c->half : c->f32;
  double compute = sum.flops / peak, memory = (sum.read + sum.written) / c->memory_speed;
  return (compute > memory ? compute : memory) + w->launches * c->launch;
}

double op_seconds(const Cluster *c, const Op *op) {
  OpWork w = op_work_alone(op);
  return work_seconds(c, &w, NULL);
}
