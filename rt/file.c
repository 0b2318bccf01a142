// Files that are complete or absent.
//
// Output goes to a temporary file in the same folder (temporary_file.h), is flushed to the disk,
// and then takes the name: a crash at any moment leaves the old file or the new one.  Input is
// mapped.

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"
#include "temporary_file.h"

const char *nnrt_base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool sync_folder_of(const char *path) {
  char *folder = nnrt_must_format("%s", path);
  char *slash = strrchr(folder, '/');
  if (slash) slash[slash == folder] = 0;
  int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(folder);
  // A folder that may be written but not read cannot be opened.
  if (fd < 0) return errno == EACCES;
  // Some file systems cannot sync a folder and say EINVAL; they order renames themselves.
  bool ok = fsync(fd) == 0 || errno == EINVAL;
  close(fd);
  return ok;
}

// Resolves links, even to files that do not exist; the caller frees the name.
static char *end_of_links(const char *path) {
  char *at = nnrt_must_format("%s", path), to[4096];
  // As many links as the kernel follows; a cycle fails when it is opened.
  for (int i = 0; i < 40; i++) {
    ssize_t n = readlink(at, to, sizeof to - 1);
    if (n < 0) break; // not a link
    to[n] = 0;
    // A relative target is relative to the folder of the link.
    const char *slash = strrchr(at, '/');
    int folder = to[0] == '/' || !slash ? 0 : (int)(slash + 1 - at);
    char *next = nnrt_must_format("%.*s%s", folder, at, to);
    free(at);
    at = next;
  }
  return at;
}

// Resolves the name of a file that may not exist yet: its folder's real name, and its own.
static char *real_name(const char *path) {
  char *at = end_of_links(path), *slash = strrchr(at, '/');
  char *folder = slash ? nnrt_must_format("%.*s", (int)(slash + 1 - at), at) : NULL;
  // The file itself need not exist, only its folder.
  char *real = realpath(folder ? folder : ".", NULL);
  if (!real && errno == ENOMEM) nnrt_must_alloc((size_t)-1); // reports the lack of memory
  char *name = nnrt_must_format("%s/%s", real ? real : "", slash ? slash + 1 : at);
  free(real);
  free(folder);
  free(at);
  return name;
}

bool nnrt_out_same(const char *a, const char *b) {
  char *x = real_name(a), *y = real_name(b);
  bool same = strcmp(x, y) == 0;
  free(x);
  free(y);
  return same;
}

static bool begin(OutFile *o, const char *path, char *target, Why *w) {
  struct stat st;
  *o = (OutFile){.path = target, .fd = -1};
  // The rename at the end would replace a device, too.
  if (stat(target, &st) == 0 && !S_ISREG(st.st_mode)) {
    nnrt_out_abandon(o);
    return why(w, "cannot write '%s': it is %s", path,
               S_ISDIR(st.st_mode) ? "a folder" : "not a file");
  }
  nnrt_temporary_clean(target);
  o->fd = nnrt_temporary_open(target, 0666, &o->temporary);
  if (o->fd >= 0) return true;
  // Abandoning the file may set errno again.
  int code = errno;
  nnrt_out_abandon(o);
  return why(w, "cannot write '%s': %s", path, strerror(code));
}

bool nnrt_out_begin(OutFile *o, const char *path, Why *w) {
  // A link is kept, and its target is written.
  return begin(o, path, end_of_links(path), w);
}

bool nnrt_out_begin_here(OutFile *o, const char *path, Why *w) {
  return begin(o, path, nnrt_must_format("%s", path), w);
}

// Whether an error is that of a full disk, and space was made on it.
static bool has_room_now(OutFile *o, int code) {
  return (code == ENOSPC || code == EDQUOT) && o->make_room && o->make_room(o->room_of);
}

bool nnrt_out_reserve(OutFile *o, int64_t bytes, Why *w) {
  while (fallocate(o->fd, 0, 0, bytes) != 0) {
    int code = errno;
    if (code == EINTR || has_room_now(o, code)) continue;
    // A file system that cannot reserve space tells of a full disk when it is written.
    if (code != ENOSPC && code != EDQUOT && code != EFBIG) return true;
    return why(w, "cannot write '%s': %s", o->path, strerror(code));
  }
  return true;
}

