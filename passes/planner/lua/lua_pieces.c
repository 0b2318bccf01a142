// Pieces of ops that run in sequence on one device, for plan programs: see pieces.h.
//
//     pieces({ { op = fc1, letter = "n" } }, 4)      fc1 and its readers become four pieces each
//     coshard{ ops = layers(), pieces = 4 }          pairs of products in the list do, as tensor
//                                                    parallelism would split them
//
// An op in a list that was cut stands for its pieces, the slices of their operands and the sums of
// their results.  So lists that were made before, such as layers, stay valid:
//
//     local list = layers()[1]
//     coshard{ ops = list, pieces = 4 }
//     recompute(list, true)
//
// The same holds after other changes of the model: unpack, pad, dispatch_experts (lua_changes.c).

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "lua/lua_deterministic.h"
#include "lua_graph.h"
#include "pieces.h"
#include "planner/saved/record.h"

enum { MAX_PIECES = 1024 };

// A number of equal pieces, or a list of relative sizes.
static PieceSizes check_sizes(lua_State *l, int arg) {
  PieceSizes s = {0};
  bool equal = !lua_istable(l, arg);
  int whole = 1;
  lua_Integer n = equal ? lua_tointegerx(l, arg, &whole) : (lua_Integer)lua_rawlen(l, arg);
  if (!whole)
    FAIL(l, NULL, "the number of pieces is a whole number, or a list of their sizes, not %s",
         lua_isnone(l, arg) ? "nil" : steady_text(l, arg));
  if (n < 1 || n > MAX_PIECES) FAIL(l, NULL, "pieces wants 1 to %d pieces", MAX_PIECES);
  int *at = arena_array(program_of(l)->box.arena, int, n);
  for (s.at = at; s.n < n; s.sum += at[s.n++]) {
    lua_Integer size = equal ? 1 : plan_entry(l, arg, s.n + 1, "size", NULL);
    if (size < 1 || size > INT32_MAX / MAX_PIECES)
      FAIL(l, NULL, "a piece has a size of 1 or more, not %lld", (long long)size);
    at[s.n] = (int)size;
  }
  // Interleaved rows are slices with a stride, the same for all pieces.
  if (!lua_isnoneornil(l, arg + 1)) luaL_checktype(l, arg + 1, LUA_TBOOLEAN);
  s.dealt = lua_toboolean(l, arg + 1);
  for (int i = 1; s.dealt && i < s.n; i++)
    if (at[i] != *at) FAIL(l, NULL, "rows dealt in turn have equal pieces");
  return s;
}

// Lets each op that was cut stand for those that replaced it, in lists of the program.
void plan_note_cuts(lua_State *l, const CutOp *cut, int n) {
  PlanProgram *p = program_of(l);
  for (int i = 0; i < n; i++) {
    vec_push(p->box.arena, &p->cuts, cut[i]);
    // The program has no userdata of most of them.
    if (lua_rawgetp(l, LUA_REGISTRYINDEX, cut[i].op) != LUA_TNIL) {
      lua_createtable(l, cut[i].n, 0);
      for (int k = 0; k < cut[i].n; k++) {
        plan_push(l, cut[i].now[k], PLAN_OPS);
        lua_rawseti(l, -2, k + 1);
      }
      lua_setiuservalue(l, -2, 1);
    }
    lua_pop(l, 1);
  }
}

static const CutOp *cut_of(const CutOp *cut, int n, const Op *op) {
  for (int i = 0; i < n; i++)
    if (cut[i].op == op) return &cut[i];
  return NULL;
}

// Replaces the ops that were cut in the layers.
static void update_layers(PlanLayers *layers, const CutOp *cut, int n_cut) {
  for (int i = 0; i < layers->all.n; i++) {
    const OpList old = layers->all.at[i];
    OpList now = {0};
    for (int k = 0; k < old.n; k++) {
      const CutOp *by = plan_there(old.at[k]) ? NULL : cut_of(cut, n_cut, old.at[k]);
      for (int n = 0; by && n < by->n; n++)
        vec_push(layers->arena, &now, by->now[n]);
      if (!by) vec_push(layers->arena, &now, old.at[k]);
    }
    layers->all.at[i] = now;
  }
}

void plan_before_cut(lua_State *l) {
  PlanLayers *layers = program_of(l)->layers;
  if (!layers->known) plan_find_layers(l, layers->arena, &layers->all);
  layers->known = true;
}

