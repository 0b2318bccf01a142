// Replays each rank program: its functions, in the order in which the runtime calls them, against
// the ops of the module, in the order of the graph.
//
//     %y = linear %x, %w                RUN(1, nnrt_linear_f32(P0, Y, X, W));
//     %14 = accumulate %dw              if (r->micro == 0) nnrt_zero(V14, 96);
//                                       RUN(7, nnrt_accumulate_f32(V14, DW, 24));
//     %16 = all_reduce %15              RUN(9, nnrt_all_reduce_f32(V16, V15, 64, r, 0));
//                                       RUN(10, nnrt_wait(r, V16));
//     %w1 = sgd %w, %16, …              RUN(11, nnrt_sgd_f32(W1, W, V16, LR, ONE, 24, 0.0));
//
// Each function of a part of the step (ir/analysis/place.h, ir/schedule.h, ir/analysis/deferred.h)
// has a cursor.  An op takes its statement at the cursor of its part: the same ops, in the same
// order, each once, and at the end all functions are read to their ends.  The order of the graph is
// the one order that respects all dependences and the memory plan, and that all ranks agree on.
//
// The calls of the body of a loop are between the statements that copy its slices and states.
//
// Only waits of collectives are free to move.  From the start to the wait no statement reads or
// writes the result, nor writes the operand; by memory, as views and other values may share it.

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "ir/analysis/deferred.h"
#include "ir/analysis/in_flight.h"
#include "ir/analysis/place.h"
#include "ir/kernel.h"
#include "ir/loop.h"
#include "ir/text.h"
#include "rt/small_operand.h"

enum { CALLS = 3 }; // of an op: its own, its move, its wait (op_key)

typedef struct Function {
  const char *name;
  Cursor at;
  bool open;
  // Its part, a function of another file, that the cursor is in, or NULL; the statement after it.
  const char *part;
  Cursor after;
  LoopText loop; // over equal calls, which the cursor is in; times 0: none
} Function;

// The functions of a task.
typedef struct Part {
  Function wait, run, start;
} Part;

// Bytes of the slab or of host memory, all slots of a value.
typedef struct Span {
  bool host;
  int64_t from, to;
} Span;

// A collective without a wait so far.
typedef struct Flight {
  const Op *op;
  Span result, operand;
} Flight;

// The parts of a graph's step, the same for all rank programs.
typedef struct Parts {
  const bool *begin; // by op id
  const Op *update, *first_deferred;
  DeferredGroups deferred;
} Parts;

typedef struct Replay {
  Check *c;
  const Graph *g;
  GraphText *text;
  CodeText *code;
  StepText *step;
  int rank;       // one of the ranks that run the code
  const bool *on; // by mesh id
  const RankRun *run;
  const Parts *parts;
  Function begins, update, *late; // late: of each deferred group
  Part *part;
  int *segment_part; // by segment: its part, from 1; 0: none
  int *get_part;     // by value id
  int *copy_of;      // by op id, of the start of a copy: its number, from 1
  Vec(int) copies;   // their numbers
  Vec(Flight) flying;
  Function *now;
  int depth; // open loops
} Replay;

// -- Memory ------------------------------------------------------------------------------------

static Span span_of(const Value *v) {
  if (v->offset < 0) return (Span){0};
  int64_t slots = v->slots > 1 ? (v->slots - 1) * v->stride : 0;
  return (Span){value_on_host(v), v->offset, v->offset + slots + type_bytes(v->type)};
}

static bool spans_meet(const Span *a, const Span *b) {
  return a->host == b->host && a->from < b->to && b->from < a->to;
}

// Whether the memory of `v` may be used now.
static bool may_use(Replay *r, const Cursor *at, const Value *v, bool writes) {
  Span span = span_of(v);
  for (int i = 0; i < r->flying.n; i++) {
    const Flight *f = &r->flying.at[i];
    if (!spans_meet(&span, &f->result) && !(writes && spans_meet(&span, &f->operand))) continue;
    return mismatch(r->c, at, "this %s memory of '%s' before the wait for it",
                    writes ? "overwrites" : "reads", op_text(f->op, r->c->arena));
  }
  return true;
}

static bool may_run(Replay *r, const Cursor *at, const Op *op) {
  if (r->flying.n == 0) return true;
  for (int i = 0; i < op->n_in; i++)
    if (!may_use(r, at, op->in[i].value, false)) return false;
  for (int i = 0; i < op->n_out; i++)
    if (!may_use(r, at, op->out[i], true)) return false;
  return true;
}

// -- Functions ---------------------------------------------------------------------------------

static bool open_function(Replay *r, Function *f, const char *name) {
  *f = (Function){.name = name};
  if (!name) return true;
  Unit *u = table_find(r->c->names, NAME_unit, name);
  if (u && u->used) return mismatch(r->c, &u->at, "'%s' runs twice in a step", name);
  u = unit_find(r->c, NULL, name, UNIT_function);
  if (!u) return false;
  f->at = u->at;
  f->open = true;
  r->c->function = name;
  if (!want(r->c, &f->at, "(NnrtRank *r) {")) return false;
  take(&f->at, "(void)r;");
  return true;
}

