// See pieces.h.
//
// find_region walks the graph once and finds the letter by which each op would be split, or an op
// that cannot be, before any change.  Then all ops are built for the first piece, all for the
// second and so on, after the last op of the region, so no op before that may read the region's
// results.

#include "pieces.h"

#include <string.h>

#include "base/vec.h"
#include "ir/op.h"

// An op of the region, and the letter that it is split along.  The letter may stand for all tokens
// of all rows, if a model merges them into one dimension: then each of its `outer` parts is split.
typedef struct Cut {
  Op *op;
  Dims dims;
  int letter;
  int64_t outer;
} Cut;

// The split of a value: the dimension, or -1, and the number of parts that are split each.
typedef struct ValueSplit {
  int dim;
  int64_t outer;
} ValueSplit;

// The concatenation of a value's pieces up to one.
typedef struct Prefix {
  Value *v;
  int n; // number of pieces
} Prefix;

typedef struct Region {
  Graph *g;
  Arena *arena;
  Diag *d;
  const PieceSizes *pieces;
  Vec(Cut *) cut;          // in the order of the graph
  ValueSplit *value_split; // by value id: its split
  Value **piece;           // by value id: the current piece
  Prefix *prefix;          // by value id: of operands of causal attentions
  Op *wall;                // the op that prevents the split, or NULL
  int64_t length;          // of a letter there, if it is no multiple of the sum of sizes, or 0
  char letter;             // that letter
  int64_t rows;            // number of interleaved rows; an element of the row stays with it
  uint32_t n_values;       // length of these arrays
} Region;

// The queries of a causal attention, along which it can be split although their position matters;
// or -1. Piece `i` gets the keys up to its end, so its last query sees the last key, as `causal`
// requires.
static int causal_queries(const Region *r, const Op *op, const Dims *dims) {
  if (op->kind != OP_attention || !attr_i(op, "causal") || r->pieces->dealt) return -1;
  int queries = dims_find(dims, 't'), keys = dims_find(dims, 's');
  return dims->letter[queries].size == dims->letter[keys].size ? queries : -1;
}

// The letter of an operand that corresponds to `letter`: of a causal attention, its keys.
static int letter_in(const Region *r, const Op *op, const Dims *dims, int operand, int letter) {
  bool by_keys = (operand == 1 || operand == 2) && letter == causal_queries(r, op, dims);
  return by_keys && letter >= 0 ? dims_find(dims, 's') : letter;
}

// Only a reshape merges rows and tokens, or separates them.
static bool may_cut(Region *r, const Op *op, const Dims *dims, int letter, int64_t outer) {
  if (letter < 0) return false;
  if ((op->kind != OP_reshape || r->pieces->dealt) && !dims_leads(dims, letter)) return false;
  if (outer > 1 && r->pieces->dealt) return false;
  if (dims->letter[letter].whole && (letter != causal_queries(r, op, dims) || outer > 1))
    return false;
  int64_t size = dims->letter[letter].size;
  if (r->rows && size % r->rows) return false;
  if (size / outer % r->pieces->sum == 0) return true;
  r->length = size / outer;
  r->letter = dims->letter[letter].name;
  return false;
}

static ValueSplit split_in(const Dims *dims, const Term *t, int letter, int64_t outer) {
  for (int k = 0; k < t->ndim; k++) {
    int64_t before = 1;
    for (int f = 0; f < t->dim[k].n; f++) {
      if (t->dim[k].letter[f] == letter) return (ValueSplit){k, before * outer};
      before *= dims->letter[t->dim[k].letter[f]].size;
    }
  }
  return (ValueSplit){-1, 1};
}

// The part of a length that is before piece `i`; all of it for i = n.
static int64_t before(const PieceSizes *pieces, int64_t length, int i) {
  int64_t parts = 0;
  for (int k = 0; k < i; k++)
    parts += pieces->at[k];
  return length / pieces->sum * parts;
}

static int64_t size_of(const PieceSizes *pieces, int64_t length, int i) {
  return length / pieces->sum * pieces->at[i];
}

