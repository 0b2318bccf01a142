// The learning rate of a step.
//
//     constant | linear | cosine   [":" option {"," option}]   option = warmup=STEPS | min=RATE
//
// Over the first `warmup` steps it grows from lr/warmup to lr.  After that, constant stays at lr,
// and linear and cosine fall to `min` at the horizon, the number of steps of the whole training.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

bool nnrt_lr_schedule_parse(LrSchedule *s, const char *spec, double lr, Why *w) {
  static const char *const kinds[] = {"constant", "linear", "cosine"};
  *s = (LrSchedule){.lr = lr, .horizon = -1};
  size_t n = strcspn(spec, ":");
  int kind = 0;
  while (kind < 3 && (strlen(kinds[kind]) != n || strncmp(spec, kinds[kind], n) != 0))
    kind++;
  if (kind == 3) return why(w, "no such schedule of the learning rate: '%s'", spec);
  s->kind = kind;
  // Options, each a nonnegative number.
  for (const char *p = spec + n; *p;) {
    p++; // ':' or ','
    char *end;
    bool warmup = strncmp(p, "warmup=", 7) == 0, min = strncmp(p, "min=", 4) == 0;
    double x = warmup ? strtod(p + 7, &end) : min ? strtod(p + 4, &end) : (end = NULL, 0);
    if (!end || end == p + (warmup ? 7 : 4) || (*end && *end != ',') || !(x >= 0 && x < 1e18))
      return why(w, "the schedule '%s' is not understood from '%s' on", spec, p);
    if (warmup)
      s->warmup = (int64_t)x;
    else
      s->min = x;
    p = end;
  }
  return true;
}

double nnrt_lr_schedule_at(const LrSchedule *s, int64_t step) {
  if (step < s->warmup) return s->lr * (double)(step + 1) / (double)s->warmup;
  if (s->kind == LR_constant) return s->lr;
  if (step >= s->horizon) return s->min;
  double done = (double)(step - s->warmup) / (double)(s->horizon - s->warmup);
  double left = s->kind == LR_linear ? 1 - done : (1 + cos(acos(-1) * done)) / 2;
  return s->min + (s->lr - s->min) * left;
}
