// Communication: gives every operand the layout that its op needs, and makes types local.
//
//     %g = linear_back_w %x, %d : f32[4,6] {P} split=[0]
//     %w1 = sgd %w, %g, %lr, %s : f32[4,6] {B}
//
//   =>
//
//     %g = linear_back_w %x, %d : f32[4,6] {P} split=[0]
//     %0 = all_reduce %g axis="dp" : f32[4,6] {B}
//     %w1 = sgd %w, %0, %lr, %s : f32[4,6] {B}
//
// If the value of an operand has layout A and the op needs B, one op per mesh axis is inserted
// right after the value (a weight: before its reader), and shared by every later reader that needs
// the same:
//
//     P -> B           all_reduce; on an axis bound to time, accumulate
//     S -> B           all_gather
//     B -> S           local_slice (of a fill: a smaller fill)
//     P -> S           reduce_scatter  \  in one hop, or
//     S(i) -> S(j)     all_to_all      /  through B
//     other            through B
//
// hops.c has the order of the axes; comm_axes.c decides by price which changes are made in one hop.
//
// Time axes come first in a mesh, so partial sums are reduced over micro-batches before ranks. An
// op that is repeated for every micro-batch cannot read a value known only after the last one: such
// an op couples rows of different micro-batches, and is an error.
//
// A broadcast with readers on another mesh is repeated there, and its operand is sent, which is
// smaller:
//
//     %b = broadcast %x shape=[8,4] : f32[8,4] @s1        %b = broadcast %x shape=[8,4] : f32[8,4] @s1
//     %y = relu %b                  : f32[8,4] @s0   =>   %c = broadcast %x shape=[8,4] : f32[8,4] @s0
//                                                         %y = relu %c                  : f32[8,4] @s0
//
// Any other value with readers on another mesh goes over a cluster, and so does every value if the
// option `cluster` names one, or `reshard` asks for send/recv: comm_routes.c.
//
// Sums are put in an order with few reductions before (sums.c). Nothing else is merged
// or moved here; see bucket_grads.c.

#include <string.h>

#include "base/vec.h"
#include "comm_state.h"
#include "ir/collective.h"
#include "ir/loop.h"
#include "pass.h"
#include "pipeline/segments.h"
#include "sums.h"

// The op of the model that `op` is part of the gradient of, else `op`.
static const Op *op_of_model(const Comm *c, const Op *op) {
  for_each_op(o, c->g)
    if (op_is_gradient_of(op, o)) return o;
  return op;
}

// The number of parts into which ranks split the letter.
static int64_t parts_of(const Op *op, char letter) {
  const Mesh *mesh = op_mesh(op);
  int64_t parts = 1;
  for (int a = 0; a < mesh->n_axes; a++)
    if (op->split[a] == letter && !mesh->axis[a].time) parts *= mesh->axis[a].size;
  return parts;
}

// Whether an operand is split over micro-batches along the letter, and the op could be, if ranks
// did not split the letter as well.
static bool ranks_hinder(const Op *op, const Dims *dims, int letter, int time) {
  int64_t size = dims->letter[letter].size, slices = op_mesh(op)->axis[time].size;
  int64_t parts = parts_of(op, dims->letter[letter].name);
  if (parts == 1 || size % slices || size % (parts * slices) == 0) return false;
  for (int i = 0; i < op->n_in; i++) {
    const Layout *have = op->in[i].value->layout;
    if (!have || have->n_axes <= time || !is_time(have, time)) continue;
    if (have->axis[time].kind != SBP_S) continue;
    if (dims_position(dims, &dims->in[i], letter) == have->axis[time].dim) return true;
  }
  return false;
}

// Reports too few rows, if the split over ranks is the cause.
static bool say_too_few_rows(const Comm *c, const Op *op, const Dims *dims) {
  const Mesh *mesh = op_mesh(op);
  for (int a = 0; mesh && a < mesh->n_axes; a++)
    for (int i = 0; mesh->axis[a].time && i < dims->n_letters; i++) {
      if (!ranks_hinder(op, dims, i, a)) continue;
      diag_error(c->d, op->loc,
                 "%s has %lld rows of the batch, which ranks split into %lld: these cannot be "
                 "split into %d micro-batches",
                 op_info[op_of_model(c, op)->kind].name, (long long)dims->letter[i].size,
                 (long long)parts_of(op, dims->letter[i].name), mesh->axis[a].size);
      diag_hint(c->d, "give a --batch that ranks times micro-batches divides");
      return true;
    }
  return false;
}

// Whether micro-batches have partial sums of the value.
static bool is_partial_in_time(const Value *v) {
  for (int a = 0; v->layout && a < v->layout->n_axes; a++)
    if (is_time(v->layout, a) && v->layout->axis[a].kind == SBP_P) return true;
  return false;
}

