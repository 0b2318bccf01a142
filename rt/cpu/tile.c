// The versions of the products of tiles: see tile.h.

#include "tile.h"

#include "kernel.h"
#include "nnrt_math.h"

// The panels that are packed together from rows of memory: this many pieces of a row are read at
// once.
enum { PANELS = 16 };

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
// Four elements of x and y, by their numbers in both.
#ifdef __clang__
#define FOUR_OF(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
typedef int32_t FourIndex __attribute__((vector_size(16)));
#define FOUR_OF(x, y, ...) __builtin_shuffle(x, y, (FourIndex){__VA_ARGS__})
#endif

static inline float element_at(GemmType type, const void *x, int64_t i) {
  if (type == GEMM_f32) return ((const float *)x)[i];
  uint16_t h = ((const uint16_t *)x)[i];
  return type == GEMM_bf16 ? m_from_bf16(h) : m_from_f16(h);
}

#define KIND_FILE "tile_of.h"
#include "kinds.h"

static const TileKind *const kinds[] = KIND_LIST(&kind);

const TileKind *tile_kind(void) {
  return kinds[kind_here()];
}

bool tile_is_wide(void) {
  return sizeof kinds / sizeof *kinds > 1;
}

void tile_product(const TileProduct *p) {
  tile_kind()->product(p);
}
