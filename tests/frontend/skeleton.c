// The skeleton for --export: filled in, it is the model with other weights.

#include "unit.h"

#include "frontend/onnx.h"
#include "frontend/onnx_tensor.h"

// Fills the skeleton of `model` with bytes 1, 2, 3 … and imports the result.
static Module *export_and_import(const char *model, const char *const *labels, int n_labels,
                                 OnnxSkeleton *s, Arena *a, Diag *d) {
  bool batch = strstr(model, "mlp.onnx") != NULL; // the only one of them whose batch is free
  OnnxOptions o = {.dims = (const char *const[]){"N=2"}, .n_dims = batch};
  assert_true(onnx_skeleton(model, &o, labels, n_labels, n_labels, a, s, d));
  assert_int_equal(s->n_holes, n_labels);
  for (int i = 0; i < s->n_holes; i++)
    for (int64_t k = 0; k < s->holes[i].length; k++) {
      assert_int_equal(s->bytes[s->holes[i].offset + k], 0);
      s->bytes[s->holes[i].offset + k] = (uint8_t)(k + 1);
    }
  const char *path = "skeleton_test.onnx";
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(s->bytes, 1, (size_t)s->n, f), s->n);
  fclose(f);
  return onnx_import(path, &o, d);
}

// The module's weight must be the bytes of the hole.
static void assert_hole(const Module *m, const OnnxHole *hole, int64_t length) {
  const Value *v = graph_find_param(m->graphs, hole->label);
  assert_non_null(v);
  assert_int_equal(v->init->kind, INIT_file);
  assert_int_equal(v->init->dtype, hole->dtype);
  assert_int_equal(v->init->offset, hole->offset);
  assert_int_equal(v->init->length, hole->length);
  assert_int_equal(hole->length, length);
}

static void raw_weights_become_holes(void **state) {
  (void)state;
  Arena *a = arena_new();
  Heard *h = heard_new();
  OnnxSkeleton s;
  Module *m =
      export_and_import(INPUTS "/mlp.onnx", (const char *const[]){"w", "b"}, 2, &s, a, h->d);
  assert_non_null(m);
  assert_hole(m, &s.holes[0], 3 * 4 * 4);
  assert_hole(m, &s.holes[1], 3 * 4);
  module_free(m);
  heard_free(h);
  arena_free(a);
}

// f16 raw, f64 as a list, bf16 in int32_data: all raw in their own types afterwards.
static void types_stay_and_lists_become_raw(void **state) {
  (void)state;
  Arena *a = arena_new();
  Heard *h = heard_new();
  OnnxSkeleton s;
  Module *m =
      export_and_import(INPUTS "/types.onnx", (const char *const[]){"h", "d", "b"}, 3, &s, a, h->d);
  assert_non_null(m);
  assert_int_equal(s.holes[0].dtype, DT_f16);
  assert_hole(m, &s.holes[0], 4);
  assert_int_equal(s.holes[1].dtype, DT_f64);
  assert_hole(m, &s.holes[1], 16);
  assert_int_equal(s.holes[2].dtype, DT_bf16);
  assert_hole(m, &s.holes[2], 4);
  module_free(m);
  heard_free(h);
  arena_free(a);
}

// Also when it is not trained: the export needs no other file.
static void external_data_comes_inline(void **state) {
  (void)state;
  Arena *a = arena_new();
  Heard *h = heard_new();
  OnnxSkeleton s;
  Module *m = export_and_import(INPUTS "/external.onnx", NULL, 0, &s, a, h->d);
  assert_non_null(m);
  const Init *init = graph_find_param(m->graphs, "w")->init;
  assert_string_equal(init->path, "skeleton_test.onnx");
  float w[6];
  memcpy(w, s.bytes + init->offset, sizeof w);
  for (int i = 0; i < 6; i++)
    assert_true(w[i] == (float)(i + 1)); // w.bin counts from 0, the data starts at byte 4
  module_free(m);
  heard_free(h);
  arena_free(a);
}

static void what_is_no_initializer_is_reported(void **state) {
  (void)state;
  Arena *a = arena_new();
  Heard *h = heard_new();
  OnnxOptions o = {0};
  OnnxSkeleton s;
  assert_false(
      onnx_skeleton(INPUTS "/mlp.onnx", &o, (const char *const[]){"nobody"}, 1, 1, a, &s, h->d));
  assert_true(heard(h, "mlp.onnx:nobody: error: is not an initializer"));
  assert_false(onnx_skeleton(INPUTS "/truncated.onnx", &o, NULL, 0, 0, a, &s, h->d));
  assert_true(heard(h, "is not a well-formed ONNX file"));
  heard_free(h);
  arena_free(a);
}

static void what_need_not_be_one_has_no_hole(void **state) {
  (void)state;
  Arena *a = arena_new();
  Heard *h = heard_new();
  OnnxOptions o = {0};
  OnnxSkeleton s;
  const char *const labels[] = {"w", "nobody", "b"};
  assert_true(onnx_skeleton(INPUTS "/mlp.onnx", &o, labels, 3, 1, a, &s, h->d));
  assert_int_equal(s.n_holes, 2);
  assert_string_equal(s.holes[0].label, "w");
  assert_string_equal(s.holes[1].label, "b");
  heard_free(h);
  arena_free(a);
}

// A model exported in training becomes one for inference, with running statistics in place of those
// of the batch.
static void nodes_are_as_in_inference(void **state) {
  (void)state;
  Arena *a = arena_new();
  Heard *h = heard_new();
  OnnxSkeleton s;
  Module *m = export_and_import(INPUTS "/inference_forms.onnx",
                                (const char *const[]){"g", "b", "mean", "var"}, 4, &s, a, h->d);
  assert_non_null(m);
  const char *text = module_text(m, a);
  assert_null(strstr(text, "batch_norm_train"));
  assert_null(strstr(text, "dropout"));
  assert_null(strstr(text, "update"));
  assert_non_null(strstr(text, "%h = batch_norm %x, %g, %b, %mean, %var axis=1 eps=0.5"));
  assert_non_null(strstr(text, "%k = batch_norm %h, %g, %b, %mean, %var axis=1 eps=1e-05"));
  assert_non_null(strstr(text, "%s = mul %var, %mean"));
  module_free(m);
  heard_free(h);
  arena_free(a);
}

TEST_GROUP(skeleton) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(raw_weights_become_holes),
      cmocka_unit_test(types_stay_and_lists_become_raw),
      cmocka_unit_test(external_data_comes_inline),
      cmocka_unit_test(what_is_no_initializer_is_reported),
      cmocka_unit_test(what_need_not_be_one_has_no_hole),
      cmocka_unit_test(nodes_are_as_in_inference),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  remove("skeleton_test.onnx");
  return failed;
}
