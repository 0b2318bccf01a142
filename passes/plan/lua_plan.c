// What the program of a plan may say: see lua_graph.h; passes/plans/README.md has the functions.

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "distribute/part.h"
#include "ir/op.h"
#include "ir/verify.h"
#include "lua_graph.h"
#include "pieces.h"
#include "record.h"
#include "schedule/names.h"
#include "search/search.h"
#include "split_classes.h"
#include "stages/stages.h"
#include "unpack.h"

// -- The classes of a loss ---------------------------------------------------------------------

// split_loss(op, axis): a cross entropy becomes ops whose classes can be split along the axis.
static int split_loss(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  int axis = plan_axis(l, 2);
  const Loc *loc = op->loc;
  if (op->kind != OP_cross_entropy)
    return FAIL(l, loc, "%s is no cross_entropy", op_info[op->kind].name);
  Record *r = p->s->record;
  record_before(r, &op, 1);
  const char *name = record_op(r, op);
  if (!split_classes(op, op_ranks(op, axis), p->box.d))
    return FAIL(l, loc, "the loss stays as it is");
  if (r) record_call(r, p->s->g, "split_loss(%s, \"%s\")", name, p->s->mesh->axis[axis].name);
  plan_changed(p);
  sharding_grow(p->s);
  return 0;
}

// -- Pins --------------------------------------------------------------------------------------

// Along the axes that are decided it lies as the value does, which may be a sum.
static void pin_decided(Sharding *s, Op *pin) {
  for (int a = 0; a < s->mesh->n_axes; a++) {
    Sbp lies = s->lies[pin->in[0].value->id][a];
    if (!s->decided[a]) continue;
    int letter = lies.kind == SBP_S ? letter_of_operand(s, pin, 0, lies.dim, a) : -1;
    if (lies.kind == SBP_P) pin->split[a] = SPLIT_PARTIAL;
    if (letter >= 0) pin->split[a] = dims_of(s, pin)->letter[letter].name;
    s->lies[pin->out[0]->id][a] = split_gives(pin, dims_of(s, pin), 0, a);
  }
}

// pin(value): an op that does nothing to the value and takes its readers of the update, so that
// one can say what it splits.
static int pin(lua_State *l) {
  PlanProgram *p = program_of(l);
  Value *v = plan_value(l, 1);
  if (!v->def)
    return FAIL(l, v->loc, "'%s' is a parameter: split or store says how it lies", v->label);
  Builder b = {.g = p->s->g, .at = v->def->next, .origin = op_origin(v->def), .d = p->box.d};
  Record *r = p->s->record;
  record_before(r, &v->def, 1);
  const char *name = record_op(r, v->def);
  Value *pinned = build(&b, OP_reshape, IN(v), ATTRS(a_list("shape", v->type->dim, v->type->rank)));
  if (!pinned) return FAIL(l, v->def->loc, "the value cannot be pinned");
  for (Use *u = v->uses, *next; u; u = next) {
    next = u->next;
    bool reads = u->user && u->user != pinned->def && op_part(u->user) == PART_update;
    if (reads) op_set_in(u->user, u->index, pinned);
  }
  if (r) record_call(r, p->s->g, "pin(%s.outputs[%d])", name, v->index + 1);
  plan_changed(p);
  sharding_grow(p->s);
  pin_decided(p->s, pinned->def);
  plan_push(l, pinned->def, PLAN_OPS);
  return 1;
}

// -- Where a split leads -----------------------------------------------------------------------

// A dimension of a value that comes in cut.
typedef struct Cut {
  const Value *v;
  int dim;
} Cut;

typedef struct Flow {
  lua_State *l;
  int axis;
  Vec(Cut) cuts; // all that were met; those from some point on are still to be followed
  int n_ends, n_stops;
} Flow;

static void start_flow(PlanProgram *p) {
  if (p->n_met < p->s->n_values) {
    p->n_met = p->s->n_values;
    p->met = arena_array(p->s->scratch, uint32_t, p->n_met * MAX_RANK);
    p->n_flows = 0;
  }
  p->n_flows++;
}

static void push_stop(Flow *f, const Op *op) {
  plan_push(f->l, op, PLAN_OPS);
  lua_rawseti(f->l, 5, ++f->n_stops);
}

