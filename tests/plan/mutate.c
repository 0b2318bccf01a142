// Mutations of a plan: every single change after which it still resembles a program. The kinds are
// in random_plans.h.  Those of a kind are enumerated in a fixed order, so that a number identifies
// one.

#include "random_plans.h"

#include <string.h>

#include "ir/build.h"
#include "ir/op.h"
#include "ir/split.h"

const char *const mutation_name[N_MUTATIONS] = {
#define MUTATION(name, means) #name,
    MUTATIONS
#undef MUTATION
};

typedef struct Mutator {
  Module *m;
  Graph *g;
  Arena *a;
  Diag *quiet;
  int kind;         // the selected kind
  int64_t left;     // the number to skip
  const char *done; // describes the change; NULL before it
  bool unfit;       // invalid types: the change was not made
} Mutator;

// Counts a possible mutation of this kind; returns whether it is the selected one.
static bool turn(Mutator *u, int kind) {
  return !u->done && kind == u->kind && u->left-- == 0;
}

static void done(Mutator *u, const Op *op, const char *detail) {
  u->done = str_format(u->a, "%s: %s%s%s", mutation_name[u->kind], op ? op_text(op, u->a) : "",
                       op ? " " : "", detail);
}

// Infers types again after the change as far as possible; the verifier finds the rest.
static void retype_from(Mutator *u, Op *op) {
  for (; op && op_retype(op, u->quiet); op = op->next)
    continue;
}

// In a planned module a new value has the place of the value that it is made from.
static void place_like(Value *v, const Value *like) {
  v->layout = like->layout;
  v->offset = like->offset, v->slots = like->slots, v->stride = like->stride;
}

static bool same_place(const Value *x, const Value *y) {
  return x != y && x->type == y->type && x->layout == y->layout;
}

// -- Collectives -----------------------------------------------------------------------------

static void identities(Mutator *u, Op *op) {
  if (turn(u, MUTATE_identity)) {
    done(u, op, "");
    value_replace(op->out[0], op->in[0].value);
    retype_from(u, op->next);
    return;
  }
  for (Use *use = op->out[0]->uses; use; use = use->next) {
    if (!turn(u, MUTATE_identity)) continue;
    done(u, op, "for one reader");
    if (use->user)
      op_set_in(use->user, use->index, op->in[0].value);
    else
      graph_set_result(u->g, use->index, op->in[0].value);
    retype_from(u, op->next);
    return;
  }
}

static void other_collectives(Mutator *u, Op *op) {
  static const OpKind kinds[] = {OP_all_reduce, OP_all_gather, OP_local_slice,  OP_reduce_scatter,
                                 OP_all_to_all, OP_accumulate, OP_take_partial, OP_as_partial};
  for (size_t i = 0; op_has_attr(op, "axis") && i < sizeof kinds / sizeof *kinds; i++) {
    if (kinds[i] == op->kind || !turn(u, MUTATE_collective)) continue;
    int64_t dim = op_has_attr(op, "dim") ? attr_i(op, "dim") : 0;
    Attr attrs[] = {a_s("axis", attr_s(op, "axis")), a_i("dim", dim), a_i("dim", dim)};
    int n;
    op_attr_specs(kinds[i], &n);
    if (n == 3) attrs[1] = a_i("from", dim), attrs[2] = a_i("to", dim ? 0 : 1);
    Op *other = op_new(u->g, op, kinds[i], &op->in[0].value, 1, attrs, n, op_origin(op), u->quiet);
    done(u, op, op_info[kinds[i]].name);
    u->unfit = !other;
    if (!other) return;
    place_like(other->out[0], op->out[0]);
    value_replace(op->out[0], other->out[0]);
    retype_from(u, other->next);
  }
}

// Appends `kind` to the op, along the axis number `axis`, for all its readers.
static Value *communicate(Mutator *u, Op *op, OpKind kind, int axis, Sbp to) {
  Value *v = op->out[0];
  Attr attr = a_s("axis", u->m->meshes->axis[axis].name);
  Op *new = op_new(u->g, op->next, kind, &v, 1, &attr, 1, op_origin(op), u->quiet);
  Sbp layout[MAX_AXES];
  for (int i = 0; i < v->layout->n_axes; i++)
    layout[i] = i == axis ? to : v->layout->axis[i];
  place_like(new->out[0], v);
  new->out[0]->layout = layout_new(u->m, v->layout->mesh, layout);
  value_replace(v, new->out[0]);
  op_set_in(new, 0, v);
  return new->out[0];
}

