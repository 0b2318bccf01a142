// Fused bodies of the module, and the formulas of their text: see bodies.h.

#include "bodies.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/op.h"

// -- Digits ------------------------------------------------------------------------------------

void digits_push(Digits *d, int64_t extent, int64_t stride) {
  if (extent == 1) return;
  // The digit before steps over exactly this one.  A step in a text may be of any length.
  int64_t step, whole;
  bool fits = !__builtin_mul_overflow(stride, extent, &step);
  if (d->n > 0 && fits && d->stride[d->n - 1] == step &&
      !__builtin_mul_overflow(d->extent[d->n - 1], extent, &whole)) {
    d->extent[d->n - 1] *= extent;
    d->stride[d->n - 1] = stride;
    return;
  }
  if (d->n == MAX_DIGITS) return;
  d->extent[d->n] = extent;
  d->stride[d->n++] = stride;
}

bool digits_same(const Digits *a, const Digits *b) {
  if (a->n != b->n) return false;
  for (int i = 0; i < a->n; i++)
    if (a->extent[i] != b->extent[i] || a->stride[i] != b->stride[i]) return false;
  return true;
}

// -- The module's body -------------------------------------------------------------------------

static bool points(BodyFacts *f, int64_t n) {
  if (f->count < 0) f->count = n;
  return f->count == n;
}

// The index of a stretched operand.
static Digits stretched(const Type *from, const Type *to) {
  Digits d = {0};
  int64_t step = 1, stride[MAX_NDIM] = {0};
  int shift = to->ndim - from->ndim;
  for (int i = from->ndim - 1; i >= 0; i--) {
    if (from->dim[i] != 1) stride[i + shift] = step;
    step *= from->dim[i];
  }
  for (int i = 0; i < to->ndim; i++)
    digits_push(&d, to->dim[i], stride[i]);
  return d;
}

static bool read_sum(BodyFacts *f, const Op *op) {
  const Type *t = op->in[0].value->type;
  int64_t kept = 1;
  // Dimensions of one element are both kept and summed.
  int n = 0, changes = 0;
  bool last = false, first = false;
  for (int d = 0; d < t->ndim; d++) {
    bool summed = false;
    for (int i = 0; i < attr_n(op, "axes"); i++)
      summed |= attr_list(op, "axes")[i] == d;
    if (t->dim[d] == 1) continue;
    if (!summed) kept *= t->dim[d];
    if (n++ == 0)
      first = summed;
    else
      changes += summed != last;
    last = summed;
  }
  if (n == 0 || changes > 1 || (changes == 0 && !first) || !points(f, type_count(t))) return false;
  bool rows = last;
  if ((f->rows || f->columns) && (f->rows != rows || f->n_kept != kept)) return false;
  f->rows = rows;
  f->columns = !rows;
  f->n_kept = kept;
  return true;
}

static bool read_op(BodyFacts *f, const Op *op) {
  Fact *out = &f->value[op->out[0]->id];
  *out = (Fact){.source = op->out[0]};
  const Fact *in = op->n_in ? &f->value[op->in[0].value->id] : NULL;
  const Type *from = op->n_in ? op->in[0].value->type : NULL, *to = op->out[0]->type;
  if (op_info[op->kind].formula) {
    out->kind = FACT_computed;
    return points(f, type_count(to));
  }
  if (op->kind == OP_fill || op->kind == OP_constant) {
    out->kind = FACT_scalar;
    return op->kind == OP_fill || type_count(to) == 1;
  }
  if (op->kind == OP_reduce_sum) {
    out->kind = FACT_sum;
    return read_sum(f, op);
  }
  if (op->kind != OP_reshape && op->kind != OP_broadcast) return false;
  *out = *in;
  if (op->kind == OP_reshape || type_count(from) == type_count(to)) return true;
  // A stretch of a stretched operand is not covered, and `fuse` makes none.
  if (in->kind == FACT_operand && in->at.n > 0 && (in->at.n > 1 || in->at.stride[0] != 1))
    return false;
  out->at = stretched(from, to);
  return in->kind == FACT_operand || in->kind == FACT_scalar;
}

bool facts_read(Check *c, const Graph *g, const Cursor *at, BodyFacts *f) {
  *f = (BodyFacts){.c = c, .g = g, .count = -1};
  f->value = arena_array(c->arena, Fact, g->n_values);
  for (int i = 0; i < g->n_params; i++) {
    Fact *v = &f->value[g->params[i]->id];
    *v = (Fact){.kind = FACT_operand, .source = g->params[i]};
    digits_push(&v->at, type_count(g->params[i]->type), 1);
  }
  bool ok = true;
  for_each_op(op, g)
    ok = ok && read_op(f, op);
  for (int i = 0; ok && i < g->n_results; i++)
    ok = facts_is_sum(f, i) || points(f, type_count(facts_result(f, i)->type));
  return ok || mismatch(c, at, "'@%s' has no single pass over points", g->name);
}

