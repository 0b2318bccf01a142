// Attention: y = softmax(scale q k' + mask) v for every batch and head, and its adjoint.
//
//     b (h r) t d, b h s d, b h s e, b (h r) t^ s^ -> b (h r) t e, b (h r) t
//
// is the einsum of an instance with r query heads per head of k and v (r is left out if it is 1);
// with `seq_major` the heads come after t and s.  A row of scores is needed whole, so s, d and e
// are not split; t may be split, unless `causal` makes rows depend on their position.
//
// lse, the logarithm of the sum of the exponentials of a row's scores, is the only value that the
// adjoint needs to recompute the probabilities (Dao et al., FlashAttention-2, section 3):
//
//     p = exp(scale q k' + mask - lse)      D = sum over e of dy y
//     dv = p' dy      ds = p (dy v' - D)      dq = scale ds k      dk = scale ds' q
//
// A row with only -inf scores, or without visible positions under `causal`, has y 0, lse -inf and
// no gradient.
//
// With `blocks`, t and s are c blocks each, and a block of q sees one of k and v.  Blocks are
// independent, so c is a letter that can be split, and one rank has one block:
//
//     b (h r) (c t) d, b h (c s) d, b h (c s) e -> b (h r) (c t) e, b (h r) (c t)

#include <math.h>

#include "ir/analysis/batch_dim.h"
#include "ir/ops/reference.h"
#include "ir/split.h"

// The sizes of an instance, and the order of its dimensions.
typedef struct Shape {
  int64_t b, h, r, c, t, s, d, e; // h heads of k and v, each for r heads of q; c blocks of t and s
  bool seq_major, causal, blocks, back;
  bool grouped;                        // r is more than 1 as a whole: a rank may have one
  int mask;                            // the index of the operand, or -1
  bool mask_b, mask_h, mask_t, mask_s; // the dimensions along which the mask is not 1
  bool mask_c;                         // dimension 2 of the mask is that of the blocks
} Shape;

// Divides t and s by the number of blocks that the op has here: the length of a block is the same
// on every rank.
static bool divide_blocks(Shape *a, const Op *op, int seq, Diag *d) {
  int64_t blocks = attr_i(op, "blocks");
  if (!a->blocks) return true;
  int64_t t = value_whole(op->in[0].value)->dim[seq], s = value_whole(op->in[1].value)->dim[seq];
  bool fits = t % blocks == 0 && s % blocks == 0 && t > 0 && s > 0;
  a->c = fits ? a->t * blocks / t : 0;
  if (!fits || a->c == 0 || a->t % a->c || a->s != a->c * (s / blocks))
    return diag_error(d, op->loc, "%s: %lld queries and %lld keys are not %lld equal blocks",
                      op_info[op->kind].name, (long long)t, (long long)s, (long long)blocks);
  a->t /= a->c;
  a->s /= a->c;
  return true;
}

static bool attention_shape(Shape *a, const Op *op, bool back, Diag *d) {
  const char *name = op_info[op->kind].name;
  int n = back ? 6 : 3;
  const Type *q = op->in[0].value->type, *k = op->in[1].value->type, *v = op->in[2].value->type;
  if (op->n_in > n + 1)
    return diag_error(d, op->loc, "%s: %d operands, takes %d or %d", name, op->n_in, n, n + 1);
  if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4)
    return diag_error(d, op->loc, "%s: q, k and v must have 4 dimensions", name);
  // The order of heads and positions decides the dimensions.
  bool major = attr_i(op, "seq_major");
  int head = major ? 2 : 1, seq = major ? 1 : 2;
  *a = (Shape){.b = q->dim[0],
               .h = k->dim[head],
               .c = 1,
               .t = q->dim[seq],
               .s = k->dim[seq],
               .d = q->dim[3],
               .e = v->dim[3],
               .seq_major = major,
               .blocks = attr_i(op, "blocks") > 0,
               .causal = attr_i(op, "causal"),
               .back = back,
               .mask = op->n_in > n ? n : -1};
  // Grouped queries: r heads of q share a head of k and v.
  if (a->h < 1 || q->dim[head] % a->h)
    return diag_error(d, op->loc, "%s: %lld heads of q are no multiple of %lld heads of k", name,
                      (long long)q->dim[head], (long long)a->h);
  a->r = q->dim[head] / a->h;
  a->grouped = value_whole(op->in[0].value)->dim[head] > value_whole(op->in[1].value)->dim[head];
  if (!divide_blocks(a, op, seq, d)) return false;
  if (a->mask < 0) return true;
  // In a shard with one row, a mask of length 1 may be that row or be shared by all rows: the
  // global types tell.
  const Type *mask = value_whole(op->in[n].value);
  q = value_whole(op->in[0].value);
  const int64_t want[4] = {q->dim[0], q->dim[head], q->dim[seq], a->s},
                blocks = attr_i(op, "blocks");
  a->mask_c = a->blocks && mask->ndim == 4 && mask->dim[2] == blocks && mask->dim[2] != want[2];
  bool *has[4] = {&a->mask_b, &a->mask_h, &a->mask_t, &a->mask_s};
  // A mask of blocks has as many of them here as q.
  if (a->mask_c && op->in[n].value->type->dim[2] != a->c)
    return diag_error(d, op->loc, "%s: %lld blocks of q, and %lld of the mask", name,
                      (long long)a->c, (long long)op->in[n].value->type->dim[2]);
  for (int i = 0; i < 4; i++) {
    if (i == 2 && a->mask_c) continue;
    if (mask->ndim != 4 || (mask->dim[i] != 1 && mask->dim[i] != want[i]))
      return diag_error(d, op->loc, "%s: the mask must be broadcastable to [%lld,%lld,%lld,%lld]",
                        name, (long long)want[0], (long long)want[1], (long long)want[2],
                        (long long)want[3]);
    *has[i] = mask->dim[i] == want[i];
  }
  return true;
}

