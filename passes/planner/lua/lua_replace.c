// A transformation of one's own, for plan programs: an op becomes other ops that compute the same.
//
//     replace(fc, function(x, w)                          a product in two halves of its sum
//       local sum
//       for start = 0, 63, 64 do
//         local xs = build("slice", {x}, {starts = {0, start}, steps = {1, 1}, shape = {8, 64}})
//         local ws = build("slice", {w}, {starts = {start, 0}, steps = {1, 1}, shape = {64, 96}})
//         local y = build("linear", {xs, ws})
//         sum = sum and build("add", {sum, y}) or y
//       end
//       return sum
//     end)
//
// The function gets the op's operands and returns a value for each result.  `build` makes an op of
// any kind of a model from operands and attributes; their types follow from ops.def.  The new ops
// read only the operands and one another, so the claim is about two small programs: the op alone,
// and the new ops.  prove_module (passes/prove) proves it at once; the proof of the whole transform
// repeats it in the model.
//
// A saved plan has the calls of `build` one after the other.

#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "diag_capture.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/verify/verify.h"
#include "lua/lua_deterministic.h"
#include "lua_graph.h"
#include "planner/saved/record.h"
#include "prove/prove.h"

enum { MAX_BUILT = 4096, MAX_OPERANDS = 64 };

struct Replacing {
  Op *op;
  Builder b;
  // Operands of the op, each value once, then the results of new ops, in order.
  Vec(Value *) known;
  int n_operands;
  Vec(Op *) built;
  StrBuf text; // the calls, for a saved plan
};

// -- Attributes ----------------------------------------------------------------------------------

static Attr list_attr(lua_State *l, const char *name) {
  enum { MOST = 4 * MAX_NDIM };
  lua_Integer n = (lua_Integer)lua_rawlen(l, -1);
  if (n > MOST) FAIL(l, NULL, "the list '%s' has more than %d numbers", name, MOST);
  int64_t *at = arena_array(program_of(l)->box.arena, int64_t, n);
  int list = lua_gettop(l);
  for (lua_Integer i = 0; i < n; i++)
    at[i] = plan_entry(l, list, i + 1, name, NULL);
  return a_list(name, at, (int)n);
}

// The value on top, as an attribute of this kind.
static Attr attr_of(lua_State *l, OpKind kind, const AttrSpec *spec) {
  int type = lua_type(l, -1);
  DType dtype;
  switch (spec->kind) {
  case 'i':
    if (lua_isinteger(l, -1)) return a_i(spec->name, lua_tointeger(l, -1));
    break;
  case 'b':
    if (type == LUA_TBOOLEAN) return a_b(spec->name, lua_toboolean(l, -1));
    break;
  case 'f':
    if (type == LUA_TNUMBER) return a_f(spec->name, lua_tonumber(l, -1));
    break;
  case 's':
    if (type == LUA_TSTRING)
      return a_s(spec->name, str_copy(program_of(l)->box.arena, lua_tostring(l, -1)));
    break;
  case 't':
    if (type == LUA_TSTRING && dtype_parse(lua_tostring(l, -1), &dtype))
      return a_t(spec->name, dtype);
    break;
  case 'I':
    if (type == LUA_TTABLE) return list_attr(l, spec->name);
    break;
  default: FAIL(l, NULL, "%s: '%s' cannot be given", op_info[kind].name, spec->name);
  }
  static const char *const wants[] = {
      ['i'] = "a whole number", ['b'] = "true or false",          ['f'] = "a number",
      ['s'] = "a text",         ['t'] = "a type such as \"f32\"", ['I'] = "a list"};
  FAIL(l, NULL, "%s: '%s' is %s, not %s", op_info[kind].name, spec->name, wants[(int)spec->kind],
       steady_text(l, -1));
  return (Attr){0};
}

static const char *number_text(Arena *a, double x) {
  if (isnan(x)) return "0/0";
  if (isinf(x)) return x > 0 ? "math.huge" : "-math.huge";
  return str_format(a, "%.17g", x);
}

