// One rank's training: the state that step.c and evaluate.c share.
//
//     step.c         puts graphs in and takes their answers: @train for steps, @eval for evaluate.c
//     evaluate.c     sums the answers of @eval over samples, and makes losses and metrics of them

#ifndef NNRT_STEP_H
#define NNRT_STEP_H

#include "device.h"
#include "replicas.h"

// The scalar results of a graph, NULL for none: loss, grad_norm and loss_scale of @train, parts of
// the loss of @eval.
typedef struct Outputs {
  const NnrtTensor *all[NNRT_ANSWERS];
  const NnrtTensor *here[NNRT_ANSWERS]; // those on this rank
  bool says[NNRT_ANSWERS];              // this rank sends it to the others
  // Of `here`: results at the end of the step, and results of deferred updates.
  const NnrtTensor *now[NNRT_ANSWERS], *deferred[NNRT_ANSWERS];
} Outputs;

typedef struct Trainer {
  NnrtRank *r;
  NnrtRun *run;
  const NnrtProgram *p;
  DataOrder order;
  LrSchedule schedule;
  int64_t resumed;      // step of the checkpoint, -1: none
  int64_t newer;        // step of a newer one that only this rank has, -1: none
  char host_0[64];      // rank 0's, once a newer one was found
  int64_t first, steps; // the first step of this run, and the step before which it ends
  Outputs out, eval_out;
  NnrtFed fed;     // the batch of the graph that was enqueued last
  int fed_micros;  // number of its micro-batches copied into the slab so far
  int *slice;      // [parts] number of occurrences of each in this walk so far
  double began_at; // start time of the step that is reported next, in µs
  bool under_way;  // a step was enqueued and not yet answered
  bool found;      // bad data was found in a step that was answered
  bool unreadable; // samples of the graph that was enqueued last
  Why unreadable_why;
  float loss_scale;      // after the last step; NaN before the first
  const char *saves;     // the signal that asks for a checkpoint; NULL: none
  Replicas *replicas;    // NULL: they are not compared
  int64_t compare_every; // steps
} Trainer;

static inline bool is_root(const Trainer *t) {
  return t->r->rank == 0;
}

// ---- step.c

void nnrt_find_outputs(const NnrtRank *r, const NnrtGraph *g, const char *const *names, int n,
                       Outputs *out);
// Enqueues a graph on the samples of step `index` of `data`; nnrt_take_answer(index) comes later.
void nnrt_put_graph(Trainer *t, const NnrtGraph *g, const Data *data, const DataOrder *order,
                    int64_t index, double lr, const Outputs *out);
void nnrt_take_answer(Trainer *t, int64_t index, double *out, double *out_when);
// Collective: whether all ranks could read their samples.  Ends the job if a kernel of a rank found
// an index out of range.  `io_signal` becomes the signal that any rank received, to end; NULL: it
// is not the time to ask.  `io_value` becomes the results of the ranks that report them.
bool nnrt_agree(Trainer *t, int *io_signal, const Outputs *out, double *io_value);
// Collective: of the ranks with `mine`, at least one, the first calls `say`; then all end.
_Noreturn void nnrt_end_with_message(const Trainer *t, bool mine, void (*say)(const Trainer *t));
void nnrt_say_unreadable(const Trainer *t);

// ---- evaluate.c

void nnrt_find_eval_outputs(const NnrtRank *r, Outputs *out);
Evaluation nnrt_evaluate(Trainer *t); // collective
// Collective: runs --eval-only, which rank 0 prints and logs; false after an error.
bool nnrt_evaluate_only(Trainer *t);

#endif
