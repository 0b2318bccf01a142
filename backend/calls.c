// One call per op:
//
//     RUN(0, nnrt_linear_f32(P0, Y, X, W));   // %y = linear %x, %w     mlp.onnx:/fc1/MatMul
//     RUN(1, fused_0(Z, Y, B));               // %z = fused @fused_0 …  mlp.onnx:/act/Gelu
//     RUN(2, nnrt_wait(r, G));                // before unpack
//
// Views and constants need no call.  The call of an asynchronous collective only starts it.  The
// wait precedes the first op that reads its result or overwrites its operand (in_flight.h); the ops
// up to there overlap with it.  New parameters that could not be computed in place are copied over
// the old ones at the end.
//
// A call goes to the rank programs of the ranks on the op's mesh (rank_programs.c), a move to those
// of both meshes: a sender alone has no buffer for the result, a receiver alone has no operand.
//
//     RUN(3, nnrt_move_b4(NULL, H, r, 0));    // %h1 = move %h …        the ranks of @s0
//     RUN(3, nnrt_move_b4(H1, NULL, r, 0));   // %h1 = move %h …        the ranks of @s1
//
// A loop is a C loop around the calls of its body, which is at fixed places in the loop's
// workspace. Its slices are copied there and back:
//
//     nnrt_copy(S1, S0, 32);                              // %s1, %y = loop @cell %s0, %x, %w
//     for (int64_t t1 = 0; t1 < 128; t1++) {
//       nnrt_copy(XT, (const char *)X + t1 * INT64_C(40), 40);
//       RUN(4, nnrt_linear_f32(P0, A, XT, W));            // %a = linear %xt, %w
//       nnrt_copy((char *)Y + t1 * INT64_C(32), YT, 32);
//       nnrt_copy(S1, T, 32);
//     }
//
// With a schedule, each segment has a function of its own.  A move from another segment starts
// after that segment, or at the `get` of the schedule.  The wait precedes the segment of the move:
//
//     RUN(3, nnrt_move_start_b4(NULL, H, r, 0));   train_s0_F0_start
//     RUN(3, nnrt_move_start_b4(H1, NULL, r, 0));  train_s1_get_h1
//     RUN(4, nnrt_move_wait_b4(H1, r, 0));         train_s1_F1_wait
//
// Deferred updates (ir/analysis/deferred.h) have a function for each group.  The runtime calls one
// when the next step asks for it, and all of them when the weights must be up to date:
//
//     nnrt_flush_deferred(r, 1);                      // before linear         train_micro
//     RUN(9, nnrt_wait(r, G));                // before sgd            train_deferred_0

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/analysis/deferred.h"
#include "ir/analysis/in_flight.h"
#include "ir/analysis/loops.h"
#include "ir/analysis/place.h"
#include "ir/kernel.h"
#include "ir/loop.h"
#include "ir/op_display_name.h"
#include "ir/schedule.h"
#include "ir/split.h"
#include "ir/text.h"
#include "kernels.h"
#include "target.h"

enum {
  LISTED_TENSORS = 32,    // of a launch: its call lists no more
  LONGEST_COMMENT = 1000, // a line of IR
};

// State while the calls of one graph are written.
typedef struct Writer {
  Program *p;
  GraphCode *code;
  Arena *arena;
  enum { IN_begin, IN_loop, IN_update, IN_deferred } part; // the destination of lines
  int segment; // of the loop; 0 without a schedule.  In IN_deferred: the group
  DeferredGroups deferred;
  Vec(Op *) in_flight; // collectives without a wait so far
  Meets meets;
  int *copy, n_copies; // by op id, of ops that start a copy to or from host memory: its number
  int depth;           // open loops
  int joined;          // ops, nested in each other, that have more lines
} Writer;

static Target target_of(const Writer *w) {
  return w->p->o->target.target;
}

static const Mesh *value_mesh(const Value *v) {
  return v->layout ? v->layout->mesh : NULL;
}

// -- Lines -------------------------------------------------------------------------------------

static void add_to_list(Writer *w, CallList *list, const char *text, const char *comment) {
  Call call = {text, comment, w->joined > 0};
  vec_push(w->arena, list, call);
}

static void add_to_code(Writer *w, int c, const char *text, const char *comment) {
  // The function that lines go to.
  Calls *calls = &w->code->calls[c];
  CallList *list = NULL;
  switch (w->part) {
  case IN_begin: list = &calls->begin; break;
  case IN_loop: list = &loop_segment(calls, w->segment)->run; break;
  case IN_update: list = &calls->update; break;
  case IN_deferred: list = &calls->deferred.at[w->segment]; break;
  }
  add_to_list(w, list, text, comment);
}

