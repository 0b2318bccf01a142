// The tables for --check-against: the values of the model's program that operands and results stand
// for.
//
//     {2, 4, NNRT_f32, -1, 0, 2, {8, 6}, {0, -1, …}, .offset = 512},      a row of model_values
//     {0, 0, 1, 7, false},                                            operand 1 of op 0 is row 7
//
// The tables are determined by the module, the numbers of its calls, and the proof, which assigns
// values of the model's program to those of the module: each operand and result that has one has
// its use, in the order of calls, and each value a row, in the order of first uses.  A module that
// was read from text has no proof without --prove.  Then the text says which values have rows: all
// uses of a value agree about that, rows describe their values, and the numbers are within their
// range.

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "ir/analysis/place.h"
#include "ir/model_values.h"
#include "ir/split.h"

#define NO_PROOF "0x0000000000000000" // of .proof

typedef struct Row {
  int64_t number, terms, param, partial, ndim, dim[MAX_NDIM], split[MAX_AXES];
  int64_t offset, slots, stride, mesh;
  bool host;
  CToken type;
} Row;

// "{8, 6}, " or "{0}, " without dimensions.
static bool read_list(Cursor *at, int64_t *out, int64_t n, int64_t most) {
  if (!take(at, "{") || n < 0 || n > most) return false;
  for (int i = 0; i < n; i++)
    if (!take(at, "%i", &out[i]) || (i + 1 < n && !take(at, ","))) return false;
  return (n > 0 || take(at, "0")) && take(at, "},");
}

static bool take_row(Cursor *at, Row *r) {
  *r = (Row){0};
  bool read = take(at, "{%i, %i, %w, %i, %i, %i,", &r->number, &r->terms, &r->type, &r->param,
                   &r->partial, &r->ndim) &&
              read_list(at, r->dim, r->ndim, MAX_NDIM) &&
              read_list(at, r->split, MAX_AXES, MAX_AXES) && take(at, ".offset = %i", &r->offset);
  if (read && take(at, ", .slots = %i", &r->slots)) read = take(at, ", .stride = %i", &r->stride);
  if (read) r->host = take(at, ", .host = true");
  if (read) take(at, ", .mesh = %i", &r->mesh);
  return read && take(at, "},");
}

// Whether the row describes `v`.
static bool describes(const Check *c, const Row *r, const Value *v) {
  const Type *whole = value_whole(v);
  const Layout *l = v->layout;
  bool same = r->param == (v->def ? -1 : v->index) && r->ndim == whole->ndim &&
              !memcmp(r->dim, whole->dim, sizeof *r->dim * (size_t)whole->ndim) &&
              ctoken_is(&r->type, str_format(c->arena, "NNRT_%s", dtype_name[v->type->dtype])) &&
              r->offset == v->offset && r->slots == (v->slots > 1 ? v->slots : 0) &&
              r->stride == (v->slots > 1 ? v->stride : 0) && r->host == value_on_host(v) &&
              r->mesh == value_mesh_id(v);
  bool partial = false;
  for (int a = 0; a < MAX_AXES; a++) {
    Sbp sbp = l && a < l->n_axes ? l->axis[a] : (Sbp){.kind = SBP_B};
    same &= r->split[a] == (sbp.kind == SBP_S ? sbp.dim : -1);
    partial |= sbp.kind == SBP_P;
  }
  same &= r->partial == partial;
  return same;
}

// -- Uses --------------------------------------------------------------------------------------

typedef struct Uses {
  Check *c;
  const ModelValues *proved; // NULL: unknown
  bool absent;               // the text has no tables
  Cursor at, rows;           // the next use, and the next row
  int64_t n, n_numbers;      // rows so far
  int64_t *row;              // by value id: 1 + its row; 0: none so far; -1: it stands for no value
} Uses;

// One use as the text has it.
typedef struct UseText {
  int64_t op, of, number, value;
  CToken late;
} UseText;

static bool take_use(Cursor *at, UseText *use) {
  return take(at, "{%i, %i, %i, %i, %w},", &use->op, &use->of, &use->number, &use->value,
              &use->late);
}

