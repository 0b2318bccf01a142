// Memory of the bodies of loops.
//
//     %s1, %y = loop @cell %s0, %x, %w           : f32[2,4] at 0, f32[9,2,4] at 64
//
//   =>
//
//     %s1, %y, %7 = loop @cell … workspace=128   : f32[2,4] at 0, f32[9,2,4] at 64, u8[128] at 640
//
//     graph @cell (%s: f32[2,4] at 0, %xt: f32[2,5] at 640, %w: … at 4096) {
//       %t = linear %s, %w : f32[2,4] at 704
//
// A body has one memory for all iterations, a result of the loop that nothing reads: so it is free
// outside of the loop, and the body of a loop in a body is in that one's workspace.  A parameter of
// the body shares the place of a value of the loop: a state that of its last value, and a value of
// all iterations that of the operand.  Slices are copied into the workspace and out of it.
//
// A next state is computed in the workspace and copied over the state at the end of the iteration.
// If it is the state of another one, as in s, t = t, s, it is copied into the workspace first.

#include "plan_loops.h"

#include <stdlib.h>

#include "base/vec.h"
#include "ir/loop.h"

typedef Vec(Value *) Values;

static int64_t aligned(int64_t bytes, int64_t align) {
  return (bytes + align - 1) / align * align;
}

static int by_bytes(const void *x, const void *y) {
  const Value *a = *(Value *const *)x, *b = *(Value *const *)y;
  int64_t i = type_bytes(a->type), k = type_bytes(b->type);
  return i != k ? (i < k ? 1 : -1) : (a->id > b->id) - (a->id < b->id);
}

// Copies next states that are other states.
static bool copy_swapped(const Op *loop, Diag *d) {
  Graph *g = loop->callee;
  LoopForm f = loop_form(loop);
  for (int i = 0; i < f.carried; i++) {
    int64_t skip, zero[MAX_NDIM] = {0}, one[MAX_NDIM];
    Value *v = g->results[i]->use.value, *root = view_root(v, &skip);
    if (root->def || root->index >= f.carried || root->index == i) continue;
    for (int k = 0; k < MAX_NDIM; k++)
      one[k] = 1;
    const Type *t = v->type;
    Op *copy = op_new(g, NULL, OP_slice, &v, 1,
                      (Attr[]){a_list("starts", zero, t->ndim), a_list("steps", one, t->ndim),
                               a_list("shape", t->dim, t->ndim)},
                      3, g->last ? op_origin(g->last) : op_origin(loop), d);
    if (!copy) return false;
    copy->out[0]->layout = v->layout;
    graph_set_result(g, i, copy->out[0]);
    // It is split as its operand is.
    const Dims *dims = op_dims_kept(copy, g->module->arena, d);
    for (int a = 0; dims && v->layout && a < v->layout->n_axes; a++) {
      Sbp sbp = v->layout->axis[a];
      if (sbp.kind == SBP_S) copy->split[a] = dims->letter[dims->in[0].dim[sbp.dim].letter[0]].name;
    }
  }
  return true;
}

// Gives the values of a body offsets in its workspace.  Returns the end of the last.
static int64_t plan_body(const Op *loop, Meets meets, int64_t align, Arena *scratch) {
  Graph *g = loop->callee;
  LoopForm f = loop_form(loop);
  graph_renumber(g);
  // From the op to the last reader, by views too; results live to the end of the iteration.
  Life *life = arena_array(scratch, Life, g->n_values);
  Values order = {0};
  for (int i = f.carried; i < f.carried + f.sliced; i++)
    vec_push(scratch, &order, g->params[i]);
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++) {
      life[op->out[i]->id] = (Life){op_time(op), op_time(op)};
      int64_t skip;
      if (op->kind != OP_constant && view_root(op->out[i], &skip) == op->out[i])
        vec_push(scratch, &order, op->out[i]);
    }
  for (int i = 0; i < g->n_results; i++) {
    int64_t skip;
    life[view_root(g->results[i]->use.value, &skip)->id].to = graph_end(g);
  }
  for_each_op(op, g)
    for (int i = 0; i < op->n_in; i++) {
      int64_t skip;
      Life *of = &life[view_root(op->in[i].value, &skip)->id];
      if (of->to < op_time(op)) of->to = op_time(op);
    }
  if (order.n) qsort(order.at, (size_t)order.n, sizeof *order.at, by_bytes);
  Gaps *gaps = gaps_new(scratch, meets);
  int64_t end = 0;
  for (int i = 0; i < order.n; i++) {
    Value *v = order.at[i];
    Taken taken = {.bytes = aligned(type_bytes(v->type), align), .life = life[v->id], .v = v};
    v->offset = taken.offset = gaps_best(gaps, &taken);
    gaps_add(gaps, &taken);
    if (taken.offset + taken.bytes > end) end = taken.offset + taken.bytes;
  }
  return end;
}

bool loops_plan(Graph *g, Meets meets, int64_t align, Arena *scratch, Diag *d) {
  for_each_op_safe(op, g) {
    if (op->kind != OP_loop) continue;
    LoopForm f = loop_form(op);
    if (!copy_swapped(op, d) || !loops_plan(op->callee, meets, align, scratch, d)) return false;
    f.workspace = plan_body(op, meets, align, scratch);
    if (!f.workspace) continue;
    int *result = arena_array(scratch, int, op->n_out);
    Value **in = arena_array(scratch, Value *, op->n_in);
    for (int i = 0; i < op->n_out; i++)
      result[i] = i;
    for (int i = 0; i < op->n_in; i++)
      in[i] = op->in[i].value;
    const Layout *layout = op->out[0]->layout;
    const Op *made = loop_replace(op, op->callee, in, op->n_in, f, result, d);
    if (!made) return false;
    made->out[made->n_out - 1]->layout = layout ? layout_broadcast(g->module, layout->mesh) : NULL;
  }
  graph_renumber(g);
  return true;
}

// Places `v` at `offset` from the place of `at`.
static void place_at(Value *v, const Value *at, int64_t offset) {
  if (!at) BUG("a value of a body has no workspace");
  v->offset = at->offset < 0 ? -1 : at->offset + offset;
  v->slots = at->slots;
  v->stride = at->stride;
}

void loops_place(Graph *g) {
  for_each_op(op, g) {
    if (op->kind != OP_loop) continue;
    Graph *body = op->callee;
    LoopForm f = loop_form(op);
    const Value *workspace = f.workspace ? op->out[op->n_out - 1] : NULL;
    for (int i = 0; i < body->n_params; i++) {
      Value *v = body->params[i];
      if (i < f.carried)
        place_at(v, op->out[i], 0);
      else if (i < f.carried + f.sliced)
        place_at(v, workspace, v->offset);
      else
        place_at(v, op->in[i].value, 0);
    }
    for_each_op(inner, body)
      for (int i = 0; i < inner->n_out; i++) {
        int64_t skip;
        Value *v = inner->out[i], *root = view_root(v, &skip);
        if (root != v)
          place_at(v, root, skip);
        else if (inner->kind != OP_constant)
          place_at(v, workspace, v->offset);
      }
    loops_place(body);
  }
}
