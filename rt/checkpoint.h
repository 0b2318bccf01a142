// The folder of checkpoints: names, generations of earlier runs, the lock, space on a full disk.
//
//     DIR/step-000000000120.safetensors          of this run; --resume reads the newest
//     DIR/step-000000000120.safetensors.old      of an earlier run, then of later ones .old-2, .old-3 …
//     DIR/.lock                                  while a run writes: its process, machine and start
//
// All functions are for rank 0, but for the first two and nnrt_checkpoint_list.

#ifndef NNRT_CHECKPOINT_H
#define NNRT_CHECKPOINT_H

#include "runtime.h"

char *nnrt_checkpoint_path(const Checkpoints *c, int64_t step); // freed by the caller
// Returns "weight/NAME" or "state/NAME", the name in the file; freed by the caller.
char *nnrt_checkpoint_name(const NnrtTensor *t);
// Lists the steps that have a checkpoint, newest first; the caller frees the list.  Returns their
// number, -1 if the folder cannot be read.
int nnrt_checkpoint_list(const Checkpoints *c, int64_t **out, Why *w);
// Renames the checkpoints of an earlier run, which this run does not resume; --resume ignores them.
bool nnrt_checkpoint_set_aside(Checkpoints *c, Why *w);
// Removes all but the newest.
void nnrt_checkpoint_prune(const Checkpoints *c);
// Of OutFile: removes the oldest checkpoint of this run, but never the last complete one; false:
// there is none.  `of` is Checkpoints.
bool nnrt_checkpoint_make_room(void *of);
bool nnrt_checkpoint_is_there(const Checkpoints *c, int64_t step);

#endif
