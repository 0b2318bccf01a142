// Sorts the nodes of a graph topologically.
//
// The standard requires sorted nodes, and published files do not always obey.  Nodes are visited
// depth first, in the file's order, so a file that is sorted keeps its order.  A node that is met
// again while it is being visited closes a cycle, which is reported as the chain of its nodes. A
// node with subgraphs (If) reads the outer names that they use.

#include <string.h>

#include "frontend/onnx_walk.h"

typedef Vec(const char *) Strings;

// Collects the names that a graph reads and does not define itself.
static void outer_reads(Arena *a, const Onnx__GraphProto *g, Strings *reads);

static void node_reads(Arena *a, const Onnx__NodeProto *node, Strings *reads) {
  bool is_gradient = str_equal(onnx_str(node->op_type), "Gradient") &&
                     str_equal(onnx_str(node->domain), ONNX_TRAINING_DOMAIN);
  for (size_t i = 0; i < node->n_input; i++)
    if (*onnx_str(node->input[i])) vec_push(a, reads, node->input[i]);
  for (size_t i = 0; i < node->n_attribute; i++) {
    // Gradient names the value that it derives.
    if (is_gradient && str_equal(onnx_str(node->attribute[i]->name), "y"))
      vec_push(a, reads, onnx_text(a, node->attribute[i]->s));
    // Branches and loops read outer names.
    if (node->attribute[i]->g) outer_reads(a, node->attribute[i]->g, reads);
    for (size_t k = 0; k < node->attribute[i]->n_graphs; k++)
      outer_reads(a, node->attribute[i]->graphs[k], reads);
  }
}

static void outer_reads(Arena *a, const Onnx__GraphProto *g, Strings *reads) {
  NameMap inside = {.arena = a};
  for (size_t i = 0; i < g->n_input; i++)
    name_map_add(&inside, onnx_str(g->input[i]->name), 0);
  for (size_t i = 0; i < g->n_initializer; i++)
    name_map_add(&inside, onnx_str(g->initializer[i]->name), 0);
  // Names that the graph defines itself, at any node, are not read from outside.
  Strings all = {0};
  for (size_t i = 0; i < g->n_node; i++) {
    for (size_t k = 0; k < g->node[i]->n_output; k++)
      name_map_add(&inside, onnx_str(g->node[i]->output[k]), 0);
    node_reads(a, g->node[i], &all);
  }
  for (size_t i = 0; i < g->n_output; i++)
    vec_push(a, &all, onnx_str(g->output[i]->name));
  for (int i = 0; i < all.n; i++)
    if (name_map_find(&inside, all.at[i]) < 0) vec_push(a, reads, all.at[i]);
}

const char *onnx_node_name(Arena *a, const Scope *scope, const Onnx__NodeProto *node) {
  const char *name = onnx_str(node->name);
  if (!*name) {
    // A node without a name is named by its first result.
    const char *out = "";
    for (size_t i = 0; i < node->n_output && !*out; i++)
      out = onnx_str(node->output[i]);
    name = str_format(a, "%s(%s)", onnx_str(node->op_type), out);
  }
  const char *slash = *scope->prefix && *name != '/' ? "/" : "";
  return str_format(a, "%s%s%s", scope->prefix, slash, name);
}

typedef struct Order {
  Import *im;
  const Scope *scope;
  Onnx__NodeProto *const *node;
  NameMap producer;
  Strings *reads; // of every node
  enum { NEW, OPEN, DONE } * state;
  int *next; // of an open node, the next read to follow
  int *stack, n_stack;
} Order;

