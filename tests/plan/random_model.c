// Random training steps: ops of all kinds, one after the other, on any earlier values; the sum of
// the unread values is the loss, and autodiff and optimizer turn it into a training step.
//
//     %x: f64[4,6] input "x"
//     %1 = linear %x, %w1         f64[4,8]
//     %2 = transpose %1           f64[8,4]
//     %3 = softmax %2 axis=1
//     %4 = add %1, …
//
// All values are f64, so that different orders of summation give nearly equal results, also with
// cancellation.

#include "random_plans.h"

#include <string.h>

#include "base/vec.h"
#include "ir/build.h"
#include "ir/op.h"
#include "pass.h"

enum { LARGEST = 600, RECENT = 6 };

typedef struct Maker {
  Random *r;
  Builder b;
  Module *m;
  Graph *g;
  Vec(Value *) values; // f64, no scalars
  int n_params;
} Maker;

static int some_length(Maker *k) {
  static const int lengths[] = {2, 3, 4, 4, 6, 8, 8, 12};
  return lengths[below(k->r, sizeof lengths / sizeof *lengths)];
}

static Value *param(Maker *k, Role role, DType dtype, int ndim, const int64_t *dim) {
  Arena *a = k->m->arena;
  const char *name = str_format(a, "%c%d", role == ROLE_input ? 'x' : 'w', k->n_params++);
  Value *v =
      graph_param(k->g, name, type_new(k->m, dtype, ndim, dim), role, loc_node(a, "m", name));
  v->label = name;
  if (role == ROLE_weight) {
    v->train = true;
    Init *init = arena_one(a, Init);
    *init = (Init){.kind = INIT_normal, .dtype = dtype, .to = 0.5};
    v->init = init;
  }
  return v;
}

static Value *scalar(Maker *k, const char *label, DType dtype) {
  Value *v = graph_find_param(k->g, label);
  if (v) return v;
  v = graph_param(k->g, label, type_scalar(k->m, dtype), ROLE_scalar, NULL);
  v->label = label;
  return v;
}

static Value *pick(Maker *k) {
  int n = k->values.n, recent = n < RECENT ? n : RECENT;
  return k->values.at[n - 1 - below(k->r, chance(k->r, 80) ? recent : n)];
}

// Returns a value of the type of `v`: an existing one, a new weight, or a fill.
static Value *like(Maker *k, const Value *v) {
  for (int tries = 0; tries < 6; tries++) {
    Value *other = pick(k);
    if (other->type == v->type && other != v) return other;
  }
  if (chance(k->r, 20)) return build_fill(&k->b, DT_f64, v->type->ndim, v->type->dim, 0.5);
  return param(k, chance(k->r, 70) ? ROLE_weight : ROLE_input, DT_f64, v->type->ndim, v->type->dim);
}

static void keep(Maker *k, Value *v) {
  if (!v) BUG("a random op does not fit");
  if (v->type->ndim > 0 && type_count(v->type) <= LARGEST) vec_push(k->m->arena, &k->values, v);
}

static Value *op1(Maker *k, OpKind kind, Value *x, Attrs attrs) {
  return build_op(&k->b, kind, IN(x), attrs);
}

static int some_axis(Maker *k, const Value *x) {
  return below(k->r, x->type->ndim);
}

// -- One op of each kind ---------------------------------------------------------------------

static void elementwise_op(Maker *k) {
  static const OpKind one[] = {OP_neg, OP_tanh,  OP_sigmoid, OP_relu,   OP_gelu, OP_softplus,
                               OP_abs, OP_scale, OP_sin,     OP_offset, OP_atan, OP_asinh};
  Value *x = pick(k);
  OpKind kind = one[below(k->r, sizeof one / sizeof *one)];
  bool by = kind == OP_scale || kind == OP_offset;
  keep(k, op1(k, kind, x, by ? ATTRS(a_f("by", 0.5)) : NO_ATTRS));
}

// To compare with x.  Two values may be the same one in the end, as x and x transposed twice; their
// sums may be rounded differently, and whether they are equal is then no property of the model.
static Value *unlike(Maker *k, const Value *x) {
  return op1(k, OP_offset, like(k, x), ATTRS(a_f("by", 0.01)));
}

