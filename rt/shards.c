// The files of an input: one file, or shards with concatenated samples.
//
//     --input x=a.npy --input x=b.npy      samples of a, then of b
//     --tokens ids='train_*.bin'           in the order of their names
//
// A .bin file holds tokens of 16 bits, as nanoGPT writes them, or begins with the header of llm.c:
// 256 numbers of 32 bits, of which the first three are a magic number, a version and the number of
// tokens.

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

static void add(Source *s, const char *path) {
  Shard *longer = nnrt_must_alloc((size_t)(s->n_shards + 1) * sizeof *longer);
  if (s->n_shards) memcpy(longer, s->shard, (size_t)s->n_shards * sizeof *longer);
  free(s->shard);
  s->shard = longer;
  s->shard[s->n_shards++] = (Shard){.path = path};
}

// An existing file wins over a pattern of the same text.
bool nnrt_shards_find(Source *s, const char *pattern, Why *w) {
  if (!strpbrk(pattern, "*?[") || access(pattern, F_OK) == 0) {
    add(s, pattern);
    return true;
  }
  glob_t found;
  int code = glob(pattern, 0, NULL, &found);
  for (size_t i = 0; code == 0 && i < found.gl_pathc; i++)
    add(s, nnrt_must_format("%s", found.gl_pathv[i]));
  if (code == 0) globfree(&found);
  return code == 0 || why(w, "no file is named like this");
}

static int64_t i32_at(const uint8_t *p) {
  return (int64_t)p[0] | (int64_t)p[1] << 8 | (int64_t)p[2] << 16 | (int64_t)p[3] << 24;
}

static bool read_bin(Npy *a, const char *path, Why *w) {
  static const struct {
    int64_t magic, version;
    NnrtDtype dtype;
  } headers[] = {{20240520, 1, NNRT_u16}, {20240801, 7, NNRT_u32}};
  enum { HEADER = 256 * 4 };
  const uint8_t *p = a->file.at;
  int64_t bytes = a->file.bytes;
  a->ndim = 1;
  a->data = p;
  a->dtype = NNRT_u16;
  // A header of llm.c, recognized by its magic number.
  for (size_t i = 0; bytes >= HEADER && i < sizeof headers / sizeof *headers; i++) {
    if (i32_at(p) != headers[i].magic) continue;
    if (i32_at(p + 4) != headers[i].version)
      return why(w, "'%s' is of version %lld of llm.c's format, not %lld", path,
                 (long long)i32_at(p + 4), (long long)headers[i].version);
    a->dtype = headers[i].dtype;
    a->data = p + HEADER;
    bytes -= HEADER;
    a->dim[0] = i32_at(p + 8);
    if (a->dim[0] * nnrt_dtype_size(a->dtype) <= bytes) return true;
    return why(w, "'%s' is truncated: its header says %lld tokens", path, (long long)a->dim[0]);
  }
  // Otherwise plain tokens of 16 bits.
  a->dim[0] = bytes / 2;
  return bytes % 2 == 0 ||
         why(w, "'%s' has %lld bytes, and no tokens of 16 bits have", path, (long long)bytes);
}

bool nnrt_tokens_open(Npy *a, const char *path, Why *w) {
  size_t n = strlen(path);
  if (n < 4 || strcmp(path + n - 4, ".bin") != 0) return nnrt_npy_open(a, path, w);
  *a = (Npy){0};
  if (!nnrt_in_open(&a->file, path, w)) return false;
  if (read_bin(a, path, w)) return true;
  nnrt_in_close(&a->file);
  return false;
}
