// --save: the trained weights as safetensors, under their ONNX names, whole, in f32.

#include <stdlib.h>

#include "runtime.h"

static bool saved(const NnrtTensor *t) {
  return t->role == NNRT_weight && nnrt_tensor_floating(t);
}

static bool write_f32(OutFile *o, const void *from, const NnrtTensor *t, Why *w) {
  enum { BLOCK = 1 << 14 };
  int64_t n = nnrt_tensor_known_count(t), size = nnrt_dtype_size(t->dtype);
  if (t->dtype == NNRT_f32) return nnrt_out_write(o, from, n * size, w);
  float block[BLOCK];
  // Other types are converted in blocks.
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t m = n - at < BLOCK ? n - at : BLOCK;
    nnrt_convert(block, NNRT_f32, (const char *)from + at * size, t->dtype, m);
    if (!nnrt_out_write(o, block, m * 4, w)) return false;
  }
  return true;
}

static bool write_header(OutFile *o, const NnrtProgram *p, Why *w) {
  const NnrtGraph *g = &p->train;
  StTensor *list = nnrt_must_alloc((size_t)(g->n_tensors + 1) * sizeof *list);
  int n = 0;
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (!saved(t)) continue;
    StTensor *s = &list[n++];
    const int64_t *dim;
    *s = (StTensor){.name = nnrt_must_format("%s", t->name), .dtype = NNRT_f32};
    // Files have the dimensions of the model.
    s->ndim = nnrt_tensor_known(t, &dim);
    for (int d = 0; d < s->ndim; d++)
      s->dim[d] = dim[d];
  }
  // The header has the name of the model as metadata.
  StText text = {nnrt_must_format("model"), nnrt_must_format("%s", p->model)};
  int64_t bytes;
  char *header = nnrt_st_header(list, n, &text, 1, &bytes);
  bool ok = nnrt_out_write(o, header, bytes, w);
  for (int i = 0; i < n; i++)
    free(list[i].name);
  free(text.key);
  free(text.value);
  free(header);
  free(list);
  return ok;
}

bool nnrt_save_weights(NnrtRank *r, const char *path, Why *w) {
  const NnrtGraph *g = &r->program->train;
  bool root = r->rank == 0;
  OutFile o = {.fd = -1};
  bool ok = !root || (nnrt_out_begin(&o, path, w) && write_header(&o, r->program, w));
  Whole memory = {0};
  // A rank with a full disk still takes part: the other ranks wait for it.
  for (int i = 0; i < g->n_tensors; i++) {
    if (!saved(&g->tensors[i])) continue;
    const void *whole = nnrt_tensor_whole(r, &g->tensors[i], &memory);
    ok = ok && (!root || write_f32(&o, whole, &g->tensors[i], w));
  }
  free(memory.at);
  if (!root) return true;
  if (ok) return nnrt_out_commit(&o, w);
  nnrt_out_abandon(&o);
  return false;
}
