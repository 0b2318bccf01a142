// Paths for the modules of one run: candidates of --plan auto ask for many of the same.
//
//     candidate "pp=4,dp=2"          f32[64,512] from devices 0-1 to 2-3: searched for
//     candidate "pp_zb_h1=4,dp=2"    the same: known
//
// A path depends on the cluster, the shape and the devices alone, and no search depends on earlier
// ones, so the answers are the same as without a store.

#ifndef PATH_STORE_H
#define PATH_STORE_H

#include "path.h"

typedef struct PathStore PathStore;

PathStore *path_store_new(Arena *a);

// A cluster, and its known paths: those of whole transfers, and those without the time to
// start, which are parts of larger transfers.
typedef struct StoredPaths {
  const char *name;
  const Cluster *cluster, *joined;
  Paths *paths, *joined_paths;
  struct StoredPaths *next;
} StoredPaths;

// The entry of the cluster with this name, which is read on the first query. NULL after an error.
StoredPaths *path_store_find(PathStore *store, const char *name, Diag *d);

#endif
