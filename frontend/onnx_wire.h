// Fields of messages as bytes: read in a file that onnx_open has found well formed, and written.
//
// A message is written twice, the first time with nowhere to write to, only to be measured.

#ifndef FRONTEND_ONNX_WIRE_H
#define FRONTEND_ONNX_WIRE_H

#include <stdint.h>

typedef struct WireField {
  int number, wire;
  int64_t start, data, end; // the tag, what it holds, what follows
} WireField;

WireField wire_read(const uint8_t *at, int64_t start);

typedef struct WireWriter {
  uint8_t *at; // NULL: only measured
  int64_t n;
} WireWriter;

void wire_put(WireWriter *w, const void *bytes, int64_t n);
void wire_varint(WireWriter *w, uint64_t x);
// Fields.  The length of a message takes five bytes, whatever it is, and is put in when it is
// known.
void wire_int(WireWriter *w, int field, int64_t x);
void wire_string(WireWriter *w, int field, const char *text);
int64_t wire_open(WireWriter *w, int field); // what close wants
void wire_close(WireWriter *w, int64_t start);
void wire_undo(WireWriter *w, int field, int64_t start); // as if it had not been opened

#endif
