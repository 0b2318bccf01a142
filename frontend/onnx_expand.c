// The number of nodes with all functions put in place, before any is:
//
//     f0:  Relu                    1
//     f1:  f0, f0                  2 + 2 * 1
//     f2:  f1, f1                  2 + 2 * 4       of f30 there are 3 * 2^30 - 2
//
// A few functions that call one another twice would otherwise take all memory before the limit of
// nodes is met.

#include "frontend/onnx_walk.h"

enum { UNKNOWN = -1, OPEN = -2 };

typedef struct Expansion {
  Import *im;
  int64_t *nodes; // of every function; OPEN: of a caller
  int depth;
} Expansion;

static int64_t count_nodes(Expansion *e, Onnx__NodeProto *const *node, size_t n);

// A sum that stays at the largest number.
static int64_t add(int64_t x, int64_t y) {
  return x > INT64_MAX - y ? INT64_MAX : x + y;
}

static int64_t count_function(Expansion *e, int i) {
  const Onnx__FunctionProto *f = onnx_model(e->im->file)->functions[i];
  // Recursion, and too deep a nest, are errors at their nodes when these are imported.
  if (e->nodes[i] == OPEN || e->depth > ONNX_INLINE_DEPTH) return 0;
  if (e->nodes[i] != UNKNOWN) return e->nodes[i];
  e->nodes[i] = OPEN;
  e->depth++;
  int64_t n = count_nodes(e, f->node, f->n_node);
  e->depth--;
  return e->nodes[i] = n;
}

static int64_t count_nodes(Expansion *e, Onnx__NodeProto *const *node, size_t n) {
  int64_t sum = (int64_t)n;
  for (size_t i = 0; i < n; i++) {
    int function = onnx_function(e->im, node[i]);
    if (function >= 0) sum = add(sum, count_function(e, function));
    for (size_t k = 0; k < node[i]->n_attribute; k++) {
      const Onnx__GraphProto *g = node[i]->attribute[k]->g;
      if (g) sum = add(sum, count_nodes(e, g->node, g->n_node));
    }
  }
  return sum;
}

int64_t onnx_expanded_nodes(Import *im) {
  const Onnx__ModelProto *model = onnx_model(im->file);
  Expansion e = {.im = im, .nodes = arena_array(im->a, int64_t, model->n_functions)};
  for (size_t i = 0; i < model->n_functions; i++)
    e.nodes[i] = UNKNOWN;
  return count_nodes(&e, model->graph->node, model->graph->n_node);
}
