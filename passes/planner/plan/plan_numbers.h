// Numbers of a plan's programs: "pp:9:10:10:11", "recompute:8@1-12:2@13-24".

#ifndef PLAN_NUMBERS_H
#define PLAN_NUMBERS_H

#include <stdint.h>

// A number for a program: "4", "4@5" or "4@1-4".
typedef struct PlanNumber {
  int64_t n, first, last; // of layers, from 1; 0: of none
  int column;             // in the text of the program, from 1
} PlanNumber;

enum { MAX_NUMBERS = 1024 }; // of a program: one for each of its stages

#endif
