// Shared by attention and its gradient: shapes, the position of a head's rows, and the tile of
// scores.
//
// Both work on blocks of LANES queries, transposed: a vector has one number of each of the queries.
// Scores of a tile of keys are then (keys, LANES), computed from the keys in their layout in
// memory, and maxima and sums over keys go down the columns, vector by vector.

#ifndef NNRT_ATTENTION_H
#define NNRT_ATTENTION_H

#include "kernel.h"
#include "tile.h"

enum {
  LANES = TILE_LANES, // queries of a block
  KEYS = 64           // of a tile
};

typedef struct Attention {
  NnrtPrep base;
  int64_t b, h, t, s, d, e; // q (b, h, t, d), k (b, h / group, s, d), v (b, h / group, s, e)
  int64_t group;            // number of neighbouring heads of q that share one of k and v
  float scale;
  bool causal, seq_major, has_mask;
  int64_t mask_stride[4]; // of b, h, t, s; 0 if the mask has length 1
} Attention;

// One head of a tensor (b, heads, rows, n), or (b, rows, heads, n).
typedef struct Head {
  int64_t at, row; // in elements: its start, the distance of rows
} Head;

static inline Head head_of(const Attention *p, int64_t heads, int64_t b, int64_t h, int64_t rows,
                           int64_t n) {
  return p->seq_major ? (Head){(b * rows * heads + h) * n, heads * n}
                      : (Head){(b * heads + h) * rows * n, n};
}

// Returns the number of keys, from 0, to which query i attends.
static inline int64_t visible(const Attention *p, int64_t i) {
  int64_t n = p->causal ? i + p->s - p->t + 1 : p->s;
  return n < 0 ? 0 : n < p->s ? n : p->s;
}

// Reads the shapes; NULL, with an error, if they do not fit.
Attention *attention_new(int64_t ndim, const int64_t *q_shape, const int64_t *k_shape,
                         const int64_t *v_shape, const int64_t *mask_shape, double scale,
                         bool causal, bool seq_major);

// block (n, LANES) = rows from .. from + count of x (rows, n), transposed, times `scale`; lanes
// beyond count are 0.
void attention_transpose(float *block, const float *x, int64_t row, int64_t n, int64_t count,
                         float scale);

// scores (keys, LANES) of queries i .. i + LANES and keys j .. j + keys, from block (d, LANES) of
// the queries times scale; mask: of this head, or NULL.  -inf for a key that the query does not
// attend to.
void attention_scores(const Attention *p, float *scores, const float *block, const float *k,
                      int64_t k_row, const float *mask, int64_t i, int64_t j, int64_t keys);

#endif
