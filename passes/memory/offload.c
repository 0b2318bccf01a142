// Offload: states of the optimizer are in host memory, and on the device only for their update.
//
//     graph @train entry (…, %m: f32[4,6] state "fc1.w.exp_avg" host = 0,      %k likewise of fc2.w
//
//       %w1, %m1 = adam %w, %g, %m, …              %1 = swap_in %m             update
//       %v1, %k1 = adam %v, %h, %k, …              %2 = swap_in %k             update
//       return … update %m %m1, update %k %k1      %3 = swap_wait %1, %m       update
//                                                  %w1, %m1 = adam %w, %g, %3, …
//                                           =>     %4 = swap_out %m1           update
//                                                  %5 = swap_wait %2, %k       update
//                                                  %v1, %k1 = adam %v, %h, %5, …
//                                                  %6 = swap_out %k1           update
//                                                  %7 = swap_wait %4, %m1      update  %m1 is in the way no more
//                                                  %8 = swap_wait %6, %k1      update
//                                                  return … update %m %7, update %k %8
//
// The program of a plan says of which weights, `offload`, and optimizer.c marks their states.  They
// are kept as ZeRO-Offload does (Ren et al. 2021), but that updates run where gradients are, and
// not on the host: it is the mechanism of swap.c, with the same ops.
//
// Updates run in pieces: one after the other, as many as have no more bytes there than the largest
// update alone.  While one piece runs, the next comes and the one before goes, so that three of
// them are on the device at most.
//
// Only what updates alone read can be away: a weight that forward reads stays, and is as any other
// from here on.  That of which there is a copy in 16 bits (keep_casts.c) is none of these.

#include <stdlib.h>

#include "base/table.h"
#include "base/vec.h"
#include "ir/analysis/local.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "offload.h"
#include "pass.h"

enum { AT_ONCE = 3 }; // pieces on the device

// What comes and goes.
typedef struct Away {
  Value *param, *new; // and what becomes of it
  int result;         // of the graph
  Op *first, *made; // the first op that reads it; the one that makes the new, and the last to read
  Value *in, *out;
} Away;

// Neighbours in the order of their updates, on one mesh.
typedef struct Piece {
  const Mesh *mesh;
  int from, n; // of `away`
  Op *last;    // of their ops
} Piece;

typedef struct Offload {
  Graph *g;
  Diag *d;
  Arena *scratch;
  const bool *update; // by op id: what runs once; none where updates are early
  Vec(Away) away;     // by mesh, then in the order of their updates
  Vec(Piece) piece;
} Offload;

// -- When updates are better early ------------------------------------------------------------

// What comes to the device for the update.
static int64_t bytes_away(const Op *op) {
  int64_t bytes = 0;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    bool away = v->host;
    for_each_use(u, v)
      away &= u->user && u->user->part == PART_update;
    bytes += away ? type_bytes(v->type) : 0;
  }
  return bytes;
}

bool offload_wants_early(const Graph *g) {
  int64_t gradients = 0, most = 0;
  for_each_op(op, g) {
    if (!op_optimizes(op)) continue;
    gradients += type_bytes(op->in[1].value->type);
    if (bytes_away(op) > most) most = bytes_away(op);
  }
  return most > 0 && gradients > AT_ONCE * most;
}

// -- What can be away --------------------------------------------------------------------------

static bool updates(const Offload *s, const Op *op) {
  return s->update[op->id] || (s->g->module->early_updates && op->part == PART_update);
}

// Whether updates alone read it, and none after it was made anew.
static bool find_ops(const Offload *s, Away *a) {
  int64_t skip;
  a->made = view_root(a->new, &skip)->def;
  if (!a->made || !updates(s, a->made)) return false;
  for_each_use(u, a->param) {
    Op *op = u->user;
    if (!op || !updates(s, op) || op->id > a->made->id) return false;
    if (!a->first || op->id < a->first->id) a->first = op;
  }
  return a->first != NULL;
}

