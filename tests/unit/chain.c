// Stages of random chains of units, compared with all borders, each priced by the definition.

#include "planner/stages/chain.h"

#include <math.h>

#include "draw.h"
#include "unit.h"

typedef struct Shape {
  int units, stages, slices;
  const char *kind;
  int memory; // of a rank, in percent of the bytes of all units; 0: unlimited
} Shape;

static double *numbers(Arena *a, Random *r, int n, int least, int most) {
  double *x = arena_array(a, double, n);
  for (int i = 0; i < n; i++)
    x[i] = least + below(r, most - least + 1);
  return x;
}

// A value of a random unit, with readers after it, or before it if it is a gradient.
static Transfer random_transfer(Arena *a, Random *r, int units) {
  Transfer t = {.from = below(r, units), .back = below(r, 2), .n_wants = 1 + below(r, 3)};
  Want *want = arena_array(a, Want, t.n_wants);
  for (int w = 0; w < t.n_wants; w++) {
    want[w] = (Want){below(r, 4), below(r, 3), below(r, 3), below(r, w + 1), -1, below(r, 9)};
    if (below(r, 3) == 0) want[w].same = below(r, t.n_wants);
  }
  for (int w = 0; w < t.n_wants; w++)
    want[w].via = want[want[w].via].via;
  int *reader = arena_array(a, int, 4), *wanted = arena_array(a, int, 4);
  t.n_readers = t.n_wants + below(r, 2);
  for (int i = 0; i < t.n_readers; i++) {
    reader[i] = t.back ? below(r, t.from + 1) : t.from + below(r, units - t.from);
    wanted[i] = i < t.n_wants ? i : below(r, t.n_wants);
  }
  t.reader = reader;
  t.want = wanted;
  t.at = want;
  return t;
}

static Chain *random_chain(Arena *a, Random *r, const Shape *s) {
  int n = s->stages, size = s->units * n;
  Partition *p = arena_one(a, Partition);
  Run *run = arena_array(a, Run, n);
  for (int i = 0; i < n; i++)
    run[i] = (Run){i, 1};
  *p = (Partition){.n_units = s->units, .n_ranks = n, .n_runs = n, .run = run, .n_stages = n};
  p->bytes = numbers(a, r, size, 5, 40);
  p->base_seconds = numbers(a, r, n, 0, 20);
  p->base_bytes = numbers(a, r, n, 0, 10);
  p->passing = numbers(a, r, s->units, 0, 30);
  p->start = numbers(a, r, n * n, 0, 3);
  p->by_batch = p->by_whole = numbers(a, r, n * n, 0, 2);
  double all = 0, *flight = arena_array(a, double, n);
  for (int u = 0; u < s->units; u++)
    all += p->bytes[u * n];
  p->limit = arena_array(a, double, n);
  Chain *c = arena_one(a, Chain);
  *c = (Chain){.p = p, .kind = chain_kind(s->kind), .slices = s->slices};
  for (int i = 0; i < n; i++) {
    p->limit[i] = s->memory ? all * s->memory / 100 : INFINITY;
    flight[i] = staged_held(c->kind, n, s->slices, i);
  }
  p->in_flight = flight;
  // A received value is kept, and a tensor is shared.
  Flow *flow = arena_array(a, Flow, 2);
  int *last = arena_array(a, int, 1), *two = arena_array(a, int, 2);
  *last = two[1] = s->units - 1;
  for (int i = 0; i < 2; i++)
    flow[i] = (Flow){.from = i, .n_readers = 1, .reader = last, .whole = true, .kept = below(r, 4)};
  p->flow = flow;
  p->n_flows = s->units > 2 ? 2 : 0;
  Shared *shared = arena_one(a, Shared);
  *shared = (Shared){2, two, below(r, 20), numbers(a, r, n, 0, 9)};
  p->shared = shared;
  p->n_shared = 1;
  c->forward = numbers(a, r, size, 1, 30);
  c->backward = numbers(a, r, size, 1, 30);
  c->weights = numbers(a, r, size, 0, 30);
  c->sums = numbers(a, r, size, 0, 90);
  c->shared = numbers(a, r, 1, 0, 90);
  c->apart = numbers(a, r, 1, 0, 90);
  Transfer *t = arena_array(a, Transfer, s->units);
  for (int i = 0; i < s->units; i++)
    t[i] = random_transfer(a, r, s->units);
  c->transfer = t;
  c->n_transfers = s->units;
  return c;
}

