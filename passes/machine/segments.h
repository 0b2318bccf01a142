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
// Stages count from 0, in the order of their forwards.  Backwards are of the stage whose forward
// they read most of.  With `split`, what of them is of one gradient of a weight only is apart (W):
// no other gradient waits for it.

#ifndef SEGMENTS_H
#define SEGMENTS_H

#include "ir/graph.h"
#include "schedule/schedule.h"

typedef struct Segment {
  WorkKind kind; // WORK_F, WORK_B or WORK_W
  int stage, depth;
  int set; // of devices
  const Mesh *mesh;
  const char *name; // "F0"
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
Segments segments_find(const Graph *g, bool split, Arena *a);

#endif
