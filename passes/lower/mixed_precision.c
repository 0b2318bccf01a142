// Mixed precision: ops compute in bf16 or f16 if they gain from it, and in f32 if they lose
// accuracy.
//
//     graph @train entry (%x: f32[8,64] input "x", %w: f32[64,96] … train, %b: f32[96] …) {
//       %y  = linear %x, %w               : f32[8,96]
//       %b8 = broadcast %b shape=[8,96]   : f32[8,96]
//       %z  = add %y, %b8                 : f32[8,96]
//       …
//       %dw = linear_back_w %x, %dz       : f32[64,96]
//       %db = reduce_sum %dz axes=[0]     : f32[96]
//       %w1 = sgd %w, %dw, %lr, %c        : f32[64,96]
//
//   =>  mixed_precision(to=bf16)
//
//       %0  = cast %x to=bf16             : bf16[8,64]
//       %1  = cast %w to=bf16             : bf16[64,96]
//       %y  = linear %0, %1               : bf16[8,96]
//       %2  = cast %b to=bf16             : bf16[96]
//       %b8 = broadcast %2 shape=[8,96]   : bf16[8,96]
//       %z  = add %y, %b8                 : bf16[8,96]
//       …
//       %dw = linear_back_w %0, %dz       : f32[64,96]
//       %3  = cast %dz to=f32             : f32[8,96]
//       %db = reduce_sum %3 axes=[0]      : f32[96]
//       %w1 = sgd %w, %dw, %lr, %c        : f32[64,96]
//
// The row of an op decides.  AMP_LOW: operands are cast to 16 bits (contractions, convolutions,
// attention). AMP_F32: operands are cast to f32 (sums, exponentials, squares, the optimizers).  All
// others follow their operands: if one that is not a scalar has 16 bits already, all get 16 bits,
// else f32.  Class S of a row is f32 always: statistics, losses, and the gradients of weights.
//
// Weights and their updates stay f32.  A weight of two or more dimensions is read through one cast
// by all but AMP_F32 ops; one of one dimension, such as a bias, is cast together with its 16-bit
// operand, in a fused kernel.  Of a table with only gathers as readers, the looked-up rows are cast
// instead of the table.  An input is cast if an AMP_LOW op reads it.  Other inputs and their
// readers stay f32: the target of a regression is compared in f32.
//
// A constant beyond the range of f16, such as in masks, becomes the largest finite f16: infinity
// times 0 would be NaN.
//
// A router computes in f32, as in Megatron-LM: the product of scores of which top_k takes the
// largest, all ops between them, and their gradients.  Two scores that differ by less than a
// rounding to 16 bits are equal afterwards, and a rank with other sums before would choose another
// expert.
//
// The body of a loop is lowered by the same rules; its states and results stay f32.  A cast of a
// value that all iterations read, such as a weight, is made once, before the loop.
//
// torch.autocast casts around one call at a time, and leaves an elementwise op in the type to which
// its operands promote.  A residual stream that becomes f32 once stays f32, and each product casts
// it again.  This pass sees the whole step, including backward and embeddings, so the residual
// stream has 16 bits from its start, and each cast is shared by all its readers.

#include <math.h>

#include "ir/analysis/rewrite.h"
#include "ir/loop.h"
#include "ir/op.h"
#include "ir/split.h"
#include "pass.h"

typedef struct Lowering {
  Graph *g;
  Arena *scratch;
  Diag *d;
  DType low;
  uint32_t n_values; // number of original values; casts have ids from here on
  bool *through;     // by value id: f32, and read through a cast to `low`
  Value **narrow;    // by value id: its cast to `low`, or NULL
  Value **wide;      // by value id: its cast to f32, or NULL
  bool *router;      // by op id: computes in f32 for the sake of a choice
  int64_t n_low, n_casts;
} Lowering;

static bool is_f32(const Value *v) {
  return v->type->dtype == DT_f32;
}

// Whether this pass decides the type of operand `i` of `op`.
static bool is_chosen(const Lowering *p, const Op *op, int i) {
  const Value *v = op->in[i].value;
  if (!is_f32(v) && v->type->dtype != p->low) return false;
  char class = op_operand_class(op, i);
  return class == 'F' || class == 'N' || class == 'A';
}

