// A timeline in letters, a line for each device.
//
//     0  F0F1F2F3......B0----F4B1----…      F1: forward of micro-batch 1; dots: idle
//     1  ..F0F1F2......B0----…              a block is as long as its time, filled up with -
//
// A timeline longer than a line continues in further panels.  A device's second, fourth … stage is
// in small letters.  Of several forwards, the first is F, the second G, and so on.  If
// micro-batches are cut into pieces, the numbers are those of pieces.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "draw_schedule.h"
#include "schedule/kinds.h"

enum { COLUMNS = 180, MOST_PANELS = 12, MANY_DEVICES = 64, TICK = 20 };

typedef struct Drawing {
  const SchedulePlan *p;
  const Timeline *t;
  double scale; // columns per unit of time
  int columns;  // of all panels
  int margin;   // width of the device names
} Drawing;

// The letter of a block: its kind, and whether its stage is an even one of its device.
static int letter_of(const SchedulePlan *p, int block) {
  const Work *w = p->blocks->work[block];
  if (w->kind == WORK_E) return 'E';
  int letter = w->kind == WORK_F ? 'F' + w->pass - 1 : work_kind_name[w->kind][0];
  // Letters are small for the second, fourth, … stage that the device runs for this micro-batch. In
  // a bidirectional schedule, micro-batches of the other direction have the first, third, …
  // instead.

  const Shape *s = &p->shape;
  const int *device = s->device + (size_t)p->blocks->micro_batch[block] * (size_t)s->n_stages;
  int before = 0;
  for (int i = 0; i < w->stage; i++)
    before += device[i] == device[w->stage];
  bool first_way = device[0] == s->device[0];
  bool is_small = before % 2 == (first_way ? 1 : 0);
  return is_small ? letter - 'A' + 'a' : letter;
}

void draw_timeline(const SchedulePlan *p, const Timeline *t) {
  Drawing g = {.p = p, .t = t};
  Arena *a = arena_new();
  int n = p->shape.n_devices;
  g.margin = snprintf(NULL, 0, "%d", n - 1) + 2;
  // The shortest block fits its label, unless that takes too many panels.
  double shortest = t->makespan;
  for (int k = 0; k < p->blocks->n; k++) {
    double time = p->blocks->work[k]->time;
    if (time > 0) shortest = fmin(shortest, time);
  }
  int panels = p->shape.n_devices > MANY_DEVICES ? 1 : MOST_PANELS;
  int label_length = 1 + snprintf(NULL, 0, "%d", p->shape.n_micro_batches - 1);
  g.scale = fmin(label_length / shortest, panels * COLUMNS / t->makespan);
  g.columns = (int)lround(t->makespan * g.scale);
  size_t width = (size_t)g.columns + 1;
  char *lines = arena_array(a, char, (size_t)n *width);
  // Draw whole lines first, then cut them into panels.
  for (int d = 0; d < n; d++) {
    memset(lines + (size_t)d * width, '.', width - 1);
    for (int i = t->at[d]; i < t->at[d + 1]; i++) {
      // A block is its label, filled up with dashes.
      char *line = lines + (size_t)d * width;
      int block = t->block[i];
      int from = (int)lround(t->start[block] * g.scale);
      int to = (int)lround(t->end[block] * g.scale);
      char label[16];
      int length =
          snprintf(label, sizeof label, "%c%d", letter_of(p, block), p->blocks->micro_batch[block]);
      for (int k = from; k < to; k++)
        line[k] = '-';
      if (from < to) memcpy(line + from, label, (size_t)(length <= to - from ? length : 1));
    }
  }
  for (int from = 0; from < g.columns; from += COLUMNS) {
    int to = from + COLUMNS < g.columns ? from + COLUMNS : g.columns;
    // The time axis: a number over every 20th column.
    int at = -g.margin;
    for (int k = from; k < to; k += TICK) {
      char text[32];
      int length = snprintf(text, sizeof text, "%.4g", k / g.scale);
      if (k > from && k + length > to) break;
      printf("%*s%s", k - from - at, "", text);
      at = k - from + length;
    }
    printf("\n");
    for (int d = 0; d < n; d++)
      printf("%*d  %.*s\n", g.margin - 2, d, to - from, lines + (size_t)d * width + from);
    if (to < g.columns) printf("\n");
  }
  arena_free(a);
}
