// The model of a step as a module, and the options of the passes that it goes through.

#include <string.h>

#include "driver.h"
#include "train/loss_spec.h"

// Whether --loss names the output; without --loss, whether it is the only scalar.
static bool makes_loss(const void *of, Graph *g, const char *output) {
  const Settings *s = of;
  LossSpecs specs = {0};
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  bool makes = false;
  int scalars = 0;
  if (s->loss && loss_spec_parse(&specs, s->loss, g, a, d))
    for (int i = 0; i < specs.n; i++)
      makes = makes || str_equal(specs.at[i].output, output);
  for (int i = 0; !s->loss && i < g->n_results; i++) {
    if (type_count(g->results[i]->use.value->type) != 1) continue;
    makes = makes || str_equal(g->results[i]->label, output);
    scalars++;
  }
  diag_free(d);
  arena_free(a);
  return makes && scalars <= 1;
}

static OnnxOptions import_options(const Settings *s, bool *annotated, OnnxFindings *found) {
  return (OnnxOptions){.batch = s->batch * s->accumulate,
                       .batch_dim = s->batch_dim,
                       .batch_first = true,
                       .dims = s->dims.at,
                       .n_dims = s->dims.n,
                       .bounds = s->bounds.at,
                       .n_bounds = s->bounds.n,
                       .external_data_dir = s->external_data_dir,
                       .train_mode = s->train_mode,
                       .unread = s->emit == EMIT_plan || s->emit == EMIT_onnx,
                       .devices = is_auto(s) || follows_annotations(s) ? s->ranks : 0,
                       .annotated = annotated,
                       .weights = s->freeze.at,
                       .n_weights = s->freeze.n,
                       .makes_loss = s->pipeline ? NULL : makes_loss,
                       .makes_loss_of = s,
                       .detached = s->detach.at,
                       .n_detached = s->detach.n,
                       .findings = found,
                       .target = &s->backend.target.target};
}

static void warn_of_batch_norms(const OnnxFindings *found, Diag *d) {
  int n = found->n_batch_norms;
  if (!n) return;
  diag_doubt(
      d, PROBLEM_statistics, found->batch_norm,
      "%d BatchNormalization%s exported for inference%s: running statistics stay as they are", n,
      n == 1 ? " is" : "s are", n == 1 ? "" : ", this one the first");
  diag_hint(d, "--train-mode takes the statistics of each batch, as module.train() does");
}

static void warn_of_dropouts(const OnnxFindings *found, Diag *d) {
  int n = found->n_dropouts;
  if (!n) return;
  diag_warning(d, found->dropout,
               "%d Dropout%s of attention %s exported for inference%s: nothing is dropped", n,
               n == 1 ? "" : "s", n == 1 ? "is" : "are", n == 1 ? "" : ", this one the first");
  diag_hint(d, "--train-mode drops, as module.train() does");
}

static void warn_of_unrounded(const OnnxFindings *found, Diag *d) {
  int n = found->n_unrounded;
  if (!n) return;
  diag_warning(d, found->unrounded,
               "%d DynamicQuantizeLSTM%s computed without rounding inputs and states to 8 bits%s",
               n, n == 1 ? " is" : "s are", n == 1 ? "" : ", this one the first");
}

bool driver_import(const Settings *s, Compiled *c, bool *annotated, Diag *d) {
  c->import = import_options(s, annotated, &c->found);
  c->m = is_text(s) ? module_read(s->model, d) : onnx_import(s->model, &c->import, d);
  // It is known of a model that cannot be imported, too.
  warn_of_batch_norms(&c->found, d);
  if (!c->m) return false;
  warn_of_dropouts(&c->found, d);
  warn_of_unrounded(&c->found, d);
  return true;
}

const PipelineOptions *run_options(const Settings *s, Compiled *c, Arena *a) {
  PipelineOptions *run = arena_copy(a, &s->run, sizeof s->run);
  c->summary.seconds.n = 0;
  c->summary.searched = (SearchStats){0};
  c->record = (Record){.arena = a};
  run->timed = summary_timed;
  run->timed_to = &c->summary;
  run->searched = summary_searched;
  run->searched_to = &c->summary;
  run->auto_plan = is_auto(s) && !is_annotated_plan(c->choice.name);
  run->record = writes_program(s) ? &c->record : NULL;
  run->diffs = c->diffs;
  run->counts = c->counts;
  // If bisection skips a pass, searches get other problems, so earlier answers do not hold.
  run->lives = s->run.bisect_limit < 0 ? c->choice.known : NULL;
  run->model = c->proved;
  run->paths = c->paths;
  run->keep_model = s->emit == EMIT_exe || s->emit == EMIT_c;
  return run;
}