static void two_operands(Maker *k) {
  static const OpKind two[] = {OP_add, OP_add, OP_sub, OP_mul, OP_max, OP_min};
  OpKind kind = two[below(k->r, sizeof two / sizeof *two)];
  Value *x = pick(k), *y = kind == OP_max || kind == OP_min ? unlike(k, x) : like(k, x);
  keep(k, build_op(&k->b, kind, IN(x, y), NO_ATTRS));
}

static void choice(Maker *k) {
  Value *x = pick(k), *y = unlike(k, x);
  Value *greater = build_op(&k->b, OP_greater, IN(x, y), NO_ATTRS);
  keep(k, build_op(&k->b, OP_where, IN(greater, x, like(k, x)), NO_ATTRS));
}

static void linear(Maker *k) {
  Value *x = pick(k);
  bool trans = chance(k->r, 30);
  int64_t in = x->type->dim[x->type->ndim - 1], out = some_length(k);
  Value *w = param(k, ROLE_weight, DT_f64, 2, trans ? (int64_t[]){out, in} : (int64_t[]){in, out});
  Value *y = build_op(&k->b, OP_linear, IN(x, w), ATTRS(a_b("trans", trans)));
  keep(k, y);
  if (!chance(k->r, 40)) return;
  Value *bias = param(k, ROLE_weight, DT_f64, 1, &out);
  keep(k, build_op(&k->b, OP_add, IN(y, build_broadcast(&k->b, bias, y->type->ndim, y->type->dim)),
                   NO_ATTRS));
}

static void matmul(Maker *k) {
  Value *x = pick(k);
  if (x->type->ndim < 2) return;
  keep(k, build_op(&k->b, OP_matmul, IN(x, like(k, x)),
                   chance(k->r, 50) ? ATTRS(a_b("trans_b", true)) : ATTRS(a_b("trans_a", true))));
}

static void norm(Maker *k) {
  Value *x = pick(k);
  int64_t n = x->type->dim[x->type->ndim - 1];
  switch (below(k->r, 4)) {
  case 0: keep(k, op1(k, OP_softmax, x, ATTRS(a_i("axis", some_axis(k, x))))); return;
  case 1: keep(k, op1(k, OP_log_softmax, x, ATTRS(a_i("axis", some_axis(k, x))))); return;
  }
  Value *g = param(k, ROLE_weight, DT_f64, 1, &n), *b = param(k, ROLE_weight, DT_f64, 1, &n);
  Attrs eps = ATTRS(a_f("eps", 0.1));
  keep(k, chance(k->r, 50) ? build_op(&k->b, OP_layer_norm, IN(x, g, b), eps)
                           : build_op(&k->b, OP_rms_norm, IN(x, g), eps));
}

static void reduction(Maker *k) {
  Value *x = pick(k);
  int64_t axes[MAX_NDIM];
  int n = 0;
  for (int i = 0; i < x->type->ndim; i++)
    if (chance(k->r, 50) && n < x->type->ndim - 1) axes[n++] = i;
  if (n == 0) return;
  bool keeps = chance(k->r, 50);
  Attrs attrs = ATTRS(a_list("axes", axes, n), a_b("keep", keeps));
  static const OpKind how[] = {OP_reduce_sum, OP_reduce_sum, OP_reduce_sum,
                               OP_reduce_max, OP_reduce_min, OP_reduce_prod};
  Value *y = op1(k, how[below(k->r, sizeof how / sizeof *how)], x, attrs);
  keep(k, y);
  if (keeps && chance(k->r, 50))
    keep(k, build_op(&k->b, OP_sub, IN(x, build_broadcast(&k->b, y, x->type->ndim, x->type->dim)),
                     NO_ATTRS));
}

static void transpose(Maker *k) {
  Value *x = pick(k);
  int64_t perm[MAX_NDIM];
  for (int i = 0; i < x->type->ndim; i++) {
    int other = below(k->r, i + 1);
    perm[i] = perm[other];
    perm[other] = i;
  }
  keep(k, op1(k, OP_transpose, x, ATTRS(a_list("perm", perm, x->type->ndim))));
}

