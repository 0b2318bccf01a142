// NumPy's files, of the types that the runtime reads.
//
// Unsupported contents are refused: Fortran order, records, objects, other types.

#include <string.h>

#include "npy_header.h"
#include "runtime.h"

_Static_assert((int)NNRT_NPY_MAX_NDIM == (int)NNRT_MAX_NDIM,
               "a file has the dimensions of a tensor");

static const struct {
  const char *name; // without its byte order
  NnrtDtype dtype;
} type_names[] = {
    {"f4", NNRT_f32}, {"f8", NNRT_f64}, {"f2", NNRT_f16},  {"V2", NNRT_bf16}, {"i1", NNRT_i8},
    {"i2", NNRT_i16}, {"i4", NNRT_i32}, {"i8", NNRT_i64},  {"u1", NNRT_u8},   {"u2", NNRT_u16},
    {"u4", NNRT_u32}, {"u8", NNRT_u64}, {"b1", NNRT_bool},
};

static bool set_type(Npy *a, const char *descr, const char *path, Why *w) {
  char order = descr[0];
  // The byte order, and the type without it.
  bool known = order == '<' || order == '>' || order == '|' || order == '=';
  for (size_t i = 0; known && i < sizeof type_names / sizeof *type_names; i++)
    if (strcmp(descr + 1, type_names[i].name) == 0) {
      a->dtype = type_names[i].dtype;
      a->swapped = order == '>' && nnrt_dtype_size(a->dtype) > 1;
      return true;
    }
  return why(w, "'%s' has elements of type '%s', which is not read", path, descr);
}

static bool read_npy(Npy *a, const char *path, Why *w) {
  NnrtNpyHeader h;
  if (!nnrt_npy_header(&h, a->file.at, a->file.bytes)) return why(w, "'%s' %s", path, h.wrong);
  if (!set_type(a, h.descr, path, w)) return false;
  if (h.fortran)
    return why(w, "'%s' is in Fortran order\nhint: save it with numpy.ascontiguousarray", path);
  a->ndim = h.ndim;
  memcpy(a->dim, h.dim, sizeof h.dim);
  a->data = a->file.at + h.bytes;

  // The header's shape must fit the file.
  int64_t size = nnrt_dtype_size(a->dtype), left = a->file.bytes - h.bytes;
  for (int i = 0; i < a->ndim; i++)
    if (__builtin_mul_overflow(size, a->dim[i], &size))
      return why(w, "'%s' has a damaged header: its shape is too large", path);
  if (size > left)
    return why(w, "'%s' is truncated: its shape needs %lld bytes, there are %lld", path,
               (long long)size, (long long)left);
  return true;
}

bool nnrt_npy_open(Npy *a, const char *path, Why *w) {
  *a = (Npy){0};
  if (!nnrt_in_open(&a->file, path, w)) return false;
  if (read_npy(a, path, w)) return true;
  nnrt_in_close(&a->file);
  return false;
}
