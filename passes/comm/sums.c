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
//
// A sum of gradients in 16 bits keeps its order: its rounding depends on it. If it begins with the
// sum of another stage, such as the gradient of an encoder's result, to which each layer of a
// decoder adds terms, that one enters as a partial sum instead, and only the last sum is reduced:
//
//     %r = add %g, %p : bf16[4,6] @s {B}             %r = add %g, %p : bf16[4,6] @s {P} split=[+]
//     %s = add %r, %q : bf16[4,6] @s {B}        =>   %s = add %r, %q : bf16[4,6] @s {P} split=[+]
//
// Each rank rounds its own sum, as it does if all terms are of one stage.

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
  Op *reader;
} Addend;

typedef Vec(Addend) Addends;

// Whether the op adds scalars of updates, or gradients of one type.
static bool adds_alike(const Op *op) {
  if (op->kind != OP_add) return false;
  const Type *t = op->out[0]->type;
  return (op_part(op) == PART_update ? t->ndim == 0 : op_part(op) == PART_backward) &&
         type_equal(t, op->in[0].value->type) && type_equal(t, op->in[1].value->type) &&
         dtype_class[t->dtype] == 'F' && !dtype_narrow(t->dtype) && !op_is_recomputed(op);
}

// Whether the op is only a term of a longer sum.
static bool is_inner(const Op *op) {
  const Use *u = op->out[0]->uses;
  return adds_alike(op) && u && !u->next && u->user && adds_alike(u->user) &&
         op_part(u->user) == op_part(op);
}

// The terms of a sum, from left to right.
static Addends terms_of(Op *sum, Arena *scratch) {
  Addends all = {0}, open = {0};
  vec_push(scratch, &open, ((Addend){sum->out[0], NULL}));
  while (open.n) {
    Addend top = open.at[--open.n];
    Op *op = top.value->def;
    if (op == sum || (op && is_inner(op))) {
      vec_push(scratch, &open, ((Addend){op->in[1].value, op}));
      vec_push(scratch, &open, ((Addend){op->in[0].value, op}));
    } else {
      vec_push(scratch, &all, top);
    }
  }
  return all;
}

static const Op *first_reader(const Addends *all, const Mesh *mesh) {
  for (int i = 0; i < all->n; i++)
    if (all->at[i].value->layout->mesh == mesh) return all->at[i].reader;
  return NULL;
}

// Whether the term has partial sums over ranks that are reduced before it is added.
static bool is_reduced(const Addend *term) {
  const Layout *l = term->value->layout, *sum = term->reader->out[0]->layout;
  for (int a = 0; a < l->n_axes; a++)
    if (l->axis[a].kind == SBP_P && !is_time(l, a) &&
        (sum->mesh != l->mesh || sum->axis[a].kind != SBP_P))
      return true;
  return false;
}

// A layout of terms, and the number of these that are reduced before they are added.
typedef struct Alike {
  const Layout *layout;
  int reduced;
} Alike;

// Whether the order saves reductions: two terms of one layout are reduced, and there are others.
// Gradients have one layout on each mesh, and are no parts of micro-batches.
static bool saves(const Op *sum, const Addends *all, Arena *scratch) {
  Vec(Alike) kinds = {0};
  bool any = false;
  for (int i = 0; i < all->n; i++) {
    const Layout *l = all->at[i].value->layout;
    if (!l || !all->at[i].reader->out[0]->layout) return false;
    for (int a = 0; a < l->n_axes; a++)
      if (is_time(l, a) && l->axis[a].kind == SBP_S) return false;
    int at = 0;
    while (at < kinds.n && kinds.at[at].layout != l) {
      if (op_part(sum) != PART_update && kinds.at[at].layout->mesh == l->mesh) return false;
      at++;
    }
    if (at == kinds.n) vec_push(scratch, &kinds, ((Alike){l, 0}));
    any |= is_reduced(&all->at[i]) && ++kinds.at[at].reduced > 1;
  }
  return any && kinds.n > 1;
}

