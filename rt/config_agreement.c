// Terms: settings and contents of files that must be equal on all ranks of a job, each a name and
// this rank's value.
//
//     rank 0:  --lr 0.1, --shuffle 1              error: --shuffle is 1 at rank 0, but not given
//     rank 3:  --lr 0.1, --shuffle not given             at rank 3
//
// Threads share the settings that main has read.  Processes may have been started with different
// ones: they would then train different models, or wait for each other in collectives that not all
// ranks call.  All ranks get a checksum of the terms of each; if these differ, the terms
// themselves, and all come to the same conclusion.

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"

static void add_text(Terms *t, const char *text) {
  size_t n = strlen(text) + 1;
  t->at = realloc(t->at, (size_t)t->bytes + n + 1);
  if (!t->at) nnrt_must_alloc((size_t)-1);
  memcpy(t->at + t->bytes, text, n);
  t->bytes += (int64_t)n;
  t->at[t->bytes] = 0; // an empty name, which is not counted
}

static void add(Terms *t, const char *name, const char *file, const char *fmt, va_list args) {
  char *value;
  if (vasprintf(&value, fmt, args) < 0) nnrt_must_alloc((size_t)-1);
  add_text(t, name);
  add_text(t, value);
  add_text(t, file);
  free(value);
}

void nnrt_terms_add(Terms *t, const char *name, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  add(t, name, "", fmt, args);
  va_end(args);
}

void nnrt_terms_add_file(Terms *t, const char *name, const char *path, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  add(t, name, path, fmt, args);
  va_end(args);
}

void nnrt_terms_free(Terms *t) {
  free(t->at);
  *t = (Terms){0};
}

static const char *next(const char *text) {
  return text + strlen(text) + 1;
}

int64_t nnrt_terms_fit(const Terms *t, int64_t most) {
  const char *at = t->at;
  while (at < t->at + t->bytes && next(next(next(at))) - t->at <= most)
    at = next(next(next(at)));
  return at - t->at;
}

// "0.1 at rank 0 on host1", or of a file "100 rows in 'x.npy' at rank 0 on host1".
static void describe(char out[768], const char *value, const char *file, TermsOf of, bool hosts) {
  snprintf(out, 768, "%.400s%s%.200s%s at rank %d%s%.63s", value, *file ? " in '" : "", file,
           *file ? "'" : "", of.rank, hosts ? " on " : "", hosts ? of.host : "");
}

bool nnrt_terms_differ(TermsOf first, TermsOf other, Why *w) {
  const char *here = first.at, *there = other.at;
  // On one host its name says nothing.
  bool hosts = *first.host && *other.host && strcmp(first.host, other.host) != 0;
  while (*here && *there) {
    const char *value = next(here), *others = next(there);
    if (strcmp(value, others) != 0) {
      char one[768], another[768];
      describe(one, value, next(value), first, hosts);
      describe(another, others, next(others), other, hosts);
      return !why(w, "%.200s is %s, but %s", here, one, another);
    }
    here = next(next(value));
    there = next(next(others));
  }
  return false;
}

static int gather(NnrtComm *c, void *y, const void *x, int64_t bytes) {
  return nnrt_comm_do(c, (Job){JOB_all_gather, &c->world, y, x, bytes, NNRT_u8, .everyone = true});
}

// What each rank tells of its terms.
typedef struct Digest {
  uint64_t sum;
  int64_t bytes;
  char host[64];
} Digest;

// All ranks get the terms of all, and the first difference.
static int find_difference(NnrtRank *r, const Terms *t, const Digest *of, bool *out_alike, Why *w) {
  int64_t most = 0;
  for (int i = 0; i < r->ranks; i++)
    most = of[i].bytes > most ? of[i].bytes : most;
  most++; // the empty name
  // Texts of different lengths are padded with zeros: empty names.
  char *all = nnrt_must_alloc((size_t)(r->ranks * most)), *mine = nnrt_must_alloc((size_t)most);
  if (t->bytes) memcpy(mine, t->at, (size_t)t->bytes);
  int code = gather(r->comm, all, mine, most);
  for (int i = 1; i < r->ranks && *out_alike && !code; i++) {
    TermsOf first = {all, 0, of[0].host}, other = {all + i * most, i, of[i].host};
    *out_alike = !nnrt_terms_differ(first, other, w);
  }
  free(all);
  free(mine);
  return code;
}

int nnrt_terms_compare(NnrtRank *r, const Terms *t, bool *out_alike, Why *w) {
  Digest mine = {.sum = nnrt_xxh64(t->at, t->bytes, 0), .bytes = t->bytes};
  Digest *all = nnrt_must_alloc((size_t)r->ranks * sizeof *all);
  gethostname(mine.host, sizeof mine.host - 1);
  int code = gather(r->comm, all, &mine, sizeof mine);
  bool same = true;
  for (int i = 1; i < r->ranks && !code; i++)
    same &= all[i].sum == all[0].sum && all[i].bytes == all[0].bytes;
  *out_alike = true;
  // Paths of files count in the checksum, and do not in the comparison.
  if (!code && !same) code = find_difference(r, t, all, out_alike, w);
  free(all);
  return code;
}
