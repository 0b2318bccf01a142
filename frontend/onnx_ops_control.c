// Control flow.  If the condition of an If is known, the branch that it selects is put in place.
// Short loops are put in place, one iteration after the other; long ones stay loops (onnx_loop.c).
//
//     Scan  state s, slices x[0], x[1]      body(s, x[0]) -> s1, y[0];  body(s1, x[1]) -> s2, y[1]
//     Scan  state s, slices x[0 … 511]      %s1, %y = loop @loop %s, %x count=512
//
// Iterations in place may differ in shape, and their conditions may depend on their number.  So
// loops of up to MOST_ITERATIONS are also put in place if their bodies do not fit a loop.

#include <string.h>

#include "frontend/onnx_loop.h"

// A loop of more nodes than MOST_NODES would be a large program: an LSTM cell of 128 iterations
// takes the C compiler 16 s.
enum { MOST_NODES = 192 };

// Imports the graph of an attribute, which sees the names around it, with its inputs bound to `in`.
// `part`: of the names of its nodes, or NULL.  False after a report.
bool onnx_import_body(Node *n, const char *attribute, const char *part, const Binding *in, int n_in,
                      Binding *out, int n_out) {
  Import *im = n->im;
  const Onnx__AttributeProto *a = node_attr(n, attribute);
  if (!a || !a->g) return node_fail(n, "has no %s", attribute);
  if (a->g->n_output != (size_t)n_out)
    return node_fail(n, "%s has %zu results, and %d are needed", attribute, a->g->n_output, n_out);
  if (a->g->n_input != (size_t)n_in)
    return node_fail(n, "%s has %zu inputs, and gets %d", attribute, a->g->n_input, n_in);
  Scope *scope = onnx_scope_new(im, n->scope);
  const char *name = onnx_node_name(im->a, n->scope, n->proto);
  scope->prefix = part ? str_format(im->a, "%s/%s", name, part) : name;
  for (int i = 0; i < n_in; i++)
    onnx_bind_as(im, scope, onnx_str(a->g->input[i]->name), &in[i]);
  char **output = arena_array(n->a, char *, n_out);
  for (int i = 0; i < n_out; i++) {
    const char *text = onnx_str(a->g->output[i]->name);
    output[i] = arena_copy(n->a, text, strlen(text) + 1);
  }
  if (!onnx_initializers(im, scope, a->g) ||
      !onnx_body(im, scope, a->g->node, a->g->n_node, output, (size_t)n_out)) {
    n->b->failed = true;
    return false;
  }
  for (int i = 0; i < n_out; i++) {
    Binding *b = onnx_lookup(scope, output[i]);
    if (!b) return node_fail(n, "%s does not define its result '%s'", attribute, output[i]);
    if (!b->poisoned) onnx_binding_value(im, b);
    out[i] = *b;
    // A missing result has been reported in the body.
    if (b->poisoned || (!b->v && !b->sequence)) n->b->failed = true;
  }
  return !n->b->failed;
}

static void result(Node *n, int i, const Binding *b) {
  if (i >= n->n_out) return;
  n->out[i] = b->v;
  n->out_sequence[i] = b->sequence;
  n->out_narrow[i] = b->narrow;
}

static Binding operand(const Node *n, int i) {
  return (Binding){.v = n->in[i], .sequence = n->in_sequence[i], .narrow = node_narrow(n, i)};
}

// An If on data: both branches, of which one runs.
static bool run_branch(Node *n) {
  Value *c = n->in[0];
  if (type_count(c->type) != 1) return node_fail(n, "its condition is not one value");
  Value *yes = build_cast(n->b, build_scalar(n->b, c), DT_i64);
  Value *no = build_op(n->b, OP_offset, IN(node_unary(n, OP_neg, yes)), ATTRS(a_f("by", 1)));
  onnx_evaluate_new(n->im, n);
  Binding *out = arena_array(n->a, Binding, n->n_out);
  if (!no) return false;
  // Of a branch that fails, the other one is imported as well: its problems are reported, too.
  bool ok = onnx_branch(n, "then_branch", yes, out, n->n_out);
  if (!onnx_branch(n, "else_branch", no, out, n->n_out) || !ok) return false;
  for (int i = 0; i < n->n_out; i++)
    result(n, i, &out[i]);
  return true;
}

