// A cache of compiled files, --cache DIR, by all that they are compiled from:
//
//     key      the command without the names of its files, the compiler's version, the variables
//              that change its work, the runtime's headers, and the text with program.h
//     entry    DIR/0123456789abcdef: sizes of key and object, a checksum of the rest, key, object
//
// The name is the checksum of the key; an entry counts if it has this key, byte by byte, and its
// own checksum.  Any other is compiled again and replaced.  Entries are written whole under a
// temporary name and renamed, so that several nnaots can share a folder without locks.
//
// A text that includes a file of the assembler (.incbin) is not cached.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/whole_file.h"
#include "build.h"
#include "rt/xxh64.h"
#include "temporary.h"

// -- The folder --------------------------------------------------------------------------------

bool backend_cache(const char *dir, Diag *d) {
  struct stat st;
  if (mkdir(dir, 0700) != 0 && errno != EEXIST)
    return diag_error(d, NULL, "--cache: cannot make the folder '%s': %s", dir, strerror(errno));
  if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
    return diag_error(d, NULL, "--cache: '%s' is no folder", dir);
  if (access(dir, R_OK | W_OK | X_OK) != 0)
    return diag_error(d, NULL, "--cache: cannot write to '%s': %s", dir, strerror(errno));
  // Whoever can write there decides what executables do.
  Arena *a = arena_new();
  const char *why, *open = folder_of_others(a, dir, &why);
  if (open) {
    diag_error(d, NULL, "--cache: '%s' is not used: '%s': %s", dir, open, why);
    diag_hint(d, "take a folder in which no other user can write, such as one of your home");
  }
  arena_free(a);
  return !open;
}

// -- Keys --------------------------------------------------------------------------------------

// Appends a file with its size.  Returns false if it cannot be read.
static bool add_file(StrBuf *key, const char *path) {
  struct stat st;
  FILE *f = fopen(path, "re");
  bool ok = f && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
  if (ok) {
    char *bytes = arena_alloc(key->arena, (size_t)st.st_size + 1);
    ok = fread(bytes, 1, (size_t)st.st_size, f) == (size_t)st.st_size;
    strbuf_addf(key, "\n%" PRId64 " ", (int64_t)st.st_size);
    if (ok) strbuf_add_n(key, bytes, (size_t)st.st_size);
  }
  if (f) fclose(f);
  return ok;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Appends the headers of a folder in the order of their names.
static bool add_headers(StrBuf *key, const char *folder) {
  Vec(const char *) names = {0};
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));)
    if (str_ends(e->d_name, ".h") || str_ends(e->d_name, ".def") || str_ends(e->d_name, ".cuh"))
      vec_push(key->arena, &names, str_copy(key->arena, e->d_name));
  if (dir) closedir(dir);
  if (names.n) qsort(names.at, (size_t)names.n, sizeof *names.at, compare_names);
  for (int i = 0; i < names.n; i++) {
    strbuf_addf(key, "\n%s", names.at[i]);
    if (!add_file(key, str_format(key->arena, "%s/%s", folder, names.at[i]))) return false;
  }
  return true;
}

// Appends the output of `TOOL --version`.
static bool add_version(StrBuf *key, const char *tool) {
  Command c = {.arena = key->arena};
  command_add(&c, tool);
  command_add(&c, "--version");
  FILE *f = popen(str_format(key->arena, "%s 2>&1", command_text(&c)), "r");
  char piece[1 << 10];
  size_t n;
  strbuf_addf(key, "\n%s ", tool);
  while (f && (n = fread(piece, 1, sizeof piece, f)) > 0)
    strbuf_add_n(key, piece, n);
  return f && pclose(f) == 0;
}

// The part of the key that all files have in common; "": unknown, so nothing is cached.
static const char *common_key(Build *b) {
  static const char *const variables[] = {
      "CPATH",     "C_INCLUDE_PATH",     "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX",
      "CUDA_HOME", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",  "NVCC_CCBIN"};
  StrBuf key = {.arena = b->arena};
  strbuf_add(&key, "nnaot 1");
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const char *value = getenv(variables[i]);
    if (value) strbuf_addf(&key, "\n%s=%s", variables[i], value);
  }
  // The compiler of C also compiles for nvcc.
  Command c = build_c_command(b);
  bool ok = add_version(&key, c.word.at[0]) && add_headers(&key, b->headers) &&
            add_headers(&key, str_format(b->arena, "%s/cuda", b->headers));
  // The headers are long, and the same in all entries.
  uint64_t low = xxh64(key.at, (int64_t)key.n, 1), high = xxh64(key.at, (int64_t)key.n, 2);
  return ok ? str_format(b->arena, "%016" PRIx64 "%016" PRIx64, high, low) : "";
}

