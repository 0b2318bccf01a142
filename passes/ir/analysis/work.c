// See work.h.
//
// Letters are bits.  Work is summed by the set of letters that shrink it: bytes read, bytes
// written, flops.  add_flops has a case for each op that computes more than one formula per
// element.

#include "work.h"

#include "ir/op.h"

// -- Parts -----------------------------------------------------------------------------------

// The letters of a term that may be split.
static uint64_t letters_of(const Dims *dims, const Term *t) {
  uint64_t letters = 0;
  for (int k = 0; k < t->ndim; k++)
    for (int f = 0; f < t->dim[k].n; f++)
      if (!dims->letter[t->dim[k].letter[f]].whole) letters |= (uint64_t)1 << t->dim[k].letter[f];
  return letters;
}

// Without an einsum (`dims` is NULL) nothing can be split.
static uint64_t in_letters(const Dims *dims, int i) {
  return dims ? letters_of(dims, &dims->in[i]) : 0;
}
static uint64_t out_letters(const Dims *dims, int i) {
  return dims ? letters_of(dims, &dims->out[i]) : 0;
}

static WorkPart *part_of(OpWork *w, uint64_t letters) {
  int i = 0;
  while (i < w->n && w->part[i].letters != letters)
    i++;
  // Parts with equal letters are summed.
  if (i == WORK_PARTS) BUG("an op whose operands differ in more than %d ways", WORK_PARTS);
  if (i == w->n) w->part[w->n++] = (WorkPart){.letters = letters};
  return &w->part[i];
}

static void add(OpWork *w, uint64_t letters, double flops, double read, double written) {
  WorkPart *p = part_of(w, letters);
  p->flops += flops;
  p->read += read;
  p->written += written;
}

static double count(const Value *v) {
  return (double)type_count(v->type);
}

static double bytes(const Value *v) {
  return (double)type_bytes(v->type);
}

// Whether the op reads only as many elements of operand 0 as result 0 has.
static bool takes_some(const Op *op) {
  return op->kind == OP_gather || op->kind == OP_slice || op->kind == OP_local_slice ||
         op->kind == OP_nll;
}

// -- Flops -----------------------------------------------------------------------------------

// A window slides over the image: for every element of y, a multiply-add with every weight of its
// output channel.  The einsum does not relate image and window dimensions.
static void add_conv(OpWork *w, const Dims *dims, const Value *weight, const Term *wt,
                     const Value *y, const Term *yt) {
  Term row = *wt; // the weights of one output channel
  row.dim[0].n = 0;
  int64_t channels = weight->type->dim[0];
  double flops = 2 * count(y) * count(weight) / (double)(channels ? channels : 1);
  add(w, letters_of(dims, &row) | letters_of(dims, yt), flops, 0, 0);
}

// Products of t x s matrices with their d columns; with a causal mask half of them.
static void add_attention(OpWork *w, const Op *op, const Dims *dims, const Value *lse,
                          const Term *t, double s, double d, int products) {
  double flops = 2 * count(lse) * s * d * products;
  if (attr_i(op, "causal")) flops /= 2;
  add(w, letters_of(dims, t), flops, 0, 0);
  part_of(w, letters_of(dims, t))->attended += flops;
}

enum { FORWARD = 2, BACK = 5 }; // scores and y; the scores again and four gradients of that size

static void add_attention_of(OpWork *w, const Op *op, const Dims *dims, const Value *lse,
                             const Term *t, int products) {
  const Type *k = op->in[1].value->type;
  int64_t s = k->dim[attr_i(op, "seq_major") ? 1 : 2];
  // A block of queries sees one of keys.
  int blocks = dims ? dims_find(dims, 'c') : -1;
  if (blocks >= 0) s /= dims->letter[blocks].size;
  add_attention(w, op, dims, lse, t, (double)s, (double)k->dim[3], products);
}

static void add_packed(OpWork *w, const Op *op, const Dims *dims, const Value *lse, const Term *t,
                       int products) {
  const Type *x = op->in[0].value->type;
  double d = (double)x->dim[2] / (3 * (double)attr_i(op, "heads"));
  add_attention(w, op, dims, lse, t, (double)x->dim[1], d, products);
}

// Contractions over all letters.
static void add_products(OpWork *w, const Dims *dims, int products) {
  double flops = 2 * products;
  uint64_t letters = 0;
  for (int i = 0; i < dims->n_letters; i++) {
    flops *= (double)dims->letter[i].size;
    letters |= (uint64_t)1 << i;
  }
  add(w, letters, flops, 0, 0);
}

// A product with one matrix for each row of operand 1, or for some of the rows: of w x and the
// result, or of x and the adjoints of the results.
static void add_grouped(OpWork *w, const Op *op, const Dims *dims, const Value *y,
                        const Term *term) {
  const Type *x = op->in[1].value->type;
  double load = attr_f(op, "load"), k = (double)x->dim[x->ndim - 1];
  add(w, in_letters(dims, 1) | letters_of(dims, term), 2 * count(y) * k * (load > 0 ? load : 1), 0,
      0);
}

