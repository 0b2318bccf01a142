// Operators of ai.onnx.preview.training: one step of an optimizer, and the gradient of a value.
//
//     Adam      R, T, X1, X2, G1, G2, V1, V2, H1, H2   ->  X1, X2, V1, V2, H1, H2
//     Gradient  xs=[w, b] y=loss                       ->  dloss/dw, dloss/db
//
// R is the learning rate, T the number of earlier updates, X the weights, G their gradients, V and
// H their states.  They are for models that contain a step of training; a model that nnaot trains
// needs none of them.

#include <string.h>

#include "frontend/onnx_walk.h"

static Value *root_plus(Node *n, Value *h, double eps) {
  return h ? build_op(n->b, OP_offset, IN(node_unary(n, OP_sqrt, h)), ATTRS(a_f("by", eps))) : NULL;
}

// -- Optimizers --------------------------------------------------------------------------------

// The operands of a step: `count` weights, each with a gradient and `n_states` states.
typedef struct Step {
  Value *rate, *t; // both of the type of the weights
  int count, n_states;
} Step;

static bool read_step(Node *n, int n_states, Step *s) {
  int each = 2 + n_states;
  s->n_states = n_states;
  s->count = (n->n_in - 2) / each;
  if (n->n_in != 2 + s->count * each || n->n_out > s->count * (1 + n_states))
    return node_fail(n, "has %d operands and %d results", n->n_in, n->n_out);
  for (int i = 0; i < n->n_in; i++)
    if (!n->in[i]) return node_fail(n, "operand %d is left out", i);
  if (type_count(n->in[0]->type) != 1 || type_count(n->in[1]->type) != 1)
    return node_fail(n, "its rate and count are %s and %s, not numbers",
                     type_text(n->a, n->in[0]->type), type_text(n->a, n->in[1]->type));
  DType dtype = n->in[2]->type->dtype;
  s->rate = build_cast(n->b, build_scalar(n->b, n->in[0]), dtype);
  s->t = build_cast(n->b, build_scalar(n->b, n->in[1]), dtype);
  return s->rate && s->t;
}

// Operand or result `kind` of weight i: the weight, its gradient (of operands only), its states.
static Value *operand(const Node *n, const Step *s, int kind, int i) {
  return n->in[2 + kind * s->count + i];
}

static void result(Node *n, const Step *s, int kind, int i, Value *v) {
  if (kind * s->count + i < n->n_out) n->out[kind * s->count + i] = v;
}

// The gradient of the weight, and of norm/2 |weight|^2.
static Value *regularized(Node *n, const Step *s, int i) {
  double norm = node_float(n, "norm_coefficient", 0);
  return node_add(n, build_scale(n->b, operand(n, s, 0, i), norm), operand(n, s, 1, i));
}

// t > 0 ? x : y
static Value *after_first(Node *n, const Step *s, Value *x, Value *y) {
  if (!x || !y) return NULL;
  return build_where(n->b, node_binary(n, OP_greater, s->t, node_like(n, s->t, 0)), x, y);
}

bool import_adagrad(Node *n) {
  Step s;
  if (!read_step(n, 1, &s)) return false;
  // R / (1 + T decay)
  Value *decayed = build_scale(n->b, s.t, node_float(n, "decay_factor", 0));
  Value *rate = node_div(n, s.rate, build_op(n->b, OP_offset, IN(decayed), ATTRS(a_f("by", 1))));
  double eps = node_float(n, "epsilon", 1e-6);
  for (int i = 0; i < s.count && !n->b->failed; i++) {
    Value *g = regularized(n, &s, i);
    Value *h = node_add(n, operand(n, &s, 2, i), node_mul(n, g, g));
    Value *step = node_div(n, node_mul(n, rate, g), root_plus(n, h, eps));
    result(n, &s, 0, i, node_sub(n, operand(n, &s, 0, i), step));
    result(n, &s, 1, i, h);
  }
  return !n->b->failed;
}

// 1 - by^T
static Value *one_minus_power(Node *n, const Step *s, double by) {
  Value *power = node_binary(n, OP_pow, node_like(n, s->t, by), s->t);
  return node_sub(n, node_like(n, s->t, 1), power);
}

bool import_adam(Node *n) {
  Step s;
  if (!read_step(n, 2, &s)) return false;
  double alpha = node_float(n, "alpha", 0.9), beta = node_float(n, "beta", 0.999);
  double eps = node_float(n, "epsilon", 1e-6), post = node_float(n, "norm_coefficient_post", 0);
  // R sqrt(1 - beta^T) / (1 - alpha^T), which is 0 / 0 in the first step.
  Value *root = node_unary(n, OP_sqrt, one_minus_power(n, &s, beta));
  Value *divisor = after_first(n, &s, one_minus_power(n, &s, alpha), node_like(n, s.t, 1));
  Value *rate = after_first(n, &s, node_div(n, node_mul(n, s.rate, root), divisor), s.rate);
  for (int i = 0; i < s.count && !n->b->failed; i++) {
    Value *g = regularized(n, &s, i);
    Value *v = node_add(n, build_scale(n->b, operand(n, &s, 2, i), alpha),
                        build_scale(n->b, g, 1 - alpha));
    Value *h = node_add(n, build_scale(n->b, operand(n, &s, 3, i), beta),
                        build_scale(n->b, node_mul(n, g, g), 1 - beta));
    Value *step = node_div(n, node_mul(n, rate, v), root_plus(n, h, eps));
    Value *x = node_sub(n, operand(n, &s, 0, i), step);
    result(n, &s, 0, i, build_scale(n->b, x, 1 - post));
    result(n, &s, 1, i, v);
    result(n, &s, 2, i, h);
  }
  return !n->b->failed;
}

