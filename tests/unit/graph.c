// Building, changing and copying graphs.

#include "unit.h"

#include "base/table.h"
#include "ir/build.h"
#include "ir/op.h"

// %x, %w -> %y = linear, %z = relu; output "z".
typedef struct Mlp {
  Heard *h;
  Module *m;
  Graph *g;
  Value *x, *w, *y, *z;
  Builder b;
} Mlp;

static Value *param(Graph *g, const char *name, int ndim, const int64_t *dim, Role role) {
  return graph_param(g, name, type_new(g->module, DT_f32, ndim, dim), role, NULL);
}

static int set_up(void **state) {
  Mlp *t = calloc(1, sizeof *t);
  t->h = heard_new();
  t->m = module_new();
  t->g = graph_new(t->m, "main", true);
  t->x = param(t->g, "x", 2, (int64_t[]){4, 8}, ROLE_input);
  t->w = param(t->g, "w", 2, (int64_t[]){8, 6}, ROLE_weight);
  t->b = (Builder){.g = t->g, .d = t->h->d};
  t->w->init = init_fill(t->m, (DType)0, 0);
  t->w->label = "fc.w";
  t->y = build_op(&t->b, OP_linear, IN(t->x, t->w), NO_ATTRS);
  t->z = build_op(&t->b, OP_relu, IN(t->y), NO_ATTRS);
  value_set_name(t->y, "y");
  graph_output(t->g, t->z, "z");
  graph_update(t->g, t->w, t->w);
  *state = t;
  return 0;
}

static int tear_down(void **state) {
  Mlp *t = *state;
  bool ok = module_verify(t->m, t->h->d);
  if (!ok) heard(t->h, "a module that verifies");
  module_free(t->m);
  heard_free(t->h);
  free(t);
  return ok ? 0 : -1;
}

static int n_uses(const Value *v) {
  int n = 0;
  for_each_use(u, v)
    n++;
  return n;
}

static void types_and_layouts_are_interned(void **state) {
  Mlp *t = *state;
  assert_ptr_equal(t->x->type, type_new(t->m, DT_f32, 2, (int64_t[]){4, 8}));
  assert_ptr_not_equal(t->x->type, type_new(t->m, DT_f64, 2, (int64_t[]){4, 8}));
  assert_ptr_not_equal(t->x->type, type_new(t->m, DT_f32, 3, (int64_t[]){4, 8, 1}));
  Sbp split[] = {{SBP_S, 1}, {SBP_P, 7}}, same[] = {{SBP_S, 1}, {SBP_P, 0}};
  static int devices[] = {0, 1, 2, 3};
  Mesh *m = arena_one(t->m->arena, Mesh), *n = arena_one(t->m->arena, Mesh);
  *m = (Mesh){.name = "m", .n_axes = 2, .axis = {{"dp", 2, false}, {"tp", 2, false}}};
  m->n_devices = 4;
  m->device = devices;
  *n = *m;
  n->name = "n";
  module_add_mesh(t->m, m);
  module_add_mesh(t->m, n);
  assert_ptr_equal(layout_new(t->m, m, split), layout_new(t->m, m, same));
  assert_ptr_not_equal(layout_new(t->m, m, split), layout_new(t->m, n, split));
  assert_string_equal(layout_text(t->m->arena, layout_new(t->m, m, split)), "{S(1), P}");
  assert_string_equal(layout_text(t->m->arena, layout_new(t->m, n, split)), "@n {S(1), P}");
  assert_string_equal(type_text(t->m->arena, t->x->type), "f32[4,8]");
  assert_string_equal(type_text(t->m->arena, type_scalar(t->m, DT_i64)), "i64[]");
  assert_int_equal(type_bytes(t->x->type), 4 * 8 * 4);
}

static void a_type_whose_size_overflows_is_none(void **state) {
  (void)state;
  assert_true(type_fits(DT_f32, 2, (int64_t[]){1 << 20, 1 << 20}));
  assert_false(type_fits(DT_f32, 2, (int64_t[]){INT64_MAX / 4, 2}));
  assert_false(type_fits(DT_f32, 3, (int64_t[]){0, INT64_MAX / 4, 2}));
  assert_false(type_fits(DT_f32, 1, (int64_t[]){-1}));
}

