// The plan proof: the ranks together compute the model.
//
//     the model's program                          the distributed one, split in two along dp
//
//     %y = linear %x, %w         (2)               %y = linear %x, %w : {S(0)} split=[0]
//     %g = linear_back_w %x, %d  (4)               %g = linear_back_w %x, %d : {P} split=[0]
//                                                  %r = all_reduce %g axis="dp" : {B}
//     %w1 = sgd %w, %g, …        (5)               %w1 = sgd %w, %r, … : {B}
//
// Every value of the distributed program stands for a value of the model's, together with a layout:
// concatenating the shards of the ranks, or adding their partial sums, yields the whole.  A value
// of the model's program is a value number (number.h).  The proof visits the ops once, and derives
// the meaning of the results of each:
//
//    collectives  of collectives.def that keep the value, and move, keep the number; take_partial
//                 and as_partial are errors.  Layouts follow their rules, which the verifier has
//                 checked (collective.h).
//    copies       to host memory and back, and of an operand of an update in the next step, keep the
//                 number.
//    pack         stands for all its members.  A sum over ranks or time of a bucket is the sum of its
//                 members, and unpack is one member, at its offset and with its length.
//    a reshape    to the same shape, or a slice of everything, stands for its operand's number.
//    pieces       of a value come from slice, and return to it through concat and add; an op on
//                 pieces is an op of the model's program computed in parts (piece.h).  A sum of
//                 shares of a value and of other values is known by its terms, in any order.
//    sums         are known by their terms, in any order (prove_sums.c).
//    bodies       of fused ops and batches are followed with the operands of the call, and joined ops are
//                 their definitions; values of other types are in prove_lowered.c.
//    loops        must equal a loop of the model's program, on operands with the same numbers; its body
//                 computes that of the model's, by a proof of its own.
//    other ops    must equal an op of the model's program, on operands with the same numbers.  The
//                 einsum of that op, which has the lengths of the whole, gives the legal splits, and
//                 the layouts of operands and results under a split.  A row of ops.def promises that
//                 the op on shards then computes the shards of the result.
//
// At the end every output and update of the model's program must exist, with the same number, and
// no others.  So by induction over the ops the ranks compute the model, if the rows of ops.def keep
// their promises, which are tested one by one.
//
// `transform`, in which a plan cuts the model into pieces, is proved by itself: its module is the
// distributed program, without layouts, and the one right before it the model's.  Between that and
// the first pass that distributes, nothing depends on the plan.
//
// The only search is over the few values that a piece may belong to: the time is linear in the
// number of ops, and independent of the number of ranks.
//
// The proof relies on the checks of module_verify: types, uses and order; the layouts around
// collectives, sums and buckets; no slice of time reads a value that is known only after the last.
// After an error the results of the op are taken for the intended ones, so that later ops are
// checked for errors of their own.

#include "prove_state.h"

#include <string.h>

#include "base/vec.h"
#include "ir/collective.h"
#include "ir/definition.h"
#include "ir/model_values.h"
#include "ir/op.h"
#include "ir/split.h"
#include "ir/verify/verify.h"

// Whether the value is a bucket without a value number of the model's program.
static bool is_bucket(const Proof *p, const Value *v) {
  return p->of[v->id].bucket && p->of[v->id].number == UNKNOWN;
}

void prove_error(Proof *p, const Loc *loc, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  diag_error(p->d, loc, "%s", str_vformat(p->a, fmt, args));
  va_end(args);
  p->ok = false;
}

// -- Parameters ------------------------------------------------------------------------------

static bool same_init(const Init *x, const Init *y) {
  if (!x || !y) return x == y;
  if (x->kind != y->kind || x->dtype != y->dtype || x->length != y->length) return false;
  // Numbers are compared bit by bit.
  switch (x->kind) {
  case INIT_file: return str_equal(x->path, y->path) && x->offset == y->offset;
  case INIT_bytes: return x->length == 0 || !memcmp(x->bytes, y->bytes, (size_t)x->length);
  case INIT_fill: return !memcmp(&x->fill, &y->fill, sizeof x->fill);
  case INIT_normal:
  case INIT_uniform:
    return !memcmp(&x->fill, &y->fill, sizeof x->fill) && !memcmp(&x->to, &y->to, sizeof x->to) &&
           x->seed == y->seed;
  }
  BUG("no kind of initial contents");
}

