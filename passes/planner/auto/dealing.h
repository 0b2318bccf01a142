// Shared by the files of the deal: deal.c (units, memory, stages), deal_swap.c (saved activations
// in host memory), deal_table.c (one stage per device), deal_chunks.c (several), deal_improve.c
// (moves of a unit).

#ifndef DEALING_H
#define DEALING_H

#include "deal.h"

// Sums over the units before each, by unit.
typedef struct Sums {
  double *forward, *backward, *weight_grad; // backward with the weight gradient unless it is split
  double *lasting, *updating, *sums, *update;
  double *kept, *waiting, *both;     // of the level of all units
  double *again[N_RECOMPUTE_LEVELS]; // seconds and bytes beside the level of all units
  double *saved[N_RECOMPUTE_LEVELS];
  double *saved_waiting[N_RECOMPUTE_LEVELS], *saved_both[N_RECOMPUTE_LEVELS];
  double *away, *moves; // of states in host memory
} Sums;

typedef struct Dealer {
  const DealProblem *p;
  Arena *arena;
  int n, stages; // units; stages of all chunks
  bool split;    // gradients of weights are blocks of their own
  bool apart;    // and their bytes are known
  Sums sum;
  // By unit of the stage that find_swapped tries.
  bool *swapped;
  struct Beside *beside;
  double *again; // seconds of recomputation
} Dealer;

Dealer dealer_new(const DealProblem *p, Arena *a);

static inline const UnitCost *unit_at(const Dealer *d, int unit) {
  return &d->p->units->at[unit];
}
static inline bool may_border(const Dealer *d, int border) {
  return border == 0 || border == d->n || unit_at(d, border - 1)->may_end;
}
static inline double hop_seconds(const UnitCosts *u, int border) {
  return u->hop_start + u->hop_seconds_per_byte * u->at[border - 1].handed;
}
// The recompute level of all units.
static inline RecomputeLevel base_level(const DealProblem *p) {
  return p->per_stage_recompute ? RECOMPUTE_none : p->recompute;
}
// Seconds of the units before `unit`, of a micro-batch.
static inline double work_before(const Dealer *d, int unit) {
  return d->sum.forward[unit] + d->sum.backward[unit] + d->sum.weight_grad[unit];
}

// -- Memory ------------------------------------------------------------------------------------

// The most bytes beside those that last and those kept, of units of a stage.
typedef struct Working {
  double of[N_RECOMPUTE_LEVELS]; // if units are recomputed at the level
} Working;

void add_working(const Dealer *d, Working *w, int unit);

// Micro-batches that the only stage of a device holds at most.
StagedHeld stage_holds(const DealProblem *p, int stage);

typedef struct Recompute {
  RecomputeLevel level;
  int units;
  double again, looping; // seconds of a micro-batch; bytes of those that are held
} Recompute;

// The first units of a stage, of which states are in host memory.
typedef struct Offloaded {
  int units;
  double seconds; // after the last micro-batch
  double away;    // bytes in host memory
  double here;    // bytes of the updates on the device, after the last micro-batch
} Offloaded;

// Of units first … end - 1.
Offloaded offloaded_units(const Dealer *d, int first, int end);

// The layers of a stage, spread evenly, of which saved activations are in host memory.
typedef struct Swapped {
  int layers;
  double forward, backward; // seconds of a micro-batch that copies are waited for
  double working;           // as Working, with the layers that are on the device at a time
} Swapped;

// The savings of a stage, with which it fits.
typedef struct Saving {
  Recompute recompute;
  Offloaded offloaded;
  Swapped swapped; // of no layer, its working bytes are not known
} Saving;

enum { EIGHTHS = 8, MOST_SAVINGS = EIGHTHS + 2 };

// The pairs of the least recomputation and of offloaded states with which units first … last - 1
// fit, as the only stage of a device that holds so many micro-batches: with more and more states,
// until nothing is recomputed.  Returns their number; 0: the stage does not fit.
int find_savings(const Dealer *d, int first, int last, StagedHeld held, const Working *w,
                 Saving out[MOST_SAVINGS]);

// The least recomputation with which units first … last - 1 fit, if so many of them have states in
// host memory.  False: none does.
bool find_recompute(const Dealer *d, int first, int last, StagedHeld held, const Working *w,
                    const Offloaded *o, Recompute *out);

// Sets the swapped layers, and the least recomputation of others, with which a stage fits beside
// its offloaded states, with the least seconds of a micro-batch.  False: it does not fit.
bool find_swapped(const Dealer *d, int first, int last, StagedHeld held, const Working *w,
                  Saving *out);

// Sets out[unit - first] of a stage with so many swapped layers.
void mark_swapped(const UnitCosts *units, int first, int last, int layers, bool *out);
// Bytes on the device at a unit of a stage with swapped layers.
typedef struct Beside {
  double working; // all besides those kept, at least
  double more;    // of swapped layers, besides its own
  double gap; // and if it is recomputed: of the next swapped layer, which has a place of its own
} Beside;

// The bytes of a micro-batch that are in host memory from forward to backward. Sets those on the
// device, by unit of the stage.
double swapped_bytes(const UnitCosts *units, int stages, int first, int last, const bool *swapped,
                     Beside *out);
// Sets the seconds that copies are waited for. `again`: of recomputation, by unit of the stage.
void swapped_seconds(const UnitCosts *units, int stages, int first, int last, const bool *swapped,
                     const double *again, Swapped *out);

double back_working(const UnitCost *x, RecomputeLevel level, bool apart);
double lasting_bytes(const Dealer *d, int first, int last);
bool may_recompute(const DealProblem *p, int level);

// Finds what the stages of a device recompute, and their bytes.  False: they do not fit.
bool fit_device(const Dealer *d, Deal *deal, int device);
bool fit_stages(const Dealer *d, Deal *deal, int low, int high); // the devices of these stages

// -- Deals of parts of units -------------------------------------------------------------------

// The work of a unit in a micro-batch, and the part of it that later devices wait for.
typedef struct UnitWaits {
  double work, waits;
  double part; // set by least_with_waits: waits by work
} UnitWaits;

// The least seconds V of a step that are no less than the mean and, of the devices' mean, the waits
// for the units of earlier devices, if units may be cut and no device works more than V in all
// micro-batches. Puts the units into another order.
double least_with_waits(const Dealer *d, UnitWaits *unit, double mean);

// -- Deals -------------------------------------------------------------------------------------

Deal deal_new(Arena *a, int stages);
// The least bound over all deals, and a deal with it, of a kind with one stage per device.
bool table_deal(const Dealer *d, Deal *out);
// Of a kind with several: stages of nearly equal work.  The bound is of the mean of the devices.
bool chunks_deal(const Dealer *d, Deal *out);

#endif
