// Training, as one rank goes through it.
//
//     begin: contents of the slab from the program or from a checkpoint; kernels prepared
//     every step: rows in, micro-batches, update; loss out; evaluate, log, checkpoint
//     end: rank 0 writes the weights
//
// Ranks agree, by adding up, on what only some of them know: a signal, a checkpoint found.  Rank 0
// alone logs and writes.  Loss and gradient norm are the same bits on every rank, and so is what
// follows from them.

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "runtime.h"

typedef struct Trainer {
  NnrtRank *r;
  NnrtRun *run;
  const NnrtProgram *p;
  DataOrder order;
  int64_t first; // step of this run
  const NnrtTensor *loss, *grad_norm, *eval_loss;
  bool log_failed;
} Trainer;

static bool is_root(const Trainer *t) {
  return t->r->rank == 0;
}

// ---- one step

static void set_scalar(const Trainer *t, const char *name, double value) {
  const NnrtTensor *s = nnrt_find_tensor(t->r->graph, NNRT_scalar, name);
  if (s) nnrt_element_set(t->r->slab + s->offset, s->dtype, 0, value);
}

static void set_int_scalar(const Trainer *t, const char *name, int64_t value) {
  const NnrtTensor *s = nnrt_find_tensor(t->r->graph, NNRT_scalar, name);
  if (s && s->dtype == NNRT_i64)
    memcpy(t->r->slab + s->offset, &value, 8); // a double does not hold every seed
  else
    set_scalar(t, name, (double)value);
}

// Slice `micro` of time: the axes bound to time count like digits, the last one fastest.
static void set_micro(NnrtRank *r, const NnrtProgram *p, int micro) {
  r->micro = micro;
  for (int a = p->n_axes - 1; a >= 0; a--)
    if (p->axis[a].time) {
      r->coord[a] = micro % p->axis[a].size;
      micro /= p->axis[a].size;
    }
}

// Runs a graph on the rows of step `index` of `data`.
static void run_graph(const Trainer *t, const NnrtGraph *g, const Data *data,
                      const DataOrder *order, int64_t index, double lr) {
  NnrtRank *r = t->r;
  r->graph = g;
  for (int micro = 0; micro < t->p->micro_batches; micro++) {
    Why w;
    set_micro(r, t->p, micro);
    if (!nnrt_data_feed(data, order, r, index, &w)) {
      nnrt_say_error("step %lld: %s", (long long)r->step + 1, w.text);
      nnrt_end_job(1);
    }
    set_scalar(t, "lr", lr);
    set_int_scalar(t, "step", r->step);
    set_int_scalar(t, "seed", t->order.seed);
    g->micro(r);
  }
  if (g->update) g->update(r);
  set_micro(r, t->p, 0);
  nnrt_comm_drain(r);
}

static double output(const Trainer *t, const NnrtTensor *o) {
  return o ? nnrt_element_at(t->r->slab + o->offset, o->dtype, 0) : NAN;
}

// The mean over whole batches, in file order.
static double evaluate(const Trainer *t) {
  const Data *d = &t->run->eval_data;
  DataOrder file_order = {0};
  int64_t batches = d->rows / d->batch;
  double sum = 0;
  for (int64_t i = 0; i < batches; i++) {
    run_graph(t, &t->p->eval, d, &file_order, i, 0);
    sum += output(t, t->eval_loss);
  }
  return sum / (double)batches;
}

// ---- the beginning

// Collective: the step to go on from, 0 to start anew; false after an error.
static bool find_checkpoint(Trainer *t, int64_t *out_step) {
  NnrtRun *run = t->run;
  int64_t found[2] = {0, 0}; // 1 + step, or 0: none; failed
  if (is_root(t)) {
    Why w;
    int64_t step;
    found[1] = !nnrt_checkpoint_find(&run->checkpoints, &step, &w);
    found[0] = step + 1;
    if (found[1])
      nnrt_say_error("%s", w.text);
    else if (step < 0)
      nnrt_say_note("no checkpoint in '%s': starting anew", run->checkpoints.dir);
  }
  nnrt_comm_sum(t->r, found, 2);
  *out_step = found[0] - 1;
  return !found[1];
}

