// See chain.h.
//
// The parts of a stage that do not depend on its number are a Span, of units a to b - 1: they are
// computed once, from sums over all units and the few transfers that cross its borders. The table
// has the least lead and tail before stage s that begins at unit a.

#include "chain.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/vec.h"

// -- Kinds ---------------------------------------------------------------------------------------

StagedKind chain_kind(const char *schedule) {
  StagedKind kind;
  return schedule && staged_kind_named(schedule, &kind) ? kind : STAGED_1f1b;
}

int chain_early(const Chain *c, int stage) {
  return staged_traits[c->kind].all_first ? 1 : staged_ahead(c->kind, c->p->n_runs, 1, stage);
}

bool chain_drains(const Chain *c) {
  return !staged_traits[c->kind].all_first && !staged_traits[c->kind].split;
}

// -- Spans ---------------------------------------------------------------------------------------

// Messages over a border in one direction, of a micro-batch.
typedef struct Messages {
  double n, bytes;
} Messages;

typedef struct Span {
  bool known;
  double forward, backward;            // reshards
  Messages in, back_out, back_in, out; // at its first border, and at its last
  double kept, passing;                // bytes of received values in flight, and of passing ones
  double shared, sums;                 // of shared tensors: bytes, and seconds
} Span;

typedef Vec(int) Ints;

typedef struct Table {
  const Chain *c;
  Arena *arena;
  int n, n_stages;
  int *least, *most; // by transfer: its first and last unit
  Ints *crossing;    // by unit: the transfers that cross the border before it
  double *here[2];   // by unit: reshards of transfers that end before it; forward, backward
  double *forward, *backward, *weights, *sums, *bytes; // [(n + 1) * n_stages] of the units before
  Span **span;                                         // by first unit: by the number of units
} Table;

static double messages_seconds(const Chain *c, int stage, const Messages *m) {
  int i = stage * c->p->n_runs + stage + 1;
  return m->n > 0 ? m->n * c->p->start[i] + m->bytes * c->p->by_whole[i] : 0;
}

static double all_here(const Transfer *t) {
  double seconds = 0;
  for (int w = 0; w < t->n_wants; w++)
    seconds += t->at[w].here;
  return seconds;
}

// Adds the reshards and messages of a transfer to the span of units a to b - 1.
static void add_transfer(Span *s, const Transfer *t, int a, int b) {
  bool own = t->from >= a && t->from < b, read[MAX_WANTS] = {false}, away[MAX_WANTS] = {false};
  for (int i = 0; i < t->n_readers; i++)
    *(t->reader[i] >= a && t->reader[i] < b ? &read[t->want[i]] : &away[t->want[i]]) = true;
  double *seconds = t->back ? &s->backward : &s->forward;
  uint32_t crossed = 0;
  for (int w = 0; w < t->n_wants; w++) {
    const Want *x = &t->at[w];
    if (read[w]) *seconds += own ? x->here : x->got;
    // It crosses once in each layout: out of its stage, or into that of a reader.
    if (!(own ? away[w] : read[w]) || crossed >> x->via & 1) continue;
    crossed |= 1u << x->via;
    if (own && !(x->same >= 0 && read[x->same])) *seconds += x->sent;
    Messages *m = t->back ? own ? &s->back_out : &s->back_in : own ? &s->out : &s->in;
    m->n++;
    m->bytes += x->bytes;
  }
}

static Span span_between(const Table *t, int a, int b) {
  const Chain *c = t->c;
  const Partition *p = c->p;
  Span s = {.known = true};
  // Transfers inside, and those over a border.
  s.forward = t->here[0][b] - t->here[0][a];
  s.backward = t->here[1][b] - t->here[1][a];
  for (int i = 0; i < t->crossing[a].n; i++) {
    int k = t->crossing[a].at[i];
    const Transfer *x = &c->transfer[k];
    if (t->most[k] < b) *(x->back ? &s.backward : &s.forward) -= all_here(x);
    add_transfer(&s, x, a, b);
  }
  for (int i = 0; i < t->crossing[b].n; i++) {
    int k = t->crossing[b].at[i];
    if (t->least[k] >= a) add_transfer(&s, &c->transfer[k], a, b);
  }
  for (int i = 0; i < p->n_flows; i++) {
    const Flow *f = &p->flow[i];
    if (f->from >= a || f->kept <= 0 || f->reader[f->n_readers - 1] < a) continue;
    bool reads = false;
    for (int k = 0; k < f->n_readers; k++)
      reads |= f->reader[k] >= a && f->reader[k] < b;
    if (reads) s.kept += f->kept;
  }
  for (int i = 0; i < p->n_shared; i++) {
    bool has = false, all = true;
    for (int k = 0; k < p->shared[i].n_units; k++) {
      bool in = p->shared[i].unit[k] >= a && p->shared[i].unit[k] < b;
      has |= in;
      all &= in;
    }
    if (!has) continue;
    s.shared += p->shared[i].bytes;
    s.sums += c->shared[i] + (all ? 0 : c->apart[i]);
  }
  for (int u = a; u < b; u++)
    s.passing = fmax(s.passing, unit_passing(p, u));
  return s;
}

