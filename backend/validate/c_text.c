// Tokens of generated C, and patterns of them: see c_text.h.

#include "c_text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { LONGEST_NUMBER = 63 };

// -- Tokens ------------------------------------------------------------------------------------

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Skips spaces and comments.
static void skip_space(const char **at, const char *end, int *line) {
  const char *p = *at;
  for (; p < end; p++) {
    if (*p == '\n') {
      ++*line;
      continue;
    }
    if (*p == ' ') continue;
    if (*p != '/' || p + 1 == end || p[1] != '/') break;
    // A comment ends with its line.
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    p = (stop ? stop : end) - 1;
  }
  *at = p;
}

// The length of the operator at `p`, the longest that C has; 0: there is none.
static int mark_length(const char *p, const char *end) {
  char next = p + 1 < end ? p[1] : 0;
  bool three = p + 2 < end;
  switch (*p) {
  case '(':
  case ')':
  case '[':
  case ']':
  case '{':
  case '}':
  case ',':
  case ';':
  case '~':
  case '?': return 1;
  case ':':
  case '#': return next == *p ? 2 : 1;
  case '*':
  case '/':
  case '%':
  case '^':
  case '=':
  case '!': return next == '=' ? 2 : 1;
  case '-':
    if (next == '>') return 2;
    // fall through
  case '+':
  case '&':
  case '|': return next == '=' || next == *p ? 2 : 1;
  case '<':
  case '>':
    if (next == *p) return three && p[2] == '=' ? 3 : 2;
    return next == '=' ? 2 : 1;
  case '.': return next == '.' && three && p[2] == '.' ? 3 : 1;
  }
  return 0;
}

static CToken lex(const char **io_at, const char *end, int *line) {
  CToken t = {.kind = C_bad};
  skip_space(io_at, end, line);
  const char *at = *io_at, *p = at;
  t.at = at;
  t.line = *line;
  if (at >= end) {
    t.kind = C_end;
    return t;
  }
  if (is_letter(*p)) {
    t.kind = C_name;
    while (p < end && (is_letter(*p) || is_digit(*p)))
      p++;
  } else if (is_digit(*p) || (*p == '.' && p + 1 < end && is_digit(p[1]))) {
    // As in C, a sign after e or p belongs to the number.
    t.kind = C_number;
    while (p < end && (is_letter(*p) || is_digit(*p) || *p == '.' ||
                       ((*p == '+' || *p == '-') && strchr("eEpP", p[-1]))))
      p++;
  } else if (*p == '"') {
    // A string ends in its line, and has other bytes than ASCII as escapes.
    for (p++; p < end && *p != '"' && *p >= ' '; p++)
      if (*p == '\\' && p + 1 < end) p++;
    if (p < end && *p == '"') {
      t.kind = C_string;
      p++;
    }
  } else {
    int n = mark_length(p, end);
    if (n) t.kind = C_mark;
    p += n ? n : 1;
  }
  t.n = (int)(p - at);
  *io_at = p;
  return t;
}

Cursor cursor_of(const CFile *file) {
  return (Cursor){file, file->text, 1};
}

// Whether the text up to `p`, from `from`, ends with a backslash, or a trigraph of one, and blanks.
static bool ends_in_backslash(const char *from, const char *p) {
  while (p > from && p[-1] == ' ')
    p--;
  return p > from && (p[-1] == '\\' || (p - from >= 3 && !memcmp(p - 3, "?\?/", 3)));
}

CLines lines_read(const CFile *file, Cursor *at) {
  *at = cursor_of(file);
  for (const char *p = file->text, *line = p;; p++) {
    bool end = p == file->end;
    if ((end || *p == '\n') && ends_in_backslash(line, p)) return LINES_spliced;
    if (end) return LINES_plain;
    if (*p == '\n') {
      line = p + 1;
      *at = (Cursor){file, line, at->line + 1};
    } else if ((*p >= 0 && *p < ' ') || *p == 127) {
      at->at = p;
      return LINES_control;
    }
  }
}

// Whether a C compiler reads the mark and the character after it as one token, or as the begin of a
// comment: <: <% :> %: %> are spellings of brackets, braces and #.
static bool is_digraph(const CToken *t, const char *end) {
  static const char *const pairs[] = {"<:", "<%", ":>", "%:", "%>", "/*"};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (t->at + 1 < end && !memcmp(t->at, pairs[i], 2)) return true;
  return false;
}

CToken cursor_next(Cursor *c) {
  if (!c->file) return (CToken){.kind = C_end};
  CToken t = lex(&c->at, c->file->end, &c->line);
  if (t.kind == C_mark && is_digraph(&t, c->file->end)) t.kind = C_bad;
  return t;
}

CToken cursor_peek(const Cursor *c) {
  Cursor ahead = *c;
  return cursor_next(&ahead);
}

bool ctoken_is(const CToken *t, const char *text) {
  return strlen(text) == (size_t)t->n && !memcmp(text, t->at, (size_t)t->n);
}

