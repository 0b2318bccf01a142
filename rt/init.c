// Initial contents of weights and states: from the payload, one value, or random.  Random numbers
// depend on seed, name and global element, so every rank draws its own shard of the same tensor.
// 16-bit copies of weights are rounded from them, for every origin of the weights.

#include <math.h>
#include <stdlib.h>

#include "device.h"
#include "nnrt_random.h"

// Elements drawn, and bytes copied, between two writes to the device.
enum { BLOCK = 1 << 17, PIECE = 1 << 22 };

// The number of element `i` of a padded tensor without its padding; -1: it is padding.
static int64_t unpadded(const NnrtTensor *t, int64_t i) {
  int64_t number = 0, stride = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    int64_t at = i % t->dim[d];
    if (at >= t->known_dim[d]) return -1;
    number += at * stride;
    stride *= t->known_dim[d];
    i /= t->dim[d];
  }
  return number;
}

static double drawn(const NnrtTensor *t, int64_t seed, int64_t key, int64_t i) {
  if (t->init == NNRT_from_fill) return t->a;
  if (t->init == NNRT_from_normal) return t->a + t->b * nnrt_random_normal(seed, 0, key, i);
  return t->a + (t->b - t->a) * nnrt_random_uniform(seed, 0, key, i);
}

static void init_drawn(NnrtRank *r, const NnrtTensor *t, const Part *part, int64_t seed,
                       char *block) {
  bool padded = nnrt_tensor_padded(t);
  int64_t key = nnrt_random_key(t->name), size = nnrt_dtype_size(t->dtype);
  Runs runs = nnrt_part_runs(t->ndim, t->dim, part->start, part->size);
  char *to = nnrt_tensor_at(r, t);
  for (int64_t i = 0; i < runs.n; i++)
    // A run is contiguous in the whole tensor, so elements have consecutive numbers.
    for (int64_t at = 0; at < runs.length; at += BLOCK) {
      int64_t first = nnrt_run_start(&runs, i) + at, left = runs.length - at;
      int64_t n = left < BLOCK ? left : BLOCK;
#pragma omp parallel for if (n > 4096)
      for (int64_t j = 0; j < n; j++) {
        int64_t number = padded ? unpadded(t, first + j) : first + j;
        nnrt_element_set(block, t->dtype, j, number < 0 ? 0 : drawn(t, seed, key, number));
      }
      nnrt_device_put(r, to, block, n * size);
      to += n * size;
    }
}

static void init_fill(NnrtRank *r, const NnrtTensor *t, int64_t n, char *block) {
  int64_t size = nnrt_dtype_size(t->dtype);
  for (int64_t j = 0; j < n && j < BLOCK; j++)
    nnrt_element_set(block, t->dtype, j, t->a);
  // One block serves the whole shard.
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t m = n - at < BLOCK ? n - at : BLOCK;
    nnrt_device_put(r, nnrt_tensor_at(r, t) + at * size, block, m * size);
  }
}

// Copies this rank's part, piece by piece, each after its checksums: from a cache.
static bool init_from_payload(NnrtRank *r, const NnrtTensor *t, const Part *part, Why *w) {
  int64_t size = nnrt_dtype_size(t->dtype);
  char *to = nnrt_tensor_at(r, t);
  Runs runs = nnrt_part_runs(t->ndim, t->dim, part->start, part->size);
  // The executable of one rank holds only its own part.
  if (t->payload_part) runs = (Runs){.length = nnrt_part_count(t, part), .n = 1};
  for (int64_t i = 0; i < runs.n; i++) {
    int64_t from = t->payload + nnrt_run_start(&runs, i) * size, end = from + runs.length * size;
    for (int64_t n; from < end; from += n, to += n) {
      n = end - from < PIECE ? end - from : PIECE;
      if (!nnrt_payload_check(r->program, from, n, w)) return false;
      nnrt_device_put(r, to, r->run->payload + from, n);
      nnrt_payload_release(from, n);
    }
  }
  return true;
}

bool nnrt_init_tensor(NnrtRank *r, const NnrtTensor *t, int64_t seed, Why *w) {
  Part part;
  int64_t n = nnrt_part_here(r, t, &part) ? nnrt_part_count(t, &part) : 0;
  if (n == 0) return true;
  if (t->init == NNRT_from_payload) return init_from_payload(r, t, &part, w);
  // The block is no larger than the shard: most tensors are small.
  int64_t most = n < BLOCK ? n : BLOCK;
  char *block = nnrt_must_alloc((size_t)(most * nnrt_dtype_size(t->dtype)));
  switch (t->init) {
  case NNRT_from_payload: break; // above
  case NNRT_from_fill:
    if (nnrt_tensor_padded(t))
      init_drawn(r, t, &part, 0, block);
    else
      init_fill(r, t, n, block);
    break;
  case NNRT_from_normal:
  case NNRT_from_uniform:
    // The compiled seed, unless --seed differs from the compiled default.
    init_drawn(r, t, &part,
               (int64_t)((uint64_t)t->init_seed + (uint64_t)seed - (uint64_t)r->program->seed),
               block);
    break;
  }
  free(block);
  return true;
}

// Whether the tensor is zeros, in a slab that nothing has written since the device was opened.
// Memory for the moments of an optimizer is then mapped by the threads that update them.
static bool zero_in_slab(const NnrtRank *r, const NnrtTensor *t) {
  const char *at = nnrt_tensor_at(r, t);
  bool in_slab = at >= r->slab && at < r->slab + r->code->slab_bytes;
  return in_slab && t->init == NNRT_from_fill && t->a == 0 && !signbit(t->a);
}

bool nnrt_init_tensors(NnrtRank *r, int64_t seed, Why *w) {
  const NnrtGraph *g = &r->program->train;
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (!nnrt_tensor_saved(t) || zero_in_slab(r, t)) continue;
    if (!nnrt_init_tensor(r, t, seed, w)) return false;
  }
  return true;
}

void nnrt_init_copies(NnrtRank *r) {
  const NnrtGraph *g = &r->program->train;
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    Part part;
    if (t->role != NNRT_copy || !nnrt_part_here(r, t, &part)) continue;
    // The weight is on this rank too, with the same shard.
    const NnrtTensor *weight = nnrt_find_tensor(g, NNRT_weight, t->name);
    nnrt_device_narrow(r, nnrt_tensor_at(r, t), t->dtype, nnrt_tensor_at(r, weight),
                       nnrt_part_count(t, &part));
  }
}
