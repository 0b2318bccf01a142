// Einsums: parsing them, matching shapes, and the letters that split dimensions.

#include "unit.h"

#include "ir/analysis/work.h"
#include "ir/build.h"
#include "ir/op.h"

typedef struct Bench {
  Heard *h;
  Module *m;
  Graph *g;
  Arena *a;
} Bench;

static int set_up(void **state) {
  Bench *t = calloc(1, sizeof *t);
  t->h = heard_new();
  t->m = module_new();
  t->a = t->m->arena;
  t->g = graph_new(t->m, "main", true);
  *state = t;
  return 0;
}

static int tear_down(void **state) {
  Bench *t = *state;
  module_free(t->m);
  heard_free(t->h);
  free(t);
  return 0;
}

static Value *tensor(Bench *t, DType dtype, int ndim, const int64_t *dim) {
  return graph_param(t->g, "p", type_new(t->m, dtype, ndim, dim), ROLE_input,
                     loc_node(t->a, "m.onnx", "init"));
}
#define F32(...)                                                                                   \
  tensor(t, DT_f32, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                     \
         (int64_t[]){__VA_ARGS__})
#define SCALAR(dtype) tensor(t, dtype, 0, NULL)

// An op to match with an einsum; its kind is only for messages.
static Op *reader(Bench *t, Value *const *in, int n_in) {
  Op *op = arena_one(t->a, Op);
  op->kind = OP_concat;
  op->graph = t->g;
  op->n_in = n_in;
  op->in = arena_array(t->a, Use, n_in);
  for (int i = 0; i < n_in; i++)
    op->in[i].value = in[i];
  return op;
}

static Dims dims;

static int size_of(char letter) {
  return (int)dims.letter[dims_find(&dims, letter)].size;
}

static void a_star_becomes_the_leading_dimensions(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(4, 8, 16), F32(16, 32)));
  assert_true(dims_parse(&dims, op, "* k, k n -> * n", t->h->d));
  assert_string_equal(dims_text(t->a, &dims), "0 1 k, k n -> 0 1 n");
  assert_int_equal(size_of('0'), 4);
  assert_int_equal(size_of('1'), 8);
  assert_int_equal(size_of('n'), 32);
  assert_int_equal(dims_length(&dims, &dims.out[0], 2), 32);
}

static void a_star_may_stand_for_nothing(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(16), F32(16, 32)));
  assert_true(dims_parse(&dims, op, "* k, k n -> * n", t->h->d));
  assert_string_equal(dims_text(t->a, &dims), "k, k n -> n");
}

static void scalars_are_empty_terms(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(3, 5), SCALAR(DT_i64), SCALAR(DT_i64)));
  assert_true(dims_parse(&dims, op, "*, ,  -> *", t->h->d));
  assert_string_equal(dims_text(t->a, &dims), "0 1, ,  -> 0 1");
  op = reader(t, IN(F32(3, 5)));
  assert_true(dims_parse(&dims, op, "* -> ", t->h->d));
  assert_int_equal(dims.out[0].ndim, 0);
  op = reader(t, IN(SCALAR(DT_f32)));
  assert_true(dims_parse(&dims, op, " -> a", t->h->d));
  assert_int_equal(dims.n_in, 1);
}

static void nothing_before_the_arrow_is_no_operand_when_there_is_none(void **state) {
  Bench *t = *state;
  assert_true(dims_parse(&dims, reader(t, NULL, 0), " -> a b", t->h->d));
  assert_int_equal(dims.n_in, 0);
  assert_int_equal(dims.out[0].ndim, 2);
}

static void a_product_is_known_when_all_but_one_factor_are(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(32, 16), F32(4)));
  assert_true(dims_parse(&dims, op, "(a b) c, a -> a b c", t->h->d));
  assert_int_equal(size_of('b'), 8);
  op = reader(t, IN(F32(32, 16)));
  assert_true(dims_parse(&dims, op, "(a b) c -> a b c", t->h->d));
  assert_int_equal(size_of('b'), -1);
  dims_size(&dims, 'a', 4);
  dims_size(&dims, 'b', 8);
  assert_int_equal(dims_length(&dims, &dims.in[0], 0), 32);
}

