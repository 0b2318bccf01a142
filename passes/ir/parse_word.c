// The smallest elements of the text form: tokens, numbers, names, types.  See parse.h.

#include "ir/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"

// -- Tokens ----------------------------------------------------------------------------------

const Token *parser_peek(const Parser *p) {
  return p->at < p->end ? &p->tokens[p->at] : &p->stop;
}

const Token *parser_peek2(const Parser *p) {
  return p->at + 1 < p->end ? &p->tokens[p->at + 1] : &p->stop;
}

const Token *parser_next(Parser *p) {
  const Token *t = parser_peek(p);
  if (p->at < p->end) p->at++;
  return t;
}

void set_range(Parser *p, int at, int end) {
  p->at = at;
  p->end = end;
  p->stop = (Token){.kind = TOKEN_end,
                    .line = p->tokens[end].line,
                    .column = p->tokens[end].column,
                    .width = 1,
                    .text = ""};
}

bool parser_fail(Parser *p, const Token *t, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *text = str_vformat(p->scratch, fmt, args);
  va_end(args);
  // The lexer's message about a token is more precise.
  if (t->kind == TOKEN_bad) text = t->text;
  return token_error(p->d, p->scratch, &p->source, t, "%s", text);
}

const char *token_text(Parser *p, const Token *t) {
  switch (t->kind) {
  case TOKEN_end: {
    // The range may end at the first token of a graph.
    const Token *next = &p->tokens[p->end];
    return next->kind == TOKEN_end ? "the end" : token_text(p, next);
  }
  case TOKEN_value: return str_format(p->scratch, "'%%%s'", t->text);
  case TOKEN_graph: return str_format(p->scratch, "'@%s'", t->text);
  // Contents may be long, so they are not shown.
  case TOKEN_string: return "a string";
  case TOKEN_bytes: return "bytes";
  case TOKEN_word:
  case TOKEN_number:
  case TOKEN_punct:
  case TOKEN_bad: break;
  }
  return str_format(p->scratch, "'%s'", t->text);
}

bool parser_expected(Parser *p, const char *what) {
  const Token *t = parser_peek(p);
  return parser_fail(p, t, "expected %s, found %s", what, token_text(p, t));
}

bool token_is(const Token *t, const char *text) {
  return (t->kind == TOKEN_punct || t->kind == TOKEN_word) && !strcmp(t->text, text);
}

bool parser_accept(Parser *p, const char *text) {
  if (!token_is(parser_peek(p), text)) return false;
  p->at++;
  return true;
}

bool parser_expect(Parser *p, const char *text) {
  return parser_accept(p, text) || parser_expected(p, str_format(p->scratch, "'%s'", text));
}

// Returns the next token if it has this kind, else NULL after an error.
const Token *expect_kind(Parser *p, TokenKind kind, const char *what) {
  if (parser_peek(p)->kind == kind) return parser_next(p);
  parser_expected(p, what);
  return NULL;
}

bool token_int(Parser *p, const Token *t, int64_t low, int64_t high, int64_t *to) {
  char *end;
  errno = 0;
  long long x = strtoll(t->text, &end, 10);
  // The lexer accepts more than integers: 1.5, 0x1p3, or 12ab.
  if (t->kind != TOKEN_number || *end || errno || x < low || x > high)
    return parser_fail(p, t, "expected an integer from %" PRId64 " to %" PRId64 ", found %s", low,
                       high, token_text(p, t));
  *to = x;
  return true;
}

bool parse_int(Parser *p, int64_t low, int64_t high, int64_t *to) {
  return token_int(p, parser_peek(p), low, high, to) && parser_next(p);
}

// Reads a number, inf, nan, or nan(0x7ff...) with its bits.
bool parse_float(Parser *p, double *to) {
  const Token *t = parser_next(p);
  if (token_is(t, "inf") || token_is(t, "nan")) {
    *to = strtod(t->text, NULL);
    // A nan without bits is the default one.
    if (!token_is(t, "nan") || !token_is(parser_peek(p), "(")) return true;
    parser_next(p);
    char *end;
    errno = 0;
    uint64_t bits = strtoull(parser_peek(p)->text, &end, 16);
    if (parser_peek(p)->kind != TOKEN_number || *end || errno)
      return parser_expected(p, "the bits of a nan");
    memcpy(to, &bits, sizeof bits);
    parser_next(p);
    return parser_expect(p, ")");
  }
  // The lexer accepts more than numbers: 12ab.
  char *end = NULL;
  if (t->kind == TOKEN_number) *to = strtod(t->text, &end);
  if (!end || *end) return parser_fail(p, t, "expected a number, found %s", token_text(p, t));
  return true;
}

