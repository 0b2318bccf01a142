// NumPy's files: read by the runtime's reader, written as version 1.

#include "eval.h"

#include <errno.h>
#include <string.h>

#include "runtime.h"

static const char *const descr[N_DTYPES] = {
    [DT_f32] = "<f4", [DT_f64] = "<f8", [DT_f16] = "<f2", [DT_i8] = "|i1",
    [DT_i16] = "<i2", [DT_i32] = "<i4", [DT_i64] = "<i8", [DT_u8] = "|u1",
    [DT_u16] = "<u2", [DT_u32] = "<u4", [DT_u64] = "<u8", [DT_bool] = "|b1",
};

bool npy_read(const char *path, const Type *type, Tensor *out, Arena *a, Diag *d) {
  Npy npy;
  Why w;
  if (!nnrt_npy_open(&npy, path, &w)) return diag_error(d, NULL, "%s", w.text);
  bool same = str_equal(nnrt_dtype_name(npy.dtype), dtype_name[type->dtype]) ||
              (npy.dtype == NNRT_i32 && type->dtype == DT_i64);
  same &= npy.ndim == type->ndim;
  for (int i = 0; same && i < type->ndim; i++)
    same = npy.dim[i] == type->dim[i];
  bool ok = same && !npy.swapped;
  // NumPy's default integers are i32 on some systems.
  if (ok && npy.dtype == NNRT_i32 && type->dtype == DT_i64) {
    *out = tensor_new(a, type);
    for (int64_t i = 0; i < type_count(type); i++) {
      int32_t x;
      memcpy(&x, npy.data + 4 * i, sizeof x);
      tensor_set_i(out, i, x);
    }
  } else if (ok) {
    *out = (Tensor){type, arena_copy(a, npy.data, (size_t)type_bytes(type))};
  } else {
    diag_error(d, NULL, "'%s' holds %s%s, not %s", path,
               nnrt_shape_text(npy.dtype, npy.dim, npy.ndim).at, npy.swapped ? ", big-endian" : "",
               type_text(a, type));
  }
  nnrt_in_close(&npy.file);
  return ok;
}

bool npy_write(const char *path, const Tensor *t, Diag *d) {
  if (!descr[t->type->dtype])
    return diag_error(d, NULL, "cannot write '%s': NumPy has no %s", path,
                      dtype_name[t->type->dtype]);
  char header[512];

  // The header is a Python dictionary, padded so that the elements begin at a multiple of 64.
  const size_t size = sizeof header;
  const Type *type = t->type;
  int n = snprintf(header, size, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                   descr[type->dtype]);
  for (int i = 0; i < type->ndim; i++)
    n += snprintf(header + n, size - (size_t)n, "%lld,%s", (long long)type->dim[i],
                  i + 1 < type->ndim ? " " : "");
  n += snprintf(header + n, size - (size_t)n, "), }");
  while ((10 + n + 1) % 64 != 0)
    header[n++] = ' ';
  header[n++] = '\n';

  const char start[] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(n & 255), (char)(n >> 8)};
  OutFile f;
  Why w;
  if (!nnrt_out_begin(&f, path, &w)) return diag_error(d, NULL, "%s", w.text);
  if (nnrt_out_write(&f, start, sizeof start, &w) && nnrt_out_write(&f, header, n, &w) &&
      nnrt_out_write(&f, t->data, type_bytes(t->type), &w) && nnrt_out_commit(&f, &w))
    return true;
  nnrt_out_abandon(&f);
  return diag_error(d, NULL, "%s", w.text);
}