// "b h t d" or "b t h d".
static const char *term(char *buf, size_t n, const Shape *a, const char *head, const char *seq,
                        const char *width) {
  snprintf(buf, n, "b %s %s %s", a->seq_major ? seq : head, a->seq_major ? head : seq, width);
  return buf;
}

static bool rule(const Op *op, Dims *dims, bool back, Diag *d) {
  Shape a;
  if (!attention_shape(&a, op, back, d)) return false;
  const char *head = a.grouped ? "(h r)" : "h", *t = a.causal ? "t^" : "t", *s = "s^";
  if (a.blocks) t = "(c t^)", s = "(c s^)";
  char q[32], k[32], v[32], y[32], lse[32], mask[64] = "", einsum[512];
  term(q, sizeof q, &a, head, t, "d^");
  term(k, sizeof k, &a, "h", s, "d^");
  term(v, sizeof v, &a, "h", s, "e^");
  term(y, sizeof y, &a, head, t, "e^");
  snprintf(lse, sizeof lse, "b %s %s", head, t);
  // Dimensions of length 1 in the mask are broadcast.
  if (a.mask >= 0)
    snprintf(mask, sizeof mask, ", %s %s %s %s", a.mask_b ? "b" : "1", a.mask_h ? head : "1",
             a.mask_c   ? "c"
             : a.mask_t ? t
                        : "1",
             a.mask_s ? "s^" : "1");
  // The adjoint also reads y, lse and dy, and gives dq, dk and dv.
  if (back)
    snprintf(einsum, sizeof einsum, "%s, %s, %s, %s, %s, %s%s -> %s, %s, %s", q, k, v, y, lse, y,
             mask, q, k, v);
  else
    snprintf(einsum, sizeof einsum, "%s, %s, %s%s -> %s, %s", q, k, v, mask, y, lse);
  if (!dims_parse(dims, op, einsum, d)) return false;
  // Products alone do not determine the length of a block, so operands were not compared by it.
  if (!a.blocks) return true;
  dims_size(dims, 'c', a.c);
  dims_size(dims, 't', a.t);
  dims_size(dims, 's', a.s);
  for (int i = 0; i < op->n_in; i++)
    for (int dim = 0; dim < op->in[i].value->type->ndim; dim++) {
      int64_t want = dims_length(dims, &dims->in[i], dim), is = op->in[i].value->type->dim[dim];
      if (is == want) continue;
      diag_error(d, op->loc, "%s: dimension %d of operand %d must be %lld, and is %lld",
                 op_info[op->kind].name, dim, i, (long long)want, (long long)is);
      return false;
    }
  return true;
}

bool attention_rule(const Op *op, Dims *dims, Diag *d) {
  return rule(op, dims, false, d);
}
bool attention_back_rule(const Op *op, Dims *dims, Diag *d) {
  return rule(op, dims, true, d);
}

int64_t attention_blocks(const Op *op) {
  int64_t blocks = op_has_attr(op, "blocks") ? attr_i(op, "blocks") : 0;
  if (!blocks) return 0;
  const Value *q = op->in[0].value;
  int seq = attr_i(op, "seq_major") ? 1 : 2;
  return q->type->dim[seq] * blocks / value_whole(q)->dim[seq];
}

