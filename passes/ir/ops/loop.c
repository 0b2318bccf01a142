// Loops: see ir/loop.h.
//
// The gradient of a loop is a loop in the other direction.  Its states are the adjoints of the
// states.  It gets the slices of the operands, the states before each iteration, which the forward
// loop has stacked for it (train/loop_states.c), and the slices of the adjoints; it repeats the
// body and differentiates it.  Adjoints of values that all iterations read are sums.
//
//     %s1, %y, %all = loop @cell %s0, %x, %w                          %all: the state before each iteration
//     %ds0, %dx, %dw = loop @cell.grad %ds1, %all, %x, %dy, %w reverse=true carried=1 sliced=3 summed=1

#include "ir/loop.h"

#include <string.h>

#include "ir/collective.h"
#include "ir/ops/einsum.h"
#include "ir/ops/graphs.h"
#include "ir/split.h"

LoopForm loop_form(const Op *op) {
  LoopForm f = {.count = attr_i(op, "count"),
                .carried = (int)attr_i(op, "carried"),
                .sliced = (int)attr_i(op, "sliced"),
                .summed = (int)attr_i(op, "summed"),
                .workspace = attr_i(op, "workspace"),
                .times = (int)attr_i(op, "times"),
                .reverse = attr_i(op, "reverse") != 0};
  f.invariant = op->n_in - f.carried - f.sliced;
  f.stacked = op->callee->n_results - f.carried - f.summed;
  return f;
}

// -- Types -------------------------------------------------------------------------------------

// Whether the attributes fit the operands and the body.
static bool check_form(const Op *op, Diag *d) {
  const Graph *body = op->callee;
  static const char *const names[] = {"carried", "sliced", "summed", "times", "workspace"};
  for (int i = 0; i < 5; i++) {
    int64_t n = attr_i(op, names[i]);
    if (n < 0 || n > INT32_MAX / 4)
      return diag_error(d, op->loc, "loop: %s=%lld is not a number of values", names[i],
                        (long long)n);
  }
  if (attr_i(op, "count") < 1)
    return diag_error(d, op->loc, "loop: it runs %lld times, and must run at least once",
                      (long long)attr_i(op, "count"));
  if (body->n_results == 0) return diag_error(d, op->loc, "loop: '@%s' has no results", body->name);
  if (op->n_in != body->n_params)
    return diag_error(d, op->loc, "loop: '@%s' takes %d operands, not %d", body->name,
                      body->n_params, op->n_in);
  LoopForm f = loop_form(op);
  if (f.invariant < 0)
    return diag_error(d, op->loc, "loop: %d states and %d sliced operands are more than %d",
                      f.carried, f.sliced, op->n_in);
  if (f.stacked < 0)
    return diag_error(d, op->loc,
                      "loop: %d states and %d sums are more than the %d results of '@%s'",
                      f.carried, f.summed, body->n_results, body->name);
  const Type *times = f.times && f.times <= op->n_in ? op->in[f.times - 1].value->type : NULL;
  if (f.times &&
      (!times || f.times <= f.carried + f.sliced || times->dtype != DT_i64 || times->ndim))
    return diag_error(
        d, op->loc,
        "loop: times=%d is not the number of an operand of i64[] that all iterations read",
        f.times);
  bool workspace = attr_i(op, "workspace") > 0;
  if (op->n_out != body->n_results + workspace)
    return diag_error(d, op->loc, "loop: '@%s' has %d results, not %d", body->name, body->n_results,
                      op->n_out - workspace);
  // A random op would draw the same numbers in every iteration, @eval could not replace a batch
  // normalisation in training, and ranks do not meet in a body.
  for_each_op(inner, body)
    if (op_draws(inner->kind) || inner->kind == OP_batch_norm_train ||
        (op_info[inner->kind].traits & (COMM | ACCUMULATES)))
      return diag_error(d, op->loc, "loop: %s cannot run in a loop, and '@%s' has one",
                        op_info[inner->kind].name, body->name);
  return true;
}

static bool wrong_operand(const Op *op, int i, bool sliced, Diag *d) {
  Arena *a = arena_new();
  const char *want = type_text(a, op->callee->params[i]->type),
             *is = type_text(a, op->in[i].value->type);
  if (sliced)
    diag_error(d, op->loc, "loop: operand %d has no %lld slices of %s for '@%s': it is %s", i,
               (long long)attr_i(op, "count"), want, op->callee->name, is);
  else
    diag_error(d, op->loc, "loop: operand %d of '@%s' is %s, not %s", i, op->callee->name, want,
               is);
  op_note_operand(op, i, d);
  arena_free(a);
  return false;
}

