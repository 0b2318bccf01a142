// Checks that a model goes through its layers as often as place(axis, {forwards = n}) says, and
// that gradients go back through the last of these forwards only.
//
//     first second │ norm first second │ norm first second │ head
//                  ^ recycled           ^ recycled: both detached
//
// A layer of all forwards reads a weight n times, in ops of one kind. Ops at the beginning of all
// forwards but the first, such as the norm, read theirs n - 1 times. A recycled value is computed
// by one forward and read by an op of the next.

#ifndef STAGES_FORWARDS_H
#define STAGES_FORWARDS_H

#include "sharding/sharding.h"

// `why` is the line that asks for it. False, with an error reported, if it is not so.
bool forwards_check(const Sharding *s, int forwards, const Loc *why, Diag *d);

#endif
