// Shapes, boxes and element types.
//
// A rank's shard of a tensor is a box, its Part: along every dimension, the axes that split it are
// the digits of a mixed-radix number, outermost first.  On axes dp=2, mb=2 an f32[8,3] that both
// split along rows has the layout below, and rank 1 in slice 0 of time has start 4,0 and size 2,3:
//
//     rows 0-1  dp 0 mb 0     rows 2-3  dp 0 mb 1     rows 4-5  dp 1 mb 0     rows 6-7  dp 1 mb 1

#include <stdlib.h>
#include <string.h>

#include "device.h"

static const struct {
  const char *name;
  int64_t size;
} dtypes[] = {
    [NNRT_f32] = {"f32", 4},   [NNRT_f64] = {"f64", 8}, [NNRT_f16] = {"f16", 2},
    [NNRT_bf16] = {"bf16", 2}, [NNRT_i8] = {"i8", 1},   [NNRT_i16] = {"i16", 2},
    [NNRT_i32] = {"i32", 4},   [NNRT_i64] = {"i64", 8}, [NNRT_u8] = {"u8", 1},
    [NNRT_u16] = {"u16", 2},   [NNRT_u32] = {"u32", 4}, [NNRT_u64] = {"u64", 8},
    [NNRT_bool] = {"bool", 1},
};

const char *nnrt_dtype_name(NnrtDtype t) {
  return dtypes[t].name;
}

int64_t nnrt_dtype_size(NnrtDtype t) {
  return dtypes[t].size;
}

int64_t nnrt_tensor_count(const NnrtTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++)
    n *= t->dim[i];
  return n;
}

bool nnrt_tensor_floating(const NnrtTensor *t) {
  return t->dtype == NNRT_f32 || t->dtype == NNRT_f64 || t->dtype == NNRT_f16 ||
         t->dtype == NNRT_bf16;
}

bool nnrt_tensor_saved(const NnrtTensor *t) {
  return t->role == NNRT_weight || t->role == NNRT_state;
}

bool nnrt_tensor_lasts(const NnrtTensor *t) {
  return nnrt_tensor_saved(t) || t->role == NNRT_copy;
}

const NnrtTensor *nnrt_find_tensor(const NnrtGraph *g, NnrtRole role, const char *name) {
  for (int i = 0; i < g->n_tensors; i++)
    if (g->tensors[i].role == role && strcmp(g->tensors[i].name, name) == 0) return &g->tensors[i];
  return NULL;
}

ShapeText nnrt_shape_text(NnrtDtype dtype, const int64_t *dim, int ndim) {
  ShapeText text;
  size_t n = (size_t)snprintf(text.at, sizeof text.at, "%s[", nnrt_dtype_name(dtype));
  // A text that is too long is cut off.
  for (int i = 0; i < ndim && n < sizeof text.at; i++)
    n += (size_t)snprintf(text.at + n, sizeof text.at - n, i ? ",%lld" : "%lld", (long long)dim[i]);
  if (n < sizeof text.at) snprintf(text.at + n, sizeof text.at - n, "]");
  return text;
}

int nnrt_tensor_known(const NnrtTensor *t, const int64_t **dim) {
  *dim = t->known_ndim ? t->known_dim : t->dim;
  return t->known_ndim ? t->known_ndim : t->ndim;
}

int64_t nnrt_tensor_known_count(const NnrtTensor *t) {
  const int64_t *dim;
  int64_t n = 1;
  for (int i = nnrt_tensor_known(t, &dim) - 1; i >= 0; i--)
    n *= dim[i];
  return n;
}

bool nnrt_tensor_padded(const NnrtTensor *t) {
  return nnrt_tensor_known_count(t) < nnrt_tensor_count(t);
}

ShapeText nnrt_tensor_text(const NnrtTensor *t) {
  const int64_t *dim;
  int ndim = nnrt_tensor_known(t, &dim);
  return nnrt_shape_text(t->dtype, dim, ndim);
}

// ---- parts

// Returns the i-th axis that splits dimension `d`; -1 after the last.
static int splitting_axis(const NnrtTensor *t, const NnrtMesh *m, int d, int i) {
  return i < m->n_axes && t->split[d][i] < m->n_axes ? t->split[d][i] : -1;
}