bool import_momentum(Node *n) {
  Step s;
  if (!read_step(n, 1, &s)) return false;
  double alpha = node_float(n, "alpha", 0), beta = node_float(n, "beta", 0);
  const char *mode = node_str(n, "mode", "");
  bool nesterov = str_equal(mode, "nesterov");
  if (!nesterov && !str_equal(mode, "standard")) return node_fail(n, "its mode is '%s'", mode);
  Value *factor = after_first(n, &s, node_like(n, s.t, beta), node_like(n, s.t, 1));
  for (int i = 0; i < s.count && !n->b->failed; i++) {
    Value *g = regularized(n, &s, i);
    Value *v = node_add(n, build_scale(n->b, operand(n, &s, 2, i), alpha), node_mul(n, factor, g));
    Value *direction = nesterov ? node_add(n, g, build_scale(n->b, v, alpha)) : v;
    result(n, &s, 0, i, node_sub(n, operand(n, &s, 0, i), node_mul(n, s.rate, direction)));
    result(n, &s, 1, i, v);
  }
  return !n->b->failed;
}

// -- The gradient of a value -------------------------------------------------------------------

typedef struct Sweep {
  Node *n;
  Value *const *xs;
  int n_xs;
  uint32_t n_values; // before the gradient
  bool *varied;      // [n_values] depends on one of xs
  Value **adjoint;   // [n_values] or NULL
} Sweep;

static bool depends(const Sweep *s, const Op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (s->varied[op->in[i].value->id]) return true;
  return false;
}

// Adds the adjoints of an op's operands, if it has some of its results.
static bool sweep_op(Sweep *s, Op *op) {
  Builder *b = s->n->b;
  Value **dout = arena_array(s->n->a, Value *, op->n_out);
  Value **din = arena_array(s->n->a, Value *, op->n_in);
  bool any = false;
  for (int i = 0; i < op->n_out; i++)
    any |= (dout[i] = s->adjoint[op->out[i]->id]) != NULL;
  GradFn *grad = op_info[op->kind].grad;
  if (!any || grad == zero_grad || !depends(s, op)) return true;
  if (grad == no_grad) return node_fail(s->n, "%s has no gradient", op_info[op->kind].name);
  // Gradients may rely on the adjoint of the first result.
  if (!dout[0]) dout[0] = build_full_like(b, op->out[0], 0);
  if (!grad(b, op, dout, din) || b->failed) return false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (!din[i] || !s->varied[v->id]) continue;
    s->adjoint[v->id] = build_add(b, s->adjoint[v->id], din[i]);
  }
  return !b->failed;
}

static bool is_among(Value *const *list, int n, const Value *v) {
  for (int i = 0; i < n; i++)
    if (list[i] == v) return true;
  return false;
}

// Sweeps back from y.  The xs are independent: nothing goes back through the ops that compute them.
static bool sweep(Sweep *s, Value *y) {
  Graph *g = s->n->im->g;
  Op *last = g->last;
  s->adjoint[y->id] = build_full_like(s->n->b, y, 1);
  for_each_op(op, g)
    for (int i = 0; i < op->n_out && op->out[i]->id < s->n_values; i++)
      s->varied[op->out[i]->id] |= depends(s, op);
  for (Op *op = last; op; op = op->prev) {
    bool independent = op->n_out > 0 && is_among(s->xs, s->n_xs, op->out[0]);
    if (!independent && !sweep_op(s, op)) return false;
  }
  return true;
}

// Returns the value of a name in the attribute, which must be the operand: the gradient at other
// values is another computation.
static Value *named(Node *n, const char *name, int at) {
  Binding *b = onnx_lookup(n->scope, name);
  Value *v = b && !b->poisoned ? onnx_binding_value(n->im, b) : NULL;
  if (!v || v != node_in(n, at)) {
    node_fail(n, "operand %d is not '%s': gradients at other values are not supported", at, name);
    return NULL;
  }
  return v;
}

bool import_gradient(Node *n) {
  const Onnx__AttributeProto *xs = node_attr(n, "xs"), *zs = node_attr(n, "zs");
  const char *name = node_str(n, "y", "");
  Binding *to = onnx_lookup(n->scope, name);
  Value *y = to && !to->poisoned ? onnx_binding_value(n->im, to) : NULL;
  if (!y) return node_fail(n, "y is '%s', which no node has computed", name);
  Graph *g = n->im->g;
  int n_xs = xs ? (int)xs->n_strings : 0, n_zs = zs ? (int)zs->n_strings : 0;
  Value **x = arena_array(n->a, Value *, n_xs + 1);
  for (int i = 0; i < n_xs + n_zs; i++) {
    const Onnx__AttributeProto *list = i < n_xs ? xs : zs;
    const char *text = onnx_text(n->a, list->strings[i < n_xs ? i : i - n_xs]);
    Value *v = named(n, text, i);
    if (!v) return false;
    if (i < n_xs) x[i] = v;
  }
  Sweep s = {.n = n, .xs = x, .n_xs = n_xs, .n_values = g->n_values};
  s.varied = arena_array(n->a, bool, s.n_values);
  s.adjoint = arena_array(n->a, Value *, s.n_values);
  for (int i = 0; i < n_xs; i++)
    s.varied[x[i]->id] = true;
  if (!sweep(&s, y)) return false;
  for (int i = 0; i < n_xs && i < n->n_out; i++) {
    n->out[i] = s.adjoint[x[i]->id];
    if (!n->out[i]) n->out[i] = node_like(n, x[i], 0);
  }
  return !n->b->failed;
}
