// See record.h.
//
// While programs run, their calls are kept as text, and the ops that these name as o[i]. When all
// is decided, every op and parameter becomes a row. record_text takes out the rows common to all
// graphs, joins rows that differ in a number (record_rows.h) and writes tables.

#include "record.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "sharding/assign.h"
#include "sharding/constraints.h"

enum {
  MAX_CELLS = 5 + MAX_AXES, // of tables
  MAX_WIDTH = 60,
  MAX_INLINE = 4, // ranks of a list within a row
};

// -- Calls ---------------------------------------------------------------------------------------

static GraphRecord *record_of(Record *r, const Graph *g) {
  for (int i = 0; i < r->graphs.n; i++)
    if (str_equal(r->graphs.at[i].graph, g->name)) return &r->graphs.at[i];
  vec_push(r->arena, &r->graphs, (GraphRecord){.graph = str_copy(r->arena, g->name)});
  return &r->graphs.at[r->graphs.n - 1];
}

static Changes *changes_of(Record *r, const Graph *g) {
  GraphRecord *of = record_of(r, g);
  return g->module->meshes ? &of->step : &of->model;
}

void record_before(Record *r, Op *const *op, int n) {
  if (!r || !n) return;
  const Graph *g = op[0]->graph;
  Changes *all = changes_of(r, g);
  // Calls without effect leave no trace: a reader of the plan does not repeat them.
  while (all->n > 0 && !all->at[all->n - 1].calls.n)
    all->n--;
  bool known = all->n > 0;
  // Ops that were named for a call that never came are removed.
  if (known) {
    RecordedCalls *last = &all->at[all->n - 1];
    for (int i = last->n_stated; i < last->ops.n; i++)
      last->number[last->ids.at[i]] = 0;
    last->ops.n = last->ids.n = last->n_stated;
  }
  for (int i = 0; i < n; i++)
    known = known && op_names_has(all->at[all->n - 1].names, op[i]);
  if (known) return;
  RecordedCalls calls = {.names = op_names_new(g, r->arena),
                         .number = arena_array(r->arena, int, g->n_ops)};
  vec_push(r->arena, all, calls);
}

static const char *op_kind_words(Record *r, const Op *op) {
  return str_format(r->arena, "\"%s\",\t\"%s\"", op_info[op->kind].name,
                    train_part_name[op_part(op)]);
}

const char *record_op(Record *r, const Op *op) {
  if (!r) return NULL;
  const Changes *all = changes_of(r, op->graph);
  RecordedCalls *calls = &all->at[all->n - 1];
  int *number = &calls->number[op->id];
  // An op gets a number when it is first named.
  if (!*number) {
    *number = calls->ops.n + 1;
    vec_push(r->arena, &calls->ids, op->id);
    vec_push(r->arena, &calls->ops,
             str_format(r->arena, "op(%s,\t%s,\t%d),\t-- %d", lua_quoted(r->arena, op_node(op)),
                        op_kind_words(r, op), op_names_which(calls->names, op), *number));
  }
  return str_format(r->arena, "o[%d]", *number);
}

const char *record_ops(Record *r, Op *const *op, int n) {
  StrBuf b = {.arena = r->arena};
  for (int i = 0; i < n; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "{ ", record_op(r, op[i]));
  strbuf_add(&b, " }");
  return b.at;
}

void record_call(Record *r, const Graph *g, const char *fmt, ...) {
  va_list args;
  const Changes *all = changes_of(r, g);
  RecordedCalls *calls = &all->at[all->n - 1];
  va_start(args, fmt);
  const char *call = str_vformat(r->arena, fmt, args);
  va_end(args);
  vec_push(r->arena, &calls->calls, call);
  calls->n_stated = calls->ops.n;
}

// -- Decisions -----------------------------------------------------------------------------------

// "n", or { "n", { 0, 1 } } if the op was assigned.
static const char *split_text(Record *r, const Sharding *s, const Op *op, int axis) {
  char letter = op->split[axis] ? op->split[axis] : '-';
  const char *split = lua_quoted(r->arena, (char[]){letter, 0});
  if (!s->decisions.assigned[op->id][axis]) return split;
  const Ranks *ranks = s->decisions.ranks[op->id][axis];
  StrBuf b = {.arena = r->arena};
  int n = ranks ? ranks->n : s->mesh->axis[axis].size;
  strbuf_add(&b, "{ ");
  for (int i = 0; i < n; i++)
    strbuf_addf(&b, "%s%d", i ? ", " : "", ranks ? ranks->at[i] : i);
  strbuf_add(&b, " }");
  if (n <= MAX_INLINE) return str_format(r->arena, "{ %s, %s }", split, b.at);
  // A long list has a name, the same for all ops with it.
  int k = 0;
  while (k < r->lists.n && !str_equal(r->lists.at[k], b.at))
    k++;
  if (k == r->lists.n) vec_push(r->arena, &r->lists, b.at);
  return str_format(r->arena, "{ %s, ranks[%d] }", split, k + 1);
}

