// Loops over repeated calls: the calls of equal layers are one text.
//
//     RUN(7, nnrt_linear_f32(P0, H0_Y, H0_X, H0_W));
//     RUN(8, fused_0(H0_Z, H0_Y));
//     RUN(9, nnrt_linear_f32(P0, H1_Y, H1_X, H1_W));      #define H0_W ((float *)(r->slab + 512))
//     RUN(10, fused_0(H1_Z, H1_Y));                       #define H1_W ((float *)(r->slab + 1536))
//     …
//
//   =>
//
//     static const NnrtSpan repeats_0[] = {{0, 0, 8192, 1792}, {5, 0, 1024, 1792}, {12, 0, 0, 0}};
//     for (int64_t i = 0, span = 0, at[2] = {0}; i < 12; i++) {  // the first of 12 equal parts
//       span = nnrt_row(repeats_0, span, i, at, 1);
//       RUN(i * 2 + 7, nnrt_linear_f32(P0, R0_H0_Y, R0_H0_X, R0_H0_W));
//       RUN(i * 2 + 8, fused_0(R0_H0_Z, R0_H0_Y));
//     }
//
//     #define R0_H0_W ((float *)(r->slab + i * 1024 + 512)) // f32[4,6]
//     #define R0_H0_Y ((float *)(r->slab + at[0])) // f32[4,6]
//     #define R0_H0_Z ((float *)(r->slab + at[0] + 256)) // f32[4,6]
//
// Calls are equal if they differ only in the numbers of ops, groups, moves, copies, random keys and
// operands of launches, and in the offsets of values: these are marked in the lines (program.h),
// and everything else is the line's form.  A number that grows by the same step from part to part
// is a product with i, else a column of a table: at[k], as spans of parts in which it grows by one
// step (NnrtSpan, rt/nnrt.h).  Columns at a constant distance are one.
//
// Functions of such lines fill tables of repeated rows, at the start of the program; a name in them
// has a number for each run of digits that differs:
//
//     static const char *train_ops[37];
//     NNRT_ONCE static void train_ops_fill(void) {
//       for (int64_t i = 0; i < 12; i++) {                 // as the first of 12 equal parts
//         train_ops[i * 2 + 7] = nnrt_name("linear  m.onnx:/h.%d/MatMul", LIST(i));
//         …
//
// Lines that repeat in the body of a loop, such as layers between two gradient buckets, are a loop
// in it.  Its numbers are products with i and j, or columns, which go on from part to part:
//
//     for (int64_t i = 0, span_3 = 0, in_3[2] = {0}; i < 8; i++) {
//       for (int64_t j = 0; j < 50; j++) {
//         span_3 = nnrt_row(repeats_3, span_3, i * 50 + j, in_3, 1);
//         RUN(i * 102 + j * 2 + 7, nnrt_linear_f32(P0, R3_H0_Y, R3_H0_X, R3_H0_W));
//         …
//       }
//       RUN(i * 102 + 107, nnrt_all_reduce_f32(…));
//       …
//
// Parts of L lines repeat if line k has the form of line k + L.  Candidates for L are distances
// between lines with equal forms of the lines that follow.  Parts end as forms change, or as
// a number stops growing evenly: it needs no table then.  Of all loops the one that saves most text
// is made first, then those before and after it.

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ir/analysis/place.h"
#include "program.h"

enum {
  FEWEST = 3,       // parts of a loop
  LEAST = 4096,     // bytes that a loop saves
  FOLLOWING = 8,    // lines that candidates compare
  CANDIDATES = 16,  // lengths of parts
  MACRO_BYTES = 56, // of a definition
  SPAN_BYTES = 24,  // of a span of a column
  ROW_BYTES = 96,   // of a line of it
  MANY = 64,        // operands and results of an op: those of equal layers
};

// A line without its marks: the text before each number or macro, and after the last.
typedef struct Form {
  int number;       // equal in lines of one form
  uint64_t grown;   // hash of the form, and of the growth of its numbers from the last line of it
  int first, holes; // in Lines.value
  int places;       // of holes, those that are macros
} Form;

typedef struct Lines {
  Program *p;
  const CallList *list;
  Form *form;         // [n]
  Vec(int64_t) value; // of all holes: the number, or the offset of the macro's value
  StrBuf text;        // of a form
} Lines;

