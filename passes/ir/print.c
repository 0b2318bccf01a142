// Writes the text form.  The language is in README.md; parse.c reads it.
//
//     module "mlp.onnx" phase=typed
//
//     graph @main entry (
//       %x: f32[4,8] input "x",                      # mlp.onnx:x
//       %w: f32[8,6] weight "w" train @ "mlp.onnx"+96  # mlp.onnx:w
//     ) {
//       %y = linear %x, %w : f32[4,6]                # mlp.onnx:/fc1/MatMul
//       return output "y" %y
//     }
//
// The text has every field of the structs of graph.h, except fields with default values.  Types and
// comments are aligned in columns, except on lines that are too long for it.

#include <inttypes.h>
#include <string.h>

#include "base/vec.h"
#include "ir/annotations.h"
#include "ir/lex.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "ir/text.h"

enum { MAX_TYPE_COLUMN = 56, MAX_COMMENT_COLUMN = 96 };

// One line in three columns; any may be NULL.
typedef struct Line {
  const char *what, *type, *comment;
} Line;

const char *value_name(Arena *a, const Value *v) {
  if (!v) return "%?"; // only in a malformed graph
  if (!v->name) return str_format(a, "%%%u", v->id);
  return str_format(a, "%%%s", str_name(a, v->name));
}

// Adds the text after the colon in ": f32[4,6] {P} at 4096".
static void add_value_type(StrBuf *b, const Value *v) {
  strbuf_add(b, type_text(b->arena, v->type));
  if (v->layout) strbuf_addf(b, " %s", layout_text(b->arena, v->layout));
  if (v->offset >= 0) strbuf_addf(b, " at %" PRId64, v->offset);
  if (v->slots) strbuf_addf(b, " slots=%d:%" PRId64, v->slots, v->stride);
}

// -- Ops -------------------------------------------------------------------------------------

static bool attr_is_default(const Attr *attr) {
  static const double zero = 0;
  switch (attr->kind) {
  case 'i':
  case 'b': return attr->i == 0;
  // -0 is not the default.
  case 'f': return !memcmp(&attr->f, &zero, sizeof zero);
  case 's': return !attr->s || !*attr->s;
  case 'I': return attr->list.n == 0;
  case 'd': return attr->data.n == 0;
  default: return false; // an element type is never left out
  }
}

static const char *bytes_text(Arena *a, const void *at, int64_t n) {
  static const char digits[] = "0123456789abcdef";
  // Two digits a byte, the letter x and two quotes; the last byte stays NUL.
  char *text = arena_alloc(a, (size_t)(2 * n + 4)), *to = text;
  *to++ = 'x';
  *to++ = '"';
  for (const uint8_t *byte = at; byte < (const uint8_t *)at + n; byte++) {
    *to++ = digits[*byte >> 4];
    *to++ = digits[*byte & 15];
  }
  *to = '"';
  return text;
}

// The bytes are readable if the op gives their element type (`constant` does, in `to`).
static const char *data_text(Arena *a, const Op *op, const Attr *attr) {
  int n;
  op_attr_specs(op->kind, &n);
  const char *list = NULL;
  for (int i = 0; i < n && !list; i++)
    if (op->attrs[i].kind == 't')
      list = elements_text(a, op->attrs[i].t, attr->data.at, attr->data.n);
  return list ? list : bytes_text(a, attr->data.at, attr->data.n);
}

const char *attr_text(Arena *a, const Op *op, const Attr *attr) {
  StrBuf b = {.arena = a};
  switch (attr->kind) {
  case 'i': return str_format(a, "%" PRId64, attr->i);
  case 'b': return attr->i ? "true" : "false";
  case 'f': return float_text(a, attr->f);
  case 's': return str_quoted(a, attr->s);
  case 't': return dtype_name[attr->t];
  case 'd': return data_text(a, op, attr);
  // Lists are written without blanks, as one word.
  case 'I':
    strbuf_add(&b, "[");
    for (int i = 0; i < attr->list.n; i++)
      strbuf_addf(&b, "%s%" PRId64, i ? "," : "", attr->list.at[i]);
    strbuf_add(&b, "]");
    return b.at;
  }
  BUG("attribute '%s' has kind '%c'", attr->name, attr->kind);
}

// Adds a text and the name of a value: as value_name does, without a copy of it.
static void add_named(StrBuf *b, const char *before, const Value *v) {
  strbuf_add(b, before);
  if (!v || !v->name) {
    strbuf_add(b, value_name(b->arena, v));
    return;
  }
  strbuf_add(b, "%");
  strbuf_add(b, str_name(b->arena, v->name));
}

