// See problem_file.h.
//
//     {"version": "1.0", "model": "m.onnx", "succeeded": false, "problems": [
//       {"severity": "error", "code": "NN101", "name": "operator",
//        "cause": "ImageDecoder is not supported",
//        "operator": "ImageDecoder", "domain": "", "opset": 20,
//        "places": [{"file": "m.onnx", "node": "/image", "line": null, "column": null,
//                    "types": "u8[4096]"}],
//        "notes": [], "hints": ["…"], "way_out": "…"}]}
//
// All places of a cause are listed.  A message without a code has null for it.

#include "problem_file.h"

#include <string.h>

#include "output.h"

// A string or null.
static const char *quoted(Arena *a, const char *s) {
  return s ? json_string(a, s) : "null";
}

// A positive number or null.
static const char *number(Arena *a, int n) {
  return n > 0 ? str_format(a, "%d", n) : "null";
}

static void add_list(StrBuf *b, const char *key, const char *const *list, int n) {
  strbuf_addf(b, ", \"%s\": [", key);
  for (int i = 0; i < n; i++)
    strbuf_addf(b, "%s%s", i ? ", " : "", json_string(b->arena, list[i]));
  strbuf_add(b, "]");
}

static void add_place(StrBuf *b, const DiagPlace *p) {
  // A derived location, as a gradient's, has the position that it was derived from.
  const Loc *loc = p->loc;
  while (loc->from && !loc->file && !loc->node && !loc->line)
    loc = loc->from;
  const char *types = p->detail ? strstr(p->detail, " of ") : NULL;
  strbuf_addf(b, "      {\"file\": %s, \"node\": %s, \"line\": %s, \"column\": %s, \"types\": %s}",
              quoted(b->arena, loc->file), quoted(b->arena, loc->node), number(b->arena, loc->line),
              number(b->arena, loc->column),
              quoted(b->arena, types ? types + strlen(" of ") : NULL));
}

static void add_message(StrBuf *b, const DiagMessage *m) {
  static const char *const severity[] = {
      [SEVERITY_error] = "error", [SEVERITY_warning] = "warning", [SEVERITY_note] = "note"};
  Arena *a = b->arena;
  const ProblemInfo *info = m->kind ? &problem_info[m->kind] : NULL;
  strbuf_addf(b, "    {\"severity\": \"%s\", \"code\": %s, \"name\": %s,\n     \"cause\": %s,\n",
              severity[m->severity], info ? str_format(a, "\"NN%03d\"", info->code) : "null",
              quoted(a, info ? info->name : NULL), json_string(a, m->text));
  strbuf_addf(b, "     \"operator\": %s, \"domain\": %s, \"opset\": %s,\n     \"places\": [",
              quoted(a, m->op), quoted(a, m->domain), number(a, m->opset));
  for (int i = 0; i < m->places.n; i++) {
    strbuf_add(b, i ? ",\n" : "\n");
    add_place(b, &m->places.at[i]);
  }
  strbuf_add(b, "]");
  add_list(b, "notes", m->notes.at, m->notes.n);
  add_list(b, "hints", m->hints.at, m->hints.n);
  strbuf_addf(b, ",\n     \"way_out\": %s}", quoted(a, info ? info->way_out : NULL));
}

bool problem_file_write(const char *path, const char *model, bool ok, Diag *d) {
  const DiagMessage *first = diag_messages(d);
  Arena *a = arena_new();
  StrBuf b = {.arena = a};
  strbuf_addf(&b,
              "{\n  \"version\": %s,\n  \"model\": %s,\n  \"succeeded\": %s,\n  \"problems\": [",
              json_string(a, NNAOT_VERSION), json_string(a, model), ok ? "true" : "false");
  for (const DiagMessage *m = first; m; m = m->next) {
    strbuf_add(&b, m == first ? "\n" : ",\n");
    add_message(&b, m);
  }
  strbuf_add(&b, first ? "\n  ]\n}\n" : "]\n}\n");
  bool written = output_write(path, b.at, d);
  arena_free(a);
  return written;
}
