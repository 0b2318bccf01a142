// See staged_kinds.h.

#include "schedule/staged_kinds.h"

#include <limits.h>
#include <string.h>

const StagedTraits staged_traits[N_STAGED_KINDS] = {
#define STAGED_KIND(kind, ...) [STAGED_##kind] = {__VA_ARGS__},
#include "schedule/staged_kinds.def"
#undef STAGED_KIND
};

// Of stage `stage` of `n_devices`, by a row's coefficients.
static int linear(const int row[3], int n_devices, int stage) {
  return row[0] * (n_devices - stage) + row[1] * n_devices + row[2];
}

bool staged_kind_named(const char *name, StagedKind *out) {
  for (int k = 0; k < N_STAGED_KINDS; k++) {
    bool one_stage = staged_stages((StagedKind)k, 2, 2) == 2;
    if (!one_stage || strcmp(staged_traits[k].name, name) != 0) continue;
    *out = (StagedKind)k;
    return true;
  }
  return false;
}

int staged_stages(StagedKind kind, int n_devices, int chunks) {
  if (kind == STAGED_zb_v) return 2 * n_devices - 1;
  return kind == STAGED_interleaved ? n_devices * chunks : n_devices;
}

int staged_device(StagedKind kind, int n_devices, int stage) {
  if (kind == STAGED_zb_v) return stage < n_devices ? stage : 2 * n_devices - 2 - stage;
  return stage % n_devices;
}

int staged_ahead(StagedKind kind, int n_devices, int chunks, int device) {
  if (staged_traits[kind].all_first) return INT_MAX;
  int own = linear(staged_traits[kind].ahead, n_devices, device);
  // Its chunks take turns, in groups of a micro-batch for each device.
  bool turns = kind == STAGED_interleaved && chunks > 1;
  return turns ? 2 * own - 1 + (chunks - 1) * n_devices : own;
}

int staged_due(StagedKind kind, int n_devices) {
  return linear(staged_traits[kind].held, n_devices, 0);
}

int staged_held(StagedKind kind, int n_devices, int n_micro_batches, int stage) {
  int held = linear(staged_traits[kind].held, n_devices, stage);
  return held < n_micro_batches && !staged_traits[kind].all_first ? held : n_micro_batches;
}
