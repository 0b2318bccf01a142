// Attention over a sequence that ranks have blocks of, in the rounds of a ring (Li et al. 2021,
// Sequence Parallelism; Liu et al. 2023, Ring Attention with Blockwise Transformers).
//
// Queries stay where they are.  In round j rank r computes the attention of its queries to the keys
// and values of block r - j, and sends these on to rank r + 1 at the same time.  The results of the
// rounds are merged by their log-sum-exp, which is exact:
//
//     lse' = log(exp(lse) + exp(lse_j))      y' = y exp(lse - lse') + y_j exp(lse_j - lse')
//
// In two blocks, without a mask:
//
//     %y, %lse = attention %q, %k, %v                    : f32[1,4,64,16], f32[1,4,64]
//
//   =>
//
//     %k1 = permute_blocks %k dim=2 sources=[1,0]          : f32[1,4,64,16]
//     %v1 = permute_blocks %v dim=2 sources=[1,0]          : f32[1,4,64,16]
//     %y0, %l0 = attention %q, %k, %v blocks=2           : f32[1,4,64,16], f32[1,4,64]
//     %y1, %l1 = attention %q, %k1, %v1 blocks=2         : f32[1,4,64,16], f32[1,4,64]
//     …                                                  the two merged, with ordinary ops
//
// Ops of a round are a piece (planner/lua/pieces.h): `fuse` joins no ops of two rounds, which would
// keep the results of all rounds for one sum.
//
// Of 16-bit values each term is rounded once, as the kernel stores it; merges and sums are in f32.
// The rounding errors of the rounds are independent, so the result has about the error of a single
// kernel's.
//
// All of these are ops on whole tensors, and a plan splits their blocks over ranks.  An attention
// in blocks then is that of one rank's block, and a permute_blocks is a move from one rank to
// another, which comm inserts.  The backward pass is the same ring.  It reads the merged lse, so
// that each round gives a term of dq, dk and dv; the sums dk and dv travel along with k and v, in
// f32, and are at home after as many rounds as ranks.
//
// Causal attention of blocks in a row leaves the first ranks idle.  So rank r of N takes pieces r
// and 2N - 1 - r of 2N, an early one, a, and a late one, b (Brandon et al. 2023, Striped Attention,
// has the problem; the zigzag order is Megatron-LM's).  What is visible then is the same amount on
// all:
//
//     round 0     a sees a, causal      b sees a      b sees b, causal
//     round j     b sees a of rank r - j, and         r >= j: a sees a of rank r - j
//                                                     r <  j: b sees b of rank r - j + N
//
// The last case differs by rank; `where` with a constant per block selects its operands.  Values
// outside of attention keep their order: a permutation of the halves before and after attention
// exchanges pieces between ranks.  q, k and v are exchanged once, for forward and backward; y is
// again in backward, so that it is not saved twice.

// Ops are built by statements of their own, never by two arguments of a call: compilers evaluate
// these in different orders, and a saved plan counts ops.

#include "ring_attention.h"

#include <math.h>
#include <string.h>

#include "ir/analysis/rewrite.h"
#include "ir/dims.h"
#include "ir/op.h"

typedef struct Ring {
  Builder b;
  const Op *op; // the attention
  int ranks, seq;
  bool causal;
  Arena *a;
  RingOps *out;
  Value *mask;
} Ring;

// The early and the late pieces of a value, one of each on a rank; of a ring that is not causal,
// the value and NULL.
typedef struct Halves {
  Value *a, *b;
} Halves;

char ring_letter(const Op *op) {
  return op->kind == OP_permute_blocks ? PERMUTED_BLOCKS : 'c';
}

static int seq_dim(const Op *op) {
  return attr_i(op, "seq_major") ? 1 : 2;
}

bool ring_possible(const Op *op, int ranks, const char **why) {
  const Type *q = op->in[0].value->type, *k = op->in[1].value->type;
  int seq = seq_dim(op);
  bool causal = attr_i(op, "causal");
  *why = NULL;
  if (ranks < 2)
    *why = "one rank has no neighbour";
  else if (attr_i(op, "blocks") || op->piece)
    *why = "it is in pieces already";
  else if (causal && q->dim[seq] != k->dim[seq])
    *why = "it is causal, and has other numbers of queries and keys";
  else if (causal && q->dim[seq] % (2 * ranks))
    *why = "it is causal, and two pieces per rank do not divide its tokens";
  else if (q->dim[seq] % ranks || k->dim[seq] % ranks)
    *why = "ranks do not divide its queries and keys";
  return !*why;
}

