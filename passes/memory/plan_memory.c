// Memory planning: an offset in one slab for every value.
//
//     %y = linear %x, %w  : f32[4,6]          %y = linear %x, %w  : f32[4,6] at 256
//     %z = fused @f %y    : f32[4,6]     =>   %z = fused @f %y    : f32[4,6] at 256     in place
//     %p = linear %z, %v  : f32[4,2]          %p = linear %z, %v  : f32[4,2] at 384
//     %w1 = sgd %w, %g …  : f32[8,6]          %w1 = sgd %w, %g …  : f32[8,6] at 0       over %w
//
// Persistent values (weights, states, scalars) come first and never move; a weight has the same
// offset in @eval as in @train. The rest of each graph shares the remaining memory.
//
// First values are gathered in blocks (plan_blocks.h): a view, a value produced in place, and a
// member of a bucket share the block of their operand or bucket. Constants have no offset: they are
// part of the program.
//
// Then blocks get offsets, the largest first, each in the smallest gap that blocks alive at the
// same time leave (greedy by size; Pisarchyk and Lee, "Efficient memory management for deep neural
// net inference", 2020, section 5). Blocks on disjoint meshes do not conflict, and blocks on the
// most devices come first. So a pipeline stage does not pay for the weights of another, and a
// device's slab ends with the last value on its meshes. With `apart` blocks do not share bytes: a
// search only asks which values share a block (planner/search/lives.h). Values in host memory
// (ir/analysis/place.h) have offsets in a slab there, by the same rules.
//
// Operands of collectives live longer, so that these overlap for longer, if the slab does not grow
// (plan_in_flight.c).
//
// Operands of deferred updates (ir/analysis/deferred.h) live from their op to the end of the step,
// and from the beginning of the next to their last reader (plan_deferred.c).
//
// In a loop with a schedule a rank has several slices in progress, and a block has as many adjacent
// slots as it needs (plan_slots.c).
//
// The bodies of loops have memory of their own (plan_loops.c).
//
// Ops that run once per step are moved before or after the ops that run once per micro-batch
// (ir/analysis/place.h).

#include <limits.h>
#include <stdlib.h>

#include "ir/analysis/place.h"
#include "ir/op.h"
#include "pass.h"
#include "plan_blocks.h"
#include "plan_loops.h"

enum { KEEP_TRIES = 8 }; // placements of the blocks with longer lives

static int64_t aligned(const MemoryPlan *p, int64_t bytes) {
  return (bytes + p->align - 1) / p->align * p->align;
}

// -- Offsets -----------------------------------------------------------------------------------

int64_t block_bytes(const MemoryPlan *p, const Block *b) {
  return aligned(p, b->bytes) * (b->slots > 1 ? b->slots : 1);
}

static Taken taken_by(const MemoryPlan *p, const Block *b) {
  return (Taken){b->offset, block_bytes(p, b), b->life, b->member.at[0], b->again};
}

// Gives `b` the best offset among the placed blocks, and adds it to them.
static void place_block(MemoryPlan *p, Gaps *placed, Block *b) {
  Taken taken = taken_by(p, b);
  b->offset = taken.offset = gaps_best(placed, &taken);
  p->looked_at += gaps_looked_at(placed);
  gaps_add(placed, &taken);
}

// -- Persistent values -------------------------------------------------------------------------

// The offset that an earlier graph gave to the parameter of this name, or -1.
static int64_t kept_before(const MemoryPlan *p, const Value *param) {
  for (int i = 0; i < p->before.n; i++) {
    const Value *v = table_find(p->before.at[i], (int)param->role, param->label);
    if (v && v->type == param->type && v->layout == param->layout && v->host == param->host)
      return v->offset;
  }
  return -1;
}

// The number of devices of a value.
static int width_of(const Value *v) {
  return v->layout && v->layout->mesh ? v->layout->mesh->n_devices : 1;
}

