// See propagate.h.
//
// A round is a forward walk that splits every op, and a backward walk that narrows. If readers then
// want parameters sharded, another round follows, since that changes the inputs of the first walk.
// Each letter that could be split is tried, at the cost of resharding the operands.
//
// Time axes are decided last, but have priority:
//
//     %g = reduce_sum %d axes=[0]     12 rows on 4 ranks, in 2 slices
//
// is not split over the ranks, as 3 rows cannot be divided into 2 slices: each rank has the 6 rows
// of a slice.

#include "propagate.h"

#include "constraints.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "microbatch_cut.h"

enum { MAX_ROUNDS = 8 }; // for weights that are sharded because others are

static const Sbp whole = {.kind = SBP_B};

// -- Time --------------------------------------------------------------------------------------

struct Analyses {
  uint32_t n_timed, n_model; // ops at the time of each analysis: programs may add ops
  const Timed *timed;
  const Op *const *model; // origin.h
};

static const Timed *timed_of(const Sharding *s) {
  struct Analyses *once = s->analyses;
  if (once->n_timed == s->g->n_ops) return once->timed;
  once->n_timed = s->g->n_ops;
  once->timed = timed_find(s->g, module_slices(s->g->module), s->scratch);
  return once->timed;
}

static const Op *const *model_of(const Sharding *s) {
  struct Analyses *once = s->analyses;
  if (once->n_model == s->g->n_ops) return once->model;
  once->n_model = s->g->n_ops;
  once->model = model_ops(s->g, s->scratch);
  return once->model;
}

// Whether time slices can split the letter too, if they will, once ranks split it along `axis`.
static bool leaves_time(const Sharding *s, const Op *op, int letter, int axis) {
  const Dims *dims = dims_of(s, op);
  char name = dims->letter[letter].name;
  int64_t parts = op_ranks(op, axis), size = dims->letter[letter].size;
  if (s->mesh->axis[axis].time) return true;
  for (int a = 0; a < s->mesh->n_axes; a++)
    if (a != axis && !s->mesh->axis[a].time && op->split[a] == name) parts *= op_ranks(op, a);
  return size % (parts * module_slices(s->g->module)) == 0 ||
         timed_letter(timed_of(s), op, name, size, parts);
}

static bool can_split(const Sharding *s, const Op *op, int letter, int axis) {
  return split_legal(op, dims_of(s, op), letter, axis) && leaves_time(s, op, letter, axis);
}

// The letter that is split with dimension `dim` of operand `i`; -1: none can be.
static int letter_with(const Sharding *s, const Op *op, int i, int dim, int axis) {
  int letter = letter_of_operand(s, op, i, dim, axis);
  return letter >= 0 && leaves_time(s, op, letter, axis) ? letter : -1;
}

// -- Propagation -----------------------------------------------------------------------------

// The use of `v` by the op of the model that `reader` is a gradient of; NULL: that does not read
// it.
static const Use *model_use(const Sharding *s, const Value *v, const Op *reader) {
  if (op_part(reader) != PART_backward) return NULL;
  for_each_use(u, kept_of(s, v))
    if (u->user && op_is_gradient_of(reader, u->user)) return u;
  return NULL;
}

// The value that `v` is a cast of, or a pin of a cast; or `v` itself.
static const Value *uncast(const Value *v) {
  const Value *cast = v->def && op_is_pin(v->def) ? v->def->in[0].value : v;
  if (!cast->def || cast->def->kind != OP_cast) return v;
  while (cast->def && cast->def->kind == OP_cast)
    cast = cast->def->in[0].value;
  return cast;
}

// Whether the value is a parameter sharded for storage only, or a cast of one.
static bool is_stored(const Sharding *s, const Value *v, int axis) {
  v = uncast(v);
  return !v->def && s->decisions.param[v->id][axis] == PARAM_stored;
}

// The layout of a value for one reader: partial sums are reduced before a transfer to another mesh.
static Sbp layout_for(const Sharding *s, const Value *v, const Op *reader, int axis) {
  Sbp sbp = s->decisions.layout[v->id][axis];
  return sbp.kind == SBP_P && op_mesh(reader) != v->layout->mesh ? whole : sbp;
}

