// See space.h.

#include "space.h"

#include "sharding/sharding.h"

static bool divides(int64_t n, int64_t of) {
  return of % n == 0;
}

// Adds the point with each kind of schedule that its numbers allow.
static void add_kinds(Arena *a, const Point *p, Points *out) {
  for (int kind = 0; kind < N_POINT_KINDS; kind++) {
    Point q = *p;
    q.kind = (PointKind)kind;
    q.chunks = kind == POINT_interleaved ? 2 : 1;
    if (kind != POINT_1f1b && (q.stages == 1 || q.micro_batches == 1)) continue;
    // Chunks run in rounds of as many micro-batches as there are stages.
    if (q.chunks > 1 && !divides(q.stages, q.micro_batches)) continue;
    vec_push(a, out, q);
  }
}

// Adds the numbers of ranks with every number of micro-batches. Fewer than stages leave ranks idle
// most of the time.
static void add_slices(const SpaceOptions *o, Arena *a, Point p, Points *out) {
  int64_t rows = o->rows / p.replicas;
  int64_t least = o->micro_batches ? o->micro_batches : 1;
  int64_t most = o->micro_batches ? o->micro_batches : rows < 1 ? 1 : rows;
  if (o->rows > 0 && !divides(p.replicas, o->rows)) return;
  for (int64_t m = least; m <= most && m <= MAX_MICRO_BATCHES; m++) {
    if (rows > 0 && !divides(m, rows)) continue;
    if (!o->micro_batches && p.stages > 1 && m < p.stages) continue;
    p.micro_batches = m;
    add_kinds(a, &p, out);
  }
}

void space_list(const SpaceOptions *o, Arena *a, Points *out) {
  enum { STAGE_ZEROS = 1, ALL_ZEROS = 3 }; // ZeRO of replicas of stages, and without stages
  for (int64_t stages = 1; stages <= o->ranks && stages <= o->units; stages++) {
    if (!divides(stages, o->ranks)) continue;
    int64_t inside = o->ranks / stages;
    for (int64_t tensor = 1; tensor <= inside && tensor <= o->per_node; tensor++) {
      if (!divides(tensor, inside)) continue;
      Point p = {
          (int)stages, (int)(inside / tensor), (int)tensor, 1, 1, 1, POINT_1f1b, 1, POINT_sp, 0};
      int most = p.replicas == 1 ? 0 : stages > 1 ? STAGE_ZEROS : ALL_ZEROS;
      for (p.zero = 0; p.zero <= most; p.zero++)
        add_slices(o, a, p, out);
    }
  }
}