// Merges two dimensions, or splits one.
static void reshape(Maker *k) {
  Value *x = pick(k);
  int64_t dim[MAX_NDIM + 1];
  int ndim = 0, at = some_axis(k, x);
  int64_t length = x->type->dim[at], part = length % 3 ? 2 : 3;
  bool merge = x->type->ndim > 1 && chance(k->r, 50);
  if (merge && at == x->type->ndim - 1) at--;
  if (!merge && (length % part || x->type->ndim >= 4)) return;
  for (int i = 0; i < x->type->ndim; i++) {
    if (i != at) {
      dim[ndim++] = x->type->dim[i];
    } else if (merge) {
      dim[ndim++] = x->type->dim[i] * x->type->dim[i + 1];
      i++;
    } else {
      dim[ndim++] = chance(k->r, 50) ? part : length / part;
      dim[ndim] = length / dim[ndim - 1];
      ndim++;
    }
  }
  keep(k, build_reshape(&k->b, x, ndim, dim));
}

static void broadcast(Maker *k) {
  Value *x = pick(k);
  int64_t dim[MAX_NDIM] = {some_length(k)};
  if (x->type->ndim >= 3) return;
  for (int i = 0; i < x->type->ndim; i++)
    dim[i + 1] = x->type->dim[i];
  keep(k, build_broadcast(&k->b, x, x->type->ndim + 1, dim));
}

static void slice(Maker *k) {
  Value *x = pick(k);
  int at = some_axis(k, x), ndim = x->type->ndim;
  int64_t starts[MAX_NDIM] = {0}, steps[MAX_NDIM], shape[MAX_NDIM];
  for (int i = 0; i < ndim; i++) {
    steps[i] = 1;
    shape[i] = x->type->dim[i];
  }
  steps[at] = 1 + below(k->r, 2);
  starts[at] = x->type->dim[at] > 1 ? below(k->r, 2) : 0;
  shape[at] = (x->type->dim[at] - starts[at] + steps[at] - 1) / steps[at];
  if (chance(k->r, 30)) { // from the last of them to the first
    starts[at] += (shape[at] - 1) * steps[at];
    steps[at] = -steps[at];
  }
  keep(k, op1(k, OP_slice, x,
              ATTRS(a_list("starts", starts, ndim), a_list("steps", steps, ndim),
                    a_list("shape", shape, ndim))));
}

static void pad(Maker *k) {
  Value *x = pick(k);
  int at = some_axis(k, x), ndim = x->type->ndim;
  int64_t low[MAX_NDIM] = {0}, shape[MAX_NDIM];
  for (int i = 0; i < ndim; i++)
    shape[i] = x->type->dim[i];
  low[at] = 1;
  shape[at] += 2;
  keep(k, op1(k, OP_pad, x,
              ATTRS(a_list("low", low, ndim), a_list("shape", shape, ndim), a_s("mode", "constant"),
                    a_f("value", 0.25))));
}

static void concat(Maker *k) {
  Value *x = pick(k);
  keep(k, build_op(&k->b, OP_concat, IN(x, like(k, x)), ATTRS(a_i("axis", some_axis(k, x)))));
}

static void scan(Maker *k) {
  Value *x = pick(k);
  if (x->type->ndim > 1 && chance(k->r, 40)) {
    keep(k, op1(k, OP_trilu, x, ATTRS(a_b("upper", chance(k->r, 50)))));
    return;
  }
  Attrs attrs = ATTRS(a_i("axis", some_axis(k, x)), a_b("exclusive", chance(k->r, 30)),
                      a_b("reverse", chance(k->r, 30)));
  keep(k, op1(k, chance(k->r, 50) ? OP_cumsum : OP_cumprod, x, attrs));
}

