// The rules of collectives: the required layout of the operand and the layout of the result, on a
// mesh of a time axis and two of devices.

#include "unit.h"

#include "ir/build.h"
#include "ir/collective.h"
#include "ir/op.h"
#include "ir/split.h"

#define B                                                                                          \
  { SBP_B, 0 }
#define P                                                                                          \
  { SBP_P, 0 }
#define S(d)                                                                                       \
  { SBP_S, d }

typedef struct Case {
  OpKind kind;
  const char *axis;
  int dim, to;      // attributes of all_to_all
  Sbp have[3];      // along mb, dp, tp
  Sbp gives[3];     // the result, if there is no error
  const char *says; // the error, or NULL
} Case;

static const Case cases[] = {
    {OP_all_reduce, "dp", 0, 0, {B, P, S(0)}, {B, B, S(0)}, NULL},
    {OP_all_reduce,
     "dp",
     0,
     0,
     {B, S(0), P},
     {{0}},
     "all_reduce: '%x' is S(0) along 'dp', and must be P"},
    {OP_all_reduce, "mb", 0, 0, {P, B, B}, {{0}}, "all_reduce: axis 'mb' is bound to time"},
    {OP_accumulate, "mb", 0, 0, {P, P, B}, {B, P, B}, NULL},
    {OP_accumulate, "dp", 0, 0, {B, P, B}, {{0}}, "accumulate: axis 'dp' is not bound to time"},
    {OP_accumulate, "mb", 0, 0, {B, P, B}, {{0}}, "'%x' is B along 'mb', and must be P"},
    {OP_take_partial, "mb", 0, 0, {P, S(0), B}, {B, S(0), B}, NULL},
    {OP_take_partial,
     "mb",
     0,
     0,
     {B, B, B},
     {{0}},
     "take_partial: '%x' is B along 'mb', and must be P"},
    {OP_take_partial, "dp", 0, 0, {B, P, B}, {{0}}, "take_partial: axis 'dp' is not bound to time"},
    {OP_as_partial, "mb", 0, 0, {B, S(0), P}, {P, S(0), P}, NULL},
    {OP_as_partial,
     "mb",
     0,
     0,
     {S(0), B, B},
     {{0}},
     "as_partial: '%x' is S(0) along 'mb', and must be B"},
    {OP_all_gather, "tp", 0, 0, {B, S(0), S(0)}, {B, S(0), B}, NULL},
    {OP_all_gather,
     "dp",
     0,
     0,
     {B, S(0), S(0)},
     {{0}},
     "all_gather: dimension 0 is split along 'tp' inside of 'dp'"},
    {OP_all_gather, "dp", 0, 0, {B, S(0), S(1)}, {B, B, S(1)}, NULL},
    {OP_all_gather, "dp", 1, 0, {B, S(0), B}, {{0}}, "'%x' is S(0) along 'dp', and must be S(1)"},
    {OP_all_gather, "dp", 0, 0, {B, P, B}, {{0}}, "'%x' is P along 'dp', and must be S(0)"},
    {OP_all_gather, "mb", 0, 0, {S(0), B, B}, {{0}}, "all_gather: axis 'mb' is bound to time"},
    {OP_local_slice, "dp", 0, 0, {S(0), B, B}, {S(0), S(0), B}, NULL},
    {OP_local_slice, "mb", 0, 0, {B, B, B}, {S(0), B, B}, NULL},
    {OP_local_slice,
     "mb",
     0,
     0,
     {B, S(0), B},
     {{0}},
     "local_slice: dimension 0 is split along 'dp' inside of 'mb'"},
    {OP_local_slice, "dp", 0, 0, {B, P, B}, {{0}}, "'%x' is P along 'dp', and must be B"},
    {OP_reduce_scatter, "dp", 1, 0, {B, P, S(0)}, {B, S(1), S(0)}, NULL},
    {OP_reduce_scatter,
     "dp",
     0,
     0,
     {B, P, S(0)},
     {{0}},
     "reduce_scatter: dimension 0 is split along 'tp' inside of 'dp'"},
    {OP_reduce_scatter, "dp", 0, 0, {B, B, B}, {{0}}, "'%x' is B along 'dp', and must be P"},
    {OP_all_to_all, "tp", 0, 1, {B, S(0), S(0)}, {B, S(0), S(1)}, NULL},
    {OP_all_reduce, "dp+tp", 0, 0, {B, P, P}, {B, B, B}, NULL},
    {OP_all_reduce, "dp+tp", 0, 0, {B, P, B}, {{0}}, "'%x' is B along 'tp', and must be P"},
    {OP_reduce_scatter, "dp+tp", 0, 0, {S(0), P, P}, {S(0), S(0), S(0)}, NULL},
    {OP_all_gather, "dp+tp", 1, 0, {B, S(1), S(1)}, {B, B, B}, NULL},
    {OP_all_to_all, "dp+tp", 0, 1, {S(1), S(0), S(0)}, {S(1), S(1), S(1)}, NULL},
    {OP_all_to_all,
     "tp",
     1,
     0,
     {B, S(0), S(0)},
     {{0}},
     "'%x' is S(0) along 'tp', and must be S(1)"},
    {OP_all_to_all, "dp", 0, 1, {B, S(0), S(0)}, {{0}}, "split along 'tp' inside of 'dp'"},
    {OP_all_to_all,
     "dp",
     0,
     1,
     {B, S(0), S(1)},
     {{0}},
     "all_to_all: dimension 1 is split along 'tp' inside of 'dp'"},
};

static Op *op_of(const Case *c, Module *m, Diag *d) {
  static int devices[] = {0, 1, 2, 3};
  Mesh *mesh = arena_one(m->arena, Mesh);
  *mesh = (Mesh){.name = "m",
                 .n_axes = 3,
                 .axis = {{"mb", 2, true}, {"dp", 2, false}, {"tp", 2, false}},
                 .n_devices = 4,
                 .device = devices};
  module_add_mesh(m, mesh);
  Graph *g = graph_new(m, "main", true);
  Value *x = graph_param(g, "x", type_new(m, DT_f32, 2, (int64_t[]){8, 8}), ROLE_input, NULL);
  x->layout = layout_new(m, mesh, c->have);
  m->phase = PHASE_local;
  Attr attrs[3] = {a_s("axis", c->axis), a_i("dim", c->dim)};
  int n;
  op_attr_specs(c->kind, &n);
  if (n == 3) attrs[1] = a_i("from", c->dim), attrs[2] = a_i("to", c->to);
  return op_new(g, NULL, c->kind, &x, 1, attrs, n, (Origin){0}, d);
}

static void each_rule(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *c = &cases[i];
    Heard *h = heard_new();
    Module *m = module_new();
    Sbp gives[MAX_AXES];
    bool ok = collective_gives(op_of(c, m, h->d), gives, h->d);
    assert_int_equal(ok, !c->says);
    if (c->says) assert_true(heard(h, c->says));
    for (int a = 0; ok && a < 3; a++)
      assert_true(sbp_equal(gives[a], c->gives[a]));
    module_free(m);
    heard_free(h);
  }
}

// The proof takes ops with a rule, and move, for reshards: another op that communicates has none.
static void ops_that_communicate_have_rules(void **state) {
  (void)state;
  for (int kind = 0; kind < N_OPS; kind++) {
    bool communicates = (op_info[kind].traits & COMM) && kind != OP_move;
    if (communicates != (collective_rule((OpKind)kind) != NULL)) fail_msg("%s", op_info[kind].name);
  }
}

TEST_GROUP(collective) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_rule),
      cmocka_unit_test(ops_that_communicate_have_rules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
