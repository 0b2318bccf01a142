// Training, as one rank goes through it.
//
//     begin: contents of the slab from the program or from a checkpoint; kernels prepared
//     every step: samples in, micro-batches, update; loss out; evaluate (evaluate.c), log, save
//     end: rank 0 writes the weights
//
// A step is a walk through the lists of generated code (NnrtSchedule): the part before the loop
// over slices of time, the parts of the loop in the order of this rank's schedule, the part after
// the loop. Samples of a slice are copied in before the rank's first segment of that slice:
//
//     samples 0 | F0 0, start h | samples 1 | F0 1, start h | get g 0 | wait g, B0 0 | …
//
// Waits and starts of moves are called every time, since other ranks continue meanwhile.  The work
// between them is divided into pieces, which a GPU records.
//
// A GPU runs a step some time after it was enqueued.  Meanwhile the host enqueues the next one, and
// then reports the results of this one:
//
//     host   put 0 | put 1 | report 0 | put 2 | report 1 | …
//     gpu          step 0       | step 1       | step 2 …
//
// So when a loss is found to be NaN or infinite, the next step is already in flight; it is
// discarded. Evaluation and checkpoints, which need the slab as it is after a step, and the end of
// training wait for that step first.
//
// With deferred updates, the next step runs them before it reads the weights, and only then is the
// norm of the gradients known.  So answers come as late as a GPU's, and evaluation and checkpoints
// flush the deferred updates first.
//
// The time of a step that was enqueued while another was in flight is from the end of that one to
// its own end, so that the times of all steps add up to the elapsed time.  A step ends with the
// last of its pieces; its deferred updates count for the next step, or for itself if they are
// flushed at once.
//
// A program in f16 scales its loss, and its output `loss_scale` is the scale of the next step.  A
// norm that is not finite is then a skipped step.  But if the scale was not lowered after it, it is
// at its minimum, and training cannot continue.
//
// Ranks exchange, by a sum, facts that only some of them know: a signal, a checkpoint found,
// unreadable samples, bad data found by a GPU.  Rank 0 alone logs and writes.  The first rank that
// has the loss or the gradient norm sends it to all in the same exchange: every rank gets the same
// bits, and so makes the same decisions.
//
// A rank with a wrong label spoils the loss of all.  A rank with unreadable samples enqueues the
// step all the same, or the others would wait for it in the middle of theirs.  So a step has no
// effects before all ranks know that none has found an error; otherwise the rank with the error
// reports it.

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "against.h"
#include "peers.h"
#include "step.h"

// ---- one step

// Sets a scalar on every mesh of this rank that has it: each may have a tensor of its own.
static void set_scalar(const Trainer *t, const char *name, double value, int64_t integer) {
  NnrtRank *r = t->r;
  for (int i = 0; i < r->graph->n_tensors; i++) {
    const NnrtTensor *s = &r->graph->tensors[i];
    double room;
    if (s->role != NNRT_scalar || strcmp(s->name, name) != 0 || !nnrt_on_mesh(r, s->mesh)) continue;
    // The graph decides the type of its scalar.
    nnrt_element_set(&room, s->dtype, 0, value);
    if (s->dtype == NNRT_i64)
      memcpy(&room, &integer, sizeof room); // a double does not represent them all
    nnrt_device_put(r, r->slab + s->offset, &room, nnrt_dtype_size(s->dtype));
  }
}

static void set_micro(NnrtRank *r, int micro) {
  r->micro = micro;
  nnrt_set_coords(r);
}

static const NnrtSchedule *steps_of(const NnrtRank *r) {
  return r->graph == &r->program->train ? &r->code->train : &r->code->eval;
}

static int last_piece(const NnrtRank *r) {
  return nnrt_pieces(r, steps_of(r)) - 1;
}

// Returns the task of the current piece; NULL before and after the loop.
static const NnrtTask *current_part(const NnrtRank *r) {
  return r->piece > 0 && r->piece < last_piece(r) ? nnrt_part_of(steps_of(r), r->piece) : NULL;
}

// `begin` is one piece with the first segment, unless that waits for a move; `update` is one with
// the last segment, unless that starts a move.
static bool first_has_begin(const NnrtSchedule *s) {
  return s->n_parts > 0 && nnrt_part_of(s, 1)->run && !nnrt_part_of(s, 1)->wait;
}

