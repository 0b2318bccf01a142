// Tensors of a model: inline as raw bytes, inline as a list of numbers, or in another file.
//
// Weights are not read here.  A tensor becomes an Init with the file and the offset of its bytes;
// inline raw bytes are in the model file itself:
//
//     raw_data                       @ "mlp.onnx"+71
//     external_data location=w.bin   @ "dir/w.bin"+4096      in the folder of the model
//     float_data, int64_data, …      = x"0000803f…"          repacked
//
// A model is untrusted, and `location` is a path in it.  The file is opened first and its real name
// read afterwards, so that neither `..` nor a link anywhere in the path leads out: the real name
// must be in the real folder of the model, or in the one that the user allows.

#include "frontend/onnx_weights.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Numbers of TensorProto.DataType that are newer than our onnx.proto.
enum {
  FLOAT8E4M3FN = 17,
  FLOAT8E4M3FNUZ,
  FLOAT8E5M2,
  FLOAT8E5M2FNUZ,
  UINT4,
  INT4,
  FLOAT4E2M1,
  FLOAT8E8M0,
  UINT2,
  INT2,
};

// The names of TensorProto.DataType, by number; those without an element type of ours are refused.
static const struct {
  const char *name;
  int dtype;
} data_types[] = {
    {"undefined", -1},
    {"float", DT_f32},
    {"uint8", DT_u8},
    {"int8", DT_i8},
    {"uint16", DT_u16},
    {"int16", DT_i16},
    {"int32", DT_i32},
    {"int64", DT_i64},
    {"string", -1},
    {"bool", DT_bool},
    {"float16", DT_f16},
    {"double", DT_f64},
    {"uint32", DT_u32},
    {"uint64", DT_u64},
    {"complex64", -1},
    {"complex128", -1},
    {"bfloat16", DT_bf16},
    {"float8e4m3fn", DT_f32},
    {"float8e4m3fnuz", DT_f32},
    {"float8e5m2", DT_f32},
    {"float8e5m2fnuz", DT_f32},
    {"uint4", DT_u8},
    {"int4", DT_i8},
    {"float4e2m1", DT_f32},
    {"float8e8m0", DT_f32},
    {"uint2", DT_u8},
    {"int2", DT_i8},
};
enum { N_DATA_TYPES = sizeof data_types / sizeof *data_types };

// Those of 8 bits or less, but for int8 and uint8.
static const OnnxNarrow narrows[N_DATA_TYPES] = {
    [FLOAT8E4M3FN] = {8, 0},   [FLOAT8E4M3FNUZ] = {8, 1}, [FLOAT8E5M2] = {8, 2},
    [FLOAT8E5M2FNUZ] = {8, 3}, [UINT4] = {4, -1},         [INT4] = {4, -1},
    [FLOAT4E2M1] = {4, 4},     [FLOAT8E8M0] = {8, 5},     [UINT2] = {2, -1},
    [INT2] = {2, -1},
};

static bool is_known(int data_type) {
  return data_type >= 0 && data_type < N_DATA_TYPES && data_types[data_type].dtype >= 0;
}

bool onnx_dtype(int data_type, DType *out) {
  if (!is_known(data_type)) return false;
  *out = (DType)data_types[data_type].dtype;
  return true;
}

const OnnxNarrow *onnx_narrow(int data_type) {
  return is_known(data_type) && narrows[data_type].bits ? &narrows[data_type] : NULL;
}

const char *onnx_dtype_name(int data_type) {
  return data_type >= 0 && data_type < N_DATA_TYPES ? data_types[data_type].name : "unknown";
}

DType onnx_compute_dtype(DType dtype, bool keep) {
  return dtype_class[dtype] == 'F' && !keep ? DT_f32 : dtype;
}

// -- Lists of numbers --------------------------------------------------------------------------