static void a_one_has_no_letter(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(4, 1)));
  assert_true(dims_parse(&dims, op, "a 1 -> a b", t->h->d));
  assert_string_equal(dims_text(t->a, &dims), "a () -> a b");
  op = reader(t, IN(F32(4, 3)));
  assert_false(dims_parse(&dims, op, "a 1 -> a b", t->h->d));
  assert_true(heard(t->h, "concat: dimension 1 of operand 0 must be 1: it is f32[4,3]"));
}

static void the_last_operand_repeats(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(4, 2), F32(4), F32(4), F32(4)));
  assert_true(dims_parse(&dims, op, "a b, a... -> a", t->h->d));
  assert_string_equal(dims_text(t->a, &dims), "a b, a, a, a -> a");
  op = reader(t, IN(F32(4, 2))); // or is absent
  assert_true(dims_parse(&dims, op, "a b, a... -> a", t->h->d));
  assert_int_equal(dims.n_in, 1);
}

static void inner_dimensions_that_differ_are_named(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(4, 768), F32(3072, 768)));
  assert_false(dims_parse(&dims, op, "* k, k n -> * n", t->h->d));
  assert_true(heard(t->h, "concat: inner dimensions differ: 768 and 3072, of f32[4,768] and "
                          "f32[3072,768]"));
  assert_true(heard(t->h, "m.onnx:init: note: '%p.1' is f32[3072,768] and comes from here"));
}

static void other_dimensions_that_differ_are_named(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(4, 8), F32(4, 9)));
  assert_false(dims_parse(&dims, op, "*, * -> *", t->h->d));
  assert_true(heard(t->h, "dimension 1 of operand 0 and dimension 1 of operand 1 differ: 8 and 9, "
                          "of f32[4,8] and f32[4,9]"));
}

static void ranks_that_do_not_fit_are_named(void **state) {
  Bench *t = *state;
  assert_false(dims_parse(&dims, reader(t, IN(F32(4, 8), F32(8))), "*, * -> *", t->h->d));
  assert_true(heard(t->h, "numbers of dimensions differ: operand 0 is f32[4,8], operand 1 is "
                          "f32[8]"));
  assert_false(dims_parse(&dims, reader(t, IN(SCALAR(DT_f32))), "* n -> *", t->h->d));
  assert_true(heard(t->h, "operand 0 is f32[]; it must have at least 1 dimension\n"));
  assert_false(dims_parse(&dims, reader(t, IN(F32(2, 2, 2))), "a b -> a", t->h->d));
  assert_true(heard(t->h, "operand 0 is f32[2,2,2]; it must have 2 dimensions\n"));
}

static void a_product_that_does_not_divide_is_named(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(4), F32(30)));
  assert_false(dims_parse(&dims, op, "a, (a b) -> a b", t->h->d));
  assert_true(heard(t->h, "dimension 0 of operand 1 must be a multiple of 4: it is f32[30]"));
}

static void a_dimension_is_split_by_its_first_factor_of_some_length(void **state) {
  Bench *t = *state;
  Op *op = reader(t, IN(F32(24, 6), F32(1, 4, 6)));
  assert_true(dims_parse(&dims, op, "(a b c) d^, a b c -> d", t->h->d));
  Term *x = &dims.in[0];
  assert_int_equal(dims_splitter(&dims, x, 0, 2), dims_find(&dims, 'b'));
  assert_int_equal(dims_splitter(&dims, x, 0, 3), -1); // 4 is not divisible
  assert_int_equal(dims_splitter(&dims, x, 1, 2), -1); // d cannot be split
  assert_int_equal(dims_position(&dims, x, dims_find(&dims, 'b')), 0);
  assert_int_equal(dims_position(&dims, x, dims_find(&dims, 'c')), -2);
  assert_int_equal(dims_position(&dims, x, dims_find(&dims, 'd')), 1);
  assert_int_equal(dims_position(&dims, &dims.in[1], dims_find(&dims, 'd')), -1);
}

// Operand counts, element types and attributes, which the einsum does not check.
static Op *make(Bench *t, OpKind kind, Value *const *in, int n_in, Attrs attrs) {
  return op_new(t->g, NULL, kind, in, n_in, attrs.at, attrs.n, (Origin){0}, t->h->d);
}

