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
  int x = s->heap.at[i];
  s->heap.at[i] = s->heap.at[k];
  s->heap.at[k] = x;
}

void points_push(AutoSearch *s, int point) {
  int i = s->heap.n;
  vec_push(s->a, &s->heap, point);
  for (; i && is_before(s, s->heap.at[i], s->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
    swap_points(s, i, (i - 1) / 2);
}

int points_pop(AutoSearch *s) {
  int top = s->heap.at[0], i = 0;
  s->heap.at[0] = s->heap.at[--s->heap.n];
  for (;;) {
    int least = i;
    for (int k = 2 * i + 1; k <= 2 * i + 2 && k < s->heap.n; k++)
      if (is_before(s, s->heap.at[k], s->heap.at[least])) least = k;
    if (least == i) return top;
    swap_points(s, i, least);
    i = least;
  }
}

void points_order(AutoSearch *s) {
  int n = s->heap.n;
  s->heap.n = 0;
  for (int k = 0; k < n; k++)
    points_push(s, s->heap.at[k]);
}

double points_hurried(const AutoSearch *s, const Point *at) {
  enum { UNFIT = 1000 }; // times
  PointPrice e = auto_estimate(s, at);
  bool likely = e.status == PRICE_known && !at->offload;
  return likely ? e.seconds : UNFIT * e.seconds;
}

void points_hurry(AutoSearch *s) {
  s->hurries = true;
  for (int i = 0; i < s->heap.n; i++) {
    Priced *p = &s->points.at[s->heap.at[i]];
    p->estimate = points_hurried(s, &p->at);
  }
  points_order(s);
}
