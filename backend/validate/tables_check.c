// Compares the tables of ranks with the module: meshes, groups, moves with their messages, and the
// fields of nnrt_program.
//
//     static const NnrtMessage messages_0[] = {
//         {0, 2, 0, {4, 6}, {0, 0}, {0, 0}},      a box from rank 0 to rank 2
//
// Messages are judged by their boxes, not only by those that ir/analysis/boxes.h would send: the
// box is the same part of the whole tensor for the sender and the receiver, and the boxes of a
// receiver are all of its shard, once for each share of a sum that goes to it.

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "ir/analysis/batch_dim.h"
#include "ir/analysis/boxes.h"
#include "ir/analysis/place.h"
#include "ir/kernel.h"
#include "ir/split.h"

static bool open_table(Check *c, const char *name, const char *type, Cursor *at) {
  if (!name) return mismatch(c, NULL, "a table of %s is missing", type);
  Unit *u = unit_find_typed(c, NULL, name, UNIT_table, type);
  if (!u) return false;
  *at = u->at;
  c->function = name;
  return true;
}

static bool close_table(Check *c, Cursor *at) {
  if (!want(c, at, "}")) return false;
  c->function = NULL;
  return true;
}

// "{4, 6}" of the dimensions; "{0}" of none.
static bool want_dims(Check *c, Cursor *at, const int64_t *dim, int n, const char *what) {
  if (!want(c, at, "{")) return false;
  if (n == 0) return want(c, at, "0}");
  for (int i = 0; i < n; i++)
    if ((i && !want(c, at, ",")) || !want_int(c, at, dim[i], what)) return false;
  return want(c, at, "}");
}

// -- Meshes and groups -------------------------------------------------------------------------

static bool check_meshes(Check *c) {
  Cursor at;
  int n = 0;
  if (!open_table(c, c->p.mesh, "NnrtMesh", &at)) return false;
  for_each_mesh(mesh, c->m) {
    n++;
    if (!want(c, &at, "{") || !want_string(c, &at, mesh->name, "the name of the mesh") ||
        !want(c, &at, ",") || !want_int(c, &at, mesh->n_axes, "the number of axes") ||
        !want(c, &at, ", {"))
      return false;
    if (mesh->n_axes == 0 && !want(c, &at, "{0}")) return false;
    for (int i = 0; i < mesh->n_axes; i++) {
      const MeshAxis *axis = &mesh->axis[i];
      if ((i && !want(c, &at, ",")) || !want(c, &at, "{") ||
          !want_string(c, &at, axis->name, "the name of the axis") || !want(c, &at, ",") ||
          !want_int(c, &at, axis->size, "the size of the axis") || !want(c, &at, ",") ||
          !want_word(c, &at, axis->time ? "true" : "false", "the kind of the axis") ||
          !want(c, &at, "}"))
        return false;
    }
    if (!want(c, &at, "},") || !want_int(c, &at, mesh->n_devices, "the number of ranks") ||
        !want(c, &at, ", (const int[]){"))
      return false;
    for (int i = 0; i < mesh->n_devices; i++)
      if ((i && !want(c, &at, ",")) || !want_int(c, &at, mesh->device[i], "a rank of the mesh"))
        return false;
    if (!want(c, &at, "}},")) return false;
  }
  if (n == 0 && !want(c, &at, "{\"\", 0, {{0}}, 1, (const int[]){0}},")) return false;
  return want_equal(c, &at, c->p.n_mesh, n ? n : 1, "n_mesh") && close_table(c, &at);
}

// Groups are numbered by their first collective, of all ranks: communicators are made in this
// order.
static bool check_groups(Check *c) {
  int n = 0;
  for (int i = 0; i < 2; i++) {
    if (!c->graph[i]) continue;
    for_each_op(op, c->graph[i]) {
      int traits = op_info[op->kind].traits;
      if (!(traits & COMM) || (traits & (ACCUMULATES | VIEW)) || op->kind == OP_move) continue;
      MeshAxes axes = {0};
      if (!op_axes(op, &axes, c->d)) return mismatch(c, NULL, "a collective has no axes");
      int k = 0;
      for (; k < n; k++) {
        const GroupText *g = &c->group[k];
        bool same = g->mesh == op_mesh(op)->id && g->axes.n == axes.n;
        for (int a = 0; same && a < axes.n; a++)
          same = g->axes.at[a] == axes.at[a];
        if (same) break;
      }
      if (k < n) continue;
      // A new group is the next of the table.
      c->op = op;
      if (n == c->p.n_groups) return mismatch(c, NULL, "a collective has no group");
      const GroupText *g = &c->group[n++];
      bool same = g->mesh == op_mesh(op)->id && g->axes.n == axes.n;
      for (int a = 0; same && a < axes.n; a++)
        same = g->axes.at[a] == axes.at[a];
      if (!same)
        return mismatch(c, NULL, "group %d is of other ranks than those of its first collective",
                        n - 1);
      c->op = NULL;
    }
  }
  return want_equal(c, NULL, c->p.n_groups, n, "the number of groups");
}

