// Strings in an arena: copying, formatting, comparing, and a buffer that grows.

#include "base/str.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/diag.h"
#include "rt/utf8.h"

enum { SHORT = 256 }; // bytes of most texts

const char *str_copy(Arena *a, const char *s) {
  return s ? str_copy_n(a, s, strlen(s)) : NULL;
}

const char *str_copy_n(Arena *a, const char *s, size_t n) {
  char *copy = arena_alloc(a, n + 1);
  if (n > 0) memcpy(copy, s, n);
  return copy;
}

// Writes the digits of a number that end at `end`; returns their begin.
static char *digits_before(char *end, int64_t x) {
  uint64_t left = x < 0 ? -(uint64_t)x : (uint64_t)x;
  do
    *--end = (char)('0' + left % 10);
  while (left /= 10);
  if (x < 0) *--end = '-';
  return end;
}

// Most texts are short and have no other directives than these: %s, %.*s, %d, %ld, %c and %%.
// Writes such a text, which is all that nnaot prints of models with thousands of layers, several
// times as fast as printf.  Returns its length; -1: it is longer, or has others.
static int format_short(char *out, size_t cap, const char *fmt, va_list args) {
  size_t n = 0;
  for (;; fmt++) {
    size_t plain = strcspn(fmt, "%"), length = 0;
    if (plain >= cap - n) return -1;
    memcpy(out + n, fmt, plain);
    n += plain;
    fmt += plain;
    if (!*fmt) break;
    char digits[24], *end = digits + sizeof digits;
    const char *text = digits;
    if (*++fmt == 's') {
      text = va_arg(args, const char *);
      if (!text) return -1;
      length = strlen(text);
    } else if (*fmt == '.' && fmt[1] == '*' && fmt[2] == 's') {
      int most = va_arg(args, int);
      text = va_arg(args, const char *);
      if (!text || most < 0) return -1;
      length = strnlen(text, (size_t)most);
      fmt += 2;
    } else if (*fmt == 'd' || (*fmt == 'l' && fmt[1] == 'd')) {
      text = digits_before(end, *fmt == 'd' ? va_arg(args, int) : va_arg(args, long));
      length = (size_t)(end - text);
      fmt += *fmt == 'l';
    } else if (*fmt == 'c') {
      digits[0] = (char)va_arg(args, int);
      length = 1;
    } else if (*fmt == '%') {
      digits[0] = '%';
      length = 1;
    } else
      return -1;
    if (length >= cap - n) return -1;
    memcpy(out + n, text, length);
    n += length;
  }
  out[n] = 0;
  return (int)n;
}

// The text, in `small` or in the arena; its length in *n.
static const char *format(char *small, size_t cap, Arena *a, const char *fmt, va_list args,
                          int *n) {
  va_list again;
  va_copy(again, args);
  *n = format_short(small, cap, fmt, again);
  va_end(again);
  if (*n >= 0) return small;
  va_copy(again, args);
  *n = vsnprintf(small, cap, fmt, again);
  va_end(again);
  if (*n < 0) BUG("cannot format '%s'", fmt);
  if ((size_t)*n < cap) return small;
  char *s = arena_alloc(a, (size_t)*n + 1);
  vsnprintf(s, (size_t)*n + 1, fmt, args);
  return s;
}

const char *str_vformat(Arena *a, const char *fmt, va_list args) {
  char small[SHORT];
  int n;
  const char *s = format(small, sizeof small, a, fmt, args, &n);
  return s == small ? str_copy_n(a, s, (size_t)n) : s;
}

const char *str_format(Arena *a, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *s = str_vformat(a, fmt, args);
  va_end(args);
  return s;
}

