// Sparse experts: every row of a batch goes to some of the experts of a mixture.
//
//     expert_slots i64[4,16] experts=8 parts=4 capacity=9  g r -> g r       a slot for each row
//     dispatch f32[4,16,6], slots shape=[4,4,9,6]  g r d, g r -> p g c d    each row at its slot
//     collect f32[4,4,9,6], slots                  p g c d, g r -> g r d    each slot, its row
//     grouped_linear f32[8,6,5], f32[16,6], i64[16]      p k n, A k, A -> A n
//     grouped_linear f32[8,6,5], f32[4,4,9,6], i64[4,4,9] parts=true
//                                          (p e) k n, p B C k, p B C -> p B C n
//
// grouped_linear multiplies each row by the matrix of its own expert, as MegaBlocks does (Gale et
// al. 2022, section 5): no row is dropped, and none is padded.  Index -1 is no expert, and gives
// zeros.
//
// Ranks that share the experts exchange rows, and for that every pair of ranks needs a known number
// of them.  So the experts form `parts` of as many each, the rows form groups, and each part has
// `capacity` slots for each group.  Rows split by group, g, become rows split by part, p: an
// all_to_all (GShard, Lepikhin et al. 2020, section 3.2).  With one expert in a part and `drop`,
// rows beyond the capacity have no slot, -1, as in GShard: first choices first, that is, with
// `choices` rows for each token the first row of all tokens, then the second.  Without `drop` they
// are an error of the step.
//
// dispatch and collect are the adjoints of each other, since no two rows of a group have the same
// slot.  Split along p, collect gives partial sums: zeros for slots of other parts.

#include <string.h>

#include "ir/ops/einsum.h"
#include "ir/ops/index.h"
#include "ir/ops/reference.h"

// -- Slots -----------------------------------------------------------------------------------

bool expert_slots_rule(const Op *op, Dims *dims, Diag *d) {
  int64_t experts = attr_i(op, "experts"), parts = attr_i(op, "parts");
  int64_t choices = attr_i(op, "choices");
  if (experts < 1 || parts < 1 || experts % parts != 0)
    return diag_error(d, op->loc, "expert_slots: %lld experts in %lld equal parts",
                      (long long)experts, (long long)parts);
  if (attr_i(op, "capacity") < 1)
    return diag_error(d, op->loc, "expert_slots: a capacity of %lld",
                      (long long)attr_i(op, "capacity"));
  if (!dims_parse(dims, op, "g r^ -> g r^", d)) return false;
  int64_t rows = dims->letter[dims_find(dims, 'r')].size;
  if (choices < 0 || (choices > 0 && rows % choices != 0))
    return diag_error(d, op->loc, "expert_slots: %lld rows of %lld choices each", (long long)rows,
                      (long long)choices);
  return true;
}

// The expert of row i: -1 for none.
static bool expert_of(const Op *op, const Tensor *index, int64_t i, int64_t experts, int64_t *out,
                      Diag *d) {
  *out = tensor_i(index, i);
  if (*out >= -1 && *out < experts) return true;
  return diag_error(d, op->loc, "%s: expert %lld at element %lld is not one of -1 to %lld",
                    op_info[op->kind].name, (long long)*out, (long long)i,
                    (long long)(experts - 1));
}

// A row's slot is the number of rows before it, in the order of priority, with a slot of the part.
bool expert_slots_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  int64_t groups = in->type->dim[0], rows = in->type->dim[1], experts = attr_i(op, "experts");
  int64_t per = experts / attr_i(op, "parts"), capacity = attr_i(op, "capacity");
  int64_t choices = attr_i(op, "choices") ? attr_i(op, "choices") : 1;
  for (int64_t g = 0; g < groups; g++)
    for (int64_t i = 0; i < rows; i++) {
      int64_t expert, other, before = 0;
      if (!expert_of(op, in, g * rows + i, experts, &expert, d)) return false;
      for (int64_t j = 0; j < rows && expert >= 0; j++) {
        if (!expert_of(op, in, g * rows + j, experts, &other, d)) return false;
        bool first = j % choices != i % choices ? j % choices < i % choices : j < i;
        before += first && other >= 0 && other / per == expert / per;
      }
      if (expert >= 0 && before >= capacity && !attr_i(op, "drop"))
        return diag_error(d, op->loc, "expert_slots: group %lld has more than %lld rows for a part",
                          (long long)g, (long long)capacity);
      bool none = expert < 0 || before >= capacity;
      tensor_set_i(out, g * rows + i, none ? -1 : expert / per * capacity + before);
    }
  return true;
}

