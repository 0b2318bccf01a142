// Computes 16-bit ops without a kernel on the target in f32.
//
//     %y, %i = max_pool %x …         : bf16[8,4,16], i32[8,4,16]         cpu: a kernel for f32 only
//
//   =>
//
//     %0 = cast %x to=f32            : f32[8,4,32]
//     %1, %i = max_pool %0 …         : f32[8,4,16], i32[8,4,16]
//     %y = cast %1 to=bf16           : bf16[8,4,16]
//
// So a target needs 16-bit kernels only if they pay off.  The semantics stay: values that were
// rounded to 16 bits are still rounded.  Elementwise ops stay as they are, since their kernels are
// generated for every type; so do ops that move elements, since their kernels depend on the element
// size only.  fuse merges most of the casts into the kernels before and after.
//
// A bucket is widened as a whole: its members before they are packed, and back after they are
// unpacked.
//
// The CPU has 16-bit kernels for matrix products, attention, LSTM, normalisation, softmax, cross
// entropy and the gradient of lookups, and those of bf16 for convolutions.  Pooling, GRU and RNN
// become those of f32 on rounded values: right, but not faster than f32.
//
// An op without an f32 kernel is left alone, and the backend reports it.

#include "legalize_types.h"
#include "ir/kernel.h"
#include "ir/op.h"
#include "ir/split.h"
#include "pass.h"

typedef struct Widening {
  Graph *g;
  Arena *scratch;
  Diag *d;
  Target target;
  int64_t n;
} Widening;

static bool is_narrow(const Value *v) {
  return dtype_narrow(v->type->dtype);
}

// Casts `v` to type `to` and gives it `layout`.
static Value *cast(Widening *p, Value *v, DType to, const Layout *layout, const Op *op, Op *at) {
  Builder b = {.g = p->g, .at = at, .origin = op_origin(op), .d = p->d};
  Value *made = build_cast(&b, v, to);
  Dims dims;
  if (!made || !op_dims(made->def, &dims, p->d)) return NULL;
  // A cast has the layout of its operand.  It passes partial sums through and splits along the
  // dimension that is sharded.
  for (int a = 0; a < layout->n_axes && a < MAX_AXES; a++) {
    Sbp sbp = layout->axis[a];
    if (sbp.kind == SBP_P) made->def->split[a] = SPLIT_PARTIAL;
    if (sbp.kind != SBP_S) continue;
    if (dims.in[0].dim[sbp.dim].n != 1) BUG("a dimension that is split has no letter");
    made->def->split[a] = dims.letter[dims.in[0].dim[sbp.dim].letter[0]].name;
  }
  made->layout = layout;
  return made;
}

// Whether only sums read the bucket, before its members are unpacked.
static bool only_unpacked(const Value *v) {
  bool only = true;
  for_each_use(u, v) {
    bool sum = u->user && u->user->kind == OP_all_reduce;
    only &= u->user && (u->user->kind == OP_unpack || (sum && only_unpacked(u->user->out[0])));
  }
  return only;
}

// Whether a value is such a bucket.
static bool is_bucket(const Value *v) {
  while (v->def && v->def->kind == OP_all_reduce)
    v = v->def->in[0].value;
  return v->def && v->def->kind == OP_pack && only_unpacked(v);
}

// Gives the ops that unpack members of a bucket their offsets in it, which depend on the type.
static void move_members(const Value *bucket, const int64_t *from, const int64_t *to, int n) {
  for_each_use(u, bucket) {
    if (u->user->kind != OP_unpack) {
      move_members(u->user->out[0], from, to, n);
      continue;
    }
    int64_t offset = attr_i(u->user, "offset");
    for (int i = 0; i < n; i++)
      if (from[i] == offset) {
        op_set_attr(u->user, a_i("offset", to[i]));
        break;
      }
  }
}

static int64_t *member_offsets(const Widening *p, const Op *pack) {
  int64_t *offset = arena_array(p->scratch, int64_t, pack->n_in + 1);
  for (int i = 0; i < pack->n_in; i++)
    offset[i + 1] = offset[i] + pack_length(pack->in[i].value->type);
  return offset;
}

static bool widen_op(Widening *p, Op *op) {
  const int64_t *narrow = op->kind == OP_pack ? member_offsets(p, op) : NULL;
  Value **was = arena_array(p->scratch, Value *, op->n_in);
  DType *result = arena_array(p->scratch, DType, op->n_out);
  for (int i = 0; i < op->n_out; i++)
    result[i] = op->out[i]->type->dtype;
  // An operand that occurs twice is cast once.
  for (int i = 0; i < op->n_in; i++) {
    Value *v = was[i] = op->in[i].value, *wide = NULL;
    if (!is_narrow(v)) continue;
    for (int k = 0; k < i; k++)
      if (was[k] == v) wide = op->in[k].value;
    if (!wide) wide = cast(p, v, DT_f32, v->layout, op, op);
    if (!wide) return false;
    op_set_in(op, i, wide);
  }
  if (!op_retype(op, p->d)) return false;
  if (narrow) move_members(op->out[0], narrow, member_offsets(p, op), op->n_in);
  // Readers of the results get the former types, and the casts back take over the names.
  for (int i = 0; i < op->n_out; i++) {
    Value *v = op->out[i];
    if (v->type->dtype == result[i] || !value_used(v) || is_bucket(v)) continue;
    Value *back = cast(p, v, result[i], v->layout, op, op->next);
    if (!back) return false;
    value_replace(v, back);
    op_set_in(back->def, 0, v);
    const char *name = v->name;
    value_set_name(v, NULL);
    value_set_name(back, name);
  }
  p->n++;
  return true;
}

bool must_widen(const Op *op, Target t) {
  char name[128];
  bool any = false;
  for (int i = 0; i < op->n_in; i++)
    any |= is_narrow(op->in[i].value);
  // Elementwise ops and views have no kernels, and a call runs the kernels of its callee.
  return any && !op->callee && kernel_exists(op->kind, t, DT_f32) &&
         !kernel_name(op, t, name, sizeof name);
}

// Whether the op packs a bucket for a collective that must be widened.
static bool packs_for(const Op *op, Target t) {
  if (op->kind != OP_pack || !is_narrow(op->out[0]) || !is_bucket(op->out[0])) return false;
  for_each_use(u, op->out[0])
    if (must_widen(u->user, t)) return true;
  return false;
}

static bool reads_wide_bucket(const Op *op) {
  return op->n_in > 0 && is_bucket(op->in[0].value) && !is_narrow(op->in[0].value) &&
         is_narrow(op->out[0]);
}

bool pass_legalize_types(Module *m, const PassOptions *o, Diag *d) {
  Widening p = {.scratch = opt_scratch(o), .d = d};
  if (!opt_target(o, &p.target, d)) return false;
  for_each_graph(g, m) {
    p.g = g;

    for_each_op_safe(op, g) {
      bool widen = must_widen(op, p.target) || packs_for(op, p.target) || reads_wide_bucket(op);
      if (widen && !widen_op(&p, op)) return false;
    }
  }
  opt_stat(o, p.n, "ops widened");
  return true;
}
