// Memory planning: a place in one slab for every value.
//
//     %y = linear %x, %w  : f32[4,6]          %y = linear %x, %w  : f32[4,6] at 256
//     %z = fused @f %y    : f32[4,6]     =>   %z = fused @f %y    : f32[4,6] at 256     in place
//     %p = linear %z, %v  : f32[4,2]          %p = linear %z, %v  : f32[4,2] at 384
//     %w1 = sgd %w, %g …  : f32[8,6]          %w1 = sgd %w, %g …  : f32[8,6] at 0       where %w is
//
// What lasts from step to step (weights, states, scalars) comes first and never moves; @eval finds
// its weights where @train has them.  The rest of each graph shares what is left.
//
// First values are gathered in blocks, in the order of the ops:
//
//   a view          is in the block of what it is a view of
//   a new parameter is where the old one is, if nobody reads that afterwards; otherwise the backend
//                   copies it there at the end of the step (it sees that the places differ)
//   a pack's member is in the bucket, if nobody reads it once the bucket is packed
//   a result        takes the block of an operand that dies, where the op may run in place; so does
//                   that of a move that finds every part where it must be
//   anything else   has a block of its own
//
// Then blocks get offsets, the largest first, each in the smallest gap that blocks alive at the
// same time leave (greedy by size; Pisarchyk and Lee, "Efficient memory management for deep neural
// net inference", 2020, section 5).  Blocks on meshes that have no device in common are not in each
// other's way, and what is on the most devices comes first: so a stage of a pipeline does not pay
// for the weights of another, and a device's slab ends where the last value on its meshes does.
// Constants have no place: they are part of the program.  With `apart` blocks do not share bytes: a
// search only asks what is in the place of what (search/lives.h).
//
// In a loop with a schedule (ir/schedule.h) a rank is in several slices at once.  What is made in
// one segment and read in another has then as many slots as slices of it are there together, one
// behind the other (ir/stays.h); its block lives while any of its slices does.
//
//     run devices=0 F0 F0 F0 B0 F0 B0 …          %h of F0, which B0 reads:   at 4096 slots=3:1024
//
// Ops that run once per step are moved before and behind the ones that run once per micro-batch
// (ir/place.h).

#include "base/table.h"
#include "base/vec.h"
#include "gaps.h"
#include "ir/op.h"
#include "ir/place.h"
#include "ir/stays.h"
#include "pass.h"

#include <limits.h>
#include <stdlib.h>

typedef struct Block {
  int64_t bytes, offset;
  Life life;
  int slots;            // of so many slices at once
  bool kept;            // from step to step: `offset` is final
  Vec(Value *) member;  // the first is on all devices that any is on
  Vec(const Op *) wait; // reductions that read it until their segments end
} Block;

typedef Vec(Block *) Blocks;

// Where a value lies: `at` bytes into a block.
typedef struct Place {
  Block *block; // NULL of constants
  int64_t at;
} Place;

typedef struct Planner {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  int64_t align;
  Meets meets;
  Blocks kept; // what lasts, of all graphs
  Gaps *kept_gaps;
  Vec(const Table *) before; // the parameters of each graph of which that is placed
  Life *life;                // by value id, as are the next three
  Place *place;
  Op **bucket; // of a value that will be packed: by which op
  int64_t *bucket_at;
  Value **target;     // the parameter that a value becomes
  Block **pack_block; // by op id
  Stays *stays;       // of a graph with a schedule, else NULL
  Life *segment;      // of its segments, the times of their ops
  Blocks block;
  int64_t in_place, unshared, looked_at;
  bool apart;
} Planner;

static int64_t round_up(int64_t bytes, int64_t align) {
  return (bytes + align - 1) / align * align;
}

static int64_t aligned(const Planner *p, int64_t bytes) {
  return round_up(bytes, p->align);
}

