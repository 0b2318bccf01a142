// See blocks.h.

#include "blocks.h"

#include <string.h>

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"

enum { LEAST_OCCURRENCES = 2 };

int occurrence_ops(const Occurrence *o, Op **out) {
  int n = 0;
  for (int i = 0; i < o->block->n_members; i++) {
    const Member *m = &o->member[i];
    if (m->inner)
      n += occurrence_ops(m->inner, out + n);
    else
      out[n++] = m->op;
  }
  return n;
}

int unit_block(const ModelUnits *b, int unit) {
  const Unit *u = &b->unit[unit];
  return u->run < 0 ? -1 : b->run[u->run].first + u->part;
}

// The model while it is divided.
typedef struct Divider {
  const Graph *g;
  const Repeats *r;
  Arena *arena, *scratch;
  ModelUnits *out;
  int *run_of;    // by block id
  int *at;        // by op id: position in the order
  double *across; // by position: elements of activations from there on to later ops
  Vec(Unit) unit;
  Vec(BlockRun) run;
} Divider;

// -- The order ---------------------------------------------------------------------------------

static int count_ops(const Member *m) {
  return m->inner ? m->inner->block->n_ops : 1;
}

// Sets the order of ops, and their positions in it.
static void find_order(Divider *s) {
  ModelUnits *b = s->out;
  int n = 0;
  for (int i = 0; i < s->r->n_order; i++)
    n += count_ops(&s->r->order[i]);
  b->order = arena_array(s->arena, Op *, n);
  for (int i = 0; i < s->r->n_order; i++) {
    const Member *m = &s->r->order[i];
    if (m->inner)
      b->n_order += occurrence_ops(m->inner, b->order + b->n_order);
    else
      b->order[b->n_order++] = m->op;
  }
  s->at = arena_array(s->scratch, int, s->g->n_ops);
  for (int i = 0; i < n; i++)
    s->at[b->order[i]->id] = i;
}

// Sums up the activations that go across each position: values that depend on an input, from their
// op to the last reader of them or of a view of them.
static void find_across(Divider *s) {
  const ModelUnits *b = s->out;
  const Graph *g = s->g;
  const Value **root = arena_array(s->scratch, const Value *, g->n_values);
  int *last = arena_array(s->scratch, int, g->n_values);
  double *change = arena_array(s->scratch, double, b->n_order + 1);
  // Of values that depend on an input, the value of which they are a view; of others NULL.
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->role == ROLE_input) root[g->params[i]->id] = g->params[i];
  for (int i = 0; i < b->n_order; i++) {
    const Op *op = b->order[i];
    bool varies = false;
    for (int k = 0; k < op->n_in; k++) {
      const Value *v = root[op->in[k].value->id];
      varies |= v != NULL;
      if (v) last[v->id] = i;
    }
    for (int k = 0; varies && k < op->n_out; k++) {
      const Value *v = op->out[k], *whole = k == 0 && op_is_view(op) ? op->in[0].value : NULL;
      root[v->id] = whole && root[whole->id] ? root[whole->id] : v;
    }
  }
  for (int i = 0; i < b->n_order; i++)
    for (int k = 0; k < b->order[i]->n_out; k++) {
      const Value *v = b->order[i]->out[k];
      if (root[v->id] != v || last[v->id] <= i) continue;
      change[i] += (double)type_count(v->type);
      change[last[v->id]] -= (double)type_count(v->type);
    }
  s->across = arena_array(s->scratch, double, b->n_order);
  double now = 0;
  for (int i = 0; i < b->n_order; i++)
    s->across[i] = now += change[i];
}

// -- Parts of an occurrence --------------------------------------------------------------------

// Divides an occurrence: part[i] of op i.  Returns the number of parts.
static int divide(const Divider *s, const Occurrence *o, int *part) {
  int n = o->block->n_ops, n_parts = 1, products = 0, left = 0;
  Op **op = arena_array(s->scratch, Op *, n);
  occurrence_ops(o, op);
  for (int i = 0; i < n; i++)
    left += (op_traits(op[i]) & AMP_LOW) != 0;
  double end = s->across[s->at[op[n - 1]->id]];
  for (int i = 0; i < n; i++) {
    bool product = (op_traits(op[i]) & AMP_LOW) != 0;
    part[i] = n_parts - 1;
    products += product;
    left -= product;
    if (!products || !left || s->across[s->at[op[i]->id]] > end) continue;
    n_parts++;
    products = 0;
  }
  return n_parts;
}

// -- Names -------------------------------------------------------------------------------------