static void write_attr(StrBuf *b, const Attr *a) {
  strbuf_addf(b, "%s = ", a->name);
  switch (a->kind) {
  case 'i': strbuf_addf(b, "%lld", (long long)a->i); break;
  case 'b': strbuf_add(b, a->i ? "true" : "false"); break;
  case 'f': strbuf_add(b, number_text(b->arena, a->f)); break;
  case 's': strbuf_add(b, lua_quoted(b->arena, a->s)); break;
  case 't': strbuf_addf(b, "\"%s\"", dtype_name[a->t]); break;
  case 'I':
    for (int i = 0; i < a->list.n; i++)
      strbuf_addf(b, "%s%lld", i ? ", " : "{ ", (long long)a->list.at[i]);
    strbuf_add(b, a->list.n ? " }" : "{}");
    break;
  default: BUG("no attribute of a program");
  }
}

static void fail_unknown_attr(lua_State *l, OpKind kind, const AttrSpec *spec, int n) {
  StrBuf known = {.arena = program_of(l)->box.arena};
  for (int i = 0; i < n; i++)
    strbuf_addf(&known, "%s%s", i ? ", " : "; it has ", spec[i].name);
  FAIL(l, NULL, "%s has no attribute '%s'%s", op_info[kind].name, steady_text(l, -2),
       n ? known.at : "");
}

// The table in argument 3, in the order of ops.def; returns their number.
static int check_attrs(lua_State *l, OpKind kind, Attr *out) {
  int n, count = 0;
  const AttrSpec *spec = op_attr_specs(kind, &n);
  if (lua_isnoneornil(l, 3)) return 0;
  luaL_checktype(l, 3, LUA_TTABLE);
  for (lua_pushnil(l); lua_next(l, 3); lua_pop(l, 1)) {
    const char *name = lua_type(l, -2) == LUA_TSTRING ? lua_tostring(l, -2) : NULL;
    int k = 0;
    while (k < n && !str_equal(spec[k].name, name))
      k++;
    if (k == n) fail_unknown_attr(l, kind, spec, n);
  }
  for (int k = 0; k < n; k++) {
    if (lua_getfield(l, 3, spec[k].name) != LUA_TNIL) out[count++] = attr_of(l, kind, &spec[k]);
    lua_pop(l, 1);
  }
  return count;
}

// -- Operands ------------------------------------------------------------------------------------

static int known_index(const Replacing *r, const Value *v) {
  for (int i = 0; i < r->known.n; i++)
    if (r->known.at[i] == v) return i;
  return -1;
}

static bool reads_known(const Replacing *r, const Op *op) {
  bool all = plan_there(op);
  for (int i = 0; i < op->n_in && all; i++)
    all = known_index(r, op->in[i].value) >= 0;
  return all;
}

// Ends the program if another call, such as pieces, has changed the op, or, at the end, the new
// ops.
static void check_unchanged(lua_State *l, const Replacing *r, bool at_end) {
  bool same = reads_known(r, r->op);
  for (int i = 0; i < r->built.n && at_end; i++)
    same &= reads_known(r, r->built.at[i]);
  for (int i = 0; i < r->n_operands; i++)
    same &= !r->known.at[i]->def || plan_there(r->known.at[i]->def);
  if (!same)
    FAIL(l, r->op->loc,
         "a function of replace changes the model by build alone, and it has changed");
}

// The value at `arg`: an operand of the op, or built from these.
static Value *check_known(lua_State *l, int arg, const char *what) {
  const Replacing *r = program_of(l)->replacing;
  if (!luaL_testudata(l, arg, PLAN_VALUES))
    FAIL(l, NULL, "%s is %s, and no value", what, lua_isnone(l, arg) ? "nil" : steady_text(l, arg));
  Value *v = plan_value(l, arg);
  if (known_index(r, v) >= 0) return v;
  bool own = v->def == r->op;
  FAIL(l, plan_loc(v),
       own ? "%s is a result of the op that is replaced"
           : "%s is another value of the model: new ops read operands of the op, "
             "and what is built from these",
       what);
  return v;
}

