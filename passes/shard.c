// Sharding: a layout for every value, and for every op the letter each mesh axis splits.
//
//     graph @train entry (%x: f32[8,4] input "x", %w: f32[4,6] weight "w" train, …) {
//       %y = linear %x, %w        : f32[8,6]
//       %g = linear_back_w %x, %d : f32[4,6]
//
//   =>  shard(mesh=dp:2 plan=dp)
//
//     graph @train entry (%x: f32[8,4] {S(0)} input "x", %w: f32[4,6] {B} weight "w" train, …) {
//       %y = linear %x, %w        : f32[8,6] {S(0)} split=[0]
//       %g = linear_back_w %x, %d : f32[4,6] {P}    split=[0]
//
// Programs say some of it: how inputs and weights lie, what some ops split (plan.h).  The rest is
// propagation along the einsums: an op splits the letter along which an operand comes in; where
// that letter is absent from a result, the result is a sum of partial results; partial sums pass
// through what is linear.  Where operands come in along several letters, the one is taken for which
// least has to be moved.  What nothing reaches is replicated.
//
// Weights and states lie as their readers split them: when those of the model that split a weight
// agree, it is cut so, and propagation begins anew, as its gradient is cut with it.
//
// Values made from nothing that is split (a broadcast bias, a filled mask) are cut when all their
// readers want them cut the same way: see `narrow`.
//
// One axis after the other is decided, the innermost first, so that programs of outer axes know
// what is cut already: ZeRO picks a dimension of a weight that tensor parallelism leaves whole.
//
// An axis may be shared out among ops instead: each has some of its ranks (assign.h), and may split
// over those.  Then there are several meshes, and this is decided of each axis before what is
// split.
//
// Nothing moves here; comm.c inserts the collectives that these layouts imply.

#include <string.h>

#include "assign.h"
#include "base/vec.h"
#include "ir/op.h"
#include "ir/split.h"
#include "mesh.h"
#include "part.h"
#include "pass.h"
#include "plan.h"

enum { MAX_ROUNDS = 8 }; // of propagation, for weights that are cut because others are

static const Sbp whole = {.kind = SBP_B};

// A copy of `at` with zeros behind its `n` elements.
static void *grown(const Sharding *s, const void *at, uint32_t n, uint32_t to, size_t size) {
  char *copy = arena_alloc(s->scratch, to * size);
  if (n) memcpy(copy, at, n * size);
  memset(copy + n * size, 0, (to - n) * size);
  return copy;
}

// A new op runs where that operand is whose mesh it has, and is assigned as what made that.
static void place_new(Sharding *s, Op *op) {
  const Mesh *mesh = op_mesh(op);
  for (int i = 0; i < op->n_out; i++)
    op->out[i]->layout = layout_broadcast(s->g->module, mesh);
  for (int i = 0; i < op->n_in; i++) {
    const Op *from = op->in[i].value->def;
    if (!from || op_mesh(from) != mesh) continue;
    memcpy(s->assigned[op->id], s->assigned[from->id], sizeof *s->assigned);
    memcpy(s->ranks[op->id], s->ranks[from->id], sizeof *s->ranks);
    return;
  }
}

void sharding_grow(Sharding *s) {
  const Graph *g = s->g;
  if (g->n_ops > s->n_ops) {
    uint32_t to = g->n_ops + g->n_ops / 2;
    s->dims = grown(s, s->dims, s->n_ops, to, sizeof *s->dims);
    s->fixed = grown(s, s->fixed, s->n_ops, to, sizeof *s->fixed);
    s->assigned = grown(s, s->assigned, s->n_ops, to, sizeof *s->assigned);
    s->ranks = grown(s, s->ranks, s->n_ops, to, sizeof *s->ranks);
    s->n_ops = to;
  }
  if (g->n_values > s->n_values) {
    uint32_t to = g->n_values + g->n_values / 2;
    s->lies = grown(s, s->lies, s->n_values, to, sizeof *s->lies);
    s->given = grown(s, s->given, s->n_values, to, sizeof *s->given);
    s->n_values = to;
  }
  for (int i = 0; s->mesh && i < g->n_params; i++)
    if (!g->params[i]->layout) g->params[i]->layout = layout_broadcast(g->module, s->mesh);
  for_each_op(op, g)
    if (s->mesh && op->n_out && !op->out[0]->layout) place_new(s, op);
}

