// Shards of tensors.  A mesh (acc=2:time, dp=4) has four ranks, each with two time slices.  It
// splits a tensor f32[16,6] {S(0), S(0)} in two halves, and each half in four:
//
//     rank 1, slice 1     rows 8 + 2 to 8 + 3

#include "eval.h"

#include <string.h>

Box place_box(const Type *whole, const Layout *l, const Place *at) {
  Region r = place_region(whole, l, at);
  Box box;
  memcpy(box.start, r.start, sizeof box.start);
  memcpy(box.whole, whole->dim, sizeof box.whole);
  return box;
}

// Copies row by row: the elements of a row are contiguous in both.
static void copy(char *whole, const Box *box, char *part, const Type *t, bool put) {
  int64_t inner = dtype_bytes[t->dtype], at[MAX_NDIM] = {0}, count = type_count(t);
  if (count == 0) return;
  if (t->ndim == 0) {
    memcpy(put ? whole : part, put ? part : whole, (size_t)inner);
    return;
  }
  int64_t row = t->dim[t->ndim - 1];
  for (int64_t done = 0; done < count; done += row) {
    int64_t offset = 0;
    for (int i = 0; i < t->ndim; i++)
      offset = offset * box->whole[i] + box->start[i] + at[i];
    char *there = whole + offset * inner, *here = part + done * inner;
    memcpy(put ? there : here, put ? here : there, (size_t)(row * inner));
    for (int i = t->ndim - 2; i >= 0; i--) {
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