// Sums a value once more, and counts one once per time slice or takes only one slice's.
static void repeats(Mutator *u, Op *op) {
  const Value *v = op->out[0];
  const Sbp whole = {.kind = SBP_B}, partial = {.kind = SBP_P};
  if (dtype_class[v->type->dtype] != 'F' || v->layout->mesh != u->m->meshes) return;
  for (int axis = 0; axis < v->layout->n_axes; axis++) {
    bool time = u->m->meshes->axis[axis].time;
    int kind = v->layout->axis[axis].kind;
    if (kind == SBP_S) continue;
    if ((op_info[op->kind].traits & COMM) && turn(u, MUTATE_repeat)) {
      done(u, op, "is summed once more");
      communicate(u, op, time ? OP_accumulate : OP_all_reduce, axis, whole);
    }
    if (time && kind == SBP_B && turn(u, MUTATE_repeat)) {
      done(u, op, "counts once per slice");
      Value *share = communicate(u, op, OP_as_partial, axis, partial);
      communicate(u, share->def, OP_accumulate, axis, whole);
    }
    if (time && kind == SBP_P && turn(u, MUTATE_repeat)) {
      done(u, op, "of one slice");
      communicate(u, op, OP_take_partial, axis, whole);
    }
  }
}

// -- Attributes ------------------------------------------------------------------------------

static void set_attr(Mutator *u, Op *op, Attr attr) {
  done(u, op, attr.name);
  op_set_attr(op, attr);
  retype_from(u, op);
}

static void lists(Mutator *u, Op *op, Attr attr) {
  for (int i = 0; i < attr.list.n && i < MAX_NDIM; i++)
    for (int by = -1; by <= 1; by += 2) {
      if (!turn(u, MUTATE_attribute)) continue;
      int64_t at[MAX_NDIM];
      memcpy(at, attr.list.at, (size_t)attr.list.n * sizeof *at);
      at[i] += by;
      set_attr(u, op, a_list(attr.name, at, attr.list.n));
    }
}

static void words(Mutator *u, Op *op, Attr attr) {
  for (int i = 0; i < u->m->meshes->n_axes; i++) {
    const char *name = u->m->meshes->axis[i].name;
    if (!str_equal(attr.s, name) && turn(u, MUTATE_attribute))
      set_attr(u, op, a_s(attr.name, name));
  }
}

static void attributes(Mutator *u, Op *op) {
  int n;
  op_attr_specs(op->kind, &n);
  for (int i = 0; i < n; i++) {
    Attr attr = op->attrs[i];
    switch (attr.kind) {
    case 'I': lists(u, op, attr); break;
    case 's': words(u, op, attr); break;
    case 'b':
      if (turn(u, MUTATE_attribute)) set_attr(u, op, a_b(attr.name, !attr.i));
      break;
    case 'f':
      if (turn(u, MUTATE_attribute)) set_attr(u, op, a_f(attr.name, attr.f + 0.5));
      break;
    case 'i':
      if (turn(u, MUTATE_attribute)) set_attr(u, op, a_i(attr.name, attr.i + 1));
      if (turn(u, MUTATE_attribute)) set_attr(u, op, a_i(attr.name, attr.i - 1));
      break;
    case 't':
      if (turn(u, MUTATE_attribute))
        set_attr(u, op, a_t(attr.name, attr.t == DT_f64 ? DT_f32 : DT_f64));
      break;
    case 'd':
      if (attr.data.n && turn(u, MUTATE_attribute)) {
        char *bytes = arena_copy(u->a, attr.data.at, (size_t)attr.data.n);
        bytes[0] ^= 1;
        set_attr(u, op, a_data(attr.name, bytes, attr.data.n));
      }
    }
  }
}

// -- Operands and results --------------------------------------------------------------------

static void operand(Mutator *u, Op *op, int i, Value *by) {
  if (!same_place(by, op->in[i].value) || !turn(u, MUTATE_operand)) return;
  done(u, op, str_format(u->a, "reads another as %d", i));
  op_set_in(op, i, by);
}

static void operands(Mutator *u, Op *op) {
  for (int i = 0; i < op->n_in; i++) {
    for (int k = 0; k < u->g->n_params; k++)
      operand(u, op, i, u->g->params[k]);
    for (Op *before = u->g->first; before != op; before = before->next)
      for (int k = 0; k < before->n_out; k++)
        operand(u, op, i, before->out[k]);
  }
}

