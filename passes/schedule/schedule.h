// Pipeline schedules: the order of blocks on every device.
//
//     device 0   F0 F1 F2 F3 B0    B1 …          F1: stage 0, forward, micro-batch 1
//     device 1      F0 F1 F2 …                   each device has an order of its blocks; a block
//                                                runs as soon as possible
//
// A Pipeline is the problem: every micro-batch takes a route, a list of works (such as a stage's
// forward), each with its devices, time, dependencies, and the memory that it takes and a later
// work frees.  One work of one micro-batch is a block.  It has no orders; those are
//
//     orders      pairs of blocks on one device, of which the first runs before the second
//                 (op_order, as in passes/planner/plans): they define a kind, such as 1F1B
//     timeline    start and end of each block: schedule_list completes partial orders, by the same
//                 rule for all; schedule_run takes a complete order of each device
//     search      looks for orders with a smaller makespan, within the memory
//
// There are no graphs here, only times: `nnaot-plan schedule` takes times from its command line.
// Stages may differ in time and memory, devices may have several stages, a work may need several
// devices at once (a sharded embedding), and there may be several forwards before the backward.

#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

#include "base/diag.h"

// -- The problem -------------------------------------------------------------------------------

typedef enum WorkKind {
  WORK_F, // forward
  WORK_B, // gradient of the input; and of the weights, if there is no W
  WORK_W, // gradient of the weights
  WORK_E, // embedding on all devices, or its gradient
  N_WORK_KINDS,
} WorkKind;

extern const char *const work_kind_name[N_WORK_KINDS]; // "F", …

typedef struct WorkAfter {
  int work;       // an earlier one of the same route
  double latency; // after its end; devices are not busy meanwhile
} WorkAfter;

typedef struct Work {
  WorkKind kind;
  int stage, pass; // pass: of several forwards, from 1; of embeddings, 1 to 4
  double time;
  const int *device; // all busy at the same time
  int n_devices;
  double takes, frees; // memory on each of its devices: at its start, at its end
  const WorkAfter *after;
  int n_after;
} Work;

// Whether they exclude each other.
bool work_shares_device(const Work *v, const Work *w);

typedef struct Route {
  const Work *work;
  int n;
} Route;

typedef struct Pipeline {
  int n_devices, n_micro_batches;
  const Route *route;
  int n_routes;
  const int *route_of; // per micro-batch
  int pieces;          // per micro-batch; all micro-batches here are then pieces
} Pipeline;

// -- Blocks ------------------------------------------------------------------------------------

typedef struct Blocks {
  const Pipeline *pipeline;
  int n;
  const int *first;       // per micro-batch, and n at the end
  const int *micro_batch; // per block
  const Work **work;
  // Dependencies of block b, after[after_at[b] … after_at[b + 1]]; and its dependents.
  int *after_at, *after;
  double *latency; // per entry of `after`
  int *next_at, *next;
} Blocks;

Blocks *blocks_new(Arena *a, const Pipeline *p);
const char *block_text(Arena *a, const Blocks *b, int block); // "F(0, 3)": stage, micro-batch

typedef struct Order {
  int first, then; // blocks with a device in common
  const Loc *line; // of the order; NULL: a data dependency
} Order;

typedef struct Orders {
  Order *at;
  int n, cap;
} Orders;

// Whether orders and dependencies are acyclic; if not, reports a shortest cycle.
bool orders_check(const Blocks *b, const Orders *o, const Loc *file, Diag *d);
bool orders_agree(const Blocks *b, const Orders *o); // the same, without a report

// -- Timelines ---------------------------------------------------------------------------------

typedef struct Timeline {
  double *start, *end; // per block
  int *at, *block;     // in order, of device d: block[at[d] … at[d + 1]]
  double makespan;     // end of the last block
  double span;         // longest time of a device, from its first block's start to its last's end
  double bubble;       // the idle share of devices x makespan
  double *peak;        // peak memory per device
} Timeline;

// The priority rule of schedule_list: among the blocks that can start first, the one with the
// lowest rank, then with the lowest micro-batch.
typedef struct ListRule {
  int rank[N_WORK_KINDS];
  const double *key; // per block, instead of rank; or NULL
  bool makes_room;   // if a forward waits for memory, blocks that free it come first
  double room;       // memory limit of each device; INFINITY: none
} ListRule;

enum { N_LIST_RULES = 4 };
extern const ListRule list_rules[N_LIST_RULES];

// List scheduling.  False: a deadlock, if orders contradict the memory limit.
bool schedule_list(Arena *a, const Blocks *b, const Orders *o, const ListRule *rule, Timeline *out);
// Runs the blocks of each device in the order of t->at and t->block, as early as possible; fills in
// the rest.  False: a cycle.
bool schedule_run(Arena *a, const Blocks *b, Timeline *t);

// Runs the blocks of each device in order of their keys.
bool schedule_sorted(Arena *a, const Blocks *b, const double *key, Timeline *out);

double timeline_peak(const Blocks *b, const Timeline *t); // of the device with the largest
// The least memory limit: of a single micro-batch, with all its pieces, on the device that needs
// most.
double pipeline_least_room(Arena *a, const Pipeline *p);
// A lower bound of the makespan.
double pipeline_bound(Arena *a, const Pipeline *p);
double pipeline_longest(Arena *a, const Pipeline *p); // time of a single micro-batch

// -- Pipelines of equal stages -----------------------------------------------------------------

typedef struct Shape {
  int n_devices, n_stages;
  int n_micro_batches;        // or their pieces
  bool split;                 // B and W are separate blocks
  int forwards;               // the last one saves the activations for backward
  int pieces;                 // per micro-batch
  bool embedding;             // four blocks on all devices: lookup, output, and their gradients
  const int *device;          // [micro-batch][stage]
  double f, b, w, e, latency; // of all stages of a device; of one embedding; between devices
} Shape;

Pipeline *shape_pipeline(Arena *a, const Shape *s);
// The block, or -1 if there is no such micro-batch; `pass` from 1, for F and E.
int shape_block(const Shape *s, const Blocks *b, WorkKind kind, int stage, int micro_batch,
                int pass);
// Orders the pieces of a micro-batch on each stage, which has them on one device: forward each
// reads values of earlier pieces, and gradients run in reverse.
void shape_order_pieces(Arena *a, const Shape *s, const Blocks *b, Orders *o);

// -- Search ------------------------------------------------------------------------------------

typedef struct SearchResult {
  bool has;      // a feasible timeline is known
  Timeline best; // of the given blocks
  bool optimal;  // `best` is proven optimal; without `best`, there is none before the cutoff
} SearchResult;

typedef struct SearchLimit {
  int64_t work; // blocks tried: the result does not depend on the speed of the machine
  double end;   // of clock_seconds; INFINITY: never.  The best so far is the result
} SearchLimit;

// Searches for a makespan below `cutoff` (INFINITY: any).
SearchResult schedule_search(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                             SearchLimit limit);

// Part of the search: the steady state, unrolled; false: no makespan below `cutoff`.
bool schedule_repeat(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                     double end, Timeline *out);
// Swaps neighbours on a device as long as that helps.
void schedule_improve(Arena *a, const Blocks *b, double room, SearchLimit limit, Timeline *t);
// Beam search in order of time; exact if the beam dropped nothing.
SearchResult schedule_beam(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                           SearchLimit limit);

#endif
