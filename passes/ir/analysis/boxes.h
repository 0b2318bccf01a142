// Which box of a tensor is where, and the messages that carry a value from one place to another.
//
//     mesh @m devices=0-3 (dp=2, tp=2)
//     mesh @s devices=2-5 (tp=4)
//     %y = move %x shape=[2,6] : f32[2,6] @s {S(0)}      %x: f32[4,6] {S(0), P}, f32[8,6] as a whole
//
//     before   0: rows 0-3, share 0      1: rows 0-3, share 1
//              2: rows 4-7, share 0      3: rows 4-7, share 1
//     after    2: rows 0-1     3: rows 2-3     4: rows 4-5     5: rows 6-7
//
// The messages of that move are, with rows as they lie in the parts of sender and receiver:
//
//     0 -> 2   rows 0-1 to 0-1, share 0        1 -> 2   rows 0-1 to 0-1, share 1
//     0 -> 3   rows 2-3 to 0-1, share 0        1 -> 3   rows 2-3 to 0-1, share 1
//     2 -> 4   rows 0-1 to 0-1, share 0        3 -> 4   …
//
// A receiver adds up what it gets, in the order of the shares, onto zeros: so all that get the same
// get the same bits.  Each element of every share comes to every receiver that wants it exactly
// once.  Where the value is a sum after the move, too, every share of it before goes to one share
// after, so that each group of devices that have one share each has all; one that gets none is
// zero.
//
// What is on many devices comes from one of them: from the receiver itself, where it has it;
// else from the nearest; among several of those, from the one that has sent least so far; then from
// the one whose number is closest.
//
// Along time nothing changes: each slice is moved by itself, in the same messages.  So before and
// after, the same axis of time must cut it into the same slices: see same_in_time.

#ifndef IR_BOXES_H
#define IR_BOXES_H

#include "base/vec.h"
#include "ir/graph.h"

// Where a device is on its mesh; along an axis of time, which slice it is at.
typedef struct Place {
  int coord[MAX_AXES];
} Place;

// A box of a tensor.
typedef struct Region {
  int64_t start[MAX_RANK], size[MAX_RANK];
} Region;

// Of the device at `position` of the mesh's list; of one device where the mesh is NULL.
Place mesh_place(const Mesh *mesh, int position, int slice);
// What is there of a tensor of type `whole`.  Several axes may cut one dimension, the first of them
// outermost.  All of it when `l` is NULL.
Region place_region(const Type *whole, const Layout *l, const Place *at);

typedef struct Message {
  int from, to;                               // devices; the same where nothing need be sent
  int share;                                  // of the sum before; 0 where it is none
  int64_t size[MAX_RANK];                     // of the box
  int64_t at_from[MAX_RANK], at_to[MAX_RANK]; // where it begins in the parts of both
} Message;
typedef Vec(Message) Messages;

// How far apart two devices are: less is nearer.  NULL: all are equally far.
typedef struct Distance {
  int (*between)(const void *context, int from, int to);
  const void *context;
} Distance;

// The messages of one slice that move a value of type `whole` from layout `from` to layout `to`, in
// the order of the receivers; of one receiver, in the order of the shares.
void move_messages(const Type *whole, const Layout *from, const Layout *to, const Distance *d,
                   Arena *a, Messages *out);
// Whether every device of the target has exactly its part already, so that there is nothing to do.
bool move_stays(const Type *whole, const Layout *from, const Layout *to);
// The same of types and layouts of a module, which remembers it: many ask, and few moves differ.
bool module_move_stays(const Module *m, const Type *whole, const Layout *from, const Layout *to);
// From one layout to another, as a number to find it by.
static inline uint64_t layouts_hash(const Type *whole, const Layout *from, const Layout *to) {
  const void *const at[] = {whole, from, to};
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < 3; i++)
    h = (h ^ (uint64_t)(uintptr_t)at[i]) * 0x9e3779b97f4a7c15u;
  return h >> 32;
}
int64_t message_bytes(const Message *m, const Type *t);

// Whether a slice of time has the same part of the tensor, as a whole, in both.
bool same_in_time(const Layout *a, const Layout *b);

#endif