static bool take_waits(Replay *r);

// Moves the cursor to the next iteration of its loop, or over the loop's end.
static bool next_iteration(Replay *r, Function *f) {
  if (!loop_next(r->c, &f->loop, &f->at)) return false;
  if (f->at.file) return true;
  f->at = f->loop.after;
  f->loop.times = 0;
  return true;
}

// Moves the cursor over calls of parts, into them, and over their ends, and likewise for loops over
// equal calls.  A part runs once.
static bool enter_part(Replay *r, Function *f) {
  Check *c = r->c;
  while (f->open) {
    bool loop = f->loop.times > 0;
    if (loop && cursor_peek(&f->at).kind != C_end) return true;
    if (loop) {
      if (!next_iteration(r, f)) return false;
      continue;
    }
    if (!loop_open(c, &f->at, &f->loop, &loop)) return false;
    if (loop) {
      if (!next_iteration(r, f)) return false;
      continue;
    }
    if (f->part && take(&f->at, "}")) {
      f->at = f->after;
      f->part = NULL;
      continue;
    }
    Cursor after = f->at;
    CToken name;
    if (f->part || !take(&after, "%w(r);", &name)) return true;
    const char *part = ctoken_text(&name, c->arena);
    Unit *u = table_find(c->names, NAME_unit, part);
    if (u && u->used) return mismatch(c, &f->at, "'%s' runs twice in a step", part);
    u = unit_find(c, &f->at, part, UNIT_function);
    if (!u) return false;
    f->after = after;
    f->at = u->at;
    f->part = part;
    if (!want(c, &f->at, "(NnrtRank *r) {")) return false;
  }
  return true;
}

// The end of a function.  `left`: collectives may be in flight.
static bool close_function(Replay *r, Function *f, bool left) {
  r->c->op = NULL;
  r->c->function = f->name;
  r->now = f;
  if (f->open && !take_waits(r)) return false;
  if (f->open && !take(&f->at, "}")) {
    CToken t = cursor_peek(&f->at);
    return mismatch(r->c, &f->at, "'%s' is of no op that is due here",
                    ctoken_text(&t, r->c->arena));
  }
  f->open = false;
  for (int i = 0; i < r->flying.n; i++)
    if (!left && !reduce_is_in_flight(r->flying.at[i].op)) {
      r->c->op = r->flying.at[i].op;
      return mismatch(r->c, f->name ? &f->at : NULL, "the function ends before the wait for '%s'",
                      op_text(r->flying.at[i].op, r->c->arena));
    }
  return true;
}

// Directs ops to another function, after the end of the current one.
static bool go_to(Replay *r, Function *f, bool left) {
  if (r->now == f) return true;
  if (r->now && !close_function(r, r->now, left)) return false;
  r->now = f;
  r->c->function = f->name;
  return true;
}

// The cursor for a statement of `op` in a function.
static Cursor *cursor_in(Replay *r, Function *f, const Op *op) {
  r->c->op = op;
  r->c->function = f ? f->name : NULL;
  if (f && !enter_part(r, f)) return NULL;
  if (f && f->open) return &f->at;
  mismatch(r->c, NULL, "no function of the text runs an op");
  return NULL;
}

// -- Statements --------------------------------------------------------------------------------

// "RUN(7, ": the number of an op.
static bool want_run(Replay *r, Cursor *at, const Op *op, int which) {
  const Cursor before = *at;
  if (!take(at, "RUN(%i,", &r->c->number)) return unexpected(r->c, at, "the call of an op");
  return want_number(r->c, &before, r->text, r->c->number, op, which);
}

// "nnrt_move_b4(Y, X, r, 0));", in one call or one of two.
static bool want_move(Replay *r, Cursor *at, const Op *op, const char *half, int number, bool gives,
                      bool gets) {
  Check *c = r->c;
  char kernel[128];
  if (!kernel_name(op, c->target, kernel, sizeof kernel))
    return mismatch(c, at, "the move has no kernel, and there is a call");
  const char *name = str_format(c->arena, "nnrt_move%s%s", half, kernel + strlen("nnrt_move"));
  if (!want_run(r, at, op, str_equal(half, "_wait") ? 2 : 1) ||
      !want_word(c, at, name, "the function") || !want(c, at, "("))
    return false;
  if (!(gets ? want_place(c, at, op->out[0], "the target") : want(c, at, "NULL"))) return false;
  if (!str_equal(half, "_wait") &&
      !(want(c, at, ",") &&
        (gives ? want_place(c, at, op->in[0].value, "the source") : want(c, at, "NULL"))))
    return false;
  return want(c, at, ", r,") && want_int(c, at, number, "the number of the move") &&
         want(c, at, "));");
}

static void drop_flight(Replay *r, int i) {
  for (; i + 1 < r->flying.n; i++)
    r->flying.at[i] = r->flying.at[i + 1];
  r->flying.n--;
}