static int64_t max(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static int64_t min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// -- Offsets -----------------------------------------------------------------------------------

static int64_t block_bytes(const Planner *p, const Block *b) {
  return aligned(p, b->bytes) * (b->slots > 1 ? b->slots : 1);
}

static Taken taken_by(const Planner *p, const Block *b) {
  return (Taken){b->offset, block_bytes(p, b), b->life, b->member.at[0]};
}

// Gives `b` an offset among the blocks that have one, and puts it in.
static void place_block(Planner *p, Gaps *placed, Block *b) {
  Taken taken = taken_by(p, b);
  b->offset = taken.offset = gaps_best(placed, &taken);
  p->looked_at += gaps_looked_at(placed);
  gaps_add(placed, &taken);
}

// -- What lasts from step to step --------------------------------------------------------------

// The place that a graph before gave to the parameter of this name, or -1.
static int64_t kept_before(const Planner *p, const Value *param) {
  for (int i = 0; i < p->before.n; i++) {
    const Value *v = table_find(p->before.at[i], (int)param->role, param->label);
    if (v && v->type == param->type && v->layout == param->layout) return v->offset;
  }
  return -1;
}

// On how many devices a value is.
static int width_of(const Value *v) {
  return v->layout && v->layout->mesh ? v->layout->mesh->n_devices : 1;
}

// The widest below `width` of what the graph keeps; 0 if there is none.
static int next_width(const Graph *g, int width) {
  int most = 0;
  for (int i = 0; i < g->n_params; i++) {
    int own = width_of(g->params[i]);
    if (param_kept(g->params[i]) && own < width && own > most) most = own;
  }
  return most;
}

static void place_kept_of(Planner *p, Graph *g, int width) {
  for (int i = 0; i < g->n_params; i++) {
    Value *v = g->params[i];
    if (!param_kept(v) || width_of(v) != width) continue;
    v->offset = kept_before(p, v);
    if (v->offset >= 0) continue;
    Block *b = arena_one(p->scratch, Block);
    *b = (Block){.bytes = type_bytes(v->type), .life = {0, INT64_MAX}, .kept = true};
    vec_push(p->scratch, &b->member, v);
    place_block(p, p->kept_gaps, b);
    vec_push(p->scratch, &p->kept, b);
    v->offset = b->offset;
  }
}

static void place_kept(Planner *p, Graph *g) {
  for (int width = next_width(g, INT_MAX); width; width = next_width(g, width))
    place_kept_of(p, g, width);
  vec_push(p->scratch, &p->before, graph_params_by_label(g, p->scratch));
}

// -- Blocks ------------------------------------------------------------------------------------

static Block *block_new(Planner *p, int64_t bytes) {
  Block *b = arena_one(p->scratch, Block);
  *b = (Block){.bytes = bytes, .offset = -1, .life = {INT64_MAX, -1}};
  vec_push(p->scratch, &p->block, b);
  return b;
}

static void block_add(Planner *p, Block *b, int64_t at, Value *v) {
  p->place[v->id] = (Place){b, at};
  b->life.from = min(b->life.from, p->life[v->id].from);
  b->life.to = max(b->life.to, p->life[v->id].to);
  vec_push(p->scratch, &b->member, v);
}

static bool is_dead_constant(const Value *v) {
  if (v->def->kind != OP_constant) return false;
  for_each_use(u, v)
    if (!u->user && v->graph->results[u->index]->label) return false;
  return true;
}

// Of the same slice, whatever the order of segments is.
static bool read_later(const Planner *p, const Value *v, const Op *op) {
  if (!p->stays || !op->segment || !value_stays(v)) return false;
  int slices = module_slices(p->m);
  for (int r = 0; r < p->g->schedule->run.n; r++) {
    const Stay *stay = stays_of(p->stays, v, r);
    if (!stay || !mesh_has(op_mesh(op), p->g->schedule->run.at[r].device[0])) continue;
    for (int m = 0; m < slices; m++)
      if (stay[m].to > stays_time(p->stays, op, r, m)) return true;
  }
  return false;
}

// Is nothing that lies in these bytes read after `op`, and nothing there another of its results?
static bool dies_at(const Planner *p, const Place *place, int64_t bytes, const Op *op) {
  for (int i = 0; i < place->block->member.n; i++) {
    const Value *v = place->block->member.at[i];
    int64_t at = p->place[v->id].at;
    bool apart = at + type_bytes(v->type) <= place->at || place->at + bytes <= at;
    if (apart) continue;
    if (p->life[v->id].to > op_time(op) || v->def == op || read_later(p, v, op)) return false;
  }
  return true;
}

// May `v` be made in `place`, which an operand of its op has?  All operands that lie there must be
// read as the op writes.
static bool may_replace(const Planner *p, const Value *v, const Place *place) {
  const Op *op = v->def;
  int64_t bytes = type_bytes(v->type);
  for (int i = 0; i < op->n_in; i++) {
    const Value *in = op->in[i].value;
    const Place *of = &p->place[in->id];
    bool apart = of->block != place->block || of->at + type_bytes(in->type) <= place->at ||
                 place->at + bytes <= of->at;
    if (apart) continue;
    if (of->at != place->at || !op_inplace(op, v->index, i, p->scratch)) return false;
  }
  return true;
}

static bool take_target(Planner *p, Value *v) {
  Value *target = p->target[v->id];
  // A sum over time is begun while later micro-batches will read the parameter.
  if (!target || value_accumulates(v)) return false;
  const Op *op = v->def;
  for_each_use(u, target) {
    if (!u->user || op_time(u->user) > op_time(op) || u->user->kind == OP_all_reduce) return false;
    bool view = op_info[u->user->kind].traits & VIEW;
    if (view && p->life[u->user->out[0]->id].to > op_time(op)) return false;
  }
  Block *b = p->place[target->id].block;
  if (!may_replace(p, v, &p->place[target->id])) return false;
  for (int i = 0; i < b->member.n; i++)
    if (b->member.at[i] != target) return false; // somebody else became it
  block_add(p, b, 0, v);
  return true;
}

static bool take_bucket(Planner *p, Value *v) {
  Op *pack = p->bucket[v->id];
  if (!pack) return false;
  Block **b = &p->pack_block[pack->id];
  if (!*b) *b = block_new(p, type_bytes(pack->out[0]->type));
  block_add(p, *b, p->bucket_at[v->id], v);
  return true;
}

static bool take_operand(Planner *p, Value *v) {
  Op *op = v->def;
  if (p->stays && value_escapes(v)) return false; // it is no slice's own, as its operand may be
  for (int i = 0; i < op->n_in; i++) {
    Place place = p->place[op->in[i].value->id];
    if (!place.block || place.block->kept || !op_inplace(op, v->index, i, p->scratch) ||
        !dies_at(p, &place, type_bytes(v->type), op) || !may_replace(p, v, &place))
      continue;
    block_add(p, place.block, place.at, v);
    p->in_place++;
    return true;
  }
  return false;
}

// A reduction that is not in place reads its operand until it is waited for.
static void keep_until_wait(Planner *p, const Op *reduce) {
  const Value *in = reduce->in[0].value;
  const Place *from = &p->place[in->id], *to = &p->place[reduce->out[0]->id];
  if (from->block == to->block && from->at == to->at) return;
  Life *life = &p->life[in->id];
  life->to = max(life->to, value_first_read(reduce->out[0]));
  if (from->block) vec_push(p->scratch, &from->block->wait, reduce);
  if (p->place[in->id].block) {
    Life *of_block = &p->place[in->id].block->life;
    of_block->to = max(of_block->to, life->to);
  }
}

static void place_result(Planner *p, Value *v) {
  Op *op = v->def;
  if (op_info[op->kind].traits & VIEW) {
    Place of = p->place[op->in[0].value->id];
    if (op->kind == OP_unpack) of.at += attr_i(op, "offset") * dtype_bytes[v->type->dtype];
    if (of.block) block_add(p, of.block, of.at, v);
    return;
  }
  if (op->kind == OP_pack && p->pack_block[op->id]) {
    block_add(p, p->pack_block[op->id], 0, v);
    return;
  }
  if (is_dead_constant(v)) return;
  if (!take_target(p, v) && !take_bucket(p, v) && !take_operand(p, v))
    block_add(p, block_new(p, type_bytes(v->type)), 0, v);
  if (op->kind == OP_all_reduce) keep_until_wait(p, op);
}

// Members of a bucket that can be made in it: not views into something, and dead once packed.
static void find_members(Planner *p, Op *pack) {
  int64_t at = 0;
  for (int i = 0; i < pack->n_in; i++) {
    int64_t skip;
    Value *v = pack->in[i].value, *root = view_root(v, &skip);
    if (root->def && root->def->kind != OP_constant && root->type->dtype == v->type->dtype &&
        type_bytes(root->type) == type_bytes(v->type) && !p->bucket[root->id] &&
        p->life[root->id].to <= op_time(pack)) {
      p->bucket[root->id] = pack;
      p->bucket_at[root->id] = at;
    }
    at += pack_length(v->type) * dtype_bytes[v->type->dtype];
  }
}

// What is to become a parameter, seen through views of the whole of it.
static void find_target(Planner *p, const Result *r) {
  int64_t skip;
  Value *root = view_root(r->use.value, &skip);
  if (root->def && root->type->dtype == r->target->type->dtype &&
      type_bytes(root->type) == type_bytes(r->target->type) && !p->target[root->id])
    p->target[root->id] = r->target;
}

static void make_blocks(Planner *p) {
  Graph *g = p->g;
  for_each_op(op, g)
    if (op->kind == OP_pack) find_members(p, op);
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->target) find_target(p, g->results[i]);
  for (int i = 0; i < g->n_params; i++) {
    Value *v = g->params[i];
    Block *b = block_new(p, type_bytes(v->type));
    b->kept = param_kept(v);
    b->offset = v->offset;
    block_add(p, b, 0, v);
  }
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      place_result(p, op->out[i]);
}

