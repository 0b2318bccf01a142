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
// lengths.  It includes parts of length one, so the op treats the elements along the letter
// independently, and a part may be any set of them: every other row, or some tokens of each row.
// So an op on pieces is an op of the model if all its operands are split at the same indices of the
// same letters.
//
// A reshape keeps the elements of a piece and their order, so the result is the same piece in
// another shape.
//
// Along a letter that no operand has, a broadcast or a fill is the same at every position.
//
// Two ops are more than their einsum.  A dropout depends on the index of its elements in the whole,
// which its attributes `whole` and `start` give.  A causal attention computes a part of its queries
// from the keys that these see (attention_keys).

#include "piece.h"

#include "ir/op.h"
#include "ir/split.h"

// -- Boxes -----------------------------------------------------------------------------------

Piece piece_all(int number, const Type *whole) {
  Piece p = {.number = number, .ndim = whole->ndim};
  for (int i = 0; i < p.ndim; i++)
    p.dim[i] = set_all(whole->dim[i]);
  return p;
}

bool piece_fits(const Piece *p, const Type *t) {
  bool fits = p->ndim == t->ndim;
  for (int i = 0; fits && i < p->ndim; i++)
    fits = set_length(&p->dim[i]) == t->dim[i];
  return fits;
}

bool piece_is_all(const Piece *p, const Type *whole) {
  return !piece_is_part_of_sum(p) && piece_fits(p, whole);
}

bool piece_is_part_of_sum(const Piece *p) {
  return p->n_sums || p->plus;
}

const char *piece_text(Arena *a, const Piece *p, const char *of) {
  StrBuf b = {.arena = a};
  if (p->n_sums) strbuf_addf(&b, "the share of ");
  for (int i = 0; i < p->n_sums; i++) {
    strbuf_addf(&b, "%s%c=", i ? "," : "", p->sum[i].letter);
    set_text(&b, &p->sum[i].at);
  }
  if (p->n_sums) strbuf_addf(&b, " in ");
  strbuf_add(&b, "[");
  for (int i = 0; i < p->ndim; i++) {
    if (i) strbuf_add(&b, ",");
    set_text(&b, &p->dim[i]);
  }
  strbuf_addf(&b, "] of %s", of);
  return b.at;
}

// -- Slices, concats and sums ------------------------------------------------------------------

typedef struct ViewFactor {
  SetFactor at;
  int dim;  // of the model's value
  int axis; // of the value's shape
} ViewFactor;

// The factors of a piece, in the shape of a value; minor ones first.
typedef struct View {
  int n;
  ViewFactor factor[MAX_NDIM * (MAX_SET_FACTORS + 1)];
} View;

// Assigns the factors of the piece to the dimensions of shape `t`, and splits a factor that extends
// over several.  False if a dimension begins within a factor, and not at one of its divisors.
static bool view_open(const Piece *p, const Type *t, View *v) {
  int axis = t->ndim - 1;
  int64_t need = t->ndim ? t->dim[axis] : 1; // elements of the dimension without factors
  v->n = 0;
  for (int dim = p->ndim - 1; dim >= 0; dim--)
    for (int i = p->dim[dim].n - 1; i >= 0; i--) {
      SetFactor rest = p->dim[dim].factor[i];
      while (rest.length != 1) {
        while (need == 1 && axis > 0)
          need = t->dim[--axis];
        SetFactor f = {rest.length < need ? rest.length : need, rest.stride};
        if (f.length < 2 || rest.length % f.length || need % f.length) return false;
        if (v->n == MAX_NDIM * (MAX_SET_FACTORS + 1)) return false;
        v->factor[v->n++] = (ViewFactor){f, dim, axis};
        rest = (SetFactor){rest.length / f.length, rest.stride * f.length};
        need /= f.length;
      }
    }
  // All other dimensions have length 1.
  while (need == 1 && axis > 0)
    need = t->dim[--axis];
  return need == 1;
}