bool parse_dtype(Parser *p, DType *to) {
  const Token *t = parser_peek(p);
  if (t->kind != TOKEN_word || !dtype_parse(t->text, to))
    return parser_expected(p, "an element type such as f32");
  parser_next(p);
  return true;
}

const char *parser_keep_text(Parser *p, const Token *t) {
  return str_copy(p->m->arena, t->text);
}

const Loc *loc_of(Parser *p, const Token *first, const Token *last) {
  const Loc *line = loc_line(p->m->arena, p->source.path, first->line, first->column), *of;
  if (!loc_read(p->m->arena, last->comment, &of)) return line;
  if (!of) return NULL; // "?"
  Loc *loc = arena_copy(p->m->arena, of, sizeof *of);
  loc->text = line;
  return loc;
}

// -- Names -----------------------------------------------------------------------------------

static Name **find_name(Parser *p, const Token *t, bool *numbered) {
  *numbered = !t->quoted && !t->text[strspn(t->text, "0123456789")];
  // FNV-1a.
  uint32_t hash = 2166136261u;
  for (const char *c = t->text; *c; c++)
    hash = (hash ^ (unsigned char)*c) * 16777619u;
  Name **at = &p->names[hash % N_NAME_BUCKETS];
  while (*at && ((*at)->numbered != *numbered || strcmp((*at)->text, t->text) != 0))
    at = &(*at)->next;
  return at;
}

bool parser_define(Parser *p, const Token *t, Value *v) {
  bool numbered;
  Name **at = find_name(p, t, &numbered);
  // A failed second definition has its error already.
  if (*at) {
    if (!v) return true;
    return parser_fail(p, t, "'%%%s' is defined twice", t->text);
  }
  // An id out of range is an error at the token.
  int64_t number;
  if (numbered && !token_int(p,
                             &(Token){.kind = TOKEN_number,
                                      .text = t->text,
                                      .line = t->line,
                                      .column = t->column,
                                      .width = t->width},
                             0, MAX_NUMBER, &number))
    return false;
  Name *name = arena_one(p->scratch, Name);
  *name = (Name){.text = t->text, .numbered = numbered, .value = v};
  *at = name;
  if (v && !numbered) value_set_name(v, t->text);
  return true;
}

// Reads a use of a value.  False after an error; *v stays NULL if the definition failed.
bool parse_value(Parser *p, Value **v) {
  *v = NULL;
  const Token *t = expect_kind(p, TOKEN_value, "a value such as %x");
  if (!t) return false;
  bool numbered;
  // A definition comes before its uses.
  Name **at = find_name(p, t, &numbered);
  if (!*at) return parser_fail(p, t, "'%%%s' is not defined before it is read", t->text);
  *v = (*at)->value;
  return true;
}

// Gives unnamed values the ids in the text, so that parsing and printing reproduces it.  Named
// values get the remaining ids.
void number_values(Parser *p) {
  Graph *g = p->g;
  // The table covers the largest written id.
  int64_t n = g->n_values;
  for (int i = 0; i < N_NAME_BUCKETS; i++)
    for (Name *name = p->names[i]; name; name = name->next)
      if (name->numbered && name->value && atoll(name->text) >= n) n = atoll(name->text) + 1;
  bool *taken = arena_array(p->scratch, bool, n);
  for (int i = 0; i < N_NAME_BUCKETS; i++)
    for (Name *name = p->names[i]; name; name = name->next)
      if (name->numbered && name->value) {
        name->value->id = (uint32_t)atoll(name->text);
        taken[name->value->id] = true;
      }
  // Named values take the free ids in order.
  uint32_t free_id = 0;
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->name) {
      while (taken[free_id])
        free_id++;
      g->params[i]->id = free_id++;
    }
  for_each_op(op, g) {
    for (int i = 0; i < op->n_out; i++)
      if (op->out[i]->name) {
        while (taken[free_id])
          free_id++;
        op->out[i]->id = free_id++;
      }
  }
  g->n_values = (uint32_t)n;
}

// -- Types -----------------------------------------------------------------------------------

