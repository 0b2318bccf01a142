// Blocks of a pipeline: every work of every micro-batch, and their dependencies.

#include "schedule/schedule.h"

#include <math.h>

const char *const work_kind_name[N_WORK_KINDS] = {"F", "B", "W", "E"};

bool work_shares_device(const Work *v, const Work *w) {
  for (int i = 0; i < v->n_devices; i++)
    for (int k = 0; k < w->n_devices; k++)
      if (v->device[i] == w->device[k]) return true;
  return false;
}

Blocks *blocks_new(Arena *a, const Pipeline *p) {
  Blocks *b = arena_one(a, Blocks);
  b->pipeline = p;
  // The works of each micro-batch, in the order of its route.
  int *first = arena_array(a, int, p->n_micro_batches + 1);
  for (int m = 0; m < p->n_micro_batches; m++)
    first[m + 1] = first[m] + p->route[p->route_of[m]].n;
  b->n = first[p->n_micro_batches];
  int *micro_batch = arena_array(a, int, b->n);
  b->work = arena_array(a, const Work *, b->n);
  for (int m = 0; m < p->n_micro_batches; m++)
    for (int k = first[m]; k < first[m + 1]; k++) {
      micro_batch[k] = m;
      b->work[k] = &p->route[p->route_of[m]].work[k - first[m]];
    }
  b->first = first;
  b->micro_batch = micro_batch;
  // Dependencies, by their later block and by their earlier one.
  b->after_at = arena_array(a, int, b->n + 1);
  b->next_at = arena_array(a, int, b->n + 2);
  for (int k = 0; k < b->n; k++)
    b->after_at[k + 1] = b->after_at[k] + b->work[k]->n_after;
  int n = b->after_at[b->n];
  b->after = arena_array(a, int, n);
  b->latency = arena_array(a, double, n);
  b->next = arena_array(a, int, n);
  for (int k = 0, i = 0; k < b->n; k++)
    for (int j = 0; j < b->work[k]->n_after; j++, i++) {
      b->after[i] = b->first[b->micro_batch[k]] + b->work[k]->after[j].work;
      b->latency[i] = b->work[k]->after[j].latency;
      b->next_at[b->after[i] + 2]++;
    }
  // Counted two positions ahead, so that the filling below leaves the starts in place.
  for (int k = 0; k < b->n; k++)
    b->next_at[k + 2] += b->next_at[k + 1];
  for (int k = 0; k < b->n; k++)
    for (int i = b->after_at[k]; i < b->after_at[k + 1]; i++)
      b->next[b->next_at[b->after[i] + 1]++] = k;
  return b;
}

const char *block_text(Arena *a, const Blocks *b, int block) {
  const Work *w = b->work[block];
  int m = b->micro_batch[block];
  if (w->kind == WORK_E) return str_format(a, "E(%d, %d)", w->pass, m);
  if (w->kind == WORK_F && w->pass > 1) return str_format(a, "F(%d, %d, %d)", w->stage, m, w->pass);
  return str_format(a, "%s(%d, %d)", work_kind_name[w->kind], w->stage, m);
}

// All forwards of a micro-batch, of all its pieces, precede its first backward, so their memory
// adds up.
double pipeline_least_room(Arena *a, const Pipeline *p) {
  double *taken = arena_array(a, double, p->n_devices), least = 0;
  for (int m = 0; m < p->n_micro_batches; m++) {
    const Route *route = &p->route[p->route_of[m]];
    // The pieces of a micro-batch follow each other.
    for (int d = 0; d < p->n_devices && m % p->pieces == 0; d++)
      taken[d] = 0;
    for (int i = 0; i < route->n; i++)
      for (int k = 0; k < route->work[i].n_devices; k++) {
        double *at = &taken[route->work[i].device[k]];
        *at += route->work[i].takes;
        least = fmax(least, *at);
      }
  }
  return least;
}

// -- Bound -------------------------------------------------------------------------------------

typedef struct Ends {
  double *load, *head, *tail; // per device: work, and least time before and after it
  double longest;             // time of a micro-batch
} Ends;

static Ends find_ends(Arena *a, const Pipeline *p) {
  Ends e = {arena_array(a, double, p->n_devices), arena_array(a, double, p->n_devices),
            arena_array(a, double, p->n_devices), 0};
  int *count = arena_array(a, int, p->n_routes);
  for (int m = 0; m < p->n_micro_batches; m++)
    count[p->route_of[m]]++;
  for (int d = 0; d < p->n_devices; d++)
    e.head[d] = e.tail[d] = INFINITY;
  for (int r = 0; r < p->n_routes; r++) {
    // The earliest start of each work, and the least time after its end.
    const Route *route = &p->route[r];
    double *head = arena_array(a, double, route->n), *tail = arena_array(a, double, route->n);
    for (int j = 0; j < route->n; j++)
      for (int k = 0; k < route->work[j].n_after; k++) {
        const WorkAfter *after = &route->work[j].after[k];
        head[j] = fmax(head[j], head[after->work] + route->work[after->work].time + after->latency);
      }
    for (int j = route->n - 1; j >= 0; j--)
      for (int k = 0; k < route->work[j].n_after; k++) {
        const WorkAfter *after = &route->work[j].after[k];
        tail[after->work] = fmax(tail[after->work], tail[j] + route->work[j].time + after->latency);
      }
    // A device starts with the earliest of its works and ends with the one nearest to the end.
    for (int j = 0; j < route->n; j++) {
      const Work *w = &route->work[j];
      e.longest = fmax(e.longest, head[j] + w->time + tail[j]);
      for (int k = 0; k < w->n_devices; k++) {
        e.head[w->device[k]] = fmin(e.head[w->device[k]], head[j]);
        e.tail[w->device[k]] = fmin(e.tail[w->device[k]], tail[j]);
      }
    }
    // The load counts all its micro-batches.
    for (int j = 0; j < route->n; j++)
      for (int k = 0; k < route->work[j].n_devices; k++)
        e.load[route->work[j].device[k]] += count[r] * route->work[j].time;
  }
  return e;
}

double pipeline_bound(Arena *a, const Pipeline *p) {
  Ends e = find_ends(a, p);
  // One micro-batch takes its longest path; a device its work, and the least time around it.
  double bound = e.longest;
  for (int d = 0; d < p->n_devices; d++)
    if (e.load[d] > 0) bound = fmax(bound, e.head[d] + e.load[d] + e.tail[d]);
  return bound;
}

double pipeline_longest(Arena *a, const Pipeline *p) {
  return find_ends(a, p).longest;
}