// -- Values in blocks ------------------------------------------------------------------------

static Value *keep(Ring *r, Value *v) {
  if (v && r->out) vec_push(r->a, r->out, v->def);
  return v;
}

static Value *permute(Ring *r, Value *v, int dim, const int64_t *sources) {
  bool moves = false;
  for (int i = 0; i < r->ranks; i++)
    moves |= sources[i] != i;
  if (!moves) return v;
  return keep(r, build_op(&r->b, OP_permute_blocks, IN(v),
                          ATTRS(a_i("dim", dim), a_list("sources", sources, r->ranks))));
}

// The block of the previous rank.
static Value *rotate(Ring *r, Value *v) {
  int64_t *sources = arena_array(r->a, int64_t, r->ranks);
  for (int i = 0; i < r->ranks; i++)
    sources[i] = (i + r->ranks - 1) % r->ranks;
  return v ? permute(r, v, r->seq, sources) : NULL;
}

// The dimension of the tokens: of a log-sum-exp (b h t) the last.
static int token_dim(const Ring *r, const Value *v) {
  return v->type->ndim == 3 ? 2 : r->seq;
}

// `v` with its tokens as `n` dimensions, of these lengths.
static Value *open_tokens(Ring *r, Value *v, int at, int n, const int64_t *length) {
  int64_t dim[MAX_NDIM];
  int ndim = 0;
  if (!v) return NULL;
  for (int i = 0; i < v->type->ndim; i++) {
    if (i != at)
      dim[ndim++] = v->type->dim[i];
    else
      for (int k = 0; k < n; k++)
        dim[ndim++] = length[k];
  }
  return build_reshape(&r->b, v, ndim, dim);
}

// And back: dimensions at..at+n-1 as one.
static Value *close_tokens(Ring *r, Value *v, int at, int n) {
  int64_t dim[MAX_NDIM] = {0};
  int ndim = 0;
  if (!v) return NULL;
  for (int i = 0; i < v->type->ndim; i++)
    if (i > at && i < at + n)
      dim[ndim - 1] *= v->type->dim[i];
    else
      dim[ndim++] = v->type->dim[i];
  return build_reshape(&r->b, v, ndim, dim);
}

// x in the blocks of ranks with `which`, y in the others.  NULL is zero, or `none`.
static Value *select_by(Ring *r, const bool *which, Value *x, Value *y, double none) {
  Value *some = x ? x : y;
  if (!some) return NULL;
  int at = token_dim(r, some);
  Value *blocks =
      open_tokens(r, some, at, 2, (int64_t[]){r->ranks, some->type->dim[at] / r->ranks});
  if (!blocks) return NULL;
  const Type *t = blocks->type;
  // One truth value for each block.
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++)
    dim[i] = i == at ? r->ranks : 1;
  Value *c = build_constant(&r->b, type_new(r->b.g->module, DT_bool, t->ndim, dim), which);
  c = build_broadcast(&r->b, c, t->ndim, t->dim);
  Value *other = build_fill(&r->b, t->dtype, t->ndim, t->dim, none), *in[2] = {x, y};
  for (int i = 0; i < 2; i++)
    in[i] = in[i] == some ? blocks : !in[i] ? other : open_tokens(r, in[i], at, 2, t->dim + at);
  return close_tokens(r, build_where(&r->b, c, in[0], in[1]), at, 2);
}

// By rank, whether it is odd; and in round j, whether its second unit is of early pieces.
static bool *odd_ranks(const Ring *r) {
  bool *odd = arena_array(r->a, bool, r->ranks);
  for (int i = 0; i < r->ranks; i++)
    odd[i] = i % 2;
  return odd;
}

static bool *early_ranks(const Ring *r, int round) {
  bool *early = arena_array(r->a, bool, r->ranks);
  for (int i = 0; i < r->ranks; i++)
    early[i] = i >= round;
  return early;
}

// Rank i has pieces 2i and 2i + 1, and needs i and 2N - 1 - i.  One of each is even, so the even
// pieces are permuted among the ranks, and the odd ones.  The rank that has the even piece that
// rank i needs, and the same of the odd ones:
static int even_from(const Ring *r, int i) {
  return (i % 2 ? 2 * r->ranks - 1 - i : i) / 2;
}