// The differing numbers of a loop, as C.
typedef struct Columns {
  int loop;
  Vec(int) first; // the hole that each is made of, in the first part
} Columns;

typedef struct Repeat {
  int from, length, times;
  int64_t saved;
  const struct Repeat *outer; // the loop around it, or NULL; lines are of its first part
} Repeat;

// Parts from `from` on in which a number grows by one step.
typedef struct Span {
  int from;
  int64_t value, step; // in the first of them
} Span;

// -- Forms ---------------------------------------------------------------------------------------

const char *repeats_plain(Arena *a, const char *text) {
  char *plain = arena_alloc(a, strlen(text) + 1), *end = plain;
  for (; *text; text++) {
    if (*text == *MARK_KIND)
      text = strchr(text + 1, *MARK_KIND);
    else if (*text != *MARK_NUMBER && *text != *MARK_PLACE)
      *end++ = *text;
  }
  *end = 0;
  return plain;
}

static size_t word_length(const char *s) {
  return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
}

// The form of a line.  A macro is one form with all of its type and memory.
static Form read_form(Lines *l, Table *forms, const Call *call, int *n_forms) {
  Arena *a = l->p->arena;
  StrBuf *text = &l->text;
  text->n = 0;
  Form form = {.first = l->value.n};
  strbuf_add(text, call->joined ? "joined " : "");
  for (const char *s = call->text; *s;) {
    if (*s == *MARK_NUMBER) {
      char *end;
      vec_push(a, &l->value, strtoll(s + 1, &end, 10));
      strbuf_add_n(text, s, 1);
      s = end;
    } else if (*s == *MARK_PLACE) {
      size_t n = word_length(++s);
      const Value *v = names_value(l->p->names, str_copy_n(a, s, n));
      vec_push(a, &l->value, v->offset);
      form.places++;
      strbuf_addf(text, MARK_PLACE "%s%d*%d*%" PRId64, dtype_ctype[v->type->dtype],
                  value_on_host(v), v->slots > 1 ? v->slots : 0, v->slots > 1 ? v->stride : 0);
      s += n;
    } else {
      size_t n = strcspn(s, MARK_NUMBER MARK_PLACE);
      strbuf_add_n(text, s, n);
      s += n;
    }
  }
  form.holes = l->value.n - form.first;
  int *number = table_find(forms, 0, text->at);
  if (!number) {
    number = arena_one(a, int);
    *number = (*n_forms)++;
    table_add(forms, 0, str_copy_n(a, text->at, text->n), number);
  }
  form.number = *number;
  return form;
}

// -- Numbers of a loop -------------------------------------------------------------------------

// The number of parts, in all parts of the outer loop: the rows of its numbers.
static int n_rows(const Repeat *r) {
  return r->times * (r->outer ? r->outer->times : 1);
}

static int holes_per_part(const Lines *l, const Repeat *r) {
  return l->form[r->from + r->length].first - l->form[r->from].first;
}

// The value in row `i` of hole `h` of the first part.  Parts have equal forms, so their holes
// follow those of the first at a constant distance.
static int64_t value_in(const Lines *l, const Repeat *r, int h, int i) {
  if (!l->value.at) BUG("a loop without numbers has hole %d", h);
  if (r->outer) h += i / r->times * holes_per_part(l, r->outer);
  return l->value.at[h + i % r->times * holes_per_part(l, r)];
}

// How much a number grows per part of the loop, and per part of the outer one.
typedef struct Steps {
  int64_t own, outer;
} Steps;

// Whether the hole grows by the same steps from part to part.
static bool grows(const Lines *l, const Repeat *r, int h, Steps *step) {
  int64_t first = value_in(l, r, h, 0);
  *step = (Steps){value_in(l, r, h, 1) - first, 0};
  if (r->outer) step->outer = value_in(l, r, h, r->times) - first;
  for (int i = 2; i < n_rows(r); i++)
    if (value_in(l, r, h, i) != first + i % r->times * step->own + i / r->times * step->outer)
      return false;
  return true;
}

