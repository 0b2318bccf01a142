// The part of one rank in a move: the boxes that it sends to each rank and receives from each.
//
//     0 -> 2  rows 0-1       1 -> 2  rows 0-1        2 gets of 0 and of 1, and adds up
//     0 -> 3  rows 2-3       1 -> 3  rows 2-3        0 gives to 2 and to 3
//     2 -> 4  rows 0-1       …                       2 gives to 4
//
// All boxes from one rank to another in a move form a parcel: they are concatenated in the order of
// the messages, and the receiver unpacks them in the same order.  If all parcels that a rank sends
// are in one piece of memory, they are contiguous there, and so are those that it receives.

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
  int peer;   // index of the peer with its parcel, in `to` or `from`; -1: from the rank to itself
  int64_t at; // offset in all parcels, in elements; of peer -1, in the kept boxes
} RouteBox;

typedef struct Route {
  const NnrtMove *move;
  // Receivers, by (their rank - this rank) modulo the number of ranks; senders, by (this rank -
  // theirs).
  int n_to, n_from;
  RoutePeer *to, *from;
  int64_t given, got, kept; // elements of all parcels, and of the boxes from the rank to itself
  // In the order of the messages.
  int n_give, n_get;
  RouteBox *give, *get;
} Route;

Route nnrt_route_of(const NnrtProgram *p, int move, int rank);
void nnrt_route_free(Route *route);
// The box as copied from the rank's old part into a parcel, or among the kept boxes; from there
// into its new part; and directly from its own old part into its new one.
Box nnrt_route_given(const Route *route, const RouteBox *b);
Box nnrt_route_got(const Route *route, const RouteBox *b);
Box nnrt_route_own(const Route *route, const RouteBox *b);
// Lists the ranks that send to others or receive from them, in order; returns their number.
int nnrt_move_ranks(const NnrtProgram *p, int move, int *out_ranks); // [p->ranks]

#endif