static void swapped_operands(Mutator *u, Op *op) {
  for (int i = 0; i < op->n_in; i++)
    for (int k = 0; k < i; k++) {
      Value *x = op->in[i].value, *y = op->in[k].value;
      if (!same_place(x, y) || !turn(u, MUTATE_swap)) continue;
      done(u, op, "operands");
      op_set_in(op, i, y);
      op_set_in(op, k, x);
    }
}

// Readers of a result read an operand instead.
static void drops(Mutator *u, Op *op) {
  for (int i = 0; i < op->n_in && op->n_out == 1; i++) {
    if (!same_place(op->in[i].value, op->out[0]) || !turn(u, MUTATE_drop)) continue;
    done(u, op, str_format(u->a, "is its operand %d", i));
    value_replace(op->out[0], op->in[i].value);
    return;
  }
}

// Exchanges the uses of `x` and `y`.
static void swap_uses(Mutator *u, Value *x, Value *y) {
  Op *op = u->g->first;
  for (; op; op = op->next)
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value == x || op->in[i].value == y)
        op_set_in(op, i, op->in[i].value == x ? y : x);
  for (int i = 0; i < u->g->n_results; i++) {
    Value *v = u->g->results[i]->use.value;
    if (v == x || v == y) graph_set_result(u->g, i, v == x ? y : x);
  }
}

static void swapped_results(Mutator *u, Op *op) {
  for (int i = 0; i < op->n_out; i++)
    for (int k = 0; k < i; k++) {
      if (!same_place(op->out[i], op->out[k]) || !turn(u, MUTATE_swap)) continue;
      done(u, op, "results");
      swap_uses(u, op->out[i], op->out[k]);
    }
}

static void other_result(Mutator *u, int i, Value *by) {
  Result *result = u->g->results[i];
  if (!same_place(by, result->use.value) || !turn(u, MUTATE_result)) return;
  done(u, by->def, str_format(u->a, "is result %d", i));
  graph_set_result(u->g, i, by);
}

static void graph_results(Mutator *u) {
  Graph *g = u->g;
  for (int i = 0; i < g->n_results; i++) {
    Value *x = g->results[i]->use.value;
    for (int k = 0; k < i; k++) {
      Value *y = g->results[k]->use.value;
      if (!same_place(x, y) || !turn(u, MUTATE_swap)) continue;
      done(u, NULL, "results of the graph");
      graph_set_result(g, i, y);
      graph_set_result(g, k, x);
    }
  }
  for (int i = 0; i < g->n_results; i++) {
    for (int k = 0; k < g->n_params; k++)
      other_result(u, i, g->params[k]);
    for_each_op(op, g) {
      for (int k = 0; k < op->n_out; k++)
        other_result(u, i, op->out[k]);
    }
    if (!turn(u, MUTATE_result)) continue;
    done(u, NULL, "lost");
    graph_erase_result(g, i);
    return;
  }
}

// -- Ops, splits and layouts -----------------------------------------------------------------

static void kinds(Mutator *u, Op *op) {
  for (int step = 1; op_info[op->kind].formula && step < N_OPS; step++) {
    const OpInfo *is = &op_info[op->kind];
    int kind = (int)(op->kind + step) % N_OPS;
    const OpInfo *other = &op_info[kind];
    if (!other->formula || !str_equal(is->types, other->types) ||
        !str_equal(is->attrs, other->attrs))
      continue;
    if (!turn(u, MUTATE_kind)) return;
    done(u, op, other->name);
    op->kind = (OpKind)kind;
    return;
  }
}

static void inserts(Mutator *u, Op *op) {
  for (int i = 0; i < op->n_out; i++) {
    Value *v = op->out[i];
    if (dtype_class[v->type->dtype] != 'F' || !turn(u, MUTATE_insert)) continue;
    done(u, op, "neg");
    Op *neg = op_new(u->g, op->next, OP_neg, &v, 1, NULL, 0, op_origin(op), u->quiet);
    place_like(neg->out[0], v);
    for (int axis = 0; axis < v->layout->n_axes; axis++) {
      Sbp sbp = v->layout->axis[axis];
      neg->split[axis] = sbp.kind == SBP_S   ? (char)('0' + sbp.dim)
                         : sbp.kind == SBP_P ? SPLIT_PARTIAL
                                             : SPLIT_NONE;
    }
    value_replace(v, neg->out[0]);
    op_set_in(neg, 0, v);
  }
}

