// See interlaced.h.

#include "interlaced.h"

#include <math.h>
#include <string.h>

#include "dealing.h"
#include "model_features.h"

const WordsUse *units_of_words(const ModelUnits *b, Arena *a) {
  WordsUse *words = arena_array(a, WordsUse, b->n_units);
  bool any = false;
  const bool *of = ops_of_words(b->front, a);
  for_each_op(op, b->front->graphs) {
    int unit = op->of < b->n_numbers ? b->unit_of[op->of] : -1;
    if (!of[op->id] || unit < 0) continue;
    if (b->unit[unit].run >= 0) return NULL;
    WordsUse use = op->kind == OP_gather ? WORDS_lookup : WORDS_logits;
    if (use > words[unit]) words[unit] = use;
    any = true;
  }
  return any ? words : NULL;
}

// -- Words -------------------------------------------------------------------------------------

// Saved values do not outlive the turn.
WordsCost words_cost(const WordsUse *words, const UnitCosts *units) {
  WordsCost all = {0};
  double kept = 0;
  for (int i = 0; i < units->n; i++) {
    const UnitCost *x = &units->at[i];
    if (words[i] == WORDS_none) continue;
    all.seconds += x->forward + x->backward + x->weight_grad;
    all.after += x->sums + x->update;
    all.lasting += x->lasting;
    all.working = fmax(all.working, fmax(x->working[0], x->working[1]));
    kept += x->kept[RECOMPUTE_none];
  }
  all.working += kept;
  return all;
}

// Products of logits, their results and states take their share. The gradient of a table that ranks
// share is summed by other kernels than that of a whole one.
WordsCost words_bound(const WordsUse *words, const UnitCosts *units, double parts) {
  WordsCost all = {0};
  for (int i = 0; i < units->n; i++) {
    const UnitCost *x = &units->at[i];
    if (words[i] == WORDS_none) continue;
    all.seconds += x->forward / parts;
    if (words[i] == WORDS_logits) all.seconds += (x->backward + x->weight_grad) / parts;
    all.after += (x->sums + x->update) / parts;
    all.lasting += x->lasting / parts;
  }
  return all;
}

UnitCosts units_without_words(const WordsUse *words, const UnitCosts *units, Arena *a) {
  UnitCost *unit = arena_array(a, UnitCost, units->n);
  UnitCosts out = *units;
  out.n = 0;
  out.at = unit;
  out.tied_sums = out.tied_lasting = 0;
  for (int i = 0; i < units->n; i++) {
    if (words[i] != WORDS_none) continue;
    unit[out.n] = units->at[i];
    unit[out.n++].tied_lasting = 0; // of the numbers before
  }
  return out;
}

// -- Deals -------------------------------------------------------------------------------------

// A state of the table: so many stages have the units before a border.
typedef struct State {
  double slowest; // INFINITY: they do not fit
  int from;
  Recompute recompute; // of the last of these stages
} State;

// The seconds of the slowest stage that are the least of a deal.
typedef enum Least { LEAST_both, LEAST_backward } Least;

// Micro-batches that a stage holds at most. Weight gradients are part of its backward.
static StagedHeld interlaced_holds(const DealProblem *p, int stage) {
  int held = (int)fmin(2.0 * (p->stages - stage) - 1, (double)p->micro_batches);
  return (StagedHeld){held, held, 1};
}

// Finds the deal with the least of the slowest stage, of those in which each stage takes `forward`
// at most, and forward and backward `both`. Returns that least; INFINITY: there is none.
static double least_deal(const InterlacedProblem *p, const Dealer *d, Least least, double forward,
                         double both, State *at) {
  int n = d->n, stages = p->deal.stages;
  const Offloaded none = {0};
  for (int i = 0; i < (stages + 1) * (n + 1); i++)
    at[i].slowest = INFINITY;
  at[0].slowest = 0;
  for (int s = 0; s < stages; s++)
    for (int first = s; first < n; first++) {
      const State *before = &at[s * (n + 1) + first];
      Working w;
      for (int level = 0; level < N_RECOMPUTE_LEVELS; level++)
        w.of[level] = p->words.working;
      for (int last = first + 1; last <= n && isfinite(before->slowest); last++) {
        State *to = &at[(s + 1) * (n + 1) + last];
        double f = d->sum.forward[last] - d->sum.forward[first];
        double b = d->sum.backward[last] - d->sum.backward[first];
        Recompute r;
        add_working(d, &w, last - 1);
        if (f > forward || f + b > both) break;
        if (!may_border(d, last) ||
            fmax(before->slowest, least == LEAST_both ? f + b : b) >= to->slowest)
          continue;
        if (!find_recompute(d, first, last, interlaced_holds(&p->deal, s), &w, &none, &r)) continue;
        b += r.again;
        double slowest = fmax(before->slowest, least == LEAST_both ? f + b : b);
        if (slowest < to->slowest && f + b <= both) *to = (State){slowest, first, r};
      }
    }
  return at[stages * (n + 1) + n].slowest;
}

