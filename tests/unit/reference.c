// The semantics of ops in difficult cases: limits of types, of functions and of their gradients,
// computed by hand.

#include "unit.h"

#include <math.h>

#include "ir/build.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "ir/random.h"
#include "ir/text.h"
#include "nnrt_random.h"

static Module *read_ops(const char *ops, Diag *d) {
  Arena *a = arena_new();
  const char *text = str_format(a, "module phase=typed\ngraph @g() {\n%s\n}\n", ops);
  Module *m = module_parse("test.nn", text, strlen(text), d);
  arena_free(a);
  return m;
}

// Returns all values of the graph, by id; NULL if an op refuses.
static Tensor *values_of(const Graph *g, Arena *a, Diag *d) {
  Tensor *of = arena_array(a, Tensor, g->n_values);
  for_each_op(op, g) {
    Tensor *in = arena_array(a, Tensor, op->n_in), *out = arena_array(a, Tensor, op->n_out);
    for (int i = 0; i < op->n_in; i++)
      in[i] = of[op->in[i].value->id];
    if (!op_evaluate(op, in, out, NULL, a, d)) return NULL;
    for (int i = 0; i < op->n_out; i++)
      of[op->out[i]->id] = out[i];
  }
  return of;
}

// Prints elements as the text form does, and nan.
static const char *tensor_text(const Tensor *t, Arena *a) {
  StrBuf b = {.arena = a};
  int bytes = dtype_bytes[t->type->dtype];
  strbuf_add(&b, "[");
  for (int64_t i = 0; i < type_count(t->type); i++) {
    const char *one = elements_text(a, t->type->dtype, (char *)t->data + i * bytes, bytes);
    strbuf_add(&b, i ? "," : "");
    if (isnan(tensor_f(t, i)))
      strbuf_add(&b, "nan");
    else
      strbuf_add_n(&b, one + 1, strlen(one) - 2);
  }
  strbuf_add(&b, "]");
  return b.at;
}

// Checks that the last op's first result is `want`, as in "[1,2.5]".
static void expect(const char *ops, const char *want) {
  Heard *h = heard_new();
  Module *m = read_ops(ops, h->d);
  if (!m) heard(h, "a graph"), fail();
  Tensor *of = values_of(m->graphs, m->arena, h->d);
  if (!of) heard(h, "values"), fail();
  assert_string_equal(tensor_text(&of[m->graphs->last->out[0]->id], m->arena), want);
  module_free(m);
  heard_free(h);
}

// Checks that parsing or evaluating the ops fails with `message`.
static void expect_error(const char *ops, const char *message) {
  Heard *h = heard_new();
  Module *m = read_ops(ops, h->d);
  if (m) assert_null(values_of(m->graphs, m->arena, h->d));
  assert_true(heard(h, message));
  if (m) module_free(m);
  heard_free(h);
}

// Checks that the last op, for an adjoint of ones, has the adjoint `want` of its operand `i`.
static void expect_grad(const char *ops, int i, const char *want) {
  Heard *h = heard_new();
  Module *m = read_ops(ops, h->d);
  if (!m) heard(h, "a graph"), fail();
  Op *op = m->graphs->last;
  const Type *t = op->out[0]->type;
  Builder b = {.g = m->graphs, .d = h->d};
  Value *din[8] = {0}, *dout = build_fill(&b, t->dtype, t->ndim, t->dim, 1);
  assert_true(op_info[op->kind].grad(&b, op, &dout, din));
  assert_non_null(din[i]);
  assert_true(module_verify(m, h->d));
  Tensor *of = values_of(m->graphs, m->arena, h->d);
  assert_non_null(of);
  assert_string_equal(tensor_text(&of[din[i]->id], m->arena), want);
  module_free(m);
  heard_free(h);
}

#define CONSTANT(name, dtype, shape, value)                                                        \
  "%" name " = constant value=" value " shape=" shape " to=" dtype "\n"

