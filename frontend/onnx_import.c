// From an ONNX model to a module: the walk over its nodes.
//
//     initializer w: float[768,3072]               graph @main(%x: f32[8,128,768] input …,
//     node MatMul(x, w) -> h   "/fc/MatMul"    =>    %w: f32[768,3072] weight @ "m.onnx"+4711 …) {
//     node Add(h, b) -> y                            %h = linear %x, %w : f32[8,128,3072]
//
// A node is imported by the function in its row of onnx_ops.def; its results are then bound to IR
// values by their names.  Initializers become weights at their first use, small integer ones
// constants.  Calls of the model's own functions, and branches of If with a known condition, are
// imported in place.  A node that fails is recorded and its results are poisoned: their readers
// fail silently, and all other nodes are still imported.
//
// Shapes are static: onnx_shape.c binds the inputs'; onnx_known.c follows shape arithmetic.

#include <stdlib.h>
#include <string.h>

#include "frontend/onnx_walk.h"

enum {
  MAX_NODES = 1 << 22, // after functions have been inlined
  NEWEST_OPSET = 28,
};

// -- Names -------------------------------------------------------------------------------------

Scope *onnx_scope_new(Import *im, const Scope *outer) {
  Scope *s = arena_one(im->a, Scope);
  // A branch has the opsets and the function of the scope around it, and names of its own.
  if (outer) *s = *outer;
  s->outer = outer;
  s->names = s->read = (NameMap){.arena = im->a};
  s->bindings.at = NULL;
  s->bindings.n = s->bindings.cap = 0;
  return s;
}

static Binding *bind(Import *im, Scope *scope, Binding b) {
  int at = name_map_find(&scope->names, b.name);
  if (at < 0) {
    name_map_add(&scope->names, b.name, at = scope->bindings.n);
    vec_push(im->a, &scope->bindings, b);
  }
  return &scope->bindings.at[at];
}

void onnx_bind(Import *im, Scope *scope, const char *name, Value *v, bool poisoned) {
  (void)bind(im, scope, (Binding){.name = name, .v = v, .poisoned = poisoned});
}

void onnx_bind_as(Import *im, Scope *scope, const char *name, const Binding *as) {
  Binding copy = *as;
  copy.name = name;
  (void)bind(im, scope, copy);
}

Binding *onnx_lookup(const Scope *scope, const char *name) {
  for (; scope; scope = scope->outer) {
    int at = name_map_find(&scope->names, name);
    if (at >= 0) return &scope->bindings.at[at];
  }
  return NULL;
}

// Keeps letters, digits, '_' and '.'; the first is no digit.
const char *onnx_value_name(Arena *a, const char *name) {
  while (*name == '/' || *name == '.')
    name++;
  // Paths become dotted names, as PyTorch writes them.
  char *plain = arena_copy(a, name, strlen(name) + 1);
  for (char *c = plain; *c; c++) {
    bool digit = *c >= '0' && *c <= '9';
    bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
    if (*c == '/' || *c == ':') *c = '.';
    if (!digit && !letter && *c != '.') *c = '_';
  }
  return *plain >= '0' && *plain <= '9' ? str_format(a, "v%s", plain) : plain;
}

// -- Initializers ------------------------------------------------------------------------------

bool onnx_initializers(Import *im, Scope *scope, const Onnx__GraphProto *g) {
  for (size_t i = 0; i < g->n_initializer; i++) {
    const char *name = onnx_str(g->initializer[i]->name);
    if (name_map_find(&scope->names, name) >= 0)
      return diag_error(im->d, onnx_place(im->file, im->a, name), "'%s' is defined twice", name);
    int type = g->initializer[i]->data_type;
    (void)bind(im, scope,
               (Binding){.name = name,
                         .init = g->initializer[i],
                         .narrow = onnx_narrow(type) || type == ONNX_STRING ? type : 0});
  }
  for (size_t i = 0; i < g->n_sparse_initializer; i++) {
    // Sparse ones are reported, with all other unsupported parts of the model.
    const Onnx__TensorProto *values = g->sparse_initializer[i]->values;
    const char *name = onnx_str(values ? values->name : NULL);
    onnx_problem(im, PROBLEM_tensor, onnx_place(im->file, im->m->arena, name),
                 "a sparse initializer is not supported", "store it as a dense one");
    onnx_bind(im, scope, name, NULL, true);
  }
  return true;
}

