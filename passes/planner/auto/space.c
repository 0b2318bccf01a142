// See space.h.

#include "space.h"

#include "sharding/sharding.h"

static bool divides(int64_t n, int64_t of) {
  return of % n == 0;
}

// Whether tables of words are large enough to matter to a stage.
static bool has_vocabulary(const ModelFeatures *f) {
  enum { LEAST_PARTS = 20 }; // of all weights
  return f->words_share * LEAST_PARTS >= 1;
}

// Whether the tables may be spread over the stages, beside at least one unit for each.
static bool can_interlace(const SpaceOptions *o, const Point *p) {
  return has_vocabulary(&o->has) && p->context == 1 && p->inner != POINT_vp && p->stages < o->units;
}

// Chunks of each kind of schedule, which is tried with each number of them.
static const struct {
  PointKind kind;
  int chunks;
} schedules[] = {{POINT_1f1b, 1},        {POINT_zb_h1, 1},       {POINT_zb_h2, 1},
                 {POINT_interleaved, 2}, {POINT_interlaced, 1},  {POINT_interleaved, 3},
                 {POINT_interleaved, 4}, {POINT_interleaved, 6}, {POINT_interleaved, 8}};
enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };

// Adds the point with each kind of schedule that its numbers allow.
static void add_kinds(const SpaceOptions *o, Arena *a, const Point *p, Points *out) {
  for (int i = 0; i < N_SCHEDULES; i++) {
    PointKind kind = schedules[i].kind;
    Point q = *p;
    q.kind = kind;
    q.chunks = schedules[i].chunks;
    // Other kinds than 1F1B gain in full stages alone.
    if (kind != POINT_1f1b && (q.stages == 1 || q.micro_batches < q.stages)) continue;
    // Chunks run in rounds of as many micro-batches as there are stages.
    if (q.chunks > 1 && !divides(q.stages, q.micro_batches)) continue;
    if (q.stages * q.chunks > o->units) continue;
    if (kind == POINT_interlaced && !can_interlace(o, p)) continue;
    vec_push(a, out, q);
  }
}

// Adds the numbers of ranks with every number of micro-batches.
static void add_slices(const SpaceOptions *o, Arena *a, Point p, Points *out) {
  enum { MOST_SLICES = 512 }; // as experts have them
  int64_t rows = o->rows / point_row_ranks(&p);
  int64_t least = o->micro_batches ? o->micro_batches : 1;
  int64_t most = o->micro_batches ? o->micro_batches : rows < 1 ? 1 : rows;
  if (o->rows > 0 && !divides(point_row_ranks(&p), o->rows)) return;
  for (int64_t m = least; m <= most && m <= MOST_SLICES; m++) {
    if (rows > 0 && !divides(m, rows)) continue;
    if (!o->micro_batches && !o->few_slices && p.stages > 1 && m < p.stages) continue;
    p.micro_batches = m;
    add_kinds(o, a, &p, out);
  }
}

// Adds every level of ZeRO of the replicas.
static void add_zeros(const SpaceOptions *o, Arena *a, Point p, Points *out) {
  enum { STAGE_ZEROS = 1, ALL_ZEROS = 3 }; // with stages, and without
  int most = p.replicas == 1 ? 0 : p.stages > 1 ? STAGE_ZEROS : ALL_ZEROS;
  for (p.zero = 0; p.zero <= most; p.zero++)
    add_slices(o, a, p, out);
}

// Adds the points of as many replicas as the other ranks of a stage leave, with each program.
static void add_programs(const SpaceOptions *o, Arena *a, Point p, int64_t inside, Points *out) {
  int64_t others = (int64_t)p.experts * p.context * p.tensor;
  if (!divides(others, inside)) return;
  p.replicas = (int)(inside / others);
  // A ring attends to all keys, or to those before a query; an all_to_all gives a rank whole heads.
  if (p.context == 1 || !o->has.masked) add_zeros(o, a, p, out);
  Point q = p;
  q.along = POINT_cp_a2a;
  if (p.context > 1 && divides((int64_t)p.context * p.tensor, o->has.key_heads))
    add_zeros(o, a, q, out);
  q = p;
  q.inner = POINT_vp;
  if (p.tensor > 1 && p.context == 1 && has_vocabulary(&o->has)) add_zeros(o, a, q, out);
}

// Whether so many ranks can have parts of each sequence, and these are long: a causal ring has an
// early and a late part of it on each rank.
static bool allows_context(const SpaceOptions *o, int64_t context) {
  enum { LONG = 8192 }; // tokens
  return o->has.tokens >= LONG && divides(2 * context, o->has.tokens);
}

void space_list(const SpaceOptions *o, Arena *a, Points *out) {
  for (int64_t stages = 1; stages <= o->ranks && stages <= o->units; stages++) {
    if (!divides(stages, o->ranks)) continue;
    int64_t inside = o->ranks / stages;
    Point p = {.stages = (int)stages, .replicas = 1, .micro_batches = 1, .chunks = 1};
    for (p.tensor = 1; p.tensor <= inside && p.tensor <= o->per_node; p.tensor++) {
      p.context = p.experts = 1;
      add_programs(o, a, p, inside, out);
      p.capacity = o->capacity;
      for (p.experts = 2; p.experts <= o->has.experts; p.experts++)
        if (divides(p.experts, o->has.experts)) add_programs(o, a, p, inside, out);
      p.experts = 1;
      p.capacity = 0;
      for (p.context = 2; p.context * p.tensor <= o->per_node; p.context++)
        if (allows_context(o, p.context)) add_programs(o, a, p, inside, out);
    }
  }
}
