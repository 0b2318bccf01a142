// See assign.h.
//
// Each known list of ranks is one Stage, numbered in the order in which the model reaches it. The
// other ops get stages part by part: the model, parameters, gradients and updates, states. Ops
// follow their operands from front to back, then their readers from back to front, and so on while
// any gets a stage. Only at the end are ops and parameters put on other meshes.
//
// A gradient runs on the stage of its op of the model, so backward visits stages in the reverse
// order. Sums of gradients could break that: with x read on stages 2, 1 and 2, in the order of the
// model, the second sum would have an operand of stage 1 on stage 2. So a sum of gradients runs on
// the first stage that its operands come from:
//
//     %s1 = add %g2, %g1   : … @s1
//     %s2 = add %s1, %g2b  : … @s1, not @s2
//
// A sum of the updates' part, the norm of all gradients, visits the stages in the model's order,
// and leaves the stages of a weight that several of them read for the next one of these.

#include "assign.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"

enum { SHOWN = 4 }; // ranks in a name, if they are not consecutive

// -- Ranks -------------------------------------------------------------------------------------

const Ranks *ranks_new(const Sharding *s, int axis, const int *at, int n) {
  bool all = n == s->mesh->axis[axis].size;
  for (int i = 0; i < n; i++)
    all &= at[i] == i;
  if (all) return NULL;
  Ranks *r = arena_alloc(s->scratch, sizeof *r + (size_t)n * sizeof *at);
  r->n = n;
  memcpy(r->at, at, (size_t)n * sizeof *at);
  return r;
}

static bool is_run(const Ranks *r) {
  bool run = true;
  for (int i = 1; i < r->n; i++)
    run &= r->at[i] == r->at[i - 1] + 1;
  return run;
}

const char *ranks_text(Arena *a, const Ranks *r, const char *axis) {
  if (!r) return str_format(a, "all ranks of %s", axis);
  if (r->n == 1) return str_format(a, "rank %d of %s", r->at[0], axis);
  StrBuf b = {.arena = a};
  strbuf_add(&b, "ranks ");
  for (int i = 0; i < r->n && (is_run(r) ? i < 1 : i < SHOWN); i++)
    strbuf_addf(&b, "%s%d", i ? ", " : "", r->at[i]);
  if (is_run(r))
    strbuf_addf(&b, "-%d", r->at[r->n - 1]);
  else if (r->n > SHOWN)
    strbuf_add(&b, ", …");
  strbuf_addf(&b, " of %s", axis);
  return b.at;
}

// -- Meshes ------------------------------------------------------------------------------------

static void put(const Sharding *s, Value *v, int axis, const Ranks *r) {
  if (!r) return;
  // The mesh has the devices of `from` at these ranks of the axis, of which `from` has all ranks.
  const Mesh *from = v->layout->mesh;
  // Devices are in row-major order of the axes: `inner` devices per rank of this axis.
  Module *m = s->g->module;
  Arena *scratch = arena_new(); // most meshes are in the module already
  Mesh *own = arena_one(scratch, Mesh);
  int inner = 1, outer;
  for (int a = axis + 1; a < from->n_axes; a++)
    if (!from->axis[a].time) inner *= from->axis[a].size;
  outer = from->n_devices / (inner * from->axis[axis].size);
  *own = *from;
  own->axis[axis].size = r->n;
  own->n_devices = outer * r->n * inner;
  own->device = arena_array(scratch, int, own->n_devices);
  for (int o = 0, n = 0; o < outer; o++)
    for (int i = 0; i < r->n; i++)
      for (int k = 0; k < inner; k++)
        own->device[n++] = from->device[(o * from->axis[axis].size + r->at[i]) * inner + k];
  const Mesh *mesh = module_find_alike(m, own);
  if (!mesh) {
    // A name such as "pp1", "pp0to3" or "pp0_2" follows that of a mesh that is not the whole.
    StrBuf b = {.arena = m->arena};
    if (from != s->mesh) strbuf_addf(&b, "%s_", from->name);
    strbuf_addf(&b, "%s%d", s->mesh->axis[axis].name, r->at[0]);
    for (int i = 1; i < r->n && i < SHOWN && !is_run(r); i++)
      strbuf_addf(&b, "_%d", r->at[i]);
    if (r->n > 1 && is_run(r)) strbuf_addf(&b, "to%d", r->at[r->n - 1]);
    const char *name = b.at;
    for (int i = 2; module_find_mesh(s->g->module, name); i++)
      name = str_format(m->arena, "%s_%d", b.at, i);
    Mesh *new = arena_copy(m->arena, own, sizeof *own);
    new->device = arena_copy(m->arena, own->device, (size_t)own->n_devices * sizeof *own->device);
    new->name = name;
    module_add_mesh(m, new);
    mesh = new;
  }
  arena_free(scratch);
  v->layout = layout_broadcast(s->g->module, mesh);
}

void assign_op(Sharding *s, Op *op, int axis, const Ranks *r, const Loc *why) {
  for (int i = 0; i < op->n_out; i++)
    put(s, op->out[i], axis, r);
  s->decisions.assigned[op->id][axis] = true;
  s->decisions.ranks[op->id][axis] = r;
  s->decisions.assigned_by[op->id][axis] = why;
}

