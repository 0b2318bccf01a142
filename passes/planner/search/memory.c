// See memory.h.
//
// Each value of lives.h becomes buffers with a live range (memory_events.h): one in the produced
// layout, and one for each other layout that readers want.

#include "memory.h"

#include "comm/hops.h"
#include "ir/analysis/loops.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "memory_events.h"
#include "planner/plan/outer.h"
#include "value_layouts.h"

// A reader, or several with the same layout.
typedef struct Want {
  const Share *as;
  TrainPart part; // of a weight: each part gathers it again
  int64_t first, last;
} Want;

typedef struct Maker {
  Problem *p;
  const Lives *lives;
  Value **value; // by id
  Arena *scratch;
  Shares *shares;
  Memory *out;
  int *known; // hash of buffers: an index + 1
  int known_size;
  Vec(Span) span;
} Maker;

// -- Buffers -----------------------------------------------------------------------------------

int64_t buffer_bytes(const Buffer *b, int choice) {
  return b->as ? (int64_t)((double)b->bytes / parts_of(b->as->layout[choice])) : b->bytes;
}

int64_t copy_bytes(const Buffer *b, int from, int as) {
  const Layout *made = b->from->layout[from], *wanted = b->as->layout[as];
  bool is_copied = made->mesh != wanted->mesh;
  // A partial sum is reduced in place.
  for (int a = 0; a < made->n_axes && !is_copied; a++) {
    bool added_up = made->axis[a].kind == SBP_P && wanted->axis[a].kind == SBP_B;
    is_copied = !added_up && !sbp_equal(made->axis[a], wanted->axis[a]);
  }
  return is_copied ? buffer_bytes(b, as) : 0;
}

static int *buffer_slot(const Maker *k, const Buffer *b) {
  uint64_t h = (uintptr_t)b->from * 0x9e3779b97f4a7c15u ^ (uintptr_t)b->as;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u ^ (uint64_t)b->bytes;
  for (h = (h ^ h >> 32) * 0x94d049bb133111ebu;; h++) {
    int *at = &k->known[h & (uint64_t)(k->known_size - 1)];
    const Buffer *other = *at ? &k->out->buffer.at[*at - 1] : NULL;
    if (!other || (other->from == b->from && other->as == b->as && other->bytes == b->bytes))
      return at;
  }
}

static void add(Maker *k, const Lived *l, const Share *from, const Share *as, int64_t first,
                int64_t last) {
  if (last > l->to) last = l->to;
  if (first > last || l->bytes == 0 || (from && (from == as || !as))) return;
  // The table doubles when it is half full.
  if (2 * k->out->buffer.n >= k->known_size) {
    k->known_size = k->known_size ? 2 * k->known_size : 1024;
    k->known = arena_array(k->scratch, int, k->known_size);
    for (int i = 0; i < k->out->buffer.n; i++)
      *buffer_slot(k, &k->out->buffer.at[i]) = i + 1;
  }
  Buffer b = {from, as, l->bytes};
  if (from && from->node == as->node) b.from = NULL; // one node decides both
  // A copy that is empty under all choices needs no buffer.
  bool empty = b.from != NULL;
  for (int i = 0; empty && i < k->p->nodes.at[from->node].choices.n; i++)
    for (int c = 0; empty && c < k->p->nodes.at[as->node].choices.n; c++)
      empty = !copy_bytes(&b, i, c);
  if (empty) return;
  int *at = buffer_slot(k, &b);
  if (!*at) {
    vec_push(k->p->scratch, &k->out->buffer, b);
    *at = k->out->buffer.n;
  }
  const Layout *on = k->value[l->id]->layout;
  int mesh = on && on->mesh ? on->mesh->id : 0;
  vec_push(k->scratch, &k->span, ((Span){*at - 1, first, last, mesh}));
}

// -- Live ranges of buffers --------------------------------------------------------------------

// Returns the time of a read: through a view, that of the last reader of the view.
static int64_t read_at(const Maker *k, const Op *op) {
  int64_t time = k->lives->time[op->id];
  if (!(op_info[op->kind].traits & VIEW)) return time;
  for_each_use(u, op->out[0]) {
    int64_t later = u->user ? read_at(k, u->user) : k->lives->end;
    if (later > time) time = later;
  }
  return time;
}

