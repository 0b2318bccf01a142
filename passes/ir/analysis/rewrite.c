// Replacement of ops by better ones: see rewrite.h.

#include "rewrite.h"

#include <string.h>

#include "base/vec.h"

int drop_dead(Graph *g) {
  int n = 0;
  for (Op *op = g->last, *prev; op; op = prev) {
    // From the last op back, so that the producers of dead ops die too.
    prev = op->prev;
    if (op_used(op)) continue;
    op_erase(op);
    n++;
  }
  return n;
}

void drop_unread(Op *op) {
  if (op_used(op)) return;
  Arena *a = arena_new();
  Vec(Op *) pending = {0};
  vec_push(a, &pending, op);
  while (pending.n > 0) {
    Op *dead = pending.at[--pending.n];
    int n = dead->n_in;
    Value **in = arena_array(a, Value *, n);
    // Saved first, since op_erase unlinks the operands.
    for (int i = 0; i < n; i++)
      in[i] = dead->in[i].value;
    op_erase(dead);
    // Each producer is pushed once, although several operands may be its results.
    for (int i = 0; i < n; i++) {
      bool again = false;
      for (int k = 0; k < i; k++)
        again |= in[k]->def == in[i]->def;
      if (in[i]->def && !again && !op_used(in[i]->def)) vec_push(a, &pending, in[i]->def);
    }
  }
  arena_free(a);
}

void value_replace_uses(Value *v, Value *by) {
  if (v->type != by->type)
    BUG("%s is replaced by a value of another type", v->def ? op_info[v->def->kind].name : "it");
  value_replace(v, by);
  // The name moves to the replacement, so that the text stays readable.
  if (v->name && !by->name) {
    const char *name = v->name;
    value_set_name(v, NULL);
    value_set_name(by, name);
  }
}

Op *made_by(const Value *v, OpKind kind) {
  return v->def && v->def->kind == kind ? v->def : NULL;
}

bool is_fill(const Value *v, double *value) {
  const Op *op = made_by(v, OP_fill);
  if (op) *value = attr_f(op, "value");
  return op;
}

bool constant_tensor(const Value *v, Tensor *out, Arena *a) {
  const Op *op = v->def;
  if (!op || (op->kind != OP_fill && op->kind != OP_constant)) return false;
  *out = tensor_new(a, v->type);
  if (op->kind == OP_constant) {
    const Attr *value = op_attr(op, "value");
    memcpy(out->data, value->data.at, (size_t)value->data.n);
    return true;
  }
  // A fill has all elements equal: copies of the first, of twice as many each time.
  int64_t bytes = type_bytes(v->type), done = dtype_bytes[v->type->dtype];
  if (bytes) tensor_set_f(out, 0, attr_f(op, "value"));
  for (; done < bytes; done *= 2)
    memcpy((char *)out->data + done, out->data,
           (size_t)(done < bytes - done ? done : bytes - done));
  return true;
}

Value *build_transposed(Builder *b, Value *v, const int64_t *perm) {
  Op *earlier = v ? made_by(v, OP_transpose) : NULL;
  if (!earlier) return build_transpose(b, v, perm);
  int64_t both[MAX_NDIM];
  // Two transposes are one.
  for (int i = 0; i < v->type->ndim; i++)
    both[i] = attr_list(earlier, "perm")[perm[i]];
  return build_transpose(b, earlier->in[0].value, both);
}

bool has_perm(const Op *op, const int64_t *perm) {
  int n = op->out[0]->type->ndim;
  return n == 0 || memcmp(attr_list(op, "perm"), perm, (size_t)n * sizeof *perm) == 0;
}

Value *first_operand(const Op *op) {
  return op->in[0].value;
}

bool same_shape(const Type *x, const Type *y) {
  return x->ndim == y->ndim &&
         (x->ndim == 0 || memcmp(x->dim, y->dim, (size_t)x->ndim * sizeof *x->dim) == 0);
}

Value *build_on(Builder *b, const Op *op, Value *const *in) {
  int n;
  op_attr_specs(op->kind, &n);
  return build_op(b, op->kind, in, op->n_in, (Attrs){op->attrs, n});
}
