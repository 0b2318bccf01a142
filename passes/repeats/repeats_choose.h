// The choice among the repeats found in a round of repeats.c.
//
//     families found       attention of 12 layers, mlp of 12 layers, a whole layer 11 times
//     the best             the layer: of it the most ops are left out
//     and with it          families that do not overlap with it and are half as good
//
// A family is a block, or the pieces of one, if its occurrences could not run one after the other.
// A block that grows through a layer's forward ops into their gradients is cut at the point that
// would have to wait, in all occurrences alike.

#ifndef REPEATS_CHOOSE_H
#define REPEATS_CHOOSE_H

#include "repeats_grow.h"

typedef struct Family {
  Vec(Tuples) piece;
  int64_t saves; // nodes; an upper bound before the family is divided
  double worth;  // the score by which families are chosen
  int found;     // number of families found before
  bool shifted;  // after growth_shifted
  bool divided;  // its occurrences can run one after the other
} Family;

typedef Vec(Family *) Families;

// The state of one search of a graph.
typedef struct Search {
  Arena *scratch, *arena; // of the search, of the result
  Labels *labels;
  int min;
  Vec(Block *) block;
  int n_families;
  int64_t effort; // remaining
} Search;

void family_weigh(const Search *s, const Net *net, Family *f);

// The chosen families, divided; none if no family is worth it. Sorts `all`.
Families families_choose(Search *s, const Net *net, Growth *growth, Families *all);

// Nodes in groups: one per occurrence of a chosen family, and one per other node.
typedef struct Grouping {
  int n;
  int *group; // by node
  Group *info;
} Grouping;

Grouping families_group(const Net *net, const Families *chosen, Arena *a);

#endif