bool nnrt_out_write_at(OutFile *o, int64_t at, const void *data, int64_t n, Why *w) {
  const char *p = data;
  while (n > 0) {
    // Linux writes at most 2 GiB in a call.
    ssize_t done = pwrite(o->fd, p, n < 1 << 30 ? (size_t)n : 1 << 30, at);
    int code = done < 0 ? errno : 0;
    if (done < 0 && (code == EINTR || has_room_now(o, code))) continue;
    if (done <= 0)
      return why(w, "cannot write '%s': %s", o->path, done < 0 ? strerror(code) : "no progress");
    p += done;
    at += done;
    n -= done;
  }
  return true;
}

bool nnrt_out_write(OutFile *o, const void *data, int64_t n, Why *w) {
  if (!nnrt_out_write_at(o, o->at, data, n, w)) return false;
  o->at += n;
  return true;
}

bool nnrt_out_flush(OutFile *o, Why *w) {
  return fsync(o->fd) == 0 || why(w, "cannot write '%s': %s", o->path, strerror(errno));
}

static void out_free(OutFile *o) {
  free(o->path);
  free(o->temporary);
  *o = (OutFile){.fd = -1};
}

bool nnrt_out_commit(OutFile *o, Why *w) {
  int code = fsync(o->fd) == 0 ? 0 : errno, lock = nnrt_temporary_lock(o->fd);
  // Network file systems report a full disk when a descriptor is closed.
  if (close(o->fd) != 0 && !code) code = errno;
  code = nnrt_temporary_end(o->temporary, o->path, lock, code);
  bool ok = !code || why(w, "cannot write '%s': %s", o->path, strerror(code));
  if (ok && !sync_folder_of(o->path))
    ok = why(w, "'%s' is written, but its folder cannot be flushed to the disk: %s", o->path,
             strerror(errno));
  out_free(o);
  return ok;
}

void nnrt_out_abandon(OutFile *o) {
  if (o->fd >= 0) close(o->fd);
  if (o->temporary) unlink(o->temporary);
  out_free(o);
}

bool nnrt_out_possible(const char *path, Why *w) {
  OutFile o;
  if (!nnrt_out_begin(&o, path, w)) return false;
  nnrt_out_abandon(&o);
  return true;
}

int nnrt_lock(int fd) {
  enum { WAIT_MS = 3000, POLL_MS = 50 };
  for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += POLL_MS) {
    int code = errno;
    if (code != EWOULDBLOCK || waited >= WAIT_MS) return code;
    nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
  }
  return 0;
}

bool nnrt_make_folder(const char *path, Why *w) {
  struct stat st;
  if (mkdir(path, 0777) == 0) return true;
  if (errno != EEXIST) return why(w, "cannot make the folder '%s': %s", path, strerror(errno));
  // Several ranks may make the folder at once.
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return true;
  return why(w, "'%s' is not a folder", path);
}

bool nnrt_in_open(InFile *f, const char *path, Why *w) {
  *f = (InFile){0};
  // A FIFO is refused below, and not waited for.
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    f->code = errno;
    if (fd >= 0) close(fd);
    return why(w, "cannot read '%s': %s", path, strerror(f->code));
  }
  if (!S_ISREG(st.st_mode)) {
    close(fd);
    return why(w, "cannot read '%s': it is not a file", path);
  }
  f->bytes = st.st_size;
  // mmap refuses empty files.
  static const uint8_t nothing[1];
  f->at = nothing;
  if (f->bytes > 0) {
    void *at = mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) {
      int code = errno;
      why(w, "cannot map '%s', %lld bytes: %s", path, (long long)f->bytes, strerror(code));
      close(fd);
      *f = (InFile){.code = code};
      return false;
    }
    f->at = at;
  }
  // The mapping stays after its descriptor is closed.
  close(fd);
  return true;
}

void nnrt_in_close(InFile *f) {
  // munmap takes the address back as it was given.
  if (f->bytes > 0) munmap((void *)(uintptr_t)f->at, (size_t)f->bytes);
  *f = (InFile){0};
}