// The line of an op, without its comment.
static Line op_line(Arena *a, const Op *op) {
  StrBuf what = {.arena = a}, type = {.arena = a};
  // "%y = linear %x, %w": results, name, callee, operands.
  for (int i = 0; i < op->n_out; i++)
    add_named(&what, i ? ", " : "", op->out[i]);
  strbuf_add(&what, op->n_out ? " = " : "");
  strbuf_add(&what, op_info[op->kind].name);
  if (op->callee) strbuf_addf(&what, " @%s", str_name(a, op->callee->name));
  for (int i = 0; i < op->n_in; i++)
    add_named(&what, i ? ", " : " ", op->in[i].value);
  // Attributes with default values are left out.
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  for (int i = 0; i < n_attrs; i++)
    if (!attr_is_default(&op->attrs[i]))
      strbuf_addf(&what, " %s=%s", op->attrs[i].name, attr_text(a, op, &op->attrs[i]));
  // The types of all results, with layout and offset.
  for (int i = 0; i < op->n_out; i++) {
    strbuf_add(&type, i ? ", " : ": ");
    add_value_type(&type, op->out[i]);
  }
  // " split=[k,-]": a letter per axis of its mesh, '-' if the op is replicated.
  const Mesh *mesh = op_mesh(op);
  int n_axes = mesh ? mesh->n_axes : 0;
  bool any = false;
  for (int i = 0; i < MAX_AXES; i++) {
    if (!op->split[i]) continue;
    any = true;
    if (n_axes <= i) n_axes = i + 1;
  }
  for (int i = 0; any && i < n_axes; i++)
    strbuf_addf(&type, "%s%c", i ? "," : " split=[", op->split[i] ? op->split[i] : '-');
  if (any) strbuf_add(&type, "]");
  // " backward of=3 piece=2 order=1 recompute_group=3 segment=B0", " update deferred"
  if (op->part != PART_forward) strbuf_addf(&type, " %s", train_part_name[op->part]);
  if (op->of) strbuf_addf(&type, " of=%d", op->of);
  if (op->piece) strbuf_addf(&type, " piece=%d", op->piece);
  if (op->order) strbuf_addf(&type, " order=%d", op->order);
  if (op->recompute_group)
    strbuf_addf(&type, " recompute_group=%d%s", op->recompute_group,
                op->by_piece ? " by_piece" : "");
  if (op->offload_group) strbuf_addf(&type, " offload_group=%d", op->offload_group);
  if (op->segment)
    strbuf_addf(&type, " segment=%s", str_name(a, segment_name(op->graph, op->segment)));
  if (op->deferred) strbuf_add(&type, " deferred");
  return (Line){what.at, type.at, NULL};
}

const char *op_text(const Op *op, Arena *a) {
  Line line = op_line(a, op);
  if (!line.type) return line.what;
  StrBuf b = {.arena = a};
  strbuf_add(&b, line.what);
  strbuf_add(&b, " ");
  strbuf_add(&b, line.type);
  return b.at;
}

// -- Parameters and results ------------------------------------------------------------------

static void add_init(StrBuf *b, const Value *v) {
  Arena *a = b->arena;
  const Init *init = v->init;
  const char *list = NULL;
  switch (init->kind) {
  case INIT_file:
    strbuf_addf(b, " @ %s+%" PRId64, str_quoted(a, init->path), init->offset);
    // The length is needed once the type is local.
    if (init->length != type_count(v->type) * dtype_bytes[init->dtype])
      strbuf_addf(b, ":%" PRId64, init->length);
    break;
  case INIT_bytes:
    list = elements_text(a, init->dtype, init->bytes, init->length);
    strbuf_addf(b, " = %s", list ? list : bytes_text(a, init->bytes, init->length));
    break;
  case INIT_fill: strbuf_addf(b, " = %s", float_text(a, init->fill)); break;
  case INIT_normal:
  case INIT_uniform:
    strbuf_addf(b, " = %s(%s,%s", init->kind == INIT_normal ? "normal" : "uniform",
                float_text(a, init->fill), float_text(a, init->to));
    // The seed 0 is the default.
    if (init->seed) strbuf_addf(b, ",%" PRId64, init->seed);
    strbuf_add(b, ")");
    break;
  }
  if (init->dtype != v->type->dtype) strbuf_addf(b, " as %s", dtype_name[init->dtype]);
}

static Line param_line(Arena *a, const Value *v, bool last) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "%s: ", value_name(a, v));
  add_value_type(&b, v);
  // Role, label and flags, in the order of the grammar.
  if (v->role != ROLE_none || v->label) strbuf_addf(&b, " %s", role_name[v->role]);
  if (v->label) strbuf_addf(&b, " %s", str_quoted(a, v->label));
  if (v->as) strbuf_addf(&b, " as %s", type_text(a, v->as));
  if (v->whole) strbuf_add(&b, " whole");
  if (v->train) strbuf_add(&b, " train");
  if (v->host) strbuf_add(&b, " host");
  if (v->host_gradient) strbuf_add(&b, " host_gradient");
  if (v->each_slice) strbuf_add(&b, " each_slice");
  if (v->init) add_init(&b, v);
  if (!last) strbuf_add(&b, ",");
  return (Line){b.at, NULL, loc_comment(a, v->loc)};
}

// -- Graphs and modules ----------------------------------------------------------------------

