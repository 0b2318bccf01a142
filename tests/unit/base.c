// The library of all parts, passes/base: arenas, strings, vectors and messages.

#include "unit.h"

#include <inttypes.h>
#include <limits.h>

#include "base/arena.h"
#include "base/shared_bytes.h"
#include "base/str.h"
#include "base/table.h"
#include "base/vec.h"

static void arena_blocks_are_zeroed_aligned_and_apart(void **state) {
  (void)state;
  Arena *a = arena_new();
  char *last = NULL;
  for (size_t size = 1; size < 100000; size = size * 3 + 1) {
    char *block = arena_alloc(a, size);
    assert_int_equal((uintptr_t)block % 16, 0);
    assert_ptr_not_equal(block, last);
    for (size_t i = 0; i < size; i++)
      assert_int_equal(block[i], 0);
    memset(block, 0x5a, size);
    last = block;
  }
  assert_memory_equal(arena_copy(a, "seven", 6), "seven", 6);
  arena_free(a);
  arena_free(NULL);
}

static void arena_chunks_begin_at_a_line_of_the_cache(void **state) {
  (void)state;
  for (size_t size = 16; size < (16 << 20); size *= 4) {
    Arena *a = arena_new();
    assert_int_equal((uintptr_t)arena_alloc(a, size) % 64, 0);
    // A block that is larger than the rest of the chunk has a chunk of its own.
    assert_int_equal((uintptr_t)arena_alloc(a, 2 * size + 8192) % 64, 0);
    arena_free(a);
  }
}

static void arena_counts_what_was_asked_for(void **state) {
  (void)state;
  Arena *a = arena_new();
  arena_alloc(a, 10);
  arena_array(a, int64_t, 100);
  assert_int_equal(arena_used(a), 10 + 800);
  arena_free(a);
}

static void shared_bytes_outlive_their_first_arena(void **state) {
  (void)state;
  Arena *a = arena_new(), *b = arena_new(), *c = arena_new();
  const char *of = shared_copy(a, "cos", 4);
  assert_int_equal((uintptr_t)of % 16, 0);
  assert_ptr_equal(shared_keep(b, of), of);
  assert_null(shared_result(of, "bf16"));
  shared_set_result(of, "bf16", shared_copy(a, "c", 2));
  shared_set_result(of, "transpose", shared_copy(a, "soc", 4));
  arena_free(a);
  // The second arena has both, and a third one a result alone.
  assert_string_equal(of, "cos");
  assert_string_equal(shared_result(of, "bf16"), "c");
  const char *kept = shared_keep(c, shared_result(of, "transpose"));
  arena_free(b);
  assert_string_equal(kept, "soc");
  arena_free(c);
}

static void strings_are_formatted_and_compared(void **state) {
  (void)state;
  Arena *a = arena_new();
  assert_string_equal(str_format(a, "%s-%d", "x", 12), "x-12");
  assert_string_equal(str_copy_n(a, "prefix", 3), "pre");
  assert_null(str_copy(a, NULL));
  assert_true(str_equal("a", "a") && str_equal(NULL, NULL));
  assert_false(str_equal("a", NULL) || str_equal("a", "b"));
  assert_true(str_starts("layer.0", "layer.") && !str_starts("lay", "layer"));
  assert_true(str_ends("w.bin", ".bin") && !str_ends("bin", ".bin"));
  assert_true(str_glob("*.weight", "h.0.weight") && str_glob("h.[0-3].?", "h.2.w"));
  assert_false(str_glob("h.[0-3].?", "h.4.w"));
  arena_free(a);
}

// Formats as printf does, in an arena and in a buffer.
#define assert_formats(...)                                                                        \
  do {                                                                                             \
    char want[1024];                                                                               \
    snprintf(want, sizeof want, __VA_ARGS__);                                                      \
    StrBuf buffer = {.arena = a};                                                                  \
    strbuf_addf(&buffer, __VA_ARGS__);                                                             \
    assert_string_equal(buffer.at, want);                                                          \
    assert_int_equal(buffer.n, strlen(want));                                                      \
    assert_string_equal(str_format(a, __VA_ARGS__), want);                                         \
  } while (0)

