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

// The text, in `small` if it fits, else in the arena; its length in *n.
static const char *format(char *small, size_t cap, Arena *a, const char *fmt, va_list args,
                          int *n) {
  va_list again;
  va_copy(again, args);
  *n = vsnprintf(small, cap, fmt, args);
  if (*n < 0) BUG("cannot format '%s'", fmt);
  char *s = small;
  if ((size_t)*n >= cap) {
    s = arena_alloc(a, (size_t)*n + 1);
    vsnprintf(s, (size_t)*n + 1, fmt, again);
  }
  va_end(again);
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