// What the command line says is what holds, and it says so where the checkpoint differs.
static void choose_order(Trainer *t, const DataOrder *saved) {
  const Flags *f = &t->run->flags;
  DataOrder given = t->order;
  if (!f->seed.given) t->order.seed = saved->seed;
  if (!f->shuffle.given) {
    t->order.shuffle = saved->shuffle;
    t->order.shuffle_seed = saved->shuffle_seed;
  }
  if (!is_root(t)) return;
  if (f->seed.given && given.seed != saved->seed)
    nnrt_say_note("--seed %lld replaces the checkpoint's %lld", (long long)given.seed,
                  (long long)saved->seed);
  if (f->shuffle.given && (!saved->shuffle || given.shuffle_seed != saved->shuffle_seed))
    nnrt_say_note("--shuffle %lld is not the order of the checkpoint",
                  (long long)given.shuffle_seed);
  if (given.rows != saved->rows)
    nnrt_say_note("the data has %lld rows; when the checkpoint was written it had %lld",
                  (long long)given.rows, (long long)saved->rows);
}

static bool begin(Trainer *t) {
  NnrtRun *run = t->run;
  NnrtRank *r = t->r;
  int64_t step = -1;
  Why w;
  t->order = (DataOrder){run->seed, run->flags.shuffle.given, run->flags.shuffle.i, run->data.rows};
  if (run->flags.resume.given && !find_checkpoint(t, &step)) return false;
  if (step >= 0) {
    DataOrder saved;
    if (!nnrt_checkpoint_load(&run->checkpoints, r, step, &saved, &w)) {
      // Every rank hears the same; one says it, unless its file system is another.
      if (is_root(t) || run->launch.kind != LAUNCH_none) nnrt_say_error("%s", w.text);
      return false;
    }
    choose_order(t, &saved);
    t->first = step;
    if (is_root(t)) nnrt_say_note("resuming after step %lld", (long long)step);
  } else {
    nnrt_init_tensors(r, t->order.seed);
  }
  if (is_root(t) && run->flags.log.given &&
      !nnrt_log_open(&run->log, run->flags.log.s, t->first, &w)) {
    nnrt_say_error("%s", w.text);
    nnrt_end_job(1);
  }
  if (is_root(t) && run->flags.tensorboard.given &&
      !nnrt_events_open(&run->events, run->flags.tensorboard.s, t->first, &w)) {
    nnrt_say_error("%s", w.text);
    nnrt_end_job(1);
  }
  r->graph = &t->p->train;
  r->step = t->first;
  t->p->init(r);
  if (run->flags.trace.given) nnrt_trace_start(r);
  return true;
}

// ---- the loop

static void report(Trainer *t, const StepReport *s) {
  NnrtRun *run = t->run;
  Why w;
  bool ok = true;
  if (run->log.fd >= 0) ok = nnrt_log_step(&run->log, s, &w);
  if (ok && run->events.fd >= 0) ok = nnrt_events_step(&run->events, s, &w);
  if (!ok && !t->log_failed) nnrt_say_warning("%s; training goes on", w.text);
  t->log_failed |= !ok;
  nnrt_progress_step(s);
}

static bool is_due(const Flag *every, int64_t done) {
  return every->given && done % every->i == 0;
}