// Imports the branch that the condition selects, if that is known.
bool import_if(Node *n) {
  const Tensor *condition;
  const Value *c = n->in[0];
  if (!onnx_hinted(n, c) && (c->def || c->role == ROLE_input)) return run_branch(n);
  if (!node_setting(n, 0, "condition", &condition)) return false;
  if (type_count(condition->type) != 1) return node_fail(n, "its condition is not one value");
  // Both attributes are read, or the other one would be reported as unknown.
  (void)node_attr(n, "then_branch");
  (void)node_attr(n, "else_branch");
  Binding *out = arena_array(n->a, Binding, n->n_out);
  const char *branch = tensor_i(condition, 0) ? "then_branch" : "else_branch";
  if (!onnx_import_body(n, branch, NULL, NULL, 0, out, n->n_out)) return false;
  for (int i = 0; i < n->n_out; i++)
    result(n, i, &out[i]);
  return true;
}

// -- Loops -------------------------------------------------------------------------------------

// Whether the iterations are put in place, as a small program is.
static bool is_short(const Onnx__AttributeProto *body, int64_t count) {
  int64_t nodes = body->g->n_node ? (int64_t)body->g->n_node : 1;
  return count < MOST_ITERATIONS && count * nodes <= MOST_NODES;
}

// Whether the body of a Loop computes its condition, and does not only pass it on.
static bool ends_early(const Onnx__GraphProto *g) {
  const char *name = g->n_output ? onnx_str(g->output[0]->name) : "";
  for (size_t i = g->n_node; i-- > 0;) {
    const Onnx__NodeProto *node = g->node[i];
    bool makes = false;
    for (size_t k = 0; k < node->n_output; k++)
      makes |= str_equal(onnx_str(node->output[k]), name);
    if (!makes) continue;
    if (str_equal(onnx_str(node->op_type), "Constant")) return false;
    if (!str_equal(onnx_str(node->op_type), "Identity") || !node->n_input) return true;
    name = onnx_str(node->input[0]);
  }
  return false;
}

// Imports a loop that stays one.  If its body does not fit, but its iterations can be put in place,
// *io_in_place is set, *why is the reason, and nothing is reported.
static bool try_loop(Node *n, const Repeat *r, Binding *out, int n_stacked, bool *io_in_place,
                     const char **why) {
  Import *im = n->im;
  bool retry = *io_in_place;
  int problems = im->problems.all.n, errors = diag_errors(im->d);
  *io_in_place = false;
  if (onnx_loop(n, r, out, n_stacked, why)) return true;
  // An error of the file is one in any case.
  retry &= diag_errors(im->d) == errors;
  if (!retry) return *why ? node_fail_as(n, PROBLEM_control_flow, NULL, "%s", *why) : false;
  // An iteration with a known number may have none of these problems.
  im->problems.all.n = problems;
  n->b->failed = false;
  fflush(im->stream);
  im->text_seen = im->text_n;
  *io_in_place = true;
  return false;
}

// Slices of all iterations along a dimension of their own.
static Value *stacked(Node *n, Value *const *slice, int count, int axis, bool reverse) {
  if (!slice[0]) return NULL;
  for (int i = 0; i < count; i++)
    if (node_counted(n, slice[i])) {
      node_fail(n, "slices of its iterations have lengths that depend on data");
      return NULL;
    }
  const Type *t = slice[0]->type;
  int64_t dim[MAX_NDIM];
  if (t->ndim == MAX_NDIM || axis < 0 || axis > t->ndim) {
    node_fail(n, "slices of %s along axis %d", type_text(n->a, t), axis);
    return NULL;
  }
  for (int i = 0; i <= t->ndim; i++)
    dim[i] = i == axis ? 1 : t->dim[i - (i > axis)];
  Value **part = arena_array(n->a, Value *, count);
  for (int i = 0; i < count; i++) {
    Value *x = slice[reverse ? count - 1 - i : i];
    if (!x || x->type != t) {
      node_fail(n, "the slices of its iterations differ in type");
      return NULL;
    }
    part[i] = build_reshape(n->b, x, t->ndim + 1, dim);
  }
  if (count == 1) return part[0];
  return build_op(n->b, OP_concat, part, count, ATTRS(a_i("axis", axis)));
}

