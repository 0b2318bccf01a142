// Communication, and the buckets of gradients.
//
// On a mesh of one device all collectives are copies, and the references here compute only that;
// nnaot-eval moves the data of several devices.
//
//     all_gather f32[2,6] axis="dp" dim=0          A^ b -> P^ b     P is A times the axis's size
//     reduce_scatter f32[4,6] axis="dp" dim=0      A^ b -> P^ b     P is A over the axis's size
//     all_to_all f32[2,6] axis="dp" from=0 to=1    A^ B^ -> P^ Q^   P is longer, Q shorter
//     move f32[2,6] shape=[4,3]                    A^ B^ -> P^ Q^   as its layouts say
//     pack f32[10], f32[4,3]                       -> f32[32]       10 padded to 16, 12 to 16

#include "ir/collective.h"
#include "ir/ops/einsum.h"
#include "ir/ops/index.h"

// The size of `axis`; only a module with a mesh has one.
static bool axis_size(const Op *op, int64_t *out, Diag *d) {
  MeshAxes axes;
  if (!op_mesh(op))
    return diag_error(d, op->loc, "%s: the module has no mesh", op_info[op->kind].name);
  if (!op_axes(op, &axes, d)) return false;
  *out = axes_size(op_mesh(op), &axes);
  return true;
}

// Writes an einsum with new lengths for the dimensions whose entry in `after` is not -1; the others
// keep their letter.
static bool resized_rule(const Op *op, Dims *dims, const int64_t *after, Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  Einsum e = {0};
  // A resized dimension is another letter afterwards, and whole.
  for (int i = 0; i < ndim; i++)
    einsum_add(&e, after[i] < 0 ? "%c " : "%c^ ", after[i] < 0 ? letter_free(i) : letter_in(i));
  einsum_add(&e, "->");
  for (int i = 0; i < ndim; i++)
    einsum_add(&e, after[i] < 0 ? " %c" : " %c^", after[i] < 0 ? letter_free(i) : letter_out(i));
  // No operand gives the new lengths.
  if (!dims_parse(dims, op, e.text, d)) return false;
  for (int i = 0; i < ndim; i++)
    if (after[i] >= 0) dims_size(dims, letter_out(i), after[i]);
  return true;
}

static bool dim_fits(const Op *op, const char *attr, Diag *d) {
  int64_t dim = attr_i(op, attr);
  int ndim = op->in[0].value->type->ndim;
  if (dim >= 0 && dim < ndim) return true;
  return diag_error(d, op->loc, "%s: %s %lld is not one of 0 to %d", op_info[op->kind].name, attr,
                    (long long)dim, ndim - 1);
}

// Multiplies the length of dimension `dim` by the size of `axis`.
static bool joined(const Op *op, int64_t dim, int64_t *after, Diag *d) {
  int64_t parts = 0;
  if (!axis_size(op, &parts, d)) return false;
  if (__builtin_mul_overflow(op->in[0].value->type->dim[dim], parts, &after[dim]))
    return diag_error(d, op->loc, "%s: the result is too large", op_info[op->kind].name);
  return true;
}

// Divides the length of dimension `dim` by the size of `axis`.
static bool cut(const Op *op, int64_t dim, int64_t *after, Diag *d) {
  int64_t parts = 0, length = op->in[0].value->type->dim[dim];
  if (!axis_size(op, &parts, d)) return false;
  if (length % parts)
    return diag_error(d, op->loc, "%s: a length of %lld is not a multiple of %lld",
                      op_info[op->kind].name, (long long)length, (long long)parts);
  after[dim] = length / parts;
  return true;
}

// Of a collective: the dimension that was split gets longer, the one that will be split shorter, by
// the same factor.
bool collective_dims(const Op *op, Dims *dims, Diag *d) {
  const CollectiveRule *rule = collective_rule(op->kind);
  const char *from = rule->from_dim, *to = rule->to_dim;
  int64_t after[MAX_NDIM];
  for (int i = 0; i < MAX_NDIM; i++)
    after[i] = -1;
  if ((from && !dim_fits(op, from, d)) || (to && !dim_fits(op, to, d))) return false;
  if (from && to && attr_i(op, from) == attr_i(op, to))
    return diag_error(d, op->loc, "%s: %s and %s are both %lld", op_info[op->kind].name, from, to,
                      (long long)attr_i(op, from));
  return (!from || joined(op, attr_i(op, from), after, d)) &&
         (!to || cut(op, attr_i(op, to), after, d)) && resized_rule(op, dims, after, d);
}

