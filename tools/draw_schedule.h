// The picture of a schedule in text: see draw_schedule.c.

#ifndef TOOLS_DRAW_SCHEDULE_H
#define TOOLS_DRAW_SCHEDULE_H

#include "schedule/kinds.h"

void draw_timeline(const SchedulePlan *p, const Timeline *t);

#endif
