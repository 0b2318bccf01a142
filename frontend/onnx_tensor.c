// Models of a single node, in ONNX's test data.

#include "frontend/onnx_tensor.h"

#include "frontend/onnx_read.h"

const char *onnx_subject(const char *path, Arena *a) {
  OnnxFile f;
  Diag *d = diag_new(stderr);
  const char *op = NULL;
  int n = 0;
  diag_quiet(d, true);
  if (onnx_open(&f, path, &onnx__model_proto__descriptor, a, d)) {
    const Onnx__GraphProto *g = onnx_model(&f)->graph;
    for (size_t i = 0; g && i < g->n_node; i++)
      // Constants are operands of the one operator.
      if (!str_equal(onnx_str(g->node[i]->op_type), "Constant")) {
        op = onnx_str(g->node[i]->op_type);
        n++;
      }
    op = n == 1 ? str_copy(a, op) : NULL;
    onnx_close(&f);
  }
  diag_free(d);
  return op;
}
