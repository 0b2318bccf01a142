// See trials.h.

#include "trials.h"

#include <ffi.h>
#include <string.h>

#include "ir/analysis/work.h"
#include "kernel_table.h"
#include "nnrt.h"

enum { MAX_FLOPS = 3000000 };

static Trials *now;  // the running trials
static bool *called; // by index into kernel_table

static int find_kernel(const char *name) {
  for (int i = 0; i < n_kernels; i++)
    if (str_equal(kernel_table[i].name, name)) return i;
  BUG("the table of kernels lacks %s", name);
}

bool trial_fail(const Trial *t, const char *fmt, double x) {
  const Op *op = t->op;
  Arena *a = op->graph->module->arena;
  char name[64];
  now->failures++;
  kernel_name(op, now->target, name, sizeof name);
  fprintf(stderr, "%s: %s (%s): %s %g\n", loc_text(a, op->loc), name, t->how, fmt, x);
  for (int i = 0; i < op->n_in; i++)
    fprintf(stderr, "    operand %d is %s\n", i, type_text(a, op->in[i].value->type));
  return false;
}

int trial_place(const Trial *t, int i) {
  const Op *op = t->op;
  int traits = op_info[op->kind].traits;
  int operand = i > 0 && traits & STATES ? i + 1 : i == 0 && traits & INPLACE ? 0 : -1;
  if (!t->in_place || operand < 0) return -1;
  if (type_bytes(op->in[operand].value->type) != type_bytes(op->out[i]->type)) return -1;
  return operand;
}

// -- Calling ---------------------------------------------------------------------------------

// The arguments of one call for libffi: their types and addresses.
typedef struct Call {
  ffi_type *type[2 * MAX_TERMS];
  void *at[2 * MAX_TERMS];
  union {
    const void *p;
    int64_t i;
    double f;
    bool b;
  } value[2 * MAX_TERMS];
  int n;
} Call;

static void push_pointer(Call *c, const void *p) {
  c->type[c->n] = &ffi_type_pointer;
  c->value[c->n++].p = p;
}

static void push_args(Call *c, const Op *op, const Box *box, Arena *a) {
  KernelArg args[MAX_KERNEL_ARGS];
  int n = kernel_args(op, args, MAX_KERNEL_ARGS, a);
  for (int i = 0; i < n; i++) {
    switch (args[i].kind) {
    case ARG_int:
      c->type[c->n] = &ffi_type_sint64;
      c->value[c->n++].i = args[i].i;
      break;
    case ARG_float:
      c->type[c->n] = &ffi_type_double;
      c->value[c->n++].f = args[i].f;
      break;
    case ARG_bool:
      c->type[c->n] = &ffi_type_uint8;
      c->value[c->n++].b = args[i].i;
      break;
    case ARG_str: push_pointer(c, args[i].s); break;
    case ARG_list: push_pointer(c, args[i].list); break;
    case ARG_box:
      push_pointer(c, box->whole);
      push_pointer(c, box->start);
      break;
    case ARG_from:
      c->type[c->n] = &ffi_type_sint64;
      c->value[c->n++].i = box->start[args[i].i];
      break;
    case ARG_all:
      c->type[c->n] = &ffi_type_sint64;
      c->value[c->n++].i = op_unpadded(op, box->whole[args[i].i]);
      break;
    case ARG_ranks: BUG("a collective has no test here");
    case ARG_struct: push_pointer(c, kernel_struct(&args[i], a)); break;
    }
  }
}

static void call(Call *c, int kernel, ffi_type *type, void *result) {
  ffi_cif cif;
  for (int i = 0; i < c->n; i++)
    c->at[i] = &c->value[i];
  if (ffi_prep_cif(&cif, FFI_DEFAULT_ABI, (unsigned)c->n, type, c->type) != FFI_OK)
    BUG("libffi does not take the arguments of %s", kernel_table[kernel].name);
  called[kernel] = true;
  ffi_call(&cif, kernel_table[kernel].function, result, c->at);
}

