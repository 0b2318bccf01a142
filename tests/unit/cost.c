// Predicted seconds of ops, compared with sums done by hand for a cluster of round numbers: 1
// TFLOP/s in f32, 8 in 16 bits, 100 GB/s, and a microsecond for each kernel.

#include "unit.h"

#include <math.h>

#include "cost/cost.h"
#include "ir/op.h"

static const Cluster plain = {.nodes = 1,
                              .per_node = 8,
                              .nics = 1,
                              .memory_speed = 100e9,
                              .f32 = 1e12,
                              .half = 8e12,
                              .launch = 1e-6};

typedef struct Case {
  const char *params, *op; // the test estimates the first op of the graph
  double flops, bytes;     // by hand
  int launches;
  bool narrow;
} Case;

static const Case cases[] = {
    // a matrix product is compute-bound
    {"%x: f32[512,1024] input \"x\", %w: f32[1024,256] weight \"w\" = 0", "linear %x, %w",
     2. * 512 * 1024 * 256, 4. * (512 * 1024 + 1024 * 256 + 512 * 256), 1, false},
    {"%x: bf16[512,1024] input \"x\", %w: bf16[1024,256] weight \"w\" = 0", "linear %x, %w",
     2. * 512 * 1024 * 256, 2. * (512 * 1024 + 1024 * 256 + 512 * 256), 1, true},
    // the type of rows counts, not that of the indices before them
    {"%i: i64[512] input \"i\", %x: bf16[512,1024] input \"x\", %y: bf16[512,256] input \"y\"",
     "grouped_linear_back_w %i, %x, %y shape=[4,1024,256]", 2. * 512 * 1024 * 256,
     8 * 512 + 2. * (512 * 1024 + 512 * 256) + 4. * 4 * 1024 * 256, 1, true},
    {"%i: i64[512] input \"i\", %x: f32[512,1024] input \"x\", %y: f32[512,256] input \"y\"",
     "grouped_linear_back_w %i, %x, %y shape=[4,1024,256]", 2. * 512 * 1024 * 256,
     8 * 512 + 4. * (512 * 1024 + 512 * 256 + 4 * 1024 * 256), 1, false},
    // gelu is memory-bound
    {"%x: f32[512,1024] input \"x\"", "gelu %x", 2. * 512 * 1024, 8. * 512 * 1024, 1, false},
    {"%x: f32[512,1024] input \"x\"", "reshape %x shape=[1024,512]", 0, 0, 0, false},
    {"%x: f32[512,1024] input \"x\"", "transpose %x perm=[1,0]", 2. * 512 * 1024, 8. * 512 * 1024,
     1, false},
    // only 12 rows of the table; their gradient is zeros, and 12 rows added to it
    {"%w: f32[5000,64] weight \"w\" = 0, %i: i32[3,4] input \"i\"", "gather %w, %i axis=0",
     12 + 2. * 12 * 64, 4 * 12 + 8. * 12 * 64, 1, false},
    {"%i: i32[3,4] input \"i\", %y: f32[3,4,64] input \"y\"",
     "gather_back %i, %y axis=0 shape=[5000,64]", 12 + 12. * 64 + 5000. * 64,
     4 * (12 + 12. * 64 + 5000. * 64) + 8. * 12 * 64, 1, false},
    {"%x: f32[512,1024] input \"x\"", "slice %x starts=[0,0] steps=[1,1] shape=[2,1024]",
     2. * 2 * 1024, 8. * 2 * 1024, 1, false},
    // a bucket: its contents were produced in place
    {"%x: f32[512,1024] input \"x\", %y: f32[1024] input \"y\"", "pack %x, %y",
     2. * (512 * 1024 + 1024), 0, 1, false},
    // every operand and every state once, independent of the arithmetic
    {"%w: f32[4096] weight \"w\" train = 0, %g: f32[4096] input \"g\", %m: f32[4096] input \"m\", "
     "%v: f32[4096] input \"v\", %l: f32[] input \"l\", %s: f32[] input \"s\", %t: i64[] input "
     "\"t\"",
     "adam %w, %g, %m, %v, %l, %s, %t", 7. * 4096 + 3, 4. * 7 * 4096 + 16, 1, false},
    // y from 3 x 3 windows: 8 images of 30 x 30, 16 channels from 4
    {"%x: f32[8,4,32,32] input \"x\", %w: f32[16,4,3,3] weight \"w\" = 0",
     "conv %x, %w strides=[1,1] pads=[0,0,0,0] dilations=[1,1] group=1",
     2. * 8 * 16 * 30 * 30 * 4 * 9, 4. * (8 * 4 * 32 * 32 + 16 * 4 * 9 + 8 * 16 * 30 * 30), 1,
     false},
    // scores and their product with v, half of both under the causal mask
    {"%q: f32[2,4,64,32] input \"q\", %k: f32[2,4,64,32] input \"k\", %v: f32[2,4,64,32] input "
     "\"v\"",
     "attention %q, %k, %v scale=1 causal=true", 2. * 2 * (2 * 4 * 64) * 64 * 32 / 2,
     4. * (4 * 2 * 4 * 64 * 32 + 2 * 4 * 64), 1, false},
    // a fused chain is one kernel that reads and writes once
    {"%x: f32[512,1024] input \"x\", %y: f32[512,1024] input \"y\"", "fused @body %x, %y",
     5. * 512 * 1024, 12. * 512 * 1024, 1, false},
};