static void push_end(Flow *f, const Op *op, int letter) {
  lua_createtable(f->l, 0, 2);
  plan_push(f->l, op, PLAN_OPS);
  lua_setfield(f->l, -2, "op");
  lua_pushstring(f->l, plan_letter(plan_einsum(f->l, op), letter));
  lua_setfield(f->l, -2, "letter");
  lua_rawseti(f->l, 4, ++f->n_ends);
}

static void meet(Flow *f, const Value *v, int dim) {
  PlanProgram *p = program_of(f->l);
  uint32_t *met = &p->met[v->id * MAX_RANK + (uint32_t)dim];
  if (*met == p->n_flows) return;
  *met = p->n_flows;
  vec_push(p->s->scratch, &f->cuts, (Cut){v, dim});
}

static void meet_results(Flow *f, const Op *op, int letter) {
  const Dims *dims = plan_einsum(f->l, op);
  bool ends = true;
  for (int i = 0; i < op->n_out; i++) {
    int dim = dims_position(dims, &dims->out[i], letter);
    if (dim < 0) continue;
    ends = false;
    meet(f, op->out[i], dim);
  }
  if (ends) push_end(f, op, letter);
}

static void follow(Flow *f, Cut cut) {
  for_each_use(u, cut.v) {
    if (!u->user) {
      if (cut.v->def) push_stop(f, cut.v->def);
      continue;
    }
    if (op_part(u->user) != PART_forward) continue;
    int letter = letter_of_operand(program_of(f->l)->s, u->user, u->index, cut.dim, f->axis);
    if (letter < 0)
      push_stop(f, u->user);
    else
      meet_results(f, u->user, letter);
  }
}

// flow(op, letter, axis): follows a split through the model.  Returns where it ends in sums, as a
// list of {op=, letter=}; and the list of ops that cannot take it.
static int flow(lua_State *l) {
  const Op *op = plan_op(l, 1);
  char letter = plan_letter_arg(l, 2, op);
  Flow f = {.l = l, .axis = plan_axis(l, 3)};
  const char *why = plan_why_not(l, op, letter, f.axis);
  lua_settop(l, 3);
  lua_newtable(l);
  lua_newtable(l);
  start_flow(program_of(l));
  int i = dims_find(plan_einsum(l, op), letter);
  if (why || i < 0)
    push_stop(&f, op);
  else
    meet_results(&f, op, i);
  for (int k = 0; k < f.cuts.n; k++)
    follow(&f, f.cuts.at[k]);
  return 2;
}

// -- What is left open --------------------------------------------------------------------------

// Takes {sums = false} off, the first of the arguments, if it is there.
static bool search_sums(lua_State *l) {
  bool sums = true;
  if (!lua_istable(l, 1)) return sums;
  for (lua_pushnil(l); lua_next(l, 1); lua_pop(l, 1)) {
    const char *name = lua_type(l, -2) == LUA_TSTRING ? lua_tostring(l, -2) : "";
    if (!str_equal(name, "sums") || !lua_isboolean(l, -1))
      return FAIL(l, NULL, "of a search one may say {sums = true} or {sums = false}");
    sums = lua_toboolean(l, -1);
  }
  lua_remove(l, 1);
  return sums;
}

enum { MAX_SEARCHES = 64 }; // of one program, with those that it applies: each takes what it needs

// search({sums = false}, axis, …): what is open along these axes is chosen, all together.
static int search(lua_State *l) {
  PlanProgram *p = program_of(l);
  bool sums = search_sums(l);
  int n = lua_gettop(l), axis[MAX_AXES];
  Searched found = {0};
  Spared began = sandbox_begin(l);
  plan_sharding(l);
  if (n < 1 || n > MAX_AXES) return FAIL(l, NULL, "search takes the axes that it is about");
  if (++p->n_searches > MAX_SEARCHES)
    return FAIL(l, NULL, "a program searches at most %d times", MAX_SEARCHES);
  for (int i = 0; i < n; i++)
    axis[i] = plan_axis(l, i + 1);
  for_each_op(op, p->s->g)
    if (op_mesh(op) != p->s->mesh)
      return FAIL(l, op->loc, "what is assigned to some of the ranks cannot be searched yet");
  bool ok = search_axes(p->s, axis, n, sums, p->s->cluster, plan_line(l), &found, p->box.d);
  if (p->s->searched && found.n) searched_add(p->s->searched, &found);
  sandbox_spare(l, &began);
  return ok ? 0 : plan_quit(l);
}

enum { MAX_STAGES = 4096 };