static bool view_close(const View *v, Piece *p) {
  for (int i = 0; i < p->ndim; i++)
    p->dim[i].n = 0;
  for (int i = v->n - 1; i >= 0; i--)
    if (!set_push(&p->dim[v->factor[i].dim], v->factor[i].at)) return false;
  // A value that is the same everywhere is known by its length.
  for (int i = 0; i < p->ndim; i++)
    if (p->dim[i].from == ANYWHERE)
      p->dim[i] = set_interval(p->dim[i].size, ANYWHERE, set_length(&p->dim[i]));
  return true;
}

// Takes `length` elements from `start` on of dimension `axis`.  They must be a box of its factors:
// begin and end between the elements of one, within one element of each major one.
static bool view_slice(View *v, Piece *p, int axis, int64_t start, int64_t length) {
  int64_t minor = 1;
  for (int i = 0; i < v->n; i++)
    if (v->factor[i].axis == axis) minor *= v->factor[i].at.length;
  for (int i = v->n - 1; i >= 0 && length > 0; i--) {
    SetFactor *f = &v->factor[i].at;
    if (v->factor[i].axis != axis) continue;
    minor /= f->length;
    bool between = start % minor == 0 && length % minor == 0;
    if (!between && start / minor != (start + length - 1) / minor) return false;
    IndexSet *of = &p->dim[v->factor[i].dim];
    if (of->from != ANYWHERE) of->from += start / minor * f->stride;
    f->length = between ? length / minor : 1;
    if (between) return true;
    start %= minor;
  }
  return false;
}

bool piece_slice(const Op *slice, const Piece *p, const Type *x, Piece *out) {
  const int64_t *starts = attr_list(slice, "starts"), *steps = attr_list(slice, "steps");
  const Type *whole = value_whole(slice->out[0]);
  View v;
  *out = *p;
  if (p->plus || !view_open(p, x, &v)) return false;
  for (int i = 0; i < x->ndim; i++) {
    // Only contiguous rows are a piece.
    if (steps[i] != 1) return false;
    if (whole->dim[i] != x->dim[i] && !view_slice(&v, out, i, starts[i], whole->dim[i]))
      return false;
  }
  return view_close(&v, out);
}

// Whether both are of one value, and shares over the same indices, if they are shares.
static bool same_sums(const Piece *x, const Piece *y) {
  bool same = x->number == y->number && x->n_sums == y->n_sums && !x->plus && !y->plus;
  for (int i = 0; same && i < x->n_sums; i++) {
    IndexSet at = x->sum[i].at;
    same = x->sum[i].letter == y->sum[i].letter && set_unify(&at, &y->sum[i].at);
  }
  return same;
}

bool piece_concat(const Op *concat, const Piece *in, Piece *out) {
  int axis = (int)attr_i(concat, "axis");
  *out = in[0];
  for (int i = 0; i < concat->n_in; i++) {
    // The pieces of one value, or of one share of it, follow each other along the axis.
    if (!piece_fits(&in[i], value_whole(concat->in[i].value)) || !same_sums(out, &in[i]))
      return false;
    for (int k = 0; i > 0 && k < out->ndim; k++)
      if (!(k == axis ? set_append : set_unify)(&out->dim[k], &in[i].dim[k])) return false;
  }
  return true;
}

// Unites two shares of the same box of a value, with other indices of one letter.  *overlap: they
// have indices in common.
static bool unite_shares(Piece *x, const Piece *y, bool *overlap) {
  *overlap = false;
  if (!x->n_sums || x->n_sums != y->n_sums || x->number != y->number) return false;
  Piece all = *x;
  for (int k = 0; k < all.ndim; k++)
    if (!set_unify(&all.dim[k], &y->dim[k])) return false;
  int other = -1, n_others = 0;
  bool apart = false;
  for (int i = 0; i < all.n_sums; i++) {
    IndexSet at = all.sum[i].at;
    if (all.sum[i].letter != y->sum[i].letter) return false;
    apart |= !set_overlaps(&at, &y->sum[i].at);
    if (set_unify(&at, &y->sum[i].at)) continue;
    other = i;
    n_others++;
  }
  *overlap = !apart;
  if (n_others != 1 || !set_unite(&all.sum[other].at, &y->sum[other].at)) return false;
  // All of them together are the sum.
  if (set_is_all(&all.sum[other].at)) {
    all.n_sums--;
    for (int i = other; i < all.n_sums; i++)
      all.sum[i] = all.sum[i + 1];
  }
  *x = all;
  return true;
}