static bool few(Node *n, int64_t count) {
  return count <= MOST_ITERATIONS ||
         node_fail_as(n, PROBLEM_control_flow, NULL,
                      "%lld iterations are not supported; the limit is %d", (long long)count,
                      MOST_ITERATIONS);
}

// The condition of a further iteration, which must be known; true without one.  `why`: the reason
// that the loop does not stay one, or NULL.
static bool continues(Node *n, const Value *condition, const char *why, bool *out) {
  *out = true;
  if (!condition) return true;
  const Tensor *t = onnx_hinted(n, condition);
  if (!t || type_count(t->type) != 1)
    return node_fail_as(n, PROBLEM_control_flow, NULL, "%s",
                        why ? why : "its condition depends on data, which is not supported");
  *out = tensor_i(t, 0) != 0;
  return true;
}

// Operands: the number of iterations, the condition, loop-carried values.  Body: iteration,
// condition, carried values -> condition, carried values, slices.  Results: carried values, slices.
bool import_loop(Node *n) {
  Import *im = n->im;
  int64_t most;
  if (!node_setting_int(n, 0, "number of iterations", MOST_ITERATIONS + 1, &most)) return false;
  const Onnx__AttributeProto *body = node_attr(n, "body");
  int carried = n->n_in - 2, n_body = body && body->g ? (int)body->g->n_output : 0;
  int n_slices = n_body - 1 - carried;
  if (!body || !body->g || carried < 0 || n_slices < 0)
    return node_fail(n, "its body has %d results", n_body);
  Binding *in = arena_array(im->a, Binding, carried + 2),
          *out = arena_array(im->a, Binding, n_body);
  Value **slice = arena_array(im->a, Value *, (n_slices + 1) * (MOST_ITERATIONS + 1));
  for (int i = 0; i < carried; i++)
    in[2 + i] = operand(n, 2 + i);
  bool more;
  int count = 0;
  const char *why = NULL;
  Value *begins = node_in(n, 1) && !onnx_hinted(n, node_in(n, 1)) ? node_in(n, 1) : NULL;
  more = begins != NULL;
  if (begins && type_count(begins->type) != 1)
    return node_fail(n, "its condition is not one value");
  if (!begins && !continues(n, node_in(n, 1), NULL, &more)) return false;
  if (more && node_in(n, 0) && (begins || ends_early(body->g) || !is_short(body, most))) {
    // The condition may end a loop of many iterations after a few: then these are put in place.
    Repeat r = {.count = most, .n_carried = carried, .carried = in + 2, .numbered = true};
    bool in_place = !begins && (most <= MOST_ITERATIONS || node_in(n, 1));
    if (begins) r.begins = build_scalar(n->b, begins);
    bool made = try_loop(n, &r, out, n_slices, &in_place, &why);
    for (int i = 0; made && i < carried + n_slices; i++)
      result(n, i, &out[i]);
    if (made || !in_place) return made;
  }
  if (more && !why && !node_in(n, 0))
    why = "its condition depends on data, and nothing bounds its iterations";
  for (; more && count < most; count++) {
    if (!few(n, count + 1)) return false;
    in[0] = (Binding){.v = node_scalar(n, DT_i64, count)};
    in[1] = (Binding){.v = node_scalar(n, DT_bool, 1)};
    onnx_evaluate_new(im, n);
    if (!onnx_import_body(n, "body", str_format(im->a, "%d", count), in, carried + 2, out, n_body))
      return false;
    for (int i = 0; i < carried; i++)
      in[2 + i] = out[1 + i];
    for (int i = 0; i < n_slices; i++)
      slice[i * (MOST_ITERATIONS + 1) + count] = out[1 + carried + i].v;
    if (!continues(n, out[0].v, why, &more)) return false;
  }
  for (int i = 0; i < carried; i++)
    result(n, i, &in[2 + i]);
  // Without an iteration the type of a slice is not known.
  for (int i = 0; i < n_slices && carried + i < n->n_out; i++) {
    if (count == 0) return node_fail(n, "no iteration gives its result %d", carried + i);
    n->out[carried + i] = stacked(n, slice + i * (MOST_ITERATIONS + 1), count, 0, false);
  }
  return !n->b->failed;
}

// Element i of a list of the node, or 0.
static int64_t listed(const Ints *list, int i) {
  return i < list->n ? list->at[i] : 0;
}

