// Products in series, compared with the definition: on random graphs, also with branches.

#include "planner/auto/series.h"

#include "draw.h"
#include "ir/op.h"
#include "unit.h"

// A graph of `n` ops: every op reads one or two of the last `near` values. Some are products.
static Module *random_graph(Random *r, int n, int near, Arena *a) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "module phase=typed\ngraph @main entry (%%v0: f32[4,4] input \"x\") {\n");
  for (int i = 1; i <= n; i++) {
    int most = near < i ? near : i;
    int x = i - 1 - below(r, most), y = i - 1 - below(r, most);
    strbuf_addf(&b, "  %%v%d = %s %%v%d, %%v%d\n", i, below(r, 2) ? "matmul" : "add", x, y);
  }
  strbuf_addf(&b, "  return output \"y\" %%v%d\n}\n", n);
  Diag *d = diag_new(stderr);
  Module *m = module_parse("series.nn", b.at, strlen(b.at), d);
  assert_non_null(m);
  diag_free(d);
  return m;
}

// Whether op `x` depends on `y`, by their ids.
static bool *find_dependences(const Graph *g, Arena *a) {
  bool *on = arena_array(a, bool, (int64_t)g->n_ops * g->n_ops);
  for_each_op(op, g)
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      for (uint32_t k = 0; def && k < g->n_ops; k++)
        on[op->id * g->n_ops + k] |= k == def->id || on[def->id * g->n_ops + k];
    }
  return on;
}

static void series_are_those_of_the_definition(void **state) {
  Random r = {3};
  int in_series = 0, grouped = 0;
  (void)state;
  for (int i = 0; i < 400; i++) {
    Arena *a = arena_new();
    Module *m = random_graph(&r, 3 + below(&r, 30), 1 + below(&r, 5), a);
    Graph *g = m->graphs;
    graph_renumber(g);
    const bool *on = find_dependences(g, a);
    const Op **op = arena_array(a, const Op *, g->n_ops + 1);
    int n = 0, number = 1;
    for_each_op(x, g)
      if (x->kind == OP_matmul) op[n++] = x;
    const int *group = series_groups(g, op, n, a);
    for (int k = n - 1; k >= 0; k--) {
      bool series = true;
      for (int j = 0; j < n; j++) {
        uint32_t later = op[j < k ? k : j]->id, earlier = op[j < k ? j : k]->id;
        series &= j == k || on[later * g->n_ops + earlier];
      }
      number += series;
      assert_int_equal(group[k], series ? 0 : number);
      in_series += series;
      grouped += !series;
    }
    module_free(m);
    arena_free(a);
  }
  assert_true(in_series > 500 && grouped > 500);
}

// The memory of a deep model's products grows with their number, not with its square.
static void deep_models_take_little_memory(void **state) {
  enum { N = 20000, MOST = 400 }; // ops; bytes of each
  Random r = {4};
  (void)state;
  Arena *a = arena_new(), *own = arena_new();
  Module *m = random_graph(&r, N, 2, a);
  Graph *g = m->graphs;
  graph_renumber(g);
  const Op **op = arena_array(a, const Op *, g->n_ops + 1);
  int n = 0;
  for_each_op(x, g)
    if (x->kind == OP_matmul) op[n++] = x;
  assert_non_null(series_groups(g, op, n, own));
  assert_true(arena_used(own) < (size_t)N * MOST);
  module_free(m);
  arena_free(own);
  arena_free(a);
}

TEST_GROUP(series) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(series_are_those_of_the_definition),
      cmocka_unit_test(deep_models_take_little_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
