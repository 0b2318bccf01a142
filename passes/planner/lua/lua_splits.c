// Constraints of a plan's program on splits and ranks: see lua_graph.h;
// docs/own_plans.md has the functions.  Each adds one constraint on one op or
// parameter, and ends the program if that is infeasible, alone or with earlier ones.

#include <ctype.h>
#include <string.h>

#include "ir/analysis/batch_dim.h"
#include "ir/op.h"
#include "ir/verify/verify.h"
#include "lua/lua_deterministic.h"
#include "lua_graph.h"
#include "sharding/assign.h"
#include "sharding/constraints.h"

// -- Splits of ops -----------------------------------------------------------------------------

// The reason why `op` cannot split `letter` along `axis`, or NULL.
const char *plan_why_not(lua_State *l, const Op *op, char letter, int axis) {
  const PlanProgram *p = program_of(l);
  Arena *a = p->box.arena;
  const Dims *dims = plan_einsum(l, op);
  const char *name = op_info[op->kind].name, *axis_name = p->s->mesh->axis[axis].name;
  // Earlier constraints first, then the op's own rules, then divisibility.
  if (p->s->decisions.fixed_by[op->id][axis] && (op->split[axis] ? op->split[axis] : '-') != letter)
    return str_format(a, "%s splits '%c' along %s already", name,
                      op->split[axis] ? op->split[axis] : '-', axis_name);
  if (!constraint_allows(p->s->constraints.op[op->id][axis], letter))
    return str_format(a, "%s is to split %s along %s, not '%c'", name,
                      splits_text(a, constraint_splits(p->s->constraints.op[op->id][axis], a)),
                      axis_name, letter);
  if (letter == '-') return NULL;
  if (letter == SPLIT_PARTIAL)
    return op_traits(op) & (ADDITIVE | MULTILINEAR)
               ? NULL
               : str_format(a, "%s cannot pass partial sums on", name);
  int i = dims_find(dims, letter);
  if (i < 0)
    return str_format(a, "%s has no letter '%c': it is %s", name, letter, dims_text(a, dims));
  if (dims->letter[i].whole)
    return str_format(a, "%s cannot be split along '%c', which it needs whole: it is %s", name,
                      letter, dims_text(a, dims));
  if (!dims_leads(dims, i))
    return str_format(a, "%s cannot be split along '%c', which does not stand first: it is %s",
                      name, letter, dims_text(a, dims));
  if (op_ranks(op, axis) == 1 && p->s->mesh->axis[axis].size > 1)
    return str_format(a, "%s runs on one rank of %s, which has all of it", name, axis_name);
  bool cut_already = memchr(op->split, letter, sizeof op->split) != NULL;
  if (!split_legal(op, dims, i, axis))
    return str_format(a, "%s has %lld of '%c', which cannot be split into %d along %s%s", name,
                      (long long)dims->letter[i].size, letter, op_ranks(op, axis), axis_name,
                      cut_already ? " besides its other splits" : "");
  return NULL;
}

char plan_letter_arg(lua_State *l, int arg, const Op *op) {
  size_t n;
  const char *text = luaL_checklstring(l, arg, &n);
  if (n == 1 && isgraph((unsigned char)*text)) return *text;
  return (char)FAIL(l, op->loc, "'%s' is no letter of %s; '-' is none of them, '+' passes sums on",
                    text, dims_text(program_of(l)->box.arena, plan_einsum(l, op)));
}

static int can(lua_State *l) {
  const Op *op = plan_op(l, 1);
  if (lua_isnil(l, 2))
    lua_pushboolean(l, false);
  else
    lua_pushboolean(l, !plan_why_not(l, op, plan_letter_arg(l, 2, op), plan_axis(l, 3)));
  return 1;
}

// -- Contradictions ----------------------------------------------------------------------------

// Ends the program with `why`, and the lines of the conflicting constraints.
static int contradict(lua_State *l, const Loc *loc, const ConstraintClaims *claims,
                      const char *verb, const char *why) {
  PlanProgram *p = program_of(l);
  // The last of them is that of the current line.
  for (int i = 0; i < claims->n - 1; i++)
    if (claims->at[i].line)
      plan_note(
          l, claims->at[i].line,
          str_format(p->box.arena, "it was said here %s", claim_text(p->s, &claims->at[i], verb)));
  return plan_fail(l, loc, why);
}

// -- Sets ----------------------------------------------------------------------------------------

static void add_letter(StrBuf *b, char letter) {
  if (!b->n || !strchr(b->at, letter)) strbuf_add_n(b, &letter, 1);
}