static int odd_from(const Ring *r, int i) {
  return (i % 2 ? i : 2 * r->ranks - 1 - i) / 2;
}

static Halves halve(Ring *r, Value *v) {
  if (!r->causal || !v) return (Halves){v, NULL};
  int n = r->ranks, at = token_dim(r, v);
  int64_t m = v->type->dim[at] / (2 * n), *sources[2];
  Value *pieces = open_tokens(r, v, at, 3, (int64_t[]){n, 2, m}), *parity[2];
  for (int k = 0; k < 2; k++) {
    sources[k] = arena_array(r->a, int64_t, n);
    for (int i = 0; i < n; i++)
      sources[k][i] = k ? odd_from(r, i) : even_from(r, i);
    Value *half = pieces ? build_slice(&r->b, pieces, at + 1, k, 1) : NULL;
    parity[k] = permute(r, close_tokens(r, half, at, 3), at, sources[k]);
  }
  // The early piece of an odd rank is an odd one.
  const bool *odd = odd_ranks(r);
  return (Halves){select_by(r, odd, parity[1], parity[0], 0),
                  select_by(r, odd, parity[0], parity[1], 0)};
}

static Value *unhalve(Ring *r, Halves h) {
  if (!r->causal || !h.a || !h.b) return h.a;
  int n = r->ranks, at = token_dim(r, h.a);
  const bool *odd = odd_ranks(r);
  Value *parity[2] = {select_by(r, odd, h.b, h.a, 0), select_by(r, odd, h.a, h.b, 0)};
  for (int k = 0; k < 2; k++) {
    int64_t *back = arena_array(r->a, int64_t, n), m = h.a->type->dim[at] / n;
    for (int i = 0; i < n; i++)
      back[k ? odd_from(r, i) : even_from(r, i)] = i;
    parity[k] = open_tokens(r, permute(r, parity[k], at, back), at, 3, (int64_t[]){n, 1, m});
  }
  Value *both = build_op(&r->b, OP_concat, IN(parity[0], parity[1]), ATTRS(a_i("axis", at + 1)));
  return close_tokens(r, both, at, 3);
}

// -- Masks -----------------------------------------------------------------------------------

// The pieces of rows and columns that a unit of a round is of, by rank.
typedef struct Unit {
  int64_t *row, *column;
} Unit;

static Unit unit_new(const Ring *r) {
  return (Unit){arena_array(r->a, int64_t, r->ranks), arena_array(r->a, int64_t, r->ranks)};
}

// b sees a of the rank `round` before; of a ring that is not causal, the block of that rank.
static Unit unit_late(const Ring *r, int round) {
  Unit u = unit_new(r);
  for (int i = 0; i < r->ranks; i++) {
    u.row[i] = r->causal ? 2 * r->ranks - 1 - i : i;
    u.column[i] = (i - round + r->ranks) % r->ranks;
  }
  return u;
}

// In round 0, a sees a; later a sees a, or b sees b.
static Unit unit_other(const Ring *r, int round) {
  Unit u = unit_new(r);
  for (int i = 0; i < r->ranks; i++) {
    int from = (i - round + r->ranks) % r->ranks;
    u.row[i] = i >= round ? i : 2 * r->ranks - 1 - i;
    u.column[i] = i >= round ? from : 2 * r->ranks - 1 - from;
  }
  return u;
}

static Unit unit_last(const Ring *r) {
  Unit u = unit_new(r);
  for (int i = 0; i < r->ranks; i++)
    u.row[i] = u.column[i] = 2 * r->ranks - 1 - i;
  return u;
}

// Elements of dimension `axis`, one for each block.
static Value *pick(Ring *r, Value *v, int axis, const int64_t *index) {
  int64_t n = r->ranks;
  Value *at = build_constant(&r->b, type_new(r->b.g->module, DT_i64, 1, &n), index);
  return build_op(&r->b, OP_gather, IN(v, at), ATTRS(a_i("axis", axis)));
}

