// Sums of products of matrices: see tap_product.h.  The number of registers determines the number
// of rows, so there is a version per kind of processor rather than clones of one.

#include "tap_product.h"

#define NAME base
#define TARGET
#define WIDTH 4
#define BLOCK 6
#include "tap_product_of.h"

typedef struct Version {
  int64_t lanes, rows;
  void (*product)(const TapProduct *p);
} Version;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define NAME   v3
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define WIDTH  8
#define BLOCK  6
#include "tap_product_of.h"

#define NAME   v4
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define WIDTH  16
#define BLOCK  12
#include "tap_product_of.h"

static Version version(void) {
  if (__builtin_cpu_supports("x86-64-v4")) return (Version){32, 12, product_v4};
  if (__builtin_cpu_supports("x86-64-v3")) return (Version){16, 6, product_v3};
  return (Version){8, 6, product_base};
}
#else
static Version version(void) {
  return (Version){8, 6, product_base};
}
#endif

int64_t tap_lanes(void) {
  return version().lanes;
}

int64_t tap_rows(void) {
  return version().rows;
}

void tap_product(const TapProduct *p) {
  version().product(p);
}