const Dims *dims_of(const Sharding *s, const Op *op) {
  if (op->id < s->n_ops && s->dims[op->id]) return s->dims[op->id];
  Dims *dims = arena_one(s->scratch, Dims);
  Diag *d = diag_new(stderr);
  if (!op_dims(op, dims, d)) BUG("%s does not fit", op_info[op->kind].name);
  diag_free(d);
  if (op->id < s->n_ops) s->dims[op->id] = dims;
  return dims;
}

int op_parts(const Op *op, int axis) {
  return op_mesh(op)->axis[axis].size;
}

// Ranks of the axis that the value is on.
static int value_parts(const Value *v, int axis) {
  return v->layout->mesh->axis[axis].size;
}

bool param_cuts(const Sharding *s, const Value *v, int dim, int axis) {
  if (v->def || dim < 0 || dim >= v->type->rank) return false;
  int64_t n = value_parts(v, axis);
  for (int a = 0; a < s->mesh->n_axes; a++) {
    Sbp other = s->lies[v->id][a];
    if (a != axis && other.kind == SBP_S && other.dim == dim) n *= value_parts(v, a);
  }
  return v->type->dim[dim] % n == 0;
}

int letter_of_operand(const Sharding *s, const Op *op, int i, int dim, int axis) {
  const Dims *dims = dims_of(s, op);
  if (op_parts(op, axis) == 1) return -1;
  int letter = dims_splitter(dims, &dims->in[i], dim, op_parts(op, axis));
  return letter >= 0 && split_legal(op, dims, letter, axis) ? letter : -1;
}

// -- Propagation -----------------------------------------------------------------------------

// How an op of the model wants `v`, of which `reader` is part of the gradient; NULL when it does
// not read it.
static const Use *model_use(const Value *v, const Op *reader) {
  if (op_part(reader) != PART_backward) return NULL;
  for_each_use(u, v)
    if (u->user && op_is_gradient_of(reader, u->user)) return u;
  return NULL;
}

// Also in another type.
static bool is_stored(const Sharding *s, const Value *v, int axis) {
  while (v->def && v->def->kind == OP_cast)
    v = v->def->in[0].value;
  return !v->def && s->given[v->id][axis] == STORED;
}

// How a value lies for one who reads it: the shares of a sum are added up before it goes to another
// mesh.
static Sbp lies_for(const Sharding *s, const Value *v, const Op *reader, int axis) {
  Sbp lies = s->lies[v->id][axis];
  return lies.kind == SBP_P && op_mesh(reader) != v->layout->mesh ? whole : lies;
}

// How a value lies as far as its readers' splits are concerned.  A gradient has it as the op of the
// model had it, which is the chain rule: what that op split, its gradient splits.  What is only
// stored in parts is used whole, but for what changes its type.
static Sbp shown(const Sharding *s, const Value *v, const Op *reader, int axis) {
  const Use *u = model_use(v, reader);
  if (u)
    return split_wants(u->user, dims_of(s, u->user), u->index, axis, lies_for(s, v, u->user, axis));
  return is_stored(s, v, axis) && reader->kind != OP_cast ? whole : lies_for(s, v, reader, axis);
}

// Bytes of a device's part, as other axes cut it.
static double part_bytes(const Sharding *s, const Value *v, int axis) {
  double bytes = (double)type_bytes(v->type);
  for (int a = 0; a < s->mesh->n_axes; a++)
    if (a != axis && s->decided[a] && s->lies[v->id][a].kind == SBP_S) bytes /= value_parts(v, a);
  return bytes;
}

// Does an op before `op` have it whole already?
static bool gathered_before(const Sharding *s, const Value *v, const Op *op, int axis) {
  for_each_use(u, v) {
    if (!u->user || u->user->id >= op->id) continue;
    Sbp want = split_wants(u->user, dims_of(s, u->user), u->index, axis, whole);
    if (want.kind == SBP_B) return true;
  }
  return false;
}

