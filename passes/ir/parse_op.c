// Reads one op: see the grammar in parse.c.
//
// The line is first read as a whole into a Statement, because its comment may give the location.
// Then op_new builds the op, and the written results must match its own.

#include "ir/parse.h"

#include <stddef.h>
#include <string.h>

#include "ir/op.h"
#include "ir/schedule.h"

// The parsed text of one line.
typedef struct Statement {
  const Token *first, *name; // the first token of the line; the name of the op
  OpKind kind;
  bool poisoned; // the definition of an operand failed
  Graph *callee;
  Vec(const Token *) results;
  Vec(Value *) in;
  Vec(Attr) attrs;
  Vec(Typed) types;
  char split[MAX_AXES];
  Origin origin; // without the location, which comes last
  int segment;
  bool deferred;
} Statement;

// Reads the called graph, unless it is already read.
static bool parse_callee(Parser *p, Statement *s) {
  const Token *t = parser_next(p);
  Part *part = find_part(p, t);
  if (!part) return parser_fail(p, t, "there is no graph '@%s'", t->text);
  if (part->state == READING) return parser_fail(p, t, "'@%s' calls itself", t->text);
  if (p->nesting == MAX_NESTING) return parser_fail(p, t, "calls are nested too deeply");
  // The parser's state is saved while the callee is read.
  if (part->state == UNREAD) {
    int at = p->at, end = p->end;
    Graph *g = p->g;
    Name **names = p->names;
    p->nesting++;
    parse_graph(p, part);
    p->nesting--;
    set_range(p, at, end);
    p->g = g;
    p->names = names;
  }
  // A call of a failed graph is skipped without a further error.
  s->poisoned |= part->state == FAILED;
  s->callee = part->graph;
  return true;
}

// Bytes that are written as a list remain in `*list` until the element type is known.
static bool parse_attr_value(Parser *p, Attr *attr, List *list) {
  const Token *t = parser_peek(p);
  switch (attr->kind) {
  case 'i': return parse_int(p, INT64_MIN, INT64_MAX, &attr->i);
  case 'b':
    // true and false are also written 1 and 0.
    if (token_is(t, "true") || token_is(t, "false")) {
      attr->i = token_is(parser_next(p), "true");
      return true;
    }
    return parse_int(p, 0, 1, &attr->i);
  case 'f': return parse_float(p, &attr->f);
  case 't': return parse_dtype(p, &attr->t);
  case 'I': {
    List numbers;
    if (!parse_list(p, &numbers)) return false;
    int64_t *at = arena_array(p->m->arena, int64_t, numbers.n);
    for (int i = 0; i < numbers.n; i++)
      if (!token_int(p, numbers.at[i], INT64_MIN, INT64_MAX, &at[i])) return false;
    attr->list.n = numbers.n;
    attr->list.at = at;
    return true;
  }
  case 's':
    if (!expect_kind(p, TOKEN_string, "a string in quotes")) return false;
    attr->s = parser_keep_text(p, t);
    return true;
  case 'd':
    // list_bytes converts the list once `to` is known.
    if (token_is(t, "[")) return parse_list(p, list);
    if (!expect_kind(p, TOKEN_bytes, "x\"…\" or a list of elements")) return false;
    attr->data.n = t->n;
    attr->data.at = arena_copy(p->m->arena, t->text, (size_t)t->n);
    return true;
  }
  BUG("attribute '%s' has kind '%c'", attr->name, attr->kind);
}

// Numbers of an op's origin, in the order of the text; three have an older name.
static const struct {
  const char *word;
  size_t field; // in Origin
} origin_numbers[] = {{"of", offsetof(Origin, of)},
                      {"piece", offsetof(Origin, piece)},
                      {"order", offsetof(Origin, order)},
                      {"turn", offsetof(Origin, order)},
                      {"recompute_group", offsetof(Origin, recompute_group)},
                      {"anew", offsetof(Origin, recompute_group)},
                      {"offload_group", offsetof(Origin, offload_group)},
                      {"away", offsetof(Origin, offload_group)}};
enum { N_ORIGIN_NUMBERS = sizeof origin_numbers / sizeof *origin_numbers };

// Whether a field of the op is next and not an attribute: it follows them if types are left out.
static bool at_field(const Parser *p) {
  const Token *t = parser_peek(p);
  bool field = token_is(t, "segment");
  for (int i = 0; i < N_ORIGIN_NUMBERS; i++)
    field |= token_is(t, origin_numbers[i].word);
  return field && token_is(parser_peek2(p), "=");
}