// -- Values read through a cast ----------------------------------------------------------------

static bool is_lookup(const Use *u) {
  return u->user && u->user->kind == OP_gather && u->index == 0;
}

// Whether the value is a table: read only by gathers and AMP_F32 ops, such as an optimizer.
static bool is_table(const Value *v) {
  bool looked_up = false;
  for_each_use(u, v) {
    // Readers that want f32 in any case do not count.
    if (is_lookup(u))
      looked_up = true;
    else if (u->user && !(op_info[u->user->kind].traits & AMP_F32))
      return false;
  }
  return looked_up;
}

static void find_through(Lowering *p) {
  for (int i = 0; i < p->g->n_params; i++) {
    const Value *v = p->g->params[i];
    if (!is_f32(v)) continue;
    if (v->role == ROLE_input) {
      // An input is cast if an AMP_LOW op reads it.
      for_each_use(u, v)
        if (u->user && (op_info[u->user->kind].traits & AMP_LOW) && is_chosen(p, u->user, u->index))
          p->through[v->id] = true;
    }
    if (v->role != ROLE_weight || value_known(v)->ndim < 2) continue;
    p->through[v->id] = !is_table(v);
    if (p->through[v->id]) continue;
    // Of a table the rows are cast, after the lookup.
    for_each_use(u, v)
      if (is_lookup(u)) p->through[u->user->out[0]->id] = true;
  }
}

// -- Routers -----------------------------------------------------------------------------------

static bool is_product_with_weight(const Op *op) {
  if (op->kind != OP_linear) return false;
  const Value *w = op->in[1].value;
  while (w->def && (w->def->kind == OP_reshape || w->def->kind == OP_cast ||
                    w->def->kind == OP_transpose || w->def->kind == OP_slice))
    w = w->def->in[0].value;
  return !w->def && w->role == ROLE_weight;
}

// Whether the op is one of routed experts, or computes integers that such an op reads.
static bool routes_rows(const Op *op, const bool *routes) {
  if (op->kind == OP_expert_slots || op->kind == OP_dispatch || op->kind == OP_grouped_linear)
    return true;
  if (!op->n_out || dtype_class[op->out[0]->type->dtype] != 'I') return false;
  for_each_use(u, op->out[0])
    if (u->user && routes[u->user->id]) return true;
  return false;
}

// Whether the op chooses by its first operand.  An arg_max is also one of the metrics.
static bool is_choice(const Op *op, const bool *routes) {
  return op->kind == OP_top_k || (op->kind == OP_arg_max && routes[op->id]);
}

// Finds the ops from products with weights to choices, and their gradients, which have their
// numbers.
static void find_routers(Lowering *p) {
  int n_ops = (int)p->g->n_ops, n_numbers = 0;
  bool *routes = arena_array(p->scratch, bool, n_ops);
  bool *wanted = arena_array(p->scratch, bool, n_ops); // a choice depends on it
  p->router = arena_array(p->scratch, bool, n_ops);
  for (Op *op = p->g->last; op; op = op->prev) {
    routes[op->id] = routes_rows(op, routes);
    bool choice = is_choice(op, routes);
    n_numbers = op->of > n_numbers ? op->of : n_numbers;
    if (!choice && (!wanted[op->id] || (op_info[op->kind].traits & AMP_LOW))) continue;
    for (int i = 0; i < (choice ? 1 : op->n_in); i++)
      if (op->in[i].value->def) wanted[op->in[i].value->def->id] = true;
  }
  // Of these ops the ones that depend on a product with a weight.
  bool *number = arena_array(p->scratch, bool, n_numbers + 1);
  for_each_op(op, p->g) {
    bool after = is_product_with_weight(op);
    for (int i = 0; i < op->n_in && !(op_info[op->kind].traits & AMP_LOW); i++)
      after |= op->in[i].value->def && p->router[op->in[i].value->def->id];
    p->router[op->id] = wanted[op->id] && after;
    if (p->router[op->id] && op->part == PART_forward) number[op->of] = true;
  }
  for_each_op(op, p->g)
    if (op->part == PART_backward && op->of > 0 && number[op->of]) p->router[op->id] = true;
}

// -- Casts -------------------------------------------------------------------------------------