const Value *facts_result(const BodyFacts *f, int i) {
  return f->g->results[i]->use.value;
}

bool facts_is_sum(const BodyFacts *f, int i) {
  return f->value[facts_result(f, i)->id].kind == FACT_sum;
}

DType computed_dtype(DType t) {
  return t == DT_f16 || t == DT_bf16 ? DT_f32 : t;
}

const char *computed_ctype(const Value *v) {
  return dtype_ctype[computed_dtype(v->type->dtype)];
}

const char *stored_ctype(const Value *v) {
  return dtype_ctype[v->type->dtype];
}

// -- Formulas ----------------------------------------------------------------------------------

// Takes a number of computation type `t`, possibly negative, as a literal that has exactly this
// value.
static bool take_literal(Cursor *at, DType t, double real, int64_t whole) {
  Cursor p = *at;
  bool paren = take(&p, "("), minus = take(&p, "-");
  if (paren && !minus) return false;
  if (dtype_class[t] == 'F') {
    CToken token = cursor_next(&p);
    double have;
    if (!ctoken_float(&token, t == DT_f32 ? "f" : "", &have)) return false;
    if (minus) have = -have;
    if (t == DT_f32) real = (double)(float)real;
    if (isnan(real) ? !isnan(have) : have != real || signbit(have) != signbit(real)) return false;
  } else {
    CToken token = cursor_peek(&p);
    int64_t have;
    // Of 64 unsigned bits.
    if (t == DT_u64 && token.kind == C_number && token.at[token.n - 1] == 'u') {
      uint64_t bits;
      if (!ctoken_unsigned(&token, &bits)) return false;
      have = (int64_t)bits;
      cursor_next(&p);
    } else if (!take(&p, "%i", &have))
      return false;
    if (minus && have != INT64_MIN) have = -have;
    if (have != whole) return false;
  }
  if (paren && !take(&p, ")")) return false;
  *at = p;
  return true;
}

// A fill or constant of one number, rounded to its type.
static bool take_scalar(Check *c, Cursor *at, const Op *def) {
  DType t = def->out[0]->type->dtype;
  const Type one = {.dtype = t};
  _Alignas(8) char bytes[8] = {0};
  Tensor x = {&one, bytes};
  if (def->kind == OP_constant)
    memcpy(bytes, op_attr(def, "value")->data.at, (size_t)dtype_bytes[t]);
  else
    tensor_set_f(&x, 0, attr_f(def, "value"));
  bool floating = dtype_class[t] == 'F';
  return take_literal(at, computed_dtype(t), floating ? tensor_f(&x, 0) : 0,
                      floating ? 0 : tensor_i(&x, 0)) ||
         mismatch(c, at, "this is not the number of '%s'", op_text(def, c->arena));
}

static bool take_attr(Check *c, Cursor *at, const Op *op, int i) {
  int n;
  op_attr_specs(op->kind, &n);
  DType t = computed_dtype(op->in[0].value->type->dtype);
  double x = i >= n ? 0 : op->attrs[i].kind == 'f' ? op->attrs[i].f : (double)op->attrs[i].i;
  if (i >= n) return want(c, at, "0");
  bool whole = x >= -0x1p63 && x < 0x1p63 && x == floor(x);
  // A fraction in the formula of integers is computed in double.
  if (dtype_class[t] == 'B') return take_literal(at, t, 0, x != 0) || unexpected(c, at, "a flag");
  bool high = t == DT_u64 && x >= 0x1p63 && x < 0x1p64 && x == floor(x);
  if (dtype_class[t] != 'F' && !whole && !high) t = DT_f64;
  return take_literal(at, t, x,
                      high    ? (int64_t)(uint64_t)x
                      : whole ? (int64_t)x
                              : 0) ||
         mismatch(c, at, "this is not the attribute '%s' of '%s'", op->attrs[i].name,
                  op_text(op, c->arena));
}

static bool same_token(const CToken *a, const CToken *b) {
  return a->n == b->n && !memcmp(a->at, b->at, (size_t)a->n);
}

bool take_value(BodyFacts *f, Cursor *at, const Value *v, Reads *reads) {
  Check *c = f->c;
  const Fact *fact = &f->value[v->id];
  if (fact->kind == FACT_scalar) return take_scalar(c, at, fact->source->def);
  const Cursor before = *at;
  CToken name;
  if (!take(at, "%w", &name)) return unexpected(c, at, "a value of the body");
  if (fact->kind == FACT_computed) {
    const Fact *source = &f->value[fact->source->id];
    return (source->name.n && same_token(&source->name, &name)) ||
           mismatch(c, &before, "this is not '%s'", op_text(fact->source->def, c->arena));
  }
  if (fact->kind == FACT_sum) return mismatch(c, &before, "a sum has no element at a point");
  for (int i = 0; i < reads->n; i++) {
    ReadText *r = &reads->at[i];
    if (!same_token(&r->name, &name)) continue;
    if (r->each && !want(c, at, "[j]")) return false;
    if (r->bound && (r->param != fact->source->index || !digits_same(&r->at, &fact->at)))
      return mismatch(c, &before, "this is another operand");
    r->bound = true;
    r->param = fact->source->index;
    r->at = fact->at;
    return true;
  }
  return mismatch(c, &before, "this is not operand %d", fact->source->index);
}

