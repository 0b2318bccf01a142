// Finds the surviving node of the model that depends on a name.
//
//     /Constant ─ /Range ─ /Gather ─ /h.0/Add       passes have folded all but /h.0/Add
//
// Nodes are visited in their order, repeatedly as long as some precede their operands.

#include "frontend/onnx.h"
#include "frontend/onnx_walk.h"

typedef struct Follow {
  const OnnxFile *file;
  Arena *a;
  const char *name;
  NameMap reached; // values
  bool known;      // the model has the name
} Follow;

static bool is_called(const Follow *f, const char *what) {
  return str_equal(onnx_str(what), f->name);
}

// Whether the node has the name, or reads a reached value; then its results are reached as well.
static bool reaches(Follow *f, const Onnx__NodeProto *node, const char *name, bool *more) {
  bool is = str_equal(name, f->name), reads = false;
  for (size_t i = 0; i < node->n_output; i++)
    is |= is_called(f, node->output[i]);
  // All operands are looked at, since the name may be that of an input.
  for (size_t i = 0; i < node->n_input; i++) {
    const char *in = onnx_str(node->input[i]);
    reads |= is_called(f, in) || name_map_find(&f->reached, in) >= 0;
    f->known |= is_called(f, in);
  }
  f->known |= is;
  // Readers of these results are reached in turn.
  for (size_t i = 0; (is || reads) && i < node->n_output; i++)
    *more |= *onnx_str(node->output[i]) && name_map_add(&f->reached, node->output[i], 0);
  return is || reads;
}

const char *onnx_follow(const char *path, const char *name, OnnxLasts *lasts, const void *of,
                        Arena *a, bool *known) {
  static const Scope whole = {.prefix = ""};
  OnnxFile file;
  Diag *d = diag_new(stderr);
  // The file was read before: its errors are known.
  diag_quiet(d, true);
  Follow f = {.file = &file, .a = a, .name = name, .reached.arena = a};
  const char *node = NULL;
  if (*name && onnx_open(&file, path, &onnx__model_proto__descriptor, a, d)) {
    const Onnx__GraphProto *g = onnx_model(&file)->graph;
    // Again, as long as another node was reached: some precede their operands.
    for (bool more = g != NULL; more && !node;) {
      more = false;
      for (size_t i = 0; i < g->n_node && !node; i++) {
        const char *at = onnx_place(&file, a, onnx_node_name(a, &whole, g->node[i]))->node;
        if (reaches(&f, g->node[i], at, &more) && lasts(of, at)) node = at;
      }
    }
    for (size_t i = 0; g && i < g->n_initializer; i++)
      f.known |= is_called(&f, g->initializer[i]->name);
    for (size_t i = 0; g && i < g->n_input; i++)
      f.known |= is_called(&f, g->input[i]->name);
    if (node) node = str_copy(a, node);
    onnx_close(&file);
  }
  diag_free(d);
  *known = f.known;
  return node;
}
