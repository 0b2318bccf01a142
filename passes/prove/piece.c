// Pieces: parts of a value without a layout, of unequal lengths or on different devices.  The proof
// follows them through slices, ops and concats.
//
//     %y = linear %x, %w                    the model: 7 rows
//
//     %a = slice %x starts=[0,0] shape=[4,8]        rows 0 to 4 of %x
//     %b = slice %x starts=[4,0] shape=[3,8]        rows 4 to 7
//     %p = linear %a, %w                            rows 0 to 4 of %y
//     %q = linear %b, %w                            rows 4 to 7 of %y
//     %y = concat %p, %q axis=0                     all of %y
//
// Every row of ops.def promises that the op can be computed in parts along a letter of its einsum.
// Parts of the operands with the letter yield a part of each result with the letter.  Of a result
// without the letter they yield a share, and the shares add up.  The promise does not require equal
// lengths.  So an op on pieces is an op of the model if all its operands are split at the same
// positions of the same letters.
//
// Along a letter that no operand has, a broadcast or a fill is the same at every position.

#include "piece.h"

#include "ir/op.h"
#include "ir/split.h"

// -- Boxes -----------------------------------------------------------------------------------

Piece piece_all(int number, const Type *whole) {
  Piece p = {.number = number, .ndim = whole->ndim};
  for (int i = 0; i < p.ndim; i++)
    p.dim[i].length = whole->dim[i];
  return p;
}

bool piece_fits(const Piece *p, const Type *t) {
  bool fits = p->ndim == t->ndim;
  for (int i = 0; fits && i < p->ndim; i++)
    fits = p->dim[i].length == t->dim[i];
  return fits;
}

bool piece_is_all(const Piece *p, const Type *whole) {
  return !p->letter && piece_fits(p, whole);
}

const char *piece_text(Arena *a, const Piece *p, const char *of) {
  StrBuf b = {.arena = a};
  if (p->letter) strbuf_addf(&b, "a share of ");
  strbuf_add(&b, "[");
  for (int i = 0; i < p->ndim; i++)
    if (p->dim[i].from == ANYWHERE)
      strbuf_addf(&b, "%s%lld", i ? "," : "", (long long)p->dim[i].length);
    else
      strbuf_addf(&b, "%s%lld:%lld", i ? "," : "", (long long)p->dim[i].from,
                  (long long)(p->dim[i].from + p->dim[i].length));
  strbuf_addf(&b, "] of %s", of);
  return b.at;
}

// Intersects two intervals that must be equal.  Returns false if they differ.
static bool unify(Interval *x, Interval y) {
  if (x->length != y.length) return false;
  if (x->from == ANYWHERE) x->from = y.from;
  return y.from == ANYWHERE || x->from == y.from;
}

// Appends the second interval to the first.  Returns false if it does not follow it.
static bool append(Interval *x, Interval y) {
  if ((x->from == ANYWHERE) != (y.from == ANYWHERE)) return false;
  if (x->from != ANYWHERE && x->from + x->length != y.from) return false;
  x->length += y.length;
  return true;
}

bool piece_slice(const Op *slice, const Piece *p, Piece *out) {
  const int64_t *starts = attr_list(slice, "starts"), *steps = attr_list(slice, "steps");
  const Type *whole = value_whole(slice->out[0]);
  *out = *p;
  for (int i = 0; i < p->ndim; i++) {
    // Only contiguous rows are a piece.
    if (steps[i] != 1) return false;
    if (out->dim[i].from != ANYWHERE) out->dim[i].from += starts[i];
    out->dim[i].length = whole->dim[i];
  }
  return true;
}

bool piece_concat(const Op *concat, const Piece *in, Piece *out) {
  int axis = (int)attr_i(concat, "axis");
  *out = in[0];
  for (int i = 1; i < concat->n_in; i++) {
    // The pieces of one value, or of one share of it, follow each other along the axis.
    if (in[i].number != out->number || in[i].letter != out->letter) return false;
    if (out->letter && (in[i].sums.from != out->sums.from || in[i].sums.length != out->sums.length))
      return false;
    for (int k = 0; k < out->ndim; k++)
      if (!(k == axis ? append : unify)(&out->dim[k], in[i].dim[k])) return false;
  }
  return true;
}

bool piece_add(const Piece *in, int64_t letter_size, Piece *out) {
  *out = in[0];
  if (!in[0].letter || in[0].letter != in[1].letter || in[0].number != in[1].number) return false;
  for (int k = 0; k < out->ndim; k++)
    if (!unify(&out->dim[k], in[1].dim[k])) return false;
  // The shares may be added in either order.  All of them together are the sum.
  Interval x = in[0].sums, y = in[1].sums;
  if (!append(&x, y)) {
    x = in[1].sums;
    if (!append(&x, in[0].sums)) return false;
  }
  out->sums = x;
  if (x.length == letter_size) out->letter = 0;
  return true;
}

// -- Ops -------------------------------------------------------------------------------------

// Returns the factor of a dimension along which a part splits: the first factor longer than 1; NULL
// if there is none.  The later factors are complete, *rest elements for each element of it.
static const int8_t *leading(const Dims *dims, const Term *t, int dim, int64_t *rest) {
  const int8_t *lead = NULL;
  *rest = 1;
  for (int i = 0; i < t->dim[dim].n; i++) {
    const int8_t *letter = &t->dim[dim].letter[i];
    if (lead)
      *rest *= dims->letter[*letter].size;
    else if (dims->letter[*letter].size != 1)
      lead = letter;
  }
  return lead;
}