int trial_call(const Trial *t, void *const *in, void *const *out, Arena *a) {
  const Op *op = t->op;
  char name[64];
  NnrtPrep *prep = NULL;
  Call *c = arena_one(a, Call);
  bool prepared = op_info[op->kind].traits & PREP;
  if (prepared) {
    kernel_prep_name(op, now->target, name, sizeof name);
    push_args(c, op, &t->box, a);
    call(c, find_kernel(name), &ffi_type_pointer, &prep);
    if (!prep) return NNRT_LIBRARY;
    c->n = 0;
    push_pointer(c, prep);
  }
  kernel_name(op, now->target, name, sizeof name);
  for (int i = 0; i < op->n_out; i++)
    push_pointer(c, out[i]);
  if (kernel_variadic(op))
    push_pointer(c, in);
  else
    for (int i = 0; i < op->n_in; i++)
      push_pointer(c, in[i]);
  if (!prepared) push_args(c, op, &t->box, a);
  ffi_arg code = 0;
  call(c, find_kernel(name), &ffi_type_sint, &code);
  nnrt_prep_free(prep);
  return (int)code;
}

// -- One instance ----------------------------------------------------------------------------

static bool try(Trial t, Arena *a) {
  now->calls++;
  return now->run(&t, a);
}

static bool try_op(const Example *e, const Op *op, const char *how, Random *r, Diag *d) {
  Arena *a = arena_new();
  Trial t = {.op = op, .how = how, .in = operands_new(e, op, r, a), .box = box_new(op)};
  const Value *boxed = op_boxed(op);
  int traits = op_info[op->kind].traits;
  t.want = reference_new(op, t.in, &t.box, a, d);
  bool ok = t.want ? try(t, a) : trial_fail(&t, "the reference fails", 0);
  if (ok && traits & (INPLACE | STATES)) {
    t.in_place = true;
    t.how = "in place";
    ok = try(t, a);
    t.in_place = false;
  }
  if (ok && boxed) {
    // Some of the indices, from 0 to the length of the part, are inside it.
    for (int i = 0; i < boxed->type->ndim; i++) {
      t.box.start[i] = (t.box.whole[i] + 1) / 2;
      t.box.whole[i] *= i + 3;
    }
    t.want = reference_new(op, t.in, &t.box, a, d);
    t.how = "part";
    ok = t.want ? try(t, a) : trial_fail(&t, "the reference fails", 0);
  }
  arena_free(a);
  return ok;
}

// -- Other types and sizes -------------------------------------------------------------------

// Returns the op with f32 operands replaced by `to` (except class S if `to` has 16 bits); NULL if
// the row refuses.
static Op *with_dtype(const Op *op, DType to, Diag *d) {
  Module *m = op->graph->module;
  const Type *types[MAX_TERMS];
  for (int i = 0; i < op->n_in; i++) {
    const Type *t = op->in[i].value->type;
    bool stays = t->dtype != DT_f32 || (dtype_bytes[to] == 2 && op_operand_class(op, i) == 'S');
    types[i] = type_new(m, stays ? t->dtype : to, t->ndim, t->dim);
  }
  return op_alone(m, op, types, d);
}

