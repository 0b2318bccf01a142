// A cross entropy with split classes is the same function: loss, lse, ignored labels, errors.

#include "unit.h"

#include <math.h>

#include "ir/op.h"
#include "simplify/split_classes.h"

enum { ROWS = 6, CLASSES = 12 };

typedef struct Case {
  const char *type, *labels; // of operand 1
  int64_t ignore;
} Case;

// "graph @main entry (%x: …, %labels: …) { %loss, %lse = cross_entropy … }"
static Module *read_case(const Case *c, Diag *d) {
  Arena *a = arena_new();
  const char *text = str_format(
      a,
      "module phase=typed\n"
      "graph @main entry (%%x: f32[6,12] input \"x\", %%labels: %s weight \"labels\" = %s) {\n"
      "  %%loss, %%lse = cross_entropy %%x, %%labels ignore=%lld\n"
      "  return output \"loss\" %%loss, output \"lse\" %%lse\n}\n",
      c->type, c->labels, (long long)c->ignore);
  Module *m = module_parse("test.nn", text, strlen(text), d);
  arena_free(a);
  return m;
}

static Tensor logits_new(const Type *t, double scale, Arena *a) {
  Tensor x = tensor_new(a, t);
  for (int64_t i = 0; i < type_count(t); i++)
    tensor_set_f(&x, i, scale * sin(1.7 * (double)i));
  for (int j = 0; j < CLASSES - 3; j++) // shards of -inf only
    tensor_set_f(&x, CLASSES + j, -INFINITY);
  for (int j = 0; j < CLASSES; j++) // a row of -inf, and one with NaN
    tensor_set_f(&x, 2 * CLASSES + j, -INFINITY);
  tensor_set_f(&x, 3 * CLASSES + 1, NAN);
  return x;
}

// Returns the results of the graph; NULL if an op refuses.
static Tensor *results_of(const Graph *g, double scale, Arena *a, Diag *d) {
  Tensor *of = arena_array(a, Tensor, g->n_values), *results = arena_array(a, Tensor, g->n_results);
  const Init *labels = g->params[1]->init;
  of[g->params[0]->id] = logits_new(g->params[0]->type, scale, a);
  of[g->params[1]->id] =
      (Tensor){g->params[1]->type, arena_copy(a, labels->bytes, (size_t)labels->length)};
  for_each_op(op, g) {
    Tensor *in = arena_array(a, Tensor, op->n_in), *out = arena_array(a, Tensor, op->n_out);
    for (int i = 0; i < op->n_in; i++)
      in[i] = of[op->in[i].value->id];
    if (!op_evaluate(op, in, out, NULL, a, d)) return NULL;
    for (int i = 0; i < op->n_out; i++)
      of[op->out[i]->id] = out[i];
  }
  for (int i = 0; i < g->n_results; i++)
    results[i] = of[g->results[i]->use.value->id];
  return results;
}

// Whether the numbers are equal, or both NaN.  `scale` is that of the logits, of which the loss is
// a difference.
static bool same(double x, double y, double scale) {
  return isnan(y) ? isnan(x) : x == y || fabs(x - y) <= 1e-6 * scale;
}

static bool has_op(const Graph *g, OpKind kind) {
  for_each_op(op, g)
    if (op->kind == kind) return true;
  return false;
}

static void it_is_the_same_function(void **state) {
  (void)state;
  static const Case cases[] = {{"i64[6]", "[0,10,3,2,-100,11]", -100},
                               {"i32[6]", "[0,10,3,2,5,11]", 5},
                               {"i64[6]", "[0,1,3,2,5,11]", INT64_MIN},
                               {"i32[6]", "[0,1,3,2,5,11]", INT64_MIN},
                               {"i64[6]", "[-100,-100,-100,-100,6,1]", -100}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int parts = 1; parts <= CLASSES; parts++)
      for (double scale = 1; scale <= 1e4 && CLASSES % parts == 0; scale *= 1e4) {
        Heard *h = heard_new();
        Module *m = read_case(&cases[c], h->d);
        if (!m) heard(h, "a graph"), fail();
        Tensor *want = results_of(m->graphs, scale, m->arena, h->d);
        assert_true(split_classes(m->graphs->first, parts, h->d));
        graph_renumber(m->graphs);
        if (!module_verify(m, h->d)) heard(h, "nothing"), fail();
        assert_false(has_op(m->graphs, OP_cross_entropy));
        Tensor *is = results_of(m->graphs, scale, m->arena, h->d);
        for (int i = 0; i < 2; i++)
          for (int64_t k = 0; k < ROWS; k++)
            if (!same(tensor_f(&is[i], k), tensor_f(&want[i], k), scale))
              fail_msg("case %d in %d parts, result %d of row %d: %g, not %g", (int)c, parts, i,
                       (int)k, tensor_f(&is[i], k), tensor_f(&want[i], k));
        module_free(m);
        heard_free(h);
      }
}

static void a_label_outside_is_an_error(void **state) {
  (void)state;
  Heard *h = heard_new();
  Module *m = read_case(&(Case){"i64[6]", "[0,1,2,12,4,5]", -100}, h->d);
  assert_true(split_classes(m->graphs->first, 4, h->d));
  graph_renumber(m->graphs);
  assert_null(results_of(m->graphs, 1, m->arena, h->d));
  assert_true(heard(h, "label 12 of row 3 is outside 0..11"));
  module_free(m);
  heard_free(h);
}

static void parts_must_be_equal(void **state) {
  (void)state;
  Heard *h = heard_new();
  Module *m = read_case(&(Case){"i64[6]", "[0,1,2,3,4,5]", -100}, h->d);
  assert_false(split_classes(m->graphs->first, 5, h->d));
  assert_true(heard(h, "error: cross_entropy: 12 classes cannot be split in 5 equal parts"));
  assert_true(has_op(m->graphs, OP_cross_entropy));
  module_free(m);
  heard_free(h);
}

TEST_GROUP(split_classes) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_the_same_function),
      cmocka_unit_test(a_label_outside_is_an_error),
      cmocka_unit_test(parts_must_be_equal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
