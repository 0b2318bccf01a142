// Declarations shared by the files of nnaot; nnaot-plan fit goes as far as the choice of a plan.
//
//     nnaot.c               the options, and the steps from a model to its outputs
//     driver_settings.c     their defaults
//     driver_import.c       the model as a module
//     driver_check.c        errors that can be known before the model is read
//     driver_choose.c       the plan: as requested, as the model is annotated, or the best
//     driver_pipeline.c     the text of the pipeline for a plan
//     driver_write.c        printed and written outputs
//     driver_executable.c   among these, executables and their C sources
//     driver_check_with.c   and the reference of --check-with
//     summary.c, explain.c, trace_file.c, problem_file.c
//                           the texts of --summary, --comm-manifest, --explain, --trace and
//                           --report-json
//     report.h, report*.c   the page of --report
//
// The command line and the choice are values that the steps hand on.  After check_settings neither
// changes: another plan is another Choice.

#ifndef TOOLS_DRIVER_H
#define TOOLS_DRIVER_H

#include "backend/backend.h"
#include "frontend/onnx.h"
#include "options.h"
#include "pass.h"
#include "planner/plan/plan.h"
#include "planner/saved/record.h"
#include "summary.h"

typedef enum Emit { EMIT_exe, EMIT_nn, EMIT_c, EMIT_plan, EMIT_onnx } Emit;

// The plan of a step.
typedef struct Choice {
  const char *name;      // as in --plan
  Plan plan;             // its programs and their axes; empty until the plan is known
  int64_t micro_batches; // of a batch
  int factoring;         // number of its factoring of ranks (factoring.h), or left to shard
  int64_t memory;        // bytes per rank that searches assume; 0: the memory of the devices
  int64_t work;          // work limit of a search's solver; 0: the default
  double wanted;         // seconds of a step beyond which a search finds nothing; 0: none
  struct LifetimeCache
      *known; // answers of its searches when it was chosen (planner/search/lives.h), or NULL
} Choice;

// The command line: a field for each option, and fields computed of them.
typedef struct Settings {
  const char *model; // a file
  int argc;          // the command line, which --summary and --report quote
  char **argv;
  PipelineOptions run; // options of the passes

#define OPT_FLAG(field, name, letter, initial, help)           bool field;
#define OPT_INTEGER(field, name, letter, initial, value, help) int64_t field;
#define OPT_NUMBER(field, name, letter, initial, value, help)  double field;
#define OPT_STRING(field, name, letter, initial, value, help)  const char *field;
#define OPT_LIST(field, name, letter, value, help)             Strings field;
#include "nnaot.def"

  // Computed by main and the checks:
  Emit emit;
  BackendOptions backend; // target, how to link, and whether to write only sources
  double lr;              // --lr, or the default of the optimizer
  double least_lr;        // minimum of the schedule
  Choice asked;           // --plan
  const char *network;    // the cluster that routes collectives: --cluster, or that of --per-node
  bool is_cut;            // the option or a program fixes the number of micro-batches
  const Loc *cut_by;      // if so: that line of a program; NULL: the option
  int64_t promised;       // bytes of a rank under the saved plan, as it says; 0: it does not
  const Loc *promised_by; // that line
  bool may_report;        // --report-json can be written, beside all other files
  bool only_priced;       // nnaot-plan fit: candidates are measured, and none is kept
  bool made_folder;       // --emit c created its folder, which is removed if it stays empty
} Settings;

// A training step, and findings of its compilation.
typedef struct Compiled {
  OnnxOptions import;
  OnnxFindings found; // in the model
  Choice choice;
  Module *m;      // the program of a rank
  Module *model;  // a copy from before the passes; only for --emit onnx
  Module *proved; // the model's program of --prove, or NULL
  bool unproved;  // the module was distributed when it was read, without --prove
  Summary summary;
  struct PathStore *paths; // of all compilations: candidates ask for the same ones
  // With only_priced: the candidates, and the best of those that fit, else the nearest miss, or
  // NULL.
  Candidates tried;
  const Candidate *best;
  bool interrupted; // Ctrl-C ended the choice without a plan
  Record record;    // of the plan; only for a plan written as a program
  FILE *diffs;      // changes by passes, in `diff_text`; only for --report
  char *diff_text;
  size_t diff_bytes;
  FILE *counts; // the figures of --stats, in `count_text`; only for --report
  char *count_text;
  size_t count_bytes;
} Compiled;

