// See outer.h.
//
// Ops of the copy are in the order of the originals, so a walk along both maps one to the other.
// Ops and values that the programs add to the copy have no original; their ids tell them apart.

#include "outer.h"

#include <string.h>

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "sections.h"
#include "sharding/decide.h"

// -- The clone -----------------------------------------------------------------------------------

typedef struct Guessing {
  const Sharding *of;
  Sharding copy;
  Module *module;
  const Value **value; // of the original graph, by id of the copy; NULL: added
  uint32_t n_values;
} Guessing;

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
  k->copy = sharding_of_clone(s, g);
  k->copy.guessing = true;
  // Values with ids from n_values on are additions of the programs.
  k->n_values = g->n_values;
  k->value = arena_array(s->scratch, const Value *, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    k->value[g->params[i]->id] = s->g->params[i];
  const Op *copy = g->first;
  for_each_op(op, s->g) {
    for (int i = 0; i < op->n_out; i++)
      k->value[copy->out[i]->id] = op->out[i];
    copy = copy->next;
  }
}

// -- Reading the prediction ----------------------------------------------------------------------

static void read_value(const Guessing *k, const Value *copy, Outer *out) {
  const Value *v = copy->id < k->n_values ? k->value[copy->id] : NULL;
  if (v) memcpy(out->layout[v->id], k->copy.decisions.layout[copy->id], sizeof *out->layout);
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
    out->layout = arena_alloc_array(s->scratch, s->g->n_values, sizeof *out->layout);
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

const Sharding *outer_assume(const Sharding *s, const Outer *o) {
  Sharding *assumed = sharding_copy(s);
  for (int a = 0; a < MAX_AXES; a++)
    if (o->axis[a]) decide_axis(assumed, a, o->split, o->layout);
  return assumed;
}
