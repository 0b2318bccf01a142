// A stamp of the contents of a module: two equal stamps, before and after a pass, say that the pass
// changed nothing.
//
//     channels_last    of a model without convolutions: the stamp is the same, no promise is broken
//
// About half of the passes of a pipeline change nothing, and a walk over the bytes of ops and
// values takes a tenth of the time of the verifier's checks.

#ifndef MANAGER_STAMP_H
#define MANAGER_STAMP_H

#include "ir/graph.h"

// Covers ops, values, uses, attributes, graphs and the module. Objects that these share, such as
// types, layouts and locations, are never changed after they are made: their addresses count.
// 0: the module has annotations, which are changed in place.
uint64_t module_stamp(const Module *m);

#endif
