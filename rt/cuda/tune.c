// The tune file.  See tune.h.

#include "tune.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD    "nnaot tune 1\n"
#define COLUMNS "us EPILOGUE ALGORITHM PROBLEM\n"
enum { END_BYTES = 21 }; // "end ", 16 digits, "\n"

typedef struct Entry {
  char *problem;
  NnrtChoice choice;
} Entry;

// Shared by the ranks of this process; `lock` guards all of it.
static struct {
  pthread_mutex_t lock;
  const char *path; // NULL: nothing is measured
  size_t cublaslt;  // 0: not yet known
  int sm, processors;
  Entry *entry;
  int n_entries;
  bool failed; // it cannot be written
} tune = {.lock = PTHREAD_MUTEX_INITIALIZER};

static Entry *entry_of(const char *problem) {
  for (int i = 0; i < tune.n_entries; i++)
    if (!strcmp(tune.entry[i].problem, problem)) return &tune.entry[i];
  return NULL;
}

static void set_entry(const char *problem, const NnrtChoice *c) {
  Entry *e = entry_of(problem);
  if (!e) {
    // A new problem, at the end.
    Entry *more = nnrt_must_alloc((size_t)(tune.n_entries + 1) * sizeof *more);
    if (tune.n_entries) memcpy(more, tune.entry, (size_t)tune.n_entries * sizeof *more);
    free(tune.entry);
    tune.entry = more;
    e = &more[tune.n_entries++];
    e->problem = nnrt_must_format("%s", problem);
  }
  e->choice = *c;
}

static void forget_all(void) {
  for (int i = 0; i < tune.n_entries; i++)
    free(tune.entry[i].problem);
  free(tune.entry);
  tune.entry = NULL;
  tune.n_entries = 0;
  tune.cublaslt = 0;
}

static bool read_algo(uint8_t *algo, const char *hex) {
  for (int i = 0; i < NNRT_ALGO_BYTES; i++) {
    unsigned byte;
    if (strspn(hex + 2 * i, "0123456789abcdef") < 2 || sscanf(hex + 2 * i, "%2x", &byte) != 1)
      return false;
    algo[i] = (uint8_t)byte;
  }
  return !hex[2 * NNRT_ALGO_BYTES];
}

static void write_end(char *to, const char *text, int64_t bytes) {
  snprintf(to, END_BYTES + 1, "end %016" PRIx64 "\n", nnrt_xxh64(text, bytes, 0));
}

// Returns false if the file is damaged.  `text` is null-terminated and is split into lines.
static bool read_text(char *text, int64_t bytes) {
  char end[END_BYTES + 1], *rest = NULL, *line;
  // The checksum covers all text before the last line.
  bytes -= END_BYTES;
  if (bytes < 0) return false;
  write_end(end, text, bytes);
  if (strcmp(text + bytes, end) != 0) return false;
  text[bytes] = 0;
  strtok_r(text, "\n", &rest); // HEAD
  line = strtok_r(NULL, "\n", &rest);
  if (!line || sscanf(line, "cublaslt %zu sm %d multiprocessors %d", &tune.cublaslt, &tune.sm,
                      &tune.processors) != 3)
    return false;
  if (!strtok_r(NULL, "\n", &rest)) return false; // COLUMNS
  while ((line = strtok_r(NULL, "\n", &rest))) {
    // "28.7 inside 4200… bf16 bf16 1 …"
    NnrtChoice c;
    char where[8], hex[2 * NNRT_ALGO_BYTES + 2];
    int at = 0;
    if (sscanf(line, "%lf %7s %129s %n", &c.us, where, hex, &at) < 3 || !at || !line[at])
      return false;
    c.apart = !strcmp(where, "apart");
    if ((!c.apart && strcmp(where, "inside") != 0) || !read_algo(c.algo, hex)) return false;
    set_entry(line + at, &c);
  }
  return true;
}

