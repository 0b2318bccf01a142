// Loops of the model that stay loops.
//
//     Scan  state s, slices x      body(s, xt) -> t, y      %s1, %y = loop @loop %s, %x, %w
//
// The body is imported into the graph like that of an If, with stand-ins for its states and slices.
// Then the ops that depend on these move into a graph of their own.  All others are the same in
// every iteration: they stay, and the loop reads their results, as it reads weights.  A constant is
// made again in the body, where it can be folded.
//
// A condition that depends on data is one more state, and masks the others:
//
//     Loop  while c(s): s = f(s)        body(s, on) -> where(on, f(where(on, s, s0)), s), on and c(f(s))
//
// The branches of an If on data are two loops of one iteration or none.

#include "frontend/onnx_loop.h"

#include "ir/loop.h"

// The body on the way from the graph of the model into its own.
typedef struct Outline {
  Import *im;
  Graph *body;
  Op *before; // the last op before those of the body
  Value **of; // by value id of the model's graph: its value in the body, or NULL
  Value **stand_in;
  int n_stand_ins;
  Vec(Value *) invariant; // operands of the loop
  Diag *d;
} Outline;

// A loop on a data condition runs all iterations up to its bound, and this is the largest one.
enum { MOST_MASKED = 4096 };

static Op *first_of_body(const Outline *o) {
  return o->before ? o->before->next : o->im->g->first;
}

// The value in the body: its own, a copy of a constant, or a parameter for a value from outside.
static Value *inside(Outline *o, Value *v) {
  if (o->of[v->id]) return o->of[v->id];
  const Op *def = v->def;
  if (def && (def->kind == OP_constant || def->kind == OP_fill)) {
    Op *copy = op_copy(o->body, NULL, def, NULL, o->d);
    return o->of[v->id] = copy ? copy->out[0] : NULL;
  }
  vec_push(o->im->a, &o->invariant, v);
  return o->of[v->id] = graph_param(o->body, NULL, v->type, ROLE_none, NULL);
}

// Copies the ops that depend on the stand-ins into the body.  False after an error.
static bool outline_ops(Outline *o, const bool *depends) {
  for (const Op *op = first_of_body(o); op; op = op->next) {
    if (!depends[op->out[0]->id]) continue;
    Value **in = arena_array(o->im->a, Value *, op->n_in);
    for (int i = 0; i < op->n_in; i++)
      if (!(in[i] = inside(o, op->in[i].value))) return false;
    const Op *copy = op_copy(o->body, NULL, op, in, o->d);
    if (!copy) return false;
    for (int i = 0; i < op->n_out; i++) {
      o->of[op->out[i]->id] = copy->out[i];
      value_set_name(copy->out[i], op->out[i]->name);
    }
  }
  return true;
}

// Erases the ops of the body that nothing reads, and the stand-ins.  `loop` reads values that stay.
static void erase_originals(Outline *o, const Op *loop) {
  for (Op *op = o->im->g->last, *prev; op && op != o->before; op = prev) {
    prev = op->prev;
    // A constant may have a name outside of the body.
    bool constant = op->kind == OP_constant || op->kind == OP_fill;
    if (op != loop && !constant && !op_used(op)) op_erase(op);
  }
  for (int i = o->n_stand_ins - 1; i >= 0; i--)
    graph_erase_param(o->im->g, o->stand_in[i]->index);
  o->im->last = o->im->g->last;
}

// Whether a value of the body depends on data, and not only on the number of the iteration.
static bool is_data(const Node *n, const Outline *o, const Value *v, const Value *number) {
  const Graph *g = o->im->g;
  bool *data = arena_array(o->im->a, bool, g->n_values),
       *own = arena_array(o->im->a, bool, g->n_values);
  for (int i = 0; i < o->n_stand_ins; i++) {
    own[o->stand_in[i]->id] = true;
    data[o->stand_in[i]->id] = o->stand_in[i] != number;
  }
  for (const Op *op = first_of_body(o); op; op = op->next) {
    bool any = false;
    for (int i = 0; i < op->n_in; i++) {
      const Value *x = op->in[i].value;
      any |= own[x->id] ? data[x->id] : !node_known(n, x);
    }
    for (int i = 0; i < op->n_out; i++) {
      own[op->out[i]->id] = true;
      data[op->out[i]->id] = any;
    }
  }
  return own[v->id] ? data[v->id] : !node_known(n, v);
}

