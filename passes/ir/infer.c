// New ops: their operands and attributes checked against their row of ops.def, and the types of
// their results inferred from it.
//
// The types column decides element types.  A class stands for any of its types; equal classes in
// one row are the same type:
//
//     F, I -> F, F          cross_entropy: two results of the type of the logits
//     A... -> A             concat: any number of operands, all of one type
//     A -> to               cast: the attribute `to` says
//     F, S -> F, S          rms_norm: S is f64 when F is f64, else f32; F comes before it
//
// The einsum decides the shapes; see dims.c.

#include <ctype.h>
#include <string.h>

#include "ir/intern.h"
#include "ir/loop.h"
#include "ir/op.h"
#include "ir/verify/verify.h"

enum { MAX_COLUMN = 16 };

// A parsed types column.
typedef struct Column {
  int n_in, n_out;
  bool variadic; // the last operand's entry repeats any number of times, also zero
  char in[MAX_COLUMN][8], out[MAX_COLUMN][8];
} Column;

static int split_column(const char *text, size_t length, char entry[][8]) {
  int n = 0;
  const char *end = text + length;
  while (text < end) {
    text += strspn(text, " ,");
    size_t word = strcspn(text, " ,");
    if (text >= end || word == 0) break;
    // Entries are zeroed, so a copied word is terminated.
    if (n == MAX_COLUMN || word >= 8) BUG("cannot read the types '%s'", text);
    memcpy(entry[n++], text, word);
    text += word;
  }
  return n;
}

static void read_column(OpKind kind, Column *c) {
  const char *text = op_info[kind].types, *arrow = strstr(text, "->");
  if (!arrow) BUG("the types of %s lack an arrow", op_info[kind].name);
  *c = (Column){0};
  c->n_in = split_column(text, (size_t)(arrow - text), c->in);
  c->n_out = split_column(arrow + 2, strlen(arrow + 2), c->out);
  // Three dots after the last operand mark it as variadic.
  char *last = c->n_in ? c->in[c->n_in - 1] : NULL;
  if (last && str_ends(last, "...")) {
    c->variadic = true;
    last[strlen(last) - 3] = '\0';
  }
}

static const char *column_entry(const Column *c, int i) {
  return c->in[i < c->n_in ? i : c->n_in - 1];
}

static bool is_class(const char *entry) {
  return isupper((unsigned char)*entry) && !entry[1];
}

static bool class_has(char class, DType t) {
  switch (class) {
  case 'F': return dtype_class[t] == 'F';
  case 'N': return dtype_class[t] != 'B';
  case 'A': return true;
  case 'Z': return dtype_class[t] == 'I' || dtype_class[t] == 'U';
  case 'I': return t == DT_i32 || t == DT_i64;
  case 'S': return t == DT_f32 || t == DT_f64;
  }
  BUG("no class '%c' of element types", class);
}

char op_operand_class(const Op *op, int i) {
  Column c;
  read_column(op->kind, &c);
  const char *entry = column_entry(&c, i);
  return is_class(entry) ? *entry : 0;
}

static const char *class_means(char class) {
  switch (class) {
  case 'F': return "a floating-point type";
  case 'N': return "a number";
  case 'Z': return "an integer";
  case 'I': return "i32 or i64";
  case 'S': return "f32 or f64";
  }
  return "any type";
}

void op_note_operand(const Op *op, int i, Diag *d) {
  const Value *v = op->in[i].value;
  const Loc *loc = v->def ? v->def->loc : v->loc;
  Arena *a = op->graph->module->arena;
  if (loc)
    diag_note(d, loc, "'%s' is %s and comes from here", value_text(a, v), type_text(a, v->type));
}