const char *ctoken_text(const CToken *t, Arena *a) {
  return t->kind == C_end ? "the end" : str_copy_n(a, t->at, (size_t)t->n);
}

// -- Values ------------------------------------------------------------------------------------

static bool number_text(const CToken *t, const char *suffix, char *text) {
  int n = t->n - (int)strlen(suffix);
  if (t->kind != C_number || n <= 0 || n > LONGEST_NUMBER) return false;
  if (memcmp(t->at + n, suffix, strlen(suffix)) != 0) return false;
  memcpy(text, t->at, (size_t)n);
  text[n] = 0;
  return true;
}

bool ctoken_int(const CToken *t, int64_t *out) {
  char text[LONGEST_NUMBER + 1], *end;
  // A leading 0 would be octal.
  if (!number_text(t, "", text) || (text[0] == '0' && text[1])) return false;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return !*end && !errno;
}

bool ctoken_unsigned(const CToken *t, uint64_t *out) {
  char text[LONGEST_NUMBER + 1], *end;
  if (!number_text(t, "u", text) || (text[0] == '0' && text[1])) return false;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return !*end && !errno;
}

bool ctoken_float(const CToken *t, const char *suffix, double *out) {
  char text[LONGEST_NUMBER + 1], *end;
  if (ctoken_is(t, "INFINITY") || ctoken_is(t, "NAN")) {
    *out = t->at[0] == 'I' ? INFINITY : NAN;
    return true;
  }
  // An integer has another type.
  if (!number_text(t, suffix, text) || !strpbrk(text, ".e")) return false;
  *out = *suffix == 'f' ? (double)strtof(text, &end) : strtod(text, &end);
  return !*end;
}

static bool take_int(Cursor *c, int64_t *out) {
  CToken t = cursor_next(c);
  bool minus = ctoken_is(&t, "-");
  if (ctoken_is(&t, "INT64_MIN")) {
    *out = INT64_MIN;
    return true;
  }
  if (minus) t = cursor_next(c);
  if (!ctoken_int(&t, out)) return false;
  if (minus) *out = -*out;
  return true;
}

static bool take_float(Cursor *c, double *out) {
  CToken t = cursor_next(c);
  bool minus = ctoken_is(&t, "-");
  if (minus) t = cursor_next(c);
  if (!ctoken_float(&t, "", out)) return false;
  if (minus) *out = -*out;
  return true;
}

// The characters of a string literal; NULL if it has an escape that generated code does not use.
static const char *decode(const CToken *t, Arena *a) {
  if (t->kind != C_string) return NULL;
  char *out = arena_alloc(a, (size_t)t->n);
  int n = 0;
  for (const char *p = t->at + 1, *end = t->at + t->n - 1; p < end; p++) {
    if (*p != '\\') {
      out[n++] = *p;
      continue;
    }
    if (*++p == '"' || *p == '\\')
      out[n++] = *p;
    else if (*p == 'n')
      out[n++] = '\n';
    else if (end - p >= 3 && *p < '4' && strspn(p, "01234567") >= 3 && strncmp(p, "000", 3) != 0) {
      // An octal escape has at most three digits, is a byte, and does not end the string.
      out[n++] = (char)((p[0] - '0') * 64 + (p[1] - '0') * 8 + p[2] - '0');
      p += 2;
    } else
      return NULL;
  }
  return out;
}

// -- Patterns ----------------------------------------------------------------------------------

static bool take_conversion(Cursor *c, char which, va_list *args) {
  CToken t;
  switch (which) {
  case 'i': return take_int(c, va_arg(*args, int64_t *));
  case 'f': return take_float(c, va_arg(*args, double *));
  case 'w':
    t = cursor_next(c);
    *va_arg(*args, CToken *) = t;
    return t.kind == C_name;
  case 's': {
    const char **out = va_arg(*args, const char **);
    t = cursor_next(c);
    *out = decode(&t, c->file ? c->file->arena : NULL);
    return *out != NULL;
  }
  default: t = cursor_next(c); return ctoken_is(&t, "%");
  }
}

bool take(Cursor *c, const char *pattern, ...) {
  Cursor at = *c;
  va_list args;
  va_start(args, pattern);
  bool ok = true;
  const char *end = pattern + strlen(pattern);
  for (const char *p = pattern; ok;) {
    p += strspn(p, " ");
    if (p == end) break;
    if (*p == '%') {
      ok = take_conversion(&at, p[1], &args);
      p += 2;
      continue;
    }
    // A token of the pattern.
    int line = 0;
    const CToken want = lex(&p, end, &line), t = cursor_next(&at);
    ok = want.kind == t.kind && want.n == t.n && !memcmp(want.at, t.at, (size_t)t.n);
  }
  va_end(args);
  if (ok) *c = at;
  return ok;
}

bool take_block(Cursor *c) {
  for (int depth = 1; depth > 0;) {
    CToken t = cursor_next(c);
    if (t.kind == C_end || t.kind == C_bad) return false;
    if (t.kind != C_mark || t.n != 1) continue;
    depth += *t.at == '{' ? 1 : *t.at == '}' ? -1 : 0;
  }
  return true;
}
