// Reads the text form.  The language is in README.md; print.c writes it.
//
//     module    = "module" [STRING] "phase=" WORD ["slab=" NUMBER] ["host=" NUMBER]
//                 ["schedule=" STRING] ["cross_barrier"] ["optimizer_in_backward"]
//                 ["early_updates"] {mesh} [annotations] {graph}
//     mesh      = "mesh" @NAME "devices=" devices "(" axis {"," axis} ")"
//     axis      = WORD "=" NUMBER [":" "time"]
//     graph     = "graph" @NAME ["entry"] "(" [param {"," param}] ")" "{" {op} [return] {run} "}"
//     param     = %NAME ":" type [role [STRING] ["as" type]] ["whole"] ["train"] ["host"] ["host_gradient"]
//                 ["each_slice"] [init]
//     init      = ("@" STRING "+" NUMBER [":" NUMBER] | "=" (NUMBER | list | BYTES | random))
//                 ["as" dtype]
//     op        = [%NAME {"," %NAME} "="] WORD [@NAME] [%NAME {"," %NAME}] {WORD "=" attr}
//                 [":" type {"," type} ["split=[" ... "]"]] origin ["segment=" WORD] ["deferred"]
//     origin    = ["backward" | "update"] ["of=" NUMBER] ["piece=" NUMBER] ["order=" NUMBER]
//                 ["recompute_group=" NUMBER ["by_piece"]] ["offload_group=" NUMBER]
//     type      = dtype "[" [NUMBER {"," NUMBER}] "]" [layout] ["at" NUMBER ["slots=" NUMBER ":" NUMBER]]
//     layout    = [@NAME] "{" [sbp {"," sbp}] "}"
//     return    = "return" result {"," result}
//     result    = ["output" STRING | "update" %NAME] %NAME
//     run       = "run" "devices=" devices actions
//     actions   = {(WORD | "get" %NAME | "(" actions ")") ["*" NUMBER]}
//
// Types of results may be left out: every op is built with op_new, which infers them, and written
// types must agree.  A called graph may come after its callers: all graphs are located first, and a
// callee is read at its first call.  The grammar of annotations is in annotations.c.
//
// After an error, reading continues at the next line, so one run reports several errors.  A value
// with a failed definition is known but absent, and its readers are skipped without an error.

#include "ir/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "ir/annotations.h"
#include "ir/schedule.h"
#include "ir/text.h"

enum { MAX_ERRORS = 20 };

// -- Parameters ------------------------------------------------------------------------------

static bool parse_init(Parser *p, Value *v) {
  Init *init = arena_one(p->m->arena, Init);
  const Token *first = parser_next(p), *t = parser_peek(p);
  List list = {0};
  init->dtype = v->type->dtype;
  if (token_is(first, "@")) {
    // A range of a file; without a length it is as long as the value.
    const Token *path = expect_kind(p, TOKEN_string, "the name of a file in quotes");
    if (!path) return false;
    init->kind = INIT_file;
    init->path = parser_keep_text(p, path);
    if (*parser_peek(p)->text != '+') return parser_expected(p, "an offset such as +64");
    init->length = -1;
    if (!parse_int(p, 0, INT64_MAX, &init->offset)) return false;
    if (parser_accept(p, ":") && !parse_int(p, 0, INT64_MAX, &init->length)) return false;
  } else if (token_is(t, "[")) {
    // A list is converted below, since its element type comes after it.
    init->kind = INIT_bytes;
    if (!parse_list(p, &list)) return false;
  } else if (t->kind == TOKEN_bytes) {
    init->kind = INIT_bytes;
    init->bytes = arena_copy(p->m->arena, t->text, (size_t)t->n);
    init->length = t->n;
    parser_next(p);
  } else if (token_is(t, "normal") || token_is(t, "uniform")) {
    // A distribution with its two parameters, and perhaps a seed.
    init->kind = token_is(t, "normal") ? INIT_normal : INIT_uniform;
    parser_next(p);
    if (!parser_expect(p, "(") || !parse_float(p, &init->fill) || !parser_expect(p, ",") ||
        !parse_float(p, &init->to))
      return false;
    if (parser_accept(p, ",") && !parse_int(p, INT64_MIN, INT64_MAX, &init->seed)) return false;
    if (!parser_expect(p, ")")) return false;
  } else {
    init->kind = INIT_fill;
    if (!parse_float(p, &init->fill)) return false;
  }
  if (parser_accept(p, "as") && !parse_dtype(p, &init->dtype)) return false;
  // The length in bytes must not overflow, whatever the kind.
  int64_t whole;
  if (__builtin_mul_overflow(type_count(v->type), dtype_bytes[init->dtype], &whole))
    return parser_fail(p, first, "the size of the contents overflows");
  if (init->kind == INIT_file && init->length < 0) init->length = whole;
  if (init->kind == INIT_bytes && !init->bytes &&
      !list_bytes(p, &list, init->dtype, &init->bytes, &init->length))
    return false;
  v->init = init;
  return true;
}

