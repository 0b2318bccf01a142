// See sharing.h.
//
// Groups are joined by everything that is sent, as a forest: each rank points to another of its
// group or to itself.

#include "sharing.h"

#include "cost/collectives.h"

static int root_of(int *joined, int rank) {
  while (joined[rank] != rank)
    rank = joined[rank] = joined[joined[rank]];
  return rank;
}

// Whether they were apart.
static bool join(int *joined, int x, int y) {
  int from = root_of(joined, x), to = root_of(joined, y);
  joined[from] = to;
  return from != to;
}

// How many groups became part of another.
static int join_all(const Op *op, int *joined) {
  Arena *a = arena_new(); // large models on many ranks have millions of messages
  int n = 0;
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

int ranks_sharing(const Module *m) {
  Arena *a = arena_new();
  Collectives list = {0};
  collectives_find(a, m, &list);
  int n, end = 1, most = 1;
  const int *device = module_devices(m, a, &n);
  for (int i = 0; i < n; i++)
    end = device[i] >= end ? device[i] + 1 : end;
  int *joined = arena_array(a, int, end), *size = arena_array(a, int, end);
  for (int i = 0; i < end; i++)
    joined[i] = i;
  for (int i = 0, apart = n - 1; i < list.n && apart > 0; i++)
    apart -= join_all(list.at[i].op, joined);
  for (int i = 0; i < n; i++) {
    int in_group = ++size[root_of(joined, device[i])];
    most = in_group > most ? in_group : most;
  }
  arena_free(a);
  return most;
}