// The layout of a value that decides a reader's split. A gradient gets the layout that its op of
// the model used, which is the chain rule: it splits the same letter. A parameter that is sharded
// for storage only is used whole, except by casts.
static Sbp deciding_layout(const Sharding *s, const Value *v, const Op *reader, int axis) {
  const Use *u = model_use(s, v, reader);
  if (u)
    return split_wants(u->user, dims_of(s, u->user), u->index, axis,
                       layout_for(s, v, u->user, axis));
  return is_stored(s, v, axis) && reader->kind != OP_cast ? whole : layout_for(s, v, reader, axis);
}

// Bytes of a device's shard, as decided along the other axes.
static double part_bytes(const Sharding *s, const Value *v, int axis) {
  double bytes = (double)type_bytes(v->type);
  for (int a = 0; a < s->mesh->n_axes; a++)
    if (a != axis && s->decisions.final[a] && s->decisions.layout[v->id][a].kind == SBP_S)
      bytes /= value_ranks(v, a);
  return bytes;
}

// The bytes that a rank sends to reshard operand `i` for the present split of `op`.
static double operand_cost(const Sharding *s, const Op *op, int i, int axis) {
  const Value *v = op->in[i].value;
  Sbp have = deciding_layout(s, v, op, axis);
  Sbp want = split_wants(op, dims_of(s, op), i, axis, have);
  double n = op_ranks(op, axis), sent = part_bytes(s, v, axis) * (n - 1) / n;
  if (sbp_equal(have, want) || have.kind == SBP_B) return 0;
  // An all_reduce sends twice the bytes of a reduce_scatter.
  if (have.kind == SBP_P) return want.kind == SBP_B ? 2 * sent : sent;
  if (want.kind == SBP_B) {
    // An earlier op may have gathered the value already.
    bool gathered = false;
    for_each_use(u, v) {
      if (!u->user || u->user->id >= op->id) continue;
      Sbp other = split_wants(u->user, dims_of(s, u->user), u->index, axis, whole);
      if (other.kind == SBP_B) {
        gathered = true;
        break;
      }
    }
    return gathered ? 0 : sent;
  }
  // An all_to_all sends one n-th of a gather.
  return sent / n;
}

// Whether constraints allow the letter.
static bool may_split(const Sharding *s, const Op *op, int letter, int axis) {
  return constraint_allows(s->constraints.op[op->id][axis], dims_of(s, op)->letter[letter].name);
}

// The cheapest letter along which an operand is sharded, if the op can split it; -1: none.
// `of_model`: only operands that the op of the model reads, too.
static int incoming_letter(const Sharding *s, Op *op, int axis, bool of_model) {
  // The cheapest letter among those by which operands are sharded.
  int best = -1;
  double least = 0;
  for (int i = 0; i < op->n_in; i++) {
    Sbp have = deciding_layout(s, op->in[i].value, op, axis);
    if (have.kind != SBP_S || (of_model && !model_use(s, op->in[i].value, op))) continue;
    int letter = letter_with(s, op, i, have.dim, axis);
    if (letter < 0 || letter == best || !may_split(s, op, letter, axis)) continue;
    // The cost of a split is that of resharding operands and reducing partial results.
    char before = op->split[axis];
    double cost = 0, ranks = op_ranks(op, axis);
    op->split[axis] = dims_of(s, op)->letter[letter].name;
    for (int k = 0; k < op->n_in; k++)
      cost += operand_cost(s, op, k, axis);
    for (int k = 0; k < op->n_out; k++)
      if (split_gives(op, dims_of(s, op), k, axis).kind == SBP_P)
        cost += 2 * (ranks - 1) / ranks * part_bytes(s, op->out[k], axis);
    op->split[axis] = before;
    if (best >= 0 && cost >= least) continue;
    best = letter;
    least = cost;
  }
  return best;
}

