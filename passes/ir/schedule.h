// When ranks run what a loop over slices of time is made of: the schedule of an entry graph.
//
//     %h  = linear %x, %w          : f32[2,6] @s0 {B} of=1 segment=F0
//     %h1 = move %h shape=[2,6]    : f32[2,6] @s1 {B} of=1 segment=F1
//     %g  = linear %d, %v   : f32[2,6] @s1 {B} backward of=2 segment=B1
//     %g1 = move %g shape=[2,6]    : f32[2,6] @s0 {B} backward of=2 segment=B0
//     …
//     run devices=0 F0*2 (F0 get %g1 B0)*6 (get %g1 B0)*2
//     run devices=1 (get %h1)*3 (F1 B1 get %h1)*5 (F1 B1)*3
//
// A segment is what a rank runs of one slice without waiting for others but before it: the forward
// of a stage, its gradients of inputs, its gradients of weights.  Ops that run in every slice have
// one, in graphs with a schedule; those that run once, before or after all slices
// (ir/analysis/place.h), and those of other graphs have none.  The ops of a segment stand together
// in the graph.
//
// A run says what the devices that it lists do in a step between what runs once, in this order.
// Each of its segments is in it as often as there are slices, and the first time it is of slice 0,
// then of slice 1, and so on: no slice overtakes another.  So is every `get`.
//
// A move is done where it stands, as any op, if its segment makes what is moved, or if nothing of
// it goes from one device to another.  Any other starts where the segment ends that makes what is
// moved (of what no segment makes, the first segment that runs there), on all devices that have
// that; several in the order of the graph.  Those that only get it say where they begin to wait for
// it, `get`; all that get it have it when the segment of the move begins.  Starts and gets of all
// devices are in one order, that in which they are in some course of time, so that no two wait for
// each other.
//
// Values that are made in one segment and read in another are there for several slices at once.
// Each has `slots` places (Value): slice m is in the one of number m modulo `slots`.

#ifndef IR_SCHEDULE_H
#define IR_SCHEDULE_H

#include "base/vec.h"
#include "ir/graph.h"

// A segment runs, or what a move brings is waited for from here on.
typedef struct Action {
  int segment; // from 1; 0: a get
  Value *get;  // the result of the move
} Action;

typedef struct RankRun {
  int *device; // [n_devices]
  int n_devices;
  Vec(Action) action;
} RankRun;

struct Schedule {
  Vec(const char *) segment; // names; number 1 is at 0
  Vec(RankRun) run;
};

Schedule *graph_schedule(Graph *g);                      // the graph's, made now if there is none
int schedule_segment(Graph *g, const char *name);        // its number; a new one if there is none
const char *segment_name(const Graph *g, int segment);   // "F0"
const RankRun *graph_run_of(const Graph *g, int device); // NULL: it takes no part in the loop

// Whether a move takes what another segment than its own makes, or none.
bool move_leads_on(const Op *move);
// Whether a move starts before the segment begins in which it stands; of ops of the loop.
bool move_is_ahead(const Op *op);
// At the end of which segment devices of this run start a move that is ahead, if they have it.
int move_start(const Op *move, const RankRun *run);

// What print.c and parse.c write and read: the lines behind `return`.
void schedule_print(StrBuf *b, const Graph *g);
struct Parser;
bool schedule_parse(struct Parser *p); // one of them, after `run`

#endif