static bool same_column(const Lines *l, const Repeat *r, int a, int b) {
  int64_t distance = value_in(l, r, b, 0) - value_in(l, r, a, 0);
  for (int i = 1; i < n_rows(r); i++)
    if (value_in(l, r, b, i) - value_in(l, r, a, i) != distance) return false;
  return true;
}

// Whether a span of hole `h` begins at part `i`: the first, or one that breaks the growth of
// *io_span, which then is the new span.  Its step is that to the part after it.
static bool begins_span(const Lines *l, const Repeat *r, int h, int i, Span *io_span) {
  int64_t value = value_in(l, r, h, i);
  if (i > 0 && value == io_span->value + (i - io_span->from) * io_span->step) return false;
  int64_t step = i + 1 < n_rows(r) ? value_in(l, r, h, i + 1) - value : 0;
  *io_span = (Span){i, value, step};
  return true;
}

static int64_t count_spans(const Lines *l, const Repeat *r, int h) {
  int64_t n = 0;
  Span span = {0};
  for (int i = 0; i < n_rows(r); i++)
    n += begins_span(l, r, h, i, &span);
  return n;
}

// The column of a hole that does not grow evenly: an existing one, or a new one.
static int column_of(const Lines *l, const Repeat *r, Columns *c, int h) {
  for (int k = 0; k < c->first.n; k++)
    if (same_column(l, r, c->first.at[k], h)) return k;
  vec_push(l->p->arena, &c->first, h);
  return c->first.n - 1;
}

static void add_term(StrBuf *out, const char *variable, int64_t step) {
  if (step == 0) return;
  strbuf_addf(out, "%s%s", out->n ? " + " : "", variable);
  if (step != 1) strbuf_addf(out, " * %" PRId64, step);
}

// The number as C, a function of i and at, or of j and in_LOOP in the inner loop; NULL: it is the
// same in all parts.
static const char *number_text(const Lines *l, const Repeat *r, Columns *c, int h) {
  StrBuf text = {.arena = l->p->arena};
  int64_t first = value_in(l, r, h, 0);
  Steps step;
  if (grows(l, r, h, &step)) {
    add_term(&text, "i", r->outer ? step.outer : step.own);
    if (r->outer) add_term(&text, "j", step.own);
    if (!text.n) return NULL;
  } else {
    int k = column_of(l, r, c, h);
    first -= value_in(l, r, c->first.at[k], 0);
    strbuf_add(&text, r->outer ? str_format(l->p->arena, "in_%d", c->loop) : "at");
    strbuf_addf(&text, "[%d]", k);
  }
  if (first) strbuf_addf(&text, " + %" PRId64, first);
  return text.at;
}

// -- Search ------------------------------------------------------------------------------------

static int64_t line_bytes(const Call *call) {
  return (int64_t)strlen(call->text) + (call->comment ? (int64_t)strlen(call->comment) : 0);
}

// The bytes that the loop saves: the lines and macros of all parts but one, less its table.
static int64_t saved_bytes(const Lines *l, const Repeat *r) {
  int64_t bytes = 0;
  // A macro is read by three lines or so.
  for (int k = r->from + r->length; k < r->from + r->length * r->times; k++)
    bytes += line_bytes(&l->list->at[k]) + l->form[k].places * MACRO_BYTES / 3;
  Columns c = {0};
  int end = l->form[r->from + r->length].first;
  for (int h = l->form[r->from].first; h < end; h++) {
    Steps step;
    if (grows(l, r, h, &step)) continue;
    int columns = c.first.n;
    if (column_of(l, r, &c, h) == columns) bytes -= count_spans(l, r, h) * SPAN_BYTES;
    // No table is larger than the text that it replaces.
    if (bytes <= 0) return 0;
  }
  return bytes;
}

// Candidates are the most frequent lengths, and then those with most lines: buckets of many layers
// are few.
static int64_t weight(int candidate, int length) {
  return candidate < CANDIDATES / 2 ? 1 : length;
}