// The letter that the op of the model split, if that is a dimension of its result: the gradient of
// the result has the same dimension.
//
//     y = linear x, w                 0 k, k n -> 0 n    split=[n], x {B}
//     dw = linear_back_w x, dy        0 k, 0 n -> k n    split=[n], for any layout of dy
static int letter_of_result(const Sharding *s, Op *op, int axis) {
  // The op of the model that `op` is a gradient of, if they have an operand in common.
  const Op *of = NULL;
  for (int i = 0; i < op->n_in; i++) {
    const Use *u = model_use(s, op->in[i].value, op);
    if (u) {
      of = u->user;
      break;
    }
  }
  int split = of ? dims_find(dims_of(s, of), of->split[axis]) : -1;
  for (int r = 0; split >= 0 && r < of->n_out; r++) {
    int dim = dims_position(dims_of(s, of), &dims_of(s, of)->out[r], split);
    for (int i = 0; dim >= 0 && i < op->n_in; i++) {
      // The operand must be the gradient of the result, and no operand of the model's op.
      const Value *v = op->in[i].value;
      bool gradient = v->type == of->out[r]->type && v->def && op_part(v->def) == PART_backward &&
                      !op_is_recomputed(v->def) && !model_use(s, v, op);
      if (gradient) return letter_with(s, op, i, dim, axis);
    }
  }
  return -1;
}

// The letter that the op of the model split, if that is a dimension of its weight alone: the
// gradient of the weight has the same dimension. Then no rank has the gradient of all rows.
//
//     y = gather table, i             v b, A -> A b    split=[v], y {P}
//     dtable = gather_back i, dy      A, A b -> v b    split=[v], for any layout of dy
static int letter_of_weight(const Sharding *s, Op *op, int axis) {
  if (op_part(op) != PART_backward || op_is_recomputed(op) || op->n_out != 1) return -1;
  const Op *of = model_op_of(s, op, model_of(s));
  const Dims *dims = of && of->n_out == 1 ? dims_of(s, of) : NULL;
  int split = dims ? dims_find(dims, of->split[axis]) : -1;
  if (split < 0 || dims_position(dims, &dims->out[0], split) >= 0) return -1;
  for (int i = 0; i < of->n_in; i++) {
    int dim = dims_position(dims, &dims->in[i], split);
    if (dim < 0) continue;
    // No other operand has the dimension, as those of a product do, along which it is summed.
    for (int k = i + 1; k < of->n_in; k++)
      if (dims_position(dims, &dims->in[k], split) >= 0) return -1;
    if (!type_same_dims(of->in[i].value->type, op->out[0]->type)) return -1;
    int letter = dims_splitter(dims_of(s, op), &dims_of(s, op)->out[0], dim, op_ranks(op, axis));
    return letter >= 0 && can_split(s, op, letter, axis) && may_split(s, op, letter, axis) ? letter
                                                                                           : -1;
  }
  return -1;
}

// Whether the value is the gradient of a weight, or a view of it: only updates read it.
static bool is_whole_gradient(const Value *v) {
  for_each_use(u, v) {
    if (!u->user || op_part(u->user) == PART_update) continue;
    if (u->user->n_out != 1 || !op_is_view(u->user) || !is_whole_gradient(u->user->out[0]))
      return false;
  }
  return true;
}

// Whether the op only joins gradients of parts of a weight. Over micro-batches these are summed
// part by part, each by the product that makes it, and joined once in a step; unless a pin wants
// the gradient of each.
static bool joins_parts(const Op *op) {
  if (op_part(op) != PART_backward || op->n_out != 1) return false;
  const Use *u = op->out[0]->uses;
  const Op *reader = u && !u->next ? u->user : NULL;
  if (op->kind == OP_reshape && !op_is_pin(op)) return reader && joins_parts(reader);
  return op->kind == OP_concat && !(reader && op_is_pin(reader)) && is_whole_gradient(op->out[0]);
}

