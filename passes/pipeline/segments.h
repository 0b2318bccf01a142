// Segments of a loop over slices of time: what stages do of a slice without waiting for others.
//
//     %a = linear %x, %w     : … @s0                F0
//     %h = move %a           : … @s1                F1
//     %m = fill …            : … @s1                F1   it waits for nothing; F1 reads it
//     %l = cross_entropy %h  : … @s1                F1
//     %d = …                 : … @s1 backward       B1
//     %g = move %d           : … @s0 backward       B0
//
// Every op of the loop has a depth: the most hops, from devices to others, before it.  Ops that are
// on the same devices, of the same part of the step and as deep are a segment.  What others get is
// made as soon as it can be.  All else is as deep as what reads it there wants; what nobody reads
// there, as the next op that others wait for, or as the deepest: so nothing is a segment by itself
// that need not be one.  Hops lead to deeper segments, and gradients are read by gradients only, so
// segments never wait for each other in a circle.
//
// What waits for nothing and is done by each of the devices of several stages is no stage, but
// common to these:
//
//     %m = broadcast %mask      : … @all              F0   it is read on @s0 and on @s1
//     %g = reduce_sum %d        : … @all backward     B0
//
// Stages count from 0, in the order of their forwards.  Backwards are of the stage whose forward
// they read most of.  With `split`, what of them is of one gradient of a weight only is apart (W):
// no other gradient waits for it.
//
// With `by_piece`, what ranks do of each piece of the model is a segment of its own, and pieces
// take turns: forward the first is first, back the last is.  What is of no piece has the turn of
// the last that it reads something of, such as a sum over pieces, or else of the first that reads
// it.  No op waits for a later turn: one whose piece had it sooner has the turn of what it reads.

#ifndef SEGMENTS_H
#define SEGMENTS_H

#include "ir/graph.h"
#include "schedule/schedule.h"

typedef struct Segment {
  WorkKind kind; // WORK_F, WORK_B or WORK_W
  int stage, depth;
  int turn, piece; // by piece, both from 1; else 0
  int set;         // of devices
  const Mesh *mesh;
  const char *name; // "F0"
  bool is_common;   // or a gradient of what is
  const Op *first;
} Segment;

typedef struct Segments {
  int n, n_stages, n_sets;
  Segment *at; // in an order in which each comes after what it reads; forwards, backwards, weights
  int *of;     // by op id: which, from 1; 0: of none
  int *set_of; // by mesh id: meshes of the same devices are one set
  bool *looping; // by op id: it runs in every slice
} Segments;

// Of a graph on meshes, whose ids are in order.
Segments segments_find(const Graph *g, bool split, bool by_piece, Arena *a);
// Which segment, by the first index, reads what which makes: n * n of them.
bool *segments_reads(const Segments *s, const Graph *g, Arena *a);

#endif
