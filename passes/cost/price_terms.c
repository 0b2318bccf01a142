// The terms of a step's price: see price_terms.h.

#include "price_terms.h"

#include <math.h>

#include "collectives.h"
#include "cost.h"
#include "cost_comm.h"
#include "host_copies.h"

// Adds to the term with the same names, or a new one.
static void add_term(Arena *a, PriceTerms *out, const PriceTerm *t) {
  for (int i = 0; i < out->n; i++) {
    PriceTerm *is = &out->at[i];
    if (!str_equal(is->what, t->what) || !str_equal(is->by, t->by) || is->nodes != t->nodes ||
        is->algorithm != t->algorithm || is->protocol != t->protocol)
      continue;
    is->count += t->count;
    is->bytes += t->bytes;
    is->seconds += t->seconds;
    is->nccl_seconds += t->nccl_seconds;
    return;
  }
  vec_push(a, out, *t);
}

// -- Kernels -------------------------------------------------------------------------------------

// The figure that sets the speed of arithmetic.
static const char *speed_name(const Device *d, bool narrow, const WorkSum *sum) {
  bool attention = narrow && d->attention_efficiency > 0 && sum->attended > sum->flops / 2;
  if (attention) return "attention_efficiency";
  bool half = narrow && d->half > 0;
  double peak = half ? d->half : d->f32;
  for (int i = 0; i < d->n_products; i++)
    if ((half ? d->products[i].half : d->products[i].f32) > 0) return "products";
  return device_speed(d, narrow, sum->flops) < peak ? "half_efficiency"
         : half                                     ? "16-bit peak"
                                                    : "f32 peak";
}

// As work_seconds_in, term by term.
static void add_kernel(Arena *a, PriceTerms *out, const Device *d, const Op *op, int64_t count) {
  OpWork w = op_work_alone(op);
  WorkSum sum = work_sum(&w, NULL);
  double compute = arithmetic_seconds(d, &sum, w.narrow, 1);
  double memory = (sum.read + sum.written) / d->memory_speed, dispatch = w.launches * d->dispatch;
  double most = fmax(fmax(compute, memory), dispatch), n = (double)count;
  const char *by = compute == most  ? speed_name(d, w.narrow, &sum)
                   : memory == most ? "memory_speed"
                                    : "dispatch";
  if (most > 0) add_term(a, out, &(PriceTerm){"kernels", by, .count = count, .seconds = n * most});
  if (w.launches * d->launch > 0)
    add_term(a, out,
             &(PriceTerm){"launches", "launch", .count = count * w.launches,
                          .seconds = n * w.launches * d->launch});
}

// -- Transfers -----------------------------------------------------------------------------------

static bool has_device(const int *list, int n, int device) {
  for (int i = 0; i < n; i++)
    if (list[i] == device) return true;
  return false;
}

static bool takes_part(const Parties *p, int device) {
  return has_device(p->groups.device, p->groups.n * p->groups.size, device) ||
         has_device(p->sender, p->n_senders, device) ||
         has_device(p->receiver, p->n_receivers, device);
}

// The nodes that the parties of a move are on, at most 2: whether it crosses nodes.
static int move_nodes(const Cluster *c, const Parties *p) {
  for (int i = 0; i < p->n_senders; i++)
    for (int k = 0; k < p->n_receivers; k++)
      if (cluster_node(c, p->sender[i]) != cluster_node(c, p->receiver[k])) return 2;
  return 1;
}

static void add_transfer(Arena *a, PriceTerms *out, const Cluster *c, CommPrices *prices,
                         const Collective *of, int device) {
  const CommPrice *price = comm_price(prices, of->op);
  if (price->cost.seconds <= 0 || !takes_part(&price->parties, device)) return;
  double n = (double)of->count;
  PriceTerm t = {op_info[of->op->kind].name, "messages", .count = of->count,
                 .bytes = n * (double)of->bytes, .seconds = n * price->cost.seconds};
  if (of->op->kind == OP_move)
    t.nodes = move_nodes(c, &price->parties);
  else
    t.nodes = groups_nodes(c, &price->parties.groups);
  if (of->op->kind != OP_move && path_ring_rounds(path_prim_of(of->op->kind))) {
    NcclChoice choice = comm_nccl(prices, of->op, &t.nodes);
    t.by = c->nccl ? "nccl" : "ring";
    t.algorithm = choice.algorithm;
    t.protocol = choice.protocol;
    t.nccl_seconds = n * choice.seconds;
  }
  add_term(a, out, &t);
}

bool price_terms(const Module *m, const Cluster *c, int device, Arena *a, PriceTerms *out) {
  const Graph *g = m->graphs;
  if (!g || m->phase < PHASE_local || !cost_known(c) || device >= cluster_devices(c)) return false;
  const StepPart *part = graph_step_parts(g, a);
  const Device is = cluster_device(c, device);
  int n_devices;
  const int *all = module_devices(m, a, &n_devices);
  int in_node = host_sharing(c, all, n_devices);
  for_each_op(op, g) {
    const Mesh *mesh = op_mesh(op);
    if ((mesh && !mesh_has(mesh, device)) || op_is_view(op) || (mesh && op_is_collective(op)))
      continue;
    // A deferred op runs once, in the first slice of the next step.
    int64_t count = part[op->id] == STEP_micro && !op->deferred ? module_slices(m) : 1;
    if (op_starts_copy(op)) {
      double bytes = (double)count * (double)op_copy_bytes(op);
      add_term(a, out,
               &(PriceTerm){"copies", "host", .count = count, .bytes = bytes,
                            .seconds = (double)count * host_copy_seconds(c, &is, in_node, op)});
    } else if (!(op_info[op->kind].traits & VIEW))
      add_kernel(a, out, &is, op, count);
  }
  Collectives list = {0};
  collectives_find(a, m, &list);
  CommPrices *prices = comm_prices_new(a, c);
  for (int i = 0; i < list.n; i++)
    add_transfer(a, out, c, prices, &list.at[i], device);
  return true;
}