// The largest width below `width` among the graph's persistent values; 0 if there is none.
static int next_width(const Graph *g, int width) {
  int most = 0;
  for (int i = 0; i < g->n_params; i++) {
    int own = width_of(g->params[i]);
    if (param_kept(g->params[i]) && own < width && own > most) most = own;
  }
  return most;
}

// -- The pass ----------------------------------------------------------------------------------

static int by_size(const void *x, const void *y) {
  const Block *a = *(Block *const *)x, *b = *(Block *const *)y;
  int wide = width_of(a->member.at[0]), other = width_of(b->member.at[0]);
  if (wide != other) return wide < other ? 1 : -1;
  int64_t bytes = a->bytes * (a->slots ? a->slots : 1),
          other_bytes = b->bytes * (b->slots ? b->slots : 1);
  if (bytes != other_bytes) return bytes < other_bytes ? 1 : -1;
  return (a->life.from > b->life.from) - (a->life.from < b->life.from);
}

bool memory_plan_find_blocks(MemoryPlan *p, Graph *g) {
  p->g = g;
  graph_renumber(g);
  // Ops that run once per step precede the loop or follow it; deferred ops are last.
  enum { BEGIN, LOOP, UPDATE, DEFERRED, N_PARTS };
  const PartOps ops = graph_part_ops(g, p->scratch);
  Vec(Op *) part[N_PARTS] = {{0}};
  for_each_op(op, g)
    vec_push(p->scratch,
             &part[ops.begin[op->id]    ? BEGIN
                   : op->deferred       ? DEFERRED
                   : ops.update[op->id] ? UPDATE
                                        : LOOP],
             op);
  for (int k = 0; k < N_PARTS; k++)
    for (int i = 0; i < part[k].n; i++)
      op_move_before(part[k].at[i], NULL);
  graph_renumber(g);
  // An order may have put an op that runs once per step among ops that run for every micro-batch.
  const Op *late = graph_out_of_order(g);
  if (late)
    return diag_error(p->d, late->loc,
                      "%s cannot run at its place in op_order: an op that runs once per step is "
                      "before all micro-batches, or after them",
                      op_info[late->kind].name);
  // Blocks follow from the live ranges in this order.
  p->life = graph_lives(g, p->scratch);
  p->place = arena_array(p->scratch, BlockPlace, g->n_values);
  p->bucket = arena_array(p->scratch, Op *, g->n_values);
  p->bucket_at = arena_array(p->scratch, int64_t, g->n_values);
  p->target = arena_array(p->scratch, Value *, g->n_values);
  p->pack_block = arena_array(p->scratch, Block *, g->n_ops);
  p->block.n = 0;
  slots_begin(p);
  blocks_make(p);
  deferred_find(p);
  if (p->stays) slots_find(p);
  return true;
}

// Gives offsets to the blocks of a graph, from the largest to the smallest, each in the best gap.
// Returns the end of the last block on each mesh.
static int64_t *place_blocks(MemoryPlan *p) {
  Blocks order = {0};
  int64_t *end = arena_array(p->scratch, int64_t, p->meets.n);
  Arena *a = arena_new(); // keep_operands places the blocks several times
  Gaps *placed = gaps_new(a, p->meets), *host = gaps_new(a, p->meets);
  for (int i = 0; i < p->kept.n; i++) {
    Taken taken = taken_by(p, p->kept.at[i]);
    gaps_add(value_on_host(p->kept.at[i]->member.at[0]) ? host : placed, &taken);
  }
  for (int i = 0; i < p->block.n; i++)
    if (!p->block.at[i]->kept) vec_push(p->scratch, &order, p->block.at[i]);
  if (order.n) qsort(order.at, (size_t)order.n, sizeof *order.at, by_size);
  for (int i = 0; i < order.n; i++) {
    Block *b = order.at[i];
    bool on_host = value_on_host(b->member.at[0]);
    place_block(p, on_host ? host : placed, b);
    int64_t *of_mesh = &end[value_mesh_id(b->member.at[0])];
    if (!on_host) *of_mesh = later(*of_mesh, b->offset + block_bytes(p, b));
  }
  arena_free(a);
  return end;
}

