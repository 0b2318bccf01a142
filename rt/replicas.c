// --check-replicas: compares the shards of weights and states that several ranks hold.
//
// The ranks of a mesh that differ only along axes that do not split a tensor hold the same shard of
// it.  Their copies are equal bit by bit: all have computed them from equal operands in the same
// way.  A copy that differs has been corrupted, and nothing else notices that: gradients are summed
// over all ranks, so the loss goes on falling, on average.
//
//     mesh dp=2 tp=2, w split along tp      rank 0: w[0]   rank 1: w[1]   rank 2: w[0]   rank 3: w[1]
//     checksums                                     A              B              A              C
//     terms of the sum                              A              B             -A             -C
//
// A comparison adds two words over all ranks.  The first of n ranks with a shard gives n - 1 times
// its checksum, and the others subtract theirs, so the sum over all shards of all tensors is 0, or
// some copy differs.  Only then are the checksums of all tensors gathered.  Of three or more copies
// the largest number of equal ones are taken as sound, and the others are named.
//
// Under data parallelism only the corrupted tensor of one rank differs, since gradients are summed.
// Where ranks of tensor parallelism compute the same values, each for itself, the ones that get
// gradients of the corrupted rank follow it; but the tensor that was corrupted has more different
// values than those that follow, so it is named first.  Of two that have the same number the state
// is: weights are updated by states, and a corrupted weight changes no state of its own.
//
// Ranks compare every K steps, before a checkpoint is written, after the last step, and before the
// first: files of a checkpoint may differ between machines.  So a checkpoint of this run was equal
// on all ranks when it was written.  A shard that one rank alone holds cannot be compared.
//
// On machines that round differently (rounding_agreement.c) copies may differ without corruption:
// those of weights that ranks update each for itself, from gradients that none has sent to another.
// There the size of a difference decides, which sketches estimate (sketch.h).  Over all weights
// with copies, and over all states,
//
//     the sum of |copy - first copy|^2, of the farthest copy  <=  limit^2 * the sum of |first copy|^2
//
// is rounding: a warning says so once.  A larger one ends the job, as does a copy with values that
// are not finite beside one without, an integer, or a single number that differs by 1 %.  The sums
// are over all tensors, since one tensor may be noise: a bias before a normalisation has a gradient
// of 0, whose rounding Adam makes as large as any. The limit of weights, 1 %, is far above
// rounding, which moves an f32 weight by less than 1e-6 a step; that of states is their own norm,
// as momentum near a minimum is small beside the rounding of the gradients in it.  A flip of a high
// bit of an exponent exceeds both.

#include "replicas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "sketch.h"
#include "word_sum.h"

enum { HOST = 64, MOST_NAMED = 4 };

// The limits of differences by rounding, relative to the norms of all weights, and of all states.
static const double limit_of_weights = 0.01, limit_of_states = 1;

// A shard of a tensor on this rank.
typedef struct Held {
  const NnrtTensor *tensor;
  int copies; // number of ranks that hold this shard
  bool first; // of these ranks
} Held;

struct Replicas {
  NnrtRank *r;
  int n;         // shards of this rank that others hold, too
  Held *held;    // [n]
  Range *range;  // [n]
  uint64_t *sum; // [n]
  int64_t equal; // number of steps done at the last comparison without a difference; -1: none
  bool near;     // then copies differed by rounding
  bool warned;   // of that
};

// Whether the tensor differs along the axis of its mesh.
static bool is_split(const NnrtTensor *t, int axis) {
  for (int d = 0; d < t->ndim; d++)
    for (int i = 0; i < NNRT_MAX_AXES && t->split[d][i] >= 0; i++)
      if (t->split[d][i] == axis) return true;
  return false;
}

// Returns the first place on the mesh with the same shard as `place`, and the number of them.
static int first_copy(const NnrtTensor *t, const NnrtMesh *m, int place, int *out_copies) {
  int first = 0, coord[NNRT_MAX_AXES];
  *out_copies = 1;
  nnrt_mesh_coord(m, place, coord);
  // Places are row-major over the axes other than time.
  for (int a = 0; a < m->n_axes; a++) {
    if (m->axis[a].time) continue;
    bool split = is_split(t, a);
    first = first * m->axis[a].size + (split ? coord[a] : 0);
    if (!split) *out_copies *= m->axis[a].size;
  }
  return first;
}

