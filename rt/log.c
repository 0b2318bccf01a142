// The log: one JSON object per step, and one per evaluation of --eval-only.  A line is written as a
// whole (records.c); a resumed run first removes those of the steps that it repeats (log_resume.c).
//
// A log is a file, which is locked, so that two runs do not write one; or a pipe, a terminal, or
// the file of standard output or error, which are written as they are.

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

// Opens the file to append.  A FIFO waits for its reader.
static int open_to_append(const char *path) {
  int how = O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC;
  int fd = open(path, how | O_NONBLOCK, 0666);
  if (fd < 0 && errno == ENXIO) {
    nnrt_say_note("waiting for a reader of '%s'", path);
    fd = open(path, how, 0666);
  }
  if (fd >= 0) fcntl(fd, F_SETFL, O_APPEND); // writes block
  return fd;
}

// Returns standard output or error if it is the same file; -1: neither is.
static int same_as_standard(int fd) {
  struct stat a, b;
  for (int i = STDOUT_FILENO; i <= STDERR_FILENO; i++)
    if (fstat(fd, &a) == 0 && S_ISREG(a.st_mode) && fstat(i, &b) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino)
      return i;
  return -1;
}

bool nnrt_log_open(Records *log, const char *path, Why *w) {
  int fd = open_to_append(path);
  if (fd < 0) return why(w, "cannot write '%s': %s", path, strerror(errno));
  // Two positions in one file would overwrite each other.
  int standard = same_as_standard(fd);
  if (standard >= 0) {
    close(fd);
    fd = fcntl(standard, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (fd < 0) return why(w, "cannot write '%s': %s", path, strerror(errno));
  }
  nnrt_records_begin(log, fd, path);
  log->is_file &= standard < 0;
  // A file system without locks has another error.
  if (!log->is_file || nnrt_lock(fd) != EWOULDBLOCK) return true;
  close(fd);
  free(log->path);
  *log = (Records){.fd = -1};
  return why(w, "another run writes '%s'\nhint: another --log", path);
}

// JSON has no NaN and no infinity.
static void put_number(FILE *line, const char *name, double x) {
  fputs(",", line);
  nnrt_json_write_string(line, name);
  if (isfinite(x))
    fprintf(line, ":%.9g", x);
  else
    fputs(":null", line);
}

static void put_eval(FILE *line, const Evaluation *e) {
  put_number(line, "eval_loss", e->loss);
  for (int i = 0; i < e->n_metrics; i++)
    put_number(line, e->metric[i], e->value[i]);
}

typedef struct Line {
  FILE *out;
  char *text;
  size_t n;
} Line;

// Begins a line; the stream writes into *l until line_end.
static void line_begin(Line *l, const char *name, int64_t steps) {
  l->out = open_memstream(&l->text, &l->n);
  if (!l->out) nnrt_must_alloc((size_t)-1); // reports the lack of memory
  fprintf(l->out, "{\"%s\":%lld", name, (long long)steps);
}

static void line_end(Line *l, Records *log) {
  fputs("}\n", l->out);
  nnrt_must_close(l->out, &l->text);
  nnrt_records_add(log, l->text, (int64_t)l->n);
  free(l->text);
}

void nnrt_log_step(Records *log, const StepReport *s) {
  Line l;
  line_begin(&l, "step", s->step);
  put_number(l.out, "loss", s->loss);
  put_number(l.out, "grad_norm", s->has_grad_norm ? s->grad_norm : NAN);
  if (s->has_loss_scale) {
    put_number(l.out, "loss_scale", s->loss_scale);
    fprintf(l.out, ",\"skipped\":%s", s->skipped ? "true" : "false");
  }
  put_number(l.out, "lr", s->lr);
  put_number(l.out, "step_ms", s->step_ms);
  put_number(l.out, "samples_per_s", s->samples_per_s);
  if (s->has_eval) put_eval(l.out, &s->eval);
  line_end(&l, log);
}

void nnrt_log_eval(Records *log, int64_t steps, const Evaluation *e) {
  Line l;
  line_begin(&l, "steps", steps);
  put_eval(l.out, e);
  line_end(&l, log);
}

char *nnrt_eval_text(const Evaluation *e) {
  char *text = nnrt_must_format("eval_loss %.6g", e->loss);
  for (int i = 0; i < e->n_metrics; i++)
    text = nnrt_must_append(text, "  %s %.6g", e->metric[i], e->value[i]);
  return text;
}
