// Messages: `PLACE: error: TEXT`, then the derivation of the location.
//
// A derived location (a gradient's, a collective's) has no position of its own.  Its message has
// the nearest location with a position, and a note gives the derivation from there.

#include "base/diag.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "rt/utf8.h"

struct Diag {
  FILE *out;
  int errors, warnings;
  int said; // errors and warnings that were not quiet
  bool quiet;
  const char *shown; // the line of the last message; a note does not repeat it
  ProblemKind kind;  // of errors by diag_error
  Arena *record;     // of `messages`; NULL: they are not kept
  DiagMessage *first_kept, *last_kept;
};

const Loc *loc_node(Arena *a, const char *file, const char *node) {
  Loc *loc = arena_one(a, Loc);
  loc->file = str_copy(a, file);
  loc->node = str_copy(a, node);
  return loc;
}

const Loc *loc_line(Arena *a, const char *file, int line, int column) {
  Loc *loc = arena_one(a, Loc);
  loc->file = str_copy(a, file);
  loc->line = line;
  loc->column = column;
  return loc;
}

const Loc *loc_source(Arena *a, const char *file, int line, int column, const char *source) {
  Loc *loc = arena_one(a, Loc);
  *loc = (Loc){.file = str_copy(a, file), .line = line, .column = column, .source = source};
  return loc;
}

const Loc *loc_copy(Arena *a, const Loc *loc) {
  if (!loc) return NULL;
  Loc *copy = arena_copy(a, loc, sizeof *loc);
  copy->file = str_copy(a, loc->file);
  copy->node = str_copy(a, loc->node);
  copy->why = str_copy(a, loc->why);
  // Only the line: the rest of the text may be long.
  if (loc->source) copy->source = str_copy_n(a, loc->source, strcspn(loc->source, "\n"));
  copy->text = loc_copy(a, loc->text);
  copy->from = loc_copy(a, loc->from);
  return copy;
}

const Loc *loc_from(Arena *a, const Loc *from, const char *why) {
  Loc *loc = arena_one(a, Loc);
  loc->from = from ? from : arena_one(a, Loc);
  loc->why = str_copy(a, why);
  return loc;
}

const Loc *loc_origin(const Loc *loc) {
  while (loc && loc->from)
    loc = loc->from;
  return loc;
}

bool loc_same(const Loc *x, const Loc *y) {
  for (; x && y; x = x->from, y = y->from)
    if (x->line != y->line || x->column != y->column || !str_equal(x->file, y->file) ||
        !str_equal(x->node, y->node) || !str_equal(x->why, y->why))
      return false;
  return !x && !y;
}

// The nearest location with a position of its own, or NULL.
static const Loc *positioned(const Loc *loc) {
  while (loc && !loc->file && !loc->node && loc->line == 0)
    loc = loc->from;
  return loc;
}

const char *loc_text(Arena *a, const Loc *loc) {
  loc = positioned(loc);
  if (!loc) return "";
  const char *file = loc->file ? loc->file : "";
  // A node of a model, or a line with or without a column.
  if (loc->node) return *file ? str_format(a, "%s:%s", file, loc->node) : loc->node;
  if (loc->line > 0 && loc->column > 0)
    return str_format(a, "%s:%d:%d", file, loc->line, loc->column);
  if (loc->line > 0) return str_format(a, "%s:%d", file, loc->line);
  return file;
}

Diag *diag_new(FILE *out) {
  Diag *d = calloc(1, sizeof *d);
  if (!d) abort();
  d->out = out;
  return d;
}

void diag_free(Diag *d) {
  free(d);
}

// Writes the text as a terminal may have it; names in a model may hold any bytes, and a megabyte of
// them: then its start.
static void put_shown(Diag *d, const char *text) {
  enum { MOST = 4000 };
  const char *begin = text;
  char shown[512]; // written together: the standard error has no buffer
  size_t n = 0;
  while (*text && text - begin < MOST) {
    if (n + UTF8_SHOWN > sizeof shown) {
      fwrite(shown, 1, n, d->out);
      n = 0;
    }
    // Lines and tabs are the message's own.
    if (*text == '\n' || *text == '\t')
      shown[n++] = *text++;
    else
      n += (size_t)nnrt_utf8_shown(&text, shown + n);
  }
  fwrite(shown, 1, n, d->out);
  if (*text) fprintf(d->out, "… (%zu more bytes)", strlen(text));
}

// After very many errors and warnings for a reader, such as one for each output of a hostile model,
// says so once, and then nothing.  Other streams are read by programs.
static bool silent(Diag *d, bool is_new) {
  enum { MOST = 300 };
  if (d->quiet || d->out != stderr) return d->quiet;
  if (is_new && ++d->said == MOST + 1)
    fprintf(d->out, "note: there are more than %d messages, and the others are not shown\n", MOST);
  return d->said > MOST;
}