static bool is_slice_of(const Type *slice, const Type *t, int64_t count) {
  return t->ndim == slice->ndim + 1 && t->dtype == slice->dtype && t->dim[0] == count &&
         !memcmp(t->dim + 1, slice->dim, (size_t)slice->ndim * sizeof *t->dim);
}

bool loop_infer(const Op *op, const Type **types, Diag *d) {
  if (!check_form(op, d)) return false;
  const Graph *body = op->callee;
  Module *m = op->graph->module;
  LoopForm f = loop_form(op);
  for (int i = 0; i < op->n_in; i++) {
    const Type *t = op->in[i].value->type, *want = body->params[i]->type;
    bool sliced = i >= f.carried && i < f.carried + f.sliced;
    if (sliced ? !is_slice_of(want, t, f.count) : t != want) return wrong_operand(op, i, sliced, d);
  }
  for (int i = 0; i < body->n_results; i++) {
    const Type *t = body->results[i]->use.value->type;
    types[i] = t;
    if (i < f.carried && t != body->params[i]->type) {
      Arena *a = arena_new();
      diag_error(d, op->loc, "loop: state %d is %s before an iteration and %s after it", i,
                 type_text(a, body->params[i]->type), type_text(a, t));
      arena_free(a);
      return false;
    }
    if (i >= f.carried + f.stacked && !ranks_add(t->dtype))
      return diag_error(d, op->loc, "loop: result %d of '@%s' is summed, and is %s", i, body->name,
                        dtype_name[t->dtype]);
    if (i < f.carried || i >= f.carried + f.stacked) continue;
    int64_t dim[MAX_NDIM] = {f.count};
    memcpy(dim + 1, t->dim, (size_t)(t->ndim < MAX_NDIM ? t->ndim : 0) * sizeof *dim);
    if (t->ndim == MAX_NDIM || !type_fits(t->dtype, t->ndim + 1, dim))
      return diag_error(d, op->loc, "loop: %lld slices of result %d of '@%s' are too large",
                        (long long)f.count, i, body->name);
    types[i] = type_new(m, t->dtype, t->ndim + 1, dim);
  }
  int64_t bytes = attr_i(op, "workspace");
  if (bytes > 0) types[body->n_results] = type_new(m, DT_u8, 1, &bytes);
  return true;
}

// -- Classes of dimensions ---------------------------------------------------------------------

enum { SPLITTABLE = 26, LETTERS = 52 };

// The dimensions of the values of a body, in classes.
typedef struct Classes {
  const Graph *g;
  const Dims **dims; // by op id
  int *base;         // by value id: the number of its dimension 0
  int *parent;       // by number: towards the one that stands for the class
  bool *whole;       // by number: the class of which it stands must not be split
  int n;
  bool *seen;    // by number: of one class, in the order of the loop's operands and results
  bool *partial; // by value id, of one class
} Classes;

static int class_of(const Classes *c, int k) {
  while (c->parent[k] != k)
    k = c->parent[k] = c->parent[c->parent[k]];
  return k;
}

static int class_at(const Classes *c, const Value *v, int dim) {
  return class_of(c, c->base[v->id] + dim);
}

static void unite(Classes *c, int a, int b) {
  a = class_of(c, a);
  b = class_of(c, b);
  c->whole[a] |= c->whole[b];
  c->parent[b] = a;
}

// Unites the dimensions of a term with those of other terms that have the same letters.
static void unite_term(Classes *c, const Dims *dims, const Term *t, const Value *v, int *first) {
  for (int k = 0; k < t->ndim; k++) {
    int at = c->base[v->id] + k, splitter = -1;
    for (int f = 0; f < t->dim[k].n && splitter < 0; f++)
      if (dims->letter[t->dim[k].letter[f]].size != 1) splitter = t->dim[k].letter[f];
    // A product of several letters has no shards of its own length.
    bool whole = splitter < 0 || dims->letter[splitter].whole || !dims_leads(dims, splitter) ||
                 dims->letter[splitter].size != v->type->dim[k];
    if (whole) c->whole[class_of(c, at)] = true;
    if (splitter < 0) continue;
    if (first[splitter] < 0)
      first[splitter] = at;
    else
      unite(c, first[splitter], at);
  }
}