Part nnrt_tensor_part(const NnrtTensor *t, const NnrtProgram *p, const int *coord) {
  const NnrtMesh *m = &p->mesh[t->mesh];
  Part part = {.whole = true};
  for (int d = 0; d < t->ndim; d++) {
    int64_t slices = 1, slice = 0;
    // The outermost axis is the first digit.
    for (int i = 0, a; (a = splitting_axis(t, m, d, i)) >= 0; i++) {
      slices *= m->axis[a].size;
      slice = slice * m->axis[a].size + coord[a];
    }
    part.size[d] = t->dim[d] / slices;
    part.start[d] = part.size[d] * slice;
    part.whole &= slices == 1;
  }
  return part;
}

bool nnrt_part_here(const NnrtRank *r, const NnrtTensor *t, Part *out) {
  if (!nnrt_on_mesh(r, t->mesh)) return false;
  *out = nnrt_tensor_part(t, r->program, r->coord[t->mesh]);
  return true;
}

int64_t nnrt_part_count(const NnrtTensor *t, const Part *part) {
  int64_t n = 1;
  for (int d = 0; d < t->ndim; d++)
    n *= part->size[d];
  return n;
}

Runs nnrt_part_runs(int ndim, const int64_t *dim, const int64_t *start, const int64_t *size) {
  Runs runs = {.ndim = ndim, .dim = dim, .start = start, .size = size, .length = 1, .n = 1};
  int d = ndim - 1;
  // Whole inner dimensions join into one run, with the first that is split.
  for (; d >= 0 && size[d] == dim[d]; d--)
    runs.length *= dim[d];
  if (d >= 0) runs.length *= size[d--];
  for (; d >= 0; d--)
    runs.n *= size[d];
  return runs;
}

int64_t nnrt_run_start(const Runs *runs, int64_t i) {
  int64_t at = i * runs->length, start = 0, stride = 1;
  // The run's number is mixed-radix over the outer dimensions.
  for (int d = runs->ndim - 1; d >= 0; d--) {
    start += (runs->start[d] + at % runs->size[d]) * stride;
    at /= runs->size[d];
    stride *= runs->dim[d];
  }
  return start;
}

char *nnrt_tensor_at(const NnrtRank *r, const NnrtTensor *t) {
  return (t->host ? r->host : r->slab) + t->offset;
}

bool nnrt_on_host(const NnrtRank *r, const void *at) {
  uintptr_t host = (uintptr_t)r->host, here = (uintptr_t)at;
  return r->host && here >= host && here < host + (uintptr_t)r->code->host_bytes;
}

// ---- padded tensors

// The elements of a part of a padded tensor that are no padding, as `n` runs of `length` elements,
// each contiguous in the part and in the whole without padding.
typedef struct Unpadded {
  int64_t zero[NNRT_MAX_NDIM], size[NNRT_MAX_NDIM];
  Runs part, whole;
  int64_t length, n;
} Unpadded;

static void find_unpadded(Unpadded *u, const NnrtTensor *t, const Part *where) {
  *u = (Unpadded){0};
  int64_t count = 1;
  for (int d = 0; d < t->ndim; d++) {
    int64_t left = t->known_dim[d] - where->start[d];
    u->size[d] = left < 0 ? 0 : left < where->size[d] ? left : where->size[d];
    count *= u->size[d];
  }
  if (count == 0) return;
  u->part = nnrt_part_runs(t->ndim, where->size, u->zero, u->size);
  u->whole = nnrt_part_runs(t->ndim, t->known_dim, where->start, u->size);
  // Both lengths are products of the last sizes, so the shorter divides the other.
  u->length = u->part.length < u->whole.length ? u->part.length : u->whole.length;
  u->n = count / u->length;
}

// The index of element `i` of the runs.
static int64_t element_of(const Runs *runs, int64_t i) {
  return nnrt_run_start(runs, i / runs->length) + i % runs->length;
}

