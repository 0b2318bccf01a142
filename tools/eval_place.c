// Parts of tensors: a mesh (acc=2:time, dp=4) has four ranks, each with two slices of time, and a
// tensor f32[16,6] {S(0), S(0)} is cut in two halves, each of those in four:
//
//     rank 1, slice 1     rows 8 + 2 to 8 + 3

#include "eval.h"

#include <string.h>

static int axes_product(const Module *m, bool time) {
  int n = 1;
  for (int i = 0; m->mesh && m->phase >= PHASE_local && i < m->mesh->n_axes; i++)
    if (m->mesh->axis[i].time == time) n *= m->mesh->axis[i].size;
  return n;
}

int mesh_ranks(const Module *m) {
  return axes_product(m, false);
}

int mesh_slices(const Module *m) {
  return axes_product(m, true);
}

// Ranks and slices are numbered row-major over their axes.
Place place_of(const Module *m, int rank, int slice) {
  Place p = {0};
  for (int i = m->mesh && m->phase >= PHASE_local ? m->mesh->n_axes - 1 : -1; i >= 0; i--) {
    int *from = m->mesh->axis[i].time ? &slice : &rank;
    p.coord[i] = *from % m->mesh->axis[i].size;
    *from /= m->mesh->axis[i].size;
  }
  return p;
}

// Several axes may cut one dimension, the first of them outermost.
Box place_box(const Module *m, const Type *whole, const Layout *l, const Place *at) {
  Box box = {0};
  int64_t part[MAX_RANK], index[MAX_RANK] = {0};
  memcpy(box.whole, whole->dim, sizeof box.whole);
  memcpy(part, whole->dim, sizeof part);
  if (m->phase >= PHASE_local)
    for (int i = 0; l && i < l->n_axes; i++) {
      if (l->axis[i].kind != SBP_S) continue;
      int dim = l->axis[i].dim, n = m->mesh->axis[i].size;
      part[dim] /= n;
      index[dim] = index[dim] * n + at->coord[i];
    }
  for (int i = 0; i < whole->rank; i++)
    box.start[i] = index[i] * part[i];
  return box;
}

// Row by row: elements of a row lie side by side in both.
static void copy(char *whole, const Box *box, char *part, const Type *t, bool put) {
  int64_t inner = dtype_bytes[t->dtype], at[MAX_RANK] = {0}, count = type_count(t);
  if (count == 0) return;
  if (t->rank == 0) {
    memcpy(put ? whole : part, put ? part : whole, (size_t)inner);
    return;
  }
  int64_t row = t->dim[t->rank - 1];
  for (int64_t done = 0; done < count; done += row) {
    int64_t offset = 0;
    for (int i = 0; i < t->rank; i++)
      offset = offset * box->whole[i] + box->start[i] + at[i];
    char *there = whole + offset * inner, *here = part + done * inner;
    memcpy(put ? there : here, put ? here : there, (size_t)(row * inner));
    for (int i = t->rank - 2; i >= 0; i--) {
      if (++at[i] < t->dim[i]) break;
      at[i] = 0;
    }
  }
}

void box_cut(const Tensor *whole, const Box *box, Tensor *part) {
  copy(whole->data, box, part->data, part->type, false);
}

void box_put(Tensor *whole, const Box *box, const Tensor *part) {
  copy(whole->data, box, part->data, part->type, true);
}
