// The executable: reads the flags, opens everything that can be missing or wrong, starts the ranks.
//
// Every possible mistake of the user is found here, before the first rank has done anything.

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "against.h"
#include "device.h"

static _Noreturn void usage(const char *text) {
  nnrt_ranks_refuse(2, "%s\nhint: see --help", text);
}

// Checks the requested metrics: those of the executable are outputs NAME.right of @eval.
static void check_metrics(const Flags *f, const NnrtProgram *p) {
  if (f->metric.n > MAX_METRICS) usage("--metric is given too often");
  for (int i = 0; i < f->metric.n; i++) {
    const char *name = f->metric.list[i];
    char *has = NULL;
    bool found = false;
    // The names of available metrics are collected for the hint.
    for (int k = 0; k < p->eval.n_tensors; k++) {
      const NnrtTensor *t = &p->eval.tensors[k];
      size_t n = strlen(t->name);
      if (t->role != NNRT_output || n < 6 || strcmp(t->name + n - 6, ".right") != 0) continue;
      found |= strlen(name) == n - 6 && strncmp(name, t->name, n - 6) == 0;
      has = nnrt_must_append(has, "%s%.*s", has ? ", " : "", (int)n - 6, t->name);
    }
    if (found) {
      free(has);
      continue;
    }
    nnrt_ranks_refuse(2, "there is no metric '%s'\nhint: this executable has %s", name,
                      has ? has
                          : "none: accuracy is of outputs that --loss classifies, in batches of "
                            "up to 2^24 logits");
  }
}

static void check_flags(const Flags *f, const NnrtProgram *p) {
  bool evaluates = f->eval_input.given || f->eval_tokens.given;
  if (f->steps.given && f->epochs.given)
    usage("--steps and --epochs are given, one of them is enough");
  // Flags that depend on another one.
  if (f->resume.given && !f->checkpoint_dir.given) usage("--resume needs --checkpoint-dir");
  if (f->checkpoint_every.given && !f->checkpoint_dir.given)
    usage("--checkpoint-every needs --checkpoint-dir");
  if (f->keep.given && !f->checkpoint_dir.given) usage("--keep needs --checkpoint-dir");
  if (f->eval_every.given && !evaluates) usage("--eval-every needs --eval-input");
  if (f->metric.given && !evaluates) usage("--metric needs --eval-input");
  check_metrics(f, p);
  if (f->eval_only.given && !evaluates) usage("--eval-only needs --eval-input");
  if (evaluates && !p->eval.n_tensors) usage("this executable has no graph for evaluation");
  if (f->check_against.given && f->memory.given)
    usage("--memory watches the operations of the program, and --check-against reads between them");
  if (f->export.given && !p->skeleton_bytes) usage("this executable holds no model to --export");
  // Two outputs in one file would overwrite each other.
  struct {
    const char *name;
    const Flag *flag;
  } out[] = {{"--save", &f->save},       {"--export", &f->export}, {"--trace", &f->trace},
             {"--traffic", &f->traffic}, {"--log", &f->log},       {"--tune", &f->tune},
             {"--memory", &f->memory}};
  for (size_t i = 0; i < sizeof out / sizeof *out; i++)
    for (size_t j = 0; j < i; j++)
      if (out[i].flag->given && out[j].flag->given &&
          nnrt_out_same(out[i].flag->s, out[j].flag->s)) {
        nnrt_ranks_refuse(2, "%s and %s are the same file: '%s'\nhint: see --help", out[j].name,
                          out[i].name, out[i].flag->s);
      }
}

static void compare_program(NnrtRun *run) {
  Terms program = {0}, understood = {0};
  nnrt_terms_add(&understood, "the command line", "understood"); // see nnrt_ranks_refuse
  // A rank with wrong flags sends other terms.
  nnrt_ranks_compare(run, &understood, "all ranks need the same flags", 2);
  nnrt_program_terms(run->program, &program);
  nnrt_ranks_compare(run, &program,
                     "all ranks run one executable, or those of one --split-ranks; see --describe",
                     2);
}

