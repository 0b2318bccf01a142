// See sharding.h.
//
// Tables are indexed by op id and value id. Programs add ops, so any call that may add some is
// followed by sharding_grow, or by sharding_add for a single op: tables grow by half, and new
// values get a mesh.

#include "sharding.h"

#include <string.h>

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "prove/number.h"

// A copy of `at` with zeros after its `n` elements.
static void *grown(const Sharding *s, const void *at, uint32_t n, uint32_t to, size_t size) {
  char *copy = arena_alloc(s->scratch, to * size);
  if (n) memcpy(copy, at, n * size);
  memset(copy + n * size, 0, (to - n) * size);
  return copy;
}

void sharding_place_as(Sharding *s, Op *op, const Mesh *mesh, uint32_t like) {
  for (int i = 0; i < op->n_out; i++)
    op->out[i]->layout = layout_broadcast(s->g->module, mesh);
  memcpy(s->decisions.assigned[op->id], s->decisions.assigned[like], sizeof *s->decisions.assigned);
  memcpy(s->decisions.ranks[op->id], s->decisions.ranks[like], sizeof *s->decisions.ranks);
}

// Puts a new op on the ranks of the producer of its first operand, with the same assignment. If all
// operands are parameters it is on all ranks, although these may be on some.
static void place_new(Sharding *s, Op *op) {
  // The producer of the first operand that has one and a mesh.
  const Op *from = NULL;
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def && op->in[i].value->layout) {
      from = op->in[i].value->def;
      break;
    }
  if (from) {
    sharding_place_as(s, op, op_mesh(from), from->id);
    return;
  }
  for (int i = 0; i < op->n_out; i++)
    op->out[i]->layout = layout_broadcast(s->g->module, s->mesh);
}

// The values of the model that recomputed ones repeat.
struct Repeats {
  Arena *arena;     // of the graph's Sharding, also if a copy of that asks
  bool known;       // since the last sharding_grow
  uint32_t n;       // size of the table
  const Value **of; // by value id, or NULL
};

// A graph has as many changes as a program makes, so only a question numbers its values.
static void find_repeats(const Sharding *s, struct Repeats *r) {
  *r = (struct Repeats){.arena = r->arena, .known = true};
  bool any = false;
  for_each_op(op, s->g)
    any |= op_is_recomputed(op);
  if (!any) return;
  r->n = s->g->n_values;
  r->of = arena_array(r->arena, const Value *, r->n);
  // Recomputed values have the numbers of the model's, which come first.
  Arena *scratch = arena_new();
  const Numbers *numbers = numbers_new(s->g, scratch);
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_out && op_is_recomputed(op); i++) {
      const Value *first = number_value(numbers, number_of(numbers, op->out[i]));
      if (first->def && first->def->part == PART_forward) r->of[op->out[i]->id] = first;
    }
  arena_free(scratch);
}

const Value *kept_of(const Sharding *s, const Value *v) {
  struct Repeats *r = s->repeats;
  if (!r) return v;
  if (!r->known) find_repeats(s, r);
  const Value *kept = v->id < r->n ? r->of[v->id] : NULL;
  return kept ? kept : v;
}

const Op *repeated_by(const Sharding *s, const Op *op) {
  const Value *v = op->n_out ? kept_of(s, op->out[0]) : NULL;
  return v && v->def != op && v->def->kind == op->kind ? v->def : NULL;
}

static void grow_tables(Sharding *s) {
  // Two groups of tables, by op id and by value id, each of one size.
  const Graph *g = s->g;
  // Tables by op id.
  if (g->n_ops > s->n_ops) {
    uint32_t to = g->n_ops + g->n_ops / 2;
    s->dims = grown(s, s->dims, s->n_ops, to, sizeof *s->dims);
    s->decisions.fixed_by =
        grown(s, s->decisions.fixed_by, s->n_ops, to, sizeof *s->decisions.fixed_by);
    s->decisions.assigned =
        grown(s, s->decisions.assigned, s->n_ops, to, sizeof *s->decisions.assigned);
    s->decisions.ranks = grown(s, s->decisions.ranks, s->n_ops, to, sizeof *s->decisions.ranks);
    s->decisions.assigned_by =
        grown(s, s->decisions.assigned_by, s->n_ops, to, sizeof *s->decisions.assigned_by);
    s->constraints.op = grown(s, s->constraints.op, s->n_ops, to, sizeof *s->constraints.op);
    s->decisions.placed_op =
        grown(s, s->decisions.placed_op, s->n_ops, to, sizeof *s->decisions.placed_op);
    s->n_ops = to;
  }
  // Tables by value id.
  if (g->n_values > s->n_values) {
    uint32_t to = g->n_values + g->n_values / 2;
    s->decisions.layout =
        grown(s, s->decisions.layout, s->n_values, to, sizeof *s->decisions.layout);
    s->decisions.param = grown(s, s->decisions.param, s->n_values, to, sizeof *s->decisions.param);
    s->decisions.param_by =
        grown(s, s->decisions.param_by, s->n_values, to, sizeof *s->decisions.param_by);
    s->constraints.value =
        grown(s, s->constraints.value, s->n_values, to, sizeof *s->constraints.value);
    s->n_values = to;
  }
}

