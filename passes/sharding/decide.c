// Writes of decisions: see decide.h.

#include "decide.h"

#include <string.h>

#include "base/table.h"
#include "ir/op.h"

// -- One decision --------------------------------------------------------------------------------

void decide_split(Sharding *s, Op *op, int axis, char split, const Loc *why) {
  op->split[axis] = split == '-' ? SPLIT_NONE : split;
  s->decisions.fixed_by[op->id][axis] = why;
}

void decide_layout(Sharding *s, const Value *v, int axis, Sbp layout, ParamChoice how,
                   const Loc *why) {
  s->decisions.layout[v->id][axis] = layout;
  s->decisions.param[v->id][axis] = how;
  s->decisions.param_by[v->id][axis] = why;
}

void decide_as_operand(Sharding *s, Op *op) {
  const Value *v = op->in[0].value;
  for (int a = 0; a < s->mesh->n_axes; a++) {
    Sbp layout = s->decisions.layout[v->id][a];
    if (!s->decisions.final[a]) continue;
    // A partial sum passes through.
    int letter = layout.kind == SBP_S ? letter_of_operand(s, op, 0, layout.dim, a) : -1;
    if (layout.kind == SBP_P) op->split[a] = SPLIT_PARTIAL;
    if (letter >= 0) op->split[a] = dims_of(s, op)->letter[letter].name;
    s->decisions.layout[op->out[0]->id][a] = split_gives(op, dims_of(s, op), 0, a);
  }
}

void decide_by_operands(Sharding *s, Op *op) {
  const Dims *dims = dims_of(s, op);
  for (int a = 0; a < s->mesh->n_axes; a++) {
    if (!s->decisions.final[a]) continue;
    for (int i = 0; i < op->n_in && !op->split[a]; i++) {
      Sbp layout = s->decisions.layout[op->in[i].value->id][a];
      int letter = layout.kind == SBP_S ? letter_of_operand(s, op, i, layout.dim, a) : -1;
      if (letter >= 0) op->split[a] = dims->letter[letter].name;
    }
    for (int i = 0; i < op->n_out; i++)
      s->decisions.layout[op->out[i]->id][a] = split_gives(op, dims, i, a);
  }
}

void decide_as_first(Sharding *s) {
  const Sharding *first = s->first;
  const Table *params = first ? graph_params_by_label(first->g, s->scratch) : NULL;
  for (int i = 0; first && i < s->g->n_params; i++) {
    Value *v = s->g->params[i];
    const Value *known = v->label ? table_find(params, (int)v->role, v->label) : NULL;
    if (!known || known->type != v->type) continue;
    v->layout = layout_broadcast(s->g->module, known->layout->mesh);
    for (int a = 0; a < s->mesh->n_axes; a++) {
      bool stored = first->decisions.param[known->id][a] == PARAM_stored;
      decide_layout(s, v, a, first->decisions.layout[known->id][a],
                    stored ? PARAM_stored : PARAM_fixed, NULL);
    }
  }
}

// -- The choices of a search ----------------------------------------------------------------------

Chosen chosen_new(const Sharding *s, const int *axis, int n) {
  Chosen c = {.n_axes = n};
  memcpy(c.axis, axis, (size_t)n * sizeof *axis);
  c.op = arena_alloc_array(s->scratch, s->n_ops, sizeof *c.op);
  c.split = arena_alloc_array(s->scratch, s->n_ops, sizeof *c.split);
  c.param = arena_alloc_array(s->scratch, s->n_values, sizeof *c.param);
  c.layout = arena_alloc_array(s->scratch, s->n_values, sizeof *c.layout);
  return c;
}

void decide_chosen(Sharding *s, const Chosen *c, const Loc *why) {
  for (int k = 0; k < c->n_axes; k++) {
    int a = c->axis[k];
    for_each_op(op, s->g)
      if (c->op[op->id][a]) decide_split(s, op, a, c->split[op->id][a], why);
    // Errors of later lines cite no line for a layout that a search chose.
    for (int i = 0; i < s->g->n_params; i++) {
      const Value *v = s->g->params[i];
      if (c->param[v->id][a] != PARAM_open)
        decide_layout(s, v, a, c->layout[v->id][a], c->param[v->id][a], NULL);
    }
  }
}

