// Loops over equal calls, as the backend writes them (backend/repeats.c):
//
//     static const NnrtSpan repeats_0[] = {
//       {0, 0, 8192, 1792}, {2, 0, 12800, 0}, {3, 0, 0, 0},
//     };
//     for (int64_t i = 0, span = 0, at[2] = {0}; i < 3; i++) {
//       span = nnrt_row(repeats_0, span, i, at, 1);
//       RUN(i * 2 + 7, nnrt_linear_f32(P0, R0_Y, R0_X, R0_W));
//     }
//
// Each iteration is read as the text that it stands for:
//
//     RUN(9, nnrt_linear_f32(P0, R0_Y_at_1, R0_X_at_1, R0_W_at_1));
//
// with a macro for each place, at the offset of the iteration.  No macro of the text has small
// letters.  The body is read once, into parts: the time of an iteration is that of its numbers.
//
// A function of such lines fills a table of repeated rows:
//
//     static NnrtValue train_values[45];
//     NNRT_ONCE static void train_values_fill(void) {
//       train_values[0] = (NnrtValue){0, 1, NNRT_f32, false, 48, 4800, 0, 0};
//       …
//
// It becomes the text of a constant table, which other readers read: {0, 1, NNRT_f32, …}, ….

#include <inttypes.h>
#include <string.h>

#include "check.h"

enum { MOST_TIMES = 1 << 24 };

bool loop_number_read(Cursor *at, LoopNumber *out) {
  *out = (LoopNumber){0};
  if (take(at, "at[%i]", &out->of))
    out->kind = NUMBER_column;
  else if (take(at, "i * %i", &out->of))
    out->kind = NUMBER_step;
  else if (take(at, "i")) {
    out->kind = NUMBER_step;
    out->of = 1;
  } else
    return false;
  take(at, "+ %i", &out->plus);
  return true;
}

// The number in the current iteration.
static bool number_value(Check *c, const Cursor *at, const LoopText *loop, const LoopNumber *n,
                         int64_t *out) {
  int64_t by = n->of;
  bool over = false;
  if (n->kind == NUMBER_column) {
    if (n->of < 0 || n->of >= loop->n_columns)
      return mismatch(c, at, "the loop has no column %" PRId64, n->of);
    by = loop->at[n->of];
  } else
    over = __builtin_mul_overflow(loop->i, n->of, &by);
  over |= __builtin_add_overflow(by, n->plus, out);
  return !over || mismatch(c, at, "a number of the loop overflows");
}

// "static const NnrtSpan repeats_0[] = {…};"
static bool take_spans(Check *c, Cursor *at, LoopText *loop, CToken *name) {
  if (!take(at, "static const NnrtSpan %w[] = {", name)) return true;
  while (!take(at, "};")) {
    LoopSpan span;
    const Cursor before = *at;
    if (!take(at, "{%i, %i, %i, %i},", &span.from, &span.column, &span.value, &span.step))
      return unexpected(c, at, "a span of numbers of the loop");
    if (span.from < 0 || (loop->span.n && span.from < loop->span.at[loop->span.n - 1].from))
      return mismatch(c, &before, "the span begins before the one that precedes it");
    vec_push(c->arena, &loop->span, span);
  }
  return loop->span.n || unexpected(c, at, "a span of numbers of the loop");
}

// The head of a loop that reads spans, the last of which is the end mark.
static bool take_columns(Check *c, Cursor *at, LoopText *loop, const CToken *name) {
  const Cursor before = *at;
  CToken same;
  int64_t n_at, n;
  if (!take(at, "for (int64_t i = 0, span = 0, at[%i] = {0}; i < %i; i++) {", &n_at, &loop->times))
    return unexpected(c, at, "the loop that reads the table");
  if (!take(at, "span = nnrt_row(%w, span, i, at, %i);", &same, &n) ||
      !ctoken_is(&same, ctoken_text(name, c->arena)))
    return unexpected(c, at, "a row of the loop's table");
  int last = loop->span.n - 1;
  if (loop->times < 1 || loop->times > MOST_TIMES || loop->span.at[last].from != loop->times)
    return mismatch(c, &before, "the loop has no such iterations");
  if (n < 1 || n > last || n_at != 2 * n) return mismatch(c, &before, "no loop has such columns");
  loop->at = arena_array(c->arena, int64_t, 2 * n);
  for (int i = 0; i < last; i++)
    if (loop->span.at[i].column < 0 || loop->span.at[i].column >= n)
      return mismatch(c, &before, "the loop has no column %" PRId64, loop->span.at[i].column);
  loop->n_columns = n;
  return true;
}

