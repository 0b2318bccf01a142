// What of that which was found to repeat is taken, all at once, in a round of repeats.c.
//
//     families found       attention of 12 layers, mlp of 12 layers, a whole layer 11 times
//     the best             the layer: of it the most ops are left out
//     and with it          what does not overlap with it and is half as good
//
// A family is a block, or the pieces of one whose occurrences could not run one after the other:
// what grows through a layer's forward ops into their gradients is cut where it would have to wait,
// in all occurrences alike.

#ifndef REPEATS_CHOOSE_H
#define REPEATS_CHOOSE_H

#include "repeats_grow.h"

typedef struct Family {
  Vec(Tuples) piece;
  int64_t saves; // nodes; of one that is not divided yet, at most
  double worth;  // by which families are chosen
  int found;     // how many were found before
  bool shifted;  // growth_shifted
  bool divided;  // its occurrences can run one after the other
} Family;

typedef Vec(Family *) Families;

// One search of a graph.
typedef struct Search {
  Arena *scratch, *arena; // of the search, of the result
  Labels *labels;
  int min;
  Vec(Block *) block;
  int n_families;
  int64_t effort; // that is left
} Search;

void family_weigh(const Search *s, const Net *net, Family *f);

// Those that are taken, divided; none where nothing is worth it.  Sorts `all`.
Families families_choose(Search *s, const Net *net, Growth *growth, Families *all);

// Nodes in groups: the occurrences of what was chosen, and every other node.
typedef struct Grouping {
  int n;
  int *group; // by node
  Group *info;
} Grouping;

Grouping families_group(const Net *net, const Families *chosen, Arena *a);

#endif
