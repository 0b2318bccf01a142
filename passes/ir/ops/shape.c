// The same elements in another shape or order: reshape, transpose, broadcast; and tensors without
// operands: constant, fill.
//
// Only reshape needs thought.  Its einsum tells which dimensions survive, so that a split of the
// batch passes through:
//
//     f32[4,8,16] to f32[32,16]     a b c -> (a b) c
//     f32[4,48]   to f32[4,3,16]    a (b c) -> a b c
//     f32[4,6]    to f32[2,12]      (a b) c -> a (b c)
//     f32[5,4,6]  to f32[5,6,4]     a b^ c^ -> a d^ e^     neither 4 nor 6 is a part of the other
//
// Once types are local, shapes alone are ambiguous.  For f32[2,6] to f32[1,4,3], split in two, a
// rank has f32[1,6] to f32[1,2,3], which looks as if the leading 1 had been split; for f32[2,1,6]
// to f32[2,6] it has f32[1,1,6] to f32[1,6].  So the einsum of a local op is that of the global op,
// reconstructed from shapes and layouts, with split letters shorter by the number of parts: a split
// names the same letter before and after.  broadcast needs it too, to distinguish a 1 that is
// stretched from a 2 of which a rank has one half.

#include "ir/ops/einsum.h"
#include "ir/ops/index.h"
#include "ir/split.h"

// The number of parts that dimension `dim` of `v` is split into, if types are local. An op under
// construction has no results yet.
static int64_t parts_of(const Op *op, const Value *v, int dim) {
  if (op->graph->module->phase < PHASE_local || !v || !v->layout) return 1;
  return layout_parts(v->layout, dim);
}

// The global shape of `v`, which has the local shape `part`.  False if its number of elements
// overflows.
static bool whole_shape(const Op *op, const Value *v, int ndim, const int64_t *part,
                        int64_t *whole) {
  int64_t count = 1;
  for (int i = 0; i < ndim; i++) {
    if (__builtin_mul_overflow(part[i], parts_of(op, v, i), &whole[i]) ||
        __builtin_mul_overflow(count, whole[i], &count))
      return false;
  }
  return true;
}

// The factors of one dimension.
typedef struct Product {
  int n;
  char letter[MAX_FACTORS];
  bool whole;
} Product;

typedef struct Matching {
  int nx, ny;
  int64_t x[MAX_NDIM], y[MAX_NDIM]; // shapes before and after
  Product px[MAX_NDIM], py[MAX_NDIM];
  int n_letters;
  int64_t size[2 * MAX_NDIM];
} Matching;

static char new_letter(Matching *m, int64_t size) {
  m->size[m->n_letters] = size;
  return (char)('a' + m->n_letters++);
}

static void keep_whole(Matching *m, const int64_t *dim, Product *p, int from, int to) {
  for (int i = from; i < to; i++)
    p[i] = dim[i] == 1 ? (Product){0} : (Product){1, {new_letter(m, dim[i])}, true};
}

// Matches dimensions x0 to x1 with y0 to y1, which have the same product.  Takes the common factor
// of the remainders of two dimensions, major first; a dimension of 1 has no letter.  False if one
// remainder is not a multiple of the other.
static bool match_group(Matching *m, int x0, int x1, int y0, int y1) {
  int64_t left_x = 1, left_y = 1; // 1: take the next dimension
  for (int i = x0, j = y0;;) {
    while (left_x == 1 && i < x1)
      left_x = m->x[i++];
    while (left_y == 1 && j < y1)
      left_y = m->y[j++];
    if (left_x == 1) return true; // left_y is 1 too: the products are equal
    // The larger remainder continues with the quotient.
    int64_t common = left_x < left_y ? left_x : left_y;
    Product *px = &m->px[i - 1], *py = &m->py[j - 1];
    if (left_x % common || left_y % common) return false;
    if (px->n == MAX_FACTORS || py->n == MAX_FACTORS) return false;
    px->letter[px->n++] = py->letter[py->n++] = new_letter(m, common);
    left_x /= common;
    left_y /= common;
  }
}

static void add_products(Einsum *e, const Product *p, int n) {
  for (int i = 0; i < n; i++) {
    if (i > 0) einsum_add(e, " ");
    // 1, a letter, or a product in parentheses.
    if (p[i].n == 0) einsum_add(e, "1");
    if (p[i].n > 1) einsum_add(e, "(");
    for (int k = 0; k < p[i].n; k++)
      einsum_add(e, "%s%c%s", k ? " " : "", p[i].letter[k], p[i].whole ? "^" : "");
    if (p[i].n > 1) einsum_add(e, ")");
  }
}