// The mask of a unit (b|1 h|1 t|blocks|1 s/blocks|1): its pieces of the mask of all scores.
static Value *mask_of(Ring *r, Unit u) {
  if (!r->mask) return NULL;
  const int64_t *dim = r->mask->type->dim;
  int64_t n = r->causal ? 2 * r->ranks : r->ranks, p = r->ranks;
  const Type *q = r->op->in[0].value->type, *k = r->op->in[1].value->type;
  bool rows = dim[2] == q->dim[r->seq] && dim[2] > 1,
       columns = dim[3] == k->dim[r->seq] && dim[3] > 1;
  int64_t t = dim[2] / n, s = dim[3] / n;
  if (!rows && !columns) return r->mask;
  if (!columns) {
    Value *m = build_reshape(&r->b, r->mask, 5, (int64_t[]){dim[0], dim[1], n, t, dim[3]});
    m = pick(r, m, 2, u.row);
    return build_reshape(&r->b, m, 4, (int64_t[]){dim[0], dim[1], p * t, dim[3]});
  }
  if (!rows) {
    Value *m = build_reshape(&r->b, r->mask, 4, (int64_t[]){dim[0], dim[1], n, s});
    return pick(r, m, 2, u.column);
  }
  // Pieces by row and column, in one dimension.
  int64_t *both = arena_array(r->a, int64_t, p);
  for (int i = 0; i < p; i++)
    both[i] = u.row[i] * n + u.column[i];
  Value *m = build_reshape(&r->b, r->mask, 6, (int64_t[]){dim[0], dim[1], n, t, n, s});
  m = build_transpose(&r->b, m, (int64_t[]){2, 4, 0, 1, 3, 5});
  m = build_reshape(&r->b, m, 5, (int64_t[]){n * n, dim[0], dim[1], t, s});
  m = build_transpose(&r->b, pick(r, m, 0, both), (int64_t[]){1, 2, 0, 3, 4});
  return build_reshape(&r->b, m, 4, (int64_t[]){dim[0], dim[1], p * t, s});
}

// -- Rounds ----------------------------------------------------------------------------------

static Halves rotate_halves(Ring *r, Halves h) {
  return (Halves){rotate(r, h.a), rotate(r, h.b)};
}

// Begins round j, with keys k and values v; those of the next are under way while it is computed.
static void begin_round(Ring *r, int j, Halves k, Halves v, Halves *next_k, Halves *next_v) {
  bool last = j + 1 == r->ranks;
  r->b.origin.piece = j + 1;
  *next_k = last ? k : rotate_halves(r, k);
  *next_v = last ? v : rotate_halves(r, v);
}

static Attrs unit_attrs(const Ring *r, bool causal, Attr *at) {
  at[0] = *op_attr(r->op, "scale");
  at[1] = a_b("causal", causal);
  at[2] = *op_attr(r->op, "seq_major");
  at[3] = a_i("blocks", r->ranks);
  return (Attrs){at, 4};
}

// -- Forward ---------------------------------------------------------------------------------

// A result so far: y in the type of the log-sum-exp.
typedef struct Partial {
  Value *y, *lse;
} Partial;

// The attention of blocks of q to blocks of k and v.
static Partial unit(Ring *r, Value *q, Value *k, Value *v, Unit u, bool causal) {
  Attr at[4];
  Value *in[] = {q, k, v, mask_of(r, u)};
  Value *y = keep(r, build_op(&r->b, OP_attention, in, in[3] ? 4 : 3, unit_attrs(r, causal, at)));
  if (!y) return (Partial){0};
  Value *lse = y->def->out[1];
  return (Partial){build_cast(&r->b, y, lse->type->dtype), lse};
}

// A number per row of a log-sum-exp, for each element of y.
static Value *each_element(Ring *r, Value *v, const Value *y) {
  if (!v || !y) return NULL;
  if (r->seq == 1) v = build_transpose(&r->b, v, (int64_t[]){0, 2, 1});
  const int64_t *dim = v->type->dim;
  v = build_reshape(&r->b, v, 4, (int64_t[]){dim[0], dim[1], dim[2], 1});
  return build_broadcast(&r->b, v, 4, y->type->dim);
}

static Value *exp_of(Ring *r, Value *x, Value *less) {
  return build_unary(&r->b, OP_exp, build_binary(&r->b, OP_sub, x, less));
}

// No lower than a number that -inf is far below: exp(-inf - low) is 0, exp(-inf + inf) no number.
static Value *above_minus_infinity(Ring *r, Value *v) {
  return build_op(&r->b, OP_clip, IN(v), ATTRS(a_f("low", -1e38), a_f("high", INFINITY)));
}

