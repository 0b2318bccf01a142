// Operands of collectives that overlap (ir/analysis/in_flight.h): see plan_blocks.h.
//
//     %s = reduce_scatter %g    at 20      in use   ████████▆▆▅▄▄▃▃▃▂▂▂      the peak is before
//     %d = linear %e, %w        at 21      %g ──────────┤                    it dies here
//     …                                    %g ──────────┴╌╌╌╌╌╌╌╌┤           … and here, if there is room
//     %v1 = sgd %v, %s          at 40
//
// Nothing reads %g after op 20.  But an op that takes its bytes must wait for the collective, so %g
// lives on, up to the first reader of %s, while all values together stay below the present peak of
// their mesh.  The memory of a step is the same, and the collective overlaps for longer.
//
// With several slices, under a schedule and in deferred updates a collective ends with its part of
// the step (in_flight.h), and so does the longer life.

#include "ir/analysis/deferred.h"
#include "ir/analysis/in_flight.h"
#include "ir/op.h"
#include "plan_blocks.h"

typedef struct InUse {
  int64_t **bytes; // in use, by mesh id and time
  int64_t *most;   // the peak of each mesh
} InUse;

static InUse find_use(const MemoryPlan *p) {
  int64_t n_times = graph_end(p->g) + 2;
  InUse u = {arena_array(p->scratch, int64_t *, p->meets.n),
             arena_array(p->scratch, int64_t, p->meets.n)};
  for (int i = 0; i < p->meets.n; i++)
    u.bytes[i] = arena_array(p->scratch, int64_t, n_times);
  // Each block changes the sum at both ends of its life.
  for (int i = 0; i < p->block.n; i++) {
    const Block *b = p->block.at[i];
    if (b->kept || value_on_host(b->member.at[0])) continue;
    int64_t *change = u.bytes[value_mesh_id(b->member.at[0])];
    change[earlier(b->life.from, n_times - 1)] += block_bytes(p, b);
    change[earlier(b->life.to + 1, n_times - 1)] -= block_bytes(p, b);
  }
  for (int i = 0; i < p->meets.n; i++)
    for (int64_t t = 0; t < n_times; t++) {
      if (t) u.bytes[i][t] += u.bytes[i][t - 1];
      u.most[i] = later(u.most[i], u.bytes[i][t]);
    }
  return u;
}

// The last time in the part of the step, or segment, in which a collective of each op ends at the
// latest.
typedef struct Ends {
  const bool *begin, *update;
  int64_t of_begin, of_loop, of_update;
} Ends;

static Ends find_ends(const MemoryPlan *p) {
  const PartOps part = graph_part_ops(p->g, p->scratch);
  Ends e = {part.begin, part.update, 0, 0, 0};
  for_each_op(op, p->g)
    *(e.begin[op->id] ? &e.of_begin : e.update[op->id] ? &e.of_update : &e.of_loop) = op_time(op);
  // With one slice, collectives of the loop overlap with the update.
  if (module_slices(p->m) == 1 && !p->g->schedule) e.of_loop = later(e.of_loop, e.of_update);
  return e;
}

static int64_t end_of(const MemoryPlan *p, const Ends *e, const Op *op) {
  if (op->segment) return p->segment[op->segment].to;
  return e->begin[op->id] ? e->of_begin : e->update[op->id] ? e->of_update : e->of_loop;
}

int blocks_keep_operands(MemoryPlan *p) {
  int n = 0;
  // Blocks of deferred updates have two live ranges.
  if (graph_first_deferred(p->g)) return 0;
  InUse use = find_use(p);
  Ends ends = find_ends(p);
  for_each_op(op, p->g) {
    if (!op_is_async(op) || op_copies_operand(op)) continue;
    const Value *x = op->in[0].value;
    Block *b = p->place[x->id].block;
    if (!b || b->kept || value_on_host(x) || b == p->place[op->out[0]->id].block) continue;
    int64_t *bytes = use.bytes[value_mesh_id(b->member.at[0])];
    int64_t room = use.most[value_mesh_id(b->member.at[0])] - block_bytes(p, b);
    int64_t until = earlier(value_first_read(op->out[0]) - 1, end_of(p, &ends, op));
    // From the end of its life on, op by op.
    int64_t to = b->life.to;
    for (; to < until && bytes[to + 1] <= room; to++)
      bytes[to + 1] += block_bytes(p, b);
    n += to > b->life.to;
    b->life.to = to;
  }
  return n;
}
