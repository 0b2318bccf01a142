// See record.h.

#include "record.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "assign.h"
#include "ir/op.h"
#include "op_names.h"
#include "part.h"
#include "said.h"

enum { MAX_CELLS = 5 + MAX_AXES, MAX_WIDTH = 60 }; // of tables

// -- Words of Lua --------------------------------------------------------------------------------

static const char *quoted(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "\"");
  for (; *s; s++)
    if (*s == '"' || *s == '\\')
      strbuf_addf(&b, "\\%c", *s);
    else if (iscntrl((unsigned char)*s))
      strbuf_addf(&b, "\\%03d", (unsigned char)*s);
    else
      strbuf_add_n(&b, s, 1);
  strbuf_add(&b, "\"");
  return b.at;
}

static const char *op_words(Record *r, const OpNames *names, const Op *op) {
  return str_format(r->arena, "%s,\t\"%s\",\t\"%s\",\t%d", quoted(r->arena, op_node(op)),
                    op_info[op->kind].name, train_part_name[op_part(op)],
                    op_names_which(names, op));
}

const char *record_op(Record *r, const Op *op) {
  if (!r) return NULL;
  return str_format(r->arena, "op(%s, \"%s\", \"%s\", %d)", quoted(r->arena, op_node(op)),
                    op_info[op->kind].name, train_part_name[op_part(op)],
                    op_names_which(op_names_new(op->graph, r->arena), op));
}

// -- Calls ---------------------------------------------------------------------------------------

static GraphRecord *record_of(Record *r, const Graph *g) {
  for (int i = 0; i < r->graphs.n; i++)
    if (str_equal(r->graphs.at[i].graph, g->name)) return &r->graphs.at[i];
  vec_push(r->arena, &r->graphs, (GraphRecord){.graph = str_copy(r->arena, g->name)});
  return &r->graphs.at[r->graphs.n - 1];
}

void record_call(Record *r, const Graph *g, const char *fmt, ...) {
  va_list args;
  GraphRecord *of = record_of(r, g);
  va_start(args, fmt);
  const char *call = str_vformat(r->arena, fmt, args);
  va_end(args);
  vec_push(r->arena, g->module->meshes ? &of->step : &of->model, call);
}

// -- What was decided ----------------------------------------------------------------------------

// "n", or { "n", { 0, 1 } } where it runs on some ranks only.
static const char *way_text(Record *r, const Sharding *s, const Op *op, int axis) {
  char letter = op->split[axis] ? op->split[axis] : '-';
  const char *way = quoted(r->arena, (char[]){letter, 0});
  const Ranks *ranks = s->ranks[op->id][axis];
  if (!s->assigned[op->id][axis]) return way;
  r->assigned = true;
  StrBuf b = {.arena = r->arena};
  int n = ranks ? ranks->n : s->mesh->axis[axis].size;
  for (int i = 0; i < n; i++)
    strbuf_addf(&b, "%s%d", i ? ", " : "", ranks ? ranks->at[i] : i);
  return str_format(r->arena, "{ %s, { %s } }", way, b.at);
}

static void record_op_row(Record *r, const Sharding *s, const OpNames *names, const Op *op) {
  StrBuf b = {.arena = r->arena};
  strbuf_addf(&b, "{ %s", op_words(r, names, op));
  for (int a = 0; a < s->mesh->n_axes; a++)
    if (!s->mesh->axis[a].time) strbuf_addf(&b, ",\t%s", way_text(r, s, op, a));
  strbuf_addf(&b, " },\t-- %s", dims_text(r->arena, dims_of(s, op)));
  vec_push(r->arena, &record_of(r, s->g)->rows, b.at);
}

// Devices from one position along the axis to the next.
static int stride(const Mesh *mesh, int axis) {
  int n = 1;
  for (int a = axis + 1; a < mesh->n_axes; a++)
    if (!mesh->axis[a].time) n *= mesh->axis[a].size;
  return n;
}

// Whether the value is on all ranks of the axis, in their order.
static bool on_all(const Sharding *s, const Value *v, int axis) {
  const Mesh *mesh = v->layout->mesh;
  int size = s->mesh->axis[axis].size;
  for (int i = 0; i < mesh->axis[axis].size; i++)
    if (mesh->device[i * stride(mesh, axis)] / stride(s->mesh, axis) % size != i) return false;
  return mesh->axis[axis].size == size;
}

// An input is whole where nobody says otherwise, but a weight may be cut because its readers are.
// What is on some ranks only is there because its readers are, and lies as they want it.
static void record_param(Record *r, const Sharding *s, const Value *v) {
  StrBuf b = {.arena = r->arena};
  bool cut = v->role == ROLE_weight || v->role == ROLE_state;
  strbuf_addf(&b, "{ %s,\t\"%s\"", quoted(r->arena, v->label), role_name[v->role]);
  for (int a = 0; a < s->mesh->n_axes; a++) {
    Sbp lies = s->lies[v->id][a];
    if (s->mesh->axis[a].time) continue;
    if (!on_all(s, v, a))
      strbuf_add(&b, ",\tfalse");
    else if (lies.kind != SBP_S)
      strbuf_add(&b, ",\t\"-\"");
    else
      strbuf_addf(&b, s->given[v->id][a] == STORED ? ",\t{ %d }" : ",\t%d", lies.dim);
    cut |= lies.kind == SBP_S;
  }
  strbuf_add(&b, " },");
  if (cut) vec_push(r->arena, &r->params, b.at);
}