bool loop_open(Check *c, Cursor *at, LoopText *loop, bool *found) {
  CToken name;
  *loop = (LoopText){.i = -1};
  *found = false;
  if (!take_spans(c, at, loop, &name)) return false;
  const Cursor before = *at;
  if (loop->span.n) {
    if (!take_columns(c, at, loop, &name)) return false;
  } else {
    int64_t times;
    if (!take(at, "for (int64_t i = 0; i < %i; i++) {", &times)) return true;
    if (times < 1 || times > MOST_TIMES)
      return mismatch(c, &before, "the loop has no such iterations");
    loop->times = times;
  }
  loop->number = c->n_loops++;
  loop->body = loop->after = *at;
  *found = true;
  return take_block(&loop->after) || mismatch(c, &before, "the loop does not end");
}

// The numbers of the next iteration, as nnrt_row computes them.
static bool next_row(Check *c, LoopText *loop) {
  int64_t n = loop->n_columns;
  for (int64_t k = 0; k < n; k++)
    if (__builtin_add_overflow(loop->at[k], loop->at[n + k], &loop->at[k]))
      return mismatch(c, &loop->body, "a number of the loop overflows");
  for (; n && loop->span.at[loop->next_span].from == loop->i; loop->next_span++) {
    const LoopSpan *span = &loop->span.at[loop->next_span];
    loop->at[span->column] = span->value;
    loop->at[n + span->column] = span->step;
  }
  return true;
}

// Adds text, of the file or a literal, to the parts of the body.
static void add_text(Check *c, LoopText *loop, const char *text, int n) {
  LoopPart *last = loop->part.n ? &loop->part.at[loop->part.n - 1] : NULL;
  if (n == 0) return;
  // Adjacent texts are one part.
  if (last && last->kind == PART_text && last->text + last->n == text)
    last->n += n;
  else
    vec_push(c->arena, &loop->part, (LoopPart){.kind = PART_text, .text = text, .n = n});
}

// Adds a number, or a place, after the text before it.
static void add_part(Check *c, LoopText *loop, LoopPart part) {
  LoopPart *last = loop->part.n ? &loop->part.at[loop->part.n - 1] : NULL;
  if (!last || last->kind != PART_text) {
    vec_push(c->arena, &loop->part, part);
    return;
  }
  part.text = last->text;
  part.n = last->n;
  *last = part;
}

static void add_number(Check *c, LoopText *loop, const Cursor *at, LoopNumber number) {
  add_part(c, loop, (LoopPart){.kind = PART_number, .number = number, .at = *at});
}

static void add_place(Check *c, LoopText *loop, const Cursor *at, const CToken *token,
                      const MacroPlace *place) {
  const char *name = str_format(c->arena, "%s_%d_at_", ctoken_text(token, c->arena), loop->number);
  add_part(
      c, loop,
      (LoopPart){
          .kind = PART_place, .number = place->number, .name = name, .place = place, .at = *at});
}

// Adds the name that a call of nnrt_name makes, after its parenthesis, as a string literal.
static bool add_name(Check *c, Cursor *at, LoopText *loop) {
  const CToken format = cursor_next(at);
  if (format.kind != C_string || !want(c, at, ", LIST(")) return unexpected(c, at, "a name");
  bool first = true;
  for (const char *p = format.at, *end = p + format.n; p < end; p++) {
    if (*p != '%') {
      add_text(c, loop, p, 1);
      continue;
    }
    if (*++p == '%') {
      add_text(c, loop, p, 1);
      continue;
    }
    const Cursor before = *at;
    LoopNumber number;
    if (*p != 'd' || (!first && !take(at, ",")) || !loop_number_read(at, &number))
      return unexpected(c, at, "a number of the name");
    add_number(c, loop, &before, number);
    first = false;
  }
  return want(c, at, "))");
}

