// The heap of programs that compile many plans.

#ifndef TOOLS_HEAP_H
#define TOOLS_HEAP_H

// Keeps freed memory for the next compilation: the system would clear its pages again and again.
void heap_keep(void);

#endif