static int check_operands(lua_State *l, const char *kind, Value **out) {
  luaL_checktype(l, 2, LUA_TTABLE);
  lua_Integer n = (lua_Integer)lua_rawlen(l, 2);
  if (n > MAX_OPERANDS)
    FAIL(l, NULL, "%s: an op is built from at most %d operands", kind, MAX_OPERANDS);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(l, 2, i);
    out[i - 1] =
        check_known(l, -1, str_format(program_of(l)->box.arena, "operand %d of %s", (int)i, kind));
    lua_pop(l, 1);
  }
  return (int)n;
}

// -- Building ------------------------------------------------------------------------------------

static OpKind check_built_kind(lua_State *l) {
  const char *name = luaL_checkstring(l, 1);
  OpKind kind;
  if (!op_kind_parse(name, &kind)) FAIL(l, NULL, "there is no op '%s'", name);
  enum {
    NOT_OF_MODELS = COMM | OPTIMIZER | STATES | ACCUMULATES | ASYNC | APPLIES_STEP | MULTI_TENSOR
  };
  if (op_has_callee(kind) || (op_info[kind].traits & NOT_OF_MODELS))
    FAIL(l, NULL, "%s is no op of a model: it comes from a later pass", name);
  return kind;
}

// v[4] = build("linear", { v[1], v[3] }, { … })
static void write_build(Replacing *r, const Op *op, const Attr *attrs, int n_attrs) {
  StrBuf *b = &r->text;
  strbuf_add(b, "      ");
  for (int i = 0; i < op->n_out; i++)
    strbuf_addf(b, "%sv[%d]", i ? ", " : "", r->known.n - op->n_out + i + 1);
  strbuf_addf(b, " = build(\"%s\", {", op_info[op->kind].name);
  for (int i = 0; i < op->n_in; i++)
    strbuf_addf(b, "%sv[%d]", i ? ", " : " ", known_index(r, op->in[i].value) + 1);
  strbuf_add(b, op->n_in ? " }" : "}");
  for (int i = 0; i < n_attrs; i++) {
    strbuf_add(b, i ? ", " : ", { ");
    write_attr(b, &attrs[i]);
  }
  strbuf_add(b, n_attrs ? " })\n" : ")\n");
}

// An error of new ops for a product with a transposed weight, which these may lack.
static void hint_trans(lua_State *l, const Op *op) {
  if (op_has_attr(op, "trans") && op_attr(op, "trans")->i)
    program_of(l)->box.hint =
        str_format(program_of(l)->box.arena,
                   "the weight of this %s has its columns first, as n k: build(\"%s\", operands, "
                   "{trans = true}), and slice dimension 1 of it along k",
                   op_info[op->kind].name, op_info[op->kind].name);
}

// build(kind, operands, attributes): a new op; returns its results.
static int build(lua_State *l) {
  PlanProgram *p = program_of(l);
  Replacing *r = p->replacing;
  if (!r) return FAIL(l, NULL, "build makes the ops of a replacement: this belongs into 'replace'");
  lua_settop(l, 3);
  check_unchanged(l, r, false);
  OpKind kind = check_built_kind(l);
  Value *in[MAX_OPERANDS];
  int n_specs, n = check_operands(l, op_info[kind].name, in);
  op_attr_specs(kind, &n_specs);
  Attr *attrs = arena_array(p->box.arena, Attr, n_specs);
  int n_attrs = check_attrs(l, kind, attrs);
  if (r->built.n == MAX_BUILT)
    return FAIL(l, r->op->loc, "a replacement has at most %d ops", MAX_BUILT);
  DiagCapture capture;
  diag_capture_begin(&capture);
  Op *op = op_new(r->b.g, r->b.at, kind, in, n, attrs, n_attrs, r->b.origin, capture.d);
  const char *why = diag_capture_end(&capture, p->box.arena);
  if (!op) {
    hint_trans(l, r->op);
    return plan_fail(l, r->op->loc, why);
  }
  vec_push(p->box.arena, &r->built, op);
  luaL_checkstack(l, op->n_out, NULL);
  for (int i = 0; i < op->n_out; i++) {
    vec_push(p->box.arena, &r->known, op->out[i]);
    plan_push(l, op->out[i], PLAN_VALUES);
  }
  write_build(r, op, attrs, n_attrs);
  return op->n_out;
}