// -- The definition ------------------------------------------------------------------------------

static bool is_in(int unit, const int *first, const Chain *c, int stage) {
  int end = stage + 1 < c->p->n_runs ? first[stage + 1] : c->p->n_units;
  return unit >= first[stage] && unit < end;
}

// The stage's seconds of reshards of a transfer, and those of its messages to (out) or from other
// stages.
static void count(const Chain *c, const Transfer *t, const int *first, int stage, double *reshard,
                  bool *message) {
  bool own = is_in(t->from, first, c, stage);
  for (int w = 0; w < t->n_wants; w++) {
    bool here = false, elsewhere = false, as_is = false;
    for (int i = 0; i < t->n_readers; i++) {
      bool in = is_in(t->reader[i], first, c, stage);
      if (in && t->want[i] == t->at[w].same) as_is = true;
      if (t->want[i] == w) *(in ? &here : &elsewhere) = true;
    }
    if (here) *reshard += own ? t->at[w].here : t->at[w].got;
    if (!(own ? elsewhere : here) || message[t->at[w].via]) continue;
    message[t->at[w].via] = true;
    if (own && !as_is) *reshard += t->at[w].sent;
  }
}

static double price(const Chain *c, const int *first, bool *fits) {
  const Partition *p = c->p;
  int n = p->n_runs;
  double lead = 0, slowest = 0;
  *fits = true;
  for (int s = 0; s < n; s++) {
    double part[3] = {0}, sums = 0, bytes = p->base_bytes[s], passing = 0, ahead = 0;
    double later = 0, over[4] = {0}; // seconds of messages: in, back out, out, back in
    for (int u = 0; u < p->n_units; u++) {
      int i = u * n + s;
      bool is_later = u >= first[s] && !is_in(u, first, c, s);
      if (is_later) ahead += c->forward[i];
      if (is_later) later += c->backward[i] + (staged_traits[c->kind].split ? 0 : c->weights[i]);
      if (!is_in(u, first, c, s)) continue;
      part[0] += c->forward[i];
      part[1] += c->backward[i];
      part[2] += c->weights[i];
      sums += c->sums[i];
      bytes += p->bytes[i];
      passing = fmax(passing, p->passing[u]);
    }
    for (int i = 0; i < c->n_transfers; i++) {
      const Transfer *t = &c->transfer[i];
      bool message[MAX_WANTS] = {false}, own = is_in(t->from, first, c, s);
      count(c, t, first, s, &part[t->back], message);
      // Forward comes from the stage before, and gradients go there.
      int border = t->back == own ? s - 1 : s, which = t->back ? own ? 1 : 3 : own ? 2 : 0;
      for (int w = 0; w < t->n_wants; w++) {
        bool once = message[t->at[w].via] && t->at[w].via == w;
        if (once) assert_true(border >= 0 && border + 1 < n);
        if (!once) continue;
        int link = border * n + border + 1;
        double largest = 0;
        // The first want of a crossing that has readers there gives its bytes.
        for (int k = t->n_wants - 1; k >= 0; k--)
          for (int q = 0; q < t->n_readers && t->at[k].via == w; q++)
            if (t->want[q] == k && is_in(t->reader[q], first, c, s) != own)
              largest = t->at[k].bytes;
        over[which] += p->start[link] + largest * p->by_whole[link];
      }
    }
    for (int i = 0; i < p->n_flows; i++)
      if (p->flow[i].from < first[s] && is_in(p->flow[i].reader[0], first, c, s))
        bytes += p->in_flight[s] * p->flow[i].kept;
    bool one = is_in(p->shared[0].unit[0], first, c, s);
    bool other = is_in(p->shared[0].unit[1], first, c, s);
    if (one || other) {
      sums += c->shared[0];
      bytes += p->shared[0].bytes;
    }
    if (one != other) sums += c->apart[0];
    *fits &= bytes + passing <= p->limit[s] * (1 + 1e-9);
    double messages = over[0] + over[1] + over[2] + over[3];
    double slice = part[0] + part[1] + part[2] + p->base_seconds[s] / c->slices;
    if (c->slices == 1) {
      slowest = fmax(slowest, slice + messages + sums);
      continue;
    }
    lead += over[0] + (staged_traits[c->kind].split ? 0 : over[1]);
    double early = fmin(chain_early(c, s), c->slices);
    double fill = fmax(ahead + later - (early - 1) * part[0], 0);
    double drain = fmax(ahead + later - (early - 1) * (part[1] + part[2]), 0);
    if (!chain_drains(c)) drain = 0;
    double loop = c->slices * fmax(slice + staged_traits[c->kind].waits * messages / 2, messages);
    slowest = fmax(slowest, lead + fill + drain + loop + sums);
    lead += part[0] + (staged_traits[c->kind].split ? 0 : part[1] + part[2]);
  }
  return slowest;
}