// {chunks = 2, back = true}; false: there is none of that.
static bool check_chunks(lua_State *l, int arg, int size, StageWish *w) {
  if (!lua_istable(l, arg) || lua_getfield(l, arg, "chunks") == LUA_TNIL) return false;
  int is_integer;
  lua_Integer n = lua_tointegerx(l, -1, &is_integer);
  if (!is_integer || n < 1 || n > MAX_STAGES / size)
    FAIL(l, NULL, "every rank has 1 to %d chunks of the model", MAX_STAGES / size);
  if (lua_getfield(l, arg, "back") != LUA_TNIL && !lua_isboolean(l, -1))
    FAIL(l, NULL, "'back' is true or false");
  *w = (StageWish){.n = n > 1 ? 0 : size, .chunks = (int)n, .back = lua_toboolean(l, -1)};
  lua_pop(l, 2);
  return true;
}

// A number of stages, a list of how many ranks each has, or how many every rank has; without one,
// nothing is asked for.
static StageWish check_stages(lua_State *l, int arg, int size) {
  StageWish w = {0};
  if (lua_isnoneornil(l, arg) || check_chunks(l, arg, size, &w)) return w;
  bool counted = !lua_istable(l, arg);
  lua_Integer n = counted ? luaL_checkinteger(l, arg) : (lua_Integer)lua_rawlen(l, arg);
  if (n < 1 || n > size)
    FAIL(l, NULL, "place wants 1 to %d stages, as many as there are ranks, and not %lld", size,
         (long long)n);
  w.n = (int)n;
  if (counted) return w;
  int *at = arena_array(program_of(l)->box.arena, int, n);
  for (int i = 0; i < n; i++) {
    lua_Integer ranks = plan_entry(l, arg, i + 1, "size", NULL);
    if (ranks < 1 || ranks > size)
      FAIL(l, NULL, "a stage has 1 to %d ranks, not %lld", size, (long long)ranks);
    at[i] = (int)ranks;
  }
  w.size = at;
  return w;
}

// place(axis, number of stages or list of their ranks): what is open runs on stages.  Returns the
// list of how many ranks each has.
static int place(lua_State *l) {
  PlanProgram *p = program_of(l);
  plan_sharding(l);
  int axis = plan_axis(l, 1);
  if (p->s->mesh->axis[axis].time) return FAIL(l, NULL, "stages are ranks, and no slices of time");
  StageWish wish = check_stages(l, 2, p->s->mesh->axis[axis].size);
  Stages made;
  if (p->s->guessing) return plan_quit(l); // outer.h: stages are not guessed
  Spared began = sandbox_begin(l);
  bool ok = stages_place(p->s, axis, &wish, plan_line(l), &made, p->box.d);
  if (p->s->searched && made.searched.n) searched_add(p->s->searched, &made.searched);
  if (!ok) return plan_quit(l);
  sandbox_spare(l, &began);
  lua_createtable(l, made.n, 0);
  for (int i = 0; i < made.n; i++) {
    lua_pushinteger(l, made.size[i]);
    lua_rawseti(l, -2, i + 1);
  }
  return 1;
}

// -- Changes of the model ----------------------------------------------------------------------

// unpack(op): whether its result was cut apart.
static int unpack(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  if (p->n_axes) return FAIL(l, op->loc, "the model is as it is now: this belongs into 'model'");
  bool done;
  Record *r = p->s->record;
  record_before(r, &op, 1);
  const char *name = record_op(r, op);
  if (!unpack_product(op, &done, p->box.d)) return FAIL(l, op->loc, "the product stays as it is");
  if (done && r) record_call(r, p->s->g, "unpack(%s)", name);
  plan_changed(p);
  lua_pushboolean(l, done);
  return 1;
}

enum { MAX_PIECES = 1024 };

// A number of equal pieces, or a list of how long each is.
static PieceSizes check_sizes(lua_State *l, int arg) {
  PieceSizes s = {0};
  bool equal = !lua_istable(l, arg);
  lua_Integer n = equal ? luaL_checkinteger(l, arg) : (lua_Integer)lua_rawlen(l, arg);
  if (n < 1 || n > MAX_PIECES) FAIL(l, NULL, "pieces wants 1 to %d pieces", MAX_PIECES);
  int *at = arena_array(program_of(l)->box.arena, int, n);
  for (s.at = at; s.n < n; s.sum += at[s.n++]) {
    lua_Integer size = equal ? 1 : plan_entry(l, arg, s.n + 1, "size", NULL);
    if (size < 1 || size > INT32_MAX / MAX_PIECES)
      FAIL(l, NULL, "a piece has a size of 1 or more, not %lld", (long long)size);
    at[s.n] = (int)size;
  }
  return s;
}

