// The log: one JSON object per step, written at once, so a killed run leaves whole lines.  A
// resumed run first removes the lines of steps that it will repeat.

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

bool nnrt_log_open(Log *l, const char *path, int64_t first_step, Why *w) {
  int64_t keep = 0;
  InFile old;
  Why ignored;
  if (first_step > 0 && nnrt_in_open(&old, path, &ignored)) {
    // The whole lines of steps before `first_step` are kept.
    while (keep < old.bytes) {
      const char *line = (const char *)old.at + keep;
      const char *end = memchr(line, '\n', (size_t)(old.bytes - keep));
      char start[48];
      long long step;
      if (!end) break;
      // The line is not terminated in the mapped file: copy its start.
      snprintf(start, sizeof start, "%.*s", (int)(end - line < 47 ? end - line : 47), line);
      if (sscanf(start, "{\"step\":%lld,", &step) != 1 || step < 0 || step >= first_step) break;
      keep += end + 1 - line;
    }
    nnrt_in_close(&old);
  }
  l->path = path;
  // Appends: another process may move or empty the file meanwhile.
  l->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (l->fd < 0) return why(w, "cannot write '%s': %s", path, strerror(errno));
  // A pipe or a terminal cannot be truncated, and needs no truncation.
  if (ftruncate(l->fd, keep) != 0 && errno != EINVAL)
    return why(w, "cannot write '%s': %s", path, strerror(errno));
  return true;
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
  if (!l->out) abort(); // out of memory
  fprintf(l->out, "{\"%s\":%lld", name, (long long)steps);
}

// Writes the line in one call, so it is complete or absent.
static bool line_end(Line *l, const Log *log, Why *w) {
  fputs("}\n", l->out);
  bool ok = fclose(l->out) == 0;
  for (size_t at = 0; ok && at < l->n;) {
    ssize_t done = write(log->fd, l->text + at, l->n - at);
    // A signal may interrupt the call; progress is kept.
    if (done < 0 && errno == EINTR) continue;
    ok = done > 0;
    if (ok) at += (size_t)done;
  }
  if (!ok) why(w, "cannot write '%s': %s", log->path, strerror(errno));
  free(l->text);
  return ok;
}

bool nnrt_log_step(const Log *log, const StepReport *s, Why *w) {
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
  return line_end(&l, log, w);
}

bool nnrt_log_eval(const Log *log, int64_t steps, const Evaluation *e, Why *w) {
  Line l;
  line_begin(&l, "steps", steps);
  put_eval(l.out, e);
  return line_end(&l, log, w);
}

char *nnrt_eval_text(const Evaluation *e) {
  char *text = nnrt_must_format("eval_loss %.6g", e->loss);
  for (int i = 0; i < e->n_metrics; i++)
    text = nnrt_must_append(text, "  %s %.6g", e->metric[i], e->value[i]);
  return text;
}
