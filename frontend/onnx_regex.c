// Regular expressions as programs, run for all ways to match at once (Thompson 1968), so the time
// is the product of both lengths, whatever the expression.
//
//     a(b|c)*      0 char a    1 split 2, 6    2 split 3, 4    3 char b    …    6 match
//
// A thread is a position in the program.  All threads read the same character of the text; those
// that match it go on.  Characters are code points.

#include "frontend/onnx_regex.h"

#include <stdint.h>
#include <string.h>

#include "base/vec.h"
#include "rt/utf8.h"

enum {
  MOST_STEPS = 1 << 16,
  MOST_RANGES = 1 << 20,
  MOST_DEPTH = 200,
  MOST_REPEATS = 1000,
  LAST_CODE = 0x10ffff
};

typedef enum StepKind {
  STEP_set,   // a character of ranges first to before first + n, or none of them if `negated`
  STEP_split, // both `to` and `other`
  STEP_jump,  // `to`
  STEP_begin, // asserts the begin of the text, its end, a word's boundary, or none
  STEP_end,
  STEP_boundary,
  STEP_inside,
  STEP_match,
} StepKind;

typedef struct Step {
  StepKind kind;
  int first, n; // ranges
  bool negated;
  int to, other;
} Step;

typedef struct Range {
  uint32_t low, high;
} Range;

struct Regex {
  Vec(Step) steps;
  Vec(Range) ranges;
};

// -- Reading -----------------------------------------------------------------------------------

typedef struct Parser {
  Arena *a;
  const char *at;
  Regex *r;
  const char *why;      // NULL: no error
  int depth, n_emitted; // n_emitted: also steps of copies that were dropped
} Parser;

static bool wrong(Parser *p, const char *why) {
  if (!p->why) p->why = why;
  return false;
}

static int emit(Parser *p, Step step) {
  // Every part emits a step, so this limits the time as well: parts are read several times.
  if (p->r->steps.n == MOST_STEPS || ++p->n_emitted > 4 * MOST_STEPS) {
    (void)wrong(p, "it is too large");
    return 0;
  }
  vec_push(p->a, &p->r->steps, step);
  return p->r->steps.n - 1;
}

static void add_range(Parser *p, uint32_t low, uint32_t high) {
  if (p->r->ranges.n < MOST_RANGES)
    vec_push(p->a, &p->r->ranges, (Range){low, high});
  else
    (void)wrong(p, "it is too large");
}

// Adds the ranges of \d, \s or \w; of \D, \S and \W all others.
static bool add_class(Parser *p, char letter) {
  static const struct {
    char letter;
    int n;
    Range range[5];
  } classes[] = {
      {'d', 1, {{'0', '9'}}},
      {'s', 3, {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}},
      {'w', 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
  };
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    bool rest = letter == classes[i].letter - 'a' + 'A';
    if (!rest && letter != classes[i].letter) continue;
    uint32_t from = 0;
    for (int k = 0; k < classes[i].n; k++) {
      Range range = classes[i].range[k];
      if (!rest) add_range(p, range.low, range.high);
      if (rest && range.low > from) add_range(p, from, range.low - 1);
      from = range.high + 1;
    }
    if (rest) add_range(p, from, LAST_CODE);
    return true;
  }
  return false;
}

static bool read_code(Parser *p, uint32_t *out) {
  int n = nnrt_utf8(p->at, out);
  if (n <= 0) return wrong(p, "it is not UTF-8");
  p->at += n;
  return true;
}

// Reads \x41 or \x{1F600}, after the x.
static bool read_hex(Parser *p, uint32_t *out) {
  bool braces = *p->at == '{';
  p->at += braces;
  *out = 0;
  int digits = 0;
  for (; braces ? *p->at && *p->at != '}' : digits < 2; digits++, p->at++) {
    const char *all = "0123456789abcdef", *found = *p->at ? strchr(all, *p->at | 0x20) : NULL;
    if (!found || *out > LAST_CODE / 16) return wrong(p, "a number after \\x is malformed");
    *out = *out * 16 + (uint32_t)(found - all);
  }
  if (braces && (digits == 0 || *p->at++ != '}'))
    return wrong(p, "a number after \\x is malformed");
  return true;
}

