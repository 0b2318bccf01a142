// Reads the tables that say how the runtime runs the program: nnrt_program, the rank programs with
// their tasks, the groups, and the names and the work of ops.  tables_check.c compares them with
// the module.

#include <string.h>

#include "check.h"

// NULL or the name of a function.
static bool take_function(Check *c, Cursor *at, const char **out) {
  CToken t;
  if (!take(at, "%w", &t)) return unexpected(c, at, "a function or NULL");
  *out = ctoken_is(&t, "NULL") ? NULL : ctoken_text(&t, c->arena);
  return true;
}

static bool find_table(Check *c, const char *name, const char *type, Cursor *at) {
  Unit *u = unit_find_typed(c, NULL, name, UNIT_table, type);
  if (u) *at = u->at;
  return u != NULL;
}

// -- nnrt_program ------------------------------------------------------------------------------

// The work of the calls, a row for each name of an op; a graph without ops has one empty row.
static bool read_work(Check *c, const char *name, GraphText *g) {
  Cursor at;
  if (!find_table(c, name, "NnrtWork", &at)) return false;
  CallWork *work = arena_array(c->arena, CallWork, g->n_ops + 1);
  g->work = work;
  for (int64_t i = 0; i < g->n_ops; i++) {
    CToken type;
    if (!take(&at, "{%i, %i, %w},", &work[i].flops, &work[i].bytes, &type))
      return unexpected(c, &at, "the work of an op");
    int t = 0;
    while (t < N_DTYPES && !ctoken_is(&type, str_format(c->arena, "NNRT_%s", dtype_name[t])))
      t++;
    if (t == N_DTYPES) return mismatch(c, &at, "there is no such type");
    work[i].type = (DType)t;
  }
  if (g->n_ops == 0) take(&at, "{0},");
  return want(c, &at, "}");
}

// `train`: the graph has a table of work.
static bool read_graph(Check *c, Cursor *at, GraphText *g, bool train) {
  CToken tensors, ops, work, values, same, again;
  if (!take(at, "{.tensors = %w, .n_tensors = %i, .ops = %w, .n_ops = %i,", &tensors, &g->n_tensors,
            &ops, &g->n_ops) ||
      (train && !take(at, ".work = %w,", &work)) ||
      !take(at, ".values = %w, .n_values = (int)(sizeof %w / sizeof *%w)}", &values, &same, &again))
    return unexpected(c, at, "the tables of a graph");
  g->tensors = ctoken_text(&tensors, c->arena);
  g->values = ctoken_text(&values, c->arena);
  const char *name = ctoken_text(&ops, c->arena);
  if (!ctoken_is(&same, g->values) || !ctoken_is(&again, g->values))
    return mismatch(c, at, "n_values is the length of another table");
  // The names of ops; a graph without ops has one empty name.
  Cursor list;
  if (!find_table(c, name, TYPE_text, &list)) return false;
  if (g->n_ops < 0 || g->n_ops > list.file->end - list.at)
    return mismatch(c, at, "n_ops is not the length of '%s'", name);
  g->ops = arena_array(c->arena, const char *, g->n_ops + 1);
  g->made_of = arena_array(c->arena, const void *, g->n_ops + 1);
  int64_t n = 0, most = g->n_ops ? g->n_ops : 1;
  while (n < most && take(&list, "%s,", &g->ops[n]))
    n++;
  if (n != most || !take(&list, "}"))
    return mismatch(c, &list, "n_ops is not the length of '%s'", name);
  return !train || read_work(c, ctoken_text(&work, c->arena), g);
}

// The fields of nnrt_program by the kind of their value.
typedef struct Field {
  const char *name;
  const char **text, **table;
  int64_t *number;
} Field;

static bool read_field(Check *c, Cursor *at, const CToken *name, const Field *fields, int n) {
  ProgramText *p = &c->p;
  CToken word;
  for (int i = 0; i < n; i++) {
    const Field *f = &fields[i];
    if (!ctoken_is(name, f->name)) continue;
    if (f->text) return take(at, "%s", f->text) || unexpected(c, at, "a string");
    if (f->number) return take(at, "%i", f->number) || unexpected(c, at, "a number");
    if (!take(at, "%w", &word)) return unexpected(c, at, "a table");
    *f->table = ctoken_text(&word, c->arena);
    return true;
  }
  if (ctoken_is(name, "lr")) return take(at, "%f", &p->lr) || unexpected(c, at, "a number");
  if (ctoken_is(name, "plan_hash")) {
    if (!want(c, at, "UINT64_C(")) return false;
    p->plan_hash = cursor_next(at);
    return want(c, at, ")");
  }
  if (ctoken_is(name, "train")) return read_graph(c, at, &p->graph[0], true);
  if (ctoken_is(name, "eval")) return read_graph(c, at, &p->graph[1], false);
  if (ctoken_is(name, "proof")) return proof_read(c, at);
  return mismatch(c, at, "nnrt_program has a field '%s'", ctoken_text(name, c->arena));
}

