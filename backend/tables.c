// The tables of a program: its tensors, ops and itself, as the runtime reads them (rt/nnrt.h).
//
//     static const NnrtTensor train_tensors[] = {
//         {"x", NNRT_input, NNRT_f32, 2, {32, 64}, {{0, -1}, {-1}}, .offset = 26752},
//         {"w", NNRT_weight, NNRT_f32, 2, {64, 48}, {{-1}, {-1}}, .offset = 0, .train = true, …},
//
// An output with several live slices is read after the last slice, so its offset is the one of that
// slice.
//
// Dimensions of tensors are global here: the local ones times the axes that shard them.

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/analysis/batch_dim.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "kernels.h"
#include "program.h"

static void add_shape(const Program *p, StrBuf *out, const Value *v) {
  const Mesh *mesh = v->layout ? v->layout->mesh : NULL;
  StrBuf split = {.arena = p->arena};
  strbuf_addf(out, "%d, {", v->type->rank);
  // Per dimension: the global length, and the mesh axes that shard it.
  for (int d = 0; d < v->type->rank; d++) {
    int64_t n = v->type->dim[d];
    strbuf_add(&split, d ? ", {" : "{");
    int n_axes = 0;
    for (int a = 0; v->layout && a < v->layout->n_axes; a++) {
      if (v->layout->axis[a].kind != SBP_S || v->layout->axis[a].dim != d) continue;
      n *= mesh->axis[a].size;
      strbuf_addf(&split, "%d, ", a);
      n_axes++;
    }
    strbuf_add(&split, n_axes == MAX_AXES ? "}" : "-1}");
    strbuf_addf(out, "%s%" PRId64, d ? ", " : "", n);
  }
  if (v->type->rank == 0) strbuf_add(out, "0");
  // An output has the slot of the last slice; a parameter has a slot for each slice.
  int64_t last = v->slots > 1 && v->def ? (module_slices(p->m) - 1) % v->slots : 0;
  strbuf_addf(out, "}, {%s}, .offset = %" PRId64, split.at ? split.at : "{-1}",
              v->offset + last * v->stride);
  if (v->slots > 1 && !v->def)
    strbuf_addf(out, ", .slots = %d, .stride = %" PRId64, v->slots, v->stride);
  if (v->host) strbuf_add(out, ", .host = true");
  if (mesh && mesh->id) strbuf_addf(out, ", .mesh = %d", mesh->id);
}

static void add_known(StrBuf *out, const Type *t) {
  strbuf_addf(out, ", .known_rank = %d, .known_dim = {", t->rank);
  for (int d = 0; d < t->rank; d++)
    strbuf_addf(out, "%s%" PRId64, d ? ", " : "", t->dim[d]);
  strbuf_add(out, "}");
}

static void add_payload(const Program *p, StrBuf *out, const Value *v) {
  strbuf_addf(out, ", .init = NNRT_from_payload, .payload = %" PRId64, payload_at(p, v));
  if (p->o->split_ranks) strbuf_add(out, ", .payload_part = true");
}

static void add_init(const Program *p, StrBuf *out, const Value *v) {
  const Init *init = v->init;
  if (v->train) strbuf_add(out, ", .train = true");
  if (v->as) add_known(out, v->as);
  switch (init->kind) {
  case INIT_file:
  case INIT_bytes: add_payload(p, out, v); return;
  case INIT_fill:
    strbuf_addf(out, ", .init = NNRT_from_fill, .a = %s", c_number(p->arena, DT_f64, init->fill));
    return;
  case INIT_normal:
  case INIT_uniform:
    strbuf_addf(out, ", .init = NNRT_from_%s, .a = %s, .b = %s, .init_seed = %" PRId64,
                init->kind == INIT_normal ? "normal" : "uniform",
                c_number(p->arena, DT_f64, init->fill), c_number(p->arena, DT_f64, init->to),
                init->seed);
    return;
  }
}

static void add_tensor(const Program *p, StrBuf *out, const Value *v, const char *name,
                       const char *role, bool param) {
  strbuf_addf(out, "    {%s, NNRT_%s, NNRT_%s, ", c_string(p->arena, name), role,
              dtype_name[v->type->dtype]);
  add_shape(p, out, v);
  if (v->init && param) add_init(p, out, v);
  if (param && v->role == ROLE_input && !value_used(v)) strbuf_add(out, ", .unread = true");
  if (param && v->whole) strbuf_add(out, ", .every_step = true");
  if (!param && v->def && v->def->owed) strbuf_add(out, ", .owed = true");
  strbuf_add(out, "},\n");
}

static void add_tensors(const Program *p, StrBuf *out, const GraphCode *code) {
  const Graph *g = code->g;
  strbuf_addf(out, "static const NnrtTensor %s_tensors[] = {\n", code->name);
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    add_tensor(p, out, v, v->label ? v->label : v->name ? v->name : "", role_name[v->role], true);
  }
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->label)
      add_tensor(p, out, g->results[i]->use.value, g->results[i]->label, "output", false);
  strbuf_add(out, "};\n\n");
  strbuf_addf(out, "static const char *const %s_ops[] = {\n", code->name);
  for (int i = 0; i < code->ops.n; i++)
    strbuf_addf(out, "    %s,\n", c_string(p->arena, code->ops.at[i]));
  if (code->ops.n == 0) strbuf_add(out, "    \"\",\n");
  strbuf_add(out, "};\n\n");
}

static bool has_place(const Value *v) {
  return dtype_class[v->type->dtype] == 'F' && !(v->def && v->def->kind == OP_constant);
}

