// Declarations shared by the searches for a pipeline's steady state.

#ifndef SCHEDULE_REPEAT_H
#define SCHEDULE_REPEAT_H

#include "schedule/schedule.h"

// A round: one micro-batch of each route, as one list of works.
typedef struct Round {
  const Blocks *b;
  Arena *arena;
  int n, n_rounds; // works; complete rounds
  const Work **work;
  int *route_at; // per route: its first work here
  int *first;    // per work: the first of its route
  int *giver;    // per work that takes memory: the work that frees it
  int *turn;     // per micro-batch: its number among those of its route
  double period, room;
} Round;

int round_work(const Round *r, int block);

// The start of each work of a round, by CBC; NULL if its limits were too small.
double *repeat_by_cbc(const Round *r, const Orders *o);
// The same by random tries, quickly; `seed` advances for the next call.
double *repeat_by_try(const Round *r, uint64_t *seed);

#endif
