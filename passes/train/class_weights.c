// Numbers for classes, from a file: see class_weights.h.

#include "class_weights.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "rt/npy_header.h"

typedef struct Reader {
  const LossSpec *spec;
  Arena *a;
  Diag *d;
} Reader;

static bool fail(const Reader *r, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *why = str_vformat(r->a, fmt, args);
  va_end(args);
  return diag_error(r->d, NULL, "loss '%s': weight=%s: %s", r->spec->text, r->spec->weight, why);
}

static bool take_elements(const Reader *r, const char *bytes, size_t size, float *out, int64_t n,
                          int64_t *out_found) {
  NnrtNpyHeader h;
  bool is_npy = nnrt_npy_header(&h, (const uint8_t *)bytes, (int64_t)size);
  int width = !is_npy ? 0 : str_equal(h.descr, "<f4") ? 4 : str_equal(h.descr, "<f8") ? 8 : 0;
  if (!width || h.ndim != 1 || h.dim[0] > ((int64_t)size - h.bytes) / width)
    return fail(r, "this is not one dimension of little-endian f32 or f64");
  *out_found = h.dim[0];
  for (int64_t i = 0; i < n && i < *out_found; i++) {
    double wide;
    const char *at = bytes + h.bytes + width * i;
    if (width == 4) memcpy(&out[i], at, 4);
    if (width == 8) memcpy(&wide, at, 8), out[i] = (float)wide;
  }
  return true;
}

static bool read_numbers(const Reader *r, float *out, int64_t n) {
  int64_t found = 0;
  // The bytes of the file, followed by a NUL.
  FILE *f = fopen(r->spec->weight, "rb");
  StrBuf b = {.arena = r->a};
  char block[4096];
  size_t got;
  if (!f) return fail(r, "%s", strerror(errno));
  strbuf_add(&b, "");
  while ((got = fread(block, 1, sizeof block, f)) > 0)
    strbuf_add_n(&b, block, got);
  bool ok = !ferror(f);
  fclose(f);
  if (!ok) return fail(r, "%s", strerror(errno));
  char *bytes = b.at;
  size_t size = b.n;
  bool is_npy = size >= 6 && !memcmp(bytes, "\x93NUMPY", 6);
  if (is_npy && !take_elements(r, bytes, size, out, n, &found)) return false;
  if (!is_npy) {
    // Numbers between blanks.
    char *at = bytes + strspn(bytes, " \t\r\n"), *end = at;
    for (; *at; at = end + strspn(end, " \t\r\n"), found++) {
      double x = strtod(at, &end);
      if (end == at) return fail(r, "'%.*s' is no number", (int)strcspn(at, " \t\r\n"), at);
      if (found < n) out[found] = (float)x;
    }
  }
  if (found != n)
    return fail(r, "there are %lld numbers for %lld classes", (long long)found, (long long)n);
  for (int64_t i = 0; i < n; i++)
    if (!(out[i] >= 0 && out[i] < INFINITY))
      return fail(r, "the weight of class %lld is %g", (long long)i, out[i]);
  return true;
}

const float *read_class_weights(const LossSpec *spec, int64_t n, Arena *a, Diag *d) {
  Reader r = {spec, a, d};
  float *out = arena_array(a, float, n);
  return read_numbers(&r, out, n) ? out : NULL;
}
