// nnaot-plan calibrate: measures the compute and communication speed of the devices here, with
// executables of nnaot.
//
// The measured program is an ordinary module with one op per probe, compiled into an executable.
// Every rank runs it under its launcher.  Its --trace gives the time of each op.
//
//     probes      the measurements: a collective with its bytes and group size, a kernel
//                 with its work                                       calibrate_probes.c
//     measure     module, executable, run, trace                      calibrate_measure.c
//     fit         the cluster with the prices nearest to the times    calibrate_fit.c
//     answer      the command, and the file                           plan_calibrate.c

#ifndef TOOLS_CALIBRATE_H
#define TOOLS_CALIBRATE_H

#include "backend/backend.h"
#include "base/vec.h"
#include "cluster/cluster.h"

typedef enum ProbeKind {
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) PROBE_##op,
#include "rt/collectives.def"
  PROBE_tiny,   // a kernel with almost no work
  PROBE_stream, // a kernel that reads and writes memory
  PROBE_f32,    // a matrix product
  PROBE_half,   // a matrix product in bf16
  N_PROBE_KINDS,
} ProbeKind;

extern const char *const probe_name[N_PROBE_KINDS]; // "all_reduce"
bool probe_is_collective(ProbeKind kind);

typedef struct Probe {
  ProbeKind kind;
  const char *name; // unique: "all_reduce.4.65536"
  int size;         // of a collective: ranks per group
  bool across;      // groups have one rank of each node; else they are of neighbours
  int64_t bytes;    // of a collective: a group's whole tensor; of a stream: read and written
  int64_t m;        // of a matrix product: f32[m,m] x f32[m,m]
  double seconds;   // measured: the median over steps
} Probe;

typedef Vec(Probe) Probes;

typedef struct Machine {
  int ranks, per_node;
  TargetSpec target;
  int64_t steps; // measured steps
} Machine;

Probes calibrate_probes(Arena *a, const Machine *machine);
// Returns the text of a module, in PHASE_local, that runs each probe once per step.
const char *calibrate_module(Arena *a, const Machine *machine, const Probes *probes);
// Measures all probes.  Returns false if that failed on this process's rank.  *first is true on
// rank 0, the only one that gets the times.
bool calibrate_measure(Arena *a, const Machine *machine, Probes *io, bool *first, Diag *d);

// The predicted seconds of a probe on the cluster, kernels included.
double calibrate_price(const Cluster *c, const Probe *p);
// The cluster with the least squared error, relative to the measured times.
Cluster calibrate_fit(Arena *a, const Machine *machine, const Probes *probes);

#endif
