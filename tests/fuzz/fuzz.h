// A fuzzer: changes valid inputs at random and feeds them to a reader, which must neither crash,
// nor hang, nor break what its target checks.
//
//     fuzz_text --seconds 5 tests/ir/*.nn
//     fuzz_text --only 4711 --save bad.nn tests/ir/*.nn       that input again, also as a file
//
// Input number i is a function of --seed, i and the files, so a failure says its number and how to
// get it again; nothing is written while all is well.  A target is a file with the functions
// below; driver.c is main.

#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include "base/str.h"

#include <stdint.h>

typedef struct Random {
  uint64_t state;
} Random;

uint64_t random_next(Random *r);
int64_t random_below(Random *r, int64_t n); // 0 .. n-1; 0 when n is 0
bool random_one_in(Random *r, int n);
int64_t random_number(Random *r); // small ones, powers of two, ends of ranges

// The files, as they are on disk.
typedef struct Seed {
  const char *path;
  const char *at;
  int64_t n;
} Seed;

typedef struct Seeds {
  const Seed *at;
  int n;
} Seeds;

// Of a target: what it is called and what its files end in; changes to an input, appended to
// `out`; and what must hold of one, true when the reader accepted it.  fuzz_begin comes first.
extern const char fuzz_name[];
void fuzz_begin(const Seeds *seeds, Arena *a);
void fuzz_mutate(const Seeds *seeds, const Seed *seed, Random *r, StrBuf *out);
bool fuzz_one(const char *at, int64_t n);

// For targets: what must hold does not.  `which` may be NULL.
_Noreturn void fuzz_fail(const char *what, const char *which);

#endif
