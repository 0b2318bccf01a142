// How long something takes, and until when it may.

#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

// Since some moment; whoever sets the time of day does not set this.
double clock_seconds(void);
// That processors have worked for this thread: the same on a machine that has other work as well.
double thread_seconds(void);

#endif