static double within(double x, DType t) {
  double largest = t == DT_f16 ? 65504 : 0x1.fep127;
  return isfinite(x) && fabs(x) > largest ? copysign(largest, x) : x;
}

// Returns `v`, an original value, as type `to`, by its one cast.
static Value *as_type(Lowering *p, Value *v, DType to, Op *reader) {
  if (v->type->dtype == to) return v;
  Value **made = to == p->low ? &p->narrow[v->id] : &p->wide[v->id];
  if (*made) return *made;
  const Op *op = v->def;
  if (to == p->low && op && (op->kind == OP_broadcast || op->kind == OP_reshape) &&
      op->in[0].value->id < p->n_values) {
    // A view or broadcast is rebuilt on the 16-bit form of its source, so that fewer elements are
    // cast.
    Value *source = as_type(p, op->in[0].value, p->low, reader);
    Builder b = {.g = p->g, .at = reader, .origin = op_origin(op), .d = p->d};
    int n;
    op_attr_specs(op->kind, &n);
    *made = build_op(&b, op->kind, IN(source), (Attrs){op->attrs, n});
    if (*made) return *made;
  }
  // A cast to 16 bits follows the definition of the value, so the f32 value can die early; a cast
  // to f32 precedes its first reader.
  Builder b = {.g = p->g, .at = reader, .d = p->d};
  b.origin = op || !reader ? value_origin(v) : op_origin(reader);
  if (op && to == p->low) b.at = op->next;
  const Type *t = v->type;
  if (op && to == p->low && op->kind == OP_fill)
    return *made = build_fill(&b, to, t->ndim, t->dim, within(attr_f(op, "value"), to));
  if (op && to == p->low && op->kind == OP_constant) {
    // A constant is rounded here, element by element.
    Arena *a = arena_new();
    Tensor from, low = {.type = type_new(p->g->module, to, t->ndim, t->dim)};
    const char *name = str_format(a, "%s as %s", dtype_name[t->dtype], dtype_name[to]);
    // Another copy of the model may have rounded it already.
    if ((*made = build_known_constant(&b, low.type, v, name))) {
      arena_free(a);
      return *made;
    }
    low = tensor_new(a, low.type);
    if (t->dtype == DT_f32 && to == DT_bf16) {
      floats_to_bf16(op_attr(op, "value")->data.at, type_count(t), low.data);
    } else {
      constant_tensor(v, &from, a);
      for (int64_t i = 0, n = type_count(t); i < n; i++)
        tensor_set_f(&low, i, within(tensor_f(&from, i), to));
    }
    *made = build_constant(&b, low.type, low.data);
    if (*made) constant_set_result(v, name, *made);
    arena_free(a);
    return *made;
  }
  p->n_casts++;
  return *made = build_cast(&b, v, to);
}

// -- Ops ---------------------------------------------------------------------------------------

// The type for the operands with a type that this pass decides.
static DType choose(const Lowering *p, const Op *op) {
  int traits = op_info[op->kind].traits;
  if (op->callee || (traits & AMP_F32) || p->router[op->id]) return DT_f32;
  if (traits & AMP_LOW) return p->low;
  // Other ops follow their operands.  Scalars do not count.
  bool any_low = false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (!is_chosen(p, op, i) || v->type->ndim == 0) continue;
    // The readers of an input that stays f32 stay f32.
    if (!v->def && v->role == ROLE_input && !p->through[v->id]) return DT_f32;
    // A table is looked up in f32, and its rows are cast.
    if (op->kind == OP_gather && p->through[op->out[0]->id]) return DT_f32;
    any_low |= v->type->dtype == p->low || p->through[v->id];
  }
  return any_low ? p->low : DT_f32;
}

