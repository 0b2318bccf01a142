// Chooses one strategy for every node, as cheaply as memory allows.
//
//     minimise   sum of node costs and of edge costs (a matrix over the strategies of its two ends)
//     such that  at every moment the usages of the nodes alive then add up to at most `limit`
//
// A node may be alive several times, and use more at one time than at another: what it stands for
// may be several tensors.
//
// This is what an auto-sharding planner asks: nodes are tensors and operations, strategies their
// shardings, edges what resharding costs.  The problem is that of the ASPLOS 2025 contest on
// intra-operator parallelism, and solver_read reads that contest's files.
//
// Costs are whole numbers in a unit of the caller's (a planner that has seconds multiplies them, to
// picoseconds, say); they may be negative.  SOLVER_INFINITE and more is never chosen.  Inside,
// costs are doubles: whole numbers up to 2^53 add exactly, multipliers are fractions anyway, and
// infinity needs no care.  What is reported is added up again from the whole numbers, in 128 bits;
// the bound is lowered by what rounding may have added to it.
//
// The same problem with the same options gets the same answer on every machine, unless the clock
// has ended it: so who wants that gives a limit in work, and one in seconds that is far above.  One
// thread works.  What CBC proves is proven within its tolerances, which are far below one unit of
// the costs that it is given (cbc.c).

#ifndef SOLVER_SOLVER_H
#define SOLVER_SOLVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/diag.h"

__extension__ typedef __int128 SolverCost;

#define SOLVER_INFINITE INT64_C(1000000000000000000)
#define SOLVER_NO_LIMIT INT64_MAX

// Whoever makes a problem owns its arrays; the solver only reads them.
typedef struct SolverUse {
  const int64_t *usage; // memory of each strategy, not negative
  int64_t lo, hi;       // in [lo, hi); with lo == hi none
} SolverUse;

typedef struct SolverNode {
  int n;                // strategies, at least 1
  const int64_t *cost;  // of each strategy
  const SolverUse *use; // uses at one moment add up
  int n_uses;
} SolverNode;

typedef struct SolverEdge {
  int node[2];         // may be one node twice; several edges between two nodes add up
  const int64_t *cost; // row-major: strategy of node[0], then strategy of node[1]
} SolverEdge;

typedef struct SolverProblem {
  const SolverNode *node;
  const SolverEdge *edge;
  int n_nodes, n_edges;
  int64_t limit; // or SOLVER_NO_LIMIT
} SolverProblem;

typedef enum SolverMethod {
  SOLVER_auto,       // all of the below that helps; the only one that has a bound of its own
  SOLVER_exhaustive, // every combination that is not cut off: small problems
  SOLVER_metropolis, // Metropolis-Hastings over single nodes
  SOLVER_descent,    // coordinate descent over single nodes, from several starts
  N_SOLVER_METHODS,
} SolverMethod;

extern const char *const solver_method_name[N_SOLVER_METHODS];

typedef struct SolverOptions {
  SolverMethod method;
  double seconds;   // stop then with what there is: by the clock
  double work;      // the same, in numbers of tables that are looked at (effort.h); 0: any
  double gap;       // stop when the optimum may be less by no more than this share of the cost
  const int *start; // a choice to be no worse than, if it fits; or NULL
  const char *lp;   // write what exact reduction leaves to this file, as a 0/1 program; or NULL
  uint64_t seed;    // of whatever is random
  bool verbose;     // progress on stderr
} SolverOptions;

typedef enum SolverStatus {
  SOLVER_optimal,    // proven
  SOLVER_feasible,   // fits; how far it may be from the optimum is `gap`
  SOLVER_infeasible, // proven that nothing fits
  SOLVER_time_out,   // nothing was found that fits, nor proven that nothing does
  N_SOLVER_STATUSES,
} SolverStatus;

extern const char *const solver_status_name[N_SOLVER_STATUSES];

// What made it stop.
typedef enum SolverEnd {
  SOLVER_done,   // proven, or within the gap that was asked for
  SOLVER_worked, // the work is done that it was given
  SOLVER_late,   // the clock: a faster machine may find something better
  N_SOLVER_ENDS,
} SolverEnd;

extern const char *const solver_end_name[N_SOLVER_ENDS];

typedef struct SolverResult {
  SolverStatus status;
  const int *choice; // of each node, when optimal or feasible
  SolverCost cost;   // of the choice
  bool has_bound;    // of exhaustive, metropolis and descent only a search that ended has one
  SolverCost bound;  // no choice that fits costs less
  double gap;        // (cost - bound) / |cost|
  // When infeasible because of memory at one moment: that moment, and the least it needs.
  bool has_moment;
  int64_t moment;
  SolverCost needed;
  SolverEnd ended;
  double work;    // that was done
  bool lp_failed; // the file of `lp` could not be written
} SolverResult;

// The result's choice lives in `a`.  The problem must be one that solver_read would accept.
SolverResult solver_solve(Arena *a, const SolverProblem *p, const SolverOptions *o);

// The cheapest choices, best first, of those that cost no more than `worst`: at most `most`, into
// `out`; returns how many.  Two of them differ in one of the first `n` nodes; the others are as is
// best then.  Each is solved for, as often as there are nodes, so this is for small problems; what
// options limit is each of these.
int solver_ranked(Arena *a, const SolverProblem *p, const SolverOptions *o, int n, SolverCost worst,
                  int most, const int **out);

// One of the other methods, for comparison; solver_solve calls it.
SolverResult solver_compare(Arena *a, const SolverProblem *p, const SolverOptions *o);

// A file of the contest.  Reports all that is wrong with it, as "FILE: nodes[3]: …", and returns
// NULL.
SolverProblem *solver_read(Arena *a, const char *path, Diag *d);
// The same of a text, with text[n] == '\0'.
SolverProblem *solver_parse(Arena *a, const char *file, const char *text, size_t n, Diag *d);

// Into a file that solver_read reads.  False, having reported why it cannot be written.
bool solver_write(const SolverProblem *p, const char *path, Diag *d);

// How many combinations of strategies there are.
double solver_choices(const SolverProblem *p);

// False where something chosen is infinite.
bool solver_cost(const SolverProblem *p, const int *choice, SolverCost *out_cost);

// The largest sum of usages, and when it first occurs.
SolverCost solver_peak(const SolverProblem *p, const int *choice, int64_t *out_moment);

// "-123", in the arena.
const char *solver_cost_text(Arena *a, SolverCost cost);

#endif