// "h.3/attn": the common path of the nodes of these products, or with `all` of these ops; or NULL.
static const char *common_path(Arena *a, Op *const *op, int n, bool all) {
  const char *path = NULL;
  size_t length = 0;
  for (int i = 0; i < n; i++) {
    const char *node = op[i]->loc ? op[i]->loc->node : NULL;
    if (!node || !*node || (!all && !(op_traits(op[i]) & AMP_LOW))) continue;
    if (!path) length = strlen(path = node);
    size_t same = 0;
    while (same < length && path[same] == node[same])
      same++;
    length = same;
  }
  // A whole name, or up to the end of a part of it.
  while (path && length && path[length] && !strchr("/.", path[length - 1]))
    length--;
  while (length && strchr("/.", path[length - 1]))
    length--;
  size_t from = length && path[0] == '/';
  return length > from ? str_copy_n(a, path + from, length - from) : NULL;
}

// -- Units -------------------------------------------------------------------------------------

// Adds a unit of these ops.
static void add_unit(Divider *s, Unit unit, Op *const *op, int n) {
  ModelUnits *b = s->out;
  unit.name = common_path(s->arena, op, n, false);
  if (!unit.name) unit.name = common_path(s->arena, op, n, true);
  if (!unit.name) unit.name = str_format(s->arena, "unit %d", s->unit.n);
  unit.across = s->across[s->at[op[n - 1]->id]];
  for (int i = 0; i < n; i++)
    b->unit_of[op[i]->of] = s->unit.n;
  vec_push(s->arena, &s->unit, unit);
}

static void add_occurrence(Divider *s, const Occurrence *o) {
  BlockRun *run = &s->run.at[s->run_of[o->block->id]];
  int n = o->block->n_ops;
  int *part = arena_array(s->scratch, int, n);
  Op **op = arena_array(s->scratch, Op *, n);
  occurrence_ops(o, op);
  // All occurrences are divided as the second one, as its neighbours are like it.
  const Occurrence *like = o->block->at[0];
  for (int i = 0, seen = 0; i < s->r->n_order && seen < 2; i++)
    if (s->r->order[i].inner && s->r->order[i].inner->block == o->block) {
      like = s->r->order[i].inner;
      seen++;
    }
  run->n_parts = divide(s, like, part);
  for (int p = 0, from = 0, to; p < run->n_parts; p++, from = to) {
    for (to = from; to < n && part[to] == p;)
      to++;
    add_unit(s, (Unit){NULL, s->run_of[o->block->id], run->n, p, 0}, op + from, to - from);
  }
  run->at[run->n++] = o;
}

// Finds the runs: blocks with enough occurrences that are in no other one.
static void find_runs(Divider *s) {
  int *count = arena_array(s->scratch, int, s->r->n_blocks + 1);
  s->run_of = arena_array(s->scratch, int, s->r->n_blocks + 1);
  for (int i = 0; i < s->r->n_order; i++)
    if (s->r->order[i].inner) count[s->r->order[i].inner->block->id]++;
  for (int k = 0; k < s->r->n_blocks; k++) {
    s->run_of[s->r->block[k]->id] = -1;
    if (count[s->r->block[k]->id] < LEAST_OCCURRENCES) continue;
    s->run_of[s->r->block[k]->id] = s->run.n;
    vec_push(s->arena, &s->run,
             ((BlockRun){.at = arena_alloc(s->arena, (size_t)count[s->r->block[k]->id] *
                                                         sizeof(const Occurrence *))}));
  }
}

static void find_units(Divider *s) {
  ModelUnits *b = s->out;
  int from = 0, at = 0;
  for (int i = 0; i <= s->r->n_order; i++) {
    const Occurrence *o = i < s->r->n_order ? s->r->order[i].inner : NULL;
    bool in_run = o && s->run_of[o->block->id] >= 0;
    // The rest up to here is a unit.
    if ((in_run || i == s->r->n_order) && from < at)
      add_unit(s, (Unit){NULL, -1, 0, 0, 0}, b->order + from, at - from);
    if (in_run) add_occurrence(s, o);
    if (i < s->r->n_order) at += count_ops(&s->r->order[i]);
    if (in_run) from = at;
  }
}

const ModelUnits *blocks_find(Module *front, Arena *a) {
  Graph *g = front->graphs;
  Divider s = {.g = g, .arena = a, .scratch = arena_new(), .out = arena_one(a, ModelUnits)};
  ModelUnits *b = s.out;
  graph_renumber(g);
  number_model(g);
  s.r = repeats_find(g, LEAST_BLOCK, NULL, a);
  for_each_op(op, g)
    if (op->of >= b->n_numbers) b->n_numbers = op->of + 1;
  b->front = front;
  b->unit_of = arena_array(a, int, b->n_numbers);
  for (int i = 0; i < b->n_numbers; i++)
    b->unit_of[i] = -1;
  find_order(&s);
  find_across(&s);
  find_runs(&s);
  find_units(&s);
  b->n_units = s.unit.n;
  b->unit = s.unit.at;
  b->n_runs = s.run.n;
  b->run = s.run.at;
  // Numbers of units with equal costs.
  for (int i = 0, next = 0; i < b->n_runs; next += b->run[i++].n_parts)
    b->run[i].first = next;
  arena_free(s.scratch);
  return b;
}