int64_t attention_keys(const Op *op, int64_t to) {
  int seq = attr_i(op, "seq_major") ? 1 : 2;
  return to + value_whole(op->in[1].value)->dim[seq] - value_whole(op->in[0].value)->dim[seq];
}

// `x` as b (h r) t d, with the heads of k and v repeated if `repeat`.
static Value *heads_first(Builder *b, const Shape *a, Value *x, bool repeat) {
  if (a->seq_major) x = build_transpose(b, x, (int64_t[]){0, 2, 1, 3});
  if (!repeat || a->r == 1 || !x) return x;
  const int64_t *dim = x->type->dim;
  // Each head of k and v once for each of its r heads of q.
  x = build_reshape(b, x, 5, (int64_t[]){a->b, a->h, 1, dim[2], dim[3]});
  x = build_broadcast(b, x, 5, (int64_t[]){a->b, a->h, a->r, dim[2], dim[3]});
  return build_reshape(b, x, 4, (int64_t[]){a->b, a->h * a->r, dim[2], dim[3]});
}

static Value *product(Builder *b, Value *x, Value *y) {
  return build_op(b, OP_matmul, IN(x, y), ATTRS(a_b("trans_b", true)));
}

// What the adjoint of the mask reads, heads first.
typedef struct Operands {
  Value *q, *k, *v, *y, *dy; // b (h r) t d and the like
  Value *lse, *mask;         // b (h r) t; broadcastable to the scores
} Operands;

// Rows from … from + n - 1 of dimension `dim`, t.
static Value *rows(Builder *b, Value *x, int dim, int64_t from, int64_t n) {
  return !x || x->type->dim[dim] == n ? x : build_slice(b, x, dim, from, n);
}

// ds of the scores of `n` queries, summed to the shape of the mask.
static Value *mask_adjoint_of(Builder *b, const Op *op, const Shape *a, const Operands *x,
                              int64_t from, int64_t n) {
  int64_t n_heads = a->h * a->r, scores[4] = {a->b, n_heads, n, a->s};
  Value *q = rows(b, x->q, 2, from, n), *y = rows(b, x->y, 2, from, n);
  Value *dy = rows(b, x->dy, 2, from, n), *lse = rows(b, x->lse, 2, from, n);
  Value *mask = a->mask_t ? rows(b, x->mask, 2, from, n) : x->mask;
  // The scores, with the mask.
  Value *s = build_scale(b, product(b, q, x->k), attr_f(op, "scale"));
  s = build_op(b, OP_add, IN(s, build_broadcast(b, mask, 4, scores)), NO_ATTRS);
  // Rows without visible positions: exp(-inf - low) is 0, while exp(-inf + inf) is not a number.
  double low = x->mask->type->dtype == DT_f16 ? -65504 : -1e38;
  lse = build_op(b, OP_clip, IN(lse), ATTRS(a_f("low", low), a_f("high", INFINITY)));
  lse = build_broadcast(b, build_reshape(b, lse, 4, (int64_t[]){a->b, n_heads, n, 1}), 4, scores);
  // The probabilities; hidden positions have none.
  Value *p = build_op(b, OP_exp, IN(build_op(b, OP_sub, IN(s, lse), NO_ATTRS)), NO_ATTRS);
  if (a->causal) p = build_op(b, OP_trilu, IN(p), ATTRS(a_i("k", a->s - a->t + from)));
  // D, and ds = p (dy v' - D).
  Value *sum =
      build_reduce_sum(b, build_op(b, OP_mul, IN(dy, y), NO_ATTRS), (int64_t[]){3}, 1, true);
  Value *dp = product(b, dy, x->v);
  Value *ds = build_op(b, OP_sub, IN(dp, build_broadcast(b, sum, 4, scores)), NO_ATTRS);
  Value *adjoint = build_op(b, OP_mul, IN(p, ds), NO_ATTRS);
  return mask ? build_sum_to(b, adjoint, mask->type) : NULL;
}

// The pieces of t that the adjoint of the mask is made in.  Scores and their adjoints of all rows
// that a sample has, such as the windows of an image, would be alive together, though only their
// sum over these rows is wanted, which is smaller by their number.  A piece has PIECE_BYTES of a
// sample's scores at least, so that its launches are cheap against its traffic.
enum { PIECE_BYTES = 16 << 20, MOST_PIECES = 8 };