// Each row's elements at indices of its own: data, or its largest elements.
static void gather_elements(Maker *k) {
  Value *x = pick(k), *ids;
  int64_t dim[MAX_NDIM], last = x->type->ndim - 1, n = x->type->dim[last];
  if (chance(k->r, 50)) {
    Attrs attrs = ATTRS(a_i("k", 1 + below(k->r, (int)n)), a_b("smallest", chance(k->r, 50)));
    ids = op1(k, OP_top_k, x, attrs);
  } else if (chance(k->r, 30)) {
    ids = op1(k, OP_arg_max, x, ATTRS(a_i("axis", last), a_b("keep", true)));
  } else {
    memcpy(dim, x->type->dim, sizeof dim);
    dim[last] = some_length(k);
    ids = param(k, ROLE_input, DT_i64, x->type->ndim, dim);
  }
  keep(k, build_op(&k->b, OP_gather, IN(x, ids), ATTRS(a_i("axis", last), a_i("batch", last))));
}

static void gather(Maker *k) {
  Value *x = pick(k);
  if (chance(k->r, 50)) x = param(k, ROLE_weight, DT_f64, 2, (int64_t[]){12, some_length(k)});
  if (x->type->ndim > 2) return;
  Value *ids = param(k, ROLE_input, DT_i64, 1, (int64_t[]){some_length(k)});
  keep(k, build_op(&k->b, OP_gather, IN(x, ids), ATTRS(a_i("axis", some_axis(k, x)))));
}

// Rows put into places of x, or combined with its rows; with a batch, each at indices of its own.
static void scatter(Maker *k) {
  static const OpKind how[] = {OP_scatter, OP_scatter_add, OP_scatter_mul, OP_scatter_max,
                               OP_scatter_min};
  Value *x = pick(k);
  int axis = some_axis(k, x), batch = chance(k->r, 50) ? axis : 0;
  int64_t dim[MAX_NDIM];
  if (x->type->ndim > 2 && batch == 0) return;
  memcpy(dim, x->type->dim, sizeof dim);
  dim[axis] = some_length(k);
  Value *ids = param(k, ROLE_input, DT_i64, batch + 1, &dim[axis - batch]);
  Value *u = param(k, chance(k->r, 50) ? ROLE_weight : ROLE_input, DT_f64, x->type->ndim, dim);
  keep(k, build_op(&k->b, how[below(k->r, 5)], IN(x, ids, u),
                   ATTRS(a_i("axis", axis), a_i("batch", batch))));
}

static void noise(Maker *k) {
  Value *step = scalar(k, "step", DT_i64), *seed = scalar(k, "seed", DT_i64);
  Attrs attrs = ATTRS(a_f("scale", 0.25), a_b("normal", chance(k->r, 50)), a_i("key", k->values.n));
  keep(k, build_op(&k->b, OP_noise, IN(pick(k), step, seed), attrs));
}

static void dropout(Maker *k) {
  Value *step = scalar(k, "step", DT_i64), *seed = scalar(k, "seed", DT_i64);
  Attrs attrs = ATTRS(a_f("ratio", 0.25), a_i("key", k->values.n));
  keep(k, build_op(&k->b, OP_dropout, IN(pick(k), step, seed), attrs));
}

static void attention(Maker *k) {
  int64_t dim[4] = {2, 2, some_length(k), 4};
  Value *q = param(k, ROLE_weight, DT_f64, 4, dim);
  Value *v = param(k, chance(k->r, 50) ? ROLE_weight : ROLE_input, DT_f64, 4, dim);
  Attrs attrs =
      ATTRS(a_f("scale", 0.5), a_b("causal", chance(k->r, 50)), a_b("seq_major", chance(k->r, 50)));
  keep(k, build_op(&k->b, OP_attention, IN(q, chance(k->r, 50) ? q : v, v), attrs));
}

// A convolution to 2 by 3, and perhaps a pool to 1 by 2.
static void image(Maker *k) {
  static const int64_t two[2] = {2, 2}, one[2] = {1, 1}, none[4] = {0}, pooled[4] = {4, 4, 1, 2};
  Value *x = param(k, ROLE_input, DT_f64, 4, (int64_t[]){4, 2, 4, 6});
  Value *w = param(k, ROLE_weight, DT_f64, 4, (int64_t[]){4, 2, 2, 2});
  Attr strides = a_list("strides", two, 2), pads = a_list("pads", none, 4);
  Attr dilations = a_list("dilations", one, 2);
  Value *y = build_op(&k->b, OP_conv, IN(x, w), ATTRS(strides, pads, dilations, a_i("group", 1)));
  keep(k, y);
  if (chance(k->r, 50)) return;
  keep(k, op1(k, chance(k->r, 50) ? OP_max_pool : OP_avg_pool, y,
              ATTRS(a_list("kernel", two, 2), a_list("strides", one, 2), pads, dilations,
                    a_list("shape", pooled, 4))));
}