// -- The claim -----------------------------------------------------------------------------------

// A module of these ops alone, with inputs for the operands and outputs for the results.
static Module *small_module(const Replacing *r, Op *const *op, int n_ops, Value *const *result,
                            int n_results, Diag *d) {
  Module *m = module_new();
  m->phase = r->op->graph->module->phase;
  Graph *g = graph_new(m, "main", true);
  Arena *a = m->arena;
  Value **own = arena_array(a, Value *, r->op->graph->n_values); // by id of the value
  for (int i = 0; i < r->n_operands; i++) {
    const Type *t = r->known.at[i]->type;
    Value *v = graph_param(g, NULL, type_new(m, t->dtype, t->ndim, t->dim), ROLE_input, NULL);
    v->label = str_format(a, "x%d", i + 1);
    own[r->known.at[i]->id] = v;
  }
  for (int i = 0; i < n_ops; i++) {
    Value **in = arena_array(a, Value *, op[i]->n_in);
    for (int k = 0; k < op[i]->n_in; k++)
      in[k] = own[op[i]->in[k].value->id];
    Op *copy = op_copy(g, NULL, op[i], in, d);
    if (!copy) BUG("%s cannot be copied", op_info[op[i]->kind].name);
    for (int k = 0; k < op[i]->n_out; k++)
      own[op[i]->out[k]->id] = copy->out[k];
  }
  for (int i = 0; i < n_results; i++)
    if (result[i]) graph_output(g, own[result[i]->id], str_format(a, "y%d", i + 1));
  return m;
}

// Ends the program unless the new ops compute the results of the op.
static void check_same(lua_State *l, const Replacing *r, Value *const *result) {
  DiagCapture capture;
  diag_capture_begin(&capture);
  Op *op = r->op;
  Value **before = arena_array(program_of(l)->box.arena, Value *, op->n_out);
  for (int i = 0; i < op->n_out; i++)
    before[i] = result[i] ? op->out[i] : NULL;
  Module *old = small_module(r, &op, 1, before, op->n_out, capture.d);
  Module *new = small_module(r, r->built.at, r->built.n, result, op->n_out, capture.d);
  bool ok = module_verify(new, capture.d) && prove_module(old, new, capture.d);
  module_free(old);
  module_free(new);
  const char *why = diag_capture_end(&capture, program_of(l)->box.arena);
  if (!ok)
    FAIL(l, op->loc, "it is not proved that these ops compute the same as %s: %s",
         op_info[op->kind].name, why);
}

// -- The call ------------------------------------------------------------------------------------

// Erases new ops that nothing reads, and that give no result.
static void erase_unread(Replacing *r, Value *const *result) {
  for (int i = r->built.n - 1; i >= 0; i--) {
    bool read = false;
    for (int k = 0; k < r->built.at[i]->n_out; k++)
      read |= value_used(r->built.at[i]->out[k]);
    for (int k = 0; k < r->op->n_out; k++)
      read |= result[k] && result[k]->def == r->built.at[i];
    if (read) continue;
    op_erase(r->built.at[i]);
    memmove(&r->built.at[i], &r->built.at[i + 1],
            (size_t)(r->built.n - i - 1) * sizeof *r->built.at);
    r->built.n--;
  }
}

