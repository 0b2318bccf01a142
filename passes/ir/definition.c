// See definition.h.  The table is at the end: one row for each joined op, in the order of ops.def.
//
// Ops that read a tensor of 16 bits and compute in f32 cast it, as mixed_precision does.

#include "definition.h"

#include <string.h>

#include "ir/analysis/local.h"
#include "ir/collective.h"

// The ops of a definition are built at the end of a graph, or before an op.
typedef struct Draft {
  Builder b;
  const Op *op;     // the joined op
  Value *const *in; // its operands there
  Value *out[MAX_RESULTS];
  const Layout *layout[MAX_RESULTS]; // of the results, from PHASE_local on
} Draft;

// -- One op ----------------------------------------------------------------------------------

// Builds an op whose result 0 has the layout `want`; NULL: any that its operands allow.
static Value *make(Draft *f, OpKind kind, Value *const *in, int n_in, Attrs attrs,
                   const Layout *want) {
  bool known = n_in > 0 && !f->b.failed;
  for (int i = 0; i < n_in; i++)
    known &= in[i] != NULL;
  // Without layouts, or after an error.
  if (!known || !in[0]->layout) return build_op(&f->b, kind, in, n_in, attrs);
  if (op_info[kind].traits & COMM) {
    Value *v = build_op(&f->b, kind, in, n_in, attrs);
    Sbp axis[MAX_AXES];
    f->b.failed |= !v || !collective_gives(v->def, axis, f->b.d);
    if (f->b.failed) return NULL;
    v->layout = layout_new(f->b.g->module, in[0]->layout->mesh, axis);
    return v;
  }
  const Op *op = local_op_for(&f->b, kind, in, n_in, attrs, want);
  if (op) return op->out[0];
  diag_error(f->b.d, f->op->loc, "%s: is split in a way that its %s cannot be",
             op_info[f->op->kind].name, op_info[kind].name);
  f->b.failed = true;
  return NULL;
}

static Value *cast(Draft *f, Value *v, DType to) {
  if (!v || v->type->dtype == to) return v;
  return make(f, OP_cast, IN(v), ATTRS(a_t("to", to)), v->layout);
}

static Value *result(const Value *first, int i) {
  return first ? first->def->out[i] : NULL;
}

static Attr attr(const Draft *f, const char *name) {
  return *op_attr(f->op, name);
}

static Attr shape(const int64_t *dim, int n) {
  return a_list("shape", dim, n);
}

// -- Products --------------------------------------------------------------------------------

static Value *product_and_bias(Draft *f) {
  Value *y = make(f, OP_linear, IN(f->in[0], f->in[1]), ATTRS(attr(f, "trans")), NULL);
  if (!y) return NULL;
  Value *b =
      make(f, OP_broadcast, IN(f->in[2]), ATTRS(shape(y->type->dim, y->type->ndim)), y->layout);
  return make(f, OP_add, IN(b, y), NO_ATTRS, y->layout);
}

static void define_linear_bias(Draft *f) {
  f->out[0] = product_and_bias(f);
}

static void define_linear_gelu_tanh(Draft *f) {
  f->out[1] = product_and_bias(f);
  f->out[0] = make(f, OP_gelu_tanh, IN(f->out[1]), NO_ATTRS, NULL);
}

static void define_linear_gelu_tanh_back(Draft *f) {
  Value *dy = make(f, OP_linear, IN(f->in[0], f->in[1]), ATTRS(attr(f, "trans")), NULL);
  f->out[0] = make(f, OP_gelu_tanh_back, IN(f->in[2], dy), NO_ATTRS, NULL);
}

// The gradients of a weight and of its bias, from x and dy.
static void define_linear_back_w_bias(Draft *f) {
  Value *dy = f->in[1];
  int64_t axes[MAX_NDIM];
  int n = dy->type->ndim - 1;
  for (int i = 0; i < n; i++)
    axes[i] = i;
  f->out[0] = make(f, OP_linear_back_w, IN(f->in[0], dy), ATTRS(attr(f, "trans")), NULL);
  if (!f->out[0]) return;
  Value *wide = cast(f, dy, f->out[0]->type->dtype);
  f->out[1] = make(f, OP_reduce_sum, IN(wide), ATTRS(a_list("axes", axes, n)), f->layout[1]);
}

static void define_linear_back_w_accumulate(Draft *f) {
  Value *dw = make(f, OP_linear_back_w, IN(f->in[0], f->in[1]), ATTRS(attr(f, "trans")), NULL);
  f->out[0] = make(f, OP_accumulate, IN(dw), ATTRS(attr(f, "axis")), NULL);
}