static bool role_parse(const char *name, Role *to) {
  int i = 0;
  while (i < N_ROLES && strcmp(name, role_name[i]) != 0)
    i++;
  if (i == N_ROLES) return false;
  *to = (Role)i;
  return true;
}

// Reads the name of a parameter or an output.
static bool parse_label(Parser *p, const char *of, const char **out) {
  const Token *t = expect_kind(p, TOKEN_string, of);
  if (!t) return false;
  // Names become keys in JSON, which is UTF-8.
  if (!str_equal(t->text, str_utf8(p->m->arena, t->text, strlen(t->text))))
    return parser_fail(p, t, "the name is not UTF-8");
  *out = parser_keep_text(p, t);
  return true;
}

static bool parse_param(Parser *p) {
  const Token *first = expect_kind(p, TOKEN_value, "a parameter such as %x");
  Typed typed;
  if (!first) return false;
  // After an error the name is still defined, so that its readers are skipped without errors.
  if (!parser_expect(p, ":") || !parse_typed(p, &typed)) {
    parser_define(p, first, NULL);
    return false;
  }
  Value *v = graph_param(p->g, NULL, typed.type, ROLE_none, NULL);
  v->layout = typed.layout;
  v->offset = typed.offset;
  v->slots = (int)typed.slots;
  v->stride = typed.stride;
  if (!parser_define(p, first, v)) return false;
  // Role, label and flags, in the order of the grammar.
  if (parser_peek(p)->kind == TOKEN_word && role_parse(parser_peek(p)->text, &v->role)) {
    parser_next(p);
    if (parser_peek(p)->kind == TOKEN_string && !parse_label(p, "its name", &v->label))
      return false;
    if (parser_accept(p, "as") && !parse_type(p, &v->as)) return false;
  }
  v->whole = parser_accept(p, "whole");
  v->train = parser_accept(p, "train");
  v->host = parser_accept(p, "host");
  v->host_gradient = parser_accept(p, "host_gradient");
  v->each_slice = parser_accept(p, "each_slice");
  if ((token_is(parser_peek(p), "@") || token_is(parser_peek(p), "=")) && !parse_init(p, v))
    return false;
  // The comment with the location follows the comma.
  if (!token_is(parser_peek(p), ",") && !token_is(parser_peek(p), ")"))
    return parser_expected(p, "',' or ')' after a parameter");
  bool comma = parser_accept(p, ",");
  v->loc = loc_of(p, first, &p->tokens[p->at - 1]);
  return !comma || parser_peek(p)->kind == TOKEN_value || parser_expected(p, "another parameter");
}

// -- Graphs ----------------------------------------------------------------------------------

