// The list of a model's strings, and tensors of their numbers: see onnx_strings.h.

#include "frontend/onnx_strings.h"

#include <string.h>

#include "frontend/onnx_walk.h"

OnnxStrings onnx_strings_new(Arena *a) {
  return (OnnxStrings){.arena = a, .numbers = {.arena = a}};
}

int64_t onnx_string_number(OnnxStrings *s, const char *text) {
  int at = name_map_find(&s->numbers, text);
  if (at >= 0) return at;
  text = str_copy(s->arena, text);
  at = s->at.n;
  vec_push(s->arena, &s->at, text);
  (void)name_map_add(&s->numbers, text, at);
  return at;
}

bool onnx_string(OnnxStrings *s, ProtobufCBinaryData bytes, const Loc *loc, int64_t *out, Diag *d) {
  if (bytes.len && memchr(bytes.data, 0, bytes.len))
    return diag_error(d, loc, "a string holds a zero byte");
  *out = onnx_string_number(s, onnx_text(s->arena, bytes));
  return true;
}

bool onnx_string_tensor(OnnxStrings *s, const Onnx__TensorProto *proto, Module *m, Arena *a,
                        const Loc *loc, Tensor *out, Diag *d) {
  const char *name = onnx_str(proto->name);
  int64_t dim[MAX_NDIM] = {0}, count = 1;
  if (proto->n_dims > MAX_NDIM)
    return diag_error(d, loc, "tensor '%s' has %zu dimensions; the limit is %d", name,
                      proto->n_dims, MAX_NDIM);
  for (size_t i = 0; i < proto->n_dims; i++) {
    dim[i] = proto->dims[i];
    if (dim[i] < 0)
      return diag_error(d, loc, "tensor '%s' has a dimension of %lld", name, (long long)dim[i]);
    if (__builtin_mul_overflow(count, dim[i], &count))
      return diag_error(d, loc, "the size of tensor '%s' overflows", name);
  }
  if ((int64_t)proto->n_string_data != count)
    return diag_error(d, loc, "tensor '%s' has %zu elements; its shape asks for %lld", name,
                      proto->n_string_data, (long long)count);
  *out = tensor_new(a, type_new(m, DT_i64, (int)proto->n_dims, dim));
  for (int64_t i = 0; i < count; i++) {
    int64_t number = 0;
    if (!onnx_string(s, proto->string_data[i], loc, &number, d)) return false;
    tensor_set_i(out, i, number);
  }
  return true;
}

// -- For the functions that import ops ---------------------------------------------------------

bool node_is_string(const Node *n, int i) {
  return node_narrow(n, i) == ONNX_STRING;
}

bool node_strings(Node *n, int i, const char *what, NodeStrings *out) {
  const Tensor *t;
  const OnnxStrings *all = n->im->strings;
  if (!node_is_string(n, i)) return node_fail(n, "operand %d is not a tensor of strings", i);
  if (!node_setting(n, i, what, &t)) return false;
  int64_t count = type_count(t->type);
  const char **at = arena_array(n->a, const char *, count + 1);
  for (int64_t k = 0; k < count; k++) {
    int64_t number = tensor_i(t, k);
    if (number < 0 || number >= all->at.n) return node_fail(n, "its %s has no text", what);
    at[k] = all->at.at[number];
  }
  *out = (NodeStrings){t->type, count, at};
  return true;
}

Value *node_strings_value(Node *n, int ndim, const int64_t *dim, const char *const *at) {
  if (!node_shape(n, ndim, dim)) return NULL;
  Tensor t = tensor_new(n->a, type_new(n->im->m, DT_i64, ndim, dim));
  for (int64_t i = 0; i < type_count(t.type); i++)
    tensor_set_i(&t, i, onnx_string_number(n->im->strings, at[i]));
  return build_constant(n->b, t.type, t.data);
}

bool node_string_list(Node *n, const char *name, Ints *out) {
  const Onnx__AttributeProto *attr = node_attr(n, name);
  *out = (Ints){0};
  if (!attr || attr->n_strings == 0) return false;
  int64_t *at = arena_array(n->a, int64_t, attr->n_strings);
  for (size_t i = 0; i < attr->n_strings; i++)
    if (!onnx_string(n->im->strings, attr->strings[i], n->b->origin.loc, &at[i], n->im->d)) {
      n->b->failed = true;
      return false;
    }
  *out = (Ints){(int)attr->n_strings, at};
  return true;
}
