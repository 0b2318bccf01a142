// What one rank does in a move: which boxes it gives to whom, and which it gets from whom.
//
//     0 -> 2  rows 0-1       1 -> 2  rows 0-1        2 gets of 0 and of 1, and adds up
//     0 -> 3  rows 2-3       1 -> 3  rows 2-3        0 gives to 2 and to 3
//     2 -> 4  rows 0-1       …                       2 gives to 4
//
// What one rank gives to another in a move are all its boxes for that, one after the other in the
// order of the messages: a parcel.  Who gets it takes it apart in the same order.  The parcels that
// a rank gives lie one after the other, too, and so do those it gets, where they are in one piece
// of memory.

#ifndef NNRT_ROUTE_H
#define NNRT_ROUTE_H

#include "boxes.h"
#include "runtime.h"

typedef struct RoutePeer {
  int rank;
  int64_t at, n; // its parcel, in elements of all parcels
} RoutePeer;

typedef struct RouteBox {
  const NnrtMessage *message;
  int peer;   // whose parcel it is in; -1: what it gets is its own
  int64_t at; // in all parcels, in elements; of its own, among what it keeps
} RouteBox;

typedef struct Route {
  const NnrtMove *move;
  // Those it gives to by how many ranks further they are, counted round; those it gets from by how
  // many back.
  int n_to, n_from;
  RoutePeer *to, *from;
  int64_t given, got, kept; // elements of all parcels, and of what is its own
  // In the order of the messages.
  int n_give, n_get;
  RouteBox *give, *get;
} Route;

Route nnrt_route_of(const NnrtProgram *p, int move, int rank);
void nnrt_route_free(Route *route);
// The box that goes from the rank's part into its parcel, or to what it keeps; from there into its
// part after; and there at once from its own part before.
Box nnrt_route_given(const Route *route, const RouteBox *b);
Box nnrt_route_got(const Route *route, const RouteBox *b);
Box nnrt_route_own(const Route *route, const RouteBox *b);
// The ranks that give to others or get of them, in order; how many they are.
int nnrt_move_ranks(const NnrtProgram *p, int move, int *out_ranks); // [p->ranks]

#endif
