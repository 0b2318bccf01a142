// The promises about memory of the bodies of loops: 28 of verify.c.
//
//     %s1, %y, %7 = loop @cell %s0, %x, %w …   : f32[2,4] at 0, f32[9,2,4] at 64, u8[128] at 640
//
//     graph @cell (%s: f32[2,4] at 0, …        a state shares the place of its last value
//                  %xt: f32[2,5] at 640, …     a slice is in the workspace
//                  %w: f32[4,4] at 4096) {     a value of all iterations is at its operand
//       %t = linear %s, %w : f32[2,4] at 704   results are in the workspace
//
// A body runs op by op, so two of its values may share bytes if one is read for the last time
// before the op of the other.  States are overwritten at the end of an iteration, in their order.

#include "ir/analysis/place.h"
#include "ir/loop.h"
#include "verify.h"

static bool wrong(const Op *op, const Value *v, const char *how, Diag *d) {
  Arena *a = arena_new();
  diag_error(d, op->loc, "loop: '%s' of '@%s' at %lld %s", value_text(a, v), op->callee->name,
             (long long)v->offset, how);
  arena_free(a);
  return false;
}

static bool same_place(const Value *x, const Value *y) {
  return x->offset == y->offset &&
         (x->offset < 0 || (x->slots == y->slots && x->stride == y->stride));
}

// Whether `v` is in the workspace, which it may share with no more slots.
static bool is_inside(const Value *v, const Value *workspace, int64_t align) {
  return workspace && v->offset >= workspace->offset &&
         v->offset + type_bytes(v->type) <= workspace->offset + type_bytes(workspace->type) &&
         v->slots == workspace->slots && v->stride == workspace->stride &&
         (v->offset - workspace->offset) % align == 0;
}

// The time of the last read of `v` in its body.
static int64_t last_read(const Value *v, const Op *op, int64_t from) {
  int64_t to = from;
  for_each_use(u, v) {
    if (!u->user) return graph_end(op->callee);
    if (op_time(u->user) > to) to = op_time(u->user);
    if ((op_info[u->user->kind].traits & VIEW) && u->index == 0) {
      int64_t by_view = last_read(u->user->out[0], op, from);
      if (by_view > to) to = by_view;
    }
  }
  return to;
}

static bool check_value(const Op *op, const Value *v, const Value *workspace, int64_t align,
                        Diag *d) {
  int64_t skip;
  const Value *root = view_root((Value *)(uintptr_t)v, &skip); // only read
  if (root != v) {
    bool at_root = root->offset < 0 ? v->offset < 0
                                    : v->offset == root->offset + skip && v->slots == root->slots &&
                                          v->stride == root->stride;
    return at_root || wrong(op, v, "is a view with another offset than its source", d);
  }
  if (v->def && v->def->kind == OP_constant)
    return v->offset == -1 || wrong(op, v, "is a constant, and has a place", d);
  return is_inside(v, workspace, align) || wrong(op, v, "is not in the workspace", d);
}

// Values in the workspace that are alive together share no bytes.
static bool check_overlaps(const Op *op, Diag *d) {
  const Graph *g = op->callee;
  LoopForm f = loop_form(op);
  Arena *a = arena_new();
  const Value **all = arena_array(a, const Value *, g->n_values);
  int n = 0;
  for (int i = f.carried; i < f.carried + f.sliced; i++)
    all[n++] = g->params[i];
  for_each_op(inner, g)
    for (int i = 0; i < inner->n_out; i++)
      if (inner->out[i]->offset >= 0 && !op_is_view(inner)) all[n++] = inner->out[i];
  bool ok = true;
  for (int i = 0; ok && i < n; i++) {
    int64_t from = all[i]->def ? op_time(all[i]->def) : 0, to = last_read(all[i], op, from);
    for (int k = 0; ok && k < n; k++) {
      int64_t born = all[k]->def ? op_time(all[k]->def) : 0;
      bool alive = k != i && from <= born && born <= to && type_bytes(all[k]->type) > 0;
      if (alive && all[i]->offset < all[k]->offset + type_bytes(all[k]->type) &&
          all[k]->offset < all[i]->offset + type_bytes(all[i]->type))
        ok = wrong(op, all[k], "overlaps another value of the body that is alive", d);
    }
  }
  arena_free(a);
  return ok;
}

bool verify_loop_places(const Op *op, int64_t align, Diag *d) {
  const Graph *g = op->callee;
  LoopForm f = loop_form(op);
  int callers = 0;
  for_each_graph(caller, g->module)
    for_each_op(each, caller)
      callers += each->callee == g;
  if (callers != 1)
    return diag_error(d, op->loc, "loop: %d ops run '@%s', which has the places of one", callers,
                      g->name);
  const Value *workspace = f.workspace ? op->out[op->n_out - 1] : NULL;
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (i >= f.carried && i < f.carried + f.sliced) {
      if (!is_inside(v, workspace, align)) return wrong(op, v, "is not in the workspace", d);
    } else if (!same_place(v, i < f.carried ? op->out[i] : op->in[i].value)) {
      return wrong(op, v, "is not at the place of the loop's value", d);
    }
  }
  for_each_op(inner, g)
    for (int i = 0; i < inner->n_out; i++)
      if (!check_value(op, inner->out[i], workspace, align, d)) return false;
  // A state that is another one is overwritten before it is read.
  for (int i = 0; i < f.carried; i++) {
    int64_t skip;
    const Value *root = view_root(g->results[i]->use.value, &skip);
    if (!root->def && root->index < f.carried && root->index != i)
      return wrong(op, root, "is the next value of another state", d);
  }
  return check_overlaps(op, d);
}
