// The verifier: a valid module passes, and each broken promise is reported.

#include "unit.h"

#include "ir/build.h"
#include "ir/op.h"
#include "manager/stamp.h"

// %x, %w, %dw -> %y = linear, %z = relu, %w1 = sgd; output "loss", update of %w.
typedef struct Net {
  Heard *h;
  Module *m;
  Graph *g;
  Value *x, *w, *dw, *lr, *y, *z, *w1;
} Net;

static Value *param(Net *t, const char *name, int ndim, const int64_t *dim, Role role) {
  return graph_param(t->g, name, type_new(t->m, DT_f32, ndim, dim), role, NULL);
}

static int set_up(void **state) {
  Net *t = calloc(1, sizeof *t);
  t->h = heard_new();
  t->m = module_new();
  t->g = graph_new(t->m, "train", true);
  t->x = param(t, "x", 2, (int64_t[]){4, 8}, ROLE_input);
  t->w = param(t, "w", 2, (int64_t[]){8, 6}, ROLE_weight);
  t->w->init = init_fill(t->m, (DType)0, 0);
  t->w->train = true;
  t->dw = param(t, "dw", 2, (int64_t[]){8, 6}, ROLE_input);
  t->lr = param(t, "lr", 0, NULL, ROLE_scalar);
  Builder b = {.g = t->g, .d = t->h->d};
  t->y = build_op(&b, OP_linear, IN(t->x, t->w), NO_ATTRS);
  t->z = build_op(&b, OP_relu, IN(t->y), NO_ATTRS);
  t->w1 = build_op(&b, OP_sgd, IN(t->w, t->dw, t->lr, t->lr), NO_ATTRS);
  value_set_name(t->y, "y");
  value_set_name(t->z, "z");
  value_set_name(t->w1, "w1");
  graph_output(t->g, t->z, "z");
  graph_update(t->g, t->w, t->w1);
  *state = t;
  return 0;
}

static int tear_down(void **state) {
  Net *t = *state;
  module_free(t->m);
  heard_free(t->h);
  free(t);
  return 0;
}

static void passes(Net *t) {
  bool ok = module_verify(t->m, t->h->d);
  if (!ok) heard(t->h, "nothing");
  assert_true(ok);
}

static void fails(Net *t, const char *text) {
  assert_false(module_verify(t->m, t->h->d));
  assert_true(heard(t->h, text));
}

static void reading_before_defining(void **state) {
  Net *t = *state;
  passes(t);
  op_move_before(t->z->def, t->g->first);
  fails(t, "relu: '%y' is read before it is defined");
}

static void a_gradient_read_in_the_forward_part(void **state) {
  Net *t = *state;
  t->y->def->part = t->z->def->part = PART_backward;
  passes(t);
  t->z->def->part = PART_forward;
  fails(t, "relu: is part of forward and reads '%y', which is part of backward");
}

static void turns_that_are_out_of_order(void **state) {
  Net *t = *state;
  t->y->def->order = 1;
  t->z->def->order = 3;
  passes(t);
  t->y->def->order = 4;
  fails(t, "relu: has order 3 and follows a later one");
}

static void a_use_that_is_not_listed(void **state) {
  Net *t = *state;
  t->y->uses = NULL;
  fails(t, "not among its value's uses");
}

static void a_list_with_a_use_of_no_operand(void **state) {
  Net *t = *state;
  Use more = {.value = t->y, .user = t->z->def, .next = t->y->uses};
  t->y->uses = t->y->uses->prev = &more;
  fails(t, "a value has 1 uses and lists 2");
}

static void a_use_that_replaces_another(void **state) {
  Net *t = *state;
  // As many uses as operands, but the one listed is not the operand.
  Use other = *t->y->uses;
  t->y->uses = &other;
  fails(t, "not among its value's uses");
}

static void a_use_with_a_wrong_link(void **state) {
  Net *t = *state;
  t->y->uses->prev = t->y->uses;
  fails(t, "the list of uses of a value is broken");
}

static void two_ids_alike(void **state) {
  Net *t = *state;
  t->z->id = t->y->id;
  fails(t, "two values have the id");
}

