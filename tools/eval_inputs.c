// Makes the operands of a graph: named files, initial contents that the module gives, and random
// numbers for the rest.  Random numbers depend on the seed, the label and the element only, so two
// pipelines over one model see the same.
//
// Integers that are used as indices must be valid.  Their bound is found by following the input to
// the indexed tensor:
//
//     %y = gather %table, %ids axis=0          %table: f32[96,16]    ids are 0 to 95

#include "eval.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ir/collective.h"
#include "ir/random.h"
#include "ir/split.h"

const char *param_label(const Value *v, Arena *a) {
  if (v->role == ROLE_copy) return str_format(a, "copy %s", v->label);
  if (v->label) return v->label;
  return v->name ? v->name : str_format(a, "%%%u", v->id);
}

// -- Initial contents ------------------------------------------------------------------------

static void convert(Tensor *to, const Tensor *from) {
  bool floating = dtype_class[from->type->dtype] == 'F';
  for (int64_t i = 0; i < type_count(to->type); i++)
    if (floating)
      tensor_set_f(to, i, tensor_f(from, i));
    else
      tensor_set_i(to, i, tensor_i(from, i));
}

static bool from_init(const Value *v, const EvalOptions *o, Tensor *t, Arena *a, Diag *d) {
  const Init *init = v->init;
  int64_t n = type_count(t->type), key = random_key(param_label(v, a));
  Type stored = *t->type;
  void *bytes;
  stored.dtype = init->dtype;
  switch (init->kind) {
  // The stored element type may differ from the value's.
  case INIT_file:
  case INIT_bytes:
    if (init->length != type_bytes(&stored))
      return diag_error(d, v->loc, "'%s' has %lld bytes and its type takes %lld", param_label(v, a),
                        (long long)init->length, (long long)type_bytes(&stored));
    if (init->kind == INIT_bytes)
      bytes = arena_copy(a, init->bytes, (size_t)init->length);
    else { // a part of a file
      bytes = arena_alloc(a, (size_t)init->length);
      FILE *f = fopen(init->path, "rb");
      if (!f) return diag_error(d, v->loc, "cannot open '%s': %s", init->path, strerror(errno));
      bool ok = fseeko(f, (off_t)init->offset, SEEK_SET) == 0 &&
                fread(bytes, 1, (size_t)init->length, f) == (size_t)init->length;
      fclose(f);
      if (!ok)
        return diag_error(d, v->loc, "'%s' lacks the bytes of '%s'", init->path,
                          v->label ? v->label : "a weight");
    }
    convert(t, &(Tensor){&stored, bytes});
    return true;
  case INIT_fill:
    for (int64_t i = 0; i < n; i++)
      tensor_set_f(t, i, init->fill);
    return true;
  case INIT_normal:
    for (int64_t i = 0; i < n; i++)
      tensor_set_f(t, i, init->fill + init->to * random_normal(o->seed, 0, key, i));
    return true;
  case INIT_uniform:
    for (int64_t i = 0; i < n; i++)
      tensor_set_f(t, i, init->fill + (init->to - init->fill) * random_uniform(o->seed, 0, key, i));
    return true;
  }
  BUG("no kind of initial contents");
}

// -- Random numbers --------------------------------------------------------------------------

// Ops whose results hold elements of operand 0, or of all operands.
static bool passes_on(const Op *op, int operand) {
  const CollectiveRule *rule = collective_rule(op->kind);
  if (rule) return rule->from != SBP_P;
  switch ((int)op->kind) {
  case OP_reshape:
  case OP_transpose:
  case OP_broadcast:
  case OP_slice:
  case OP_pad:
  case OP_cast:
  case OP_gather: return operand == 0;
  case OP_concat: return true;
  case OP_where: return operand > 0;
  default: return false;
  }
}

static bool is_scatter(OpKind kind) {
  return kind == OP_scatter || kind == OP_scatter_add || kind == OP_scatter_mul ||
         kind == OP_scatter_min || kind == OP_scatter_max;
}