// -- Element types -----------------------------------------------------------------------------

static void halves_round_to_the_nearest_and_to_even(void **state) {
  (void)state;
  assert_int_equal(double_to_half(1.0f), 0x3c00);
  assert_int_equal(double_to_half(-2.0f), 0xc000);
  assert_int_equal(double_to_half(65504.0f), 0x7bff);
  assert_int_equal(double_to_half(65519.0f), 0x7bff);
  assert_int_equal(double_to_half(65520.0f), 0x7c00); // halfway to the next power of two: infinity
  assert_int_equal(double_to_half(1 + 0x1p-11f), 0x3c00); // a tie, to even: down
  assert_int_equal(double_to_half(1 + 0x3p-11f), 0x3c02); // a tie, to even: up
  assert_int_equal(double_to_half(1 + 0x1p-11f + 0x1p-20f), 0x3c01);
  assert_int_equal(double_to_half(0x1p-24f), 0x0001);
  assert_int_equal(double_to_half(0x1p-25f), 0x0000);
  assert_int_equal(double_to_half(0x1.8p-24f), 0x0002);
  assert_int_equal(double_to_half(0x1.ffep-15f), 0x0400); // rounds up into the normal numbers
  assert_int_equal(double_to_half(-0.0f), 0x8000);
  assert_int_equal(double_to_half(INFINITY), 0x7c00);
  assert_true(isnan(half_to_float(double_to_half(NAN))));
  for (int h = 0; h < 0x10000; h++)
    if (!isnan(half_to_float((uint16_t)h)))
      assert_int_equal(double_to_half(half_to_float((uint16_t)h)), h);
}

static void bf16_rounds_to_the_nearest_and_to_even(void **state) {
  (void)state;
  assert_int_equal(double_to_bf16(1 + 0x1p-8f), 0x3f80);
  assert_int_equal(double_to_bf16(1 + 0x3p-8f), 0x3f82);
  assert_int_equal(double_to_bf16(0x1.fffffep127f), 0x7f80);
  assert_int_equal(double_to_bf16(0x1p-133f), 0x0001);
  for (int h = 0; h < 0x10000; h++)
    if (!isnan(bf16_to_float((uint16_t)h)))
      assert_int_equal(double_to_bf16(bf16_to_float((uint16_t)h)), h);
}

static void floats_are_rounded_as_doubles(void **state) {
  (void)state;
  static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (uint32_t h = 0; h < 0x10000; h++)
    for (size_t i = 0; i < sizeof low / sizeof *low; i++) {
      uint32_t bits = h << 16 | low[i];
      float x;
      memcpy(&x, &bits, sizeof x);
      // Above the largest number of bf16 it is that number.
      const float largest = 0x1.fep127f;
      float near = isfinite(x) && fabsf(x) > largest ? copysignf(largest, x) : x;
      uint16_t rounded;
      floats_to_bf16(&x, 1, &rounded);
      assert_int_equal(rounded, double_to_bf16(near));
    }
}

// By way of float the value would be 1 + 2^-11, a tie, and then 1.
static void a_double_is_rounded_once(void **state) {
  (void)state;
  expect(CONSTANT("x", "f64", "[1]", "[1.00048828218272]") "%y = cast %x to=f16", "[1.001]");
}

static void what_is_cast_is_cut_or_wraps(void **state) {
  (void)state;
  expect(CONSTANT("x", "f32", "[4]", "[2.9,-2.9,1e30,nan]") "%y = cast %x to=i64",
         "[2,-2,9223372036854775807,0]");
  expect(CONSTANT("x", "i32", "[3]", "[256,-1,300]") "%y = cast %x to=u8", "[0,255,44]");
  // The bits themselves.
  expect(CONSTANT("x", "f32", "[2]", "[1,-2]") "%y = bit_cast %x to=i32",
         "[1065353216,-1073741824]");
  expect(CONSTANT("x", "i64", "[1]", "[4607182418800017408]") "%y = bit_cast %x to=f64", "[1]");
  expect(CONSTANT("x", "i64", "[2]", "[256,0]") "%y = cast %x to=bool", "[true,false]");
  expect(CONSTANT("x", "u64", "[1]", "[18446744073709551615]") "%y = cast %x to=f32",
         "[1.8446744e+19]");
  // By way of double the value would be a tie, and the result 2^54 + 2^31.
  expect(CONSTANT("x", "i64", "[1]", "[18014399583223809]") "%y = cast %x to=f32", "[1.80144e+16]");
}

