// Inputs of the backend besides the module: the defaults of the executable's flags, the provenance
// in its --describe, and for its --export the model with space for weights.

#include <inttypes.h>
#include <string.h>

#include "base/vec.h"
#include "driver.h"
#include "output.h"
#include "prove/prove.h"
#include "train/optimizer_spec.h"

// -- --describe --------------------------------------------------------------------------------

// What no proof covers, as a JSON list: of the plan, if it is not proved, and of every program.
static const char *not_proved(Arena *a, const Compiled *c) {
  bool async = module_asynchronous(c->m);
  StrBuf b = {.arena = a};
  if (c->unproved)
    strbuf_add(&b, "\"the plan: the module was distributed before, without --prove\", ");
  else if (!c->m->model_values && !async)
    strbuf_add(&b, "\"the plan: --passes distributes no module\", ");
  if (async)
    strbuf_add(&b, "\"stash_weights and later passes: stages update weights in every "
                   "micro-batch\", ");
  return str_format(a,
                    "[%s\"import with its weights, simplification and gradients\", \"the order of "
                    "sums and rounding\", \"kernels, libraries and collectives\"]",
                    b.at ? b.at : "");
}

// The part of the executable's --describe that the runtime does not know.  With --passes, the ops
// give the optimizer, and the rest is null: the origin of the module is unknown.
static const char *describe_text(Arena *a, const Settings *s, const Compiled *c,
                                 const char *updated_by, uint64_t weights) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "{\"not_proved\": %s,\n  \"source\": %s, \"dtype\": \"%s\", \"lr_from\": \"%s\"",
              not_proved(a, c), json_string(a, s->model), summary_dtype(c->m),
              s->lr_text ? "--lr" : "default of the optimizer");
  const TargetSpec *t = &s->backend.target;
  for (int i = 0; i < t->n_sm; i++)
    strbuf_addf(&b, "%s\"sm_%d\"", i ? ", " : ", \"architectures\": [", t->sm[i]);
  if (t->n_sm)
    strbuf_addf(&b, "], \"link\": \"%s\"", s->backend.link == LINK_static ? "static" : "shared");
  // Executables of one job need the same weights (rt/program.c).
  if (weights) strbuf_addf(&b, ", \"weights\": \"%016" PRIx64 "\"", weights);
  if (s->pipeline) {
    strbuf_addf(&b, ", \"passes\": %s", json_string(a, s->pipeline));
    strbuf_addf(&b, ", \"optimizer\": %s", updated_by ? json_string(a, updated_by) : "null");
    strbuf_add(&b, ", \"loss\": null, \"clip_norm\": null, \"accumulate\": null, "
                   "\"frozen\": null, \"detached\": null}");
    return b.at;
  }
  strbuf_addf(&b, ", \"optimizer\": %s", json_string(a, s->optimizer));
  strbuf_addf(&b, ", \"loss\": %s", json_string(a, s->loss ? s->loss : ""));
  strbuf_addf(&b, ", \"clip_norm\": %.9g, \"accumulate\": %lld", s->clip_norm,
              (long long)s->accumulate);
  if (s->train_mode) strbuf_add(&b, ", \"train_mode\": true");
  if (strcmp(s->init, "keep") != 0) strbuf_addf(&b, ", \"init\": %s", json_string(a, s->init));
  if (s->dims.n)
    strbuf_addf(&b, ", \"dims\": %s", json_string(a, strings_joined(a, &s->dims, ",")));
  if (s->bounds.n)
    strbuf_addf(&b, ", \"bounds\": %s", json_string(a, strings_joined(a, &s->bounds, ",")));
  if (s->no_decay) strbuf_addf(&b, ", \"no_decay\": %s", json_string(a, s->no_decay));
  if (s->groups.n)
    strbuf_addf(&b, ", \"groups\": %s", json_string(a, strings_joined(a, &s->groups, ";")));
  strbuf_addf(&b, ", \"frozen\": %s",
              json_string(a, s->freeze.n ? strings_joined(a, &s->freeze, ",") : ""));
  strbuf_addf(&b, ", \"detached\": %s}",
              json_string(a, s->detach.n ? strings_joined(a, &s->detach, ",") : ""));
  return b.at;
}