// The layouts determine the shapes before and after: verify_layout.c.
bool move_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  if (attr_n(op, "shape") != ndim)
    return diag_error(d, op->loc, "move: the shape has %d dimensions, the operand %d",
                      attr_n(op, "shape"), ndim);
  return resized_rule(op, dims, attr_list(op, "shape"), d);
}

bool move_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  if (in[0].type != out->type)
    return diag_error(d, op->loc, "move: one device cannot stand for several");
  memcpy(out->data, in[0].data, (size_t)type_bytes(out->type));
  return true;
}

// The global value is unchanged.
bool same_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  memcpy(out->data, in[0].data, (size_t)type_bytes(out->type));
  return true;
}

bool comm_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  int64_t size = 1;
  if (op_mesh(op) && !axis_size(op, &size, d)) return false;
  // The data of other devices is not available.
  if (size != 1)
    return diag_error(d, op->loc, "%s: one device cannot stand for the %lld of axis '%s'",
                      op_info[op->kind].name, (long long)size, attr_s(op, "axis"));
  memcpy(out->data, in[0].data, (size_t)type_bytes(out->type));
  return true;
}

// -- pack and unpack ---------------------------------------------------------------------------

enum { PACK_ALIGN = 64 /* bytes */, MAX_LENGTHS = 51 /* letters, and Z for the result */ };

int64_t pack_length(const Type *t) {
  int64_t align = PACK_ALIGN / dtype_bytes[t->dtype];
  return (type_count(t) + align - 1) / align * align;
}

// A bucket cannot be split, so dimensions of the same length share a letter: it has many dimensions
// and few lengths.
bool pack_rule(const Op *op, Dims *dims, Diag *d) {
  int64_t length[MAX_LENGTHS], sum = 0;
  int n = 0;
  Einsum e = {0};
  for (int k = 0; k < op->n_in; k++) {
    const Type *t = op->in[k].value->type;
    einsum_add(&e, k ? ", " : "");
    for (int i = 0; i < t->ndim; i++) {
      // The letter of this length.
      int which = 0;
      while (which < n && length[which] != t->dim[i])
        which++;
      if (which == MAX_LENGTHS)
        return diag_error(d, op->loc, "pack: more than %d different lengths", MAX_LENGTHS);
      if (which == n) length[n++] = t->dim[i];
      einsum_add(&e, "%c^ ", which < 26 ? 'a' + which : 'A' + which - 26);
    }
    sum += pack_length(t);
  }
  einsum_add(&e, "-> Z^");
  if (!dims_parse(dims, op, e.text, d)) return false;
  // Z, the length of the bucket, includes the padding of each member.
  dims_size(dims, 'Z', sum);
  return true;
}

bool pack_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  int64_t offset = 0;
  for (int k = 0; k < op->n_in; k++) {
    for (int64_t i = 0; i < type_count(in[k].type); i++)
      element_copy(out, offset + i, &in[k], i);
    // Padding stays zero.
    offset += pack_length(in[k].type);
  }
  return true;
}

// `offset` counts elements.
bool unpack_rule(const Op *op, Dims *dims, Diag *d) {
  const int64_t *shape = attr_list(op, "shape");
  int ndim = attr_n(op, "shape");
  int64_t count = 1, offset = attr_i(op, "offset");
  Einsum e = {0};
  einsum_add(&e, "Z^ ->");
  // The term of the result has a whole letter for each dimension.
  for (int i = 0; i < ndim; i++) {
    einsum_add(&e, " %c^", letter_free(i));
    count *= shape[i];
  }
  if (!dims_parse(dims, op, e.text, d)) return false;
  // The members must be within the bucket.
  int64_t length = op->in[0].value->type->dim[0];
  if (offset < 0 || offset > length || count > length - offset)
    return diag_error(d, op->loc, "unpack: %lld elements from %lld are not within %lld",
                      (long long)count, (long long)offset, (long long)length);
  for (int i = 0; i < ndim; i++)
    dims_size(dims, letter_free(i), shape[i]);
  return true;
}

bool unpack_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  int64_t offset = attr_i(op, "offset");
  for (int64_t i = 0; i < type_count(out->type); i++)
    element_copy(out, i, &in[0], offset + i);
  return true;
}
