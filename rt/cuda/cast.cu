// Weights in f32 to the 16 bits that matrix products read, all tensors in one launch (batch.cuh).
// Other casts are made by generated kernels.
//
//     reads 4 bytes and writes 2 for an element

#include "batch.cuh"

template <class T>
static __global__ void cast_batch(const Piece *pieces, const int64_t *sizes,
                                  const Pointers *pointers) {
  Piece piece = pieces[blockIdx.x];
  Pointers p = pointers[piece.tensor];
  T *y = (T *)p.at[0];
  const float *x = (const float *)p.at[1];
  int64_t size = sizes[piece.tensor], from = (int64_t)piece.number * PIECE;
  int64_t to = from + PIECE < size ? from + PIECE : size;
  if (((uintptr_t)y | (uintptr_t)x) % 16 == 0) {
    UNROLL_4
    for (int64_t i = from + (int64_t)threadIdx.x * 8; i + 8 <= to; i += BLOCK * 8) {
      float v[8];
      read_floats(v, x + i);
      Pack<T, 8> q;
      UNROLL
      for (int k = 0; k < 8; k++)
        store(&q.at[k], v[k]);
      write_pack(y + i, q);
    }
    from = from + (to - from) / 8 * 8;
  }
  for (int64_t i = from + threadIdx.x; i < to; i += BLOCK)
    store(y + i, x[i]);
}

template <class T> static int run(NnrtPrep *p, void *const *out, const void *const *in) {
  Batch *b = (Batch *)p;
  if (b->n_pieces == 0) return NNRT_OK;
  int code = batch_point(b, out, in);
  return code ? code
              : launch(cast_batch<T>, (unsigned)b->n_pieces, BLOCK, 0, b->gpu_pieces, b->gpu_sizes,
                       b->gpu_pointers);
}

#define CAST(suffix, T)                                                                            \
  NnrtPrep *nnrt_cast_batch_prep_##suffix(int64_t n, const int64_t *sizes) {                       \
    return batch_init((Batch *)calloc(1, sizeof(Batch)), n, sizes, 1, 1);                          \
  }                                                                                                \
  int nnrt_cast_batch_##suffix(NnrtPrep *p, void *const *out, const void *const *in) {             \
    return run<T>(p, out, in);                                                                     \
  }
CAST(bf16, bf16)
CAST(f16, f16)
