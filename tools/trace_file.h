// --trace: the predicted timeline of a step, in Chrome's trace format (Perfetto, chrome://tracing).
// Executables write the measured one in the same format (rt/trace.c).

#ifndef TOOLS_TRACE_FILE_H
#define TOOLS_TRACE_FILE_H

#include "cost/timeline.h"

// Returns the text of the file.  `memory` has the resident bytes of each lane over time; NULL: the
// file has no memory.
const char *trace_text(Arena *a, const Module *m, Target target, const StepTimeline *t,
                       const LaneMemory *memory);

#endif