// After the end of the loop the body repeats the first iteration.  Another one might look up a row
// that no table has, or have infinite derivatives, which times zero are not zero.  `number` may be
// NULL.  False after an error.
static bool repeat_first(Outline *o, const Node *n, const Repeat *r, const Value *active,
                         Value *const *state, const Value *number) {
  Builder b = {.g = o->body, .origin = n->b->origin, .d = o->d};
  for (int i = 0; i < r->n_carried; i++) {
    const Type *t = state[i]->type;
    Value *first = inside(o, r->carried[i].v);
    Value *all = build_broadcast(&b, o->of[active->id], t->ndim, t->dim);
    if (first) first = build_where(&b, all, o->of[state[i]->id], first);
    if (!first || b.failed) return false;
    o->of[o->stand_in[i]->id] = first;
  }
  if (number) {
    Value *zero = build_fill(&b, DT_i64, 0, NULL, 0);
    o->of[number->id] = build_where(&b, o->of[active->id], o->of[number->id], zero);
  }
  return !b.failed;
}

// The condition as one more state.  After the end of the loop the other states stay.  Returns the
// next condition; the result with number 0 is the one that the body computes.
static Value *mask_states(Node *n, const Repeat *r, Value *active, Value *const *state,
                          Binding *io_result) {
  for (int i = 0; i < r->n_carried; i++) {
    const Type *t = state[i]->type;
    Value *all = build_broadcast(n->b, active, t->ndim, t->dim);
    io_result[1 + i].v = build_where(n->b, all, io_result[1 + i].v, state[i]);
  }
  return build_op(n->b, OP_and, IN(active, build_scalar(n->b, io_result[0].v)), NO_ATTRS);
}

// The reason that the results of the body do not fit a loop, or NULL.
static const char *misfit(const Node *n, const Repeat *r, const Binding *result, const Op *first,
                          int n_results, bool masked) {
  Arena *a = n->im->a;
  if (masked && n_results > r->n_carried)
    return "its condition depends on data, and so does the number of its slices, which is not "
           "supported";
  if (masked && r->count > MOST_MASKED)
    return str_format(
        a, "its condition depends on data, and it has up to %lld iterations; the limit is %d",
        (long long)r->count, MOST_MASKED);
  if (masked) {
    result++;
  } else if (r->numbered) {
    const Tensor *more = result[0].v ? node_known(n, result[0].v) : NULL;
    if (!more || type_count(more->type) != 1 || !tensor_i(more, 0))
      return "its condition depends on data, which is not supported";
    result++;
  }
  for (int i = 0; i < n_results; i++) {
    if (!result[i].v) return "a state or slice is a sequence, which is not supported";
    if (node_counted(n, result[i].v))
      return "a state or slice has a length that depends on data, which is not supported";
    if (i >= r->n_carried || result[i].v->type == r->carried[i].v->type) continue;
    return str_format(
        a, "its state %d is %s before an iteration and %s after it, which is not supported", i,
        type_text(a, r->carried[i].v->type), type_text(a, result[i].v->type));
  }
  // These differ by iteration even if their operands do not.
  for (const Op *op = first; op; op = op->next) {
    if (op_draws(op->kind)) return "its iterations draw random numbers, which is not supported";
    if (op->kind == OP_batch_norm_train)
      return "its iterations update running statistics, which is not supported";
  }
  return NULL;
}

