// See units.h.
//
// Units are found op by op in the order of the model. If there are many, the ops are reordered so
// that each repeated subgraph is contiguous, and units are found again; then the units of a layer
// are merged, and neighbours too if there still are too many. Gradients take the units of their ops
// of the model.

#include "units.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/analysis/op_names.h"
#include "ir/analysis/origin.h"
#include "ir/analysis/work.h"
#include "ir/op.h"

enum {
  MAX_FINE = 24,   // this many units need no merging
  MAX_UNITS = 96,  // merge to this many, unless that is less than two per stage
  MAX_CHAIN = 640, // the same, of fine units
  SHARE = 4,       // a layer may have this part, 1 / SHARE, of a rank's work
};

typedef struct Finder {
  const Sharding *s;
  int axis;
  const UnitOptions *wish;
  Arena *arena;
  bool *constant;  // by value id: computed from weights and constants alone
  bool *trained;   // by value id: such a value of a trained weight
  int *of_op;      // by op id
  Vec(Op *) heads; // the first op of each unit
} Finder;

static bool is_model(const Op *op) {
  return op_part(op) == PART_forward;
}

// -- First ops of units --------------------------------------------------------------------------

// Whether the op sums products, or reads a trained weight.
static bool begins_unit(const Finder *f, const Op *op) {
  double elements = 0;
  bool trained = false, follows_any = false;
  for (int i = 0; i < op->n_in; i++) {
    const Op *def = op->in[i].value->def;
    trained |= f->trained[op->in[i].value->id];
    follows_any |= def && f->of_op[def->id] >= 0;
    elements += (double)type_count(op->in[i].value->type);
  }
  for (int i = 0; i < op->n_out; i++)
    elements += (double)type_count(op->out[i]->type);
  // A sum of products: its flops exceed twice the elements that it reads and writes.
  bool sums_products = !(op_info[op->kind].traits & VIEW) && op_flops(op) > 2 * elements;
  // A bias stays with the product that it is added to.
  bool is_bias = op_info[op->kind].formula != NULL && follows_any;
  return sums_products || (trained && !is_bias);
}

// Returns the last unit that the op reads from; without one, UNIT_held if it reads from a held op.
static int follows(const Finder *f, const Op *op) {
  int last = UNIT_none;
  for (int i = 0; i < op->n_in; i++) {
    const Op *def = op->in[i].value->def;
    int unit = def ? f->of_op[def->id] : UNIT_none;
    if (unit >= 0 ? unit > last : unit == UNIT_held && last == UNIT_none) last = unit;
  }
  return last;
}

// -- Repeated forwards ---------------------------------------------------------------------------

// The first reader of a weight with this kind and operand.
typedef struct Reader {
  OpKind kind;
  int operand, unit;
  struct Reader *next; // of the same weight
} Reader;

static int root_of(const int *same, int unit) {
  while (same[unit] != unit)
    unit = same[unit];
  return unit;
}

static void join_units(int *same, int a, int b) {
  a = root_of(same, a);
  b = root_of(same, b);
  if (a < b) same[b] = a;
  if (b < a) same[a] = b;
}

// `plain`: by unit, whether it reads no weight.
static void join_readers(Finder *f, int *same, bool *plain) {
  Reader **of_weight = arena_array(f->arena, Reader *, f->s->g->n_values);
  for_each_op(op, f->s->g) {
    // An op computed from weights alone is in the unit of its reader.
    const Op *at = op;
    while (at && is_model(at) && f->of_op[at->id] == UNIT_none)
      at = at->n_out && at->out[0]->uses ? at->out[0]->uses->user : NULL;
    int unit = at && is_model(at) ? f->of_op[at->id] : UNIT_none;
    for (int i = 0; unit >= 0 && i < op->n_in; i++) {
      // The weight that the operand is, or is cast or transposed from.
      const Value *v = op->in[i].value;
      while (v->def && v->def->n_in && f->of_op[v->def->id] == UNIT_none)
        v = v->def->in[0].value;
      if (v->def || v->role != ROLE_weight) continue;
      plain[unit] = false;
      // Readers of the same weight are in the same unit in every forward.
      Reader *r = of_weight[v->id];
      while (r && (r->kind != op->kind || r->operand != i))
        r = r->next;
      if (r) {
        join_units(same, r->unit, unit);
        continue;
      }
      r = arena_one(f->arena, Reader);
      *r = (Reader){op->kind, i, unit, of_weight[v->id]};
      of_weight[v->id] = r;
    }
  }
}