static bool same_param(const Value *x, const Value *y) {
  return x->role == y->role && str_equal(x->label, y->label);
}

// A copy in 16 bits is the cast of the weight with its label.
static void prove_copy(Proof *p, const Value *v) {
  const Value *w = v->label ? table_find(p->params, ROLE_weight, v->label) : NULL;
  if (!w) {
    prove_error(p, v->loc, "%s is of no weight of the model's program", prove_name(v, p->a));
    return;
  }
  if (!type_same_dims(value_whole(v), w->type))
    prove_error(p, v->loc, "%s is %s, and its weight %s in the model's program",
                prove_name(v, p->a), type_text(p->a, value_whole(v)), type_text(p->a, w->type));
  Meaning is = no_meaning;
  is.number = number_of(p->numbers, w);
  *meaning(p, v) = cast_meaning(p, &is, w->type->dtype, v->type->dtype);
}

// Whether a weight has another shape than in the model's program, and the same in files.
static bool is_reshaped(const Value *v, const Value *is) {
  if (value_padded(v)) return false;
  const Type *whole = value_whole(v), *shape = is->as ? is->as : is->type;
  return !type_equal(whole, is->type) && v->as && type_equal(v->as, shape) &&
         whole->dtype == is->type->dtype;
}

// Checks that a parameter agrees with that of the model's program in everything that determines its
// contents and updates.
static void prove_param(Proof *p, const Value *v, const Value *is) {
  const Type *whole = value_whole(v);
  bool reshaped = is_reshaped(v, is) || meaning(p, v)->padded_of;
  if (!reshaped && !type_equal(whole, is->type))
    prove_error(p, v->loc, "%s is %s, and %s in the model's program", prove_name(v, p->a),
                type_text(p->a, whole), type_text(p->a, is->type));
  if (!reshaped && v->as != is->as && !(v->as && is->as && type_equal(v->as, is->as)))
    prove_error(p, v->loc, "%s is %s in files, and %s in the model's program", prove_name(v, p->a),
                type_text(p->a, v->as ? v->as : whole),
                type_text(p->a, is->as ? is->as : is->type));
  if (v->each_slice != is->each_slice)
    prove_error(p, v->loc, "%s is updated %s, and %s in the model's program", prove_name(v, p->a),
                v->each_slice ? "in every slice" : "once per step",
                is->each_slice ? "in every slice" : "once per step");
  if (v->whole != is->whole)
    prove_error(p, v->loc, "%s is read %s by a step, and %s in the model's program",
                prove_name(v, p->a), v->whole ? "completely" : "in rows of the batch",
                is->whole ? "completely" : "in rows of the batch");
  if (v->train != is->train)
    prove_error(p, v->loc, "%s is %strained, and is %sin the model's program", prove_name(v, p->a),
                v->train ? "" : "not ", v->train ? "not " : "");
  if (!same_init(v->init, is->init))
    prove_error(p, v->loc, "%s does not begin as in the model's program", prove_name(v, p->a));
}

static void prove_params(Proof *p) {
  const Graph *model = p->model;
  bool *taken = arena_array(p->a, bool, model->n_params);
  for (int i = 0; i < p->g->n_params; i++) {
    // A parameter has the role and label that it has in the model's program, mostly at its index.
    const Value *v = p->g->params[i], *is = NULL;
    int at = v->index;
    if (v->role == ROLE_copy) {
      prove_copy(p, v);
      continue;
    }
    if (at < model->n_params && !taken[at] && same_param(model->params[at], v))
      is = model->params[at];
    for (int k = 0; !is && k < model->n_params; k++)
      if (!taken[k] && same_param(model->params[k], v)) is = model->params[k];
    if (!is) {
      prove_error(p, v->loc, "%s is no parameter of the model's program", prove_name(v, p->a));
      continue;
    }
    taken[is->index] = true;
    int number = number_of(p->numbers, is);
    if (prove_padded_param(p, v, is))
      meaning(p, v)->number = UNKNOWN;
    else if (is_reshaped(v, is))
      prove_reshaped(p, v, number);
    else
      meaning(p, v)->number = number;
    prove_param(p, v, is);
  }
  for (int i = 0; i < model->n_params; i++)
    if (!taken[i])
      prove_error(p, model->params[i]->loc, "%s of the model's program is lost",
                  prove_name(model->params[i], p->a));
}

