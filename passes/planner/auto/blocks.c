// See blocks.h.

#include "blocks.h"

#include <string.h>

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"

enum { LEAST_OCCURRENCES = 2 };

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
  int *run_of; // by block id
  ModelOrder order;
  Vec(Unit) unit;
  Vec(BlockRun) run;
} Divider;

// -- Layers ------------------------------------------------------------------------------------

// Numbers the outermost occurrences, in their order.
static void number_layers(Divider *s) {
  ModelUnits *b = s->out;
  int *of = arena_array(s->arena, int, b->n_numbers);
  b->layers = (NumberedLayers){.n_numbers = b->n_numbers, .of = of};
  for (int i = 0, at = 0; i < s->r->n_order; i++) {
    const Member *m = &s->r->order[i];
    int n = m->inner ? m->inner->block->n_ops : 1;
    b->layers.n_layers += m->inner != NULL;
    for (int k = 0; m->inner && k < n; k++)
      of[b->order[at + k]->of] = b->layers.n_layers;
    at += n;
  }
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

// -- Layers that run several times -------------------------------------------------------------

const Occurrence *same_layer(const BlockRun *run, const Occurrence *time, int i) {
  for (int k = 0; k < time->block->n_members; k++) {
    const Occurrence *o = time->member[k].inner;
    if (o && o->block == run->layer && i-- == 0) return o;
  }
  return NULL;
}

// Adds `by` to the number of times that an occurrence reads each weight, by value id. Returns
// whether all of them are 0 then.
static bool count_reads(const Occurrence *o, int by, int *reads, Arena *a) {
  Op **op = arena_array(a, Op *, o->block->n_ops);
  int n = occurrence_ops(o, op);
  bool zero = true;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < n; i++)
      for (int k = 0; k < op[i]->n_in; k++) {
        const Value *v = op[i]->in[k].value;
        if (v->def || v->role == ROLE_input) continue;
        if (pass == 0)
          reads[v->id] += by;
        else
          zero &= reads[v->id] == 0;
      }
  return zero;
}

static bool has_same_weights(const Occurrence *x, const Occurrence *y, const Graph *g, Arena *a) {
  int *reads = arena_array(a, int, g->n_values);
  count_reads(x, 1, reads, a);
  return count_reads(y, -1, reads, a) && count_reads(x, 0, reads, a);
}

// Whether each occurrence of `times`, which is one unit, goes through all layers of the run, that
// are occurrences of a block there.
static bool goes_through(const BlockRun *times, const BlockRun *run, const Graph *g, Arena *a) {
  if (times->n_parts > 1) return false;
  for (int t = 0; t < times->n; t++) {
    if (same_layer(run, times->at[t], run->n)) return false;
    for (int i = 0; i < run->n; i++) {
      const Occurrence *o = same_layer(run, times->at[t], i);
      if (!o || !has_same_weights(run->at[i], o, g, a)) return false;
    }
  }
  return true;
}

// The block with as many ops as `like` within an occurrence; or NULL.
static const Block *block_within(const Occurrence *o, const Block *like) {
  for (int k = 0; k < o->block->n_members; k++) {
    const Occurrence *inner = o->member[k].inner;
    if (inner && inner->block->n_ops == like->n_ops) return inner->block;
  }
  return NULL;
}

static void find_times(Divider *s) {
  for (int r = 0; r < s->run.n; r++) {
    BlockRun *run = &s->run.at[r];
    run->times = -1;
    for (int t = 0; t < s->run.n && run->times < 0; t++) {
      run->layer = block_within(s->run.at[t].at[0], run->at[0]->block);
      if (run->layer && goes_through(&s->run.at[t], run, s->g, s->scratch)) run->times = t;
    }
  }
}

// -- Units -------------------------------------------------------------------------------------

// Adds a unit of these ops.
static void add_unit(Divider *s, Unit unit, Op *const *op, int n) {
  ModelUnits *b = s->out;
  unit.name = common_path(s->arena, op, n, false);
  if (!unit.name) unit.name = common_path(s->arena, op, n, true);
  if (!unit.name) unit.name = str_format(s->arena, "unit %d", s->unit.n);
  unit.across = s->order.across[s->order.at[op[n - 1]->id]];
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
  run->n_parts = block_parts(&s->order, o->block, part, s->scratch);
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
    if (i < s->r->n_order) at += o ? o->block->n_ops : 1;
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
  s.order = model_order(g, s.r, NULL, a);
  b->order = s.order.op;
  b->n_order = s.order.n;
  number_layers(&s);
  find_runs(&s);
  find_units(&s);
  find_times(&s);
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