static void a_name_set_behind_the_back_of_the_table(void **state) {
  Net *t = *state;
  t->z->name = "y";
  fails(t, "two values are named '%y'");
}

static void two_names_exchanged_behind_the_back_of_the_table(void **state) {
  Net *t = *state;
  const char *name = t->z->name;
  passes(t);
  t->z->name = t->y->name;
  t->y->name = name;
  fails(t, "two values are named");
}

static void a_type_the_row_does_not_give(void **state) {
  Net *t = *state;
  t->z->type = t->x->type;
  fails(t, "relu: '%z' is f32[4,8], its op makes f32[4,6]");
}

static void a_weight_without_contents(void **state) {
  Net *t = *state;
  t->w->init = NULL;
  fails(t, "'%w' has no initial contents");
}

static void contents_of_another_size(void **state) {
  Net *t = *state;
  const Init bytes = {.kind = INIT_bytes, .dtype = DT_f32, .bytes = "abc", .length = 4};
  t->w->init = &bytes;
  fails(t, "'%w' has 4 bytes of initial contents, needs 192"); // 8 * 6 * 4
}

static void an_input_that_is_trained(void **state) {
  Net *t = *state;
  t->x->train = true;
  fails(t, "'%x' is no weight and cannot be trained");
}

// Adds a copy of %w in 16 bits, updated like %w.
static Value *add_copy(Net *t, const char *name) {
  t->w->label = "fc.w";
  Value *copy =
      graph_param(t->g, name, type_new(t->m, DT_bf16, 2, (int64_t[]){8, 6}), ROLE_copy, NULL);
  copy->label = "fc.w";
  Builder b = {.g = t->g, .d = t->h->d};
  graph_update(t->g, copy, build_op(&b, OP_cast, IN(t->w1), ATTRS(a_t("to", DT_bf16))));
  return copy;
}

static void a_copy_of_no_weight(void **state) {
  Net *t = *state;
  Value *copy = add_copy(t, "c");
  passes(t);
  copy->label = "fc.v";
  fails(t, "'%c' is a copy of no weight: none has the label 'fc.v'");
}

static void a_copy_of_another_shape(void **state) {
  Net *t = *state;
  add_copy(t, "c")->type = type_new(t->m, DT_bf16, 2, (int64_t[]){6, 8});
  fails(t, "'%c' is bf16[6,8], no copy in 16 bits of '%w', which is f32[8,6]");
}

static void a_second_copy(void **state) {
  Net *t = *state;
  add_copy(t, "c");
  add_copy(t, "c2");
  fails(t, "'%c2' is the second copy of '%w'");
}

static void a_copy_that_is_not_renewed(void **state) {
  Net *t = *state;
  add_copy(t, "c");
  graph_erase_result(t->g, 2);
  fails(t, "of '%w' and its copy '%c' one is updated and the other is not");
}

static void two_outputs_of_one_name(void **state) {
  Net *t = *state;
  graph_output(t->g, t->y, "z");
  fails(t, "two outputs of '@train' are called 'z'");
}

static void two_updates_of_one_weight(void **state) {
  Net *t = *state;
  graph_update(t->g, t->w, t->w);
  fails(t, "'%w' is updated twice");
}

static void an_update_of_another_type(void **state) {
  Net *t = *state;
  graph_set_result(t->g, 1, t->z);
  fails(t, "'%w' is f32[8,6] and updated with f32[4,6]");
}

// A graph that returns its parameter, and a call of it.
static Graph *called(Net *t) {
  Graph *body = graph_new(t->m, "body", false);
  Value *p = graph_param(body, "p", t->y->type, ROLE_none, NULL);
  graph_output(body, p, NULL);
  op_new_call(t->g, NULL, OP_call, body, IN(t->y), (Origin){0}, t->h->d);
  passes(t);
  return body;
}

static void a_body_that_loses_a_result(void **state) {
  Net *t = *state;
  Graph *body = called(t);
  graph_erase_result(body, 0);
  fails(t, "call: '@body' has 0 results, not 1");
}