static void names_are_unique_and_found(void **state) {
  Mlp *t = *state;
  value_set_name(t->z, "y");
  assert_string_equal(t->z->name, "y.1");
  assert_ptr_equal(graph_find_value(t->g, "y.1"), t->z);
  value_set_name(t->y, "other"); // "y" is free again
  assert_null(graph_find_value(t->g, "y"));
  value_set_name(t->z, "y");
  assert_ptr_equal(graph_find_value(t->g, "y"), t->z);
  value_set_name(t->z, "12"); // ambiguous with an unnamed value
  assert_string_equal(t->z->name, "v12");
  value_set_name(t->z, NULL);
  assert_ptr_equal(graph_find_value(t->g, str_format(t->m->arena, "%%%u", t->z->id)), t->z);
}

static void thousands_of_names_survive_growing_and_erasing(void **state) {
  Mlp *t = *state;
  char name[32];
  for (int i = 0; i < 5000; i++) {
    Value *v = build_op(&t->b, OP_neg, IN(t->x), NO_ATTRS);
    snprintf(name, sizeof name, "n%d", i);
    value_set_name(v, name);
    if (i % 3 == 0) op_erase(v->def);
  }
  for (int i = 0; i < 5000; i++) {
    snprintf(name, sizeof name, "n%d", i);
    assert_int_equal(graph_find_value(t->g, name) != NULL, i % 3 != 0);
  }
}

static void replacing_a_value_moves_every_use(void **state) {
  Mlp *t = *state;
  Value *n = build_op(&t->b, OP_neg, IN(t->y), NO_ATTRS);
  value_replace(t->z, n); // the output
  assert_false(value_used(t->z));
  assert_ptr_equal(graph_find_output(t->g, "z")->use.value, n);
  op_set_in(n->def, 0, t->z);
  assert_int_equal(n_uses(t->y), 1);
  assert_ptr_equal(t->y->uses->user, t->z->def);
  assert_ptr_equal(t->z->uses->user, n->def);
}

static void an_erased_op_is_out_of_list_and_uses(void **state) {
  Mlp *t = *state;
  Value *a = build_op(&t->b, OP_neg, IN(t->x), NO_ATTRS);
  Value *b = build_op(&t->b, OP_add, IN(a, a), NO_ATTRS);
  assert_int_equal(n_uses(a), 2);
  op_erase(b->def);
  assert_int_equal(n_uses(a), 0);
  op_erase(a->def);
  assert_ptr_equal(t->g->last, t->z->def);
  assert_int_equal(n_uses(t->x), 1);
}

static void an_op_moves_to_the_front_and_to_the_end(void **state) {
  Mlp *t = *state;
  Value *a = build_op(&t->b, OP_neg, IN(t->x), NO_ATTRS);
  op_move_before(a->def, t->g->first);
  assert_ptr_equal(t->g->first, a->def);
  assert_ptr_equal(a->def->next, t->y->def);
  op_move_before(a->def, NULL);
  assert_ptr_equal(t->g->last, a->def);
  assert_ptr_equal(t->g->first, t->y->def);
}

static void results_and_parameters_close_ranks_when_one_goes(void **state) {
  Mlp *t = *state;
  Value *spare = param(t->g, "spare", 0, NULL, ROLE_scalar);
  Value *last = param(t->g, "last", 0, NULL, ROLE_scalar);
  graph_erase_param(t->g, spare->index);
  assert_int_equal(last->index, 2);
  assert_null(graph_find_value(t->g, "spare"));
  graph_erase_result(t->g, 0);
  assert_int_equal(t->g->n_results, 1);
  assert_int_equal(t->g->results[0]->use.index, 0);
  assert_ptr_equal(t->g->results[0]->target, t->w);
  assert_false(value_used(t->z));
}

static bool is_output(const Result *r) {
  return r->label != NULL;
}

static void results_go_together_and_the_others_close_ranks(void **state) {
  Mlp *t = *state;
  graph_output(t->g, t->y, "y");
  graph_output(t->g, t->x, "x");
  graph_erase_results(t->g, is_output);
  assert_int_equal(t->g->n_results, 1);
  assert_ptr_equal(t->g->results[0]->target, t->w);
  assert_int_equal(t->g->results[0]->use.index, 0);
  assert_int_equal(n_uses(t->y), 1);
  graph_output(t->g, t->z, "z");
  graph_output(t->g, t->y, "y");
  assert_int_equal(t->g->n_results, 3);
}