// Whether another graph reads what has this label.
static bool read_elsewhere(const Graph *g, const Value *param) {
  for_each_graph(other, g->module) {
    const Value *v =
        other == g || !other->entry ? NULL : graph_find_role(other, param->role, param->label);
    if (v && v->uses) return true;
  }
  return false;
}

static int by_update(const void *x, const void *y) {
  const Away *a = x, *b = y;
  int mesh = value_mesh_id(a->param), other = value_mesh_id(b->param);
  if (mesh != other) return mesh - other;
  if (a->first != b->first) return a->first->id < b->first->id ? -1 : 1;
  return a->result - b->result;
}

static void find_away(Offload *s) {
  for (int i = 0; i < s->g->n_results; i++) {
    const Result *r = s->g->results[i];
    if (!r->target || !r->target->host) continue;
    Away a = {.param = r->target, .new = r->use.value, .result = i};
    if (find_ops(s, &a) && !read_elsewhere(s->g, a.param)) vec_push(s->scratch, &s->away, a);
  }
  if (s->away.n) qsort(s->away.at, (size_t)s->away.n, sizeof *s->away.at, by_update);
}

// The others stay, in all graphs.
static void mark_away(const Offload *s, Module *m) {
  Table *known = table_new(s->scratch);
  for (int i = 0; i < s->away.n; i++)
    table_add(known, (int)s->away.at[i].param->role, s->away.at[i].param->label,
              s->away.at[i].param);
  for_each_graph(g, m)
    for (int i = 0; i < g->n_params; i++) {
      Value *v = g->params[i];
      v->host = v->label && table_find(known, (int)v->role, v->label);
    }
}

// -- Pieces ------------------------------------------------------------------------------------

static int64_t bytes_of(const Away *a) {
  return type_bytes(a->param->type);
}

// Of all that the op which reads number `i` first is the first to read; and behind these.
static int64_t update_bytes(const Offload *s, int i, int *end) {
  int64_t bytes = 0;
  for (*end = i; *end < s->away.n && s->away.at[*end].first == s->away.at[i].first; ++*end)
    bytes += bytes_of(&s->away.at[*end]);
  return bytes;
}

static int64_t largest_update(const Offload *s, const Mesh *mesh) {
  int64_t most = 0;
  for (int i = 0, end; i < s->away.n; i = end) {
    int64_t bytes = update_bytes(s, i, &end);
    if (op_mesh(s->away.at[i].first) == mesh && bytes > most) most = bytes;
  }
  return most;
}

static void add_to_piece(Offload *s, Piece *p, int end) {
  for (; p->from + p->n < end; p->n++) {
    Op *made = s->away.at[p->from + p->n].made;
    if (!p->last || made->id > p->last->id) p->last = made;
  }
}

static void find_pieces(Offload *s) {
  int64_t most = 0, bytes = 0;
  for (int i = 0, end; i < s->away.n; i = end) {
    const Mesh *mesh = op_mesh(s->away.at[i].first);
    Piece *p = s->piece.n ? &s->piece.at[s->piece.n - 1] : NULL;
    if (!p || p->mesh != mesh) most = largest_update(s, mesh);
    int64_t more = update_bytes(s, i, &end);
    if (!p || p->mesh != mesh || bytes + more > most) {
      vec_push(s->scratch, &s->piece, ((Piece){.mesh = mesh, .from = i}));
      p = &s->piece.at[s->piece.n - 1];
      bytes = 0;
    }
    bytes += more;
    add_to_piece(s, p, end);
  }
}

// That before or behind it on the same mesh, or itself.
static const Piece *neighbour(const Offload *s, int i, int by) {
  int k = i + by;
  bool there = k >= 0 && k < s->piece.n && s->piece.at[k].mesh == s->piece.at[i].mesh;
  return &s->piece.at[there ? k : i];
}

// -- The ops -----------------------------------------------------------------------------------

static Value *copy_op(const Offload *s, Op *at, OpKind kind, Value *const *in, int n_in,
                      const Away *a) {
  Origin origin = origin_for(s->g->module->arena, op_origin(a->first), "kept in host memory");
  origin.part = PART_update;
  Builder b = {.g = s->g, .at = at, .origin = origin, .d = s->d};
  return local_value(&b, kind, in, n_in, NO_ATTRS, a->param->layout);
}