// -- Slices that are there together --------------------------------------------------------------

// When the block is taken on a run, slice by slice; false: it is not there.
static bool block_stays(const Planner *p, const Block *b, int run, Stay *out) {
  bool there = false;
  int slices = module_slices(p->m);
  for (int i = 0; i < b->member.n; i++) {
    const Stay *stay = stays_of(p->stays, b->member.at[i], run);
    for (int m = 0; stay && m < slices; m++) {
      out[m].from = there ? min(out[m].from, stay[m].from) : stay[m].from;
      out[m].to = there ? max(out[m].to, stay[m].to) : stay[m].to;
    }
    there |= stay != NULL;
  }
  for (int i = 0; there && i < b->wait.n; i++)
    for (int m = 0; b->wait.at[i]->segment && m < slices; m++)
      out[m].to = max(out[m].to, stays_segment_end(p->stays, b->wait.at[i], run, m));
  return there;
}

// How many slices are there at the most, of which each ends after the one before.
static int count_slots(const Stay *stay, int slices) {
  int most = 1;
  for (int m = 0, k = 0; m < slices; m++) {
    while (k < slices && stay[k].from <= stay[m].to)
      k++;
    if (k - m > most) most = k - m;
  }
  return most;
}

// In which op times the run's segments find something of it.
static Life life_in_run(const Planner *p, const Stay *stay, int run) {
  const RankRun *r = &p->g->schedule->run.at[run];
  Life life = {INT64_MAX, -1};
  for (int m = 0; m < module_slices(p->m); m++) {
    int first = stays_action(p->stays, stay[m].from), last = stays_action(p->stays, stay[m].to);
    for (int i = first; i <= last; i++) {
      const Life *segment = &p->segment[r->action.at[i].segment];
      if (!r->action.at[i].segment) continue;
      int64_t from = i == first ? stays_op_time(p->stays, stay[m].from) : segment->from;
      int64_t to = i == last ? stays_op_time(p->stays, stay[m].to) : segment->to;
      life.from = min(life.from, min(max(from, segment->from), segment->to));
      life.to = max(life.to, max(min(to, segment->to), segment->from));
    }
  }
  return life;
}