static void labels_find_the_parameter_of_their_role(void **state) {
  Mlp *t = *state;
  Arena *a = arena_new();
  Table *params = graph_params_by_label(t->g, a);
  assert_ptr_equal(table_find(params, ROLE_weight, "fc.w"), t->w);
  assert_null(table_find(params, ROLE_state, "fc.w"));
  arena_free(a);
}

static void ids_become_dense_in_order(void **state) {
  Mlp *t = *state;
  Value *a = build_op(&t->b, OP_neg, IN(t->x), NO_ATTRS);
  op_erase(a->def);
  Value *b = build_op(&t->b, OP_neg, IN(t->x), NO_ATTRS);
  op_move_before(b->def, t->g->first);
  graph_renumber(t->g);
  assert_int_equal(t->g->n_values, 5);
  assert_int_equal(t->g->n_ops, 3);
  assert_int_equal(b->id, 2);
  assert_int_equal(t->z->id, 4);
}

static void attributes_have_defaults_and_own_their_lists(void **state) {
  Mlp *t = *state;
  int64_t perm[] = {1, 0};
  Value *v = build_op(&t->b, OP_transpose, IN(t->x), ATTRS(a_list("perm", perm, 2)));
  perm[0] = 7;
  assert_int_equal(attr_list(v->def, "perm")[0], 1);
  assert_int_equal(attr_i(t->y->def, "trans"), 0);
  op_set_attr(t->y->def, a_b("trans", true));
  assert_int_equal(attr_i(t->y->def, "trans"), 1);
  op_set_attr(t->y->def, a_b("trans", false));
  assert_true(op_has_attr(t->y->def, "trans") && !op_has_attr(t->y->def, "perm"));
}

// A change of an op's list is none of another op's.
static void equal_lists_of_attributes_are_one(void **state) {
  Mlp *t = *state;
  int64_t perm[] = {1, 0}, same[] = {1, 0}, other[] = {0, 1};
  Value *v = build_op(&t->b, OP_transpose, IN(t->x), ATTRS(a_list("perm", perm, 2)));
  Value *w = build_op(&t->b, OP_transpose, IN(t->x), ATTRS(a_list("perm", same, 2)));
  assert_ptr_equal(v->def->attrs, w->def->attrs);
  op_set_attr(w->def, a_list("perm", other, 2));
  assert_int_equal(attr_list(v->def, "perm")[0], 1);
  assert_int_equal(attr_list(w->def, "perm")[0], 0);
  assert_false(op_same_attrs(v->def, w->def));
  op_set_attr(w->def, a_list("perm", same, 2));
  assert_ptr_equal(v->def->attrs, w->def->attrs);
  // A copy of the module has lists of its own, with the same contents.
  Module *copy = module_clone(t->g->module);
  const Op *last = copy->graphs->last;
  assert_ptr_not_equal(last->attrs, w->def->attrs);
  assert_true(op_same_attrs(last, w->def));
  module_free(copy);
}

static void retyping_follows_an_operand(void **state) {
  Mlp *t = *state;
  Value *u = param(t->g, "u", 2, (int64_t[]){16, 8}, ROLE_input);
  op_set_in(t->y->def, 0, u);
  assert_true(op_retype(t->y->def, t->h->d) && op_retype(t->z->def, t->h->d));
  assert_int_equal(t->z->type->dim[0], 16);
}

static void a_copy_in_the_module_has_names_updates_and_nothing_of_the_original(void **state) {
  Mlp *t = *state;
  Graph *copy = graph_clone(t->g, "eval");
  assert_int_equal(copy->n_params, 2);
  Value *w = graph_find_param(copy, "fc.w");
  assert_ptr_equal(copy->results[1]->target, w);
  assert_ptr_not_equal(w, t->w);
  Value *y = graph_find_value(copy, "y");
  assert_ptr_equal(y->def->in[1].value, w);
  assert_int_equal(n_uses(t->w), 2); // unchanged
}

