// Outlines repeats: repeated subgraphs become calls of one graph.
//
//     %y = linear %x, %w0      # m.onnx:/h.0/fc       %z = call @main.block0 %x, %w0 at=[0,2] …
//     %z = gelu %y             # m.onnx:/h.0/act      %t = call @main.block0 %z, %w1 at=[2,2] …
//     %s = linear %z, %w1      # m.onnx:/h.1/fc   =>
//     %t = gelu %s             # m.onnx:/h.1/act      graph @main.block0 (%x, %w0) {
//                                                       %y = linear %x, %w0
//                                                       %z = gelu %y
//                                                       return %z
//
// repeats.c finds them; nested blocks become calls in called graphs. The graph takes its names and
// locations from the first occurrence. A call records the positions of its ops in `at`, and their
// names and locations in `was` (recall.h), for `inline_calls` to restore them.
//
// A block with more operands or results than an op may have is not outlined, nor one with ops that
// are recomputed together or kept in host memory, and existing calls stay.

#include <inttypes.h>
#include <string.h>

#include "ir/op.h"
#include "pass.h"
#include "recall.h"
#include "repeats.h"

typedef Vec(Member) Members;

// An occurrence and its future call.
typedef struct Site {
  Members member; // inner occurrences that are not called are expanded
  Value **in, **out;
} Site;

// One operand of a block, with its value in every occurrence.
typedef struct Slot {
  int index;
  Value **of;
  struct Slot *next; // the previous slot with the same value in the first occurrence
} Slot;

// A block and its future graph.
typedef struct Callee {
  bool known, called;
  Graph *graph;
  int n_in, n_out;
  Vec(int) param; // for every operand of every member: a parameter, or INSIDE
  Site *site;     // by occurrence
} Callee;

enum { INSIDE = -1 };

typedef struct Fold {
  Graph *g;
  Repeats *r;
  Arena *a; // scratch
  Diag *d;
  Callee *callee;  // by block
  Slot **slot;     // by value id, during find_sites of a block
  int *place;      // by op id
  Value **in_body; // by value id: the value in the graph under construction
  Value **now;     // by value id: the present value in g
} Fold;

static Callee *callee_of(const Fold *f, const Occurrence *o) {
  return &f->callee[o->block->id];
}

static Site *site_of(const Fold *f, const Occurrence *o) {
  return &callee_of(f, o)->site[o->index];
}

// -- Operands and results --------------------------------------------------------------------

static int member_n_in(const Fold *f, Member m) {
  return m.op ? m.op->n_in : callee_of(f, m.inner)->n_in;
}

static Value *member_in(const Fold *f, Member m, int i) {
  return m.op ? m.op->in[i].value : site_of(f, m.inner)->in[i];
}

static int member_n_out(const Fold *f, Member m) {
  return m.op ? m.op->n_out : callee_of(f, m.inner)->n_out;
}

static Value *member_out(const Fold *f, Member m, int i) {
  return m.op ? m.op->out[i] : site_of(f, m.inner)->out[i];
}

static void add_members(Fold *f, const Member *member, int n, Members *to) {
  for (int i = 0; i < n; i++) {
    const Occurrence *inner = member[i].inner;
    if (inner && !callee_of(f, inner)->called) {
      const Members *its = &site_of(f, inner)->member;
      add_members(f, its->at, its->n, to);
    } else {
      vec_push(f->a, to, member[i]);
    }
  }
}