// After a pass that changes one entry graph the other one is not verified; after any other change
// all graphs are.
static void graphs_that_no_pass_has_changed(void **state) {
  Net *t = *state;
  Arena *a = t->m->arena;
  Graph *body = called(t), *eval = graph_new(t->m, "eval", true);
  Value *x = graph_param(eval, "x", t->x->type, ROLE_input, NULL);
  Builder b = {.g = eval, .d = t->h->d};
  graph_output(eval, build_op(&b, OP_relu, IN(x), NO_ATTRS), "z");
  passes(t);
  ModuleStamp before, now;
  assert_true(module_stamp(t->m, a, &before) && module_stamp(t->m, a, &now));
  assert_true(stamp_same(&before, &now));
  // Graph 0 is @train, which changes and breaks a promise.
  const Type *type = t->z->type;
  t->z->type = type_scalar(t->m, DT_f32);
  module_stamp(t->m, a, &now);
  const bool *kept = stamp_kept_graphs(&before, &now, a);
  assert_true(!stamp_same(&before, &now) && kept && !kept[0] && kept[1] && kept[2]);
  assert_false(module_verify_except(t->m, kept, t->h->d));
  assert_true(heard(t->h, "its op makes"));
  t->z->type = type;
  module_stamp(t->m, a, &now);
  assert_true(stamp_same(&before, &now));
  // A body that changes, or becomes an entry, may break a promise of its callers.
  body->params[0]->label = "p";
  module_stamp(t->m, a, &now);
  assert_null(stamp_kept_graphs(&before, &now, a));
  body->params[0]->label = NULL;
  body->entry = true;
  module_stamp(t->m, a, &now);
  assert_null(stamp_kept_graphs(&before, &now, a));
  body->entry = false;
  // So may another phase.
  t->m->phase = PHASE_sharded;
  module_stamp(t->m, a, &now);
  assert_null(stamp_kept_graphs(&before, &now, a));
}

static void a_graph_that_calls_itself(void **state) {
  Net *t = *state;
  Graph *body = called(t);
  op_new_call(body, NULL, OP_call, body, IN(body->params[0]), (Origin){0}, t->h->d);
  fails(t, "'@body' calls itself");
}

// Calls a graph that calls the next one `times` times, and so on, through n graphs.
static void call_chain(Net *t, int n, int times) {
  Graph *next = NULL;
  for (int i = 0; i < n; i++) {
    Graph *body = graph_new(t->m, str_format(t->m->arena, "f%d", i), false);
    Value *v = graph_param(body, "p", t->y->type, ROLE_none, NULL);
    for (int k = 0; next && k < times; k++)
      v = op_new_call(body, NULL, OP_call, next, IN(v), (Origin){0}, t->h->d)->out[0];
    graph_output(body, v, NULL);
    next = body;
  }
  op_new_call(t->g, NULL, OP_call, next, IN(t->y), (Origin){0}, t->h->d);
}

// A graph is verified once, not once per call path: here 2^40 of them.
static void graphs_that_call_the_next_twice(void **state) {
  Net *t = *state;
  call_chain(t, 40, 2);
  passes(t);
}

static void calls_that_nest_too_deep(void **state) {
  Net *t = *state;
  call_chain(t, 64, 1);
  fails(t, "calls nest deeper than 64: '@f0'");
}

// Adds a mesh with `axis` on devices from 0 on.
static Mesh *mesh_of(Net *t, const char *name, MeshAxis axis) {
  Mesh *mesh = arena_one(t->m->arena, Mesh);
  *mesh = (Mesh){.name = name, .n_axes = 1, .axis = {axis}};
  mesh->n_devices = axis.time ? 1 : axis.size;
  mesh->device = arena_array(t->m->arena, int, mesh->n_devices);
  for (int i = 0; i < mesh->n_devices; i++)
    mesh->device[i] = i;
  return mesh;
}

static const Layout *everywhere(Net *t) {
  return layout_broadcast(t->m, t->m->meshes);
}

static const Layout *laid(Net *t, Sbp sbp) {
  return layout_new(t->m, t->m->meshes, &sbp);
}

