// JSON from a file (json.h).

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "solver/json.h"

enum { MAX_DEPTH = 256 }; // of skipped values

static const Loc *line_of(const Json *j, const char *at) {
  int line = 1;
  for (const char *p = j->start; (p = memchr(p, '\n', (size_t)(at - p))); p++)
    line++;
  return loc_line(j->arena, j->file, line, 0);
}

bool json_fail(Json *j, const char *fmt, ...) {
  // Only the first error counts: later ones are its consequences.
  if (j->failed) return false;
  j->failed = true;
  va_list args;
  va_start(args, fmt);
  const char *text = str_vformat(j->arena, fmt, args);
  va_end(args);
  return diag_error(j->diag, line_of(j, j->at), "%s", text);
}

void json_error(Json *j, const char *at, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *text = str_vformat(j->arena, fmt, args);
  va_end(args);
  diag_error(j->diag, line_of(j, at), "%s", text);
}

void json_text(Json *j, Arena *a, const char *file, const char *text, size_t n, Diag *d) {
  *j = (Json){.arena = a, .file = file, .start = text, .at = text, .end = text + n, .diag = d};
}

const char *json_load(Arena *a, const char *path, size_t *out_n, Diag *d) {
  const Loc *loc = loc_line(a, path, 0, 0);
  FILE *f = fopen(path, "rb");
  struct stat s;
  if (!f || fstat(fileno(f), &s)) {
    diag_error(d, loc, "cannot open: %s", strerror(errno));
    if (f) fclose(f);
    return NULL;
  }
  // fopen opens directories and pipes too, whose size says nothing.
  if (!S_ISREG(s.st_mode)) {
    fclose(f);
    diag_error(d, loc, "is no regular file");
    return NULL;
  }
  char *text = arena_alloc(a, (size_t)s.st_size + 1);
  *out_n = fread(text, 1, (size_t)s.st_size, f);
  bool ok = !ferror(f);
  fclose(f);
  if (!ok) diag_error(d, loc, "cannot read");
  return ok ? text : NULL;
}

static void skip_blanks(Json *j) {
  while (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r')
    j->at++;
}

// The text at the current position, for a message.
static const char *here(Json *j) {
  if (j->at >= j->end) return "the end of the file";
  unsigned char c = (unsigned char)*j->at;
  return c > ' ' && c < 127 ? str_format(j->arena, "'%c'", c)
                            : str_format(j->arena, "the byte 0x%02x", c);
}

static bool expect(Json *j, char c) {
  if (j->failed) return false;
  skip_blanks(j);
  if (*j->at != c) return json_fail(j, "there is %s, and '%c' is expected", here(j), c);
  j->at++;
  return true;
}

bool json_open(Json *j, char open) {
  if (!expect(j, open)) return false;
  skip_blanks(j);
  if (*j->at != (open == '{' ? '}' : ']')) return true;
  j->at++;
  return false;
}

bool json_next(Json *j, char close) {
  if (j->failed) return false;
  skip_blanks(j);
  if (*j->at == ',') {
    j->at++;
    skip_blanks(j);
    return true;
  }
  if (*j->at != close)
    return json_fail(j, "there is %s, and ',' or '%c' is expected", here(j), close);
  j->at++;
  return false;
}

// Escapes are not decoded: no expected key has one.
static const char *string(Json *j) {
  if (!expect(j, '"')) return "";
  const char *from = j->at;
  while (*j->at != '"') {
    if (j->at >= j->end || (unsigned char)*j->at < ' ') {
      json_fail(j, "a string does not end on its line");
      return "";
    }
    j->at += *j->at == '\\' && j->at + 1 < j->end ? 2 : 1;
  }
  return str_copy_n(j->arena, from, (size_t)(j->at++ - from));
}

const char *json_key(Json *j) {
  const char *key = string(j);
  expect(j, ':');
  skip_blanks(j);
  return key;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Skips a number; false if there is none.  *out_whole: without fraction and exponent.
static bool scan_number(Json *j, bool *out_whole) {
  const char *p = j->at + (*j->at == '-');
  if (!is_digit(*p)) return false;
  while (is_digit(*p))
    p++;
  // A fraction, and an exponent.
  *out_whole = true;
  if (*p == '.') {
    *out_whole = false;
    if (!is_digit(*++p)) return false;
    while (is_digit(*p))
      p++;
  }
  if (*p == 'e' || *p == 'E') {
    *out_whole = false;
    p++;
    p += *p == '+' || *p == '-';
    if (!is_digit(*p)) return false;
    while (is_digit(*p))
      p++;
  }
  j->at = p;
  return true;
}

static int64_t digits(const char *p, const char *end) {
  // Saturates: the largest numbers of the format mean infinity.
  bool negative = *p == '-';
  int64_t n = 0;
  for (p += negative; p < end; p++)
    if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *p - '0', &n))
      return negative ? INT64_MIN : INT64_MAX;
  return negative ? -n : n;
}

int64_t json_integer(Json *j) {
  if (j->failed) return 0;
  skip_blanks(j);
  const char *from = j->at;
  bool whole;
  if (!scan_number(j, &whole)) {
    json_fail(j, "there is %s, and a number is expected", here(j));
    return 0;
  }
  if (whole) return digits(from, j->at);
  // With a fraction or an exponent, as 1e9, it may still be whole.
  double value = strtod(from, NULL);
  if (isfinite(value) && value != nearbyint(value)) {
    json_fail(j, "'%.*s' is no whole number", (int)(j->at - from > 40 ? 40 : j->at - from), from);
    return 0;
  }
  // 2^63 is a double, and INT64_MAX is not.
  return value >= 0x1p63 ? INT64_MAX : value <= -0x1p63 ? INT64_MIN : (int64_t)value;
}

double json_number(Json *j) {
  if (j->failed) return 0;
  skip_blanks(j);
  const char *from = j->at;
  bool whole;
  if (scan_number(j, &whole)) return strtod(from, NULL);
  json_fail(j, "there is %s, and a number is expected", here(j));
  return 0;
}

const char *json_quoted(Json *j) {
  return string(j);
}

static bool skip_word(Json *j, const char *word) {
  size_t n = strlen(word);
  if (strncmp(j->at, word, n) != 0) return false;
  j->at += n;
  return true;
}

static void skip_value(Json *j, int depth) {
  bool whole;
  if (j->failed) return;
  if (depth > MAX_DEPTH) {
    json_fail(j, "more than %d values in each other", MAX_DEPTH);
    return;
  }
  // The recursion depth is limited, as a file may nest deeper than the call stack.
  skip_blanks(j);
  if (*j->at == '{') {
    for (bool more = json_open(j, '{'); more; more = json_next(j, '}')) {
      json_key(j);
      skip_value(j, depth + 1);
    }
  } else if (*j->at == '[') {
    for (bool more = json_open(j, '['); more; more = json_next(j, ']'))
      skip_value(j, depth + 1);
  } else if (*j->at == '"') {
    string(j);
  } else if (!skip_word(j, "true") && !skip_word(j, "false") && !skip_word(j, "null") &&
             !scan_number(j, &whole)) {
    json_fail(j, "there is %s, and a value is expected", here(j));
  }
}

void json_skip(Json *j) {
  skip_value(j, 0);
}

bool json_end(Json *j) {
  if (j->failed) return false;
  skip_blanks(j);
  return j->at == j->end || json_fail(j, "there is %s after the end", here(j));
}