bool parse_sbp(Parser *p, int ndim, Sbp *to) {
  *to = (Sbp){SBP_B, 0};
  if (parser_accept(p, "B")) return true;
  if (parser_accept(p, "P")) {
    to->kind = SBP_P;
    return true;
  }
  // A split names its dimension.
  if (!token_is(parser_peek(p), "S")) return parser_expected(p, "B, P or S(dimension)");
  if (ndim == 0) return parser_fail(p, parser_peek(p), "a scalar cannot be split");
  parser_next(p);
  int64_t dim = 0; // for a bucket it is a dimension of its members: checked in verify_layout.c
  if (!parser_expect(p, "(") || !parse_int(p, 0, MAX_NDIM - 1, &dim) || !parser_expect(p, ")"))
    return false;
  *to = (Sbp){SBP_S, (int)dim};
  return true;
}

static bool parse_layout(Parser *p, int ndim, const Layout **layout) {
  const Token *t = parser_peek(p);
  const Mesh *mesh = p->m->meshes;
  // The first mesh of the module goes without a name.
  if (t->kind == TOKEN_graph) {
    mesh = module_find_mesh(p->m, parser_next(p)->text);
    if (!mesh) return parser_fail(p, t, "there is no mesh '@%s'", t->text);
  }
  // One entry per axis of the mesh.
  int n_axes = mesh ? mesh->n_axes : 0, n = 0;
  Sbp axis[MAX_AXES];
  if (!parser_expect(p, "{")) return false;
  if (!parser_accept(p, "}")) {
    do {
      if (n == MAX_AXES)
        return parser_expected(p, str_format(p->scratch, "at most %d axes", MAX_AXES));
      if (!parse_sbp(p, ndim, &axis[n++])) return false;
    } while (parser_accept(p, ","));
    if (!parser_expect(p, "}")) return false;
  }
  if (n != n_axes)
    return parser_fail(p, t, "the layout is of %d axes, but the mesh has %d", n, n_axes);
  *layout = layout_new(p->m, mesh, axis);
  return true;
}

bool parse_type(Parser *p, const Type **type) {
  const Token *t = parser_peek(p);
  DType dtype;
  int ndim = 0;
  int64_t dim[MAX_NDIM];
  if (!parse_dtype(p, &dtype) || !parser_expect(p, "[")) return false;
  // The dimensions; a scalar has none.
  if (!parser_accept(p, "]")) {
    do {
      if (ndim == MAX_NDIM)
        return parser_fail(p, parser_peek(p), "more than %d dimensions", MAX_NDIM);
      if (!parse_int(p, 0, INT64_MAX, &dim[ndim++])) return false;
    } while (parser_accept(p, ","));
    if (!parser_expect(p, "]")) return false;
  }
  // type_new requires a size that fits int64_t.
  if (!type_fits(dtype, ndim, dim)) return parser_fail(p, t, "the size of this type overflows");
  *type = type_new(p->m, dtype, ndim, dim);
  return true;
}

bool parse_typed(Parser *p, Typed *to) {
  *to = (Typed){.token = parser_peek(p), .offset = -1};
  if (!parse_type(p, &to->type)) return false;
  bool has_layout = token_is(parser_peek(p), "{") || parser_peek(p)->kind == TOKEN_graph;
  if (has_layout && !parse_layout(p, to->type->ndim, &to->layout)) return false;
  // The place in the slab, and the slots of a value that several micro-batches share.
  if (!parser_accept(p, "at")) return true;
  if (!parse_int(p, 0, INT64_MAX, &to->offset)) return false;
  return !parser_accept(p, "slots") ||
         (parser_expect(p, "=") && parse_int(p, 1, MAX_NUMBER, &to->slots) &&
          parser_expect(p, ":") && parse_int(p, 1, INT64_MAX, &to->stride));
}

bool parse_list(Parser *p, List *list) {
  *list = (List){0};
  if (!parser_expect(p, "[")) return false;
  if (parser_accept(p, "]")) return true;
  do {
    // Booleans, inf and nan are words.
    const Token *t = parser_next(p);
    if (t->kind != TOKEN_number && t->kind != TOKEN_word)
      return parser_fail(p, t, "expected a number, found %s", token_text(p, t));
    vec_push(p->scratch, list, t);
  } while (parser_accept(p, ","));
  return parser_expect(p, "]");
}

bool list_bytes(Parser *p, const List *list, DType t, const void **at, int64_t *n) {
  *n = (int64_t)list->n * dtype_bytes[t];
  char *bytes = arena_alloc(p->m->arena, (size_t)*n);
  // Each element must be representable in the type.
  for (int i = 0; i < list->n; i++)
    if (!element_read(t, list->at[i]->text, bytes + (int64_t)i * dtype_bytes[t]))
      return parser_fail(p, list->at[i], "'%s' is not a value of %s", list->at[i]->text,
                         dtype_name[t]);
  *at = bytes;
  return true;
}