static bool read_list(const Onnx__TensorProto *t, Arena *a, const Loc *loc, OnnxTensor *out,
                      Diag *d) {
  size_t n = 0;
  // Each element type has one of the lists.
  switch (out->narrow ? DT_u8 : out->dtype) {
  case DT_f32: n = t->n_float_data; break;
  case DT_f64: n = t->n_double_data; break;
  case DT_i64: n = t->n_int64_data; break;
  case DT_u32:
  case DT_u64: n = t->n_uint64_data; break;
  case DT_f16:
  case DT_bf16:
  case DT_i8:
  case DT_i16:
  case DT_i32:
  case DT_u8:
  case DT_u16:
  case DT_bool: n = t->n_int32_data; break;
  case N_DTYPES: break;
  }
  if ((int64_t)n != (out->narrow ? out->bytes : out->count))
    return diag_problem(d, PROBLEM_tensor, loc,
                        "tensor '%s' has %zu elements; its shape asks for %lld", onnx_str(t->name),
                        n, (long long)out->count);
  int64_t size = out->narrow ? 1 : dtype_bytes[out->dtype];
  char *bytes = arena_alloc(a, (size_t)out->bytes + 1);
  bool as_u64 = out->dtype == DT_u32 || out->dtype == DT_u64;
  // Narrow types are stored in wider ones, low byte first.
  for (size_t i = 0; i < n; i++) {
    const void *from = out->narrow            ? (const void *)&t->int32_data[i]
                       : out->dtype == DT_f32 ? (const void *)&t->float_data[i]
                       : out->dtype == DT_f64 ? (const void *)&t->double_data[i]
                       : out->dtype == DT_i64 ? (const void *)&t->int64_data[i]
                       : as_u64               ? (const void *)&t->uint64_data[i]
                                              : (const void *)&t->int32_data[i];
    memcpy(bytes + (int64_t)i * size, from, (size_t)size);
  }
  out->init = (Init){.kind = INIT_bytes, .dtype = out->dtype, .length = out->bytes, .bytes = bytes};
  return true;
}

// -- External data -----------------------------------------------------------------------------

typedef struct External {
  const char *location;
  int64_t offset, length; // length: -1 when not given
} External;

static bool read_number(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  long long x = strtoll(text, &end, 10);
  *out = x;
  return *text >= '0' && *text <= '9' && !*end && errno == 0;
}

static bool has_dot_dot(const char *path) {
  for (const char *at = path; *at;) {
    size_t n = strcspn(at, "/");
    // Only a whole part of the path counts.
    if (n == 2 && at[0] == '.' && at[1] == '.') return true;
    at += n + (at[n] == '/');
  }
  return false;
}

static const char *folder_of(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  return !slash ? "." : slash == path ? "/" : str_copy_n(a, path, (size_t)(slash - path));
}

// Returns the real name of the open file, all links followed; "" if it has none.
static const char *real_name(Arena *a, int fd) {
  char file[PATH_MAX];
  ssize_t n = readlink(str_format(a, "/proc/self/fd/%d", fd), file, sizeof file - 1);
  return n <= 0 ? "" : str_copy_n(a, file, (size_t)n);
}

static bool is_in_folder(Arena *a, int fd, const char *folder) {
  const char *file = real_name(a, fd);
  char real[PATH_MAX];
  if (!*file || !realpath(folder, real)) return false;
  size_t length = str_equal(real, "/") ? 0 : strlen(real);
  return strncmp(file, real, length) == 0 && file[length] == '/';
}

enum { NO_FILE = -2 }; // the file is missing and not needed

