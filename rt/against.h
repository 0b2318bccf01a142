// --check-against: this program beside the single-device one, the reference, step by step.
//
//     train_rank                                          train_rank.check, its child process
//
//     "step 0"                                   ──►      runs step 0; each value, right after its
//                                                         operation, goes to a file that both map
//                                                ◄──      "done"
//     runs step 0: feeds its operations with the
//     operands of the file, and compares results
//     "step 1"                                   ──►      …
//
//     reference.c       the child: writes the values
//     reference_run.c   starts the child, and compares the two programs
//     check_against.c   the ranks: feed and compare
//
// The file has a head, a table with a row for each value of the model's program, and two regions
// for the values of an even and of an odd step: deferred updates still belong to the step before.

#ifndef NNRT_AGAINST_H
#define NNRT_AGAINST_H

#include "runtime.h"

#define NNRT_REFERENCE_MAGIC "nnrtref1"

typedef struct ReferenceHead {
  char magic[8];
  uint64_t fingerprint;
  int64_t n; // rows of the table
  int64_t region_at, region_bytes;
  int64_t batch;
  int ranks, micro_batches, n_deferred;
  bool has_values; // its plan is proved, which gives its values their meaning
  char version[64], model[512], plan[512], lr_schedule[256], describe[8192];
} ReferenceHead;

// A value of the reference.
typedef struct Kept {
  int64_t at; // in a region; -1: it is not in the memory of the reference
  int64_t bytes;
  int ndim;
  NnrtDtype dtype;
  int64_t dim[NNRT_MAX_NDIM];
  struct KeptStep {   // of an even and of an odd step
    int64_t step;     // 1 + the step that wrote it; 0: none
    double norm, max; // the root of the sum of squares, and the largest magnitude
    // The same of its change if each operand of its operation is rounded in another way.
    double noise_norm, noise_max;
  } of[2];
} Kept;

// The file of the reference, as a process has mapped it.
typedef struct Reference {
  ReferenceHead *head;
  Kept *kept;
  char *base;
  int64_t bytes;
  // Of the process that has started the child; -1 in others.
  int to, from;
  pid_t child;
  bool leads;
} Reference;

typedef struct Difference {
  int64_t step;
  int op; // -1: none
  char *text;
} Difference;

// The values of a run with noise.
typedef struct Changed {
  char *at;      // as in a region
  int64_t *step; // by number: 1 + the step of the value
} Changed;

struct NnrtAgainst {
  Reference *ref;
  const NnrtModelProgram *m;
  int *first;   // [n_ops + 1], the rows of uses of each operation
  char *buffer; // of the largest value
  // The reference itself.
  bool writes;
  int noisy;          // the number of its run with noise; 0: it runs without
  char *saved;        // persistent state
  bool *computed;     // by number: whether it is the result of an operation
  Changed changed[2]; // of this run with noise, and of the one before
  uint64_t random;
  // The others.
  bool deferred;         // an update of the step before runs
  int64_t deferred_step; // the step that deferred it
  bool *compared;        // by use
  int64_t steps;         // compared so far
  Difference found;      // the first in the order of the program
};

// The part of a value that a rank has in the current slice of time; false: it is not on its mesh.
bool nnrt_value_here(const NnrtRank *r, const NnrtModelValue *v, Part *out);
char *nnrt_value_at(const NnrtRank *r, const NnrtModelValue *v);
int64_t nnrt_value_count(const NnrtModelValue *v);
// The step that the current operation belongs to.
int64_t nnrt_value_step(const NnrtRank *r);
void nnrt_against_new(NnrtRank *r, Reference *ref);
// The unit roundoff of a floating type; 0 of others.
double nnrt_roundoff(NnrtDtype t);

// ---- reference.c, of a reference

// Maps the file that the parent has opened, and describes the program in it.
bool nnrt_reference_open(NnrtRun *run, Why *w);
void nnrt_reference_begin(NnrtRank *r);
// Waits for the parent; false: there are no more steps.
bool nnrt_reference_wait(NnrtRank *r, int64_t step);
// Around further runs of the step, 1 to N_NOISY, for the effect of rounding.
enum { N_NOISY = 4 };
void nnrt_reference_noise(NnrtRank *r, int run);
void nnrt_reference_quiet(NnrtRank *r);
void nnrt_reference_done(NnrtRank *r);
void nnrt_reference_before(NnrtRank *r, int op);
void nnrt_reference_after(NnrtRank *r, int op);

// ---- reference_run.c, of a process that has one

// Collective: starts the reference, once on each machine, and compares the programs; ends the job
// if it cannot serve.
void nnrt_reference_start(NnrtRun *run);
// Collective: the reference runs the step.
void nnrt_reference_step(NnrtRank *r, int64_t step);
void nnrt_reference_end(NnrtRun *run);

// ---- check_against.c

void nnrt_check_against_begin(NnrtRank *r);
// Deferred updates of the step before begin to run, or have run.
void nnrt_check_against_deferred(NnrtRank *r, bool begin);
// Collective, after a step: ends the job if some rank has found a difference.
void nnrt_check_against_report(NnrtRank *r);
// Collective: prints the numbers of values that were compared, and not.
void nnrt_check_against_summary(NnrtRank *r);

#endif