typedef struct Cut {
  const Dims *dims; // of the whole op
  Interval at[MAX_LETTERS];
  bool known[MAX_LETTERS];
} Cut;

static bool cut_letter(Cut *c, int letter, Interval at) {
  if (c->known[letter]) return unify(&c->at[letter], at);
  c->known[letter] = true;
  c->at[letter] = at;
  return true;
}

// Derives the intervals of a dimension's letters from a part of the dimension.
static bool cut_dim(Cut *c, const Term *t, int dim, Interval part) {
  int64_t rest, whole = dims_length(c->dims, t, dim);
  const int8_t *lead = leading(c->dims, t, dim, &rest);
  if (part.length == whole) {
    for (int i = 0; i < t->dim[dim].n; i++) {
      int letter = t->dim[dim].letter[i];
      if (!cut_letter(c, letter, (Interval){0, c->dims->letter[letter].size})) return false;
    }
    return true;
  }
  // The part is one of the leading letter: it begins and ends between its elements.
  if (!lead || part.length % rest || (part.from != ANYWHERE && part.from % rest)) return false;
  int64_t from = part.from == ANYWHERE ? ANYWHERE : part.from / rest;
  if (!cut_letter(c, *lead, (Interval){from, part.length / rest})) return false;
  for (int i = 0; i < t->dim[dim].n; i++) {
    int letter = t->dim[dim].letter[i];
    if (letter != *lead && !cut_letter(c, letter, (Interval){0, c->dims->letter[letter].size}))
      return false;
  }
  return true;
}

static bool is_cut(const Cut *c, int letter) {
  return c->at[letter].length != c->dims->letter[letter].size;
}

// Derives the intervals of all letters of the op.
static bool cut_letters(Cut *c, const Op *is, const Op *op, const Piece *in, const char **why) {
  for (int i = 0; i < is->n_in; i++) {
    *why = "a share of a sum is no value yet";
    if (in[i].letter) return false;
    *why = "its operands are split in different places";
    for (int k = 0; k < in[i].ndim; k++)
      if (!cut_dim(c, &c->dims->in[i], k, in[i].dim[k])) return false;
  }
  // Letters without an operand take their intervals from the results.
  bool alike = is->kind == OP_fill || is->kind == OP_broadcast;
  *why = "its results are split in different places";
  for (int i = 0; i < is->n_out; i++) {
    const Type *whole = value_whole(op->out[i]);
    const Term *t = &c->dims->out[i];
    for (int k = 0; k < t->ndim; k++) {
      int64_t rest;
      const int8_t *lead = leading(c->dims, t, k, &rest);
      if (!lead || c->known[*lead]) continue;
      Interval part = {alike ? ANYWHERE : 0, alike ? whole->dim[k] : dims_length(c->dims, t, k)};
      if (!cut_dim(c, t, k, part)) return false;
    }
  }
  for (int i = 0; i < c->dims->n_letters; i++)
    if (!c->known[i] && !cut_letter(c, i, (Interval){0, c->dims->letter[i].size})) return false;
  // Some letters cannot be split: ops read them as a whole.
  *why = "it cannot be done in such parts";
  for (int i = 0; i < c->dims->n_letters; i++)
    if (is_cut(c, i) && (c->dims->letter[i].whole || !dims_leads(c->dims, i))) return false;
  return true;
}

bool piece_op(const Op *is, int first, const Op *op, const Piece *in, Piece *out, const char **why,
              Diag *d) {
  Dims dims;
  Cut c = {.dims = &dims};
  if (!op_dims(is, &dims, d) || !cut_letters(&c, is, op, in, why)) return false;
  for (int i = 0; i < is->n_out; i++) {
    // The part of each result follows from the intervals of its letters.
    const Term *t = &dims.out[i];
    out[i] = (Piece){.number = first + i, .ndim = t->ndim};
    for (int k = 0; k < t->ndim; k++) {
      int64_t rest;
      const int8_t *lead = leading(&dims, t, k, &rest);
      Interval at = lead ? c.at[*lead] : (Interval){0, 1};
      out[i].dim[k].from = at.from == ANYWHERE ? ANYWHERE : at.from * rest;
      out[i].dim[k].length = at.length * rest;
    }
    // Without one of the split letters it is a share.
    *why = "two letters are summed over in parts";
    for (int l = 0; l < dims.n_letters; l++) {
      if (!is_cut(&c, l) || dims_position(&dims, t, l) != -1) continue;
      if (out[i].letter || c.at[l].from == ANYWHERE) return false;
      out[i].letter = dims.letter[l].name;
      out[i].sums = c.at[l];
    }
  }
  // Some ops depend on the position of their elements in the whole.
  *why = "it depends on an element's global index";
  const Value *boxed = op_boxed(is);
  if (boxed && !piece_fits(boxed == is->out[0] ? &out[0] : &in[0], boxed->type)) return false;
  *why = "its results have other lengths";
  for (int i = 0; i < is->n_out; i++)
    if (!piece_fits(&out[i], value_whole(op->out[i]))) return false;
  return true;
}