// The wait for the round of a ring, if it is next.
static bool take_round(Replay *r, bool *taken) {
  Check *c = r->c;
  Cursor at = r->now->at;
  CToken kernel, name;
  int64_t number, move;
  *taken = take(&at, "RUN(%i, %w(%w, r, %i));", &number, &kernel, &name, &move) &&
           str_starts(ctoken_text(&kernel, c->arena), "nnrt_move_wait_");
  if (!*taken) return true;
  int i = 0;
  while (i < r->flying.n && !(r->flying.at[i].op->kind == OP_move &&
                              c->move_of[c->at_graph][r->flying.at[i].op->id] - 1 == move))
    i++;
  if (i == r->flying.n)
    return mismatch(c, &r->now->at, "this waits for move %lld, which is not in flight",
                    (long long)move);
  const Op *op = r->flying.at[i].op, *kept = c->op;
  c->op = op;
  if (!want_move(r, &r->now->at, op, "_wait", (int)move, false, true)) return false;
  c->op = kept;
  drop_flight(r, i);
  return true;
}

// Waits of collectives, wherever they are.
static bool take_waits(Replay *r) {
  for (;;) {
    if (!enter_part(r, r->now)) return false;
    Cursor at = r->now->at;
    CToken name;
    int64_t number;
    bool taken;
    if (!take_round(r, &taken)) return false;
    if (taken) continue;
    if (!take(&at, "RUN(%i, nnrt_wait(r, %w));", &number, &name)) return true;
    const MacroPlace *p = place_find(r->c, &name);
    int i = 0;
    while (i < r->flying.n &&
           !(p && p->kind == PLACE_slab && !value_on_host(r->flying.at[i].op->out[0]) &&
             p->offset == r->flying.at[i].op->out[0]->offset))
      i++;
    if (i == r->flying.n)
      return mismatch(r->c, &r->now->at, "this waits for '%s', and nothing there is in flight",
                      ctoken_text(&name, r->c->arena));
    const Op *op = r->flying.at[i].op, *kept = r->c->op;
    r->c->op = op;
    // The macro must be that of the result, slots included.
    Cursor place = r->now->at;
    if (!take(&place, "RUN(%i, nnrt_wait(r,", &number) ||
        !want_number(r->c, &r->now->at, r->text, number, op, 2) ||
        !want_place(r->c, &place, op->out[0], "the result of the collective"))
      return false;
    r->c->op = kept;
    r->now->at = at;
    drop_flight(r, i);
  }
}

static bool want_copy(Replay *r, Cursor *at, const Value *y, const Value *x, const char *end) {
  Check *c = r->c;
  return want(c, at, "nnrt_copy(") && want_place(c, at, y, "the copy") && want(c, at, ",") &&
         want_place(c, at, x, "the source") && want(c, at, ",") &&
         want_int(c, at, type_bytes(y->type), "the number of bytes") && want(c, at, end);
}

// A constant that is copied to a place of its own.
static bool want_constant_copy(Replay *r, Cursor *at, const Value *v) {
  Check *c = r->c;
  CToken name;
  if (!want(c, at, "nnrt_copy(") || !want_place(c, at, v, "the copy") || !want(c, at, ","))
    return false;
  const Cursor before = *at;
  const MacroPlace *p = take(at, "%w,", &name) ? place_find(c, &name) : NULL;
  if (!p || p->kind != PLACE_constant) return unexpected(c, &before, "a constant");
  return want_constant(c, &before, p->offset, v) &&
         want_int(c, at, type_bytes(v->type), "the number of bytes") && want(c, at, ");");
}

// A copy to or from host memory, or its end: the number tells which one.
static bool want_swap(Replay *r, Cursor *at, const Op *op) {
  Check *c = r->c;
  const Op *starts = op->kind == OP_swap_wait ? op->in[0].value->def : op;
  const char *name =
      str_format(c->arena, "nnrt_%s%s", op_info[starts->kind].name, op == starts ? "" : "_wait");
  if (!want_word(c, at, name, "the function") || !want(c, at, "(r,")) return false;
  const Cursor before = *at;
  int64_t number;
  if (!take(at, "%i,", &number) || number < 0 || number >= INT32_MAX - 1)
    return unexpected(c, &before, "the number of a copy");
  if (op == starts) {
    for (int i = 0; i < r->copies.n; i++)
      if (r->copies.at[i] == (int)number)
        return mismatch(c, &before, "another copy has this number");
    vec_push(c->arena, &r->copies, (int)number);
    r->copy_of[op->id] = (int)number + 1;
  } else if (r->copy_of[starts->id] != (int)number + 1)
    return mismatch(c, &before, "this waits for another copy");
  return want_place(c, at, starts->out[0], "the target") && want(c, at, ",") &&
         want_place(c, at, starts->in[0].value, "the source") && want(c, at, ",") &&
         want_int(c, at, type_bytes(starts->out[0]->type), "the number of bytes") &&
         want(c, at, ")");
}

