// Durations and deadlines.

#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

// Monotonic seconds since an arbitrary start; setting the time of day does not change them.
double clock_seconds(void);
// CPU seconds of this thread, independent of other load on the machine.
double thread_seconds(void);

#endif