static void a_copy_of_the_module_outlives_it(void **state) {
  Mlp *t = *state;
  Graph *body = graph_new(t->m, "body", false);
  Value *p = param(body, "p", 2, (int64_t[]){4, 6}, ROLE_none);
  Builder b = {.g = body, .d = t->h->d, .origin = {.loc = loc_node(t->m->arena, "m.onnx", "/n")}};
  graph_output(body, build_op(&b, OP_tanh, IN(p), NO_ATTRS), NULL);
  Origin origin = {.part = PART_backward, .of = 7, .piece = 2};
  Op *call = op_new_call(t->g, NULL, OP_call, body, IN(t->z), origin, t->h->d);
  assert_non_null(call);
  Module *copy = module_clone(t->m);
  module_free(t->m);
  t->m = copy;
  t->g = graph_find(copy, "main");
  Op *op = t->g->last;
  assert_int_equal(op->kind, OP_call);
  assert_ptr_equal(op->callee, graph_find(copy, "body"));
  assert_true(op->part == PART_backward && op->of == 7 && op->piece == 2);
  assert_string_equal(op->callee->first->loc->node, "/n");
  assert_string_equal(graph_find_param(t->g, "fc.w")->label, "fc.w");
}

static void builders_leave_out_what_changes_nothing(void **state) {
  Mlp *t = *state;
  const Type *ty = t->x->type;
  assert_ptr_equal(build_reshape(&t->b, t->x, 2, ty->dim), t->x);
  assert_ptr_equal(build_transpose(&t->b, t->x, (int64_t[]){0, 1}), t->x);
  assert_ptr_equal(build_broadcast(&t->b, t->x, 2, ty->dim), t->x);
  assert_ptr_equal(build_cast(&t->b, t->x, DT_f32), t->x);
  assert_ptr_equal(build_sum_to(&t->b, t->x, ty), t->x);
  Value *wide = build_broadcast(&t->b, t->x, 3, (int64_t[]){5, 4, 8});
  assert_ptr_equal(build_sum_to(&t->b, wide, ty)->type, ty);
  const Type *column = type_new(t->m, DT_f32, 2, (int64_t[]){4, 1});
  assert_ptr_equal(build_sum_to(&t->b, t->x, column)->type, column);
  assert_null(build_op(&t->b, OP_neg, IN((Value *)NULL), NO_ATTRS));
  assert_false(t->b.failed);
}

static void equal_bytes_become_a_fill(void **state) {
  Mlp *t = *state;
  const Type *ty = type_new(t->m, DT_f32, 1, (int64_t[]){3});
  assert_int_equal(build_constant(&t->b, ty, (float[]){2, 2, 2})->def->kind, OP_fill);
  assert_int_equal(build_constant(&t->b, ty, (float[]){2, 2, 3})->def->kind, OP_constant);
  const Type *big = type_new(t->m, DT_i64, 1, (int64_t[]){2}); // not representable as a double
  int64_t odd[] = {(1LL << 53) + 1, (1LL << 53) + 1};
  assert_int_equal(build_constant(&t->b, big, odd)->def->kind, OP_constant);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

TEST_GROUP(graph) {
  const struct CMUnitTest tests[] = {
      TEST(types_and_layouts_are_interned),
      TEST(a_type_whose_size_overflows_is_none),
      TEST(names_are_unique_and_found),
      TEST(thousands_of_names_survive_growing_and_erasing),
      TEST(replacing_a_value_moves_every_use),
      TEST(an_erased_op_is_out_of_list_and_uses),
      TEST(an_op_moves_to_the_front_and_to_the_end),
      TEST(results_and_parameters_close_ranks_when_one_goes),
      TEST(results_go_together_and_the_others_close_ranks),
      TEST(labels_find_the_parameter_of_their_role),
      TEST(ids_become_dense_in_order),
      TEST(attributes_have_defaults_and_own_their_lists),
      TEST(equal_lists_of_attributes_are_one),
      TEST(retyping_follows_an_operand),
      TEST(a_copy_in_the_module_has_names_updates_and_nothing_of_the_original),
      TEST(a_copy_of_the_module_outlives_it),
      TEST(builders_leave_out_what_changes_nothing),
      TEST(equal_bytes_become_a_fill),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