// -- Buckets ---------------------------------------------------------------------------------

// Remembers the members of a bucket, each at its offset.
static void prove_pack(Proof *p, const Op *op) {
  Bucket *bucket = arena_one(p->a, Bucket);
  int *in = arena_array(p->a, int, op->n_in);
  int64_t offset = 0;
  bucket->n = op->n_in;
  bucket->member = arena_array(p->a, Member, op->n_in);
  // A program written by hand may pack before it is distributed: then the bucket has a number, too.
  const Layout *layout = op->out[0]->layout;
  bool known = true;
  for (int axis = 0; layout && axis < layout->n_axes; axis++)
    known &= layout->axis[axis].kind == SBP_B;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    in[i] = meaning(p, v)->number;
    known &= in[i] != UNKNOWN;
    bucket->member[i] = (Member){offset, v->type, *meaning(p, v)};
    offset += pack_length(v->type);
    if (is_bucket(p, v))
      prove_error(p, op->loc, "pack: operand %d is a bucket, which cannot be in another", i);
  }
  meaning(p, op->out[0])->bucket = bucket;
  if (known) meaning(p, op->out[0])->number = number_find(p->numbers, op, in);
}

// -- Other ops -------------------------------------------------------------------------------

// Whether the einsum of the whole op permits its split along `axis`.
static bool may_split(Proof *p, const Op *op, const Dims *dims, int axis) {
  char letter = op->split[axis];
  if (letter == SPLIT_NONE) return true;
  // Partial sums pass through an op that is additive or linear in each operand.
  if (letter == SPLIT_PARTIAL) {
    if (op_traits(op) & (ADDITIVE | MULTILINEAR)) return true; // of the right operands, as verified
    prove_error(p, op->loc, "%s: cannot pass partial sums on", kind_name(op));
    return false;
  }
  int i = dims_find(dims, letter);
  if (i >= 0 && split_legal(op, dims, i, axis)) return true;
  prove_error(p, op->loc, "%s: '%c' of %s cannot be split along '%s'", kind_name(op), letter,
              dims_text(p->a, dims), op_mesh(op)->axis[axis].name);
  return false;
}

void prove_layouts(Proof *p, const Op *op, const Dims *dims) {
  const Mesh *mesh = op_mesh(op);
  Phase phase = op->graph->module->phase;
  const char *name = kind_name(op);
  if (phase < PHASE_sharded || !mesh || !op->out[0]->layout) return;
  for (int axis = 0; axis < mesh->n_axes; axis++) {
    const char *along = mesh->axis[axis].name;
    if (op->callee && op->kind != OP_loop) {
      // A called graph is unaware of ranks: every rank runs all of it.
      bool whole = op->split[axis] == SPLIT_NONE;
      for (int i = 0; i < op->n_in; i++)
        whole &= op->in[i].value->layout->axis[axis].kind == SBP_B;
      for (int i = 0; i < op->n_out; i++)
        whole &= op->out[i]->layout->axis[axis].kind == SBP_B;
      if (!whole)
        prove_error(p, op->loc, "%s: '@%s' is split along '%s'", name, op->callee->name, along);
      continue;
    }
    if (!may_split(p, op, dims, axis)) continue;
    // Before phase local no operand has been resharded yet.
    for (int i = 0; i < op->n_in && phase >= PHASE_local; i++) {
      Sbp have = op->in[i].value->layout->axis[axis], want = split_wants(op, dims, i, axis, have);
      if (!sbp_equal(have, want))
        prove_error(p, op->loc, "%s: operand %d is %s along '%s', and must be %s", name, i,
                    sbp_text(p->a, have), along, sbp_text(p->a, want));
    }
    // A fill is the same in every shard.
    for (int i = 0; i < dims->n_out && op->kind != OP_fill; i++) {
      Sbp have = op->out[i]->layout->axis[axis], gives = split_gives(op, dims, i, axis);
      if (!sbp_equal(have, gives))
        prove_error(p, op->loc, "%s: result %d is %s along '%s', and must be %s", name, i,
                    sbp_text(p->a, have), along, sbp_text(p->a, gives));
    }
  }
}

