// Calls kernels by name, through libffi, with the arguments that generated code would pass
// (ir/kernel.h).  The program exports the runtime's symbols to itself, so that dlsym finds them.

#include "eval.h"

#include <dlfcn.h>
#include <ffi.h>

#include "ir/kernel.h"
#include "nnrt.h"
#include "runtime.h"

// Arguments of a C call as they are collected.
typedef struct Call {
  int n;
  ffi_type *type[MAX_KERNEL_PARAMS];
  void *value[MAX_KERNEL_PARAMS];
  Arena *arena; // owns the targets of `value`
} Call;

static void push(Call *c, ffi_type *type, const void *bytes) {
  if (c->n == MAX_KERNEL_PARAMS) BUG("a kernel has more than %d parameters", MAX_KERNEL_PARAMS);
  c->type[c->n] = type;
  c->value[c->n++] = arena_copy(c->arena, bytes, type->size);
}

static void push_pointer(Call *c, const void *p) {
  push(c, &ffi_type_pointer, &p);
}

static void push_args(Call *c, const Op *op, const Box *box) {
  KernelArg args[MAX_KERNEL_ARGS];
  int n = kernel_args(op, args, MAX_KERNEL_ARGS, c->arena);
  for (int i = 0; i < n; i++) {
    const KernelArg *arg = &args[i];
    uint8_t flag = arg->i != 0;
    switch (arg->kind) {
    case ARG_int: push(c, &ffi_type_sint64, &arg->i); break;
    case ARG_float: push(c, &ffi_type_double, &arg->f); break;
    case ARG_bool: push(c, &ffi_type_uint8, &flag); break;
    case ARG_str: push_pointer(c, arg->s); break;
    case ARG_list: push_pointer(c, arg->list); break;
    case ARG_box:
      push_pointer(c, box->whole);
      push_pointer(c, box->start);
      break;
    case ARG_from: push(c, &ffi_type_sint64, &box->start[arg->i]); break;
    case ARG_all: {
      int64_t all = op_unpadded(op, box->whole[arg->i]);
      push(c, &ffi_type_sint64, &all);
      break;
    }
    case ARG_ranks: BUG("a collective is no single rank's kernel");
    case ARG_struct: push_pointer(c, kernel_struct(arg, c->arena)); break;
    }
  }
}

static void push_tensors(Call *c, const Op *op, const Tensor *in, const Tensor *out) {
  for (int i = 0; i < op->n_out; i++)
    push_pointer(c, out[i].data);
  if (kernel_variadic(op)) {
    const void **all = arena_array(c->arena, const void *, op->n_in);
    for (int i = 0; i < op->n_in; i++)
      all[i] = in[i].data;
    push_pointer(c, all);
    return;
  }
  for (int i = 0; i < op->n_in; i++)
    push_pointer(c, in[i].data);
}

// `result` is at least as wide as a register.
static bool call(Call *c, const Op *op, const char *name, ffi_type *type, void *result, Diag *d) {
  ffi_cif cif;
  void (*function)(void);
  *(void **)&function = dlsym(RTLD_DEFAULT, name); // as POSIX has it
  if (!function)
    return diag_error(d, op->loc, "%s: the runtime has no '%s'", op_info[op->kind].name, name);
  if (ffi_prep_cif(&cif, FFI_DEFAULT_ABI, (unsigned)c->n, type, c->type) != FFI_OK)
    BUG("libffi cannot call '%s'", name);
  ffi_call(&cif, function, result, c->value);
  return true;
}

static bool failed(const Op *op, const char *name, Diag *d) {
  return diag_error(d, op->loc, "%s: %s: %s", op_info[op->kind].name, name, nnrt_error_detail());
}

bool kernel_run(const Op *op, const Tensor *in, Tensor *out, const Box *box, bool *done, Arena *a,
                Diag *d) {
  char name[64];
  *done = kernel_name(op, TARGET_cpu, name, sizeof name);
  if (!*done) return true;
  for (int i = 0; i < op->n_out; i++)
    out[i] = tensor_new(a, op->out[i]->type);
  Call c = {.arena = a};
  if (op_info[op->kind].traits & PREP) {
    // A kernel with a preparation gets its result instead of the other arguments.
    char prep_name[64];
    void *prep = NULL;
    ffi_arg code = 0;
    kernel_prep_name(op, TARGET_cpu, prep_name, sizeof prep_name);
    push_args(&c, op, box);
    if (!call(&c, op, prep_name, &ffi_type_pointer, &prep, d)) return false;
    if (!prep) return failed(op, prep_name, d);
    c.n = 0;
    push_pointer(&c, prep);
    push_tensors(&c, op, in, out);
    bool ok = call(&c, op, name, &ffi_type_sint, &code, d);
    nnrt_prep_free(prep);
    return ok && ((int)code == NNRT_OK || failed(op, name, d));
  }
  ffi_arg code = 0;
  push_tensors(&c, op, in, out);
  push_args(&c, op, box);
  return call(&c, op, name, &ffi_type_sint, &code, d) &&
         ((int)code == NNRT_OK || failed(op, name, d));
}