// Adds a line to all rank programs on the mesh.
static void add_line(Writer *w, const Mesh *mesh, const char *text, const char *comment) {
  if (w->depth) text = str_format(w->arena, "%*s%s", 2 * w->depth, "", text);
  for (int c = 0; c < w->p->code.n; c++)
    if (code_on(w->p, c, mesh)) add_to_code(w, c, text, comment);
}

// Adds an op to the table of names for errors and traces.  Returns its index.
static int new_op(Writer *w, const char *what, const char *place) {
  vec_push(w->arena, &w->code->ops, str_format(w->arena, "%s  %s", what, place));
  vec_push(w->arena, &w->code->made_of, NULL);
  return w->code->ops.n - 1;
}

static const char *op_comment(Writer *w, const Op *op) {
  // "%y = linear %x, %w": without types, which the macros of the buffers have.
  const char *text = op_text(op, w->arena), *types = strstr(text, " : ");
  size_t n = types ? (size_t)(types - text) : strlen(text);
  while (n > 0 && text[n - 1] == ' ')
    n--;
  bool whole = n <= LONGEST_COMMENT;
  if (!whole)
    for (n = LONGEST_COMMENT; text[n - 1] != ' ';)
      n--;
  return str_format(w->arena, "%.*s%s   %s", (int)n, text, whole ? "" : "...",
                    op_place(w->arena, op));
}

static void add_run_of(Writer *w, const Op *op, const char *what, const char *call) {
  int i = new_op(w, what, op_place(w->arena, op));
  w->code->made_of.at[i] = op;
  add_line(w, op_mesh(op), str_format(w->arena, "RUN(" MARK_NUMBER "%d, %s);", i, call),
           op_comment(w, op));
}

static void add_run(Writer *w, const Op *op, const char *call) {
  add_run_of(w, op, op_title(w->arena, op, target_of(w)), call);
}

// -- Operands and arguments --------------------------------------------------------------------

static const char *constant_name(Writer *w, const Value *v) {
  Program *p = w->p;
  for (int i = 0; i < p->constant.n; i++)
    if (p->constant.at[i].value == v) return p->constant.at[i].name;
  const char *name = str_format(w->arena, "C%d", p->constant.n);
  vec_push(p->arena, &p->constant, (Constant){v, name});
  return name;
}

static const char *buffer(Writer *w, Value *v) {
  int64_t skip;
  const Value *root = view_root(v, &skip);
  // A constant that all iterations of a loop read.
  for (Value *outer; v->offset < 0 && (outer = loop_operand(root));)
    root = view_root(outer, &skip);
  if (v->offset < 0 && root->def && root->def->kind == OP_constant)
    return constant_name(w, root); // only unpack has views that begin inside
  if (v->offset < 0) BUG("'%s' has no place", v->name ? v->name : "?");
  // A value in a loop is one of the loop's body.
  const char *graph = v->graph == w->code->g ? w->code->name : v->graph->name;
  return str_format(w->arena, MARK_PLACE "%s", names_of(w->p->names, v, graph));
}

// The start of the local shard along dimension `dim`, and the whole length in *whole.  The
// coordinates on the axes that shard the dimension, outermost first, are the digits of the shard's
// number.
static const char *start_text(Writer *w, const Value *v, int dim, int64_t *whole) {
  const char *part = "";
  *whole = v->type->dim[dim];
  for (int a = 0; v->layout && a < v->layout->n_axes; a++) {
    if (v->layout->axis[a].kind != SBP_S || v->layout->axis[a].dim != dim) continue;
    int size = v->layout->mesh->axis[a].size, mesh = v->layout->mesh->id;
    *whole *= size;
    // The digit of this axis follows those of the outer ones.
    part = *part ? str_format(w->arena, "(%s * %d + r->coord[%d][%d])", part, size, mesh, a)
                 : str_format(w->arena, "r->coord[%d][%d]", mesh, a);
  }
  return *part ? str_format(w->arena, "%s * INT64_C(%" PRId64 ")", part, v->type->dim[dim]) : "0";
}