// Reports the error, and continues with the results of the op that was most likely intended.
void prove_wrong(Proof *p, const Op *op, const int *in) {
  const Op *meant = prove_why(p->numbers, op, in, p->d);
  p->ok = false;
  if (!meant || meant->n_out != op->n_out) return;
  for (int i = 0; i < op->n_out; i++) {
    *meaning(p, op->out[i]) = no_meaning;
    meaning(p, op->out[i])->number = number_of(p->numbers, meant->out[i]);
  }
}

// Whether the op may read another shape than the op of the model that has its result.
static bool ignores_shape(const Op *op) {
  return op->kind == OP_reshape || op->kind == OP_slice || op->kind == OP_concat;
}

// The einsum of the whole op: that of the model's op `is`, or of the op on operands of whole types.
static bool whole_dims(Proof *p, const Op *op, const Op *is, Dims *dims) {
  if (!ignores_shape(op)) return op_dims(is, dims, p->d);
  Graph *g = graph_new(p->scratch, "whole", false);
  Value **in = arena_array(p->a, Value *, op->n_in);
  for (int i = 0; i < op->n_in; i++) {
    const Type *t = value_whole(op->in[i].value);
    in[i] = graph_param(g, NULL, type_new(p->scratch, t->dtype, t->ndim, t->dim), ROLE_none, NULL);
  }
  // Attribute `shape` is local, too.
  const Type *to = value_whole(op->out[0]);
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  Attr *attrs = arena_copy(p->a, op->attrs, (size_t)n_attrs * sizeof *attrs);
  for (int i = 0; i < n_attrs; i++)
    if (str_equal(attrs[i].name, "shape")) attrs[i] = a_list("shape", to->dim, to->ndim);
  const Op *whole = op_new(g, NULL, op->kind, in, op->n_in, attrs, n_attrs, op_origin(op), p->d);
  bool ok = whole && op_dims(whole, dims, p->d);
  graph_erase(g);
  return ok;
}

// Whether a value is of type `is` in the model's program, as far as `types` wants it.
static bool same_whole(const Type *whole, const Type *is, Types types) {
  bool other = types == TYPES_moved ||
               (types == TYPES_widened && whole->dtype == DT_f32 && dtype_narrow(is->dtype));
  return type_equal(whole, is) || (other && type_same_dims(whole, is));
}

bool prove_known(Proof *p, const Op *op, Types types) {
  int *in = arena_array(p->a, int, op->n_in);
  bool numbered = true;
  for (int i = 0; i < op->n_in; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    in[i] = of->number;
    if (in[i] == UNKNOWN && ignores_shape(op)) in[i] = of->reshape_of;
    if (in[i] == UNKNOWN) return false;
    numbered &= of->number != UNKNOWN;
  }
  // Of slices and concats the model may have a reshape, and of a reshape another one.  An operand
  // that is only known as a reshape has another shape than its root: the op of the root is another.
  int first = UNKNOWN, root = UNKNOWN;
  if (numbered && op->kind != OP_reshape) first = number_find(p->numbers, op, in);
  if (first == UNKNOWN && ignores_shape(op)) {
    root = op->kind == OP_reshape ? in[0] : number_view(p->numbers, op, in);
    if (root == UNKNOWN) return false;
    root = number_root(p->numbers, root);
    Type whole = *value_whole(op->out[0]);
    if (types != TYPES_same) whole.dtype = number_value(p->numbers, root)->type->dtype;
    first = number_reshape(p->numbers, root, &whole);
    if (first == UNKNOWN) meaning(p, op->out[0])->reshape_of = root;
  }
  if (first == UNKNOWN && root == UNKNOWN) return false;
  for (int i = 0; i < op->n_out && first != UNKNOWN; i++) {
    const Type *whole = value_whole(op->out[i]), *type = number_value(p->numbers, first + i)->type;
    if (!same_whole(whole, type, types))
      prove_error(p, op->loc, "%s: result %d is %s as a whole, and %s in the model's program",
                  kind_name(op), i, type_text(p->a, whole), type_text(p->a, type));
  }
  // The einsum of the whole op gives the legal layouts.
  Dims dims;
  if (!whole_dims(p, op, first == UNKNOWN ? NULL : number_value(p->numbers, first)->def, &dims))
    p->ok = false;
  else
    prove_layouts(p, op, &dims);
  for (int i = 0; i < op->n_out && first != UNKNOWN; i++)
    meaning(p, op->out[i])->number = first + i;
  return true;
}

