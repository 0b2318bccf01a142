// See lua_locations.h.
//
// The text is scanned comment by comment and string by string, counting brackets, without parsing
// expressions.  Each query scans its table again, and the whole file if the table lacks the name:
// files are small.

#include "lua_locations.h"

#include <ctype.h>
#include <string.h>

static const LuaSpan nowhere = {NULL, NULL};

// -- Scanning ------------------------------------------------------------------------------------

static const char *behind(const char *s, const char *what) {
  const char *at = strstr(s, what);
  return at ? at + strlen(what) : s + strlen(s);
}

// The end of the comment, string or single character at `s`.
static const char *skip(const char *s) {
  // Long forms first, since they begin like others.
  if (!strncmp(s, "--[[", 4)) return behind(s + 4, "]]");
  if (!strncmp(s, "[[", 2)) return behind(s + 2, "]]");
  if (!strncmp(s, "--", 2)) return s + strcspn(s, "\n");
  if (*s != '"' && *s != '\'') return s + 1;
  char quote = *s++;
  while (*s && *s != quote)
    s += s[0] == '\\' && s[1] ? 2 : 1;
  return *s ? s + 1 : s;
}

static int deeper(char c) {
  return c == '{' || c == '(' || c == '[' ? 1 : c == '}' || c == ')' || c == ']' ? -1 : 0;
}

static bool is_comment(const char *s) {
  return s[0] == '-' && s[1] == '-';
}

static const char *skip_space(const char *s) {
  while (isspace((unsigned char)*s) || is_comment(s))
    s = is_comment(s) ? skip(s) : s + 1;
  return s;
}

// The table that begins at `s`, if one does.
static LuaSpan table_at(const char *s) {
  s = skip_space(s);
  if (*s != '{') return nowhere;
  const char *from = s + 1;
  int depth = 0;
  for (const char *next; *s; s = next) {
    next = skip(s);
    // Brackets in comments and strings do not count.
    if (next == s + 1) depth += deeper(*s);
    if (depth == 0) return (LuaSpan){from, s};
  }
  return nowhere;
}

static bool in_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

// The position after `name =` if `s` is at it, else NULL.
static const char *behind_name(const char *text, const char *s, const char *name) {
  size_t n = strlen(name);
  if ((s > text && in_word(s[-1])) || strncmp(s, name, n) != 0) return NULL;
  const char *after = s + n + strspn(s + n, " \t");
  return after[0] == '=' && after[1] != '=' ? after + 1 : NULL;
}

// -- Fields --------------------------------------------------------------------------------------

// The position of `name =` among the fields of the table, else of the first one in the text.
static const char *find_name(const char *text, LuaSpan t, const char *name) {
  int depth = 0;
  for (const char *s = t.from, *next; s && s < t.to; s = next) {
    next = skip(s);
    if (depth == 0 && behind_name(text, s, name)) return s;
    if (next == s + 1) depth += deeper(*s);
  }
  // The field may come from another expression of the file.
  for (const char *s = text; *s; s = skip(s))
    if (behind_name(text, s, name)) return s;
  return NULL;
}

static bool has_name(const char *s) {
  const char *after = s;
  while (in_word(*after))
    after++;
  after = skip_space(after);
  return *s == '[' || (after > s && after[0] == '=' && after[1] != '=');
}

// The start of entry i of the list.
static const char *find_item(LuaSpan t, long long i) {
  int depth = 0;
  const char *s = t.from ? skip_space(t.from) : NULL;
  for (const char *next; s && s < t.to; s = next) {
    if (depth == 0 && !has_name(s) && --i == 0) return s;
    // To the comma or semicolon after the entry.
    for (; s < t.to && (depth || (*s != ',' && *s != ';')); s = next) {
      next = skip(s);
      if (next == s + 1) depth += deeper(*s);
    }
    next = s < t.to ? skip_space(s + 1) : s;
  }
  return NULL;
}

LuaPlace lua_place_of(Arena *a, const char *path, const char *text, LuaSpan table, const char *name,
                      long long i) {
  const char *at = name ? find_name(text, table, name) : find_item(table, i);
  if (!at) return (LuaPlace){loc_line(a, path, 0, 0), nowhere};
  const char *value = name ? behind_name(text, at, name) : at;
  // Line and column of the position.
  int line = 1;
  const char *start = text;
  for (const char *s = text; s < at; s++)
    if (*s == '\n') {
      line++;
      start = s + 1;
    }
  const Loc *loc = loc_source(a, path, line, (int)(at - start) + 1, start);
  return (LuaPlace){loc, table_at(value)};
}

LuaSpan lua_span_returned(const char *text) {
  LuaSpan last = nowhere;
  for (const char *s = text; *s; s = skip(s)) {
    bool begins = (s == text || !in_word(s[-1])) && !strncmp(s, "return", 6) && !in_word(s[6]);
    if (begins) last = table_at(s + 6);
  }
  return last;
}
