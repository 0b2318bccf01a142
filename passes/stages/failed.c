// Why nothing can be placed: the stages that need least memory, what they need it for, and what
// would make them fit.

#include <inttypes.h>
#include <math.h>

#include "stages/placing.h"

enum { MAX_MICRO_BATCHES = 256, SECONDS = 5 };

static double sum_of(const StageBytes *b) {
  return b->weights + b->states + b->gradients + b->kept;
}

static void add(StageBytes *to, const StageBytes *b, double slices) {
  to->weights += b->weights;
  to->states += b->states;
  to->gradients += b->gradients;
  to->kept += b->kept / slices;
}

// The same choice with bytes for seconds, in `slices` times as many micro-batches: the rank that
// needs most is to need least.  What comes from other stages is not in it.
static Partition by_bytes(const Placing *p, Arena *a, double slices) {
  const Loads *l = p->loads;
  Partition q = l->p;
  int n = q.n_runs;
  q.seconds = arena_array(a, double, q.n_units *n);
  q.base_seconds = arena_array(a, double, n);
  q.bytes = arena_array(a, double, q.n_units *n);
  q.base_bytes = arena_array(a, double, n);
  q.limit = arena_array(a, double, n);
  q.start = q.by_rows = q.by_whole = arena_array(a, double, n *n);
  for (int i = 0; i < q.n_units * n; i++)
    q.seconds[i] = sum_of(&l->of_unit[i]) - l->of_unit[i].kept * (1 - 1 / slices);
  for (int r = 0; r < n; r++) {
    q.limit[r] = INFINITY;
    q.base_seconds[r] = l->p.base_bytes[r];
  }
  Shared *shared = arena_array(a, Shared, q.n_shared);
  for (int i = 0; i < q.n_shared; i++) {
    shared[i] = l->p.shared[i];
    shared[i].seconds = arena_array(a, double, n);
    for (int r = 0; r < n; r++)
      shared[i].seconds[r] = shared[i].bytes;
    shared[i].bytes = 0;
  }
  q.shared = shared;
  return q;
}

// What a rank of a run needs, by what it is for.
static StageBytes bytes_of(const Placing *p, const int *run_of, int run, double slices) {
  const Loads *l = p->loads;
  StageBytes sum = {0}, most = {0};
  for (int k = p->run[run].first; k < p->run[run].first + p->run[run].n; k++)
    if (sum_of(&l->of_rank[k]) > sum_of(&most)) most = l->of_rank[k];
  add(&sum, &most, 1);
  for (int u = 0; u < p->units.n; u++)
    if (run_of[u] == run) add(&sum, &l->of_unit[u * p->n_runs + run], slices);
  for (int i = 0; i < l->p.n_shared; i++) {
    bool there = false;
    for (int k = 0; k < l->p.shared[i].n_units; k++)
      there |= run_of[l->p.shared[i].unit[k]] == run;
    if (there) add(&sum, &l->of_shared[i], slices);
  }
  return sum;
}

// The run that needs most where all need least, or -1: no stages can be made at all.
static int worst_run(const Placing *p, Arena *a, double slices, StageBytes *out) {
  Partition q = by_bytes(p, a, slices);
  PartitionResult r = partition_solve(a, &q, &(PartitionOptions){.seconds = SECONDS});
  int worst = -1;
  for (int u = 0; r.run_of && u < p->units.n; u++) {
    StageBytes b = bytes_of(p, r.run_of, r.run_of[u], slices);
    if (worst >= 0 && sum_of(&b) <= sum_of(out)) continue;
    worst = r.run_of[u];
    *out = b;
  }
  return worst;
}

static void hint(const Placing *p, Arena *a, double needed, double memory, Diag *d) {
  int64_t slices = module_slices(p->s->g->module);
  for (int64_t more = 2; more * slices <= MAX_MICRO_BATCHES; more *= 2) {
    StageBytes b;
    if (!loads_share_rows(p->s, p->axis, &p->units, p->rows, (int)more)) break;
    if (worst_run(p, a, (double)more, &b) < 0 || sum_of(&b) > memory) continue;
    diag_hint(d, "it may fit in %" PRId64 " micro-batches: --micro-batches %" PRId64, more * slices,
              more * slices);
    return;
  }
  diag_hint(d, "a device would need %.0f bytes more", ceil(needed - memory));
}

bool placing_failed(const Placing *p, const PartitionResult *r, Diag *d) {
  Arena *a = p->s->scratch;
  const Cluster *c = p->s->cluster;
  const char *axis = p->s->mesh->axis[p->axis].name;
  StageBytes b = {0};
  int worst = worst_run(p, a, 1, &b);
  if (worst < 0)
    return diag_error(d, p->why,
                      "the %d ranks of %s cannot be covered by stages that share the rows evenly "
                      "and have a unit each",
                      p->n_ranks, axis);
  bool proven = r->status == PARTITION_infeasible;
  diag_error(d, p->why,
             "%s: where ranks need least, rank %d of %s needs %.0f bytes, and a device of '%s' has "
             "%.0f",
             proven ? "the model fits on no stages" : "no stages were found that fit",
             p->run[worst].first, axis, sum_of(&b), c->name, p->loads->p.limit[worst]);
  diag_note(d, p->why,
            "%.0f bytes are weights, %.0f the optimizer's states, %.0f gradients, and %.0f what is "
            "kept for them",
            b.weights, b.states, b.gradients, b.kept);
  hint(p, a, sum_of(&b), p->loads->p.limit[worst], d);
  return false;
}
