// See redundancy.h.
//
// Every message joins groups, as a forest: each rank points to another of its group or to itself.
// Ranks are of one kind until a mesh distinguishes them: one that some are no part of, or that has
// axes along which they have different shards.

#include "redundancy.h"

#include <stdlib.h>

#include "cost/collectives.h"

// -- Ranks with messages between them ----------------------------------------------------------

static int root_of(int *joined, int rank) {
  while (joined[rank] != rank)
    rank = joined[rank] = joined[joined[rank]];
  return rank;
}

// Joins two groups; false: they were one.
static bool join(int *joined, int x, int y) {
  int from = root_of(joined, x), to = root_of(joined, y);
  joined[from] = to;
  return from != to;
}

// Returns the number of groups that became part of another.
static int join_all(const Op *op, int *joined) {
  Arena *a = arena_new(); // large models on many ranks have millions of messages
  int n = 0;
  // The ends of each message, or all ranks of each group.
  if (op->kind == OP_move) {
    Messages sent = messages_of(a, op);
    for (int i = 0; i < sent.n; i++)
      n += join(joined, sent.at[i].from, sent.at[i].to);
  } else {
    Groups groups = collective_groups(a, op);
    for (int i = 0; i < groups.n; i++)
      for (int k = 1; k < groups.size; k++)
        n += join(joined, groups.device[i * groups.size], groups.device[i * groups.size + k]);
  }
  arena_free(a);
  return n;
}

// -- Ranks that do the same --------------------------------------------------------------------

// Whether the step has values on a mesh, and the axes along which computed ones are sharded or
// partial, as bits.
typedef struct Used {
  bool any;
  uint32_t split;
} Used;

// A parameter that is read in shards and gathered is no work, nor is a view of a value.
static void note_used(const Value *v, bool computed, Used *used) {
  if (!v->layout || !v->layout->mesh) return;
  Used *u = &used[v->layout->mesh->id];
  u->any = true;
  for (int i = 0; i < v->layout->n_axes && computed; i++)
    if (v->layout->axis[i].kind != SBP_B) u->split |= UINT32_C(1) << i;
}

// Returns the index of the device's shard, for splits along these axes.
static int part_at(const Mesh *mesh, uint32_t split, int position) {
  int part = 0, apart = 1;
  for (int i = mesh->n_axes - 1; i >= 0; i--) {
    if (mesh->axis[i].time) continue;
    if (split >> i & 1) {
      part += apart * (position % mesh->axis[i].size);
      apart *= mesh->axis[i].size;
    }
    position /= mesh->axis[i].size;
  }
  return part;
}

typedef struct Member {
  int of, part, rank;
} Member;

static int compare_members(const void *x, const void *y) {
  const Member *a = x, *b = y;
  return a->of != b->of ? (a->of > b->of) - (a->of < b->of)
                        : (a->part > b->part) - (a->part < b->part);
}

// Divides each kind by the shards of its ranks.
static void tell_apart(const Mesh *mesh, uint32_t split, int *kind, int *n_kinds, Arena *a) {
  Member *all = arena_array(a, Member, mesh->n_devices);
  for (int i = 0; i < mesh->n_devices; i++)
    all[i] = (Member){kind[mesh->device[i]], part_at(mesh, split, i), mesh->device[i]};
  qsort(all, (size_t)mesh->n_devices, sizeof *all, compare_members);
  for (int i = 0; i < mesh->n_devices; i++) {
    *n_kinds += i == 0 || compare_members(&all[i - 1], &all[i]) != 0;
    kind[all[i].rank] = *n_kinds - 1;
  }
}

// Returns the kind of each rank: ranks of one kind do the same.
static int *kinds_of(const Module *m, int n_ranks, Arena *a) {
  int *kind = arena_array(a, int, n_ranks), n_kinds = 1;
  if (!m->graphs) return kind;
  // The use of each mesh.
  Used *used = arena_array(a, Used, module_n_meshes(m));
  for (int i = 0; i < m->graphs->n_params; i++)
    note_used(m->graphs->params[i], false, used);
  for_each_op(op, m->graphs)
    for (int i = 0; i < op->n_out; i++)
      note_used(op->out[i], !(op_info[op->kind].traits & (COMM | VIEW)), used);
  // Each mesh with values tells its shards apart.
  for_each_mesh(mesh, m)
    if (used[mesh->id].any) tell_apart(mesh, used[mesh->id].split, kind, &n_kinds, a);
  return kind;
}

int ranks_sharing(const Module *m) {
  Arena *a = arena_new();
  Collectives list = {0};
  collectives_find(a, m, &list);
  int n, end = 1;
  const int *device = module_devices(m, a, &n);
  for (int i = 0; i < n; i++)
    end = device[i] >= end ? device[i] + 1 : end;
  int *joined = arena_array(a, int, end);
  for (int i = 0; i < end; i++)
    joined[i] = i;
  // Messages join ranks until all are in one group.
  for (int i = 0, apart = n - 1; i < list.n && apart > 0; i++)
    apart -= join_all(list.at[i].op, joined);
  // The most kinds of ranks in a group.
  const int *kind = kinds_of(m, end, a);
  Member *all = arena_array(a, Member, n);
  for (int i = 0; i < n; i++)
    all[i] = (Member){root_of(joined, device[i]), kind[device[i]], device[i]};
  qsort(all, (size_t)n, sizeof *all, compare_members);
  int most = 1, here = 0;
  for (int i = 0; i < n; i++) {
    if (i == 0 || all[i - 1].of != all[i].of) here = 0;
    here += i == 0 || compare_members(&all[i - 1], &all[i]) != 0;
    most = here > most ? here : most;
  }
  arena_free(a);
  return most;
}
