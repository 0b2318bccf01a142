// See interlaced.h.

#include "interlaced.h"

#include <math.h>

#include "model_features.h"

const bool *units_of_words(const ModelUnits *b, Arena *a) {
  bool *words = arena_array(a, bool, b->n_units), any = false;
  const bool *of = ops_of_words(b->front, a);
  for_each_op(op, b->front->graphs) {
    int unit = op->of < b->n_numbers ? b->unit_of[op->of] : -1;
    if (!of[op->id] || unit < 0) continue;
    if (b->unit[unit].run >= 0) return NULL;
    words[unit] = any = true;
  }
  return any ? words : NULL;
}

// The costs of some units on one stage.
typedef struct Part {
  double forward, backward, after, kept, lasting, working;
} Part;

static Part part_of(const UnitCost *u) {
  return (Part){.forward = u->forward,
                .backward = u->backward + u->weight_grad,
                .after = u->sums + u->update,
                .kept = u->kept[RECOMPUTE_none],
                .lasting = u->lasting,
                .working = fmax(u->working[0], u->working[1])};
}

static void add_part(Part *to, const Part *x) {
  to->forward += x->forward;
  to->backward += x->backward;
  to->after += x->after;
  to->kept += x->kept;
  to->lasting += x->lasting;
  to->working = fmax(to->working, x->working);
}

// The part of each stage in all units of words. Their saved values do not outlive the turn.
static Part part_of_words(const InterlacedProblem *p) {
  Part all = {0};
  for (int i = 0; i < p->units->n; i++) {
    Part x = part_of(&p->units->at[i]);
    if (p->words[i]) add_part(&all, &x);
  }
  double n = p->stages;
  return (Part){all.forward / n, all.backward / n,
                all.after / n,   0,
                all.lasting / n, (all.working + all.kept) / n};
}

// Transfers of a turn: the rows of words to the first stage, results to all and their gradients
// back, and the gradients of rows.
static double transfer_seconds(const InterlacedProblem *p) {
  enum { TRANSFERS = 4 };
  double bytes = 0;
  for (int i = 0; i < p->units->n; i++)
    bytes = fmax(bytes, p->units->at[i].handed);
  return TRANSFERS * (p->units->hop_start + bytes * p->units->hop_seconds_per_byte);
}

static double stage_bytes(const InterlacedProblem *p, const Part *x, const Part *words, int stage) {
  double held = fmin(2.0 * (p->stages - stage) - 1, (double)p->micro_batches);
  return x->lasting + words->lasting + held * x->kept + fmax(x->working, words->working);
}

// A state of the table: so many stages have the units before a border.
typedef struct State {
  double slowest; // INFINITY: they do not fit
  int from;
} State;

bool interlaced_find(const InterlacedProblem *p, double *bound, double *seconds, double *bytes) {
  Arena *a = arena_new();
  int n = 0, stages = p->stages;
  Part *unit = arena_array(a, Part, p->units->n), words = part_of_words(p);
  for (int i = 0; i < p->units->n; i++)
    if (!p->words[i]) unit[n++] = part_of(&p->units->at[i]);
  // The deal with the least work of the slowest stage, of those that fit.
  State *at = arena_array(a, State, (int64_t)(stages + 1) * (n + 1));
  for (int i = 0; i < (stages + 1) * (n + 1); i++)
    at[i].slowest = INFINITY;
  at[0].slowest = 0;
  for (int s = 0; s < stages; s++)
    for (int first = s; first < n; first++) {
      const State *before = &at[s * (n + 1) + first];
      Part x = {0};
      for (int last = first + 1; last <= n && isfinite(before->slowest); last++) {
        add_part(&x, &unit[last - 1]);
        State *to = &at[(s + 1) * (n + 1) + last];
        double slowest = fmax(before->slowest, x.forward + x.backward);
        bool fits = stage_bytes(p, &x, &words, s) <= p->memory * (1 + 1e-9);
        if (slowest < to->slowest && fits) *to = (State){slowest, first};
      }
    }
  double least = at[stages * (n + 1) + n].slowest;
  double m = (double)p->micro_batches, turn = words.forward + words.backward;
  *bound = m * (turn + least) + words.after;
  // The price of that deal.
  double forward = 0, backward = 0, after = 0;
  *bytes = 0;
  for (int s = stages, last = n; s > 0 && isfinite(least); s--) {
    int first = at[s * (n + 1) + last].from;
    Part x = {0};
    for (int i = first; i < last; i++)
      add_part(&x, &unit[i]);
    forward = fmax(forward, x.forward);
    backward = fmax(backward, x.backward);
    after = fmax(after, x.after);
    *bytes = fmax(*bytes, stage_bytes(p, &x, &words, s - 1));
    last = first;
  }
  *seconds = m * (turn + transfer_seconds(p)) + (m + stages - 1) * (forward + backward) + after +
             words.after;
  arena_free(a);
  return isfinite(least);
}