// Copies bytes `at` to `at + bytes - 1` of the part from the whole: padding becomes zero.
static void padded_from_whole(char *out, const char *whole, const NnrtTensor *t, const Part *where,
                              int64_t at, int64_t bytes) {
  int64_t size = nnrt_dtype_size(t->dtype), end = at + bytes;
  Unpadded u;
  find_unpadded(&u, t, where);
  memset(out, 0, (size_t)bytes);
  for (int64_t i = 0; i < u.n; i++) {
    // The bytes of the run, and those of them that are asked for.
    int64_t first = element_of(&u.part, i * u.length) * size, last = first + u.length * size;
    int64_t from = first > at ? first : at, to = last < end ? last : end;
    if (from >= to) continue;
    const char *source = whole + element_of(&u.whole, i * u.length) * size;
    memcpy(out + from - at, source + from - first, (size_t)(to - from));
  }
}

static void whole_from_padded(char *whole, const char *part, const NnrtTensor *t,
                              const Part *where) {
  int64_t size = nnrt_dtype_size(t->dtype);
  Unpadded u;
  find_unpadded(&u, t, where);
  for (int64_t i = 0; i < u.n; i++)
    memcpy(whole + element_of(&u.whole, i * u.length) * size,
           part + element_of(&u.part, i * u.length) * size, (size_t)(u.length * size));
}

void nnrt_part_put(NnrtRank *r, const NnrtTensor *t, const Part *where, const void *whole) {
  int64_t size = nnrt_dtype_size(t->dtype);
  if (nnrt_part_count(t, where) == 0) return;
  if (nnrt_tensor_padded(t)) {
    int64_t bytes = nnrt_part_count(t, where) * size;
    char *part = nnrt_must_alloc((size_t)bytes);
    padded_from_whole(part, whole, t, where, 0, bytes);
    nnrt_device_put(r, nnrt_tensor_at(r, t), part, bytes);
    free(part);
    return;
  }
  Runs runs = nnrt_part_runs(t->ndim, t->dim, where->start, where->size);
  for (int64_t i = 0; i < runs.n; i++)
    nnrt_device_put(r, nnrt_tensor_at(r, t) + i * runs.length * size,
                    (const char *)whole + nnrt_run_start(&runs, i) * size, runs.length * size);
}

void nnrt_part_from_whole(void *out, const void *whole, const NnrtTensor *t, const Part *where,
                          int64_t at, int64_t bytes) {
  if (nnrt_tensor_padded(t)) {
    padded_from_whole(out, whole, t, where, at, bytes);
    return;
  }
  int64_t size = nnrt_dtype_size(t->dtype), end = at + bytes;
  Runs runs = nnrt_part_runs(t->ndim, t->dim, where->start, where->size);
  int64_t run = runs.length * size;
  for (int64_t n; at < end; at += n, out = (char *)out + n) {
    // The first run, and the last, may be a piece of one.
    int64_t i = at / run, skip = at % run;
    n = end - at < run - skip ? end - at : run - skip;
    memcpy(out, (const char *)whole + nnrt_run_start(&runs, i) * size + skip, (size_t)n);
  }
}

void nnrt_whole_from_part(void *whole, const void *part, const NnrtTensor *t, const Part *where) {
  int64_t size = nnrt_dtype_size(t->dtype);
  if (nnrt_part_count(t, where) == 0) return;
  if (nnrt_tensor_padded(t)) {
    whole_from_padded(whole, part, t, where);
    return;
  }
  Runs runs = nnrt_part_runs(t->ndim, t->dim, where->start, where->size);
  for (int64_t i = 0; i < runs.n; i++)
    memcpy((char *)whole + nnrt_run_start(&runs, i) * size,
           (const char *)part + i * runs.length * size, (size_t)(runs.length * size));
}

// Whether the tensor's part differs along an axis of its mesh.
static bool splits(const NnrtTensor *t, const NnrtMesh *m, int axis) {
  for (int d = 0; d < t->ndim; d++)
    for (int i = 0, a; (a = splitting_axis(t, m, d, i)) >= 0; i++)
      if (a == axis) return true;
  return false;
}