// Returns the op that reduces over the batch, of an `accumulate` that adds up the partial sums of
// micro-batches. Linear ops between them keep sums partial.
static const Op *reducer_of(const Op *accumulate) {
  const Op *op = accumulate;
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def && is_partial_in_time(op->in[i].value)) {
      op = op->in[i].value->def;
      i = -1;
    }
  return op;
}

// Reports that `reader`, which is repeated for every micro-batch, reads a sum over all of them.
static bool reads_late(const Comm *c, const Op *reducer, const Op *reader) {
  const Op *from = op_of_model(c, reducer), *to = op_of_model(c, reader);
  diag_error(
      c->d, from->loc,
      "%s reduces over the batch, and every micro-batch reads the result, so the batch cannot "
      "be split into micro-batches",
      op_info[from->kind].name);
  if (!loc_same(loc_origin(from->loc), loc_origin(to->loc)))
    diag_note(c->d, loc_origin(to->loc), "the result is read here");
  diag_hint(c->d, "compile without --accumulate and --micro-batches; ranks can split it");
  return false;
}

bool cannot_cut(Comm *c, const Op *reader, const Dims *dims) {
  if (dims && say_too_few_rows(c, reader, dims)) return false;
  // An update reads a whole weight, which outlives the micro-batches.
  const Value *weight = NULL;
  for (int i = reader->n_in - 1; i >= 0; i--) {
    const Value *v = reader->in[i].value;
    while (v->def && op_info[v->def->kind].traits & COMM)
      v = v->def->in[0].value;
    if (v->role == ROLE_weight) weight = v;
  }
  if (op_part(reader) == PART_update)
    diag_error(c->d, reader->loc,
               "%s has a part for each row of the batch, so the batch cannot be split into "
               "micro-batches",
               weight && weight->label ? str_format(c->scratch, "weight '%s'", weight->label)
                                       : op_info[reader->kind].name);
  else
    diag_error(c->d, reader->loc,
               "%s couples rows of the batch, so the batch cannot be split into micro-batches",
               op_info[op_of_model(c, reader)->kind].name);
  diag_hint(c->d, "compile without --accumulate and --micro-batches; ranks can split it");
  return false;
}

const Layout *comm_wanted_layout(const Comm *c, const Op *op, int i) {
  const Layout *have = op->in[i].value->layout;
  const Mesh *mesh = op_mesh(op);
  Sbp axis[MAX_AXES];
  for (int a = 0; mesh && a < mesh->n_axes; a++) {
    // From another mesh a value comes whole, unless the op adds partial sums: then it comes as one.
    bool adds = op->split[a] == SPLIT_PARTIAL && !(op_traits(op) & MULTILINEAR);
    Sbp other = {.kind = adds ? SBP_P : SBP_B};
    axis[a] = split_wants(op, c->dims_of[op->id], i, a, have->mesh == mesh ? have->axis[a] : other);
  }
  return layout_new(c->m, mesh, axis);
}

const Layout *wanted_result(const Comm *c, const Result *r) {
  const Layout *want = r->target ? r->target->layout : r->use.value->layout;
  for (int a = 0; a < want->n_axes; a++)
    if (want->axis[a].kind == SBP_P) want = with_axis(c->m, want, a, (Sbp){.kind = SBP_B});
  return want;
}

static Value *reshard_to(Comm *c, Value *v, const Layout *want, Op *reader) {
  if (v->layout == want) return v;
  return needs_route(c, v) ? reshard_by_route(c, v, want, reader)
                           : reshard_by_axes(c, v, want, reader);
}

// Whether the op has a number of blocks of the whole as an attribute: shapes of shards alone do not
// tell how many a rank has.
static bool counts_blocks(const Op *op) {
  return op->kind == OP_permute_blocks || (op_has_attr(op, "blocks") && attr_i(op, "blocks"));
}

// Reports blocks of which a rank has several: no kernel and no move is of more than one.
static bool blocks_not_apart(const Comm *c, const Op *op) {
  int64_t n = op->kind == OP_permute_blocks ? attr_n(op, "sources") : attr_i(op, "blocks");
  return diag_error(c->d, op->loc, "%s: %lld blocks must be split over as many ranks of one axis",
                    op_info[op->kind].name, (long long)n);
}

