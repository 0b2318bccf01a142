// RNN, GRU and LSTM: for each direction a product of all inputs with W, and then the op of the
// loop over time.
//
//     %gx = linear %X, %W_0                     (t b gates h)
//     %g  = add %gx, %B_0                       both halves of B: of W and of R
//     %y, … = lstm %g, %R_0, %h0, %c0, %lengths
//
// W (directions, gates h, in), R (directions, gates h, h) and B (directions, 2 gates h) are sliced,
// so their gradients go back through slices.  The recurrent bias of GRU's new state stays apart.

#include <string.h>
#include <strings.h>

#include "frontend/onnx_node.h"

// -- Activations -------------------------------------------------------------------------------

// An activation: its name in ONNX and in the IR; whether it takes alpha and beta, and their
// defaults, those of the operators of these names.  ScaledTanh has none.
typedef struct Known {
  const char *onnx, *name;
  bool alpha, beta, required;
  double alpha_is, beta_is;
} Known;

static const Known known[] = {
    {"Relu", "relu", 0, 0, 0, 0, 0},
    {"Tanh", "tanh", 0, 0, 0, 0, 0},
    {"Sigmoid", "sigmoid", 0, 0, 0, 0, 0},
    {"Affine", "affine", 1, 1, 0, 1, 0},
    {"LeakyRelu", "leaky_relu", 1, 0, 0, 0.01, 0},
    {"ThresholdedRelu", "thresholded_relu", 1, 0, 0, 1, 0},
    {"ScaledTanh", "scaled_tanh", 1, 1, 1, 0, 0},
    {"HardSigmoid", "hard_sigmoid", 1, 1, 0, 0.2, 0.5},
    {"Elu", "elu", 1, 0, 0, 1, 0},
    {"Softsign", "softsign", 0, 0, 0, 0, 0},
    {"Softplus", "softplus", 0, 0, 0, 0, 0},
};
enum { N_KNOWN = sizeof known / sizeof *known, MAX_ACTIVATIONS = 6 };

typedef struct Activation {
  const char *name;
  double alpha, beta;
} Activation;

// Takes the next number of a list; or the default, if the list has ended.
static bool next_number(Node *n, const Onnx__AttributeProto *list, size_t *at, const Known *f,
                        double otherwise, double *out) {
  *out = otherwise;
  if (list && *at < list->n_floats) {
    *out = (double)list->floats[(*at)++];
    return true;
  }
  return !f->required || node_fail(n, "its activation %s needs alpha and beta", f->onnx);
}

// Reads the activations of all directions; `count` for each.  Numbers are consumed in order, by
// those that take them.
static bool read_activations(Node *n, const char *const *defaults, int count, int directions,
                             Activation *out) {
  const Onnx__AttributeProto *names = node_attr(n, "activations");
  const Onnx__AttributeProto *alphas = node_attr(n, "activation_alpha");
  const Onnx__AttributeProto *betas = node_attr(n, "activation_beta");
  size_t alpha = 0, beta = 0;
  if (names && names->n_strings && names->n_strings != (size_t)(count * directions))
    return node_fail(n, "its activations are %zu, not %d for each direction", names->n_strings,
                     count);
  for (int i = 0; i < count * directions; i++) {
    const char *name = defaults[i % count];
    if (names && names->n_strings)
      name = str_copy_n(n->a, (const char *)names->strings[i].data, names->strings[i].len);
    const Known *f = NULL;
    for (int k = 0; k < N_KNOWN; k++)
      // Older exporters write lower case.
      if (!strcasecmp(name, known[k].onnx)) f = &known[k];
    if (!f) return node_fail(n, "its activation '%s' is not one of ONNX", name);
    out[i].name = f->name;
    out[i].alpha = out[i].beta = 0;
    if (f->alpha && !next_number(n, alphas, &alpha, f, f->alpha_is, &out[i].alpha)) return false;
    if (f->beta && !next_number(n, betas, &beta, f, f->beta_is, &out[i].beta)) return false;
  }
  if ((alphas && alpha < alphas->n_floats) || (betas && beta < betas->n_floats))
    return node_fail(n, "it has more activation_alpha or activation_beta than activations take");
  return true;
}

// -- The layer -----------------------------------------------------------------------------------

