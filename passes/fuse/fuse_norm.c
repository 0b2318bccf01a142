// Fuses normalisation with the sum that it normalises, for targets with one kernel for both:
//
//     %s = add %x, %r                                 : f32[8,64]
//     %y, %m, %v = layer_norm %s, %g, %b              : f32[8,64], …
//
//   =>  %s, %y, %m, %v = add_layer_norm %x, %r, %g, %b
//
//     %1, %dg, %db = layer_norm_back %s, %g, %m, %v, %dy
//     %ds = add %dr, %1                               : f32[8,64]
//
//   =>  %ds, %dg, %db = layer_norm_back_add %dr, %s, %g, %m, %v, %dy
//
// and rms_norm likewise. So at a norm a residual stream goes through memory once in each direction,
// not three times.
//
// Both summands must be in memory anyway. An operand that only elementwise ops read, or a
// broadcast, is better left to fuse, which makes one kernel of it and the addition.

#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "pass.h"

typedef struct Fusion {
  Graph *g;
  Diag *d;
  bool *done; // by op id: it precedes the op at hand
  int64_t n_sums, n_backs;
} Fusion;

static bool is_known(const Fusion *f, const Value *v) {
  return !v->def || f->done[v->def->id];
}

static bool is_computed(const Op *op) {
  return op_info[op->kind].formula || op->kind == OP_broadcast || op->kind == OP_fill ||
         op->kind == OP_constant;
}

// Whether `v` must be in memory even if fuse joins its op with `reader`.
static bool stays_in_memory(const Value *v, const Op *reader) {
  if (!v->def || !is_computed(v->def)) return true;
  for_each_use(u, v)
    if (!u->user || (u->user != reader && !is_computed(u->user))) return true;
  return false;
}

// Fuses %add with a norm of its sum, if the norm's other operands precede %add.
static void fuse_sum(Fusion *f, Op *add) {
  Value *s = add->out[0], *x = add->in[0].value, *r = add->in[1].value;
  Op *norm = NULL;
  // A norm of the sum.
  for_each_use(u, s)
    if (u->user && u->index == 0 &&
        (u->user->kind == OP_layer_norm || u->user->kind == OP_rms_norm))
      norm = u->user;
  if (!norm || x->type != r->type || !stays_in_memory(x, add) || !stays_in_memory(r, add)) return;
  bool layer = norm->kind == OP_layer_norm;
  Value *in[] = {x, r, norm->in[1].value, layer ? norm->in[2].value : NULL};
  // The fused op takes the position of %add.
  for (int i = 2; i < norm->n_in + 1; i++)
    if (!is_known(f, in[i])) return;
  Builder b = {.g = f->g, .at = add, .origin = op_origin(norm), .d = f->d};
  Op *op = local_op(&b, layer ? OP_add_layer_norm : OP_add_rms_norm, in, norm->n_in + 1,
                    ATTRS(*op_attr(norm, "eps")), norm->split);
  if (!op) return;
  // Types and layouts must stay.
  bool same = local_same(op, 0, s);
  for (int i = 0; i < norm->n_out; i++)
    same &= local_same(op, i + 1, norm->out[i]);
  if (!same) {
    op_erase(op);
    return;
  }
  value_replace_uses(s, op->out[0]);
  for (int i = 0; i < norm->n_out; i++)
    value_replace_uses(norm->out[i], op->out[i + 1]); // norm is dead
  f->done[op->id] = true;
  op_erase(add);
  f->n_sums++;
}

static void fuse_back(Fusion *f, Op *back) {
  Value *dx = back->out[0];
  Op *add = only_reader(dx);
  if (!add || add->kind != OP_add) return;
  // The other summand must be in memory anyway.
  Value *dr = add->in[add->in[0].value == dx ? 1 : 0].value;
  if (dr->type != dx->type || !stays_in_memory(dr, add) || !is_known(f, dr)) return;
  // The fused op takes the position of the gradient, so `dr` must precede that.
  Value *in[6] = {dr};
  for (int i = 0; i < back->n_in; i++)
    in[i + 1] = back->in[i].value;
  Builder b = {.g = f->g, .at = back, .origin = op_origin(back), .d = f->d};
  OpKind kind = back->kind == OP_layer_norm_back ? OP_layer_norm_back_add : OP_rms_norm_back_add;
  Op *op = local_op(&b, kind, in, back->n_in + 1, NO_ATTRS, back->split);
  if (!op) return;
  // Types and layouts must stay.
  bool same = local_same(op, 0, add->out[0]);
  for (int i = 1; i < back->n_out; i++)
    same &= local_same(op, i, back->out[i]);
  if (!same) {
    op_erase(op);
    return;
  }
  value_replace_uses(add->out[0], op->out[0]); // add is dead
  for (int i = 1; i < back->n_out; i++)
    value_replace_uses(back->out[i], op->out[i]);
  f->done[op->id] = true;
  f->n_backs++;
}

bool pass_fuse_norm(Module *m, const PassOptions *o, Diag *d) {
  Fusion f = {.d = d};
  for_each_graph(g, m) {
    f.g = g;
    if (g->entry) {
      graph_renumber(f.g);
      // At most one new op per op.
      f.done = arena_array(opt_scratch(o), bool, 2 * (int64_t)f.g->n_ops);
      for_each_op_safe(op, f.g) {
        f.done[op->id] = true;
        if (op->kind == OP_layer_norm_back || op->kind == OP_rms_norm_back) fuse_back(&f, op);
        if (op->kind == OP_add) fuse_sum(&f, op);
      }
      drop_dead(f.g);
    }
  }
  opt_stat(o, f.n_sums, "sums before norms");
  opt_stat(o, f.n_backs, "sums after their gradients");
  return true;
}
