// Numbers and locations as text that reads back exactly: see text.h.
//
// A location comment is a place; then, for every derivation, "<-", the reason, and a place:
//
//     # mlp.onnx:/fc1/MatMul                             a node of a model
//     # mlp.nn:7:3                                       line 7, column 3 of a file
//     # ? <- gradient mlp.onnx:/fc1/MatMul               derived; has no place of its own
//     # "a b.onnx":"node with space"                     ambiguous names are quoted
//
// Any other comment is a remark and is skipped.

#include "ir/text.h"

#include <ctype.h>
#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/lex.h"
#include "ir/op.h"
#include "rt/utf8.h"

// -- Numbers ---------------------------------------------------------------------------------

static uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Writes 100, not 1e+02.
static const char *integer_text(Arena *a, double x) {
  return x == rint(x) && fabs(x) < 1e9 && (x || !signbit(x)) ? str_format(a, "%.0f", x) : NULL;
}

const char *float_text(Arena *a, double x) {
  // The bits of other NaNs are kept.
  if (isnan(x)) {
    if (bits_of(x) == bits_of((double)NAN)) return "nan";
    return str_format(a, "nan(0x%" PRIx64 ")", bits_of(x));
  }
  if (isinf(x)) return x > 0 ? "inf" : "-inf";
  const char *integer = integer_text(a, x);
  if (integer) return integer;
  // The fewest digits that read back to the same number; 17 always do.
  for (int digits = 1;; digits++) {
    const char *text = str_format(a, "%.*g", digits, x);
    if (digits == 17 || strtod(text, NULL) == x) return text;
  }
}

static bool integer_read(DType t, const char *text, void *to) {
  char *end;
  errno = 0;
  int bits = dtype_bytes[t] * 8;
  if (dtype_class[t] == 'I') {
    long long x = strtoll(text, &end, 10);
    if (*end || errno) return false;
    // strtoll checks the range of 64 bits only.
    if (bits < 64 && (x < -(1LL << (bits - 1)) || x >= 1LL << (bits - 1))) return false;
    int64_t wide = x;
    memcpy(to, &wide, (size_t)dtype_bytes[t]); // little-endian: the low bytes come first
    return true;
  }
  // Unsigned types and bool; strtoull would accept a minus sign.
  if (*text == '-') return false;
  unsigned long long x = strtoull(text, &end, 10);
  if (*end || errno) return false;
  if (bits < 64 && x >= 1ULL << bits) return false;
  if (dtype_class[t] == 'B' && x > 1) return false;
  uint64_t wide = x;
  memcpy(to, &wide, (size_t)dtype_bytes[t]);
  return true;
}

// Reads a number for rounding to a narrower type.  A number that is no double is rounded to the
// neighbour whose last bit is 1 ("round to odd"): no such double is a tie of a narrower type, so
// the second rounding is the only one that counts.
static double read_to_odd(const char *text) {
  int mode = fegetround();
  fesetround(FE_DOWNWARD);
  double low = strtod(text, NULL);
  fesetround(FE_UPWARD);
  double high = strtod(text, NULL);
  fesetround(mode);
  return bits_of(low) & 1 ? low : high;
}

bool element_read(DType t, const char *text, void *to) {
  if (!*text) return false;
  // Booleans are also written 0 and 1.
  if (dtype_class[t] == 'B' && !strcmp(text, "true")) text = "1";
  if (dtype_class[t] == 'B' && !strcmp(text, "false")) text = "0";
  if (dtype_class[t] != 'F') return integer_read(t, text, to);
  char *end;
  double x = strtod(text, &end);
  if (*end) return false;
  // Floating-point numbers, in the bytes of their type: each is rounded once.
  if (t == DT_f64) {
    memcpy(to, &x, sizeof x);
  } else if (t == DT_f32) {
    float f = strtof(text, NULL);
    memcpy(to, &f, sizeof f);
  } else {
    double odd = read_to_odd(text);
    uint16_t h = t == DT_f16 ? double_to_half(odd) : double_to_bf16(odd);
    memcpy(to, &h, sizeof h);
  }
  return true;
}

