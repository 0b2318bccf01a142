// See parts.h.

#include "parts.h"

#include "ir/op.h"

int occurrence_ops(const Occurrence *o, Op **out) {
  int n = 0;
  for (int i = 0; i < o->block->n_members; i++) {
    const Member *m = &o->member[i];
    if (m->inner)
      n += occurrence_ops(m->inner, out + n);
    else
      out[n++] = m->op;
  }
  return n;
}

// -- Activations -------------------------------------------------------------------------------

// The value that the first result is another form of: plans add or leave out casts of activations.
static const Value *whole_of(const Op *op) {
  return op_is_view(op) || op->kind == OP_cast ? op->in[0].value : NULL;
}

// Sums up the activations that go across each position: values that depend on an input, from their
// op to the last reader of them or of a view of them.
static void find_across(ModelOrder *o, const Graph *g, Arena *a, Arena *scratch) {
  const Value **root = arena_array(scratch, const Value *, g->n_values);
  int *last = arena_array(scratch, int, g->n_values);
  double *change = arena_array(scratch, double, o->n + 1);
  // Of values that depend on an input, the value of which they are a view; of others NULL.
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->role == ROLE_input) root[g->params[i]->id] = g->params[i];
  for (int i = 0; i < o->n; i++) {
    const Op *op = o->op[i];
    bool varies = false;
    for (int k = 0; k < op->n_in; k++) {
      const Value *v = root[op->in[k].value->id];
      varies |= v != NULL;
      if (v) last[v->id] = i;
    }
    for (int k = 0; varies && k < op->n_out; k++) {
      const Value *v = op->out[k], *whole = k == 0 ? whole_of(op) : NULL;
      root[v->id] = whole && root[whole->id] ? root[whole->id] : v;
    }
  }
  for (int i = 0; i < o->n; i++)
    for (int k = 0; k < o->op[i]->n_out; k++) {
      const Value *v = o->op[i]->out[k];
      if (root[v->id] != v || last[v->id] <= i) continue;
      change[i] += (double)type_count(v->type);
      change[last[v->id]] -= (double)type_count(v->type);
    }
  o->across = arena_array(a, double, o->n + 1);
  double now = 0;
  for (int i = 0; i < o->n; i++)
    o->across[i] = now += change[i];
}

static int count_ops(const Member *m) {
  return m->inner ? m->inner->block->n_ops : 1;
}

ModelOrder model_order(const Graph *g, const Repeats *r, const bool *among, Arena *a) {
  ModelOrder o = {.repeats = r};
  int n = 0;
  for (int i = 0; i < r->n_order; i++)
    n += count_ops(&r->order[i]);
  o.op = arena_array(a, Op *, n + 1);
  for (int i = 0; i < r->n_order; i++) {
    const Member *m = &r->order[i];
    if (m->inner)
      o.n += occurrence_ops(m->inner, o.op + o.n);
    else if (!among || among[m->op->id])
      o.op[o.n++] = m->op;
  }
  o.at = arena_array(a, int, g->n_ops);
  for (int i = 0; i < o.n; i++)
    o.at[o.op[i]->id] = i;
  Arena *scratch = arena_new();
  find_across(&o, g, a, scratch);
  arena_free(scratch);
  return o;
}

// -- Parts of an occurrence --------------------------------------------------------------------

static bool is_product(const Op *op) {
  return (op_traits(op) & AMP_LOW) != 0;
}

int block_parts(const ModelOrder *o, const Block *block, int *part, Arena *a) {
  const Occurrence *like = block->at[0];
  const Repeats *r = o->repeats;
  for (int i = 0, seen = 0; i < r->n_order && seen < 2; i++)
    if (r->order[i].inner && r->order[i].inner->block == block) {
      like = r->order[i].inner;
      seen++;
    }
  int n = block->n_ops, n_parts = 1, products = 0, left = 0;
  Op **op = arena_array(a, Op *, n);
  occurrence_ops(like, op);
  for (int i = 0; i < n; i++)
    left += is_product(op[i]);
  double end = o->across[o->at[op[n - 1]->id]];
  for (int i = 0; i < n; i++) {
    part[i] = n_parts - 1;
    products += is_product(op[i]);
    left -= is_product(op[i]);
    if (!products || !left || o->across[o->at[op[i]->id]] > end) continue;
    n_parts++;
    products = 0;
  }
  return n_parts;
}
