// Ctrl-C while plans are chosen: the first one ends the choice, with a message, and a second one
// the compiler.
//
//     interrupt_watch("the best plan so far is taken", "no plan was found yet");
//     … interrupt_allow() …     there is a plan that can be taken
//     … interrupt_seen() …      end early
//     interrupt_release();
//
// Without a result the program ends with EXIT_INTERRUPTED.

#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include <stdbool.h>

enum { EXIT_INTERRUPTED = 130 }; // as of a program that Ctrl-C ends

// From now on Ctrl-C is caught.  `with` is the message from interrupt_allow on, `without` that
// before; both stay valid until the release.
void interrupt_watch(const char *with, const char *without);
void interrupt_allow(void);
bool interrupt_seen(void);
void interrupt_release(void); // restores the handler before

#endif
