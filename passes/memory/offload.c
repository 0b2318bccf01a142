// Offload: optimizer states are in host memory, and on the device only for their update.
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
//                                                  %7 = swap_wait %4, %m1      update  %m1 is freed
//                                                  %8 = swap_wait %6, %k1      update
//                                                  return … update %m %7, update %k %8
//
// The plan's program selects the weights (`offload`), and optimizer.c marks their states. The
// states are stored as in ZeRO-Offload (Ren et al. 2021), but updates run on the device of the
// gradients, not on the host. The mechanism is that of swap.c, with the same ops.
//
// Updates run in pieces, one after the other. A piece has as many updates as fit into the bytes of
// the largest single update. While one piece runs, the next is copied in and the previous is copied
// out, so at most three pieces are on the device.
//
// Only a parameter that updates alone read can be offloaded. A weight that forward reads stays, and
// is an ordinary weight from here on. A weight that forward reads as a 16-bit copy (keep_casts.c)
// can be offloaded.

#include <stdlib.h>

#include "base/table.h"
#include "base/vec.h"
#include "ir/analysis/local.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "offload.h"
#include "pass.h"

// An offloaded parameter.
typedef struct Away {
  Value *param, *new; // with its new value
  int result;         // of the graph
  Op *first, *made;   // the first reader; the op that produces `new`, which is the last reader
  Value *in, *out;
} Away;

// Neighbours in the order of their updates, on one mesh.
typedef struct Piece {
  const Mesh *mesh;
  int from, n; // a range of `away`
  Op *last;    // of their ops
} Piece;

typedef struct Offload {
  Graph *g;
  Diag *d;
  Arena *scratch;
  const bool *update; // by op id: runs once per step; false for early updates
  Vec(Away) away;     // by mesh, then in the order of their updates
  Vec(Piece) piece;
} Offload;

// -- Early updates -----------------------------------------------------------------------------

int64_t offload_bytes(const Op *op) {
  int64_t bytes = 0;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    bool away = v->host;
    if (!away) continue; // all updates use the learning rate
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
    int64_t away = offload_bytes(op);
    if (away > most) most = away;
  }
  return most > 0 && gradients > OFFLOAD_AT_ONCE * most;
}

// -- Offloaded parameters ----------------------------------------------------------------------

static bool updates(const Offload *s, const Op *op) {
  return s->update[op->id] || (s->g->module->early_updates && op->part == PART_update);
}

// Whether only updates read the parameter, and none after its new value is made. Finds these ops.
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
    // A parameter that another entry graph reads stays on the device.
    bool elsewhere = false;
    for_each_graph(other, s->g->module) {
      const Value *v = other == s->g || !other->entry
                           ? NULL
                           : graph_find_role(other, a.param->role, a.param->label);
      if (v && v->uses) {
        elsewhere = true;
        break;
      }
    }
    // So does one that an op besides the updates reads.
    if (find_ops(s, &a) && !elsewhere) vec_push(s->scratch, &s->away, a);
  }
  if (s->away.n) qsort(s->away.at, (size_t)s->away.n, sizeof *s->away.at, by_update);
}

// Marks the offloaded parameters, and no others, as `host` in all graphs.
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

// The bytes of the offloaded values with the same first reader as number `i`; `end`: after the
// last.
static int64_t update_bytes(const Offload *s, int i, int *end) {
  int64_t bytes = 0;
  for (*end = i; *end < s->away.n && s->away.at[*end].first == s->away.at[i].first; ++*end)
    bytes += bytes_of(&s->away.at[*end]);
  return bytes;
}