// -- Rows at their slots ---------------------------------------------------------------------

// The letters of the dimensions of a row.
static void add_row(Einsum *e, int ndim) {
  for (int i = 0; i < ndim; i++)
    einsum_add(e, " %c", letter_in(i));
}

bool dispatch_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type;
  const int64_t *shape = attr_list(op, "shape");
  int row = x->ndim - 2;
  if (row < 0)
    return diag_error(d, op->loc, "dispatch: operand 0 has %d dimensions, not groups and rows",
                      x->ndim);
  if (!list_fits(op, "shape", row + 3, d)) return false;
  if (attr_i(op, "none") && dtype_class[x->dtype] == 'F')
    return diag_error(d, op->loc, "dispatch: a slot without a row is -1 for integers only");
  Einsum e = {0};
  einsum_add(&e, "g r^");
  add_row(&e, row);
  einsum_add(&e, ", g r^ -> p g c^");
  add_row(&e, row);
  if (!dims_parse(dims, op, e.text, d)) return false;
  for (int i = 0; i < row + 1; i++) {
    int at = i ? i + 1 : 0, in_shape = i ? i + 2 : 1;
    if (x->dim[at] != shape[in_shape])
      return diag_error(d, op->loc, "dispatch: dimension %d is %lld in the shape and %lld in a row",
                        in_shape, (long long)shape[in_shape], (long long)x->dim[at]);
  }
  dims_size(dims, 'p', shape[0]);
  dims_size(dims, 'c', shape[2]);
  return true;
}

bool collect_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *y = op->in[0].value->type;
  int row = y->ndim - 3;
  if (row < 0 || row > 20)
    return diag_error(d, op->loc, "collect: operand 0 has %d dimensions, not parts, groups, slots",
                      y->ndim);
  Einsum e = {0};
  einsum_add(&e, ranks_add(y->dtype) ? "p g c^" : "p^ g c^");
  add_row(&e, row);
  einsum_add(&e, ", g r^ -> g r^");
  add_row(&e, row);
  return dims_parse(dims, op, e.text, d);
}

// The slots of a shard of the parts.
typedef struct Slots {
  int64_t groups, rows, capacity, inner, parts, from, all;
} Slots;

static Slots slots_of(const Type *slotted, const Type *slots, const Box *box) {
  Slots s = {.groups = slots->dim[0], .rows = slots->dim[1], .parts = slotted->dim[0]};
  s.capacity = slotted->dim[2];
  s.inner = 1;
  for (int i = 3; i < slotted->ndim; i++)
    s.inner *= slotted->dim[i];
  s.from = box_start(box, 0);
  s.all = box_whole(box, slotted, 0);
  return s;
}

// The place of row i of group g among all rows of the parts; -1: it has none here.
static bool place_of(const Op *op, const Slots *s, const Tensor *slots, int64_t g, int64_t i,
                     int64_t *out, Diag *d) {
  int64_t slot = tensor_i(slots, g * s->rows + i);
  if (slot < -1 || slot >= s->all * s->capacity)
    return diag_error(d, op->loc, "%s: slot %lld of row %lld is not one of -1 to %lld",
                      op_info[op->kind].name, (long long)slot, (long long)i,
                      (long long)(s->all * s->capacity - 1));
  int64_t part = slot / s->capacity - s->from;
  bool here = slot >= 0 && part >= 0 && part < s->parts;
  *out = here ? (part * s->groups + g) * s->capacity + slot % s->capacity : -1;
  return true;
}

