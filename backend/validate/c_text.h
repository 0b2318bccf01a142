// Tokens of generated C, and patterns of them.
//
//     Cursor at = cursor_of(file);
//     int64_t offset;
//     CToken name;
//     take(&at, "#define %w ((float *)(r->slab + %i))", &name, &offset)
//
// A pattern is C with conversions.  It matches token by token, as a C compiler reads the text:
// spaces and // comments do not count.  If it does not match, the cursor stays.
//
//     %i  int64_t *       a decimal integer, possibly negative, or INT64_MIN
//     %f  double *        a number without a suffix, INFINITY, NAN, or minus one of these
//     %w  CToken *        a name
//     %s  const char **   a string literal, decoded
//     %%                  the token %
//
// Text that hides code from a reader is no token at all: a comment of the old kind, a digraph, a
// character that C does not have.  lines_read finds lines that compilers see as others.

#ifndef VALIDATE_C_TEXT_H
#define VALIDATE_C_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct CFile {
  const char *path;
  const char *text, *end;
  Arena *arena; // of decoded strings
} CFile;

typedef enum CKind { C_end, C_name, C_number, C_string, C_mark, C_bad } CKind;

typedef struct CToken {
  CKind kind;
  const char *at;
  int n;
  int line; // from 1
} CToken;

typedef struct Cursor {
  const CFile *file; // NULL: an empty text
  const char *at;
  int line;
} Cursor;

// Whether the lines of a text are those of a C compiler.  gcc splices two lines also if blanks or a
// carriage return are between the backslash and the newline; clang begins a line at a carriage
// return.  The cursor is at the first line or character that is not plain.
typedef enum CLines { LINES_plain, LINES_spliced, LINES_control } CLines;
CLines lines_read(const CFile *file, Cursor *at);

Cursor cursor_of(const CFile *file);
CToken cursor_next(Cursor *c);
CToken cursor_peek(const Cursor *c);
bool ctoken_is(const CToken *t, const char *text);
const char *ctoken_text(const CToken *t, Arena *a); // "the end" of C_end

bool take(Cursor *c, const char *pattern, ...);
// Takes tokens up to the brace that closes the one before the cursor.  False if there is none.
bool take_block(Cursor *c);

// The value of a number without a suffix, or with `suffix`; false if it is none.
bool ctoken_int(const CToken *t, int64_t *out);
bool ctoken_unsigned(const CToken *t, uint64_t *out); // with the suffix u
bool ctoken_float(const CToken *t, const char *suffix, double *out);

#endif
