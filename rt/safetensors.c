// Hugging Face's file of tensors: a length, a JSON header of that length, bytes.
//
//     <u64 n> {"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}} …
//
// Reading makes every check of the reference implementation: a header of at most 100 MB that begins
// with '{', no name twice, shapes with sizes that do not overflow, and offsets that tile the rest
// of the file without a hole, an overlap or a remainder.

#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static const struct {
  const char *name;
  NnrtDtype dtype;
} type_names[] = {
    {"F32", NNRT_f32},   {"F64", NNRT_f64}, {"F16", NNRT_f16}, {"BF16", NNRT_bf16},
    {"I8", NNRT_i8},     {"I16", NNRT_i16}, {"I32", NNRT_i32}, {"I64", NNRT_i64},
    {"U8", NNRT_u8},     {"U16", NNRT_u16}, {"U32", NNRT_u32}, {"U64", NNRT_u64},
    {"BOOL", NNRT_bool},
};
enum { N_TYPES = sizeof type_names / sizeof *type_names, MAX_HEADER = 100000000 };

static bool read_type(Json *j, NnrtDtype *out) {
  char *name = nnrt_json_string(j);
  bool found = false;
  // The error of the string itself is kept.
  for (int i = 0; name && i < N_TYPES && !found; i++)
    if ((found = strcmp(name, type_names[i].name) == 0)) *out = type_names[i].dtype;
  free(name);
  if (!found && !j->error) j->error = "an element type is not known";
  return found;
}

// Reads "[" [int {"," int}] "]"; returns their number, -1 on error.
static int read_ints(Json *j, int64_t *out, int max) {
  int n = 0;
  if (!nnrt_json_want(j, '[')) return -1;
  if (nnrt_json_take(j, ']')) return 0;
  do {
    if (n == max) {
      j->error = "a list is too long";
      return -1;
    }
    if (!nnrt_json_int(j, &out[n++])) return -1;
  } while (nnrt_json_take(j, ','));
  return nnrt_json_want(j, ']') ? n : -1;
}

// tensor = "{" "dtype": …, "shape": …, "data_offsets": … "}" in any order
static bool read_tensor(Json *j, StTensor *t) {
  int seen = 0;
  int64_t offsets[2];
  if (!nnrt_json_want(j, '{')) return false;
  do {
    char *key = nnrt_json_string(j);
    if (!key) return false;
    int field = strcmp(key, "dtype") == 0          ? 1
                : strcmp(key, "shape") == 0        ? 2
                : strcmp(key, "data_offsets") == 0 ? 4
                                                   : 0;
    free(key);
    if (!field || seen & field) {
      j->error = "a tensor has a wrong field";
      return false;
    }
    // Each of the three fields occurs once, in any order.
    seen |= field;
    if (!nnrt_json_want(j, ':')) return false;
    if (field == 1 && !read_type(j, &t->dtype)) return false;
    if (field == 2 && (t->ndim = read_ints(j, t->dim, NNRT_MAX_NDIM)) < 0) return false;
    if (field == 4 && read_ints(j, offsets, 2) != 2) {
      if (!j->error) j->error = "data_offsets are not two";
      return false;
    }
  } while (nnrt_json_take(j, ','));
  if (!nnrt_json_want(j, '}')) return false;
  t->begin = offsets[0];
  t->end = offsets[1];
  if (seen != 7) j->error = "a tensor lacks a field";
  return seen == 7;
}

static bool read_texts(Json *j, StFile *f) {
  if (!nnrt_json_want(j, '{')) return false;
  if (nnrt_json_take(j, '}')) return true;
  int room = 0;
  do {
    // The number of texts is not known before.
    if (f->n_texts == room) {
      room = room ? 2 * room : 16;
      f->text = realloc(f->text, (size_t)room * sizeof *f->text);
      if (!f->text) nnrt_must_alloc((size_t)-1);
    }
    StText *t = &f->text[f->n_texts];
    *t = (StText){.key = nnrt_json_string(j)};
    if (!t->key) return false;
    f->n_texts++;
    if (!nnrt_json_want(j, ':') || !(t->value = nnrt_json_string(j))) return false;
  } while (nnrt_json_take(j, ','));
  return nnrt_json_want(j, '}');
}

