// Ctrl-C while plans are chosen: the first one ends the choice, with a message, and a second one
// the compiler.
//
//     interrupt_watch("the best plan so far is taken");
//     … interrupt_allow() …     there is a plan that can be taken
//     … interrupt_seen() …      end early
//     interrupt_release();

#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include <stdbool.h>

// From now on Ctrl-C is caught; it ends the program as usual until it is allowed.  `result` is the
// message, and stays valid until the release.
void interrupt_watch(const char *result);
void interrupt_allow(void);
bool interrupt_seen(void);
void interrupt_release(void); // restores the handler before

#endif
