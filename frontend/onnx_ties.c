// Warns of weights that an exporter has split or merged, which then train as another model than the
// module.  Exporters that fold constants and initializers do both:
//
//     embed.weight [V,D], onnx::MatMul_6 [D,V] = its transpose    one parameter became two weights
//     norm1.weight [D], all 1, read by norm1 and by norm2         two parameters became one weight
//
// Neither can be proved from a file, so both are warnings.  Weights are a copy of each other if
// their elements are equal and vary, and if an exporter made up the name of one, or one is a table
// for a Gather and the other is not: layers that begin as copies of each other are no tie.  A
// weight was merged if all its elements are equal, as gains and biases begin, and nodes of several
// modules read it.

#include <string.h>

#include "frontend/onnx_walk.h"

enum { SAMPLES = 16, FEWEST = 16 /* elements of a copy */ };

typedef struct Trained {
  Value *v;
  OnnxTensor t;
  const Loc *loc;
  double sample[SAMPLES];
  bool varies, made_up, table;
} Trained;

typedef struct Ties {
  Import *im;
  Vec(Trained) weights;
  NameMap index; // of a name, in weights
  Arena *a;
} Ties;

static bool read_element(Ties *s, const Trained *w, int64_t i, double *out) {
  OnnxTensor one = w->t;
  int64_t size = dtype_bytes[one.dtype];
  // A scalar at the offset of the element: only its bytes are read.
  one.ndim = 0;
  one.count = 1;
  one.bytes = one.init.length = size;
  if (one.init.kind == INIT_file)
    one.init.offset += i * size;
  else
    one.init.bytes = (const char *)one.init.bytes + i * size;
  const Type *type = type_new(s->im->m, one.dtype, 0, NULL);
  Tensor x;
  bool quiet = diag_quiet(s->im->d, true); // unreadable bytes are reported when the tensor is used
  bool ok = onnx_tensor_load(s->im->file, &one, type, s->a, w->loc, &x, s->im->d);
  diag_quiet(s->im->d, quiet);
  if (ok) *out = tensor_f(&x, 0);
  return ok;
}

// Returns the i-th sampled position, the same for all tensors of a size.
static int64_t position(int64_t count, int i) {
  return (int64_t)(((uint64_t)i * 0x9e3779b97f4a7c15u) >> 2) % count;
}

// Adds the weight with samples of its elements, unless these cannot be read: then it is no part of
// a warning, and an error when it is used.
static void add_weight(Ties *s, Value *v, const Onnx__TensorProto *init) {
  Import *im = s->im;
  Trained w = {.v = v, .loc = v->loc, .made_up = onnx_is_made_up(v->label)};
  w.made_up = im->has_origins ? onnx_why_of(im, v) == WHY_folded : w.made_up;
  if (!onnx_tensor(im->file, im->o->external_data_dir, init, im->a, v->loc, &w.t, im->d)) return;
  for (int i = 0; i < SAMPLES && w.t.count > 0; i++) {
    // Samples are enough: copies agree in all elements, other weights differ in most.
    if (!read_element(s, &w, position(w.t.count, i), &w.sample[i])) return;
    w.varies = w.varies || w.sample[i] != w.sample[0];
  }
  name_map_add(&s->index, v->label, s->weights.n);
  vec_push(im->a, &s->weights, w);
}

// "; there are 2 more pairs"
static const char *and_more(Arena *a, int n, const char *things) {
  if (n == 0) return "";
  return str_format(a, n == 1 ? "; there is %d more %s" : "; there are %d more %ss", n, things);
}

// -- Split parameters ----------------------------------------------------------------------------

// Whether y holds the elements of x, of two dimensions; turned: its transpose.
static bool equal_elements(Ties *s, const Trained *x, const Trained *y, bool turned) {
  const int64_t *from = x->t.dim, *to = y->t.dim;
  if (from[0] != to[turned] || from[1] != to[!turned]) return false;
  for (int i = 0; i < SAMPLES; i++) {
    int64_t at = position(x->t.count, i);
    double other;
    // The same element in the transpose.
    if (turned) at = at % from[1] * from[0] + at / from[1];
    if (!read_element(s, y, at, &other) || other != x->sample[i]) return false;
  }
  return true;
}

static void warn_of_copies(Ties *s) {
  int n = 0;
  const Trained *copy = NULL, *of = NULL;
  bool turned = false;
  for (int i = 0; i < s->weights.n; i++)
    for (int j = 0; j < i; j++) {
      const Trained *x = &s->weights.at[j], *y = &s->weights.at[i];
      bool pair = x->t.ndim == 2 && y->t.ndim == 2 && x->t.count == y->t.count &&
                  x->t.count >= FEWEST && x->varies && y->varies;
      // Layers that begin as copies of each other are no tie.
      if (!pair || (x->made_up == y->made_up && x->table == y->table)) continue;
      bool same = equal_elements(s, x, y, false);
      if (!same && !equal_elements(s, x, y, true)) continue;
      // The one with a made-up name is the copy.
      if (x->made_up && !y->made_up) x = y, y = &s->weights.at[j];
      onnx_decide(s->im, y->v, WHY_tied);
      // Only the first pair is named.
      if (n++) continue;
      copy = y;
      of = x;
      turned = !same;
    }
  if (!n) return;
  Import *im = s->im;
  diag_doubt(im->d, PROBLEM_derived, onnx_place(im->file, im->a, copy->v->label),
             "it holds the numbers of '%s'%s, and trains apart from it; if they are one parameter, "
             "the exporter untied them%s",
             of->v->label, turned ? ", transposed" : "", and_more(im->a, n - 1, "pair"));
  diag_hint(im->d,
            "export without folding: nnaot-export, torch.onnx.export(..., optimize=False), or "
            "(..., dynamo=False, do_constant_folding=False)");
}

