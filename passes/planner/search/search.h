// Chooses the splits of ops and the layouts of parameters along some axes of a mesh, all together,
// to minimize the time of a step.
//
//     nodes    each op of the model    the letters that the axes split (Op.split)
//              each parameter          its layout, and the layout of its optimizer states
//              each value with         the layout for all of them, and the layout in which their
//              several readers         gradients are added up
//     cost     of an op                its kernels and those of its gradient: roofline (cost.h)
//              of an edge              transfers by comm of the value from end to end, and of its
//                                      gradient back: the same routes at the same prices
//                                      (routes.h; hops.h if comm goes axis by axis)
//              of gradients            all_reduces by their part of a bucket (bucket_grads.c), and
//                                      the exposed part of these (overlap.c)
//              of the norm             once for all weights that are sharded
//     memory   of all values at every time, as plan_memory will place them (memory.h)
//
// A gradient has the split of its op of the model (propagate.h), so forward and backward of an edge
// are priced together and the problem contains the model only. Partial sums are layouts like
// others: a product may leave its sum to its readers, so AutoDDL's communication-minimal products
// (section 4.2) are members of this space. solver/solver.h solves the problem.
//
// A decision that programs have fixed has one choice.
//
// A sub-space (SearchEnv.among) has nodes for its ops, for ops with decided splits, and for the
// parameters that they read.  A value between these and the rest costs nothing in any layout, and
// memory is no limit: nnScaler's GetSubSpace (OSDI 2024, algorithm 1).  The rest stays open.
//
// Without sums (`sums` below) the partial sums of an op are reduced before any op reads them, and
// values with several readers are replicated or sharded: the space of GSPMD and Alpa, for
// comparison.

#ifndef SEARCH_H
#define SEARCH_H

#include "base/vec.h"
#include "cluster/cluster.h"
#include "sharding/decide.h"
#include "solver/solver.h"

// Number of best factorings of the ranks to compare: search prices rank them, but may be slightly
// off.
enum { N_FACTORINGS = 3 };
// Alternatives that take more than this multiple of the best one's time are not tried.
#define WORTH_TRYING 1.05

// A search of at most this many nodes also returns answers of about the same cost, on request:
// k_best.c.
enum { FEW_NODES = 32 };

// Default work of the solver: about 1 s. Work, not time, so that a slow machine makes the same
// choice.
#define SEARCH_WORK 6e8

// Statistics of one search, or of several.
typedef struct SearchStats {
  int n; // searches
  SolverStatus status;
  double step;    // estimated seconds, without hidden reductions
  double compute; // the part of kernels and updates
  double peak;    // peak bytes of a rank; 0: unknown
  double needed;  // if nothing fits: bytes that every answer takes at one time, as the search sees
                  // them; of all factorings the least; 0: unknown
  bool bound;     // more memory may make the step faster
  bool slow;  // nothing was found, as every plan takes longer than SearchEnv.worth in any memory
  double gap; // the best plan that hides as many gradient reductions may be cheaper by this
  SolverEnd ended; // of the search that was cut off the most
  double seconds;  // of solving
  double work;     // of solving, as a number of visited tables
  double all_work; // the same, including factorings that were not taken
  int n_nodes, n_choices, n_edges;
  int n_factorings; // the cheapest ones, best first, if the plan leaves that open; else 0
  int factoring[N_FACTORINGS]; // their numbers, for shard's option `factoring`
  double took[N_FACTORINGS];   // seconds of a step
  const char *explained;       // answer to SearchEnv.explain; NULL: no op or value has that name
} SearchStats;

// Answers of the searches of one factoring of the ranks, in order. When that factoring is taken, it
// asks the same questions again, and need not solve them again.
typedef struct Answer {
  const int *choice; // [n_nodes] as in SolverResult
  int n_nodes;
  const int **other; // [n_others] answers of about the same cost, best first: k_best.c
  int n_others;
  SearchStats searched;
} Answer;

typedef struct SolutionCache {
  Vec(Answer) all;
  Arena *arena;
  bool known; // the answers are to be reused
  int next;   // the next answer to reuse
} SolutionCache;

// Adds the statistics of another search.
void searched_add(SearchStats *sum, const SearchStats *more);

// Searches these axes; the other axes (propagate.h) stay undecided. `why` is the line that asks for
// it. The search decides nothing: decide_chosen (decide.h) applies its choices. Op.split is its
// scratch space, and has its old contents when the search returns. False, with an error reported,
// if nothing fits into memory.
bool search_axes(const Sharding *s, const SearchEnv *env, const int *axis, int n, bool sums,
                 const Loc *why, Chosen *out_chosen, SearchStats *out, Diag *d);

// The estimate of a search for a step with all splits and layouts decided.
typedef struct StepPrice {
  double seconds, compute; // of a step; the part of kernels and updates
  double bytes;            // of a rank at the peak; 0: unknown
} StepPrice;

// Prices the decisions along these axes; false: the search knows no way to run them.
bool search_price(const Sharding *s, const int *axis, int n, const Loc *why, StepPrice *out,
                  Diag *d);

// Returns the estimated step time of each alternative split of the ops with this name, under a
// decided plan that otherwise stays the same. NULL: no op has that name, or the question is not
// supported.
const char *search_otherwise(const Sharding *s, const char *what);

#endif