static Partial merge(Ring *r, Partial x, Partial y) {
  Builder *b = &r->b;
  if (!x.y || !y.y) return x.y ? x : y;
  // Exponentials are relative to the larger one.
  Value *max = above_minus_infinity(r, build_binary(b, OP_max, x.lse, y.lse));
  Value *exp_x = exp_of(r, x.lse, max), *exp_y = exp_of(r, y.lse, max);
  Value *lse = build_unary(b, OP_log, build_binary(b, OP_add, exp_x, exp_y));
  lse = build_binary(b, OP_add, lse, max);
  Value *least = above_minus_infinity(r, lse);
  Value *of_x = each_element(r, exp_of(r, x.lse, least), x.y);
  Value *of_y = each_element(r, exp_of(r, y.lse, least), y.y);
  Value *share_x = build_binary(b, OP_mul, x.y, of_x),
        *share_y = build_binary(b, OP_mul, y.y, of_y);
  return (Partial){build_binary(b, OP_add, share_x, share_y), lse};
}

// The attention of all rounds, by half.
static void forward(Ring *r, Halves q, Halves k, Halves v, Partial *a, Partial *b) {
  *a = *b = (Partial){0};
  for (int j = 0; j < r->ranks; j++) {
    Halves next_k, next_v;
    begin_round(r, j, k, v, &next_k, &next_v);
    if (!r->causal) {
      *a = merge(r, *a, unit(r, q.a, k.a, v.a, unit_late(r, j), false));
    } else {
      *b = merge(r, *b, unit(r, q.b, k.a, v.a, unit_late(r, j), false));
      if (j == 0) {
        *a = unit(r, q.a, k.a, v.a, unit_other(r, 0), true);
        *b = merge(r, *b, unit(r, q.b, k.b, v.b, unit_last(r), true));
      } else {
        const bool *early = early_ranks(r, j);
        Value *rows = select_by(r, early, q.a, q.b, 0);
        Value *keys = select_by(r, early, k.a, k.b, 0), *values = select_by(r, early, v.a, v.b, 0);
        Partial p = unit(r, rows, keys, values, unit_other(r, j), false);
        // It counts for one of the two.
        *a = merge(r, *a, (Partial){p.y, select_by(r, early, p.lse, NULL, -INFINITY)});
        *b = merge(r, *b, (Partial){p.y, select_by(r, early, NULL, p.lse, -INFINITY)});
      }
    }
    k = next_k;
    v = next_v;
  }
  r->b.origin.piece = 0;
}

// -- Backward --------------------------------------------------------------------------------

// What the gradients of rows read besides q.
typedef struct Rows {
  Value *q, *y, *lse, *dy;
} Rows;

typedef struct Gradients {
  Value *q, *k, *v; // in f32
} Gradients;

static Gradients unit_back(Ring *r, Rows x, Value *k, Value *v, Unit u, bool causal) {
  Attr at[4];
  Value *in[] = {x.q, k, v, x.y, x.lse, x.dy, mask_of(r, u)};
  Value *dq =
      keep(r, build_op(&r->b, OP_attention_back, in, in[6] ? 7 : 6, unit_attrs(r, causal, at)));
  if (!dq || !x.lse) return (Gradients){0};
  DType wide = x.lse->type->dtype;
  return (Gradients){build_cast(&r->b, dq, wide), build_cast(&r->b, dq->def->out[1], wide),
                     build_cast(&r->b, dq->def->out[2], wide)};
}

static Rows select_rows(Ring *r, const bool *early, Rows a, Rows b) {
  return (Rows){select_by(r, early, a.q, b.q, 0), select_by(r, early, a.y, b.y, 0),
                select_by(r, early, a.lse, b.lse, 0), select_by(r, early, a.dy, b.dy, 0)};
}

// Sums of gradients, by half.
typedef struct Sums {
  Halves q, k, v;
} Sums;

static void add_to(Ring *r, Value **sum, Value *v) {
  *sum = build_add(&r->b, *sum, v);
}

// Adds the gradients of a unit: those of late rows, or of early ones, and of the late keys or the
// early ones.
static void add_unit(Ring *r, Sums *sum, Gradients g, bool late_rows, bool late_keys) {
  add_to(r, late_rows ? &sum->q.b : &sum->q.a, g.q);
  add_to(r, late_keys ? &sum->k.b : &sum->k.a, g.k);
  add_to(r, late_keys ? &sum->v.b : &sum->v.a, g.v);
}

// Adds x to the early half in the blocks of ranks with `early`, to the late one in the others.
static void add_to_half(Ring *r, const bool *early, Halves *sum, Value *x) {
  add_to(r, &sum->a, select_by(r, early, x, NULL, 0));
  add_to(r, &sum->b, select_by(r, early, NULL, x, 0));
}