// By op id, whether a gradient goes back through the op of the model.
static bool *find_trained_ops(const Finder *f) {
  const Graph *g = f->s->g;
  const Op *const *model = model_ops(g, f->arena);
  bool *out = arena_array(f->arena, bool, g->n_ops);
  for_each_op(op, g) {
    const Op *of = op_part(op) == PART_backward ? model_op_of(f->s, op, model) : NULL;
    if (of) out[of->id] = true;
  }
  return out;
}

// Joined units at the border of two forwards: those that compute a recycled value, and those that
// read one.
typedef struct Borders {
  bool *makes, *reads;
} Borders;

// A recycled value is the result of a unit without gradients, of which the last forward has a
// counterpart with gradients, and the operand of an op with a gradient.
static Borders find_borders(const Finder *f, const int *same) {
  const bool *trained = find_trained_ops(f);
  int n = f->heads.n;
  bool *unit_trained = arena_array(f->arena, bool, n), *last = arena_array(f->arena, bool, n);
  Borders out = {arena_array(f->arena, bool, n), arena_array(f->arena, bool, n)};
  for_each_op(op, f->s->g)
    if (is_model(op) && f->of_op[op->id] >= 0 && trained[op->id]) {
      unit_trained[f->of_op[op->id]] = true;
      last[root_of(same, f->of_op[op->id])] = true;
    }
  for_each_op(op, f->s->g)
    for (int i = 0; is_model(op) && trained[op->id] && i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      int own = f->of_op[op->id], from = def ? f->of_op[def->id] : UNIT_none;
      if (own < 0 || from < 0 || unit_trained[from] || !last[root_of(same, from)]) continue;
      out.makes[root_of(same, from)] = true;
      out.reads[root_of(same, own)] = true;
    }
  return out;
}

// Units at the beginning of all forwards but the first, such as a norm of the recycled value, join
// the unit after them that is in the first forward, too. They would otherwise follow the last unit
// of the forward before, and gradients go back through that one's last stage.
static void join_recycled(Finder *f, int *same) {
  const Borders borders = find_borders(f, same);
  const Graph *g = f->s->g;
  int n = f->heads.n;
  // A unit is in the first forward if none of its ops depends on a reader of a recycled value.
  bool *after = arena_array(f->arena, bool, g->n_ops),
       *late = arena_array(f->arena, bool, g->n_ops);
  bool *late_unit = arena_array(f->arena, bool, n);
  for_each_op(op, g) {
    if (!is_model(op)) continue;
    int unit = f->of_op[op->id];
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      int from = def ? f->of_op[def->id] : UNIT_none;
      if (!def) continue;
      after[op->id] |=
          after[def->id] || (from >= 0 && from != unit && borders.makes[root_of(same, from)]);
      late[op->id] |= late[def->id];
    }
    if (unit < 0) continue;
    late[op->id] |= after[op->id] && borders.reads[root_of(same, unit)];
    late_unit[unit] |= late[op->id];
  }
  bool *in_first = arena_array(f->arena, bool, n);
  for (int i = 0; i < n; i++)
    in_first[root_of(same, i)] |= !late_unit[i];
  // By op, the first unit of the first forward that depends on it; n: none.
  int *next = arena_array(f->arena, int, g->n_ops), *to = arena_array(f->arena, int, n);
  for (int i = 0; i < n; i++)
    to[i] = n;
  for (const Op *op = g->last; op; op = op->prev) {
    if (!is_model(op)) continue;
    int root = f->of_op[op->id] >= 0 ? root_of(same, f->of_op[op->id]) : UNIT_none;
    next[op->id] = n;
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i])
        if (u->user && is_model(u->user) && next[u->user->id] < next[op->id])
          next[op->id] = next[u->user->id];
    if (root >= 0 && in_first[root])
      next[op->id] = root;
    else if (root >= 0 && next[op->id] < to[root])
      to[root] = next[op->id];
  }
  for (int i = 0; i < n; i++)
    if (same[i] == i && !in_first[i] && to[i] < n) join_units(same, to[i], i);
}

