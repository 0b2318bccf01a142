// See class_weights.h.

#include "class_weights.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

// The bytes of the file, followed by a NUL; NULL if it cannot be read.
static char *read_bytes(Arena *a, const char *path, size_t *out_size) {
  FILE *f = fopen(path, "rb");
  StrBuf b = {.arena = a};
  char block[4096];
  size_t n;
  if (!f) return NULL;
  strbuf_add(&b, "");
  while ((n = fread(block, 1, sizeof block, f)) > 0)
    strbuf_add_n(&b, block, n);
  bool ok = !ferror(f);
  fclose(f);
  *out_size = b.n;
  return ok ? b.at : NULL;
}

// NumPy's header: the offset of the elements, their size and their number.  False if they have
// another type or shape.
static bool find_elements(char *bytes, size_t size, size_t *out_at, int *out_width,
                          int64_t *out_n) {
  const uint8_t *u = (const uint8_t *)bytes;
  if (size < 12) return false;
  bool short_length = u[6] == 1;
  size_t length = (size_t)u[8] | (size_t)u[9] << 8, from = short_length ? 10 : 12;
  if (!short_length) length |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
  if (length > size - from || length == 0) return false;
  char *header = bytes + from, *end = header + length - 1, kept = *end;
  *end = 0;
  const char *type = strstr(header, "'descr': '<f"), *shape = strstr(header, "'shape': (");
  int width = type ? atoi(type + strlen("'descr': '<f")) : 0;
  char *after = NULL;
  long long n = shape ? strtoll(shape + strlen("'shape': ("), &after, 10) : 0;
  bool one_dimension = after && (!strncmp(after, ",)", 2) || !strncmp(after, ", )", 3));
  *end = kept;
  *out_at = from + length;
  *out_width = width;
  *out_n = n;
  return (width == 4 || width == 8) && one_dimension && n >= 0 &&
         (uint64_t)n <= (size - from - length) / (size_t)width;
}

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
  size_t at;
  int width;
  if (!find_elements(bytes, size, &at, &width, out_found))
    return fail(r, "this is not one dimension of little-endian f32 or f64");
  for (int64_t i = 0; i < n && i < *out_found; i++) {
    double wide;
    if (width == 4) memcpy(&out[i], bytes + at + 4 * (size_t)i, 4);
    if (width == 8) memcpy(&wide, bytes + at + 8 * (size_t)i, 8), out[i] = (float)wide;
  }
  return true;
}

static bool take_words(const Reader *r, char *text, float *out, int64_t n, int64_t *out_found) {
  char *at = text + strspn(text, " \t\r\n"), *end = at;
  for (; *at; at = end + strspn(end, " \t\r\n"), ++*out_found) {
    double x = strtod(at, &end);
    if (end == at) return fail(r, "'%.*s' is no number", (int)strcspn(at, " \t\r\n"), at);
    if (*out_found < n) out[*out_found] = (float)x;
  }
  return true;
}

static bool read_numbers(const Reader *r, float *out, int64_t n) {
  size_t size = 0;
  char *bytes = read_bytes(r->a, r->spec->weight, &size);
  int64_t found = 0;
  if (!bytes) return fail(r, "%s", strerror(errno));
  bool is_npy = size >= 6 && !memcmp(bytes, "\x93NUMPY", 6);
  if (!(is_npy ? take_elements(r, bytes, size, out, n, &found)
               : take_words(r, bytes, out, n, &found)))
    return false;
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
