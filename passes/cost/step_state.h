// What the files that price a step share: see cost_step.h.
//
//     step_events.c     classes of ranks, who meets whom, and what ops take
//     step_programs.c   what each class does in which order, and where it waits
//     step_walk.c       when that is: all classes go on until each is through
//     cost_step.c       the step: begin, the slices of time, update, and what it comes to

#ifndef STEP_STATE_H
#define STEP_STATE_H

#include "base/vec.h"
#include "collectives.h"
#include "cost_comm.h"
#include "cost_step.h"
#include "timeline.h"

// -- Classes -----------------------------------------------------------------------------------

typedef struct Span {
  double from, to;
} Span;

typedef struct Classes {
  int n, *at;
} Classes;

// Who waits for whom where data moves: classes that have ranks in the same groups, and of a move
// those that send, and those that get.  Equal collectives share it.
typedef struct Meeting {
  int n;
  Classes *set;
} Meeting;

// Who has come so far, of one set in one slice; of a move there is one for both sets.
typedef struct Meet {
  int n_wanted, n_come;
  double latest; // when the last could begin; of a move on processors, when the last has sent
} Meet;

// An op, as it runs.
typedef struct Event {
  const Op *op;
  StepPart part;
  const Classes *on;      // its mesh
  double seconds;         // of what moves data
  const double *computes; // seconds of what computes, or copies to host memory, by class
  int starts;             // of a swap_wait: the number of what it waits for
  const Meeting *meeting; // of what moves data, else NULL
  Meet *meet;             // of that: [set][slice]; of a move, as if of one set
  int *n_wanted;          // who must come to it, by set
  int n_waits, *wait;     // numbers of events: all_reduces that it reads
  bool ahead;             // a move to another segment, for which there is a queue of its own
  bool carried;           // an all_reduce that ends in the step after
  int64_t due;            // of what the step before owes: the time of the op that it is due before
} Event;

// -- Programs ----------------------------------------------------------------------------------

typedef enum StepDo {
  DO_compute,
  DO_queue,  // is put in a queue of what moves data; the rank goes on
  DO_wait,   // until that queue has done it
  DO_copy,   // to host memory or back; the rank goes on
  DO_copied, // until that is done
} StepDo;

typedef struct Step {
  StepDo what;
  int event;
  int meet;         // DO_queue: which of its sets
  bool sends, gets; // DO_queue, of a move
} Step;

// What a class does without looking at its list of actions: a part of the step, a segment of it, or
// the get of a move.
typedef struct Program {
  Vec(Step) step;
  StepPart part;
  int segment; // of the schedule, or 0
  bool gets;   // only that
} Program;

typedef struct Task {
  const Program *program;
  int slice;
} Task;

// Something in a queue of a class.
typedef struct Job {
  const Step *step;
  int slice;
  double since; // when it was put there
  bool has_come;
} Job;

// What moves data, one after the other.
typedef struct Queue {
  double until; // it runs
  Vec(Job) job;
  int n_done;     // jobs
  Vec(Span) busy; // in order; those before `past` are over
  int past;
} Queue;

// Moves to other segments, and all else.
enum { QUEUE_here, QUEUE_ahead, N_QUEUES };

// Ranks that are on the same meshes, have the same run, and are of the same kind of device.
typedef struct Class {
  Device device;
  int kind;          // of it, in the cluster
  double now;        // until when its ops run
  double copying[2]; // until when it copies to host memory, and back
  double first;      // when it begins; INFINITY: not yet
  RankCost cost;
  Queue queue[N_QUEUES];
  Vec(Span) gap;  // its ops wait; not looked at yet whether its queues do, too
  double *copied; // by event, of the slice that runs: when it is copied
  double **done;  // by event, slice: when its queue has done it; NAN: not yet; NULL: it never does
  double *before; // by event, of what is carried: when that of the step before is done
  Vec(Task) task;
  int n_tasks, at; // of which are over, and steps of the next one
  double began;    // its first step that is no wait
} Class;

// -- All of it ---------------------------------------------------------------------------------

typedef struct StepState {
  const Module *m;
  const Graph *g;
  const Cluster *c;
  Target target;
  Arena *a;
  CommPrices *prices;
  int n_devices, *device;
  int *class_of; // by device of the cluster
  int n_classes;
  Class *class_at;
  Classes *on_mesh;        // by mesh id
  Vec(Meeting *) meetings; // by id of price
  int *event_of;           // by op id, of what moves data: its number, or -1
  Vec(Event) events;
  int n_slices, n_rooms;  // slices that are told apart: all of a schedule's, else 1
  StepTimeline *timeline; // what happens is written down there, or NULL
  Vec(int) todo;          // classes that may go on
  bool *is_todo;
} StepState;

// step_events.c
static inline bool op_swaps(const Op *op) {
  return op->kind == OP_swap_out || op->kind == OP_swap_in;
}
void step_find_classes(StepState *s);
void step_add_events(StepState *s);
// What `part` of the step is to a slice of it, as far as slices are told apart.
int step_room(const StepState *s, StepPart part, int slice);

// step_programs.c
// By class, of ops of a part.  With a schedule the loop has none.
// `settles`: with what the step before owes, which only the first slice does.
Program *step_part_programs(StepState *s, StepPart part, bool settles);
// The run of each class becomes its tasks.  false: that is no run of this many slices.
bool step_add_runs(StepState *s);

// step_walk.c
// Every class does its tasks, which are of that part.  false: they wait for each other in a circle.
bool step_walk(StepState *s, StepPart part, bool settles);
// At the end of the step all wait for the last; nothing is in their queues.
void step_end(StepState *s, double time);

#endif
