// Rows of experts in slots that ranks exchange.
//
// grouped_linear computes on rows that may go to any expert. For ranks that each have some of the
// experts, rows that go to the same part of the experts are put together, in as many slots for each
// part and group of rows. With 2 choices of 8 experts for each of 256 tokens, in 4 parts and 16
// groups:
//
//     %h = grouped_linear %w1, %x, %e    : f32[512,32]
//     %g = gelu %h                       : f32[512,32]
//     %y = grouped_linear %w2, %g, %e    : f32[512,16]
//
//   =>
//
//     %0 = reshape %e shape=[16,32]                                       : i64[16,32]
//     %s = expert_slots %0 experts=8 parts=4 capacity=32 choices=2        : i64[16,32]
//     %1 = dispatch %0, %s shape=[4,16,32] none=true                      : i64[4,16,32]
//     %2 = reshape %x shape=[16,32,16]                                    : f32[16,32,16]
//     %3 = dispatch %2, %s shape=[4,16,32,16]                             : f32[4,16,32,16]
//     %h = grouped_linear %w1, %3, %1 parts=true                          : f32[4,16,32,32]
//     %g = gelu %h                                                        : f32[4,16,32,32]
//     %4 = grouped_linear %w2, %g, %1 parts=true                          : f32[4,16,32,16]
//     %5 = collect %4, %s                                                 : f32[16,32,16]
//     %y = reshape %5 shape=[512,16]                                      : f32[512,16]
//
// Split by groups, dispatch and collect need nothing of other ranks, and split by parts the
// products need only their experts. In between is an all_to_all (GShard, Lepikhin et al. 2020,
// section 3.2).
//
// No row is lost: a capacity of dispatch_bound cannot be exceeded, since the choices of a token are
// different experts, and rows beyond a smaller one end the run. Slots without a row cost memory and
// transfers, and no products.

#include "dispatch_experts.h"

#include "base/vec.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"

// -- The mixture -----------------------------------------------------------------------------

// The value with these elements before reshapes.
static const Value *root_of(const Value *v) {
  while (v->def && v->def->kind == OP_reshape)
    v = v->def->in[0].value;
  return v;
}

static bool is_product(const Op *op, const Value *root) {
  return op->kind == OP_grouped_linear && !attr_i(op, "parts") && root_of(op->in[2].value) == root;
}

Op *dispatch_first(Op *op) {
  const Value *root = root_of(op->in[2].value);
  for_each_op(first, op->graph)
    if (is_product(first, root)) return first;
  return op;
}

int64_t dispatch_experts_of(const Op *op) {
  return op->in[0].value->type->dim[0];
}

int64_t dispatch_rows_of(const Op *op) {
  return type_count(op->in[2].value->type);
}

// The choices of each token: different experts, one after the other in the rows. 1: unknown.
static int64_t choices_of(const Op *op) {
  const Op *best = root_of(op->in[2].value)->def;
  return best && best->kind == OP_top_k ? attr_i(best, "k") : 1;
}

int64_t dispatch_bound(const Op *op, int64_t parts, int64_t groups) {
  int64_t rows = dispatch_rows_of(op) / groups, choices = choices_of(op);
  int64_t experts = dispatch_experts_of(op) / parts;
  return choices > experts && rows % choices == 0 ? rows / choices * experts : rows;
}

// -- The rewrite -----------------------------------------------------------------------------

typedef struct Rewrite {
  Builder b;
  const Dispatch *to;
  const Value *root; // of the indices
  int64_t rows;
  Value *slots, *experts;
  bool *after, *before; // [n_ops] the op depends on a product; a product depends on it
  Value **slotted;      // [n_values] the value in slots
} Rewrite;

// The shape of `v` with `n` dimensions in the place of its rows.
static int with_rows(const Value *v, const int64_t *first, int n, int64_t *out) {
  for (int i = 0; i < n; i++)
    out[i] = first[i];
  for (int i = 1; i < v->type->ndim; i++)
    out[n + i - 1] = v->type->dim[i];
  return n + v->type->ndim - 1;
}