// Splits x by rows over two positions of the axis: y and z are split; the weight's gradient is not
// checked here.
static void shard_along(Net *t, MeshAxis axis) {
  module_add_mesh(t->m, mesh_of(t, "m", axis));
  t->m->phase = PHASE_sharded;
  const Layout *rows = laid(t, (Sbp){SBP_S, 0});
  for (int i = 0; i < t->g->n_params; i++)
    t->g->params[i]->layout = everywhere(t);
  t->x->layout = t->y->layout = t->z->layout = rows;
  t->w1->layout = everywhere(t);
  t->y->def->split[0] = t->z->def->split[0] = '0';
}

static void shard(Net *t) {
  shard_along(t, (MeshAxis){"dp", 2, false});
}

static void a_layout_of_no_mesh_of_the_module(void **state) {
  Net *t = *state;
  shard(t);
  passes(t);
  t->w->layout = layout_broadcast(t->m, mesh_of(t, "other", (MeshAxis){"dp", 2, false}));
  fails(t, "'%w' has a layout that is not of a mesh of the module: {B}");
}

static void an_operand_on_another_mesh(void **state) {
  Net *t = *state;
  shard(t);
  module_add_mesh(t->m, mesh_of(t, "other", (MeshAxis){"dp", 2, false}));
  t->w->layout = layout_broadcast(t->m, t->m->meshes->next);
  graph_erase_result(t->g, 1); // the update, on w's old mesh
  passes(t);                   // comm has not run yet
  t->m->phase = PHASE_local;
  fails(t, "linear: runs on '@m', and operand 1 is on '@other'");
}

static void meshes_that_cut_time_in_different_numbers(void **state) {
  Net *t = *state;
  module_add_mesh(t->m, mesh_of(t, "m", (MeshAxis){"acc", 2, true}));
  module_add_mesh(t->m, mesh_of(t, "n", (MeshAxis){"dp", 2, false}));
  module_add_mesh(t->m, mesh_of(t, "o", (MeshAxis){"mb", 2, true}));
  passes(t);
  t->m->meshes->next->next->axis[0].size = 3;
  fails(t, "time has 3 slices along 'mb' of '@o', and 2 along 'acc' before");
}

static void a_mesh_with_two_axes_of_time(void **state) {
  Net *t = *state;
  Mesh *mesh = mesh_of(t, "m", (MeshAxis){"acc", 2, true});
  module_add_mesh(t->m, mesh);
  mesh->axis[mesh->n_axes++] = (MeshAxis){"mb", 2, true};
  fails(t, "'@m' has two axes of time: one is enough");
  mesh->axis[1] = (MeshAxis){"acc", 1, false};
  fails(t, "two axes of '@m' are called 'acc'");
}

static void a_mesh_whose_devices_do_not_fit(void **state) {
  Net *t = *state;
  Mesh *mesh = mesh_of(t, "m", (MeshAxis){"dp", 2, false});
  module_add_mesh(t->m, mesh);
  mesh->axis[0].size = 3;
  fails(t, "the axes of '@m' need 3 devices, and it has 2");
  mesh->axis[0].size = 2;
  mesh->device[1] = 0;
  fails(t, "'@m' names device 0 twice");
}

static void two_meshes_of_one_name(void **state) {
  Net *t = *state;
  module_add_mesh(t->m, mesh_of(t, "m", (MeshAxis){"dp", 2, false}));
  Mesh *other = mesh_of(t, "n", (MeshAxis){"dp", 2, false});
  module_add_mesh(t->m, other);
  other->name = "m";
  fails(t, "two meshes are named '@m'");
}

static void a_layout_before_the_module_is_sharded(void **state) {
  Net *t = *state;
  t->z->layout = everywhere(t);
  fails(t, "'%z' has a layout before the module is sharded");
}

static void a_split_that_the_layouts_do_not_show(void **state) {
  Net *t = *state;
  shard(t);
  passes(t);
  t->z->def->split[0] = '1';
  fails(t, "'%z' has not the layout of its op's result: {S(0)}");
}