// -- Moves -------------------------------------------------------------------------------------

// One end of a move: the region and the share of each rank.
static int share_of(const Layout *l, const Place *at) {
  int share = 0;
  for (int i = 0; i < l->n_axes; i++)
    if (!l->mesh->axis[i].time && l->axis[i].kind == SBP_P)
      share = share * l->mesh->axis[i].size + at->coord[i];
  return share;
}

static int shares(const Layout *l) {
  int n = 1;
  for (int i = 0; i < l->n_axes; i++)
    if (!l->mesh->axis[i].time && l->axis[i].kind == SBP_P) n *= l->mesh->axis[i].size;
  return n;
}

static int64_t volume(const int64_t *size, int ndim) {
  int64_t n = 1;
  for (int d = 0; d < ndim; d++)
    n *= size[d];
  return n;
}

// The positions of ranks on a mesh, from 1.
static int *positions(const Check *c, const Mesh *mesh) {
  int *at = arena_array(c->arena, int, c->p.ranks + 1);
  for (int i = 0; i < mesh->n_devices; i++)
    if (mesh->device[i] < c->p.ranks) at[mesh->device[i]] = i + 1;
  return at;
}

// Whether the messages of one receiver, a run of the list, fill its shard: boxes of one share are
// disjoint and together as large as the shard; each share of the sum comes once.
static bool fills(const Message *m, int n, const Type *whole, const Region *shard, int *n_shares) {
  int ndim = whole->ndim;
  int64_t left = 0;
  *n_shares = 0;
  for (int i = 0; i < n; i++) {
    if (i == 0 || m[i].share != m[i - 1].share) {
      if (left != 0 || (i && m[i].share < m[i - 1].share)) return false;
      left = volume(shard->size, ndim);
      ++*n_shares;
    }
    left -= volume(m[i].size, ndim);
    // A box is inside of the shard, and meets no earlier one of the share.
    for (int d = 0; d < ndim; d++)
      if (m[i].size[d] <= 0 || m[i].at_to[d] < 0 || m[i].at_to[d] + m[i].size[d] > shard->size[d])
        return false;
    for (int k = i - 1; k >= 0 && m[k].share == m[i].share; k--) {
      bool meet = true;
      for (int d = 0; d < ndim; d++)
        meet &= m[k].at_to[d] < m[i].at_to[d] + m[i].size[d] &&
                m[i].at_to[d] < m[k].at_to[d] + m[k].size[d];
      if (meet) return false;
    }
  }
  return left == 0;
}

// Whether the messages compute the move.
static bool check_boxes(Check *c, const Cursor *at, const Op *op, const Message *m, int n) {
  const Layout *from = op->in[0].value->layout, *to = op->out[0]->layout;
  const Type *whole = value_whole(op->in[0].value);
  if (type_count(whole) == 0) return true;
  const int *sends = positions(c, from->mesh), *gets = positions(c, to->mesh);
  int n_from = shares(from), n_to = shares(to);
  int *target = arena_array(c->arena, int, n_from); // the target share of a share, from 1
  for (int i = 0; i < n;) {
    if (m[i].to < 0 || m[i].to >= c->p.ranks || !gets[m[i].to])
      return mismatch(c, at, "a message goes to rank %d, which has no part of the result", m[i].to);
    Place there = mesh_place(to->mesh, gets[m[i].to] - 1, 0);
    const Region shard = place_region(whole, to, &there);
    int last = i, n_shares;
    for (; last < n && m[last].to == m[i].to; last++) {
      const Message *one = &m[last];
      if (one->from < 0 || one->from >= c->p.ranks || !sends[one->from])
        return mismatch(c, at, "a message comes from rank %d, which has no part of the operand",
                        one->from);
      Place here = mesh_place(from->mesh, sends[one->from] - 1, 0);
      const Region source = place_region(whole, from, &here);
      if (one->share != share_of(from, &here))
        return mismatch(c, at, "rank %d does not have share %d", one->from, one->share);
      for (int d = 0; d < whole->ndim; d++)
        if (one->at_from[d] < 0 || one->at_from[d] + one->size[d] > source.size[d] ||
            source.start[d] + one->at_from[d] != shard.start[d] + one->at_to[d])
          return mismatch(c, at, "the box from rank %d to rank %d is not the same part for both",
                          one->from, one->to);
      // A share of a sum goes to one share of the result.
      int *t = &target[one->share], mine = share_of(to, &there) + 1;
      if (*t && *t != mine)
        return mismatch(c, at, "share %d goes to two shares of the result", one->share);
      *t = mine;
    }
    if (!fills(m + i, last - i, whole, &shard, &n_shares))
      return mismatch(c, at, "the messages to rank %d are not its shard", m[i].to);
    if (n_to == 1 && n_shares != n_from)
      return mismatch(c, at, "rank %d gets %d of %d shares", m[i].to, n_shares, n_from);
    i = last;
  }
  for (int i = 0; i < n_from; i++)
    if (!target[i]) return mismatch(c, at, "no rank gets share %d", i);
  return true;
}