void plan_after_cut(lua_State *l, const CutOp *cut, int n) {
  update_layers(program_of(l)->layers, cut, n);
  plan_note_cuts(l, cut, n);
}

// Cuts these ops and their readers, if that is possible, and records the call.
static PiecesMade cut(lua_State *l, const PieceStart *start, int n, const PieceSizes *sizes) {
  PlanProgram *p = program_of(l);
  PiecesMade made;
  plan_before_cut(l);
  // The names for the record must be taken before the ops are replaced:
  // "{ { op = o[1], letter = "k" } }, { 3, 2 }"
  Op **ops = arena_array(p->box.arena, Op *, n);
  for (int i = 0; i < n; i++)
    ops[i] = start[i].op;
  record_before(p->s->record, ops, n);
  Record *r = p->s->record;
  StrBuf b = {.arena = r ? r->arena : NULL};
  for (int i = 0; r && i < n; i++)
    strbuf_addf(&b, "%s{ op = %s, letter = \"%c\" }", i ? ", " : "{ ", record_op(r, start[i].op),
                start[i].letter);
  for (int i = 0; r && i < sizes->n; i++)
    strbuf_addf(&b, "%s%d", i ? ", " : " }, { ", sizes->at[i]);
  if (r) strbuf_add(&b, sizes->dealt ? " }, true" : " }");
  if (!cut_in_pieces(start, n, sizes, p->box.arena, &made, p->box.d))
    FAIL(l, start->op->loc, "the ops stay as they are");
  if (made.done && r) record_call(r, p->s->g, "pieces(%s)", b.at);
  plan_changed(p);
  plan_after_cut(l, made.cut, made.n);
  return made;
}

// pieces(list of {op=, letter=}, n or list of sizes, interleaved): returns whether these and their
// readers were split; if not, also the op that prevents it, if there is one.
static int pieces(lua_State *l) {
  PlanProgram *p = program_of(l);
  luaL_checktype(l, 1, LUA_TTABLE);
  int n = (int)lua_rawlen(l, 1);
  PieceSizes sizes = check_sizes(l, 2);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  if (n < 1) return FAIL(l, NULL, "pieces wants a list of {op=, letter=}, and this is empty");
  // Entries of the list.
  PieceStart *start = arena_array(p->box.arena, PieceStart, n);
  for (int i = 0; i < n; i++) {
    lua_settop(l, 2);
    bool fits = lua_rawgeti(l, 1, i + 1) == LUA_TTABLE;
    fits = fits && lua_getfield(l, 3, "op") && luaL_testudata(l, 4, PLAN_OPS);
    fits = fits && lua_getfield(l, 3, "letter") == LUA_TSTRING;
    if (!fits) return FAIL(l, NULL, "number %d of the list is no {op=, letter=}", i + 1);
    start[i].op = plan_op(l, 4);
    start[i].letter = plan_letter_arg(l, 5, start[i].op);
  }
  PiecesMade made = cut(l, start, n, &sizes);
  // Unless it is done, also the op that prevents it.
  lua_pushboolean(l, made.done);
  if (made.done || !made.wall) return 1;
  plan_push(l, made.wall, PLAN_OPS);
  return 2;
}

// -- Co-shard ------------------------------------------------------------------------------------

// The letter of the columns of a product with a weight, which is no piece yet; 0: it is something
// else.
static char columns_of(lua_State *l, const Op *op) {
  if (op->kind != OP_linear || op->piece) return 0;
  const Value *w = plan_source(op->in[1].value);
  const Dims *dims = plan_einsum(l, op);
  const Term *t = &dims->out[0];
  if (w->def || w->role != ROLE_weight || !t->ndim) return 0;
  int letter = plan_letter_of(dims, t, t->ndim - 1);
  return letter < 0 ? 0 : dims->letter[letter].name;
}

// Whether the op is the first of the listed products with its operand that are no pieces; `start`
// gets all of them.
static int products_with(lua_State *l, const Op *op, const OpList *list, PieceStart *start) {
  int n = 0;
  if (!columns_of(l, op)) return 0;
  for (int i = 0; i < list->n; i++) {
    Op *other = list->at[i];
    bool is_same = plan_there(other) && other->n_in && other->in[0].value == op->in[0].value;
    char letter = is_same ? columns_of(l, other) : 0;
    if (letter) start[n++] = (PieceStart){other, letter};
  }
  return start->op == op ? n : 0;
}