static void merge_again(Finder *f) {
  int n = f->heads.n, *same = arena_array(f->arena, int, n), *to = arena_array(f->arena, int, n);
  bool *plain = arena_array(f->arena, bool, n);
  for (int i = 0; i < n; i++) {
    same[i] = i;
    plain[i] = true;
  }
  join_readers(f, same, plain);
  // A unit without a weight joins the one at its position after the first forward's unit.
  for (int i = 1; i < n; i++) {
    int first = root_of(same, i - 1);
    if (plain[i] && first < i - 1 && plain[first + 1]) join_units(same, first + 1, i);
  }
  join_recycled(f, same);
  // Units that are not in every forward join the first repeated unit after them, or the last one
  // before them, so that no stage consists of them alone.
  int least = n, last = -1;
  for (int i = 0; i < n; i++) {
    if (same[i] == i) continue;
    if (root_of(same, i) < least) least = root_of(same, i);
    if (root_of(same, i) > last) last = root_of(same, i);
  }
  for (int i = 0; i < n && last >= 0; i++) {
    if (same[i] == i && i < least) join_units(same, i, least);
    if (same[i] == i && i > last) join_units(same, i, last);
  }
  // Renumber the remaining units.
  f->heads.n = 0;
  for (int i = 0; i < n; i++) {
    if (same[i] == i) {
      to[i] = f->heads.n;
      f->heads.at[f->heads.n++] = f->heads.at[i];
    } else
      to[i] = to[root_of(same, i)];
  }
  for (uint32_t i = 0; i < f->s->g->n_ops; i++)
    if (f->of_op[i] >= 0) f->of_op[i] = to[f->of_op[i]];
}

// -- Contiguous order of repeated subgraphs ------------------------------------------------------

typedef Vec(Op *) Ops;

// By op id, the occurrence that the op is in, as long as that is whole; 0: none.
typedef struct Layers {
  int *of_op;
  int n;
} Layers;

static double occurrence_work(const Occurrence *o) {
  double work = 0;
  for (int i = 0; i < o->block->n_members; i++)
    work += o->member[i].op ? op_flops(o->member[i].op) : occurrence_work(o->member[i].inner);
  return work;
}

static void add_layer(const Finder *f, const Member *m, int layer, Ops *out, Layers *layers) {
  if (m->op) {
    if (is_model(m->op)) vec_push(f->arena, out, m->op);
    layers->of_op[m->op->id] = layer;
    return;
  }
  for (int i = 0; i < m->inner->block->n_members; i++)
    add_layer(f, &m->inner->member[i], layer, out, layers);
}

// Divides layers with too much work into their members.
static void add_members(const Finder *f, const Member *m, int n, double most, Ops *out,
                        Layers *layers) {
  for (int i = 0; i < n; i++) {
    bool split = !m[i].op && occurrence_work(m[i].inner) > most;
    if (split)
      add_members(f, m[i].inner->member, m[i].inner->block->n_members, most, out, layers);
    else
      add_layer(f, &m[i], m[i].op ? 0 : ++layers->n, out, layers);
  }
}

// Puts broadcasts into the first unit that reads them: their operands have fewer bytes to send.
static void join_broadcasts(Finder *f, const Ops *order) {
  for (int i = order->n - 1; i >= 0; i--) {
    const Op *op = order->at[i];
    int first = INT_MAX;
    if (op->kind != OP_broadcast || f->of_op[op->id] < 0) continue;
    for_each_use(u, op->out[0]) {
      if (!u->user || !is_model(u->user)) continue;
      int unit = f->of_op[u->user->id];
      if (unit < first) first = unit;
    }
    if (first > f->of_op[op->id] && first < INT_MAX) f->of_op[op->id] = first;
  }
}

