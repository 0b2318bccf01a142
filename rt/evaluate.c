// Evaluation: the loss over all samples of --eval-input, in file order, and metrics.
//
// @eval is a graph of one batch (passes/train/eval_graph.c).  Its results are sums over the samples
// or means over the batch, so that results of batches add up:
//
//     samples 0..7 | samples 8..15 | 16 17 18      batch 8: two whole ones, and 3 samples are left
//
//     loss           a mean over samples of equal weight: of batches, the partial one weighted
//     loss.batch     a mean over whole batches, as no sample has a loss of its own
//     loss.sum.1 / loss.count.1     a mean over labels that count, of which samples differ in number
//     accuracy(y).right, .wrong     how many labels the metric counts
//
// The remaining samples are repeated until they fill a batch; see add_samples.

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "step.h"

// The outputs of @eval (passes/train/eval_graph.c).
enum {
  EVAL_loss,
  EVAL_batch,
  EVAL_sum,
  N_QUOTIENTS = 3,
  EVAL_count = EVAL_sum + N_QUOTIENTS,
  EVAL_right = EVAL_count + N_QUOTIENTS, // of requested metrics
  EVAL_wrong = EVAL_right + MAX_METRICS
};
_Static_assert((int)EVAL_wrong + (int)MAX_METRICS == (int)NNRT_ANSWERS, "an answer for each");
static const char *const eval_outputs[EVAL_right] = {"loss",         "loss.batch",  "loss.sum.1",
                                                     "loss.sum.2",   "loss.sum.3",  "loss.count.1",
                                                     "loss.count.2", "loss.count.3"};

bool nnrt_eval_couples_samples(const NnrtProgram *p) {
  return nnrt_find_tensor(&p->eval, NNRT_output, eval_outputs[EVAL_batch]) != NULL;
}

void nnrt_find_eval_outputs(const NnrtRank *r, Outputs *out) {
  const Flag *metric = &r->run->flags.metric;
  char *made[2 * MAX_METRICS] = {0};
  const char *names[NNRT_ANSWERS];
  for (int i = 0; i < EVAL_right; i++)
    names[i] = eval_outputs[i];
  // Metrics that were not requested take no outputs.
  for (int i = 0; i < MAX_METRICS; i++) {
    const char *right = "", *wrong = ""; // no output has this name
    if (i < metric->n) {
      right = made[2 * i] = nnrt_must_format("%s.right", metric->list[i]);
      wrong = made[2 * i + 1] = nnrt_must_format("%s.wrong", metric->list[i]);
    }
    names[EVAL_right + i] = right;
    names[EVAL_wrong + i] = wrong;
  }
  nnrt_find_outputs(r, &r->program->eval, names, NNRT_ANSWERS, out);
  for (int i = 0; i < 2 * MAX_METRICS; i++)
    free(made[i]);
}

static void put_eval(Trainer *t, const Data *d, int64_t index) {
  static const DataOrder file_order;
  nnrt_put_graph(t, &t->p->eval, d, &file_order, index, 0, &t->eval_out);
}

// Takes the results of this rank; those of other ranks are 0.
static void take_eval(Trainer *t, int64_t index, double *out) {
  double when;
  nnrt_take_answer(t, index, out, &when);
  nnrt_trace_resolve(t->r);
  for (int i = 0; i < NNRT_ANSWERS; i++)
    if (!t->eval_out.here[i]) out[i] = 0;
}

// Adds the sums over samples first … first + n - 1, fewer than a batch.  The batch repeats these
// samples `times` times, and some of the first once more: their sums are subtracted.
static void add_samples(Trainer *t, int64_t first, int64_t n, double *io_sum) {
  Data samples = nnrt_data_samples(&t->run->eval_data, first, n);
  int64_t times = samples.batch / n, more = samples.batch % n;
  double out[NNRT_ANSWERS], of_more[NNRT_ANSWERS] = {0};
  put_eval(t, &samples, 0);
  take_eval(t, 0, out);
  free(samples.source);
  t->r->fed = NULL; // `samples` is out of scope after this
  // The samples that are repeated once more often are themselves fewer than a batch.
  if (more) add_samples(t, first, more, of_more);
  for (int k = 0; k < NNRT_ANSWERS; k++)
    io_sum[k] += (out[k] - of_more[k]) / (double)times;
}

static void say_no_labels(const Trainer *t) {
  (void)t;
  nnrt_say_error("evaluation: no label counts, all of them are ignored\n"
                 "hint: look at --eval-input, and at the loss's ignore_index");
}

// Returns the loss over all samples in file order; over whole batches only if samples are coupled.
Evaluation nnrt_evaluate(Trainer *t) {
  const Data *d = &t->run->eval_data;
  int64_t batches = d->samples / d->batch, left = d->samples % d->batch;
  double sum[NNRT_ANSWERS] = {0};
  if (nnrt_eval_couples_samples(t->p)) left = 0;
  // Whole batches: the answer of each comes `depth` batches later.
  int64_t depth = nnrt_device_depth(t->r);
  double out[NNRT_ANSWERS];
  for (int64_t i = 0; i < batches + depth; i++) {
    if (i < batches) put_eval(t, &t->run->eval_data, i);
    if (i < depth) continue;
    take_eval(t, i - depth, out);
    for (int k = 0; k < NNRT_ANSWERS; k++)
      sum[k] += out[k];
  }
  if (left) add_samples(t, batches * d->batch, left, sum);
  // The sums of all ranks that report a result are exchanged once, at the end.
  // A signal is for the next step.
  if (!nnrt_agree(t, NULL, &t->eval_out, sum))
    nnrt_end_with_message(t, t->unreadable, nnrt_say_unreadable);
  Evaluation e = {.n_metrics = t->run->flags.metric.n};
  // The loss is the sum of its terms, each divided by its own weight.
  if (t->eval_out.all[EVAL_loss])
    e.loss += sum[EVAL_loss] / ((double)batches + (double)left / (double)d->batch);
  if (t->eval_out.all[EVAL_batch]) e.loss += sum[EVAL_batch] / (double)batches;
  for (int k = 0; k < N_QUOTIENTS; k++) {
    if (!t->eval_out.all[EVAL_sum + k]) continue;
    if (sum[EVAL_count + k] == 0) nnrt_end_with_message(t, is_root(t), say_no_labels);
    e.loss += sum[EVAL_sum + k] / sum[EVAL_count + k];
  }
  // A metric is the share of labels that it counts as right.
  for (int i = 0; i < e.n_metrics; i++) {
    e.metric[i] = t->run->flags.metric.list[i];
    e.value[i] = sum[EVAL_right + i] / (sum[EVAL_right + i] + sum[EVAL_wrong + i]);
  }
  return e;
}

bool nnrt_evaluate_only(Trainer *t) {
  NnrtRun *run = t->run;
  Evaluation e = nnrt_evaluate(t);
  bool ok = true;
  if (is_root(t)) {
    // The result itself goes to standard output, and to the log if there is one.
    char *text = nnrt_eval_text(&e);
    nnrt_put_shown(stdout, text);
    printf("  of %lld rows\n", (long long)run->eval_data.samples);
    ok = fflush(stdout) == 0 && !ferror(stdout);
    if (!ok) nnrt_say_error("cannot write to standard output: %s", strerror(errno));
    free(text);
    if (run->log.fd >= 0) nnrt_log_eval(&run->log, t->first, &e);
  }
  return ok;
}