static void formats_are_those_of_printf(void **state) {
  (void)state;
  Arena *a = arena_new();
  const char open[] = {'o', 'p', 'e', 'n'}; // without an end
  assert_formats("%%%c%s%%", 'c', "");
  assert_formats("%d %d %d %d", 0, -7, INT_MAX, INT_MIN);
  assert_formats("%" PRId64 " %" PRId64 " %" PRId64, (int64_t)10, INT64_MAX, INT64_MIN);
  assert_formats("%.*s|%.*s|%.*s", 4, open, 0, "none", 9, "short");
  assert_formats("%5d %-4s| %.3s %g %zu %lld %x", 12, "x", "abcdef", 0.25, (size_t)9, 1ll, 255);
  assert_formats("%s %*d %.*f", "mixed", 6, -12, 2, 1.0);
  assert_formats("%i %u %u %lu %zu %zd %lld %llu", -1, 0u, UINT_MAX, 1ul, SIZE_MAX, (ssize_t)-2,
                 -3ll, 18446744073709551615ull);
  assert_formats("100%%%d%%%s", 1, "%d");
  assert_formats("%d%03d%s", 1, 2, "after a number with a width");
  // Around the length of a short text, by plain text, a string and a number at its end.
  char text[300];
  for (int n = 240; n < 300; n++) {
    memset(text, 'x', (size_t)n);
    text[n] = '\0';
    assert_formats("%s", text);
    assert_formats("%d%s<>", n, text);
    assert_formats("%s%d", text, -1234567);
  }
  arena_free(a);
}

static void a_buffer_grows_past_any_single_piece(void **state) {
  (void)state;
  Arena *a = arena_new();
  StrBuf b = {.arena = a};
  for (int i = 0; i < 1000; i++)
    strbuf_addf(&b, "%03d,", i);
  assert_int_equal(b.n, 4000);
  assert_string_equal(b.at + 3996, "999,");
  char large[1000];
  memset(large, 'x', sizeof large - 1);
  large[sizeof large - 1] = '\0';
  strbuf_addf(&b, "<%s>", large);
  assert_int_equal(b.n, 4000 + 999 + 2);
  assert_true(str_ends(b.at, "x>"));
  arena_free(a);
}

static void a_vector_keeps_its_elements_when_it_grows(void **state) {
  (void)state;
  Arena *a = arena_new();
  Vec(int64_t) v = {0};
  for (int i = 0; i < 1000; i++)
    vec_push(a, &v, (int64_t)i * i);
  assert_int_equal(v.n, 1000);
  for (int i = 0; i < 1000; i++)
    assert_int_equal(v.at[i], i * i);
  arena_free(a);
}

static void a_message_has_place_kind_and_text(void **state) {
  (void)state;
  Arena *a = arena_new();
  Heard *h = heard_new();
  assert_false(diag_error(h->d, loc_node(a, "m.onnx", "/fc1/MatMul"), "linear: %d and %d", 7, 8));
  diag_hint(h->d, "the weight looks transposed");
  diag_warning(h->d, loc_line(a, "x.nn", 3, 7), "odd");
  diag_caret(h->d, "\t%y = relu %x", 12, 2);
  assert_true(heard(h, "m.onnx:/fc1/MatMul: error: linear: 7 and 8\n"
                       "hint: the weight looks transposed\n"
                       "x.nn:3:7: warning: odd\n"
                       "  \t%y = relu %x\n"
                       "  \t          ^~\n"));
  assert_int_equal(diag_errors(h->d), 1);
  assert_int_equal(diag_warnings(h->d), 1);
  heard_free(h);
  arena_free(a);
}

static void a_derived_place_leads_back_to_the_model(void **state) {
  (void)state;
  Arena *a = arena_new();
  Heard *h = heard_new();
  const Loc *node = loc_node(a, "m.onnx", "/act/Gelu");
  const Loc *gradient = loc_from(a, loc_from(a, node, "gradient"), "all_reduce");
  assert_ptr_equal(loc_origin(gradient), node);
  // Both derivations lead to one location, which is shown once, with the nearest derivation.
  diag_error(h->d, gradient, "wrong");
  assert_true(heard(h, "m.onnx:/act/Gelu: error: wrong\n"
                       "m.onnx:/act/Gelu: note: derived from here (gradient)\n"));
  heard_free(h);
  arena_free(a);
}

static void a_quiet_diag_counts_and_says_nothing(void **state) {
  (void)state;
  Heard *h = heard_new();
  diag_quiet(h->d, true);
  diag_error(h->d, NULL, "not heard");
  diag_note(h->d, NULL, "nor this");
  diag_quiet(h->d, false);
  diag_error(h->d, NULL, "heard");
  assert_true(heard(h, "error: heard"));
  assert_string_equal(h->text, "error: heard\n");
  assert_int_equal(diag_errors(h->d), 2);
  heard_free(h);
}

// A name identifies one thing of each kind, and the first owner keeps it.
static void a_table_with_capacity_grows_as_well(void **state) {
  (void)state;
  Arena *a = arena_new();
  static const int capacity[] = {0, 1, 100, 1000};
  for (int c = 0; c < 4; c++) {
    Table *t = table_new_for(a, capacity[c]);
    int of[500];
    for (int i = 0; i < 500; i++)
      assert_null(table_add(t, i % 2, str_format(a, "layer.%d.weight", i / 2), &of[i]));
    for (int i = 0; i < 500; i++)
      assert_ptr_equal(table_find(t, i % 2, str_format(a, "layer.%d.weight", i / 2)), &of[i]);
    assert_null(table_find(t, 2, "layer.1.weight"));
    assert_ptr_equal(table_add(t, 0, "layer.1.weight", &of[7]), &of[2]);
  }
  arena_free(a);
}

