// The backend: turns a planned module into C sources, a payload of weights, and an executable.

#ifndef BACKEND_H
#define BACKEND_H

#include "ir/op.h"

enum { MAX_SM = 16 };

#define CUDA_ARCHITECTURES "sm_80,sm_90,sm_100" // default of "cuda"

// A target with its architectures, or its kind of processor.
typedef struct TargetSpec {
  Target target;
  const char *processor; // of cpu: "aarch64"; NULL: the kind of this machine
  int n_sm;
  int sm[MAX_SM]; // 90 of sm_90, ascending; of cuda only
} TargetSpec;

// The place of a weight's bytes in the skeleton of the model for --export.
typedef struct ExportHole {
  const char *label;
  DType dtype; // of the file
  int64_t offset, length;
} ExportHole;

// How the libraries of a gpu are linked.  `any`: static if there are archives of all of them.
typedef enum LinkMode { LINK_any, LINK_static, LINK_shared } LinkMode;
// Whether plans of cuDNN are made ahead of time.  `any`: if that is possible.
typedef enum PlansMode { PLANS_any, PLANS_yes, PLANS_no } PlansMode;

typedef struct BackendOptions {
  TargetSpec target;
  LinkMode link;
  PlansMode plans;
  const char *rpath;  // "none", or a folder; NULL: those of this machine's libraries
  const char *output; // the executable's name
  bool split_ranks;   // one executable per rank: output.0, output.1, …
  int only_rank;      // with split_ranks: the rank (set by backend_build)
  int jobs;           // commands at a time, of all programs together; 0: one for each processor
  const char *cache;  // a folder of compiled files, which backend_cache has checked, or NULL
  bool verbose;
  bool only_sources;    // nothing is compiled: emit
  const char *version;  // of nnaot
  const char *plan;     // "dp"
  const char *describe; // JSON text for --describe, made by the driver
  bool proved;          // the plan computes the model's program
  uint64_t plan_hash;   // of --summary
  double lr;            // defaults of the executable's flags
  const char *lr_schedule;
  int64_t seed;
  int per_node;            // ranks per host that collectives were routed for; 0: unknown
  const uint8_t *skeleton; // the model for --export, or NULL
  int64_t skeleton_bytes;
  const ExportHole *holes;
  int n_holes;
} BackendOptions;

// Reads "cpu", "cpu:aarch64", "cuda" or "cuda:sm_90,sm_100".
bool backend_target_parse(const char *text, TargetSpec *out, Diag *d);
// Checks the value of --rpath.
bool backend_rpath(const char *text, Diag *d);
// Makes the folder of --cache if it is missing, and checks it: only the user may write to it.
bool backend_cache(const char *dir, Diag *d);
// Whether the option, "link" or "aot-plans", has an effect with the target.
bool backend_takes(Target t, const char *option);

// Checks for the tools and libraries that executables of the target need, or with only_sources
// their sources; decides o->link.
typedef enum Readiness {
  READY_yes,
  READY_no,      // something is missing
  READY_mistake, // no machine can compile for this target
} Readiness;
Readiness backend_ready(BackendOptions *o, Diag *d);

// Writes the sources of `m` (PHASE_planned) into `dir`: program.c, payload.bin, further files of
// the target (kernels.cu), and constants.bin if there are large constants.
bool backend_emit(const Module *m, const char *dir, const BackendOptions *o, Diag *d);
// emit, then compile and link into o->output, atomically.
bool backend_build(const Module *m, const BackendOptions *o, Diag *d);
// Computes a checksum of all weights that are read from files, for their names, types and bytes; 0:
// there are none.
bool weights_checksum(const Module *m, Diag *d, uint64_t *out);
// Whether a file of this name can be written, known before the work of compiling.
bool backend_writable(const char *output, Diag *d);

#endif
