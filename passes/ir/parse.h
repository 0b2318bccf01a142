// What the files of the parser share: parse.c (modules, graphs, parameters), parse_op.c (ops) and
// parse_word.c (tokens, names, numbers and types).
//
// Functions that read take what they read off the front of the tokens, and return false when they
// have reported an error.

#ifndef IR_PARSE_H
#define IR_PARSE_H

#include "base/vec.h"
#include "ir/graph.h"
#include "ir/lex.h"

enum { MAX_NESTING = 64, MAX_NUMBER = 1 << 24, N_NAME_BUCKETS = 1024 };

// A name of the graph being read.  `value` is NULL when its definition failed.
typedef struct Name {
  const char *text;
  bool numbered; // %12: not a name but an id
  Value *value;
  struct Name *next; // in its bucket
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
  int error_limit; // of the Diag: reading stops there
  Token *tokens;
  int at, end; // the next token, and where the part being read ends
  Token stop;  // what is seen there
  Vec(Part) parts;
  int nesting;
  // Of the graph being read.
  Graph *g;
  Name **names; // [N_NAME_BUCKETS]
} Parser;

// Tokens: `peek` looks at the next one, `next` takes it, `accept` takes it if it is this one.
const Token *peek(const Parser *p);
const Token *peek2(const Parser *p);
const Token *next(Parser *p);
bool is(const Token *t, const char *text);
bool accept(Parser *p, const char *text);
bool expect(Parser *p, const char *text);
const Token *expect_kind(Parser *p, TokenKind kind, const char *what); // NULL: another kind
void set_range(Parser *p, int at, int end);

// Errors: about a token, and "expected WHAT, found the next token".  Return false.
bool fail(Parser *p, const Token *t, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool expected(Parser *p, const char *what);
const char *token_text(Parser *p, const Token *t);

bool token_int(Parser *p, const Token *t, int64_t low, int64_t high, int64_t *to);
bool parse_int(Parser *p, int64_t low, int64_t high, int64_t *to);
bool parse_float(Parser *p, double *to);
bool parse_dtype(Parser *p, DType *to);
const char *keep(Parser *p, const Token *t); // its text, for as long as the module lives
// The location that the comment behind `last` gives, else where `first` stands.
const Loc *loc_of(Parser *p, const Token *first, const Token *last);

// Names.  `v` is NULL for a definition that failed: what reads it is then passed over in silence.
bool define(Parser *p, const Token *t, Value *v);
bool parse_value(Parser *p, Value **v);
void number_values(Parser *p); // when all of p->g is read

bool parse_sbp(Parser *p, int rank, Sbp *to);
bool parse_type(Parser *p, const Type **to);
// A type with what stands behind it.
typedef struct Typed {
  const Token *token;
  const Type *type;
  const Layout *layout;
  int64_t offset, slots, stride;
} Typed;
bool parse_typed(Parser *p, Typed *to);

// [1,2.5,true]: the tokens of the elements, whose type may be known only later.
typedef Vec(const Token *) List;
bool parse_list(Parser *p, List *list);
bool list_bytes(Parser *p, const List *list, DType t, const void **at, int64_t *n);

bool parse_devices(Parser *p, int **device, int *n); // 0-3,8
bool parse_op(Parser *p);
Part *find_part(Parser *p, const Token *name); // NULL: there is no graph of this name
bool parse_graph(Parser *p, Part *part);

#endif
