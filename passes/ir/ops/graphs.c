// Ops that are graphs: fused, the body of one generated kernel, and call, a repeated subgraph.
//
//     %y = call @block(%x, %w)          graph @block(%0: f32[4,8], %1: f32[8]) { … return %9 }
//
// Their meaning is that of the callee's ops in sequence.  The gradient of a call is that of its
// ops.

#include "ir/ops/graphs.h"
#include "ir/ops/einsum.h"
#include "ir/ops/index.h"

// Whether all ops compute element i from elements i, so that all dimensions can be split.
static bool is_elementwise(const Op *op) {
  const Type *shape = op->out[0]->type;
  for (int i = 0; i < op->n_in; i++) {
    const Type *t = op->in[i].value->type;
    if (t->ndim != shape->ndim || memcmp(t->dim, shape->dim, sizeof t->dim) != 0) return false;
  }
  // The body: formulas only, and no other shape in between.
  for_each_op(inner, op->callee) {
    if (!op_info[inner->kind].formula) return false;
    for (int i = 0; i < inner->n_out; i++) {
      const Type *t = inner->out[i]->type;
      if (t->ndim != shape->ndim || memcmp(t->dim, shape->dim, sizeof t->dim) != 0) return false;
    }
  }
  return true;
}

enum { MAX_LENGTHS = 52 }; // lower and upper case letters

// Adds a term that cannot be split.  Dimensions of the same length share a letter.  False if there
// are too many lengths.
static bool add_whole(Einsum *e, const Type *t, int64_t *length, int *n) {
  for (int i = 0; i < t->ndim; i++) {
    // The letter of this length.
    int which = 0;
    while (which < *n && length[which] != t->dim[i])
      which++;
    if (which == MAX_LENGTHS) return false;
    if (which == *n) length[(*n)++] = t->dim[i];
    einsum_add(e, " %c^", which < 26 ? 'a' + which : 'A' + which - 26);
  }
  return true;
}

bool callee_rule(const Op *op, Dims *dims, Diag *d) {
  int64_t length[MAX_LENGTHS];
  int n = 0;
  bool same = op->n_out > 0 && is_elementwise(op), few = true;
  Einsum e = {0};
  // Elementwise bodies share one star, which can be split; others have letters that cannot.
  for (int i = 0; i < op->n_in && few; i++) {
    einsum_add(&e, i ? "," : "");
    if (same)
      einsum_add(&e, "*");
    else
      few = add_whole(&e, op->in[i].value->type, length, &n);
  }
  einsum_add(&e, "->");
  for (int i = 0; i < op->n_out && few; i++) {
    einsum_add(&e, i ? "," : "");
    if (same && op->n_in)
      einsum_add(&e, "*");
    else
      few = add_whole(&e, op->out[i]->type, length, &n);
  }
  const char *name = op_info[op->kind].name;
  // The limits of an einsum.
  if (op->n_out > MAX_RESULTS)
    return diag_error(d, op->loc, "%s: '@%s' has more than %d results", name, op->callee->name,
                      MAX_RESULTS);
  if (!few)
    return diag_error(d, op->loc, "%s: '@%s' has more than %d different lengths", name,
                      op->callee->name, MAX_LENGTHS);
  if (!dims_parse(dims, op, e.text, d)) return false;
  // Sizes of letters that only results have; a match sets the others.
  for (int i = 0; i < n; i++)
    dims_size(dims, (char)(i < 26 ? 'a' + i : 'A' + i - 26), length[i]);
  return true;
}

