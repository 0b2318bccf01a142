// The tokens of the text form; parse.c builds graphs from them.
//
//     %y = linear %x, %w trans=0 : f32[4,6]   # mlp.onnx:/fc1/MatMul
//
// is  VALUE = WORD VALUE , VALUE WORD = NUMBER : WORD [ NUMBER , NUMBER ]  and the last token
// carries the comment.  Line ends matter only to comments.

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
  TOKEN_bad,    // an invalid token; text describes the error
} TokenKind;

typedef struct Token {
  TokenKind kind;
  bool quoted; // of a value or graph: the name was in quotes
  int line, column, width;
  int64_t n; // of bytes
  const char *text;
  // The text after '#' on the token's line, if no other token comes between; or NULL.
  const char *comment;
} Token;

typedef struct Source {
  const char *path, *text;
  size_t n;
} Source;

// All tokens; the last is TOKEN_end.  Never fails: invalid text becomes TOKEN_bad.
Token *lex_text(Arena *a, const Source *s, int *n_tokens);

// Reports a message about a token, with its line and a caret.  Returns false.
bool token_error(Diag *d, Arena *a, const Source *s, const Token *t, const char *fmt, ...)
    PRINTF_LIKE(5, 6);
// Prints any part of a line with a caret, for messages about several tokens.
void source_caret(Diag *d, const Source *s, int line, int column, int width);

bool is_word(const char *s);                     // needs no quotes
const char *str_quoted(Arena *a, const char *s); // "text" with escapes
const char *str_name(Arena *a, const char *s);   // unchanged if it is a word, else quoted

#endif