static bool report_cycle(Order *o, int again) {
  Import *im = o->im;
  // The cycle is the end of the stack, from the node that is met again.
  int from = o->n_stack - 1;
  while (o->stack[from] != again)
    from--;
  enum { MOST = 20 }; // shown of them
  int n = o->n_stack - from;
  diag_error(im->d, onnx_place(im->file, im->a, onnx_node_name(im->a, o->scope, o->node[again])),
             "the graph has a cycle of %d node%s", n, n == 1 ? "" : "s");
  for (int i = o->n_stack - 1; i >= from; i--) {
    if (n > MOST && i == o->n_stack - 1 - MOST) {
      diag_note(im->d, NULL, "and %d more", n - MOST);
      break;
    }
    const Onnx__NodeProto *node = o->node[o->stack[i]];
    const char *name = o->reads[o->stack[i]].at[o->next[o->stack[i]] - 1];
    diag_note(im->d, onnx_place(im->file, im->a, onnx_node_name(im->a, o->scope, node)),
              "reads '%s'", name);
  }
  return false;
}

// Visits node `root` and all nodes that it depends on; appends them to `order`, the root last.
static bool visit(Order *o, int root, int *order, int *n_order) {
  if (o->state[root] != NEW) return true;
  o->stack[o->n_stack++] = root;
  o->state[root] = OPEN;
  while (o->n_stack > 0) {
    // An explicit stack: chains of nodes are longer than the C stack allows.
    int i = o->stack[o->n_stack - 1];
    if (o->next[i] == o->reads[i].n) {
      o->state[i] = DONE;
      order[(*n_order)++] = i;
      o->n_stack--;
      continue;
    }
    int from = name_map_find(&o->producer, o->reads[i].at[o->next[i]++]);
    if (from < 0 || o->state[from] == DONE) continue;
    // It is being visited already.
    if (o->state[from] == OPEN) return report_cycle(o, from);
    o->state[from] = OPEN;
    o->stack[o->n_stack++] = from;
  }
  return true;
}

bool onnx_order(Import *im, Onnx__NodeProto *const *node, size_t n_nodes, char *const *output,
                size_t n_output, Scope *scope, int **order, int *n_order) {
  Arena *a = im->a;
  int n = (int)n_nodes;
  Order o = {.im = im, .scope = scope, .node = node, .producer = {.arena = a}};
  o.reads = arena_array(a, Strings, n);
  o.state = arena_alloc_array(a, n_nodes, sizeof *o.state);
  o.next = arena_array(a, int, n);
  o.stack = arena_array(a, int, n);
  // Each name has one producer, and none has the name of an input or a weight.
  for (int i = 0; i < n; i++)
    for (size_t k = 0; k < node[i]->n_output; k++) {
      const char *name = onnx_str(node[i]->output[k]);
      if (!*name) continue;
      bool taken = name_map_find(&scope->names, name) >= 0;
      if (name_map_add(&o.producer, name, i) && !taken) continue;
      diag_error(im->d, onnx_place(im->file, im->a, onnx_node_name(im->a, scope, node[i])),
                 "'%s' is defined twice", name);
      if (taken)
        diag_hint(im->d,
                  "an input or a weight has the name of this node's output: rename that buffer or "
                  "parameter of the module, and export it again");
      return false;
    }
  for (int i = 0; i < n; i++)
    node_reads(a, node[i], &o.reads[i]);
  int *all = arena_array(a, int, n), n_all = 0;
  for (int i = 0; i < n; i++)
    if (!visit(&o, i, all, &n_all)) return false;

  // Backwards: a node is needed if a needed node reads it.
  for (size_t i = 0; i < n_output; i++)
    name_map_add(&scope->read, onnx_str(output[i]), 0);
  bool *needed = arena_array(a, bool, n);
  for (int i = n - 1; i >= 0; i--) {
    const Onnx__NodeProto *at = node[all[i]];
    for (size_t k = 0; k < at->n_output; k++)
      needed[all[i]] |= name_map_find(&scope->read, onnx_str(at->output[k])) >= 0;
    for (int k = 0; needed[all[i]] && k < o.reads[all[i]].n; k++)
      name_map_add(&scope->read, o.reads[all[i]].at[k], 0);
  }
  // Nodes that no output depends on are left out.
  *order = arena_array(a, int, n);
  *n_order = 0;
  for (int i = 0; i < n; i++)
    if (needed[all[i]]) (*order)[(*n_order)++] = all[i];
  return true;
}