static int64_t count_of(const int64_t *dim, int n) {
  int64_t count = 1;
  for (int i = 0; i < n; i++)
    count *= dim[i];
  return count;
}

// Matches two shapes with the same number of elements.
static void match_shapes(Matching *m) {
  // Without elements, products of lengths tell nothing.
  if (count_of(m->x, m->nx) == 0) {
    keep_whole(m, m->x, m->px, 0, m->nx);
    keep_whole(m, m->y, m->py, 0, m->ny);
    return;
  }
  // The shortest runs of dimensions with the same product, each on its own.
  for (int i = 0, j = 0; i < m->nx || j < m->ny;) {
    int x0 = i, y0 = j, first = m->n_letters;
    int64_t product_x = i < m->nx ? m->x[i++] : 1, product_y = j < m->ny ? m->y[j++] : 1;
    while (product_x != product_y) {
      if (product_x < product_y)
        product_x *= m->x[i++];
      else
        product_y *= m->y[j++];
    }
    if (match_group(m, x0, i, y0, j)) continue;
    // Lengths without a common factor: the run cannot be split.
    m->n_letters = first;
    keep_whole(m, m->x, m->px, x0, i);
    keep_whole(m, m->y, m->py, y0, j);
  }
}

// Matches the global shapes, then divides the letters as the operand is split. False if the op is
// not a local part of such a reshape.
static bool match_wholes(Matching *m, const Op *op, const int64_t *x, const int64_t *y) {
  const Value *in = op->in[0].value, *out = op->out[0];
  if (!in->layout || !out || !out->layout) return false; // under construction
  if (!whole_shape(op, in, m->nx, x, m->x) || !whole_shape(op, out, m->ny, y, m->y)) return false;
  if (count_of(m->x, m->nx) != count_of(m->y, m->ny)) return false;
  match_shapes(m);
  for (int i = 0; i < m->nx; i++) {
    int64_t parts = parts_of(op, in, i);
    if (parts == 1) continue;
    // A split divides the first letter of its dimension.
    int64_t *size = &m->size[m->px[i].letter[0] - 'a'];
    if (*size % parts) return false;
    *size /= parts;
  }
  // The result must be split in the same way.
  for (int i = 0; i < m->ny; i++) {
    int64_t product = 1;
    for (int k = 0; k < m->py[i].n; k++)
      product *= m->size[m->py[i].letter[k] - 'a'];
    if (product != y[i]) return false;
  }
  return true;
}

bool reshape_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type;
  const int64_t *shape = attr_list(op, "shape");
  int ndim = attr_n(op, "shape");
  int64_t count = type_count(x);
  if (count != count_of(shape, ndim))
    return diag_error(d, op->loc, "reshape: %lld elements do not fit a shape of %lld",
                      (long long)count, (long long)count_of(shape, ndim));
  Matching m = {.nx = x->ndim, .ny = ndim};
  // Without a global match, the local shapes decide.
  if (!match_wholes(&m, op, x->dim, shape)) {
    m = (Matching){.nx = x->ndim, .ny = ndim};
    memcpy(m.x, x->dim, (size_t)x->ndim * sizeof *m.x);
    if (ndim) memcpy(m.y, shape, (size_t)ndim * sizeof *m.y);
    match_shapes(&m);
  }
  // One term with products of letters on each side.
  Einsum e = {0};
  add_products(&e, m.px, m.nx);
  einsum_add(&e, " -> ");
  add_products(&e, m.py, m.ny);
  if (!dims_parse(dims, op, e.text, d)) return false;
  // Products of the operand alone do not determine all factors.
  for (int i = 0; i < m.n_letters; i++)
    dims_size(dims, (char)('a' + i), m.size[i]);
  return true;
}

bool reshape_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Type *x = op->in[0].value->type;
  din[0] = build_reshape(b, dout[0], x->ndim, x->dim);
  return !b->failed;
}

bool reshape_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  memcpy(out->data, in[0].data, (size_t)type_bytes(out->type));
  return true;
}

// -- permute_blocks ----------------------------------------------------------------------------

