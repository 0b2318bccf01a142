// Many tensors in one launch: multi-tensor optimizers and sums of squares over a whole model.
//
// The tensors are divided into pieces of at most PIECE elements, a block each.  A table in GPU
// memory gives the tensor and the offset of each piece, another the pointers of the tensors:
//
//     piece 0 1 2 3 4 …         tensor 0 0 0 1 2 …
//                               piece of it 0 1 2 0 0 …
//     pointers of tensor 0      its results, its operands, and the 16-bit copy of the first result
//
// The tables are written in the first run, which is never captured, and again only if a pointer
// changes.  The pointers of a single tensor are arguments of the launch.

#ifndef NNRT_CUDA_BATCH_CUH
#define NNRT_CUDA_BATCH_CUH

#include <stdlib.h>
#include <string.h>

#include "rows.cuh"

enum { PIECE = 8192, MAX_POINTERS = 16 };

// A tensor's results, then its operands, then the 16-bit copy of the first result, or NULL.
struct Pointers {
  void *at[MAX_POINTERS];
};

struct Piece {
  int32_t tensor, number; // number of the piece within the tensor
};

struct Batch {
  NnrtPrep prep;
  int64_t n, n_pieces;
  int n_out, n_in;
  bool narrows; // a pointer to the 16-bit copy of the first result, or NULL, follows the results
  int64_t *sizes;
  Pointers *pointers;
  bool moved; // some pointer differs from its copy on the GPU
  // In GPU memory, NULL until the first run
  Pointers *gpu_pointers;
  int64_t *gpu_sizes;
  Piece *gpu_pieces;
};

static void batch_free(NnrtPrep *p) {
  Batch *b = (Batch *)p;
  cudaFree(b->gpu_pointers); // one block: frees all three
  free(b->sizes);
  free(b->pointers);
  free(b);
}

static inline int64_t pieces_of(int64_t size) {
  return ceil_div(size, PIECE);
}

// Initialises `b`, zeroed memory from malloc of at least a Batch.
static NnrtPrep *batch_init(Batch *b, int64_t n, const int64_t *sizes, int n_out, int n_in) {
  if (!b) {
    nnrt_error(NNRT_MEMORY, "memory for %lld tensors", (long long)n);
    return NULL;
  }
  b->prep.free = batch_free;
  b->n = n;
  b->n_out = n_out;
  b->n_in = n_in;
  // One more, since calloc of 0 may return NULL.
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
  // The caller may now free or change `from`.
  return code ? code : nnrt_cuda(cudaStreamSynchronize(stream), "copying a table of tensors");
}

static int batch_put_pieces(Batch *b) {
  int64_t pointers = b->n * (int64_t)sizeof(Pointers), sizes = b->n * (int64_t)sizeof(int64_t);
  int64_t pieces = b->n_pieces * (int64_t)sizeof(Piece);
  char *memory = NULL;
  int code = nnrt_cuda(cudaMalloc((void **)&memory, (size_t)(pointers + sizes + pieces)),
                       "memory for a table of tensors");
  if (code) return code;
  // One allocation holds all three tables.
  b->gpu_pointers = (Pointers *)memory;
  b->gpu_sizes = (int64_t *)(memory + pointers);
  b->gpu_pieces = (Piece *)(memory + pointers + sizes);
  // Pieces in the order of tensors.
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

// Sets the pointers of tensor `k`: its results, and the 16-bit copy after them; its operands.
static void batch_tensor(Batch *b, int64_t k, void *const *out, const void *const *in) {
  void **at = b->pointers[k].at;
  int n_out = b->n_out, n_in = b->n_in;
  for (int i = 0; i < n_out + n_in + b->narrows; i++) {
    // In the table the 16-bit copy is last.
    const void *is = i < n_out ? out[i] : i < n_out + n_in ? in[i - n_out] : out[n_out];
    if (at[i] == is) continue;
    at[i] = (void *)(uintptr_t)is;
    b->moved = true;
  }
}

// Updates the table of pointers; does nothing if no pointer has changed.  `out` NULL: they were set
// tensor by tensor.
static int batch_point(Batch *b, void *const *out, const void *const *in) {
  for (int64_t k = 0; out && k < b->n; k++)
    batch_tensor(b, k, out + k * (b->n_out + b->narrows), in + k * b->n_in);
  if (b->gpu_pointers && !b->moved) return NNRT_OK;
  // A captured graph would go on with the old table.
  if (nnrt_gpu()->recording)
    return nnrt_error(NNRT_MEMORY, "tensors have moved while the step is recorded");
  int code = b->gpu_pointers ? NNRT_OK : batch_put_pieces(b);
  if (code) return code;
  b->moved = false;
  return batch_put(b->gpu_pointers, b->pointers, b->n * (int64_t)sizeof(Pointers));
}

#endif