// Opens the file of `location`, if that is allowed, and returns its descriptor; sets `out` to its
// path.
static int open_external(const OnnxFile *f, const char *external_dir, const char *location,
                         const char *name, Arena *a, const Loc *loc, const char **out, Diag *d) {
  const char *why = location[0] == '/'      ? "is an absolute path"
                    : has_dot_dot(location) ? "leads out of the model's folder"
                                            : NULL;
  if (why) {
    diag_problem(d, PROBLEM_tensor, loc, "external data of tensor '%s': '%s' %s", name, location,
                 why);
    return -1;
  }
  // The path as the user would write it: relative to the folder of the model.
  const char *home = folder_of(a, f->path);
  *out = str_equal(home, ".") && !str_starts(f->path, "./")
             ? str_copy(a, location)
             : str_format(a, "%s/%s", home, location);
  int fd = open(*out, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 && errno == ENOENT && external_dir) {
    *out = str_format(a, "%s/%s", external_dir, location);
    fd = open(*out, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  }
  if (fd < 0) {
    // A file that is not needed may be missing.
    if (errno == ENOENT && f->unread) return NO_FILE;
    if (str_equal(*f->missing, *out)) return -1; // reported for another tensor
    *f->missing = *out;
    diag_problem(d, PROBLEM_tensor, loc, "external data of tensor '%s': cannot open '%s': %s", name,
                 *out, strerror(errno));
    diag_hint(d, "it belongs beside the model; --external-data-dir names another folder");
    return -1;
  }
  // The open file's real name decides, not the text of the path.
  bool allowed = external_dir && is_in_folder(a, fd, external_dir);
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    diag_problem(d, PROBLEM_tensor, loc, "external data of tensor '%s': '%s' is not a regular file",
                 name, *out);
  } else if (!allowed && !is_in_folder(a, fd, home)) {
    diag_problem(d, PROBLEM_tensor, loc,
                 "external data of tensor '%s': '%s' leads out of the model's folder", name, *out);
    diag_hint(d, "--external-data-dir '%s' allows the folder it leads to",
              folder_of(a, real_name(a, fd)));
  } else if (!allowed && st.st_nlink > 1) {
    // A real name shows all ways out of the folder except hard links.
    diag_problem(d, PROBLEM_tensor, loc,
                 "external data of tensor '%s': '%s' has other names elsewhere (hard links)", name,
                 *out);
    diag_hint(d, "copy the file, or allow its folder with --external-data-dir");
  } else {
    return fd;
  }
  close(fd);
  return -1;
}

static bool find_external(const OnnxFile *f, const char *external_dir, const Onnx__TensorProto *t,
                          Arena *a, const Loc *loc, OnnxTensor *out, Diag *d) {
  const char *name = onnx_str(t->name), *path;
  External e = {.length = -1};
  for (size_t i = 0; i < t->n_external_data; i++) {
    const char *key = onnx_str(t->external_data[i]->key);
    const char *value = onnx_str(t->external_data[i]->value);
    bool ok = true;
    if (str_equal(key, "location"))
      e.location = value;
    else if (str_equal(key, "offset"))
      ok = read_number(value, &e.offset);
    else if (str_equal(key, "length"))
      ok = read_number(value, &e.length);
    else if (!str_equal(key, "checksum")) // SHA1 of the whole file: checking would read all of it
      return diag_problem(d, PROBLEM_tensor, loc,
                          "external data of tensor '%s' has an unknown key '%s'", name, key);
    if (!ok)
      return diag_problem(d, PROBLEM_tensor, loc,
                          "external data of tensor '%s': %s '%s' is not a size", name, key, value);
  }
  if (!e.location || !*e.location)
    return diag_problem(d, PROBLEM_tensor, loc, "external data of tensor '%s' has no location",
                        name);
  // The keys are complete: look for the bytes.
  ExternalFile *file = f->external;
  bool none = false;
  if (!file->path || !str_equal(file->location, e.location) ||
      !str_equal(file->dir, external_dir)) {
    int fd = open_external(f, external_dir, e.location, name, a, loc, &path, d);
    if (fd < 0 && fd != NO_FILE) return false;
    none = fd < 0;
    // It stays open for the tensors after this one.
    struct stat st;
    if (!none) {
      if (file->path) close(file->fd);
      *file = (ExternalFile){str_copy(f->arena, e.location), str_copy(f->arena, external_dir),
                             str_copy(f->arena, path), fstat(fd, &st) == 0 ? st.st_size : -1, fd};
    }
  } else {
    path = str_copy(a, file->path);
  }
  // The length is redundant, and must agree with the shape.
  if (e.length >= 0 && e.length != out->bytes)
    return diag_problem(d, PROBLEM_tensor, loc,
                        "external data of tensor '%s' has %lld bytes; its shape asks for %lld",
                        name, (long long)e.length, (long long)out->bytes);
  if (!none && (e.offset > file->size || out->bytes > file->size - e.offset))
    return diag_problem(
        d, PROBLEM_tensor, loc,
        "external data of tensor '%s' is bytes %lld to %lld + %lld of '%s', which has %lld", name,
        (long long)e.offset, (long long)e.offset, (long long)out->bytes, path,
        (long long)file->size);
  // Only the position is kept; the bytes are read when they are needed.
  out->init = (Init){.kind = INIT_file,
                     .dtype = out->dtype,
                     .path = path,
                     .offset = e.offset,
                     .length = out->bytes};
  return true;
}

