// The batch as dimension 0 of inputs and outputs, since data has its rows there.
//
//     input x: float[T,n,5]     =>   %x: f32[n,T,5] input "x", and %1 = transpose %x perm=[1,0,2]
//     input mask: float[T,1]    =>   %mask: f32[T,1] input "mask" whole
//
// The batch is followed from the inputs to the outputs along the einsums of the ops:
//
//     x [T,n,5]                        batch 1
//     h [T,n,3] = linear x, w          batch 1
//     y [n,3]   = reduce_sum h axes=0  batch 0

#include "frontend/onnx_walk.h"
#include "ir/dims.h"

// -- Followed to the outputs --------------------------------------------------------------------

// The dimension whose major factor is this letter, or -1.
static int position(const Term *t, int letter) {
  for (int d = 0; d < t->rank; d++)
    if (t->dim[d].n > 0 && t->dim[d].letter[0] == letter) return d;
  return -1;
}

static void follow(const Import *im, const Op *op, int *batch) {
  const Dims *dims = op_dims_kept(op, im->a, im->caught);
  int letter = -1;
  for (int i = 0; dims && i < op->n_in && letter < 0; i++) {
    int dim = batch[op->in[i].value->id];
    if (dim >= 0 && dims->in[i].dim[dim].n > 0) letter = dims->in[i].dim[dim].letter[0];
  }
  for (int i = 0; i < op->n_out; i++)
    batch[op->out[i]->id] = letter < 0 ? -1 : position(&dims->out[i], letter);
}

const int *onnx_follow_batch(const Import *im) {
  const Graph *g = im->g;
  int *batch = arena_array(im->a, int, g->n_values);
  for (uint32_t i = 0; i < g->n_values; i++)
    batch[i] = -1;
  for (int i = 0; i < g->n_params; i++)
    if (value_has_rows(g->params[i])) batch[g->params[i]->id] = 0;
  for_each_op(op, g)
    follow(im, op, batch);
  return batch;
}

// -- Inputs and outputs -------------------------------------------------------------------------

Value *onnx_input(Import *im, const OnnxInput *input) {
  Arena *a = im->m->arena;
  const Type *type = input->type;
  const Loc *loc = onnx_place(im->file, a, input->name);
  bool moves = im->o->rows_first && input->batch > 0;
  if (moves) {
    int64_t dim[MAX_RANK] = {type->dim[input->batch]};
    for (int d = 1; d < type->rank; d++)
      dim[d] = type->dim[d <= input->batch ? d - 1 : d];
    type = type_new(im->m, type->dtype, type->rank, dim);
  }
  Value *v = graph_param(im->g, onnx_value_name(a, input->name), type, ROLE_input, loc);
  v->label = str_copy(a, input->name);
  v->whole = im->o->rows_first && type->rank > 0 && input->batch < 0;
  if (!moves) return v;
  im->batch_moved = true;
  // Dimension 0 goes to its place, and those up to there one to the left.
  int64_t perm[MAX_RANK];
  for (int d = 0; d < type->rank; d++)
    perm[d] = d < input->batch ? d + 1 : d == input->batch ? 0 : d;
  Builder b = {.g = im->g, .origin = {.loc = loc}, .d = im->d};
  return build_transpose(&b, v, perm);
}

Value *onnx_output(Import *im, const Onnx__ValueInfoProto *output, Value *v, const int *batch_of) {
  if (!im->o->rows_first || v->type->rank == 0) return v;
  const Loc *loc = onnx_place(im->file, im->m->arena, onnx_str(output->name));
  int batch = batch_of[v->id];
  if (batch < 0) batch = onnx_declared_batch(im, output, v->type);
  if (batch < 0 && im->batch_moved) {
    diag_warning(im->d, loc, "no dimension of output '%s', %s, is known to be the batch",
                 onnx_str(output->name), type_text(im->a, v->type));
    diag_hint(im->d, "a loss of it takes dimension 0; name the batch in the output's shape");
  }
  if (batch <= 0) return v;
  int64_t perm[MAX_RANK] = {batch};
  for (int d = 1; d < v->type->rank; d++)
    perm[d] = d <= batch ? d - 1 : d;
  Builder b = {.g = im->g, .origin = {.loc = loc}, .d = im->d};
  return build_transpose(&b, v, perm);
}