// Steps and batches are counted by samples, and each rank reads those of its part of a batch.
static void compare_data(NnrtRun *run) {
  Terms data = {0};
  nnrt_terms_add(&data, "the number of rows", "%lld", (long long)run->data.samples);
  nnrt_terms_add(&data, "the number of rows for evaluation", "%lld",
                 (long long)run->eval_data.samples);
  nnrt_data_terms(&run->data, "", &data);
  nnrt_data_terms(&run->eval_data, "eval-", &data);
  nnrt_ranks_compare(run, &data, "all ranks need the same data", 1);
}

// Ends a job that was started with more or fewer ranks than the program has.  Hydra notices the end
// of a process only after it connected to the others, and some of them may have another program.
static _Noreturn void refuse_world_size(NnrtRun *run) {
  int ranks = run->program->ranks, world = run->launch.world;
  Why w, unconnected;
  why(&w, "this executable is for %d rank%s, but %s is %d\nhint: compile with -g %d, or start %d",
      ranks, ranks == 1 ? "" : "s", run->launch.said_by, world, world, ranks);
  // Ranks of the wrong number still connect, to end together.
  if (run->launch.kind == LAUNCH_mpi && nnrt_ranks_connect(run, &unconnected)) {
    compare_program(run);
    nnrt_ranks_end(run, w.text, 1);
  }
  nnrt_say_error("%s", w.text);
  nnrt_end_job(1);
}

// Checks the rank of a program for one rank only.  After ranks connect, since only then one can end
// the others.
static bool check_split(const NnrtRun *run, Why *w) {
  const NnrtProgram *p = run->program;
  bool alone = run->launch.kind == LAUNCH_none;
  if (!p->split_rank || (alone ? p->ranks == 1 : run->launch.rank == p->split_rank - 1))
    return true;
  return why(w,
             "this executable can only be rank %d of %d\n"
             "hint: start all of them together, as in: mpirun -n 1 OUT.0 : -n 1 OUT.1",
             p->split_rank - 1, p->ranks);
}

// Opens schedule and data; *io_status is the exit status of the process after an error.
static bool open_schedule(NnrtRun *run, int *io_status, Why *w) {
  const Flags *f = &run->flags;
  const NnrtProgram *p = run->program;
  if (!nnrt_lr_schedule_parse(&run->schedule, p->lr_schedule, f->lr.given ? f->lr.f : p->lr, w))
    return false;
  // A schedule needs its horizon, and a falling one a minimum below its start.
  bool constant = run->schedule.kind == LR_constant;
  *io_status = 2;
  if (constant && f->lr_steps.given)
    return why(w, "--lr-steps has no effect: the learning rate is constant\n"
                  "hint: --lr-schedule when compiling");
  if (!constant && !f->steps.given && !f->epochs.given && !f->lr_steps.given)
    return why(w,
               "the learning rate's schedule is %s: how many steps it goes on must be said\n"
               "hint: --steps N, --epochs N or --lr-steps N",
               p->lr_schedule);
  if (!constant && run->schedule.min > run->schedule.lr)
    return why(w,
               "the learning rate's schedule is %s: it cannot fall from %g to %g\n"
               "hint: a larger --lr, or a smaller min when compiling",
               p->lr_schedule, run->schedule.lr, run->schedule.min);
  *io_status = 1;
  int64_t samples = run->data.samples;
  if (f->steps.given) {
    run->steps = f->steps.i;
  } else {
    if (samples == 0) return why(w, "no input has rows that could make an epoch\nhint: --steps N");
    // The last step of the last epoch may read the first samples once more.
    if (__builtin_mul_overflow(f->epochs.given ? f->epochs.i : 1, samples, &run->steps) ||
        __builtin_add_overflow(run->steps, run->data.batch - 1, &run->steps))
      return why(w, "--epochs %lld is too many", (long long)f->epochs.i);
    run->steps /= run->data.batch;
  }
  return true;
}

static bool open_eval(NnrtRun *run, Why *w) {
  const Flags *f = &run->flags;
  run->has_eval = f->eval_input.given || f->eval_tokens.given;
  if (!run->has_eval) return true;
  Data *d = &run->eval_data;
  if (!nnrt_data_open(d, run->program, &run->program->eval, &f->eval_input, &f->eval_tokens,
                      "eval-", w))
    return false;
  if (!nnrt_eval_couples_samples(run->program)) return true;
  // Only whole batches have a loss then.
  if (d->samples < d->batch)
    return why(w, "the loss couples the rows of a batch; evaluation has %lld, and a batch %lld",
               (long long)d->samples, (long long)d->batch);
  if (d->samples % d->batch && run->launch.rank == 0)
    nnrt_say_note("the loss couples the rows of a batch, so evaluation takes whole batches: the "
                  "last %lld of %lld rows are left out",
                  (long long)(d->samples % d->batch), (long long)d->samples);
  return true;
}

