// The tables of ranks, their tasks, groups and messages, as the runtime reads them (rt/nnrt.h):
//
//     static const NnrtMesh meshes[] = {
//         {"s0", 1, {{"dp", 2, false}}, 2, (const int[]){0, 1}},          ranks of an axis of two
//     static const NnrtGroup groups[] = {
//         {0, {0, -1}},                                                   the ranks along it
//     static const NnrtMessage messages_0[] = {
//         {0, 2, 0, {4, 6}, {0, 0}, {0, 0}},                              a box from rank 0 to rank 2
//     static const NnrtMove moves[] = {
//         {0, 1, 2, {4, 6}, {8, 6}, false, true, 2, messages_0},          from mesh 0 to mesh 1
//     static const NnrtTask train_s0_parts[] = {
//         {"F0", NULL, train_s0_F0, train_s0_F0_start},                   a segment, then its moves
//     static const int train_s0_order[] = {0, 0, 1, 2, 0, 1, 2, …};       of parts
//     static void (*const train_deferred[])(NnrtRank *r) = {…};           deferred to the next step
//     static const NnrtRankProgram codes[] = {
//         {prepare_s0, {NULL, 3, train_s0_parts, train_s0_order, train_s0_update}, {0}, 832, 0},
//                                                         bytes of the slab, and in host memory

#include <inttypes.h>

#include "ir/kernel.h"
#include "ir/schedule.h"
#include "ir/split.h"
#include "program.h"

static void add_ints(StrBuf *out, const int *at, int n) {
  for (int i = 0; i < n; i++)
    strbuf_addf(out, "%s%d", i ? ", " : "", at[i]);
}

static void add_numbers(StrBuf *out, const int64_t *at, int n) {
  strbuf_add(out, ", {");
  for (int i = 0; i < n; i++)
    strbuf_addf(out, "%s%" PRId64, i ? ", " : "", at[i]);
  strbuf_add(out, n ? "}" : "0}");
}

static int add_messages(const Program *p, StrBuf *out, int move) {
  const Value *x = p->move.at[move]->in[0].value, *y = p->move.at[move]->out[0];
  const Type *whole = value_whole(x);
  Messages messages;
  move_messages(whole, x->layout, y->layout, NULL, p->arena, &messages);
  if (!messages.n) return 0;
  strbuf_addf(out, "static const NnrtMessage messages_%d[] = {\n", move);
  for (int i = 0; i < messages.n; i++) {
    const Message *m = &messages.at[i];
    // A message: sender, receiver, and the box in both shards.
    strbuf_addf(out, "    {%d, %d, %d", m->from, m->to, m->share);
    add_numbers(out, m->size, whole->ndim);
    add_numbers(out, m->at_from, whole->ndim);
    add_numbers(out, m->at_to, whole->ndim);
    strbuf_add(out, "},\n");
  }
  strbuf_add(out, "};\n");
  return messages.n;
}

static void add_moves(const Program *p, StrBuf *out) {
  if (!p->move.n) return;
  int *n = arena_array(p->arena, int, p->move.n);
  // Moves point to their messages.
  for (int i = 0; i < p->move.n; i++)
    n[i] = add_messages(p, out, i);
  strbuf_add(out, "static const NnrtMove moves[] = {\n");
  for (int i = 0; i < p->move.n; i++) {
    const Value *x = p->move.at[i]->in[0].value, *y = p->move.at[i]->out[0];
    strbuf_addf(out, "    {%d, %d, %d", x->layout->mesh->id, y->layout->mesh->id, x->type->ndim);
    add_numbers(out, x->type->dim, x->type->ndim);
    add_numbers(out, y->type->dim, y->type->ndim);
    const Op *op = p->move.at[i];
    bool ahead = op->segment && move_is_ahead(op);
    strbuf_addf(out, ", %s, %s, %d, %s},\n", move_sums(op) ? "true" : "false",
                ahead ? "true" : "false", n[i],
                n[i] ? str_format(p->arena, "messages_%d", i) : "NULL");
  }
  strbuf_add(out, "};\n\n");
}

static const char *or_null(const Program *p, const CallList *list, const char *function,
                           const char *suffix) {
  return list->n ? str_format(p->arena, "%s%s", function, suffix) : "NULL";
}

static void add_loops(const Program *p, StrBuf *out, const GraphCode *g) {
  for (int c = 0; g->g && c < p->code.n; c++) {
    const Calls *calls = &g->calls[c];
    const Code *code = &p->code.at[c];
    if (!calls->part.n) continue;
    strbuf_addf(out, "static const NnrtTask %s[] = {\n",
                function_name(p->arena, g->name, code, "parts"));
    for (int i = 0; i < calls->part.n; i++) {
      // A task: its wait, its segment, and the moves that it starts.
      const LoopPart *part = &calls->part.at[i];
      strbuf_addf(out, "    {%s, %s", c_string(p->arena, part->name),
                  or_null(p, &part->wait, part->function, "_wait"));
      strbuf_addf(out, ", %s, %s},\n", part->action.get ? "NULL" : part->function,
                  or_null(p, &part->start, part->function, "_start"));
    }
    strbuf_add(out, "};\n");
    if (calls->order.n) {
      // The order of tasks over all slices.
      const char *name = function_name(p->arena, g->name, code, "order");
      enum { PER_LINE = 32 };
      (void)p;
      strbuf_addf(out, "static const int %s[] = {", name);
      for (int i = 0; i < calls->order.n; i++)
        strbuf_addf(out, "%s%d", i % PER_LINE ? ", " : i ? ",\n    " : "", calls->order.at[i]);
      strbuf_add(out, "};\n");
    }
    strbuf_add(out, "\n");
  }
}

