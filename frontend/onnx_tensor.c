// A file that holds one TensorProto.

#include "frontend/onnx_tensor.h"

#include "frontend/onnx_weights.h"

bool onnx_tensor_read(const char *path, bool keep, Module *m, Arena *a, Tensor *out, Diag *d) {
  OnnxFile f;
  OnnxTensor t;
  if (!onnx_open(&f, path, &onnx__tensor_proto__descriptor, a, d)) return false;
  bool ok = onnx_tensor(&f, NULL, onnx_tensor_message(&f), a, f.loc, &t, d);
  if (ok) {
    // Half precision is computed in f32, as in models.
    const Type *type = type_new(m, onnx_compute_dtype(t.dtype, keep), t.ndim, t.dim);
    ok = onnx_tensor_load(&f, &t, type, a, f.loc, out, d);
  }
  onnx_close(&f);
  return ok;
}

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