// In every step the product of the state with each of `columns` rows of the recurrent weight, or of
// their adjoints with it.
static void add_recurrence(OpWork *w, const Dims *dims, const Value *columns, const Term *term,
                           const Value *weight) {
  double flops = 2 * count(columns) * (double)weight->type->dim[1];
  add(w, letters_of(dims, term), flops, 0, 0);
}

// Elimination: n^3 / 3 products for a determinant, four times as many for its adjoint.
static void add_determinant(OpWork *w, const Dims *dims, const Value *x, const Term *t,
                            double times) {
  double n = (double)x->type->dim[x->type->ndim - 1];
  add(w, letters_of(dims, t), 2 * times * count(x) * n / 3, 0, 0);
}

// Adds the flops of an op that sums products; false: it is none.
static bool add_product_flops(OpWork *w, const Op *op, const Dims *dims) {
  const Term *in = dims->in, *out = dims->out;
  switch ((int)op->kind) {
  case OP_conv: add_conv(w, dims, op->in[1].value, &in[1], op->out[0], &out[0]); return true;
  case OP_conv_back_x:
    add_conv(w, dims, op->in[0].value, &in[0], op->in[1].value, &in[1]);
    return true;
  case OP_conv_back_w: add_conv(w, dims, op->out[0], &out[0], op->in[1].value, &in[1]); return true;
  case OP_attention: add_attention_of(w, op, dims, op->out[1], &out[1], FORWARD); return true;
  case OP_attention_back: add_attention_of(w, op, dims, op->in[4].value, &in[4], BACK); return true;
  case OP_attention_packed: add_packed(w, op, dims, op->out[1], &out[1], FORWARD); return true;
  case OP_attention_packed_back:
    add_packed(w, op, dims, op->in[2].value, &in[2], BACK);
    return true;
  case OP_lstm:
  case OP_gru:
  case OP_rnn: add_recurrence(w, dims, op->in[0].value, &in[0], op->in[1].value); return true;
  case OP_lstm_back: add_recurrence(w, dims, op->out[0], &out[0], op->in[3].value); return true;
  case OP_gru_back:
  case OP_rnn_back: add_recurrence(w, dims, op->out[0], &out[0], op->in[2].value); return true;
  case OP_det: add_determinant(w, dims, op->in[0].value, &in[0], 1); return true;
  case OP_det_back: add_determinant(w, dims, op->in[0].value, &in[0], 4); return true;
  case OP_grouped_linear: add_grouped(w, op, dims, op->out[0], &out[0]); return true;
  case OP_grouped_linear_back_w: add_grouped(w, op, dims, op->in[2].value, &in[2]); return true;
  case OP_classifier_back: add_products(w, dims, 3); return true; // the logits and two gradients
  }
  // Any other op with a prepared kernel is one product with an epilogue.
  if (!(op_info[op->kind].traits & PREP)) return false;
  add_products(w, dims, 1);
  return true;
}

static void add_flops(OpWork *w, const Op *op, const Dims *dims) {
  if (add_product_flops(w, op, dims)) return;
  // All others: one operation per element of each operand and result.
  for (int i = 0; i < op->n_in; i++) {
    bool some = i == 0 && takes_some(op);
    add(w, some ? out_letters(dims, 0) : in_letters(dims, i),
        count(some ? op->out[0] : op->in[i].value), 0, 0);
  }
  for (int i = 0; i < op->n_out; i++)
    add(w, out_letters(dims, i), count(op->out[i]), 0, 0);
}

// -- Ops -------------------------------------------------------------------------------------

static bool is_free(const Op *op) {
  if (op->kind == OP_local_slice || op->kind == OP_accumulate) return false;
  return (op_info[op->kind].traits & (VIEW | COMM)) || op->kind == OP_constant;
}

// NULL for ops with a body, which need not have an einsum: einsums limit the number of operands.
static const Dims *dims_alone(const Op *op, Dims *dims) {
  if (op_has_callee(op->kind)) return NULL;
  Diag *d = diag_new(stderr);
  bool ok = op_dims(op, dims, d);
  diag_free(d);
  if (!ok) BUG("%s does not fit its own row", op_info[op->kind].name);
  return dims;
}

OpWork op_work_alone(const Op *op) {
  Dims dims;
  if (is_free(op)) return (OpWork){0};
  return op_work(op, dims_alone(op, &dims));
}

// Adds the work of the body's ops.  All letters of an op with a body that can be split are in all
// its results.
static void add_body(OpWork *w, const Op *op, const Dims *dims) {
  uint64_t letters = op->n_out ? out_letters(dims, 0) : 0;
  int64_t times = op->kind == OP_loop ? attr_i(op, "count") : 1, launches = 0;
  for_each_op(inner, op->callee) {
    OpWork is = op_work_alone(inner);
    WorkSum sum = work_sum(&is, NULL);
    // Values inside a fused body stay in registers.
    bool moves = op->kind != OP_fused;
    double n = (double)times;
    add(w, letters, n * sum.flops, moves ? n * sum.read : 0, moves ? n * sum.written : 0);
    part_of(w, letters)->attended += n * sum.attended;
    launches += is.launches;
    w->narrow |= is.narrow;
  }
  launches = launches > INT32_MAX / times ? INT32_MAX : launches * times;
  if (op->kind == OP_call || op->kind == OP_loop) w->launches = (int)launches;
}

