// A request to end a long computation without its result: its time is over, or the user asks.
//
//     Stop stop = {is_late, &clock};
//     while (...) if (stop_wanted(&stop)) return false;
//
// The computation asks between its steps. A request is never withdrawn.

#ifndef STOP_H
#define STOP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Stop {
  bool (*wanted)(void *to);
  void *to;
} Stop;

// `s` may be NULL.
static inline bool stop_wanted(const Stop *s) {
  return s && s->wanted(s->to);
}

#endif