// The formula of the row, token by token, with its letters replaced.
static bool take_formula(BodyFacts *f, Cursor *at, const Op *op, Reads *reads) {
  const char *text = op_info[op->kind].formula;
  const CFile file = {"formula", text, text + strlen(text), f->c->arena};
  Cursor rule = cursor_of(&file);
  for (CToken t; t = cursor_next(&rule), t.kind != C_end;) {
    char letter = t.n == 1 && t.kind == C_name ? *t.at : 0;
    if (letter >= 'x' && letter <= 'z') {
      if (!take_value(f, at, op->in[letter - 'x'].value, reads)) return false;
    } else if (letter == 'a' || letter == 'b') {
      if (!take_attr(f->c, at, op, letter - 'a')) return false;
    } else {
      CToken have = cursor_peek(at);
      if (have.kind != t.kind || !same_token(&have, &t))
        return unexpected(f->c, at,
                          str_format(f->c->arena, "'%.*s' of the formula of %s", t.n, t.at,
                                     op_info[op->kind].name));
      cursor_next(at);
    }
  }
  return true;
}

bool is_numbered(const CToken *name, const char *letters) {
  bool ok = name->kind == C_name && name->n > 1 && strchr(letters, *name->at);
  for (int i = 1; ok && i < name->n; i++)
    ok = name->at[i] >= '0' && name->at[i] <= '9';
  return ok;
}

bool is_free_name(const BodyFacts *f, const Reads *reads, const CToken *name, char letter) {
  bool is_free = is_numbered(name, (const char[]){letter, 0});
  for (int i = 0; i < reads->n; i++)
    is_free &= !same_token(&reads->at[i].name, name);
  for (uint32_t i = 0; i < f->g->n_values; i++)
    is_free &= !f->value[i].name.n || !same_token(&f->value[i].name, name);
  return is_free;
}

// Whether an op of the body reads the value.
static bool is_read(const Value *v) {
  for_each_use(u, v)
    if (u->user) return true;
  return false;
}

bool fact_is_exact(const BodyFacts *f, const Value *v) {
  const Fact *fact = &f->value[v->id];
  return fact->kind != FACT_sum && (fact->kind != FACT_computed || is_read(fact->source));
}

bool take_formulas(BodyFacts *f, Cursor *at, Reads *reads) {
  Check *c = f->c;
  for_each_op(op, f->g) {
    if (!op_info[op->kind].formula) continue;
    const Value *y = op->out[0];
    Fact *fact = &f->value[y->id];
    CToken type, name;
    const Cursor before = *at;
    if (!take(at, "const %w %w =", &type, &name)) {
      unexpected(c, at, str_format(c->arena, "'%s' of the body", op_text(op, c->arena)));
      return false;
    }
    if (!ctoken_is(&type, computed_ctype(y)))
      return mismatch(c, &before, "'%s' is computed in %s", op_text(op, c->arena),
                      computed_ctype(y));
    if (!is_free_name(f, reads, &name, 'v'))
      return mismatch(c, &before, "'%s' is no name of a new value, which v and a number are",
                      ctoken_text(&name, c->arena));
    // Readers meet the numbers of memory.
    DType t = y->type->dtype;
    bool narrows = is_read(y) && computed_dtype(t) != t;
    if (narrows && !want(c, at, str_format(c->arena, "m_round_%s(", dtype_name[t]))) return false;
    if (!take_formula(f, at, op, reads)) return false;
    if (narrows && !want(c, at, ")")) return false;
    if (op->kind == OP_cast && t == DT_bool && !want(c, at, "!= 0")) return false;
    if (!want(c, at, ";")) return false;
    fact->name = name;
  }
  return true;
}

// ----------------------------------------------------------------------------------------------

bool body_check(Check *c, Unit *unit, const Op *fused) {
  // Calls of one op in several rank programs are of one body.
  if (unit->fused == fused->callee) return true;
  const char *function = c->function;
  BodyFacts facts;
  c->function = unit->name;
  bool ok = facts_read(c, fused->callee, &unit->at, &facts) &&
            (c->target == TARGET_cuda ? body_check_cuda(&facts, unit) : body_check_c(&facts, unit));
  unit->fused = fused->callee;
  c->function = function;
  return ok;
}