// Counts the distances between equal sequences of lines: of equal forms, or of `grown`.
static void count_lengths(const Lines *l, int from, int end, bool grown, int *count) {
  int n = end - from, slots = 1;
  while (slots < 2 * n)
    slots *= 2;
  int *last = arena_array(l->p->arena, int, slots); // by hash of a sequence: 1 + its last begin
  for (int i = from; i + FOLLOWING <= end; i++) {
    uint64_t hash = FNV1A_EMPTY;
    for (int k = 0; k < FOLLOWING; k++) {
      const Form *f = &l->form[i + k];
      uint64_t key = grown ? f->grown : (uint64_t)f->number;
      hash = fnv1a(hash, &key, sizeof key);
    }
    int *at = &last[(hash >> 24) & (uint64_t)(slots - 1)];
    if (*at) count[i + 1 - *at]++;
    *at = i + 1;
  }
}

// The lengths of parts that are frequent among distances between equal sequences of lines.  Rows of
// equal forms may repeat in their numbers only, such as those of all weights from layer to layer.
static int find_lengths(const Lines *l, int from, int end, int lengths[CANDIDATES]) {
  Arena *a = l->p->arena;
  int n = end - from, found = 0;
  int *count = arena_array(a, int, n + 1);
  count_lengths(l, from, end, false, count);
  count_lengths(l, from, end, true, count);
  for (; found < CANDIDATES; found++) {
    int best = 0;
    for (int d = 1; d <= n; d++)
      if (count[d] * weight(found, d) > count[best] * weight(found, best)) best = d;
    if (!best || count[best] < FOLLOWING) break;
    lengths[found] = best;
    count[best] = 0;
  }
  return found;
}

// Moves the begin of the parts so that the lines of an op stay together.
static bool align(const Lines *l, Repeat *r, int end) {
  for (int k = 0; k < r->length; k++, r->from++) {
    r->times = (end - r->from) / r->length;
    if (r->times < FEWEST) return false;
    bool joined = r->from > 0 && l->list->at[r->from - 1].joined;
    if (!joined && !l->list->at[r->from + r->length - 1].joined) return true;
  }
  return false;
}

// Whether each number of line `k` grew by the same from the part before as it grows to the next.
static bool is_even(const Lines *l, int k, int length) {
  const Form *f = &l->form[k];
  const int64_t *before = &l->value.at[l->form[k - length].first];
  const int64_t *now = &l->value.at[f->first], *next = &l->value.at[l->form[k + length].first];
  for (int h = 0; h < f->holes; h++)
    if (now[h] - before[h] != next[h] - now[h]) return false;
  return true;
}

// The end of the parts from line `from` on: lines have the form of those `length` before them.
// `even`: their numbers, too, grow evenly.
static int find_end(const Lines *l, int from, int end, int length, bool even) {
  int k = from;
  while (k + length < end && l->form[k].number == l->form[k + length].number &&
         (!even || k - length < from || is_even(l, k, length)))
    k++;
  return k;
}

// `outer`: the loop around the lines, which are of its first part, or NULL.
static Repeat find_best(const Lines *l, int from, int end, const Repeat *outer) {
  Repeat best = {.saved = 0};
  int lengths[CANDIDATES], n = find_lengths(l, from, end, lengths);
  for (int c = 0; c < 2 * n; c++) {
    int length = lengths[c / 2];
    for (int i = from; i < end;) {
      int k = find_end(l, i, end, length, c % 2);
      Repeat r = {.from = i, .length = length, .outer = outer};
      if (align(l, &r, k + length)) r.saved = saved_bytes(l, &r);
      if (r.saved > best.saved) best = r;
      i = k + 1;
    }
  }
  return best;
}

// -- Loops ---------------------------------------------------------------------------------------

// The number at a mark, the next hole of the loop; *io_text moves to its end.  A place is a macro.
static const char *take_number(const Lines *l, const Repeat *r, Columns *c, int h, int loop,
                               const char **io_text) {
  const char *s = *io_text + 1;
  bool place = s[-1] == *MARK_PLACE;
  size_t n = place ? word_length(s) : strspn(s, "-0123456789");
  const char *same = str_copy_n(l->p->arena, s, n), *text = number_text(l, r, c, h);
  *io_text = s + n;
  if (!place) return text ? text : same;
  if (text) return names_in_loop(l->p->names, same, loop, text);
  names_read(l->p->names, same);
  return same;
}

