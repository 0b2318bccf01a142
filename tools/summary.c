// See summary.h.  Unknown figures are null: times until collectives are chosen or if the cluster
// has no speeds, and the quality of a plan without a search.
//
// comm_bytes is the sum of the collectives' bytes (collectives.h) over all ranks and all
// micro-batches of a step.  An executable counts the same with --traffic (rt/traffic.h).

#include "summary.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cost/collectives.h"
#include "cost/cost_comm.h"
#include "cost/cost_step.h"
#include "cost/price_terms.h"
#include "ir/analysis/op_names.h"
#include "ir/analysis/origin.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "output.h"
#include "pass.h"
#include "repeats/repeats.h"

void summary_before(Summary *s, const Module *m) {
  Module *model = module_clone(m);
  PipelineOptions run = {.bisect_limit = -1};
  // A model that cannot be simplified is counted as it is; compiling it reports the error.
  if (m->phase == PHASE_typed) pipeline_run_quietly(model, "simplify,raise,simplify", &run);
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

// The name in NCCL's tuner; NULL if it has none, as for sends and receives.
static const char *nccl_name(const Op *op) {
#define COLLECTIVE(name, from, to, from_dim, to_dim, nccl)                                         \
  if (op->kind == OP_##name) return nccl;
#include "rt/collectives.def"
  return NULL;
}

// The devices that take part in a collective, as JSON.
static const char *groups_of(Arena *a, const Op *op) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "[");
  // The pairs of sender and receiver: [[0,2],[1,2]].
  if (op->kind == OP_move) {
    Messages messages = messages_of(a, op);
    for (int i = 0; i < messages.n; i++)
      if (messages.at[i].from != messages.at[i].to)
        strbuf_addf(&b, "%s[%d, %d]", b.n > 1 ? ", " : "", messages.at[i].from, messages.at[i].to);
    strbuf_add(&b, "]");
    return b.at;
  }
  // The groups of devices that differ along the axes of `op` only: [[0,1],[2,3]].
  Groups groups = collective_groups(a, op);
  for (int i = 0; i < groups.n * groups.size; i++) {
    strbuf_add(&b, i % groups.size ? ", " : i ? "], [" : "[");
    strbuf_addf(&b, "%d", groups.device[i]);
  }
  strbuf_add(&b, "]]");
  return b.at;
}

// A row of the tuner's file.
typedef struct Tuned {
  const Collective *of;
  const char *name;
  int ranks, nodes;
  NcclChoice choice;
} Tuned;

// Compares rows by the keys of a tuner.
static int by_tuned(const void *x, const void *y) {
  const Tuned *a = x, *b = y;
  int kind = strcmp(a->name, b->name);
  int64_t bytes = a->of->bytes - b->of->bytes, ranks = a->ranks - b->ranks;
  int64_t first = kind ? kind : bytes ? bytes : ranks ? ranks : a->nodes - b->nodes;
  return (first > 0) - (first < 0);
}

// NCCL has its own choice for collectives without a row: all of them, if the cluster lacks devices.
const char *tuner_text(Arena *a, const Module *m, const Cluster *c) {
  Collectives list = {0};
  collectives_find(a, m, &list);
  StrBuf b = {.arena = a};
  strbuf_add(&b, "");
  int n = 0, n_devices;
  const int *device = module_devices(m, a, &n_devices);
  for (int i = 0; i < n_devices; i++)
    if (device[i] >= cluster_devices(c)) return b.at;
  CommPrices *prices = comm_prices_new(a, c);
  Tuned *tuned = arena_array(a, Tuned, list.n);
  for (int i = 0; i < list.n; i++) {
    Tuned row = {.of = &list.at[i], .name = nccl_name(list.at[i].op)};
    if (!row.name) continue;
    row.ranks = collective_size(row.of->op);
    row.choice = comm_nccl(prices, row.of->op, &row.nodes);
    tuned[n++] = row;
  }
  if (n) qsort(tuned, (size_t)n, sizeof *tuned, by_tuned);
  // A row for collectives with equal keys: a tuner takes the first match.
  for (int i = 0; i < n; i++)
    if (!i || by_tuned(&tuned[i - 1], &tuned[i]) != 0)
      // type, least and most bytes, algorithm, protocol, channels, nodes, ranks, pipelined ops,
      // registered buffers; -1: any
      strbuf_addf(&b, "%s,%" PRId64 ",%" PRId64 ",%s,%s,%d,%d,%d,-1,-1\n", tuned[i].name,
                  tuned[i].of->bytes, tuned[i].of->bytes, tuned[i].choice.algorithm,
                  tuned[i].choice.protocol, tuned[i].choice.channels, tuned[i].nodes,
                  tuned[i].ranks);
  return b.at;
}

