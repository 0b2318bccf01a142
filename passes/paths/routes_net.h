// The graph of one mesh for values of so many dimensions: states (path_state.h), and hops between
// them.
//
//     mesh (dp=2, tp=2), ndim 1:   {B, B}  {B, P}  {B, S(0)}  {P, B}  …     a state for each layout
//
//     {B, S(0)} to {B, B}          all_gather along tp: its start, and seconds per byte
//     {B, S(0)} to {S(0), S(0)}    slice: no cost
//
// The cost of a hop is linear in the bytes of the value, so one net serves all types.  It has only
// hops that become one op at exactly that cost (transition.h).  A hop is priced when a route may
// take it, as a mesh of thousands of devices has hundreds of them.

#ifndef ROUTES_NET_H
#define ROUTES_NET_H

#include "base/vec.h"
#include "ir/graph.h"
#include "path_cost.h"

struct Rate; // of all hops that cost the same

typedef struct Hop {
  struct Rate *rate;
  double part; // of the value, that the rate is for
  Edge edge;
} Hop;

typedef struct RouteNet {
  const Mesh *mesh;
  int ndim;
  Group group[2];             // the second is empty
  uint8_t of_axis[PATH_AXES]; // per axis of the group: the axis of the mesh
  TensorShape shape;          // divisible by all axes in every dimension
  Vec(State) state;
  int *first; // [states + 1]: its first hop
  Vec(Hop) hop;
  Vec(int) to;            // by hop: its state; apart, as a query passes most hops by
  int *at;                // by layout_number: its state + 1
  int *table, table_size; // state + 1 by hash; a power of two
  struct Growing *prices;
  struct RouteNet *next;
} RouteNet;

// The seconds of a hop: those that do not depend on the bytes of the value, and the others.
double hop_start(const RouteNet *net, const Hop *hop);
double hop_bytes(const RouteNet *net, const Hop *hop, double bytes);

// Creates a net; its `at` is NULL if the mesh has too many axes.
RouteNet *route_net_new(Arena *a, const Cluster *c, Traffic *traffic, const Mesh *mesh, int ndim);

// The net of a mesh that has the devices of another one, shifted to other nodes, all of one kind:
// with its hops.  NULL: it has not.
RouteNet *route_net_shifted(Arena *a, const Cluster *c, const RouteNet *of, const Mesh *mesh);

// The state of a layout.
int route_net_state(const RouteNet *net, const Layout *l);

#endif