static void set_split(Mutator *u, Op *op, const Dims *dims, int axis, char letter) {
  if (letter == op->split[axis] || !turn(u, MUTATE_split)) return;
  done(u, op, str_format(u->a, "'%c'", letter ? letter : '-'));
  op->split[axis] = letter;
  for (int i = 0; i < op->n_out; i++) {
    Sbp layout[MAX_AXES];
    const Layout *l = op->out[i]->layout;
    for (int k = 0; k < l->n_axes; k++)
      layout[k] = k == axis ? split_gives(op, dims, i, k) : l->axis[k];
    op->out[i]->layout = layout_new(u->m, l->mesh, layout);
  }
}

static void splits(Mutator *u, Op *op) {
  Dims dims;
  if ((op_info[op->kind].traits & COMM) || !op_dims(op, &dims, u->quiet)) return;
  for (int axis = 0; axis < u->m->meshes->n_axes; axis++) {
    for (int i = 0; i < dims.n_letters; i++)
      if (dims_leads(&dims, i)) set_split(u, op, &dims, axis, dims.letter[i].name);
    set_split(u, op, &dims, axis, SPLIT_NONE);
    set_split(u, op, &dims, axis, SPLIT_PARTIAL);
  }
}

static void set_layout(Mutator *u, Value *v, int axis, Sbp to) {
  Sbp layout[MAX_AXES];
  if (sbp_equal(v->layout->axis[axis], to) || !turn(u, MUTATE_layout)) return;
  for (int i = 0; i < v->layout->n_axes; i++)
    layout[i] = i == axis ? to : v->layout->axis[i];
  done(u, v->def, sbp_text(u->a, to));
  v->layout = layout_new(u->m, v->layout->mesh, layout);
}

static void layouts(Mutator *u, Value *v) {
  const Layout *l = v->layout;
  for (const Mesh *mesh = u->m->meshes; mesh; mesh = mesh->next) {
    if (mesh == l->mesh || mesh->n_axes != l->n_axes || !turn(u, MUTATE_layout)) continue;
    done(u, v->def, mesh->name);
    v->layout = layout_new(u->m, mesh, l->axis);
  }
  for (int axis = 0; axis < v->layout->n_axes; axis++) {
    set_layout(u, v, axis, (Sbp){.kind = SBP_B});
    set_layout(u, v, axis, (Sbp){.kind = SBP_P});
    for (int dim = 0; dim < v->type->ndim; dim++)
      set_layout(u, v, axis, (Sbp){.kind = SBP_S, .dim = dim});
  }
}

// A value is at the place of another one, or has a slot less.
static void places(Mutator *u, Value *v) {
  if (v->offset < 0) return;
  if (v->offset && turn(u, MUTATE_place)) {
    done(u, v->def, "is at the beginning");
    v->offset = 0;
  }
  if (turn(u, MUTATE_place)) {
    done(u, v->def, "is later");
    v->offset += 64;
  }
  if (v->slots && turn(u, MUTATE_place)) {
    done(u, v->def, "has a slot less");
    v->slots--;
  }
}

static void order(Mutator *u, Op *op) {
  if (!op->prev || !turn(u, MUTATE_order)) return;
  done(u, op, "earlier");
  op_move_before(op, op->prev);
}

static void parts(Mutator *u, Op *op) {
  for (int part = 0; part < N_TRAIN_PARTS; part++) {
    if (part == (int)op->part || !turn(u, MUTATE_part)) continue;
    done(u, op, str_format(u->a, "is of part %d", part));
    op->part = (TrainPart)part;
  }
}

// -- Parameters and the mesh -----------------------------------------------------------------

static void parameters(Mutator *u, int i) {
  Value *v = u->g->params[i];
  if (v->init && turn(u, MUTATE_parameter)) {
    done(u, NULL, "begins otherwise");
    Init *init = arena_one(v->graph->module->arena, Init);
    *init = *v->init;
    init->fill += 0.5;
    v->init = init;
  }
  if (v->role == ROLE_input && turn(u, MUTATE_parameter)) {
    done(u, NULL, str_format(u->a, "'%s' is read completely by a step or not", v->label));
    v->whole = !v->whole;
  }
  if (v->role == ROLE_weight && turn(u, MUTATE_parameter)) {
    done(u, NULL, "trained or not");
    v->train = !v->train;
  }
  if (v->init && turn(u, MUTATE_parameter)) {
    done(u, NULL, str_format(u->a, "'%s' changes in every slice or not", v->label));
    v->each_slice = !v->each_slice;
  }
  if (v->init && turn(u, MUTATE_parameter)) {
    done(u, NULL, str_format(u->a, "'%s' has another shape for users", v->label));
    const Type *whole = value_known(v);
    int64_t flat = type_count(whole);
    v->as = type_new(u->m, whole->dtype, 1, &flat);
  }
  for (int k = 0; k < i; k++) {
    Value *other = u->g->params[k];
    if (!same_place(v, other) || v->role != other->role || !turn(u, MUTATE_parameter)) continue;
    done(u, NULL, str_format(u->a, "'%s' for '%s'", v->label, other->label));
    const char *label = v->label;
    v->label = other->label;
    other->label = label;
  }
}

