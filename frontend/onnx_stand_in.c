// Parameters in place of the results of failed nodes, so that the nodes after them are checked in
// the same run.
//
//     a = Nonsense(x)      value_info a: float[N,4]     error: Nonsense is not supported
//     y = Relu(a)                                       %y = relu %a, with a new %a: f32[8,4]
//
// The model declares the types of results, and the options bind their symbols.  Floating-point
// results only: others may be settings of later nodes, whose values would be missing.  Without a
// declared type, a result is poisoned (onnx_walk.h).
//
// A link leads from each operand of a failed node to its stand-ins.  By links, the path from the
// trained weights to the loss is known, and ops on it without a gradient are reported with all
// other problems.  The module of such an import is never compiled.

#include "frontend/onnx_walk.h"
#include "ir/analysis/gradient_path.h"
#include "onnx_shape.h"

void onnx_declare(Import *im) {
  const Onnx__GraphProto *g = onnx_model(im->file)->graph;
  im->declared = im->symbols = (NameMap){.arena = im->a};
  // value_info first, then the outputs.
  for (size_t i = 0; i < g->n_value_info + g->n_output; i++) {
    const Onnx__ValueInfoProto *v =
        i < g->n_value_info ? g->value_info[i] : g->output[i - g->n_value_info];
    name_map_add(&im->declared, onnx_str(v->name), (int)i);
  }
}

void onnx_declare_symbol(Import *im, const char *symbol, int64_t size) {
  if (*symbol && size <= INT32_MAX) name_map_add(&im->symbols, symbol, (int)size);
}

// The declared type of a value, or NULL: it is unknown, or not of floating-point numbers.
static const Type *declared_type(const Import *im, const char *name) {
  const Onnx__GraphProto *g = onnx_model(im->file)->graph;
  int at = name_map_find(&im->declared, name);
  if (at < 0) return NULL;
  size_t i = (size_t)at;
  const Onnx__ValueInfoProto *v =
      i < g->n_value_info ? g->value_info[i] : g->output[i - g->n_value_info];
  if (!v->type || v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return NULL;
  const Onnx__TypeProto__Tensor *t = v->type->tensor_type;
  DType dtype;
  if (!t || !t->shape || t->shape->n_dim > MAX_NDIM || !onnx_dtype(t->elem_type, &dtype) ||
      dtype_class[dtype] != 'F')
    return NULL;
  // Every dimension is fixed, or its symbol has a size.
  int64_t dim[MAX_NDIM], count = 8;
  for (size_t k = 0; k < t->shape->n_dim; k++) {
    const Dimension *d = t->shape->dim[k];
    dim[k] = dim_is_fixed(d) ? d->dim_value : name_map_find(&im->symbols, dim_symbol(d));
    if (dim[k] < 0 || __builtin_mul_overflow(count, dim[k] ? dim[k] : 1, &count)) return NULL;
  }
  return type_new(im->m, onnx_compute_dtype(dtype, im->o->keep_f64), (int)t->shape->n_dim, dim);
}

Value *onnx_stand_in(Import *im, const Scope *scope, const Onnx__NodeProto *node, size_t result) {
  const char *name = onnx_str(node->output[result]);
  // Names inside of bodies are not those of the model's graph.
  const Type *type = scope->outer || scope->function ? NULL : declared_type(im, name);
  if (!type) return NULL;
  const Loc *loc = onnx_node_loc(im, scope, node);
  Value *v = graph_param(im->g, onnx_value_name(im->m->arena, name), type, ROLE_input, loc);
  v->label = str_copy(im->m->arena, name);
  for (size_t i = 0; i < node->n_input; i++) {
    Binding *b = *onnx_str(node->input[i]) ? onnx_lookup(scope, node->input[i]) : NULL;
    Value *from = b && !b->poisoned ? onnx_binding_value(im, b) : NULL;
    if (from) vec_push(im->a, &im->links, ((ValueLink){from, v}));
  }
  while (im->stands_in.n <= (int)v->id)
    vec_push(im->a, &im->stands_in, false);
  im->stands_in.at[v->id] = true;
  return v;
}

bool onnx_after_stand_in(const Import *im, const Value *v) {
  if (!v || !im->stands_in.n) return false;
  Arena *a = arena_new();
  bool *seen = arena_array(a, bool, im->g->n_values), reaches = false;
  Vec(const Value *) open = {0};
  vec_push(a, &open, v);
  seen[v->id] = true;
  // An explicit stack: chains of nodes are longer than the C stack allows.
  while (open.n && !reaches) {
    const Value *at = open.at[--open.n];
    reaches = !at->def && (int)at->id < im->stands_in.n && im->stands_in.at[at->id];
    for (int i = 0; at->def && i < at->def->n_in; i++) {
      const Value *in = at->def->in[i].value;
      if (seen[in->id]) continue;
      seen[in->id] = true;
      vec_push(a, &open, in);
    }
  }
  arena_free(a);
  return reaches;
}

// -- Gradients -----------------------------------------------------------------------------------

void onnx_find_gradients(Import *im) {
  Graph *g = im->g;
  if (!im->o->makes_loss) return;
  GradientPath path = {.varied = arena_array(im->a, bool, g->n_values),
                       .useful = arena_array(im->a, bool, g->n_values),
                       .links = im->links.at,
                       .n_links = im->links.n};
  for (int i = 0; i < g->n_params; i++) {
    const Value *w = g->params[i];
    if (w->role != ROLE_weight) continue;
    bool trained = w->train;
    // --freeze and --train, of which the last match counts.
    for (int k = 0; k < im->o->n_weights; k++) {
      const char *glob = im->o->weights[k];
      bool train = *glob == '!';
      if (!str_row_glob(glob + train) && str_glob(glob + train, w->label)) trained = train;
    }
    path.varied[w->id] = trained;
  }
  for (int i = 0; i < g->n_results; i++)
    if (im->o->makes_loss(im->o->makes_loss_of, g, g->results[i]->label))
      path.useful[g->results[i]->use.value->id] = true;
  gradient_path_mark(g, &path);
  for_each_op(op, g)
    if (gradient_path_has(&path, op) && op_info[op->kind].grad == no_grad)
      problem_add(&im->problems, gradient_problem(op, im->a));
}