static bool last_has_update(const NnrtSchedule *s, int last) {
  return s->n_parts > 0 && nnrt_part_of(s, last - 1)->run && !nnrt_part_of(s, last - 1)->start;
}

static void first_piece(Trainer *t) {
  const NnrtSchedule *s = steps_of(t->r);
  t->r->piece = -1;
  memset(t->slice, 0, (size_t)s->n_parts * sizeof *t->slice);
}

// Advances to the next piece and its slice; false after the last.
static bool next_piece(Trainer *t) {
  NnrtRank *r = t->r;
  const NnrtSchedule *s = steps_of(r);
  int last = last_piece(r);
  // Pieces that are part of their neighbours are skipped.
  do
    r->piece++;
  while ((r->piece == 0 && first_has_begin(s)) || (r->piece == last && last_has_update(s, last)));
  if (r->piece > last) return false;
  const NnrtTask *part = current_part(r);
  // Outside of the loop, the slice is the one next to it.
  int after = r->piece == 0 ? 0 : r->program->micro_batches - 1;
  set_micro(r, part ? t->slice[part - s->part]++ : after);
  return true;
}

static void run_part(NnrtRank *r, int phase, void (*part)(NnrtRank *r)) {
  nnrt_traffic_phase(r, phase);
  if (part) part(r);
}

// Runs the current piece.
static void run_piece(NnrtRank *r) {
  const NnrtSchedule *s = steps_of(r);
  const NnrtTask *part = current_part(r);
  int last = last_piece(r), i = r->piece;
  nnrt_traffic_piece(r);
  // One piece may have `begin`, a segment and `update`.
  if (i == 0 || (i == 1 && first_has_begin(s))) run_part(r, TRAFFIC_begin, s->begin);
  if (part) {
    // A segment is one event of the trace.
    int64_t from = r->trace ? nnrt_device_mark(r) : 0;
    run_part(r, TRAFFIC_micro, part->run);
    if (r->trace) nnrt_trace_segment(r, part->name, from);
  }
  if (i == last || (i == last - 1 && last_has_update(s, last)))
    run_part(r, TRAFFIC_update, s->update);
}

static void wait_for_moves(NnrtRank *r) {
  nnrt_traffic_moves(r);
  current_part(r)->wait(r);
}

static void start_moves(NnrtRank *r) {
  nnrt_traffic_moves(r);
  current_part(r)->start(r);
}

// Counts the traffic as that of the update, in any phase.
void nnrt_flush_deferred(NnrtRank *r, int n) {
  int phase = r->comm->traffic.phase;
  nnrt_traffic_phase(r, TRAFFIC_update);
  if (r->against) nnrt_check_against_deferred(r, true);
  while (r->flushed < n)
    r->program->deferred[r->flushed++](r);
  if (r->against) nnrt_check_against_deferred(r, false);
  nnrt_traffic_phase(r, phase);
}

static int slot_of(int64_t step) {
  return (int)(step % NNRT_SLOTS);
}

void nnrt_put_graph(Trainer *t, const NnrtGraph *g, const Data *data, const DataOrder *order,
                    int64_t index, double lr, const Outputs *out) {
  NnrtRank *r = t->r;
  t->fed = (NnrtFed){data, order, index};
  t->fed_micros = 0;
  r->fed = &t->fed;
  r->graph = g;
  nnrt_record_step(r);
  // A device that records its work does so once, piece by piece, before it runs the first.
  if (nnrt_device_begin(r)) {
    for (first_piece(t); next_piece(t);)
      if (!current_part(r) || current_part(r)->run) nnrt_device_record(r, r->piece, run_piece);
    nnrt_device_recorded(r);
  }
  set_scalar(t, "lr", lr, (int64_t)lr);
  set_scalar(t, "step", (double)r->step, r->step);
  set_scalar(t, "seed", (double)t->order.seed, t->order.seed);
  for (first_piece(t); next_piece(t);) {
    const NnrtTask *part = current_part(r);
    // The samples of a slice are read before its first segment.  An error is reported once all
    // ranks know of it.
    if (part && part->run && r->micro >= t->fed_micros) {
      Why w;
      t->fed_micros++;
      if (!nnrt_data_feed(&t->fed, r, &w) && !t->unreadable) {
        t->unreadable = true;
        t->unreadable_why = w;
      }
    }
    if (part && part->wait) nnrt_device_call(r, wait_for_moves);
    // The pieces that a GPU replays have no host calls in them.
    if (!part || part->run) {
      nnrt_device_run(r, r->piece, run_piece);
      nnrt_traffic_ran(r);
    }
    if (part && part->start) nnrt_device_call(r, start_moves);
  }
  nnrt_traffic_step(r);
  // The results are copied as soon as the step has made them.
  nnrt_device_ask(r, slot_of(index), out->now);
  set_micro(r, 0);
}

