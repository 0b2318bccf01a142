// The kernels of rt_line.c, in rt_line.cu.

#ifndef RT_LINE_H
#define RT_LINE_H

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { N = 5 }; // columns of x

// g += the gradients of w (N) and b of the rows' squared errors, and their sum; `first`: g = that.
int line_rows(float *g, const float *x, const int64_t *labels, const float *w, const float *b,
              const float *zeros, int64_t rows, int64_t batch, bool first);
// big[i] = (rank + 1) (i mod 1000), mine = 100 rank + 10 row + column, one = 2^40
int line_given(float *big, int64_t n, float *mine, int64_t *one, int64_t rank);
// bad = the number of elements that differ from the sum and the gather of all ranks' line_given
int line_taken(int64_t *bad, const float *big, int64_t n, const float *spread, const float *back,
               const int64_t *one, int64_t rank, int64_t ranks);
// Momentum; loss with noise of (seed, step), NaN in step `nan_at`, or if anything is bad.
int line_update(float *w, float *b, float *v, float *part, int64_t n_part, int64_t *count,
                float *loss, float *norm, const float *g, const float *lr, const int64_t *step,
                const int64_t *seed, const int64_t *bad, int64_t nan_at);
// The operand of the reduce-scatter, x[2,dp,tp * part] on each rank: x[i] = (rank + 1) (i mod
// 1000); and bad += the number of wrong elements of a rank's sum[2,1,part].
int line_terms(float *x, int64_t n, int64_t rank);
int line_summed(int64_t *bad, const float *sum, int64_t part, int64_t rank, int64_t dp, int64_t tp);
// Part `at` along `cut` of a tensor [n,2n,3n] of different elements; and bad += the number of wrong
// elements of x.
int line_cube(float *x, int64_t n, int64_t cut, int64_t at);
int line_cubed(int64_t *bad, const float *x, int64_t n, int64_t cut, int64_t at);
int line_allocates(void); // cannot be captured
int line_loss(float *loss, const float *g);

#ifdef __cplusplus
}
#endif

#endif
