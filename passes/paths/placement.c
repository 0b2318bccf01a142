// Parses placements and shapes: see placement.h.  Errors are shown with a caret.

#include "placement.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "base/vec.h"

// The text being parsed, and the target of errors.
typedef struct Reader {
  const char *text, *at, *option;
  Arena *arena; // for messages, and for the list of devices
  Diag *d;
} Reader;

// Reports an error in the `width` characters at `at`.
static bool mistake(const Reader *r, const char *at, int width, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
static bool mistake(const Reader *r, const char *at, int width, const char *fmt, ...) {
  int column = (int)(at - r->text) + 1;
  va_list args;
  va_start(args, fmt);
  diag_error(r->d, loc_line(r->arena, r->option, 1, column), "%s",
             str_vformat(r->arena, fmt, args));
  va_end(args);
  diag_caret(r->d, r->text, column, width > 0 ? width : 1);
  return false;
}

static bool at_end(const Reader *r) {
  return !*r->at;
}

// NUMBER, from `least` to INT_MAX or, for dimensions, to INT64_MAX / 16.
static bool read_number(Reader *r, int64_t least, int64_t most, int64_t *out) {
  const char *start = r->at;
  int64_t value = 0;
  bool fits = true;
  if (!isdigit((unsigned char)*r->at))
    return mistake(r, r->at, 1,
                   at_end(r) ? "a number is missing at the end" : "a number must stand here");
  // Reads all digits of a number that is too large, for the caret.
  for (; isdigit((unsigned char)*r->at); r->at++) {
    fits = fits && value <= (most - (*r->at - '0')) / 10;
    if (fits) value = value * 10 + (*r->at - '0');
  }
  int width = (int)(r->at - start);
  if (!fits) return mistake(r, start, width, "this number is too large");
  if (value < least) return mistake(r, start, width, "this must be at least %d", (int)least);
  *out = value;
  return true;
}

static bool read_int(Reader *r, int least, int *out) {
  int64_t value;
  if (!read_number(r, least, INT_MAX, &value)) return false;
  *out = (int)value;
  return true;
}

static bool expect(Reader *r, const char *word) {
  size_t n = strlen(word);
  if (strncmp(r->at, word, n) != 0) {
    mistake(r, r->at, 1, "'%s' must stand here", word);
    diag_hint(r->d, "a placement is R(copies)V(shares)D(parts of each dimension)@devices, such as "
                    "R(2)V(1)D(1,2)@0-3");
    return false;
  }
  r->at += n;
  return true;
}

// shape = NUMBER { "x" NUMBER }
static bool read_shape(Reader *r, TensorShape *out) {
  int64_t elements = 1;
  out->ndim = 0;
  do {
    if (out->ndim == PLACEMENT_DIMS)
      return mistake(r, r->at, 1, "there are more than %d dimensions", PLACEMENT_DIMS);
    const char *start = r->at;
    int64_t size;
    if (!read_number(r, 1, INT64_MAX / 16, &size)) return false;
    // An element has up to 16 bytes, and sizes in bytes fit in 64 bits.
    if (elements > INT64_MAX / 16 / size)
      return mistake(r, start, (int)(r->at - start), "the tensor becomes too large here");
    elements *= size;
    out->dim[out->ndim++] = size;
  } while (*r->at == 'x' && r->at++);
  if (!at_end(r)) return mistake(r, r->at, 1, "sizes are joined by 'x', as in 1024x1024");
  return true;
}

bool shape_equal(const TensorShape *a, const TensorShape *b) {
  return a->ndim == b->ndim && a->bytes == b->bytes &&
         !memcmp(a->dim, b->dim, sizeof(int64_t) * (size_t)a->ndim);
}

bool shape_read(const char *text, const char *option, TensorShape *out, Diag *d) {
  Reader r = {text, text, option, arena_new(), d};
  bool ok = read_shape(&r, out);
  arena_free(r.arena);
  return ok;
}

// D ( NUMBER { , NUMBER } )
static bool read_parts(Reader *r, const TensorShape *shape, Placement *out) {
  if (!expect(r, "D(")) return false;
  for (int i = 0; i < shape->ndim; i++) {
    // One number for each dimension, each a divisor of its size.
    if (i && *r->at == ')')
      return mistake(r, r->at, 1, "D has %d numbers, and the tensor %d dimensions", i, shape->ndim);
    if (i && !expect(r, ",")) return false;
    const char *start = r->at;
    if (!read_int(r, 1, &out->part[i])) return false;
    if (shape->dim[i] % out->part[i])
      return mistake(r, start, (int)(r->at - start),
                     "dimension %d of size %lld cannot be split into %d equal parts", i,
                     (long long)shape->dim[i], out->part[i]);
  }
  if (*r->at == ',')
    return mistake(r, r->at, 1, "D has more than %d numbers, and the tensor %d dimension%s",
                   shape->ndim, shape->ndim, shape->ndim > 1 ? "s" : "");
  return expect(r, ")");
}

// devices = range { , range }      range = NUMBER [ - NUMBER ]
static bool read_devices(Reader *r, const Cluster *c, Placement *out) {
  Vec(int) list = {0};
  int n = cluster_devices(c);
  bool *taken = arena_array(r->arena, bool, n);
  do {
    const char *start = r->at;
    int first, last;
    if (!read_int(r, 0, &first)) return false;
    last = first;
    if (*r->at == '-') {
      r->at++;
      if (!read_int(r, 0, &last)) return false;
    }
    // The caret is under the whole range.
    int width = (int)(r->at - start);
    if (last < first) return mistake(r, start, width, "this range ends before it begins");
    if (last >= n)
      return mistake(r, start, width, "cluster '%s' has no device %d, its devices are 0-%d",
                     c->name, last, n - 1);
    for (int i = first; i <= last; i++) {
      if (taken[i]) return mistake(r, start, width, "device %d is named twice", i);
      taken[i] = true;
      vec_push(r->arena, &list, i);
    }
  } while (*r->at == ',' && r->at++);
  if (!at_end(r)) return mistake(r, r->at, 1, "devices are numbers and ranges, as in 0-3,8");
  out->n = list.n;
  out->device = list.at;
  return true;
}

bool placement_read(Arena *a, const char *text, const char *option, const TensorShape *shape,
                    const Cluster *c, Placement *out, Diag *d) {
  Reader r = {text, text, option, a, d};
  // R(copies)V(shares)D(parts of each dimension)@devices
  *out = (Placement){0};
  if (!expect(&r, "R(") || !read_int(&r, 1, &out->copies) || !expect(&r, ")") ||
      !expect(&r, "V(") || !read_int(&r, 1, &out->shares) || !expect(&r, ")") ||
      !read_parts(&r, shape, out))
    return false;
  int width = (int)(r.at - text);
  if (!expect(&r, "@") || !read_devices(&r, c, out)) return false;
  // In floating point: the product may overflow an int.
  double product = (double)out->copies * out->shares;
  for (int i = 0; i < shape->ndim; i++)
    product *= out->part[i];
  if (product != out->n) {
    mistake(&r, text, width, "this makes %.0f pieces for %d device%s", product, out->n,
            out->n > 1 ? "s" : "");
    diag_hint(d, "the product of all numbers of R, V and D is the number of devices");
    return false;
  }
  return true;
}

const char *devices_text(Arena *a, const int *device, int n) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "");
  // Runs of consecutive devices.
  for (int i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && device[end] == device[end - 1] + 1;)
      end++;
    if (end - i < 3) end = i + 1; // two are listed, not a range
    strbuf_addf(&b, i ? ",%d" : "%d", device[i]);
    if (end - i > 1) strbuf_addf(&b, "-%d", device[end - 1]);
  }
  return b.at;
}
