// See memory.h.

#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "hops.h"
#include "ir/loops.h"
#include "ir/op.h"
#include "ir/place.h"
#include "ir/split.h"
#include "lives.h"
#include "outer.h"
#include "part.h"

// Some buffer in [from, to], on the mesh of `v`.
typedef struct Span {
  int buffer;
  int64_t from, to;
  int mesh;
} Span;

// A reader, or several alike.
typedef struct Want {
  const Share *as;
  TrainPart part; // of a weight: it is brought for each part anew
  int64_t first, last;
} Want;

// What is asked of a node again and again, by layers that are decided alike: how its op gives its
// results and wants its operands, or how its value lies and its gradient; NULL before.
typedef struct OfNode {
  const Share **gives, **wants, *lies, *back;
} OfNode;

// Gradients that are alike lie the same by their op of the model: see gradient_of.
typedef struct Gradient {
  int node;
  const Dims *dims, *of_dims;
  const Mesh *mesh;
  char split[MAX_AXES];
  int n_in;
  const int *comes;    // of each operand, from where in the op of the model
  const Share **share; // of operands and results, NULL before they have been asked for
  struct Gradient *next;
} Gradient;

enum { N_GRADIENTS = 1024 }; // buckets of a hash

typedef struct Maker {
  Problem *p;
  const Lives *lives;
  Value **value; // by id
  Arena *scratch;
  const Share **shares; // by node
  OfNode *of_node;
  Gradient *gradients[N_GRADIENTS];
  Gradient **gradient_of; // by op id, or NULL
  const Share **given;    // by value id, as far as they have been asked for
  bool *asked;
  Memory *out;
  int *known; // hash of buffers: an index + 1
  int known_size;
  Vec(Span) span;
} Maker;

// -- How values lie ----------------------------------------------------------------------------

// The same for all that lie the same by the choices of one node.
static const Share *share_of(Maker *k, int node, const Layout **lies) {
  size_t size = (size_t)k->p->nodes.at[node].choices.n * sizeof *lies;
  for (const Share *s = k->shares[node]; s; s = s->next)
    if (!memcmp(s->lies, lies, size)) return s;
  Share *s = arena_one(k->p->scratch, Share);
  *s = (Share){node, arena_copy(k->p->scratch, lies, size), k->shares[node]};
  return k->shares[node] = s;
}

typedef const Layout *LiesFn(const Problem *p, const Op *op, int i, const Choice *c);

// Of an op of the model, under each of its choices.
static const Share *find_share_of_op(Maker *k, int node, int i, LiesFn *lies_under) {
  Problem *p = k->p;
  const Node *n = &p->nodes.at[node];
  const Layout **lies = arena_array(k->scratch, const Layout *, n->choices.n);
  for (int c = 0; c < n->choices.n; c++) {
    choose_split(p, n, &n->choices.at[c]);
    lies[c] = lies_under(p, n->op, i, &n->choices.at[c]);
  }
  return share_of(k, node, lies);
}

static const Layout *gives(const Problem *p, const Op *op, int i, const Choice *c) {
  (void)c;
  return op_gives(p, op, i);
}

static const Share *share_given(Maker *k, const Op *op, int i) {
  int node = k->p->op_node[op->id];
  if (node < 0) return NULL;
  const Share ***all = &k->of_node[node].gives;
  if (!*all) *all = arena_array(k->scratch, const Share *, op->n_out);
  if (!(*all)[i]) (*all)[i] = find_share_of_op(k, node, i, gives);
  return (*all)[i];
}

static const Share *share_wanted(Maker *k, const Op *op, int i) {
  int node = k->p->op_node[op->id];
  if (node < 0) return NULL;
  const Share ***all = &k->of_node[node].wants;
  if (!*all) *all = arena_array(k->scratch, const Share *, op->n_in);
  if (!(*all)[i]) (*all)[i] = find_share_of_op(k, node, i, op_wants);
  return (*all)[i];
}

static const Share *find_share_of_node(Maker *k, int node, bool back) {
  const Node *n = &k->p->nodes.at[node];
  const Layout **lies = arena_array(k->scratch, const Layout *, n->choices.n);
  for (int c = 0; c < n->choices.n; c++)
    lies[c] = back ? back_as(k->p, n->v, n->choices.at[c].back)
                   : lies_as(k->p, n->v, n->choices.at[c].lies);
  return share_of(k, node, lies);
}