// -- driver_check.c --------------------------------------------------------------------------

// Checks everything that can be wrong before the model is read.  Returns an exit status.
int check_settings(Settings *s, Arena *a, Diag *d);
// Checks that the minimum of the schedule is at most this learning rate.
bool check_least_lr(const Settings *s, double lr, Diag *d);
// Checks that the step is for the requested number of ranks, and fits into their memory.
bool check_compiled(const Settings *s, const Compiled *c, Arena *a, Diag *d);

// Checks that --explain names something that passes up to shard know, or that later ones may make.
bool check_explained(const Settings *s, const Module *m, Arena *a, Diag *d);

// Whether the model is a module in text form.
bool is_text(const Settings *s);

extern Settings settings; // of the command line

// -- driver_import.c -------------------------------------------------------------------------

// Reads the model into c->m, and warns of findings in it.  *annotated: whether it has annotations
// of devices.
bool driver_import(const Settings *s, Compiled *c, bool *annotated, Diag *d);
// Options for running passes, with the observers of their results.  Clears earlier results.
const PipelineOptions *run_options(const Settings *s, Compiled *c, Arena *a);

// -- driver_choose.c -------------------------------------------------------------------------

// Whether nnaot chooses how ranks share the work.  A single rank has nothing to share, and only
// takes a plan that needs less memory, if memory is limited.
bool is_auto(const Settings *s);
bool is_annotated_plan(const char *name); // one that follows the annotations of a model
// Whether the plan follows the annotations of the model.
bool follows_annotations(const Settings *s);

// Reads --plan into s->asked.
bool ask_plan(Settings *s, Arena *a, Diag *d);
// Checks that the programs of s->asked can be run.  They may fix the number of micro-batches.
bool ask_programs(Settings *s, Arena *a, Diag *d);
// Takes the device annotations of the model if the plan follows them; otherwise *out is NULL, and
// the module loses them.  `annotated`: whether the file has any.
bool take_annotations(const Settings *s, Module *m, bool annotated, const Annotations **out,
                      Arena *a, Diag *d);
// Chooses the plan, and the number of micro-batches with which it fits into memory.  `annotations`:
// the device annotations of the model, or NULL.  *made is the compiled step of that plan if
// choosing compiled it with all effects of run_options; else NULL.
bool driver_choose(const Settings *s, Compiled *c, const Annotations *annotations, Module **made,
                   Arena *a, Diag *d);

// Compiles the step of a candidate without proving it.  Returns NULL after an error, which is
// reported.
Module *driver_compile(const Settings *s, Compiled *c, const Annotations *annotations,
                       const Candidate *of, Arena *a, Diag *d);
// Whether one of the plans that take little time to make fits on s->ranks of the summary's cluster.
bool driver_quick(const Settings *s, Compiled *c, Arena *a, Candidate *out);

// -- driver_pipeline.c -----------------------------------------------------------------------

// The target's pipeline for these settings and this plan.
const char *train_pipeline(Arena *a, const Settings *s, const Choice *c);
// The steps of it from the first pass of this name on.
const char *train_pipeline_from(Arena *a, const Settings *s, const Choice *c, const char *first);
// Joins strings: "a,b,c".
const char *strings_joined(Arena *a, const Strings *s, const char *between);

// -- driver_write.c --------------------------------------------------------------------------

// Whether the plan is written as a program: --emit plan -o FILE.lua.
bool writes_program(const Settings *s);
// Checks that a step of so many ranks can be predicted on the cluster, if an output shows it.
bool check_priced(const Settings *s, const Cluster *c, int64_t ranks, Diag *d);
bool write_all(const Settings *s, Compiled *c, Arena *a, Diag *d);

// -- driver_executable.c ---------------------------------------------------------------------

// Writes the executables, or with --emit c their sources.
bool write_executable(const Settings *s, const Compiled *c, Arena *a, Diag *d);

// -- driver_check_with.c ---------------------------------------------------------------------

// The name of the reference of --check-with: "train_rank.check".
const char *check_output(const Settings *s, Arena *a);
// Checks that the module can be compared with a reference.
bool check_reference(const Settings *s, const Compiled *c, Diag *d);
bool write_check(const Settings *s, const Compiled *c, Arena *a, Diag *d);

#endif
