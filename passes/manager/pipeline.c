// Runs the passes of a pipeline over a module, one after the other:
//
//     simplify -> verify -> autodiff -> verify -> shard -> verify -> …
//
// All passes are called from here.  For each: check the module's phase, run the pass, set the
// module to the pass's phase, verify the promises of that phase, dump and time it.  A broken
// promise is an error of nnaot, and the message names the pass that broke it.
//
// Before the first pass that distributes the program (column `proof` of passes.def) the module is
// copied.  Proofs show that the ranks compute the same as the copy: one when the program has its
// collectives, for errors that name them, and one after the last pass.  A pass that is proved
// alone, because a plan changes the model there, has a proof and a copy of its own.  A caller that
// compiles several plans proves the last of them only: the copy is all that this needs.

#include "pipeline.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/stop.h"
#include "ir/analysis/place.h"
#include "ir/model_values.h"
#include "prove/prove.h"
#include "schedule/kinds.h"
#include "stamp.h"

typedef struct Timing {
  const char *what; // a pass, or "prove"
  double seconds;
} Timing;

typedef struct Run {
  Module *m;
  const PipelineOptions *o;
  Diag *d;
  Arena *arena;
  Phase read; // the module's phase before the first pass
  Dump dump;
  Stats stats;
  Vec(Timing) timings;
  int64_t n_optional;   // optional passes so far
  Module *model;        // the module before the first pass that distributes it, or NULL
  Module *before;       // the module before a pass that is proved alone, or NULL
  const Pass *unproved; // the last pass since the last proof, or NULL
  const Pass *proved;   // the pass before the last proof, or NULL
  ModuleStamp copied;   // the stamp of the module when it was copied to `before`
  ModuleStamp verified; // the stamp of the module when it was last verified
} Run;

void opt_stat(const PassOptions *o, int64_t n, const char *what) {
  Stats *stats = o->stats;
  for (int i = 0; i < stats->list.n; i++) {
    Stat *s = &stats->list.at[i];
    // Numbers of the same kind are summed.
    if (s->pass == o->pass->name && !strcmp(s->what, what)) {
      s->n += n;
      return;
    }
  }
  Stat stat = {o->pass->name, str_copy(stats->arena, what), n};
  vec_push(stats->arena, &stats->list, stat);
}

void opt_searched(const PassOptions *o, const struct SearchStats *s) {
  if (o->run->searched) o->run->searched(o->run->searched_to, s);
}

struct Record *opt_record(const PassOptions *o) {
  return o->run->record;
}

struct LifetimeCache *opt_lives(const PassOptions *o) {
  return o->run->lives;
}

const struct NumberedLayers *opt_layers(const PassOptions *o) {
  return o->run->layers;
}

struct PathStore *opt_paths(const PassOptions *o) {
  return o->run->paths;
}

bool opt_changes_model(const PassOptions *o) {
  return o->run->changes_model;
}

const struct Stop *opt_stop(const PassOptions *o) {
  return o->run->stop;
}

bool opt_auto_plan(const PassOptions *o) {
  return o->run->auto_plan;
}

// -- One pass --------------------------------------------------------------------------------

// The first pass that leaves a module in a later phase than this one.
static const Pass *first_beyond(Phase phase) {
  int i = 0;
  while (passes[i].keep || passes[i].to <= phase)
    i++;
  return &passes[i];
}

static bool check_phase(Run *r, const Pass *pass) {
  Phase phase = r->m->phase;
  if (phase < pass->from) {
    diag_error(r->d, NULL, "pass '%s' wants a %s module, but this one is %s", pass->name,
               phase_name[pass->from], phase_name[phase]);
    // The first pass that reaches the phase is the likely cure.
    for (int i = 0; i < n_passes; i++)
      if (!passes[i].keep && passes[i].from < pass->from && passes[i].to >= pass->from) {
        diag_hint(r->d, "run '%s' before it", passes[i].name);
        break;
      }
    return false;
  }
  // A phase is not left for an earlier one, and types are made local once.
  bool back = pass->to < phase, again = phase == PHASE_local && pass->from < phase;
  if (pass->keep || (!back && !again)) return true;
  diag_error(r->d, NULL, "pass '%s' comes too late: the module is %s", pass->name,
             phase_name[phase]);
  if (r->read > pass->to || r->read == phase)
    diag_hint(r->d, "--passes takes the passes that remain; --passes= runs none");
  else if (back)
    diag_hint(r->d, "run '%s' before '%s'", pass->name, first_beyond(pass->to)->name);
  else
    diag_hint(r->d, "run '%s' once", pass->name);
  return false;
}