// Reads the body once, as text between numbers and places.
static bool read_body(Check *c, LoopText *loop) {
  bool alone = false; // an argument, or a number of a list, begins
  int depth = 0;
  for (Cursor at = loop->body;;) {
    // Spaces and comments before the token stay, and with them the numbers of lines.
    const char *gap = at.at;
    CToken t = cursor_peek(&at);
    if (t.kind == C_end || t.kind == C_bad) return unexpected(c, &at, "the end of the loop");
    depth += ctoken_is(&t, "{") ? 1 : ctoken_is(&t, "}") ? -1 : 0;
    if (depth < 0) return true;
    add_text(c, loop, gap, (int)(t.at - gap));
    const Cursor before = at;
    LoopNumber number;
    const MacroPlace *place = macro_find(c, &t);
    if (place && place->number.kind != NUMBER_plain) {
      cursor_next(&at);
      add_place(c, loop, &before, &t, place);
    } else if (t.kind == C_name && take(&at, "nnrt_name(")) {
      if (!add_name(c, &at, loop)) return false;
    } else if (alone && loop_number_read(&at, &number)) {
      const CToken after = cursor_peek(&at);
      if (!ctoken_is(&after, ",") && !ctoken_is(&after, ")") && !ctoken_is(&after, "}") &&
          !ctoken_is(&after, "]"))
        return unexpected(c, &at, "the end of a number of the loop");
      add_number(c, loop, &before, number);
    } else {
      cursor_next(&at);
      add_text(c, loop, t.at, t.n);
    }
    alone = ctoken_is(&t, "(") || ctoken_is(&t, ",") || ctoken_is(&t, "{") || ctoken_is(&t, "=") ||
            ctoken_is(&t, "[");
  }
}

bool loop_next(Check *c, LoopText *loop, Cursor *out) {
  *out = (Cursor){0};
  if (++loop->i >= loop->times) return true;
  if ((loop->i == 0 && !read_body(c, loop)) || !next_row(c, loop)) return false;
  // One buffer for all iterations: nothing refers to the text of an earlier one.
  StrBuf *text = &loop->text;
  text->arena = c->arena;
  text->n = 0;
  for (int i = 0; i < loop->part.n; i++) {
    const LoopPart *part = &loop->part.at[i];
    int64_t value = 0;
    strbuf_add_n(text, part->text, (size_t)part->n);
    if (part->kind == PART_text) continue;
    if (!number_value(c, &part->at, loop, &part->number, &value)) return false;
    if (part->kind == PART_number) {
      strbuf_addf(text, "%" PRId64, value);
      continue;
    }
    // A macro of the place for this iteration.
    if (value < 0) return mismatch(c, &part->at, "the place is before its memory");
    const char *name = str_format(c->arena, "%s%" PRId64, part->name, loop->i);
    MacroPlace *place = arena_one(c->arena, MacroPlace);
    *place = *part->place;
    place->number = (LoopNumber){0};
    place->offset = value;
    table_add(c->names, NAME_macro, name, place);
    strbuf_add(text, name);
  }
  CFile *file = arena_one(c->arena, CFile);
  *file = (CFile){loop->body.file->path, text->at, text->at + text->n, c->arena};
  *out = (Cursor){file, text->at, loop->body.line};
  return true;
}

// -- Tables --------------------------------------------------------------------------------------

