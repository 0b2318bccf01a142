// Files that grow by records, as the log by lines: a record is in the file as a whole or not at
// all.
//
// A full disk takes the first part of a record.  That part is removed, and the record waits: it is
// written before the next one, or at the end.  A pipe keeps the part, and gets the rest later.  The
// first failure of a row is a warning.  Records beyond WAITING_BYTES are lost, which is an error at
// the end.

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

enum { WAITING_BYTES = 1 << 20 };

void nnrt_records_begin(Records *r, int fd, const char *path) {
  struct stat st;
  *r = (Records){.fd = fd, .path = nnrt_must_format("%s", path)};
  r->is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

// Removes the part of a record that was written last, if it still ends the file.
static bool remove_part(const Records *r, int64_t part) {
  struct stat st;
  // A write that appends leaves the position after it.
  int64_t end = lseek(r->fd, 0, SEEK_CUR);
  if (!r->is_file || end < part || fstat(r->fd, &st) != 0) return false;
  // A file that somebody has emptied meanwhile has no part of it.
  return st.st_size < end || (st.st_size == end && ftruncate(r->fd, end - part) == 0);
}

// Writes one record, of which r->done bytes are written; false with errno.
static bool write_record(Records *r, const char *record, int64_t n) {
  while (r->done < n) {
    ssize_t done = write(r->fd, record + r->done, (size_t)(n - r->done));
    if (done > 0) {
      r->done += done;
      continue;
    }
    if (done < 0 && errno == EINTR) continue;
    // A pipe that does not block is full: its reader is slow.
    if (done < 0 && errno == EAGAIN &&
        poll(&(struct pollfd){.fd = r->fd, .events = POLLOUT}, 1, -1) >= 0)
      continue;
    int code = done < 0 ? errno : ENOSPC;
    if (r->done > 0 && remove_part(r, r->done)) r->done = 0;
    errno = code;
    return false;
  }
  r->done = 0;
  return true;
}

// Writes the waiting records; false with errno.
static bool write_waiting(Records *r) {
  int64_t at = 0, length;
  int code = 0;
  while (!code && at < r->n_waiting) {
    memcpy(&length, r->waiting + at, sizeof length);
    if (!write_record(r, r->waiting + at + sizeof length, length))
      code = errno;
    else
      at += (int64_t)sizeof length + length;
  }
  // Those that are left move to the front.
  r->n_waiting -= at;
  if (at) memmove(r->waiting, r->waiting + at, (size_t)r->n_waiting);
  errno = code;
  return code == 0;
}

static void keep_waiting(Records *r, const void *record, int64_t n) {
  int64_t bytes = (int64_t)sizeof n + n;
  if (r->n_waiting + bytes > WAITING_BYTES) {
    r->lost++;
    return;
  }
  if (!r->waiting) r->waiting = nnrt_must_alloc(WAITING_BYTES);
  memcpy(r->waiting + r->n_waiting, &n, sizeof n);
  memcpy(r->waiting + r->n_waiting + sizeof n, record, (size_t)n);
  r->n_waiting += bytes;
}

void nnrt_records_add(Records *r, const void *record, int64_t n) {
  bool ok = write_waiting(r) && write_record(r, record, n);
  if (!ok) {
    r->code = errno;
    keep_waiting(r, record, n);
  }
  if (!ok && !r->failing)
    nnrt_say_warning("cannot write '%s': %s; training goes on", r->path, strerror(r->code));
  if (ok && r->failing && !r->lost)
    nnrt_say_note("'%s' is written again, and has what was missing", r->path);
  r->failing = !ok;
}

bool nnrt_records_end(Records *r) {
  if (r->fd < 0) return true;
  bool ok = r->n_waiting == 0 || write_waiting(r);
  if (!ok) r->code = errno;
  // Count the records that remain.
  int64_t lost = r->lost, length;
  for (int64_t at = 0; at < r->n_waiting; at += (int64_t)sizeof length + length, lost++)
    memcpy(&length, r->waiting + at, sizeof length);
  if (lost)
    nnrt_say_error("cannot write '%s': %s; %lld record%s missing in it", r->path, strerror(r->code),
                   (long long)lost, lost == 1 ? " is" : "s are");
  free(r->waiting);
  int closed = close(r->fd);
  // Network file systems report a full disk when a file is closed.
  if (closed != 0 && !lost) {
    nnrt_say_error("cannot write '%s': %s", r->path, strerror(errno));
    lost = 1;
  }
  free(r->path);
  *r = (Records){.fd = -1};
  return lost == 0;
}
