// Operands, results and arguments of calls: a macro is the place that the module gives a value, and
// an argument is the number that the row's column `args` in ops.def promises (ir/kernel.h).
//
//     RUN(1, nnrt_sgd_f32(W1, W, V19, LR, ONE, 24, 0.0));
//                         ----------------------  -------
//                         places                  arguments

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "check.h"
#include "ir/analysis/boxes.h"
#include "ir/analysis/place.h"
#include "ir/kernel.h"
#include "ir/loop.h"
#include "ir/split.h"

// -- Constants ---------------------------------------------------------------------------------

// Whether the token is element `i` of the bytes, as a C literal of its type.
static bool is_element(Cursor *at, DType t, const void *bytes, int64_t i) {
  const char *from = (const char *)bytes + i * dtype_bytes[t];
  if (t == DT_f32 || t == DT_f64) {
    CToken token = cursor_next(at);
    bool minus = ctoken_is(&token, "-");
    if (minus) token = cursor_next(at);
    double have, need;
    if (!ctoken_float(&token, t == DT_f32 ? "f" : "", &have)) return false;
    if (minus) have = -have;
    float narrow;
    if (t == DT_f32) {
      memcpy(&narrow, from, sizeof narrow);
      need = (double)narrow;
    } else
      memcpy(&need, from, sizeof need);
    // Any NaN is as good as another.
    return isnan(need) ? isnan(have) : have == need && signbit(have) == signbit(need);
  }
  // Integers, and the bits of 16-bit floating types.
  uint64_t bits = 0;
  memcpy(&bits, from, (size_t)dtype_bytes[t]);
  if (t == DT_u64) {
    CToken token = cursor_next(at);
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRIu64 "u", bits);
    return n == token.n && !memcmp(text, token.at, (size_t)n);
  }
  int64_t have, need = (int64_t)bits;
  if (dtype_class[t] == 'I') {
    int unused = 64 - 8 * dtype_bytes[t];
    need = (int64_t)(bits << unused) >> unused;
  }
  return take(at, "%i", &have) && have == need;
}

// A constant in constants.bin, which the assembler includes.
static bool check_external(Check *c, const Cursor *at, const Unit *u, const Attr *data,
                           int64_t number) {
  int64_t bytes = data->data.n;
  // ".section .rodata\n.balign 64\nconstant_0: .incbin \"constants.bin\", 0, 4096\n.previous"
  const char *before = str_format(
      c->arena, ".section .rodata\n.balign 64\n%s: .incbin \"constants.bin\", ", u->name);
  int64_t offset = 0;
  bool ok = str_starts(u->text, before);
  const char *p = u->text + (ok ? strlen(before) : 0);
  // The assembler reads digits after a 0 as octal.
  ok = ok && *p >= '0' && *p <= '9' && !(p[0] == '0' && p[1] >= '0' && p[1] <= '9');
  for (; ok && *p >= '0' && *p <= '9' && offset < INT64_MAX / 16; p++)
    offset = offset * 10 + (*p - '0');
  if (!ok || !str_equal(p, str_format(c->arena, ", %" PRId64 "\n.previous", bytes)))
    return mismatch(c, &u->at, "the assembler's text of '%s' is not that of %" PRId64 " bytes",
                    u->name, bytes);
  FILE *f = fopen(str_format(c->arena, "%s/constants.bin", c->dir), "rb");
  char *have = arena_alloc(c->arena, (size_t)bytes + 1);
  ok = f && !fseek(f, (long)offset, SEEK_SET) && fread(have, 1, (size_t)bytes, f) == (size_t)bytes;
  if (f) fclose(f);
  return (ok && !memcmp(have, data->data.at, (size_t)bytes)) ||
         mismatch(c, at, "constant %" PRId64 " has other bytes in constants.bin", number);
}

bool want_constant(Check *c, const Cursor *at, int64_t number, const Value *root) {
  if (number < 0 || number >= c->p.n_constants)
    return mismatch(c, at, "no constant has this number");
  if (c->constant_value[number] == root) return true;
  if (c->constant_value[number])
    return mismatch(c, at, "constant %" PRId64 " is another value of the module", number);
  c->constant_value[number] = root;
  const Attr *data = op_attr(root->def, "value");
  const Type *t = root->type;
  int64_t n = type_count(t);
  if (!want_equal(c, at, c->constant_bytes[number], type_bytes(t), "the size of a constant"))
    return false;
  Unit *u = table_find(c->names, NAME_unit, c->constant[number]);
  if (!u || (u->kind != UNIT_table && u->kind != UNIT_external) ||
      !str_equal(u->type, dtype_ctype[t->dtype]))
    return mismatch(c, at, "'%s' is no constant of this type", c->constant[number]);
  u->used = true;
  if (u->kind == UNIT_external) return check_external(c, at, u, data, number);
  // C has no empty arrays, so an empty constant has one element.
  Cursor list = u->at;
  if (u->length != (n ? n : 1)) return mismatch(c, &u->at, "the constant has another length");
  if (n == 0) return want(c, &list, "0, }");
  for (int64_t i = 0; i < n; i++) {
    const Cursor element = list;
    if (!is_element(&list, t->dtype, data->data.at, i))
      return mismatch(c, &element, "element %" PRId64 " of the constant is another in the module",
                      i);
    if (!want(c, &list, ",")) return false;
  }
  return want(c, &list, "}");
}