// Whether partial sums among the operands may pass through the op.
static bool partial_passes(const Sharding *s, const Op *op, int axis) {
  int partial = 0, last = 0;
  for (int i = 0; i < op->n_in; i++) {
    Sbp have = layout_for(s, op->in[i].value, op, axis);
    if (have.kind == SBP_S) return false;
    if (have.kind != SBP_P) continue;
    partial++;
    last = i;
  }
  if (!partial) return false;
  // Any factor of a gradient in the update is known only after the last time slice.
  bool time = s->mesh->axis[axis].time;
  bool waits = time && op_part(op) == PART_update;
  if ((waits && partial < op->n_in) || (time && joins_parts(op))) return false;
  // A lookup's gradient with more bytes than its operand is that of a large table: the operand is
  // summed.  The table of relative positions is smaller than its lookup: the gradient is summed.
  bool grows = op->kind == OP_gather_back &&
               type_bytes(op->out[0]->type) > type_bytes(op->in[last].value->type);
  return !grows && op_passes_sums(op, partial, last);
}

// The first feasible split that constraints allow, if propagation leads to none of them. If other
// axes have left none, shard.c reports it.
static char first_allowed(const Sharding *s, const Op *op, int axis) {
  const Dims *dims = dims_of(s, op);
  for (const char *split = constraint_splits(s->constraints.op[op->id][axis], s->scratch); *split;
       split++)
    if (*split != SPLIT_PARTIAL && can_split(s, op, dims_find(dims, *split), axis)) return *split;
  return SPLIT_NONE;
}

// Whether a recomputation can split the letter of its op of the model, so that both results have
// the same layout.
static bool repeats(const Sharding *s, const Op *op, const Op *of, int axis) {
  if (!of || op_mesh(of) != op_mesh(op) ||
      !constraint_allows(s->constraints.op[op->id][axis], of->split[axis] ? of->split[axis] : '-'))
    return false;
  const Dims *dims = dims_of(s, op);
  return !of->split[axis] || of->split[axis] == SPLIT_PARTIAL ||
         can_split(s, op, dims_find(dims, of->split[axis]), axis);
}

static char choose(const Sharding *s, Op *op, int axis) {
  const Op *of = repeated_by(s, op);
  if (repeats(s, op, of, axis)) return of->split[axis];
  int letter = incoming_letter(s, op, axis, true);
  if (letter < 0) letter = letter_of_result(s, op, axis);
  if (letter < 0) letter = letter_of_weight(s, op, axis);
  if (letter < 0) letter = incoming_letter(s, op, axis, false);
  if (letter >= 0) return dims_of(s, op)->letter[letter].name;
  const Constraint *constraint = s->constraints.op[op->id][axis];
  if (partial_passes(s, op, axis) && constraint_allows(constraint, SPLIT_PARTIAL))
    return SPLIT_PARTIAL;
  return constraint_allows(constraint, '-') ? SPLIT_NONE : first_allowed(s, op, axis);
}

static void lay_results(Sharding *s, const Op *op, int axis) {
  for (int i = 0; i < op->n_out; i++)
    s->decisions.layout[op->out[i]->id][axis] = split_gives(op, dims_of(s, op), i, axis);
}

// -- Parameters --------------------------------------------------------------------------------

// The layout that a reader wants; whole if the reader and the value have different numbers of
// ranks.
static Sbp wanted_of(const Sharding *s, const Value *v, const Use *u, int axis) {
  if (op_ranks(u->user, axis) != value_ranks(v, axis)) return whole;
  return split_wants(u->user, dims_of(s, u->user), u->index, axis, whole);
}

static bool may_have(const Sharding *s, const Value *v, Sbp sbp, int axis) {
  return constraint_allows(s->constraints.value[v->id][axis], split_of_sbp(sbp));
}

// The sharding on which the readers of a parameter that shard it agree; else whole. For a weight
// only the model and its gradients count, so that an optimizer's split alone does not shard it.
static Sbp wanted_of_param(const Sharding *s, const Value *v, int axis) {
  Sbp all = whole;
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || (v->role == ROLE_weight && op_part(op) == PART_update)) continue;
    Sbp want = wanted_of(s, v, u, axis);
    if (want.kind != SBP_S) continue;
    if (all.kind == SBP_S && !sbp_equal(all, want)) return whole;
    all = want;
  }
  return all;
}