// A string literal, at its first quote; one with numbers is a call: nnrt_name("h.%d.ln", LIST(i)).
static void add_string(const Lines *l, const Repeat *r, Columns *c, int *io_h, StrBuf *out,
                       const char **io_text) {
  Arena *a = l->p->arena;
  StrBuf plain = {.arena = a}, format = {.arena = a}, numbers = {.arena = a};
  const char *s = *io_text;
  do {
    if (*s == *MARK_NUMBER) {
      const char *text = number_text(l, r, c, (*io_h)++);
      size_t n = strspn(++s, "0123456789");
      if (text) strbuf_addf(&numbers, "%s%s", numbers.n ? ", " : "", text);
      strbuf_add_n(&plain, s, n);
      if (text)
        strbuf_add(&format, "%d");
      else
        strbuf_add_n(&format, s, n);
      s += n;
      continue;
    }
    size_t n = *s == '\\' ? 2 : 1;
    strbuf_add_n(&plain, s, n);
    strbuf_add_n(&format, s, n);
    if (*s == '%') strbuf_add(&format, "%");
    s += n;
  } while (*s != '"');
  *io_text = s + 1;
  if (numbers.n)
    strbuf_addf(out, "nnrt_name(%s\", LIST(%s))", format.at, numbers.at);
  else
    strbuf_addf(out, "%s\"", plain.at);
}

// The line for all parts, of a line of the first.
static const char *loop_line(const Lines *l, const Repeat *r, Columns *c, int line, int loop) {
  StrBuf out = {.arena = l->p->arena};
  int h = l->form[line].first;
  strbuf_add(&out, "  ");
  for (const char *s = l->list->at[line].text; *s;) {
    size_t n = strcspn(s, MARK_NUMBER MARK_PLACE MARK_KIND "\"");
    strbuf_add_n(&out, s, n);
    s += n;
    if (*s == *MARK_KIND)
      s = strchr(s + 1, *MARK_KIND) + 1;
    else if (*s == '"')
      add_string(l, r, c, &h, &out, &s);
    else if (*s)
      strbuf_add(&out, take_number(l, r, c, h++, loop, &s));
  }
  return out.at;
}

static void push(Program *p, CallList *out, const char *text, const char *comment, bool joined) {
  vec_push(p->arena, out, (Call){text, comment, joined});
}

// Adds a row to the table of spans; *io_line is its current line.
static void add_span(Program *p, StrBuf *io_line, int column, Span span, CallList *out) {
  strbuf_addf(io_line, "%s{%d, %d, %" PRId64 ", %" PRId64 "},", io_line->n ? " " : "  ", span.from,
              column, span.value, span.step);
  if (io_line->n < ROW_BYTES) return;
  push(p, out, io_line->at, NULL, true);
  *io_line = (StrBuf){.arena = p->arena};
}

// The spans of the columns of a loop, in the order of their first rows, and an end mark.
static void add_spans(const Lines *l, const Repeat *r, const Columns *c, CallList *out) {
  Program *p = l->p;
  push(p, out, str_format(p->arena, "static const NnrtSpan repeats_%d[] = {", c->loop), NULL, true);
  StrBuf line = {.arena = p->arena};
  Span *span = arena_array(p->arena, Span, c->first.n);
  for (int i = 0; i < n_rows(r); i++)
    for (int k = 0; k < c->first.n; k++)
      if (begins_span(l, r, c->first.at[k], i, &span[k])) add_span(p, &line, k, span[k], out);
  add_span(p, &line, 0, (Span){.from = n_rows(r)}, out);
  if (line.n) push(p, out, line.at, NULL, true);
  push(p, out, "};", NULL, true);
}

// The text of a loop.
typedef struct LoopLines {
  CallList table, body; // tables are before the loop
  StrBuf state;         // variables of the columns
} LoopLines;

static void add_lines(const Lines *l, const Repeat *r, Columns *c, int from, int end,
                      CallList *out) {
  for (int k = from; k < end; k++)
    push(l->p, out, loop_line(l, r, c, k, c->loop), l->list->at[k].comment, true);
}

static void add_head(const Lines *l, const Repeat *r, const char *head, CallList *out) {
  push(l->p, out, head, str_format(l->p->arena, "as the first of %d equal parts", r->times), true);
}