static void add_value(StrBuf *out, int op, int number, const Value *v) {
  strbuf_addf(out, "    {%d, %d, NNRT_%s, %s, %" PRId64 ", %" PRId64, op, number,
              dtype_name[v->type->dtype], value_on_host(v) ? "true" : "false", type_count(v->type),
              v->offset);
  strbuf_addf(out, ", %d, %" PRId64 "},\n", v->slots > 1 ? v->slots : 0,
              v->slots > 1 ? v->stride : 0);
}

// Lists the operands and results of ops, except of collectives, which have results of other ranks,
// and of pack, which may leave gaps.
static void add_values(StrBuf *out, const GraphCode *code) {
  strbuf_addf(out, "static const NnrtValue %s_values[] = {\n", code->name);
  for (int i = 0; i < code->made_of.n; i++) {
    const Op *op = code->made_of.at[i];
    if (!op || (op_info[op->kind].traits & COMM) || op->kind == OP_pack) continue;
    for (int k = 0; k < op->n_in; k++)
      if (has_place(op->in[k].value)) add_value(out, i, k + 1, op->in[k].value);
    for (int k = 0; k < op->n_out; k++)
      if (has_place(op->out[k])) add_value(out, i, -k - 1, op->out[k]);
  }
  strbuf_addf(out, "    {%d, 0, NNRT_f32, false, 0, 0, 0, 0},\n};\n\n",
              code->made_of.n); // end mark: of no op
}

static int count_tensors(const Graph *g) {
  int n = g->n_params;
  for (int i = 0; i < g->n_results; i++)
    n += g->results[i]->label != NULL;
  return n;
}

static void add_graph(StrBuf *out, const GraphCode *code) {
  strbuf_addf(out,
              "    .%s = {.tensors = %s_tensors,\n"
              "        .n_tensors = %d,\n"
              "        .ops = %s_ops,\n"
              "        .n_ops = %d,\n"
              "        .values = %s_values,\n"
              "        .n_values = (int)(sizeof %s_values / sizeof *%s_values)},\n",
              code->name, code->name, count_tensors(code->g), code->name, code->ops.n, code->name,
              code->name, code->name);
}

static void add_holes(const Program *p, StrBuf *out) {
  if (!p->o->n_holes) return;
  strbuf_add(out, "static const NnrtHole holes[] = {\n");
  for (int i = 0; i < p->o->n_holes; i++) {
    const ExportHole *h = &p->o->holes[i];
    strbuf_addf(out, "    {%s, NNRT_%s, %" PRId64 ", %" PRId64 "},\n", c_string(p->arena, h->label),
                dtype_name[h->dtype], h->offset, h->length);
  }
  strbuf_add(out, "};\n\n");
}

// The number of rows of a step: of a whole input.
static int64_t whole_batch(const Program *p) {
  const Graph *g = p->train.g;
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (!value_has_rows(v)) continue;
    return v->type->dim[0] * (v->layout ? layout_parts(v->layout, 0) : 1);
  }
  return 1;
}

// "cuda:sm_80,sm_90": as --target takes it.
static const char *target_text(Arena *a, const TargetSpec *t) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, target_info[t->target].name);
  for (int i = 0; i < t->n_sm; i++)
    strbuf_addf(&b, "%ssm_%d", i ? "," : ":", t->sm[i]);
  return b.at;
}

void tables_emit(const Program *p, StrBuf *out) {
  const BackendOptions *o = p->o;
  Arena *a = p->arena;
  // Arrays first; the program refers to them.
  add_tensors(p, out, &p->train);
  add_values(out, &p->train);
  if (p->eval.g) add_tensors(p, out, &p->eval);
  if (p->eval.g) add_values(out, &p->eval);
  add_holes(p, out);
  ranks_emit(p, out);
  strbuf_add(out, "const NnrtProgram nnrt_program = {\n");
  strbuf_addf(out, "    .model = %s,\n", c_string(a, p->m->source ? p->m->source : ""));
  strbuf_addf(out, "    .plan = %s,\n", c_string(a, o->plan ? o->plan : "dp"));
  strbuf_addf(out, "    .target = %s,\n", c_string(a, target_text(a, &o->target)));
  strbuf_addf(out, "    .version = %s,\n", c_string(a, o->version ? o->version : ""));
  strbuf_addf(out, "    .describe = %s,\n", c_string(a, o->describe ? o->describe : "{}"));
  ranks_add(p, out);
  if (o->split_ranks) strbuf_addf(out, "    .split_rank = %d,\n", o->only_rank + 1);
  strbuf_addf(out, "    .batch = %" PRId64 ",\n", whole_batch(p));
  add_graph(out, &p->train);
  if (p->eval.g) add_graph(out, &p->eval);
  strbuf_addf(out, "    .payload_bytes = %" PRId64 ",\n", p->payload_bytes);
  strbuf_addf(out, "    .n_prep = %d,\n", p->prep.n);
  strbuf_addf(out, "    .lr = %s,\n", c_number(a, DT_f64, o->lr));
  strbuf_addf(out, "    .lr_schedule = %s,\n",
              c_string(a, o->lr_schedule ? o->lr_schedule : "constant"));
  strbuf_addf(out, "    .seed = %" PRId64 ",\n", o->seed);
  if (o->skeleton_bytes)
    strbuf_addf(out, "    .skeleton = %" PRId64 ",\n    .skeleton_bytes = %" PRId64 ",\n",
                p->skeleton_at, o->skeleton_bytes);
  if (p->constant.n)
    strbuf_addf(out, "    .constants = constants,\n    .n_constants = %d,\n", p->constant.n);
  if (o->n_holes) strbuf_addf(out, "    .holes = holes,\n    .n_holes = %d,\n", o->n_holes);
  strbuf_add(out, "};\n");
}