Value *onnx_binding_value(Import *im, Binding *b) {
  if (b->v || !b->init) return b->v;
  Arena *a = im->m->arena;
  const Loc *loc = onnx_place(im->file, a, b->name);
  // The first reader of an initializer: it becomes a weight or a constant.
  OnnxTensor t;
  if (b->init->data_type == ONNX_STRING) {
    Tensor numbers;
    Builder builder = {.g = im->g, .origin = {.loc = loc}, .d = im->d};
    if (onnx_string_tensor(im->strings, b->init, im->m, im->a, loc, &numbers, im->d))
      b->v = build_constant(&builder, numbers.type, numbers.data);
    b->poisoned = !b->v;
    return b->v;
  }
  if (!onnx_tensor(im->file, im->o->external_data_dir, b->init, a, loc, &t, im->d)) {
    b->poisoned = true;
    return NULL;
  }
  const Type *type = type_new(im->m, onnx_compute_dtype(t.dtype, im->o->keep_f64), t.ndim, t.dim);
  const char *name = onnx_value_name(a, b->name);
  OnnxWhy why = onnx_why(im, b->name, &t, loc);
  bool constant = onnx_is_constant(why, &t);
  Value *v = NULL;
  // A constant that is not computed with is saved all the same, unless it has no type here.
  if ((why != WHY_integer && why != WHY_narrow) || !constant) {
    v = graph_param(im->g, name, type, ROLE_weight, loc);
    v->label = str_copy(a, b->name);
    v->init = arena_copy(a, &t.init, sizeof t.init);
    onnx_decide(im, v, why);
  }
  if (constant) {
    // Its value is needed now: shapes may depend on it.
    Tensor tensor;
    b->poisoned = !onnx_tensor_load(im->file, &t, type, im->a, loc, &tensor, im->d);
    if (b->poisoned) return NULL;
    Builder builder = {.g = im->g, .origin = {.loc = loc}, .d = im->d};
    v = build_constant(&builder, type, tensor.data);
    b->poisoned = !v;
    if (v) value_set_name(v, name);
  }
  return b->v = v;
}

// -- Nodes -------------------------------------------------------------------------------------

typedef struct Row {
  const char *domain, *name;
  int since, least, most; // operands; most 0: any number
  ImportFn *import;
  OpKind kind;
  bool sequences; // operands may be sequences
} Row;

static ImportFn import_plain_unary, import_plain_binary;

// Operators that cannot be compiled, and the reason.
static const struct {
  const char *name, *why;
} refused[] = {
#define REFUSED(name, why) {#name, why},
#include "frontend/onnx_ops.def"
};

// Operators that take tensors of strings, and the operands that may be.
static const struct {
  const char *name;
  int operands;
} takes_strings[] = {
#define STRINGS(name, operands) {#name, operands},
#include "frontend/onnx_ops.def"
};

static const char *hint_for(const char *domain, const char *name) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (str_equal(refused[i].name, name)) return refused[i].why;
  if (str_equal(domain, "com.microsoft"))
    return "export the model without operators of other domains: onnxruntime's optimizers write "
           "these, so take the model from before them";
  if (*domain) return "export the model without operators of other domains";
  return problem_info[PROBLEM_operator].way_out;
}

