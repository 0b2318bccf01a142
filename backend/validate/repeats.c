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
// A loop in the body, over j, is read likewise in the text of each iteration, without i:
//
//     for (int64_t i = 0, span_1 = 0, in_1[2] = {0}; i < 3; i++) {       for (int64_t j = 0; j < 4; j++) {
//       for (int64_t j = 0; j < 4; j++) {                                  span_1 = nnrt_row(repeats_1, span_1, j + 8, in_1, 1);
//         span_1 = nnrt_row(repeats_1, span_1, i * 4 + j, in_1, 1);   =>   RUN(j * 2 + 25, …
//         RUN(i * 9 + j * 2 + 7, …
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
  Cursor after = *at;
  CToken array;
  if (take(&after, "%w[%i]", &array, &out->of)) {
    if (!ctoken_is(&array, "at") && (array.n < 4 || memcmp(array.at, "in_", 3) != 0)) return false;
    out->array = array.at;
    out->array_length = array.n;
    out->kind = NUMBER_column;
    *at = after;
  } else if (take(at, "i * %i", &out->of)) {
    out->kind = NUMBER_step;
  } else if (take(at, "i")) {
    out->kind = NUMBER_step;
    out->of = 1;
  } else if (take(at, "j * %i", &out->inner)) {
    out->kind = NUMBER_step;
  } else if (take(at, "j")) {
    out->kind = NUMBER_step;
    out->inner = 1;
  } else
    return false;
  if (out->kind == NUMBER_step && out->of && !take(at, "+ j * %i", &out->inner))
    out->inner = take(at, "+ j");
  take(at, "+ %i", &out->plus);
  return true;
}

static bool is_array(const LoopNumber *n, const char *name) {
  return strlen(name) == (size_t)n->array_length && !memcmp(n->array, name, strlen(name));
}

// Whether the number is another one in each iteration of this loop.
static bool differs(const LoopText *loop, const LoopNumber *n) {
  if (n->kind == NUMBER_column) return loop->inner || is_array(n, "at");
  return n->kind == NUMBER_step && (loop->inner || n->of);
}

// The number in the current iteration, without a step per iteration of an inner loop.
static bool number_value(Check *c, const Cursor *at, const LoopText *loop, const LoopNumber *n,
                         int64_t *out) {
  int64_t by = 0;
  bool over = false;
  if (n->kind == NUMBER_column) {
    const LoopColumns *columns = loop->columns;
    if (!columns || !is_array(n, columns->array) || n->of < 0 || n->of >= columns->n)
      return mismatch(c, at, "the loop has no column %" PRId64, n->of);
    by = columns->at[n->of];
  } else if (n->kind == NUMBER_step) {
    if (loop->inner && n->of) return mismatch(c, at, "the inner loop has no i");
    over = __builtin_mul_overflow(loop->i, loop->inner ? n->inner : n->of, &by);
  }
  over |= __builtin_add_overflow(by, n->plus, out);
  return !over || mismatch(c, at, "a number of the loop overflows");
}

// "static const NnrtSpan repeats_0[] = {…};", after the bracket.
static bool read_spans(Check *c, Cursor *at, LoopColumns *columns) {
  while (!take(at, "};")) {
    LoopSpan span;
    const Cursor before = *at;
    int n = columns->span.n;
    if (!take(at, "{%i, %i, %i, %i},", &span.from, &span.column, &span.value, &span.step))
      return unexpected(c, at, "a span of numbers of the loop");
    if (span.from < 0 || (n && span.from < columns->span.at[n - 1].from))
      return mismatch(c, &before, "the span begins before the one that precedes it");
    vec_push(c->arena, &columns->span, span);
  }
  return columns->span.n || unexpected(c, at, "a span of numbers of the loop");
}

// The variables of columns in the head of a loop: ", span_2 = 0, in_2[4] = {0}".
static bool read_variables(Check *c, Cursor *at, LoopColumns *columns) {
  const Cursor before = *at;
  CToken next, array;
  int64_t n_at;
  if (!take(at, ", %w = 0, %w[%i] = {0}", &next, &array, &n_at))
    return unexpected(c, at, "the numbers of the loop's table");
  columns->next = ctoken_text(&next, c->arena);
  columns->array = ctoken_text(&array, c->arena);
  columns->n = n_at / 2;
  int last = columns->span.n - 1;
  if (columns->n < 1 || columns->n > last || n_at % 2)
    return mismatch(c, &before, "no loop has such columns");
  columns->at = arena_array(c->arena, int64_t, n_at);
  for (int i = 0; i < last; i++) {
    int64_t k = columns->span.at[i].column;
    if (k < 0 || k >= columns->n) return mismatch(c, &before, "the loop has no column %" PRId64, k);
  }
  return true;
}