// Block i of the result is block sources[i] of x.  The number of blocks is a letter, b: with one
// block on each rank, a rank has the whole of its block of the result once the block was moved
// there.
bool permute_blocks_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type, *whole = value_whole(op->in[0].value);
  int64_t dim = attr_i(op, "dim"), blocks = attr_n(op, "sources");
  const int64_t *sources = attr_list(op, "sources");
  if (dim < 0 || dim >= x->ndim)
    return diag_error(d, op->loc, "permute_blocks: 'dim' is %lld, of %d dimensions", (long long)dim,
                      x->ndim);
  // Every block is somewhere in the result.
  for (int64_t i = 0; i < blocks; i++) {
    bool found = false;
    for (int64_t k = 0; k < blocks && !found; k++)
      found = sources[k] == i;
    if (!found)
      return diag_error(d, op->loc, "permute_blocks: 'sources' lacks block %lld of %lld",
                        (long long)i, (long long)blocks);
  }
  int64_t length = blocks ? whole->dim[dim] / blocks : 0;
  if (length == 0 || whole->dim[dim] % blocks || x->dim[dim] % length)
    return diag_error(d, op->loc, "permute_blocks: %lld elements are not %lld equal blocks",
                      (long long)whole->dim[dim], (long long)blocks);
  Einsum e = {0};
  for (int side = 0; side < 2; side++) {
    einsum_add(&e, side ? " -> " : "");
    for (int i = 0; i < x->ndim; i++)
      if (i == dim)
        einsum_add(&e, " (%c z^)", PERMUTED_BLOCKS);
      else
        einsum_add(&e, " %c", letter_free(i));
  }
  if (!dims_parse(dims, op, e.text, d)) return false;
  dims_size(dims, PERMUTED_BLOCKS, x->dim[dim] / length);
  dims_size(dims, 'z', length);
  return true;
}

bool permute_blocks_grad(Builder *b, Op *op, Value **dout, Value **din) {
  int64_t n = attr_n(op, "sources");
  Arena *a = b->g->module->arena;
  int64_t *back = arena_array(a, int64_t, n);
  for (int64_t i = 0; i < n; i++)
    back[attr_list(op, "sources")[i]] = i;
  din[0] = build_op(b, OP_permute_blocks, IN(dout[0]),
                    ATTRS(*op_attr(op, "dim"), a_list("sources", back, (int)n)));
  return !b->failed;
}

bool permute_blocks_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  const Type *t = out->type;
  int64_t dim = attr_i(op, "dim"), n = attr_n(op, "sources"), outer = 1;
  // From local on the one block of this rank was moved here.
  if (op->graph->module->phase >= PHASE_local) {
    memcpy(out->data, in[0].data, (size_t)type_bytes(t));
    return true;
  }
  for (int64_t i = 0; i < dim; i++)
    outer *= t->dim[i];
  int64_t bytes = type_bytes(t) / (outer * n);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < n; i++)
      memcpy((char *)out->data + (o * n + i) * bytes,
             (const char *)in[0].data + (o * n + attr_list(op, "sources")[i]) * bytes,
             (size_t)bytes);
  return true;
}

// -- transpose ---------------------------------------------------------------------------------

bool transpose_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  const int64_t *perm = attr_list(op, "perm");
  if (!list_fits(op, "perm", ndim, d)) return false;
  Einsum e = {0};
  for (int i = 0; i < ndim; i++) {
    // Each dimension occurs once.
    if (!is_axis(perm, ndim, i))
      return diag_error(d, op->loc, "transpose: 'perm' lacks dimension %d", i);
    einsum_add(&e, "%c ", letter_free(i));
  }
  einsum_add(&e, "->");
  for (int i = 0; i < ndim; i++)
    einsum_add(&e, " %c", letter_free((int)perm[i]));
  return dims_parse(dims, op, e.text, d);
}

bool transpose_grad(Builder *b, Op *op, Value **dout, Value **din) {
  int64_t back[MAX_NDIM];
  const int64_t *perm = attr_list(op, "perm");
  for (int i = 0; i < attr_n(op, "perm"); i++)
    back[perm[i]] = i;
  din[0] = build_transpose(b, dout[0], back);
  return !b->failed;
}

bool transpose_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  const int64_t *perm = attr_list(op, "perm");
  int ndim = out->type->ndim;
  int64_t stride[MAX_NDIM], by[MAX_NDIM], at[MAX_NDIM] = {0}, n = type_count(out->type);
  strides_of(in[0].type, stride);
  for (int i = 0; i < ndim; i++)
    // The operand is read along the result's dimensions.
    by[i] = stride[perm[i]];
  for (int64_t i = 0; i < n; i++, index_next(out->type, at))
    element_copy(out, i, &in[0], index_offset(at, by, ndim));
  return true;
}

