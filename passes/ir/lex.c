// Splits text into tokens: see lex.h.

#include "ir/lex.h"

#include <string.h>

#include "base/vec.h"
#include "rt/utf8.h"

typedef struct Lexer {
  Arena *arena;
  const char *at, *end, *line_start;
  int line;
  Token token;
} Lexer;

static bool is_letter(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(int c) {
  return c >= '0' && c <= '9';
}

static bool is_word_char(int c) {
  return is_letter(c) || is_digit(c) || c == '.';
}

static int hex_digit(int c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static int peek(const Lexer *l, int ahead) {
  return l->end - l->at > ahead ? (unsigned char)l->at[ahead] : -1;
}

bool is_word(const char *s) {
  if (!is_letter((unsigned char)*s)) return false;
  for (; *s; s++)
    if (!is_word_char((unsigned char)*s)) return false;
  return true;
}

const char *str_quoted(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "\"");
  while (*s) {
    // The escapes that lex_string reads.
    const char *escaped = *s == '"'    ? "\\\""
                          : *s == '\\' ? "\\\\"
                          : *s == '\n' ? "\\n"
                          : *s == '\t' ? "\\t"
                                       : NULL;
    char text[UTF8_SHOWN];
    if (escaped) {
      strbuf_add(&b, escaped);
      s++;
    } else {
      strbuf_add_n(&b, text, (size_t)nnrt_utf8_shown(&s, text));
    }
  }
  strbuf_add(&b, "\"");
  return b.at;
}

const char *str_name(Arena *a, const char *s) {
  return is_word(s) ? s : str_quoted(a, s);
}

static void bad(Lexer *l, const char *what) {
  l->token.kind = TOKEN_bad;
  l->token.text = what;
}

// Reads a string from the opening quote on: sets the token's text, or makes it TOKEN_bad.
static void lex_string(Lexer *l, TokenKind kind) {
  StrBuf b = {.arena = l->arena};
  // An empty string has an empty text, not NULL.
  strbuf_add(&b, "");
  l->token.kind = kind;
  l->at++;
  for (;;) {
    int c = peek(l, 0);
    if (c == -1 || c == '\n') {
      bad(l, "the string does not end on its line");
      return;
    }
    l->at++;
    if (c == '"') break;
    // After a bad escape the string is still read to its end.
    if (c == '\\') {
      int e = peek(l, 0);
      if (e == '"' || e == '\\') {
        c = e;
      } else if (e == 'n') {
        c = '\n';
      } else if (e == 't') {
        c = '\t';
      } else if (e == 'x' && hex_digit(peek(l, 1)) >= 0 && hex_digit(peek(l, 2)) >= 0) {
        c = hex_digit(peek(l, 1)) * 16 + hex_digit(peek(l, 2));
        l->at += 2;
      } else {
        bad(l, "unknown escape in a string; there are \\\" \\\\ \\n \\t and \\xHH");
        continue;
      }
      l->at++;
    }
    // Texts are NUL-terminated.
    if (c == 0) {
      bad(l, "a string cannot hold a zero byte");
      continue;
    }
    char byte = (char)c;
    strbuf_add_n(&b, &byte, 1);
  }
  if (l->token.kind != TOKEN_bad) l->token.text = b.at;
}

// Reads x"3f80" from the opening quote on.
static void lex_bytes(Lexer *l) {
  const char *start = ++l->at;
  // The digits are counted first, then converted.
  while (hex_digit(peek(l, 0)) >= 0)
    l->at++;
  int64_t digits = l->at - start;
  if (peek(l, 0) != '"') {
    bad(l, "expected hexadecimal digits and a closing quote");
    return;
  }
  l->at++;
  if (digits % 2) {
    bad(l, "an odd number of hexadecimal digits");
    return;
  }
  // Zeroed, so NUL-terminated even if empty.
  char *bytes = arena_alloc(l->arena, (size_t)(digits / 2 + 1));
  for (int64_t i = 0; i < digits / 2; i++)
    bytes[i] = (char)(hex_digit(start[2 * i]) * 16 + hex_digit(start[2 * i + 1]));
  l->token.kind = TOKEN_bytes;
  l->token.text = bytes;
  l->token.n = digits / 2;
}

// Reads [+-] digits, with fraction and exponent, decimal or hexadecimal; or [+-] inf.
static void lex_number(Lexer *l) {
  const char *start = l->at;
  if (peek(l, 0) == '-' || peek(l, 0) == '+') l->at++;
  bool hex = peek(l, 0) == '0' && (peek(l, 1) == 'x' || peek(l, 1) == 'X');
  // A sign continues the number only after an exponent's letter.
  while (is_word_char(peek(l, 0)) || ((peek(l, 0) == '+' || peek(l, 0) == '-') &&
                                      strchr(hex ? "pP" : "eE", l->at[-1]) && is_digit(peek(l, 1))))
    l->at++;
  l->token.kind = TOKEN_number;
  l->token.text = str_copy_n(l->arena, start, (size_t)(l->at - start));
}

// Reads %x or @main from the sigil on; false if no name follows it.
static bool lex_name(Lexer *l, TokenKind kind) {
  if (peek(l, 1) == '"') {
    l->at++;
    l->token.quoted = true;
    lex_string(l, kind);
    if (l->token.kind == kind && !*l->token.text) bad(l, "a name cannot be empty");
    return true;
  }
  // Without a name the sigil is a character of its own.
  if (!is_word_char(peek(l, 1))) return false;
  const char *start = ++l->at;
  while (is_word_char(peek(l, 0)))
    l->at++;
  l->token.kind = kind;
  l->token.text = str_copy_n(l->arena, start, (size_t)(l->at - start));
  return true;
}

static void lex_token(Lexer *l) {
  l->token = (Token){.line = l->line, .column = (int)(l->at - l->line_start) + 1};
  const char *start = l->at;
  int c = peek(l, 0), next = peek(l, 1);
  // Bytes come before words, since both can begin with x.
  if (c == -1) {
    l->token.kind = TOKEN_end;
    l->token.text = "";
  } else if (c == 'x' && next == '"') {
    l->at++;
    lex_bytes(l);
  } else if (is_letter(c)) {
    while (is_word_char(peek(l, 0)))
      l->at++;
    l->token.kind = TOKEN_word;
    l->token.text = str_copy_n(l->arena, start, (size_t)(l->at - start));
  } else if (is_digit(c) || ((c == '-' || c == '+') && (is_word_char(next)))) {
    lex_number(l);
  } else if (c == '"') {
    lex_string(l, TOKEN_string);
  } else if ((c == '%' && lex_name(l, TOKEN_value)) || (c == '@' && lex_name(l, TOKEN_graph))) {
    // lex_name has filled the token.
  } else if (strchr("()[]{}=:,@-+*", c) && c) {
    l->at++;
    l->token.kind = TOKEN_punct;
    l->token.text = str_copy_n(l->arena, start, 1);
  } else {
    // A whole UTF-8 character, so that the caret points at something visible.
    do
      l->at++;
    while ((peek(l, 0) & 0xc0) == 0x80 && peek(l, 0) != -1);
    bad(l, "unexpected character");
  }
  l->token.width = l->at > start ? (int)(l->at - start) : 1;
}

Token *lex_text(Arena *a, const Source *s, int *n_tokens) {
  Lexer l = {.arena = a, .at = s->text, .end = s->text + s->n, .line_start = s->text, .line = 1};
  Vec(Token) tokens = {0};
  int last_line = 0; // of the previous token
  for (;;) {
    int c = peek(&l, 0);
    // Blanks and ends of lines separate tokens.
    if (c == '\n') {
      l.line_start = ++l.at;
      l.line++;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      l.at++;
    } else if (c == '#') {
      // The comment, without surrounding blanks, belongs to the last token of its line.
      const char *start = ++l.at;
      while (peek(&l, 0) != -1 && peek(&l, 0) != '\n')
        l.at++;
      const char *end = l.at;
      while (end > start && strchr(" \t\r", end[-1]) && end[-1])
        end--;
      while (start < end && strchr(" \t", *start) && *start)
        start++;
      if (tokens.n && last_line == l.line)
        tokens.at[tokens.n - 1].comment = str_copy_n(a, start, (size_t)(end - start));
    } else {
      lex_token(&l);
      last_line = l.line;
      vec_push(a, &tokens, l.token);
      if (l.token.kind == TOKEN_end) break;
    }
  }
  *n_tokens = tokens.n;
  return tokens.at;
}

void source_caret(Diag *d, const Source *s, int line, int column, int width) {
  const char *start = s->text, *end = s->text + s->n;
  for (int i = 1; i < line && start; i++) {
    start = memchr(start, '\n', (size_t)(end - start));
    if (start) start++;
  }
  if (!start) return;
  // The line without its end.
  const char *stop = memchr(start, '\n', (size_t)(end - start));
  if (!stop) stop = end;
  diag_source(d, start, stop, column, width);
}

bool token_error(Diag *d, Arena *a, const Source *s, const Token *t, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *text = str_vformat(a, fmt, args);
  va_end(args);
  diag_error(d, loc_line(a, s->path, t->line, t->column), "%s", text);
  source_caret(d, s, t->line, t->column, t->width);
  return false;
}