static bool read_header(Json *j, StFile *f) {
  bool has_texts = false;
  int room = 0;
  if (!nnrt_json_want(j, '{')) return false;
  if (!nnrt_json_take(j, '}')) {
    do {
      char *name = nnrt_json_string(j);
      if (!name || !nnrt_json_want(j, ':')) {
        free(name);
        return false;
      }
      // All keys but this one are names of tensors.
      if (strcmp(name, "__metadata__") == 0) {
        free(name);
        if (has_texts) j->error = "__metadata__ is there twice";
        has_texts = true;
        if (!read_texts(j, f)) return false;
        continue;
      }
      // The number of tensors is not known before.
      if (f->n_tensors == room) {
        room = room ? 2 * room : 64;
        f->tensor = realloc(f->tensor, (size_t)room * sizeof *f->tensor);
        if (!f->tensor) nnrt_must_alloc((size_t)-1);
      }
      StTensor *t = &f->tensor[f->n_tensors++];
      *t = (StTensor){.name = name};
      if (!read_tensor(j, t)) return false;
    } while (nnrt_json_take(j, ','));
    if (!nnrt_json_want(j, '}')) return false;
  }
  nnrt_json_take(j, ' '); // the padding
  if (j->at != j->end) j->error = "there is more after the header's end";
  return !j->error;
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const StTensor *const *)a)->name, (*(const StTensor *const *)b)->name);
}

