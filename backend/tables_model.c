// The tables of the values of the model's program, for --check-against (rt/check_against.c).
//
//     static const NnrtModelValue model_values[] = {
//         {2, 4, NNRT_f32, -1, 0, 2, {8, 6}, {0, -1}, .offset = 512},   value 2 of the model's program:
//                                                                     f32[8,6], its rows split along
//                                                                     axis 0; sums of 4 terms
//     static const NnrtModelUse model_uses[] = {
//         {0, 0, 1, 7, false},                                        operand 1 of op 0
//         {0, 0, -1, 8, false},                                       result 1 of op 0
//         {5, 3, -1, 9, false},                                       of op 3, which op 5 waits for
//         {6, 6, 1, -5, false},                                       operand 1 of op 6 stands for no
//                                                                     value; op 4 computes it
//
// The proof of the plan found which values stand for one of the model's program
// (ir/model_values.h).  Others are not in the table of values: buckets, pieces, casts that only the
// target needs.
//
// A result is complete after the call of its op, but for
//
//     all_reduce, moves ahead, copies to host memory    after the wait
//     sums over time                                    after the last slice
//     buckets                                           their members are results, once they are reduced

#include <inttypes.h>

#include "ir/analysis/place.h"
#include "ir/model_values.h"
#include "ir/op.h"
#include "ir/split.h"
#include "program.h"

typedef struct Tables {
  const Program *p;
  const ModelValues *values;
  int *row, n; // by value id: 1 + its row in the table of values; 0: none so far
  TableRows table, uses;
} Tables;

static void add_value(Tables *t, const Value *v, const ModelValue *of) {
  const Type *whole = value_whole(v);
  const Layout *l = v->layout;
  StrBuf row = {.arena = t->p->arena}, *b = &row;
  bool partial = false;
  for (int a = 0; l && a < l->n_axes; a++)
    partial |= l->axis[a].kind == SBP_P;
  strbuf_addf(b, "{" MARK_NUMBER "%d, %" PRId64 ", NNRT_%s, " MARK_NUMBER "%d, %d, %d, {",
              of->number, of->terms, dtype_name[v->type->dtype], v->def ? -1 : v->index, partial,
              whole->ndim);
  for (int d = 0; d < whole->ndim; d++)
    strbuf_addf(b, "%s%" PRId64, d ? ", " : "", whole->dim[d]);
  strbuf_add(b, whole->ndim ? "}, {" : "0}, {");
  for (int a = 0; a < MAX_AXES; a++)
    strbuf_addf(b, "%s%d", a ? ", " : "",
                l && a < l->n_axes && l->axis[a].kind == SBP_S ? l->axis[a].dim : -1);
  strbuf_addf(b, "}, .offset = " MARK_NUMBER "%" PRId64, v->offset);
  if (v->slots > 1) strbuf_addf(b, ", .slots = %d, .stride = %" PRId64, v->slots, v->stride);
  if (value_on_host(v)) strbuf_add(b, ", .host = true");
  if (l && l->mesh && l->mesh->id) strbuf_addf(b, ", .mesh = %d", l->mesh->id);
  strbuf_add(b, "}");
  vec_push(t->p->arena, &t->table, row.at);
}

// Whether `v` stands for a value of the model's program, and is in memory.
static bool is_listed(const Tables *t, const Value *v) {
  return t->values->of[v->id].number != NO_MODEL_VALUE && v->offset >= 0;
}

static void add_row(Tables *t, int op, int of, const char *number, int value, bool late) {
  vec_push(t->p->arena, &t->uses,
           str_format(t->p->arena,
                      "{" MARK_NUMBER "%d, " MARK_NUMBER "%d, %s, " MARK_NUMBER "%d, %s}", op, of,
                      number, value, late ? "true" : "false"));
}

static void add_use(Tables *t, int op, int of, const char *number, const Value *v, bool late) {
  if (!is_listed(t, v)) return;
  if (!t->row[v->id]) {
    add_value(t, v, &t->values->of[v->id]);
    t->row[v->id] = ++t->n;
  }
  add_row(t, op, of, number, t->row[v->id] - 1, late);
}

static void add_uses(Tables *t, const GraphCode *code) {
  // By op id: the number of its calls, the first, and the number seen so far.  The second waits.
  int *calls = arena_array(t->p->arena, int, code->g->n_ops);
  int *first = arena_array(t->p->arena, int, code->g->n_ops);
  int *seen = arena_array(t->p->arena, int, code->g->n_ops);
  for (int i = 0; i < code->made_of.n; i++)
    if (code->made_of.at[i] && code->made_of.at[i]->graph == code->g)
      calls[code->made_of.at[i]->id]++;
  for (int i = 0; i < code->made_of.n; i++) {
    const Op *op = code->made_of.at[i];
    // Values of the body of a loop have no iteration here.
    if (!op || op->graph != code->g) continue;
    bool is_wait = seen[op->id]++ > 0;
    if (!is_wait) first[op->id] = i;
    int of = first[op->id];
    bool starts = !is_wait && (calls[op->id] > 1 || op_starts_copy(op));
    // The operands of a wait for a copy are the copy and its source.
    for (int k = 0; !is_wait && op->kind != OP_swap_wait && k < op->n_in; k++) {
      Value *v = op->in[k].value;
      int64_t skip;
      const Op *by = view_root(v, &skip)->def;
      const char *number = repeats_operand(t->p->arena, op, k + 1);
      add_use(t, i, of, number, v, false);
      if (is_listed(t, v) || !by || !seen[by->id]) continue;
      add_row(t, i, of, number, -1 - first[by->id], false);
    }
    bool late = (op_traits(op) & ACCUMULATES) || op_waits_for_sum(op);
    for (int k = 0; !starts && k < op->n_out; k++) {
      const char *number = repeats_operand(t->p->arena, op, -k - 1);
      add_use(t, i, of, number, op->out[k], late);
      if (!(op_info[op->kind].traits & COMM) || is_listed(t, op->out[k])) continue;
      // In the order of the graph: that of uses is another once a pass has moved ops.
      for (const Op *u = op->next; u; u = u->next)
        if (u->kind == OP_unpack && u->in[0].value == op->out[k])
          add_use(t, i, of, number, u->out[0], late);
    }
  }
}

bool model_values_emit(Program *p, StrBuf *out) {
  const Graph *g = p->train.g;
  const ModelValues *values = p->m->model_values;
  Tables t = {.p = p, .values = values};
  if (!values || values->n_values != g->n_values || module_first_entry(p->m) != g) return false;
  t.row = arena_array(p->arena, int, g->n_values);
  add_uses(&t, &p->train);
  if (!t.n) return false;
  repeats_table(p, out, "NnrtModelValue", "model_values", &t.table, FILL_checks);
  repeats_table(p, out, "NnrtModelUse", "model_uses", &t.uses, FILL_checks);
  strbuf_add(out, "static const NnrtModelProgram model_program[] = {{\n");
  strbuf_add(out, "    .value = model_values,\n    .use = model_uses,\n");
  strbuf_addf(out, "    .n_values = %d,\n    .n_uses = %d,\n", t.n, t.uses.n);
  strbuf_addf(out, "    .n_numbers = %d,\n    .n_computed = %d,\n", values->n, values->n_computed);
  strbuf_addf(out, "    .fingerprint = UINT64_C(0x%016" PRIx64 "),\n}};\n\n", values->fingerprint);
  return true;
}
