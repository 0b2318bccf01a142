// Outputs: the printed report of a training step, and its files.
//
//     --emit exe, c   driver_executable.c
//     --emit nn       the text of the module after the passes
//     --emit plan     the plan: a program for --plan, or the decisions as JSON
//     --emit onnx     the original model, annotated with the plan
//
// and beside any of them --summary, --comm-manifest, --trace, --report, --explain and the additions
// of --verbose.

#include <errno.h>
#include <string.h>

#include "base/table.h"
#include "cost/cost.h"
#include "driver.h"
#include "explain.h"
#include "output.h"
#include "planner/annotations/annotate.h"
#include "report.h"
#include "trace_file.h"

// -- Weights -----------------------------------------------------------------------------------

// The import's findings about weights, by label; empty for a module read as text.
static const Table *table_of_weights(const OnnxFindings *found, Arena *a) {
  Table *t = table_new(a);
  for (int i = 0; i < found->n_weights; i++)
    table_add(t, 0, found->weights[i].label, &found->weights[i]);
  return t;
}

// The last of --freeze and --train that matches; NULL: none.
static const char *asked(const Settings *s, const char *label) {
  for (int i = s->freeze.n - 1; i >= 0; i--) {
    bool train = *s->freeze.at[i] == '!';
    if (str_glob(s->freeze.at[i] + train, label)) return train ? "--train" : "--freeze";
  }
  return NULL;
}

static const char *reason(const Settings *s, const OnnxWeight *w, const Value *v) {
  const char *by = asked(s, v->label);
  // After the gradients, a weight that none reaches is trained no more.
  bool trained = by ? str_equal(by, "--train") : w && w->trained;
  if (trained && !v->train) return "no gradient reaches it";
  return by ? by : w ? w->reason : "the module says so";
}

// Prints the number of trained and of kept weights, their elements, and doubtful decisions.
static void say_weights(const Settings *s, const Compiled *c) {
  enum { MOST = 8 };
  const Graph *g = c->m->graphs;
  int64_t weights[2] = {0}, numbers[2] = {0}; // kept, trained
  int doubtful = 0;
  Arena *a = arena_new();
  const Table *found = table_of_weights(&c->found, a);
  StrBuf doubts = {.arena = a};
  for (int i = 0; g && i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role != ROLE_weight) continue;
    const OnnxWeight *w = v->label ? table_find(found, 0, v->label) : NULL;
    const char *why = reason(s, w, v), *is = v->train ? "trained" : "kept";
    weights[v->train]++;
    const Type *t = value_padded(v) ? v->as : value_whole(v);
    numbers[v->train] += type_count(t);
    if (s->verbose)
      fprintf(stderr, "%-7s  %s %s  %s\n", is, str_shown(a, v->label), type_text(a, t),
              str_shown(a, why));
    // A weight that --freeze or --train names is in no doubt.
    if (!w || !w->doubtful || asked(s, v->label) || doubtful++ >= MOST) continue;
    strbuf_addf(&doubts, "%s %s (%s: %s)", doubtful > 1 ? "," : "", str_shown(a, v->label), is,
                str_shown(a, why));
  }
  if (doubtful > MOST) strbuf_addf(&doubts, " and %d more", doubtful - MOST);
  // Trained weights first; doubtful weights of both kinds follow the kept ones.
  for (int trained = 1; trained >= 0; trained--)
    fprintf(stderr, "%-8s %lld weight%s, %lld parameter%s%s%s%s\n",
            trained ? "trained:" : "kept:", (long long)weights[trained],
            weights[trained] == 1 ? "" : "s", (long long)numbers[trained],
            numbers[trained] == 1 ? "" : "s", !trained && doubtful ? "; in doubt:" : "",
            !trained && doubtful ? doubts.at : "",
            !trained && doubtful ? "; --train and --freeze decide" : "");
  if (s->verbose && c->m->phase >= PHASE_planned)
    fprintf(stderr, "%lld bytes per rank at the peak\n", (long long)c->m->slab_bytes);
  arena_free(a);
}

// ------------------------------------------------------------------------------------------------

// --explain: the alternatives of a search, and the resulting ops.  Some are parts of others by
// then.
static bool say_explained(const Settings *s, const Compiled *c, Diag *d) {
  // Standard output, or stderr if some output is written to standard output.
  const char *written[] = {s->output, s->summary, s->manifest, s->trace, s->report, s->report_json};
  FILE *out = stdout;
  for (size_t i = 0; i < sizeof written / sizeof *written; i++)
    if (written[i] && !strcmp(written[i], "-")) out = stderr;
  const Summary *seen = &c->summary;
  if (seen->chosen >= 0) explain_candidates(&seen->candidates, seen->chosen, seen->cluster, out);
  if (seen->searched.explained) fputs(seen->searched.explained, out);
  if (explain_module(c->m, s->explain, out) || seen->searched.explained) return true;
  // Passes may have folded or joined the ops of a node into those of another.
  bool known = false;
  if (!is_text(s)) {
    Arena *a = arena_new();
    const char *node = onnx_follow(s->model, s->explain, explain_has_node, c->m, a, &known);
    if (node) {
      fprintf(out, "'%s' has no op of its own, and is taken in by %s:\n", str_shown(a, s->explain),
              str_shown(a, node));
      explain_module(c->m, node, out);
    } else if (known) {
      fprintf(out, "'%s' is dead: no op of the step depends on it\n", str_shown(a, s->explain));
    }
    arena_free(a);
  }
  return known || explain_failed(s->explain, d);
}

