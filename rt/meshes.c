// Maps ranks to meshes and to coordinates on them.
//
// A mesh lists its ranks, row-major over the axes other than time.  On ranks 4 5 6 7 8 9 and axes
// a=2, t=2 (of time), b=3 rank 7 is at a=1, b=0, and at t=0 or t=1, depending on its current slice.

#include <stdlib.h>
#include <string.h>

#include "runtime.h"

int nnrt_mesh_place(const NnrtMesh *m, int rank) {
  for (int i = 0; i < m->n_ranks; i++)
    if (m->rank[i] == rank) return i;
  return -1;
}

void nnrt_mesh_coord(const NnrtMesh *m, int place, int *coord) {
  // Mixed radix; axes of time begin at 0.
  for (int a = m->n_axes - 1; a >= 0; a--) {
    coord[a] = m->axis[a].time ? 0 : place % m->axis[a].size;
    if (!m->axis[a].time) place /= m->axis[a].size;
  }
}

bool nnrt_on_mesh(const NnrtRank *r, int mesh) {
  return nnrt_mesh_place(&r->program->mesh[mesh], r->rank) >= 0;
}

void nnrt_set_coords(NnrtRank *r) {
  const NnrtProgram *p = r->program;
  bool first = !r->coord;
  if (first) r->coord = nnrt_must_alloc((size_t)p->n_mesh * sizeof *r->coord);
  for (int m = 0; m < p->n_mesh; m++) {
    int place = first ? nnrt_mesh_place(&p->mesh[m], r->rank) : -1;
    // Ranks outside of a mesh have coordinate -1.
    if (first) memset(r->coord[m], -1, sizeof r->coord[m]);
    if (place >= 0) nnrt_mesh_coord(&p->mesh[m], place, r->coord[m]);
    // The axes of time are the digits of the slice, the last one fastest.
    const NnrtMesh *mesh = &p->mesh[m];
    int micro = r->micro;
    int *coord = r->coord[m];
    for (int a = mesh->n_axes - 1; a >= 0; a--)
      if (mesh->axis[a].time) {
        coord[a] = micro % mesh->axis[a].size;
        micro /= mesh->axis[a].size;
      }
  }
}
