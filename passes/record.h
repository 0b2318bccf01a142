// What the programs of a plan did, as one program of its own: a plan that is saved, edited by hand
// and read back.
//
//     nnaot mlp.onnx -g 4 --plan dp=2,tp=2 … --emit plan -o mine.lua
//
//     function factors(n) return { 2, 2 }, { "dp", "tp" } end
//
//     local ops_of = {
//       step = {
//         --                                                   dp    tp
//         { "/fc1/MatMul", "linear", "forward", 1, "0", "n" },         -- 0 k, k n -> 0 n
//         …
//     local parameters = {
//         { "fc1.weight", "weight", "-", 1 },
//
//     nnaot mlp.onnx -g 4 --plan mine.lua …                    the same plan, to the last byte of its ops
//
// Programs change the model and the step first (`unpack`, `pieces`, `split_loss`, `pin`): these
// calls are recorded as they come.  What they, a search and propagation then decided is read off
// the graphs when all is decided: of every op what it splits along every axis and on which ranks it
// is, of weights and states how they lie.  Nothing is left open then.  Axes of time are not of the
// plan, as --accumulate and --micro-batches are not.

#ifndef RECORD_H
#define RECORD_H

#include "base/vec.h"
#include "sharding.h"

typedef Vec(const char *) Lines;

// Of one graph that is an entry.
typedef struct GraphRecord {
  const char *graph;
  Lines model, step; // calls that changed it in its functions of these names
  Lines rows;        // of its ops
  bool decided;
} GraphRecord;

typedef struct Record {
  Arena *arena;
  Vec(GraphRecord) graphs;
  Lines params; // of the first graph; the others have the same
  Lines axes;   // none of one rank
  int64_t size[MAX_AXES];
  bool made;     // there is a plan
  bool assigned; // some op runs on some ranks only
} Record;

// "op(…)": the op as it is called now, for what is then recorded; NULL where `r` is.
const char *record_op(Record *r, const Op *op);
// A call that changed the graph: of `step`, where there are meshes, else of `model`.
void record_call(Record *r, const Graph *g, const char *fmt, ...) PRINTF_LIKE(3, 4);
// All that was decided of the graph.
void record_decided(Record *r, const Sharding *s);
// The program; NULL when no plan was made.
const char *record_text(Record *r, const char *source, int64_t micro_batches);

#endif
