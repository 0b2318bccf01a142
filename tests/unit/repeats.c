// Repeated subgraphs are recognised: occurrences, members, families, parameters; similar but
// different subgraphs are not.

#include "unit.h"

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "manager/pipeline.h"
#include "pass.h"
#include "repeats/repeats.h"

enum { LAYERS = 5 };

// Layers of  x + (gelu(x w) v) : %a %b %c %x; layer `odd` has the activation `act` instead.
static Module *layers(int odd, const char *act, Arena *a) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "module phase=typed\ngraph @train entry (%x0: f32[4,8] input \"x\"");
  for (int i = 0; i < LAYERS; i++)
    strbuf_addf(&b,
                ", %%w%d: f32[8,8] weight \"w%d\" train = normal(0,1)"
                ", %%v%d: f32[8,8] weight \"v%d\" train = normal(0,1)",
                i, i, i, i);
  strbuf_add(&b, ") {\n");
  for (int i = 0; i < LAYERS; i++)
    strbuf_addf(&b,
                "  %%a%d = linear %%x%d, %%w%d  # m.onnx:/a%d\n"
                "  %%b%d = %s %%a%d  # m.onnx:/b%d\n"
                "  %%c%d = linear %%b%d, %%v%d  # m.onnx:/c%d\n"
                "  %%x%d = add %%x%d, %%c%d  # m.onnx:/x%d\n",
                i, i, i, i, i, i == odd ? act : "gelu", i, i, i, i, i, i, i + 1, i, i, i);
  strbuf_addf(&b,
              "  %%loss = reduce_sum %%x%d axes=[0,1]\n"
              "  return output \"loss\" %%loss\n}\n",
              LAYERS);
  Diag *d = diag_new(stderr);
  Module *m = module_parse("test.nn", b.at, b.n, d);
  assert_non_null(m);
  diag_free(d);
  return m;
}

static Op *op_named(const Module *m, const char *name, int i) {
  char text[32];
  snprintf(text, sizeof text, "%s%d", name, i);
  Value *v = graph_find_value(m->graphs, text);
  assert_non_null(v);
  return v->def;
}

static void find_layers(void **state) {
  (void)state;
  Arena *a = arena_new();
  Module *m = layers(-1, NULL, a);
  const Repeats *r = repeats_find(m->graphs, LEAST_BLOCK, NULL, a);
  assert_int_equal(r->n_blocks, 1);
  assert_int_equal(r->block[0]->n, LAYERS);
  assert_int_equal(r->block[0]->n_members, 4);
  assert_int_equal(r->n_order, LAYERS + 1);
  assert_int_equal(r->n_after, LAYERS + 1 + 4);
  for (int i = 0; i < LAYERS; i++) {
    const Op *op = op_named(m, "a", i);
    assert_true(ops_correspond(r, op, op_named(m, "a", 0)));
    assert_false(ops_correspond(r, op, op_named(m, "c", i)));
    assert_int_equal(op_outermost(r, op)->index, i);
    assert_true(op_is_within(r, op_named(m, "x", i + 1), r->block[0]->at[i]));
    assert_ptr_equal(r->block[0]->at[i]->member[r->of_op[op->id].position].op, op);
  }
  assert_null(op_outermost(r, graph_find_value(m->graphs, "loss")->def));
  module_free(m);
  arena_free(a);
}

static void place_parameters(void **state) {
  (void)state;
  Arena *a = arena_new();
  Module *m = layers(-1, NULL, a);
  const Repeats *r = repeats_find(m->graphs, LEAST_BLOCK, NULL, a);
  for (int i = 0; i < LAYERS; i++) {
    ParamRepeat w = r->of_param[1 + 2 * i], v = r->of_param[2 + 2 * i];
    assert_ptr_equal(w.occurrence, r->block[0]->at[i]);
    assert_ptr_equal(w.reader, op_named(m, "a", i));
    assert_ptr_equal(v.reader, op_named(m, "c", i));
    assert_int_equal(v.operand, 1);
  }
  // A parameter read only by the first layer belongs to that layer.
  assert_ptr_equal(r->of_param[0].occurrence, r->block[0]->at[0]);
  module_free(m);
  arena_free(a);
}