// "{ { op = o[1], letter = "k" } }, { 3, 2 }"
static const char *pieces_words(Record *r, const PieceStart *start, int n,
                                const PieceSizes *sizes) {
  if (!r) return NULL;
  StrBuf b = {.arena = r->arena};
  for (int i = 0; i < n; i++)
    strbuf_addf(&b, "%s{ op = %s, letter = \"%c\" }", i ? ", " : "{ ", record_op(r, start[i].op),
                start[i].letter);
  for (int i = 0; i < sizes->n; i++)
    strbuf_addf(&b, "%s%d", i ? ", " : " }, { ", sizes->at[i]);
  strbuf_add(&b, " }");
  return b.at;
}

// pieces(list of {op=, letter=}, n or list of sizes): whether these and what follows was cut so.
static int pieces(lua_State *l) {
  PlanProgram *p = program_of(l);
  luaL_checktype(l, 1, LUA_TTABLE);
  int n = (int)lua_rawlen(l, 1);
  PieceSizes sizes = check_sizes(l, 2);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  if (n < 1) return FAIL(l, NULL, "pieces wants a list of {op=, letter=}, and this is empty");
  PieceStart *start = arena_array(p->box.arena, PieceStart, n);
  Op **ops = arena_array(p->box.arena, Op *, n);
  for (int i = 0; i < n; i++) {
    lua_settop(l, 2);
    bool fits = lua_rawgeti(l, 1, i + 1) == LUA_TTABLE;
    fits = fits && lua_getfield(l, 3, "op") && luaL_testudata(l, 4, PLAN_OPS);
    fits = fits && lua_getfield(l, 3, "letter") == LUA_TSTRING;
    if (!fits) return FAIL(l, NULL, "number %d of the list is no {op=, letter=}", i + 1);
    start[i].op = ops[i] = plan_op(l, 4);
    start[i].letter = plan_letter_arg(l, 5, start[i].op);
  }
  bool done;
  record_before(p->s->record, ops, n);
  const char *words = pieces_words(p->s->record, start, n, &sizes);
  if (!cut_in_pieces(start, n, &sizes, &done, p->box.d))
    return FAIL(l, start->op->loc, "the ops stay as they are");
  if (done && words) record_call(p->s->record, p->s->g, "pieces(%s)", words);
  plan_changed(p);
  lua_pushboolean(l, done);
  return 1;
}

// -- Order -------------------------------------------------------------------------------------

typedef struct Positioned {
  int position;
  Op *op;
} Positioned;

static int by_position(const void *x, const void *y) {
  return ((const Positioned *)x)->position - ((const Positioned *)y)->position;
}

// In the order of the graph.
static Op **in_order(PlanProgram *p, const OpList *list) {
  const OpNames *names = plan_names_of(p);
  Positioned *at = arena_array(p->s->scratch, Positioned, list->n);
  for (int i = 0; i < list->n; i++)
    at[i] = (Positioned){op_names_position(names, list->at[i]), list->at[i]};
  qsort(at, (size_t)list->n, sizeof *at, by_position);
  for (int i = 0; i < list->n; i++)
    list->at[i] = at[i].op;
  return list->at;
}

// The op that is argument `arg`, or those of the list, in the order of the graph.  They stay
// marked.
static Op **check_ops(lua_State *l, int arg, const char *which, int *n) {
  PlanProgram *p = program_of(l);
  OpList list = {0};
  lua_pushvalue(l, arg);
  plan_list(l, p->marked, &list, which);
  lua_pop(l, 1);
  if (!list.n) FAIL(l, NULL, "op_order wants an op or a list of them, and the %s is empty", which);
  *n = list.n;
  return in_order(p, &list);
}

static void unmark(PlanProgram *p, Op *const *op, int n) {
  for (int i = 0; i < n; i++)
    p->marked[op[i]->id] = false;
}

// "{ o[1], o[2] }"
static const char *ops_words(Record *r, Op *const *op, int n) {
  StrBuf b = {.arena = r->arena};
  for (int i = 0; i < n; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "{ ", record_op(r, op[i]));
  strbuf_add(&b, " }");
  return b.at;
}