static const char body[] = "graph @body (%0: f32[512,1024], %1: f32[512,1024]) {\n"
                           "  %2 = add %0, %1\n  %3 = gelu %2\n  return %3\n}\n";

static Module *read_case(const Case *c, Diag *d, Arena *a) {
  const char *text =
      str_format(a, "module phase=typed\ngraph @main entry (%s) {\n  %s = %s\n}\n%s", c->params,
                 strstr(c->op, "adam")        ? "%a, %b, %c"
                 : strstr(c->op, "attention") ? "%a, %b"
                                              : "%a",
                 c->op, strstr(c->op, "@body") ? body : "");
  return module_parse("test.nn", text, strlen(text), d);
}

static void seconds_are_those_by_hand(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *a = arena_new();
    Diag *d = diag_new(stderr);
    const Case *c = &cases[i];
    Module *m = read_case(c, d, a);
    assert_non_null(m);
    double compute = c->flops / (c->narrow ? 8e12 : 1e12), memory = c->bytes / 100e9;
    double want = fmax(compute, memory) + c->launches * 1e-6;
    double is = op_seconds(&plain, m->graphs->first);
    if (fabs(is - want) > 1e-12 * want) fail_msg("%s: %.9g s, not %.9g", c->op, is, want);
    module_free(m);
    diag_free(d);
    arena_free(a);
  }
}

// A split shrinks only operands that have the letter: all ranks that share the rows read the whole
// weight.
static void cuts_share_what_lacks_the_letter(void **state) {
  (void)state;
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Module *m = read_case(&cases[0], d, a);
  const Op *op = m->graphs->first;
  Dims dims;
  assert_true(op_dims(op, &dims, d));
  OpWork w = op_work(op, &dims);
  Cut rows = {.n = 1, .at = {{dims_find(&dims, '0'), 4}}};
  WorkSum sum = work_sum(&w, &rows);
  assert_true(sum.flops == 2. * 512 * 1024 * 256 / 4);
  assert_true(sum.read == 4. * (512 * 1024 / 4 + 1024 * 256));
  assert_true(sum.written == 4. * 512 * 256 / 4);
  // Two axes split one letter, another axis a second one: 4 * 2 * 8 parts.
  Cut three = {
      .n = 3,
      .at = {{dims_find(&dims, '0'), 4}, {dims_find(&dims, '0'), 2}, {dims_find(&dims, 'n'), 8}}};
  sum = work_sum(&w, &three);
  assert_true(sum.flops == 2. * 512 * 1024 * 256 / 64);
  assert_true(sum.read == 4. * (512 * 1024 / 8 + 1024 * 256 / 8));
  assert_true(work_seconds(&plain, &w, &three) < work_seconds(&plain, &w, &rows));
  module_free(m);
  diag_free(d);
  arena_free(a);
}

