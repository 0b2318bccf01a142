// The header of NumPy's files, versions 1 to 3: magic, length, a Python dictionary; the elements
// follow.  For the compiler and the runtime.
//
//     \x93NUMPY 1 0 <u16 n> {'descr': '<f4', 'fortran_order': False, 'shape': (1797, 64), }   …

#ifndef NNRT_NPY_HEADER_H
#define NNRT_NPY_HEADER_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NNRT_NPY_MAX_NDIM = 8 };

typedef struct NnrtNpyHeader {
  char descr[32]; // byte order and type: "<f4"
  bool fortran;   // Fortran order, in more than one dimension
  int ndim;
  int64_t dim[NNRT_NPY_MAX_NDIM];
  int64_t bytes;  // of magic, length and dictionary
  char wrong[64]; // the error, in words that follow the name of the file
} NnrtNpyHeader;

typedef struct NnrtNpyCursor {
  const char *at, *end;
} NnrtNpyCursor;

static inline void nnrt_npy_skip_space(NnrtNpyCursor *c) {
  while (c->at < c->end && isspace((unsigned char)*c->at))
    c->at++;
}

static inline bool nnrt_npy_take(NnrtNpyCursor *c, char want) {
  nnrt_npy_skip_space(c);
  if (c->at == c->end || *c->at != want) return false;
  c->at++;
  return true;
}

static inline bool nnrt_npy_take_word(NnrtNpyCursor *c, const char *word) {
  nnrt_npy_skip_space(c);
  size_t n = strlen(word);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) return false;
  c->at += n;
  return true;
}

// string = "'" {any but "'" and "\"} "'", or with double quotes
static inline bool nnrt_npy_take_string(NnrtNpyCursor *c, char *out, size_t n) {
  nnrt_npy_skip_space(c);
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
  char quote = *c->at++;
  size_t i = 0;
  for (; c->at < c->end && *c->at != quote; c->at++) {
    // numpy writes no escapes in these keys and types.
    if (*c->at == '\\' || i + 1 >= n) return false;
    out[i++] = *c->at;
  }
  out[i] = 0;
  return nnrt_npy_take(c, quote);
}

static inline bool nnrt_npy_take_int(NnrtNpyCursor *c, int64_t *out) {
  nnrt_npy_skip_space(c);
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
static inline bool nnrt_npy_take_shape(NnrtNpyCursor *c, NnrtNpyHeader *h) {
  h->ndim = 0;
  if (!nnrt_npy_take(c, '(')) return false;
  while (!nnrt_npy_take(c, ')')) {
    if (h->ndim == NNRT_NPY_MAX_NDIM || !nnrt_npy_take_int(c, &h->dim[h->ndim++])) return false;
    // The last comma may be missing.
    if (!nnrt_npy_take(c, ',')) return nnrt_npy_take(c, ')');
  }
  return true;
}

static inline bool nnrt_npy_wrong(NnrtNpyHeader *h, const char *wrong) {
  snprintf(h->wrong, sizeof h->wrong, "%s", wrong);
  return false;
}

// dictionary = "{" {string ":" value [","]} "}"
static inline bool nnrt_npy_dictionary(NnrtNpyHeader *h, NnrtNpyCursor *c) {
  char key[32];
  bool has_order = false, has_shape = false;
  if (!nnrt_npy_take(c, '{')) return nnrt_npy_wrong(h, "has a damaged header");
  // Keys come in any order, each once; an unknown one is an error.
  while (!nnrt_npy_take(c, '}')) {
    bool ok = nnrt_npy_take_string(c, key, sizeof key) && nnrt_npy_take(c, ':');
    if (ok && strcmp(key, "descr") == 0) {
      nnrt_npy_skip_space(c);
      if (c->at < c->end && *c->at == '[')
        return nnrt_npy_wrong(h, "holds records, which are not read");
      ok = !h->descr[0] && nnrt_npy_take_string(c, h->descr, sizeof h->descr);
    } else if (ok && strcmp(key, "fortran_order") == 0) {
      h->fortran = nnrt_npy_take_word(c, "True");
      ok = !has_order && (h->fortran || nnrt_npy_take_word(c, "False"));
      has_order = true;
    } else if (ok && strcmp(key, "shape") == 0) {
      ok = !has_shape && nnrt_npy_take_shape(c, h);
      has_shape = true;
    } else {
      ok = false;
    }
    if (!ok) return nnrt_npy_wrong(h, "has a damaged header");
    nnrt_npy_take(c, ',');
  }
  if (!h->descr[0] || !has_order || !has_shape) return nnrt_npy_wrong(h, "has a damaged header");
  // With at most one long dimension, the two orders are the same.
  int long_dims = 0;
  for (int i = 0; i < h->ndim; i++)
    long_dims += h->dim[i] != 1;
  h->fortran &= long_dims > 1;
  return true;
}

// Reads the header of a file with `n` bytes at `p`.  On failure, `wrong` has the reason.
static inline bool nnrt_npy_header(NnrtNpyHeader *h, const uint8_t *p, int64_t n) {
  *h = (NnrtNpyHeader){.bytes = 10};
  if (n < 10 || memcmp(p, "\x93NUMPY", 6) != 0) return nnrt_npy_wrong(h, "is not a .npy file");
  if (p[6] < 1 || p[6] > 3) {
    snprintf(h->wrong, sizeof h->wrong, "is a .npy file of version %d", p[6]);
    return false;
  }
  // Version 1 has a length of 16 bits, others of 32.
  int64_t length = p[8] | p[9] << 8;
  if (p[6] > 1) {
    h->bytes = 12;
    if (n < h->bytes) return nnrt_npy_wrong(h, "is truncated");
    length |= (int64_t)p[10] << 16 | (int64_t)p[11] << 24;
  }
  if (length > n - h->bytes) return nnrt_npy_wrong(h, "is truncated in its header");
  NnrtNpyCursor c = {(const char *)p + h->bytes, (const char *)p + h->bytes + length};
  h->bytes += length;
  return nnrt_npy_dictionary(h, &c);
}

#endif
