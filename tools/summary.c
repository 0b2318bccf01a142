// See summary.h.  Only what is known is said: times are null until something predicts them, and so
// is the quality of a plan that nobody searched for.
//
// Bytes of a collective are those of one rank's larger buffer: what is reduced, what is gathered in
// the end, what is exchanged; of a move, those of all its messages.  comm_bytes is their sum over
// all ranks and all micro-batches of a step.  An executable counts the same with --traffic
// (rt/traffic.h).

#include "summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ir/boxes.h"
#include "ir/op.h"
#include "ir/place.h"
#include "ir/split.h"
#include "output.h"
#include "part.h"
#include "pass.h"
#include "repeats.h"

void summary_before(Summary *s, const Module *m) {
  Module *model = module_clone(m);
  Diag *d = diag_new(stderr);
  PipelineOptions quietly = {.bisect_limit = -1};
  diag_quiet(d, true);
  // What cannot be simplified is counted as it is, and is reported when it is compiled.
  if (m->phase == PHASE_typed) pipeline_run(model, "simplify,raise,simplify", &quietly, d);
  diag_free(d);
  for_each_graph(g, model) {
    if (!g->entry) continue;
    const Repeats *r = repeats_find(g, LEAST_BLOCK, NULL, s->arena);
    for_each_op(op, g)
      s->n_ops++;
    s->n_folded += r->n_after;
    s->n_blocks += r->n_blocks;
  }
  module_free(model);
}

void summary_timed(void *summary, const char *pass, double seconds) {
  Summary *s = summary;
  for (int i = 0; i < s->seconds.n; i++)
    if (str_equal(s->seconds.at[i].pass, pass)) {
      s->seconds.at[i].seconds += seconds;
      return;
    }
  vec_push(s->arena, &s->seconds, (PassSeconds){pass, seconds});
}

// -- Collectives -------------------------------------------------------------------------------

typedef struct Collective {
  const Op *op;
  const char *phase;    // "begin", "micro" or "update"
  int64_t bytes, count; // of one, in a step
  int64_t all_bytes;    // of one, over all ranks
} Collective;

typedef Vec(Collective) Collectives;