// The type in which an op computes: that of its first operand of numbers, if it has 16 bits, else
// f32.  Indices may come before it.
static DType computes_in(const Op *op) {
  for (int i = 0; i < op->n_in; i++) {
    DType t = op->in[i].value->type->dtype;
    if (dtype_class[t] == 'F') return dtype_narrow(t) ? t : DT_f32;
  }
  return DT_f32;
}

OpWork op_work(const Op *op, const Dims *dims) {
  OpWork w = {.launches = 1};
  if (is_free(op)) return (OpWork){0};
  w.narrow = computes_in(op) != DT_f32;
  if (op_has_callee(op->kind))
    add_body(&w, op, dims);
  else if (!dims)
    BUG("%s has no body, and no einsum", op_info[op->kind].name);
  else
    add_flops(&w, op, dims);
  // Of these, the members of the bucket or the ops of the body count.
  if (op->kind == OP_pack || op->kind == OP_multi_tensor || op->kind == OP_call ||
      op->kind == OP_loop)
    return w;
  // Bytes: all operands, of which some ops read only a part.
  for (int i = 0; i < op->n_in; i++) {
    bool some = i == 0 && takes_some(op);
    double n = count(some ? op->out[0] : op->in[i].value);
    add(&w, some ? out_letters(dims, 0) : in_letters(dims, i), 0,
        n * dtype_bytes[op->in[i].value->type->dtype], 0);
  }
  // Results; an accumulation also reads the sum so far.
  // Of the sum that gather_back_accumulate adds to, only the rows of dy are touched.
  bool rows = op->kind == OP_gather_back_accumulate;
  for (int i = 0; i < op->n_out && !rows; i++) {
    bool again = i == 0 && (op_info[op->kind].traits & ACCUMULATES);
    add(&w, out_letters(dims, i), 0, again ? bytes(op->out[i]) : 0, bytes(op->out[i]));
  }
  // Zeros in the whole result, and then every element of dy is added to one of them.
  if (op->kind == OP_gather_back || rows) {
    double touched = count(op->in[1].value) * dtype_bytes[op->out[0]->type->dtype];
    add(&w, in_letters(dims, 1), 0, touched, touched);
  }
  return w;
}

Cut op_cut(const Op *op, const Dims *dims) {
  Cut cut = {0};
  const Mesh *mesh = op_mesh(op);
  for (int a = 0; mesh && a < mesh->n_axes; a++) {
    int letter = op->split[a] ? dims_find(dims, op->split[a]) : -1;
    // Partial sums divide no work.
    if (letter < 0) continue;
    cut.at[cut.n].letter = letter;
    cut.at[cut.n++].parts = mesh->axis[a].size;
  }
  return cut;
}

WorkSum work_sum(const OpWork *w, const Cut *cut) {
  WorkSum sum = {0};
  for (int i = 0; i < w->n; i++) {
    const WorkPart *p = &w->part[i];
    double parts = 1;
    // A part shrinks by the axes that split one of its letters.
    for (int k = 0; cut && k < cut->n; k++)
      if (p->letters >> cut->at[k].letter & 1) parts *= (double)cut->at[k].parts;
    sum.flops += p->flops / parts;
    sum.read += p->read / parts;
    sum.written += p->written / parts;
    sum.attended += p->attended / parts;
  }
  return sum;
}

static int64_t rounded(double x) {
  const double most = 9e18;
  return (int64_t)(x < most ? x + 0.5 : most);
}

static double product_flops(const Op *op) {
  Dims alone;
  OpWork w = {0};
  const Dims *dims = dims_alone(op, &alone);
  if (dims) {
    add_product_flops(&w, op, dims);
    return work_sum(&w, NULL).flops;
  }
  double flops = 0;
  for_each_op(inner, op->callee)
    flops += product_flops(inner);
  return flops;
}

CallWork op_call_work(const Op *op) {
  bool free = op->kind == OP_pack || op->kind == OP_swap_wait || op_starts_copy(op) || is_free(op);
  if (free) return (CallWork){.type = DT_f32};
  OpWork w = op_work_alone(op);
  WorkSum sum = work_sum(&w, NULL);
  return (CallWork){rounded(product_flops(op)), rounded(sum.read + sum.written), computes_in(op)};
}

double op_flops(const Op *op) {
  Dims alone;
  OpWork w = {0};
  const Dims *dims = dims_alone(op, &alone);
  // The flops of a body are those of its ops.
  if (op_has_callee(op->kind))
    add_body(&w, op, dims);
  else if (!dims)
    BUG("%s has no body, and no einsum", op_info[op->kind].name);
  else
    add_flops(&w, op, dims);
  return work_sum(&w, NULL).flops;
}