// Finds now the outputs that could not be written at the end.
static bool check_outputs(NnrtRun *run, Why *w) {
  const Flags *f = &run->flags;
  const Flag *files[] = {&f->save, &f->export, &f->trace, &f->traffic, &f->memory};
  // Only rank 0 writes.
  if (run->launch.rank != 0) return true;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (files[i]->given && !nnrt_out_possible(files[i]->s, w)) return false;
  if (f->log.given && !nnrt_log_open(&run->log, f->log.s, w)) return false;
  return !f->tensorboard.given || nnrt_make_folder(f->tensorboard.s, w);
}

// An evaluation and a reference only read the folder.
static bool writes_checkpoints(const NnrtRun *run) {
  const Flags *f = &run->flags;
  return run->launch.rank == 0 && !f->eval_only.given && !f->check_write.given;
}

static int verify(const NnrtRun *run) {
  const Flag *dir = &run->flags.checkpoint_dir;
  bool ok = nnrt_payload_verify(run->program, stdout);
  if (dir->given) ok &= nnrt_checkpoints_verify(dir->s, stdout);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    nnrt_say_error("cannot write to standard output: %s", strerror(errno));
    ok = false;
  }
  return ok ? 0 : 1;
}

// Finds damage to the model now, not when --export writes it after the last step.
static bool check_export(const NnrtRun *run, Why *w) {
  const NnrtProgram *p = run->program;
  if (!run->flags.export.given || run->launch.rank != 0) return true;
  return p->payload_bytes == p->skeleton ||
         nnrt_payload_check(p, p->skeleton, p->payload_bytes - p->skeleton, w);
}

// Reports the reason that a run does not begin, and returns its exit status.
static int say_why(const Why *w) {
  nnrt_say_error("%s", w->text);
  return 1;
}

// Generated code keeps some promises (NnrtGraph): persistent tensors are at one place in both
// graphs.
static void check_places(const NnrtProgram *p) {
  for (int i = 0; i < p->eval.n_tensors; i++) {
    const NnrtTensor *e = &p->eval.tensors[i];
    const NnrtTensor *t =
        nnrt_tensor_lasts(e) ? nnrt_find_tensor(&p->train, e->role, e->name) : NULL;
    if (!nnrt_tensor_lasts(e) || (t && t->offset == e->offset && t->dtype == e->dtype)) continue;
    nnrt_ranks_refuse(
        1, "this executable is damaged: '%s' is not the same in training and evaluation", e->name);
  }
}

// Finds the ranks of this process, its instruction set, its threads and its seed.
static bool find_ranks(NnrtRun *run, const char *name, int64_t *out_isa, int *out_here, Why *w) {
  const NnrtProgram *p = run->program;
  if (!nnrt_launch_find(&run->launch, w)) return false;
  bool several = run->launch.kind != LAUNCH_none;
  if (!nnrt_device_isa(out_isa, w)) nnrt_ranks_refuse(2, "%s", w->text);
  nnrt_say_as(name, run->launch.rank, several && run->launch.world > 1);
  if (several && run->launch.world != p->ranks) refuse_world_size(run);
  *out_here = several ? run->launch.local_world : p->ranks;
  run->threads = nnrt_launch_threads(&run->launch, *out_here > 0 ? *out_here : p->ranks);
  run->seed = run->flags.seed.given ? run->flags.seed.i : p->seed;
  return true;
}

// All ranks run the same program with the same flags, or they would wait for each other.
static void compare_ranks(NnrtRun *run) {
  Terms flags = {0}, variables = {0};
  compare_program(run); // first: another program may have other flags
  nnrt_flags_terms(&run->flags, &flags);
  nnrt_ranks_compare(run, &flags, "all ranks need the same flags; only names of files may differ",
                     2);
  nnrt_device_variables(&variables);
  nnrt_ranks_compare(run, &variables,
                     "it is a variable of the environment, which changes results: set it to one "
                     "value on all ranks",
                     2);
}