bool nnrt_tune_open(const char *path, Why *w) {
  forget_all();
  tune.path = path;
  if (!path) return true;
  if (access(path, F_OK)) return nnrt_out_possible(path, w);
  InFile in;
  if (!nnrt_in_open(&in, path, w)) return false;
  size_t head = strlen(HEAD);
  // A file of something else is not overwritten.
  bool ours = in.bytes >= (int64_t)head && !memcmp(in.at, HEAD, head);
  char *text = nnrt_must_alloc((size_t)in.bytes + 1);
  memcpy(text, in.at, (size_t)in.bytes);
  if (ours && !read_text(text, in.bytes)) {
    nnrt_say_warning("--tune: '%s' is damaged: everything is measured again", path);
    forget_all();
  }
  free(text);
  nnrt_in_close(&in);
  return ours || why(w, "--tune: '%s' is there and is no file of measured choices", path);
}

static char *text_of_all(int64_t *out_bytes) {
  size_t size = 256;
  for (int i = 0; i < tune.n_entries; i++)
    size += strlen(tune.entry[i].problem) + 2 * NNRT_ALGO_BYTES + 64;
  // An entry needs its problem, its algorithm, and at most 64 bytes more.
  char *text = nnrt_must_alloc(size);
  size_t at = (size_t)snprintf(text, size, HEAD "cublaslt %zu sm %d multiprocessors %d\n" COLUMNS,
                               tune.cublaslt, tune.sm, tune.processors);
  for (int i = 0; i < tune.n_entries; i++) {
    const NnrtChoice *c = &tune.entry[i].choice;
    at += (size_t)snprintf(text + at, size - at, "%.1f %s ", c->us, c->apart ? "apart" : "inside");
    for (int j = 0; j < NNRT_ALGO_BYTES; j++)
      at += (size_t)snprintf(text + at, size - at, "%02x", c->algo[j]);
    at += (size_t)snprintf(text + at, size - at, " %s\n", tune.entry[i].problem);
  }
  write_end(text + at, text, (int64_t)at);
  *out_bytes = (int64_t)at + END_BYTES;
  return text;
}

static bool write_file(Why *w) {
  OutFile o;
  int64_t bytes;
  if (!nnrt_out_begin(&o, tune.path, w)) return false;
  // The file is replaced as a whole, or not at all.
  char *text = text_of_all(&bytes);
  bool ok = nnrt_out_write(&o, text, bytes, w);
  free(text);
  if (!ok) nnrt_out_abandon(&o);
  return ok && nnrt_out_commit(&o, w);
}

void nnrt_tune_terms(Terms *t) {
  if (!tune.path) return;
  uint64_t sum = 0;
  pthread_mutex_lock(&tune.lock);
  // A sum of checksums: the order of entries is that of their measurement.
  for (int i = 0; i < tune.n_entries; i++) {
    const Entry *e = &tune.entry[i];
    uint64_t apart = e->choice.apart;
    uint64_t problem = nnrt_xxh64(e->problem, (int64_t)strlen(e->problem), apart);
    sum += nnrt_xxh64(e->choice.algo, NNRT_ALGO_BYTES, problem);
  }
  nnrt_terms_add(t, "the file of --tune", "%d products with checksum %016" PRIx64, tune.n_entries,
                 sum);
  pthread_mutex_unlock(&tune.lock);
}

bool nnrt_tune_on(void) {
  return tune.path;
}

void nnrt_tune_begin(size_t cublaslt, int sm, int processors) {
  pthread_mutex_lock(&tune.lock);
  if (tune.cublaslt == cublaslt && tune.sm == sm && tune.processors == processors) return;
  // Choices of another library or GPU are worth nothing here.
  if (tune.cublaslt)
    nnrt_say_note("--tune: '%s' is of cuBLASLt %zu on sm_%d with %d multiprocessors, and here "
                  "are %zu, sm_%d and %d: everything is measured again",
                  tune.path, tune.cublaslt, tune.sm, tune.processors, cublaslt, sm, processors);
  forget_all();
  tune.cublaslt = cublaslt;
  tune.sm = sm;
  tune.processors = processors;
}

void nnrt_tune_end(void) {
  pthread_mutex_unlock(&tune.lock);
}

bool nnrt_tune_find(const char *problem, NnrtChoice *out) {
  const Entry *e = entry_of(problem);
  if (e) *out = e->choice;
  return e;
}

void nnrt_tune_keep(const char *problem, const NnrtChoice *c) {
  Why w;
  set_entry(problem, c);
  if (tune.failed || write_file(&w)) return;
  // The choice holds for this run in any case.
  nnrt_say_warning("--tune: %s", w.text);
  tune.failed = true;
}