// Whether the meaning of operand `i` is known.
static bool is_meant(const Proof *p, const Op *op, int i) {
  const Meaning *of = meaning(p, op->in[i].value);
  return of->number != UNKNOWN || of->piece || of->cast_of || of->rounds_to ||
         of->reshape_of != UNKNOWN || of->padded_of || of->terms;
}

// Reports an op that the model's program does not have.
static void prove_unknown(Proof *p, const Op *op) {
  int *in = arena_array(p->a, int, op->n_in);
  bool numbers = true, pieces = true;
  for (int i = 0; i < op->n_in; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    in[i] = of->number;
    pieces &= in[i] != UNKNOWN || of->piece;
    // Of a widened operand the value of 16 bits is looked for.
    if (in[i] == UNKNOWN && of->cast_of) in[i] = of->cast_of->number;
    numbers &= in[i] != UNKNOWN;
  }
  if (numbers && !pieces) {
    prove_wrong(p, op, in);
    return;
  }
  if (pieces) {
    prove_no_pieces(p, op, in, numbers);
    return;
  }
  if (prove_no_sum(p, op)) return;
  prove_error(p, op->loc, "%s: the model's program has no such op on these operands",
              kind_name(op));
  for (int i = 0; i < op->n_in; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    const char *name = of->number != UNKNOWN
                           ? prove_name(number_value(p->numbers, of->number), p->a)
                           : lowered_name(p, op->in[i].value);
    if (name) diag_note(p->d, op->loc, "operand %d is %s", i, name);
  }
}

static void prove_op(Proof *p, const Op *op) {
  if (op->n_out == 0) return; // a call without results does nothing
  bool known = true;
  for (int i = 0; i < op->n_in; i++) {
    known &= is_meant(p, op, i);
    if (is_bucket(p, op->in[i].value))
      prove_error(p, op->loc, "%s: operand %d is a bucket of %d values", kind_name(op), i,
                  meaning(p, op->in[i].value)->bucket->n);
  }
  if (!known) {
    // Only an error leaves a value without a meaning.
    if (p->ok) prove_unknown(p, op);
    return;
  }
  bool padded = prove_padded(p, op);
  // A broadcast that is longer than one of the model's may be another of the model's, too.
  if ((padded || prove_reads_padded(p, op)) && !prove_has_whole(p, op)) {
    if (!padded) prove_unknown(p, op);
    return;
  }
  // A no-op comes first: its result is already the number of its operand.
  if (gives_operand(op)) {
    // It may change the layout, as a pin of a plan does, only before phase local.
    const Value *v = op->in[0].value, *pinned = op->out[0];
    *meaning(p, pinned) = *meaning(p, v);
    if (op->graph->module->phase >= PHASE_local && v->layout != pinned->layout)
      prove_error(p, op->loc, "%s: is %s of %s, and changes nothing else", kind_name(op),
                  layout_text(p->a, pinned->layout), layout_text(p->a, v->layout));
  } else {
    bool proved = prove_known(p, op, TYPES_same) || prove_pieces(p, op) || prove_sum(p, op);
    // Lowered operands may have a second meaning.
    if (!prove_lowered(p, op) && !proved) prove_unknown(p, op);
  }
  prove_also_pieces(p, op);
}

// -- Reading a bucket ------------------------------------------------------------------------

static void prove_unpack(Proof *p, const Op *op) {
  const Value *out = op->out[0];
  const Bucket *bucket = meaning(p, op->in[0].value)->bucket;
  int64_t offset = attr_i(op, "offset");
  if (!bucket) {
    prove_op(p, op);
    return;
  }
  // Members are sorted by offset.
  const Member *member = NULL;
  for (int low = 0, high = bucket->n; low < high && !member;) {
    int middle = (low + high) / 2;
    const Member *is = &bucket->member[middle];
    if (is->offset == offset)
      member = is;
    else if (is->offset < offset)
      low = middle + 1;
    else
      high = middle;
  }
  if (!member)
    prove_error(p, op->loc, "unpack: nothing was packed at offset %lld", (long long)offset);
  else if (!type_equal(member->type, out->type))
    prove_error(p, op->loc, "unpack: '%s' is %s, and %s was packed at offset %lld",
                value_text(p->a, out), type_text(p->a, out->type), type_text(p->a, member->type),
                (long long)offset);
  if (member) *meaning(p, out) = member->is;
}

