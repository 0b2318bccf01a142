// A plan in numbers: a point of the space that `--plan auto` searches (space.h).
//
//     pp_zb_h1=16,zero1=16,sp=4 in 64 micro-batches
//         stages 16, replicas 16, tensor 4, 64 micro-batches, zb-h1, ZeRO 1
//     pp=4,zero1=2,ep=8 in 16 micro-batches
//         stages 4, replicas 2, experts on 8 ranks, 16 micro-batches, 1f1b, ZeRO 1
//     pp=8,sp=4,recompute=1 in 128 micro-batches
//         stages 8, tensor 4, 128 micro-batches, 1f1b, every layer recomputed in backward
//     zero1=16,offload=1 in 4 micro-batches
//         replicas 16, 4 micro-batches, ZeRO 1, optimizer states in host memory
//     zero1=16,swap=1 in 4 micro-batches
//         replicas 16, 4 micro-batches, ZeRO 1, saved activations in host memory until backward
//
// Axes are in this order, outermost first: stages, replicas, experts, context, tensor. So the ranks
// with the most traffic are neighbours. Their product is the number of ranks.

#ifndef POINT_H
#define POINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "schedule/staged_kinds.h"
#include "unit_cost.h"

// The schedules of stages; each is a program of passes/planner/plans.
typedef enum PointKind {
  POINT_1f1b,
  POINT_zb_h1,
  POINT_zb_h2,
  POINT_interleaved,
  POINT_interlaced, // tables of words on all stages
  N_POINT_KINDS
} PointKind;

// The program of ranks inside of layers.
typedef enum PointInner { POINT_sp, POINT_vp, POINT_tp, N_POINT_INNERS } PointInner;

// The program of context parallelism.
typedef enum PointContext { POINT_cp, POINT_cp_a2a, N_POINT_CONTEXTS } PointContext;

typedef struct Point {
  int stages, replicas, tensor, context, experts;
  int64_t micro_batches;
  PointKind kind;     // of the schedule; POINT_1f1b with one stage
  int chunks;         // of the model on each rank: 2 or more if interleaved, else 1
  PointInner inner;   // POINT_sp with one tensor rank
  int zero;           // the parts of the training state that replicas share: 0 to 3, as in ZeRO
  PointContext along; // POINT_cp with one context rank
  int capacity;       // slots of expert ranks, in per cent of the mean; 0: for the worst routing
  RecomputeLevel recompute; // of all layers
  bool offload;             // states of all layers are in host memory
  bool swap;                // saved activations of all layers are in host memory until backward
  bool fewest; // or these of as few layers of each stage as fit: its text has the deal, too
} Point;

// Ranks of a stage, and of these the ones with rows of the batch of their own.
static inline int64_t point_inside(const Point *p) {
  return (int64_t)p->replicas * p->experts * p->context * p->tensor;
}

static inline int64_t point_row_ranks(const Point *p) {
  return (int64_t)p->replicas * p->experts;
}

bool point_equal(const Point *p, const Point *q);

StagedKind point_schedule(const Point *p);

// The programs of recomputation; NULL: of RECOMPUTE_none.  The program of states in host memory,
// and that of saved activations.
extern const char *const recompute_program[N_RECOMPUTE_LEVELS];
extern const char *const offload_program, *const swap_program;

// How many programs its text has.
int point_programs(const Point *p);

// The plan as in --plan: see plan_of.c.
const char *point_plan(Arena *a, const Point *p);
// The same with further programs: ",recompute:4=1", or "".
const char *point_plan_with(Arena *a, const Point *p, const char *savers);
// Reads the point of a plan's text. False: the text has a program that a point cannot express, or
// two for one number, or too many sizes are left open, or its programs are in another order, which
// moves ranks to other links: "dp,pp=2" is no point.
bool point_of_plan(const char *plan, int64_t ranks, int64_t micro_batches, Point *out);
// Reads the numbers of a plan of such programs in any order.
bool plan_numbers(const char *plan, int64_t ranks, int64_t micro_batches, Point *out);

#endif