// Shards parameters as their readers want; returns whether any changed. A state is not sharded if
// its update would have to gather it.
static bool lay_params(Sharding *s, const Value *const *update, int axis) {
  bool changed = false;
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *v = s->g->params[i];
    bool open = s->decisions.param[v->id][axis] == PARAM_open &&
                s->decisions.layout[v->id][axis].kind == SBP_B;
    if (!open || (v->role != ROLE_weight && v->role != ROLE_state)) continue;
    Sbp want = wanted_of_param(s, v, axis);
    // It must be allowed by constraints, and divide evenly.
    if (want.kind != SBP_S || !may_have(s, v, want, axis) || !param_cuts(s, v, want.dim, axis))
      continue;
    // The new state must have the same sharding.
    const Value *next = v->role == ROLE_state ? update[v->id] : NULL;
    if (next && !sbp_equal(s->decisions.layout[next->id][axis], want)) continue;
    s->decisions.layout[v->id][axis] = want;
    changed = true;
  }
  return changed;
}

// Shards parameters that constraints want sharded and readers leave open, by the first feasible
// split. Returns whether any changed.
static bool decide_other_params(Sharding *s, int axis) {
  bool changed = false;
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *v = s->g->params[i];
    if (s->decisions.param[v->id][axis] != PARAM_open ||
        may_have(s, v, s->decisions.layout[v->id][axis], axis))
      continue;
    const char *split = constraint_splits(s->constraints.value[v->id][axis], s->scratch);
    while (*split && !param_cuts(s, v, *split - '0', axis))
      split++;
    if (!*split) continue;
    s->decisions.layout[v->id][axis] = sbp_of_split(*split);
    changed = true;
  }
  return changed;
}

// -- Narrowing ---------------------------------------------------------------------------------

static bool takes_cut(const Sharding *s, const Use *u, int dim, int axis);

static bool all_take_cut(const Sharding *s, const Value *v, int dim, int axis) {
  for_each_use(u, v)
    if (!u->user || !takes_cut(s, u, dim, axis)) return false;
  return true;
}

// Whether the value is a parameter that was cast, as that of a weight to 16 bits.
static bool is_cast_param(const Value *v) {
  return v->def && !uncast(v)->def;
}

// The slice that every reader of `v` wants along `axis`, if they agree; otherwise B. Of a cast
// parameter, one reader wants it and the others would take it, as of the parameter.
static Sbp wanted_by_all(const Sharding *s, const Value *v, int axis) {
  Sbp all = whole;
  bool cast_param = is_cast_param(v);
  for_each_use(u, v) {
    if (!u->user) return whole;
    Sbp want = wanted_of(s, v, u, axis);
    if (cast_param && want.kind == SBP_S) return all_take_cut(s, v, want.dim, axis) ? want : whole;
    if (cast_param) continue;
    if (want.kind != SBP_S || (u != v->uses && !sbp_equal(want, all))) return whole;
    all = want;
  }
  return all;
}

// The letter of an unsplit op that all readers of its only result want split, if it can be; else
// -1.
static int wanted_letter(const Sharding *s, const Op *op, int axis) {
  if (op->n_out != 1 || op->split[axis] != SPLIT_NONE || s->decisions.fixed_by[op->id][axis])
    return -1;
  if (op_ranks(op, axis) == 1) return -1;
  const Dims *dims = dims_of(s, op);
  Sbp want = wanted_by_all(s, op->out[0], axis);
  if (want.kind != SBP_S) return -1;
  int letter = dims_splitter(dims, &dims->out[0], want.dim, op_ranks(op, axis));
  return letter >= 0 && can_split(s, op, letter, axis) ? letter : -1;
}