// -- --export ----------------------------------------------------------------------------------

static bool is_updated(const Graph *g, const Value *v) {
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->target == v) return true;
  return false;
}

// Whether an untrained weight is written as it is in the file: its type can hold that.
static bool keeps_file_type(const Graph *g, const Value *v) {
  if (v->role != ROLE_weight || is_updated(g, v) || !v->init) return false;
  DType file = v->init->dtype, here = v->type->dtype;
  bool is_generated = v->init->kind != INIT_file && v->init->kind != INIT_bytes;
  bool widens = dtype_class[file] == dtype_class[here] && dtype_bytes[file] < dtype_bytes[here];
  return is_generated || file == here || widens;
}

// Adds to the options the model with space for the weights of the ranks, trained weights first.
static bool add_skeleton(const Settings *s, const Compiled *c, Arena *a, BackendOptions *o,
                         Diag *d) {
  Vec(const char *) labels = {0};
  const Graph *g = c->m->graphs;
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->role == ROLE_weight && is_updated(g, g->params[i]))
      vec_push(a, &labels, g->params[i]->label);
  int n_updated = labels.n;
  for (int i = 0; i < g->n_params; i++)
    if (keeps_file_type(g, g->params[i])) vec_push(a, &labels, g->params[i]->label);
  OnnxSkeleton skeleton = {0};
  if (!onnx_skeleton(s->model, &c->import, labels.at, labels.n, n_updated, a, &skeleton, d))
    return false;
  ExportHole *holes = arena_array(a, ExportHole, skeleton.n_holes);
  for (int i = 0; i < skeleton.n_holes; i++) {
    const OnnxHole *h = &skeleton.holes[i];
    holes[i] = (ExportHole){h->label, h->dtype, h->offset, h->length};
  }
  o->skeleton = skeleton.bytes;
  o->skeleton_bytes = skeleton.n;
  o->holes = holes;
  o->n_holes = skeleton.n_holes;
  return true;
}

// -- The executable ----------------------------------------------------------------------------

// The optimizer whose ops update the weights, or NULL.
static const char *module_optimizer(const Module *m) {
  for_each_graph(g, m)
    for_each_op(op, g)
      if (optimizer_of_op(op)) return optimizer_of_op(op);
  return NULL;
}

// The default of --lr; with --passes, the default of the optimizer in the module.
static bool find_lr(const Settings *s, const char *updated_by, double *lr, Arena *a, Diag *d) {
  *lr = s->lr;
  if (!s->pipeline || s->lr_text || !updated_by) return true;
  OptimizerSpec spec;
  if (!optimizer_parse(updated_by, NULL, &spec, a, d)) return false;
  *lr = spec.lr;
  return check_least_lr(s, *lr, d);
}

bool write_executable(const Settings *s, const Compiled *c, Arena *a, Diag *d) {
  const char *updated_by = module_optimizer(c->m);
  BackendOptions o = s->backend;
  if (!find_lr(s, updated_by, &o.lr, a, d)) return false;
  o.output = s->output;
  o.split_ranks = s->split_ranks;
  o.jobs = (int)s->jobs;
  o.cache = s->cache;
  o.verbose = s->verbose;
  o.version = NNAOT_VERSION;
  o.plan = c->choice.name;
  uint64_t weights;
  if (!weights_checksum(c->m, d, &weights)) return false;
  o.describe = describe_text(a, s, c, updated_by, weights);
  o.proved = c->m->model_values && !c->unproved;
  o.plan_hash = plan_hash(c->m);
  o.lr_schedule = s->lr_schedule;
  int per_node = c->summary.cluster->per_node;
  // With --passes, the pipeline knows its cluster.
  if (s->network) o.per_node = per_node < (int)s->ranks ? per_node : (int)s->ranks;
  if (str_ends(s->model, ".onnx") && !add_skeleton(s, c, a, &o, d)) return false;
  return s->emit == EMIT_c ? backend_emit(c->m, s->output, &o, d) : backend_build(c->m, &o, d);
}
