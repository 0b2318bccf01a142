// Messages that are kept instead of shown, for calls that try something: an error among them
// becomes a result, or the message of an error at the program's line.
//
//     DiagCapture capture;
//     diag_capture_begin(&capture);
//     Op *op = op_new(…, capture.d);
//     const char *why = diag_capture_end(&capture, a);      "linear: inner dimensions differ: 8 and 4"

#ifndef LUA_DIAG_CAPTURE_H
#define LUA_DIAG_CAPTURE_H

#include "base/diag.h"

typedef struct DiagCapture {
  Diag *d;
  FILE *file;
  char *text;
  size_t n;
} DiagCapture;

void diag_capture_begin(DiagCapture *s);
// Returns the first error, without its location, in `a`; "it is impossible" if there is none.
const char *diag_capture_end(DiagCapture *s, Arena *a);

#endif