bool writes_program(const Settings *s) {
  return s->emit == EMIT_plan && str_ends(s->output, ".lua");
}

static bool write_output(const Settings *s, Compiled *c, Arena *a, Diag *d) {
  switch (s->emit) {
  case EMIT_exe:
  case EMIT_c: return write_executable(s, c, a, d);
  case EMIT_nn: return output_write(s->output, module_text(c->m, a), d);
  case EMIT_onnx: {
    // c->m has passed the whole pipeline with the same plan, so the plan can be executed.
    PipelineOptions again = {
        .bisect_limit = s->run.bisect_limit, .stop_after = "shard", .unproved = true};
    const uint8_t *bytes;
    int64_t n;
    bool quiet = diag_quiet(d, true);
    bool ok = pipeline_run(c->model, train_pipeline(a, s, &c->choice), &again, d);
    diag_quiet(d, quiet);
    if (!ok) BUG("a sharded module cannot be sharded again");
    const Annotations *all = annotations_of_module(c->model, c->choice.name, a, d);
    return all && onnx_annotate(s->model, all, s->output, a, &bytes, &n, d) &&
           output_write_bytes(s->output, bytes, n, d);
  }
  case EMIT_plan: {
    if (!writes_program(s)) return output_write(s->output, summary_text(&c->summary, c->m), d);
    // A program for --plan records the name of the model.
    const char *slash = strrchr(s->model, '/');
    bool planned = c->m->phase >= PHASE_planned;
    int64_t peak = planned ? needs_most(c->m, c->summary.cluster).peak_bytes : 0;
    const char *text =
        record_text(&c->record, slash ? slash + 1 : s->model, c->summary.micro_batches, peak);
    if (!text) return diag_error(d, NULL, "there is no plan to write: no pass 'shard' was run");
    return output_write(s->output, text, d);
  }
  }
  return false;
}

static bool has_pictures(const Settings *s) {
  return s->trace || s->report;
}

static bool no_timeline(const Settings *s, Diag *d) {
  return diag_error(d, NULL, "%s: the time of a step cannot be predicted",
                    s->trace ? "--trace" : "--report");
}

bool check_priced(const Settings *s, const Cluster *c, int64_t ranks, Diag *d) {
  bool enough = ranks <= cluster_devices(c);
  if (!has_pictures(s) || (enough && cost_known(c))) return true;
  no_timeline(s, d);
  if (!enough) {
    diag_note(d, NULL, "cluster '%s' has %d devices for %lld ranks", c->name, cluster_devices(c),
              (long long)ranks);
    return false;
  }
  diag_note(d, NULL, "cluster '%s' does not say how fast its devices are", c->name);
  diag_hint(d, "say it in its file, or give another --cluster");
  return false;
}

// Writes --trace and --report from one prediction.
static bool write_pictures(const Settings *s, Compiled *c, const StepTimeline *t, Arena *a,
                           Diag *d) {
  Target target = c->summary.target;
  if (!has_pictures(s)) return true;
  const LaneMemory *memory = c->m->phase >= PHASE_planned ? step_memory(t, c->m, a) : NULL;
  if (s->trace && !output_write(s->trace, trace_text(a, c->m, target, t, memory), d)) return false;
  if (!s->report) return true;
  if (fflush(c->diffs) || fflush(c->counts))
    return diag_error(d, NULL, "--report: %s", strerror(errno));
  const char *slash = strrchr(s->model, '/');
  Report r = {.model = slash ? slash + 1 : s->model,
              .plan = c->summary.plan ? c->summary.plan : "",
              .m = c->m,
              .seen = &c->summary,
              .timeline = t,
              .memory = memory,
              .host = c->m->host_bytes ? step_host_memory(t, c->m, a) : NULL,
              .diffs = c->diff_text,
              .counts = c->count_text};
  return output_write(s->report, report_text(a, &r), d);
}

bool write_all(const Settings *s, Compiled *c, Arena *a, Diag *d) {
  StepTimeline t;
  // --trace and --report show one prediction.
  if (has_pictures(s) && !step_timeline(c->m, c->summary.cluster, c->summary.target, a, &t)) {
    int ranks;
    module_devices(c->m, a, &ranks);
    if (c->m->phase >= PHASE_local && !check_priced(s, c->summary.cluster, ranks, d)) return false;
    no_timeline(s, d);
    diag_note(d, NULL, "%s",
              c->m->phase < PHASE_local
                  ? "the passes stopped before the program was one of ranks, phase 'local'"
                  : "the runs of the schedule wait for each other in a circle");
    return false;
  }
  say_weights(s, c);
  if (s->explain && !say_explained(s, c, d)) return false;
  if (!write_output(s, c, a, d)) return false;
  if (s->summary && !output_write(s->summary, summary_text(&c->summary, c->m), d)) return false;
  if (!write_pictures(s, c, &t, a, d)) return false;
  return !s->manifest ||
         output_write(s->manifest,
                      str_ends(s->manifest, ".csv") ? tuner_text(a, c->m, c->summary.cluster)
                                                    : manifest_text(a, c->m),
                      d);
}