// An input is replicated by default, but readers may shard a weight. A parameter on some ranks only
// is there because of its readers, in the layout that they want.
static void record_param(Record *r, const Sharding *s, const Value *v) {
  StrBuf b = {.arena = r->arena};
  const Mesh *mesh = v->layout->mesh;
  bool cut = v->role == ROLE_weight || v->role == ROLE_state;
  strbuf_add(&b, "");
  for (int a = 0; a < s->mesh->n_axes; a++) {
    Sbp sbp = s->decisions.layout[v->id][a];
    if (s->mesh->axis[a].time) continue;
    // Whether it is on all ranks of the axis, in their order.
    int size = s->mesh->axis[a].size;
    bool on_all = mesh->axis[a].size == size;
    for (int i = 0; i < mesh->axis[a].size; i++)
      on_all &= mesh->device[i * mesh_stride(mesh, a)] / mesh_stride(s->mesh, a) % size == i;
    // false: left to propagation.
    if (!on_all)
      strbuf_add(&b, ",\tfalse");
    else if (sbp.kind != SBP_S)
      strbuf_add(&b, ",\t\"-\"");
    else
      strbuf_addf(&b, s->decisions.param[v->id][a] == PARAM_stored ? ",\t{ %d }" : ",\t%d",
                  sbp.dim);
    cut |= sbp.kind == SBP_S;
  }
  if (v->host && v->role == ROLE_weight)
    vec_push(r->arena, &r->offloaded, ((Row){v->label, "", "", "", 0, 0}));
  if (v->host_gradient)
    vec_push(r->arena, &r->offloaded_gradients, ((Row){v->label, "", "", "", 0, 0}));
  if (cut)
    vec_push(r->arena, &r->params,
             ((Row){v->label, str_format(r->arena, "\"%s\"", role_name[v->role]), b.at, "", 0, 0}));
}

void record_decided(Record *r, const Sharding *s) {
  if (!r) return;
  bool is_first = !r->made;
  r->made = true;
  const OpNames *names = op_names_new(s->g, r->arena);
  GraphRecord *of = record_of(r, s->g);
  of->decided = true;
  // The row of an op has its splits along all axes but those of time.
  for_each_op(op, s->g) {
    StrBuf all = {.arena = r->arena};
    int which = op_names_which(names, op);
    strbuf_add(&all, "");
    for (int a = 0; a < s->mesh->n_axes; a++)
      if (!s->mesh->axis[a].time) strbuf_addf(&all, ",\t%s", split_text(r, s, op, a));
    const char *einsum = dims_text(r->arena, dims_of(s, op));
    Row row = {op_node(op), op_kind_words(r, op), all.at, einsum, which, which};
    vec_push(r->arena, &of->rows, row);
  }
  if (!is_first) return;
  r->made_for = made_for(s->g);
  // Graphs have axes and parameters in common.
  for (int a = 0; a < s->mesh->n_axes; a++) {
    if (s->mesh->axis[a].time) continue;
    r->size[r->axes.n] = s->mesh->axis[a].size;
    vec_push(r->arena, &r->axes, str_copy(r->arena, s->mesh->axis[a].name));
  }
  for (int i = 0; i < s->g->n_params; i++)
    record_param(r, s, s->g->params[i]);
}

// -- Rows of several graphs ----------------------------------------------------------------------

static int by_row(const void *x, const void *y) {
  const Row *a = x, *b = y;
  int order = strcmp(a->name, b->name);
  if (!order) order = strcmp(a->kind, b->kind);
  if (!order) order = a->which - b->which;
  if (!order) order = strcmp(a->splits, b->splits);
  return order ? order : strcmp(a->note, b->note);
}

// -- The program ---------------------------------------------------------------------------------

