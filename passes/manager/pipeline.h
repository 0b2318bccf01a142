// What the files of the pipeline share: pipeline.c runs it, pipeline_text.c reads its text, dump.c
// shows the module between passes.

#ifndef PIPELINE_H
#define PIPELINE_H

#include "base/vec.h"
#include "pass.h"

// One option given in parentheses.
typedef struct GivenOption {
  const char *name, *value;
} GivenOption;

// A figure of --stats: `n` of `what`, summed over all runs of the pass.
typedef struct Stat {
  const char *pass, *what;
  int64_t n;
} Stat;

typedef struct Stats {
  Arena *arena;
  Vec(Stat) list;
} Stats;

struct PassOptions {
  const Pass *pass;
  Vec(GivenOption) given;
  Arena *scratch; // while the pass runs
  Stats *stats;
  const PipelineOptions *run;
};

typedef Vec(PassOptions) Steps; // a pipeline, one element per pass

bool pipeline_parse(const char *text, Arena *a, Steps *steps, Diag *d);
const char *pass_name(const char *name); // the name of today, of an older one; others stay
const Pass *pass_find(const char *name); // NULL when there is none; older names are known

// -- dump.c ----------------------------------------------------------------------------------

typedef struct Dump {
  const PipelineOptions *o;
  FILE *out;
  Arena *arena;       // of what follows
  const char *before; // the module's text before the pass that runs, or NULL
  int n;              // passes run
} Dump;

// Checks the names in the flags, and makes the folder.
bool dump_start(Dump *dump, const PipelineOptions *o, const Steps *steps, Diag *d);
void dump_end(Dump *dump);
bool dump_input(Dump *dump, const Module *m, Diag *d);
void dump_before(Dump *dump, const Module *m, const Pass *pass);
bool dump_after(Dump *dump, const Module *m, const Pass *pass, Diag *d);
// Writes a module that failed to verify where it can be found, and says where.
void dump_broken(const Dump *dump, const Module *m, const Pass *pass, Diag *d);

// -- diff.c ----------------------------------------------------------------------------------

// What changed from `a` to `b`, as a unified diff with three lines around each change.  Lines
// that differ in the width of blanks only are equal: the printer aligns.
void diff_unified(const char *a, const char *name_a, const char *b, const char *name_b, FILE *out);

#endif
