// Files that are complete or absent: see whole_file.h.

#include "base/whole_file.h"

#include "rt/temporary_file.h"

bool whole_file_open(WholeFile *w, const char *path) {
  struct stat st;
  *w = (WholeFile){0};
  bool there = stat(path, &st) == 0;
  if (there && S_ISDIR(st.st_mode)) {
    errno = EISDIR;
    return false;
  }
  // A rename must not replace a device.
  if (there && !S_ISREG(st.st_mode)) return (w->f = fopen(path, "we")) != NULL;
  nnrt_temporary_clean(path);
  int fd = nnrt_temporary_open(path, 0666, &w->temporary);
  if (fd < 0) return false;
  w->f = fdopen(fd, "w");
  w->path = strdup(path);
  if (w->f && w->path) return true;
  if (!w->f) close(fd);
  whole_file_close(w, false);
  errno = ENOMEM;
  return false;
}

bool whole_file_close(WholeFile *w, bool ok) {
  int code = 0, lock = -1;
  if (w->f) {
    if ((fflush(w->f) || ferror(w->f)) && ok) code = errno;
    if (w->temporary) lock = nnrt_temporary_lock(fileno(w->f));
    if (fclose(w->f) && ok && !code) code = errno;
  }
  // Without an error the file is removed, too, if the caller does not want it.
  if (w->temporary && ok) code = nnrt_temporary_end(w->temporary, w->path, lock, code);
  if (w->temporary && !ok) nnrt_temporary_end(w->temporary, w->path, lock, ECANCELED);
  free(w->path);
  free(w->temporary);
  *w = (WholeFile){0};
  errno = code;
  return ok && !code;
}

bool whole_file_possible(const char *path) {
  struct stat st;
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
    return access(path, W_OK) == 0;
  WholeFile w;
  if (!whole_file_open(&w, path)) return false;
  whole_file_close(&w, false);
  return true;
}
