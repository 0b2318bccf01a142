// The log: one JSON object per step, written at once, so that a run that is killed leaves whole
// lines. A resumed run first takes back the lines of steps it will do again.

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

// How much of the log is whole lines of steps before `first_step`.
static int64_t good_length(const InFile *f, int64_t first_step) {
  int64_t good = 0;
  while (good < f->bytes) {
    const char *line = (const char *)f->at + good,
               *end = memchr(line, '\n', (size_t)(f->bytes - good));
    char start[48];
    long long step;
    if (!end) break;
    snprintf(start, sizeof start, "%.*s", (int)(end - line < 47 ? end - line : 47), line);
    if (sscanf(start, "{\"step\":%lld,", &step) != 1 || step < 0 || step >= first_step) break;
    good += end + 1 - line;
  }
  return good;
}

bool nnrt_log_open(Log *l, const char *path, int64_t first_step, Why *w) {
  int64_t keep = 0;
  InFile old;
  Why ignored;
  if (first_step > 0 && nnrt_in_open(&old, path, &ignored)) {
    keep = good_length(&old, first_step);
    nnrt_in_close(&old);
  }
  l->path = path;
  // Whoever moves or empties the file meanwhile, lines go to its end.
  l->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (l->fd < 0) return why(w, "cannot write '%s': %s", path, strerror(errno));
  // A pipe or a terminal cannot be cut, and has nothing to be cut.
  if (ftruncate(l->fd, keep) != 0 && errno != EINVAL)
    return why(w, "cannot write '%s': %s", path, strerror(errno));
  return true;
}

// JSON has no NaN and no infinity.
static int put_number(char *to, size_t n, const char *name, double x) {
  if (!isfinite(x)) return snprintf(to, n, ",\"%s\":null", name);
  return snprintf(to, n, ",\"%s\":%.9g", name, x);
}

// Names of metrics are short: main.c sees to that.
static int put_eval(char *to, size_t n, const Evaluation *e) {
  int at = put_number(to, n, "eval_loss", e->loss);
  for (int i = 0; i < e->n_metrics; i++) {
    char name[6 * MAX_METRIC_NAME + 1], *end = name;
    for (const char *c = e->metric[i]; *c; c++)
      end += sprintf(end,
                     *c == '"' || *c == '\\'   ? "\\%c"
                     : (unsigned char)*c < ' ' ? "\\u%04x"
                                               : "%c",
                     *c);
    at += put_number(to + at, n - (size_t)at, name, e->value[i]);
  }
  return at;
}

static bool write_line(const Log *l, const char *line, int n, Why *w) {
  for (int at = 0; at < n;) {
    ssize_t done = write(l->fd, line + at, (size_t)(n - at));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return why(w, "cannot write '%s': %s", l->path, strerror(errno));
    at += (int)done;
  }
  return true;
}

bool nnrt_log_step(Log *l, const StepReport *s, Why *w) {
  char line[2048];
  size_t room = sizeof line;
  int n = snprintf(line, room, "{\"step\":%lld", (long long)s->step);
  n += put_number(line + n, room - (size_t)n, "loss", s->loss);
  n += put_number(line + n, room - (size_t)n, "grad_norm", s->has_grad_norm ? s->grad_norm : NAN);
  if (s->has_loss_scale) {
    n += put_number(line + n, room - (size_t)n, "loss_scale", s->loss_scale);
    n += snprintf(line + n, room - (size_t)n, ",\"skipped\":%s", s->skipped ? "true" : "false");
  }
  n += put_number(line + n, room - (size_t)n, "lr", s->lr);
  n += put_number(line + n, room - (size_t)n, "step_ms", s->step_ms);
  n += put_number(line + n, room - (size_t)n, "samples_per_s", s->samples_per_s);
  if (s->has_eval) n += put_eval(line + n, room - (size_t)n, &s->eval);
  n += snprintf(line + n, room - (size_t)n, "}\n");
  return write_line(l, line, n, w);
}

bool nnrt_log_eval(Log *l, int64_t steps, const Evaluation *e, Why *w) {
  char line[2048];
  int n = snprintf(line, sizeof line, "{\"steps\":%lld", (long long)steps);
  n += put_eval(line + n, sizeof line - (size_t)n, e);
  n += snprintf(line + n, sizeof line - (size_t)n, "}\n");
  return write_line(l, line, n, w);
}

void nnrt_eval_text(const Evaluation *e, char *to, size_t n) {
  size_t at = (size_t)snprintf(to, n, "  eval_loss %.6g", e->loss);
  for (int i = 0; i < e->n_metrics && at < n; i++)
    at += (size_t)snprintf(to + at, n - at, "  %.80s %.6g", e->metric[i], e->value[i]);
}
