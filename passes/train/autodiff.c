// Automatic differentiation: the gradient of the loss by every trainable weight.
//
//     %y = linear %x, %w : f32[8,6]               %y = linear %x, %w     : f32[8,6]
//     …                                           …
//     return output "loss" %l              =>     %1 = linear_back_w %x, %dy : f32[4,6]
//                                                 return output "loss" %l,
//                                                        output "grad:w" %1
//
// A reverse sweep goes through the ops from the last to the first.  When it reaches an op, all
// readers of its results are done, so the adjoints of its results are complete; the `grad` of its
// row gives those of its operands.  An op takes part if it depends on a trainable weight and the
// loss depends on it, both through ops that have a derivative.  Dead results of gradient functions,
// such as the adjoint of an input, are erased at the end.
//
// A loss that is divided by a count of the data, as with ignored labels, is
//
//     loss = f * s        s: a sum over rows, f: does not depend on the weights
//
// and its gradient is f * ds.  The sweep starts at s with 1 and every gradient is multiplied by f
// at its end.  So the backward pass does not read f, which is known after the last micro-batch
// only: gradients are summed over micro-batches first and divided then.  optimizer.c takes the
// factor off again and gives it to the update.  A loss without such a form, such as the sum of two
// that are divided by different counts, reads f during backward.  That is correct for a whole
// batch, but comm.c refuses to split it.
//
// Gradients may be too small for f16, so with scale=S the loss's adjoint is multiplied by the state
// `loss_scale`, initially S, and the gradients are divided by it at their end: one more part of the
// common factor.
//
//     %0 = scale %loss_scale by=0.125             the adjoint that the sweep starts with
//     …
//     %9 = mul %8, (reciprocal %loss_scale)       output "grad:w"
//
// optimizer.c chooses the next scale.  A sum of N losses with a count that is not known yet starts
// with the adjoint of their mean, 1/N of the sum's, and its factor is N times as large: the
// adjoints of a sum would leave the range of f16 at once.
//
// In a model in pieces (planner/lua/pieces.h) each piece of an op has a gradient for the weight
// that it reads.  The gradients of all pieces of one op are added up first, and then the sums: ops
// that read one weight may be on different ranks, as both ends of a pipeline are, and a sum over
// all would go from one to the other and back for every piece.
//
//     %1 = linear_back_w …  piece=2               %1 = linear_back_w …  piece=2
//     %2 = gather_back …    piece=2               %2 = gather_back …    piece=2
//     %3 = add %1, %2                      not    %3 = linear_back_w …  piece=1
//     %4 = linear_back_w …  piece=1               %4 = add %1, %3
//     %5 = add %3, %4                             %5 = gather_back …    piece=1
//     %6 = gather_back …    piece=1               %6 = add %2, %5
//     %7 = add %5, %6                             %7 = add %4, %6
//
// Weights without a gradient lose their `train`.
//
// With detach=GLOB, results of nodes with such names count as constants, and no gradient goes back
// through them: a model that recycles, as AlphaFold does, takes the result of one forward into the
// next and trains the last one.  Of plain exports only torch.export's have x.detach() of the
// program, as op `detach`, which is erased after the gradients are made.

#include <string.h>

#include "base/problem.h"
#include "base/table.h"
#include "base/vec.h"
#include "ir/analysis/gradient_path.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "loop_states.h"
#include "loss_terms.h"
#include "pass.h"
#include "trained.h"

// The sum of the gradients for a weight by all pieces of one op of the model.
typedef struct OpSum {
  OpKind kind;
  int operand, nth; // index of similar readers in a piece; all pieces have the same order
  Value *sum;
  int n;         // summed gradients
  Origin origin; // of the last of them
  struct OpSum *next;
} OpSum;