// Gives offsets to the blocks again, with operands of collectives that live longer.  The slab must
// not grow, but gaps between blocks may take more: then those operands are given up that are alive
// together with a block beyond the end, until all blocks fit.
static void keep_operands(MemoryPlan *p, const int64_t *end) {
  int64_t *offset = arena_array(p->scratch, int64_t, p->block.n + 1);
  Life *life = arena_array(p->scratch, Life, p->block.n + 1);
  for (int i = 0; i < p->block.n; i++) {
    offset[i] = p->block.at[i]->offset;
    life[i] = p->block.at[i]->life;
  }
  int n = blocks_keep_operands(p);
  for (int tries = 0; n > 0 && tries < KEEP_TRIES; tries++) {
    place_blocks(p);
    // The times at which a block beyond the end is alive: from `from`, and up to `to`.
    int64_t n_times = graph_end(p->g) + 2;
    int64_t *from = arena_array(p->scratch, int64_t, n_times + 1);
    int64_t *to = arena_array(p->scratch, int64_t, n_times + 1);
    bool fits = true;
    for (int i = 0; i < p->block.n; i++) {
      const Block *b = p->block.at[i];
      if (b->kept || value_on_host(b->member.at[0]) ||
          b->offset + block_bytes(p, b) <= end[value_mesh_id(b->member.at[0])])
        continue;
      fits = false;
      from[earlier(b->life.from, n_times - 1)]++;
      to[earlier(b->life.to, n_times - 1) + 1]++;
    }
    p->kept_longer += fits ? n : 0;
    if (fits) return;
    // How many have begun by a time, and how many have ended before it.
    for (int64_t t = 1; t <= n_times; t++) {
      from[t] += from[t - 1];
      to[t] += to[t - 1];
    }
    for (int i = 0; i < p->block.n; i++) {
      Block *longer = p->block.at[i];
      if (longer->life.to <= life[i].to) continue;
      int64_t begun = from[earlier(longer->life.to, n_times - 1)];
      int64_t ended = to[earlier(life[i].to, n_times - 1) + 1];
      if (begun == ended) continue;
      longer->life = life[i];
      n--;
    }
  }
  for (int i = 0; i < p->block.n; i++) {
    p->block.at[i]->offset = offset[i];
    p->block.at[i]->life = life[i];
  }
}

// The blocks fit into 64 bits one after the other, so no offset overflows.
static bool fits_addresses(const MemoryPlan *p, const Graph *g) {
  double bytes = 0;
  for (int i = 0; i < p->kept.n; i++)
    bytes += (double)p->kept.at[i]->bytes + (double)p->align;
  for (int i = 0; i < p->block.n; i++)
    bytes += ((double)p->block.at[i]->bytes + (double)p->align) *
             (double)later(p->block.at[i]->slots, 1);
  if (bytes < 0x1p62) return true;
  return diag_error(p->d, g->first ? g->first->loc : NULL,
                    "'@%s' needs %.3g bytes, more than there are addresses for", g->name, bytes);
}

static bool plan_graph(MemoryPlan *p, Graph *g) {
  if (!memory_plan_find_blocks(p, g) || !fits_addresses(p, g)) return false;
  if (p->apart) {
    // A caller asks which values share a block: all blocks have disjoint bytes.
    int64_t end = 0;
    for (int i = 0; i < p->kept.n; i++)
      end = later(end, p->kept.at[i]->offset + aligned(p, p->kept.at[i]->bytes));
    for (int i = 0; i < p->block.n; i++) {
      Block *b = p->block.at[i];
      if (b->kept) continue;
      b->offset = end;
      end += block_bytes(p, b);
    }
  } else {
    for (int i = 0; i < p->block.n; i++)
      if (!p->block.at[i]->kept) p->unshared += block_bytes(p, p->block.at[i]);
    keep_operands(p, place_blocks(p));
  }
  // Values are at their offsets in the block.
  for (int i = 0; i < p->block.n; i++) {
    const Block *b = p->block.at[i];
    for (int k = 0; k < b->member.n; k++) {
      Value *v = b->member.at[k];
      v->offset = b->offset + p->place[v->id].at;
      v->slots = b->slots;
      v->stride = b->slots ? aligned(p, b->bytes) : 0;
    }
  }
  return true;
}