// Checks the operands' element types; sets `of_class` to the type of each class.
static bool check_types(const Op *op, const Column *c, const DType **of_class, Diag *d) {
  int by[128] = {0}; // the operand that determined a class
  for (int i = 0; i < op->n_in; i++) {
    const char *want = column_entry(c, i), *name = op_info[op->kind].name;
    const DType *t = &op->in[i].value->type->dtype;
    int class = is_class(want) ? *want : 0;
    bool fits = class ? class_has(*want, *t) : str_equal(want, dtype_name[*t]);
    if (!fits)
      diag_error(d, op->loc, "%s: operand %d is %s; it must be %s", name, i, dtype_name[*t],
                 class ? class_means(*want) : want);
    else if (class && of_class[class] && *of_class[class] != *t) {
      fits = false;
      diag_error(d, op->loc, "%s: element types differ: operand %d is %s, operand %d is %s", name,
                 by[class], dtype_name[*of_class[class]], i, dtype_name[*t]);
    }
    // The note gives the location of the operand.
    if (!fits) {
      op_note_operand(op, i, d);
      return false;
    }
    if (class && !of_class[class]) {
      of_class[class] = t;
      by[class] = i;
    }
    // Class F determines class S.
    if (class == 'F' && !of_class['S']) {
      static const DType single = DT_f32, twice = DT_f64;
      of_class['S'] = *t == DT_f64 ? &twice : &single;
      by['S'] = i;
    }
  }
  return true;
}

// Sets `types` to the types of the op's results.
static bool infer(const Op *op, const Type **types, Diag *d) {
  const char *name = op_info[op->kind].name;
  Alike *alike = op_alike(op);
  size_t bytes = (size_t)op->n_out * sizeof(Type *);
  // Equal ops share their types.
  if (alike && alike->out) {
    memcpy(types, alike->out, bytes);
    return true;
  }
  Column c;
  const DType *of_class[128] = {0};
  read_column(op->kind, &c);
  // A row with only a variadic operand needs at least one, to infer types from.
  int least = c.variadic ? c.n_in - 1 : c.n_in;
  if (c.variadic && least == 0) least = 1;
  if (op->n_in < least || (!c.variadic && op->n_in > least))
    return diag_error(d, op->loc, "%s: takes %s%d operand%s, not %d", name,
                      c.variadic ? "at least " : "", least, least == 1 ? "" : "s", op->n_in);
  if (!check_types(op, &c, of_class, d)) return false;
  // The einsum gives the shapes.
  Dims dims;
  if (!op_dims(op, &dims, d)) return false;
  for (int i = 0; i < op->n_out; i++) {
    const Term *t = &dims.out[i];
    const char *entry = c.out[i];
    // The element type: that of a class of operands, a fixed one, or that of an attribute.
    DType dtype;
    if (is_class(entry)) {
      if (!of_class[(int)*entry]) BUG("nothing says the type '%s' of a result of %s", entry, name);
      dtype = *of_class[(int)*entry];
    } else if (!dtype_parse(entry, &dtype)) {
      dtype = attr_t(op, entry);
    }
    int64_t dim[MAX_NDIM];
    for (int k = 0; k < t->ndim; k++)
      dim[k] = dims_length(&dims, t, k);
    if (!type_fits(dtype, t->ndim, dim))
      return diag_error(d, op->loc, "%s: the size of result %d overflows", name, i);
    types[i] = type_new(op->graph->module, dtype, t->ndim, dim);
  }
  if (alike) alike->out = arena_copy(op->graph->module->arena, types, bytes);
  return true;
}

static const char *kind_means(char kind) {
  switch (kind) {
  case 'i': return "an integer";
  case 'f': return "a number";
  case 'b': return "a boolean";
  case 's': return "a string";
  case 't': return "an element type";
  case 'I': return "a list of integers";
  case 'd': return "bytes";
  }
  BUG("no kind '%c' of attributes", kind);
}

static bool set_attrs(Op *op, const Attr *attrs, int n_attrs, Diag *d) {
  int n;
  const AttrSpec *spec = op_attr_specs(op->kind, &n);
  const char *name = op_info[op->kind].name;
  // Defaults: zero, and an empty string.
  Attr all[MAX_ATTRS];
  for (int i = 0; i < n; i++)
    all[i] = (Attr){.name = spec[i].name, .kind = spec[i].kind};
  for (int i = 0; i < n; i++)
    if (spec[i].kind == 's') all[i].s = "";
  // Given attributes, in any order.
  for (int i = 0; i < n_attrs; i++) {
    int k = 0;
    while (k < n && !str_equal(spec[k].name, attrs[i].name))
      k++;
    if (k == n) return diag_error(d, op->loc, "%s: no attribute '%s'", name, attrs[i].name);
    if (spec[k].kind != attrs[i].kind)
      return diag_error(d, op->loc, "%s: attribute '%s' must be %s", name, attrs[i].name,
                        kind_means(spec[k].kind));
    all[k] = attrs[i];
  }
  op->attrs = attrs_interned(op->graph->module, op->kind, all);
  return true;
}