static void results_have_the_types_of_the_row(void **state) {
  Bench *t = *state;
  Value *x = F32(4, 8, 16), *n = F32(16);
  Op *op = make(t, OP_layer_norm, IN(x, n, n), ATTRS(a_f("eps", 1e-5)));
  assert_int_equal(op->n_out, 3);
  assert_ptr_equal(op->out[0]->type, x->type);
  assert_string_equal(type_text(t->a, op->out[2]->type), "f32[4,8]");
  Value *labels = tensor(t, DT_i64, 2, (int64_t[]){4, 8});
  op = make(t, OP_cross_entropy, IN(x, labels), NO_ATTRS);
  assert_string_equal(type_text(t->a, op->out[1]->type), "f32[4,8]");
  op = make(t, OP_cast, IN(x), ATTRS(a_t("to", DT_i8)));
  assert_string_equal(type_text(t->a, op->out[0]->type), "i8[4,8,16]");
  op = make(t, OP_greater, IN(x, x), NO_ATTRS);
  assert_string_equal(type_text(t->a, op->out[0]->type), "bool[4,8,16]");
}

static void operands_that_are_too_many_or_of_a_wrong_type_are_refused(void **state) {
  Bench *t = *state;
  Value *x = F32(4), *i = tensor(t, DT_i64, 1, (int64_t[]){4});
  assert_null(make(t, OP_add, IN(x), NO_ATTRS));
  assert_true(heard(t->h, "add: takes 2 operands, not 1"));
  assert_null(make(t, OP_add, IN(x, i), NO_ATTRS));
  assert_true(heard(t->h, "add: element types differ: operand 0 is f32, operand 1 is i64"));
  assert_null(make(t, OP_gelu, IN(i), NO_ATTRS));
  assert_true(heard(t->h, "gelu: operand 0 is i64; it must be a floating-point type"));
  assert_null(make(t, OP_where, IN(x, x, x), NO_ATTRS));
  assert_true(heard(t->h, "where: operand 0 is f32; it must be bool"));
  assert_null(make(t, OP_pack, NULL, 0, NO_ATTRS));
  assert_true(heard(t->h, "pack: takes at least 1 operand, not 0"));
}

static void attributes_that_the_row_lacks_are_refused(void **state) {
  Bench *t = *state;
  Value *x = F32(4);
  assert_null(make(t, OP_relu, IN(x), ATTRS(a_f("slope", 1))));
  assert_true(heard(t->h, "relu: no attribute 'slope'"));
  assert_null(make(t, OP_scale, IN(x), ATTRS(a_i("by", 1))));
  assert_true(heard(t->h, "scale: attribute 'by' must be a number"));
}

static void a_call_checks_its_callee(void **state) {
  Bench *t = *state;
  Graph *body = graph_new(t->m, "body", false);
  graph_param(body, "p", type_new(t->m, DT_f32, 1, (int64_t[]){4}), ROLE_none, NULL);
  graph_output(body, body->params[0], NULL);
  assert_null(op_new_call(t->g, NULL, OP_call, body, NULL, 0, (Origin){0}, t->h->d));
  assert_true(heard(t->h, "call: '@body' takes 1 operands, not 0"));
  assert_null(op_new_call(t->g, NULL, OP_call, body, IN(F32(5)), (Origin){0}, t->h->d));
  assert_true(heard(t->h, "call: operand 0 of '@body' is f32[4], not f32[5]"));
  assert_non_null(op_new_call(t->g, NULL, OP_call, body, IN(F32(4)), (Origin){0}, t->h->d));
}

static void flops_come_from_the_letters(void **state) {
  Bench *t = *state;
  Op *op = make(t, OP_linear, IN(F32(4, 8, 16), F32(16, 32)), NO_ATTRS);
  assert_true(op_flops(op) == 2.0 * 4 * 8 * 16 * 32);
  op = make(t, OP_mul, IN(F32(4, 8), F32(4, 8)), NO_ATTRS);
  assert_true(op_flops(op) == 3.0 * 4 * 8);
}