static void define_linear_back_w_bias_accumulate(Draft *f) {
  define_linear_back_w_bias(f);
  f->out[0] = make(f, OP_accumulate, IN(f->out[0]), ATTRS(attr(f, "axis")), NULL);
}

static void define_gather_back_accumulate(Draft *f) {
  // The operands do not show which rows of the table are of this shard.
  const Layout *want = f->layout[0];
  int time = want ? op_time_axis(f->op) : -1;
  if (time >= 0) {
    Sbp axis[MAX_AXES];
    memcpy(axis, want->axis, (size_t)want->n_axes * sizeof *axis);
    axis[time] = (Sbp){.kind = SBP_P};
    want = layout_new(f->b.g->module, want->mesh, axis);
  }
  Value *dx = make(f, OP_gather_back, IN(f->in[0], f->in[1]),
                   ATTRS(attr(f, "shape"), a_i("axis", 0), a_i("batch", 0)), want);
  f->out[0] = make(f, OP_accumulate, IN(dx), ATTRS(attr(f, "axis")), NULL);
}

// The loss over classes that a product computes, and the logits.
static Value *loss_of_product(Draft *f, Value **logits) {
  *logits = make(f, OP_linear, IN(f->in[0], f->in[1]), ATTRS(attr(f, "trans")), NULL);
  return make(f, OP_cross_entropy, IN(*logits, f->in[2]), ATTRS(attr(f, "ignore")), NULL);
}

static void define_classifier(Draft *f) {
  Value *logits;
  f->out[0] = loss_of_product(f, &logits);
}

static void define_classifier_back(Draft *f) {
  Value *logits, *loss = loss_of_product(f, &logits), *x = f->in[0], *w = f->in[1];
  Value *d = make(f, OP_cross_entropy_back, IN(logits, f->in[2], result(loss, 1), f->in[3]),
                  ATTRS(attr(f, "ignore")), NULL);
  bool trans = attr_i(f->op, "trans");
  f->out[0] = loss;
  f->out[1] = make(f, OP_linear, IN(d, w), ATTRS(a_b("trans", !trans)), NULL);
  f->out[2] = make(f, OP_linear_back_w, IN(x, d), ATTRS(a_b("trans", trans)), NULL);
}

// -- Norms -----------------------------------------------------------------------------------

static void define_add_layer_norm(Draft *f) {
  f->out[0] = make(f, OP_add, IN(f->in[0], f->in[1]), NO_ATTRS, NULL);
  f->out[1] =
      make(f, OP_layer_norm, IN(f->out[0], f->in[2], f->in[3]), ATTRS(attr(f, "eps")), NULL);
  f->out[2] = result(f->out[1], 1);
  f->out[3] = result(f->out[1], 2);
}

static void define_add_rms_norm(Draft *f) {
  f->out[0] = make(f, OP_add, IN(f->in[0], f->in[1]), NO_ATTRS, NULL);
  f->out[1] = make(f, OP_rms_norm, IN(f->out[0], f->in[2]), ATTRS(attr(f, "eps")), NULL);
  f->out[2] = result(f->out[1], 1);
}

// The adjoint of a norm's operand, added to the one that comes from elsewhere.
static void add_adjoint(Draft *f, OpKind back) {
  Value *dx = make(f, back, f->in + 1, f->op->n_in - 1, NO_ATTRS, NULL);
  f->out[0] = make(f, OP_add, IN(f->in[0], dx), NO_ATTRS, NULL);
  for (int i = 1; i < f->op->n_out; i++)
    f->out[i] = result(dx, i);
}

static void define_layer_norm_back_add(Draft *f) {
  add_adjoint(f, OP_layer_norm_back);
}

static void define_rms_norm_back_add(Draft *f) {
  add_adjoint(f, OP_rms_norm_back);
}

// -- Batch normalisation ---------------------------------------------------------------------

// One number per channel, for every element of x.
static Value *each_element(Draft *f, Value *v) {
  const Value *x = f->in[0];
  int after = x->type->ndim - 1 - (int)attr_i(f->op, "axis");
  if (v && after > 0) {
    int64_t dim[MAX_NDIM] = {v->type->dim[0]};
    for (int i = 1; i <= after; i++)
      dim[i] = 1;
    v = make(f, OP_reshape, IN(v), ATTRS(shape(dim, after + 1)), NULL);
  }
  return make(f, OP_broadcast, IN(v), ATTRS(shape(x->type->dim, x->type->ndim)), x->layout);
}

static Value *binary(Draft *f, OpKind kind, Value *x, Value *y) {
  return make(f, kind, IN(x, y), NO_ATTRS, NULL);
}

// 1 / sqrt(var + eps), for every element: cheaper than a kernel for the channels.
static Value *deviation(Draft *f, Value *var) {
  Value *v =
      make(f, OP_offset, IN(each_element(f, var)), ATTRS(a_f("by", attr_f(f->op, "eps"))), NULL);
  return make(f, OP_rsqrt, IN(v), NO_ATTRS, NULL);
}