// The letter by which operand `i`, which is in pieces, splits the op.
static int letter_by(const Region *r, const Op *op, const Dims *dims, int i, int64_t *outer) {
  ValueSplit at = r->value_split[op->in[i].value->id];
  int queries = causal_queries(r, op, dims);
  int own = queries < 0 ? -1 : letter_in(r, op, dims, i, queries);
  *outer = at.outer;
  if (own >= 0 && i < 3 && dims_position(dims, &dims->in[i], own) == at.dim) return queries;
  // Letters of the dimension, outermost first, up to the one that the parts of it do not exhaust.
  const Term *t = &dims->in[i];
  int64_t above = 1;
  for (int f = 0; f < t->dim[at.dim].n; f++) {
    int letter = t->dim[at.dim].letter[f];
    int64_t size = dims->letter[letter].size;
    *outer = at.outer / above;
    if (size > *outer) return at.outer % above == 0 && size % *outer == 0 ? letter : -1;
    above *= size;
  }
  return -1;
}

// The letter by which operands split the op: -1 if none is in pieces, -2 if the op cannot be split
// so.
static int letter_of(Region *r, const Op *op, const Dims *dims, int64_t *outer) {
  int letter = -1;
  for (int i = 0; i < op->n_in; i++) {
    int64_t parts;
    if (r->value_split[op->in[i].value->id].dim < 0) continue;
    int own = letter_by(r, op, dims, i, &parts);
    if (!may_cut(r, op, dims, own, parts)) return -2;
    if (letter >= 0 && (letter != own || parts != *outer)) return -2;
    letter = own;
    *outer = parts;
  }
  return letter;
}

// Adds an op to the region, with the splits of its results; false if it cannot be split.
static bool add_cut(Region *r, Op *op, const Dims *dims, int letter, int64_t outer) {
  // Whole operands need spare dimensions for the reshape of interleaved rows, or of several parts.
  int more = r->pieces->dealt ? 2 : outer > 1;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    bool whole =
        r->value_split[v->id].dim < 0 && split_in(dims, &dims->in[i], letter, outer).dim >= 0;
    if (whole && v->type->ndim + more > MAX_NDIM) return false;
  }
  // Nor may it depend on other ranks or on the global index, unless it has a place.
  int traits = op_info[op->kind].traits;
  bool knows_where = op_draws(op->kind) && !r->pieces->dealt && outer == 1;
  if (op->callee || (traits & COMM) || ((traits & GLOBAL_INDEX) && !knows_where)) return false;
  // Indices into operand 0 are the same in all pieces if that is whole, or if they are within rows
  // that both have, as those of top_k.
  int rows = op->kind == OP_gather ? (int)attr_i(op, "batch") : 0;
  if ((traits & GLOBAL_INDEX_IN) && dims_position(dims, &dims->in[0], letter) >= rows) return false;
  Cut *c = arena_one(r->arena, Cut);
  *c = (Cut){op, *dims, letter, outer};
  vec_push(r->arena, &r->cut, c);
  for (int i = 0; i < op->n_out; i++) {
    ValueSplit at = split_in(dims, &dims->out[i], letter, outer);
    r->value_split[op->out[i]->id] = at;
    for_each_use(u, op->out[i])
      if (!u->user && at.dim >= 0) return false; // results of the graph are whole
  }
  return true;
}

// Finds all ops to split; false if one cannot be.
static bool find_region(Region *r, const PieceStart *start, int n) {
  int started = 0;
  for_each_op(op, r->g) {
    Dims dims;
    if (!op_dims(op, &dims, r->d)) BUG("%s does not fit", op_info[op->kind].name);
    int64_t outer = 1;
    int letter = letter_of(r, op, &dims, &outer), own = -1;
    for (int i = n - 1; i >= 0; i--)
      if (start[i].op == op) own = dims_find(&dims, start[i].letter);
    // Its operands and the program must agree on the letter.
    r->wall = op;
    if (letter == -2 || (letter >= 0 && own >= 0 && (letter != own || outer > 1))) return false;
    if (own >= 0) started++;
    if (own >= 0 && r->pieces->dealt && !r->rows) r->rows = dims.letter[own].size;
    if (letter < 0) letter = own;
    if (letter < 0) continue;
    if (!may_cut(r, op, &dims, letter, outer) || !add_cut(r, op, &dims, letter, outer))
      return false;
  }
  r->wall = NULL;
  return started == n && r->cut.n > 0;
}

