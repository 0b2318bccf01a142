// The sum of the squares of all elements, of one tensor or of many.
//
// Each block adds a piece of at most PIECE elements and writes the sum as a double into scratch;
// then a block per tensor adds its pieces, in order.  So the result does not depend on the GPU, nor
// on the other tensors of the launch.
//
//     reads x, writes and reads a double per 8192 elements

#include "batch.cuh"

// The sum over threads' packs; all threads of the block get it.
static __device__ inline double piece_squares(const float *x, int64_t size, int64_t number) {
  int64_t from = number * PIECE, to = from + PIECE < size ? from + PIECE : size;
  double sum = 0;
  if ((uintptr_t)x % 16 == 0) {
    UNROLL_4
    for (int64_t i = from + (int64_t)threadIdx.x * 4; i + 4 <= to; i += BLOCK * 4) {
      Pack<float, 4> p = read_pack<float, 4>(x + i);
      // Each square is exact in double.
      UNROLL
      for (int k = 0; k < 4; k++)
        sum += (double)p.at[k] * (double)p.at[k];
    }
    from = from + (to - from) / 4 * 4;
  }
  for (int64_t i = from + threadIdx.x; i < to; i += BLOCK)
    sum += (double)x[i] * (double)x[i];
  return block_sum(sum);
}

// y = the sum of part[0 .. n-1]
static __device__ inline void add_pieces(float *y, const double *part, int64_t n) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK)
    sum += part[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *y = (float)sum;
}

static __global__ void square_pieces(double *part, const float *x, int64_t size) {
  double sum = piece_squares(x, size, blockIdx.x);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}
static __global__ void add_square_pieces(float *y, const double *part, int64_t n) {
  add_pieces(y, part, n);
}

int nnrt_sum_squares_f32(float *y, const float *x, int64_t n) {
  if (n == 0) return nnrt_zero(y, sizeof *y);
  int64_t pieces = pieces_of(n);
  double *part = (double *)nnrt_gpu_scratch(pieces * (int64_t)sizeof *part);
  if (!part) return NNRT_MEMORY;
  int code = launch(square_pieces, (unsigned)pieces, BLOCK, 0, part, x, n);
  return code ? code : launch(add_square_pieces, 1, BLOCK, 0, y, part, pieces);
}

// -- Many

static __global__ void square_batch(double *part, const Piece *pieces, const int64_t *sizes,
                                    const Pointers *pointers) {
  Piece p = pieces[blockIdx.x];
  const float *x = (const float *)pointers[p.tensor].at[1];
  double sum = piece_squares(x, sizes[p.tensor], p.number);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

// A block per tensor; its first piece is the number of pieces before it.
static __global__ void add_square_batch(const double *part, const int64_t *sizes,
                                        const Pointers *pointers) {
  int64_t before = 0;
  for (int64_t k = threadIdx.x; k < blockIdx.x; k += BLOCK)
    before += (sizes[k] + PIECE - 1) / PIECE;
  // The pieces of all tensors before this one.
  __shared__ int64_t some[BLOCK];
  some[threadIdx.x] = before;
  __syncthreads();
  before = 0;
  for (int i = 0; i < BLOCK; i++)
    before += some[i];
  add_pieces((float *)pointers[blockIdx.x].at[0], part + before,
             (sizes[blockIdx.x] + PIECE - 1) / PIECE);
}

NnrtPrep *nnrt_sum_squares_batch_prep_f32(int64_t n, const int64_t *sizes) {
  return batch_init((Batch *)calloc(1, sizeof(Batch)), n, sizes, 1, 1);
}

int nnrt_sum_squares_batch_f32(NnrtPrep *p, void *const *out, const void *const *in) {
  Batch *b = (Batch *)p;
  if (b->n == 0) return NNRT_OK;
  double *part = (double *)nnrt_gpu_scratch((b->n_pieces + 1) * (int64_t)sizeof *part);
  if (!part) return NNRT_MEMORY;
  // The table of pointers, if it has changed.
  int code = batch_point(b, out, in);
  if (!code && b->n_pieces > 0)
    code = launch(square_batch, (unsigned)b->n_pieces, BLOCK, 0, part, b->gpu_pieces, b->gpu_sizes,
                  b->gpu_pointers);
  return code ? code
              : launch(add_square_batch, (unsigned)b->n, BLOCK, 0, part, b->gpu_sizes,
                       b->gpu_pointers);
}
