// --export: writes the original model file with the trained weights.
//
// The payload holds the file without the bytes of initializers that are weights here, trained or
// not.  The bytes between these holes are copied, and each hole is filled with the weight, in the
// element type of the file.

#include <stdlib.h>

#include "runtime.h"

static bool fill_hole(OutFile *o, const NnrtHole *hole, const void *from, const NnrtTensor *t,
                      Why *w) {
  enum { BLOCK = 1 << 13 };
  int64_t n = nnrt_tensor_known_count(t), size = nnrt_dtype_size(t->dtype),
          to_size = nnrt_dtype_size(hole->dtype);
  double block[BLOCK]; // large enough for any type
  // Blocks keep the memory small: weights may be larger than it.
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t m = n - at < BLOCK ? n - at : BLOCK;
    nnrt_convert(block, hole->dtype, (const char *)from + at * size, t->dtype, m);
    if (!nnrt_out_write_at(o, hole->offset + at * to_size, block, m * to_size, w)) return false;
  }
  return true;
}

// Copies the literal bytes of the file up to `end`; `*at` bytes of the file have been written or
// filled, and the literals continue at `*from` in the payload.
static bool copy_up_to(OutFile *o, int64_t end, int64_t *at, const uint8_t **from, Why *w) {
  bool ok = nnrt_out_write_at(o, *at, *from, end - *at, w);
  *from += end - *at;
  *at = end;
  return ok;
}

bool nnrt_export_model(NnrtRank *r, const char *path, Why *w) {
  const NnrtProgram *p = r->program;
  bool root = r->rank == 0;
  OutFile o = {.fd = -1};
  bool ok = !root || nnrt_out_begin(&o, path, w);
  Whole memory = {0};
  const uint8_t *literal = root ? r->run->payload + p->skeleton : NULL;
  int64_t at = 0;
  for (int i = 0; i < p->n_holes; i++) {
    const NnrtHole *hole = &p->holes[i];
    const NnrtTensor *t = nnrt_find_tensor(&p->train, NNRT_weight, hole->name);
    const void *whole = t ? nnrt_tensor_whole(r, t, &memory) : NULL;
    // All ranks take part in nnrt_tensor_whole, also after an error.
    if (!root || !ok) continue;
    if (!t || hole->length != nnrt_tensor_known_count(t) * nnrt_dtype_size(hole->dtype) ||
        hole->offset < at || hole->length > p->skeleton_bytes - hole->offset)
      ok = why(w, "cannot write '%s': weight '%s' does not fit into its place in the model", path,
               hole->name);
    else
      ok = copy_up_to(&o, hole->offset, &at, &literal, w) && fill_hole(&o, hole, whole, t, w);
    at = hole->offset + hole->length;
  }
  free(memory.at);
  if (!root) return true;
  if (ok && copy_up_to(&o, p->skeleton_bytes, &at, &literal, w)) return nnrt_out_commit(&o, w);
  nnrt_out_abandon(&o);
  return false;
}
