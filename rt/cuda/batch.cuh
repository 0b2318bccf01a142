// Many tensors in one launch: what the optimizers and sums of squares do for a whole model.
//
// The tensors are cut into pieces of at most PIECE elements, a block each.  A table in the gpu's
// memory says which tensor a piece is of and where it begins, another holds the tensors' pointers:
//
//     piece 0 1 2 3 4 …         tensor 0 0 0 1 2 …
//                               piece of it 0 1 2 0 0 …
//     pointers of tensor 0      its results, its operands, and a place for the first in 16 bits
//
// The tables are made when it first runs, which is never recorded; the pointers are the same every
// time, or the tables are made again.  Where a tensor runs alone its pointers come with the launch.

#ifndef NNRT_CUDA_BATCH_CUH
#define NNRT_CUDA_BATCH_CUH

#include <stdlib.h>
#include <string.h>

#include "rows.cuh"

enum { PIECE = 8192, MAX_POINTERS = 16 };

// A tensor's results, then its operands, then where the first result goes in 16 bits, or NULL.
struct Pointers {
  void *at[MAX_POINTERS];
};

struct Piece {
  int32_t tensor, number; // of those of the tensor, from 0
};

struct Batch {
  NnrtPrep prep;
  int64_t n, n_pieces;
  int n_out, n_in;
  bool narrows; // behind its results comes where the first of them goes in 16 bits, or NULL
  int64_t *sizes;
  Pointers *pointers; // as last put into the gpu's memory
  // In the gpu's memory, NULL until it first runs
  Pointers *gpu_pointers;
  int64_t *gpu_sizes;
  Piece *gpu_pieces;
};

static void batch_free(NnrtPrep *p) {
  Batch *b = (Batch *)p;
  cudaFree(b->gpu_pointers); // frees all three
  free(b->sizes);
  free(b->pointers);
  free(b);
}

static inline int64_t pieces_of(int64_t size) {
  return ceil_div(size, PIECE);
}

// `b` is zeroed memory of at least a Batch, from malloc, which it begins.
static NnrtPrep *batch_init(Batch *b, int64_t n, const int64_t *sizes, int n_out, int n_in) {
  if (!b) {
    nnrt_error(NNRT_MEMORY, "memory for %lld tensors", (long long)n);
    return NULL;
  }
  b->prep.free = batch_free;
  b->n = n;
  b->n_out = n_out;
  b->n_in = n_in;
  b->sizes = (int64_t *)calloc((size_t)n + 1, sizeof *b->sizes);
  b->pointers = (Pointers *)calloc((size_t)n + 1, sizeof *b->pointers);
  if (!b->sizes || !b->pointers) {
    nnrt_error(NNRT_MEMORY, "memory for %lld tensors", (long long)n);
    batch_free(&b->prep);
    return NULL;
  }
  for (int64_t k = 0; k < n; k++) {
    b->sizes[k] = sizes[k];
    b->n_pieces += pieces_of(sizes[k]);
  }
  return &b->prep;
}

static int batch_put(void *to, const void *from, int64_t bytes) {
  cudaStream_t stream = nnrt_gpu()->stream;
  int code = nnrt_cuda(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyHostToDevice, stream),
                       "copying a table of tensors");
  // What is at `from` may go away or change now.
  return code ? code : nnrt_cuda(cudaStreamSynchronize(stream), "copying a table of tensors");
}

static int batch_put_pieces(Batch *b) {
  int64_t pointers = b->n * (int64_t)sizeof(Pointers), sizes = b->n * (int64_t)sizeof(int64_t);
  int64_t pieces = b->n_pieces * (int64_t)sizeof(Piece);
  char *memory = NULL;
  int code = nnrt_cuda(cudaMalloc((void **)&memory, (size_t)(pointers + sizes + pieces)),
                       "memory for a table of tensors");
  if (code) return code;
  b->gpu_pointers = (Pointers *)memory;
  b->gpu_sizes = (int64_t *)(memory + pointers);
  b->gpu_pieces = (Piece *)(memory + pointers + sizes);
  Piece *all = (Piece *)malloc((size_t)pieces + 1);
  if (!all) return nnrt_error(NNRT_MEMORY, "memory for a table of tensors");
  int64_t at = 0;
  for (int64_t k = 0; k < b->n; k++)
    for (int64_t i = 0; i < pieces_of(b->sizes[k]); i++)
      all[at++] = Piece{(int32_t)k, (int32_t)i};
  code = batch_put(b->gpu_pieces, all, pieces);
  if (!code) code = batch_put(b->gpu_sizes, b->sizes, sizes);
  free(all);
  return code;
}

// Makes the tables say what is asked for; nothing to do but the first time.
static int batch_point(Batch *b, void *const *out, const void *const *in) {
  bool same = b->gpu_pointers != NULL;
  int n_out = b->n_out, n_in = b->n_in, stride = n_out + b->narrows;
  for (int64_t k = 0; k < b->n; k++) {
    void **at = b->pointers[k].at;
    for (int i = 0; i < n_out + n_in + b->narrows; i++) {
      const void *is = i < n_out          ? out[k * stride + i]
                       : i < n_out + n_in ? in[k * n_in + i - n_out]
                                          : out[k * stride + n_out];
      if (at[i] == is) continue;
      at[i] = (void *)(uintptr_t)is;
      same = false;
    }
  }
  if (same) return NNRT_OK;
  if (nnrt_gpu()->recording)
    return nnrt_error(NNRT_MEMORY, "tensors have moved while the step is recorded");
  int code = b->gpu_pointers ? NNRT_OK : batch_put_pieces(b);
  if (code) return code;
  return batch_put(b->gpu_pointers, b->pointers, b->n * (int64_t)sizeof(Pointers));
}

#endif
