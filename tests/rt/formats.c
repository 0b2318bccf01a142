// The pure functions of the runtime: checksums, shuffling, element types, parts of tensors,
// schedules, JSON and safetensors.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "comm.h"
#include "groups.h"
#include "runtime.h"

// main of the runtime is not linked, so nothing needs nnrt_program.

static void checksums_are_the_published_ones(void **state) {
  (void)state;
  assert_int_equal(nnrt_crc32c(0, "123456789", 9), 0xE3069283u);
  assert_int_equal(nnrt_crc32c(0, "", 0), 0);
  assert_true(nnrt_xxh64("", 0, 0) == 0xEF46DB3751D8E999u);
  assert_true(nnrt_xxh64("abc", 3, 0) == 0x44BC2CF5AD770999u);
  const char *text = "Nobody inspects the spammish repetition"; // 39 bytes: all four lanes
  assert_true(nnrt_xxh64(text, 39, 0) == 0xFBCEA83C8A378BF1u);
}

static void a_shuffle_is_a_permutation(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 255, 256, 257, 1797, 70000};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int64_t n = sizes[s], same = 0, stays = 0;
    char *seen = calloc(1, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
      int64_t at = nnrt_shuffled(i, n, 7, 3);
      assert_in_range(at, 0, n - 1);
      assert_false(seen[at]);
      seen[at] = 1;
      stays += at == i;
      same += at == nnrt_shuffled(i, n, 7, 4);
    }
    free(seen);
    // A random permutation has one fixed point on average.
    if (n >= 100) assert_true(stays < 10 && same < 10);
  }
  assert_in_range(nnrt_shuffled(123456789012, (int64_t)1 << 40, 1, 1), 0, ((int64_t)1 << 40) - 1);
}

// Every order of three rows is about equally frequent.
static void a_shuffle_is_fair(void **state) {
  (void)state;
  int count[27] = {0};
  for (int64_t epoch = 0; epoch < 6000; epoch++)
    count[nnrt_shuffled(0, 3, 1, epoch) * 9 + nnrt_shuffled(1, 3, 1, epoch) * 3 +
          nnrt_shuffled(2, 3, 1, epoch)]++;
  for (int i = 0; i < 27; i++)
    if (count[i]) assert_in_range(count[i], 850, 1150);
}

static void half_precision_rounds_to_even(void **state) {
  (void)state;
  static const struct {
    float from;
    uint16_t f16, bf16;
  } cases[] = {
      {0, 0, 0},
      {-0.0f, 0x8000, 0x8000},
      {1, 0x3c00, 0x3f80},
      {-2, 0xc000, 0xc000},
      {65504, 0x7bff, 0x4780},
      {65519.99f, 0x7bff, 0x4780},
      {65520, 0x7c00, 0x4780},
      {1e10f, 0x7c00, 0x5015},
      {0x1p-24f, 1, 0x3380},
      {0x1p-25f, 0, 0x3300},
      {0x1.8p-25f, 1, 0x3340},
      {0x1p-14f, 0x0400, 0x3880},
      {0x1.ff8p-15f, 0x03ff, 0x3880},
      {0x1.ffcp-15f, 0x0400, 0x3880},
      {1 + 0x1p-11f, 0x3c00, 0x3f80},
      {1 + 0x1.8p-10f, 0x3c02, 0x3f80},
      {1 + 0x1p-8f, 0x3c04, 0x3f80},
      {1 + 0x1.8p-7f, 0x3c0c, 0x3f82},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint16_t to;
    nnrt_convert(&to, NNRT_f16, &cases[i].from, NNRT_f32, 1);
    assert_int_equal(to, cases[i].f16);
    nnrt_convert(&to, NNRT_bf16, &cases[i].from, NNRT_f32, 1);
    assert_int_equal(to, cases[i].bf16);
  }
  // Reading and writing gives the same number, for every number of the type.
  for (int bits = 0; bits < 65536; bits++) {
    if ((bits & 0x7c00) == 0x7c00 && bits & 0x3ff) continue; // NaN
    uint16_t from = (uint16_t)bits, back;
    float f;
    nnrt_convert(&f, NNRT_f32, &from, NNRT_f16, 1);
    nnrt_convert(&back, NNRT_f16, &f, NNRT_f32, 1);
    assert_int_equal(back, from);
  }
}