// -- Results ---------------------------------------------------------------------------------

static bool same_result(const Result *x, const Result *y) {
  if (!x->target || !y->target) return !x->target && !y->target && str_equal(x->label, y->label);
  return same_param(x->target, y->target);
}

static const Result *find_result(const Graph *g, const Result *like, int first) {
  if (first < g->n_results && same_result(g->results[first], like)) return g->results[first];
  for (int i = 0; i < g->n_results; i++)
    if (same_result(g->results[i], like)) return g->results[i];
  return NULL;
}

static const char *result_name(const Proof *p, const Result *r) {
  return r->target ? str_format(p->a, "the update of %s", prove_name(r->target, p->a))
                   : str_format(p->a, "output '%s'", r->label);
}

static const Loc *value_loc(const Value *v) {
  return v->def ? v->def->loc : v->loc;
}

static bool is_copy_update(const Result *r) {
  return r->target && r->target->role == ROLE_copy;
}

// The updates of a graph's parameters, by parameter.
static const Result **updates_of(const Proof *p, const Graph *g) {
  const Result **of = arena_array(p->a, const Result *, g->n_params);
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->target) of[g->results[i]->target->index] = g->results[i];
  return of;
}

// A copy in 16 bits is updated with its weight, to the cast of the weight's new value.
static void prove_copy_updates(Proof *p) {
  const Result **updates = updates_of(p, p->g), **in_model = updates_of(p, p->model);
  for (int i = 0; i < p->g->n_params; i++) {
    const Value *copy = p->g->params[i], *w = NULL;
    if (copy->role == ROLE_copy && copy->label) w = table_find(p->params, ROLE_weight, copy->label);
    const Result *r = updates[i], *is = w ? in_model[w->index] : NULL;
    if (copy->role != ROLE_copy || (!is && !r)) continue;
    Meaning want = no_meaning;
    if (is) want.number = number_of(p->numbers, is->use.value);
    const Meaning *of = r ? meaning(p, r->use.value) : &no_meaning, *from = of->cast_of;
    if (!is || !from || from->number != want.number || of->dtype != w->type->dtype)
      prove_error(p, copy->loc, "%s is not updated to the cast of its weight's new value",
                  prove_name(copy, p->a));
  }
}

// Checks that each result of the model's program exists here with the same value number, and no
// other result does.
static void prove_results(Proof *p) {
  for (int i = 0; i < p->model->n_results; i++) {
    const Result *is = p->model->results[i], *r = find_result(p->g, is, i);
    const Value *want = is->use.value;
    if (!r) {
      prove_error(p, value_loc(want), "%s of the model's program is lost", result_name(p, is));
      continue;
    }
    const Meaning *of = meaning(p, r->use.value);
    const Loc *loc = value_loc(r->use.value);
    // A piece that is everything is the value, too.
    int number = number_of(p->numbers, want);
    bool same = of->number == number;
    for (const Piece *piece = of->piece; piece; piece = piece->other)
      same |= piece->number == number && piece_is_all(piece, whole_of(p, number)) &&
              type_same_dims(value_whole(r->use.value), want->type);
    if (same) continue;
    const char *name = result_name(p, r), *lowered = lowered_name(p, r->use.value);
    // Values of unknown meaning were reported at their op.
    if (is_bucket(p, r->use.value))
      prove_error(p, loc, "%s is a bucket of %d values", name, of->bucket->n);
    else if (of->number != UNKNOWN)
      prove_error(p, loc, "%s is %s, and %s in the model's program", name,
                  prove_name(number_value(p->numbers, of->number), p->a), prove_name(want, p->a));
    else if (of->piece)
      prove_error(p, loc, "%s is %s, and %s in the model's program", name, piece_name(p, of->piece),
                  prove_name(want, p->a));
    else if (lowered)
      prove_error(p, loc, "%s is %s, and %s in the model's program", name, lowered,
                  prove_name(want, p->a));
    else if (p->ok)
      prove_error(p, loc, "%s is an unknown value, and %s in the model's program", name,
                  prove_name(want, p->a));
  }
  prove_copy_updates(p);
  for (int i = 0; i < p->g->n_results; i++)
    if (!is_copy_update(p->g->results[i]) && !find_result(p->model, p->g->results[i], i))
      prove_error(p, value_loc(p->g->results[i]->use.value), "%s is none of the model's program",
                  result_name(p, p->g->results[i]));
}

