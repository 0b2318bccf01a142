// The log of a resumed run: the lines of steps that are done again are removed.
//
//     resumed after step 2, which is line `step` 1; one line was cut by a full disk
//
//     {"step":0,"loss":2.5}               {"step":0,"loss":2.5}
//     {"step":0,"lo{"step":1,"loss":2.3}  {"step":1,"loss":2.3}
//     {"steps":2,"eval_loss":2.4}         {"steps":2,"eval_loss":2.4}
//     restarted on node 7                 restarted on node 7
//     {"step":2,"loss":2.2}
//     {"step":3,"lo
//
// The file is read as pieces, which end at a newline or a zero byte; a disk that lost power leaves
// zeros.  A whole object with a `step` is a line of that step.  A piece that begins as one of our
// lines and is no object was cut: it is removed, up to the next line of ours in it.  All else
// stays: evaluations, and lines of others.
//
// If only the end of the file is removed, it is truncated.  Otherwise the new contents are written
// to a temporary file, which takes the name: a run that is killed leaves the old log or the new
// one.

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

// The parts of the old log that stay, in order.
typedef struct Kept {
  int64_t from, to;
  bool ends; // with a newline of its own
} Kept;

typedef struct Reading {
  const char *text;
  int64_t first_step;
  Kept *kept;
  int64_t n, room;
  int64_t cut; // number of lines that were cut
} Reading;

static void keep(Reading *r, int64_t from, int64_t to, bool ends) {
  if (from == to && !ends) return;
  Kept *last = r->n ? &r->kept[r->n - 1] : NULL;
  if (last && last->ends && last->to == from) {
    *last = (Kept){last->from, to, ends};
    return;
  }
  if (r->n == r->room) {
    r->room = r->room ? 2 * r->room : 16;
    r->kept = realloc(r->kept, (size_t)r->room * sizeof *r->kept);
    if (!r->kept) nnrt_must_alloc((size_t)-1); // reports the lack of memory
  }
  r->kept[r->n++] = (Kept){from, to, ends};
}

// Whether the text is one JSON object; *out_step is its `step`, -1 if it has none.
static bool is_object(const char *text, int64_t n, int64_t *out_step) {
  Json j = {.at = text, .end = text + n};
  *out_step = -1;
  if (!nnrt_json_want(&j, '{')) return false;
  bool more = !nnrt_json_take(&j, '}');
  while (more && !j.error) {
    char *key = nnrt_json_string(&j);
    bool is_step = key && strcmp(key, "step") == 0;
    free(key);
    nnrt_json_want(&j, ':');
    Json value = j;
    nnrt_json_skip(&j);
    // The step of another program's line may be no number.
    if (is_step && !nnrt_json_int(&value, out_step)) *out_step = -1;
    more = nnrt_json_take(&j, ',');
    if (!more) nnrt_json_want(&j, '}');
  }
  nnrt_json_take(&j, ' '); // white space
  if (!j.error && j.at == j.end) return true;
  *out_step = -1;
  return false;
}

static const char start[] = "{\"step"; // of a line of ours

enum { START_BYTES = sizeof start - 1 };

// Returns the next position from `at` on where a line of ours may begin; `to` if none does.
static int64_t next_start(const char *text, int64_t at, int64_t to) {
  const char *found = at < to ? memmem(text + at, (size_t)(to - at), start, START_BYTES) : NULL;
  return found ? found - text : to;
}

// Whether a text that is no object is a part of a line of ours; `ends`: a newline follows.
static bool was_cut(const char *text, int64_t n, bool ends) {
  // A few bytes are such a part only if nothing ends their line.
  if (n < START_BYTES && ends) return false;
  return memcmp(text, start, (size_t)(n < START_BYTES ? n : START_BYTES)) == 0;
}

// Reads the piece of the file from `from` to `to`; `ends`: a newline follows.
static void read_piece(Reading *r, int64_t from, int64_t to, bool ends) {
  int64_t step;
  if (is_object(r->text + from, to - from, &step)) {
    if (step < r->first_step) keep(r, from, to + ends, ends);
    return;
  }
  // Whole lines may follow the part of one that was cut.
  for (int64_t at = from, next; at < to; at = next) {
    next = next_start(r->text, at + 1, to);
    bool last = next == to && ends;
    bool whole = is_object(r->text + at, next - at, &step);
    bool cut = !whole && was_cut(r->text + at, next - at, last);
    r->cut += cut;
    if (!cut && step < r->first_step) keep(r, at, next + last, last);
  }
}

static void read_log(Reading *r, int64_t bytes) {
  for (int64_t at = 0; at < bytes;) {
    int64_t end = at;
    while (end < bytes && r->text[end] != '\n' && r->text[end] != 0)
      end++;
    bool newline = end < bytes && r->text[end] == '\n';
    // An empty line of the file stays, an empty piece between zeros does not.
    if (end > at)
      read_piece(r, at, end, newline);
    else if (newline)
      keep(r, at, end + 1, true);
    at = end < bytes ? end + 1 : end;
  }
}

// Replaces the log by its kept parts, and opens it again.
static bool rewrite(Records *log, const Reading *r, Why *w) {
  struct stat st;
  OutFile o;
  if (!nnrt_out_begin(&o, log->path, w)) return false;
  bool ok = (fstat(log->fd, &st) == 0 && fchmod(o.fd, st.st_mode & 07777) == 0) ||
            why(w, "cannot write '%s': %s", log->path, strerror(errno));
  for (int64_t i = 0; ok && i < r->n; i++) {
    const Kept *k = &r->kept[i];
    ok = nnrt_out_write(&o, r->text + k->from, k->to - k->from, w) &&
         (k->ends || nnrt_out_write(&o, "\n", 1, w));
  }
  if (!ok) {
    nnrt_out_abandon(&o);
    return false;
  }
  if (!nnrt_out_commit(&o, w)) return false;
  // The old file has no name any more.
  char *path = log->path;
  close(log->fd);
  *log = (Records){.fd = -1};
  ok = nnrt_log_open(log, path, w);
  free(path);
  return ok;
}

bool nnrt_log_empty(Records *log, Why *w) {
  return !log->is_file || ftruncate(log->fd, 0) == 0 ||
         why(w, "cannot write '%s': %s", log->path, strerror(errno));
}

bool nnrt_log_resume(Records *log, int64_t first_step, Why *w) {
  InFile old;
  if (!log->is_file) return true;
  if (!nnrt_in_open(&old, log->path, w)) return false;
  Reading r = {.text = (const char *)old.at, .first_step = first_step};
  read_log(&r, old.bytes);
  bool first_only = r.n == 0 || (r.n == 1 && r.kept[0].from == 0 && r.kept[0].ends);
  int64_t bytes = r.n ? r.kept[0].to : 0;
  bool ok = true;
  if (!first_only)
    ok = rewrite(log, &r, w);
  else if (bytes < old.bytes && ftruncate(log->fd, bytes) != 0)
    ok = why(w, "cannot write '%s': %s", log->path, strerror(errno));
  if (ok && r.cut)
    nnrt_say_note("%lld line%s of '%s' that %s cut %s removed", (long long)r.cut,
                  r.cut == 1 ? "" : "s", log->path, r.cut == 1 ? "was" : "were",
                  r.cut == 1 ? "is" : "are");
  free(r.kept);
  nnrt_in_close(&old);
  return ok;
}