// y = (x - mean) / sqrt(var + eps) g + b
static void define_batch_norm(Draft *f) {
  DType wide = f->in[3]->type->dtype;
  Value *x = cast(f, f->in[0], wide), *mean = each_element(f, f->in[3]);
  Value *h = binary(f, OP_sub, x, mean), *rstd = deviation(f, f->in[4]);
  h = binary(f, OP_mul, h, rstd);
  Value *g = each_element(f, f->in[1]), *y = binary(f, OP_mul, h, g);
  Value *b = each_element(f, f->in[2]);
  f->out[0] = cast(f, binary(f, OP_add, y, b), f->in[0]->type->dtype);
}

// dx = g rstd ((dy - db / count) - (x - mean) rstd dg / count)
static void define_batch_norm_back(Draft *f) {
  DType wide = f->in[2]->type->dtype;
  Attr part = a_f("by", 1 / (double)attr_i(f->op, "count"));
  Value *x = cast(f, f->in[0], wide), *dy = cast(f, f->in[4], wide);
  Value *rstd = deviation(f, f->in[3]), *mean = each_element(f, f->in[2]);
  Value *h = binary(f, OP_mul, binary(f, OP_sub, x, mean), rstd);
  Value *dg = make(f, OP_scale, IN(each_element(f, f->in[5])), ATTRS(part), NULL);
  Value *db = make(f, OP_scale, IN(each_element(f, f->in[6])), ATTRS(part), NULL);
  Value *dx = binary(f, OP_sub, dy, db);
  dx = binary(f, OP_sub, dx, binary(f, OP_mul, h, dg));
  dx = binary(f, OP_mul, dx, rstd);
  Value *g = each_element(f, f->in[1]);
  f->out[0] = cast(f, binary(f, OP_mul, dx, g), f->in[0]->type->dtype);
}

// -- Attention -------------------------------------------------------------------------------

// Rows (b, t, h d) as heads (b, t, h, d).
static Value *as_heads(Draft *f, Value *v) {
  int64_t heads = attr_i(f->op, "heads");
  if (!v) return NULL;
  const int64_t *dim = v->type->dim;
  return make(f, OP_reshape, IN(v),
              ATTRS(shape((int64_t[]){dim[0], dim[1], heads, dim[2] / heads}, 4)), NULL);
}

static Value *as_rows(Draft *f, Value *v) {
  if (!v) return NULL;
  const int64_t *dim = v->type->dim;
  return make(f, OP_reshape, IN(v), ATTRS(shape((int64_t[]){dim[0], dim[1], dim[2] * dim[3]}, 3)),
              NULL);
}

// The heads of q, k and v: thirds of the rows of x.
static void unpack_heads(Draft *f, Value **part) {
  static const int64_t one[] = {1, 1, 1};
  const int64_t *dim = f->in[0]->type->dim;
  for (int i = 0; i < 3; i++) {
    int64_t start[] = {0, 0, i * (dim[2] / 3)}, of[] = {dim[0], dim[1], dim[2] / 3};
    Value *third =
        make(f, OP_slice, IN(f->in[0]),
             ATTRS(a_list("starts", start, 3), a_list("steps", one, 3), shape(of, 3)), NULL);
    part[i] = as_heads(f, third);
  }
}

static void define_attention_packed(Draft *f) {
  Value *part[3];
  unpack_heads(f, part);
  Value *y = make(f, OP_attention, part, 3,
                  ATTRS(attr(f, "scale"), attr(f, "causal"), a_b("seq_major", true)), NULL);
  f->out[0] = as_rows(f, y);
  f->out[1] = result(y, 1);
}

static void define_attention_packed_back(Draft *f) {
  Value *part[3];
  unpack_heads(f, part);
  Value *in[] = {part[0], part[1], part[2], as_heads(f, f->in[1]), f->in[2], as_heads(f, f->in[3])};
  Value *dq = make(f, OP_attention_back, in, 6,
                   ATTRS(attr(f, "scale"), attr(f, "causal"), a_b("seq_major", true)), NULL);
  if (!dq) return;
  f->out[0] =
      make(f, OP_concat, IN(as_rows(f, dq), as_rows(f, result(dq, 1)), as_rows(f, result(dq, 2))),
           ATTRS(a_i("axis", 2)), NULL);
}

// -- The table -------------------------------------------------------------------------------

