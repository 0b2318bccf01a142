// Writing of files other than executables: see output.h.

#include "output.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/whole_file.h"

#include "rt/utf8.h"

// Whether the path is special, as /dev/null or a pipe are: a rename must not replace it.
static bool is_special(const char *path) {
  struct stat s;
  return !stat(path, &s) && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

bool output_flush(Diag *d) {
  return (!fflush(stdout) && !ferror(stdout)) ||
         diag_error(d, NULL, "cannot write to standard output: %s", strerror(errno));
}

bool output_write(const char *path, const char *text, Diag *d) {
  return output_write_bytes(path, text, (int64_t)strlen(text), d);
}

bool output_write_bytes(const char *path, const void *bytes, int64_t n, Diag *d) {
  if (!strcmp(path, "-")) {
    fwrite(bytes, 1, (size_t)n, stdout);
    return output_flush(d);
  }
  WholeFile w;
  bool ok = whole_file_open(&w, path);
  if (ok) {
    fwrite(bytes, 1, (size_t)n, w.f);
    ok = whole_file_close(&w, true);
  }
  return ok || diag_error(d, NULL, "cannot write '%s': %s", path, strerror(errno));
}

bool output_writable(const char *path, Diag *d) {
  return !strcmp(path, "-") || whole_file_possible(path) ||
         diag_error(d, NULL, "cannot write '%s': %s", path, strerror(errno));
}

// Whether two names are of one file, which need not exist yet.
static bool is_same_file(Arena *a, const char *x, const char *y) {
  struct stat of_x, of_y;
  bool has_x = !stat(x, &of_x), has_y = !stat(y, &of_y);
  if (has_x != has_y) return false;
  if (has_x) return of_x.st_dev == of_y.st_dev && of_x.st_ino == of_y.st_ino;
  const char *name_x = strrchr(x, '/'), *name_y = strrchr(y, '/');
  if (strcmp(name_x ? name_x + 1 : x, name_y ? name_y + 1 : y) != 0) return false;
  const char *folder_x = name_x ? str_copy_n(a, x, (size_t)(name_x - x) + 1) : ".";
  const char *folder_y = name_y ? str_copy_n(a, y, (size_t)(name_y - y) + 1) : ".";
  return !stat(folder_x, &of_x) && !stat(folder_y, &of_y) && of_x.st_dev == of_y.st_dev &&
         of_x.st_ino == of_y.st_ino;
}

bool outputs_apart(const UsedFile *files, int n, Diag *d) {
  Arena *a = arena_new();
  bool ok = true;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) {
      const UsedFile *x = &files[i], *y = &files[j];
      if (!x->path || !y->path || (x->is_read && y->is_read)) continue;
      bool standard = !strcmp(x->path, "-") && !strcmp(y->path, "-");
      // Standard input and standard output are no files.
      if (standard && !x->is_read && !y->is_read)
        ok = diag_error(d, NULL, "%s and %s would both go to standard output", x->name, y->name);
      if (standard || is_special(x->path) || !is_same_file(a, x->path, y->path)) continue;
      if (x->is_read || y->is_read)
        ok = diag_error(d, NULL, "%s would overwrite %s, '%s'", (x->is_read ? y : x)->name,
                        (x->is_read ? x : y)->name, (x->is_read ? x : y)->path);
      else
        ok = diag_error(d, NULL, "%s and %s would both be written to '%s'", x->name, y->name,
                        x->path);
    }
  arena_free(a);
  return ok;
}

const char *json_string(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "\"");
  char text[UTF8_SHOWN];
  while (*s)
    strbuf_add_n(&b, text, (size_t)nnrt_utf8_in_json(&s, text));
  strbuf_add(&b, "\"");
  return b.at;
}
