// The graph that repeats.c searches: each node is an op or an occurrence of a block found before.
//
// The inside of a block is such a net too, and a repeat in it is found in all occurrences of the
// block at once: the net has as many worlds as the block has occurrences, and a node stands for one
// member in each.

#ifndef REPEATS_NET_H
#define REPEATS_NET_H

#include "base/vec.h"
#include "repeats.h"

enum { OUTSIDE = -1, NEVER = 0 };

typedef struct Edge {
  int node, slot; // a result of a node; OUTSIDE for a parameter
} Edge;

typedef struct Reader {
  int node, operand, slot;
} Reader;

typedef struct Node {
  int label; // equal for nodes of the same computation; NEVER: in no block
  int first; // position in the graph of its first op: the order of ready nodes
  int n_ops, n_in, n_readers;
  Edge *in;
  Reader *reader;
  Member *member; // [worlds]
} Node;

// Nodes are in topological order.
typedef struct Net {
  int n, worlds;
  Node *node;
} Net;

// Nodes that occur k times: node[p * k + i] is at position p of occurrence i. Positions are in the
// order of the nodes of occurrence 0.
typedef struct Tuples {
  int k, n;
  int *node;
} Tuples;

typedef struct Labels Labels;

Labels *labels_new(int n_ops, Arena *a); // for a graph of about so many ops
int label_new(Labels *l);                // unlike all other labels

Net net_of_graph(const Graph *g, const bool *among, Labels *labels, Arena *a);
// The inside of a block, with one world for each world of the net and each occurrence.
Net net_inside(const Net *net, const Tuples *t, Arena *a);

// An order of groups of nodes in which they can run one after the other; false if there is none.
// `done` marks the groups in `order`. Groups are numbered from 0; group[node] is the node's.
bool net_order(const Net *net, const int *group, int n_groups, int *order, bool *done, Arena *a);
// Whether all operands of the node are done.
bool node_is_ready(const Net *net, const int *group, int node, const bool *done);

// A future node: an occurrence, or a single node.
typedef struct Group {
  const Tuples *tuples; // NULL: a single node
  int occurrence;       // in `tuples`; or the single node
  int family;           // of the block; see repeats.h
  int label;            // of the future node
  Member *member;       // [worlds]
} Group;

Net net_contract(const Net *net, const Group *info, const int *group, int n_groups,
                 const int *order, Arena *a);

#endif