// An 8x6 matrix on six of ten ranks and axes a=2, t=2 (of time) and b=3: rows by a then t, columns
// by b.
static void parts_tile_the_whole(void **state) {
  (void)state;
  const NnrtMesh mesh = {.n_axes = 3,
                         .axis = {{"a", 2, false}, {"t", 2, true}, {"b", 3, false}},
                         .n_ranks = 6,
                         .rank = (const int[]){5, 6, 9, 2, 1, 0}};
  NnrtProgram p = {.mesh = &mesh, .n_mesh = 1, .ranks = 10};
  NnrtTensor t = {
      .name = "t", .dtype = NNRT_f32, .ndim = 2, .dim = {8, 6}, .split = {{0, 1, -1}, {2, -1}}};
  float whole[48], again[48] = {0}, part[4];
  NnrtRank r = {.slab = (char *)part};
  for (int i = 0; i < 48; i++)
    whole[i] = (float)i;
  for (int place = 0; place < 6; place++)
    for (int slice = 0; slice < 2; slice++) {
      int coord[NNRT_MAX_AXES];
      assert_int_equal(nnrt_mesh_place(&mesh, mesh.rank[place]), place);
      nnrt_mesh_coord(&mesh, place, coord);
      assert_int_equal(coord[0], place / 3);
      assert_int_equal(coord[2], place % 3);
      coord[1] = slice;
      Part where = nnrt_tensor_part(&t, &p, coord);
      assert_int_equal(where.start[0], 4 * coord[0] + 2 * slice);
      assert_int_equal(where.start[1], 2 * coord[2]);
      nnrt_part_put(&r, &t, &where, whole);
      assert_true(part[2] == whole[where.start[0] * 6 + 6 + where.start[1]]);
      nnrt_whole_from_part(again, part, &t, &where);
    }
  assert_memory_equal(whole, again, sizeof whole);
  assert_int_equal(nnrt_mesh_place(&mesh, 3), -1);
}