// Reads the deal of the table.
static void read_deal(const State *at, int n, Deal *out) {
  int last = n;
  for (int s = out->n; s > 0; s--) {
    const State *state = &at[s * (n + 1) + last];
    out->first[s] = last;
    out->level[s - 1] = state->recompute.level;
    out->recomputed[s - 1] = state->recompute.units;
    last = state->from;
  }
  out->first[0] = 0;
}

// A device's memory without the words.
static DealProblem without_words(const InterlacedProblem *p) {
  DealProblem own = p->deal;
  own.memory -= p->words.lasting;
  return own;
}

bool interlaced_find(const InterlacedProblem *p, Arena *a, Deal *out) {
  Arena *scratch = arena_new();
  DealProblem own = without_words(p);
  Dealer d = dealer_new(&own, scratch);
  State *at = arena_array(scratch, State, (int64_t)(own.stages + 1) * (d.n + 1));
  double least =
      d.n < own.stages ? INFINITY : least_deal(p, &d, LEAST_both, INFINITY, INFINITY, at);
  bool found = isfinite(least);
  *out = deal_new(a, own.stages);
  out->bound = (double)own.micro_batches * (p->words.seconds + least) + p->words.after;
  if (found) read_deal(at, d.n, out);
  arena_free(scratch);
  return found;
}

// The most of a stage.
typedef struct Most {
  double forward, backward, after;
} Most;

static Most most_of(const DealProblem *p, const Deal *d, Arena *a) {
  PipelineCost c = deal_cost(p, d, a);
  Most most = {0};
  for (int s = 0; s < d->n; s++) {
    most.forward = fmax(most.forward, c.at[s].forward);
    most.backward = fmax(most.backward, c.at[s].backward + c.at[s].weight_grad);
    most.after = fmax(most.after, c.at[s].sums + c.at[s].update);
  }
  return most;
}

static double deal_bytes(const InterlacedProblem *p, const Deal *d, int stage, Arena *a) {
  PipelineCost c = deal_cost(&p->deal, d, a);
  const StageCost *x = &c.at[stage];
  double looping = interlaced_holds(&p->deal, stage).kept * x->kept;
  looping += fmax(x->working, p->words.working);
  return x->lasting + p->words.lasting + fmax(looping, x->updating);
}

void interlaced_price(const InterlacedProblem *p, Deal *d, double *seconds, double *bytes) {
  // Of a micro-batch: E1 to E4 of the turn. Of T5 on 16 V100 no second deal was better, so few are
  // tried.
  enum { TRANSFERS = 4, MOST_DEALS = 32 };
  Arena *a = arena_new();
  DealProblem own = without_words(p);
  Dealer dealer = dealer_new(&own, a);
  State *at = arena_array(a, State, (int64_t)(own.stages + 1) * (dealer.n + 1));
  Most best = most_of(&own, d, a);
  // Deals of less and less forward, each with the least backward.
  Deal other = deal_new(a, d->n);
  double limit = INFINITY;
  for (int i = 0; i < MOST_DEALS; i++) {
    double both = best.forward + best.backward;
    if (!isfinite(least_deal(p, &dealer, LEAST_backward, limit, both, at))) break;
    read_deal(at, dealer.n, &other);
    Most most = most_of(&own, &other, a);
    limit = most.forward * (1 - 1e-9);
    if (most.forward + most.backward >= both) continue;
    best = most;
    memcpy(d->first, other.first, (size_t)(d->n + 1) * sizeof *d->first);
    memcpy(d->level, other.level, (size_t)d->n * sizeof *d->level);
    memcpy(d->recomputed, other.recomputed, (size_t)d->n * sizeof *d->recomputed);
  }
  *bytes = 0;
  for (int s = 0; s < d->n; s++)
    *bytes = fmax(*bytes, d->bytes[s] = deal_bytes(p, d, s, a));
  const UnitCosts *u = p->deal.units;
  double m = (double)own.micro_batches,
         transfer = u->hop_start + p->handed * u->hop_seconds_per_byte;
  *seconds = m * (p->words.seconds + TRANSFERS * transfer) +
             (m + own.stages - 1) * (best.forward + best.backward) + best.after + p->words.after;
  arena_free(a);
}
