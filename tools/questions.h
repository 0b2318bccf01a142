// The questions of nnaot-plan, each a file with its own command line.

#ifndef TOOLS_QUESTIONS_H
#define TOOLS_QUESTIONS_H

#include "options.h"

typedef struct Question {
  Program program;   // called "nnaot-plan rvd"
  const char *about; // a line of `nnaot-plan --help`
  bool of_file;      // takes a file, not options alone
  // Returns the exit status of the program; `file` is "" if none was given.
  int (*answer)(const Program *program, const char *file);
} Question;

extern const Question question_rvd, question_solve, question_schedule, question_fit,
    question_blocks, question_calibrate;

#endif