static void names_of_repeated_rows(void **state) {
  (void)state;
  static const int64_t numbers[] = {12, 0, -7, INT64_C(123456789012345)};
  static const char *const cases[][2] = {
      {"", ""},
      {"/h.%d/Add_3", "/h.12/Add_3"},
      {"%d%%%d%%%%d %d.%d", "12%0%%d -7.123456789012345"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *name = nnrt_name(cases[i][0], numbers);
    assert_string_equal(name, cases[i][1]);
    free(name);
  }
}

static void schedules(void **state) {
  (void)state;
  LrSchedule s;
  Why w;
  assert_true(nnrt_lr_schedule_parse(&s, "cosine:warmup=10,min=0.1", 1, &w));
  s.horizon = 110;
  assert_true(nnrt_lr_schedule_at(&s, 0) == 0.1 && nnrt_lr_schedule_at(&s, 9) == 1);
  assert_true(nnrt_lr_schedule_at(&s, 60) > 0.5499 && nnrt_lr_schedule_at(&s, 60) < 0.5501);
  assert_true(nnrt_lr_schedule_at(&s, 110) == 0.1 && nnrt_lr_schedule_at(&s, 1000) == 0.1);
  assert_true(nnrt_lr_schedule_parse(&s, "constant", 1, &w) &&
              nnrt_lr_schedule_at(&s, 1 << 20) == 1);
  static const char *const bad[] = {"",
                                    "cosin",
                                    "cosine:",
                                    "cosine:warmup",
                                    "cosine:warmup=x",
                                    "cosine:max=1",
                                    "linear:warmup=1;min=2",
                                    "linear:warmup=-1",
                                    "linear:min=nan"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(nnrt_lr_schedule_parse(&s, bad[i], 1, &w));
}

static void strings_of_json(void **state) {
  (void)state;
  const char *text = "  \"a\\\"\\\\\\n\\u00e9\\u20ac\\ud83d\\ude00/\" ";
  Json j = {text, text + strlen(text), NULL};
  char *s = nnrt_json_string(&j);
  assert_string_equal(s, "a\"\\\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/");
  free(s);
  static const char *const bad[] = {"\"",
                                    "\"a",
                                    "\"\\\"",
                                    "\"\\x\"",
                                    "\"\\u12\"",
                                    "\"\\u0000\"",
                                    "\"\\ud800\"",
                                    "\"\\ud800\\u0041\"",
                                    "\"\n\"",
                                    "x",
                                    ""};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    j = (Json){bad[i], bad[i] + strlen(bad[i]), NULL};
    assert_null(nnrt_json_string(&j));
    assert_non_null(j.error);
  }
}

static void strings_are_written_as_ascii_controls_and_utf_8(void **state) {
  (void)state;
  char *text;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  // Quotes, a control character of one byte and of two, a right-to-left override, no UTF-8.
  const char *bytes = "a\"\\\n\033ö\xc2\x9b\xe2\x80\xae🎲\xff\xc3(";
  nnrt_json_write_string(f, bytes);
  fclose(f);
  assert_string_equal(text, "\"a\\\"\\\\\\u000a\\u001bö\\u009b\\u202e🎲\\\\xff\\\\xc3(\"");
  // All but the last bytes are read as they were.
  Json j = {text, text + n, NULL};
  char *again = nnrt_json_string(&j);
  assert_memory_equal(again, bytes, strlen(bytes) - strlen("\xff\xc3("));
  free(again);
  free(text);
}

// ---- parts

// Pieces of a part, of any lengths, are the bytes that the whole has there.
static void pieces_of_parts(void **state) {
  (void)state;
  static const struct {
    int ndim;
    int64_t dim[3], start[3], size[3];
  } boxes[] = {{3, {4, 6, 5}, {2, 3, 0}, {2, 3, 5}},
               {3, {4, 6, 5}, {0, 0, 0}, {4, 6, 5}},
               {3, {4, 6, 5}, {1, 2, 3}, {2, 3, 2}},
               {2, {7, 3}, {0, 2}, {7, 1}},
               {1, {12}, {4}, {4}},
               {0, {0}, {0}, {0}}};
  for (size_t b = 0; b < sizeof boxes / sizeof *boxes; b++) {
    NnrtTensor t = {.dtype = NNRT_i32, .ndim = boxes[b].ndim};
    Part part = {.whole = false};
    for (int d = 0; d < t.ndim; d++) {
      t.dim[d] = boxes[b].dim[d];
      part.start[d] = boxes[b].start[d];
      part.size[d] = boxes[b].size[d];
    }
    int32_t whole[120], want[120], again[120] = {0};
    for (int i = 0; i < 120; i++)
      whole[i] = 1000 + i;
    int64_t n = nnrt_part_count(&t, &part) * 4, k = 0;
    Runs runs = nnrt_part_runs(t.ndim, t.dim, part.start, part.size);
    for (int64_t i = 0; i < runs.n; i++)
      for (int64_t e = 0; e < runs.length; e++)
        want[k++] = whole[nnrt_run_start(&runs, i) + e];
    for (int64_t piece = 1; piece <= n; piece++) {
      char got[sizeof want];
      for (int64_t at = 0; at < n; at += piece)
        nnrt_part_from_whole(got + at, whole, &t, &part, at, n - at < piece ? n - at : piece);
      assert_memory_equal(got, want, (size_t)n);
    }
    // And the other way round.
    nnrt_whole_from_part(again, want, &t, &part);
    for (int i = 0; i < 120; i++)
      assert_true(again[i] == 0 || again[i] == whole[i]);
  }
}

// ---- safetensors

static char path[] = "/tmp/nnaot-formats-XXXXXX";

static bool opens(const char *header, int64_t length, int64_t data_bytes, StFile *f, Why *w) {
  int fd = open(path, O_WRONLY | O_TRUNC);
  char *data = calloc(1, (size_t)data_bytes + 1);
  int64_t n = length < 0 ? (int64_t)strlen(header) : length;
  bool ok = write(fd, &n, 8) == 8 && write(fd, header, strlen(header)) >= 0 &&
            write(fd, data, (size_t)data_bytes) == data_bytes;
  free(data);
  close(fd);
  assert_true(ok);
  return nnrt_st_open(f, path, w);
}

// The list of errors of the reference implementation.
static void wrong_safetensors_are_refused(void **state) {
  (void)state;
#define T(name, dtype, shape, offsets)                                                             \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
  static const struct {
    const char *header, *said;
    int64_t length, data_bytes;
  } bad[] = {
      {"", "too short", -2, 0},
      {"{}", "claims", 100000001, 0},
      {"{}", "truncated in its header", 100, 0},
      {"", "not JSON", 0, 0},
      {" {}", "not JSON", -1, 0},
      {"[]", "not JSON", -1, 0},
      {"{", "damaged", -1, 0},
      {"{}x", "more after", -1, 0},
      {"{" T("a", "F32", "[2]", "[0,8]") ",}", "damaged", -1, 8},
      {"{" T("a", "F31", "[2]", "[0,8]") "}", "element type", -1, 8},
      {"{" T("a", "F32", "[2.0]", "[0,8]") "}", "not whole", -1, 8},
      {"{" T("a", "F32", "[-2]", "[0,8]") "}", "a number from 0", -1, 8},
      {"{" T("a", "F32", "[02]", "[0,8]") "}", "begins with 0", -1, 8},
      {"{" T("a", "F32", "[2]", "[0]") "}", "not two", -1, 8},
      {"{" T("a", "F32", "[2]", "[0,8,8]") "}", "too long", -1, 8},
      {"{" T("a", "F32", "[2]", "[8,0]") "}", "data_offsets", -1, 8},
      {"{" T("a", "F32", "[3]", "[0,8]") "}", "needs 12 bytes", -1, 8},
      {"{" T("a", "F32", "[4611686018427387904,4]", "[0,8]") "}", "too large", -1, 8},
      {"{" T("a", "F32", "[99999999999999999999]", "[0,8]") "}", "too large", -1, 8},
      {"{" T("a", "F32", "[2]", "[0,8]") "}", "truncated", -1, 7},
      {"{" T("a", "F32", "[2]", "[0,8]") "}", "something follows", -1, 9},
      {"{" T("a", "F32", "[2]", "[4,12]") "}", "begins at byte 4", -1, 12},
      {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[4,8]") "}", "begins at byte 4",
       -1, 8},
      {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[12,16]") "}",
       "begins at byte 12", -1, 16},
      {"{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[1]", "[8,12]") "}", "there twice", -1,
       12},
      {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8],\"shape\":[2}}", "damaged", -1, 8},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "lacks a field", -1, 8},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2]}}", "wrong field", -1, 8},
      {"{\"a\":{\"kind\":\"F32\"}}", "wrong field", -1, 8},
      {"{\"__metadata__\":{\"a\":1}}", "damaged", -1, 0},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", "twice", -1, 0},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    StFile f;
    Why w = {""};
    bool ok;
    if (bad[i].length == -2) {
      assert_int_equal(truncate(path, 0), 0);
      ok = nnrt_st_open(&f, path, &w);
    } else {
      ok = opens(bad[i].header, bad[i].length, bad[i].data_bytes, &f, &w);
    }
    if (ok || !strstr(w.text, bad[i].said)) fail_msg("%s: '%s'", bad[i].header, w.text);
  }
}