// -- Integers ----------------------------------------------------------------------------------

static void integers_divide_by_zero_with_an_error(void **state) {
  (void)state;
#define ZERO CONSTANT("x", "i32", "[2]", "[7,7]") CONSTANT("y", "i32", "[2]", "[1,0]")
  expect_error(ZERO "%z = div %x, %y", "div: division by zero at element 1");
  expect_error(ZERO "%z = mod %x, %y", "mod: division by zero at element 1");
  expect_error(ZERO "%z = fmod %x, %y", "fmod: division by zero at element 1");
  expect_error(CONSTANT("x", "i32", "[1]", "[0]")
                   CONSTANT("y", "i32", "[1]", "[-1]") "%z = pow %x, %y",
               "pow: division by zero at element 0");
}

static void the_least_integer_by_minus_one_wraps(void **state) {
  (void)state;
#define LEAST                                                                                      \
  CONSTANT("x", "i64", "[1]", "[-9223372036854775808]") CONSTANT("y", "i64", "[1]", "[-1]")
  expect(LEAST "%z = div %x, %y", "[-9223372036854775808]");
  expect(LEAST "%z = mod %x, %y", "[0]");
  expect(LEAST "%z = fmod %x, %y", "[0]");
  expect(LEAST "%z = mul %x, %y", "[-9223372036854775808]");
  expect(LEAST "%z = neg %x", "[-9223372036854775808]");
}

static void remainders_take_a_sign(void **state) {
  (void)state;
#define SEVENS(type)                                                                               \
  CONSTANT("x", type, "[4]", "[7,-7,7,-7]") CONSTANT("y", type, "[4]", "[3,3,-3,-3]")
  expect(SEVENS("i32") "%z = mod %x, %y", "[1,2,-2,-1]");
  expect(SEVENS("f32") "%z = mod %x, %y", "[1,2,-2,-1]");
  expect(SEVENS("i32") "%z = fmod %x, %y", "[1,-1,1,-1]");
  expect(SEVENS("f32") "%z = fmod %x, %y", "[1,-1,1,-1]");
  expect(CONSTANT("x", "f32", "[2]", "[-3,3]")
             CONSTANT("y", "f32", "[2]", "[3,-3]") "%z = mod %x, %y",
         "[0,-0]");
}

static void unsigned_integers_are_large(void **state) {
  (void)state;
#define LARGE                                                                                      \
  CONSTANT("x", "u64", "[2]", "[18446744073709551615,9]") CONSTANT("y", "u64", "[2]", "[2,4]")
  expect(LARGE "%z = div %x, %y", "[9223372036854775807,2]");
  expect(LARGE "%z = max %x, %y", "[18446744073709551615,9]");
  expect(LARGE "%z = mul %x, %y", "[18446744073709551614,36]");
  expect(LARGE "%z = greater %x, %y", "[true,true]");
  expect(LARGE "%z = clip %x low=0 high=inf", "[18446744073709551615,9]");
  expect(LARGE "%z = reduce_max %x axes=[0]", "[18446744073709551615]");
}

static void integers_refuse_fractions(void **state) {
  (void)state;
  expect_error(CONSTANT("x", "i32", "[1]", "[3]") "%y = scale %x by=0.5",
               "scale: attribute of integers must be an integer and is 0.5");
}

// -- Elementwise edges -------------------------------------------------------------------------

