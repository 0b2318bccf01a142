// Reshards a value to a layout on the same mesh or on another, by the cheapest path that path.h or,
// within a mesh, routes.h knows:
//
//     mesh @m devices=0-3 (dp=4)      mesh @s devices=4-11 (dp=8)
//     %x {B}, wanted @s {B}
//
//     %1 = local_slice %x axis="x0+x1" dim=0      a quarter each
//     %2 = move %1                                half of that to two devices each: rd_scatter
//     %3 = all_gather %2 axis="x0+x1+x2" dim=0    between near devices
//
// Each state of a path is a layout on a mesh of its own, with the same devices in another order or
// another factoring; such meshes are added to the module. A step between two of them that needs no
// transfer is a `move` without messages. Primitives between groups, and primitives that are no ops
// of the language, are moves, too: their messages are the same.

#ifndef TRANSITION_H
#define TRANSITION_H

#include "ir/build.h"
#include "paths/path.h"
#include "paths/routes.h"

typedef struct Transitions Transitions; // of one module

// The means of a reshard, to compare them (SuperScaler, figure 16).
typedef enum ReshardBy {
  RESHARD_rvd,   // the cheapest path
  RESHARD_intra, // the cheapest path within a mesh, send/recv of intersections between meshes
  RESHARD_p2p,   // send/recv of intersections
  N_RESHARDS,
} ReshardBy;

extern const char *const reshard_name[N_RESHARDS + 1]; // NULL at the end

Transitions *transitions_new(Module *m, const Cluster *c, Arena *a);
// The same, with the paths of a store (paths/path_store.h), which is without send/recv.
Transitions *transitions_of(Module *m, const Cluster *c, Paths *paths, Arena *a);
// From now on reshards are made and priced by these means.
void transitions_reshard_by(Transitions *t, ReshardBy by);
// Whether a reshard between these layouts may be nothing but a move.
bool transition_is_move(const Transitions *t, const Layout *from, const Layout *want);
// Inserts the ops at the builder's position and returns the value in the wanted layout, which must
// have the same split over time. NULL after reporting why.
Value *transition_build(Transitions *t, Builder *b, Value *v, const Layout *want);

// The number of different routes asked for.
int transitions_known(const Transitions *t);

// The cost of that, for a value of this type on a single device.
double transition_seconds(Transitions *t, const Type *whole, const Layout *from,
                          const Layout *want);
// A lower bound of that, without a search: 0 unless a device must receive a part.
double transition_least(Transitions *t, const Type *whole, const Layout *from, const Layout *want);
// The same in so many slices, but only by routes.h: an upper bound that takes little time. Infinite
// if routes.h has no route.
double transition_routed(Transitions *t, const Type *whole, const Layout *from, const Layout *want,
                         int64_t slices);
// The all_reduces at the end of that route, in one slice.
Reduces transition_reduces(Transitions *t, const Type *whole, const Layout *from,
                           const Layout *want);
// The cost of a `move`, which is send/recv of intersections.
double transition_messages(Transitions *t, const Type *whole, const Layout *from,
                           const Layout *want);
// The cost of one collective over these axes of the mesh, which takes the value to `after`.
double transition_collective(Transitions *t, OpKind kind, const Type *whole, const Layout *before,
                             const Layout *after, uint32_t axes);

#endif