// A transposed convolution from 2 by 3 to 4 by 6.
static void transposed_image(Maker *k) {
  static const int64_t two[2] = {2, 2}, one[2] = {1, 1}, none[4] = {0}, shape[4] = {4, 2, 4, 6};
  Value *x = param(k, ROLE_input, DT_f64, 4, (int64_t[]){4, 4, 2, 3});
  Value *w = param(k, ROLE_weight, DT_f64, 4, (int64_t[]){4, 2, 2, 2});
  keep(k, build_op(&k->b, OP_conv_back_x, IN(w, x),
                   ATTRS(a_list("strides", two, 2), a_list("pads", none, 4),
                         a_list("dilations", one, 2), a_i("group", 1), a_list("shape", shape, 4))));
}

// A dimension as sums of two taps each; some of them are outside.
static void resample(Maker *k) {
  Value *x = pick(k);
  int axis = some_axis(k, x);
  int32_t first[12];
  double weight[24];
  int64_t n = some_length(k);
  for (int64_t i = 0; i < n; i++) {
    first[i] = below(k->r, (int)x->type->dim[axis] + 1) - 1;
    weight[2 * i] = 0.25 * (1 + below(k->r, 4));
    weight[2 * i + 1] = 1 - weight[2 * i];
  }
  Value *at = build_constant(&k->b, type_new(k->m, DT_i32, 1, &n), first);
  Value *by = build_constant(&k->b, type_new(k->m, DT_f64, 2, (int64_t[]){n, 2}), weight);
  keep(k, build_op(&k->b, OP_resample, IN(x, at, by), ATTRS(a_i("axis", axis))));
}

// A recurrent layer over the first dimension of a value, with lengths of 0 to 3 as data.
static void recurrent(Maker *k) {
  static const struct {
    OpKind kind;
    int gates;
  } rows[] = {{OP_lstm, 4}, {OP_gru, 3}, {OP_rnn, 1}};
  Value *x = pick(k);
  int row = below(k->r, 3), h = 2 + below(k->r, 2), gates = rows[row].gates * h;
  if (x->type->ndim != 3 || x->type->dim[0] < 3)
    x = param(k, ROLE_input, DT_f64, 3, (int64_t[]){3 + below(k->r, 2), 4, 2});
  int64_t b = x->type->dim[1];
  Value *w = param(k, ROLE_weight, DT_f64, 2, (int64_t[]){x->type->dim[2], gates});
  Value *gx = build_op(&k->b, OP_linear, IN(x, w), NO_ATTRS);
  Value *recurrence = param(k, ROLE_weight, DT_f64, 2, (int64_t[]){gates, h});
  Value *h0 = param(k, chance(k->r, 50) ? ROLE_weight : ROLE_input, DT_f64, 2, (int64_t[]){b, h});
  Value *lengths = param(k, ROLE_input, DT_i32, 1, &b);
  Attr f = a_s("f", "sigmoid"), g = a_s("g", "tanh"), reverse = a_b("reverse", chance(k->r, 50));
  Value *y;
  if (rows[row].kind == OP_lstm) {
    Value *c0 = build_op(&k->b, OP_tanh, IN(h0), NO_ATTRS);
    Value *in[] = {gx, recurrence, h0,
                   c0, lengths,    param(k, ROLE_weight, DT_f64, 1, (int64_t[]){3 * h})};
    y = build_op(&k->b, OP_lstm, in, 5 + chance(k->r, 50), ATTRS(f, g, a_s("h", "tanh"), reverse));
  } else if (rows[row].kind == OP_gru) {
    Value *bias = param(k, ROLE_weight, DT_f64, 1, (int64_t[]){h});
    y = build_op(&k->b, OP_gru, IN(gx, recurrence, bias, h0, lengths),
                 ATTRS(f, g, reverse, a_b("linear_before_reset", chance(k->r, 50))));
  } else {
    y = build_op(&k->b, OP_rnn, IN(gx, recurrence, h0, lengths), ATTRS(a_s("f", "tanh"), reverse));
  }
  keep(k, y);
  if (y && chance(k->r, 50)) keep(k, y->def->out[1]);
}

