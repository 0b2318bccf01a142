// Fusing collectives: successive collectives over one axis each become one over both axes.
//
//     %1 = all_reduce %g axis="dp" : f32[64] {B, P}
//     %2 = all_reduce %1 axis="tp" : f32[64] {B, B}      =>     %2 = all_reduce %g axis="dp+tp"
//
//     %1 = all_gather %x axis="tp" : f32[4,8] {S(0), B}
//     %2 = all_gather %1 axis="dp" : f32[8,8] {B, B}     =>     %2 = all_gather %x axis="dp+tp"
//
// One collective of four ranks pays one latency instead of two. A sum is sent less often: instead
// of 2 (1 - 1/2) twice, 2 (1 - 1/4) of it. The intermediate value may have no other reader. comm
// goes axis by axis and leaves this to this pass; bucket_grads then has fewer groups.
//
// Over several nodes that may take longer, as one large ring has more hops between nodes than small
// rings: the loss of 16 ranks on two nodes is reduced in 27 us axis by axis, in 87 us at once. So
// if the option `cluster` gives the costs of links, two become one if that is no slower. Sums of
// gradients are exempt, as bucket_grads makes many of them share a start.

#include <string.h>

#include "cost/collectives.h"
#include "cost/cost_comm.h"
#include "ir/analysis/origin.h"
#include "ir/collective.h"
#include "ir/op.h"
#include "pass.h"

typedef struct Fuser {
  CommPrices *prices; // NULL: unknown costs of links
  Diag *d;
} Fuser;

// The producer of the operand, if it is a collective of the same kind with no other reader; else
// NULL.
static Op *first_of(const Op *op) {
  const Value *v = op->in[0].value;
  Op *first = v->def;
  bool same = first && first->kind == op->kind && v->uses && !v->uses->next;
  if (!same || v->layout->mesh != op->out[0]->layout->mesh) return NULL;
  // Both change the same dimension.
  Sbp from, to, first_from, first_to;
  collective_ends(first, &first_from, &first_to);
  collective_ends(op, &from, &to);
  return from.dim == first_from.dim && to.dim == first_to.dim ? first : NULL;
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

static double seconds_of(const Fuser *f, const Op *op) {
  return comm_price(f->prices, op)->cost.seconds;
}

static bool join(const Fuser *f, Op *first, Op *op, int64_t *joined) {
  const char *axes = joined_axes(first, op, op->graph->module->arena, f->d);
  if (!axes) return false;
  Builder b = {.g = op->graph, .at = op, .origin = op_origin(op), .d = f->d};
  Value *x = first->in[0].value;
  Sbp from, to;
  collective_ends(op, &from, &to);
  Value *out = build_collective(&b, op->kind, x, axes, from, to);
  if (!out) return false;
  out->layout = op->out[0]->layout;
  // A gradient: the sum is no scalar, as norms are, and only ops of the update read it.
  bool gradient = op->kind == OP_all_reduce && op->out[0]->type->ndim > 0;
  for_each_use(u, op->out[0])
    if (!u->user || op_part(u->user) != PART_update) gradient = false;
  // A joint collective must not be slower than the two, unless it reduces a gradient.
  bool slower =
      f->prices && !gradient && seconds_of(f, out->def) > seconds_of(f, first) + seconds_of(f, op);
  if (slower) {
    op_erase(out->def);
    return true;
  }
  value_replace(op->out[0], out);
  op_erase(op);
  op_erase(first);
  ++*joined;
  return true;
}

bool pass_fuse_comm(Module *m, const PassOptions *o, Diag *d) {
  int64_t joined = 0;
  Fuser f = {.d = d};
  // Without a cluster, costs of links are unknown.
  const char *name = opt_str(o, "cluster");
  const Cluster *c = name ? cluster_read(opt_scratch(o), name, "cluster", d) : NULL;
  if (name && !c) return false;
  if (c) f.prices = comm_prices_new(opt_scratch(o), c);
  for_each_graph(g, m) {
    if (!g->entry) continue;
    for_each_op_safe(op, g) {
      // Two collectives of one kind after each other may be one.
      const CollectiveRule *rule = op_is_collective(op) ? collective_rule(op->kind) : NULL;
      Op *first = rule && !(rule->from_dim && rule->to_dim) ? first_of(op) : NULL;
      if (first && !join(&f, first, op, &joined)) return false;
    }
  }
  opt_stat(o, joined, "collectives joined");
  return true;
}