static bool find_classes(Classes *c, const Op *op, LoopForm f, Arena *a, Diag *d) {
  const Graph *g = c->g = op->callee;
  c->dims = arena_array(a, const Dims *, g->n_ops);
  c->base = arena_array(a, int, g->n_values);
  c->partial = arena_array(a, bool, g->n_values);
  for (int i = 0; i < g->n_params; i++) {
    c->base[g->params[i]->id] = c->n;
    c->n += g->params[i]->type->ndim;
  }
  for_each_op(inner, g)
    for (int i = 0; i < inner->n_out; i++) {
      c->base[inner->out[i]->id] = c->n;
      c->n += inner->out[i]->type->ndim;
    }
  c->parent = arena_array(a, int, c->n);
  c->whole = arena_array(a, bool, c->n);
  for (int i = 0; i < c->n; i++)
    c->parent[i] = i;
  for_each_op(inner, g) {
    const Dims *dims = c->dims[inner->id] = op_dims_kept(inner, a, d);
    if (!dims) return false;
    int first[MAX_LETTERS];
    for (int i = 0; i < dims->n_letters; i++)
      first[i] = -1;
    for (int i = 0; i < inner->n_in; i++)
      unite_term(c, dims, &dims->in[i], inner->in[i].value, first);
    for (int i = 0; i < inner->n_out; i++)
      unite_term(c, dims, &dims->out[i], inner->out[i], first);
  }
  for (int i = 0; i < f.carried; i++)
    for (int k = 0; k < g->params[i]->type->ndim; k++)
      unite(c, c->base[g->params[i]->id] + k, c->base[g->results[i]->use.value->id] + k);
  return true;
}

// The dimension of a value that is of the class; -1: none; -2: several.
static int dim_in(const Classes *c, const Value *v, int class) {
  int at = -1;
  for (int k = 0; k < v->type->ndim; k++)
    if (class_at(c, v, k) == class) at = at == -1 ? k : -2;
  return at;
}

// The letter of an op that is of the class; -1: none; -2: several.
static int letter_in_class(const Classes *c, const Op *op, int class) {
  const Dims *dims = c->dims[op->id];
  int letter = -1;
  for (int i = 0; i < op->n_in + op->n_out; i++) {
    bool in = i < op->n_in;
    const Value *v = in ? op->in[i].value : op->out[i - op->n_in];
    const Term *t = in ? &dims->in[i] : &dims->out[i - op->n_in];
    int dim = dim_in(c, v, class);
    if (dim == -2) return -2;
    for (int f = 0; dim >= 0 && f < t->dim[dim].n; f++) {
      int of = t->dim[dim].letter[f];
      if (dims->letter[of].size == 1) continue;
      if (letter >= 0 && letter != of) return -2;
      letter = of;
    }
  }
  return letter;
}

// The split of an op along the class: a letter, SPLIT_PARTIAL, SPLIT_NONE; -1 if it cannot be
// split. Sets which results are partial sums.
static int split_of(Classes *c, const Op *op, int class) {
  int letter = letter_in_class(c, op, class), partial = 0, last = 0;
  if (letter == -2) return -1;
  for (int i = 0; i < op->n_in; i++) {
    if (!c->partial[op->in[i].value->id]) continue;
    partial++;
    last = i;
  }
  if (letter >= 0 && partial) return -1;
  if (letter < 0 && partial && !op_passes_sums(op, partial, last)) return -1;
  for (int i = 0; i < op->n_out; i++) {
    const Value *v = op->out[i];
    bool is = letter >= 0 ? dim_in(c, v, class) < 0 : partial > 0;
    // Shares of other types cannot be added.
    if (is && !ranks_add(v->type->dtype)) return -1;
    c->partial[v->id] = is;
  }
  return letter >= 0 ? c->dims[op->id]->letter[letter].name : partial ? SPLIT_PARTIAL : SPLIT_NONE;
}

