// ONNX files: for any input, onnx_import reports an error or returns a module that passes the
// verifier and survives parse(print(m)).
//
// Mutations work on the wire format: a file is fields, some of which are nested messages.  The
// lengths of all enclosing messages are corrected, so that mutations reach the importer and not
// only the reader.  Now and then raw bytes are changed, for the reader.

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "frontend/onnx.h"

const char fuzz_name[] = "onnx";

enum { MAX_FIELDS = 4096, MAX_NESTING = 12 };

// -- Mutations -------------------------------------------------------------------------------

typedef struct Field {
  uint64_t number;
  int wire;
  const char *start, *at, *end; // its tag, the payload after tag and length, the end
} Field;

static bool read_varint(const char **at, const char *end, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && *at < end; shift += 7) {
    uint8_t byte = (uint8_t) * (*at)++;
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Returns the number of fields of a message; -1 if the bytes are no message.
static int read_fields(const char *at, const char *end, Field *fields, int max) {
  int n = 0;
  while (at < end) {
    Field f = {.start = at};
    uint64_t tag, length;
    if (n == max || !read_varint(&at, end, &tag)) return -1;
    f.number = tag >> 3;
    f.wire = (int)(tag & 7);
    f.at = at;
    switch (f.wire) {
    case 0:
      if (!read_varint(&at, end, &length)) return -1;
      length = 0;
      break;
    case 1: length = 8; break;
    case 5: length = 4; break;
    case 2:
      if (!read_varint(&at, end, &length)) return -1;
      f.at = at;
      break;
    default: return -1;
    }
    if (f.number == 0 || length > (uint64_t)(end - at)) return -1;
    f.end = at += length;
    fields[n++] = f;
  }
  return n;
}

// All fields of all files, for insertion elsewhere.
static struct {
  Field *at;
  int n;
} found;

static void collect(const char *at, const char *end, int depth, Arena *a) {
  static struct {
    Field *at;
    int n, cap;
  } all;
  Field *fields = arena_array(a, Field, MAX_FIELDS);
  int n = depth < MAX_NESTING ? read_fields(at, end, fields, MAX_FIELDS) : -1;
  for (int i = 0; i < n; i++) {
    vec_push(a, &all, fields[i]);
    if (fields[i].wire == 2) collect(fields[i].at, fields[i].end, depth + 1, a);
  }
  found.at = all.at;
  found.n = all.n;
}

static void add_varint(StrBuf *b, uint64_t x) {
  do {
    char byte = (char)((x & 0x7f) | (x > 0x7f ? 0x80 : 0));
    strbuf_add_n(b, &byte, 1);
  } while (x >>= 7);
}

static void add_range(StrBuf *b, const char *from, const char *to) {
  strbuf_add_n(b, from, (size_t)(to - from));
}

static void change_bytes(const char *at, const char *end, Random *r, StrBuf *out) {
  const char *cut = at + random_below(r, end - at + 1);
  char byte = (char)random_below(r, 256);
  add_range(out, at, cut);
  switch (random_below(r, 4)) {
  case 0: strbuf_add_n(out, &byte, 1); break;
  case 1: return; // the rest is cut off
  case 2:
    strbuf_add_n(out, &byte, 1);
    cut += cut < end;
    break;
  default: cut += random_below(r, end - cut + 1 < 9 ? end - cut + 1 : 9);
  }
  add_range(out, cut, end);
}

// Replaces one field, tag included.
static void change_field(const Field *f, Random *r, StrBuf *out) {
  const Field *other = &found.at[random_below(r, found.n)];
  for (int i = 0; i < 50 && other->number != f->number; i++)
    other = &found.at[random_below(r, found.n)];
  switch (random_below(r, 8)) {
  case 0: return;
  case 1:
    add_range(out, f->start, f->end);
    add_range(out, f->start, f->end);
    return;
  case 2:
    add_range(out, f->start, f->end);
    add_range(out, other->start, other->end);
    return;
  case 3: add_range(out, other->start, other->end); return;
  }
  if (f->wire == 0) {
    add_varint(out, f->number << 3);
    add_varint(out, (uint64_t)random_number(r));
  } else if (f->wire == 2) {
    StrBuf payload = {.arena = out->arena};
    change_bytes(f->at, f->end, r, &payload);
    add_varint(out, f->number << 3 | 2);
    add_varint(out, payload.n);
    strbuf_add_n(out, payload.n ? payload.at : "", payload.n);
  } else {
    uint64_t bits = random_next(r);
    add_range(out, f->start, f->at);
    strbuf_add_n(out, (const char *)&bits, (size_t)(f->end - f->at));
  }
}

static void change_message(const char *at, const char *end, int depth, Random *r, StrBuf *out) {
  Field *fields = arena_array(out->arena, Field, MAX_FIELDS);
  int n = depth < MAX_NESTING ? read_fields(at, end, fields, MAX_FIELDS) : -1;
  if (n <= 0 || random_one_in(r, 200)) {
    change_bytes(at, end, r, out);
    return;
  }
  // A random byte often selects the field, so long fields are preferred.
  int which = (int)random_below(r, n);
  const char *byte = at + random_below(r, end - at);
  for (int i = 0; random_one_in(r, 2) && i < n; i++)
    if (fields[i].start <= byte && byte < fields[i].end) which = i;
  const Field *f = &fields[which];
  add_range(out, at, f->start);
  bool message =
      f->wire == 2 && f->end > f->at &&
      read_fields(f->at, f->end, arena_array(out->arena, Field, MAX_FIELDS), MAX_FIELDS) > 0;
  if (message && !random_one_in(r, 6)) {
    StrBuf inner = {.arena = out->arena};
    change_message(f->at, f->end, depth + 1, r, &inner);
    add_varint(out, f->number << 3 | 2);
    add_varint(out, inner.n);
    strbuf_add_n(out, inner.n ? inner.at : "", inner.n);
  } else {
    change_field(f, r, out);
  }
  add_range(out, f->end, end);
}

void fuzz_mutate(const Seeds *seeds, const Seed *seed, Random *r, StrBuf *out) {
  (void)seeds;
  strbuf_add_n(out, seed->at, (size_t)seed->n);
  for (int64_t i = 1 + random_below(r, 3); i > 0; i--) {
    StrBuf next = {.arena = out->arena};
    strbuf_add(&next, "");
    change_message(out->at, out->at + out->n, 0, r, &next);
    *out = next;
  }
}

// -- Checks ----------------------------------------------------------------------------------

static char folder[64];
static const char *model_path, *data_path;

static void write_file(const char *path, const char *at, int64_t n) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(at, 1, (size_t)n, f) != (size_t)n || fclose(f)) {
    perror(path);
    exit(2);
  }
}