static void right_safetensors_are_read(void **state) {
  (void)state;
  StFile f;
  Why w;
  assert_true(opens("{}", -1, 0, &f, &w));
  nnrt_st_close(&f);
  // Out of order, of size 0, without dimensions, with metadata and padding.
  assert_true(opens("{" T("b", "I64", "[]", "[8,16]") " , \"__metadata__\" : { \"k\" : \"v\" } ," T(
                        "a", "F32", "[2]", "[0,8]") "," T("c", "BF16", "[3,0]", "[16,16]") "}   ",
                    -1, 16, &f, &w));
  assert_int_equal(f.n_tensors, 3);
  assert_int_equal(nnrt_st_find(&f, "b")->begin, 8);
  assert_int_equal(nnrt_st_find(&f, "c")->ndim, 2);
  assert_string_equal(nnrt_st_text(&f, "k"), "v");
  nnrt_st_close(&f);
}

TEST_GROUP(formats) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(checksums_are_the_published_ones),
      cmocka_unit_test(a_shuffle_is_a_permutation),
      cmocka_unit_test(a_shuffle_is_fair),
      cmocka_unit_test(half_precision_rounds_to_even),
      cmocka_unit_test(parts_tile_the_whole),
      cmocka_unit_test(names_of_repeated_rows),
      cmocka_unit_test(schedules),
      cmocka_unit_test(pieces_of_parts),
      cmocka_unit_test(strings_of_json),
      cmocka_unit_test(strings_are_written_as_ascii_controls_and_utf_8),
      cmocka_unit_test(wrong_safetensors_are_refused),
      cmocka_unit_test(right_safetensors_are_read),
  };
  close(mkstemp(path));
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return failed;
}