Replicas *nnrt_replicas_new(NnrtRank *r) {
  const NnrtGraph *g = &r->program->train;
  Replicas *p = nnrt_must_alloc(sizeof *p);
  *p = (Replicas){.r = r, .equal = -1};
  p->held = nnrt_must_alloc((size_t)g->n_tensors * sizeof *p->held);
  p->range = nnrt_must_alloc((size_t)g->n_tensors * sizeof *p->range);
  p->sum = nnrt_must_alloc((size_t)g->n_tensors * sizeof *p->sum);
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    const NnrtMesh *m = &r->program->mesh[t->mesh];
    Part part;
    if (!nnrt_tensor_lasts(t) || !nnrt_part_here(r, t, &part)) continue;
    int copies, place = nnrt_mesh_place(m, r->rank);
    bool first = first_copy(t, m, place, &copies) == place;
    if (copies == 1) continue;
    p->held[p->n] = (Held){t, copies, first};
    p->range[p->n++] =
        (Range){nnrt_tensor_at(r, t), nnrt_part_count(t, &part) * nnrt_dtype_size(t->dtype)};
  }
  // Without copies on any rank, rounding makes no difference that could be noticed.
  int64_t copies = p->n;
  nnrt_comm_sum(r, &copies, 1);
  char *unlike = copies ? nnrt_rounding_differences(r) : NULL;
  if (unlike && r->rank == 0)
    nnrt_say_note("ranks may round differently: %s; so copies of a weight may differ a little, and "
                  "--check-replicas ends the job only if they differ by more",
                  unlike);
  free(unlike);
  return p;
}

void nnrt_replicas_free(Replicas *p) {
  if (!p) return;
  free(p->held);
  free(p->range);
  free(p->sum);
  free(p);
}

// ---- the report of rank 0

// All checksums, [ranks][n_tensors of train]; 0 if the rank does not hold the tensor.
typedef struct Sums {
  const NnrtProgram *program;
  uint64_t *at;
  char (*host)[HOST]; // [ranks]
  bool one_host;
} Sums;

// The ranks with copies of one shard, in the order of their checksums.
typedef struct Copies {
  const NnrtTensor *tensor;
  int n, distinct; // distinct: number of different checksums
  struct Copy {
    uint64_t sum;
    int rank;
  } * copy;
  // The largest set of equal copies; none if two are the largest.
  int most, most_from;
} Copies;

static int by_sum(const void *a, const void *b) {
  const struct Copy *x = a, *y = b;
  if (x->sum != y->sum) return x->sum < y->sum ? -1 : 1;
  return x->rank - y->rank;
}

static void find_copies(const Sums *s, int tensor, int first, Copies *c) {
  const NnrtTensor *t = c->tensor = &s->program->train.tensors[tensor];
  const NnrtMesh *m = &s->program->mesh[t->mesh];
  int copies;
  c->n = c->distinct = c->most = 0;
  for (int place = 0; place < m->n_ranks; place++) {
    if (first_copy(t, m, place, &copies) != first) continue;
    int rank = m->rank[place];
    c->copy[c->n++] =
        (struct Copy){s->at[(int64_t)rank * s->program->train.n_tensors + tensor], rank};
  }
  qsort(c->copy, (size_t)c->n, sizeof *c->copy, by_sum);
  bool tie = false;
  for (int i = 0, end; i < c->n; i = end) {
    for (end = i; end < c->n && c->copy[end].sum == c->copy[i].sum;)
      end++;
    c->distinct++;
    if (end - i < c->most) continue;
    tie = end - i == c->most;
    c->most = end - i;
    c->most_from = i;
  }
  if (tie) c->most = 0;
}

// Returns "rank 1", "ranks 0, 1 and 3", with machines if there are several; the caller frees it.
static char *ranks_text(const Sums *s, const int *rank, int n) {
  char *text = nnrt_must_format("rank%s", n == 1 ? "" : "s");
  int named = n <= MOST_NAMED ? n : MOST_NAMED - 1;
  for (int i = 0; i < named; i++) {
    const char *before = i == 0 ? " " : i == n - 1 ? " and " : ", ";
    text = nnrt_must_append(text, "%s%d%s%s%s", before, rank[i], s->one_host ? "" : " (",
                            s->one_host ? "" : s->host[rank[i]], s->one_host ? "" : ")");
  }
  return n > named ? nnrt_must_append(text, " and %d more", n - named) : text;
}

