// Chooses how ops split and how parameters lie along some axes of a mesh, all together, so that a
// step takes as little time as can be.
//
//     nodes    each op of the model    the letters that the axes split (Op.split)
//              each parameter          how it lies, and how its optimizer's states do
//              each value that         the layout in which all of them get it, and the one in which
//              several ops read        their gradients are added up
//     cost     of an op                its kernels and those of its gradient: roofline (cost.h)
//              of an edge              what comm will do to bring a value from one end to the other, and
//                                      its gradient back: the same routes at the same prices (routes.h;
//                                      hops.h where comm goes axis by axis)
//              of gradients            all_reduces by their part of a bucket (bucket_grads.c), and of that
//                                      what the step waits for (overlap.c)
//              of the norm             once for all weights of which ranks have parts
//     memory   of all values at every moment, as plan_memory will place them (memory.h)
//
// A gradient splits what its op of the model does (propagate.h), so forward and backward of an edge
// are priced together and the problem is about the model only.  Partial sums are layouts like
// others: a product may leave its sum to whoever reads it, which is what makes AutoDDL's products
// with least communication (section 4.2) members of this space.  The problem is solver/solver.h's.
//
// What programs have fixed stays: it has one choice.
//
// Without sums (`sums` below) what an op leaves as a sum over ranks is added up before anything
// reads it, and what several read is whole or in parts: the space of GSPMD and Alpa, to compare
// with.

#ifndef SEARCH_H
#define SEARCH_H

#include "base/vec.h"
#include "cluster/cluster.h"
#include "sharding/sharding.h"
#include "solver/solver.h"

// Factorings of the ranks, among which the searches' prices decide, but may be off by a little.
enum { N_FACTORINGS = 3 };
// Those that take more than so many times what the best does are not tried by anyone.
#define WORTH_TRYING 1.05

// A search of no more nodes says what else is about as good as its answer, when it is asked:
// k_best.c.
enum { FEW_NODES = 32 };

// For the solver, where nobody says less: about 1 s, so that a slow machine chooses the same.
#define SEARCH_WORK 6e8

// What came of it.
typedef struct SearchStats {
  int n; // searches
  SolverStatus status;
  double step;     // seconds, as far as the search sees, without what is hidden
  double peak;     // bytes of a rank when it needs most; 0 where that is not known
  bool bound;      // with more memory it may take less
  double gap;      // of plans that hide as much of reducing gradients, the best may be less by this
  SolverEnd ended; // of the search that was cut off the most
  double seconds;  // that solving took
  double work;     // the same, in numbers of tables that were looked at
  double all_work; // the same, with factorings that were not taken
  int n_nodes, n_choices, n_edges;
  int n_factorings; // the cheapest there are, best first, where a plan leaves that open; else 0
  int factoring[N_FACTORINGS]; // their numbers, as shard's option `factoring` takes them
  double took[N_FACTORINGS];   // seconds of a step
  const char *explained;       // what Sharding.explain asks; NULL: nothing is called so
} SearchStats;

// What the searches of one factoring of the ranks found, in order.  The same one asks the same
// again when it is taken, and need not be solved again.
typedef struct Answer {
  const int *choice; // [n_nodes] as the solver has it
  int n_nodes;
  const int **other; // [n_others] answers of about the same cost, best first: k_best.c
  int n_others;
  SearchStats searched;
} Answer;

typedef struct SolutionCache {
  Vec(Answer) all;
  Arena *arena;
  bool known; // they are to be used
  int next;   // of those that are used
} SolutionCache;

// Of two, what came of both.
void searched_add(SearchStats *sum, const SearchStats *more);

// The rest of the axes (propagate.h) is not decided by this.  `why` is the line that asks for it.
// False, having reported why, when nothing fits into memory.
bool search_axes(Sharding *s, const int *axis, int n, bool sums, const Cluster *c, const Loc *why,
                 SearchStats *out, Diag *d);

// Of a step that is decided: what it would take if one of the ops that are called so split
// otherwise, and all else stayed as it is.  NULL: none is called so, or this cannot be asked.
const char *search_otherwise(Sharding *s, const char *what);

#endif