static void find_pieces(Offload *s) {
  int64_t most = 0, bytes = 0;
  for (int i = 0, end; i < s->away.n; i = end) {
    const Mesh *mesh = op_mesh(s->away.at[i].first);
    Piece *p = s->piece.n ? &s->piece.at[s->piece.n - 1] : NULL;
    if (!p || p->mesh != mesh) {
      // A piece has at most the bytes of the largest update on its mesh.
      most = 0;
      for (int k = 0, next; k < s->away.n; k = next) {
        int64_t size = update_bytes(s, k, &next);
        if (op_mesh(s->away.at[k].first) == mesh && size > most) most = size;
      }
    }
    // The update begins a piece of its own if it does not fit into the last.
    int64_t more = update_bytes(s, i, &end);
    if (!p || p->mesh != mesh || bytes + more > most) {
      vec_push(s->scratch, &s->piece, ((Piece){.mesh = mesh, .from = i}));
      p = &s->piece.at[s->piece.n - 1];
      bytes = 0;
    }
    bytes += more;
    for (; p->from + p->n < end; p->n++) {
      Op *made = s->away.at[p->from + p->n].made;
      if (!p->last || made->id > p->last->id) p->last = made;
    }
  }
}

// The piece before or after piece `i` on the same mesh, or piece `i` itself.
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

static void make_copies(const Offload *s) {
  // Copies in start one piece ahead.
  for (int k = 0; k < s->piece.n; k++) {
    const Piece *p = &s->piece.at[k], *before = neighbour(s, k, -1);
    for (int i = p->from; i < p->from + p->n; i++) {
      Away *a = &s->away.at[i];
      a->in = copy_op(s, s->away.at[before->from].first, OP_swap_in, &a->param, 1, a);
    }
  }
  for (int i = 0; i < s->away.n; i++) {
    // Readers of the parameter read its copy on the device.
    Away *a = &s->away.at[i];
    Value *in[] = {a->in, a->param};
    Value *here = copy_op(s, a->first, OP_swap_wait, in, 2, a);
    for (Use *u = a->param->uses, *next; u; u = next) {
      next = u->next;
      bool copies = u->user && (u->user->kind == OP_swap_in || u->user == here->def);
      if (u->user && !copies) op_set_in(u->user, u->index, here);
    }
  }
  for (int i = s->away.n; i-- > 0;) { // backward: each goes directly after its op
    Away *a = &s->away.at[i];
    a->out = copy_op(s, a->made->next, OP_swap_out, &a->new, 1, a);
  }
  // Copies out are complete at the end of the next piece.
  for (int k = 0; k < s->piece.n; k++) {
    const Piece *p = &s->piece.at[k], *next = neighbour(s, k, 1);
    const Op *last = next->last->id > p->last->id ? next->last : p->last;
    for (int i = p->from; i < p->from + p->n; i++) {
      // The wait follows `last`, and other copies out that begin there.
      Away *a = &s->away.at[i];
      Op *at = last->next;
      while (at &&
             (at->kind == OP_swap_out || (at->kind == OP_swap_wait && value_on_host(at->out[0]))))
        at = at->next;
      Value *in[] = {a->out, a->new};
      graph_set_result(s->g, a->result, copy_op(s, at, OP_swap_wait, in, 2, a));
    }
  }
}

// -- The pass ----------------------------------------------------------------------------------

// The first parameter marked `host`; with `each_slice`, the first that every micro-batch updates.
static const Value *first_marked(const Graph *g, bool each_slice) {
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->host && (g->params[i]->each_slice || !each_slice)) return g->params[i];
  return NULL;
}

static bool nothing_to_offload(const Graph *g, Diag *d) {
  // An update in every micro-batch needs its states on the device all the time.
  const Value *v = first_marked(g, true);
  if (v) {
    diag_error(d, v->loc,
               "offload: every micro-batch updates '%s', which is on the device all the time",
               v->label);
    diag_hint(d, "leave offload out of the plan, or take another schedule than pipedream");
    return false;
  }
  // Else forward and backward read the marked weights, too.
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
  // The plan marks weights and states for which it wants this.
  if (!g || !first_marked(g, false)) return true;
  Offload s = {.g = g, .d = d, .scratch = opt_scratch(o)};
  int64_t bytes = 0;
  graph_renumber(g);
  s.update = graph_update_ops(g, s.scratch);
  // Only updates may read them.
  find_away(&s);
  if (!s.away.n) return nothing_to_offload(g, d);
  mark_away(&s, m);
  // Pieces of updates follow each other, with copies on both sides.
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
