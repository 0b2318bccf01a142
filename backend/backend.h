// C out: a planned module becomes sources, a payload of weights, and an executable.

#ifndef BACKEND_H
#define BACKEND_H

#include "ir/graph.h"

// Where in the skeleton of the model for --export the trained bytes of a weight go.
typedef struct ExportHole {
  const char *label;
  DType dtype; // of the file
  int64_t offset, length;
} ExportHole;

typedef struct BackendOptions {
  const char *target; // "cpu"
  const char *output; // the executable's name
  bool split_ranks;   // one executable per rank: output.0, output.1, …
  int only_rank;      // then, which of them (set by backend_build)
  int jobs;
  bool verbose;
  const char *version;  // of nnaot
  const char *plan;     // "dp"
  const char *describe; // JSON text for --describe, made by the driver
  double lr;            // defaults of the executable's flags
  const char *lr_schedule;
  int64_t seed;
  const uint8_t *skeleton; // the model for --export, or NULL
  int64_t skeleton_bytes;
  const ExportHole *holes;
  int n_holes;
} BackendOptions;

// Writes the sources of `m` (PHASE_planned) into `dir`: program.c, payload.bin, and constants.bin
// when there are large constants.
bool emit(const Module *m, const char *dir, const BackendOptions *o, Diag *d);
// emit, then compile and link into o->output, atomically.
bool backend_build(const Module *m, const BackendOptions *o, Diag *d);
// Whether a file of this name can be made, so that nobody compiles for nothing.
bool backend_writable(const char *output, Diag *d);

#endif
