// See least_work.h.

#include "least_work.h"

#include <math.h>

#include "cost/cost.h"

#define GRADIENTS 8 // seconds of a product with its gradients by those of its forward, at most

// The most flops in a second by a kernel that has `flops`, more of them, or a part of them. More
// take the time of all.
static double most_speed(const Device *d, bool narrow, double flops) {
  double most = device_speed(d, narrow, flops);
  for (int i = 0; i < d->n_products; i++) {
    double size = d->products[i].flops, speed = device_speed(d, narrow, size);
    most = fmax(most, size > flops ? speed * flops / size : speed);
  }
  return most;
}

// Seconds of one of the products of a phase, on a rank that has this share of the flops, and one of
// `parts` of the weight.
static double product_seconds(const Device *d, const ProductWork *k, WorkPhase phase, double share,
                              double parts) {
  double speed = most_speed(d, k->narrow, k->flops * share);
  if (k->narrow && k->attended && d->attention_efficiency > 0)
    speed = (d->half > 0 ? d->half : d->f32) * d->attention_efficiency;
  double memory = k->weight_bytes[phase] / parts / d->memory_speed;
  double flops = k->flops * share;
  if (k->attended && phase == PHASE_OF_backward) flops *= ATTENTION_BACK;
  return fmax(fmax(flops / speed, memory), d->dispatch) + d->launch;
}

// Seconds of the products of one size on a rank of a stage. A unit is a product with its gradients.
typedef struct Unit {
  int n, n_series;
  double forward; // of one micro-batch
  double loop;    // of a unit in all micro-batches
  double alone;   // of gradients that are in no unit
  double once;    // of products of weights alone
  double group;   // of the most units of a group, at most
} Unit;

static Unit unit_of(const StepWork *w, const Cluster *c, const Point *p, const ProductWork *k) {
  Device d = cluster_least(c);
  double ranks = (double)p->replicas * p->tensor * p->context * p->experts;
  double m = step_slices(w, p->micro_batches), share = 1 / (ranks * (double)p->micro_batches);
  double parts = (double)p->tensor * p->experts;
  double of[N_WORK_PHASES];
  for (int i = 0; i < PHASE_OF_update; i++)
    of[i] = product_seconds(&d, k, (WorkPhase)i, share, parts);
  const int *n = k->n;
  Unit u = {.n = n[PHASE_OF_forward], .n_series = k->n_series, .forward = of[PHASE_OF_forward]};
  u.loop = m * u.forward;
  u.group = GRADIENTS * u.loop * k->n_group;
  // The gradients of a product are in its stage. Others are anywhere.
  for (int i = PHASE_OF_backward; i < PHASE_OF_update; i++) {
    if (n[i] == n[PHASE_OF_forward])
      u.loop += m * of[i];
    else
      u.alone += n[i] * m * of[i];
  }
  // Products of weights alone run once.
  u.once = n[PHASE_OF_update] * k->flops / ranks / most_speed(&d, k->narrow, k->flops);
  return u;
}

// All sizes of products, and their seconds together.
typedef struct Units {
  const StepWork *w;
  const Unit *at; // [sizes]
  double slices, loop, alone, once, group;
  double forward; // of products in series, in one micro-batch
} Units;

static Units find_units(const StepWork *w, const Cluster *c, const Point *p, Arena *a) {
  Unit *at = arena_array(a, Unit, w->sizes.n + 1);
  Units all = {.w = w, .at = at, .slices = step_slices(w, p->micro_batches)};
  for (int i = 0; i < w->sizes.n; i++) {
    Unit *u = &at[i];
    *u = unit_of(w, c, p, &w->sizes.at[i]);
    all.loop += u->n * u->loop + u->alone + u->once;
    all.alone += u->alone + u->once;
    all.once += u->once;
    all.group += u->group;
    all.forward += u->n_series * u->forward;
  }
  return all;
}

// -- Means of stages -----------------------------------------------------------------------------

// The weight of the first stage, by that of the last, and the sum of all.
static double stage_weight(double r, int stages) {
  return pow(1 - r, stages - 1);
}

static double stage_weights(double r, int stages) {
  return (1 - stage_weight(r, stages) * (1 - r)) / r;
}

// The bound with weights of ratio 1 - r on so many stages, of all but `left_out` seconds of
// products that are not in series.
static double mean_of_stages(const Units *all, double r, int stages, double left_out) {
  double first_weight = stage_weight(r, stages), series = 0, others = all->alone;
  for (int i = 0; i < all->w->sizes.n; i++) {
    const Unit *u = &all->at[i];
    // The least is on the last stage, or on the first: all others wait for its forwards.
    double f = u->forward / r, first = f + (u->loop - f) * first_weight;
    series += u->n_series * fmin(u->loop, first);
    others += (u->n - u->n_series) * u->loop;
  }
  return (series + fmax(others - left_out, 0) * first_weight) / stage_weights(r, stages);
}