// The shortest text of a floating element, or NULL if none reproduces its bits (some NaNs).
static const char *float_element_text(Arena *a, DType t, const void *at) {
  double x = 0;
  float f = 0;
  uint16_t h = 0;
  if (t == DT_f64) {
    memcpy(&x, at, sizeof x);
  } else if (t == DT_f32) {
    memcpy(&f, at, sizeof f);
    x = (double)f;
  } else {
    memcpy(&h, at, sizeof h);
    x = (double)(t == DT_f16 ? half_to_float(h) : bf16_to_float(h));
  }
  if (isnan(x)) return NULL;
  const char *integer = integer_text(a, x);
  if (integer) return integer;
  // The fewest digits that read back to the same bits; 17 suffice for f64.
  for (int digits = 1; digits <= 17; digits++) {
    const char *text = str_format(a, "%.*g", digits, x);
    char back[8];
    if (element_read(t, text, back) && !memcmp(back, at, (size_t)dtype_bytes[t])) return text;
  }
  return NULL;
}

const char *elements_text(Arena *a, DType t, const void *at, int64_t n) {
  int size = dtype_bytes[t];
  if (n % size || n / size > MAX_LISTED) return NULL;
  StrBuf b = {.arena = a};
  strbuf_add(&b, "[");
  for (const char *e = at; e < (const char *)at + n; e += size) {
    if (e != (const char *)at) strbuf_add(&b, ",");
    // An element that does not read back makes the whole list bytes.
    if (dtype_class[t] == 'F') {
      const char *text = float_element_text(a, t, e);
      if (!text) return NULL;
      strbuf_add(&b, text);
    } else if (dtype_class[t] == 'B') {
      if (*(const uint8_t *)e > 1) return NULL;
      strbuf_add(&b, *e ? "true" : "false");
    } else {
      uint64_t x = 0;
      memcpy(&x, e, (size_t)size);
      // Sign extension: shift up and back.
      int unused = 64 - size * 8;
      if (dtype_class[t] == 'I')
        strbuf_addf(&b, "%" PRId64, (int64_t)(x << unused) >> unused);
      else
        strbuf_addf(&b, "%" PRIu64, x);
    }
  }
  strbuf_add(&b, "]");
  return b.at;
}

// -- Locations -------------------------------------------------------------------------------

static bool is_plain(const char *s) {
  if (!*s) return false;
  // Quotes, blanks, and all that is escaped need quoting.
  while (*s) {
    uint32_t code;
    int n = nnrt_utf8(s, &code);
    if (n == 0 || nnrt_utf8_obeyed(code) || strchr("\"\\ ", *s)) return false;
    s += n;
  }
  return true;
}

// "12:3": the rest of a place after the file, if it is a line.
static bool read_line_column(const char *s, int *line, int *column) {
  int n = 0;
  return isdigit((unsigned char)*s) && sscanf(s, "%9d:%9d%n", line, column, &n) == 2 && !s[n] &&
         isdigit((unsigned char)s[n - 1]) && isdigit((unsigned char)strchr(s, ':')[1]);
}

static const char *place_text(Arena *a, const Loc *loc) {
  if (!loc->file && !loc->node && !loc->line) return "?";
  const char *file = loc->file ? loc->file : "?";
  // A file with a colon, or named `?`, would read as something else.
  if (loc->file && (!is_plain(file) || strchr(file, ':') || !strcmp(file, "?")))
    file = str_quoted(a, file);
  if (!loc->node) return str_format(a, "%s:%d:%d", file, loc->line, loc->column);
  const char *node = loc->node;
  // A node that looks like a line and column is quoted, too.
  int line, column;
  if (!is_plain(node) || read_line_column(node, &line, &column)) node = str_quoted(a, node);
  return str_format(a, "%s:%s", file, node);
}

static bool is_plain_why(const char *s) {
  if (*s == ' ' || !*s || strstr(s, "<-") || strstr(s, "  ")) return false;
  for (; *s; s++)
    if (*s == '"' || *s == '\\' || (unsigned char)*s < ' ' || (*s == ' ' && !s[1])) return false;
  return true;
}

