// Send/recv of intersections: see path_p2p.h.

#include "path_p2p.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// The number of elements that two pieces have in common, regardless of their shares.
static double common(const TensorShape *shape, const Piece *a, const Piece *b) {
  double elements = 1;
  for (int i = 0; i < shape->ndim; i++) {
    int64_t a_size = shape->dim[i] / a->parts[i], b_size = shape->dim[i] / b->parts[i];
    int64_t a_lo = a->index[i] * a_size, b_lo = b->index[i] * b_size;
    int64_t lo = a_lo > b_lo ? a_lo : b_lo;
    int64_t hi = a_lo + a_size < b_lo + b_size ? a_lo + a_size : b_lo + b_size;
    if (hi <= lo) return 0;
    elements *= (double)(hi - lo);
  }
  return elements;
}

// Devices sorted by piece.
struct Producers {
  Piece piece; // of any one of them
  int n_pieces;
  int *first; // [n_pieces + 1] index in `device`
  int *device;
};

// Numbers pieces densely: shares, then the dimensions' indices.
static int64_t piece_number(const TensorShape *shape, const Piece *p) {
  int64_t number = p->share;
  for (int i = 0; i < shape->ndim; i++)
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
  // Counting sort; from the last one back, so that devices keep their order.
  for (int i = 0; i < p->n_pieces; i++)
    p->first[i + 1] = p->first[i] + count[i];
  for (int x = g->n - 1; x >= 0; x--)
    p->device[p->first[number[x]] + --count[number[x]]] = g->device[x];
  return p;
}

// Iterates over the pieces of one share that overlap `want`, in the order of their numbers: `at` is
// the index of the current one in each dimension, from `first` to `last`.
typedef struct Overlap {
  int ndim, at[PLACEMENT_DIMS], first[PLACEMENT_DIMS], last[PLACEMENT_DIMS];
} Overlap;

static bool overlap_next(Overlap *o) {
  for (int d = o->ndim - 1; d >= 0; d--) {
    if (o->at[d]++ < o->last[d]) return true;
    o->at[d] = o->first[d];
  }
  return false;
}

// Sends the reader the missing parts of each share that its own sums up.  False above the limit.
static bool read_all(const P2p *q, const Producers *p, const Piece *want, int reader, Sends *out) {
  Piece have = p->piece;
  // The shares that one share sums up: if the producers have fewer, some consumers get zeros.
  for (have.share = want->share; have.share < have.shares; have.share += want->shares) {
    // The pieces of this share that overlap, by their index in each dimension.
    const TensorShape *shape = q->shape;
    Overlap o = {.ndim = shape->ndim};
    for (int d = 0; d < shape->ndim; d++) {
      int64_t size = shape->dim[d] / have.parts[d], length = shape->dim[d] / want->parts[d];
      if (!size || !length) continue; // no overlap
      int64_t lo = want->index[d] * length;
      o.at[d] = o.first[d] = (int)(lo / size);
      o.last[d] = (int)((lo + length - 1) / size);
    }
    do {
      memcpy(have.index, o.at, sizeof have.index);
      double elements = common(shape, &have, want);
      if (elements == 0) continue;
      // The nearest device that has it; of several, the one with the least to send so far.
      int64_t number = piece_number(shape, &have);
      int src = p->device[p->first[number]], least = 3;
      double busy = INFINITY;
      for (int i = p->first[number]; i < p->first[number + 1]; i++) {
        int device = p->device[i];
        bool near = cluster_node(q->c, device) == cluster_node(q->c, reader);
        int distance = device == reader ? 0 : near ? 1 : 2;
        if (distance > least) continue;
        double out_busy = traffic_out(q->traffic, device, reader);
        if (distance == least && out_busy >= busy) continue;
        src = device;
        least = distance;
        busy = out_busy;
        if (!distance) break; // its own part
      }
      traffic_message(q->traffic, src, reader, elements * shape->bytes);
      if (out) vec_push(q->arena, out, (Send){src, reader});
      if (traffic_exceeds(q->traffic, src, reader, q->limit)) return false;
    } while (overlap_next(&o));
  }
  return true;
}

Cost p2p_cost(const P2p *q, const Producers *p, const Group *to, const State *after, Sends *out) {
  // Above the limit the rest does not matter.
  bool on = true;
  for (int x = 0; x < to->n && on; x++) {
    Piece want = state_piece(q->shape, to, after, x);
    on = read_all(q, p, &want, to->device[x], out);
  }
  return traffic_cost(q->traffic);
}