void nnrt_take_answer(Trainer *t, int64_t index, double *out, double *out_when) {
  t->found |= !nnrt_device_answer(t->r, slot_of(index), out, out_when);
}

// Takes all results of a step, after its deferred updates.  Returns the end time of its pieces.
static double take_answers(Trainer *t, int64_t step, double *out) {
  NnrtRank *r = t->r;
  double ended, flushed;
  nnrt_take_answer(t, step, out, &ended);
  if (t->p->n_deferred) {
    nnrt_traffic_moves(r); // no piece contains it
    nnrt_flush_deferred(r, t->p->n_deferred);
    // The norm of the gradients is known only now.
    nnrt_device_ask(r, slot_of(step), t->out.deferred);
    nnrt_take_answer(t, step, out, &flushed);
  }
  nnrt_trace_resolve(r);
  return ended;
}

// Collective: the first rank with `mine`, if any, calls `say` before any continues.
static void print_once(const Trainer *t, bool mine, void (*say)(const Trainer *t)) {
  NnrtRank *r = t->r;
  int64_t *has = nnrt_must_alloc((size_t)r->ranks * sizeof *has);
  int first = 0;
  has[r->rank] = mine;
  nnrt_comm_sum(r, has, r->ranks);
  while (first < r->ranks && !has[first])
    first++;
  if (r->rank == first) say(t);
  // The report is out before any rank ends.
  nnrt_comm_sum(r, has, 1);
  free(has);
}

// A launcher ends all processes when one ends, so none ends before the report.
_Noreturn void nnrt_end_with_message(const Trainer *t, bool mine, void (*say)(const Trainer *t)) {
  print_once(t, mine, say);
  nnrt_end_job(1);
}

static void say_infinite(const Trainer *t) {
  char where[32] = "";
  if (t->r->ranks > 1) snprintf(where, sizeof where, "on rank %d ", t->r->rank);
  nnrt_say_note("infinite values arose first %sin %s", where, nnrt_checks_infinite(t->r));
}

static void say_found(const Trainer *t) {
  nnrt_device_say_found(t->r);
}

static void say_damaged(const Trainer *t) {
  nnrt_say_error("%s", t->unreadable_why.text);
}

void nnrt_say_unreadable(const Trainer *t) {
  nnrt_say_error("step %lld: %s", (long long)t->r->step + 1, t->unreadable_why.text);
}

// Signals are those of a process: its first rank counts them.
static bool counts_signals(const NnrtRank *r) {
  return r->run->launch.kind != LAUNCH_none || r->rank == 0;
}

// Collective: one checkpoint serves the requests of all ranks, which `mine` are of this one.  Of
// each kind it serves as many as the rank has that got the most (signals.c).
static void serve_requests(Trainer *t, const int mine[2]) {
  static const int signals[2] = {SIGHUP, SIGUSR1};
  NnrtRank *r = t->r;
  int64_t *count = nnrt_must_alloc((size_t)(2 * r->ranks) * sizeof *count);
  for (int k = 0; k < 2; k++)
    count[k * r->ranks + r->rank] = mine[k];
  nnrt_comm_sum(r, count, 2 * r->ranks);
  for (int k = 0; k < 2; k++) {
    int64_t most = 0;
    for (int i = 0; i < r->ranks; i++)
      if (count[k * r->ranks + i] > most) most = count[k * r->ranks + i];
    if (counts_signals(r)) nnrt_signal_served(signals[k], (int)most);
    if (most) t->saves = signals[k] == SIGHUP ? "SIGHUP" : "SIGUSR1";
  }
  free(count);
}