bool str_equal(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

bool str_starts(const char *s, const char *prefix) {
  return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix) {
  size_t n = strlen(s), k = strlen(suffix);
  return n >= k && strcmp(s + n - k, suffix) == 0;
}

bool str_glob(const char *pattern, const char *s) {
  return fnmatch(pattern, s, 0) == 0;
}

const char *str_utf8(Arena *a, const char *s, size_t n) {
  // A copy ends with a zero byte, also after a character that is cut off.
  const char *at = str_copy_n(a, s, n), *end = at + n;
  StrBuf b = {.arena = a};
  strbuf_add(&b, "");
  while (at < end) {
    uint32_t code;
    int length = nnrt_utf8(at, &code);
    if (length == 0)
      strbuf_addf(&b, "\\x%02x", (unsigned char)*at);
    else
      strbuf_add_n(&b, at, (size_t)length);
    at += length ? length : 1;
  }
  return b.at;
}

const char *str_shown(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "");
  strbuf_add_shown(&b, s);
  return b.at;
}

void strbuf_add_shown(StrBuf *b, const char *s) {
  char text[UTF8_SHOWN];
  while (*s)
    strbuf_add_n(b, text, (size_t)nnrt_utf8_shown(&s, text));
}

void strbuf_add_n(StrBuf *b, const char *s, size_t n) {
  if (b->cap - b->n <= n) {
    // The old buffer stays in the arena.
    size_t cap = b->cap ? b->cap : 64;
    while (cap - b->n <= n)
      cap *= 2;
    char *grown = arena_alloc(b->arena, cap);
    if (b->n > 0) memcpy(grown, b->at, b->n);
    b->at = grown;
    b->cap = cap;
  }
  if (n > 0) memcpy(b->at + b->n, s, n);
  b->n += n;
  b->at[b->n] = '\0';
}

void strbuf_add(StrBuf *b, const char *s) {
  strbuf_add_n(b, s, strlen(s));
}

void strbuf_addf(StrBuf *b, const char *fmt, ...) {
  char small[SHORT];
  va_list args;
  int n;
  va_start(args, fmt);
  const char *s = format(small, sizeof small, b->arena, fmt, args, &n);
  va_end(args);
  strbuf_add_n(b, s, (size_t)n);
}

size_t str_row_glob(const char *pattern) {
  size_t n = strlen(pattern);
  if (n < 4 || pattern[n - 1] != ']') return 0;
  // "NAME[DIGITS]": the length of the name.
  size_t at = n - 1;
  for (; at > 0 && pattern[at - 1] >= '0' && pattern[at - 1] <= '9';)
    at--;
  return at < n - 1 && at > 1 && pattern[at - 1] == '[' ? at - 1 : 0;
}

const char *str_shell(Arena *a, const char *word) {
  StrBuf b = {.arena = a};
  if (*word && !strpbrk(word, " \t\n'\"$\\`*?[]{}()<>|&;~#!")) return word;
  // A quote inside quotes ends them, and begins them again.
  strbuf_add(&b, "'");
  for (const char *p = word; *p; p++)
    strbuf_addf(&b, *p == '\'' ? "'\\%c'" : "%c", *p);
  strbuf_add(&b, "'");
  return b.at;
}

const char *str_take_word(Arena *a, const char **io_at, const char *ends) {
  StrBuf b = {.arena = a};
  bool quoted = false;
  size_t kept = 0; // the length without trailing spaces
  strbuf_add(&b, "");
  const char *at = *io_at + strspn(*io_at, " ");
  for (; *at && (quoted || !strchr(ends, *at)); at++) {
    // Quotes protect blanks and ends, and are dropped.
    if (*at == '"') {
      quoted = !quoted;
      kept = b.n;
      continue;
    }
    if (quoted && *at == '\\' && at[1]) at++;
    strbuf_add_n(&b, at, 1);
    if (quoted || *at != ' ') kept = b.n;
  }
  *io_at = at;
  return quoted ? NULL : str_copy_n(a, b.at, kept);
}

const char *str_did_you_mean(Arena *a, const char *name) {
  return name ? str_format(a, "; did you mean %s?", name) : "";
}