// Whether both are parts of one product of the model, such as of queries, keys and values.
static bool same_product(const Op *a, const Op *b) {
  return a->kind == b->kind && a->piece == b->piece && op_info[a->kind].formula == NULL &&
         !str_equal(op_node(a), "") && str_equal(op_node(a), op_node(b));
}

// Whether the op is dealt to another stage than the unit that it would follow, such as a view at
// the beginning of a layer.
static bool is_dealt_apart(const Finder *f, const Op *op) {
  const int *dealt = f->wish->dealt;
  int unit = dealt && dealt[op->id] ? follows(f, op) : UNIT_none;
  const Op *head = unit >= 0 && f->heads.n ? f->heads.at[unit] : NULL;
  return head && dealt[head->id] != dealt[op->id];
}

static void find_fine(Finder *f, const Ops *order) {
  f->heads.n = 0;
  for (int i = 0; i < order->n; i++) {
    Op *op = order->at[i];
    int *unit = &f->of_op[op->id];
    if (f->wish->pieces && op->piece > 1) continue; // left to add_twins
    // Held: a program has a constraint on the op along the axis.
    bool is_held = f->s->decisions.assigned[op->id][f->axis] ||
                   f->s->decisions.fixed_by[op->id][f->axis] ||
                   f->s->constraints.op[op->id][f->axis] || op->split[f->axis] != SPLIT_NONE ||
                   (f->wish->among && !f->wish->among[op->id]);
    bool is_constant = true;
    for (int k = 0; k < op->n_out; k++)
      is_constant &= f->constant[op->out[k]->id];
    if (is_held)
      *unit = UNIT_held;
    else if (is_constant)
      *unit = UNIT_none;
    else if (f->heads.n && same_product(f->heads.at[f->heads.n - 1], op))
      *unit = f->heads.n - 1;
    else if (begins_unit(f, op) || is_dealt_apart(f, op)) {
      *unit = f->heads.n;
      vec_push(f->arena, &f->heads, op);
    } else
      *unit = follows(f, op);
  }
  join_broadcasts(f, order);
}

// -- Merging -------------------------------------------------------------------------------------

// Merges neighbours: `to` has the new unit of each, not descending.
static void merge(Finder *f, const int *to) {
  int n = 0;
  for (int i = 0; i < f->heads.n; i++)
    if (i == 0 || to[i] != to[i - 1]) f->heads.at[n++] = f->heads.at[i];
  for (uint32_t i = 0; i < f->s->g->n_ops; i++)
    if (f->of_op[i] >= 0) f->of_op[i] = to[f->of_op[i]];
  f->heads.n = n;
}

// Whether two units, by their first ops, are dealt to different stages.
static bool are_apart(const Finder *f, int a, int b) {
  const int *dealt = f->wish->dealt;
  return dealt && dealt[f->heads.at[a]->id] != dealt[f->heads.at[b]->id];
}

static void find_units(Finder *f) {
  int least = f->wish->least;
  const Graph *g = f->s->g;
  Ops order = {0};
  Layers layers = {.of_op = arena_array(f->arena, int, g->n_ops)};
  bool *among = arena_array(f->arena, bool, g->n_ops);
  for_each_op(op, g) {
    among[op->id] = is_model(op);
    if (is_model(op)) vec_push(f->arena, &order, op);
  }
  find_fine(f, &order);
  int fine = f->heads.n;
  if (f->wish->again) merge_again(f);
  // A small model keeps its fine units.
  if (f->heads.n <= MAX_FINE || fine <= least) return;
  // Otherwise a unit is a layer, or a part of a large one.
  const Repeats *r = repeats_find(g, LEAST_BLOCK, among, f->arena);
  double all = 0;
  for_each_op(op, g)
    if (is_model(op)) all += op_flops(op);
  double most = f->wish->fine ? 0 : all / (SHARE * (double)least);
  order.n = 0;
  add_members(f, r->order, r->n_order, most, &order, &layers);
  find_fine(f, &order);
  // The units of a layer are one.
  int *to = arena_array(f->arena, int, f->heads.n), unit = -1;
  for (int i = 0; i < f->heads.n; i++) {
    int layer = layers.of_op[f->heads.at[i]->id];
    bool same = i && layer && layer == layers.of_op[f->heads.at[i - 1]->id];
    same = same && !are_apart(f, i - 1, i);
    to[i] = same ? unit : ++unit;
  }
  merge(f, to);
  if (f->wish->again) merge_again(f);
  // Still too many: units of about the same work.
  int limit = f->wish->fine ? MAX_CHAIN : MAX_UNITS, n = f->heads.n;
  if (limit < 2 * least) limit = 2 * least;
  if (n <= limit) return;
  double *work = arena_array(f->arena, double, n), sum = 0, done = 0;
  for_each_op(op, g) {
    if (!is_model(op) || f->of_op[op->id] < 0) continue;
    work[f->of_op[op->id]] += op_flops(op);
    sum += op_flops(op);
  }
  unit = 0;
  for (int i = 0; i < n; i++) {
    bool full = done >= sum * (unit + 1) / limit && unit + 1 < limit;
    if (i && (full || are_apart(f, i - 1, i))) unit++;
    to[i] = unit;
    done += work[i];
  }
  merge(f, to);
}