// Reverses a dimension.
static Value *flipped(Node *n, Value *x, int dim) {
  int64_t starts[MAX_NDIM] = {0}, steps[MAX_NDIM];
  if (!x) return NULL;
  for (int i = 0; i < x->type->ndim; i++)
    steps[i] = i == dim ? -1 : 1;
  starts[dim] = x->type->dim[dim] - 1;
  int ndim = x->type->ndim;
  return build_op(n->b, OP_slice, IN(x),
                  ATTRS(a_list("starts", starts, ndim), a_list("steps", steps, ndim),
                        a_list("shape", x->type->dim, ndim)));
}

// Moves a dimension to another place among the others.
static Value *moved(Node *n, Value *x, int from, int to) {
  int64_t perm[MAX_NDIM];
  if (!x) return NULL;
  for (int i = 0, next = 0; i < x->type->ndim; i++) {
    if (next == from) next++;
    perm[i] = i == to ? from : next++;
  }
  return build_transpose(n->b, x, perm);
}

// A Scan that stays a loop, in the direction of its first tensor.
static bool scan_loop(Node *n, int states, int scanned, const int *axis, int64_t count,
                      int n_slices, bool *io_in_place) {
  Import *im = n->im;
  Ints in_directions, out_axes, out_directions;
  node_list(n, "scan_input_directions", &in_directions);
  node_list(n, "scan_output_axes", &out_axes);
  node_list(n, "scan_output_directions", &out_directions);
  Value **sliced = arena_array(im->a, Value *, scanned);
  Binding *carried = arena_array(im->a, Binding, states + 1),
          *out = arena_array(im->a, Binding, states + n_slices + 1);
  Repeat r = {.count = count, .n_carried = states, .n_sliced = scanned};
  r.reverse = listed(&in_directions, 0) != 0;
  for (int i = 0; i < states; i++)
    carried[i] = operand(n, i);
  for (int i = 0; i < scanned; i++) {
    sliced[i] = moved(n, n->in[states + i], axis[i], 0);
    if ((listed(&in_directions, i) != 0) != r.reverse) sliced[i] = flipped(n, sliced[i], 0);
    if (!sliced[i]) return false;
  }
  onnx_evaluate_new(im, n);
  r.carried = carried;
  r.sliced = sliced;
  const char *why;
  if (!try_loop(n, &r, out, n_slices, io_in_place, &why)) return false;
  for (int i = 0; i < states; i++)
    result(n, i, &out[i]);
  for (int i = 0; i < n_slices && states + i < n->n_out; i++) {
    Value *y = out[states + i].v;
    int64_t at = listed(&out_axes, i);
    int to;
    if (!node_axis(n, at, y->type->ndim, &to)) return false;
    if ((listed(&out_directions, i) != 0) != r.reverse) y = flipped(n, y, 0);
    n->out[states + i] = moved(n, y, 0, to);
    n->out_narrow[states + i] = out[states + i].narrow;
  }
  return !n->b->failed;
}

