// Files of ONNX messages: facts about messages that no model has.

#include "unit.h"

#include <stddef.h>

#include "frontend/onnx_read.h"

enum { N_FIELDS = 70 };

// A message with more fields than a word has bits: field i + 1 is an optional number.
typedef struct Wide {
  ProtobufCMessage base;
  protobuf_c_boolean has[N_FIELDS];
  int64_t at[N_FIELDS];
} Wide;

static ProtobufCFieldDescriptor fields[N_FIELDS];
static unsigned by_name[N_FIELDS];
static const ProtobufCIntRange ranges[] = {{1, 0}, {0, N_FIELDS}};
static const ProtobufCMessageDescriptor wide = {
    .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
    .name = "Wide",
    .sizeof_message = sizeof(Wide),
    .n_fields = N_FIELDS,
    .fields = fields,
    .fields_sorted_by_name = by_name,
    .n_field_ranges = 1,
    .field_ranges = ranges,
};

static bool open_bytes(OnnxFile *f, const uint8_t *bytes, size_t n, Arena *a, Diag *d) {
  const char *path = "read_test.onnx";
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(bytes, 1, n, out), n);
  fclose(out);
  return onnx_open(f, path, &wide, a, d);
}

// Fields 1 and 65 of one message are two fields; field 65 may stand once, like field 1.
static void fields_of_any_index_may_stand_once(void **state) {
  (void)state;
  for (unsigned i = 0; i < N_FIELDS; i++) {
    fields[i] = (ProtobufCFieldDescriptor){
        .name = "x",
        .id = i + 1,
        .label = PROTOBUF_C_LABEL_OPTIONAL,
        .type = PROTOBUF_C_TYPE_INT64,
        .quantifier_offset = (unsigned)(offsetof(Wide, has) + i * sizeof(protobuf_c_boolean)),
        .offset = (unsigned)(offsetof(Wide, at) + i * sizeof(int64_t)),
    };
    by_name[i] = i;
  }
  Arena *a = arena_new();
  Heard *h = heard_new();
  OnnxFile f;
  // Tags are number << 3 | 0, in 7 bits per byte: 8 and 520.
  assert_true(open_bytes(&f, (const uint8_t[]){0x08, 3, 0x88, 0x04, 4}, 5, a, h->d));
  const Wide *message = (const Wide *)(const void *)f.message;
  assert_true(message->has[0] && message->has[64] && !message->has[1]);
  assert_int_equal(message->at[0], 3);
  assert_int_equal(message->at[64], 4);
  onnx_close(&f);
  assert_false(open_bytes(&f, (const uint8_t[]){0x88, 0x04, 3, 0x88, 0x04, 4}, 6, a, h->d));
  assert_true(heard(h, "at byte 3, a field that may stand once stands twice"));
  heard_free(h);
  arena_free(a);
}

TEST_GROUP(read) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fields_of_any_index_may_stand_once),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  remove("read_test.onnx");
  return failed;
}