static void record_axes(Record *r, const Mesh *mesh) {
  for (int a = 0; a < mesh->n_axes; a++) {
    if (mesh->axis[a].time) continue;
    r->size[r->axes.n] = mesh->axis[a].size;
    vec_push(r->arena, &r->axes, str_copy(r->arena, mesh->axis[a].name));
  }
}

void record_decided(Record *r, const Sharding *s) {
  if (!r) return;
  bool is_first = !r->made;
  r->made = true;
  const OpNames *names = op_names_new(s->g, r->arena);
  record_of(r, s->g)->decided = true;
  for_each_op(op, s->g)
    record_op_row(r, s, names, op);
  if (!is_first) return;
  record_axes(r, s->mesh);
  for (int i = 0; i < s->g->n_params; i++)
    record_param(r, s, s->g->params[i]);
}

// -- The program ---------------------------------------------------------------------------------

static int by_text(const void *x, const void *y) {
  return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static Lines sorted(Arena *a, const Lines *lines) {
  Lines copy = {.at = arena_array(a, const char *, lines->n), lines->n, lines->n};
  if (lines->n) memcpy(copy.at, lines->at, (size_t)lines->n * sizeof *lines->at);
  qsort(copy.at, (size_t)copy.n, sizeof *copy.at, by_text);
  return copy;
}

// Takes out of the graphs the rows that all of them have.
static Lines common_rows(Record *r) {
  Lines common = {0}, *of = arena_array(r->arena, Lines, r->graphs.n);
  for (int i = 0; i < r->graphs.n; i++)
    of[i] = sorted(r->arena, &r->graphs.at[i].rows);
  for (int i = r->graphs.n - 1; i >= 0; i--) { // the first last, whose order it is
    if (!r->graphs.at[i].decided) continue;
    Lines own = {0};
    common.n = 0;
    for (int k = 0; k < r->graphs.at[i].rows.n; k++) {
      const char *row = r->graphs.at[i].rows.at[k];
      bool everywhere = true;
      for (int j = 0; j < r->graphs.n; j++)
        everywhere &= !r->graphs.at[j].decided ||
                      bsearch(&row, of[j].at, (size_t)of[j].n, sizeof row, by_text) != NULL;
      vec_push(r->arena, everywhere ? &common : &own, row);
    }
    r->graphs.at[i].rows = own;
  }
  return common;
}

// Rows have tabs between their cells until all are known: these become as wide as the widest.
static void add_table(StrBuf *b, const char *indent, const Lines *rows) {
  int width[MAX_CELLS] = {0};
  for (int i = 0; i < rows->n; i++) {
    const char *cell = rows->at[i];
    for (int k = 0; k < MAX_CELLS && strchr(cell, '\t'); k++) {
      int n = (int)strcspn(cell, "\t");
      if (n > width[k] && n <= MAX_WIDTH) width[k] = n;
      cell += n + 1;
    }
  }
  for (int i = 0; i < rows->n; i++) {
    const char *cell = rows->at[i];
    strbuf_add(b, indent);
    for (int k = 0; k < MAX_CELLS && strchr(cell, '\t'); k++) {
      int n = (int)strcspn(cell, "\t");
      strbuf_addf(b, "%-*.*s ", width[k], n, cell);
      cell += n + 1;
    }
    strbuf_addf(b, "%s\n", cell);
  }
}

static void add_lines(StrBuf *b, const char *indent, const Lines *lines) {
  for (int i = 0; i < lines->n; i++)
    strbuf_addf(b, "%s%s\n", indent, lines->at[i]);
}

static const char head[] =
    "--\n"
    "-- A row of `rows` is an op: the node of the model, its kind, its part of the step, and which "
    "it is of those that\n"
    "-- have all of this in common; then what it splits along each axis: a letter of the einsum "
    "behind the row, \"-\" for\n"
    "-- nothing, \"+\" where partial sums pass through; { \"n\", { 0, 1 } } is the same on ranks 0 "
    "and 1 of the axis.  A row of\n"
    "-- `parameters` has for each axis the dimension that is cut, \"-\" for none, and { 0 } where "
    "it is only stored so and\n"
    "-- gathered where it is used.  What has no row is left to propagation.\n\n";

static const char body[] =
    "-- Visits what a row says along an axis, the innermost axis first.\n"
    "local function each(axes, visit)\n"
    "  for _, list in ipairs({ rows.all, rows[graph()] or {} }) do\n"
    "    for _, row in ipairs(list) do\n"
    "      for k = #axes, 1, -1 do\n"
    "        local way = row[4 + k]\n"
    "        if way then visit(op(row[1], row[2], row[3], row[4]), way, axes[k]) end\n"
    "      end\n"
    "    end\n"
    "  end\n"
    "end\n\n"
    "local function lay(axes)\n"
    "  local of = {}\n"
    "  for _, v in ipairs(params()) do of[v.role .. v.name] = v end\n"
    "  for _, row in ipairs(parameters) do\n"
    "    local v = of[row[2] .. row[1]]\n"
    "    if not v and graph() ~= \"eval\" then error(\"there is no \" .. row[2] .. \" '\" .. "
    "row[1] .. "
    "\"'\") end\n"
    "    for k, axis in ipairs(v and axes or {}) do\n"
    "      local way = row[2 + k]\n"
    "      if type(way) == \"table\" then store(v, way[1], axis)\n"
    "      elseif way then split(v, way, axis) end\n"
    "    end\n"
    "  end\n"
    "end\n\n"
    "function step(...)\n"
    "  local axes = { ... }\n";

static const char say[] = "  each(axes, op_trans)\n";

// Where ops run is said before what they split.
static const char say_ranks[] =
    "  each(axes, function(o, way, axis)\n"
    "    if type(way) == \"table\" then op_assign(o, way[2], axis) end\n"
    "  end)\n"
    "  each(axes, function(o, way, axis)\n"
    "    op_trans(o, type(way) == \"table\" and way[1] or way, axis)\n"
    "  end)\n";

static void add_factors(StrBuf *b, const Record *r) {
  strbuf_add(b, "function factors(n) return { ");
  for (int i = 0; i < r->axes.n; i++)
    strbuf_addf(b, "%s%" PRId64, i ? ", " : "", r->size[i]);
  if (!r->axes.n) strbuf_add(b, "1");
  strbuf_add(b, " }, { ");
  for (int i = 0; i < r->axes.n; i++)
    strbuf_addf(b, "%s%s", i ? ", " : "", quoted(r->arena, r->axes.at[i]));
  strbuf_add(b, " } end\n\n");
}

static void add_rows(StrBuf *b, const char *name, const Record *r, const Lines *rows) {
  strbuf_addf(b, "  %s = {\n    -- node, kind, part, which", name);
  for (int i = 0; i < r->axes.n; i++)
    strbuf_addf(b, ", %s", r->axes.at[i]);
  strbuf_add(b, "\n");
  add_table(b, "    ", rows);
  strbuf_add(b, "  },\n");
}

// What a function does to each graph before all else.
static void add_calls(StrBuf *b, const Record *r, bool step) {
  for (int i = 0; i < r->graphs.n; i++) {
    const GraphRecord *g = &r->graphs.at[i];
    const Lines *calls = step ? &g->step : &g->model;
    if (!calls->n) continue;
    strbuf_addf(b, "  if graph() == %s then\n", quoted(r->arena, g->graph));
    add_lines(b, "    ", calls);
    strbuf_add(b, "  end\n");
  }
}

static bool changes_model(const Record *r) {
  int n = 0;
  for (int i = 0; i < r->graphs.n; i++)
    n += r->graphs.at[i].model.n;
  return n > 0;
}

const char *record_text(Record *r, const char *source, int64_t micro_batches) {
  if (!r->made) return NULL;
  StrBuf b = {.arena = r->arena};
  int64_t ranks = 1;
  for (int i = 0; i < r->axes.n; i++)
    ranks *= r->size[i];
  strbuf_addf(&b,
              "-- How %" PRId64
              " rank%s %s, as nnaot --emit plan wrote it: edit it, and give it to --plan.\n",
              ranks, ranks == 1 ? " trains" : "s share", quoted(r->arena, source));
  strbuf_add(&b, head);
  if (micro_batches > 1)
    strbuf_addf(&b, "micro_batches = %" PRId64 " -- unless --micro-batches says otherwise\n\n",
                micro_batches);
  add_factors(&b, r);
  Lines common = common_rows(r);
  strbuf_add(&b, "local rows = {\n");
  add_rows(&b, "all", r, &common);
  for (int i = 0; i < r->graphs.n; i++)
    if (r->graphs.at[i].rows.n)
      add_rows(&b, str_format(r->arena, "[%s]", quoted(r->arena, r->graphs.at[i].graph)), r,
               &r->graphs.at[i].rows);
  strbuf_add(&b, "}\n\nlocal parameters = {\n  -- name, role");
  for (int i = 0; i < r->axes.n; i++)
    strbuf_addf(&b, ", %s", r->axes.at[i]);
  strbuf_add(&b, "\n");
  add_table(&b, "  ", &r->params);
  strbuf_add(&b, "}\n\n");
  if (changes_model(r)) {
    strbuf_add(&b, "function model()\n");
    add_calls(&b, r, false);
    strbuf_add(&b, "end\n\n");
  }
  strbuf_add(&b, body);
  add_calls(&b, r, true);
  strbuf_add(&b, r->assigned ? say_ranks : say);
  strbuf_add(&b, "  lay(axes)\nend\n");
  return b.at;
}