// What a rank sends for operand `i` to be as `op` splits it now.
static double operand_cost(const Sharding *s, const Op *op, int i, int axis) {
  const Value *v = op->in[i].value;
  Sbp have = shown(s, v, op, axis);
  Sbp want = split_wants(op, dims_of(s, op), i, axis, have);
  double n = op_parts(op, axis), sent = part_bytes(s, v, axis) * (n - 1) / n;
  if (sbp_equal(have, want) || have.kind == SBP_B) return 0;
  if (have.kind == SBP_P) return want.kind == SBP_B ? 2 * sent : sent;
  if (want.kind == SBP_B) return gathered_before(s, v, op, axis) ? 0 : sent;
  return sent / n;
}

static double split_cost(const Sharding *s, Op *op, int letter, int axis) {
  char before = op->split[axis];
  double cost = 0, n = op_parts(op, axis);
  op->split[axis] = dims_of(s, op)->letter[letter].name;
  for (int i = 0; i < op->n_in; i++)
    cost += operand_cost(s, op, i, axis);
  for (int i = 0; i < op->n_out; i++)
    if (split_gives(op, dims_of(s, op), i, axis).kind == SBP_P)
      cost += 2 * (n - 1) / n * part_bytes(s, op->out[i], axis);
  op->split[axis] = before;
  return cost;
}

// The letter by which operands come in split that costs least, if the op can split one.
// `of_model`: among those that the op of the model reads, too.
static int incoming_letter(const Sharding *s, Op *op, int axis, bool of_model) {
  int best = -1;
  double least = 0;
  for (int i = 0; i < op->n_in; i++) {
    Sbp have = shown(s, op->in[i].value, op, axis);
    if (have.kind != SBP_S || (of_model && !model_use(op->in[i].value, op))) continue;
    int letter = letter_of_operand(s, op, i, have.dim, axis);
    if (letter < 0 || letter == best) continue;
    double cost = split_cost(s, op, letter, axis);
    if (best >= 0 && cost >= least) continue;
    best = letter;
    least = cost;
  }
  return best;
}

// Whether the partial sums among the operands may pass through.
static bool partial_passes(const Sharding *s, const Op *op, int axis) {
  int partial = 0;
  for (int i = 0; i < op->n_in; i++) {
    Sbp have = lies_for(s, op->in[i].value, op, axis);
    if (have.kind == SBP_S) return false;
    partial += have.kind == SBP_P;
  }
  if (!partial) return false;
  int traits = op_traits(op);
  return ((traits & SUM) && partial == op->n_in) || ((traits & EACH) && partial == 1);
}

static char choose(const Sharding *s, Op *op, int axis) {
  int letter = incoming_letter(s, op, axis, true);
  if (letter < 0) letter = incoming_letter(s, op, axis, false);
  if (letter >= 0) return dims_of(s, op)->letter[letter].name;
  return partial_passes(s, op, axis) ? SPLIT_PARTIAL : SPLIT_NONE;
}

static void lay_results(Sharding *s, const Op *op, int axis) {
  for (int i = 0; i < op->n_out; i++)
    s->lies[op->out[i]->id][axis] = split_gives(op, dims_of(s, op), i, axis);
}

static void propagate(Sharding *s, int axis) {
  for_each_op(op, s->g) {
    if (!s->fixed[op->id][axis]) {
      op->split[axis] = SPLIT_NONE; // as costs and what is legal see it
      op->split[axis] = choose(s, op, axis);
    }
    lay_results(s, op, axis);
  }
}

// -- Parameters --------------------------------------------------------------------------------

// How a reader wants the value, which may be on other ranks: whole if they are fewer or more.
static Sbp wanted_of(const Sharding *s, const Value *v, const Use *u, int axis) {
  if (op_parts(u->user, axis) != value_parts(v, axis)) return whole;
  return split_wants(u->user, dims_of(s, u->user), u->index, axis, whole);
}