static Sums backward(Ring *r, Rows a, Rows b, Halves k, Halves v) {
  Sums sum = {0};
  for (int j = 0; j < r->ranks; j++) {
    Halves next_k, next_v;
    begin_round(r, j, k, v, &next_k, &next_v);
    // The sums of earlier rounds follow their blocks.
    if (j > 0) {
      sum.k = rotate_halves(r, sum.k);
      sum.v = rotate_halves(r, sum.v);
    }
    add_unit(r, &sum, unit_back(r, r->causal ? b : a, k.a, v.a, unit_late(r, j), false), r->causal,
             false);
    if (r->causal && j == 0) {
      add_unit(r, &sum, unit_back(r, a, k.a, v.a, unit_other(r, 0), true), false, false);
      add_unit(r, &sum, unit_back(r, b, k.b, v.b, unit_last(r), true), true, true);
    } else if (r->causal) {
      const bool *early = early_ranks(r, j);
      Rows rows = select_rows(r, early, a, b);
      Value *keys = select_by(r, early, k.a, k.b, 0), *values = select_by(r, early, v.a, v.b, 0);
      Gradients g = unit_back(r, rows, keys, values, unit_other(r, j), false);
      add_to_half(r, early, &sum.q, g.q);
      add_to_half(r, early, &sum.k, g.k);
      add_to_half(r, early, &sum.v, g.v);
    }
    k = next_k;
    v = next_v;
  }
  r->b.origin.piece = 0;
  // Home from the last rank.
  sum.k = rotate_halves(r, sum.k);
  sum.v = rotate_halves(r, sum.v);
  return sum;
}

static bool replace_back(Ring *r, Op *back, Halves q, Halves k, Halves v, Halves lse) {
  r->b.at = back;
  r->b.origin = op_origin(back);
  Halves y = halve(r, back->in[3].value), dy = halve(r, back->in[5].value);
  Rows a = {q.a, y.a, lse.a, dy.a}, b = {q.b, y.b, lse.b, dy.b};
  Sums sum = backward(r, a, b, k, v);
  Halves grad[] = {sum.q, sum.k, sum.v};
  for (int i = 0; i < 3 && !r->b.failed; i++) {
    // Exchanged in the type of the result.
    DType to = back->out[i]->type->dtype;
    Halves h = {build_cast(&r->b, grad[i].a, to),
                grad[i].b ? build_cast(&r->b, grad[i].b, to) : NULL};
    Value *d = unhalve(r, h);
    if (d) value_replace_uses(back->out[i], d);
  }
  if (r->b.failed) return false;
  op_erase(back);
  return true;
}

bool ring_attention(Op *op, int ranks, Arena *a, RingOps *out, Diag *d) {
  Ring r = {.op = op, .ranks = ranks, .seq = seq_dim(op), .causal = attr_i(op, "causal")};
  r.b = (Builder){.g = op->graph, .at = op, .origin = op_origin(op), .d = d};
  r.a = a;
  r.out = out;
  r.mask = op->n_in > 3 ? op->in[3].value : NULL;
  Halves q = halve(&r, op->in[0].value), k = halve(&r, op->in[1].value);
  Halves v = halve(&r, op->in[2].value);
  Partial early, late;
  forward(&r, q, k, v, &early, &late);
  // y in the type of the result.
  DType to = op->out[0]->type->dtype;
  Halves y = {build_cast(&r.b, early.y, to), late.y ? build_cast(&r.b, late.y, to) : NULL};
  Value *all = unhalve(&r, y);
  if (r.b.failed) return false;
  value_replace_uses(op->out[0], all);
  // Its gradients read the values of the ring.
  Halves lse = {early.lse, late.lse};
  for (Use *u = op->out[1]->uses, *next; u; u = next) {
    next = u->next;
    if (u->user && u->user->kind == OP_attention_back && u->index == 4 &&
        !replace_back(&r, u->user, q, k, v, lse))
      return false;
  }
  // The gradient of a mask reads the log-sum-exp as a whole.
  r.b.at = op;
  r.b.origin = op_origin(op);
  if (op->out[1]->uses) {
    Value *whole = unhalve(&r, lse);
    if (!whole) return false;
    value_replace_uses(op->out[1], whole);
  }
  op_erase(op);
  return true;
}
