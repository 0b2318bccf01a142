// Explains that nothing can be placed: the stages with the least memory use, the parts of this
// memory, and a cure.

#include <inttypes.h>
#include <math.h>

#include "placing.h"

enum { SECONDS = 5 }; // of the solver

// Returns the memory of the run's smallest device; infinite: no limit.
static double room(const Placing *p, int run) {
  return p->loads->p.limit[run];
}

// Returns the bytes of a rank of a run, by use.
static StageBytes bytes_of(const Placing *p, const int *run_of, int run, double slices) {
  const Loads *l = p->loads;
  StageBytes sum = {0}, most = {0};
  // Held ops, on the rank with the most of them; then units, and shared tensors once.
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

// Returns the stages that minimize the fill of the fullest run; NULL: no stages are possible.
static const int *least_filled(const Placing *p, Arena *a, double slices) {
  // The same problem with parts of a device's memory for seconds, in `slices` times as many
  // micro-batches: it minimizes the fill of the fullest device. Received values are left out.
  const Loads *l = p->loads;
  Partition q = l->p;
  int n = q.n_runs;
  q.seconds = arena_array(a, double, q.n_units *n);
  q.base_seconds = arena_array(a, double, n);
  q.bytes = arena_array(a, double, q.n_units *n);
  q.base_bytes = arena_array(a, double, n);
  q.limit = arena_array(a, double, n);
  // Messages cost nothing.
  q.start = q.by_batch = q.by_whole = arena_array(a, double, n *n);
  for (int i = 0; i < q.n_units * n; i++) {
    double bytes = stage_bytes_sum(&l->of_unit[i]) - l->of_unit[i].kept * (1 - 1 / slices);
    q.seconds[i] = bytes / room(p, i % n);
  }
  for (int r = 0; r < n; r++) {
    q.limit[r] = INFINITY;
    q.base_seconds[r] = l->p.base_bytes[r] / room(p, r);
  }
  // Shared tensors, too, have parts of the memory for seconds.
  Shared *shared = arena_array(a, Shared, q.n_shared);
  for (int i = 0; i < q.n_shared; i++) {
    shared[i] = l->p.shared[i];
    shared[i].seconds = arena_array(a, double, n);
    for (int r = 0; r < n; r++)
      shared[i].seconds[r] = shared[i].bytes / room(p, r);
    shared[i].bytes = 0;
  }
  q.shared = shared;

  return partition_solve(a, &q, &(PartitionOptions){.seconds = SECONDS}).run_of;
}

// The run that lacks most, of the stages that need least, and the bytes that a rank of it needs.
typedef struct Worst {
  int run;            // -1: no stages are possible
  double needed, got; // bytes; the part received from other stages
  StageBytes own;
} Worst;

static Worst worst_run(const Placing *p, Arena *a) {
  Worst w = {.run = -1};
  const int *run_of = least_filled(p, a, 1);
  if (!run_of) return w;
  // The run that is filled the most.
  Load load = partition_load(a, &p->loads->p, run_of);
  for (int u = 0; u < p->units.n; u++) {
    int run = run_of[u];
    if (w.run < 0 || load.bytes[run] / room(p, run) > load.bytes[w.run] / room(p, w.run))
      w.run = run;
  }
  w.own = bytes_of(p, run_of, w.run, 1);
  w.needed = load.bytes[w.run];
  w.got = fmax(w.needed - stage_bytes_sum(&w.own), 0);
  return w;
}

// -- Hints ---------------------------------------------------------------------------------------

static bool hint_slices(const Placing *p, Arena *a, Diag *d) {
  int64_t slices = module_slices(p->s->g->module);
  for (int64_t more = 2; more * slices <= MAX_MICRO_BATCHES; more *= 2) {
    if (!loads_split_batch(p->s, p->axis, &p->units, p->batch, (int)more)) return false;
    const int *run_of = least_filled(p, a, (double)more);
    if (!run_of) continue;
    // Every run must fit, without received values.
    bool fits = true;
    for (int u = 0; u < p->units.n && fits; u++) {
      StageBytes b = bytes_of(p, run_of, run_of[u], (double)more);
      fits = !(stage_bytes_sum(&b) > room(p, run_of[u]));
    }
    if (!fits) continue;
    diag_hint(d, "it may fit in %" PRId64 " micro-batches: --micro-batches %" PRId64, more * slices,
              more * slices);
    return true;
  }
  return false;
}

// Hints at stages of other sizes than the requested ones.
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

// Returns the device with the least memory of a rank of the axis.
static int smallest_device(const Placing *p, int rank) {
  const Mesh *mesh = p->s->mesh;
  int inner = 1, smallest = -1;
  for (int a = p->axis + 1; a < mesh->n_axes; a++)
    inner *= mesh->axis[a].time ? 1 : mesh->axis[a].size;
  for (int i = 0; i < mesh->n_devices; i++) {
    if (i / inner % p->n_ranks != rank) continue;
    double memory = cluster_device(p->s->env.cluster, mesh->device[i]).memory;
    if (smallest < 0 || memory < cluster_device(p->s->env.cluster, smallest).memory)
      smallest = mesh->device[i];
  }
  return smallest;
}

double placing_failed(const Placing *p, const PartitionResult *r, Diag *d) {
  Arena *a = p->s->scratch;
  const char *axis = p->s->mesh->axis[p->axis].name;
  Worst w = worst_run(p, a);
  // No stages were made for reasons other than memory.
  if (w.run < 0 || run_fits(&p->loads->p, w.run, w.needed)) {
    if (r->status == PARTITION_unknown) {
      diag_error(d, p->why,
                 "no stages were found for the %d ranks of %s: there are too many to look at",
                 p->n_ranks, axis);
      return 0;
    }
    diag_error(d, p->why,
               "the %d ranks of %s cannot be covered by stages that share the rows evenly and have "
               "a unit each",
               p->n_ranks, axis);
    diag_hint(d, "these are the rows of a micro-batch: a larger --batch or fewer --micro-batches "
                 "leaves each more of them");
    return 0;
  }
  // The smallest device of the run is the one that lacks memory.
  const Run *run = &p->run[w.run];
  int rank = run->first;
  for (int k = run->first; k < run->first + run->n; k++)
    if (cluster_device(p->s->env.cluster, smallest_device(p, k)).memory <
        cluster_device(p->s->env.cluster, smallest_device(p, rank)).memory)
      rank = k;
  int device = smallest_device(p, rank);
  diag_error(d, p->why,
             "%s: where ranks hold least, rank %d of %s needs %.0f bytes, and device %d of '%s' "
             "has %.0f",
             r->status == PARTITION_infeasible ? "the model fits on no stages"
                                               : "no stages were found that fit",
             rank, axis, w.needed, device, p->s->env.cluster->name, room(p, w.run));
  // The parts of its memory use.
  StrBuf bytes = {.arena = a};
  strbuf_addf(&bytes,
              "%.0f bytes are weights, %.0f the optimizer's states, %.0f gradients, and %.0f saved "
              "activations",
              w.own.weights, w.own.states, w.own.gradients, w.own.kept);
  if (w.got > 0) strbuf_addf(&bytes, "; %.0f come from other stages", w.got);
  diag_note(d, p->why, "%s", bytes.at);
  if (!hint_sizes(p, d) && !hint_slices(p, a, d))
    diag_hint(d, "device %d would need at least %.0f bytes more", device,
              ceil(w.needed - room(p, w.run)));
  return w.needed;
}
