// Declarations shared by the files of the pipeline: pipeline.c runs it, pipeline_text.c parses its
// text, dump.c prints the module between passes.

#ifndef PIPELINE_H
#define PIPELINE_H

#include "base/vec.h"
#include "pass.h"

// One option given in parentheses.
typedef struct GivenOption {
  const char *name, *value;
} GivenOption;

// A figure of --stats: the sum of `n` over all runs of the pass, labelled `what`.
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
const char *pass_name(const char *name); // replaces older names
const Pass *pass_find(const char *name); // NULL if there is none; older names work

// -- dump.c ----------------------------------------------------------------------------------

typedef struct DumpFiles DumpFiles;

typedef struct Dump {
  const PipelineOptions *o;
  FILE *out;
  Arena *arena;       // of the fields below
  const char *before; // the module's text before the current pass, or NULL
  int n;              // passes so far
  DumpFiles *found;   // in the folder before this run, and not written by it so far
} Dump;

// Checks that the pass to stop after runs, and creates the folder.
bool dump_start(Dump *dump, const PipelineOptions *o, const Steps *steps, Diag *d);
// Reports files of earlier runs that are still in the folder.
void dump_end(Dump *dump, Diag *d);
bool dump_input(Dump *dump, const Module *m, Diag *d);
void dump_before(Dump *dump, const Module *m, const Pass *pass);
bool dump_after(Dump *dump, const Module *m, const Pass *pass, Diag *d);
// Writes a module that failed to verify to a file, and reports its path.
void dump_broken(const Dump *dump, const Module *m, const Pass *pass, Diag *d);

// -- diff.c ----------------------------------------------------------------------------------

// Writes a unified diff from `a` to `b`, with three lines around each change.  Lines that differ
// only in the width of blanks are equal, because the printer aligns columns.
void diff_unified(const char *a, const char *name_a, const char *b, const char *name_b, FILE *out);

#endif