// Ops without a call: views, and constants that kernels read at their own place.
static bool is_silent(const Op *op) {
  if (op->kind == OP_swap_wait) return false;
  return (op_info[op->kind].traits & VIEW) || (op->kind == OP_constant && op->out[0]->offset < 0);
}

static bool on_mesh(const Replay *r, const Mesh *mesh) {
  return !mesh || r->on[mesh->id];
}

// -- Moves -------------------------------------------------------------------------------------

static bool replay_move(Replay *r, const Op *op, int number, bool in_loop) {
  Check *c = r->c;
  const Value *x = op->in[0].value, *y = op->out[0];
  bool gives = on_mesh(r, x->layout->mesh), gets = on_mesh(r, y->layout->mesh);
  if (!gives && !gets) return true;
  // A move from another segment is in two halves: after the segment of its operand, or at `get`,
  // and before its own segment.
  int from = op->segment;
  if (in_loop && c->ahead[number]) from = gives && r->run ? move_start(op, r->run) : 0;
  if (from == op->segment) {
    Cursor *at = cursor_in(r, r->now, op);
    if (!at || !take_waits(r) || (gives && !may_use(r, at, x, false)) ||
        (gets && !may_use(r, at, y, true)))
      return false;
    if (!move_is_round(op)) return want_move(r, at, op, "", number, gives, gets);
    // The runtime has a copy of the operand.
    Flight f = {.op = op, .result = span_of(y)};
    vec_push(c->arena, &r->flying, f);
    return want_move(r, at, op, "_start", number, gives, gets);
  }
  int part = gives ? r->segment_part[from] : r->get_part[y->id];
  if (!part) return mismatch(r->c, NULL, "no task starts a move");
  Cursor *at = cursor_in(r, &r->part[part - 1].start, op);
  if (!at || !want_move(r, at, op, "_start", number, gives, gets)) return false;
  if (!gets) return true;
  part = r->segment_part[op->segment];
  if (!part) return mismatch(r->c, NULL, "no task waits for a move");
  at = cursor_in(r, &r->part[part - 1].wait, op);
  return at && want_move(r, at, op, "_wait", number, false, true);
}

// -- Ops ---------------------------------------------------------------------------------------

static bool want_flushes(Replay *r, const Op *op) {
  for (int i = 0; i < r->parts->deferred.n; i++) {
    if (r->parts->deferred.at[i].due != op || !on_mesh(r, op_mesh(op))) continue;
    Cursor *at = cursor_in(r, r->now, op);
    int64_t n;
    if (!at || !take_waits(r)) return false;
    // Ops of the previous step use memory, too.
    const Op *late = r->parts->deferred.at[i].first;
    for (int k = 0; k < r->parts->deferred.at[i].n; k++, late = late->next)
      if (!is_silent(late) && !may_run(r, at, late)) return false;
    const Cursor before = *at;
    if (!take(at, "nnrt_flush_deferred(r, %i);", &n))
      return unexpected(r->c, at, "the flush of deferred updates");
    if (!want_equal(r->c, &before, n, i + 1, "the number of deferred updates")) return false;
  }
  return true;
}

static bool replay_op(Replay *r, const Op *op, bool in_loop);

// "(const char *)X + t1 * INT64_C(40)": the slice of an iteration.
static bool want_slice(Replay *r, Cursor *at, const Value *v, const char *type, const char *t,
                       int64_t bytes) {
  Check *c = r->c;
  return want(c, at, type) && want_place(c, at, v, "the slices") && want(c, at, "+") &&
         want_word(c, at, t, "the iteration") && want(c, at, "* INT64_C(") &&
         want_int(c, at, bytes, "the bytes of a slice") && want(c, at, ")");
}

// "128", or "(*N < 128 ? *N : 128)": the number of iterations.
static bool want_times(Replay *r, Cursor *at, const Op *op, const LoopForm *f) {
  Check *c = r->c;
  if (!f->times) return want_int(c, at, f->count, "the number of iterations");
  const Value *v = op->in[f->times - 1].value;
  return want(c, at, "(*") && want_place(c, at, v, "the iterations that run") && want(c, at, "<") &&
         want_int(c, at, f->count, "the number of iterations") && want(c, at, "? *") &&
         want_place(c, at, v, "the iterations that run") && want(c, at, ":") &&
         want_int(c, at, f->count, "the number of iterations") && want(c, at, ")");
}

static bool want_head(Replay *r, Cursor *at, const Op *op, const LoopForm *f, const char *t) {
  Check *c = r->c;
  if (!want(c, at, "for (int64_t") || !want_word(c, at, t, "the iteration") || !want(c, at, "="))
    return false;
  if (f->reverse)
    return want_times(r, at, op, f) && want(c, at, "- 1;") &&
           want_word(c, at, t, "the iteration") && want(c, at, ">= 0;") &&
           want_word(c, at, t, "the iteration") && want(c, at, "--) {");
  return want(c, at, "0;") && want_word(c, at, t, "the iteration") && want(c, at, "<") &&
         want_times(r, at, op, f) && want(c, at, ";") && want_word(c, at, t, "the iteration") &&
         want(c, at, "++) {");
}

