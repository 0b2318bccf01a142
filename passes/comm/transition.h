// Carries a value from one layout to another, on the same mesh or on another, by the cheapest path
// that path.h or, within a mesh, routes.h knows:
//
//     mesh @m devices=0-3 (dp=4)      mesh @s devices=4-11 (dp=8)
//     %x {B}, wanted @s {B}
//
//     %1 = local_slice %x axis="x0+x1" dim=0      a quarter each
//     %2 = move %1                                half of that to two devices each: rd_scatter
//     %3 = all_gather %2 axis="x0+x1+x2" dim=0    between those who are near one another
//
// Each state of a path is a layout on a mesh of its own, of the same devices in another order or
// factored otherwise; such meshes are added to the module.  What joins two of them, where everybody
// has already what he needs, is a `move` without messages.  Primitives between groups, and those
// that the language has no word for, are moves, too: their messages are the same.

#ifndef TRANSITION_H
#define TRANSITION_H

#include "ir/build.h"
#include "paths/path.h"
#include "paths/routes.h"

typedef struct Transitions Transitions; // of one module

Transitions *transitions_new(Module *m, const Cluster *c, Arena *a);
// Puts the ops where the builder stands, and returns the value as it is wanted, which must be cut
// over time as it is.  NULL, having reported why.
Value *transition(Transitions *t, Builder *b, Value *v, const Layout *want);

// How many different routes were asked for.
int transitions_known(const Transitions *t);

// What that would cost, of a value of this type as one device would have it.
double transition_seconds(Transitions *t, const Type *whole, const Layout *from,
                          const Layout *want);
// The same, but only by what routes.h knows: an upper bound that takes little time.  In so many
// slices; infinite where it knows nothing.
double transition_routed(Transitions *t, const Type *whole, const Layout *from, const Layout *want,
                         int64_t slices);
// Of that, in one slice, the all_reduces that it ends in.
Reduces transition_reduces(Transitions *t, const Type *whole, const Layout *from,
                           const Layout *want);
// What a `move` costs, which is send/recv of intersections.
double transition_messages(Transitions *t, const Type *whole, const Layout *from,
                           const Layout *want);
// What one collective over these axes of the mesh costs, that takes the value to `after`.
double transition_collective(Transitions *t, OpKind kind, const Type *whole, const Layout *before,
                             const Layout *after, uint32_t axes);

#endif
