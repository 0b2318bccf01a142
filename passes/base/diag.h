// Locations and messages.
//
// An error that the user can fix is a diag_error; an error that only we can fix is a BUG.  A
// message is lower case, has no full stop, and puts its subject in single quotes:
//
//     gpt2.onnx:/h.0/mlp/c_fc/MatMul: error: linear: inner dimensions differ: 768 and 3072
//     gpt2.onnx:transformer.h.0.mlp.c_fc.weight: note: '%w' comes from here
//     hint: the weight looks transposed; re-export with transB=0
//
// A problem of a known kind ends with its code, [NN102]: the rows of problems.def.

#ifndef BASE_DIAG_H
#define BASE_DIAG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/str.h"
#include "base/vec.h"

// A location: a node of a model (`node` set), or a line of a text file (`line` > 0).  `from` is the
// location that it was derived from: the forward op of a gradient, the reader of a collective.
// Lives in an arena; NULL means unknown.
typedef struct Loc {
  const char *file, *node;
  int line, column;       // column 0: unknown
  const char *source;     // the text of the line, shown by messages, ended by '\n' or 0; or NULL
  const struct Loc *text; // the line of a module in text form whose comment gave this location
  const struct Loc *from;
  const char *why; // the kind of derivation from `from`: "gradient", "all_reduce for"; or NULL
} Loc;

const Loc *loc_node(Arena *a, const char *file, const char *node);
const Loc *loc_line(Arena *a, const char *file, int line, int column);
const Loc *loc_source(Arena *a, const char *file, int line, int column, const char *source);
const Loc *loc_copy(Arena *a, const Loc *loc); // for a `loc` whose arena may be freed
const Loc *loc_from(Arena *a, const Loc *from, const char *why);
const Loc *loc_origin(const Loc *loc);     // the end of the `from` chain
bool loc_same(const Loc *x, const Loc *y); // including their derivations
// "mlp.onnx:/fc1/MatMul" or "x.nn:3:7"; "" for NULL.
const char *loc_text(Arena *a, const Loc *loc);

// The kinds of problems in a model: rows of problems.def.
typedef enum ProblemKind {
  PROBLEM_none, // without a code
#define PROBLEM(code, name, sentence, way_out) PROBLEM_##name,
#include "base/problems.def"
  N_PROBLEMS
} ProblemKind;

typedef struct ProblemInfo {
  int code;
  const char *name, *sentence, *way_out;
} ProblemInfo;
extern const ProblemInfo problem_info[N_PROBLEMS]; // PROBLEM_none: zeros

typedef struct Diag Diag;

Diag *diag_new(FILE *out); // messages are written to `out` as they come
void diag_free(Diag *d);

// Return false, so that a function can end with `return diag_error(...)`.  Prints the chain of
// `from` as notes.
bool diag_error(Diag *d, const Loc *loc, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_warning(Diag *d, const Loc *loc, const char *fmt, ...) PRINTF_LIKE(3, 4);
// The same for a problem of this kind, with its code.  A remark is a note of its own.
bool diag_problem(Diag *d, ProblemKind kind, const Loc *loc, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
void diag_doubt(Diag *d, ProblemKind kind, const Loc *loc, const char *fmt, ...) PRINTF_LIKE(4, 5);
void diag_remark(Diag *d, ProblemKind kind, const Loc *loc, const char *fmt, ...) PRINTF_LIKE(4, 5);
// The kind of errors by diag_error from now on.  Returns the previous one.
ProblemKind diag_kind(Diag *d, ProblemKind kind);
// Adds to the previous message.
void diag_note(Diag *d, const Loc *loc, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_hint(Diag *d, const char *fmt, ...) PRINTF_LIKE(2, 3);
// A place of the previous problem, as a note if it is shown.
void diag_place(Diag *d, const Loc *loc, const char *detail, bool shown);
void diag_more_places(Diag *d, int n); // prints that there are n more
// Prints a source line with a caret under `column` (1-based), after the previous message.
void diag_caret(Diag *d, const char *line, int column, int width);
// Does the same for a line of a file that ends at `end`.  Of a long line it prints the surroundings
// of the column.  At column 0 there is no caret.
void diag_source(Diag *d, const char *line, const char *end, int column, int width);

int diag_errors(const Diag *d); // the number of errors so far
int diag_warnings(const Diag *d);
// While quiet, errors are counted but not printed, for attempts that may fail.  Returns the
// previous state.
bool diag_quiet(Diag *d, bool quiet);

// -- Records ---------------------------------------------------------------------------------

typedef enum Severity { SEVERITY_error, SEVERITY_warning, SEVERITY_note } Severity;

typedef struct DiagPlace {
  const Loc *loc;
  const char *detail; // or NULL
} DiagPlace;

// An error, a warning or a remark, with the notes and hints that follow it.
typedef struct DiagMessage {
  Severity severity;
  ProblemKind kind;
  const char *text;
  const char *op, *domain; // operator of the model; op NULL: none
  int opset;               // 0: unknown
  Vec(DiagPlace) places;
  Vec(const char *) notes, hints;
  struct DiagMessage *next; // of the record, in order; NULL: it is the last
} DiagMessage;

// Keeps the messages from now on; those while quiet are not kept.
void diag_record(Diag *d, Arena *a);
// The cause of the previous problem without a count, and its operator in the model.
void diag_cause(Diag *d, const char *cause, const char *op, const char *domain, int opset);
const DiagMessage *diag_messages(const Diag *d); // the first, or NULL

// Reports an error of the compiler itself at this line of its source, and aborts.
#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