// How the readers that cut it want a parameter, if they agree; of a weight those of the model and
// its gradients, so that it is not cut because only its optimizer is.
static Sbp wanted_of_param(const Sharding *s, const Value *v, int axis) {
  Sbp all = whole;
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || (v->role == ROLE_weight && op_part(op) == PART_update)) continue;
    Sbp want = wanted_of(s, v, u, axis);
    if (want.kind != SBP_S) continue;
    if (all.kind == SBP_S && !sbp_equal(all, want)) return whole;
    all = want;
  }
  return all;
}

// Is there an update that would have to put together what is cut?
static bool update_differs(const Sharding *s, const Value *v, Sbp want, int axis) {
  for (int i = 0; i < s->g->n_results; i++) {
    const Result *r = s->g->results[i];
    if (r->target == v && !sbp_equal(s->lies[r->use.value->id][axis], want)) return true;
  }
  return false;
}

// Whether any parameter was cut that was not before.
static bool lay_params(Sharding *s, int axis) {
  bool changed = false;
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *v = s->g->params[i];
    bool open = s->given[v->id][axis] == OPEN && s->lies[v->id][axis].kind == SBP_B;
    if (!open || (v->role != ROLE_weight && v->role != ROLE_state)) continue;
    Sbp want = wanted_of_param(s, v, axis);
    if (want.kind != SBP_S || !param_cuts(s, v, want.dim, axis)) continue;
    if (v->role == ROLE_state && update_differs(s, v, want, axis)) continue;
    s->lies[v->id][axis] = want;
    changed = true;
  }
  return changed;
}

// -- Narrowing ---------------------------------------------------------------------------------

// What every reader of `v` wants along `axis`, if they agree on a slice; otherwise B.
static Sbp wanted_by_all(const Sharding *s, const Value *v, int axis) {
  Sbp all = whole;
  for_each_use(u, v) {
    if (!u->user) return whole;
    Sbp want = wanted_of(s, v, u, axis);
    if (want.kind != SBP_S || (u != v->uses && !sbp_equal(want, all))) return whole;
    all = want;
  }
  return all;
}

// The letter along which all readers of its only result want an op cut that is whole as yet, if it
// can be; otherwise -1.
static int wanted_letter(const Sharding *s, const Op *op, int axis) {
  if (op->n_out != 1 || op->split[axis] != SPLIT_NONE || s->fixed[op->id][axis]) return -1;
  if (op_parts(op, axis) == 1) return -1;
  const Dims *dims = dims_of(s, op);
  Sbp want = wanted_by_all(s, op->out[0], axis);
  if (want.kind != SBP_S) return -1;
  int letter = dims_splitter(dims, &dims->out[0], want.dim, op_parts(op, axis));
  return letter >= 0 && split_legal(op, dims, letter, axis) ? letter : -1;
}

// Whether a reader takes the parameter in parts of this dimension, or would if it was cut as its
// own readers want it.
static bool takes_cut(const Sharding *s, const Use *u, int dim, int axis) {
  Sbp want = wanted_of(s, u->value, u, axis);
  if (want.kind == SBP_S) return want.dim == dim;
  int letter = wanted_letter(s, u->user, axis);
  const Dims *dims = dims_of(s, u->user);
  return letter >= 0 && dims_position(dims, &dims->in[u->index], letter) == dim;
}

// May `v` be cut for an op that reads it: is it made for that one, or a weight that nothing keeps
// whole but what updates it?
static bool may_cut(const Sharding *s, const Value *v, int dim, int axis) {
  if (v->def) return !v->uses->next;
  if (v->role != ROLE_weight || s->given[v->id][axis] != OPEN) return false;
  for_each_use(u, v) {
    if (u->user && op_part(u->user) == PART_update) continue;
    if (!u->user || !takes_cut(s, u, dim, axis)) return false;
  }
  return param_cuts(s, v, dim, axis);
}

// Ops made from whole operands: when all readers want the same slice of the only result, and no
// operand would have to be cut for it but those that may be, each device makes its slice.
static bool narrow(const Sharding *s, Op *op, int axis) {
  int letter = wanted_letter(s, op, axis);
  if (letter < 0) return false;
  const Dims *dims = dims_of(s, op);
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (shown(s, v, op, axis).kind != SBP_B) return false;
    int dim = dims_position(dims, &dims->in[i], letter);
    if (dim >= 0 && !may_cut(s, v, dim, axis)) return false;
  }
  op->split[axis] = dims->letter[letter].name;
  return true;
}