// -- Graphs ----------------------------------------------------------------------------------

// Whether the op is its operand 0: a copy in host memory and back, or one that is kept for an
// update in the next step.
static bool is_same_value(const Op *op) {
  return op->kind == OP_swap_out || op->kind == OP_swap_in || op->kind == OP_swap_wait ||
         op->kind == OP_stash;
}

static void prove_reshard(Proof *p, const Op *op) {
  // A reshard is its operand: a move, and the rows of collectives.def that keep the value.
  const CollectiveRule *rule = collective_rule(op->kind);
  if (op->kind != OP_move && !rule)
    BUG("%s communicates, and the proof does not know its meaning", kind_name(op));
  if (rule && !rule->keeps_value)
    prove_error(p, op->loc, "%s changes the value of operand 0: no plan may", kind_name(op));
  // A sum over a bucket is the sum over its members; any other collective on one is an error.
  const Value *v = op->in[0].value;
  Meaning *out = meaning(p, op->out[0]);
  *out = *meaning(p, v);
  if (op->kind == OP_all_reduce || op->kind == OP_accumulate || op->kind == OP_swap_out_accumulate)
    return;
  out->bucket = NULL;
  if (is_bucket(p, v))
    prove_error(p, op->loc, "%s: operand 0 is a bucket of %d values, which can only be added up",
                kind_name(op), meaning(p, v)->bucket->n);
}

// -- Loops -----------------------------------------------------------------------------------

// Proves that a body computes that of the model's loop: a proof of its own, in which the parameters
// of both are the same values.  Its layouts are those of the operands and results of the loop, as
// verified, and these follow from the einsum of the model's loop.
static bool prove_loop_body(Proof *p, const Op *op, const Op *is) {
  const Graph *body = op->callee, *model = is->callee;
  Proof inner = {
      .model = model, .g = body, .a = p->a, .d = p->d, .scratch = p->scratch, .ok = true};
  inner.numbers = numbers_new(model, p->a);
  inner.of = arena_array(p->a, Meaning, body->n_values);
  for (uint32_t i = 0; i < body->n_values; i++)
    inner.of[i] = no_meaning;
  for (int i = 0; i < body->n_params; i++) {
    const Value *v = body->params[i], *want = model->params[i];
    if (type_equal(value_whole(v), want->type))
      meaning(&inner, v)->number = number_of(inner.numbers, want);
    else
      prove_error(&inner, op->loc, "loop: operand %d of '@%s' is %s, and %s in the model's program",
                  i, body->name, type_text(p->a, value_whole(v)), type_text(p->a, want->type));
  }
  prove_ops(&inner, body);
  for (int i = 0; inner.ok && i < body->n_results; i++) {
    const Value *v = body->results[i]->use.value, *want = model->results[i]->use.value;
    int number = number_of(inner.numbers, want);
    bool same = meaning(&inner, v)->number == number;
    for (const Piece *piece = meaning(&inner, v)->piece; piece && !same; piece = piece->other)
      same = piece->number == number && piece_is_all(piece, whole_of(&inner, number)) &&
             type_same_dims(value_whole(v), want->type);
    if (!same)
      prove_error(&inner, op->loc,
                  "loop: result %d of '@%s' is not that of '@%s' in the model's program", i,
                  body->name, model->name);
  }
  return inner.ok;
}