static const char *arg_text(Writer *w, const Op *op, const KernelArg *arg) {
  int64_t whole;
  switch (arg->kind) {
  case ARG_int:
    if (arg->i == INT64_MIN) return "INT64_MIN";
    // The key of random numbers is another in each op.
    return str_format(w->arena, "%s%" PRId64, op_has_attr(op, "key") ? MARK_NUMBER : "", arg->i);
  case ARG_float: return c_number(w->arena, DT_f64, arg->f);
  case ARG_bool: return arg->i ? "true" : "false";
  case ARG_str: return c_string(w->arena, arg->s ? arg->s : "");
  case ARG_list: {
    if (!arg->list || arg->n == 0) return "NULL";
    StrBuf b = {.arena = w->arena};
    for (int i = 0; i < arg->n; i++)
      strbuf_addf(&b, "%s%" PRId64, i ? ", " : "LIST(", arg->list[i]);
    strbuf_add(&b, ")");
    return b.at;
  }
  case ARG_box: {
    // The whole, and the start of the shard.
    const Value *v = op_boxed(op);
    StrBuf all = {.arena = w->arena}, start = {.arena = w->arena};
    if (v->type->ndim == 0) return "NULL, NULL";
    for (int d = 0; d < v->type->ndim; d++) {
      int64_t n;
      strbuf_addf(&start, "%s%s", d ? ", " : "", start_text(w, v, d, &n));
      strbuf_addf(&all, "%s%" PRId64, d ? ", " : "", n);
    }
    return str_format(w->arena, "LIST(%s), LIST(%s)", all.at, start.at);
  }
  case ARG_from: return start_text(w, op_boxed(op), (int)arg->i, &whole);
  case ARG_all:
    start_text(w, op_boxed(op), (int)arg->i, &whole);
    return str_format(w->arena, "%" PRId64, op_unpadded(op, whole));
  case ARG_ranks:
    return str_format(w->arena, "r, " MARK_NUMBER "%d",
                      group_number(w->p, op_mesh(op), &arg->axes));
  case ARG_struct: {
    StrBuf b = {.arena = w->arena};
    strbuf_addf(&b, "&(%s){", arg->s);
    for (int i = 0; i < arg->n; i++)
      strbuf_addf(&b, "%s.%s = %s", i ? ", " : "", arg->field[i].name,
                  arg_text(w, op, &arg->field[i]));
    strbuf_add(&b, "}");
    return b.at;
  }
  }
  return NULL;
}

static void add_separator(StrBuf *b) {
  if (b->n && b->at[b->n - 1] != '(') strbuf_add(b, ", ");
}

static void add_args(Writer *w, StrBuf *b, const Op *op) {
  KernelArg args[MAX_KERNEL_ARGS];
  int n = kernel_args(op, args, MAX_KERNEL_ARGS, w->arena);
  for (int i = 0; i < n; i++) {
    add_separator(b);
    strbuf_add(b, arg_text(w, op, &args[i]));
  }
}

static void add_buffers(Writer *w, StrBuf *b, const Op *op, bool array) {
  for (int i = 0; i < op->n_out; i++) {
    add_separator(b);
    strbuf_add(b, buffer(w, op->out[i]));
  }
  if (op->n_in == 0) return;
  if (array) {
    add_separator(b);
    // Kernels with any number of operands take an array of them.
    strbuf_add(b, "(const void *const[]){");
    for (int i = 0; i < op->n_in; i++)
      strbuf_addf(b, "%s%s", i ? ", " : "", buffer(w, op->in[i].value));
    strbuf_add(b, "}");
    return;
  }
  for (int i = 0; i < op->n_in; i++) {
    add_separator(b);
    strbuf_add(b, buffer(w, op->in[i].value));
  }
}

// -- Ops ---------------------------------------------------------------------------------------

static int new_prep(Writer *w, const char *call) {
  Program *p = w->p;
  bool *runs = arena_array(p->arena, bool, p->code.n);
  vec_push(p->arena, &p->prep, (Prep){call, w->code->name, w->code->ops.n, runs});
  return p->prep.n - 1;
}

// Marks the preparation as needed by the rank programs that run `op`.
static const char *use_prep(Writer *w, const Op *op, int prep) {
  for (int c = 0; c < w->p->code.n; c++)
    w->p->prep.at[prep].runs[c] |= code_on(w->p, c, op_mesh(op));
  return str_format(w->arena, "P%d", prep);
}

static bool no_kernel(Writer *w, const Op *op) {
  const Value *of = op->n_in > 0 ? op->in[0].value : op->out[0];
  diag_problem(w->p->d, PROBLEM_kernel, op->loc, "%s: there is no %s kernel for %s",
               op_info[op->kind].name, target_info[target_of(w)].name,
               type_text(w->arena, of->type));
  if (op_info[op->kind].formula)
    diag_hint(w->p->d, "elementwise ops become kernels in pass 'fuse', which has not run");
  return false;
}