// Cells are separated by tabs until all lines are known; then a column gets the width of its widest
// cell.
static void add_table(StrBuf *b, const char *indent, const Lines *lines) {
  int width[MAX_CELLS] = {0};
  for (int i = 0; i < lines->n; i++) {
    const char *cell = lines->at[i];
    for (int k = 0; k < MAX_CELLS && strchr(cell, '\t'); k++) {
      int n = (int)strcspn(cell, "\t");
      if (n > width[k] && n <= MAX_WIDTH) width[k] = n;
      cell += n + 1;
    }
  }
  // With all widths known, cells are padded.
  for (int i = 0; i < lines->n; i++) {
    const char *cell = lines->at[i];
    strbuf_add(b, indent);
    for (int k = 0; k < MAX_CELLS && strchr(cell, '\t'); k++) {
      int n = (int)strcspn(cell, "\t");
      strbuf_addf(b, "%-*.*s ", width[k], n, cell);
      cell += n + 1;
    }
    strbuf_addf(b, "%s\n", cell);
  }
}

static void add_rows(StrBuf *b, const char *indent, const char *call, const Rows *rows) {
  Rows joined = rows_joined(rows, b->arena);
  Lines lines = {0};
  for (int i = 0; i < joined.n; i++) {
    const Row *row = &joined.at[i];
    const char *which = row->which ? str_format(b->arena, ",\t%s", row_which(row, b->arena)) : "";
    const char *note = *row->note ? str_format(b->arena, "\t-- %s", row->note) : "";
    const char *kind = *row->kind ? str_format(b->arena, ",\t%s", row->kind) : "";
    vec_push(
        b->arena, &lines,
        str_format(b->arena, "%s(%s%s%s%s)%s", call, row->name, kind, which, row->splits, note));
  }
  add_table(b, indent, &lines);
}

static const char head[] =
    "--\n"
    "-- A row of an op has the node of the model, { \"/h.#/fc\", 0, 11 } for all from /h.0/fc to "
    "/h.11/fc and\n"
    "-- { \"Add.#\", 7, 31, 12 } for 7, 19 and 31; its kind, its part of the step, and which it is "
    "of those that have all of\n"
    "-- this in common, { 1, 3 } the first three; then what it splits along each axis: a letter of "
    "the einsum behind the row, "
    "\"-\" for nothing, \"+\" where\n"
    "-- partial sums pass through; { \"n\", { 0, 1 } } is the same on ranks 0 and 1 of the axis.  "
    "A row of a parameter has the\n"
    "-- dimension that is cut, \"-\" for none, and { 0 } where it is only stored so and gathered "
    "where it is used.  What is false,\n"
    "-- or has no row, is left to propagation.\n\n";

static int count_calls(const Changes *all) {
  int n = 0;
  for (int i = 0; i < all->n; i++)
    n += all->at[i].calls.n;
  return n;
}

// Writes the changes that a function makes to each graph before all else.
static void add_changes(StrBuf *b, const Record *r, bool step) {
  for (int i = 0; i < r->graphs.n; i++) {
    const GraphRecord *g = &r->graphs.at[i];
    const Changes *all = step ? &g->step : &g->model;
    // Calls with the ops that they name before them.
    if (!count_calls(all)) continue;
    strbuf_addf(b, "  if graph() == %s then\n    local o\n", lua_quoted(r->arena, g->graph));
    for (int k = 0; k < all->n; k++) {
      if (!all->at[k].calls.n) continue;
      Lines stated = {.at = all->at[k].ops.at, .n = all->at[k].n_stated};
      strbuf_add(b, "    o = {\n");
      add_table(b, "      ", &stated);
      strbuf_add(b, "    }\n");
      for (int j = 0; j < all->at[k].calls.n; j++)
        strbuf_addf(b, "    %s\n", all->at[k].calls.at[j]);
    }
    strbuf_add(b, "  end\n");
  }
}