typedef struct Autodiff {
  Graph *g;
  Arena *arena, *scratch; // of the module, of the pass
  Diag *d;
  uint32_t n_values; // of the forward part
  GradientPath path; // of the forward part
  bool *asked;       // [n_values] --train names the weight
  Value **adjoint;   // [n_values] of this sweep, or NULL
  OpSum **op_sums;   // [n_values] of weights: still to be added to their adjoints
  Value **gradient;  // [n_values] of weights, by all sweeps so far, or NULL
  bool failed;
} Autodiff;

static bool is_floating(const Value *v) {
  return dtype_class[v->type->dtype] == 'F';
}

static GradFn *grad_of(const Op *op) {
  return op_info[op->kind].grad;
}

static bool takes_part(const Autodiff *ad, const Op *op) {
  return gradient_path_has(&ad->path, op);
}

// Reports all ops without a gradient at once.
static bool check_gradients(Autodiff *ad) {
  ProblemList problems = {.arena = ad->scratch};
  for_each_op(op, ad->g) {
    if (takes_part(ad, op) && grad_of(op) == no_grad)
      problem_add(&problems, gradient_problem(op, ad->scratch));
  }
  return problems_report(&problems, 0, ad->d);
}

// Takes ops out of their recompute groups that are detached, or that depend on trained weights and
// get no gradient: they only lead to detached values. Backward reads such a value as an input of
// the part with gradients, which is saved; to recompute it would be another forward.
static void save_detached(const Autodiff *ad) {
  for_each_op(op, ad->g) {
    bool varied = false, useful = false;
    for (int i = 0; i < op->n_out; i++) {
      varied |= ad->path.varied[op->out[i]->id];
      useful |= ad->path.useful[op->out[i]->id];
    }
    bool detached = ad->path.detached && ad->path.detached[op->id];
    if (detached || (varied && !useful)) op->recompute_group = 0;
  }
}

static Origin origin_of_gradient(const Autodiff *ad, Origin of) {
  of.loc = loc_from(ad->arena, of.loc, "gradient");
  of.part = PART_backward;
  of.recompute_group = of.offload_group = 0;
  of.by_piece = false;
  return of;
}

// -- The sweep -------------------------------------------------------------------------------

static void add_adjoint(Autodiff *ad, Builder *b, const Op *op, int operand, Value *adjoint) {
  const Value *v = op->in[operand].value;
  if (!adjoint || !ad->path.varied[v->id] || !ad->path.useful[v->id]) return;
  if (adjoint->type != v->type)
    BUG("the gradient of %s gives %s for an operand of %s", op_info[adjoint->def->kind].name,
        type_text(ad->scratch, adjoint->type), type_text(ad->scratch, v->type));
  if (op->piece && !v->def) {
    // The gradients of all pieces of one op have a sum of their own.  `nth` is the number of
    // similar readers before this one in its piece.
    int nth = 0;
    for_each_use(u, v) {
      const Op *user = u->user;
      nth += user && user->part == PART_forward && user->piece == op->piece &&
             user->kind == op->kind && u->index == operand && user->id < op->id;
    }
    OpSum **at = &ad->op_sums[v->id];
    while (*at && ((*at)->kind != op->kind || (*at)->operand != operand || (*at)->nth != nth))
      at = &(*at)->next;
    if (!*at) {
      *at = arena_one(ad->scratch, OpSum);
      **at = (OpSum){.kind = op->kind, .operand = operand, .nth = nth};
    }
    (*at)->sum = build_add(b, (*at)->sum, adjoint);
    (*at)->origin = b->origin;
    (*at)->n++;
  } else {
    ad->adjoint[v->id] = build_add(b, ad->adjoint[v->id], adjoint);
  }
}