static void nan_is_kept_and_infinity_is_no_number(void **state) {
  (void)state;
#define EDGES CONSTANT("x", "f32", "[4]", "[nan,inf,-inf,0]")
  expect(EDGES "%y = relu %x", "[nan,inf,0,0]");
  expect(EDGES "%y = clip %x low=-1 high=1", "[nan,1,-1,0]");
  expect(EDGES "%y = max %x, %x", "[nan,inf,-inf,0]");
  expect(EDGES "%y = sigmoid %x", "[nan,1,0,0.5]");
  expect(EDGES "%y = softplus %x", "[nan,inf,0,0.6931472]");
  expect(EDGES "%y = is_nan %x", "[true,false,false,false]");
  expect(EDGES "%y = is_inf %x positive=true", "[false,true,false,false]");
  expect(EDGES "%y = is_inf %x negative=true positive=true", "[false,true,true,false]");
}

static void halves_round_to_even(void **state) {
  (void)state;
  expect(CONSTANT("x", "f32", "[4]", "[0.5,1.5,2.5,-0.5]") "%y = round %x", "[0,2,2,-0]");
}

static void powers_have_gradients_at_zero(void **state) {
  (void)state;
#define BASE CONSTANT("x", "f32", "[3]", "[0,-2,3]")
  expect_grad(BASE CONSTANT("p", "f32", "[1]", "[2]") "%q = broadcast %p shape=[3]\n"
                                                      "%y = pow %x, %q",
              0, "[0,-4,6]");
  expect_grad(BASE "%q = fill value=3 shape=[3] to=f32\n%y = pow %x, %q", 0, "[0,12,27]");
  expect_grad(BASE "%q = fill value=1 shape=[3] to=f32\n%y = pow %x, %q", 0, "[1,1,1]");
  // With a tensor of exponents, 0^0 and 0^2 have derivative 0, by x and by the exponent.
#define POWERS                                                                                     \
  CONSTANT("x", "f32", "[3]", "[0,0,1]") CONSTANT("p", "f32", "[3]", "[0,2,5]") "%y = pow %x, %p"
  expect_grad(POWERS, 0, "[0,0,5]");
  expect_grad(POWERS, 1, "[0,0,0]");
}

static void ties_are_shared(void **state) {
  (void)state;
#define TIES CONSTANT("x", "f32", "[3]", "[1,2,5]") CONSTANT("y", "f32", "[3]", "[1,3,4]")
  expect_grad(TIES "%z = max %x, %y", 0, "[0.5,0,1]");
  expect_grad(TIES "%z = max %x, %y", 1, "[0.5,1,0]");
  expect_grad(TIES "%z = min %x, %y", 0, "[0.5,1,0]");
  expect_grad(CONSTANT("x", "f32", "[4]", "[3,1,3,2]") "%y = reduce_max %x axes=[0]", 0,
              "[0.5,0,0.5,0]");
  expect_grad(CONSTANT("x", "f32", "[4]", "[3,1,1,1]") "%y = reduce_min %x axes=[0] keep=true", 0,
              "[0,0.33333334,0.33333334,0.33333334]");
}

static void edges_have_the_gradients_of_pytorch(void **state) {
  (void)state;
#define CORNERS CONSTANT("x", "f32", "[5]", "[-2,-1,0,1,2]")
  expect_grad(CORNERS "%y = abs %x", 0, "[-1,-1,0,1,1]");
  expect_grad(CORNERS "%y = relu %x", 0, "[0,0,0,1,1]");
  expect_grad(CORNERS "%y = clip %x low=-1 high=1", 0, "[0,0,1,0,0]");
  expect_grad(CORNERS "%y = leaky_relu %x slope=0.5", 0, "[0.5,0.5,0.5,1,1]");
}

static void products_have_gradients_with_zeros(void **state) {
  (void)state;
  expect_grad(CONSTANT("x", "f32", "[3,3]", "[2,3,4,2,0,4,0,3,0]") "%y = reduce_prod %x axes=[1]",
              0, "[12,8,6,0,8,0,0,0,0]");
}