static bool want_use(Uses *u, const UseText *need, bool late) {
  Check *c = u->c;
  UseText have;
  if (u->absent) return mismatch(c, NULL, "nnrt_program has no tables of the model's program");
  const Cursor before = u->at;
  if (!take_use(&u->at, &have)) return unexpected(c, &u->at, "a use of a value");
  if (have.op != need->op || have.number != need->number)
    return mismatch(c, &before, "operand or result %" PRId64 " of op %" PRId64 " is due here",
                    need->number, need->op);
  return (have.of == need->of && have.value == need->value &&
          ctoken_is(&have.late, late ? "true" : "false")) ||
         mismatch(c, &before,
                  "operand or result %" PRId64 " of op %" PRId64
                  " is another value of the model's program",
                  need->number, need->op);
}

// The first use of a value has the next row, which describes it.
static bool want_row(Uses *u, const Value *v) {
  Check *c = u->c;
  Row r;
  const Cursor before = u->rows;
  if (!take_row(&u->rows, &r)) return unexpected(c, &before, "a value of the model's program");
  bool same = describes(c, &r, v);
  if (u->proved)
    same &= r.number == u->proved->of[v->id].number && r.terms == u->proved->of[v->id].terms;
  else
    same &= r.number >= 0 && r.number < u->n_numbers && r.terms > 0;
  u->row[v->id] = ++u->n;
  return same ||
         mismatch(c, &before, "row %" PRId64 " is of another value than its first use", u->n - 1);
}

// Whether the text says that `v` stands for a value: the next use is that of `need`, and of a new
// row that describes it.  A bucket and its members are results of one number.
static bool is_next(const Uses *u, const UseText *need, const Value *v) {
  UseText next;
  Row r;
  Cursor at = u->at, rows = u->rows;
  return take_use(&at, &next) && next.op == need->op && next.number == need->number &&
         next.value == u->n &&
         (need->number > 0 || (take_row(&rows, &r) && describes(u->c, &r, v)));
}

// Takes the use of `v`, if it stands for a value and is in memory.
static bool want_listed(Uses *u, UseText need, const Value *v, bool late, bool *listed) {
  int64_t *row = &u->row[v->id];
  *listed = *row > 0;
  if (*row == 0 && v->offset >= 0)
    *listed = u->proved ? u->proved->of[v->id].number != NO_MODEL_VALUE : is_next(u, &need, v);
  if (!*listed) {
    *row = -1;
    return true;
  }
  need.value = *row > 0 ? *row - 1 : u->n;
  return want_use(u, &need, late) && (*row > 0 || want_row(u, v));
}

// The op of the call with this number; 2: a wait.
static const Op *op_of(const GraphText *g, int64_t number, int *which) {
  uintptr_t key = (uintptr_t)g->made_of[number];
  *which = (int)(key % 4);
  return (const Op *)(key - key % 4);
}

// Takes the uses of all calls, in the order of their numbers.
static bool want_uses(Uses *u) {
  Check *c = u->c;
  const GraphText *g = &c->p.graph[0];
  int which;
  // By op id: whether a later call waits for it, and 1 + the number of its own call.
  bool *waited = arena_array(c->arena, bool, c->graph[0]->n_ops);
  int64_t *first = arena_array(c->arena, int64_t, c->graph[0]->n_ops);
  for (int64_t i = 0; i < g->n_ops; i++) {
    const Op *op = op_of(g, i, &which);
    if (op && op->graph == c->graph[0] && which == 2) waited[op->id] = true;
  }
  for (int64_t i = 0; i < g->n_ops; i++) {
    const Op *op = op_of(g, i, &which);
    bool is_wait = which == 2, listed;
    // Ops of bodies of loops have no rows.
    if (!op || op->graph != c->graph[0]) continue;
    if (!is_wait) first[op->id] = i + 1;
    UseText use = {.op = i, .of = first[op->id] - 1};
    bool reads = !is_wait && op->kind != OP_swap_wait;
    for (int k = 0; reads && k < op->n_in; k++) {
      Value *v = op->in[k].value;
      use.number = k + 1;
      if (!want_listed(u, use, v, false, &listed)) return false;
      int64_t skip;
      const Op *by = view_root(v, &skip)->def;
      if (listed || !by || !first[by->id]) continue;
      // It stands for no value, and an earlier op computes it.
      if (u->absent) continue;
      use.value = -first[by->id];
      if (!want_use(u, &use, false)) return false;
    }
    bool starts = !is_wait && (waited[op->id] || op_starts_copy(op));
    bool late = (op_traits(op) & ACCUMULATES) || op_waits_for_sum(op);
    for (int k = 0; !starts && k < op->n_out; k++) {
      use.number = -k - 1;
      if (!want_listed(u, use, op->out[k], late, &listed)) return false;
      if (listed || !(op_info[op->kind].traits & COMM)) continue;
      // Members of a bucket, in the order of the graph.
      for (const Op *m = op->next; m; m = m->next)
        if (m->kind == OP_unpack && m->in[0].value == op->out[k] &&
            !want_listed(u, use, m->out[0], late, &listed))
          return false;
    }
  }
  return true;
}