// Returns the op with longer dimensions (also of letters marked ^ if `whole`); NULL if the result
// is invalid or too large.
static Op *enlarged(const Example *e, bool whole, int most, Random *r, Diag *d) {
  Dims dims;
  const Op *op = e->op;
  if (!op_dims(op, &dims, d)) return NULL;
  for (int i = 0; i < dims.n_letters; i++) {
    if (dims.letter[i].whole && !whole) continue;
    int64_t by = 1 + (int64_t)(random_next(r) % (uint64_t)most);
    dims.letter[i].size = dims.letter[i].size * by + (int64_t)(random_next(r) % 2) * (by > 1);
  }
  const Type *types[MAX_TERMS];
  for (int i = 0; i < op->n_in; i++) {
    const Type *t = op->in[i].value->type;
    int64_t dim[MAX_NDIM];
    for (int k = 0; k < t->ndim; k++)
      dim[k] = dims_length(&dims, &dims.in[i], k);
    types[i] = type_new(e->module, t->dtype, t->ndim, dim);
  }
  int n_attrs;
  const AttrSpec *spec = op_attr_specs(op->kind, &n_attrs);
  Op changed = *op;
  Attr *attrs = arena_copy(e->module->arena, op->attrs, sizeof(Attr) * (size_t)n_attrs);
  changed.attrs = attrs;
  for (int i = 0; i < n_attrs; i++) {
    if (!str_equal(spec[i].name, "shape")) continue;
    int64_t *shape = arena_array(e->module->arena, int64_t, dims.out[0].ndim);
    for (int k = 0; k < dims.out[0].ndim; k++)
      shape[k] = dims_length(&dims, &dims.out[0], k);
    attrs[i] = a_list("shape", shape, dims.out[0].ndim);
  }
  Op *large = op_alone(e->module, &changed, types, d);
  if (!large) return NULL;
  double elements = 0;
  for (int i = 0; i < large->n_in; i++)
    elements += (double)type_count(large->in[i].value->type);
  for (int i = 0; i < large->n_out; i++)
    elements += (double)type_count(large->out[i]->type);
  return elements <= (double)now->max_elements && op_flops(large) <= MAX_FLOPS ? large : NULL;
}

static bool has_kernel(const Op *op) {
  char name[64];
  return kernel_name(op, now->target, name, sizeof name);
}

static bool try_type(const Example *e, const Op *op, int type, const char *how, Random *r,
                     Diag *d) {
  const Op *other = with_dtype(op, now->types[type], d);
  return !other || !has_kernel(other) || try_op(e, other, how, r, d);
}

static void try_example(const Example *e, Diag *d) {
  Random r = {3};
  const Op *op = e->op;
  if (op_info[op->kind].traits & COMM) return;
  diag_quiet(d, true);
  bool ok = !has_kernel(op) || try_op(e, op, "as it is", &r, d);
  for (int i = 0; ok && i < now->n_types; i++)
    ok = try_type(e, op, i, "as it is", &r, d);
  int type = 0; // each larger instance, which takes longer, runs in one type other than f32
  for (int most = 40; ok && most > 1; most = most * 2 / 3)
    for (int whole = 0; ok && whole < 2; whole++) {
      Op *large = enlarged(e, whole, most, &r, d);
      if (!large) continue;
      ok = !has_kernel(large) || try_op(e, large, "larger", &r, d);
      if (ok && now->n_larger_types > 0)
        ok = try_type(e, large, type++ % now->n_larger_types, "larger", &r, d);
    }
}

// Whether an instance can call it: collectives need ranks, and no floating type has one byte.
static bool callable(const char *name) {
  for (int kind = 0; kind < N_OPS; kind++) {
    const OpInfo *info = &op_info[kind];
    size_t n = strlen(info->name);
    if (!str_starts(name + strlen("nnrt_"), info->name)) continue;
    const char *rest = name + strlen("nnrt_") + n;
    if (info->traits & COMM && *rest == '_') return false;
    if (str_equal(rest, "_b1") && info->types[0] == 'F') return false;
  }
  return true;
}

static void check_coverage(void) {
  for (int i = 0; i < n_kernels; i++) {
    if (called[i] || !callable(kernel_table[i].name)) continue;
    fprintf(stderr, "kernels: no instance calls %s\n", kernel_table[i].name);
    now->failures++;
  }
}

void trials_run(Trials *t, const Examples *all, Diag *d) {
  Arena *a = arena_new();
  now = t;
  called = arena_array(a, bool, n_kernels);
  for (int i = 0; i < all->n; i++)
    try_example(&all->at[i], d);
  check_coverage();
  printf("kernels: %d calls of %d kernels, %d failures\n", t->calls, n_kernels, t->failures);
  now = NULL;
  arena_free(a);
}
