// See class_weights.h.

#include "class_weights.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

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

static bool take_elements(const Reader *r, char *bytes, size_t size, float *out, int64_t n,
                          int64_t *out_found) {
  // NumPy's header: the offset of the elements, their size and their number.
  static const char *const wrong = "this is not one dimension of little-endian f32 or f64";
  const uint8_t *u = (const uint8_t *)bytes;
  if (size < 12) return fail(r, "%s", wrong);
  bool short_length = u[6] == 1;
  size_t length = (size_t)u[8] | (size_t)u[9] << 8, from = short_length ? 10 : 12;
  if (!short_length) length |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
  if (length > size - from || length == 0) return fail(r, "%s", wrong);
  char *header = bytes + from, *end = header + length - 1, kept = *end;
  *end = 0;
  const char *type = strstr(header, "'descr': '<f"), *shape = strstr(header, "'shape': (");
  int width = type ? atoi(type + strlen("'descr': '<f")) : 0;
  char *after = NULL;
  long long number = shape ? strtoll(shape + strlen("'shape': ("), &after, 10) : 0;
  bool one_dimension = after && (!strncmp(after, ",)", 2) || !strncmp(after, ", )", 3));
  *end = kept;
  *out_found = number;
  size_t at = from + length;
  bool is_right = (width == 4 || width == 8) && one_dimension && number >= 0 &&
                  (uint64_t)number <= (size - at) / (size_t)width;
  if (!is_right) return fail(r, "%s", wrong);
  for (int64_t i = 0; i < n && i < *out_found; i++) {
    double wide;
    if (width == 4) memcpy(&out[i], bytes + at + 4 * (size_t)i, 4);
    if (width == 8) memcpy(&wide, bytes + at + 8 * (size_t)i, 8), out[i] = (float)wide;
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
