// Weights in Constant nodes, as paddle2onnx and some versions of tf2onnx write them:
//
//     Constant -> w          is bound as an initializer `w` would be, since all that read it have
//     Conv(x, w, b) -> y     parameters there (slots)
//
// Exporters of PyTorch keep parameters in initializers; their Constant nodes hold none.

#include <string.h>

#include "frontend/onnx_constant_weights.h"
#include "frontend/onnx_walk.h"

// Operands that are parameters if they are constant.
static const struct {
  const char *op;
  int first, last;
} slots[] = {
    {"Conv", 1, 2},
    {"ConvTranspose", 1, 2},
    {"Gemm", 1, 2},
    {"MatMul", 0, 1},
    {"BatchNormalization", 1, 4},
    {"InstanceNormalization", 1, 2},
    {"LayerNormalization", 1, 2},
    {"GroupNormalization", 1, 2},
    {"PRelu", 1, 1},
    {"Gather", 0, 0},
};

// Ops with a result to which a bias may be added.
static const char *const biased[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};

typedef struct Search {
  const Onnx__GraphProto *g;
  NameMap made; // names of results, to their nodes
} Search;

const Onnx__TensorProto *onnx_constant_tensor(const Onnx__NodeProto *node) {
  if (strcmp(onnx_str(node->op_type), "Constant") != 0 || *onnx_str(node->domain)) return NULL;
  for (size_t i = 0; i < node->n_attribute; i++)
    if (str_equal(onnx_str(node->attribute[i]->name), "value") && node->n_output == 1)
      return node->attribute[i]->t;
  return NULL;
}

static int long_dims(const Onnx__TensorProto *t) {
  int n = 0;
  for (size_t i = 0; i < t->n_dims; i++)
    n += t->dims[i] > 1;
  return n;
}

static bool is_slot(const Search *s, const Onnx__NodeProto *node, size_t operand,
                    const Onnx__TensorProto *t) {
  const char *op = onnx_str(node->op_type);
  if (*onnx_str(node->domain)) return false;
  if (str_equal(op, "Add")) {
    // A bias: a vector that is added to the result of an op with parameters.
    if (node->n_input != 2 || long_dims(t) != 1) return false;
    int by = name_map_find(&s->made, onnx_str(node->input[1 - operand]));
    for (size_t i = 0; by >= 0 && i < sizeof biased / sizeof *biased; i++)
      if (str_equal(onnx_str(s->g->node[by]->op_type), biased[i])) return true;
    return false;
  }
  // A vector is no weight of a matrix product, and no table.
  if ((str_equal(op, "MatMul") || str_equal(op, "Gather")) && long_dims(t) < 2) return false;
  for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
    if (str_equal(op, slots[i].op))
      return (int)operand >= slots[i].first && (int)operand <= slots[i].last;
  return false;
}

void onnx_find_constant_weights(Import *im) {
  const Onnx__ModelProto *model = onnx_model(im->file);
  Search s = {.g = model->graph, .made = {.arena = im->a}};
  im->constant_weights.arena = im->a;
  // PyTorch's exporters keep parameters in initializers.
  if (str_equal(onnx_str(model->producer_name), "pytorch")) return;
  for (size_t i = 0; i < s.g->n_node; i++)
    // The node that makes each name.
    for (size_t k = 0; k < s.g->node[i]->n_output; k++)
      name_map_add(&s.made, onnx_str(s.g->node[i]->output[k]), (int)i);
  bool *read = arena_array(im->a, bool, s.g->n_node),
       *other = arena_array(im->a, bool, s.g->n_node);
  // A Constant is a weight if all its readers take a parameter in that place.
  for (size_t i = 0; i < s.g->n_node; i++)
    for (size_t k = 0; k < s.g->node[i]->n_input; k++) {
      int by = name_map_find(&s.made, onnx_str(s.g->node[i]->input[k]));
      const Onnx__TensorProto *t = by >= 0 ? onnx_constant_tensor(s.g->node[by]) : NULL;
      if (!t) continue;
      read[by] = true;
      other[by] |= !is_slot(&s, s.g->node[i], k, t);
    }
  // An output of the graph is a reader that takes no parameter.
  for (size_t i = 0; i < s.g->n_output; i++) {
    int by = name_map_find(&s.made, onnx_str(s.g->output[i]->name));
    if (by >= 0) other[by] = true;
  }
  for (size_t i = 0; i < s.g->n_node; i++) {
    const Onnx__TensorProto *t = onnx_constant_tensor(s.g->node[i]);
    DType dtype;
    bool floating = t && onnx_dtype(t->data_type, &dtype) && dtype_class[dtype] == 'F' &&
                    !onnx_narrow(t->data_type);
    if (floating && read[i] && !other[i])
      name_map_add(&im->constant_weights, onnx_str(s.g->node[i]->output[0]), (int)i);
  }
}

const Onnx__TensorProto *onnx_constant_weight(const Import *im, const Onnx__NodeProto *node) {
  const Onnx__TensorProto *t = onnx_constant_tensor(node);
  int at = t ? name_map_find(&im->constant_weights, onnx_str(node->output[0])) : -1;
  return at >= 0 && onnx_model(im->file)->graph->node[at] == node ? t : NULL;
}
