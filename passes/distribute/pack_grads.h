// How much pack_grads reduces at a time where its option does not say otherwise.  What prices a
// gradient's all_reduce counts its start by this: many small ones share one.

#ifndef PACK_GRADS_H
#define PACK_GRADS_H

enum { PACK_BUCKET = 4 << 20 }; // bytes

#endif