static int64_t mask_pieces(const Builder *b, const Shape *a, const Value *mask) {
  int64_t samples = graph_batch_size(b->g);
  // The pieces are joined along t; without a sum over rows they are no smaller than the scores.
  if (a->mask_b || !a->mask_t || a->b < 2 * samples) return 1;
  double scores = (double)a->b / (double)samples * (double)(a->h * a->r) * (double)a->t *
                  (double)a->s * dtype_bytes[mask->type->dtype];
  int64_t pieces = (int64_t)fmin(MOST_PIECES, scores / PIECE_BYTES);
  while (pieces > 1 && a->t % pieces)
    pieces--;
  return pieces > 1 ? pieces : 1;
}

// ds of every score, summed to the shape of the mask.  Only learnt masks (relative positions) need
// it; for others it is dead code.  It is written with ordinary ops because the kernel never holds
// all scores at once.
static Value *mask_adjoint(Builder *b, const Op *op, const Shape *a, Value *dy) {
  Operands x = {.q = heads_first(b, a, op->in[0].value, false),
                .k = heads_first(b, a, op->in[1].value, true),
                .v = heads_first(b, a, op->in[2].value, true),
                .y = heads_first(b, a, op->out[0], false),
                .dy = heads_first(b, a, dy, false),
                .lse = op->out[1],
                .mask = op->in[3].value};
  int64_t n = mask_pieces(b, a, x.mask);
  if (n == 1) return mask_adjoint_of(b, op, a, &x, 0, a->t);
  Value *piece[MOST_PIECES];
  for (int64_t i = 0; i < n; i++)
    if (!(piece[i] = mask_adjoint_of(b, op, a, &x, i * (a->t / n), a->t / n))) return NULL;
  return build_op(b, OP_concat, piece, (int)n, ATTRS(a_i("axis", 2)));
}

bool attention_grad(Builder *b, Op *op, Value **dout, Value **din) {
  if (!only_first_results(b, op, dout, 1)) return false;
  Shape a;
  if (!attention_shape(&a, op, false, b->d)) return false;
  // The adjoint reads all operands, both results and dy.
  Value *in[7] = {op->in[0].value,
                  op->in[1].value,
                  op->in[2].value,
                  op->out[0],
                  op->out[1],
                  dout[0],
                  a.mask >= 0 ? op->in[3].value : NULL};
  Value *dq = build_op(b, OP_attention_back, in, a.mask >= 0 ? 7 : 6,
                       ATTRS(*op_attr(op, "scale"), *op_attr(op, "causal"),
                             *op_attr(op, "seq_major"), *op_attr(op, "blocks")));
  if (!dq) return false;
  for (int i = 0; i < 3; i++)
    din[i] = dq->def->out[i];
  // The kernel gives no adjoint of the mask.  Blocks are made after autodiff.
  if (a.mask >= 0 && a.blocks)
    return diag_error(b->d, op->loc, "attention: the mask of blocks has no gradient");
  if (a.mask >= 0) din[3] = mask_adjoint(b, op, &a, dout[0]);
  return !b->failed;
}

// The offset of vector (b, head, position) in a tensor of `heads` heads of vectors of `width`.
static int64_t vector_at(const Shape *a, int64_t heads, int64_t length, int64_t width, int64_t b,
                         int64_t head, int64_t position) {
  return (a->seq_major ? (b * length + position) * heads + head
                       : (b * heads + head) * length + position) *
         width;
}

// The scores of row i of q, of the c blocks, with the keys of its block; -inf at positions that
// `causal` hides.
static void row_scores(const Shape *a, double scale, const double *q, const double *k,
                       const Tensor *mask, int64_t b, int64_t head, int64_t i, double *score) {
  int64_t block = i / a->t;
  const double *row = q + vector_at(a, a->h * a->r, a->c * a->t, a->d, b, head, i);
  for (int64_t j = 0; j < a->s; j++) {
    const double *column =
        k + vector_at(a, a->h, a->c * a->s, a->d, b, head / a->r, block * a->s + j);
    double sum = 0;
    for (int64_t l = 0; l < a->d; l++)
      sum += row[l] * column[l];
    score[j] = sum * scale;
    // The mask is indexed along its own dimensions only.
    if (mask) {
      const int64_t *dim = mask->type->dim;
      int64_t at = a->mask_b ? b : 0;
      at = at * dim[1] + (a->mask_h ? head : 0);
      at = at * dim[2] + (a->mask_c ? block : a->mask_t ? i : 0);
      at = at * dim[3] + (a->mask_s ? j : 0);
      score[j] += tensor_f(mask, at);
    }
    // Positions are aligned at the end, if s and t differ.
    if (a->causal && j > i % a->t + a->s - a->t) score[j] = -INFINITY;
  }
}