const char *manifest_text(Arena *a, const Module *m) {
  Collectives list = {0};
  collectives_find(a, m, &list);
  StrBuf b = {.arena = a};
  strbuf_add(&b, "[");
  for (int i = 0; i < list.n; i++) {
    const Collective *c = &list.at[i];
    strbuf_addf(&b,
                "%s\n  {\"kind\": \"%s\", \"groups\": %s, \"bytes\": %" PRId64
                ", \"count\": %" PRId64 ", \"phase\": \"%s\", \"op\": %s}",
                i ? "," : "", op_info[c->op->kind].name, groups_of(a, c->op), c->bytes, c->count,
                step_part_name[c->part], json_string(a, op_text(c->op, a)));
  }
  strbuf_add(&b, list.n ? "\n]\n" : "]\n");
  return b.at;
}

// -- The summary -------------------------------------------------------------------------------

// The text of an op in a plan's hash. Axes count by position in the mesh: their names are no
// decisions, and ONNX's annotations do not have them.
static const char *hashed_text(const Op *op, Arena *a, Diag *d) {
  const char *text = op_text(op, a);
  MeshAxes axes;
  bool names_axes = (op_info[op->kind].traits & (COMM | ACCUMULATES)) && op_has_attr(op, "axis");
  if (!names_axes || !op_axes(op, &axes, d)) return text;
  const char *name = str_format(a, " axis=\"%s\"", attr_s(op, "axis"));
  const char *at = strstr(text, name);
  if (!at) return text;
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "%.*s axis=", (int)(at - text), text);
  for (int i = 0; i < axes.n; i++)
    strbuf_addf(&b, "%s%d", i ? "+" : "", axes.at[i]);
  strbuf_add(&b, at + strlen(name));
  return b.at;
}

uint64_t plan_hash(const Module *m) {
  uint64_t hash = FNV1A_EMPTY;
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  enum { KEPT = 64 << 10 }; // bytes of texts: a constant has megabytes
  Arena *a = arena_new();
  for_each_graph(g, m)
    for_each_op(op, g) {
      const char *text = hashed_text(op, a, d);
      hash = fnv1a(hash, text, strlen(text));
      if (arena_used(a) <= KEPT) continue;
      arena_free(a);
      a = arena_new();
    }
  arena_free(a);
  diag_free(d);
  return hash;
}

// `list` is NULL while no collectives are chosen.
static void add_comm_bytes(StrBuf *b, const Collectives *list) {
  for (int k = 0; k < N_COLLECTIVE_KINDS; k++) {
    if (!list) {
      strbuf_addf(b, "%s\"%s\": null", k ? ", " : "", op_info[collective_kinds[k]].name);
      continue;
    }
    int64_t bytes = 0;
    for (int i = 0; i < list->n; i++)
      if (list->at[i].op->kind == collective_kinds[k])
        bytes += list->at[i].all_bytes * list->at[i].count;
    strbuf_addf(b, "%s\"%s\": %" PRId64, k ? ", " : "", op_info[collective_kinds[k]].name, bytes);
  }
}

// Adds the op, and its node of the model.
static void add_op(StrBuf *b, const char *which, const Op *op) {
  Arena *a = arena_new();
  const char *node = op ? op_node(op) : "";
  strbuf_addf(b, ", \"%s_op\": %s, \"%s_node\": %s", which,
              op ? json_string(a, op_text(op, a)) : "null", which,
              *node ? json_string(a, node) : "null");
  arena_free(a);
}

// The first and the last op tell a stage's place in the model.
typedef struct StageOps {
  const Op *first, *last;
} StageOps;

// By mesh id; of a module without meshes there is one.  Collectives and buckets come from the plan.
static StageOps *find_stages(const Module *m, Arena *a) {
  int n = module_n_meshes(m);
  StageOps *of = arena_array(a, StageOps, n ? n : 1);
  for (const Op *op = m->graphs ? m->graphs->first : NULL; op; op = op->next) {
    bool is_moved =
        (op_info[op->kind].traits & COMM) || op->kind == OP_pack || op->kind == OP_unpack;
    if (op_part(op) != PART_forward || is_moved) continue;
    StageOps *stage = &of[n ? op_mesh(op)->id : 0];
    if (!stage->first) stage->first = op;
    stage->last = op;
  }
  return of;
}

