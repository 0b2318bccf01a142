// Meshes from text:  dp:4  or  acc:2:time+dp:4  or just  4  (one axis, dp).
//
// The first axis is the outermost: with acc:2:time+dp:4 the batch is cut in two halves in time, and
// each half in four over the devices, so that a micro-batch is a run of neighbouring rows.

#ifndef MESH_H
#define MESH_H

#include "ir/graph.h"

// Axes of size 1 are left out.  NULL, having reported why, when `text` is not a mesh.
const Mesh *mesh_parse(Module *m, const char *text, Diag *d);

#endif
