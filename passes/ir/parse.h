// Declarations shared by the parser's files: parse.c (modules, graphs, parameters), parse_op.c
// (ops) and parse_word.c (tokens, names, numbers and types).
//
// Reading functions consume tokens from the front, and return false after they have reported an
// error.

#ifndef IR_PARSE_H
#define IR_PARSE_H

#include "base/vec.h"
#include "ir/graph.h"
#include "ir/lex.h"

enum { MAX_NESTING = 64, MAX_NUMBER = 1 << 24, N_NAME_BUCKETS = 1024 };

// A name of the current graph.  `value` is NULL if its definition failed.
typedef struct Name {
  const char *text;
  bool numbered; // %12: an id, not a name
  Value *value;
  struct Name *next; // in its hash bucket
} Name;

// One "graph" of the text.
typedef struct Part {
  const Token *name;
  int start, end; // tokens
  Graph *graph;
  enum { UNREAD, READING, READ, FAILED } state;
} Part;

typedef struct Parser {
  Source source;
  Module *m;
  Arena *scratch;
  Diag *d;
  int error_limit; // the error count of the Diag at which reading stops
  Token *tokens;
  int at, end; // the next token, and the end of the current part
  Token stop;  // the token returned at the end
  Vec(Part) parts;
  int nesting;
  // The current graph.
  Graph *g;
  Name **names; // [N_NAME_BUCKETS]
} Parser;

// Tokens: `parser_peek` returns the next one, `parser_next` consumes it, `parser_accept` consumes
// it if it matches.
const Token *parser_peek(const Parser *p);
const Token *parser_peek2(const Parser *p);
const Token *parser_next(Parser *p);
bool token_is(const Token *t, const char *text);
bool parser_accept(Parser *p, const char *text);
bool parser_expect(Parser *p, const char *text);
const Token *expect_kind(Parser *p, TokenKind kind, const char *what); // NULL after an error
void set_range(Parser *p, int at, int end);

// Errors: about a token, or "expected WHAT, found the next token".  They return false.
bool parser_fail(Parser *p, const Token *t, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool parser_expected(Parser *p, const char *what);
const char *token_text(Parser *p, const Token *t);

bool token_int(Parser *p, const Token *t, int64_t low, int64_t high, int64_t *to);
bool parse_int(Parser *p, int64_t low, int64_t high, int64_t *to);
bool parse_float(Parser *p, double *to);
bool parse_dtype(Parser *p, DType *to);
const char *parser_keep_text(Parser *p,
                             const Token *t); // a copy of its text, allocated in the module
// The location in the comment after `last`; without one, the position of `first`.
const Loc *loc_of(Parser *p, const Token *first, const Token *last);

// Names.  `v` is NULL for a failed definition; its readers are then skipped without an error.
bool parser_define(Parser *p, const Token *t, Value *v);
bool parse_value(Parser *p, Value **v);
void number_values(Parser *p); // after all of p->g is read

bool parse_sbp(Parser *p, int ndim, Sbp *to);
bool parse_type(Parser *p, const Type **to);
// A type with its layout, offset and slots.
typedef struct Typed {
  const Token *token;
  const Type *type;
  const Layout *layout;
  int64_t offset, slots, stride;
} Typed;
bool parse_typed(Parser *p, Typed *to);

// [1,2.5,true]: the tokens of the elements; their type may be known only later.
typedef Vec(const Token *) List;
bool parse_list(Parser *p, List *list);
bool list_bytes(Parser *p, const List *list, DType t, const void **at, int64_t *n);

bool parse_devices(Parser *p, int **device, int *n); // 0-3,8
bool parse_op(Parser *p);
Part *find_part(Parser *p, const Token *name); // NULL: no graph of this name
bool parse_graph(Parser *p, Part *part);

#endif