// Adds `y` to the sum so far, if there is one: in this layout, partial sums as such.
static Value *plus(Builder *b, Value *x, Value *y, const Layout *layout) {
  Value *sum = x ? build_binary(b, OP_add, x, y) : y;
  Dims dims;
  if (!x || !sum) return sum;
  if (!op_dims(sum->def, &dims, b->d)) return NULL;
  sum->layout = layout;
  for (int a = 0; a < layout->n_axes; a++) {
    Sbp is = layout->axis[a];
    sum->def->split[a] = is.kind == SBP_P ? SPLIT_PARTIAL : SPLIT_NONE;
    if (is.kind == SBP_S) sum->def->split[a] = dims.letter[dims.out[0].dim[is.dim].letter[0]].name;
  }
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
  Builder b = {.g = sum->graph, .d = d};
  Values layouts = {0}, meshes = {0};
  // Each add is in the place of the one that read its last term before.
  for (int i = 0; i < all->n; i++) {
    Value *v = all->at[i].value;
    int at = 0;
    while (at < layouts.n && layouts.at[at]->layout != v->layout)
      at++;
    b.at = all->at[i].reader;
    b.origin = op_origin(b.at);
    if (at == layouts.n)
      vec_push(scratch, &layouts, v);
    else if (!(layouts.at[at] = plus(&b, layouts.at[at], v, v->layout)))
      return false;
  }
  // The sums on each mesh come before those that wait for the sum of the meshes before.
  b.at = sum;
  b.origin = op_origin(sum);
  for (int i = 0; i < layouts.n; i++) {
    const Mesh *mesh = layouts.at[i]->layout->mesh;
    bool known = false;
    for (int k = 0; k < i; k++)
      known |= layouts.at[k]->layout->mesh == mesh;
    Value *one = known ? NULL : sum_on(&b, &layouts, mesh);
    if (!known && !one) return false;
    if (one) vec_push(scratch, &meshes, one);
  }
  // The sum visits the meshes as before: with the layout of the add that read the first term.
  Value *total = NULL;
  for (int i = 0; i < meshes.n; i++) {
    const Op *was = first_reader(all, meshes.at[i]->layout->mesh);
    b.origin = op_origin(was);
    if (!(total = plus(&b, total, meshes.at[i], was->out[0]->layout))) return false;
  }
  value_replace(sum->out[0], total);
  return true;
}

// -- Sums in 16 bits ---------------------------------------------------------------------------

// Whether the op adds gradients of one type in 16 bits.
static bool adds_narrow(const Op *op) {
  if (op->kind != OP_add || op_part(op) != PART_backward || op_is_recomputed(op)) return false;
  const Type *t = op->out[0]->type;
  return op->out[0]->layout && dtype_class[t->dtype] == 'F' && dtype_narrow(t->dtype) &&
         type_equal(t, op->in[0].value->type) && type_equal(t, op->in[1].value->type);
}

// Whether the value has partial sums over the axis of the mesh.
static bool is_partial(const Value *v, const Mesh *mesh, int axis) {
  return v->layout && v->layout->mesh == mesh && v->layout->axis[axis].kind == SBP_P;
}

// Whether the op adds partial sums over the axis to its operand `sum`, and reduces them before.
static bool reduces_term(const Op *op, const Value *sum, int axis) {
  if (!adds_narrow(op)) return false;
  const Layout *l = op->out[0]->layout;
  const Value *term = op->in[op->in[0].value == sum].value;
  return l->axis[axis].kind == SBP_B && term != sum && is_partial(term, l->mesh, axis);
}

// The only reader of the result, if it adds such a term, too, with the same layout; or NULL.
static Op *next_term(const Op *op, int axis) {
  const Value *sum = op->out[0];
  const Use *u = sum->uses;
  if (!u || u->next || !u->user || !reduces_term(u->user, sum, axis)) return NULL;
  return u->user->out[0]->layout == sum->layout ? u->user : NULL;
}

// Adds the terms of a sum from another mesh as partial sums, if there are two or more.
static void keep_partial(Op *first, int axis) {
  const Layout *l = first->out[0]->layout;
  if (!next_term(first, axis)) return;
  Sbp *is = arena_copy(first->graph->module->arena, l->axis, sizeof *is * (size_t)l->n_axes);
  is[axis].kind = SBP_P;
  const Layout *partial = layout_new(first->graph->module, l->mesh, is);
  for (Op *op = first, *next; op; op = next) {
    next = next_term(op, axis);
    op->out[0]->layout = partial;
    op->split[axis] = SPLIT_PARTIAL;
  }
}

static void keep_partials(const Graph *g) {
  for_each_op(op, g) {
    if (!adds_narrow(op)) continue;
    for (int i = 0; i < 2; i++) {
      const Value *sum = op->in[i].value;
      const Mesh *mesh = op->out[0]->layout->mesh;
      if (!sum->layout || mesh_same_devices(sum->layout->mesh, mesh)) continue;
      for (int axis = 0; axis < mesh->n_axes; axis++)
        if (!is_time(op->out[0]->layout, axis) && reduces_term(op, sum, axis))
          keep_partial(op, axis);
    }
  }
}

// -- All ---------------------------------------------------------------------------------------

bool order_sums(Graph *g, Arena *scratch, Diag *d) {
  bool any = false;
  keep_partials(g);
  for_each_op_safe(op, g) {
    if (!adds_alike(op) || is_inner(op)) continue;
    Addends all = terms_of(op, scratch);
    if (!saves(op, &all, scratch)) continue;
    if (!rebuild(op, &all, scratch, d)) return false;
    any = true;
  }
  // Adds of the old order are erased from the end: readers come after producers.
  for (Op *op = any ? g->last : NULL, *before; op; op = before) {
    before = op->prev;
    if (adds_alike(op) && !op_used(op)) op_erase(op);
  }
  return true;
}
