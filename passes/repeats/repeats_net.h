// What repeats.c searches: a graph of nodes, each an op or, once found, an occurrence of a block.
//
// The inside of a block is such a net too, and what is found there is found in all occurrences of
// the block at once: it has as many worlds as the block has occurrences, and a node stands for one
// member in each.

#ifndef REPEATS_NET_H
#define REPEATS_NET_H

#include "base/vec.h"
#include "repeats.h"

enum { OUTSIDE = -1, NEVER = 0 };

typedef struct Edge {
  int node, slot; // a result of a node; the node is OUTSIDE for a parameter
} Edge;

typedef struct Reader {
  int node, operand, slot;
} Reader;

typedef struct Node {
  int label; // equal for nodes that compute the same of their operands; NEVER: is in no block
  int first; // the place in the graph of the first op: in what order nodes that are free to run do
  int n_ops, n_in, n_readers;
  Edge *in;
  Reader *reader;
  Member *member; // [worlds]
} Node;

// Nodes stand in an order in which they can run.
typedef struct Net {
  int n, worlds;
  Node *node;
} Net;

// Some nodes that occur k times: node[p * k + i] is the one at position p of occurrence i.
// Positions are in the order of the nodes of occurrence 0.
typedef struct Tuples {
  int k, n;
  int *node;
} Tuples;

typedef struct Labels Labels;

Labels *labels_new(int n_ops, Arena *a); // of a graph with about so many ops
int label_new(Labels *l);                // of what is like nothing else

Net net_of_graph(const Graph *g, const bool *among, Labels *labels, Arena *a);
// The inside of a block: one world for each world of the net and each occurrence.
Net net_inside(const Net *net, const Tuples *t, Arena *a);

// An order in which groups of nodes can run one after the other: false when there is none.  `done`
// says of each group whether it is in `order`.  Groups are numbered from 0; group[node] is the
// node's.
bool net_order(const Net *net, const int *group, int n_groups, int *order, bool *done, Arena *a);
// Whether all that the node reads is done.
bool node_is_ready(const Net *net, const int *group, int node, const bool *done);

// What becomes one node: an occurrence, or a node that stays one.
typedef struct Group {
  const Tuples *tuples; // NULL: one node
  int occurrence;       // in these; the node, where it is one
  int family;           // of the block; see repeats.h
  int label;            // of the node that it becomes
  Member *member;       // [worlds]
} Group;

Net net_contract(const Net *net, const Group *info, const int *group, int n_groups,
                 const int *order, Arena *a);

#endif
