// Fields of messages as bytes: reads a file that onnx_open has checked, and writes messages.
//
// A message is written twice, the first time without a buffer, only to be measured.

#ifndef FRONTEND_ONNX_WIRE_H
#define FRONTEND_ONNX_WIRE_H

#include <stdint.h>

typedef struct WireField {
  int number, wire;
  int64_t start, data, end; // offsets of the tag, the contents, the next field
} WireField;

WireField wire_read(const uint8_t *at, int64_t start);

typedef struct WireWriter {
  uint8_t *at; // NULL: only measured
  int64_t n;
} WireWriter;

void wire_put(WireWriter *w, const void *bytes, int64_t n);
void wire_varint(WireWriter *w, uint64_t x);
// Write fields.  The length of a message always takes five bytes, and is put in when it is known.
void wire_int(WireWriter *w, int field, int64_t x);
void wire_string(WireWriter *w, int field, const char *text);
int64_t wire_open(WireWriter *w, int field); // returns the argument of close
void wire_close(WireWriter *w, int64_t start);
void wire_undo(WireWriter *w, int field, int64_t start); // removes an open message

#endif
