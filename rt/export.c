// --export: the model as it was compiled from, with the trained weights in it.
//
// The payload holds the whole file with holes where the trained initializers' bytes go.  The file
// is copied, then each hole is filled, in the element type that the file says.

#include <stdlib.h>

#include "runtime.h"

static bool fill_hole(OutFile *o, const NnrtHole *hole, const void *from, const NnrtTensor *t,
                      Why *w) {
  enum { BLOCK = 1 << 13 };
  int64_t n = nnrt_tensor_count(t), size = nnrt_dtype_size(t->dtype),
          to_size = nnrt_dtype_size(hole->dtype);
  double block[BLOCK]; // room for any type
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t m = n - at < BLOCK ? n - at : BLOCK;
    nnrt_convert(block, hole->dtype, (const char *)from + at * size, t->dtype, m);
    if (!nnrt_out_write_at(o, hole->offset + at * to_size, block, m * to_size, w)) return false;
  }
  return true;
}

bool nnrt_export_model(NnrtRank *r, const char *path, Why *w) {
  const NnrtProgram *p = r->program;
  bool root = r->rank == 0;
  OutFile o = {.fd = -1};
  bool ok = !root || (nnrt_out_begin(&o, path, w) &&
                      nnrt_out_write(&o, r->run->payload + p->skeleton, p->skeleton_bytes, w));
  Whole memory = {0};
  for (int i = 0; i < p->n_holes; i++) {
    const NnrtHole *hole = &p->holes[i];
    const NnrtTensor *t = nnrt_find_tensor(&p->train, NNRT_weight, hole->name);
    if (!t) continue; // of what training does not reach; the file has its bytes already
    const void *whole = nnrt_tensor_whole(r, t, &memory);
    if (!root || !ok) continue;
    if (hole->length != nnrt_tensor_count(t) * nnrt_dtype_size(hole->dtype) || hole->offset < 0 ||
        hole->length > p->skeleton_bytes - hole->offset)
      ok = why(w, "cannot write '%s': weight '%s' does not fit where the model has it", path,
               t->name);
    else
      ok = fill_hole(&o, hole, whole, t, w);
  }
  free(memory.at);
  if (!root) return true;
  if (ok) return nnrt_out_commit(&o, w);
  nnrt_out_abandon(&o);
  return false;
}