// The statements before the ops of a body: states and sums, the head, and the slices.
static bool want_loop_begin(Replay *r, Cursor *at, const Op *op, const char *t) {
  Check *c = r->c;
  const Graph *body = op->callee;
  LoopForm f = loop_form(op);
  for (int i = 0; i < f.carried; i++)
    if (!want_copy(r, at, op->out[i], op->in[i].value, ");")) return false;
  // Sums, and slices of iterations that do not run.
  for (int k = 0; k < f.summed + (f.times ? f.stacked : 0); k++) {
    int i = k < f.summed ? f.carried + f.stacked + k : f.carried + k - f.summed;
    if (!want(c, at, "nnrt_zero(") || !want_place(c, at, op->out[i], "the sum") ||
        !want(c, at, ",") ||
        !want_int(c, at, type_bytes(op->out[i]->type), "the number of bytes") || !want(c, at, ");"))
      return false;
  }
  if (!want_head(r, at, op, &f, t)) return false;
  for (int i = f.carried; i < f.carried + f.sliced; i++) {
    const Value *v = body->params[i];
    int64_t bytes = type_bytes(v->type);
    if (!want(c, at, "nnrt_copy(") || !want_place(c, at, v, "the slice") || !want(c, at, ",") ||
        !want_slice(r, at, op->in[i].value, "(const char *)", t, bytes) || !want(c, at, ",") ||
        !want_int(c, at, bytes, "the number of bytes") || !want(c, at, ");"))
      return false;
  }
  return true;
}

// The statements after the ops of a body.
static bool want_loop_end(Replay *r, Cursor *at, const Op *op, const char *t) {
  Check *c = r->c;
  const Graph *body = op->callee;
  LoopForm f = loop_form(op);
  for (int i = f.carried; i < body->n_results; i++) {
    const Value *v = body->results[i]->use.value;
    int64_t bytes = type_bytes(v->type);
    bool stacked = i < f.carried + f.stacked;
    if (stacked &&
        (!want(c, at, "nnrt_copy(") || !want_slice(r, at, op->out[i], "(char *)", t, bytes) ||
         !want(c, at, ",") || !want_place(c, at, v, "the slice") || !want(c, at, ",") ||
         !want_int(c, at, bytes, "the number of bytes") || !want(c, at, ");")))
      return false;
    const char *add = str_format(c->arena, "nnrt_accumulate_%s", dtype_name[v->type->dtype]);
    if (!stacked &&
        (!want_word(c, at, add, "the sum") || !want(c, at, "(") ||
         !want_place(c, at, op->out[i], "the sum") || !want(c, at, ",") ||
         !want_place(c, at, v, "the term") || !want(c, at, ",") ||
         !want_int(c, at, type_count(v->type), "the number of elements") || !want(c, at, ");")))
      return false;
  }
  for (int i = 0; i < f.carried; i++) {
    const Value *v = body->results[i]->use.value;
    if (v->offset != op->out[i]->offset && !want_copy(r, at, op->out[i], v, ");")) return false;
  }
  return want(c, at, "}");
}

// Replays a loop: the ops of its body between the statements for its values.
static bool replay_loop(Replay *r, Cursor *at, const Op *op, bool in_loop) {
  const char *t = str_format(r->c->arena, "t%d", r->depth + 1);
  if (!want_loop_begin(r, at, op, t)) return false;
  r->depth++;
  for_each_op(inner, op->callee)
    if (!replay_op(r, inner, in_loop)) return false;
  r->depth--;
  r->c->op = op;
  return want_loop_end(r, at, op, t);
}

// The statements that name the values of each op of a launch, if its call does not list them.
static bool replay_tensors(Replay *r, const Op *op) {
  Check *c = r->c;
  const Launch launch = launch_of(c, op);
  int k = 0;
  for_each_op(member, op->callee) {
    if (multi_tensor_narrows(member)) continue;
    Cursor *at = cursor_in(r, r->now, op);
    if (!at) return false;
    if (k == 0 && !tensor_is_next(at)) return true;
    if (!want_tensor(c, at, &launch, member, k++, r->code)) return false;
  }
  // The call may be in another part, or after a loop.
  return cursor_in(r, r->now, op) != NULL;
}

