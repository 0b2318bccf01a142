// A cut-out of a model: the same model with fewer occurrences of its blocks.
//
//     embed ─ h.0 ─ h.1 ─ h.2 ─ … ─ h.95 ─ norm ─ loss
//     embed ─ h.0 ─ h.1 ─────────────────── norm ─ loss      two of each block are left
//
// Layers that run several times are left out each time. Readers of an occurrence that is left out
// read the same member of the last one that stays, which has the same type.  So a cut-out is a
// model with all that the passes may look for: embeddings, loss, gradients, optimizer.  The cost of
// one more occurrence is the difference of two cut-outs.

#ifndef CUT_OUT_H
#define CUT_OUT_H

#include "blocks.h"

// Keeps the first keep[i] >= 1 occurrences of run i.  The caller frees the module.
Module *cut_out(const ModelUnits *b, const int *keep);

#endif