// Gives the mesh the number of devices that its axes need.
static void set_devices(Mutator *u, Mesh *mesh) {
  mesh->n_devices = 1;
  for (int i = 0; i < mesh->n_axes; i++)
    if (!mesh->axis[i].time) mesh->n_devices *= mesh->axis[i].size;
  int *device = arena_array(u->m->arena, int, mesh->n_devices);
  for (int i = 0; i < mesh->n_devices; i++)
    device[i] = i;
  mesh->device = device;
}

static void meshes(Mutator *u) {
  Mesh *mesh = u->m->meshes;
  int n_time = 0;
  for (int i = 0; i < mesh->n_axes; i++)
    n_time += mesh->axis[i].time;
  for (int i = 0; i < mesh->n_axes; i++)
    for (int k = 0; k < i; k++) {
      if (mesh->axis[i].size == mesh->axis[k].size || !turn(u, MUTATE_mesh)) continue;
      done(u, NULL, "sizes swapped");
      int size = mesh->axis[i].size;
      mesh->axis[i].size = mesh->axis[k].size;
      mesh->axis[k].size = size;
    }
  for (int i = 0; i < mesh->n_axes; i++) {
    if (turn(u, MUTATE_mesh)) {
      done(u, NULL, str_format(u->a, "'%s' is one longer", mesh->axis[i].name));
      mesh->axis[i].size++;
    }
    // A mesh has at most one time axis.
    if (n_time - mesh->axis[i].time == 0 && turn(u, MUTATE_mesh)) {
      done(u, NULL, str_format(u->a, "'%s' of time or not", mesh->axis[i].name));
      mesh->axis[i].time = !mesh->axis[i].time;
    }
  }
  set_devices(u, mesh);
  if (mesh->n_devices > 1 && turn(u, MUTATE_mesh)) {
    done(u, NULL, "two ranks exchanged");
    mesh->device[0] = 1, mesh->device[1] = 0;
  }
}

// -- All of them -----------------------------------------------------------------------------

static void mutate_op(Mutator *u, Op *op) {
  if (op_info[op->kind].traits & COMM) {
    identities(u, op);
    other_collectives(u, op);
  }
  repeats(u, op);
  attributes(u, op);
  operands(u, op);
  swapped_operands(u, op);
  swapped_results(u, op);
  drops(u, op);
  kinds(u, op);
  inserts(u, op);
  splits(u, op);
  for (int i = 0; i < op->n_out; i++) {
    layouts(u, op->out[i]);
    places(u, op->out[i]);
  }
  order(u, op);
  parts(u, op);
}

static void mutate_graph(Mutator *u, Graph *g) {
  u->g = g;
  for (int i = 0; i < g->n_params && !u->done; i++) {
    if (g->entry) parameters(u, i);
    layouts(u, g->params[i]);
    places(u, g->params[i]);
  }
  for (Op *op = g->first; op && !u->done; op = op->next)
    mutate_op(u, op);
  if (!u->done) graph_results(u);
}

// The first entry, and the bodies of its fused and multi_tensor ops.
static Mutator walk(Module *m, int kind, int64_t which, Arena *a) {
  Mutator u = {.m = m, .g = m->graphs, .a = a, .kind = kind, .left = which};
  u.quiet = diag_new(stderr);
  diag_quiet(u.quiet, true);
  meshes(&u);
  for_each_graph(g, m) {
    if ((g == m->graphs || !g->entry) && !u.done) mutate_graph(&u, g);
  }
  diag_free(u.quiet);
  return u;
}

int64_t n_mutations(const Module *m, int kind) {
  Module *copy = module_clone(m);
  Arena *a = arena_new();
  Mutator u = walk(copy, kind, INT64_MAX, a);
  arena_free(a);
  module_free(copy);
  return INT64_MAX - u.left;
}

const char *mutate(Module *m, int kind, int64_t which, Arena *a) {
  Mutator u = walk(m, kind, which, a);
  return u.unfit ? NULL : u.done;
}
