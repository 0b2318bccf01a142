// The emulated cuDNN: tensors, operations and graphs of them.  Their descriptors are interpreted
// and checked when they are finalized:
//
//     matmul         a (b, m, k) and b (b', k, n) give c (b, m, n); b' divides b: heads share keys
//     pointwise      b may be shorter and is then broadcast to y
//     reduction      over the dimensions in which y is shorter
//     reshape        a view of the same memory with other strides
//     convolution    and its gradients: the same three tensors, with any of them as the result
//
// In a graph a virtual tensor is computed once, by an operation before the first that reads it.

#include <string.h>

#include "cudnn_internal.h"

Tensor cudnn_tensor_of(const Descriptor *d) {
  Tensor t = {.uid = number(d, A(TENSOR_UNIQUE_ID), 0),
              .count = 1,
              .extent = 1,
              .type = (cudnnDataType_t)number(d, A(TENSOR_DATA_TYPE), 0),
              .ndim = (int)find(d, A(TENSOR_DIMENSIONS))->n,
              .alignment = number(d, A(TENSOR_BYTE_ALIGNMENT), 0),
              .is_virtual = number(d, A(TENSOR_IS_VIRTUAL), 0),
              .by_value = number(d, A(TENSOR_IS_BY_VALUE), 0)};
  for (int i = 0; i < t.ndim; i++) {
    t.dim[i] = number(d, A(TENSOR_DIMENSIONS), i);
    t.stride[i] = number(d, A(TENSOR_STRIDES), i);
    t.count *= t.dim[i];
    t.extent += (t.dim[i] - 1) * t.stride[i];
  }
  return t;
}

Tensor cudnn_operand(const Descriptor *op, cudnnBackendAttributeName_t name) {
  return cudnn_tensor_of(child(op, name));
}

static cudnnStatus_t check_tensor(const Descriptor *d) {
  if (find(d, A(TENSOR_DIMENSIONS))->n != find(d, A(TENSOR_STRIDES))->n)
    return BAD("a tensor has other dimensions than strides");
  Tensor t = cudnn_tensor_of(d);
  for (int i = 0; i < t.ndim; i++) {
    if (t.dim[i] < 1 || t.stride[i] < 1) return BAD("a dimension or stride of a tensor is below 1");
    for (int j = 0; j < i; j++) // elements must not overlap
      if (t.dim[i] > 1 && t.dim[j] > 1 && t.stride[i] == t.stride[j])
        return BAD("two dimensions of a tensor have one stride");
  }
  if (t.alignment < 1 || (t.alignment & (t.alignment - 1))) return BAD("an alignment is odd");
  if (t.is_virtual && t.by_value) return BAD("a tensor is virtual and by value");
  if (t.by_value && t.count != 1) return BAD("a tensor by value is not one number");
  return CUDNN_STATUS_SUCCESS;
}

int cudnn_results_of(const Descriptor *op, Descriptor **out) {
  switch (op->type) {
  case D(OPERATION_MATMUL): out[0] = child(op, A(OPERATION_MATMUL_CDESC)); break;
  case D(OPERATION_POINTWISE): out[0] = child(op, A(OPERATION_POINTWISE_YDESC)); break;
  case D(OPERATION_REDUCTION): out[0] = child(op, A(OPERATION_REDUCTION_YDESC)); break;
  case D(OPERATION_RESHAPE): out[0] = child(op, A(OPERATION_RESHAPE_YDESC)); break;
  case D(OPERATION_CONVOLUTION_FORWARD):
    out[0] = child(op, A(OPERATION_CONVOLUTION_FORWARD_Y));
    break;
  case D(OPERATION_CONVOLUTION_BACKWARD_DATA):
    out[0] = child(op, A(OPERATION_CONVOLUTION_BWD_DATA_DX));
    break;
  default: out[0] = child(op, A(OPERATION_CONVOLUTION_BWD_FILTER_DW)); break;
  }
  return 1;
}

