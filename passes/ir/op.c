// The tables of op.h: the rows of ops.def as data.

#include "ir/op.h"

#include <string.h>

// A row with a formula keeps its text: the backend writes it into generated kernels.
#define ROW(name, dims, types, attrs, rule, grad, reference, args, cpu, cuda, traits, formula)     \
  {#name, dims, types, attrs, args, {cpu, cuda}, formula, rule, grad, reference, traits},
#define OP(name, dims, types, attrs, rule, grad, reference, args, cpu, cuda, traits)               \
  ROW(name, dims, types, attrs, rule, grad, reference, args, cpu, cuda, traits, NULL)
#define ELEMENTWISE(name, dims, types, attrs, grad, traits, formula)                               \
  ROW(name, dims, types, attrs, from_row, grad, elementwise_ref, "", "-", "-", traits, formula)
#define E1(name, types, attrs, grad, traits, formula)                                              \
  ELEMENTWISE(name, "* -> *", types, attrs, grad, traits, #formula)
#define E2(name, types, attrs, grad, traits, formula)                                              \
  ELEMENTWISE(name, "*, * -> *", types, attrs, grad, traits, #formula)
#define E3(name, types, attrs, grad, traits, formula)                                              \
  ELEMENTWISE(name, "*, *, * -> *", types, attrs, grad, traits, #formula)

const OpInfo op_info[N_OPS] = {
#include "ir/ops.def"
};

const TargetInfo target_info[N_TARGETS] = {
#define TARGET(name, pipeline, align, cluster, multi_tensor, gpu, eager_sends, async_comm,         \
               recorded, half)                                                                     \
  {#name, pipeline, align, cluster, multi_tensor, gpu, eager_sends, async_comm, recorded, half},
#include "ir/targets.def"
};

bool target_parse(const char *name, Target *out) {
  for (int i = 0; i < N_TARGETS; i++)
    if (str_equal(name, target_info[i].name)) {
      *out = (Target)i;
      return true;
    }
  return false;
}

const char *target_names(Arena *a) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < N_TARGETS; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "", target_info[i].name);
  return b.at;
}

bool op_has_callee(OpKind kind) {
  return op_info[kind].rule == callee_rule || kind == OP_loop;
}

// Names in texts that older versions wrote.
static const struct {
  const char *name;
  OpKind kind;
} older[] = {
    {"own_share", OP_take_partial}, {"as_share", OP_as_partial}, {"batch", OP_multi_tensor}};

bool op_kind_parse(const char *name, OpKind *out) {
  for (size_t i = 0; i < sizeof older / sizeof *older; i++)
    if (str_equal(name, older[i].name)) {
      *out = older[i].kind;
      return true;
    }
  for (int i = 0; i < N_OPS; i++)
    if (str_equal(name, op_info[i].name)) {
      *out = (OpKind)i;
      return true;
    }
  return false;
}

int op_traits(const Op *op) {
  int traits = op_info[op->kind].traits;
  // Other numbers than zero are rounded in some types.
  if (op->kind == OP_pad && attr_f(op, "value") != 0) return traits & ~MOVES_ELEMENTS;
  if (op->kind != OP_cast && op->kind != OP_scale) return traits;
  DType from = op->in[0].value->type->dtype;
  // Integers are truncated: the scaled terms of a sum lose more than the scaled sum.
  if (op->kind == OP_scale) return dtype_class[from] == 'F' ? traits : traits & ~ADDITIVE;
  // A cast to a wider type loses nothing, so it commutes with a sum.
  DType to = attr_t(op, "to");
  bool widens =
      dtype_class[from] == 'F' && dtype_class[to] == 'F' && dtype_bytes[from] < dtype_bytes[to];
  return widens ? traits | ADDITIVE : traits;
}

bool op_linear_in(const Op *op, int i) {
  return dtype_class[op->in[i].value->type->dtype] == dtype_class[op->out[0]->type->dtype];
}

bool op_passes_sums(const Op *op, int n, int last) {
  int traits = op_traits(op);
  if (traits & MULTILINEAR && n == 1) return op_linear_in(op, last);
  return traits & ADDITIVE && n > 0 && n == op->n_in;
}

bool op_draws(OpKind kind) {
  return kind == OP_dropout || kind == OP_noise;
}

bool op_optimizes(const Op *op) {
  return op_info[op->kind].traits & OPTIMIZER;
}

bool op_counts_steps(OpKind kind) {
  // The step count is the only integer among the operands.
  return strstr(op_info[kind].types, ", i64 ->") != NULL;
}

int op_gscale(const Op *op) {
  return op->n_in - 1 - op_counts_steps(op->kind);
}

const Op *value_optimizer(const Value *next) {
  const Op *op = next->def;
  // Through first operands to the optimizer.  An op that applies a step reads it as its second, and
  // with frozen rows the new weight is where(frozen, weight, updated).
  while (op && !op_optimizes(op)) {
    int i = op->kind == OP_where ? 2 : op_info[op->kind].traits & APPLIES_STEP ? 1 : 0;
    op = op->n_in ? op->in[i].value->def : NULL;
  }
  return op;
}

bool value_leads_from(const Value *v, OpKind kind, bool *seen) {
  const Op *op = v->def;
  if (!op || op->part != PART_update || seen[op->id]) return false;
  seen[op->id] = true;
  // Depth-first through the ops of the update; `seen` cuts shared operands.
  bool leads = op->kind == kind;
  for (int i = 0; i < op->n_in && !leads; i++)
    leads = value_leads_from(op->in[i].value, kind, seen);
  return leads;
}

bool op_is_view(const Op *op) {
  return op_info[op->kind].traits & VIEW;
}

bool op_is_pin(const Op *op) {
  return op->kind == OP_reshape && type_same_dims(op->in[0].value->type, op->out[0]->type);
}

int64_t op_unpadded(const Op *op, int64_t length) {
  const char *name = op_has_attr(op, "classes") ? "classes"
                     : op_has_attr(op, "rows")  ? "rows"
                                                : NULL;
  return name && attr_i(op, name) ? attr_i(op, name) : length;
}

const Value *op_boxed(const Op *op) {
  int traits = op_info[op->kind].traits;
  return traits & GLOBAL_INDEX ? op->out[0] : traits & GLOBAL_INDEX_IN ? op->in[0].value : NULL;
}

bool op_axes(const Op *op, MeshAxes *out, Diag *d) {
  const Mesh *mesh = op_mesh(op);
  const char *name = op_info[op->kind].name, *all = attr_s(op, "axis"), *at = all ? all : "";
  *out = (MeshAxes){0};
  for (;; at++) {
    size_t length = strcspn(at, "+");
    int axis = -1;
    // Axis names between the plus signs.
    for (int i = 0; mesh && i < mesh->n_axes; i++)
      if (strlen(mesh->axis[i].name) == length && !strncmp(mesh->axis[i].name, at, length))
        axis = i;
    if (axis < 0)
      return diag_error(d, op->loc, "%s: the mesh has no axis '%.*s'", name, (int)length, at);
    // The order is canonical, and no axis occurs twice.
    if (out->n > 0 && out->at[out->n - 1] >= axis)
      return diag_error(d, op->loc, "%s: '%s' is not in the order of the mesh", name, all);
    out->at[out->n++] = axis;
    // A time axis cannot be combined with other axes.
    if (out->n > 1 && (mesh->axis[axis].time || mesh->axis[out->at[0]].time))
      return diag_error(d, op->loc, "%s: '%s' joins an axis of time", name, all);
    at += length;
    if (!*at) return true;
  }
}

int op_time_axis(const Op *op) {
  const Mesh *mesh = op_mesh(op);
  int axis = mesh_find_axis(mesh, attr_s(op, "axis"));
  return axis >= 0 && mesh->axis[axis].time ? axis : -1;
}

bool multi_tensor_narrows(const Op *op) {
  const Op *before = op ? op->prev : NULL;
  return before && op->kind == OP_cast && op->in[0].value == before->out[0] &&
         (op_info[before->kind].traits & NARROWS) && dtype_narrow(op->out[0]->type->dtype);
}

bool value_accumulates(const Value *v) {
  return v->def && v->index == 0 && (op_info[v->def->kind].traits & ACCUMULATES);
}

bool op_starts_copy(const Op *op) {
  return op->kind == OP_swap_out || op->kind == OP_swap_in || op->kind == OP_swap_out_accumulate;
}

bool op_waits_for_sum(const Op *op) {
  return op->kind == OP_swap_wait && value_accumulates(op->in[0].value);
}

bool from_row(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, op_info[op->kind].dims, d);
}

bool no_grad(Builder *b, Op *op, Value **dout, Value **din) {
  (void)dout, (void)din;
  b->failed = true;
  return diag_error(b->d, op->loc, "%s: has no derivative", op_info[op->kind].name);
}

bool zero_grad(Builder *b, Op *op, Value **dout, Value **din) {
  (void)b, (void)op, (void)dout, (void)din;
  return true;
}

// The attrs columns, parsed at the first query.  The names live as long as the program.
static struct {
  bool parsed;
  int n;
  AttrSpec spec[MAX_ATTRS];
} rows[N_OPS];

const AttrSpec *op_attr_specs(OpKind kind, int *n) {
  static Arena *names;
  if (!rows[kind].parsed) {
    if (!names) names = arena_new();
    // "name:kind" pairs, separated by blanks.
    for (const char *at = op_info[kind].attrs; *at;) {
      size_t length = strcspn(at, ":");
      if (!at[length] || !strchr("ifbstId", at[length + 1]) || rows[kind].n == MAX_ATTRS)
        BUG("cannot read the attributes of %s: '%s'", op_info[kind].name, op_info[kind].attrs);
      AttrSpec *spec = &rows[kind].spec[rows[kind].n++];
      spec->name = str_copy_n(names, at, length);
      spec->kind = at[length + 1];
      at += length + 2;
      at += strspn(at, " ");
    }
    rows[kind].parsed = true;
  }
  *n = rows[kind].n;
  return rows[kind].spec;
}
