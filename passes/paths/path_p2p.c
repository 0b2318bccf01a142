// Send/recv of intersections: see path_p2p.h.

#include "path_p2p.h"

#include <assert.h>
#include <string.h>

// Elements that two pieces have in common, whatever their shares.
static double common(const TensorShape *shape, const Piece *a, const Piece *b) {
  double elements = 1;
  for (int i = 0; i < shape->rank; i++) {
    int64_t a_size = shape->dim[i] / a->parts[i], b_size = shape->dim[i] / b->parts[i];
    int64_t a_lo = a->index[i] * a_size, b_lo = b->index[i] * b_size;
    int64_t lo = a_lo > b_lo ? a_lo : b_lo;
    int64_t hi = a_lo + a_size < b_lo + b_size ? a_lo + a_size : b_lo + b_size;
    if (hi <= lo) return 0;
    elements *= (double)(hi - lo);
  }
  return elements;
}

// Those with the same piece next to one another.
struct Producers {
  Piece piece; // of one of them
  int n_pieces;
  int *first; // index in `device`; one more than there are pieces
  int *device;
};

// Numbers pieces densely: shares, then the dimensions' indices.
static int64_t piece_number(const TensorShape *shape, const Piece *p) {
  int64_t number = p->share;
  for (int i = 0; i < shape->rank; i++)
    number = number * p->parts[i] + p->index[i];
  return number;
}

const Producers *p2p_producers(Arena *a, const TensorShape *shape, const Group *g, const State *s) {
  Producers *p = arena_one(a, Producers);
  p->first = arena_array(a, int, g->n + 1);
  p->device = arena_array(a, int, g->n);
  int *number = arena_array(a, int, g->n), *count = arena_array(a, int, g->n + 1);
  for (int x = 0; x < g->n; x++) {
    p->piece = state_piece(shape, g, s, x);
    number[x] = (int)piece_number(shape, &p->piece);
    assert(number[x] < g->n);
    count[number[x]]++;
    if (number[x] >= p->n_pieces) p->n_pieces = number[x] + 1;
  }
  for (int i = 0; i < p->n_pieces; i++)
    p->first[i + 1] = p->first[i] + count[i];
  for (int x = g->n - 1; x >= 0; x--)
    p->device[p->first[number[x]] + --count[number[x]]] = g->device[x];
  return p;
}

static int nearest(const Traffic *t, const Cluster *c, const int *device, int n, int reader) {
  int best = device[0], best_distance = 3;
  for (int i = 0; i < n; i++) {
    int distance = device[i] == reader                                     ? 0
                   : cluster_node(c, device[i]) == cluster_node(c, reader) ? 1
                                                                           : 2;
    if (distance < best_distance ||
        (distance == best_distance &&
         traffic_out(t, device[i], reader) < traffic_out(t, best, reader))) {
      best = device[i];
      best_distance = distance;
    }
  }
  return best;
}

// The pieces of one share that have something of `want`, in the order of their numbers: `at` is the
// index of the next in each dimension, of those from `first` to `last`.
typedef struct Overlap {
  int rank, at[PLACEMENT_DIMS], first[PLACEMENT_DIMS], last[PLACEMENT_DIMS];
} Overlap;

static Overlap overlap_of(const TensorShape *shape, const int *parts, const Piece *want) {
  Overlap o = {.rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) {
    int64_t size = shape->dim[d] / parts[d], length = shape->dim[d] / want->parts[d];
    if (!size || !length) continue; // nothing is in common
    int64_t lo = want->index[d] * length;
    o.at[d] = o.first[d] = (int)(lo / size);
    o.last[d] = (int)((lo + length - 1) / size);
  }
  return o;
}

static bool overlap_next(Overlap *o) {
  for (int d = o->rank - 1; d >= 0; d--) {
    if (o->at[d]++ < o->last[d]) return true;
    o->at[d] = o->first[d];
  }
  return false;
}

// What the reader lacks of each share that goes into its own.  false where the limit is exceeded.
static bool read_all(const P2p *q, const Producers *p, const Piece *want, int reader, Sends *out) {
  Piece have = p->piece;
  // Which shares a share is made of: where the producers have fewer, some get zeros.
  for (have.share = want->share; have.share < have.shares; have.share += want->shares) {
    Overlap o = overlap_of(q->shape, have.parts, want);
    do {
      memcpy(have.index, o.at, sizeof have.index);
      double elements = common(q->shape, &have, want);
      if (elements == 0) continue;
      int64_t i = piece_number(q->shape, &have);
      const int *device = p->device + p->first[i];
      int src = nearest(q->traffic, q->c, device, p->first[i + 1] - p->first[i], reader);
      traffic_message(q->traffic, src, reader, elements * q->shape->bytes);
      if (out) vec_push(q->arena, out, (Send){src, reader});
      if (traffic_exceeds(q->traffic, src, reader, q->limit)) return false;
    } while (overlap_next(&o));
  }
  return true;
}

Cost p2p_cost(const P2p *q, const Producers *p, const Group *to, const State *after, Sends *out) {
  bool on = true;
  for (int x = 0; x < to->n && on; x++) {
    Piece want = state_piece(q->shape, to, after, x);
    on = read_all(q, p, &want, to->device[x], out);
  }
  return traffic_cost(q->traffic);
}
