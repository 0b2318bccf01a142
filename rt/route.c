// Routes: see route.h.

#include "route.h"

#include <stdlib.h>

static int64_t message_size(const NnrtMove *m, const NnrtMessage *message) {
  int64_t n = 1;
  for (int d = 0; d < m->ndim; d++)
    n *= message->size[d];
  return n;
}

// Lists the peers that have parcels, of n[peer] elements, by (peer - rank) modulo the number of
// ranks, or by (rank - peer) for a `step` of -1.  Sets number[peer] to the peer's index in the
// list.
static int list_peers(const int64_t *n, int rank, int ranks, int step, RoutePeer *out, int *number,
                      int64_t *out_all) {
  int peers = 0;
  *out_all = 0;
  for (int k = 1; k < ranks; k++) {
    // The order in which phases.c begins.
    int peer = ((rank + step * k) % ranks + ranks) % ranks;
    if (n[peer] == 0) continue;
    number[peer] = peers;
    out[peers++] = (RoutePeer){peer, *out_all, n[peer]};
    *out_all += n[peer];
  }
  return peers;
}

static void list_boxes(Route *r, int rank, const int *to_number, const int *from_number) {
  const NnrtMove *m = r->move;
  int64_t *to_at = nnrt_must_alloc((size_t)r->n_to * sizeof *to_at);
  int64_t *from_at = nnrt_must_alloc((size_t)r->n_from * sizeof *from_at);
  int given = 0, got = 0;
  for (int i = 0; i < r->n_to; i++)
    to_at[i] = r->to[i].at;
  for (int i = 0; i < r->n_from; i++)
    from_at[i] = r->from[i].at;
  // Boxes are appended to the parcel of their peer, in the order of the messages.
  for (int i = 0; i < m->n; i++) {
    const NnrtMessage *message = &m->message[i];
    int64_t n = message_size(m, message);
    if (n == 0) continue;
    if (message->from == rank && message->to != rank) {
      int peer = to_number[message->to];
      r->give[given++] = (RouteBox){message, peer, to_at[peer]};
      to_at[peer] += n;
    }
    if (message->to != rank) continue;
    // A message to itself stays in the rank, without a parcel.
    int peer = message->from == rank ? -1 : from_number[message->from];
    int64_t *at = peer < 0 ? &r->kept : &from_at[peer];
    r->get[got++] = (RouteBox){message, peer, *at};
    *at += n;
  }
  free(to_at);
  free(from_at);
}

Route nnrt_route_of(const NnrtProgram *p, int move, int rank) {
  Route r = {.move = &p->move[move]};
  size_t ranks = (size_t)p->ranks;
  int64_t *to = nnrt_must_alloc(2 * ranks * sizeof *to), *from = to + ranks;
  int *to_number = nnrt_must_alloc(2 * ranks * sizeof *to_number), *from_number = to_number + ranks;
  // Messages without elements need no parcel; the others are counted by peer.
  const NnrtMove *m = r.move;
  for (int i = 0; i < m->n; i++) {
    const NnrtMessage *message = &m->message[i];
    int64_t n = message_size(m, message);
    if (n == 0) continue;
    bool gives = message->from == rank && message->to != rank;
    if (gives) to[message->to] += n;
    r.n_give += gives;
    if (message->to != rank) continue;
    if (message->from != rank) from[message->from] += n;
    r.n_get++;
  }
  // Most ranks have no part in most moves: they allocate nothing.
  if (r.n_give + r.n_get > 0) {
    r.to = nnrt_must_alloc(ranks * sizeof *r.to);
    r.from = nnrt_must_alloc(ranks * sizeof *r.from);
    r.give = nnrt_must_alloc((size_t)r.n_give * sizeof *r.give);
    r.get = nnrt_must_alloc((size_t)r.n_get * sizeof *r.get);
    r.n_to = list_peers(to, rank, p->ranks, 1, r.to, to_number, &r.given);
    r.n_from = list_peers(from, rank, p->ranks, -1, r.from, from_number, &r.got);
    list_boxes(&r, rank, to_number, from_number);
  }
  free(to);
  free(to_number);
  return r;
}

void nnrt_route_free(Route *r) {
  free(r->to);
  free(r->from);
  free(r->give);
  free(r->get);
}

Box nnrt_route_given(const Route *r, const RouteBox *b) {
  const NnrtMove *m = r->move;
  return (Box){m->ndim, b->message->size, NULL, NULL, m->from_dim, b->message->at_from};
}

Box nnrt_route_got(const Route *r, const RouteBox *b) {
  const NnrtMove *m = r->move;
  return (Box){m->ndim, b->message->size, m->to_dim, b->message->at_to, NULL, NULL};
}

Box nnrt_route_own(const Route *r, const RouteBox *b) {
  const NnrtMove *m = r->move;
  return (Box){m->ndim,           b->message->size, m->to_dim,
               b->message->at_to, m->from_dim,      b->message->at_from};
}

int nnrt_move_ranks(const NnrtProgram *p, int move, int *out_ranks) {
  const NnrtMove *m = &p->move[move];
  bool *in = nnrt_must_alloc((size_t)p->ranks * sizeof *in);
  int n = 0;
  for (int i = 0; i < m->n; i++)
    // A message that stays in its rank moves nothing.
    if (m->message[i].from != m->message[i].to && message_size(m, &m->message[i]) > 0)
      in[m->message[i].from] = in[m->message[i].to] = true;
  for (int rank = 0; rank < p->ranks; rank++)
    if (in[rank]) out_ranks[n++] = rank;
  free(in);
  return n;
}
