// A wish to end a long computation without its result: the time is over, or the user wants it.
//
//     Stop stop = {is_late, &clock};
//     while (...) if (stop_wanted(&stop)) return false;
//
// It is asked between the steps of the computation. Once wanted, it stays so.

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