static int by_rank(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

static char *difference_text(const Sums *s, const Copies *c) {
  const NnrtTensor *t = c->tensor;
  const char *kind = t->role == NNRT_weight  ? "the weight"
                     : t->role == NNRT_state ? "the state"
                                             : "the 16-bit copy of the weight";
  int n_odd = 0, n_most = 0;
  int *odd = nnrt_must_alloc((size_t)c->n * sizeof *odd);
  int *most = nnrt_must_alloc((size_t)c->n * sizeof *most);
  for (int i = 0; i < c->n; i++) {
    if (i >= c->most_from && i < c->most_from + c->most)
      most[n_most++] = c->copy[i].rank;
    else
      odd[n_odd++] = c->copy[i].rank;
  }
  qsort(odd, (size_t)n_odd, sizeof *odd, by_rank);
  char *those = ranks_text(s, odd, n_odd), *others = ranks_text(s, most, n_most);
  char *text = n_most
                   ? nnrt_must_format("%s hold%s other values of %s '%s' than %s", those,
                                      n_odd == 1 ? "s" : "", kind, t->name, others)
                   : nnrt_must_format("%s hold different values of %s '%s'", those, kind, t->name);
  free(odd);
  free(most);
  free(those);
  free(others);
  return text;
}

// Returns the hint: the checkpoint to resume from.  The caller frees it.
static char *checkpoint_text(const Replicas *p) {
  const NnrtRun *run = p->r->run;
  const Checkpoints *c = &run->checkpoints;
  if (!run->flags.checkpoint_dir.given)
    return nnrt_must_format(
        "train again; with --checkpoint-dir there are checkpoints, each written "
        "when all ranks were equal");
  if (p->equal < 0)
    return nnrt_must_format("ranks differ since the start: exclude the machine of a rank that is "
                            "named again in the next run");
  if (c->last < 0) return nnrt_must_format("train again: no checkpoint was written before");
  return nnrt_must_format(
      "the checkpoint after step %lld in '%s' is sound, it was written when all "
      "ranks %s: continue with --resume",
      (long long)c->last, c->dir, p->near ? "differed by rounding only" : "were equal");
}

// A shard with copies that differ.
typedef struct Difference {
  int tensor, first, distinct;
  bool state;
} Difference;

static int most_distinct_first(const void *a, const void *b) {
  const Difference *x = a, *y = b;
  if (x->distinct != y->distinct) return y->distinct - x->distinct;
  if (x->state != y->state) return y->state - x->state;
  if (x->tensor != y->tensor) return x->tensor - y->tensor;
  return x->first - y->first;
}

// Returns all differences, those with the most values first; the caller frees them.
static Difference *find_differences(const Sums *s, Copies *c, int *out_n) {
  const NnrtGraph *g = &s->program->train;
  Difference *found = NULL;
  *out_n = 0;
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    const NnrtMesh *m = &s->program->mesh[t->mesh];
    if (!nnrt_tensor_lasts(t)) continue;
    for (int place = 0; place < m->n_ranks; place++) {
      int copies;
      if (first_copy(t, m, place, &copies) != place || copies == 1) continue;
      find_copies(s, i, place, c);
      if (c->distinct == 1) continue;
      found = realloc(found, (size_t)(*out_n + 1) * sizeof *found);
      if (!found) nnrt_must_alloc((size_t)-1);
      found[(*out_n)++] = (Difference){i, place, c->distinct, t->role == NNRT_state};
    }
  }
  if (found) qsort(found, (size_t)*out_n, sizeof *found, most_distinct_first);
  return found;
}

