// See class_weights.h.

#include "class_weights.h"

#include <errno.h>
#include <math.h>
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

const float *read_class_weights(Arena *a, const char *path, int64_t n, Diag *d) {
  size_t size = 0;
  char *bytes = read_bytes(a, path, &size);
  float *out = arena_array(a, float, n);
  int64_t found = 0;
  if (!bytes) {
    diag_error(d, NULL, "weight=%s: %s", path, strerror(errno));
    return NULL;
  }
  if (size >= 6 && !memcmp(bytes, "\x93NUMPY", 6)) {
    size_t at;
    int width;
    if (!find_elements(bytes, size, &at, &width, &found)) {
      diag_error(d, NULL, "weight=%s: this is not one dimension of little-endian f32 or f64", path);
      return NULL;
    }
    for (int64_t i = 0; i < n && i < found; i++) {
      double wide;
      if (width == 4) memcpy(&out[i], bytes + at + 4 * (size_t)i, 4);
      if (width == 8) memcpy(&wide, bytes + at + 8 * (size_t)i, 8), out[i] = (float)wide;
    }
  } else {
    char *at = bytes + strspn(bytes, " \t\r\n"), *end = at;
    for (; *at; at = end + strspn(end, " \t\r\n"), found++) {
      double x = strtod(at, &end);
      if (end == at) {
        diag_error(d, NULL, "weight=%s: '%.*s' is no number", path, (int)strcspn(at, " \t\r\n"),
                   at);
        return NULL;
      }
      if (found < n) out[found] = (float)x;
    }
  }
  if (found != n) {
    diag_error(d, NULL, "weight=%s: there are %lld numbers for %lld classes", path,
               (long long)found, (long long)n);
    return NULL;
  }
  for (int64_t i = 0; i < n; i++)
    if (!(out[i] >= 0 && out[i] < INFINITY)) {
      diag_error(d, NULL, "weight=%s: the weight of class %lld is %g", path, (long long)i, out[i]);
      return NULL;
    }
  return out;
}