bool nnrt_agree(Trainer *t, int *io_signal, const Outputs *out, double *io_value) {
  enum { FOUND, UNREADABLE, INTERRUPTED, TERMINATED, REQUESTS, VALUES };
  enum { WORDS = VALUES + NNRT_ANSWERS };
  bool asks = io_signal && counts_signals(t->r);
  int ends = io_signal ? *io_signal : 0;
  const int requests[2] = {asks ? nnrt_signal_requests(SIGHUP) : 0,
                           asks ? nnrt_signal_requests(SIGUSR1) : 0};
  int64_t any[WORDS] = {t->found, t->unreadable, ends == SIGINT, ends == SIGTERM,
                        requests[0] + requests[1]};
  for (int i = 0; i < NNRT_ANSWERS; i++)
    if (out->says[i]) memcpy(&any[VALUES + i], &io_value[i], sizeof *io_value); // the others add 0
  // Doubles travel as integers: the sum with zeros keeps their bits.
  nnrt_comm_sum(t->r, any, WORDS);
  memcpy(io_value, &any[VALUES], NNRT_ANSWERS * sizeof *io_value);
  if (any[FOUND]) nnrt_end_with_message(t, t->found, say_found);
  if (any[REQUESTS]) serve_requests(t, requests);
  if (io_signal && !ends && any[TERMINATED]) *io_signal = SIGTERM;
  if (io_signal && !*io_signal && any[INTERRUPTED]) *io_signal = SIGINT;
  return !any[UNREADABLE];
}

// ---- the beginning

// Reports a checkpoint of this rank's folder that rank 0 does not have.
static void say_newer(const Trainer *t) {
  char zero[64], here[64] = "", has[64] = "has none";
  memcpy(zero, t->host_0, sizeof zero);
  gethostname(here, sizeof here - 1);
  if (t->resumed >= 0) snprintf(has, sizeof has, "has that of step %lld", (long long)t->resumed);
  nnrt_say_error(
      "'%s' of rank %d on %s has a checkpoint of step %lld, and that of rank 0 on %s %s\n"
      "hint: start rank 0 with that folder, or copy the checkpoint into its own",
      t->run->checkpoints.dir, t->r->rank, here, (long long)t->newer, zero, has);
}

// Collective: another rank's folder must not have a newer checkpoint than rank 0 resumes from: it
// is of the same training, and rank 0 has come up on another host.
static void check_newer(Trainer *t) {
  NnrtRank *r = t->r;
  int64_t host[sizeof t->host_0 / sizeof(int64_t)] = {0}, any;
  t->newer = -1;
  if (r->ranks == 1 || t->run->launch.kind == LAUNCH_none) return;
  if (is_root(t))
    gethostname((char *)host, sizeof host - 1);
  else
    t->newer = nnrt_checkpoint_after(&t->run->checkpoints, t->resumed);
  any = t->newer >= 0;
  nnrt_comm_sum(r, &any, 1);
  if (!any) return;
  nnrt_comm_sum(r, host, sizeof host / sizeof *host);
  memcpy(t->host_0, host, sizeof host);
  nnrt_end_with_message(t, t->newer >= 0, say_newer);
}

// Collective: finds the step to resume from, -1 for none; false after an error.
static bool find_checkpoint(Trainer *t) {
  NnrtRun *run = t->run;
  int64_t found[2] = {0, 0}; // 1 + step, or 0: none; failed
  if (is_root(t)) {
    Why w;
    int64_t step;
    found[1] = !nnrt_checkpoint_find(&run->checkpoints, &step, &w);
    found[0] = step + 1;
    if (found[1]) nnrt_say_error("%s", w.text);
  }
  // Rank 0's numbers, and zeros of all others.
  nnrt_comm_sum(t->r, found, 2);
  t->resumed = found[0] - 1;
  if (found[1]) return false;
  check_newer(t);
  if (is_root(t) && t->resumed < 0)
    nnrt_say_note("no checkpoint in '%s': starting from step 0", run->checkpoints.dir);
  return true;
}

// Flags override the checkpoint, with a note if they differ from it.
static void choose_order(Trainer *t, const DataOrder *saved) {
  const Flags *f = &t->run->flags;
  DataOrder given = t->order;
  if (!f->seed.given) t->order.seed = saved->seed;
  if (!f->shuffle.given) {
    t->order.shuffle = saved->shuffle;
    t->order.shuffle_seed = saved->shuffle_seed;
  }
  if (!is_root(t)) return;
  // A flag that changes nothing needs no note.
  if (f->seed.given && given.seed != saved->seed)
    nnrt_say_note("--seed %lld replaces the checkpoint's %lld", (long long)given.seed,
                  (long long)saved->seed);
  if (f->shuffle.given && (!saved->shuffle || given.shuffle_seed != saved->shuffle_seed))
    nnrt_say_note("the rows follow in the order of --shuffle %lld, not in that of the checkpoint",
                  (long long)given.shuffle_seed);
  if (!saved->compared && given.samples != saved->samples)
    nnrt_say_note("the data has %lld rows; when the checkpoint was written it had %lld",
                  (long long)given.samples, (long long)saved->samples);
}