// Returns the differences of the tensors that have most of them; the caller frees it.
static char *differences_text(const Sums *s) {
  Copies c = {.copy = nnrt_must_alloc((size_t)s->program->ranks * sizeof *c.copy)};
  char *text = NULL;
  int n;
  Difference *found = find_differences(s, &c, &n);
  for (int i = 0; i < n && i < MOST_NAMED; i++) {
    find_copies(s, found[i].tensor, found[i].first, &c);
    char *one = difference_text(s, &c);
    text = nnrt_must_append(text, "%s%s", text ? "; " : "", one);
    free(one);
  }
  if (!n)
    text = nnrt_must_format("the sum of checksums over all ranks is wrong, while no copies differ");
  if (n > MOST_NAMED) text = nnrt_must_append(text, "; and %d more differ", n - MOST_NAMED);
  free(found);
  free(c.copy);
  return text;
}

// `size` is "", or the size of the difference.
static void report(const Replicas *p, const Sums *s, int64_t steps, const char *size) {
  char *text = differences_text(s), since[80] = "", *hint = checkpoint_text(p);
  if (p->equal >= 0)
    snprintf(since, sizeof since, "; after step %lld all %s", (long long)p->equal,
             p->near ? "differed by rounding only" : "were equal");
  nnrt_say_error("after step %lld: %s%s%s: memory, a computation or a transfer was corrupted\n"
                 "hint: %s",
                 (long long)steps, text, size, since, hint);
  free(hint);
  free(text);
}

// Collective: gathers the checksums of all tensors at rank 0; the caller frees them.
static void gather_sums(const Replicas *p, Sums *out) {
  NnrtRank *r = p->r;
  const NnrtGraph *g = &r->program->train;
  int64_t row = g->n_tensors * (int64_t)sizeof(uint64_t);
  bool root = r->rank == 0;
  uint64_t *mine = nnrt_must_alloc((size_t)row);
  for (int i = 0; i < p->n; i++)
    mine[p->held[i].tensor - g->tensors] = p->sum[i];
  uint64_t *all = root ? nnrt_must_alloc((size_t)(r->ranks * row)) : NULL;
  char host[HOST] = "", (*hosts)[HOST] = root ? nnrt_must_alloc((size_t)r->ranks * HOST) : NULL;
  if (gethostname(host, sizeof host - 1) != 0) *host = 0;
  nnrt_comm_gather(r, all, mine, row);
  nnrt_comm_gather(r, hosts, host, HOST);
  *out = (Sums){.program = r->program, .at = all, .host = hosts, .one_host = true};
  for (int i = 1; root && i < r->ranks; i++)
    out->one_host &= strcmp(hosts[i], hosts[0]) == 0;
  free(mine);
}

// ---- the size of a difference, where ranks round differently

// Sums over tensors of one role, of squares.
typedef struct Size {
  double apart, norm;
} Size;

// Collective: the sketches of one tensor's shards at rank 0, [ranks][SKETCH].
static void gather_sketches(const Replicas *p, const NnrtTensor *t, double *all) {
  enum { PIECE = 4 << 20 };
  double mine[SKETCH] = {0};
  for (int i = 0; i < p->n; i++) {
    if (p->held[i].tensor != t) continue;
    int64_t size = nnrt_dtype_size(t->dtype), n = p->range[i].bytes / size, most = PIECE / size;
    for (int64_t at = 0; at < n; at += most) {
      int64_t count = n - at < most ? n - at : most;
      const void *from = nnrt_device_read(p->r, p->range[i].at + at * size, count * size);
      nnrt_sketch_add(mine, t->dtype, from, at, count);
    }
  }
  nnrt_comm_gather(p->r, all, mine, sizeof mine);
}

// Adds the distance of the copy of a shard that is farthest from the first one.  False: rounding
// does not explain it.
static bool add_distance(const NnrtMesh *m, const NnrtTensor *t, int first, const double *all,
                         Size *io) {
  const double *reference = all + (int64_t)m->rank[first] * SKETCH;
  double norm = nnrt_sketch_square(reference, NULL), farthest = 0;
  for (int place = first + 1; place < m->n_ranks; place++) {
    int copies;
    if (first_copy(t, m, place, &copies) != first) continue;
    const double *copy = all + (int64_t)m->rank[place] * SKETCH;
    if (isfinite(norm) != isfinite(nnrt_sketch_square(copy, NULL))) return false;
    double apart = nnrt_sketch_square(copy, reference);
    if (apart > farthest) farthest = apart;
  }
  // A tensor without finite values is that on all ranks.
  if (!isfinite(norm)) return true;
  // Integers are not rounded, and a single number, a loss scale for example, has a size of its own.
  if (!nnrt_tensor_floating(t)) return farthest == 0;
  if (nnrt_tensor_count(t) == 1) return farthest <= limit_of_weights * limit_of_weights * norm;
  io->norm += norm;
  io->apart += farthest;
  return true;
}

