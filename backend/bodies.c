// The common part of kernels of fused bodies: see bodies.h.

#include "bodies.h"

#include <string.h>

#include "ir/op.h"
#include "kernels.h"

void kernel_line(Kernel *k, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *text = str_vformat(k->arena, fmt, args);
  va_end(args);
  if (text[0] != '#')
    for (int i = 0; i < k->indent; i++)
      strbuf_add(k->out, "  ");
  strbuf_addf(k->out, "%s\n", text);
}

const Value *kernel_result(const Kernel *k, int i) {
  return k->g->results[i]->use.value;
}

bool kernel_is_sum(const Kernel *k, int i) {
  return k->body.value[kernel_result(k, i)->id].kind == BODY_sum;
}

// -- Types -------------------------------------------------------------------------------------

DType kernel_dtype(DType t) {
  return t == DT_f16 || t == DT_bf16 ? DT_f32 : t;
}

const char *kernel_ctype(const Value *v) {
  return dtype_ctype[kernel_dtype(v->type->dtype)];
}

const char *kernel_stored_ctype(const Value *v) {
  return dtype_ctype[v->type->dtype];
}

const char *kernel_sum_ctype(const Value *v) {
  return dtype_class[v->type->dtype] == 'F' ? "double" : "int64_t";
}

// -- Values ------------------------------------------------------------------------------------

// A scalar, rounded to its type, as a literal of the computation type.
static const char *scalar_text(Kernel *k, const Op *def) {
  DType t = def->out[0]->type->dtype, in = kernel_dtype(t);
  // A type that is computed in has an exact literal.
  if (t == in && def->kind == OP_constant)
    return c_element(k->arena, t, op_attr(def, "value")->data.at, 0);
  if (t == in) return c_number(k->arena, t, attr_f(def, "value"));
  // A 16-bit scalar is rounded to its stored type first.
  uint16_t bits;
  const Type type = {.dtype = t};
  Tensor x = {&type, &bits};
  if (def->kind == OP_constant)
    memcpy(&bits, op_attr(def, "value")->data.at, sizeof bits);
  else
    tensor_set_f(&x, 0, attr_f(def, "value"));
  return c_number(k->arena, in, tensor_f(&x, 0));
}

const char *kernel_value(Kernel *k, const Value *value) {
  const BodyValue *v = &k->body.value[value->id];
  switch (v->kind) {
  case BODY_scalar: return scalar_text(k, v->source->def);
  case BODY_computed:
  case BODY_sum: return str_format(k->arena, "v%u", v->source->id);
  case BODY_operand: break;
  }
  // A body may read one parameter in several ways; each is an operand of its own.
  int i = 0;
  while (i < k->read.n && (k->read.at[i].param != v->source ||
                           memcmp(&k->read.at[i].access, &v->access, sizeof v->access) != 0))
    i++;
  if (i == k->read.n) vec_push(k->arena, &k->read, (Read){v->source, v->access});
  return k->read_text(k, i);
}

// -- Formulas ----------------------------------------------------------------------------------

// Attribute `i` of an elementwise op as C, in the computation type of its formula.
static const char *attr_text(Kernel *k, const Op *op, int i) {
  int n;
  op_attr_specs(op->kind, &n);
  if (i >= n) return "0";
  const Attr *attr = &op->attrs[i];
  double x = attr->kind == 'f' ? attr->f : (double)attr->i;
  const char *text = c_number(k->arena, kernel_dtype(op->in[0].value->type->dtype), x);
  return text[0] == '-' ? str_format(k->arena, "(%s)", text) : text;
}

// Whether a 16-bit result is rounded before it is stored: if an op of the body reads it.  Readers
// must meet the number that memory would have, or a recomputed value, which other kernels read,
// would not be the first one.
static bool is_rounded(const Value *v) {
  bool is_read = false;
  for_each_use(u, v)
    is_read |= u->user != NULL;
  return is_read && dtype_narrow(v->type->dtype);
}

bool kernel_is_exact(const Kernel *k, const Value *value) {
  const BodyValue *v = &k->body.value[value->id];
  return v->kind == BODY_operand || v->kind == BODY_scalar ||
         (v->kind == BODY_computed && is_rounded(v->source));
}

// The formula of `op` with its operands and attributes filled in.
static const char *formula_text(Kernel *k, const Op *op) {
  StrBuf b = {.arena = k->arena};
  // The words x, y, z are operands, and a, b attributes; others stay as they are.
  for (const char *p = op_info[op->kind].formula; *p;) {
    size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    if (n == 1 && strchr("xyz", *p))
      strbuf_add(&b, kernel_value(k, op->in[*p - 'x'].value));
    else if (n == 1 && strchr("ab", *p))
      strbuf_add(&b, attr_text(k, op, *p - 'a'));
    else
      strbuf_add_n(&b, p, n ? n : 1);
    p += n ? n : 1;
  }
  // A number is true when it is not zero, however small.
  DType t = op->out[0]->type->dtype;
  if (op->kind == OP_cast && t == DT_bool) return str_format(k->arena, "%s != 0", b.at);
  if (!is_rounded(op->out[0])) return b.at;
  return str_format(k->arena, "m_round_%s(%s)", dtype_name[t], b.at);
}

void kernel_formulas(Kernel *k) {
  for_each_op(op, k->g) {
    if (op_is_elementwise(op))
      kernel_line(k, "const %s v%u = %s; // %s", kernel_ctype(op->out[0]), op->out[0]->id,
                  formula_text(k, op), op_info[op->kind].name);
  }
}

const char *kernel_addend(Kernel *k, int i) {
  const Op *sum = k->body.value[kernel_result(k, i)->id].source->def;
  return kernel_value(k, sum->in[0].value);
}

const char *kernel_params(Kernel *k) {
  StrBuf b = {.arena = k->arena};
  for (int i = 0; i < k->g->n_results; i++)
    strbuf_addf(&b, "%s%s *y%d", b.n ? ", " : "", kernel_stored_ctype(kernel_result(k, i)), i);
  for (int i = 0; i < k->g->n_params; i++)
    strbuf_addf(&b, "%sconst %s *x%d", b.n ? ", " : "", kernel_stored_ctype(k->g->params[i]), i);
  return b.at ? b.at : "void";
}

const char *kernel_declaration(Arena *a, const Graph *body, const char *name) {
  Kernel k = {.arena = a, .g = body};
  return str_format(a, "int %s(%s)", name, kernel_params(&k));
}
