// The call of one op: the function that computes it, with its operands, results and arguments.
//
//     RUN(6, nnrt_linear_back_w_f32(P1, DW, X, DH));
//            --------------------------------------
//
// A prepared kernel has its arguments in the preparation of its rank program:
//
//     PREPARE(P1, 6, nnrt_linear_back_w_prep_f32(2, 4, 6, false));

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "ir/kernel.h"
#include "ir/op_display_name.h"

const void *op_key(const Op *op, int which) {
  return (const char *)op + which;
}

bool want_number(Check *c, const Cursor *at, GraphText *g, int64_t number, const Op *op,
                 int which) {
  if (number < 0 || number >= g->n_ops) return mismatch(c, at, "no op has this number");
  const void *key = op_key(op, which);
  if (g->made_of[number] == key) return true;
  if (g->made_of[number])
    return mismatch(c, at, "number %" PRId64 " is that of another op", number);
  g->made_of[number] = key;
  const char *title = which == 1                 ? "move"
                      : which == 2               ? "wait"
                      : op->kind == OP_swap_wait ? "wait"
                                                 : op_title(c->arena, op, c->target);
  const char *name = str_format(c->arena, "%s  %s", title, op_place(c->arena, op));
  if (!str_equal(g->ops[number], name))
    return mismatch(c, at, "errors name op %" PRId64 " '%s', and it is '%s'", number,
                    g->ops[number], name);
  if (!g->work) return true;
  CallWork need = op_call_work(op);
  const CallWork *have = &g->work[number];
  return (have->flops == need.flops && have->bytes == need.bytes && have->type == need.type) ||
         mismatch(c, at, "the work of op %" PRId64 " is not that of its type and shapes", number);
}

static bool want_values(Check *c, Cursor *at, const Op *op, bool array) {
  for (int i = 0; i < op->n_out; i++) {
    if (i && !want(c, at, ",")) return false;
    if (!want_place(c, at, op->out[i], str_format(c->arena, "result %d", i + 1))) return false;
  }
  if (op->n_in == 0) return true;
  if (op->n_out && !want(c, at, ",")) return false;
  if (array && !want(c, at, "(const void *const[]){")) return false;
  for (int i = 0; i < op->n_in; i++) {
    if (i && !want(c, at, ",")) return false;
    if (!want_place(c, at, op->in[i].value, str_format(c->arena, "operand %d", i + 1)))
      return false;
  }
  return !array || want(c, at, "}");
}

// The preparation of the macro at the cursor, by the function of this name.
static PrepCall *want_prep(Check *c, Cursor *at, CodeText *code, const char *name) {
  const Cursor before = *at;
  CToken macro;
  const MacroPlace *p = take(at, "%w", &macro) ? place_find(c, &macro) : NULL;
  if (!p || p->kind != PLACE_prep || p->offset >= c->p.n_prep || !code->prep[p->offset].name.n) {
    mismatch(c, &before, "'%s' is not prepared in this rank program",
             ctoken_text(&macro, c->arena));
    return NULL;
  }
  PrepCall *prep = &code->prep[p->offset];
  // Errors of a preparation name the first op that runs it, in the order of graphs and numbers.
  int64_t key = prep_key(c->at_graph, c->number), *first = &c->prep_first[p->offset];
  if (key < *first) *first = key;
  if (ctoken_is(&prep->name, name)) return prep;
  mismatch(c, &before, "'%s' is prepared by %s, not by %s", ctoken_text(&macro, c->arena),
           ctoken_text(&prep->name, c->arena), name);
  return NULL;
}

// The arguments of a preparation, at its place in the text.
static bool end_prep(Check *c, Cursor *args) {
  return want(c, args, "));");
}

