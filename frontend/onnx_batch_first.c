// Makes the batch dimension 0 of inputs and outputs, as in files of data.
//
//     input x: float[T,n,5]     =>   %x: f32[n,T,5] input "x", and %1 = transpose %x perm=[1,0,2]
//     input mask: float[T,1]    =>   %mask: f32[T,1] input "mask" whole
//     output y: float[T*n,C]    =>   of [n*T,C]

#include "frontend/onnx_walk.h"

Value *onnx_input(Import *im, const OnnxInput *input) {
  Arena *a = im->m->arena;
  const Type *type = input->type;
  const Loc *loc = onnx_place(im->file, a, input->name);
  bool moves = im->o->batch_first && input->batch > 0;
  if (moves) {
    // Files of data have the batch in front.
    int64_t dim[MAX_NDIM] = {type->dim[input->batch]};
    for (int d = 1; d < type->ndim; d++)
      dim[d] = type->dim[d <= input->batch ? d - 1 : d];
    type = type_new(im->m, type->dtype, type->ndim, dim);
  }
  Value *v = graph_param(im->g, onnx_value_name(a, input->name), type, ROLE_input, loc);
  v->label = str_copy(a, input->name);
  v->whole = im->o->batch_first && type->ndim > 0 && input->batch < 0;
  if (!moves) return v;
  im->batch_moved = true;
  // Dimension 0 moves to the batch's position, and those up to there one to the left.
  int64_t perm[MAX_NDIM];
  for (int d = 0; d < type->ndim; d++)
    perm[d] = d < input->batch ? d + 1 : d == input->batch ? 0 : d;
  Builder b = {.g = im->g, .origin = {.loc = loc}, .d = im->d};
  return build_transpose(&b, v, perm);
}

Value *onnx_output(Import *im, const Onnx__ValueInfoProto *output, Value *v, BatchDim at) {
  if (!im->o->batch_first || v->type->ndim == 0) return v;
  const Loc *loc = onnx_place(im->file, im->m->arena, onnx_str(output->name));
  int64_t size = graph_batch_size(im->g);
  if (at.dim == 0 && at.outer > 1 && size > 0 && v->type->dim[0] % (at.outer * size) == 0) {
    // Positions of dimension 0 are reordered from (outer, batch, inner) to (batch, outer, inner).
    int64_t outer = at.outer;
    const Type *t = v->type;
    int64_t dim[MAX_NDIM] = {outer, size, t->dim[0] / (outer * size)};
    int64_t perm[MAX_NDIM] = {1, 0};
    if (t->ndim + 2 > MAX_NDIM) return v;
    for (int d = 2; d < t->ndim + 2; d++)
      perm[d] = d;
    for (int d = 1; d < t->ndim; d++)
      dim[d + 2] = t->dim[d];
    Builder b = {.g = im->g, .origin = {.loc = loc}, .d = im->d};
    Value *apart = build_reshape(&b, v, t->ndim + 2, dim);
    return build_reshape(&b, build_transpose(&b, apart, perm), t->ndim, t->dim);
  }
  int batch = batch_dim(at);
  if (batch < 0) batch = onnx_declared_batch(im, output, v->type);
  if (batch < 0 && im->batch_moved && !im->problems.all.n) {
    diag_doubt(im->d, PROBLEM_batch, loc,
               "no dimension of output '%s', %s, is known to be the batch", onnx_str(output->name),
               type_text(im->a, v->type));
    diag_hint(im->d, "a loss of it takes dimension 0; name the batch in the output's shape");
  }
  // It is in front already, or unknown.
  if (batch <= 0) return v;
  int64_t perm[MAX_NDIM] = {batch};
  for (int d = 1; d < v->type->ndim; d++)
    perm[d] = d <= batch ? d - 1 : d;
  Builder b = {.g = im->g, .origin = {.loc = loc}, .d = im->d};
  return build_transpose(&b, v, perm);
}