static bool add_kernel_call(Writer *w, const Op *op) {
  char name[128];
  if (!kernel_name(op, target_of(w), name, sizeof name)) return no_kernel(w, op);
  StrBuf call = {.arena = w->arena};
  strbuf_addf(&call, "%s(", name);
  // A prepared kernel takes its arguments at preparation, and only buffers at each call.
  if (op_info[op->kind].traits & PREP) {
    char prep_name[128];
    StrBuf prep = {.arena = w->arena};
    kernel_prep_name(op, target_of(w), prep_name, sizeof prep_name);
    strbuf_addf(&prep, "%s(", prep_name);
    add_args(w, &prep, op);
    strbuf_add(&prep, ")");
    // Ops run one after the other, so kernels with equal preparation can share it.
    const char *plain = repeats_plain(w->arena, prep.at);
    int shared = 0;
    while (shared < w->p->prep.n && !str_equal(w->p->prep.at[shared].call, plain))
      shared++;
    if (shared == w->p->prep.n) new_prep(w, plain);
    strbuf_add(&call, use_prep(w, op, shared));
    add_buffers(w, &call, op, kernel_variadic(op));
  } else {
    add_buffers(w, &call, op, kernel_variadic(op));
    add_args(w, &call, op);
  }
  strbuf_add(&call, ")");
  add_run(w, op, call.at);
  return true;
}