// Moves the operand of permuted blocks, which has the layout of the result, to the mesh on which
// each rank has the block that is its block of the result: from there the op is a view.
static Value *move_blocks(Comm *c, Op *op, Value *v) {
  Mesh *to = permuted_mesh(op, op_mesh(op), c->m->arena);
  if (!to) {
    blocks_not_apart(c, op);
    return NULL;
  }
  const Mesh *known = module_find_alike(c->m, to);
  for (int i = 0; !known && !to->name; i++) {
    const char *name = str_format(c->m->arena, "%s.%d", op_mesh(op)->name, i);
    if (!module_find_mesh(c->m, name)) to->name = name;
  }
  if (!known) module_add_mesh(c->m, to);
  Builder b = {.g = c->g, .at = op, .origin = op_origin(op), .d = c->d};
  b.origin = origin_for(c->m->arena, b.origin, "move");
  Value *out = build_op(&b, OP_move, IN(v), ATTRS(a_list("shape", v->type->dim, v->type->ndim)));
  if (!out) return NULL;
  out->layout = layout_new(c->m, known ? known : to, v->layout->axis);
  c->inserted++;
  return out;
}

// Gives a loop a body of its own, of the shards that the split of the loop implies.
static bool localise_body(Comm *c, Op *loop) {
  Graph *was = loop->callee, *body = graph_clone(was, graph_free_name(c->m, was->name));
  loop->callee = body;
  graph_erase_uncalled(was);
  graph_renumber(body);
  if (!loop_split_body(loop, c->d)) return false;
  for (int i = 0; i < body->n_params; i++)
    body->params[i]->type = type_local(c->m, body->params[i]->type, body->params[i]->layout);
  for_each_op(op, body) {
    if (op_has_attr(op, "shape")) {
      const Type *t = type_local(c->m, op->out[0]->type, op->out[0]->layout);
      op_set_attr(op, a_list("shape", t->dim, t->ndim));
    }
    if ((op->kind == OP_loop && !localise_body(c, op)) || !op_retype(op, c->d)) return false;
  }
  return true;
}

static bool find_dims(Comm *c) {
  c->dims_of = arena_array(c->scratch, const Dims *, c->g->n_ops);
  for_each_op(op, c->g)
    if (!(c->dims_of[op->id] = op_dims_kept(op, c->scratch, c->d))) return false;
  return true;
}

// -- Broadcasts ----------------------------------------------------------------------------------

// Returns the result of the op, repeated right after it, in this layout; NULL if its split cannot
// give that.
static Value *repeat_op(const Comm *c, Op *op, const Layout *want) {
  const Dims *dims = c->dims_of[op->id];
  char split[MAX_AXES] = {0};
  for (int a = 0; a < want->n_axes; a++) {
    if (want->axis[a].kind == SBP_B) continue;
    if (want->axis[a].kind != SBP_S) return NULL;
    int letter = dims_splitter(dims, &dims->out[0], want->axis[a].dim, want->mesh->axis[a].size);
    if (letter < 0) return NULL;
    split[a] = dims->letter[letter].name;
  }
  Op *own = op_copy(c->g, op->next, op, &op->in[0].value, c->d);
  if (!own) return NULL;
  memcpy(own->split, split, sizeof own->split);
  own->out[0]->layout = want;
  return own->out[0];
}

// Whether the op is a broadcast to more bytes, or the cast of one.
static bool only_expands(const Op *op) {
  if (op->kind == OP_cast && op->in[0].value->def) op = op->in[0].value->def;
  return op->kind == OP_broadcast &&
         type_bytes(op->in[0].value->type) < type_bytes(op->out[0]->type);
}

// Gives readers on other meshes broadcasts of their own.  False after an error; `again`: some op is
// new, and its operand may be on another mesh.
static bool repeat_broadcasts(Comm *c, bool *again) {
  graph_renumber(c->g);
  if (!find_dims(c)) return false;
  uint32_t n = c->g->n_ops;
  *again = false;
  for_each_op_safe(op, c->g) {
    if (op->id >= n || !only_expands(op)) continue;
    Value *v = op->out[0];
    Vec(Value *) own = {0};
    for (Use *u = v->uses, *next; u; u = next) {
      next = u->next;
      if (!u->user || u->user->id >= n) continue;
      const Layout *want = comm_wanted_layout(c, u->user, u->index);
      if (mesh_covers(v->layout->mesh, want->mesh)) continue;
      // Readers with the same layout share one.
      Value *shared = NULL;
      for (int i = 0; i < own.n && !shared; i++)
        if (own.at[i]->layout == want) shared = own.at[i];
      if (!shared && (shared = repeat_op(c, op, want))) vec_push(c->scratch, &own, shared);
      if (shared) op_set_in(u->user, u->index, shared);
    }
    *again |= own.n > 0;
  }
  return true;
}

// Gives the results of an op the types of shards.
static bool localise_results(Comm *c, Op *op) {
  if (!counts_blocks(op)) return op_retype(op, c->d);
  if (op->kind != OP_permute_blocks && parts_of(op, 'c') != attr_i(op, "blocks"))
    return blocks_not_apart(c, op);
  for (int i = 0; i < op->n_out; i++)
    op->out[i]->type = type_local(c->m, op->out[i]->type, op->out[i]->layout);
  return true;
}