static void sweep_op(Autodiff *ad, Op *op) {
  Builder b = {.g = ad->g, .d = ad->d, .origin = origin_of_gradient(ad, op_origin(op))};
  Value **dout = arena_array(ad->scratch, Value *, op->n_out);
  Value **din = arena_array(ad->scratch, Value *, op->n_in);
  bool any = false;
  for (int i = 0; i < op->n_out; i++)
    any |= (dout[i] = ad->adjoint[op->out[i]->id]) != NULL;
  if (!any) return;
  // Gradients may rely on the adjoint of the first result: zeros if only others have one.
  if (!dout[0]) {
    const Type *t = op->out[0]->type;
    dout[0] = build_fill(&b, t->dtype, t->ndim, t->dim, 0);
  }
  int errors = diag_errors(ad->d);
  if (!grad_of(op)(&b, op, dout, din) || b.failed) {
    if (diag_errors(ad->d) == errors)
      BUG("the gradient of %s failed without a word", op_info[op->kind].name);
    ad->failed = true;
    return;
  }
  for (int i = 0; i < op->n_in; i++)
    add_adjoint(ad, &b, op, i, din[i]);
  ad->failed |= b.failed;
}

// -- The end ---------------------------------------------------------------------------------

static int add_outputs(Autodiff *ad, Builder *b) {
  int n = 0;
  // The table finds labels that outputs have already.
  Table *outputs = table_new(ad->arena);
  for (int i = 0; i < ad->g->n_results; i++)
    if (ad->g->results[i]->label)
      table_add(outputs, 0, ad->g->results[i]->label, ad->g->results[i]);
  for (int i = 0; i < ad->g->n_params; i++) {
    Value *w = ad->g->params[i];
    if (!w->train) continue;
    // A weight that does not reach the loss is no longer trained.
    Value *gradient = ad->gradient[w->id];
    w->train = gradient != NULL;
    if (!gradient && ad->asked[w->id]) {
      diag_doubt(ad->d, PROBLEM_no_gradient, w->loc,
                 "--train: no gradient reaches '%s', so it stays as it is", w->label);
      diag_hint(ad->d,
                "the loss does not depend on it, or only by ops that stop the gradient, such "
                "as comparisons, indices and --detach");
    }
    if (!gradient) continue;
    const char *label = str_format(ad->arena, "grad:%s", w->label);
    if (table_add(outputs, 0, label, w)) {
      b->failed = !diag_error(ad->d, w->loc, "there is a gradient '%s' already", label);
      return n;
    }
    graph_output(ad->g, gradient, label);
    n++;
  }
  return n;
}

static Value *loss_scale(Autodiff *ad, double first) {
  Value *v = graph_param(ad->g, "loss_scale", type_scalar(ad->g->module, DT_f32), ROLE_state, NULL);
  v->label = "loss_scale";
  v->init = init_fill(ad->g->module, DT_f32, first);
  return v;
}

// The largest number of summands among the terms with this factor.
static double most_summed(const LossTerms *terms, const Value *factor) {
  int64_t most = 1;
  for (int i = 0; i < terms->n; i++) {
    const Op *op = terms->at[i].start->def;
    if (terms->at[i].factor != factor || !op || op->kind != OP_reduce_sum) continue;
    int64_t n = type_count(op->in[0].value->type) / type_count(op->out[0]->type);
    if (n > most) most = n;
  }
  return (double)most;
}