static int slot_shape(const Rewrite *r, const Value *v, int64_t *out) {
  return with_rows(v, (int64_t[]){r->to->parts, r->to->groups, r->to->capacity}, 3, out);
}

// `v`, with the rows in its first dimension, in slots.
static Value *in_slots(Rewrite *r, Value *v) {
  int64_t shape[MAX_NDIM];
  if (r->slotted[v->id]) return r->slotted[v->id];
  // Something that is the same in all rows is so in all slots.
  if (v->def && v->def->kind == OP_broadcast && v->def->in[0].value->type->ndim < v->type->ndim) {
    int n = slot_shape(r, v, shape);
    return r->slotted[v->id] = build_broadcast(&r->b, v->def->in[0].value, n, shape);
  }
  int n = with_rows(v, (int64_t[]){r->to->groups, r->rows / r->to->groups}, 2, shape);
  Value *grouped = build_reshape(&r->b, v, n, shape);
  n = slot_shape(r, v, shape);
  return r->slotted[v->id] =
             build_op(&r->b, OP_dispatch, IN(grouped, r->slots), ATTRS(a_list("shape", shape, n)));
}

// Whether rows of the op's result depend on the same rows of its operands only.
static bool keeps_rows(const Rewrite *r, const Op *op) {
  if (is_product(op, r->root)) return op->out[0]->type->ndim == 2;
  for (int i = 0; i < op->n_out; i++)
    if (op->out[i]->type->ndim < 1 || op->out[i]->type->dim[0] != r->rows) return false;
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->type->ndim < 1 || op->in[i].value->type->dim[0] != r->rows) return false;
  if (op->out[0]->type->ndim + 2 > MAX_NDIM) return false;
  switch ((int)op->kind) {
  case OP_slice: return attr_list(op, "starts")[0] == 0 && attr_list(op, "steps")[0] == 1;
  case OP_concat: return attr_i(op, "axis") > 0;
  case OP_reshape: return true; // the rows stay the first dimension
  case OP_softmax: return op->in[0].value->type->ndim > 1;
  }
  return op_info[op->kind].formula != NULL;
}

// A list with a number for each dimension, with `first` for those in the place of the rows.
static Attr with_first(const Op *op, const char *name, int64_t first, int64_t *at) {
  int n = attr_n(op, name);
  for (int i = 0; i < 3; i++)
    at[i] = first;
  for (int i = 1; i < n; i++)
    at[i + 2] = attr_list(op, name)[i];
  return a_list(name, at, n + 2);
}

// The op on rows in slots.
static Value *on_slots(Rewrite *r, const Op *op, Arena *a) {
  Builder *b = &r->b;
  int64_t shape[MAX_NDIM], starts[MAX_NDIM], steps[MAX_NDIM];
  Value **in = arena_array(a, Value *, op->n_in);
  if (op->kind == OP_grouped_linear)
    return build_op(b, OP_grouped_linear,
                    IN(op->in[0].value, in_slots(r, op->in[1].value), r->experts),
                    ATTRS(*op_attr(op, "trans"), a_b("parts", true), a_f("load", r->to->load)));
  for (int i = 0; i < op->n_in; i++)
    in[i] = in_slots(r, op->in[i].value);
  int n = slot_shape(r, op->out[0], shape);
  if (op->kind == OP_slice)
    return build_op(b, OP_slice, in, 1,
                    ATTRS(with_first(op, "starts", 0, starts), with_first(op, "steps", 1, steps),
                          a_list("shape", shape, n)));
  if (op->kind == OP_concat)
    return build_op(b, OP_concat, in, op->n_in, ATTRS(a_i("axis", attr_i(op, "axis") + 2)));
  if (op->kind == OP_reshape) return build_reshape(b, in[0], n, shape);
  return build_on(b, op, in);
}

// The rows of a value in slots, as it was.
static Value *from_slots(Rewrite *r, const Value *v) {
  Value *rows = build_op(&r->b, OP_collect, IN(r->slotted[v->id], r->slots), NO_ATTRS);
  return rows ? build_reshape(&r->b, rows, v->type->ndim, v->type->dim) : NULL;
}