static bool add_fused_call(Writer *w, const Op *op) {
  Program *p = w->p;
  // Equal bodies share a kernel.
  int body = 0;
  while (body < p->fused.n && !body_same(p->fused.at[body], op->callee))
    body++;
  bool first = body == p->fused.n;
  // The graph's own name, unless it is no C name or could clash with another.
  const char *name = (first ? op->callee : p->fused.at[body])->name;
  if (!str_starts(name, "fused_") ||
      strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") != strlen(name))
    name = str_format(w->arena, "body_%d", body);
  if (first) {
    vec_push(p->arena, &p->fused, op->callee);
    target_backend(target_of(w))->fused(p, op->callee, name);
  }
  StrBuf call = {.arena = w->arena};
  strbuf_addf(&call, "%s(", name);
  add_buffers(w, &call, op, false);
  strbuf_add(&call, ")");
  add_run(w, op, call.at);
  return true;
}

// The caller's values of those of the body of `op`, by their ids.
static Value **values_outside(Writer *w, const Op *op) {
  const Graph *body = op->callee;
  Value **outside = arena_array(w->arena, Value *, body->n_values);
  for (int i = 0; i < op->n_in; i++)
    outside[body->params[i]->id] = op->in[i].value;
  for (int i = 0; i < op->n_out; i++)
    outside[body->results[i]->use.value->id] = op->out[i];
  return outside;
}

// The elements of each op of a launch, as C: a list, or the name of a table.
static const char *sizes_text(Writer *w, const Op *op, int n) {
  Program *p = w->p;
  TableRows rows = {0};
  StrBuf list = {.arena = w->arena};
  for_each_op(member, op->callee) {
    if (multi_tensor_narrows(member)) continue;
    const char *size = str_format(w->arena, "%" PRId64, type_count(member->in[0].value->type));
    strbuf_addf(&list, "%s%s", list.n ? ", " : "", size);
    vec_push(w->arena, &rows, size);
  }
  if (n <= LISTED_TENSORS) return str_format(w->arena, "LIST(%s)", list.at);
  const char *name = str_format(w->arena, "sizes_%d", p->prep.n);
  repeats_table(p, &p->sizes, "int64_t", name, &rows, FILL_start);
  return name;
}

// One kernel computes all ops of the body.  Its preparation takes the number of elements of each op
// and their common attributes; the call takes the results and operands op by op.  A kind that can
// narrow its result also takes the narrow type, and after each op's results a buffer for it or
// NULL. The preparation depends on the addresses, so it is not shared.  Of many ops, each has a
// line with its results and operands before the call, and loops of these lines are made.
static bool add_multi_tensor_call(Writer *w, const Op *op) {
  const Op *first = op->callee->first, *cast = NULL;
  const OpInfo *row = &op_info[first->kind];
  const char *type = dtype_name[first->out[0]->type->dtype];
  if (!target_info[target_of(w)].multi_tensor || !(row->traits & MULTI_TENSOR))
    return no_kernel(w, op);
  // A narrowing cast follows its update op in the body; all casts have one type.
  for_each_op(member, op->callee)
    if (multi_tensor_narrows(member)) cast = member;
  int n = 0;
  for_each_op(member, op->callee)
    n += !multi_tensor_narrows(member);
  // The first argument is the element count, of each op its own; the others are common to all ops.
  StrBuf prep = {.arena = w->arena};
  strbuf_addf(&prep, "nnrt_%s_batch_prep_%s(%d, %s", row->name, type, n, sizes_text(w, op, n));
  if (row->traits & NARROWS)
    strbuf_addf(&prep, ", NNRT_%s", dtype_name[cast ? attr_t(cast, "to") : DT_f32]);
  KernelArg args[MAX_KERNEL_ARGS];
  int n_args = kernel_args(first, args, MAX_KERNEL_ARGS, w->arena);
  if (n_args && *row->args != '*') BUG("the args of '%s' do not begin with *", row->name);
  for (int i = 1; i < n_args; i++)
    strbuf_addf(&prep, ", %s", arg_text(w, first, &args[i]));
  strbuf_add(&prep, ")");
  const char *p = use_prep(w, op, new_prep(w, repeats_plain(w->arena, prep.at)));
  StrBuf out = {.arena = w->arena}, in = {.arena = w->arena};
  Value **outside = values_outside(w, op);
  int k = 0;
  for_each_op(member, op->callee) {
    if (multi_tensor_narrows(member)) continue;
    // Results of an op and its narrow result follow each other, and so do its operands.
    for (int i = 0; i < member->n_out; i++)
      strbuf_addf(&out, "%s%s", out.n ? ", " : "", buffer(w, outside[member->out[i]->id]));
    if (cast)
      strbuf_addf(&out, ", %s",
                  multi_tensor_narrows(member->next) ? buffer(w, outside[member->next->out[0]->id])
                                                     : "NULL");
    for (int i = 0; i < member->n_in; i++)
      strbuf_addf(&in, "%s%s", in.n ? ", " : "", buffer(w, outside[member->in[i].value->id]));
    if (n <= LISTED_TENSORS) continue;
    add_line(w, op_mesh(op),
             str_format(w->arena,
                        MARK_KIND "%" PRId64 MARK_KIND "nnrt_batch_tensor(%s, " MARK_NUMBER
                                  "%d, (void *const[]){%s}, (const void *const[]){%s});",
                        type_count(member->in[0].value->type), p, k++, out.at, in.at),
             NULL);
    out = in = (StrBuf){.arena = w->arena};
  }
  const char *call = str_format(w->arena, "nnrt_%s_batch_%s(%s, NULL, NULL)", row->name, type, p);
  if (n <= LISTED_TENSORS)
    call =
        str_format(w->arena, "nnrt_%s_batch_%s(%s, (void *const[]){%s}, (const void *const[]){%s})",
                   row->name, type, p, out.at, in.at);
  add_run(w, op, call);
  return true;
}

// The type of the kernel of a move, such as "b4" of nnrt_move_b4; NULL after an error.
static const char *move_type(Writer *w, const Op *op) {
  static const char prefix[] = "nnrt_move_";
  char name[128];
  if (kernel_name(op, target_of(w), name, sizeof name))
    return str_copy(w->arena, name + strlen(prefix));
  no_kernel(w, op);
  return NULL;
}

// Adds waits for the collectives in flight that must end before `op`; if it is NULL, for all of
// them but those that are carried into the next step.
static void wait_for(Writer *w, const Op *op) {
  int left = 0;
  for (int i = 0; i < w->in_flight.n; i++) {
    Op *started = w->in_flight.at[i];
    if (op ? !op_waits_for(&w->meets, op, started) : reduce_is_in_flight(started)) {
      w->in_flight.at[left++] = started;
      continue;
    }
    int index = new_op(w, "wait", op_place(w->arena, started));
    w->code->made_of.at[index] = started;
    const char *y = buffer(w, started->out[0]);
    const char *wait = str_format(w->arena, "nnrt_wait(r, %s)", y);
    // The round of a ring was started as a move.
    if (started->kind == OP_move)
      wait = str_format(w->arena, "nnrt_move_wait_%s(%s, r, " MARK_NUMBER "%d)",
                        move_type(w, started), y, move_number(w->p, started));
    add_line(w, op_mesh(started), str_format(w->arena, "RUN(" MARK_NUMBER "%d, %s);", index, wait),
             str_format(w->arena, "before %s", op ? op_info[op->kind].name : "the end"));
  }
  w->in_flight.n = left;
}

static bool add_move(Writer *w, Op *op) {
  Value *x = op->in[0].value, *y = op->out[0];
  const char *kernel = move_type(w, op);
  if (!kernel) return false;
  int number = move_number(w->p, op), run = -1, wait = -1;
  // Only a move from another segment, in a loop with a schedule, starts ahead of its own segment.
  bool ahead = w->part == IN_loop && op->segment && move_is_ahead(op);
  for (int c = 0; c < w->p->code.n; c++) {
    Calls *calls = &w->code->calls[c];
    const RankRun *order = w->p->code.at[c].run[w->code->index];
    bool gives = code_on(w->p, c, x->layout->mesh), gets = code_on(w->p, c, op_mesh(op));
    if (!gives && !gets) continue;
    // All ranks share one entry in the table of names; a program of other ranks has none.
    if (run < 0) {
      run = new_op(w, "move", op_place(w->arena, op));
      w->code->made_of.at[run] = op;
    }
    const char *from = gives ? buffer(w, x) : "NULL", *to = gets ? buffer(w, y) : "NULL";
    // A sender starts the move after the segment that computes the operand; a receiver at `get`.
    int at = !ahead ? op->segment : gives && order ? move_start(op, order) : 0;
    if (at == op->segment) {
      add_to_code(w, c,
                  str_format(w->arena,
                             "RUN(" MARK_NUMBER "%d, nnrt_move_%s%s(%s, %s, r, " MARK_NUMBER
                             "%d));",
                             run, move_is_round(op) ? "start_" : "", kernel, to, from, number),
                  op_comment(w, op));
      continue;
    }
    // The transfer starts early, and the segment of the move waits for it.
    LoopPart *part = gives ? loop_segment(calls, at) : loop_get(calls, y);
    if (!part) BUG("a run without the start of %s", value_name(w->arena, y));
    add_to_list(w, &part->start,
                str_format(w->arena,
                           "RUN(" MARK_NUMBER "%d, nnrt_move_start_%s(%s, %s, r, " MARK_NUMBER
                           "%d));",
                           run, kernel, to, from, number),
                op_comment(w, op));
    if (!gets) continue;
    // All receivers share one entry in the table of names.
    if (wait < 0) {
      wait = new_op(w, "wait", op_place(w->arena, op));
      w->code->made_of.at[wait] = op;
    }
    add_to_list(w, &loop_segment(calls, op->segment)->wait,
                str_format(w->arena,
                           "RUN(" MARK_NUMBER "%d, nnrt_move_wait_%s(%s, r, " MARK_NUMBER "%d));",
                           wait, kernel, to, number),
                str_format(w->arena, "%s is here", value_name(w->arena, y)));
  }
  if (move_is_round(op)) vec_push(w->arena, &w->in_flight, op);
  return true;
}

// -- Host memory -------------------------------------------------------------------------------

// Whether the op needs no call.
static bool is_silent(const Op *op) {
  if (op->kind == OP_swap_wait) return false;
  return (op_info[op->kind].traits & VIEW) || (op->kind == OP_constant && op->out[0]->offset < 0);
}

static bool add_op(Writer *w, Op *op);

static void add_copy(Writer *w, const Mesh *mesh, const char *to, const char *from, int64_t bytes,
                     const char *comment) {
  add_line(w, mesh, str_format(w->arena, "nnrt_copy(%s, %s, %" PRId64 ");", to, from, bytes),
           comment);
}

static void add_zero(Writer *w, Value *v, const Mesh *mesh) {
  add_line(w, mesh,
           str_format(w->arena, "nnrt_zero(%s, %" PRId64 ");", buffer(w, v), type_bytes(v->type)),
           NULL);
}

// Adds the lines before a loop: the first states, and zeros.
static bool add_loop_start(Writer *w, const Op *op, const LoopForm *f, const char *comment) {
  const Mesh *mesh = op_mesh(op);
  for (int i = 0; i < f->carried; i++)
    add_copy(w, mesh, buffer(w, op->out[i]), buffer(w, op->in[i].value),
             type_bytes(op->out[i]->type), i ? NULL : comment);
  for (int i = f->carried + f->stacked; i < op->callee->n_results; i++) {
    if (!kernel_exists(OP_accumulate, target_of(w), op->out[i]->type->dtype))
      return diag_error(w->p->d, op->loc, "loop: there is no %s kernel for a sum of %s",
                        target_info[target_of(w)].name, type_text(w->arena, op->out[i]->type));
    add_zero(w, op->out[i], mesh);
  }
  // Iterations that do not run leave zeros.
  for (int i = f->carried; f->times && i < f->carried + f->stacked; i++)
    add_zero(w, op->out[i], mesh);
  return true;
}

static bool add_loop(Writer *w, Op *op) {
  Graph *body = op->callee;
  Arena *a = w->arena;
  LoopForm f = loop_form(op);
  const Mesh *mesh = op_mesh(op);
  if (target_info[target_of(w)].gpu)
    return diag_error(w->p->d, op->loc, "loop: the %s target does not support it yet",
                      target_info[target_of(w)].name);
  const char *comment = op_comment(w, op);
  w->joined++;
  bool ok = add_loop_start(w, op, &f, comment);
  const char *t = str_format(a, "t%d", w->depth + 1);
  const char *count = str_format(a, "%" PRId64, f.count);
  if (f.times) {
    const char *times = buffer(w, op->in[f.times - 1].value);
    count = str_format(a, "(*%s < %s ? *%s : %s)", times, count, times, count);
  }
  add_line(w, mesh,
           f.reverse ? str_format(a, "for (int64_t %s = %s - 1; %s >= 0; %s--) {", t, count, t, t)
                     : str_format(a, "for (int64_t %s = 0; %s < %s; %s++) {", t, t, count, t),
           f.carried ? NULL : comment);
  w->depth++;
  for (int i = f.carried; i < f.carried + f.sliced; i++) {
    int64_t bytes = type_bytes(body->params[i]->type);
    add_copy(w, mesh, buffer(w, body->params[i]),
             str_format(a, "(const char *)%s + %s * INT64_C(%" PRId64 ")",
                        buffer(w, op->in[i].value), t, bytes),
             bytes, NULL);
  }
  for_each_op(inner, body)
    ok &= add_op(w, inner);
  // Slices and sums come before states, which are overwritten.
  for (int i = f.carried; i < body->n_results; i++) {
    Value *v = body->results[i]->use.value;
    int64_t bytes = type_bytes(v->type);
    if (i < f.carried + f.stacked)
      add_copy(
          w, mesh,
          str_format(a, "(char *)%s + %s * INT64_C(%" PRId64 ")", buffer(w, op->out[i]), t, bytes),
          buffer(w, v), bytes, NULL);
    else
      add_line(w, mesh,
               str_format(a, "nnrt_accumulate_%s(%s, %s, %" PRId64 ");", dtype_name[v->type->dtype],
                          buffer(w, op->out[i]), buffer(w, v), type_count(v->type)),
               NULL);
  }
  for (int i = 0; i < f.carried; i++) {
    Value *v = body->results[i]->use.value;
    if (v->offset != op->out[i]->offset)
      add_copy(w, mesh, buffer(w, op->out[i]), buffer(w, v), type_bytes(v->type), NULL);
  }
  w->depth--;
  w->joined--;
  add_line(w, mesh, "}", NULL);
  return ok;
}

static bool add_op(Writer *w, Op *op) {
  if (is_silent(op)) return true;
  // The memory of a body is that of its loop.
  if (!w->depth) wait_for(w, op);
  // A transfer concerns two meshes, so it goes to rank programs of both.
  if (op->kind == OP_move && move_number(w->p, op) >= 0) return add_move(w, op);
  if (!mesh_runs(w->p, op_mesh(op))) return true;
  if (op->kind == OP_move || op->kind == OP_stash) {
    // Every shard is on its rank already: it is copied if the offset differs.
    Value *x = op->in[0].value, *y = op->out[0];
    if (y->offset != x->offset)
      add_run(w, op,
              str_format(w->arena, "nnrt_copy(%s, %s, %" PRId64 ")", buffer(w, y), buffer(w, x),
                         type_bytes(y->type)));
    return true;
  }
  if (op->kind == OP_constant) {
    // A constant with an offset is copied there.
    const char *name = constant_name(w, op->out[0]);
    add_line(w, op_mesh(op),
             str_format(w->arena, "nnrt_copy(%s, %s, %" PRId64 ");", buffer(w, op->out[0]), name,
                        type_bytes(op->out[0]->type)),
             op_comment(w, op));
    return true;
  }
  if (op_starts_copy(op) || op->kind == OP_swap_wait) {
    // Copies have numbers: the runtime has an event for each copy in flight.
    const Op *starts = op->kind == OP_swap_wait ? op->in[0].value->def : op;
    if (op == starts) w->copy[op->id] = w->n_copies++;
    add_run_of(w, op, op == starts ? op_title(w->arena, op, target_of(w)) : "wait",
               str_format(w->arena, "nnrt_%s%s(r, " MARK_NUMBER "%d, %s, %s, %" PRId64 ")",
                          op_info[starts->kind].name, op == starts ? "" : "_wait",
                          w->copy[starts->id], buffer(w, starts->out[0]),
                          buffer(w, starts->in[0].value), type_bytes(starts->out[0]->type)));
    return true;
  }
  if (op->kind == OP_loop) return add_loop(w, op);
  if (op->kind == OP_fused) return add_fused_call(w, op);
  if (op->kind == OP_multi_tensor) return add_multi_tensor_call(w, op);
  if (op->kind == OP_call)
    return diag_error(w->p->d, op->loc, "call: the %s target does not support it yet",
                      target_info[target_of(w)].name);
  // The first slice of a step starts every accumulated sum at 0.
  if (op_info[op->kind].traits & ACCUMULATES) {
    w->joined++;
    add_line(w, op_mesh(op),
             str_format(w->arena, "if (r->micro == 0) nnrt_zero(%s, %" PRId64 ");",
                        buffer(w, op->out[0]), type_bytes(op->out[0]->type)),
             NULL);
    w->joined--;
  }
  if (!add_kernel_call(w, op)) return false;
  if (op_is_async(op)) vec_push(w->arena, &w->in_flight, op);
  return true;
}

// -- New parameters ----------------------------------------------------------------------------

static bool needs_copy(const Result *r) {
  return r->target && r->use.value != r->target && r->use.value->offset != r->target->offset;
}

// Parameters that take the value of another parameter are copied first, before that one changes.
static void add_copies(Writer *w, const Graph *g) {
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < g->n_results; i++) {
      const Result *r = g->results[i];
      int64_t skip;
      if (!needs_copy(r)) continue;
      const Value *root = view_root(r->use.value, &skip);
      if ((root->def != NULL) != (pass == 1)) continue;
      // Both would have to be copied before the other changes.
      for (int k = 0; k < i && pass == 0; k++)
        if (g->results[k]->target == root && needs_copy(g->results[k]) &&
            !view_root(g->results[k]->use.value, &skip)->def)
          diag_error(w->p->d, r->target->loc, "'%s' becomes the old '%s', which changes as well",
                     r->target->label, root->label);
      // Only ranks that have the parameter copy it.
      if (!mesh_runs(w->p, value_mesh(r->target))) continue;
      add_line(
          w, value_mesh(r->target),
          str_format(w->arena, "nnrt_copy(%s, %s, %" PRId64 ");", buffer(w, r->target),
                     buffer(w, r->use.value), type_bytes(r->target->type)),
          str_format(w->arena, "the new %s", r->target->label ? r->target->label : "parameter"));
    }
}