// -- Chains --------------------------------------------------------------------------------------

// Whether an op of the unit depends on a link of the last unit of the chain; those that do, by op
// id, are its links.
static bool find_links(const Finder *f, int unit, const int *to, int last, bool *link) {
  bool found = false;
  for_each_op(op, f->s->g) {
    if (!is_model(op) || f->of_op[op->id] != unit) continue;
    link[op->id] = false;
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      int from = def ? f->of_op[def->id] : UNIT_none;
      if (from < 0 || !link[def->id]) continue;
      link[op->id] |= from == unit || (from < unit && to[from] == last);
    }
    found |= link[op->id];
  }
  return found;
}

// Merges units so that a path from the first to the last leads through each. Then any stages of
// consecutive units are that many hops deep (pipeline/segments.h): no stage has only ops that wait
// for none before it, such as the first layer of a decoder. Units that are too few then stay.
static void chain_units(Finder *f) {
  int n = f->heads.n, *to = arena_array(f->arena, int, n), last = 0;
  bool *link = arena_array(f->arena, bool, f->s->g->n_ops);
  for_each_op(op, f->s->g)
    link[op->id] = is_model(op) && f->of_op[op->id] == 0;
  for (int unit = 1; unit < n; unit++) {
    bool follows_last = find_links(f, unit, to, last, link);
    to[unit] = follows_last ? ++last : last;
    // It joins the last unit, and its links are those that depend on the unit before that.
    if (!follows_last) find_links(f, unit, to, last - 1, link);
    for_each_op(op, f->s->g)
      if (!last && is_model(op) && f->of_op[op->id] == unit) link[op->id] = true;
  }
  if (last + 1 >= f->wish->least) merge(f, to);
}

// -- Pieces --------------------------------------------------------------------------------------

// The unit of an op of the first piece, by node, kind and number among the ops with both.
typedef struct Twin {
  const char *node;
  OpKind kind;
  int which, unit;
} Twin;

static int by_name(const void *x, const void *y) {
  const Twin *a = x, *b = y;
  int order = strcmp(a->node, b->node);
  if (order) return order;
  return a->kind != b->kind ? (int)a->kind - (int)b->kind : a->which - b->which;
}

static int by_node(const void *x, const void *y) {
  const Op *a = *(Op *const *)x, *b = *(Op *const *)y;
  int order = strcmp(op_node(a), op_node(b));
  if (order) return order;
  return a->kind != b->kind ? (int)a->kind - (int)b->kind : a->id < b->id ? -1 : 1;
}

// Lists the ops of a piece by name and kind, with numbers for those that have both in common.
static Twin *list_piece(const Finder *f, int piece, const Op ***op, int *n) {
  Vec(const Op *) all = {0};
  for_each_op(k, f->s->g)
    if (is_model(k) && k->piece == piece) vec_push(f->arena, &all, k);
  Twin *twin = arena_array(f->arena, Twin, all.n);
  if (all.n) qsort(all.at, (size_t)all.n, sizeof *all.at, by_node);
  // Ops with the same name and kind are next to each other now, in the order of the model.
  for (int i = 0; i < all.n; i++) {
    twin[i] = (Twin){op_node(all.at[i]), all.at[i]->kind, 0, f->of_op[all.at[i]->id]};
    bool same = i && !strcmp(twin[i].node, twin[i - 1].node) && twin[i].kind == twin[i - 1].kind;
    if (same) twin[i].which = twin[i - 1].which + 1;
  }
  *op = all.at;
  *n = all.n;
  return twin;
}