typedef struct Layer {
  int gates, n_activations;
  int directions;
  bool reversed;    // of a single direction
  bool batch_major; // layout 1
  int64_t t, b, in, h;
  double clip;
  Value *x, *lengths; // (t b in), (b)
  Activation activation[MAX_ACTIVATIONS];
} Layer;

static bool has_shape(const Value *v, int ndim, const int64_t *dim) {
  return v->type->ndim == ndim && !memcmp(v->type->dim, dim, (size_t)ndim * sizeof *dim);
}

// Checks an operand's shape, if it is there.
static bool operand_fits(Node *n, int i, const char *name, int ndim, const int64_t *dim) {
  const Value *v = node_in(n, i);
  if (!v || has_shape(v, ndim, dim)) return true;
  const Type *want = type_new(n->b->g->module, v->type->dtype, ndim, dim);
  // An exporter folds the initial states of a layer that gets none, for the rows of its example.
  int batch = node_int(n, "layout", 0) == 1 ? 0 : 1;
  bool state = ndim == 3 && str_starts(name, "initial_") && !v->def && v->role == ROLE_weight;
  if (state && v->type->ndim == 3 && v->type->dim[batch] != dim[batch])
    return node_fail_as(
        n, PROBLEM_batch,
        str_format(
            n->a,
            "the exporter has stored states for %lld rows: --batch %lld fits them; or export "
            "with a symbolic batch, and initial states as inputs",
            (long long)v->type->dim[batch], (long long)v->type->dim[batch]),
        "its %s is %s and must be %s", name, type_text(n->a, v->type), type_text(n->a, want));
  return node_fail(n, "its %s is %s and must be %s", name, type_text(n->a, v->type),
                   type_text(n->a, want));
}

static bool read_direction(Node *n, Layer *l) {
  const char *direction = node_str(n, "direction", "forward");
  l->reversed = str_equal(direction, "reverse");
  l->directions = str_equal(direction, "bidirectional") ? 2 : 1;
  // The default of opset 1 is misspelled.
  bool fits = l->reversed || l->directions == 2 || str_equal(direction, "forward") ||
              str_equal(direction, "foward");
  return fits || node_fail_hint(n, "forward, reverse or bidirectional",
                                "its direction '%s' is not known", direction);
}

// An initial state that is an initializer with a row per sample was folded by an exporter; one that
// is learnt has a single row, and is broadcast.
static void keep_state(Node *n, int i, int64_t b) {
  if (b > 1) node_keep(n, i, WHY_state);
}

static bool read_layer(Node *n, Layer *l, const char *const *defaults) {
  Value *x = n->in[0], *r = node_in(n, 2);
  if (node_ndim(n, 0) != 3) return node_fail(n, "its input is %s", type_text(n->a, x->type));
  if (!r || r->type->ndim != 3 || !node_in(n, 1))
    return node_fail(n, "it needs W and R of 3 dimensions");
  int64_t layout = node_int(n, "layout", 0);
  if (layout != 0 && layout != 1) return node_fail(n, "its layout is %lld", (long long)layout);
  l->batch_major = layout == 1;
  l->t = x->type->dim[l->batch_major ? 1 : 0];
  l->b = x->type->dim[l->batch_major ? 0 : 1];
  l->in = x->type->dim[2];
  l->h = node_int(n, "hidden_size", r->type->dim[2]);
  l->clip = node_float(n, "clip", 0);
  node_int(n, "output_sequence", 0); // opset 1: whether Y is used
  if (!read_direction(n, l)) return false;
  if (l->t < 1 || l->b < 1 || l->h < 1)
    return node_fail(n, "%lld time steps of %lld rows with %lld hidden units", (long long)l->t,
                     (long long)l->b, (long long)l->h);
  if (l->h > INT32_MAX) return node_fail(n, "%lld hidden units", (long long)l->h);
  if (node_attr(n, "clip") && !(l->clip > 0))
    return node_fail_hint(n, "leave clip out for no limit", "its clip is %g", l->clip);
  int64_t d = l->directions, rows = l->gates * l->h;
  const int64_t state[3] = {l->batch_major ? l->b : d, l->batch_major ? d : l->b, l->h};
  if (!operand_fits(n, 1, "W", 3, (int64_t[]){d, rows, l->in}) ||
      !operand_fits(n, 2, "R", 3, (int64_t[]){d, rows, l->h}) ||
      !operand_fits(n, 3, "B", 2, (int64_t[]){d, 2 * rows}) ||
      !operand_fits(n, 4, "sequence_lens", 1, (int64_t[]){l->b}) ||
      !operand_fits(n, 5, "initial_h", 3, state) || !operand_fits(n, 6, "initial_c", 3, state) ||
      !operand_fits(n, 7, "P", 2, (int64_t[]){d, 3 * l->h}) ||
      !read_activations(n, defaults, l->n_activations, l->directions, l->activation))
    return false;
  keep_state(n, 5, l->b);
  keep_state(n, 6, l->b);
  l->x = l->batch_major ? build_transpose(n->b, x, (int64_t[]){1, 0, 2}) : x;
  Value *lengths = node_in(n, 4);
  if (lengths && lengths->type->dtype != DT_i32)
    return node_fail(n, "its sequence_lens are %s and must be i32", type_text(n->a, lengths->type));
  l->lengths = lengths ? build_cast(n->b, lengths, DT_i32)
                       : build_fill(n->b, DT_i32, 1, (int64_t[]){l->b}, (double)l->t);
  return !n->b->failed;
}

