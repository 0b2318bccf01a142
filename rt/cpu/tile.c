// Products of small tiles: see tile.h.  The number of registers determines the number of rows per
// block, so there is a version per kind of processor rather than clones of one.

#include "tile.h"

#include "kernel.h"

#define NAME base
#define TARGET
#define WIDTH 4
#define BLOCK 6
#include "tile_of.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define NAME   v3
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define WIDTH  8
#define BLOCK  6
#include "tile_of.h"

#define NAME   v4
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define WIDTH  16
#define BLOCK  12
#include "tile_of.h"

void tile_product(const TileProduct *p) {
  if (__builtin_cpu_supports("x86-64-v4"))
    product_v4(p);
  else if (__builtin_cpu_supports("x86-64-v3"))
    product_v3(p);
  else
    product_base(p);
}
#else
void tile_product(const TileProduct *p) {
  product_base(p);
}
#endif
