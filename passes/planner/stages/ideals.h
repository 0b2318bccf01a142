// What can be done after some stages: sets of units that have, with each, all that it reads, which
// are called ideals.
//
//     units 0 ─ 1 ─ 2 ─┬─ 3 ─┬─ 5        ideals: none, 0, 0 1, 0 1 2, 0 1 2 3, 0 1 2 4, …, all
//                      └─ 4 ─┘           a stage is what one of them has more than another
//
// Models are nearly chains, so there are few; where there are too many, only those of one order are
// looked at.  (Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph
// Operators", NeurIPS 2020, section 5.)

#ifndef STAGES_IDEALS_H
#define STAGES_IDEALS_H

#include <stdint.h>

#include "base/vec.h"
#include "partition.h"

typedef uint64_t UnitWord;
enum { UNIT_WORD = 64 };

typedef struct Ideal {
  const UnitWord *has;
  int n;
  int top;  // of its units the one that all others lead to, or -1: it is in the last stage
  int next; // of the others the one that leads to all others, or -1: it is in the next stage
} Ideal;

typedef struct Ideals {
  const Partition *p;
  Arena *arena;
  int words;
  Vec(Ideal) list; // in order of how much is done; the last is all
  bool complete;   // these are all there are
} Ideals;

Ideals ideals_find(const Partition *p, Arena *a);
bool ideal_within(const Ideals *t, const Ideal *a, const Ideal *b); // b has all of a, and more
bool flow_reads(const Flow *f, int unit);
// Whether a reader is in `in`, NULL: anywhere, and not in `but`.
bool flow_has_reader(const Flow *f, const UnitWord *in, const UnitWord *but);

static inline bool unit_in(const UnitWord *set, int unit) {
  return set[unit / UNIT_WORD] >> unit % UNIT_WORD & 1;
}

// The runs that begin where another ends.
typedef struct NextRuns {
  int most;
  int *n, *at; // by run; [n_runs * n_runs]
} NextRuns;

NextRuns next_runs_find(const Partition *p, Arena *a);

#endif