// Adds a term to the `n` terms of a sum.
static bool add_term(Piece *term, int *n, const Piece *p, const char **why) {
  Piece add = *p;
  add.plus = add.other = NULL;
  for (int i = 0; i < *n; i++) {
    bool overlap;
    if (unite_shares(&add, &term[i], &overlap)) {
      // The larger share may follow an earlier one.
      term[i] = term[--*n];
      i = -1;
    } else if (overlap) {
      *why = "its operands have indices of the sum in common";
      return false;
    }
  }
  *why = "a sum of more terms than the proof follows";
  if (*n == MAX_SUM_TERMS) return false;
  term[(*n)++] = add;
  return true;
}

int piece_terms(const Piece *x, const Piece *y, Piece *term, const char **why) {
  int n = 0;
  for (int i = 0; i < 2; i++)
    for (const Piece *p = i ? y : x; p; p = p->plus)
      if (!add_term(term, &n, p, why)) return 0;
  return n;
}

Piece piece_sum(const Piece *term, int n, Arena *a) {
  Piece sum = term[0];
  sum.plus = NULL;
  for (int i = n - 1; i > 0; i--) {
    Piece *next = arena_copy(a, &term[i], sizeof term[i]);
    next->plus = sum.plus;
    sum.plus = next;
  }
  return sum;
}

bool piece_of_sliced(const Op *slice, int number, Piece *p) {
  const Type *whole = slice->in[0].value->type;
  const int64_t *starts = attr_list(slice, "starts");
  p->number = number;
  for (int i = 0; i < p->ndim; i++)
    if (!set_embed(&p->dim[i], starts[i], whole->dim[i])) return false;
  return true;
}

bool piece_of_slice(const Op *slice, int number, Piece *p) {
  const Type *made = slice->out[0]->type;
  const int64_t *starts = attr_list(slice, "starts");
  p->number = number;
  for (int i = 0; i < p->ndim; i++)
    if (!set_restrict(&p->dim[i], starts[i], made->dim[i])) return false;
  return true;
}

bool piece_of_broadcast(const Op *broadcast, const Piece *p, const Type *x, Piece *out) {
  const Type *of = broadcast->in[0].value->type, *whole = broadcast->out[0]->type;
  *out = *p;
  out->other = NULL;
  if (whole->ndim != x->ndim || of->ndim != x->ndim || !piece_fits(p, x)) return false;
  for (int i = 0; i < x->ndim; i++)
    if (of->dim[i] != whole->dim[i]) out->dim[i] = set_interval(whole->dim[i], ANYWHERE, 1);
  return true;
}

// -- Ops -------------------------------------------------------------------------------------

typedef struct Cut {
  const Dims *dims; // of the whole op
  IndexSet at[MAX_LETTERS];
  bool known[MAX_LETTERS];
} Cut;

static bool cut_letter(Cut *c, int letter, IndexSet at) {
  if (c->known[letter]) return set_unify(&c->at[letter], &at);
  c->known[letter] = true;
  c->at[letter] = at;
  return at.size == c->dims->letter[letter].size;
}

// Derives the indices of a dimension's letters, which are its factors, from a part of the
// dimension.
static bool cut_dim(Cut *c, const Term *t, int dim, const IndexSet *part) {
  IndexSet rest = *part, own;
  for (int i = t->dim[dim].n - 1; i >= 0; i--) {
    int letter = t->dim[dim].letter[i];
    if (!set_split(&rest, c->dims->letter[letter].size, &rest, &own)) return false;
    if (!cut_letter(c, letter, own)) return false;
  }
  return rest.size == 1;
}

static bool is_cut(const Cut *c, int letter) {
  return !set_is_all(&c->at[letter]);
}