static void count_stays(Planner *p, Block *b, Stay *stay) {
  Life life = {INT64_MAX, -1};
  int slots = 1;
  bool all_stay = true;
  for (int i = 0; i < b->member.n; i++) {
    const Value *v = b->member.at[i];
    // Rows of the first slice are there before what comes before the loop.
    if (value_stays(v) && !v->def) life.from = 0;
    if (value_stays(v)) continue;
    all_stay = false;
    life.from = min(life.from, p->life[v->id].from);
    life.to = max(life.to, p->life[v->id].to);
  }
  for (int r = 0; r < p->g->schedule->run.n; r++) {
    if (!block_stays(p, b, r, stay)) continue;
    Life own = life_in_run(p, stay, r);
    slots = (int)max(slots, count_slots(stay, module_slices(p->m)));
    life.from = min(life.from, own.from);
    life.to = max(life.to, own.to);
  }
  if (life.to >= 0) b->life = life; // else it is on no run
  b->slots = all_stay && slots > 1 ? slots : 0;
}

static void find_slots(Planner *p) {
  Stay *stay = arena_array(p->scratch, Stay, module_slices(p->m));
  for (int i = 0; i < p->block.n; i++)
    if (!p->block.at[i]->kept) count_stays(p, p->block.at[i], stay);
}

static void find_segments(Planner *p) {
  p->stays = NULL;
  if (!p->g->schedule) return;
  p->stays = stays_new(p->g, p->scratch);
  p->segment = arena_array(p->scratch, Life, p->g->schedule->segment.n + 1);
  for_each_op(op, p->g) {
    Life *life = &p->segment[op->segment];
    if (!life->from) life->from = op_time(op);
    life->to = op_time(op);
  }
}

// -- All of it ---------------------------------------------------------------------------------

static int by_size(const void *x, const void *y) {
  const Block *a = *(Block *const *)x, *b = *(Block *const *)y;
  int wide = width_of(a->member.at[0]), other = width_of(b->member.at[0]);
  if (wide != other) return wide < other ? 1 : -1;
  int64_t bytes = a->bytes * (a->slots ? a->slots : 1),
          other_bytes = b->bytes * (b->slots ? b->slots : 1);
  if (bytes != other_bytes) return bytes < other_bytes ? 1 : -1;
  return (a->life.from > b->life.from) - (a->life.from < b->life.from);
}