// Whether this is the replica that sends its part to rank 0: rank 0 itself if it has the part.
static bool gives(const NnrtTensor *t, const NnrtMesh *m, int place) {
  int root = nnrt_mesh_place(m, 0), first[NNRT_MAX_AXES], coord[NNRT_MAX_AXES];
  nnrt_mesh_coord(m, root < 0 ? 0 : root, first);
  nnrt_mesh_coord(m, place, coord);
  // Along axes that do not split the tensor, only the root's coordinate sends.
  for (int a = 0; a < m->n_axes; a++)
    if (coord[a] != first[a] && !splits(t, m, a)) return false;
  return true;
}

static void put_part(void *whole, const void *part, const NnrtTensor *t, const NnrtProgram *p,
                     int rank) {
  const NnrtMesh *m = &p->mesh[t->mesh];
  int coord[NNRT_MAX_AXES];
  nnrt_mesh_coord(m, nnrt_mesh_place(m, rank), coord);
  Part where = nnrt_tensor_part(t, p, coord);
  nnrt_whole_from_part(whole, part, t, &where);
}

// One buffer serves all tensors, one after the other.
static void make_room(Whole *memory, const NnrtTensor *t) {
  int64_t bytes = nnrt_tensor_known_count(t) * nnrt_dtype_size(t->dtype);
  if (memory->bytes >= bytes) return;
  free(memory->at);
  memory->bytes = bytes;
  memory->at = nnrt_must_alloc((size_t)bytes);
}

// Collects the parts at rank 0; `here` is rank 0's own part, or NULL if it has none.
static const void *collect(NnrtRank *r, const NnrtTensor *t, const void *here, int64_t part_bytes,
                           Whole *memory) {
  const NnrtProgram *p = r->program;
  make_room(memory, t);
  // The senders other than rank 0, the highest first: at rank 0 this is the order by rank distance.
  const NnrtMesh *m = &p->mesh[t->mesh];
  Exchange *e = nnrt_exchange_new(0, m->n_ranks);
  e->n_from = 0;
  for (int rank = p->ranks - 1; rank > 0; rank--) {
    int place = nnrt_mesh_place(m, rank);
    if (place >= 0 && gives(t, m, place))
      e->from[e->n_from++] = (Parcel){.peer = rank, .bytes = part_bytes};
  }
  if (here) put_part(memory->at, here, t, p, 0);
  // The other ranks send in nnrt_tensor_whole.
  if (e->n_from > 0) nnrt_comm_exchange(r, e);
  for (int i = 0; i < e->n_from; i++)
    put_part(memory->at, e->from[i].at, t, p, e->from[i].peer);
  nnrt_exchange_free(e);
  return memory->at;
}

const void *nnrt_tensor_whole(NnrtRank *r, const NnrtTensor *t, Whole *memory) {
  const NnrtProgram *p = r->program;
  const NnrtMesh *m = &p->mesh[t->mesh];
  int place = nnrt_mesh_place(m, r->rank), first[NNRT_MAX_AXES];
  bool root = r->rank == 0, has = place >= 0 && gives(t, m, place);
  nnrt_mesh_coord(m, 0, first);
  Part part = nnrt_tensor_part(t, p, first); // the size of every rank's part
  int64_t bytes = nnrt_part_count(t, &part) * nnrt_dtype_size(t->dtype);
  // If rank 0 has the whole tensor, no other rank sends.
  int root_place = nnrt_mesh_place(m, 0);
  bool all = root_place >= 0;
  if (all) {
    int coord[NNRT_MAX_AXES];
    nnrt_mesh_coord(m, root_place, coord);
    all = nnrt_tensor_part(t, p, coord).whole;
  }
  const void *here =
      has && (root || !all) ? nnrt_device_read(r, nnrt_tensor_at(r, t), bytes) : NULL;
  if (all && here && nnrt_tensor_padded(t)) {
    make_room(memory, t);
    put_part(memory->at, here, t, p, 0);
    return memory->at;
  }
  if (all) return here;
  const void *whole = root ? collect(r, t, here, bytes, memory) : NULL;
  if (!root && has) {
    Exchange *e = nnrt_exchange_new(1, 0);
    e->to[0] = nnrt_parcel_new(0, bytes);
    memcpy(e->to[0].at, here, (size_t)bytes);
    nnrt_comm_exchange(r, e);
  }
  // No rank prepares the next tensor before this one is received: rank 0 may be slow to write.
  nnrt_comm_sum(r, &(int64_t){0}, 1);
  return whole;
}