// -- All borders ---------------------------------------------------------------------------------

static bool about(double x, double y) {
  return x == y || fabs(x - y) <= 2e-6 * fabs(y);
}

static double slowest_of(const ChainStage *stage, int n) {
  double slowest = 0;
  for (int s = 0; s < n; s++)
    slowest = stage[s].fits ? fmax(slowest, stage[s].all) : INFINITY;
  return slowest;
}

// The least of all borders from stage `s` on. Each price is that of chain_price.
static double try_all(const Chain *c, int *first, int s) {
  double best = INFINITY;
  if (s == c->p->n_runs) {
    bool fits;
    Arena *a = arena_new();
    double seconds = price(c, first, &fits);
    const ChainStage *stage = chain_price(a, c, first);
    bool all_fit = true;
    for (int i = 0; i < c->p->n_runs; i++)
      all_fit &= stage[i].fits;
    assert_int_equal(fits, all_fit);
    if (fits) assert_true(about(slowest_of(stage, c->p->n_runs), seconds));
    arena_free(a);
    return fits ? seconds : INFINITY;
  }
  int least = s ? first[s - 1] + 1 : 0, most = s ? c->p->n_units - (c->p->n_runs - s) : 0;
  for (first[s] = least; first[s] <= most; first[s]++)
    best = fmin(best, try_all(c, first, s + 1));
  return best;
}

static void check(const Shape *s, int n) {
  Random r = {(uint64_t)(s->units * 64 + s->stages * 8 + s->slices + s->memory)};
  int n_fit = 0;
  for (int i = 0; i < n; i++) {
    Arena *a = arena_new();
    const Chain *c = random_chain(a, &r, s);
    int *first = arena_array(a, int, s->stages);
    double least = try_all(c, first, 0);
    const int *found = chain_solve(a, c);
    assert_int_equal(found != NULL, isfinite(least));
    if (found) {
      bool fits;
      assert_true(about(price(c, found, &fits), least) && fits);
      assert_memory_equal(found, chain_solve(a, c), (size_t)s->stages * sizeof *found);
      n_fit++;
    }
    arena_free(a);
  }
  assert_true(n_fit > 0 && (!s->memory || n_fit < n));
}

static void stages_are_the_best(void **state) {
  (void)state;
  static const char *const kind[] = {"1f1b", "gpipe", "zb-h1", "zb-h2"};
  for (int k = 0; k < 4; k++) {
    check(&(Shape){7, 3, 4, kind[k], 0}, 60);
    check(&(Shape){9, 4, 8, kind[k], 0}, 30);
    check(&(Shape){6, 2, 1, kind[k], 0}, 30);
  }
}

// Problems without stages that fit are reported as such.
static void stages_keep_to_memory(void **state) {
  (void)state;
  check(&(Shape){7, 3, 4, "1f1b", 60}, 60);
  check(&(Shape){8, 3, 6, "zb-h2", 70}, 60);
}

// Long chains take no longer than planning may, and equal units are dealt evenly.
static void long_chains_are_even(void **state) {
  (void)state;
  enum { N = 640, STAGES = 64 };
  Arena *a = arena_new();
  Random r = {1};
  Chain *c = random_chain(a, &r, &(Shape){N, STAGES, 128, "1f1b", 0});
  Partition *p = arena_copy(a, c->p, sizeof *p);
  c->p = p;
  c->n_transfers = p->n_flows = p->n_shared = 0;
  p->base_seconds = p->base_bytes = arena_array(a, double, STAGES);
  for (int i = 0; i < N * STAGES; i++) {
    c->forward[i] = c->backward[i] = c->weights[i] = 1;
    c->sums[i] = 0;
  }
  const int *first = chain_solve(a, c);
  assert_non_null(first);
  for (int s = 0; s < STAGES; s++)
    assert_int_equal(first[s], s * (N / STAGES));
  arena_free(a);
}

TEST_GROUP(chain) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stages_are_the_best),
      cmocka_unit_test(stages_keep_to_memory),
      cmocka_unit_test(long_chains_are_even),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