static void prove_loop(Proof *p, const Op *op) {
  int *in = arena_array(p->a, int, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    if ((in[i] = meaning(p, op->in[i].value)->number) == UNKNOWN) {
      if (p->ok) prove_error(p, op->loc, "loop: operand %d is no value of the model's program", i);
      return;
    }
  const Op *is = number_loop(p->numbers, op, in);
  Dims dims;
  if (!is) {
    prove_error(p, op->loc, "loop: the model's program has no such loop on these operands");
    return;
  }
  if (!op_dims(is, &dims, p->d)) {
    p->ok = false;
    return;
  }
  prove_layouts(p, op, &dims);
  p->ok &= prove_loop_body(p, op, is);
  for (int i = 0; i < op->callee->n_results; i++)
    meaning(p, op->out[i])->number = number_of(p->numbers, is->out[i]);
}

void prove_ops(Proof *p, const Graph *g) {
  for_each_op(op, g) {
    // Ops added by distribution and lowering have rules of their own; all others must be in the
    // model's program.
    if (op_info[op->kind].traits & COMM)
      prove_reshard(p, op);
    else if (is_same_value(op))
      *meaning(p, op->out[0]) = *meaning(p, op->in[0].value);
    else if (op->kind == OP_pack)
      prove_pack(p, op);
    else if (op->kind == OP_unpack)
      prove_unpack(p, op);
    else if (op_runs_graph(op) || is_joined(op->kind))
      prove_body(p, op);
    else if (op->kind == OP_loop)
      prove_loop(p, op);
    else
      prove_op(p, op);
  }
}

static bool prove_graph(const Graph *model, const Graph *g, const Wanted *want, Diag *d) {
  Proof p = {.model = model, .g = g, .a = arena_new(), .d = d, .ok = true};
  p.numbers = numbers_new(model, p.a);
  p.params = graph_params_by_label(model, p.a);
  p.scratch = module_new();
  p.scratch->phase = g->module->phase;
  p.of = arena_array(p.a, Meaning, g->n_values);
  for (uint32_t i = 0; i < g->n_values; i++)
    p.of[i] = no_meaning;
  prove_params(&p);
  prove_ops(&p, g);
  prove_results(&p);
  if (want && p.ok) prove_values(&p, want);
  module_free(p.scratch);
  arena_free(p.a);
  return p.ok;
}

bool module_asynchronous(const Module *m) {
  for_each_graph(g, m)
    for (int i = 0; g->entry && i < g->n_params; i++)
      if (g->params[i]->each_slice) return true;
  return false;
}

static bool prove_all(const Module *model, const Module *m, Wanted *want, Diag *d) {
  if (module_asynchronous(m) && !module_asynchronous(model))
    return diag_error(d, NULL,
                      "weights are updated in every micro-batch, as asynchronous schedules do "
                      "(stash_weights): no proof covers that, since it is not the model's step");
  if (model->phase >= PHASE_local)
    return diag_error(d, NULL, "the model's program is %s: its types are those of parts",
                      phase_name[model->phase]);
  Module *with = NULL;
  if (want) {
    // The copy has the values of the model's program, in their order, as long as nothing changes.
    const Graph *is = module_first_entry(model);
    with = module_clone(model);
    *want->out = (ModelValues){.graph = is ? str_copy(want->a, is->name) : NULL,
                               .fingerprint = is ? graph_fingerprint(is) : 0};
    if (is) want->value = graph_values_in_order(module_first_entry(with), want->a, &want->n);
  }
  if (!prove_model(model, m, &with, d)) {
    if (with) module_free(with);
    return false;
  }
  if (with) model = with;
  // Both programs have the same entries, and the same main one.
  bool ok = true;
  const Graph *main_one = module_first_entry(model), *first = module_first_entry(m);
  if (main_one && first && !str_equal(main_one->name, first->name))
    ok = diag_error(d, NULL, "the main entry is '@%s', and '@%s' in the model's program",
                    first->name, main_one->name);
  for_each_graph(is, model)
    if (is->entry && !entry_named(m, is->name))
      ok = diag_error(d, NULL, "'@%s' of the model's program is lost", is->name);
  for_each_graph(g, m) {
    const Graph *is = entry_named(model, g->name);
    if (g->entry)
      ok &= is ? prove_graph(is, g, g == first ? want : NULL, d)
               : diag_error(d, NULL, "'@%s' is no entry of the model's program", g->name);
  }
  if (with) module_free(with);
  return ok;
}

bool prove_module(const Module *model, const Module *m, Diag *d) {
  return prove_all(model, m, NULL, d);
}

bool prove_module_values(const Module *model, const Module *m, Arena *a, ModelValues *out,
                         Diag *d) {
  Wanted want = {.out = out, .a = a};
  return prove_all(model, m, &want, d);
}
