// The order in which ranks run a loop over time slices: the schedule of an entry graph.
//
//     %h  = linear %x, %w          : f32[2,6] @s0 {B} of=1 segment=F0
//     %h1 = move %h shape=[2,6]    : f32[2,6] @s1 {B} of=1 segment=F1
//     %g  = linear %d, %v   : f32[2,6] @s1 {B} backward of=2 segment=B1
//     %g1 = move %g shape=[2,6]    : f32[2,6] @s0 {B} backward of=2 segment=B0
//     …
//     run devices=0 F0*2 (F0 get %g1 B0)*6 (get %g1 B0)*2
//     run devices=1 (get %h1)*3 (F1 B1 get %h1)*5 (F1 B1)*3
//
// A segment consists of ops that a rank runs for one slice without waiting for other ranks except
// at its start: the forward of a stage, its gradients of inputs, its gradients of weights.  In a
// graph with a schedule, ops that run in every slice have a segment; ops that run once, before or
// after all slices (ir/analysis/place.h), and ops of other graphs have none.  The ops of a segment
// are adjacent in the graph.
//
// A run is the sequence of actions of the listed devices in a step, between the ops that run once.
// Each of its segments occurs once per slice, for slice 0 first, then for slice 1, and so on: no
// slice overtakes another.  The same holds for every `get`.
//
// A move runs in its position, like any op, if its segment produces its operand, or if it transfers
// nothing between devices.  Any other move starts at the end of the segment that produces its
// operand (if no segment does, of the first segment there), on all devices that have the operand;
// several start in the order of the graph.  Devices that only receive it wait for it at a `get`.
// All receivers have it when the segment of the move begins.  Starts and gets of all devices have
// one common order, that of some possible execution in time, so that there is no deadlock.
//
// Values that are produced in one segment and read in another are live for several slices at once.
// Each has `slots` slots (Value): slice m uses slot m modulo `slots`.

#ifndef IR_SCHEDULE_H
#define IR_SCHEDULE_H

#include "base/vec.h"
#include "ir/graph.h"

// Runs a segment, or waits for the result of a move.
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
  Vec(const char *) segment; // names; number 1 is at index 0
  Vec(RankRun) run;
};

Schedule *graph_schedule(Graph *g);                      // the graph's, created if it has none
int schedule_segment(Graph *g, const char *name);        // its number; created if new
const char *segment_name(const Graph *g, int segment);   // "F0"
const RankRun *graph_run_of(const Graph *g, int device); // NULL: not in the loop

// Whether the operand of a move is not produced by the move's own segment.
bool move_leads_on(const Op *move);
// Whether a move of the loop starts before its segment begins.
bool move_is_ahead(const Op *op);
// Whether one of these devices sends a part of the value to another.  With a copy that no other
// needs, it takes no part in the move.
bool move_sends(const Op *move, const int *device, int n);
// The segment after which devices of this run start a move that is ahead, if they have its operand.
int move_start(const Op *move, const RankRun *run);

// Printing and parsing of the lines after `return`.
void schedule_print(StrBuf *b, const Graph *g);
struct Parser;
bool schedule_parse(struct Parser *p); // parses one line, after `run`

#endif