void assign_param(Sharding *s, Value *v, int axis, const Ranks *r) {
  put(s, v, axis, r);
}

void assign_placed(Sharding *s, int axis, const struct Placed *placed, const bool *op) {
  s->decisions.placed[axis] = *placed;
  for_each_op(each, s->g)
    if (op) s->decisions.placed_op[each->id][axis] = op[each->id];
}

// -- Stages ------------------------------------------------------------------------------------

// A list of ranks in use, and its position in the model.
typedef struct Stage {
  const Ranks *ranks;
  int order;
} Stage;

typedef struct Assign {
  Sharding *s;
  int axis;
  Vec(Stage *) known;     // in the order in which the model reaches them
  const Stage **of_op;    // by op id; NULL: unknown so far
  const Stage **of_param; // by index; NULL: unknown, and in the end all ranks
  const Op *const *model; // from model_ops
  // By op id: the most changes of stages on a path to the op of the model, or to that of a
  // gradient; more if all ops that read its results have more.
  int *depth;
} Assign;

static const Stage *stage_of(Assign *a, const Ranks *ranks) {
  // A list of ranks with the same numbers is the same stage.
  for (int i = 0; i < a->known.n; i++) {
    const Ranks *r = a->known.at[i]->ranks;
    bool same =
        r && ranks && r->n == ranks->n && !memcmp(r->at, ranks->at, (size_t)r->n * sizeof *r->at);
    if (r == ranks || same) return a->known.at[i];
  }
  Stage *p = arena_one(a->s->scratch, Stage);
  *p = (Stage){ranks, a->known.n};
  vec_push(a->s->scratch, &a->known, p);
  return p;
}

static int by_number(const void *x, const void *y) {
  return *(const int *)x - *(const int *)y;
}

// The union of the ranks of both; one of them if the other is unknown.
static const Stage *both(Assign *a, const Stage *p, const Stage *q) {
  if (!p || !q || p == q) return p ? p : q;
  if (!p->ranks || !q->ranks) return p->ranks ? q : p;
  int n = p->ranks->n, *at = arena_array(a->s->scratch, int, n + q->ranks->n);
  memcpy(at, p->ranks->at, (size_t)n * sizeof *at);
  for (int i = 0; i < q->ranks->n; i++) {
    bool there = false;
    for (int k = 0; k < p->ranks->n; k++)
      there |= at[k] == q->ranks->at[i];
    if (!there) at[n++] = q->ranks->at[i];
  }
  qsort(at, (size_t)n, sizeof *at, by_number);
  return stage_of(a, ranks_new(a->s, a->axis, at, n));
}

// -- Defaults ----------------------------------------------------------------------------------

// The last stage of the operands that ops produce, or the first.
static const Stage *of_operands(const Assign *a, const Op *op, bool last) {
  const Stage *found = NULL;
  for (int i = 0; i < op->n_in; i++) {
    const Op *def = op->in[i].value->def;
    const Stage *p = def ? a->of_op[def->id] : NULL;
    if (p && (!found || (last ? p->order > found->order : p->order < found->order))) found = p;
  }
  return found;
}

// The stages of all ops that read the value; `model`: of those of the model only.
static const Stage *of_readers(Assign *a, const Value *v, bool model) {
  const Stage *found = NULL;
  for_each_use(u, v)
    if (u->user && (!model || op_part(u->user) == PART_forward))
      found = both(a, found, a->of_op[u->user->id]);
  return found;
}

// Puts ops without a stage, for lack of operands with one, on the stages of their readers.  Returns
// whether any got one.
static bool assign_sources(Assign *a, bool model) {
  bool any = false;
  for (Op *op = a->s->g->last; op; op = op->prev) {
    if (a->of_op[op->id] || (op_part(op) == PART_forward) != model) continue;
    const Stage *p = NULL;
    for (int i = 0; i < op->n_out; i++)
      p = both(a, p, of_readers(a, op->out[i], model));
    a->of_op[op->id] = p;
    any |= p != NULL;
  }
  return any;
}

static void assign_params(Assign *a, bool model) {
  const Graph *g = a->s->g;
  for (int i = 0; i < g->n_params; i++) {
    // A parameter is open if no program sharded it along the axis, and no other graph fixed its
    // layout.
    bool open = a->s->decisions.param[g->params[i]->id][a->axis] == PARAM_open &&
                g->params[i]->role != ROLE_scalar;
    if (!a->of_param[i] && open) a->of_param[i] = of_readers(a, g->params[i], model);
  }
}