// One step with all that belongs to it; false when training cannot go on.
static bool do_step(Trainer *t, int64_t step, int *out_signal) {
  NnrtRun *run = t->run;
  const Flags *f = &run->flags;
  NnrtRank *r = t->r;
  double start = nnrt_now_us(), lr = nnrt_schedule_lr(&run->schedule, step);
  r->step = step;
  run_graph(t, &t->p->train, &run->data, &t->order, step, lr);
  double ms = (nnrt_now_us() - start) / 1e3;
  StepReport s = {
      .step = step,
      .steps = run->steps,
      .first = t->first,
      .loss = (float)output(t, t->loss),
      .grad_norm = (float)output(t, t->grad_norm),
      .has_grad_norm = t->grad_norm != NULL,
      .lr = lr,
      .step_ms = ms,
      .samples_per_s = (double)run->data.batch / (ms / 1e3),
  };
  bool sane = isfinite(s.loss) && (!s.has_grad_norm || isfinite(s.grad_norm));
  int64_t signal_sum = nnrt_signal_seen();
  if (r->ranks > 1) {
    // Any rank's signal is all ranks'; which one it was does not matter to those who missed it.
    int64_t any = signal_sum != 0;
    nnrt_comm_sum(r, &any, 1);
    if (any && !signal_sum) signal_sum = SIGTERM;
  }
  *out_signal = (int)signal_sum;
  bool last = step + 1 == run->steps || *out_signal != 0;
  if (sane && run->has_eval && (last || is_due(&f->eval_every, step + 1))) {
    s.eval_loss = evaluate(t);
    s.has_eval = true;
  }
  if (is_root(t)) report(t, &s);
  if (!sane) {
    if (is_root(t))
      nnrt_say_error(
          "step %lld: the %s is %s: training cannot go on; nothing is saved of this step\n"
          "hint: %s",
          (long long)step + 1, isfinite(s.loss) ? "gradient's norm" : "loss",
          isnan(isfinite(s.loss) ? s.grad_norm : s.loss) ? "not a number" : "infinite",
          // Before the first update no learning rate has done anything.
          step == 0
              ? "no weight has changed yet: look for it in the data and in the model's weights"
              : "a smaller --lr, or --clip-norm when compiling");
    return false;
  }
  if (f->checkpoint_dir.given && (last || is_due(&f->checkpoint_every, step + 1)))
    nnrt_checkpoint_save(&run->checkpoints, r, step + 1, &t->order);
  return true;
}

// Collective.
static bool finish(Trainer *t) {
  const Flags *f = &t->run->flags;
  Why w;
  bool ok = true;
  if (f->save.given && !nnrt_save_weights(t->r, f->save.s, &w)) {
    nnrt_say_error("%s", w.text);
    ok = false;
  }
  if (f->export.given && !nnrt_export_model(t->r, f->export.s, &w)) {
    nnrt_say_error("%s", w.text);
    ok = false;
  }
  if (f->trace.given && !nnrt_trace_write(t->r, f->trace.s, &w)) {
    nnrt_say_error("%s", w.text);
    ok = false;
  }
  if (is_root(t) && t->run->checkpoints.failed) {
    nnrt_say_error("the last checkpoint could not be written");
    ok = false;
  }
  return ok && !t->log_failed;
}

int nnrt_train(NnrtRank *r) {
  const NnrtProgram *p = r->program;
  Trainer t = {.r = r, .run = r->run, .p = p};
  t.loss = nnrt_find_tensor(&p->train, NNRT_output, "loss");
  t.grad_norm = nnrt_find_tensor(&p->train, NNRT_output, "grad_norm");
  t.eval_loss = nnrt_find_tensor(&p->eval, NNRT_output, "loss");
  if (!begin(&t)) return 1;
  int64_t steps = r->run->steps;
  if (t.first >= steps && is_root(&t))
    nnrt_say_note("nothing to train: %lld of %lld steps are done", (long long)t.first,
                  (long long)steps);
  int signal_number = 0;
  for (int64_t step = t.first; step < steps && !signal_number; step++)
    if (!do_step(&t, step, &signal_number)) return 1;
  if (signal_number && is_root(&t))
    nnrt_say_note("stopped by %s after %lld of %lld steps",
                  signal_number == SIGINT ? "SIGINT" : "SIGTERM", (long long)r->step + 1,
                  (long long)steps);
  return finish(&t) ? 0 : 1;
}