// The letters of a causal attention's queries and keys, or -1.
static void causal_letters(const Op *is, const Dims *dims, int *queries, int *keys) {
  bool causal = is->kind == OP_attention && attr_i(is, "causal") && !attr_i(is, "blocks");
  *queries = causal ? dims_find(dims, 't') : -1;
  *keys = causal ? dims_find(dims, 's') : -1;
}

// Queries of a causal attention are split together with its keys: they read the first ones.
static bool cut_causal(const Cut *c, const Op *is, int queries, int keys, const char **why,
                       Arena *a) {
  const IndexSet *t = &c->at[queries];
  if (!is_cut(c, queries) && !is_cut(c, keys)) return true;
  *why = "queries in parts must be an interval";
  if (!set_is_interval(t)) return false;
  int64_t n = attention_keys(is, t->from + set_length(t));
  IndexSet want = set_interval(c->at[keys].size, 0, n);
  if (n > 0 && set_unify(&want, &c->at[keys])) return true;
  StrBuf text = {.arena = a};
  strbuf_add(&text, "causal queries ");
  set_text(&text, t);
  strbuf_addf(&text, " read keys 0:%lld, and these are keys ", (long long)n);
  set_text(&text, &c->at[keys]);
  *why = text.at;
  return false;
}

// Derives the indices of all letters of the op.
static bool cut_letters(Cut *c, const Op *is, const Op *op, const Piece *in, const char **why,
                        Arena *a) {
  for (int i = 0; i < is->n_in; i++) {
    *why = "a share of a sum is no value yet";
    if (piece_is_part_of_sum(&in[i])) return false;
    *why = "its operands are split in different places";
    if (!piece_fits(&in[i], value_whole(op->in[i].value))) return false;
    for (int k = 0; k < in[i].ndim; k++)
      if (!cut_dim(c, &c->dims->in[i], k, &in[i].dim[k])) return false;
  }
  // Letters without an operand take their indices from the results.
  bool alike = is->kind == OP_fill || is->kind == OP_broadcast;
  *why = "its results are split in different places";
  for (int i = 0; i < is->n_out; i++) {
    const Type *whole = value_whole(op->out[i]);
    const Term *t = &c->dims->out[i];
    if (whole->ndim != t->ndim) return false;
    for (int k = 0; k < t->ndim; k++) {
      // A part of the result is one of the first factor that is longer than 1.
      int lead = -1;
      for (int f = 0; f < t->dim[k].n && lead < 0; f++)
        if (c->dims->letter[t->dim[k].letter[f]].size != 1) lead = t->dim[k].letter[f];
      if (lead < 0 || c->known[lead]) continue;
      int64_t length = dims_length(c->dims, t, k);
      IndexSet part = set_all(length);
      if (alike && whole->dim[k] < length) part = set_interval(length, ANYWHERE, whole->dim[k]);
      if (!cut_dim(c, t, k, &part)) return false;
    }
  }
  for (int i = 0; i < c->dims->n_letters; i++)
    if (!c->known[i] && !cut_letter(c, i, set_all(c->dims->letter[i].size))) return false;
  int queries, keys;
  causal_letters(is, c->dims, &queries, &keys);
  if (queries >= 0 && !cut_causal(c, is, queries, keys, why, a)) return false;
  // Operands that are the same along a letter give results that differ, if the op reads all of the
  // letter at once or knows indices: all of the letter begins at its first element.
  for (int i = 0; i < c->dims->n_letters; i++)
    if (!is_cut(c, i) && (c->dims->letter[i].whole || i == queries || op_boxed(is)))
      c->at[i] = set_all(c->dims->letter[i].size);
  // Some letters cannot be split: ops read them as a whole.  A reshape treats all factors of a
  // dimension alike; for others only the first may be split.
  *why = "it cannot be done in such parts";
  for (int i = 0; i < c->dims->n_letters; i++) {
    if (!is_cut(c, i) || i == queries || i == keys) continue;
    if (c->dims->letter[i].whole) return false;
    if (is->kind != OP_reshape && !dims_leads(c->dims, i)) return false;
  }
  return true;
}

