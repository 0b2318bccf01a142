// The name nearest to a mistyped one: "did you mean".  For the compiler's programs and the runtime.

#ifndef NNRT_NEAREST_H
#define NNRT_NEAREST_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline int nnrt_lower(char c) {
  return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

// Returns the number of letters added, left out, changed or swapped with the next one, between the
// `n` letters at `a` and `b`, ignoring case.  More than 64 letters are far from everything.
static inline int nnrt_distance(const char *a, size_t n, const char *b) {
  enum { MOST = 64 };
  size_t m = strlen(b);
  int row[3][MOST + 1]; // of the last three letters of a
  if (n > MOST || m > MOST) return MOST;
  for (size_t i = 0; i <= n; i++) {
    int *now = row[i % 3];
    const int *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
    now[0] = (int)i;
    for (size_t k = 1; k <= m; k++) {
      if (i == 0) {
        now[k] = (int)k;
        continue;
      }
      // A changed letter, a letter left out, a letter added, two letters swapped.
      int best = before[k - 1] + (nnrt_lower(a[i - 1]) != nnrt_lower(b[k - 1]));
      if (before[k] + 1 < best) best = before[k] + 1;
      if (now[k - 1] + 1 < best) best = now[k - 1] + 1;
      if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
          earlier[k - 2] + 1 < best)
        best = earlier[k - 2] + 1;
      now[k] = best;
    }
  }
  return row[n % 3][m];
}

typedef struct NnrtNearest {
  const char *name; // NULL: no name so far is near
  int distance;
} NnrtNearest;

// Takes `name` if it is nearer to the word than the names before it, or as near and the first to
// begin as the word does, and near enough to be a likely typo.
static inline void nnrt_nearest(NnrtNearest *io_best, const char *word, size_t n,
                                const char *name) {
  int distance = nnrt_distance(word, n, name);
  bool near = distance <= (n < 4 ? 1 : n < 8 ? 2 : 3) && (size_t)distance < n;
  bool begins = n && nnrt_lower(*word) == nnrt_lower(*name);
  bool has_begun = io_best->name && n && nnrt_lower(*word) == nnrt_lower(*io_best->name);
  if (near && (!io_best->name || distance < io_best->distance ||
               (distance == io_best->distance && begins && !has_begun)))
    *io_best = (NnrtNearest){name, distance};
}

#endif