// A loop in the body of another.  Its rows go on from part to part of the outer loop.
static void add_inner(const Lines *l, const Repeat *r, LoopLines *outer) {
  Arena *a = l->p->arena;
  Columns c = {.loop = l->p->loops++};
  CallList body = {0};
  add_lines(l, r, &c, r->from, r->from + r->length, &body);
  int n = c.first.n;
  add_head(l, r, str_format(a, "  for (int64_t j = 0; j < %d; j++) {", r->times), &outer->body);
  if (n) {
    add_spans(l, r, &c, &outer->table);
    strbuf_addf(&outer->state, ", span_%d = 0, in_%d[%d] = {0}", c.loop, c.loop, 2 * n);
    push(l->p, &outer->body,
         str_format(a, "    span_%d = nnrt_row(repeats_%d, span_%d, i * %d + j, in_%d, %d);",
                    c.loop, c.loop, c.loop, r->times, c.loop, n),
         NULL, true);
  }
  for (int k = 0; k < body.n; k++)
    push(l->p, &outer->body, str_format(a, "  %s", body.at[k].text), body.at[k].comment, true);
  push(l->p, &outer->body, "  }", NULL, true);
}

// The lines of the body of loop `r`, with loops over those that repeat in it.
static void add_body(const Lines *l, const Repeat *r, Columns *c, int from, int end,
                     LoopLines *out) {
  Repeat inner = find_best(l, from, end, r);
  if (inner.saved < LEAST) {
    add_lines(l, r, c, from, end, &out->body);
    return;
  }
  add_body(l, r, c, from, inner.from, out);
  add_inner(l, &inner, out);
  add_body(l, r, c, inner.from + inner.length * inner.times, end, out);
}

static void add_loop(const Lines *l, const Repeat *r, CallList *out) {
  Program *p = l->p;
  Columns c = {.loop = p->loops++};
  LoopLines lines = {.state.arena = p->arena};
  add_body(l, r, &c, r->from, r->from + r->length, &lines);
  int n = c.first.n;
  if (n) add_spans(l, r, &c, out);
  for (int k = 0; k < lines.table.n; k++)
    vec_push(p->arena, out, lines.table.at[k]);
  // Of columns: the next span, and their numbers and steps.
  const char *state = n ? str_format(p->arena, ", span = 0, at[%d] = {0}", 2 * n) : "";
  const char *inner = lines.state.n ? lines.state.at : "";
  add_head(l, r,
           str_format(p->arena, "for (int64_t i = 0%s%s; i < %d; i++) {", state, inner, r->times),
           out);
  if (n)
    push(p, out, str_format(p->arena, "  span = nnrt_row(repeats_%d, span, i, at, %d);", c.loop, n),
         NULL, true);
  for (int k = 0; k < lines.body.n; k++)
    vec_push(p->arena, out, lines.body.at[k]);
  push(p, out, "}", NULL, false);
}

// Marks the macros of a line as replaced or read.
static void use_macros(const Lines *l, int line, void (*use)(Names *n, const char *name)) {
  for (const char *s = l->list->at[line].text; (s = strchr(s, *MARK_PLACE)); s++)
    use(l->p->names, str_copy_n(l->p->arena, s + 1, word_length(s + 1)));
}

static void fold_range(const Lines *l, int from, int end, CallList *out) {
  Repeat r = find_best(l, from, end, NULL);
  if (r.saved >= LEAST) {
    int after = r.from + r.length * r.times;
    for (int k = r.from; k < after; k++)
      use_macros(l, k, names_replaced);
    fold_range(l, from, r.from, out);
    add_loop(l, &r, out);
    fold_range(l, after, end, out);
    return;
  }
  for (int k = from; k < end; k++) {
    Call call = l->list->at[k];
    use_macros(l, k, names_read);
    call.text = repeats_plain(l->p->arena, call.text);
    vec_push(l->p->arena, out, call);
  }
}