// A loop while its body is imported and outlined.
typedef struct LoopBody {
  Outline o;
  Binding *result; // of the body: the condition if it is numbered, states, slices
  int n_in, n_results;
  Value *number;                 // NULL: the body does not get it
  Value *active, *next, **state; // of a masked loop: stand-ins of condition and states
  bool masked, numbered;         // one more state, the condition; one more slice, the number
} LoopBody;

static Value *stand_in_new(LoopBody *l, const Node *n, const Type *t) {
  Outline *o = &l->o;
  return o->stand_in[o->n_stand_ins++] =
             graph_param(o->im->g, NULL, t, ROLE_input, n->b->origin.loc);
}

// Imports the body, on stand-ins for states, slices and the number of the iteration.
static bool import_on_stand_ins(LoopBody *l, Node *n, const Repeat *r) {
  Import *im = n->im;
  int first = r->numbered ? 2 : 0;
  l->o.stand_in = arena_array(im->a, Value *, l->n_in + 2 + r->n_carried);
  l->result = arena_array(im->a, Binding, l->n_results + 1);
  Binding *in = arena_array(im->a, Binding, l->n_in + 2);
  for (int i = 0; i < l->n_in; i++) {
    const Type *t = i < r->n_carried ? r->carried[i].v->type : r->sliced[i - r->n_carried]->type;
    if (i >= r->n_carried) t = type_new(im->m, t->dtype, t->ndim - 1, t->dim + 1);
    in[first + i].v = stand_in_new(l, n, t);
    if (i < r->n_carried) in[first + i].narrow = r->carried[i].narrow;
  }
  if (r->numbered) {
    l->number = in[0].v = stand_in_new(l, n, type_scalar(im->m, DT_i64));
    in[1].v = node_scalar(n, DT_bool, 1);
    onnx_evaluate_new(im, n);
  }
  return onnx_import_body(n, "body", NULL, in, first + l->n_in, l->result,
                          l->n_results + r->numbered);
}

// Whether the condition decides the number of iterations, so that it is a state.  A condition on
// the number of the iteration alone ends few iterations when they are put in place.
static bool is_masked(const LoopBody *l, const Node *n, const Repeat *r) {
  const Value *more = r->numbered ? l->result[0].v : NULL;
  return more && type_count(more->type) == 1 && more->type->dtype == DT_bool &&
         (r->begins || is_data(n, &l->o, more, l->number) ||
          (!node_known(n, more) && r->count > MOST_ITERATIONS));
}

// Adds stand-ins for the condition and for the states of iterations that are not active.
static bool mask_body(LoopBody *l, Node *n, const Repeat *r) {
  l->active = stand_in_new(l, n, type_scalar(n->im->m, DT_bool));
  l->state = l->o.stand_in + l->o.n_stand_ins;
  for (int i = 0; i < r->n_carried; i++)
    stand_in_new(l, n, l->o.stand_in[i]->type);
  l->next = mask_states(n, r, l->active, l->state, l->result);
  return l->next != NULL;
}

// By value id: whether a value depends on a stand-in, and its op is of the body.
static bool *of_body(const LoopBody *l, const Import *im) {
  bool *depends = arena_array(im->a, bool, im->g->n_values);
  for (int i = 0; i < l->o.n_stand_ins; i++)
    depends[l->o.stand_in[i]->id] = true;
  for (const Op *op = first_of_body(&l->o); op; op = op->next)
    for (int i = 0; i < op->n_in; i++)
      for (int k = 0; depends[op->in[i].value->id] && k < op->n_out; k++)
        depends[op->out[k]->id] = true;
  return depends;
}

