// The versions of the products of tiles: see tile.h.

#include "tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernel.h"
#include "nnrt_math.h"

// The panels that are packed together from rows of memory: this many pieces of a row are read at
// once.
enum { PANELS = 16 };

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

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