MemoryPlan memory_plan_begin(Module *m, Target target, Arena *scratch, Diag *d) {
  MemoryPlan p = {.m = m, .scratch = scratch, .d = d, .align = target_info[target].align};
  p.meets = module_meets(m, p.scratch);
  p.kept_gaps = gaps_new(p.scratch, p.meets);
  p.host_gaps = gaps_new(p.scratch, p.meets);
  for_each_graph(g, m)
    if (g->entry) {
      // Persistent parameters come first, from the widest mesh to the narrowest; a parameter keeps
      // the offset of earlier graphs.
      for (int width = next_width(g, INT_MAX); width; width = next_width(g, width)) {
        for (int i = 0; i < g->n_params; i++) {
          Value *v = g->params[i];
          if (!param_kept(v) || width_of(v) != width) continue;
          v->offset = kept_before(&p, v);
          if (v->offset >= 0) continue;
          Block *b = arena_one(p.scratch, Block);
          *b = (Block){.bytes = type_bytes(v->type), .life = {0, INT64_MAX}, .kept = true};
          vec_push(p.scratch, &b->member, v);
          place_block(&p, value_on_host(v) ? p.host_gaps : p.kept_gaps, b);
          vec_push(p.scratch, &p.kept, b);
          v->offset = b->offset;
        }
      }
      vec_push(p.scratch, &p.before, graph_params_by_label(g, p.scratch));
    }
  return p;
}

// The end of the last value on the device that needs the most memory.
static int64_t largest_end(const MemoryPlan *p, const int64_t *ends) {
  int n;
  const int *device = module_devices(p->m, p->scratch, &n);
  int64_t end = 0;
  for (int i = 0; i < n; i++)
    end = later(end, device_end(p->m, ends, device[i]));
  return aligned(p, end);
}

// Clears `host` marks if the pass offload has not run, as in a pipeline without it: no op copies
// these values to the device, so they stay there.
static void keep_unbrought(Module *m) {
  for_each_graph(g, m) {
    bool brings = false;
    for_each_op(op, g)
      if (op->kind == OP_swap_in && !op->in[0].value->def) {
        brings = true;
        break;
      }
    if (brings) return;
  }
  for_each_graph(g, m)
    for (int i = 0; i < g->n_params; i++)
      g->params[i]->host = false;
}

bool pass_plan_memory(Module *m, const PassOptions *o, Diag *d) {
  Target target;
  if (!opt_target(o, &target, d)) return false;
  keep_unbrought(m);
  for_each_graph(g, m)
    if (g->entry && !loops_plan(g, module_meets(m, opt_scratch(o)), target_info[target].align,
                                opt_scratch(o), d))
      return false;
  MemoryPlan p = memory_plan_begin(m, target, opt_scratch(o), d);
  p.apart = opt_bool(o, "apart", false);
  // Persistent parameters are placed before the first graph.
  int64_t kept = largest_end(&p, mesh_ends(m, p.scratch));
  for_each_graph(g, m)
    if (g->entry) {
      if (!plan_graph(&p, g)) return false;
      loops_place(g);
    }
  m->slab_bytes = largest_end(&p, mesh_ends(m, p.scratch));
  m->host_bytes = largest_end(&p, mesh_host_ends(m, p.scratch));
  opt_stat(o, m->slab_bytes, "bytes at the peak");
  opt_stat(o, kept, "bytes kept from step to step");
  opt_stat(o, m->slab_bytes - kept, "bytes of values that come and go");
  if (m->host_bytes) opt_stat(o, m->host_bytes, "bytes in host memory");
  opt_stat(o, p.unshared, "bytes if those did not share");
  opt_stat(o, p.in_place, "values made in place");
  opt_stat(o, p.kept_longer, "operands of collectives kept longer");
  opt_stat(o, p.looked_at, "blocks looked at for gaps");
  return true;
}
