// Ideals: sets of units that contain, with each unit, all units that it reads. Each is a state
// after some stages.
//
//     units 0 ─ 1 ─ 2 ─┬─ 3 ─┬─ 5        ideals: none, 0, 0 1, 0 1 2, 0 1 2 3, 0 1 2 4, …, all
//                      └─ 4 ─┘           a stage is the difference of two ideals
//
// Models are nearly chains, so there are few ideals; if there are too many, only those of one order
// are used. (Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators",
// NeurIPS 2020, section 5.)

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
  int top;  // its unit that all its others lead to, in the last stage; or -1
  int next; // the unit outside that leads to all others, in the next stage; or -1
} Ideal;

typedef struct Ideals {
  const Partition *p;
  Arena *arena;
  int words;
  UnitWord *reads, *readers; // [n_units][words] the units that each reads, and those that read it
  Vec(Ideal) list;           // in order of size; the last has all units
  bool complete;             // the list has all ideals
} Ideals;

Ideals ideals_find(const Partition *p, Arena *a);
bool ideal_within(const Ideals *t, const Ideal *a, const Ideal *b); // b contains a, and more
bool flow_reads(const Flow *f, int unit);
// Whether a reader is in `in` (NULL: anywhere) and not in `but`.
bool flow_has_reader(const Flow *f, const UnitWord *in, const UnitWord *but);

static inline bool unit_in(const UnitWord *set, int unit) {
  return set[unit / UNIT_WORD] >> unit % UNIT_WORD & 1;
}

// For each run, the runs that begin at its end.
typedef struct NextRuns {
  int most;
  int *n, *at; // by run; [n_runs * n_runs]
} NextRuns;

NextRuns next_runs_find(const Partition *p, Arena *a);

#endif