// Whether the piece has all of the dimensions that the op's indices are of. Those of a lookup are
// within rows that both operands have, which `batch` counts.
static bool has_indexed(const Op *is, const Piece *p, const Type *t) {
  bool fits = p->ndim == t->ndim;
  for (int i = is->kind == OP_gather ? (int)attr_i(is, "batch") : 0; fits && i < p->ndim; i++)
    fits = set_length(&p->dim[i]) == t->dim[i];
  return fits;
}

// Checks that an op that depends on the index of its elements in the whole knows it.
static bool knows_index(const Op *is, const Op *op, const Piece *in, Piece *out, const char **why,
                        Arena *a) {
  const Value *boxed = op_boxed(is);
  if (!boxed) return true;
  Piece *p = boxed == is->out[0] ? out : NULL;
  bool places = op_draws(is->kind) && attr_n(op, "whole");
  *why = "it depends on an element's global index";
  if (op_draws(is->kind) && !places && attr_n(is, "whole")) return false;
  if (!places) return has_indexed(is, p ? p : in, boxed->type);
  // An op that is a piece in the model, too, has its start within the whole.
  const int64_t *whole = attr_list(op, "whole"), *start = attr_list(op, "start");
  bool again = attr_n(is, "whole") > 0;
  const int64_t *is_whole = again ? attr_list(is, "whole") : is->out[0]->type->dim;
  for (int i = 0; i < p->ndim; i++) {
    int64_t length = set_length(&p->dim[i]), size = p->dim[i].size;
    int64_t from = start[i] - (again ? attr_list(is, "start")[i] : 0);
    IndexSet at = set_interval(size, from, length);
    bool within = whole[i] == is_whole[i] && from >= 0 && from + length <= size;
    if (within && set_unify(&p->dim[i], &at)) continue;
    StrBuf text = {.arena = a};
    strbuf_addf(&text,
                "it draws for elements %lld:%lld of %lld in dimension %d, and its operand is ",
                (long long)start[i], (long long)(start[i] + length), (long long)whole[i], i);
    set_text(&text, &p->dim[i]);
    strbuf_addf(&text, " of %lld", (long long)size);
    if (again)
      strbuf_addf(&text, " from %lld of %lld", (long long)attr_list(is, "start")[i],
                  (long long)is_whole[i]);
    *why = text.at;
    return false;
  }
  return true;
}

bool piece_op(const Op *is, int first, const Op *op, const Piece *in, Piece *out, const char **why,
              Arena *a, Diag *d) {
  Dims dims;
  Cut c = {.dims = &dims};
  if (!op_dims(is, &dims, d) || !cut_letters(&c, is, op, in, why, a)) return false;
  int queries, keys;
  causal_letters(is, &dims, &queries, &keys);
  for (int i = 0; i < is->n_out; i++) {
    // The part of each result follows from the indices of its letters.
    const Term *t = &dims.out[i];
    out[i] = (Piece){.number = first + i, .ndim = t->ndim};
    *why = "its results are no boxes";
    for (int k = 0; k < t->ndim; k++) {
      IndexSet *dim = &out[i].dim[k];
      *dim = set_all(1);
      for (int f = 0; f < t->dim[k].n; f++)
        if (!set_product(dim, &c.at[t->dim[k].letter[f]], dim)) return false;
    }
    // Without one of the split letters it is a share.
    *why = "a sum over more letters in parts than the proof follows";
    for (int l = 0; l < dims.n_letters; l++) {
      if (!is_cut(&c, l) || l == keys || dims_position(&dims, t, l) != -1) continue;
      if (out[i].n_sums == MAX_SUMS || c.at[l].from == ANYWHERE) return false;
      out[i].sum[out[i].n_sums].letter = dims.letter[l].name;
      out[i].sum[out[i].n_sums++].at = c.at[l];
    }
  }
  // Some ops depend on the index of their elements in the whole.
  if (!knows_index(is, op, in, &out[0], why, a)) return false;
  *why = "its results have other lengths";
  for (int i = 0; i < is->n_out; i++)
    if (!piece_fits(&out[i], value_whole(op->out[i]))) return false;
  return true;
}