// The keys of an encoder's result need no layer of the decoder, but are of the stage that reads
// them, also if the encoder's ranks have that stage, too.
static void find_depths(Assign *a) {
  a->depth = arena_array(a->s->scratch, int, a->s->n_ops);
  for_each_op(op, a->s->g)
    for (int i = 0; op_part(op) == PART_forward && i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      int depth = def ? a->depth[def->id] + (a->of_op[def->id] != a->of_op[op->id]) : 0;
      if (depth > a->depth[op->id]) a->depth[op->id] = depth;
    }
  // From the end: as late as the readers allow.
  for (const Op *op = a->s->g->last; op; op = op->prev) {
    int latest = INT_MAX;
    if (op_part(op) != PART_forward) continue;
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i]) {
        if (!u->user || op_part(u->user) != PART_forward) continue;
        int depth = a->depth[u->user->id] - (a->of_op[u->user->id] != a->of_op[op->id]);
        if (depth < latest) latest = depth;
      }
    if (latest < INT_MAX) a->depth[op->id] = latest;
  }
}

// The stage of a gradient of `of`; sets the gradient's depth.
static const Stage *of_gradient(const Assign *a, const Op *op, const Op *of) {
  const Stage *p = a->of_op[of->id];
  int *depth = &a->depth[op->id];
  *depth = a->depth[of->id];
  for (int i = 0; p && op->kind == OP_add && !op_is_recomputed(op) && i < op->n_in; i++) {
    const Op *def = op->in[i].value->def;
    if (!def || op_part(def) != PART_backward || a->depth[def->id] >= *depth) continue;
    if (!a->of_op[def->id]) continue;
    p = a->of_op[def->id];
    *depth = a->depth[def->id];
  }
  return p;
}

// Whether all ranks of `p` are ranks of `q`, too, and `q` has more.
static bool is_part(const Stage *p, const Stage *q) {
  if (!p->ranks || !q->ranks) return p->ranks && !q->ranks;
  int n = 0;
  for (int i = 0; i < p->ranks->n; i++)
    for (int k = 0; k < q->ranks->n; k++)
      n += p->ranks->at[i] == q->ranks->at[k];
  return n == p->ranks->n && n < q->ranks->n;
}

// The last stage of the operands; if it is several stages with another operand's among them, that
// one. A sum over all gradients goes through the stages one by one: the term of a weight that
// several of them read is on each of these, so it is there already. On all of them, the sum would
// need a transfer for each later term.
static const Stage *of_terms(const Assign *a, const Op *op) {
  const Stage *found = NULL;
  for (int i = 0; i < op->n_in; i++) {
    const Op *def = op->in[i].value->def;
    const Stage *p = def ? a->of_op[def->id] : NULL;
    bool later = p && found && p->order > found->order && !is_part(found, p);
    if (p && (!found || later || is_part(p, found))) found = p;
  }
  return found;
}

static const Stage *of_update(const Assign *a, const Op *op) {
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (!v->def && v->role == ROLE_weight) return a->of_param[v->index];
  }
  return of_terms(a, op);
}

// Puts ops without a stage on the last stage of their operands, gradients on the stage of the op of
// the model, updates on that of their weight.
static void assign_readers(Assign *a, bool model) {
  for_each_op(op, a->s->g) {
    TrainPart part = op_part(op);
    if (a->of_op[op->id] || (part == PART_forward) != model) continue;
    const Op *of = part == PART_backward ? model_op_of(a->s, op, a->model) : NULL;
    const Stage *p = of ? of_gradient(a, op, of) : NULL;
    if (part == PART_update)
      a->of_op[op->id] = of_update(a, op);
    else
      a->of_op[op->id] = p ? p : of_operands(a, op, part == PART_forward);
  }
}

// Finds the stages of the ops of the model, or of all others.
static void assign_ops(Assign *a, bool model) {
  // An op that follows its readers may have others without a stage: they follow it in turn.
  do
    assign_readers(a, model);
  while (assign_sources(a, model));
  // The rest runs on all ranks, and so do its gradients.
  for_each_op(op, a->s->g)
    if (!a->of_op[op->id] && (op_part(op) == PART_forward) == model)
      a->of_op[op->id] = stage_of(a, NULL);
}

bool assign_rest(Sharding *s, int axis) {
  const Graph *g = s->g;
  Assign a = {.s = s, .axis = axis};
  bool any = false;
  for_each_op(op, g)
    any |= s->decisions.assigned[op->id][axis];
  if (!any) return false;
  a.of_op = arena_array(s->scratch, const Stage *, s->n_ops);
  a.of_param = arena_array(s->scratch, const Stage *, g->n_params);
  a.model = model_ops(g, s->scratch);
  for_each_op(op, g)
    if (s->decisions.assigned[op->id][axis] || op->split[axis] != SPLIT_NONE)
      a.of_op[op->id] = stage_of(&a, s->decisions.ranks[op->id][axis]);
  assign_ops(&a, true);
  assign_params(&a, true);
  find_depths(&a);
  assign_ops(&a, false);
  assign_params(&a, false); // states
  // Only now ops and parameters move to other meshes.
  for (int i = 0; i < g->n_params; i++)
    if (a.of_param[i]) put(s, g->params[i], axis, a.of_param[i]->ranks);
  for_each_op(op, g) {
    const Stage *p = a.of_op[op->id];
    if (p && !s->decisions.assigned[op->id][axis]) assign_op(s, op, axis, p->ranks, NULL);
  }
  return true;
}
