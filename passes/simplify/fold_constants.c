// Constant folding, by the reference evaluator, so that folding agrees with the semantics of the
// op.
//
//     %a = constant value=[1,2] : f32[2]
//     %b = exp %a               : f32[2]   =>   %b = constant value=[2.7182817,7.389056] : f32[2]
//
// A fill stays a fill for any shape: a mask of 100 MB is one number, and a large triangle of it an
// op on one. A broadcast of another constant is left alone: repeating it is cheaper than storing
// it.

#include "ir/analysis/rewrite.h"
#include "ir/text.h"

enum { LARGEST_BYTES = 16 << 20 };

// Computes the number that every element of the result is into `value`: the op on scalars.
static bool evaluate_once(Builder *b, const Op *op, double *value) {
  Value *in[8];
  for (int i = 0; i < op->n_in; i++) {
    const Op *fill = op->in[i].value->def;
    in[i] = build_fill(b, attr_t(fill, "to"), 0, NULL, attr_f(fill, "value"));
  }
  // Scalar operands suffice: every element is the same.
  int n;
  op_attr_specs(op->kind, &n);
  Value *v = build_op(b, op->kind, in, op->n_in, (Attrs){op->attrs, n});
  if (!v) return false;
  Arena *a = arena_new();
  // Then the number is the result of the reference implementation.
  Tensor operands[8], result;
  for (int i = 0; i < op->n_in; i++)
    constant_tensor(in[i], &operands[i], a);
  bool ok = op_evaluate(v->def, operands, &result, NULL, a, b->d);
  if (ok) *value = tensor_f(&result, 0);
  arena_free(a);
  return ok;
}

static bool fold_fill(Builder *b, Op *op) {
  const Type *t = op->out[0]->type;
  double value;
  // An op that only moves elements keeps the value of a fill.
  OpKind kind = op->kind;
  bool moves =
      kind == OP_reshape || kind == OP_transpose || kind == OP_broadcast || kind == OP_slice;
  if (moves)
    value = attr_f(op->in[0].value->def, "value");
  else if (!op_info[op->kind].formula || !evaluate_once(b, op, &value))
    return false;
  // A double is exact except for large i64 and u64.
  if (dtype_class[t->dtype] != 'F' && (value >= 0x1p53 || value <= -0x1p53)) return false;
  Value *v = build_fill(b, t->dtype, t->ndim, t->dim, value);
  if (v) value_replace_uses(op->out[0], v);
  return v;
}

// The result of an op on one constant, as a name among the results of that constant.
static const char *result_name(const Op *op, Arena *a) {
  StrBuf name = {.arena = a};
  int n;
  op_attr_specs(op->kind, &n);
  strbuf_addf(&name, "%s %s", op_info[op->kind].name, type_text(a, op->in[0].value->type));
  for (int i = 0; i < n; i++)
    strbuf_addf(&name, " %s", attr_text(a, op, &op->attrs[i]));
  strbuf_addf(&name, " -> %s", type_text(a, op->out[0]->type));
  return name.at;
}

bool fold_constants(Builder *b, Op *op) {
  // The op needs a reference implementation, and constant operands.
  if (op->callee || op->n_in == 0 || (op_info[op->kind].traits & (COMM | ACCUMULATES)) ||
      !op_info[op->kind].reference)
    return false;
  // The result for a shard depends on the rank.
  if (op_boxed(op) && op->graph->module->phase >= PHASE_local) return false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (!v->def || (v->def->kind != OP_constant && v->def->kind != OP_fill)) return false;
  }
  // A division of integers by zero is left to the running program, if it gets there.
  if ((op->kind == OP_div || op->kind == OP_mod || op->kind == OP_fmod) &&
      dtype_class[op->out[0]->type->dtype] != 'F') {
    Arena *numbers = arena_new();
    Tensor by;
    bool zero = false;
    constant_tensor(op->in[1].value, &by, numbers);
    for (int64_t i = 0, n = type_count(by.type); i < n; i++)
      zero |= tensor_i(&by, i) == 0;
    arena_free(numbers);
    if (zero) return false;
  }
  // Fills often give a fill.
  bool fills = true;
  for (int i = 0; i < op->n_in; i++)
    fills &= op->in[i].value->def->kind == OP_fill;
  if (fills && fold_fill(b, op)) return true;
  // The result must be small, or no larger than the stored operands: a fill is one number.
  int64_t read = 0, made = 0;
  for (int i = 0; i < op->n_in; i++)
    read += fills ? (int64_t)sizeof(double) : type_bytes(op->in[i].value->type);
  for (int i = 0; i < op->n_out; i++)
    made += type_bytes(op->out[i]->type);
  if (read > 4 * (int64_t)LARGEST_BYTES) return false;
  if (made > read && (op->kind == OP_broadcast || made > LARGEST_BYTES)) return false;
  Arena *a = arena_new();
  // Another copy of the model may have folded it already.
  const Value *alone = op->n_in == 1 && op->n_out == 1 ? op->in[0].value : NULL;
  const char *name = alone ? result_name(op, a) : NULL;
  Value *known = alone ? build_known_constant(b, op->out[0]->type, alone, name) : NULL;
  if (known) {
    value_replace_uses(op->out[0], known);
    arena_free(a);
    return true;
  }
  Tensor *in = arena_array(a, Tensor, op->n_in), *out = arena_array(a, Tensor, op->n_out);
  for (int i = 0; i < op->n_in; i++)
    constant_tensor(op->in[i].value, &in[i], a);
  bool ok = op_evaluate(op, in, out, NULL, a, b->d);
  for (int i = 0; ok && i < op->n_out; i++) {
    if (!value_used(op->out[i])) continue;
    Value *v = build_constant(b, op->out[i]->type, out[i].data);
    ok = v;
    if (v && alone) constant_set_result(alone, name, v);
    if (v) value_replace_uses(op->out[i], v);
  }
  arena_free(a);
  b->failed |= !ok;
  return ok;
}