// -- Merged parameters ---------------------------------------------------------------------------

// Whether one of two modules is the other or in it, ignoring the numbers that the exporter
// (dynamo=False) appends for calls: block.norm, block.norm_1.
static bool within_module(const char *x, const char *y) {
  while (*x && *y) {
    size_t nx = strcspn(x, "."), ny = strcspn(y, ".");
    // A number after an underscore is not part of the name.
    size_t kx = nx, ky = ny;
    while (kx > 0 && strchr("0123456789", x[kx - 1]))
      kx--;
    while (ky > 0 && strchr("0123456789", y[ky - 1]))
      ky--;
    kx = kx > 0 && x[kx - 1] == '_' ? kx - 1 : nx;
    ky = ky > 0 && y[ky - 1] == '_' ? ky - 1 : ny;
    if (kx != ky || strncmp(x, y, kx) != 0) return false;
    x += nx + (x[nx] == '.');
    y += ny + (y[ny] == '.');
  }
  return true;
}

static void warn_of_merged(Ties *s) {
  Import *im = s->im;
  const Onnx__GraphProto *graph = onnx_model(im->file)->graph;
  const char **reader = arena_array(im->a, const char *, s->weights.n + 1);
  bool *merged = arena_array(im->a, bool, s->weights.n + 1);
  int n = 0, first = 0;
  const char *other = NULL;
  for (size_t i = 0; i < graph->n_node; i++) {
    const Onnx__NodeProto *node = graph->node[i];
    const char *module = NULL;
    if (!str_equal(onnx_str(node->op_type), "Identity") || node->n_output != 1) {
      module = onnx_module_name(im->a, node);
    } else {
      // An Identity gives a weight the name of another one that was equal to it.
      const char *name = onnx_str(node->output[0]), *dot = strrchr(name, '.');
      if (dot) module = str_copy_n(im->a, name, (size_t)(dot - name));
    }
    for (size_t k = 0; module && k < node->n_input; k++) {
      int at = name_map_find(&s->index, node->input[k]);
      const Trained *w = at < 0 ? NULL : &s->weights.at[at];
      // Only vectors of equal elements, such as initial gains and biases.
      if (!w || w->varies || w->t.ndim != 1 || w->t.count < 2) continue;
      // The first reader; a merged weight has another one elsewhere.
      if (!reader[at]) reader[at] = module;
      if (merged[at] || within_module(reader[at], module)) continue;
      merged[at] = true;
      if (n++) continue;
      first = at;
      other = module;
    }
  }
  if (!n) return;
  diag_doubt(im->d, PROBLEM_derived, onnx_place(im->file, im->a, s->weights.at[first].v->label),
             "'%s' and '%s' read this one weight, whose elements are all equal; if the exporter "
             "merged weights that began equal, they train as one now%s",
             reader[first], other, and_more(im->a, n - 1, "such weight"));
  diag_hint(im->d, "export as the model trains: nnaot-export, torch.onnx.export(..., "
                   "optimize=False), or (..., dynamo=False, do_constant_folding=False, "
                   "training=TrainingMode.TRAINING)");
}

void onnx_warn_of_ties(Import *im) {
  if (im->file->unread) return;
  Ties s = {.im = im, .index = {.arena = im->a}, .a = arena_new()};
  const Onnx__GraphProto *graph = onnx_model(im->file)->graph;
  // The trained weights that are initializers, with samples of their elements.
  NameMap params = {.arena = im->a};
  for (int i = 0; i < im->g->n_params; i++)
    if (im->g->params[i]->role == ROLE_weight && im->g->params[i]->train)
      name_map_add(&params, im->g->params[i]->label, i);
  for (size_t i = 0; i < graph->n_initializer; i++) {
    int at = name_map_find(&params, onnx_str(graph->initializer[i]->name));
    if (at >= 0) add_weight(&s, im->g->params[at], graph->initializer[i]);
  }
  // A table is read by a Gather.
  for (size_t i = 0; i < graph->n_node; i++) {
    const Onnx__NodeProto *node = graph->node[i];
    if (!str_equal(onnx_str(node->op_type), "Gather") || node->n_input == 0) continue;
    int at = name_map_find(&s.index, node->input[0]);
    if (at >= 0) s.weights.at[at].table = true;
  }
  warn_of_copies(&s);
  warn_of_merged(&s);
  arena_free(s.a);
}
