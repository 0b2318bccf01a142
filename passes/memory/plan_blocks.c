// See plan_blocks.h.
//
// One walk over the ops. Before it, every value that may be produced in a bucket or in place of a
// parameter gets a note of that. A result tries its parameter, its bucket and its operands, in this
// order. It rejects a place if a value that is still to be read would be overwritten.

#include "plan_blocks.h"

#include "ir/op.h"

static Block *block_new(MemoryPlan *p, int64_t bytes) {
  Block *b = arena_one(p->scratch, Block);
  *b = (Block){.bytes = bytes, .offset = -1, .life = {INT64_MAX, -1}};
  vec_push(p->scratch, &p->block, b);
  return b;
}

static void block_add(MemoryPlan *p, Block *b, int64_t at, Value *v) {
  p->place[v->id] = (BlockPlace){b, at};
  b->life.from = earlier(b->life.from, p->life[v->id].from);
  b->life.to = later(b->life.to, p->life[v->id].to);
  vec_push(p->scratch, &b->member, v);
}

// Whether all values in these bytes are dead after `op`, and none is another result of it.
static bool dies_at(const MemoryPlan *p, const BlockPlace *place, int64_t bytes, const Op *op) {
  for (int i = 0; i < place->block->member.n; i++) {
    const Value *v = place->block->member.at[i];
    int64_t at = p->place[v->id].at;
    // Values beside these bytes do not matter.
    bool apart = at + type_bytes(v->type) <= place->at || place->at + bytes <= at;
    if (apart) continue;
    if (p->life[v->id].to > op_time(op) || v->def == op) return false;
    if (!p->stays || !op->segment || !value_stays(v)) continue;
    // In the order of segments of some run, a later op may read the same slice.
    int slices = module_slices(p->m);
    for (int r = 0; r < p->g->schedule->run.n; r++) {
      const LiveRange *stay = live_ranges_of(p->stays, v, r);
      if (!stay || !mesh_has(op_mesh(op), p->g->schedule->run.at[r].device[0])) continue;
      for (int m = 0; m < slices; m++)
        if (stay[m].to > live_range_time(p->stays, op, r, m)) return false;
    }
  }
  return true;
}

// Whether `v` may be produced in `place`, as far as an operand of its op in the same block matters:
// the op must be able to run in place on it, if it overlaps `v`.
static bool may_replace_operand(const MemoryPlan *p, const Value *v, const BlockPlace *place,
                                const Use *u) {
  int64_t at = p->place[u->value->id].at;
  bool apart =
      at + type_bytes(u->value->type) <= place->at || place->at + type_bytes(v->type) <= at;
  return apart || (at == place->at && op_inplace(v->def, v->index, u->index, p->scratch));
}

// Whether `v` may be produced in `place`, the memory of an operand.
static bool may_replace(const MemoryPlan *p, const Value *v, const BlockPlace *place) {
  const Op *op = v->def;
  const Block *b = place->block;
  // The operands in the block are found from the shorter list: a batch of updates has thousands of
  // operands, and the block of a sum over all layers has thousands of values.
  if (op->n_in < b->member.n) {
    for (int i = 0; i < op->n_in; i++)
      if (p->place[op->in[i].value->id].block == b && !may_replace_operand(p, v, place, &op->in[i]))
        return false;
    return true;
  }
  for (int i = 0; i < b->member.n; i++)
    for_each_use(u, b->member.at[i])
      if (u->user == op && !may_replace_operand(p, v, place, u)) return false;
  return true;
}

static bool take_target(MemoryPlan *p, Value *v) {
  Value *target = p->target[v->id];
  // Later micro-batches read the parameter after a sum over time has begun.
  if (!target || value_accumulates(v)) return false;
  // The parameter must be dead: neither it nor a view of it is read later.
  const Op *op = v->def;
  for_each_use(u, target) {
    if (!u->user || op_time(u->user) > op_time(op) || u->user->kind == OP_all_reduce) return false;
    bool view = (op_info[u->user->kind].traits & VIEW) && u->index == 0;
    if (view && p->life[u->user->out[0]->id].to > op_time(op)) return false;
  }
  // Its block must have no other new value.
  Block *b = p->place[target->id].block;
  if (!may_replace(p, v, &p->place[target->id])) return false;
  for (int i = 0; i < b->member.n; i++) {
    int64_t skip;
    if (view_root(b->member.at[i], &skip) != target)
      return false; // already updated by another value
  }
  block_add(p, b, 0, v);
  return true;
}