static void record_order(Record *r, const Graph *g, const Order *o) {
  if (!r) return;
  record_before(r, o->first, o->n_first);
  record_before(r, o->then, o->n_then);
  record_call(r, g, "op_order(%s, %s)", ops_words(r, o->first, o->n_first),
              ops_words(r, o->then, o->n_then));
}

// op_order(a, b): the op, or all of the list, before the other, or all of the other list.
static int op_order(lua_State *l) {
  PlanProgram *p = program_of(l);
  Order o = {.line = plan_line(l)};
  plan_sharding(l);
  luaL_checkany(l, 2);
  if (!p->n_axes)
    return FAIL(l, NULL, "there is no step yet that is run: this belongs into 'step'");
  if (!p->marked) p->marked = arena_array(p->s->scratch, bool, p->s->g->n_ops);
  o.first = check_ops(l, 1, "first", &o.n_first);
  unmark(p, o.first, o.n_first);
  o.then = check_ops(l, 2, "second", &o.n_then);
  for (int i = 0; i < o.n_first; i++)
    if (p->marked[o.first[i]->id])
      return FAIL(l, o.first[i]->loc, "%s is to come before itself",
                  op_info[o.first[i]->kind].name);
  unmark(p, o.then, o.n_then);
  if (op_part(o.first[o.n_first - 1]) == PART_update && op_part(o.then[0]) != PART_update)
    return FAIL(l, o.then[0]->loc, "%s cannot wait for an update, which comes after all gradients",
                op_info[o.then[0]->kind].name);
  vec_push(p->s->scratch, &p->s->orders, o);
  record_order(p->s->record, p->s->g, &o);
  return 0;
}

// -- Micro-batches -----------------------------------------------------------------------------

// schedule(kind): when stages run which micro-batch.
static int schedule(lua_State *l) {
  PlanProgram *p = program_of(l);
  const char *kind = luaL_checkstring(l, 1);
  Module *m = plan_sharding(l)->g->module;
  int chunks;
  if (!p->n_axes)
    return FAIL(l, NULL, "there is no step yet that is run: this belongs into 'step'");
  if (!str_equal(kind, "search") && !schedule_kind(p->box.arena, kind, &chunks))
    return FAIL(l, NULL, "there is no schedule '%s': there are %s, search, and interleaved:2", kind,
                schedule_names(p->box.arena));
  if (m->schedule && !str_equal(m->schedule, kind))
    return FAIL(l, NULL, "the schedule is '%s' already, and cannot be '%s', too", m->schedule,
                kind);
  m->schedule = str_copy(m->arena, kind);
  if (p->s->record) p->s->record->schedule = str_copy(p->s->record->arena, kind);
  return 0;
}

// -- Recompute ---------------------------------------------------------------------------------

static void record_recompute(Record *r, const Graph *g, Op *const *op, int n) {
  if (!r) return;
  record_before(r, op, n);
  record_call(r, g, "recompute(%s)", ops_words(r, op, n));
}

// The number of a list that is new to the graph.
static int next_list(const Graph *g) {
  int n = 0;
  for_each_op(op, g)
    if (op->anew > n) n = op->anew;
  return n + 1;
}

// recompute(list): what backward reads of what these ops make is computed anew, not kept.
static int recompute(lua_State *l) {
  PlanProgram *p = program_of(l);
  const Graph *g = plan_sharding(l)->g;
  OpList ops = {0};
  luaL_checkany(l, 1);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  lua_settop(l, 1);
  plan_list(l, arena_array(p->s->scratch, bool, g->n_ops), &ops, "recompute");
  if (!ops.n) return FAIL(l, NULL, "recompute wants ops, and this list is empty");
  int list = next_list(g);
  for (int i = 0; i < ops.n; i++) {
    if (ops.at[i]->anew)
      return FAIL(l, ops.at[i]->loc, "%s is in a list that is computed anew already",
                  op_info[ops.at[i]->kind].name);
    ops.at[i]->anew = list;
  }
  record_recompute(p->s->record, g, ops.at, ops.n);
  return 0;
}

const luaL_Reg plan_calls[] = {
    {"annotated_apart", plan_annotated_apart},
    {"annotations", plan_annotations},
    {"op_order", op_order},
    {"flow", flow},
    {"pieces", pieces},
    {"pin", pin},
    {"place", place},
    {"recompute", recompute},
    {"schedule", schedule},
    {"search", search},
    {"split_loss", split_loss},
    {"unpack", unpack},
    {NULL, NULL},
};