// --opt-bisect-limit: optional passes run up to a number.
static void timed(Run *r, const char *what, double start) {
  Timing timing = {what, clock_seconds() - start};
  vec_push(r->arena, &r->timings, timing);
  if (r->o->timed) r->o->timed(r->o->timed_to, what, timing.seconds);
}

// Proves the module; with keep_model, it gets the values of the model's program that its own stand
// for.
static bool prove_ranks(Run *r) {
  if (!r->o->keep_model) return prove_module(r->model, r->m, r->d);
  ModelValues *values = arena_one(r->m->arena, ModelValues);
  if (!prove_module_values(r->model, r->m, r->m->arena, values, r->d)) return false;
  if (r->m->model_values) module_free(r->m->model_values->program);
  values->program = module_clone(r->model);
  r->m->model_values = values;
  return true;
}

// Forgets them, of a module that is another one now.
static void drop_values(Run *r) {
  if (r->m->model_values) module_free(r->m->model_values->program);
  r->m->model_values = NULL;
}

static bool prove_plan(Run *r) {
  const Pass *pass = r->unproved;
  double start = clock_seconds();
  if (!pass || !r->model) return true;
  r->unproved = NULL;
  // Without verify_each the module is verified here, as the proof relies on it.
  bool ok = (r->o->verify_each || module_verify(r->m, r->d)) && prove_ranks(r);
  timed(r, "prove", start);
  if (ok) {
    r->proved = pass;
    return true;
  }
  diag_error(r->d, NULL,
             "after pass '%s': the ranks do not compute the model; this is a bug of nnaot",
             pass->name);
  if (r->proved)
    diag_hint(r->d,
              "they did after pass '%s': of the files of --dump-dir, nnaot-opt FILE --prove=MODEL "
              "finds the first that does not",
              r->proved->name);
  dump_broken(&r->dump, r->m, pass, r->d);
  return false;
}

// Proves a pass against the module right before it.
static bool prove_alone(Run *r, const Pass *pass) {
  double start = clock_seconds();
  // Most plans change nothing in the model.
  ModuleStamp now;
  bool same = module_stamp(r->m, r->arena, &now) && stamp_same(&r->copied, &now);
  bool ok = same || ((r->o->verify_each || module_verify(r->m, r->d)) &&
                     prove_module(r->before, r->m, r->d));
  module_free(r->before);
  r->before = NULL;
  timed(r, "prove", start);
  if (ok) return true;
  diag_error(r->d, NULL,
             "after pass '%s': the model computes something else; this is a bug of nnaot",
             pass->name);
  dump_broken(&r->dump, r->m, pass, r->d);
  return false;
}

static void drop_model(Run *r) {
  if (r->model) module_free(r->model);
  r->model = NULL;
  r->unproved = r->proved = NULL;
}

// Whether the schedule that the plan asks for is asynchronous; also if its kind cannot be read, of
// which a pass reports the error.
static bool asks_asynchronous(const Module *m) {
  if (!m->schedule) return false;
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  ScheduleKind kind;
  ScheduleNature nature = {0};
  diag_quiet(d, true);
  bool read = !schedule_kind(a, m->schedule, &kind) && schedule_nature(a, &kind, &nature, d);
  diag_free(d);
  arena_free(a);
  return !read || nature.asynchronous;
}

