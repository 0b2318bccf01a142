// The tables for --check-against: the values of the model's program that operands and results stand
// for.
//
//     {2, 4, NNRT_f32, -1, 0, 2, {8, 6}, {0, -1, …}, .offset = 512},      a row of model_values
//     {0, 0, 1, 7, false},                                            operand 1 of op 0 is row 7
//
// Each row describes the value of the module that its uses name.  A module that was read from text
// has no proof, so the numbers of the model's values are compared only where nnaot made it.

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "ir/analysis/place.h"
#include "ir/model_values.h"
#include "ir/split.h"

typedef struct Row {
  Cursor at;
  int64_t number, terms, param, partial, ndim, dim[MAX_NDIM], split[MAX_AXES];
  int64_t offset, slots, stride, mesh;
  bool host;
  CToken type;
} Row;

// "{8, 6}, " or "{0}, " without dimensions.
static bool read_list(Cursor *at, int64_t *out, int64_t n, int64_t most) {
  int64_t none;
  if (!take(at, "{") || n < 0 || n > most) return false;
  for (int i = 0; i < n; i++)
    if (!take(at, "%i", &out[i]) || (i + 1 < n && !take(at, ","))) return false;
  return (n > 0 || take(at, "%i", &none)) && take(at, "},");
}

static bool read_row(Check *c, Cursor *at, Row *r) {
  *r = (Row){.at = *at};
  bool read = take(at, "{%i, %i, %w, %i, %i, %i,", &r->number, &r->terms, &r->type, &r->param,
                   &r->partial, &r->ndim) &&
              read_list(at, r->dim, r->ndim, MAX_NDIM) &&
              read_list(at, r->split, MAX_AXES, MAX_AXES) && take(at, ".offset = %i", &r->offset);
  if (read && take(at, ", .slots = %i", &r->slots)) read = take(at, ", .stride = %i", &r->stride);
  if (read) r->host = take(at, ", .host = true");
  if (read) take(at, ", .mesh = %i", &r->mesh);
  return (read && take(at, "},")) || unexpected(c, at, "a value of the model's program");
}

// Whether the row describes `v`.
static bool describes(const Check *c, const Row *r, const Value *v) {
  const Type *whole = value_whole(v);
  const Layout *l = v->layout;
  const ModelValues *proved = c->m->model_values;
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
  if (!proved || proved->n_values != c->graph[0]->n_values) return same;
  return same && r->number == proved->of[v->id].number && r->terms == proved->of[v->id].terms;
}

// The op of the call with this number: its own call, or a move or wait of it.
static const Op *op_of(const Check *c, int64_t number) {
  const GraphText *g = &c->p.graph[0];
  uintptr_t key = number >= 0 && number < g->n_ops ? (uintptr_t)g->made_of[number] : 0;
  return (const Op *)(key - key % 4);
}

// Whether the row describes result `k` of `op`, or a member of the bucket that this is.
static bool describes_result(const Check *c, const Row *r, const Op *op, int k) {
  bool found = describes(c, r, op->out[k]);
  for_each_use(u, op->out[k])
    if (u->user && u->user->kind == OP_unpack) found |= describes(c, r, u->user->out[0]);
  return found;
}

static bool read_use(Check *c, Cursor *at, const Row *rows, int64_t n) {
  const Cursor begin = *at;
  int64_t number, of, which, value;
  CToken late;
  if (!take(at, "{%i, %i, %i, %i, %w},", &number, &of, &which, &value, &late))
    return unexpected(c, at, "a use of a value");
  const Op *op = op_of(c, of);
  bool sums = op && which < 0 && (op_traits(op) & ACCUMULATES);
  bool right = op && op_of(c, number) == op && ctoken_is(&late, sums ? "true" : "false");
  if (right && which > 0) {
    right = which <= op->n_in && value < n;
    if (right && value >= 0) right = describes(c, &rows[value], op->in[which - 1].value);
    if (right && value < 0) right = op_of(c, -1 - value) != NULL;
  } else if (right) {
    right = which < 0 && -which <= op->n_out && value >= 0 && value < n &&
            describes_result(c, &rows[value], op, (int)(-which - 1));
  }
  return right || mismatch(c, &begin,
                           "operand or result %" PRId64 " of op %" PRId64
                           " is another value of the model's program",
                           which, of);
}

bool model_values_check(Check *c) {
  if (!c->p.model_program) return true;
  Unit *u = unit_find(c, NULL, c->p.model_program, UNIT_table);
  CToken print, values, uses;
  int64_t n_numbers, n_computed, n, n_uses;
  if (!u) return false;
  c->function = u->name;
  Cursor at = u->at;
  const ModelValues *proved = c->m->model_values;
  if (!take(&at,
            "{.value = %w, .use = %w, .n_values = %i, .n_uses = %i, .n_numbers = %i, "
            ".n_computed = %i, .fingerprint = UINT64_C(",
            &values, &uses, &n, &n_uses, &n_numbers, &n_computed))
    return unexpected(c, &at, "the tables of the model's program");
  print = cursor_next(&at);
  if (proved && !ctoken_is(&print, str_format(c->arena, "0x%016" PRIx64, proved->fingerprint)))
    return mismatch(c, &u->at, "the fingerprint is that of another program");
  if (!want(c, &at, "), }}")) return false;
  if (proved && (n_numbers != proved->n || n_computed != proved->n_computed))
    return mismatch(c, &u->at, "the model's program has another number of values");
  Unit *table = unit_find(c, &at, ctoken_text(&values, c->arena), UNIT_table);
  Unit *list = table ? unit_find(c, &at, ctoken_text(&uses, c->arena), UNIT_table) : NULL;
  if (!list) return false;
  if (n < 0 || n > c->program.end - table->at.at)
    return mismatch(c, &u->at, "n_values is not the length of '%s'", table->name);
  Row *rows = arena_array(c->arena, Row, n + 1);
  at = table->at;
  for (int64_t i = 0; i < n; i++)
    if (!read_row(c, &at, &rows[i])) return false;
  if (!want(c, &at, "}")) return false;
  at = list->at;
  for (int64_t i = 0; i < n_uses; i++)
    if (!read_use(c, &at, rows, n)) return false;
  bool ok = want(c, &at, "}");
  c->function = NULL;
  return ok;
}