static bool parse_attrs(Parser *p, Statement *s) {
  int n, data = -1;
  const AttrSpec *spec = op_attr_specs(s->kind, &n);
  List list = {0};
  DType dtype = DT_f32;
  while (parser_peek(p)->kind == TOKEN_word && token_is(parser_peek2(p), "=") && !at_field(p)) {
    const Token *t = parser_next(p);
    int i = 0;
    while (i < n && strcmp(spec[i].name, t->text) != 0)
      i++;
    // The message lists the names that the op knows.
    if (i == n) {
      StrBuf known = {.arena = p->scratch};
      strbuf_addf(&known, "%s has %s", op_info[s->kind].name, n ? "" : "no attributes");
      for (int k = 0; k < n; k++)
        strbuf_addf(&known, "%s%s", k ? ", " : "", spec[k].name);
      return parser_fail(p, t, "unknown attribute '%s'; %s", t->text, known.at);
    }
    // Names in specs are unique pointers.
    for (int k = 0; k < s->attrs.n; k++)
      if (s->attrs.at[k].name == spec[i].name)
        return parser_fail(p, t, "attribute '%s' is given twice", t->text);
    Attr attr = {.name = spec[i].name, .kind = spec[i].kind};
    parser_next(p);
    if (token_is(parser_peek(p), "[") && attr.kind == 'd') data = s->attrs.n;
    if (!parse_attr_value(p, &attr, &list)) return false;
    if (attr.kind == 't') dtype = attr.t;
    vec_push(p->scratch, &s->attrs, attr);
  }
  // Attribute `to` may follow the list, so it is converted last.
  if (data < 0) return true;
  Attr *attr = &s->attrs.at[data];
  return list_bytes(p, &list, dtype, &attr->data.at, &attr->data.n);
}

static bool parse_types(Parser *p, Statement *s) {
  if (!parser_accept(p, ":")) return true;
  do {
    Typed typed;
    if (!parse_typed(p, &typed)) return false;
    vec_push(p->scratch, &s->types, typed);
  } while (parser_accept(p, ","));
  if (!parser_accept(p, "split")) return true;
  // One letter per axis of the mesh of the first result.
  const Layout *layout = s->types.at[0].layout;
  const Mesh *mesh = layout ? layout->mesh : p->m->meshes;
  int n_axes = mesh ? mesh->n_axes : 0, n = 0;
  const Token *first = parser_peek(p);
  if (!parser_expect(p, "=") || !parser_expect(p, "[")) return false;
  do {
    const Token *t = parser_next(p);
    bool letter = (t->kind == TOKEN_word || t->kind == TOKEN_number) && !t->text[1];
    if (!letter && !token_is(t, "+") && !token_is(t, "-"))
      return parser_fail(p, t, "expected a letter of the op, '+' or '-', found %s",
                         token_text(p, t));
    if (n < n_axes) s->split[n] = token_is(t, "-") ? 0 : *t->text;
    n++;
  } while (parser_accept(p, ","));
  if (n != n_axes) return parser_fail(p, first, "%d letters, but the mesh has %d axes", n, n_axes);
  return parser_expect(p, "]");
}

static bool parse_origin(Parser *p, Statement *s) {
  for (int part = PART_backward; part < N_TRAIN_PARTS && s->origin.part == PART_forward; part++)
    if (parser_accept(p, train_part_name[part])) s->origin.part = (TrainPart)part;
  for (int i = 0; i < N_ORIGIN_NUMBERS; i++) {
    // The table gives the field of Origin that the word sets.
    int64_t number;
    if (!parser_accept(p, origin_numbers[i].word)) continue;
    if (!parser_expect(p, "=") || !parse_int(p, 1, MAX_NUMBER, &number)) return false;
    *(int *)(void *)((char *)&s->origin + origin_numbers[i].field) = (int)number;
    if (origin_numbers[i].field == offsetof(Origin, recompute_group))
      s->origin.by_piece = parser_accept(p, "by_piece");
  }
  return true;
}