static bool read_program(Check *c) {
  ProgramText *p = &c->p;
  const Field fields[] = {
      {"model", &p->model, NULL, NULL},
      {"plan", &p->plan, NULL, NULL},
      {"target", &p->target, NULL, NULL},
      {"version", &p->version, NULL, NULL},
      {"describe", &p->describe, NULL, NULL},
      {"schedule", &p->schedule, NULL, NULL},
      {"lr_schedule", &p->lr_schedule, NULL, NULL},
      {"model_program", NULL, &p->model_program, NULL},
      {"mesh", NULL, &p->mesh, NULL},
      {"group", NULL, &p->group, NULL},
      {"move", NULL, &p->move, NULL},
      {"code", NULL, &p->code, NULL},
      {"code_of", NULL, &p->code_of, NULL},
      {"deferred", NULL, &p->deferred, NULL},
      {"holes", NULL, &p->holes, NULL},
      {"fill", NULL, &p->fill, NULL},
      {"fill_checks", NULL, &p->fill_checks, NULL},
      {"constants", NULL, &p->constants, NULL},
      {"n_mesh", NULL, NULL, &p->n_mesh},
      {"n_groups", NULL, NULL, &p->n_groups},
      {"n_moves", NULL, NULL, &p->n_moves},
      {"n_codes", NULL, NULL, &p->n_codes},
      {"n_deferred", NULL, NULL, &p->n_deferred},
      {"n_holes", NULL, NULL, &p->n_holes},
      {"n_constants", NULL, NULL, &p->n_constants},
      {"ranks", NULL, NULL, &p->ranks},
      {"micro_batches", NULL, NULL, &p->micro_batches},
      {"split_rank", NULL, NULL, &p->split_rank},
      {"batch", NULL, NULL, &p->batch},
      {"payload_bytes", NULL, NULL, &p->payload_bytes},
      {"n_prep", NULL, NULL, &p->n_prep},
      {"seed", NULL, NULL, &p->seed},
      {"per_node", NULL, NULL, &p->per_node},
      {"skeleton", NULL, NULL, &p->skeleton},
      {"skeleton_bytes", NULL, NULL, &p->skeleton_bytes},
  };
  enum { N_FIELDS = sizeof fields / sizeof *fields, MOST_FIELDS = 64 };
  const char *seen[MOST_FIELDS];
  int n_seen = 0;
  Cursor at;
  CToken name;
  if (!find_table(c, "nnrt_program", "NnrtProgram", &at)) return false;
  for (Cursor begin = at; take(&at, ".%w =", &name); begin = at) {
    // The fingerprint covers the fields before it, so all others.
    if (p->proof.begin.file) return mismatch(c, &begin, "a field is after '.proof'");
    if (ctoken_is(&name, "proof")) p->proof.begin = begin;
    for (int i = 0; i < n_seen; i++)
      if (ctoken_is(&name, seen[i])) return mismatch(c, &begin, "a second '.%s'", seen[i]);
    if (n_seen == MOST_FIELDS) return unexpected(c, &begin, "the end of nnrt_program");
    seen[n_seen++] = ctoken_text(&name, c->arena);
    if (!read_field(c, &at, &name, fields, N_FIELDS) || !want(c, &at, ",")) return false;
  }
  if (!p->proof.begin.file) return mismatch(c, &at, "nnrt_program has no field '.proof'");
  // Lengths of tables are those of the text, so that no loop runs past its end.
  const int64_t lengths[] = {p->n_mesh,     p->n_groups, p->n_moves,     p->n_codes, p->ranks,
                             p->n_deferred, p->n_holes,  p->n_constants, p->n_prep};
  bool ok = p->n_codes <= p->ranks && p->n_prep <= c->prep_macros;
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    ok &= lengths[i] >= 0 && lengths[i] <= c->program.end - c->program.text + MAX_DEVICES;
  if (!ok) return mismatch(c, &at, "a number of nnrt_program is out of range");
  return want(c, &at, "}") && (p->code || mismatch(c, &at, "nnrt_program has no code"));
}