// A letter, or "~" and the excluded one: argument `arg`.
static void add_letters(lua_State *l, StrBuf *b, int arg, const Op *op) {
  size_t n;
  const char *text = luaL_checklstring(l, arg, &n);
  if (n == 2 && text[0] == '~') {
    // Every split that the op allows, except this one, which it may lack.
    lua_pushlstring(l, text + 1, 1);
    char letter = plan_letter_arg(l, -1, op);
    const Dims *dims = plan_einsum(l, op);
    if (letter != '-') add_letter(b, '-');
    for (int i = 0; i < dims->n_letters; i++)
      if (dims->letter[i].name != letter) add_letter(b, dims->letter[i].name);
    if (letter != SPLIT_PARTIAL) add_letter(b, SPLIT_PARTIAL);
    lua_pop(l, 1);
  } else {
    add_letter(b, plan_letter_arg(l, arg, op));
  }
}

// The letters of argument `arg`: one of these or a list of them.
static const char *letters_of(lua_State *l, int arg, const Op *op) {
  StrBuf b = {.arena = program_of(l)->s->scratch};
  if (!lua_istable(l, arg)) {
    add_letters(l, &b, arg, op);
    return b.at;
  }
  // A list: the union of its entries.
  for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(l, arg); i++) {
    lua_rawgeti(l, arg, i);
    if (lua_type(l, -1) != LUA_TSTRING)
      FAIL(l, op->loc, "letter %lld of the list is %s, which is no letter", (long long)i,
           steady_text(l, -1));
    add_letters(l, &b, lua_gettop(l), op);
    lua_settop(l, 3);
  }
  if (!b.n) FAIL(l, op->loc, "op_trans wants a letter or a list of them, and this is empty");
  return b.at;
}

// Adds the constraint that the op splits one of the letters.
static int allow(lua_State *l, Op *op, const char *letters, int axis) {
  const PlanProgram *p = program_of(l);
  ConstraintClaim more = {axis, letters, NULL, plan_line(l)};
  ConstraintClaims claims = op_contradiction(p->s, op, &more);
  // Alone infeasible: tell the reason of each letter.
  if (claims.n == 1) {
    StrBuf b = {.arena = p->box.arena};
    strbuf_addf(&b, "%s can split none of %s along %s", op_info[op->kind].name,
                splits_text(b.arena, letters), p->s->mesh->axis[axis].name);
    for (const char *letter = letters; *letter; letter++) {
      const char *why = plan_why_not(l, op, *letter, axis);
      strbuf_addf(&b, "%s%s", letter == letters ? ": " : "; ", why ? why : "");
    }
    return contradict(l, op->loc, &claims, "to split", b.at);
  }
  if (claims.n)
    return contradict(l, op->loc, &claims, "to split",
                      str_format(p->box.arena,
                                 "%s cannot split %s along %s besides the earlier constraints",
                                 op_info[op->kind].name, splits_text(p->box.arena, letters),
                                 p->s->mesh->axis[axis].name));
  constrain_split(p->s, op, axis, letters, more.line);
  return 0;
}

void plan_say_split(lua_State *l, Op *op, char letter, int axis) {
  const PlanProgram *p = program_of(l);
  const char *why = plan_why_not(l, op, letter, axis);
  // The reason of the op itself is clearer than that of all constraints.
  ConstraintClaim more = {axis, str_copy_n(p->s->scratch, &letter, 1), NULL, plan_line(l)};
  ConstraintClaims claims = op_contradiction(p->s, op, &more);
  if (claims.n && !why)
    why = str_format(p->box.arena, "%s cannot split '%c' along %s besides the earlier constraints",
                     op_info[op->kind].name, letter, p->s->mesh->axis[axis].name);
  if (why) contradict(l, op->loc, &claims, "to split", why);
  constrain_split(p->s, op, axis, more.splits, more.line);
}

// op_trans(op, letter, axis): the op splits this letter; or one of a list, or any but "~k", as
// chosen by search or propagation.
static int op_trans(lua_State *l) {
  Op *op = plan_op(l, 1);
  int axis = plan_axis(l, 3);
  const char *letters = letters_of(l, 2, op);
  if (letters[1]) return allow(l, op, letters, axis);
  plan_say_split(l, op, *letters, axis);
  return 0;
}

// -- Ranks of ops ------------------------------------------------------------------------------

// Entry `i` (from 1) of the list in argument `arg`.
lua_Integer plan_entry(lua_State *l, int arg, lua_Integer i, const char *what, const Loc *loc) {
  int is_integer;
  lua_rawgeti(l, arg, i);
  lua_Integer entry = lua_tointegerx(l, -1, &is_integer);
  if (!is_integer)
    return FAIL(l, loc, "%s %lld of the list is %s, which is no integer", what, (long long)i,
                steady_text(l, -1));
  lua_pop(l, 1);
  return entry;
}

