// Every kernel against its row's reference, called the way generated code calls it (ir/kernel.h),
// through libffi.
//
//   instances  those of the examples, in each element type the row promises a kernel for
//   larger     the same with longer dimensions, odd ones too, for the ends of blocks and threads
//   in place   rows marked INPLACE or STATES once more with results on top of operands
//   part       LOGICAL rows once more as a part of something larger
//
// Results are full of NaN before the call, operands must be as before after it, and every kernel
// of the table must have been called.  Results must agree to 1e-5 as a relative norm (f64: 1e-12).
//
//     kernels EXAMPLES.nn...

#include <ffi.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "ir/kernel.h"
#include "kernel_table.h"
#include "nnrt.h"

enum { MAX_ELEMENTS = 60000, MAX_FLOPS = 3000000 };

static int failures, calls;
static bool *called; // by index into kernel_table

static int find_kernel(const char *name) {
  for (int i = 0; i < n_kernels; i++)
    if (str_equal(kernel_table[i].name, name)) return i;
  return -1;
}

static bool fail(const Op *op, const char *how, const char *fmt, double x) {
  Arena *a = op->graph->module->arena;
  failures++;
  fprintf(stderr, "%s: %s (%s): ", loc_text(a, op->loc), op_info[op->kind].name, how);
  fprintf(stderr, "%s %g\n", fmt, x);
  for (int i = 0; i < op->n_in; i++)
    fprintf(stderr, "    operand %d is %s\n", i, type_text(a, op->in[i].value->type));
  return false;
}

// -- Calling ---------------------------------------------------------------------------------

// The arguments of one call, as libffi wants them: their types and where they are.
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
    case ARG_ranks: BUG("a collective has no test here");
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

// Runs the kernel on these operands and results.  0, or the kernel's code.
static int run(const Op *op, void *const *in, void *const *out, const Box *box, Arena *a) {
  char name[64];
  NnrtPrep *prep = NULL;
  Call *c = arena_one(a, Call);
  bool prepared = op_info[op->kind].traits & PREP;
  if (prepared) {
    kernel_prep_name(op, TARGET_cpu, name, sizeof name);
    push_args(c, op, box, a);
    call(c, find_kernel(name), &ffi_type_pointer, &prep);
    if (!prep) return NNRT_LIBRARY;
    c->n = 0;
    push_pointer(c, prep);
  }
  kernel_name(op, TARGET_cpu, name, sizeof name);
  for (int i = 0; i < op->n_out; i++)
    push_pointer(c, out[i]);
  if (kernel_variadic(op))
    push_pointer(c, in);
  else
    for (int i = 0; i < op->n_in; i++)
      push_pointer(c, in[i]);
  if (!prepared) push_args(c, op, box, a);
  ffi_arg code = 0;
  call(c, find_kernel(name), &ffi_type_sint, &code);
  nnrt_prep_free(prep);
  return (int)code;
}

// -- Comparing -------------------------------------------------------------------------------

// Memory as in the slab, at a multiple of 64 bytes, but with its end where a sanitizer sees it.
static void *bytes_new(const void *from, int64_t n) {
  void *p;
  if (posix_memalign(&p, 64, (size_t)(n ? n : 1))) abort();
  if (from)
    memcpy(p, from, (size_t)n);
  else
    memset(p, 0xff, (size_t)n);
  return p;
}

// Which operand's memory result `i` may take: -1 none.
static int place_of(const Op *op, int i) {
  int traits = op_info[op->kind].traits;
  int operand = i > 0 && traits & STATES ? i + 1 : i == 0 && traits & INPLACE ? 0 : -1;
  if (operand < 0 || type_bytes(op->in[operand].value->type) != type_bytes(op->out[i]->type))
    return -1;
  return operand;
}

static bool check_run(const Op *op, const Tensor *in, const Tensor *want, const Box *box,
                      bool in_place, const char *how, Arena *a) {
  void *data[MAX_TERMS], *result[MAX_RESULTS];
  bool ok = true, taken[MAX_TERMS] = {0};
  for (int i = 0; i < op->n_in; i++)
    data[i] = bytes_new(in[i].data, type_bytes(in[i].type));
  for (int i = 0; i < op->n_out; i++) {
    int operand = in_place ? place_of(op, i) : -1;
    if (operand >= 0) taken[operand] = true;
    result[i] = operand >= 0 ? data[operand] : bytes_new(NULL, type_bytes(op->out[i]->type));
  }
  int code = run(op, data, result, box, a);
  calls++;
  if (code) ok = fail(op, how, "the kernel returns", code);
  for (int i = 0; ok && i < op->n_out; i++) {
    Tensor is = {op->out[i]->type, result[i]};
    double distance = tensor_distance(&is, &want[i]);
    if (!(distance <= (is.type->dtype == DT_f64 ? 1e-12 : 1e-5)))
      ok = fail(op, how, "differs from the reference by", distance);
  }
  for (int i = 0; i < op->n_in; i++) {
    if (ok && !taken[i] && memcmp(data[i], in[i].data, (size_t)type_bytes(in[i].type)))
      ok = fail(op, how, "it changes operand", i);
    if (!taken[i]) free(data[i]);
  }
  for (int i = 0; i < op->n_out; i++)
    free(result[i]);
  return ok;
}