// Those that read the parameter read what came of it.
static void come(const Offload *s, Away *a) {
  Value *in[] = {a->in, a->param};
  Value *here = copy_op(s, a->first, OP_swap_wait, in, 2, a);
  for (Use *u = a->param->uses, *next; u; u = next) {
    next = u->next;
    bool copies = u->user && (u->user->kind == OP_swap_in || u->user == here->def);
    if (u->user && !copies) op_set_in(u->user, u->index, here);
  }
}

// Behind `last`, and what has begun to go there.
static void wait_gone(const Offload *s, Away *a, const Op *last) {
  Op *at = last->next;
  while (at && (at->kind == OP_swap_out || (at->kind == OP_swap_wait && value_on_host(at->out[0]))))
    at = at->next;
  Value *in[] = {a->out, a->new};
  graph_set_result(s->g, a->result, copy_op(s, at, OP_swap_wait, in, 2, a));
}

static void make_copies(const Offload *s) {
  for (int k = 0; k < s->piece.n; k++) {
    const Piece *p = &s->piece.at[k], *before = neighbour(s, k, -1);
    for (int i = p->from; i < p->from + p->n; i++) {
      Away *a = &s->away.at[i];
      a->in = copy_op(s, s->away.at[before->from].first, OP_swap_in, &a->param, 1, a);
    }
  }
  for (int i = 0; i < s->away.n; i++)
    come(s, &s->away.at[i]);
  for (int i = s->away.n; i-- > 0;) { // each is put right behind its op
    Away *a = &s->away.at[i];
    a->out = copy_op(s, a->made->next, OP_swap_out, &a->new, 1, a);
  }
  for (int k = 0; k < s->piece.n; k++) {
    const Piece *p = &s->piece.at[k], *next = neighbour(s, k, 1);
    const Op *last = next->last->id > p->last->id ? next->last : p->last;
    for (int i = p->from; i < p->from + p->n; i++)
      wait_gone(s, &s->away.at[i], last);
  }
}

// -- All of it ---------------------------------------------------------------------------------

// The first of what is to be in host memory; with `each_slice`, that every micro-batch updates.
static const Value *first_marked(const Graph *g, bool each_slice) {
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->host && (g->params[i]->each_slice || !each_slice)) return g->params[i];
  return NULL;
}

static bool nothing_to_offload(const Graph *g, Diag *d) {
  const Value *v = first_marked(g, true);
  if (v) {
    diag_error(d, v->loc,
               "offload: every micro-batch updates '%s', which is on the device all the time",
               v->label);
    diag_hint(d, "leave offload out of the plan, or take another schedule than pipedream");
    return false;
  }
  v = first_marked(g, false);
  diag_error(d, v->loc,
             "offload: nothing can be in host memory between steps: the optimizer keeps no states, "
             "and more than their updates read the weights, '%s' among them",
             v->label);
  diag_hint(d, "--optimizer adamw keeps states; without any, leave offload out of the plan");
  return false;
}

bool pass_offload(Module *m, const PassOptions *o, Diag *d) {
  Graph *g = module_first_entry(m);
  if (!g || !first_marked(g, false)) return true;
  Offload s = {.g = g, .d = d, .scratch = opt_scratch(o)};
  int64_t bytes = 0;
  graph_renumber(g);
  s.update = graph_update_ops(g, s.scratch);
  find_away(&s);
  if (!s.away.n) return nothing_to_offload(g, d);
  mark_away(&s, m);
  find_pieces(&s);
  make_copies(&s);
  graph_renumber(g);
  for (int i = 0; i < s.away.n; i++)
    bytes += bytes_of(&s.away.at[i]);
  opt_stat(o, s.away.n, "weights and states in host memory");
  opt_stat(o, bytes, "bytes of them");
  opt_stat(o, s.piece.n, "pieces in which they are updated");
  return true;
}
