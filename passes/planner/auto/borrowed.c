// See borrowed.h.

#include "borrowed.h"

#include <math.h>

#include "bounds.h"
#include "memory/offload.h"

// Parts of the batch on the ranks of a stage, one after the other, also of its tokens.
static int64_t row_parts(const Point *p) {
  return point_row_ranks(p) * p->context * p->micro_batches;
}

// Whether the table has no costs in the loop that the point lacks, at levels of ZeRO without
// collectives there.
static bool has_less(const Lender *l, const Point *at) {
  const Point *from = &l->at;
  bool same_inner = from->inner == at->inner || from->tensor == 1;
  // Attention to all tokens, with a part of them on each rank, takes its share, and transfers.
  bool same_context =
      from->context == 1 || (from->context == at->context && from->along == at->along);
  return same_inner && same_context && from->recompute == at->recompute && from->zero <= 1 &&
         !from->offload && from->experts == at->experts &&
         (from->replicas > 1 || at->replicas == 1) && at->tensor % from->tensor == 0 &&
         row_parts(from) <= row_parts(at);
}

bool can_lend(const Lender *l, const Point *at) {
  // Sums and updates of few bytes may take longer with ZeRO-1 than without.
  bool same_state = l->at.zero == (at->zero > 1 ? 1 : at->zero);
  // With one micro-batch, sums run beside.
  return same_state && (l->at.micro_batches > 1 || at->micro_batches == 1) && has_less(l, at);
}

bool lends_loop(const Lender *l, const Point *at) {
  return l->at.micro_batches > 1 && has_less(l, at);
}

bool lends_sums(const Lender *l, const Point *at) {
  const Point *from = &l->at;
  return from->tensor == at->tensor && from->context == at->context &&
         from->experts == at->experts && from->replicas > 1 && at->replicas % from->replicas == 0;
}

bool is_nearer(const Lender *l, const Lender *than, const Point *at) {
  if (l->at.context != than->at.context) return l->at.context > than->at.context;
  if (l->at.tensor != than->at.tensor) return l->at.tensor > than->at.tensor;
  if (row_parts(&l->at) != row_parts(&than->at)) return row_parts(&l->at) > row_parts(&than->at);
  return lends_sums(l, at) && (!lends_sums(than, at) || l->at.replicas > than->at.replicas);
}

// The point's share of the lender's work of a micro-batch.
static double work_share(const Lender *l, const Point *at) {
  return (double)row_parts(&l->at) / (double)row_parts(at) * l->at.tensor / at->tensor;
}

// The seconds of the point's sums over replicas by those of the lender's: by the bytes of its
// links, as bounds.h has them. Latencies of other groups are not known.
static double sums_share(const Lender *l, const Point *at, const StepWork *w, const Cluster *c) {
  double from = 0, to = gradient_seconds(w, c, at, w->gradients * (c->half_comm ? 0.5 : 1));
  for (int i = 0; i < l->table->costs.n; i++)
    from += l->table->costs.at[i].sums;
  // Of experts there are none without replicas.
  if (at->replicas == 1 || from <= 0) return 0;
  double share = (at->zero ? 1 : 2) * to / from;
  return lends_sums(l, at) ? fmax(share, 1) : share;
}

static double update_share(const Lender *l, const Point *at) {
  double parts = at->zero ? (double)l->at.replicas / at->replicas : 1;
  return parts * l->at.tensor / at->tensor;
}

static double lasting_share(const Lender *l, const Point *at, const StepWork *w, const Cluster *c) {
  Point from = l->at, to = *at;
  from.stages = to.stages = 1;
  double bytes = bound_find(w, c, &from).lasting;
  return bytes > 0 ? bound_find(w, c, &to).lasting / bytes : 0;
}