static void add_twins(Finder *f) {
  int n_first, last = 1;
  const Op **op;
  const Twin *first = list_piece(f, 1, &op, &n_first);
  for_each_op(k, f->s->g)
    if (is_model(k) && k->piece > last) last = k->piece;
  for (int piece = 2; piece <= last; piece++) {
    // Ops of other pieces have the units of their twins in the first.
    int n;
    const Op **other_op;
    const Twin *other = list_piece(f, piece, &other_op, &n);
    for (int i = 0; i < n; i++) {
      const Twin *twin =
          n_first ? bsearch(&other[i], first, (size_t)n_first, sizeof *first, by_name) : NULL;
      if (twin) f->of_op[other_op[i]->id] = twin->unit;
    }
  }
}

// -- Gradients -----------------------------------------------------------------------------------

static void add_gradients(Finder *f) {
  const Op *const *model = model_ops(f->s->g, f->arena);
  // The unit of the ops that replace an op of the model, by its number. Some of these, such as the
  // cast of a weight, have no unit.
  int n = 0;
  for_each_op(op, f->s->g)
    if (op->of > n) n = op->of;
  int *by_number = arena_array(f->arena, int, n + 1);
  for (int i = 0; i <= n; i++)
    by_number[i] = UNIT_none;
  for_each_op(op, f->s->g)
    if (is_model(op) && op->of && by_number[op->of] == UNIT_none)
      by_number[op->of] = f->of_op[op->id];
  // A gradient has the unit of its op of the model; of an unknown one, that of its operands.
  for_each_op(op, f->s->g) {
    if (op_part(op) != PART_backward) continue;
    const Op *of = model_op_of(f->s, op, model);
    int unit = of ? f->of_op[of->id] : follows(f, op);
    f->of_op[op->id] = unit == UNIT_none ? by_number[op->of] : unit;
  }
}

Units units_find(const Sharding *s, int axis, const UnitOptions *wish, Arena *a) {
  Finder f = {.s = s, .axis = axis, .wish = wish, .arena = a};
  f.of_op = arena_array(a, int, s->g->n_ops);
  for (uint32_t i = 0; i < s->g->n_ops; i++)
    f.of_op[i] = UNIT_none;
  // Values that are computed from weights and constants alone.
  const Graph *g = s->g;
  f.constant = arena_array(a, bool, g->n_values);
  f.trained = arena_array(a, bool, g->n_values);
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    f.constant[v->id] = v->role != ROLE_input;
    f.trained[v->id] = v->role == ROLE_weight && v->train;
  }
  // A result is constant if all operands are; it is trained if one of them is, too.
  for_each_op(op, g) {
    bool constant = true, trained = false;
    for (int i = 0; i < op->n_in; i++) {
      constant &= f.constant[op->in[i].value->id];
      trained |= f.trained[op->in[i].value->id];
    }
    for (int i = 0; i < op->n_out; i++) {
      f.constant[op->out[i]->id] = constant;
      f.trained[op->out[i]->id] = constant && trained;
    }
  }
  find_units(&f);
  if (wish->chained && !wish->dealt) chain_units(&f);
  if (wish->pieces) add_twins(&f);
  // The first and the last op of each unit.
  Units out = {f.heads.n, f.of_op, arena_array(a, Op *, f.heads.n),
               arena_array(a, Op *, f.heads.n)};
  for_each_op(op, s->g) {
    int unit = is_model(op) ? f.of_op[op->id] : UNIT_none;
    if (unit < 0) continue;
    if (!out.first[unit]) out.first[unit] = op;
    out.last[unit] = op;
  }
  add_gradients(&f);
  return out;
}
