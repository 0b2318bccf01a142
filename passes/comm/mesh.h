// Meshes from text:  dp:4  or  acc:2:time+dp:4  or, without names,  4  or  2x4.
//
// Axes without names are called dp, tp, a2, a3: 2x4 is dp:2+tp:4.
//
// The first axis is the outermost: with acc:2:time+dp:4 the batch is split into two halves in time,
// and each half into four over the devices, so that a micro-batch is a run of adjacent rows.

#ifndef MESH_H
#define MESH_H

#include "ir/graph.h"

// Axes of size 1 are left out. NULL after reporting that `text` is not a mesh.
Mesh *mesh_parse(Module *m, const char *text, Diag *d);

#endif