static bool replay_op(Replay *r, const Op *op, bool in_loop) {
  Check *c = r->c;
  if (is_silent(op)) return true;
  int number = op->kind == OP_move ? c->move_of[c->at_graph][op->id] - 1 : -1;
  if (number >= 0) return replay_move(r, op, number, in_loop);
  if (!on_mesh(r, op_mesh(op))) return true;
  bool copies = op->kind == OP_move || op->kind == OP_stash;
  // A copy in place is nothing.
  if (copies && op->in[0].value->offset == op->out[0]->offset &&
      op->in[0].value->slots == op->out[0]->slots)
    return true;
  Cursor *at = cursor_in(r, r->now, op);
  if (!at || !take_waits(r) || !may_run(r, at, op)) return false;
  c->op = op;
  if (op->kind == OP_loop) return replay_loop(r, at, op, in_loop);
  if (op->kind == OP_constant) return want_constant_copy(r, at, op->out[0]);
  // The first slice of a step starts a sum at 0, or copies it to host memory.
  if ((op_info[op->kind].traits & ACCUMULATES) && !op_starts_copy(op))
    if (!want(c, at, "if (r->micro == 0) nnrt_zero(") ||
        !want_place(c, at, op->out[0], "the sum") || !want(c, at, ",") ||
        !want_int(c, at, type_bytes(op->out[0]->type), "the number of bytes") || !want(c, at, ");"))
      return false;
  c->named = NULL;
  if (op->kind == OP_multi_tensor && !replay_tensors(r, op)) return false;
  if (!want_run(r, at, op, 0)) return false;
  if (copies) return want_copy(r, at, op->out[0], op->in[0].value, "));");
  if (op_starts_copy(op) || op->kind == OP_swap_wait)
    return want_swap(r, at, op) && want(c, at, ");");
  if (!want_call(c, at, op, r->code) || !want(c, at, ");")) return false;
  if (op_is_async(op)) {
    Flight f = {op, span_of(op->out[0]), span_of(op->in[0].value)};
    // The runtime has a copy of a small operand.
    if (op->kind != OP_all_reduce && type_bytes(op->in[0].value->type) <= NNRT_SMALL_OPERAND)
      f.operand = (Span){0};
    vec_push(c->arena, &r->flying, f);
  }
  return true;
}

// -- New parameters ----------------------------------------------------------------------------

static const Mesh *mesh_of(const Value *v) {
  return v->layout ? v->layout->mesh : NULL;
}

// The new value of a parameter that is not computed in place.  Old values of parameters that others
// take are copied before any of them changes.
static bool replay_copies(Replay *r) {
  for (int computed = 0; computed < 2; computed++)
    for (int i = 0; i < r->g->n_results; i++) {
      const Result *result = r->g->results[i];
      const Value *to = result->target;
      Value *from = result->use.value;
      int64_t skip;
      if (!to || from == to || from->offset == to->offset) continue;
      if ((view_root(from, &skip)->def != NULL) != computed || !on_mesh(r, mesh_of(to))) continue;
      if (from->def && from->def->deferred)
        return mismatch(r->c, NULL, "a deferred update is not in place");
      Cursor *at = cursor_in(r, &r->update, from->def);
      if (!at || !may_use(r, at, from, false) || !may_use(r, at, to, true) ||
          !want_copy(r, at, to, from, ");"))
        return false;
    }
  return true;
}

// -- Schedules ---------------------------------------------------------------------------------

// Compares the tasks and their order with the run of the ranks, and opens their functions.
static bool open_parts(Replay *r) {
  Check *c = r->c;
  StepText *s = r->step;
  c->op = NULL;
  c->function = NULL;
  r->part = arena_array(c->arena, Part, s->n_parts + 1);
  r->segment_part =
      arena_array(c->arena, int, (r->g->schedule ? r->g->schedule->segment.n : 0) + 1);
  r->get_part = arena_array(c->arena, int, r->g->n_values);
  if (!r->g->schedule) {
    if (s->n_parts != 1 || s->ordered || s->part[0].wait || s->part[0].start || !s->part[0].run)
      return mismatch(c, NULL, "the loop of @%s is not one task", r->g->name);
    if (!str_equal(s->part[0].name, "micro"))
      return mismatch(c, NULL, "task '%s' is 'micro' in the module", s->part[0].name);
    r->segment_part[0] = 1;
  } else {
    // Tasks are numbered by their first occurrence in the run.
    int n = 0, n_actions = r->run ? r->run->action.n : 0;
    if (s->order.n != n_actions)
      return mismatch(c, NULL, "rank %d runs %d tasks of @%s, and %d in the module", r->rank,
                      s->order.n, r->g->name, n_actions);
    for (int i = 0; i < n_actions; i++) {
      const Action *a = &r->run->action.at[i];
      int *part = a->get ? &r->get_part[a->get->id] : &r->segment_part[a->segment];
      const char *name = a->get ? str_format(c->arena, "get %s", value_name(c->arena, a->get))
                                : segment_name(r->g, a->segment);
      bool found = *part != 0;
      if (!found) *part = ++n;
      if (*part > s->n_parts || s->order.at[i] != *part - 1)
        return mismatch(c, NULL, "task %d of rank %d in @%s is another: '%s' in the module", i,
                        r->rank, r->g->name, name);
      if (found) continue;
      const TaskText *t = &s->part[*part - 1];
      if (!str_equal(t->name, name) || (a->get != NULL) != (t->run == NULL))
        return mismatch(c, NULL, "task '%s' of rank %d is '%s' in the module", t->name, r->rank,
                        name);
    }
    if (n != s->n_parts) return mismatch(c, NULL, "rank %d has a task that never runs", r->rank);
  }
  for (int i = 0; i < s->n_parts; i++)
    if (!open_function(r, &r->part[i].wait, s->part[i].wait) ||
        !open_function(r, &r->part[i].run, s->part[i].run) ||
        !open_function(r, &r->part[i].start, s->part[i].start))
      return false;
  return true;
}