// To f32 and back, or to the numbers of a format of 8 bits or less.
static void rounding(Maker *k) {
  Value *x = pick(k);
  if (chance(k->r, 50))
    keep(k, build_cast(&k->b, build_cast(&k->b, x, DT_f32), DT_f64));
  else
    keep(k, op1(k, OP_narrow, x, ATTRS(a_i("format", below(k->r, 5)), a_b("saturate", true))));
}

static void (*const kinds[])(Maker *) = {
    elementwise_op,
    elementwise_op,
    two_operands,
    two_operands,
    linear,
    linear,
    linear,
    matmul,
    norm,
    norm,
    reduction,
    choice,
    pad,
    transpose,
    reshape,
    reshape,
    broadcast,
    slice,
    concat,
    scan,
    gather,
    dropout,
    rounding,
    attention,
    image,
    scatter,
    noise,
    recurrent,
    gather_elements,
    resample,
    transposed_image,
};

// -- The loss --------------------------------------------------------------------------------

static Value *sum_of(Maker *k, Value *v) {
  int64_t axes[MAX_NDIM];
  for (int i = 0; i < v->type->ndim; i++)
    axes[i] = i;
  return build_reduce_sum(&k->b, v, axes, v->type->ndim, false);
}

static Value *loss_of(Maker *k, Value *v) {
  if (v->type->ndim == 2 && chance(k->r, 30)) {
    Value *labels = param(k, ROLE_input, DT_i64, 1, v->type->dim);
    k->b.origin.loc = loc_node(k->m->arena, "m", labels->label);
    return sum_of(k, build_op(&k->b, OP_cross_entropy, IN(v, labels), ATTRS(a_i("ignore", -100))));
  }
  return sum_of(k, op1(k, OP_square, op1(k, OP_tanh, v, NO_ATTRS), NO_ATTRS));
}

// Returns false if no value is small enough.
static bool add_loss(Maker *k) {
  Value *loss = NULL;
  for (int i = 0; i < k->values.n; i++) {
    Value *v = k->values.at[i];
    if (!v->def || (value_used(v) && i < k->values.n - 1)) continue;
    Value *part = loss_of(k, v);
    loss = loss ? build_op(&k->b, OP_add, IN(loss, part), NO_ATTRS) : part;
    if (chance(k->r, 30)) graph_output(k->g, v, str_format(k->m->arena, "y%d", i));
  }
  if (loss) graph_output(k->g, loss, "loss");
  return loss;
}

Module *random_model(Random *r, Diag *d) {
  static const char *const steps[] = {
      "autodiff,optimizer", "autodiff,optimizer(clip=1)", "autodiff,optimizer(name=adamw clip=1)",
      "autodiff,optimizer(name=\"sgd:momentum=0.9\"),simplify", "autodiff"};
  Maker k = {.r = r, .m = module_new()};
  k.g = graph_new(k.m, "train", true);
  k.b = (Builder){.g = k.g, .origin = {.loc = loc_node(k.m->arena, "m", "forward")}, .d = d};
  int64_t dim[3] = {some_length(&k), some_length(&k), 2};
  keep(&k, param(&k, ROLE_input, DT_f64, 2 + below(r, 2), dim));
  linear(&k);
  for (int n = 2 + below(r, 9); n > 0; n--)
    kinds[below(r, sizeof kinds / sizeof *kinds)](&k);
  PipelineOptions o = {.verify_each = true, .bisect_limit = -1};
  if (add_loss(&k) && pipeline_run(k.m, steps[below(r, 5)], &o, d)) return k.m;
  module_free(k.m);
  return NULL;
}
