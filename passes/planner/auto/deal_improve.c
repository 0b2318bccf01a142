// Moves units from one stage to another as long as the timeline gets shorter: see deal.h.
//
// The next move is from a stage with much work to one with little, in this order: the first that
// helps is taken, and the order is found again.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dealing.h"

typedef struct Move {
  double more; // work of `to` beside that of `from`
  int from, to;
} Move;

static int by_work(const void *x, const void *y) {
  const Move *a = x, *b = y;
  if (a->more != b->more) return a->more < b->more ? -1 : 1;
  return a->from != b->from ? a->from - b->from : a->to - b->to;
}

static int sort_moves(const Dealer *d, const Deal *deal, Move *move) {
  int n = 0;
  for (int i = 0; i < deal->n; i++)
    for (int k = 0; k < deal->n; k++) {
      if (i == k) continue;
      double from = work_before(d, deal->first[i + 1]) - work_before(d, deal->first[i]);
      double to = work_before(d, deal->first[k + 1]) - work_before(d, deal->first[k]);
      move[n++] = (Move){to - from, i, k};
    }
  if (n) qsort(move, (size_t)n, sizeof *move, by_work);
  return n;
}

// Moves a unit, or as many as a stage may end after, through the stages between them.  False: a
// stage would have none, or not fit.
static bool move_unit(const Dealer *d, Deal *deal, int from, int to) {
  int low = from < to ? from : to, high = from < to ? to : from, step = from < to ? -1 : 1;
  for (int i = low + 1; i <= high; i++)
    do
      deal->first[i] += step;
    while (!may_border(d, deal->first[i]));
  for (int i = low; i <= high; i++)
    if (deal->first[i] >= deal->first[i + 1] || !may_border(d, deal->first[i])) return false;
  return fit_stages(d, deal, low, high);
}

static void copy_deal(const Deal *from, Deal *to) {
  size_t n = (size_t)from->n;
  memcpy(to->first, from->first, (n + 1) * sizeof *to->first);
  memcpy(to->level, from->level, n * sizeof *to->level);
  memcpy(to->recomputed, from->recomputed, n * sizeof *to->recomputed);
  memcpy(to->offloaded, from->offloaded, n * sizeof *to->offloaded);
  memcpy(to->swapped, from->swapped, n * sizeof *to->swapped);
  memcpy(to->bytes, from->bytes, n * sizeof *to->bytes);
}

double deal_improve(const DealProblem *p, Deal *deal, int timelines) {
  Arena *scratch = arena_new();
  Dealer d = dealer_new(p, scratch);
  Deal next = deal_new(scratch, deal->n);
  Move *move = arena_array(scratch, Move, deal->n * deal->n);
  double best = INFINITY, seconds, peak, limit = p->memory * (1 + 1e-9);
  bool helps = makespan_find(p, deal, INFINITY, &best, &peak);
  while (helps && timelines > 0) {
    int n = sort_moves(&d, deal, move);
    helps = false;
    for (int i = 0; i < n && !helps && timelines > 0; i++) {
      copy_deal(deal, &next);
      if (!move_unit(&d, &next, move[i].from, move[i].to)) continue;
      timelines--;
      helps = makespan_find(p, &next, best, &seconds, &peak) && peak <= limit;
    }
    if (!helps) break;
    best = seconds;
    copy_deal(&next, deal);
  }
  arena_free(scratch);
  return best;
}