// Keeps a message; a note or a hint belongs to the one before.
static void keep(Diag *d, const Loc *loc, const char *severity, ProblemKind kind, bool joins,
                 const char *text) {
  static const char *const names[] = {
      [SEVERITY_error] = "error", [SEVERITY_warning] = "warning", [SEVERITY_note] = "note"};
  Arena *a = d->record;
  if (!a) return;
  DiagMessage *last = d->last_kept;
  text = str_copy(a, text);
  if (joins && last) {
    const char *where = loc_text(a, loc);
    if (!strcmp(severity, "hint"))
      vec_push(a, &last->hints, text);
    else
      vec_push(a, &last->notes, *where ? str_format(a, "%s: %s", where, text) : text);
    return;
  }
  DiagMessage *message = arena_one(a, DiagMessage);
  *message = (DiagMessage){.kind = kind, .text = text};
  while (message->severity < SEVERITY_note && strcmp(names[message->severity], severity) != 0)
    message->severity++;
  if (*loc_text(a, loc)) vec_push(a, &message->places, ((DiagPlace){loc_copy(a, loc), NULL}));
  *(last ? &last->next : &d->first_kept) = message;
  d->last_kept = message;
}

static void say(Diag *d, const Loc *loc, const char *severity, ProblemKind kind, const char *fmt,
                va_list args) PRINTF_LIKE(5, 0);

static void say(Diag *d, const Loc *loc, const char *severity, ProblemKind kind, const char *fmt,
                va_list args) {
  bool joins = !kind && (!strcmp(severity, "note") || !strcmp(severity, "hint"));
  bool shows = !silent(d, !joins);
  if (!shows && !d->record) return;
  Arena *scratch = arena_new();
  const char *where = loc_text(scratch, loc), *text = str_vformat(scratch, fmt, args);
  keep(d, loc, severity, kind, joins, text);
  if (shows) {
    put_shown(d, where);
    fprintf(d->out, "%s%s: ", *where ? ": " : "", severity);
    put_shown(d, text);
    if (kind) fprintf(d->out, " [NN%03d]", problem_info[kind].code);
    fputc('\n', d->out);
  }
  arena_free(scratch);
  if (!shows) return;
  // The line of the location, with a caret under the name at its column.
  const Loc *at = positioned(loc);
  const char *line = at ? at->source : NULL;
  bool is_note = !strcmp(severity, "note");
  if (line && !line[strspn(line, " \t\r\n")]) line = NULL; // an error at the end of the file
  if (line && !(is_note && line == d->shown)) {
    const char *word = line + (at->column ? at->column - 1 : 0), *end = word;
    while (isalnum((unsigned char)*end) || *end == '_')
      end++;
    int width = end > word ? (int)(end - word) : 1;
    diag_source(d, line, line + strcspn(line, "\n"), at->column, width);
  }
  if (line || !is_note) d->shown = line;
}

// Prints the derivation of a location as notes.  Of several steps at one position only the last is
// printed, which is the nearest to it.  First comes the line that a user can edit.
static void say_origin(Diag *d, const Loc *loc) {
  const Loc *line = loc;
  while (line && !line->text)
    line = line->from;
  if (line) diag_note(d, line->text, "in this line");
  for (; loc && loc->from; loc = loc->from) {
    if (loc->from->from && positioned(loc->from) == positioned(loc->from->from)) continue;
    diag_note(d, loc->from, "derived from here%s%s%s", loc->why ? " (" : "",
              loc->why ? loc->why : "", loc->why ? ")" : "");
  }
}

#define SAY(severity, kind)                                                                        \
  do {                                                                                             \
    va_list args;                                                                                  \
    va_start(args, fmt);                                                                           \
    say(d, loc, severity, kind, fmt, args);                                                        \
    va_end(args);                                                                                  \
  } while (0)

bool diag_error(Diag *d, const Loc *loc, const char *fmt, ...) {
  d->errors++;
  // A quiet error counts.
  if (d->quiet) return false;
  SAY("error", d->kind);
  say_origin(d, loc);
  return false;
}

bool diag_problem(Diag *d, ProblemKind kind, const Loc *loc, const char *fmt, ...) {
  d->errors++;
  if (d->quiet) return false;
  SAY("error", kind);
  say_origin(d, loc);
  return false;
}

void diag_warning(Diag *d, const Loc *loc, const char *fmt, ...) {
  if (d->quiet) return;
  d->warnings++;
  SAY("warning", PROBLEM_none);
  say_origin(d, loc);
}

void diag_doubt(Diag *d, ProblemKind kind, const Loc *loc, const char *fmt, ...) {
  if (d->quiet) return;
  d->warnings++;
  SAY("warning", kind);
  say_origin(d, loc);
}