// Whether results of the region that are summed over pieces are only read after the whole region.
static bool ends_last(Region *r) {
  const Op *last = r->cut.at[r->cut.n - 1]->op;
  for (int k = 0; k < r->cut.n; k++)
    for (int i = 0; i < r->cut.at[k]->op->n_out; i++) {
      const Value *v = r->cut.at[k]->op->out[i];
      for_each_use(u, v)
        if (r->value_split[v->id].dim < 0 && u->user && u->user->id <= last->id) {
          r->wall = u->user;
          return false;
        }
    }
  return true;
}

// The prefix of an operand up to the end of piece `i`; called with i = 0, 1, 2 and so on.
static Value *prefix_of(Region *r, Builder *b, Value *v, int dim, int i) {
  int64_t length = v->type->dim[dim];
  Prefix *p = &r->prefix[v->id];
  if (p->n == i + 1) return p->v; // built for another attention
  if (r->value_split[v->id].dim < 0)
    p->v = build_slice(b, v, dim, 0, before(r->pieces, length, i + 1));
  else if (i == 0)
    p->v = r->piece[v->id];
  else
    p->v = build_op(b, OP_concat, IN(p->v, r->piece[v->id]), ATTRS(a_i("axis", dim)));
  p->n = i + 1;
  return p->v;
}

// Broadcasts pieces instead of slicing a broadcast.  For a bias, constant along the dimension, the
// gradient then needs no concatenation; for positions, as long as the dimension, only a piece is
// broadcast.  NULL: the operand is no broadcast, or its piece is not contiguous.
static Value *broadcast_of(const Region *r, Builder *b, const Value *v, ValueSplit at, int i) {
  const Op *op = v->def;
  int dim = at.dim;
  if (!op || op->kind != OP_broadcast) return NULL;
  // Its operand may lack the dimension, or have it with size 1.
  Value *x = op->in[0].value;
  int own = dim - (v->type->ndim - x->type->ndim);
  if (own >= 0 && x->type->dim[own] != 1) {
    if (r->pieces->dealt || at.outer > 1) return NULL;
    int64_t length = x->type->dim[own];
    x = build_slice(b, x, own, before(r->pieces, length, i), size_of(r->pieces, length, i));
    if (!x) return NULL;
  }
  Type t = *v->type;
  t.dim[dim] = size_of(r->pieces, t.dim[dim], i);
  return build_broadcast(b, x, t.ndim, t.dim);
}

// Piece `i` of a whole operand.
static Value *slice_of(const Region *r, Builder *b, Value *v, ValueSplit at, int i) {
  // A broadcast is repeated for the piece, if that is possible.
  int64_t length = v->type->dim[at.dim];
  Value *same = broadcast_of(r, b, v, at, i);
  if (same) return same;
  Type t = *v->type, one = *v->type;
  int dim = at.dim;
  // Rows i, i + n, i + 2n and so on.  A dimension with several elements per row, such as all words
  // of all rows, is reshaped first.
  if (r->pieces->dealt) {
    int64_t n = r->pieces->n, in_row = t.dim[dim] / r->rows;
    memmove(&t.dim[dim + 3], &t.dim[dim + 1], (size_t)(t.ndim - dim - 1) * sizeof *t.dim);
    one.dim[dim] /= n;
    t.dim[dim] = r->rows / n;
    t.dim[dim + 1] = n;
    t.dim[dim + 2] = in_row;
    t.ndim += 2;
    Value *rows = build_reshape(b, v, t.ndim, t.dim);
    Value *column = rows ? build_slice(b, rows, dim + 1, i, 1) : NULL;
    return column ? build_reshape(b, column, one.ndim, one.dim) : NULL;
  }
  if (at.outer <= 1)
    return build_slice(b, v, dim, before(r->pieces, length, i), size_of(r->pieces, length, i));
  // A piece of each of several parts of the dimension.
  length /= at.outer;
  memmove(&t.dim[dim + 2], &t.dim[dim + 1], (size_t)(t.ndim - dim - 1) * sizeof *t.dim);
  t.dim[dim] = at.outer;
  t.dim[dim + 1] = length;
  one.dim[dim] = size_of(r->pieces, one.dim[dim], i);
  Value *parts = build_reshape(b, v, t.ndim + 1, t.dim);
  Value *cut = parts ? build_slice(b, parts, dim + 1, before(r->pieces, length, i),
                                   size_of(r->pieces, length, i))
                     : NULL;
  return cut ? build_reshape(b, cut, one.ndim, one.dim) : NULL;
}