// -- One direction -------------------------------------------------------------------------------

// Part `k` of an operand of all directions, without that dimension.
static Value *direction_part(Node *n, Value *v, int axis, int k) {
  int64_t dim[MAX_NDIM];
  int ndim = 0;
  if (!v) return NULL;
  for (int i = 0; i < v->type->ndim; i++)
    if (i != axis) dim[ndim++] = v->type->dim[i];
  return build_reshape(n->b, node_part(n, v, axis, k, 1), ndim, dim);
}

// The bias of all gates, of W and of R, for direction `k`.  `last`, if not NULL, gets the recurrent
// one of the last gate, which the other then lacks.
static Value *gate_bias(Node *n, const Layer *l, int k, Value **last) {
  Value *b = direction_part(n, node_in(n, 3), 0, k);
  int64_t rows = l->gates * l->h, h = l->h;
  DType dtype = l->x->type->dtype;
  if (last) *last = b ? node_part(n, b, 0, 2 * rows - h, h) : build_fill(n->b, dtype, 1, &h, 0);
  if (!b) return NULL;
  Value *of_w = node_part(n, b, 0, 0, rows), *of_r = node_part(n, b, 0, rows, rows);
  if (last) {
    of_r = node_part(n, b, 0, rows, rows - h);
    of_r = build_op(n->b, OP_concat, IN(of_r, build_fill(n->b, dtype, 1, &h, 0)),
                    ATTRS(a_i("axis", 0)));
  }
  return build_op(n->b, OP_add, IN(of_w, of_r), NO_ATTRS);
}

// The products of all inputs with W, and the bias.
static Value *gates_of(Node *n, const Layer *l, int k, Value **last) {
  Value *w = direction_part(n, n->in[1], 0, k);
  Value *gx = build_op(n->b, OP_linear, IN(l->x, w), ATTRS(a_b("trans", true)));
  Value *bias = gate_bias(n, l, k, last);
  return bias && gx ? node_binary(n, OP_add, gx, bias) : gx;
}

// The initial state of direction `k`: operand `i`, or zeros.
static Value *state_of(Node *n, const Layer *l, int i, int k) {
  if (!node_in(n, i)) return build_fill(n->b, l->x->type->dtype, 2, (int64_t[]){l->b, l->h}, 0);
  return direction_part(n, node_in(n, i), l->batch_major ? 1 : 0, k);
}

static bool is_reverse(const Layer *l, int k) {
  return l->reversed || k == 1;
}

// Sets result `i` of the node from those of its directions: y (t b h), or states (b h).
static void join_directions(Node *n, const Layer *l, int i, Value *const *part) {
  if (!node_wants(n, i)) return;
  Value *all[2];
  bool states = i > 0;
  for (int k = 0; k < l->directions; k++)
    // A dimension for the directions: after time, or the first one.
    all[k] = states ? build_reshape(n->b, part[k], 3, (int64_t[]){1, l->b, l->h})
                    : build_reshape(n->b, part[k], 4, (int64_t[]){l->t, 1, l->b, l->h});
  Value *v =
      l->directions == 1 ? all[0] : build_op(n->b, OP_concat, all, 2, ATTRS(a_i("axis", !states)));
  if (l->batch_major)
    v = build_transpose(n->b, v, states ? (int64_t[]){1, 0, 2} : (int64_t[]){2, 0, 1, 3});
  n->out[i] = v;
}

