// Passes and pipelines.
//
// A pipeline is text:
//
//     simplify,loss(spec="mse(y)"),autodiff,shard(mesh=4 plan=dp)
//
// Options are in parentheses, name=value, separated by spaces or commas; a value may be quoted.

#ifndef PASS_H
#define PASS_H

#include "ir/op.h"

typedef struct PassOptions PassOptions; // options checked against the row

const char *opt_str(const PassOptions *o, const char *name); // NULL if not given
int64_t opt_int(const PassOptions *o, const char *name, int64_t otherwise);
double opt_float(const PassOptions *o, const char *name, double otherwise);
bool opt_bool(const PassOptions *o, const char *name, bool otherwise);
// Option `target`; the default is the cpu.  False after an error, if there is no such target.
bool opt_target(const PassOptions *o, Target *out, Diag *d);
Arena *opt_scratch(const PassOptions *o); // freed after the pass
// Passes the statistics of a plan's searches to the caller of the pipeline.
struct SearchStats;
void opt_searched(const PassOptions *o, const struct SearchStats *s);
struct Record *opt_record(const PassOptions *o);               // or NULL
struct LifetimeCache *opt_lives(const PassOptions *o);         // or NULL
struct PathStore *opt_paths(const PassOptions *o);             // or NULL
const struct NumberedLayers *opt_layers(const PassOptions *o); // or NULL
const struct Stop *opt_stop(const PassOptions *o);             // or NULL
bool opt_auto_plan(const PassOptions *o);
bool opt_changes_model(const PassOptions *o);
// A figure for --stats: "simplify: 12 ops folded".
void opt_stat(const PassOptions *o, int64_t n, const char *what);

typedef bool PassFn(Module *m, const PassOptions *o, Diag *d);

// The part of a pass in the proof of a plan, as passes.def explains it.
typedef enum ProofPart {
  PROOF_plain,
  PROOF_alone,
  PROOF_kept,
  PROOF_proved,
  PROOF_async
} ProofPart;

// A pass takes a module that is at least in phase `from` and leaves it in phase `to` (KEEP: the
// same phase).  A module in a later phase returns to `to`, since the pass breaks later promises.
typedef struct Pass {
  const char *name;
  Phase from, to;
  bool keep;
  bool may_skip; // the program is right without it
  ProofPart proof;
  const char *options; // "loss:s mesh:s seconds:i"
  const char *summary;
  PassFn *run;
} Pass;

extern const Pass passes[];
extern const int n_passes;

#define PASS(name, from, to, skip, proof, options, summary) PassFn pass_##name;
#define ALIAS(old, name)
#include "passes.def"
#undef PASS
#undef ALIAS

// Flags of a pipeline run; the flags of nnaot and nnaot-opt have the same names.
typedef struct PipelineOptions {
  const char *print_before, *print_after; // comma lists of pass names
  bool print_after_all, print_before_all, print_changed, verify_each, time_passes, stats;
  const char *dump_dir;    // for files NN-pass.nn
  const char *stop_after;  // a pass name
  int64_t bisect_limit;    // -1: none
  FILE *out;               // for prints; stderr by default
  FILE *diffs;             // for the diffs of every pass; or NULL
  FILE *counts;            // for the figures of --stats; or NULL
  bool unproved;           // skips proofs, for plans that are only estimated
  const Module *model;     // the model's program, of a module that is distributed already; or NULL
  Module **unproved_model; // if not NULL, the proofs of the ranks' program are left to the caller:
                           // the program that it must compute, or NULL if nothing is to be proved
  bool keep_model;         // proofs give the module its model_values (ir/model_values.h)
  bool auto_plan;          // the plan is a choice of --plan auto, not of the user
  bool changes_model;      // the plan is an error unless its programs change the model
  // Called after each pass, and each proof ("prove"), with its duration, if not NULL.
  void (*timed)(void *to, const char *pass, double seconds);
  void *timed_to;
  // Called with the statistics of a plan's searches (planner/search/search.h), if it is not NULL.
  void (*searched)(void *to, const struct SearchStats *s);
  void *searched_to;
  struct Record *record; // records the decisions of a plan's programs (record.h), or NULL
  struct LifetimeCache
      *lives; // for modules that are sharded several times (planner/search/lives.h), or NULL
  struct PathStore *paths; // for all modules of one run (paths/path_store.h), or NULL
  // Of the model that the module is cut from (repeats.h), or NULL: the module's own are found.
  const struct NumberedLayers *layers;
  const struct Stop *stop; // ends the run between passes and within searches (base/stop.h), or NULL
} PipelineOptions;

// Parses and runs a pipeline.  After each pass the module is set to the pass's phase and verified.
// The ranks' program is proved when it has its collectives, and after the last pass; a plan's
// change of the model, after `transform`.
// False also if `stop` ended it, without a message.
bool pipeline_run(Module *m, const char *pipeline, const PipelineOptions *o, Diag *d);
// The same without messages, for a trial.
bool pipeline_run_quietly(Module *m, const char *pipeline, const PipelineOptions *o);
// Proves a module of a pipeline without proofs, and frees `model`. Verifies it first, unless that
// was done after the last pass. False, without a message: a compilation with all proofs names the
// pass.
bool pipeline_prove(Module *m, Module *model, bool verified, const PipelineOptions *o);
bool pipeline_check(const char *pipeline, Diag *d); // syntax, names and options only
// Checks the names of the passes to print before or after.
bool pipeline_check_prints(const PipelineOptions *o, Diag *d);
void passes_list(FILE *out); // for --list
// The text of the pipeline `name` of pipelines.def, or NULL if there is none: of its steps from
// pass `first` on, or of all if that is NULL; with the steps whose conditions hold; and with the
// options for which value_of, if not NULL, has a value.
enum { PIPELINE_FRESH_WEIGHTS = 1, PIPELINE_LOW_PRECISION = 2 };
typedef const char *OptionValue(Arena *a, const char *pass, const char *option, const void *from);
const char *pipeline_text(Arena *a, const char *name, const char *first, unsigned conditions,
                          OptionValue *value_of, const void *from);

#endif
