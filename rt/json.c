// Reads JSON piece by piece: the caller asks for the next item, and anything else is an error.
// After an error every call fails, so callers may check once at the end.

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"
#include "utf8.h"

static bool fail(Json *j, const char *error) {
  if (!j->error) j->error = error;
  return false;
}

bool nnrt_json_take(Json *j, char c) {
  while (j->at < j->end && strchr(" \t\r\n", *j->at) && *j->at)
    j->at++;
  if (j->error || j->at == j->end || *j->at != c) return false;
  j->at++;
  return true;
}

bool nnrt_json_want(Json *j, char c) {
  return nnrt_json_take(j, c) || fail(j, "the JSON is damaged");
}

bool nnrt_json_int(Json *j, int64_t *out) {
  *out = 0;
  nnrt_json_take(j, ' '); // white space
  if (j->error || j->at == j->end || !isdigit((unsigned char)*j->at))
    return fail(j, "a number from 0 was expected");
  const char *first = j->at;
  for (; j->at < j->end && isdigit((unsigned char)*j->at); j->at++)
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *j->at - '0', out))
      return fail(j, "a number is too large");
  // JSON has no leading zeros, and a size is a whole number.
  if (*first == '0' && j->at > first + 1) return fail(j, "a number begins with 0");
  if (j->at < j->end && strchr(".eE", *j->at) && *j->at) return fail(j, "a number is not whole");
  return true;
}

static int hex4(Json *j) {
  int code = 0;
  if (j->end - j->at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    char c = *j->at++;
    if (!isxdigit((unsigned char)c)) return -1;
    // `c | 32` is the lower-case letter.
    code = code * 16 + (isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
  }
  return code;
}

// Writes \uXXXX, or a surrogate pair of them for a code above 16 bits, as UTF-8.
static char *put_code(Json *j, char *out) {
  int code = hex4(j);
  if (code >= 0xD800 && code < 0xDC00 && j->end - j->at >= 6 && j->at[0] == '\\' &&
      j->at[1] == 'u') {
    j->at += 2;
    int low = hex4(j);
    code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : -1;
  }
  // None of our strings holds a 0 byte, and C's would end there.
  if (code <= 0 || (code >= 0xD800 && code < 0xE000)) {
    fail(j, "a string has a wrong escape");
    return out;
  }
  // The first byte has the number of the others, each with six bits.
  if (code < 0x80) {
    *out++ = (char)code;
  } else {
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int lead[] = {0, 0xC0, 0xE0, 0xF0};
    *out++ = (char)(lead[more] | code >> 6 * more);
    while (more-- > 0)
      *out++ = (char)(0x80 | (code >> 6 * more & 0x3F));
  }
  return out;
}

char *nnrt_json_string(Json *j) {
  if (!nnrt_json_want(j, '"')) return NULL;
  const char *close = j->at;
  // The end is found first: it bounds the length of the text.
  while (close < j->end && *close != '"')
    close += *close == '\\' ? 2 : 1;
  if (close >= j->end) {
    fail(j, "a string does not end");
    return NULL;
  }
  // The value of an escape is never longer than the escape.
  char *text = nnrt_must_alloc((size_t)(close - j->at) + 1), *out = text;
  while (!j->error && j->at < close) {
    char c = *j->at++;
    if (c != '\\') {
      if ((unsigned char)c < 0x20) fail(j, "a string holds a control character");
      *out++ = c;
      continue;
    }
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char kind = *j->at++;
    const char *known = kind ? strchr(from, kind) : NULL;
    if (known)
      *out++ = to[known - from];
    else if (kind == 'u')
      out = put_code(j, out);
    else
      fail(j, "a string has a wrong escape");
  }
  if (j->error) {
    free(text);
    return NULL;
  }
  *out = 0;
  j->at = close + 1;
  return text;
}

// Skips a number, or one of the words true, false and null.
static bool skip_word(Json *j) {
  static const char *const words[] = {"true", "false", "null"};
  int64_t left = j->end - j->at;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    int64_t n = (int64_t)strlen(words[i]);
    if (left < n || memcmp(j->at, words[i], (size_t)n) != 0) continue;
    j->at += n;
    return true;
  }
  // -?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?, each part from the sign or letter before its digits.
  static const char *const before[] = {"-", ".", "eE"};
  for (int part = 0; part < 3; part++) {
    bool begins = j->at < j->end && *j->at && strchr(before[part], *j->at);
    if (part > 0 && !begins) continue;
    j->at += begins;
    if (part == 2 && j->at < j->end && (*j->at == '+' || *j->at == '-')) j->at++;
    const char *digits = j->at;
    while (j->at < j->end && isdigit((unsigned char)*j->at))
      j->at++;
    if (j->at == digits) return fail(j, "a value was expected");
  }
  return true;
}

static bool skip(Json *j, int depth) {
  enum { MOST_NESTED = 64 };
  if (depth > MOST_NESTED) return fail(j, "the JSON is nested too deeply");
  nnrt_json_take(j, ' '); // white space
  char open = j->at < j->end ? *j->at : 0, close = open == '{' ? '}' : ']';
  if (open == '"') {
    free(nnrt_json_string(j));
    return !j->error;
  }
  if (open != '{' && open != '[') return skip_word(j);
  j->at++;
  if (nnrt_json_take(j, close)) return true;
  do {
    if (open == '{') {
      free(nnrt_json_string(j));
      nnrt_json_want(j, ':');
    }
    if (j->error || !skip(j, depth + 1)) return false;
  } while (nnrt_json_take(j, ','));
  return nnrt_json_want(j, close);
}

bool nnrt_json_skip(Json *j) {
  return !j->error && skip(j, 0);
}

void nnrt_json_write_string(FILE *f, const char *s) {
  fputc('"', f);
  char text[UTF8_SHOWN];
  while (*s)
    fwrite(text, 1, (size_t)nnrt_utf8_in_json(&s, text), f);
  fputc('"', f);
}