// What moves data between ranks, and what NCCL's tuner calls it; it has no word for sends and
// receives.
static const struct {
  OpKind op;
  const char *nccl;
} kinds[] = {{OP_all_reduce, "allreduce"},
             {OP_all_gather, "allgather"},
             {OP_reduce_scatter, "reducescatter"},
             {OP_all_to_all, NULL},
             {OP_move, NULL}};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int kind_of(const Op *op) {
  int k = 0;
  while (k < N_KINDS && kinds[k].op != op->kind)
    k++;
  return k;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static Messages messages_of(Arena *a, const Op *move) {
  const Value *in = move->in[0].value, *out = move->out[0];
  Messages messages;
  move_messages(type_whole(out->graph->module, in->type, in->layout), in->layout, out->layout, NULL,
                a, &messages);
  return messages;
}

static int64_t moved_bytes(Arena *a, const Op *move) {
  Messages messages = messages_of(a, move);
  int64_t bytes = 0;
  for (int i = 0; i < messages.n; i++)
    if (messages.at[i].from != messages.at[i].to)
      bytes += message_bytes(&messages.at[i], move->out[0]->type);
  return bytes;
}

static MeshAxes axes_of(const Op *op) {
  MeshAxes axes;
  if (!op_axes(op, &axes, NULL)) BUG("an axis that is not there, in a module that verifies");
  return axes;
}

static int size_of_group(const Op *op) {
  MeshAxes axes = axes_of(op);
  return axes_size(op_mesh(op), &axes);
}

static void find_collectives(Arena *a, const Module *m, Collectives *out) {
  const Graph *g = m->graphs;
  if (!g || m->phase < PHASE_local) return;
  const bool *begin = graph_begin_ops(g, a), *update = graph_update_ops(g, a);
  for_each_op(op, g) {
    if (kind_of(op) == N_KINDS) continue;
    bool once = begin[op->id] || update[op->id];
    Collective c = {op,
                    begin[op->id] ? "begin"
                    : once        ? "update"
                                  : "micro",
                    0, once ? 1 : module_slices(m), 0};
    if (op->kind == OP_move) {
      c.bytes = c.all_bytes = moved_bytes(a, op);
      if (c.bytes == 0) continue; // every part is where it must be
    } else {
      // Along an axis of one nothing is sent.
      if (size_of_group(op) == 1) continue;
      c.bytes = larger(type_bytes(op->in[0].value->type), type_bytes(op->out[0]->type));
      c.all_bytes = c.bytes * op_mesh(op)->n_devices;
    }
    vec_push(a, out, c);
  }
}

// Whether the device is the first of its group along these axes.
static bool is_first(const MeshAxes *axes, const Place *at) {
  for (int i = 0; i < axes->n; i++)
    if (at->coord[axes->at[i]] != 0) return false;
  return true;
}

// Whether both differ along these axes only.
static bool same_group(const Mesh *mesh, const MeshAxes *axes, const Place *x, const Place *y) {
  for (int i = 0; i < mesh->n_axes; i++)
    if (!axes_have(axes, i) && x->coord[i] != y->coord[i]) return false;
  return true;
}

// The groups of devices that differ along the axes of `op` only: [[0,1],[2,3]].
static const char *groups_text(Arena *a, const Op *op) {
  const Mesh *mesh = op_mesh(op);
  MeshAxes axes = axes_of(op);
  StrBuf b = {.arena = a};
  strbuf_add(&b, "[");
  for (int i = 0; i < mesh->n_devices; i++) {
    Place first = mesh_place(mesh, i, 0);
    if (!is_first(&axes, &first)) continue;
    strbuf_add(&b, b.n > 1 ? ", [" : "[");
    for (int k = i, n = 0; k < mesh->n_devices; k++) {
      Place p = mesh_place(mesh, k, 0);
      if (same_group(mesh, &axes, &first, &p))
        strbuf_addf(&b, "%s%d", n++ ? ", " : "", mesh->device[k]);
    }
    strbuf_add(&b, "]");
  }
  strbuf_add(&b, "]");
  return b.at;
}

// Who sends to whom: [[0,2],[1,2]].
static const char *pairs_text(Arena *a, const Op *move) {
  Messages messages = messages_of(a, move);
  StrBuf b = {.arena = a};
  strbuf_add(&b, "[");
  for (int i = 0; i < messages.n; i++)
    if (messages.at[i].from != messages.at[i].to)
      strbuf_addf(&b, "%s[%d, %d]", b.n > 1 ? ", " : "", messages.at[i].from, messages.at[i].to);
  strbuf_add(&b, "]");
  return b.at;
}

static const char *groups_of(Arena *a, const Op *op) {
  return op->kind == OP_move ? pairs_text(a, op) : groups_text(a, op);
}

const char *manifest_text(Arena *a, const Module *m, bool csv) {
  Collectives list = {0};
  StrBuf b = {.arena = a};
  find_collectives(a, m, &list);
  strbuf_add(&b, csv ? "" : "[");
  for (int i = 0; i < list.n; i++) {
    const Collective *c = &list.at[i];
    const char *kind = op_info[c->op->kind].name, *nccl = kinds[kind_of(c->op)].nccl;
    if (csv && !nccl) continue;
    if (csv)
      // type, least and most bytes, algorithm, protocol, channels, nodes, ranks, pipelined ops,
      // registered buffers; -1: any
      strbuf_addf(&b, "%s,%" PRId64 ",%" PRId64 ",ring,simple,-1,-1,%d,-1,-1\n", nccl, c->bytes,
                  c->bytes, size_of_group(c->op));
    else
      strbuf_addf(&b,
                  "%s\n  {\"kind\": \"%s\", \"groups\": %s, \"bytes\": %" PRId64
                  ", \"count\": %" PRId64 ", \"phase\": \"%s\", \"op\": %s}",
                  i ? "," : "", kind, groups_of(a, c->op), c->bytes, c->count, c->phase,
                  json_string(a, op_text(c->op, a)));
  }
  if (!csv) strbuf_add(&b, list.n ? "\n]\n" : "]\n");
  return b.at;
}

// -- The summary -------------------------------------------------------------------------------

// The decisions, without where ops come from: equal for equal plans of equal models.
static uint64_t plan_hash(Arena *a, const Module *m) {
  uint64_t hash = 14695981039346656037u; // FNV-1a
  for_each_graph(g, m)
    for_each_op(op, g) {
      for (const char *p = op_text(op, a); *p; p++)
        hash = (hash ^ (uint8_t)*p) * 1099511628211u;
    }
  return hash;
}

// `list` is NULL while no collectives are chosen.
static void add_comm_bytes(StrBuf *b, const Collectives *list) {
  for (int k = 0; k < N_KINDS; k++) {
    if (!list) {
      strbuf_addf(b, "%s\"%s\": null", k ? ", " : "", op_info[kinds[k].op].name);
      continue;
    }
    int64_t bytes = 0;
    for (int i = 0; i < list->n; i++)
      if (list->at[i].op->kind == kinds[k].op) bytes += list->at[i].all_bytes * list->at[i].count;
    strbuf_addf(b, "%s\"%s\": %" PRId64, k ? ", " : "", op_info[kinds[k].op].name, bytes);
  }
}

// What the model itself computes; collectives and buckets came with the plan.
static bool is_of_model(const Op *op) {
  bool is_moved = (op_info[op->kind].traits & COMM) || op->kind == OP_pack || op->kind == OP_unpack;
  return op_part(op) == PART_forward && !is_moved;
}

// The ops of the model on one mesh, if it runs any: that makes it a stage.  A module without meshes
// runs on `ranks` devices, and is one stage.
static void add_stage(StrBuf *b, const Module *m, const Mesh *mesh, int ranks, int *n_stages) {
  Arena *a = b->arena;
  const Op *first = NULL, *last = NULL;
  for (const Op *op = m->graphs ? m->graphs->first : NULL; op; op = op->next) {
    if (!is_of_model(op) || (mesh && op_mesh(op) != mesh)) continue;
    if (!first) first = op;
    last = op;
  }
  if (mesh && !first) return;
  strbuf_add(b, (*n_stages)++ ? ", {\"devices\": [" : "{\"devices\": [");
  for (int i = 0; i < (mesh ? mesh->n_devices : ranks); i++)
    strbuf_addf(b, "%s%d", i ? ", " : "", mesh ? mesh->device[i] : i);
  strbuf_add(b, "], \"mesh\": {");
  for (int i = 0; mesh && i < mesh->n_axes; i++)
    strbuf_addf(b, "%s%s: %d", i ? ", " : "", json_string(a, mesh->axis[i].name),
                mesh->axis[i].size);
  strbuf_addf(b, "}, \"first_op\": %s, \"last_op\": %s}",
              first ? json_string(a, op_text(first, a)) : "null",
              last ? json_string(a, op_text(last, a)) : "null");
}

static void add_stages(StrBuf *b, const Module *m, int ranks) {
  int n_stages = 0;
  if (!m->meshes) add_stage(b, m, NULL, ranks, &n_stages);
  for_each_mesh(mesh, m)
    add_stage(b, m, mesh, ranks, &n_stages);
}

const char *summary_dtype(const Module *m) {
  for_each_graph(g, m)
    for_each_op(op, g)
      for (int i = 0; i < op->n_out; i++) {
        DType t = op->out[i]->type->dtype;
        if (dtype_narrow(t)) return dtype_name[t];
      }
  return dtype_name[DT_f32];
}

static int by_number(const void *x, const void *y) {
  int a = *(const int *)x, b = *(const int *)y;
  return (a > b) - (a < b);
}

static void add_ranks(StrBuf *b, const Module *m, int ranks) {
  int n;
  int *device = module_devices(m, b->arena, &n);
  const int64_t *ends = mesh_ends(m, b->arena);
  qsort(device, (size_t)n, sizeof *device, by_number);
  for (int i = 0; i < ranks; i++) {
    int64_t bytes = i < n ? device_end(m, ends, device[i]) : 0;
    strbuf_addf(b,
                "%s\n    {\"peak_bytes\": %s, \"compute_ms\": null, \"comm_ms\": null, "
                "\"idle_ms\": null}",
                i ? "," : "",
                m->phase >= PHASE_planned ? str_format(b->arena, "%" PRId64, bytes) : "null");
  }
}

// The part of a step in which stages wait for one another: none where there is one mesh, and
// with several it depends on a schedule, which there is none of.
static const char *bubble_text(const Module *m) {
  return m->meshes && !m->meshes->next ? "0" : "null";
}

const char *summary_text(Summary *s, const Module *m) {
  Arena *a = s->arena;
  StrBuf b = {.arena = a};
  Collectives list = {0};
  int ranks = s->ranks;
  if (m->meshes) module_devices(m, a, &ranks);
  find_collectives(a, m, &list);
  strbuf_addf(&b,
              "{\n  \"ranks\": %d,\n  \"plan_hash\": \"%016" PRIx64 "\",\n  \"dtype\": \"%s\",\n",
              ranks, plan_hash(a, m), summary_dtype(m));
  strbuf_add(&b, "  \"predicted_step_ms\": null,\n  \"per_rank\": [");
  add_ranks(&b, m, ranks);
  strbuf_add(&b, "\n  ],\n  \"comm_bytes\": {");
  add_comm_bytes(&b, m->phase >= PHASE_local ? &list : NULL);
  strbuf_addf(&b,
              "},\n  \"bubble_fraction\": %s,\n"
              "  \"fold\": {\"ops_before\": %d, \"ops_after\": %d, \"unique_blocks\": %d},\n"
              "  \"solver\": {\"status\": \"none\", \"gap\": null, \"seconds\": 0},\n"
              "  \"seconds\": {",
              bubble_text(m), s->n_ops, s->n_folded, s->n_blocks);
  for (int i = 0; i < s->seconds.n; i++)
    strbuf_addf(&b, "%s%s: %.6f", i ? ", " : "", json_string(a, s->seconds.at[i].pass),
                s->seconds.at[i].seconds);
  strbuf_add(&b, "},\n  \"stages\": [");
  add_stages(&b, m, ranks);
  strbuf_add(&b, "]\n}\n");
  return b.at;
}
