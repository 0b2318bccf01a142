// Fusing collectives: what is done over one axis and then over another is done over both at once.
//
//     %1 = all_reduce %g axis="dp" : f32[64] {B, P}
//     %2 = all_reduce %1 axis="tp" : f32[64] {B, B}      =>     %2 = all_reduce %g axis="dp+tp"
//
//     %1 = all_gather %x axis="tp" : f32[4,8] {S(0), B}
//     %2 = all_gather %1 axis="dp" : f32[8,8] {B, B}     =>     %2 = all_gather %x axis="dp+tp"
//
// One collective of four ranks starts once where two of two ranks start twice, and a sum is sent
// less often: 2 (1 - 1/4) of it instead of 2 (1 - 1/2) twice.  Nobody else may read what is
// between. comm goes axis by axis and leaves this to us; pack_grads then has fewer groups.

#include <string.h>

#include "ir/op.h"
#include "pass.h"

static bool is_joined(OpKind kind) {
  return kind == OP_all_reduce || kind == OP_all_gather || kind == OP_reduce_scatter;
}

// The collective whose result this one takes on, if it is of the same kind and nobody else reads
// it.
static Op *first_of(const Op *op) {
  const Value *v = op->in[0].value;
  Op *first = v->def;
  bool same = first && first->kind == op->kind && v->uses && !v->uses->next;
  if (!same || v->layout->mesh != op->out[0]->layout->mesh) return NULL;
  if (op->kind != OP_all_reduce && attr_i(first, "dim") != attr_i(op, "dim")) return NULL;
  return first;
}

// The axes of both, in the order of the mesh: "dp+tp".
static const char *joined_axes(const Op *a, const Op *b, Arena *arena, Diag *d) {
  const Mesh *mesh = op_mesh(a);
  MeshAxes x, y;
  StrBuf names = {.arena = arena};
  if (!op_axes(a, &x, d) || !op_axes(b, &y, d)) return NULL;
  for (int i = 0; i < mesh->n_axes; i++)
    if (axes_have(&x, i) || axes_have(&y, i))
      strbuf_addf(&names, "%s%s", names.n ? "+" : "", mesh->axis[i].name);
  return names.at;
}

static bool join(Op *first, Op *op, Diag *d) {
  const char *axes = joined_axes(first, op, op->graph->module->arena, d);
  if (!axes) return false;
  Builder b = {.g = op->graph, .at = op, .origin = op_origin(op), .d = d};
  Value *x = first->in[0].value;
  Value *out = op->kind == OP_all_reduce
                   ? build(&b, op->kind, IN(x), ATTRS(a_s("axis", axes)))
                   : build(&b, op->kind, IN(x), ATTRS(a_s("axis", axes), *op_attr(op, "dim")));
  if (!out) return false;
  out->layout = op->out[0]->layout;
  value_replace(op->out[0], out);
  op_erase(op);
  op_erase(first);
  return true;
}

bool pass_fuse_comm(Module *m, const PassOptions *o, Diag *d) {
  int64_t joined = 0;
  for_each_graph(g, m) {
    if (!g->entry) continue;
    for_each_op_safe(op, g) {
      Op *first = is_joined(op->kind) ? first_of(op) : NULL;
      if (first && !join(first, op, d)) return false;
      joined += first != NULL;
    }
  }
  opt_stat(o, joined, "collectives joined");
  return true;
}
