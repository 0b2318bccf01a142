// Chooses one strategy for every node, with least cost within a memory limit.
//
//     minimise   sum of node costs and of edge costs (a matrix over the strategies of its two ends)
//     such that  at every time the usages of the live nodes sum to at most `limit`
//
// A node may be live in several intervals, with different usages: it may stand for several tensors.
//
// This is the problem of an auto-sharding planner: nodes are tensors and operations, strategies
// their shardings, edges the costs of resharding.  It is the problem of the ASPLOS 2025 contest on
// intra-operator parallelism, and solver_read reads that contest's files.
//
// Costs are integers in a unit of the caller's (a planner with seconds scales them, to picoseconds
// for example); they may be negative.  SOLVER_INFINITE and more is never chosen.  Internally costs
// are doubles: integers up to 2^53 add exactly, multipliers are fractions anyway, and infinity
// needs no special case.  Reported costs are recomputed from the integers, in 128 bits; the bound
// is lowered by the possible rounding error.
//
// The same problem with the same options has the same answer on every machine, unless the clock
// ends it: for reproducible answers give a limit in work, and a much larger one in seconds.  It
// runs on one thread.  Proofs by CBC hold within its tolerances, which are far below one unit of
// the costs that it gets (cbc.c).

#ifndef SOLVER_SOLVER_H
#define SOLVER_SOLVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/diag.h"

__extension__ typedef __int128 SolverCost;

#define SOLVER_INFINITE INT64_C(1000000000000000000)
#define SOLVER_NO_LIMIT INT64_MAX

// The caller owns the arrays of a problem; the solver only reads them.
typedef struct SolverUse {
  const int64_t *usage; // memory per strategy, not negative
  int64_t lo, hi;       // during [lo, hi); never if lo == hi
} SolverUse;

typedef struct SolverNode {
  int n;                // strategies, at least 1
  const int64_t *cost;  // per strategy
  const SolverUse *use; // uses at the same time add up
  int n_uses;
} SolverNode;

typedef struct SolverEdge {
  int node[2];         // may be the same node; several edges between two nodes add up
  const int64_t *cost; // row-major: strategy of node[0], then strategy of node[1]
} SolverEdge;

typedef struct SolverProblem {
  const SolverNode *node;
  const SolverEdge *edge;
  int n_nodes, n_edges;
  int64_t limit; // or SOLVER_NO_LIMIT
} SolverProblem;

typedef enum SolverMethod {
  SOLVER_auto,       // all methods below that help; the only one with a bound
  SOLVER_exhaustive, // every combination that is not pruned: small problems
  SOLVER_metropolis, // Metropolis-Hastings over single nodes
  SOLVER_descent,    // coordinate descent over single nodes, from several starts
  SOLVER_random,     // independent random choices
  N_SOLVER_METHODS,
} SolverMethod;

extern const char *const solver_method_name[N_SOLVER_METHODS];

typedef struct SolverOptions {
  SolverMethod method;
  double seconds;   // time limit by the clock; the best choice so far is returned
  double work;      // limit in table entries read (effort.h); 0: none
  double gap;       // stop if the optimum is below the cost by at most this share of it
  double most;      // stop if no choice costs this or less; 0: none is too much
  const int *start; // the result is at least as good as this choice, if that is feasible; or NULL
  const char *lp;   // write the reduced problem to this file, as a 0/1 program; or NULL
  uint64_t seed;    // of all random numbers
  bool verbose;     // progress on stderr
  const struct Stop *stop; // ends it as the clock does (base/stop.h), or NULL
} SolverOptions;

typedef enum SolverStatus {
  SOLVER_optimal,    // proven
  SOLVER_feasible,   // `gap` bounds its distance from the optimum
  SOLVER_infeasible, // proven that no choice fits
  SOLVER_time_out,   // neither found a feasible choice nor proven that there is none
  N_SOLVER_STATUSES,
} SolverStatus;

extern const char *const solver_status_name[N_SOLVER_STATUSES];

// The reason for the end.
typedef enum SolverEnd {
  SOLVER_done,   // proven, or within the requested gap
  SOLVER_worked, // the limit in work
  SOLVER_late,   // the clock: a faster machine may find a better choice
  N_SOLVER_ENDS,
} SolverEnd;

extern const char *const solver_end_name[N_SOLVER_ENDS];

typedef struct SolverResult {
  SolverStatus status;
  const int *choice; // per node, if optimal or feasible
  SolverCost cost;   // of the choice
  bool has_bound;    // of the methods other than auto only after a complete search
  SolverCost bound;  // no feasible choice costs less
  double gap;        // (cost - bound) / |cost|
  // If memory at one time makes the problem infeasible: that time, and the least it needs.
  bool has_moment;
  int64_t moment;
  SolverCost needed;
  SolverEnd ended;
  double work;    // the work done
  bool above;     // no choice costs SolverOptions.most or less
  bool lp_failed; // the file of `lp` could not be written
} SolverResult;

// The result's choice is allocated in `a`.  The problem must be valid, as checked by solver_read.
SolverResult solver_solve(Arena *a, const SolverProblem *p, const SolverOptions *o);

// The cheapest choices, best first, with costs up to `worst`: at most `most`, into `out`; returns
// their number.  Any two differ in one of the first `n` nodes; the other nodes are optimal given
// these.  Each choice takes up to `n` solver runs, so this is for small problems; the options'
// limits apply to each run.
int solver_ranked(Arena *a, const SolverProblem *p, const SolverOptions *o, int n, SolverCost worst,
                  int most, const int **out);

// Runs one of the other methods, for comparison; solver_solve calls it.
SolverResult solver_compare(Arena *a, const SolverProblem *p, const SolverOptions *o);

// Reads a file of the contest.  Reports all of its errors, as "FILE: nodes[3]: …", and returns
// NULL.
SolverProblem *solver_read(Arena *a, const char *path, Diag *d);
// The same for a text, with text[n] == '\0'.
SolverProblem *solver_parse(Arena *a, const char *file, const char *text, size_t n, Diag *d);

// Writes a file for solver_read.  False after an error.
bool solver_write(const SolverProblem *p, const char *path, Diag *d);

// The number of combinations of strategies.
double solver_choices(const SolverProblem *p);

// False if a chosen cost is infinite.
bool solver_cost(const SolverProblem *p, const int *choice, SolverCost *out_cost);

// The largest sum of usages, and its first time.
SolverCost solver_peak(const SolverProblem *p, const int *choice, int64_t *out_moment);

// "-123", allocated in the arena.
const char *solver_cost_text(Arena *a, SolverCost cost);

#endif
