// What the files of nnaot share.
//
//     nnaot.c               the options, and the steps from a model to what is written
//     driver_check.c        what can be known to be wrong before the model is read
//     driver_choose.c       the plan: as it was asked for, as the model says, or the best
//     driver_pipeline.c     by such a plan, the text of the pipeline
//     driver_write.c        what is printed and written
//     driver_executable.c   of that, executables and the C that they are made of
//     summary.c, explain.c, trace_file.c
//                           the texts of --summary, --comm-manifest, --explain and --trace
//     report.h, report*.c   the page of --report
//
// What the command line said and what was chosen are values that are handed on.  After
// check_settings neither changes: another plan is another Choice.

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

// By which plan the step is made.
typedef struct Choice {
  const char *name;      // as in --plan
  Plan plan;             // its programs and their axes; none where the plan is not known yet
  int64_t micro_batches; // of a batch
  int factoring;         // of its ranks, by number (factoring.h), or left to shard
  int64_t memory;        // bytes of a rank that searches count on; 0: what devices have
  int64_t work;          // of a search's solver; 0: as it likes
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
  BackendOptions backend; // target, how to link, and whether only sources are made
  double lr;              // --lr, or the default of the optimizer
  double least_lr;        // of the schedule
  Choice asked;           // --plan
  bool is_cut;       // how many micro-batches there are was said, by the option or by a program
  const Loc *cut_by; // then: by which line of a program; NULL: by the option
  bool made_folder;  // of --emit c: it goes again when nothing comes into it
} Settings;

// A training step, and what was seen on the way to it.
typedef struct Compiled {
  OnnxOptions import;
  OnnxFindings found; // in the model
  Choice choice;
  Module *m;     // what one rank does
  Module *model; // as it was before the passes; only for --emit onnx
  Summary summary;
  Record record; // of the plan; only for a plan that is written as a program
  FILE *diffs;   // what the passes changed, in `diff_text`; only for --report
  char *diff_text;
  size_t diff_bytes;
  FILE *counts; // the figures of --stats, in `count_text`; only for --report
  char *count_text;
  size_t count_bytes;
} Compiled;

// -- driver_check.c --------------------------------------------------------------------------

// Everything that can be wrong before the model is read.  Returns an exit status.
int check_settings(Settings *s, Arena *a, Diag *d);
// Whether the schedule goes down from this learning rate.
bool check_least_lr(const Settings *s, double lr, Diag *d);
// Whether the step is for as many ranks as were asked for, and fits into their memory.
bool check_compiled(const Settings *s, const Compiled *c, Arena *a, Diag *d);

// Whether --explain asks about something that passes up to shard know, or those after it may make.
bool check_explained(const Settings *s, const Module *m, Arena *a, Diag *d);

// Whether the model is a module in text form.
bool is_text(const Settings *s);

// -- nnaot.c ---------------------------------------------------------------------------------

// How passes are run, and who is told what happens: nobody has been told anything yet.
const PipelineOptions *run_options(const Settings *s, Compiled *c, Arena *a);

// -- driver_choose.c -------------------------------------------------------------------------

// Whether nnaot chooses how ranks share the work: one rank has nothing to share, but where its
// memory is limited takes a plan that needs less.
bool is_auto(const Settings *s);
// Whether the plan is what the model is annotated with.
bool follows_annotations(const Settings *s);

// Reads --plan into s->asked.
bool ask_plan(Settings *s, Arena *a, Diag *d);
// Whether the programs of s->asked can be run.  They may say how many micro-batches they are for.
bool ask_programs(Settings *s, Arena *a, Diag *d);
// What the model says of devices, where that is followed: else *out is NULL, and the module forgets
// it.  `annotated`: whether the file says anything.
bool take_annotations(const Settings *s, Module *m, bool annotated, const Annotations **out,
                      Arena *a, Diag *d);
// The plan, and how many micro-batches it takes to fit into memory.  `said` is what the model says
// of devices, or NULL.  *made is the step by that plan, where all that is done for it was done on
// the way, as run_options says; else NULL.
bool choose(const Settings *s, Compiled *c, const Annotations *said, Module **made, Arena *a,
            Diag *d);

// -- driver_pipeline.c -----------------------------------------------------------------------

// The target's pipeline, with what the settings describe.
const char *train_pipeline(Arena *a, const Settings *s, const Choice *c);
// "a,b,c"
const char *joined(Arena *a, const Strings *s, const char *between);

// -- driver_write.c --------------------------------------------------------------------------

// Whether the plan is written as a program: --emit plan -o FILE.lua.
bool writes_program(const Settings *s);
// Whether a step of as many ranks can be predicted there, where that is to be shown.
bool check_priced(const Settings *s, const Cluster *c, int64_t ranks, Diag *d);
bool write_all(const Settings *s, Compiled *c, Arena *a, Diag *d);

// -- driver_executable.c ---------------------------------------------------------------------

// The executables, or with --emit c what they would be made of.
bool write_executable(const Settings *s, const Compiled *c, Arena *a, Diag *d);

#endif