// Proves the program of the passes before `pass`, if its part in the proof wants that, or copies
// the model's program.
static bool prove_before(Run *r, const Pass *pass) {
  if (pass->proof == PROOF_plain || pass->proof == PROOF_alone) {
    bool proved = prove_plan(r);
    double start = clock_seconds();
    drop_model(r);
    drop_values(r);
    if (pass->proof == PROOF_plain || r->o->unproved) return proved;
    r->before = module_clone(r->m);
    module_stamp(r->m, r->arena, &r->copied);
    timed(r, "prove", start);
    return proved;
  }
  // No proof follows a pass that makes the module asynchronous.
  if (pass->proof == PROOF_async && asks_asynchronous(r->m) && !prove_plan(r)) return false;
  // A module with local types no longer has the global ones, so it cannot serve as the reference.
  if (r->model || r->o->unproved || r->m->phase >= PHASE_local) return true;
  double start = clock_seconds();
  r->model = module_clone(r->m);
  timed(r, "prove", start);
  return true;
}

static bool prove_after(Run *r, const Pass *pass) {
  if (r->before) return prove_alone(r, pass);
  if (!r->model || pass->proof == PROOF_plain) return true;
  if (pass->proof == PROOF_async && module_asynchronous(r->m)) {
    drop_model(r);
    drop_values(r);
    return true;
  }
  r->unproved = pass;
  return pass->proof != PROOF_proved || r->o->unproved_model || prove_plan(r);
}

// The number of different orders in entry graphs; -1 if ops are out of order.
static int count_orders(const Module *m) {
  int n = 0;
  for_each_graph(g, m) {
    if (!g->entry) continue;
    int order = 0;
    for_each_op(op, g) {
      if (op->order && op->order < order) return -1;
      // Ops without an order do not interrupt one.
      n += op->order != order && op->order;
      if (op->order) order = op->order;
    }
  }
  return n;
}

// Whether a pass keeps the order of op_order.  Tries an optional pass on a copy; it is skipped if
// it would break or lose the order.
static bool keeps_orders(Run *r, PassOptions *step) {
  // Few plans have orders; the stamp is of the module as the pass before left it.
  bool unordered = r->verified.known && !r->verified.ordered;
  int n = step->pass->may_skip && !unordered ? count_orders(r->m) : 0;
  if (n == 0) return true;
  // The pass runs on a copy, with options and statistics of its own.
  Module *trial = module_clone(r->m);
  Diag *d = diag_new(stderr);
  PassOptions alone = *step;
  Stats stats = {.arena = r->arena};
  diag_quiet(d, true);
  alone.stats = &stats;
  alone.run = r->o;
  alone.scratch = arena_new();
  // The trial is silent: the pass itself reports errors later.
  bool keeps = !alone.pass->run(trial, &alone, d) || count_orders(trial) == n; // reports its error
  arena_free(alone.scratch);
  diag_free(d);
  module_free(trial);
  if (!keeps)
    diag_warning(r->d, NULL, "pass '%s' is left out: it would change the order that op_order wants",
                 step->pass->name);
  return keeps;
}

// Verifies the module, without the graphs that are as they were when it was verified before.
static bool verify_changes(Run *r) {
  ModuleStamp before = r->verified;
  module_stamp(r->m, r->arena, &r->verified);
  if (stamp_same(&before, &r->verified)) return true;
  const bool *kept = stamp_kept_graphs(&before, &r->verified, r->arena);
  return module_verify_except(r->m, kept, r->d);
}