bool attention_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Shape a;
  if (!attention_shape(&a, op, false, d)) return false;
  int64_t heads = a.h * a.r;
  const Tensor *mask = a.mask >= 0 ? &in[a.mask] : NULL;
  Arena *arena = arena_new();
  double *q = tensor_doubles(arena, &in[0]), *k = tensor_doubles(arena, &in[1]);
  double *v = tensor_doubles(arena, &in[2]), *score = arena_array(arena, double, a.s);
  for (int64_t b = 0; b < a.b; b++) {
    for (int64_t head = 0; head < heads; head++) {
      for (int64_t i = 0; i < a.c * a.t; i++) {
        int64_t first = i / a.t * a.s; // of the keys of its block
        row_scores(&a, attr_f(op, "scale"), q, k, mask, b, head, i, score);
        // The maximum is subtracted before the exponentials, so that none overflows.  NaN counts as
        // a maximum.
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < a.s; j++)
          max = score[j] > max || isnan(score[j]) ? score[j] : max;
        bool blind = max == -INFINITY;
        for (int64_t j = 0; j < a.s && !blind; j++)
          sum += exp(score[j] - max);
        double lse = blind ? -INFINITY : log(sum) + max;
        tensor_set_f(&out[1], (b * heads + head) * a.c * a.t + i, lse);
        // y is the sum of the rows of v, weighted by the probabilities.
        for (int64_t l = 0; l < a.e; l++) {
          double y = 0;
          for (int64_t j = 0; j < a.s && !blind; j++)
            y += exp(score[j] - lse) *
                 v[vector_at(&a, a.h, a.c * a.s, a.e, b, head / a.r, first + j) + l];
          tensor_set_f(&out[0], vector_at(&a, heads, a.c * a.t, a.e, b, head, i) + l, y);
        }
      }
    }
  }
  arena_free(arena);
  return true;
}

bool attention_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  Shape a;
  if (!attention_shape(&a, op, true, d)) return false;
  int64_t heads = a.h * a.r;
  double scale = attr_f(op, "scale");
  const Tensor *mask = a.mask >= 0 ? &in[a.mask] : NULL;
  Arena *arena = arena_new();
  double *q = tensor_doubles(arena, &in[0]), *k = tensor_doubles(arena, &in[1]);
  double *v = tensor_doubles(arena, &in[2]), *y = tensor_doubles(arena, &in[3]);
  double *dy = tensor_doubles(arena, &in[5]), *score = arena_array(arena, double, a.s);
  double *dq = arena_array(arena, double, type_count(in[0].type));
  double *dk = arena_array(arena, double, type_count(in[1].type));
  double *dv = arena_array(arena, double, type_count(in[2].type));
  for (int64_t b = 0; b < a.b; b++) {
    for (int64_t head = 0; head < heads; head++) {
      for (int64_t i = 0; i < a.c * a.t; i++) {
        int64_t first = i / a.t * a.s; // of the keys of its block
        // Rows without visible positions have no gradient.
        double lse = tensor_f(&in[4], (b * heads + head) * a.c * a.t + i), sum = 0;
        if (lse == -INFINITY) continue;
        row_scores(&a, scale, q, k, mask, b, head, i, score);
        int64_t at_q = vector_at(&a, heads, a.c * a.t, a.d, b, head, i);
        int64_t at_y = vector_at(&a, heads, a.c * a.t, a.e, b, head, i);
        // D, the sum of dy y over the row.
        for (int64_t l = 0; l < a.e; l++)
          sum += dy[at_y + l] * y[at_y + l];
        for (int64_t j = 0; j < a.s; j++) {
          int64_t at_k = vector_at(&a, a.h, a.c * a.s, a.d, b, head / a.r, first + j);
          int64_t at_v = vector_at(&a, a.h, a.c * a.s, a.e, b, head / a.r, first + j);
          // p and ds of one score, and their terms of dv, dq and dk.
          double p = exp(score[j] - lse), dp = 0;
          for (int64_t l = 0; l < a.e; l++) {
            dp += dy[at_y + l] * v[at_v + l];
            dv[at_v + l] += p * dy[at_y + l];
          }
          double ds = p * (dp - sum) * scale;
          for (int64_t l = 0; l < a.d; l++) {
            dq[at_q + l] += ds * k[at_k + l];
            dk[at_k + l] += ds * q[at_q + l];
          }
        }
      }
    }
  }
  tensor_set_doubles(&out[0], dq);
  tensor_set_doubles(&out[1], dk);
  tensor_set_doubles(&out[2], dv);
  arena_free(arena);
  return true;
}