static bool want_kernel(Check *c, Cursor *at, const Op *op, CodeText *code) {
  char name[128], prep_name[128];
  if (!kernel_name(op, c->target, name, sizeof name))
    return mismatch(c, at, "the op has no kernel, and there is a call");
  if (!want_word(c, at, name, "the kernel") || !want(c, at, "(")) return false;
  bool array = kernel_variadic(op);
  if (!(op_info[op->kind].traits & PREP)) {
    if (!want_values(c, at, op, array)) return false;
    return want_args(c, at, op, 0, op->n_out + op->n_in == 0) && want(c, at, ")");
  }
  if (!kernel_prep_name(op, c->target, prep_name, sizeof prep_name))
    return mismatch(c, at, "the op has no preparation, and there is one");
  PrepCall *prep = want_prep(c, at, code, prep_name);
  if (!prep) return false;
  prep->used = true;
  Cursor args = prep->args;
  if (!want_args(c, &args, op, 0, true) || !end_prep(c, &args)) return false;
  return want(c, at, ",") && want_values(c, at, op, array) && want(c, at, ")");
}

static bool want_fused(Check *c, Cursor *at, const Op *op) {
  const Cursor before = *at;
  CToken name;
  if (!take(at, "%w(", &name)) return unexpected(c, at, "the call of a fused body");
  const char *function = ctoken_text(&name, c->arena);
  if (c->target == TARGET_cuda && !table_find(c->names, NAME_declared, function))
    return mismatch(c, &before, "'%s' is not declared", function);
  Unit *u = unit_find(c, &before, function, UNIT_fused);
  return u && want_values(c, at, op, false) && want(c, at, ")") && body_check(c, u, op);
}

// -- Several ops in one launch -----------------------------------------------------------------

Launch launch_of(Check *c, const Op *op) {
  const Graph *callee = op->callee;
  Launch l = {.outside = arena_array(c->arena, const Value *, callee->n_values)};
  for (int i = 0; i < callee->n_params; i++)
    l.outside[callee->params[i]->id] = op->in[i].value;
  for (int i = 0; i < callee->n_results; i++)
    l.outside[callee->results[i]->use.value->id] = op->out[i];
  for_each_op(member, callee)
    if (multi_tensor_narrows(member)) l.cast = member;
  return l;
}

static bool want_outside(Check *c, Cursor *at, const Value *of, bool *first, const char *what) {
  if (!*first && !want(c, at, ",")) return false;
  *first = false;
  return of ? want_place(c, at, of, what)
            : mismatch(c, at, "%s has no place outside of the launch", what);
}

// The narrow result of a member, that of the cast after it; or NULL.
static const Op *narrow_of(const Op *member) {
  return member->next && multi_tensor_narrows(member->next) ? member->next : NULL;
}

// The results of a member, and its narrow one if some member has one.
static bool want_results(Check *c, Cursor *at, const Launch *l, const Op *member, bool *first) {
  for (int i = 0; i < member->n_out; i++)
    if (!want_outside(c, at, l->outside[member->out[i]->id], first, "a result")) return false;
  if (!l->cast) return true;
  const Op *narrow = narrow_of(member);
  return narrow ? want_outside(c, at, l->outside[narrow->out[0]->id], first, "a narrow result")
                : want(c, at, ", NULL");
}

static bool want_operands(Check *c, Cursor *at, const Launch *l, const Op *member, bool *first) {
  for (int i = 0; i < member->n_in; i++)
    if (!want_outside(c, at, l->outside[member->in[i].value->id], first, "an operand"))
      return false;
  return true;
}

bool tensor_is_next(const Cursor *at) {
  Cursor next = *at;
  return take(&next, "nnrt_batch_tensor(");
}

bool want_tensor(Check *c, Cursor *at, const Launch *l, const Op *member, int k,
                 const CodeText *code) {
  if (!want(c, at, "nnrt_batch_tensor(")) return false;
  const Cursor before = *at;
  CToken macro;
  const MacroPlace *p = take(at, "%w,", &macro) ? place_find(c, &macro) : NULL;
  if (!p || p->kind != PLACE_prep || p->offset >= c->p.n_prep)
    return unexpected(c, &before, "the preparation of a launch");
  const PrepCall *prep = &code->prep[p->offset];
  // The call follows the statements of all its ops, and has their preparation.
  if (k && prep != c->named) return mismatch(c, &before, "this names a tensor of another launch");
  c->named = prep;
  bool first = true;
  if (!want_int(c, at, k, "the number of an op of the launch") ||
      !want(c, at, ", (void *const[]){") || !want_results(c, at, l, member, &first) ||
      !want(c, at, "}, (const void *const[]){"))
    return false;
  first = true;
  return want_operands(c, at, l, member, &first) && want(c, at, "});");
}

