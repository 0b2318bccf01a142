// Crashes of the compiler's programs.

#ifndef TOOLS_CRASH_H
#define TOOLS_CRASH_H

// Raises the limit of the stack to that of most systems, if it is lower and may be raised, and
// reports faults.  `program` is static.
void crash_watch(const char *program);

#endif