// -- A step ------------------------------------------------------------------------------------

static bool replay_deferred(Replay *r) {
  for (int i = 0; i < r->parts->deferred.n; i++) {
    if (!go_to(r, &r->late[i], false)) return false;
    const Op *op = r->parts->deferred.at[i].first;
    for (int k = 0; k < r->parts->deferred.at[i].n; k++, op = op->next)
      if (!replay_op(r, op, false)) return false;
    if (!close_function(r, &r->late[i], false)) return false;
    r->now = NULL;
  }
  if (r->flying.n == 0) return true;
  r->c->op = r->flying.at[0].op;
  return mismatch(r->c, NULL, "no function waits for '%s'",
                  op_text(r->flying.at[0].op, r->c->arena));
}

static bool replay_step(Replay *r) {
  Check *c = r->c;
  const Op *update = r->parts->update, *deferred = r->parts->first_deferred;
  bool repeated = module_slices(c->m) > 1 || r->g->schedule;
  if (!open_parts(r) || !open_function(r, &r->begins, r->step->begin) ||
      !open_function(r, &r->update, r->step->update))
    return false;
  if (r->parts->deferred.n != (c->at_graph ? 0 : c->p.n_deferred))
    return mismatch(c, NULL, "there are %d groups of deferred updates, and %d in the module",
                    (int)c->p.n_deferred, r->parts->deferred.n);
  r->late = arena_array(c->arena, Function, r->parts->deferred.n + 1);
  for (int i = 0; i < r->parts->deferred.n; i++)
    if (!open_function(r, &r->late[i], c->functions[i])) return false;
  // Once per step, before the first slice.
  r->now = &r->begins;
  for_each_op(op, r->g)
    if (r->parts->begin[op->id] && (!want_flushes(r, op) || !replay_op(r, op, false))) return false;
  if (!close_function(r, &r->begins, false)) return false;
  r->now = NULL;
  // For every slice, segment by segment; then the update.
  bool in_loop = true;
  for (const Op *op = r->g->first; op != deferred; op = op->next) {
    if (r->parts->begin[op->id]) continue;
    in_loop &= op != update;
    bool here = on_mesh(r, op_mesh(op));
    if (op->kind == OP_move) here |= on_mesh(r, mesh_of(op->in[0].value));
    if (is_silent(op) && in_loop) continue;
    int part = in_loop ? r->segment_part[op->segment] : 0;
    if (in_loop && !part && here && op->kind != OP_move) {
      c->op = op;
      return mismatch(c, NULL, "no task of rank %d runs an op of its mesh", r->rank);
    }
    Function *f = in_loop ? part ? &r->part[part - 1].run : NULL : &r->update;
    if (f && !go_to(r, f, !repeated)) return false;
    if (here && (!want_flushes(r, op) || !replay_op(r, op, in_loop))) return false;
  }
  if (!go_to(r, &r->update, !repeated)) return false;
  if (update && update == deferred && !want_flushes(r, deferred)) return false;
  if (r->update.open && !take_waits(r)) return false;
  if (!replay_copies(r) || !close_function(r, &r->update, false)) return false;
  r->now = NULL;
  if (!replay_deferred(r)) return false;
  // Nothing is left in any function.
  for (int i = 0; i < r->step->n_parts; i++)
    if (!close_function(r, &r->part[i].wait, true) || !close_function(r, &r->part[i].run, true) ||
        !close_function(r, &r->part[i].start, true))
      return false;
  c->function = NULL;
  c->op = NULL;
  return true;
}

// -- Rank programs -----------------------------------------------------------------------------

static const bool *meshes_of(Check *c, int rank) {
  bool *on = arena_array(c->arena, bool, module_n_meshes(c->m) + 1);
  for_each_mesh(mesh, c->m)
    on[mesh->id] = mesh_has(mesh, rank);
  return on;
}

static bool replay_code(Check *c, int code, int rank, const Parts *parts) {
  c->at_code = &c->code[code];
  for (int i = 0; i < 2; i++) {
    if (!c->graph[i]) {
      const StepText *s = &c->code[code].step[i];
      if (s->begin || s->update || s->n_parts)
        return mismatch(c, NULL, "rank program %d has a step of a graph that is not there", code);
      continue;
    }
    c->at_graph = i;
    Replay r = {.c = c, .g = c->graph[i], .text = &c->p.graph[i], .code = c->at_code, .rank = rank};
    r.step = &r.code->step[i];
    r.on = meshes_of(c, rank);
    r.run = graph_run_of(r.g, rank);
    r.copy_of = arena_array(c->arena, int, r.g->n_ops);
    r.parts = &parts[i];
    if (!replay_step(&r)) return false;
  }
  return true;
}

