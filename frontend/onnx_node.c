// The services of onnx_node.h: attributes, settings, shapes, and the small compositions that many
// ops share.

#include "frontend/onnx_node.h"

#include <string.h>

#include "frontend/onnx_walk.h"

#define TYPE(name) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name

// -- Attributes --------------------------------------------------------------------------------

static const Onnx__AttributeProto *find(size_t n, Onnx__AttributeProto *const *attr,
                                        const char *name) {
  for (size_t i = 0; i < n; i++)
    if (str_equal(onnx_str(attr[i]->name), name)) return attr[i];
  return NULL;
}

static const Onnx__AttributeProto *resolve(const Scope *scope, const Onnx__NodeProto *node,
                                           const char *name) {
  const Onnx__AttributeProto *attr = find(node->n_attribute, node->attribute, name);
  const char *outer = NULL;
  // An attribute of a function's node may refer to one of the call.
  while (attr && *onnx_str(attr->ref_attr_name)) {
    if (!scope->call) return NULL;
    outer = attr->ref_attr_name;
    attr = find(scope->call->n_attribute, scope->call->attribute, outer);
    if (!attr) break;
    scope = scope->caller;
  }
  // Its default is in a node of the function without op_type: see onnx_read.h.
  const Onnx__FunctionProto *f = outer && !attr ? scope->function : NULL;
  for (size_t i = 0; f && i < f->n_node && !attr; i++)
    if (!*onnx_str(f->node[i]->op_type))
      attr = find(f->node[i]->n_attribute, f->node[i]->attribute, outer);
  return attr;
}

// Marks the attribute as read: those that are never read are refused later, and those that hold
// something else than is read.
static const Onnx__AttributeProto *read_as(const Node *n, const char *name, NodeRead as) {
  for (size_t i = 0; i < n->proto->n_attribute; i++)
    if (str_equal(onnx_str(n->proto->attribute[i]->name), name)) n->read[i] |= as;
  return resolve(n->scope, n->proto, name);
}

const Onnx__AttributeProto *node_attr(const Node *n, const char *name) {
  return read_as(n, name, READ_any);
}

// Whether it has a value of the type.  Writers of the third version of protobuf leave out numbers
// that are 0, texts and lists that are empty: then the type alone tells.
static bool holds(const Onnx__AttributeProto *a, NodeRead as) {
  int type = a->has_type ? (int)a->type : 0;
  return as & READ_any || (as & READ_int && (a->has_i || type == TYPE(INT))) ||
         (as & READ_float && (a->has_f || type == TYPE(FLOAT))) ||
         (as & READ_text && (a->has_s || type == TYPE(STRING))) ||
         (as & READ_ints && (a->n_ints || type == TYPE(INTS)));
}

static const char *read_name(NodeRead as) {
  return as & READ_int     ? "an integer"
         : as & READ_float ? "a floating-point number"
         : as & READ_text  ? "a text"
                           : "a list of integers";
}

// Attributes that need not be read: they do not change the operator's result, or not in all of its
// forms.
static const struct {
  const char *name, *operators; // "": every one
} harmless[] = {
    {"consumed_inputs", ""},                      // memory that it may reuse
    {"stash_type", ""},                           // the precision inside it
    {"saturate", "Cast CastLike QuantizeLinear"}, // of numbers of 8 bits or less
    {"round_mode", "Cast CastLike"},
    {"seed", "Dropout"},
    {"momentum", "BatchNormalization"}, // in training
    {"is_test", "BatchNormalization Dropout"},
    {"noop_with_empty_axes", ""}, // of reductions with axes
};

static bool is_harmless(const Node *n, const char *name) {
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (str_equal(name, harmless[i].name)) {
      // The operator is a whole word of the list.
      const char *all = harmless[i].operators, *found = strstr(all, n->op);
      char after = found ? found[strlen(n->op)] : 0;
      return !*all || (found && (found == all || found[-1] == ' ') && (!after || after == ' '));
    }
  return false;
}

bool node_check_attributes(Node *n) {
  for (size_t i = 0; i < n->proto->n_attribute; i++) {
    const Onnx__AttributeProto *a = n->proto->attribute[i];
    const Onnx__AttributeProto *held = resolve(n->scope, n->proto, a->name);
    if (n->read[i] && held && !holds(held, n->read[i]))
      return node_fail(n, "its attribute '%s' must be %s", onnx_str(a->name),
                       read_name(n->read[i]));
    bool known = n->read[i] || is_harmless(n, onnx_str(a->name));
    if (!known && held)
      return node_fail(n, "its attribute '%s' is not supported", onnx_str(a->name));
  }
  return true;
}