// A parameter of two layers belongs to none.
static void share_parameters(void **state) {
  (void)state;
  Arena *a = arena_new();
  Module *m = layers(-1, NULL, a);
  op_set_in(op_named(m, "a", 1), 1, m->graphs->params[1]);
  const Repeats *r = repeats_find(m->graphs, LEAST_BLOCK, NULL, a);
  assert_true(ops_correspond(r, op_named(m, "a", 0), op_named(m, "a", 1)));
  assert_null(r->of_param[1].occurrence);
  assert_null(r->of_param[3].occurrence); // dead
  module_free(m);
  arena_free(a);
}

static void tell_apart(void **state) {
  (void)state;
  Arena *a = arena_new();
  Module *m = layers(2, "relu", a);
  const Repeats *r = repeats_find(m->graphs, 2, NULL, a);
  assert_false(ops_correspond(r, op_named(m, "b", 2), op_named(m, "b", 1)));
  assert_null(r->of_op[op_named(m, "b", 2)->id].occurrence);
  assert_true(ops_correspond(r, op_named(m, "b", 1), op_named(m, "b", 0)));
  module_free(m);

  // Another edge: the sum in layer 2 reads only results of its own layer.
  m = layers(-1, NULL, a);
  op_set_in(op_named(m, "x", 3), 0, op_named(m, "b", 2)->out[0]);
  r = repeats_find(m->graphs, 2, NULL, a);
  assert_false(ops_correspond(r, op_named(m, "x", 3), op_named(m, "x", 2)));
  module_free(m);

  // A frozen weight does not correspond to a trained one.
  m = layers(-1, NULL, a);
  m->graphs->params[1 + 2 * 2]->train = false;
  r = repeats_find(m->graphs, 2, NULL, a);
  assert_false(ops_correspond(r, op_named(m, "a", 2), op_named(m, "a", 1)));
  module_free(m);
  arena_free(a);
}

static Module *training(Arena *a) {
  Module *m = layers(-1, NULL, a);
  Diag *d = diag_new(stderr);
  PipelineOptions o = {.bisect_limit = -1, .verify_each = true};
  assert_true(pipeline_run(m, "autodiff,optimizer(name=adamw clip=1),simplify", &o, d));
  diag_free(d);
  return m;
}

// A layer, its gradients and its updates are a family: ops derived from layer i are in occurrence
// i.
static void find_families(void **state) {
  (void)state;
  Arena *a = arena_new();
  Module *m = training(a);
  const Repeats *r = repeats_find(m->graphs, LEAST_BLOCK, NULL, a);
  const Occurrence *layer = op_outermost(r, op_named(m, "a", 1));
  assert_non_null(layer);
  int n_back = 0;
  for_each_op(op, m->graphs) {
    const Occurrence *o = op_of_family(r, op, layer->block->family);
    if (op_part(op) != PART_backward || !o) continue;
    n_back++;
    assert_ptr_not_equal(o->block, layer->block);
    for (int i = 0; i < LAYERS; i++)
      for (const char *name = "abc"; *name; name++) {
        char text[2] = {*name, 0};
        const Op *forward = op_named(m, text, i);
        if (!op_is_gradient_of(op, forward)) continue;
        assert_int_equal(op_outermost(r, forward)->index, o->index);
      }
  }
  assert_true(n_back >= 3 * (LAYERS - 1));
  module_free(m);
  arena_free(a);
}

// Searches only the model, within a whole training step.
static void restrict_search(void **state) {
  (void)state;
  Arena *a = arena_new();
  Module *m = training(a);
  bool *among = arena_array(a, bool, m->graphs->n_ops);
  for_each_op(op, m->graphs)
    among[op->id] = op_part(op) == PART_forward;
  const Repeats *r = repeats_find(m->graphs, LEAST_BLOCK, among, a);
  assert_int_equal(r->n_blocks, 1);
  assert_int_equal(r->block[0]->n, LAYERS);
  for_each_op(op, m->graphs)
    if (!among[op->id]) assert_null(op_outermost(r, op));
  module_free(m);
  arena_free(a);
}

TEST_GROUP(repeats) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(find_layers),      cmocka_unit_test(place_parameters),
      cmocka_unit_test(share_parameters), cmocka_unit_test(tell_apart),
      cmocka_unit_test(find_families),    cmocka_unit_test(restrict_search),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
