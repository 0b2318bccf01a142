// The payload: the initial data of a program, at the end of the executable (rt/trailer.h).
//
//     payload = weights, each at a multiple of 64 bytes, then the model for --export
//
// A weight is row-major, of its value's type, at the offset NnrtTensor.payload.  Weights are whole,
// except in a program of --split-ranks, which has its rank's shard of each weight: a box of it, or
// nothing.  Only rank 0 writes files, so the model is in the program of rank 0 alone.
//
//     %w: f32[2,3] on (tp=2), of f32[4,3] {S(0)} 0 1 2, 3 4 5, 6 7 8, 9 10 11
//
//     any rank's      0 1 2 3 4 5 6 7 8 9 10 11
//     that of rank 1  6 7 8 9 10 11
//
// Sources are mapped and converted piece by piece, so that a model need not fit in memory.
//
// Large constants go to a file that the assembler includes; small ones are lists of numbers.

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/op.h"
#include "ir/split.h"
#include "kernels.h"
#include "program.h"
#include "rt/xxh64.h"

enum { ALIGN = 64, PIECE = 1 << 16, LISTED = 1024 };

static int64_t aligned(int64_t bytes) {
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

// -- Layout ------------------------------------------------------------------------------------

// Finds the box of a weight in the payload.  Returns false if the payload has no part of the
// weight.
static bool find_box(const Program *p, const Value *v, Region *out) {
  const Layout *l = v->layout;
  const Mesh *mesh = l ? l->mesh : NULL;
  // Other contents are generated at the start.
  if (!v->init || (v->init->kind != INIT_file && v->init->kind != INIT_bytes)) return false;
  *out = place_region(value_whole(v), NULL, NULL);
  if (!p->o->split_ranks || !mesh) return true;
  // A program of one rank has only the shard of it.
  for (int i = 0; i < mesh->n_devices; i++) {
    if (mesh->device[i] != p->o->only_rank) continue;
    Place at = mesh_place(mesh, i, 0);
    *out = place_region(value_whole(v), l, &at);
    return true;
  }
  return false;
}

static int64_t box_count(const Type *whole, const Region *box) {
  int64_t n = 1;
  for (int d = 0; d < whole->ndim; d++)
    n *= box->size[d];
  return n;
}

// The index in the whole of element `i` of a box.
static int64_t box_element(const Type *whole, const Region *box, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int d = whole->ndim - 1; d >= 0; d--) {
    at += (box->start[d] + i % box->size[d]) * stride;
    i /= box->size[d];
    stride *= whole->dim[d];
  }
  return at;
}

static bool has_skeleton(const Program *p) {
  return p->o->skeleton_bytes && (!p->o->split_ranks || p->o->only_rank == 0);
}

void payload_plan(Program *p) {
  const Graph *g = p->train.g;
  p->payload_of = arena_array(p->arena, int64_t, g->n_params);
  p->train_params = graph_params_by_label(g, p->arena);
  int64_t end = 0;
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    Region box;
    p->payload_of[i] = -1;
    if (!find_box(p, v, &box)) continue;
    p->payload_of[i] = end;
    end += aligned(box_count(value_whole(v), &box) * dtype_bytes[v->type->dtype]);
  }
  // The model for --export follows, without its holes.
  p->skeleton_at = p->payload_bytes = end;
  if (!has_skeleton(p)) return;
  p->payload_bytes += p->o->skeleton_bytes;
  for (int i = 0; i < p->o->n_holes; i++)
    p->payload_bytes -= p->o->holes[i].length;
}

int64_t payload_at(const Program *p, const Value *v) {
  const Graph *g = p->train.g;
  if (v->graph != g) v = v->label ? table_find(p->train_params, (int)v->role, v->label) : NULL;
  return v ? p->payload_of[v->index] : -1;
}

// -- Sources -----------------------------------------------------------------------------------

typedef struct Source {
  const char *at; // the first byte
  void *map;      // the mapping, or NULL
  size_t map_bytes;
} Source;

static bool source_error(Diag *d, const Value *v, const char *what) {
  return diag_error(d, v->loc, "cannot read '%s' from '%s': %s", v->label, v->init->path, what);
}