int64_t node_int(const Node *n, const char *name, int64_t otherwise) {
  const Onnx__AttributeProto *attr = read_as(n, name, READ_int);
  return attr && holds(attr, READ_int) ? attr->i : otherwise;
}

double node_float(const Node *n, const char *name, double otherwise) {
  const Onnx__AttributeProto *attr = read_as(n, name, READ_float);
  return attr && holds(attr, READ_float) ? (double)attr->f : otherwise;
}

const char *node_str(const Node *n, const char *name, const char *otherwise) {
  const Onnx__AttributeProto *attr = read_as(n, name, READ_text);
  if (!attr || !holds(attr, READ_text)) return otherwise;
  return attr->has_s ? onnx_text(n->a, attr->s) : "";
}

bool node_list(const Node *n, const char *name, Ints *out) {
  const Onnx__AttributeProto *attr = read_as(n, name, READ_ints);
  *out = (Ints){0};
  if (!attr) return false;
  *out = (Ints){(int)attr->n_ints, attr->ints};
  return true;
}

bool node_tensor(Node *n, const Onnx__TensorProto *proto, Tensor *out) {
  Import *im = n->im;
  const Loc *loc = n->b->origin.loc;
  OnnxTensor t;
  bool strings = proto->data_type == ONNX_STRING;
  bool ok = strings ? onnx_string_tensor(im->strings, proto, im->m, n->a, loc, out, im->d)
                    : onnx_tensor(im->file, im->o->external_data_dir, proto, n->a, loc, &t, im->d);
  if (ok && !strings) {
    // Half precision is computed in f32.
    const Type *type = type_new(im->m, onnx_compute_dtype(t.dtype, im->o->keep_f64), t.ndim, t.dim);
    ok = onnx_tensor_load(im->file, &t, type, n->a, loc, out, im->d);
  }
  if (!ok) n->b->failed = true; // it has been reported
  return ok;
}

bool node_floats(Node *n, const char *name, Floats *out) {
  *out = (Floats){0};
  const Onnx__AttributeProto *attr = node_attr(n, name);
  const Onnx__AttributeProto *other = node_attr(n, str_format(n->a, "%s_as_tensor", name));
  if (other && other->t) attr = other;
  if (!attr) return true;
  double *at = arena_array(n->a, double, attr->n_floats + 1);
  for (size_t i = 0; i < attr->n_floats; i++)
    at[i] = (double)attr->floats[i];
  *out = (Floats){(int)attr->n_floats, at};
  if (!attr->t) return true;
  Tensor t;
  if (attr->t->data_type == ONNX_STRING) return node_fail(n, "%s is of strings", name);
  if (!node_tensor(n, attr->t, &t)) return false;
  int64_t count = type_count(t.type);
  at = arena_array(n->a, double, count + 1);
  for (int64_t i = 0; i < count; i++)
    at[i] = tensor_f(&t, i);
  *out = (Floats){(int)count, at};
  return node_small(n, count);
}

// -- Operands ----------------------------------------------------------------------------------

Value *node_in(const Node *n, int i) {
  return i < n->n_in ? n->in[i] : NULL;
}

int node_narrow(const Node *n, int i) {
  const char *name = i < (int)n->proto->n_input ? onnx_str(n->proto->input[i]) : "";
  const Binding *b = *name ? onnx_lookup(n->scope, name) : NULL;
  return b ? b->narrow : 0;
}

bool node_wants(const Node *n, int out) {
  if (out >= n->n_out) return false;
  const char *name = onnx_str(n->proto->output[out]);
  return *name && name_map_find(&n->scope->read, name) >= 0;
}

void node_keep(Node *n, int i, OnnxWhy why) {
  onnx_keep(n->im, node_in(n, i), why);
}

int node_ndim(const Node *n, int i) {
  return n->in[i]->type->ndim;
}

