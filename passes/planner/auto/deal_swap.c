// Saved activations of a stage's layers in host memory from forward to backward: see deal.h.
//
// A swapped layer is copied out while the stage runs forward up to the end of the next one, and
// back from the beginning of that one's backward on (memory/swap.c). The link has one copy each way
// at a time. So with layers of 1 second forward, and 3 seconds of copies of each:
//
//     1 of 6   s . . . . .      none is waited for
//     2 of 6   s . . s . .      none: copies of each have three layers' forward
//     3 of 6   s . s . s .      one second for each of the last two, and at the end
//
// Bytes of two swapped layers are on the device together: one is copied as the next one runs.

#include "dealing.h"

#include "base/larger.h"

// -- The swapped layers of a stage ---------------------------------------------------------------

static bool begins_layer(const UnitCosts *units, int first, int unit) {
  int layer = units->at[unit].layer;
  return layer && (unit == first || units->at[unit - 1].layer != layer);
}

static bool ends_layer(const UnitCosts *units, int last, int unit) {
  int layer = units->at[unit].layer;
  return layer && (unit == last - 1 || units->at[unit + 1].layer != layer);
}

static int count_layers(const UnitCosts *units, int first, int last) {
  int n = 0;
  for (int u = first; u < last; u++)
    n += begins_layer(units, first, u);
  return n;
}

// Whether the layer at this place among `n` is one of so many that are spread evenly from the first
// one on.
static bool is_spread(int place, int n, int swapped) {
  return swapped > 0 && (place == 0 || place * swapped / n > (place - 1) * swapped / n);
}

void mark_swapped(const UnitCosts *units, int first, int last, int layers, bool *out) {
  int n = count_layers(units, first, last), place = -1;
  for (int u = first; u < last; u++) {
    place += begins_layer(units, first, u);
    out[u - first] = units->at[u].layer && is_spread(place, n, layers);
  }
}

// The last unit that copies out of the last swapped layer run beside: the layers after it, as many
// as are between the last two; of none, its own.
static int last_beside(const UnitCosts *units, int first, int last, const bool *swapped) {
  int place = -1, before = -1, at = -1, due = -1;
  for (int u = first; u < last; u++) {
    if (!begins_layer(units, first, u)) continue;
    place++;
    if (!swapped[u - first]) continue;
    before = at;
    at = place;
  }
  int most = before < 0 ? 1 : at - before, layer = -1;
  for (int u = first; u < last; u++) {
    layer += begins_layer(units, first, u);
    if (ends_layer(units, last, u) && layer >= at && layer <= at + most) due = u;
  }
  return due;
}

// The saved activations of the swapped layer of a unit, or of the one before that.
static double layer_bytes(const UnitCosts *units, int first, int last, int unit) {
  int layer = units->at[unit].layer, from = unit;
  double bytes = 0;
  while (from > first && units->at[from - 1].layer == layer)
    from--;
  for (int u = from; u < last && units->at[u].layer == layer; u++)
    bytes += units->at[u].swapped;
  return bytes;
}

double swapped_bytes(const UnitCosts *units, int stages, int first, int last, const bool *swapped,
                     Beside *out) {
  double all = 0, before = 0, own = 0;
  int due = last_beside(units, first, last, swapped);
  for (int u = first; u < last; u++) {
    const UnitCost *x = &units->at[u];
    Beside *b = &out[u - first];
    *b = (Beside){0};
    if (begins_layer(units, first, u)) {
      if (own > 0) before = own;
      own = swapped[u - first] ? layer_bytes(units, first, last, u) : 0;
      all += own;
    }
    // Its own layer is on the device, and that of the swapped one before, if there is one.
    // In stages, slots of values that several micro-batches have leave gaps: the most of both units
    // of a layer are not less than the bytes of each.
    if (swapped[u - first]) {
      b->working = x->swapped_working - (before > 0 ? 0 : own);
      b->more = stages > 1 ? own + before : 0;
    } else if (u > due && !x->layer && own > 0)
      b->working = x->swapped_working;
    // In stages the last ones are copied back from the beginning of backward on.
    else if (u <= due || stages > 1)
      b->more = own > 0 ? own : before;
  }
  // In stages, recomputed activations get no place of those of the swapped layer after them, though
  // backward has freed these.
  double after = 0;
  for (int u = last - 1; u >= first && stages > 1; u--) {
    if (swapped[u - first])
      after = layer_bytes(units, first, last, u);
    else if (units->at[u].layer)
      out[u - first].gap = after;
  }
  // The result that the last layer hands on is no saved activation of the stage, but the input of
  // its first layer is.
  if (swapped[last - 1 - first]) all -= smaller(all, units->at[last - 1].handed);
  return all;
}