static bool parse_return(Parser *p) {
  do {
    Value *target = NULL, *v;
    const Token *t = parser_peek(p);
    const char *label = NULL;
    bool update = false;
    // The kind of the result, with its label or target.
    if (parser_accept(p, "output")) {
      if (!parse_label(p, "the name of the output in quotes", &label)) return false;
    } else if (parser_accept(p, "update")) {
      update = true;
      t = parser_peek(p);
      if (!parse_value(p, &target)) return false;
      if (target && target->def) return parser_fail(p, t, "only a parameter can be updated");
    }
    if (!parse_value(p, &v)) return false;
    // The definition of a value failed: its error is already reported.
    if (!v || (update && !target)) continue;
    if (update)
      graph_update(p->g, target, v);
    else
      graph_output(p->g, v, label);
  } while (parser_accept(p, ","));
  return true;
}

static bool too_many(const Parser *p) {
  return diag_errors(p->d) >= p->error_limit;
}

// Skips to the next line that can begin an item, past the token of the error.
static void skip_line(Parser *p, int start) {
  if (p->at == start) parser_next(p);
  // Continuation lines begin with other tokens.
  while (parser_peek(p)->kind != TOKEN_end) {
    const Token *t = parser_peek(p);
    bool first = t->line > p->tokens[p->at - 1].line;
    if (first &&
        (t->kind == TOKEN_value || t->kind == TOKEN_word || token_is(t, "}") || token_is(t, ")")))
      return;
    parser_next(p);
  }
}

static bool parse_body(Parser *p) {
  int errors = diag_errors(p->d);
  bool returned = false;
  while (!parser_accept(p, "}")) {
    // A missing brace is an error only if it is the first one.
    if (parser_peek(p)->kind == TOKEN_end || too_many(p))
      return diag_errors(p->d) == errors && parser_expected(p, "'}'");
    int start = p->at;
    bool ok = false;
    // Runs follow the return, and nothing follows the runs.
    if (returned && parser_accept(p, "run"))
      ok = schedule_parse(p);
    else if (returned)
      parser_expected(p, "'}' after return");
    else if (parser_accept(p, "return"))
      ok = returned = parse_return(p);
    else
      ok = parse_op(p);
    if (!ok) skip_line(p, start);
  }
  return diag_errors(p->d) == errors;
}

bool parse_graph(Parser *p, Part *part) {
  int errors = diag_errors(p->d);
  set_range(p, part->start + 2, part->end);
  part->state = READING;
  p->g = part->graph;
  p->names = arena_array(p->scratch, Name *, N_NAME_BUCKETS);
  p->g->entry = parser_accept(p, "entry");
  if (parser_expect(p, "(")) {
    while (!parser_accept(p, ")")) {
      // A missing parenthesis is an error only if it is the first one.
      if (token_is(parser_peek(p), "{") || parser_peek(p)->kind == TOKEN_end || too_many(p)) {
        if (diag_errors(p->d) == errors) parser_expected(p, "')'");
        break;
      }
      if (parse_param(p)) continue;
      // Skips to the comma before the next parameter, or to the end of the list.
      while (parser_peek(p)->kind != TOKEN_end &&
             !(token_is(parser_peek(p), ")") && token_is(parser_peek2(p), "{")) &&
             !(token_is(parser_peek(p), ",") && parser_peek2(p)->kind == TOKEN_value))
        parser_next(p);
      parser_accept(p, ",");
    }
    if (parser_expect(p, "{") && parse_body(p) && parser_peek(p)->kind != TOKEN_end)
      parser_expected(p, "another graph or the end");
  }
  // The state tells callers whether they can build their calls.
  bool ok = diag_errors(p->d) == errors;
  if (ok) number_values(p);
  part->state = ok ? READ : FAILED;
  return ok;
}

// -- The head --------------------------------------------------------------------------------