bool node_setting(Node *n, int i, const char *what, const Tensor **out) {
  const Value *v = node_in(n, i);
  *out = NULL;
  if (!v) return true;
  // Known at compile time, if only by a hint.
  *out = onnx_hinted(n, v);
  if (*out) return true;
  const char *name = onnx_str(n->proto->input[i]);
  const Binding *b = onnx_lookup(n->scope, name);
  OnnxTensor t;
  // A small initializer that other nodes may read as a weight: its value in the file.
  if (b && b->init && !v->def && v->init && v->init->length <= 1 << 20) {
    Tensor *tensor = arena_one(n->a, Tensor);
    *out = tensor;
    if (onnx_tensor(n->im->file, n->im->o->external_data_dir, b->init, n->a, n->b->origin.loc, &t,
                    n->im->d) &&
        onnx_tensor_load(n->im->file, &t, v->type, n->a, n->b->origin.loc, tensor, n->im->d))
      return true;
    // Its bytes could not be read.
    n->b->failed = true; // it has been reported
    return false;
  }
  return node_fail_as(
      n, PROBLEM_setting,
      "it is computed from an input or a weight; shapes and settings must be known "
      "at compile time: export with fixed shapes, or bind them by --batch and --dim",
      "its %s, '%s', is not constant", what, name);
}

bool node_setting_float(Node *n, int i, const char *what, double otherwise, double *out) {
  const Tensor *t;
  *out = otherwise;
  if (!node_setting(n, i, what, &t)) return false;
  // Left out: the default.
  if (!t) return true;
  if (type_count(t->type) != 1)
    return node_fail(n, "its %s is %s, and one number is needed", what, type_text(n->a, t->type));
  *out = tensor_f(t, 0);
  return true;
}

bool node_setting_int(Node *n, int i, const char *what, int64_t otherwise, int64_t *out) {
  const Tensor *t;
  *out = otherwise;
  if (!node_setting(n, i, what, &t)) return false;
  // Left out: the default.
  if (!t) return true;
  if (type_count(t->type) != 1)
    return node_fail(n, "its %s is %s, and one number is needed", what, type_text(n->a, t->type));
  *out = tensor_i(t, 0);
  return true;
}

bool node_ints(Node *n, int i, const char *what, Ints *out, bool *given) {
  *given = true;
  if (node_list(n, what, out)) return true;
  // An attribute in older opsets, an operand in newer ones.
  const Tensor *t;
  if (!node_setting(n, i, what, &t)) return false;
  *given = t != NULL;
  if (!t) return true;
  if (t->type->ndim > 1 || dtype_class[t->type->dtype] == 'F')
    return node_fail(n, "its %s are %s, and a list of integers is needed", what,
                     type_text(n->a, t->type));
  int count = (int)type_count(t->type);
  int64_t *at = arena_array(n->a, int64_t, count + 1);
  for (int k = 0; k < count; k++)
    at[k] = tensor_i(t, k);
  *out = (Ints){count, at};
  return true;
}

// -- Shapes ------------------------------------------------------------------------------------

bool node_axis(Node *n, int64_t axis, int ndim, int *out) {
  *out = (int)(axis < 0 ? axis + ndim : axis);
  if (axis >= -ndim && axis < ndim) return true;
  *out = 0;
  return node_fail(n, "axis %lld is outside of a tensor of %d dimensions", (long long)axis, ndim);
}

bool node_shape(Node *n, int ndim, const int64_t *dim) {
  if (ndim > MAX_NDIM)
    return node_fail(n, "a tensor of %d dimensions; the limit is %d", ndim, MAX_NDIM);
  int64_t count = 8;
  for (int i = 0; i < ndim; i++) {
    if (dim[i] < 0) return node_fail(n, "a dimension of %lld", (long long)dim[i]);
    // In bytes, of the largest element type; a dimension of 0 must not hide an overflow.
    if (__builtin_mul_overflow(count, dim[i] ? dim[i] : 1, &count))
      return node_fail(n, "the size of its result overflows");
  }
  return true;
}

bool node_small(Node *n, int64_t count) {
  enum { MOST = 1 << 24 };
  return count <= MOST || node_fail(n, "it has more than %d elements", MOST);
}

bool node_broadcast_shape(Node *n, Value *const *in, int n_in, int *ndim, int64_t *dim) {
  *ndim = 0;
  for (int i = 0; i < n_in; i++) {
    if (!in[i]) return false;
    if (in[i]->type->ndim > *ndim) *ndim = in[i]->type->ndim;
  }
  for (int k = 0; k < *ndim; k++) {
    // Shapes are aligned at the end; a 1 fits every length.
    dim[k] = 1;
    for (int i = 0; i < n_in; i++) {
      const Type *t = in[i]->type;
      int at = k - (*ndim - t->ndim);
      if (at < 0 || t->dim[at] == 1 || t->dim[at] == dim[k]) continue;
      if (dim[k] != 1)
        return node_fail(n, "%s and %s do not broadcast", type_text(n->a, in[0]->type),
                         type_text(n->a, t));
      dim[k] = t->dim[at];
    }
  }
  return node_shape(n, *ndim, dim);
}