bool cache_key(Build *b, const Command *c, StrBuf *key) {
  *key = (StrBuf){.arena = b->arena};
  if (!b->o->cache || !c->source) return false;
  if (!b->common_key) b->common_key = common_key(b);
  if (!*b->common_key) return false;
  strbuf_add(key, b->common_key);
  // The command is the first word's compiler and its options.
  for (int i = 0; i < c->word.n; i++)
    if (!str_equal(c->word.at[i], c->source) && !str_equal(c->word.at[i], c->object))
      strbuf_addf(key, "\n%s", c->word.at[i]);
  if (!str_ends(c->source, ".c") && !add_version(key, c->word.at[0])) return false;
  size_t text = key->n;
  if (!add_file(key, str_format(b->arena, "%s/%s", b->dir, c->source))) return false;
  if (strstr(key->at + text, ".incbin")) return false;
  return !strstr(key->at + text, "#include \"program.h\"") ||
         add_file(key, str_format(b->arena, "%s/program.h", b->dir));
}

// -- Entries -----------------------------------------------------------------------------------

typedef struct Head {
  char magic[8];
  uint64_t key_bytes, object_bytes, checksum;
} Head;

static const char magic[8] = "nnaot.o";

static const char *entry_path(const Build *b, const StrBuf *key) {
  return str_format(b->arena, "%s/%016" PRIx64, b->o->cache, xxh64(key->at, (int64_t)key->n, 0));
}

static uint64_t checksum(const StrBuf *key, const char *object, size_t n) {
  return xxh64(object, (int64_t)n, xxh64(key->at, (int64_t)key->n, 0));
}

// Reads the object of an entry into the arena; NULL: there is no such entry, or a damaged one.
static char *read_entry(const Build *b, const StrBuf *key, size_t *out_n) {
  Head head;
  struct stat st;
  int fd = open(entry_path(b, key), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
  if (!f && fd >= 0) close(fd);
  bool ok = f && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
            fread(&head, sizeof head, 1, f) == 1 && !memcmp(head.magic, magic, sizeof magic) &&
            head.key_bytes == key->n &&
            head.object_bytes == (uint64_t)st.st_size - sizeof head - key->n;
  char *bytes = NULL;
  if (ok) {
    *out_n = (size_t)head.object_bytes;
    bytes = arena_alloc(b->arena, key->n + *out_n + 1);
    ok = fread(bytes, 1, key->n + *out_n, f) == key->n + *out_n &&
         !memcmp(bytes, key->at, key->n) && head.checksum == checksum(key, bytes + key->n, *out_n);
  }
  if (f) fclose(f);
  return ok ? bytes + key->n : NULL;
}

bool cache_take(Build *b, const Command *c, const StrBuf *key) {
  size_t n;
  const char *object = read_entry(b, key, &n);
  if (!object) return false;
  FILE *f = fopen(str_format(b->arena, "%s/%s", b->dir, c->object), "we");
  if (!f) return false;
  bool ok = fwrite(object, 1, n, f) == n;
  return fclose(f) == 0 && ok;
}

void cache_put(Build *b, const Command *c, const StrBuf *key) {
  WholeFile part;
  const char *path = entry_path(b, key);
  struct stat st;
  FILE *f = fopen(str_format(b->arena, "%s/%s", b->dir, c->object), "re");
  bool ok = f && fstat(fileno(f), &st) == 0;
  size_t n = ok ? (size_t)st.st_size : 0;
  char *bytes = arena_alloc(b->arena, n + 1);
  ok = ok && fread(bytes, 1, n, f) == n;
  if (f) fclose(f);
  // Without an entry the next build compiles again, which is no error.
  if (!ok || !whole_file_open(&part, path)) {
    diag_warning(b->d, NULL, "--cache: cannot write '%s': %s", path, strerror(errno));
    return;
  }
  temporary_file(part.temporary);
  Head head = {.key_bytes = key->n, .object_bytes = n, .checksum = checksum(key, bytes, n)};
  memcpy(head.magic, magic, sizeof magic);
  fwrite(&head, sizeof head, 1, part.f);
  fwrite(key->at, 1, key->n, part.f);
  fwrite(bytes, 1, n, part.f);
  ok = whole_file_close(&part, true);
  temporary_file(NULL);
  if (!ok) diag_warning(b->d, NULL, "--cache: cannot write '%s': %s", path, strerror(errno));
}
