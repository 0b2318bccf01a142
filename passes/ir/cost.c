// How much an op computes and how much it moves: what the price of a plan is made of.

#include "ir/op.h"

double op_bytes(const Op *op) {
  if (op_info[op->kind].traits & VIEW) return 0;
  double bytes = 0;
  for (int i = 0; i < op->n_in; i++)
    bytes += (double)type_bytes(op->in[i].value->type);
  for (int i = 0; i < op->n_out; i++)
    bytes += (double)type_bytes(op->out[i]->type);
  return bytes;
}

static double count(const Value *v) {
  return (double)type_count(v->type);
}

// A window slides over the image: for every element of y, a multiply-add with every weight of its
// output channel.  The einsum does not know how image and window dimensions hang together.
static double conv_flops(const Value *w, const Value *y) {
  return 2 * count(y) * count(w) / (double)(w->type->dim[0] ? w->type->dim[0] : 1);
}

// Products of t x s matrices with their d columns: scores and y forward; backward the scores again
// and four gradients of that size.  Half of them under a causal mask.
static double attention_flops(const Op *op, const Value *lse, int products) {
  const Type *k = op->in[1].value->type;
  double s = (double)(attr_i(op, "seq_major") ? k->dim[1] : k->dim[2]);
  double flops = 2 * count(lse) * s * (double)k->dim[3] * products;
  return attr_i(op, "causal") ? flops / 2 : flops;
}

double op_flops(const Op *op) {
  switch ((int)op->kind) {
  case OP_conv: return conv_flops(op->in[1].value, op->out[0]);
  case OP_conv_back_x: return conv_flops(op->in[0].value, op->in[1].value);
  case OP_conv_back_w: return conv_flops(op->out[0], op->in[1].value);
  case OP_attention: return attention_flops(op, op->out[1], 2);
  case OP_attention_back: return attention_flops(op, op->in[4].value, 5);
  }
  double elements = 0;
  for (int i = 0; i < op->n_in; i++)
    elements += count(op->in[i].value);
  for (int i = 0; i < op->n_out; i++)
    elements += count(op->out[i]);
  if (!(op_info[op->kind].traits & EACH) || op_info[op->kind].formula) return elements;
  Dims dims;
  Diag *d = diag_new(stderr);
  bool ok = op_dims(op, &dims, d);
  diag_free(d);
  if (!ok) BUG("%s does not fit its own row", op_info[op->kind].name);
  double flops = 2;
  for (int i = 0; i < dims.n_letters; i++)
    flops *= (double)dims.letter[i].size;
  return flops;
}
