// Assigns units to runs of ranks, so that the slowest rank has the least work.
//
//     units    0 ─ 1 ─ 2 ─ 3       seconds of each on each run of ranks, bytes that it keeps there
//     ranks    0 1 2 3             [0]: units 0 and 1    [1-3]: units 2 and 3
//
//     minimise   the largest, over all chosen runs, of
//                  seconds of its units + of its shared tensors + of its sends and receives
//     such that  the chosen runs cover every rank once, and each has a unit
//                no value goes back: its producer runs no later than its readers
//                bytes of units, of shared tensors and of receives, and those that pass while a unit
//                runs, for the unit with the most, are at most the run's limit
//
// This is nnScaler's equation 1 (OSDI 2024, section 5) over stages that are runs of ranks. The
// problem is independent of graphs: loads.c derives it from a graph, and tests from random numbers.
//
// Among equally slow assignments the one with the least total time of all runs is wanted.

#ifndef STAGES_PARTITION_H
#define STAGES_PARTITION_H

#include <stdbool.h>

#include "base/arena.h"

// Ranks first … first + n - 1.
typedef struct Run {
  int first, n;
} Run;

// A value, or the gradient of a weight that several units share: from the unit that produces it to
// each run with a reader, once. `reader` are later units than `from`, in order.
typedef struct Flow {
  int from, n_readers;
  const int *reader;
  bool whole;      // all of it goes to every rank; else each gets its slice of the batch
  double messages; // one after the other, per step
  double bytes;    // of all messages; of the global value
  double kept;     // bytes of them that a run holds at one time; of the global value
} Flow;

// A tensor that several units share, such as a weight: once on each run with one of these units.
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
  double *base_seconds, *base_bytes; // by run: of held ops on its ranks
  double *limit;                     // by run, bytes; INFINITY: no limit
  const double *passing;   // by unit, bytes alive only while it runs, of all rows; NULL: none
  const double *in_flight; // by run, micro-batches that it holds received values of; NULL: one
  const Flow *flow;
  int n_flows;
  const Shared *shared;
  int n_shared;
  // Seconds of a message from run i to run j, at [i * n_runs + j]: the start latency, and per byte.
  double *start, *by_batch, *by_whole;
  int n_stages; // the required number, or 0
} Partition;

// Whether the bytes are within the limit, up to the rounding of sums.
static inline bool run_fits(const Partition *p, int run, double bytes) {
  return bytes <= p->limit[run] * (1 + 1e-9);
}
static inline double unit_seconds(const Partition *p, int unit, int run) {
  return p->seconds[unit * p->n_runs + run];
}
static inline double unit_bytes(const Partition *p, int unit, int run) {
  return p->bytes[unit * p->n_runs + run];
}
// Seconds of a flow at each of its ends.
double flow_seconds(const Partition *p, const Flow *f, int from, int to);
double flow_kept(const Partition *p, const Flow *f, int to); // bytes of a receiving rank
static inline double run_in_flight(const Partition *p, int run) {
  return p->in_flight ? p->in_flight[run] : 1;
}
static inline double unit_passing(const Partition *p, int unit) {
  return p->passing ? p->passing[unit] : 0;
}

// The load of an assignment, with a run for each unit.
typedef struct Load {
  bool fits;       // each run is within its limit
  double slowest;  // seconds
  double sum;      // of all runs
  double *seconds; // by run; 0: it is not used
  double *comm;    // the part of sends, receives and shared tensors
  double *bytes;   // by run
} Load;

Load partition_load(Arena *a, const Partition *p, const int *run_of);
// Whether the used runs cover every rank once, no value goes back, and the number of runs is as
// required.
bool partition_legal(const Partition *p, const int *run_of);
// Whether `a` is better. An assignment that fits is better than one that does not.
bool load_less(const Load *a, const Load *b);
// Returns a lower bound of the seconds of any assignment.
double partition_bound(const Partition *p);

typedef enum PartitionStatus {
  PARTITION_proved,     // the optimum
  PARTITION_found,      // it fits; `bound` gives the distance to the optimum
  PARTITION_infeasible, // proved: nothing fits
  PARTITION_unknown,    // none was found that fits
} PartitionStatus;

typedef struct PartitionOptions {
  double seconds; // for CBC
  const char *lp; // file for the 0/1 program; or NULL
} PartitionOptions;

typedef struct PartitionResult {
  PartitionStatus status;
  const int *run_of; // by unit; NULL: none was found
  double bound;      // seconds; a lower bound
  int n_columns;     // of CBC's program; 0: CBC did not run
  bool out_of_time;  // CBC ran out of time: on a slower machine it may have another answer
  bool lp_failed;
} PartitionResult;

PartitionResult partition_solve(Arena *a, const Partition *p, const PartitionOptions *o);

// -- Solvers -------------------------------------------------------------------------------------

// Dynamic programming (table.c): a good start; NULL if it finds none that fits. `bound` is a lower
// bound of any assignment: infinite if none fits, -INFINITY if there are too many ideals or states
// to know.
const int *table_solve(Arena *a, const Partition *p, double *bound);
// The same with all messages between distant stages (labels.c), within a budget of work. Improves
// `run_of`, which is an assignment if `has`, and the bound. Returns whether there is an assignment.
bool labels_solve(const Partition *p, int *run_of, bool has, double *bound);
// Runs CBC from `start`, which may be NULL, if the 0/1 program is small (program.c). Writes bound
// and statistics into `out`.
PartitionStatus partition_ask(const Partition *p, double seconds, const int *start, int *run_of,
                              PartitionResult *out);
// Writes that program to a file; false: the file cannot be written.
bool partition_write(const Partition *p, const char *lp);

#endif
