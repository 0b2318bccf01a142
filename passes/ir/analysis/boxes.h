// Boxes of tensors on devices, and the messages of a reshard.
//
//     mesh @m devices=0-3 (dp=2, tp=2)
//     mesh @s devices=2-5 (tp=4)
//     %y = move %x shape=[2,6] : f32[2,6] @s {S(0)}      %x: f32[4,6] {S(0), P}, f32[8,6] as a whole
//
//     before   0: rows 0-3, share 0      1: rows 0-3, share 1
//              2: rows 4-7, share 0      3: rows 4-7, share 1
//     after    2: rows 0-1     3: rows 2-3     4: rows 4-5     5: rows 6-7
//
// The messages of this move, with rows numbered within the shards of sender and receiver:
//
//     0 -> 2   rows 0-1 to 0-1, share 0        1 -> 2   rows 0-1 to 0-1, share 1
//     0 -> 3   rows 2-3 to 0-1, share 0        1 -> 3   rows 2-3 to 0-1, share 1
//     2 -> 4   rows 0-1 to 0-1, share 0        3 -> 4   …
//
// A receiver adds the shares that it gets to zeros, in the order of the shares, so replicas get the
// same bits.  Each element of every share reaches every receiver that needs it exactly once.  If
// the value is a partial sum after the move too, every source share goes to one target share, so
// each group of devices with one replica of every share holds the whole sum.  A target share
// without a source share is zero.
//
// A replicated box is sent by one of its holders: the receiver itself, if it is one; else the
// nearest device; among several of these, the one that has sent the least so far; then the one with
// the closest device number.
//
// The time axis is unchanged: each slice is moved by itself, with the same messages.  So the same
// time axis must split the value into the same slices before and after: see same_in_time.

#ifndef IR_BOXES_H
#define IR_BOXES_H

#include "base/vec.h"
#include "ir/graph.h"

// The coordinates of a device on its mesh; along a time axis, the slice.
typedef struct Place {
  int coord[MAX_AXES];
} Place;

// A box of a tensor.
typedef struct Region {
  int64_t start[MAX_NDIM], size[MAX_NDIM];
} Region;

// The place of the device at `position` of the mesh's list; of the only device if the mesh is NULL.
Place mesh_place(const Mesh *mesh, int position, int slice);
// The region of a tensor of type `whole` at `at`.  Several axes may split one dimension, the first
// outermost.  The whole tensor if `l` is NULL.
Region place_region(const Type *whole, const Layout *l, const Place *at);

typedef struct Message {
  int from, to;                               // devices; equal: a local copy
  int share;                                  // of the source partial sum, else 0
  int64_t size[MAX_NDIM];                     // of the box
  int64_t at_from[MAX_NDIM], at_to[MAX_NDIM]; // the start of the box in both shards
} Message;
typedef Vec(Message) Messages;

// The distance between two devices: less is nearer.  NULL: all are equally far.
typedef struct Distance {
  int (*between)(const void *context, int from, int to);
  const void *context;
} Distance;

// The messages of one slice that move a value of type `whole` from layout `from` to layout `to`,
// ordered by receiver, then by share.
void move_messages(const Type *whole, const Layout *from, const Layout *to, const Distance *d,
                   Arena *a, Messages *out);
// The same without their list: calls `visit` for each of them, in that order.
typedef void MessageVisitor(void *context, const Message *message);
void move_visit(const Type *whole, const Layout *from, const Layout *to, const Distance *d,
                MessageVisitor *visit, void *context);
// Whether every device of the target already has exactly its shard, so that the move is a no-op.
bool move_stays(const Type *whole, const Layout *from, const Layout *to);
// The same, for types and layouts of a module, cached in the module: queries are frequent and
// distinct moves are few.
bool module_move_stays(const Module *m, const Type *whole, const Layout *from, const Layout *to);
// The elements of a slice that devices get from others, without the list of messages; and the same
// for types and layouts of a module, cached.
int64_t move_elements(const Type *whole, const Layout *from, const Layout *to);
int64_t module_move_elements(const Module *m, const Type *whole, const Layout *from,
                             const Layout *to);
// A hash of the pair of layouts.
static inline uint64_t layouts_hash(const Type *whole, const Layout *from, const Layout *to) {
  const void *const at[] = {whole, from, to};
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < 3; i++)
    h = (h ^ (uint64_t)(uintptr_t)at[i]) * 0x9e3779b97f4a7c15u;
  return h >> 32;
}
int64_t message_bytes(const Message *m, const Type *t);

// Whether each time slice holds the same part of the global tensor in both layouts.
bool same_in_time(const Layout *a, const Layout *b);

#endif