static void add_step(StrBuf *b, Record *r) {
  // The rows that all graphs have are taken out of them.
  Rows common = {0}, *of = arena_array(r->arena, Rows, r->graphs.n);
  for (int i = 0; i < r->graphs.n; i++) {
    const Rows *rows = &r->graphs.at[i].rows;
    of[i] = (Rows){.at = arena_array(r->arena, Row, rows->n), rows->n, rows->n};
    if (!rows->n) continue;
    memcpy(of[i].at, rows->at, (size_t)rows->n * sizeof *rows->at);
    qsort(of[i].at, (size_t)rows->n, sizeof *rows->at, by_row);
  }
  for (int i = r->graphs.n - 1; i >= 0; i--) { // the first graph last: its order counts
    if (!r->graphs.at[i].decided) continue;
    Rows own = {0};
    common.n = 0;
    for (int k = 0; k < r->graphs.at[i].rows.n; k++) {
      const Row *row = &r->graphs.at[i].rows.at[k];
      bool everywhere = true;
      for (int j = 0; j < r->graphs.n; j++)
        everywhere &= !r->graphs.at[j].decided ||
                      bsearch(row, of[j].at, (size_t)of[j].n, sizeof *row, by_row) != NULL;
      vec_push(r->arena, everywhere ? &common : &own, *row);
    }
    r->graphs.at[i].rows = own;
  }
  strbuf_add(b, "function step()\n  saved_for { ");
  if (r->made_for.update) strbuf_addf(b, "update = \"%s\", ", r->made_for.update);
  if (r->made_for.batch) strbuf_addf(b, "rows = %" PRId64 " ", r->made_for.batch);
  strbuf_add(b, "}\n");
  if (r->schedule) strbuf_addf(b, "  schedule(%s)\n", lua_quoted(r->arena, r->schedule));
  add_changes(b, r, true);
  strbuf_add(b, "\n  -- node, kind, part, which");
  for (int i = 0; i < r->axes.n; i++)
    strbuf_addf(b, ", %s", r->axes.at[i]);
  strbuf_add(b, "\n");
  // Rows of all graphs first, then those of single graphs.
  add_rows(b, "  ", "op_row", &common);
  for (int i = 0; i < r->graphs.n; i++) {
    const GraphRecord *g = &r->graphs.at[i];
    if (!g->rows.n) continue;
    strbuf_addf(b, "  if graph() == %s then\n", lua_quoted(r->arena, g->graph));
    add_rows(b, "    ", "op_row", &g->rows);
    strbuf_add(b, "  end\n");
  }
  // Parameters, under a title with the axes.
  strbuf_add(b, "\n  -- name, role");
  for (int i = 0; i < r->axes.n; i++)
    strbuf_addf(b, ", %s", r->axes.at[i]);
  strbuf_add(b, "\n");
  add_rows(b, "  ", "param_row", &r->params);
  strbuf_add(b, "end\n");
}

const char *record_text(Record *r, const char *source, int64_t micro_batches, int64_t peak_bytes) {
  if (!r->made) return NULL;
  StrBuf b = {.arena = r->arena};
  int64_t ranks = 1;
  for (int i = 0; i < r->axes.n; i++)
    ranks *= r->size[i];
  strbuf_addf(&b,
              "-- How %" PRId64
              " rank%s %s, as nnaot --emit plan wrote it: edit it, and give it to --plan.\n",
              ranks, ranks == 1 ? " trains" : "s share", lua_quoted(r->arena, source));
  strbuf_add(&b, head);
  if (micro_batches > 1)
    strbuf_addf(&b, "micro_batches = %" PRId64 " -- unless --micro-batches says otherwise\n",
                micro_batches);
  if (peak_bytes)
    strbuf_addf(&b, "peak_bytes = %" PRId64 " -- of the rank with the most\n", peak_bytes);
  if (micro_batches > 1 || peak_bytes) strbuf_add(&b, "\n");
  // The sizes and names of the axes.
  strbuf_add(&b, "function factors(n) return { ");
  for (int i = 0; i < r->axes.n; i++)
    strbuf_addf(&b, "%s%" PRId64, i ? ", " : "", r->size[i]);
  if (!r->axes.n) strbuf_add(&b, "1");
  strbuf_add(&b, " }, { ");
  for (int i = 0; i < r->axes.n; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "", lua_quoted(r->arena, r->axes.at[i]));
  strbuf_add(&b, " } end\n\n");
  // Names of long lists of ranks.
  if (r->lists.n) strbuf_add(&b, "local ranks = {\n");
  for (int i = 0; i < r->lists.n; i++)
    strbuf_addf(&b, "  %s, -- %d\n", r->lists.at[i], i + 1);
  if (r->lists.n) strbuf_add(&b, "}\n\n");
  // The changes of the model before it is differentiated.
  int n_calls = 0;
  for (int i = 0; i < r->graphs.n; i++)
    n_calls += count_calls(&r->graphs.at[i].model);
  if (n_calls || r->offloaded.n || r->offloaded_gradients.n || r->cross_barrier ||
      r->optimizer_in_backward) {
    strbuf_add(&b, "function model()\n");
    if (r->cross_barrier) strbuf_add(&b, "  cross_barrier()\n");
    if (r->optimizer_in_backward) strbuf_add(&b, "  optimizer_in_backward()\n");
    add_changes(&b, r, false);
    add_rows(&b, "  ", "offload_row", &r->offloaded);
    add_rows(&b, "  ", "offload_gradient_row", &r->offloaded_gradients);
    strbuf_add(&b, "end\n\n");
  }
  add_step(&b, r);
  return b.at;
}