// ------------------------------------------------------------------------------------------------

bool onnx_tensor(const OnnxFile *f, const char *external_dir, const Onnx__TensorProto *t, Arena *a,
                 const Loc *loc, OnnxTensor *out, Diag *d) {
  *out = (OnnxTensor){0};
  // The size in elements and in bytes, both without overflow.
  const char *name = onnx_str(t->name);
  if (!onnx_dtype(t->data_type, &out->dtype))
    return diag_problem(d, PROBLEM_tensor, loc,
                        "tensor '%s' has elements of type %s, which is not supported", name,
                        onnx_dtype_name(t->data_type));
  if (t->n_dims > MAX_NDIM)
    return diag_problem(d, PROBLEM_tensor, loc, "tensor '%s' has %zu dimensions; the limit is %d",
                        name, t->n_dims, MAX_NDIM);
  out->narrow = onnx_narrow(t->data_type);
  out->ndim = (int)t->n_dims;
  out->count = 1;
  // With a dimension of 0 the product of the others may overflow.
  bool zero = false;
  for (int i = 0; i < out->ndim; i++)
    zero = zero || t->dims[i] == 0;
  for (int i = 0; i < out->ndim; i++) {
    out->dim[i] = t->dims[i];
    if (t->dims[i] < 0)
      return diag_problem(d, PROBLEM_tensor, loc, "tensor '%s' has a dimension of %lld", name,
                          (long long)t->dims[i]);
    if (!zero && __builtin_mul_overflow(out->count, t->dims[i], &out->count))
      return diag_problem(d, PROBLEM_tensor, loc, "the size of tensor '%s' overflows", name);
  }
  if (zero) out->count = 0;
  if (__builtin_mul_overflow(out->count, dtype_bytes[out->dtype], &out->bytes))
    return diag_problem(d, PROBLEM_tensor, loc, "the size of tensor '%s' overflows", name);
  if (out->narrow) {
    int per_byte = 8 / out->narrow->bits;
    out->bytes = out->count / per_byte + (out->count % per_byte > 0);
  }
  if (t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
    return find_external(f, external_dir, t, a, loc, out, d);
  // A list of numbers, or raw bytes in the model's file.
  if (!t->segment) return read_list(t, a, loc, out, d);
  int64_t from = t->segment->begin, to = t->segment->end; // of raw_data: see onnx_read.c
  if (to - from != out->bytes)
    return diag_problem(d, PROBLEM_tensor, loc,
                        "tensor '%s' has %lld bytes; its shape asks for %lld", onnx_str(t->name),
                        (long long)(to - from), (long long)out->bytes);
  out->init = (Init){.kind = INIT_file,
                     .dtype = out->dtype,
                     .path = str_copy(a, f->path),
                     .offset = from,
                     .length = out->bytes};
  return true;
}

bool onnx_tensor_bytes(const OnnxFile *f, const OnnxTensor *t, void *to, const Loc *loc, Diag *d) {
  if (t->bytes == 0) return true;
  const Init *init = &t->init;
  if (init->kind != INIT_file || str_equal(init->path, f->path)) {
    const void *from = init->kind == INIT_file ? (const void *)(f->at + init->offset) : init->bytes;
    memcpy(to, from, (size_t)t->bytes);
    return true;
  }
  // The bytes are in another file.
  char *bytes = to;
  bool opened = str_equal(f->external->path, init->path);
  int fd = opened ? f->external->fd : open(init->path, O_RDONLY | O_CLOEXEC);
  int64_t done = 0;
  while (fd >= 0 && done < init->length) {
    ssize_t n = pread(fd, bytes + done, (size_t)(init->length - done), init->offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += n;
  }
  if (fd >= 0 && !opened) close(fd);
  return done == init->length ||
         diag_problem(d, PROBLEM_tensor, loc, "cannot read '%s'", init->path);
}

// The number of a code of the format, by its definition.
static double number_of(const OnnxNarrow *narrow, int code) {
  static const struct {
    int mantissa, bias;
    bool no_minus_zero; // its code is NaN
  } formats[] = {{3, 7, false}, {3, 8, true}, {2, 15, false}, {2, 16, true}, {1, 1, false}};
  int f = narrow->format;
  if (f == 5) return code == 0xff ? NAN : ldexp(1, code - 127);
  int sign = 1 << (narrow->bits - 1), size = code & (sign - 1), mantissa = formats[f].mantissa;
  int e = size >> mantissa, rest = size & ((1 << mantissa) - 1);
  double x = e == 0 ? ldexp(rest, 1 - formats[f].bias - mantissa)
                    : ldexp((1 << mantissa) + rest, e - formats[f].bias - mantissa);
  if (formats[f].no_minus_zero && code == sign) x = NAN;
  if (f == 0 && size == 0x7f) x = NAN;
  if (f == 2 && size >= 0x7c) x = size == 0x7c ? INFINITY : NAN;
  return code & sign ? -x : x;
}

// Element i of packed bytes.
static double unpacked(const OnnxTensor *t, const uint8_t *bytes, int64_t i) {
  int bits = t->narrow->bits, per_byte = 8 / bits;
  int code = bytes[i / per_byte] >> (i % per_byte * bits) & ((1 << bits) - 1);
  if (t->narrow->format >= 0) return number_of(t->narrow, code);
  bool negative = dtype_class[t->dtype] == 'I' && code >> (bits - 1);
  return negative ? code - (1 << bits) : code;
}

bool onnx_tensor_load(const OnnxFile *f, const OnnxTensor *t, const Type *type, Arena *a,
                      const Loc *loc, Tensor *out, Diag *d) {
  Type as_stored = *type;
  as_stored.dtype = t->dtype;
  Tensor stored = {&as_stored, arena_alloc(a, (size_t)t->bytes + 1)};
  if (!onnx_tensor_bytes(f, t, stored.data, loc, d)) return false;
  *out = (Tensor){type, stored.data};
  // Other types are converted element by element.
  if (type->dtype == t->dtype && !t->narrow) return true;
  *out = tensor_new(a, type);
  for (int64_t i = 0; t->narrow && i < t->count; i++)
    tensor_set_f(out, i, unpacked(t, stored.data, i));
  if (t->narrow) return true;
  int64_t too_large = 0;
  for (int64_t i = 0; i < t->count; i++) {
    double x = tensor_f(&stored, i);
    // A mask of -1e300 hides scores; -inf would make NaN of a completely masked row.
    if (type->dtype == DT_f32 && isfinite(x) && fabs(x) > FLT_MAX) {
      too_large++;
      x = copysign(FLT_MAX, x);
    }
    tensor_set_f(out, i, x);
  }
  if (too_large)
    diag_warning(d, loc, "%lld element%s too large for f32, and become%s the largest f32 there is",
                 (long long)too_large, too_large == 1 ? " is" : "s are", too_large == 1 ? "s" : "");
  return true;
}