// Opens weights, data, the schedule of the learning rate and the folder of checkpoints.
static bool open_files(NnrtRun *run, int *out_failure, Why *w) {
  const NnrtProgram *p = run->program;
  const Flags *f = &run->flags;
  return nnrt_payload_open(p, &run->payload, w) && check_export(run, w) &&
         (f->eval_only.given ||
          (nnrt_data_open(&run->data, p, &p->train, &f->input, &f->tokens, "", w) &&
           open_schedule(run, out_failure, w))) &&
         open_eval(run, w) && check_outputs(run, w) &&
         (!f->checkpoint_dir.given ||
          nnrt_checkpoint_open(&run->checkpoints, f->checkpoint_dir.s,
                               f->keep.given && f->keep.i < 1 << 30 ? (int)f->keep.i : 3,
                               writes_checkpoints(run), w));
}

int nnrt_main(int argc, char **argv, const NnrtProgram *p) {
  static NnrtRun run = {.log.fd = -1, .events.fd = -1};
  const char *name = nnrt_base_name(argv[0]);
  const Flags *f = &run.flags;
  Why w;
  run.program = p;
  if (p->fill) p->fill();
  nnrt_say_as(name, 0, false);
  nnrt_stacks_as(name);
  nnrt_signals_begin();
  int status;
  nnrt_payload_refuse();
  if (!nnrt_preinit(argc, argv, &w)) return say_why(&w);
  nnrt_catch_exceptions();
  nnrt_reserve_process();
  if (nnrt_device_special_run(p, &status)) return status;
  nnrt_flags_parse(&run.flags, argc, argv, p);
  if (p->fill_checks && (f->check_values.given || f->check_against.given || f->check_write.given))
    p->fill_checks();
  if (f->append.given) return nnrt_append(p, &f->append, &w) ? 0 : say_why(&w);
  if (f->verify.given) return verify(&run);
  check_places(p);
  check_flags(&run.flags, p);
  if (!nnrt_reserve_stack(&w)) nnrt_ranks_refuse(1, "%s", w.text);
  nnrt_spin_less(argv);
  nnrt_node_start(&run.flags, p);
  nnrt_signals_listen();
  if (f->check_write.given && !nnrt_reference_open(&run, &w)) return say_why(&w);

  int64_t isa;
  int ranks_here;
  if (!find_ranks(&run, name, &isa, &ranks_here, &w)) return say_why(&w);
  // Before any rank can connect, and so before any takes memory that counts as free.  A missing
  // device is reported after ranks connect: then a launcher is sure to notice.
  Why missing;
  bool found = nnrt_device_find(&run, &missing);

  bool connected = nnrt_ranks_connect(&run, &w);
  if (connected) compare_ranks(&run);
  Why no_kernels;
  bool agreed = !connected || nnrt_kernels_agree(&run, isa, &no_kernels);
  // All ranks have the same flags, so one rank reports errors in them.
  if (connected && !nnrt_in_use_possible(&run, &w)) nnrt_ranks_end(&run, w.text, 1);
  int failure = 1;
  bool ok = connected && check_split(&run, &w) && (agreed || why(&w, "%s", no_kernels.text)) &&
            (found || why(&w, "%s", missing.text)) &&
            nnrt_device_enough(&run, ranks_here > 0 ? ranks_here : 1, &w) &&
            open_files(&run, &failure, &w);
  if (!connected) {
    say_why(&w);
    nnrt_end_job(1);
  }
  nnrt_ranks_check(&run, ok ? 0 : failure, w.text);
  if (run.launch.rank == 0) {
    nnrt_data_say_converted(&run.data, "");
    nnrt_data_say_converted(&run.eval_data, "eval-");
  }
  compare_data(&run);
  if (f->checkpoint_dir.given && run.launch.rank == 0)
    nnrt_fingerprints_find(&run.checkpoints, p, &run.data);
  if (f->check_against.given) nnrt_reference_start(&run);
  nnrt_crash_watch_again();
  nnrt_signals_catch();

  // Beyond this point ranks run, and any failure ends the job.
  int result = nnrt_ranks_run(&run);
  if (f->check_against.given) nnrt_reference_end(&run);
  nnrt_checkpoint_unlock();
  return result;
}