bool dispatch_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Slots s = slots_of(out->type, in[1].type, box);
  for (int64_t i = 0; i < type_count(out->type); i++)
    if (attr_i(op, "none"))
      tensor_set_i(out, i, -1);
    else
      memset((char *)out->data + i * dtype_bytes[out->type->dtype], 0,
             (size_t)dtype_bytes[out->type->dtype]);
  for (int64_t g = 0; g < s.groups; g++)
    for (int64_t i = 0; i < s.rows; i++) {
      int64_t place = -1;
      if (!place_of(op, &s, &in[1], g, i, &place, d)) return false;
      for (int64_t k = 0; place >= 0 && k < s.inner; k++)
        element_copy(out, place * s.inner + k, &in[0], (g * s.rows + i) * s.inner + k);
    }
  return true;
}

// `out` comes zeroed; rows without a slot here stay zero.
bool collect_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Slots s = slots_of(in[0].type, in[1].type, box);
  for (int64_t g = 0; g < s.groups; g++)
    for (int64_t i = 0; i < s.rows; i++) {
      int64_t place = -1;
      if (!place_of(op, &s, &in[1], g, i, &place, d)) return false;
      for (int64_t k = 0; place >= 0 && k < s.inner; k++)
        element_copy(out, (g * s.rows + i) * s.inner + k, &in[0], place * s.inner + k);
    }
  return true;
}

bool dispatch_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_op(b, OP_collect, IN(dout[0], op->in[1].value), NO_ATTRS);
  return !b->failed;
}

bool collect_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Type *y = op->in[0].value->type;
  din[0] = build_op(b, OP_dispatch, IN(dout[0], op->in[1].value),
                    ATTRS(a_list("shape", y->dim, y->ndim)));
  return !b->failed;
}

// -- Products by expert ----------------------------------------------------------------------

// The letters of rows: with parts, the first is the part.
static void add_rows(Einsum *e, int ndim, bool parts) {
  for (int i = 0; i < ndim; i++)
    einsum_add(e, " %c", parts && i == 0 ? 'p' : letter_in(i));
}

static bool rows_fit(const Op *op, int ndim, Diag *d) {
  bool parts = attr_i(op, "parts");
  if (ndim >= (parts ? 2 : 0) && ndim <= 10) return true;
  return diag_error(d, op->loc, "%s: an index of %d dimensions%s", op_info[op->kind].name, ndim,
                    parts ? ", of which the first is the part" : "");
}

bool grouped_linear_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[2].value->type->ndim;
  bool parts = attr_i(op, "parts");
  if (!rows_fit(op, ndim, d)) return false;
  // p k n, A k, A -> A n, or (p e) k n, p B k, p B -> p B n
  Einsum e = {0};
  einsum_add(&e, "%s %s,", parts ? "(p e)" : "p", attr_i(op, "trans") ? "n k" : "k n");
  add_rows(&e, ndim, parts);
  einsum_add(&e, " k,");
  add_rows(&e, ndim, parts);
  einsum_add(&e, " ->");
  add_rows(&e, ndim, parts);
  einsum_add(&e, " n");
  return dims_parse(dims, op, e.text, d);
}

bool grouped_linear_back_w_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  bool parts = attr_i(op, "parts"), trans = attr_i(op, "trans");
  const int64_t *shape = attr_list(op, "shape");
  if (!rows_fit(op, ndim, d) || !list_fits(op, "shape", 3, d)) return false;
  // A, A k, A n -> p k n, or p B, p B k, p B n -> (p e) k n
  Einsum e = {0};
  add_rows(&e, ndim, parts);
  einsum_add(&e, ",");
  add_rows(&e, ndim, parts);
  einsum_add(&e, " k,");
  add_rows(&e, ndim, parts);
  einsum_add(&e, " n -> %s %s", parts ? "(p e)" : "p", trans ? "n k" : "k n");
  if (!dims_parse(dims, op, e.text, d)) return false;
  int64_t k = dims->letter[dims_find(dims, 'k')].size, n = dims->letter[dims_find(dims, 'n')].size;
  if (shape[1] != (trans ? n : k) || shape[2] != (trans ? k : n))
    return diag_error(d, op->loc, "grouped_linear_back_w: the shape of an expert is %lld by %lld",
                      (long long)shape[1], (long long)shape[2]);
  if (!parts) {
    dims_size(dims, 'p', shape[0]);
    return true;
  }
  int64_t of = dims->letter[dims_find(dims, 'p')].size;
  if (of ? shape[0] % of != 0 : shape[0] != 0)
    return diag_error(d, op->loc, "grouped_linear_back_w: %lld experts in %lld equal parts",
                      (long long)shape[0], (long long)of);
  dims_size(dims, 'e', of ? shape[0] / of : 1);
  return true;
}

