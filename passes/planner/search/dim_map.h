// The dimensions of a value in letters of an op that neither makes nor reads it.
//
//     %y = linear %x, %w                      0 1 2 k, k n -> 0 1 2 n      0=2 1=4 2=6
//     %f = reshape %y                         a b c d -> (a b) c d
//     %t = attention %f …                     0 1 2, … -> 0 1 2            0=8
//     %dt = attention_back …                  its letter 0 is the linear's 0 and, within that, 1
//     %dy = reshape %dt                       (a b) c d -> a b c d: a is 0, b is 1 again
//
// So what is known of a dimension, or of a letter, is a list of factors, major first, each a letter
// or the first part of one, or nothing.

#ifndef DIM_MAP_H
#define DIM_MAP_H

#include "ir/dims.h"

enum { UNKNOWN_LETTER = -1 };

typedef struct Factors {
  int64_t size[MAX_FACTORS]; // may be less than its letter's: the first part of that
  int8_t letter[MAX_FACTORS];
  int8_t n; // 0: nothing is known, not even its length
} Factors;

// By dimension of a value.
typedef struct Lettered {
  int rank;
  Factors dim[MAX_RANK];
} Lettered;

// The letter by which what has these factors is cut into parts; UNKNOWN_LETTER: none is known.
int leading_letter(const Factors *f);
bool letters_known(const Lettered *l); // any

// As an op has it of which `t` is an operand or a result.
Lettered lettered_of(const Dims *dims, const Term *t);
// Adds to `map`, by letter of the op, what is known of its operand or result `t`.
void lettered_learn(Factors *map, const Dims *dims, const Term *t, const Lettered *is);
// What is in letters of one op in those of another, by letter of the first.
Lettered lettered_translate(const Lettered *l, const Factors *map);

#endif
