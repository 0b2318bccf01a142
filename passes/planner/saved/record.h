// The effects of a plan's programs, as one program: a plan that is saved, edited by hand and read
// back.
//
//     nnaot mlp.onnx -g 4 --plan dp=2,tp=2 … --emit plan -o mine.lua
//
//     function factors(n) return { 2, 2 }, { "dp", "tp" } end
//
//     function model()
//       offload_row({ "h.#.fc.weight", 0, 11 })
//     end
//
//     function step()
//       --                                                      dp   tp
//       op_row("/fc1/MatMul",                "linear", "forward", 1, "0", "n") -- 0 k, k n -> 0 n
//       op_row({ "/h.#/fc/MatMul", 0, 11 },  "linear", "forward", 1, "0", "n") -- of all layers
//       …
//       param_row("fc1.weight", "weight", "-", 1)
//     end
//
//     nnaot mlp.onnx -g 4 --plan mine.lua …               the same plan, to the last byte of its ops
//
// Programs change the model and the step first (`unpack`, `pieces`, `replace`, `split_loss`,
// `pin`): these calls are recorded as they come. The decisions of programs, a search and
// propagation are read off the graphs at the end: the splits of every op along every axis and its
// ranks, the layouts of weights and states. Nothing is left open then. Time axes are not part of
// the plan, nor are
// --accumulate and --micro-batches.
//
// Calls find their ops before the first of them changes the graph, so that neither the writer nor
// the reader of a plan has to name all ops again after each.

#ifndef RECORD_H
#define RECORD_H

#include "ir/analysis/op_names.h"
#include "plan_fingerprint.h"
#include "record_rows.h"
#include "sharding/sharding.h"

typedef Vec(const char *) Lines;

// Calls that changed a graph, and the ops in their arguments, which all existed before.
typedef struct RecordedCalls {
  const OpNames *names;
  int *number; // by op id: its number in `ops`, from 1; 0: none
  Lines ops, calls;
  Vec(uint32_t) ids; // of `ops`
  int n_stated;      // of `ops`: the rest were named for calls without effect
} RecordedCalls;

typedef Vec(RecordedCalls) Changes;

// The record of an entry graph.
typedef struct GraphRecord {
  const char *graph;
  Changes model, step; // in the functions of these names
  Rows rows;           // of its ops
  bool decided;
} GraphRecord;

typedef struct Record {
  Arena *arena;
  Vec(GraphRecord) graphs;
  Rows params;              // of the first graph; the others have the same
  Rows offloaded;           // weights with offloaded states
  Rows offloaded_gradients; // weights with offloaded sums of gradients
  bool cross_barrier, optimizer_in_backward;
  Lines axes;  // empty for one rank
  Lines lists; // of ranks, too long for a row
  int64_t size[MAX_AXES];
  MadeFor made_for;
  const char *schedule; // of micro-batches, if a program sets it
  bool made;            // a plan was made
} Record;

// To be called before a change of the graph that names these ops. `r` may be NULL.
void record_before(Record *r, Op *const *op, int n);
// Returns the name of an op in a call, "o[3]"; NULL if `r` is NULL.
const char *record_op(Record *r, const Op *op);
// Returns "{ o[1], o[2] }"; `r` is not NULL.
const char *record_ops(Record *r, Op *const *op, int n);
// Records a call that changed something: in `step` if there are meshes, else in `model`.
void record_call(Record *r, const Graph *g, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Records all decisions of the graph.
void record_decided(Record *r, const Sharding *s);
// Returns the program; NULL if no plan was made. `peak_bytes`: of the rank with the most; 0:
// unknown.
const char *record_text(Record *r, const char *source, int64_t micro_batches, int64_t peak_bytes);

#endif