const char *loc_comment(Arena *a, const Loc *loc) {
  if (!loc) return "?";
  StrBuf b = {.arena = a};
  strbuf_add(&b, place_text(a, loc));
  for (; loc->from; loc = loc->from) {
    // "<- why place", once for each derivation.
    strbuf_add(&b, " <- ");
    if (loc->why)
      strbuf_addf(&b, "%s ", is_plain_why(loc->why) ? loc->why : str_quoted(a, loc->why));
    strbuf_add(&b, place_text(a, loc->from));
  }
  return b.at;
}

// Reads a string with escapes from `s` up to its closing quote; `*end` is the position after it.
// NULL: none.
static const char *read_quoted(Arena *a, const char *s, const char **end) {
  const char *stop = s + 1;
  while (*stop && *stop != '"')
    stop += *stop == '\\' && stop[1] ? 2 : 1;
  if (*s != '"' || !*stop) return NULL;
  // The lexer decodes the escapes.
  int n;
  Source source = {.path = "", .text = s, .n = (size_t)(stop + 1 - s)};
  Token *t = lex_text(a, &source, &n);
  *end = stop + 1;
  return t->kind == TOKEN_string ? t->text : NULL;
}

static bool read_place(Arena *a, const char *s, Loc *loc) {
  if (!strcmp(s, "?")) return true;
  // The file, up to the colon.
  if (*s == '"') {
    loc->file = read_quoted(a, s, &s);
    if (!loc->file || *s != ':') return false;
  } else {
    const char *colon = strchr(s, ':');
    if (!colon || colon == s) return false;
    loc->file = colon == s + 1 && *s == '?' ? NULL : str_copy_n(a, s, (size_t)(colon - s));
    s = colon;
  }
  s++;
  // Then a line and column, or a node.
  if (read_line_column(s, &loc->line, &loc->column)) return true;
  if (*s == '"')
    loc->node = read_quoted(a, s, &s);
  else if (is_plain(s))
    loc->node = s, s = "";
  return loc->node && !*s;
}

// Words are separated by one space; a quoted part of a word may contain spaces.
typedef Vec(const char *) Words;

static Words split_words(Arena *a, const char *s) {
  Words words = {0};
  while (*s) {
    const char *start = s;
    bool quoted = false;
    // A backslash escapes the next character only in quotes.
    for (; *s && (quoted || *s != ' '); s++) {
      if (*s == '\\' && quoted && s[1])
        s++;
      else if (*s == '"')
        quoted = !quoted;
    }
    if (s > start) vec_push(a, &words, str_copy_n(a, start, (size_t)(s - start)));
    while (*s == ' ')
      s++;
  }
  return words;
}

bool loc_read(Arena *a, const char *comment, const Loc **loc) {
  *loc = NULL;
  if (!comment) return false;
  Words words = split_words(a, comment);
  if (!words.n) return false;
  if (words.n == 1 && !strcmp(words.at[0], "?")) return true;
  Loc *first = arena_one(a, Loc), *last = first;
  // The place itself, then a chain of derivations.
  if (!read_place(a, words.at[0], first)) return false;
  for (int i = 1; i < words.n;) {
    if (strcmp(words.at[i], "<-") != 0) return false;
    int end = ++i;
    // The words up to the next arrow are the reason, and the last one is the place.
    while (end < words.n && strcmp(words.at[end], "<-") != 0)
      end++;
    Loc *from = arena_one(a, Loc);
    if (end == i || !read_place(a, words.at[end - 1], from)) return false;
    if (end == i + 2 && *words.at[i] == '"') {
      const char *stop;
      last->why = read_quoted(a, words.at[i], &stop);
    } else if (end > i + 1) {
      StrBuf why = {.arena = a};
      for (int k = i; k < end - 1; k++)
        strbuf_addf(&why, "%s%s", k == i ? "" : " ", words.at[k]);
      last->why = why.at;
    }
    last->from = from;
    last = from;
    i = end;
  }
  *loc = first;
  return true;
}
