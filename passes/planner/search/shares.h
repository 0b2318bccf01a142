// How values lie by the choices of the nodes that decide it: a share.
//
//     %y = linear %x, %w     node of the op, choices: split 0, n, k
//       as it is made        {S(0)}  {S(1)}  {P}
//       as its gradient is   {S(0)}  {S(1)}  {B}
//
// Layers that are decided alike have a node together, so shares are found once and are the same
// pointer for all values that lie alike: that is what memory.c counts by.

#ifndef SEARCH_SHARES_H
#define SEARCH_SHARES_H

#include "ir/analysis/origin.h"
#include "problem.h"

typedef struct Share {
  int node;
  const Layout **lies; // of each choice
  const struct Share *next;
} Share;

typedef struct Shares Shares;

// What is found lives as long as the problem, what helps to find it in `scratch`.
Shares *shares_new(Problem *p, Arena *scratch);
// The one that lies so by the choices of the node.
const Share *share_of(Shares *k, int node, const Layout **lies);
// Of a parameter, or a value that several read; or how its gradient is wanted.  NULL for node -1.
const Share *share_of_node(Shares *k, int node, bool back);
// How a value lies as it is made, and as a reader wants it; NULL: nothing that is known decides it.
const Share *share_made(Shares *k, const Value *v);
const Share *share_read(Shares *k, const Use *u);
// The node of the weight that an op updates; -1: of none.
int updated_by(const Problem *p, const Op *op);

#endif
