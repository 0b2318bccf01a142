// The dimensions of a value in letters of an op that neither produces nor reads it.
//
//     %y = linear %x, %w                      0 1 2 k, k n -> 0 1 2 n      0=2 1=4 2=6
//     %f = reshape %y                         a b c d -> (a b) c d
//     %t = attention %f …                     0 1 2, … -> 0 1 2            0=8
//     %dt = attention_back …                  its letter 0 is the linear's 0 and, within that, 1
//     %dy = reshape %dt                       (a b) c d -> a b c d: a is 0, b is 1 again
//
// So a dimension, or a letter, is known as a list of factors, major first. Each factor is a letter,
// the first part of a letter, or unknown.

#ifndef DIM_MAP_H
#define DIM_MAP_H

#include "ir/dims.h"

enum { UNKNOWN_LETTER = -1 };

typedef struct Factors {
  int64_t size[MAX_FACTORS]; // if less than its letter's: the first part of the letter
  int8_t letter[MAX_FACTORS];
  int8_t n; // 0: unknown, even the length
} Factors;

// The factors of each dimension of a value.
typedef struct Lettered {
  int ndim;
  Factors dim[MAX_NDIM];
} Lettered;

// Returns the letter that a split of these factors divides, the major one; UNKNOWN_LETTER: none is
// known.
int leading_letter(const Factors *f);
bool letters_known(const Lettered *l); // at least one

// Returns the dimensions of operand or result `t` in letters of its op.
Lettered lettered_of(const Dims *dims, const Term *t);
// Adds the known letters of operand or result `t` to `map`, by letter of its op.
void lettered_learn(Factors *map, const Dims *dims, const Term *t, const Lettered *is);
// Translates letters of one op into letters of another; `map` is by letter of the first.
Lettered lettered_translate(const Lettered *l, const Factors *map);

#endif