// Whether a reader takes the parameter sharded along this dimension, or would after narrowing to
// the slice that its own readers want. Of a cast, such as that of a weight to 16 bits, all readers
// must.
static bool takes_cut(const Sharding *s, const Use *u, int dim, int axis) {
  Sbp want = wanted_of(s, u->value, u, axis);
  if (want.kind == SBP_S) return want.dim == dim;
  if ((u->user->kind == OP_cast || op_is_pin(u->user)) && !s->decisions.fixed_by[u->user->id][axis])
    return value_used(u->user->out[0]) && all_take_cut(s, u->user->out[0], dim, axis);
  int letter = wanted_letter(s, u->user, axis);
  const Dims *dims = dims_of(s, u->user);
  return letter >= 0 && dims_position(dims, &dims->in[u->index], letter) == dim;
}

// Whether `v` may be sharded for an op that reads it: all readers take it so, or `v` is a weight,
// or the cast of one, and only its update needs it whole.
static bool may_cut(const Sharding *s, const Value *v, int dim, int axis) {
  // A single reader is the op that asks.
  if (v->def && (!v->uses->next || all_take_cut(s, v, dim, axis))) return true;
  v = uncast(v);
  if (v->def) return false;
  if (v->role != ROLE_weight || s->decisions.param[v->id][axis] != PARAM_open) return false;
  if (!may_have(s, v, (Sbp){.kind = SBP_S, .dim = dim}, axis)) return false;
  for_each_use(u, v) {
    if (u->user && op_part(u->user) == PART_update) continue;
    if (!u->user || !takes_cut(s, u, dim, axis)) return false;
  }
  return param_cuts(s, v, dim, axis);
}

// Splits an op with whole operands if all readers want the same slice of its only result: each
// device computes its slice. Only operands that may_cut allows are sharded for it.
static bool narrow(const Sharding *s, Op *op, int axis) {
  int letter = wanted_letter(s, op, axis);
  if (letter < 0 || !may_split(s, op, letter, axis)) return false;
  const Dims *dims = dims_of(s, op);
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    // A repeated op reads a repeated operand, which may be whole while that of the model is not.
    if (layout_for(s, v, op, axis).kind != SBP_B && deciding_layout(s, v, op, axis).kind != SBP_B)
      return false;
    int dim = dims_position(dims, &dims->in[i], letter);
    if (dim >= 0 && !may_cut(s, v, dim, axis)) return false;
  }
  op->split[axis] = dims->letter[letter].name;
  return true;
}

// -- One axis -----------------------------------------------------------------------------------

void propagate_axis(Sharding *s, int axis) {
  if (!s->analyses) s->analyses = arena_one(s->scratch, struct Analyses);
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *v = s->g->params[i];
    if (s->decisions.param[v->id][axis] == PARAM_open) s->decisions.layout[v->id][axis] = whole;
  }
  Arena *scratch = arena_new();
  // The new value of each parameter, by value id.
  const Graph *g = s->g;
  const Value **update = arena_array(scratch, const Value *, g->n_values);
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->target) update[g->results[i]->target->id] = g->results[i]->use.value;
  for (int i = 0;
       i == 0 || (i < MAX_ROUNDS && (lay_params(s, update, axis) || decide_other_params(s, axis)));
       i++) {
    // Layouts propagate from operands to results.
    for_each_op(op, s->g) {
      if (!s->decisions.fixed_by[op->id][axis]) {
        op->split[axis] = SPLIT_NONE; // costs and legality assume no split
        op->split[axis] = choose(s, op, axis);
      }
      lay_results(s, op, axis);
    }
    // Narrowing goes back from readers to producers. A value with several readers is narrowed when
    // all of them are: a walk after that of the first.
    bool narrowed = true;
    for (int walk = 0; walk < MAX_ROUNDS && narrowed; walk++) {
      narrowed = false;
      for (Op *op = s->g->last; op; op = op->prev)
        if (narrow(s, op, axis)) {
          lay_results(s, op, axis);
          narrowed = true;
        }
    }
  }
  arena_free(scratch);
  s->decisions.final[axis] = true;
}