static const struct {
  OpKind kind;
  void (*define)(Draft *f); // sets the results, or `b.failed`
} definitions[] = {
    {OP_linear_bias, define_linear_bias},
    {OP_linear_gelu_tanh, define_linear_gelu_tanh},
    {OP_linear_gelu_tanh_back, define_linear_gelu_tanh_back},
    {OP_linear_back_w_bias, define_linear_back_w_bias},
    {OP_linear_back_w_accumulate, define_linear_back_w_accumulate},
    {OP_linear_back_w_bias_accumulate, define_linear_back_w_bias_accumulate},
    {OP_gather_back_accumulate, define_gather_back_accumulate},
    {OP_classifier, define_classifier},
    {OP_classifier_back, define_classifier_back},
    {OP_add_layer_norm, define_add_layer_norm},
    {OP_add_rms_norm, define_add_rms_norm},
    {OP_layer_norm_back_add, define_layer_norm_back_add},
    {OP_rms_norm_back_add, define_rms_norm_back_add},
    {OP_batch_norm, define_batch_norm},
    {OP_batch_norm_back, define_batch_norm_back},
    {OP_attention_packed, define_attention_packed},
    {OP_attention_packed_back, define_attention_packed_back},
};

enum { N_DEFINITIONS = sizeof definitions / sizeof *definitions };

bool is_joined(OpKind kind) {
  for (int i = 0; i < N_DEFINITIONS; i++)
    if (definitions[i].kind == kind) return true;
  return false;
}

// Builds the ops.  False, after an error, if they are not legal.
static bool define(Draft *f) {
  for (int i = 0; i < f->op->n_out; i++)
    f->layout[i] = f->b.g->module->phase >= PHASE_local ? f->op->out[i]->layout : NULL;
  for (int i = 0; i < N_DEFINITIONS; i++)
    if (definitions[i].kind == f->op->kind) definitions[i].define(f);
  return !f->b.failed;
}

Graph *op_definition(const Op *op, Module *m, bool exact, Diag *d) {
  Graph *g = graph_new(m, op_info[op->kind].name, false);
  Value *in[MAX_TERMS];
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    bool wide = exact && dtype_class[v->type->dtype] == 'F';
    const Type *t = type_new(m, wide ? DT_f64 : v->type->dtype, v->type->ndim, v->type->dim);
    in[i] = graph_param(g, NULL, t, ROLE_none, NULL);
    // Before local the operands do not have the layouts yet that the op needs.
    if (v->layout && m->phase >= PHASE_local)
      in[i]->layout = layout_new(m, v->layout->mesh, v->layout->axis);
  }
  Draft f = {.b = {.g = g, .origin = op_origin(op), .d = d}, .op = op, .in = in};
  if (exact) m->phase = PHASE_typed;
  if (!define(&f)) {
    graph_erase(g);
    return NULL;
  }
  for (int i = 0; i < op->n_out; i++)
    graph_output(g, f.out[i], NULL);
  return g;
}

Value **op_expand(Op *op, Arena *a, Diag *d) {
  Value **in = arena_array(a, Value *, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    in[i] = op->in[i].value;
  Draft f = {.b = {.g = op->graph, .at = op, .origin = op_origin(op), .d = d}, .op = op, .in = in};
  return define(&f) ? arena_copy(a, f.out, sizeof f.out) : NULL;
}

bool joined_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box; // no joined op depends on the position of a shard
  Arena *a = arena_new();
  Module *m = module_new();
  const Graph *g = op_definition(op, m, true, d);
  bool ok = g != NULL;
  Tensor *of = ok ? arena_array(a, Tensor, g->n_values) : NULL;
  // Operands in f64, and the ops in sequence.
  for (int i = 0; ok && i < op->n_in; i++) {
    Tensor *t = &of[g->params[i]->id];
    *t = in[i];
    if (in[i].type->dtype == g->params[i]->type->dtype) continue;
    *t = tensor_new(a, g->params[i]->type);
    for (int64_t k = 0; k < type_count(t->type); k++)
      tensor_set_f(t, k, tensor_f(&in[i], k));
  }
  for (const Op *each = ok ? g->first : NULL; ok && each; each = each->next) {
    Tensor *operand = arena_array(a, Tensor, each->n_in);
    Tensor *made = arena_array(a, Tensor, each->n_out);
    for (int i = 0; i < each->n_in; i++)
      operand[i] = of[each->in[i].value->id];
    ok = op_evaluate(each, operand, made, NULL, a, d);
    for (int i = 0; ok && i < each->n_out; i++)
      of[each->out[i]->id] = made[i];
  }
  // Results are rounded once.
  for (int i = 0; ok && i < op->n_out; i++) {
    const Tensor *exact = &of[g->results[i]->use.value->id];
    for (int64_t k = 0; k < type_count(out[i].type); k++)
      tensor_set_f(&out[i], k, tensor_f(exact, k));
  }
  module_free(m);
  arena_free(a);
  return ok;
}
