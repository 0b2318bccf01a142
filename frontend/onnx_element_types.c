// The element types of the module, fitted to the kernels of the target.
//
//     %y = reduce_max %x axes=[1]       : u8[4]          x: u8[4,8]; kernels for f32, i32, i64
//
//   =>
//
//     %0 = cast %x to=i32               : i32[4,8]
//     %1 = reduce_max %0 axes=[1]       : i32[4]
//     %y = cast %1 to=u8                : u8[4]
//
// Integers and truth values are computed in a wider integer.  Its comparisons are the same, and
// sums and products wrap to the same numbers when they are cast back.  i64 is not wider than u64:
// its elements are shifted by 2^63, which keeps their order, for ops that compare.
//
// An op without a kernel for any of these types is reported at its node, with all others: the
// columns of ops.def have the types.  Elementwise kernels are generated for every type.

#include "frontend/onnx_walk.h"
#include "ir/kernel.h"

// Whether operand `i` has the type that the kernel is named after, not one that the row fixes.
static bool is_computed(const Op *op, int i, DType of) {
  char class = op_operand_class(op, i);
  return op->in[i].value->type->dtype == of && (class == 'N' || class == 'A' || class == 'Z');
}

// Whether the result depends on the order of the elements: not on their sums or products alone.
static bool compares(const Op *op) {
  return op->kind == OP_reduce_max || op->kind == OP_reduce_min || op->kind == OP_arg_max ||
         op->kind == OP_arg_min || op->kind == OP_top_k || op->kind == OP_scatter_min ||
         op->kind == OP_scatter_max;
}

// Sets the narrowest integer type with a kernel that represents all numbers of type `of`, or, for
// u64, as many.
static bool wider(OpKind kind, Target t, DType of, DType *out) {
  if (dtype_class[of] == 'F') return false;
  *out = dtype_bytes[of] < 4 || of == DT_i32 ? DT_i32 : DT_i64;
  if (*out == DT_i32 && of != DT_i32 && kernel_exists(kind, t, DT_i32)) return true;
  *out = DT_i64;
  return of != DT_i64 && kernel_exists(kind, t, DT_i64);
}

// Casts between the types; of u64 in the order of its numbers if `ordered`.
static Value *convert(Builder *b, Value *v, DType to, bool ordered) {
  Attrs half = ATTRS(a_f("by", 0x1p63));
  DType from = v->type->dtype;
  if (ordered && from == DT_u64) v = build_op(b, OP_offset, IN(v), half);
  v = build_cast(b, v, to);
  return ordered && to == DT_u64 ? build_op(b, OP_offset, IN(v), half) : v;
}

static bool widen(Import *im, Op *op, DType of, DType to) {
  Builder b = {.g = im->g, .at = op, .origin = op_origin(op), .d = im->d};
  bool ordered = compares(op);
  for (int i = 0; i < op->n_in; i++) {
    if (!is_computed(op, i, of)) continue;
    Value *wide = convert(&b, op->in[i].value, to, ordered);
    if (!wide) return false;
    op_set_in(op, i, wide);
  }
  const Type **was = arena_array(im->a, const Type *, op->n_out);
  for (int i = 0; i < op->n_out; i++)
    was[i] = op->out[i]->type;
  if (!op_retype(op, im->d)) return false;
  // Readers of the results get the former types, and the casts back take over the names.
  b.at = op->next;
  for (int i = 0; i < op->n_out; i++) {
    Value *v = op->out[i];
    if (v->type == was[i]) continue;
    // The readers, before the casts are among them.
    Op *last = b.at ? b.at->prev : im->g->last;
    Value *back = convert(&b, v, of, ordered);
    if (!back) return false;
    Op *first = last->next;
    value_replace(v, back);
    op_set_in(first, 0, v);
    const char *name = v->name;
    value_set_name(v, NULL);
    value_set_name(back, name);
  }
  return true;
}

// "u64[4], i64[4]"
static const char *operands_text(Arena *a, const Op *op) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "%s of ", op_info[op->kind].name);
  for (int i = 0; i < op->n_in; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "", type_text(a, op->in[i].value->type));
  return b.at;
}

static void report(Import *im, const Op *op, DType of, Target t) {
  const char *kernels = op_info[op->kind].kernels[t];
  const char *cause =
      str_format(im->a, "%s: there is no %s kernel for %s, only for %s", op_info[op->kind].name,
                 target_info[t].name, dtype_name[of], kernels);
  problem_add(&im->problems, (ModelProblem){.kind = PROBLEM_kernel,
                                            .loc = op->loc,
                                            .cause = cause,
                                            .hint = "cast the operands in the model, as to float",
                                            .detail = operands_text(im->a, op),
                                            .op = op_info[op->kind].name});
}

bool onnx_element_types(Import *im, bool whole) {
  if (!im->o->target) return true;
  Target t = *im->o->target;
  char name[128];
  for_each_op_safe(op, im->g) {
    const OpInfo *info = &op_info[op->kind];
    // Without kernels: elementwise ops, views, constants, and ops that a pass replaces.
    bool kernels = !str_equal(info->kernels[t], "-");
    if (!kernels || op->callee || kernel_name(op, t, name, sizeof name)) continue;
    // After a failed import there is arithmetic that is known, and would be no op of the module.
    bool known = !whole;
    for (int i = 0; known && i < op->n_out; i++)
      known = onnx_is_known(im, op->out[i]);
    if (known) continue;
    DType of = kernel_telling(op)->type->dtype, to;
    if (!wider(op->kind, t, of, &to))
      report(im, op, of, t);
    else if (!widen(im, op, of, to))
      return false;
  }
  return true;
}