// ---- element types

static float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff, bits;
  float f;
  if (rest >= 0x7c00) { // infinity, NaN
    bits = sign | 0x7f800000 | (rest & 0x3ff) << 13;
  } else if (rest >= 0x400) {
    bits = sign | ((rest << 13) + (112u << 23));
  } else { // zero, or below the smallest normal: rest * 2^-24
    f = (float)rest * 0x1p-24f;
    return sign ? -f : f;
  }
  // The bits are those of a float: reinterpret them.
  memcpy(&f, &bits, 4);
  return f;
}

static uint16_t float_to_half(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  // The sign is set apart, so that comparisons of bits are those of magnitudes.
  uint16_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x47800000) return sign | 0x7c00; // from 65536; numbers that round to it: below
  if (bits < 0x38800000) { // result below the smallest normal: let the addition round
    float x;
    memcpy(&x, &bits, 4);
    x += 0.5f;
    memcpy(&bits, &x, 4);
    return sign | (uint16_t)(bits - 0x3f000000);
  }
  return sign | (uint16_t)((bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
}

static float bf16_to_float(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static uint16_t float_to_bf16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  // A NaN must not round to infinity.
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double nnrt_element_at(const void *from, NnrtDtype t, int64_t i) {
  switch (t) {
  case NNRT_f32: return ((const float *)from)[i];
  case NNRT_f64: return ((const double *)from)[i];
  case NNRT_f16: return half_to_float(((const uint16_t *)from)[i]);
  case NNRT_bf16: return bf16_to_float(((const uint16_t *)from)[i]);
  case NNRT_i8: return ((const int8_t *)from)[i];
  case NNRT_i16: return ((const int16_t *)from)[i];
  case NNRT_i32: return ((const int32_t *)from)[i];
  case NNRT_i64: return (double)((const int64_t *)from)[i];
  case NNRT_u8:
  case NNRT_bool: return ((const uint8_t *)from)[i];
  case NNRT_u16: return ((const uint16_t *)from)[i];
  case NNRT_u32: return ((const uint32_t *)from)[i];
  case NNRT_u64: return (double)((const uint64_t *)from)[i];
  }
  return 0;
}

void nnrt_element_set(void *to, NnrtDtype t, int64_t i, double x) {
  switch (t) {
  case NNRT_f32: ((float *)to)[i] = (float)x; break;
  case NNRT_f64: ((double *)to)[i] = x; break;
  case NNRT_f16: ((uint16_t *)to)[i] = float_to_half((float)x); break;
  case NNRT_bf16: ((uint16_t *)to)[i] = float_to_bf16((float)x); break;
  case NNRT_i8: ((int8_t *)to)[i] = (int8_t)x; break;
  case NNRT_i16: ((int16_t *)to)[i] = (int16_t)x; break;
  case NNRT_i32: ((int32_t *)to)[i] = (int32_t)x; break;
  case NNRT_i64: ((int64_t *)to)[i] = (int64_t)x; break;
  case NNRT_u8: ((uint8_t *)to)[i] = (uint8_t)x; break;
  case NNRT_bool: ((uint8_t *)to)[i] = x != 0; break;
  case NNRT_u16: ((uint16_t *)to)[i] = (uint16_t)x; break;
  case NNRT_u32: ((uint32_t *)to)[i] = (uint32_t)x; break;
  case NNRT_u64: ((uint64_t *)to)[i] = (uint64_t)x; break;
  }
}

void nnrt_convert(void *out, NnrtDtype to, const void *in, NnrtDtype from, int64_t n) {
  if (to == from)
    memcpy(out, in, (size_t)(n * nnrt_dtype_size(to)));
  else
    for (int64_t i = 0; i < n; i++)
      nnrt_element_set(out, to, i, nnrt_element_at(in, from, i));
}