// -- broadcast ---------------------------------------------------------------------------------

// By numpy's rule: dimensions are aligned at the end, and a length of 1 stretches.
bool broadcast_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type;
  const int64_t *shape = attr_list(op, "shape");
  int ndim = attr_n(op, "shape"), more = ndim - x->ndim;
  if (more < 0)
    return diag_error(d, op->loc, "broadcast: %d dimensions do not fit a shape of %d", x->ndim,
                      ndim);
  Einsum e = {0};
  for (int i = 0; i < x->ndim; i++) {
    char letter = letter_free(more + i);
    // A local length of 1 stretches also if only the result is split along it.
    bool cut_only_after = parts_of(op, op->in[0].value, i) < parts_of(op, op->out[0], more + i);
    bool stretches = x->dim[i] == 1 && (shape[more + i] != 1 || cut_only_after);
    if (!stretches && x->dim[i] != shape[more + i])
      return diag_error(d, op->loc, "broadcast: a length of %lld does not become %lld",
                        (long long)x->dim[i], (long long)shape[more + i]);
    einsum_add(&e, "%c ", stretches ? '1' : letter);
  }
  einsum_add(&e, "->");
  // Stretched dimensions have a letter of their own.
  for (int i = 0; i < ndim; i++)
    einsum_add(&e, " %c", letter_free(i));
  if (!dims_parse(dims, op, e.text, d)) return false;
  for (int i = 0; i < ndim; i++)
    dims_size(dims, letter_free(i), shape[i]);
  return true;
}

bool broadcast_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_sum_to(b, dout[0], op->in[0].value->type);
  return !b->failed;
}

bool broadcast_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  const Type *x = in[0].type, *y = out->type;
  int64_t stride[MAX_NDIM], by[MAX_NDIM] = {0}, at[MAX_NDIM] = {0}, n = type_count(y);
  strides_of(x, stride);
  for (int i = 0; i < x->ndim; i++)
    // Along stretched dimensions the same element is read.
    if (x->dim[i] == y->dim[y->ndim - x->ndim + i]) by[y->ndim - x->ndim + i] = stride[i];
  for (int64_t i = 0; i < n; i++, index_next(y, at))
    element_copy(out, i, &in[0], index_offset(at, by, y->ndim));
  return true;
}

// -- constant and fill -------------------------------------------------------------------------

// The bytes of a constant are the whole tensor; every part of a fill is the same.
bool constant_rule(const Op *op, Dims *dims, Diag *d) {
  const int64_t *shape = attr_list(op, "shape");
  int ndim = attr_n(op, "shape");
  bool whole = op->kind == OP_constant;
  // The bytes must fill the type.
  if (whole) {
    int64_t length = op_attr(op, "value")->data.n;
    int64_t bytes = count_of(shape, ndim) * dtype_bytes[attr_t(op, "to")];
    if (length != bytes)
      return diag_error(d, op->loc, "constant: has %lld bytes and its type takes %lld",
                        (long long)length, (long long)bytes);
  }
  // No operand: the attribute gives all lengths.
  Einsum e = {0};
  einsum_add(&e, "->");
  for (int i = 0; i < ndim; i++)
    einsum_add(&e, " %c%s", letter_free(i), whole ? "^" : "");
  if (!dims_parse(dims, op, e.text, d)) return false;
  for (int i = 0; i < ndim; i++)
    dims_size(dims, letter_free(i), shape[i]);
  return true;
}

bool constant_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)in, (void)box, (void)d;
  const Attr *value = op_attr(op, "value");
  if (value->data.n) memcpy(out->data, value->data.at, (size_t)value->data.n);
  return true;
}

bool fill_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)in, (void)box, (void)d;
  double value = attr_f(op, "value");
  for (int64_t i = 0; i < type_count(out->type); i++)
    tensor_set_f(out, i, value);
  return true;
}

// -- bit_cast ----------------------------------------------------------------------------------

bool bit_cast_rule(const Op *op, Dims *dims, Diag *d) {
  DType from = op->in[0].value->type->dtype, to = attr_t(op, "to");
  if (dtype_bytes[from] != dtype_bytes[to] || to == DT_bool)
    return diag_error(d, op->loc, "bit_cast: the elements of %s are no elements of %s",
                      dtype_name[from], dtype_name[to]);
  return dims_parse(dims, op, "* -> *", d);
}

bool bit_cast_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  memcpy(out->data, in[0].data, (size_t)type_bytes(out->type));
  return true;
}