// An op without operands of the model, such as a sum of gradients, belongs to the producer of an
// operand with the same number.
const Op *model_op_of(const Sharding *s, const Op *op, const Op *const *model) {
  const Op *again = repeated_by(s, op);
  if (again) return again;
  for (int i = 0; i < op->n_in; i++)
    for_each_use(u, kept_of(s, op->in[i].value))
      if (u->user && op_is_gradient_of(op, u->user)) return u->user;
  for (int i = op->n_in - 1; i >= 0 && op->of; i--) {
    const Op *def = op->in[i].value->def;
    if (def && def->part == op->part && def->of == op->of) return model_op_of(s, def, model);
  }
  return op->of ? model[op->of] : NULL;
}

void sharding_grow(Sharding *s) {
  const Graph *g = s->g;
  grow_tables(s);
  // New values get a mesh.
  for (int i = 0; s->mesh && i < g->n_params; i++)
    if (!g->params[i]->layout) g->params[i]->layout = layout_broadcast(g->module, s->mesh);
  for_each_op(op, g)
    if (s->mesh && op->n_out && !op->out[0]->layout) place_new(s, op);
  if (!s->repeats) s->repeats = arena_one(s->scratch, struct Repeats);
  s->repeats->arena = s->scratch;
  s->repeats->known = false;
}

void sharding_add(Sharding *s, Op *op) {
  grow_tables(s);
  place_new(s, op);
}

const Dims *dims_of(const Sharding *s, const Op *op) {
  if (op->id < s->n_ops && s->dims[op->id]) return s->dims[op->id];
  Diag *d = diag_new(stderr);
  const Dims *dims = op_dims_kept(op, s->scratch, d);
  if (!dims) BUG("%s does not fit", op_info[op->kind].name);
  diag_free(d);
  if (op->id < s->n_ops) s->dims[op->id] = dims;
  return dims;
}

void dims_forget(Sharding *s, const Op *op) {
  s->dims[op->id] = NULL;
  for_each_use(u, op->out[0])
    if (u->user && u->user->id < s->n_ops) s->dims[u->user->id] = NULL;
}

int op_ranks(const Op *op, int axis) {
  return op_mesh(op)->axis[axis].size;
}

int value_ranks(const Value *v, int axis) {
  return v->layout->mesh->axis[axis].size;
}

bool param_cuts(const Sharding *s, const Value *v, int dim, int axis) {
  return layout_cuts(s, v, s->decisions.layout[v->id], dim, axis);
}

bool layout_cuts(const Sharding *s, const Value *v, const Sbp *layout, int dim, int axis) {
  if (v->def || dim < 0 || dim >= v->type->ndim) return false;
  // Weights and states outlive a micro-batch, so each has them whole.
  if (s->mesh->axis[axis].time && value_lasts(v)) return false;
  int64_t n = value_ranks(v, axis);
  for (int a = 0; a < s->mesh->n_axes; a++) {
    Sbp other = layout[a];
    if (a != axis && other.kind == SBP_S && other.dim == dim) n *= value_ranks(v, a);
  }
  return v->type->dim[dim] % n == 0;
}

int letter_of_operand(const Sharding *s, const Op *op, int i, int dim, int axis) {
  const Dims *dims = dims_of(s, op);
  if (op_ranks(op, axis) == 1) return -1;
  int letter = dims_splitter(dims, &dims->in[i], dim, op_ranks(op, axis));
  return letter >= 0 && split_legal(op, dims, letter, axis) ? letter : -1;
}