// -- Places ------------------------------------------------------------------------------------

static const char *place_text(const Check *c, const MacroPlace *p) {
  const char *slots = "";
  if (p->slots)
    slots = str_format(c->arena, ", %" PRId64 " slots of %" PRId64, p->slots, p->stride);
  const char *base[] = {"slab", "host", "constant", "preparation"};
  return str_format(c->arena, "%s + %" PRId64 "%s", base[p->kind], p->offset, slots);
}

bool want_place(Check *c, Cursor *at, const Value *v, const char *what) {
  const Cursor before = *at;
  CToken name;
  const MacroPlace *have = take(at, "%w", &name) ? place_find(c, &name) : NULL;
  if (!have) return unexpected(c, &before, str_format(c->arena, "the place of %s", what));
  int64_t skip;
  const Value *root = view_root((Value *)(uintptr_t)v, &skip); // only read
  // A constant that all iterations of a loop read.
  for (Value *outer; v->offset < 0 && skip == 0 && (outer = loop_operand(root));)
    root = view_root(outer, &skip);
  if (v->offset < 0 && root->def && root->def->kind == OP_constant && skip == 0) {
    if (have->kind != PLACE_constant || !str_equal(have->ctype, dtype_ctype[root->type->dtype]))
      return mismatch(c, &before, "%s is a constant, not '%s'", what, ctoken_text(&name, c->arena));
    return want_constant(c, &before, have->offset, root);
  }
  if (v->offset < 0) return mismatch(c, &before, "%s has no place in the module", what);
  MacroPlace need = {.kind = value_on_host(v) ? PLACE_host : PLACE_slab,
                     .ctype = dtype_ctype[v->type->dtype],
                     .offset = v->offset};
  if (v->slots > 1) {
    need.slots = v->slots;
    need.stride = v->stride;
  }
  if (have->kind == need.kind && have->offset == need.offset && have->slots == need.slots &&
      have->stride == need.stride && str_equal(have->ctype, need.ctype))
    return true;
  return mismatch(c, &before, "%s is at %s (%s), and '%s' is %s (%s)", what, place_text(c, &need),
                  need.ctype, ctoken_text(&name, c->arena), place_text(c, have),
                  have->ctype ? have->ctype : "no value");
}

// -- Starts of shards --------------------------------------------------------------------------

// A sum of coordinates of the rank, each times a number.
typedef struct Linear {
  int64_t constant, times[MAX_AXES];
  int64_t mesh; // of the coordinates; -1: there are none
} Linear;

enum { DEEPEST = 32 };

static bool take_sum(Cursor *at, Linear *out, int depth);

static bool take_factor(Cursor *at, Linear *out, int depth) {
  int64_t mesh, axis;
  *out = (Linear){.mesh = -1};
  if (take(at, "r->coord[%i][%i]", &mesh, &axis)) {
    if (axis < 0 || axis >= MAX_AXES || mesh < 0) return false;
    out->mesh = mesh;
    out->times[axis] = 1;
    return true;
  }
  if (take(at, "INT64_C(%i)", &out->constant) || take(at, "%i", &out->constant)) return true;
  return depth < DEEPEST && take(at, "(") && take_sum(at, out, depth + 1) && take(at, ")");
}

static bool take_product(Cursor *at, Linear *out, int depth) {
  if (!take_factor(at, out, depth)) return false;
  while (take(at, "*")) {
    Linear by;
    // One of the two is a number.
    if (!take_factor(at, &by, depth) || by.mesh >= 0) return false;
    bool over = __builtin_mul_overflow(out->constant, by.constant, &out->constant);
    for (int i = 0; i < MAX_AXES; i++)
      over |= __builtin_mul_overflow(out->times[i], by.constant, &out->times[i]);
    if (over) return false;
  }
  return true;
}

static bool take_sum(Cursor *at, Linear *out, int depth) {
  if (!take_product(at, out, depth)) return false;
  while (take(at, "+")) {
    Linear more;
    if (!take_product(at, &more, depth)) return false;
    if (more.mesh >= 0 && out->mesh >= 0 && more.mesh != out->mesh) return false;
    if (more.mesh >= 0) out->mesh = more.mesh;
    bool over = __builtin_add_overflow(out->constant, more.constant, &out->constant);
    for (int i = 0; i < MAX_AXES; i++)
      over |= __builtin_add_overflow(out->times[i], more.times[i], &out->times[i]);
    if (over) return false;
  }
  return true;
}

