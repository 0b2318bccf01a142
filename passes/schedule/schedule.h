// Which block of a pipeline every device runs when.
//
//     device 0   F0 F1 F2 F3 B0    B1 …          F1: stage 0, forward, micro-batch 1
//     device 1      F0 F1 F2 …                   each device has its blocks in an order; a block
//                                                runs as soon as it can
//
// A Pipeline says what is to be done: every micro-batch takes a route, a list of works (a stage's
// forward, say), each with its devices, its time, what it waits for and what memory it takes until
// which later work.  One work of one micro-batch is a block.  It says nothing of orders: those are
//
//     orders      pairs of blocks on one device, of which the first runs before the second
//                 (op_order, as in passes/planner/plans): what a kind, such as 1F1B, is
//     timeline    what becomes of them: schedule_list fills in what they leave open, one rule for
//                 all; schedule_run takes the order of each device as it is
//     search      looks for orders with which the last block ends earlier, in the memory there is
//
// No graph is known here, only times: `nnaot-plan schedule` asks with times from its command line.
// Stages may differ in times and memory, devices may have several, a work may need several devices
// at once (a split embedding), and there may be several forwards before the backward.

#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

#include "base/diag.h"

// -- What is to be done ------------------------------------------------------------------------

typedef enum WorkKind {
  WORK_F, // forward
  WORK_B, // gradient of the input; where it is not split, of the weights as well
  WORK_W, // gradient of the weights
  WORK_E, // on all devices: an embedding, or its gradient
  N_WORK_KINDS,
} WorkKind;

extern const char *const work_kind_name[N_WORK_KINDS]; // "F", …

typedef struct WorkAfter {
  int work;       // of the same route, earlier in its list
  double latency; // from its end; no device is busy meanwhile
} WorkAfter;

typedef struct Work {
  WorkKind kind;
  int stage, pass; // of several forwards, from 1; of embeddings, which of the four
  double time;
  const int *device; // all are busy at the same time
  int n_devices;
  double takes, frees; // memory on each of its devices: when it begins, when it ends
  const WorkAfter *after;
  int n_after;
} Work;

// Whether they cannot be at the same time.
bool work_shares_device(const Work *v, const Work *w);

typedef struct Route {
  const Work *work;
  int n;
} Route;

typedef struct Pipeline {
  int n_devices, n_micro_batches;
  const Route *route;
  int n_routes;
  const int *route_of; // of each micro-batch
  int pieces;          // of each micro-batch, which stand for it everywhere here
} Pipeline;

// -- Blocks ------------------------------------------------------------------------------------

typedef struct Blocks {
  const Pipeline *pipeline;
  int n;
  const int *first;       // of each micro-batch, and n
  const int *micro_batch; // of each block
  const Work **work;
  // What waits for what: of block b, after[after_at[b] … after_at[b + 1]], and who waits for b.
  int *after_at, *after;
  double *latency; // of each of `after`
  int *next_at, *next;
} Blocks;

Blocks *blocks_new(Arena *a, const Pipeline *p);
const char *block_text(Arena *a, const Blocks *b, int block); // "F(0, 3)": stage, micro-batch

typedef struct Order {
  int first, then; // blocks with a device in common
  const Loc *line; // who said it; NULL: the second reads what the first makes
} Order;

typedef struct Orders {
  Order *at;
  int n, cap;
} Orders;

// Whether some order of all blocks keeps all of this; if not, reports the shortest circle.
bool orders_check(const Blocks *b, const Orders *o, const Loc *file, Diag *d);
bool orders_agree(const Blocks *b, const Orders *o); // the same, without a word

// -- Timelines ---------------------------------------------------------------------------------

typedef struct Timeline {
  double *start, *end; // of each block
  int *at, *block;     // those of device d, in order: block[at[d] … at[d + 1]]
  double makespan;     // when the last block ends
  double span;         // of the device with most: from its first block's start to its last's end
  double bubble;       // how much of devices x makespan is idle
  double *peak;        // of each device: the most memory that is taken at one time
} Timeline;

// How schedule_list chooses where orders leave it a choice: of the blocks that can begin first,
// that of the lowest rank, then of the lowest micro-batch.
typedef struct ListRule {
  int rank[N_WORK_KINDS];
  const double *key; // of each block, instead of rank; or NULL
  bool makes_room;   // what gives memory back comes first where a forward waits for it
  double room;       // no device takes more memory at a time; INFINITY: any
} ListRule;

enum { N_LIST_RULES = 4 };
extern const ListRule list_rules[N_LIST_RULES];

// False: it got stuck, as room and orders contradict each other.
bool schedule_list(Arena *a, const Blocks *b, const Orders *o, const ListRule *rule, Timeline *out);
// Each device runs its blocks as t->at and t->block say, as early as it can; fills in the rest.
// False: they wait for each other in a circle.
bool schedule_run(Arena *a, const Blocks *b, Timeline *t);

// Each device runs its blocks in order of their keys.
bool schedule_sorted(Arena *a, const Blocks *b, const double *key, Timeline *out);

double timeline_peak(const Blocks *b, const Timeline *t); // of the device with most
// What a device needs for a micro-batch alone, with all its pieces, at the worst device: nothing
// works with less.
double pipeline_least_room(Arena *a, const Pipeline *p);
// No timeline ends earlier.
double pipeline_bound(Arena *a, const Pipeline *p);
double pipeline_longest(Arena *a, const Pipeline *p); // a micro-batch alone

// -- Pipelines of equal stages -----------------------------------------------------------------

typedef struct Shape {
  int n_devices, n_stages;
  int n_micro_batches;        // or as many of their pieces
  bool split;                 // B and W are two blocks
  int forwards;               // of which the last keeps what the backward needs
  int pieces;                 // of each micro-batch
  bool embedding;             // four blocks on all devices: lookup, output, and their gradients
  const int *device;          // [micro-batch][stage]
  double f, b, w, e, latency; // of all stages of a device; of one embedding; between devices
} Shape;

Pipeline *shape_pipeline(Arena *a, const Shape *s);
// The block, or -1 where there is no such micro-batch; `pass` from 1, of F and E.
int shape_block(const Shape *s, const Blocks *b, WorkKind kind, int stage, int micro_batch,
                int pass);
// In what order a stage has the pieces of a micro-batch, which it has on one device: forward each
// reads what those before it have left there, and gradients go back in the other order.
void shape_order_pieces(Arena *a, const Shape *s, const Blocks *b, Orders *o);

// -- Search ------------------------------------------------------------------------------------

typedef struct SearchResult {
  bool has;      // a timeline that fits is known
  Timeline best; // of the blocks asked about
  bool optimal;  // proven to be
} SearchResult;

// Looks for something that ends before `cutoff` (INFINITY: anything).  `work`: how much is looked
// at, in blocks that are tried; the answer does not depend on how fast the machine is.
SearchResult schedule_search(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                             int64_t work);

// Its parts: the part that repeats, unrolled; false: nothing ends before `cutoff`.
bool schedule_repeat(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                     Timeline *out);
// Neighbours on a device change places as long as that helps.
void schedule_improve(Arena *a, const Blocks *b, double room, int64_t work, Timeline *t);
// Beginnings in order of time, of which the best are kept; exact where none had to be dropped.
SearchResult schedule_beam(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                           int64_t work);

#endif