static const Span *span_at(Table *t, int a, int b) {
  if (!t->span[a]) t->span[a] = arena_array(t->arena, Span, t->n - a + 1);
  Span *s = &t->span[a][b - a];
  if (!s->known) *s = span_between(t, a, b);
  return s;
}

// -- Stages --------------------------------------------------------------------------------------

static double between(const Table *t, const double *sum, int stage, int a, int b) {
  return sum[b * t->n_stages + stage] - sum[a * t->n_stages + stage];
}

// A stage of units a to b - 1 after stages with this lead; `*after`: the lead of the next one.
static ChainStage price_stage(Table *t, int stage, int a, int b, double lead, double *after) {
  const Chain *c = t->c;
  const Partition *p = c->p;
  const Span *s = span_at(t, a, b);
  double forward = between(t, t->forward, stage, a, b) + s->forward;
  double backward = between(t, t->backward, stage, a, b) + s->backward;
  double weights = between(t, t->weights, stage, a, b), messages = 0;
  bool split = staged_traits[c->kind].split;
  ChainStage x = {.lead = lead};
  // Messages at both borders.
  if (stage > 0) {
    double in = messages_seconds(c, stage - 1, &s->in);
    double out = messages_seconds(c, stage - 1, &s->back_out);
    messages += in + out;
    x.lead += split ? in : in + out;
  }
  if (stage + 1 < t->n_stages)
    messages += messages_seconds(c, stage, &s->out) + messages_seconds(c, stage, &s->back_in);
  *after = x.lead + forward + (split ? 0 : backward + weights);
  // The first micro-batch comes back from later stages, and the last one.
  double early = fmin(chain_early(c, stage), c->slices);
  double ahead = between(t, t->forward, stage, b, t->n);
  double behind = between(t, t->backward, stage, b, t->n);
  if (!split) behind += between(t, t->weights, stage, b, t->n);
  x.lead += fmax(ahead + behind - (early - 1) * forward, 0);
  if (chain_drains(c)) x.lead += fmax(ahead + behind - (early - 1) * (backward + weights), 0);
  x.slice = forward + backward + weights + p->base_seconds[stage] / c->slices;
  if (c->slices > 1)
    x.slice = fmax(x.slice + staged_traits[c->kind].waits * messages / 2, messages);
  else {
    // Nothing runs beside: all stages wait for all others, and even ones have the least memory.
    x.lead = *after = 0;
    x.slice += messages;
  }
  x.sums = between(t, t->sums, stage, a, b) + s->sums;
  x.all = x.lead + c->slices * x.slice + x.sums;
  x.bytes = p->base_bytes[stage] + between(t, t->bytes, stage, a, b) + s->shared + s->passing +
            run_in_flight(p, stage) * s->kept;
  x.fits = run_fits(p, stage, x.bytes);
  return x;
}

static double *sums_of(const Table *t, const double *of_unit) {
  double *sum = arena_array(t->arena, double, (t->n + 1) * t->n_stages);
  for (int u = 0; u < t->n; u++)
    for (int s = 0; s < t->n_stages; s++)
      sum[(u + 1) * t->n_stages + s] = sum[u * t->n_stages + s] + of_unit[u * t->n_stages + s];
  return sum;
}

static Table table_new(Arena *a, const Chain *c) {
  Table t = {.c = c, .arena = a, .n = c->p->n_units, .n_stages = c->p->n_runs};
  t.forward = sums_of(&t, c->forward);
  t.backward = sums_of(&t, c->backward);
  t.weights = sums_of(&t, c->weights);
  t.sums = sums_of(&t, c->sums);
  t.bytes = sums_of(&t, c->p->bytes);
  t.span = arena_array(a, Span *, t.n + 1);
  t.least = arena_array(a, int, c->n_transfers);
  t.most = arena_array(a, int, c->n_transfers);
  t.crossing = arena_array(a, Ints, t.n + 1);
  for (int back = 0; back < 2; back++)
    t.here[back] = arena_array(a, double, t.n + 2);
  for (int i = 0; i < c->n_transfers; i++) {
    const Transfer *x = &c->transfer[i];
    t.least[i] = t.most[i] = x->from;
    for (int k = 0; k < x->n_readers; k++) {
      if (x->reader[k] < t.least[i]) t.least[i] = x->reader[k];
      if (x->reader[k] > t.most[i]) t.most[i] = x->reader[k];
    }
    for (int u = t.least[i] + 1; u <= t.most[i]; u++)
      vec_push(a, &t.crossing[u], i);
    t.here[x->back][t.most[i] + 1] += all_here(x);
  }
  for (int back = 0; back < 2; back++)
    for (int u = 0; u < t.n; u++)
      t.here[back][u + 1] += t.here[back][u];
  return t;
}