// Continues after the last sample that was read, also by batches of another size.
static void choose_position(Trainer *t, const DataOrder *saved) {
  const NnrtRun *run = t->run;
  DataOrder *o = &t->order;
  o->first = saved->first;
  o->read = saved->read;
  if (saved->read < 0) {
    o->read = saved->first * run->data.batch;
    if (is_root(t))
      nnrt_say_note(
          "the checkpoint of an older nnaot has no number of rows: %lld are taken as read",
          (long long)o->read);
  }
  // Rows of another length: the position is kept in tokens.
  if (saved->length && o->length && saved->length != o->length)
    o->read = o->read * saved->length / o->length;
  if (run->flags.steps.given) return;
  // By epochs, the remaining samples decide the number of steps.
  int64_t epochs = run->flags.epochs.given ? run->flags.epochs.i : 1;
  int64_t left = epochs * run->data.samples - o->read, batch = run->data.batch;
  t->steps = o->first + (left > 0 ? (left + batch - 1) / batch : 0);
}

// Sets the horizon of the schedule, if there is one: from the command line, else from the
// checkpoint, else all steps of this run.
static void choose_horizon(Trainer *t, int64_t saved) {
  const Flags *f = &t->run->flags;
  t->schedule = t->run->schedule;
  if (t->schedule.kind == LR_constant) return;
  t->schedule.horizon = f->lr_steps.given ? f->lr_steps.i : saved >= 0 ? saved : t->steps;
  t->order.lr_steps = t->schedule.horizon;
  if (!is_root(t) || saved < 0) return;
  if (t->schedule.horizon != saved)
    nnrt_say_note("--lr-steps %lld replaces the checkpoint's %lld: the learning rate jumps",
                  (long long)t->schedule.horizon, (long long)saved);
  else if (t->steps != saved && !f->lr_steps.given)
    nnrt_say_note(
        "the learning rate's schedule goes on %lld steps, as in the checkpoint; --lr-steps "
        "says otherwise",
        (long long)saved);
}

// Whether several ranks hold the same, and shall compare it.
static void choose_comparison(Trainer *t) {
  const Flag *every = &t->run->flags.check_replicas;
  // --check-against compares each value of each rank, and names the operation.
  int64_t usual = t->run->flags.check_against.given ? 0 : CHECK_REPLICAS_EVERY;
  t->compare_every = every->given ? every->i : usual;
  bool trains = !t->run->flags.eval_only.given && t->first < t->steps;
  if (t->compare_every > 0 && trains && t->r->ranks > 1) t->replicas = nnrt_replicas_new(t->r);
}

static bool begin(Trainer *t) {
  NnrtRun *run = t->run;
  NnrtRank *r = t->r;
  Why w;
  t->resumed = -1;
  t->order = (DataOrder){.seed = run->seed,
                         .shuffle = run->flags.shuffle.given,
                         .shuffle_seed = run->flags.shuffle.i,
                         .samples = run->data.samples,
                         .length = run->data.length,
                         .lr_steps = -1};
  t->steps = run->steps;
  // Reading a checkpoint takes longer than any timeout.
  nnrt_comm_begin_files(r);
  if (run->flags.resume.given && !find_checkpoint(t)) return false;
  if (t->resumed >= 0) {
    DataOrder saved;
    if (!nnrt_checkpoint_load(&run->checkpoints, r, &saved)) return false;
    t->first = t->resumed;
    if (run->flags.eval_only.given) {
      t->order = saved;
    } else {
      choose_order(t, &saved);
      choose_position(t, &saved);
      choose_horizon(t, saved.lr_steps);
    }
    if (is_root(t)) nnrt_say_note("resuming after step %lld", (long long)t->resumed);
  } else {
    choose_horizon(t, -1);
    int64_t damaged = !nnrt_init_tensors(r, t->order.seed, &t->unreadable_why), any = damaged;
    nnrt_comm_sum(r, &any, 1);
    if (any) nnrt_end_with_message(t, damaged, say_damaged);
  }
  nnrt_init_copies(r);
  nnrt_comm_end_files(r);
  choose_comparison(t);
  if (t->replicas && !nnrt_replicas_sound(t->replicas, t->first)) return false;
  // The log loses the lines of steps that follow, once the first of them is known.
  if (is_root(t) && run->flags.log.given && !run->flags.eval_only.given &&
      !(run->flags.resume.given ? nnrt_log_resume(&run->log, t->first, &w)
                                : nnrt_log_empty(&run->log, &w))) {
    nnrt_say_error("%s", w.text);
    nnrt_end_job(1);
  }
  if (is_root(t) && run->flags.tensorboard.given &&
      !nnrt_events_open(&run->events, run->flags.tensorboard.s, t->first, &w)) {
    nnrt_say_error("%s", w.text);
    nnrt_end_job(1);
  }
  // Generated code prepares its kernels for the training graph.
  r->graph = &t->p->train;
  r->step = t->first;
  r->flushed = t->p->n_deferred; // no update is deferred yet
  r->code->init(r);
  if (run->flags.trace.given || run->flags.timings.given) nnrt_trace_start(r);
  if (run->flags.memory.given) nnrt_in_use_start(r);
  if (run->flags.check_values.given) nnrt_checks_start(r);
  if (run->flags.check_against.given) nnrt_check_against_begin(r);
  if (run->flags.check_write.given) nnrt_reference_begin(r);
  return true;
}