static void fold_list(Program *p, CallList *list) {
  Lines l = {.p = p, .list = list, .form = arena_array(p->arena, Form, list->n + 1)};
  l.text.arena = p->arena;
  Table *forms = table_new(p->arena);
  CallList out = {0};
  int n_forms = 0;
  for (int i = 0; i < list->n; i++)
    l.form[i] = read_form(&l, forms, &list->at[i], &n_forms);
  l.form[list->n].first = l.value.n;
  int *last = arena_array(p->arena, int, n_forms); // by number: 1 + the last line of the form
  for (int i = 0; i < list->n; i++) {
    Form *f = &l.form[i];
    const Form *before = last[f->number] ? &l.form[last[f->number] - 1] : f;
    f->grown = fnv1a(FNV1A_EMPTY, &f->number, sizeof f->number);
    for (int h = 0; h < f->holes; h++) {
      int64_t step = l.value.at[f->first + h] - l.value.at[before->first + h];
      f->grown = fnv1a(f->grown, &step, sizeof step);
    }
    last[f->number] = i + 1;
  }
  fold_range(&l, 0, list->n, &out);
  *list = out;
}

void repeats_fold(Program *p) {
  GraphCode *graphs[] = {&p->train, &p->eval};
  for (int g = 0; g < 2; g++)
    for (int c = 0; graphs[g]->g && c < p->code.n; c++) {
      Calls *calls = &graphs[g]->calls[c];
      fold_list(p, &calls->begin);
      for (int i = 0; i < calls->part.n; i++) {
        fold_list(p, &calls->part.at[i].wait);
        fold_list(p, &calls->part.at[i].run);
        fold_list(p, &calls->part.at[i].start);
      }
      fold_list(p, &calls->update);
      for (int i = 0; i < calls->deferred.n; i++)
        fold_list(p, &calls->deferred.at[i]);
    }
}

// -- Tables --------------------------------------------------------------------------------------

const char *repeats_string(Arena *a, const char *s) {
  enum { LONGEST = 15 }; // digits of a number
  StrBuf out = {.arena = a};
  for (const char *p = c_string(a, s); *p;) {
    size_t digits = strspn(p, "0123456789");
    bool number = digits && digits <= LONGEST && (*p != '0' || digits == 1);
    // Digits of an escape are none.
    size_t n = *p == '\\' ? strspn(p + 1, "0123456789") == 0 ? 2 : 4 : digits ? digits : 1;
    if (number) strbuf_add(&out, MARK_NUMBER);
    strbuf_add_n(&out, p, n);
    p += n;
  }
  return out.at;
}

const char *repeats_operand(Arena *a, const Op *op, int number) {
  if (op->n_in + op->n_out <= MANY) return str_format(a, "%d", number);
  const Value *v = number > 0 ? op->in[number - 1].value : op->out[-number - 1];
  return str_format(a, MARK_KIND "%s of %" PRId64 MARK_KIND MARK_NUMBER "%d",
                    number > 0 ? "operand" : "result", type_count(v->type), number);
}

void repeats_table(Program *p, StrBuf *out, const char *type, const char *name,
                   const TableRows *rows, FillTime when) {
  Arena *a = p->arena;
  bool names = str_equal(type, "char"), numbers = str_equal(type, "int64_t");
  CallList list = {0};
  int loops = p->loops;
  for (int i = 0; i < rows->n; i++) {
    const char *value = names || numbers ? rows->at[i] : str_format(a, "(%s)%s", type, rows->at[i]);
    push(p, &list, str_format(a, "%s[" MARK_NUMBER "%d] = %s;", name, i, value), NULL, false);
  }
  fold_list(p, &list);
  if (p->loops == loops) {
    // No rows repeat: a constant table.
    strbuf_addf(out, "static const %s %s%s[] = {\n", type, names ? "*const " : "", name);
    for (int i = 0; i < rows->n; i++)
      strbuf_addf(out, "    %s,\n", repeats_plain(a, rows->at[i]));
    strbuf_add(out, "};\n\n");
    return;
  }
  strbuf_addf(out, "static %s %s%s[%d];\n\n", names ? "const char" : type, names ? "*" : "", name,
              rows->n);
  strbuf_addf(out, "NNRT_ONCE static void %s_fill(void) {\n", name);
  for (int i = 0; i < list.n; i++)
    strbuf_addf(out, "  %s%s%s\n", list.at[i].text, list.at[i].comment ? " // " : "",
                list.at[i].comment ? list.at[i].comment : "");
  strbuf_add(out, "}\n\n");
  p->fill[when].arena = a;
  strbuf_addf(&p->fill[when], "  %s_fill();\n", name);
}
