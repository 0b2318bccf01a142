// See host_copies.h.

#include "host_copies.h"

#include <math.h>

#include "cost/cost.h"

int host_sharing(const Cluster *c, const int *device, int n) {
  Arena *scratch = arena_new();
  int *in_node = arena_array(scratch, int, c->nodes), most = 0;
  for (int i = 0; i < n; i++) {
    int own = ++in_node[cluster_node(c, device[i])];
    if (own > most) most = own;
  }
  arena_free(scratch);
  return most;
}

double host_speed(const Cluster *c, const Device *d, int in_node) {
  double speed = d->host > 0 ? d->host : d->memory_speed;
  return c->host_node > 0 ? fmin(speed, c->host_node / in_node) : speed;
}

// Whether the copy is that of a weight or state for its update, and not of a gradient.
static bool copies_persistent(const Op *op) {
  if (op->part != PART_update || op->kind == OP_swap_out_accumulate) return false;
  if (op->kind == OP_swap_in) return !op->in[0].value->def;
  const Op *wait = op->out[0]->uses->user;
  for_each_use(u, wait->out[0])
    if (!u->user) return true;
  return false;
}

double host_copy_seconds(const Cluster *c, const Device *d, int in_node, const Op *op) {
  double bytes = (double)type_bytes(op->out[0]->type), speed = host_speed(c, d, in_node);
  if (!c->host_update || !copies_persistent(op)) return (double)op_copy_bytes(op) / speed;
  // The host updates the offloaded states itself (ZeRO-Offload): they do not move.  For each weight
  // its gradient comes in 16 bits and its new value goes back.
  if (op->kind == OP_swap_out) return 0;
  bool weight = op->in[0].value->role == ROLE_weight;
  double moved = weight ? 2 * 2 * (double)type_count(op->out[0]->type) : 0;
  return bytes * in_node / c->host_update + moved / speed;
}
