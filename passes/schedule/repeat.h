// The part of a pipeline that repeats: what its searches share.

#ifndef SCHEDULE_REPEAT_H
#define SCHEDULE_REPEAT_H

#include "schedule/schedule.h"

// One micro-batch of each route, as one list of works.
typedef struct Round {
  const Blocks *b;
  Arena *arena;
  int n, n_rounds; // works; rounds that are whole
  const Work **work;
  int *route_at; // of each route: its first work here
  int *first;    // of each work: the first of its route
  int *giver;    // of each work that takes memory: which gives it back
  int *turn;     // of each micro-batch: which of its route's
  double period, room;
} Round;

int round_work(const Round *r, int block);

// When each work of a round begins, as CBC finds it; NULL: it does not, in the work it has.
double *repeat_by_cbc(const Round *r, const Orders *o);
// The same by many tries, each at once: from `seed` on, those that begin `seed`s apart.
double *repeat_by_try(const Round *r, uint64_t *seed);

#endif