// ---- the loop

static void report(Trainer *t, const StepReport *s) {
  NnrtRun *run = t->run;
  // Training is worth more than its log: a full disk does not end it.
  if (run->log.fd >= 0) nnrt_log_step(&run->log, s);
  if (run->events.fd >= 0) nnrt_events_step(&run->events, s);
  nnrt_progress_step(s);
}

static bool is_due(const Flag *every, int64_t done) {
  return every->given && done % every->i == 0;
}

// Reports a loss or a norm with which training cannot go on, on each rank for itself.
static void say_not_finite(Trainer *t, const StepReport *s) {
  const Flags *f = &t->run->flags;
  // Corrupted weights are a cause of such a loss.
  if (t->replicas && !nnrt_replicas_sound(t->replicas, t->r->step + 1)) return;
  if (f->check_values.given) print_once(t, nnrt_checks_infinite(t->r) != NULL, say_infinite);
  if (!is_root(t)) return;
  nnrt_say_error(
      "step %lld: the %s is %s: training cannot go on; nothing is saved of this step\n"
      "hint: %s%s",
      (long long)s->step + 1, isfinite(s->loss) ? "gradient's norm" : "loss",
      isnan(isfinite(s->loss) ? s->grad_norm : s->loss) ? "not a number" : "infinite",
      // Before the first update the learning rate has had no effect.
      s->step == 0 ? "no weight has changed yet: look for it in the data and in the model's weights"
      : s->has_loss_scale
          ? "look for it in the data; else a smaller --lr, or --clip-norm or --dtype bf16 when "
            "compiling"
          : "look for it in the data; else a smaller --lr, or --clip-norm when compiling",
      f->check_values.given ? "" : "; --check-values names the operation");
}

// Writes the checkpoint of a step; `asked`: the signal that asks for it, or NULL.
static void save_checkpoint(Trainer *t, int64_t step, const char *asked) {
  NnrtRun *run = t->run;
  nnrt_comm_begin_files(t->r);
  // Writing reads the slab by system calls, which must not fault.
  nnrt_in_use_rest(t->r);
  DataOrder order = t->order;
  order.read = nnrt_samples_read(&run->data, &order, step + 1);
  nnrt_checkpoint_save(&run->checkpoints, t->r, step + 1, &order);
  nnrt_comm_end_files(t->r);
  if (is_root(t) && asked && !run->checkpoints.failed)
    nnrt_say_note("%s: saved a checkpoint after step %lld", asked, (long long)step + 1);
}

