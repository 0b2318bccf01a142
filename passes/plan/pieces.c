// See pieces.h.
//
// find_region walks the graph once and says by which letter each op would be cut, or that one
// cannot be, before anything is changed.  Then all ops are built for the first piece, all for the
// second and so on, behind the last op of the region, so nothing before that may read what it
// leaves.

#include "pieces.h"

#include <string.h>

#include "base/vec.h"
#include "ir/op.h"

// An op of the region, and the letter that it is cut along.
typedef struct Cut {
  Op *op;
  Dims dims;
  int letter;
} Cut;

typedef struct Region {
  Graph *g;
  Arena *arena;
  Diag *d;
  const PieceSizes *pieces;
  Vec(Cut *) cut;    // in the order of the graph
  int *dim;          // by value id: along which it comes in pieces, or -1
  Value **piece;     // by value id: the one that is being made
  int64_t rows;      // of what is dealt: so many are, each with all that is in it
  uint32_t n_values; // that these are for
} Region;

static bool may_cut(const Region *r, const Dims *dims, int letter) {
  if (letter < 0 || dims->letter[letter].whole || !dims_leads(dims, letter)) return false;
  int64_t size = dims->letter[letter].size;
  return size % r->pieces->sum == 0 && (!r->rows || size % r->rows == 0);
}

// Of a length, how much is before piece `i`; of i = n, all of it.
static int64_t before(const PieceSizes *pieces, int64_t length, int i) {
  int64_t parts = 0;
  for (int k = 0; k < i; k++)
    parts += pieces->at[k];
  return length / pieces->sum * parts;
}

static int64_t size_of(const PieceSizes *pieces, int64_t length, int i) {
  return length / pieces->sum * pieces->at[i];
}

// The letter by which an operand comes in pieces: -1 when none does, -2 when the op cannot take
// them.
static int letter_of(const Region *r, const Op *op, const Dims *dims) {
  int letter = -1;
  for (int i = 0; i < op->n_in; i++) {
    int dim = r->dim[op->in[i].value->id];
    if (dim < 0) continue;
    int own = dims_splitter(dims, &dims->in[i], dim, r->pieces->sum);
    if (!may_cut(r, dims, own) || (letter >= 0 && letter != own)) return -2;
    letter = own;
  }
  return letter;
}

// Whether what is to be dealt has dimensions to spare.
static bool may_deal(const Region *r, const Op *op, const Dims *dims, int letter) {
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    bool whole = r->dim[v->id] < 0 && dims_position(dims, &dims->in[i], letter) >= 0;
    if (whole && v->type->rank + 2 > MAX_RANK) return false;
  }
  return true;
}

static bool add_cut(Region *r, Op *op, const Dims *dims, int letter) {
  if (r->pieces->dealt && !may_deal(r, op, dims, letter)) return false;
  int traits = op_info[op->kind].traits;
  if (op->callee || (traits & (LOGICAL | COMM))) return false;
  // Where an element lies in operand 0 is the same in all pieces if that is whole.
  if ((traits & LOGICAL_IN) && dims_position(dims, &dims->in[0], letter) != -1) return false;
  Cut *c = arena_one(r->arena, Cut);
  *c = (Cut){op, *dims, letter};
  vec_push(r->arena, &r->cut, c);
  for (int i = 0; i < op->n_out; i++) {
    int dim = dims_position(dims, &dims->out[i], letter);
    r->dim[op->out[i]->id] = dim;
    for_each_use(u, op->out[i])
      if (!u->user && dim >= 0) return false; // a result of the graph is whole
  }
  return true;
}

static int start_letter(const PieceStart *start, int n, const Op *op, const Dims *dims) {
  for (int i = 0; i < n; i++)
    if (start[i].op == op) return dims_find(dims, start[i].letter);
  return -1;
}

// Finds all that is cut; false where something cannot be.
static bool find_region(Region *r, const PieceStart *start, int n) {
  int started = 0;
  for_each_op(op, r->g) {
    Dims dims;
    if (!op_dims(op, &dims, r->d)) BUG("%s does not fit", op_info[op->kind].name);
    int letter = letter_of(r, op, &dims), own = start_letter(start, n, op, &dims);
    if (letter == -2 || (letter >= 0 && own >= 0 && letter != own)) return false;
    if (own >= 0) started++;
    if (own >= 0 && r->pieces->dealt && !r->rows) r->rows = dims.letter[own].size;
    if (letter < 0) letter = own;
    if (letter < 0) continue;
    if (!may_cut(r, &dims, letter) || !add_cut(r, op, &dims, letter)) return false;
  }
  return started == n;
}

// Is a result of the region summed over pieces, and read only behind all of it?
static bool ends_last(const Region *r) {
  const Op *last = r->cut.at[r->cut.n - 1]->op;
  for (int k = 0; k < r->cut.n; k++)
    for (int i = 0; i < r->cut.at[k]->op->n_out; i++) {
      const Value *v = r->cut.at[k]->op->out[i];
      for_each_use(u, v)
        if (r->dim[v->id] < 0 && u->user && u->user->id <= last->id) return false;
    }
  return true;
}

// The i-th row, and every n-th behind it.  A dimension that has several elements of each row, as
// that of all words of all rows, is taken apart.
static Value *dealt_to(const Region *r, Builder *b, Value *v, int dim, int i) {
  Type t = *v->type, one = *v->type;
  int64_t n = r->pieces->n, in_row = t.dim[dim] / r->rows;
  memmove(&t.dim[dim + 3], &t.dim[dim + 1], (size_t)(t.rank - dim - 1) * sizeof *t.dim);
  one.dim[dim] /= n;
  t.dim[dim] = r->rows / n;
  t.dim[dim + 1] = n;
  t.dim[dim + 2] = in_row;
  t.rank += 2;
  Value *rows = build_reshape(b, v, t.rank, t.dim);
  Value *column = rows ? build_slice(b, rows, dim + 1, i, 1) : NULL;
  return column ? build_reshape(b, column, one.rank, one.dim) : NULL;
}

