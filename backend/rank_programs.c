// Rank programs: sets of ranks that run the same calls.
//
//     mesh @m devices=0-3 (dp=4)
//     mesh @s0 devices=0-1 (dp=2)          ranks 0, 1: on @m and @s0, the rank program "m_s0"
//     mesh @s1 devices=2-3 (dp=2)          ranks 2, 3: on @m and @s1, the rank program "m_s1"
//
// A rank runs the ops on its meshes in the order of the graph, and a move if it is on the mesh of
// the operand or of the result.  Ranks on the same meshes run the same calls, unless a schedule
// gives them different runs: they share a rank program (`Code`), with functions of its own.
//
// All ranks run their ops in the one order of the graph, so there is no deadlock.  Among the
// waiting ranks, take one at the earliest op: it waits for ranks that have not reached this op, so
// they run. With a schedule, the segments of all slices are in one order, too (ir/schedule.h).
//
// Groups and moves are numbered in that order as well, with the same numbers in all programs of
// --split-ranks: the runtime makes the communicators of groups in the order of their numbers.

#include <string.h>

#include "ir/analysis/place.h"
#include "ir/op.h"
#include "program.h"

// -- Ranks -------------------------------------------------------------------------------------

bool code_on(const Program *p, int c, const Mesh *mesh) {
  return !mesh || p->code.at[c].on[mesh->id];
}

bool mesh_runs(const Program *p, const Mesh *mesh) {
  for (int c = 0; c < p->code.n; c++)
    if (code_on(p, c, mesh)) return true;
  return false;
}

// The rank program of `rank`: an existing one with the same meshes and runs, or a new one.
static int find_code(Program *p, int rank, int n_meshes, const int64_t *ends,
                     const int64_t *host_ends) {
  bool *on = arena_array(p->arena, bool, n_meshes);
  for_each_mesh(mesh, p->m)
    on[mesh->id] = mesh_has(mesh, rank);

  const RankRun *train = graph_run_of(p->train.g, rank);
  const RankRun *eval = p->eval.g ? graph_run_of(p->eval.g, rank) : NULL;
  // Ranks on the same meshes with the same runs share a program.
  for (int c = 0; c < p->code.n; c++) {
    const Code *code = &p->code.at[c];
    if (!memcmp(code->on, on, (size_t)n_meshes * sizeof *on) && code->run[0] == train &&
        code->run[1] == eval)
      return c;
  }
  // Its memory is that of the rank, aligned for the target.
  int64_t end = device_end(p->m, ends, rank), align = target_info[p->o->target.target].align;
  end = (end + align - 1) / align * align;
  int64_t host = device_end(p->m, host_ends, rank);
  Code code = {.on = on, .run = {train, eval}, .slab_bytes = end, .host_bytes = host};
  vec_push(p->arena, &p->code, code);
  return p->code.n - 1;
}

// "m_s0", with a number appended if another rank program has this name.
static const char *name_of(const Program *p, int c) {
  StrBuf name = {.arena = p->arena};
  for_each_mesh(mesh, p->m) {
    if (!code_on(p, c, mesh)) continue;
    strbuf_addf(&name, "%s%s", name.n ? "_" : "", mesh->name);
  }
  // The name is part of C names.
  for (char *at = name.at; *at; at++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", *at)) *at = '_';
  for (int other = 0; other < c; other++)
    if (str_equal(p->code.at[other].name, name.at))
      return str_format(p->arena, "%s_%d", name.at, c);
  return name.at;
}

// "0-3, 6 on @m, @s0"
static const char *who_is(const Program *p, int c) {
  StrBuf who = {.arena = p->arena};
  for (int first = 0, last; first < p->n_ranks; first = last + 1) {
    last = first;
    if (p->code_of[first] != c) continue;
    // A range of neighbouring ranks.
    while (last + 1 < p->n_ranks && p->code_of[last + 1] == c)
      last++;
    strbuf_addf(&who, "%s%d", who.n ? ", " : "", first);
    if (last > first) strbuf_addf(&who, "-%d", last);
  }
  const char *before = " on ";
  for_each_mesh(mesh, p->m) {
    if (!code_on(p, c, mesh)) continue;
    strbuf_addf(&who, "%s@%s", before, mesh->name);
    before = ", ";
  }
  return who.at;
}

static void find_ranks(Program *p) {
  int n_meshes = module_n_meshes(p->m);
  module_devices(p->m, p->arena, &p->n_ranks);
  const int64_t *ends = mesh_ends(p->m, p->arena), *host = mesh_host_ends(p->m, p->arena);
  p->code_of = arena_array(p->arena, int, p->n_ranks);
  for (int rank = 0; rank < p->n_ranks; rank++)
    p->code_of[rank] = find_code(p, rank, n_meshes, ends, host);
  // A single rank program needs no name.
  for (int c = 0; c < p->code.n && p->code.n > 1; c++) {
    p->code.at[c].name = name_of(p, c);
    p->code.at[c].who = who_is(p, c);
  }
  if (!p->o->split_ranks) return;
  // With --split-ranks, only the program of this rank is left.
  p->code.at[0] = p->code.at[p->code_of[p->o->only_rank]];
  p->code.n = 1;
}

// -- Groups and moves --------------------------------------------------------------------------

static int find_group(const Program *p, const Mesh *mesh, const MeshAxes *axes) {
  int i = 0;
  while (i < p->group.n &&
         (p->group.at[i].mesh != mesh || memcmp(&p->group.at[i].axes, axes, sizeof *axes) != 0))
    i++;
  return i;
}

int group_number(const Program *p, const Mesh *mesh, const MeshAxes *axes) {
  int i = find_group(p, mesh, axes);
  if (i == p->group.n) BUG("a group of @%s that no collective has", mesh->name);
  return i;
}

int move_number(const Program *p, const Op *move) {
  for (int i = 0; i < p->move.n; i++)
    if (p->move.at[i] == move) return i;
  return -1;
}

void codes_find(Program *p) {
  find_ranks(p);
  const Graph *graphs[] = {p->train.g, p->eval.g};
  for (int i = 0; i < 2; i++) {
    if (!graphs[i]) continue;
    for_each_op(op, graphs[i]) {
      // Ranks meet in collectives and moves.  A move in place transfers nothing.
      if (!(op_info[op->kind].traits & COMM) || (op_info[op->kind].traits & (ACCUMULATES | VIEW)))
        continue;
      if (op->kind == OP_move) {
        if (!op_inplace(op, 0, 0, p->arena)) vec_push(p->arena, &p->move, op);
        continue;
      }
      Group group = {.mesh = op_mesh(op)};
      if (!op_axes(op, &group.axes, p->d)) BUG("'%s' is over no axes", op_info[op->kind].name);
      if (find_group(p, group.mesh, &group.axes) == p->group.n)
        vec_push(p->arena, &p->group, group);
    }
  }
}