// The start of the rank's shard along a dimension, for every rank at once: it is linear in the
// coordinates, so the start of the shard with one coordinate 1, and the others 0, is the factor.
static bool want_start(Check *c, Cursor *at, const Value *v, int dim) {
  const Cursor before = *at;
  Linear have;
  if (!take_sum(at, &have, 0)) return unexpected(c, &before, "the start of the rank's shard");
  const Layout *l = v->layout;
  bool same = have.constant == 0;
  for (int i = 0; i < MAX_AXES && same; i++) {
    int64_t need = 0;
    if (l && i < l->n_axes) {
      Place place = {.coord = {0}};
      place.coord[i] = 1;
      need = place_region(value_whole(v), l, &place).start[dim];
    }
    same = have.times[i] == need && (!need || have.mesh == (l->mesh ? l->mesh->id : 0));
  }
  return same ||
         mismatch(c, &before, "this is not the start of the rank's shard along dimension %d", dim);
}

// -- Arguments ---------------------------------------------------------------------------------

static bool want_list(Check *c, Cursor *at, const int64_t *list, int n, const char *what) {
  if (n == 0 || !list) return want(c, at, "NULL");
  if (!want(c, at, "LIST(")) return false;
  for (int i = 0; i < n; i++)
    if ((i && !want(c, at, ",")) || !want_int(c, at, list[i], what)) return false;
  return want(c, at, ")");
}

static bool want_box(Check *c, Cursor *at, const Value *v) {
  if (v->type->ndim == 0) return want(c, at, "NULL, NULL");
  const Type *whole = value_whole(v);
  if (!want_list(c, at, whole->dim, whole->ndim, "a global length") || !want(c, at, ", LIST("))
    return false;
  for (int d = 0; d < v->type->ndim; d++)
    if ((d && !want(c, at, ",")) || !want_start(c, at, v, d)) return false;
  return want(c, at, ")");
}

static bool want_ranks(Check *c, Cursor *at, const Op *op, const MeshAxes *axes) {
  int64_t n;
  if (!want(c, at, "r,")) return false;
  const Cursor before = *at;
  if (!take(at, "%i", &n)) return unexpected(c, at, "the number of a group");
  if (n < 0 || n >= c->p.n_groups) return mismatch(c, &before, "no group has this number");
  const GroupText *g = &c->group[n];
  bool same = g->mesh == op_mesh(op)->id && g->axes.n == axes->n;
  for (int i = 0; same && i < axes->n; i++)
    same = g->axes.at[i] == axes->at[i];
  return same || mismatch(c, &before, "group %" PRId64 " is of other ranks", n);
}

static bool want_double(Check *c, Cursor *at, double value) {
  const Cursor before = *at;
  double have;
  if (!take(at, "%f", &have)) return unexpected(c, at, "a number with a point");
  bool same = isnan(value) ? isnan(have) : have == value && signbit(have) == signbit(value);
  return same || mismatch(c, &before, "this is %.17g, and %.17g in the module", have, value);
}

static bool want_arg(Check *c, Cursor *at, const Op *op, const KernelArg *arg) {
  switch (arg->kind) {
  case ARG_int: return want_int(c, at, arg->i, "an argument");
  case ARG_float: return want_double(c, at, arg->f);
  case ARG_bool: return want_word(c, at, arg->i ? "true" : "false", "an argument");
  case ARG_str: return want_string(c, at, arg->s ? arg->s : "", "an argument");
  case ARG_list: return want_list(c, at, arg->list, arg->n, "an element of a list");
  case ARG_box: return want_box(c, at, op_boxed(op));
  case ARG_from: return want_start(c, at, op_boxed(op), (int)arg->i);
  case ARG_all:
    return want_int(c, at, op_unpadded(op, value_whole(op_boxed(op))->dim[arg->i]),
                    "a global length");
  case ARG_ranks: return want_ranks(c, at, op, &arg->axes);
  case ARG_struct: {
    CToken name;
    const Cursor before = *at;
    if (!take(at, "&(%w){", &name)) return unexpected(c, at, "a struct of attributes");
    if (!ctoken_is(&name, arg->s)) return mismatch(c, &before, "this is no %s", arg->s);
    for (int i = 0; i < arg->n; i++) {
      if (i && !want(c, at, ",")) return false;
      if (!want(c, at, ".") || !want_word(c, at, arg->field[i].name, "a field") ||
          !want(c, at, "=") || !want_arg(c, at, op, &arg->field[i]))
        return false;
    }
    return want(c, at, "}");
  }
  }
  return false;
}

bool want_args(Check *c, Cursor *at, const Op *op, int skip, bool first) {
  KernelArg args[MAX_KERNEL_ARGS];
  int n = kernel_args(op, args, MAX_KERNEL_ARGS, c->arena);
  for (int i = skip; i < n; i++) {
    if (!(first && i == skip) && !want(c, at, ",")) return false;
    if (!want_arg(c, at, op, &args[i])) return false;
  }
  return true;
}
