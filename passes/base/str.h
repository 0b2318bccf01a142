// Strings: NUL-terminated, in an arena, immutable.

#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

#ifdef __GNUC__
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF_LIKE(fmt, args)
#endif

const char *str_copy(Arena *a, const char *s);
const char *str_copy_n(Arena *a, const char *s, size_t n);
const char *str_format(Arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
const char *str_vformat(Arena *a, const char *fmt, va_list args);
const char *str_shown(Arena *a, const char *s);          // as a terminal may have it: rt/utf8.h
const char *str_utf8(Arena *a, const char *s, size_t n); // bytes that are not UTF-8 as \\xHH
const char *str_shell(Arena *a, const char *word);       // quoted for a shell, if necessary
bool str_equal(const char *a, const char *b);            // NULL equals only NULL
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
bool str_glob(const char *pattern, const char *s); // *, ? and [a-z], as a shell's
// The length of "emb.*" in "emb.*[12]", a row of a weight; 0 if the pattern does not end in
// [digits].
size_t str_row_glob(const char *pattern);

// Takes the word at *io_at up to an unquoted character of `ends`, without surrounding spaces.  Any
// part of the word may be in double quotes; in them \" is a quote and \\ a backslash.  NULL if a
// quote is not closed.
const char *str_take_word(Arena *a, const char **io_at, const char *ends);

// "; did you mean NAME?", or "" without a name.
const char *str_did_you_mean(Arena *a, const char *name);

// A string that grows.  `at` is always NUL-terminated once something has been added.
typedef struct StrBuf {
  Arena *arena;
  char *at;
  size_t n, cap;
} StrBuf;

void strbuf_add(StrBuf *b, const char *s);
void strbuf_add_n(StrBuf *b, const char *s, size_t n);
void strbuf_add_shown(StrBuf *b, const char *s); // as str_shown
void strbuf_addf(StrBuf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
