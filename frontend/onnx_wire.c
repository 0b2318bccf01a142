// Fields of protobuf messages as bytes: see onnx_wire.h.

#include "frontend/onnx_wire.h"

#include <string.h>

enum { WIRE_int = 0, WIRE_bytes = 2, LENGTH_BYTES = 5 };

static uint64_t read_varint(const uint8_t *at, int64_t *pos) {
  uint64_t x = 0;
  for (int shift = 0;; shift += 7) {
    uint8_t byte = at[(*pos)++];
    x |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return x;
  }
}

WireField wire_read(const uint8_t *at, int64_t start) {
  WireField f = {.start = start};
  int64_t pos = start;
  uint64_t tag = read_varint(at, &pos);
  f.number = (int)(tag >> 3);
  f.wire = (int)(tag & 7);
  f.data = pos;
  // The file has been checked by onnx_open: lengths are inside it.
  if (f.wire == 0)
    read_varint(at, &pos);
  else if (f.wire == 1)
    pos += 8;
  else if (f.wire == 5)
    pos += 4;
  else {
    int64_t n = (int64_t)read_varint(at, &pos);
    f.data = pos;
    pos += n;
  }
  f.end = pos;
  return f;
}

void wire_put(WireWriter *w, const void *bytes, int64_t n) {
  if (w->at && n > 0) memcpy(w->at + w->n, bytes, (size_t)n);
  w->n += n;
}

static int encode(uint8_t *byte, uint64_t x) {
  int n = 0;
  for (; x >= 0x80; x >>= 7)
    byte[n++] = (uint8_t)(x | 0x80);
  byte[n++] = (uint8_t)x;
  return n;
}

void wire_varint(WireWriter *w, uint64_t x) {
  uint8_t byte[10];
  wire_put(w, byte, encode(byte, x));
}

static void put_tag(WireWriter *w, int field, int wire) {
  wire_varint(w, (uint64_t)field << 3 | (uint64_t)wire);
}

void wire_int(WireWriter *w, int field, int64_t x) {
  put_tag(w, field, WIRE_int);
  wire_varint(w, (uint64_t)x);
}

void wire_string(WireWriter *w, int field, const char *text) {
  size_t n = strlen(text);
  put_tag(w, field, WIRE_bytes);
  wire_varint(w, n);
  wire_put(w, text, (int64_t)n);
}

int64_t wire_open(WireWriter *w, int field) {
  put_tag(w, field, WIRE_bytes);
  w->n += LENGTH_BYTES;
  return w->n;
}

void wire_close(WireWriter *w, int64_t start) {
  uint64_t n = (uint64_t)(w->n - start);
  // All five bytes are used, also for small lengths.
  for (int i = 0; i < LENGTH_BYTES && w->at; i++)
    w->at[start - LENGTH_BYTES + i] =
        (uint8_t)((n >> (7 * i) & 0x7f) | (i < LENGTH_BYTES - 1 ? 0x80 : 0));
}

void wire_undo(WireWriter *w, int field, int64_t start) {
  uint8_t byte[10];
  w->n = start - LENGTH_BYTES - encode(byte, (uint64_t)field << 3 | WIRE_bytes);
}