// "train_values[7] = (NnrtValue){…};" is row 7.
static bool take_row(Check *c, Cursor *at, const Unit *u, int64_t row, StrBuf *out) {
  const Cursor before = *at;
  CToken name;
  int64_t index;
  if (!take(at, "%w[%i] =", &name, &index) || !ctoken_is(&name, u->name))
    return unexpected(c, at, "a row of the table");
  if (index != row || row >= u->length)
    return mismatch(c, &before, "row %" PRId64 " is due here", row);
  if (str_equal(u->type, TYPE_text)) {
    const CToken text = cursor_next(at);
    if (text.kind != C_string) return unexpected(c, &before, "a string");
    strbuf_addf(out, "%.*s,\n", text.n, text.at);
    return want(c, at, ";");
  }
  int64_t number;
  if (str_equal(u->type, "int64_t")) {
    if (!take(at, "%i;", &number)) return unexpected(c, at, "a number");
    strbuf_addf(out, "%" PRId64 ",\n", number);
    return true;
  }
  if (!want(c, at, "(") || !want_word(c, at, u->type, "the type of the row") || !want(c, at, ")"))
    return false;
  const char *from = cursor_peek(at).at;
  if (!want(c, at, "{")) return false;
  if (!take_block(at)) return mismatch(c, &before, "the row does not end");
  strbuf_addf(out, "%.*s,\n", (int)(at->at - from), from);
  return want(c, at, ";");
}

// Reads the function that fills a table; the table's text is its rows.
static bool fill_table(Check *c, Unit *u) {
  const Unit *function =
      unit_find(c, &u->at, str_format(c->arena, "%s_fill", u->name), UNIT_function);
  if (!function) return false;
  Cursor at = function->at, inner;
  StrBuf text = {.arena = c->arena};
  int64_t row = 0;
  c->function = function->name;
  if (!want(c, &at, "(void) {")) return false;
  while (!take(&at, "}")) {
    LoopText loop;
    bool found;
    if (!loop_open(c, &at, &loop, &found)) return false;
    if (!found && !take_row(c, &at, u, row++, &text)) return false;
    if (!found) continue;
    for (;;) {
      if (!loop_next(c, &loop, &inner)) return false;
      if (!inner.file) break;
      while (cursor_peek(&inner).kind != C_end)
        if (!take_row(c, &inner, u, row++, &text)) return false;
    }
    at = loop.after;
  }
  if (!want_equal(c, &function->at, row, u->length, "the number of rows")) return false;
  strbuf_add(&text, "};\n");
  CFile *file = arena_one(c->arena, CFile);
  *file =
      (CFile){str_format(c->arena, "%s/%s", c->dir, u->name), text.at, text.at + text.n, c->arena};
  u->at = cursor_of(file);
  u->length = -1;
  c->function = NULL;
  return true;
}

bool tables_fill(Check *c) {
  for (int i = 0; i < c->units.n; i++)
    if (c->units.at[i]->filled && !fill_table(c, c->units.at[i])) return false;
  return true;
}

// Reads one of the two functions of nnrt_program, which call those of the tables.  `checks`: only
// tables that checks of values read.
static bool read_fill(Check *c, const char *name, bool checks) {
  if (!name) return true;
  const Unit *function = unit_find(c, NULL, name, UNIT_function);
  if (!function) return false;
  Cursor at = function->at;
  c->function = name;
  if (!want(c, &at, "(void) {")) return false;
  while (!take(&at, "}")) {
    const Cursor before = at;
    CToken call;
    if (!take(&at, "%w();", &call)) return unexpected(c, &at, "a table to fill");
    const char *of = ctoken_text(&call, c->arena);
    Unit *u = str_ends(of, "_fill")
                  ? table_find(c->names, NAME_unit, str_copy_n(c->arena, of, strlen(of) - 5))
                  : NULL;
    if (!u || !u->filled) return mismatch(c, &before, "'%s' fills no table", of);
    bool late = str_equal(u->type, "NnrtValue") || str_equal(u->type, "NnrtModelValue") ||
                str_equal(u->type, "NnrtModelUse");
    if (checks && !late) return mismatch(c, &before, "'%s' is read before it is filled", u->name);
    u->filled = false;
  }
  c->function = NULL;
  return true;
}

bool fill_check(Check *c) {
  if (!read_fill(c, c->p.fill, false) || !read_fill(c, c->p.fill_checks, true)) return false;
  for (int i = 0; i < c->units.n; i++)
    if (c->units.at[i]->filled)
      return mismatch(c, NULL, "nothing fills '%s'", c->units.at[i]->name);
  return true;
}
