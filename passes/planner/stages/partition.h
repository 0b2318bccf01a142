// Which units go on which run of ranks, so that the slowest rank has least to do.
//
//     units    0 ─ 1 ─ 2 ─ 3       seconds of each on each run of ranks, bytes that it keeps there
//     ranks    0 1 2 3             [0]: units 0 and 1    [1-3]: units 2 and 3
//
//     minimise   the largest, over all runs that are chosen, of
//                  seconds of its units + of what they share + of what they send and get
//     such that  the chosen runs cover every rank once, and each has a unit
//                no value goes back: who makes it runs no later than who reads it
//                bytes of units, of what they share and of what they get are at most the run's limit
//
// This is nnScaler's equation 1 (OSDI 2024, section 5) over stages that are runs of ranks.  It
// knows nothing of graphs: units.c makes it of one, and tests make it of random numbers.
//
// Among those that are equally slow, the one is wanted whose runs take least time together.

#ifndef STAGES_PARTITION_H
#define STAGES_PARTITION_H

#include <stdbool.h>

#include "base/arena.h"

// Ranks first … first + n - 1.
typedef struct Run {
  int first, n;
} Run;

// A value, or the gradient of a weight that several units share: from the unit that makes it to
// each run that has a reader, once.  `reader` are later units than `from`, in order.
typedef struct Flow {
  int from, n_readers;
  const int *reader;
  bool whole;      // to every rank all of it; else each gets its part of the rows
  double messages; // one after the other, in a step
  double bytes;    // of all messages; of the whole
  double kept;     // bytes of them that a run has at one time; of the whole
} Flow;

// What units share, such as a weight: on each run that has one of them, once.
typedef struct Shared {
  int n_units;
  const int *unit;
  double bytes;    // of a rank
  double *seconds; // by run
} Shared;

typedef struct Partition {
  int n_units, n_ranks, n_runs;
  const Run *run;
  double *seconds, *bytes;           // [n_units * n_runs]
  double *base_seconds, *base_bytes; // by run: what its ranks have to do besides
  double *limit;                     // by run, bytes; INFINITY: as much as one likes
  const Flow *flow;
  int n_flows;
  const Shared *shared;
  int n_shared;
  // Seconds of a message from run i to run j, at [i * n_runs + j], and of each byte.
  double *start, *by_rows, *by_whole;
  int n_stages; // that there must be, or 0
} Partition;

// Whether so many bytes are within the limit: sums of parts are off by their rounding.
static inline bool run_fits(const Partition *p, int run, double bytes) {
  return bytes <= p->limit[run] * (1 + 1e-9);
}
static inline double unit_seconds(const Partition *p, int unit, int run) {
  return p->seconds[unit * p->n_runs + run];
}
static inline double unit_bytes(const Partition *p, int unit, int run) {
  return p->bytes[unit * p->n_runs + run];
}
// What one end of a flow takes.
double flow_seconds(const Partition *p, const Flow *f, int from, int to);
double flow_kept(const Partition *p, const Flow *f, int to); // bytes of a rank that gets it

// What an assignment, a run for each unit, comes to.
typedef struct Load {
  bool fits;       // each run in its limit
  double slowest;  // seconds
  double sum;      // of all runs
  double *seconds; // by run, 0 where it is not chosen
  double *comm;    // of these, for what is sent, got and added up
  double *bytes;   // by run
} Load;

Load partition_load(Arena *a, const Partition *p, const int *run_of);
// Whether the runs that it uses cover every rank once, no value goes back, and there are as many
// runs as there must be.
bool partition_legal(const Partition *p, const int *run_of);
// In order of what is wanted: one that fits before one that does not.
bool load_less(const Load *a, const Load *b);
// No assignment is faster, whatever it is.
double partition_bound(const Partition *p);

typedef enum PartitionStatus {
  PARTITION_proved,     // the least there is
  PARTITION_found,      // it fits; `bound` says how far it may be from the least
  PARTITION_infeasible, // proved that nothing fits
  PARTITION_unknown,    // nothing was found that fits
} PartitionStatus;

typedef struct PartitionOptions {
  double seconds; // for CBC
  const char *lp; // write the 0/1 program to this file; or NULL
} PartitionOptions;

typedef struct PartitionResult {
  PartitionStatus status;
  const int *run_of; // of each unit, where one was found
  double bound;      // seconds; nothing is faster
  int n_columns;     // that CBC was given; 0: it was not asked
  bool out_of_time;  // CBC was: on a slower machine it may come to something else
  bool lp_failed;
} PartitionResult;

PartitionResult partition_solve(Arena *a, const Partition *p, const PartitionOptions *o);

// -- Its parts -----------------------------------------------------------------------------------

// By dynamic programming (table.c): a good start, NULL where it finds nothing that fits.  No
// assignment is faster than `bound`, which is infinite where none fits, and -INFINITY where there
// are too many to say.
const int *table_solve(Arena *a, const Partition *p, double *bound);
// The same with all that far stages send one another (labels.c), as far as so much work goes: a
// better one than `run_of`, which is one if `has`, and a better bound.  Whether there is one.
bool labels_solve(const Partition *p, int *run_of, bool has, double *bound);
// Asks CBC, from `start`, which may be NULL, where that is a small 0/1 program (program.c).  Puts
// what it found into `out`.
PartitionStatus partition_ask(const Partition *p, double seconds, const int *start, int *run_of,
                              PartitionResult *out);
// Writes that program to a file; whether it could.
bool partition_write(const Partition *p, const char *lp);

#endif
