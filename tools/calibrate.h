// nnaot-plan calibrate: how fast the devices here compute and talk, as executables of nnaot do.
//
// What is measured is a program like any other: a module with one op for each probe, made into an
// executable, which every rank runs under its launcher.  Its --trace says what the ops took.
//
//     probes      what is measured: a collective of so many bytes in groups of so many ranks, a
//                 kernel of so much work                                  calibrate_probes.c
//     measure     module, executable, run, trace                          calibrate_measure.c
//     fit         a cluster whose prices are nearest to what was measured calibrate_fit.c
//     answer      the command, and the file                               plan_calibrate.c

#ifndef TOOLS_CALIBRATE_H
#define TOOLS_CALIBRATE_H

#include "backend/backend.h"
#include "base/vec.h"
#include "cluster/cluster.h"

typedef enum ProbeKind {
  PROBE_all_reduce,
  PROBE_reduce_scatter,
  PROBE_all_gather,
  PROBE_all_to_all,
  PROBE_tiny,   // a kernel that does next to nothing
  PROBE_stream, // one that reads and writes memory
  PROBE_f32,    // a product
  PROBE_half,   // one in bf16
  N_PROBE_KINDS,
} ProbeKind;

extern const char *const probe_name[N_PROBE_KINDS]; // "all_reduce"

typedef struct Probe {
  ProbeKind kind;
  const char *name; // unique: "all_reduce.4.65536"
  int size;         // of a collective: ranks of a group; each is of neighbours, or of one of a node
  bool across;      // the latter
  int64_t bytes;    // of the whole that a group has; of a stream, what it reads and writes
  int64_t m;        // of a product f32[m,m] x f32[m,m]
  double seconds;   // measured: the median of steps, of each the rank that waited least
} Probe;

typedef Vec(Probe) Probes;

typedef struct Machine {
  int ranks, per_node;
  TargetSpec target;
  int64_t steps; // that are measured
} Machine;

Probes calibrate_probes(Arena *a, const Machine *machine);
// The module that runs each of them once in a step, from PHASE_local on.
const char *calibrate_module(Arena *a, const Machine *machine, const Probes *probes);
// Whether all were measured, on this process's rank: *first is true where that is rank 0, which
// alone knows what came of it.
bool calibrate_measure(Arena *a, const Machine *machine, Probes *io, bool *first, Diag *d);

// What the cluster says a probe takes; of kernels too.
double calibrate_price(const Cluster *c, const Probe *p);
// The cluster with the least squared error, relative to what was measured.
Cluster calibrate_fit(Arena *a, const Machine *machine, const Probes *probes);

#endif
