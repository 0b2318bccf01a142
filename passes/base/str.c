// Strings in an arena: copying, formatting, comparing, and a buffer that grows.

#include "base/str.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/diag.h"
#include "rt/utf8.h"

enum { SHORT = 256 }; // bytes of most texts

_Static_assert(sizeof(long) == sizeof(int64_t) && sizeof(size_t) == sizeof(int64_t),
               "format_plain reads numbers of one size");

const char *str_copy(Arena *a, const char *s) {
  return s ? str_copy_n(a, s, strlen(s)) : NULL;
}

const char *str_copy_n(Arena *a, const char *s, size_t n) {
  char *copy = arena_alloc(a, n + 1);
  if (n > 0) memcpy(copy, s, n);
  return copy;
}

// Appends to `small` while it fits.
static size_t put(char *small, size_t cap, size_t at, const char *s, size_t n) {
  if (n > 0 && at + n < cap) memcpy(small + at, s, n);
  return at + n;
}

static size_t put_number(char *small, size_t cap, size_t at, bool minus, uint64_t number) {
  char digits[24], *p = digits + sizeof digits;
  do
    *--p = (char)('0' + number % 10);
  while (number /= 10);
  if (minus) *--p = '-';
  return put(small, cap, at, p, (size_t)(digits + sizeof digits - p));
}

static size_t put_int(char *small, size_t cap, size_t at, int64_t i) {
  return put_number(small, cap, at, i < 0, i < 0 ? -(uint64_t)i : (uint64_t)i);
}

// Most texts consist of %s and whole numbers, and are written here: in a process with libquadmath,
// which solvers bring, vsnprintf parses each format twice and is several times slower.  The length
// of the text, or -1: it has other conversions, or does not fit.
static int format_plain(char *small, size_t cap, const char *fmt, va_list args) {
  size_t at = 0;
  for (;;) {
    const char *next = strchr(fmt, '%');
    at = put(small, cap, at, fmt, next ? (size_t)(next - fmt) : strlen(fmt));
    if (!next || at >= cap) break;
    fmt = next + 1;
    // The type of a number: int, or as long as a size.
    bool wide = *fmt == 'l' || *fmt == 'z';
    while (*fmt == 'l' || *fmt == 'z')
      fmt++;
    const char *s;
    if (*fmt == 'd' || *fmt == 'i')
      at = put_int(small, cap, at, wide ? va_arg(args, int64_t) : va_arg(args, int));
    else if (*fmt == 'u')
      at =
          put_number(small, cap, at, false, wide ? va_arg(args, uint64_t) : va_arg(args, unsigned));
    else if (*fmt == 's' && !wide && (s = va_arg(args, const char *)))
      at = put(small, cap, at, s, strlen(s));
    else if (*fmt == '%' && !wide)
      at = put(small, cap, at, "%", 1);
    else
      return -1;
    fmt++;
  }
  if (at >= cap) return -1;
  small[at] = 0;
  return (int)at;
}

// The text, in `small` if it fits, else in the arena; its length in *n.
static const char *format(char *small, size_t cap, Arena *a, const char *fmt, va_list args,
                          int *n) {
  va_list again;
  va_copy(again, args);
  *n = format_plain(small, cap, fmt, again);
  va_end(again);
  if (*n >= 0) return small;
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
