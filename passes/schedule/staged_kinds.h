// The kinds of schedules of unequal stages, as numbers: a table (staged_kinds.def), and a few
// functions of it.
//
//     stages of device 1 of 4     1f1b, zb-h1, …    1
//                                 interleaved:2     1, 5
//                                 zb-v              1, 5     3 is at the turn, on device 3
//
// Planners, bounds and timelines (staged.h) ask it; the kinds' files in Lua have the same orders.

#ifndef SCHEDULE_STAGED_KINDS_H
#define SCHEDULE_STAGED_KINDS_H

#include <stdbool.h>

typedef enum StagedKind {
#define STAGED_KIND(kind, ...) STAGED_##kind,
#include "schedule/staged_kinds.def"
#undef STAGED_KIND
  N_STAGED_KINDS,
} StagedKind;

// A row of staged_kinds.def, which explains the columns.
typedef struct StagedTraits {
  const char *name;
  bool all_first, split;
  int ahead[3], held[3], idle[3];
  int idle_least;
  double waits;
} StagedTraits;

extern const StagedTraits staged_traits[N_STAGED_KINDS];

// Finds the kind of a name, of those with one stage on each device.
bool staged_kind_named(const char *name, StagedKind *out);
int staged_stages(StagedKind kind, int n_devices, int chunks);
int staged_device(StagedKind kind, int n_devices, int stage);
// Forwards of the first stage of a device that may run before its first backward, with those of its
// other chunks.
int staged_ahead(StagedKind kind, int n_devices, int chunks, int device);
// The micro-batches after which a weight gradient is due, of a kind that splits them: before the
// forward of so many micro-batches later.
int staged_due(StagedKind kind, int n_devices);
// The most micro-batches whose activations a stage holds at a time, if it is the only one of its
// device.
int staged_held(StagedKind kind, int n_devices, int n_micro_batches, int stage);

#endif
