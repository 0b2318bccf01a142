// Writes nodes of a model as in inference, for --export.
//
//     y, m, v = BatchNormalization(x, scale, bias, mean, var) training_mode=1
//     z, mask = Dropout(y, ratio, true)
//
//   =>
//
//     y = BatchNormalization(x, scale, bias, mean, var)
//     m = Identity(mean)                                       if a node reads m
//     z, mask = Dropout(y, ratio)
//
// All other nodes are copied byte for byte, in branches and loops as well.  A BatchNormalization
// with readers of the batch's statistics (before opset 14) has no such form and is not changed.

#include "frontend/onnx_inference.h"

#include "frontend/onnx_read.h"

// Field numbers of onnx.proto.
enum {
  GRAPH_NODE = 1,
  NODE_INPUT = 1,
  NODE_OUTPUT = 2,
  NODE_OP_TYPE = 4,
  NODE_ATTRIBUTE = 5,
  ATTRIBUTE_GRAPH = 6,
  ATTRIBUTE_GRAPHS = 11,
};

// -- Names that are read -------------------------------------------------------------------------

static void add_nodes(InferenceWriter *w, size_t n, Onnx__NodeProto *const *node);

static void add_graph(InferenceWriter *w, const Onnx__GraphProto *g) {
  add_nodes(w, g->n_node, g->node);
  for (size_t i = 0; i < g->n_output; i++)
    name_map_add(&w->reads, onnx_str(g->output[i]->name), 0);
}

static void add_nodes(InferenceWriter *w, size_t n, Onnx__NodeProto *const *node) {
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < node[i]->n_input; k++)
      name_map_add(&w->reads, onnx_str(node[i]->input[k]), 0);
    for (size_t k = 0; k < node[i]->n_attribute; k++) {
      // Branches and loops read outer names.
      const Onnx__AttributeProto *a = node[i]->attribute[k];
      if (a->g) add_graph(w, a->g);
      for (size_t j = 0; j < a->n_graphs; j++)
        add_graph(w, a->graphs[j]);
    }
  }
}

void inference_reads(InferenceWriter *w, const Onnx__ModelProto *model) {
  add_graph(w, model->graph);
  for (size_t i = 0; i < model->n_functions; i++) {
    const Onnx__FunctionProto *f = model->functions[i];
    // One map serves the graph and all bodies: a name too many only keeps a result.
    add_nodes(w, f->n_node, f->node);
    for (size_t k = 0; k < f->n_output; k++)
      name_map_add(&w->reads, onnx_str(f->output[k]), 0);
  }
}

// -- Writing -------------------------------------------------------------------------------------

static void put_raw(InferenceWriter *w, const WireField *field) {
  wire_put(w->to, w->file + field->start, field->end - field->start);
}

static void put_graph(InferenceWriter *w, int number, const WireField *field,
                      const Onnx__GraphProto *g) {
  int64_t start = wire_open(w->to, number);
  size_t node = 0;
  for (int64_t at = field->data; at < field->end;) {
    WireField part = wire_read(w->file, at);
    // Nodes of the branch are written by the same rules.
    if (part.number == GRAPH_NODE)
      inference_put_node(w, GRAPH_NODE, &part, g->node[node++]);
    else
      put_raw(w, &part);
    at = part.end;
  }
  wire_close(w->to, start);
}

static void put_attribute(InferenceWriter *w, const WireField *field,
                          const Onnx__AttributeProto *a) {
  int64_t start = wire_open(w->to, NODE_ATTRIBUTE);
  size_t graph = 0;
  for (int64_t at = field->data; at < field->end;) {
    WireField part = wire_read(w->file, at);
    // An attribute holds one graph, or a list of them.
    if (part.number == ATTRIBUTE_GRAPH)
      put_graph(w, part.number, &part, a->g);
    else if (part.number == ATTRIBUTE_GRAPHS)
      put_graph(w, part.number, &part, a->graphs[graph++]);
    else
      put_raw(w, &part);
    at = part.end;
  }
  wire_close(w->to, start);
}

static bool is_read(const InferenceWriter *w, const Onnx__NodeProto *node, size_t output) {
  const char *name = output < node->n_output ? onnx_str(node->output[output]) : "";
  return *name && name_map_find(&w->reads, name) >= 0;
}

static bool is_op(const Onnx__NodeProto *node, const char *op) {
  const char *domain = onnx_str(node->domain);
  // The default domain has two spellings.
  return str_equal(onnx_str(node->op_type), op) && (!*domain || str_equal(domain, "ai.onnx"));
}

void inference_put_node(InferenceWriter *w, int number, const WireField *field,
                        const Onnx__NodeProto *node) {
  bool dropout = is_op(node, "Dropout");
  bool norm = is_op(node, "BatchNormalization") && node->n_input == 5 && !is_read(w, node, 3) &&
              !is_read(w, node, 4);
  bool graphs = false;
  for (size_t i = 0; i < node->n_attribute; i++)
    graphs = graphs || node->attribute[i]->g || node->attribute[i]->n_graphs;
  // All other nodes are copied.
  if (!dropout && !norm && !graphs) {
    put_raw(w, field);
    return;
  }
  // The node is written field by field, without those of training.
  int64_t start = wire_open(w->to, number);
  size_t input = 0, output = 0, attribute = 0;
  for (int64_t at = field->data; at < field->end;) {
    WireField part = wire_read(w->file, at);
    at = part.end;
    // training_mode is operand 2 of the one and an attribute of the other.
    if (part.number == NODE_INPUT && input++ >= 2 && dropout) continue;
    if (part.number == NODE_OUTPUT && output++ >= 1 && norm) continue;
    const Onnx__AttributeProto *a =
        part.number == NODE_ATTRIBUTE ? node->attribute[attribute++] : NULL;
    if (a && norm && str_equal(onnx_str(a->name), "training_mode")) continue;
    if (a && (a->g || a->n_graphs))
      put_attribute(w, &part, a);
    else
      put_raw(w, &part);
  }
  wire_close(w->to, start);
  for (size_t i = 1; norm && i < 3; i++)
    if (is_read(w, node, i)) {
      // In inference the new running statistics are the old ones.
      int64_t identity = wire_open(w->to, number);
      wire_string(w->to, NODE_INPUT, onnx_str(node->input[2 + i]));
      wire_string(w->to, NODE_OUTPUT, node->output[i]);
      wire_string(w->to, NODE_OP_TYPE, "Identity");
      wire_close(w->to, identity);
    }
}