typedef Vec(Want) Wants;

// Returns the layouts of the states of the weight with this gradient; NULL: it is no weight's
// gradient.
static const Share *for_update(Maker *k, const Value *v) {
  for_each_use(u, v)
    if (u->user && updated_by(k->p, u->user) >= 0)
      return share_of_node(k->shares, updated_by(k->p, u->user), true);
  return NULL;
}

// Collects the layouts that readers want, and returns the last time at which the produced layout is
// read.
static int64_t find_wants(Maker *k, const Lived *l, const Share *made, Wants *wants) {
  int64_t last = l->from;
  const Value *v = k->value[l->id];
  const Share *update = for_update(k, v);
  bool by_part = weight_of(v) != NULL; // copied separately for each part
  for_each_use(u, v) {
    const Op *op = u->user;
    const Share *as = op ? share_read(k->shares, u) : NULL;
    int64_t time = op ? read_at(k, op) : l->to;
    // Users see replicated values.
    if (!op && made && v->graph->results[u->index]->label) {
      const Problem *p = k->p;
      int n = p->nodes.at[made->node].choices.n;
      const Layout **layout = arena_array(k->scratch, const Layout *, n);
      for (int c = 0; c < n; c++)
        layout[c] = layout_broadcast(p->s->g->module, made->layout[c]->mesh);
      as = share_of(k->shares, made->node, layout);
    }
    if (!as && op && op_part(op) == PART_update) as = update;
    if (!as || as == made) {
      if (time > last) last = time;
      continue;
    }
    // Readers of one part of the program that want the same layout share a copy.
    TrainPart part = by_part ? op_part(op) : PART_forward;
    Want *want = NULL;
    for (int i = 0; i < wants->n && !want; i++)
      if (wants->at[i].as == as && wants->at[i].part == part) want = &wants->at[i];
    if (!want) {
      vec_push(k->scratch, wants, ((Want){as, part, time, time}));
      continue;
    }
    want->first = time < want->first ? time : want->first;
    want->last = time > want->last ? time : want->last;
  }
  return last < l->to ? last : l->to;
}

// A gradient that an outer program shards before time slices are accumulated: the gradient of one
// slice is whole only while it is sharded.
static bool add_pinned(Maker *k, const Lived *l) {
  const Value *v = k->value[l->id];
  const Outer *outer = k->p->outer;
  const Share *made = share_made(k->shares, v), *update = for_update(k, v);
  if (!outer || !outer->parts[v->id] || l->from || !made || !update) return false;
  // The sum has the produced layout, except along axes that outer programs shard it along.
  const Problem *p = k->p;
  const Layout *states = update->layout[0];
  int n = p->nodes.at[made->node].choices.n;
  const Layout **layout = arena_array(k->scratch, const Layout *, n);
  for (int c = 0; c < n; c++) {
    layout[c] = made->layout[c];
    for (int a = 0; a < states->n_axes; a++)
      if (outer->axis[a]) layout[c] = with_axis(p->s->g->module, layout[c], a, states->axis[a]);
  }
  add(k, l, NULL, share_of(k->shares, made->node, layout), l->from, l->to);
  // The gradient of one slice has the produced layout.
  int64_t time = k->lives->time[v->def->id];
  add(k, l, NULL, made, time, time + 1);
  return true;
}

static void add_value(Maker *k, const Lived *l) {
  Wants wants = {0};
  const Value *v = k->value[l->id];
  if (add_pinned(k, l)) return;
  const Share *made = share_made(k->shares, v);
  int64_t last = find_wants(k, l, made, &wants), brought = l->from + 1;
  // A weight keeps its own layout, and each part of the step gathers its copies again.
  if (weight_of(v)) {
    add(k, l, NULL, made, l->from, l->to);
    for (int i = 0; i < wants.n; i++)
      if (wants.at[i].part != PART_update)
        add(k, l, made, wants.at[i].as, wants.at[i].first - 1, wants.at[i].last);
    return;
  }
  if (l->from == 0 && v->def) { // accumulated over time slices, and resharded after the last
    if (last < k->lives->update) last = k->lives->update;
    brought = last;
  }
  // The layout that is wanted longest takes the place of the produced one.
  const Want *most = NULL;
  for (int i = 0; i < wants.n; i++)
    if (!most || wants.at[i].last > most->last) most = &wants.at[i];
  if (!most || l->kept) {
    add(k, l, NULL, made, l->from, l->to);
    return;
  }
  int shared = k->p->shared_node[v->id];
  // With several readers, other layouts are copies of that of the shared node.
  const Share *all = shared >= 0 ? share_of_node(k->shares, shared, false) : most->as;
  if (last < brought) last = brought;
  // The produced layout, then the wanted one, and both while their live ranges overlap.
  add(k, l, NULL, made, l->from, last);
  add(k, l, NULL, all, last + 1, most->last);
  add(k, l, made, all, brought, last < most->last ? last : most->last);
  for (int i = 0; i < wants.n; i++)
    if (wants.at[i].as != all) add(k, l, all, wants.at[i].as, brought, wants.at[i].last);
}

