// Numbers as C literals that have exactly their value.

#include "kernels.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/text.h"

static const char *c_integer(Arena *a, int64_t x) {
  // -9223372036854775808 is minus a literal that fits no type.
  if (x == INT64_MIN) return "INT64_MIN";
  return str_format(a, "%" PRId64, x);
}

static const char *c_floating(Arena *a, DType t, double x) {
  if (isnan(x)) return "NAN";
  if (isinf(x)) return x < 0 ? "-INFINITY" : "INFINITY";
  char text[40];
  snprintf(text, sizeof text, "%.*g", t == DT_f32 ? FLT_DECIMAL_DIG : DBL_DECIMAL_DIG, x);
  if (t != DT_f32) {
    const char *shortest = float_text(a, x);
    snprintf(text, sizeof text, "%s", shortest);
  }
  bool whole = !strpbrk(text, ".e");
  return str_format(a, "%s%s%s", text, whole ? ".0" : "", t == DT_f32 ? "f" : "");
}

const char *c_number(Arena *a, DType t, double x) {
  switch (dtype_class[t]) {
  case 'F': return c_floating(a, t, t == DT_f32 ? (double)(float)x : x);
  case 'B': return x != 0 ? "1" : "0";
  }
  if (t == DT_u64 && x >= 0x1p63 && x < 0x1p64 && x == floor(x))
    return str_format(a, "%" PRIu64 "u", (uint64_t)x);
  bool fits = x >= -0x1p63 && x < 0x1p63;
  return x == floor(x) && fits ? c_integer(a, (int64_t)x) : c_floating(a, DT_f64, x);
}

const char *c_element(Arena *a, DType t, const void *bytes, int64_t i) {
  // Elements of bytes may be unaligned, so each is copied.
  const char *at = (const char *)bytes + i * dtype_bytes[t];
  switch (t) {
#define CASE(name, ctype)                                                                          \
  case DT_##name: {                                                                                \
    ctype x;                                                                                       \
    memcpy(&x, at, sizeof x);                                                                      \
    return c_integer(a, (int64_t)x);                                                               \
  }
    CASE(i8, int8_t)
    CASE(i16, int16_t)
    CASE(i32, int32_t)
    CASE(i64, int64_t)
    CASE(u8, uint8_t)
    CASE(u16, uint16_t)
    CASE(u32, uint32_t)
    CASE(bool, uint8_t)
    CASE(f16, uint16_t)
    CASE(bf16, uint16_t)
#undef CASE
  case DT_u64: {
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return str_format(a, "%" PRIu64 "u", x);
  }
  case DT_f32: {
    float x;
    memcpy(&x, at, sizeof x);
    return c_floating(a, t, x);
  }
  case DT_f64: {
    double x;
    memcpy(&x, at, sizeof x);
    return c_floating(a, t, x);
  }
  case N_DTYPES: break;
  }
  BUG("element of type %d", (int)t);
}