// op.c and infer.c can read the columns of every row.
static void every_row_can_be_read(void **state) {
  (void)state;
  for (int kind = 0; kind < N_OPS; kind++) {
    OpKind again;
    assert_true(op_kind_parse(op_info[kind].name, &again) && again == (OpKind)kind);
    int n;
    const AttrSpec *spec = op_attr_specs((OpKind)kind, &n);
    for (int i = 0; i < n; i++)
      assert_true(spec[i].name[0] && strchr("ifbstId", spec[i].kind));
    assert_true(!op_info[kind].formula || op_info[kind].reference == elementwise_ref);
    assert_true((op_info[kind].dims[0] != '\0') == (op_info[kind].rule == from_row));
  }
}

static const Dims *kept(Bench *t, const Op *op) {
  return op_dims_kept(op, t->a, t->h->d);
}

// Ops alike share one einsum; another operand type or attribute gets another one.
static void ops_that_are_alike_share_their_einsum(void **state) {
  Bench *t = *state;
  Value *x = F32(4, 6), *y = F32(4, 6), *w = F32(6, 8), *square = F32(6, 6);
  Op *first = make(t, OP_linear, IN(x, w), NO_ATTRS),
     *alike = make(t, OP_linear, IN(y, w), NO_ATTRS);
  Op *other = make(t, OP_linear, IN(x, square), NO_ATTRS);
  Op *turned = make(t, OP_linear, IN(x, square), ATTRS(a_b("trans", true)));
  assert_ptr_equal(kept(t, first), kept(t, alike));
  assert_ptr_not_equal(kept(t, first), kept(t, other));
  assert_ptr_not_equal(kept(t, turned), kept(t, other));
  Dims copy;
  assert_true(op_dims(alike, &copy, t->h->d));
  assert_string_equal(dims_text(t->a, &copy), dims_text(t->a, kept(t, first)));
  assert_string_equal(dims_text(t->a, kept(t, turned)), "0 k, n k -> 0 n");
}

// With local types the einsum of a reshape depends on the sharding of the global value.
static void parts_that_lie_otherwise_are_not_alike(void **state) {
  Bench *t = *state;
  const char *text =
      "module phase=local\nmesh @m devices=0-1 (dp=2)\n"
      "graph @main entry (%x: f32[1,6] {S(0)} input \"x\", %y: f32[1,6] {B} input \"y\") {\n"
      "  %a = reshape %x shape=[1,2,3] : f32[1,2,3] {S(0)} split=[a]\n"
      "  %b = reshape %y shape=[1,2,3] : f32[1,2,3] {B}\n"
      "  return output \"a\" %a, output \"b\" %b\n}\n";
  Module *m = module_parse("parts", text, strlen(text), t->h->d);
  assert_non_null(m);
  const Op *cut = m->graphs->first, *whole = cut->next;
  const Dims *of_cut = op_dims_kept(cut, t->a, t->h->d),
             *of_whole = op_dims_kept(whole, t->a, t->h->d);
  assert_string_equal(dims_text(t->a, of_cut), "a (b c) -> a b c");
  assert_string_equal(dims_text(t->a, of_whole), "() (a b) -> () a b");
  module_free(m);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

TEST_GROUP(dims) {
  const struct CMUnitTest tests[] = {
      TEST(a_star_becomes_the_leading_dimensions),
      TEST(a_star_may_stand_for_nothing),
      TEST(scalars_are_empty_terms),
      TEST(nothing_before_the_arrow_is_no_operand_when_there_is_none),
      TEST(a_product_is_known_when_all_but_one_factor_are),
      TEST(a_one_has_no_letter),
      TEST(the_last_operand_repeats),
      TEST(inner_dimensions_that_differ_are_named),
      TEST(other_dimensions_that_differ_are_named),
      TEST(ranks_that_do_not_fit_are_named),
      TEST(a_product_that_does_not_divide_is_named),
      TEST(a_dimension_is_split_by_its_first_factor_of_some_length),
      TEST(results_have_the_types_of_the_row),
      TEST(operands_that_are_too_many_or_of_a_wrong_type_are_refused),
      TEST(attributes_that_the_row_lacks_are_refused),
      TEST(a_call_checks_its_callee),
      TEST(flops_come_from_the_letters),
      TEST(ops_that_are_alike_share_their_einsum),
      TEST(parts_that_lie_otherwise_are_not_alike),
      TEST(every_row_can_be_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
