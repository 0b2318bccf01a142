// The words of the text form; parse.c makes graphs of them.
//
//     %y = linear %x, %w trans=0 : f32[4,6]   # mlp.onnx:/fc1/MatMul
//
// is  VALUE = WORD VALUE , VALUE WORD = NUMBER : WORD [ NUMBER , NUMBER ]  and the last of them
// carries the comment.  Line ends mean nothing except to comments.

#ifndef IR_LEX_H
#define IR_LEX_H

#include <stdint.h>

#include "base/arena.h"
#include "base/diag.h"

typedef enum TokenKind {
  TOKEN_end,
  TOKEN_word,   // linear, f32, next_token: letters, digits, '_' and '.'
  TOKEN_value,  // %x, %12, %"any text"; text is without the sigil
  TOKEN_graph,  // @main, @"any text"
  TOKEN_number, // as written: 12, -0.5, 1e-05, 0x1p-3, -inf, +64
  TOKEN_string, // "text" with its escapes undone
  TOKEN_bytes,  // x"3f80": the bytes themselves
  TOKEN_punct,  // one character, in text[0]
  TOKEN_bad,    // something else; text is what is wrong with it
} TokenKind;

typedef struct Token {
  TokenKind kind;
  bool quoted; // of a value or graph: the name stood in quotes
  int line, column, width;
  int64_t n; // of bytes
  const char *text;
  // What stands behind '#' on the line after this token, when nothing else does; or NULL.
  const char *comment;
} Token;

typedef struct Source {
  const char *path, *text;
  size_t n;
} Source;

// All tokens; the last is TOKEN_end.  Never fails: what is no token is a TOKEN_bad.
Token *lex(Arena *a, const Source *s, int *n_tokens);

// A message about a token, with its line and a caret.  Returns false.
bool token_error(Diag *d, Arena *a, const Source *s, const Token *t, const char *fmt, ...)
    PRINTF_LIKE(5, 6);
// The same for any stretch of a line; for carets under what several tokens say.
void source_caret(Diag *d, const Source *s, int line, int column, int width);

bool is_word(const char *s);                     // may stand without quotes
const char *str_quoted(Arena *a, const char *s); // "text" with escapes
const char *str_name(Arena *a, const char *s);   // as it stands, or quoted where it is no word

#endif
