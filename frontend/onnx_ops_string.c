// Operators on the text of strings, which must be known at compile time.
//
//     StringConcat(["a", "b"], "!")  =>  ["a!", "b!"]
//
// Their results are constants.  Strings are numbers in the module: see onnx_strings.h.

#include <locale.h>
#include <string.h>
#include <wctype.h>

#include "frontend/onnx_regex.h"
#include "frontend/onnx_walk.h"
#include "rt/utf8.h"

// -- StringConcat, StringSplit -----------------------------------------------------------------

bool import_string_concat(Node *n) {
  NodeStrings x[2];
  int ndim;
  int64_t dim[MAX_NDIM], at[2] = {0, 0};
  if (!node_strings(n, 0, "operand 0", &x[0]) || !node_strings(n, 1, "operand 1", &x[1]) ||
      !node_broadcast_shape(n, n->in, 2, &ndim, dim) || !node_small(n, product(dim, 0, ndim)))
    return false;
  int64_t count = product(dim, 0, ndim);
  const char **y = arena_array(n->a, const char *, count + 1);
  for (int64_t i = 0; i < count; i++) {
    // The element of each operand, whose dimensions of length 1 are repeated.
    for (int k = 0; k < 2; k++) {
      const Type *t = x[k].type;
      int64_t rest = i, stride = 1;
      at[k] = 0;
      for (int d = ndim - 1; d >= 0; rest /= dim[d--]) {
        int own = d - (ndim - t->ndim);
        if (own < 0) continue;
        if (t->dim[own] > 1) at[k] += rest % dim[d] * stride;
        stride *= t->dim[own];
      }
    }
    y[i] = str_format(n->a, "%s%s", x[0].at[at[0]], x[1].at[at[1]]);
  }
  n->out[0] = node_strings_value(n, ndim, dim, y);
  n->out_narrow[0] = ONNX_STRING;
  return true;
}

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Adds the parts of a text: between delimiters, or between runs of white space without one; the
// last one is the rest after `most` splits.
static void split(Arena *a, const char *text, const char *delimiter, int64_t most, NodeStrings *out,
                  const char **parts) {
  size_t length = strlen(delimiter);
  out->n = 0;
  for (;;) {
    while (!length && is_space(*text))
      text++;
    if (!length && !*text) return;
    const char *end = length ? strstr(text, delimiter) : text;
    while (!length && *end && !is_space(*end))
      end++;
    if (!end || !*end || (most >= 0 && out->n >= most)) end = text + strlen(text);
    if (parts) parts[out->n] = str_copy_n(a, text, (size_t)(end - text));
    out->n++;
    if (!*end) return;
    text = end + length;
  }
}

// The parts of each string in a new last dimension, filled up with empty ones; their numbers.
bool import_string_split(Node *n) {
  NodeStrings x, parts = {0};
  const char *delimiter = node_str(n, "delimiter", "");
  int64_t most = node_int(n, "maxsplit", -1), widest = 0, dim[MAX_NDIM];
  if (!node_strings(n, 0, "operand", &x)) return false;
  if (x.type->ndim == MAX_NDIM) return node_shape(n, MAX_NDIM + 1, x.type->dim);
  int64_t *counts = arena_array(n->a, int64_t, x.n + 1);
  for (int64_t i = 0; i < x.n; i++) {
    split(n->a, x.at[i], delimiter, most, &parts, NULL);
    counts[i] = parts.n;
    if (parts.n > widest) widest = parts.n;
  }
  if (widest && !node_small(n, x.n > INT64_MAX / widest ? INT64_MAX : x.n * widest)) return false;
  const char **y = arena_array(n->a, const char *, x.n *widest + 1);
  for (int64_t i = 0; i < x.n; i++) {
    split(n->a, x.at[i], delimiter, most, &parts, y + i * widest);
    for (int64_t k = counts[i]; k < widest; k++)
      y[i * widest + k] = "";
  }
  memcpy(dim, x.type->dim, sizeof dim);
  dim[x.type->ndim] = widest;
  n->out[0] = node_strings_value(n, x.type->ndim + 1, dim, y);
  n->out_narrow[0] = ONNX_STRING;
  n->out[1] = build_constant(n->b, type_new(n->im->m, DT_i64, x.type->ndim, x.type->dim), counts);
  n->out_narrow[1] = 0;
  return true;
}