// Of 16-bit products a share of the peak, and of fused attention another one, also inside of a
// call.
static void attention_has_an_efficiency_of_its_own(void **state) {
  (void)state;
  static const char *const text =
      "module phase=typed\ngraph @main entry (%q: bf16[2,4,512,64] input \"q\", "
      "%w: bf16[64,64] weight \"w\" = 0) {\n"
      "  %a, %b = attention %q, %q, %q scale=1\n  %c = linear %a, %w\n"
      "  %d = call @body %q, %w\n  return %c, %d\n}\n"
      "graph @body (%q: bf16[2,4,512,64], %w: bf16[64,64]) {\n"
      "  %a, %b = attention %q, %q, %q scale=1\n  %c = linear %a, %w\n  return %c\n}\n";
  const double attended = 2. * 2 * (2 * 4 * 512) * 512 * 64, product = 2. * (2 * 4 * 512) * 64 * 64;
  Diag *d = diag_new(stderr);
  Module *m = module_parse("test.nn", text, strlen(text), d);
  assert_non_null(m);
  Device device = {.memory_speed = 1e18, .f32 = 1e12, .half = 8e12};
  const double shares[][2] = {{0, 0}, {0.5, 0}, {0.5, 0.25}, {0, 0.25}, {0.5, 1}};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    device.half_efficiency = shares[i][0];
    device.attention_efficiency = shares[i][1];
    double products = shares[i][0] > 0 ? shares[i][0] : 1;
    double attention = shares[i][1] > 0 ? shares[i][1] : products;
    double want[] = {attended / (8e12 * attention), product / (8e12 * products), 0};
    want[2] = want[0] + want[1];
    int k = 0;
    for_each_op(op, m->graphs) {
      double is = op_seconds_on(&device, op);
      if (fabs(is - want[k]) > 1e-9 * want[k]) fail_msg("%d: %.9g s, not %.9g", k, is, want[k]);
      k++;
    }
    assert_int_equal(k, 3);
  }
  module_free(m);
  diag_free(d);
}

// Of two kinds of devices the smaller share counts, and no share is all of it.
static void the_least_share_counts(void **state) {
  (void)state;
  Device a = {.half_efficiency = 0.5}, b = {.attention_efficiency = 0.25},
         least = device_least(a, b);
  assert_true(least.half_efficiency == 0.5 && least.attention_efficiency == 0.25);
  b.half_efficiency = 0.75;
  assert_true(device_least(a, b).half_efficiency == 0.5);
}

static void unknown_speeds_have_no_seconds(void **state) {
  (void)state;
  Cluster c = plain;
  assert_true(cost_known(&c));
  c.memory_speed = 0;
  assert_false(cost_known(&c));
  c = plain;
  c.f32 = 0;
  assert_false(cost_known(&c));
}

// Measured products take the place of the peak: by hand at their sizes, at the geometric mean of
// two, and beyond the smallest and the largest.
static void products_have_their_measured_speed(void **state) {
  (void)state;
  static const ProductSpeed products[] = {
      {1e6, 1e11, 0}, {1e8, 0, 2e12}, {1e10, 9e11, 4e12}, {1e12, 5e12, 6e12}};
  Cluster c = plain;
  c.half_efficiency = 0.5;
  Device d = cluster_least(&c);
  assert_true(device_speed(&d, false, 1e9) == 1e12 && device_speed(&d, true, 1e9) == 4e12);
  c.products = products;
  c.n_products = 4;
  d = cluster_least(&c);
  const struct {
    bool half;
    double flops, speed;
  } by_hand[] = {{false, 1e3, 1e11},          {false, 1e6, 1e11},  {false, 1e8, 3e11},
                 {false, 1e10, 9e11},         {false, 1e12, 1e12}, {true, 1e3, 2e12},
                 {true, 1e9, 2e12 * M_SQRT2}, {true, 1e10, 4e12},  {true, 1e12, 6e12},
                 {true, 1e15, 6e12}};
  for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
    double is = device_speed(&d, by_hand[i].half, by_hand[i].flops);
    if (!(fabs(is - by_hand[i].speed) <= 1e-9 * by_hand[i].speed))
      fail_msg("%g FLOP: %.9g, not %.9g", by_hand[i].flops, is, by_hand[i].speed);
  }
  // A product of 268 MFLOP in several runs has the speed of its parts.
  Arena *a = arena_new();
  Diag *diag = diag_new(stderr);
  Module *m = read_case(&cases[1], diag, a);
  OpWork w = op_work_alone(m->graphs->first);
  double flops = cases[1].flops, whole = flops / device_speed(&d, true, flops);
  double parts = flops / device_speed(&d, true, flops / 4);
  assert_true(parts > whole);
  assert_true(fabs(work_seconds_in(&d, &w, NULL, 1) - whole - 1e-6) < 1e-12);
  assert_true(fabs(work_seconds_in(&d, &w, NULL, 4) - parts - 4e-6) < 1e-12);
  module_free(m);
  diag_free(diag);
  arena_free(a);
}

TEST_GROUP(cost) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(seconds_are_those_by_hand),
      cmocka_unit_test(cuts_share_what_lacks_the_letter),
      cmocka_unit_test(attention_has_an_efficiency_of_its_own),
      cmocka_unit_test(the_least_share_counts),
      cmocka_unit_test(unknown_speeds_have_no_seconds),
      cmocka_unit_test(products_have_their_measured_speed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
