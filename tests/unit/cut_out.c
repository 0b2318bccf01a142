// The model with few of its layers: each of them is left out wherever it runs.

#include "unit.h"

#include "planner/auto/blocks.h"
#include "planner/auto/cut_out.h"

enum { LAYERS = 6, FORWARDS = 3, LEFT = 2 };

// Goes through its layers several times: each time but the first starts from the sum of the input
// and the normalised result of the time before, without its gradient. `own`: each time has its own
// weights.
static Module *recycled(bool own, Arena *a) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "module \"m\" phase=typed\ngraph @main entry (%x: f32[8,4] input \"x\", "
                 "%e: f32[4,4] weight \"e\" train = normal(0,1), %g: f32[4] weight \"g\" train = "
                 "1, %b: f32[4] weight \"b\" train = 0");
  for (int t = 0; t < (own ? FORWARDS : 1); t++)
    for (int i = 0; i < LAYERS; i++)
      strbuf_addf(&b,
                  ",\n  %%u%d_%d: f32[4,8] weight \"u%d.%d\" train = normal(0,1), "
                  "%%d%d_%d: f32[8,4] weight \"d%d.%d\" train = normal(0,1)",
                  t, i, t, i, t, i, t, i);
  strbuf_add(&b, ") {\n  %first = linear %x, %e\n");
  const char *x = "first";
  for (int t = 0; t < FORWARDS; t++) {
    int w = own ? t : 0;
    for (int i = 0; i < LAYERS; i++) {
      strbuf_addf(&b,
                  "  %%u_%d_%d = linear %%%s, %%u%d_%d\n  %%g_%d_%d = gelu %%u_%d_%d\n"
                  "  %%d_%d_%d = linear %%g_%d_%d, %%d%d_%d\n  %%h_%d_%d = add %%d_%d_%d, %%%s\n",
                  t, i, x, w, i, t, i, t, i, t, i, t, i, w, i, t, i, t, i, x);
      x = str_format(a, "h_%d_%d", t, i);
    }
    if (t == FORWARDS - 1) break;
    strbuf_addf(
        &b,
        "  %%c%d = detach %%%s\n  %%n%d, %%v%d, %%w%d = layer_norm %%c%d, %%g, %%b eps=1e-5\n"
        "  %%s%d = add %%n%d, %%first\n",
        t, x, t, t, t, t, t, t);
    x = str_format(a, "s%d", t);
  }
  strbuf_addf(&b, "  %%q = mul %%%s, %%%s\n  %%l = reduce_sum %%q axes=[0,1]\n", x, x);
  strbuf_add(&b, "  return output \"loss\" %l\n}\n");
  Diag *d = diag_new(stderr);
  Module *m = module_parse("test.nn", b.at, strlen(b.at), d);
  assert_non_null(m);
  assert_true(module_verify(m, d));
  diag_free(d);
  return m;
}

static int count(const Module *m, OpKind kind) {
  int n = 0;
  for_each_op(op, m->graphs)
    n += op->kind == kind;
  return n;
}

static int count_weights(const Module *m) {
  int n = 0;
  for (int i = 0; i < m->graphs->n_params; i++)
    n += m->graphs->params[i]->role == ROLE_weight;
  return n;
}

// The run of single layers.
static const BlockRun *layers_of(const ModelUnits *b, int *index) {
  for (int r = 0; r < b->n_runs; r++)
    if (b->run[r].n == LAYERS) return &b->run[*index = r];
  return NULL;
}

// Two layers stay of each forward, with their weights, and all else that joins forwards.
static void layers_are_left_out_of_all_forwards(void **state) {
  (void)state;
  Arena *a = arena_new();
  Module *m = recycled(false, a);
  const ModelUnits *b = blocks_find(m, a);
  int at = -1, *keep = arena_array(a, int, b->n_runs);
  const BlockRun *run = layers_of(b, &at);
  assert_non_null(run);
  assert_true(run->times >= 0);
  assert_int_equal(b->run[run->times].n, FORWARDS - 1);
  for (int r = 0; r < b->n_runs; r++)
    keep[r] = b->run[r].n;
  keep[at] = LEFT;
  Module *few = cut_out(b, keep);
  Diag *d = diag_new(stderr);
  assert_true(module_verify(few, d));
  assert_int_equal(count(few, OP_gelu), LEFT * FORWARDS);
  assert_int_equal(count(few, OP_linear), 1 + 2 * LEFT * FORWARDS);
  assert_int_equal(count(few, OP_detach), FORWARDS - 1);
  assert_int_equal(count_weights(few), 2 * LEFT + 3);
  // Also if whole forwards are left out.
  keep[run->times] = 1;
  Module *fewer = cut_out(b, keep);
  assert_true(module_verify(fewer, d));
  assert_int_equal(count(fewer, OP_gelu), LEFT * (FORWARDS - 1));
  assert_int_equal(count_weights(fewer), 2 * LEFT + 3);
  diag_free(d);
  module_free(fewer);
  module_free(few);
  module_free(m);
  arena_free(a);
}

// Layers with other weights are other layers, and keep their number.
static void layers_with_other_weights_stay(void **state) {
  (void)state;
  Arena *a = arena_new();
  Module *m = recycled(true, a);
  const ModelUnits *b = blocks_find(m, a);
  for (int r = 0; r < b->n_runs; r++)
    assert_int_equal(b->run[r].times, -1);
  module_free(m);
  arena_free(a);
}

TEST_GROUP(cut_out) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_are_left_out_of_all_forwards),
      cmocka_unit_test(layers_with_other_weights_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