static void a_partial_sum_through_what_is_not_linear(void **state) {
  Net *t = *state;
  shard(t);
  t->z->def->split[0] = '+';
  fails(t, "relu: cannot pass partial sums on");
}

// Makes %y a partial sum, and its reader, too.
static void sum_parts(Net *t) {
  shard(t);
  t->y->def->split[0] = 'k';
  t->y->layout = laid(t, (Sbp){SBP_P, 0});
  t->x->layout = laid(t, (Sbp){SBP_S, 1});
}

static void a_partial_sum_and_a_whole_value_added(void **state) {
  Net *t = *state;
  sum_parts(t);
  Builder b = {.g = t->g, .d = t->h->d};
  Value *whole = build_op(&b, OP_sgd, IN(t->w, t->dw, t->lr, t->lr), NO_ATTRS);
  Value *product = build_op(&b, OP_linear, IN(t->x, whole), NO_ATTRS);
  Value *sum = build_op(&b, OP_add, IN(t->y, product), NO_ATTRS);
  whole->layout = product->layout = everywhere(t);
  sum->layout = t->y->layout;
  sum->def->split[0] = '+';
  fails(t, "add: 1 of 2 operands are partial sums along dp");
}

static void a_product_of_two_partial_sums(void **state) {
  Net *t = *state;
  sum_parts(t);
  Builder b = {.g = t->g, .d = t->h->d};
  Value *product = build_op(&b, OP_mul, IN(t->y, t->y), NO_ATTRS);
  product->layout = t->y->layout;
  product->def->split[0] = '+';
  fails(t, "mul: 2 of 2 operands are partial sums along dp");
}

static void a_parameter_that_is_a_partial_sum(void **state) {
  Net *t = *state;
  shard(t);
  t->x->layout = laid(t, (Sbp){SBP_P, 0});
  fails(t, "'%x' is a parameter, and a partial sum: {P}");
}

static void a_weight_that_is_cut_along_time(void **state) {
  Net *t = *state;
  shard_along(t, (MeshAxis){"acc", 2, true});
  t->w->layout = t->x->layout;
  fails(t, "'%w' is persistent, and is split along time: {S(0)}");
}

static void a_partial_sum_of_integers_scaled(void **state) {
  Net *t = *state;
  sum_parts(t);
  Builder b = {.g = t->g, .d = t->h->d};
  Value *i = build_cast(&b, t->y, DT_i64), *half = build_scale(&b, i, 0.5);
  i->layout = everywhere(t);
  half->layout = t->y->layout;
  half->def->split[0] = '+';
  fails(t, "scale: cannot pass partial sums on");
}

static Value *local_fill(Net *t, Sbp sbp) {
  shard(t);
  t->m->phase = PHASE_local;
  Builder b = {.g = t->g, .d = t->h->d};
  Value *v = build_fill(&b, DT_f32, 1, (int64_t[]){64}, 1);
  value_set_name(v, "f");
  v->layout = laid(t, sbp);
  return v;
}

static void a_fill_that_is_a_partial_sum(void **state) {
  Net *t = *state;
  local_fill(t, (Sbp){SBP_S, 0});
  passes(t);
  tear_down(state);
  set_up(state);
  t = *state;
  local_fill(t, (Sbp){SBP_P, 0});
  fails(t, "'%f' is a fill, and a partial sum: {P}");
}

static void a_bucket_that_lies_otherwise_than_its_members(void **state) {
  Net *t = *state;
  Value *f = local_fill(t, (Sbp){SBP_S, 0});
  Builder b = {.g = t->g, .d = t->h->d};
  Value *bucket = build_op(&b, OP_pack, IN(f), NO_ATTRS);
  bucket->layout = f->layout;
  passes(t);
  bucket->layout = everywhere(t);
  fails(t, "'%f' has not the layout of the bucket that it is packed into: {S(0)}");
  bucket->layout = f->layout;
  value_set_name(bucket, "b");
  Value *back = build_op(&b, OP_unpack, IN(bucket), ATTRS(a_list("shape", (int64_t[]){64}, 1)));
  back->layout = everywhere(t);
  fails(t, "'%b' has not the layout of the gradient unpacked from it: {S(0)}");
}

