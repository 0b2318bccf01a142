// What the programs of a plan did, as one program of its own: a plan that is saved, edited by hand
// and read back.
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
// Programs change the model and the step first (`unpack`, `pieces`, `split_loss`, `pin`): these
// calls are recorded as they come.  What they, a search and propagation then decided is read off
// the graphs when all is decided: of every op what it splits along every axis and on which ranks it
// is, of weights and states how they lie.  Nothing is left open then.  Axes of time are not of the
// plan, as --accumulate and --micro-batches are not.
//
// Calls find the ops that they speak of before the first of them changes the graph, so that neither
// who writes them nor who reads them has to name all ops anew after each.

#ifndef RECORD_H
#define RECORD_H

#include "ir/analysis/op_names.h"
#include "plan_fingerprint.h"
#include "record_rows.h"
#include "sharding/sharding.h"

typedef Vec(const char *) Lines;

// Calls that changed a graph, and the ops that they speak of, which were all there before.
typedef struct RecordedCalls {
  const OpNames *names;
  int *number; // by op id: which of `ops` it is, from 1; 0: none
  Lines ops, calls;
  Vec(uint32_t) ids; // of `ops`
  int n_said;        // of `ops`: others were named for calls that changed nothing
} RecordedCalls;

typedef Vec(RecordedCalls) Changes;

// Of one graph that is an entry.
typedef struct GraphRecord {
  const char *graph;
  Changes model, step; // in the functions of these names
  Rows rows;           // of its ops
  bool decided;
} GraphRecord;

typedef struct Record {
  Arena *arena;
  Vec(GraphRecord) graphs;
  Rows params;    // of the first graph; the others have the same
  Rows offloaded; // of these the weights
  bool cross_barrier, optimizer_in_backward;
  Lines axes;  // none of one rank
  Lines lists; // of ranks, that are too long for a row
  int64_t size[MAX_AXES];
  MadeFor made_for;
  const char *schedule; // of micro-batches, where a program says it
  bool made;            // there is a plan
} Record;

// Before a call that may change the graph: it will speak of these ops.  `r` may be NULL.
void record_before(Record *r, Op *const *op, int n);
// "o[3]": what the call calls one of them; NULL where `r` is.
const char *record_op(Record *r, const Op *op);
// "{ o[1], o[2] }", of a record that there is.
const char *record_ops(Record *r, Op *const *op, int n);
// The call, if it changed anything: of `step`, where there are meshes, else of `model`.
void record_call(Record *r, const Graph *g, const char *fmt, ...) PRINTF_LIKE(3, 4);
// All that was decided of the graph.
void record_decided(Record *r, const Sharding *s);
// The program; NULL when no plan was made.
const char *record_text(Record *r, const char *source, int64_t micro_batches);

#endif
