// What one mesh allows of values of so many dimensions: states (path_state.h), and the hops between
// them.
//
//     mesh (dp=2, tp=2), rank 1:   {B, B}  {B, P}  {B, S(0)}  {P, B}  …     a state for each layout
//
//     {B, S(0)} to {B, B}          all_gather along tp: its start, and seconds of each byte
//     {B, S(0)} to {S(0), S(0)}    slice: nothing
//
// A hop's seconds grow evenly with the bytes of the value, so one net serves all types.  It has
// hops only that become one op at just that price (transition.h).

#ifndef ROUTES_NET_H
#define ROUTES_NET_H

#include "base/vec.h"
#include "ir/graph.h"
#include "path_cost.h"

typedef struct Hop {
  int to;
  double start, byte; // seconds; of each byte of the value
  Edge edge;
} Hop;

typedef struct RouteNet {
  const Mesh *mesh;
  int rank;
  Group group[2];             // the second is empty
  uint8_t of_axis[PATH_AXES]; // of the group's axes: that of the mesh
  TensorShape shape;          // which every axis can cut everywhere
  Vec(State) state;
  int *first; // of each state: of its hops; and one more
  Vec(Hop) hop;
  int *at;                // by layout_number: its state + 1
  int *table, table_size; // state + 1 by hash; a power of two
  struct RouteNet *next;
} RouteNet;

// Its `at` is NULL where the mesh has too many axes.
RouteNet *route_net_new(Arena *a, const Cluster *c, Traffic *traffic, const Mesh *mesh, int rank);

// The state in which a value lies so.
int route_net_state(const RouteNet *net, const Layout *l);

#endif