static void a_collective_whose_result_lies_otherwise(void **state) {
  Net *t = *state;
  Value *f = local_fill(t, (Sbp){SBP_S, 0});
  Builder b = {.g = t->g, .d = t->h->d};
  Value *all = build_op(&b, OP_all_gather, IN(f), ATTRS(a_s("axis", "dp")));
  value_set_name(all, "all");
  all->layout = everywhere(t);
  passes(t);
  all->layout = f->layout;
  fails(t, "'%all' has not the layout of its collective's result: {S(0)}");
}

static void a_dimension_that_cannot_be_cut(void **state) {
  Net *t = *state;
  shard(t);
  Value *odd = param(t, "odd", 1, (int64_t[]){3}, ROLE_input);
  odd->layout = t->x->layout;
  fails(t, "'%odd' has a dimension that its layout cannot split: {S(0)}");
}

static void an_operand_that_lies_otherwise_than_wanted(void **state) {
  Net *t = *state;
  shard(t);
  t->m->phase = PHASE_local; // as after a comm without effect: the types are local already
  passes(t);
  t->z->def->split[0] = 0;
  t->z->layout = everywhere(t);
  fails(t, "relu: operand 0 is S(0) along 'dp', and must be B");
}

static void an_output_that_is_a_partial_sum(void **state) {
  Net *t = *state;
  shard(t);
  t->y->def->split[0] = 'k';
  t->y->layout = laid(t, (Sbp){SBP_P, 0});
  t->x->layout = laid(t, (Sbp){SBP_S, 1});
  t->w->layout = t->w1->layout = laid(t, (Sbp){SBP_S, 0});
  t->dw->layout = t->w->layout;
  t->w1->def->split[0] = '0';
  t->z->def->split[0] = 0;
  t->z->layout = everywhere(t);
  t->m->phase = PHASE_local;
  graph_set_result(t->g, 0, t->y);
  op_erase(t->z->def);
  fails(t, "'%y' is a result, and a partial sum: {P}");
}

// Accumulates the weight's gradient along the axis that splits the rows.
static Op *add_up_along(Net *t, MeshAxis along, const char *axis) {
  shard_along(t, along);
  t->m->phase = PHASE_local;
  Builder b = {.g = t->g, .d = t->h->d};
  Value *sum = build_op(&b, OP_linear_back_w_accumulate, IN(t->x, t->y), ATTRS(a_s("axis", axis)));
  sum->layout = everywhere(t);
  sum->def->split[0] = '0';
  return sum->def;
}

// Two micro-batches instead of two devices.
static Op *add_up(Net *t, const char *axis) {
  return add_up_along(t, (MeshAxis){"acc", 2, true}, axis);
}

static void a_sum_over_time_that_is_a_part(void **state) {
  Net *t = *state;
  Op *op = add_up(t, "acc");
  passes(t);
  op->out[0]->layout = laid(t, (Sbp){SBP_P, 0});
  fails(t, "has not the layout of its op's result: {P}");
}

static void a_sum_over_time_of_what_is_in_no_slice(void **state) {
  Net *t = *state;
  Op *op = add_up(t, "acc");
  op->split[0] = 0;
  fails(t, "linear_back_w_accumulate: a slice of 'acc' has no part of the sum");
  op->split[0] = 'n';
  fails(t, "linear_back_w_accumulate: a slice of 'acc' has no part of the sum");
}

static void a_sum_over_an_axis_that_is_not_there(void **state) {
  Net *t = *state;
  add_up(t, "ac");
  fails(t, "linear_back_w_accumulate: the mesh has no axis 'ac'");
}

static void a_sum_over_time_along_devices(void **state) {
  Net *t = *state;
  add_up_along(t, (MeshAxis){"dp", 2, false}, "dp");
  fails(t, "linear_back_w_accumulate: axis 'dp' is not bound to time");
}

static void a_sum_over_time_before_the_module_is_local(void **state) {
  Net *t = *state;
  add_up(t, "acc");
  t->m->phase = PHASE_sharded;
  fails(t, "linear_back_w_accumulate: is here before the module is local");
}

