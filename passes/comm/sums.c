// See sums.h.
//
// The squares of gradients, of which the sum is their norm, are partial sums of the ranks that have
// parts of the gradient. In the order of the weights terms with different layouts alternate, and
// each would be reduced by itself before it is added:
//
//     %a = sum_squares %g1 : f32[] {P}               %a = sum_squares %g1 : f32[] {P}
//     %b = sum_squares %g2 : f32[] {B}               %b = sum_squares %g2 : f32[] {B}
//     %c = sum_squares %g3 : f32[] {P}          =>   %c = sum_squares %g3 : f32[] {P}
//     %s = add %a, %b      : f32[] {B}               %p = add %a, %c      : f32[] {P} split=[+]
//     %t = add %s, %c      : f32[] {B}               %t = add %p, %b      : f32[] {B}
//
// In the new order the terms of each layout are added first, partial sums as such; then the sums of
// the layouts of each mesh; then those of the meshes, in the order in which the sum visited them.
// So there is one reduction per layout, and it waits for no other stage. The proof knows sums of
// scalars in any order.

#include "sums.h"

#include "base/vec.h"
#include "hops.h"
#include "ir/analysis/origin.h"
#include "ir/build.h"
#include "ir/op.h"
#include "ir/split.h"

typedef Vec(Value *) Values;

// A term of a sum, and the add that reads it.
typedef struct Addend {
  Value *value;
  const Op *reader;
} Addend;

typedef Vec(Addend) Addends;

static bool adds_scalars(const Op *op) {
  return op->kind == OP_add && op_part(op) == PART_update && op->out[0]->type->ndim == 0 &&
         dtype_class[op->out[0]->type->dtype] == 'F' && op->in[0].value->type->ndim == 0 &&
         op->in[1].value->type->ndim == 0;
}

// Whether the op is only a term of a longer sum.
static bool is_inner(const Op *op) {
  const Use *u = op->out[0]->uses;
  return adds_scalars(op) && u && !u->next && u->user && adds_scalars(u->user);
}

// The terms of a sum, from left to right.
static Addends terms_of(const Op *sum, Arena *scratch) {
  Addends all = {0}, open = {0};
  vec_push(scratch, &open, ((Addend){sum->out[0], NULL}));
  while (open.n) {
    Addend top = open.at[--open.n];
    const Op *op = top.value->def;
    if (op == sum || (op && is_inner(op))) {
      vec_push(scratch, &open, ((Addend){op->in[1].value, op}));
      vec_push(scratch, &open, ((Addend){op->in[0].value, op}));
    } else {
      vec_push(scratch, &all, top);
    }
  }
  return all;
}

// Whether terms with partial sums over ranks alternate with others; and none has partial sums over
// time, which are no operands of updates.
static bool alternates(const Addends *all) {
  bool partial = false, other = false;
  for (int i = 0; i < all->n; i++) {
    const Layout *l = all->at[i].value->layout;
    if (!l) return false;
    for (int a = 0; a < l->n_axes; a++) {
      if (l->axis[a].kind == SBP_S || (is_time(l, a) && l->axis[a].kind != SBP_B)) return false;
      partial |= l->axis[a].kind == SBP_P;
    }
    other |= l != all->at[0].value->layout;
  }
  return partial && other;
}

// Adds `y` to the sum so far, if there is one: in this layout, partial sums as such.
static Value *plus(Builder *b, Value *x, Value *y, const Layout *layout) {
  Value *sum = x ? build_binary(b, OP_add, x, y) : y;
  if (!x || !sum) return sum;
  sum->layout = layout;
  for (int a = 0; a < layout->n_axes; a++)
    sum->def->split[a] = layout->axis[a].kind == SBP_P ? SPLIT_PARTIAL : SPLIT_NONE;
  return sum;
}

// The sum of the layouts of a mesh: of a single one as it is.
static Value *sum_on(Builder *b, const Values *layouts, const Mesh *mesh) {
  Value *sum = NULL;
  for (int i = 0; i < layouts->n; i++)
    if (layouts->at[i]->layout->mesh == mesh)
      sum = plus(b, sum, layouts->at[i], layout_broadcast(b->g->module, mesh));
  return sum;
}

static bool rebuild(Op *sum, const Addends *all, Arena *scratch, Diag *d) {
  Builder b = {.g = sum->graph, .at = sum, .origin = op_origin(sum), .d = d};
  Values layouts = {0}, meshes = {0};
  for (int i = 0; i < all->n; i++) {
    Value *v = all->at[i].value;
    int at = 0;
    while (at < layouts.n && layouts.at[at]->layout != v->layout)
      at++;
    if (at == layouts.n)
      vec_push(scratch, &layouts, v);
    else if (!(layouts.at[at] = plus(&b, layouts.at[at], v, v->layout)))
      return false;
  }
  // The ops on a mesh come before those that wait for the sum of the meshes before.
  for (int i = 0; i < layouts.n; i++) {
    const Mesh *mesh = layouts.at[i]->layout->mesh;
    bool known = false;
    for (int k = 0; k < i; k++)
      known |= layouts.at[k]->layout->mesh == mesh;
    Value *one = known ? NULL : sum_on(&b, &layouts, mesh);
    if (!known && !one) return false;
    if (one) vec_push(scratch, &meshes, one);
  }
  // The sum visits the meshes as before: it was on the mesh of the add that read its first term.
  Value *total = meshes.at[0];
  for (int i = 1; i < meshes.n; i++) {
    const Op *reader = NULL;
    for (int k = 0; k < all->n && !reader; k++)
      if (all->at[k].value->layout->mesh == meshes.at[i]->layout->mesh) reader = all->at[k].reader;
    const Mesh *on = op_mesh(i == meshes.n - 1 ? sum : reader);
    if (!(total = plus(&b, total, meshes.at[i], layout_broadcast(b.g->module, on)))) return false;
  }
  value_replace(sum->out[0], total);
  return true;
}

bool order_sums(Graph *g, Arena *scratch, Diag *d) {
  bool any = false;
  for_each_op_safe(op, g) {
    if (!adds_scalars(op) || is_inner(op)) continue;
    Addends all = terms_of(op, scratch);
    if (!alternates(&all)) continue;
    if (!rebuild(op, &all, scratch, d)) return false;
    any = true;
  }
  // What the old order added is erased from the end: readers come after producers.
  for (Op *op = any ? g->last : NULL, *before; op; op = before) {
    before = op->prev;
    if (adds_scalars(op) && !op_used(op)) op_erase(op);
  }
  return true;
}