// Whether the loop can be split along the class.
static bool may_split(Classes *c, LoopForm f, int class) {
  const Graph *g = c->g;
  memset(c->partial, 0, g->n_values * sizeof *c->partial);
  for (int i = 0; i < g->n_params; i++)
    if (dim_in(c, g->params[i], class) == -2) return false;
  for_each_op(op, g)
    if (split_of(c, op, class) < 0) return false;
  for (int i = 0; i < g->n_results; i++) {
    const Value *v = g->results[i]->use.value;
    int dim = dim_in(c, v, class);
    // The einsum of the loop has no word for a result that all ranks have: a result that is not
    // split is a partial sum.  A state has the layout of the state before.
    bool fits = i < f.carried ? dim >= 0 && dim_in(c, g->params[i], class) == dim
                              : dim >= 0 || c->partial[v->id];
    if (!fits) return false;
  }
  return true;
}

// Names the classes of the operands and results that can be split: letter[class] is 'a', 'b', … in
// their order, or 0.  Returns their number.
static int name_classes(Classes *c, LoopForm f, char *letter) {
  const Graph *g = c->g;
  int n = 0;
  for (int i = 0; i < g->n_params + g->n_results; i++) {
    const Value *v = i < g->n_params ? g->params[i] : g->results[i - g->n_params]->use.value;
    for (int k = 0; k < v->type->ndim; k++) {
      int class = class_at(c, v, k);
      if (c->whole[class] || letter[class]) continue;
      // Only the first classes have letters, if there are very many.
      if (n < SPLITTABLE && may_split(c, f, class))
        letter[class] = (char)('a' + n++);
      else
        c->whole[class] = true;
    }
  }
  return n;
}

// -- The einsum --------------------------------------------------------------------------------

// Letters of lengths that cannot be split, from 'A' on.
typedef struct Lengths {
  int64_t at[LETTERS];
  int n, most;
} Lengths;

static char length_letter(int i) {
  return (char)(i < 26 ? 'A' + i : 'z' - (i - 26));
}

static bool add_length(Einsum *e, Lengths *l, int64_t length) {
  int i = 0;
  while (i < l->n && l->at[i] != length)
    i++;
  if (i == l->most) return false;
  if (i == l->n) l->at[l->n++] = length;
  einsum_add(e, " %c^", length_letter(i));
  return true;
}

// Adds the term of a value of the body, after a dimension for its slices.
static bool add_value(Einsum *e, Lengths *l, const Classes *c, const char *letter, const Value *v,
                      int64_t slices) {
  if (slices && !add_length(e, l, slices)) return false;
  for (int k = 0; k < v->type->ndim; k++) {
    char of = letter[class_at(c, v, k)];
    if (of)
      einsum_add(e, " %c", of);
    else if (!add_length(e, l, v->type->dim[k]))
      return false;
  }
  return true;
}

bool loop_rule(const Op *op, Dims *dims, Diag *d) {
  const Graph *g = op->callee;
  LoopForm f = loop_form(op);
  if (op->n_out > MAX_RESULTS || op->n_in > MAX_TERMS)
    return diag_error(d, op->loc, "loop: '@%s' has more than %d results, or %d operands", g->name,
                      MAX_RESULTS, MAX_TERMS);
  Arena *a = arena_new();
  Classes c = {0};
  Einsum e = {0};
  bool ok = find_classes(&c, op, f, a, d), few = true;
  char *letter = arena_array(a, char, c.n);
  Lengths l = {.most = ok ? LETTERS - name_classes(&c, f, letter) : 0};
  for (int i = 0; ok && few && i < op->n_in; i++) {
    einsum_add(&e, i ? "," : "");
    bool sliced = i >= f.carried && i < f.carried + f.sliced;
    few = add_value(&e, &l, &c, letter, g->params[i], sliced ? f.count : 0);
  }
  einsum_add(&e, "->");
  for (int i = 0; ok && few && i < g->n_results; i++) {
    einsum_add(&e, i ? "," : "");
    bool sliced = i >= f.carried && i < f.carried + f.stacked;
    few = add_value(&e, &l, &c, letter, g->results[i]->use.value, sliced ? f.count : 0);
  }
  // The memory of the body.
  if (ok && few && op->n_out > g->n_results) {
    einsum_add(&e, g->n_results ? "," : "");
    few = add_length(&e, &l, attr_i(op, "workspace"));
  }
  if (ok && !few)
    ok = diag_error(d, op->loc, "loop: '@%s' has more than %d different lengths", g->name, LETTERS);
  if (ok) ok = dims_parse(dims, op, e.text, d);
  // Sizes of letters that only results have; a match sets the others.
  for (int i = 0; ok && i < l.n; i++)
    dims_size(dims, length_letter(i), l.at[i]);
  for (int i = 0; ok && i < g->n_results; i++) {
    const Value *v = g->results[i]->use.value;
    for (int k = 0; k < v->type->ndim; k++)
      if (letter[class_at(&c, v, k)]) dims_size(dims, letter[class_at(&c, v, k)], v->type->dim[k]);
  }
  arena_free(a);
  return ok;
}

