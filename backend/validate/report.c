// Messages about a text that is not the module's program, and the smallest comparisons.

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "check.h"

// The line of the cursor, from its begin.
static const char *line_of(const Cursor *at) {
  const char *p = at->at;
  while (p > at->file->text && p[-1] != '\n')
    p--;
  return p;
}

bool mismatch(Check *c, const Cursor *at, const char *fmt, ...) {
  if (c->failed) return false;
  c->failed = true;
  va_list args;
  va_start(args, fmt);
  const char *text = str_vformat(c->arena, fmt, args);
  va_end(args);
  const Loc *loc = NULL;
  if (at && at->file) {
    // The next token is the subject.
    CToken t = cursor_peek(at);
    Cursor here = {at->file, t.at, t.line};
    const char *line = line_of(&here);
    loc = loc_source(c->arena, at->file->path, t.line, (int)(t.at - line) + 1, line);
  }
  // A text without its options is a user's, who may have edited it.
  diag_error(c->d, loc, "%s%s%s%s", c->function ? c->function : "", c->function ? ": " : "", text,
             c->o ? "; this is a bug of nnaot" : "");
  if (c->op) diag_note(c->d, c->op->loc, "the op is '%s'", op_text(c->op, c->arena));
  if (c->o)
    diag_hint(c->d, "this program would not run the planned module, so nothing was compiled; "
                    "please report the command with the model, or its --dump-dir");
  else
    diag_hint(c->d, "'%s' was edited, or made of another planned module", c->dir);
  return false;
}

bool unexpected(Check *c, const Cursor *at, const char *wanted) {
  CToken t = cursor_peek(at);
  if (t.n > 60) t.n = 60;
  return mismatch(c, at, "%s is due here, not '%s'", wanted, ctoken_text(&t, c->arena));
}

bool want(Check *c, Cursor *at, const char *pattern) {
  return take(at, pattern) || unexpected(c, at, str_format(c->arena, "'%s'", pattern));
}

bool want_equal(Check *c, const Cursor *at, int64_t have, int64_t value, const char *what) {
  return have == value ||
         mismatch(c, at, "%s is %" PRId64 ", and %" PRId64 " in the module", what, have, value);
}

bool want_int(Check *c, Cursor *at, int64_t value, const char *what) {
  int64_t have;
  const Cursor before = *at;
  if (!take(at, "%i", &have)) return unexpected(c, at, what);
  return want_equal(c, &before, have, value, what);
}

bool want_word(Check *c, Cursor *at, const char *value, const char *what) {
  CToken t;
  const Cursor before = *at;
  if (!take(at, "%w", &t)) return unexpected(c, at, what);
  return ctoken_is(&t, value) || mismatch(c, &before, "%s is %s, and %s in the module", what,
                                          ctoken_text(&t, c->arena), value);
}

bool want_string(Check *c, Cursor *at, const char *value, const char *what) {
  const char *have;
  const Cursor before = *at;
  if (!take(at, "%s", &have)) return unexpected(c, at, what);
  return str_equal(have, value) ||
         mismatch(c, &before, "%s is '%s', and '%s' in the module", what, have, value);
}