static void remove_files(void) {
  unlink(model_path);
  unlink(data_path);
  rmdir(folder);
}

// Creates a folder for the model and for the external data of seeds/tensors.onnx.
void fuzz_begin(const Seeds *seeds, Arena *a) {
  static const float data[] = {1, 2, 3, 4};
  const char *in = getenv("TMPDIR");
  if (!in) in = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"; // a disk is ten times slower
  snprintf(folder, sizeof folder, "%s/fuzz_onnx.XXXXXX", in);
  if (!mkdtemp(folder)) {
    perror(folder);
    exit(2);
  }
  model_path = str_format(a, "%s/model.onnx", folder);
  data_path = str_format(a, "%s/e.bin", folder);
  write_file(data_path, (const char *)data, sizeof data);
  atexit(remove_files);
  for (int i = 0; i < seeds->n; i++)
    collect(seeds->at[i].at, seeds->at[i].at + seeds->at[i].n, 0, a);
}

bool fuzz_one(const char *at, int64_t n) {
  write_file(model_path, at, n);
  Diag *d = diag_new(stderr);
  Arena *a = arena_new();
  OnnxOptions o = {.batch = 2, .devices = 4};
  diag_quiet(d, true);
  Module *m = onnx_import(model_path, &o, d);
  if (!m && !diag_errors(d)) fuzz_fail("refused without a word", NULL);
  if (m) {
    if (!module_verify(m, d)) fuzz_fail("an imported module does not verify", NULL);
    const char *text = module_text(m, a);
    Module *again = module_parse("again.nn", text, strlen(text), d);
    if (!again) fuzz_fail("what was printed does not parse", NULL);
    if (strcmp(text, module_text(again, a))) fuzz_fail("parse(print(m)) is not m", NULL);
    const uint8_t *bytes;
    int64_t n_bytes;
    if (m->annotations)
      onnx_annotate(model_path, m->annotations, "again.onnx", a, &bytes, &n_bytes, d);
    module_free(again);
    module_free(m);
  }
  arena_free(a);
  diag_free(d);
  return m;
}