// -- Moves -------------------------------------------------------------------------------------

// Verifies a move of %x with layout `from` between two meshes.
static void check_move(const char *from, const char *move, const char *wrong) {
  Arena *a = arena_new();
  Heard *h = heard_new();
  const char *text = str_format(a,
                                "module phase=local\n"
                                "mesh @m devices=0-3 (dp=2, tp=2)\n"
                                "mesh @n devices=3,5 (acc=2:time, dp=2)\n"
                                "mesh @o devices=0-1 (dp=2, mb=2:time)\n"
                                "graph @main entry (%%x: %s input \"x\") {\n"
                                "  %%y = move %%x %s\n"
                                "  return output \"x\" %%x, output \"y\" %%y\n}\n",
                                from, move);
  Module *m = module_parse("move.nn", text, strlen(text), h->d);
  bool ok = m && module_verify(m, h->d);
  if (wrong)
    assert_true(!ok && heard(h, wrong));
  else
    assert_true(ok || heard(h, "nothing"));
  module_free(m);
  heard_free(h);
  arena_free(a);
}

static void moves_between_meshes(void **state) {
  (void)state;
  check_move("f32[4,6] {S(0), B}", "shape=[2,6] : f32[2,6] {S(0), S(0)}", NULL);
  check_move("f32[4,6] {S(0), B}", "shape=[8,3] : f32[8,3] @n {B, S(1)}", NULL);
  check_move("f32[4] @n {S(0), B}", "shape=[2] : f32[2] @n {S(0), S(0)}", NULL);
  check_move("f32[4] @n {S(0), B}", "shape=[4] : f32[4] @o {B, S(0)}", NULL);
  check_move("f32[4,6] {S(0), B}", "shape=[4,6] : f32[4,6] @n {B, B}",
             "move: dimension 0 is 8 before and 4 after, as a whole");
  check_move("f32[4,6] {S(0), B}", "shape=[8] : f32[8] @n {B, B}",
             "move: the shape has 1 dimensions, the operand 2");
  check_move("f32[4611686018427387904] {S(0), B}",
             "shape=[4611686018427387904] : "
             "f32[4611686018427387904] {B, S(0)}",
             "overflow");
}

// A value is moved in the slice that produces it.
static void moves_that_change_what_a_slice_has(void **state) {
  (void)state;
  const char *wrong = "move: a slice of time has other parts before than after: ";
  check_move("f32[4] @n {S(0), S(0)}", "shape=[4] : f32[4] @o {S(0), S(0)}", wrong);
  check_move("f32[4] @n {S(0), B}", "shape=[4] : f32[4] {S(0), B}", wrong);
  check_move("f32[4] {B, B}", "shape=[2] : f32[2] @n {S(0), B}", wrong);
}

static void a_move_before_the_module_is_local(void **state) {
  Net *t = *state;
  Builder b = {.g = t->g, .d = t->h->d};
  build_op(&b, OP_move, IN(t->y), ATTRS(a_list("shape", t->y->type->dim, 2)));
  fails(t, "move: is here before the module is local");
}

// x 0, w and w1 128, lr 320, y and z 384, dw 512; 4*8*4 = 128 bytes, 8*6*4 = 192, 4*6*4 = 96.
static void plan(Net *t) {
  for (int i = 0; i < t->g->n_params; i++)
    t->g->params[i]->layout = everywhere(t);
  t->y->layout = t->z->layout = t->w1->layout = everywhere(t);
  t->m->phase = PHASE_planned;
  t->m->slab_bytes = 704;
  t->x->offset = 0;
  t->w->offset = t->w1->offset = 128;
  t->lr->offset = 320;
  t->y->offset = t->z->offset = 384;
  t->dw->offset = 512;
}

static void a_value_outside_the_slab(void **state) {
  Net *t = *state;
  plan(t);
  passes(t);
  t->m->slab_bytes = 640;
  fails(t, "'%dw' at 512 is not in the slab");
}