// Evaluates, reports and checkpoints after a step that ended at `ended` with results `out`; false
// if training cannot continue.  Only the step enqueued last may be due for evaluation or a
// checkpoint, or be the last.
static bool end_step(Trainer *t, int64_t step, double ended, const double *out, bool last) {
  NnrtRun *run = t->run;
  const Flags *f = &run->flags;
  NnrtRank *r = t->r;
  double ms = (ended - t->began_at) / 1e3;
  t->began_at = ended;
  StepReport s = {
      .step = step,
      .steps = t->steps,
      .first = t->first,
      .loss = t->out.all[0] ? (float)out[0] : NAN,
      .grad_norm = t->out.all[1] ? (float)out[1] : NAN,
      .has_grad_norm = t->out.all[1] != NULL,
      .lr = nnrt_lr_schedule_at(&t->schedule, step),
      .step_ms = ms,
      .samples_per_s = (double)run->data.batch / (ms / 1e3),
  };
  s.has_loss_scale = t->out.all[2] != NULL;
  if (s.has_loss_scale) s.loss_scale = (float)out[2];
  // See the head of this file: a scale that was not lowered is at its minimum.
  s.skipped = s.has_loss_scale && isfinite(s.loss) && !isfinite(s.grad_norm) &&
              s.loss_scale != t->loss_scale;
  t->loss_scale = s.loss_scale;
  bool sane = isfinite(s.loss) && (!s.has_grad_norm || isfinite(s.grad_norm) || s.skipped);
  if (sane && run->has_eval && (last || is_due(&f->eval_every, step + 1))) {
    s.eval = nnrt_evaluate(t);
    s.has_eval = true;
  }
  // The log holds the step that ends the training, too.
  if (is_root(t)) report(t, &s);
  if (!sane) {
    say_not_finite(t, &s);
    return false;
  }
  // A signal asked for a checkpoint, of the step that was enqueued last.
  const char *asked = step == r->step ? t->saves : NULL;
  // A reference only resumes from the folder.
  bool saves = f->checkpoint_dir.given && !f->check_write.given;
  if (asked) {
    t->saves = NULL;
    if (is_root(t) && !f->checkpoint_dir.given)
      nnrt_say_warning(
          "%s asks for a checkpoint, but there is no --checkpoint-dir: training goes on", asked);
  }
  if (saves && (last || asked || is_due(&f->checkpoint_every, step + 1)))
    save_checkpoint(t, step, asked);
  return true;
}

// Enqueues one step, and ends the previous one, or all that must be ended now; false if training
// cannot continue.
static bool do_step(Trainer *t, int64_t step, int *out_signal) {
  NnrtRun *run = t->run;
  const Flags *f = &run->flags;
  NnrtRank *r = t->r;
  double out[NNRT_ANSWERS] = {0}, ended = 0;
  bool at_once = nnrt_device_depth(r) == 0;
  r->step = step;
  if (f->check_against.given) nnrt_reference_step(r, step);
  if (!t->under_way) t->began_at = nnrt_now_us();
  nnrt_put_graph(t, &t->p->train, &run->data, &t->order, step,
                 nnrt_lr_schedule_at(&t->schedule, step), &t->out);
  // Answers come before the ranks' exchange, so that one exchange is enough.
  if (t->under_way) ended = take_answers(t, step - 1, out); // this step ran all deferred updates
  r->flushed = 0;
  if (r->against) r->against->deferred_step = step;
  if (at_once) take_answers(t, step, out);
  *out_signal = nnrt_signal_seen();
  bool readable = nnrt_agree(t, out_signal, &t->out, out);
  if (f->check_against.given) nnrt_check_against_report(r);
  if (t->under_way && !end_step(t, step - 1, ended, out, false)) return false;
  if (!readable) nnrt_end_with_message(t, t->unreadable, nnrt_say_unreadable);
  // The last step, and one that an evaluation, a checkpoint or a comparison of replicas follows,
  // ends before the next begins.
  bool last = step + 1 == t->steps || *out_signal != 0;
  bool saves = t->saves || (f->checkpoint_dir.given && is_due(&f->checkpoint_every, step + 1));
  bool compares = t->replicas && (last || saves || (step + 1) % t->compare_every == 0);
  t->under_way = !at_once && !last && !saves && !compares &&
                 !(run->has_eval && is_due(&f->eval_every, step + 1));
  if (t->under_way) return true;
  // The answers of a step on a GPU are waited for.
  if (!at_once) {
    take_answers(t, step, out);
    nnrt_agree(t, NULL, &t->out, out);
    if (f->check_against.given && t->p->n_deferred) nnrt_check_against_report(r);
  }
  if (compares && !nnrt_replicas_sound(t->replicas, step + 1)) return false;
  return end_step(t, step, nnrt_now_us(), out, last);
}

