// See outer.h.
//
// Ops of the copy are in the order of the originals, so a walk along both maps one to the other.
// Ops and values that the programs add to the copy have no original; their ids tell them apart.

#include "outer.h"

#include <string.h>

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "sections.h"

// -- The clone -----------------------------------------------------------------------------------

typedef struct Guessing {
  const Sharding *of;
  Sharding copy;
  Module *module;
  const Value **value; // of the original graph, by id of the copy; NULL: added
  uint32_t n_values;
} Guessing;

static void copy_value(Guessing *k, const Value *v, const Value *copy) {
  const Sharding *s = k->of;
  memcpy(k->copy.decisions.layout[copy->id], s->decisions.layout[v->id],
         sizeof *s->decisions.layout);
  memcpy(k->copy.decisions.param[copy->id], s->decisions.param[v->id], sizeof *s->decisions.param);
  memcpy(k->copy.decisions.param_by[copy->id], s->decisions.param_by[v->id],
         sizeof *s->decisions.param_by);
  memcpy(k->copy.constraints.value[copy->id], s->constraints.value[v->id],
         sizeof *s->constraints.value);
  k->value[copy->id] = v;
}

// Clones the module, with the sharding of the graph.
static void make_copy(Guessing *k) {
  const Sharding *s = k->of;
  k->module = module_clone(s->g->module);
  // The graph at the same position in its module.
  Graph *g = k->module->graphs;
  for_each_graph(other, s->g->module) {
    if (other == s->g) break;
    g = g->next;
  }
  k->copy = (Sharding){.g = g,
                       .mesh = k->module->meshes,
                       .scratch = s->scratch,
                       .env.cluster = s->env.cluster,
                       .first = s->first,
                       .guessing = true};
  sharding_grow(&k->copy);
  memcpy(k->copy.decisions.final, s->decisions.final, sizeof s->decisions.final);
  k->n_values = g->n_values;
  // Values with ids from n_values on are additions of the programs.
  k->value = arena_array(s->scratch, const Value *, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    copy_value(k, s->g->params[i], g->params[i]);
  const Op *copy = g->first;
  for_each_op(op, s->g) {
    memcpy(k->copy.decisions.fixed_by[copy->id], s->decisions.fixed_by[op->id],
           sizeof *s->decisions.fixed_by);
    memcpy(k->copy.constraints.op[copy->id], s->constraints.op[op->id], sizeof *s->constraints.op);
    for (int i = 0; i < op->n_out; i++)
      copy_value(k, op->out[i], copy->out[i]);
    copy = copy->next;
  }
}

// -- Running the outer programs ------------------------------------------------------------------

// -- Reading the prediction ----------------------------------------------------------------------

static void read_value(const Guessing *k, const Value *copy, Outer *out) {
  const Value *v = copy->id < k->n_values ? k->value[copy->id] : NULL;
  if (v) memcpy(out->lies[v->id], k->copy.decisions.layout[copy->id], sizeof *out->lies);
}

Outer *outer_guess(const Sharding *s) {
  if (!s->sections || !s->section || s->guessing) return NULL;
  Guessing k = {.of = s};
  Outer *out = arena_one(s->scratch, Outer);
  make_copy(&k);
  // Run the programs of the axes outside of the current one, from the inside out.
  const Sections *all = s->sections;
  const Section *now = &all->at[s->section];
  Diag *quiet = diag_new(stderr);
  bool ok = true, any = false;
  diag_quiet(quiet, true);
  decide_axes(&k.copy, now->axis, now->n);
  for (int i = s->section - 1; i >= 0 && ok; i--) {
    const Section *own = &all->at[i];
    if (all->mesh->axis[i].time) continue;
    // A fresh instance of the program: the section's own has state.
    PlanProgram *p = program_open(s->scratch, own->name, quiet);
    ok = p && program_step(p, &k.copy, own->axis, own->n);
    if (p) program_close(p);
    if (ok) decide_axes(&k.copy, own->axis, own->n);
    ok = ok && !k.module->meshes->next;
    for (int a = 0; a < own->n; a++)
      any |= out->axis[own->axis[a]] = true;
  }
  diag_free(quiet);
  bool known = ok && any;
  if (known) {
    // Splits and layouts, by the original op or value.
    out->split = arena_alloc_array(s->scratch, s->g->n_ops, sizeof *out->split);
    out->lies = arena_alloc_array(s->scratch, s->g->n_values, sizeof *out->lies);
    out->parts = arena_array(s->scratch, bool, s->g->n_values);
    for (int i = 0; i < k.copy.g->n_params; i++)
      read_value(&k, k.copy.g->params[i], out);
    for_each_op(op, k.copy.g) {
      const Value *first = op->out[0]->id < k.n_values ? k.value[op->out[0]->id] : NULL;
      if (first) memcpy(out->split[first->def->id], op->split, sizeof op->split);
      for (int i = 0; i < op->n_out; i++)
        read_value(&k, op->out[i], out);
      // A gradient that a program pins to a sharded layout is accumulated over slices in that
      // layout.
      const Value *in = op->n_in ? op->in[0].value : NULL;
      const Value *v = in && in->id < k.n_values ? k.value[in->id] : NULL;
      bool updates = false;
      for_each_use(u, op->out[0])
        updates |= u->user && op_part(u->user) == PART_update;
      bool is_pin = op->out[0]->id >= k.n_values && updates;
      for (int a = 0; v && is_pin && a < MAX_AXES; a++)
        if (out->axis[a] && k.copy.decisions.layout[op->out[0]->id][a].kind == SBP_S)
          out->parts[v->id] = true;
    }
  }
  module_free(k.module);
  return known ? out : NULL;
}

// -- For the duration of a search ----------------------------------------------------------------

// Sets splits and layouts along the outer axes.
static void set_all(Sharding *s, const Outer *o, char (*split)[MAX_AXES], Sbp (*lies)[MAX_AXES]) {
  for (int a = 0; a < MAX_AXES; a++) {
    if (!o->axis[a]) continue;
    for_each_op(op, s->g)
      op->split[a] = split[op->id][a];
    for (uint32_t i = 0; i < s->g->n_values; i++)
      s->decisions.layout[i][a] = lies[i][a];
  }
}

void outer_assume(Sharding *s, Outer *o) {
  if (!o) return;
  const Graph *g = s->g;
  // Save them, for outer_forget.
  o->was_split = arena_alloc_array(s->scratch, g->n_ops, sizeof *o->was_split);
  o->was_lies = arena_copy(s->scratch, s->decisions.layout, g->n_values * sizeof *o->was_lies);
  for_each_op(op, g)
    memcpy(o->was_split[op->id], op->split, sizeof op->split);
  set_all(s, o, o->split, o->lies);
  for (int a = 0; a < MAX_AXES; a++)
    if (o->axis[a]) s->decisions.final[a] = true;
  s->outer = o;
}

void outer_forget(Sharding *s) {
  const Outer *o = s->outer;
  if (!o) return;
  set_all(s, o, o->was_split, o->was_lies);
  for (int a = 0; a < MAX_AXES; a++)
    if (o->axis[a]) s->decisions.final[a] = false;
  s->outer = NULL;
}
