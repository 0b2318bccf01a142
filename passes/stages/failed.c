// Why nothing can be placed: the stages that need least memory, what they need it for, and what
// would make them fit.

#include <inttypes.h>
#include <math.h>

#include "stages/placing.h"

enum { MAX_MICRO_BATCHES = 256, SECONDS = 5 };

// The memory of the run's smallest device; infinite where it is not limited.
static double room(const Placing *p, int run) {
  return p->loads->p.limit[run];
}

// The same choice with parts of a device's memory for seconds, in `slices` times as many
// micro-batches: the device that is filled most is to be filled least.  What comes from other
// stages is not in it.
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
  for (int i = 0; i < q.n_units * n; i++) {
    double bytes = stage_bytes_sum(&l->of_unit[i]) - l->of_unit[i].kept * (1 - 1 / slices);
    q.seconds[i] = bytes / room(p, i % n);
  }
  for (int r = 0; r < n; r++) {
    q.limit[r] = INFINITY;
    q.base_seconds[r] = l->p.base_bytes[r] / room(p, r);
  }
  Shared *shared = arena_array(a, Shared, q.n_shared);
  for (int i = 0; i < q.n_shared; i++) {
    shared[i] = l->p.shared[i];
    shared[i].seconds = arena_array(a, double, n);
    for (int r = 0; r < n; r++)
      shared[i].seconds[r] = shared[i].bytes / room(p, r);
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
    if (stage_bytes_sum(&l->of_rank[k]) > stage_bytes_sum(&most)) most = l->of_rank[k];
  stage_bytes_add(&sum, &most, 1, 1);
  for (int u = 0; u < p->units.n; u++)
    if (run_of[u] == run) stage_bytes_add(&sum, &l->of_unit[u * p->n_runs + run], 1, slices);
  for (int i = 0; i < l->p.n_shared; i++) {
    bool there = false;
    for (int k = 0; k < l->p.shared[i].n_units; k++)
      there |= run_of[l->p.shared[i].unit[k]] == run;
    if (there) stage_bytes_add(&sum, &l->of_shared[i], 1, slices);
  }
  return sum;
}

// The run that is filled most where all are filled least, or -1: no stages can be made at all.
static int worst_run(const Placing *p, Arena *a, double slices, StageBytes *out) {
  Partition q = by_bytes(p, a, slices);
  PartitionResult r = partition_solve(a, &q, &(PartitionOptions){.seconds = SECONDS});
  int worst = -1;
  double most = 0;
  for (int u = 0; r.run_of && u < p->units.n; u++) {
    StageBytes b = bytes_of(p, r.run_of, r.run_of[u], slices);
    double filled = stage_bytes_sum(&b) / room(p, r.run_of[u]);
    if (worst >= 0 && filled <= most) continue;
    worst = r.run_of[u];
    most = filled;
    *out = b;
  }
  return worst;
}

// -- What would help -----------------------------------------------------------------------------

static bool hint_slices(const Placing *p, Arena *a, Diag *d) {
  int64_t slices = module_slices(p->s->g->module);
  for (int64_t more = 2; more * slices <= MAX_MICRO_BATCHES; more *= 2) {
    StageBytes b;
    if (!loads_share_rows(p->s, p->axis, &p->units, p->rows, (int)more)) return false;
    int worst = worst_run(p, a, (double)more, &b);
    if (worst < 0 || stage_bytes_sum(&b) > room(p, worst)) continue;
    diag_hint(d, "it may fit in %" PRId64 " micro-batches: --micro-batches %" PRId64, more * slices,
              more * slices);
    return true;
  }
  return false;
}

// Other stages than those that were asked for.
static bool hint_sizes(const Placing *p, Diag *d) {
  int n = 0;
  const int *size = p->wish->n ? placing_open(p, &n) : NULL;
  if (!size) return false;
  StrBuf list = {.arena = p->s->scratch};
  for (int i = 0; i < n; i++)
    strbuf_addf(&list, "%s%d", i ? ", " : "", size[i]);
  diag_hint(d, "%d stage%s of other sizes fit%s: place(axis, {%s})", n, n == 1 ? "" : "s",
            n == 1 ? "s" : "", list.at);
  return true;
}

// Of a rank of the axis, the device with the least memory.
static int smallest_device(const Placing *p, int rank) {
  const Mesh *mesh = p->s->mesh;
  int inner = 1, smallest = -1;
  for (int a = p->axis + 1; a < mesh->n_axes; a++)
    inner *= mesh->axis[a].time ? 1 : mesh->axis[a].size;
  for (int i = 0; i < mesh->n_devices; i++) {
    if (i / inner % p->n_ranks != rank) continue;
    double memory = cluster_device(p->s->cluster, mesh->device[i]).memory;
    if (smallest < 0 || memory < cluster_device(p->s->cluster, smallest).memory)
      smallest = mesh->device[i];
  }
  return smallest;
}

// The rank of the run with the smallest device.
static int smallest_rank(const Placing *p, int run) {
  int smallest = p->run[run].first;
  for (int k = smallest; k < p->run[run].first + p->run[run].n; k++)
    if (cluster_device(p->s->cluster, smallest_device(p, k)).memory <
        cluster_device(p->s->cluster, smallest_device(p, smallest)).memory)
      smallest = k;
  return smallest;
}

double placing_failed(const Placing *p, const PartitionResult *r, Diag *d) {
  Arena *a = p->s->scratch;
  const Cluster *c = p->s->cluster;
  const char *axis = p->s->mesh->axis[p->axis].name;
  StageBytes b = {0};
  int worst = worst_run(p, a, 1, &b);
  if (worst < 0 && r->status == PARTITION_unknown) {
    diag_error(d, p->why,
               "no stages were found for the %d ranks of %s: there are too many to look at",
               p->n_ranks, axis);
    return 0;
  }
  if (worst < 0) {
    diag_error(d, p->why,
               "the %d ranks of %s cannot be covered by stages that share the rows evenly and have "
               "a unit each",
               p->n_ranks, axis);
    return 0;
  }
  int rank = smallest_rank(p, worst), device = smallest_device(p, rank);
  double needed = stage_bytes_sum(&b), memory = room(p, worst);
  diag_error(d, p->why,
             "%s: where ranks need least, rank %d of %s needs %.0f bytes, and device %d of '%s' "
             "has %.0f",
             r->status == PARTITION_infeasible ? "the model fits on no stages"
                                               : "no stages were found that fit",
             rank, axis, needed, device, c->name, memory);
  diag_note(d, p->why,
            "%.0f bytes are weights, %.0f the optimizer's states, %.0f gradients, and %.0f what is "
            "kept for them",
            b.weights, b.states, b.gradients, b.kept);
  if (!hint_sizes(p, d) && !hint_slices(p, a, d))
    diag_hint(d, "device %d would need %.0f bytes more", device, ceil(needed - memory));
  return needed;
}