// A rank of the axis, from 0.
static int check_rank(lua_State *l, lua_Integer i, const Op *op, int axis) {
  const MeshAxis *along = &program_of(l)->s->mesh->axis[axis];
  if (i >= 0 && i < along->size) return (int)i;
  return FAIL(l, op->loc, "there is no rank %lld of %s: there are %d, from 0", (long long)i,
              along->name, along->size);
}

// One rank, or a list of them.
static const Ranks *check_ranks(lua_State *l, int arg, const Op *op, int axis) {
  const PlanProgram *p = program_of(l);
  if (!lua_istable(l, arg))
    return ranks_new(p->s, axis, (int[]){check_rank(l, luaL_checkinteger(l, arg), op, axis)}, 1);
  // Each rank once.
  lua_Unsigned n = lua_rawlen(l, arg);
  int size = p->s->mesh->axis[axis].size, *at = arena_array(p->box.arena, int, size);
  bool *seen = arena_array(p->box.arena, bool, size);
  if (n == 0)
    FAIL(l, op->loc, "op_assign wants a rank of %s or a list of them, and this is empty",
         p->s->mesh->axis[axis].name);
  for (lua_Unsigned i = 0; i < n; i++) {
    int rank = check_rank(l, plan_entry(l, arg, (lua_Integer)i + 1, "rank", op->loc), op, axis);
    if (seen[rank]) FAIL(l, op->loc, "rank %d is in the list twice", rank);
    seen[rank] = true;
    at[i] = rank;
  }
  return ranks_new(p->s, axis, at, (int)n);
}

void plan_say_ranks(lua_State *l, Op *op, int arg, int axis) {
  const PlanProgram *p = program_of(l);
  const char *name = op_info[op->kind].name, *along = p->s->mesh->axis[axis].name;
  const Ranks *ranks = check_ranks(l, arg, op, axis);
  // Ranks come before splits: a split's divisibility depends on the number of ranks.
  if (op->split[axis] != SPLIT_NONE) {
    if (p->s->decisions.fixed_by[op->id][axis])
      plan_note(l, p->s->decisions.fixed_by[op->id][axis], "its split was set here");
    FAIL(l, op->loc, "%s splits '%c' along %s already: assign its ranks first", name,
         op->split[axis], along);
  }
  if (p->s->decisions.assigned[op->id][axis]) {
    if (p->s->decisions.assigned_by[op->id][axis])
      plan_note(l, p->s->decisions.assigned_by[op->id][axis], "its ranks were set here");
    FAIL(l, op->loc, "%s runs on %s already", name,
         ranks_text(p->box.arena, p->s->decisions.ranks[op->id][axis], along));
  }
  ConstraintClaim more = {axis, NULL, ranks, plan_line(l)};
  ConstraintClaims claims = op_contradiction(p->s, op, &more);
  if (claims.n)
    contradict(l, op->loc, &claims, "to split",
               str_format(p->box.arena, "%s cannot run on %s", name,
                          ranks_text(p->box.arena, ranks, along)));
  constrain_ranks(p->s, op, axis, ranks, more.line);
}

// op_assign(op, ranks, axis): the op runs on this rank of the axis, or on the ranks of this list.
static int op_assign(lua_State *l) {
  Op *op = plan_op(l, 1);
  plan_say_ranks(l, op, 2, plan_axis(l, 3));
  return 0;
}

// -- Layouts of parameters ---------------------------------------------------------------------

// The reason why a parameter cannot have this dimension sharded along `axis`, or NULL.
static const char *why_not_cut(lua_State *l, const Value *v, char split, int axis) {
  const PlanProgram *p = program_of(l);
  Arena *a = p->box.arena;
  const char *name = v->label ? v->label : value_text(a, v), *along = p->s->mesh->axis[axis].name;
  if (v->def) return str_format(a, "'%s' is no parameter", name);
  if (p->s->decisions.param[v->id][axis] != PARAM_open &&
      split_of_sbp(p->s->decisions.layout[v->id][axis]) != split)
    return str_format(a, "'%s' has another layout along %s already", name, along);
  if (!constraint_allows(p->s->constraints.value[v->id][axis], split))
    return str_format(a, "'%s' is to be split in dimension %s along %s, not '%c'", name,
                      splits_text(a, constraint_splits(p->s->constraints.value[v->id][axis], a)),
                      along, split);
  int dim = split - '0';
  if (split == '-' || param_cuts(p->s, v, dim, axis)) return NULL;
  // "dimension 1 of 'w' is 6, which cannot be split into 4 along dp besides the 2 parts that …"
  const MeshAxis *of = &p->s->mesh->axis[axis];
  const char *subject =
      value_has_batch(v) && dim == 0 ? "the batch of input" : str_format(a, "dimension %d of", dim);
  const char *parts = of->time ? str_format(a, "%d micro-batches", of->size)
                               : str_format(a, "%d along %s", of->size, of->name);
  int64_t already = 1;
  for (int k = 0; k < p->s->mesh->n_axes; k++)
    if (split_of_sbp(p->s->decisions.layout[v->id][k]) == split)
      already *= p->s->mesh->axis[k].size;
  const char *besides = "";
  if (already > 1)
    besides = str_format(a, " besides the %lld parts that it is in already", (long long)already);
  return str_format(a, "%s '%s' is %lld, which cannot be split into %s%s", subject, name,
                    (long long)v->type->dim[dim], parts, besides);
}