// -- Shape -------------------------------------------------------------------------------------

// Checks that the einsum of the last op is `want`.
static void expect_einsum_in(Module *m, Heard *h, const char *want) {
  if (!m) heard(h, "a graph"), fail();
  Dims dims;
  assert_true(op_dims(m->graphs->last, &dims, h->d));
  assert_string_equal(dims_text(m->arena, &dims), want);
  module_free(m);
  heard_free(h);
}

static void expect_einsum(const char *ops, const char *want) {
  Heard *h = heard_new();
  expect_einsum_in(read_ops(ops, h->d), h, want);
}

static void reshapes_say_what_survives(void **state) {
  (void)state;
#define RESHAPE(from, to) "%x = fill shape=" from " to=f32\n%y = reshape %x shape=" to
  expect_einsum(RESHAPE("[4,8,16]", "[32,16]"), "a b c -> (a b) c");
  expect_einsum(RESHAPE("[4,48]", "[4,3,16]"), "a (b c) -> a b c");
  expect_einsum(RESHAPE("[4,6]", "[2,12]"), "(a b) c -> a (b c)");
  expect_einsum(RESHAPE("[5,4,6]", "[5,8,3]"), "a b (c d) -> a (b c) d");
  expect_einsum(RESHAPE("[5,4,6]", "[5,6,4]"), "a b^ c^ -> a d^ e^");
  expect_einsum(RESHAPE("[2,3]", "[1,2,1,3,1]"), "a b -> () a () b ()");
  expect_einsum(RESHAPE("[1,1]", "[]"), "() () -> ");
}