static const Row rows[] = {
#define ROW(domain, name, since, least, most, import, op, sequences)                               \
  {domain, #name, since, least, most, import, op, sequences},
#define ONNX(name, since, least, most, import)                                                     \
  ROW("", name, since, least, most, import_##import, N_OPS, false)
#define SEQUENCE(name, since, least, most, import)                                                 \
  ROW("", name, since, least, most, import_##import, N_OPS, true)
#define TRAINING(name, least, most, import)                                                        \
  ROW(ONNX_TRAINING_DOMAIN, name, 1, least, most, import_##import, N_OPS, false)
#define PREVIEW(name, least, most, import)                                                         \
  ROW("ai.onnx.preview", name, 1, least, most, import_##import, N_OPS, false)
#define MICROSOFT(name, least, most, import)                                                       \
  ROW("com.microsoft", name, 1, least, most, import_##import, N_OPS, false)
#define ML(name, since, least, most, import)                                                       \
  ROW("ai.onnx.ml", name, since, least, most, import_##import, N_OPS, false)
#define UNARY(name, op)  ROW("", name, 1, 1, 1, import_plain_unary, OP_##op, false)
#define BINARY(name, op) ROW("", name, 1, 2, 2, import_plain_binary, OP_##op, false)
#include "frontend/onnx_ops.def"
};

static bool import_plain_unary(Node *n) {
  n->out[0] = node_unary(n, n->kind, n->in[0]);
  return true;
}

// Before opset 7 the second operand was broadcast on request, from dimension `axis` on.
static bool import_plain_binary(Node *n) {
  Value *y = n->in[1];
  int64_t axis = -1, dim[MAX_NDIM];
  if (n->opset < 7 && node_int(n, "broadcast", 0)) axis = node_int(n, "axis", -1);
  int ndim = node_ndim(n, 0);
  // The dimensions after it are 1, as in newer opsets.
  if (axis >= 0 && axis + y->type->ndim <= ndim) {
    for (int i = 0; i < ndim - axis; i++)
      dim[i] = i < y->type->ndim ? y->type->dim[i] : 1;
    y = build_reshape(n->b, y, ndim - (int)axis, dim);
  }
  n->out[0] = node_binary(n, n->kind, n->in[0], y);
  return true;
}

const char *onnx_domain(const char *domain) {
  return str_equal(domain, "ai.onnx") ? "" : domain;
}

const Loc *onnx_node_loc(Import *im, const Scope *scope, const Onnx__NodeProto *node) {
  return onnx_place(im->file, im->m->arena, onnx_node_name(im->m->arena, scope, node));
}

static bool is_first_problem(Node *n) {
  bool first = !n->b->failed;
  n->b->failed = true;
  return first;
}

static void fail(Node *n, ProblemKind kind, const char *hint, const char *fmt, va_list args)
    PRINTF_LIKE(4, 0);

static void fail(Node *n, ProblemKind kind, const char *hint, const char *fmt, va_list args) {
  // A setting that depends on a failed node is a consequence.
  for (int i = 0; i < n->n_in; i++) {
    const Value *v = node_in(n, i);
    bool setting = kind != PROBLEM_form || (v && dtype_class[v->type->dtype] != 'F');
    if (setting && onnx_after_stand_in(n->im, v)) return;
  }
  const char *text = str_vformat(n->a, fmt, args);
  onnx_node_problem(n->im, kind, n->scope, n->proto, str_format(n->a, "%s: %s", n->op, text), hint);
}

bool node_fail_as(Node *n, ProblemKind kind, const char *hint, const char *fmt, ...) {
  if (!is_first_problem(n)) return false;
  va_list args;
  va_start(args, fmt);
  fail(n, kind, hint ? hint : problem_info[kind].way_out, fmt, args);
  va_end(args);
  return false;
}

bool node_fail_hint(Node *n, const char *hint, const char *fmt, ...) {
  if (!is_first_problem(n)) return false;
  va_list args;
  va_start(args, fmt);
  fail(n, PROBLEM_form, hint, fmt, args);
  va_end(args);
  return false;
}

bool node_fail(Node *n, const char *fmt, ...) {
  if (!is_first_problem(n)) return false;
  va_list args;
  va_start(args, fmt);
  fail(n, PROBLEM_form, NULL, fmt, args);
  va_end(args);
  return false;
}

// Looks up the operands.  False if one is poisoned or missing.
static bool read_operands(Import *im, Scope *scope, const Onnx__NodeProto *node, Value **in,
                          const Sequence **in_sequence) {
  bool ok = true;
  for (size_t i = 0; i < node->n_input; i++) {
    const char *name = onnx_str(node->input[i]);
    if (!*name) continue;
    Binding *b = onnx_lookup(scope, name);
    // No scope has the name.
    if (!b)
      onnx_node_problem(
          im, PROBLEM_graph, scope, node,
          str_format(im->a, "'%s' is not an input, an initializer or a node's output", name), NULL);
    in_sequence[i] = b ? b->sequence : NULL;
    if (b && !b->poisoned && !b->v && !b->init) continue; // left out in this function's call
    // A poisoned operand was reported at its own node.
    in[i] = b && !b->poisoned ? onnx_binding_value(im, b) : NULL;
    ok = ok && in[i];
  }
  return ok;
}

// The element type that result i has in the model, if it is one of 8 bits or less.
static int narrow_of(const Node *n, int i) {
  if (n->out_narrow[i] != NARROW_as_operand) return n->out_narrow[i];
  for (int k = 0; k < n->n_in; k++) {
    int type = node_narrow(n, k);
    if (type && n->in[k] && n->out[i] && n->in[k]->type->dtype == n->out[i]->type->dtype)
      return type;
  }
  return 0;
}

// Checks that only operands that may be strings are, and all of these or none.
static bool check_strings(Node *n, int given) {
  int may = 0;
  for (size_t i = 0; i < sizeof takes_strings / sizeof *takes_strings; i++)
    if (str_equal(takes_strings[i].name, n->op)) may = takes_strings[i].operands;
  int strings = 0, others = 0;
  for (int i = 0; i < given; i++) {
    bool allowed = may < 0 || (i < 8 && may >> i & 1);
    if (node_is_string(n, i) && !allowed)
      return node_fail(n, "operand %d is a tensor of strings", i);
    if (allowed && n->in[i]) *(node_is_string(n, i) ? &strings : &others) += 1;
  }
  return !strings || !others || node_fail(n, "its operands are strings and numbers");
}

// Runs the row's function and binds the results.
static bool import_by_row(Import *im, Scope *scope, const Onnx__NodeProto *node, int64_t opset,
                          const Row *row, Value **in, const Sequence **in_sequence) {
  Builder b = {.g = im->g, .origin = {.loc = onnx_node_loc(im, scope, node)}, .d = im->caught};
  Node n = {.op = row->name,
            .opset = (int)opset,
            .index = im->n_nodes,
            .kind = row->kind,
            .n_in = (int)node->n_input,
            .n_out = (int)node->n_output,
            .in = in,
            .in_sequence = in_sequence,
            .b = &b,
            .a = im->a,
            .proto = node,
            .scope = scope,
            .im = im};
  n.read = arena_array(im->a, NodeRead, node->n_attribute);
  // Import functions may set results that the node does not name.
  n.out = arena_array(im->a, Value *, n.n_out + 8);
  n.out_sequence = arena_array(im->a, const Sequence *, n.n_out + 8);
  n.out_narrow = arena_array(im->a, int, n.n_out + 8);
  for (int i = 0; i < n.n_out + 8; i++)
    n.out_narrow[i] = NARROW_as_operand;
  // Operands that are left out at the end do not count.
  int given = n.n_in;
  while (given > 0 && !*onnx_str(node->input[given - 1]))
    given--;
  if (given < row->least || (row->most && given > row->most))
    return node_fail(&n, "has %d operand%s", given, given == 1 ? "" : "s");
  for (int i = 0; i < given; i++) {
    if (in_sequence[i] && !row->sequences)
      return node_fail(&n, "operand %d is %s", i,
                       in_sequence[i]->is_absent ? "an optional without a value"
                                                 : "a sequence of tensors");
    if (i < row->least && !in[i] && !in_sequence[i])
      return node_fail(&n, "operand %d is left out", i);
  }
  if (!check_strings(&n, given)) return false;
  onnx_evaluate_new(im, &n); // for the initializers among the operands
  // An attribute that was not read would change the result.
  Counted counted;
  bool ok = onnx_counted_before(&n, &counted) && !b.failed && row->import(&n) && !b.failed &&
            onnx_counted_after(&n, &counted) && node_check_attributes(&n);
  if (ok) onnx_evaluate_new(im, &n);
  if (!ok || b.failed) {
    im->last = im->g->last;
    // The caught error of an op or of its evaluation is reported at this node, without its
    // location.
    fflush(im->stream);
    const char *said = str_copy(im->a, im->text + im->text_seen), *at = strstr(said, "error: ");
    im->text_seen = im->text_n;
    if (!at) return false;
    at += strlen("error: ");
    const char *text = str_copy_n(im->a, at, strcspn(at, "\n"));
    onnx_node_problem(im, PROBLEM_operands, scope, node, text, NULL);
    return false;
  }
  for (int i = 0; i < n.n_out; i++) {
    const char *name = onnx_str(node->output[i]);
    if (!*name) continue;
    Binding result = {.v = n.out[i], .sequence = n.out_sequence[i], .narrow = narrow_of(&n, i)};
    result.poisoned = !result.v && !result.sequence;
    // Results without readers may be unsupported.
    if (result.poisoned && node_wants(&n, i))
      return node_fail(&n, "its result %d is not supported", i);
    if (result.v && result.v->def && !result.v->name)
      value_set_name(result.v, onnx_value_name(im->m->arena, name));
    onnx_bind_as(im, scope, name, &result);
  }
  return true;
}

// -- Functions ---------------------------------------------------------------------------------

static const char *function_key(Arena *a, const char *domain, const char *name) {
  return str_format(a, "%s:%s", onnx_domain(onnx_str(domain)), onnx_str(name));
}

int onnx_function(const Import *im, const Onnx__NodeProto *node) {
  return name_map_find(&im->functions, function_key(im->a, node->domain, onnx_str(node->op_type)));
}

Scope *onnx_call_scope(Import *im, const Scope *scope, const Onnx__NodeProto *node,
                       const Onnx__FunctionProto *f) {
  // The body sees only its operands, with the opsets of its own.
  Scope *body = onnx_scope_new(im, NULL);
  body->call = node;
  body->caller = scope;
  body->function = f;
  body->prefix = onnx_node_name(im->a, scope, node);
  body->n_opsets = f->n_opset_import ? f->n_opset_import : scope->n_opsets;
  body->opsets = f->n_opset_import ? f->opset_import : scope->opsets;
  return body;
}

static bool import_call(Import *im, Scope *scope, const Onnx__NodeProto *node,
                        const Onnx__FunctionProto *f) {
  // Recursion would not end: functions are put in place.
  for (const Scope *s = scope; s; s = s->caller)
    if (s->function == f) {
      onnx_node_problem(im, PROBLEM_function, scope, node,
                        str_format(im->a, "function '%s' calls itself", onnx_str(f->name)), NULL);
      return false;
    }
  if (node->n_input > f->n_input || node->n_output > f->n_output) {
    onnx_node_problem(im, PROBLEM_function, scope, node,
                      str_format(im->a, "function '%s' has %zu inputs and %zu outputs",
                                 onnx_str(f->name), f->n_input, f->n_output),
                      NULL);
    return false;
  }
  Scope *body = onnx_call_scope(im, scope, node, f);
  // An omitted operand is omitted for its readers in the body as well.
  for (size_t i = 0; i < f->n_input; i++) {
    const char *name = i < node->n_input ? onnx_str(node->input[i]) : "";
    const Binding *operand = *name ? onnx_lookup(scope, name) : NULL;
    onnx_bind_as(im, body, onnx_str(f->input[i]), operand ? operand : &(Binding){0});
  }
  if (!onnx_body(im, body, f->node, f->n_node, f->output, node->n_output)) return false;
  // The results are bound under the names of the call.
  for (size_t i = 0; i < node->n_output; i++) {
    Binding *b = onnx_lookup(body, onnx_str(f->output[i]));
    if (!*onnx_str(node->output[i])) continue;
    if (!b) {
      onnx_node_problem(im, PROBLEM_function, scope, node,
                        str_format(im->a, "function '%s' does not define its output '%s'",
                                   onnx_str(f->name), onnx_str(f->output[i])),
                        NULL);
      return false;
    }
    onnx_binding_value(im, b); // of an initializer
    onnx_bind_as(im, scope, node->output[i], b);
  }
  return true;
}

// -- Bodies ------------------------------------------------------------------------------------

Operator onnx_operator(Import *im, const Scope *scope, const Onnx__NodeProto *node) {
  Operator out = {.name = onnx_str(node->op_type), .domain = onnx_domain(onnx_str(node->domain))};
  // A model without the domain's opset has opset 1, by the standard.
  out.opset = 1;
  for (size_t i = 0; i < scope->n_opsets; i++)
    if (str_equal(onnx_domain(onnx_str(scope->opsets[i]->domain)), out.domain)) {
      out.opset = scope->opsets[i]->version;
      break;
    }
  // The model's own functions override operators of the same name.
  int function = onnx_function(im, node);
  if (function >= 0) {
    out.function = onnx_model(im->file)->functions[function];
    return out;
  }
  // The row of the newest form up to the opset.
  int newest = out.opset < 1 ? 1 : (int)out.opset;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (str_equal(rows[i].name, out.name) && str_equal(rows[i].domain, out.domain) &&
        rows[i].since <= newest && (!out.row || rows[i].since > out.row->since))
      out.row = &rows[i];
  return out;
}

void onnx_operator_problem(Import *im, const Scope *scope, const Onnx__NodeProto *node) {
  Operator o = onnx_operator(im, scope, node);
  const char *cause =
      str_format(im->a, "%s%s%s is not supported", o.domain, *o.domain ? "." : "", o.name);
  onnx_node_problem(im, PROBLEM_operator, scope, node, cause, hint_for(o.domain, o.name));
}

static bool import_node(Import *im, Scope *scope, const Onnx__NodeProto *node) {
  // A weight in a Constant node is bound as an initializer is.
  const Onnx__TensorProto *held = scope->outer ? NULL : onnx_constant_weight(im, node);
  if (held) {
    (void)bind(im, scope, (Binding){.name = onnx_str(node->output[0]), .init = held});
    return true;
  }
  Operator o = onnx_operator(im, scope, node);
  Value **in = arena_array(im->a, Value *, node->n_input + 16);
  const Sequence **sequence = arena_array(im->a, const Sequence *, node->n_input + 16);
  bool has_operands = read_operands(im, scope, node, in, sequence);
  if (!o.function && !o.row) {
    onnx_operator_problem(im, scope, node);
    onnx_survey(im, scope, node);
    return false;
  }
  // Bodies that are not imported, as an operand or a condition is missing, are looked at.
  int bodies = im->n_bodies;
  bool ok = has_operands &&
            // A call of a function of the model is imported in place.
            (o.function ? import_call(im, scope, node, o.function)
                        : import_by_row(im, scope, node, o.opset, o.row, in, sequence));
  if (!ok && im->n_bodies == bodies) onnx_survey(im, scope, node);
  return ok;
}

static bool import_nodes(Import *im, Scope *scope, Onnx__NodeProto *const *node, size_t n,
                         char *const *output, size_t n_output) {
  int *order, n_order;
  if (!onnx_order(im, node, n, output, n_output, scope, &order, &n_order)) return false;
  for (int i = 0; i < n_order; i++) {
    // Loops put in place multiply the nodes, too.
    if (++im->n_nodes > MAX_NODES)
      return diag_error(im->d, im->file->loc,
                        "has more than %d nodes with its functions put in place", MAX_NODES);
    const Onnx__NodeProto *one = node[order[i]];
    bool detached = onnx_is_detached(im, scope, one);
    if (import_node(im, scope, one)) {
      if (detached) onnx_detach_results(im, scope, one);
      onnx_devices_node(im, scope, one, onnx_node_loc(im, scope, one));
    } else {
      // Readers of a failed node fail without a report of their own, if its results have no
      // stand-ins.
      for (size_t k = 0; k < one->n_output; k++) {
        if (!*onnx_str(one->output[k])) continue;
        Value *v = onnx_stand_in(im, scope, one, k);
        onnx_bind(im, scope, one->output[k], v, !v);
      }
    }
  }
  return true;
}

bool onnx_body(Import *im, Scope *scope, Onnx__NodeProto *const *node, size_t n,
               char *const *output, size_t n_output) {
  if (im->depth == ONNX_INLINE_DEPTH)
    return diag_error(im->d, im->file->loc, "functions and branches nest too deep");
  // Functions and branches nest on the C stack.
  im->depth++;
  im->n_bodies++;
  bool ok = import_nodes(im, scope, node, n, output, n_output);
  im->depth--;
  return ok;
}

// -- The model ---------------------------------------------------------------------------------

static bool check_model(Import *im) {
  const Onnx__ModelProto *model = onnx_model(im->file);
  if (!model->graph) return diag_error(im->d, im->file->loc, "has no graph");
  if (model->graph->n_output == 0)
    return diag_error(im->d, im->file->loc, "its graph has no outputs");
  for (size_t i = 0; i < model->n_opset_import; i++) {
    const Onnx__OperatorSetIdProto *set = model->opset_import[i];
    if (set->has_version && set->version < 1)
      return diag_error(im->d, im->file->loc, "opset %lld of '%s': versions begin at 1",
                        (long long)set->version, *onnx_str(set->domain) ? set->domain : "ai.onnx");
    // Newer operators may have the names and forms of known ones.
    if (!*onnx_domain(onnx_str(set->domain)) && set->version > NEWEST_OPSET)
      diag_doubt(im->d, PROBLEM_opset, im->file->loc,
                 "opset %lld is newer than %d: operators that it changes may be misread",
                 (long long)set->version, NEWEST_OPSET);
  }
  for (size_t i = 0; i < model->n_functions; i++) {
    const Onnx__FunctionProto *f = model->functions[i];
    // A function is found by its domain and name; overloads are not told apart.
    const char *key = function_key(im->a, f->domain, f->name);
    if (!name_map_add(&im->functions, key, (int)i))
      return diag_error(im->d, im->file->loc, "function '%s' is defined twice", key);
  }
  if (onnx_expanded_nodes(im) > MAX_NODES)
    return diag_error(im->d, im->file->loc,
                      "has more than %d nodes with its functions put in place", MAX_NODES);
  return true;
}

// Adds a value of output number i.  Where its length depends on data, padding is zero and the
// length is another output, NAME.count.
static bool add_output(Import *im, Scope *scope, const Onnx__GraphProto *graph, size_t i,
                       const char *label, Value *v, BatchDim batch_at) {
  Onnx__NodeProto none = ONNX__NODE_PROTO__INIT;
  Arena *a = im->m->arena;
  const Loc *loc = onnx_place(im->file, a, label);
  Builder b = {.g = im->g, .origin = {.loc = loc}, .d = im->d};
  Node n = {.op = "output", .b = &b, .a = im->a, .proto = &none, .scope = scope, .im = im};
  Value *first = onnx_output(im, graph->output[i], v, batch_at);
  if (!node_counted(&n, v)) {
    graph_output(im->g, first, label);
    return true;
  }
  Counted c = *node_counted(&n, v);
  if (first != v)
    return diag_error(im->d, loc,
                      "output '%s' has a length that depends on data, and its batch is not its "
                      "first dimension",
                      label);
  const char *count = str_format(a, "%s.count", str_copy(a, label));
  for (size_t k = 0; k < graph->n_output; k++)
    if (str_equal(onnx_str(graph->output[k]->name), count))
      return diag_error(im->d, loc,
                        "output '%s' needs the name '%s' for its length, which another "
                        "output has",
                        label, count);
  v = node_pad_with(&n, v, 0);
  if (!v) return false;
  graph_output(im->g, v, label);
  graph_output(im->g, c.count, count);
  OnnxCounts *counts = im->o->counts;
  if (!counts) return true;
  OnnxCount *at = arena_array(counts->arena, OnnxCount, counts->n + 1);
  for (int k = 0; k < counts->n; k++)
    at[k] = counts->at[k];
  at[counts->n++] =
      (OnnxCount){str_copy(counts->arena, label), str_copy(counts->arena, count), c.axis};
  counts->at = at;
  return true;
}

// Binds the inputs of the graph.  Those that failed are poisoned, so that all nodes are still
// imported; `ok` is then false.  Returns whether nodes can be imported.
static bool bind_inputs(Import *im, Scope *scope, size_t most, bool *ok) {
  OnnxInput *inputs = arena_array(im->a, OnnxInput, most);
  int n_inputs;
  *ok = onnx_inputs(im, inputs, &n_inputs);
  for (int i = 0; i < n_inputs; i++) {
    Value *v = NULL;
    if (name_map_find(&scope->names, inputs[i].name) >= 0)
      return diag_error(im->d, onnx_place(im->file, im->a, inputs[i].name), "'%s' is defined twice",
                        inputs[i].name);
    if (inputs[i].type) {
      v = onnx_input(im, &inputs[i]);
      *ok = onnx_hint(im, v, i) && *ok;
    }
    Binding b = {.v = v, .narrow = inputs[i].narrow, .poisoned = !v};
    if (inputs[i].other && !onnx_other_input(im, &inputs[i], onnx_hint_path(im, i), &b))
      *ok = false;
    onnx_bind_as(im, scope, inputs[i].name, &b);
  }
  return true;
}

// Adds the outputs of the graph, by their names.
static bool add_outputs(Import *im, Scope *scope, const Onnx__GraphProto *graph,
                        char *const *output) {
  const BatchDim *batch = batch_dims(im->g, im->a);
  const uint32_t n_analyzed = im->g->n_values;
  bool ok = true;
  for (size_t i = 0; i < graph->n_output; i++) {
    // An output may be an initializer that no node reads.
    Binding *b = onnx_lookup(scope, output[i]);
    Value *v = b && !b->poisoned ? onnx_binding_value(im, b) : NULL;
    const Sequence *s = b && !b->poisoned && !v ? b->sequence : NULL;
    int n_values = s ? s->n : v != NULL;
    if (v && b->narrow == ONNX_STRING && !im->o->strings)
      onnx_problem(im, PROBLEM_form, onnx_place(im->file, im->a, output[i]),
                   str_format(im->a, "output '%s' is a tensor of strings", output[i]),
                   "a program has no strings: end the model before them");
    // Each tensor of a sequence is an output of its own.
    for (int k = 0; k < n_values; k++) {
      const char *name = s ? str_format(im->m->arena, "%s[%d]", output[i], k) : output[i];
      if (s) v = s->at[k];
      // A constant made after the analysis has no batch.
      BatchDim batch_at = v->id < n_analyzed ? batch[v->id] : (BatchDim){-1, 1};
      if (graph_find_output(im->g, name))
        return diag_error(im->d, onnx_place(im->file, im->a, name), "output '%s' is listed twice",
                          name);
      ok = add_output(im, scope, graph, i, name, v, batch_at) && ok;
    }
    if (!b || (s && s->is_absent))
      onnx_problem(im, b ? PROBLEM_form : PROBLEM_graph, onnx_place(im->file, im->a, output[i]),
                   str_format(im->a, "output '%s' is %s", output[i],
                              b ? "an optional without a value" : "not defined"),
                   NULL);
  }
  return ok;
}

// Inputs first, then weights in the order of their first readers.
static bool import_graph(Import *im) {
  const Onnx__ModelProto *model = onnx_model(im->file);
  const Onnx__GraphProto *graph = model->graph;
  Scope *scope = onnx_scope_new(im, NULL);
  scope->prefix = "";
  scope->n_opsets = model->n_opset_import;
  scope->opsets = model->opset_import;
  // Names are bound before any node is imported.
  if (!onnx_initializers(im, scope, graph)) return false;
  onnx_find_constant_weights(im);
  onnx_read_origins(im);
  onnx_declare(im);
  bool ok;
  if (!bind_inputs(im, scope, graph->n_input, &ok)) return false;

  char **output = arena_array(im->a, char *, graph->n_output);
  if (!onnx_check_bounds(im)) return false;
  onnx_detach_begin(im);
  for (size_t i = 0; i < graph->n_output; i++) {
    const char *name = onnx_str(graph->output[i]->name);
    output[i] = arena_copy(im->a, name, strlen(name) + 1);
  }
  if (!onnx_body(im, scope, graph->node, graph->n_node, output, graph->n_output) ||
      !onnx_check_bounds_used(im))
    return false;
  // A node that could not be imported is reported first.
  if (!im->problems.all.n && !onnx_check_detached(im)) return false;
  // All readers are known now: classify the weights.
  onnx_classify_weights(im);
  return add_outputs(im, scope, graph, output) && ok;
}

Module *onnx_import(const char *path, const OnnxOptions *o, Diag *d) {
  Module *m = module_new();
  Arena *a = arena_new();
  OnnxFile file = {0};
  Import im = {.o = o,
               .file = &file,
               .a = a,
               .m = m,
               .d = d,
               .problems = {.arena = a},
               .functions = {.arena = a}};
  int errors = diag_errors(d);
  ProblemKind kind = diag_kind(d, PROBLEM_file);
  bool ok = onnx_open(&file, path, &onnx__model_proto__descriptor, m->arena, d);
  file.unread = o->unread;
  OnnxStrings own = onnx_strings_new(a);
  im.strings = o->strings ? o->strings : &own;
  if (ok) {
    m->source = str_copy(m->arena, path);
    m->phase = PHASE_typed;
    im.g = graph_new(m, "main", true);
    diag_kind(d, PROBLEM_graph); // of errors without a kind of their own
    // Errors of ops are caught in memory, and reported at their nodes.
    im.stream = open_memstream(&im.text, &im.text_n);
    if (!im.stream) abort(); // out of memory
    im.caught = diag_new(im.stream);
    ok = check_model(&im) && onnx_devices_begin(&im) && import_graph(&im) && onnx_devices_end(&im);
    bool whole = ok && !im.problems.all.n && diag_errors(d) == errors;
    if (whole) onnx_tidy(&im);
    ok = onnx_element_types(&im, whole) && ok;
    // What is known of a failed import is enough for the gradients of its ops.
    if (im.problems.all.n) onnx_find_gradients(&im);
    // Reports come last, grouped, whether the import succeeded or not.
    ok = problems_report(&im.problems, 0, d) && ok && diag_errors(d) == errors;
    diag_free(im.caught);
    fclose(im.stream);
    free(im.text);
    onnx_close(&file);
  }
  diag_kind(d, kind);
  arena_free(a);
  if (ok) return m;
  module_free(m);
  return NULL;
}