// The statement that makes the numbers of a row: "span = nnrt_row(repeats_0, span, i, at, 2);".
// The table has so many rows, of which the first of the loop is the next.
static bool take_row_of(Check *c, Cursor *at, LoopText *loop, const LoopText *outer, int64_t rows) {
  const Cursor before = *at;
  CToken next, table, same, array;
  LoopNumber row;
  int64_t n;
  Cursor after = *at;
  if (!take(&after, "%w = nnrt_row(%w, %w,", &next, &table, &same)) return true;
  LoopColumns *columns = NULL;
  for (int i = 0; i < outer->outside.n; i++)
    if (ctoken_is(&table, outer->outside.at[i]->table)) columns = outer->outside.at[i];
  if (!columns || !ctoken_is(&next, columns->next) || !ctoken_is(&same, columns->next))
    return unexpected(c, at, "a row of the loop's table");
  *at = after;
  if (!loop_number_read(at, &row) || !take(at, ", %w, %i);", &array, &n) ||
      !ctoken_is(&array, columns->array))
    return unexpected(c, at, "a row of the loop's table");
  if (n != columns->n) return mismatch(c, &before, "no loop has such columns");
  bool by_one = row.kind == NUMBER_step && row.of == !loop->inner && row.inner == loop->inner;
  if (!by_one || row.plus != columns->row)
    return mismatch(c, &before, "row %" PRId64 " is due here", columns->row);
  if (columns->span.at[columns->span.n - 1].from != rows)
    return mismatch(c, &before, "the loop has no such iterations");
  loop->columns = columns;
  return true;
}

bool loop_open(Check *c, Cursor *at, LoopText *loop, bool *found) {
  CToken name;
  int64_t times;
  *loop = (LoopText){.i = -1};
  *found = false;
  while (take(at, "static const NnrtSpan %w[] = {", &name)) {
    LoopColumns *columns = arena_one(c->arena, LoopColumns);
    columns->table = ctoken_text(&name, c->arena);
    if (!read_spans(c, at, columns)) return false;
    vec_push(c->arena, &loop->outside, columns);
  }
  const Cursor before = *at;
  if (!take(at, "for (int64_t i = 0"))
    return !loop->outside.n || unexpected(c, at, "the loop that reads the table");
  for (int i = 0; i < loop->outside.n; i++)
    if (!read_variables(c, at, loop->outside.at[i])) return false;
  if (!take(at, "; i < %i; i++) {", &times)) return unexpected(c, at, "the head of a loop");
  if (times < 1 || times > MOST_TIMES)
    return mismatch(c, &before, "the loop has no such iterations");
  loop->times = times;
  loop->number = c->n_loops++;
  if (!take_row_of(c, at, loop, loop, times)) return false;
  loop->body = loop->after = *at;
  *found = true;
  return take_block(&loop->after) || mismatch(c, &before, "the loop does not end");
}

// Opens a loop of the text of an iteration.
static bool inner_open(Check *c, Cursor *at, const LoopText *outer, LoopText *loop) {
  const Cursor before = *at;
  *loop = (LoopText){.i = -1, .inner = true};
  if (!take(at, "for (int64_t j = 0; j < %i; j++) {", &loop->times))
    return unexpected(c, at, "the head of an inner loop");
  if (loop->times < 1 || loop->times > MOST_TIMES / outer->times)
    return mismatch(c, &before, "the loop has no such iterations");
  loop->number = c->n_loops++;
  if (!take_row_of(c, at, loop, outer, loop->times * outer->times)) return false;
  loop->body = loop->after = *at;
  return take_block(&loop->after) || mismatch(c, &before, "the loop does not end");
}

// The numbers of the next row, as nnrt_row computes them.
static bool next_row(Check *c, const LoopText *loop) {
  LoopColumns *columns = loop->columns;
  if (!columns) return true;
  int64_t n = columns->n;
  for (int64_t k = 0; k < n; k++)
    if (__builtin_add_overflow(columns->at[k], columns->at[n + k], &columns->at[k]))
      return mismatch(c, &loop->body, "a number of the loop overflows");
  for (; columns->span.at[columns->next_span].from == columns->row; columns->next_span++) {
    const LoopSpan *span = &columns->span.at[columns->next_span];
    columns->at[span->column] = span->value;
    columns->at[n + span->column] = span->step;
  }
  columns->row++;
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
    if (*p != 'd' || (!first && !take(at, ",")) ||
        (!loop_number_read(at, &number) && !take(at, "%i", &number.plus)))
      return unexpected(c, at, "a number of the name");
    add_number(c, loop, &before, number);
    first = false;
  }
  return want(c, at, "))");
}

