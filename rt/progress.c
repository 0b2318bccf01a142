// Progress for people.  On a terminal one line that is rewritten:
//
//     step 120/1000  loss 2.3412  31.5 steps/s  1008 samples/s  28s left
//
// Otherwise plain lines with the same contents, about a hundred of them and at least one in ten
// seconds.
//
// The first step prepares kernels and takes longer than the others: speed and time left are those
// of the steps after it.

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

static bool line_open; // the terminal's cursor is at the end of a progress line

void nnrt_progress_end(void) {
  if (!line_open) return;
  line_open = false;
  fputc('\n', stdout);
  fflush(stdout);
}

// Reports once that lines are lost, unless standard output was closed on purpose.
static void say_lost(void) {
  static bool said;
  if (fflush(stdout) == 0 && !ferror(stdout)) return;
  int code = errno;
  clearerr(stdout);
  if (said || code == EBADF) return;
  said = true;
  nnrt_say_warning("cannot write progress to standard output: %s; training goes on",
                   strerror(code));
}

void nnrt_progress_step(const StepReport *s) {
  static double started, first_ended, shown, smooth_ms;
  static int64_t period;
  double now = nnrt_now_us() / 1e6;
  bool terminal = isatty(STDOUT_FILENO);
  bool first = period == 0, last = s->step + 1 == s->steps;
  if (first) {
    started = now - s->step_ms / 1e3;
    period = (s->steps - s->first) / 100 > 1 ? (s->steps - s->first) / 100 : 1;
    first_ended = now;
  }
  // The speed is an average over about ten steps.
  int64_t n = s->step - s->first; // steps after the first
  smooth_ms = n > 1 ? smooth_ms + (s->step_ms - smooth_ms) * 0.1 : s->step_ms;
  bool due = terminal ? now - shown >= 0.1 : (s->step + 1) % period == 0 || now - shown >= 10;
  if (!due && !first && !last && !s->has_eval) return;
  shown = now;

  // The time left is computed from all steps so far: it includes evaluation and checkpoints.
  char left[32], skipped[64] = "", speed[128] = "";
  double per_step = n > 0 ? (now - first_ended) / (double)n : 0;
  double rest = last ? now - started : per_step * (double)(s->steps - s->step - 1);
  long long seconds = rest < 1e15 ? (long long)(rest + 0.5) : 0;
  if (seconds < 60)
    snprintf(left, sizeof left, "%llds", seconds);
  else if (seconds < 3600)
    snprintf(left, sizeof left, "%lldm %02llds", seconds / 60, seconds % 60);
  else
    snprintf(left, sizeof left, "%lldh %02lldm", seconds / 3600, seconds / 60 % 60);
  char *eval = s->has_eval ? nnrt_eval_text(&s->eval) : NULL;
  if (s->skipped)
    snprintf(skipped, sizeof skipped, "  skipped, loss scale now %g", (double)s->loss_scale);
  if (!first || last)
    snprintf(speed, sizeof speed, "  %.4g steps/s  %.4g samples/s  %s%s%s", 1e3 / smooth_ms,
             s->samples_per_s * s->step_ms / smooth_ms, last ? "in " : "", left,
             last ? "" : " left");
  printf("%sstep %lld/%lld  loss %.6g%s", terminal ? "\r" : "", (long long)s->step + 1,
         (long long)s->steps, s->loss, eval ? "  " : "");
  if (eval) nnrt_put_shown(stdout, eval);
  printf("%s%s", skipped, speed);
  free(eval);
  if (terminal) {
    fputs("\033[K", stdout); // the rest of a longer line
    line_open = true;
    if (last) nnrt_progress_end();
  } else {
    fputc('\n', stdout);
  }
  say_lost();
}