// The values that the function returned, above `base`; nil, NULL here, for results that nothing
// reads.
static void check_results(lua_State *l, const Replacing *r, int base, Value **out) {
  const Op *op = r->op;
  Arena *a = program_of(l)->box.arena;
  const char *name = op_info[op->kind].name;
  if (lua_gettop(l) - base > op->n_out)
    FAIL(l, op->loc, "%s has %d result%s, and the function returned %d", name, op->n_out,
         op->n_out == 1 ? "" : "s", lua_gettop(l) - base);
  for (int i = 0; i < op->n_out; i++) {
    const char *what = str_format(a, "result %d of the function", i + 1);
    if (lua_isnoneornil(l, base + i + 1) && !value_used(op->out[i])) continue;
    out[i] = check_known(l, base + i + 1, what);
    if (out[i]->type != op->out[i]->type) hint_trans(l, op);
    if (out[i]->type != op->out[i]->type)
      FAIL(l, op->loc, "%s is %s, and %s of %s", what, type_text(a, out[i]->type),
           type_text(a, op->out[i]->type), name);
  }
}

// The call, as a saved plan repeats it: its function gets each operand, also one several times.
static const char *call_text(const Replacing *r, const char *op_name, Value *const *result) {
  const Op *op = r->op;
  StrBuf b = {.arena = r->text.arena};
  strbuf_addf(&b, "replace(%s, function(...)\n      local x, v = { ... }, {}\n", op_name);
  for (int i = 0; i < op->n_in; i++)
    strbuf_addf(&b, "      v[%d] = x[%d]\n", known_index(r, op->in[i].value) + 1, i + 1);
  strbuf_addf(&b, "%s      return ", r->text.at ? r->text.at : "");
  for (int i = 0; i < op->n_out; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "",
                result[i] ? str_format(b.arena, "v[%d]", known_index(r, result[i]) + 1) : "nil");
  strbuf_add(&b, "\n    end)");
  return b.at;
}

// Calls the function in argument 2 with the operands; its results stay above.
static void call_with_operands(lua_State *l, const Op *op) {
  luaL_checkstack(l, op->n_in + 2, NULL);
  lua_pushvalue(l, 2);
  for (int i = 0; i < op->n_in; i++)
    plan_push(l, op->in[i].value, PLAN_VALUES);
  lua_call(l, op->n_in, LUA_MULTRET);
}

// replace(op, function): the op becomes those that the function builds.
static int replace(lua_State *l) {
  PlanProgram *p = program_of(l);
  Op *op = plan_op(l, 1);
  const char *name = op_info[op->kind].name;
  luaL_checktype(l, 2, LUA_TFUNCTION);
  if (p->n_axes) return FAIL(l, op->loc, "the model is as it is now: this belongs into 'model'");
  if (p->replacing)
    return FAIL(l, op->loc, "a replacement is built of ops, and not of replacements");
  if (op_has_callee(op->kind)) return FAIL(l, op->loc, "%s has ops of its own, and stays", name);
  if (op->n_in > MAX_OPERANDS) return FAIL(l, op->loc, "%s has too many operands", name);
  lua_settop(l, 2);
  plan_before_cut(l);
  Record *rec = p->s->record;
  record_before(rec, &op, 1);
  const char *recorded = record_op(rec, op);
  Arena *a = p->box.arena;
  Replacing *r = arena_one(a, Replacing);
  *r = (Replacing){.op = op, .text.arena = a};
  r->b = (Builder){.g = op->graph, .at = op, .origin = op_origin(op)};
  for (int i = 0; i < op->n_in; i++)
    if (known_index(r, op->in[i].value) < 0) vec_push(a, &r->known, op->in[i].value);
  r->n_operands = r->known.n;
  // The function builds ops before this one.
  p->replacing = r;
  int base = lua_gettop(l);
  call_with_operands(l, op);
  check_unchanged(l, r, true);
  Value **result = arena_array(a, Value *, op->n_out);
  check_results(l, r, base, result);
  erase_unread(r, result);
  check_same(l, r, result);
  if (rec) record_call(rec, p->s->g, "%s", call_text(r, recorded, result));
  // In place of the op.
  for (int i = 0; i < op->n_out; i++)
    if (result[i]) value_replace(op->out[i], result[i]);
  op_erase(op);
  p->replacing = NULL;
  plan_changed(p);
  plan_after_cut(l, &(CutOp){op, r->built.at, r->built.n}, 1);
  return 0;
}

const luaL_Reg plan_replaces[] = {{"build", build}, {"replace", replace}, {NULL, NULL}};