// "2 pieces of equal size", "pieces of 4 and 3 parts of 7"
static const char *sizes_text(Arena *a, const PieceSizes *s) {
  StrBuf b = {.arena = a};
  if (s->sum == s->n) return str_format(a, "%d equal pieces", s->n);
  strbuf_add(&b, "pieces of ");
  for (int i = 0; i < s->n; i++)
    strbuf_addf(&b, "%s%d", !i ? "" : i == s->n - 1 ? " and " : ", ", s->at[i]);
  return str_format(a, "%s parts of %d", b.at, s->sum);
}

static void check_coshard(lua_State *l) {
  static const char *const names[] = {"ops", "pieces", "skip"};
  luaL_checktype(l, 1, LUA_TTABLE);
  if (lua_gettop(l) > 1) FAIL(l, NULL, "coshard takes a table, and nothing else");
  for (lua_pushnil(l); lua_next(l, 1); lua_pop(l, 1)) {
    bool known = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && lua_type(l, -2) == LUA_TSTRING; i++)
      known |= str_equal(names[i], lua_tostring(l, -2));
    if (!known) FAIL(l, NULL, "coshard takes ops, pieces and skip, not '%s'", steady_text(l, -2));
  }
}

// coshard{ops=, pieces=, skip=}: cuts pairs of products with weights into pieces, along the columns
// of the first and what these columns become.  Returns how many groups of products with a common
// operand were cut.
static int coshard(lua_State *l) {
  PlanProgram *p = program_of(l);
  OpList list = {0};
  const Graph *g = plan_sharding(l)->g;
  check_coshard(l);
  if (p->n_axes) return FAIL(l, NULL, "the model is as it is now: this belongs into 'model'");
  lua_settop(l, 1);
  lua_getfield(l, 1, "ops");
  plan_list(l, arena_array(p->s->scratch, bool, g->n_ops), &list, "ops");
  if (lua_getfield(l, 1, "pieces") == LUA_TNIL)
    return FAIL(l, NULL,
                "coshard wants the number of pieces, as in coshard{ops=layers(), pieces=4}");
  // The sizes of pieces are argument 3, and nothing follows.
  PieceSizes sizes = check_sizes(l, 3);
  if (lua_getfield(l, 1, "skip") != LUA_TNIL && !lua_isboolean(l, -1))
    return FAIL(l, NULL, "'skip' is true or false");
  bool skip = lua_toboolean(l, -1);
  PieceStart *start = arena_array(p->s->scratch, PieceStart, list.n);
  const char *kind = NULL; // of an op that prevents the cut of some products
  const Loc *wall = NULL;
  const Op *first_piece = NULL;
  int n_cut = 0, n_pieces = 0;
  for (int i = 0; i < list.n; i++) {
    // A cut replaces ops of the list, of which those with pieces are no candidates any more.
    Op *op = list.at[i];
    n_pieces += op->piece > 0;
    if (op->piece > 0 && !first_piece) first_piece = op;
    int n = plan_there(op) ? products_with(l, op, &list, start) : 0;
    if (!n) continue;
    PiecesMade made = cut(l, start, n, &sizes);
    n_cut += made.done;
    if (made.length && !skip)
      return FAIL(l, made.wall->loc,
                  "'%s' cannot be cut: dimension '%c' of %s has length %lld, which is not %s",
                  op_node(op), made.letter, op_info[made.wall->kind].name, (long long)made.length,
                  sizes_text(p->box.arena, &sizes));
    if (made.wall && !wall) wall = made.wall->loc, kind = op_info[made.wall->kind].name;
  }
  if (!n_cut && !skip && sizes.n > 1) {
    if (n_pieces)
      return FAIL(l, first_piece->loc, "the ops of the list are in pieces already: '%s' is",
                  op_node(first_piece));
    if (!wall) return FAIL(l, NULL, "the list has no product with a weight that could be cut");
    return FAIL(l, wall, "no product of the list can be cut: this %s needs all of its operand",
                kind);
  }
  lua_pushinteger(l, n_cut);
  return 1;
}

const luaL_Reg plan_pieces[] = {{"coshard", coshard}, {"pieces", pieces}, {NULL, NULL}};
