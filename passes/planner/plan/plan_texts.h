// The programs of passes/planner/plans, which the build embeds in plan_texts.c.

#ifndef PLAN_TEXTS_H
#define PLAN_TEXTS_H

#include <stddef.h>

typedef struct PlanText {
  const char *name, *text;
  size_t n;
} PlanText;

extern const PlanText plan_texts[];
extern const int n_plan_texts;

#endif