static Attr list_of(const Region *r, const char *name, const int64_t *at, int n) {
  Attr a = a_list(name, at, n);
  a.list.at = arena_copy(r->arena, at, (size_t)n * sizeof *at);
  return a;
}

// Operand `k` of piece `i` of the op.
static Value *operand_of(Region *r, Builder *b, const Cut *c, int k, int i) {
  Value *v = c->op->in[k].value;
  bool causal = c->letter == causal_queries(r, c->op, &c->dims);
  int letter = letter_in(r, c->op, &c->dims, k, c->letter);
  ValueSplit at = split_in(&c->dims, &c->dims.in[k], letter, c->outer);
  // The rows of piece `i` of a mask, with the columns of its keys.
  if (causal && k == 3) {
    Value *mask = v;
    int rows = dims_position(&c->dims, &c->dims.in[3], c->letter);
    int columns = dims_position(&c->dims, &c->dims.in[3], dims_find(&c->dims, 's'));
    if (rows >= 0) {
      int64_t n = mask->type->dim[rows];
      mask = build_slice(b, mask, rows, before(r->pieces, n, i), size_of(r->pieces, n, i));
    }
    if (columns < 0 || !mask) return mask;
    return build_slice(b, mask, columns, 0, before(r->pieces, mask->type->dim[columns], i + 1));
  }
  if (causal && k > 0) return prefix_of(r, b, v, at.dim, i);
  if (r->value_split[v->id].dim >= 0) return r->piece[v->id];
  return at.dim >= 0 ? slice_of(r, b, v, at, i) : v;
}

static Op *build_piece(Region *r, Builder *b, const Cut *c, int i) {
  const Op *op = c->op;
  Arena *a = r->g->module->arena;
  b->origin = op_origin(op);
  b->origin.piece = i + 1;
  b->origin.loc = loc_from(a, op->loc, str_format(a, "piece %d", i + 1));
  Value **in = arena_array(r->arena, Value *, op->n_in);
  for (int k = 0; k < op->n_in; k++)
    in[k] = operand_of(r, b, c, k, i);
  // Attributes of the piece: its shape, and for ops that depend on the global index, the shape of
  // the whole and the start of the piece in it.
  const Type *t = op->out[0]->type;
  int dim = r->value_split[op->out[0]->id].dim, n;
  bool global = (op_info[op->kind].traits & GLOBAL_INDEX) != 0;
  bool again = global && attr_n(op, "whole") > 0; // it is a piece already
  int64_t shape[MAX_NDIM], start[MAX_NDIM] = {0};
  memcpy(shape, t->dim, sizeof shape);
  if (again) memcpy(start, attr_list(op, "start"), (size_t)t->ndim * sizeof *start);
  if (dim >= 0) start[dim] += before(r->pieces, t->dim[dim], i);
  if (dim >= 0) shape[dim] = size_of(r->pieces, shape[dim], i);
  op_attr_specs(op->kind, &n);
  Attr *attrs = arena_array(r->arena, Attr, n);
  for (int k = 0; k < n; k++) {
    const char *name = op->attrs[k].name;
    attrs[k] = op->attrs[k];
    if (str_equal(name, "shape")) attrs[k] = list_of(r, "shape", shape, t->ndim);
    if (global && str_equal(name, "start")) attrs[k] = list_of(r, "start", start, t->ndim);
    if (global && !again && str_equal(name, "whole"))
      attrs[k] = list_of(r, "whole", t->dim, t->ndim);
  }
  if (b->failed) return NULL;
  return op_new(r->g, b->at, op->kind, in, op->n_in, attrs, n, b->origin, r->d);
}

