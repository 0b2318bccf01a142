// Norms of a residual stream: of a sum that is also passed on, and its adjoint.
//
//     s, y, mean, rstd = add_layer_norm x, r, g, b         s = x + r, y = layer_norm(s)
//     dx, dg, db = layer_norm_back_add dr, x, g, mean, rstd, dy
//                                                          dx = dr + the dx of layer_norm_back
//
// and the same of rms_norm.  fuse_norm builds them from ops that are also their references; the
// norm is that of the sum as it is stored.

#include "ir/ops/reference.h"

static void add_tensors(const Tensor *x, const Tensor *y, Tensor *out) {
  for (int64_t i = 0; i < type_count(out->type); i++)
    tensor_set_f(out, i, tensor_f(x, i) + tensor_f(y, i));
}

bool add_layer_norm_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  add_tensors(&in[0], &in[1], &out[0]);
  return layer_norm_ref(op, (Tensor[]){out[0], in[2], in[3]}, &out[1], box, d);
}

bool add_rms_norm_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  add_tensors(&in[0], &in[1], &out[0]);
  return rms_norm_ref(op, (Tensor[]){out[0], in[2]}, &out[1], box, d);
}

static bool back_add(ReferenceFn *back, const Op *op, const Tensor *in, Tensor *out, const Box *box,
                     Diag *d) {
  Arena *a = arena_new();
  Tensor result[3] = {tensor_of_doubles(a, op, out[0].type, 0)};
  // Only dx goes through the temporary; other results are final.
  for (int i = 1; i < op->n_out; i++)
    result[i] = out[i];
  bool ok = back(op, in + 1, result, box, d);
  add_tensors(&in[0], &result[0], &out[0]);
  arena_free(a);
  return ok;
}

bool layer_norm_back_add_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  return back_add(layer_norm_back_ref, op, in, out, box, d);
}

bool rms_norm_back_add_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  return back_add(rms_norm_back_ref, op, in, out, box, d);
}
