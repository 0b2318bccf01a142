// See point_heap.h.

#include "point_heap.h"

// Of equal keys the point that is first in the space comes first. In a hurry the order is that of
// estimates, which a point keeps while it gets its price.
static bool is_before(const AutoSearch *s, int x, int y) {
  const Priced *p = &s->points.at[x], *q = &s->points.at[y];
  double a = s->hurries ? p->estimate : auto_key(s, p);
  double b = s->hurries ? q->estimate : auto_key(s, q);
  return a < b || (a == b && x < y);
}

static void swap_points(AutoSearch *s, int i, int k) {
  int x = s->heap[i];
  s->heap[i] = s->heap[k];
  s->heap[k] = x;
}

void points_push(AutoSearch *s, int point) {
  int i = s->n_heap++;
  s->heap[i] = point;
  for (; i && is_before(s, s->heap[i], s->heap[(i - 1) / 2]); i = (i - 1) / 2)
    swap_points(s, i, (i - 1) / 2);
}

int points_pop(AutoSearch *s) {
  int top = s->heap[0], i = 0;
  s->heap[0] = s->heap[--s->n_heap];
  for (;;) {
    int least = i;
    for (int k = 2 * i + 1; k <= 2 * i + 2 && k < s->n_heap; k++)
      if (is_before(s, s->heap[k], s->heap[least])) least = k;
    if (least == i) return top;
    swap_points(s, i, least);
    i = least;
  }
}

void points_order(AutoSearch *s) {
  int n = s->n_heap;
  s->n_heap = 0;
  for (int k = 0; k < n; k++)
    points_push(s, s->heap[k]);
}

double points_hurried(const AutoSearch *s, const Point *at) {
  enum { UNFIT = 1000 }; // times
  PointPrice e = auto_estimate(s, at);
  bool likely = e.status == PRICE_known && !at->offload;
  return likely ? e.seconds : UNFIT * e.seconds;
}

void points_hurry(AutoSearch *s) {
  s->hurries = true;
  for (int i = 0; i < s->n_heap; i++) {
    Priced *p = &s->points.at[s->heap[i]];
    p->estimate = points_hurried(s, &p->at);
  }
  points_order(s);
}