static double mean_bound(const Units *all, double after, int stages) {
  if (all->forward <= 0) return 0;
  double r = fmin(all->forward / all->loop, 1);
  double least = mean_of_stages(all, r, stages, 0) +
                 after * stage_weight(r, stages) / stage_weights(r, stages);
  // Some stages have no products in series. Without groups, the fewer they are the less it takes.
  for (int n = stages - 1; n > 0; n--) {
    least = fmin(least, mean_of_stages(all, r, n, all->once + (stages - n) * all->group));
    if (all->group <= 0) break;
  }
  return least;
}

// -- Deals of products in series -----------------------------------------------------------------

// Whether products in series can be dealt to stages that end by `limit`. A stage that takes all
// that it can leaves the least to others, and the time before a product does not depend on
// deals.
static bool can_end_by(const Units *all, bool split, int stages, double limit) {
  double before = 0, own = 0, next_before = 0;
  for (int i = 0; i < all->w->chain.n; i++) {
    const Unit *u = &all->at[all->w->chain.at[i]];
    if (before + own + u->loop > limit) {
      if (--stages == 0) return false;
      before = next_before;
      own = 0;
      if (before + u->loop > limit) return false;
    }
    own += u->loop;
    // Earlier stages do a forward before, and unless gradients of weights wait also a backward
    // after.
    next_before += split ? u->forward : u->loop / all->slices;
  }
  return true;
}

static double deal_bound(const Units *all, bool split, int stages) {
  double from = all->loop / stages / 2, to = 2 * all->loop + from;
  enum { HALVINGS = 24 };
  if (!all->w->chain.n || can_end_by(all, split, stages, from)) return 0;
  for (int i = 0; i < HALVINGS; i++) {
    double middle = (from + to) / 2;
    *(can_end_by(all, split, stages, middle) ? &to : &from) = middle;
  }
  return from;
}

// -- Two chunks ----------------------------------------------------------------------------------

// Device s has chunks s and p+s of a chain. A micro-batch takes g of a chunk, forward and backward.
//
//     T >= sum of g of chunks before s   + own work
//     T >= sum of g of chunks before p+s + own work - p g of chunk s
//
// By its first forward of the later chunk it has done p of the earlier one, and as many backwards
// are left after its last one. Weights of a mean: 1/2p of each of the latter, and of both together
// a geometric series.
static double chunks_share(double slices, int devices, double *first) {
  double ratio = 1 - 0.5 / slices, p = devices;
  double sum = (1 - pow(ratio, p)) / (1 - ratio), least = INFINITY, later = 0;
  *first = pow(ratio, p - 1) / sum;
  if (slices < p || *first < 1 / (2 * p)) return *first = 1 / p;
  for (int s = devices - 1; s >= 0; s--) {
    double weight = pow(ratio, p - 1 - s) / sum, of_second = (p - 1 - s) / (2 * p);
    least = fmin(least, weight + fmin(later - of_second, of_second) / slices);
    later += weight;
  }
  return least;
}

// Gradients that are in no unit are anywhere.
static double chunks_bound(const Units *all, int devices) {
  double first, share = chunks_share(all->slices, devices, &first);
  return all->w->chain.n ? (all->loop - all->alone) * share + all->alone * first : 0;
}

double chain_share(const StepWork *w, const Point *p) {
  double slices = step_slices(w, p->micro_batches), first;
  if (!w->chain.n || p->stages == 1) return 1.0 / p->stages;
  if (p->chunks == 2) return chunks_share(slices, p->stages, &first);
  // Forwards and backwards of earlier stages are r of their work.
  if (p->chunks == 1 && p->kind == POINT_1f1b) return 1 / stage_weights(1 / slices, p->stages);
  return 1.0 / p->stages;
}

LeastWork least_work(const StepWork *w, const Cluster *c, const Point *p, double after) {
  Arena *a = arena_new();
  Units all = find_units(w, c, p, a);
  LeastWork out = {all.loop, (all.loop + after) / p->stages};
  bool split = p->kind == POINT_zb_h1 || p->kind == POINT_zb_h2;
  // Words that are on all stages are in no series.
  if (p->stages > 1 && p->chunks == 1 && p->kind != POINT_interlaced) {
    out.step = fmax(out.step, mean_bound(&all, after, p->stages));
    out.step = fmax(out.step, deal_bound(&all, split, p->stages));
  }
  if (p->stages > 1 && p->chunks == 2) out.step = fmax(out.step, chunks_bound(&all, p->stages));
  arena_free(a);
  return out;
}