// -- Alternatives ---------------------------------------------------------------------------------

static void *copied(const Sharding *s, const void *at, uint32_t n, size_t size) {
  return arena_copy(s->scratch, at, n * size);
}

Sharding *sharding_copy(const Sharding *s) {
  Sharding *c = arena_copy(s->scratch, s, sizeof *s);
  Decisions *d = &c->decisions;
  Constraints *constraints = &c->constraints;
  d->fixed_by = copied(s, d->fixed_by, s->n_ops, sizeof *d->fixed_by);
  d->layout = copied(s, d->layout, s->n_values, sizeof *d->layout);
  d->param = copied(s, d->param, s->n_values, sizeof *d->param);
  d->param_by = copied(s, d->param_by, s->n_values, sizeof *d->param_by);
  constraints->op = copied(s, constraints->op, s->n_ops, sizeof *constraints->op);
  constraints->value = copied(s, constraints->value, s->n_values, sizeof *constraints->value);
  return c;
}

void decide_axis(Sharding *copy, int axis, char (*split)[MAX_AXES], Sbp (*layout)[MAX_AXES]) {
  for_each_op(op, copy->g)
    op->split[axis] = split[op->id][axis];
  for (uint32_t i = 0; i < copy->g->n_values; i++)
    copy->decisions.layout[i][axis] = layout[i][axis];
  copy->decisions.final[axis] = true;
}

void decide_all(Sharding *copy, int axis, const Loc *why) {
  copy->decisions.final[axis] = false;
  for_each_op(op, copy->g)
    decide_split(copy, op, axis, op->split[axis], why);
  for (int i = 0; i < copy->g->n_params; i++) {
    ParamChoice *how = &copy->decisions.param[copy->g->params[i]->id][axis];
    if (*how == PARAM_open) *how = PARAM_fixed;
  }
}

void decide_all_but(Sharding *copy, Op *op, int axis, const Loc *why) {
  decide_all(copy, axis, why);
  reopen_split(copy, op, axis);
  copy->constraints.op[op->id][axis] = NULL;
}

void reopen_split(Sharding *copy, Op *op, int axis) {
  op->split[axis] = SPLIT_NONE;
  copy->decisions.fixed_by[op->id][axis] = NULL;
}

void reopen_layout(Sharding *copy, const Value *v, int axis) {
  decide_layout(copy, v, axis, (Sbp){.kind = SBP_B}, PARAM_open, NULL);
}

// Copies the row of a table by id.
#define COPY_ROW(to, table, to_id, from, from_id)                                                  \
  memcpy((to)->table[to_id], (from)->table[from_id], sizeof *(from)->table)

static void clone_value(Sharding *to, const Value *copy, const Sharding *s, const Value *v) {
  COPY_ROW(to, decisions.layout, copy->id, s, v->id);
  COPY_ROW(to, decisions.param, copy->id, s, v->id);
  COPY_ROW(to, decisions.param_by, copy->id, s, v->id);
  COPY_ROW(to, constraints.value, copy->id, s, v->id);
}

Sharding sharding_of_clone(const Sharding *s, Graph *clone) {
  Sharding c = {.g = clone,
                .mesh = clone->module->meshes,
                .scratch = s->scratch,
                .env.cluster = s->env.cluster,
                .first = s->first};
  sharding_grow(&c);
  memcpy(c.decisions.final, s->decisions.final, sizeof s->decisions.final);
  for (int i = 0; i < clone->n_params; i++)
    clone_value(&c, clone->params[i], s, s->g->params[i]);
  // Ops of the clone are in the same order.
  const Op *copy = clone->first;
  for_each_op(op, s->g) {
    COPY_ROW(&c, decisions.fixed_by, copy->id, s, op->id);
    COPY_ROW(&c, constraints.op, copy->id, s, op->id);
    for (int i = 0; i < op->n_out; i++)
      clone_value(&c, copy->out[i], s, op->out[i]);
    copy = copy->next;
  }
  return c;
}