static bool parse_module_line(Parser *p) {
  if (!parser_expect(p, "module")) return false;
  if (parser_peek(p)->kind == TOKEN_string) p->m->source = parser_keep_text(p, parser_next(p));
  if (!parser_expect(p, "phase") || !parser_expect(p, "=")) return false;
  const Token *t = expect_kind(p, TOKEN_word, "the name of a phase");
  if (!t) return false;
  int i = 0;
  while (i < N_PHASES && strcmp(phase_name[i], t->text) != 0)
    i++;
  if (i == N_PHASES) return parser_fail(p, t, "unknown phase '%s'", t->text);
  p->m->phase = (Phase)i;
  // Optional fields, in the order of print.c.
  if (parser_accept(p, "slab") &&
      (!parser_expect(p, "=") || !parse_int(p, 0, INT64_MAX, &p->m->slab_bytes)))
    return false;
  if (parser_accept(p, "host") &&
      (!parser_expect(p, "=") || !parse_int(p, 0, INT64_MAX, &p->m->host_bytes)))
    return false;
  if (parser_accept(p, "schedule")) {
    t = parser_expect(p, "=")
            ? expect_kind(p, TOKEN_string, "the name of a schedule, such as \"1f1b\"")
            : NULL;
    if (!t) return false;
    p->m->schedule = parser_keep_text(p, t);
    p->m->schedule_loc = loc_line(p->m->arena, p->source.path, t->line, t->column);
  }
  p->m->cross_barrier = parser_accept(p, "cross_barrier");
  p->m->optimizer_in_backward = parser_accept(p, "optimizer_in_backward");
  p->m->early_updates = parser_accept(p, "early_updates");
  return true;
}

// 0-3,8
bool parse_devices(Parser *p, int **device, int *n) {
  Vec(int) devices = {0};
  do {
    int64_t from, to;
    if (!parse_int(p, 0, INT32_MAX - 1, &from)) return false;
    to = from;
    // The lexer reads the hyphen as a sign.
    if (parser_peek(p)->kind == TOKEN_number && *parser_peek(p)->text == '-') {
      const Token *t = parser_peek(p);
      if (!parse_int(p, 1 - INT32_MAX, 0, &to)) return false;
      to = -to;
      if (to < from) return parser_fail(p, t, "the devices count downwards");
    }
    // The limit guards against ranges that fill the memory.
    if (to - from >= MAX_DEVICES || devices.n + (to - from) >= MAX_DEVICES)
      return parser_expected(p, str_format(p->scratch, "at most %d devices", MAX_DEVICES));
    for (; from <= to; from++)
      vec_push(p->m->arena, &devices, (int)from);
  } while (parser_accept(p, ","));
  *device = devices.at;
  *n = devices.n;
  return true;
}

static bool parse_axis(Parser *p, Mesh *mesh) {
  const Token *t = expect_kind(p, TOKEN_word, "the name of an axis");
  int64_t size;
  int n = mesh->n_axes;
  if (!t) return false;
  if (n == MAX_AXES) return parser_fail(p, t, "more than %d axes", MAX_AXES);
  for (int i = 0; i < n; i++)
    if (!strcmp(mesh->axis[i].name, t->text))
      return parser_fail(p, t, "a second axis '%s'", t->text);
  if (!parser_expect(p, "=") || !parse_int(p, 1, INT32_MAX, &size)) return false;
  mesh->axis[n].name = parser_keep_text(p, t);
  mesh->axis[n].size = (int)size;
  mesh->axis[n].time = parser_accept(p, ":");
  mesh->n_axes++;
  // A mesh has at most one axis of time.
  if (!mesh->axis[n].time) return true;
  for (int i = 0; i < n; i++)
    if (mesh->axis[i].time)
      return parser_fail(p, t, "a second axis of time, after '%s'", mesh->axis[i].name);
  return parser_expect(p, "time");
}

static bool parse_mesh(Parser *p) {
  Mesh *mesh = arena_one(p->m->arena, Mesh);
  const Token *name = expect_kind(p, TOKEN_graph, "a name such as @m");
  if (!name) return false;
  mesh->name = parser_keep_text(p, name);
  if (!parser_expect(p, "devices") || !parser_expect(p, "=") ||
      !parse_devices(p, &mesh->device, &mesh->n_devices) || !parser_expect(p, "("))
    return false;
  if (!parser_accept(p, ")")) {
    do {
      if (!parse_axis(p, mesh)) return false;
    } while (parser_accept(p, ","));
    if (!parser_expect(p, ")")) return false;
  }
  // The device axes must cover the list of devices exactly.
  int64_t devices = 1;
  for (int i = 0; i < mesh->n_axes; i++)
    if (!mesh->axis[i].time && devices <= MAX_DEVICES) devices *= mesh->axis[i].size;
  if (devices != mesh->n_devices)
    return parser_fail(p, name, "the axes need %" PRId64 " devices, not %d", devices,
                       mesh->n_devices);
  // Each device occurs once, and so does the name of the mesh.
  int twice;
  if (mesh_repeats(mesh, &twice)) return parser_fail(p, name, "device %d is there twice", twice);
  if (module_find_mesh(p->m, mesh->name))
    return parser_fail(p, name, "a second mesh '@%s'", mesh->name);
  module_add_mesh(p->m, mesh);
  return true;
}

