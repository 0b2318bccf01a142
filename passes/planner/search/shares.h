// A share: the layouts of a value under each choice of the node that decides them.
//
//     %y = linear %x, %w     node of the op, choices: split 0, n, k
//       as it is made        {S(0)}  {S(1)}  {P}
//       as its gradient is   {S(0)}  {S(1)}  {B}
//
// Repeated layers have one node together, so a share is found once, and values with the same
// layouts have the same pointer. memory.c counts by that pointer.

#ifndef SEARCH_SHARES_H
#define SEARCH_SHARES_H

#include "ir/analysis/origin.h"
#include "problem.h"

typedef struct Share {
  int node;
  const Layout **layout; // by choice
  const struct Share *next;
} Share;

typedef struct Shares Shares;

// Shares live as long as the problem, intermediate results in `scratch`.
Shares *shares_new(Problem *p, Arena *scratch);
// Returns the share with these layouts under the choices of the node.
const Share *share_of(Shares *k, int node, const Layout **layout);
// Share of a parameter or of a value with several readers; with `back`, of its wanted gradient.
// NULL for node -1.
const Share *share_of_node(Shares *k, int node, bool back);
// Shares of a value as produced, and as a reader wants it; NULL: no known node decides its layout.
const Share *share_made(Shares *k, const Value *v);
const Share *share_read(Shares *k, const Use *u);
// Returns the node of the weight that an op updates; -1: none.
int updated_by(const Problem *p, const Op *op);

#endif