// Adds the new ops after `before` and before `end` to those that replace a cut op.
static void note_new(CutOp *c, const Op *before, const Op *end, Arena *a) {
  int n = 0;
  for (const Op *op = before->next; op != end; op = op->next)
    n++;
  Op **now = arena_array(a, Op *, c->n + n);
  if (c->n) memcpy(now, c->now, (size_t)c->n * sizeof *now);
  for (Op *op = before->next; op != end; op = op->next)
    now[c->n++] = op;
  c->now = now;
}

// Builds all pieces after the region, sums their whole results, and replaces the region.
static bool replace_region(Region *r, Arena *a, PiecesMade *out) {
  Op *last = r->cut.at[r->cut.n - 1]->op;
  Builder b = {.g = r->g, .at = last->next, .d = r->d};
  Value **sum = arena_array(r->arena, Value *, r->n_values);
  out->cut = arena_array(a, CutOp, r->cut.n);
  out->n = r->cut.n;
  for (int i = 0; i < r->pieces->n; i++)
    for (int k = 0; k < r->cut.n; k++) {
      const Op *op = r->cut.at[k]->op, *before = b.at ? b.at->prev : r->g->last;
      Op *piece = build_piece(r, &b, r->cut.at[k], i);
      if (!piece) return false;
      for (int o = 0; o < op->n_out; o++) {
        uint32_t id = op->out[o]->id;
        r->piece[id] = piece->out[o];
        if (r->value_split[id].dim >= 0 || !value_used(op->out[o])) continue;
        sum[id] = i ? build_op(&b, OP_add, IN(sum[id], piece->out[o]), NO_ATTRS) : piece->out[o];
        if (!sum[id]) return false;
      }
      out->cut[k].op = op;
      note_new(&out->cut[k], before, b.at, a);
    }
  // Erase backwards, so that each op is dead before it is erased.
  for (int k = r->cut.n - 1; k >= 0; k--) {
    Op *op = r->cut.at[k]->op;
    for (int o = 0; o < op->n_out; o++)
      if (sum[op->out[o]->id]) value_replace(op->out[o], sum[op->out[o]->id]);
    op_erase(op);
  }
  return true;
}

// A region of no ops yet.
static Region region_new(const PieceStart *start, const PieceSizes *pieces, Arena *a, Diag *d) {
  Region r = {.g = start->op->graph, .arena = a, .d = d, .pieces = pieces};
  r.n_values = r.g->n_values;
  r.value_split = arena_array(a, ValueSplit, r.n_values);
  r.piece = arena_array(a, Value *, r.n_values);
  r.prefix = arena_array(a, Prefix, r.n_values);
  for (uint32_t i = 0; i < r.n_values; i++)
    r.value_split[i] = (ValueSplit){-1, 1};
  return r;
}

// Whether pieces of some other number were possible.
static bool divisible_so(const PieceStart *start, int n, const PieceSizes *pieces, Arena *a,
                         Diag *d) {
  PieceSizes any = *pieces;
  any.sum = 1; // every length is a multiple
  Region r = region_new(start, &any, a, d);
  return find_region(&r, start, n) && ends_last(&r);
}

bool cut_in_pieces(const PieceStart *start, int n, const PieceSizes *pieces, Arena *a,
                   PiecesMade *out, Diag *d) {
  Arena *scratch = arena_new();
  graph_renumber(start->op->graph);
  Region r = region_new(start, pieces, scratch, d);
  *out = (PiecesMade){0};
  // Nothing changes unless all ops can be split.
  out->done = pieces->n > 1 && find_region(&r, start, n) && ends_last(&r);
  out->wall = r.wall;
  if (!out->done && r.length && divisible_so(start, n, pieces, scratch, d)) {
    out->length = r.length;
    out->letter = r.letter;
  }
  bool ok = !out->done || replace_region(&r, a, out);
  arena_free(scratch);
  return ok;
}