static bool lower_graph(Lowering *p, Graph *g) {
  graph_renumber(g);
  p->g = g;
  p->n_values = g->n_values;
  p->through = arena_array(p->scratch, bool, g->n_values);
  p->narrow = arena_array(p->scratch, Value *, g->n_values);
  p->wide = arena_array(p->scratch, Value *, g->n_values);
  DType *was = arena_array(p->scratch, DType, g->n_results);
  for (int i = 0; i < g->n_results; i++)
    was[i] = g->results[i]->use.value->type->dtype;
  find_through(p);
  find_routers(p);
  // Casts are inserted before `op`, so the walk skips them.
  for_each_op(op, g) {
    if (op->kind == OP_cast || op->n_in == 0) continue; // its type is explicit
    DType to = choose(p, op);
    for (int i = 0; i < op->n_in; i++) {
      Value *v = op->in[i].value;
      // A loop reads the types of its body, which was lowered before.
      if (op->kind == OP_loop) to = op->callee->params[i]->type->dtype;
      // Operands of class S are read in f32 in any case.
      bool sum = v->type->dtype == p->low && op_operand_class(op, i) == 'S';
      if (!sum && !is_chosen(p, op, i)) continue;
      Value *by = as_type(p, v, sum ? DT_f32 : to, op);
      if (!by) return false;
      if (by != v) op_set_in(op, i, by);
    }
    if (!op_retype(op, p->d)) return false;
    p->n_low += op->n_out > 0 && op->out[0]->type->dtype == p->low;
  }
  // Results of the graph keep their types.
  for (int i = 0; i < g->n_results; i++) {
    Value *v = as_type(p, g->results[i]->use.value, was[i], NULL);
    if (!v) return false;
    if (v != g->results[i]->use.value) graph_set_result(g, i, v);
  }
  drop_dead(g); // f32 constants that are now only read in 16 bits
  return true;
}

// -- Loops -------------------------------------------------------------------------------------

// Lets the caller cast a value of all iterations that the body casts to 16 bits.
static bool hoist_casts(Lowering *p, Op *loop, Graph *body, Value **in, int *n_in) {
  LoopForm f = loop_form(loop);
  for_each_op_safe(op, body) {
    const Value *v = op->kind == OP_cast ? op->in[0].value : NULL;
    if (!v || v->def || v->index < f.carried + f.sliced || op->out[0]->type->dtype != p->low)
      continue;
    Builder b = {.g = loop->graph, .at = loop, .origin = op_origin(loop), .d = p->d};
    in[*n_in] = build_cast(&b, in[v->index], p->low);
    if (!in[*n_in]) return false;
    ++*n_in;
    Value *by = graph_param(body, NULL, op->out[0]->type, ROLE_none, NULL);
    value_replace(op->out[0], by);
    op_erase(op);
    p->n_casts--;
  }
  return true;
}

// Lowers the bodies of the loops of a graph.  States, slices and sums keep their types.
static bool lower_loops(Lowering *p, Graph *g) {
  for_each_op_safe(op, g) {
    if (op->kind != OP_loop) continue;
    Graph *body = graph_clone(op->callee, graph_free_name(g->module, op->callee->name));
    graph_renumber(body);
    if (!lower_loops(p, body) || !lower_graph(p, body)) return false;
    int *result = arena_array(p->scratch, int, op->n_out), n_in = op->n_in;
    Value **in = arena_array(p->scratch, Value *, op->n_in + body->n_ops);
    for (int i = 0; i < op->n_in; i++)
      in[i] = op->in[i].value;
    for (int i = 0; i < op->n_out; i++)
      result[i] = i;
    if (!hoist_casts(p, op, body, in, &n_in)) return false;
    graph_renumber(body);
    Op *lowered = loop_replace(op, body, in, n_in, loop_form(op), result, p->d);
    bool changed = false; // the body does not read its uncast operands
    if (!lowered || !simplify_loop(lowered, p->d, &changed)) return false;
  }
  graph_renumber(g);
  return true;
}

bool pass_mixed_precision(Module *m, const PassOptions *o, Diag *d) {
  Lowering p = {.scratch = opt_scratch(o), .d = d};
  const char *to = opt_str(o, "to");
  if (!to || !dtype_parse(to, &p.low) || (p.low != DT_bf16 && p.low != DT_f16)) {
    if (to)
      diag_error(d, NULL, "cannot lower to '%s'", to);
    else
      diag_error(d, NULL, "'mixed_precision' wants a type");
    diag_hint(d, "to=bf16 or to=f16");
    return false;
  }
  for_each_graph(g, m)
    if (g->entry && (!lower_loops(&p, g) || !lower_graph(&p, g))) return false;
  opt_stat(o, p.n_low, "ops in 16 bits");
  opt_stat(o, p.n_casts, "casts");
  return true;
}
