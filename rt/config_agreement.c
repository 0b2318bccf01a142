// Terms: settings that must be equal on all ranks of a job, each a name and this rank's value.
//
//     rank 0:  --lr 0.1, --shuffle 1              error: --shuffle is 1 at rank 0, but not given
//     rank 3:  --lr 0.1, --shuffle not given             at rank 3
//
// Threads share the settings that main has read.  Processes may have been started with different
// ones: they would then train different models, or wait for each other in collectives that not all
// ranks call.  So all ranks get the terms of all, and come to the same conclusion.

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"

static void add_text(Terms *t, const char *text) {
  size_t n = strlen(text) + 1;
  t->at = realloc(t->at, (size_t)t->bytes + n);
  if (!t->at) nnrt_must_alloc((size_t)-1);
  memcpy(t->at + t->bytes, text, n);
  t->bytes += (int64_t)n;
}

void nnrt_terms_add(Terms *t, const char *name, const char *fmt, ...) {
  char *value;
  va_list args;
  va_start(args, fmt);
  if (vasprintf(&value, fmt, args) < 0) nnrt_must_alloc((size_t)-1);
  va_end(args);
  add_text(t, name);
  add_text(t, value);
  free(value);
}

void nnrt_terms_free(Terms *t) {
  free(t->at);
  *t = (Terms){0};
}

static const char *next(const char *text) {
  return text + strlen(text) + 1;
}

bool nnrt_terms_differ(const char *first, int rank, const char *other, int other_rank, Why *w) {
  while (*first && *other) {
    const char *here = next(first), *there = next(other);
    if (strcmp(here, there) != 0) {
      why(w, "%s is %s at rank %d, but %s at rank %d", first, here, rank, there, other_rank);
      return true;
    }
    first = next(here);
    other = next(there);
  }
  return false;
}

static int gather(NnrtComm *c, void *y, const void *x, int64_t bytes) {
  return nnrt_comm_do(c, (Job){JOB_all_gather, &c->world, y, x, bytes, NNRT_u8, .everyone = true});
}

int nnrt_terms_compare(NnrtRank *r, const Terms *t, bool *out_alike, Why *w) {
  int64_t *bytes = nnrt_must_alloc((size_t)r->ranks * sizeof *bytes), most = 0;
  int code = gather(r->comm, bytes, &t->bytes, sizeof *bytes);
  for (int i = 0; i < r->ranks && !code; i++)
    most = bytes[i] > most ? bytes[i] : most;
  most++; // the empty name
  // Texts of different lengths are padded with zeros: empty names.
  char *all = nnrt_must_alloc((size_t)(r->ranks * most)), *mine = nnrt_must_alloc((size_t)most);
  if (t->bytes && !code) memcpy(mine, t->at, (size_t)t->bytes);
  if (!code) code = gather(r->comm, all, mine, most);
  *out_alike = true;
  // Every rank compares all, and so finds the same first difference.
  for (int i = 1; i < r->ranks && *out_alike && !code; i++)
    *out_alike = !nnrt_terms_differ(all, 0, all + i * most, i, w);
  free(bytes);
  free(all);
  free(mine);
  return code;
}