Op *op_new(Graph *g, Op *at, OpKind kind, Value *const *in, int n_in, const Attr *attrs,
           int n_attrs, Origin origin, Diag *d) {
  if (op_has_callee(kind)) BUG("%s has a callee: op_new_call makes it", op_info[kind].name);
  Column c;
  read_column(kind, &c);
  Op *op = op_draft(g, kind, in, n_in, c.n_out, origin);
  // An op with an error is never inserted, and so has no uses.
  const Type *types[MAX_COLUMN];
  if (!set_attrs(op, attrs, n_attrs, d) || !infer(op, types, d)) return NULL;
  op_insert(op, at);
  for (int i = 0; i < op->n_out; i++)
    op->out[i]->type = types[i];
  return op;
}

static bool check_call(const Op *op, Diag *d) {
  const Graph *callee = op->callee;
  const char *name = op_info[op->kind].name;
  Arena *a = op->graph->module->arena;
  if (op->n_in != callee->n_params)
    return diag_error(d, op->loc, "%s: '@%s' takes %d operands, not %d", name, callee->name,
                      callee->n_params, op->n_in);
  if (op->n_out != callee->n_results)
    return diag_error(d, op->loc, "%s: '@%s' has %d results, not %d", name, callee->name,
                      callee->n_results, op->n_out);
  // Types are interned, so pointers are compared.
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->type != callee->params[i]->type) {
      diag_error(d, op->loc, "%s: operand %d of '@%s' is %s, not %s", name, i, callee->name,
                 type_text(a, callee->params[i]->type), type_text(a, op->in[i].value->type));
      op_note_operand(op, i, d);
      return false;
    }
  return true;
}

// The types of the results of an op with a callee.
static bool infer_call(const Op *op, const Type **types, Diag *d) {
  if (op->kind == OP_loop) return loop_infer(op, types, d);
  if (!check_call(op, d)) return false;
  for (int i = 0; i < op->n_out; i++)
    types[i] = op->callee->results[i]->use.value->type;
  return true;
}

Op *op_new_calling(Graph *g, Op *at, OpKind kind, Graph *callee, Value *const *in, int n_in,
                   const Attr *attrs, int n_attrs, Origin origin, Diag *d) {
  if (!op_has_callee(kind)) BUG("%s has no callee", op_info[kind].name);
  // The memory of a loop's body is one more result.
  int n_out = callee->n_results;
  for (int i = 0; kind == OP_loop && i < n_attrs; i++)
    n_out += str_equal(attrs[i].name, "workspace") && attrs[i].i > 0;
  Op *op = op_draft(g, kind, in, n_in, n_out, origin);
  op->callee = callee;
  const Type **types = arena_array(g->module->arena, const Type *, n_out);
  if (!set_attrs(op, attrs, n_attrs, d) || !infer_call(op, types, d)) return NULL;
  op_insert(op, at);
  for (int i = 0; i < op->n_out; i++)
    op->out[i]->type = types[i];
  return op;
}

Op *op_new_call(Graph *g, Op *at, OpKind kind, Graph *callee, Value *const *in, int n_in,
                Origin origin, Diag *d) {
  return op_new_calling(g, at, kind, callee, in, n_in, NULL, 0, origin, d);
}

Op *op_copy_as(Graph *g, Op *at, const Op *op, Value *const *in, Origin origin, Diag *d) {
  int n;
  op_attr_specs(op->kind, &n);
  if (!op->callee) return op_new(g, at, op->kind, in, op->n_in, op->attrs, n, origin, d);
  return op_new_calling(g, at, op->kind, op->callee, in, op->n_in, op->attrs,
                        op->kind == OP_call ? 0 : n, origin, d);
}

Op *op_copy(Graph *g, Op *at, const Op *op, Value *const *in, Diag *d) {
  return op_copy_as(g, at, op, in, op_origin(op), d);
}

bool op_infer(const Op *op, const Type **types, Diag *d) {
  return op->callee ? infer_call(op, types, d) : infer(op, types, d);
}

bool op_retype(Op *op, Diag *d) {
  Arena *scratch = arena_new();
  const Type **types = arena_array(scratch, const Type *, op->n_out);
  bool ok = op_infer(op, types, d);
  for (int i = 0; ok && i < op->n_out; i++)
    op->out[i]->type = types[i];
  arena_free(scratch);
  return ok;
}
