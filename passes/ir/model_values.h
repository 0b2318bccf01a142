// The values of the model's program that the values of a distributed program stand for: the result
// of its proof (prove/), and the table with which executables compare themselves to the program of
// a single rank while they run (--check-against).
//
//     the model's program                  the distributed one
//
//     %x: f32[8,4] input       value 0     %x: f32[4,4] {S(0)}            value 0
//     %y = linear %x, %w       value 2     %y = linear %x, %w : {S(0)}    value 2, sums of 4 terms
//                                          %p = slice %y …                no value: a piece
//
// Values of the model's program are numbered in its order, parameters first.  Two programs made of
// the same model's program have the same numbers, and the same fingerprint.

#ifndef IR_MODEL_VALUES_H
#define IR_MODEL_VALUES_H

#include "ir/graph.h"

enum { NO_MODEL_VALUE = -1 };

typedef struct ModelValue {
  int number;    // NO_MODEL_VALUE: it stands for none
  int64_t terms; // of the longest sum in the op that computes it in the model's program
} ModelValue;

typedef struct ModelValues {
  const char *graph; // the name of the entry
  uint64_t fingerprint;
  int n;          // numbers of the model's program
  int n_computed; // of these, the results of ops, equal ones counted once
  uint32_t n_values;
  ModelValue *of;  // [n_values], by value id of the distributed entry
  Module *program; // the model's program; freed with the distributed module
} ModelValues;

#endif
