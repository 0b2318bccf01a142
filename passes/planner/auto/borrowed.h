// Costs of units that are borrowed from the table of another shape: before a shape gets a table.
//
//     table of         zero1=32,sp=2 in 16 micro-batches     2 rows of the batch on each rank
//     lends to         zero1=16,sp=2 in 32 micro-batches     2 rows: the same seconds of a micro-batch
//                      zero1=32,sp=2 in 32 micro-batches     1 row: half of them, or more
//                      zero1=16,sp=4 in 32 micro-batches     on twice the ranks: half of them, or more
//
// Why they are bounds. The point's rank has a share x <= 1 of the rows and weights of the lender's.
//
//     kernels   take  start + max(flops / speed, bytes / memory speed).  The speed of a product does
//               not grow as its flops shrink (cost.h), so a share of the flops and bytes takes x of
//               the seconds at least.  A unit has the same kernels in both
//     within    collectives between the ranks of a layer: as many, of x of the bytes, in rings of as
//     layers    many ranks or more, each of which has as long a way
//     sums      over replicas: the bytes of all gradients at the full speed of the links, without
//               latencies and without the gathers of ZeRO: the term `after` of bounds.h, shared by
//               units as the lender's are; and the lender's own, if they are over fewer replicas at
//               the same distance: a ring of more has more steps, and each rank sends no less
//     update    kernels of a share, as above; copies of a share of the states from host memory
//
// A lender without collectives that the point lacks is all that can_lend asks for. Each figure of a
// deal's bound grows with the costs of its units, so the least over all deals is a bound as well.
// Parts are not always equal, for which prices.c leaves a hundredth. Tests compare the bounds that
// points of random models borrow with those of their own tables (`test_unit auto 1-20`).

#ifndef BORROWED_H
#define BORROWED_H

#include "cluster/cluster.h"
#include "point.h"
#include "step_work.h"
#include "tables.h"

// A table, and a point of its shape.
typedef struct Lender {
  Point at;
  const Table *table;
} Lender;

typedef Vec(Lender) Lenders;

// Whether the table bounds the point's costs.
bool can_lend(const Lender *l, const Point *at);
// Whether it bounds those in the loop, which do not depend on ZeRO-1.
bool lends_loop(const Lender *l, const Point *at);
// Whether `l` is nearer to the point than `than`, if both can lend.
bool is_nearer(const Lender *l, const Lender *than, const Point *at);

// Whether the point's sums take the lender's seconds at least.
bool lends_sums(const Lender *l, const Point *at);

// The costs of the units of a point with stages.
UnitCosts borrow_costs(const Lender *l, const Point *at, const StepWork *w, const Cluster *c,
                       Arena *a);
// The same without sums and updates, of a table that bounds the loop. Its bytes are no bounds.
UnitCosts borrow_loop_costs(const Lender *l, const Point *at, const StepWork *w, const Cluster *c,
                            Arena *a);
// Scales the bytes and seconds of states in host memory, which are those of the lender's shape.
void borrow_away(const Lender *l, const Point *at, UnitCosts *units, Arena *a);
// The seconds that no plan of a point without stages is below.
double borrow_seconds(const Lender *l, const Point *at, const StepWork *w, const Cluster *c);
// Of these the seconds of all micro-batches.
double borrow_loop(const Lender *l, const Point *at, const StepWork *w);

#endif
