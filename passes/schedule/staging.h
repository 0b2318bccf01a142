// Shared by the files of staged pipelines: staged.c, staged_lanes.c (one stage per device),
// staged_turns.c (interleaved), staged_list.c (as a problem of schedule_list), staged_transfers.c.

#ifndef SCHEDULE_STAGING_H
#define SCHEDULE_STAGING_H

#include "schedule/staged.h"

// Stages with the least time that the pass gives a segment: a block of no time would end together
// with its predecessors.  Without a split, b has w.
StagedStage *timed_stages(Arena *a, const Staged *s);

// The work of a stage in the route: forwards, backwards in reverse, weight gradients in reverse, as
// segments are numbered.
int work_at(const Staged *s, WorkKind kind, int stage);

// The slots of a device of interleaved, in order: a forward and a backward each time.
int slots_of(const Staged *s, int device);
// The block of a slot, in the order of kinds/interleaved.lua: false if it has none.
bool slot_block(const Staged *s, int device, int slot, bool *back, int *stage, int *micro_batch);

// A timeline with place for the blocks of all devices; `at` has the next place of each until the
// end.
StagedTimeline timeline_new(Arena *a, const Staged *s);
void timeline_add(StagedTimeline *t, int device, StagedBlock block);
void timeline_end(StagedTimeline *t);

// By one rule.  False: it ends no earlier than the cutoff.
bool run_lanes(Arena *a, const Staged *s, const StagedStage *stage, const ListRule *rule,
               double cutoff, StagedTimeline *out);
void run_interleaved(Arena *a, const Staged *s, const StagedStage *stage, StagedTimeline *out);
// By the best of all rules.
bool run_listed(Arena *a, const Staged *s, StagedTimeline *out);

#endif