static double forward_seconds(const UnitCosts *units, int first, int last, const bool *swapped,
                              int due) {
  double now = 0, busy = 0, done = 0, start = 0, copies = 0, sum = 0;
  for (int u = first; u < last; u++) {
    const UnitCost *x = &units->at[u];
    if (begins_layer(units, first, u)) {
      start = now;
      copies = 0;
    }
    now += x->forward;
    sum += x->forward;
    copies += x->copies[0];
    if (swapped[u - first] && ends_layer(units, last, u)) {
      // Its copies follow those of the layer before, which are waited for at its end.
      busy = larger(larger(busy, start) + copies, now);
      now = larger(now, done);
      done = busy;
    }
    if (u == due) now = larger(now, done);
  }
  return now - sum;
}

// The next swapped layer below a unit: its last unit, and the seconds of its copies back; -1: none.
static int layer_below(const UnitCosts *units, int first, int unit, const bool *swapped,
                       double *copies) {
  int at = unit - 1;
  while (at >= first && !swapped[at - first])
    at--;
  *copies = 0;
  for (int u = at; u >= first && units->at[u].layer == units->at[at].layer; u--)
    *copies += units->at[u].copies[1];
  return at < first ? -1 : at;
}

static double backward_seconds(const UnitCosts *units, int stages, int first, int last,
                               const bool *swapped, int due, const double *again) {
  double now = 0, busy = 0, here = 0, sum = 0, copies;
  int next = layer_below(units, first, last, swapped, &copies);
  // In stages, the last layer's are copied from the beginning of backward on.
  bool begun = stages > 1;
  if (begun) here = busy = copies;
  for (int u = last - 1; u >= first; u--) {
    const UnitCost *x = &units->at[u];
    double seconds = x->backward + x->weight_grad + again[u - first];
    if (!begun && u == due) {
      // Those without a layer after them are waited for one by one.
      begun = true;
      if (due == next) now += copies;
      here = busy = now + (due == next ? 0 : copies);
    }
    double arrives = here;
    if (swapped[u - first] && ends_layer(units, last, u)) {
      int below = u;
      while (below > first && units->at[below - 1].layer == x->layer)
        below--;
      next = layer_below(units, first, below, swapped, &copies);
      if (next >= 0) here = busy = larger(busy, now) + copies;
      // The layer's own ones are read until its end.
      for (int k = u; k >= below; k--) {
        const UnitCost *y = &units->at[k];
        double own = y->backward + y->weight_grad + again[k - first];
        now += own;
        sum += own;
      }
      now = larger(now, arrives);
      u = below;
      continue;
    }
    now += seconds;
    sum += seconds;
  }
  return now - sum;
}

void swapped_seconds(const UnitCosts *units, int stages, int first, int last, const bool *swapped,
                     const double *again, Swapped *out) {
  int due = last_beside(units, first, last, swapped);
  out->forward = forward_seconds(units, first, last, swapped, due);
  out->backward = backward_seconds(units, stages, first, last, swapped, due, again);
  for (int u = first; u < last; u++)
    out->backward += swapped[u - first] ? units->at[u].waits : 0;
}

double deal_all_swapped(const UnitCosts *units, Arena *a) {
  bool *swapped = arena_array(a, bool, units->n);
  double *again = arena_array(a, double, units->n);
  Swapped s = {.layers = units->n};
  for (int u = 0; u < units->n; u++)
    swapped[u] = units->at[u].layer > 0;
  swapped_seconds(units, 1, 0, units->n, swapped, again, &s);
  return s.forward + s.backward;
}

bool deal_is_swapped(const UnitCosts *units, const Deal *d, int stage, int unit) {
  int first = d->first[stage], last = d->first[stage + 1], place = -1;
  for (int u = first; u <= unit; u++)
    place += begins_layer(units, first, u);
  return units->at[unit].layer &&
         is_spread(place, count_layers(units, first, last), d->swapped[stage]);
}

// -- The fewest that fit -------------------------------------------------------------------------

static double kept_bytes(StagedHeld held, double kept) {
  StagedStage stage = {.kept = kept, .waiting = kept, .both = kept};
  return staged_bytes(&stage, held);
}