// Maps operand `i` of member `p` to INSIDE or to a parameter of the block: a new one, unless one
// has the same value in every occurrence.
static void add_slot(Fold *f, const Block *b, int p, int i) {
  Callee *c = &f->callee[b->id];
  Value *first = member_in(f, c->site[0].member.at[p], i);
  // An operand of the inside needs no parameter.
  if (first->def && op_is_within(f->r, first->def, b->at[0])) {
    vec_push(f->a, &c->param, INSIDE);
    return;
  }
  // Two operands share a parameter only if they are equal in every occurrence.
  Slot *slot = arena_one(f->a, Slot);
  *slot = (Slot){c->n_in, arena_array(f->a, Value *, b->n), f->slot[first->id]};
  for (int o = 0; o < b->n; o++)
    slot->of[o] = member_in(f, c->site[o].member.at[p], i);
  const Slot *same = slot->next;
  while (same && memcmp(same->of, slot->of, (size_t)b->n * sizeof *same->of) != 0)
    same = same->next;
  vec_push(f->a, &c->param, same ? same->index : slot->index);
  // A new parameter, with its operand at every call.
  if (same) return;
  f->slot[first->id] = slot;
  for (int o = 0; c->n_in < MAX_TERMS && o < b->n; o++)
    c->site[o].in[c->n_in] = slot->of[o];
  c->n_in++;
}

// Adds a result to the block if any occurrence's value is read outside of that occurrence.
static void add_result(Fold *f, const Block *b, int p, int i) {
  Callee *c = &f->callee[b->id];
  bool read = false;
  for (int o = 0; !read && o < b->n; o++) {
    const Value *v = member_out(f, c->site[o].member.at[p], i);
    read = false;
    for_each_use(u, v)
      if (!u->user || !op_is_within(f->r, u->user, b->at[o])) {
        read = true;
        break;
      }
  }
  // A new result, at every call.
  if (!read) return;
  for (int o = 0; c->n_out < MAX_RESULTS && o < b->n; o++)
    c->site[o].out[c->n_out] = member_out(f, c->site[o].member.at[p], i);
  c->n_out++;
}

static void find_sites(Fold *f, const Block *b) {
  Callee *c = &f->callee[b->id];
  if (c->known) return;
  c->known = true;
  // Inner blocks come first: only those with few operands and results are called.
  for (int p = 0; p < b->n_members; p++)
    if (b->at[0]->member[p].inner) find_sites(f, b->at[0]->member[p].inner->block);
  c->site = arena_array(f->a, Site, b->n);
  for (int o = 0; o < b->n; o++) {
    add_members(f, b->at[o]->member, b->n_members, &c->site[o].member);
    c->site[o].in = arena_array(f->a, Value *, MAX_TERMS);
    c->site[o].out = arena_array(f->a, Value *, MAX_RESULTS);
  }
  for (int p = 0; p < c->site[0].member.n; p++) {
    Member m = c->site[0].member.at[p];
    for (int i = 0; i < member_n_in(f, m); i++)
      add_slot(f, b, p, i);
    for (int i = 0; i < member_n_out(f, m); i++)
      add_result(f, b, p, i);
  }
  // The table `slot` is empty again for the next block.
  for (int p = 0; p < c->site[0].member.n; p++)
    for (int i = 0; i < member_n_in(f, c->site[0].member.at[p]); i++)
      f->slot[member_in(f, c->site[0].member.at[p], i)->id] = NULL;
  c->called = c->n_in <= MAX_TERMS && c->n_out <= MAX_RESULTS && c->n_out > 0;
}

// -- The callee ------------------------------------------------------------------------------

// Adds the ops of an occurrence, in the order of the callee.
static void add_ops(const Fold *f, const Occurrence *o, Ops *to) {
  const Members *member = &site_of(f, o)->member;
  for (int i = 0; i < member->n; i++)
    if (member->at[i].op)
      vec_push(f->a, to, member->at[i].op);
    else
      add_ops(f, member->at[i].inner, to);
}

// The origin of a call: the location of its first op, the latest part among its ops, and no number.
static Origin call_origin(const Ops *ops) {
  Origin o = {.loc = ops->at[0]->loc};
  for (int i = 0; i < ops->n; i++)
    if (ops->at[i]->part > o.part) o.part = ops->at[i]->part;
  return o;
}

