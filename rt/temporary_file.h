// Temporary files, each beside its target: it takes the target's name once it is complete.
//
//     a/b.c  ->  a/.b.c.tmp-5d0c3f81a27be946
//
// The name is random, and the file is made under it or not at all: a link or a file that somebody
// has put there is neither followed nor written.  The writer holds the kernel's lock of the file
// (flock) until it closes it.  So a temporary file without a lock is that of a writer that was
// killed, and the next writer of the target removes it.  On a file system without locks it stays.
//
// nnrt_temporary_open returns -1 with errno.

#ifndef NNRT_TEMPORARY_FILE_H
#define NNRT_TEMPORARY_FILE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  NNRT_TEMPORARY_DIGITS = 16,
  NNRT_TEMPORARY_BASE = 200 // bytes of the target's name: a file's name has at most 255
};

// Returns the length of the folder's part of a path, its '/' included.
static inline int nnrt_folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (int)(slash + 1 - path) : 0;
}

static inline uint64_t nnrt_temporary_number(void) {
  uint64_t number;
  struct timespec now;
  if (getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number) return number;
  // Without the kernel's random numbers a name can be guessed, and still is not followed.
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 30 ^ (uint64_t)getpid();
}

// Makes a temporary file for the target `path` and opens it to read and write; *out_name is freed
// by the caller.
static inline int nnrt_temporary_open(const char *path, mode_t mode, char **out_name) {
  enum { TRIES = 100 };
  int folder = nnrt_folder_length(path);
  for (int i = 0; i < TRIES; i++) {
    struct stat st;
    char *name;
    if (asprintf(&name, "%.*s.%.*s.tmp-%0*llx", folder, path, NNRT_TEMPORARY_BASE, path + folder,
                 NNRT_TEMPORARY_DIGITS, (unsigned long long)nnrt_temporary_number()) < 0) {
      errno = ENOMEM;
      return -1;
    }
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno != EEXIST) {
      int code = errno;
      free(name);
      errno = code;
      return -1;
    }
    // Before it was locked, another process may have removed it.  A file system without locks says
    // so by another error.
    bool taken = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0 && !taken && fstat(fd, &st) == 0 && st.st_nlink > 0) {
      *out_name = name;
      return fd;
    }
    if (fd >= 0) close(fd);
    free(name);
  }
  errno = EEXIST;
  return -1;
}

// Returns another descriptor of a temporary file, which keeps its lock while the file is closed, so
// that errors of closing it are known before it has its name; -1 if there is none.
static inline int nnrt_temporary_lock(int fd) {
  return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

// Renames a temporary file to its target if `code` is 0, and removes it after an error; then ends
// the lock, unless it is -1.  Returns the error, of before or of the rename, 0 for none.
static inline int nnrt_temporary_end(const char *name, const char *path, int lock, int code) {
  if (!code && rename(name, path) != 0) code = errno;
  if (code) unlink(name);
  if (lock >= 0) close(lock);
  return code;
}

// Whether `name` is that of a temporary file for a target with this last part of its name.
static inline bool nnrt_temporary_is(const char *name, const char *base) {
  size_t n = strnlen(base, NNRT_TEMPORARY_BASE);
  if (name[0] != '.' || strncmp(name + 1, base, n) != 0 || strncmp(name + 1 + n, ".tmp-", 5) != 0)
    return false;
  const char *digits = name + 1 + n + 5;
  return strlen(digits) == NNRT_TEMPORARY_DIGITS &&
         strspn(digits, "0123456789abcdef") == NNRT_TEMPORARY_DIGITS;
}

// Removes the file `name` of a folder, if it is one and nobody has a lock on it.
static inline void nnrt_temporary_remove(int folder, const char *name) {
  struct stat st;
  int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
    unlinkat(folder, name, 0);
  close(fd);
}

// Removes the temporary files for the target `path` whose writers have ended.
static inline void nnrt_temporary_clean(const char *path) {
  int length = nnrt_folder_length(path);
  char *folder = strndup(path, (size_t)length);
  DIR *dir = folder ? opendir(length ? folder : ".") : NULL;
  for (struct dirent *e; dir && (e = readdir(dir));)
    if (nnrt_temporary_is(e->d_name, path + length)) nnrt_temporary_remove(dirfd(dir), e->d_name);
  if (dir) closedir(dir);
  free(folder);
}

#endif