bool graph_evaluate(const Op *op, const Tensor *in, Tensor *out, Diag *d) {
  const Graph *g = op->callee;
  Arena *scratch = arena_new();
  // [v->id] is the tensor of value v.
  Tensor *of = arena_array(scratch, Tensor, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    of[g->params[i]->id] = in[i];
  bool ok = true;
  for_each_op(inner, g) {
    Tensor *operands = arena_array(scratch, Tensor, inner->n_in);
    Tensor *results = arena_array(scratch, Tensor, inner->n_out);
    for (int i = 0; i < inner->n_in; i++)
      operands[i] = of[inner->in[i].value->id];
    // A callee does not know the shard's position, so ops that need it must not be in a local
    // callee.
    if (op_boxed(inner) && g->module->phase >= PHASE_local && g->module->meshes)
      ok = diag_error(d, op->loc, "%s: '%s' must not be called by ranks", op_info[op->kind].name,
                      op_info[inner->kind].name);
    else
      ok = op_evaluate(inner, operands, results, NULL, scratch, d);
    if (!ok) break;
    for (int i = 0; i < inner->n_out; i++)
      of[inner->out[i]->id] = results[i];
  }
  // Results are copied, since their tensors are in the scratch arena.
  for (int i = 0; ok && i < g->n_results; i++)
    memcpy(out[i].data, of[g->results[i]->use.value->id].data, (size_t)type_bytes(out[i].type));
  arena_free(scratch);
  return ok;
}

bool callee_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  return graph_evaluate(op, in, out, d);
}

// -- The gradient of a call --------------------------------------------------------------------

// The state of a value of the callee: its copy in the caller, and its adjoint so far.
typedef struct Known {
  Value *value, *adjoint;
} Known;

static void add_adjoint(Builder *b, Known *k, Value *dy) {
  k->adjoint = k->adjoint ? build_op(b, OP_add, IN(k->adjoint, dy), NO_ATTRS) : dy;
}

bool graph_gradient(Builder *b, const Graph *g, Value *const *in, Value *const *dout, Value **din) {
  Arena *scratch = arena_new();
  Known *known = arena_array(scratch, Known, g->n_values);
  Op **copies = arena_array(scratch, Op *, g->n_ops);
  bool ok = true;
  for (int i = 0; i < g->n_params; i++)
    known[g->params[i]->id].value = in[i];
  // The forward ops again.
  for (Op *inner = g->first; ok && inner; inner = inner->next) {
    Value **operands = arena_array(scratch, Value *, inner->n_in);
    for (int i = 0; i < inner->n_in; i++)
      operands[i] = known[inner->in[i].value->id].value;
    Op *copy = op_copy_as(b->g, b->at, inner, operands, b->origin, b->d);
    copies[inner->id] = copy;
    ok = copy != NULL;
    for (int i = 0; ok && i < inner->n_out; i++)
      known[inner->out[i]->id].value = copy->out[i];
  }
  // The adjoints of the results, propagated back to the parameters.
  for (int i = 0; ok && i < g->n_results; i++)
    if (dout[i]) add_adjoint(b, &known[g->results[i]->use.value->id], dout[i]);
  for (Op *inner = g->last; ok && inner; inner = inner->prev) {
    Value **of_out = arena_array(scratch, Value *, inner->n_out);
    Value **of_in = arena_array(scratch, Value *, inner->n_in);
    bool flows = false;
    for (int i = 0; i < inner->n_out; i++) {
      of_out[i] = known[inner->out[i]->id].adjoint;
      flows |= of_out[i] != NULL;
    }
    // An op without adjoints of its results adds to none.
    if (!flows) continue;
    // Gradients may rely on the adjoint of the first result.
    const Type *t = inner->out[0]->type;
    if (!of_out[0] && dtype_class[t->dtype] == 'F')
      of_out[0] = build_fill(b, t->dtype, t->ndim, t->dim, 0);
    ok = op_info[inner->kind].grad(b, copies[inner->id], of_out, of_in);
    for (int i = 0; ok && i < inner->n_in; i++) {
      const Value *v = inner->in[i].value;
      if (of_in[i] && dtype_class[v->type->dtype] == 'F') add_adjoint(b, &known[v->id], of_in[i]);
    }
    ok = ok && !b->failed;
  }
  for (int i = 0; ok && i < g->n_params; i++)
    din[i] = known[g->params[i]->id].adjoint;
  arena_free(scratch);
  b->failed |= !ok;
  return ok;
}

// Recomputes the callee in the caller, to give its gradients their operands, and differentiates it.
// Dead ops are dropped later, and copies that equal the call's operands and results are merged.
bool call_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Arena *a = arena_new();
  Value **in = arena_array(a, Value *, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    in[i] = op->in[i].value;
  bool ok = graph_gradient(b, op->callee, in, dout, din);
  arena_free(a);
  return ok;
}
