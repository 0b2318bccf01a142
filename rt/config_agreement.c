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
    char one[768], another[768];
    // Terms of data have the names of its flags.
    if (strcmp(here, there) != 0) {
      describe(one, value, next(value), first, hosts);
      describe(another, others, next(others), other, hosts);
      return !why(w, "%.200s is %s, but %.200s is %s", here, one, there, another);
    }
    if (strcmp(value, others) != 0) {
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

// All ranks get the terms of all; the caller frees *out_all, which they are in.
static int gather_terms(NnrtRank *r, const Terms *t, const Digest *digest, TermsOf *of,
                        char **out_all) {
  int64_t most = 0;
  for (int i = 0; i < r->ranks; i++)
    most = digest[i].bytes > most ? digest[i].bytes : most;
  most++; // the empty name
  // Texts of different lengths are padded with zeros: empty names.
  char *all = nnrt_must_alloc((size_t)(r->ranks * most)), *mine = nnrt_must_alloc((size_t)most);
  if (t->bytes) memcpy(mine, t->at, (size_t)t->bytes);
  int code = gather(r->comm, all, mine, most);
  for (int i = 0; i < r->ranks; i++)
    of[i] = (TermsOf){all + i * most, i, digest[i].host};
  free(mine);
  *out_all = all;
  return code;
}

// Calls `report` with the terms of all ranks, if those of some differ from rank 0's.
static int compare(NnrtRank *r, const Terms *t, void (*report)(const TermsOf *of, int n, void *to),
                   void *to) {
  Digest mine = {.sum = nnrt_xxh64(t->at, t->bytes, 0), .bytes = t->bytes};
  Digest *all = nnrt_must_alloc((size_t)r->ranks * sizeof *all);
  gethostname(mine.host, sizeof mine.host - 1);
  int code = gather(r->comm, all, &mine, sizeof mine);
  bool same = true;
  for (int i = 1; i < r->ranks && !code; i++)
    same &= all[i].sum == all[0].sum && all[i].bytes == all[0].bytes;
  if (!code && !same) {
    TermsOf *of = nnrt_must_alloc((size_t)r->ranks * sizeof *of);
    char *texts;
    code = gather_terms(r, t, all, of, &texts);
    if (!code) report(of, r->ranks, to);
    free(texts);
    free(of);
  }
  free(all);
  return code;
}

typedef struct First {
  bool alike;
  Why *w;
} First;

// Paths of files count in the checksum, and do not in the comparison.
static void find_first(const TermsOf *of, int n, void *to) {
  First *first = to;
  for (int i = 1; i < n && first->alike; i++)
    first->alike = !nnrt_terms_differ(of[0], of[i], first->w);
}

int nnrt_terms_compare(NnrtRank *r, const Terms *t, bool *out_alike, Why *w) {
  First first = {true, w};
  int code = compare(r, t, find_first, &first);
  *out_alike = first.alike;
  return code;
}

// Returns the value of the term with this name; NULL: there is none.
static const char *find(const char *terms, const char *name) {
  for (; *terms; terms = next(next(next(terms))))
    if (strcmp(terms, name) == 0) return next(terms);
  return NULL;
}

char *nnrt_terms_list(const TermsOf *of, int n) {
  char *text = NULL;
  for (const char *here = of[0].at; *here; here = next(next(next(here)))) {
    const char *value = next(here), *other = NULL;
    int i = 0;
    // The first rank with another value.  The program of one rank may lack a library.
    do
      other = ++i < n ? find(of[i].at, here) : NULL;
    while (i < n && (!other || strcmp(value, other) == 0));
    if (i == n) continue;
    char one[768], another[768];
    bool hosts = strcmp(of[0].host, of[i].host) != 0;
    describe(one, value, next(value), of[0], hosts);
    describe(another, other, next(other), of[i], hosts);
    text = nnrt_must_append(text, "%s%.200s is %s, but %s", text ? "; " : "", here, one, another);
  }
  return text;
}

static void list(const TermsOf *of, int n, void *to) {
  *(char **)to = nnrt_terms_list(of, n);
}

int nnrt_terms_differences(NnrtRank *r, const Terms *t, char **out_text) {
  *out_text = NULL;
  return compare(r, t, list, out_text);
}
