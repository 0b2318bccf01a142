// See path_store.h.

#include "path_store.h"

struct PathStore {
  Arena *arena;
  StoredPaths *first;
};

PathStore *path_store_new(Arena *a) {
  PathStore *store = arena_one(a, PathStore);
  store->arena = a;
  return store;
}

StoredPaths *path_store_find(PathStore *store, const char *name, Diag *d) {
  for (StoredPaths *s = store->first; s; s = s->next)
    if (str_equal(s->name, name)) return s;
  Arena *a = store->arena;
  const Cluster *cluster = cluster_read(a, name, "cluster", d);
  if (!cluster) return NULL;
  StoredPaths *s = arena_one(a, StoredPaths);
  *s = (StoredPaths){.name = str_copy(a, name), .cluster = cluster, .next = store->first};
  s->joined = cluster_without_starts(a, cluster);
  s->paths = paths_new(a, cluster);
  s->joined_paths = paths_new(a, s->joined);
  paths_without_send_recv(s->paths);
  paths_without_send_recv(s->joined_paths);
  return store->first = s;
}
