// Programs and archives that targets look for: see build.h.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"

bool is_program(const char *path) {
  return is_file(path) && access(path, X_OK) == 0;
}

const char *next_folder(Arena *a, const char **list) {
  *list += strspn(*list, ":");
  size_t n = strcspn(*list, ":");
  const char *folder = n ? str_copy_n(a, *list, n) : NULL;
  *list += n;
  return folder;
}

const char *program_on_path(Arena *a, const char *name) {
  const char *path = getenv("PATH"), *folder;
  while (path && (folder = next_folder(a, &path))) {
    const char *file = str_format(a, "%s/%s", folder, name);
    if (is_program(file)) return file;
  }
  return NULL;
}

const char *archive_headers(Arena *a, const char *path) {
  static const char text[] = "nnrt headers: ";
  enum { HASH = 64 };
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0 || st.st_size == 0) {
    if (fd >= 0) close(fd);
    return NULL;
  }
  size_t n = (size_t)st.st_size;
  const char *bytes = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0), *found = "";
  close(fd);
  if (bytes == MAP_FAILED) return "";
  // The hash follows the text.
  const char *at = memmem(bytes, n, text, strlen(text));
  if (at && (size_t)(bytes + n - at) >= strlen(text) + HASH)
    found = str_copy_n(a, at + strlen(text), HASH);
  munmap((void *)(uintptr_t)bytes, n);
  return found;
}