UnitCosts borrow_costs(const Lender *l, const Point *at, const StepWork *w, const Cluster *c,
                       Arena *a) {
  const UnitCosts *from = &l->table->costs;
  double work = work_share(l, at), sums = sums_share(l, at, w, c), update = update_share(l, at);
  double lasting = lasting_share(l, at, w, c);
  UnitCost *unit = arena_array(a, UnitCost, from->n);
  for (int i = 0; i < from->n; i++) {
    UnitCost *u = &unit[i];
    *u = from->at[i];
    double *by_work[] = {&u->forward, &u->backward, &u->weight_grad, &u->waiting,
                         &u->both,    &u->handed,   &u->working[0],  &u->working[1]};
    for (size_t k = 0; k < sizeof by_work / sizeof *by_work; k++)
      *by_work[k] *= work;
    for (int k = 0; k < N_RECOMPUTE_LEVELS; k++) {
      u->kept[k] *= work;
      u->again[k] *= work;
      u->again_working[k] *= work;
      u->split_working[k] *= work;
    }
    // Without those of a stage's first unit these are bounds, too.
    u->entry = u->entry_forward = u->entry_backward = u->entry_weight_grad = 0;
    u->tied_lasting = 0;
    u->lasting *= lasting;
    u->updating *= lasting;
    u->sums *= sums;
    u->update *= update;
  }
  UnitCosts out = *from;
  out.at = unit;
  out.tied_lasting *= lasting;
  // Transfers between stages may be within a node, where those of the lender are not.
  if (point_inside(at) != point_inside(&l->at)) {
    out.hop_start = 0;
    out.hop_seconds_per_byte = 0;
    out.tied_sums = 0;
  }
  return out;
}

UnitCosts borrow_loop_costs(const Lender *l, const Point *at, const StepWork *w, const Cluster *c,
                            Arena *a) {
  UnitCosts out = borrow_costs(l, at, w, c, a);
  UnitCost *unit = arena_copy(a, out.at, (size_t)out.n * sizeof *unit);
  for (int i = 0; i < out.n; i++)
    unit[i].sums = unit[i].update = 0;
  out.at = unit;
  out.tied_sums = 0;
  return out;
}

void borrow_away(const Lender *l, const Point *at, UnitCosts *units, Arena *a) {
  double share = update_share(l, at);
  UnitCost *unit = arena_array(a, UnitCost, units->n);
  for (int i = 0; i < units->n; i++) {
    unit[i] = units->at[i];
    unit[i].away *= share;
    unit[i].moves *= share;
    // One update is on the device at least; other bytes beside it may be those of sums.
    unit[i].piece *= share / OFFLOAD_AT_ONCE;
    unit[i].updating = 0;
  }
  units->at = unit;
}

double borrow_loop(const Lender *l, const Point *at, const StepWork *w) {
  const UnitCosts *from = &l->table->costs;
  double loop = 0;
  for (int i = 0; i < from->n; i++)
    loop += from->at[i].forward + from->at[i].backward + from->at[i].weight_grad;
  return loop * step_slices(w, at->micro_batches) * work_share(l, at);
}

double borrow_seconds(const Lender *l, const Point *at, const StepWork *w, const Cluster *c) {
  const UnitCosts *from = &l->table->costs;
  double loop = borrow_loop(l, at, w), sums = 0, update = 0, m = step_slices(w, at->micro_batches);
  for (int i = 0; i < from->n; i++) {
    sums += from->at[i].sums;
    update += from->at[i].update;
  }
  sums *= sums_share(l, at, w, c);
  update *= update_share(l, at);
  if (at->zero > 1) {
    // Gradients are added up in every micro-batch; ZeRO-3 gathers weights in forward and backward.
    double bytes = m * w->gradients * (c->half_comm ? 0.5 : 1);
    if (at->zero > 2) bytes += 2 * m * w->low_weights;
    int near = at->tensor * at->context * at->experts;
    double traffic = ring_seconds(c, own_weights(w, at, bytes) / at->tensor, at->replicas, near);
    // They take as long as those of ZeRO-1 at least; other buckets may need half of the steps.
    if (lends_sums(l, at)) traffic = fmax(traffic, sums / 2);
    return fmax(loop, traffic) + update;
  }
  // One micro-batch: sums run beside backward.
  return m <= 1 ? fmax(loop, sums) : loop + sums + update;
}
