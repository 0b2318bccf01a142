// The state shared by the files that simulate a step: see cost_step.h.
//
//     step_events.c     classes of ranks, participants of transfers, seconds of ops
//     step_programs.c   the program of each class: its order of ops and its waits
//     step_walk.c       the simulation: runs the classes until all are done
//     cost_step.c       the step: begin, the time slices, update, and the result

#ifndef STEP_STATE_H
#define STEP_STATE_H

#include "base/table.h"
#include "base/vec.h"
#include "collectives.h"
#include "cost_comm.h"
#include "cost_step.h"
#include "ir/analysis/in_flight.h"
#include "timeline.h"

// -- Classes -----------------------------------------------------------------------------------

typedef struct Span {
  double from, to;
} Span;

typedef struct Classes {
  int n, *at;
} Classes;

// The classes that wait for each other in a transfer: sets of classes with ranks in common groups,
// or the senders and the receivers of a move.  Equal collectives share it.
typedef struct Meeting {
  int n;
  Classes *set;
} Meeting;

// The arrivals of one set in one slice; a move has one for both sets.
typedef struct Meet {
  int n_wanted, n_come;
  double latest; // the latest arrival; for a move on CPUs, the end of the last send
} Meet;

// An op in the simulation.
typedef struct Event {
  const Op *op;
  StepPart part;
  const Classes *on;      // the classes of its mesh
  double seconds;         // of a transfer; of a computation, on the slowest class
  const double *computes; // seconds by class, of a computation or a copy to host memory
  int starts;             // of a swap_wait: the number of its swap
  const Meeting *meeting; // of a transfer, else NULL
  Meet *meet;             // of a transfer: [set][slice]; a move has one set
  int *n_wanted;          // classes that must arrive, by set
  int n_waits, *wait;     // numbers of the collectives that it waits for
  bool ahead;             // a move to another segment; it uses QUEUE_ahead
  bool is_first;          // of the first gathers of weights, which its program starts with
  int next_gather;        // of a gather of a weight ahead of its use: the one queued here, or -1
  bool in_flight;         // an all_reduce that ends in the next step
  int64_t due; // of an op deferred by the previous step: the time of the op before which it runs
} Event;

// -- Programs ----------------------------------------------------------------------------------

typedef enum StepDo {
  DO_compute,
  DO_queue,  // puts a transfer into its queue; the rank continues
  DO_wait,   // waits until the transfer is complete
  DO_copy,   // starts a copy to host memory or back; the rank continues
  DO_copied, // waits until the copy is complete
} StepDo;

typedef struct Step {
  StepDo what;
  int event;
  int meet;         // DO_queue: its set of the meeting
  bool sends, gets; // DO_queue, of a move
} Step;

// The steps of a class for one action: a part of the step, a segment of it, or the get of a move.
typedef struct Program {
  Vec(Step) step;
  StepPart part;
  int segment; // of the schedule, or 0
  bool gets;   // it is a get
} Program;

typedef struct Task {
  const Program *program;
  int slice;
} Task;

// A transfer in a queue of a class.
typedef struct Job {
  const Step *step;
  int slice;
  double since; // when it was queued
  bool has_come;
} Job;

// Transfers that run one after the other.
typedef struct Queue {
  double until; // when it is empty
  Vec(Job) job;
  int n_done;     // jobs
  Vec(Span) busy; // in order; those before `past` are in the past
  int past;
} Queue;

// QUEUE_ahead: moves to other segments.  QUEUE_here: all other transfers.
enum { QUEUE_here, QUEUE_ahead, N_QUEUES };

// Ranks on the same meshes, with the same run and the same kind of device.
typedef struct Class {
  Device device;
  int kind;          // of device, in the cluster
  double now;        // the end of its last op
  double copying[2]; // the end of its last copy to host memory, and back
  double first;      // the start of its first op; INFINITY: none yet
  RankCost cost;
  Queue queue[N_QUEUES];
  Vec(Span) gap;  // waiting times of its ops that are not yet compared with the queues' busy times
  double *copied; // by event, of the current slice: the end of the copy
  double **done; // end of the transfer, by event and slice; NAN: unknown; NULL: takes no part in it
  double *before; // end of the previous step's transfer, by event, if it is in flight
  Vec(Task) task;
  int n_tasks, at; // number of completed tasks; completed steps of the next one
  double began;    // start of its first step that is not a wait
} Class;

// -- The state ---------------------------------------------------------------------------------

typedef struct StepState {
  const Module *m;
  const Graph *g;
  const Cluster *c;
  Target target;
  Arena *a;
  CommPrices *prices;
  int n_devices, *device;
  int in_node;          // the most devices of the module in one node
  const Table *on_host; // weights that are offloaded, by label
  int *class_of;        // by device of the cluster
  int n_classes;
  Class *class_at;
  Classes *on_mesh;        // by mesh id
  Vec(Meeting *) meetings; // by id of price
  int *event_of;           // by op id, of transfers: the event's number, or -1
  Vec(Event) events;
  int n_slices, n_rooms;  // slices simulated separately: all with a schedule, else 1
  StepTimeline *timeline; // records the events, or NULL
  Vec(int) ready;         // classes that may be able to continue
  bool *is_queued;
} StepState;

// step_events.c
// Whether the step goes on beside a transfer, up to the first reader of its result.
static inline bool step_overlaps(const StepState *s, const Op *op) {
  return (op_overlaps(op, s->target) && !s->c->blocking) || gathers_ahead(s->c, op);
}
void step_find_classes(StepState *s);
void step_add_events(StepState *s);
// The index of the slice among those that are simulated separately; 0 outside of the loop.  Slice
// -1 is the last.
int step_room(const StepState *s, StepPart part, int slice);

// step_programs.c The programs of a part, by class.  Under a schedule the loop has none. `flushes`:
// includes the ops deferred by the previous step, which only the first slice runs.
Program *step_part_programs(StepState *s, StepPart part, bool flushes);
// Turns the run of each class into its tasks.  Returns false if a run has too many slices.
bool step_add_runs(StepState *s);

// step_walk.c Runs all tasks of the classes, which belong to that part.  Returns false on deadlock.
bool step_walk(StepState *s, StepPart part, bool flushes);
// Ends the step: all classes wait until `time`; their queues are empty.
void step_end(StepState *s, double time);

#endif
