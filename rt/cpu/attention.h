// Shared by attention and its gradient: shapes, the rows of a head, and the tile of scores.
//
// Both work on blocks of LANES queries and tiles of some keys.  The scores of a tile are (keys,
// LANES): a vector has those of several queries for one key, so maxima and sums over keys go down
// the columns, vector by vector.  Of the five products only those of the scores and of dP need a
// transposed operand, the block's rows of q and dy, which are packed once for all tiles:
//
//     scores (keys, LANES) = k q'      dP (keys, LANES) = v dy'      rows of k, v; packed q, dy
//     y (LANES, e)  += P' v            dQ (LANES, d) += dS' k        columns of the tile; rows of k, v
//     dV (keys, e)  += P dy            dK (keys, d)  += dS q         rows of the tile, and of q, dy

#ifndef NNRT_ATTENTION_H
#define NNRT_ATTENTION_H

#include "kernel.h"
#include "tile.h"

enum { LANES = TILE_LANES }; // queries of a block

typedef struct Attention {
  NnrtPrep base;
  GemmType type;            // of q, k, v, y, the mask, and their gradients; the log-sum-exp is f32
  int64_t b, h, t, s, d, e; // q (b, h, t, d), k (b, h / group, s, d), v (b, h / group, s, e)
  int64_t group;            // number of neighbouring heads of q that share one of k and v
  float scale;
  bool causal, seq_major, has_mask;
  int64_t mask_stride[4]; // of b, h, t, s; 0 if the mask has length 1
} Attention;

// Powers of a tile, for one kind of processor.  `scale` is a factor of the scores.
typedef struct AttentionKind {
  // Replaces scores by e^(scale score - top) with the largest one so far, and adds them to `sum`.
  // Sets `shrink`, per lane, to the factor for the previous sums.
  void (*softmax)(float *scores, int64_t keys, int64_t lanes, float scale, float *top, float *sum,
                  float *shrink);
  // P and dS of a tile from scores and dP, in place: P = e^(scale score - lse), dS = P (dP - delta)
  // times dp_scale.
  void (*softmax_back)(float *scores, float *dp, int64_t keys, int64_t lanes, float scale,
                       float dp_scale, const float *lse, const float *delta);
} AttentionKind;
const AttentionKind *attention_kind(void);

// One head of a tensor (b, heads, rows, n), or (b, rows, heads, n).
typedef struct Head {
  const char *at;
  int64_t row; // the distance of rows, in elements
} Head;

static inline int64_t row_of(const Attention *p, int64_t heads, int64_t n) {
  return p->seq_major ? heads * n : n;
}

static inline Head head_of(const Attention *p, const void *x, int64_t heads, int64_t b, int64_t h,
                           int64_t rows, int64_t n) {
  int64_t at = p->seq_major ? (b * rows * heads + h) * n : (b * heads + h) * rows * n;
  return (Head){(const char *)x + at * type_bytes(p->type), row_of(p, heads, n)};
}

// Returns the number of keys, from 0, to which query i attends.
static inline int64_t visible(const Attention *p, int64_t i) {
  int64_t n = p->causal ? i + p->s - p->t + 1 : p->s;
  return n < 0 ? 0 : n < p->s ? n : p->s;
}

// n, rounded up to whole vectors of all kinds of processors
static inline int64_t round_unit(int64_t n) {
  return (n + TILE_UNIT - 1) / TILE_UNIT * TILE_UNIT;
}

// Rows of f32, as operands of products.
typedef struct Rows {
  const float *at;
  int64_t row;
} Rows;

static inline Rows rows_from(Rows r, int64_t from) {
  return (Rows){r.at + from * r.row, r.row};
}

// Reads the shapes; NULL, with an error, if they do not fit.
Attention *attention_new(GemmType type, int64_t ndim, const int64_t *q_shape,
                         const int64_t *k_shape, const int64_t *v_shape, const int64_t *mask_shape,
                         double scale, bool causal, bool seq_major);

// The mask of a head, or NULL.
const char *attention_mask(const Attention *p, const void *mask, int64_t b, int64_t h);

// Rows from .. from + count of n elements of x, at `copy` (count, round_unit(n)) with zeros at the
// end if attention_copies, else in memory.  `vectors`: a product reads them as its vectors, else as
// single elements.
Rows attention_rows(const Attention *p, Head x, int64_t from, int64_t count, int64_t n,
                    bool vectors, float *copy);
bool attention_copies(const Attention *p, int64_t row, int64_t n, bool vectors);

// Starts to read rows from .. from + count into the cache.  A head's rows are far apart, and the
// processor's own prefetch does not follow them.
void attention_prefetch(const Attention *p, Head x, int64_t from, int64_t count, int64_t n);

// Writes rows from .. from + count of x = rows times `factor` of each row (NULL: 1), rounded.
void attention_store(const Attention *p, Head x, int64_t from, int64_t count, int64_t n,
                     const float *rows, int64_t row, const float *factor);

// block: panels of rows from .. from + count of x, transposed, d * LANES floats; lanes beyond count
// are 0.
void attention_pack(const Attention *p, float *block, Head x, int64_t from, int64_t count,
                    int64_t n);

// to (keys, LANES) = rows of x (keys, n) times a packed block; the lanes of `count` queries
void attention_product(float *to, Rows x, const float *block, int64_t keys, int64_t n,
                       int64_t count);

// scores (keys, LANES) of queries i .. i + LANES and keys j .. j + keys, from a packed block of
// queries and the rows k of the keys; mask: of this head, or NULL.  -inf for a key that the query
// does not attend to.  `tile` (keys, LANES) is temporary.  Returns the factor that the scores are
// still to be multiplied with.
float attention_scores(const Attention *p, float *scores, const float *block, Rows k,
                       const char *mask, int64_t i, int64_t j, int64_t keys, float *tile);

#endif