static int width(const char *s) {
  return s ? (int)strlen(s) : 0;
}

static void pad(StrBuf *b, int n) {
  strbuf_addf(b, "%*s", n > 0 ? n : 0, "");
}

static void add_lines(StrBuf *b, const Line *lines, int n) {
  int type_column = 0, comment_column = 0;
  // Too long lines do not move the columns.
  for (int i = 0; i < n; i++)
    if (lines[i].type && width(lines[i].what) > type_column &&
        width(lines[i].what) <= MAX_TYPE_COLUMN)
      type_column = width(lines[i].what);
  // Comments stand after the longest line that fits.
  for (int i = 0; i < n; i++) {
    int w = width(lines[i].what);
    if (lines[i].type) w = (w > type_column ? w : type_column) + 1 + width(lines[i].type);
    if (w > comment_column && w <= MAX_COMMENT_COLUMN) comment_column = w;
  }
  // The op, its type and the comment, each padded to its column.
  for (int i = 0; i < n; i++) {
    int w = width(lines[i].what);
    strbuf_addf(b, "  %s", lines[i].what);
    if (lines[i].type) {
      pad(b, type_column - w);
      strbuf_addf(b, " %s", lines[i].type);
      w = (w > type_column ? w : type_column) + 1 + width(lines[i].type);
    }
    pad(b, comment_column - w);
    strbuf_addf(b, "  # %s\n", lines[i].comment);
  }
}

static void add_graph(StrBuf *b, const Graph *g) {
  Arena *a = b->arena;
  Vec(Line) lines = {0};
  // Parameters, one a line.
  strbuf_addf(b, "\ngraph @%s%s (", str_name(a, g->name), g->entry ? " entry" : "");
  for (int i = 0; i < g->n_params; i++)
    vec_push(a, &lines, param_line(a, g->params[i], i == g->n_params - 1));
  if (lines.n) strbuf_add(b, "\n");
  add_lines(b, lines.at, lines.n);
  strbuf_add(b, ") {\n");

  // The body has its own columns.
  lines.n = 0;
  for_each_op(op, g) {
    Line line = op_line(a, op);
    line.comment = loc_comment(a, op->loc);
    vec_push(a, &lines, line);
  }
  add_lines(b, lines.at, lines.n);
  // The results, aligned after the return.
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    strbuf_add(b, i ? ",\n         " : "  return ");
    if (r->target)
      strbuf_addf(b, "update %s ", value_name(a, r->target));
    else if (r->label)
      strbuf_addf(b, "output %s ", str_quoted(a, r->label));
    strbuf_add(b, value_name(a, r->use.value));
  }
  if (g->n_results) strbuf_add(b, "\n");
  schedule_print(b, g);
  strbuf_add(b, "}\n");
}

// Prints runs of consecutive device numbers as ranges.
const char *device_list(Arena *a, const int *device, int n) {
  StrBuf b = {.arena = a};
  for (int i = 0, end; i < n; i = end) {
    end = i + 1;
    // A run of consecutive numbers.
    while (end < n && device[end] == device[end - 1] + 1)
      end++;
    strbuf_addf(&b, "%s%d", i ? "," : "", device[i]);
    if (end > i + 1) strbuf_addf(&b, "-%d", device[end - 1]);
  }
  return b.at ? b.at : "";
}

const char *module_text(const Module *m, Arena *a) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "module");
  // Fields with default values are left out.
  if (m->source) strbuf_addf(&b, " %s", str_quoted(a, m->source));
  strbuf_addf(&b, " phase=%s", phase_name[m->phase]);
  if (m->slab_bytes) strbuf_addf(&b, " slab=%" PRId64, m->slab_bytes);
  if (m->host_bytes) strbuf_addf(&b, " host=%" PRId64, m->host_bytes);
  if (m->schedule) strbuf_addf(&b, " schedule=%s", str_quoted(a, m->schedule));
  if (m->cross_barrier) strbuf_add(&b, " cross_barrier");
  if (m->optimizer_in_backward) strbuf_add(&b, " optimizer_in_backward");
  if (m->early_updates) strbuf_add(&b, " early_updates");
  strbuf_add(&b, "\n");
  // Meshes come before graphs, whose layouts refer to them.
  for_each_mesh(mesh, m) {
    strbuf_addf(&b, "mesh @%s devices=%s (", str_name(a, mesh->name),
                device_list(a, mesh->device, mesh->n_devices));
    for (int i = 0; i < mesh->n_axes; i++)
      strbuf_addf(&b, "%s%s=%d%s", i ? ", " : "", mesh->axis[i].name, mesh->axis[i].size,
                  mesh->axis[i].time ? ":time" : "");
    strbuf_add(&b, ")\n");
  }
  if (m->annotations) annotations_print(&b, m->annotations);
  for_each_graph(g, m)
    add_graph(&b, g);
  return b.at;
}

void module_print(const Module *m, FILE *out) {
  Arena *a = arena_new();
  fputs(module_text(m, a), out);
  arena_free(a);
}