// Operands: states, then tensors, of which each iteration gets a slice.  Body: states, slices ->
// states, slices.  Results: states, stacked slices.
bool import_scan(Node *n) {
  Import *im = n->im;
  Ints in_axes, in_directions, out_axes, out_directions;
  node_list(n, "scan_input_axes", &in_axes);
  node_list(n, "scan_input_directions", &in_directions);
  node_list(n, "scan_output_axes", &out_axes);
  node_list(n, "scan_output_directions", &out_directions);
  int64_t asked = node_int(n, "num_scan_inputs", 0);
  int scanned = asked >= 1 && asked <= n->n_in ? (int)asked : 0, states = n->n_in - scanned;
  const Onnx__AttributeProto *body = node_attr(n, "body");
  int n_body = body && body->g ? (int)body->g->n_output : 0, n_slices = n_body - states;
  if (!body || !body->g || scanned < 1 || states < 0 || n_slices < 0)
    return node_fail(n, "has %d operands, of which %d are scanned", n->n_in, scanned);
  int64_t count = -1;
  int *axis = arena_array(n->a, int, scanned);
  for (int i = 0; i < scanned; i++) {
    const Value *x = n->in[states + i];
    if (!x) return node_fail(n, "operand %d is left out", states + i);
    if (!node_axis(n, listed(&in_axes, i), x->type->ndim, &axis[i])) return false;
    int64_t length = x->type->dim[axis[i]];
    if (count >= 0 && length != count) return node_fail(n, "its tensors have unequal lengths");
    count = length;
  }
  if (count == 0) return node_fail(n, "its tensors have length 0");
  if (!is_short(body, count)) {
    bool in_place = count <= MOST_ITERATIONS;
    if (scan_loop(n, states, scanned, axis, count, n_slices, &in_place)) return true;
    if (!in_place) return false;
  }
  Binding *in = arena_array(im->a, Binding, n->n_in), *out = arena_array(im->a, Binding, n_body);
  Value **slice = arena_array(im->a, Value *, n_slices * (int)count + 1);
  for (int i = 0; i < states; i++)
    in[i] = operand(n, i);
  for (int step = 0; step < count; step++) {
    for (int i = 0; i < scanned; i++) {
      Value *x = n->in[states + i];
      int64_t at = listed(&in_directions, i) ? count - 1 - step : step, dim[MAX_NDIM];
      int ndim = 0;
      for (int k = 0; k < x->type->ndim; k++)
        if (k != axis[i]) dim[ndim++] = x->type->dim[k];
      Value *part = build_reshape(n->b, node_part(n, x, axis[i], at, 1), ndim, dim);
      in[states + i] = (Binding){.v = part, .narrow = node_narrow(n, states + i)};
      if (!part) return false;
    }
    onnx_evaluate_new(im, n);
    if (!onnx_import_body(n, "body", str_format(im->a, "%d", step), in, n->n_in, out, n_body))
      return false;
    for (int i = 0; i < states; i++)
      in[i] = out[i];
    for (int i = 0; i < n_slices; i++)
      slice[i * (int)count + step] = out[states + i].v;
  }
  for (int i = 0; i < states; i++)
    result(n, i, &in[i]);
  for (int i = 0; i < n_slices && states + i < n->n_out; i++) {
    int64_t at = listed(&out_axes, i);
    const Value *one = slice[i * (int)count];
    if (one && at < 0) at += one->type->ndim + 1;
    n->out[states + i] =
        stacked(n, slice + i * (int)count, (int)count, (int)at, listed(&out_directions, i) != 0);
  }
  return !n->b->failed;
}

// Operands: a sequence, then sequences of its length, and tensors that every iteration reads. Body:
// an element of each, the tensors -> an element of each result.
bool import_sequence_map(Node *n) {
  const Sequence *first = n->in_sequence[0];
  if (!first || first->is_absent) return node_fail(n, "operand 0 is not a sequence of tensors");
  Import *im = n->im;
  Binding *in = arena_array(im->a, Binding, n->n_in), *out = arena_array(im->a, Binding, n->n_out);
  Value ***at = arena_array(im->a, Value **, n->n_out);
  for (int i = 0; i < n->n_out; i++) {
    Sequence *s = arena_one(im->a, Sequence);
    s->n = first->n;
    s->at = at[i] = arena_array(im->a, Value *, first->n + 1);
    n->out_sequence[i] = s;
  }
  (void)node_attr(n, "body");
  if (!few(n, first->n)) return false;
  for (int step = 0; step < first->n; step++) {
    for (int i = 0; i < n->n_in; i++) {
      const Sequence *s = n->in_sequence[i];
      if (s && s->n != first->n)
        return node_fail(n, "its sequences have %d and %d elements", first->n, s->n);
      in[i] = s ? (Binding){.v = s->at[step]} : operand(n, i);
    }
    if (!onnx_import_body(n, "body", str_format(im->a, "%d", step), in, n->n_in, out, n->n_out))
      return false;
    for (int i = 0; i < n->n_out; i++) {
      if (!out[i].v) return node_fail(n, "result %d of its body is not a tensor", i);
      at[i][step] = out[i].v;
    }
  }
  return true;
}

// -- Functions of one value --------------------------------------------------------------------

Value *node_modified(Node *n, const char *attribute, Value *x) {
  if (!x || !node_attr(n, attribute)) return x;
  Binding in = {.v = x}, out;
  if (!onnx_import_body(n, attribute, attribute, &in, 1, &out, 1)) return NULL;
  if (node_counted(n, out.v)) {
    node_fail(n, "%s has a result whose length depends on data", attribute);
    return NULL;
  }
  if (out.v && out.v->type == x->type) return out.v;
  node_fail(n, "%s changes the type of its operand", attribute);
  return NULL;
}
