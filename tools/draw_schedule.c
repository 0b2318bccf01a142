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

#include "questions.h"
#include "schedule/kinds.h"

enum { COLUMNS = 180, MOST_PANELS = 12, MANY_DEVICES = 64, TICK = 20 };

typedef struct Drawing {
  const SchedulePlan *p;
  const Timeline *t;
  double scale; // columns per unit of time
  int columns;  // of all panels
  int margin;   // width of the device names
} Drawing;

static int label_length(const SchedulePlan *p) {
  return 1 + snprintf(NULL, 0, "%d", p->shape.n_micro_batches - 1);
}

// Sets the scale so that the shortest block fits its label, unless that takes too many panels.
static void set_scale(Drawing *g) {
  double shortest = g->t->makespan;
  for (int k = 0; k < g->p->blocks->n; k++) {
    double time = g->p->blocks->work[k]->time;
    if (time > 0) shortest = fmin(shortest, time);
  }
  int panels = g->p->shape.n_devices > MANY_DEVICES ? 1 : MOST_PANELS;
  g->scale = fmin(label_length(g->p) / shortest, panels * COLUMNS / g->t->makespan);
  g->columns = (int)lround(g->t->makespan * g->scale);
}

// Whether the block's stage is the second, fourth, … that its device runs for this micro-batch.  In
// a bidirectional schedule, micro-batches of the other direction have the first, third, … instead.
static bool is_small(const SchedulePlan *p, int block) {
  const Work *w = p->blocks->work[block];
  const Shape *s = &p->shape;
  const int *device = s->device + (size_t)p->blocks->micro_batch[block] * (size_t)s->n_stages;
  int before = 0;
  for (int i = 0; i < w->stage; i++)
    before += device[i] == device[w->stage];
  bool first_way = device[0] == s->device[0];
  return before % 2 == (first_way ? 1 : 0);
}

static int letter_of(const SchedulePlan *p, int block) {
  const Work *w = p->blocks->work[block];
  if (w->kind == WORK_E) return 'E';
  int letter = w->kind == WORK_F ? 'F' + w->pass - 1 : work_kind_name[w->kind][0];
  return is_small(p, block) ? letter - 'A' + 'a' : letter;
}

static void draw_block(const Drawing *g, char *line, int block) {
  int from = (int)lround(g->t->start[block] * g->scale);
  int to = (int)lround(g->t->end[block] * g->scale);
  char label[16];
  int n = snprintf(label, sizeof label, "%c%d", letter_of(g->p, block),
                   g->p->blocks->micro_batch[block]);
  for (int k = from; k < to; k++)
    line[k] = '-';
  if (from < to) memcpy(line + from, label, (size_t)(n <= to - from ? n : 1));
}

// Draws the time axis: a number over every 20th column.
static void draw_times(const Drawing *g, int from, int to) {
  int at = -g->margin;
  for (int k = from; k < to; k += TICK) {
    char text[32];
    int n = snprintf(text, sizeof text, "%.4g", k / g->scale);
    if (k > from && k + n > to) break;
    printf("%*s%s", k - from - at, "", text);
    at = k - from + n;
  }
  printf("\n");
}

void draw_timeline(const SchedulePlan *p, const Timeline *t) {
  Drawing g = {.p = p, .t = t};
  Arena *a = arena_new();
  int n = p->shape.n_devices;
  g.margin = snprintf(NULL, 0, "%d", n - 1) + 2;
  set_scale(&g);
  size_t width = (size_t)g.columns + 1;
  char *lines = arena_array(a, char, (size_t)n *width);
  // Draw whole lines first, then cut them into panels.
  for (int d = 0; d < n; d++) {
    memset(lines + (size_t)d * width, '.', width - 1);
    for (int i = t->at[d]; i < t->at[d + 1]; i++)
      draw_block(&g, lines + (size_t)d * width, t->block[i]);
  }
  for (int from = 0; from < g.columns; from += COLUMNS) {
    int to = from + COLUMNS < g.columns ? from + COLUMNS : g.columns;
    draw_times(&g, from, to);
    for (int d = 0; d < n; d++)
      printf("%*d  %.*s\n", g.margin - 2, d, to - from, lines + (size_t)d * width + from);
    if (to < g.columns) printf("\n");
  }
  arena_free(a);
}