// Directs lines to another part of the step, or to a segment of its loop.  If slices or segments
// repeat, all collectives are waited for at the end of each: the next must not find one in flight.
static void go_to(Writer *w, int part, int segment) {
  bool repeated = module_slices(w->p->m) > 1 || w->code->g->schedule;
  if (w->part == IN_deferred) wait_for(w, NULL);
  if (w->part == IN_begin || (w->part == IN_loop && repeated)) wait_for(w, NULL);
  w->part = part;
  w->segment = segment;
}

// Flushes the deferred updates of the previous step that are due before the op.
static void flush_before(Writer *w, const Op *op) {
  for (int i = 0; i < w->deferred.n; i++) {
    if (w->deferred.at[i].due != op) continue;
    // They may overwrite the operand of a collective of this step.
    const Op *late = w->deferred.at[i].first;
    for (int k = 0; k < w->deferred.at[i].n; k++, late = late->next)
      if (!is_silent(late)) wait_for(w, late);
    add_line(w, op_mesh(op), str_format(w->arena, "nnrt_flush_deferred(r, %d);", i + 1),
             str_format(w->arena, "before %s", op_info[op->kind].name));
  }
}

void graph_calls(Program *p, GraphCode *code) {
  Writer w = {.p = p, .code = code, .arena = p->arena};
  w.copy = arena_array(p->arena, int, code->g->n_ops);
  w.meets = module_meets(p->m, p->arena);
  const Op *start = graph_update_start(code->g);
  const bool *begin = graph_begin_ops(code->g, p->arena);
  const Op *deferred = graph_first_deferred(code->g);
  loops_find(p, code);
  graph_deferred_groups(code->g, p->arena, &w.deferred);
  // Macros of parameters come first, dead ones included.
  for (int i = 0; i < code->g->n_params; i++)
    if (code->g->params[i]->offset >= 0 && mesh_runs(p, value_mesh(code->g->params[i])))
      buffer(&w, code->g->params[i]);
  // Once per step, before the first slice.
  for_each_op(op, code->g)
    if (begin[op->id]) {
      flush_before(&w, op);
      add_op(&w, op);
    }
  // Then the loop over slices, and the update.  Deferred updates follow, in functions of their own.
  go_to(&w, IN_loop, 0);
  for (Op *op = code->g->first; op != deferred; op = op->next) {
    if (begin[op->id]) continue;
    if (op == start) go_to(&w, IN_update, 0);
    flush_before(&w, op);
    if (is_silent(op)) continue;
    if (w.part == IN_loop && op->segment != w.segment) go_to(&w, IN_loop, op->segment);
    add_op(&w, op);
  }
  if (w.part == IN_loop) go_to(&w, IN_update, 0);
  // A group may be due before the first deferred update, which the loop does not reach.
  if (start && start == deferred) flush_before(&w, deferred);
  wait_for(&w, NULL);
  add_copies(&w, code->g);
  if (deferred) {
    // Deferred updates have a function for each group.
    for (int c = 0; c < w.p->code.n; c++)
      for (int i = 0; i < w.deferred.n; i++)
        vec_push(w.arena, &w.code->calls[c].deferred, (CallList){0});
    for (int i = 0; i < w.deferred.n; i++) {
      Op *op = w.deferred.at[i].first;
      go_to(&w, IN_deferred, i);
      for (int k = 0; k < w.deferred.at[i].n; k++, op = op->next)
        add_op(&w, op);
    }
    wait_for(&w, NULL);
  }
}