static void a_place_that_is_not_aligned(void **state) {
  Net *t = *state;
  plan(t);
  t->lr->offset = 324;
  fails(t, "'%lr' at 324 is not aligned");
}

static void an_overlap_of_two_alive(void **state) {
  Net *t = *state;
  plan(t);
  t->z->offset = 0; // x is dead after y
  passes(t);
  t->y->offset = 0; // while linear reads x
  t->z->offset = 384;
  fails(t, "overlap while both are alive");
}

static void a_weight_overwritten_before_its_last_read(void **state) {
  Net *t = *state;
  Builder b = {.g = t->g, .d = t->h->d};
  Value *step = build_op(&b, OP_sub, IN(t->w1, t->w), NO_ATTRS); // w1 is in w's memory
  plan(t);
  step->layout = t->w->layout;
  step->offset = 512; // dw is dead
  fails(t, "'%w' at 128 and '%w1' at 128 overlap while both are alive");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

TEST_GROUP(verify) {
  const struct CMUnitTest tests[] = {
      TEST(reading_before_defining),
      TEST(a_gradient_read_in_the_forward_part),
      TEST(turns_that_are_out_of_order),
      TEST(a_use_that_is_not_listed),
      TEST(a_list_with_a_use_of_no_operand),
      TEST(a_use_that_replaces_another),
      TEST(a_use_with_a_wrong_link),
      TEST(two_ids_alike),
      TEST(a_name_set_behind_the_back_of_the_table),
      TEST(two_names_exchanged_behind_the_back_of_the_table),
      TEST(a_type_the_row_does_not_give),
      TEST(a_weight_without_contents),
      TEST(contents_of_another_size),
      TEST(an_input_that_is_trained),
      TEST(a_copy_of_no_weight),
      TEST(a_copy_of_another_shape),
      TEST(a_second_copy),
      TEST(a_copy_that_is_not_renewed),
      TEST(two_outputs_of_one_name),
      TEST(two_updates_of_one_weight),
      TEST(an_update_of_another_type),
      TEST(a_body_that_loses_a_result),
      TEST(graphs_that_no_pass_has_changed),
      TEST(a_graph_that_calls_itself),
      TEST(graphs_that_call_the_next_twice),
      TEST(calls_that_nest_too_deep),
      TEST(a_layout_of_no_mesh_of_the_module),
      TEST(an_operand_on_another_mesh),
      TEST(meshes_that_cut_time_in_different_numbers),
      TEST(a_mesh_with_two_axes_of_time),
      TEST(a_mesh_whose_devices_do_not_fit),
      TEST(two_meshes_of_one_name),
      TEST(a_layout_before_the_module_is_sharded),
      TEST(a_split_that_the_layouts_do_not_show),
      TEST(a_partial_sum_through_what_is_not_linear),
      TEST(a_partial_sum_and_a_whole_value_added),
      TEST(a_product_of_two_partial_sums),
      TEST(a_parameter_that_is_a_partial_sum),
      TEST(a_weight_that_is_cut_along_time),
      TEST(a_partial_sum_of_integers_scaled),
      TEST(a_fill_that_is_a_partial_sum),
      TEST(a_bucket_that_lies_otherwise_than_its_members),
      TEST(a_collective_whose_result_lies_otherwise),
      TEST(a_dimension_that_cannot_be_cut),
      TEST(an_operand_that_lies_otherwise_than_wanted),
      TEST(an_output_that_is_a_partial_sum),
      TEST(a_sum_over_time_that_is_a_part),
      TEST(a_sum_over_time_of_what_is_in_no_slice),
      TEST(a_sum_over_an_axis_that_is_not_there),
      TEST(a_sum_over_time_along_devices),
      TEST(a_sum_over_time_before_the_module_is_local),
      cmocka_unit_test(moves_between_meshes),
      cmocka_unit_test(moves_that_change_what_a_slice_has),
      TEST(a_move_before_the_module_is_local),
      TEST(a_value_outside_the_slab),
      TEST(a_place_that_is_not_aligned),
      TEST(an_overlap_of_two_alive),
      TEST(a_weight_overwritten_before_its_last_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
