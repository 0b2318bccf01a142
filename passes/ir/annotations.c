// See annotations.h.
//
//     annotations = "annotations" STRING "(" axis {"," axis} ")" ["stages=" WORD] {node}
//     node        = "node" STRING ["stage=" NUMBER] ["in" values] ["out" values]
//     values      = value {"," value}
//     value       = %NAME "{" sbp {"," sbp} "}"

#include "ir/annotations.h"

#include <string.h>

#include "ir/parse.h"

void annotations_add(Annotations *all, Annotation *one) {
  if (all->last)
    all->last->next = one;
  else
    all->first = one;
  all->last = one;
}

Annotations *annotations_clone(Arena *a, const Annotations *all) {
  if (!all) return NULL;
  Annotations *copy = arena_copy(a, all, sizeof *all);
  copy->name = str_copy(a, all->name);
  copy->first = copy->last = NULL;
  // The copy may outlive the arena of the original, so names are copied too.
  for (int i = 0; i < all->n_axes; i++)
    copy->axis[i].name = str_copy(a, all->axis[i].name);
  for (const Annotation *from = all->first; from; from = from->next) {
    // Annotations keep their order; the links are made below.
    Annotation *to = arena_copy(a, from, sizeof *from);
    to->node = str_copy(a, from->node);
    to->value = arena_copy(a, from->value, (size_t)from->n_values * sizeof *from->value);
    for (int i = 0; i < to->n_values; i++)
      to->value[i].name = str_copy(a, from->value[i].name);
    to->next = NULL;
    annotations_add(copy, to);
  }
  return copy;
}

// -- Writing -----------------------------------------------------------------------------------

static void print_values(StrBuf *b, const Annotation *one, bool result, int n_axes) {
  bool any = false;
  for (int i = 0; i < one->n_values; i++) {
    const AnnotatedValue *v = &one->value[i];
    if (v->result != result) continue;
    // The keyword stands before the first value only.
    strbuf_addf(b, "%s%%%s {", any ? ", " : result ? " out " : " in ", str_name(b->arena, v->name));
    for (int a = 0; a < n_axes; a++)
      strbuf_addf(b, "%s%s", a ? ", " : "", sbp_text(b->arena, v->axis[a]));
    strbuf_add(b, "}");
    any = true;
  }
}

void annotations_print(StrBuf *b, const Annotations *all) {
  // The header names the axes of the annotations, which may differ from those of the mesh.
  strbuf_addf(b, "annotations %s (", str_quoted(b->arena, all->name));
  for (int i = 0; i < all->n_axes; i++)
    strbuf_addf(b, "%s%s=%d", i ? ", " : "", all->axis[i].name, all->axis[i].size);
  strbuf_add(b, ")");
  if (all->stages >= 0) strbuf_addf(b, " stages=%s", all->axis[all->stages].name);
  strbuf_add(b, "\n");
  // One line a node; operands come before results.
  for (const Annotation *one = all->first; one; one = one->next) {
    strbuf_addf(b, "node %s", str_quoted(b->arena, one->node));
    if (one->stage >= 0) strbuf_addf(b, " stage=%d", one->stage);
    print_values(b, one, false, all->n_axes);
    print_values(b, one, true, all->n_axes);
    strbuf_add(b, "\n");
  }
}

// -- Reading -----------------------------------------------------------------------------------

static bool read_axis(Parser *p, Annotations *all) {
  const Token *t = expect_kind(p, TOKEN_word, "the name of an axis");
  int64_t size;
  if (!t) return false;
  // Names must be unique, since `stages=` refers to an axis by name.
  if (all->n_axes == MAX_AXES) return parser_fail(p, t, "more than %d axes", MAX_AXES);
  for (int i = 0; i < all->n_axes; i++)
    if (!strcmp(all->axis[i].name, t->text))
      return parser_fail(p, t, "a second axis '%s'", t->text);
  if (!parser_expect(p, "=") || !parse_int(p, 1, INT32_MAX, &size)) return false;
  all->axis[all->n_axes++] = (MeshAxis){.name = parser_keep_text(p, t), .size = (int)size};
  return true;
}

typedef Vec(AnnotatedValue) Values;

static bool read_values(Parser *p, const Annotations *all, bool result, Values *out) {
  do {
    AnnotatedValue v = {.result = result};
    const Token *t = expect_kind(p, TOKEN_value, "a value such as %x");
    if (!t || !parser_expect(p, "{")) return false;
    v.name = parser_keep_text(p, t);
    // One layout per axis; partial sums cannot be annotated.
    for (int i = 0; i < all->n_axes; i++) {
      const Token *at = parser_peek(p);
      if (i && !parser_expect(p, ",")) return false;
      if (!parse_sbp(p, MAX_NDIM, &v.axis[i])) return false;
      if (v.axis[i].kind == SBP_P) return parser_fail(p, at, "an annotation is B or S(dimension)");
    }
    if (!parser_expect(p, "}")) return false;
    vec_push(p->m->arena, out, v);
  } while (parser_accept(p, ","));
  return true;
}

static bool read_node(Parser *p, Annotations *all) {
  const Token *t = expect_kind(p, TOKEN_string, "the name of a node in quotes");
  if (!t) return false;
  Annotation *one = arena_one(p->m->arena, Annotation);
  Values values = {0};
  one->node = parser_keep_text(p, t);
  one->stage = -1;
  // A stage needs a pipeline axis, and must be a position on it.
  if (parser_accept(p, "stage")) {
    int64_t stage;
    const Token *at = parser_peek2(p);
    int n = all->stages < 0 ? 0 : all->axis[all->stages].size;
    if (!parser_expect(p, "=") || !parse_int(p, 0, INT32_MAX, &stage)) return false;
    if (stage >= n) return parser_fail(p, at, "there are %d stages, from 0", n);
    one->stage = (int)stage;
  }
  // Both lists are optional, and share one array.
  if (parser_accept(p, "in") && !read_values(p, all, false, &values)) return false;
  if (parser_accept(p, "out") && !read_values(p, all, true, &values)) return false;
  one->value = values.at;
  one->n_values = values.n;
  annotations_add(all, one);
  return true;
}

bool annotations_parse(Parser *p) {
  const Token *name = expect_kind(p, TOKEN_string, "the name of the annotations in quotes");
  if (!name) return false;
  Annotations *all = arena_one(p->m->arena, Annotations);
  all->name = parser_keep_text(p, name);
  if (!parser_expect(p, "(")) return false;
  if (!parser_accept(p, ")")) {
    do {
      if (!read_axis(p, all)) return false;
    } while (parser_accept(p, ","));
    if (!parser_expect(p, ")")) return false;
  }
  // The pipeline axis, if there is one, is one of the axes above.
  all->stages = -1;
  if (parser_accept(p, "stages")) {
    if (!parser_expect(p, "=")) return false;
    const Token *t = expect_kind(p, TOKEN_word, "the name of an axis");
    if (!t) return false;
    for (int i = 0; i < all->n_axes; i++)
      if (!strcmp(all->axis[i].name, t->text)) all->stages = i;
    if (all->stages < 0) return parser_fail(p, t, "there is no axis '%s'", t->text);
  }
  // Nodes come last, since their stages and layouts refer to the axes.
  while (parser_accept(p, "node"))
    if (!read_node(p, all)) return false;
  p->m->annotations = all;
  return true;
}