// -- The layouts of the body -------------------------------------------------------------------

const Layout *loop_slice_layout(Module *m, const Layout *layout) {
  Sbp axis[MAX_AXES];
  for (int a = 0; a < layout->n_axes; a++) {
    axis[a] = layout->axis[a];
    if (axis[a].kind == SBP_S) axis[a].dim--;
  }
  return layout_new(m, layout->mesh, axis);
}

// Sets the layout of a value along one axis.
static void set_axis(const Classes *c, Module *m, Value *v, int axis, int class) {
  Sbp is[MAX_AXES];
  memcpy(is, v->layout->axis, sizeof is);
  int dim = class < 0 ? -1 : dim_in(c, v, class);
  is[axis] = dim >= 0 ? (Sbp){.kind = SBP_S, .dim = dim}
                      : (Sbp){.kind = class >= 0 && c->partial[v->id] ? SBP_P : SBP_B};
  v->layout = layout_new(m, v->layout->mesh, is);
}

bool loop_split_body(const Op *op, Diag *d) {
  Graph *g = op->callee;
  Module *m = g->module;
  const Mesh *mesh = op_mesh(op);
  LoopForm f = loop_form(op);
  const Layout *whole = layout_broadcast(m, mesh);
  for (int i = 0; i < g->n_params; i++)
    g->params[i]->layout = whole;
  for_each_op(inner, g)
    for (int i = 0; i < inner->n_out; i++)
      inner->out[i]->layout = whole;
  Arena *a = arena_new();
  Classes c = {0};
  bool ok = find_classes(&c, op, f, a, d);
  char *letter = arena_array(a, char, c.n);
  if (ok) name_classes(&c, f, letter);
  for (int axis = 0; ok && mesh && axis < mesh->n_axes; axis++) {
    if (!op->split[axis]) continue;
    int class = 0;
    while (class < c.n && letter[class] != op->split[axis])
      class ++;
    if (class == c.n || !may_split(&c, f, class))
      BUG("a loop is split along no letter of its body");
    memset(c.partial, 0, g->n_values * sizeof *c.partial);
    for (int i = 0; i < g->n_params; i++)
      set_axis(&c, m, g->params[i], axis, class);
    for_each_op(inner, g) {
      inner->split[axis] = (char)split_of(&c, inner, class);
      for (int i = 0; i < inner->n_out; i++)
        set_axis(&c, m, inner->out[i], axis, class);
    }
  }
  arena_free(a);
  return ok;
}

// -- The reference -----------------------------------------------------------------------------

static size_t slice_bytes(const Type *t, int64_t count) {
  return (size_t)(type_bytes(t) / count);
}

bool loop_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  const Graph *g = op->callee;
  LoopForm f = loop_form(op);
  Arena *a = arena_new();
  Tensor *param = arena_array(a, Tensor, op->n_in), *result = arena_array(a, Tensor, g->n_results);
  for (int i = 0; i < op->n_in; i++) {
    param[i] = i < f.carried + f.sliced ? tensor_new(a, g->params[i]->type) : in[i];
    if (i < f.carried) memcpy(param[i].data, in[i].data, (size_t)type_bytes(in[i].type));
  }
  for (int i = 0; i < g->n_results; i++)
    result[i] = tensor_new(a, g->results[i]->use.value->type);
  bool ok = true;
  int64_t times = f.times ? tensor_i(&in[f.times - 1], 0) : f.count;
  if (times > f.count) times = f.count;
  for (int64_t step = 0; ok && step < times; step++) {
    int64_t t = f.reverse ? times - 1 - step : step;
    for (int i = f.carried; i < f.carried + f.sliced; i++) {
      size_t n = slice_bytes(in[i].type, f.count);
      memcpy(param[i].data, (const char *)in[i].data + (size_t)t * n, n);
    }
    ok = graph_evaluate(op, param, result, d);
    for (int i = 0; ok && i < g->n_results; i++) {
      const Tensor *x = &result[i];
      if (i < f.carried) {
        memcpy(param[i].data, x->data, (size_t)type_bytes(x->type));
      } else if (i < f.carried + f.stacked) {
        size_t n = slice_bytes(out[i].type, f.count);
        memcpy((char *)out[i].data + (size_t)t * n, x->data, n);
      } else {
        bool floating = dtype_class[x->type->dtype] == 'F';
        for (int64_t k = 0, n = type_count(x->type); k < n; k++)
          if (floating)
            tensor_set_f(&out[i], k, tensor_f(&out[i], k) + tensor_f(x, k));
          else
            tensor_set_i(&out[i], k, tensor_i(&out[i], k) + tensor_i(x, k));
      }
    }
  }
  for (int i = 0; i < f.carried; i++)
    memcpy(out[i].data, param[i].data, (size_t)type_bytes(param[i].type));
  arena_free(a);
  return ok;
}