static int by_place(const void *a, const void *b) {
  const StTensor *x = *(const StTensor *const *)a, *y = *(const StTensor *const *)b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static bool check_tensors(const StFile *f, const StTensor **order, Why *w) {
  // The size by the shape must be the size by the offsets.
  for (int i = 0; i < f->n_tensors; i++) {
    const StTensor *t = order[i] = &f->tensor[i];
    int64_t size = nnrt_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
      if (__builtin_mul_overflow(size, t->dim[d], &size))
        return why(w, "the shape of '%s' is too large", t->name);
    if (t->end < t->begin || t->end - t->begin != size)
      return why(w, "'%s' needs %lld bytes, its data_offsets are %lld to %lld", t->name,
                 (long long)size, (long long)t->begin, (long long)t->end);
  }
  // Names must be unique.
  qsort(order, (size_t)f->n_tensors, sizeof *order, by_name);
  for (int i = 1; i < f->n_tensors; i++)
    if (strcmp(order[i - 1]->name, order[i]->name) == 0)
      return why(w, "'%s' is there twice", order[i]->name);
  // The tensors must tile the data.
  qsort(order, (size_t)f->n_tensors, sizeof *order, by_place);
  int64_t at = 0;
  for (int i = 0; i < f->n_tensors; at = order[i++]->end)
    if (order[i]->begin != at)
      return why(w, "'%s' begins at byte %lld, its predecessor ends at %lld", order[i]->name,
                 (long long)order[i]->begin, (long long)at);
  if (at == f->data_bytes) return true;
  return why(w, "the tensors need %lld bytes, there are %lld: %s", (long long)at,
             (long long)f->data_bytes,
             at > f->data_bytes ? "it is truncated" : "something follows");
}

static bool read_file(StFile *f, Why *w) {
  const uint8_t *p = f->file.at;
  // Every length is checked before it is used.
  uint64_t n;
  if (f->file.bytes < 8) return why(w, "it is too short for a header");
  memcpy(&n, p, 8);
  if (n > MAX_HEADER) return why(w, "its header claims %llu bytes", (unsigned long long)n);
  if ((int64_t)n > f->file.bytes - 8) return why(w, "it is truncated in its header");
  f->header = (const char *)p + 8;
  f->header_bytes = (int64_t)n;
  f->data = p + 8 + n;
  f->data_bytes = f->file.bytes - 8 - (int64_t)n;
  // The reference implementation permits no white space before the header.
  if (n == 0 || f->header[0] != '{') return why(w, "its header is not JSON");
  Json j = {f->header, f->header + n, NULL};
  // The position counts from the beginning of the file.
  if (!read_header(&j, f))
    return why(w, "its header is damaged: %s (at byte %lld)",
               j.error ? j.error : "the JSON is damaged", (long long)(j.at - f->header + 8));
  const StTensor **order = nnrt_must_alloc(((size_t)f->n_tensors + 1) * sizeof *order);
  bool ok = check_tensors(f, order, w);
  free(order);
  return ok;
}

bool nnrt_st_open(StFile *f, const char *path, Why *w) {
  *f = (StFile){0};
  if (!nnrt_in_open(&f->file, path, w)) return false;
  if (read_file(f, w)) return true;
  nnrt_st_close(f);
  return false;
}

void nnrt_st_close(StFile *f) {
  for (int i = 0; i < f->n_tensors; i++)
    free(f->tensor[i].name);
  for (int i = 0; i < f->n_texts; i++) {
    free(f->text[i].key);
    free(f->text[i].value);
  }
  free(f->tensor);
  free(f->text);
  nnrt_in_close(&f->file);
  *f = (StFile){0};
}

const StTensor *nnrt_st_find(const StFile *f, const char *name) {
  for (int i = 0; i < f->n_tensors; i++)
    if (strcmp(f->tensor[i].name, name) == 0) return &f->tensor[i];
  return NULL;
}

const char *nnrt_st_text(const StFile *f, const char *key) {
  for (int i = 0; i < f->n_texts; i++)
    if (strcmp(f->text[i].key, key) == 0) return f->text[i].value;
  return NULL;
}

char *nnrt_st_header(StTensor *tensor, int n_tensors, const StText *text, int n_texts,
                     int64_t *bytes) {
  char *out = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&out, &n);
  if (!f) nnrt_must_alloc((size_t)-1);
  fwrite("\0\0\0\0\0\0\0", 1, 8, f); // the length comes last
  fputc('{', f);
  if (n_texts > 0) fputs("\"__metadata__\":{", f);
  for (int i = 0; i < n_texts; i++) {
    if (i) fputc(',', f);
    nnrt_json_write_string(f, text[i].key);
    fputc(':', f);
    nnrt_json_write_string(f, text[i].value);
  }
  if (n_texts > 0) fputs(n_tensors > 0 ? "}," : "}", f);
  int64_t at = 0;
  for (int i = 0; i < n_tensors; i++) {
    StTensor *t = &tensor[i];
    int64_t size = nnrt_dtype_size(t->dtype);
    if (i) fputc(',', f);
    nnrt_json_write_string(f, t->name);
    const char *type = "?";
    for (int k = 0; k < N_TYPES; k++)
      if (type_names[k].dtype == t->dtype) type = type_names[k].name;
    fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[", type);
    for (int d = 0; d < t->ndim; d++) {
      fprintf(f, d ? ",%lld" : "%lld", (long long)t->dim[d]);
      size *= t->dim[d];
    }
    // Tensors tile the data in the order of the list.
    t->begin = at;
    t->end = at += size;
    fprintf(f, "],\"data_offsets\":[%lld,%lld]}", (long long)t->begin, (long long)t->end);
  }
  fputc('}', f);
  // Padded so that the first tensor is aligned in a mapped file.
  while (!ferror(f) && ftello(f) % 64)
    fputc(' ', f);
  nnrt_must_close(f, &out);
  // The length counts neither itself nor the data.
  uint64_t length = n - 8;
  memcpy(out, &length, 8);
  *bytes = (int64_t)n;
  return out;
}