// "LIST(2048, 512)", or the name of such a table: the elements of each op.
static bool want_sizes(Check *c, Cursor *at, const Graph *callee) {
  const Cursor before = *at;
  CToken name = cursor_peek(at);
  Cursor table = *at, *list = at;
  bool listed = take(at, "LIST(");
  if (!listed) {
    if (!take(at, "%w", &name)) return unexpected(c, &before, "the elements of each op");
    Unit *u = unit_find_typed(c, &before, ctoken_text(&name, c->arena), UNIT_table, "int64_t");
    if (!u) return false;
    table = u->at;
    list = &table;
  }
  bool comma = false;
  for_each_op(member, callee) {
    if (multi_tensor_narrows(member)) continue;
    if (comma && !want(c, list, ",")) return false;
    comma = true;
    if (!want_int(c, list, type_count(member->in[0].value->type), "the elements of an op"))
      return false;
  }
  return listed ? want(c, at, ")") : want(c, list, ",") && want(c, list, "};");
}

static bool want_multi_tensor(Check *c, Cursor *at, const Op *op, CodeText *code) {
  const Launch l = launch_of(c, op);
  const Op *first = op->callee->first, *cast = l.cast;
  const OpInfo *row = &op_info[first->kind];
  const char *type = dtype_name[first->out[0]->type->dtype];
  int members = 0;
  for_each_op(member, op->callee)
    members += !multi_tensor_narrows(member);
  if (!want_word(c, at, str_format(c->arena, "nnrt_%s_batch_%s", row->name, type), "the kernel") ||
      !want(c, at, "("))
    return false;
  const Cursor macro = *at;
  PrepCall *prep =
      want_prep(c, at, code, str_format(c->arena, "nnrt_%s_batch_prep_%s", row->name, type));
  if (!prep) return false;
  // It holds the addresses of one launch.
  if (prep->used) return mismatch(c, &macro, "the preparation is that of another launch, too");
  prep->used = true;
  Cursor args = prep->args;
  if (!want_int(c, &args, members, "the number of ops") || !want(c, &args, ",") ||
      !want_sizes(c, &args, op->callee))
    return false;
  if (row->traits & NARROWS) {
    const char *narrow = dtype_name[cast ? attr_t(cast, "to") : DT_f32];
    if (!want(c, &args, ",") ||
        !want_word(c, &args, str_format(c->arena, "NNRT_%s", narrow), "the narrow type"))
      return false;
  }
  // The first argument is the number of elements, of which each op has its own.
  if (!want_args(c, &args, first, 1, false) || !end_prep(c, &args)) return false;
  if (c->named)
    return prep == c->named ? want(c, at, ", NULL, NULL)")
                            : mismatch(c, &macro, "another launch has named its tensors");
  if (!want(c, at, ", (void *const[]){")) return false;
  bool start = true;
  for_each_op(member, op->callee)
    if (!multi_tensor_narrows(member) && !want_results(c, at, &l, member, &start)) return false;
  if (!want(c, at, "}, (const void *const[]){")) return false;
  start = true;
  for_each_op(member, op->callee)
    if (!multi_tensor_narrows(member) && !want_operands(c, at, &l, member, &start)) return false;
  return want(c, at, "})");
}

bool want_call(Check *c, Cursor *at, const Op *op, CodeText *code) {
  if (op->kind == OP_fused) return want_fused(c, at, op);
  if (op->kind == OP_multi_tensor) return want_multi_tensor(c, at, op, code);
  return want_kernel(c, at, op, code);
}