static void parse_head(Parser *p, int end) {
  set_range(p, 0, end);
  if (!parse_module_line(p)) return;
  while (parser_accept(p, "mesh"))
    if (!parse_mesh(p)) return;
  if (parser_accept(p, "annotations") && !annotations_parse(p)) return;
  if (parser_peek(p)->kind != TOKEN_end) parser_expected(p, "a graph");
}

Part *find_part(Parser *p, const Token *name) {
  for (int i = 0; i < p->parts.n; i++)
    if (!strcmp(p->parts.at[i].name->text, name->text)) return &p->parts.at[i];
  return NULL;
}

Module *module_parse(const char *path, const char *text, size_t n, Diag *d) {
  Parser p = {.m = module_new(), .scratch = arena_new(), .d = d};
  p.error_limit = diag_errors(d) + MAX_ERRORS;
  p.source = (Source){str_copy(p.m->arena, path), text, n};
  int n_tokens, errors = diag_errors(d);
  p.tokens = lex_text(p.scratch, &p.source, &n_tokens);
  // Locates the graphs: each begins on a line that begins with "graph @".
  for (int i = 0; i + 1 < n_tokens; i++) {
    const Token *t = &p.tokens[i];
    if (!token_is(t, "graph") || t[1].kind != TOKEN_graph || (i && t[-1].line == t->line)) continue;
    if (p.parts.n) p.parts.at[p.parts.n - 1].end = i;
    if (find_part(&p, &t[1])) {
      parser_fail(&p, &t[1], "a second graph '@%s'", t[1].text);
      continue;
    }
    Part part = {.name = &t[1], .start = i, .end = n_tokens - 1};
    part.graph = graph_new(p.m, t[1].text, false);
    vec_push(p.scratch, &p.parts, part);
  }
  // The head comes first, since layouts refer to its meshes; callees are read at their first call.
  parse_head(&p, p.parts.n ? p.parts.at[0].start : n_tokens - 1);
  for (int i = 0; i < p.parts.n && !too_many(&p); i++)
    if (p.parts.at[i].state == UNREAD) parse_graph(&p, &p.parts.at[i]);
  if (diag_errors(d) == errors && !p.parts.n) parser_expected(&p, "a graph");
  if (too_many(&p)) diag_note(d, NULL, "there may be more errors");
  // A module with errors is dropped.
  Module *m = p.m;
  if (diag_errors(d) != errors) {
    module_free(m);
    m = NULL;
  }
  arena_free(p.scratch);
  return m;
}

Module *module_read(const char *path, Diag *d) {
  Arena *a = arena_new();
  StrBuf text = {.arena = a};
  bool input = !strcmp(path, "-");
  FILE *f = input ? stdin : fopen(path, "rb");
  Module *m = NULL;
  char buffer[1 << 14];
  strbuf_add(&text, "");
  // The size of a pipe is unknown, so the text grows as it is read.
  for (size_t n; f && (n = fread(buffer, 1, sizeof buffer, f)) > 0;)
    strbuf_add_n(&text, buffer, n);
  // The name `-` is the standard input.
  if (!f || ferror(f))
    diag_error(d, NULL, "cannot read '%s': %s", path, strerror(errno));
  else
    m = module_parse(input ? "<stdin>" : path, text.at, text.n, d);
  if (f && !input) fclose(f);
  arena_free(a);
  return m;
}
