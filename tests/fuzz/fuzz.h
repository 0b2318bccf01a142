// A fuzzer: mutates valid inputs at random and feeds them to a reader, which must neither crash,
// nor hang, nor violate the target's checks.
//
//     fuzz_text --seconds 5 tests/ir/*.nn
//     fuzz_text --only 4711 --save bad.nn tests/ir/*.nn       that input again, also as a file
//
// Input number i is a function of --seed, i and the files, so a failure report has its number and
// the command that repeats it; without failures nothing is written.  A target is a file with the
// functions below; driver.c is main.

#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include "base/str.h"

#include <stdint.h>

typedef struct Random {
  uint64_t state;
} Random;

uint64_t random_next(Random *r);
int64_t random_below(Random *r, int64_t n); // 0 .. n-1; 0 if n is 0
bool random_one_in(Random *r, int n);
int64_t random_number(Random *r); // small numbers, powers of two, limits of integer types

// The seed files, unchanged.
typedef struct Seed {
  const char *path;
  const char *at;
  int64_t n;
} Seed;

typedef struct Seeds {
  const Seed *at;
  int n;
} Seeds;

// The functions of a target, after its name.  fuzz_begin comes first; fuzz_mutate appends a changed
// input to `out`; fuzz_one checks an input, and returns true if the reader accepts it.
extern const char fuzz_name[];
void fuzz_begin(const Seeds *seeds, Arena *a);
void fuzz_mutate(const Seeds *seeds, const Seed *seed, Random *r, StrBuf *out);
bool fuzz_one(const char *at, int64_t n);

// Reports a violated check of a target and ends the program.  `which` may be NULL.
_Noreturn void fuzz_fail(const char *what, const char *which);

#endif