// -- Rank programs -----------------------------------------------------------------------------

static bool read_parts(Check *c, const char *name, StepText *step) {
  Cursor at;
  if (!find_table(c, name, "NnrtTask", &at)) return false;
  for (int i = 0; i < step->n_parts; i++) {
    TaskText *t = &step->part[i];
    if (!take(&at, "{%s,", &t->name)) return unexpected(c, &at, "a task");
    if (!take_function(c, &at, &t->wait) || !want(c, &at, ",") || !take_function(c, &at, &t->run) ||
        !want(c, &at, ",") || !take_function(c, &at, &t->start) || !want(c, &at, "},"))
      return false;
  }
  return want(c, &at, "}");
}

static bool read_order(Check *c, const char *name, StepText *step) {
  Cursor at;
  int64_t part;
  if (!find_table(c, name, "int", &at)) return false;
  step->ordered = true;
  do {
    if (!take(&at, "%i", &part)) return unexpected(c, &at, "the number of a task");
    if (part < 0 || part >= step->n_parts) return mismatch(c, &at, "no task has this number");
    vec_push(c->arena, &step->order, (int)part);
  } while (take(&at, ","));
  return want(c, &at, "}");
}

// The step of a graph: "{train_begin, 1, train_parts, NULL, train_update}", or {0}.
static bool read_step(Check *c, Cursor *at, StepText *step) {
  int64_t n;
  const char *parts = NULL, *order = NULL;
  if (take(at, "{0}")) return true;
  if (!want(c, at, "{") || !take_function(c, at, &step->begin)) return false;
  if (!take(at, ", %i,", &n) || n < 0 || n > c->program.end - c->program.text)
    return unexpected(c, at, "the number of tasks");
  step->n_parts = (int)n;
  step->part = arena_array(c->arena, TaskText, n);
  return take_function(c, at, &parts) && want(c, at, ",") && take_function(c, at, &order) &&
         want(c, at, ",") && take_function(c, at, &step->update) && want(c, at, "}") &&
         (parts ? read_parts(c, parts, step) : n == 0 || mismatch(c, at, "no tasks")) &&
         (!order || read_order(c, order, step));
}

// PREPARE statements of a rank program, by the number of their macro.
static bool read_prepare(Check *c, CodeText *code) {
  Unit *u = code->prepare ? unit_find(c, NULL, code->prepare, UNIT_function) : NULL;
  code->prep = arena_array(c->arena, PrepCall, c->p.n_prep + 1);
  if (!u) return code->prepare ? false : mismatch(c, NULL, "a rank program prepares nothing");
  c->function = u->name;
  Cursor at = u->at;
  int graph = -1;
  if (!want(c, &at, "(NnrtRank *r) {")) return false;
  take(&at, "(void)r;");
  while (!take(&at, "}")) {
    CToken name, macro;
    PrepCall call = {.line = at.line};
    // Errors name the graph of the op.
    if (take(&at, "r->graph = &nnrt_program.%w;", &name)) {
      graph = ctoken_is(&name, "eval");
      if (!graph && !ctoken_is(&name, "train")) return unexpected(c, &at, "train or eval");
      continue;
    }
    const Cursor before = at;
    if (!take(&at, "PREPARE(%w, %i, %w(", &macro, &call.op, &call.name))
      return unexpected(c, &at, "a preparation");
    call.args = at;
    call.eval = graph == 1;
    const MacroPlace *place = place_find(c, &macro);
    if (!place || place->kind != PLACE_prep || place->offset >= c->p.n_prep || graph < 0)
      return mismatch(c, &before, "'%s' holds no preparation", ctoken_text(&macro, c->arena));
    if (code->prep[place->offset].name.n)
      return mismatch(c, &before, "'%s' is prepared twice", ctoken_text(&macro, c->arena));
    code->prep[place->offset] = call;
    // The arguments are compared with those of the ops that run it.
    for (int depth = 1; depth > 0;) {
      CToken t = cursor_next(&at);
      if (t.kind == C_end || t.kind == C_bad || ctoken_is(&t, ";"))
        return mismatch(c, &before, "the preparation does not end");
      depth += ctoken_is(&t, "(") ? 1 : ctoken_is(&t, ")") ? -1 : 0;
    }
    if (!want(c, &at, ");")) return false;
  }
  c->function = NULL;
  return true;
}

