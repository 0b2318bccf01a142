// See deal_text.h.

#include "deal_text.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "planner/plan/plan_numbers.h"
#include "point.h"

UnitCosts costs_between(const UnitCosts *units, Borders borders, Arena *a) {
  UnitCost *unit = arena_array(a, UnitCost, units->n);
  int layers = 0;
  for (int u = 0; u < units->n; u++) {
    int next = u + 1 < units->n ? units->at[u + 1].layer : 0;
    unit[u] = units->at[u];
    layers = unit[u].layer > layers ? unit[u].layer : layers;
    // Ops before a layer are with the one before, and those before the first with that.
    if (borders != BORDER_units)
      unit[u].may_end = unit[u].may_end && layers && next > (borders == BORDER_parts ? 0 : layers);
  }
  UnitCosts out = *units;
  out.at = unit;
  return out;
}

// Whether a stage ends within a layer.
static bool divides_layers(const UnitCosts *units, const Deal *d) {
  for (int i = 1; i < d->n; i++) {
    int layer = units->at[d->first[i]].layer;
    if (layer && units->at[d->first[i] - 1].layer == layer) return true;
  }
  return false;
}

// The layers of each stage, or parts of them, as numbers of its program. NULL: there are too many.
static const char *stage_numbers(const DealProblem *p, const Deal *d, Arena *a) {
  StrBuf b = {.arena = a};
  bool parts = divides_layers(p->units, d);
  if (d->n > MAX_NUMBERS) return NULL;
  for (int i = 0, last = 0; i < d->n; i++) {
    int n = 0;
    for (int u = d->first[i]; u < d->first[i + 1]; u++) {
      int layer = p->units->at[u].layer;
      n += layer && (parts || layer > last);
      last = layer > last ? layer : last;
    }
    strbuf_addf(&b, ":%d", n);
  }
  return b.at;
}

// A program for some layers: its numbers are each of the layers up to the next ones. NULL: there
// are too many numbers.
static const char *layers_text(const char *program, const bool *has, int layers, Arena *a) {
  StrBuf b = {.arena = a};
  int n_numbers = 0;
  for (int from = 1, end, next; from <= layers; from = next) {
    for (end = from; end <= layers && has[end];)
      end++;
    for (next = end; next <= layers && !has[next];)
      next++;
    if (end == from) continue;
    if (n_numbers++ == MAX_NUMBERS) return NULL;
    strbuf_addf(&b, ":%d", end - from);
    if (from > 1 || next <= layers) strbuf_addf(&b, "@%d-%d", from, next - 1);
  }
  if (!n_numbers) return "";
  bool all = n_numbers == 1 && has[1] && has[layers];
  return str_format(a, ",%s%s=1", program, all ? "" : b.at);
}

static int count_layers(const UnitCosts *units) {
  int layers = 0;
  for (int u = 0; u < units->n; u++)
    layers = units->at[u].layer > layers ? units->at[u].layer : layers;
  return layers;
}

static const char *recompute_text(const DealProblem *p, const Deal *d, Arena *a) {
  RecomputeLevel level = RECOMPUTE_none;
  int layers = count_layers(p->units);
  bool *has = arena_array(a, bool, layers + 2);
  for (int i = 0; i < d->n; i++)
    for (int k = 0; d->level[i] > RECOMPUTE_none && k < d->recomputed[i]; k++) {
      int unit = d->first[i] + k;
      if (deal_is_swapped(p->units, d, i, unit)) continue;
      has[p->units->at[unit].layer] = true;
      level = d->level[i];
    }
  return layers_text(recompute_program[level], has, layers, a);
}

static const char *offload_text(const DealProblem *p, const Deal *d, Arena *a) {
  int layers = count_layers(p->units);
  bool *has = arena_array(a, bool, layers + 2);
  for (int i = 0; i < d->n; i++)
    for (int k = 0; k < d->offloaded[i]; k++)
      has[p->units->at[d->first[i] + k].layer] = true;
  return layers_text(offload_program, has, layers, a);
}

static const char *swap_text(const DealProblem *p, const Deal *d, Arena *a) {
  int layers = count_layers(p->units);
  bool *has = arena_array(a, bool, layers + 2);
  for (int i = 0; i < d->n; i++)
    for (int u = d->first[i]; u < d->first[i + 1]; u++)
      if (deal_is_swapped(p->units, d, i, u)) has[p->units->at[u].layer] = true;
  return layers_text(swap_program, has, layers, a);
}

const char *deal_savers(const DealProblem *p, const Deal *d, Arena *a) {
  const char *recomputed = recompute_text(p, d, a), *offloaded = offload_text(p, d, a);
  const char *swapped = swap_text(p, d, a);
  if (!recomputed || !swapped || !offloaded) return NULL;
  return str_format(a, "%s%s%s", recomputed, swapped, offloaded);
}

const char *deal_text(const char *plan, const DealProblem *p, const Deal *d, Arena *a) {
  // Without the number of chunks, which that of numbers says.
  int name = (int)strcspn(plan, ":=,");
  const char *rest = plan + strcspn(plan, "=,");
  const char *stages = stage_numbers(p, d, a), *savers = deal_savers(p, d, a);
  if (!stages || !savers) return NULL;
  // The plan's only axis needs its size beside another one.
  const char *size = *rest == '=' ? "" : str_format(a, "=%d", p->stages);
  return str_format(a, "%.*s%s%s%s%s", name, plan, stages, size, rest, savers);
}