// Each behind the other, for whoever asks which values share a block.
static void place_apart(Planner *p) {
  int64_t end = 0;
  for (int i = 0; i < p->kept.n; i++)
    end = max(end, p->kept.at[i]->offset + aligned(p, p->kept.at[i]->bytes));
  for (int i = 0; i < p->block.n; i++) {
    Block *b = p->block.at[i];
    if (b->kept) continue;
    b->offset = end;
    end += block_bytes(p, b);
  }
}

static void place_blocks(Planner *p) {
  Blocks order = {0};
  Gaps *placed = gaps_new(p->scratch, p->meets);
  for (int i = 0; i < p->kept.n; i++) {
    Taken taken = taken_by(p, p->kept.at[i]);
    gaps_add(placed, &taken);
  }
  for (int i = 0; i < p->block.n; i++)
    if (!p->block.at[i]->kept) vec_push(p->scratch, &order, p->block.at[i]);
  if (order.n) qsort(order.at, (size_t)order.n, sizeof *order.at, by_size);
  for (int i = 0; i < order.n; i++) {
    place_block(p, placed, order.at[i]);
    p->unshared += block_bytes(p, order.at[i]);
  }
}

static void order_parts(Planner *p, Graph *g) {
  enum { BEGIN, LOOP, UPDATE, N_PARTS };
  const bool *begin = graph_begin_ops(g, p->scratch), *update = graph_update_ops(g, p->scratch);
  Vec(Op *) part[N_PARTS] = {{0}};
  for_each_op(op, g)
    vec_push(p->scratch, &part[begin[op->id] ? BEGIN : update[op->id] ? UPDATE : LOOP], op);
  for (int k = 0; k < N_PARTS; k++)
    for (int i = 0; i < part[k].n; i++)
      op_move_before(part[k].at[i], NULL);
  graph_renumber(g);
}

// What runs once in a step cannot have its turn among what runs for every micro-batch.
static bool check_turns(const Planner *p, const Graph *g) {
  const Op *late = graph_out_of_turn(g);
  if (!late) return true;
  return diag_error(p->d, late->loc,
                    "%s cannot run where op_order wants it: what runs once in a step stands before "
                    "all micro-batches, or behind them",
                    op_info[late->kind].name);
}

static bool plan_graph(Planner *p, Graph *g) {
  p->g = g;
  graph_renumber(g);
  order_parts(p, g);
  if (!check_turns(p, g)) return false;
  p->life = graph_lives(g, p->scratch);
  p->place = arena_array(p->scratch, Place, g->n_values);
  p->bucket = arena_array(p->scratch, Op *, g->n_values);
  p->bucket_at = arena_array(p->scratch, int64_t, g->n_values);
  p->target = arena_array(p->scratch, Value *, g->n_values);
  p->pack_block = arena_array(p->scratch, Block *, g->n_ops);
  p->block.n = 0;
  find_segments(p);
  make_blocks(p);
  if (p->stays) find_slots(p);
  if (p->apart)
    place_apart(p);
  else
    place_blocks(p);
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

// Where the last value ends on the device that needs most, with all of them or what lasts alone.
static int64_t largest_end(const Planner *p) {
  int n;
  const int *device = module_devices(p->m, p->scratch, &n);
  const int64_t *ends = mesh_ends(p->m, p->scratch);
  int64_t end = 0;
  for (int i = 0; i < n; i++)
    end = max(end, device_end(p->m, ends, device[i]));
  return aligned(p, end);
}

bool pass_plan_memory(Module *m, const PassOptions *o, Diag *d) {
  Target target;
  if (!opt_target(o, &target, d)) return false;
  Planner p = {.m = m, .scratch = opt_scratch(o), .d = d, .align = target_info[target].align};
  p.apart = opt_bool(o, "apart", false);
  p.meets = module_meets(m, p.scratch);
  p.kept_gaps = gaps_new(p.scratch, p.meets);
  for_each_graph(g, m)
    if (g->entry) place_kept(&p, g);
  int64_t kept = largest_end(&p);
  for_each_graph(g, m)
    if (g->entry && !plan_graph(&p, g)) return false;
  m->slab_bytes = largest_end(&p);
  opt_stat(o, m->slab_bytes, "bytes at the peak");
  opt_stat(o, kept, "bytes kept from step to step");
  opt_stat(o, m->slab_bytes - kept, "bytes of values that come and go");
  opt_stat(o, p.unshared, "bytes if those did not share");
  opt_stat(o, p.in_place, "values made in place");
  opt_stat(o, p.looked_at, "blocks looked at for gaps");
  return true;
}