static void add_steps(const Program *p, StrBuf *out, const GraphCode *g, int c) {
  // A program without @eval has an empty step for it.
  if (!g->g) {
    strbuf_add(out, ", {0}");
    return;
  }
  Arena *a = p->arena;
  const Calls *calls = &g->calls[c];
  const Code *code = &p->code.at[c];
  strbuf_addf(out, ", {%s, %d", calls->begin.n ? function_name(a, g->name, code, "begin") : "NULL",
              calls->part.n);
  strbuf_addf(out, ", %s", calls->part.n ? function_name(a, g->name, code, "parts") : "NULL");
  strbuf_addf(out, ", %s", calls->order.n ? function_name(a, g->name, code, "order") : "NULL");
  strbuf_addf(out, ", %s}", function_name(a, g->name, code, "update"));
}

static void add_codes(const Program *p, StrBuf *out) {
  add_loops(p, out, &p->train);
  add_loops(p, out, &p->eval);
  // Deferred updates; a program that has any has one rank program.
  int n = p->train.calls[0].deferred.n;
  if (n) strbuf_add(out, "static void (*const train_deferred[])(NnrtRank *r) = {");
  for (int i = 0; i < n; i++)
    strbuf_addf(out, "%strain_deferred_%d", i ? ", " : "", i);
  if (n) strbuf_add(out, "};\n\n");
  // Rank programs, each with its steps and its memory.
  strbuf_add(out, "static const NnrtRankProgram codes[] = {\n");
  for (int c = 0; c < p->code.n; c++) {
    const Code *code = &p->code.at[c];
    strbuf_addf(out, "    {%s", function_name(p->arena, "prepare", code, ""));
    add_steps(p, out, &p->train, c);
    add_steps(p, out, &p->eval, c);
    strbuf_addf(out, ", %" PRId64 ", %" PRId64 "},\n", code->slab_bytes, code->host_bytes);
  }
  strbuf_add(out, "};\n\n");
  if (p->code.n == 1) return;
  // The rank program of each rank.
  strbuf_add(out, "static const int code_of[] = {");
  add_ints(out, p->code_of, p->n_ranks);
  strbuf_add(out, "};\n\n");
}

void ranks_emit(const Program *p, StrBuf *out) {
  strbuf_add(out, "static const NnrtMesh meshes[] = {\n");
  for_each_mesh(mesh, p->m) {
    strbuf_addf(out, "    {%s, %d, {", c_string(p->arena, mesh->name), mesh->n_axes);
    for (int a = 0; a < mesh->n_axes; a++)
      strbuf_addf(out, "%s{%s, %d, %s}", a ? ", " : "", c_string(p->arena, mesh->axis[a].name),
                  mesh->axis[a].size, mesh->axis[a].time ? "true" : "false");
    strbuf_addf(out, "%s}, %d, (const int[]){", mesh->n_axes ? "" : "{0}", mesh->n_devices);
    add_ints(out, mesh->device, mesh->n_devices);
    strbuf_add(out, "}},\n");
  }
  // A program of one rank has a mesh of it.
  if (!p->m->meshes) strbuf_add(out, "    {\"\", 0, {{0}}, 1, (const int[]){0}},\n");
  strbuf_add(out, "};\n\n");
  if (p->group.n) {
    strbuf_add(out, "static const NnrtGroup groups[] = {\n");
    for (int i = 0; i < p->group.n; i++) {
      const Group *group = &p->group.at[i];
      strbuf_addf(out, "    {%d, {", group->mesh->id);
      add_ints(out, group->axes.at, group->axes.n);
      strbuf_add(out, group->axes.n == MAX_AXES ? "}},\n" : ", -1}},\n");
    }
    strbuf_add(out, "};\n\n");
  }
  add_moves(p, out);
  add_codes(p, out);
}

void ranks_add(const Program *p, StrBuf *out) {
  int n_meshes = p->m->meshes ? module_n_meshes(p->m) : 1;
  strbuf_addf(out, "    .mesh = meshes,\n    .n_mesh = %d,\n", n_meshes);
  if (p->group.n) strbuf_addf(out, "    .group = groups,\n    .n_groups = %d,\n", p->group.n);
  if (p->move.n) strbuf_addf(out, "    .move = moves,\n    .n_moves = %d,\n", p->move.n);
  strbuf_addf(out, "    .code = codes,\n    .n_codes = %d,\n", p->code.n);
  if (p->code.n > 1) strbuf_add(out, "    .code_of = code_of,\n");
  int n_deferred = p->train.calls[0].deferred.n;
  if (n_deferred)
    strbuf_addf(out, "    .deferred = train_deferred,\n    .n_deferred = %d,\n", n_deferred);
  // The schedule of all ranks, so that the programs of --split-ranks can be compared.
  StrBuf text = {.arena = p->arena};
  schedule_print(&text, p->train.g);
  if (p->eval.g) schedule_print(&text, p->eval.g);
  if (text.n) strbuf_addf(out, "    .schedule = %s,\n", c_string(p->arena, text.at));
  strbuf_addf(out, "    .ranks = %d,\n    .micro_batches = %d,\n", p->n_ranks, module_slices(p->m));
}