// Ops between products, and the products.
static bool find_inside(Rewrite *r, Graph *g, Diag *d) {
  for_each_op(op, g) {
    r->after[op->id] = is_product(op, r->root);
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      r->after[op->id] |= def && r->after[def->id];
    }
  }
  for (Op *op = g->last; op; op = op->prev) {
    bool product = is_product(op, r->root), inside;
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i])
        r->before[op->id] |= u->user && r->before[u->user->id];
    r->before[op->id] |= product;
    inside = r->before[op->id] && r->after[op->id];
    if (!inside || keeps_rows(r, op)) continue;
    return diag_error(d, op->loc, "%s: mixes the rows of experts between two of their products",
                      op_info[op->kind].name);
  }
  return true;
}

// The slots of the rows, and the expert of each slot.
static void build_slots(Rewrite *r, const Op *first) {
  const Dispatch *to = r->to;
  int64_t grouped[] = {to->groups, r->rows / to->groups};
  int64_t choices = choices_of(first);
  Value *e = build_reshape(&r->b, first->in[2].value, 2, grouped);
  r->slots =
      build_op(&r->b, OP_expert_slots, IN(e),
               ATTRS(a_i("experts", dispatch_experts_of(first)), a_i("parts", to->parts),
                     a_i("capacity", to->capacity),
                     a_i("choices", choices > 1 && grouped[1] % choices == 0 ? choices : 0)));
  int64_t shape[] = {to->parts, to->groups, to->capacity};
  r->experts = build_op(&r->b, OP_dispatch, IN(e, r->slots),
                        ATTRS(a_list("shape", shape, 3), a_b("none", true)));
}

bool dispatch_experts(Op *op, const Dispatch *to, Diag *d) {
  Op *first = dispatch_first(op);
  Graph *g = op->graph;
  int64_t experts = dispatch_experts_of(first), rows = dispatch_rows_of(first);
  if (to->parts < 1 || experts % to->parts != 0)
    return diag_error(d, first->loc, "grouped_linear: %lld experts are not %lld equal parts",
                      (long long)experts, (long long)to->parts);
  if (to->groups < 1 || rows % to->groups != 0)
    return diag_error(d, first->loc, "grouped_linear: %lld rows are not %lld equal groups",
                      (long long)rows, (long long)to->groups);
  Arena *a = arena_new();
  graph_renumber(g);
  Rewrite r = {.b = {.g = g, .at = first, .origin = op_origin(first), .d = d}, .to = to};
  r.root = root_of(first->in[2].value);
  r.rows = rows;
  r.after = arena_array(a, bool, g->n_ops);
  r.before = arena_array(a, bool, g->n_ops);
  r.slotted = arena_array(a, Value *, g->n_values);
  // New ops have larger ids than the old ones, which are visited in their order.
  int n_ops = g->n_ops;
  bool ok = find_inside(&r, g, d);
  if (ok) build_slots(&r, first);
  Vec(Op *) inside = {0};
  for_each_op(each, g)
    if (ok && (int)each->id < n_ops && r.before[each->id] && r.after[each->id])
      vec_push(a, &inside, each);
  for (int i = 0; i < inside.n && !r.b.failed; i++) {
    Op *each = inside.at[i];
    r.b.at = each;
    r.b.origin = op_origin(each);
    r.slotted[each->out[0]->id] = on_slots(&r, each, a);
  }
  // Readers outside get rows.
  for (int i = 0; i < inside.n && !r.b.failed; i++) {
    Op *each = inside.at[i];
    bool outside = false;
    for_each_use(u, each->out[0])
      outside |=
          !u->user || (int)u->user->id >= n_ops || !(r.before[u->user->id] && r.after[u->user->id]);
    if (!outside) continue;
    r.b.at = each;
    r.b.origin = op_origin(each);
    Value *back = from_slots(&r, each->out[0]);
    if (back) value_replace_uses(each->out[0], back);
  }
  ok &= !r.b.failed;
  for (int i = inside.n - 1; ok && i >= 0; i--)
    op_erase(inside.at[i]);
  graph_renumber(g);
  arena_free(a);
  return ok;
}