// The most bytes on the device besides those kept, if units are recomputed at a level.
static double working_bytes(const Dealer *d, int first, int last, RecomputeLevel level) {
  double most = 0;
  for (int u = first; u < last; u++) {
    const UnitCost *x = unit_at(d, u);
    const Beside *b = &d->beside[u - first];
    RecomputeLevel own = d->swapped[u - first] ? RECOMPUTE_none : level;
    double working = larger(x->working[0], back_working(x, own, d->apart)) + b->more;
    if (own > RECOMPUTE_none) working += b->gap;
    most = larger(most, larger(working, b->working));
  }
  return most;
}

// The least recomputation of other layers, the first ones, that fits beside so many swapped ones.
static bool find_beside(const Dealer *d, int first, int last, StagedHeld held, Saving *out) {
  const DealProblem *p = d->p;
  const Sums *s = &d->sum;
  double limit = p->memory * (1 + 1e-9) - lasting_bytes(d, first, last) + out->offloaded.away;
  if (s->updating[last] - s->updating[first] + out->offloaded.here > limit) return false;
  mark_swapped(p->units, first, last, out->swapped.layers, d->swapped);
  double away = swapped_bytes(p->units, p->stages, first, last, d->swapped, d->beside), best = 0;
  double kept = s->kept[last] - s->kept[first] - away;
  int top = p->per_stage_recompute ? N_RECOMPUTE_LEVELS - 1 : RECOMPUTE_none;
  bool found = false;
  for (int level = RECOMPUTE_none; level <= top && !(found && best <= 0); level++) {
    double left = kept, again = 0, working = working_bytes(d, first, last, (RecomputeLevel)level);
    int end = first;
    if (level && !may_recompute(p, level)) continue;
    for (; end < last && level && kept_bytes(held, left) + working > limit;) {
      do {
        if (!d->swapped[end - first]) {
          left -= s->saved[level][end + 1] - s->saved[level][end];
          again += s->again[level][end + 1] - s->again[level][end];
        }
        end++;
      } while (end < last && unit_at(d, end)->layer == unit_at(d, end - 1)->layer);
    }
    double looping = kept_bytes(held, left);
    if (looping + working > limit || (found && again >= best)) continue;
    found = true;
    best = again;
    out->recompute = (Recompute){(RecomputeLevel)level, end - first, again, looping};
    out->swapped.working = working;
  }
  if (!found) return false;
  RecomputeLevel level = out->recompute.level;
  for (int u = first; u < last; u++) {
    bool recomputed = u - first < out->recompute.units && !d->swapped[u - first];
    d->again[u - first] = recomputed ? unit_at(d, u)->again[level] : 0;
  }
  swapped_seconds(p->units, p->stages, first, last, d->swapped, d->again, &out->swapped);
  return true;
}

static double slice_seconds(const Saving *s) {
  return s->recompute.again + s->swapped.forward + s->swapped.backward;
}

bool find_swapped(const Dealer *d, int first, int last, StagedHeld held, const Working *w,
                  Saving *out) {
  Saving x = {.offloaded = out->offloaded};
  int layers = count_layers(d->p->units, first, last);
  int step = (layers + EIGHTHS - 1) / EIGHTHS, before = 0;
  bool found = find_recompute(d, first, last, held, w, &x.offloaded, &x.recompute);
  *out = x;
  if (found && x.recompute.units == 0) return true;
  // No layer that is swapped or recomputed leaves fewer bytes beside those kept.
  double least = lasting_bytes(d, first, last) - x.offloaded.away + w->of[RECOMPUTE_none];
  if (least > d->p->memory * (1 + 1e-9)) return false;
  for (int n = step; n < layers + step && layers; n += step) {
    x.swapped.layers = n < layers ? n : layers;
    if (!find_beside(d, first, last, held, &x)) continue;
    // None is recomputed: no more are swapped than are needed for that.
    while (!x.recompute.units && x.swapped.layers > before + 1) {
      Saving fewer = x;
      fewer.swapped.layers--;
      if (!find_beside(d, first, last, held, &fewer) || fewer.recompute.units) break;
      x = fewer;
    }
    if (!found || slice_seconds(&x) < slice_seconds(out)) *out = x;
    found = true;
    before = x.swapped.layers;
    // More of them are waited for no less.
    double waits = x.swapped.forward + x.swapped.backward;
    if (!x.recompute.units || waits >= slice_seconds(out)) break;
  }
  return found;
}
