// What the programs of outer axes will do, guessed before the axes inside of them are decided.
//
//     plan zero3=16,search=2      search is asked first, and zero3 takes what it leaves
//
//       %w: f32[512,512]          zero3 will keep a part of 32 rows: 1/16 of weight, state, gradient
//       %x: f32[64,512]           dp, which is part of zero3, will take 4 of its rows
//
// What a search counts, of memory and of time, is of one rank, so it has to know.  The graph is
// cloned as it is, its open axes are propagated, the outer programs have their say of the clone,
// and how things lie there is what the search takes for known.  Afterwards all of it is open again:
// what the programs really do follows from what the search finds.  They may do otherwise then, as
// ZeRO takes a dimension of a weight that is free, but cut as much.
//
// Nothing is guessed of axes of time, which a search counts by itself (planner/search/lives.h); of
// outer searches, which are asked nothing; nor of stages, or if a program refuses: then outer
// axes count as if nothing was split over them.

#ifndef OUTER_H
#define OUTER_H

#include "sharding/sharding.h"

// How all lies and splits along the axes of outer programs.
typedef struct Outer {
  bool axis[MAX_AXES];
  char (*split)[MAX_AXES];     // by op id
  Sbp (*lies)[MAX_AXES];       // by value id
  bool *parts;                 // by value id: a gradient that is cut before slices are added up
  char (*was_split)[MAX_AXES]; // while it is assumed: what was there before
  Sbp (*was_lies)[MAX_AXES];
} Outer;

// For the program that has its say; NULL where nothing can be guessed.  In s->scratch.
Outer *outer_guess(const Sharding *s);
// Makes the guess what is known, if there is one; and no more what is known.
void outer_assume(Sharding *s, Outer *o);
void outer_forget(Sharding *s);

#endif