static bool read_codes(Check *c) {
  Cursor at;
  if (!find_table(c, c->p.code, "NnrtRankProgram", &at)) return false;
  c->code = arena_array(c->arena, CodeText, c->p.n_codes);
  for (int i = 0; i < c->p.n_codes; i++) {
    CodeText *code = &c->code[i];
    code->line = at.line;
    if (!want(c, &at, "{") || !take_function(c, &at, &code->prepare) || !want(c, &at, ",") ||
        !read_step(c, &at, &code->step[0]) || !want(c, &at, ",") ||
        !read_step(c, &at, &code->step[1]))
      return false;
    if (!take(&at, ", %i, %i},", &code->slab_bytes, &code->host_bytes))
      return unexpected(c, &at, "the bytes of the memory");
    if (!read_prepare(c, code)) return false;
  }
  if (!want(c, &at, "}")) return false;
  // The rank program of each rank; the first without a table.
  c->code_of = arena_array(c->arena, int, c->p.ranks);
  if (!c->p.code_of) return true;
  if (!find_table(c, c->p.code_of, "int", &at)) return false;
  for (int i = 0; i < c->p.ranks; i++) {
    int64_t code;
    if (!take(&at, "%i", &code) || code < 0 || code >= c->p.n_codes)
      return unexpected(c, &at, "the number of a rank program");
    c->code_of[i] = (int)code;
    if (i < c->p.ranks - 1 && !want(c, &at, ",")) return false;
  }
  return want(c, &at, "}");
}

// -- Other tables ------------------------------------------------------------------------------

static bool read_groups(Check *c) {
  Cursor at;
  if (!c->p.group) return c->p.n_groups == 0 || mismatch(c, NULL, "the groups have no table");
  if (!find_table(c, c->p.group, "NnrtGroup", &at)) return false;
  c->group = arena_array(c->arena, GroupText, c->p.n_groups);
  for (int i = 0; i < c->p.n_groups; i++) {
    GroupText *g = &c->group[i];
    int64_t axis;
    if (!take(&at, "{%i, {", &g->mesh)) return unexpected(c, &at, "a group");
    // Axes up to -1, or as many as there can be.
    for (bool more = true; more && g->axes.n < MAX_AXES;) {
      if (!take(&at, "%i", &axis) || axis < -1) return unexpected(c, &at, "an axis or -1");
      more = axis >= 0;
      if (more) g->axes.at[g->axes.n++] = (int)axis;
      if (more && g->axes.n < MAX_AXES && !want(c, &at, ",")) return false;
    }
    if (!want(c, &at, "}},")) return false;
  }
  return want(c, &at, "}");
}

static bool read_deferred(Check *c) {
  Cursor at;
  if (!c->p.deferred)
    return c->p.n_deferred == 0 || mismatch(c, NULL, "the deferred updates have no table");
  if (!find_table(c, c->p.deferred, TYPE_function, &at)) return false;
  c->functions = arena_array(c->arena, const char *, c->p.n_deferred);
  for (int i = 0; i < c->p.n_deferred; i++)
    if ((i && !want(c, &at, ",")) || !take_function(c, &at, &c->functions[i])) return false;
  return want(c, &at, "}");
}

static bool read_constants(Check *c) {
  Cursor at;
  c->constant = arena_array(c->arena, const char *, c->p.n_constants + 1);
  c->constant_bytes = arena_array(c->arena, int64_t, c->p.n_constants + 1);
  c->constant_value = arena_array(c->arena, const Value *, c->p.n_constants + 1);
  if (!c->p.constants)
    return c->p.n_constants == 0 || mismatch(c, NULL, "the constants have no table");
  if (!find_table(c, c->p.constants, "NnrtConstant", &at)) return false;
  for (int i = 0; i < c->p.n_constants; i++) {
    CToken name;
    // Bytes are compared with those of the value that it is.
    if (!take(&at, "{%w,", &name)) return unexpected(c, &at, "a constant");
    c->constant[i] = ctoken_text(&name, c->arena);
    if (!take(&at, "%i},", &c->constant_bytes[i]))
      return unexpected(c, &at, "the bytes of a constant");
  }
  return want(c, &at, "}");
}

bool tables_read(Check *c) {
  return read_program(c) && read_codes(c) && read_groups(c) && read_deferred(c) &&
         read_constants(c);
}
