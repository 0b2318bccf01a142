// One rank's training, as step.c and evaluate.c share it.
//
//     step.c         puts graphs in and takes their answers: @train for steps, @eval for evaluate.c
//     evaluate.c     sums the answers of @eval over rows, and makes losses and metrics of them

#ifndef NNRT_STEP_H
#define NNRT_STEP_H

#include "device.h"

// The scalar results of a graph, NULL for none: loss, grad_norm and loss_scale of @train, parts of
// the loss of @eval.
typedef struct Outputs {
  const NnrtTensor *all[NNRT_ANSWERS];
  const NnrtTensor *here[NNRT_ANSWERS]; // those that this rank has
  bool says[NNRT_ANSWERS];              // this rank says it to the others
  // Of those here: results at the end of the step, and results of deferred updates.
  const NnrtTensor *now[NNRT_ANSWERS], *owed[NNRT_ANSWERS];
} Outputs;

typedef struct Trainer {
  NnrtRank *r;
  NnrtRun *run;
  const NnrtProgram *p;
  DataOrder order;
  Schedule schedule;
  int64_t first, steps; // of this run: the step it begins with, and the one before which it ends
  Outputs out, eval_out;
  NnrtFed fed;     // the batch of the graph that was put in last
  int fed_micros;  // its micro-batches that are in the slab so far
  int *slice;      // [parts] how often each has been in this walk
  double began_at; // the time of the step that is reported next, in µs
  bool under_way;  // a step was put in that is not answered
  bool found;      // something wrong in the data of a step that was answered
  bool unreadable; // rows of the graph that was put in last
  Why unreadable_why;
  float loss_scale; // that the last step left; NaN before the first
  bool log_failed;
} Trainer;

static inline bool is_root(const Trainer *t) {
  return t->r->rank == 0;
}

// ---- step.c

void nnrt_find_outputs(const NnrtRank *r, const NnrtGraph *g, const char *const *names, int n,
                       Outputs *out);
// Puts in a graph on the rows of step `index` of `data`; nnrt_take_answer(index) comes later.
void nnrt_put_graph(Trainer *t, const NnrtGraph *g, const Data *data, const DataOrder *order,
                    int64_t index, double lr, const Outputs *out);
void nnrt_take_answer(Trainer *t, int64_t index, double *out, double *out_when);
// Collective: whether all ranks could read their rows.  Ends the job if a kernel of a rank found an
// index out of range.  `io_signal` becomes the signal that any rank received, `io_value` the
// results of the ranks that report them.
bool nnrt_agree(Trainer *t, int64_t *io_signal, const Outputs *out, double *io_value);
// Collective: some rank has this, and the first of those that have it says it.
_Noreturn void nnrt_end_saying(const Trainer *t, bool mine, void (*say)(const Trainer *t));
void nnrt_say_unreadable(const Trainer *t);

// ---- evaluate.c

void nnrt_find_eval_outputs(const NnrtRank *r, Outputs *out);
Evaluation nnrt_evaluate(Trainer *t); // collective
// Collective: --eval-only, which rank 0 prints and logs; false after an error.
bool nnrt_evaluate_only(Trainer *t);

#endif