// -- The tables --------------------------------------------------------------------------------

// Whether the text may list values: which, only a proof knows.
static bool may_list(const Check *c) {
  const ModelValues *values = c->m->model_values;
  if (!values) return !c->o;
  return values->n_values == c->graph[0]->n_values && module_first_entry(c->m) == c->graph[0];
}

// The program of model values that .proof names, too.
static bool check_fingerprint(Check *c, const Cursor *at, const CToken *print) {
  const CToken *proof = &c->p.proof.model;
  const ModelValues *proved = c->m->model_values;
  if (proved && !ctoken_is(print, str_format(c->arena, "0x%016" PRIx64, proved->fingerprint)))
    return mismatch(c, at, "the fingerprint is that of another program");
  // A module that was distributed before has the values of that one, and no proof.
  return ctoken_is(proof, NO_PROOF) ||
         (print->n == proof->n && !memcmp(print->at, proof->at, (size_t)print->n)) ||
         mismatch(c, at, "the fingerprint is not that of .proof");
}

// A text without the tables.
static bool check_absent(Check *c, Uses *u) {
  u->absent = true;
  if (u->proved) return want_uses(u);
  // With a proof, some operand or result stands for a value.
  const CToken *model = &c->p.proof.model;
  bool proved = !ctoken_is(model, NO_PROOF);
  return c->m->model_values || !proved || c->p.graph[0].n_ops == 0 ||
         mismatch(c, NULL, "nnrt_program has no tables of the model's program");
}

bool model_values_check(Check *c) {
  Uses u = {.c = c, .proved = may_list(c) ? c->m->model_values : NULL};
  u.row = arena_array(c->arena, int64_t, c->graph[0]->n_values);
  if (!c->p.model_program) return check_absent(c, &u);
  Unit *program = unit_find_typed(c, NULL, c->p.model_program, UNIT_table, "NnrtModelProgram");
  CToken print, values, uses;
  int64_t n_computed, n, n_uses = 0;
  if (!program) return false;
  c->function = program->name;
  if (!may_list(c)) return mismatch(c, &program->at, "the plan is not proved");
  Cursor at = program->at;
  if (!take(&at,
            "{.value = %w, .use = %w, .n_values = %i, .n_uses = %i, .n_numbers = %i, "
            ".n_computed = %i, .fingerprint = UINT64_C(",
            &values, &uses, &n, &n_uses, &u.n_numbers, &n_computed))
    return unexpected(c, &at, "the tables of the model's program");
  print = cursor_next(&at);
  if (!check_fingerprint(c, &program->at, &print) || !want(c, &at, "), }}")) return false;
  bool right = u.proved ? u.n_numbers == u.proved->n && n_computed == u.proved->n_computed
                        : n_computed >= 0 && n_computed <= u.n_numbers;
  if (!right) return mismatch(c, &program->at, "the model's program has another number of values");
  const Unit *table =
      unit_find_typed(c, &at, ctoken_text(&values, c->arena), UNIT_table, "NnrtModelValue");
  const Unit *list =
      unit_find_typed(c, &at, ctoken_text(&uses, c->arena), UNIT_table, "NnrtModelUse");
  if (!table || !list) return false;
  u.rows = table->at;
  u.at = list->at;
  c->function = list->name;
  if (!want_uses(&u) || !want(c, &u.at, "}")) return false;
  c->function = table->name;
  if (!want(c, &u.rows, "}")) return false;
  // The lengths are those of the tables.
  c->function = program->name;
  UseText use;
  int64_t length = 0;
  for (Cursor p = list->at; take_use(&p, &use);)
    length++;
  bool ok = want_equal(c, &program->at, n, u.n, "n_values") &&
            want_equal(c, &program->at, n_uses, length, "n_uses");
  c->function = NULL;
  return ok;
}