// Copies the body into a graph of its own.  Its parameters are states, the condition, slices, the
// number; its outputs are states, the condition, slices.
static bool outline_body(LoopBody *l, const Node *n, const Repeat *r, const bool *depends) {
  Outline *o = &l->o;
  Import *im = n->im;
  o->body = graph_new(im->m, graph_free_name(im->m, "loop"), false);
  o->of = arena_array(im->a, Value *, im->g->n_values);
  l->numbered = l->number && value_used(l->number);
  for (int i = 0; i <= l->n_in; i++) {
    if (i == r->n_carried && l->active)
      o->of[l->active->id] = graph_param(o->body, NULL, l->active->type, ROLE_none, NULL);
    if (i >= l->n_in && !l->numbered) continue;
    const Value *at = l->active && i < r->n_carried ? l->state[i] : o->stand_in[i];
    o->of[at->id] = graph_param(o->body, NULL, at->type, ROLE_none, NULL);
  }
  if (l->active && !repeat_first(o, n, r, l->active, l->state, l->numbered ? l->number : NULL))
    return false;
  if (!outline_ops(o, depends)) return false;
  for (int i = 0; i <= l->n_results; i++) {
    Value *v = i == r->n_carried && l->next ? inside(o, l->next) : NULL;
    if (v) graph_output(o->body, v, NULL);
    if (i == l->n_results) break;
    v = inside(o, l->result[r->numbered + i].v);
    if (!v) return false;
    graph_output(o->body, v, NULL);
  }
  return true;
}

// The operands of the loop: states, the condition, slices, the number, invariants, and the number
// of iterations if it depends on data.
static Value **loop_operands(LoopBody *l, Node *n, const Repeat *r, int *out_n) {
  Value **operand = arena_array(n->im->a, Value *, l->n_in + 3 + l->o.invariant.n);
  int n_operands = 0;
  for (int i = 0; i <= l->n_in; i++) {
    if (i == r->n_carried && l->active)
      operand[n_operands++] = r->begins ? r->begins : node_scalar(n, DT_bool, 1);
    if (i < l->n_in)
      operand[n_operands++] = i < r->n_carried ? r->carried[i].v : r->sliced[i - r->n_carried];
  }
  if (l->numbered) operand[n_operands++] = node_count_up(n, r->count);
  for (int i = 0; i < l->o.invariant.n; i++)
    operand[n_operands++] = l->o.invariant.at[i];
  // No iteration runs if the condition is false before the first.
  if (r->begins) {
    Value *times =
        node_mul(n, build_cast(n->b, r->begins, DT_i64), node_scalar(n, DT_i64, (double)r->count));
    graph_param(l->o.body, NULL, type_scalar(n->im->m, DT_i64), ROLE_none, NULL);
    operand[n_operands++] = times;
  }
  *out_n = n_operands;
  return operand;
}

bool onnx_loop(Node *n, const Repeat *r, Binding *out, int n_stacked, const char **why) {
  Import *im = n->im;
  *why = NULL;
  for (int i = 0; i < r->n_carried; i++)
    if (!r->carried[i].v) {
      *why = "a state is a sequence, which is not supported";
      return false;
    }
  LoopBody l = {.o = {.im = im, .before = im->g->last, .d = n->b->d},
                .n_in = r->n_carried + r->n_sliced,
                .n_results = r->n_carried + n_stacked};
  bool ok = import_on_stand_ins(&l, n, r);
  l.masked = ok && is_masked(&l, n, r);
  if (ok) *why = misfit(n, r, l.result, first_of_body(&l.o), l.n_results, l.masked);
  if (l.masked && !*why) ok = mask_body(&l, n, r);
  const bool *depends = of_body(&l, im);
  if (!ok || *why) {
    erase_originals(&l.o, NULL);
    return false;
  }
  ok = outline_body(&l, n, r, depends);
  int n_operands;
  Value **operand = loop_operands(&l, n, r, &n_operands);
  const Op *op = NULL;
  if (ok && !n->b->failed)
    op =
        op_new_calling(im->g, NULL, OP_loop, l.o.body, operand, n_operands,
                       (Attr[]){a_i("count", r->count), a_i("carried", r->n_carried + l.masked),
                                a_i("sliced", r->n_sliced + l.numbered), a_b("reverse", r->reverse),
                                a_i("times", r->begins ? n_operands : 0)},
                       5, n->b->origin, n->b->d);
  erase_originals(&l.o, op);
  if (!op) {
    graph_erase(l.o.body);
    n->b->failed = true;
    return false;
  }
  for (int i = 0; i < l.n_results; i++)
    out[i] = (Binding){.v = op->out[i], .narrow = l.result[r->numbered + i].narrow};
  return true;
}