static bool check_messages(Check *c, const Op *op, const char *name, int n) {
  Cursor at;
  const Value *x = op->in[0].value, *y = op->out[0];
  const Type *whole = value_whole(x);
  Messages need = {0};
  move_messages(whole, x->layout, y->layout, NULL, c->arena, &need);
  c->op = op;
  if (!want_equal(c, NULL, n, need.n, "the number of messages")) return false;
  if (n == 0) return !name || mismatch(c, NULL, "the move has messages");
  if (!open_table(c, name, "NnrtMessage", &at)) return false;
  const Cursor begin = at;
  for (int i = 0; i < n; i++) {
    const Message *m = &need.at[i];
    if (!want(c, &at, "{") || !want_int(c, &at, m->from, "the sender") || !want(c, &at, ",") ||
        !want_int(c, &at, m->to, "the receiver") || !want(c, &at, ",") ||
        !want_int(c, &at, m->share, "the share") || !want(c, &at, ",") ||
        !want_dims(c, &at, m->size, whole->ndim, "the size of the box") || !want(c, &at, ",") ||
        !want_dims(c, &at, m->at_from, whole->ndim, "the box in the operand") ||
        !want(c, &at, ",") || !want_dims(c, &at, m->at_to, whole->ndim, "the box in the result") ||
        !want(c, &at, "},"))
      return false;
  }
  if (!check_boxes(c, &begin, op, need.at, need.n)) return false;
  return close_table(c, &at);
}

static bool check_moves(Check *c) {
  Cursor at;
  for (int i = 0; i < 2; i++) {
    if (!c->graph[i]) continue;
    c->move_of[i] = arena_array(c->arena, int, c->graph[i]->n_ops);
    for_each_op(op, c->graph[i]) {
      // A move whose shards are all there transfers nothing.
      if (op->kind != OP_move || op_inplace(op, 0, 0, c->arena)) continue;
      vec_push(c->arena, &c->moves, op);
      c->move_of[i][op->id] = c->moves.n;
    }
  }
  c->ahead = arena_array(c->arena, bool, c->moves.n + 1);
  if (!want_equal(c, NULL, c->p.n_moves, c->moves.n, "the number of moves")) return false;
  if (!c->moves.n) return true;
  if (!open_table(c, c->p.move, "NnrtMove", &at)) return false;
  for (int i = 0; i < c->moves.n; i++) {
    const Op *op = c->moves.at[i];
    const Value *x = op->in[0].value, *y = op->out[0];
    c->ahead[i] = op->segment && move_is_ahead(op);
    c->op = op;
    if (!want(c, &at, "{") || !want_int(c, &at, x->layout->mesh->id, "the mesh of the operand") ||
        !want(c, &at, ",") || !want_int(c, &at, y->layout->mesh->id, "the mesh of the result") ||
        !want(c, &at, ",") || !want_int(c, &at, x->type->ndim, "the number of dimensions") ||
        !want(c, &at, ",") ||
        !want_dims(c, &at, x->type->dim, x->type->ndim, "the shape of the operand") ||
        !want(c, &at, ",") ||
        !want_dims(c, &at, y->type->dim, y->type->ndim, "the shape of the result") ||
        !want(c, &at, ",") ||
        !want_word(c, &at, move_sums(op) ? "true" : "false", "whether it adds") ||
        !want(c, &at, ",") ||
        !want_word(c, &at, c->ahead[i] ? "true" : "false", "whether it is ahead"))
      return false;
    int64_t n;
    CToken name;
    if (!take(&at, ", %i, %w},", &n, &name) || n < 0 || n > INT32_MAX)
      return unexpected(c, &at, "the messages of the move");
    if (!check_messages(c, op, ctoken_is(&name, "NULL") ? NULL : ctoken_text(&name, c->arena),
                        (int)n))
      return false;
    c->op = NULL;
    c->function = c->p.move;
  }
  return close_table(c, &at);
}