// What is broadcast is broadcast in pieces: of a bias, that is the same all along the dimension,
// the gradient need not be put together then, and of positions, that are as long, a piece is all
// that is broadcast for it.  NULL: it is not broadcast, or rows of it are dealt.
static Value *broadcast_of(const Region *r, Builder *b, const Value *v, int dim, int i) {
  const Op *op = v->def;
  if (!op || op->kind != OP_broadcast) return NULL;
  Value *x = op->in[0].value;
  int own = dim - (v->type->rank - x->type->rank);
  if (own >= 0 && x->type->dim[own] != 1) {
    if (r->pieces->dealt) return NULL;
    int64_t length = x->type->dim[own];
    x = build_slice(b, x, own, before(r->pieces, length, i), size_of(r->pieces, length, i));
    if (!x) return NULL;
  }
  Type t = *v->type;
  t.dim[dim] = size_of(r->pieces, t.dim[dim], i);
  return build_broadcast(b, x, t.rank, t.dim);
}

// Piece `i` of an operand that is whole.
static Value *slice_of(const Region *r, Builder *b, Value *v, int dim, int i) {
  int64_t length = v->type->dim[dim];
  Value *same = broadcast_of(r, b, v, dim, i);
  if (same) return same;
  if (r->pieces->dealt) return dealt_to(r, b, v, dim, i);
  return build_slice(b, v, dim, before(r->pieces, length, i), size_of(r->pieces, length, i));
}

static Attr shape_of_piece(const Region *r, const Cut *c, int i) {
  const Type *t = c->op->out[0]->type;
  int64_t shape[MAX_RANK];
  memcpy(shape, t->dim, sizeof shape);
  int dim = r->dim[c->op->out[0]->id];
  if (dim >= 0) shape[dim] = size_of(r->pieces, shape[dim], i);
  Attr a = a_list("shape", shape, t->rank);
  a.list.at = arena_copy(r->arena, shape, sizeof shape);
  return a;
}

// Piece `i` of the op.
static Op *build_piece(Region *r, Builder *b, const Cut *c, int i) {
  const Op *op = c->op;
  Arena *a = r->g->module->arena;
  b->origin = op_origin(op);
  b->origin.piece = i + 1;
  b->origin.loc = loc_from(a, op->loc, str_format(a, "piece %d", i + 1));
  Value **in = arena_array(r->arena, Value *, op->n_in);
  for (int k = 0; k < op->n_in; k++) {
    Value *v = op->in[k].value;
    int dim = dims_position(&c->dims, &c->dims.in[k], c->letter);
    in[k] = r->dim[v->id] >= 0 ? r->piece[v->id] : dim >= 0 ? slice_of(r, b, v, dim, i) : v;
  }
  int n;
  op_attr_specs(op->kind, &n);
  Attr *attrs = arena_array(r->arena, Attr, n);
  for (int k = 0; k < n; k++)
    attrs[k] = str_equal(op->attrs[k].name, "shape") ? shape_of_piece(r, c, i) : op->attrs[k];
  if (b->failed) return NULL;
  return op_new(r->g, b->at, op->kind, in, op->n_in, attrs, n, b->origin, r->d);
}

// Builds all pieces behind the region, adds up those of what is whole, and takes the place of it.
static bool replace_region(Region *r) {
  Op *last = r->cut.at[r->cut.n - 1]->op;
  Builder b = {.g = r->g, .at = last->next, .d = r->d};
  Value **sum = arena_array(r->arena, Value *, r->n_values);
  for (int i = 0; i < r->pieces->n; i++)
    for (int k = 0; k < r->cut.n; k++) {
      const Op *op = r->cut.at[k]->op;
      Op *piece = build_piece(r, &b, r->cut.at[k], i);
      if (!piece) return false;
      for (int o = 0; o < op->n_out; o++) {
        uint32_t id = op->out[o]->id;
        r->piece[id] = piece->out[o];
        if (r->dim[id] >= 0 || !value_used(op->out[o])) continue;
        sum[id] = i ? build(&b, OP_add, IN(sum[id], piece->out[o]), NO_ATTRS) : piece->out[o];
        if (!sum[id]) return false;
      }
    }
  for (int k = r->cut.n - 1; k >= 0; k--) {
    Op *op = r->cut.at[k]->op;
    for (int o = 0; o < op->n_out; o++)
      if (sum[op->out[o]->id]) value_replace(op->out[o], sum[op->out[o]->id]);
    op_erase(op);
  }
  return true;
}

bool cut_in_pieces(const PieceStart *start, int n, const PieceSizes *pieces, bool *done, Diag *d) {
  Region r = {.g = start->op->graph, .arena = arena_new(), .d = d, .pieces = pieces};
  graph_renumber(r.g);
  r.n_values = r.g->n_values;
  r.dim = arena_array(r.arena, int, r.n_values);
  r.piece = arena_array(r.arena, Value *, r.n_values);
  for (uint32_t i = 0; i < r.n_values; i++)
    r.dim[i] = -1;
  *done = pieces->n > 1 && find_region(&r, start, n) && ends_last(&r);
  bool ok = !*done || replace_region(&r);
  arena_free(r.arena);
  return ok;
}