static bool localise_graph(Comm *c) {
  Graph *g = c->g;
  for (bool again = c->m->meshes->next != NULL; again;)
    if (!repeat_broadcasts(c, &again)) return false;
  graph_renumber(g);
  c->moved = arena_array(c->scratch, AxisReshard *, g->n_values);
  c->hops = arena_array(c->scratch, Hops, g->n_values);
  for (uint32_t i = 0; i < g->n_values; i++)
    c->hops[i] = UNDECIDED;
  if (!find_dims(c)) return false;
  for (int i = 0; i < g->n_params; i++)
    g->params[i]->type = type_local(c->m, g->params[i]->type, g->params[i]->layout);
  // Inserted ops directly follow values that were visited already, and are local from the start.
  c->trees = arena_array(c->scratch, struct Tree *, g->n_values);
  c->n_ops = g->n_ops;
  if (c->m->meshes->next) c->turn = segments_find(g, false, false, c->scratch).of;
  for_each_op_safe(op, g)
    if (op->id < c->n_ops) {
      // Each operand gets the layout that the op needs, and types become local.
      for (int i = 0; i < op->n_in; i++) {
        const Layout *want = comm_wanted_layout(c, op, i);
        Value *v = reshard_to(c, op->in[i].value, want, op);
        if (v && op->kind == OP_permute_blocks) v = move_blocks(c, op, v);
        if (!v) return false;
        if (v != op->in[i].value) op_set_in(op, i, v);
      }
      // The attribute `shape` is the shape of result 0.
      if (op_has_attr(op, "shape")) {
        const Type *t = type_local(c->m, op->out[0]->type, op->out[0]->layout);
        op_set_attr(op, a_list("shape", t->dim, t->ndim));
      }
      if ((op->kind == OP_loop && !localise_body(c, op)) || !localise_results(c, op)) return false;
    }
  // Outputs and new parameters get their layout.
  for (int i = 0; i < c->g->n_results; i++) {
    Result *r = c->g->results[i];
    Value *v = r->use.value;
    const Layout *want = wanted_result(c, r);
    if (want == v->layout) continue;
    Value *moved = reshard_to(c, v, want, v->def);
    if (!moved) return false;
    graph_set_result(c->g, i, moved);
  }
  // An op that is repeated for every micro-batch cannot read a value known only after the last one.
  graph_renumber(c->g);
  // By value, the op that reduces over the batch; NULL if the value is known before.
  const Op **late = arena_array(c->scratch, const Op *, c->g->n_values);
  for_each_op(op, c->g) {
    const Op *reducer = NULL;
    for (int i = 0; i < op->n_in; i++)
      if (late[op->in[i].value->id]) reducer = late[op->in[i].value->id];
    bool repeated = false;
    for (int i = 0; i < op->n_in; i++) {
      const Layout *l = op->in[i].value->layout;
      for (int a = 0; a < l->n_axes; a++)
        repeated |= is_time(l, a) && l->axis[a].kind != SBP_B;
    }
    if (reducer && repeated)
      return op_part(op) == PART_update ? cannot_cut(c, op, NULL) : reads_late(c, reducer, op);
    for (int i = 0; i < op->n_out; i++)
      late[op->out[i]->id] = !reducer && value_accumulates(op->out[i]) ? reducer_of(op) : reducer;
  }
  return true;
}

// Reads the option `reshard`.
static bool reshard_option(const PassOptions *o, ReshardBy *by, Diag *d) {
  const char *text = opt_str(o, "reshard");
  *by = RESHARD_rvd;
  if (!text) return true;
  for (int i = 0; i < N_RESHARDS; i++)
    if (str_equal(text, reshard_name[i])) {
      *by = (ReshardBy)i;
      return true;
    }
  return diag_error(d, NULL, "comm: reshard is rvd, intra or p2p, not '%s'", text);
}

bool pass_comm(Module *m, const PassOptions *o, Diag *d) {
  Comm c = {.m = m, .scratch = opt_scratch(o), .d = d, .cluster = opt_str(o, "cluster")};
  if (!reshard_option(o, &c.by, d)) return false;
  c.store = opt_paths(o) ? opt_paths(o) : path_store_new(c.scratch);
  for_each_graph(g, m) {
    c.g = g;
    if (g->entry && (!order_sums(g, c.scratch, d) || !localise_graph(&c))) return false;
  }
  module_drop_meshes(m); // of routes that were joined
  opt_stat(o, c.inserted, "ops inserted");
  if (c.paths) opt_stat(o, transitions_known(c.paths), "routes over the cluster looked at");
  return true;
}