// -- One graph ---------------------------------------------------------------------------------

// Finds the rest of what programs have said of the axis.
static void decide(Sharding *s, int axis) {
  for (int i = 0; i < s->g->n_params; i++) {
    const Value *v = s->g->params[i];
    if (s->given[v->id][axis] == OPEN) s->lies[v->id][axis] = whole;
  }
  for (int i = 0; i == 0 || (i < MAX_ROUNDS && lay_params(s, axis)); i++) {
    propagate(s, axis);
    for (Op *op = s->g->last; op; op = op->prev)
      if (narrow(s, op, axis)) lay_results(s, op, axis);
  }
  s->decided[axis] = true;
}

// The axes that a program has had its say of.  Where ops have been assigned, what was found of the
// axes inside of them is found anew: operands come from elsewhere now.
static void decide_axes(Sharding *s, const int *axis, int n) {
  bool assigned = false;
  for (int k = 0; k < n; k++)
    assigned |= assign_rest(s, axis[k]);
  for (int a = s->mesh->n_axes - 1; a >= 0; a--) {
    bool own = false;
    for (int k = 0; k < n; k++)
      own |= axis[k] == a;
    if (own || (assigned && s->decided[a])) decide(s, a);
  }
}

// Whether partial sums come in where a program said that they pass through: it says so before what
// leads there is decided.
static bool check_sums(const Sharding *s, const Op *op, int axis, Diag *d) {
  const Loc *said = s->fixed[op->id][axis];
  if (!said || op->split[axis] != SPLIT_PARTIAL) return true;
  int n = 0, want = op_traits(op) & EACH ? 1 : op->n_in;
  for (int i = 0; i < op->n_in; i++)
    n += s->lies[op->in[i].value->id][axis].kind == SBP_P;
  if (n == want) return true;
  diag_error(d, said, "%s passes sums on when %d of its operands are partial sums along %s, not %d",
             op_info[op->kind].name, want, s->mesh->axis[axis].name, n);
  diag_note(d, op->loc, "this is what it is about");
  return false;
}

static bool check_all_sums(const Sharding *s, Diag *d) {
  bool ok = true;
  for_each_op(op, s->g)
    for (int a = 0; a < s->mesh->n_axes; a++)
      ok &= check_sums(s, op, a, d);
  return ok;
}

// What graphs have in common lies in all of them as it does in the first.
static void lay_as_before(Sharding *s, const Sharding *first) {
  for (int i = 0; first && i < s->g->n_params; i++) {
    Value *v = s->g->params[i];
    const Value *known = graph_find_role(first->g, v->role, v->label);
    if (!known || known->type != v->type) continue;
    v->layout = layout_broadcast(s->g->module, known->layout->mesh);
    for (int a = 0; a < s->mesh->n_axes; a++) {
      bool stored = first->given[known->id][a] == STORED;
      s->lies[v->id][a] = first->lies[known->id][a];
      s->given[v->id][a] = stored ? STORED : FIXED;
    }
  }
}

static void lay(Module *m, Value *v, const Sbp *lies) {
  v->layout = layout_new(m, v->layout->mesh, lies);
}

static void make_layouts(Sharding *s) {
  Module *m = s->g->module;
  for (int i = 0; i < s->g->n_params; i++)
    lay(m, s->g->params[i], s->lies[s->g->params[i]->id]);
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_out; i++)
      lay(m, op->out[i], s->lies[op->out[i]->id]);
}

// -- Programs and their axes -------------------------------------------------------------------

// A program and the axes of the mesh that it has.
typedef struct Section {
  PlanProgram *program;
  int axis[MAX_AXES], n;
} Section;

typedef struct Sections {
  Section at[MAX_AXES];
  int n;
} Sections;