static bool run_pass(Run *r, PassOptions *step) {
  const Pass *pass = step->pass;
  if (!check_phase(r, pass)) return false;
  // --opt-bisect-limit: optional passes run up to a number.
  if (r->o->bisect_limit >= 0 && pass->may_skip) {
    bool run = ++r->n_optional <= r->o->bisect_limit;
    fprintf(r->dump.out, "BISECT: %s pass (%" PRId64 ") %s\n", run ? "running" : "NOT running",
            r->n_optional, pass->name);
    if (!run) return true;
  }
  if (!keeps_orders(r, step)) return true;
  if (!prove_before(r, pass)) return false;
  dump_before(&r->dump, r->m, pass);

  double start = clock_seconds();
  step->stats = &r->stats;
  step->run = r->o;
  step->scratch = arena_new();
  bool ok = pass->run(r->m, step, r->d);
  arena_free(step->scratch);
  timed(r, pass->name, start);
  if (!ok) return false;

  // The module is in the phase of the pass, and must keep the promises of it.
  if (!pass->keep) r->m->phase = pass->to;
  if (!dump_after(&r->dump, r->m, pass, r->d)) return false;
  if (r->o->verify_each && !verify_changes(r)) {
    diag_error(r->d, NULL,
               "after pass '%s': the module breaks a promise of phase '%s'; this is a bug of nnaot",
               pass->name, phase_name[r->m->phase]);
    dump_broken(&r->dump, r->m, pass, r->d);
    return false;
  }
  return prove_after(r, pass);
}

// -- All passes ------------------------------------------------------------------------------

static void print_stats(const Run *r, FILE *out) {
  for (int i = 0; i < r->stats.list.n; i++)
    fprintf(out, "%s: %" PRId64 " %s\n", r->stats.list.at[i].pass, r->stats.list.at[i].n,
            r->stats.list.at[i].what);
}

bool pipeline_run(Module *m, const char *pipeline, const PipelineOptions *o, Diag *d) {
  Run r = {.m = m, .o = o, .d = d, .arena = arena_new(), .read = m->phase};
  Steps steps = {0};
  r.stats.arena = r.arena;
  bool ok = pipeline_parse(pipeline, r.arena, &steps, d);
  if (ok) {
    // A module that is distributed already has its model's program beside it.
    if (o->model && m->phase >= PHASE_sharded && !module_asynchronous(m))
      r.model = module_clone(o->model);
    ok = dump_start(&r.dump, o, &steps, d) && (!o->verify_each || verify_changes(&r)) &&
         dump_input(&r.dump, m, d);
    for (int i = 0; ok && i < steps.n; i++) {
      if (stop_wanted(o->stop)) {
        ok = false;
        break;
      }
      ok = run_pass(&r, &steps.at[i]);
      if (o->stop_after && !strcmp(pass_name(o->stop_after), steps.at[i].pass->name)) break;
    }
    // The last proof, or the program that it needs.
    if (o->unproved_model && ok && r.unproved) {
      *o->unproved_model = r.model;
      r.model = NULL;
    }
    ok = ok && prove_plan(&r);
    drop_model(&r);
    if (r.before) module_free(r.before);
    // --time-passes, also after an error.
    if (o->time_passes) {
      double total = 0;
      for (int i = 0; i < r.timings.n; i++)
        total += r.timings.at[i].seconds;
      fprintf(r.dump.out, "%10s %6s  %s\n", "seconds", "share", "pass");
      for (int i = 0; i < r.timings.n; i++)
        fprintf(r.dump.out, "%10.4f %5.1f%%  %s\n", r.timings.at[i].seconds,
                total > 0 ? 100 * r.timings.at[i].seconds / total : 0, r.timings.at[i].what);
      fprintf(r.dump.out, "%10.4f %5.1f%%  total\n", total, total > 0 ? 100.0 : 0.0);
    }
    if (o->stats) print_stats(&r, r.dump.out);
    if (o->counts) print_stats(&r, o->counts);
    dump_end(&r.dump, d);
  }
  arena_free(r.arena);
  return ok;
}

bool pipeline_prove(Module *m, Module *model, bool verified, const PipelineOptions *o) {
  Run r = {.m = m, .o = o, .d = diag_new(stderr), .arena = arena_new(), .model = model};
  double start = clock_seconds();
  diag_quiet(r.d, true);
  bool ok = !model || ((verified || module_verify(m, r.d)) && prove_ranks(&r));
  timed(&r, "prove", start);
  drop_model(&r);
  diag_free(r.d);
  arena_free(r.arena);
  return ok;
}

bool pipeline_run_quietly(Module *m, const char *pipeline, const PipelineOptions *o) {
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  bool ok = pipeline_run(m, pipeline, o, d);
  diag_free(d);
  return ok;
}
