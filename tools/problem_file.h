// The file of --report-json: the errors, warnings and notes of a run, for programs.

#ifndef TOOLS_PROBLEM_FILE_H
#define TOOLS_PROBLEM_FILE_H

#include "base/diag.h"

// Writes what `d` has recorded (diag_record).  `ok`: whether the run has succeeded.  False after an
// error.
bool problem_file_write(const char *path, const char *model, bool ok, Diag *d);

#endif