// -- The program -------------------------------------------------------------------------------

static bool check_schedule(Check *c) {
  StrBuf text = {.arena = c->arena};
  for (int i = 0; i < 2; i++)
    if (c->graph[i]) schedule_print(&text, c->graph[i]);
  const char *need = text.n ? text.at : NULL;
  return str_equal(c->p.schedule, need) || mismatch(c, NULL, "the text of the schedule is another");
}

static int64_t whole_batch(const Graph *g) {
  for (int i = 0; i < g->n_params; i++)
    if (value_has_batch(g->params[i])) return value_whole(g->params[i])->dim[0];
  return 1;
}

static const char *target_words(const Check *c, const TargetSpec *t) {
  StrBuf b = {.arena = c->arena};
  strbuf_add(&b, target_info[t->target].name);
  if (t->processor) strbuf_addf(&b, ":%s", t->processor);
  for (int i = 0; i < t->n_sm; i++)
    strbuf_addf(&b, "%ssm_%d", i ? "," : ":", t->sm[i]);
  return b.at;
}

// The options of nnaot, if they are known.
static bool check_options(Check *c) {
  const BackendOptions *o = c->o;
  const ProgramText *p = &c->p;
  if (!o) return true;
  const char *schedule = o->lr_schedule ? o->lr_schedule : "constant";
  if (memcmp(&p->lr, &o->lr, sizeof p->lr) != 0)
    return mismatch(c, NULL, "the learning rate is %.17g, not %.17g", p->lr, o->lr);
  if (!str_equal(p->lr_schedule, schedule))
    return mismatch(c, NULL, "the schedule of the learning rate is another");
  if (!str_equal(p->target, target_words(c, &o->target)))
    return mismatch(c, NULL, "the target is '%s'", p->target);
  int64_t split = o->split_ranks ? o->only_rank + 1 : 0;
  if (!want_equal(c, NULL, p->seed, o->seed, "the seed") ||
      !want_equal(c, NULL, p->per_node, o->per_node, "per_node") ||
      !want_equal(c, NULL, p->split_rank, split, "split_rank") ||
      !want_equal(c, NULL, p->skeleton_bytes, o->skeleton_bytes, "skeleton_bytes") ||
      !want_equal(c, NULL, p->n_holes, o->n_holes, "the number of holes"))
    return false;
  Cursor at;
  if (!o->n_holes) return true;
  if (!open_table(c, p->holes, "NnrtHole", &at)) return false;
  for (int i = 0; i < o->n_holes; i++) {
    const ExportHole *h = &o->holes[i];
    if (!want(c, &at, "{") || !want_string(c, &at, h->label, "the weight") || !want(c, &at, ",") ||
        !want_word(c, &at, str_format(c->arena, "NNRT_%s", dtype_name[h->dtype]), "the type") ||
        !want(c, &at, ",") || !want_int(c, &at, h->offset, "the offset") || !want(c, &at, ",") ||
        !want_int(c, &at, h->length, "the length") || !want(c, &at, "},"))
      return false;
  }
  return close_table(c, &at);
}

bool tables_check(Check *c) {
  int ranks;
  module_devices(c->m, c->arena, &ranks);
  if (!want_equal(c, NULL, c->p.ranks, ranks, "the number of ranks") ||
      !want_equal(c, NULL, c->p.micro_batches, module_slices(c->m),
                  "the number of micro-batches") ||
      !want_equal(c, NULL, c->p.batch, whole_batch(c->graph[0]), "the batch"))
    return false;
  if (c->p.split_rank < 0 || c->p.split_rank > ranks || (c->p.split_rank && c->p.n_codes != 1))
    return mismatch(c, NULL, "split_rank is %" PRId64, c->p.split_rank);
  return check_meshes(c) && check_groups(c) && check_moves(c) && check_schedule(c) &&
         check_options(c);
}