// Takes the memory of operand `i`, if the op can run in place on it.
static bool take_this(MemoryPlan *p, Value *v, int i) {
  const Op *op = v->def;
  BlockPlace place = p->place[op->in[i].value->id];
  if (!place.block || place.block->kept || !op_inplace(op, v->index, i, p->scratch) ||
      !dies_at(p, &place, type_bytes(v->type), op) || !may_replace(p, v, &place))
    return false;
  block_add(p, place.block, place.at, v);
  p->in_place++;
  return true;
}

static bool take_operand(MemoryPlan *p, Value *v) {
  Op *op = v->def;
  if (p->stays && value_escapes(v)) return false; // it belongs to no slice, but its operand may
  // The output of a deferred op lives to the end of the next step, which makes the operand again.
  if (op->deferred && p->life[v->id].to >= graph_end(p->g)) return false;
  // A batch of updates has thousands of operands: only those of the member itself may do.
  if (op->kind == OP_multi_tensor) {
    const Op *member = op->callee->results[v->index]->use.value->def;
    for (int i = 0; member && i < member->n_in; i++)
      if (!member->in[i].value->def && take_this(p, v, member->in[i].value->index)) return true;
    return false;
  }
  for (int i = 0; i < op->n_in; i++)
    if (take_this(p, v, i)) return true;
  return false;
}

static void place_result(MemoryPlan *p, Value *v) {
  Op *op = v->def;
  if (op_info[op->kind].traits & VIEW) {
    BlockPlace of = p->place[op->in[0].value->id];
    if (op->kind == OP_unpack) of.at += attr_i(op, "offset") * dtype_bytes[v->type->dtype];
    if (of.block) block_add(p, of.block, of.at, v);
    return;
  }
  if (op->kind == OP_pack && p->pack_block[op->id]) {
    block_add(p, p->pack_block[op->id], 0, v);
    return;
  }
  // A constant that is no output has no block.
  bool dead_constant = op->kind == OP_constant;
  for_each_use(u, v)
    if (!u->user && v->graph->results[u->index]->label) dead_constant = false;
  if (dead_constant) return;
  // Others share a block if they can: the parameter's, the bucket's or an operand's.
  Op *pack = p->bucket[v->id];
  bool placed = take_target(p, v);
  if (!placed && pack) {
    Block **b = &p->pack_block[pack->id];
    if (!*b) *b = block_new(p, type_bytes(pack->out[0]->type));
    block_add(p, *b, p->bucket_at[v->id], v);
  } else if (!placed && !take_operand(p, v)) {
    block_add(p, block_new(p, type_bytes(v->type)), 0, v);
  }
  if (op->kind == OP_all_reduce) {
    // A reduction that is not in place reads its operand until the wait.
    const Value *in = op->in[0].value;
    const BlockPlace *from = &p->place[in->id], *to = &p->place[op->out[0]->id];
    if (from->block != to->block || from->at != to->at) {
      Life *life = &p->life[in->id];
      life->to = later(life->to, value_first_read(op->out[0]));
      if (from->block) vec_push(p->scratch, &from->block->wait, op);
      if (p->place[in->id].block) {
        Life *of_block = &p->place[in->id].block->life;
        of_block->to = later(of_block->to, life->to);
      }
    }
  }
}

void blocks_make(MemoryPlan *p) {
  Graph *g = p->g;
  for_each_op(op, g)
    if (op->kind == OP_pack) {
      // Members are produced in the bucket if they are no views into other values, and dead after
      // the pack.
      int64_t at = 0;
      for (int i = 0; i < op->n_in; i++) {
        int64_t skip;
        Value *v = op->in[i].value, *root = view_root(v, &skip);
        if (root->def && root->def->kind != OP_constant && root->type->dtype == v->type->dtype &&
            type_bytes(root->type) == type_bytes(v->type) && !p->bucket[root->id] &&
            p->life[root->id].to <= op_time(op)) {
          p->bucket[root->id] = op;
          p->bucket_at[root->id] = at;
        }
        at += pack_length(v->type) * dtype_bytes[v->type->dtype];
      }
    }
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->target) {
      // A new value, seen through views of the whole, may be produced in place.
      const Result *r = g->results[i];
      int64_t skip;
      Value *root = view_root(r->use.value, &skip);
      if (root->def && root->type->dtype == r->target->type->dtype &&
          type_bytes(root->type) == type_bytes(r->target->type) && !p->target[root->id])
        p->target[root->id] = r->target;
    }
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