// Takes a number that differs between the iterations of this loop, if one is next.
static bool number_is_next(Cursor *at, const LoopText *loop, LoopNumber *out) {
  Cursor after = *at;
  if (!loop_number_read(&after, out) || !differs(loop, out)) return false;
  *at = after;
  return true;
}

// Reads the body once, as text between numbers and places.
static bool read_body(Check *c, LoopText *loop) {
  bool alone = false; // an argument, or a number of a list, begins
  int depth = 0, inner = -1;
  for (Cursor at = loop->body;;) {
    // Spaces and comments before the token stay, and with them the numbers of lines.
    const char *gap = at.at;
    CToken t = cursor_peek(&at);
    if (t.kind == C_end || t.kind == C_bad) return unexpected(c, &at, "the end of the loop");
    depth += ctoken_is(&t, "{") ? 1 : ctoken_is(&t, "}") ? -1 : 0;
    if (depth < 0) return true;
    // A loop in the body has its names.
    if (ctoken_is(&t, "for") && inner < 0) {
      inner = depth;
      loop->nests = true;
    }
    if (ctoken_is(&t, "}") && depth == inner) inner = -1;
    add_text(c, loop, gap, (int)(t.at - gap));
    const Cursor before = at;
    LoopNumber number;
    const MacroPlace *place = macro_find(c, &t);
    if (place && differs(loop, &place->number)) {
      cursor_next(&at);
      add_place(c, loop, &before, &t, place);
    } else if (inner < 0 && t.kind == C_name && take(&at, "nnrt_name(")) {
      if (!add_name(c, &at, loop)) return false;
    } else if (alone && number_is_next(&at, loop, &number)) {
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

// The macro of the place in this iteration.
static const char *add_macro(Check *c, const LoopText *loop, const LoopPart *part, int64_t value) {
  const char *name = str_format(c->arena, "%s%" PRId64, part->name, loop->i);
  MacroPlace *place = arena_one(c->arena, MacroPlace);
  *place = *part->place;
  place->number = (LoopNumber){0};
  place->offset = value;
  if (!loop->inner && part->number.inner)
    place->number = (LoopNumber){NUMBER_step, .inner = part->number.inner, .plus = value};
  table_add(c->names, NAME_macro, name, place);
  return name;
}

// Replaces the loops of the text of an iteration by their iterations.
static bool expand_inner(Check *c, LoopText *loop, CFile *file) {
  StrBuf text = {.arena = c->arena};
  Cursor at = {file, file->text, loop->body.line};
  const char *from = at.at;
  for (CToken t; (t = cursor_peek(&at)).kind != C_end;) {
    if (!ctoken_is(&t, "for")) {
      cursor_next(&at);
      continue;
    }
    LoopText inner;
    Cursor part;
    strbuf_add_n(&text, from, (size_t)(t.at - from));
    if (!inner_open(c, &at, loop, &inner)) return false;
    while (true) {
      if (!loop_next(c, &inner, &part)) return false;
      if (!part.file) break;
      strbuf_add_n(&text, part.at, (size_t)(part.file->end - part.at));
    }
    at = inner.after;
    from = at.at;
  }
  strbuf_add_n(&text, from, (size_t)(file->end - from));
  file->text = text.at;
  file->end = text.at + text.n;
  return true;
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
    bool in_inner = !loop->inner && part->number.inner;
    if (part->kind == PART_number && in_inner)
      strbuf_addf(text, "j * %" PRId64 " + ", part->number.inner);
    if (part->kind == PART_number) {
      strbuf_addf(text, "%" PRId64, value);
      continue;
    }
    if (value < 0 && !in_inner) return mismatch(c, &part->at, "the place is before its memory");
    strbuf_add(text, add_macro(c, loop, part, value));
  }
  CFile *file = arena_one(c->arena, CFile);
  *file = (CFile){loop->body.file->path, text->at, text->at + text->n, c->arena};
  if (loop->nests && !expand_inner(c, loop, file)) return false;
  *out = (Cursor){file, file->text, loop->body.line};
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