// Result `i` of the op of `v`.
static Value *result(Value *v, int i) {
  return v ? v->def->out[i] : NULL;
}

bool import_rnn(Node *n) {
  Layer l = {.gates = 1, .n_activations = 1};
  if (!read_layer(n, &l, (const char *const[]){"Tanh"})) return false;
  Value *y[2], *last[2];
  for (int k = 0; k < l.directions; k++) {
    const Activation *f = &l.activation[k];
    Value *gx = gates_of(n, &l, k, NULL), *r = direction_part(n, n->in[2], 0, k);
    y[k] = build_op(n->b, OP_rnn, IN(gx, r, state_of(n, &l, 5, k), l.lengths),
                    ATTRS(a_s("f", f->name), a_f("f_alpha", f->alpha), a_f("f_beta", f->beta),
                          a_f("clip", l.clip), a_b("reverse", is_reverse(&l, k))));
    last[k] = result(y[k], 1);
  }
  if (n->b->failed) return false;
  join_directions(n, &l, 0, y);
  join_directions(n, &l, 1, last);
  return true;
}

bool import_gru(Node *n) {
  Layer l = {.gates = 3, .n_activations = 2};
  bool after = node_int(n, "linear_before_reset", 0) != 0;
  if (!read_layer(n, &l, (const char *const[]){"Sigmoid", "Tanh"})) return false;
  Value *y[2], *last[2];
  for (int k = 0; k < l.directions; k++) {
    const Activation *f = &l.activation[2 * k], *g = f + 1;
    Value *bias, *gx = gates_of(n, &l, k, &bias), *r = direction_part(n, n->in[2], 0, k);
    y[k] = build_op(n->b, OP_gru, IN(gx, r, bias, state_of(n, &l, 5, k), l.lengths),
                    ATTRS(a_s("f", f->name), a_s("g", g->name), a_f("f_alpha", f->alpha),
                          a_f("f_beta", f->beta), a_f("g_alpha", g->alpha), a_f("g_beta", g->beta),
                          a_f("clip", l.clip), a_b("linear_before_reset", after),
                          a_b("reverse", is_reverse(&l, k))));
    last[k] = result(y[k], 1);
  }
  if (n->b->failed) return false;
  join_directions(n, &l, 0, y);
  join_directions(n, &l, 1, last);
  return true;
}

bool import_lstm(Node *n) {
  Layer l = {.gates = 4, .n_activations = 3};
  bool coupled = node_int(n, "input_forget", 0) != 0;
  if (!read_layer(n, &l, (const char *const[]){"Sigmoid", "Tanh", "Tanh"})) return false;
  Value *y[2], *last[2], *last_c[2];
  for (int k = 0; k < l.directions; k++) {
    const Activation *f = &l.activation[3 * k], *g = f + 1, *h = f + 2;
    Value *peepholes = direction_part(n, node_in(n, 7), 0, k);
    Value *in[] = {gates_of(n, &l, k, NULL),
                   direction_part(n, n->in[2], 0, k),
                   state_of(n, &l, 5, k),
                   state_of(n, &l, 6, k),
                   l.lengths,
                   peepholes};
    y[k] = build_op(n->b, OP_lstm, in, peepholes ? 6 : 5,
                    ATTRS(a_s("f", f->name), a_s("g", g->name), a_s("h", h->name),
                          a_f("f_alpha", f->alpha), a_f("f_beta", f->beta),
                          a_f("g_alpha", g->alpha), a_f("g_beta", g->beta),
                          a_f("h_alpha", h->alpha), a_f("h_beta", h->beta), a_f("clip", l.clip),
                          a_b("input_forget", coupled), a_b("reverse", is_reverse(&l, k))));
    last[k] = result(y[k], 1);
    last_c[k] = result(y[k], 2);
  }
  if (n->b->failed) return false;
  join_directions(n, &l, 0, y);
  join_directions(n, &l, 1, last);
  join_directions(n, &l, 2, last_c);
  return true;
}