// -- The gradient ------------------------------------------------------------------------------

static bool is_floating(const Value *v) {
  return dtype_class[v->type->dtype] == 'F';
}

// The backward loop of a loop while it is built.
typedef struct BackwardLoop {
  const Op *op;
  LoopForm f, back; // of the loop, of the backward loop
  Graph *body;
  Value **in; // operands of the backward loop
  int n_in;
  Value **operand; // by operand of the loop: its value in the body
  Value **of_out;  // by result of the loop: its adjoint in the body, or NULL
  Value **of_in;   // by operand of the loop: its adjoint in the body, or NULL
  int *result;     // by operand of the loop: its adjoint's number among the results, from 1, or 0
} BackwardLoop;

// A new parameter of the backward body, for an operand of the backward loop.
static Value *backward_param(BackwardLoop *l, const Type *t, Value *operand) {
  l->in[l->n_in++] = operand;
  return graph_param(l->body, NULL, t, ROLE_none, NULL);
}

// The states of the backward loop: the adjoints of the states.
static void add_adjoints_of_states(BackwardLoop *l, Builder *b, Value **dout) {
  for (int i = 0; i < l->f.carried; i++) {
    if (!is_floating(l->op->out[i])) continue;
    const Type *t = l->op->out[i]->type;
    Value *dy = dout[i] ? dout[i] : build_fill(b, t->dtype, t->ndim, t->dim, 0);
    l->of_out[i] = backward_param(l, t, dy);
  }
  l->back.carried = l->n_in;
}

// Its slices: the states before each iteration, the slices of the operands and of the adjoints.
static void add_slices(BackwardLoop *l, Value **dout) {
  const Op *op = l->op;
  const Graph *g = op->callee;
  LoopForm f = l->f;
  for (int i = 0; i < f.carried; i++) {
    int k = f.carried;
    while (k < f.carried + f.stacked && g->results[k]->use.value != g->params[i])
      k++;
    if (k == f.carried + f.stacked) BUG("a loop without its states has no gradient");
    l->operand[i] = backward_param(l, g->params[i]->type, op->out[k]);
  }
  for (int i = f.carried; i < f.carried + f.sliced; i++)
    l->operand[i] = backward_param(l, g->params[i]->type, op->in[i].value);
  for (int i = f.carried; i < f.carried + f.stacked; i++)
    if (dout[i] && is_floating(op->out[i]))
      l->of_out[i] = backward_param(l, g->results[i]->use.value->type, dout[i]);
  l->back.sliced = l->n_in - l->back.carried;
}

// Its invariants: those of the loop, and the adjoints of sums, which are those of every term.
static void add_invariants(BackwardLoop *l, Value **dout) {
  const Op *op = l->op;
  const Graph *g = op->callee;
  for (int i = l->f.carried + l->f.sliced; i < op->n_in; i++) {
    l->operand[i] = backward_param(l, g->params[i]->type, op->in[i].value);
    if (i == l->f.times - 1) l->back.times = l->n_in;
  }
  for (int i = l->f.carried + l->f.stacked; i < g->n_results; i++)
    if (dout[i] && is_floating(op->out[i]))
      l->of_out[i] = backward_param(l, op->out[i]->type, dout[i]);
}