ChainStage *chain_price(Arena *a, const Chain *c, const int *first) {
  Arena *scratch = arena_new();
  Table t = table_new(scratch, c);
  ChainStage *out = arena_array(a, ChainStage, t.n_stages);
  double lead = 0;
  for (int s = 0; s < t.n_stages; s++)
    out[s] = price_stage(&t, s, first[s], s + 1 < t.n_stages ? first[s + 1] : t.n, lead, &lead);
  arena_free(scratch);
  return out;
}

// -- The table -----------------------------------------------------------------------------------

typedef struct Cell {
  double lead, sum; // INFINITY: unreachable
  int before;       // the first unit of the stage before
} Cell;

static Cell *cell_at(const Table *t, Cell *cell, int stage, int unit) {
  return &cell[stage * (t->n + 1) + unit];
}

// Finds stages of at most `limit` seconds. Of several ways to the same stage and unit keeps the one
// with the least lead, or, `even`, with the least sum of squares. Returns the slowest of the best;
// INFINITY: there are none.
static double fill(Table *t, Cell *cell, double limit, bool even, int *first) {
  const Chain *c = t->c;
  int n = t->n, p = t->n_stages;
  for (int i = 0; i < (p + 1) * (n + 1); i++)
    cell[i] = (Cell){INFINITY, INFINITY, 0};
  *cell_at(t, cell, 0, 0) = (Cell){0, 0, 0};
  for (int s = 0; s < p; s++)
    for (int a = s; a < n; a++) {
      Cell from = *cell_at(t, cell, s, a);
      if (isinf(from.lead)) continue;
      double earlier = c->slices > 1 ? from.lead : 0;
      // The last stage has all that is left; another leaves a unit to each later one.
      for (int b = s + 1 == p ? n : a + 1; b <= n - (p - 1 - s); b++) {
        double units = between(t, t->forward, s, a, b) + between(t, t->backward, s, a, b) +
                       between(t, t->weights, s, a, b);
        if (earlier + c->slices * units > limit) break;
        double lead;
        ChainStage x = price_stage(t, s, a, b, from.lead, &lead);
        if (!x.fits || x.all > limit) continue;
        double work = c->slices * x.slice + x.sums, sum = from.sum + work * work;
        Cell *to = cell_at(t, cell, s + 1, b);
        if (even ? sum < to->sum : lead < to->lead) *to = (Cell){lead, sum, a};
      }
    }
  if (isinf(cell_at(t, cell, p, n)->lead)) return INFINITY;
  for (int s = p, unit = n; s > 0; s--)
    first[s - 1] = unit = cell_at(t, cell, s, unit)->before;
  double slowest = 0, lead = 0;
  for (int s = 0; s < p; s++) {
    int end = s + 1 < p ? first[s + 1] : n;
    slowest = fmax(slowest, price_stage(t, s, first[s], end, lead, &lead).all);
  }
  return slowest;
}

// Borders at about the same work; the slowest of these stages, INFINITY if they do not fit.
static double deal_evenly(Table *t, int *first) {
  int n = t->n, p = t->n_stages;
  double all = 0, lead = 0, slowest = 0;
  for (int s = 0; s < p; s++) {
    first[s] = s ? first[s - 1] + 1 : 0;
    all = between(t, t->forward, s, 0, n) + between(t, t->backward, s, 0, n) +
          between(t, t->weights, s, 0, n);
    while (first[s] < n - (p - s)) {
      double done = between(t, t->forward, s, 0, first[s]) +
                    between(t, t->backward, s, 0, first[s]) +
                    between(t, t->weights, s, 0, first[s]);
      if (done * p >= all * s) break;
      first[s]++;
    }
  }
  for (int s = 0; s < p; s++) {
    int end = s + 1 < p ? first[s + 1] : n;
    ChainStage x = price_stage(t, s, first[s], end, lead, &lead);
    slowest = x.fits ? fmax(slowest, x.all) : INFINITY;
  }
  return slowest;
}

int *chain_solve(Arena *a, const Chain *c) {
  if (c->p->n_units < c->p->n_runs) return NULL;
  Arena *scratch = arena_new();
  Table t = table_new(scratch, c);
  int n = t.n, p = t.n_stages;
  int *best = arena_array(a, int, p), *first = arena_array(scratch, int, p);
  Cell *cell = arena_array(scratch, Cell, (p + 1) * (n + 1));
  double high = deal_evenly(&t, best), low = 0;
  if (isinf(high)) high = fill(&t, cell, INFINITY, false, best);
  // The limit is halved until no faster stages are left, up to the tolerance of all solvers.
  while (isfinite(high) && high - low > 1e-6 * high) {
    double limit = low > 0 ? (low + high) / 2 : high * (1 - 1e-3), found;
    if (low <= 0) limit = fmax(high * 0.75, 0);
    found = fill(&t, cell, limit, false, first);
    if (isinf(found)) {
      low = limit;
      continue;
    }
    high = found;
    memcpy(best, first, (size_t)p * sizeof *best);
  }
  // The most even of about as fast ones.
  if (isfinite(high) && fill(&t, cell, high * (1 + 1e-6), true, first) <= high * (1 + 1e-6))
    memcpy(best, first, (size_t)p * sizeof *best);
  arena_free(scratch);
  return isfinite(high) ? best : NULL;
}