Memory *memory_of(Problem *p, const Lives *lives) {
  Arena *scratch = arena_new();
  const Graph *g = p->s->g;
  Maker k = {.p = p, .lives = lives, .scratch = scratch, .out = arena_one(p->scratch, Memory)};
  k.shares = shares_new(p, scratch);
  // Live ranges name values by id.
  k.value = arena_array(scratch, Value *, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    k.value[g->params[i]->id] = g->params[i];
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      k.value[op->out[i]->id] = op->out[i];
  bool *lived = arena_array(scratch, bool, g->n_values);
  for (int i = 0; i < lives->n; i++) {
    add_value(&k, &lives->at[i]);
    lived[lives->at[i].id] = true;
  }
  // Values within kernels are not in memory on a single device, but are next to a collective.
  for_each_op(op, g) {
    const Value *v = op->out[0];
    if (!op_is_elementwise(op) || lived[v->id] || op_part(op) == PART_update) continue;
    int64_t slices = weight_of(v) ? 1 : p->slices, time = lives->time[op->id];
    Lived l = {v->id, type_bytes(v->type) / slices, time, lives->end, false};
    Wants wants = {0};
    const Share *made = share_made(k.shares, v);
    find_wants(&k, &l, made, &wants);
    for (int i = 0; i < wants.n; i++)
      add(&k, &l, made, wants.at[i].as, time, wants.at[i].last);
  }
  k.out->count = moments_count(k.span.at, k.span.n, k.out->buffer.n, g->module, scratch, p->scratch,
                               &k.out->n_rows);
  arena_free(scratch);
  return k.out;
}

int64_t memory_least(const Problem *p, const Memory *m) {
  int n = m->buffer.n;
  Arena *a = arena_new();
  int64_t *bytes = arena_array(a, int64_t, n), most = 0;
  for (int i = 0; i < n; i++) {
    const Buffer *b = &m->buffer.at[i];
    if (b->from) continue;
    bytes[i] = buffer_bytes(b, 0);
    for (int k = 1; b->as && k < p->nodes.at[b->as->node].choices.n; k++)
      if (buffer_bytes(b, k) < bytes[i]) bytes[i] = buffer_bytes(b, k);
  }
  for (int r = 0; r < m->n_rows; r++) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
      sum += bytes[i] * m->count[(int64_t)r * n + i];
    if (sum > most) most = sum;
  }
  arena_free(a);
  return most;
}

int64_t memory_peak(const Memory *m, const int *choice, int64_t limit, bool *out_copies) {
  int n = m->buffer.n;
  Arena *a = arena_new();
  // The bytes of each buffer under these choices.
  int64_t *bytes = arena_array(a, int64_t, n), peak = 0;
  for (int i = 0; i < n; i++) {
    const Buffer *b = &m->buffer.at[i];
    int as = b->as ? choice[b->as->node] : 0;
    bytes[i] = b->from ? copy_bytes(b, choice[b->from->node], as) : buffer_bytes(b, as);
  }
  // A time above the limit reports its copies.
  for (int r = 0; r < m->n_rows; r++) {
    const int *count = m->count + (int64_t)r * n;
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
      sum += bytes[i] * count[i];
    if (sum > peak) peak = sum;
    for (int i = 0; i < n && sum > limit; i++)
      if (m->buffer.at[i].from && bytes[i] && count[i]) out_copies[i] = true;
  }
  arena_free(a);
  return peak;
}