// -- RegexFullMatch ----------------------------------------------------------------------------

bool import_regex_full_match(Node *n) {
  NodeStrings x;
  const char *pattern = node_str(n, "pattern", ""), *why;
  if (!node_strings(n, 0, "operand", &x)) return false;
  const Regex *r = regex_new(n->a, pattern, &why);
  if (!r) return node_fail(n, "its pattern '%s' cannot be read: %s", pattern, why);
  Tensor y = tensor_new(n->a, type_new(n->im->m, DT_bool, x.type->ndim, x.type->dim));
  for (int64_t i = 0; i < x.n; i++)
    tensor_set_i(&y, i, regex_matches(r, n->a, x.at[i]));
  n->out[0] = build_constant(n->b, y.type, y.data);
  return true;
}

// -- StringNormalizer --------------------------------------------------------------------------

static void add_code(StrBuf *b, uint32_t code) {
  char byte[4];
  size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = n; i-- > 1; code >>= 6)
    byte[i] = (char)(0x80 | (code & 0x3f));
  byte[0] = (char)(lead[n] | code);
  strbuf_add_n(b, byte, n);
}

// The text with all letters small, or all capital.
static const char *in_case(Arena *a, locale_t locale, const char *text, bool upper) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "");
  while (*text) {
    uint32_t code;
    int n = nnrt_utf8(text, &code);
    if (n > 0)
      add_code(&b, (uint32_t)(upper ? towupper_l((wint_t)code, locale)
                                    : towlower_l((wint_t)code, locale)));
    else
      strbuf_add_n(&b, text, 1);
    text += n > 0 ? n : 1;
  }
  return b.at;
}

// Leaves out the stopwords, and changes the case of the rest; an empty list becomes one empty
// string.
bool import_string_normalizer(Node *n) {
  NodeStrings x;
  const char *action = node_str(n, "case_change_action", "NONE");
  bool upper = str_equal(action, "UPPER"), lower = str_equal(action, "LOWER");
  bool sensitive = node_int(n, "is_case_sensitive", 0) != 0;
  Ints stop;
  node_string_list(n, "stopwords", &stop);
  (void)node_attr(n, "locale"); // letters of all languages have their case by Unicode
  if (n->b->failed || !node_strings(n, 0, "operand", &x)) return false;
  if (!upper && !lower && !str_equal(action, "NONE"))
    return node_fail(n, "case_change_action '%s' is unknown", action);
  int ndim = x.type->ndim;
  if (ndim < 1 || ndim > 2 || (ndim == 2 && x.type->dim[0] != 1))
    return node_fail(n, "operand 0 is %s, and one list is needed", type_text(n->a, x.type));
  locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
  if (!locale) return node_fail(n, "this system has no locale C.UTF-8");
  const char **word = arena_array(n->a, const char *, stop.n + 1);
  for (int i = 0; i < stop.n; i++) {
    word[i] = n->im->strings->at.at[stop.at[i]];
    if (!sensitive) word[i] = in_case(n->a, locale, word[i], false);
  }
  const char **y = arena_array(n->a, const char *, x.n + 1);
  int64_t kept = 0;
  for (int64_t i = 0; i < x.n; i++) {
    const char *compared = sensitive ? x.at[i] : in_case(n->a, locale, x.at[i], false);
    bool stops = false;
    for (int k = 0; k < stop.n && !stops; k++)
      stops = str_equal(compared, word[k]);
    if (!stops) y[kept++] = upper || lower ? in_case(n->a, locale, x.at[i], upper) : x.at[i];
  }
  freelocale(locale);
  if (kept == 0) y[kept++] = "";
  n->out[0] = node_strings_value(n, ndim, (int64_t[]){ndim == 2 ? 1 : kept, kept}, y);
  n->out_narrow[0] = ONNX_STRING;
  return true;
}
