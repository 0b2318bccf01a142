// The questions of nnaot-plan, each a file that has its own command line.

#ifndef TOOLS_QUESTIONS_H
#define TOOLS_QUESTIONS_H

#include "options.h"
#include "schedule/kinds.h"

typedef struct Question {
  Program program;   // called "nnaot-plan rvd"
  const char *about; // a line of `nnaot-plan --help`
  bool of_file;      // and not of options alone
  // Returns what the program is to exit with; `file` is "" where none was given.
  int (*answer)(const Program *program, const char *file);
} Question;

extern const Question question_rvd, question_solve, question_schedule, question_calibrate;

void draw_timeline(const SchedulePlan *p, const Timeline *t);

#endif