// Adds a mesh as a stage, if it runs ops of the model.  A module without meshes runs on `ranks`
// devices, and is one stage.
static void add_stage(StrBuf *b, const Mesh *mesh, const StageOps *ops, int ranks, int *n_stages) {
  Arena *a = b->arena;
  if (mesh && !ops->first) return;
  strbuf_add(b, (*n_stages)++ ? ", {\"devices\": [" : "{\"devices\": [");
  for (int i = 0; i < (mesh ? mesh->n_devices : ranks); i++)
    strbuf_addf(b, "%s%d", i ? ", " : "", mesh ? mesh->device[i] : i);
  strbuf_add(b, "], \"mesh\": {");
  for (int i = 0; mesh && i < mesh->n_axes; i++)
    strbuf_addf(b, "%s%s: %d", i ? ", " : "", json_string(a, mesh->axis[i].name),
                mesh->axis[i].size);
  strbuf_add(b, "}");
  add_op(b, "first", ops->first);
  add_op(b, "last", ops->last);
  strbuf_add(b, "}");
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

static const char *ms_text(Arena *a, bool known, double seconds) {
  return known ? str_format(a, "%.6f", seconds * 1e3) : "null";
}

static void add_ranks(StrBuf *b, const Module *m, int ranks, const Cluster *c,
                      const StepCost *cost) {
  int n;
  Arena *a = b->arena;
  int *device = module_devices(m, a, &n);
  const int64_t *ends = mesh_ends(m, a), *host_ends = mesh_host_ends(m, a);
  const int64_t *ahead = gathered_ahead_bytes(m, c, a);
  qsort(device, (size_t)n, sizeof *device, by_number);
  for (int i = 0; i < ranks; i++) {
    int64_t bytes = i < n ? device_end(m, ends, device[i]) + device_end(m, ahead, device[i]) : 0;
    int64_t host = i < n ? device_end(m, host_ends, device[i]) : 0;
    // The cost of the device's rank; NULL without a prediction.
    const RankCost *known = NULL;
    for (int k = 0; cost && i < n && k < cost->n_ranks; k++)
      if (cost->device[k] == device[i]) known = cost->rank[k];
    RankCost rank = known ? *known : (RankCost){0};
    strbuf_addf(b,
                "%s\n    {\"peak_bytes\": %s, \"host_bytes\": %" PRId64
                ", \"compute_ms\": %s, \"comm_ms\": %s, "
                "\"idle_ms\": %s}",
                i ? "," : "", m->phase >= PHASE_planned ? str_format(a, "%" PRId64, bytes) : "null",
                host, ms_text(a, known, rank.compute), ms_text(a, known, rank.comm),
                ms_text(a, known, rank.idle));
  }
}

// Returns the device of the rank that computes most, the first of them.
static int busiest(const StepCost *cost) {
  int best = 0;
  for (int i = 1; i < cost->n_ranks; i++) {
    bool more = cost->rank[i]->compute > cost->rank[best]->compute;
    bool same = cost->rank[i]->compute == cost->rank[best]->compute;
    if (more || (same && cost->device[i] < cost->device[best])) best = i;
  }
  return cost->device[best];
}

bool summary_prices(const Module *m, const Cluster *c, Target target, Arena *a, int *rank,
                    PriceTerms *out) {
  StepCost cost;
  if (!step_cost(m, c, target, a, &cost)) return false;
  *rank = busiest(&cost);
  return price_terms(m, c, *rank, a, out);
}

// Adds the terms of the price of the rank that computes most; `cost` is NULL without a prediction.
static void add_prices(StrBuf *b, const Module *m, const Cluster *c, const StepCost *cost) {
  Arena *a = b->arena;
  PriceTerms terms = {0};
  int rank = cost ? busiest(cost) : 0;
  if (!cost || !price_terms(m, c, rank, a, &terms)) {
    strbuf_add(b, "  \"prices\": null,\n");
    return;
  }
  strbuf_addf(b, "  \"prices\": {\"rank\": %d, \"terms\": [", rank);
  for (int i = 0; i < terms.n; i++) {
    const PriceTerm *t = &terms.at[i];
    strbuf_addf(b, "%s\n    {\"what\": \"%s\", \"by\": \"%s\", \"count\": %" PRId64 ", \"ms\": %s",
                i ? "," : "", t->what, t->by, t->count, ms_text(a, true, t->seconds));
    if (t->nodes) strbuf_addf(b, ", \"nodes\": %d, \"bytes\": %.0f", t->nodes, t->bytes);
    if (t->algorithm)
      strbuf_addf(b, ", \"algorithm\": \"%s\", \"protocol\": \"%s\", \"nccl_ms\": %s", t->algorithm,
                  t->protocol, ms_text(a, true, t->nccl_seconds));
    strbuf_add(b, "}");
  }
  strbuf_add(b, "\n  ]},\n");
}

// -- The plan ----------------------------------------------------------------------------------

void summary_searched(void *summary, const SearchStats *found) {
  Summary *s = summary;
  searched_add(&s->searched, found);
  if (found->explained) s->searched.explained = str_copy(s->arena, found->explained);
}

// Adds each evaluated plan; null and the reason if it could not be made.
static void add_candidates(StrBuf *b, const Summary *s) {
  if (!s->candidates.n) return;
  strbuf_addf(b, "  \"candidates\": [");
  for (int i = 0; i < s->candidates.n; i++) {
    const Candidate *c = &s->candidates.at[i];
    strbuf_addf(b, "%s\n    {\"plan\": %s, \"micro_batches\": %" PRId64 ", \"step_ms\": %s, ",
                i ? "," : "", json_string(b->arena, c->plan), c->micro_batches,
                ms_text(b->arena, c->made && isfinite(c->seconds), c->seconds));
    strbuf_addf(b, "\"peak_bytes\": %s, \"ranks_sharing\": %s, \"fits\": %s, \"chosen\": %s",
                c->made ? str_format(b->arena, "%" PRId64, c->needs.peak_bytes) : "null",
                c->made ? str_format(b->arena, "%d", c->sharing) : "null",
                c->fits ? "true" : "false", i == s->chosen ? "true" : "false");
    if (c->priced > 0) strbuf_addf(b, ", \"priced_ms\": %s", ms_text(b->arena, true, c->priced));
    if (c->priced_bytes > 0) strbuf_addf(b, ", \"priced_bytes\": %.0f", c->priced_bytes);
    if (c->work_done > 0) strbuf_addf(b, ", \"search_work\": %.0f", c->work_done);
    if (!c->made) strbuf_addf(b, ", \"why\": %s", json_string(b->arena, c->why));
    strbuf_add(b, "}");
  }
  strbuf_add(b, "\n  ],\n");
}

// Adds the result of the search of auto, if there was one.
static void add_certificate(StrBuf *b, const Summary *s) {
  const Certificate *c = &s->certificate;
  bool known = c->best > 0 && c->bound > 0;
  if (!c->points) return;
  strbuf_addf(b,
              "  \"certificate\": {\"points\": %d, \"impossible\": %d, \"unlikely\": %d, "
              "\"refused\": %d, \"recomputed\": %d, \"tables\": %d, \"estimated\": %d, "
              "\"unpriced\": %d, \"built\": %d, "
              "\"failed\": %d, \"excluded\": %d, \"offloaded\": %d, \"swapped\": %d,\n",
              c->points, c->impossible, c->unlikely, c->refused, c->recomputed, c->tables,
              c->estimated, c->unpriced, c->built, c->failed, c->excluded, c->offloaded,
              c->swapped);
  strbuf_addf(b,
              "    \"best_ms\": %s, \"priced_ms\": %s, \"bound_ms\": %s, \"gap\": %s, "
              "\"tabled_ms\": %s, \"binds\": %s, \"stopped\": %s},\n",
              ms_text(b->arena, c->best > 0, c->best), ms_text(b->arena, c->priced > 0, c->priced),
              ms_text(b->arena, c->bound > 0, c->bound),
              known ? str_format(b->arena, "%.6f", 1 - c->bound / c->best) : "null",
              ms_text(b->arena, c->tabled > 0, c->tabled),
              c->binds ? json_string(b->arena, c->binds) : "null", c->stopped ? "true" : "false");
}

const char *summary_command(const Summary *s) {
  StrBuf b = {.arena = s->arena};
  strbuf_add(&b, "");
  for (int i = 0; i < s->argc; i++)
    strbuf_addf(&b, "%s%s", i ? " " : "", str_shell(s->arena, s->argv[i]));
  return b.at;
}

// Adds the plan, its hash, and the command.
static void add_plan(StrBuf *b, const Summary *s, const Module *m, int ranks) {
  Arena *a = b->arena;
  strbuf_addf(b,
              "{\n  \"ranks\": %d,\n  \"plan\": %s,\n  "
              "\"micro_batches\": %" PRId64 ",\n  \"plan_hash\": \"%016" PRIx64
              "\",\n  \"dtype\": \"%s\",\n"
              "  \"version\": %s,\n  \"command\": %s,\n",
              ranks, s->plan ? json_string(a, s->plan) : "null", s->micro_batches, plan_hash(m),
              summary_dtype(m), json_string(a, s->version), json_string(a, summary_command(s)));
}

// Adds the predicted step; `cost` is NULL without a prediction: the cluster has no speeds, or
// collectives are not chosen yet.
static void add_prediction(StrBuf *b, const Summary *s, const Module *m, int ranks,
                           const StepCost *cost) {
  Arena *a = b->arena;
  Collectives list = {0};
  collectives_find(a, m, &list);
  strbuf_addf(b,
              "  \"cluster\": %s,\n  \"predicted_step_ms\": %s,\n  \"predicted_span_ms\": %s,\n"
              "  \"per_rank\": [",
              cost ? json_string(a, s->cluster->name) : "null",
              ms_text(a, cost, cost ? cost->seconds : 0), ms_text(a, cost, cost ? cost->span : 0));
  add_ranks(b, m, ranks, s->cluster, cost);
  strbuf_add(b, "\n  ],\n  \"comm_bytes\": {");
  add_comm_bytes(b, m->phase >= PHASE_local ? &list : NULL);
  strbuf_addf(b,
              "},\n  \"bubble_fraction\": %s,\n"
              "  \"fold\": {\"ops_before\": %d, \"ops_after\": %d, \"unique_blocks\": %d},\n",
              cost ? str_format(a, "%.6f", cost->bubble) : "null", s->n_ops, s->n_folded,
              s->n_blocks);
}

// Adds the search that made the plan.
static void add_solver(StrBuf *b, const SearchStats *found) {
  if (!found->n)
    strbuf_add(
        b,
        "  \"solver\": {\"status\": \"none\", \"gap\": null, \"ended\": null, \"seconds\": 0},\n");
  else
    strbuf_addf(b,
                "  \"solver\": {\"status\": \"%s\", \"gap\": %.9g, \"ended\": \"%s\", \"seconds\": "
                "%.6f, \"nodes\": %d, "
                "\"choices\": %d, \"edges\": %d, \"step_ms\": %.6f},\n",
                solver_status_name[found->status], found->gap, solver_end_name[found->ended],
                found->seconds, found->n_nodes, found->n_choices, found->n_edges,
                1e3 * found->step);
}

// Adds the seconds of the choice and of every pass.
static void add_seconds(StrBuf *b, const Summary *s) {
  strbuf_add(b, "  \"seconds\": {");
  if (s->candidates.n) strbuf_addf(b, "\"choose\": %.6f%s", s->choosing, s->seconds.n ? ", " : "");
  for (int i = 0; i < s->seconds.n; i++)
    strbuf_addf(b, "%s%s: %.6f", i ? ", " : "", json_string(b->arena, s->seconds.at[i].pass),
                s->seconds.at[i].seconds);
  strbuf_add(b, "},\n");
}

// Adds the stages: each mesh is one; a module without meshes is one.
static void add_stages(StrBuf *b, const Module *m, int ranks) {
  int n_stages = 0;
  const StageOps *stages = find_stages(m, b->arena);
  strbuf_add(b, "  \"stages\": [");
  if (!m->meshes) add_stage(b, NULL, stages, ranks, &n_stages);
  for_each_mesh(mesh, m)
    add_stage(b, mesh, &stages[mesh->id], ranks, &n_stages);
  strbuf_add(b, "]\n}\n");
}

const char *summary_text(Summary *s, const Module *m) {
  StrBuf b = {.arena = s->arena};
  int ranks = s->ranks;
  if (m->meshes) module_devices(m, s->arena, &ranks);
  StepCost of_step;
  const StepCost *cost = s->step;
  if (!cost && step_cost(m, s->cluster, s->target, s->arena, &of_step)) cost = &of_step;
  add_plan(&b, s, m, ranks);
  add_prediction(&b, s, m, ranks, cost);
  add_prices(&b, m, s->cluster, cost);
  add_solver(&b, &s->searched);
  add_candidates(&b, s);
  add_certificate(&b, s);
  add_seconds(&b, s);
  add_stages(&b, m, ranks);
  return b.at;
}
