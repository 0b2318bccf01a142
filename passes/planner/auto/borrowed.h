// Costs of units that are borrowed from the table of another shape: before a shape gets a table.
//
//     table of         zero1=32,sp=2 in 16 micro-batches     2 rows of the batch on each rank
//     lends to         zero1=16,sp=2 in 32 micro-batches     2 rows: the same seconds of a micro-batch
//                      zero1=32,sp=2 in 32 micro-batches     1 row: half of them, or more
//                      zero1=16,sp=4 in 32 micro-batches     on twice the ranks: half of them, or more
//
// A kernel of fewer rows, or of a part of the weights, takes its share of the seconds at least, so
// the costs are bounds. Sums over replicas and updates are those of the table, by the bytes and
// links of each.

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
// Whether `l` is nearer to the point than `than`, if both can lend.
bool is_nearer(const Lender *l, const Lender *than);

// The costs of the units of a point with stages.
UnitCosts borrow_costs(const Lender *l, const Point *at, const StepWork *w, const Cluster *c,
                       Arena *a);
// The seconds that no plan of a point without stages is below.
double borrow_seconds(const Lender *l, const Point *at, const StepWork *w, const Cluster *c);
// Of these the seconds of all micro-batches.
double borrow_loop(const Lender *l, const Point *at, const StepWork *w);

#endif