// Collective.
static bool finish(Trainer *t) {
  const Flags *f = &t->run->flags;
  Why w;
  bool ok = true;
  nnrt_comm_begin_files(t->r);
  // One failed output does not prevent the others.  The memory file is first: it ends the watch, so
  // that the others may read the slab by system calls.
  if (f->memory.given && !nnrt_in_use_write(t->r, f->memory.s, &w)) {
    nnrt_say_error("%s", w.text);
    ok = false;
  }
  if (f->save.given && !nnrt_save_weights(t->r, f->save.s, &w)) {
    nnrt_say_error("%s", w.text);
    ok = false;
  }
  if (f->export.given && !nnrt_export_model(t->r, f->export.s, &w)) {
    nnrt_say_error("%s", w.text);
    ok = false;
  }
  // The weights are saved: measuring the limits of the machine takes memory.
  if (f->timings.given) nnrt_trace_print_timings(t->r);
  if (f->trace.given && !nnrt_trace_write(t->r, f->trace.s, &w)) {
    nnrt_say_error("%s", w.text);
    ok = false;
  }
  if (f->traffic.given && !nnrt_traffic_write(t->r, f->traffic.s, &w)) {
    nnrt_say_error("%s", w.text);
    ok = false;
  }
  if (is_root(t) && t->run->checkpoints.failed) {
    nnrt_say_error("the last checkpoint could not be written");
    ok = false;
  }
  if (is_root(t)) {
    ok &= nnrt_records_end(&t->run->log);
    ok &= nnrt_records_end(&t->run->events);
  }
  nnrt_comm_end_files(t->r);
  return ok;
}

void nnrt_find_outputs(const NnrtRank *r, const NnrtGraph *g, const char *const *names, int n,
                       Outputs *out) {
  for (int i = 0; i < n; i++) {
    const NnrtTensor *t = out->all[i] = nnrt_find_tensor(g, NNRT_output, names[i]);
    if (t && nnrt_on_mesh(r, t->mesh)) out->here[i] = t;
    // Results of deferred updates come later than the others.
    *(t && t->deferred ? &out->deferred[i] : &out->now[i]) = out->here[i];
    out->says[i] = t && r->program->mesh[t->mesh].rank[0] == r->rank;
  }
}

// Of a reference: runs the step again, with noise.
static void measure_noise(Trainer *t, int64_t step) {
  NnrtRank *r = t->r;
  double out[NNRT_ANSWERS], ended;
  for (int run = 1; run <= N_NOISY; run++) {
    nnrt_reference_noise(r, run);
    nnrt_put_graph(t, &t->p->train, &t->run->data, &t->order, step,
                   nnrt_lr_schedule_at(&t->schedule, step), &t->out);
    nnrt_take_answer(t, step, out, &ended);
    nnrt_reference_quiet(r);
  }
  nnrt_reference_done(r);
}

static int train(Trainer *t) {
  NnrtRank *r = t->r;
  if (!begin(t)) return 1;
  if (t->run->flags.eval_only.given) return nnrt_evaluate_only(t) && finish(t) ? 0 : 1;
  int64_t steps = t->steps;
  // A finished run still writes its outputs.
  if (t->first >= steps && is_root(t))
    nnrt_say_note(
        "nothing to train: the checkpoint is at step %lld, and training ends at step %lld",
        (long long)t->first, (long long)steps);
  int signal_number = 0;
  const Flags *f = &t->run->flags;
  for (int64_t step = t->first; step < steps && !signal_number; step++) {
    if (f->check_write.given && !nnrt_reference_wait(r, step)) return 0;
    if (!do_step(t, step, &signal_number)) return 1;
    if (f->check_write.given) measure_noise(t, step);
  }
  if (f->check_against.given) nnrt_check_against_summary(r);
  if (signal_number && is_root(t))
    nnrt_say_note("stopped by %s after %lld of %lld steps",
                  signal_number == SIGINT ? "SIGINT" : "SIGTERM", (long long)r->step + 1,
                  (long long)steps);
  return finish(t) ? 0 : 1;
}

int nnrt_train(NnrtRank *r) {
  const NnrtProgram *p = r->program;
  Trainer t = {.r = r, .run = r->run, .p = p, .loss_scale = NAN};
  static const char *const outputs[] = {"loss", "grad_norm", "loss_scale"};
  // One list serves both graphs.
  int parts = r->code->train.n_parts, more = r->code->eval.n_parts;
  t.slice = nnrt_must_alloc((size_t)(parts > more ? parts : more) * sizeof *t.slice);
  nnrt_find_outputs(r, &p->train, outputs, 3, &t.out);
  nnrt_find_eval_outputs(r, &t.eval_out);
  int status = train(&t);
  nnrt_replicas_free(t.replicas);
  free(t.slice);
  return status;
}