static bool check_op(const Example *e, const Op *op, const char *how, Random *r, Diag *d) {
  Arena *a = arena_new();
  Tensor *in = operands_new(e, op, r, a);
  Box box = {0};
  int rank = op->out[0]->type->rank, traits = op_info[op->kind].traits;
  for (int i = 0; i < rank; i++)
    box.whole[i] = op->out[0]->type->dim[i];
  Tensor *want = reference_new(op, in, &box, a, d);
  bool ok = want || fail(op, how, "the reference fails", 0);
  ok = ok && check_run(op, in, want, &box, false, how, a);
  if (ok && traits & (INPLACE | STATES)) ok = check_run(op, in, want, &box, true, "in place", a);
  if (ok && traits & LOGICAL) {
    for (int i = 0; i < rank; i++) {
      box.start[i] = box.whole[i] * (i + 1);
      box.whole[i] *= i + 3;
    }
    want = reference_new(op, in, &box, a, d);
    ok = want && check_run(op, in, want, &box, false, "part", a);
  }
  arena_free(a);
  return ok;
}

// -- Other types and sizes -------------------------------------------------------------------

// The op with the element type that names its kernel replaced; NULL where the row refuses.
static Op *with_dtype(const Example *e, DType from, DType to, Diag *d) {
  const Type *types[MAX_TERMS];
  for (int i = 0; i < e->op->n_in; i++) {
    const Type *t = e->op->in[i].value->type;
    types[i] = type_new(e->module, t->dtype == from ? to : t->dtype, t->rank, t->dim);
  }
  return op_alone(e->module, e->op, types, d);
}

// The op with its letters made longer, those marked ^ only where `whole`; NULL where that does
// not fit together.
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
    int64_t dim[MAX_RANK];
    for (int k = 0; k < t->rank; k++)
      dim[k] = dims_length(&dims, &dims.in[i], k);
    types[i] = type_new(e->module, t->dtype, t->rank, dim);
  }
  int n_attrs;
  const AttrSpec *spec = op_attr_specs(op->kind, &n_attrs);
  Op changed = *op;
  changed.attrs = arena_copy(e->module->arena, op->attrs, sizeof(Attr) * (size_t)n_attrs);
  for (int i = 0; i < n_attrs; i++) {
    if (!str_equal(spec[i].name, "shape")) continue;
    int64_t *shape = arena_array(e->module->arena, int64_t, dims.out[0].rank);
    for (int k = 0; k < dims.out[0].rank; k++)
      shape[k] = dims_length(&dims, &dims.out[0], k);
    changed.attrs[i] = a_list("shape", shape, dims.out[0].rank);
  }
  Op *large = op_alone(e->module, &changed, types, d);
  if (!large) return NULL;
  double elements = 0;
  for (int i = 0; i < large->n_in; i++)
    elements += (double)type_count(large->in[i].value->type);
  for (int i = 0; i < large->n_out; i++)
    elements += (double)type_count(large->out[i]->type);
  return elements <= MAX_ELEMENTS && op_flops(large) <= MAX_FLOPS ? large : NULL;
}

static void check_example(const Example *e, Diag *d) {
  char name[64];
  Random r = {3};
  diag_quiet(d, false);
  if (op_info[e->op->kind].traits & COMM || !kernel_name(e->op, TARGET_cpu, name, sizeof name)) return;
  if (!check_op(e, e->op, "as it is", &r, d)) return;

  diag_quiet(d, true);
  for (int most = 40; most > 1; most = most * 2 / 3) {
    Op *large = enlarged(e, false, most, &r, d);
    if (large && !check_op(e, large, "larger", &r, d)) return;
    large = enlarged(e, true, most, &r, d);
    if (large && !check_op(e, large, "larger", &r, d)) return;
  }
  // i8 and i16 are for kernels by size of element.
  static const DType others[] = {DT_f64, DT_i32, DT_i64, DT_i8, DT_i16, DT_f16};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    Op *other = with_dtype(e, DT_f32, others[i], d);
    if (other && kernel_name(other, TARGET_cpu, name, sizeof name)) check_op(e, other, name, &r, d);
  }
}

// Whether an instance could call it: collectives need ranks, and no floating type has one byte.
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
    failures++;
  }
}

int main(int argc, char **argv) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Examples all = examples_read(argv + 1, argc - 1, a, d);
  called = arena_array(a, bool, n_kernels);
  for (int i = 0; i < all.n; i++)
    check_example(&all.at[i], d);
  check_coverage();
  printf("kernels: %d calls of %d kernels, %d failures\n", calls, n_kernels, failures);
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