// Copies a member into the callee, with the names of the first occurrence.
static bool copy_member(Fold *f, Graph *body, Member m, const int *param) {
  int n_in = member_n_in(f, m);
  Value **in = arena_array(f->a, Value *, n_in);
  // Operands are values of the callee.
  for (int i = 0; i < n_in; i++)
    in[i] = param[i] == INSIDE ? f->in_body[member_in(f, m, i)->id] : body->params[param[i]];
  // A call has the origin of its ops.
  Ops ops = {0};
  if (!m.op) add_ops(f, m.inner, &ops);
  Op *copy = m.op ? op_copy(body, NULL, m.op, in, f->d)
                  : op_new_call(body, NULL, OP_call, callee_of(f, m.inner)->graph, in, n_in,
                                call_origin(&ops), f->d);
  if (!copy) return false;
  for (int i = 0; i < copy->n_out; i++) {
    const Value *v = member_out(f, m, i);
    f->in_body[v->id] = copy->out[i];
    value_set_name(copy->out[i], v->name);
  }
  return true;
}

static bool make_callee(Fold *f, const Block *b) {
  Callee *c = &f->callee[b->id];
  const Site *first = &c->site[0];
  // Callees of inner calls come first.
  if (c->graph || !c->called) return true;
  for (int p = 0; p < first->member.n; p++) {
    const Occurrence *inner = first->member.at[p].inner;
    if (inner && !make_callee(f, inner->block)) return false;
  }
  // The callee is a copy of the first occurrence, names and ids included.
  const char *name = NULL;
  for (int i = 0; !name || graph_find(f->g->module, name); i++)
    name = str_format(f->a, "%s.block%d", f->g->name, i);
  Graph *body = c->graph = graph_new(f->g->module, name, false);
  for (int i = 0; i < c->n_in; i++) {
    const Value *v = first->in[i];
    graph_param(body, v->name, v->type, ROLE_none, v->def ? v->def->loc : v->loc);
  }
  for (int p = 0, at = 0; p < first->member.n; p++) {
    if (!copy_member(f, body, first->member.at[p], &c->param.at[at])) return false;
    at += member_n_in(f, first->member.at[p]);
  }
  // Results keep the numbers of the first occurrence.
  for (int i = 0; i < c->n_out; i++)
    graph_output(body, f->in_body[first->out[i]->id], NULL);
  for (int p = 0; p < first->member.n; p++)
    for (int i = 0; i < member_n_out(f, first->member.at[p]); i++) {
      const Value *v = member_out(f, first->member.at[p], i);
      f->in_body[v->id]->id = v->id;
    }
  values_number(body, f->a);
  return true;
}

// -- Calls -----------------------------------------------------------------------------------

static Recall *recalls(const Fold *f, const Ops *ops) {
  Recall *of = arena_array(f->a, Recall, ops->n);
  for (int i = 0; i < ops->n; i++)
    of[i] = recall_of(ops->at[i], f->a);
  return of;
}

static Attr places(const Fold *f, const char *name, const Ops *ops) {
  int *place = arena_array(f->a, int, ops->n);
  for (int i = 0; i < ops->n; i++)
    place[i] = f->place[ops->at[i]->id];
  return places_attr(name, place, ops->n, f->a);
}

static Op *call_site(Fold *f, const Occurrence *o) {
  Callee *c = callee_of(f, o);
  Site *site = site_of(f, o);
  Ops ops = {0}, body = {0};
  add_ops(f, o, &ops);
  ops_called(c->graph, f->a, &body);
  if (body.n != ops.n) BUG("@%s differs from the ops that it replaces", c->graph->name);
  // An operand may be a result of a call by now.
  Value **in = arena_array(f->a, Value *, c->n_in);
  for (int i = 0; i < c->n_in; i++)
    in[i] = f->now[site->in[i]->id];
  Op *call = op_new_call(f->g, NULL, OP_call, c->graph, in, c->n_in, call_origin(&ops), f->d);
  if (!call) return NULL;
  // The call records positions and names for inline_calls.
  op_set_attr(call, places(f, "at", &ops));
  op_set_attr(call, recalls_attr(recalls(f, &body), recalls(f, &ops), ops.n, f->a));
  for (int i = 0; i < c->n_out; i++) {
    f->now[site->out[i]->id] = call->out[i];
    // The result of the call takes the name and number of the value that it replaces.
    Value *from = site->out[i];
    Value *to = call->out[i];
    const char *name = from->name;
    value_set_name(from, NULL);
    value_set_name(to, name);
    to->id = from->id;
    value_replace(from, to);
  }
  for (int i = ops.n - 1; i >= 0; i--)
    op_erase(ops.at[i]);
  return call;
}