// The number of valid values of `v` as an index; INT64_MAX if it is none.
static int64_t index_bound(const Value *v, int depth) {
  int64_t bound = INT64_MAX;
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op) continue;
    int64_t here = INT64_MAX;
    const Type *first = value_whole(op->in[0].value);
    // The smallest bound of all readers holds.
    if (op->kind == OP_gather && u->index == 1)
      here = first->dim[attr_i(op, "axis")];
    else if (is_scatter(op->kind) && u->index == 1)
      here = first->dim[attr_i(op, "axis")];
    else if (op->kind == OP_gather_back && u->index == 0)
      here = value_whole(op->out[0])->dim[attr_i(op, "axis")];
    else if (op->kind == OP_grouped_linear && u->index == 2)
      here = first->dim[0];
    else if (op->kind == OP_grouped_linear_back_w && u->index == 0)
      here = value_whole(op->out[0])->dim[0];
    else if (op->kind == OP_expert_slots)
      here = attr_i(op, "experts");
    else if (op->kind == OP_gather_back_accumulate && u->index == 0)
      here = value_whole(op->out[0])->dim[0];
    else if ((op->kind == OP_cross_entropy || op->kind == OP_nll ||
              op->kind == OP_cross_entropy_back) &&
             u->index == 1)
      here = first->dim[first->ndim - 1];
    else if (depth < 64 && passes_on(op, u->index))
      here = index_bound(op->out[0], depth + 1);
    // Padding is no row and no class.
    if (here != INT64_MAX) here = op_unpadded(op, here);
    if (here < bound) bound = here;
  }
  return bound;
}

// -- Operands --------------------------------------------------------------------------------

static bool make(const Value *v, const EvalOptions *o, Tensor *t, Arena *a, Diag *d) {
  // The FILE of NAME=FILE, or NULL.
  const char *label = param_label(v, a);
  size_t n = strlen(label);
  const char *file = NULL;
  for (int i = 0; i < o->n_inputs; i++)
    if (str_starts(o->inputs[i], label) && o->inputs[i][n] == '=') {
      file = o->inputs[i] + n + 1;
      break;
    }

  const Type *whole = arena_copy(a, value_known(v), sizeof(Type)); // outlives the module
  if (file) return npy_read(file, whole, t, a, d);
  *t = tensor_new(a, whole);
  if (v->init) return from_init(v, o, t, a, d);
  if (v->role == ROLE_scalar && type_count(whole) == 1) {
    // Some scalars have a meaning of their own.
    if (str_equal(label, "lr"))
      tensor_set_f(t, 0, o->lr);
    else if (str_equal(label, "step"))
      tensor_set_i(t, 0, o->step);
    else if (str_equal(label, "seed"))
      tensor_set_i(t, 0, o->seed);
    else
      tensor_set_f(t, 0, 1);
  } else {
    // Random numbers fit the type; an index must be valid.
    int64_t key = random_key(label), bound = 4;
    char class = dtype_class[t->type->dtype];
    if (class == 'B') bound = 2;
    if (class == 'I' || class == 'U') {
      int64_t index = index_bound(v, 0);
      if (index != INT64_MAX) bound = index;
    }
    for (int64_t i = 0; i < type_count(t->type); i++)
      if (class == 'F')
        tensor_set_f(t, i, random_normal(o->seed, 0, key, i));
      else
        tensor_set_i(t, i, (int64_t)(random_uniform(o->seed, 0, key, i) * (double)bound));
  }
  return true;
}

bool eval_inputs(const Graph *g, const EvalOptions *o, const Values *have, Values *out, Arena *a,
                 Diag *d) {
  *out = (Values){0};
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role == ROLE_copy) continue;
    const char *label = str_copy(a, param_label(v, a));
    const Tensor *same = values_find(have, label);
    Named named = {.name = label};
    if (same && !v->init && type_equal(same->type, value_known(v)))
      named.t = *same;
    else if (!make(v, o, &named.t, a, d))
      return false;
    vec_push(a, out, named);
  }
  // The 16-bit copies are rounded weights, which have their values by now.
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role != ROLE_copy) continue;
    Named named = {.name = param_label(v, a)};
    named.t = tensor_new(a, arena_copy(a, value_whole(v), sizeof(Type)));
    convert(&named.t, values_find(out, param_label(graph_find_role(g, ROLE_weight, v->label), a)));
    vec_push(a, out, named);
  }
  return true;
}