bool grouped_linear_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *w = op->in[0].value, *x = op->in[1].value, *index = op->in[2].value;
  Attr parts = *op_attr(op, "parts"), load = *op_attr(op, "load");
  bool trans = attr_i(op, "trans");
  din[0] = build_op(
      b, OP_grouped_linear_back_w, IN(index, x, dout[0]),
      ATTRS(a_b("trans", trans), a_list("shape", w->type->dim, w->type->ndim), parts, load));
  din[0] = build_cast(b, din[0], w->type->dtype);
  din[1] = build_op(b, OP_grouped_linear, IN(w, dout[0], index),
                    ATTRS(a_b("trans", !trans), parts, load));
  return !b->failed;
}

// For row i of `rows`: its expert in a shard of `n` experts from `from` on, or -1.  `parts`: the
// number of parts that the rows are in; 0: any row may have any expert.
static bool local_expert(const Op *op, const Tensor *index, int64_t i, int64_t n, int64_t from,
                         int64_t all, int64_t *out, Diag *d) {
  int64_t expert, rows = type_count(index->type);
  if (!expert_of(op, index, i, all, &expert, d)) return false;
  int64_t low = from, high = from + n;
  if (attr_i(op, "parts")) {
    // Each part has as many rows and as many experts.
    int64_t parts = index->type->dim[0], per = n / parts, part = i / (rows / parts);
    low += part * per;
    high = low + per;
  }
  *out = expert >= low && expert < high ? expert - from : -1;
  return true;
}

bool grouped_linear_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  const Type *w = in[0].type;
  bool trans = attr_i(op, "trans");
  int64_t k = w->dim[trans ? 2 : 1], n = w->dim[trans ? 1 : 2], all = box_whole(box, w, 0);
  for (int64_t i = 0; i < type_count(in[2].type); i++) {
    int64_t expert;
    if (!local_expert(op, &in[2], i, w->dim[0], box_start(box, 0), all, &expert, d)) return false;
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t l = 0; l < k && expert >= 0; l++)
        sum += tensor_f(&in[1], i * k + l) *
               tensor_f(&in[0], expert * k * n + (trans ? j * k + l : l * n + j));
      tensor_set_f(out, i * n + j, sum);
    }
  }
  return true;
}

bool grouped_linear_back_w_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box,
                               Diag *d) {
  const Type *w = out->type;
  bool trans = attr_i(op, "trans"), ok = true;
  int64_t k = w->dim[trans ? 2 : 1], n = w->dim[trans ? 1 : 2], all = box_whole(box, w, 0);
  Arena *scratch = arena_new();
  // Sums are kept in double and rounded once.
  double *sum = arena_array(scratch, double, type_count(w));
  for (int64_t i = 0; ok && i < type_count(in[0].type); i++) {
    int64_t expert;
    ok = local_expert(op, &in[0], i, w->dim[0], box_start(box, 0), all, &expert, d);
    for (int64_t l = 0; ok && expert >= 0 && l < k; l++)
      for (int64_t j = 0; j < n; j++)
        sum[expert * k * n + (trans ? j * k + l : l * n + j)] +=
            tensor_f(&in[1], i * k + l) * tensor_f(&in[2], i * n + j);
  }
  if (ok) tensor_set_doubles(out, sum);
  arena_free(scratch);
  return ok;
}