static double relative(const Size *s) {
  return s->apart > 0 ? sqrt(s->apart / s->norm) : 0; // infinite beside zeros
}

// Collective: whether rounding explains the difference.  Rank 0 gets its size as a text.
static bool is_rounding(const Replicas *p, char *out, size_t size) {
  NnrtRank *r = p->r;
  const NnrtGraph *g = &r->program->train;
  bool root = r->rank == 0, explained = true;
  size_t bytes = (size_t)r->ranks * SKETCH * sizeof(double);
  double *all = root ? nnrt_must_alloc(bytes) : NULL;
  Size weights = {0}, states = {0};
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    const NnrtMesh *m = &r->program->mesh[t->mesh];
    int copies;
    first_copy(t, m, 0, &copies);
    if (!nnrt_tensor_lasts(t) || copies == 1) continue;
    gather_sketches(p, t, all);
    for (int place = 0; root && place < m->n_ranks; place++)
      if (first_copy(t, m, place, &copies) == place)
        explained &= add_distance(m, t, place, all, t->role == NNRT_state ? &states : &weights);
  }
  free(all);
  double w = relative(&weights), s = relative(&states);
  int64_t ends = root && !(explained && w <= limit_of_weights && s <= limit_of_states);
  if (explained)
    snprintf(out, size, "; the difference is %.2g of the norm of the weights, %.2g of the states'",
             w, s);
  else
    snprintf(out, size,
             "; only some of the copies are finite, or single numbers or integers differ");
  nnrt_comm_sum(r, &ends, 1);
  return ends == 0;
}

// ---- the comparison

// Collective, if copies differ: whether rounding explains it.  Rank 0 reports it, rounding once.
static bool explain(Replicas *p, int64_t steps) {
  NnrtRank *r = p->r;
  Sums s;
  char size[160] = "";
  gather_sums(p, &s);
  // Asked again: choices of --tune are made as kernels are prepared.
  char *unlike = nnrt_rounding_differences(r);
  bool sound = unlike && is_rounding(p, size, sizeof size);
  if (r->rank == 0 && !sound) report(p, &s, steps, size);
  if (r->rank == 0 && sound && !p->warned) {
    char *text = differences_text(&s);
    nnrt_say_warning("after step %lld: %s%s: ranks round differently, so training goes on; above "
                     "%g of the weights or %g of the states it ends",
                     (long long)steps, text, size, limit_of_weights, limit_of_states);
    free(text);
  }
  p->warned |= sound;
  // The report is out before any rank ends.
  nnrt_comm_sum(r, &(int64_t){0}, 1);
  free(unlike);
  free(s.host);
  free(s.at);
  return sound;
}

bool nnrt_replicas_sound(Replicas *p, int64_t steps) {
  NnrtRank *r = p->r;
  const NnrtGraph *g = &r->program->train;
  uint64_t mine = 0;
  // Reads the slab outside of operations.
  nnrt_in_use_rest(r);
  nnrt_device_checksums(r, p->range, p->n, p->sum);
  for (int i = 0; i < p->n; i++) {
    const Held *h = &p->held[i];
    // Mixed with the tensor, so that differences of two tensors do not cancel.
    uint64_t x = word_mix(p->sum[i], (uint64_t)(h->tensor - g->tensors));
    mine += h->first ? x * (uint64_t)(h->copies - 1) : -x;
  }
  // In two halves: their sums do not overflow.
  int64_t half[2] = {(int64_t)(mine >> 32), (int64_t)(mine & UINT32_MAX)};
  nnrt_comm_sum(r, half, 2);
  bool equal = ((uint64_t)half[0] << 32) + (uint64_t)half[1] == 0;
  bool sound = equal || explain(p, steps);
  if (!sound) return false;
  p->equal = steps;
  p->near = !equal;
  return true;
}