// Runs one sweep from the starts of the terms with the factor of `only`, or of all terms (NULL),
// which then read their factors.  `update`: products with the factor come after the last
// micro-batch.
static void sweep(Autodiff *ad, Builder *b, Op *last, const LossTerms *terms, Value *scale,
                  const LossTerm *only, bool update) {
  memset(ad->adjoint, 0, ad->n_values * sizeof *ad->adjoint);
  memset(ad->op_sums, 0, ad->n_values * sizeof *ad->op_sums);
  Value *factor = only ? only->factor : NULL;
  double n = scale && factor ? most_summed(terms, factor) : 1;
  for (int i = 0; i < terms->n && !b->failed; i++) {
    LossTerm t = terms->at[i];
    if (only && t.factor != factor) continue;
    t.by /= n;
    // The sweep starts with `by`, times the loss scale, times the factor if backward reads it.
    const Type *type = t.start->type;
    Value *read = only ? NULL : t.factor, *start;
    if (!scale && !read) {
      start = build_fill(b, type->dtype, type->ndim, type->dim, t.by);
    } else {
      start = build_cast(b, build_scale(b, scale ? scale : read, t.by), type->dtype);
      if (scale && read)
        start = build_op(b, OP_mul, IN(start, build_cast(b, read, type->dtype)), NO_ATTRS);
      start = build_broadcast(b, start, type->ndim, type->dim);
    }
    Value **adjoint = &ad->adjoint[t.start->id];
    *adjoint = build_add(b, *adjoint, start);
  }
  if (n > 1) factor = build_scale(b, factor, n);
  // The end of a gradient undoes the scale.
  if (scale && !factor)
    factor = build_op(b, OP_reciprocal, IN(scale), NO_ATTRS);
  else if (scale)
    factor = build_op(b, OP_div, IN(factor, build_cast(b, scale, factor->type->dtype)), NO_ATTRS);
  for (Op *op = last; op && !ad->failed && !b->failed; op = op->prev)
    if (takes_part(ad, op)) sweep_op(ad, op);
  for (int i = 0; i < ad->g->n_params && !ad->failed && !b->failed; i++) {
    const Value *w = ad->g->params[i];
    if (!w->train) continue;
    // The sums of ops are part of the weight's adjoint.  A sum that is sent to another rank moves
    // to the end: earlier it would delay transfers that backward waits for there.
    Value **adjoint = &ad->adjoint[w->id];
    const OpSum *first = ad->op_sums[w->id];
    bool alone = !*adjoint && first && !first->next;
    for (const OpSum *s = first; s && !alone; s = s->next)
      if (s->n > 1) op_move_before(s->sum->def, NULL);
    for (const OpSum *s = first; s && !b->failed; s = s->next) {
      b->origin = s->origin;
      *adjoint = build_add(b, *adjoint, s->sum);
    }
    if (!ad->adjoint[w->id]) continue;
    b->origin = origin_of_gradient(ad, value_origin(w));
    if (update) b->origin.part = PART_update;
    Value *gradient = ad->adjoint[w->id];
    if (factor) {
      const Type *t = gradient->type;
      Value *all = build_broadcast(b, build_cast(b, factor, t->dtype), t->ndim, t->dim);
      gradient = build_op(b, OP_mul, IN(gradient, all), NO_ATTRS);
    }
    ad->gradient[w->id] = build_add(b, ad->gradient[w->id], gradient);
  }
}

