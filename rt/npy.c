// NumPy's files, versions 1 to 3: magic, a header that is a Python dictionary, elements.
//
//     \x93NUMPY 1 0 <u16 n> {'descr': '<f4', 'fortran_order': False, 'shape': (1797, 64), }   …
//
// Unsupported contents are refused: Fortran order, records, objects, other types.

#include <ctype.h>
#include <string.h>

#include "runtime.h"

typedef struct Cursor {
  const char *at, *end;
} Cursor;

static void skip_space(Cursor *c) {
  while (c->at < c->end && isspace((unsigned char)*c->at))
    c->at++;
}

static bool take(Cursor *c, char want) {
  skip_space(c);
  if (c->at == c->end || *c->at != want) return false;
  c->at++;
  return true;
}

static bool take_word(Cursor *c, const char *word) {
  skip_space(c);
  size_t n = strlen(word);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) return false;
  c->at += n;
  return true;
}

// string = "'" {any but "'" and "\"} "'", or with double quotes
static bool take_string(Cursor *c, char *out, size_t n) {
  skip_space(c);
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
  char quote = *c->at++;
  size_t i = 0;
  for (; c->at < c->end && *c->at != quote; c->at++) {
    // numpy writes no escapes in these keys and types.
    if (*c->at == '\\' || i + 1 >= n) return false;
    out[i++] = *c->at;
  }
  out[i] = 0;
  return take(c, quote);
}

static bool take_int(Cursor *c, int64_t *out) {
  skip_space(c);
  *out = 0;
  if (c->at == c->end || !isdigit((unsigned char)*c->at)) return false;
  // A shape that overflows is damage.
  for (; c->at < c->end && isdigit((unsigned char)*c->at); c->at++)
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *c->at - '0', out))
      return false;
  if (c->at < c->end && *c->at == 'L') c->at++; // as Python 2 wrote long integers
  return true;
}

// shape = "(" [int {"," int} [","]] ")"
static bool take_shape(Cursor *c, Npy *a) {
  a->rank = 0;
  if (!take(c, '(')) return false;
  while (!take(c, ')')) {
    if (a->rank == NNRT_MAX_RANK || !take_int(c, &a->dim[a->rank++])) return false;
    // The last comma may be missing.
    if (!take(c, ',')) return take(c, ')');
  }
  return true;
}

static const struct {
  const char *name; // without its byte order
  NnrtDtype dtype;
} type_names[] = {
    {"f4", NNRT_f32}, {"f8", NNRT_f64}, {"f2", NNRT_f16},  {"V2", NNRT_bf16}, {"i1", NNRT_i8},
    {"i2", NNRT_i16}, {"i4", NNRT_i32}, {"i8", NNRT_i64},  {"u1", NNRT_u8},   {"u2", NNRT_u16},
    {"u4", NNRT_u32}, {"u8", NNRT_u64}, {"b1", NNRT_bool},
};

static bool set_type(Npy *a, const char *descr, const char *path, Why *w) {
  char order = descr[0];
  // The byte order, and the type without it.
  bool known = order == '<' || order == '>' || order == '|' || order == '=';
  for (size_t i = 0; known && i < sizeof type_names / sizeof *type_names; i++)
    if (strcmp(descr + 1, type_names[i].name) == 0) {
      a->dtype = type_names[i].dtype;
      a->swapped = order == '>' && nnrt_dtype_size(a->dtype) > 1;
      return true;
    }
  return why(w, "'%s' has elements of type '%s', which is not read", path, descr);
}

// header = "{" {string ":" value [","]} "}"
static bool read_header(Npy *a, Cursor *c, const char *path, Why *w) {
  char key[32], descr[32] = "";
  bool fortran = false, has_order = false, has_shape = false;
  if (!take(c, '{')) return why(w, "'%s' has a damaged header", path);
  // Keys come in any order, each once; an unknown one is an error.
  while (!take(c, '}')) {
    bool ok = take_string(c, key, sizeof key) && take(c, ':');
    if (ok && strcmp(key, "descr") == 0) {
      skip_space(c);
      if (c->at < c->end && *c->at == '[')
        return why(w, "'%s' holds records, which are not read", path);
      ok = !descr[0] && take_string(c, descr, sizeof descr);
    } else if (ok && strcmp(key, "fortran_order") == 0) {
      fortran = take_word(c, "True");
      ok = !has_order && (fortran || take_word(c, "False"));
      has_order = true;
    } else if (ok && strcmp(key, "shape") == 0) {
      ok = !has_shape && take_shape(c, a);
      has_shape = true;
    } else {
      ok = false;
    }
    if (!ok) return why(w, "'%s' has a damaged header", path);
    take(c, ',');
  }
  if (!descr[0] || !has_order || !has_shape) return why(w, "'%s' has a damaged header", path);
  if (!set_type(a, descr, path, w)) return false;
  int long_dims = 0; // with at most one, the two orders are the same
  for (int i = 0; i < a->rank; i++)
    long_dims += a->dim[i] != 1;
  if (fortran && long_dims > 1)
    return why(w, "'%s' is in Fortran order\nhint: save it with numpy.ascontiguousarray", path);
  return true;
}

static bool read_npy(Npy *a, const char *path, Why *w) {
  const uint8_t *p = a->file.at;
  int64_t bytes = a->file.bytes, start, length;
  if (bytes < 10 || memcmp(p, "\x93NUMPY", 6) != 0) return why(w, "'%s' is not a .npy file", path);
  if (p[6] < 1 || p[6] > 3) return why(w, "'%s' is a .npy file of version %d", path, p[6]);
  if (p[6] == 1) {
    start = 10;
    length = p[8] | p[9] << 8;
  } else {
    start = 12;
    if (bytes < start) return why(w, "'%s' is truncated", path);
    length = (int64_t)p[8] | (int64_t)p[9] << 8 | (int64_t)p[10] << 16 | (int64_t)p[11] << 24;
  }
  if (length > bytes - start) return why(w, "'%s' is truncated in its header", path);
  Cursor c = {(const char *)p + start, (const char *)p + start + length};
  if (!read_header(a, &c, path, w)) return false;

  // The header's shape must fit the file.
  int64_t size = nnrt_dtype_size(a->dtype);
  for (int i = 0; i < a->rank; i++)
    if (__builtin_mul_overflow(size, a->dim[i], &size))
      return why(w, "'%s' has a damaged header: its shape is too large", path);
  a->data = p + start + length;
  if (size > bytes - start - length)
    return why(w, "'%s' is truncated: its shape needs %lld bytes, there are %lld", path,
               (long long)size, (long long)(bytes - start - length));
  return true;
}

bool nnrt_npy_open(Npy *a, const char *path, Why *w) {
  *a = (Npy){0};
  if (!nnrt_in_open(&a->file, path, w)) return false;
  if (read_npy(a, path, w)) return true;
  nnrt_in_close(&a->file);
  return false;
}