// Whether ranks run the same ops: they are on the same meshes, and have the same runs.
static bool same_work(const Check *c, int a, int b) {
  for_each_mesh(mesh, c->m)
    if (mesh_has(mesh, a) != mesh_has(mesh, b)) return false;
  for (int i = 0; i < 2; i++)
    if (c->graph[i] && graph_run_of(c->graph[i], a) != graph_run_of(c->graph[i], b)) return false;
  return true;
}

static bool check_memory(Check *c, const CodeText *code, int rank, const int64_t *ends,
                         const int64_t *host_ends) {
  int64_t align = target_info[c->target].align;
  int64_t end = device_end(c->m, ends, rank), host = device_end(c->m, host_ends, rank);
  end = (end + align - 1) / align * align;
  return want_equal(c, NULL, code->slab_bytes, end, "the size of the slab") &&
         want_equal(c, NULL, code->host_bytes, host, "the size of the host memory");
}

// Each number of a graph is that of one call, and each call has one number.
static bool check_numbers(Check *c, int graph) {
  const GraphText *text = &c->p.graph[graph];
  const Graph *g = c->graph[graph];
  if (!g) return text->n_ops == 0 || mismatch(c, NULL, "there are ops of no graph");
  int64_t *number = arena_array(c->arena, int64_t, (int64_t)g->n_ops * CALLS); // from 1
  Table *bodies = table_new(c->arena); // of loops, by name: the same
  for (int64_t i = 0; i < text->n_ops; i++) {
    uintptr_t key = (uintptr_t)text->made_of[i], which = key % 4;
    const Op *op = (const Op *)(key - which);
    if (!op) return mismatch(c, NULL, "no call of @%s has number %" PRId64, g->name, i);
    c->op = op;
    int64_t *numbers = number;
    if (op->graph != g) {
      numbers = table_find(bodies, 0, op->graph->name);
      if (!numbers) {
        numbers = arena_array(c->arena, int64_t, (int64_t)op->graph->n_ops * CALLS);
        table_add(bodies, 0, op->graph->name, numbers);
      }
    }
    int64_t *first = &numbers[(int64_t)op->id * CALLS + (int64_t)which];
    if (*first)
      return mismatch(c, NULL, "a call has numbers %" PRId64 " and %" PRId64, *first - 1, i);
    *first = i + 1;
    c->op = NULL;
  }
  return true;
}

bool replay(Check *c) {
  int *of = arena_array(c->arena, int, c->p.n_codes); // by code: 1 + its first rank
  const int64_t *ends = mesh_ends(c->m, c->arena), *host_ends = mesh_host_ends(c->m, c->arena);
  Parts parts[2] = {{0}};
  for (int i = 0; i < 2; i++) {
    const Graph *g = c->graph[i];
    if (!g) continue;
    parts[i].begin = graph_begin_ops(g, c->arena);
    parts[i].update = graph_update_start(g);
    parts[i].first_deferred = graph_first_deferred(g);
    graph_deferred_groups(g, c->arena, &parts[i].deferred);
  }
  int only = c->p.split_rank ? (int)c->p.split_rank - 1 : -1;
  for (int i = 0; i < c->p.n_prep; i++)
    c->prep_first[i] = INT64_MAX;
  for (int rank = 0; rank < c->p.ranks; rank++) {
    if (only >= 0 && rank != only) continue;
    int code = c->code_of[rank];
    if (of[code] && !same_work(c, rank, of[code] - 1))
      return mismatch(c, NULL, "ranks %d and %d share a rank program, and do not run the same ops",
                      of[code] - 1, rank);
    if (of[code]) continue;
    of[code] = rank + 1;
    if (!check_memory(c, &c->code[code], rank, ends, host_ends) ||
        !replay_code(c, code, rank, parts))
      return false;
  }
  for (int i = 0; i < 2; i++)
    if (!check_numbers(c, i)) return false;
  for (int k = 0; k < c->p.n_constants; k++)
    if (!c->constant_value[k]) return mismatch(c, NULL, "constant %d is of no op", k);
  for (int k = 0; k < c->p.n_prep; k++)
    if (c->prep_first[k] == INT64_MAX) return mismatch(c, NULL, "preparation %d is of no op", k);
  for (int i = 0; i < c->p.n_codes; i++) {
    if (!of[i]) return mismatch(c, NULL, "no rank runs rank program %d", i);
    for (int k = 0; k < c->p.n_prep; k++) {
      const PrepCall *prep = &c->code[i].prep[k];
      const Cursor at = {&c->program, prep->name.at, prep->name.line};
      if (!prep->name.n) continue;
      c->function = c->code[i].prepare;
      if (!prep->used) return mismatch(c, &at, "no op runs preparation %d", k);
      if (prep_key(prep->eval, prep->op) != c->prep_first[k])
        return mismatch(c, &at, "preparation %d is not that of op %" PRId64, k, prep->op);
    }
  }
  c->function = NULL;
  return true;
}