static bool source_open(const Value *v, Source *out, Diag *d) {
  const Init *init = v->init;
  *out = (Source){.at = init->bytes};
  if (init->kind == INIT_bytes || init->length == 0) return true;
  int fd = open(init->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return source_error(d, v, strerror(errno));
  struct stat st;
  if (fstat(fd, &st) || st.st_size - init->offset < init->length) {
    close(fd);
    return source_error(d, v, "the file is too short");
  }
  // mmap maps whole pages: begin at the page of the first byte.
  int64_t page = sysconf(_SC_PAGESIZE), skip = init->offset % page;
  out->map_bytes = (size_t)(init->length + skip);
  out->map = mmap(NULL, out->map_bytes, PROT_READ, MAP_PRIVATE, fd, init->offset - skip);
  int error = errno;
  close(fd);
  if (out->map == MAP_FAILED) return source_error(d, v, strerror(error));
  // Weights may be larger than memory: pages are read ahead, and can be dropped after use.
  madvise(out->map, out->map_bytes, MADV_SEQUENTIAL);
  out->at = (const char *)out->map + skip;
  return true;
}

// -- Writing -----------------------------------------------------------------------------------

// Writes n elements of type `from` as type `to`; `piece` has room for PIECE of them.
static void write_run(const char *at, DType from, DType to, int64_t n, char *piece, FILE *f) {
  if (from == to) {
    fwrite(at, (size_t)dtype_bytes[to], (size_t)n, f);
    return;
  }
  for (int64_t first = 0; first < n; first += PIECE) {
    int64_t m = n - first < PIECE ? n - first : PIECE;
    // Elements are converted with the rounding of the reference evaluator.
    const char *in = at + first * dtype_bytes[from];
    const Type in_type = {from, 1, {m}}, out_type = {to, 1, {m}};
    const Tensor x = {&in_type, (void *)(uintptr_t)in}; // only read
    Tensor y = {&out_type, piece};
    bool integers = dtype_class[from] != 'F' && dtype_class[to] != 'F';
    for (int64_t k = 0; k < m; k++) {
      if (integers)
        tensor_set_i(&y, k, tensor_i(&x, k));
      else
        tensor_set_f(&y, k, tensor_f(&x, k));
    }
    fwrite(piece, (size_t)dtype_bytes[to], (size_t)m, f);
  }
}

// Writes a box of a padded weight, row by row of its last dimension: the source has no padding.
static void write_padded(const Value *v, const Region *box, const char *source, char *piece,
                         FILE *f) {
  DType from = v->init->dtype, to = v->type->dtype;
  const Type *known = v->as;
  int last = known->ndim - 1;
  int64_t size = box->size[last], rows = size ? box_count(value_whole(v), box) / size : 0;
  int64_t left = known->dim[last] - box->start[last];
  for (int64_t r = 0; r < rows; r++) {
    // The row's first element in the source; none for a row of padding.
    int64_t at = box->start[last], stride = known->dim[last], rest = r;
    bool padding = false;
    for (int d = last - 1; d >= 0; d--) {
      int64_t i = box->start[d] + rest % box->size[d];
      padding |= i >= known->dim[d];
      at += i * stride;
      rest /= box->size[d];
      stride *= known->dim[d];
    }
    int64_t n = padding || left < 0 ? 0 : left < size ? left : size;
    if (n) write_run(source + at * dtype_bytes[from], from, to, n, piece, f);
    static const char zero[8];
    for (int64_t k = n; k < size; k++)
      fwrite(zero, (size_t)dtype_bytes[to], 1, f);
  }
}

static bool write_box(const Program *p, const Value *v, const Region *box, FILE *f) {
  Source s;
  DType from = v->init->dtype, to = v->type->dtype;
  const Type *whole = value_whole(v);
  bool padded = value_padded(v);
  int64_t count = type_count(padded ? v->as : whole);
  if (v->init->length != count * dtype_bytes[from])
    return diag_error(p->d, v->loc, "'%s' has %" PRId64 " bytes where %" PRId64 " are needed",
                      v->label, v->init->length, count * dtype_bytes[from]);
  if (!source_open(v, &s, p->d)) return false;
  char *piece = arena_alloc(p->arena, (size_t)(from == to ? 1 : PIECE * dtype_bytes[to]));
  // The number of contiguous elements of the box in the whole.
  int64_t run = 1;
  int d = whole->ndim - 1;
  for (; d >= 0 && box->size[d] == whole->dim[d]; d--)
    run *= whole->dim[d];
  if (d >= 0) run *= box->size[d];
  int64_t n = box_count(whole, box);
  if (padded) write_padded(v, box, s.at, piece, f);
  for (int64_t i = 0; i < n && !padded; i += run)
    write_run(s.at + box_element(whole, box, i) * dtype_bytes[from], from, to, run, piece, f);
  if (s.map) munmap(s.map, s.map_bytes);
  // The next weight is aligned.
  static const char zeros[ALIGN];
  int64_t bytes = n * dtype_bytes[to];
  fwrite(zeros, 1, (size_t)(aligned(bytes) - bytes), f);
  return true;
}

bool payload_write(const Program *p, const char *path) {
  const Graph *g = p->train.g;
  WholeFile part;
  if (!part_open(&part, path, p->d)) return false;
  FILE *f = part.f;
  bool ok = true;
  Region box;
  for (int i = 0; i < g->n_params; i++)
    if (find_box(p, g->params[i], &box)) ok &= write_box(p, g->params[i], &box, f);
  if (has_skeleton(p)) {
    // The model for --export, without its holes, which are in the order of the file.
    const BackendOptions *o = p->o;
    int64_t at = 0;
    for (int i = 0; i < o->n_holes; i++) {
      fwrite(o->skeleton + at, 1, (size_t)(o->holes[i].offset - at), f);
      at = o->holes[i].offset + o->holes[i].length;
    }
    fwrite(o->skeleton + at, 1, (size_t)(o->skeleton_bytes - at), f);
  }
  return part_finish(&part, path, ok, p->d);
}

bool weights_checksum(const Module *m, Diag *d, uint64_t *out) {
  const Graph *train = m->graphs; // or the first entry
  for_each_graph(g, m)
    if (str_equal(g->name, "train")) train = g;
  *out = 0;
  for (int i = 0; i < train->n_params; i++) {
    const Value *v = train->params[i];
    const Init *init = v->init;
    if (!init || (init->kind != INIT_file && init->kind != INIT_bytes)) continue;
    Source s;
    if (!source_open(v, &s, d)) return false;
    // The type of the source, since its bytes are converted.
    const int64_t types[] = {init->dtype, v->type->dtype, init->length};
    uint64_t sum = xxh64(v->label, (int64_t)strlen(v->label), *out);
    sum = xxh64(types, sizeof types, sum);
    *out = xxh64(s.at, init->length, sum);
    if (s.map) munmap(s.map, s.map_bytes);
  }
  return true;
}

// -- Constants ---------------------------------------------------------------------------------

static const Attr *data_of(const Constant *c) {
  return op_attr(c->value->def, "value");
}

static bool is_listed(const Constant *c) {
  return type_count(c->value->type) <= LISTED;
}

// Writes for each constant an array in the program's text, and a macro for the runtime's copy,
// which kernels read.
void constants_emit(Program *p) {
  StrBuf *b = &p->constants, *macros = p->divided ? &p->defines : b;
  int64_t at = 0;
  strbuf_add(b, "");
  for (int i = 0; i < p->constant.n; i++) {
    const Constant *c = &p->constant.at[i];
    const Type *t = c->value->type;
    const char *type = type_text(p->arena, t), *ctype = dtype_ctype[t->dtype];
    int64_t n = type_count(t);
    strbuf_addf(macros, "#define %s ((const %s *)r->constant[%d]) // %s\n", c->name, ctype, i,
                type);
    // A large constant is included by the assembler, at its offset in constants.bin.
    if (!is_listed(c)) {
      strbuf_addf(b,
                  "__asm__(\".section .rodata\\n.balign 64\\nconstant_%d: .incbin "
                  "\\\"constants.bin\\\", %" PRId64 ", %" PRId64 "\\n.previous\");\n"
                  "extern const %s constant_%d[] __attribute__((visibility(\"hidden\")));\n",
                  i, at, type_bytes(t), ctype, i);
      at += type_bytes(t);
      continue;
    }
    // C has no empty arrays: an empty constant gets one element.
    strbuf_addf(b, "static const %s constant_%d[%" PRId64 "] = {", ctype, i, n ? n : 1);
    for (int64_t k = 0; k < n; k++)
      strbuf_addf(b, "%s%s,", k % 8 ? " " : "\n    ",
                  c_element(p->arena, t->dtype, data_of(c)->data.at, k));
    strbuf_add(b, n ? "\n};\n" : "\n    0,\n};\n");
  }
  // The runtime finds all constants in one table.
  if (p->constant.n) strbuf_add(b, "static const NnrtConstant constants[] = {\n");
  for (int i = 0; i < p->constant.n; i++)
    strbuf_addf(b, "    {constant_%d, %" PRId64 "},\n", i,
                type_bytes(p->constant.at[i].value->type));
  if (p->constant.n) strbuf_add(b, "};\n");
}

bool constants_write(const Program *p, const char *path) {
  bool any = false;
  for (int i = 0; i < p->constant.n; i++)
    any |= !is_listed(&p->constant.at[i]);
  if (!any) {
    unlink(path); // of an earlier program in the same folder
    return true;
  }
  WholeFile part;
  if (!part_open(&part, path, p->d)) return false;
  FILE *f = part.f;
  for (int i = 0; i < p->constant.n; i++)
    if (!is_listed(&p->constant.at[i]))
      fwrite(data_of(&p->constant.at[i])->data.at, 1,
             (size_t)type_bytes(p->constant.at[i].value->type), f);
  return part_finish(&part, path, true, p->d);
}