// Reads an escape, after the backslash: a class, or one character.
static bool read_escape(Parser *p, bool *is_class, uint32_t *out) {
  static const char letters[] = "afnrtv", codes[] = "\a\f\n\r\t\v";
  char c = *p->at;
  *is_class = false;
  if (!c) return wrong(p, "it ends in a backslash");
  if (add_class(p, c)) {
    *is_class = true;
    p->at++;
    return true;
  }
  const char *letter = strchr(letters, c);
  bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (letter) {
    *out = (uint32_t)codes[letter - letters];
    p->at++;
    return true;
  }
  if (c == 'x') {
    p->at++;
    return read_hex(p, out);
  }
  return plain ? wrong(p, "an escape is not supported") : read_code(p, out);
}

// Reads [[:alpha:]] and others, from the bracket on; false without an error if it is none.
static bool read_posix(Parser *p) {
  static const struct {
    const char *name;
    int n;
    Range range[4];
  } classes[] = {
      {"alnum", 3, {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
      {"alpha", 2, {{'A', 'Z'}, {'a', 'z'}}},
      {"digit", 1, {{'0', '9'}}},
      {"lower", 1, {{'a', 'z'}}},
      {"upper", 1, {{'A', 'Z'}}},
      {"space", 2, {{'\t', '\r'}, {' ', ' '}}},
      {"punct", 4, {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {"xdigit", 3, {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
  };
  if (strncmp(p->at, "[:", 2) != 0) return false;
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    size_t n = strlen(classes[i].name);
    if (strncmp(p->at + 2, classes[i].name, n) != 0 || strncmp(p->at + 2 + n, ":]", 2) != 0)
      continue;
    for (int k = 0; k < classes[i].n; k++)
      add_range(p, classes[i].range[k].low, classes[i].range[k].high);
    p->at += n + 4;
    return true;
  }
  return wrong(p, "a class of characters is unknown");
}

// set: '[' '^'? (class | code ('-' code)?)+ ']', after the bracket
static bool read_set(Parser *p) {
  Step set = {.kind = STEP_set, .first = p->r->ranges.n};
  if (*p->at == '^') {
    set.negated = true;
    p->at++;
  }
  // A bracket that comes first is a character.
  for (bool first = true; first || *p->at != ']'; first = false) {
    uint32_t low, high;
    bool is_class = false;
    if (!*p->at) return wrong(p, "a [ has no ]");
    if (read_posix(p)) continue;
    if (p->why) return false; // of the ranges so far, too
    if (*p->at == '\\') {
      p->at++;
      if (!read_escape(p, &is_class, &low)) return false;
    } else if (!read_code(p, &low)) {
      return false;
    }
    if (is_class) continue;
    high = low;
    if (p->at[0] == '-' && p->at[1] && p->at[1] != ']') {
      p->at++;
      if (*p->at == '\\') {
        p->at++;
        if (!read_escape(p, &is_class, &high)) return false;
      } else if (!read_code(p, &high)) {
        return false;
      }
      if (is_class || high < low) return wrong(p, "a range of characters is malformed");
    }
    add_range(p, low, high);
  }
  p->at++;
  set.n = p->r->ranges.n - set.first;
  (void)emit(p, set);
  return !p->why;
}

static bool read_alternatives(Parser *p);

// group: '(' ('?:' | '?P<name>' | '?<name>')? alternatives ')', after the parenthesis
static bool read_group(Parser *p) {
  if (*p->at == '?') {
    p->at++;
    if (*p->at == 'P' && p->at[1] == '<') p->at++;
    if (*p->at == '<') {
      size_t n = strcspn(p->at, ">");
      if (!p->at[n]) return wrong(p, "the name of a group has no end");
      p->at += n;
    } else if (*p->at != ':') {
      return wrong(p, "flags are not supported");
    }
    p->at++;
  }
  if (++p->depth > MOST_DEPTH) return wrong(p, "its groups nest too deep");
  // A step of its own, so that repeated empty groups have a size.
  (void)emit(p, (Step){.kind = STEP_jump, .to = p->r->steps.n + 1});
  if (!read_alternatives(p)) return false;
  p->depth--;
  if (*p->at != ')') return wrong(p, "a ( has no )");
  p->at++;
  return !p->why;
}

// atom: group | set | '.' | '^' | '$' | '\' escape | code
static bool read_atom(Parser *p) {
  static const char asserts[] = "AzbB";
  static const StepKind kinds[] = {STEP_begin, STEP_end, STEP_boundary, STEP_inside};
  char c = *p->at;
  Step set = {.kind = STEP_set, .first = p->r->ranges.n};
  uint32_t code = 0;
  bool is_class = false;
  if (c == '(' || c == '[') {
    p->at++;
    return c == '(' ? read_group(p) : read_set(p);
  }
  if (c == '^' || c == '$') {
    p->at++;
    (void)emit(p, (Step){.kind = c == '^' ? STEP_begin : STEP_end});
    return !p->why;
  }
  if (c == '*' || c == '+' || c == '?') return wrong(p, "a repetition has nothing to repeat");
  const char *assertion = c == '\\' && p->at[1] ? strchr(asserts, p->at[1]) : NULL;
  if (assertion) {
    p->at += 2;
    (void)emit(p, (Step){.kind = kinds[assertion - asserts]});
    return !p->why;
  }
  if (c == '.') {
    p->at++;
    set.negated = true;
    code = '\n';
  } else if (c == '\\') {
    p->at++;
    if (!read_escape(p, &is_class, &code)) return false;
  } else if (!read_code(p, &code)) {
    return false;
  }
  if (!is_class) add_range(p, code, code);
  set.n = p->r->ranges.n - set.first;
  (void)emit(p, set);
  return !p->why;
}

// Reads {2}, {2,} or {2,5}; false without an error if it is none, as a brace is a character then.
static bool read_counts(Parser *p, int *least, int *most) {
  int count[2] = {0, -1}, digits[2] = {0, 0}, part = 0;
  const char *at = p->at + 1;
  for (; *at && *at != '}'; at++) {
    if (*at == ',' && part == 0) {
      part = 1;
      continue;
    }
    if (*at < '0' || *at > '9') return false;
    count[part] = (count[part] < 0 ? 0 : count[part]) * 10 + *at - '0';
    if (count[part] > MOST_REPEATS) return wrong(p, "it repeats more than 1000 times");
    digits[part]++;
  }
  if (!*at || !digits[0]) return false;
  *least = count[0];
  *most = part == 0 ? count[0] : count[1];
  p->at = at + 1;
  return (*most < 0 || *most >= *least) || wrong(p, "a repetition has its bounds in disorder");
}

// piece: atom (('*' | '+' | '?' | '{' counts '}') '?'?)?
static bool read_piece(Parser *p) {
  const char *atom = p->at;
  int begin = p->r->steps.n;
  if (!read_atom(p)) return false;
  int least = 1, most = 1; // most: -1: no limit
  char c = *p->at;
  if (c == '*' || c == '+' || c == '?') {
    least = c == '+';
    most = c == '?' ? 1 : -1;
    p->at++;
  } else if (c != '{' || !read_counts(p, &least, &most)) {
    return !p->why;
  }
  if (*p->at == '?') p->at++; // the same texts match, in another order
  c = *p->at;
  if (c == '*' || c == '+' || c == '?') return wrong(p, "a repetition is repeated");
  // The atom is read again for each of its copies.
  const char *after = p->at;
  p->r->steps.n = begin;
  for (int i = 0; i < least; i++) {
    p->at = atom;
    if (!read_atom(p)) return false;
  }
  for (int i = least; most < 0 ? i == least : i < most; i++) {
    int split = emit(p, (Step){.kind = STEP_split});
    p->at = atom;
    if (p->why || !read_atom(p)) return false;
    if (most < 0) (void)emit(p, (Step){.kind = STEP_jump, .to = split});
    p->r->steps.at[split].to = split + 1;
    p->r->steps.at[split].other = p->r->steps.n;
  }
  // A copy that is left out leaves out those after it, which is the same set of texts.
  p->at = after;
  return !p->why;
}

// alternatives: piece* ('|' piece*)*
static bool read_alternatives(Parser *p) {
  Vec(int) ends = {0};
  for (;;) {
    int split = emit(p, (Step){.kind = STEP_split});
    while (*p->at && *p->at != '|' && *p->at != ')')
      if (!read_piece(p)) return false;
    if (p->why) return false;
    p->r->steps.at[split].to = split + 1;
    if (*p->at != '|') {
      p->r->steps.at[split].other = split + 1; // the last alternative
      break;
    }
    p->at++;
    vec_push(p->a, &ends, emit(p, (Step){.kind = STEP_jump}));
    p->r->steps.at[split].other = p->r->steps.n;
  }
  for (int i = 0; i < ends.n; i++)
    p->r->steps.at[ends.at[i]].to = p->r->steps.n;
  return !p->why;
}

const Regex *regex_new(Arena *a, const char *pattern, const char **why) {
  Parser p = {.a = a, .at = pattern, .r = arena_one(a, Regex)};
  bool ok = read_alternatives(&p);
  if (ok && *p.at) ok = wrong(&p, "a ) has no (");
  if (ok) (void)emit(&p, (Step){.kind = STEP_match});
  *why = p.why;
  return ok && !p.why ? p.r : NULL;
}

// -- Matching ----------------------------------------------------------------------------------

typedef struct Threads {
  int n, *at;    // steps that read a character, or match
  int64_t *mark; // per step: the last position of the text at which it was reached, plus 1
} Threads;

static bool is_word(const uint32_t *code, int64_t n, int64_t i) {
  if (i < 0 || i >= n) return false;
  uint32_t c = code[i];
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
}

static bool holds(StepKind kind, const uint32_t *code, int64_t n, int64_t i) {
  bool boundary = is_word(code, n, i - 1) != is_word(code, n, i);
  switch (kind) {
  case STEP_begin: return i == 0;
  case STEP_end: return i == n;
  case STEP_boundary: return boundary;
  case STEP_inside: return !boundary;
  case STEP_set:
  case STEP_split:
  case STEP_jump:
  case STEP_match: break;
  }
  return true;
}

// Adds the threads that step `from` leads to without reading a character.
static void follow(const Regex *r, Threads *t, int *stack, int from, const uint32_t *code,
                   int64_t n, int64_t i) {
  int depth = 0;
  stack[depth++] = from;
  while (depth > 0) {
    int at = stack[--depth];
    const Step *s = &r->steps.at[at];
    if (t->mark[at] == i + 1) continue;
    t->mark[at] = i + 1;
    if (s->kind == STEP_set || s->kind == STEP_match)
      t->at[t->n++] = at;
    else if (s->kind == STEP_split) {
      stack[depth++] = s->to;
      stack[depth++] = s->other;
    } else if (s->kind == STEP_jump)
      stack[depth++] = s->to;
    else if (holds(s->kind, code, n, i))
      stack[depth++] = at + 1;
  }
}

static bool in_set(const Regex *r, const Step *s, uint32_t code) {
  for (int i = s->first; i < s->first + s->n; i++)
    if (code >= r->ranges.at[i].low && code <= r->ranges.at[i].high) return !s->negated;
  return s->negated;
}

bool regex_matches(const Regex *r, Arena *a, const char *text) {
  int64_t bytes = (int64_t)strlen(text), n = 0;
  uint32_t *code = arena_array(a, uint32_t, bytes + 1);
  // A byte that is not UTF-8 is a character of its own, which only a negated set has.
  for (const char *at = text; *at; n++) {
    int size = nnrt_utf8(at, &code[n]);
    if (size <= 0) code[n] = LAST_CODE + 1;
    at += size > 0 ? size : 1;
  }
  int n_steps = r->steps.n;
  Threads now = {0, arena_array(a, int, n_steps), arena_array(a, int64_t, n_steps)}, next = now;
  next.at = arena_array(a, int, n_steps);
  // Each step is pushed by each of the steps that lead to it: at most two each.
  int *stack = arena_array(a, int, 2 * n_steps + 1);
  follow(r, &now, stack, 0, code, n, 0);
  for (int64_t i = 0; i < n && now.n > 0; i++) {
    next.n = 0;
    for (int k = 0; k < now.n; k++) {
      const Step *s = &r->steps.at[now.at[k]];
      if (s->kind == STEP_set && in_set(r, s, code[i]))
        follow(r, &next, stack, now.at[k] + 1, code, n, i + 1);
    }
    Threads swap = now;
    now = next;
    next = swap;
  }
  for (int k = 0; k < now.n; k++)
    if (r->steps.at[now.at[k]].kind == STEP_match) return true;
  return false;
}