static const Share *share_of_node(Maker *k, int node, bool back) {
  if (node < 0) return NULL;
  const Share **known = back ? &k->of_node[node].back : &k->of_node[node].lies;
  if (!*known) *known = find_share_of_node(k, node, back);
  return *known;
}

// -- Gradients ---------------------------------------------------------------------------------

// Where an operand of a gradient comes from, as choose_gradient_split looks at it: operand i of its
// op of the model, a gradient of that one's result i, or neither.
static int comes_from(const Value *v, const Op *of) {
  for (int i = 0; i < of->n_in; i++)
    if (of->in[i].value == v) return i;
  for (int i = 0; i < of->n_out; i++)
    if (of->out[i]->type == v->type) return of->n_in + i;
  return -1;
}

static bool same_gradient(const Gradient *x, const Gradient *y) {
  return x->node == y->node && x->dims == y->dims && x->of_dims == y->of_dims &&
         x->mesh == y->mesh && x->n_in == y->n_in && !memcmp(x->split, y->split, sizeof x->split) &&
         !memcmp(x->comes, y->comes, (size_t)x->n_in * sizeof *x->comes);
}

// Those of layers that are alike: of one node, with the same einsum, of the same operands.
static Gradient *gradient_of(Maker *k, const Op *op, const Op *of) {
  if (k->gradient_of[op->id]) return k->gradient_of[op->id];
  const Problem *p = k->p;
  int *comes = arena_array(k->scratch, int, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    comes[i] = comes_from(op->in[i].value, of);
  Gradient g = {.node = p->op_node[of->id], .n_in = op->n_in, .comes = comes, .mesh = op_mesh(op)};
  g.dims = dims_of(p->s, op);
  g.of_dims = dims_of(p->s, of);
  memcpy(g.split, op->split, sizeof g.split);
  for (int i = 0; i < p->n_axes; i++)
    g.split[p->axis[i]] = 0; // the choices say it
  uint64_t h = ((uintptr_t)g.dims * 0x9e3779b97f4a7c15u ^ (uint64_t)g.node) * 0xbf58476d1ce4e5b9u;
  Gradient **bucket = &k->gradients[h >> 32 & (N_GRADIENTS - 1)], *at = *bucket;
  while (at && !same_gradient(at, &g))
    at = at->next;
  if (!at) {
    g.share = arena_array(k->scratch, const Share *, op->n_in + op->n_out);
    g.next = *bucket;
    *bucket = at = arena_copy(k->scratch, &g, sizeof g);
  }
  return k->gradient_of[op->id] = at;
}

// Of operand or result `i` of a gradient, under each choice of its op of the model.
static const Share *find_share_of_gradient(Maker *k, Op *op, Op *of, int i, bool result) {
  Problem *p = k->p;
  int node = p->op_node[of->id];
  const Sbp whole = {.kind = SBP_B};
  const Node *n = &p->nodes.at[node];
  const Mesh *mesh = op_mesh(op);
  const Layout **lies = arena_array(k->scratch, const Layout *, n->choices.n);
  char before[MAX_AXES], of_before[MAX_AXES];
  memcpy(before, op->split, sizeof before);
  memcpy(of_before, of->split, sizeof of_before);
  for (int c = 0; c < n->choices.n; c++) {
    Sbp sbp[MAX_AXES];
    for (int a = 0; a < p->n_axes; a++)
      of->split[p->axis[a]] = n->choices.at[c].split[p->axis[a]];
    choose_gradient_split(p, op, of);
    for (int a = 0; a < mesh->n_axes; a++)
      sbp[a] = result ? split_gives(op, dims_of(p->s, op), i, a)
                      : split_wants(op, dims_of(p->s, op), i, a, whole);
    lies[c] = layout_new(p->s->g->module, mesh, sbp);
  }
  memcpy(op->split, before, sizeof before);
  memcpy(of->split, of_before, sizeof of_before);
  return share_of(k, node, lies);
}

static const Share *share_of_gradient(Maker *k, Op *op, Op *of, int i, bool result) {
  if (k->p->op_node[of->id] < 0) return NULL;
  const Share **known = &gradient_of(k, op, of)->share[result ? op->n_in + i : i];
  if (!*known) *known = find_share_of_gradient(k, op, of, i, result);
  return *known;
}

// -- What makes and reads a value --------------------------------------------------------------

// The node of the weight that an op updates; -1: of none.
static int updated_by(const Problem *p, const Op *op) {
  const Value *v = op->n_in ? op->in[0].value : NULL;
  bool is = v && op_part(op) == PART_update && !v->def && v->role == ROLE_weight;
  return is ? p->value_node[v->id] : -1;
}

static const Share *wanted(Maker *k, const Use *u) {
  Op *op = u->user, *of;
  switch (op_part(op)) {
  case PART_forward: return share_wanted(k, op, u->index);
  case PART_backward:
    of = model_of(op);
    return of ? share_of_gradient(k, op, of, u->index, false) : NULL;
  case PART_update: return share_of_node(k, updated_by(k->p, op), true);
  case N_TRAIN_PARTS: break;
  }
  return NULL;
}

static const Share *given(Maker *k, const Value *v);

// A sum of gradients, say: as its reader wants it, or as that lies that it is made of.
static const Share *given_by_others(Maker *k, const Value *v) {
  for_each_use(u, v) {
    const Share *s = u->user ? wanted(k, u) : NULL;
    if (s) return s;
  }
  for (int i = 0; i < v->def->n_in; i++)
    if (v->def->in[i].value->type == v->type) return given(k, v->def->in[i].value);
  return NULL;
}

static const Share *given_param(Maker *k, const Value *v) {
  const Problem *p = k->p;
  if (v->role != ROLE_state) return share_of_node(k, p->value_node[v->id], false);
  for_each_use(u, v)
    if (u->user && updated_by(p, u->user) >= 0)
      return share_of_node(k, updated_by(p, u->user), true);
  return share_of_node(k, p->value_node[v->id], false);
}

static const Share *find_given(Maker *k, const Value *v) {
  Op *op = v->def, *of = NULL;
  if (!op) return given_param(k, v);
  if (op_part(op) == PART_forward) return share_given(k, op, v->index);
  if (op_part(op) == PART_backward) of = model_of(op);
  if (of) return share_of_gradient(k, op, of, v->index, true);
  int node = updated_by(k->p, op);
  return node >= 0 ? share_of_node(k, node, true) : given_by_others(k, v);
}

// How it lies as it is made; NULL: nothing that is known decides it.
static const Share *given(Maker *k, const Value *v) {
  if (!k->asked[v->id]) k->given[v->id] = find_given(k, v);
  k->asked[v->id] = true;
  return k->given[v->id];
}

// -- Buffers -----------------------------------------------------------------------------------

int64_t buffer_bytes(const Buffer *b, int choice) {
  return b->as ? (int64_t)((double)b->bytes / parts_of(b->as->lies[choice])) : b->bytes;
}

// A sum is added up where it is.
static bool is_copied(const Layout *from, const Layout *as) {
  if (from->mesh != as->mesh) return true;
  for (int a = 0; a < from->n_axes; a++) {
    bool added_up = from->axis[a].kind == SBP_P && as->axis[a].kind == SBP_B;
    if (!added_up && !sbp_equal(from->axis[a], as->axis[a])) return true;
  }
  return false;
}

int64_t copy_bytes(const Buffer *b, int from, int as) {
  return is_copied(b->from->lies[from], b->as->lies[as]) ? buffer_bytes(b, as) : 0;
}

static uint64_t buffer_hash(const Buffer *b) {
  uint64_t h = (uintptr_t)b->from * 0x9e3779b97f4a7c15u ^ (uintptr_t)b->as;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u ^ (uint64_t)b->bytes;
  return (h ^ h >> 32) * 0x94d049bb133111ebu;
}

static int *buffer_slot(const Maker *k, const Buffer *b) {
  for (uint64_t h = buffer_hash(b);; h++) {
    int *at = &k->known[h & (uint64_t)(k->known_size - 1)];
    const Buffer *other = *at ? &k->out->buffer.at[*at - 1] : NULL;
    if (!other || (other->from == b->from && other->as == b->as && other->bytes == b->bytes))
      return at;
  }
}

static void grow(Maker *k) {
  k->known_size = k->known_size ? 2 * k->known_size : 1024;
  k->known = arena_array(k->scratch, int, k->known_size);
  for (int i = 0; i < k->out->buffer.n; i++)
    *buffer_slot(k, &k->out->buffer.at[i]) = i + 1;
}

static bool ever_copied(const Maker *k, const Buffer *b) {
  for (int i = 0; i < k->p->nodes.at[b->from->node].choices.n; i++)
    for (int c = 0; c < k->p->nodes.at[b->as->node].choices.n; c++)
      if (copy_bytes(b, i, c)) return true;
  return false;
}

static void add(Maker *k, const Lived *l, const Share *from, const Share *as, int64_t first,
                int64_t last) {
  if (last > l->to) last = l->to;
  if (first > last || l->bytes == 0 || (from && (from == as || !as))) return;
  if (2 * k->out->buffer.n >= k->known_size) grow(k);
  Buffer b = {from, as, l->bytes};
  if (from && from->node == as->node) b.from = NULL; // as one choice has it
  if (b.from && !ever_copied(k, &b)) return;
  int *at = buffer_slot(k, &b);
  if (!*at) {
    vec_push(k->p->scratch, &k->out->buffer, b);
    *at = k->out->buffer.n;
  }
  const Layout *on = k->value[l->id]->layout;
  int mesh = on && on->mesh ? on->mesh->id : 0;
  vec_push(k->scratch, &k->span, ((Span){*at - 1, first, last, mesh}));
}

// -- When which are there ----------------------------------------------------------------------

// What is read through a view is read later.
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

static void add_want(const Maker *k, Wants *wants, const Share *as, TrainPart part, int64_t time) {
  for (int i = 0; i < wants->n; i++) {
    Want *w = &wants->at[i];
    if (w->as != as || w->part != part) continue;
    w->first = time < w->first ? time : w->first;
    w->last = time > w->last ? time : w->last;
    return;
  }
  vec_push(k->scratch, wants, ((Want){as, part, time, time}));
}

// How the states of the weight lie that a gradient is for; NULL: it is for none.
static const Share *for_update(Maker *k, const Value *v) {
  for_each_use(u, v)
    if (u->user && updated_by(k->p, u->user) >= 0)
      return share_of_node(k, updated_by(k->p, u->user), true);
  return NULL;
}

// What is shown to users is whole.
static const Share *shown_whole(Maker *k, const Share *made) {
  const Problem *p = k->p;
  int n = p->nodes.at[made->node].choices.n;
  const Layout **lies = arena_array(k->scratch, const Layout *, n);
  for (int c = 0; c < n; c++)
    lies[c] = layout_broadcast(p->s->g->module, made->lies[c]->mesh);
  return share_of(k, made->node, lies);
}

// Adds what readers want, and returns the last moment at which it is read as it is made.
static int64_t find_wants(Maker *k, const Lived *l, const Share *made, Wants *wants) {
  int64_t last = l->from;
  const Value *v = k->value[l->id];
  const Share *update = for_update(k, v);
  bool by_part = weight_of(v) != NULL; // its copies are made where they are read
  for_each_use(u, v) {
    const Op *op = u->user;
    const Share *as = op ? wanted(k, u) : NULL;
    int64_t time = op ? read_at(k, op) : l->to;
    if (!op && made && v->graph->results[u->index]->label) as = shown_whole(k, made);
    if (!as && op && op_part(op) == PART_update) as = update;
    if (as && as != made)
      add_want(k, wants, as, by_part ? op_part(op) : PART_forward, time);
    else if (time > last)
      last = time;
  }
  return last < l->to ? last : l->to;
}

static const Want *longest(const Wants *wants) {
  const Want *most = NULL;
  for (int i = 0; i < wants->n; i++)
    if (!most || wants->at[i].last > most->last) most = &wants->at[i];
  return most;
}

static void add_weight(Maker *k, const Lived *l, const Share *made, const Wants *wants) {
  add(k, l, NULL, made, l->from, l->to);
  for (int i = 0; i < wants->n; i++)
    if (wants->at[i].part != PART_update)
      add(k, l, made, wants->at[i].as, wants->at[i].first - 1, wants->at[i].last);
}

// As it is made, but along the axes that outer programs cut it along.
static const Share *pinned(Maker *k, const Share *made, const Layout *update) {
  const Problem *p = k->p;
  const Outer *outer = p->s->outer;
  int n = p->nodes.at[made->node].choices.n;
  const Layout **lies = arena_array(k->scratch, const Layout *, n);
  for (int c = 0; c < n; c++) {
    lies[c] = made->lies[c];
    for (int a = 0; a < update->n_axes; a++)
      if (outer->axis[a]) lies[c] = with_axis(p->s->g->module, lies[c], a, update->axis[a]);
  }
  return share_of(k, made->node, lies);
}

// A gradient that an outer program cuts before slices of time are added up: whole only as long as
// it takes to cut that of one.
static bool add_pinned(Maker *k, const Lived *l) {
  const Value *v = k->value[l->id];
  const Outer *outer = k->p->s->outer;
  const Share *made = given(k, v), *update = for_update(k, v);
  if (!outer || !outer->parts[v->id] || l->from || !made || !update) return false;
  int64_t time = k->lives->time[v->def->id];
  add(k, l, NULL, pinned(k, made, update->lies[0]), l->from, l->to);
  add(k, l, NULL, made, time, time + 1);
  return true;
}

static void add_value(Maker *k, const Lived *l) {
  Wants wants = {0};
  const Value *v = k->value[l->id];
  if (add_pinned(k, l)) return;
  const Share *made = given(k, v);
  int64_t last = find_wants(k, l, made, &wants), brought = l->from + 1;
  if (weight_of(v)) {
    add_weight(k, l, made, &wants);
    return;
  }
  if (l->from == 0 && v->def && last < k->lives->update) last = k->lives->update; // added up
  const Want *most = longest(&wants);
  if (!most || l->kept) {
    add(k, l, NULL, made, l->from, l->to);
    return;
  }
  int shared = k->p->shared_node[v->id];
  const Share *all = shared >= 0 ? share_of_node(k, shared, false) : most->as;
  if (last < brought) last = brought;
  add(k, l, NULL, made, l->from, last);
  add(k, l, NULL, all, last + 1, most->last);
  add(k, l, made, all, brought, last < most->last ? last : most->last);
  for (int i = 0; i < wants.n; i++)
    if (wants.at[i].as != all) add(k, l, all, wants.at[i].as, brought, wants.at[i].last);
}

// -- Moments -----------------------------------------------------------------------------------

static int by_from(const void *x, const void *y) {
  const Span *a = x, *b = y;
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static int by_to(const void *x, const void *y) {
  const Span *a = x, *b = y;
  return (a->to > b->to) - (a->to < b->to);
}

// A moment at which something begins, and after which something ends before more begins.
typedef struct Row {
  int64_t time;
  uint64_t begun; // which buffers begin at that moment: layers that are alike have the same
  int *count;     // of each buffer
  bool needed;
} Row;

typedef Vec(Row) Rows;

// Of what is on devices of one mesh.
static void find_rows(const Maker *k, const Meets *meets, int mesh, Rows *out) {
  int n = 0, n_buffers = k->out->buffer.n, end = 0, *now = arena_array(k->scratch, int, n_buffers);
  Span *from = arena_array(k->scratch, Span, k->span.n);
  for (int i = 0; i < k->span.n; i++)
    if (meets->pair[k->span.at[i].mesh * meets->n + mesh]) from[n++] = k->span.at[i];
  Span *to = arena_copy(k->scratch, from, (size_t)n * sizeof *from);
  qsort(from, (size_t)n, sizeof *from, by_from);
  qsort(to, (size_t)n, sizeof *to, by_to);
  for (int i = 0; i < n;) {
    Row row = {.time = from[i].from, .begun = 14695981039346656037u, .needed = true};
    for (; end < n && to[end].to < row.time; end++)
      now[to[end].buffer]--;
    for (; i < n && from[i].from == row.time; i++) {
      now[from[i].buffer]++;
      row.begun = (row.begun ^ (uint64_t)from[i].buffer) * 1099511628211u;
    }
    if (i < n && to[end].to >= from[i].from) continue; // nothing ends before more begins
    row.count = arena_copy(k->scratch, now, (size_t)n_buffers * sizeof *now);
    vec_push(k->scratch, out, row);
  }
}

// Whether nothing is more than between two others, `share` of the way from the first to the last.
static bool is_between(const Row *row, const Row *first, const Row *last, double share, int n) {
  for (int i = 0; i < n; i++)
    if (row->count[i] > (1 - share) * first->count[i] + share * last->count[i] + 1e-6) return false;
  return true;
}

// Layers that are alike fill memory evenly: what is between the first and the last of them cannot
// be full before one of the two is.  The first ones may be unlike those that follow.
static void drop_between(Row *const *row, int n_rows, int n) {
  for (int first = 0, last = n_rows - 1; first + 1 < last; first++, last--) {
    bool any = false;
    for (int i = first + 1; i < last; i++) {
      double share = (double)(i - first) / (last - first);
      row[i]->needed = !is_between(row[i], row[first], row[last], share, n);
      any |= row[i]->needed;
    }
    if (!any) return;
  }
}

static int by_begun(const void *x, const void *y) {
  const Row *a = *(Row *const *)x, *b = *(Row *const *)y;
  if (a->begun != b->begun) return a->begun < b->begun ? -1 : 1;
  return (a->time > b->time) - (a->time < b->time);
}

static void drop_all_between(const Maker *k, const Rows *rows) {
  Row **order = arena_array(k->scratch, Row *, rows->n);
  for (int i = 0; i < rows->n; i++)
    order[i] = &rows->at[i];
  qsort(order, (size_t)rows->n, sizeof(Row *), by_begun);
  for (int lo = 0, hi; lo < rows->n; lo = hi) {
    for (hi = lo + 1; hi < rows->n && order[hi]->begun == order[lo]->begun; hi++)
      ;
    drop_between(order + lo, hi - lo, k->out->buffer.n);
  }
}

// For each mesh, as values on meshes that have no device in common do not add up.
static void make_rows(Maker *k) {
  Meets meets = module_meets(k->p->s->g->module, k->scratch);
  Memory *m = k->out;
  Rows all = {0};
  bool *done = arena_array(k->scratch, bool, meets.n);
  for (int i = 0; i < k->span.n; i++) {
    int mesh = k->span.at[i].mesh;
    Rows rows = {0};
    if (done[mesh]) continue;
    done[mesh] = true;
    find_rows(k, &meets, mesh, &rows);
    drop_all_between(k, &rows);
    for (int r = 0; r < rows.n; r++)
      if (rows.at[r].needed) vec_push(k->scratch, &all, rows.at[r]);
  }
  m->n_rows = all.n;
  m->count = arena_array(k->p->scratch, int, (int64_t)m->n_rows * m->buffer.n);
  for (int r = 0; r < all.n; r++)
    memcpy(m->count + (int64_t)r * m->buffer.n, all.at[r].count,
           (size_t)m->buffer.n * sizeof *m->count);
}

static void number_values(Maker *k) {
  const Graph *g = k->p->s->g;
  k->value = arena_array(k->scratch, Value *, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    k->value[g->params[i]->id] = g->params[i];
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      k->value[op->out[i]->id] = op->out[i];
}

// Parts of kernels, which are nowhere on one device, but between collectives.
static void add_parts(Maker *k) {
  bool *lived = arena_array(k->scratch, bool, k->p->s->g->n_values);
  for (int i = 0; i < k->lives->n; i++)
    lived[k->lives->at[i].id] = true;
  for_each_op(op, k->p->s->g) {
    const Value *v = op->out[0];
    if (!op_is_elementwise(op) || lived[v->id] || op_part(op) == PART_update) continue;
    int64_t slices = weight_of(v) ? 1 : k->p->slices, time = k->lives->time[op->id];
    Lived l = {v->id, type_bytes(v->type) / slices, time, k->lives->end, false};
    Wants wants = {0};
    const Share *made = given(k, v);
    find_wants(k, &l, made, &wants);
    for (int i = 0; i < wants.n; i++)
      add(k, &l, made, wants.at[i].as, time, wants.at[i].last);
  }
}

Memory *memory_of(Problem *p, const Lives *lives) {
  Arena *scratch = arena_new();
  const Graph *g = p->s->g;
  Maker k = {.p = p, .lives = lives, .scratch = scratch, .out = arena_one(p->scratch, Memory)};
  k.shares = arena_array(scratch, const Share *, p->nodes.n);
  k.of_node = arena_array(scratch, OfNode, p->nodes.n);
  k.gradient_of = arena_array(scratch, Gradient *, g->n_ops);
  k.given = arena_array(scratch, const Share *, g->n_values);
  k.asked = arena_array(scratch, bool, g->n_values);
  number_values(&k);
  for (int i = 0; i < lives->n; i++)
    add_value(&k, &lives->at[i]);
  add_parts(&k);
  make_rows(&k);
  arena_free(scratch);
  return k.out;
}

int64_t memory_peak(const Memory *m, const int *choice, int64_t limit, bool *out_copies) {
  int n = m->buffer.n;
  Arena *a = arena_new();
  int64_t *bytes = arena_array(a, int64_t, n), peak = 0;
  for (int i = 0; i < n; i++) {
    const Buffer *b = &m->buffer.at[i];
    int as = b->as ? choice[b->as->node] : 0;
    bytes[i] = b->from ? copy_bytes(b, choice[b->from->node], as) : buffer_bytes(b, as);
  }
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
