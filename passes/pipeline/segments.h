// Segments of a loop over time slices: ops of a stage that run without waiting for other stages.
//
//     %a = linear %x, %w     : … @s0                F0
//     %h = move %a           : … @s1                F1
//     %m = fill …            : … @s1                F1   it waits for nothing; F1 reads it
//     %l = cross_entropy %h  : … @s1                F1
//     %d = …                 : … @s1 backward       B1
//     %g = move %d           : … @s0 backward       B0
//
// Every op of the loop has a depth: the largest number of hops, between sets of devices, on a path
// to it. A segment is the ops of one depth on the same devices in the same part of the step. Ops
// without slack, those on a longest path, define the depths of their devices. An op with slack and
// with readers on other devices takes one of these depths before its readers, in forward the last,
// in backward the next; if there is none, its own. So the first layers of a decoder, which wait for
// no encoder, are in the chunk of the model on their rank. Any other op gets the smallest depth of
// its readers. If it has none in the loop, it gets the depth of the next op with readers on other
// devices, or the largest depth there. So no op is a segment of its own without need. Hops lead to
// deeper segments, and only gradients read gradients, so segments never wait for each other in a
// circle.
//
// An op that waits for nothing, and runs on the devices of several stages, is in no stage. It is
// common to them:
//
//     %m = broadcast %mask      : … @all              F0   it is read on @s0 and on @s1
//     %g = reduce_sum %d        : … @all backward     B0
//
// So is a backward on such devices that have no forward of their own:
//
//     %g = linear_back_w %x, %d : … @all backward     B1.2    of a weight of @s0 and @s1
//
// A forward of moves only is in no stage either: it brings a value from an earlier stage to a later
// one through the devices of a third. It has the number of the next stage on its devices:
//
//     %h = move %a              : … @s1                F1.2   of @s0; @s1 begins later, as F1
//     %i = move %h              : … @s2                F2
//
// Stages count from 0, in the order of their forwards. A backward belongs to the stage with the
// most ops of which it has gradients, or else to the one from which it reads the most forward
// values, without those of weights alone: a value that many layers read, such as the seed of
// dropouts, is of the first. But a stage that would have no backward has the last one with
// gradients of it, if the other stage has several: gradients of a decoder wait for the backward of
// an encoder on their devices, which adds them, and may be the most there. With `split`, backward
// ops that serve only one gradient of a weight, or those of a weight and of its bias, are separate
// segments (W): no other gradient waits for them.
//
// With `by_piece`, each piece of the model has segments of its own, and pieces run in turn: forward
// from the first, backward from the last. An op of no piece, such as a sum over pieces, has the
// turn of the last piece that it depends on, or else of the first that reads it. No op waits for a
// later turn: an op that reads a value of a later turn than its piece's has that turn.

#ifndef SEGMENTS_H
#define SEGMENTS_H

#include "ir/graph.h"
#include "schedule/schedule.h"

typedef struct Segment {
  WorkKind kind; // WORK_F, WORK_B or WORK_W
  int stage, depth;
  int turn, piece; // with by_piece, both from 1; else 0
  int set;         // of devices
  const Mesh *mesh;
  const char *name; // "F0"
  bool is_common;   // to stages, or the gradient of such a segment
  bool is_relay;    // only moves
  const Op *first;
} Segment;

typedef struct Segments {
  int n, n_stages, n_sets;
  Segment *at;   // each after the segments that it reads; forwards, backwards, weights
  int *of;       // by op id: position in `at` plus 1; 0: none
  int *set_of;   // by mesh id: meshes with the same devices are one set
  bool *looping; // by op id: it runs in every slice
} Segments;

// Requires a graph on meshes, with ids in order.
Segments segments_find(const Graph *g, bool split, bool by_piece, Arena *a);
// Whether segment i reads values of segment k, at [i * n + k].
bool *segments_reads(const Segments *s, const Graph *g, Arena *a);

#endif