static int64_t n_ops(const Graph *g) {
  int64_t n = 0;
  for_each_op(op, g)
    n++;
  return n;
}

// The ops of no list that is recomputed or kept in host memory, by id: `was` has no such numbers.
static bool *unlisted(const Graph *g, Arena *a) {
  bool *is = arena_array(a, bool, g->n_ops);
  for_each_op(op, g)
    is[op->id] = !op->recompute_group && !op->offload_group;
  return is;
}

static bool outline_graph(Graph *g, int min, const PassOptions *o, Diag *d) {
  Arena *a = opt_scratch(o);
  Fold f = {.g = g, .a = a, .d = d, .r = repeats_find(g, min, unlisted(g, a), a)};
  if (!f.r->n_blocks) return true;
  f.callee = arena_array(a, Callee, f.r->n_blocks);
  f.slot = arena_array(a, Slot *, g->n_values);
  f.in_body = arena_array(a, Value *, g->n_values);
  f.now = arena_array(a, Value *, g->n_values);
  f.place = arena_array(a, int, g->n_ops);
  // Positions are those before outlining.
  int place = 0;
  for (int i = 0; i < g->n_params; i++)
    f.now[g->params[i]->id] = g->params[i];
  for_each_op(op, g) {
    f.place[op->id] = place++;
    for (int i = 0; i < op->n_out; i++)
      f.now[op->out[i]->id] = op->out[i];
  }
  // Callees are complete before the first op of the graph is erased.
  for (int b = 0; b < f.r->n_blocks; b++)
    find_sites(&f, f.r->block[b]);
  for (int b = 0; b < f.r->n_blocks; b++)
    if (!make_callee(&f, f.r->block[b])) return false;
  Members order = {0};
  add_members(&f, f.r->order, f.r->n_order, &order);
  // The graph is sorted so that the ops of each call are adjacent.
  Op *first = NULL;
  Ops rest = {0};
  for (int i = 0; i < order.n; i++) {
    Member m = order.at[i];
    if (m.op) {
      op_move_before(m.op, NULL);
      vec_push(f.a, &rest, m.op);
      continue;
    }
    Op *call = call_site(&f, m.inner);
    if (!call) return false;
    if (!first) first = call;
  }
  // The first call records the positions of the rest only if their order changes.
  bool in_order = true;
  for (int i = 1; i < rest.n; i++)
    in_order &= f.place[rest.at[i]->id] >= f.place[rest.at[i - 1]->id];
  if (first && !in_order) op_set_attr(first, places(&f, "rest", &rest));
  return true;
}

bool pass_outline_repeats(Module *m, const PassOptions *o, Diag *d) {
  int64_t min = opt_int(o, "min", LEAST_BLOCK), before = 0, after = 0;
  // Later phases have decided things per op.
  if (m->phase != PHASE_typed)
    return diag_error(d, NULL, "outline_repeats wants a typed module, this one is %s",
                      phase_name[m->phase]);
  if (min < 2 || min > INT32_MAX)
    return diag_error(d, NULL, "outline_repeats: min=%" PRId64 ": a block has at least two ops",
                      min);
  for_each_graph(g, m)
    before += n_ops(g);
  for_each_graph(g, m)
    if (g->entry && !outline_graph(g, (int)min, o, d)) return false;
  for_each_graph(g, m)
    after += n_ops(g);
  opt_stat(o, before - after, "ops outlined");
  return true;
}