// A dimension, or "-": replicated.
char plan_split_arg(lua_State *l, int arg, const Value *v) {
  bool whole = lua_type(l, arg) == LUA_TSTRING && str_equal(lua_tostring(l, arg), "-");
  return (char)(whole ? '-' : '0' + plan_dim(l, arg, v->type->ndim, plan_loc(v)));
}

static int cuts(lua_State *l) {
  const Value *v = plan_value(l, 1);
  char split = plan_split_arg(l, 2, v);
  const char *why = why_not_cut(l, v, split, plan_axis(l, 3));
  lua_pushboolean(l, !why);
  lua_pushstring(l, why);
  return 2;
}

void plan_say_cut(lua_State *l, const Value *v, char split, int axis, ParamChoice given) {
  const PlanProgram *p = program_of(l);
  const char *why = why_not_cut(l, v, split, axis);
  ConstraintClaim more = {axis, str_copy_n(p->s->scratch, &split, 1), NULL, plan_line(l)};
  if (why && v->def) plan_fail(l, plan_loc(v), why);
  ConstraintClaims claims = param_contradiction(p->s, v, &more);
  if (claims.n && !why)
    why =
        str_format(p->box.arena, "'%s' cannot be split so along %s besides the earlier constraints",
                   v->label, p->s->mesh->axis[axis].name);
  if (why) contradict(l, plan_loc(v), &claims, "to split dimension", why);
  constrain_layout(p->s, v, axis, more.splits, given, more.line);
}

// The dimensions in the list that is argument 2.
static const char *splits_arg(lua_State *l, const Value *v) {
  StrBuf b = {.arena = program_of(l)->s->scratch};
  for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(l, 2); i++) {
    lua_rawgeti(l, 2, i);
    if (!lua_isinteger(l, -1) && lua_type(l, -1) != LUA_TSTRING)
      FAIL(l, plan_loc(v), "entry %lld of the list is %s, which is no dimension", (long long)i,
           steady_text(l, -1));
    char split = plan_split_arg(l, -1, v);
    strbuf_add_n(&b, &split, 1);
    lua_settop(l, 3);
  }
  if (!b.n) FAIL(l, plan_loc(v), "split wants a dimension or a list of them, and this is empty");
  return b.at;
}

// Adds the constraint that the parameter is sharded along one of the dimensions.
static int allow_cuts(lua_State *l, const Value *v, const char *splits, int axis) {
  const PlanProgram *p = program_of(l);
  ConstraintClaim more = {axis, splits, NULL, plan_line(l)};
  if (v->def) return plan_fail(l, plan_loc(v), why_not_cut(l, v, *splits, axis));
  ConstraintClaims claims = param_contradiction(p->s, v, &more);
  if (claims.n)
    return contradict(l, plan_loc(v), &claims, "to split dimension",
                      str_format(p->box.arena, "'%s' cannot be split in dimension %s along %s%s",
                                 v->label, splits_text(p->box.arena, splits),
                                 p->s->mesh->axis[axis].name,
                                 claims.n > 1 ? " besides the earlier constraints" : ""));
  constrain_layout(p->s, v, axis, splits, PARAM_fixed, more.line);
  return 0;
}

// split(param, dim, axis): the parameter is sharded along this dimension, or replicated; or one of
// a list.
static int split(lua_State *l) {
  const Value *v = plan_value(l, 1);
  int axis = plan_axis(l, 3);
  lua_settop(l, 3);
  bool list = lua_istable(l, 2);
  const char *splits = list ? splits_arg(l, v) : (char[]){plan_split_arg(l, 2, v), 0};
  if (splits[1]) return allow_cuts(l, v, splits, axis);
  plan_say_cut(l, v, *splits, axis, PARAM_fixed);
  return 0;
}

static int store(lua_State *l) {
  const Value *v = plan_value(l, 1);
  plan_say_cut(l, v, plan_split_arg(l, 2, v), plan_axis(l, 3), PARAM_stored);
  return 0;
}

const luaL_Reg plan_splits[] = {
    {"op_assign", op_assign}, {"can", can},     {"cuts", cuts}, {"op_trans", op_trans},
    {"split", split},         {"store", store}, {NULL, NULL},
};