static void a_table_finds_what_thousands_of_names_stand_for(void **state) {
  (void)state;
  enum { N = 3000 };
  static int thing[2 * N];
  Arena *a = arena_new();
  Table *t = table_new(a);
  assert_null(table_find(t, 0, "w0"));
  for (int i = 0; i < 2 * N; i++)
    assert_null(table_add(t, i % 2, str_format(a, "w%d", i / 2), &thing[i]));
  assert_ptr_equal(table_add(t, 1, "w7", &thing[0]), &thing[15]);
  for (int i = 0; i < 2 * N; i++)
    assert_ptr_equal(table_find(t, i % 2, str_format(a, "w%d", i / 2)), &thing[i]);
  assert_null(table_find(t, 2, "w7"));
  assert_null(table_find(t, 0, "w3000"));
  arena_free(a);
}

// Text for a terminal: characters that it would obey, and bytes that are no UTF-8, are escaped.
static void text_for_a_terminal_is_harmless_utf_8(void **state) {
  (void)state;
  static const struct {
    const char *bytes, *shown, *utf8;
  } rows[] = {
      {"plain", "plain", "plain"},
      {"größe 名前 🎲", "größe 名前 🎲", "größe 名前 🎲"},
      {"a\nb\tc\033[31m\177", "a\\x0ab\\x09c\\x1b[31m\\x7f", "a\nb\tc\033[31m\177"},
      // The control characters from U+0080 on, and U+00A0 after them.
      {"\xc2\x80\xc2\x9f\xc2\xa0", "\\xc2\\x80\\xc2\\x9f\xc2\xa0", "\xc2\x80\xc2\x9f\xc2\xa0"},
      // Right-to-left override, isolate, mark, end of a line.
      {"\xe2\x80\xae\xe2\x81\xa6\xd8\x9c\xe2\x80\xa8",
       "\\xe2\\x80\\xae\\xe2\\x81\\xa6\\xd8\\x9c\\xe2\\x80\\xa8",
       "\xe2\x80\xae\xe2\x81\xa6\xd8\x9c\xe2\x80\xa8"},
      // No UTF-8: lone bytes, a character cut off, the long form of '/', a surrogate, above
      // U+10FFFF.
      {"\xff\x80\xfe", "\\xff\\x80\\xfe", "\\xff\\x80\\xfe"},
      {"a\xe2\x80", "a\\xe2\\x80", "a\\xe2\\x80"},
      {"\xc0\xaf\xe0\x80\xaf", "\\xc0\\xaf\\xe0\\x80\\xaf", "\\xc0\\xaf\\xe0\\x80\\xaf"},
      {"\xed\xa0\x80", "\\xed\\xa0\\x80", "\\xed\\xa0\\x80"},
      {"\xf4\x90\x80\x80\xf8", "\\xf4\\x90\\x80\\x80\\xf8", "\\xf4\\x90\\x80\\x80\\xf8"},
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
  };
  Arena *a = arena_new();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_string_equal(str_shown(a, rows[i].bytes), rows[i].shown);
    assert_string_equal(str_utf8(a, rows[i].bytes, strlen(rows[i].bytes)), rows[i].utf8);
  }
  // Only the first bytes of a longer text.
  assert_string_equal(str_utf8(a, "ab\xc3\xb6", 3), "ab\\xc3");
  arena_free(a);
}

TEST_GROUP(base) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arena_blocks_are_zeroed_aligned_and_apart),
      cmocka_unit_test(arena_chunks_begin_at_a_line_of_the_cache),
      cmocka_unit_test(arena_counts_what_was_asked_for),
      cmocka_unit_test(shared_bytes_outlive_their_first_arena),
      cmocka_unit_test(strings_are_formatted_and_compared),
      cmocka_unit_test(formats_are_those_of_printf),
      cmocka_unit_test(text_for_a_terminal_is_harmless_utf_8),
      cmocka_unit_test(a_buffer_grows_past_any_single_piece),
      cmocka_unit_test(a_vector_keeps_its_elements_when_it_grows),
      cmocka_unit_test(a_table_finds_what_thousands_of_names_stand_for),
      cmocka_unit_test(a_table_with_capacity_grows_as_well),
      cmocka_unit_test(a_message_has_place_kind_and_text),
      cmocka_unit_test(a_derived_place_leads_back_to_the_model),
      cmocka_unit_test(a_quiet_diag_counts_and_says_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