// One row on each of two ranks keeps the letter of the two global rows; a global 1 has no letter.
static void parts_are_reshaped_as_the_whole(void **state) {
  (void)state;
#define PART(from, to, shape)                                                                      \
  "module phase=local\nmesh @m devices=0-1 (dp=2)\n"                                               \
  "graph @main entry (%x: f32" from " input \"x\") {\n"                                            \
  "  %y = reshape %x shape=" shape " : f32" shape to " split=[a]\n  return output \"y\" %y\n}\n"
  struct {
    const char *text, *einsum;
  } cases[] = {
      {PART("[1,6] {S(0)}", " {S(1)}", "[1,2,3]"), "a (b c) -> () (a b) c"},
      {PART("[1,6] {S(0)}", " {S(0)}", "[1,2,3]"), "a (b c) -> a b c"},
      {PART("[1,6] {S(0)}", " {S(0)}", "[6]"), "a b -> (a b)"},
      {PART("[1,1,6] {S(1)}", " {S(0)}", "[1,6]"), "() a b -> a b"},
      {PART("[3] {S(0)}", " {S(0)}", "[1,3]"), "(a b) -> a b"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    Heard *h = heard_new();
    const char *text = cases[i].text;
    expect_einsum_in(module_parse("test.nn", text, strlen(text), h->d), h, cases[i].einsum);
  }
}

static void slices_go_backwards(void **state) {
  (void)state;
#define FIVE CONSTANT("x", "i32", "[5]", "[10,11,12,13,14]")
  expect(FIVE "%y = slice %x starts=[4] steps=[-2] shape=[3]", "[14,12,10]");
  expect(FIVE "%y = slice %x starts=[1] steps=[3] shape=[2]", "[11,14]");
  expect_error(FIVE "%y = slice %x starts=[4] steps=[-2] shape=[4]",
               "slice: 4 elements from 4 by -2 are not within 5");
  expect_error(FIVE "%y = slice %x starts=[0] steps=[0] shape=[2]", "are not within 5");
  expect_error(FIVE "%y = slice %x starts=[5] steps=[1] shape=[1]", "are not within 5");
  expect_grad(
      CONSTANT("x", "f32", "[5]", "[0,0,0,0,0]") "%y = slice %x starts=[4] steps=[-2] shape=[2]", 0,
      "[0,0,1,0,1]");
}

static void pads_repeat_what_is_left(void **state) {
  (void)state;
#define FOUR CONSTANT("x", "f32", "[4]", "[1,2,3,4]")
  expect(FOUR "%y = pad %x low=[2] shape=[7] mode=\"constant\" value=9", "[9,9,1,2,3,4,9]");
  expect(FOUR "%y = pad %x low=[3] shape=[10] mode=\"reflect\"", "[4,3,2,1,2,3,4,3,2,1]");
  expect(FOUR "%y = pad %x low=[2] shape=[7] mode=\"edge\"", "[1,1,1,2,3,4,4]");
  expect(FOUR "%y = pad %x low=[2] shape=[9] mode=\"wrap\"", "[3,4,1,2,3,4,1,2,3]");
  expect(FOUR "%y = pad %x low=[-1] shape=[5] mode=\"constant\" value=9", "[2,3,4,9,9]");
  expect(FOUR "%y = pad %x low=[-1] shape=[5] mode=\"reflect\"", "[2,3,4,3,2]");
  expect(FOUR "%y = pad %x low=[1] shape=[3] mode=\"constant\" value=9", "[9,1,2]");
  expect_grad(FOUR "%y = pad %x low=[1] shape=[6] mode=\"reflect\"", 0, "[1,2,2,1]");
  expect_grad(FOUR "%y = pad %x low=[-1] shape=[4] mode=\"constant\"", 0, "[0,1,1,1]");
  expect_error(FOUR "%y = pad %x low=[-4] shape=[2] mode=\"edge\"",
               "pad: nothing is left of dimension 0 to pad with");
  expect_error(FOUR "%y = pad %x low=[1] shape=[6] mode=\"mirror\"",
               "pad: mode 'mirror' is none of constant, reflect, edge, wrap");
}

static void triangles_have_offsets(void **state) {
  (void)state;
#define SQUARE CONSTANT("x", "i32", "[3,3]", "[1,2,3,4,5,6,7,8,9]")
  expect(SQUARE "%y = trilu %x upper=true", "[1,2,3,0,5,6,0,0,9]");
  expect(SQUARE "%y = trilu %x upper=true k=1", "[0,2,3,0,0,6,0,0,0]");
  expect(SQUARE "%y = trilu %x k=-1", "[0,0,0,4,0,0,7,8,0]");
}

// -- Lookup and scans --------------------------------------------------------------------------

static void indices_count_from_the_end_and_add_up(void **state) {
  (void)state;
#define ROWS CONSTANT("x", "f32", "[3,2]", "[1,2,3,4,5,6]")
  expect(ROWS CONSTANT("i", "i64", "[3]", "[-1,0,-1]") "%y = gather %x, %i axis=0",
         "[5,6,1,2,5,6]");
  expect_grad(ROWS CONSTANT("i", "i64", "[3]", "[-1,0,-1]") "%y = gather %x, %i axis=0", 0,
              "[1,1,0,0,2,2]");
  expect_error(ROWS CONSTANT("i", "i32", "[2]", "[0,3]") "%y = gather %x, %i axis=0",
               "gather: index 3 at element 1 is not one of -3 to 2");
  expect_error(ROWS CONSTANT("i", "i32", "[1]", "[-3]") "%y = gather %x, %i axis=1",
               "gather: index -3 at element 0 is not one of -2 to 1");
}

static void sums_run_both_ways(void **state) {
  (void)state;
#define RUN CONSTANT("x", "i32", "[4]", "[1,2,3,4]")
  expect(RUN "%y = cumsum %x axis=0", "[1,3,6,10]");
  expect(RUN "%y = cumsum %x axis=0 exclusive=true", "[0,1,3,6]");
  expect(RUN "%y = cumsum %x axis=0 reverse=true", "[10,9,7,4]");
  expect(RUN "%y = cumsum %x axis=0 exclusive=true reverse=true", "[9,7,4,0]");
}

static void the_first_or_the_last_of_equals_is_found(void **state) {
  (void)state;
#define EQUALS CONSTANT("x", "f32", "[4]", "[2,5,5,1]")
  expect(EQUALS "%y = arg_max %x axis=0", "[1]");
  expect(EQUALS "%y = arg_max %x axis=0 last=true", "[2]");
  expect(CONSTANT("x", "f32", "[4]", "[2,nan,5,nan]") "%y = arg_max %x axis=0", "[1]");
  expect(CONSTANT("x", "f32", "[4]", "[2,nan,5,nan]") "%y = reduce_max %x axes=[0]", "[nan]");
  expect_error("%x = fill shape=[2,0] to=f32\n%y = arg_max %x axis=1",
               "arg_max: dimension 1 has no elements");
}

// -- Random numbers ----------------------------------------------------------------------------

// The test vectors of Random123, kat_vectors.
static void philox_is_philox(void **state) {
  (void)state;
  uint32_t out[4], ones[4] = {~0u, ~0u, ~0u, ~0u}, zeros[4] = {0};
  random_philox(zeros, zeros, out);
  assert_int_equal(out[0], 0x6627e8d5);
  assert_int_equal(out[1], 0xe169c58d);
  assert_int_equal(out[2], 0xbc57ac4c);
  assert_int_equal(out[3], 0x9b00dbd8);
  random_philox(ones, ones, out);
  assert_int_equal(out[0], 0x408f276d);
  assert_int_equal(out[1], 0x41c83b0e);
  assert_int_equal(out[2], 0xa20bc7c6);
  assert_int_equal(out[3], 0x6d5451fd);
}

static void the_runtime_draws_the_same_numbers(void **state) {
  (void)state;
  for (int64_t i = 0; i < 1000; i++) {
    int64_t key = random_key("fc.w"), element = i * i * i;
    assert_true(key == nnrt_random_key("fc.w"));
    assert_true(random_uniform(3, i, key, element) == nnrt_random_uniform(3, i, key, element));
    assert_true(random_normal(3, i, key, element) == nnrt_random_normal(3, i, key, element));
  }
}

static void numbers_are_spread_as_they_should(void **state) {
  (void)state;
  enum { COUNT = 100000 };
  double sum = 0, squares = 0, normal = 0, normal_squares = 0;
  for (int64_t i = 0; i < COUNT; i++) {
    double u = random_uniform(1, 2, 3, i), n = random_normal(1, 2, 3, i);
    assert_true(u >= 0 && u < 1);
    sum += u, squares += u * u, normal += n, normal_squares += n * n;
  }
  assert_true(fabs(sum / COUNT - 1.0 / 2) < 0.005);
  assert_true(fabs(squares / COUNT - 1.0 / 3) < 0.005);
  assert_true(fabs(normal / COUNT) < 0.015);
  assert_true(fabs(normal_squares / COUNT - 1) < 0.02);
}

static void dropout_keeps_and_scales(void **state) {
  (void)state;
#define SCALARS "%s = fill value=1 shape=[] to=i64\n%t = fill value=5 shape=[] to=i64\n"
  expect(FOUR SCALARS "%y = dropout %x, %s, %t ratio=0 key=1", "[1,2,3,4]");
  expect(FOUR SCALARS "%y = dropout %x, %s, %t ratio=1 key=1", "[0,0,0,0]");
  expect_error(FOUR SCALARS "%y = dropout %x, %s, %t ratio=1.5 key=1",
               "dropout: ratio 1.5 is not from 0 to 1");
  char want[64];
  double k[4];
  for (int i = 0; i < 4; i++)
    k[i] = random_uniform(5, 1, 9, i) >= 0.5 ? 2.0 : 0;
  snprintf(want, sizeof want, "[%g,%g,%g,%g]", k[0], 2 * k[1], 3 * k[2], 4 * k[3]);
  expect(FOUR SCALARS "%y = dropout %x, %s, %t ratio=0.5 key=9", want);
  snprintf(want, sizeof want, "[%g,%g,%g,%g]", k[0], k[1], k[2], k[3]);
  expect_grad(FOUR SCALARS "%y = dropout %x, %s, %t ratio=0.5 key=9", 0, want);
}

// -- Graphs that are called --------------------------------------------------------------------

// x^2 y + x, twice: the gradient by x is 2 x y + 1.
static void a_call_has_the_gradient_of_its_body(void **state) {
  (void)state;
  const char *text = "module phase=typed\n"
                     "graph @f(%x: f32[2], %y: f32[2]) {\n"
                     "  %s = square %x\n  %p = mul %s, %y\n  %z = add %p, %x\n  return %z\n}\n"
                     "graph @g() {\n" CONSTANT("x", "f32", "[2]", "[3,-1]")
                         CONSTANT("y", "f32", "[2]", "[2,5]") "%z = call @f %x, %y\n}\n";
  Heard *h = heard_new();
  Module *m = module_parse("test.nn", text, strlen(text), h->d);
  if (!m) heard(h, "a module"), fail();
  Graph *g = graph_find(m, "g");
  Op *op = g->last;
  Builder b = {.g = g, .d = h->d};
  Value *din[2] = {0}, *dout = build_fill(&b, DT_f32, 1, op->out[0]->type->dim, 1);
  assert_true(call_grad(&b, op, &dout, din));
  assert_true(module_verify(m, h->d));
  Tensor *of = values_of(g, m->arena, h->d);
  assert_non_null(of);
  assert_string_equal(tensor_text(&of[op->out[0]->id], m->arena), "[21,4]");
  assert_string_equal(tensor_text(&of[din[0]->id], m->arena), "[13,-9]");
  assert_string_equal(tensor_text(&of[din[1]->id], m->arena), "[9,1]");
  module_free(m);
  heard_free(h);
}

TEST_GROUP(reference) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(halves_round_to_the_nearest_and_to_even),
      cmocka_unit_test(bf16_rounds_to_the_nearest_and_to_even),
      cmocka_unit_test(floats_are_rounded_as_doubles),
      cmocka_unit_test(a_double_is_rounded_once),
      cmocka_unit_test(what_is_cast_is_cut_or_wraps),
      cmocka_unit_test(integers_divide_by_zero_with_an_error),
      cmocka_unit_test(the_least_integer_by_minus_one_wraps),
      cmocka_unit_test(remainders_take_a_sign),
      cmocka_unit_test(unsigned_integers_are_large),
      cmocka_unit_test(integers_refuse_fractions),
      cmocka_unit_test(nan_is_kept_and_infinity_is_no_number),
      cmocka_unit_test(halves_round_to_even),
      cmocka_unit_test(powers_have_gradients_at_zero),
      cmocka_unit_test(ties_are_shared),
      cmocka_unit_test(edges_have_the_gradients_of_pytorch),
      cmocka_unit_test(products_have_gradients_with_zeros),
      cmocka_unit_test(reshapes_say_what_survives),
      cmocka_unit_test(parts_are_reshaped_as_the_whole),
      cmocka_unit_test(slices_go_backwards),
      cmocka_unit_test(pads_repeat_what_is_left),
      cmocka_unit_test(triangles_have_offsets),
      cmocka_unit_test(indices_count_from_the_end_and_add_up),
      cmocka_unit_test(sums_run_both_ways),
      cmocka_unit_test(the_first_or_the_last_of_equals_is_found),
      cmocka_unit_test(philox_is_philox),
      cmocka_unit_test(the_runtime_draws_the_same_numbers),
      cmocka_unit_test(numbers_are_spread_as_they_should),
      cmocka_unit_test(dropout_keeps_and_scales),
      cmocka_unit_test(a_call_has_the_gradient_of_its_body),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