static bool differentiate(Autodiff *ad, Value *loss, const PassOptions *o) {
  Op *last = ad->g->last;
  number_model(ad->g);
  Origin origin = origin_of_gradient(ad, value_origin(loss));
  Builder b = {.g = ad->g, .d = ad->d, .origin = origin};
  double by = opt_float(o, "scale", 0);
  // The scale is in the range of optimizer.c, and its state is new.
  if (!(by >= 0 && by <= 0x1p24))
    return diag_error(ad->d, NULL, "the loss cannot be scaled by %g", by);
  if (by > 0 && graph_find_param(ad->g, "loss_scale"))
    return diag_error(ad->d, NULL, "'@%s' has a 'loss_scale' already", ad->g->name);

  LossTerms terms = find_loss_terms(&b, loss, ad->path.varied, ad->scratch);
  // Terms that depend on no trained weight have no gradient.
  int n_varied = 0;
  for (int i = 0; i < terms.n; i++)
    if (ad->path.varied[terms.at[i].start->id]) terms.at[n_varied++] = terms.at[i];
  terms.n = n_varied;
  // With one common factor there is one sweep, and the factor comes at its end.  With several, each
  // has its own sweep if `apart` asks for it; otherwise one sweep reads them all on the way.
  int n_factors = 0;
  for (int i = 0; i < terms.n; i++)
    n_factors += is_first_of_factor(&terms, i);
  Value *scale = by > 0 ? loss_scale(ad, by) : NULL;
  bool apart = n_factors > 1 && opt_bool(o, "apart", false);
  bool each = n_factors == 1 || apart;
  for (int i = 0; i < terms.n; i++) {
    b.origin = origin;
    if (each ? is_first_of_factor(&terms, i) : i == 0)
      sweep(ad, &b, last, &terms, scale, each ? &terms.at[i] : NULL, apart);
  }
  // Beyond this point gradients are outputs, so ops without readers are dead.
  if (ad->failed || b.failed) return false;
  int n = add_outputs(ad, &b);
  if (b.failed) return false;
  if (n == 0) {
    diag_problem(ad->d, PROBLEM_no_path, origin.loc, "no trainable weight reaches the loss");
    diag_hint(ad->d, "look at --freeze, and at which output the loss is made of");
    return false;
  }
  // Ops of gradients without readers are dead.
  for (Op *op = ad->g->last, *prev; op != last; op = prev) {
    prev = op->prev;
    bool used = false;
    for (int i = 0; i < op->n_out; i++)
      used |= value_used(op->out[i]);
    if (!used) op_erase(op);
  }
  // The op detach has no effect after the sweep.
  for_each_graph(g, ad->g->module) {
    for (Op *op = g->last, *prev; op; op = prev) {
      prev = op->prev;
      if (op->kind != OP_detach) continue;
      value_replace(op->out[0], op->in[0].value);
      op_erase(op);
    }
  }
  opt_stat(o, n, "gradients");
  if (apart) opt_stat(o, n_factors, "sweeps, for counts of their own");
  return true;
}

bool pass_autodiff(Module *m, const PassOptions *o, Diag *d) {
  Graph *g = graph_find(m, "train");
  if (!g) g = m->graphs;
  const Result *loss = graph_find_output(g, "loss");
  if (!loss) {
    diag_error(d, NULL, "'@%s' has no output 'loss'", g->name);
    diag_hint(d, "run 'loss' before 'autodiff'");
    return false;
  }
  if (loss->use.value->type->ndim != 0 || !is_floating(loss->use.value))
    return diag_error(d, NULL, "the loss is %s and not a floating-point number",
                      type_text(opt_scratch(o), loss->use.value->type));
  if (!loops_save_states(g, d)) return false;
  // Arrays are indexed by id: values of the forward pass have ids below n_values.
  graph_renumber(g);
  Autodiff ad = {.g = g, .arena = m->arena, .scratch = opt_scratch(o), .d = d};
  ad.n_values = g->n_values;
  ad.path.varied = arena_array(ad.scratch, bool, g->n_values);
  ad.path.useful = arena_array(ad.scratch, bool, g->n_values);
  ad.adjoint = arena_array(ad.scratch, Value *, g->n_values);
  ad.op_sums = arena_array(ad.scratch, OpSum *, g->n_values);
  ad.gradient = arena_array(ad.scratch, Value *, g->n_values);
  // The sources of `varied` are the trained weights; detached ops cut it off.
  ad.asked = choose_trained(g, opt_str(o, "freeze"), ad.scratch, d);
  for (int i = 0; i < g->n_params; i++)
    ad.path.varied[g->params[i]->id] = g->params[i]->train;
  bool *detached;
  if (!find_detached(g, opt_str(o, "detach"), ad.scratch, &detached, d)) return false;
  ad.path.detached = detached;
  ad.path.useful[loss->use.value->id] = true;
  gradient_path_mark(g, &ad.path);
  save_detached(&ad);
  // Gradients may report forms that they lack.
  ProblemKind kind = diag_kind(d, PROBLEM_gradient);
  bool ok = check_gradients(&ad) && differentiate(&ad, loss->use.value, o);
  diag_kind(d, kind);
  return ok;
}