bool node_broadcast(Node *n, Value **in, int n_in) {
  int ndim;
  int64_t dim[MAX_NDIM];
  if (!node_broadcast_shape(n, in, n_in, &ndim, dim)) return false;
  // An operand that has the shape already stays itself.
  for (int i = 0; i < n_in; i++)
    in[i] = build_broadcast(n->b, in[i], ndim, dim);
  return !n->b->failed;
}

// -- Compositions ------------------------------------------------------------------------------

Value *node_scalar(Node *n, DType dtype, double x) {
  return build_fill(n->b, dtype, 0, NULL, x);
}

Value *node_like(Node *n, const Value *v, double x) {
  return v ? build_fill(n->b, v->type->dtype, v->type->ndim, v->type->dim, x) : NULL;
}

Value *node_ints_value(Node *n, const int64_t *at, int count) {
  return build_constant(n->b, type_new(n->im->m, DT_i64, 1, (int64_t[]){count}), at);
}

Value *node_numbers(Node *n, DType dtype, int ndim, const int64_t *dim, const double *at) {
  if (!node_shape(n, ndim, dim)) return NULL;
  Tensor t = tensor_new(n->a, type_new(n->im->m, dtype, ndim, dim));
  for (int64_t i = 0; i < type_count(t.type); i++)
    tensor_set_f(&t, i, at[i]);
  return build_constant(n->b, t.type, t.data);
}

Value *node_count_up(Node *n, int64_t count) {
  if (!node_small(n, count)) return NULL;
  int64_t *at = arena_array(n->a, int64_t, count + 1);
  for (int64_t i = 0; i < count; i++)
    at[i] = i;
  return node_ints_value(n, at, (int)count);
}

Value *node_part(Node *n, Value *x, int axis, int64_t start, int64_t length) {
  // The whole dimension needs no slice.
  return x && length == x->type->dim[axis] ? x : build_slice(n->b, x, axis, start, length);
}

Value *node_unary(Node *n, OpKind kind, Value *x) {
  return build_op(n->b, kind, IN(x), NO_ATTRS);
}

Value *node_offset(Node *n, Value *x, double by) {
  return build_op(n->b, OP_offset, IN(x), ATTRS(a_f("by", by)));
}

Value *node_clip(Node *n, Value *x, double low, double high) {
  return build_op(n->b, OP_clip, IN(x), ATTRS(a_f("low", low), a_f("high", high)));
}

Value *node_between(Node *n, Value *x, double low, double high) {
  if (!x) return NULL;
  Value *above = build_binary(n->b, OP_greater_equal, x, node_like(n, x, low));
  Value *below = build_binary(n->b, OP_less_equal, x, node_like(n, x, high));
  return build_binary(n->b, OP_and, above, below);
}

Value *node_binary(Node *n, OpKind kind, Value *x, Value *y) {
  Value *in[] = {x, y};
  return node_broadcast(n, in, 2) ? build_op(n->b, kind, in, 2, NO_ATTRS) : NULL;
}

// Integers round towards zero, as numpy's division of their sum does.
Value *node_mean(Node *n, Value *x, const int64_t *axes, int n_axes, bool keep) {
  if (!x || n_axes == 0) return x;
  // The number of elements per result.
  double count = 1;
  const Counted *counted = node_counted(n, x);
  Value *by = NULL;
  for (int i = 0; i < n_axes; i++) {
    if (counted && counted->axis == axes[i])
      by = counted->count;
    else
      count *= (double)x->type->dim[axes[i]];
  }
  Value *sum = build_reduce_sum(n->b, x, axes, n_axes, keep);
  if (by) {
    Value *number =
        node_mul(n, build_cast(n->b, by, x->type->dtype), node_scalar(n, x->type->dtype, count));
    // An integer cannot be divided by zero.
    if (number && dtype_class[x->type->dtype] != 'F')
      number = build_op(n->b, OP_max, IN(number, node_like(n, number, 1)), NO_ATTRS);
    return node_div(n, sum, number);
  }
  if (dtype_class[x->type->dtype] == 'F') return build_scale(n->b, sum, 1 / count);
  return node_binary(n, OP_div, sum, node_like(n, sum, count));
}