void diag_remark(Diag *d, ProblemKind kind, const Loc *loc, const char *fmt, ...) {
  if (d->quiet) return;
  SAY("note", kind);
}

void diag_note(Diag *d, const Loc *loc, const char *fmt, ...) {
  if (d->quiet) return;
  SAY("note", PROBLEM_none);
}

void diag_hint(Diag *d, const char *fmt, ...) {
  const Loc *loc = NULL;
  if (d->quiet) return;
  SAY("hint", PROBLEM_none);
}

ProblemKind diag_kind(Diag *d, ProblemKind kind) {
  ProblemKind before = d->kind;
  d->kind = kind;
  return before;
}

void diag_place(Diag *d, const Loc *loc, const char *detail, bool shown) {
  if (d->quiet) return;
  Arena *a = d->record;
  // It is recorded as a place, and not as a note as well.
  d->record = NULL;
  if (shown) diag_note(d, loc, "%s", detail ? detail : "here, too");
  d->record = a;
  if (!a || !d->last_kept) return;
  DiagMessage *last = d->last_kept;
  DiagPlace place = {loc_copy(a, loc), str_copy(a, detail)};
  // The first place is that of the message itself.
  if (last->places.n == 1 && !last->places.at[0].detail &&
      loc_same(loc_origin(last->places.at[0].loc), loc_origin(loc)))
    last->places.at[0] = place;
  else
    vec_push(a, &last->places, place);
}

void diag_more_places(Diag *d, int n) {
  Arena *a = d->record;
  d->record = NULL; // each is recorded as a place
  diag_note(d, NULL, "… and %d more", n);
  d->record = a;
}

void diag_cause(Diag *d, const char *cause, const char *op, const char *domain, int opset) {
  if (d->quiet || !d->record || !d->last_kept) return;
  DiagMessage *last = d->last_kept;
  last->text = str_copy(d->record, cause);
  last->op = str_copy(d->record, op);
  last->domain = str_copy(d->record, domain);
  last->opset = opset;
}

void diag_record(Diag *d, Arena *a) {
  d->record = a;
}

const DiagMessage *diag_messages(const Diag *d) {
  return d->first_kept;
}

void diag_caret(Diag *d, const char *line, int column, int width) {
  if (silent(d, false)) return;
  StrBuf under = {0}; // the blanks under the line, up to the caret
  Arena *scratch = under.arena = arena_new();
  strbuf_add(&under, "  ");
  fputs("  ", d->out);
  for (const char *at = line; *at;) {
    // Of bytes that a terminal must not have there is a blank each: the caret stays in its column.
    uint32_t code;
    int n = nnrt_utf8(at, &code);
    bool shown = n > 0 && (!nnrt_utf8_obeyed(code) || code == '\t');
    if (shown)
      fwrite(at, 1, (size_t)n, d->out);
    else
      fputc(' ', d->out);
    // A tab under a tab, so that the caret is in the right column in any terminal.
    if (at - line < column - 1) strbuf_add(&under, shown && code == '\t' ? "\t" : " ");
    at += shown ? n : 1;
  }
  fprintf(d->out, "\n%s^", under.at);
  arena_free(scratch);
  for (int i = 1; i < width; i++)
    fputc('~', d->out);
  fputc('\n', d->out);
}

void diag_source(Diag *d, const char *line, const char *end, int column, int width) {
  enum { BEFORE = 80, AFTER = 60 }; // weights in hexadecimal make very long lines
  char text[BEFORE + AFTER + 2];
  int at = column > 0 ? column : 1;
  if (silent(d, false)) return;
  // A long line begins shortly before the column.
  if (at - 1 > BEFORE && end - line > BEFORE + AFTER) {
    line += at - 1 - BEFORE;
    at = BEFORE + 1;
  }
  int most = column > BEFORE ? at + AFTER : BEFORE + AFTER;
  int n = end - line > most ? most : (int)(end - line), room = n - at + 1;
  memcpy(text, line, (size_t)n);
  text[n] = 0;
  if (!column) {
    fputs("  ", d->out);
    put_shown(d, text);
    fputc('\n', d->out);
  } else {
    diag_caret(d, text, at, width < room ? width : room > 1 ? room : 1);
  }
}

int diag_errors(const Diag *d) {
  return d->errors;
}
int diag_warnings(const Diag *d) {
  return d->warnings;
}
bool diag_quiet(Diag *d, bool quiet) {
  bool before = d->quiet;
  d->quiet = quiet;
  return before;
}

void bug_at(const char *file, int line, const char *fmt, ...) {
  // Output so far comes before the message.
  fflush(stdout);
  fprintf(stderr, "%s:%d: bug: ", file, line);
  va_list args;
  va_start(args, fmt);
  vfprintf(stderr, fmt, args);
  va_end(args);
  fputc('\n', stderr);
  abort();
}