int cudnn_reads_of(const Descriptor *op, Descriptor **out) {
  Descriptor *result;
  int n = 0;
  cudnn_results_of(op, &result);
  for (int i = 0; i < op->n; i++) {
    const Attribute *a = &op->attribute[i];
    if (a->type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
    Descriptor *d = *(Descriptor **)a->at;
    if (d->type == D(TENSOR) && d != result) out[n++] = d;
  }
  return n;
}

static bool same_dims(const Tensor *a, const Tensor *b) {
  return a->ndim == b->ndim && memcmp(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->ndim) == 0;
}

// Whether b can be broadcast to the dimensions of y.
static bool repeats_to(const Tensor *b, const Tensor *y) {
  if (b->ndim != y->ndim) return false;
  for (int i = 0; i < b->ndim; i++)
    if (b->dim[i] != 1 && b->dim[i] != y->dim[i]) return false;
  return true;
}

static cudnnStatus_t check_matmul(const Descriptor *op) {
  Tensor a = cudnn_operand(op, A(OPERATION_MATMUL_ADESC));
  Tensor b = cudnn_operand(op, A(OPERATION_MATMUL_BDESC));
  Tensor c = cudnn_operand(op, A(OPERATION_MATMUL_CDESC));
  int r = c.ndim;
  if (a.ndim != r || b.ndim != r || a.dim[r - 1] != b.dim[r - 2] || a.dim[r - 2] != c.dim[r - 2] ||
      b.dim[r - 1] != c.dim[r - 1])
    return BAD("matmul: dimensions do not fit");
  for (int i = 0; i < r - 2; i++)
    if (a.dim[i] != c.dim[i] || c.dim[i] % b.dim[i] != 0)
      return BAD("matmul: dimension %d of the batch does not fit", i);
  if (a.type != b.type) return BAD("matmul: operands of two types");
  return CUDNN_STATUS_SUCCESS;
}

static int operands_of_mode(cudnnPointwiseMode_t mode) {
  switch (mode) {
  case CUDNN_POINTWISE_ADD:
  case CUDNN_POINTWISE_SUB:
  case CUDNN_POINTWISE_MUL:
  case CUDNN_POINTWISE_DIV:
  case CUDNN_POINTWISE_MAX:
  case CUDNN_POINTWISE_CMP_GE: return 2;
  case CUDNN_POINTWISE_EXP:
  case CUDNN_POINTWISE_LOG:
  case CUDNN_POINTWISE_IDENTITY:
  case CUDNN_POINTWISE_GEN_INDEX: return 1;
  case CUDNN_POINTWISE_BINARY_SELECT: return 3;
  default: return 0; // unknown here
  }
}

static cudnnStatus_t check_pointwise(const Descriptor *op) {
  const Descriptor *how = child(op, A(OPERATION_POINTWISE_PW_DESCRIPTOR));
  cudnnPointwiseMode_t mode = (cudnnPointwiseMode_t)number(how, A(POINTWISE_MODE), 0);
  int n = operands_of_mode(mode);
  if (n == 0) return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "pointwise: mode %d", (int)mode);
  if ((n >= 2) != (find(op, A(OPERATION_POINTWISE_BDESC)) != NULL) ||
      (n == 3) != (find(op, A(OPERATION_POINTWISE_TDESC)) != NULL))
    return BAD("pointwise: mode %d has %d operands", (int)mode, n);
  Tensor x = cudnn_operand(op, A(OPERATION_POINTWISE_XDESC));
  Tensor y = cudnn_operand(op, A(OPERATION_POINTWISE_YDESC));
  if (!same_dims(&x, &y)) return BAD("pointwise: x has other dimensions than y");
  if (mode == CUDNN_POINTWISE_GEN_INDEX && !find(how, A(POINTWISE_AXIS)))
    return BAD("pointwise: an index needs an axis");
  if (n >= 2) {
    Tensor b = cudnn_operand(op, A(OPERATION_POINTWISE_BDESC));
    if (!repeats_to(&b, &y)) return BAD("pointwise: b does not fit");
  }
  if (n == 3) {
    Tensor t = cudnn_operand(op, A(OPERATION_POINTWISE_TDESC));
    if (!same_dims(&t, &y) || t.type != CUDNN_DATA_BOOLEAN)
      return BAD("pointwise: what selects is no boolean of y's dimensions");
  }
  if (mode == CUDNN_POINTWISE_CMP_GE && y.type != CUDNN_DATA_BOOLEAN)
    return BAD("pointwise: a comparison gives booleans");
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_reduction(const Descriptor *op) {
  Tensor x = cudnn_operand(op, A(OPERATION_REDUCTION_XDESC));
  Tensor y = cudnn_operand(op, A(OPERATION_REDUCTION_YDESC));
  for (int i = 0; i < x.ndim; i++)
    if (x.ndim != y.ndim || x.dim[i] % y.dim[i] != 0) return BAD("reduction: y does not fit");
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_reshape(const Descriptor *op) {
  Tensor x = cudnn_operand(op, A(OPERATION_RESHAPE_XDESC));
  Tensor y = cudnn_operand(op, A(OPERATION_RESHAPE_YDESC));
  if (x.count != y.count || x.extent != y.extent) return BAD("reshape: y is not of x's size");
  return CUDNN_STATUS_SUCCESS;
}

Conv cudnn_conv_of(const Descriptor *op) {
  Conv c = {0};
  const Descriptor *how;
  if (op->type == D(OPERATION_CONVOLUTION_FORWARD)) {
    how = child(op, A(OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
    c.x = cudnn_operand(op, A(OPERATION_CONVOLUTION_FORWARD_X));
    c.w = cudnn_operand(op, A(OPERATION_CONVOLUTION_FORWARD_W));
    c.y = cudnn_operand(op, A(OPERATION_CONVOLUTION_FORWARD_Y));
  } else if (op->type == D(OPERATION_CONVOLUTION_BACKWARD_DATA)) {
    how = child(op, A(OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC));
    c.x = cudnn_operand(op, A(OPERATION_CONVOLUTION_BWD_DATA_DX));
    c.w = cudnn_operand(op, A(OPERATION_CONVOLUTION_BWD_DATA_W));
    c.y = cudnn_operand(op, A(OPERATION_CONVOLUTION_BWD_DATA_DY));
  } else {
    how = child(op, A(OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC));
    c.x = cudnn_operand(op, A(OPERATION_CONVOLUTION_BWD_FILTER_X));
    c.w = cudnn_operand(op, A(OPERATION_CONVOLUTION_BWD_FILTER_DW));
    c.y = cudnn_operand(op, A(OPERATION_CONVOLUTION_BWD_FILTER_DY));
  }
  c.n = (int)number(how, A(CONVOLUTION_SPATIAL_DIMS), 0);
  for (int i = 0; i < c.n && i < 3; i++) {
    c.stride[i] = number(how, A(CONVOLUTION_FILTER_STRIDES), i);
    c.dilation[i] = number(how, A(CONVOLUTION_DILATIONS), i);
    c.low[i] = number(how, A(CONVOLUTION_PRE_PADDINGS), i);
    c.high[i] = number(how, A(CONVOLUTION_POST_PADDINGS), i);
  }
  return c;
}

static cudnnStatus_t check_conv(const Descriptor *op) {
  Conv c = cudnn_conv_of(op);
  if (c.n < 2 || c.n > 3 || c.x.ndim != c.n + 2 || c.w.ndim != c.n + 2 || c.y.ndim != c.n + 2)
    return BAD("convolution: ranks do not fit");
  if (c.x.dim[0] != c.y.dim[0] || c.w.dim[0] != c.y.dim[1] || c.x.dim[1] % c.w.dim[1] != 0 ||
      c.y.dim[1] % (c.x.dim[1] / c.w.dim[1]) != 0)
    return BAD("convolution: channels do not fit");
  for (int i = 0; i < c.n; i++) {
    if (c.low[i] < 0 || c.high[i] < 0 || c.stride[i] < 1 || c.dilation[i] < 1)
      return BAD("convolution: a padding, stride or dilation is too small");
    // Engines of 9.19 accept it, and some compute wrong gradients.
    if (c.low[i] != c.high[i]) return BAD("convolution: dimension %d is padded unevenly", i);
    int64_t room = c.x.dim[i + 2] + c.low[i] + c.high[i] - (c.w.dim[i + 2] - 1) * c.dilation[i] - 1;
    if (room < 0 || room / c.stride[i] + 1 != c.y.dim[i + 2])
      return BAD("convolution: dimension %d of y does not fit", i);
  }
  return CUDNN_STATUS_SUCCESS;
}

// In attention backward (more than two products), 9.19 computes wrong gradients of a mask that is
// broadcast along queries or keys.
static cudnnStatus_t check_masks(const Attribute *ops) {
  int n_products = 0;
  for (int64_t i = 0; i < ops->n; i++)
    n_products += ((Descriptor **)ops->at)[i]->type == D(OPERATION_MATMUL);
  for (int64_t i = 0; i < ops->n && n_products > 2; i++) {
    const Descriptor *op = ((Descriptor **)ops->at)[i];
    if (op->type != D(OPERATION_POINTWISE) || !find(op, A(OPERATION_POINTWISE_BDESC)) ||
        number(child(op, A(OPERATION_POINTWISE_PW_DESCRIPTOR)), A(POINTWISE_MODE), 0) !=
            CUDNN_POINTWISE_ADD)
      continue;
    Tensor b = cudnn_operand(op, A(OPERATION_POINTWISE_BDESC));
    Tensor y = cudnn_operand(op, A(OPERATION_POINTWISE_YDESC));
    for (int k = 2; k < b.ndim && !b.by_value && !b.is_virtual; k++)
      if (b.dim[k] != y.dim[k]) return BAD("attention backward: a mask is broadcast along %d", k);
  }
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_graph(const Descriptor *g) {
  const Attribute *ops = find(g, A(OPERATIONGRAPH_OPS));
  Descriptor *seen[MAX_TENSORS], *made[MAX_OPS], *reads[MAX_ATTRIBUTES];
  int n_seen = 0, n_made = 0;
  for (int64_t i = 0; i < ops->n; i++) {
    Descriptor *op = ((Descriptor **)ops->at)[i];
    int n = cudnn_reads_of(op, reads);
    for (int j = 0; j < n; j++) {
      bool is_made = false;
      for (int k = 0; k < n_made; k++)
        is_made = is_made || made[k] == reads[j];
      if (number(reads[j], A(TENSOR_IS_VIRTUAL), 0) && !is_made)
        return BAD("operation %d reads a virtual tensor that none before it makes", (int)i);
      seen[n_seen++] = reads[j];
    }
    cudnn_results_of(op, &made[n_made]);
    for (int k = 0; k < n_made; k++)
      if (made[k] == made[n_made]) return BAD("two operations make one tensor");
    seen[n_seen++] = made[n_made++];
    if (n_seen > MAX_TENSORS - MAX_ATTRIBUTES) return BAD("too many tensors");
  }
  for (int i = 0; i < n_seen; i++)
    for (int j = 0; j < i; j++)
      if (seen[i] != seen[j] &&
          number(seen[i], A(TENSOR_UNIQUE_ID), 0) == number(seen[j], A(TENSOR_UNIQUE_ID), 0))
        return BAD("two tensors have one id");
  return check_masks(ops);
}

cudnnStatus_t cudnn_check_graph(const Descriptor *d) {
  switch ((int)d->type) {
  case D(TENSOR): return check_tensor(d);
  case D(OPERATION_MATMUL): return check_matmul(d);
  case D(OPERATION_POINTWISE): return check_pointwise(d);
  case D(OPERATION_REDUCTION): return check_reduction(d);
  case D(OPERATION_RESHAPE): return check_reshape(d);
  case D(OPERATION_CONVOLUTION_FORWARD):
  case D(OPERATION_CONVOLUTION_BACKWARD_DATA):
  case D(OPERATION_CONVOLUTION_BACKWARD_FILTER): return check_conv(d);
  case D(OPERATIONGRAPH): return check_graph(d);
  default: return CUDNN_STATUS_SUCCESS;
  }
}