static bool shard_graph(Graph *g, const Sections *sections, Arena *scratch, Sharding **first,
                        Diag *d) {
  Sharding *s = arena_one(scratch, Sharding);
  *s = (Sharding){.g = g, .mesh = g->module->meshes, .scratch = scratch};
  graph_renumber(g);
  sharding_grow(s);
  lay_as_before(s, *first);
  if (!*first) *first = s;
  for (int i = sections->n - 1; i >= 0; i--) {
    const Section *own = &sections->at[i];
    if (!program_step(own->program, s, own->axis, own->n)) return false;
    decide_axes(s, own->axis, own->n);
  }
  if (!check_all_sums(s, d)) return false;
  make_layouts(s);
  return true;
}

// Cuts the axis of a program as it wants that.
static bool factor_axis(Module *m, const Mesh *mesh, int from, Mesh *out, Section *s, Diag *d) {
  int64_t size[MAX_AXES];
  const char *name = mesh->axis[from].name;
  int n = program_factors(s->program, mesh->axis[from].size, size);
  if (!n) return false;
  for (int k = 0; k < n; k++) {
    const char *own = n == 1 ? name : str_format(m->arena, "%s%d", name, k);
    if (out->n_axes == MAX_AXES)
      return diag_error(d, NULL, "a mesh has at most %d axes, and the plan has more", MAX_AXES);
    if (mesh_find_axis(out, own) >= 0)
      return diag_error(d, NULL, "two axes of the plan are called '%s': rename a file", own);
    out->axis[out->n_axes].name = own;
    out->axis[out->n_axes].size = (int)size[k];
    out->axis[out->n_axes].time = mesh->axis[from].time;
    s->axis[s->n++] = out->n_axes++;
  }
  return true;
}

static void close_programs(const Sections *s) {
  for (int i = 0; i < s->n; i++)
    program_close(s->at[i].program);
}

// A batch is cut over time as it is over ranks.
static bool open_programs(Module *m, const Mesh *mesh, const char *plan, Sections *out,
                          Arena *scratch, Diag *d) {
  Mesh *factored = arena_one(m->arena, Mesh);
  *factored = *mesh;
  factored->n_axes = 0;
  int n_devices = 0;
  for (int a = 0; a < mesh->n_axes; a++) {
    const char *name = mesh->axis[a].time ? "dp" : plan_program(scratch, plan, n_devices++);
    Section *s = &out->at[out->n];
    *s = (Section){.program = program_open(scratch, name, d)};
    if (!s->program) return false;
    out->n++;
    if (!factor_axis(m, mesh, a, factored, s, d)) return false;
  }
  module_add_mesh(m, factored);
  return true;
}

// A plan may not fit a model: then ranks do the same, and that is hardly what was wanted.
static void warn_of_idle(const Module *m, Diag *d) {
  const Mesh *mesh = m->meshes;
  const Graph *g = module_first_entry(m);
  for (int a = 0; g && a < mesh->n_axes; a++) {
    bool split = mesh->axis[a].time || mesh->axis[a].size == 1;
    for_each_op(op, g)
      split |= op->split[a] != SPLIT_NONE || op_parts(op, a) < mesh->axis[a].size;
    if (!split)
      diag_warning(d, NULL, "nothing is split over '%s': its %d ranks all do the same",
                   mesh->axis[a].name, mesh->axis[a].size);
  }
}

bool pass_shard(Module *m, const PassOptions *o, Diag *d) {
  const char *plan = opt_str(o, "plan"), *text = opt_str(o, "mesh");
  if (m->meshes)
    return diag_error(d, NULL, "the module is sharded already, on a mesh of %d device%s",
                      m->meshes->n_devices, m->meshes->n_devices == 1 ? "" : "s");
  const Mesh *mesh = mesh_parse(m, text ? text : "1", d);
  if (!mesh) return false;
  Sections sections = {0};
  Sharding *first = NULL;
  bool ok = open_programs(m, mesh, plan, &sections, opt_scratch(o), d);
  for_each_graph(g, m)
    if (ok && g->entry) ok = shard_graph(g, &sections, opt_scratch(o), &first, d);
  close_programs(&sections);
  if (ok) warn_of_idle(m, d);
  return ok;
}