// -- Branches ----------------------------------------------------------------------------------

// The reason that a branch cannot run by itself, or NULL.
static const char *branch_misfit(const Node *n, const Op *first, const Binding *result,
                                 const Binding *other, int n_results) {
  for (int i = 0; i < n_results; i++) {
    if (!result[i].v) return "a result is a sequence, and its condition depends on data";
    if (node_counted(n, result[i].v))
      return "a result has a length that depends on data, and its condition depends on data, too";
    if (other[i].v && other[i].v->type != result[i].v->type)
      return str_format(n->im->a, "its branches give %s and %s, and its condition depends on data",
                        type_text(n->im->a, other[i].v->type),
                        type_text(n->im->a, result[i].v->type));
  }
  for (const Op *op = first; op; op = op->next)
    if (op_draws(op->kind) || op->kind == OP_batch_norm_train)
      return "a branch draws random numbers or updates running statistics, and its condition "
             "depends on data";
  return NULL;
}

bool onnx_branch(Node *n, const char *attribute, Value *times, Binding *io_result, int n_results) {
  Import *im = n->im;
  Graph *g = im->g;
  Outline o = {.im = im, .before = g->last, .d = n->b->d};
  Binding *result = arena_array(im->a, Binding, n_results);
  if (!onnx_import_body(n, attribute, NULL, NULL, 0, result, n_results)) return false;
  const char *why = branch_misfit(n, first_of_body(&o), result, io_result, n_results);
  if (why)
    return node_fail_as(n, PROBLEM_control_flow,
                        "give the results of both branches one shape, or compute both and select "
                        "with Where",
                        "%s", why);
  // All its ops are of the branch, but constants, which other names may stand for.
  bool *depends = arena_array(im->a, bool, g->n_values);
  for (const Op *op = first_of_body(&o); op; op = op->next)
    depends[op->out[0]->id] = op->kind != OP_constant && op->kind != OP_fill;
  o.body = graph_new(im->m, graph_free_name(im->m, "branch"), false);
  o.of = arena_array(im->a, Value *, g->n_values);
  for (int i = 0; i < n_results; i++)
    graph_param(o.body, NULL, result[i].v->type, ROLE_none, NULL);
  bool ok = outline_ops(&o, depends);
  for (int i = 0; ok && i < n_results; i++) {
    Value *v = inside(&o, result[i].v);
    ok = v != NULL;
    if (ok) graph_output(o.body, v, NULL);
  }
  Value **operand = arena_array(im->a, Value *, n_results + o.invariant.n + 1);
  int n_operands = 0;
  for (int i = 0; i < n_results; i++) {
    const Type *t = result[i].v->type;
    operand[n_operands++] =
        io_result[i].v ? io_result[i].v : build_fill(n->b, t->dtype, t->ndim, t->dim, 0);
  }
  for (int i = 0; i < o.invariant.n; i++)
    operand[n_operands++] = o.invariant.at[i];
  graph_param(o.body, NULL, times->type, ROLE_none, NULL);
  operand[n_operands++] = times;
  const Op *op = NULL;
  if (ok && !n->b->failed)
    op = op_new_calling(
        g, NULL, OP_loop, o.body, operand, n_operands,
        (Attr[]){a_i("count", 1), a_i("carried", n_results), a_i("times", n_operands)}, 3,
        n->b->origin, n->b->d);
  if (!op) {
    graph_erase(o.body);
    n->b->failed = true;
    return false;
  }
  erase_originals(&o, op);
  for (int i = 0; i < n_results; i++)
    io_result[i] = (Binding){.v = op->out[i], .narrow = result[i].narrow};
  return true;
}