// The gradient of the body, and its results: adjoints of states, of slices, and sums of those of
// invariants.
static bool build_body(BackwardLoop *l, const Builder *b) {
  const Graph *g = l->op->callee;
  Builder inner = {.g = l->body, .d = b->d, .origin = b->origin};
  // Ops of a body are of no op of the model.
  inner.origin.part = PART_forward;
  inner.origin.of = inner.origin.piece = inner.origin.order = 0;
  bool ok = graph_gradient(&inner, g, l->operand, l->of_out, l->of_in);
  int n_out = 0;
  for (int pass = 0; ok && pass < 3; pass++)
    for (int i = 0; i < l->op->n_in; i++) {
      int of = i < l->f.carried ? 0 : i < l->f.carried + l->f.sliced ? 1 : 2;
      const Type *t = g->params[i]->type;
      if (of != pass || dtype_class[t->dtype] != 'F') continue;
      // Each state has an adjoint, if it is zero.
      Value *adjoint = l->of_in[i];
      if (!adjoint && pass) continue;
      if (!adjoint) adjoint = build_fill(&inner, t->dtype, t->ndim, t->dim, 0);
      graph_output(l->body, adjoint, NULL);
      l->result[i] = ++n_out;
      l->back.summed += pass == 2;
    }
  return ok && !inner.failed;
}

bool loop_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Graph *g = op->callee;
  Module *m = op->graph->module;
  Arena *a = arena_new();
  BackwardLoop l = {.op = op, .f = loop_form(op)};
  l.in = arena_array(a, Value *, op->n_in + l.f.carried + g->n_results);
  l.operand = arena_array(a, Value *, op->n_in);
  l.of_out = arena_array(a, Value *, g->n_results);
  l.of_in = arena_array(a, Value *, op->n_in);
  l.result = arena_array(a, int, op->n_in);
  l.body = graph_new(m, graph_free_name(m, str_format(a, "%s.grad", g->name)), false);
  l.back = (LoopForm){.count = l.f.count, .reverse = !l.f.reverse};
  add_adjoints_of_states(&l, b, dout);
  add_slices(&l, dout);
  add_invariants(&l, dout);
  Op *made = NULL;
  if (build_body(&l, b) && !b->failed)
    made = op_new_calling(b->g, b->at, OP_loop, l.body, l.in, l.n_in,
                          (Attr[]){a_i("count", l.back.count), a_i("carried", l.back.carried),
                                   a_i("sliced", l.back.sliced), a_i("summed", l.back.summed),
                                   a_b("reverse", l.back.reverse), a_i("times", l.back.times)},
                          6, b->origin, b->d);
  if (!made) graph_erase(l.body);
  for (int i = 0; made && i < op->n_in; i++)
    if (l.result[i]) din[i] = made->out[l.result[i] - 1];
  arena_free(a);
  b->failed |= !made;
  return made != NULL;
}

// -- Changing a loop ---------------------------------------------------------------------------

const char *graph_free_name(Module *m, const char *name) {
  const char *is = str_copy(m->arena, name);
  for (int i = 1; graph_find(m, is); i++)
    is = str_format(m->arena, "%s.%d", name, i);
  return is;
}

Value *loop_operand(const Value *param) {
  if (param->def || param->graph->entry) return NULL;
  for_each_graph(caller, param->graph->module)
    for_each_op(op, caller)
      if (op->kind == OP_loop && op->callee == param->graph) return op->in[param->index].value;
  return NULL;
}

Op *loop_replace(Op *op, Graph *body, Value *const *in, int n_in, LoopForm form, const int *result,
                 Diag *d) {
  Op *made = op_new_calling(op->graph, op, OP_loop, body, in, n_in,
                            (Attr[]){a_i("count", form.count), a_i("carried", form.carried),
                                     a_i("sliced", form.sliced), a_i("summed", form.summed),
                                     a_b("reverse", form.reverse), a_i("workspace", form.workspace),
                                     a_i("times", form.times)},
                            7, op_origin(op), d);
  if (!made) return NULL;
  memcpy(made->split, op->split, sizeof made->split);
  made->segment = op->segment;
  for (int i = 0; i < op->n_out; i++) {
    Value *v = op->out[i];
    if (result[i] < 0) continue;
    Value *by = made->out[result[i]];
    const char *name = v->name;
    by->layout = v->layout;
    value_replace(v, by);
    value_set_name(v, NULL);
    if (name) value_set_name(by, name);
  }
  op_erase(op);
  return made;
}
