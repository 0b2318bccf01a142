// See output.h.

#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// /dev/null, a pipe: nothing may take its place.
static bool is_special(const char *path) {
  struct stat s;
  return !stat(path, &s) && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

bool output_flush(Diag *d) {
  return (!fflush(stdout) && !ferror(stdout)) ||
         diag_error(d, NULL, "cannot write to standard output: %s", strerror(errno));
}

bool output_write(const char *path, const char *text, Diag *d) {
  if (!strcmp(path, "-")) {
    fputs(text, stdout);
    return output_flush(d);
  }
  Arena *a = arena_new();
  bool special = is_special(path);
  const char *temporary = special ? path : str_format(a, "%s.%ld.tmp", path, (long)getpid());
  FILE *f = fopen(temporary, "w");
  bool ok = f != NULL;
  if (f) {
    fputs(text, f);
    ok = !ferror(f);
    ok &= !fclose(f);
    ok = ok && (special || !rename(temporary, path));
  }
  if (!ok) {
    diag_error(d, NULL, "cannot write '%s': %s", path, strerror(errno));
    if (!special) unlink(temporary);
  }
  arena_free(a);
  return ok;
}

bool output_writable(const char *path, Diag *d) {
  if (!strcmp(path, "-")) return true;
  Arena *a = arena_new();
  const char *temporary = str_format(a, "%s.%ld.tmp", path, (long)getpid());
  struct stat s;
  bool ok = false;
  if (!stat(path, &s) && S_ISDIR(s.st_mode)) {
    errno = EISDIR;
  } else if (is_special(path)) {
    ok = !access(path, W_OK);
  } else {
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    ok = fd >= 0;
    if (ok) {
      close(fd);
      unlink(temporary);
    }
  }
  if (!ok) diag_error(d, NULL, "cannot write '%s': %s", path, strerror(errno));
  arena_free(a);
  return ok;
}

const char *json_string(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "\"");
  for (; *s; s++) {
    if (*s == '"' || *s == '\\')
      strbuf_addf(&b, "\\%c", *s);
    else if ((unsigned char)*s < 32)
      strbuf_addf(&b, "\\u%04x", (unsigned char)*s);
    else
      strbuf_addf(&b, "%c", *s);
  }
  strbuf_add(&b, "\"");
  return b.at;
}