static bool parse_statement(Parser *p, Statement *s) {
  // The names are only noted: define() adds them once the op exists.
  if (parser_peek(p)->kind == TOKEN_value) {
    do {
      const Token *t = expect_kind(p, TOKEN_value, "a value such as %x");
      if (!t) return false;
      vec_push(p->scratch, &s->results, t);
    } while (parser_accept(p, ","));
    if (!parser_expect(p, "=")) return false;
  }
  s->name = expect_kind(p, TOKEN_word, "the name of an op");
  if (!s->name) return false;
  if (!op_kind_parse(s->name->text, &s->kind))
    return parser_fail(p, s->name, "unknown op '%s'", s->name->text);
  // The callee is read now, since result types follow from it.
  bool calls = op_has_callee(s->kind);
  if (calls && parser_peek(p)->kind != TOKEN_graph)
    return parser_expected(p, "the graph it calls, such as @k");
  if (calls && !parse_callee(p, s)) return false;
  // An operand with a failed definition poisons the op.
  if (parser_peek(p)->kind == TOKEN_value) {
    do {
      Value *v;
      if (!parse_value(p, &v)) return false;
      s->poisoned |= !v;
      vec_push(p->scratch, &s->in, v);
    } while (parser_accept(p, ","));
  }
  if (!parse_attrs(p, s) || !parse_types(p, s) || !parse_origin(p, s)) return false;
  // The segment of the pipeline schedule that the op is part of.
  if (parser_accept(p, "segment")) {
    if (!parser_expect(p, "=")) return false;
    const Token *t = expect_kind(p, TOKEN_word, "the name of a segment, such as F0");
    if (!t) return false;
    s->segment = schedule_segment(p->g, t->text);
  }
  s->deferred = parser_accept(p, "deferred") || parser_accept(p, "owed"); // also the older name
  return true;
}

// Checks the written results against those of the op.
static bool check_results(Parser *p, const Statement *s, Op *op) {
  if (op->n_out != s->results.n)
    return parser_fail(p, s->name, "%s has %d result%s, but %d are named", s->name->text, op->n_out,
                       op->n_out == 1 ? "" : "s", s->results.n);
  if (s->types.n && s->types.n != op->n_out)
    return parser_fail(p, s->types.at[0].token, "%s has %d results, but there are %d types",
                       s->name->text, op->n_out, s->types.n);
  // Types are interned, so pointers are compared; then layouts and offsets are taken over.
  for (int i = 0; i < s->types.n; i++) {
    const Typed *typed = &s->types.at[i];
    if (typed->type != op->out[i]->type)
      return parser_fail(p, typed->token, "'%%%s' is %s, not %s", s->results.at[i]->text,
                         type_text(p->scratch, op->out[i]->type),
                         type_text(p->scratch, typed->type));
    op->out[i]->layout = typed->layout;
    op->out[i]->offset = typed->offset;
    op->out[i]->slots = (int)typed->slots;
    op->out[i]->stride = typed->stride;
  }
  // Fields that op_new does not know.
  memcpy(op->split, s->split, sizeof op->split);
  op->segment = s->segment;
  op->deferred = s->deferred;
  return true;
}

bool parse_op(Parser *p) {
  Statement s = {.first = parser_peek(p)};
  Op *op = NULL;
  bool ok = parse_statement(p, &s);
  const Token *t = parser_peek(p), *last = &p->tokens[p->at - 1];
  if (ok && t->kind != TOKEN_end && t->line == last->line && !token_is(t, "}"))
    ok = parser_expected(p, "the end of the line");
  if (ok && !s.poisoned) {
    // The location is in the comment of the last token.
    s.origin.loc = loc_of(p, s.first, last);
    int errors = diag_errors(p->d);
    op = s.callee
             ? op_new_calling(p->g, NULL, s.kind, s.callee, s.in.at, s.in.n, s.attrs.at, s.attrs.n,
                              s.origin, p->d)
             : op_new(p->g, NULL, s.kind, s.in.at, s.in.n, s.attrs.at, s.attrs.n, s.origin, p->d);
    // An op that cannot be built has an error; the caret marks its name.
    if (!op && diag_errors(p->d) == errors) parser_fail(p, s.name, "%s does not fit", s.name->text);
    if (!op) source_caret(p->d, &p->source, s.name->line, s.name->column, s.name->width);
    ok = op && check_results(p, &s, op);
  }
  // Defines the names even if the op failed.
  for (int i = 0; i < s.results.n; i++)
    ok &= parser_define(p, s.results.at[i], ok && op ? op->out[i] : NULL);
  return ok;
}
